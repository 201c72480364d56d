// SPDX-License-Identifier: Apache-2.0
/*
 * A call on its way: checks at the door, encoding into the ring, waiting for the answer, and the counters that
 * /gleam shows. Application threads; the append lock orders them.
 */
#include "libgleamcuda/call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "broker/lib/futex.h"
#include "broker/lib/slot.h"
#include "broker/proto/times.h"
#include "broker/lib/spin.h"
#include "broker/lib/tsan.h"
#include "broker/proto/progress.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/init.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/off.h"
#include "libgleamcuda/range.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/trace.h"

#define NO_SLOT 0xffffu

uint32_t captures_going;
CUresult (*capture_gate)(struct call *call);
void (*call_failed)(const struct call *call, CUresult result);

/* How long waiting calls look before they sleep: for replies, and for progress. */
static struct spin reply_spin, progress_spin;
static struct nap reply_nap;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void count_add(struct session *s, uint16_t api, size_t offset, uint64_t value)
{
	uint64_t *word = (uint64_t *)(void *)((uint8_t *)shm_count(&s->shm, api) + offset);

	__atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}
#define COUNT(call, field, value) count_add((call)->session, (call)->api, offsetof(struct api_count, field), (value))

/* Whether call->context can be used. */
static CUresult context_check(struct call *call)
{
	struct context *context = call->context;

	if (!__atomic_load_n(&context->active, __ATOMIC_ACQUIRE))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED; /* also a primary one that nobody has retained */

	CUresult error = (CUresult)__atomic_load_n(&context->error, __ATOMIC_RELAXED);

	if (error)
		return error;
	error = session_error_peek(call->session, context->index);
	if (error && result_is_sticky(error)) {
		__atomic_store_n(&context->error, (uint32_t)error, __ATOMIC_RELAXED);
		return session_error_take(call->session, context->index);
	}
	if (session_is_dead(call->session))
		return session_death(call->session);
	error = capture_going() ? __atomic_load_n(&capture_gate, __ATOMIC_ACQUIRE)(call) : CUDA_SUCCESS;
	return !error && is_off(OFF_ALL) ? off_ask(call) : error;
}

/* A green context ends before its primary one, and has failures of its own streams. */
static CUresult green_check(struct call *call)
{
	CUresult error;

	if (!__atomic_load_n(&call->green->active, __ATOMIC_ACQUIRE))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	error = session_error_peek(call->session, call->green->index);
	return error && result_is_sticky(error) ? session_error_take(call->session, call->green->index) : CUDA_SUCCESS;
}

/* Counts the call; of some the time is taken. */
static inline void call_counted(struct call *call)
{
	struct api_count *count = shm_count(&call->session->shm, call->api);

	if (times_wants(__atomic_fetch_add(&count->calls, 1, __ATOMIC_RELAXED)))
		call->timed_ns = now_ns();
}

static __attribute__((noinline)) void call_timed(const struct call *call)
{
	uint32_t *times = shm_times(&call->session->shm, call->api);

	__atomic_fetch_add(&times[times_bucket(now_ns() - call->timed_ns)], 1, __ATOMIC_RELAXED);
}

