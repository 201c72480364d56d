/* SPDX-License-Identifier: Apache-2.0 */
/* A table of chunks with open addressing. One thread; see held.h. */
#include "broker/core/held.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HELD_GONE  UINT32_MAX
#define HELD_FIRST 1024u
#define HELD_MAX   (1u << 27) /* slots: 3 GiB, what no node has */

static uint32_t slot_first(const struct held *held, uint32_t print)
{
	return print * 0x9e3779b1u & (held->slot_count - 1);
}

static struct cache_id *slot_find(const struct held *held, const uint8_t *head, uint32_t size, uint32_t print)
{
	if (!held->slot_count)
		return NULL;
	for (uint32_t i = slot_first(held, print);; i = (i + 1) & (held->slot_count - 1)) {
		struct cache_id *slot = &held->slots[i];

		if (slot->size == 0)
			return NULL;
		if (slot->print == print && slot->size == size && (!head || memcmp(slot->head, head, CACHE_HEAD_SIZE) == 0))
			return slot;
	}
}

static void slot_put(struct held *held, const struct cache_id *id)
{
	uint32_t i = slot_first(held, id->print);

	while (held->slots[i].size)
		i = (i + 1) & (held->slot_count - 1);
	held->slots[i] = *id;
	held->used++;
}

/* Twice the room of what is there, without what is gone. */
static int held_grow(struct held *held)
{
	struct held grown = *held;
	uint32_t want = HELD_FIRST;

	while (want < 4 * (uint64_t)held->count && want < HELD_MAX)
		want *= 2;
	if (held->count >= want - want / 4)
		return -ENOMEM;
	grown.slots = calloc(want, sizeof(*grown.slots));
	if (!grown.slots)
		return -ENOMEM;
	grown.slot_count = want;
	grown.used = 0;
	for (uint32_t i = 0; i < held->slot_count; i++)
		if (held->slots[i].size && held->slots[i].size != HELD_GONE)
			slot_put(&grown, &held->slots[i]);
	free(held->slots);
	*held = grown;
	return 0;
}

int held_add(struct held *held, const struct cache_id *id)
{
	if (id->size == 0 || id->size > CACHE_CHUNK_SIZE)
		return -EPROTO;
	if (slot_find(held, id->head, id->size, id->print))
		return 0;
	if (held->used >= held->slot_count - held->slot_count / 4) {
		int err = held_grow(held);

		if (err)
			return err;
	}
	slot_put(held, id);
	held->count++;
	held->bytes += id->size;
	return 0;
}

void held_remove(struct held *held, const struct cache_id *id)
{
	struct cache_id *slot = id->size == HELD_GONE ? NULL : slot_find(held, id->head, id->size, id->print);

	if (!slot)
		return;
	held->count--;
	held->bytes -= slot->size;
	slot->size = HELD_GONE;
}

bool held_has(const struct held *held, const struct chunk_name *name)
{
	return slot_find(held, name->hash, name->size, name->print);
}

bool held_may(const struct held *held, uint32_t print, uint32_t size)
{
	return slot_find(held, NULL, size, print);
}

void held_clear(struct held *held)
{
	free(held->slots);
	*held = (struct held){ 0 };
}

const struct cache_id *held_next(const struct held *held, uint32_t *at)
{
	while (*at < held->slot_count) {
		const struct cache_id *slot = &held->slots[(*at)++];

		if (slot->size && slot->size != HELD_GONE)
			return slot;
	}
	return NULL;
}
