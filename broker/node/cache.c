/* SPDX-License-Identifier: Apache-2.0 */
/* The weight cache at the node. Control thread, except for what the store calls; see cache.h. */
#include "broker/node/cache.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/core/mirror.h"
#include "broker/lib/chunk.h"
#include "broker/lib/clock.h"
#include "broker/lib/hash.h"
#include "broker/lib/log.h"
#include "broker/lib/slot.h"
#include "broker/node/origin.h"
#include "broker/node/store.h"

#define CACHE_STATS_NS	 (1 * NS_PER_S)
#define CACHE_REFS_MAX	 (4 * SESSION_GRANULES) /* references of a link that wait; an arena has room for a quarter of them */
#define CACHE_DEPOTS_MAX 4u			/* of a link: each has memory of its own */
#define CACHE_ASKED_MAX	 64u			/* commands of a link that run at once */

/* A session without a worker. */
struct depot {
	struct mirror mirror; /* first */
	struct cache *cache;
	struct loop_post post;
	struct depot *next;
	struct link *link; /* to tell it of room; NULL once it is closed */
};

struct cache_peer {
	struct cache_peer *next;
	struct cache *cache;
	struct link *link;
	struct shelf *shelf;
	struct reader_of_shelf *reader; /* NULL until it is wanted */
	struct depot *depots;
	uint32_t asked; /* commands that run */
	uint32_t refs; /* references that wait */
	uint64_t pressed; /* as it was told */
	uint32_t counts; /* of who holds it: the link, references, commands */
	bool gone;
};

struct cache {
	struct loop *loop;
	struct tls_keys *keys;
	struct store *store; /* NULL: off */
	struct cache_peer *peers;
	struct loop_post news;
	bool news_posted; /* atomic */
	struct loop_timer tick;
	uint32_t depots; /* atomic: that exist, closed ones included */
	uint32_t running; /* references and commands that will be posted here */
};

/* ---- telling brokers ---- */

struct shelf *cache_shelf(struct cache *cache, const char *tenant, uint8_t salt_out[CACHE_SALT_SIZE])
{
	if (!cache || !cache->store || tls_keys_salt(cache->keys, tenant, salt_out))
		return NULL;
	return store_shelf(cache->store, tenant, salt_out);
}

static void peer_put(struct cache_peer *peer)
{
	if (--peer->counts == 0)
		free(peer);
}

static void ids_send(struct cache_peer *peer, enum link_msg type, const struct cache_id *ids, unsigned count)
{
	const uint32_t head[2] = { count, 0 };

	link_send(peer->link, type, 0, head, sizeof(head), ids, count * sizeof(*ids));
}

/* What it hasn't heard, as far as the link takes it now. */
static void peer_pump(struct cache_peer *peer)
{
	static struct cache_id ids[CACHE_IDS_MAX]; /* control thread */
	unsigned count;

	while (peer->reader && link_backlog(peer->link) < CONN_BACKLOG_HIGH) {
		count = reader_news(peer->reader, ids, CACHE_IDS_MAX);
		if (!count)
			break;
		ids_send(peer, LINK_CACHE_HELD, ids, count);
	}
	while (peer->reader && link_backlog(peer->link) < CONN_BACKLOG_HIGH) {
		count = reader_drops(peer->reader, ids, CACHE_IDS_MAX);
		if (!count)
			break;
		ids_send(peer, LINK_CACHE_DROP, ids, count);
	}
}

void cache_peer_drained(struct cache_peer *peer)
{
	if (peer)
		peer_pump(peer);
}

static void peer_stats(struct cache_peer *peer, bool always)
{
	struct cache_stats stats;

	if (!peer->reader)
		return;
	shelf_stats(peer->shelf, &stats);
	if (!always && stats.pressed == peer->pressed)
		return;
	peer->pressed = stats.pressed;
	link_send(peer->link, LINK_CACHE_STATS, 0, &stats, sizeof(stats), NULL, 0);
}

static void cache_news_run(struct loop_post *post)
{
	struct cache *cache = (struct cache *)((char *)post - offsetof(struct cache, news));

	/* Before we look: what comes after this posts again. */
	__atomic_store_n(&cache->news_posted, false, __ATOMIC_SEQ_CST);
	store_tidy(cache->store);
	for (struct cache_peer *peer = cache->peers; peer; peer = peer->next) {
		peer_pump(peer);
		peer_stats(peer, false);
	}
}

