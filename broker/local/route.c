/* SPDX-License-Identifier: Apache-2.0 */
/* Which server a client gets. Control thread; see route.h. */
#include "broker/local/route.h"

#include <stdio.h>
#include <string.h>

#include "broker/lib/clock.h"
#include "broker/local/broker.h"
#include "broker/local/server.h"

#define ROUTE_SHUN_NS (5 * NS_PER_S) /* a server that failed just now is tried after the others */

static_assert(CONF_SERVERS_MAX <= 64, "route.tried has a bit for each");

/* GLEAM_SERVER, or the first in the configuration that hasn't failed lately, or the first that has. */
struct server *route_pick(struct broker *broker, struct route *route, char *why, size_t why_size)
{
	unsigned count = broker_server_count(broker);
	struct server *shunned = NULL;
	uint64_t now = clock_ns();
	unsigned shunned_at = 0;

	for (unsigned i = 0; i < count; i++) {
		struct server *server = broker_server(broker, i);

		if (route->tried & 1ull << i || (*route->wanted && strcmp(route->wanted, server_name(server)) != 0))
			continue;
		if (!server_failed_ns(server) || now - server_failed_ns(server) > ROUTE_SHUN_NS) {
			route->tried |= 1ull << i;
			return server;
		}
		if (!shunned) {
			shunned = server;
			shunned_at = i;
		}
	}
	if (shunned) {
		route->tried |= 1ull << shunned_at;
		return shunned;
	}
	if (*route->why)
		route_why(route, why, why_size);
	else if (*route->wanted)
		snprintf(why, why_size, "GLEAM_SERVER=%s: gleamd has no server of this name; `gleamctl servers` lists them",
			 route->wanted);
	else
		snprintf(why, why_size, "gleamd has no servers; name one in %s under [servers], or with --server NAME=ADDRESS:PORT",
			 CONF_SYSTEM_PATH);
	return NULL;
}

void route_failed(struct route *route, struct server *server, const char *why)
{
	size_t at = strlen(route->why);

	snprintf(route->why + at, sizeof(route->why) - at, "%s%s: %s", at ? "; " : "", server_name(server), why);
}

void route_why(const struct route *route, char *why, size_t why_size)
{
	snprintf(why, why_size, "no server: %s", *route->why ? route->why : "none answered in time");
}
