/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One direction of one proxied connection: bytes that came in and are not yet passed on, and what is done
 * to them on the way. Arithmetic on a clock that the caller gives, no descriptor, one thread.
 */
#ifndef TESTS_FAULT_CHAOS_PIPE_H
#define TESTS_FAULT_CHAOS_PIPE_H

#include "tests/lib/random.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PIPE_NEVER UINT64_MAX
/* Bytes held in a direction; beyond it the proxy stops reading, and TCP pushes back as it always does. */
#define PIPE_SIZE (256u << 10)
/* Portions with a time of their own that are held at once. */
#define PIPE_MARKS 256u

struct pipe_conf {
	uint64_t delay_ns;
	uint64_t rate_bps; /* 0: no limit */
	uint64_t piece;	   /* bytes passed on at once at most; 0: no limit */
	uint64_t gap_ns;   /* between two pieces */
	double flip;	   /* share of bytes of which a bit is turned */
	/* positions in the stream, from and to; drawn for each connection where they differ */
	uint64_t flip_at[2];
	uint64_t cut_at[2];
	uint64_t stall_at[2];
};

struct pipe {
	struct pipe_conf conf;
	struct random random;
	uint64_t in_total, out_total; /* bytes since the connection began */
	uint64_t flip_at, cut_at, stall_at;
	uint64_t free_ns; /* when the next piece may be passed on */
	uint64_t flipped;
	struct {
		uint64_t end; /* position behind the portion's last byte */
		uint64_t due_ns;
	} mark[PIPE_MARKS];
	unsigned int mark_first, mark_count;
	uint8_t data[PIPE_SIZE];
};

void pipe_conf_default(struct pipe_conf *conf);
void pipe_init(struct pipe *pipe, const struct pipe_conf *conf, uint64_t seed);
/* New settings for what comes from now on; positions drawn at the beginning stay. */
void pipe_configure(struct pipe *pipe, const struct pipe_conf *conf);
/* The positions hold no longer. */
void pipe_forgive(struct pipe *pipe);

/* Where bytes can be put and how many in one piece; 0: not now. */
size_t pipe_room(struct pipe *pipe, uint8_t **where_out);
/* So many were put there. */
void pipe_put(struct pipe *pipe, size_t size, uint64_t now_ns);

/* What may be passed on at this time, in one piece; 0: nothing. */
size_t pipe_ready(const struct pipe *pipe, uint64_t now_ns, const uint8_t **data_out);
/* So many of them were. */
void pipe_took(struct pipe *pipe, size_t size, uint64_t now_ns);

/* When pipe_ready() will have something next, or PIPE_NEVER. */
uint64_t pipe_next_ns(const struct pipe *pipe);
bool pipe_empty(const struct pipe *pipe);
/* The position is reached at which the connection is to be cut. */
bool pipe_cut_now(const struct pipe *pipe);

#endif
