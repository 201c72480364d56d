/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection until both sides have said hello: TLS, then LINK_HELLO each way. Control thread. Whoever doesn't get
 * through within HELLO_NS is closed.
 */
#ifndef GLEAM_CORE_HELLO_H
#define GLEAM_CORE_HELLO_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "broker/core/conn.h"
#include "broker/core/loop.h"
#include "broker/proto/wire.h"

#define HELLO_NS	5000000000ull /* a handshake is three crossings; a slow one still fits ten times */
#define HELLO_HOST_SIZE 65	      /* host names have 64 bytes at most */
#define HELLO_ID_SIZE	16

struct hello_info {
	uint32_t lane;
	uint32_t lanes; /* bulk lanes of the link */
	bool lz4;	/* that side takes and wants it; in an answer: both do */
	uint8_t id[HELLO_ID_SIZE];
	char host[HELLO_HOST_SIZE];
};

struct hello;

struct hello_ops {
	/* The peer has said hello: the owner calls hello_take() or hello_refuse(), at once. */
	void (*done)(void *owner, struct hello *hello, const struct hello_info *theirs);
	/* It came to nothing, and @hello is gone afterwards. -EPROTONOSUPPORT: of another version. */
	void (*failed)(void *owner, struct hello *hello, int err, const char *why);
};

/* Takes @fd. NULL: out of memory. A broker says @ours first; a node (@ours NULL) answers in hello_take(). */
struct hello *hello_new(struct loop *loop, int fd, struct tls_keys *keys, const struct hello_info *ours,
			const struct hello_ops *ops, void *owner);
/* Ends the wait and hands the connection over; the owner calls conn_give() or conn_move() next. */
struct conn *hello_take(struct hello *hello);
/* Tells the peer why not; failed() follows. */
void hello_refuse(struct hello *hello, const char *reason);
void hello_close(struct hello *hello, int err, const char *why);
/* Whose key it has shown; "" in cleartext. */
const char *hello_tenant(const struct hello *hello);
/* No call back any more; ends by itself. */
void hello_abandon(struct hello *hello);

/* A node's answer, on the connection of a lane or link that is there. */
void hello_answer(struct conn *conn, const struct hello_info *agreed);
void hello_host(char host_out[HELLO_HOST_SIZE]);
/* Address and port of a peer, for log lines. */
#define PEER_TEXT_SIZE 80
void peer_text(int fd, char text_out[PEER_TEXT_SIZE]);
void address_text(const struct sockaddr *address, char text_out[PEER_TEXT_SIZE]);

#endif
