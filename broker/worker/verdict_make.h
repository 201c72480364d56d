/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver says about a loaded image, as broker/proto/verdict.h has it. Executor thread.
 */
#ifndef GLEAM_WORKER_VERDICT_MAKE_H
#define GLEAM_WORKER_VERDICT_MAKE_H

#include "broker/proto/verdict.h"
#include "broker/worker/state.h"

/* Options that the driver gave back, and its logs. */
struct verdict_jit {
	uint32_t count;
	uint32_t options[VERDICT_OPTIONS];
	uint64_t values[VERDICT_OPTIONS];
	const char *info;
	const char *error;
};

/* malloc'ed; NULL without memory. @object 0: a load that failed with @code. @device: whose attributes. */
uint8_t *verdict_make(struct worker *w, CUresult code, uint64_t object, uint32_t device, const struct verdict_jit *jit,
		      size_t *size_out);

/* One function's record. NOT_FOUND if the image has no such name. */
CUresult verdict_function_make(struct worker *w, uint64_t object, void *driver, const char *name, uint32_t device,
			       struct writer *out);

/* What was asked about all functions of an image with its verdict is asked again, and about one: a lazy driver loads something for it. */
void verdict_touch(struct worker *w, uint64_t object, uint32_t device);
CUresult verdict_function_touch(struct worker *w, uint64_t object, void *driver, const char *name, uint32_t device);

#endif
