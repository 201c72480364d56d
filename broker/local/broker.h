/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The local role of gleamd: the socket of this machine's processes, their sessions, the servers. Control thread.
 */
#ifndef GLEAM_LOCAL_BROKER_H
#define GLEAM_LOCAL_BROKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/core/link.h"
#include "broker/core/loop.h"
#include "broker/lib/conf.h"
#include "broker/proto/ring.h"

#define BROKER_CLIENTS_MAX 1024 /* connections to the local socket; a session takes three descriptors and its memory */

struct broker;
struct cache_local;
struct verdicts;
struct client;
struct node;
struct place;
struct server;

/* On failure -errno and one line in @why. @node: the other role of this daemon, NULL without. */
int broker_start(struct loop *loop, const struct conf *conf, struct tls_keys *keys, struct node *node,
		 struct broker **broker_out, char *why, size_t why_size);
/*
 * The socket goes away, and sessions end, or wait for the next daemon (@next); broker_is_stopped() tells when all has ended, then
 * broker_free().
 */
void broker_stop(struct broker *broker, bool next);
bool broker_is_stopped(const struct broker *broker);
void broker_free(struct broker *broker);

/* The loop's hook. */
bool broker_poll(struct broker *broker);
bool broker_sleep(struct broker *broker);
void broker_wake(struct broker *broker);

/* ---- for its parts ---- */

struct client_kernel;
/* A client whose memory is the kernel's. Takes @fd and what is in @kernel, also on failure. */
int broker_client_kernel(struct broker *broker, int fd, const struct client_kernel *kernel);
void broker_client_freed(struct broker *broker, struct client *client);
const struct conf *broker_conf(const struct broker *broker);
unsigned broker_server_count(const struct broker *broker);
struct server *broker_server(const struct broker *broker, unsigned index);
unsigned broker_client_count(const struct broker *broker);
struct client *broker_client(const struct broker *broker, unsigned index);
struct place *broker_place(const struct broker *broker);
/* A number for a session of our own. */
uint32_t broker_session_take(struct broker *broker);
struct loop *broker_loop(const struct broker *broker);
struct cache_local *broker_cache(const struct broker *broker);
struct verdicts *broker_verdicts(const struct broker *broker);
struct node *broker_node(const struct broker *broker);
const char *broker_socket(const struct broker *broker);
/* What all sessions have counted since the start, those that have ended included. Returns how many sessions there were. */
uint64_t broker_totals(const struct broker *broker, struct api_count *totals_out);
uint64_t broker_age_ns(const struct broker *broker);

#endif
