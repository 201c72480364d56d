/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor thread; see executor.h.
 *
 * Where a frame may wait: behind its own stream's queue, for credit, for the other side of the legacy stream's rule, for
 * an earlier parked frame that names the same event, or because its handler found no staging (CMD_PARK). A death without
 * a stream waits for all frames that were parked before it, since any of them may use the object, and so does a setting
 * under which they would run.
 */
#include "broker/worker/executor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
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
#include "broker/worker/grant.h"
#include "broker/worker/graph.h"
#include "broker/worker/image.h"
#include "broker/worker/keep.h"
#include "broker/worker/launch.h"
#include "broker/worker/move_in.h"
#include "broker/worker/note.h"
#include "broker/worker/post.h"
#include "broker/worker/shortage.h"
#include "broker/worker/stream.h"
#include "broker/worker/turn.h"

#define ROUND_FRAMES 64		   /* frames between looks at what was parked */
#define QUIET_NS     50000u	   /* without a command: streams' ends are written down unasked */
#define SLEEP_NS     200000000	   /* then it looks whether its node still lives */
#define FULL_WAIT_NS 1000000	   /* all parking room is taken: only the completion thread can help */

#define LAUNCH_ATTRS_AT 44u /* in gleamLaunch: stream, function, seven numbers */

/* Our stop signs beside the handlers' codes. */
enum taken { TAKEN_DONE, TAKEN_PARK, TAKEN_BROKEN };

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

struct reader frame_payload(const struct frame_hdr *hdr, const uint8_t *frame)
{
	size_t head = ring_frame_head(hdr);

	return reader_on(frame + head, hdr->size > head ? hdr->size - head : 0);
}

void executor_wake(struct worker *w)
{
	__atomic_fetch_add(&w->wake, 1, __ATOMIC_RELEASE);
	futex_wake(&w->wake, 1);
	ring_nudge_futex(&w->header->c2n);
}

/* ---- what a frame depends on ---- */

static uint64_t frame_word(const struct frame_hdr *hdr, const uint8_t *frame, size_t at)
{
	struct reader r = frame_payload(hdr, frame);
	uint64_t value = 0;

	if (reader_left(&r) >= at + sizeof(value))
		memcpy(&value, r.start + at, sizeof(value));
	return value;
}

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

/* Does a frame that frame_event() finds an event for record it? */
static bool records_event(const struct frame_hdr *hdr)
{
	return hdr->op == OP_cuEventRecord || hdr->op == OP_cuEventRecordWithFlags || hdr->op == OP_gleamLaunch;
}

/* A parked frame of sequence number @seq or less holds back a new one on @s by the legacy stream's rule. */
static bool legacy_holds(struct worker *w, const struct stream *s, uint64_t seq)
{
	struct context *c = s->context;

	if (!c || !s->blocking)
		return false;
	if (s != c->legacy) {
		struct parked *first = c->legacy ? c->legacy->parked_head : NULL;

		return first && ((const struct frame_hdr *)(const void *)first->frame)->seq < seq;
	}
	if (!c->parked_blocking)
		return false;
	for (struct stream *o = w->parked_streams; o; o = o->next_parked)
		if (o->context == c && o->blocking && o != s && o->parked_head &&
		    ((const struct frame_hdr *)(const void *)o->parked_head->frame)->seq < seq)
			return true;
	return false;
}

/* ---- parking ---- */

static void parked_link(struct worker *w, struct stream *s, struct parked *p)
{
	p->stream = s;
	if (s->parked_tail)
		s->parked_tail->next = p;
	else
		s->parked_head = p;
	s->parked_tail = p;
	if (!s->in_parked) {
		s->in_parked = true;
		s->next_parked = w->parked_streams;
		w->parked_streams = s;
		stream_get(s);
		if (s->context && s->blocking && s != s->context->legacy)
			s->context->parked_blocking++;
	}
	if (p->event) {
		struct parked **link = &p->event->parked;

		while (*link)
			link = &(*link)->next_on_event;
		*link = p;
		p->event->refs++;
	}
}

