/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which server a client gets. Control thread. One function decides, so that a scheduler can take its place.
 */
#ifndef GLEAM_LOCAL_ROUTE_H
#define GLEAM_LOCAL_ROUTE_H

#include <stddef.h>
#include <stdint.h>

#include "broker/lib/conf.h"
#include "broker/proto/wire.h"

#define ROUTE_WHY_SIZE 900 /* fits a packet's reason; a few servers' reasons fit */

struct broker;
struct server;

/* A client's way through the servers. */
struct route {
	char wanted[CONF_NAME_SIZE]; /* by GLEAM_SERVER; "": any */
	uint64_t tried;		     /* bit per server of the configuration */
	enum session_end end;	     /* what the last server that answered said */
	char why[ROUTE_WHY_SIZE];    /* what came of those that were tried */
};

/* The next server to try; NULL when none is left, and @why says what to do. */
struct server *route_pick(struct broker *broker, struct route *route, char *why, size_t why_size);
void route_failed(struct route *route, struct server *server, const char *why);
void route_why(const struct route *route, char *why, size_t why_size);

#endif
