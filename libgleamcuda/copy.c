// SPDX-License-Identifier: Apache-2.0
/*
 * Copies, the engine of all forms: bytes to the device go into the frame or into up pieces and the call returns; bytes
 * from the device come back in the reply, in cells, or late. Application threads.
 *
 * When host memory is read: pageable memory before the call returns, always. Page-locked memory is read at once as
 * well, after waiting for those outstanding things that may still write to it (late copies to the host, host functions).
 */
#include "libgleamcuda/copy.h"

#include <string.h>

#include "broker/lib/spin.h"
#include "gen/msg.h"
#include "libgleamcuda/across.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/crew.h"
#include "libgleamcuda/exposed.h"
#include "libgleamcuda/fence.h"
#include "libgleamcuda/hostfunc.h"
#include "libgleamcuda/late.h"
#include "libgleamcuda/off.h"
#include "libgleamcuda/pages.h"
#include "libgleamcuda/range.h"
#include "libgleamcuda/region.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stream.h"
#include "libgleamcuda/streamword.h"
#include "libgleamcuda/weights.h"

#define MIRRORED_MAX (1u << 20) /* bytes of a copy to memory that kernels reach */
#define REPLY_MAX 4000u /* bytes of gleamCopyDown's answer: what a reply slot holds */
#define PIECE_LEAST  (128u << 10) /* less is not worth the driver calls of a piece */
#define PIECES	     4u		  /* of a copy that would fit into one: as many as a link has bulk lanes, usually */
#define ONE_CELL_MAX (512u << 10) /* copies to the host in one piece with the answer behind it; larger ones go by several lanes */
/*
 * The same where lanes' threads have cores of their own, and look for their next piece: one lane takes 0.7 ns a byte, with encryption, at either end.
 */
#define LANES_PIECES	   8u
#define LANES_PIECE_LEAST  SESSION_GRANULE
#define LANES_ONE_CELL_MAX (64u << 10)

static_assert(PIECE_LEAST % SESSION_GRANULE == 0, "pieces end with a granule");

enum place place_host(uint64_t *address, uint64_t *left_out)
{
	struct range range;
	uint64_t offset;

	*left_out = UINT64_MAX;
	if (!range_find(*address, &range))
		return PLACE_PAGEABLE;
	offset = *address - range.start;
	if (offset >= range.size)
		offset = *address - range.dev;
	*left_out = range.size - offset;
	if (range.kind != RANGE_HOST_MADE && range.kind != RANGE_HOST_REGISTERED)
		return PLACE_DEVICE;
	*address = range.start + offset;
	return PLACE_PINNED;
}

enum place place_of(uint64_t address, uint64_t *left_out)
{
	return place_host(&address, left_out);
}

bool place_holds(uint64_t address, uint64_t size)
{
	struct range range;
	uint64_t left, at;

	place_of(address, &left);
	if (size <= left)
		return true;
	if (size > UINT64_MAX - address || !range_find(address, &range))
		return false;
	/* What the program has mapped side by side is one memory to the device. */
	for (at = range.start + range.size; range.kind == RANGE_MAPPED && at < address + size; at += range.size)
		if (!range_find(at, &range) || range.start != at)
			return false;
	return range.kind == RANGE_MAPPED;
}

static uint32_t piece_part(uint64_t size, uint32_t pieces, uint32_t least)
{
	uint64_t piece = (size / pieces + SESSION_GRANULE - 1) & ~(uint64_t)(SESSION_GRANULE - 1);

	if (piece < least)
		return least;
	return piece < SESSION_CELL_SIZE ? (uint32_t)piece : SESSION_CELL_SIZE;
}

/* Pieces travel side by side, each on a lane; large copies have more than enough of them. */
static uint32_t piece_of(uint64_t size)
{
	return piece_part(size, PIECES, PIECE_LEAST);
}

/* Bytes that come go by lanes whose threads have cores to look from; without a daemon in between there are none. */
static bool lanes_are_many(const struct session *s)
{
	return !session_is_direct(s) && call_spin_limit() >= SPIN_MAX_MANY_NS;
}

