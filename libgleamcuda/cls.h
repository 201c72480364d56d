/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Context-local storage: what each copy of cudart hangs on a context. Its get is asked with nearly every runtime call,
 * so it takes no lock. Any thread.
 */
#ifndef GLEAM_CLS_H
#define GLEAM_CLS_H

#include "broker/proto/cuda_abi.h"

struct cls_block;
struct context;

typedef void (*cls_destroy)(CUcontext context, void *key, void *value);

/* INVALID_HANDLE if the key is there already, or is NULL. */
CUresult cls_put(struct context *context, void *key, void *value, cls_destroy destroy);
/* INVALID_HANDLE without it. The destructor is not called: the caller has the value. */
CUresult cls_delete(struct context *context, void *key);
/* INVALID_HANDLE without it; @value_out is then left alone. */
CUresult cls_get(struct context *context, void *key, void **value_out);

/* Take everything away (the context's lock is held), and call the destructors of what was taken (no lock is held). */
struct cls_block *cls_detach_locked(struct context *context);
void cls_destroy_all(struct context *context, struct cls_block *first);

#endif
