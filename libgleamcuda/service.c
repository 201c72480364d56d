// SPDX-License-Identifier: Apache-2.0
/*
 * The service thread. It is a guest among the program's threads: signals blocked, a small stack, a name that tells
 * whose it is; it holds none of the library's locks while it calls something that may wait.
 */
#include "libgleamcuda/service.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "broker/lib/tsan.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/exposed.h"
#include "libgleamcuda/hostfunc.h"
#include "libgleamcuda/late.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/memory.h"
#include "libgleamcuda/reconnect.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/trace.h"

#define STDOUT_TRIES  500 /* 0.1 ms apart */
#define SERVICE_STACK (256u << 10) /* the deepest call is a memcpy or a write of printf text */

/*
 * Device printf belongs on the program's stdout, behind what the program has printed there before: that may lie in the C library's
 * buffer still. Its lock is only tried, since whoever holds it may wait for us. A closed stdout harms nothing.
 */
static void text_say(const void *text, size_t size)
{
	static const struct timespec pause = { .tv_nsec = 100000 };

	for (int i = 0; i < STDOUT_TRIES; i++) {
		if (ftrylockfile(stdout) == 0) {
			fflush_unlocked(stdout);
			funlockfile(stdout);
			break;
		}
		nanosleep(&pause, NULL);
	}
	if (write(STDOUT_FILENO, text, size) < 0)
		gleam_log("device printf: %s", strerror(errno));
}

static void notice_take(struct session *s, const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct reader r;
	struct bulk_ref ref = { 0 };
	size_t head = sizeof(*hdr);

	if (hdr->flags & FRAME_BULK_DOWN) {
		ref = ring_bulk_ref(frame);
		head += sizeof(ref);
	}
	r = reader_on(frame + head, hdr->size - head);
	switch (hdr->op) {
	case NOTICE_LANDED:
		get_u32(&r); /* a failure, which the context's error word tells */
		late_landed(s, &ref, get_u32(&r));
		break;
	case NOTICE_FREED:
		memory_freed(s, &r);
		break;
	case NOTICE_HOST_CALL:
		hostfunc_wanted(s, get_u64(&r));
		break;
	case NOTICE_PRINT: {
		uint32_t size;
		const void *text = get_bytes(&r, FRAME_SIZE_MAX, &size);

		if (text)
			text_say(text, size);
		break;
	}
	case NOTICE_HOST_BYTES:
		exposed_apply(s, &r);
		break;
	case NOTICE_TRACE:
		/* Sequence numbers and clocks are of one server: the trace follows the first. */
		if (!s->index)
			trace_spans(&r);
		break;
	case NOTICE_RECALL: {
		uint32_t device = get_u32(&r);
		uint64_t bytes = get_u64(&r);

		if (!r.fault)
			memory_recall(s, device, bytes);
		break;
	}
	default:
		gleam_log("a notice of unknown kind %u", hdr->op);
	}
}

/* A kernel may be polling a word that the host has just written. */
static void exchange(struct session *s)
{
	struct call call;

	call_start(&call, s, NULL);
	exposed_push(&call);
	call_leave(&call, CUDA_SUCCESS);
}

/* As ring_peek(); what was there has been dealt with. */
static int notice_next_locked(struct session *s)
{
	struct frame_hdr hdr;
	const uint8_t *frame;
	int got = ring_peek(&s->n2c, &hdr, &frame);

	if (got <= 0)
		return got;
	order_take(s);
	/* Bytes that the device has written elsewhere came after those that landed before. */
	if (hdr.op != NOTICE_LANDED)
		late_settle(s);
	if (hdr.kind == FRAME_NOTICE)
		notice_take(s, &hdr, frame);
	ring_next(&s->n2c, &hdr);
	ring_release(&s->n2c);
	return got;
}

