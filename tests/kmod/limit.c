// SPDX-License-Identifier: Apache-2.0
/*
 * Limits per user and per cgroup.
 */
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/kmod/dev.h"
#include "tests/kmod/genl.h"

#define PAGES	(SESSION_SIZE / 4096)
#define CGROUPS "/tmp/cgroup"

/* Opens @want sessions; the next one is refused. Closes one: another one opens. */
static void up_to_run(void *arg)
{
	int want = *(int *)arg;
	int fds[64];

	for (int i = 0; i < want; i++)
		fds[i] = session_open();
	SAME(session_try("/dev/gleam"), -EDQUOT);
	SAME(session_try("/dev/gleam"), -EDQUOT);
	if (want) {
		close(fds[0]);
		fds[0] = session_open();
		SAME(session_try("/dev/gleam"), -EDQUOT);
	}
}

static void at_least_run(void *arg)
{
	for (int i = 0; i < *(int *)arg; i++)
		session_open();
}

static void sessions_of_a_user(void)
{
	int broker = broker_attach(), three = 3, ten = 10;
	struct genl genl, events;
	struct genl_msg msg;
	struct genl_attrs attrs;

	genl_open(&genl);
	genl_open(&events);
	SAME(genl_listen(&events), 0);
	SAME(limit_set(&genl, GLEAM_LIMIT_UID, 1000, 3, GLEAM_NO_LIMIT), 0);
	kt_join(kt_child(up_to_run, &three, 1000));
	kt_join(kt_child(at_least_run, &ten, 1001));
	do
		CHECK(genl_event(&events, 1000, &msg, &attrs));
	while (attrs.cmd != GLEAM_CMD_LIMIT_HIT_NTF);
	SAME(attr_u32(&attrs, GLEAM_A_LIMIT_KIND), GLEAM_LIMIT_UID);
	SAME(attr_u64(&attrs, GLEAM_A_LIMIT_ID), 1000);
	SAME(attr_u64(&attrs, GLEAM_A_LIMIT_SESSIONS), 3);
	SAME(limit_get(&genl, GLEAM_LIMIT_UID, 1000, &msg, &attrs), 0);
	SAME(attr_u64(&attrs, GLEAM_A_LIMIT_SESSIONS_MAX), 3);
	SAME(attr_u64(&attrs, GLEAM_A_LIMIT_REFUSED), 3);
	SAME(attr_u64(&attrs, GLEAM_A_LIMIT_SESSIONS), 0);
	/* What others get by themselves is no limit that is remembered. */
	SAME(limit_get(&genl, GLEAM_LIMIT_UID, 1001, &msg, &attrs), -ENOENT);
	SAME(limit_set(&genl, GLEAM_LIMIT_UID, 1000, 1024, GLEAM_NO_LIMIT), 0);
	SAME(limit_get(&genl, GLEAM_LIMIT_UID, 1000, &msg, &attrs), -ENOENT);
	close(broker);
}

static void a_user_is_limited_by_default(void)
{
	int broker = broker_attach(), two = 2;

	kt_write_text("/sys/module/gleam/parameters/sessions_per_uid", "2");
	kt_join(kt_child(up_to_run, &two, 1002));
	kt_write_text("/sys/module/gleam/parameters/sessions_per_uid", "1024");
	close(broker);
}

static void pages_of_a_user(void)
{
	int broker = broker_attach(), two = 2, none = 0;
	struct genl genl;

	genl_open(&genl);
	SAME(limit_set(&genl, GLEAM_LIMIT_UID, 1000, GLEAM_NO_LIMIT, 3ull * PAGES - 1), 0);
	kt_join(kt_child(up_to_run, &two, 1000));
	SAME(limit_set(&genl, GLEAM_LIMIT_UID, 1000, GLEAM_NO_LIMIT, PAGES - 1), 0);
	kt_join(kt_child(up_to_run, &none, 1000));
	SAME(limit_set(&genl, GLEAM_LIMIT_UID, 1000, 0, GLEAM_NO_LIMIT), 0);
	kt_join(kt_child(up_to_run, &none, 1000));
	SAME(limit_set(&genl, GLEAM_LIMIT_UID, 1000, 1024, GLEAM_NO_LIMIT), 0);
	SAME(sessions_now(), 0);
	close(broker);
}

/* ---- cgroups ---- */

