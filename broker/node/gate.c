/* SPDX-License-Identifier: Apache-2.0 */
/* A node's listening sockets. Control thread; see gate.h. */
#include "broker/node/gate.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/core/address.h"
#include "broker/lib/clock.h"
#include "broker/lib/fd.h"
#include "broker/lib/log.h"

#define GATE_BACKLOG	128
#define GATE_TRIES	20    /* a second in all: a restart after a crash must not fail */
#define GATE_TRY_US	50000
#define GATE_HELLOS_MAX 64 /* connections that haven't said hello: each holds a TLS state, and strangers make them */

struct gate_visit {
	struct gate *gate;
	struct hello *hello;
	struct gate_visit *next;
	char peer[PEER_TEXT_SIZE];
};

struct gate_socket {
	struct gate *gate;
	int fd;
	uint64_t tag;
	bool accepting;
	bool one_shot; /* multishot accept is refused by this kernel */
};

struct gate {
	struct loop *loop;
	struct tls_keys *keys;
	gate_hello *hello;
	void *owner;
	bool stopping;
	struct gate_socket sockets[ADDRESSES_MAX];
	unsigned socket_count;
	struct gate_visit *visits;
	unsigned visit_count;
	struct log_limit limit;
	struct loop_timer retry; /* after running out of descriptors */
	char address[PEER_TEXT_SIZE];
};

static void gate_accept_arm(struct gate_socket *socket);

static void gate_log(struct gate *gate, const char *peer, const char *why)
{
	uint32_t dropped;

	if (!log_limit_take(&gate->limit, &dropped))
		return;
	if (dropped)
		log_warn("%u more connections were refused", dropped);
	log_warn("%s: refused: %s", peer, why);
}

static void visit_remove(struct gate_visit *visit)
{
	struct gate *gate = visit->gate;

	for (struct gate_visit **at = &gate->visits; *at; at = &(*at)->next) {
		if (*at == visit) {
			*at = visit->next;
			break;
		}
	}
	gate->visit_count--;
	free(visit);
}

static void visit_done(void *owner, struct hello *hello, const struct hello_info *theirs)
{
	struct gate_visit *visit = owner;
	struct gate *gate = visit->gate;
	const char *why = gate->hello(gate->owner, hello, theirs, hello_tenant(hello));

	if (why) {
		hello_refuse(hello, why);
		return;
	}
	visit_remove(visit);
}

static void visit_failed(void *owner, struct hello *hello, int err, const char *why)
{
	struct gate_visit *visit = owner;

	if (!visit->gate->stopping)
		gate_log(visit->gate, visit->peer, why);
	visit_remove(visit);
}

static void gate_visit_new(struct gate *gate, int fd)
{
	static const struct hello_ops hello_ops = { .done = visit_done, .failed = visit_failed };
	struct gate_visit *visit;
	char peer[PEER_TEXT_SIZE];

	peer_text(fd, peer);
	if (gate->visit_count >= GATE_HELLOS_MAX) {
		close(fd);
		gate_log(gate, peer, "too many connections that haven't said hello");
		return;
	}
	visit = calloc(1, sizeof(*visit));
	if (!visit) {
		close(fd);
		return;
	}
	visit->gate = gate;
	memcpy(visit->peer, peer, sizeof(peer));
	visit->next = gate->visits;
	gate->visits = visit;
	gate->visit_count++;
	visit->hello = hello_new(gate->loop, fd, gate->keys, NULL, &hello_ops, visit);
	if (!visit->hello)
		visit_remove(visit);
}

static void gate_retry(void *arg)
{
	struct gate *gate = arg;

	for (unsigned i = 0; i < gate->socket_count; i++)
		if (!gate->sockets[i].accepting)
			gate_accept_arm(&gate->sockets[i]);
}

static void gate_accept_done(void *arg, int res, uint32_t flags)
{
	struct gate_socket *sock = arg;
	struct gate *gate = sock->gate;

	if (!(flags & IORING_CQE_F_MORE))
		sock->accepting = false;
	if (gate->stopping) {
		if (res >= 0)
			close(res);
		return;
	}
	if (res >= 0) {
		gate_visit_new(gate, res);
	} else if (res == -EINVAL && !sock->one_shot) {
		sock->one_shot = true;
	} else if (res == -EMFILE || res == -ENFILE || res == -ENOMEM || res == -ENOBUFS) {
		gate_log(gate, gate->address, strerror(-res));
		/* At once it would fail again. */
		loop_timer_set(gate->loop, &gate->retry, loop_now_ns(gate->loop) + NS_PER_S / 10);
		return;
	}
	if (!sock->accepting)
		gate_accept_arm(sock);
}

