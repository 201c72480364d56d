/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What crosses borders: frames in session memory, link messages between daemons, messages on the local socket.
 * All integers little-endian; structs are read and written field by field (broker/lib/codec.h), except in rings,
 * where both sides are the same machine and a frame header is copied out whole before it is looked at.
 */
#ifndef GLEAM_PROTO_WIRE_H
#define GLEAM_PROTO_WIRE_H

#include <assert.h>
#include <stdint.h>

/* ---- frames: commands, replies and notices, in rings and reply slots ---- */

#define FRAME_ALIGN    8u
#define FRAME_SIZE_MAX (64u << 10) /* a launch has 32 KiB of parameters at most; inline bytes 32 KiB */
#define INLINE_MAX     (32u << 10) /* bytes of a copy that travel in its frame; more go through an arena */

enum frame_kind {
	FRAME_PAD = 0,	   /* fills the end of a ring; size counts, nothing else is looked at */
	FRAME_COMMAND = 1, /* op: enum op (gen/ops.h) */
	FRAME_REPLY = 2,   /* op: of the command it answers; payload: le32 CUresult, then the out fields */
	FRAME_NOTICE = 3,  /* op: enum notice */
};

enum frame_flag {
	FRAME_WANTS_REPLY = 1, /* slot names the reply slot */
	FRAME_BULK_UP = 2,     /* a bulk_ref to the up arena follows the header; its bytes travel on a bulk lane */
	FRAME_BULK_DOWN = 4,   /* a bulk_ref to down cells follows the header: command: room given; reply, notice: bytes filled */
	FRAME_PTDS = 8,	       /* called through a per-thread-stream entry point (for traces; streams are resolved) */
	FRAME_BULK_FILE = 16,  /* with FRAME_BULK_UP: a bulk_file follows the bulk_ref: its bytes are those of a file */
	FRAME_FLAGS = 31,      /* any other bit is refused */
};

/*
 * The payload of a command whose op has a stream scope begins with that stream's handle (8 bytes), so that the
 * executor can queue a frame without decoding it. Frames start at multiples of FRAME_ALIGN and never wrap.
 */
struct frame_hdr {
	uint32_t size; /* whole frame, this header included, before padding to FRAME_ALIGN; FRAME_SIZE_MAX at most */
	uint16_t op;
	uint8_t kind;
	uint8_t flags;
	uint16_t slot;	/* FRAME_WANTS_REPLY and FRAME_REPLY */
	uint16_t ctx;	/* index of the context that is current for the call; CTX_NONE without */
	uint32_t thread; /* client thread number, counted from 1: for traces and per-thread streams */
	uint64_t seq;	/* commands: 1, 2, 3 ... per session; replies and notices: the command they speak of */
};
static_assert(sizeof(struct frame_hdr) == 24, "frame_hdr is fixed");
#define CTX_NONE 0xffffu

struct bulk_ref {
	uint32_t offset; /* in its arena */
	uint32_t size;	 /* SESSION_CELL_SIZE at most, for the up arena; a run of neighbouring cells downwards */
	uint64_t cookie; /* down: the client's own; comes back unchanged. up: position in the arena (free-running) of the piece's start */
};
static_assert(sizeof(struct bulk_ref) == 16, "bulk_ref is fixed");

/*
 * Where the bytes of an up piece come from: for the client's broker, the others pass over it. The bytes don't go over a border
 * between two chunks (CACHE_CHUNK_SIZE) of the file.
 */
struct bulk_file {
	uint32_t file;	 /* as the client named it in LOCAL_FILE, or BULK_FILE_NONE: of no file that this daemon knows, and not absent */
	uint32_t absent; /* 1: the piece was not filled in, since the broker said that the chunk needn't travel; else 0 */
	uint64_t offset; /* in the file */
};
static_assert(sizeof(struct bulk_file) == 16, "bulk_file is fixed");
#define BULK_FILE_NONE UINT32_MAX

/*
 * Notices of a worker. BROKER ones are consumed by the client's broker, which turns them into words of the session
 * memory; the others go on into the client's n2c ring.
 */