/* Any thread. */
static void cache_news(void *owner)
{
	struct cache *cache = owner;

	if (!__atomic_exchange_n(&cache->news_posted, true, __ATOMIC_SEQ_CST))
		loop_post(cache->loop, &cache->news);
}

static void cache_tick(void *arg)
{
	struct cache *cache = arg;

	for (struct cache_peer *peer = cache->peers; peer; peer = peer->next)
		peer_stats(peer, true);
	if (cache->peers)
		loop_timer_set(cache->loop, &cache->tick, loop_now_ns(cache->loop) + CACHE_STATS_NS);
}

/* ---- bytes that come ---- */

/* What a piece by itself is known by until it has a name. Chunks of files have a number of the broker's, which is random. */
static uint64_t mark_next(void)
{
	static uint64_t last; /* atomic */

	return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED) | 1ull << 63;
}

static void mirror_keep(struct mirror *mirror, const struct bulk_keep *keep, uint64_t cookie, uint32_t offset, uint32_t size)
{
	struct bulk_keep marked = *keep;
	struct origin origin = { .position = cookie, .size = size, .at = keep->at, .total = keep->total };

	if (mirror->origins) {
		origin.mark = marked.mark = keep->tag ? keep->tag : mark_next();
		origins_add(mirror->origins, &origin);
	}
	shelf_keep(mirror->keep_arg, &marked, shm_up(&mirror->shm) + offset, size);
}

void cache_mirror_attach(struct cache_peer *peer, struct mirror *mirror)
{
	if (!peer || !peer->shelf)
		return;
	mirror->keep_arg = peer->shelf;
	if (!mirror->depot && !mirror->origins)
		mirror->origins = origins_new();
	/* The link has the mirror already: a lane that finds the function finds what it is for. */
	__atomic_store_n(&mirror->keep, mirror_keep, __ATOMIC_RELEASE);
}

/* ---- references ---- */

struct ref {
	struct fetch fetch; /* first */
	struct loop_post post;
	struct cache_peer *peer;
	struct mirror *mirror; /* counted */
	uint64_t cookie;
	uint32_t offset;
	int err;
};

/* Control thread. */
static void ref_told(struct loop_post *post)
{
	struct ref *ref = (struct ref *)((char *)post - offsetof(struct ref, post));
	struct cache_peer *peer = ref->peer;

	peer->cache->running--;
	peer->refs--;
	__atomic_fetch_sub(&ref->mirror->fetches, 1, __ATOMIC_RELAXED);
	if (ref->err && !peer->gone && !__atomic_load_n(&ref->mirror->dead, __ATOMIC_ACQUIRE)) {
		uint8_t bytes[16];
		struct writer w = writer_on(bytes, sizeof(bytes));

		put_u64(&w, ref->cookie);
		put_u32(&w, ref->offset);
		put_u32(&w, ref->fetch.size);
		link_send(peer->link, LINK_BULK_BAD, ref->mirror->id, bytes, w.at, NULL, 0);
	}
	mirror_put(ref->mirror);
	free(ref);
	peer_put(peer);
}

/* A thread of the store. */
static void ref_begin(struct fetch *fetch)
{
	struct ref *ref = (struct ref *)fetch;

	shm_up_touch(&ref->mirror->shm, ref->offset, fetch->size, true);
}

/* A thread of the store: the bytes lie in the arena, or can't be had. */
static void ref_done(struct fetch *fetch, int err)
{
	struct ref *ref = (struct ref *)fetch;

	if (!err)
		session_landed_post(&ref->mirror->shm, ref->offset, ref->cookie);
	ref->err = err;
	ref->post.run = ref_told;
	loop_post(ref->peer->cache->loop, &ref->post);
}

