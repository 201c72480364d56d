// SPDX-License-Identifier: Apache-2.0
/*
 * User objects: counted things of the program's that graphs hold, and what is made of graphs. Destructors run on the
 * thread that let go last, after the lock. Any thread.
 */
#include <stdlib.h>

#include "gen/bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/graph.h"
#include "libgleamcuda/handle.h"

struct user_object {
	uint64_t key; /* what the program holds */
	struct user_object *next; /* in objects, or in due */
	void *user;
	CUhostFn destroy;
	uint64_t refs;
};

struct graph_hold {
	struct graph_hold *next;
	struct user_object *object;
	uint64_t count;
};

/* guarded by graph_lock() */
static struct user_object *objects;
static struct user_object *due;
static uint64_t keys;

#define KEY_FIRST 0x6f00000000000000ull /* no pointer, and none of our handles */

static struct user_object *object_find(CUuserObject handle)
{
	struct user_object *object = objects;

	while (object && object->key != (uint64_t)(uintptr_t)handle)
		object = object->next;
	return object;
}

static void object_let_go(struct user_object *object, uint64_t count)
{
	struct user_object **link = &objects;

	object->refs -= count;
	if (object->refs)
		return;
	while (*link != object)
		link = &(*link)->next;
	*link = object->next;
	object->next = due;
	due = object;
}

void graph_objects_sweep(void)
{
	struct user_object *list;

	graph_lock();
	list = due;
	due = NULL;
	graph_unlock();
	while (list) {
		struct user_object *object = list;

		list = object->next;
		object->destroy(object->user);
		free(object);
	}
}

void graph_holds_free(struct graph *graph)
{
	while (graph->holds) {
		struct graph_hold *hold = graph->holds;

		graph->holds = hold->next;
		object_let_go(hold->object, hold->count);
		free(hold);
	}
}

static CUresult hold_add(struct graph *graph, struct user_object *object, uint64_t count)
{
	struct graph_hold *hold;

	for (hold = graph->holds; hold; hold = hold->next)
		if (hold->object == object) {
			hold->count += count;
			return CUDA_SUCCESS;
		}
	hold = calloc(1, sizeof(*hold));
	if (!hold)
		return CUDA_ERROR_OUT_OF_MEMORY;
	hold->object = object;
	hold->count = count;
	hold->next = graph->holds;
	graph->holds = hold;
	return CUDA_SUCCESS;
}

CUresult graph_holds_clone(const struct graph *graph, struct graph *clone)
{
	for (const struct graph_hold *hold = graph->holds; hold; hold = hold->next) {
		CUresult result = hold_add(clone, hold->object, hold->count);

		if (result)
			return result;
		hold->object->refs += hold->count;
	}
	return CUDA_SUCCESS;
}

CUresult do_cuUserObjectCreate(struct call *call, CUuserObject *object_out, void *ptr, CUhostFn destroy,
			       unsigned int initialRefcount, unsigned int flags)
{
	struct user_object *object;

	/* The flag is not optional: it says that nobody may wait for the destructor. */
	if (!object_out || !destroy || !initialRefcount || initialRefcount > INT32_MAX || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	object = calloc(1, sizeof(*object));
	if (!object)
		return CUDA_ERROR_OUT_OF_MEMORY;
	object->user = ptr;
	object->destroy = destroy;
	object->refs = initialRefcount;
	graph_lock();
	object->key = KEY_FIRST + (++keys << 4);
	object->next = objects;
	objects = object;
	graph_unlock();
	*object_out = (CUuserObject)(uintptr_t)object->key;
	return CUDA_SUCCESS;
}

CUresult do_cuUserObjectRetain(struct call *call, CUuserObject handle, unsigned int count)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct user_object *object;

	graph_lock();
	object = object_find(handle);
	if (object && count && count <= INT32_MAX) {
		object->refs += count;
		result = CUDA_SUCCESS;
	}
	graph_unlock();
	return result;
}

CUresult do_cuUserObjectRelease(struct call *call, CUuserObject handle, unsigned int count)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct user_object *object;

	graph_lock();
	object = object_find(handle);
	if (object && count && count <= object->refs) {
		object_let_go(object, count);
		result = CUDA_SUCCESS;
	}
	graph_unlock();
	graph_objects_sweep();
	return result;
}

CUresult do_cuGraphRetainUserObject(struct call *call, CUgraph hGraph, CUuserObject handle, unsigned int count,
				    unsigned int flags)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct user_object *object;
	struct graph *graph;

	graph_lock();
	object = object_find(handle);
	graph = graph_find(hGraph);
	if (object && graph && count && count <= INT32_MAX && !(flags & ~(unsigned int)CU_GRAPH_USER_OBJECT_MOVE)) {
		result = hold_add(graph, object, count);
		/* Moved ones are the caller's no more. */
		if (!result && !(flags & CU_GRAPH_USER_OBJECT_MOVE))
			object->refs += count;
	}
	graph_unlock();
	return result;
}

CUresult do_cuGraphReleaseUserObject(struct call *call, CUgraph hGraph, CUuserObject handle, unsigned int count)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct user_object *object;
	struct graph *graph;

	graph_lock();
	object = object_find(handle);
	graph = graph_find(hGraph);
	for (struct graph_hold **link = graph && object ? &graph->holds : NULL; link && *link; link = &(*link)->next) {
		struct graph_hold *hold = *link;

		if (hold->object != object)
			continue;
		if (!count || count > hold->count)
			break;
		hold->count -= count;
		if (!hold->count) {
			*link = hold->next;
			free(hold);
		}
		object_let_go(object, count);
		result = CUDA_SUCCESS;
		break;
	}
	graph_unlock();
	graph_objects_sweep();
	return result;
}
