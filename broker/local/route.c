/* SPDX-License-Identifier: Apache-2.0 */
/* A client's way through the servers. Control thread; see route.h. */
#include "broker/local/route.h"

#include <stdio.h>
#include <string.h>

#include "broker/local/broker.h"
#include "broker/local/client_private.h"
#include "broker/local/server.h"

static_assert(CONF_SERVERS_MAX <= 64, "route.tried has a bit for each");

static bool is_known(const struct broker *broker, const char *name)
{
	for (unsigned i = 0; i < broker_server_count(broker); i++)
		if (strcmp(server_name(broker_server(broker, i)), name) == 0)
			return true;
	return false;
}

struct server *route_pick(struct broker *broker, struct client *client, char *why, size_t why_size)
{
	struct route *route = &client->route;
	char none[ROUTE_WHY_SIZE] = "";
	int server;

	if (broker_server_count(broker) == 0 && !*route->wanted) {
		snprintf(why, why_size, "gleamd has no servers; name one in %s under [servers], or with --server NAME=ADDRESS:PORT",
			 CONF_SYSTEM_PATH);
		return NULL;
	}
	if (*route->wanted && !is_known(broker, route->wanted)) {
		snprintf(why, why_size, "GLEAM_SERVER=%s: gleamd has no server of this name; `gleamctl servers` lists them",
			 route->wanted);
		return NULL;
	}
	server = place_pick(broker_place(broker), client, route->tried, &route->decision, none, sizeof(none));
	if (server >= 0) {
		route->tried |= 1ull << server;
		return broker_server(broker, (unsigned)server);
	}
	if (*none && !*route->why)
		route->end = END_REFUSED; /* they are there, but can't take it */
	if (*none)
		snprintf(why, why_size, "%s%s%s", route->why, *route->why ? "; " : "", none);
	else
		route_why(route, why, why_size);
	return NULL;
}

void route_leave_out(struct broker *broker, struct route *route, const char *names)
{
	while (*names) {
		size_t length = strcspn(names, ",");

		for (unsigned i = 0; i < broker_server_count(broker); i++) {
			const char *name = server_name(broker_server(broker, i));

			if (strlen(name) == length && !memcmp(name, names, length))
				route->left_out |= 1ull << i;
		}
		names += length + (names[length] == ',');
	}
	route->tried |= route->left_out;
}

unsigned route_others(struct broker *broker, const struct client *client)
{
	unsigned count = 0;

	for (unsigned i = 0; i < broker_server_count(broker); i++) {
		const struct server *server = broker_server(broker, i);
		const struct report *report = server_report(server);

		if (server == client->server || client->route.left_out >> i & 1 || !server_link(server) ||
		    place_is_drained(broker_place(broker), i))
			continue;
		/* Without a report its driver is still being asked: trying tells. */
		count += !report || (report->gpu_count && !report->draining);
	}
	return count;
}

void route_failed(struct broker *broker, struct route *route, struct server *server, const char *why)
{
	size_t at = strlen(route->why);
	char said[ROUTE_WHY_SIZE];

	/* Tried again and again, it is named once for each reason. */
	snprintf(said, sizeof(said), "%s: %s", server_name(server), why);
	if (!strstr(route->why, said))
		snprintf(route->why + at, sizeof(route->why) - at, "%s%s", at ? "; " : "", said);
	for (unsigned i = 0; i < broker_server_count(broker); i++)
		if (broker_server(broker, i) == server)
			place_failed(broker_place(broker), i);
}

bool route_again(struct broker *broker, struct route *route, uint64_t since_ns)
{
	bool again = false;

	for (unsigned i = 0; i < broker_server_count(broker) && !route->end; i++)
		if (route->tried & 1ull << i && server_up_ns(broker_server(broker, i)) >= since_ns)
			again = true;
	if (again)
		route->tried = 0;
	return again;
}

void route_why(const struct route *route, char *why, size_t why_size)
{
	snprintf(why, why_size, "no server: %s", *route->why ? route->why : "none answered in time");
}
