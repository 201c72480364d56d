/* SPDX-License-Identifier: Apache-2.0 */
/* What a lab really does; see lanem_measure.h. */
#include "tests/lab/lanem_measure.h"
#include "tests/lab/lanem_net.h"
#include "tests/lab/lanem_relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PING_MAX       10000u
#define PING_SIZE      64
#define PING_BUDGET_NS 2000000000u
/* Until the first answer nobody knows how far the other end is. */
#define FIRST_TIMEOUT_NS 500000000u
/* Then a datagram that takes so much longer than the slowest until now counts as lost. */
#define TIMEOUT_SLACK_NS  30000000u
#define CONNECT_TIMEOUT_S 10
#define STREAM_CHUNK	  (256 << 10)

struct result {
	uint64_t ping_count, lost_count;
	uint64_t rtt_ns[PING_MAX]; /* 0: lost */
	double rate_bps[2];
	struct net_counters counters[2];
};

static int fail(const char *what)
{
	fprintf(stderr, "lanem: measuring: %s: %s\n", what, strerror(errno));
	return -1;
}

static struct sockaddr_in address_b(uint16_t port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };

	inet_pton(AF_INET, NET_ADDR_B, &address.sin_addr);
	return address;
}

/* A bound socket of the namespace that the process is in, connected to nobody; its port. */
static int bound_socket(int type, uint16_t *port_out)
{
	struct sockaddr_in address = address_b(0);
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &size) < 0 ||
	    (type == SOCK_STREAM && listen(fd, 4) < 0))
		return fail("a socket in namespace B");
	*port_out = ntohs(address.sin_port);
	return fd;
}

/* --- round trips ----------------------------------------------------------------------------------- */

static void echo_forever(int udp_fd)
{
	char datagram[PING_SIZE];
	struct sockaddr_in from;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		socklen_t from_size = sizeof(from);
		ssize_t size =
			recvfrom(udp_fd, datagram, sizeof(datagram), 0, (struct sockaddr *)&from, &from_size);

		if (size >= 0)
			(void)!sendto(udp_fd, datagram, size, 0, (struct sockaddr *)&from, from_size);
		else if (errno != EINTR)
			_exit(1);
	}
}

/* Waits until @deadline_ns for the answer to ping @number; late answers to earlier ones are noted too. */
static void await_answer(int fd, uint64_t number, uint64_t deadline_ns, const uint64_t *sent_ns,
			 struct result *result)
{
	char datagram[PING_SIZE];
	uint64_t got, now;

	while (!result->rtt_ns[number] && (now = relay_now_ns()) < deadline_ns) {
		struct timespec left = { (deadline_ns - now) / 1000000000u,
					 (deadline_ns - now) % 1000000000u };
		struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

		if (ppoll(&poll_fd, 1, &left, NULL) <= 0)
			continue;
		if (recv(fd, datagram, sizeof(datagram), MSG_DONTWAIT) != PING_SIZE)
			continue;
		memcpy(&got, datagram, sizeof(got));
		if (got <= number && !result->rtt_ns[got])
			result->rtt_ns[got] = relay_now_ns() - sent_ns[got];
	}
}

static int measure_rtt(int fd, uint16_t port, uint64_t pings, struct result *result)
{
	struct sockaddr_in address = address_b(port);
	uint64_t *sent_ns = calloc(PING_MAX, sizeof(*sent_ns));
	char datagram[PING_SIZE] = { 0 };
	uint64_t slowest = 0, begun = relay_now_ns();

	if (!sent_ns || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		free(sent_ns);
		return fail("UDP to namespace B");
	}
	for (uint64_t i = 0; i < (pings ? pings : 100); i++) {
		uint64_t timeout = slowest ? 2 * slowest + TIMEOUT_SLACK_NS : FIRST_TIMEOUT_NS;

		if (!pings && i >= 10 && relay_now_ns() - begun > PING_BUDGET_NS)
			break;
		memcpy(datagram, &i, sizeof(i));
		sent_ns[i] = relay_now_ns();
		result->ping_count++;
		/* An interface that is down loses it like any other. */
		if (send(fd, datagram, sizeof(datagram), 0) == PING_SIZE)
			await_answer(fd, i, sent_ns[i] + timeout, sent_ns, result);
		if (result->rtt_ns[i] > slowest)
			slowest = result->rtt_ns[i];
	}
	for (uint64_t i = 0; i < result->ping_count; i++)
		result->lost_count += !result->rtt_ns[i];
	free(sent_ns);
	return 0;
}

/* --- a stream -------------------------------------------------------------------------------------- */

static void pour(int fd, uint64_t for_ns)
{
	char *chunk = calloc(1, STREAM_CHUNK);
	uint64_t end = relay_now_ns() + for_ns;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (chunk && relay_now_ns() < end && send(fd, chunk, STREAM_CHUNK, MSG_NOSIGNAL) > 0)
		;
	shutdown(fd, SHUT_WR);
	_exit(0);
}

/* Bits a second from the first byte to the last one that comes in time: a slow link holds many more. */
static double drink(int fd, uint64_t for_ns)
{
	char *chunk = malloc(STREAM_CHUNK);
	uint64_t first = 0, last = 0, total = 0;
	ssize_t size;

	while (chunk && (!first || last - first < for_ns) && (size = recv(fd, chunk, STREAM_CHUNK, 0)) > 0) {
		last = relay_now_ns();
		/* The first piece's own time of arrival is before the clock starts. */
		if (!first)
			first = last;
		else
			total += size;
	}
	free(chunk);
	return last > first ? (double)total * 8e9 / (double)(last - first) : 0;
}