static struct parked *parked_new(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct parked *p = malloc(sizeof(*p) + hdr->size);

	if (!p)
		return NULL;
	*p = (struct parked){ .size = hdr->size };
	memcpy(p->frame, frame, hdr->size);
	w->parked_bytes += sizeof(*p) + hdr->size;
	__atomic_fetch_add(&w->parked_count, 1, __ATOMIC_SEQ_CST);
	return p;
}

static void parked_free(struct worker *w, struct parked *p)
{
	if (p->event) {
		struct parked **link = &p->event->parked;

		while (*link && *link != p)
			link = &(*link)->next_on_event;
		if (*link)
			*link = p->next_on_event;
		event_put(w, p->event);
	}
	w->parked_bytes -= sizeof(*p) + p->size;
	__atomic_fetch_sub(&w->parked_count, 1, __ATOMIC_SEQ_CST);
	free(p);
}

/* The stream's queue is empty: it leaves the list. */
static void stream_unpark(struct worker *w, struct stream *s)
{
	struct stream **link = &w->parked_streams;

	while (*link && *link != s)
		link = &(*link)->next_parked;
	if (*link)
		*link = s->next_parked;
	s->in_parked = false;
	s->next_parked = NULL;
	if (s->context && s->blocking && s != s->context->legacy)
		s->context->parked_blocking--;
	stream_put(w, s);
}

static void parked_pop(struct worker *w, struct stream *s)
{
	struct parked *p = s->parked_head;

	s->parked_head = p->next;
	if (!s->parked_head)
		s->parked_tail = NULL;
	parked_free(w, p);
	if (!s->parked_head)
		stream_unpark(w, s);
}

/* ---- running ---- */

static bool is_death(const struct frame_hdr *hdr)
{
	return op_info[hdr->op].flags & OP_DEATH;
}

/* Commands that a context's failure does not stop: what frees, ends, tells, or makes objects that are only known here. */
static bool runs_after_fault(const struct frame_hdr *hdr, CUresult latched)
{
	uint8_t flags = op_info[hdr->op].flags;

	if (flags & OP_DEATH)
		return true;
	switch (hdr->op) {
	case OP_gleamAttach:
	case OP_gleamContextOpen:
	case OP_gleamContextClose:
	case OP_gleamGrant:
	case OP_gleamGrantReturn:
	case OP_gleamMap:
	case OP_gleamFree:
	case OP_gleamMemInfo:
	case OP_gleamHostRange:
	case OP_gleamPages:
	case OP_gleamHostDone:
	case OP_gleamFlush:
	case OP_gleamStreamSync:
	case OP_gleamContextSync:
		return true;
	case OP_cuEventRecord:
	case OP_cuEventRecordWithFlags:
	case OP_cuStreamWaitEvent:
		/* A program that goes on after a refused launch finds its events as natively. */
		return !fault_is_sticky(latched);
	default:
		/* Births are known to the program already. Work on streams is what natively would not have been sent. */
		return !(flags & OP_SCOPE_STREAM) && !fault_is_sticky(latched);
	}
}

/* Somebody waits for NOTICE_LANDED of it, also when nothing comes. */
static bool lands(const struct frame_hdr *hdr)
{
	return (hdr->flags & FRAME_BULK_DOWN) && !(op_info[hdr->op].flags & OP_HAS_REPLY);
}

/* A command that is not run: what it holds goes back, and who waits is told. */
static void skip(struct worker *w, struct cmd *cmd, CUresult code)
{
	const struct frame_hdr *hdr = cmd->hdr;

	note(w, "%s, command %llu: skipped after %d", op_info[hdr->op].name, (unsigned long long)hdr->seq, (int)code);
	if (hdr->flags & FRAME_BULK_UP)
		copy_consumed(w, cmd);
	if (lands(hdr))
		post_landed(w, hdr, code, &cmd->bulk);
	if (hdr->flags & FRAME_WANTS_REPLY)
		post_reply(w, hdr, code, NULL, 0, NULL);
}