/* The inode number of its folder, where that has 64 bits. */
static uint64_t cgroup_id(const char *path)
{
	struct stat st;

	SAME(stat(path, &st), 0);
	return st.st_ino;
}

static void in_cgroup_run(void *arg)
{
	int two = 2;

	kt_write_text(arg, "0");
	up_to_run(&two);
}

static void cgroups_are_limited_with_what_is_below(void)
{
	int broker = broker_attach();
	struct genl genl;
	struct genl_msg msg;
	struct genl_attrs attrs;
	uint64_t outer, inner;

	mkdir(CGROUPS, 0755);
	if (mount("none", CGROUPS, "cgroup2", 0, NULL))
		kt_skip("this kernel has no cgroup v2");
	mkdir(CGROUPS "/outer", 0755);
	mkdir(CGROUPS "/outer/inner", 0755);
	outer = cgroup_id(CGROUPS "/outer");
	inner = cgroup_id(CGROUPS "/outer/inner");
	genl_open(&genl);
	SAME(limit_set(&genl, GLEAM_LIMIT_CGROUP, outer, 2, GLEAM_NO_LIMIT), 0);
	kt_join(kt_child(in_cgroup_run, CGROUPS "/outer/cgroup.procs", 0));
	/* A cgroup made further in is no way out. */
	kt_join(kt_child(in_cgroup_run, CGROUPS "/outer/inner/cgroup.procs", 0));
	SAME(limit_get(&genl, GLEAM_LIMIT_CGROUP, outer, &msg, &attrs), 0);
	SAME(attr_u64(&attrs, GLEAM_A_LIMIT_REFUSED), 6);
	SAME(attr_u64(&attrs, GLEAM_A_LIMIT_SESSIONS), 0);
	SAME(limit_get(&genl, GLEAM_LIMIT_CGROUP, inner, &msg, &attrs), -ENOENT);

	/* A limit that is set while something is open counts what is open. */
	pid_t child = session_child();
	struct gleam_event event = broker_expect(broker, GLEAM_EVENT_ATTACH);

	CHECK(event.cgroup != 0 && event.cgroup != outer);
	SAME(limit_set(&genl, GLEAM_LIMIT_CGROUP, event.cgroup, 1, GLEAM_NO_LIMIT), 0);
	SAME(session_try("/dev/gleam"), -EDQUOT);
	SAME(limit_set(&genl, GLEAM_LIMIT_CGROUP, event.cgroup, GLEAM_NO_LIMIT, GLEAM_NO_LIMIT), 0);
	close(session_open());
	kt_kill(child);
	SAME(limit_set(&genl, GLEAM_LIMIT_CGROUP, outer, GLEAM_NO_LIMIT, GLEAM_NO_LIMIT), 0);
	SAME(genl_dump(&genl, GLEAM_CMD_LIMIT_GET, NULL, NULL) >= 0, 1);
	rmdir(CGROUPS "/outer/inner");
	rmdir(CGROUPS "/outer");
	umount(CGROUPS);
}

/* An end that the broker does not read still counts: nobody can pile up dead sessions. */
static void unread_ends_count(void)
{
	int broker = broker_attach(), one = 1;
	struct genl genl;
	pid_t child;

	genl_open(&genl);
	SAME(limit_set(&genl, GLEAM_LIMIT_UID, 1003, 1, GLEAM_NO_LIMIT), 0);
	child = kt_child(session_child_run, NULL, 1003);
	broker_expect(broker, GLEAM_EVENT_ATTACH);
	kt_kill(child);
	WAIT_FOR(sessions_now() == 0);
	one = 0;
	kt_join(kt_child(up_to_run, &one, 1003));
	broker_expect(broker, GLEAM_EVENT_DETACH);
	one = 1;
	kt_join(kt_child(up_to_run, &one, 1003));
	SAME(limit_set(&genl, GLEAM_LIMIT_UID, 1003, 1024, GLEAM_NO_LIMIT), 0);
}

static const struct kt_test tests[] = {
	{ "sessions of a user", sessions_of_a_user },
	{ "a user is limited by default", a_user_is_limited_by_default },
	{ "pages of a user", pages_of_a_user },
	{ "cgroups are limited with what is below them", cgroups_are_limited_with_what_is_below },
	{ "ends that were not read count", unread_ends_count },
	{ NULL, NULL },
};

const struct kt_group group_limit = { "limit", tests };
