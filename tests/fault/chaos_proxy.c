/* SPDX-License-Identifier: Apache-2.0 */
/* The proxy of gleam-chaos; see chaos_proxy.h. */
#include "tests/fault/chaos_proxy.h"
#include "tests/fault/chaos_conn.h"
#include "tests/lib/control.h"
#include "tests/lib/value.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define NS_PER_S	 1000000000u
#define EVENTS_AT_ONCE	 64
#define CONTROL_CONN_MAX 8
/* A full queue would cost whoever comes then a second, and that is trouble nobody asked for. */
#define LISTEN_BACKLOG 1024

/* epoll's user data; that of connections begins at CONN_EVENT. */
enum what { WHAT_LISTEN, WHAT_SIGNAL, WHAT_TIMER, WHAT_CONTROL, WHAT_CONTROL_CONN };
static_assert(WHAT_CONTROL_CONN + CONTROL_CONN_MAX <= CONN_EVENT, "no event has two meanings");

struct proxy {
	struct proxy_conf conf;
	int listen_fd, timer_fd, signal_fd, control_fd;
	int control_conn[CONTROL_CONN_MAX];
	uint16_t port;
	bool stop;
	bool silent; /* new connections lead nowhere */
	uint64_t begun_ns;
	bool fired[PROXY_EVENT_MAX];
	struct conn_table table;
};