/* What the worker keeps in its books beside the dispatch that calls the driver. @e: the frame's event. */
static bool book_event(struct worker *w, struct cmd *cmd, struct event *e)
{
	if (!e || !records_event(cmd->hdr))
		return false;
	stream_get(cmd->own);
	stream_put(w, e->stream);
	e->stream = cmd->own;
	e->seq = cmd->hdr->seq;
	stream_get(cmd->own);
	stream_put(w, e->played);
	e->played = cmd->own;
	e->played_seq = cmd->hdr->seq;
	return true;
}

static CUresult before(struct worker *w, struct cmd *cmd, const uint8_t *frame)
{
	switch (cmd->hdr->op) {
	case OP_cuStreamDestroy_v2:
		if (!cmd->own || cmd->own == (cmd->own->context ? cmd->own->context->legacy : NULL))
			return CMD_BROKEN;
		/* The last chance to have its end written down. */
		stream_flush(w, cmd->own);
		/* From here on the completion thread asks the driver nothing about it: its handle is about to be void. */
		stream_bury(w, cmd->own, 0);
		return CUDA_SUCCESS;
	case OP_cuEventElapsedTime_v2:
		/* A record that is parked here is still to come. */
		for (size_t at = 0; at <= 8; at += 8) {
			struct object *o = object_find(w->tables, OBJECT_EVENT, frame_word(cmd->hdr, frame, at));
			struct event *e = o ? o->own : NULL;

			if (e && e->stream && e->stream->issued < e->seq)
				return CUDA_ERROR_NOT_READY;
		}
		return CUDA_SUCCESS;
	default:
		return CUDA_SUCCESS;
	}
}

/* Plays one frame of @s, with frame_event() @e. TAKEN_PARK: nothing happened. */
static enum taken play(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame, struct stream *s, struct event *e, bool want)
{
	struct cmd cmd = { .hdr = hdr, .own = s, .commands = 1 };
	struct reader r = frame_payload(hdr, frame);
	struct writer ans = writer_on(w->answer, FRAME_SIZE_MAX);
	CUresult result = CUDA_SUCCESS;

	if (hdr->flags & (FRAME_BULK_UP | FRAME_BULK_DOWN))
		cmd.bulk = ring_bulk_ref(frame);
	if (s) {
		cmd.stream = s->driver;
		cmd.stream_handle = s->handle ? s->handle : WIRE_STREAM_LEGACY;
	}

	/* A move that has failed: what comes is of no use, and may name what isn't there. */
	if (w->moving && w->moving_failed[0] && hdr->op != OP_gleamMoveEnd) {
		skip(w, &cmd, CUDA_ERROR_UNKNOWN);
		return TAKEN_DONE;
	}

	CUresult latched = fault_peek(w, hdr->ctx);