int cache_ref(struct cache_peer *peer, struct mirror *mirror, struct reader *body)
{
	uint8_t hash[CACHE_HASH_SIZE];
	uint64_t cookie;
	uint32_t offset, size, at, total;
	struct ref *ref;
	int err;

	get_u64(body); /* seq: for traces */
	cookie = get_u64(body);
	offset = get_u32(body);
	size = get_u32(body);
	at = get_u32(body);
	total = get_u32(body);
	get_block(body, hash, sizeof(hash));
	if (body->fault || offset >= SESSION_UP_SIZE || size == 0 || size > SESSION_CELL_SIZE || size > SESSION_UP_SIZE - offset ||
	    offset % SESSION_GRANULE || cookie % SESSION_UP_SIZE != offset)
		return -EPROTO;
	/* The session may have ended on its way. */
	if (!mirror)
		return 0;
	if (!peer || !peer->reader || peer->refs >= CACHE_REFS_MAX)
		return -EACCES;
	ref = calloc(1, sizeof(*ref));
	if (!ref)
		return -EACCES;
	ref->fetch.at = at;
	ref->fetch.size = size;
	ref->fetch.place = shm_up(&mirror->shm) + offset;
	ref->fetch.begin = ref_begin;
	ref->fetch.done = ref_done;
	ref->peer = peer;
	ref->mirror = mirror;
	ref->cookie = cookie;
	ref->offset = offset;
	/* First: it may be done before we return. */
	mirror_get(mirror);
	peer->counts++;
	peer->refs++;
	peer->cache->running++;
	__atomic_fetch_add(&mirror->fetches, 1, __ATOMIC_RELAXED);
	err = shelf_fetch(peer->shelf, hash, total, &ref->fetch);
	if (!err) {
		struct origin origin = { .position = cookie, .size = size, .at = at, .total = total };

		memcpy(origin.hash, hash, sizeof(origin.hash));
		if (mirror->origins)
			origins_add(mirror->origins, &origin);
		return 0;
	}
	peer->cache->running--;
	peer->refs--;
	peer->counts--;
	__atomic_fetch_sub(&mirror->fetches, 1, __ATOMIC_RELAXED);
	mirror_put(mirror);
	free(ref);
	return -EACCES;
}

/* ---- depots ---- */

static void depot_freed(struct loop_post *post)
{
	struct depot *depot = (struct depot *)((char *)post - offsetof(struct depot, post));

	__atomic_fetch_sub(&depot->cache->depots, 1, __ATOMIC_RELAXED);
	shm_close(&depot->mirror.shm);
	free(depot);
}

/* Any thread. */
static void depot_mirror_free(struct mirror *mirror)
{
	struct depot *depot = (struct depot *)mirror;

	depot->post.run = depot_freed;
	loop_post(depot->cache->loop, &depot->post);
}

static int depot_open(struct cache_peer *peer, uint32_t session)
{
	struct mirror *taken = link_mirror_get(peer->link, session);
	struct depot *depot;
	unsigned count = 0;

	if (taken)
		mirror_put(taken);
	for (depot = peer->depots; depot; depot = depot->next)
		count++;
	if (session == 0 || taken || count >= CACHE_DEPOTS_MAX)
		return -EPROTO;
	depot = calloc(1, sizeof(*depot));
	if (!depot)
		return 0; /* its bytes are dropped: prefetching tells that it doesn't come on */
	mirror_init(&depot->mirror);
	if (shm_make(&depot->mirror.shm, protocol_hash, 0)) {
		free(depot);
		return 0;
	}
	depot->mirror.id = session;
	depot->mirror.free = depot_mirror_free;
	depot->mirror.live = true;
	depot->mirror.depot = true;
	depot->cache = peer->cache;
	depot->next = peer->depots;
	peer->depots = depot;
	__atomic_fetch_add(&peer->cache->depots, 1, __ATOMIC_RELAXED);
	cache_mirror_attach(peer, &depot->mirror);
	link_mirror_add(peer->link, &depot->mirror);
	return 0;
}

static void depot_close(struct cache_peer *peer, struct depot *depot)
{
	for (struct depot **at = &peer->depots; *at; at = &(*at)->next) {
		if (*at == depot) {
			*at = depot->next;
			break;
		}
	}
	__atomic_store_n(&depot->mirror.dead, true, __ATOMIC_RELEASE);
	link_mirror_remove(peer->link, &depot->mirror);
	mirror_put(&depot->mirror);
}

/* ---- commands ---- */

struct asked {
	struct verify verify; /* first */
	struct loop_post post;
	struct cache_peer *peer;
	uint32_t id;
	int err;
	uint64_t value;
};

