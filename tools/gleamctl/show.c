// SPDX-License-Identifier: Apache-2.0
/* Commands that show what the daemon tells: status, servers, clients, stats, version. One thread. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gleamctl/ask.h"
#include "tools/gleamctl/gleamctl.h"
#include "tools/gleamctl/table.h"
#include "tools/gleamctl/value.h"

#define MIB (1024.0 * 1024.0)

static void put_duration(double seconds)
{
	long long whole = (long long)seconds;

	if (whole >= 86400)
		printf("%lld d %lld h", whole / 86400, whole % 86400 / 3600);
	else if (whole >= 3600)
		printf("%lld h %lld min", whole / 3600, whole % 3600 / 60);
	else if (whole >= 60)
		printf("%lld min %lld s", whole / 60, whole % 60);
	else
		printf("%lld s", whole);
}

/* ---- tables ---- */

static void put_servers(const json_t *servers)
{
	static const char *const titles[] = { "NAME", "STATE", "ADDRESS", ">LOAD", ">RTT ms", ">CLIENTS", "LINK", "GPUS", NULL };
	const json_t *server;
	struct table table;
	size_t i;

	if (json_array_size(servers) == 0) {
		puts("no servers configured: add one to /etc/gleam/gleam.conf under [servers], as NAME = ADDRESS:PORT, or start "
		     "gleamd with --server NAME=ADDRESS:PORT");
		return;
	}
	table_begin(&table, titles);
	json_array_foreach(servers, i, server) {
		const json_t *gpus = json_object_get(server, "gpus");
		size_t count = json_array_size(gpus);
		bool drained;

		table_add(&table, "%s", text_of(server, "name"));
		drained = json_is_true(json_object_get(server, "drained")) && strcmp(text_of(server, "state"), "ready") == 0;
		table_add(&table, "%s", drained ? "drained" : text_of(server, "state"));
		table_add(&table, "%s", text_of(server, "address"));
		if (has(server, "load"))
			table_add(&table, "%.2f", number_of(server, "load"));
		else
			table_add(&table, "-");
		if (number_of(server, "rtt_us") > 0)
			table_add(&table, "%.3f", number_of(server, "rtt_us") / 1000);
		else
			table_add(&table, "-");
		table_add(&table, "%lld", whole_of(server, "clients"));
		if (json_object_get(server, "tls"))
			table_add(&table, "%s", json_is_true(json_object_get(server, "tls")) ? "TLS" : "cleartext");
		else
			table_add(&table, "-");
		/* Machines with several have equal ones: the first and their number say it. */
		if (count)
			table_add(&table, "%zu x %s, %.0f MiB", count, text_of(json_array_get(gpus, 0), "name"),
				  number_of(json_array_get(gpus, 0), "memory") / MIB);
		else
			table_add(&table, "-");
	}
	table_end(&table);
	json_array_foreach(servers, i, server)
		if (*text_of(server, "why"))
			printf("%s: %s\n", text_of(server, "name"), text_of(server, "why"));
}

static void put_clients(const json_t *answer)
{
	static const char *const titles[] = { ">PID", ">UID", "SERVER", "STATE", ">CALLS", ">TRIPS", ">WAITED ms", ">MEMORY MiB",
					      ">AGE s", "PROGRAM", NULL };
	const json_t *clients = json_object_get(answer, "clients");
	const json_t *client;
	struct table table;
	size_t i;

	if (json_array_size(clients)) {
		table_begin(&table, titles);
		json_array_foreach(clients, i, client) {
			table_add(&table, "%lld", whole_of(client, "pid"));
			table_add(&table, "%lld", whole_of(client, "uid"));
			table_add(&table, "%s", text_of(client, "server"));
			table_add(&table, "%s", text_of(client, "state"));
			table_add(&table, "%lld", whole_of(client, "calls"));
			table_add(&table, "%lld", whole_of(client, "round_trips"));
			table_add(&table, "%.1f", number_of(client, "waited_s") * 1000);
			table_add(&table, "%.1f", number_of(client, "memory") / MIB);
			table_add(&table, "%.0f", number_of(client, "age_s"));
			table_add(&table, "%s", text_of(client, "program"));
		}
		table_end(&table);
		json_array_foreach(clients, i, client)
			if (*text_of(client, "reason"))
				printf("%lld: %s\n", whole_of(client, "pid"), text_of(client, "reason"));
	} else {
		puts("no clients: no program on this machine uses Gleam now; start one with gleamctl run -- PROGRAM");
	}
	if (whole_of(answer, "hidden"))
		printf("%lld more of other users: root sees all\n", whole_of(answer, "hidden"));
}

