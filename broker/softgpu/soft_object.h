/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything a program holds a handle of. A handle is {type, generation, index}, so a stale or invented one is
 * recognised; it is never 0, 1 or 2 and never a valid address. Textures and surfaces have small numbers instead, as on
 * a GPU. Objects are counted: the table owns one reference while the handle is alive, everyone who works with the
 * object another.
 */
#ifndef SOFT_OBJECT_H
#define SOFT_OBJECT_H

#include <stdatomic.h>

#include "broker/softgpu/soft.h"

enum soft_type {
	SOFT_ANY = 0, /* matches no object; for loops over a table */
	SOFT_CONTEXT,
	SOFT_STREAM,
	SOFT_EVENT,
	SOFT_MODULE,
	SOFT_FUNCTION,
	SOFT_LIBRARY,
	SOFT_KERNEL,
	SOFT_GRAPH,
	SOFT_NODE,
	SOFT_EXEC,
	SOFT_CONDITION,
	SOFT_GREEN,
	SOFT_DESC, /* of resources for a green context */
	SOFT_POOL,
	SOFT_PHYSICAL,
	SOFT_LINK,
	SOFT_ARRAY,
	SOFT_MIPMAP,
	SOFT_TEXTURE,
	SOFT_SURFACE,
};

/* Objects at once in a process; the table grows up to it. */
#define SOFT_OBJECTS_MAX (1u << 20)

struct soft_context;

struct soft_object {
	enum soft_type type;
	uint32_t index;
	_Atomic uint32_t refs;
	/* 0 until published and after it was retired */
	_Atomic uint64_t handle;
	/* Whose death takes the object along, counted; NULL for none. */
	struct soft_context *owner;
	/* Last reference gone. */
	void (*free)(struct soft_object *object);
};

/* Fills in @object with one reference, which becomes the table's when it is published. */
void soft_object_init(struct soft_object *object, enum soft_type type, struct soft_context *owner,
		      void (*free)(struct soft_object *object));

/* Makes the object findable; OUT_OF_MEMORY where the table is full, and then the caller still owns it. */
CUresult soft_object_publish(struct soft_object *object);

/* A new reference to what @handle names if it is of @type, else NULL. */
struct soft_object *soft_object_find(uint64_t handle, enum soft_type type);

struct soft_object *soft_object_get(struct soft_object *object);
void soft_object_put(struct soft_object *object);

/*
 * Takes @handle out of the table and hands its reference to the caller; NULL where it is not there (any more),
 * so of two that destroy one object only one succeeds.
 */
struct soft_object *soft_object_retire(uint64_t handle, enum soft_type type);

/* For __attribute__((cleanup)): @at is the address of a pointer to something that begins with an object, or to NULL. */
static inline void soft_object_drop(void *at)
{
	soft_object_put(*(struct soft_object **)at);
}

#define SOFT_HELD __attribute__((cleanup(soft_object_drop)))

/* Takes out one object of @owner of @type, NULL where none is left. */
struct soft_object *soft_object_retire_owned(struct soft_context *owner, enum soft_type type);

#endif