static void asked_answer(struct cache_peer *peer, uint32_t id, int err, uint64_t value)
{
	uint8_t bytes[16];
	struct writer w = writer_on(bytes, sizeof(bytes));

	put_u32(&w, id);
	put_u32(&w, (uint32_t)-err);
	put_u64(&w, value);
	link_send(peer->link, LINK_CACHE_DONE, 0, bytes, w.at, NULL, 0);
}

static void asked_told(struct loop_post *post)
{
	struct asked *asked = (struct asked *)((char *)post - offsetof(struct asked, post));
	struct cache_peer *peer = asked->peer;

	peer->cache->running--;
	peer->asked--;
	if (!peer->gone)
		asked_answer(peer, asked->id, asked->err, asked->value);
	free(asked);
	peer_put(peer);
}

static void asked_done(struct verify *verify, int err, uint64_t damaged)
{
	struct asked *asked = (struct asked *)verify;

	asked->err = err;
	asked->value = damaged;
	asked->post.run = asked_told;
	loop_post(asked->peer->cache->loop, &asked->post);
}

static int peer_verify(struct cache_peer *peer, uint32_t id, const uint8_t head[CACHE_HEAD_SIZE])
{
	struct asked *asked = calloc(1, sizeof(*asked));

	if (!asked)
		return -ENOMEM;
	*asked = (struct asked){ .peer = peer, .id = id, .verify.done = asked_done };
	memcpy(asked->verify.head, head, CACHE_HEAD_SIZE);
	peer->asked++;
	peer->counts++;
	peer->cache->running++;
	shelf_verify(peer->shelf, &asked->verify);
	return 0;
}

static int peer_do(struct cache_peer *peer, struct reader *body)
{
	uint32_t id = get_u32(body);
	uint32_t what = get_u32(body);
	uint8_t head[CACHE_HEAD_SIZE];
	uint64_t value = 0;
	int err;

	get_block(body, head, sizeof(head));
	if (body->fault)
		return -EPROTO;
	switch (what) {
	case CACHE_DO_PIN:
	case CACHE_DO_UNPIN:
		err = shelf_pin(peer->shelf, head, what == CACHE_DO_PIN);
		break;
	case CACHE_DO_DROP:
		err = shelf_drop(peer->shelf, head, &value);
		break;
	case CACHE_DO_VERIFY:
		err = peer->asked < CACHE_ASKED_MAX ? peer_verify(peer, id, head) : -EBUSY;
		if (!err)
			return 0; /* answered when it is done */
		break;
	default:
		return -EPROTO;
	}
	asked_answer(peer, id, err, value);
	return 0;
}

/* ---- peers ---- */

static int peer_wanted(struct cache_peer *peer)
{
	uint8_t bytes[8 + CACHE_SALT_SIZE] = { 0 };
	uint8_t salt[CACHE_SALT_SIZE];
	struct cache *cache = peer->cache;

	if (peer->reader)
		return -EPROTO;
	if (!cache->store || tls_keys_salt(cache->keys, link_tenant(peer->link), salt))
		return 0;
	if (!peer->shelf)
		peer->shelf = store_shelf(cache->store, link_tenant(peer->link), salt);
	peer->reader = peer->shelf ? shelf_read(peer->shelf) : NULL;
	if (!peer->reader)
		return 0;
	memcpy(bytes + 8, salt, sizeof(salt));
	link_send(peer->link, LINK_CACHE_OPEN, 0, bytes, sizeof(bytes), NULL, 0);
	peer_pump(peer);
	if (!cache->tick.place)
		loop_timer_set(cache->loop, &cache->tick, loop_now_ns(cache->loop));
	return 0;
}

static int peer_dropped(struct cache_peer *peer, struct reader *body)
{
	uint32_t count = get_u32(body);

	get_u32(body);
	if (body->fault || count > CACHE_IDS_MAX || reader_left(body) != count * sizeof(struct cache_id))
		return -EPROTO;
	while (count--) {
		struct cache_id id;

		get_block(body, &id, sizeof(id));
		if (reader_dropped(peer->reader, &id))
			return -EPROTO;
	}
	return 0;
}

