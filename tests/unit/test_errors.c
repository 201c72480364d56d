// SPDX-License-Identifier: Apache-2.0
/* Names and texts of results, for every number; what works before cuInit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gen/bodies.h"
#include "tests/unit/fake_client.h"

static void known_numbers(void **state)
{
	const char *text;

	assert_int_equal(FAKE_NONE(do_cuGetErrorName(call, CUDA_SUCCESS, &text)), 0);
	assert_string_equal(text, "CUDA_SUCCESS");
	assert_int_equal(FAKE_NONE(do_cuGetErrorString(call, CUDA_SUCCESS, &text)), 0);
	assert_string_equal(text, "no error");
	assert_int_equal(FAKE_NONE(do_cuGetErrorName(call, CUDA_ERROR_CONTEXT_IS_DESTROYED, &text)), 0);
	assert_string_equal(text, "CUDA_ERROR_CONTEXT_IS_DESTROYED");
	assert_int_equal(FAKE_NONE(do_cuGetErrorString(call, CUDA_ERROR_UNKNOWN, &text)), 0);
	assert_string_equal(text, "unknown error");
	assert_int_equal(FAKE_NONE(do_cuGetErrorString(call, CUDA_ERROR_INVALID_SOURCE, &text)), 0);
	assert_string_equal(text, "device kernel image is invalid");
}

/* CUDA 13.0 has 101 results; each has both a name and a text, and nothing else has. */
static void all_numbers(void **state)
{
	int known = 0;

	for (int i = -1; i <= 1100; i++) {
		const char *name = "", *text = "";
		CUresult named = FAKE_NONE(do_cuGetErrorName(call, (CUresult)i, &name));

		assert_int_equal(FAKE_NONE(do_cuGetErrorString(call, (CUresult)i, &text)), named);
		if (named) {
			assert_int_equal(named, CUDA_ERROR_INVALID_VALUE);
			assert_null(name);
			assert_null(text);
			continue;
		}
		known++;
		assert_int_equal(strncmp(name, "CUDA_", 5), 0);
		assert_true(strlen(text) > 3);
	}
	assert_int_equal(known, 101);
	assert_int_equal(FAKE_NONE(do_cuGetErrorName(call, CUDA_SUCCESS, NULL)), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(FAKE_NONE(do_cuGetErrorString(call, CUDA_SUCCESS, NULL)), CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_numbers),
		cmocka_unit_test(all_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
