/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop: tags, timers, posted work, spinning and sleeping. One thread; see loop.h.
 */
#include "broker/core/loop.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/fd.h"
#include "broker/lib/log.h"
#include "broker/lib/spin.h"

#define LOOP_TAGS_MAX  65536u		    /* operations in flight; thousands of clients with a few each */
#define LOOP_SLEEP_MAX (10 * NS_PER_S)

struct loop_tag {
	loop_done *done;
	void *arg;
	uint32_t generation;
	uint32_t next_free;
	bool live;
	bool quiet;
};

/* What a look at the completions has found. */
enum found { FOUND_NOTHING, FOUND_QUIET, FOUND_TRAFFIC };

struct loop {
	struct io_uring ring;
	bool stopping;
	bool deferred; /* completions wait for us to ask: DEFER_TASKRUN */

	struct loop_tag *tags;
	uint32_t tag_count;
	uint32_t tag_free; /* first free one; UINT32_MAX: none */

	struct io_uring_buf_ring *buf_ring; /* NULL on kernels without */
	uint8_t *bufs;

	struct loop_timer **heap; /* heap[1] is due first */
	unsigned timer_count;
	unsigned timer_max;

	struct loop_flush *flush;
	struct loop_hook hook;

	uint64_t now_ns;
	struct spin spin;
	uint64_t spin_max_ns; /* 0: never */
	struct nap nap;
	uint64_t worked_ns;

	int event_fd;
	uint64_t event_value;

	pthread_mutex_t post_lock;
	/* guarded by post_lock */
	struct loop_post *post_first;
	struct loop_post **post_last;
	bool post_rung;
};

static void loop_event_arm(struct loop *loop);

/* ---- opening ---- */

static int sysctl_io_uring_disabled(void)
{
	char *text;
	size_t size;
	int value = 0;

	if (fd_read_file("/proc/sys/kernel/io_uring_disabled", 64, &text, &size) == 0) {
		value = atoi(text);
		free(text);
	}
	return value;
}

static void setup_why(int err, char *why, size_t size)
{
	int disabled = sysctl_io_uring_disabled();

	if (err == -EPERM && disabled)
		snprintf(why, size,
			 "io_uring is switched off by the sysctl kernel.io_uring_disabled=%d; set it to 0 (sysctl -w "
			 "kernel.io_uring_disabled=0)",
			 disabled);
	else if (err == -EPERM || err == -EACCES)
		snprintf(why, size,
			 "io_uring_setup is refused (%s), as a seccomp filter of a container or service does; allow "
			 "io_uring_setup, io_uring_enter and io_uring_register for gleamd",
			 strerror(-err));
	else if (err == -ENOSYS)
		snprintf(why, size,
			 "this kernel or its seccomp filter has no io_uring (ENOSYS); gleamd needs Linux 5.15 or newer "
			 "with CONFIG_IO_URING");
	else if (err == -ENOMEM)
		snprintf(why, size,
			 "io_uring_setup ran into the limit on locked memory (ENOMEM); raise it for gleamd: ulimit -l, or "
			 "LimitMEMLOCK= in its unit");
	else
		snprintf(why, size, "io_uring_setup failed: %s", strerror(-err));
}

static int ring_setup(struct loop *loop, unsigned entries)
{
	static const unsigned flags[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG, /* 6.1 */
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,				     /* 5.19 */
		0,
	};
	int err = -EINVAL;

	for (unsigned i = 0; i < sizeof(flags) / sizeof(flags[0]) && err == -EINVAL; i++) {
		struct io_uring_params params = { .flags = flags[i] | IORING_SETUP_CQSIZE, .cq_entries = 4 * entries };

		err = io_uring_queue_init_params(entries, &loop->ring, &params);
		loop->deferred = flags[i] & IORING_SETUP_TASKRUN_FLAG;
	}
	return err;
}

