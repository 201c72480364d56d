/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of other programs of the same server: tokens for what this one shares, and what it has opened. Any thread.
 */
#ifndef GLEAM_SHARE_H
#define GLEAM_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"
#include "broker/proto/share.h"

struct call;
struct context;
struct range;

/*
 * A token for physical memory (SHARE_HANDLE: @object its handle, @size bytes of worker's device @device) or for the allocation
 * [@range] (SHARE_MEMORY, SHARE_POINTER).
 */
CUresult share_handle(struct call *call, uint64_t object, uint64_t size, uint32_t device, struct share_token *token_out);
CUresult share_range(struct call *call, const struct range *range, enum share_kind kind, struct share_token *token_out);

/* A descriptor whose file holds @token, for shareable handles; and back: false for any other descriptor. */
CUresult share_fd_make(const struct share_token *token, int *fd_out);
bool share_fd_read(int fd, struct share_token *token_out);

/* Another program's memory under @handle (OBJECT_VMM), and how large it is. @device_out: as the program counts, -1 if unseen. */
CUresult share_fetch(struct call *call, const struct share_token *token, uint64_t handle, uint64_t *size_out, int *device_out);

/* An allocation of another program, mapped for the current context's device; each opening wants its own close. */
CUresult share_open(struct call *call, const struct share_token *token, uint64_t *address_out);
/* INVALID_VALUE where nothing was opened at @address. */
CUresult share_close(struct call *call, uint64_t address);
bool share_has(uint64_t address);
void share_context_closed(struct context *context);

#endif
