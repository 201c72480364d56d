/* SPDX-License-Identifier: Apache-2.0 */
/* The store of verdicts: a table of chains, and one list by use. See verdicts.h. */
#include "broker/local/verdicts.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define BUCKET_BITS 12
#define RECORD_HEAD 8u	  /* u32 size, u32 0 */

struct kept {
	struct kept *next; /* of its bucket */
	struct kept *newer, *older;
	struct verdict_key key;
	uid_t uid;
	uint8_t *bytes;
	size_t size;
	size_t verdict_size; /* records begin behind it, at a multiple of 8 */
	char *server;	     /* one allocation for both */
	char *driver;
};

struct verdicts {
	uint64_t bytes_max;
	uint64_t salt; /* keys come from programs: none is to know what falls into one bucket */
	struct verdicts_stats stats;
	struct kept *newest, *oldest;
	struct kept *buckets[1u << BUCKET_BITS];
};

struct verdicts *verdicts_new(uint64_t bytes_max)
{
	struct verdicts *verdicts = calloc(1, sizeof(*verdicts));

	if (!verdicts)
		return NULL;
	verdicts->bytes_max = bytes_max;
	if (getrandom(&verdicts->salt, sizeof(verdicts->salt), 0) != sizeof(verdicts->salt))
		verdicts->salt = (uintptr_t)verdicts;
	return verdicts;
}

/* ---- entries ---- */

static size_t weight(const struct kept *kept)
{
	return sizeof(*kept) + kept->size;
}

static void list_out(struct verdicts *verdicts, struct kept *kept)
{
	*(kept->newer ? &kept->newer->older : &verdicts->newest) = kept->older;
	*(kept->older ? &kept->older->newer : &verdicts->oldest) = kept->newer;
}

static void list_in(struct verdicts *verdicts, struct kept *kept)
{
	kept->newer = NULL;
	kept->older = verdicts->newest;
	*(verdicts->newest ? &verdicts->newest->newer : &verdicts->oldest) = kept;
	verdicts->newest = kept;
}

static struct kept **bucket_of(struct verdicts *verdicts, const struct verdict_key *key)
{
	unsigned __int128 product = (unsigned __int128)(key->hash[0] ^ verdicts->salt) * (key->hash[1] | 1);

	return &verdicts->buckets[((uint64_t)product ^ (uint64_t)(product >> 64)) * 0x9e3779b97f4a7c15ull >> (64 - BUCKET_BITS)];
}

static struct kept *kept_find(struct verdicts *verdicts, const struct verdict_scope *scope, const struct verdict_key *key)
{
	for (struct kept *kept = *bucket_of(verdicts, key); kept; kept = kept->next)
		if (memcmp(&kept->key, key, sizeof(*key)) == 0 && kept->uid == scope->uid && strcmp(kept->server, scope->server) == 0 &&
		    strcmp(kept->driver, scope->driver) == 0)
			return kept;
	return NULL;
}

static void kept_free(struct verdicts *verdicts, struct kept *kept)
{
	struct kept **at = bucket_of(verdicts, &kept->key);

	while (*at != kept)
		at = &(*at)->next;
	*at = kept->next;
	list_out(verdicts, kept);
	verdicts->stats.entries--;
	verdicts->stats.bytes -= weight(kept);
	free(kept->server);
	free(kept->bytes);
	free(kept);
}

void verdicts_free(struct verdicts *verdicts)
{
	while (verdicts && verdicts->oldest)
		kept_free(verdicts, verdicts->oldest);
	free(verdicts);
}

/* Room for @size bytes more, and @entries, of @uid, by giving up the oldest, but not @spare. */
static bool room_make(struct verdicts *verdicts, uid_t uid, size_t size, unsigned entries, const struct kept *spare)
{
	uint64_t bytes = 0, count = 0;

	if (size > verdicts->bytes_max / 2)
		return false;
	/* Who has what needn't be counted as long as all together have no more than one may. */
	if (verdicts->stats.bytes + size <= verdicts->bytes_max / 2 && verdicts->stats.entries + entries <= VERDICTS_ENTRIES_MAX / 2)
		return true;
	for (struct kept *kept = verdicts->newest; kept; kept = kept->older)
		if (kept->uid == uid) {
			bytes += weight(kept);
			count++;
		}
	for (struct kept *kept = verdicts->oldest, *newer; kept; kept = newer) {
		bool his = kept->uid == uid;
		bool his_too_much = bytes + size > verdicts->bytes_max / 2 || count + entries > VERDICTS_ENTRIES_MAX / 2;
		bool too_much = verdicts->stats.bytes + size > verdicts->bytes_max || verdicts->stats.entries + entries > VERDICTS_ENTRIES_MAX;

		newer = kept->newer;
		if (!his_too_much && !too_much)
			return true;
		if (kept == spare || (his_too_much && !his))
			continue;
		bytes -= his ? weight(kept) : 0;
		count -= his;
		verdicts->stats.evictions++;
		kept_free(verdicts, kept);
	}
	return bytes + size <= verdicts->bytes_max / 2 && count + entries <= VERDICTS_ENTRIES_MAX / 2 &&
	       verdicts->stats.bytes + size <= verdicts->bytes_max && verdicts->stats.entries + entries <= VERDICTS_ENTRIES_MAX;
}

