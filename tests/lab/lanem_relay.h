/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire between two ends: reads packets from one TUN descriptor, leaves them to a lane's arithmetic, and
 * writes them to the other when they are due. It is also the program's event loop: main thread only.
 */
#ifndef TESTS_LAB_LANEM_RELAY_H
#define TESTS_LAB_LANEM_RELAY_H

#include "tests/lab/lanem_lane.h"
#include "tests/lab/lanem_net.h"

#define RELAY_WATCH_MAX 16

/* Lane 0 carries from end 0 (A) to end 1 (B), lane 1 back. */
enum { RELAY_AB, RELAY_BA, RELAY_LANES };

typedef void (*relay_ready_fn)(void *context, int fd);

struct relay_watch {
	int fd;
	relay_ready_fn ready;
	void *context;
};

struct relay {
	struct net_end end[2];
	struct lane lane[RELAY_LANES];
	uint64_t ignored[RELAY_LANES];	 /* multicast, which this LAN does not carry */
	uint64_t unwritten[RELAY_LANES]; /* refused by the receiving interface, which was down */
	int epoll_fd;
	int timer_fd;
	bool stop;
	uint8_t *spare; /* a packet buffer not used at the last read */
	struct relay_watch watch[RELAY_WATCH_MAX];
};

uint64_t relay_now_ns(void);

/* The ends are open already and stay the caller's. */
int relay_init(struct relay *relay);
void relay_fini(struct relay *relay);

/* Calls @ready whenever @fd is readable; -ENOSPC if there are RELAY_WATCH_MAX already. */
int relay_watch(struct relay *relay, int fd, relay_ready_fn ready, void *context);
void relay_unwatch(struct relay *relay, int fd);

/* Carries packets until relay->stop is set; 0 or -errno. */
int relay_run(struct relay *relay);

/* Bytes that a packet read from TUN fills on the wire, cut into the frames that a real card would send. */
uint64_t relay_wire_bytes(const uint8_t *packet, uint32_t size, uint32_t *frames_out);

#endif
