// SPDX-License-Identifier: Apache-2.0
/* Rows of gleamctl top. One thread; see top.h. */
#include "tools/gleamctl/top.h"

#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gleamctl/value.h"

#define MIB	(1024.0 * 1024.0)
#define UNKNOWN (-1.0)

/* A client, with what changed since the last look. */
struct client {
	const json_t *json;
	long long pid;
	char user[32];
	double calls; /* a second; UNKNOWN at the first look */
	double trips;
	double waited; /* percent of the time */
	double moved;  /* bytes a second */
	double memory;
	double age;
	const char *server;
	const char *program;
	bool shown;
};

static const char *const sort_names[] = { "calls", "trips", "waited", "moved", "memory", "age", "pid", "user", "server", "program" };

unsigned top_sort_count(void)
{
	return sizeof(sort_names) / sizeof(sort_names[0]);
}

const char *top_sort_name(unsigned sort)
{
	return sort_names[sort % top_sort_count()];
}

void top_init(struct top *top)
{
	*top = (struct top){ 0 };
}

static void rows_free(struct top *top)
{
	for (int t = 0; t < TOP_TABLES; t++) {
		free(top->rows[t]);
		top->rows[t] = NULL;
		top->count[t] = 0;
	}
}

void top_fini(struct top *top)
{
	rows_free(top);
	json_decref(top->before);
	json_decref(top->now);
	top->before = top->now = NULL;
}

/* ---- text ---- */