static void gate_accept_arm(struct gate_socket *sock)
{
	struct io_uring_sqe *sqe = loop_sqe(sock->gate->loop);

	if (sock->one_shot)
		io_uring_prep_accept(sqe, sock->fd, NULL, NULL, SOCK_CLOEXEC);
	else
		io_uring_prep_multishot_accept(sqe, sock->fd, NULL, NULL, SOCK_CLOEXEC);
	sock->tag = loop_tag(sock->gate->loop, sqe, gate_accept_done, sock);
	sock->accepting = true;
}

static int gate_listen(const struct address *address, int *fd_out)
{
	int on = 1;
	int fd = socket(address->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool bound = false;
	int err = 0;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	/* Each family has a socket of its own. */
	if (address->at.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	/* The kernel keeps the port for a moment after its process was killed, until the process's io_uring is gone. */
	for (int tries = 0; tries <= GATE_TRIES; tries++) {
		if (!bound && bind(fd, (const struct sockaddr *)&address->at, address->size) == 0)
			bound = true;
		if (bound && listen(fd, GATE_BACKLOG) == 0)
			goto listening;
		err = -errno;
		if (err != -EADDRINUSE)
			break;
		usleep(GATE_TRY_US);
	}
	close(fd);
	return err;

listening:
	*fd_out = fd;
	return 0;
}

static void listen_why(int err, const char *at, char *why, size_t size)
{
	const char *what_to_do = "check [node] listen";

	if (err == -EADDRINUSE)
		what_to_do = "another process has this port; stop it (ss -ltnp shows it) or choose another port";
	else if (err == -EADDRNOTAVAIL)
		what_to_do = "this machine has no such address; `ip address` lists those it has";
	else if (err == -EACCES)
		what_to_do = "ports below 1024 need root; choose a higher one";
	snprintf(why, size, "can't listen on %s: %s; %s", at, strerror(-err), what_to_do);
}

int gate_open(struct loop *loop, const char *address, struct tls_keys *keys, gate_hello *hello, void *owner,
	      struct gate **gate_out, char *why, size_t why_size)
{
	struct address addresses[ADDRESSES_MAX];
	unsigned count = 0;
	struct gate *gate;
	int err = address_resolve(address, false, true, addresses, &count, why, why_size);

	if (err)
		return err;
	for (unsigned i = 0; i < count && !keys; i++) {
		if (!address_is_loopback((struct sockaddr *)&addresses[i].at)) {
			snprintf(why, why_size,
				 "won't listen on %s without a key: anybody there could use the GPUs; make one with `gleamctl key "
				 "new`, give its file with --key or [key] file, here and to the clients' daemons",
				 address);
			return -EPERM;
		}
	}
	gate = calloc(1, sizeof(*gate));
	if (!gate) {
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	gate->loop = loop;
	gate->keys = keys;
	gate->hello = hello;
	gate->owner = owner;
	gate->retry.fire = gate_retry;
	gate->retry.arg = gate;
	snprintf(gate->address, sizeof(gate->address), "%s", address);
	for (unsigned i = 0; i < count; i++) {
		struct gate_socket *sock = &gate->sockets[gate->socket_count];

		*sock = (struct gate_socket){ .gate = gate };
		err = gate_listen(&addresses[i], &sock->fd);
		if (err) {
			char at[PEER_TEXT_SIZE];

			address_text((struct sockaddr *)&addresses[i].at, at);
			listen_why(err, at, why, why_size);
			/* A name that stands for ::1 too, on a machine without IPv6, is no mistake. */
			if (err == -EAFNOSUPPORT || (err == -EADDRNOTAVAIL && count > 1))
				continue;
			goto close_sockets;
		}
		gate->socket_count++;
	}
	if (gate->socket_count == 0)
		goto close_sockets;
	for (unsigned i = 0; i < gate->socket_count; i++)
		gate_accept_arm(&gate->sockets[i]);
	*gate_out = gate;
	return 0;

close_sockets:
	for (unsigned i = 0; i < gate->socket_count; i++)
		close(gate->sockets[i].fd);
	free(gate);
	return err;
}

void gate_stop(struct gate *gate)
{
	gate->stopping = true;
	loop_timer_clear(gate->loop, &gate->retry);
	for (unsigned i = 0; i < gate->socket_count; i++)
		if (gate->sockets[i].accepting)
			loop_cancel(gate->loop, gate->sockets[i].tag);
	for (struct gate_visit *visit = gate->visits; visit; visit = visit->next)
		hello_close(visit->hello, -ESHUTDOWN, "the node is being stopped");
}

bool gate_is_stopped(const struct gate *gate)
{
	for (unsigned i = 0; i < gate->socket_count; i++)
		if (gate->sockets[i].accepting)
			return false;
	return gate->stopping && gate->visit_count == 0;
}

void gate_free(struct gate *gate)
{
	for (unsigned i = 0; i < gate->socket_count; i++)
		fd_close(&gate->sockets[i].fd);
	free(gate);
}

const char *gate_address(const struct gate *gate)
{
	return gate->address;
}
