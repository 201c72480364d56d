/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler in gleamd: tells it what links, reports and clients are like, asks it where a client goes, and remembers on disk
 * what programs need. The deciding itself is in sched*.c. Control thread.
 */
#ifndef GLEAM_LOCAL_PLACE_H
#define GLEAM_LOCAL_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/core/loop.h"
#include "broker/lib/conf.h"
#include "broker/local/sched.h"
#include "broker/proto/stats.h"

struct broker;
struct client;
struct place;
struct server;

/* NULL: out of memory, or a policy that doesn't exist; a line in @why. */
struct place *place_new(struct broker *broker, struct loop *loop, const struct conf *conf, char *why, size_t why_size);
/* What was learned is written; nothing runs any more. */
void place_stop(struct place *place);
bool place_is_stopped(const struct place *place);
void place_free(struct place *place);

/* A server has been added to the broker's table, at its end. -ENOMEM. */
int place_server_add(struct place *place, const char *name);

/* ---- a client's way ---- */

/* What is known of a program before it runs. */
struct place_program {
	uint64_t key;	/* of executable and command line; 0: not known */
	uint64_t key_any; /* of the executable, or the script that it interprets */
	enum sched_priority priority;
};
/* Reads /proc/PID; @settings: as the client sent them. */
void place_program_look(pid_t pid, const char *settings, struct place_program *program_out);

/* False: servers are being looked at for the first time; ask again soon. Opens links that nobody has wanted yet. */
bool place_is_settled(struct place *place, const char *wanted);
/* The place of a server in the broker's table, or -1 and why not. @tried: bit per server. */
int place_pick(struct place *place, const struct client *client, uint64_t tried, uint64_t *decision_out, char *why, size_t why_size);
void place_failed(struct place *place, unsigned server);
void place_client_live(struct place *place, struct client *client);
/* It has moved: it was @session on @from, and is what it is now. */
void place_client_moved(struct place *place, struct client *client, uint32_t session, const struct server *from);
/* Before its memory goes. @whole: it ended by itself, so its run tells what the program needs. */
void place_client_over(struct place *place, struct client *client, bool whole);

/* A report of a server has come. */
void place_report(struct place *place, unsigned server, const struct report *report);

/* ---- for people ---- */

/* -EINVAL: no such policy. */
int place_policy_set(struct place *place, const char *name);
/* No new clients of this machine go to that server. @keep: those that are there aren't moved away by the scheduler for that. */
void place_drain(struct place *place, unsigned server, bool on, bool keep);
bool place_is_drained(const struct place *place, unsigned server);
unsigned place_clients(const struct place *place, unsigned server); /* of this machine, there */
const struct sched *place_sched(const struct place *place);
/* For place_move.c, with all that is known of servers up to date. */
struct sched *place_sched_now(struct place *place);
/* The place of a server in the broker's table; -1. */
int place_server_index(const struct place *place, const struct server *server);
/* Seconds since the daemon was started, on the clock of decisions. */
double place_now(const struct place *place);
/* Of the interface that leads to the server: "" and 0 when nobody knows. */
const char *place_interface(const struct place *place, unsigned server);
double place_interface_rate(const struct place *place, unsigned server); /* bytes a second */
double place_bandwidth(const struct place *place, unsigned server);	 /* as decisions see it; SCHED_UNKNOWN */

#endif