static uint32_t piece_down(const struct session *s, uint64_t size)
{
	return lanes_are_many(s) ? piece_part(size, LANES_PIECES, LANES_PIECE_LEAST) : piece_of(size);
}

/* Switched off, a call is awaited once: at its last piece, or by the wait that it ends with. */
static void piece_next(struct call *call, const struct copy *c, bool last)
{
	bool waits = c->dst_place == PLACE_DEVICE ? !c->async : !(c->async && c->dst_place == PLACE_PINNED);

	call->unawaited = !last || waits;
}

/* ---- to the device ---- */

/* @rows rows of @width bytes become one after the other. */
static void rows_gather(uint8_t *to, uint64_t from, uint64_t pitch, uint64_t width, uint64_t rows)
{
	for (uint64_t row = 0; row < rows; row++)
		memcpy(to + row * width, (const void *)(uintptr_t)(from + row * pitch), width);
}

static CUresult up_inline(struct call *call, const struct copy *c, uint64_t dst, uint64_t src, uint32_t size)
{
	struct msg_gleamCopyUp m = { .stream = c->stream, .dst = dst, .data = (const void *)(uintptr_t)src,
				     .data_size = size };
	CUresult result;

	piece_next(call, c, dst + size == c->dst + (c->rows - 1) * c->dst_pitch + c->width);
	result = call_open(call, OP_gleamCopyUp, msg_gleamCopyUp_size(&m));

	if (result)
		return result;
	msg_gleamCopyUp_put(&call->w, &m);
	stream_note(call, c->stream, call_post(call));
	return CUDA_SUCCESS;
}

/* Without the arena, which may be full of what waits for this: what goes on for another server must not wait for room there. */
static CUresult up_inlines(struct call *call, const struct copy *c, uint64_t dst, uint64_t src, uint32_t size)
{
	CUresult result = CUDA_SUCCESS;

	for (uint32_t at = 0; at < size && !result; at += INLINE_MAX)
		result = up_inline(call, c, dst + at, src + at, size - at < INLINE_MAX ? size - at : INLINE_MAX);
	return result;
}

/* gleamd has been restarted since: the one that is there now knows nothing of the file. The append lock is held. */
static void part_settle(struct call *call, const struct weights_part *part, void *bytes, uint64_t src, uint32_t size)
{
	const struct bulk_file none = { .file = BULK_FILE_NONE, .offset = part->file.offset };

	if (__builtin_expect(__atomic_load_n(&call->session->returns, __ATOMIC_RELAXED) == part->returns, 1))
		return;
	if (part->file.absent)
		memcpy(bytes, (const void *)(uintptr_t)src, size);
	memcpy(call->frame + sizeof(struct frame_hdr) + sizeof(struct bulk_ref), &none, sizeof(none));
}

/* A piece of one row, through the arena; @part: of which file it is, or NULL. */
static CUresult up_bulk(struct call *call, const struct copy *c, uint64_t dst, uint64_t src, uint32_t size,
			const struct weights_part *part)
{
	const struct bulk_file *file = part ? &part->file : NULL;
	struct msg_gleamCopyUpBulk m = { .stream = c->stream, .dst = dst };
	void *bytes;
	CUresult result = CUDA_SUCCESS;
	bool room = session_up_try(call->session, size, &m.data, &bytes);

	if (!room && hostfunc_relays())
		return up_inlines(call, c, dst, src, size);
	if (!room)
		result = session_up_take(call->session, size, &m.data, &bytes);
	if (result)
		return result;
	/* Where the arena was full what takes the bytes is slower than we are: no help is worth its while. */
	if ((!file || !file->absent) && room)
		crew_copy(bytes, (const void *)(uintptr_t)src, size);
	else if (!file || !file->absent)
		memcpy(bytes, (const void *)(uintptr_t)src, size);
	piece_next(call, c, dst + size == c->dst + (c->rows - 1) * c->dst_pitch + c->width);
	result = call_open_file(call, OP_gleamCopyUpBulk, msg_gleamCopyUpBulk_size(&m), &m.data, file);
	if (result)
		return result; /* the session has ended: the piece is nobody's any more */
	if (part)
		part_settle(call, part, bytes, src, size);
	msg_gleamCopyUpBulk_put(&call->w, &m);
	stream_note(call, c->stream, call_post(call));
	call_count_bytes(call, size);
	return CUDA_SUCCESS;
}

