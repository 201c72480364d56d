/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link between a broker and a node: a command connection on the control thread and bulk lanes with threads of their own.
 * Control thread, except where it says otherwise.
 *
 * A broker makes one from a connected socket and gets ready() when all lanes are there; a node makes one from the first
 * hello and adds lanes as they come. When anything of it fails all of it is lost: lost(), once, then link_free().
 */
#ifndef GLEAM_CORE_LINK_H
#define GLEAM_CORE_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/core/hello.h"
#include "broker/core/lane.h"
#include "broker/core/mirror.h"
#include "broker/lib/codec.h"

/* Bytes of ring that one message carries at most: a session's turn on the command lane. */
#define LINK_SPAN_MAX	 (64u << 10)
#define LINK_COMMAND_MAX (2 * LINK_SPAN_MAX + 4096u) /* messages of the command lane: a span may end with a large frame */
#define LINK_TEXT_MAX	 1024u		     /* strings in messages: programs' paths, reasons */

struct link;

struct link_ops {
	void (*ready)(void *owner, struct link *link);
	/* A message of the command lane; @body is aligned to 8. -errno and conn_blame() by link_blame(): a breach, the link ends. */
	int (*message)(void *owner, struct link *link, const struct link_hdr *hdr, struct reader *body);
	/* Fewer bytes wait than CONN_BACKLOG_HIGH again. */
	void (*drained)(void *owner, struct link *link);
	void (*lost)(void *owner, struct link *link, int err, const char *why);
};

struct link_setting {
	struct tls_keys *keys; /* NULL: cleartext */
	unsigned lanes;	       /* broker: how many */
	bool compress;	       /* LZ4 for bulk, where it pays and the other side has it, too */
	uint64_t keepalive_ns; /* silence after which the peer is given up */
};

struct link_stats {
	uint64_t rtt_ns;      /* of the newest ping; 0: none yet */
	uint64_t rtt_min_ns;
	uint64_t rtt_low_ns;  /* the least of the last two seconds */
	uint64_t rtt_mean_ns; /* the newest counting an eighth, as in TCP */
	uint64_t jitter_ns;   /* mean deviation from it */
	bool probe_tells;	  /* timed pings tell something of the bandwidth: it isn't noise */
	uint64_t probe_bandwidth; /* that, in bytes a second; 0: more than PINGS_RATE_MAX */
	uint32_t tcp_rtt_us;  /* as the kernel has smoothed it */
	uint32_t retransmits;
	uint64_t sent;
	uint64_t received;
	uint64_t bandwidth;   /* bytes a second towards the node, over all bulk lanes; 0: not yet */
	uint64_t saved;	      /* bytes that we did not send, since LZ4 stood for them */
	unsigned lanes;
	bool tls;
};

/* Broker. Takes @fd, connected. NULL: out of memory. */
struct link *link_connect(struct loop *loop, int fd, const struct link_setting *setting, const struct link_ops *ops,
			  void *owner);
/* Node. Takes the command connection of a hello. */
struct link *link_accept(struct loop *loop, struct conn *conn, const struct hello_info *hello,
			 const struct link_setting *setting, const struct link_ops *ops, void *owner);
/* Node: takes the connection of a lane of this link; answers the hello. */
void link_lane_take(struct link *link, struct conn *conn, const struct hello_info *hello);
/* Whether that lane is missing. */
bool link_lane_fits(const struct link *link, const struct hello_info *hello);

/* Ends it: lost() follows. */
void link_close(struct link *link, int err, const char *why);
/* The same after what was written has gone out, or a short while. */
void link_close_flushed(struct link *link, int err, const char *why);
/* After lost(). Every mirror has been removed. */
void link_free(struct link *link);

/* header, @head, @body. */
void link_send(struct link *link, enum link_msg type, uint32_t session, const void *head, size_t head_size,
	       const void *body, size_t body_size);
size_t link_backlog(const struct link *link);
int link_blame(struct link *link, int err, const char *format, ...) __attribute__((format(printf, 3, 4)));

void link_mirror_add(struct link *link, struct mirror *mirror);
void link_mirror_remove(struct link *link, struct mirror *mirror);
/* Counted, or NULL. Any thread. */
struct mirror *link_mirror_get(struct link *link, uint32_t session);
/* Takes @item: to the lane that has least to do. */
void link_bulk(struct link *link, struct mirror *mirror, struct bulk_item *item);

/* What the bulk lanes had delivered at some time. */
struct link_mark {
	uint64_t acked[LINK_LANES_MAX];
	uint64_t busy_us[LINK_LANES_MAX];
};

/*
 * Bytes a second since @mark, which moves up to now; 0, and it stays: fewer than @least were delivered. What sockets have taken doesn't
 * count before it is acknowledged.
 */
uint64_t link_rate(const struct link *link, struct link_mark *mark, uint64_t least);
/* The peer is on this machine. */
bool link_is_loopback(const struct link *link);

const uint8_t *link_id(const struct link *link);
const char *link_peer(const struct link *link); /* address */
const char *link_host(const struct link *link); /* name that it gave */
const char *link_tenant(const struct link *link);
bool link_is_ready(const struct link *link);
int link_fd(const struct link *link); /* of the command connection; -1: gone */
void link_stats(const struct link *link, struct link_stats *stats_out);

#endif
