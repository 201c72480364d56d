/* SPDX-License-Identifier: Apache-2.0 */
/* What gleamctl asks and commands about the weight cache. Control thread; see control_cache.h. */
#include "broker/local/control_cache.h"
#include "broker/local/control.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "broker/local/broker.h"
#include "broker/local/cache.h"
#include "broker/local/prefetch.h"
#include "broker/local/server.h"
#include "broker/local/state.h"

#define REQUESTS_MAX 64u    /* commands that run, or whose end nobody has asked for yet */
#define LIST_MAX     50000u /* chunks in an answer: some megabytes of it */

struct request {
	struct cache_ask ask; /* first */
	uint32_t id;	      /* 0: unused */
	uid_t uid;
	bool over;
	int err;
	uint64_t value;
	struct prefetch *prefetch;
};

static struct request requests[REQUESTS_MAX];
static uint32_t request_id;

static struct server *server_find(const struct broker *broker, const struct json_field *name)
{
	for (unsigned i = 0; name && !name->is_number && i < broker_server_count(broker); i++)
		if (strcmp(server_name(broker_server(broker, i)), name->text) == 0)
			return broker_server(broker, i);
	return NULL;
}

/* ---- questions ---- */

static void put_server(struct json *json, struct server *server, bool list)
{
	struct cache_server *cs = server_cache(server);
	const struct cache_stats *stats = cache_server_stats(cs);
	const struct held *held = cache_server_held(cs);
	const struct cache_id *id;
	uint32_t at = 0;

	json_open(json, NULL, '{');
	json_str(json, "name", server_name(server));
	json_str(json, "state", cache_server_salt(cs) ? "on" : server_link(server) ? "off" : server_state(server));
	if (stats) {
		json_u64(json, "bytes", stats->bytes);
		json_u64(json, "entries", stats->entries);
		json_u64(json, "memory", stats->memory);
		json_u64(json, "disk", stats->disk);
		json_u64(json, "hits", stats->hits);
		json_u64(json, "misses", stats->misses);
		json_u64(json, "saved", stats->saved);
		json_u64(json, "evictions", stats->evictions);
		json_u64(json, "damaged", stats->damaged);
	}
	json_u64(json, "known", held->count);
	if (list) {
		json_open(json, "chunks", '[');
		for (uint32_t i = 0; i < LIST_MAX && (id = held_next(held, &at)); i++) {
			char text[2 * CACHE_HEAD_SIZE + 1];

			chunk_text(id->head, CACHE_HEAD_SIZE, text);
			json_open(json, NULL, '{');
			json_str(json, "hash", text);
			json_u64(json, "size", id->size);
			json_close(json, '}');
		}
		json_close(json, ']');
		json_bool(json, "more", held->count > LIST_MAX);
	}
	json_close(json, '}');
}

static void show(struct broker *broker, const struct json_field *name, struct json *json)
{
	static const char *const uses[] = { [CACHE_AUTO] = "auto", [CACHE_ON] = "on", [CACHE_OFF] = "off" };
	struct server *one = server_find(broker, name);

	if (name && !one) {
		control_refuse(json, "no such server");
		return;
	}
	/* Whoever looks wants to know: the next look sees more. */
	state_refresh(broker);
	json_open(json, NULL, '{');
	json_str(json, "use", uses[cache_local_use(broker_cache(broker))]);
	json_open(json, "servers", '[');
	for (unsigned i = 0; i < broker_server_count(broker); i++)
		if (!name || broker_server(broker, i) == one)
			put_server(json, broker_server(broker, i), name != NULL);
	json_close(json, ']');
	json_close(json, '}');
}

/* ---- commands ---- */

static struct request *request_new(uid_t uid)
{
	struct request *request = NULL;

	for (unsigned i = 0; i < REQUESTS_MAX && !request; i++)
		if (!requests[i].id)
			request = &requests[i];
	/* Ends that nobody has asked for. */
	for (unsigned i = 0; i < REQUESTS_MAX && !request; i++) {
		struct prefetch_view view = { .over = requests[i].over };

		if (requests[i].prefetch)
			prefetch_look(requests[i].prefetch, &view);
		if (view.over)
			request = &requests[i];
	}
	if (!request)
		return NULL;
	if (request->prefetch)
		prefetch_end(request->prefetch);
	if (++request_id == 0)
		request_id = 1;
	*request = (struct request){ .id = request_id, .uid = uid };
	return request;
}

static void put_id(struct json *json, const struct request *request)
{
	json_open(json, NULL, '{');
	json_u64(json, "id", request->id);
	json_close(json, '}');
}

static void request_answered(struct cache_ask *ask, int err, uint64_t value)
{
	struct request *request = (struct request *)ask;

	request->over = true;
	request->err = err;
	request->value = value;
}