enum notice {
	NOTICE_PROGRESS = 1, /* BROKER: u32 word, u32 value. */
	NOTICE_ERROR = 2,    /* BROKER: u32 context, u32 code, u32 op, (seq in the header); kept if the error word is empty */
	NOTICE_CONSUMED = 3, /* BROKER: u64 up_tail */
	NOTICE_LANDED = 16,  /* FRAME_BULK_DOWN: bytes of an asynchronous copy to the host lie in the cells; u32 result, u32 which landing it is */
	NOTICE_FREED = 17,   /* u64 address: work issued before its free has completed and it is unmapped */
	NOTICE_HOST_CALL = 18, /* u64 id: the stream has come to this host function; it waits for GLEAM_HOST_DONE */
	NOTICE_PRINT = 19,   /* bytes: device printf text */
	NOTICE_HOST_BYTES = 21, /* u64 address, bytes (broker/lib/patch.h): the device has written to a mirrored host range */
	NOTICE_TRACE = 22,   /* what became of commands: broker/proto/span.h; also made by the client's broker */
	NOTICE_RECALL = 20,  /* u32 device, u64 bytes: give back unspent grant, if there is any */
	NOTICE_MOVE = 23,    /* BROKER: a command frame for the worker that is to become this one; from that one: why it can't */
	/*
	 * BROKER: aside_hdr, then a command frame with FRAME_BULK_UP for the worker that is to become this one. Its bytes don't travel with it: the
	 * worker's node takes them out of its memory and sends them to the other one's node, and fills in `how` and the bulk_ref.
	 */
	NOTICE_MOVE_ASIDE = 24,
};

/* What a worker says to another node's worker, its bytes apart; whole bytes of one command, MOVE_ASIDE_MAX at most. */
struct aside_hdr {
	uint32_t way;	   /* that it is said by, as gleamMoveOut named it: another move's are dropped */
	uint32_t how;	   /* enum aside_how; by the node */
	uint64_t position; /* free-running, modulo SESSION_ASIDE_SIZE in the worker's memory; the bytes don't wrap */
	uint64_t origin;   /* position in the up arena that the bytes may once have come by, or ORIGIN_NONE: worth a look, and no more */
};
static_assert(sizeof(struct aside_hdr) == 24, "aside_hdr is fixed");
#define ORIGIN_NONE    UINT64_MAX
#define MOVE_ASIDE_MAX (256u << 10)

enum aside_how {
	ASIDE_LOST = 0, /* there is no such way, or not any more */
	ASIDE_GOES = 1, /* they go to the other node, unless that has them in its cache */
};

/*
 * Up arena of a worker that is becoming another one: positions of what comes from its node begin here, so that none is ever the
 * client's, which begin at 0.
 */
#define MOVE_UP_START (1ull << 46)

/* ---- the weight cache: docs/cache.md ---- */

#define CACHE_CHUNK_SIZE (4u << 20) /* the most bytes of a chunk; of files: what lies between two multiples of it */
#define CACHE_FILES_MAX	 64u	    /* files that a process may name */
#define CACHE_HASH_SIZE	 32u
#define CACHE_SALT_SIZE	 32u
#define CACHE_HEAD_SIZE	 16u	    /* of a hash: enough to find a chunk that is held, never to name one */
#define CACHE_IDS_MAX	 2048u	    /* cache_ids of a message */
#define CACHE_FILL_MAX	 (32u << 10) /* bytes of LINK_CACHE_FILL */

/* A chunk in lists: first bytes of its hash, size, fingerprint (broker/lib/chunk.h). */
struct cache_id {
	uint8_t head[CACHE_HEAD_SIZE];
	uint32_t size;
	uint32_t print;
};
static_assert(sizeof(struct cache_id) == 24, "cache_id is fixed on the wire");

/* ---- links: between a broker and a node, inside TLS ---- */

#define LINK_VERSION   9
#define LINK_MSG_MAX   (SESSION_CELL_SIZE_MAX + 4096u)
#define SESSION_CELL_SIZE_MAX (1u << 20)
#define LINK_PORT      4711
#define LINK_LANES_MAX 16 /* bulk lanes of a link */

/*
 * link_hdr, then size - 16 bytes. Lane 0 carries commands and everything small; lanes 1.. carry BULK messages only.
 */
struct link_hdr {
	uint32_t size; /* whole message, header included; LINK_MSG_MAX at most */
	uint16_t type; /* enum link_msg */
	uint16_t flags; /* enum link_flag */
	uint32_t session; /* chosen by the broker; 0 for the link itself */
	uint32_t reserved; /* 0 */
};
static_assert(sizeof(struct link_hdr) == 16, "link_hdr is fixed on the wire");

enum link_flag {
	/*
	 * HELLO: LZ4 is taken, and wanted; a link whose both ends say so has it. BULK_UP, BULK_DOWN: another u32 behind the fields says
	 * how many bytes of LZ4 (one block) stand for the size bytes that the fields speak of; fewer.
	 */
	LINK_LZ4 = 1,
};

