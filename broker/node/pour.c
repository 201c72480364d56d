/* SPDX-License-Identifier: Apache-2.0 */
/* Contents on their way to another node. Control thread, but for the comparing; see pour.h. */
#include "broker/node/pour.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/core/address.h"
#include "broker/core/dial.h"
#include "broker/core/held.h"
#include "broker/lib/futex.h"
#include "broker/lib/hash.h"
#include "broker/lib/log.h"
#include "broker/node/origin.h"
#include "broker/proto/aside.h"
#include "broker/proto/ring.h"

#define POUR_SESSION 1u /* of a link that has no other */
#define POUR_ROOM    (2 * MOVE_ASIDE_MAX) /* a piece, and what is left at the end of a lap */

/* DIALLING, OPENING, JOINING: on the way to the other node. OPEN: takes pieces. OVER: as told, or ended. */
enum pour_state { POUR_DIALLING, POUR_OPENING, POUR_JOINING, POUR_OPEN, POUR_OVER };

struct pour {
	struct mirror mirror; /* first: lanes know it by this; its memory has what is on its way */
	struct loop *loop;
	enum pour_state state;
	const struct pour_ops *ops;
	void *owner;
	bool ended; /* the owner wants to hear nothing */
	uint32_t way;
	uint8_t token[FILL_TOKEN_SIZE];
	char tenant[KEY_TENANT_SIZE];
	struct tls_keys *keys; /* the tenant's alone; NULL: cleartext */
	struct link_setting setting;
	struct dial *dial;
	struct link *link;
	struct mirror *from;
	struct shelf *shelf;
	uint8_t salt[CACHE_SALT_SIZE];
	bool cached; /* the other node's names are ours */
	struct held held;
	uint64_t head; /* of the other session's up arena: [tail, head) is on its way */
	uint64_t tail;
	uint64_t sent;
	uint64_t spared;
	struct loop_post post;
};

static void pour_freed(struct loop_post *post)
{
	struct pour *pour = (struct pour *)((char *)post - offsetof(struct pour, post));

	pour->ops->freed(pour->owner, pour);
	mirror_put(pour->from);
	shm_close(&pour->mirror.shm);
	held_clear(&pour->held);
	tls_keys_free(pour->keys);
	free(pour);
}

/* Any thread. */
static void pour_mirror_free(struct mirror *mirror)
{
	struct pour *pour = (struct pour *)mirror;

	pour->post.run = pour_freed;
	loop_post(pour->loop, &pour->post);
}

static void pour_over(struct pour *pour, int err, const char *why)
{
	if (pour->state == POUR_OVER)
		return;
	pour->state = POUR_OVER;
	__atomic_store_n(&pour->mirror.dead, true, __ATOMIC_RELEASE);
	if (pour->dial)
		dial_abandon(pour->dial);
	pour->dial = NULL;
	if (pour->link)
		link_close(pour->link, err, why);
	if (!pour->ended)
		pour->ops->told(pour->owner, pour, err, why);
	/* Whoever waits for room waits no more. */
	loop_nudge(pour->loop);
}

void pour_end(struct pour *pour)
{
	pour->ended = true;
	pour_over(pour, -ECANCELED, "the move is over");
	mirror_put(&pour->mirror);
}

/* ---- pieces ---- */

static bool piece_send(struct pour *pour, uint64_t cookie, uint32_t size)
{
	struct bulk_item *item = calloc(1, sizeof(*item));

	if (!item)
		return false;
	*item = (struct bulk_item){ .cookie = cookie, .offset = (uint32_t)(cookie % SESSION_UP_SIZE), .size = size };
	pour->sent += size;
	link_bulk(pour->link, &pour->mirror, item);
	return true;
}

/* A piece that may be one of the other node's chunks, or a part of one: compared with ours of that name, on a thread of the store. */
struct look {
	struct fetch fetch; /* first */
	struct loop_post post;
	struct pour *pour; /* counted */
	struct chunk_name name;
	uint64_t cookie;
	bool same;
	uint8_t bytes[];
};

