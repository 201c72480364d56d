/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of device memory share: grant.c (pieces and mappings) and grant_move.c (what a move says of them). Executor thread. */
#ifndef GLEAM_WORKER_GRANT_PRIVATE_H
#define GLEAM_WORKER_GRANT_PRIVATE_H

#include "broker/proto/piece.h"
#include "broker/worker/grant.h"
#include "broker/worker/move_out.h"
#include "broker/worker/shortage.h"
#include "broker/worker/stream.h"

#define PIECES_MAX (1u << 20)  /* 2 TiB of the smallest */
#define PIECES_ANSWER 480u     /* as gleamGrant says */
#define PIECES_FRAME 512u      /* as gleamMap says */
#define MAP_BUCKETS 4096u
#define GRANT_SPARE_MAX	 (256ull << 20) /* pieces that nobody needs yet, at a time: some milliseconds' work */
#define GRANT_SPARE_PART 8u		/* of what the device has free */

enum piece_state { PIECE_NONE, PIECE_WIPING, PIECE_UNSPENT, PIECE_MAPPED, PIECE_LEAVING };

struct piece {
	CUmemGenericAllocationHandle driver;
	uint8_t state; /* enum piece_state */
	uint8_t class;
	uint8_t device;
	bool said; /* a move: the other worker has it */
};

struct mapping {
	struct mapping *next;
	uint64_t address;
	uint64_t bytes;
	bool leaving;
	struct move_hash *hashes; /* a move: what was said of it; NULL: the other worker doesn't have it */
	uint64_t looked; /* how far, in this turn */
	uint32_t device;
	uint32_t count;
	uint32_t pieces[]; /* ids */
};

struct grant {
	struct piece *pieces; /* by id; 0 is no piece */
	uint32_t size;
	uint32_t free_first; /* below it no id is free; 0: none was given out */
	uint64_t bytes; /* in pieces that exist */
	uint32_t leaving; /* mappings in quarantine */
	struct mapping *buckets[MAP_BUCKETS];
	struct grant_ask *asks; /* that wait for the quarantine to be empty, or for other programs' memory */
	uint64_t looked_ns;	/* when they were tried last */
	struct stream *wipers[DEVICES_MAX];
	uint32_t open[DEVICES_MAX]; /* by owner: bit per other device that reaches its pieces */
	/* a move: what the other worker has and we haven't any more */
	uint64_t *gone;
	uint32_t gone_count;
	uint32_t gone_room;
	uint64_t *dropped; /* names of pieces, with their device */
	uint32_t dropped_count;
	uint32_t dropped_room;
	uint32_t open_said[DEVICES_MAX]; /* of open */
};

/* A request for pieces on its way. */
struct grant_ask {
	struct grant_ask *next;
	struct join join; /* first use: the wipe */
	struct frame_hdr hdr;
	uint32_t device;
	uint64_t bytes;
	uint64_t spare; /* beyond, as far as there is plenty */
	struct shortage shortage;
	CUdeviceptr scratch; /* where they are wiped; 0 if they aren't */
	uint64_t scratch_bytes;
	uint32_t count;
	uint32_t ids[PIECES_ANSWER];
};

/* Made at first need; NULL: out of memory. */
struct grant *grants(struct worker *w);

/* 0: there are too many, or no memory. */
bool piece_ids_grow(struct grant *g);
uint32_t piece_id_new(struct grant *g);
void piece_id_free(struct grant *g, uint32_t id);
CUmemAllocationProp piece_prop(struct worker *w, uint32_t device);
/* Another state; what the client doesn't use is counted. */
void piece_is(struct worker *w, uint32_t id, enum piece_state state);
/* As the client calls it. */
uint64_t piece_name(const struct grant *g, uint32_t id);

CUresult range_map(struct worker *w, CUdeviceptr address, uint32_t device, const uint32_t *ids, uint32_t count);
/* What can't be unmapped is complained of. */
void range_unmap(struct worker *w, CUdeviceptr address, uint64_t bytes);
/* Where the mapping of @address is linked, or would be. */
struct mapping **mapping_at(struct grant *g, uint64_t address);

#endif
