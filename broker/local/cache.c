/* SPDX-License-Identifier: Apache-2.0 */
/* The weight cache at the broker: servers, and whether it pays. Control thread; see cache.h. */
#include "broker/local/cache.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/clock.h"
#include "broker/lib/log.h"
#include "broker/local/cache_private.h"
#include "broker/local/cfile.h"

#define CACHE_RATE_NS	(20 * NS_PER_MS) /* how fast a link is gets measured so often */
#define CACHE_RATE_SIZE (4u << 20)	 /* over so many bytes at least */
/*
 * Names of what comes by a slower link cost less than a tenth of the bytes' way; above, where the node has no core to spare, what is
 * never seen again would pay for what is.
 */
#define CACHE_RATE_DEAR 125000000ull
#define CACHE_RATE_FAST 1500000000ull	 /* bytes a second: hashing is not faster than such a link, so it takes bytes as they are */

/* ---- servers ---- */

struct cache_server *cache_server_new(struct cache_local *cache)
{
	struct cache_server *server = calloc(1, sizeof(*server));

	if (server)
		server->cache = cache;
	return server;
}

void cache_server_free(struct cache_server *server)
{
	if (!server)
		return;
	cache_server_lost(server);
	free(server);
}

void cache_server_ready(struct cache_server *server, struct link *link)
{
	server->link = link;
	server->loopback = link_is_loopback(link);
	server->rate = 0;
	server->rate_ns = 0;
	memset(&server->rate_mark, 0, sizeof(server->rate_mark));
	if (server->cache->use != CACHE_OFF)
		link_send(link, LINK_CACHE_WANTED, 0, NULL, 0, NULL, 0);
}

void cache_server_lost(struct cache_server *server)
{
	struct cache_ask *ask = server->asks;

	server->link = NULL;
	server->open = false;
	server->counted = false;
	held_clear(&server->held);
	seen_clear(&server->seen);
	server->asks = NULL;
	while (ask) {
		struct cache_ask *next = ask->next;

		ask->answer(ask, -ENOTCONN, 0);
		ask = next;
	}
}

/* The body of HELD and DROP. */
static int ids_begin(struct reader *body, uint32_t *count_out)
{
	*count_out = get_u32(body);
	get_u32(body);
	if (body->fault || *count_out > CACHE_IDS_MAX || reader_left(body) != *count_out * sizeof(struct cache_id))
		return -EPROTO;
	return 0;
}

static int server_held(struct cache_server *server, struct reader *body)
{
	uint32_t count;
	int err = ids_begin(body, &count);

	while (!err && count--) {
		struct cache_id id;

		get_block(body, &id, sizeof(id));
		err = held_add(&server->held, &id);
		err = err == -ENOMEM ? 0 : err;
	}
	return err;
}

/* References that we have sent are ahead of our answer on the same connection. */
static int server_drop(struct cache_server *server, struct reader *body)
{
	uint32_t count;
	int err = ids_begin(body, &count);
	const uint32_t head[2] = { count, 0 };
	const uint8_t *ids = body->start + body->at;

	if (err)
		return err;
	link_send(server->link, LINK_CACHE_DROPPED, 0, head, sizeof(head), ids, count * sizeof(struct cache_id));
	while (count--) {
		struct cache_id id;

		get_block(body, &id, sizeof(id));
		held_remove(&server->held, &id);
	}
	return 0;
}

static int server_done(struct cache_server *server, struct reader *body)
{
	uint32_t id = get_u32(body);
	uint32_t result = get_u32(body);
	uint64_t value = get_u64(body);

	if (body->fault || result > 4095)
		return -EPROTO;
	for (struct cache_ask **at = &server->asks; *at; at = &(*at)->next) {
		struct cache_ask *ask = *at;

		if (ask->id != id)
			continue;
		*at = ask->next;
		ask->answer(ask, -(int)result, value);
		break;
	}
	return 0;
}

