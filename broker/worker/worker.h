/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What generated dispatch and hand-written handlers of gleam-worker share. Handlers run on the executor thread, in
 * command order, and never block: what has to wait becomes a stream wait on a word, or a reply that comes later.
 */
#ifndef GLEAM_WORKER_H
#define GLEAM_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/lib/codec.h"
#include "broker/proto/cuda_abi.h"
#include "broker/proto/handle.h"
#include "broker/proto/ring.h"
#include "broker/proto/wire.h"
#include "gen/drv.h"
#include "gen/msg.h"
#include "gen/ops.h"

struct worker;
struct stream;

/* One command on its way through the executor. Borrowed from the ring, or from a parked copy. */
struct cmd {
	const struct frame_hdr *hdr;
	struct bulk_ref bulk; /* FRAME_BULK_UP or FRAME_BULK_DOWN */
	CUstream stream;      /* the driver's, where the op has a stream scope; NULL for the legacy stream */
	uint64_t stream_handle;

	/* for handlers by hand, which may change the last three */
	struct stream *own;  /* the worker's; NULL where the op has no stream scope */
	uint32_t commands;   /* that the driver got on the stream for this */
	bool write_now;	     /* the stream's progress is written right behind it */
	bool bulk_taken;     /* the handler sees to it that the up piece is given back */
};

/* Handlers' own codes beside CUresult: not answered now. */
#define CMD_LATER ((CUresult)-1) /* whoever took the command over posts the reply */
#define CMD_BROKEN ((CUresult)-2) /* the frame breaks the protocol: the session ends */
#define CMD_PARK ((CUresult)-3)	  /* stream scope only: nothing was done, try again when something has completed */

/*
 * Decodes from @r, runs, and writes out fields to @ans (which stands after the CUresult). The executor then posts the
 * reply, or latches a failure where none is wanted.
 */
typedef CUresult (*worker_handler)(struct worker *w, struct cmd *cmd, struct reader *r, struct writer *ans);
extern const worker_handler worker_handlers[OP_MAX];

/* The driver, as generated dispatch calls it: worker_drv(w)->cuEventRecord(...). */
const struct drv *worker_drv(const struct worker *w);

/* The driver's object of a handle; NULL (and false) when it is unknown, stale or of another type. A kernel is found as a
 * function too. 0 is accepted where the argument was null-ok and gives NULL; WIRE_STREAM_LEGACY gives NULL too. */
bool object_get(struct worker *w, enum object_type type, uint64_t handle, bool null_ok, void **object_out);
/* Remember @object under a handle that the client chose. False if the handle is taken or over the limit. */
bool object_add(struct worker *w, enum object_type type, uint64_t handle, void *object);
void object_remove(struct worker *w, uint64_t handle);

#endif
