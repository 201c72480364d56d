/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream connection on a loop: bytes in, to where the owner wants them; bytes out, gathered and sent once a round; TLS
 * in between when there is a key. Lives on its loop's thread; conn_move() takes it to another loop while it is quiet.
 */
#ifndef GLEAM_CORE_CONN_H
#define GLEAM_CORE_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/core/loop.h"
#include "broker/core/tls.h"

#define CONN_BACKLOG_HIGH (1u << 20) /* who has more bytes to send waits until drained() */
#define CONN_BACKLOG_MAX  (16u << 20) /* a peer that takes nothing for so long is given up */
#define CONN_WHY_SIZE	  200

struct conn;

struct conn_ops {
	/* Secured (at once without TLS). The owner says hello. */
	void (*up)(void *owner);
	/* What conn_want() asked for is complete. 0, or -errno: the connection closes for conn_blame()'s reason. */
	int (*part)(void *owner);
	/* Backlog has fallen below CONN_BACKLOG_HIGH after a send; may be NULL. */
	void (*drained)(void *owner);
	/* Nothing of it runs any more: the owner frees it. Called once, from the loop, never from within another call. */
	void (*closed)(void *owner, int err, const char *why);
};

/*
 * Takes @fd, also on failure (NULL: out of memory). @keys NULL: cleartext. @accepted: we are the server side of TLS.
 * conn_start() begins.
 */
struct conn *conn_new(struct loop *loop, int fd, struct tls_keys *keys, bool accepted, const struct conn_ops *ops,
		      void *owner);
void conn_start(struct conn *conn);
/* After closed(), in quiet(), or before conn_start(). */
void conn_free(struct conn *conn);

/* The next @size bytes go to @place. Called from up() and part(); @size 0: none are expected, any are a breach. */
void conn_want(struct conn *conn, void *place, size_t size);

/* Copies (or encrypts) @head and @body behind what is waiting. Errors close the connection. */
void conn_send(struct conn *conn, const void *head, size_t head_size, const void *body, size_t body_size);
/*
 * For the lanes' bulk: @head is copied, @body and @tail are sent from where they lie, and stay there until conn_is_lent() is
 * false; drained() is called then. One at a time, and no conn_send() meanwhile. With TLS the first send takes @first bytes of them and each next one
 * twice as many, so that the peer decrypts meanwhile; 0: each as many as it can, which costs least.
 */
void conn_lend(struct conn *conn, const void *head, size_t head_size, const void *body, size_t body_size, const void *tail,
	       size_t tail_size, size_t first);
bool conn_is_lent(const struct conn *conn);
size_t conn_backlog(const struct conn *conn);
/* When bytes last came. */
uint64_t conn_heard_ns(const struct conn *conn);
int conn_fd(const struct conn *conn);
const char *conn_tenant(const struct conn *conn);
bool conn_is_tls(const struct conn *conn);
/* Sent and received bytes, as the owner sees them. */
uint64_t conn_sent(const struct conn *conn);
uint64_t conn_received(const struct conn *conn);

/* Sets the reason that closed() will get, if there is none yet. Returns @err. */
int conn_blame(struct conn *conn, int err, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Ends it: closed() follows. Repeated calls are harmless. */
void conn_close(struct conn *conn, int err, const char *why);
/* Ends it after what was written has gone out, or a short while. */
void conn_close_flushed(struct conn *conn, int err, const char *why);
/* The same, but waits (as long) for the peer, too, to close: what a connection is sent that is closed at once takes what was written with it. */
void conn_close_heard(struct conn *conn, int err, const char *why);

/* Another owner from now on, on the same loop; called from up() or part(). It wants the next bytes. */
void conn_give(struct conn *conn, const struct conn_ops *ops, void *owner);
/* Stops receiving; @quiet is called when nothing of it is in flight, also what was sent. Then it may be freed or adopted. */
void conn_move(struct conn *conn, void (*quiet)(void *owner));
/* On the thread of @loop, for a quiet connection: it goes on there, with another owner, as one that carries bulk. */
void conn_adopt(struct conn *conn, struct loop *loop, const struct conn_ops *ops, void *owner);

#endif
