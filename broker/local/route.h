/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's way through the servers, until one has taken it. The scheduler says which is next (place.h). Control thread.
 */
#ifndef GLEAM_LOCAL_ROUTE_H
#define GLEAM_LOCAL_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/lib/conf.h"
#include "broker/local/place.h"
#include "broker/proto/wire.h"

#define ROUTE_WHY_SIZE 900 /* fits a packet's reason; a few servers' reasons fit */

struct broker;
struct client;
struct server;

/* A client's way through the servers. */
struct route {
	char wanted[CONF_NAME_SIZE]; /* by GLEAM_SERVER; "": any */
	uint64_t tried;		     /* bit per server */
	uint64_t left_out;	     /* of those, which the client has GPUs of already */
	struct place_program program;
	uint64_t decision;	     /* of the scheduler, the newest */
	enum session_end end;	     /* what the last server that answered said */
	char why[ROUTE_WHY_SIZE];    /* what came of those that were tried */
};

/* The next server to try; NULL when none is left, and @why says what to do. */
struct server *route_pick(struct broker *broker, struct client *client, char *why, size_t why_size);
/* Servers (names with commas between) that the client wants no further GPUs of. */
void route_leave_out(struct broker *broker, struct route *route, const char *names);
/* How many others the client could ask next: that answer, and have GPUs. */
unsigned route_others(struct broker *broker, const struct client *client);
void route_failed(struct broker *broker, struct route *route, struct server *server, const char *why);
/*
 * Whether it is worth trying them all once more: none has answered, but the link to one of them was up after @since_ns. Nobody
 * is to be refused because a link was cut just then. If so, the next route_pick() begins anew.
 */
bool route_again(struct broker *broker, struct route *route, uint64_t since_ns);
void route_why(const struct route *route, char *why, size_t why_size);

#endif
