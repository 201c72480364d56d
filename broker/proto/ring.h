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
 *   broker -> broker	baton		client's memory: what a daemon leaves for the one that comes after it
 *			overflow	client's memory: notices that wait for room in n2c, also for that one
 *   client <-> worker	pages		a second memory, of one machine: what the client has page-locked, for the GPU to read and write
 *   node <-> worker	side rings	a memory that client and worker share: the daemon's own commands (a move's) and what is said to
 *					them, in the room of the overflow, which nobody needs then
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
#define SESSION_VERSION 6

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
#define SESSION_OVERFLOW_SIZE  (16u << 20) /* changed bytes of mapped memory may be many; with more the session ends */
#define SESSION_BATON_SIZE      (64u << 10)
#define SESSION_PAGES_SIZE      (1ull << 40) /* of the file that page-locked memory lies in which both have mapped: by its address, sparse */
#define SESSION_TOKEN_SIZE     16	  /* of a session at its node */
#define SESSION_WINDOW	       2048	  /* bulk frames that may be on their way without having been acknowledged */

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
	gleam_u32 code; /* CUresult; written last, with op in one store */
	gleam_u32 op;	/* whose command failed; code and op are of one aligned 8-byte word */
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
	/* 1: client and worker share this memory, on one machine; written by the node before the client has it, and 0 when the client moves on */
	gleam_u32 direct;
	gleam_u32 busy;	  /* then: the worker has work that isn't finished; written by it for the node's load */
	gleam_u32 off;	  /* worker's memory: techniques that the client has switched off; broker/proto/off.h */
	gleam_u32 grace_ms; /* how long the client waits for another daemon when this one is gone; written by it at first */
	gleam_u32 pages; /* direct: 1 while copies may name page-locked memory that both have mapped; written by the daemon */
	/*
	 * Worker's memory, between worker and node: device memory is short (docs/ring.md). The worker says how much it lacks of which GPU and
	 * counts short_asked up; the node has other programs' workers give back what their clients don't use, and answers by short_told and
	 * how many it has asked. It asks by recall_count, which is written last. idle: what this worker's client has and doesn't use.
	 */
	gleam_u32 short_asked;
	gleam_u32 short_gpu;
	gleam_u64 short_bytes;
	gleam_u32 short_told; /* written last */
	gleam_u32 short_others;
	gleam_u32 recall_count;
	gleam_u32 recall_gpu;
	gleam_u64 recall_bytes;
	gleam_u64 idle_bytes;

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
	/*
	 * direct: calls that are about to send such a copy. The client counts itself in, looks at pages, and out when it is sent; so a daemon
	 * that has taken pages away and finds none knows that none comes any more.
	 */
	gleam_u32 pages_open;
	gleam_u32 pad4;
	gleam_u64 pad5[5];

	/* direct: the side rings; as c2n and n2c, but the worker sleeps on the bell of c2n alone */
	struct ring_ctl side_c2n;
	struct ring_ctl side_n2c;
};

enum session_state {
	SESSION_NEW = 0,
	SESSION_LIVE = 1,
	SESSION_DEAD = 2, /* every call fails from now on */
};

/*
 * What a daemon leaves in a client's memory, so that the session outlives it (broker/local/baton.h): written by daemons alone, read by
 * the next one, which believes nothing of it (the client could have written it), and by the library for pieces that it has left out.
 */
enum baton_state {
	BATON_NONE = 0,
	BATON_LIVE = 1,
	BATON_MOVING = 2, /* its ring at the server is in the broker's hand, for a move: that is asked where it is */
	BATON_DIRECT = 3, /* its worker is of this machine, and ends with the daemon */
};

/* What is being done with a frame of the node. If it has been done when the daemon ends, the frame must not come again. */
enum baton_doing {
	BATON_IDLE = 0,
	BATON_NOTICE = 1,   /* at: head of n2c behind it */
	BATON_OVERFLOW = 2, /* at: head of the overflow behind it */
	BATON_REPLY = 3,	   /* at: its sequence number, index: its slot */
	BATON_ERROR = 4,	   /* at: its sequence number, index: context, op */
};

