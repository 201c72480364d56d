/* SPDX-License-Identifier: Apache-2.0 */
/* The proxy of gleam-chaos; see chaos_proxy.h. */
#include "tests/fault/chaos_proxy.h"
#include "tests/lib/control.h"
#include "tests/lib/value.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000u
#define EVENTS_AT_ONCE 64
#define CONTROL_CONN_MAX 8
/* Pieces written before other connections have their turn. */
#define WRITE_BATCH 64
#define LISTEN_BACKLOG 64

/* epoll's user data: the upper half says what, the lower which. */
enum what { WHAT_LISTEN, WHAT_SIGNAL, WHAT_TIMER, WHAT_CONTROL, WHAT_CONTROL_CONN, WHAT_CONN };

/* Side 0 is the client, side 1 the target; what side i sends goes into pipe i. */
struct conn {
	int fd[2];		/* -1: closed */
	bool used;
	bool connecting;	/* to the target */
	bool doomed;		/* reset both sides at the end of this round */
	bool closing;		/* close both sides then */
	bool ended[2];		/* this side has sent its last byte */
	bool ended_on[2];	/* and the other side has been told */
	bool broken[2];		/* reset by its peer, and the descriptor is out of epoll */
	bool blocked[2];	/* the last write to this side would have blocked */
	uint32_t watched[2];	/* what epoll waits for; 0: not in epoll */
	struct pipe *pipe[2];
};

struct proxy {
	struct proxy_conf conf;
	int epoll_fd, listen_fd, timer_fd, signal_fd, control_fd;
	int control_conn[CONTROL_CONN_MAX];
	uint16_t port;
	bool stop;
	bool refuse;		/* no listening socket */
	bool silent;		/* new connections lead nowhere */
	bool stall[CHAOS_LANES];
	bool swallow[CHAOS_LANES];
	uint64_t begun_ns;
	bool fired[PROXY_EVENT_MAX];
	uint64_t conn_total, reset_total;
	uint64_t bytes[CHAOS_LANES], swallowed[CHAOS_LANES], flipped[CHAOS_LANES];
	struct conn conn[PROXY_CONN_MAX];
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static uint64_t tag(enum what what, uint32_t which)
{
	return (uint64_t)what << 32 | which;
}

static int watch(struct proxy *proxy, int fd, uint64_t what)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = what };

	return epoll_ctl(proxy->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* --- connections ------------------------------------------------------------------------------------ */

static void conn_watch(struct proxy *proxy, struct conn *conn, int side, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.u64 = tag(WHAT_CONN, (conn - proxy->conn) * 2 + side) };

	if (conn->fd[side] < 0 || conn->broken[side] || events == conn->watched[side])
		return;
	/*
	 * A descriptor nobody waits for leaves epoll, which would report its hang-up over and over. It comes
	 * back with the first thing to wait for, and the hang-up is noticed then.
	 */
	if (!events)
		epoll_ctl(proxy->epoll_fd, EPOLL_CTL_DEL, conn->fd[side], NULL);
	else
		epoll_ctl(proxy->epoll_fd, conn->watched[side] ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, conn->fd[side], &event);
	conn->watched[side] = events;
}

static void conn_free(struct proxy *proxy, struct conn *conn)
{
	for (int side = 0; side < 2; side++) {
		if (conn->fd[side] >= 0)
			close(conn->fd[side]);
		proxy->flipped[side] += conn->pipe[side] ? conn->pipe[side]->flipped : 0;
		free(conn->pipe[side]);
	}
	memset(conn, 0, sizeof(*conn));
	conn->fd[0] = conn->fd[1] = -1;
}

