/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot of what the daemon knows. Control thread; see state.h. */
#include "broker/local/state.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/clock.h"
#include "broker/lib/hash.h"
#include "broker/lib/log.h"
#include "broker/local/broker.h"
#include "broker/local/cache.h"
#include "broker/local/client_private.h"
#include "broker/local/move_ask.h"
#include "broker/local/place.h"
#include "broker/local/place_show.h"
#include "broker/local/server.h"
#include "broker/node/node.h"

#define COPY(to, from) snprintf(to, sizeof(to), "%s", from)

/* A hundredth of its size is used, mostly. */
static void report_copy(struct report *to, const struct report *from)
{
	memcpy(to, from, offsetof(struct report, gpus));
	memcpy(to->gpus, from->gpus, from->gpu_count * sizeof(to->gpus[0]));
	to->seat_count = from->seat_count;
	memcpy(to->seats, from->seats, from->seat_count * sizeof(to->seats[0]));
	memcpy(to->driver_version, from->driver_version, sizeof(to->driver_version));
}

static void server_take(const struct broker *broker, unsigned index, unsigned parts, struct state_server *out)
{
	const struct server *server = broker_server(broker, index);
	const struct place *place = broker_place(broker);
	struct link *link = server_link(server);
	const struct report *report = server_report(server);

	if (parts & STATE_NAMES) {
		COPY(out->name, server_name(server));
		COPY(out->address, server_address(server));
		COPY(out->state, server_state(server));
		COPY(out->why, server_why(server));
	}
	if (parts & STATE_PLACE) {
		out->drained = place_is_drained(place, index) || (report && report->draining);
		out->usable = place_bandwidth(place, index);
		COPY(out->interface, place_interface(place, index));
	}
	if (link && parts & STATE_LINK) {
		out->linked = true;
		link_stats(link, &out->link);
		COPY(out->peer, link_peer(link));
		COPY(out->host, link_host(link));
	}
	if (report && parts & STATE_REPORT) {
		out->reported = true;
		out->report_age_s = (double)(clock_ns() - server_told_ns(server)) / (double)NS_PER_S;
		report_copy(&out->report, report);
		out->load = report->busy_milli / 1000.0 / (report->gpu_count ? report->gpu_count : 1);
	}
	const struct cache_stats *cache = cache_server_stats(server_cache(broker_server(broker, index)));

	out->cached = cache && parts & STATE_CACHE;
	if (out->cached)
		out->cache = *cache;
}

static void client_take(const struct client *client, const struct client_view *view, struct state_client *out)
{
	out->pid = view->pid;
	out->uid = view->uid;
	out->session = client_session(client);
	COPY(out->program, view->program);
	COPY(out->server, view->server);
	COPY(out->state, view->state);
	COPY(out->reason, view->reason);
	out->direct = view->direct;
	out->age_s = (double)view->age_ns / (double)NS_PER_S;
	out->calls = view->calls;
	out->bytes = view->bytes;
	out->round_trips = view->round_trips;
	out->waited_s = (double)view->waited_ns / (double)NS_PER_S;
	out->inflight = view->inflight;
	out->memory = view->memory;
	out->pace = view->pace;
	out->link_sent = view->sent;
	out->link_received = view->received;
}

struct state *state_take(const struct broker *broker)
{
	struct state *state = calloc(1, sizeof(*state));
	struct client_view view;
	char hash[HASH_TEXT_SIZE];

	if (!state)
		return NULL;
	state->servers = calloc(broker_server_count(broker) + 1, sizeof(*state->servers));
	state->clients = calloc(broker_client_count(broker) + 1, sizeof(*state->clients));
	if (!state->servers || !state->clients) {
		state_free(state);
		return NULL;
	}
	hash_text(protocol_hash, hash);
	COPY(state->version, GLEAM_VERSION);
	snprintf(state->protocol, sizeof(state->protocol), "%u.%s", LINK_VERSION, hash);
	COPY(state->socket, broker_socket(broker));
	state->age_s = (double)broker_age_ns(broker) / (double)NS_PER_S;
	if (broker_node(broker)) {
		COPY(state->node, node_address(broker_node(broker)));
		COPY(state->node_trouble, node_trouble(broker_node(broker)));
		node_report(broker_node(broker), &state->node_report);
	}
	state_verdicts(broker, &state->verdicts);
	state->sessions = broker_totals(broker, &state->totals);
	for (unsigned i = 0; i < broker_server_count(broker); i++)
		server_take(broker, i, STATE_ALL, &state->servers[state->server_count++]);
	for (unsigned i = 0; i < broker_client_count(broker); i++) {
		const struct client *client = broker_client(broker, i);
		struct state_client *out = &state->clients[state->client_count];

		if (!client_view(client, &view))
			continue;
		client_take(client, &view, out);
		state->client_count++;
		for (unsigned s = 0; s < state->server_count; s++)
			if (strcmp(out->state, "live") == 0 && strcmp(state->servers[s].name, out->server) == 0)
				state->servers[s].clients++;
	}
	return state;
}

