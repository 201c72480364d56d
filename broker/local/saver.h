/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint is written, or read, beside the loop. Control thread.
 */
#ifndef GLEAM_LOCAL_SAVER_H
#define GLEAM_LOCAL_SAVER_H

#include "broker/core/loop.h"
#include "broker/local/save.h"

struct saver;
struct loader;

/* ---- writing ---- */

/*
 * Something has been written, or all of it: @over; then @err is 0 when the checkpoint is on disk. After a failure nothing more is heard.
 */
typedef void saver_hear(void *arg, bool over, int err);

/* Takes @fd, also on failure. NULL: no memory, no thread. */
struct saver *saver_new(struct loop *loop, int fd, const struct save_info *info, saver_hear *hear, void *arg);
/* A frame, copied. False: out of memory. */
bool saver_put(struct saver *saver, const void *frame, uint32_t size);
/* There is more than a little that isn't written yet. */
bool saver_is_behind(const struct saver *saver);
/* All frames have been put. */
void saver_end(struct saver *saver, const struct save_info *info);
void saver_free(struct saver *saver);

/* ---- reading ---- */

/*
 * @info: the file is a whole checkpoint, of this; NULL and @why: it isn't. Then, whenever asked for: frames, whole; NULL and @size 0:
 * there are no more; NULL and @why: it can't be read any more.
 */
struct loader_ops {
	void (*opened)(void *arg, const struct save_info *info, const char *why);
	void (*frames)(void *arg, const uint8_t *frames, uint32_t size, const char *why);
};

/* Takes @fd, also on failure. NULL: no memory, no thread. The file is looked at from now on. */
struct loader *loader_new(struct loop *loop, int fd, const struct loader_ops *ops, void *arg);
/* The next frames. Not before opened(), or before the last ones have come. */
void loader_next(struct loader *loader);
void loader_free(struct loader *loader);

#endif
