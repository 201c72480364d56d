/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's state, for the files of this folder. Two threads: the executor plays the commands and owns everything
 * that is not said to be shared; the completion thread sees what the GPU has finished and tells the node.
 */
#ifndef GLEAM_WORKER_STATE_H
#define GLEAM_WORKER_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "broker/lib/ring.h"
#include "broker/lib/shm.h"
#include "broker/proto/space.h"
#include "broker/proto/span.h"
#include "broker/proto/progress.h"
#include "broker/proto/snapshot.h"
#include "broker/worker/object.h"
#include "broker/worker/worker.h"

/* ---- limits ---- */

/* Real commands in flight on a stream: the driver blocks at about 1,020 in a channel, and two streams may share one. */
#define CREDIT 480u
#define CREDIT_LEAST 16u	  /* with thousands of streams each still goes on */
#define CREDIT_CHANNELS 8u	  /* the driver's default; see proc.c */
#define PROGRESS_EVERY 64u	  /* commands between progress writes: 1.7 us each, so under 1% of what launches cost */
#define LAUNCH_PARAMS_MAX 32764u
#define LAUNCH_PARAMS_ALIGN 64u /* tensor maps; the driver copies them as they lie */
#define MARKS 1024u		  /* progress writes in flight on a stream; more than CREDIT, so never the limit */
#define PARKED_BYTES_MAX (64u << 20) /* frames held back per session; then the ring is left alone */
#define GRANT_BYTES_MAX (1ull << 44) /* 16 TiB: more than any node has; a setting lowers it */
#define DEVICES_MAX SNAPSHOT_DEVICES

/* How the program ends; the node turns it into enum session_end. */
enum worker_exit {
	EXIT_DONE = 0,
	EXIT_START = 2,	   /* could not start; the reason went to the status descriptor */
	EXIT_PROTOCOL = 3, /* the client broke the protocol */
	EXIT_ORPHAN = 4,   /* the node is gone */
};

/* ---- waits: what the completion thread does when a stream has come to a command ---- */

enum wait_kind {
	WAIT_REPLY,	/* a reply; bytes from staging if there are any */
	WAIT_LANDED,	/* NOTICE_LANDED */
	WAIT_CONSUMED,	/* an up piece is used up */
	WAIT_STAGING,	/* a staging block is free again */
	WAIT_HOST_CALL, /* NOTICE_HOST_CALL */
	WAIT_JOIN,	/* one of several streams that something waits for */
	WAIT_TURN,	/* an event before a host function has happened: see turn.h */
};

struct staging_block;
struct turn;
struct turns;

/* Something that waits for several streams: runs on the executor when the last has come. */
struct join {
	uint32_t left;	 /* guarded by lock */
	CUresult result; /* guarded by lock: the first failure */
	void (*done)(struct worker *w, struct join *join); /* owns @join */
	struct join *next; /* guarded by lock: in worker.joined */
	/* the caller's */
	struct frame_hdr hdr;
	uint64_t a, b;
	void *object;
};

struct wait {
	struct wait *next;
	struct wait *prev;
	uint64_t seq; /* of the command that it waits for */
	enum wait_kind kind;
	struct frame_hdr hdr; /* REPLY, LANDED, HOST_CALL: of the command */
	struct staging_block *staging; /* REPLY, LANDED, STAGING: freed afterwards */
	uint32_t size;	      /* REPLY: bytes in staging */
	struct bulk_ref bulk; /* REPLY (size != 0), LANDED: cells; CONSUMED: piece */
	struct turn *turn;    /* HOST_CALL, TURN; counted */
	struct join *join;
	CUstream of;	    /* REPLY: the stream and its context, when the wait has ended */
	CUcontext of_context;
};

/* ---- streams ---- */

/* A frame that could not go to the driver yet. */
struct parked {
	struct parked *next;
	struct stream *stream;
	struct parked *next_on_event; /* in event.parked, in command order */
	struct event *event;
	bool wants_write; /* a progress write must follow it */
	bool event_checked;
	uint32_t size;
	uint8_t frame[] __attribute__((aligned(8)));
};

/* A progress write: when @value can be read in the word, @count commands of the stream have completed. */
struct mark {
	uint32_t value;
	uint64_t count;
};

