/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor thread; see executor.h.
 *
 * Where a frame may wait: behind its own stream's queue, for credit, for the other side of the legacy stream's rule, for
 * an earlier parked frame that names the same event, or because its handler found no staging (CMD_PARK). A death without
 * a stream waits for all frames that were parked before it, since any of them may use the object.
 */
#include "broker/worker/executor.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "broker/lib/futex.h"
#include "broker/lib/spin.h"
#include "broker/proto/off.h"
#include "broker/worker/ahead.h"
#include "broker/worker/completion.h"
#include "broker/worker/copy.h"
#include "broker/worker/cost.h"
#include "broker/worker/fault.h"
#include "broker/worker/frame.h"
#include "broker/worker/grant.h"
#include "broker/worker/graph.h"
#include "broker/worker/image.h"
#include "broker/worker/launch.h"
#include "broker/worker/move_in.h"
#include "broker/worker/note.h"
#include "broker/worker/park.h"
#include "broker/worker/play.h"
#include "broker/worker/post.h"
#include "broker/worker/shortage.h"
#include "broker/worker/stream.h"

#define ROUND_FRAMES 64		   /* frames between looks at what was parked */
#define QUIET_NS     50000u	   /* without a command: streams' ends are written down unasked */
#define SLEEP_NS     200000000	   /* then it looks whether its node still lives */
#define FULL_WAIT_NS 1000000	   /* all parking room is taken: only the completion thread can help */

#define LAUNCH_ATTRS_AT 44u /* in gleamLaunch: stream, function, seven numbers */

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void executor_wake(struct worker *w)
{
	__atomic_fetch_add(&w->wake, 1, __ATOMIC_RELEASE);
	futex_wake(&w->wake, 1);
	ring_nudge_futex(&w->header->c2n);
}

/* ---- what a frame depends on ---- */

/* The event that a frame records or waits for, or the gate of the graph that it names: the second field of its message. */
static struct event *frame_event(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame)
{
	switch (hdr->op) {
	case OP_cuEventRecord:
	case OP_cuEventRecordWithFlags:
	case OP_cuStreamWaitEvent: {
		struct object *o = object_find(w->tables, OBJECT_EVENT, frame_word(hdr, frame, 8));

		return o ? o->own : NULL;
	}
	case OP_gleamLaunch: {
		/* The size of its attributes: nearly always 0. */
		struct object *o = (uint32_t)frame_word(hdr, frame, LAUNCH_ATTRS_AT) ?
					   object_find(w->tables, OBJECT_EVENT, launch_event(hdr, frame)) : NULL;

		return o ? o->own : NULL;
	}
	case OP_gleamGraphLaunch:
	case OP_gleamGraphUpload:
	case OP_gleamGraphUpdate:
	case OP_gleamGraphSet:
	case OP_gleamGraphSwitch:
		return graph_gate(w, frame_word(hdr, frame, 8));
	default:
		return NULL;
	}
}

/* ---- arrival ---- */

static void broken(const struct frame_hdr *hdr, const char *what, uint64_t expected, uint64_t got)
{
	const char *name = hdr->op < OP_MAX && op_info[hdr->op].name ? op_info[hdr->op].name : "unknown";

	complain("protocol: op 0x%x (%s), command %llu: %s: expected %llu, got %llu; the session ends", hdr->op, name,
		 (unsigned long long)hdr->seq, what, (unsigned long long)expected, (unsigned long long)got);
}

/* References into the arenas stay inside, whatever the client says. */
static bool bulk_is_sound(const struct frame_hdr *hdr, const struct bulk_ref *ref)
{
	if (hdr->flags & FRAME_BULK_UP)
		return ref->size > 0 && ref->size <= SESSION_CELL_SIZE && ref->offset % SESSION_GRANULE == 0 &&
		       ref->offset < SESSION_UP_SIZE && ref->size <= SESSION_UP_SIZE - ref->offset &&
		       ref->cookie % SESSION_UP_SIZE == ref->offset;
	return ref->offset % SESSION_CELL_SIZE == 0 && ref->offset < SESSION_DOWN_SIZE && ref->size > 0 &&
	       ref->size <= SESSION_DOWN_SIZE - ref->offset;
}

/* Brokers' own commands, beside those of the client. */
static bool is_move(uint16_t op)
{
	return op == OP_gleamMoveOut || op == OP_gleamMoveFill || op == OP_gleamMoveBegin || op == OP_gleamMoveEnd;
}

