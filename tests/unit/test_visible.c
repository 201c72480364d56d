// SPDX-License-Identifier: Apache-2.0
/*
 * CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER in every form seen in the field, against what driver 580.159 did with them on
 * two GPUs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "broker/lib/visible.h"

#define U0 "GPU-1f509920-0fc8-67dd-93e3-e0bd9ee6649a"
#define U1 "GPU-9698348a-871f-aea7-c7fe-6c8d1389f4cf"

static struct visible_gpus gpus;

static int setup(void **state)
{
	static const uint8_t uuids[2][16] = {
		{ 0x1f, 0x50, 0x99, 0x20, 0x0f, 0xc8, 0x67, 0xdd, 0x93, 0xe3, 0xe0, 0xbd, 0x9e, 0xe6, 0x64, 0x9a },
		{ 0x96, 0x98, 0x34, 0x8a, 0x87, 0x1f, 0xae, 0xa7, 0xc7, 0xfe, 0x6c, 0x8d, 0x13, 0x89, 0xf4, 0xcf },
	};

	gpus.count = 2;
	for (int i = 0; i < 2; i++) {
		memcpy(gpus.gpus[i].uuid, uuids[i], 16);
		memcpy(gpus.gpus[i].uuid_v1, uuids[i], 16);
		gpus.gpus[i].pci = visible_pci(0, 6 + i, 0);
	}
	return 0;
}

/* @expected: the ordinals in order, or "" with the error. */
static void check(const char *visible, CUresult result, const char *expected)
{
	uint32_t ordinals[VISIBLE_MAX], count = 77;
	char text[64] = "";
	CUresult got = visible_select(&gpus, visible, NULL, ordinals, &count);

	if (!got)
		for (uint32_t i = 0; i < count; i++)
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "%u", ordinals[i]);
	if (got != result || strcmp(text, expected) != 0)
		fail_msg("'%s': %d '%s', expected %d '%s'", visible ? visible : "(not set)", got, text, result, expected);
}

static void numbers(void **state)
{
	check(NULL, 0, "01");
	check("0,1", 0, "01");
	check("1,0", 0, "10");
	check("1", 0, "1");
	check("", CUDA_ERROR_NO_DEVICE, "");
	check("-1", CUDA_ERROR_NO_DEVICE, "");
	check("0,0", CUDA_ERROR_INVALID_DEVICE, "");
	check("1,1,0", CUDA_ERROR_INVALID_DEVICE, "");
	check("0,1,0", CUDA_ERROR_INVALID_DEVICE, "");
	check("7", CUDA_ERROR_NO_DEVICE, "");
	check("0,-1,1", 0, "0");
	check("0,7,1", 0, "0");
	check("0,1,7", 0, "01");
	check("1,-1", 0, "1");
}

static void odd_numbers(void **state)
{
	check(" 0", 0, "0");
	check("0 ", 0, "0");
	check(" 0, 1", 0, "01");
	check("0 ,1", 0, "01");
	check("1\t,0", 0, "10");
	check("\t1", 0, "1");
	check("1\n", 0, "1");
	check("0,,1", 0, "0");
	check(",0", CUDA_ERROR_NO_DEVICE, "");
	check("0,", 0, "0");
	check("0;1", 0, "0");
	check("0 1", 0, "0");
	check("00", 0, "0");
	check("01", 0, "1");
	check("+1", 0, "1");
	check("-0", 0, "0");
	check("0x1", 0, "0");
	check("1abc", 0, "1");
	check("1.5", 0, "1");
	check("99999999999", CUDA_ERROR_NO_DEVICE, "");
	check("4294967296", 0, "0");
}

static void words(void **state)
{
	check("junk", CUDA_ERROR_NO_DEVICE, "");
	check("0,junk,1", 0, "0");
	check("NoDevFiles", CUDA_ERROR_NO_DEVICE, "");
	check("none", CUDA_ERROR_NO_DEVICE, "");
	check("void", CUDA_ERROR_NO_DEVICE, "");
	check("all", CUDA_ERROR_NO_DEVICE, "");
}