struct stream {
	struct stream *next; /* in worker.streams: all that exist, dead ones with work included */
	uint32_t refs;	     /* the table's, events', and one while work is outstanding */
	uint64_t handle;     /* 0: a context's legacy stream */
	struct context *context; /* NULL once it is closed */
	CUstream driver;     /* NULL: legacy */
	uint32_t word;	     /* progress word of the session */
	CUdeviceptr done_at; /* of the word done, for the GPU */
	bool blocking; /* synchronises with the legacy stream */
	bool own;      /* the worker's: it counts its commands by itself, and nobody is told */
	uint64_t arrived; /* newest command that was seen */
	uint64_t issued;  /* newest one given to the driver */
	uint64_t count_issued; /* driver commands */
	uint64_t count_done;
	struct mark *marks; /* MARKS */
	uint32_t marks_head;
	uint32_t marks_tail;
	uint32_t since_write; /* commands since the last progress write */
	bool unwritten; /* linked in worker.unwritten */
	struct stream *next_unwritten;
	struct parked *parked_head;
	struct parked *parked_tail;
	struct stream *next_parked; /* in worker.parked_streams */
	bool in_parked;
	struct turns *turns; /* host functions that it has a run of: see turn.h; NULL: none */

	/*
	 * The completion thread's, without the lock: in a line that the executor leaves alone while it launches, since each of its looks
	 * would take what that writes away from the executor's core.
	 */
	uint32_t *done __attribute__((aligned(64))); /* the word that the GPU writes; the stream's alone until its last write was seen */
	struct stream *next_watched; /* in worker.watched: linked by the executor under lock, unlinked by the completion thread */
	uint32_t looked; /* value of the word at its last look under the lock */

	/* guarded by lock */
	uint32_t told; /* progress value that the client was told last */
	uint64_t written; /* sequence number of the newest progress write */
	uint64_t asked;	  /* of the newest one that stands for more than a count: somebody may poll for it */
	struct wait *waits_head; /* by seq */
	struct wait *waits_tail;
	bool watched; /* the completion thread looks at it */
	bool dead;    /* destroyed: no driver call with it */
	CUresult failed; /* its context is lost: waits end at once */
	struct stream *before; /* had the word before, and is not done yet: until then nothing is told of this one. Counted */
};

struct event {
	CUevent driver;
	struct stream *stream; /* that recorded it last; counted */
	uint64_t seq;	       /* of that record */
	struct stream *played; /* the same of the newest record that the driver has been given; counted */
	uint64_t played_seq;
	struct parked *parked; /* frames in queues that name it */
	uint32_t refs;	       /* the table's and the parked frames' */
	bool timing;
};

/* ---- contexts ---- */

#define SPARES 8u /* driver streams of a kind made beforehand: see spare.h */

struct spares {
	CUstream streams[SPARES];
	uint32_t count;
};

struct context {
	uint32_t index;
	bool open;
	bool primary;
	bool home; /* shares the context that the worker keeps for itself */
	CUgreenCtx green; /* NULL: it is none. Then it is a part of the device's primary one */
	uint32_t device;
	CUcontext driver;
	struct stream *legacy;
	uint32_t parked_blocking; /* blocking streams with parked frames */
	struct spares spares[2];  /* that wait for the legacy stream, and that don't */

	/* guarded by lock */
	CUresult latched;
	uint16_t latched_op;
	uint64_t latched_seq;
	bool faulted; /* found by the completion thread: the driver's context is lost */
};

/* ---- device memory ---- */

struct grant;
struct images;
struct shares;
struct staging;

/* ---- the worker ---- */

/* Of the completion thread. */
enum watch_sleep {
	WATCH_LOOKS,
	WATCH_NAPS,   /* between looks */
	WATCH_SLEEPS, /* until there is a stream to look at */
};

struct worker_settings {
	bool warm;
	bool wipe;		/* memory is cleared before a client gets it */
	bool confine;
	bool verbose;
	bool given;		/* the GPUs that the driver shows were chosen for this client alone */
	uint64_t grant_max;	/* bytes */
	uint32_t staging_small; /* blocks */
	uint32_t staging_large;
	/* where Gleam's addresses are; other than RANGE_* only where a sanitizer has its own there */
	uint64_t range_device;
	uint64_t range_host;
	uint64_t range_size;
};

struct worker {
	/* set at the start, then only read */
	struct worker_settings settings;
	struct drv drv;
	void *driver_dl;
	struct shm shm;
	struct session_header *header;
	struct spans spans;	/* executor's, of a traced session */
	struct spans spans_gpu; /* completion thread's */
	int doorbell;
	int node; /* socket to it: what it tells of the client; 0 in tests without one */
	pid_t parent; /* the node; 0: whoever is it when the executor begins */
	uint32_t device_count;
	CUdevice devices[DEVICES_MAX];
	CUcontext home; /* device 0's primary context, kept for the worker's own memory */
	struct resources *resources; /* executor's (green.c); NULL until one is asked for */
	struct snapshot *snapshot;
	bool arenas_mapped; /* the GPU reads and writes the session memory itself */
	CUdeviceptr landed_at; /* device address of the landed words */

