/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What TCP alone does between two ends: the yardstick for bulk lanes and for calls that wait. As many connections with a thread
 * each as a link has lanes, 1 MiB a write; and a message of 64 bytes that comes back, both ends spinning, or asleep until they are woken.
 *
 *	rawtcp serve ADDRESS:PORT			until it is ended
 *	rawtcp stream ADDRESS:PORT LANES MIB [down]	GB/s; down: from the server
 *	rawtcp pingpong ADDRESS:PORT COUNT [asleep]	p50 and p99 in us
 *
 * Answers are a line of JSON. Exit 0, 1 with the cause on stderr, 2 for usage.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PIECE	  (1u << 20)
#define LANES_MAX 64
#define PING_SIZE 64

/* First on each connection. */
struct order {
	uint32_t what; /* enum */
	uint32_t count;
	uint64_t bytes;
};
enum { SINK = 1, SOURCE = 2, ECHO = 3, ECHO_ASLEEP = 4 };

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void die(const char *what)
{
	fprintf(stderr, "rawtcp: %s: %s\n", what, strerror(errno));
	exit(1);
}

static bool all_out(int fd, const void *bytes, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t n = send(fd, (const char *)bytes + at, size - at, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			return false;
		at += n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* @spin: looks without sleeping. */
static bool all_in(int fd, void *bytes, size_t size, bool spin)
{
	for (size_t at = 0; at < size;) {
		ssize_t n = recv(fd, (char *)bytes + at, size - at, spin ? MSG_DONTWAIT : 0);

		if (n == 0 || (n < 0 && errno != EINTR && !(spin && errno == EAGAIN)))
			return false;
		at += n > 0 ? (size_t)n : 0;
	}
	return true;
}

static bool stream_out(int fd, char *piece, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += PIECE)
		if (!all_out(fd, piece, bytes - at < PIECE ? bytes - at : PIECE))
			return false;
	return true;
}

static bool stream_in(int fd, char *piece, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += PIECE)
		if (!all_in(fd, piece, bytes - at < PIECE ? bytes - at : PIECE, false))
			return false;
	return true;
}

static void tune(int fd)
{
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static struct sockaddr_in address_of(const char *text)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	const char *colon = strrchr(text, ':');
	char host[64];

	if (!colon || (size_t)(colon - text) >= sizeof(host)) {
		fprintf(stderr, "rawtcp: %s is not ADDRESS:PORT\n", text);
		exit(2);
	}
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = '\0';
	address.sin_port = htons((uint16_t)atoi(colon + 1));
	if (inet_pton(AF_INET, host, &address.sin_addr) != 1) {
		fprintf(stderr, "rawtcp: %s is not an IPv4 address\n", host);
		exit(2);
	}
	return address;
}

/* ---- the server: a thread a connection ---- */

static void *serve_one(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char *piece = calloc(1, PIECE);
	struct order order;
	char done = 1;

	if (piece && all_in(fd, &order, sizeof(order), false)) {
		if (order.what == SINK && stream_in(fd, piece, order.bytes))
			all_out(fd, &done, 1);
		else if (order.what == SOURCE)
			stream_out(fd, piece, order.bytes);
		else if (order.what == ECHO || order.what == ECHO_ASLEEP)
			while (order.count-- && all_in(fd, piece, PING_SIZE, order.what == ECHO) && all_out(fd, piece, PING_SIZE))
				;
	}
	free(piece);
	close(fd);
	return NULL;
}

static _Noreturn void serve(const char *text)
{
	struct sockaddr_in address = address_of(text);
	int on = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, LANES_MAX) < 0)
		die(text);
	for (;;) {
		pthread_t thread;
		int one = accept(fd, NULL, NULL);

		if (one < 0)
			continue;
		tune(one);
		if (pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)one))
			close(one);
		else
			pthread_detach(thread);
	}
}

/* ---- the client ---- */

static int connected(const char *text)
{
	struct sockaddr_in address = address_of(text);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		die(text);
	tune(fd);
	return fd;
}

struct lane {
	pthread_t thread;
	int fd;
	uint64_t bytes;
	bool down;
	bool right;
};

static void *lane_run(void *arg)
{
	struct lane *lane = arg;
	struct order order = { .what = lane->down ? SOURCE : SINK, .bytes = lane->bytes };
	char *piece = calloc(1, PIECE);
	char done;

	if (piece && all_out(lane->fd, &order, sizeof(order)))
		lane->right = lane->down ? stream_in(lane->fd, piece, lane->bytes) :
					   stream_out(lane->fd, piece, lane->bytes) && all_in(lane->fd, &done, 1, false);
	free(piece);
	return NULL;
}

static int stream(const char *address, unsigned lanes, uint64_t mib, bool down)
{
	struct lane lane[LANES_MAX];
	bool right = true;
	double start, took;

	if (lanes < 1 || lanes > LANES_MAX || !mib)
		return 2;
	for (unsigned i = 0; i < lanes; i++)
		lane[i] = (struct lane){ .fd = connected(address), .bytes = (mib << 20) / lanes, .down = down };
	start = now();
	for (unsigned i = 0; i < lanes; i++)
		if (pthread_create(&lane[i].thread, NULL, lane_run, &lane[i]))
			die("thread");
	for (unsigned i = 0; i < lanes; i++) {
		pthread_join(lane[i].thread, NULL);
		right &= lane[i].right;
	}
	took = now() - start;
	if (!right)
		die("a connection ended early");
	printf("{\"lanes\": %u, \"mib\": %llu, \"direction\": \"%s\", \"gb_s\": %.3f}\n", lanes, (unsigned long long)mib,
	       down ? "down" : "up", (double)(mib << 20) / took / 1e9);
	return 0;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static int pingpong(const char *address, uint32_t count, bool asleep)
{
	struct order order = { .what = asleep ? ECHO_ASLEEP : ECHO, .count = count };
	double *took = calloc(count ? count : 1, sizeof(*took));
	char bytes[PING_SIZE] = { 0 };
	int fd;

	if (!count || !took)
		return 2;
	fd = connected(address);
	if (!all_out(fd, &order, sizeof(order)))
		die(address);
	for (uint32_t i = 0; i < count; i++) {
		double start = now();

		if (!all_out(fd, bytes, sizeof(bytes)) || !all_in(fd, bytes, sizeof(bytes), !asleep))
			die("the connection ended early");
		took[i] = (now() - start) * 1e6;
	}
	qsort(took, count, sizeof(*took), by_size);
	printf("{\"count\": %u, \"p50_us\": %.1f, \"p99_us\": %.1f}\n", count, took[count / 2], took[count * 99ull / 100]);
	free(took);
	close(fd);
	return 0;
}

int main(int argc, char **argv)
{
	int status = 2;

	if (argc == 3 && strcmp(argv[1], "serve") == 0)
		serve(argv[2]);
	if ((argc == 5 || argc == 6) && strcmp(argv[1], "stream") == 0)
		status = stream(argv[2], (unsigned)atoi(argv[3]), (uint64_t)atol(argv[4]), argc == 6 && strcmp(argv[5], "down") == 0);
	else if ((argc == 4 || argc == 5) && strcmp(argv[1], "pingpong") == 0)
		status = pingpong(argv[2], (uint32_t)atoi(argv[3]), argc == 5 && strcmp(argv[4], "asleep") == 0);
	if (status == 2)
		fprintf(stderr, "usage: rawtcp serve ADDRESS:PORT | stream ADDRESS:PORT LANES MIB [down] | pingpong ADDRESS:PORT COUNT [asleep]\n");
	return status;
}
