/* SPDX-License-Identifier: Apache-2.0 */
/* What gleamctl asks and commands about the scheduler. Control thread; see control_sched.h. */
#include "broker/local/control_sched.h"
#include "broker/local/control.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "broker/local/broker.h"
#include "broker/local/place.h"
#include "broker/local/place_show.h"
#include "broker/local/server.h"
#include "broker/node/node.h"

static void put_policy(struct json *json, const struct place *place)
{
	json_open(json, NULL, '{');
	json_str(json, "policy", sched_policy(place_sched(place)));
	json_open(json, "policies", '[');
	for (unsigned i = 0; sched_policy_name(i); i++)
		json_str(json, NULL, sched_policy_name(i));
	json_close(json, ']');
	json_close(json, '}');
}

static void policy(struct broker *broker, bool allowed, const struct json_field *set, struct json *json)
{
	char what[JSON_TEXT_SIZE + 128];
	size_t at;

	if (set && !allowed) {
		control_refuse(json, "only root and the daemon's own user may change the policy");
		return;
	}
	if (set && (set->is_number || place_policy_set(broker_place(broker), set->text))) {
		at = (size_t)snprintf(what, sizeof(what), "`%s` is not a policy; there are", set->text);
		for (unsigned i = 0; sched_policy_name(i) && at < sizeof(what); i++)
			at += (size_t)snprintf(what + at, sizeof(what) - at, "%s %s", i ? "," : "", sched_policy_name(i));
		control_refuse(json, "%s", what);
		return;
	}
	put_policy(json, broker_place(broker));
}

static void drain(struct broker *broker, bool allowed, const struct json_field *name, bool undo, struct json *json)
{
	unsigned clients = 0;
	int server = -1;

	if (!allowed) {
		control_refuse(json, "only root and the daemon's own user may drain servers");
		return;
	}
	if (!name) {
		if (!broker_node(broker)) {
			control_refuse(json, "this machine offers no GPUs; name the server that is to get no new clients: gleamctl drain NAME");
			return;
		}
		node_drain(broker_node(broker), !undo);
		json_open(json, NULL, '{');
		json_str(json, "server", "");
		json_bool(json, "drained", !undo);
		json_close(json, '}');
		return;
	}
	for (unsigned i = 0; i < broker_server_count(broker); i++)
		if (!name->is_number && strcmp(server_name(broker_server(broker, i)), name->text) == 0)
			server = (int)i;
	if (server < 0) {
		control_refuse(json, "no such server");
		return;
	}
	place_drain(broker_place(broker), (unsigned)server, !undo, true);
	clients = place_clients(broker_place(broker), (unsigned)server);
	json_open(json, NULL, '{');
	json_str(json, "server", server_name(broker_server(broker, (unsigned)server)));
	json_bool(json, "drained", !undo);
	json_u64(json, "clients", clients);
	json_close(json, '}');
}

bool control_sched(struct broker *broker, uid_t uid, const struct json_field *fields, unsigned count, struct json *json)
{
	const char *cmd = json_field(fields, count, "cmd")->text;
	const struct json_field *undo = json_field(fields, count, "undo");
	bool allowed = uid == 0 || uid == geteuid();

	if (strcmp(cmd, "policy") == 0) {
		policy(broker, allowed, json_field(fields, count, "set"), json);
	} else if (strcmp(cmd, "decisions") == 0) {
		json_open(json, NULL, '{');
		place_decisions_json(json, broker_place(broker), uid, allowed);
		json_close(json, '}');
	} else if (strcmp(cmd, "drain") == 0) {
		drain(broker, allowed, json_field(fields, count, "server"), undo && undo->is_number && undo->number, json);
	} else {
		return false;
	}
	return true;
}
