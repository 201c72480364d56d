/* SPDX-License-Identifier: Apache-2.0 */
/* Files on their way into a server's cache. Control thread, reading and hashing in a thread; see prefetch.h. */
#include "broker/local/prefetch.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "broker/core/link.h"
#include "broker/lib/clock.h"
#include "broker/lib/fd.h"
#include "broker/lib/hash.h"
#include "broker/local/broker.h"
#include "broker/local/cache_private.h"
#include "broker/local/cfile.h"
#include "broker/local/server.h"

#define PREFETCH_SLOTS	 8u /* chunks on their way: half of an arena, more than a link takes in a round trip */
#define PREFETCH_LOOK_NS (20 * NS_PER_MS)
#define PREFETCH_WAIT_NS (20 * NS_PER_S) /* without a chunk that arrives: the node doesn't keep them */
#define PREFETCH_PIECE	 SESSION_CELL_SIZE

static_assert(PREFETCH_SLOTS * CACHE_CHUNK_SIZE <= SESSION_UP_SIZE, "slots lie in the arena");

enum chunk_use { CHUNK_NONE, CHUNK_READING, CHUNK_SENT };

struct chunk_slot {
	struct job job;
	struct loop_post post;
	struct prefetch *prefetch;
	enum chunk_use use;
	uint32_t index; /* of the chunk */
	uint32_t size;
	struct chunk_name name;
	int err;
};

struct prefetch {
	struct mirror mirror; /* first */
	struct prefetch *next;
	struct broker *broker;
	struct loop *loop;
	struct cache_local *cache;
	struct server *server;
	struct link *link; /* NULL: left it */
	int fd;
	uint64_t size;
	uint32_t chunks;
	uint32_t ahead; /* the next chunk to be read */
	uint64_t tag;
	uint8_t salt[CACHE_SALT_SIZE];
	struct cfile *file; /* counted: it gets its names, too. NULL: it can't have any */
	struct prefetch_view view;
	uint32_t reading;
	uint64_t moved_ns; /* when something arrived last */
	bool owned;
	bool settled;
	struct loop_timer tick;
	struct loop_post post;
	struct chunk_slot slots[PREFETCH_SLOTS];
};

static struct prefetch *all; /* control thread */

static void prefetch_step(struct prefetch *p);

/* ---- the end ---- */

static void prefetch_freed(struct loop_post *post)
{
	struct prefetch *p = (struct prefetch *)((char *)post - offsetof(struct prefetch, post));

	for (struct prefetch **at = &all; *at; at = &(*at)->next) {
		if (*at == p) {
			*at = p->next;
			break;
		}
	}
	shm_close(&p->mirror.shm);
	fd_close(&p->fd);
	free(p);
}

/* Any thread: no lane has bytes of it any more. */
static void prefetch_mirror_free(struct mirror *mirror)
{
	struct prefetch *p = (struct prefetch *)mirror;

	p->post.run = prefetch_freed;
	loop_post(p->loop, &p->post);
}

static void prefetch_settle(struct prefetch *p)
{
	if (!p->view.over || p->owned || p->reading || p->settled)
		return;
	p->settled = true;
	mirror_put(&p->mirror);
}

static void prefetch_over(struct prefetch *p, int err)
{
	if (p->view.over)
		return;
	p->view.over = true;
	p->view.err = err;
	loop_timer_clear(p->loop, &p->tick);
	__atomic_store_n(&p->mirror.dead, true, __ATOMIC_RELEASE);
	if (p->link) {
		link_mirror_remove(p->link, &p->mirror);
		link_send(p->link, LINK_DETACH, p->mirror.id, NULL, 0, NULL, 0);
	}
	p->link = NULL;
	if (p->file)
		cfile_put(p->file);
	p->file = NULL;
	prefetch_settle(p);
}

void prefetch_end(struct prefetch *p)
{
	p->owned = false;
	prefetch_over(p, -ECANCELED);
	prefetch_settle(p);
}

void prefetch_link_lost(struct server *server)
{
	for (struct prefetch *p = all, *next; p; p = next) {
		next = p->next;
		if (p->server != server || !p->link)
			continue;
		link_mirror_remove(p->link, &p->mirror);
		p->link = NULL;
		prefetch_over(p, -ENOTCONN);
	}
}

bool prefetch_is_idle(void)
{
	return all == NULL;
}

void prefetch_stop(void)
{
	for (struct prefetch *p = all, *next; p; p = next) {
		next = p->next;
		prefetch_end(p);
	}
}

/* ---- chunks ---- */

static void slot_done(struct prefetch *p, struct chunk_slot *slot, bool sent)
{
	slot->use = CHUNK_NONE;
	p->view.done += slot->size;
	p->view.sent += sent ? slot->size : 0;
	p->moved_ns = loop_now_ns(p->loop);
}

static void slot_send(struct prefetch *p, struct chunk_slot *slot)
{
	uint32_t base = (uint32_t)(slot - p->slots) * CACHE_CHUNK_SIZE;

	for (uint32_t at = 0; at < slot->size; at += PREFETCH_PIECE) {
		struct bulk_item *item = calloc(1, sizeof(*item));

		if (!item) {
			prefetch_over(p, -ENOMEM);
			return;
		}
		item->offset = base + at;
		item->cookie = base + at;
		item->size = slot->size - at < PREFETCH_PIECE ? slot->size - at : PREFETCH_PIECE;
		item->keep = (struct bulk_keep){ .tag = (p->tag ^ slot->index) | 1, .at = at, .total = slot->size };
		/* Two neighbours would share the lowest bit. */
		item->keep.tag = item->keep.tag * 2 + slot->index % 2;
		link_bulk(p->link, &p->mirror, item);
	}
	slot->use = CHUNK_SENT;
}

