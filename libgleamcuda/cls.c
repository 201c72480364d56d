// SPDX-License-Identifier: Apache-2.0
/*
 * Context-local storage: a chain of small blocks that grows and never shrinks while its context is active. Readers walk it
 * without a lock; a dozen libraries of a process have one key each, so the walk is short. Any thread.
 */
#include "libgleamcuda/cls.h"

#include <stdlib.h>

#include "libgleamcuda/context.h"

#define BLOCK_ENTRIES 15 /* a block is 384 bytes; PyTorch with all its libraries has 10 keys */

struct entry {
	void *key; /* atomic; NULL while free */
	void *value;
	cls_destroy destroy;
};

struct cls_block {
	struct cls_block *next; /* atomic */
	struct entry entries[BLOCK_ENTRIES];
};

/*
 * Blocks of contexts that ended. They are used again and never freed: a thread may still be on its walk through one
 * while another resets the context. What such a thread finds there is checked by key like everything else.
 */
static struct {
	pthread_mutex_t lock;
	struct cls_block *first; /* guarded by lock */
} retired = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct cls_block *block_new(void)
{
	struct cls_block *block;

	pthread_mutex_lock(&retired.lock);
	block = retired.first;
	if (block) {
		retired.first = block->next;
		__atomic_store_n(&block->next, NULL, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&retired.lock);
	return block ? block : calloc(1, sizeof(*block));
}

static void block_retire(struct cls_block *block)
{
	for (int i = 0; i < BLOCK_ENTRIES; i++)
		__atomic_store_n(&block->entries[i].key, NULL, __ATOMIC_RELAXED);
	pthread_mutex_lock(&retired.lock);
	__atomic_store_n(&block->next, retired.first, __ATOMIC_RELAXED);
	retired.first = block;
	pthread_mutex_unlock(&retired.lock);
}

static struct entry *entry_find(struct context *context, const void *key)
{
	/* Pairs with the releases in cls_put(). */
	struct cls_block *block = __atomic_load_n(&context->cls, __ATOMIC_ACQUIRE);

	for (; block; block = __atomic_load_n(&block->next, __ATOMIC_ACQUIRE))
		for (int i = 0; i < BLOCK_ENTRIES; i++)
			if (__atomic_load_n(&block->entries[i].key, __ATOMIC_ACQUIRE) == key)
				return &block->entries[i];
	return NULL;
}

CUresult cls_get(struct context *context, void *key, void **value_out)
{
	struct entry *entry = key ? entry_find(context, key) : NULL;

	if (!entry)
		return CUDA_ERROR_INVALID_HANDLE;

	/* Acquire, so that the key is looked at after it: the entry may have been deleted and used for another one meanwhile. */
	void *value = __atomic_load_n(&entry->value, __ATOMIC_ACQUIRE);

	if (__atomic_load_n(&entry->key, __ATOMIC_RELAXED) != key)
		return CUDA_ERROR_INVALID_HANDLE;
	*value_out = value;
	return CUDA_SUCCESS;
}

/* A free entry, in a new block at the end if need be. */
static struct entry *entry_free_locked(struct context *context)
{
	struct entry *entry = entry_find(context, NULL);
	struct cls_block **at = &context->cls;

	if (entry)
		return entry;

	struct cls_block *block = block_new();

	if (!block)
		return NULL;
	while (*at)
		at = &(*at)->next;
	/* Pairs with the acquire in entry_find(). */
	__atomic_store_n(at, block, __ATOMIC_RELEASE);
	return &block->entries[0];
}

CUresult cls_put(struct context *context, void *key, void *value, cls_destroy destroy)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	if (!key)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&context->lock);
	if (!__atomic_load_n(&context->active, __ATOMIC_RELAXED)) {
		result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	} else if (!entry_find(context, key)) {
		struct entry *entry = entry_free_locked(context);

		result = entry ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
		if (entry) {
			entry->destroy = destroy;
			__atomic_store_n(&entry->value, value, __ATOMIC_RELAXED);
			/* Pairs with the acquire in entry_find(): the value is there before the key. */
			__atomic_store_n(&entry->key, key, __ATOMIC_RELEASE);
		}
	}
	pthread_mutex_unlock(&context->lock);
	return result;
}

CUresult cls_delete(struct context *context, void *key)
{
	struct entry *entry;

	pthread_mutex_lock(&context->lock);
	entry = key ? entry_find(context, key) : NULL;
	if (entry)
		__atomic_store_n(&entry->key, NULL, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&context->lock);
	return entry ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

struct cls_block *cls_detach_locked(struct context *context)
{
	return __atomic_exchange_n(&context->cls, NULL, __ATOMIC_ACQ_REL);
}

void cls_destroy_all(struct context *context, struct cls_block *first)
{
	for (struct cls_block *block = first; block; block = block->next)
		for (int i = 0; i < BLOCK_ENTRIES; i++) {
			struct entry *entry = &block->entries[i];

			if (entry->key && entry->destroy)
				entry->destroy(context->handle, entry->key, entry->value);
		}
	while (first) {
		struct cls_block *next = first->next;

		block_retire(first);
		first = next;
	}
}
