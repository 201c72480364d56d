/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Driver streams made beforehand. A driver may wait for the whole context before it makes a stream (that of an H200 does when it needs
 * another queue for it), and the context may stand still for a host function whose end only the executor hears of: it must not be waiting in
 * the driver then. So some are made while no host function is outstanding, and taken while one is. Executor thread.
 */
#ifndef GLEAM_WORKER_SPARE_H
#define GLEAM_WORKER_SPARE_H

#include "broker/worker/state.h"

/* Before a host function stops a stream of @c, which is current; makes none while another is outstanding. */
void spare_refill(struct worker *w, struct context *c);
/* The driver's context is being closed, and the streams with it, or it stays and they are destroyed (@destroy; current). */
void spare_end(struct worker *w, struct context *c, bool destroy);

#endif
