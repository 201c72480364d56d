/* SPDX-License-Identifier: Apache-2.0 */
/* What the pings of a link say of it; see pings.h. */
#include "broker/core/pings.h"

#include "broker/lib/clock.h"

uint64_t pings_least(const struct pings *pings)
{
	uint64_t least = pings->small_count ? pings->small[0] : 0;

	for (unsigned i = 1; i < PINGS_KEPT && i < pings->small_count; i++)
		if (pings->small[i] < least)
			least = pings->small[i];
	return least;
}

bool pings_rate(const struct pings *pings, uint64_t *rate_out)
{
	uint64_t small = pings_least(pings);
	uint64_t most = 0, noise = 0, least = UINT64_MAX;
	unsigned count = pings->small_count < PINGS_KEPT ? (unsigned)pings->small_count : PINGS_KEPT;

	for (unsigned i = 0; i < count; i++)
		noise += (pings->small[i] - small) / count;
	for (unsigned i = 0; i < PINGS_KEPT && i < pings->padded_count; i++) {
		uint64_t took = pings->padded[i] > small ? pings->padded[i] - small : 1;
		uint64_t rate = pings->padding[i] * NS_PER_S / took;

		if (rate > most)
			most = rate;
		if (took < least)
			least = took;
	}
	*rate_out = most < PINGS_RATE_MAX ? most : 0;
	return pings->padded_count >= PINGS_KEPT && (!*rate_out || least > 3 * noise);
}

void pings_small(struct pings *pings, uint64_t took)
{
	uint64_t mean = pings->rtt_mean_ns;
	uint64_t off = took > mean ? took - mean : mean - took;

	pings->small[pings->small_count++ % PINGS_KEPT] = took;
	pings->rtt_ns = took;
	if (pings->rtt_min_ns == 0 || took < pings->rtt_min_ns)
		pings->rtt_min_ns = took;
	if (mean == 0) {
		pings->rtt_mean_ns = took;
		return;
	}
	pings->jitter_ns = pings->jitter_ns - pings->jitter_ns / 4 + off / 4;
	/* A jump that stays is believed at once, not after eight. */
	pings->rtt_mean_ns = off > 4 * pings->jitter_ns && mean < took / 2 ? (mean + took) / 2 : mean - mean / 8 + took / 8;
}

void pings_padded(struct pings *pings, uint64_t took, uint32_t padding)
{
	pings->padding[pings->padded_count % PINGS_KEPT] = padding;
	pings->padded[pings->padded_count++ % PINGS_KEPT] = took;
}
