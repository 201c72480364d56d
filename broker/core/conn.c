/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream connection. On its loop's thread; see conn.h.
 *
 * Out: conn_send() -> plain (gathers small messages) -> [TLS] -> wire -> sending (one send in flight). Without TLS plain
 * is the wire. In: received chunk -> [TLS] -> where the owner wants it.
 *
 * A bulk lane's connection touches each byte as seldom as it can. Out: what is lent goes into the socket from where it lies, or is
 * encrypted from there in pieces that stay in a core's cache until the socket has them. In: without TLS the kernel writes to where
 * the owner wants it; with TLS a record is decrypted to there.
 */
#include "broker/core/conn.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/fd.h"

#define OUT_SIZE	(64u << 10)
#define RECORD_MAX	(16u << 10)	    /* of TLS: small messages are gathered up to this */
#define BULK_CHUNK	(256u << 10)	    /* encrypted ahead of a send, and asked for in a receive: two of them fit into a core's cache */
#define BULK_STRAIGHT	(32u << 10)	    /* wanted bytes that are worth a receive of their own */
#define CLOSE_FLUSH_NS	(1 * NS_PER_S)	    /* for the last words to a peer that is to be closed */

/*
 * OPEN: bytes flow. MOVING: no more receives; waits until nothing is in flight. QUIET: nothing is. LAST_WORDS: as OPEN, but
 * input is ignored and it closes when all is sent (and the peer has closed, if it lingers). CLOSING: operations are cancelled; waits for their end. CLOSED: told.
 */
enum conn_state { CONN_NEW, CONN_OPEN, CONN_MOVING, CONN_QUIET, CONN_LAST_WORDS, CONN_CLOSING, CONN_CLOSED };

struct out {
	uint8_t *bytes;
	size_t at;
	size_t size;
	size_t max;
};

struct conn {
	struct loop *loop;
	int fd;
	enum conn_state state;
	const struct conn_ops *ops;
	void *owner;
	struct tls *tls;
	bool secured;

	/* in */
	uint8_t *want;
	size_t want_size;
	size_t got;
	uint8_t *own_buf; /* where the loop lends none; BULK_CHUNK bytes of a bulk connection */
	bool bulk;
	struct iovec straight[2]; /* of the receive in flight: what is wanted, and what comes behind it */
	struct msghdr straight_msg;
	uint64_t recv_tag;
	bool receiving;
	bool one_shot; /* multishot receive is refused by this kernel */
	uint64_t heard_ns;
	uint64_t received;

	/* out */
	struct out plain;
	struct out wire;
	struct out sending;
	struct iovec lent[2];	/* body and tail: what is left of them */
	size_t lent_chunk;	/* with TLS: so much of them goes into the next send */
	bool lent_flying;	/* without TLS: they are in the send in flight */
	struct iovec gather[3]; /* of that send */
	struct msghdr gather_msg;
	uint64_t send_tag;
	bool send_busy;
	uint64_t sent;
	struct loop_flush flush;

	bool lingers;
	bool said; /* all is sent, and that there is no more */
	struct loop_timer timer;
	void (*quiet)(void *owner);
	struct loop_post post;
	bool posted;
	int err;
	char why[CONN_WHY_SIZE];
};

static void conn_recv_arm(struct conn *conn);
static void conn_flush(struct conn *conn);

/* ---- buffers ---- */

static int out_grow(struct out *out, size_t size)
{
	if (size > out->max - out->size) {
		size_t max = out->max ? out->max : OUT_SIZE;

		while (size > max - out->size)
			max *= 2;
		if (max > 2 * CONN_BACKLOG_MAX)
			return -ENOBUFS;

		uint8_t *grown = realloc(out->bytes, max);

		if (!grown)
			return -ENOMEM;
		out->bytes = grown;
		out->max = max;
	}
	return 0;
}

static int out_put(struct out *out, const void *bytes, size_t size)
{
	int err = out_grow(out, size);

	if (err)
		return err;
	memcpy(out->bytes + out->size, bytes, size);
	out->size += size;
	return 0;
}