/* Provided buffers are an optimisation of Linux 5.19 and newer; without them each connection brings its own. */
static void bufs_open(struct loop *loop)
{
	size_t ring_size = LOOP_BUF_COUNT * sizeof(struct io_uring_buf);
	void *ring = mmap(NULL, ring_size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
	struct io_uring_buf_reg reg = { .ring_addr = (uintptr_t)ring, .ring_entries = LOOP_BUF_COUNT,
					.bgid = LOOP_BUF_GROUP };

	if (ring == MAP_FAILED)
		return;

	uint8_t *bufs = mmap(NULL, (size_t)LOOP_BUF_COUNT * LOOP_BUF_SIZE, PROT_READ | PROT_WRITE,
			     MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);

	if (bufs == MAP_FAILED)
		goto unmap_ring;
	if (io_uring_register_buf_ring(&loop->ring, &reg, 0) < 0)
		goto unmap_bufs;
	loop->buf_ring = ring;
	loop->bufs = bufs;
	io_uring_buf_ring_init(loop->buf_ring);
	for (uint16_t i = 0; i < LOOP_BUF_COUNT; i++)
		io_uring_buf_ring_add(loop->buf_ring, bufs + (size_t)i * LOOP_BUF_SIZE, LOOP_BUF_SIZE, i,
				      io_uring_buf_ring_mask(LOOP_BUF_COUNT), i);
	io_uring_buf_ring_advance(loop->buf_ring, LOOP_BUF_COUNT);
	return;

unmap_bufs:
	munmap(bufs, (size_t)LOOP_BUF_COUNT * LOOP_BUF_SIZE);
unmap_ring:
	munmap(ring, ring_size);
}

int loop_open(struct loop **loop_out, unsigned entries, char *why, size_t why_size)
{
	struct loop *loop = calloc(1, sizeof(*loop));
	int err = -ENOMEM;

	if (!loop)
		goto no_memory;
	err = ring_setup(loop, entries);
	if (err) {
		setup_why(err, why, why_size);
		goto free_loop;
	}
	/* Waiting with a time limit (5.11) and polling instead of worker threads (5.7) are what the rest is built on. */
	if (!(loop->ring.features & IORING_FEAT_EXT_ARG) || !(loop->ring.features & IORING_FEAT_FAST_POLL) ||
	    !(loop->ring.features & IORING_FEAT_NODROP)) {
		snprintf(why, why_size, "the io_uring of this kernel is too old (features %#x); gleamd needs Linux 5.15 or newer",
			 loop->ring.features);
		err = -ENOSYS;
		goto exit_ring;
	}
	loop->event_fd = eventfd(0, EFD_CLOEXEC);
	if (loop->event_fd < 0) {
		err = -errno;
		snprintf(why, why_size, "eventfd: %s", strerror(-err));
		goto exit_ring;
	}
	loop->tag_free = UINT32_MAX;
	loop->post_last = &loop->post_first;
	pthread_mutex_init(&loop->post_lock, NULL);
	bufs_open(loop);
	loop->now_ns = clock_ns();
	loop_event_arm(loop);
	*loop_out = loop;
	return 0;

exit_ring:
	io_uring_queue_exit(&loop->ring);
free_loop:
	free(loop);
	return err;
no_memory:
	snprintf(why, why_size, "out of memory");
	return err;
}

void loop_close(struct loop *loop)
{
	io_uring_queue_exit(&loop->ring);
	if (loop->buf_ring) {
		munmap(loop->bufs, (size_t)LOOP_BUF_COUNT * LOOP_BUF_SIZE);
		munmap(loop->buf_ring, LOOP_BUF_COUNT * sizeof(struct io_uring_buf));
	}
	fd_close(&loop->event_fd);
	pthread_mutex_destroy(&loop->post_lock);
	free(loop->heap);
	free(loop->tags);
	free(loop);
}

uint64_t loop_now_ns(const struct loop *loop)
{
	return loop->now_ns;
}

void loop_stop(struct loop *loop)
{
	loop->stopping = true;
}

void loop_hook_set(struct loop *loop, const struct loop_hook *hook)
{
	loop->hook = *hook;
	loop_may_spin(loop);
}

void loop_may_spin(struct loop *loop)
{
	loop->spin_max_ns = spin_max_ns();
}

/* ---- operations ---- */

struct io_uring_sqe *loop_sqe(struct loop *loop)
{
	struct io_uring_sqe *sqe;

	/* A full queue is handed over; the kernel takes all of it, or is short of memory for a moment. */
	while (!(sqe = io_uring_get_sqe(&loop->ring)))
		io_uring_submit(&loop->ring);
	return sqe;
}

static void tags_grow(struct loop *loop)
{
	uint32_t count = loop->tag_count ? 2 * loop->tag_count : 256;
	struct loop_tag *tags = realloc(loop->tags, count * sizeof(*tags));

	/* Our own limits on clients and links keep us far below; without memory for a tag nothing can go on. */
	assert(tags && count <= LOOP_TAGS_MAX);
	for (uint32_t i = loop->tag_count; i < count; i++)
		tags[i] = (struct loop_tag){ .generation = 1, .next_free = i + 1 < count ? i + 1 : UINT32_MAX };
	loop->tag_free = loop->tag_count;
	loop->tags = tags;
	loop->tag_count = count;
}

uint64_t loop_tag(struct loop *loop, struct io_uring_sqe *sqe, loop_done *done, void *arg)
{
	if (loop->tag_free == UINT32_MAX)
		tags_grow(loop);

	uint32_t index = loop->tag_free;
	struct loop_tag *tag = &loop->tags[index];

	loop->tag_free = tag->next_free;
	tag->done = done;
	tag->arg = arg;
	tag->live = true;
	tag->quiet = false;

	uint64_t name = (uint64_t)tag->generation << 32 | index;

	io_uring_sqe_set_data64(sqe, name);
	return name;
}

static struct loop_tag *tag_find(struct loop *loop, uint64_t name)
{
	uint32_t index = (uint32_t)name;

	if (index >= loop->tag_count || !loop->tags[index].live || loop->tags[index].generation != name >> 32)
		return NULL;
	return &loop->tags[index];
}

void loop_cancel(struct loop *loop, uint64_t name)
{
	struct io_uring_sqe *sqe;

	if (!tag_find(loop, name))
		return;
	sqe = loop_sqe(loop);
	io_uring_prep_cancel64(sqe, name, 0);
	io_uring_sqe_set_data64(sqe, 0); /* generation 0 is nobody's: its own completion tells nothing */
}

void loop_tag_quiet(struct loop *loop, uint64_t name)
{
	struct loop_tag *tag = tag_find(loop, name);

	if (tag)
		tag->quiet = true;
}

void loop_forget(struct loop *loop, uint64_t name)
{
	struct loop_tag *tag = tag_find(loop, name);

	if (tag)
		tag->done = NULL;
}

uint64_t loop_tag_silent(struct loop *loop, struct io_uring_sqe *sqe, loop_done *done, void *arg)
{
	if (loop->ring.features & IORING_FEAT_CQE_SKIP)
		sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
	return loop_tag(loop, sqe, done, arg);
}

static void tag_free(struct loop *loop, struct loop_tag *tag)
{
	tag->live = false;
	tag->generation = tag->generation == UINT32_MAX ? 1 : tag->generation + 1;
	tag->next_free = loop->tag_free;
	loop->tag_free = (uint32_t)(tag - loop->tags);
}

void loop_tag_over(struct loop *loop, uint64_t name)
{
	struct loop_tag *tag = tag_find(loop, name);

	if (tag)
		tag_free(loop, tag);
}

static enum found cqe_handle(struct loop *loop, uint64_t name, int res, uint32_t flags)
{
	struct loop_tag *tag = tag_find(loop, name);

	if (!tag)
		return FOUND_QUIET;

	enum found found = tag->quiet ? FOUND_QUIET : FOUND_TRAFFIC;
	loop_done *done = tag->done;
	void *arg = tag->arg;

	if (!(flags & IORING_CQE_F_MORE))
		tag_free(loop, tag);
	if (done)
		done(arg, res, flags);
	else if (flags & IORING_CQE_F_BUFFER)
		loop_buf_give(loop, (uint16_t)(flags >> IORING_CQE_BUFFER_SHIFT));
	return found;
}

/* ---- receive buffers ---- */

bool loop_has_bufs(const struct loop *loop)
{
	return loop->buf_ring != NULL;
}

const uint8_t *loop_buf(const struct loop *loop, uint32_t cqe_flags, uint16_t *id_out)
{
	*id_out = (uint16_t)(cqe_flags >> IORING_CQE_BUFFER_SHIFT);
	return loop->bufs + (size_t)*id_out * LOOP_BUF_SIZE;
}

void loop_buf_give(struct loop *loop, uint16_t id)
{
	io_uring_buf_ring_add(loop->buf_ring, loop->bufs + (size_t)id * LOOP_BUF_SIZE, LOOP_BUF_SIZE, id,
			      io_uring_buf_ring_mask(LOOP_BUF_COUNT), 0);
	io_uring_buf_ring_advance(loop->buf_ring, 1);
}

/* ---- timers: a binary heap of pointers to their owners' structs ---- */

static void heap_put(struct loop *loop, unsigned place, struct loop_timer *timer)
{
	loop->heap[place] = timer;
	timer->place = place;
}

static void heap_up(struct loop *loop, unsigned place)
{
	struct loop_timer *timer = loop->heap[place];

	for (; place > 1 && loop->heap[place / 2]->due_ns > timer->due_ns; place /= 2)
		heap_put(loop, place, loop->heap[place / 2]);
	heap_put(loop, place, timer);
}

static void heap_down(struct loop *loop, unsigned place)
{
	struct loop_timer *timer = loop->heap[place];

	for (;;) {
		unsigned child = 2 * place;

		if (child > loop->timer_count)
			break;
		if (child < loop->timer_count && loop->heap[child + 1]->due_ns < loop->heap[child]->due_ns)
			child++;
		if (loop->heap[child]->due_ns >= timer->due_ns)
			break;
		heap_put(loop, place, loop->heap[child]);
		place = child;
	}
	heap_put(loop, place, timer);
}

void loop_timer_clear(struct loop *loop, struct loop_timer *timer)
{
	unsigned place = timer->place;

	if (!place)
		return;
	timer->place = 0;

	struct loop_timer *last = loop->heap[loop->timer_count--];

	if (last == timer)
		return;
	heap_put(loop, place, last);
	heap_up(loop, place);
	heap_down(loop, last->place);
}

void loop_timer_set(struct loop *loop, struct loop_timer *timer, uint64_t due_ns)
{
	loop_timer_clear(loop, timer);
	if (loop->timer_count + 2 > loop->timer_max) {
		unsigned max = loop->timer_max ? 2 * loop->timer_max : 64;
		struct loop_timer **heap = realloc(loop->heap, max * sizeof(struct loop_timer *));

		assert(heap);
		loop->heap = heap;
		loop->timer_max = max;
	}
	timer->due_ns = due_ns;
	heap_put(loop, ++loop->timer_count, timer);
	heap_up(loop, timer->place);
}

static void timers_run(struct loop *loop)
{
	while (loop->timer_count && loop->heap[1]->due_ns <= loop->now_ns) {
		struct loop_timer *timer = loop->heap[1];

		loop_timer_clear(loop, timer);
		timer->fire(timer->arg);
	}
}

/* ---- posted work ---- */

static void loop_event_done(void *arg, int res, uint32_t flags)
{
	struct loop *loop = arg;

	/* The work itself is taken at the start of the next round. */
	loop_event_arm(loop);
}

static void loop_event_arm(struct loop *loop)
{
	struct io_uring_sqe *sqe = loop_sqe(loop);

	io_uring_prep_read(sqe, loop->event_fd, &loop->event_value, sizeof(loop->event_value), 0);
	loop_tag(loop, sqe, loop_event_done, loop);
}

void loop_post(struct loop *loop, struct loop_post *post)
{
	uint64_t one = 1;
	bool ring;

	post->next = NULL;
	pthread_mutex_lock(&loop->post_lock);
	*loop->post_last = post;
	loop->post_last = &post->next;
	ring = !loop->post_rung;
	__atomic_store_n(&loop->post_rung, true, __ATOMIC_RELAXED);
	/* Under the lock: the loop can't run the post and end, closing the descriptor, before we have written. */
	if (ring && write(loop->event_fd, &one, sizeof(one)) < 0)
		log_error("loop: can't wake it: %s", strerror(errno));
	pthread_mutex_unlock(&loop->post_lock);
}

void loop_nudge(struct loop *loop)
{
	uint64_t one = 1;

	if (write(loop->event_fd, &one, sizeof(one)) < 0)
		log_error("loop: can't wake it: %s", strerror(errno));
}

static bool posts_run(struct loop *loop)
{
	struct loop_post *post;

	/* A stale false is no loss: the eventfd has been written and gets us here again. */
	if (!__atomic_load_n(&loop->post_rung, __ATOMIC_RELAXED))
		return false;
	pthread_mutex_lock(&loop->post_lock);
	post = loop->post_first;
	loop->post_first = NULL;
	loop->post_last = &loop->post_first;
	__atomic_store_n(&loop->post_rung, false, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&loop->post_lock);
	while (post) {
		struct loop_post *next = post->next;

		post->run(post);
		post = next;
	}
	return true;
}

/* ---- flushes ---- */

void loop_flush_later(struct loop *loop, struct loop_flush *flush)
{
	if (flush->queued)
		return;
	flush->queued = true;
	flush->next = loop->flush;
	loop->flush = flush;
}

void loop_flush_forget(struct loop *loop, struct loop_flush *flush)
{
	if (!flush->queued)
		return;
	for (struct loop_flush **at = &loop->flush; *at; at = &(*at)->next) {
		if (*at == flush) {
			*at = flush->next;
			break;
		}
	}
	flush->queued = false;
}

static void flushes_run(struct loop *loop)
{
	while (loop->flush) {
		struct loop_flush *flush = loop->flush;

		loop->flush = flush->next;
		flush->queued = false;
		flush->run(flush);
	}
}

/* ---- rounds ---- */

static enum found cqes_run(struct loop *loop)
{
	struct io_uring_cqe *cqes[64];
	enum found most = FOUND_NOTHING;
	unsigned count;

	while ((count = io_uring_peek_batch_cqe(&loop->ring, cqes, 64))) {
		for (unsigned i = 0; i < count; i++) {
			uint64_t name = cqes[i]->user_data;
			int res = cqes[i]->res;
			uint32_t flags = cqes[i]->flags;

			enum found found = cqe_handle(loop, name, res, flags);

			if (found > most)
				most = found;
		}
		io_uring_cq_advance(&loop->ring, count);
	}
	return most;
}

/* For @most_ns, or until something comes or a timer is due. */
static void loop_sleep(struct loop *loop, uint64_t most_ns)
{
	struct io_uring_cqe *cqe;
	uint64_t until = loop->timer_count ? loop->heap[1]->due_ns : UINT64_MAX;
	uint64_t wait = until <= loop->now_ns ? 0 : until - loop->now_ns;

	if (wait > most_ns)
		wait = most_ns;

	struct __kernel_timespec ts = { .tv_sec = (long long)(wait / NS_PER_S), .tv_nsec = (long long)(wait % NS_PER_S) };
	int ret = io_uring_submit_and_wait_timeout(&loop->ring, &cqe, 1, &ts, NULL);

	if (ret < 0 && ret != -ETIME && ret != -EINTR && ret != -EAGAIN && ret != -EBUSY)
		log_error("loop: waiting in io_uring failed: %s", strerror(-ret));
}

void loop_run(struct loop *loop)
{
	unsigned turns = 0;
	bool idle = false;

	/* Naps end when they should. Where there are none, timers that are due together wake us once. */
	if (nap_may_be(loop->spin_max_ns))
		prctl(PR_SET_TIMERSLACK, NAP_SLACK_NS);
	loop->now_ns = loop->worked_ns = clock_ns();
	while (!loop->stopping) {
		bool worked = posts_run(loop);
		uint64_t spin = spin_ns(&loop->spin);

		timers_run(loop);
		if (loop->hook.poll && loop->hook.poll(loop->hook.arg))
			worked = true;
		flushes_run(loop);
		if (io_uring_sq_ready(&loop->ring)) {
			/* Before a sleep the wait submits: one system call less. */
			if (worked || spin)
				io_uring_submit(&loop->ring);
		}

		enum found found = cqes_run(loop);

		loop->now_ns = clock_ns();
		if (worked || found == FOUND_TRAFFIC) {
			if (idle)
				pause_learn(&loop->spin, &loop->nap, loop->now_ns - loop->worked_ns, loop->spin_max_ns);
			idle = false;
			loop->worked_ns = loop->now_ns;
			continue;
		}
		/* What its handlers have left for the beginning of a round. */
		if (found == FOUND_QUIET && (loop->flush || __atomic_load_n(&loop->post_rung, __ATOMIC_RELAXED)))
			continue;
		idle = true;

		uint64_t pause = loop->now_ns - loop->worked_ns;
		uint64_t nap = nap_ns(&loop->nap, loop->spin_max_ns);

		if (pause < spin || nap_looks(nap, pause, loop->spin_max_ns)) {
			spin_rest(pause < spin ? pause : pause - nap, loop->spin_max_ns, &turns);
			continue;
		}
		if (loop->stopping)
			break;
		if (loop->hook.sleep && !loop->hook.sleep(loop->hook.arg))
			continue;
		loop_sleep(loop, pause < nap ? nap - pause : LOOP_SLEEP_MAX);
		if (loop->hook.wake)
			loop->hook.wake(loop->hook.arg);
		loop->now_ns = clock_ns();
	}
	/* What was posted for the end of this round: frees, mostly. */
	while (posts_run(loop))
		;
}