	/* executor */
	struct ring c2n;
	uint8_t *params; /* LAUNCH_PARAMS_MAX bytes, as aligned as parameters may ask for */
	uint64_t seq; /* newest command */
	uint64_t ordinals; /* devices that the client sees; set by gleamAttach */
	uint32_t first;	   /* its first device's address range; GPUs of other servers have those before */
	struct ring side_c2n; /* of a client that shares our memory: the daemon's own commands */
	bool holds; /* none of that client's are taken */
	CUcontext current;
	bool current_known;
	struct object_table tables[OBJECT_TYPES];
	struct stream *streams;
	uint32_t stream_count;
	struct stream *unwritten;
	struct stream *parked_streams;
	struct parked *late_head; /* without a stream, behind all that is parked: deaths of what it may use */
	struct parked *late_tail;
	uint64_t parked_bytes;
	uint32_t parked_count;
	struct cmd *cmd; /* that a handler runs for */
	struct grant *grant;
	uint32_t recalled; /* recall_count of the session memory, as last seen */
	struct images *images;
	struct shares *shares; /* what its client shares with others; its list has its own lock */
	uint64_t tenant; /* a number of the node's */
	bool tenant_known;
	struct host_calls *host_calls;
	struct {
		uint64_t released; /* atomic: the executor has given the client's ring back to here */
		/* completion thread: the same, since when, and how far it has looked for ends of host functions */
		uint64_t seen;
		uint64_t since_ns;
		uint64_t looked;
	} ahead;
	struct unwanted *unwanted; /* up pieces that are given back when they land */
	struct host_range *host_ranges;
	struct pages *pages; /* of a client of this machine (pages.c); NULL in tests without */
	struct keep *keep;
	struct arrivals *arrivals; /* variables, while it becomes another worker: variable_in.c */
	struct move *move;
	struct origins *origins;
	uint32_t way;	   /* that contents go aside by; 0: none. See aside.h */
	uint64_t aside_at; /* and up to where they have been said */
	struct vmms *vmms;
	struct numbers *numbers;
	bool moving; /* it becomes another worker: see move_in.h */
	char moving_failed[256]; /* "": it hasn't */
	uint32_t launches_told; /* failed ones that the log has named */
	bool stalled; /* an image is still on its way that the next commands need */
	uint8_t *frame; /* FRAME_SIZE_MAX: the frame at hand, private */
	uint8_t *answer; /* FRAME_SIZE_MAX */
	int exit_code;

	/* shared; what the executor reads for each frame is in other lines than what the completion thread writes */
	struct context contexts[SESSION_CONTEXTS] __attribute__((aligned(64)));
	struct context own[DEVICES_MAX]; /* the worker's own on each device, where it has needed one */
	pthread_mutex_t lock __attribute__((aligned(64)));
	struct stream *watched; /* guarded by lock; the completion thread, which alone unlinks, also walks it without */
	uint32_t watch_changes; /* changed under lock by whatever a look of the completion thread might find, beside the words themselves */
	struct join *joined; /* guarded by lock: for the executor */
	struct wait *wait_pool; /* guarded by lock */
	uint32_t telling; /* guarded by lock: what was taken out of the streams is on its way to the client */
	struct staging *staging; /* has its own lock */
	uint64_t up_tail; /* guarded by lock */
	uint64_t up_seen;
	uint64_t up_consumed[SESSION_GRANULES / 64];
	uint32_t joined_count; /* atomic */
	uint32_t wake; /* atomic; changes when the executor has something to look at */
	uint32_t watch_bell; /* atomic futex: the completion thread sleeps here */
	uint32_t watch_sleeps; /* atomic; enum watch_sleep */
	uint32_t replies_waiting; /* atomic: somebody waits for a reply; the completion thread spins longer */
	uint32_t landing; /* atomic: streams are parked until a piece lands */
	uint32_t stop; /* atomic */

	pthread_mutex_t post_lock;
	/* guarded by post_lock */
	struct ring n2c;
	struct ring side_n2c;
	uint32_t landings; /* sent, see PROGRESS_LANDINGS */
	uint32_t landings_told;
	uint64_t bulk_posted; /* frames whose bytes go by a bulk lane */
	uint8_t *direct_frame; /* FRAME_SIZE_MAX */
	uint8_t *overflow;     /* of direct.h: frames that wait for room */
	uint32_t overflow_size;
	uint32_t overflow_max;
	bool direct_bell; /* direct_ring is for more than landings */

	/* atomic */
	bool direct; /* the client shares our memory; set before its first answer, then only read */
	bool direct_waiting;
	bool direct_ring; /* written with post_lock held: the client's service thread is to be woken, if it sleeps */
	uint32_t direct_failed;

	pthread_t completion;
	bool completion_runs;
};

#endif