/* Appends; names come from other processes, so nothing in them reaches the terminal as a command. */
static void put(char line[TOP_LINE_SIZE], const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(char line[TOP_LINE_SIZE], const char *format, ...)
{
	size_t at = strlen(line);
	va_list args;

	va_start(args, format);
	vsnprintf(line + at, TOP_LINE_SIZE - at, format, args);
	va_end(args);
	for (; line[at]; at++)
		if ((unsigned char)line[at] < ' ' || line[at] == 0x7f)
			line[at] = '?';
}

static void put_number(char *line, int width, double value, int decimals)
{
	if (value < 0)
		put(line, "%*s ", width, "-");
	else if (value >= 1e9)
		put(line, "%*.1fG ", width - 1, value / 1e9);
	else if (value >= 1e6 && width < 10)
		put(line, "%*.1fM ", width - 1, value / 1e6);
	else
		put(line, "%*.*f ", width, decimals, value);
}

static void put_age(char *line, double seconds)
{
	long long s = (long long)seconds;

	if (s >= 86400)
		put(line, "%4lldd%02lldh ", s / 86400, s % 86400 / 3600);
	else if (s >= 3600)
		put(line, "%4lldh%02lldm ", s / 3600, s % 3600 / 60);
	else
		put(line, "%4lldm%02llds ", s / 60, s % 60);
}

/* ---- rows ---- */

static struct top_row *row_add(struct top *top, enum top_table table)
{
	size_t count = top->count[table];
	struct top_row *rows;

	/* Room is doubled at powers of two. */
	if ((count & (count - 1)) == 0) {
		rows = realloc(top->rows[table], (count ? 2 * count : 1) * sizeof(*rows));
		if (!rows)
			return NULL;
		top->rows[table] = rows;
	}
	top->rows[table][count] = (struct top_row){ 0 };
	top->count[table]++;
	return &top->rows[table][count];
}

/* A line a GPU: the first has what belongs to its server. */
static bool servers_take(struct top *top, const json_t *servers)
{
	const json_t *server, *gpu;
	struct top_row *row;
	size_t s, g;

	put(top->titles[TOP_SERVERS], "%-14s %-12s %6s %8s %8s %7s  %-3s %-26s %5s %17s", "SERVER", "STATE", "LOAD", "RTT ms", "MBIT/s",
	    "CLIENTS", "GPU", "MODEL", "UTIL%", "MEMORY MiB");
	json_array_foreach(servers, s, server) {
		const json_t *gpus = json_object_get(server, "gpus");

		for (g = 0; g == 0 || g < json_array_size(gpus); g++) {
			row = row_add(top, TOP_SERVERS);
			if (!row)
				return false;
			snprintf(row->server, sizeof(row->server), "%s", text_of(server, "name"));
			row->marked = strcmp(text_of(server, "state"), "unreachable") == 0;
			if (g == 0) {
				bool drained = json_is_true(json_object_get(server, "drained")) && strcmp(text_of(server, "state"), "ready") == 0;

				put(row->text, "%-14.14s %-12.12s ", text_of(server, "name"), drained ? "drained" : text_of(server, "state"));
				put_number(row->text, 6, has(server, "load") ? number_of(server, "load") : UNKNOWN, 2);
				put_number(row->text, 8, number_of(server, "rtt_us") > 0 ? number_of(server, "rtt_us") / 1000 : UNKNOWN, 3);
				put_number(row->text, 8, has(server, "bandwidth") ? number_of(server, "bandwidth") * 8 / 1e6 : UNKNOWN, 0);
				put_number(row->text, 7, has(server, "sessions") ? number_of(server, "sessions") : number_of(server, "clients"), 0);
			} else {
				put(row->text, "%60s", "");
			}
			gpu = json_array_get(gpus, g);
			if (gpu) {
				double memory = number_of(gpu, "memory");

				put(row->text, " %-3zu %-26.26s ", g, text_of(gpu, "name"));
				put_number(row->text, 5, has(gpu, "utilisation") ? number_of(gpu, "utilisation") : UNKNOWN, 0);
				if (has(gpu, "memory_free"))
					put(row->text, "%8.0f/%8.0f", (memory - number_of(gpu, "memory_free")) / MIB, memory / MIB);
				else
					put(row->text, "%8s/%8.0f", "-", memory / MIB);
			} else if (*text_of(server, "why")) {
				put(row->text, " %s", text_of(server, "why"));
			}
		}
	}
	return true;
}

static double rate(const json_t *now, const json_t *before, const char *key, double seconds)
{
	double change = number_of(now, key) - number_of(before, key);

	return !before || seconds <= 0 ? UNKNOWN : change > 0 ? change / seconds : 0;
}

static void user_name(long long uid, char *out, size_t size)
{
	const struct passwd *user = getpwuid((uid_t)uid);

	if (user)
		snprintf(out, size, "%s", user->pw_name);
	else
		snprintf(out, size, "%lld", uid);
}

static bool client_matches(const struct client *client, const char *filter)
{
	char pid[24];

	snprintf(pid, sizeof(pid), "%lld", client->pid);
	return !*filter || strstr(pid, filter) || strcasestr(client->user, filter) || strcasestr(client->server, filter) ||
	       strcasestr(client->program, filter);
}

static void client_read(struct client *client, const json_t *json, const json_t *before, double seconds)
{
	const json_t *old = NULL, *one;
	size_t i;

	json_array_foreach(before, i, one)
		if (whole_of(one, "session") == whole_of(json, "session") && whole_of(one, "pid") == whole_of(json, "pid"))
			old = one;
	*client = (struct client){
		.json = json,
		.pid = whole_of(json, "pid"),
		.calls = rate(json, old, "calls", seconds),
		.trips = rate(json, old, "round_trips", seconds),
		.waited = rate(json, old, "waited_s", seconds),
		.moved = rate(json, old, "bytes", seconds),
		.memory = number_of(json, "memory"),
		.age = number_of(json, "age_s"),
		.server = text_of(json, "server"),
		.program = text_of(json, "program"),
	};
	if (client->waited > 0)
		client->waited *= 100;
	user_name(whole_of(json, "uid"), client->user, sizeof(client->user));
}

static const struct top *sorting; /* qsort has no argument of its own */

static int sign(double a, double b)
{
	return a < b ? 1 : a > b ? -1 : 0;
}

static int client_order(const void *a, const void *b)
{
	const struct client *x = a, *y = b;
	int order = 0;

	switch (sorting->sort % top_sort_count()) {
	case 0:
		order = sign(x->calls, y->calls);
		break;
	case 1:
		order = sign(x->trips, y->trips);
		break;
	case 2:
		order = sign(x->waited, y->waited);
		break;
	case 3:
		order = sign(x->moved, y->moved);
		break;
	case 4:
		order = sign(x->memory, y->memory);
		break;
	case 5:
		order = sign(x->age, y->age);
		break;
	case 6:
		order = -sign((double)x->pid, (double)y->pid);
		break;
	case 7:
		order = strcmp(x->user, y->user);
		break;
	case 8:
		order = strcmp(x->server, y->server);
		break;
	default:
		order = strcmp(x->program, y->program);
	}
	if (sorting->reverse)
		order = -order;
	/* The same place each time, so that rows don't dance. */
	return order ? order : -sign((double)x->pid, (double)y->pid);
}

static bool clients_take(struct top *top, const json_t *list, struct client *sums)
{
	size_t count = json_array_size(list);
	struct client *clients = calloc(count ? count : 1, sizeof(*clients));
	bool fault = !clients;

	put(top->titles[TOP_CLIENTS], "%7s %-10s %-12s %-8s %9s %8s %6s %9s %9s %8s  %s", "PID", "USER", "SERVER", "STATE", "CALLS/s",
	    "TRIPS/s", "WAIT%", "MiB/s", "MEM MiB", "AGE", "PROGRAM");
	for (size_t i = 0; i < count && !fault; i++) {
		struct client *client = &clients[i];

		client_read(client, json_array_get(list, i), json_object_get(top->before, "clients"), top->seconds);
		client->shown = client_matches(client, top->filter);
		top->filtered += !client->shown;
		if (client->calls >= 0) {
			sums->calls += client->calls;
			sums->trips += client->trips;
			sums->moved += client->moved;
		}
		sums->memory += client->memory;
	}
	sorting = top;
	if (clients)
		qsort(clients, count, sizeof(*clients), client_order);
	for (size_t i = 0; i < count && !fault; i++) {
		const struct client *client = &clients[i];
		struct top_row *row = client->shown ? row_add(top, TOP_CLIENTS) : NULL;

		if (!client->shown)
			continue;
		fault = !row;
		if (fault)
			break;
		row->pid = client->pid;
		snprintf(row->server, sizeof(row->server), "%s", client->server);
		row->marked = strcmp(text_of(client->json, "state"), "dead") == 0;
		put(row->text, "%7lld %-10.10s %-12.12s %-8.8s ", client->pid, client->user, *client->server ? client->server : "-",
		    text_of(client->json, "state"));
		put_number(row->text, 9, client->calls, 0);
		put_number(row->text, 8, client->trips, 0);
		put_number(row->text, 6, client->waited, 1);
		put_number(row->text, 9, client->moved < 0 ? UNKNOWN : client->moved / MIB, 1);
		put_number(row->text, 9, client->memory / MIB, 1);
		put_age(row->text, client->age);
		put(row->text, " %s", client->program);
		if (row->marked && *text_of(client->json, "reason"))
			put(row->text, ": %s", text_of(client->json, "reason"));
	}
	free(clients);
	return !fault;
}

static void head_make(struct top *top, const json_t *answer, const struct client *sums)
{
	const json_t *node = json_object_get(answer, "node"), *server;
	double kept = 0, saved = 0, hits = 0, misses = 0;
	size_t i;
	long long hidden = whole_of(answer, "hidden");

	put(top->head[0], "gleamd %s  pid %lld  up", text_of(answer, "version"), whole_of(answer, "pid"));
	put_age(top->head[0], number_of(answer, "age_s"));
	put(top->head[0], "  %zu servers, %zu clients", json_array_size(json_object_get(answer, "servers")),
	    json_array_size(json_object_get(answer, "clients")));
	if (hidden)
		put(top->head[0], " (%lld of other users are not shown)", hidden);
	if (node)
		put(top->head[0], "  node: %lld of %lld clients", whole_of(node, "sessions"), whole_of(node, "sessions_max"));
	put(top->head[1], "calls/s %.0f   round trips/s %.0f   MiB/s %.1f   device memory %.0f MiB", sums->calls, sums->trips,
	    sums->moved / MIB, sums->memory / MIB);
	json_array_foreach(json_object_get(answer, "servers"), i, server) {
		const json_t *cache = json_object_get(server, "cache");

		kept += number_of(cache, "bytes");
		saved += number_of(cache, "saved");
		hits += number_of(cache, "hits");
		misses += number_of(cache, "misses");
	}
	if (kept > 0 || hits > 0)
		put(top->head[1], "   cache %.0f MiB, %.0f%% hits, %.0f MiB saved", kept / MIB,
		    hits + misses > 0 ? 100 * hits / (hits + misses) : 0, saved / MIB);
	put(top->head[2], "sorted by %s%s", top_sort_name(top->sort), top->reverse ? ", reversed" : "");
	if (*top->filter)
		put(top->head[2], "   only `%s` (%zu hidden)", top->filter, top->filtered);
}

void top_take(struct top *top, json_t *answer, double now_s)
{
	json_decref(top->before);
	top->before = top->now;
	top->now = json_incref(answer);
	top->seconds = now_s - top->now_s;
	top->now_s = now_s;
}

bool top_make(struct top *top)
{
	struct client sums = { 0 };

	rows_free(top);
	memset(top->head, 0, sizeof(top->head));
	memset(top->titles, 0, sizeof(top->titles));
	top->filtered = 0;
	if (!servers_take(top, json_object_get(top->now, "servers")) ||
	    !clients_take(top, json_object_get(top->now, "clients"), &sums))
		return false;
	head_make(top, top->now, &sums);
	return true;
}
