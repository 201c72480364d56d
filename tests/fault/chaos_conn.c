/* SPDX-License-Identifier: Apache-2.0 */
/* The connections that gleam-chaos carries; see chaos_conn.h. */
#include "tests/fault/chaos_conn.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000u
/* Pieces written before other connections have their turn. */
#define WRITE_BATCH 64

uint64_t conn_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void conn_watch(struct conn_table *table, struct conn *conn, int side, uint32_t events)
{
	struct epoll_event event = { .events = events,
				     .data.u64 = CONN_EVENT + (conn - table->conn) * 2 + side };

	if (conn->fd[side] < 0 || conn->broken[side] || events == conn->watched[side])
		return;
	/*
	 * A descriptor nobody waits for leaves epoll, which would report its hang-up over and over. It comes
	 * back with the first thing to wait for, and the hang-up is noticed then.
	 */
	if (!events)
		epoll_ctl(table->epoll_fd, EPOLL_CTL_DEL, conn->fd[side], NULL);
	else
		epoll_ctl(table->epoll_fd, conn->watched[side] ? EPOLL_CTL_MOD : EPOLL_CTL_ADD,
			  conn->fd[side], &event);
	conn->watched[side] = events;
}

void conn_free(struct conn_table *table, struct conn *conn)
{
	for (int side = 0; side < 2; side++) {
		if (conn->fd[side] >= 0)
			close(conn->fd[side]);
		table->flipped[side] += conn->pipe[side] ? conn->pipe[side]->flipped : 0;
		free(conn->pipe[side]);
	}
	memset(conn, 0, sizeof(*conn));
	conn->fd[0] = conn->fd[1] = -1;
}

