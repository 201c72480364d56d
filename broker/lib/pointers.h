/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which words of memory point into some ranges of addresses: a look at many bytes that have hardly any. Words are 8 bytes long and lie
 * at multiples of 8. No threads; a list that is sealed may be read by several.
 */
#ifndef GLEAM_LIB_POINTERS_H
#define GLEAM_LIB_POINTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POINTER_HIGHS 4 /* different upper halves of addresses that are compared at once */

struct pointer_range {
	uint64_t from;
	uint64_t end; /* the address behind it: that may be pointed to, too, unless another range begins there */
	uint32_t id;  /* the caller's */
};

struct pointers {
	struct pointer_range *ranges; /* by from */
	uint32_t count;
	uint32_t room;
	uint64_t top; /* the largest end */
	uint32_t highs[POINTER_HIGHS];
	uint32_t high_count; /* more than POINTER_HIGHS: words are compared one by one */
};

/* Nothing is read from it until it is sealed. False: out of memory. */
bool pointers_add(struct pointers *p, uint64_t from, uint64_t end, uint32_t id);
void pointers_seal(struct pointers *p);
void pointers_free(struct pointers *p);

/* The first of the ranges that @value points into, with all others that begin there behind it; NULL: none. */
const struct pointer_range *pointers_find(const struct pointers *p, uint64_t value);

/* Calls @hear for every word of @bytes, which lie at @address, that points into a range. */
void pointers_look(const struct pointers *p, const void *bytes, size_t size, uint64_t address,
		   void (*hear)(void *arg, uint64_t at, uint64_t value), void *arg);
/* The same for words at multiples of @step from the beginning on, wherever they lie: @at is where from there. For few bytes. */
void pointers_look_anywhere(const struct pointers *p, const void *bytes, size_t size, size_t step,
			    void (*hear)(void *arg, uint64_t at, uint64_t value), void *arg);

#endif