int cache_server_message(struct cache_server *server, const struct link_hdr *hdr, struct reader *body)
{
	uint64_t numbers[CACHE_STATS_COUNT];

	if (hdr->type < LINK_CACHE_OPEN || hdr->type > LINK_CACHE_DONE || hdr->type == LINK_BULK_BAD)
		return -ENOENT;
	if (server->cache->use == CACHE_OFF || server->open == (hdr->type == LINK_CACHE_OPEN))
		return -EPROTO;
	switch (hdr->type) {
	case LINK_CACHE_OPEN:
		get_u32(body);
		get_u32(body);
		get_block(body, server->salt, sizeof(server->salt));
		server->open = !body->fault;
		return body->fault ? -EPROTO : 0;
	case LINK_CACHE_HELD:
		return server_held(server, body);
	case LINK_CACHE_DROP:
		return server_drop(server, body);
	case LINK_CACHE_STATS:
		for (unsigned i = 0; i < CACHE_STATS_COUNT; i++)
			numbers[i] = get_u64(body);
		if (body->fault)
			return -EPROTO;
		memcpy(&server->stats, numbers, sizeof(server->stats));
		server->counted = true;
		return 0;
	case LINK_CACHE_DONE:
		return server_done(server, body);
	default:
		return -EPROTO;
	}
}

int cache_server_ask(struct cache_server *server, enum cache_do what, const uint8_t head[CACHE_HEAD_SIZE], struct cache_ask *ask)
{
	uint8_t bytes[8 + CACHE_HEAD_SIZE];
	struct writer w = writer_on(bytes, sizeof(bytes));

	if (!server->open)
		return -ENOTCONN;
	ask->id = ++server->ask_id;
	ask->next = server->asks;
	server->asks = ask;
	put_u32(&w, ask->id);
	put_u32(&w, what);
	put_block(&w, head, CACHE_HEAD_SIZE);
	link_send(server->link, LINK_CACHE_DO, 0, bytes, w.at, NULL, 0);
	return 0;
}

void cache_server_ask_forget(struct cache_server *server, struct cache_ask *ask)
{
	for (struct cache_ask **at = &server->asks; *at; at = &(*at)->next) {
		if (*at == ask) {
			*at = ask->next;
			return;
		}
	}
}

const struct held *cache_server_held(const struct cache_server *server)
{
	return &server->held;
}

const struct cache_stats *cache_server_stats(const struct cache_server *server)
{
	return server->counted ? &server->stats : NULL;
}

const uint8_t *cache_server_salt(const struct cache_server *server)
{
	return server->open ? server->salt : NULL;
}

/* ---- does it pay? ---- */

/*
 * How fast the link takes bytes; called with every piece. By what has arrived: sockets take some ten megabytes at the speed of memory before they
 * are full, and what was counted as fast then was not kept.
 */
static void rate_look(struct cache_server *server)
{
	uint64_t now = loop_now_ns(server->cache->loop);
	uint64_t rate;

	if (now - server->rate_ns < CACHE_RATE_NS)
		return;
	server->rate_ns = now;
	rate = link_rate(server->link, &server->rate_mark, CACHE_RATE_SIZE);
	if (rate)
		server->rate = server->rate ? server->rate - server->rate / 4 + rate / 4 : rate;
}

bool cache_pays(struct cache_server *server, enum conf_cache_use use)
{
	if (use == CACHE_OFF || !server->open)
		return false;
	if (use == CACHE_ON)
		return true;
	rate_look(server);
	return !server->loopback && server->rate < CACHE_RATE_FAST;
}

bool cache_keeps(struct cache_server *server, enum conf_cache_use use, uint32_t print, uint32_t size)
{
	bool dear = use != CACHE_ON && server->counted && server->stats.pressed && server->rate > CACHE_RATE_DEAR;

	return !dear || seen_before(&server->seen, print, size);
}

/* ---- life ---- */

struct cache_local *cache_local_new(struct loop *loop, const struct conf *conf)
{
	struct cache_local *cache = calloc(1, sizeof(*cache));
	char dir[CONF_PATH_SIZE];

	if (!cache)
		return NULL;
	cache->loop = loop;
	cache->use = conf->cache_use;
	conf_cache_dir(conf, dir);
	cache->names = jobs_new(jobs_threads(), "gleam-name", false);
	cache->files = cfiles_new(loop, dir);
	if (cache->names && cache->files)
		return cache;
	jobs_free(cache->names);
	cfiles_free(cache->files);
	free(cache);
	return NULL;
}

void cache_local_stop(struct cache_local *cache)
{
	if (cache)
		cfiles_stop(cache->files);
}

bool cache_local_is_idle(const struct cache_local *cache)
{
	return !cache || (cache->running == 0 && cfiles_are_idle(cache->files));
}

void cache_local_free(struct cache_local *cache)
{
	if (!cache)
		return;
	jobs_free(cache->names);
	cfiles_free(cache->files);
	free(cache);
}

enum conf_cache_use cache_local_use(const struct cache_local *cache)
{
	return cache->use;
}

struct cfiles *cache_local_files(const struct cache_local *cache)
{
	return cache->files;
}
