// SPDX-License-Identifier: Apache-2.0
/*
 * The handle table. Any thread; one lock, held for a few loads.
 */
#include "broker/softgpu/soft_object.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/soft_context.h"

/* Handles have their type on top, where no user-space address reaches. */
#define HANDLE_TYPE_SHIFT 56
#define HANDLE_GENERATION_SHIFT 32
#define HANDLE_GENERATION_MASK 0xffffffu
#define SLOTS_FIRST 256u

struct slot {
	struct soft_object *object;
	uint32_t generation;
	uint32_t next_free;
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by table_lock */
static struct slot *slots;
static uint32_t slot_count;
static uint32_t slot_free; /* index + 1 */
/*
 * Textures and surfaces, which kernels know by number, in a table of their own: as on a GPU they have the lowest number that is
 * free, so a program that makes the same ones has the same numbers.
 */
static struct soft_object **numbered; /* number - 1 */
static uint32_t numbered_count;
static uint32_t numbered_first; /* below it none is free */

void soft_object_init(struct soft_object *object, enum soft_type type, struct soft_context *owner,
		      void (*free)(struct soft_object *object))
{
	/* What is made in a green context is its primary one's, but for streams. */
	if (owner && type != SOFT_STREAM)
		owner = soft_context_home(owner);
	object->type = type;
	object->owner = owner;
	if (owner)
		soft_object_get(&owner->object);
	object->free = free;
	object->index = 0;
	atomic_init(&object->refs, 1);
	atomic_init(&object->handle, 0);
}

static bool table_grow_locked(void)
{
	uint32_t count = slot_count ? slot_count * 2 : SLOTS_FIRST;
	struct slot *grown;

	if (slot_count >= SOFT_OBJECTS_MAX)
		return false;
	grown = realloc(slots, count * sizeof(*slots));
	if (!grown)
		return false;
	memset(grown + slot_count, 0, (count - slot_count) * sizeof(*slots));
	for (uint32_t i = count; i-- > slot_count;) {
		grown[i].next_free = slot_free;
		slot_free = i + 1;
	}
	slots = grown;
	slot_count = count;
	return true;
}

static bool is_numbered(enum soft_type type)
{
	return type == SOFT_TEXTURE || type == SOFT_SURFACE;
}

static bool number_take_locked(struct soft_object *object)
{
	uint32_t at = numbered_first;

	while (at < numbered_count && numbered[at])
		at++;
	if (at == numbered_count) {
		uint32_t count = numbered_count ? numbered_count * 2 : SLOTS_FIRST;
		struct soft_object **grown = at < SOFT_OBJECTS_MAX ? realloc(numbered, count * sizeof(struct soft_object *)) : NULL;

		if (!grown)
			return false;
		memset(grown + numbered_count, 0, (count - numbered_count) * sizeof(struct soft_object *));
		numbered = grown;
		numbered_count = count;
	}
	numbered[at] = object;
	numbered_first = at + 1;
	object->index = at;
	atomic_store(&object->handle, (uint64_t)at + 1);
	return true;
}

static struct soft_object *number_find_locked(uint64_t handle, enum soft_type type)
{
	struct soft_object *object = handle && handle <= numbered_count ? numbered[handle - 1] : NULL;

	return object && object->type == type ? object : NULL;
}

static struct soft_object *number_clear_locked(struct soft_object *object)
{
	numbered[object->index] = NULL;
	if (object->index < numbered_first)
		numbered_first = object->index;
	atomic_store(&object->handle, 0);
	return object;
}

CUresult soft_object_publish(struct soft_object *object)
{
	struct slot *slot;
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	pthread_mutex_lock(&table_lock);
	if (is_numbered(object->type)) {
		if (number_take_locked(object))
			result = CUDA_SUCCESS;
		goto unlock;
	}
	if (!slot_free && !table_grow_locked())
		goto unlock;
	object->index = slot_free - 1;
	slot = &slots[object->index];
	slot_free = slot->next_free;
	slot->object = object;
	slot->generation = (slot->generation + 1) & HANDLE_GENERATION_MASK;
	atomic_store(&object->handle, (uint64_t)object->type << HANDLE_TYPE_SHIFT |
					      (uint64_t)slot->generation << HANDLE_GENERATION_SHIFT |
					      (uint64_t)(object->index + 1) << 4);
	result = CUDA_SUCCESS;
unlock:
	pthread_mutex_unlock(&table_lock);
	return result;
}

static struct slot *slot_find_locked(uint64_t handle, enum soft_type type)
{
	uint64_t index = (handle & 0xffffffffu) >> 4;

	if (handle >> HANDLE_TYPE_SHIFT != type || index == 0 || index > slot_count)
		return NULL;
	if (!slots[index - 1].object || atomic_load(&slots[index - 1].object->handle) != handle)
		return NULL;
	return &slots[index - 1];
}

struct soft_object *soft_object_find(uint64_t handle, enum soft_type type)
{
	struct soft_object *object = NULL;
	struct slot *slot;

	pthread_mutex_lock(&table_lock);
	slot = is_numbered(type) ? NULL : slot_find_locked(handle, type);
	object = is_numbered(type) ? number_find_locked(handle, type) : slot ? slot->object : NULL;
	if (object)
		soft_object_get(object);
	pthread_mutex_unlock(&table_lock);
	return object;
}

struct soft_object *soft_object_get(struct soft_object *object)
{
	atomic_fetch_add_explicit(&object->refs, 1, memory_order_relaxed);
	return object;
}

void soft_object_put(struct soft_object *object)
{
	struct soft_context *owner;

	/* Everything done to the object before each put happens before its end. */
	if (!object || atomic_fetch_sub_explicit(&object->refs, 1, memory_order_acq_rel) != 1)
		return;
	owner = object->owner;
	object->free(object);
	if (owner)
		soft_object_put(&owner->object);
}

static struct soft_object *slot_clear_locked(struct slot *slot)
{
	struct soft_object *object = slot->object;

	slot->object = NULL;
	slot->next_free = slot_free;
	slot_free = (uint32_t)(slot - slots) + 1;
	atomic_store(&object->handle, 0);
	return object;
}

struct soft_object *soft_object_retire(uint64_t handle, enum soft_type type)
{
	struct soft_object *object = NULL;
	struct slot *slot;

	pthread_mutex_lock(&table_lock);
	if (is_numbered(type)) {
		object = number_find_locked(handle, type);
		if (object)
			number_clear_locked(object);
		goto unlock;
	}
	slot = slot_find_locked(handle, type);
	if (slot)
		object = slot_clear_locked(slot);
unlock:
	pthread_mutex_unlock(&table_lock);
	return object;
}

struct soft_object *soft_object_retire_owned(struct soft_context *owner, enum soft_type type)
{
	struct soft_object *object = NULL;

	pthread_mutex_lock(&table_lock);
	for (uint32_t i = 0; is_numbered(type) && i < numbered_count && !object; i++)
		if (numbered[i] && numbered[i]->owner == owner && numbered[i]->type == type)
			object = number_clear_locked(numbered[i]);
	for (uint32_t i = 0; !is_numbered(type) && i < slot_count; i++) {
		if (slots[i].object && slots[i].object->owner == owner && slots[i].object->type == type) {
			object = slot_clear_locked(&slots[i]);
			break;
		}
	}
	pthread_mutex_unlock(&table_lock);
	return object;
}