/* ---- what programs ask and say ---- */

static void touch(struct verdicts *verdicts, struct kept *kept)
{
	list_out(verdicts, kept);
	list_in(verdicts, kept);
}

const uint8_t *verdicts_find(struct verdicts *verdicts, const struct verdict_scope *scope, const struct verdict_key *key, size_t *size_out)
{
	struct kept *kept = kept_find(verdicts, scope, key);

	if (!kept) {
		verdicts->stats.misses++;
		return NULL;
	}
	verdicts->stats.hits++;
	touch(verdicts, kept);
	*size_out = kept->size;
	return kept->bytes;
}

void verdicts_keep(struct verdicts *verdicts, const struct verdict_scope *scope, const struct verdict_key *key, uint8_t *bytes, size_t size)
{
	size_t server_size = strlen(scope->server) + 1, driver_size = strlen(scope->driver) + 1;
	struct kept *kept = kept_find(verdicts, scope, key);

	if (kept && kept->verdict_size == size && memcmp(kept->bytes, bytes, size) == 0) {
		touch(verdicts, kept);
		free(bytes);
		return;
	}
	if (kept)
		kept_free(verdicts, kept);
	if (!room_make(verdicts, scope->uid, sizeof(*kept) + size, 1, NULL)) {
		free(bytes);
		return;
	}
	kept = calloc(1, sizeof(*kept));
	if (kept)
		kept->server = malloc(server_size + driver_size);
	if (!kept || !kept->server) {
		free(kept);
		free(bytes);
		return;
	}
	kept->driver = kept->server + server_size;
	memcpy(kept->server, scope->server, server_size);
	memcpy(kept->driver, scope->driver, driver_size);
	kept->key = *key;
	kept->uid = scope->uid;
	kept->bytes = bytes;
	kept->size = kept->verdict_size = size;
	kept->next = *bucket_of(verdicts, key);
	*bucket_of(verdicts, key) = kept;
	list_in(verdicts, kept);
	verdicts->stats.entries++;
	verdicts->stats.bytes += weight(kept);
}

/* Two programs may have learnt the same. */
static bool record_is_there(const struct kept *kept, const void *record, size_t size)
{
	uint32_t had;

	for (size_t at = (kept->verdict_size + 7) & ~(size_t)7; at < kept->size; at += (RECORD_HEAD + (size_t)had + 7) & ~(size_t)7) {
		memcpy(&had, kept->bytes + at, sizeof(had));
		if (had == size && memcmp(kept->bytes + at + RECORD_HEAD, record, size) == 0)
			return true;
	}
	return false;
}

void verdicts_more(struct verdicts *verdicts, const struct verdict_scope *scope, const struct verdict_key *key, const void *record,
		   size_t size)
{
	struct kept *kept = kept_find(verdicts, scope, key);
	uint32_t head[2] = { (uint32_t)size, 0 };
	size_t at, end;
	uint8_t *bytes;

	if (!kept || record_is_there(kept, record, size))
		return;
	at = (kept->size + 7) & ~(size_t)7;
	end = (at + RECORD_HEAD + size + 7) & ~(size_t)7;
	if (end > VERDICT_KEPT_MAX || !room_make(verdicts, scope->uid, end - kept->size, 0, kept))
		return;
	bytes = realloc(kept->bytes, end);
	if (!bytes)
		return;
	memset(bytes + kept->size, 0, end - kept->size);
	memcpy(bytes + at, head, sizeof(head));
	memcpy(bytes + at + RECORD_HEAD, record, size);
	verdicts->stats.bytes += end - kept->size;
	kept->bytes = bytes;
	kept->size = end;
}

void verdicts_stats(const struct verdicts *verdicts, struct verdicts_stats *stats_out)
{
	*stats_out = verdicts->stats;
}

/* ---- in parts ---- */

void verdict_parts_drop(struct verdict_parts *parts)
{
	free(parts->bytes);
	*parts = (struct verdict_parts){ 0 };
}

int verdict_part(struct verdict_parts *parts, const struct verdict_key *key, uint32_t total, uint32_t at, const void *part, uint32_t size,
		 uint8_t **bytes_out)
{
	if (at == 0) {
		verdict_parts_drop(parts);
		if (total == 0 || total > VERDICT_KEPT_MAX)
			return -EPROTO;
		parts->key = *key;
		parts->total = total;
		parts->bytes = malloc(total);
	}
	if (!parts->total || total != parts->total || at != parts->at || memcmp(&parts->key, key, sizeof(*key)) || size == 0 || size > total - at)
		return -EPROTO;
	if (parts->bytes)
		memcpy(parts->bytes + at, part, size);
	parts->at += size;
	if (parts->at < total)
		return 0;
	*bytes_out = parts->bytes;
	*parts = (struct verdict_parts){ 0 };
	return 1;
}