static void look_told(struct loop_post *post)
{
	struct look *look = (struct look *)((char *)post - offsetof(struct look, post));
	struct pour *pour = look->pour;

	/* Its lease may have ended meanwhile. */
	if (pour->state == POUR_OPEN && look->same && held_has(&pour->held, &look->name)) {
		uint8_t bytes[32 + CACHE_HASH_SIZE];
		struct writer w = writer_on(bytes, sizeof(bytes));

		put_u64(&w, 0);
		put_u64(&w, look->cookie);
		put_u32(&w, (uint32_t)(look->cookie % SESSION_UP_SIZE));
		put_u32(&w, look->fetch.size);
		put_u32(&w, look->fetch.at);
		put_u32(&w, look->name.size);
		put_block(&w, look->name.hash, sizeof(look->name.hash));
		link_send(pour->link, LINK_BULK_REF, POUR_SESSION, NULL, 0, bytes, w.at);
		pour->spared += look->fetch.size;
	} else if (pour->state == POUR_OPEN && !piece_send(pour, look->cookie, look->fetch.size)) {
		pour_over(pour, -ENOMEM, "out of memory");
	}
	free(look);
	mirror_put(&pour->mirror);
}

/* A thread of the store. The piece stays where it is until the other worker has used it. */
static void look_done(struct fetch *fetch, int err)
{
	struct look *look = (struct look *)fetch;

	look->same = !err && memcmp(shm_up(&look->pour->mirror.shm) + look->cookie % SESSION_UP_SIZE, look->bytes, fetch->size) == 0;
	look->post.run = look_told;
	loop_post(look->pour->loop, &look->post);
}

static bool piece_look(struct pour *pour, uint64_t from, uint64_t cookie, uint32_t size)
{
	struct origin origin;
	struct chunk_name name;
	struct look *look;

	if (from == ORIGIN_NONE || !pour->cached || !pour->from->origins || !origins_find(pour->from->origins, from, size, &origin) ||
	    !shelf_name_of(pour->shelf, origin.mark, origin.hash, origin.total, &name) || !held_has(&pour->held, &name))
		return false;
	look = malloc(sizeof(*look) + size);
	if (!look)
		return false;
	*look = (struct look){ .pour = pour, .name = name, .cookie = cookie };
	look->fetch.at = origin.at;
	look->fetch.size = size;
	look->fetch.place = look->bytes;
	look->fetch.quiet = true;
	look->fetch.done = look_done;
	mirror_get(&pour->mirror);
	if (!shelf_fetch(pour->shelf, name.hash, name.size, &look->fetch))
		return true;
	mirror_put(&pour->mirror);
	free(look);
	return false;
}

bool pour_is_full(const struct pour *pour)
{
	return pour && pour->state == POUR_OPEN && pour->head - pour->tail > SESSION_UP_SIZE - POUR_ROOM;
}

static void piece_take(struct pour *pour, const uint8_t *bytes, uint64_t from, struct bulk_ref *ref)
{
	uint64_t left = SESSION_UP_SIZE - pour->head % SESSION_UP_SIZE;

	if (ref->size > left)
		pour->head += left;
	ref->cookie = pour->head;
	ref->offset = (uint32_t)(pour->head % SESSION_UP_SIZE);
	pour->head += (ref->size + (uint64_t)SESSION_GRANULE - 1) & ~(uint64_t)(SESSION_GRANULE - 1);
	memcpy(shm_up(&pour->mirror.shm) + ref->offset, bytes, ref->size);
	if (!piece_look(pour, from, ref->cookie, ref->size) && !piece_send(pour, ref->cookie, ref->size))
		pour_over(pour, -ENOMEM, "out of memory");
}