static uint8_t *conn_room(void *arg, size_t size)
{
	struct out *wire = &((struct conn *)arg)->wire;

	if (out_grow(wire, size))
		return NULL;
	wire->size += size;
	return wire->bytes + wire->size - size;
}

/* ---- making and ending ---- */

static void conn_flush_run(struct loop_flush *flush)
{
	struct conn *conn = (struct conn *)((char *)flush - offsetof(struct conn, flush));

	conn_flush(conn);
}

static void conn_late(void *arg)
{
	struct conn *conn = arg;

	conn_close(conn, conn->err, conn->why);
}

struct conn *conn_new(struct loop *loop, int fd, struct tls_keys *keys, bool accepted, const struct conn_ops *ops,
		      void *owner)
{
	struct conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		goto close_fd;
	conn->loop = loop;
	conn->fd = fd;
	conn->ops = ops;
	conn->owner = owner;
	conn->flush.run = conn_flush_run;
	conn->timer.fire = conn_late;
	conn->timer.arg = conn;
	if (!loop_has_bufs(loop)) {
		conn->own_buf = malloc(LOOP_BUF_SIZE);
		if (!conn->own_buf)
			goto free_conn;
	}
	if (keys) {
		conn->tls = tls_new(keys, accepted, conn_room, conn);
		if (!conn->tls)
			goto free_conn;
	}
	return conn;

free_conn:
	free(conn->own_buf);
	free(conn);
close_fd:
	close(fd);
	return NULL;
}

void conn_free(struct conn *conn)
{
	if (!conn)
		return;
	assert(!conn->receiving && !conn->send_busy && !conn->posted);
	loop_timer_clear(conn->loop, &conn->timer);
	loop_flush_forget(conn->loop, &conn->flush);
	tls_free(conn->tls);
	fd_close(&conn->fd);
	free(conn->own_buf);
	free(conn->plain.bytes);
	free(conn->wire.bytes);
	free(conn->sending.bytes);
	free(conn);
}

int conn_blame(struct conn *conn, int err, const char *format, ...)
{
	va_list args;

	if (conn->why[0] == 0) {
		va_start(args, format);
		vsnprintf(conn->why, sizeof(conn->why), format, args);
		va_end(args);
	}
	return err;
}

static void conn_told(struct loop_post *post)
{
	struct conn *conn = (struct conn *)((char *)post - offsetof(struct conn, post));

	conn->posted = false;
	if (conn->state == CONN_QUIET) {
		conn->quiet(conn->owner);
		return;
	}
	conn->state = CONN_CLOSED;
	conn->ops->closed(conn->owner, conn->err, conn->why);
}

/* Nothing in flight any more: tells the owner, from the loop. */
static void conn_settle(struct conn *conn)
{
	if (conn->receiving || conn->send_busy || conn->posted)
		return;
	if (conn->state == CONN_MOVING && conn->plain.size == 0 && conn->wire.size == 0 && conn->sending.size == 0)
		conn->state = CONN_QUIET;
	else if (conn->state != CONN_CLOSING)
		return;
	conn->posted = true;
	conn->post.run = conn_told;
	loop_post(conn->loop, &conn->post);
}

void conn_close(struct conn *conn, int err, const char *why)
{
	if (conn->state == CONN_CLOSING || conn->state == CONN_CLOSED)
		return;
	conn_blame(conn, err, "%s", why ? why : "");
	if (conn->state != CONN_LAST_WORDS)
		conn->err = err;
	conn->state = CONN_CLOSING;
	loop_timer_clear(conn->loop, &conn->timer);
	/* Ends what the kernel has in hand, and tells the peer. */
	shutdown(conn->fd, SHUT_RDWR);
	if (conn->receiving)
		loop_cancel(conn->loop, conn->recv_tag);
	if (conn->send_busy)
		loop_cancel(conn->loop, conn->send_tag);
	conn_settle(conn);
}

void conn_close_flushed(struct conn *conn, int err, const char *why)
{
	if (conn->state == CONN_CLOSING || conn->state == CONN_CLOSED || conn->state == CONN_LAST_WORDS)
		return;
	conn_blame(conn, err, "%s", why ? why : "");
	conn->err = err;
	conn->state = CONN_LAST_WORDS;
	loop_timer_set(conn->loop, &conn->timer, loop_now_ns(conn->loop) + CLOSE_FLUSH_NS);
	loop_flush_later(conn->loop, &conn->flush);
}