void state_free(struct state *state)
{
	if (!state)
		return;
	free(state->servers);
	free(state->clients);
	free(state);
}

bool state_server(const struct broker *broker, unsigned index, unsigned parts, struct state_server *server_out)
{
	if (index >= broker_server_count(broker))
		return false;
	memset(server_out, 0, offsetof(struct state_server, report));
	server_out->report.gpu_count = server_out->report.seat_count = 0;
	server_take(broker, index, parts, server_out);
	return true;
}

void state_verdicts(const struct broker *broker, struct verdicts_stats *stats_out)
{
	verdicts_stats(broker_verdicts(broker), stats_out);
}

int state_server_gpus(const struct broker *broker, unsigned index)
{
	const struct report *report = index < broker_server_count(broker) ? server_report(broker_server(broker, index)) : NULL;

	if (index >= broker_server_count(broker))
		return -ESTALE;
	return report ? (int)report->gpu_count : 0;
}

/* Whoever has looked before knows it by the number that it had then: its first, or that of today. */
static bool client_is(const struct client *client, uint32_t session)
{
	return client_session(client) == session || client_born_as(client) == session;
}

static void client_add(struct state_client *sum, const struct state_client *other)
{
	sum->calls += other->calls;
	sum->bytes += other->bytes;
	sum->round_trips += other->round_trips;
	sum->waited_s += other->waited_s;
	sum->inflight += other->inflight;
	sum->memory += other->memory;
	sum->link_sent += other->link_sent;
	sum->link_received += other->link_received;
}