static CUresult up_rows(struct call *call, const struct copy *c, uint64_t first, uint64_t rows)
{
	struct msg_gleamCopyUp2D m = { .stream = c->stream, .dst = c->dst + first * c->dst_pitch,
				       .pitch = c->dst_pitch, .width = c->width, .rows = rows };
	uint32_t size = (uint32_t)(rows * c->width);
	void *bytes;
	CUresult result = CUDA_SUCCESS;

	if (!hostfunc_relays())
		result = session_up_take(call->session, size, &m.data, &bytes);
	else if (!session_up_try(call->session, size, &m.data, &bytes)) {
		for (uint64_t row = first; row < first + rows && !result; row++)
			result = up_inlines(call, c, c->dst + row * c->dst_pitch, c->src + row * c->src_pitch, (uint32_t)c->width);
		return result;
	}
	if (result)
		return result;
	rows_gather(bytes, c->src + first * c->src_pitch, c->src_pitch, c->width, rows);
	piece_next(call, c, first + rows == c->rows);
	result = call_open_bulk(call, OP_gleamCopyUp2D, msg_gleamCopyUp2D_size(&m), FRAME_BULK_UP, &m.data);
	if (result)
		return result;
	msg_gleamCopyUp2D_put(&call->w, &m);
	stream_note(call, c->stream, call_post(call));
	call_count_bytes(call, size);
	return CUDA_SUCCESS;
}

static CUresult up_line(struct call *call, const struct copy *c, uint64_t dst, uint64_t src, uint64_t size)
{
	CUresult result = CUDA_SUCCESS;
	uint32_t piece = piece_of(size);

	if (size <= INLINE_MAX)
		return up_inline(call, c, dst, src, (uint32_t)size);
	for (uint64_t at = 0; at < size && !result; at += piece) {
		uint64_t left = size - at;

		result = up_bulk(call, c, dst + at, src + at, left < piece ? (uint32_t)left : piece, NULL);
	}
	return result;
}

/* The same for bytes that may be a mapped file's: by what is known of each part. */
static CUresult up_parts(struct call *call, const struct copy *c, uint64_t dst, uint64_t src, uint64_t size)
{
	struct weights_map map = { 0 };
	CUresult result = CUDA_SUCCESS;

	for (uint64_t at = 0; at < size && !result;) {
		struct weights_part part;

		weights_look(call->session, src + at, size - at, &map, &part);
		if (!part.is_file)
			result = up_line(call, c, dst + at, src + at, part.size);
		for (uint64_t done = 0; part.is_file && done < part.size && !result;) {
			uint64_t left = part.size - done;
			uint32_t piece = left < SESSION_CELL_SIZE ? (uint32_t)left : SESSION_CELL_SIZE;

			result = up_bulk(call, c, dst + at + done, src + at + done, piece, &part);
			part.file.offset += piece;
			done += piece;
		}
		at += part.size;
	}
	return result;
}

CUresult copy_bytes_up(struct call *call, const struct copy *c)
{
	CUresult result = CUDA_SUCCESS;

	if (c->rows == 1 && c->width >= WEIGHTS_LEAST && c->src_place == PLACE_PAGEABLE)
		return up_parts(call, c, c->dst, c->src, c->width);
	if (c->rows == 1)
		return up_line(call, c, c->dst, c->src, c->width);
	if (c->width > SESSION_CELL_SIZE / 2) {
		for (uint64_t row = 0; row < c->rows && !result; row++)
			result = up_line(call, c, c->dst + row * c->dst_pitch, c->src + row * c->src_pitch, c->width);
		return result;
	}

	uint64_t rows_max = SESSION_CELL_SIZE / c->width;

	for (uint64_t row = 0; row < c->rows && !result; row += rows_max)
		result = up_rows(call, c, row, c->rows - row < rows_max ? c->rows - row : rows_max);
	return result;
}