static bool frame_is_sound(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame)
{
	if (hdr->kind != FRAME_COMMAND || hdr->op >= OP_MAX || !op_info[hdr->op].name || !worker_handlers[hdr->op]) {
		broken(hdr, "kind of a known command", FRAME_COMMAND, hdr->kind);
		return false;
	}
	if (hdr->seq != w->seq + 1 && !w->moving && !(hdr->seq == 0 && is_move(hdr->op))) {
		broken(hdr, "sequence number", w->seq + 1, hdr->seq);
		return false;
	}
	if ((op_info[hdr->op].flags & OP_HAS_REPLY) && !(hdr->flags & FRAME_WANTS_REPLY)) {
		broken(hdr, "flags of a command that is answered", FRAME_WANTS_REPLY, hdr->flags);
		return false;
	}
	if ((hdr->flags & FRAME_WANTS_REPLY) && hdr->slot >= SESSION_SLOTS) {
		broken(hdr, "reply slot below", SESSION_SLOTS, hdr->slot);
		return false;
	}
	if (hdr->ctx != CTX_NONE && hdr->ctx >= SESSION_CONTEXTS) {
		broken(hdr, "context below", SESSION_CONTEXTS, hdr->ctx);
		return false;
	}

	uint8_t bulk = hdr->flags & (FRAME_BULK_UP | FRAME_BULK_DOWN);
	uint8_t wanted = (op_info[hdr->op].flags & OP_BULK_UP ? FRAME_BULK_UP : 0) |
			 (op_info[hdr->op].flags & OP_BULK_DOWN ? FRAME_BULK_DOWN : 0);

	if (bulk != wanted) {
		broken(hdr, "bulk flags", wanted, bulk);
		return false;
	}
	if (bulk) {
		struct bulk_ref ref = ring_bulk_ref(frame);

		if (!bulk_is_sound(hdr, &ref)) {
			broken(hdr, "a reference into its arena (offset, size)", ref.offset, ref.size);
			return false;
		}
		if ((bulk & FRAME_BULK_UP) && !copy_piece_arrived(w, &ref)) {
			broken(hdr, "a piece in the arena's window", w->up_seen, ref.cookie);
			return false;
		}
	}
	return true;
}

/* The stream that a frame is ordered behind. False: there is none of that name; the failure was told. */
static bool stream_find(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame, struct stream **stream_out)
{
	struct cmd cmd = { .hdr = hdr };

	*stream_out = NULL;
	if (!(op_info[hdr->op].flags & OP_SCOPE_STREAM))
		return true;
	*stream_out = stream_of(w, frame_word(hdr, frame, 0), hdr->ctx);
	if (*stream_out)
		return true;
	if (hdr->flags & (FRAME_BULK_UP | FRAME_BULK_DOWN))
		cmd.bulk = ring_bulk_ref(frame);

	bool open = hdr->ctx < SESSION_CONTEXTS && w->contexts[hdr->ctx].open;
	CUresult code = open ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_CONTEXT;

	if (w->moving)
		move_in_failed(w, hdr->op, code, NULL);
	else if (!(hdr->flags & FRAME_WANTS_REPLY))
		fault_latch(w, hdr->ctx, code, hdr->op, hdr->seq);
	frame_skip(w, &cmd, code);
	return false;
}

/* False: the session is over. */
static bool arrive(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct stream *s;

	/* After a reconnect a frame may come twice; it is executed once. */
	if (hdr->seq && hdr->seq <= w->seq && hdr->kind == FRAME_COMMAND && !w->moving)
		return true;
	if (!frame_is_sound(w, hdr, frame))
		return false;
	if (hdr->seq && !w->moving)
		w->seq = hdr->seq;
	if (!stream_find(w, hdr, frame, &s))
		return true;
	if (!s) {
		if (w->parked_count && frame_is_death(hdr) && parked_put_late(w, hdr, frame))
			return true;

		enum played played = frame_play(w, hdr, frame, NULL, NULL, false);

		if (played == PLAYED_BROKEN)
			broken(hdr, "a well-formed message", 0, hdr->size);
		return played != PLAYED_BROKEN;
	}

	struct event *e = frame_event(w, hdr, frame);
	bool park = s->parked_head || (e && e->parked) || parked_holds(w, s, hdr->seq) || !stream_has_credit(w, s);

	s->arrived = hdr->seq;
	if (!park) {
		enum played played;

		/* Its destruction must not take it away under our feet. */
		stream_get(s);
		played = frame_play(w, hdr, frame, s, e, false);
		stream_put(w, s);
		if (played == PLAYED_BROKEN)
			broken(hdr, "a well-formed message", 0, hdr->size);
		if (played != PLAYED_PARK)
			return played != PLAYED_BROKEN;
		/* Nobody else would write down what has to end before this one can go. */
		stream_flush(w, s);
	}

	if (!parked_put(w, s, e, hdr, frame)) {
		struct cmd cmd = { .hdr = hdr };

		if (hdr->flags & (FRAME_BULK_UP | FRAME_BULK_DOWN))
			cmd.bulk = ring_bulk_ref(frame);
		if (!(hdr->flags & FRAME_WANTS_REPLY))
			fault_latch(w, hdr->ctx, CUDA_ERROR_OUT_OF_MEMORY, hdr->op, hdr->seq);
		frame_skip(w, &cmd, CUDA_ERROR_OUT_OF_MEMORY);
		return true;
	}
	if (e && frame_records_event(hdr)) {
		/* Whoever asks for the event from now on means this record. */
		stream_get(s);
		stream_put(w, e->stream);
		e->stream = s;
		e->seq = hdr->seq;
	}
	return true;
}