enum link_msg {
	/* both ways, first on every lane: u32 version, u32 lane number, u32 lanes, u8 hash[32] of the protocol
	 * (gen/ops.h), u8 link id[16] (chosen by the broker, the same on all lanes), str host name.
	 * A different hash: HELLO_REFUSED with the reason, then close. */
	LINK_HELLO = 1,
	LINK_HELLO_REFUSED = 2, /* str reason */
	/* broker -> node */
	/* open a session: u32 client pid, u32 uid, u32 ms that the broker tries to come back after a lost link, u8 token[16] (random,
	 * names the session on another link), str program, str environment (settings, a line each) */
	LINK_ATTACH = 3,
	/* the client is gone: end the worker, free everything at once. Session 0: u8 token[16], of one that waits for its link */
	LINK_DETACH = 4,
	LINK_SPAN = 5,	   /* u64 position in ring c2n, then the bytes from there on (whole frames, padding included) */
	LINK_BULK_UP = 6,  /* bulk lanes: u64 seq, u64 cookie, u32 offset, u32 size, bytes: to the up arena, then the landed word */
	/* u64 frames, u64 bulk frames up to which all have come (see LINK_FRAME): the node forgets them. From the node, empty: it
	 * waits to hear that */
	LINK_SEEN = 7,
	LINK_PING = 8,	   /* u64 stamp, then bytes that nobody looks at: how long they take tells the bandwidth */
	LINK_REPORT_WANTED = 9, /* ask for LINK_REPORT each u32 ms */
	/* after a lost link or a restart, on a new one: u8 token[16], u32 client pid, u32 uid (those of ATTACH: a token is no good in
	 * another's hands), u64 frames, u64 bulk frames up to which all have come, then
	 * RESUME_WINDOW bits, little-endian, by number modulo RESUME_WINDOW: bulk frames beyond that have come */
	LINK_RESUME = 10,
	/*
	 * SPAN of bytes that nobody looks at, but for the first: u64 position, u32 size, u32 0, then the first of these bytes, RING_ALIGNed;
	 * the others are zeros. FRAME_SIZE_MAX at most
	 */
	LINK_SPAN_BLANK = 11,
	/* weight cache, broker -> node; what they mean is in docs/cache.md */
	LINK_CACHE_WANTED = 32, /* tell me what you hold, from now on */
	LINK_CACHE_DROPPED = 33, /* u32 count, u32 0, cache_id each: forgotten, as LINK_CACHE_DROP asked */
	LINK_BULK_KEEP = 34, /* bulk lanes: BULK_UP whose bytes are to be kept: its fields, then u64 tag, u32 at, u32 total, bytes.
			      * tag 0: a chunk by itself, at 0, total is size. Else: [at, at + size) of the chunk with that tag */
	LINK_BULK_REF = 35, /* a piece without bytes: u64 seq, u64 cookie, u32 offset, u32 size, u32 at, u32 total, hash[32]: the
			     * bytes from @at on of that chunk of @total bytes */
	LINK_CACHE_DEPOT = 36, /* opens a session that has no worker, only memory for KEEP pieces; ended by DETACH */
	LINK_CACHE_DO = 37, /* u32 id, u32 enum cache_do, u8 head[16]: answered by CACHE_DONE */
	LINK_CACHE_FILL = 38, /* u64 tag, u32 at, u32 total, bytes: of a chunk that comes in pieces, what no piece brings */
	/* weight cache, node -> broker */
	LINK_CACHE_OPEN = 48, /* first: u32 flags 0, u32 0, salt[32]: hashes are made with it */
	LINK_CACHE_HELD = 49, /* u32 count, u32 0, cache_id each: leased to this link until it says DROPPED */
	LINK_CACHE_DROP = 50, /* the same: the lease ends when the broker agrees */
	LINK_BULK_BAD = 51,   /* u64 cookie, u32 offset, u32 size: the chunk turned out to be damaged, send the bytes */
	LINK_CACHE_STATS = 52, /* u64 each: see struct cache_stats in stats.h */
	LINK_CACHE_DONE = 53, /* u32 id, u32 result (0 or errno), u64 value */
	/* node -> broker */
	LINK_ATTACHED = 16,  /* u32 result: 0, or enum session_end; str reason */
	LINK_ENDED = 17,     /* the worker is gone: u32 enum session_end, str reason */
	LINK_CONSUMED = 18,  /* u64 tail of ring c2n at the worker */
	LINK_FRAME = 19,     /* a reply or notice frame as it stands; those of a session count 1, 2, 3 ... */
	/*
	 * One with FRAME_BULK_DOWN and few bytes (broker/core/small.h), which then don't go by a bulk lane: the frame, padded to FRAME_ALIGN, then the
	 * bytes of its bulk_ref for the down arena. Counts among the others of LINK_FRAME
	 */
	LINK_FRAME_BYTES = 24,
	/* bulk lanes: u64 number (bulk frames of a session count 1, 2, 3 ... in the order in which the worker wrote them), u32 offset,
	 * u32 size, bytes for the down arena, then, behind the last of them, the frame they belong to */
	LINK_BULK_DOWN = 20,
	LINK_PONG = 21,	     /* u64 stamp */
	LINK_REPORT = 22,    /* load of the node: see stats.h */
	/* u32 result: 0, or enum session_end; str reason; u64 position that ring c2n is known up to, u64 its tail at the worker, then
	 * the landed words, u32[SESSION_GRANULES]. The broker sends again what comes behind the position, and the pieces that haven't landed */
	LINK_RESUMED = 23,
	/*
	 * A session moves, and its contents go from node to node: what is said of that (docs/migration.md, From node to node).
	 * broker -> node that it goes to, of the new session: whoever has the token may fill it; no more
	 */
	LINK_FILL_OPEN = 64,
	LINK_FILL_CLOSE = 65,
	/* broker -> node that it comes from, of the old session: u32 way, u8 token[16], str address: there is whoever wants to be filled; no more */
	LINK_POUR = 66,
	LINK_POUR_END = 67,
	/* node -> node, session: of this link alone. u8 token[16]: pieces of it are for that session's memory */
	LINK_FILL_JOIN = 68,
	/* node that it goes to -> broker: u8 token[16]; then u32 result, str reason: nothing comes from there any more */
	LINK_FILL_OPENED = 80,
	LINK_FILL_CLOSED = 81,
	/* node that it comes from -> broker: u32 way, u32 result, str reason: it reaches the other one, or doesn't, or doesn't any more */
	LINK_POUR_READY = 82,
	LINK_POUR_ENDED = 85, /* u32 way, u64 bytes that were sent, u64 bytes that the other node's cache had */
	/* node -> node: u32 result, str reason; then u64 tail of the up arena */
	LINK_FILL_JOINED = 83,
	LINK_FILL_CONSUMED = 84,
};
#define FILL_TOKEN_SIZE 16
/* LINK_FRAME_BYTES: what isn't more than a command may bring along the other way. Larger frames have their bytes go by a bulk lane. */
#define LINK_SMALL_BYTES INLINE_MAX
#define LINK_SMALL_FRAME 256u