/* Of a program with several, in the order in which they were opened. */
static void servers_put(const struct broker *broker, struct client *client, char *out, size_t size)
{
	struct client *sessions[MOVE_SESSIONS_MAX];
	unsigned count = move_ask_sessions(broker, client, sessions);
	size_t at = 0;

	for (unsigned i = 0; count > 1 && i < count && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%s", i ? "," : "", sessions[i]->server ? server_name(sessions[i]->server) : "");
}

bool state_client(const struct broker *broker, uint32_t session, struct state_client *client_out)
{
	struct client_view view;

	for (unsigned i = 0; i < broker_client_count(broker); i++) {
		const struct client *client = broker_client(broker, i);

		if (!client_is(client, session))
			continue;
		if (!client_view(client, &view))
			return false;
		memset(client_out, 0, sizeof(*client_out));
		client_take(client, &view, client_out);
		for (unsigned k = 0; k < broker_client_count(broker); k++) {
			struct state_client other = { 0 };

			if (!client_is_sibling(broker_client(broker, k), client) || !client_view(broker_client(broker, k), &view))
				continue;
			client_take(broker_client(broker, k), &view, &other);
			client_add(client_out, &other);
		}
		servers_put(broker, broker_client(broker, i), client_out->server, sizeof(client_out->server));
		return true;
	}
	return false;
}

unsigned state_who(const struct broker *broker, struct state_who *who_out, unsigned max)
{
	unsigned count = 0;

	for (unsigned i = 0; i < broker_client_count(broker) && count < max; i++) {
		const struct client *client = broker_client(broker, i);

		if (client->state != CLIENT_OPENING && client->state != CLIENT_LIVE && client->state != CLIENT_DEAD)
			continue;
		who_out[count++] = (struct state_who){
			.pid = client->pid,
			.uid = client->uid,
			.session = client_born_as(client),
			.age_s = (double)(loop_now_ns(client->loop) - client->born_ns) / (double)NS_PER_S,
		};
	}
	return count;
}

void state_times(const struct broker *broker, uint32_t session, uint32_t api, uint32_t times_out[SESSION_TIMES])
{
	memset(times_out, 0, SESSION_TIMES * sizeof(*times_out));
	for (unsigned i = 0; i < broker_client_count(broker); i++)
		if (client_is(broker_client(broker, i), session))
			client_times(broker_client(broker, i), api, times_out);
}

static void counts_add(const struct client *client, struct api_count *sums)
{
	for (uint32_t api = 0; api < SESSION_API_MAX; api++) {
		struct api_count count;

		client_count(client, api, &count);
		sums[api].calls += count.calls;
		sums[api].bytes += count.bytes;
		sums[api].trips += count.trips;
		sums[api].waited_ns += count.waited_ns;
	}
}

int state_counts(const struct broker *broker, uint32_t session, struct api_count *counts_out)
{
	for (unsigned i = 0; i < broker_client_count(broker); i++) {
		const struct client *client = broker_client(broker, i);

		if (!client_is(client, session))
			continue;
		for (uint32_t api = 0; api < SESSION_API_MAX; api++)
			client_count(client, api, &counts_out[api]);
		for (unsigned k = 0; k < broker_client_count(broker); k++)
			if (client_is_sibling(broker_client(broker, k), client))
				counts_add(broker_client(broker, k), counts_out);
		return 0;
	}
	return -ESRCH;
}

const char *state_policy(const struct broker *broker)
{
	return sched_policy(place_sched(broker_place(broker)));
}

int state_policy_set(struct broker *broker, const char *name)
{
	return place_policy_set(broker_place(broker), name);
}

void state_decisions(const struct broker *broker, FILE *out)
{
	place_decisions_put(out, broker_place(broker));
}

/* ---- commands ---- */

struct state_wish {
	state_heard *heard; /* NULL: it has been, or nobody waits */
	void *arg;
	char where[CONF_NAME_SIZE];
};

static void wish_hear(void *arg, const struct move_news *news)
{
	struct state_wish *wish = arg;
	state_heard *heard = wish->heard;
	int err = !news->over || news->done		? 0 :
		  news->refused				? -EOPNOTSUPP :
		  news->phase == MOVE_PHASE_REACH	? -EHOSTUNREACH :
							  -EIO;

	/* Whether it can be moved is known when its memory begins to go. */
	if (heard && (news->over || news->phase >= MOVE_PHASE_COPY)) {
		wish->heard = NULL;
		heard(wish->arg, err);
	}
	if (news->over && !news->done)
		log_warn("pid %d (%s): does not move to %s as written to its file: %s", news->pid, news->program, wish->where, news->why);
	if (news->over)
		free(wish);
}

/* NAME[:GPU], of @size bytes. -EINVAL: not that, -ENOENT. @gpu_out: -1 without. */
static int place_read(struct broker *broker, const char *text, size_t size, struct server **to_out, int *gpu_out)
{
	char name[CONF_NAME_SIZE + 8];
	char *colon, *end;
	unsigned long gpu;

	if (size == 0 || size >= sizeof(name))
		return -EINVAL;
	memcpy(name, text, size);
	name[size] = 0;
	colon = strrchr(name, ':');
	*gpu_out = -1;
	if (colon) {
		gpu = strtoul(colon + 1, &end, 10);
		if (colon[1] < '0' || colon[1] > '9' || *end || gpu > 63)
			return -EINVAL;
		*colon = 0;
		*gpu_out = (int)gpu;
	}
	*to_out = move_ask_server(broker, name);
	return *to_out ? 0 : -ENOENT;
}

/*
 * Which session of a process is to go where: with one, wherever @where says; with several, as many names with commas between as are read
 * from the file, of which one has changed.
 */
static int where_read(struct broker *broker, struct client **client, const char *where, struct server **to_out, int *gpu_out)
{
	struct client *sessions[MOVE_SESSIONS_MAX], *goes = NULL;
	unsigned count = move_ask_sessions(broker, *client, sessions);

	for (unsigned i = 0; i < count; i++) {
		size_t size = strcspn(where, ",");
		struct server *to;
		int gpu, err = place_read(broker, where, size, &to, &gpu);

		if (err)
			return err;
		if ((where[size] == 0) != (i == count - 1))
			return -EINVAL;
		where += size + 1;
		if (count > 1 && to == sessions[i]->server && gpu < 0)
			continue;
		if (goes)
			return -EINVAL;
		goes = sessions[i];
		*to_out = to;
		*gpu_out = gpu;
	}
	if (!goes)
		return -EINVAL;
	*client = goes;
	return 0;
}

int state_move(struct broker *broker, uint32_t session, const char *where, state_heard *heard, void *arg, struct state_wish **wish_out)
{
	struct client *client = NULL;
	struct state_wish *wish;
	struct server *to;
	char why[MOVE_WHY_SIZE];
	int gpu, err;

	for (unsigned i = 0; i < broker_client_count(broker) && !client; i++)
		if (client_is(broker_client(broker, i), session))
			client = broker_client(broker, i);
	if (!client)
		return -ESTALE;
	err = where_read(broker, &client, where, &to, &gpu);
	if (err)
		return err;
	wish = calloc(1, sizeof(*wish));
	if (!wish)
		return -ENOMEM;
	*wish = (struct state_wish){ .heard = heard, .arg = arg };
	COPY(wish->where, server_name(to));
	err = move_ask(broker, client, to, gpu, wish_hear, wish, why, sizeof(why));
	if (err) {
		log_info("pid %d (%s): does not move to %s as written to its file: %s", client->pid, client->program, server_name(to), why);
		free(wish);
		return err;
	}
	*wish_out = wish;
	return 0;
}

void state_wish_forget(struct state_wish *wish)
{
	wish->heard = NULL;
}

void state_refresh(struct broker *broker)
{
	for (unsigned i = 0; i < broker_server_count(broker); i++)
		server_wake(broker_server(broker, i));
}
