/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's own page-locked memory. Words: executor. Staging: any thread; see pinned.h.
 */
#include "broker/worker/pinned.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "broker/worker/note.h"

enum { CLASS_SMALL, CLASS_LARGE, CLASS_PIECE, CLASSES };

struct staging {
	struct pinned words;
	uint32_t *words_free; /* indices */
	uint32_t words_left;
	struct {
		uint32_t size;
		uint32_t count;
		struct pinned memory;
		struct staging_block *blocks; /* count */
		struct staging_block *unused; /* guarded by lock */
	} classes[CLASSES];
	pthread_mutex_t lock;
};

static int pinned_register(struct worker *w, struct pinned *p)
{
	CUresult r = w->drv.cuMemHostRegister_v2(p->bytes, p->size, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);

	if (r == CUDA_SUCCESS) {
		r = w->drv.cuMemHostGetDevicePointer_v2(&p->at, p->bytes, 0);
		if (r != CUDA_SUCCESS)
			w->drv.cuMemHostUnregister(p->bytes);
	}
	if (r != CUDA_SUCCESS)
		note(w, "registering %zu bytes of the worker's memory: %d", p->size, (int)r);
	return r == CUDA_SUCCESS ? 0 : -EIO;
}

int pinned_make(struct worker *w, size_t size, struct pinned *pinned_out)
{
	struct pinned p = { .size = (size + 4095) & ~(size_t)4095 };
	void *bytes = mmap(NULL, p.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (bytes == MAP_FAILED)
		return -errno;
	p.bytes = bytes;
	if (pinned_register(w, &p) == 0) {
		p.registered = true;
		*pinned_out = p;
		return 0;
	}
	munmap(bytes, p.size);

	CUresult r = w->drv.cuMemHostAlloc(&bytes, p.size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);

	if (r == CUDA_SUCCESS) {
		p.bytes = bytes;
		r = w->drv.cuMemHostGetDevicePointer_v2(&p.at, bytes, 0);
		if (r != CUDA_SUCCESS)
			w->drv.cuMemFreeHost(bytes);
	}
	if (r != CUDA_SUCCESS) {
		complain("page-locked memory for the worker (%zu bytes): the driver says %d", p.size, (int)r);
		return -ENOMEM;
	}
	memset(p.bytes, 0, p.size);
	*pinned_out = p;
	return 0;
}

void pinned_free(struct worker *w, struct pinned *p)
{
	if (!p->bytes)
		return;
	if (p->registered) {
		w->drv.cuMemHostUnregister(p->bytes);
		munmap(p->bytes, p->size);
	} else {
		w->drv.cuMemFreeHost(p->bytes);
	}
	*p = (struct pinned){ .bytes = NULL };
}

static int class_make(struct worker *w, struct staging *st, int class, uint32_t size, uint32_t count)
{
	struct pinned memory;
	struct staging_block *blocks = calloc(count, sizeof(*blocks));
	int err;

	if (!blocks)
		return -ENOMEM;
	err = pinned_make(w, (size_t)size * count, &memory);
	if (err) {
		free(blocks);
		return err;
	}
	st->classes[class].size = size;
	st->classes[class].count = count;
	st->classes[class].memory = memory;
	st->classes[class].blocks = blocks;
	for (uint32_t i = count; i-- > 0;) {
		blocks[i] = (struct staging_block){
			.next = st->classes[class].unused,
			.bytes = memory.bytes + (size_t)i * size,
			.at = memory.at + (size_t)i * size,
			.size = size,
		};
		st->classes[class].unused = &blocks[i];
	}
	return 0;
}

int staging_start(struct worker *w)
{
	struct staging *st = calloc(1, sizeof(*st));
	int err = -ENOMEM;

	if (!st)
		return -ENOMEM;
	pthread_mutex_init(&st->lock, NULL);
	w->staging = st;
	st->words_free = malloc(PINNED_WORDS * sizeof(*st->words_free));
	if (!st->words_free)
		goto stop;
	err = pinned_make(w, PINNED_WORDS * sizeof(uint32_t), &st->words);
	if (err)
		goto stop;
	for (uint32_t i = PINNED_WORDS; i-- > 0;)
		st->words_free[st->words_left++] = i;
	err = class_make(w, st, CLASS_SMALL, STAGING_SMALL,
			 w->settings.staging_small ? w->settings.staging_small : STAGING_SMALL_COUNT);
	if (!err)
		err = class_make(w, st, CLASS_LARGE, STAGING_LARGE,
				 w->settings.staging_large ? w->settings.staging_large : STAGING_LARGE_COUNT);
	if (!err && !w->arenas_mapped)
		err = class_make(w, st, CLASS_PIECE, STAGING_PIECE, STAGING_PIECE_COUNT);
	if (!err)
		return 0;
stop:
	staging_stop(w);
	return err;
}

int staging_again(struct worker *w)
{
	struct staging *st = w->staging;
	CUdeviceptr at = st->words.at;

	/* What the driver had allocated went with its context, and blocks in use can't be found again. */
	if (!st->words.registered || pinned_register(w, &st->words) || st->words.at != at)
		return -EIO;
	for (int i = 0; i < CLASSES; i++) {
		struct pinned *p = &st->classes[i].memory;

		if (!p->bytes)
			continue;
		at = p->at;
		if (!p->registered || pinned_register(w, p) || p->at != at)
			return -EIO;
	}
	return 0;
}

void staging_stop(struct worker *w)
{
	struct staging *st = w->staging;

	if (!st)
		return;
	for (int i = 0; i < CLASSES; i++) {
		pinned_free(w, &st->classes[i].memory);
		free(st->classes[i].blocks);
	}
	pinned_free(w, &st->words);
	free(st->words_free);
	pthread_mutex_destroy(&st->lock);
	free(st);
	w->staging = NULL;
}

struct staging_block *staging_take(struct worker *w, uint32_t size)
{
	struct staging *st = w->staging;
	struct staging_block *block = NULL;

	pthread_mutex_lock(&st->lock);
	for (int i = 0; i < CLASSES && !block; i++) {
		if (st->classes[i].size < size || !st->classes[i].unused)
			continue;
		block = st->classes[i].unused;
		st->classes[i].unused = block->next;
	}
	pthread_mutex_unlock(&st->lock);
	return block;
}

void staging_give(struct worker *w, struct staging_block *block)
{
	struct staging *st = w->staging;

	if (!block)
		return;
	pthread_mutex_lock(&st->lock);
	for (int i = 0; i < CLASSES; i++)
		if (st->classes[i].size == block->size) {
			block->next = st->classes[i].unused;
			st->classes[i].unused = block;
			break;
		}
	pthread_mutex_unlock(&st->lock);
}

uint32_t *word_take(struct worker *w, uint32_t value, CUdeviceptr *at_out)
{
	struct staging *st = w->staging;

	if (!st->words_left)
		return NULL;

	uint32_t index = st->words_free[--st->words_left];
	uint32_t *word = (uint32_t *)(void *)st->words.bytes + index;

	__atomic_store_n(word, value, __ATOMIC_RELEASE);
	*at_out = st->words.at + index * sizeof(uint32_t);
	return word;
}

void word_give(struct worker *w, uint32_t *word)
{
	struct staging *st = w->staging;

	if (word)
		st->words_free[st->words_left++] = (uint32_t)(word - (uint32_t *)(void *)st->words.bytes);
}
