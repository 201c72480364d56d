/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that is connected to the local socket: a client with its session, or somebody who asks (gleamctl). Control
 * thread; what lanes touch of it is in its mirror.
 *
 * The session memory is mirrored to the node: commands go out as spans of the ring at the same positions, their bulk bytes
 * by lanes; the ring is freed as the node's worker consumes it, so that what a reconnect would send again is always
 * [acknowledged, sent) of the ring.
 */
#ifndef GLEAM_LOCAL_CLIENT_H
#define GLEAM_LOCAL_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/core/loop.h"
#include "broker/lib/codec.h"
#include "broker/proto/ring.h"
#include "broker/proto/wire.h"

struct broker;
struct client;
struct server;

/* Takes @fd, a connected SOCK_SEQPACKET socket. NULL: out of memory. */
struct client *client_new(struct broker *broker, struct loop *loop, int fd, uint32_t session);

/* A session of the kernel module: who it is, what it may use, and memory and doorbell that are there already. */
struct client_kernel {
	pid_t pid;
	uid_t uid;
	int memory;
	int doorbell;
	char server[64];     /* "": any */
	char visible[2688];  /* GPUs of that server, as CUDA_VISIBLE_DEVICES names them; 64 of 41 bytes */
	bool limited;	     /* to some devices; its session is an earlier daemon's, and so is its worker that has those alone */
	const char *refused; /* why it can't have a session; NULL: it can. A literal */
};
/* Right after client_new(). Takes both descriptors. -ENOMEM: the caller closes the other end, and it is gone. */
int client_kernel_set(struct client *client, const struct client_kernel *kernel);
/* The daemon stops: its session ends, or waits for the @next one, its socket closes; broker_client_freed() follows. */
void client_stop(struct client *client, bool next);

/* Each round: moves what it has written. True when something moved. */
bool client_poll(struct client *client);
bool client_sleep(struct client *client);
void client_wake(struct client *client);

/* A message of the link for this session. -EPROTO only for what a node must never send. */
int client_message(struct client *client, const struct link_hdr *hdr, struct reader *body);
/* The link to its server is gone. */
void client_link_lost(struct client *client, struct server *server, const char *why);

/* A link is gone that it may be moving to. */
void client_move_lost(struct client *client, struct server *server, const char *why);

uint32_t client_session(const struct client *client);
/* Are both live sessions of one process, on several servers? */
bool client_is_sibling(const struct client *client, const struct client *of);
bool client_has_sibling(const struct client *client);
/* The number that it had first: moves give its session others. */
uint32_t client_born_as(const struct client *client);

/* What is known of it, for people. */
struct client_view {
	pid_t pid;
	uid_t uid;
	const char *program;
	const char *server; /* "": none yet */
	const char *state;  /* opening, live, reconnecting, dead */
	const char *reason; /* why it is dead, or reconnecting */
	bool direct;	    /* its worker is of this machine, and shares memory with it */
	uint64_t age_ns;
	uint64_t calls; /* sums over the counters */
	uint64_t bytes;
	uint64_t round_trips;
	uint64_t waited_ns;
	uint64_t inflight; /* bytes of commands and their data that the worker hasn't taken yet */
	uint64_t memory;
	double pace; /* commands a second that it is held to; 0: any number */
	/* what went over the link */
	uint64_t sent;
	uint64_t received;
};

/* False: it has no session. */
bool client_view(const struct client *client, struct client_view *view_out);
/* Its counters, summed over all functions, for as long as its memory is there. False: it never had a session. */
bool client_sums(const struct client *client, struct api_count *sums_out);
/* The counters of one function; @api < SESSION_API_MAX. */
void client_times(const struct client *client, uint32_t api, uint32_t times_out[SESSION_TIMES]);
void client_count(const struct client *client, uint32_t api, struct api_count *count_out);

#endif
