// SPDX-License-Identifier: Apache-2.0
/* Lines of avahi-browse: servers that come and go, names of strangers, nonsense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/local/discover_line.h"

static void found(const char *line, const char *name, const char *address)
{
	struct discover_event event = discover_line(line);

	assert_int_equal(event.kind, DISCOVER_FOUND);
	assert_string_equal(event.name, name);
	assert_string_equal(event.address, address);
}

static void nothing(const char *line)
{
	assert_int_equal(discover_line(line).kind, DISCOVER_NONE);
}

static void servers_come_and_go(void **state)
{
	struct discover_event event;

	found("=;eth0;IPv4;gpubox;_gleam._tcp;local;gpubox.local;192.0.2.7;4711;", "gpubox", "192.0.2.7:4711");
	found("=;eth0;IPv6;gpubox;_gleam._tcp;local;gpubox.local;2001:db8::7;4711;\"v=1\"", "gpubox", "[2001:db8::7]:4711");
	found("=;eth0;IPv4;lab\\0322\\.x;_gleam._tcp;local;h;192.0.2.7;1;", "lab-2.x", "192.0.2.7:1");
	event = discover_line("-;eth0;IPv4;gpubox;_gleam._tcp;local");
	assert_int_equal(event.kind, DISCOVER_LEFT);
	assert_string_equal(event.name, "gpubox");
	nothing("+;eth0;IPv4;gpubox;_gleam._tcp;local"); /* the resolved one follows */
}

static void strangers_say_what_they_like(void **state)
{
	char line[1024];

	assert_null(strchr(discover_line("=;e;IPv4;a\\047b;_gleam._tcp;local;h;192.0.2.7;1;").name, '/'));
	assert_true(discover_line("=;e;IPv4;.hidden;_gleam._tcp;local;h;192.0.2.7;1;").name[0] != '.');
	nothing("");
	nothing(";;;;;;;;;");
	nothing("=");
	nothing("=;eth0;IPv4;x;_http._tcp;local;h;192.0.2.7;80;");
	nothing("=;eth0;IPv4;;_gleam._tcp;local;h;192.0.2.7;80;");
	nothing("=;eth0;IPv4;x;_gleam._tcp;local;h;evil.example;80;");
	nothing("=;eth0;IPv4;x;_gleam._tcp;local;h;192.0.2.7;0;");
	nothing("=;eth0;IPv4;x;_gleam._tcp;local;h;192.0.2.7;65536;");
	nothing("=;eth0;IPv4;x;_gleam._tcp;local;h;192.0.2.7;4711x;");
	nothing("=;eth0;IPv6;x;_gleam._tcp;local;h;fe80::1;4711;");
	nothing("=;eth0;IPv4;x\\;_gleam._tcp;local;h;192.0.2.7;4711;");
	nothing("=;eth0;IPv4;x\\99;_gleam._tcp;local;h;192.0.2.7;4711;");
	nothing("=;eth0;IPv4;x\\000;_gleam._tcp;local;h;192.0.2.7;4711;");
	nothing("=;eth0;IPv4;x\\999;_gleam._tcp;local;h;192.0.2.7;4711;");
	memset(line, 'x', sizeof(line));
	memcpy(line, "=;e;IPv4;", 9);
	strcpy(line + 900, ";_gleam._tcp;local;h;192.0.2.7;1;");
	nothing(line);
	strcpy(line + 9 + CONF_NAME_SIZE, ";_gleam._tcp;local;h;192.0.2.7;1;");
	nothing(line);
}

static void every_truncation(void **state)
{
	static const char whole[] = "=;eth0;IPv4;lab\\0322;_gleam._tcp;local;gpubox.local;192.0.2.7;4711;\"a=b\"";

	for (size_t i = 0; i < sizeof(whole); i++) {
		char *cut = strndup(whole, i); /* on the heap: a sanitizer sees what is read behind it */

		discover_line(cut);
		free(cut);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(servers_come_and_go),
		cmocka_unit_test(strangers_say_what_they_like),
		cmocka_unit_test(every_truncation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