/*
 * A socket that is closed with bytes in it that nobody has read, or that gets more, tells the peer by a reset. What has not arrived by
 * then, or lies in somebody's hands on the way, is lost.
 */
void conn_close_heard(struct conn *conn, int err, const char *why)
{
	conn->lingers = true;
	conn_close_flushed(conn, err, why);
}

static void conn_all_said(struct conn *conn)
{
	if (!conn->lingers) {
		conn_close(conn, conn->err, conn->why);
		return;
	}
	if (conn->said)
		return;
	conn->said = true;
	shutdown(conn->fd, SHUT_WR);
	if (!conn->receiving)
		conn_recv_arm(conn);
}

/* ---- out ---- */

/* @size bytes have gone: first of what was gathered, then of what is lent. */
static void conn_went_out(struct conn *conn, size_t size)
{
	size_t part = conn->sending.size - conn->sending.at;

	part = size < part ? size : part;
	conn->sending.at += part;
	size -= part;
	if (conn->sending.at == conn->sending.size)
		conn->sending.at = conn->sending.size = 0;
	for (int i = 0; i < 2 && conn->lent_flying; i++) {
		part = size < conn->lent[i].iov_len ? size : conn->lent[i].iov_len;
		conn->lent[i].iov_base = (uint8_t *)conn->lent[i].iov_base + part;
		conn->lent[i].iov_len -= part;
		size -= part;
	}
	conn->lent_flying = false;
}

static void conn_send_done(void *arg, int res, uint32_t flags)
{
	struct conn *conn = arg;

	conn->send_busy = false;
	if (conn->state == CONN_CLOSING) {
		conn_settle(conn);
		return;
	}
	if (res == -EINTR || res == -EAGAIN)
		res = 0;
	if (res < 0) {
		conn_close(conn, res, strerror(-res));
		return;
	}
	conn_went_out(conn, (size_t)res);
	conn_flush(conn);
	if (conn->state == CONN_OPEN && conn->ops->drained && conn_backlog(conn) < CONN_BACKLOG_HIGH)
		conn->ops->drained(conn->owner);
}

static void out_swap(struct out *a, struct out *b)
{
	struct out c = *a;

	*a = *b;
	*b = c;
}

/* Encrypts what was gathered. */
static int conn_seal(struct conn *conn)
{
	int err = tls_write(conn->tls, conn->plain.bytes, conn->plain.size);

	conn->plain.size = 0;
	return err;
}

/* Encrypts what is lent, as much as one send takes. */
static int conn_seal_lent(struct conn *conn)
{
	int err = 0;

	for (int i = 0; i < 2 && !err; i++) {
		while (conn->lent[i].iov_len && conn->wire.size < conn->lent_chunk && !err) {
			size_t room = conn->lent_chunk - conn->wire.size;
			size_t part = conn->lent[i].iov_len < room ? conn->lent[i].iov_len : room;

			/* Whole records, but for the last one. */
			if (part < conn->lent[i].iov_len)
				part = part > RECORD_MAX ? part & ~(size_t)(RECORD_MAX - 1) : RECORD_MAX;
			if (part > conn->lent[i].iov_len)
				part = conn->lent[i].iov_len;
			err = tls_write(conn->tls, conn->lent[i].iov_base, part);
			conn->lent[i].iov_base = (uint8_t *)conn->lent[i].iov_base + part;
			conn->lent[i].iov_len -= part;
		}
	}
	conn->lent_chunk = 2 * conn->lent_chunk < BULK_CHUNK ? 2 * conn->lent_chunk : BULK_CHUNK;
	return err;
}

/* What was gathered, and what is lent, with one call. */
static void conn_gather(struct conn *conn, struct io_uring_sqe *sqe)
{
	unsigned count = 0;

	if (conn->sending.size)
		conn->gather[count++] = (struct iovec){ .iov_base = conn->sending.bytes + conn->sending.at,
							.iov_len = conn->sending.size - conn->sending.at };
	for (int i = 0; i < 2; i++)
		if (conn->lent[i].iov_len)
			conn->gather[count++] = conn->lent[i];
	conn->gather_msg = (struct msghdr){ .msg_iov = conn->gather, .msg_iovlen = count };
	conn->lent_flying = true;
	io_uring_prep_sendmsg(sqe, conn->fd, &conn->gather_msg, MSG_NOSIGNAL | MSG_WAITALL);
}

