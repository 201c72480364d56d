/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JIT options of loads and links: read from the wire, with logs of our own in place of the program's. Executor thread.
 */
#ifndef GLEAM_WORKER_JIT_H
#define GLEAM_WORKER_JIT_H

#include "broker/worker/verdict_make.h"

/* Large: not for the stack. What the driver keeps of it, it keeps as long as the load or the link lasts. */
struct jit {
	CUjit_option options[VERDICT_OPTIONS + 2];
	void *values[VERDICT_OPTIONS + 2];
	unsigned int count;
	bool wants_info;
	bool wants_error;
	char info[VERDICT_LOG];
	char error[VERDICT_LOG];
};

/* Zeroed before. False: these are no options of ours. */
bool jit_read(struct jit *jit, const uint8_t *bytes, uint32_t size);
/* What the driver has written back. Logs are borrowed. */
void jit_told(struct jit *jit, struct verdict_jit *told_out);

#endif