static void uuids(void **state)
{
	check(U1, 0, "1");
	check(U1 "," U0, 0, "10");
	check("GPU-9698", 0, "1");
	check("GPU-9", 0, "1");
	check("GPU-", CUDA_ERROR_NO_DEVICE, "");
	check("GPU", CUDA_ERROR_NO_DEVICE, "");
	check("G", CUDA_ERROR_NO_DEVICE, "");
	check("GPU-9698348A-871F-AEA7-C7FE-6C8D1389F4CF", 0, "1");
	check("gpu-9698348a-871f-aea7-c7fe-6c8d1389f4cf", CUDA_ERROR_NO_DEVICE, "");
	check("9698348a-871f-aea7-c7fe-6c8d1389f4cf", CUDA_ERROR_NO_DEVICE, "");
	check("GPU-9698,GPU-9698", CUDA_ERROR_INVALID_DEVICE, "");
	check(U1 ",0", 0, "1");
	check("0," U1, 0, "0");
	check("1," U1, 0, "1");
	check(U0 ",junk," U1, 0, "0");
	check(U1 "x", 0, "1");
	check(U1 " ", 0, "1");
	check(" " U1, CUDA_ERROR_NO_DEVICE, "");
	check(U0 ", " U1, 0, "0");
	check(U1 ",GPU-00000000", 0, "1");
	check("MIG-9698348a-871f-aea7-c7fe-6c8d1389f4cf", 0, "1");
	check("MIG-GPU-9698348a-871f-aea7-c7fe-6c8d1389f4cf/1/0", CUDA_ERROR_NO_DEVICE, "");
	check("0,MIG-x", 0, "0");
}

static void ambiguous_uuid(void **state)
{
	gpus.gpus[1].uuid[0] = gpus.gpus[1].uuid_v1[0] = 0x1f;
	check("GPU-1f", CUDA_ERROR_NO_DEVICE, "");
	check("GPU-1f9", 0, "1");
	check("GPU-1f5", 0, "0");
	setup(state);
}

static void order(void **state)
{
	uint32_t ordinals[VISIBLE_MAX], count;

	gpus.gpus[0].pci = visible_pci(0, 9, 0);
	assert_int_equal(visible_select(&gpus, NULL, "PCI_BUS_ID", ordinals, &count), 0);
	assert_int_equal(count, 2);
	assert_int_equal(ordinals[0], 1);
	assert_int_equal(ordinals[1], 0);
	assert_int_equal(visible_select(&gpus, "0", "PCI_BUS_ID", ordinals, &count), 0);
	assert_int_equal(ordinals[0], 1);
	assert_int_equal(visible_select(&gpus, "0", "FASTEST_FIRST", ordinals, &count), 0);
	assert_int_equal(ordinals[0], 0);
	/* UUIDs don't care. */
	assert_int_equal(visible_select(&gpus, U0, "PCI_BUS_ID", ordinals, &count), 0);
	assert_int_equal(ordinals[0], 0);
	assert_int_equal(visible_select(&gpus, NULL, "x", ordinals, &count), CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(visible_select(&gpus, NULL, "", ordinals, &count), CUDA_ERROR_INVALID_DEVICE);
	setup(state);
}

static void no_devices(void **state)
{
	gpus.count = 0;
	check(NULL, CUDA_ERROR_NO_DEVICE, "");
	check("0", CUDA_ERROR_NO_DEVICE, "");
	gpus.count = 2;
}

static void counts(void **state)
{
	uint32_t count = 0;

	assert_true(visible_count("1", &count) && count == 1);
	assert_true(visible_count("16", &count) && count == 16);
	assert_true(visible_count("all", &count) && count == UINT32_MAX);
	for (const char *const *wrong = (const char *const[]){ "", "0", "17", "-1", "+1", " 1", "1 ", "2x", "ALL", "0x1", NULL };
	     *wrong; wrong++)
		if (visible_count(*wrong, &count))
			fail_msg("GLEAM_GPUS=%s was taken for %u", *wrong, count);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers),	  cmocka_unit_test(odd_numbers), cmocka_unit_test(words),
		cmocka_unit_test(uuids),	  cmocka_unit_test(ambiguous_uuid), cmocka_unit_test(order),
		cmocka_unit_test(no_devices),	  cmocka_unit_test(counts),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