static void conn_flush(struct conn *conn)
{
	bool lent;

	if (conn->state == CONN_CLOSING || conn->state == CONN_CLOSED || conn->state == CONN_QUIET || conn->send_busy)
		return;
	if (conn->sending.size == 0) {
		int err = 0;

		if (conn->tls && conn->secured && conn->plain.size)
			err = conn_seal(conn);
		if (!err && conn->tls && conn_is_lent(conn))
			err = conn_seal_lent(conn);
		if (err) {
			conn_close(conn, err == -ENOMEM ? err : -EIO,
				   err == -ENOMEM ? "no memory for what is to be sent" : "encrypting failed");
			return;
		}
		out_swap(&conn->sending, conn->tls ? &conn->wire : &conn->plain);
	}
	lent = !conn->tls && conn_is_lent(conn);
	if (conn->sending.size == 0 && !lent) {
		if (conn->state == CONN_LAST_WORDS)
			conn_all_said(conn);
		else
			conn_settle(conn);
		return;
	}

	struct io_uring_sqe *sqe = loop_sqe(conn->loop);

	if (lent)
		conn_gather(conn, sqe);
	else
		io_uring_prep_send(sqe, conn->fd, conn->sending.bytes + conn->sending.at,
				   conn->sending.size - conn->sending.at, MSG_NOSIGNAL | MSG_WAITALL);
	conn->send_tag = loop_tag(conn->loop, sqe, conn_send_done, conn);
	conn->send_busy = true;
}

void conn_lend(struct conn *conn, const void *head, size_t head_size, const void *body, size_t body_size, const void *tail,
	       size_t tail_size, size_t first)
{
	assert(!conn_is_lent(conn));
	conn_send(conn, head, head_size, NULL, 0);
	if (conn->state != CONN_OPEN)
		return;
	conn->sent += body_size + tail_size;
	conn->lent[0] = (struct iovec){ .iov_base = (void *)(uintptr_t)body, .iov_len = body_size };
	conn->lent[1] = (struct iovec){ .iov_base = (void *)(uintptr_t)tail, .iov_len = tail_size };
	conn->lent_chunk = first ? first : BULK_CHUNK;
}

bool conn_is_lent(const struct conn *conn)
{
	return conn->lent_flying || conn->lent[0].iov_len || conn->lent[1].iov_len;
}

void conn_send(struct conn *conn, const void *head, size_t head_size, const void *body, size_t body_size)
{
	int err;

	assert(!conn_is_lent(conn));
	if (conn->state != CONN_OPEN)
		return;
	if (conn_backlog(conn) > CONN_BACKLOG_MAX) {
		conn_close(conn, -ENOBUFS, "the peer takes no bytes");
		return;
	}
	conn->sent += head_size + body_size;
	err = out_put(&conn->plain, head, head_size);
	if (!err && body_size) {
		if (conn->tls && conn->plain.size + body_size > RECORD_MAX) {
			/* Large bytes are encrypted from where they lie. */
			err = conn_seal(conn);
			if (!err)
				err = tls_write(conn->tls, body, body_size);
		} else {
			err = out_put(&conn->plain, body, body_size);
		}
	}
	if (!err && conn->tls && conn->plain.size >= RECORD_MAX)
		err = conn_seal(conn);
	if (err) {
		conn_close(conn, err, "no memory for what is to be sent");
		return;
	}
	loop_flush_later(conn->loop, &conn->flush);
}

size_t conn_backlog(const struct conn *conn)
{
	return conn->plain.size + conn->wire.size + conn->sending.size - conn->sending.at;
}

/* ---- in ---- */

static void conn_secured(struct conn *conn)
{
	conn->secured = true;
	conn->ops->up(conn->owner);
}