static void slot_told(struct loop_post *post)
{
	struct chunk_slot *slot = (struct chunk_slot *)((char *)post - offsetof(struct chunk_slot, post));
	struct prefetch *p = slot->prefetch;
	struct cache_server *cs = server_cache(p->server);

	p->reading--;
	p->cache->running--;
	if (p->view.over) {
		prefetch_settle(p);
		return;
	}
	if (slot->err) {
		prefetch_over(p, slot->err);
		return;
	}
	if (held_has(cache_server_held(cs), &slot->name))
		slot_done(p, slot, false);
	else
		slot_send(p, slot);
	if (!p->view.over)
		prefetch_step(p);
}

static void slot_run(struct job *job)
{
	struct chunk_slot *slot = (struct chunk_slot *)job;
	struct prefetch *p = slot->prefetch;
	uint8_t *place = shm_up(&p->mirror.shm) + (size_t)(slot - p->slots) * CACHE_CHUNK_SIZE;

	slot->err = cfile_chunk_read(p->fd, p->size, slot->index, place, &slot->size);
	if (!slot->err)
		slot->err = chunk_name(p->salt, place, slot->size, &slot->name);
	slot->post.run = slot_told;
	loop_post(p->loop, &slot->post);
}

/* What has arrived makes room for what is to be read. */
static void prefetch_step(struct prefetch *p)
{
	const struct held *held = cache_server_held(server_cache(p->server));
	bool busy = false;

	for (unsigned i = 0; i < PREFETCH_SLOTS; i++) {
		struct chunk_slot *slot = &p->slots[i];

		if (slot->use == CHUNK_SENT && held_has(held, &slot->name))
			slot_done(p, slot, true);
		if (slot->use == CHUNK_NONE && p->ahead < p->chunks) {
			*slot = (struct chunk_slot){ .job.run = slot_run, .prefetch = p, .use = CHUNK_READING, .index = p->ahead++ };
			if (p->file)
				cfile_want(p->file, slot->index);
			p->reading++;
			p->cache->running++;
			jobs_post(p->cache->names, &slot->job);
		}
		busy |= slot->use != CHUNK_NONE;
	}
	if (!busy)
		prefetch_over(p, 0);
	else if (loop_now_ns(p->loop) - p->moved_ns > PREFETCH_WAIT_NS)
		prefetch_over(p, -ENOSPC);
	else
		loop_timer_set(p->loop, &p->tick, loop_now_ns(p->loop) + PREFETCH_LOOK_NS);
}

static void prefetch_tick(void *arg)
{
	prefetch_step(arg);
}

static void prefetch_known(struct cfile_wish *wish, struct cfile *file, int err)
{
	struct prefetch *p = (struct prefetch *)wish->arg;

	p->reading--;
	p->cache->running--;
	free(wish);
	if (p->view.over && !err)
		cfile_put(file);
	else if (!err)
		p->file = file;
	if (p->view.over)
		prefetch_settle(p);
	else
		prefetch_step(p);
}

struct prefetch *prefetch_start(struct broker *broker, struct server *server, uid_t uid, int fd, int *err_out)
{
	const uint8_t *salt = cache_server_salt(server_cache(server));
	struct cfile_identity identity;
	struct cfile_wish *wish;
	struct prefetch *p;

	*err_out = salt ? cfile_identify(fd, false, &identity) : -EOPNOTSUPP;
	if (!*err_out && identity.size / CACHE_CHUNK_SIZE >= UINT32_MAX)
		*err_out = -EFBIG;
	if (*err_out) {
		close(fd);
		return NULL;
	}
	p = calloc(1, sizeof(*p));
	wish = calloc(1, sizeof(*wish));
	*err_out = -ENOMEM;
	if (!p || !wish || shm_make(&p->mirror.shm, protocol_hash, 0)) {
		free(p);
		free(wish);
		close(fd);
		return NULL;
	}
	mirror_init(&p->mirror);
	p->mirror.id = broker_session_take(broker);
	p->mirror.free = prefetch_mirror_free;
	p->mirror.depot = true; /* and never live: nothing comes back */
	p->broker = broker;
	p->loop = broker_loop(broker);
	p->cache = broker_cache(broker);
	p->server = server;
	p->link = server_link(server);
	p->fd = fd;
	p->size = identity.size;
	p->view.size = identity.size;
	p->chunks = (uint32_t)((identity.size + CACHE_CHUNK_SIZE - 1) / CACHE_CHUNK_SIZE);
	p->moved_ns = loop_now_ns(p->loop);
	p->owned = true;
	p->tick.fire = prefetch_tick;
	p->tick.arg = p;
	memcpy(p->salt, salt, sizeof(p->salt));
	if (getrandom(&p->tag, sizeof(p->tag), 0) != (ssize_t)sizeof(p->tag))
		p->tag = (uint64_t)(uintptr_t)p ^ clock_ns();
	p->next = all;
	all = p;
	link_mirror_add(p->link, &p->mirror);
	link_send(p->link, LINK_CACHE_DEPOT, p->mirror.id, NULL, 0, NULL, 0);
	/* It gets its names while we are at it, if it is a file that can have them. */
	wish->fd = dup(fd);
	wish->uid = uid;
	wish->arg = p;
	wish->done = prefetch_known;
	memcpy(wish->salt, salt, sizeof(wish->salt));
	p->reading++;
	p->cache->running++;
	cfile_open(p->cache->files, wish);
	*err_out = 0;
	return p;
}

void prefetch_look(const struct prefetch *p, struct prefetch_view *view_out)
{
	*view_out = p->view;
}
