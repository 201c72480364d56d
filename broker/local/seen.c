/* SPDX-License-Identifier: Apache-2.0 */
/* A table of fingerprints in which newer ones take older ones' places. Control thread; see seen.h. */
#include "broker/local/seen.h"

#include <assert.h>
#include <stdlib.h>

static_assert(SEEN_SLOTS == 1u << (32 - 18), "a slot is named by the upper bits");

bool seen_before(struct seen *seen, uint32_t print, uint32_t size)
{
	uint64_t value = (uint64_t)print << 32 | size;
	uint64_t *slot;

	if (!seen->slots)
		seen->slots = calloc(SEEN_SLOTS, sizeof(*seen->slots));
	if (!seen->slots)
		return false;
	slot = &seen->slots[(print * 0x9e3779b1u) >> 18];
	if (*slot == value)
		return true;
	*slot = value;
	return false;
}

void seen_clear(struct seen *seen)
{
	free(seen->slots);
	seen->slots = NULL;
}