int pour_frame(struct pour *pour, const struct shm *shm, uint8_t *frame, uint32_t size)
{
	struct session_aside *words = (struct session_aside *)(void *)(shm->base + SESSION_AT_ASIDE);
	struct aside_hdr aside;
	struct frame_hdr inner;
	struct bulk_ref ref;
	uint8_t *at = frame + sizeof(struct frame_hdr);
	uint64_t place;

	if (size < sizeof(inner) + sizeof(aside) + sizeof(inner) + sizeof(ref))
		return -EPROTO;
	memcpy(&aside, at, sizeof(aside));
	memcpy(&inner, at + sizeof(aside), sizeof(inner));
	memcpy(&ref, at + sizeof(aside) + sizeof(inner), sizeof(ref));
	place = aside.position % SESSION_ASIDE_SIZE;
	if (inner.size != size - sizeof(inner) - sizeof(aside) || !aside_carries(inner.op) || inner.kind != FRAME_COMMAND ||
	    inner.flags != FRAME_BULK_UP || ref.size == 0 || ref.size > MOVE_ASIDE_MAX || ref.size > SESSION_ASIDE_SIZE - place)
		return -EPROTO;
	aside.how = ASIDE_LOST;
	/* Whoever isn't full has room; a piece beside that is another move's, or came while nobody looked. */
	if (pour && pour->state == POUR_OPEN && pour->way == aside.way && !pour_is_full(pour)) {
		piece_take(pour, shm->base + SESSION_AT_SAID + place, aside.origin, &ref);
		aside.how = ASIDE_GOES;
	}
	__atomic_store_n(&words->tail, aside.position + ref.size, __ATOMIC_RELEASE);
	__atomic_fetch_add(&words->room, 1, __ATOMIC_RELEASE);
	futex_wake(&words->room, INT_MAX);
	memcpy(at, &aside, sizeof(aside));
	memcpy(at + sizeof(aside) + sizeof(inner), &ref, sizeof(ref));
	return 0;
}

/* ---- the link ---- */

static int pour_joined(struct pour *pour, struct reader *body)
{
	uint32_t result = get_u32(body);
	const char *why = get_str(body, LINK_TEXT_MAX);

	if (body->fault || pour->state != POUR_JOINING)
		return -EPROTO;
	if (result)
		return link_blame(pour->link, -EACCES, "it refuses: %s", *why ? why : "without a reason");
	pour->state = POUR_OPEN;
	pour->ops->told(pour->owner, pour, 0, "");
	return 0;
}

static int pour_consumed(struct pour *pour, struct reader *body)
{
	uint64_t tail = get_u64(body);

	if (body->fault || tail < pour->tail || tail > pour->head)
		return -EPROTO;
	pour->tail = tail;
	loop_nudge(pour->loop);
	return 0;
}

/* A reference that the other node can't serve. */
static int pour_bad(struct pour *pour, struct reader *body)
{
	uint64_t cookie = get_u64(body);
	uint32_t offset = get_u32(body);
	uint32_t size = get_u32(body);

	if (body->fault || cookie < pour->tail || cookie >= pour->head || size == 0 || size > MOVE_ASIDE_MAX || size > pour->head - cookie ||
	    cookie % SESSION_UP_SIZE != offset || size > SESSION_UP_SIZE - offset)
		return -EPROTO;
	return piece_send(pour, cookie, size) ? 0 : -ENOMEM;
}

static int pour_held(struct pour *pour, const struct link_hdr *hdr, struct reader *body)
{
	uint32_t count = get_u32(body);
	const uint32_t head[2] = { count, 0 };
	const uint8_t *ids;

	get_u32(body);
	if (body->fault || count > CACHE_IDS_MAX || reader_left(body) != count * sizeof(struct cache_id))
		return -EPROTO;
	ids = body->start + body->at;
	/* What was referred to is ahead of that. */
	if (hdr->type == LINK_CACHE_DROP)
		link_send(pour->link, LINK_CACHE_DROPPED, 0, head, sizeof(head), ids, count * sizeof(struct cache_id));
	while (count--) {
		struct cache_id id;

		get_block(body, &id, sizeof(id));
		if (hdr->type == LINK_CACHE_DROP)
			held_remove(&pour->held, &id);
		else if (held_add(&pour->held, &id) == -EPROTO)
			return -EPROTO;
	}
	return 0;
}