/* ---- commands ---- */

/* Asks, and prints as it is if that is wanted. NULL: done, with the status in @status_out. */
static json_t *answer_get(const struct options *options, const char *cmd, json_t *args, int *status_out)
{
	json_t *answer = ask(ask_socket(options->socket), cmd, args);

	*status_out = EXIT_FAILED;
	if (answer && options->json) {
		*status_out = json_show(answer);
		return NULL;
	}
	return answer;
}

int show_status(const struct options *options)
{
	int status;
	json_t *answer = answer_get(options, "status", NULL, &status);
	const json_t *node = json_object_get(answer, "node"), *verdicts = json_object_get(answer, "verdicts");
	const json_t *gpu;
	size_t i;

	if (!answer)
		return status;
	printf("gleamd %s (protocol %s), pid %lld, up ", text_of(answer, "version"), text_of(answer, "protocol"),
	       whole_of(answer, "pid"));
	put_duration(number_of(answer, "age_s"));
	printf("\nsocket %s\n", text_of(answer, "socket"));
	if (node) {
		printf("offers the GPUs of this machine on %s: %lld of %lld clients, %lld workers warm, driver %s\n",
		       text_of(node, "listen"), whole_of(node, "sessions"), whole_of(node, "sessions_max"),
		       whole_of(node, "warm"), text_of(node, "driver"));
		json_array_foreach(json_object_get(node, "gpus"), i, gpu)
			printf("  GPU %zu: %s, %.0f MiB\n", i, text_of(gpu, "name"), number_of(gpu, "memory") / MIB);
		if (*text_of(node, "trouble"))
			printf("  its workers don't start: %s\n", text_of(node, "trouble"));
	}
	if (whole_of(verdicts, "hits") + whole_of(verdicts, "misses"))
		printf("knows %lld images (%.1f MiB): %lld of %lld first loads in a program were of these, and needn't wait\n",
		       whole_of(verdicts, "entries"), number_of(verdicts, "bytes") / MIB, whole_of(verdicts, "hits"),
		       whole_of(verdicts, "hits") + whole_of(verdicts, "misses"));
	puts("");
	put_servers(json_object_get(answer, "servers"));
	puts("");
	put_clients(answer);
	json_decref(answer);
	return output_end();
}

int show_servers(const struct options *options)
{
	int status;
	json_t *answer = answer_get(options, "servers", NULL, &status);

	if (!answer)
		return status;
	put_servers(json_object_get(answer, "servers"));
	json_decref(answer);
	return output_end();
}

int show_clients(const struct options *options)
{
	int status;
	json_t *answer = answer_get(options, "clients", NULL, &status);

	if (!answer)
		return status;
	put_clients(answer);
	json_decref(answer);
	return output_end();
}

static int by_calls(const void *a, const void *b)
{
	long long left = whole_of(*(json_t *const *)a, "calls");
	long long right = whole_of(*(json_t *const *)b, "calls");

	return left < right ? 1 : left > right ? -1 : strcmp(text_of(*(json_t *const *)a, "name"), text_of(*(json_t *const *)b, "name"));
}

