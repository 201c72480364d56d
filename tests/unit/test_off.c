// SPDX-License-Identifier: Apache-2.0
/* Words of GLEAM_OFF, and the line among settings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h wants those before it. */
#include <cmocka.h>

#include "broker/proto/off.h"

static void words_are_read(void **state)
{
	char unknown[OFF_UNKNOWN_SIZE];

	assert_int_equal(off_read("", unknown), 0);
	assert_string_equal(unknown, "");
	assert_int_equal(off_read("async", unknown), OFF_ASYNC);
	assert_int_equal(off_read("async,handles,grants,verdicts,snapshot,coalesce,spin,lz4", unknown), OFF_ALL);
	assert_string_equal(unknown, "");
	assert_int_equal(off_read("all", unknown), OFF_ALL);
	assert_int_equal(off_read(",, spin ,\nlz4", unknown), OFF_SPIN);
	assert_string_equal(unknown, "");
}

static void others_are_told(void **state)
{
	char unknown[OFF_UNKNOWN_SIZE];

	assert_int_equal(off_read("spin,fly,swim,lz4", unknown), OFF_SPIN | OFF_LZ4);
	/* Another way, and no technique of all ways. */
	assert_int_equal(off_read("direct", NULL), OFF_DIRECT);
	assert_int_equal(off_read("all", NULL) & OFF_DIRECT, 0);
	assert_string_equal(unknown, "fly");
	/* A part of a word, and more than a word, are none. */
	assert_int_equal(off_read("spi", unknown), 0);
	assert_string_equal(unknown, "spi");
	assert_int_equal(off_read("spinning", NULL), 0);
	assert_int_equal(off_read("a-word-that-is-longer-than-the-room-for-it,spin", unknown), OFF_SPIN);
	assert_string_equal(unknown, "a-word-that-is-longer-than-the-");
}

static void a_line_is_found(void **state)
{
	assert_int_equal(off_find(""), 0);
	assert_int_equal(off_find("GLEAM_SERVER=all\nCUDA_FORCE_JIT=1\n"), 0);
	assert_int_equal(off_find("GLEAM_SERVER=x\nGLEAM_OFF=grants,spin\nCUDA_FORCE_JIT=1"), OFF_GRANTS | OFF_SPIN);
	assert_int_equal(off_find("XGLEAM_OFF=all"), 0);
	assert_int_equal(off_find("GLEAM_OFF="), 0);
	assert_int_equal(off_find("GLEAM_TRACED=1\nGLEAM_OFF=spin\n"), OFF_SPIN | OFF_TRACED);
	assert_int_equal(off_find("GLEAM_OFF=spin\nGLEAM_TRACED=1"), OFF_SPIN | OFF_TRACED);
	assert_int_equal(off_find("GLEAM_TRACED=10\nGLEAM_TRACED="), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_are_read),
		cmocka_unit_test(others_are_told),
		cmocka_unit_test(a_line_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
