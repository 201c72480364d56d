/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of the emulated LAN by name, and values as people write them. */
#include "tests/lab/lanem_conf.h"
#include "tests/lib/value.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void times(void **state)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} good[] = {
		{ "5", 5000000 },	  { "0.2", 200000 }, { "200us", 200000 }, { "1.5s", 1500000000 },
		{ "2min", 120000000000 }, { "7ns", 7 },	     { "0", 0 },	  { ".5ms", 500000 },
		{ "1e3", 1000000000 },
	};
	static const char *const bad[] = { "",	   " 5",  "-1",	 "+1",	 "5x",	 "ms",
					   "0x10", "nan", "inf", "5 ms", "1e999" };
	uint64_t ns = 77;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(value_time(good[i].text, &ns), 0);
		assert_int_equal(ns, good[i].ns);
	}
	ns = 77;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(value_time(bad[i], &ns), -EINVAL);
	assert_int_equal(value_time("2000min", &ns), -ERANGE);
	assert_int_equal(ns, 77);
}

static void rates_sizes_shares_counts(void **state)
{
	uint64_t number;
	double share;

	assert_int_equal(value_rate("1gbit", &number), 0);
	assert_int_equal(number, 1000000000);
	assert_int_equal(value_rate("100Mbit/s", &number), 0);
	assert_int_equal(number, 100000000);
	assert_int_equal(value_rate("9600", &number), 0);
	assert_int_equal(number, 9600);
	assert_int_equal(value_rate("unlimited", &number), 0);
	assert_int_equal(number, 0);
	assert_int_equal(value_rate("1gbyte", &number), -EINVAL);
	assert_int_equal(value_rate("5000g", &number), -ERANGE);
	assert_int_equal(value_rate("11111111111111111111111111111111111111111", &number), -EINVAL);
	assert_int_equal(value_size("64k", &number), 0);
	assert_int_equal(number, 65536);
	assert_int_equal(value_size("1500", &number), 0);
	assert_int_equal(number, 1500);
	assert_int_equal(value_size("3t", &number), -EINVAL);
	assert_int_equal(value_share("1%", &share), 0);
	assert_true(share > 0.0099 && share < 0.0101);
	assert_int_equal(value_share("1", &share), 0);
	assert_int_equal(value_share("1.01", &share), -ERANGE);
	assert_int_equal(value_share("101%", &share), -ERANGE);
	assert_int_equal(value_count("12", 12, &number), 0);
	assert_int_equal(value_count("13", 12, &number), -ERANGE);
	assert_int_equal(value_count("99999999999999999999999", UINT64_MAX, &number), -ERANGE);
	assert_int_equal(value_count("-1", 12, &number), -EINVAL);
	assert_int_equal(value_count("1k", 12, &number), -EINVAL);
}

static void settings_reach_the_directions_named(void **state)
{
	struct lane_conf conf[2] = { 0 };

	assert_int_equal(conf_set(conf, "rtt", "5"), 0);
	assert_int_equal(conf[0].delay_ns, 2500000);
	assert_int_equal(conf[1].delay_ns, 2500000);
	assert_int_equal(conf_set(conf, "rate-ab", "1gbit"), 0);
	assert_int_equal(conf[0].rate_bps, 1000000000);
	assert_int_equal(conf[1].rate_bps, 0);
	assert_int_equal(conf_set(conf, "loss-ba", "1%"), 0);
	assert_true(conf[0].loss == 0 && conf[1].loss > 0);
	assert_true(conf_needs_frames(conf));
	assert_int_equal(conf_set(conf, "queue", "64k"), 0);
	assert_int_equal(conf_set(conf, "jitter", "1"), 0);
	assert_int_equal(conf_set(conf, "hold-ba", "3"), 0);
	assert_int_equal(conf[1].hold_ns, 3000000);
	assert_int_equal(conf_set(conf, "overhead", "20"), 0);
	assert_int_equal(conf[1].overhead, 20);
	assert_int_equal(conf_set(conf, "reorder", "0.5"), 0);
	assert_int_equal(conf_set(conf, "delay", "4"), 0);
	assert_int_equal(conf[0].delay_ns, 4000000);
}

static void wrong_settings_change_nothing(void **state)
{
	struct lane_conf conf[2] = { 0 }, before[2] = { 0 };

	assert_int_equal(conf_set(conf, "rat", "1"), -ENOENT);
	assert_int_equal(conf_set(conf, "rate-", "1"), -ENOENT);
	assert_int_equal(conf_set(conf, "rate-abc", "1"), -ENOENT);
	assert_int_equal(conf_set(conf, "", "1"), -ENOENT);
	assert_int_equal(conf_set(conf, "rate", "fast"), -EINVAL);
	assert_int_equal(conf_set(conf, "loss", "2"), -ERANGE);
	assert_int_equal(conf_set(conf, "overhead", "5000"), -ERANGE);
	assert_memory_equal(conf, before, sizeof(conf));
	assert_int_equal(conf_directions("cut", "cut"), 3);
	assert_int_equal(conf_directions("cut-ab", "cut"), 1);
	assert_int_equal(conf_directions("cut-ba", "cut"), 2);
	assert_int_equal(conf_directions("cuts", "cut"), 0);
	assert_int_equal(conf_directions("cu", "cut"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(times),
		cmocka_unit_test(rates_sizes_shares_counts),
		cmocka_unit_test(settings_reach_the_directions_named),
		cmocka_unit_test(wrong_settings_change_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
