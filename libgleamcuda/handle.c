// SPDX-License-Identifier: Apache-2.0
/*
 * The handle table: one growing array of slots per type, in chunks that never move, so that a look-up reads without a
 * lock while another thread makes a handle. Freed slots wait in a queue before they are used again, with another
 * generation. Any thread.
 */
#include "libgleamcuda/handle.h"

#include <pthread.h>
#include <stdlib.h>

#define CHUNK_SLOTS 4096u
#define CHUNKS_MAX  ((HANDLE_INDEX_MAX + 1) / CHUNK_SLOTS)
#define REUSE_AFTER 64u /* freed slots of a type kept back: a stale handle is told from a live one for longer */

struct slot {
	uint32_t generation; /* atomic; odd while alive */
	uint32_t next_free;  /* index + 1; guarded by the table's lock */
	struct context *context;
	void *data;
};

struct table {
	pthread_mutex_t lock;
	struct slot *chunks[CHUNKS_MAX]; /* atomic pointers, written under lock */
	/* guarded by lock */
	uint32_t used; /* slots ever handed out, the never used first one included (progress words count from 1) */
	uint32_t free_first, free_last; /* index + 1 */
	uint32_t free_count;
};

/* Some types never have many objects; their chunk tables cost only the address space of .bss. */
static struct table tables[OBJECT_TYPES] = {
	[0 ... OBJECT_TYPES - 1] = { .lock = PTHREAD_MUTEX_INITIALIZER },
};

static struct slot *slot_at(struct table *table, uint32_t index)
{
	/* Pairs with the release in slot_take(): the chunk's memory is zeroed before its pointer shows. */
	struct slot *chunk = __atomic_load_n(&table->chunks[index / CHUNK_SLOTS], __ATOMIC_ACQUIRE);

	return chunk ? &chunk[index % CHUNK_SLOTS] : NULL;
}

static struct slot *slot_find(enum object_type type, uint64_t handle)
{
	if (type == OBJECT_NONE || handle_type(handle) != type)
		return NULL;

	struct slot *slot = slot_at(&tables[type], handle_index(handle));

	/* Pairs with the release in handle_new(): data and context are written before the generation says alive. */
	if (!slot || __atomic_load_n(&slot->generation, __ATOMIC_ACQUIRE) != handle_generation(handle))
		return NULL;
	return slot;
}

/* A slot that nobody uses; -1 when there is none. The table's lock is held. */
static int64_t slot_take_locked(struct table *table)
{
	if (table->free_count > REUSE_AFTER || (table->used > HANDLE_INDEX_MAX && table->free_count)) {
		uint32_t index = table->free_first - 1;
		struct slot *slot = slot_at(table, index);

		table->free_first = slot->next_free;
		if (!table->free_first)
			table->free_last = 0;
		table->free_count--;
		return index;
	}
	if (table->used > HANDLE_INDEX_MAX)
		return -1;

	uint32_t index = table->used ? table->used : 1;

	if (!table->chunks[index / CHUNK_SLOTS]) {
		struct slot *chunk = calloc(CHUNK_SLOTS, sizeof(*chunk));

		if (!chunk)
			return -1;
		__atomic_store_n(&table->chunks[index / CHUNK_SLOTS], chunk, __ATOMIC_RELEASE);
	}
	table->used = index + 1;
	return index;
}

uint64_t handle_new(enum object_type type, struct context *context, void *data)
{
	struct table *table = &tables[type];

	pthread_mutex_lock(&table->lock);

	int64_t index = slot_take_locked(table);

	pthread_mutex_unlock(&table->lock);
	if (index < 0)
		return 0;

	struct slot *slot = slot_at(table, (uint32_t)index);
	uint32_t generation = (slot->generation + 1) & HANDLE_GEN_MAX;

	slot->context = context;
	slot->data = data;
	/* Pairs with the acquire in slot_find(). */
	__atomic_store_n(&slot->generation, generation, __ATOMIC_RELEASE);
	return handle_make(type, generation, (uint32_t)index);
}

void *handle_data(enum object_type type, uint64_t handle)
{
	struct slot *slot = slot_find(type, handle);

	return slot ? slot->data : NULL;
}

bool handle_live(enum object_type type, uint64_t handle)
{
	return slot_find(type, handle) != NULL;
}

struct context *handle_context(uint64_t handle)
{
	struct slot *slot = slot_find(handle_type(handle), handle);

	return slot ? slot->context : NULL;
}

void *handle_end(uint64_t handle)
{
	enum object_type type = handle_type(handle);
	struct slot *slot = slot_find(type, handle);

	if (!slot)
		return NULL;

	struct table *table = &tables[type];
	uint32_t index = handle_index(handle);
	uint32_t generation = handle_generation(handle);
	void *data = slot->data;

	/* Two threads may end one handle: who moves the generation on has it. */
	if (!__atomic_compare_exchange_n(&slot->generation, &generation, (generation + 1) & HANDLE_GEN_MAX, false,
					 __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return NULL;
	pthread_mutex_lock(&table->lock);
	slot->next_free = 0;
	if (table->free_last)
		slot_at(table, table->free_last - 1)->next_free = index + 1;
	else
		table->free_first = index + 1;
	table->free_last = index + 1;
	table->free_count++;
	pthread_mutex_unlock(&table->lock);
	return data;
}

void handle_each(enum object_type type, struct context *context, void (*each)(uint64_t handle, void *data))
{
	struct table *table = &tables[type];

	pthread_mutex_lock(&table->lock);

	uint32_t used = table->used;

	pthread_mutex_unlock(&table->lock);
	for (uint32_t index = 1; index < used; index++) {
		struct slot *slot = slot_at(table, index);
		uint32_t generation = __atomic_load_n(&slot->generation, __ATOMIC_ACQUIRE);

		if ((generation & 1) && slot->context == context)
			each(handle_make(type, generation, index), slot->data);
	}
}
