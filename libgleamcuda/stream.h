/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: what has been sent on each, and what the progress words say of it. Any thread.
 */
#ifndef GLEAM_STREAM_H
#define GLEAM_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/late.h"

/* Zero is how a stream begins. */
struct stream_attributes {
	CUaccessPolicyWindow window;
	CUsynchronizationPolicy policy;
	CUlaunchMemSyncDomainMap map;
	bool has_map;
	CUlaunchMemSyncDomain domain;
};

struct stream {
	/* set at birth, then only read */
	struct context *context;
	uint64_t handle; /* WIRE_STREAM_LEGACY for a context's legacy stream */
	uint64_t id;	 /* cuStreamGetId: never used again */
	uint32_t word;	 /* progress word */
	unsigned int flags;
	int priority; /* atomic: cuStreamSetAttribute changes it */

	/* atomics */
	uint64_t last_seq;  /* of the newest command; of a legacy stream: of all blocking streams of its context too */
	uint64_t own_seq;   /* of the newest command of this very stream */
	uint64_t flush_seq; /* of the newest gleamFlush */
	uint64_t touch_seq; /* of the newest command that may write to host memory which the program can look at, or is a copy of pages; as last_seq */
	uint64_t upload_seq; /* of the newest copy from pageable memory */
	uint64_t excused_seq; /* up to this a synchronise has said that all is done: the words may come later */
	uint64_t fence_seen; /* fence.c: the newest fence that it has passed */

	struct late_list late; /* copies to page-locked memory whose bytes have not arrived */

	struct capture_member *capture; /* guarded by graph_lock() */

	struct stream_attributes attributes; /* guarded by streamattr.c's lock */
};

/* The stream of a wire handle that call_stream() gave. */
struct stream *stream_find(struct call *call, uint64_t handle);
struct stream *stream_legacy(struct context *context);

/* A command of the stream has been posted. */
void stream_note(struct call *call, uint64_t handle, uint64_t seq);
/* What the call has posted on the stream last is the end of a copy from the host, whose bytes have been taken. */
void stream_uploaded(struct call *call, uint64_t handle);
/*
 * Could the program tell that work of the stream isn't done yet, without asking: is something of its own outstanding (bytes
 * that are to arrive, functions that are to run, kernels that write to memory it sees)?
 */
bool stream_shows(struct call *call, struct stream *stream);

/*
 * Have the bytes arrived that late copies of work before command @seq bring, on this stream and on those that it has
 * waited for by itself: the legacy stream waits for all blocking ones, and they wait for it.
 */
bool stream_landed(struct stream *stream, uint64_t seq);
CUresult stream_landed_wait(struct stream *stream, uint64_t seq);

/* Is everything that was sent on it done, and has its host data arrived? Sends a flush if only the worker can tell. */
bool stream_done(struct call *call, struct stream *stream);
/* Has a synchronise said that work of @stream up to @seq is done? Questions must not say otherwise afterwards. */
bool stream_was_synced(struct stream *stream, uint64_t seq);
/* Wait for that: one trip unless the words tell it already. The context's latched failure is told. */
CUresult stream_wait(struct call *call, struct stream *stream);
/* Wait for all streams of the call's context. */
CUresult context_wait(struct call *call);

/* Is all of its work done, as far as can be told without a trip? Host data may still be on its way. */
bool context_is_quiet(struct call *call);

/* This thread's own stream of the call's context (CU_STREAM_PER_THREAD), made at first use. */
CUresult stream_own(struct call *call, uint64_t *handle_out);

/* The library's own stream of the call's context, which waits for no other; NULL when memory is short. */
struct stream *stream_side(struct call *call);

/* One more of that kind, whose commands no other stream has to come after. It ends with its context. */
CUresult stream_side_make(struct call *call, uint64_t *handle_out);

/* A context ends, and its streams with it. */
void stream_context_closed(struct context *context);

/* cuStreamGetId of a wire handle: two streams never share one, for cuBLAS keys its workspaces with it. */
uint64_t stream_id(struct call *call, uint64_t handle);

#endif