	if (latched && !runs_after_fault(hdr, latched)) {
		skip(w, &cmd, latched);
		if (s)
			stream_note_issued(w, s, hdr->seq, 0, want);
		return TAKEN_DONE;
	}
	if (hdr->ctx != CTX_NONE) {
		if (hdr->ctx >= SESSION_CONTEXTS)
			return TAKEN_BROKEN;
		if (w->contexts[hdr->ctx].open)
			result = context_use(w, &w->contexts[hdr->ctx]);
		else if (!(op_info[hdr->op].flags & (OP_INTERNAL | OP_DEATH)))
			result = CUDA_ERROR_INVALID_CONTEXT;
	}
	put_u32(&ans, 0);
	w->cmd = &cmd;
	if (result == CUDA_SUCCESS)
		result = before(w, &cmd, frame);
	if (result == CUDA_SUCCESS)
		result = worker_handlers[hdr->op](w, &cmd, &r, &ans);
	w->cmd = NULL;
	if (result == CMD_PARK)
		return TAKEN_PARK;
	if (result == CMD_BROKEN)
		return TAKEN_BROKEN;
	if (result == CUDA_SUCCESS && s && book_event(w, &cmd, e))
		cmd.write_now = true;
	if (s && __builtin_expect(s->turns != NULL, 0))
		turns_note(w, s, hdr, e, result);
	if (s && !s->dead)
		stream_note_issued(w, s, hdr->seq, cmd.commands, want || cmd.write_now);
	else if (s)
		s->issued = hdr->seq;
	if (result == CMD_LATER)
		return TAKEN_DONE;
	if (result == CUDA_SUCCESS)
		keep_frame(w, hdr, frame);
	/* Whoever plays a move reads the answers of its own commands alone. */
	if (result != CUDA_SUCCESS && w->moving)
		move_in_failed(w, hdr->op, result, NULL);
	if (hdr->flags & FRAME_WANTS_REPLY) {
		if (ans.fault)
			result = CUDA_ERROR_UNKNOWN;
		post_reply(w, hdr, result, w->answer, (uint32_t)ans.at, NULL);
	} else if (result != CUDA_SUCCESS && w->moving) {
		/* that was all */
	} else if (result != CUDA_SUCCESS) {
		fault_latch(w, hdr->ctx, result, hdr->op, hdr->seq);
	}
	/* A failed command leaves nothing behind that holds the client's memory. */
	if (result != CUDA_SUCCESS && (hdr->flags & FRAME_BULK_UP) && !cmd.bulk_taken)
		copy_consumed(w, &cmd);
	if (result != CUDA_SUCCESS && lands(hdr))
		post_landed(w, hdr, result, &cmd.bulk);
	return TAKEN_DONE;
}

/* The same; of a traced session with its times. */
static enum taken run(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame, struct stream *s, struct event *e, bool want)
{
	struct span span = { .op = hdr->op, .who = SPAN_WORKER, .seq = hdr->seq, .word = s ? s->word : SPAN_NO_WORD };
	enum taken taken;

	if (__builtin_expect(!(w->header->off & OFF_TRACED), 1))
		return play(w, hdr, frame, s, e, want);
	span.start_ns = now_ns();
	taken = play(w, hdr, frame, s, e, want);
	span.end_ns = now_ns();
	if (taken == TAKEN_DONE)
		span_add(&w->spans, &span);
	if (spans_due(&w->spans, span.end_ns) || (hdr->flags & FRAME_WANTS_REPLY && w->spans.count))
		post_spans(w, &w->spans);
	return taken;
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
	skip(w, &cmd, code);
	return false;
}

/* Frames without a stream that have to come behind all older ones. Later ones don't wait for them: the caller of a setting does. */
static bool waits_for_older(const struct frame_hdr *hdr)
{
	return is_death(hdr) || hdr->op == OP_cuCtxSetLimit;
}

static bool late_park(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct parked *p = parked_new(w, hdr, frame);

	if (!p)
		return false;
	if (w->late_tail)
		w->late_tail->next = p;
	else
		w->late_head = p;
	w->late_tail = p;
	return true;
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
		if (w->parked_count && waits_for_older(hdr) && late_park(w, hdr, frame))
			return true;

		enum taken taken = run(w, hdr, frame, NULL, NULL, false);

		if (taken == TAKEN_BROKEN)
			broken(hdr, "a well-formed message", 0, hdr->size);
		return taken != TAKEN_BROKEN;
	}

	struct event *e = frame_event(w, hdr, frame);
	bool park = s->parked_head || (e && e->parked) || legacy_holds(w, s, hdr->seq) || !stream_has_credit(w, s);

	s->arrived = hdr->seq;
	if (!park) {
		enum taken taken;

		/* Its destruction must not take it away under our feet. */
		stream_get(s);
		taken = run(w, hdr, frame, s, e, false);
		stream_put(w, s);
		if (taken == TAKEN_BROKEN)
			broken(hdr, "a well-formed message", 0, hdr->size);
		if (taken != TAKEN_PARK)
			return taken != TAKEN_BROKEN;
		/* Nobody else would write down what has to end before this one can go. */
		stream_flush(w, s);
	}

	struct parked *p = parked_new(w, hdr, frame);

	if (!p) {
		struct cmd cmd = { .hdr = hdr };

		if (hdr->flags & (FRAME_BULK_UP | FRAME_BULK_DOWN))
			cmd.bulk = ring_bulk_ref(frame);
		if (!(hdr->flags & FRAME_WANTS_REPLY))
			fault_latch(w, hdr->ctx, CUDA_ERROR_OUT_OF_MEMORY, hdr->op, hdr->seq);
		skip(w, &cmd, CUDA_ERROR_OUT_OF_MEMORY);
		return true;
	}
	p->event = e;
	parked_link(w, s, p);
	if (e && records_event(hdr)) {
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
	const struct frame_hdr *hdr = (const void *)p->frame;

	if (p->event && p->event->parked != p)
		return false;
	return !legacy_holds(w, s, hdr->seq) && stream_has_credit(w, s);
}