/* Closing with this option sends a reset instead of an orderly end. */
static void conn_reset(struct proxy *proxy, struct conn *conn)
{
	struct linger linger = { .l_onoff = 1, .l_linger = 0 };

	for (int side = 0; side < 2; side++)
		if (conn->fd[side] >= 0)
			setsockopt(conn->fd[side], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	proxy->reset_total++;
	conn_free(proxy, conn);
}

static struct conn *conn_new(struct proxy *proxy, int client_fd)
{
	struct conn *conn = NULL;
	struct pipe *up, *down;
	int yes = 1;

	for (int i = 0; i < PROXY_CONN_MAX && !conn; i++)
		if (!proxy->conn[i].used)
			conn = &proxy->conn[i];
	up = malloc(sizeof(*up));
	down = malloc(sizeof(*down));
	if (!conn || !up || !down) {
		free(up);
		free(down);
		return NULL;
	}
	/* The n-th connection's luck depends on the seed and n, whatever happened to the others. */
	pipe_init(up, &proxy->conf.lane[CHAOS_UP], proxy->conf.seed + 4 * proxy->conn_total);
	pipe_init(down, &proxy->conf.lane[CHAOS_DOWN], proxy->conf.seed + 4 * proxy->conn_total + 2);
	if (proxy->conn_total >= proxy->conf.times) {
		pipe_forgive(up);
		pipe_forgive(down);
	}
	proxy->conn_total++;
	memset(conn, 0, sizeof(*conn));
	conn->used = true;
	conn->fd[0] = client_fd;
	conn->fd[1] = -1;
	conn->pipe[0] = up;
	conn->pipe[1] = down;
	setsockopt(client_fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	return conn;
}

static void conn_dial(struct proxy *proxy, struct conn *conn)
{
	int yes = 1, fd;

	fd = socket(proxy->conf.target.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		conn->doomed = true;
		return;
	}
	conn->fd[1] = fd;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	if (connect(fd, (struct sockaddr *)&proxy->conf.target, proxy->conf.target_size) == 0)
		return;
	if (errno == EINPROGRESS)
		conn->connecting = true;
	else
		conn->doomed = true;
}

static void accept_all(struct proxy *proxy)
{
	struct conn *conn;
	int fd;

	while ((fd = accept4(proxy->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		conn = conn_new(proxy, fd);
		if (!conn) {
			close(fd);
			continue;
		}
		if (!proxy->silent)
			conn_dial(proxy, conn);
	}
}

/* Reads what @side has, as far as there is room and nothing holds it back. */
static void conn_read(struct proxy *proxy, struct conn *conn, int side)
{
	static uint8_t waste[64 << 10];
	struct pipe *pipe = conn->pipe[side];
	bool swallow = proxy->swallow[side];
	uint8_t *where = waste;
	size_t room = swallow ? sizeof(waste) : pipe_room(pipe, &where);
	ssize_t size;

	if (!room)
		return;
	size = read(conn->fd[side], where, room);
	if (size > 0 && swallow) {
		proxy->swallowed[side] += size;
	} else if (size > 0) {
		pipe_put(pipe, size, now_ns());
		proxy->bytes[side] += size;
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
		uint64_t now = now_ns();
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

static bool holds_back(const struct proxy *proxy, int side)
{
	return proxy->stall[side];
}

/* After every round: passes on what is due, tells ends on, and renews what is waited for. */
static void conn_settle(struct proxy *proxy, struct conn *conn)
{
	uint8_t *where;

	for (int side = 0; side < 2 && !conn->doomed && !conn->closing; side++) {
		bool reachable = conn->fd[!side] >= 0 && !conn->connecting && !conn->broken[!side];

		if (holds_back(proxy, side))
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
		    !proxy->swallow[side]) {
			shutdown(conn->fd[!side], SHUT_WR);
			conn->ended_on[side] = true;
		}
	}
	if (conn->doomed) {
		conn_reset(proxy, conn);
		return;
	}
	if (conn->closing || (conn->ended_on[0] && conn->ended_on[1])) {
		conn_free(proxy, conn);
		return;
	}
	for (int side = 0; side < 2; side++) {
		uint32_t events = 0;

		if (side == 1 && conn->connecting)
			events = EPOLLOUT;
		else if (conn->fd[1] < 0)
			events = EPOLLRDHUP;	/* of a client that is led nowhere only its end matters */
		else if (!conn->ended[side] && !holds_back(proxy, side) &&
			 (proxy->swallow[side] || pipe_room(conn->pipe[side], &where)))
			events = EPOLLIN;
		if (conn->blocked[side] && !holds_back(proxy, !side))
			events |= EPOLLOUT;
		conn_watch(proxy, conn, side, events);
	}
}

static void conn_event(struct proxy *proxy, struct conn *conn, int side, uint32_t events)
{
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
		conn_read(proxy, conn, side);
	else if (events & (EPOLLERR | EPOLLHUP)) {
		/* A peer that is gone; told on unless this direction is held back, then when it flows again. */
		conn_watch(proxy, conn, side, 0);
		conn->broken[side] = true;
	}
}

/* --- commands ---------------------------------------------------------------------------------------- */

static int listen_open(struct proxy *proxy)
{
	struct sockaddr_storage address = proxy->conf.listen;
	socklen_t size = sizeof(address);
	int yes = 1, err, fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(fd, (struct sockaddr *)&address, proxy->conf.listen_size) < 0 || listen(fd, LISTEN_BACKLOG) < 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &size) < 0) {
		err = -errno;
		close(fd);
		return err;
	}
	/* Port 0 chose one; when it listens again after having refused it is to be the same. */
	proxy->conf.listen = address;
	proxy->port = ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port :
							    ((struct sockaddr_in *)&address)->sin_port);
	err = watch(proxy, fd, tag(WHAT_LISTEN, 0));
	if (err) {
		close(fd);
		return err;
	}
	proxy->listen_fd = fd;
	return 0;
}

static int set_refuse(struct proxy *proxy, bool refuse)
{
	if (refuse && proxy->listen_fd >= 0) {
		/* Those in its queue get a reset by the kernel. */
		close(proxy->listen_fd);
		proxy->listen_fd = -1;
	}
	return !refuse && proxy->listen_fd < 0 ? listen_open(proxy) : 0;
}

static void set_flags(bool flags[CHAOS_LANES], unsigned int directions, bool value)
{
	for (int lane = 0; lane < CHAOS_LANES; lane++)
		if (directions & 1u << lane)
			flags[lane] = value;
}

static void end_all(struct proxy *proxy, bool reset)
{
	for (int i = 0; i < PROXY_CONN_MAX; i++) {
		struct conn *conn = &proxy->conn[i];

		if (!conn->used)
			continue;
		if (reset)
			conn->doomed = true;
		else
			conn->closing = true;
	}
}

static void flow(struct proxy *proxy)
{
	memset(proxy->stall, 0, sizeof(proxy->stall));
	memset(proxy->swallow, 0, sizeof(proxy->swallow));
	proxy->silent = false;
	for (int i = 0; i < PROXY_CONN_MAX; i++) {
		struct conn *conn = &proxy->conn[i];

		if (!conn->used)
			continue;
		pipe_forgive(conn->pipe[0]);
		pipe_forgive(conn->pipe[1]);
		if (conn->fd[1] < 0)
			conn_dial(proxy, conn);
	}
}

/* One word; with @proxy NULL only whether it is a command. */
static int do_word(struct proxy *proxy, const char *word)
{
	static const char *const words[] = { "cut", "close", "silent", "flow", "refuse", "accept" };
	unsigned int directions;
	bool known = false;

	directions = chaos_directions(word, "stall");
	if (directions) {
		if (proxy)
			set_flags(proxy->stall, directions, true);
		return 0;
	}
	directions = chaos_directions(word, "swallow");
	if (directions) {
		if (proxy)
			set_flags(proxy->swallow, directions, true);
		return 0;
	}
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		known |= strcmp(word, words[i]) == 0;
	if (!known)
		return -ENOENT;
	if (!proxy)
		return 0;
	if (strcmp(word, "cut") == 0 || strcmp(word, "close") == 0) {
		end_all(proxy, strcmp(word, "cut") == 0);
	} else if (strcmp(word, "silent") == 0) {
		proxy->silent = true;
		set_flags(proxy->stall, ~0u, true);
	} else if (strcmp(word, "flow") == 0) {
		flow(proxy);
	} else {
		return set_refuse(proxy, strcmp(word, "refuse") == 0);
	}
	return 0;
}

static int do_command(struct proxy *proxy, const char *command)
{
	struct pipe_conf scratch[CHAOS_LANES];
	const char *space = strchr(command, ' ');
	char name[32];
	int err;

	if (!space)
		return do_word(proxy, command);
	if ((size_t)(space - command) >= sizeof(name))
		return -ENOENT;
	memcpy(name, command, space - command);
	name[space - command] = 0;
	for (int lane = 0; lane < CHAOS_LANES; lane++)
		pipe_conf_default(&scratch[lane]);
	err = chaos_conf_set(proxy ? proxy->conf.lane : scratch, name, space + 1);
	for (int i = 0; i < PROXY_CONN_MAX && !err && proxy; i++)
		for (int side = 0; side < 2 && proxy->conn[i].used; side++)
			pipe_configure(proxy->conn[i].pipe[side], &proxy->conf.lane[side]);
	return err;
}

int proxy_command_check(const char *command)
{
	return do_command(NULL, command);
}

static void print_stats(const struct proxy *proxy, char *text, size_t size)
{
	unsigned int open = 0;
	uint64_t flipped[CHAOS_LANES] = { proxy->flipped[0], proxy->flipped[1] };

	for (int i = 0; i < PROXY_CONN_MAX; i++) {
		if (!proxy->conn[i].used)
			continue;
		open++;
		for (int lane = 0; lane < CHAOS_LANES; lane++)
			flipped[lane] += proxy->conn[i].pipe[lane]->flipped;
	}
	snprintf(text, size,
		 "ok {\"connections\":%" PRIu64 ",\"open\":%u,\"resets\":%" PRIu64 ",\"up\":{\"bytes\":%" PRIu64
		 ",\"swallowed\":%" PRIu64 ",\"flipped\":%" PRIu64 "},\"down\":{\"bytes\":%" PRIu64
		 ",\"swallowed\":%" PRIu64 ",\"flipped\":%" PRIu64 "}}",
		 proxy->conn_total, open, proxy->reset_total, proxy->bytes[CHAOS_UP], proxy->swallowed[CHAOS_UP],
		 flipped[CHAOS_UP], proxy->bytes[CHAOS_DOWN], proxy->swallowed[CHAOS_DOWN], flipped[CHAOS_DOWN]);
}

static void control_connected(struct proxy *proxy)
{
	int fd = control_accept(proxy->control_fd);

	for (int i = 0; fd >= 0 && i < CONTROL_CONN_MAX; i++) {
		if (proxy->control_conn[i] >= 0)
			continue;
		if (watch(proxy, fd, tag(WHAT_CONTROL_CONN, i)) < 0)
			break;
		proxy->control_conn[i] = fd;
		return;
	}
	if (fd >= 0)
		close(fd);
}

static void control_ready(struct proxy *proxy, uint32_t which)
{
	char request[CONTROL_REQUEST_MAX], reply[CONTROL_REPLY_MAX];
	int fd = proxy->control_conn[which], length, err;

	if (fd < 0)
		return;
	length = control_receive(fd, request, sizeof(request));
	if (length == -EAGAIN)
		return;
	proxy->control_conn[which] = -1;
	if (length <= 0) {
		close(fd);
		return;
	}
	if (strcmp(request, "stats") == 0) {
		print_stats(proxy, reply, sizeof(reply));
	} else if (strcmp(request, "quit") == 0) {
		proxy->stop = true;
		strcpy(reply, "ok");
	} else {
		err = do_command(proxy, request);
		if (err == -ENOENT)
			snprintf(reply, sizeof(reply), "error: no such command: %s", request);
		else if (err)
			snprintf(reply, sizeof(reply), "error: %s: %s", request, strerror(-err));
		else
			strcpy(reply, "ok");
	}
	control_reply(fd, reply, NULL, 0);
}

/* --- the loop ---------------------------------------------------------------------------------------- */

static void fire_events(struct proxy *proxy)
{
	uint64_t now = now_ns();

	for (unsigned int i = 0; i < proxy->conf.event_count; i++) {
		if (proxy->fired[i] || proxy->begun_ns + proxy->conf.event[i].at_ns > now)
			continue;
		proxy->fired[i] = true;
		do_command(proxy, proxy->conf.event[i].command);
	}
}

static void arm(struct proxy *proxy)
{
	struct itimerspec when = { 0 };
	uint64_t next = PIPE_NEVER;

	for (unsigned int i = 0; i < proxy->conf.event_count; i++)
		if (!proxy->fired[i] && proxy->begun_ns + proxy->conf.event[i].at_ns < next)
			next = proxy->begun_ns + proxy->conf.event[i].at_ns;
	for (int i = 0; i < PROXY_CONN_MAX; i++) {
		struct conn *conn = &proxy->conn[i];

		for (int side = 0; side < 2 && conn->used; side++)
			if (!holds_back(proxy, side) && !conn->blocked[!side] && !conn->connecting &&
			    conn->fd[1] >= 0 && pipe_next_ns(conn->pipe[side]) < next)
				next = pipe_next_ns(conn->pipe[side]);
	}
	if (next != PIPE_NEVER) {
		/* Zero would disarm it. */
		next = next ? next : 1;
		when.it_value.tv_sec = next / NS_PER_S;
		when.it_value.tv_nsec = next % NS_PER_S;
	}
	timerfd_settime(proxy->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static void handle(struct proxy *proxy, const struct epoll_event *event)
{
	uint32_t which = (uint32_t)event->data.u64;
	struct signalfd_siginfo info;
	uint64_t expirations;

	switch ((enum what)(event->data.u64 >> 32)) {
	case WHAT_LISTEN:
		if (proxy->listen_fd >= 0)
			accept_all(proxy);
		break;
	case WHAT_SIGNAL:
		if (read(proxy->signal_fd, &info, sizeof(info)) == sizeof(info))
			proxy->stop = true;
		break;
	case WHAT_TIMER:
		(void)!read(proxy->timer_fd, &expirations, sizeof(expirations));
		fire_events(proxy);
		break;
	case WHAT_CONTROL:
		control_connected(proxy);
		break;
	case WHAT_CONTROL_CONN:
		control_ready(proxy, which);
		break;
	case WHAT_CONN:
		conn_event(proxy, &proxy->conn[which / 2], which % 2, event->events);
		break;
	}
}

int proxy_run(struct proxy *proxy)
{
	struct epoll_event events[EVENTS_AT_ONCE];

	proxy->begun_ns = now_ns();
	arm(proxy);
	while (!proxy->stop) {
		int count = epoll_wait(proxy->epoll_fd, events, EVENTS_AT_ONCE, -1);

		if (count < 0 && errno != EINTR)
			return -errno;
		for (int i = 0; i < count; i++)
			handle(proxy, &events[i]);
		for (int i = 0; i < PROXY_CONN_MAX; i++)
			if (proxy->conn[i].used)
				conn_settle(proxy, &proxy->conn[i]);
		arm(proxy);
	}
	return 0;
}

static int open_signals(void)
{
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGHUP);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	return signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
}

int proxy_open(struct proxy **proxy_out, const struct proxy_conf *conf, const char **what_out)
{
	struct proxy *proxy = calloc(1, sizeof(*proxy));
	int err;

	*what_out = "memory";
	if (!proxy)
		return -ENOMEM;
	proxy->conf = *conf;
	proxy->listen_fd = proxy->control_fd = -1;
	for (int i = 0; i < PROXY_CONN_MAX; i++)
		proxy->conn[i].fd[0] = proxy->conn[i].fd[1] = -1;
	for (int i = 0; i < CONTROL_CONN_MAX; i++)
		proxy->control_conn[i] = -1;
	*what_out = "the event loop";
	proxy->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	proxy->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	proxy->signal_fd = open_signals();
	err = proxy->epoll_fd < 0 || proxy->timer_fd < 0 || proxy->signal_fd < 0 ? -errno : 0;
	if (!err)
		err = watch(proxy, proxy->timer_fd, tag(WHAT_TIMER, 0));
	if (!err)
		err = watch(proxy, proxy->signal_fd, tag(WHAT_SIGNAL, 0));
	if (!err && conf->control_path) {
		*what_out = "the control socket";
		proxy->control_fd = control_listen(conf->control_path);
		err = proxy->control_fd < 0 ? proxy->control_fd : watch(proxy, proxy->control_fd, tag(WHAT_CONTROL, 0));
	}
	if (!err) {
		*what_out = "the listening address";
		err = listen_open(proxy);
	}
	if (err)
		proxy_close(proxy);
	else
		*proxy_out = proxy;
	return err;
}

uint16_t proxy_port(const struct proxy *proxy)
{
	return proxy->port;
}

void proxy_close(struct proxy *proxy)
{
	int fds[] = { proxy->epoll_fd, proxy->listen_fd, proxy->timer_fd, proxy->signal_fd, proxy->control_fd };

	for (int i = 0; i < PROXY_CONN_MAX; i++)
		if (proxy->conn[i].used)
			conn_free(proxy, &proxy->conn[i]);
	for (int i = 0; i < CONTROL_CONN_MAX; i++)
		if (proxy->control_conn[i] >= 0)
			close(proxy->control_conn[i]);
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (proxy->control_fd >= 0)
		unlink(proxy->conf.control_path);
	free(proxy);
}
