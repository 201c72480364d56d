// SPDX-License-Identifier: Apache-2.0
/*
 * Which GPUs of a node a client is given: one by default and the least taken, what its settings name, what its broker allows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "broker/lib/visible.h"
#include "broker/node/gpus.h"

#define GIB (1ull << 30)

static struct gpus_have have;
static struct gpus_choice choice;
static char why[256];

/* Four GPUs whose UUIDs begin with 00, 11, 22, 33; the PCI order is the other way round. */
static int setup(void **state)
{
	memset(&have, 0, sizeof(have));
	have.count = 4;
	for (uint32_t i = 0; i < 4; i++) {
		memset(have.gpus[i].uuid, (int)(i * 0x11), sizeof(have.gpus[i].uuid));
		have.gpus[i].pci = visible_pci(0, 9 - (int)i, 0);
		have.gpus[i].memory_free = REPORT_UNKNOWN;
	}
	return 0;
}

/* What was chosen, a digit a GPU in the worker's order; "-" for a refusal. */
static const char *choose(const char *only, const char *visible, const char *order, const char *count)
{
	const struct gpus_wish wish = { .only = only, .visible = visible, .order = order, .count = count };
	static char text[32];
	uint32_t mask = 0, at = 0;

	if (gpus_choose(&have, &wish, &choice, why, sizeof(why)))
		return "-";
	for (const char *uuid = choice.text; *uuid; uuid += strcspn(uuid, ","), uuid += *uuid == ',') {
		assert_true(strncmp(uuid, "GPU-", 4) == 0);
		mask |= 1u << (uuid[4] - '0');
		text[at++] = uuid[4];
	}
	text[at] = 0;
	assert_int_equal(choice.mask, mask);
	assert_int_equal(choice.count, at);
	return text;
}

static void one_by_default(void **state)
{
	assert_string_equal(choose(NULL, NULL, NULL, NULL), "0");
	assert_false(choice.open);
	have.gpus[0].clients = 1;
	assert_string_equal(choose(NULL, NULL, NULL, NULL), "1");
	have.gpus[1].clients = have.gpus[2].clients = have.gpus[3].clients = 1;
	have.gpus[0].clients = 2;
	for (uint32_t i = 0; i < 4; i++)
		have.gpus[i].memory_free = i * GIB;
	assert_string_equal(choose(NULL, NULL, NULL, NULL), "3");
}

static void several(void **state)
{
	assert_string_equal(choose(NULL, NULL, NULL, "all"), "0123");
	assert_string_equal(choose(NULL, NULL, NULL, "2"), "01");
	have.gpus[1].clients = 3;
	assert_string_equal(choose(NULL, NULL, NULL, "3"), "023");
	assert_string_equal(choose(NULL, NULL, "PCI_BUS_ID", "3"), "320");
	assert_string_equal(choose(NULL, NULL, NULL, "5"), "-");
	assert_non_null(strstr(why, "GLEAM_GPUS=5"));
	assert_string_equal(choose(NULL, NULL, NULL, "many"), "-");
}

static void what_the_program_names(void **state)
{
	have.gpus[1].clients = 9;
	assert_string_equal(choose(NULL, "1", NULL, NULL), "1");
	assert_string_equal(choose(NULL, "2,0", NULL, NULL), "20");
	assert_string_equal(choose(NULL, "0,1", "PCI_BUS_ID", NULL), "32");
	assert_string_equal(choose(NULL, "GPU-33,GPU-11", NULL, NULL), "31");
	assert_string_equal(choose(NULL, "1,2,3", NULL, "2"), "12");
	assert_false(choice.open);
	assert_string_equal(choose(NULL, "1", NULL, "2"), "-");
}

/* The driver's errors are the library's to give: it sees all that the program may have. */
static void wrong_settings_stay_open(void **state)
{
	assert_string_equal(choose(NULL, "7", NULL, NULL), "");
	assert_true(choice.open);
	assert_string_equal(choose(NULL, "0,0", NULL, NULL), "");
	assert_true(choice.open);
	assert_string_equal(choose("GPU-22222222-2222-2222-2222-222222222222", "1", NULL, NULL), "2");
	assert_true(choice.open);
}

static void what_the_broker_allows(void **state)
{
	const char *two = "GPU-11111111-1111-1111-1111-111111111111,GPU-33333333-3333-3333-3333-333333333333";

	assert_string_equal(choose(two, NULL, NULL, NULL), "13");
	assert_string_equal(choose(two, "1", NULL, NULL), "3");
	assert_string_equal(choose(two, NULL, NULL, "1"), "1");
	assert_string_equal(choose(two, NULL, NULL, "3"), "-");
	assert_string_equal(choose("GPU-77", NULL, NULL, NULL), "-");
	have.count = 1;
	assert_string_equal(choose("GPU-00", NULL, NULL, NULL), "0");
	assert_string_equal(choose("GPU-11", NULL, NULL, NULL), "-");
	/* Not known yet: the worker's driver sees to it. */
	have.count = 0;
	assert_int_equal(gpus_choose(&have, &(struct gpus_wish){ .only = "GPU-11" }, &choice, why, sizeof(why)), 0);
	assert_string_equal(choice.text, "GPU-11");
	assert_true(choice.open);
}

static void a_node_with_one_gpu_chooses_nothing(void **state)
{
	have.count = 1;
	assert_string_equal(choose(NULL, "0", NULL, "1"), "");
	assert_true(choice.open);
	have.count = 0;
	assert_string_equal(choose(NULL, NULL, NULL, NULL), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(one_by_default, setup),
		cmocka_unit_test_setup(several, setup),
		cmocka_unit_test_setup(what_the_program_names, setup),
		cmocka_unit_test_setup(wrong_settings_stay_open, setup),
		cmocka_unit_test_setup(what_the_broker_allows, setup),
		cmocka_unit_test_setup(a_node_with_one_gpu_chooses_nothing, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
