/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's listening sockets, and connections until they have said hello. Control thread. Strangers are closed; one log
 * line says who and why, at a bounded rate.
 */
#ifndef GLEAM_NODE_GATE_H
#define GLEAM_NODE_GATE_H

#include <stdbool.h>
#include <stddef.h>

#include "broker/core/hello.h"
#include "broker/core/loop.h"

struct gate;

/* NULL: it has taken the connection by hello_take(). Else why not: the peer is told. */
typedef const char *gate_hello(void *owner, struct hello *hello, const struct hello_info *theirs, const char *tenant);

/* -errno and a line in @why. Without @keys only loopback addresses. */
int gate_open(struct loop *loop, const char *address, struct tls_keys *keys, gate_hello *hello, void *owner,
	      struct gate **gate_out, char *why, size_t why_size);
/* No more connections; those that have not said hello are closed. */
void gate_stop(struct gate *gate);
bool gate_is_stopped(const struct gate *gate);
void gate_free(struct gate *gate);
const char *gate_address(const struct gate *gate);

#endif
