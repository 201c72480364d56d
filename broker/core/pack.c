/* SPDX-License-Identifier: Apache-2.0 */
/* LZ4 for bulk; see pack.h. */
#include "broker/core/pack.h"

#include <errno.h>
#include <lz4.h>
#include <stdlib.h>

#include "broker/lib/clock.h"

#define PACK_SIZE_MIN	 (16u << 10) /* less is on its way before the sample is */
#define PACK_SAMPLE	 (8u << 10)  /* from the middle: beginnings are often unlike the rest */
#define PACK_SKIP_MAX	 64u	     /* pieces; a sample of each of them would cost 1% of a lane's time */
#define PACK_SPEED_FIRST 500000000u  /* until it is measured */
#define PACK_GAIN	 9u	     /* of 10: what is saved must be worth another core's work at the other end */

void pack_fini(struct packer *packer)
{
	free(packer->packed);
	packer->packed = NULL;
}

/*
 * Compressing and sending what is left against sending all of it, one after the other in one thread:
 * 1 / speed + ratio / bandwidth < 0.9 / bandwidth.
 */
static bool pack_pays(const struct packer *packer, uint64_t bandwidth, uint32_t stored, uint32_t size)
{
	double speed = (double)(packer->speed ? packer->speed : PACK_SPEED_FIRST);

	return (double)bandwidth / speed + (double)stored / size < PACK_GAIN / 10.0;
}

static uint32_t pack_run(struct packer *packer, const void *bytes, uint32_t size)
{
	uint64_t start = clock_ns();
	int stored = LZ4_compress_default(bytes, (char *)packer->packed, (int)size, LZ4_COMPRESSBOUND(PACK_SIZE_MAX));
	uint64_t took = clock_ns() - start;

	/* A sample is too short to tell: making the table weighs in it. */
	if (size > PACK_SAMPLE && took) {
		uint64_t speed = size * NS_PER_S / took;

		packer->speed = packer->speed ? packer->speed - packer->speed / 8 + speed / 8 : speed;
	}
	return stored > 0 ? (uint32_t)stored : size;
}

static bool pack_disappointed(struct packer *packer)
{
	packer->skip = packer->skip_next;
	packer->skip_next = packer->skip_next ? 2 * packer->skip_next : 1;
	if (packer->skip_next > PACK_SKIP_MAX)
		packer->skip_next = PACK_SKIP_MAX;
	return false;
}

bool pack_try(struct packer *packer, const void *bytes, uint32_t size, uint64_t bandwidth, uint32_t *stored_out)
{
	uint32_t stored;

	/* Even if nothing of it were left it must pay. */
	if (size < PACK_SIZE_MIN || size > PACK_SIZE_MAX || !bandwidth || !pack_pays(packer, bandwidth, 0, size))
		return false;
	if (packer->skip) {
		packer->skip--;
		return false;
	}
	if (!packer->packed)
		packer->packed = malloc(LZ4_COMPRESSBOUND(PACK_SIZE_MAX));
	if (!packer->packed)
		return false;
	stored = pack_run(packer, (const uint8_t *)bytes + (size - PACK_SAMPLE) / 2, PACK_SAMPLE);
	if (!pack_pays(packer, bandwidth, stored, PACK_SAMPLE))
		return pack_disappointed(packer);
	stored = pack_run(packer, bytes, size);
	/* It has been paid for: any gain is one. */
	if (stored >= size)
		return pack_disappointed(packer);
	if (pack_pays(packer, bandwidth, stored, size))
		packer->skip_next = 0;
	else
		pack_disappointed(packer);
	packer->saved += size - stored;
	*stored_out = stored;
	return true;
}

int unpack(const void *packed, uint32_t stored, void *bytes, uint32_t size)
{
	return LZ4_decompress_safe(packed, bytes, (int)stored, (int)size) == (int)size ? 0 : -EPROTO;
}
