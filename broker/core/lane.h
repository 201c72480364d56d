/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bulk lane of a link: a thread with a loop, a connection and TLS state of its own. It sends what sessions have queued,
 * in turns, and receives bytes straight into session memory.
 *
 * lane_start(), lane_stop(): control thread. lane_bulk(), lane_queued(): any thread.
 */
#ifndef GLEAM_CORE_LANE_H
#define GLEAM_CORE_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/core/conn.h"
#include "broker/core/hello.h"
#include "broker/core/mirror.h"

struct lane;
struct link;

struct lane_ops {
	/* Lane thread: a session of the link, with a count, or NULL. */
	struct mirror *(*mirror)(struct link *link, uint32_t session);
	/* Control thread: the connection is gone. lane_stop() is still to be called. */
	void (*lost)(struct link *link, struct lane *lane, int err, const char *why);
};

/*
 * Takes @conn, which is quiet. @node: bytes come in upwards and go out downwards, and @hello is answered first. NULL and
 * -errno in @err_out: no thread, no ring.
 */
struct lane *lane_start(struct loop *control, struct link *link, const struct lane_ops *ops, struct conn *conn, bool node,
			const struct hello_info *hello, int *err_out);
/* Closes the connection, ends the thread and drops what waits. @lane stays valid until lane_free(). */
void lane_stop(struct lane *lane);
void lane_free(struct lane *lane);

/* Takes @item. @mirror's turn comes round robin. */
void lane_bulk(struct lane *lane, struct mirror *mirror, struct bulk_item *item);
uint64_t lane_queued(const struct lane *lane);
/* Sent and received bytes. */
void lane_bytes(const struct lane *lane, uint64_t *sent_out, uint64_t *received_out);
/* Bytes that it did not send, since LZ4 stood for them. */
uint64_t lane_saved(const struct lane *lane);
/* Since it began, as its thread has seen it last: bytes that were acknowledged, and microseconds in which there were some to deliver. */
void lane_delivered(const struct lane *lane, uint64_t *bytes_out, uint64_t *busy_us_out);

#endif