static void prepare_stream(int fd)
{
	struct timeval timeout = { .tv_sec = CONNECT_TIMEOUT_S };

	/* The default may be one that paces by its own model of the link (bbr); a lab asks what the link
	 * gives. */
	setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
}

/* @fd is an unconnected TCP socket of namespace A. @lane: which way the bytes go. */
static int measure_stream(int fd, int listen_fd, uint16_t port, int lane, uint64_t for_ns,
			  struct result *result)
{
	struct sockaddr_in address = address_b(port);
	int peer, from, to, status;
	pid_t child;

	prepare_stream(fd);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return fail("TCP to namespace B");
	peer = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
	if (peer < 0)
		return fail("accepting in namespace B");
	prepare_stream(peer);
	from = lane == RELAY_AB ? fd : peer;
	to = lane == RELAY_AB ? peer : fd;
	child = fork();
	if (child < 0)
		return fail("fork");
	if (child == 0) {
		close(to);
		pour(from, for_ns);
	}
	close(from);
	result->rate_bps[lane] = drink(to, for_ns);
	close(to);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	return 0;
}

/* --- all of it ------------------------------------------------------------------------------------- */

static int compare(const void *one, const void *other)
{
	uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

	return a < b ? -1 : a > b;
}

static void print_counters(const char *name, const struct net_counters *counters, bool json)
{
	printf(json ? "\"%s\":{\"rx_bytes\":%" PRIu64 ",\"tx_bytes\":%" PRIu64 ",\"rx_packets\":%" PRIu64
		      ",\"tx_packets\":%" PRIu64 "}"
		    : "%s: received %" PRIu64 " bytes, sent %" PRIu64 " bytes in %" PRIu64 " and %" PRIu64
		      " packets\n",
	       name, counters->rx_bytes, counters->tx_bytes, counters->rx_packets, counters->tx_packets);
}

static void print_result(struct result *result, const struct measure_conf *conf)
{
	uint64_t sorted[PING_MAX], count = 0;
	double min, median, max;

	for (uint64_t i = 0; i < result->ping_count; i++)
		if (result->rtt_ns[i])
			sorted[count++] = result->rtt_ns[i];
	qsort(sorted, count, sizeof(*sorted), compare);
	min = count ? (double)sorted[0] / 1e6 : 0;
	median = count ? (double)sorted[count / 2] / 1e6 : 0;
	max = count ? (double)sorted[count - 1] / 1e6 : 0;
	if (!conf->json) {
		printf("round trip: min %.3f ms, median %.3f ms, max %.3f ms; %" PRIu64 " of %" PRIu64
		       " lost\n",
		       min, median, max, result->lost_count, result->ping_count);
		if (conf->stream_ns)
			printf("rate: A to B %.1f Mbit/s, B to A %.1f Mbit/s\n",
			       result->rate_bps[RELAY_AB] / 1e6, result->rate_bps[RELAY_BA] / 1e6);
		print_counters("A", &result->counters[0], false);
		print_counters("B", &result->counters[1], false);
		return;
	}
	printf("{\"rtt_ms\":{\"min\":%.3f,\"median\":%.3f,\"max\":%.3f},\"pings\":%" PRIu64 ",\"lost\":[",
	       min, median, max, result->ping_count);
	for (uint64_t i = 0, listed = 0; i < result->ping_count; i++)
		if (!result->rtt_ns[i])
			printf("%s%" PRIu64, listed++ ? "," : "", i);
	printf("],\"rate_bps\":{\"ab\":%.0f,\"ba\":%.0f},\"interfaces\":{", result->rate_bps[RELAY_AB],
	       result->rate_bps[RELAY_BA]);
	print_counters("a", &result->counters[0], true);
	putchar(',');
	print_counters("b", &result->counters[1], true);
	printf("}}\n");
}

int measure_main(const int namespace_fd[2], const struct measure_conf *conf)
{
	static struct result result;
	int udp_a, tcp_a[2], netlink[2], udp_b, listen_b;
	uint16_t udp_port, tcp_port;
	pid_t echo;

	/* Sockets stay in the namespace they were made in, so one process can hold both ends. */
	if (setns(namespace_fd[0], CLONE_NEWNET) < 0)
		return fail("entering namespace A") < 0;
	udp_a = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	tcp_a[RELAY_AB] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	tcp_a[RELAY_BA] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	netlink[0] = net_netlink_open();
	if (udp_a < 0 || tcp_a[RELAY_AB] < 0 || tcp_a[RELAY_BA] < 0)
		return fail("a socket in namespace A") < 0;
	if (setns(namespace_fd[1], CLONE_NEWNET) < 0)
		return fail("entering namespace B") < 0;
	netlink[1] = net_netlink_open();
	udp_b = bound_socket(SOCK_DGRAM, &udp_port);
	listen_b = bound_socket(SOCK_STREAM, &tcp_port);
	if (udp_b < 0 || listen_b < 0)
		return 1;

	echo = fork();
	if (echo < 0)
		return fail("fork") < 0;
	if (echo == 0)
		echo_forever(udp_b);
	if (measure_rtt(udp_a, udp_port, conf->pings > PING_MAX ? PING_MAX : conf->pings, &result) < 0)
		return 1;
	kill(echo, SIGKILL);
	waitpid(echo, NULL, 0);
	for (int lane = 0; lane < RELAY_LANES && conf->stream_ns; lane++)
		if (measure_stream(tcp_a[lane], listen_b, tcp_port, lane, conf->stream_ns, &result) < 0)
			return 1;
	for (int end = 0; end < 2; end++)
		if (netlink[end] >= 0)
			net_counters_read(netlink[end], &result.counters[end]);
	print_result(&result, conf);
	return fflush(stdout) == 0 ? 0 : 1;
}
