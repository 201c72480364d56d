/* SPDX-License-Identifier: Apache-2.0 */
/* A client's socket: packets out and in. Control thread; see client.h. */
#include "broker/local/client_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "broker/lib/fd.h"
#include "broker/lib/log.h"
#include "broker/local/broker.h"
#include "broker/local/control.h"

static void client_send_next(struct client *client);

/* ---- packets out ---- */

static void client_send_done(void *arg, int res, uint32_t flags)
{
	struct client *client = arg;
	struct packet *packet = client->out_first;

	client->sending = false;
	client->out_first = packet->next;
	if (!client->out_first)
		client->out_last = &client->out_first;
	free(packet);
	if (res < 0 && client->state != CLIENT_GONE) {
		client_gone(client);
		return;
	}
	if (client->state == CLIENT_GONE)
		client_settle(client);
	else if (client->out_first)
		client_send_next(client);
	else if (client->state == CLIENT_LEAVING)
		client_gone(client);
}

static void client_send_next(struct client *client)
{
	struct packet *packet = client->out_first;
	struct io_uring_sqe *sqe = loop_sqe(client->loop);

	io_uring_prep_sendmsg(sqe, client->fd, &packet->msg, MSG_NOSIGNAL);
	client->send_tag = loop_tag(client->loop, sqe, client_send_done, client);
	client->sending = true;
}

int client_packet(struct client *client, const void *bytes, size_t size, const int *fds, unsigned fd_count)
{
	struct packet *packet;

	if (client->state == CLIENT_GONE || client->state == CLIENT_LEAVING)
		return -EPIPE;
	packet = calloc(1, sizeof(*packet) + size);
	if (!packet)
		return -ENOMEM;
	memcpy(packet->bytes, bytes, size);
	packet->iov = (struct iovec){ .iov_base = packet->bytes, .iov_len = size };
	packet->msg = (struct msghdr){ .msg_iov = &packet->iov, .msg_iovlen = 1 };
	fds_put(&packet->msg, &packet->room, fds, fd_count);
	*client->out_last = packet;
	client->out_last = &packet->next;
	if (!client->sending)
		client_send_next(client);
	return 0;
}

/* The answer to LOCAL_OPEN that isn't a session; then the socket closes. */
void client_refuse(struct client *client, enum session_end end, const char *why)
{
	uint8_t bytes[LINK_TEXT_MAX + 64] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));

	if (client->state != CLIENT_OPENING && client->state != CLIENT_NEW && client->state != CLIENT_RETURNING)
		return;
	log_warn("pid %d (%s) is refused: %s", client->pid, client->program, why);
	client_leave(client, true);
	put_u32(&w, LOCAL_REFUSED);
	put_u32(&w, end);
	put_str(&w, why);
	loop_timer_clear(client->loop, &client->timer);
	loop_timer_clear(client->loop, &client->retry);
	loop_timer_clear(client->loop, &client->again);
	loop_timer_clear(client->loop, &client->pace_timer);
	if (client_packet(client, bytes, w.at, NULL, 0)) {
		client_gone(client);
		return;
	}
	client->state = CLIENT_LEAVING;
}

/* ---- packets in ---- */

/* There is no cache for it. */
static int client_file_none(struct client *client, uint32_t number)
{
	uint8_t bytes[64] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));

	put_u32(&w, LOCAL_FILE_KNOWN);
	put_u32(&w, number);
	put_u32(&w, EOPNOTSUPP);
	put_u64(&w, 0);
	put_u64(&w, 0);
	put_u64(&w, 0);
	put_u32(&w, 0);
	put_bytes(&w, NULL, 0);
	return client_packet(client, bytes, w.at, NULL, 0);
}

/* Takes @fd. */
static int client_file(struct client *client, struct reader *r, int fd)
{
	uint32_t number = get_u32(r);

	/* What goes straight to a worker of this machine passes nobody who could send references. */
	if (!r->fault && client->cache && !client->direct)
		return cache_client_file(client->cache, server_cache(client->server), number, fd);
	fd_close(&fd);
	return r->fault ? -EPROTO : client_file_none(client, number);
}