static uint64_t oldest_parked(struct worker *w)
{
	uint64_t oldest = UINT64_MAX;

	for (struct stream *s = w->parked_streams; s; s = s->next_parked) {
		uint64_t seq = ((const struct frame_hdr *)(const void *)s->parked_head->frame)->seq;

		if (seq < oldest)
			oldest = seq;
	}
	return oldest;
}

/* 1: something went, 0: nothing could, -1: the session is over. */
static int drain_stream(struct worker *w, struct stream *s)
{
	int went = 0;

	stream_get(s);
	while (s->parked_head && head_may_go(w, s)) {
		struct parked *p = s->parked_head;
		const struct frame_hdr *hdr = (const void *)p->frame;
		enum taken taken = run(w, hdr, p->frame, s, p->event, p->wants_write);

		if (taken == TAKEN_BROKEN) {
			broken(hdr, "a well-formed message", 0, hdr->size);
			went = -1;
			break;
		}
		if (taken == TAKEN_PARK) {
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

	while (w->late_head) {
		struct parked *p = w->late_head;
		const struct frame_hdr *hdr = (const void *)p->frame;

		if (w->parked_streams && oldest_parked(w) < hdr->seq)
			break;
		w->late_head = p->next;
		if (!w->late_head)
			w->late_tail = NULL;

		enum taken taken = run(w, hdr, p->frame, NULL, NULL, false);

		if (taken == TAKEN_BROKEN)
			broken(hdr, "a well-formed message", 0, hdr->size);
		parked_free(w, p);
		if (taken == TAKEN_BROKEN)
			return -1;
		any = true;
	}
	return any;
}

void executor_drop_parked(struct worker *w, struct context *c, CUresult code)
{
	struct stream *next;

	for (struct stream *s = w->parked_streams; s; s = next) {
		next = s->next_parked;
		if (s->context != c)
			continue;
		stream_get(s);
		while (s->parked_head) {
			const struct frame_hdr *hdr = (const void *)s->parked_head->frame;
			struct cmd cmd = { .hdr = hdr, .own = s };

			if (hdr->flags & (FRAME_BULK_UP | FRAME_BULK_DOWN))
				cmd.bulk = ring_bulk_ref(s->parked_head->frame);
			skip(w, &cmd, code);
			parked_pop(w, s);
		}
		stream_put(w, s);
	}
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
	unsigned turns = 0;
	bool flushed = true;
	bool idle = false;

	for (;;) {
		uint32_t wake = __atomic_load_n(&w->wake, __ATOMIC_ACQUIRE);

		if (executor_round(w)) {
			uint64_t now = now_ns();

			if (idle)
				spin_learn(&spin, now - last, spin_max);
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
		bool spins = !(w->header->off & OFF_SPIN) && pause < spin_ns(&spin);

		if (spins && (flushed || pause < QUIET_NS)) {
			spin_rest(pause, spin_max, &turns);
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
				sleep_until_rung(w, grants_wait(w) ? (int64_t)SHORTAGE_LOOK_NS : SLEEP_NS);
			sleep_end(w);
		}
		if (getppid() != parent)
			return EXIT_ORPHAN;
	}
}
