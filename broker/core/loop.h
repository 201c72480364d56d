/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event loop on io_uring. Each thread that has one owns it: everything here is called on the loop's own thread,
 * which must be the one that opened it, except loop_post().
 *
 * A round: timers, posted work, the hook (which looks at rings in shared memory), flushes (one send a connection), submit,
 * completions. While work comes the loop may look for more before it sleeps in the kernel (broker/lib/spin.h).
 */
#ifndef GLEAM_CORE_LOOP_H
#define GLEAM_CORE_LOOP_H

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;

/* On failure -errno and a line in @why: what refused and what to change. */
int loop_open(struct loop **loop_out, unsigned entries, char *why, size_t why_size);
void loop_close(struct loop *loop);
/* Until loop_stop(). */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);
/* Of the round that runs. */
uint64_t loop_now_ns(const struct loop *loop);

/* ---- operations: user_data is {index, generation} of a tag, never a pointer ---- */

typedef void loop_done(void *arg, int res, uint32_t flags);

struct io_uring_sqe *loop_sqe(struct loop *loop);
/* Ties a prepared @sqe to @done, which is called for each of its completions; the tag ends with the last one. */
uint64_t loop_tag(struct loop *loop, struct io_uring_sqe *sqe, loop_done *done, void *arg);
/* Asks the kernel to end it early; @done is called all the same. Harmless for a tag that has ended. */
void loop_cancel(struct loop *loop, uint64_t tag);
/* Its completions are no traffic: the loop doesn't spin for what may follow them. For what people poll at leisure. */
void loop_tag_quiet(struct loop *loop, uint64_t tag);
/* @done won't be called any more; what the operation uses must stay until it ends. */
void loop_forget(struct loop *loop, uint64_t tag);
/*
 * Tells only of a failure (from 5.17 on; before that of success as well). The tag lives until then, or until its owner knows otherwise that it has ended:
 * loop_tag_over(), harmless for a tag that has ended.
 */
uint64_t loop_tag_silent(struct loop *loop, struct io_uring_sqe *sqe, loop_done *done, void *arg);
void loop_tag_over(struct loop *loop, uint64_t tag);

/* ---- receive buffers, lent by the loop to multishot receives; none on old kernels ---- */

#define LOOP_BUF_SIZE  (64u << 10) /* four TLS records: fewer completions a megabyte */
#define LOOP_BUF_COUNT 32u
#define LOOP_BUF_GROUP 0

bool loop_has_bufs(const struct loop *loop);
const uint8_t *loop_buf(const struct loop *loop, uint32_t cqe_flags, uint16_t *id_out);
void loop_buf_give(struct loop *loop, uint16_t id);

/* ---- timers ---- */

struct loop_timer {
	uint64_t due_ns;
	unsigned place; /* in the heap, from 1; 0: not set */
	void (*fire)(void *arg);
	void *arg;
};

/* Sets or moves it. */
void loop_timer_set(struct loop *loop, struct loop_timer *timer, uint64_t due_ns);
void loop_timer_clear(struct loop *loop, struct loop_timer *timer);

/* ---- work from other threads, or for the end of this round ---- */

struct loop_post {
	struct loop_post *next;
	void (*run)(struct loop_post *post);
};

/* Any thread. @post belongs to the loop until run() is called. */
void loop_post(struct loop *loop, struct loop_post *post);
/* Any thread: the loop has another round, and so another look at its rings. */
void loop_nudge(struct loop *loop);

/* ---- what gathers bytes during a round and sends them at its end ---- */

struct loop_flush {
	struct loop_flush *next;
	bool queued;
	void (*run)(struct loop_flush *flush);
};

void loop_flush_later(struct loop *loop, struct loop_flush *flush);
/* Its owner goes away. */
void loop_flush_forget(struct loop *loop, struct loop_flush *flush);

/* ---- the hook: rings in shared memory ---- */

struct loop_hook {
	bool (*poll)(void *arg);  /* each round; true when it moved something */
	bool (*sleep)(void *arg); /* before sleeping: announce it; false when something has come */
	void (*wake)(void *arg);  /* after sleeping */
	void *arg;
};

/* Also lets it spin. */
void loop_hook_set(struct loop *loop, const struct loop_hook *hook);
void loop_may_spin(struct loop *loop);

#endif
