/* SPDX-License-Identifier: Apache-2.0 */
/* Settings, keys and addresses: what is right is taken, what is wrong is told with its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/core/address.h"
#include "broker/lib/conf.h"
#include "broker/lib/key.h"
#include "broker/proto/wire.h"
#include "tests/lib/fdcheck.h"

static void test_all_settings(void **state)
{
	static struct conf conf;
	char why[500] = "", path[CONF_PATH_SIZE];

	conf_init(&conf);
	assert_int_equal(conf_parse(&conf, "f",
				    "# a comment\n[daemon]\nsocket = /tmp/s\nlog = debug\n"
				    "[servers]\na = 10.0.0.1:4711\nb = [::1]:99\na = 10.0.0.2\n"
				    "[node]\nlisten = 0.0.0.0:4711\ndriver = softgpu\nworker = /w\nuser = me\nwarm = 0\n"
				    "sessions = 9\nsessions_per_link = 3\n"
				    "[link]\nlanes = 16\nkeepalive = 2.5\ngrace = 0\nhold = 7200\ndirect = no\ncompress = off\n[key]\nfile = /k\n[tree]\nmount = no\n"
				    "[cache]\nuse = on\nmemory = 512M\ndisk = 3T\ndir = /c\nverdicts = 5M\n",
				    why, sizeof(why)),
			 0);
	assert_string_equal(conf.socket, "/tmp/s");
	assert_int_equal(conf.log, LOG_LEVEL_DEBUG);
	assert_int_equal(conf.hold_ms, 7200000);
	assert_int_equal(conf.server_count, 2);
	assert_string_equal(conf.servers[0].name, "a");
	assert_string_equal(conf.servers[0].address, "10.0.0.2");
	assert_string_equal(conf.servers[1].address, "[::1]:99");
	assert_string_equal(conf.driver, "softgpu");
	assert_int_equal(conf.warm, 0);
	assert_int_equal(conf.lanes, 16);
	assert_false(conf.direct);
	assert_false(conf.compress);
	assert_int_equal(conf.keepalive_ms, 2500);
	assert_string_equal(conf.mount, "");
	assert_int_equal(conf.cache_use, CACHE_ON);
	assert_int_equal(conf_cache_memory(&conf), 512u << 20);
	assert_int_equal(conf_cache_disk(&conf), 3ull << 40);
	assert_int_equal(conf.cache_verdicts, 5u << 20);
	conf_cache_dir(&conf, path);
	assert_string_equal(path, "/c");
	conf.cache_dir[0] = 0;
	conf_cache_dir(&conf, path);
	assert_string_equal(path, ""); /* it has a socket of its own */
	conf.cache_use = CACHE_OFF;
	assert_int_equal(conf_cache_memory(&conf), 0);
}

static void test_mistakes_have_a_line(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{ "[daemon]\n\nnothing = 1\n", "f:3: there is no setting `nothing` in [daemon]" },
		{ "[nowhere]\na = 1\n", "f:2: there is no section [nowhere]" },
		{ "[daemon]\nlog = loud\nsocket =\n", "f:2: `loud`" },
		{ "[daemon]\nsocket =\n", "f:2: the value is empty" },
		{ "[cache]\nuse = maybe\n", "f:2: `maybe` is not auto, on or off" },
		{ "[cache]\nmemory = 5X\n", "f:2: `5X` is not a number of bytes" },
		{ "[cache]\nverdicts = no\n", "f:2: `no` is not a number of bytes" },
		{ "[cache]\ndisk = 99999999T\n", "f:2: `99999999T` is not a number of bytes" },
		{ "[link]\nlanes = 0\n", "f:2: `0` is not a number from 1 to 16" },
		{ "[scheduler]\nmigrate = on\n", "f:2: `on` is not auto or off" },
		{ "[link]\ncompress = on\n", "f:2: `on` is not auto or off" },
		{ "[link]\ndirect = maybe\n", "f:2: `maybe` is not yes or no" },
		{ "[link]\nlanes = 2x\n", "f:2: `2x`" },
		{ "[link]\nlanes = 99999999999999999999\n", "f:2: " },
		{ "[link]\nkeepalive = nan\n", "f:2: `nan`" },
		{ "[link]\nkeepalive = 0.5\n", "f:2: `0.5` is not a number of seconds from 1" },
		{ "[servers]\n../up = x\n", "f:2: `../up` can't be a server's name" },
		{ "[node]\nlisten = a\n\nword\n", "f:4: not a setting" },
	};
	static struct conf conf;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char why[500] = "";

		conf_init(&conf);
		assert_int_equal(conf_parse(&conf, "f", cases[i].text, why, sizeof(why)), -EINVAL);
		if (strncmp(why, cases[i].says, strlen(cases[i].says)) != 0)
			fail_msg("expected '%s', got '%s'", cases[i].says, why);
	}
}