/* What is wanted is complete: the owner takes it, and wants the next. */
static int conn_part(struct conn *conn)
{
	conn->got = 0;
	conn->want_size = 0;

	int err = conn->ops->part(conn->owner);

	return err ? conn_blame(conn, err, "%s", strerror(-err)) : 0;
}

/* One chunk, or -errno with the reason blamed. */
static int conn_input(struct conn *conn, const uint8_t *bytes, size_t size)
{
	if (conn->tls) {
		tls_feed(conn->tls, bytes, size);
		if (!conn->secured) {
			int ret = tls_handshake(conn->tls);

			loop_flush_later(conn->loop, &conn->flush);
			if (ret < 0)
				return conn_blame(conn, ret, "no handshake: %s", tls_why(conn->tls));
			if (ret == 0)
				return 0;
			conn_secured(conn);
		}
	}
	while (conn->state == CONN_OPEN || conn->state == CONN_MOVING) {
		uint8_t spare;
		uint8_t *place = conn->want_size ? conn->want + conn->got : &spare;
		size_t need = conn->want_size ? conn->want_size - conn->got : 1;
		int64_t n;

		if (conn->tls) {
			n = tls_read(conn->tls, place, need);
			if (n < 0)
				return conn_blame(conn, (int)n, "%s", tls_why(conn->tls));
		} else {
			n = (int64_t)(size < need ? size : need);
			if (n)
				memcpy(place, bytes, (size_t)n);
			bytes += n;
			size -= (size_t)n;
		}
		if (n == 0)
			return 0;
		if (conn->want_size == 0)
			return conn_blame(conn, -EPROTO, "bytes before they were asked for");
		conn->received += (uint64_t)n;
		conn->got += (size_t)n;
		if (conn->got < conn->want_size)
			continue;

		int err = conn_part(conn);

		if (err)
			return err;
	}
	return 0;
}

/* Bytes of which the first lie where they were wanted already. */
static int conn_input_straight(struct conn *conn, size_t size)
{
	size_t part = size < conn->straight[0].iov_len ? size : conn->straight[0].iov_len;
	int err = 0;

	if (conn->state != CONN_OPEN)
		return 0;
	conn->received += part;
	conn->got += part;
	if (conn->got == conn->want_size)
		err = conn_part(conn);
	return err || size == part ? err : conn_input(conn, conn->own_buf, size - part);
}

static void conn_recv_done(void *arg, int res, uint32_t flags)
{
	struct conn *conn = arg;
	const uint8_t *bytes = conn->own_buf;
	uint16_t id = 0;
	bool lent = flags & IORING_CQE_F_BUFFER;
	bool straight = conn->straight[0].iov_len != 0;
	int err = 0;

	if (!(flags & IORING_CQE_F_MORE))
		conn->receiving = false;
	if (lent)
		bytes = loop_buf(conn->loop, flags, &id);
	if (res > 0 && conn->state != CONN_LAST_WORDS) {
		conn->heard_ns = loop_now_ns(conn->loop);
		err = straight ? conn_input_straight(conn, (size_t)res) : conn_input(conn, bytes, (size_t)res);
	}
	if (lent)
		loop_buf_give(conn->loop, id);
	if (conn->state == CONN_CLOSING || conn->state == CONN_MOVING) {
		if (err)
			conn_close(conn, err, NULL);
		else if (conn->state == CONN_MOVING && (res == 0 || (res < 0 && res != -ECANCELED && res != -ENOBUFS)))
			conn_close(conn, res ? res : -EPIPE, res ? strerror(-res) : "closed by the peer");
		conn_settle(conn);
		return;
	}
	if (err) {
		/* What TLS has to say (an alert) goes out; we add nothing. */
		conn_close_flushed(conn, err, NULL);
		return;
	}
	if (res == 0 && (conn->state != CONN_LAST_WORDS || conn->said)) {
		conn_close(conn, -EPIPE, "closed by the peer");
		return;
	}
	if (res == -EINVAL && !conn->one_shot) {
		/* Multishot receive came with 6.0. */
		conn->one_shot = true;
		if (!conn->own_buf)
			conn->own_buf = malloc(LOOP_BUF_SIZE);
		res = conn->own_buf ? -EAGAIN : -ENOMEM;
	}
	if (res < 0 && res != -EINTR && res != -EAGAIN && res != -ENOBUFS) {
		conn_close(conn, res, strerror(-res));
		return;
	}
	if (!conn->receiving && (conn->state == CONN_OPEN || conn->said))
		conn_recv_arm(conn);
}