CUresult call_enter(struct call *call, enum api api, enum needs needs, bool ptds)
{
	call->api = (uint16_t)api;
	call->ptds = ptds;
	call->touches = false;
	call->timed_ns = 0;
	call->answered = 0;
	call->trips = 0;
	call->entered_ns = __builtin_expect(__atomic_load_n(&trace_on, __ATOMIC_RELAXED), 0) ? trace_now() : 0;
	call->unawaited = false;
	call->awaited = false;
	call->failure = CUDA_SUCCESS;
	call->slot = NO_SLOT;
	call->posted = 0;
	call->context = NULL;
	call->green = NULL;
	call->thread = NULL;
	call->session = NULL;
	if (needs == NEEDS_NONE) {
		call->session = process_is_forked() ? NULL : session_current();
		if (call->session)
			call_counted(call);
		return CUDA_SUCCESS;
	}
	if (!process_is_initialised())
		return CUDA_ERROR_NOT_INITIALIZED;
	call->session = session_current();
	call->thread = thread_current();
	if (!call->session || !call->thread)
		return call->session ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_INITIALIZED;
	call_counted(call);
	if (call->thread->depth) {
		call->context = call->thread->stack[call->thread->depth - 1];
		if (__builtin_expect(call->context->base != NULL, 0)) {
			call->green = call->context;
			call->context = call->green->base;
		}
		call->session = call->context->session;
	}
	if (needs == NEEDS_INIT)
		return is_off(OFF_ALL) ? off_ask(call) : CUDA_SUCCESS;

	if (__builtin_expect(call->green != NULL, 0)) {
		CUresult result = green_check(call);

		if (result)
			return result;
	}
	return call->context ? context_check(call) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult call_enter_by(struct call *call, uint64_t handle)
{
	if (call->context || !call->thread)
		return CUDA_ERROR_INVALID_CONTEXT; /* it was told of another reason */
	/* NULL, 1 and 2 are the current context's streams. */
	call_in(call, handle > 2 ? handle_context(handle) : NULL);
	return call->context ? context_check(call) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult call_enter_at(struct call *call, uint64_t address)
{
	struct range range;

	if (call->context || !call->thread || !range_find(address, &range))
		return CUDA_ERROR_INVALID_CONTEXT;
	/* Memory of pools belongs to a device. */
	call_in(call, range.context ? range.context : context_primary(range.device));
	return call->context ? context_check(call) : CUDA_ERROR_INVALID_CONTEXT;
}

void call_to(struct call *call, struct session *session)
{
	if (call->session == session)
		return;
	/* Slots are of the server that answers into them. */
	if (call->slot != NO_SLOT)
		session_slot_give(call->session, call->slot);
	call->slot = NO_SLOT;
	call->session = session;
}

void call_start(struct call *call, struct session *session, struct context *context)
{
	*call = (struct call){ .api = API_cuInit, .slot = NO_SLOT, .session = session, .context = context };
}

CUresult call_leave(struct call *call, CUresult result)
{
	if (__builtin_expect(call->timed_ns != 0, 0))
		call_timed(call);
	if (call->slot != NO_SLOT)
		session_slot_give(call->session, call->slot);
	if (__builtin_expect(call->failure != CUDA_SUCCESS, 0) && !result)
		result = call->failure;
	if (__builtin_expect(result != CUDA_SUCCESS, 0)) {
		void (*failed)(const struct call *, CUresult) = __atomic_load_n(&call_failed, __ATOMIC_ACQUIRE);

		if (failed)
			failed(call, result);
	}
	if (result && gleam_log_wanted() && result != CUDA_ERROR_NOT_READY)
		gleam_log("%s: error %d", api_names[call->api], (int)result);
	return result;
}

/* ---- encoding ---- */

static CUresult open_frame(struct call *call, enum op op, size_t payload_max, unsigned flag, const struct bulk_ref *ref,
			   const struct bulk_file *file)
{
	struct session *s = call->session;
	size_t head = sizeof(struct frame_hdr) + (ref ? sizeof(*ref) : 0) + (file ? sizeof(*file) : 0);

	if (payload_max > FRAME_SIZE_MAX - head)
		return CUDA_ERROR_INVALID_VALUE;
	call->awaited = !(op_info[op].flags & OP_HAS_REPLY) && is_off(OFF_ASYNC | OFF_HANDLES | OFF_GRANTS) && off_awaits(call, op);
	if (op_info[op].flags & OP_HAS_REPLY || call->awaited) {
		if (call->slot == NO_SLOT)
			call->slot = session_slot_take(s);
		flag |= FRAME_WANTS_REPLY;
	}
	for (;;) {
		uint8_t *frame;
		uint64_t tail;
		int err;

		if (session_is_dead(s))
			return session_death(s);
		pthread_mutex_lock(&s->append_lock);
		tail = ring_tail(&s->c2n);
		err = ring_reserve(&s->c2n, (uint32_t)(head + payload_max), &frame);
		if (!err) {
			struct frame_hdr hdr = {
				.op = (uint16_t)op,
				.kind = FRAME_COMMAND,
				.flags = (uint8_t)(flag | (call->ptds ? FRAME_PTDS : 0)),
				.slot = call->slot == NO_SLOT ? 0 : call->slot,
				.ctx = call->context ? (uint16_t)call->context->index : CTX_NONE,
				.thread = call->thread ? call->thread->number : 0,
				.seq = s->seq + 1,
			};

			memcpy(frame, &hdr, sizeof(hdr));
			if (ref)
				memcpy(frame + sizeof(hdr), ref, sizeof(*ref));
			if (file)
				memcpy(frame + sizeof(hdr) + sizeof(*ref), file, sizeof(*file));
			if (flag & FRAME_BULK_UP)
				session_up_opened(s, ref->cookie);
			call->frame = frame;
			call->op = (uint16_t)op;
			call->w = writer_on(frame + head, payload_max);
			return CUDA_SUCCESS;
		}
		pthread_mutex_unlock(&s->append_lock);
		if (err != -EAGAIN) {
			gleam_log("command ring: %s; the daemon's side of it is broken", strerror(-err));
			return CUDA_ERROR_UNKNOWN;
		}

		uint64_t from = now_ns();

		if (ring_room_wait(s->c2n.ctl, tail, SESSION_LOOK_NS) == -ETIMEDOUT)
			session_check(s);
		COUNT(call, waited_ns, now_ns() - from);
	}
}

CUresult call_open(struct call *call, enum op op, size_t payload_max)
{
	return open_frame(call, op, payload_max, 0, NULL, NULL);
}

CUresult call_open_bulk(struct call *call, enum op op, size_t payload_max, enum frame_flag flag,
			const struct bulk_ref *ref)
{
	return open_frame(call, op, payload_max, flag, ref, NULL);
}

CUresult call_open_file(struct call *call, enum op op, size_t payload_max, const struct bulk_ref *ref,
			const struct bulk_file *file)
{
	return open_frame(call, op, payload_max, FRAME_BULK_UP | (file ? FRAME_BULK_FILE : 0), ref, file);
}

/* Nobody carries the bytes of this command anywhere: they lie where the worker reads them. Before the command is shown. */
static void direct_landed(const struct session *s, const uint8_t *frame)
{
	struct frame_hdr hdr;
	struct bulk_ref ref;

	memcpy(&hdr, frame, sizeof(hdr));
	if (!(hdr.flags & FRAME_BULK_UP))
		return;
	memcpy(&ref, frame + sizeof(hdr), sizeof(ref));
	__atomic_store_n(shm_landed(&s->shm, landed_word(ref.offset)), landed_value(ref.cookie), __ATOMIC_RELEASE);
}

void call_cancel(struct call *call)
{
	pthread_mutex_unlock(&call->session->append_lock);
}

/* Whoever takes the commands: the worker of this machine, or the daemon. */
static void consumer_wake(struct session *s)
{
	/* Pairs with the fence in client_direct_end(): whose sleep we have ended is known from here on. */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (session_is_direct(s))
		ring_wake_futex(s->c2n.ctl);
	else
		ring_wake_fd(s->doorbell);
}

/* Publishes the frame. Releases the append lock. */
static uint64_t frame_publish(struct call *call)
{
	struct session *s = call->session;
	uint32_t size = (uint32_t)(call->w.start + call->w.at - call->frame);
	uint64_t seq = s->seq + 1;

	/* Encoders are given the room that their size function asked for: a fault is a mistake of ours. */
	assert(!call->w.fault);
	memcpy(call->frame, &size, sizeof(size));
	if (call->slot != NO_SLOT && (call->awaited || op_info[call->op].flags & OP_HAS_REPLY)) {
		struct reply_slot *slot = shm_slot(&s->shm, call->slot);

		slot->seq = seq;
		__atomic_store_n(&slot->state, SLOT_SENT, __ATOMIC_RELAXED);
	}
	s->seq = seq;
	call->posted = seq;
	ring_commit(&s->c2n, size);
	if (session_is_direct(s))
		direct_landed(s, call->frame);

	order_give(s);

	bool wake = ring_publish(&s->c2n);

	pthread_mutex_unlock(&s->append_lock);
	if (wake)
		consumer_wake(s);
	COUNT(call, bytes, size);
	return seq;
}

/* ---- waiting ---- */

/* What is waited for is there. */
typedef bool spin_look(void *arg, uint64_t value);

uint64_t call_spin_limit(void)
{
	static uint64_t limit = UINT64_MAX; /* atomic; all threads find the same */
	uint64_t ns = __atomic_load_n(&limit, __ATOMIC_RELAXED);

	if (ns == UINT64_MAX) {
		ns = is_off(OFF_SPIN) ? 0 : spin_max_ns();
		__atomic_store_n(&limit, ns, __ATOMIC_RELAXED);
	}
	return ns;
}

/* True once @look says so; false: it is time to sleep, @ns after @from. */
static inline bool spin_until(uint64_t ns, spin_look *look, void *arg, uint64_t value, uint64_t from)
{
	uint64_t now = from;
	unsigned turns = 0;

	while (now - from < ns) {
		for (int i = 0; i < 32; i++) {
			if (look(arg, value))
				return true;
			spin_pause();
		}
		now = now_ns();
		/* The daemon may need this core. */
		spin_rest(now - from, call_spin_limit(), &turns);
	}
	return look(arg, value);
}

static bool slot_is_done(void *arg, uint64_t value)
{
	return __atomic_load_n(&((struct reply_slot *)arg)->state, __ATOMIC_ACQUIRE) == SLOT_DONE;
}

/* Sleeps for the most of a wait that is as long as others were, then looks. True: the reply is there. */
static bool slot_nap(struct reply_slot *slot, uint64_t from)
{
	uint64_t ns = nap_ns(&reply_nap, call_spin_limit());
	uint64_t now = ns ? now_ns() : 0;
	uint32_t state = SLOT_SENT;

	if (!ns || ns > SESSION_LOOK_NS || now - from >= ns)
		return false;
	if (__atomic_compare_exchange_n(&slot->state, &state, SLOT_SLEEPING, false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
		futex_wait(&slot->state, SLOT_SLEEPING, (int64_t)(ns - (now - from)));
	/* Whoever answers from here on needs no system call to wake us. */
	state = SLOT_SLEEPING;
	__atomic_compare_exchange_n(&slot->state, &state, SLOT_SENT, false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE);
	return spin_until(call_spin_limit(), slot_is_done, slot, 0, now_ns());
}

/* Until the reply is in the slot; false when the session ended first. */
static bool slot_wait(struct session *s, struct reply_slot *slot, uint64_t from)
{
	if (spin_until(spin_ns(&reply_spin), slot_is_done, slot, 0, from) || slot_nap(slot, from))
		return true;
	for (;;) {
		uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);

		if (state == SLOT_DONE)
			return true;
		if (session_is_dead(s))
			return false;
		if (state == SLOT_SENT) {
			__atomic_compare_exchange_n(&slot->state, &state, SLOT_SLEEPING, false, __ATOMIC_SEQ_CST,
						    __ATOMIC_ACQUIRE);
			continue;
		}
		if (futex_wait(&slot->state, SLOT_SLEEPING, SESSION_LOOK_NS) == -ETIMEDOUT)
			session_check(s);
	}
}

/* Publishes, and waits for the answer: call->r stands behind its CUresult, which is returned. */
static CUresult answer_wait(struct call *call, uint64_t *seq_out)
{
	struct session *s = call->session;
	struct reply_slot *slot = shm_slot(&s->shm, call->slot);
	struct frame_hdr hdr;
	uint64_t from = now_ns();
	uint64_t seq = frame_publish(call);
	bool answered = slot_wait(s, slot, from);
	uint64_t waited = now_ns() - from;
	uint32_t size = __atomic_load_n(&slot->size, __ATOMIC_RELAXED);

	*seq_out = seq;
	call->answered = seq;
	__atomic_store_n(&slot->state, SLOT_FREE, __ATOMIC_RELAXED);
	spin_learn(&reply_spin, waited, call_spin_limit());
	nap_learn(&reply_nap, waited, call_spin_limit(), call_spin_limit());
	call->trips++;
	COUNT(call, trips, 1);
	COUNT(call, waited_ns, waited);
	if (!answered || size < sizeof(hdr))
		return session_death(s);
	order_take(s);
	if (size > sizeof(slot->data))
		return CUDA_ERROR_UNKNOWN;
	memcpy(&hdr, slot->data, sizeof(hdr));
	if (hdr.seq != seq || hdr.op != call->op || hdr.kind != FRAME_REPLY)
		return CUDA_ERROR_UNKNOWN;

	size_t head = sizeof(hdr) + (hdr.flags & FRAME_BULK_DOWN ? sizeof(struct bulk_ref) : 0);

	if (size < head + 4)
		return CUDA_ERROR_UNKNOWN;
	COUNT(call, bytes, size);
	call->r = reader_on(slot->data + head, size - head);

	CUresult result = (CUresult)get_u32(&call->r);

	if (result && call->context && result_is_sticky(result))
		__atomic_store_n(&call->context->error, (uint32_t)result, __ATOMIC_RELAXED);
	return result;
}

struct awaited {
	struct session *session;
	uint32_t word;
};

static bool progress_is_there(void *arg, uint64_t value)
{
	const struct awaited *awaited = arg;

	return session_reached(awaited->session, awaited->word, value);
}

CUresult call_wait(struct call *call)
{
	uint64_t seq;

	return answer_wait(call, &seq);
}

uint64_t call_post(struct call *call)
{
	uint64_t seq;
	CUresult result;

	if (__builtin_expect(!call->awaited, 1))
		return frame_publish(call);
	result = answer_wait(call, &seq);
	if (result && !call->failure)
		call->failure = result;
	return seq;
}

CUresult call_wait_progress(struct call *call, uint32_t word, uint64_t seq, struct context *context)
{
	struct session *s = call->session;
	CUresult result = CUDA_SUCCESS;
	uint64_t from, waited;

	if (session_reached(s, word, seq))
		return CUDA_SUCCESS;
	from = now_ns();
	if (spin_until(spin_ns(&progress_spin), progress_is_there, &(struct awaited){ s, word }, seq, from))
		goto counted;
	__atomic_fetch_add(&s->header->progress_waiters, 1, __ATOMIC_SEQ_CST);
	for (;;) {
		uint32_t bell = __atomic_load_n(&s->header->progress_bell, __ATOMIC_SEQ_CST);

		if (session_reached(s, word, seq))
			break;
		result = session_error_peek(s, context->index);
		if (result && result_is_sticky(result)) {
			__atomic_store_n(&context->error, (uint32_t)result, __ATOMIC_RELAXED);
			break;
		}
		result = CUDA_SUCCESS;
		if (session_is_dead(s)) {
			result = session_death(s);
			break;
		}
		if (futex_wait(&s->header->progress_bell, bell, SESSION_LOOK_NS) == -ETIMEDOUT)
			session_check(s);
	}
	__atomic_fetch_sub(&s->header->progress_waiters, 1, __ATOMIC_RELAXED);
counted:
	waited = now_ns() - from;
	spin_learn(&progress_spin, waited, call_spin_limit());
	call->trips++;
	COUNT(call, trips, 1);
	COUNT(call, waited_ns, waited);
	return result;
}

void call_count_bytes(struct call *call, uint64_t bytes)
{
	COUNT(call, bytes, bytes);
}

/* ---- handles ---- */

static CUresult owner_check(struct context *owner)
{
	if (!owner || !__atomic_load_n(&owner->active, __ATOMIC_ACQUIRE))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return CUDA_SUCCESS;
}

CUresult call_handle(struct call *call, enum object_type type, const void *handle, unsigned marks, uint64_t *handle_out)
{
	uint64_t value = (uint64_t)(uintptr_t)handle;

	if (!value && (marks & HANDLE_NULL_OK)) {
		*handle_out = 0;
		return CUDA_SUCCESS;
	}
	/* A CUkernel is accepted wherever a CUfunction is: cudart passes it to launches. */
	if (type == OBJECT_FUNCTION && handle_type(value) == OBJECT_KERNEL)
		type = OBJECT_KERNEL;
	if (!handle_live(type, value))
		return CUDA_ERROR_INVALID_HANDLE;
	if (type != OBJECT_LIBRARY && type != OBJECT_KERNEL && owner_check(handle_context(value)))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*handle_out = value;
	return CUDA_SUCCESS;
}

CUresult call_birth(struct call *call, enum object_type type, uint64_t *handle_out)
{
	uint64_t handle = handle_new(type, call->context, NULL);

	if (!handle)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*handle_out = handle;
	return CUDA_SUCCESS;
}

void call_death(struct call *call, uint64_t handle)
{
	handle_end(handle);
}

/* ---- refusals ---- */

CUresult call_refuse(struct call *call, const char *why)
{
	static uint8_t told[API_COUNT]; /* atomic */

	if (!__atomic_exchange_n(&told[call->api], 1, __ATOMIC_RELAXED))
		gleam_log("%s is not supported: %s", api_names[call->api], why);
	return CUDA_ERROR_NOT_SUPPORTED;
}