static void put_calls(const json_t *calls)
{
	static const char *const titles[] = { "FUNCTION", ">CALLS", ">BYTES", ">TRIPS", ">WAITED ms", ">P50 us", ">P99 us", NULL };
	size_t count = json_array_size(calls);
	json_t **sorted = calloc(count ? count : 1, sizeof(*sorted));
	struct table table;

	if (!sorted)
		return;
	for (size_t i = 0; i < count; i++)
		sorted[i] = json_array_get(calls, i);
	qsort(sorted, count, sizeof(*sorted), by_calls);
	table_begin(&table, titles);
	for (size_t i = 0; i < count; i++) {
		table_add(&table, "%s", text_of(sorted[i], "name"));
		table_add(&table, "%lld", whole_of(sorted[i], "calls"));
		table_add(&table, "%lld", whole_of(sorted[i], "bytes"));
		table_add(&table, "%lld", whole_of(sorted[i], "round_trips"));
		table_add(&table, "%.3f", number_of(sorted[i], "waited_ns") / 1e6);
		table_add(&table, "%.2f", number_of(sorted[i], "p50_ns") / 1e3);
		table_add(&table, "%.2f", number_of(sorted[i], "p99_ns") / 1e3);
	}
	table_end(&table);
	free(sorted);
}

int show_stats(const struct options *options)
{
	char *end;
	long long pid = strtoll(options->words[0], &end, 10);
	const json_t *clients;
	json_t *answer, *client, *args;

	if (options->words[0][0] < '0' || options->words[0][0] > '9' || *end || pid <= 0 || pid > INT32_MAX)
		return misused("stats", "`%s` is not a process number", options->words[0]);
	args = json_object();
	json_object_set_new(args, "pid", json_integer(pid));
	answer = ask(ask_socket(options->socket), "clients", args);
	if (!answer)
		return EXIT_FAILED;
	clients = json_object_get(answer, "clients");
	/* The newest of several sessions of one process: the daemon lists no order, its numbers grow. */
	client = NULL;
	for (size_t i = 0; i < json_array_size(clients); i++) {
		json_t *one = json_array_get(clients, i);

		if (!client || whole_of(one, "session") > whole_of(client, "session"))
			client = one;
	}
	if (!client) {
		long long hidden = whole_of(answer, "hidden");

		json_decref(answer);
		return failed("process %lld is no client of this daemon%s; `gleamctl clients` lists them", pid,
			      hidden ? ", or it is another user's" : "");
	}
	if (options->json) {
		json_incref(client);
		json_decref(answer);
		return json_show(client);
	}
	printf("%s, pid %lld, on %s, %s\n", text_of(client, "program"), pid,
	       *text_of(client, "server") ? text_of(client, "server") : "no server yet", text_of(client, "state"));
	printf("%lld calls, %lld round trips, %.3f ms waited, %.1f MiB moved, %.1f MiB of device memory\n\n",
	       whole_of(client, "calls"), whole_of(client, "round_trips"), number_of(client, "waited_s") * 1000,
	       number_of(client, "bytes") / MIB, number_of(client, "memory") / MIB);
	put_calls(json_object_get(client, "api"));
	json_decref(answer);
	return output_end();
}

/* Ours, and the daemon's if there is one. */
int show_version(const struct options *options)
{
	const char *path = ask_socket(options->socket);
	json_t *daemon = ask_is_there(path) ? ask(path, "version", NULL) : NULL;

	if (options->json) {
		json_t *both = json_object();

		json_object_set_new(both, "gleamctl", json_string(GLEAM_VERSION));
		json_object_set_new(both, "gleamd", daemon ? daemon : json_null());
		return json_show(both);
	}
	printf("gleamctl %s\n", GLEAM_VERSION);
	if (daemon)
		printf("gleamd %s (protocol %s)\n", text_of(daemon, "version"), text_of(daemon, "protocol"));
	else
		printf("gleamd is not running at %s\n", path);
	json_decref(daemon);
	return output_end();
}