static void conn_recv_arm(struct conn *conn)
{
	struct io_uring_sqe *sqe = loop_sqe(conn->loop);
	size_t left = conn->want_size - conn->got;

	conn->straight[0].iov_len = 0;
	if (conn->bulk && !conn->tls && left >= BULK_STRAIGHT && conn->state == CONN_OPEN) {
		/* What comes behind is a header, of which a little more is taken along. */
		conn->straight[0] = (struct iovec){ .iov_base = conn->want + conn->got, .iov_len = left };
		conn->straight[1] = (struct iovec){ .iov_base = conn->own_buf, .iov_len = BULK_STRAIGHT };
		conn->straight_msg = (struct msghdr){ .msg_iov = conn->straight, .msg_iovlen = 2 };
		io_uring_prep_recvmsg(sqe, conn->fd, &conn->straight_msg, 0);
	} else if (conn->bulk) {
		io_uring_prep_recv(sqe, conn->fd, conn->own_buf, conn->tls ? BULK_CHUNK : BULK_STRAIGHT, 0);
	} else if (loop_has_bufs(conn->loop) && !conn->one_shot) {
		io_uring_prep_recv_multishot(sqe, conn->fd, NULL, 0, 0);
		sqe->flags |= IOSQE_BUFFER_SELECT;
		sqe->buf_group = LOOP_BUF_GROUP;
	} else {
		io_uring_prep_recv(sqe, conn->fd, conn->own_buf, LOOP_BUF_SIZE, 0);
	}
	conn->recv_tag = loop_tag(conn->loop, sqe, conn_recv_done, conn);
	conn->receiving = true;
}

void conn_want(struct conn *conn, void *place, size_t size)
{
	conn->want = place;
	conn->want_size = size;
	conn->got = 0;
}

void conn_start(struct conn *conn)
{
	conn->state = CONN_OPEN;
	conn->heard_ns = loop_now_ns(conn->loop);
	conn_recv_arm(conn);
	if (!conn->tls) {
		conn_secured(conn);
		return;
	}
	/* A client speaks first; a server has nothing to say yet. */
	if (tls_handshake(conn->tls) < 0)
		conn_close(conn, -EACCES, tls_why(conn->tls));
	else
		loop_flush_later(conn->loop, &conn->flush);
}

/* ---- moving ---- */

void conn_give(struct conn *conn, const struct conn_ops *ops, void *owner)
{
	conn->ops = ops;
	conn->owner = owner;
}

void conn_move(struct conn *conn, void (*quiet)(void *owner))
{
	if (conn->state != CONN_OPEN)
		return;
	conn->state = CONN_MOVING;
	conn->quiet = quiet;
	if (conn->receiving)
		loop_cancel(conn->loop, conn->recv_tag);
	loop_flush_later(conn->loop, &conn->flush);
}

void conn_adopt(struct conn *conn, struct loop *loop, const struct conn_ops *ops, void *owner)
{
	assert(conn->state == CONN_QUIET);
	conn->loop = loop;
	conn->ops = ops;
	conn->owner = owner;
	conn->state = CONN_OPEN;
	conn->bulk = true;
	free(conn->own_buf);
	conn->own_buf = malloc(BULK_CHUNK);
	if (!conn->own_buf) {
		conn_close(conn, -ENOMEM, "out of memory");
		return;
	}
	conn_recv_arm(conn);
}

uint64_t conn_heard_ns(const struct conn *conn)
{
	return conn->heard_ns;
}

int conn_fd(const struct conn *conn)
{
	return conn->fd;
}

const char *conn_tenant(const struct conn *conn)
{
	return conn->tls ? tls_tenant(conn->tls) : "";
}

bool conn_is_tls(const struct conn *conn)
{
	return conn->tls != NULL;
}

uint64_t conn_sent(const struct conn *conn)
{
	return conn->sent;
}

uint64_t conn_received(const struct conn *conn)
{
	return conn->received;
}
