/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a traced session's commands do behind the library: when the broker sent them on, when the worker played them, when the
 * GPU's words told of their end. Broker and worker gather them in a bounded ring each and send them to the library as
 * NOTICE_TRACE, which writes them into its trace. Each ring belongs to one thread at a time.
 */
#ifndef GLEAM_PROTO_SPAN_H
#define GLEAM_PROTO_SPAN_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/lib/codec.h"

#define SPANS_MAX	256u	  /* of one notice; what comes while it can't be sent is counted as lost */
#define SPAN_WIRE_SIZE	32u
#define SPANS_SIZE_MAX	(8u + SPANS_MAX * SPAN_WIRE_SIZE)
#define SPANS_LATE_NS	20000000u /* then they go, however few */
#define SPAN_NO_WORD	0xffffffffu

enum span_who {
	SPAN_BROKER = 1,  /* a command was sent on: start and end are one moment */
	SPAN_ANSWER = 2,  /* an answer came back to the broker */
	SPAN_WORKER = 3,  /* a command was played: from .. to, in the worker's clock */
	SPAN_GPU = 4,	  /* the word of a stream said that all up to seq (32 bits of it) is done; the worker's clock */
};

struct span {
	uint64_t seq;
	uint64_t start_ns; /* CLOCK_MONOTONIC of the machine */
	uint64_t end_ns;
	uint32_t word; /* progress word of its stream; SPAN_NO_WORD: none */
	uint16_t op;
	uint16_t who; /* enum span_who */
};

struct spans {
	uint32_t count;
	uint32_t lost;
	struct span all[SPANS_MAX];
};

static inline void span_add(struct spans *spans, const struct span *span)
{
	if (spans->count < SPANS_MAX)
		spans->all[spans->count++] = *span;
	else
		spans->lost++;
}

/* Is it time to send them? */
static inline bool spans_due(const struct spans *spans, uint64_t now_ns)
{
	return spans->count && (spans->count >= SPANS_MAX / 2 || now_ns - spans->all[0].end_ns > SPANS_LATE_NS);
}

/* Payload of NOTICE_TRACE: u32 lost, u32 count, then the spans. Empties the ring. */
static inline void spans_put(struct writer *w, struct spans *spans)
{
	put_u32(w, spans->lost);
	put_u32(w, spans->count);
	for (uint32_t i = 0; i < spans->count; i++) {
		const struct span *span = &spans->all[i];

		put_u64(w, span->seq);
		put_u64(w, span->start_ns);
		put_u64(w, span->end_ns);
		put_u32(w, span->word);
		put_u16(w, span->op);
		put_u16(w, span->who);
	}
	spans->count = 0;
	spans->lost = 0;
}

static inline struct span span_get(struct reader *r)
{
	struct span span;

	span.seq = get_u64(r);
	span.start_ns = get_u64(r);
	span.end_ns = get_u64(r);
	span.word = get_u32(r);
	span.op = get_u16(r);
	span.who = get_u16(r);
	return span;
}

#endif