static int watch(struct proxy *proxy, int fd, uint32_t what)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = what };

	return epoll_ctl(proxy->table.epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static void accept_all(struct proxy *proxy)
{
	struct conn *conn;
	int fd;

	while ((fd = accept4(proxy->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		conn = conn_new(&proxy->table, fd);
		if (!conn) {
			close(fd);
			continue;
		}
		if (!proxy->silent)
			conn_dial(&proxy->table, conn);
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
	if (bind(fd, (struct sockaddr *)&address, proxy->conf.listen_size) < 0 ||
	    listen(fd, LISTEN_BACKLOG) < 0 || getsockname(fd, (struct sockaddr *)&address, &size) < 0) {
		err = -errno;
		close(fd);
		return err;
	}
	/* Port 0 chose one; when it listens again after having refused it is to be the same. */
	proxy->conf.listen = address;
	proxy->port = ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
							  : ((struct sockaddr_in *)&address)->sin_port);
	err = watch(proxy, fd, WHAT_LISTEN);
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
	for (int i = 0; i < CONN_MAX; i++) {
		struct conn *conn = &proxy->table.conn[i];

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
	memset(proxy->table.stall, 0, sizeof(proxy->table.stall));
	memset(proxy->table.swallow, 0, sizeof(proxy->table.swallow));
	proxy->silent = false;
	for (int i = 0; i < CONN_MAX; i++) {
		struct conn *conn = &proxy->table.conn[i];

		if (!conn->used)
			continue;
		pipe_forgive(conn->pipe[0]);
		pipe_forgive(conn->pipe[1]);
		if (conn->fd[1] < 0)
			conn_dial(&proxy->table, conn);
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
			set_flags(proxy->table.stall, directions, true);
		return 0;
	}
	directions = chaos_directions(word, "swallow");
	if (directions) {
		if (proxy)
			set_flags(proxy->table.swallow, directions, true);
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
		set_flags(proxy->table.stall, ~0u, true);
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
	err = chaos_conf_set(proxy ? proxy->table.lane : scratch, name, space + 1);
	for (int i = 0; i < CONN_MAX && !err && proxy; i++)
		for (int side = 0; side < 2 && proxy->table.conn[i].used; side++)
			pipe_configure(proxy->table.conn[i].pipe[side], &proxy->table.lane[side]);
	return err;
}

int proxy_command_check(const char *command)
{
	return do_command(NULL, command);
}

static void print_stats(const struct proxy *proxy, char *text, size_t size)
{
	unsigned int open = 0;
	uint64_t flipped[CHAOS_LANES] = { proxy->table.flipped[0], proxy->table.flipped[1] };

	for (int i = 0; i < CONN_MAX; i++) {
		if (!proxy->table.conn[i].used)
			continue;
		open++;
		for (int lane = 0; lane < CHAOS_LANES; lane++)
			flipped[lane] += proxy->table.conn[i].pipe[lane]->flipped;
	}
	snprintf(text, size,
		 "ok {\"connections\":%" PRIu64 ",\"open\":%u,\"resets\":%" PRIu64
		 ",\"up\":{\"bytes\":%" PRIu64 ",\"swallowed\":%" PRIu64 ",\"flipped\":%" PRIu64
		 "},\"down\":{\"bytes\":%" PRIu64 ",\"swallowed\":%" PRIu64 ",\"flipped\":%" PRIu64 "}}",
		 proxy->table.total, open, proxy->table.reset_total, proxy->table.bytes[CHAOS_UP],
		 proxy->table.swallowed[CHAOS_UP], flipped[CHAOS_UP], proxy->table.bytes[CHAOS_DOWN],
		 proxy->table.swallowed[CHAOS_DOWN], flipped[CHAOS_DOWN]);
}

static void control_connected(struct proxy *proxy)
{
	int fd = control_accept(proxy->control_fd);

	for (int i = 0; fd >= 0 && i < CONTROL_CONN_MAX; i++) {
		if (proxy->control_conn[i] >= 0)
			continue;
		if (watch(proxy, fd, WHAT_CONTROL_CONN + i) < 0)
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
	uint64_t now = conn_now_ns();

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
	for (int i = 0; i < CONN_MAX; i++) {
		const struct conn *conn = &proxy->table.conn[i];
		uint64_t due = conn->used ? conn_next_ns(&proxy->table, conn) : PIPE_NEVER;

		if (due < next)
			next = due;
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
	uint32_t what = event->data.u32;
	struct signalfd_siginfo info;
	uint64_t expirations;

	if (what >= CONN_EVENT) {
		conn_event(&proxy->table, what - CONN_EVENT, event->events);
		return;
	}
	switch (what) {
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
	default:
		control_ready(proxy, what - WHAT_CONTROL_CONN);
		break;
	}
}

int proxy_run(struct proxy *proxy)
{
	struct epoll_event events[EVENTS_AT_ONCE];

	proxy->begun_ns = conn_now_ns();
	arm(proxy);
	while (!proxy->stop) {
		int count = epoll_wait(proxy->table.epoll_fd, events, EVENTS_AT_ONCE, -1);

		if (count < 0 && errno != EINTR)
			return -errno;
		for (int i = 0; i < count; i++)
			handle(proxy, &events[i]);
		for (int i = 0; i < CONN_MAX; i++)
			if (proxy->table.conn[i].used)
				conn_settle(&proxy->table, &proxy->table.conn[i]);
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
	proxy->table.target = conf->target;
	proxy->table.target_size = conf->target_size;
	memcpy(proxy->table.lane, conf->lane, sizeof(conf->lane));
	proxy->table.seed = conf->seed;
	proxy->table.times = conf->times;
	proxy->listen_fd = proxy->control_fd = -1;
	for (int i = 0; i < CONN_MAX; i++)
		proxy->table.conn[i].fd[0] = proxy->table.conn[i].fd[1] = -1;
	for (int i = 0; i < CONTROL_CONN_MAX; i++)
		proxy->control_conn[i] = -1;
	*what_out = "the event loop";
	proxy->table.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	proxy->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	proxy->signal_fd = open_signals();
	err = proxy->table.epoll_fd < 0 || proxy->timer_fd < 0 || proxy->signal_fd < 0 ? -errno : 0;
	if (!err)
		err = watch(proxy, proxy->timer_fd, WHAT_TIMER);
	if (!err)
		err = watch(proxy, proxy->signal_fd, WHAT_SIGNAL);
	if (!err && conf->control_path) {
		*what_out = "the control socket";
		proxy->control_fd = control_listen(conf->control_path);
		err = proxy->control_fd < 0 ? proxy->control_fd
					    : watch(proxy, proxy->control_fd, WHAT_CONTROL);
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
	int fds[] = { proxy->table.epoll_fd, proxy->listen_fd, proxy->timer_fd, proxy->signal_fd,
		      proxy->control_fd };

	for (int i = 0; i < CONN_MAX; i++)
		if (proxy->table.conn[i].used)
			conn_free(&proxy->table, &proxy->table.conn[i]);
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
