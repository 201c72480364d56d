// SPDX-License-Identifier: Apache-2.0
/* Rows of gleamctl top, from answers that this test makes up: rates, order, filter, and names that want to be commands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/gleamctl/top.h"

#define CLIENT "{\"pid\": %d, \"uid\": 4294967294, \"session\": %d, \"server\": \"%s\", \"state\": \"live\", \"program\": \"%s\", " \
	       "\"calls\": %d, \"round_trips\": %d, \"waited_s\": %.2f, \"bytes\": %d, \"memory\": %d, \"age_s\": %d}"

static json_t *answer_of(const char *servers, const char *clients)
{
	char text[4096];
	json_t *answer;

	snprintf(text, sizeof(text), "{\"version\": \"1.2\", \"pid\": 7, \"age_s\": 90061, \"hidden\": 2, \"servers\": [%s], \"clients\": [%s]}",
		 servers, clients);
	answer = json_loads(text, 0, NULL);
	assert_non_null(answer);
	return answer;
}

static void take(struct top *top, const char *servers, const char *clients, double now_s)
{
	json_t *answer = answer_of(servers, clients);

	top_take(top, answer, now_s);
	json_decref(answer);
	assert_true(top_make(top));
}

static void has(const char *line, const char *words)
{
	if (!strstr(line, words))
		fail_msg("no `%s` in `%s`", words, line);
}

static const char *row(const struct top *top, enum top_table table, size_t i)
{
	assert_true(i < top->count[table]);
	return top->rows[table][i].text;
}

static void test_rates(void **state)
{
	char clients[1024];
	struct top top;

	top_init(&top);
	snprintf(clients, sizeof(clients), CLIENT, 100, 1, "lab", "/bin/a", 1000, 10, 1.0, 0, 1 << 20, 5);
	take(&top, "", clients, 50);
	/* The first look knows no rates. */
	has(row(&top, TOP_CLIENTS, 0), " - ");
	has(top.head[0], "gleamd 1.2  pid 7  up   1d01h");
	has(top.head[0], "(2 of other users are not shown)");
	snprintf(clients, sizeof(clients), CLIENT, 100, 1, "lab", "/bin/a", 5000, 30, 2.0, 4 << 20, 1 << 20, 9);
	take(&top, "", clients, 54);
	has(row(&top, TOP_CLIENTS, 0), "    1000 "); /* calls a second */
	has(row(&top, TOP_CLIENTS, 0), "   25.0 "); /* of the time, waited */
	has(row(&top, TOP_CLIENTS, 0), "     1.0 "); /* MiB a second */
	has(top.head[1], "calls/s 1000   round trips/s 5   MiB/s 1.0   device memory 1 MiB");
	/* Made again without a new answer it is the same. */
	assert_true(top_make(&top));
	has(row(&top, TOP_CLIENTS, 0), "    1000 ");
	/* Another session of the same number is no continuation. */
	snprintf(clients, sizeof(clients), CLIENT, 100, 2, "lab", "/bin/a", 10, 0, 0.0, 0, 0, 1);
	take(&top, "", clients, 56);
	has(top.head[1], "calls/s 0 ");
	top_fini(&top);
}