static void test_keys(void **state)
{
	static struct key keys[KEYS_MAX];
	char path[] = "/tmp/gleam-key-XXXXXX", why[500] = "";
	int fd = mkstemp(path);
	struct key a, b;
	size_t count = 0;

	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(key_make("bad name", &a), -EINVAL);
	assert_int_equal(key_make("", &a), -EINVAL);
	assert_int_equal(key_make("lab-1", &a), 0);
	assert_int_equal(key_make("lab.2", &b), 0);
	assert_memory_not_equal(a.secret, b.secret, sizeof(a.secret));
	assert_int_equal(key_write(path, &a), 0);
	assert_int_equal(key_write(path, &b), 0);
	assert_int_equal(key_read(path, keys, KEYS_MAX, &count, why, sizeof(why)), 0);
	assert_int_equal(count, 2);
	assert_string_equal(keys[1].tenant, "lab.2");
	assert_string_equal(keys[1].id, b.id);
	assert_memory_equal(keys[0].secret, a.secret, sizeof(a.secret));
	/* The same id twice; room for one only; readable by others, to read as to write. */
	assert_int_equal(key_read(path, keys, 1, &count, why, sizeof(why)), -E2BIG);
	assert_int_equal(key_write(path, &b), 0);
	assert_int_equal(key_read(path, keys, KEYS_MAX, &count, why, sizeof(why)), -EEXIST);
	chmod(path, 0640);
	assert_int_equal(key_read(path, keys, KEYS_MAX, &count, why, sizeof(why)), -EPERM);
	assert_int_equal(key_write(path, &a), -EPERM);
	assert_non_null(strstr(why, "chmod 600"));
	unlink(path);
	assert_int_equal(key_read(path, keys, KEYS_MAX, &count, why, sizeof(why)), -ENOENT);
	assert_int_equal(key_write("/proc/no/where", &a), -ENOENT);
}

static void test_bad_keys(void **state)
{
	static struct key keys[2];
	static const char *const lines[] = {
		"", "# only a comment\n", "gleam-key-2 a 0123456789abcdef 00\n", "gleam-key-1 a 0123456789abcdef 00\n",
		"gleam-key-1 a 0123456789ABCDEF 0000000000000000000000000000000000000000000000000000000000000000\n",
		"gleam-key-1 a/b 0123456789abcdef 0000000000000000000000000000000000000000000000000000000000000000\n",
		"gleam-key-1 a 0123456789abcdef 000000000000000000000000000000000000000000000000000000000000000g\n",
		"gleam-key-1 a 0123456789abcdef 0000000000000000000000000000000000000000000000000000000000000000 more\n",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		char text[300], why[500] = "";
		size_t count;

		snprintf(text, sizeof(text), "%s", lines[i]);
		assert_true(key_parse("k", text, keys, 2, &count, why, sizeof(why)) < 0);
		assert_true(strncmp(why, "k:", 2) == 0);
	}
}

static void test_addresses(void **state)
{
	static const struct {
		const char *text, *host;
		int port; /* -1: refused */
	} cases[] = {
		{ "host", "host", LINK_PORT },	   { "host:1", "host", 1 },	 { "10.0.0.1:65535", "10.0.0.1", 65535 },
		{ "[::1]:4711", "::1", 4711 },	   { "[::1]", "::1", LINK_PORT }, { "::1", "::1", LINK_PORT },
		{ "[fe80::1%lo]:5", "fe80::1%lo", 5 }, { "", "", -1 },		 { "host:", "", -1 },
		{ "host:0", "", -1 },		   { "host:65536", "", -1 },	 { "host:x", "", -1 },
		{ "[::1", "", -1 },		   { "[::1]x", "", -1 },	 { "a b:1", "", -1 },
		{ ":1", "", -1 },		   { "host:-1", "", -1 },
	};
	struct address addresses[ADDRESSES_MAX];
	unsigned count = 0;
	char why[300];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char host[ADDRESS_HOST_SIZE];
		uint16_t port = 0;
		int err = address_parse(cases[i].text, host, &port);

		if (cases[i].port < 0) {
			assert_int_equal(err, -EINVAL);
			continue;
		}
		assert_int_equal(err, 0);
		assert_string_equal(host, cases[i].host);
		assert_int_equal(port, cases[i].port);
	}
	assert_int_equal(address_resolve("127.0.0.1:5", true, false, addresses, &count, why, sizeof(why)), 0);
	assert_int_equal(count, 1);
	assert_true(address_is_loopback((struct sockaddr *)&addresses[0].at));
	assert_int_equal(address_resolve("[::1]:5", true, false, addresses, &count, why, sizeof(why)), 0);
	assert_true(address_is_loopback((struct sockaddr *)&addresses[0].at));
	assert_int_equal(address_resolve("[::ffff:127.0.0.1]:5", true, false, addresses, &count, why, sizeof(why)), 0);
	assert_true(address_is_loopback((struct sockaddr *)&addresses[0].at));
	assert_int_equal(address_resolve("0.0.0.0:5", true, false, addresses, &count, why, sizeof(why)), 0);
	assert_false(address_is_loopback((struct sockaddr *)&addresses[0].at));
	assert_int_equal(address_resolve("a.name:5", true, false, addresses, &count, why, sizeof(why)), -EAGAIN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_settings), cmocka_unit_test(test_mistakes_have_a_line),
		cmocka_unit_test(test_keys),	     cmocka_unit_test(test_bad_keys),
		cmocka_unit_test(test_addresses),
	};
	struct fdcheck fds;
	int failed;

	fdcheck_begin(&fds);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return fdcheck_end(&fds) ? 1 : failed;
}
