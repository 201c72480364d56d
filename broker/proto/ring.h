/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Session memory: what a client process and its broker share, and what a worker and its node share.
 *
 * Both ends of a session have one memory of the same layout. The brokers between them are mirrors: bytes that
 * a client writes at an offset of its memory arrive at the same offset of the worker's memory, and the other
 * way round. So brokers allocate nothing, and offsets mean the same everywhere. Where client and worker are on one machine
 * and one daemon serves both, they may share one memory (`direct`), and nobody is in between.
 *
 *   client -> worker	commands	ring c2n: frames, in program order; a byte is free again when the worker has
 *					consumed it, so the client's ring is also the journal for a reconnect
 *			up arena	bulk bytes of commands; pieces in command order, freed in that order
 *   worker -> client	ring n2c	notices (and, at the worker's end, replies); see notice numbers in wire.h
 *			reply slots	one a waiting call; the broker copies a reply into its slot and wakes
 *			progress words	one a stream: the sequence number up to which its work is done
 *			error words	one a context: the first failure that no call has told yet
 *			down arena	cells that the client gives away with a command, for bytes that come back
 *
 * Everything here is written by a process that the reader must not trust: copy a word once, check the copy, use
 * the copy. Positions are free-running 64-bit byte counts; position modulo size is the place in the ring.
 */
#ifndef GLEAM_PROTO_RING_H
#define GLEAM_PROTO_RING_H

#ifdef __KERNEL__
#include <linux/types.h>
#include <linux/build_bug.h>
typedef __u32 gleam_u32;
typedef __u64 gleam_u64;
#else
#include <assert.h>
#include <stdint.h>
typedef uint32_t gleam_u32;
typedef uint64_t gleam_u64;
#endif

#define SESSION_MAGIC	0x4d45534d41454c47ull /* "GLEAMSEM" */
#define SESSION_VERSION 3

#define SESSION_SLOTS	       256	  /* calls that may wait at once; the 257th thread waits for a slot */
#define SESSION_SLOT_SIZE      4096	  /* header included; longer answers go to a down cell */
#define SESSION_PROGRESS_WORDS 4096	  /* streams of a session, contexts' own streams included */
#define SESSION_CONTEXTS       64	  /* contexts alive at once in a session */
#define SESSION_API_MAX	       1024	  /* counters, one an API function; 675 are exported */
#define SESSION_TIMES	       128	  /* counts of how long calls of one took; broker/proto/times.h */
#define SESSION_C2N_SIZE       (4u << 20) /* 4 MiB: a full window at 10 Gbit/s and 3 ms */
#define SESSION_N2C_SIZE       (1u << 20)
#define SESSION_UP_SIZE	       (64u << 20)
#define SESSION_DOWN_SIZE      (32u << 20)
#define SESSION_CELL_SIZE      (1u << 20) /* a down cell, and the most bytes that one frame refers to, either way */
#define SESSION_CELLS	       (SESSION_DOWN_SIZE / SESSION_CELL_SIZE)
#define SESSION_GRANULE	       (64u << 10) /* up pieces start at multiples: each has a landed word of its own */
#define SESSION_GRANULES       (SESSION_UP_SIZE / SESSION_GRANULE)

/* One direction of a byte ring. Producer and consumer own a cache line each. */
struct ring_ctl {
	gleam_u64 head;	   /* written by the producer; release after the bytes */
	gleam_u64 pad0[7];
	gleam_u64 tail;	   /* written by the consumer; release after it has done with the bytes */
	gleam_u32 sleeping; /* consumer: 1 before it sleeps (full barrier, then looks at head again) */
	gleam_u32 waiting; /* producer: 1 while it waits for room; futex on room */
	gleam_u32 room;	   /* futex: changes when tail moved and waiting was set */
	gleam_u32 bell;	   /* futex the consumer sleeps on where it has no descriptor */
	gleam_u64 pad1[5];
};

/* A call that waits. FREE -> SENT (client) -> DONE (broker, after the bytes) -> FREE (client). */
enum slot_state {
	SLOT_FREE = 0,
	SLOT_SENT = 1,
	SLOT_DONE = 2,
	SLOT_SLEEPING = 3, /* SENT, and the caller sleeps on the state word: whoever completes it wakes */
};

struct reply_slot {
	gleam_u32 state; /* futex; enum slot_state */
	gleam_u32 size;	 /* bytes of the reply frame in data, its header included */
	gleam_u64 seq;	 /* of the command that it answers: a late answer of an older call is dropped */
	unsigned char data[SESSION_SLOT_SIZE - 16];
};

/* The first failure of a context that has not been told. code 0 is none. Written by the broker, cleared by the client. */
struct error_word {
	gleam_u32 code; /* CUresult; written last */
	gleam_u32 op;	/* whose command failed */
	gleam_u64 seq;	/* its sequence number */
};

/* Counters of one API function, by its index in gen/api.h; written by the client, read by the broker (torn reads are harmless). */
struct api_count {
	gleam_u64 calls;
	gleam_u64 trips;     /* synchronous round trips */
	gleam_u64 bytes;     /* sent and received, bulk included */
	gleam_u64 waited_ns; /* in those trips, and for room */
};

struct session_header {
	/* written by whoever made the memory, then only read */
	gleam_u64 magic;
	gleam_u32 version;
	gleam_u32 size; /* of the whole memory */
	unsigned char protocol_hash[32];
	gleam_u32 client_pid;
	gleam_u32 state; /* futex; enum session_state, written by the broker */
	gleam_u32 reason; /* why it is DEAD; enum session_end in wire.h */
	gleam_u32 direct; /* 1: client and worker share this memory, on one machine; written by the node before the client has it */
	gleam_u32 busy;	  /* then: the worker has work that isn't finished; written by it for the node's load */
	gleam_u32 off;	  /* worker's memory: techniques that the client has switched off; broker/proto/off.h */
	gleam_u64 pad1[7];

	struct ring_ctl c2n;
	struct ring_ctl n2c;

	/* up arena: [up_tail, up_head) holds pieces in flight. head by the client, tail by the broker (client's
	 * memory) or the worker (its own). The same futex protocol as a ring's room. */
	gleam_u64 up_head;
	gleam_u64 pad2[7];
	gleam_u64 up_tail;
	gleam_u32 up_waiting;
	gleam_u32 up_room;
	gleam_u64 pad3[6];

	/* A futex that changes with every progress, error or landing, for those who wait for one of many. */
	gleam_u32 progress_bell;
	gleam_u32 progress_waiters;
	gleam_u64 memory; /* bytes of device memory the client holds, as its library counts them; for people to look at */
	gleam_u64 pad4[6];
};

enum session_state {
	SESSION_NEW = 0,
	SESSION_LIVE = 1,
	SESSION_DEAD = 2, /* every call fails from now on */
};

/* Where the parts are; each starts on a page. */
#define SESSION_AT_SLOTS    4096u
#define SESSION_AT_PROGRESS (SESSION_AT_SLOTS + SESSION_SLOTS * SESSION_SLOT_SIZE)
#define SESSION_AT_LANDED   (SESSION_AT_PROGRESS + SESSION_PROGRESS_WORDS * 4u)
#define SESSION_AT_ERRORS   (SESSION_AT_LANDED + SESSION_GRANULES * 4u)
#define SESSION_AT_COUNTS   (SESSION_AT_ERRORS + 4096u)
#define SESSION_AT_C2N	    (SESSION_AT_COUNTS + SESSION_API_MAX * 32u)
#define SESSION_AT_N2C	    (SESSION_AT_C2N + SESSION_C2N_SIZE)
#define SESSION_AT_UP	    (SESSION_AT_N2C + SESSION_N2C_SIZE)
#define SESSION_AT_DOWN	    (SESSION_AT_UP + SESSION_UP_SIZE)
#define SESSION_AT_TIMES    (SESSION_AT_DOWN + SESSION_DOWN_SIZE)
#define SESSION_SIZE	    (SESSION_AT_TIMES + SESSION_API_MAX * SESSION_TIMES * 4u)

#ifndef __KERNEL__
static_assert(sizeof(struct ring_ctl) == 128, "ring_ctl is fixed in session memory");
static_assert(sizeof(struct reply_slot) == SESSION_SLOT_SIZE, "reply_slot is fixed in session memory");
static_assert(sizeof(struct error_word) == 16, "error_word is fixed in session memory");
static_assert(sizeof(struct api_count) == 32, "api_count is fixed in session memory");
static_assert(sizeof(struct session_header) <= 4096, "session_header has one page");
static_assert(SESSION_AT_C2N % 4096 == 0 && SESSION_AT_UP % 4096 == 0, "parts start on a page");
#endif

#endif
