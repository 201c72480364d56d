// SPDX-License-Identifier: Apache-2.0
/* Commands about the scheduler: policy, decisions, drain. One thread. */
#include <stdlib.h>
#include <string.h>

#include "tools/gleamctl/ask.h"
#include "tools/gleamctl/gleamctl.h"
#include "tools/gleamctl/table.h"
#include "tools/gleamctl/value.h"

int policy_command(const struct options *options)
{
	json_t *args = options->count ? json_pack("{s:s}", "set", options->words[0]) : NULL;
	json_t *answer = ask(ask_socket(options->socket), "policy", args);
	const json_t *name;
	size_t i;

	if (!answer)
		return EXIT_FAILED;
	if (options->json)
		return json_show(answer);
	if (options->count) {
		printf("%s\n", text_of(answer, "policy"));
	} else {
		json_array_foreach(json_object_get(answer, "policies"), i, name)
			printf("%s %s\n", strcmp(json_string_value(name), text_of(answer, "policy")) ? " " : "*", json_string_value(name));
	}
	json_decref(answer);
	return output_end();
}

static void put_seconds(struct table *table, const json_t *object, const char *key)
{
	if (has(object, key))
		table_add(table, "%.2f", number_of(object, key));
	else
		table_add(table, "-");
}

int decisions_command(const struct options *options)
{
	static const char *const titles[] = { ">AGE s", ">PID", "PROGRAM", "POLICY", "SERVER", ">PREDICTED s", ">MEASURED s", "SECOND",
					      ">ITS s", "MOST", ">CONTENTION", NULL };
	json_t *answer = ask(ask_socket(options->socket), "decisions", NULL);
	const json_t *d;
	struct table table;
	size_t i;

	if (!answer)
		return EXIT_FAILED;
	if (options->json)
		return json_show(answer);
	if (json_array_size(json_object_get(answer, "decisions")) == 0) {
		puts("no decisions yet: the first program makes one");
		json_decref(answer);
		return output_end();
	}
	table_begin(&table, titles);
	json_array_foreach(json_object_get(answer, "decisions"), i, d) {
		table_add(&table, "%.0f", number_of(d, "age_s"));
		table_add(&table, "%lld", whole_of(d, "pid"));
		table_add(&table, "%s", text_of(d, "program"));
		table_add(&table, "%s", text_of(d, "policy"));
		table_add(&table, "%s", *text_of(d, "server") ? text_of(d, "server") : "-");
		put_seconds(&table, d, "predicted_s");
		put_seconds(&table, d, "measured_s");
		table_add(&table, "%s", *text_of(d, "second") ? text_of(d, "second") : "-");
		put_seconds(&table, d, "second_s");
		table_add(&table, "%s", *text_of(d, "most") ? text_of(d, "most") : "-");
		put_seconds(&table, d, "contention");
	}
	table_end(&table);
	json_array_foreach(json_object_get(answer, "decisions"), i, d)
		if (*text_of(d, "why"))
			printf("%lld: %s\n", whole_of(d, "pid"), text_of(d, "why"));
	json_decref(answer);
	return output_end();
}

/* The three names that look most like what was typed. */
static int unknown_server(const char *socket_path, const char *typed)
{
	json_t *answer = ask(socket_path, "servers", NULL);
	const json_t *servers = json_object_get(answer, "servers");
	char names[3 * 64 + 16] = "";
	bool taken[64] = { false };
	size_t count = json_array_size(servers), at = 0;

	if (!answer)
		return EXIT_FAILED;
	for (unsigned n = 0; n < 3 && n < count; n++) {
		size_t best = count;
		unsigned least = 0;

		for (size_t i = 0; i < count && i < 64; i++) {
			unsigned d = taken[i] ? 0 : word_distance(typed, text_of(json_array_get(servers, i), "name"));

			if (!taken[i] && (best == count || d < least)) {
				best = i;
				least = d;
			}
		}
		if (best == count)
			break;
		taken[best] = true;
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", n ? ", " : "", text_of(json_array_get(servers, best), "name"));
		if (at >= sizeof(names))
			break;
	}
	json_decref(answer);
	return *names ? failed("there is no server `%s`; the nearest names: %s", typed, names) :
			failed("there is no server `%s`, nor any other: see [servers] in gleam.conf(5)", typed);
}

static bool server_is_known(const char *socket_path, const char *name, bool *asked_out)
{
	json_t *answer = ask(socket_path, "servers", NULL);
	const json_t *server;
	bool known = false;
	size_t i;

	*asked_out = answer != NULL;
	json_array_foreach(json_object_get(answer, "servers"), i, server)
		known |= strcmp(text_of(server, "name"), name) == 0;
	json_decref(answer);
	return known;
}

int drain_command(const struct options *options)
{
	const char *socket_path = ask_socket(options->socket);
	const char *server = options->count ? options->words[0] : NULL;
	json_t *args = json_object(), *answer;
	bool asked;

	if (server && !server_is_known(socket_path, server, &asked)) {
		json_decref(args);
		return asked ? unknown_server(socket_path, server) : EXIT_FAILED;
	}
	if (server && !options->undo && !options->no_move) {
		json_decref(args);
		return drain_moves(options, server);
	}
	if (server)
		json_object_set_new(args, "server", json_string(server));
	if (options->undo)
		json_object_set_new(args, "undo", json_integer(1));
	answer = ask(socket_path, "drain", args);
	if (!answer)
		return EXIT_FAILED;
	if (options->json)
		return json_show(answer);
	if (!json_is_true(json_object_get(answer, "drained")))
		printf("%s takes new clients again\n", server ? server : "this machine");
	else if (server)
		printf("%s gets no new client of this machine; %lld are there and stay\n", server, whole_of(answer, "clients"));
	else
		puts("this machine takes no new clients; those that it has stay");
	json_decref(answer);
	return output_end();
}
