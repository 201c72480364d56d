/* SPDX-License-Identifier: Apache-2.0 */
/* The broker's own hand in a session's command ring. Control thread; see wire.h. */
#include "broker/local/wire.h"

#include <string.h>

#include "broker/lib/ring.h"
#include "broker/lib/codec.h"
#include "gen/ops.h"

#define FILL_LEAST 32u	   /* a gleamMoveFill without bytes */
#define FILL_MOST  61440u  /* of its bytes, as the description says */

static bool wire_has_room(const struct wire *wire, uint32_t size)
{
	return SESSION_C2N_SIZE - (uint32_t)(wire->at - wire->tail) >= size && link_backlog(wire->link) < CONN_BACKLOG_HIGH;
}

static void wire_send(struct wire *wire, const uint8_t *bytes, uint32_t size)
{
	link_send(wire->link, LINK_SPAN, wire->session, &wire->at, sizeof(wire->at), bytes, size);
	wire->at += size;
}

/* A frame that only takes room: none of it travels behind its first @head bytes. */
static void wire_blank(struct wire *wire, const uint8_t *bytes, uint32_t head, uint32_t size)
{
	uint8_t fields[16];
	struct writer w = writer_on(fields, sizeof(fields));

	put_u64(&w, wire->at);
	put_u32(&w, size);
	put_u32(&w, 0);
	link_send(wire->link, LINK_SPAN_BLANK, wire->session, fields, w.at, bytes, head);
	wire->at += size;
}

/* The rest of the ring. */
static void wire_pad(struct wire *wire, uint32_t size)
{
	uint8_t bytes[FRAME_ALIGN] __attribute__((aligned(8)));
	struct frame_hdr hdr = { .size = size, .kind = FRAME_PAD };

	memcpy(bytes, &hdr, FRAME_ALIGN);
	wire_blank(wire, bytes, FRAME_ALIGN, size);
}

bool wire_put(struct wire *wire, const uint8_t *frame, uint32_t size)
{
	uint32_t need = RING_ALIGN(size);
	uint32_t end = SESSION_C2N_SIZE - (uint32_t)(wire->at % SESSION_C2N_SIZE);
	uint32_t pad = end < need ? end : 0;

	if (!wire_has_room(wire, pad + need))
		return false;
	if (pad)
		wire_pad(wire, pad);
	wire_send(wire, frame, need);
	return true;
}

bool wire_can_fill(uint64_t position)
{
	uint32_t place = (uint32_t)(position % SESSION_C2N_SIZE);

	return place == 0 || place >= FILL_LEAST;
}

bool wire_fill(struct wire *wire, uint64_t position)
{
	uint8_t frame[FILL_LEAST] __attribute__((aligned(8)));

	for (;;) {
		uint32_t place = (uint32_t)(wire->at % SESSION_C2N_SIZE);
		uint32_t left = (uint32_t)((position - wire->at) % SESSION_C2N_SIZE);
		uint32_t end = SESSION_C2N_SIZE - place;
		uint32_t size = left < FILL_MOST ? left : FILL_MOST;
		struct frame_hdr hdr = { .op = OP_gleamMoveFill, .kind = FRAME_COMMAND, .ctx = CTX_NONE };
		struct writer w;

		if (left == 0)
			return true;
		if (size >= end) {
			/* Padding fills the end of a ring, and of that alone. */
			if (!wire_has_room(wire, end))
				return false;
			wire_pad(wire, end);
			continue;
		}
		/* What is left over must be a command, too. */
		if (left - size && left - size < FILL_LEAST)
			size -= FILL_LEAST;
		if (size < FILL_LEAST || !wire_has_room(wire, size))
			return false;

		/* A size, four bytes up to the alignment, and the bytes, whatever they are. */
		hdr.size = size;
		memcpy(frame, &hdr, sizeof(hdr));
		w = writer_on(frame + sizeof(hdr), sizeof(frame) - sizeof(hdr));
		put_u32(&w, size - FILL_LEAST);
		memset(frame + sizeof(hdr) + w.at, 0, sizeof(frame) - sizeof(hdr) - w.at);
		wire_blank(wire, frame, FILL_LEAST, size);
	}
}