/* ---- from the device ---- */

static CUresult down_reply(struct call *call, const struct copy *c)
{
	struct msg_gleamCopyDown m = { .stream = c->stream, .src = c->src, .size = (uint32_t)c->width };
	struct ans_gleamCopyDown a;
	CUresult result = call_open(call, OP_gleamCopyDown, msg_gleamCopyDown_size(&m));

	if (result)
		return result;
	msg_gleamCopyDown_put(&call->w, &m);
	result = call_wait(call);
	if (result)
		return result;
	if (!ans_gleamCopyDown_get(&call->r, &a) || a.data_size != c->width)
		return CUDA_ERROR_UNKNOWN;
	memcpy((void *)(uintptr_t)c->dst, a.data, a.data_size);
	return CUDA_SUCCESS;
}

static CUresult down_cell(struct call *call, const struct copy *c)
{
	struct msg_gleamCopyDownBulk m = { .stream = c->stream, .src = c->src, .size = c->width };
	void *bytes;
	CUresult result = session_cells_take(call->session, (uint32_t)c->width, &m.cells, &bytes);

	if (result)
		return result;
	result = call_open_bulk(call, OP_gleamCopyDownBulk, msg_gleamCopyDownBulk_size(&m), FRAME_BULK_DOWN, &m.cells);
	if (!result) {
		msg_gleamCopyDownBulk_put(&call->w, &m);
		result = call_wait(call);
	}
	if (!result)
		memcpy((void *)(uintptr_t)c->dst, bytes, c->width);
	session_cells_give(call->session, &m.cells);
	call_count_bytes(call, c->width);
	return result;
}

/* @rows of c from row @first, at @at bytes into them if it is a part of one row: arrives when @list says so. */
static CUresult down_late(struct call *call, const struct copy *c, struct late_list *list, uint64_t first, uint64_t rows,
			  uint64_t at, uint64_t width)
{
	struct late_target target = {
		.bytes = (void *)(uintptr_t)(c->dst + first * c->dst_pitch + at),
		.width = width,
		.pitch = c->dst_pitch,
		.rows = rows,
		.context = call->context->index,
	};
	struct bulk_ref cells;
	void *bytes;
	uint64_t src = c->src + first * c->src_pitch + at;
	uint64_t seq;
	CUresult result = session_cells_take(call->session, (uint32_t)(rows * width), &cells, &bytes);

	if (result)
		return result;
	piece_next(call, c, first + rows == c->rows && at + width == c->width);
	result = late_add(call->session, list, &cells, &target);
	if (result)
		goto give_cells;
	if (rows == 1) {
		struct msg_gleamCopyDownLate m = { .stream = c->stream, .src = src, .size = width, .cells = cells };

		result = call_open_bulk(call, OP_gleamCopyDownLate, msg_gleamCopyDownLate_size(&m), FRAME_BULK_DOWN,
					&cells);
		if (result)
			goto cancel;
		msg_gleamCopyDownLate_put(&call->w, &m);
	} else {
		struct msg_gleamCopyDown2D m = { .stream = c->stream, .src = src, .pitch = c->src_pitch,
						 .width = width, .rows = rows, .cells = cells };

		result = call_open_bulk(call, OP_gleamCopyDown2D, msg_gleamCopyDown2D_size(&m), FRAME_BULK_DOWN,
					&cells);
		if (result)
			goto cancel;
		msg_gleamCopyDown2D_put(&call->w, &m);
	}
	seq = call_post(call);
	late_posted(call->session, &cells, seq);
	stream_note(call, c->stream, seq);
	call_count_bytes(call, rows * width);
	return CUDA_SUCCESS;

cancel:
	late_cancel(call->session, &cells);
	return result;
give_cells:
	session_cells_give(call->session, &cells);
	return result;
}

