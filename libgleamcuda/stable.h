/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Type-stable memory for objects that the program names by handle: a thread that uses a handle while another ends it
 * (a mistake of the program's) reads an old object, never something else. Freed objects are kept for the next birth.
 */
#ifndef GLEAM_STABLE_H
#define GLEAM_STABLE_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct stable {
	pthread_mutex_t lock;
	size_t size; /* of an object; at least a pointer */
	void *free;  /* guarded by lock: singly linked through the objects' last words */
};

#define STABLE(type)                                                                                           \
	{                                                                                                      \
		.lock = PTHREAD_MUTEX_INITIALIZER, .size = sizeof(type)                                        \
	}

/* A zeroed object, NULL when memory is short. */
static inline void *stable_take(struct stable *stable)
{
	char *object;

	pthread_mutex_lock(&stable->lock);
	object = stable->free;
	if (object)
		memcpy(&stable->free, object + stable->size, sizeof(void *));
	pthread_mutex_unlock(&stable->lock);
	if (!object)
		return calloc(1, stable->size + sizeof(void *));
	memset(object, 0, stable->size);
	return object;
}

static inline void stable_give(struct stable *stable, void *object)
{
	if (!object)
		return;
	pthread_mutex_lock(&stable->lock);
	memcpy((char *)object + stable->size, &stable->free, sizeof(void *));
	stable->free = object;
	pthread_mutex_unlock(&stable->lock);
}

#endif
