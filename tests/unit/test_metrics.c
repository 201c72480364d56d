// SPDX-License-Identifier: Apache-2.0
/* /gleam/metrics from a state that this test makes up; that it keeps to the format is tests/e2e/metrics-are-openmetrics.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/local/metrics.h"

static char *text_of(const struct state *state)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	metrics_put(out, state);
	assert_int_equal(fclose(out), 0);
	assert_int_equal(strlen(text), size);
	return text;
}

static unsigned count_of(const char *text, const char *words)
{
	unsigned count = 0;

	for (const char *at = text; (at = strstr(at, words)); at++)
		count++;
	return count;
}

static void has(const char *text, const char *line)
{
	if (!strstr(text, line))
		fail_msg("no %s in %s", line, text);
}

static void test_nothing_there(void **unused)
{
	struct state state = { .version = "1.2", .protocol = "3.abc", .age_s = 1.5 };
	char *text = text_of(&state);

	has(text, "gleam_build_info{version=\"1.2\",protocol=\"3.abc\"} 1\n");
	has(text, "gleam_uptime_seconds 1.500\n");
	has(text, "gleam_clients 0\n");
	has(text, "gleam_calls_total 0\n");
	assert_null(strstr(text, "gleam_node"));
	assert_null(strstr(text, "server=\""));
	assert_string_equal(text + strlen(text) - 6, "# EOF\n");
	free(text);
}

static void test_everything_there(void **unused)
{
	struct state_client clients[2] = { { .state = "live", .memory = 100, .inflight = 7 }, { .state = "dead", .memory = 20 } };
	struct state_server servers[2] = {
		{ .name = "lab", .state = "ready", .linked = true, .reported = true, .load = 0.25,
		  .cached = true, .cache = { .bytes = 4096, .entries = 2, .hits = 7, .misses = 3, .saved = 8192 },
		  .link = { .rtt_ns = 250000, .lanes = 2, .sent = 5000, .received = 6000, .bandwidth = 117500000 },
		  .report = { .sessions = 3, .sessions_max = 256, .warm = 1, .gpu_count = 2 } },
		{ .name = "attic", .state = "on holiday" },
	};
	struct state state = { .node = "127.0.0.1:1", .node_report = { .sessions = 4, .busy_milli = 1500 }, .sessions = 9,
			       .totals = { .calls = 1000, .trips = 10, .bytes = 12345, .waited_ns = 1500000000 },
			       .verdicts = { .bytes = 4711, .entries = 3, .hits = 50, .misses = 4, .evictions = 1 },
			       .servers = servers, .server_count = 2, .clients = clients, .client_count = 2 };
	char *text;

	strcpy(servers[0].report.gpus[0].name, "A \"quoted\" \\ GPU\n\xff\xc3\xa9");
	servers[0].report.gpus[0].memory = 4ull << 30;
	servers[0].report.gpus[0].memory_free = 3ull << 30;
	servers[0].report.gpus[0].utilisation = 97;
	servers[0].report.gpus[1].memory_free = REPORT_UNKNOWN;
	servers[0].report.gpus[1].utilisation = REPORT_UNKNOWN32;
	text = text_of(&state);
	has(text, "gleam_server_load{server=\"lab\"} 0.250\n");
	has(text, "gleam_link_rtt_seconds{server=\"lab\"} 0.000250000\n");
	has(text, "gleam_link_sent_bytes_total{server=\"lab\"} 5000\n");
	has(text, "gleam_server_state{server=\"lab\",gleam_server_state=\"ready\"} 1\n");
	has(text, "gleam_server_state{server=\"lab\",gleam_server_state=\"idle\"} 0\n");
	has(text, "gleam_server_state{server=\"attic\",gleam_server_state=\"on holiday\"} 1\n");
	assert_int_equal(count_of(text, "gleam_server_state{server=\"lab\""), 5);
	assert_int_equal(count_of(text, "gleam_server_state{server=\"attic\""), 6);
	assert_int_equal(count_of(text, "gleam_server_load{"), 1);
	has(text, "gleam_cache_bytes{server=\"lab\"} 4096\n");
	has(text, "gleam_cache_hits_total{server=\"lab\"} 7\n");
	has(text, "gleam_cache_saved_bytes_total{server=\"lab\"} 8192\n");
	assert_int_equal(count_of(text, "gleam_cache_bytes{"), 1);
	has(text, "gleam_link_lanes{server=\"attic\"} 0\n");
	has(text, "gleam_verdicts_bytes 4711\n");
	has(text, "gleam_verdicts_images 3\n");
	has(text, "gleam_verdicts_hits_total 50\n");
	has(text, "gleam_verdicts_misses_total 4\n");
	has(text, "gleam_verdicts_evictions_total 1\n");
	/* What comes from elsewhere can neither end a line nor a label, and stays UTF-8. */
	has(text, "gleam_gpu_info{server=\"lab\",gpu=\"0\",name=\"A \\\"quoted\\\" \\\\ GPU??\xc3\xa9\"} 1\n");
	has(text, "gleam_gpu_memory_free_bytes{server=\"lab\",gpu=\"0\"} 3221225472\n");
	has(text, "gleam_gpu_utilisation_ratio{server=\"lab\",gpu=\"0\"} 0.97\n");
	/* What nobody has measured is not told. */
	assert_int_equal(count_of(text, "gleam_gpu_memory_free_bytes{"), 1);
	assert_int_equal(count_of(text, "gleam_gpu_utilisation_ratio{"), 1);
	has(text, "gleam_clients 1\n");
	has(text, "gleam_clients_memory_bytes 120\n");
	has(text, "gleam_sessions_total 9\n");
	has(text, "gleam_waited_seconds_total 1.500000\n");
	has(text, "gleam_node_busy 1.500\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_nothing_there), cmocka_unit_test(test_everything_there) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