static void command(struct broker *broker, uid_t uid, const struct json_field *fields, unsigned count, struct json *json)
{
	static const struct {
		const char *name;
		enum cache_do what;
	} names[] = { { "pin", CACHE_DO_PIN }, { "unpin", CACHE_DO_UNPIN }, { "drop", CACHE_DO_DROP }, { "verify", CACHE_DO_VERIFY } };
	const struct json_field *what = json_field(fields, count, "what"), *hash = json_field(fields, count, "hash");
	struct server *server = server_find(broker, json_field(fields, count, "server"));
	uint8_t head[CACHE_HEAD_SIZE] = { 0 };
	enum cache_do id = 0;
	struct request *request;

	if (uid != 0 && uid != geteuid()) {
		control_refuse(json, "only root and the daemon's own user may pin, drop and verify what servers hold");
		return;
	}
	for (size_t i = 0; what && !what->is_number && i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(what->text, names[i].name) == 0)
			id = names[i].what;
	if (!id || !hash || hash->is_number || (strcmp(hash->text, "all") != 0 && chunk_parse(hash->text, head, sizeof(head)))) {
		control_refuse(json, "a chunk is named by 32 hexadecimal digits, as `gleamctl cache list SERVER` shows them, or `all`");
		return;
	}
	if (!server) {
		control_refuse(json, "no such server");
		return;
	}
	request = request_new(uid);
	if (request)
		request->ask.answer = request_answered;
	if (!request || cache_server_ask(server_cache(server), id, head, &request->ask)) {
		if (request)
			request->id = 0;
		control_refuse(json, "%s", request ? "there is no link to that server, or it keeps no cache" : "too many commands run; try again later");
		return;
	}
	put_id(json, request);
}

static void prefetch(struct broker *broker, uid_t uid, const struct json_field *name, int *fd, struct json *json)
{
	struct server *server = server_find(broker, name);
	struct request *request;
	int err;

	if (!server || *fd < 0) {
		control_refuse(json, "%s", server ? "no file came with the request" : "no such server");
		return;
	}
	request = request_new(uid);
	if (!request) {
		control_refuse(json, "too many commands run; try again later");
		return;
	}
	request->prefetch = prefetch_start(broker, server, uid, *fd, &err);
	*fd = -1;
	if (!request->prefetch) {
		request->id = 0;
		control_refuse(json, "%s", err == -EOPNOTSUPP ? "there is no link to that server, or it keeps no cache" : strerror(-err));
		return;
	}
	put_id(json, request);
}

static void put_wait(struct json *json, struct request *request)
{
	struct prefetch_view view = { .over = request->over, .err = request->err };

	if (request->prefetch)
		prefetch_look(request->prefetch, &view);
	json_open(json, NULL, '{');
	json_bool(json, "over", view.over);
	if (request->prefetch) {
		json_u64(json, "size", view.size);
		json_u64(json, "done", view.done);
		json_u64(json, "sent", view.sent);
	}
	if (view.over) {
		json_u64(json, "errno", (uint64_t)-view.err);
		json_str(json, "why", !view.err ? "" : view.err == -ENOENT ? "the server holds no such chunk" :
						view.err == -EBADMSG ? "it was damaged, and has been dropped" :
						view.err == -ENOTCONN ? "the link to the server was lost" :
						view.err == -ENOSPC ? "the server does not keep it: its cache has no room, or is busy" :
								      strerror(-view.err));
		json_u64(json, "value", request->value);
	}
	json_close(json, '}');
	if (!view.over)
		return;
	if (request->prefetch)
		prefetch_end(request->prefetch);
	*request = (struct request){ 0 };
}

bool control_cache(struct broker *broker, uid_t uid, const struct json_field *fields, unsigned count, int *fd, struct json *json)
{
	const struct json_field *cmd = json_field(fields, count, "cmd"), *id = json_field(fields, count, "id");
	struct request *request = NULL;

	if (strcmp(cmd->text, "cache") == 0) {
		show(broker, json_field(fields, count, "server"), json);
	} else if (strcmp(cmd->text, "cache-do") == 0) {
		command(broker, uid, fields, count, json);
	} else if (strcmp(cmd->text, "cache-prefetch") == 0) {
		prefetch(broker, uid, json_field(fields, count, "server"), fd, json);
	} else if (strcmp(cmd->text, "cache-wait") == 0) {
		for (unsigned i = 0; id && id->is_number && id->number && i < REQUESTS_MAX; i++)
			if (requests[i].id == id->number && requests[i].uid == uid)
				request = &requests[i];
		if (request)
			put_wait(json, request);
		else
			control_refuse(json, "no such command is running");
	} else {
		return false;
	}
	return true;
}

void control_cache_stop(void)
{
	for (unsigned i = 0; i < REQUESTS_MAX; i++)
		if (requests[i].prefetch)
			prefetch_end(requests[i].prefetch);
	prefetch_stop();
}
