/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker may not do once its driver has started. It plays commands of a stranger on a driver that we can't look
 * into, so what no driver needs is taken away; what one may need (ioctl, mmap, open, threads) stays.
 */
#ifndef GLEAM_WORKER_CONFINE_H
#define GLEAM_WORKER_CONFINE_H

#include <stddef.h>

/* Before anything else: no new privileges, no core dump of a client's memory, no tracing by others of the same user. */
void confine_early(void);
/* -errno, and the reason in @why. */
int confine_late(char *why, size_t size);

#endif