/* ---- what was parked ---- */

static bool head_may_go(struct worker *w, struct stream *s)
{
	struct parked *p = s->parked_head;
	const struct frame_hdr *hdr = parked_hdr(p);

	if (p->event && p->event->parked != p)
		return false;
	return !parked_holds(w, s, hdr->seq) && stream_has_credit(w, s);
}

/* 1: something went, 0: nothing could, -1: the session is over. */
static int drain_stream(struct worker *w, struct stream *s)
{
	int went = 0;

	stream_get(s);
	while (s->parked_head && head_may_go(w, s)) {
		struct parked *p = s->parked_head;
		const struct frame_hdr *hdr = parked_hdr(p);
		enum played played = frame_play(w, hdr, p->frame, s, p->event, p->wants_write);

		if (played == PLAYED_BROKEN) {
			broken(hdr, "a well-formed message", 0, hdr->size);
			went = -1;
			break;
		}
		if (played == PLAYED_PARK) {
			stream_flush(w, s);
			break;
		}
		parked_pop(w, s);
		went = 1;
	}
	stream_put(w, s);
	return went;
}

static int drain(struct worker *w)
{
	bool any = false;
	bool again;

	do {
		struct stream *next;

		again = false;
		for (struct stream *s = w->parked_streams; s; s = next) {
			next = s->next_parked;

			int went = drain_stream(w, s);

			if (went < 0)
				return -1;
			again |= went > 0;
		}
		any |= again;
	} while (again);

	for (struct parked *p = parked_take_late(w); p; p = parked_take_late(w)) {
		const struct frame_hdr *hdr = parked_hdr(p);
		enum played played = frame_play(w, hdr, p->frame, NULL, NULL, false);

		if (played == PLAYED_BROKEN)
			broken(hdr, "a well-formed message", 0, hdr->size);
		parked_free(w, p);
		if (played == PLAYED_BROKEN)
			return -1;
		any = true;
	}
	return any;
}

/* ---- the loop ---- */

/*
 * Frames of a ring, at most a round's. @side: the daemon's own, of a client that shares our memory; they may hold that one, so they are
 * looked at first, and after each of them. True: there were some.
 */
static bool ring_play(struct worker *w, struct ring *ring, bool side)
{
	bool shared_memory = __atomic_load_n(&w->direct, __ATOMIC_RELAXED);
	uint32_t count = 0;

	/* A move begins in the middle of a ring. */
	if (!side && w->ahead.released != ring->at)
		ahead_released(w, ring->at);
	while (count < ROUND_FRAMES && w->parked_bytes < PARKED_BYTES_MAX && !w->stalled && !w->exit_code) {
		struct frame_hdr hdr;
		const uint8_t *shared;
		int got;

		if (__builtin_expect(cost_on, 0))
			cost_looks();
		got = ring_peek(ring, &hdr, &shared);
		if (got == 0)
			break;
		if (got < 0) {
			complain("ring from the %s: %s at position %llu; the session ends", side ? "daemon" : "client", strerror(-got),
				 (unsigned long long)ring->at);
			w->exit_code = EXIT_PROTOCOL;
			break;
		}
		/* From here on nobody else can change it. */
		memcpy(w->frame, shared, hdr.size);
		memcpy(w->frame, &hdr, sizeof(hdr));
		ring_next(ring, &hdr);
		ring_prefetch(ring);
		if (__builtin_expect(cost_on, 0))
			cost_fetched();
		/* Daemon and client have a ring each: what the one may say is not for the other. */
		if (shared_memory && side != (hdr.seq == 0)) {
			broken(&hdr, side ? "no sequence number" : "a sequence number", !side, hdr.seq);
			w->exit_code = EXIT_PROTOCOL;
			break;
		}
		if (!arrive(w, &hdr, w->frame)) {
			w->exit_code = EXIT_PROTOCOL;
			break;
		}
		if (__builtin_expect(cost_on, 0))
			cost_done(hdr.op);
		count++;
	}
	if (count) {
		if (!side)
			ahead_released(w, ring->at);
		ring_release(ring);
	}
	return count;
}

