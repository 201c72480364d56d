/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of objects by handle. Executor thread only; see object.h.
 */
#include "broker/worker/object.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/proto/progress.h"

#define TABLE_FIRST 64u /* places made at the first birth of a type */

uint32_t object_limit(enum object_type type)
{
	switch (type) {
	case OBJECT_CONTEXT:
		return SESSION_CONTEXTS;
	case OBJECT_STREAM:
		return PROGRESS_STREAMS; /* each has a progress word */
	case OBJECT_KERNEL:
	case OBJECT_FUNCTION:
	case OBJECT_EVENT:
	case OBJECT_GRAPHNODE:
		return 1u << 20; /* 48 MiB of table: libraries have some ten thousand kernels, frameworks as many events */
	default:
		return 1u << 16;
	}
}

static struct object *place_of(struct object_table *t, uint64_t handle)
{
	uint32_t index = handle_index(handle);

	return index < t->size ? &t->at[index] : NULL;
}

struct object *object_find(struct object_table tables[OBJECT_TYPES], enum object_type type, uint64_t handle)
{
	if (type == OBJECT_NONE || handle_type(handle) != type)
		return NULL;

	uint32_t generation = handle_generation(handle);

	for (struct object *o = place_of(&tables[type], handle); o; o = o->older)
		if (o->live && o->generation == generation)
			return o;
	return NULL;
}

/* Makes places up to @index; -1 when there is no memory. */
static int table_grow(struct object_table *t, uint32_t index, uint32_t limit)
{
	uint32_t size = t->size ? t->size : TABLE_FIRST;

	while (size <= index)
		size *= 2;
	if (size > limit)
		size = limit;

	struct object *at = realloc(t->at, size * sizeof(*at));

	if (!at)
		return -1;
	memset(at + t->size, 0, (size - t->size) * sizeof(*at));
	t->at = at;
	t->size = size;
	return 0;
}

struct object *object_insert(struct object_table tables[OBJECT_TYPES], enum object_type type, uint64_t handle)
{
	uint32_t index = handle_index(handle);

	if (type == OBJECT_NONE || handle_type(handle) != type || index >= object_limit(type))
		return NULL;

	struct object_table *t = &tables[type];

	if (t->count >= object_limit(type) || object_find(tables, type, handle))
		return NULL;
	if (index >= t->size && table_grow(t, index, object_limit(type)))
		return NULL;

	struct object *o = &t->at[index];

	if (o->live) {
		/* The older generation's death is still parked. */
		struct object *older = malloc(sizeof(*older));

		if (!older)
			return NULL;
		*older = *o;
		*o = (struct object){ .older = older };
	}
	o->generation = handle_generation(handle);
	o->live = true;
	t->count++;
	return o;
}

void object_erase(struct object_table tables[OBJECT_TYPES], uint64_t handle)
{
	enum object_type type = handle_type(handle);

	if (type == OBJECT_NONE)
		return;

	struct object_table *t = &tables[type];
	struct object *first = place_of(t, handle);
	struct object **link = NULL;

	for (struct object *o = first; o; o = *link) {
		if (!o->live || o->generation != handle_generation(handle)) {
			link = &o->older;
			continue;
		}
		t->count--;
		if (o != first) {
			*link = o->older;
			free(o);
		} else if (o->older) {
			struct object *older = o->older;

			*o = *older;
			free(older);
		} else {
			*o = (struct object){ .live = false };
		}
		return;
	}
}

void object_each(struct object_table tables[OBJECT_TYPES], enum object_type type,
		 void (*visit)(void *arg, uint64_t handle, struct object *object), void *arg)
{
	struct object_table *t = &tables[type];

	for (uint32_t i = 0; i < t->size; i++) {
		/* Erasing moves the next generation into the place, so generations are named, not walked. */
		uint32_t generations[8];
		uint32_t count = 0;

		for (struct object *o = &t->at[i]; o && count < 8; o = o->older)
			if (o->live)
				generations[count++] = o->generation;
		for (uint32_t g = 0; g < count; g++) {
			uint64_t handle = handle_make(type, generations[g], i);
			struct object *o = object_find(tables, type, handle);

			if (o)
				visit(arg, handle, o);
		}
	}
}

void object_tables_free(struct object_table tables[OBJECT_TYPES])
{
	for (int type = 0; type < OBJECT_TYPES; type++) {
		for (uint32_t i = 0; i < tables[type].size; i++)
			for (struct object *o = tables[type].at[i].older; o;) {
				struct object *older = o->older;

				free(o);
				o = older;
			}
		free(tables[type].at);
		tables[type] = (struct object_table){ .at = NULL };
	}
}
