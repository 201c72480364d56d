/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint is written, or read, beside the loop. See saver.h. */
#include "broker/local/saver.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/local/aside.h"
#include "broker/lib/ring.h"

#define SAVER_BEHIND (8u << 20) /* bytes that wait: then the worker isn't asked for more */

/* ---- writing ---- */

struct block {
	struct block *next;
	uint32_t size;
	uint8_t bytes[SAVE_BLOCK_MAX] __attribute__((aligned(8)));
};

struct saver {
	struct aside aside; /* first */
	/* control thread */
	saver_hear *hear;
	void *arg;
	struct block *first; /* full ones, and the one that is being filled */
	struct block **last;
	struct block *filled;
	uint64_t waiting; /* bytes */
	bool ended;
	bool over;
	/* the thread's while it is busy */
	int fd;
	struct save_writer *writer;
	struct block *at_hand;
	bool finish;
	struct save_info info;
	int err;
};

static void saver_work(struct aside *aside)
{
	struct saver *saver = (struct saver *)aside;

	if (saver->at_hand)
		saver->err = save_frames(saver->writer, saver->at_hand->bytes, saver->at_hand->size);
	else if (saver->finish)
		saver->err = save_finish(saver->writer, &saver->info);
}

/* The next block, if there is one; at the end what is left, and the end. */
static void saver_turn(struct saver *saver)
{
	struct block *block = saver->first;

	if (saver->aside.busy || saver->over)
		return;
	if (block && (block != saver->filled || saver->ended)) {
		saver->first = block->next;
		if (!saver->first)
			saver->last = &saver->first;
		if (block == saver->filled)
			saver->filled = NULL;
		saver->at_hand = block;
	} else if (saver->ended && !saver->finish) {
		saver->finish = true;
	} else {
		return;
	}
	aside_go(&saver->aside);
}

static void saver_done(struct aside *aside)
{
	struct saver *saver = (struct saver *)aside;
	/* The thread's again with the next turn. */
	int err = saver->err;
	bool over = err || !saver->at_hand;

	if (saver->at_hand) {
		saver->waiting -= saver->at_hand->size;
		free(saver->at_hand);
		saver->at_hand = NULL;
	}
	saver->over = over;
	saver_turn(saver);
	/* It may be let go there. */
	saver->hear(saver->arg, over, err);
}

static void saver_freed(struct aside *aside)
{
	struct saver *saver = (struct saver *)aside;

	while (saver->first) {
		struct block *next = saver->first->next;

		free(saver->first);
		saver->first = next;
	}
	free(saver->at_hand);
	save_writer_free(saver->writer);
	close(saver->fd);
	free(saver);
}

struct saver *saver_new(struct loop *loop, int fd, const struct save_info *info, saver_hear *hear, void *arg)
{
	static const struct aside_ops ops = { .work = saver_work, .done = saver_done, .free = saver_freed };
	struct saver *saver = calloc(1, sizeof(*saver));

	if (!saver)
		goto close_fd;
	saver->fd = fd;
	saver->hear = hear;
	saver->arg = arg;
	saver->last = &saver->first;
	/* The head is small: it goes into the page cache. */
	saver->writer = save_begin(fd, info);
	if (!saver->writer)
		goto free_saver;
	if (aside_start(&saver->aside, &ops, loop))
		goto free_writer;
	return saver;

free_writer:
	save_writer_free(saver->writer);
free_saver:
	free(saver);
close_fd:
	close(fd);
	return NULL;
}

bool saver_put(struct saver *saver, const void *frame, uint32_t size)
{
	uint32_t room = RING_ALIGN(size);
	struct block *block = saver->filled;

	if (!block || room > SAVE_BLOCK_MAX - block->size) {
		block = malloc(sizeof(*block));
		if (!block)
			return false;
		block->next = NULL;
		block->size = 0;
		*saver->last = block;
		saver->last = &block->next;
		saver->filled = block;
		saver_turn(saver);
	}
	memcpy(block->bytes + block->size, frame, size);
	memset(block->bytes + block->size + size, 0, room - size);
	block->size += room;
	saver->waiting += room;
	return true;
}

bool saver_is_behind(const struct saver *saver)
{
	return saver->waiting > SAVER_BEHIND;
}

void saver_end(struct saver *saver, const struct save_info *info)
{
	/* The thread reads it only after it was told to finish. */
	saver->info = *info;
	saver->ended = true;
	saver_turn(saver);
}

void saver_free(struct saver *saver)
{
	if (saver)
		aside_leave(&saver->aside);
}

/* ---- reading ---- */

struct loader {
	struct aside aside; /* first */
	const struct loader_ops *ops;
	void *arg;
	bool opened; /* its outcome was told */
	/* the thread's while it is busy */
	int fd;
	struct save_reader *reader; /* NULL: not opened */
	const uint8_t *frames;
	uint32_t size;
	int got;
	char why[256];
};

static void loader_work(struct aside *aside)
{
	struct loader *loader = (struct loader *)aside;

	if (!loader->reader)
		loader->reader = save_open(loader->fd, loader->why, sizeof(loader->why));
	else
		loader->got = save_next(loader->reader, &loader->frames, &loader->size);
}

static void loader_done(struct aside *aside)
{
	struct loader *loader = (struct loader *)aside;

	if (!loader->opened) {
		loader->opened = true;
		loader->ops->opened(loader->arg, loader->reader ? save_info(loader->reader) : NULL, loader->why);
		return;
	}
	loader->ops->frames(loader->arg, loader->got > 0 ? loader->frames : NULL, loader->got > 0 ? loader->size : 0,
			    loader->got < 0 ? "it has changed since it was opened" : "");
}

static void loader_freed(struct aside *aside)
{
	struct loader *loader = (struct loader *)aside;

	if (loader->reader)
		save_reader_free(loader->reader);
	close(loader->fd);
	free(loader);
}

struct loader *loader_new(struct loop *loop, int fd, const struct loader_ops *ops, void *arg)
{
	static const struct aside_ops aside_ops = { .work = loader_work, .done = loader_done, .free = loader_freed };
	struct loader *loader = calloc(1, sizeof(*loader));

	if (!loader)
		goto close_fd;
	loader->fd = fd;
	loader->ops = ops;
	loader->arg = arg;
	if (aside_start(&loader->aside, &aside_ops, loop))
		goto free_loader;
	aside_go(&loader->aside);
	return loader;

free_loader:
	free(loader);
close_fd:
	close(fd);
	return NULL;
}

void loader_next(struct loader *loader)
{
	aside_go(&loader->aside);
}

void loader_free(struct loader *loader)
{
	if (loader)
		aside_leave(&loader->aside);
}
