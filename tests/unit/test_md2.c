// SPDX-License-Identifier: Apache-2.0
/* MD2 against RFC 1319's vectors, in one piece and byte by byte; HMAC-MD2 and the integrity digest against known ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "libgleamcuda/integrity.h"
#include "libgleamcuda/md2.h"

static void hex_equal(const uint8_t digest[16], const char *expected)
{
	char text[33];

	for (int i = 0; i < 16; i++)
		snprintf(text + 2 * i, 3, "%02x", digest[i]);
	assert_string_equal(text, expected);
}

static const struct {
	const char *text, *digest;
} vectors[] = {
	{ "", "8350e5a3e24c153df2275c9f80692773" },
	{ "a", "32ec01ec4a6dac72c0ab96fb34c0b5d1" },
	{ "abc", "da853b0d3f88d99b30283a69e6ded6bb" },
	{ "message digest", "ab4f496bfb2a530b219ff33031fe06b0" },
	{ "abcdefghijklmnopqrstuvwxyz", "4e8ddff3650292ab5a4108c3aa47940b" },
	{ "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "da33def2a42df13975352846c30338cd" },
	{ "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
	  "d5976f79d83d3a0dc9806c3c66f3efd8" },
};

static void whole_messages(void **state)
{
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		struct md2 md2;
		uint8_t digest[16];

		md2_start(&md2);
		md2_add(&md2, vectors[i].text, strlen(vectors[i].text));
		md2_end(&md2, digest);
		hex_equal(digest, vectors[i].digest);
	}
}

static void byte_by_byte(void **state)
{
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		struct md2 md2;
		uint8_t digest[16];

		md2_start(&md2);
		for (const char *at = vectors[i].text; *at; at++)
			md2_add(&md2, at, 1);
		md2_end(&md2, digest);
		hex_equal(digest, vectors[i].digest);
	}
}

static struct integrity what = {
	.driver_version = 13000,
	.version = 13002,
	.process = 1234,
	.thread = 0x1000,
	.runtime_table = 0x100000,
	.integrity_table = 0x200000,
	.integrity_slot = 0x300000,
	.time = 1700000000,
};
static struct integrity_device device = {
	.uuid = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
	.bus = 3,
};

static void digest_of_one_device(void **state)
{
	uint8_t digest[16];

	integrity_digest(&what, &device, 1, digest);
	hex_equal(digest, "79b4fa259299574669f2074c22b17af0");
}

static void digest_sees_every_field(void **state)
{
	uint8_t before[16], after[16];
	uint8_t *fields[] = { (uint8_t *)&what.driver_version, (uint8_t *)&what.process,	(uint8_t *)&what.thread,
			      (uint8_t *)&what.runtime_table,  (uint8_t *)&what.integrity_table, (uint8_t *)&what.integrity_slot,
			      (uint8_t *)&what.time,	       device.uuid,			(uint8_t *)&device.domain,
			      (uint8_t *)&device.bus,	       (uint8_t *)&device.device };

	integrity_digest(&what, &device, 1, before);
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		*fields[i] ^= 1;
		integrity_digest(&what, &device, 1, after);
		assert_memory_not_equal(before, after, 16);
		*fields[i] ^= 1;
	}
	integrity_digest(&what, &device, 0, after);
	assert_memory_not_equal(before, after, 16);
}

static void digest_of_old_versions(void **state)
{
	uint8_t digest[16];

	what.version = 13000;
	integrity_digest(&what, &device, 1, digest);
	hex_equal(digest, "5c67cb031c184133e8d14c1faa83d38e");
	what.version = 13001;
	integrity_digest(&what, &device, 1, digest);
	hex_equal(digest, "5c67cb031c184118e8d14c1faa83d38e");
	what.version = 13002;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_messages),	   cmocka_unit_test(byte_by_byte),
		cmocka_unit_test(digest_of_one_device),	   cmocka_unit_test(digest_sees_every_field),
		cmocka_unit_test(digest_of_old_versions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