static void test_order_and_filter(void **state)
{
	char clients[2048];
	struct top top;

	top_init(&top);
	for (int look = 0; look < 2; look++) {
		snprintf(clients, sizeof(clients), CLIENT ", " CLIENT ", " CLIENT, 300, 1, "lab", "/bin/slow", 10 * look, 0, 0.0, 0, 3, 1, 200, 2,
			 "attic", "/bin/fast", 1000 * look, 0, 0.0, 0, 1, 2, 100, 3, "lab", "/bin/idle", 0, 0, 0.0, 0, 2, 3);
		take(&top, "", clients, 10 + look);
	}
	assert_int_equal(top.rows[TOP_CLIENTS][0].pid, 200);
	assert_int_equal(top.rows[TOP_CLIENTS][1].pid, 300);
	assert_int_equal(top.rows[TOP_CLIENTS][2].pid, 100);
	top.reverse = true;
	assert_true(top_make(&top));
	assert_int_equal(top.rows[TOP_CLIENTS][0].pid, 100);
	has(top.head[2], "sorted by calls, reversed");
	top.reverse = false;
	for (unsigned sort = 0; sort < top_sort_count(); sort++) {
		top.sort = sort;
		assert_true(top_make(&top));
		assert_int_equal(top.count[TOP_CLIENTS], 3);
		has(top.head[2], top_sort_name(sort));
		if (strcmp(top_sort_name(sort), "memory") == 0)
			assert_int_equal(top.rows[TOP_CLIENTS][0].pid, 300);
		if (strcmp(top_sort_name(sort), "pid") == 0)
			assert_int_equal(top.rows[TOP_CLIENTS][0].pid, 100);
		if (strcmp(top_sort_name(sort), "server") == 0)
			assert_int_equal(top.rows[TOP_CLIENTS][0].pid, 200);
	}
	strcpy(top.filter, "LAB");
	assert_true(top_make(&top));
	assert_int_equal(top.count[TOP_CLIENTS], 2);
	assert_int_equal(top.filtered, 1);
	has(top.head[2], "only `LAB` (1 hidden)");
	strcpy(top.filter, "200");
	assert_true(top_make(&top));
	assert_int_equal(top.count[TOP_CLIENTS], 1);
	assert_string_equal(top.rows[TOP_CLIENTS][0].server, "attic");
	top_fini(&top);
}

static void test_servers(void **state)
{
	struct top top;

	top_init(&top);
	take(&top,
	     "{\"name\": \"lab\", \"state\": \"ready\", \"load\": 0.5, \"rtt_us\": 250, \"bandwidth\": 125000000, \"sessions\": 3, "
	     "\"cache\": {\"bytes\": 1073741824, \"hits\": 30, \"misses\": 10, \"saved\": 2147483648}, \"gpus\": ["
	     "{\"name\": \"First GPU\", \"memory\": 4294967296, \"memory_free\": 1073741824, \"utilisation\": 97},"
	     "{\"name\": \"Second\\nGPU\\u001b[2J\", \"memory\": 1048576, \"memory_free\": null, \"utilisation\": null}]},"
	     "{\"name\": \"attic\", \"state\": \"unreachable\", \"why\": \"Connection refused\", \"clients\": 0},"
	     "{\"name\": \"shed\", \"state\": \"ready\", \"drained\": true, \"gpus\": []}, 7, {}",
	     "{\"pid\": \"x\", \"program\": 3}, 5", 1);
	has(top.head[1], "cache 1024 MiB, 75% hits, 2048 MiB saved");
	assert_int_equal(top.count[TOP_SERVERS], 6);
	has(row(&top, TOP_SERVERS, 0), "lab ");
	has(row(&top, TOP_SERVERS, 0), "  0.50    0.250     1000       3  0   First GPU");
	has(row(&top, TOP_SERVERS, 0), "97     3072/    4096");
	/* A second GPU has a line of its own, which belongs to the same server; nothing in it is a command for the terminal. */
	has(row(&top, TOP_SERVERS, 1), " 1   Second?GPU?[2J");
	assert_string_equal(top.rows[TOP_SERVERS][1].server, "lab");
	assert_null(strpbrk(row(&top, TOP_SERVERS, 1), "\n\033"));
	has(row(&top, TOP_SERVERS, 2), "Connection refused");
	assert_true(top.rows[TOP_SERVERS][2].marked);
	has(row(&top, TOP_SERVERS, 3), "drained");
	assert_int_equal(top.count[TOP_CLIENTS], 2);
	top_fini(&top);
}

static void test_many(void **state)
{
	json_t *answer = json_object(), *clients = json_array();
	char text[512];
	struct top top;

	top_init(&top);
	for (int i = 0; i < 1000; i++) {
		snprintf(text, sizeof(text), CLIENT, i + 1, i + 1, "lab", "/bin/x", i, 0, 0.0, 0, 0, i);
		json_array_append_new(clients, json_loads(text, 0, NULL));
	}
	json_object_set_new(answer, "clients", clients);
	for (int look = 0; look < 3; look++) {
		top_take(&top, answer, look);
		assert_true(top_make(&top));
		assert_int_equal(top.count[TOP_CLIENTS], 1000);
	}
	json_decref(answer);
	top_fini(&top);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_rates), cmocka_unit_test(test_order_and_filter),
					    cmocka_unit_test(test_servers), cmocka_unit_test(test_many) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
