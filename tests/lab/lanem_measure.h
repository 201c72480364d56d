/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a lab really does: round trips of UDP datagrams and bytes of a TCP stream through it, each way.
 * Blocks for its whole time: a process of its own, never the relay.
 */
#ifndef TESTS_LAB_LANEM_MEASURE_H
#define TESTS_LAB_LANEM_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

struct measure_conf {
	uint64_t pings;	    /* 0: as many as fit into two seconds, 10 to 100 */
	uint64_t stream_ns; /* each way; 0: none */
	bool json;
};

/* Measures and prints; an exit status. Leaves the calling process in namespace B. */
int measure_main(const int namespace_fd[2], const struct measure_conf *conf);

#endif
