// SPDX-License-Identifier: Apache-2.0
/* One setting of gleam.conf is changed and every other byte stays; codes of gleamctl pair are read as people type them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/fdcheck.h"
#include "tools/gleamctl/conf_edit.h"
#include "tools/gleamctl/pair_channel.h"

static void edits(const char *text, const char *section, const char *name, const char *value, const char *expected)
{
	char *out = conf_edit(text, section, name, value);

	assert_string_equal(out, expected);
	free(out);
}

static void test_edit(void **state)
{
	edits("", "servers", "lab", "10.0.0.7", "[servers]\nlab = 10.0.0.7\n");
	edits("[servers]\n", "servers", "lab", "x", "[servers]\nlab = x\n");
	edits("[servers]", "servers", "lab", "x", "[servers]\nlab = x\n");
	edits("# mine\n[servers]\n# old\nattic = y\n\n[key]\nfile = /k\n", "servers", "lab", "x",
	      "# mine\n[servers]\nlab = x\n# old\nattic = y\n\n[key]\nfile = /k\n");
	/* The same name in its own place, and only in its own section. */
	edits("[key]\nlab = 1\n[servers]\n lab=y ; here\nattic = z\n", "servers", "lab", "x",
	      "[key]\nlab = 1\n[servers]\nlab = x\nattic = z\n");
	edits("[servers]\nlab = y", "servers", "lab", "x", "[servers]\nlab = x\n");
	/* A comment is no setting, a longer name is another. */
	edits("[servers]\n# lab = y\nlabor = z\n", "servers", "lab", "x", "[servers]\nlab = x\n# lab = y\nlabor = z\n");
	edits("[serversX]\n[node]\nlisten = 1", "servers", "lab", "x", "[serversX]\n[node]\nlisten = 1\n\n[servers]\nlab = x\n");
	/* The second part of a section counts, too. */
	edits("[servers]\na = 1\n[key]\n[servers]\nlab = y\n", "servers", "lab", "x", "[servers]\na = 1\n[key]\n[servers]\nlab = x\n");
}

static void value_is(const char *text, const char *section, const char *name, const char *expected)
{
	char *value = conf_value(text, section, name);

	if (expected)
		assert_string_equal(value, expected);
	else
		assert_null(value);
	free(value);
}

static void test_value(void **state)
{
	value_is("[key]\nfile = /etc/gleam/key  \n", "key", "file", "/etc/gleam/key");
	value_is("[key]\nfile=/k", "key", "file", "/k");
	value_is("[node]\nfile = /k\n", "key", "file", NULL);
	value_is("file = /k\n[key]\n", "key", "file", NULL);
	value_is("", "key", "file", NULL);
}

static void test_files(void **state)
{
	char folder[] = "/tmp/conf-edit-XXXXXX", path[64], *text;
	struct stat st;
	int err = 0;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/deep/gleam.conf", folder);
	text = conf_text(path, &err);
	assert_string_equal(text, "");
	free(text);
	assert_int_equal(conf_replace(path, "one\n"), 0);
	assert_int_equal(chmod(path, 0640), 0);
	assert_int_equal(conf_replace(path, "two\n"), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	text = conf_text(path, &err);
	assert_string_equal(text, "two\n");
	free(text);
	unlink(path);
	*strrchr(path, '/') = 0;
	/* Nothing else was left. */
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(rmdir(folder), 0);
}

static void test_codes(void **state)
{
	char code[PAIR_CODE_SIZE], again[PAIR_CODE_SIZE], typed[64];

	for (int i = 0; i < 100; i++) {
		assert_int_equal(pair_code_make(code), 0);
		assert_int_equal(strlen(code), PAIR_CODE_SIZE - 1);
		assert_true(pair_code_read(code, again));
		assert_string_equal(code, again);
		/* As people type it. */
		snprintf(typed, sizeof(typed), " %.5s %.5s%.5s-%.5s\n", code, code + 6, code + 12, code + 18);
		for (char *at = typed; *at; at++)
			if (*at >= 'A' && *at <= 'Z')
				*at = (char)(*at + 32);
		assert_true(pair_code_read(typed, again));
		assert_string_equal(code, again);
	}
	assert_false(pair_code_read("", again));
	assert_false(pair_code_read("AAAAA-AAAAA-AAAAA-AAAA", again));
	assert_false(pair_code_read("AAAAA-AAAAA-AAAAA-AAAAAA", again));
	assert_false(pair_code_read("AAAAA-AAAAA-AAAAA-AAAA0", again));
	assert_false(pair_code_read("AAAAA-AAAAA-AAAAA-AAAA\xff", again));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_edit), cmocka_unit_test(test_value), cmocka_unit_test(test_files),
					    cmocka_unit_test(test_codes) };
	struct fdcheck fds;
	int failed;

	fdcheck_begin(&fds);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return fdcheck_end(&fds) ? 1 : failed;
}
