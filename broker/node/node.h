/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node role of gleamd: listens for brokers, seats their clients on workers, tells them the load. Control thread.
 */
#ifndef GLEAM_NODE_NODE_H
#define GLEAM_NODE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/core/link.h"
#include "broker/core/loop.h"
#include "broker/lib/conf.h"
#include "broker/proto/stats.h"

struct node;

/* On failure -errno and one line in @why. @keys NULL: no key, so only loopback addresses are listened on. */
int node_start(struct loop *loop, const struct conf *conf, struct tls_keys *keys, struct node **node_out, char *why,
	       size_t why_size);
/* Tells brokers and kills workers; node_is_stopped() tells when all have ended, then node_free(). */
void node_stop(struct node *node);
bool node_is_stopped(const struct node *node);
void node_free(struct node *node);

/* The loop's hook. */
bool node_poll(struct node *node);
bool node_sleep(struct node *node);
void node_wake(struct node *node);

/* @on: no new clients; those that it has stay. */
void node_drain(struct node *node, bool on);

/*
 * The worker's memories for a client of this very daemon, whose session runs over the link with this id: descriptors, the caller's.
 * -ENOENT: the other end of that link isn't this node. See seat_direct().
 */
int node_direct(struct node *node, const uint8_t *link_id, uint32_t session, int *pages_out);
/* That client goes on elsewhere, with the memory. See seat_left(). */
int node_left(struct node *node, const uint8_t *link_id, uint32_t session);

/* For this machine's own status. */
void node_report(const struct node *node, struct report *report_out);
const char *node_address(const struct node *node);
const char *node_trouble(const struct node *node);

#endif
