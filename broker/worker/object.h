/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the client's handles mean: one table a type, indexed by the handle. Executor thread only.
 *
 * The client reuses an index as soon as it has sent the old object's death. That death may be parked behind commands
 * that still use the old object, so an index can hold several generations at a time.
 */
#ifndef GLEAM_WORKER_OBJECT_H
#define GLEAM_WORKER_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/handle.h"

struct object {
	uint32_t generation;
	uint16_t ctx;	      /* context that was current at its birth; CTX_NONE without */
	bool live;	      /* false: the place is free */
	uint64_t used;	      /* a function or kernel: in which contexts it has been launched, bit per index, */
	uint64_t asked;	      /* the driver has been asked about it, */
	uint64_t touched;     /* or had to load it: touch.c */
	void *driver;	      /* the driver's object */
	void *own;	      /* ours: struct stream, struct event, struct image */
	struct object *older; /* other generations of the index; owned */
};

struct object_table {
	struct object *at;
	uint32_t size; /* places that exist; grows up to the limit of the type */
	uint32_t count;
};

/* Most live objects of a type; a program that has more is told so by OUT_OF_MEMORY at the birth. */
uint32_t object_limit(enum object_type type);

/* NULL: unknown, stale, or not of @type. Valid until the next birth or death. */
struct object *object_find(struct object_table tables[OBJECT_TYPES], enum object_type type, uint64_t handle);
/* NULL: the handle is no @type, taken, over the limit, or there is no memory. */
struct object *object_insert(struct object_table tables[OBJECT_TYPES], enum object_type type, uint64_t handle);
void object_erase(struct object_table tables[OBJECT_TYPES], uint64_t handle);
/* Calls @visit for every live object of a type; it may erase the object that it is called for. */
void object_each(struct object_table tables[OBJECT_TYPES], enum object_type type,
		 void (*visit)(void *arg, uint64_t handle, struct object *object), void *arg);
void object_tables_free(struct object_table tables[OBJECT_TYPES]);

#endif