/* Closing with this option sends a reset instead of an orderly end. */
static void conn_reset(struct conn_table *table, struct conn *conn)
{
	struct linger linger = { .l_onoff = 1, .l_linger = 0 };

	for (int side = 0; side < 2; side++)
		if (conn->fd[side] >= 0)
			setsockopt(conn->fd[side], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	table->reset_total++;
	conn_free(table, conn);
}

struct conn *conn_new(struct conn_table *table, int client_fd)
{
	struct conn *conn = NULL;
	struct pipe *up, *down;
	int yes = 1;

	for (int i = 0; i < CONN_MAX && !conn; i++)
		if (!table->conn[i].used)
			conn = &table->conn[i];
	up = malloc(sizeof(*up));
	down = malloc(sizeof(*down));
	if (!conn || !up || !down) {
		free(up);
		free(down);
		return NULL;
	}
	/* The n-th connection's luck depends on the seed and n, whatever happened to the others. */
	pipe_init(up, &table->lane[CHAOS_UP], table->seed + 4 * table->total);
	pipe_init(down, &table->lane[CHAOS_DOWN], table->seed + 4 * table->total + 2);
	if (table->total >= table->times) {
		pipe_forgive(up);
		pipe_forgive(down);
	}
	table->total++;
	memset(conn, 0, sizeof(*conn));
	conn->used = true;
	conn->fd[0] = client_fd;
	conn->fd[1] = -1;
	conn->pipe[0] = up;
	conn->pipe[1] = down;
	setsockopt(client_fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	return conn;
}

void conn_dial(struct conn_table *table, struct conn *conn)
{
	int yes = 1, fd;

	fd = socket(table->target.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		conn->doomed = true;
		return;
	}
	conn->fd[1] = fd;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	if (connect(fd, (struct sockaddr *)&table->target, table->target_size) == 0)
		return;
	if (errno == EINPROGRESS)
		conn->connecting = true;
	else
		conn->doomed = true;
}

/* Reads what @side has, as far as there is room and nothing holds it back. */
static void conn_read(struct conn_table *table, struct conn *conn, int side)
{
	static uint8_t waste[64 << 10];
	struct pipe *pipe = conn->pipe[side];
	bool swallow = table->swallow[side];
	uint8_t *where = waste;
	size_t room = swallow ? sizeof(waste) : pipe_room(pipe, &where);
	ssize_t size;

	if (!room)
		return;
	size = read(conn->fd[side], where, room);
	if (size > 0 && swallow) {
		table->swallowed[side] += size;
	} else if (size > 0) {
		pipe_put(pipe, size, conn_now_ns());
		table->bytes[side] += size;
	} else if (size == 0) {
		conn->ended[side] = true;
	} else if (errno != EAGAIN && errno != EINTR) {
		conn->doomed = true;
	}
}

/* Passes on what @side has sent and is due. */
static void conn_write(struct conn *conn, int side)
{
	struct pipe *pipe = conn->pipe[side];
	const uint8_t *data;

	for (int i = 0; i < WRITE_BATCH; i++) {
		uint64_t now = conn_now_ns();
		size_t size = pipe_ready(pipe, now, &data);
		ssize_t sent;

		if (!size)
			break;
		sent = send(conn->fd[!side], data, size, MSG_NOSIGNAL);
		if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
			conn->blocked[!side] = true;
			return;
		}
		if (sent < 0) {
			conn->doomed = true;
			return;
		}
		conn->blocked[!side] = false;
		pipe_took(pipe, sent, now);
	}
	if (pipe_cut_now(pipe))
		conn->doomed = true;
}

static bool holds_back(const struct conn_table *table, int side)
{
	return table->stall[side];
}

/* After every round: passes on what is due, tells ends on, and renews what is waited for. */
void conn_settle(struct conn_table *table, struct conn *conn)
{
	uint8_t *where;

	for (int side = 0; side < 2 && !conn->doomed && !conn->closing; side++) {
		bool reachable = conn->fd[!side] >= 0 && !conn->connecting && !conn->broken[!side];

		if (holds_back(table, side))
			continue;
		if (conn->broken[side]) {
			conn->doomed = true;
			break;
		}
		if (!reachable)
			continue;
		if (!conn->blocked[!side])
			conn_write(conn, side);
		if (conn->ended[side] && !conn->ended_on[side] && pipe_empty(conn->pipe[side]) &&
		    !table->swallow[side]) {
			shutdown(conn->fd[!side], SHUT_WR);
			conn->ended_on[side] = true;
		}
	}
	if (conn->doomed) {
		conn_reset(table, conn);
		return;
	}
	if (conn->closing || (conn->ended_on[0] && conn->ended_on[1])) {
		conn_free(table, conn);
		return;
	}
	for (int side = 0; side < 2; side++) {
		uint32_t events = 0;

		if (side == 1 && conn->connecting)
			events = EPOLLOUT;
		else if (conn->fd[1] < 0)
			events = EPOLLRDHUP; /* of a client that is led nowhere only its end matters */
		else if (!conn->ended[side] && !holds_back(table, side) &&
			 (table->swallow[side] || pipe_room(conn->pipe[side], &where)))
			events = EPOLLIN;
		if (conn->blocked[side] && !holds_back(table, !side))
			events |= EPOLLOUT;
		conn_watch(table, conn, side, events);
	}
}

uint64_t conn_next_ns(const struct conn_table *table, const struct conn *conn)
{
	uint64_t next = PIPE_NEVER;

	for (int side = 0; side < 2; side++)
		if (!holds_back(table, side) && !conn->blocked[!side] && !conn->connecting &&
		    conn->fd[1] >= 0 && pipe_next_ns(conn->pipe[side]) < next)
			next = pipe_next_ns(conn->pipe[side]);
	return next;
}

void conn_event(struct conn_table *table, uint32_t which, uint32_t events)
{
	struct conn *conn = &table->conn[which / 2];
	int side = which % 2;
	int err = 0;
	socklen_t size = sizeof(err);

	if (!conn->used || conn->doomed)
		return;
	if (side == 1 && conn->connecting) {
		getsockopt(conn->fd[1], SOL_SOCKET, SO_ERROR, &err, &size);
		conn->connecting = false;
		if (err)
			conn->doomed = true;
		return;
	}
	if (conn->fd[1] < 0) {
		conn->doomed = true;
		return;
	}
	if (events & EPOLLOUT)
		conn->blocked[side] = false;
	if (events & EPOLLIN)
		conn_read(table, conn, side);
	else if (events & (EPOLLERR | EPOLLHUP)) {
		/* A peer that is gone; told on unless this direction is held back, then when it flows again.
		 */
		conn_watch(table, conn, side, 0);
		conn->broken[side] = true;
	}
}
