/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proxy: one listening address, one target, connections between them, and a control socket. An epoll
 * loop in one thread.
 */
#ifndef TESTS_FAULT_CHAOS_PROXY_H
#define TESTS_FAULT_CHAOS_PROXY_H

#include "tests/fault/chaos_conf.h"

#include <sys/socket.h>

#define PROXY_EVENT_MAX 64

struct proxy_event {
	uint64_t at_ns;
	const char *command;
};

struct proxy_conf {
	struct sockaddr_storage listen, target;
	socklen_t listen_size, target_size;
	struct pipe_conf lane[CHAOS_LANES];
	uint64_t seed;
	uint64_t times;		  /* the positions (cut-at, ...) hold for so many connections */
	const char *control_path; /* NULL: none */
	struct proxy_event event[PROXY_EVENT_MAX];
	unsigned int event_count;
};

struct proxy;

/* Whether @command is one that the control socket would take; 0 or -errno. */
int proxy_command_check(const char *command);

/* -errno where it can't listen; *@what_out then says at what. */
int proxy_open(struct proxy **proxy_out, const struct proxy_conf *conf, const char **what_out);
/* The port that it listens on. */
uint16_t proxy_port(const struct proxy *proxy);
/* Until "quit" or SIGTERM, SIGINT, SIGHUP. 0 or -errno. */
int proxy_run(struct proxy *proxy);
void proxy_close(struct proxy *proxy);

#endif
