/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One direction of the emulated LAN: a bounded queue before a sender of a given rate, a wire of a given
 * delay, and the misfortunes on it. Pure arithmetic on a clock that the caller gives; no descriptor, no
 * system call, one thread.
 */
#ifndef TESTS_LAB_LANEM_LANE_H
#define TESTS_LAB_LANEM_LANE_H

#include "tests/lib/random.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANE_NEVER UINT64_MAX
/* The queue if none is asked for: what the rate sends in this time, like a switch with deep buffers. */
#define LANE_QUEUE_DEFAULT_NS 50000000u
/* Memory for packets under way, whatever delay times rate would need: beyond it packets are dropped. */
#define LANE_HELD_BYTES_MAX (256u << 20)
/* Ethernet's preamble, header, checksum and gap, which a packet pays on the wire but does not contain. */
#define LANE_OVERHEAD_DEFAULT 38u
/* How much later a reordered packet comes, unless said otherwise: time for some others to overtake it. */
#define LANE_HOLD_DEFAULT_NS 1000000u

struct lane_conf {
	uint64_t rate_bps; /* 0: no limit */
	uint64_t delay_ns;
	uint64_t jitter_ns;   /* up to so much more, evenly spread; keeps the order */
	uint64_t queue_bytes; /* 0: LANE_QUEUE_DEFAULT_NS of the rate */
	uint64_t hold_ns;
	double loss;
	double reorder;
	uint32_t overhead; /* bytes a frame */
};

/* What became of the packets of this lane; a packet is in exactly one of them when it has left. */
struct lane_counts {
	uint64_t packets; /* came in, with all that is told apart below */
	uint64_t bytes;
	uint64_t delivered;
	uint64_t lost;	    /* by the dice */
	uint64_t full;	    /* the queue had no room */
	uint64_t cut;	    /* the wire was cut */
	uint64_t reordered; /* delivered, but later than others behind them */
};

enum lane_verdict { LANE_TAKEN, LANE_LOST, LANE_FULL, LANE_CUT };

struct lane_packet {
	uint64_t due_ns;
	uint64_t number; /* keeps packets of one due time in order */
	uint8_t *data;
	uint32_t size;
};

struct lane {
	struct lane_conf conf;
	struct lane_counts counts;
	struct random random;
	uint64_t busy_until_ns; /* when the sender has sent what it has taken */
	uint64_t last_due_ns;
	uint64_t cut_until_ns;
	uint64_t next_number;
	uint64_t held_bytes;
	/* a binary heap, earliest first */
	struct lane_packet *heap;
	size_t heap_count;
	size_t heap_room;
};

void lane_conf_default(struct lane_conf *conf);
void lane_init(struct lane *lane, const struct lane_conf *conf, uint64_t seed);
/* Frees the packets still under way. */
void lane_fini(struct lane *lane);

/* New settings from @now_ns on; the backlog is kept in bytes, packets on the wire keep their time. */
void lane_configure(struct lane *lane, const struct lane_conf *conf, uint64_t now_ns);

/* Cut until then (LANE_NEVER: until further notice; 0: whole again). Also what is on the wire is lost. */
void lane_cut(struct lane *lane, uint64_t until_ns);

/*
 * A packet that fills @wire_bytes on the wire, in @frames frames (their overhead comes on top). Takes
 * @data (from malloc) if LANE_TAKEN, otherwise it stays the caller's. Every packet draws the same
 * number of dice whatever the settings, so the n-th packet's luck depends on seed and n alone.
 */
enum lane_verdict lane_push(struct lane *lane, uint64_t now_ns, uint8_t *data, uint32_t size,
			    uint64_t wire_bytes, uint32_t frames);

/* The next packet that has arrived by @now_ns; the caller frees its data. */
bool lane_pop(struct lane *lane, uint64_t now_ns, struct lane_packet *packet_out);

/* When the next packet arrives, or LANE_NEVER. */
uint64_t lane_next_ns(const struct lane *lane);

#endif