static CUresult down_pieces(struct call *call, const struct copy *c, struct late_list *list)
{
	CUresult result = CUDA_SUCCESS;

	if (c->rows > 1 && c->width <= SESSION_CELL_SIZE / 2) {
		uint64_t rows_max = SESSION_CELL_SIZE / c->width;

		for (uint64_t row = 0; row < c->rows && !result; row += rows_max)
			result = down_late(call, c, list, row, c->rows - row < rows_max ? c->rows - row : rows_max, 0,
					   c->width);
		return result;
	}

	uint32_t piece = piece_down(call->session, c->width);

	for (uint64_t row = 0; row < c->rows && !result; row++)
		for (uint64_t at = 0; at < c->width && !result; at += piece)
			result = down_late(call, c, list, row, 1, at, c->width - at < piece ? c->width - at : piece);
	return result;
}

CUresult copy_bytes_down(struct call *call, const struct copy *c)
{
	struct stream *stream = stream_find(call, c->stream);
	uint64_t before = __atomic_load_n(&stream->context->last_seq, __ATOMIC_ACQUIRE);
	CUresult result;

	if (c->async && c->dst_place == PLACE_PINNED) {
		result = down_pieces(call, c, &stream->late);
		call->unawaited = false;
		return result;
	}
	/* An earlier copy to the same bytes must not land on ours. */
	if (c->dst_place == PLACE_PINNED)
		late_wait_range((void *)(uintptr_t)c->dst, (c->rows - 1) * c->dst_pitch + c->width);
	if (c->rows == 1 && c->width <= REPLY_MAX) {
		result = down_reply(call, c);
	} else if (c->rows == 1 && c->width <= (lanes_are_many(call->session) ? LANES_ONE_CELL_MAX : ONE_CELL_MAX)) {
		result = down_cell(call, c);
	} else {
		/* Many pieces on their way at once, and one wait for all. The stream's list keeps them, which outlives us. */
		result = down_pieces(call, c, &stream->late);
		call->unawaited = false;
		if (!result)
			result = stream_wait(call, stream);
	}
	/* The stream is done up to here; so are its earlier copies to page-locked memory. */
	return result ? result : stream_landed_wait(stream, before);
}

/* ---- the rest ---- */

static CUresult copy_device(struct call *call, const struct copy *c)
{
	CUresult result;

	if (c->rows == 1) {
		struct msg_gleamCopyDev m = { .stream = c->stream, .dst = c->dst, .src = c->src, .size = c->width };

		result = call_open(call, OP_gleamCopyDev, msg_gleamCopyDev_size(&m));
		if (result)
			return result;
		msg_gleamCopyDev_put(&call->w, &m);
	} else {
		struct msg_gleamCopyDev2D m = { .stream = c->stream, .dst = c->dst, .dst_pitch = c->dst_pitch,
						.src = c->src, .src_pitch = c->src_pitch, .width = c->width,
						.rows = c->rows };

		result = call_open(call, OP_gleamCopyDev2D, msg_gleamCopyDev2D_size(&m));
		if (result)
			return result;
		msg_gleamCopyDev2D_put(&call->w, &m);
	}
	stream_note(call, c->stream, call_post(call));
	return CUDA_SUCCESS;
}

static CUresult copy_host(struct call *call, const struct copy *c)
{
	CUresult result = stream_wait(call, stream_find(call, c->stream));

	if (result)
		return result;
	for (uint64_t row = 0; row < c->rows; row++)
		memmove((void *)(uintptr_t)(c->dst + row * c->dst_pitch),
			(const void *)(uintptr_t)(c->src + row * c->src_pitch), c->width);
	return CUDA_SUCCESS;
}