static int pour_message(void *owner, struct link *link, const struct link_hdr *hdr, struct reader *body)
{
	struct pour *pour = owner;
	uint8_t salt[CACHE_SALT_SIZE];

	if (pour->state == POUR_OVER)
		return 0;
	if (hdr->session != 0 && hdr->session != POUR_SESSION)
		return -EPROTO;
	switch (hdr->type) {
	case LINK_FILL_JOINED:
		return pour_joined(pour, body);
	case LINK_FILL_CONSUMED:
		return pour_consumed(pour, body);
	case LINK_BULK_BAD:
		return pour_bad(pour, body);
	case LINK_CACHE_OPEN:
		get_u32(body);
		get_u32(body);
		get_block(body, salt, sizeof(salt));
		/* Of another key of the tenant's the names are others. */
		pour->cached = !body->fault && pour->shelf && memcmp(salt, pour->salt, sizeof(salt)) == 0;
		return body->fault ? -EPROTO : 0;
	case LINK_CACHE_HELD:
	case LINK_CACHE_DROP:
		return pour_held(pour, hdr, body);
	case LINK_CACHE_STATS:
		return 0;
	default:
		return -EPROTO;
	}
}

static void pour_ready(void *owner, struct link *link)
{
	struct pour *pour = owner;

	if (pour->state != POUR_OPENING)
		return;
	pour->state = POUR_JOINING;
	if (pour->shelf)
		link_send(link, LINK_CACHE_WANTED, 0, NULL, 0, NULL, 0);
	link_send(link, LINK_FILL_JOIN, POUR_SESSION, NULL, 0, pour->token, sizeof(pour->token));
}

static void pour_lost(void *owner, struct link *link, int err, const char *why)
{
	struct pour *pour = owner;
	char copy[CONN_WHY_SIZE];

	snprintf(copy, sizeof(copy), "%s", why);
	pour->link = NULL;
	link_free(link);
	pour_over(pour, err ? err : -ECONNRESET, copy);
	mirror_put(&pour->mirror);
}

static const struct link_ops pour_link_ops = { .ready = pour_ready, .message = pour_message, .lost = pour_lost };

static void pour_dialled(void *owner, int fd, int err, const char *why)
{
	struct pour *pour = owner;
	struct sockaddr_storage address = { 0 };
	socklen_t size = sizeof(address);

	pour->dial = NULL;
	if (fd < 0) {
		pour_over(pour, err, why);
		return;
	}
	/* As every broker does. */
	if (!pour->keys && (getpeername(fd, (struct sockaddr *)&address, &size) < 0 || !address_is_loopback((struct sockaddr *)&address))) {
		close(fd);
		pour_over(pour, -EPERM, "it has no key for a server that isn't on loopback");
		return;
	}
	pour->state = POUR_OPENING;
	pour->link = link_connect(pour->loop, fd, &pour->setting, &pour_link_ops, pour);
	if (pour->link)
		mirror_get(&pour->mirror);
	else
		pour_over(pour, -ENOMEM, "out of memory for a link");
}

/* ---- life ---- */

struct pour *pour_start(struct loop *loop, const struct pour_setting *setting, const struct pour_ops *ops, void *owner)
{
	struct pour *pour = calloc(1, sizeof(*pour));

	if (!pour)
		return NULL;
	mirror_init(&pour->mirror);
	pour->mirror.id = POUR_SESSION;
	pour->mirror.off = setting->from->off;
	pour->mirror.free = pour_mirror_free;
	pour->mirror.live = true;
	pour->loop = loop;
	pour->ops = ops;
	pour->owner = owner;
	pour->way = setting->way;
	memcpy(pour->token, setting->token, sizeof(pour->token));
	pour->setting = *setting->link;
	pour->shelf = setting->shelf;
	memcpy(pour->salt, setting->salt, sizeof(pour->salt));
	pour->head = pour->tail = MOVE_UP_START;
	if (setting->link->keys && tls_keys_of(setting->link->keys, setting->tenant, &pour->keys))
		goto free_pour;
	pour->setting.keys = pour->keys;
	if (shm_make(&pour->mirror.shm, protocol_hash, 0))
		goto free_keys;
	pour->dial = dial_start(loop, setting->address, pour_dialled, pour);
	if (!pour->dial)
		goto close_shm;
	pour->from = setting->from;
	mirror_get(pour->from);
	return pour;

close_shm:
	shm_close(&pour->mirror.shm);
free_keys:
	tls_keys_free(pour->keys);
free_pour:
	free(pour);
	return NULL;
}

uint32_t pour_way(const struct pour *pour)
{
	return pour->way;
}

void pour_counts(const struct pour *pour, uint64_t *sent_out, uint64_t *cached_out)
{
	*sent_out = pour->sent;
	*cached_out = pour->spared;
}
