/* SPDX-License-Identifier: Apache-2.0 */
/* gleamctl's wishes that programs move. Control thread; see control_move.h. */
#include "broker/local/control_move.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/lib/json.h"
#include "broker/local/broker.h"
#include "broker/local/client_private.h"
#include "broker/local/control.h"
#include "broker/local/drain.h"
#include "broker/local/place.h"

static void put_news(struct json *json, const struct move_news *news)
{
	json_open(json, NULL, '{');
	move_news_json(json, news);
	if (news->over) {
		json_bool(json, "moved", news->done);
		json_str(json, "why", news->done ? "" : news->why);
	}
	json_close(json, '}');
}

static void tell(struct client *asker, const struct move_news *news)
{
	struct json json = { 0 };

	put_news(&json, news);
	control_news(asker, &json);
}

/* ---- one ---- */

static void moved(void *arg, const struct move_news *news)
{
	struct client *asker = arg;
	struct json json = { 0 };

	if (!news->over) {
		tell(asker, news);
		return;
	}
	asker->asks_gone = NULL;
	if (!news->done) {
		control_refuse(&json, "%s", news->why);
	} else {
		json_open(&json, NULL, '{');
		move_news_json(&json, news);
		json_close(&json, '}');
	}
	/* It may not be there any more; then it has its own end. */
	control_send(asker, &json);
}

static void asker_gone(void *asks)
{
	move_unheard(asks);
}

static bool migrate(struct broker *broker, struct client *asker, uid_t uid, const struct json_field *fields, unsigned count,
		    struct json *json)
{
	const struct json_field *pid = json_field(fields, count, "pid");
	const struct json_field *name = json_field(fields, count, "server");
	const struct json_field *gpu = json_field(fields, count, "gpu");
	const struct json_field *from = json_field(fields, count, "from");
	const struct json_field *session = json_field(fields, count, "session");
	struct server *to = NULL;
	struct client *client;
	unsigned sessions;
	char why[MOVE_WHY_SIZE];

	if (!pid || !pid->is_number || (name && name->is_number) || (from && from->is_number) ||
	    (session && !session->is_number) || (gpu && (!gpu->is_number || gpu->number > 63))) {
		control_refuse(json, "migrate wants a \"pid\", and may have a \"server\", the number of a \"gpu\" of it, and the server \"from\" which");
		return false;
	}
	client = move_ask_client(broker, pid->number, uid);
	/* Whose it is isn't told to strangers. */
	if (!client) {
		control_refuse(json, "no program of yours with pid %llu uses Gleam on this machine; gleamctl clients lists those that do",
		       (unsigned long long)pid->number);
		return false;
	}
	snprintf(why, sizeof(why), "pid %d has fewer sessions", client->pid);
	client = session ? move_ask_session_at(broker, client, session->number, &sessions) :
			   move_ask_session(broker, client, from ? from->text : NULL, why, sizeof(why));
	if (!client) {
		control_refuse(json, "%s", why);
		return false;
	}
	if (name) {
		to = move_ask_server(broker, name->text);
		if (!to) {
			control_refuse(json, "there is no server `%s`; gleamctl servers lists those that are known", name->text);
			return false;
		}
	}
	if (move_ask(broker, client, to, gpu ? (int)gpu->number : -1, moved, asker, why, sizeof(why))) {
		control_refuse(json, "%s", why);
		return false;
	}
	asker->asks = client->move;
	asker->asks_gone = asker_gone;
	return true;
}

/* ---- all of a server ---- */

/* Whoever waits for a drain: its answer grows meanwhile. */
struct drainer {
	struct broker *broker;
	struct client *asker;
	struct server *server;
	struct drain *drain;
	struct json json;
};

static void drainer_free(struct drainer *drainer)
{
	free(drainer->json.text);
	free(drainer);
}

static void drainer_gone(void *asks)
{
	struct drainer *drainer = asks;

	drain_unheard(drainer->drain);
	drainer_free(drainer);
}

static void drained(void *arg, const struct move_news *news)
{
	struct drainer *drainer = arg;
	struct place *place = broker_place(drainer->broker);
	struct client *asker = drainer->asker;

	if (news) {
		if (news->over)
			put_news(&drainer->json, news);
		tell(asker, news);
		return;
	}
	json_close(&drainer->json, ']');
	json_str(&drainer->json, "server", server_name(drainer->server));
	json_bool(&drainer->json, "drained", true);
	json_u64(&drainer->json, "clients", place_clients(place, (unsigned)place_server_index(place, drainer->server)));
	json_close(&drainer->json, '}');
	asker->asks_gone = NULL;
	control_send(asker, &drainer->json); /* takes its text */
	drainer_free(drainer);
}

static bool drain(struct broker *broker, struct client *asker, uid_t uid, const struct json_field *name, struct json *json)
{
	struct place *place = broker_place(broker);
	struct server *server = name->is_number ? NULL : move_ask_server(broker, name->text);
	struct drainer *drainer;

	if (uid != 0 && uid != geteuid()) {
		control_refuse(json, "only root and the daemon's own user may drain servers; gleamctl migrate moves programs of your own");
		return false;
	}
	if (!server) {
		control_refuse(json, "there is no server `%s`; gleamctl servers lists those that are known", name->is_number ? "" : name->text);
		return false;
	}
	drainer = calloc(1, sizeof(*drainer));
	if (!drainer) {
		control_refuse(json, "gleamd has no memory for it");
		return false;
	}
	*drainer = (struct drainer){ .broker = broker, .asker = asker, .server = server };
	drainer->drain = drain_start(broker, server, drained, drainer);
	if (!drainer->drain) {
		drainer_free(drainer);
		control_refuse(json, "gleamd has no memory for it");
		return false;
	}
	place_drain(place, (unsigned)place_server_index(place, server), true, false);
	json_open(&drainer->json, NULL, '{');
	json_open(&drainer->json, "moves", '[');
	asker->asks = drainer;
	asker->asks_gone = drainer_gone;
	return true;
}

bool control_move(struct broker *broker, struct client *asker, uid_t uid, const char *request, struct json *json)
{
	struct json_field fields[JSON_FIELDS_MAX];
	const struct json_field *cmd, *server, *move;
	unsigned count = 0;
	bool is_migrate, is_drain;

	if (json_read(request, fields, &count))
		return false;
	cmd = json_field(fields, count, "cmd");
	server = json_field(fields, count, "server");
	move = json_field(fields, count, "move");
	is_migrate = cmd && !cmd->is_number && strcmp(cmd->text, "migrate") == 0;
	is_drain = cmd && !cmd->is_number && strcmp(cmd->text, "drain") == 0 && server && move && move->is_number && move->number;
	if (!is_migrate && !is_drain)
		return false;
	if (asker->asks_gone) {
		control_refuse(json, "this connection waits for the end of another move");
		return false;
	}
	return is_migrate ? migrate(broker, asker, uid, fields, count, json) : drain(broker, asker, uid, server, json);
}
