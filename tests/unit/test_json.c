/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of the control socket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

#include "broker/lib/json.h"

static void test_written(void **state)
{
	struct json json = { 0 };

	json_open(&json, NULL, '{');
	json_str(&json, "a", "x\"\\\n\x01\xc3\xa4\xff\xed\xa0\x80z");
	json_open(&json, "list", '[');
	json_u64(&json, NULL, UINT64_MAX);
	json_bool(&json, NULL, true);
	json_null(&json, NULL);
	json_open(&json, NULL, '{');
	json_close(&json, '}');
	json_close(&json, ']');
	json_fixed(&json, "f", 1.25, 1);
	json_close(&json, '}');
	assert_false(json.fault);
	assert_string_equal(json.text, "{\"a\":\"x\\\"\\\\\\u000a\\u0001\xc3\xa4????z\",\"list\":[18446744073709551615,true,null,{}],\"f\":1.2}");
	free(json.text);
}

static void test_read(void **state)
{
	struct json_field fields[JSON_FIELDS_MAX];
	unsigned count = 0;
	static const char *const bad[] = {
		"", "{", "[]", "{}x", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{\"a\":01}", "{\"a\":-1}", "{\"a\":1.5}",
		"{\"a\":18446744073709551616}", "{\"a\":\"x}", "{\"a\":{}}", "{\"a\":true}", "{\"a\":1 \"b\":2}",
		"{\"a\":1,\"a\":2}", "{a:1}", "{\"a\":\"\\u0041\"}", "{\"a\":\"\n\"}",
		"{\"name that is longer than any of ours\":1}",
		"{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1}",
	};

	assert_int_equal(json_read(" { \"cmd\" : \"a\\\"b\\\\\" ,\n\"pid\":18446744073709551615 } ", fields, &count), 0);
	assert_int_equal(count, 2);
	assert_string_equal(json_field(fields, count, "cmd")->text, "a\"b\\");
	assert_true(json_field(fields, count, "pid")->number == UINT64_MAX);
	assert_null(json_field(fields, count, "other"));
	assert_int_equal(json_read("{}", fields, &count), 0);
	assert_int_equal(count, 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (json_read(bad[i], fields, &count) == 0)
			fail_msg("taken: %s", bad[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_written), cmocka_unit_test(test_read) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