static int peer_fill(struct cache_peer *peer, struct reader *body)
{
	struct bulk_keep keep = { 0 };
	const uint8_t *bytes;
	uint32_t size;

	keep.tag = get_u64(body);
	keep.at = get_u32(body);
	keep.total = get_u32(body);
	size = (uint32_t)reader_left(body);
	bytes = reader_take(body, 1, size);
	if (body->fault || !keep.tag || size == 0 || size > CACHE_FILL_MAX || keep.total > CACHE_CHUNK_SIZE || keep.at > keep.total ||
	    size > keep.total - keep.at)
		return -EPROTO;
	shelf_keep(peer->shelf, &keep, bytes, size);
	return 0;
}

int cache_peer_message(struct cache_peer *peer, const struct link_hdr *hdr, struct reader *body)
{
	if (hdr->type == LINK_CACHE_WANTED)
		return peer ? peer_wanted(peer) : 0;
	if (hdr->type == LINK_DETACH) {
		for (struct depot *depot = peer ? peer->depots : NULL; depot; depot = depot->next) {
			if (depot->mirror.id == hdr->session) {
				depot_close(peer, depot);
				return 0;
			}
		}
		return -ENOENT;
	}
	if (hdr->type != LINK_CACHE_DROPPED && hdr->type != LINK_CACHE_DO && hdr->type != LINK_CACHE_DEPOT &&
	    hdr->type != LINK_CACHE_FILL)
		return -ENOENT;
	if (!peer || !peer->reader)
		return -EPROTO;
	if (hdr->type == LINK_CACHE_DROPPED)
		return peer_dropped(peer, body);
	if (hdr->type == LINK_CACHE_DO)
		return peer_do(peer, body);
	if (hdr->type == LINK_CACHE_FILL)
		return peer_fill(peer, body);
	return depot_open(peer, hdr->session);
}

struct cache_peer *cache_peer_new(struct cache *cache, struct link *link)
{
	struct cache_peer *peer = cache ? calloc(1, sizeof(*peer)) : NULL;

	if (!peer)
		return NULL;
	*peer = (struct cache_peer){ .next = cache->peers, .cache = cache, .link = link, .counts = 1 };
	cache->peers = peer;
	return peer;
}

void cache_peer_free(struct cache_peer *peer)
{
	if (!peer)
		return;
	for (struct cache_peer **at = &peer->cache->peers; *at; at = &(*at)->next) {
		if (*at == peer) {
			*at = peer->next;
			break;
		}
	}
	while (peer->depots)
		depot_close(peer, peer->depots);
	if (peer->reader)
		shelf_read_end(peer->reader);
	peer->reader = NULL;
	peer->gone = true;
	/* What waited for its leave to go. */
	if (peer->cache->store)
		cache_news(peer->cache);
	peer_put(peer);
}

/* ---- life ---- */

struct cache *cache_start(struct loop *loop, const struct conf *conf, struct tls_keys *keys)
{
	struct cache *cache = calloc(1, sizeof(*cache));
	struct store_setting setting = { .memory = conf_cache_memory(conf), .disk = conf_cache_disk(conf) };

	if (!cache)
		return NULL;
	cache->loop = loop;
	cache->keys = keys;
	cache->news.run = cache_news_run;
	cache->tick.fire = cache_tick;
	cache->tick.arg = cache;
	conf_cache_dir(conf, setting.dir);
	if (setting.memory == 0)
		return cache;
	cache->store = store_new(&setting, cache_news, cache);
	if (!cache->store)
		log_warn("weight cache: no room for %llu bytes of memory: off; see [cache] memory",
			 (unsigned long long)setting.memory);
	else
		log_info("weight cache: %llu MiB of memory, %s", (unsigned long long)(setting.memory >> 20),
			 setting.disk && *setting.dir ? setting.dir : "no disk");
	return cache;
}

bool cache_is_on(const struct cache *cache)
{
	return cache && cache->store;
}

bool cache_is_idle(const struct cache *cache)
{
	return !cache || (!cache->peers && !cache->running && !__atomic_load_n(&cache->depots, __ATOMIC_RELAXED));
}

void cache_free(struct cache *cache)
{
	if (!cache)
		return;
	assert(cache_is_idle(cache));
	loop_timer_clear(cache->loop, &cache->tick);
	store_free(cache->store);
	free(cache);
}
