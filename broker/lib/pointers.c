/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words that point into ranges; see pointers.h.
 *
 * Ranges of one kind lie near each other, so few upper halves of addresses occur in them, and hardly any other data has those. So blocks are
 * compared by upper halves alone, with what every CPU of the architecture has, and only where one is met words are looked at.
 */
#include "broker/lib/pointers.h"

#include <stdlib.h>
#include <string.h>

#define LANES 4u   /* words of 32 bits that are compared at once: the upper ones are the odd ones */
#define BLOCK 512u /* bytes between two decisions */

typedef uint32_t lanes_t __attribute__((vector_size(LANES * sizeof(uint32_t))));

bool pointers_add(struct pointers *p, uint64_t from, uint64_t end, uint32_t id)
{
	if (p->count == p->room) {
		uint32_t room = p->room ? 2 * p->room : 64;
		struct pointer_range *ranges = realloc(p->ranges, room * sizeof(*ranges));

		if (!ranges)
			return false;
		p->ranges = ranges;
		p->room = room;
	}
	p->ranges[p->count++] = (struct pointer_range){ from, end, id };
	return true;
}

static int range_order(const void *a, const void *b)
{
	const struct pointer_range *one = a, *other = b;

	if (one->from != other->from)
		return one->from < other->from ? -1 : 1;
	return one->id < other->id ? -1 : one->id > other->id;
}

static void high_add(struct pointers *p, uint64_t high)
{
	for (uint32_t i = 0; i < p->high_count && i < POINTER_HIGHS; i++)
		if (p->highs[i] == high)
			return;
	if (p->high_count < POINTER_HIGHS)
		p->highs[p->high_count] = (uint32_t)high;
	if (p->high_count <= POINTER_HIGHS)
		p->high_count++;
}

void pointers_seal(struct pointers *p)
{
	p->high_count = 0;
	if (!p->count)
		return;
	qsort(p->ranges, p->count, sizeof(*p->ranges), range_order);
	p->top = 0;
	for (uint32_t i = 0; i < p->count; i++) {
		p->top = p->ranges[i].end > p->top ? p->ranges[i].end : p->top;
		for (uint64_t high = p->ranges[i].from >> 32; high <= p->ranges[i].end >> 32 && p->high_count <= POINTER_HIGHS; high++)
			high_add(p, high);
	}
}

void pointers_free(struct pointers *p)
{
	free(p->ranges);
	*p = (struct pointers){ .count = 0 };
}

const struct pointer_range *pointers_find(const struct pointers *p, uint64_t value)
{
	uint32_t low = 0, high = p->count; /* of those that begin at @value or before it: how many */

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (p->ranges[mid].from <= value)
			low = mid + 1;
		else
			high = mid;
	}
	if (!low)
		return NULL;

	uint64_t from = p->ranges[low - 1].from;
	bool in = false;

	for (; low && p->ranges[low - 1].from == from; low--)
		in |= value <= p->ranges[low - 1].end;
	return in ? &p->ranges[low] : NULL;
}

static void words_look(const struct pointers *p, const uint8_t *bytes, size_t size, size_t step, uint64_t address,
		       void (*hear)(void *arg, uint64_t at, uint64_t value), void *arg)
{
	uint64_t value;

	for (size_t at = 0; size >= sizeof(value) && at <= size - sizeof(value); at += step) {
		memcpy(&value, bytes + at, sizeof(value));
		if (value >= p->ranges[0].from && value <= p->top && pointers_find(p, value))
			hear(arg, address + at, value);
	}
}

/* An upper half of a word of the block is one of those that are looked for. */
static inline bool block_meets(const struct pointers *p, const uint8_t *bytes)
{
	lanes_t met[2] = { { 0 }, { 0 } };
	uint64_t words[2];

	for (uint32_t k = 0; k < p->high_count; k++) {
		const lanes_t high = { p->highs[k], p->highs[k], p->highs[k], p->highs[k] };

		/* Two sums, which don't wait for each other. */
		for (size_t at = 0; at < BLOCK; at += 2 * sizeof(lanes_t)) {
			lanes_t one, other;

			memcpy(&one, bytes + at, sizeof(one));
			memcpy(&other, bytes + at + sizeof(one), sizeof(other));
			met[0] |= (lanes_t)(one == high);
			met[1] |= (lanes_t)(other == high);
		}
	}
	met[0] |= met[1];
	memcpy(words, &met[0], sizeof(words));
	return (words[0] | words[1]) >> 32 != 0;
}

void pointers_look(const struct pointers *p, const void *bytes, size_t size, uint64_t address,
		   void (*hear)(void *arg, uint64_t at, uint64_t value), void *arg)
{
	size_t skip = (size_t)(-address & 7);
	const uint8_t *at = bytes;

	if (!p->count || size < skip)
		return;
	at += skip;
	size -= skip;
	address += skip;
	for (; size >= BLOCK; at += BLOCK, size -= BLOCK, address += BLOCK)
		if (p->high_count > POINTER_HIGHS || block_meets(p, at))
			words_look(p, at, BLOCK, sizeof(uint64_t), address, hear, arg);
	words_look(p, at, size, sizeof(uint64_t), address, hear, arg);
}

void pointers_look_anywhere(const struct pointers *p, const void *bytes, size_t size, size_t step,
			    void (*hear)(void *arg, uint64_t at, uint64_t value), void *arg)
{
	if (p->count)
		words_look(p, bytes, size, step, 0, hear, arg);
}