/* Takes @fd, which came along, or -1. */
static void client_packet_take(struct client *client, size_t size, int fd)
{
	struct reader r = reader_on(client->packet, size);
	uint32_t type = get_u32(&r);

	if (type == LOCAL_FILE && client->state == CLIENT_LIVE) {
		if (client_file(client, &r, fd) == 0)
			return;
		fd = -1;
	}
	bool verdict = type == LOCAL_VERDICT || type == LOCAL_VERDICT_KEEP || type == LOCAL_VERDICT_MORE;

	if (verdict && client->state == CLIENT_LIVE && client_verdict(client, type, &r) == 0) {
		fd_close(&fd);
		return;
	}
	/* One that has died meanwhile asks in vain. */
	if ((type == LOCAL_FILE || verdict) && client->state == CLIENT_DEAD) {
		fd_close(&fd);
		return;
	}
	if (type == LOCAL_RETURN && client->state == CLIENT_NEW) {
		if (client_return(client, &r, fd) == 0)
			return;
		fd = -1;
	}
	if (type != LOCAL_CONTROL)
		fd_close(&fd);
	if (type == LOCAL_OPEN && client->state == CLIENT_NEW) {
		if (client_open(client, &r) == 0)
			return;
	} else if (type == LOCAL_CONTROL && (client->state == CLIENT_NEW || client->state == CLIENT_ASKING)) {
		const char *request = get_str(&r, LOCAL_MSG_MAX);

		client->state = CLIENT_ASKING;
		loop_timer_clear(client->loop, &client->timer);
		if (!r.fault && control_answer(client->broker, client, client->uid, request, fd) == 0)
			return;
		if (!r.fault)
			fd = -1;
	}
	if (type == LOCAL_GPUS && (client->state == CLIENT_NEW || client->state == CLIENT_ASKING)) {
		const char *server = get_str(&r, LOCAL_MSG_MAX);

		client->state = CLIENT_ASKING;
		loop_timer_clear(client->loop, &client->timer);
		if (!r.fault && control_gpus(client->broker, client, client->uid, server) == 0)
			return;
	}
	fd_close(&fd);
	log_warn("pid %d: not a packet that gleamd knows (type %u, %zu bytes): closed", client->pid, type, size);
	client_end(client, END_PROTOCOL, "an unknown packet on its socket");
	client_gone(client);
}

static void client_recv_done(void *arg, int res, uint32_t flags)
{
	struct client *client = arg;
	int fd = -1;

	client->receiving = false;
	/* Also with a packet of nothing, and whatever becomes of it. */
	if (res >= 0)
		fds_take(&client->recv_msg, &fd, 1);
	if (client->state == CLIENT_GONE) {
		fd_close(&fd);
		client_settle(client);
		return;
	}
	if (res == -EINTR || res == -EAGAIN) {
		client_recv_arm(client);
		return;
	}
	if (res <= 0) {
		fd_close(&fd);
		client_gone(client);
		return;
	}
	/* MSG_TRUNC: the length that it had. */
	if ((size_t)res > LOCAL_MSG_MAX) {
		fd_close(&fd);
		client_gone(client);
	} else {
		client_packet_take(client, (size_t)res, fd);
	}
	if (client->state == CLIENT_GONE)
		client_settle(client);
	else
		client_recv_arm(client);
}

void client_recv_arm(struct client *client)
{
	struct io_uring_sqe *sqe = loop_sqe(client->loop);

	client->recv_iov = (struct iovec){ .iov_base = client->packet, .iov_len = LOCAL_MSG_MAX };
	client->recv_msg = (struct msghdr){ .msg_iov = &client->recv_iov, .msg_iovlen = 1, .msg_control = &client->recv_room,
					    .msg_controllen = sizeof(client->recv_room) };
	io_uring_prep_recvmsg(sqe, client->fd, &client->recv_msg, MSG_TRUNC | MSG_CMSG_CLOEXEC);
	client->recv_tag = loop_tag(client->loop, sqe, client_recv_done, client);
	client->receiving = true;
}