/* What gleamMoveOut does. A reason in its answer: not, or not now, and why. */
enum move_step {
	MOVE_CHECK = 0, /* could the session move at all */
	MOVE_COPY = 1,	/* objects and contents, while the program runs */
	MOVE_LAST = 2,	/* the same when it is held and all its work is done; NOT_READY: it isn't */
	MOVE_FORGET = 3, /* the move has failed: nothing has been said */
	MOVE_HOLD = 4,	 /* of a client that shares its memory: no more of its commands are taken */
	MOVE_GO_ON = 5,	 /* they are again */
};

/* Codes of its answer, beside CUresult. NOT_READY: work isn't done. WANTS_CLIENT: nor will it be while the program is held. */
#define MOVE_NOT_READY	  600u
#define MOVE_WANTS_CLIENT 0x10000u

#define RESUME_TOKEN_SIZE 16
#define RESUME_WINDOW	  2048u /* bulk frames that may be on their way, without having been acknowledged */

enum cache_do {
	CACHE_DO_PIN = 1,    /* never dropped for room */
	CACHE_DO_UNPIN = 2,
	CACHE_DO_DROP = 3,   /* a head of zeros: everything that isn't pinned */
	CACHE_DO_VERIFY = 4, /* read and hash; a damaged one is dropped, EBADMSG. Zeros: all; value is how many were damaged */
};

enum session_end {
	END_NONE = 0,
	END_CLIENT_GONE = 1,
	END_WORKER_DIED = 2,	/* crashed or killed */
	END_LINK_LOST = 3,	/* longer than the grace time */
	END_PROTOCOL = 4,	/* one side broke the rules: frames, lengths, references */
	END_NO_SERVER = 5,	/* none configured, none reachable */
	END_NO_DEVICE = 6,	/* the node's driver shows no GPU, or could not be loaded */
	END_REFUSED = 7,	/* limits: sessions, memory */
	END_VERSION = 8,	/* library, broker and node are not of one protocol */
	END_SHUTDOWN = 9,	/* the daemon was told to stop */
};