CUresult copy_source_wait(struct call *call, enum place place, uint64_t src, uint64_t span)
{
	if (place != PLACE_PINNED)
		return CUDA_SUCCESS;
	if (hostfunc_outstanding() || (exposed_any() && exposed_holds(src)))
		return context_wait(call);
	late_wait_range((void *)(uintptr_t)src, span);
	return pages_any() ? pages_wait(call, src, span) : CUDA_SUCCESS;
}

/* Managed memory is the device's, once the host's bytes are there. */
static CUresult regions_use(struct call *call, const struct copy *c)
{
	CUresult result = CUDA_SUCCESS;

	if (c->src_place == PLACE_DEVICE)
		result = region_use(call, c->stream, c->src, (c->rows - 1) * c->src_pitch + c->width, false);
	if (!result && c->dst_place == PLACE_DEVICE)
		result = region_use(call, c->stream, c->dst, (c->rows - 1) * c->dst_pitch + c->width, true);
	return result;
}

CUresult copy_run(struct call *call, const struct copy *copy)
{
	struct copy c = *copy;
	bool host_src = c.src_place != PLACE_DEVICE;
	CUresult result;

	if (!c.width || !c.rows)
		return CUDA_SUCCESS;
	/* Rows without a gap are one row. */
	if (c.rows > 1 && c.dst_pitch == c.width && c.src_pitch == c.width) {
		c.width *= c.rows;
		c.rows = 1;
	}
	if (across_any() && across_copies(call, &c))
		return across_copy(call, &c);
	if (region_any()) {
		result = regions_use(call, &c);
		if (result)
			return result;
	}
	if (pages_any() && pages_copy(call, &c, &result))
		return result;
	/* A stream that waits for the host: the source may be filled after this call, and to wait here could be for ever. */
	if (host_src && c.src_place == PLACE_PINNED && streamword_waiting()) {
		if (c.async && c.dst_place == PLACE_DEVICE)
			return streamword_copy_later(call, &c);
		c.src_place = PLACE_PAGEABLE;
		result = stream_wait(call, stream_find(call, c.stream));
		if (result)
			return result;
	}
	if (host_src) {
		result = copy_source_wait(call, c.src_place, c.src, (c.rows - 1) * c.src_pitch + c.width);
		if (result)
			return result;
	}
	if (host_src && c.dst_place != PLACE_DEVICE)
		return copy_host(call, &c);
	/*
	 * Memory that kernels reach: the copy goes to the mirror, in order with what they write there, and comes with their bytes.
	 * Large ones are left on their own way, which is faster, and lands in no order with kernels that write the same bytes.
	 */
	if (c.dst_place == PLACE_PINNED && exposed_any() && c.width <= MIRRORED_MAX / c.rows && exposed_holds(c.dst)) {
		exposed_push(call);
		call->touches = true;
		c.dst = exposed_device(c.dst);
		result = copy_device(call, &c);
		return result || c.async ? result : stream_wait(call, stream_find(call, c.stream));
	}
	if (c.dst_place != PLACE_DEVICE)
		return copy_bytes_down(call, &c);
	if (host_src && c.rows == 1 && c.width <= INLINE_MAX && __atomic_load_n(&host_made, __ATOMIC_RELAXED)) {
		/* A table of pointers, perhaps: kernels will follow those into page-locked memory. */
		result = exposed_params(call, (const void *)(uintptr_t)c.src, (uint32_t)c.width);
		if (result)
			return result;
	}
	result = host_src ? copy_bytes_up(call, &c) : copy_device(call, &c);
	call->unawaited = false;
	/* Bytes from the host have been taken, those of page-locked memory as well. */
	if (!result && host_src)
		stream_uploaded(call, c.stream);
	/*
	 * A synchronous copy has waited for its stream natively. The host can't tell, unless something of its own is
	 * outstanding there: bytes that are to arrive, or functions that are to run. Other streams come after a fence.
	 */
	if (result || c.async || !host_src)
		return result;
	if (is_off(OFF_ASYNC) || stream_shows(call, stream_find(call, c.stream)))
		return stream_wait(call, stream_find(call, c.stream));
	return fence_raise(call, c.stream);
}
