/* SPDX-License-Identifier: Apache-2.0 */
/* gleamctl's wish that a program moves. Control thread; see control_move.h. */
#include "broker/local/control_move.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "broker/lib/json.h"
#include "broker/local/broker.h"
#include "broker/local/client_private.h"
#include "broker/local/control.h"
#include "broker/local/move.h"

#define MOVES_MAX 4u /* at a time: each takes memory here, and its share of two links */

static void refuse(struct json *json, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void refuse(struct json *json, const char *format, ...)
{
	char why[512];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	json_open(json, NULL, '{');
	json_str(json, "error", why);
	json_close(json, '}');
}

static void moved(void *arg, const struct move_result *result)
{
	struct client *asker = arg;
	struct json json = { 0 };

	if (!result) {
		/* A blank, and more to come: whoever waits sees that it goes on. */
		static const uint8_t blank[] = { LOCAL_JSON, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, ' ', 0 };

		client_packet(asker, blank, sizeof(blank), NULL, 0);
		return;
	}
	asker->asks = NULL;
	if (!result->done) {
		refuse(&json, "%s", result->why);
	} else {
		json_open(&json, NULL, '{');
		json_str(&json, "from", result->from);
		json_str(&json, "to", result->to);
		json_u64(&json, "memory", result->memory);
		json_u64(&json, "bytes", result->bytes);
		json_fixed(&json, "pause_ms", (double)result->pause_ns / 1e6, 1);
		json_fixed(&json, "total_s", (double)result->total_ns / 1e9, 3);
		json_close(&json, '}');
	}
	/* It may not be there any more; then it has its own end. */
	control_send(asker, &json);
}

static struct server *server_find(const struct broker *broker, const char *name)
{
	for (unsigned i = 0; i < broker_server_count(broker); i++)
		if (strcmp(server_name(broker_server(broker, i)), name) == 0)
			return broker_server(broker, i);
	return NULL;
}

/* Another one than it is on. */
static struct server *server_other(const struct broker *broker, const struct client *client)
{
	for (unsigned i = 0; i < broker_server_count(broker); i++)
		if (broker_server(broker, i) != client->server)
			return broker_server(broker, i);
	return NULL;
}

/* Sessions of a pid: a process has one as a rule. */
static struct client *client_find(const struct broker *broker, uint64_t pid)
{
	for (unsigned i = 0; i < broker_client_count(broker); i++) {
		struct client *client = broker_client(broker, i);

		if ((uint64_t)client->pid == pid &&
		    (client->state == CLIENT_LIVE || client->state == CLIENT_OPENING || client->state == CLIENT_DEAD))
			return client;
	}
	return NULL;
}

static unsigned moves_count(const struct broker *broker)
{
	unsigned count = 0;

	for (unsigned i = 0; i < broker_client_count(broker); i++)
		count += broker_client(broker, i)->move != NULL;
	return count;
}

bool control_move(struct broker *broker, struct client *asker, uid_t uid, const char *request, struct json *json)
{
	struct json_field fields[JSON_FIELDS_MAX];
	const struct json_field *cmd, *pid, *name, *gpu;
	struct client *client;
	struct server *server;
	char why[MOVE_WHY_SIZE];
	unsigned count = 0;

	if (json_read(request, fields, &count))
		return false;
	cmd = json_field(fields, count, "cmd");
	if (!cmd || cmd->is_number || strcmp(cmd->text, "migrate") != 0)
		return false;
	pid = json_field(fields, count, "pid");
	name = json_field(fields, count, "server");
	gpu = json_field(fields, count, "gpu");
	if (!pid || !pid->is_number || (name && name->is_number) || (gpu && (!gpu->is_number || gpu->number > 63))) {
		refuse(json, "migrate wants a \"pid\", and may have a \"server\" and the number of a \"gpu\" of it");
		return false;
	}
	client = client_find(broker, pid->number);
	/* Whose it is isn't told to strangers. */
	if (!client || (uid != 0 && uid != geteuid() && client->uid != uid)) {
		refuse(json, "no program of yours with pid %llu uses Gleam on this machine; gleamctl clients lists those that do",
		       (unsigned long long)pid->number);
		return false;
	}
	server = name ? server_find(broker, name->text) : server_other(broker, client);
	if (!server && name) {
		refuse(json, "there is no server `%s`; gleamctl servers lists those that are known", name->text);
		return false;
	}
	if (!server) {
		refuse(json, "no other server is known than the one that it uses; name that to move it to another worker there");
		return false;
	}
	if (gpu && server_report(server) && gpu->number >= server_report(server)->gpu_count) {
		refuse(json, "%s has %u GPUs, numbered from 0", server_name(server), server_report(server)->gpu_count);
		return false;
	}
	if (client->kernel && (*client->kernel->server) && strcmp(server_name(server), client->kernel->server) != 0) {
		refuse(json, "pid %d has come by a device of server %s, and may use no other", client->pid, client->kernel->server);
		return false;
	}
	if (moves_count(broker) >= MOVES_MAX) {
		refuse(json, "%u programs are being moved, the most at a time; wait until one of them has come", MOVES_MAX);
		return false;
	}
	if (move_start(broker, client, server, gpu ? (int)gpu->number : -1, moved, asker, why, sizeof(why))) {
		refuse(json, "%s", why);
		return false;
	}
	asker->asks = client->move;
	return true;
}
