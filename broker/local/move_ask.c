/* SPDX-License-Identifier: Apache-2.0 */
/* Wishes that a program moves. Control thread; see move_ask.h. */
#include "broker/local/move_ask.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "broker/lib/json.h"
#include "broker/local/broker.h"
#include "broker/local/client_private.h"

static int refuse(int err, char *why, size_t why_size, const char *format, ...) __attribute__((format(printf, 4, 5)));
static int refuse(int err, char *why, size_t why_size, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, why_size, format, args);
	va_end(args);
	return err;
}

struct client *move_ask_client(const struct broker *broker, uint64_t pid, uid_t uid)
{
	struct client *first = NULL;

	for (unsigned i = 0; i < broker_client_count(broker); i++) {
		struct client *client = broker_client(broker, i);

		if ((uint64_t)client->pid != pid || (uid != 0 && uid != geteuid() && client->uid != uid))
			continue;
		/* A process has one as a rule; of several one that lives is asked for. */
		if (client->state == CLIENT_LIVE)
			return client;
		if (!first && (client->state == CLIENT_OPENING || client->state == CLIENT_DEAD))
			first = client;
	}
	return first;
}

unsigned move_ask_sessions(const struct broker *broker, struct client *client, struct client *sessions_out[MOVE_SESSIONS_MAX])
{
	unsigned count = 1;

	sessions_out[0] = client;
	for (unsigned i = 0; i < broker_client_count(broker) && count < MOVE_SESSIONS_MAX; i++) {
		struct client *other = broker_client(broker, i);
		unsigned at = count;

		if (!client_is_sibling(other, client))
			continue;
		for (; at && sessions_out[at - 1]->born_ns > other->born_ns; at--)
			sessions_out[at] = sessions_out[at - 1];
		sessions_out[at] = other;
		count++;
	}
	return count;
}

struct client *move_ask_session_at(const struct broker *broker, struct client *client, uint64_t number, unsigned *count_out)
{
	struct client *sessions[MOVE_SESSIONS_MAX];

	*count_out = move_ask_sessions(broker, client, sessions);
	return number < *count_out ? sessions[number] : NULL;
}

struct client *move_ask_session(const struct broker *broker, struct client *client, const char *from, char *why, size_t why_size)
{
	struct client *sessions[MOVE_SESSIONS_MAX];
	unsigned count = move_ask_sessions(broker, client, sessions);
	char names[256] = "";
	size_t at = 0;

	for (unsigned i = 0; i < count; i++) {
		const char *name = sessions[i]->server ? server_name(sessions[i]->server) : "none";

		if (from && strcmp(name, from) == 0)
			return sessions[i];
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", i ? ", " : "", name);
		if (at >= sizeof(names))
			at = sizeof(names) - 1;
	}
	if (from)
		refuse(0, why, why_size, "pid %d has no GPU of server `%s`, but of %s", client->pid, from, names);
	else if (count > 1)
		refuse(0, why, why_size, "pid %d has GPUs of several servers (%s), which move one by one: say %d:%s for those of the first", client->pid,
		       names, client->pid, sessions[0]->server ? server_name(sessions[0]->server) : "NAME");
	else
		return client;
	return NULL;
}

struct server *move_ask_server(const struct broker *broker, const char *name)
{
	for (unsigned i = 0; i < broker_server_count(broker); i++)
		if (strcmp(server_name(broker_server(broker, i)), name) == 0)
			return broker_server(broker, i);
	return NULL;
}

bool move_ask_has_room(const struct broker *broker)
{
	unsigned count = 0;

	for (unsigned i = 0; i < broker_client_count(broker); i++)
		count += broker_client(broker, i)->move != NULL;
	return count < MOVES_MAX;
}

/* One that the program isn't on, or on least. */
static struct server *server_other(const struct broker *broker, struct client *client)
{
	struct client *sessions[MOVE_SESSIONS_MAX];
	unsigned count = move_ask_sessions(broker, client, sessions);
	struct server *other = NULL;

	for (unsigned i = broker_server_count(broker); i-- > 0;) {
		struct server *server = broker_server(broker, i);
		bool has = false, had = false;

		for (unsigned k = 0; k < count; k++) {
			has |= sessions[k]->server == server;
			had |= sessions[k]->server == other;
		}
		if (server != client->server && (!other || !has || had))
			other = server;
	}
	return other;
}

int move_ask(struct broker *broker, struct client *client, struct server *to, int gpu, move_hear *hear, void *arg, char *why,
	     size_t why_size)
{
	int err;

	if (!to)
		to = server_other(broker, client);
	if (!to)
		return refuse(-ENOENT, why, why_size,
			      "no other server is known than the one that it uses; name that to move it to another worker there");
	if (gpu >= 0 && server_report(to) && (unsigned)gpu >= server_report(to)->gpu_count)
		return refuse(-ENOENT, why, why_size, "%s has %u GPU%s, numbered from 0", server_name(to), server_report(to)->gpu_count,
			      server_report(to)->gpu_count == 1 ? "" : "s");
	if (client->kernel && *client->kernel->server && strcmp(server_name(to), client->kernel->server) != 0)
		return refuse(-EPERM, why, why_size, "pid %d has come by a device of server %s, and may use no other", client->pid,
			      client->kernel->server);
	if (!client->move && !move_ask_has_room(broker))
		return refuse(-EAGAIN, why, why_size, "%u programs are being moved, the most at a time; wait until one of them has come",
			      MOVES_MAX);
	err = move_start(broker, client, to, gpu, hear, arg, why, why_size);
	return err == -EALREADY ? -EBUSY : err;
}

static double seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

void move_news_json(struct json *json, const struct move_news *news)
{
	char key[16];

	json_u64(json, "pid", (uint64_t)news->pid);
	json_str(json, "program", news->program);
	json_str(json, "from", news->from);
	json_str(json, "to", news->to);
	json_u64(json, "memory", news->memory);
	json_u64(json, "bytes", news->bytes);
	json_u64(json, "bytes_avoided", news->avoided);
	json_u64(json, "bytes_held", news->bytes_held);
	if (news->way && *news->way) {
		json_u64(json, "bytes_direct", news->direct);
		json_u64(json, "bytes_cached", news->cached);
		json_str(json, "way", news->way);
		json_str(json, "way_why", news->way_why);
	}
	json_u64(json, "rounds", news->rounds);
	json_fixed(json, "pause_ms", (double)news->pause_ns / 1e6, 1);
	json_fixed(json, "total_s", seconds(news->total_ns), 3);
	json_open(json, "steps", '{');
	for (unsigned i = 0; i < MOVE_PHASES; i++) {
		snprintf(key, sizeof(key), "%s_s", move_phase_names[i]);
		json_fixed(json, key, seconds(news->phase_ns[i]), 3);
	}
	json_close(json, '}');
	if (news->over)
		return;
	json_str(json, "step", move_phase_names[news->phase]);
	json_bool(json, "held", news->held);
	json_u64(json, "left", news->left);
}