/* ---- local socket: SOCK_SEQPACKET unix socket; one message a packet ---- */

#define LOCAL_MSG_MAX (64u << 10)
#define LOCAL_SOCKET_SYSTEM "/run/gleam/gleamd.sock" /* ordinary users' own daemon: $XDG_RUNTIME_DIR/gleam/gleamd.sock */

#define LOCAL_WAITING_MS 2500
/* A worker that isn't ready by then is given up, and its client told; both ends count on it. */
#define LOCAL_OPEN_MS_MAX 65000

#define VERDICT_KEPT_MAX  (4u << 20)
#define VERDICT_PART_SIZE (LOCAL_MSG_MAX - 64)

/* u32 enum local_msg, then */
enum local_msg {
	/* client -> gleamd: u32 version, u8 hash[32], u32 pid as the client sees it, str program, str settings
	 * (GLEAM_SERVER=..., CUDA_* that the worker must know; newline separated). NOT_SERVERS=NAME,NAME...: not these servers */
	LOCAL_OPEN = 1,
	/* gleamd -> client, with descriptors {session memory, doorbell eventfd} and, where it shares
	 * its memory with a worker of this machine, one of a file of SESSION_PAGES_SIZE for page-locked memory: u32 how many other servers it could ask
	 * (that answer, have GPUs, and aren't in NOT_SERVERS), str server name. The session is LIVE when the packet arrives. */
	LOCAL_OPENED = 2,
	/* gleamd -> client, then it closes: u32 enum session_end, str reason */
	LOCAL_REFUSED = 3,
	/* gleamd -> client, before one of the two, every LOCAL_WAITING_MS: str server name. That server is alive and makes
	 * a worker ready, which takes a driver as long as it takes. Not by /dev/gleam, which has room for one answer. */
	LOCAL_WAITING = 4,
	/* client -> gleamd, with a descriptor of the file, opened for reading: u32 file. Without: ask again about that file.
	 * Answered by LOCAL_FILE_KNOWN */
	LOCAL_FILE = 5,
	/* u32 file, u32 result (0 or errno: the cache has no use for it), then of the file as the daemon has seen it u64 size,
	 * u64 mtime_ns, u64 ctime_ns; u32 chunks, bytes: a bit for each chunk that needn't travel */
	LOCAL_FILE_KNOWN = 6,
	/*
	 * client -> gleamd, with a descriptor of its session's memory: u32 version, u8 hash[32], u32 pid as the client sees it. The gleamd
	 * that it was opened with is gone; it goes on with this one. Answered by LOCAL_OPENED with one descriptor, the doorbell, or by
	 * LOCAL_REFUSED.
	 */
	LOCAL_RETURN = 7,
	/*
	 * client -> gleamd: verdict_key (verdict.h). What have this user's programs left of a load, on the server of the session? Answered by LOCAL_VERDICT_PART, in
	 * their order. One at a time: it isn't answered while parts of an earlier answer wait for the client to read.
	 */
	LOCAL_VERDICT = 8,
	/* verdict_key, u32 total (0: nothing is known), u32 at, bytes: of the verdict (verdict.h), and records of what was learnt of single functions later,
	 * each at a multiple of 8: u32 size, u32 0, bytes */
	LOCAL_VERDICT_PART = 9,
	/* client -> gleamd: the same, to be kept; without records. VERDICT_KEPT_MAX at most */
	LOCAL_VERDICT_KEEP = 10,
	/* client -> gleamd: verdict_key, bytes: one record, without its size */
	LOCAL_VERDICT_MORE = 11,
	/* gleamctl -> gleamd: str JSON request {"cmd": "...", ...}; answered by one or more LOCAL_JSON packets */
	LOCAL_CONTROL = 16,
	LOCAL_JSON = 17, /* u32 more, str part of the JSON answer */
	/* anybody -> gleamd: str servers with commas between, or "" for all. Answered by a LOCAL_GPU for each GPU that is known, and one more. */
	LOCAL_GPUS = 18,
	/*
	 * u32 more (0: the last, which is about none), u32 pending (a server's GPUs aren't known yet), str server, u32 index
	 * at the server, str driver version, str name, u8 uuid[16], u64 memory, u64 memory_free, u32 utilisation, u64 pci,
	 * u32 values, then each u32 (enum report_value),
	 * u32 processes, then for each u32 pid, u64 memory: programs of this machine that have the GPU, as far as the asker
	 * may know of them.
	 */
	LOCAL_GPU = 19,
	/* gleamd -> gleamctl, before the answer of what takes time: str JSON object, how far it is */
	LOCAL_NEWS = 20,
};

#endif
