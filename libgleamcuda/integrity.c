// SPDX-License-Identifier: Apache-2.0
/*
 * The integrity digest: constants for the two oldest kinds, HMAC-MD2 from the third on. Pure; any thread.
 */
#include "libgleamcuda/integrity.h"

#include <assert.h>
#include <string.h>

#include "libgleamcuda/md2.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the message's fields are little-endian");

static const uint8_t key[] = {
	0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52, 0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f,
};

/* By the last digit of the version. */
static const uint64_t constants[2][2] = {
	{ 0x3341181c03cb675cull, 0x8ed383aa1f4cd1e8ull },
	{ 0x1841181c03cb675cull, 0x8ed383aa1f4cd1e8ull },
};

/* Each field as it lies in memory, without the padding between them. */
#define ADD(md2, field) md2_add((md2), &(field), sizeof(field))

void integrity_digest(const struct integrity *what, const struct integrity_device *devices, uint32_t count,
		      uint8_t digest_out[INTEGRITY_SIZE])
{
	uint32_t kind = what->version % 10;
	struct md2 md2;

	static_assert(INTEGRITY_SIZE == MD2_SIZE, "the digest is one of MD2");
	static_assert(sizeof(constants[0]) == INTEGRITY_SIZE, "a constant is a digest");
	if (kind < 2) {
		memcpy(digest_out, constants[kind], INTEGRITY_SIZE);
		return;
	}
	hmac_md2_start(&md2, key, sizeof(key));
	ADD(&md2, what->driver_version);
	ADD(&md2, what->version);
	ADD(&md2, what->process);
	ADD(&md2, what->thread);
	ADD(&md2, what->runtime_table);
	ADD(&md2, what->integrity_table);
	ADD(&md2, what->integrity_slot);
	ADD(&md2, what->time);
	for (uint32_t i = 0; i < count; i++) {
		ADD(&md2, devices[i].uuid);
		ADD(&md2, devices[i].domain);
		ADD(&md2, devices[i].bus);
		ADD(&md2, devices[i].device);
	}
	hmac_md2_end(&md2, key, sizeof(key), digest_out);
}
