/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer to a load, as the library keeps it: the functions of an image by name, with parameter layouts and attributes
 * (broker/proto/verdict.h is its form on the way here). Shared by every module and library of the same image, and
 * remembered by what was sent, so that a second load needs no trip. Any thread.
 */
#ifndef GLEAM_ANSWER_H
#define GLEAM_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/lib/fatbin.h"
#include "broker/proto/cuda_abi.h"
#include "broker/proto/verdict.h"

/* What a launch may carry: CUDA's limit since 12.1. */
#define ANSWER_PARAMS_SIZE FATBIN_PARAMS_SIZE_MAX

/* One function of an image. Fixed once it can be found, except for what answer_learn() completes. */
struct answer_function {
	const char *name; /* lives as long as the answer */
	uint32_t name_size;
	uint32_t name_hash;
	uint32_t params_size; /* bytes of the packed block */
	uint32_t param_count;
	const struct verdict_param *params; /* in order of index */
	bool has_params;		    /* atomic: params are known */
	bool has_attributes;		    /* atomic: attributes are known */
	bool has_gaps;			    /* some bytes of the block belong to no parameter */
	int32_t attributes[VERDICT_ATTRIBUTES]; /* on the device that the load was made for */
};

struct answer;

/*
 * Parse a verdict's bytes. Takes @bytes (from malloc), also on failure. NULL with *@result_out for bytes that are no
 * verdict (UNKNOWN) and when memory is short. One reference belongs to the caller.
 */
struct answer *answer_new(uint8_t *bytes, size_t size, CUresult *result_out);
struct answer *answer_get(struct answer *answer);
void answer_put(struct answer *answer);

/* NULL when the image has no function of this name. */
struct answer_function *answer_find(const struct answer *answer, const char *name);
uint32_t answer_count(const struct answer *answer);
struct answer_function *answer_at(const struct answer *answer, uint32_t index);
uint32_t answer_index(const struct answer *answer, const struct answer_function *function);
/* The driver could not list the functions: every name has to be asked for once. */
bool answer_is_unlisted(const struct answer *answer);
/*
 * What the worker told about one function later (a record in the form of verdict.h): complete it. Of an unlisted answer:
 * add it. @own: its attributes are those on the device that the answer is of, or one like it; else they are left out. NULL if the
 * record is malformed or speaks of another name, or memory is short.
 */
struct answer_function *answer_learn(struct answer *answer, const char *name, const void *record, size_t size, bool own);

/* The key that it was kept by; NULL: it never was. */
const struct verdict_key *answer_key_of(const struct answer *answer);

/* The store. find: a new reference, or NULL. keep: takes a reference of its own; once for an answer, before others know it. */
struct answer *answer_store_find(const struct verdict_key *key);
void answer_store_keep(const struct verdict_key *key, struct answer *answer);

/* Add bytes to a key under construction; begin with all zero. */
void answer_key_add(struct verdict_key *key, const void *bytes, size_t size);

#endif