bool executor_round(struct worker *w)
{
	bool any = joins_run(w);

	any |= images_look(w);
	any |= copy_look(w);
	shortage_look(w);
	grants_look(w);

	if (w->parked_count) {
		int went = drain(w);

		if (went < 0) {
			w->exit_code = EXIT_PROTOCOL;
			return false;
		}
		any |= went > 0;
	}
	if (__atomic_load_n(&w->direct, __ATOMIC_RELAXED))
		any |= ring_play(w, &w->side_c2n, true);
	if (!w->holds)
		any |= ring_play(w, &w->c2n, false);
	return any;
}

static bool session_is_over(struct worker *w)
{
	return __atomic_load_n(&w->header->state, __ATOMIC_ACQUIRE) == SESSION_DEAD ||
	       __atomic_load_n(&w->stop, __ATOMIC_ACQUIRE);
}

/* ---- asleep: on the bell of c2n, which the daemon rings for its own ring, too ---- */

static bool sleep_begin(struct worker *w)
{
	bool direct = __atomic_load_n(&w->direct, __ATOMIC_RELAXED);

	if (direct && !ring_sleep_begin(&w->side_c2n))
		return false;
	/* While it is held nobody looks at what the client has written. */
	if (w->holds) {
		ring_sleep_announce(&w->c2n);
		return true;
	}
	if (ring_sleep_begin(&w->c2n))
		return true;
	if (direct)
		ring_sleep_end(&w->side_c2n);
	return false;
}

static void sleep_until_rung(struct worker *w, int64_t timeout_ns)
{
	struct ring_ctl *side = w->side_c2n.ctl;
	uint32_t bell = __atomic_load_n(&w->c2n.ctl->bell, __ATOMIC_ACQUIRE);

	/* As in ring_sleep_futex(): whoever took either has changed the bell, or is about to. */
	if (__atomic_load_n(&w->direct, __ATOMIC_RELAXED) && __atomic_load_n(&side->sleeping, __ATOMIC_ACQUIRE) == 0)
		return;
	if (__atomic_load_n(&w->c2n.ctl->sleeping, __ATOMIC_ACQUIRE) == 0)
		return;
	futex_wait(&w->c2n.ctl->bell, bell, timeout_ns);
}

static void sleep_end(struct worker *w)
{
	if (__atomic_load_n(&w->direct, __ATOMIC_RELAXED))
		ring_sleep_end(&w->side_c2n);
	ring_sleep_end(&w->c2n);
}

int executor_run(struct worker *w)
{
	pid_t parent = w->parent ? w->parent : getppid();
	uint64_t last = now_ns();
	uint64_t spin_max = spin_max_ns();
	struct spin spin = { 0 };
	struct nap nap = { 0 };
	unsigned turns = 0;
	bool flushed = true;
	bool idle = false;

	/* Naps end when they should. */
	if (nap_may_be(spin_max))
		prctl(PR_SET_TIMERSLACK, NAP_SLACK_NS);
	for (;;) {
		uint32_t wake = __atomic_load_n(&w->wake, __ATOMIC_ACQUIRE);

		if (executor_round(w)) {
			uint64_t now = now_ns();

			if (idle)
				pause_learn(&spin, &nap, now - last, spin_max);
			idle = false;
			last = now;
			flushed = false;
			continue;
		}
		idle = true;
		if (__builtin_expect(cost_on, 0))
			cost_idle();
		if (__atomic_load_n(&w->direct_failed, __ATOMIC_RELAXED))
			return EXIT_PROTOCOL;
		if (w->exit_code)
			return w->exit_code;
		if (session_is_over(w))
			return EXIT_DONE;

		uint64_t pause = now_ns() - last;
		uint64_t nap_for = nap_ns(&nap, spin_max);
		bool looks = nap_looks(nap_for, pause, spin_max);
		bool spins = pause < spin_ns(&spin) || looks;

		if (spins && (flushed || pause < QUIET_NS)) {
			spin_rest(looks ? pause - nap_for : pause, spin_max, &turns);
			continue;
		}
		if (w->spans.count)
			post_spans(w, &w->spans);
		if (!flushed) {
			/* Quiet for a moment: whoever polls for the end of his work shall see it without asking. */
			streams_flush(w);
			flushed = true;
			continue;
		}
		if (w->parked_bytes >= PARKED_BYTES_MAX || w->stalled) {
			futex_wait(&w->wake, wake, FULL_WAIT_NS);
			continue;
		}
		if (sleep_begin(w)) {
			if (__atomic_load_n(&w->wake, __ATOMIC_ACQUIRE) == wake)
				sleep_until_rung(w, grants_wait(w)     ? (int64_t)SHORTAGE_LOOK_NS
						    : pause < nap_for ? (int64_t)(nap_for - pause)
								      : SLEEP_NS);
			sleep_end(w);
		}
		if (getppid() != parent)
			return EXIT_ORPHAN;
	}
}