/* A piece of the up arena that has been sent and may not have landed. */
struct baton_piece {
	gleam_u64 position; /* of its command in ring c2n */
	gleam_u64 seq;
	gleam_u64 cookie;
	gleam_u64 file_offset;
	gleam_u32 offset;
	gleam_u32 file; /* number + 1 of the file whose bytes the client has not filled in; 0: they lie in the arena */
	gleam_u32 size; /* written last; 0: none */
	gleam_u32 pad;
};

/* Bulk frames that have come: all up to a number, and later ones by number modulo SESSION_WINDOW. */
struct baton_bulk {
	gleam_u64 number;
	unsigned char bits[SESSION_WINDOW / 8];
};

struct session_baton {
	gleam_u32 state; /* enum baton_state; written last */
	gleam_u32 moved; /* 1: its worker has been asked about a move, and is to forget that */
	unsigned char token[SESSION_TOKEN_SIZE];
	gleam_u64 delta; /* positions of the worker's ring are the client's plus this */
	gleam_u64 seq;	 /* of the newest command that was sent */
	char server[64];
	char program[256];
	char settings[4096];

	gleam_u64 frames; /* of the command lane: that many have come */
	struct baton_bulk bulk[2];
	gleam_u32 which; /* of them is valid */

	/* What is being done, and what has come when it is done. */
	gleam_u32 doing; /* enum baton_doing; written last */
	gleam_u32 index;
	gleam_u32 op;
	gleam_u64 at;
	gleam_u64 number;   /* of a bulk frame; 0: one of the command lane */
	gleam_u64 counted;  /* frames, then */
	gleam_u64 overflow_tail; /* it comes from the overflow, whose tail is here then; 0: it comes from the node */

	gleam_u64 pad[4];
	struct ring_ctl overflow;
	struct baton_piece pieces[SESSION_GRANULES];
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
#define SESSION_AT_BATON	    (SESSION_AT_TIMES + SESSION_API_MAX * SESSION_TIMES * 4u)
#define SESSION_AT_OVERFLOW (SESSION_AT_BATON + SESSION_BATON_SIZE)
#define SESSION_SIZE	    (SESSION_AT_OVERFLOW + SESSION_OVERFLOW_SIZE)
/* direct: the side rings, as large as c2n and n2c */
#define SESSION_AT_SIDE_C2N SESSION_AT_OVERFLOW
#define SESSION_AT_SIDE_N2C (SESSION_AT_SIDE_C2N + SESSION_C2N_SIZE)

/*
 * Worker's memory: there baton and overflow have no use. What a session that moves says to another node's worker
 * lies in the place of the overflow, as a ring of bytes, until its own node has taken it (NOTICE_MOVE_ASIDE in wire.h).
 * Never in a memory that is the client's, too (`direct`).
 */
struct session_aside {
	gleam_u64 tail; /* taken up to there; by the node, after the bytes */
	gleam_u32 room; /* futex: changes with it */
	gleam_u32 pad;
};
#define SESSION_AT_ASIDE   SESSION_AT_BATON
#define SESSION_AT_SAID	   SESSION_AT_OVERFLOW
#define SESSION_ASIDE_SIZE SESSION_OVERFLOW_SIZE

#ifndef __KERNEL__
static_assert(sizeof(struct ring_ctl) == 128, "ring_ctl is fixed in session memory");
static_assert(sizeof(struct reply_slot) == SESSION_SLOT_SIZE, "reply_slot is fixed in session memory");
static_assert(sizeof(struct error_word) == 16, "error_word is fixed in session memory");
static_assert(sizeof(struct api_count) == 32, "api_count is fixed in session memory");
static_assert(sizeof(struct session_header) <= 4096, "session_header has one page");
static_assert(sizeof(struct baton_piece) == 48, "baton_piece is fixed in session memory");
static_assert(sizeof(struct session_baton) <= SESSION_BATON_SIZE, "session_baton has room");
static_assert(SESSION_AT_BATON % 4096 == 0 && SESSION_AT_OVERFLOW % 4096 == 0, "parts start on a page");
static_assert(SESSION_C2N_SIZE + SESSION_N2C_SIZE <= SESSION_OVERFLOW_SIZE, "the side rings have room");
static_assert(SESSION_AT_C2N % 4096 == 0 && SESSION_AT_UP % 4096 == 0, "parts start on a page");
#endif

#endif