bool service_landings_take(struct session *s)
{
	struct frame_hdr hdr;
	const uint8_t *frame;
	bool any = false;

	/* Without the lock: most of those who look find nothing. Pairs with the release in ring_publish(). */
	if (__atomic_load_n(&s->header->n2c.head, __ATOMIC_ACQUIRE) == __atomic_load_n(&s->header->n2c.tail, __ATOMIC_RELAXED) ||
	    pthread_mutex_trylock(&s->notice_lock))
		return false;
	/* What else there is, also what can't be, is for the service thread. */
	while (ring_peek(&s->n2c, &hdr, &frame) > 0 && hdr.kind == FRAME_NOTICE && hdr.op == NOTICE_LANDED) {
		notice_next_locked(s);
		any = true;
	}
	pthread_mutex_unlock(&s->notice_lock);
	return any;
}

static void *service_run(void *arg)
{
	struct session *s = arg;

	for (;;) {
		bool sleeps;
		int got;

		pthread_mutex_lock(&s->notice_lock);
		got = notice_next_locked(s);
		pthread_mutex_unlock(&s->notice_lock);
		if (got > 0)
			continue;
		if (got < 0) {
			gleam_log("notices: %s; the session is given up", strerror(-got));
			break;
		}
		if (late_store_one(s))
			continue;
		if (session_check(s))
			break;
		if (exposed_any())
			exchange(s);
		pthread_mutex_lock(&s->notice_lock);
		sleeps = ring_sleep_begin(&s->n2c);
		pthread_mutex_unlock(&s->notice_lock);
		if (sleeps)
			ring_sleep_futex(&s->n2c, reconnect_pause_ns(s, exposed_any() ? EXPOSED_EXCHANGE_NS : SESSION_LOOK_NS));
		ring_sleep_end(&s->n2c);
		trace_flush();
	}
	__atomic_store_n(&s->dead, 1, __ATOMIC_RELAXED);
	shm_wake_all(&s->shm);
	late_fail(s);
	hostfunc_fail(s);
	return NULL;
}

void service_settle(struct session *s)
{
	/* The broker has put the notices into the ring before the word or the reply that said that the work is done. */
	uint64_t head = __atomic_load_n(&s->header->n2c.head, __ATOMIC_ACQUIRE);

	for (int turn = 0; __atomic_load_n(&s->header->n2c.tail, __ATOMIC_ACQUIRE) < head; turn++) {
		if (session_is_dead(s))
			return;
		if (service_landings_take(s))
			continue;
		if (turn < 100)
			sched_yield();
		else
			nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
	}
}

int service_start(struct session *s)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, before;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, SERVICE_STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&thread, &attr, service_run, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (err) {
		gleam_log("service thread: %s", strerror(err));
		return -err;
	}
	pthread_setname_np(thread, "gleam");
	return 0;
}

int session_attach(struct session *s, CUresult *result_out)
{
	struct call call;
	struct msg_gleamAttach m = { 0 };
	struct bulk_ref ref;
	void *bytes;
	CUresult result;

	call_start(&call, s, NULL);
	result = session_cells_take(s, SESSION_CELL_SIZE, &ref, &bytes);
	if (result)
		goto failed;
	m.first = s->first;
	m.snapshot = ref;
	result = call_open_bulk(&call, OP_gleamAttach, msg_gleamAttach_size(&m), FRAME_BULK_DOWN, &ref);
	if (!result) {
		msg_gleamAttach_put(&call.w, &m);
		result = call_wait(&call);
	}
	if (!result) {
		struct reader r = reader_on(bytes, SESSION_CELL_SIZE);

		if (!snapshot_get(&r, &s->snapshot)) {
			gleam_log("the server's list of devices can't be read");
			result = CUDA_ERROR_SYSTEM_NOT_READY;
		}
	}
	call_leave(&call, CUDA_SUCCESS);
	session_cells_give(s, &ref);
	if (!result)
		return 0;
failed:
	*result_out = result;
	return -EIO;
}
