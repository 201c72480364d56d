/* SPDX-License-Identifier: Apache-2.0 */
/* One frame given to its handler. Executor thread; see play.h. */
#include "broker/worker/play.h"

#include "broker/lib/clock.h"
#include "broker/proto/off.h"
#include "broker/worker/copy.h"
#include "broker/worker/fault.h"
#include "broker/worker/frame.h"
#include "broker/worker/keep.h"
#include "broker/worker/move_in.h"
#include "broker/worker/note.h"
#include "broker/worker/post.h"
#include "broker/worker/stream.h"
#include "broker/worker/turn.h"

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

void frame_skip(struct worker *w, struct cmd *cmd, CUresult code)
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
	if (!e || !frame_records_event(cmd->hdr))
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

/* Plays one frame of @s, with frame_event() @e. PLAYED_PARK: nothing happened. */
static enum played play(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame, struct stream *s, struct event *e, bool want)
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
		frame_skip(w, &cmd, CUDA_ERROR_UNKNOWN);
		return PLAYED_DONE;
	}

	CUresult latched = fault_peek(w, hdr->ctx);

	if (latched && !runs_after_fault(hdr, latched)) {
		frame_skip(w, &cmd, latched);
		if (s)
			stream_note_issued(w, s, hdr->seq, 0, want);
		return PLAYED_DONE;
	}
	if (hdr->ctx != CTX_NONE) {
		if (hdr->ctx >= SESSION_CONTEXTS)
			return PLAYED_BROKEN;
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
		return PLAYED_PARK;
	if (result == CMD_BROKEN)
		return PLAYED_BROKEN;
	if (result == CUDA_SUCCESS && s && book_event(w, &cmd, e))
		cmd.write_now = true;
	if (s && __builtin_expect(s->turns != NULL, 0))
		turns_note(w, s, hdr, e, result);
	if (s && !s->dead)
		stream_note_issued(w, s, hdr->seq, cmd.commands, want || cmd.write_now);
	else if (s)
		s->issued = hdr->seq;
	if (result == CMD_LATER)
		return PLAYED_DONE;
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
	return PLAYED_DONE;
}

/* The same; of a traced session with its times. */
enum played frame_play(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame, struct stream *s, struct event *event, bool want)
{
	struct span span = { .op = hdr->op, .who = SPAN_WORKER, .seq = hdr->seq, .word = s ? s->word : SPAN_NO_WORD };
	enum played played;

	if (__builtin_expect(!(w->header->off & OFF_TRACED), 1))
		return play(w, hdr, frame, s, event, want);
	span.start_ns = clock_ns();
	played = play(w, hdr, frame, s, event, want);
	span.end_ns = clock_ns();
	if (played == PLAYED_DONE)
		span_add(&w->spans, &span);
	if (spans_due(&w->spans, span.end_ns) || (hdr->flags & FRAME_WANTS_REPLY && w->spans.count))
		post_spans(w, &w->spans);
	return played;
}
