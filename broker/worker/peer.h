/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of one GPU that another reaches. Executor thread. */
#ifndef GLEAM_WORKER_PEER_H
#define GLEAM_WORKER_PEER_H

#include "broker/worker/state.h"
#include "broker/worker/worker.h"

/*
 * A command of @cmd's context is about to copy or fill at @address: if that is memory of another device, it is opened to the
 * context's own, as the driver copies natively between devices whose kernels don't reach each other. Cheap where the client has
 * one device.
 */
void peer_copies(struct worker *w, const struct cmd *cmd, uint64_t address);
/* A copy between the memories of two devices that can't be opened to one another; false if it is none. */
bool peer_apart(struct worker *w, uint64_t dst, uint64_t src, CUcontext *dst_out, CUcontext *src_out);

#endif
