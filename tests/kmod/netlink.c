// SPDX-License-Identifier: Apache-2.0
/*
 * The netlink family: who may, what is refused, dumps and events.
 */
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/kmod/dev.h"
#include "tests/kmod/genl.h"

static int call_device_add(struct genl *genl)
{
	return device_add(genl, "GPU", "a", 1, -1, -1);
}

static void user_run(void *arg)
{
	struct genl genl;

	genl_open(&genl);
	SAME(call_device_add(&genl), -EPERM);
	SAME(device_del(&genl, 0), -EPERM);
	SAME(limit_set(&genl, GLEAM_LIMIT_UID, 1000, 1, 1), -EPERM);
	SAME(genl_listen(&genl), -EPERM);
}

static void other_root_run(void *arg)
{
	struct genl genl;

	genl_open(&genl);
	SAME(call_device_add(&genl), -EPERM);
}

static void changes_need_a_right(void)
{
	int broker = broker_attach();
	struct genl genl;

	kt_join(kt_child(user_run, NULL, 1000));
	/* Root, but not the broker. */
	kt_join(kt_child(other_root_run, NULL, 0));
	close(broker);
	genl_open(&genl);
	SAME(call_device_add(&genl), -EPERM);
	SAME(limit_set(&genl, GLEAM_LIMIT_UID, 1000, 1024, GLEAM_NO_LIMIT), 0);
}

static void requests_are_checked(void)
{
	int broker = broker_attach();
	struct genl genl;
	struct genl_msg msg;
	uint8_t byte = 1;
	char name[80];

	genl_open(&genl);
	msg_begin(&genl, &msg, 99, 0);
	SAME(genl_call(&genl, &msg, NULL, NULL), -EOPNOTSUPP);
	msg_begin(&genl, &msg, GLEAM_CMD_BROKER_NTF, 0);
	SAME(genl_call(&genl, &msg, NULL, NULL), -EOPNOTSUPP);
	/* reserved bits of the header */
	msg_begin(&genl, &msg, GLEAM_CMD_BROKER_GET, 0);
	msg.bytes[NLMSG_HDRLEN + 2] = 1;
	SAME(genl_call(&genl, &msg, NULL, NULL), -EINVAL);
	/* an attribute where there is none, of a number there is not, too short, too long */
	msg_begin(&genl, &msg, GLEAM_CMD_BROKER_GET, 0);
	msg_u32(&msg, 1, 1);
	SAME(genl_call(&genl, &msg, NULL, NULL), -EINVAL);
	msg_begin(&genl, &msg, GLEAM_CMD_SESSION_GET, 0);
	msg_u32(&msg, 200, 1);
	SAME(genl_call(&genl, &msg, NULL, NULL), -EINVAL);
	msg_begin(&genl, &msg, GLEAM_CMD_SESSION_GET, 0);
	msg_raw(&msg, GLEAM_A_SESSION_ID, &byte, 1);
	SAME(genl_call(&genl, &msg, NULL, NULL), -EINVAL);
	msg_begin(&genl, &msg, GLEAM_CMD_SESSION_GET, 0);
	msg_u64(&msg, GLEAM_A_SESSION_ID, 1);
	SAME(genl_call(&genl, &msg, NULL, NULL), -EINVAL);
	msg_begin(&genl, &msg, GLEAM_CMD_SESSION_GET, 0);
	SAME(genl_call(&genl, &msg, NULL, NULL), -EINVAL);
	msg_begin(&genl, &msg, GLEAM_CMD_SESSION_GET, 0);
	msg_u32(&msg, GLEAM_A_SESSION_ID, 0);
	SAME(genl_call(&genl, &msg, NULL, NULL), -ERANGE);
	msg_begin(&genl, &msg, GLEAM_CMD_SESSION_GET, 0);
	msg_u32(&msg, GLEAM_A_SESSION_ID, 0x7fffffff);
	SAME(genl_call(&genl, &msg, NULL, NULL), -ENOENT);
	/* a size that lies */
	msg_begin(&genl, &msg, GLEAM_CMD_SESSION_GET, 0);
	msg_u32(&msg, GLEAM_A_SESSION_ID, 1);
	((struct nlattr *)(void *)(msg.bytes + NLMSG_HDRLEN + GENL_HDRLEN))->nla_len = 400;
	SAME(genl_call(&genl, &msg, NULL, NULL), -EINVAL);
	/* dumps take none */
	msg_begin(&genl, &msg, GLEAM_CMD_SESSION_GET, NLM_F_DUMP);
	msg_u32(&msg, GLEAM_A_SESSION_ID, 1);
	SAME(genl_call(&genl, &msg, NULL, NULL), -EINVAL);

	/* names */
	memset(name, 'x', sizeof(name));
	name[GLEAM_NAME_MAX + 1] = '\0';
	SAME(device_add(&genl, name, "a", 1, -1, -1), -EINVAL);
	name[GLEAM_NAME_MAX] = '\0';
	SAME(device_add(&genl, name, "a", 1, -1, -1), 0);
	SAME(device_del(&genl, 0), 0);
	SAME(device_add(&genl, "", "a", 1, -1, -1), -EINVAL);
	SAME(device_add(&genl, "GPU\nGLEAM_SERVER=other", "a", 1, -1, -1), -EINVAL);
	SAME(device_add(&genl, "GPU", "\x1b[31m", 1, -1, -1), -EINVAL);
	SAME(device_add(&genl, "GPU", "\xc3\xa4", 1, -1, -1), -EINVAL);
	/* ranges */
	SAME(device_add(&genl, "GPU", "a", 1, GLEAM_DEVICES_MAX, -1), -ERANGE);
	SAME(device_add(&genl, "GPU", "a", 1, -1, 01777), -ERANGE);
	SAME(device_del(&genl, 1u << 31), -ERANGE);
	SAME(limit_set(&genl, 3, 1, 1, 1), -ERANGE);
	SAME(limit_set(&genl, 0, 1, 1, 1), -ERANGE);
	SAME(limit_set(&genl, GLEAM_LIMIT_UID, 1ull << 32, 1, 1), -EINVAL);
	msg_begin(&genl, &msg, GLEAM_CMD_LIMIT_SET, 0);
	msg_u32(&msg, GLEAM_A_LIMIT_KIND, GLEAM_LIMIT_UID);
	msg_u64(&msg, GLEAM_A_LIMIT_ID, 5);
	SAME(genl_call(&genl, &msg, NULL, NULL), -EINVAL);
	/* what the answer has is nothing to say */
	msg_u64(&msg, GLEAM_A_LIMIT_SESSIONS, 5);
	SAME(genl_call(&genl, &msg, NULL, NULL), -EINVAL);
	/* incomplete, and a mode where it can't be changed */
	msg_begin(&genl, &msg, GLEAM_CMD_DEVICE_ADD, 0);
	msg_str(&msg, GLEAM_A_DEVICE_NAME, "GPU");
	SAME(genl_call(&genl, &msg, NULL, NULL), -EINVAL);
	SAME(device_add(&genl, "GPU", "a", 1, 4, -1), 4);
	msg_begin(&genl, &msg, GLEAM_CMD_DEVICE_SET, 0);
	msg_u32(&msg, GLEAM_A_DEVICE_INDEX, 4);
	msg_u32(&msg, GLEAM_A_DEVICE_MODE, 0600);
	SAME(genl_call(&genl, &msg, NULL, NULL), -EINVAL);
	msg_begin(&genl, &msg, GLEAM_CMD_DEVICE_SET, 0);
	msg_u32(&msg, GLEAM_A_DEVICE_INDEX, 4);
	msg_u32(&msg, GLEAM_A_DEVICE_STATE, 3);
	SAME(genl_call(&genl, &msg, NULL, NULL), -ERANGE);
	SAME(device_del(&genl, 4), 0);
	close(broker);
}

static void broker_is_told(void)
{
	int broker = broker_attach();
	struct genl genl;
	struct genl_msg msg, reply;
	struct genl_attrs attrs;

	genl_open(&genl);
	msg_begin(&genl, &msg, GLEAM_CMD_BROKER_GET, 0);
	SAME(genl_call(&genl, &msg, &reply, &attrs), 0);
	SAME(attr_u32(&attrs, GLEAM_A_BROKER_ABI), GLEAM_ABI_VERSION);
	SAME(attr_u32(&attrs, GLEAM_A_BROKER_ATTACHED), 1);
	SAME(attr_u32(&attrs, GLEAM_A_BROKER_PID), getpid());
	SAME(attr_u32(&attrs, GLEAM_A_BROKER_GRACE_MS), 20000);
	close(broker);
	msg_begin(&genl, &msg, GLEAM_CMD_BROKER_GET, 0);
	SAME(genl_call(&genl, &msg, &reply, &attrs), 0);
	SAME(attr_u32(&attrs, GLEAM_A_BROKER_ATTACHED), 0);
	SAME(attr_u32(&attrs, GLEAM_A_BROKER_PID), 0);
}

static void sessions_run(void *arg)
{
	struct genl genl;

	session_open();
	session_open();
	genl_open(&genl);
	/* One's own: root's is not among them. */
	SAME(genl_dump(&genl, GLEAM_CMD_SESSION_GET, NULL, NULL), 2);
	SAME(genl_dump(&genl, GLEAM_CMD_LIMIT_GET, NULL, NULL), 1);

	struct genl_msg msg;

	msg_begin(&genl, &msg, GLEAM_CMD_SESSION_GET, 0);
	msg_u32(&msg, GLEAM_A_SESSION_ID, *(uint32_t *)arg);
	SAME(genl_call(&genl, &msg, NULL, NULL), -ENOENT);
	SAME(limit_get(&genl, GLEAM_LIMIT_UID, 0, &msg, &(struct genl_attrs){ 0 }), -ENOENT);
}

static void sessions_are_told(void)
{
	int broker = broker_attach(), fd = session_open();
	uint32_t id = session_info(fd).session;
	struct genl genl;
	struct genl_msg msg, reply;
	struct genl_attrs attrs;

	kt_join(kt_child(sessions_run, &id, 1000));
	genl_open(&genl);
	msg_begin(&genl, &msg, GLEAM_CMD_SESSION_GET, 0);
	msg_u32(&msg, GLEAM_A_SESSION_ID, id);
	SAME(genl_call(&genl, &msg, &reply, &attrs), 0);
	SAME(attr_u32(&attrs, GLEAM_A_SESSION_ID), id);
	SAME(attr_u32(&attrs, GLEAM_A_SESSION_TGID), getpid());
	SAME(attr_u32(&attrs, GLEAM_A_SESSION_UID), 0);
	SAME(attr_u64(&attrs, GLEAM_A_SESSION_PAGES), SESSION_SIZE / 4096);
	CHECK(!strcmp(attr_str(&attrs, GLEAM_A_SESSION_COMM), "kmod-test"));
	close(broker);
}

/* ---- dumps while sessions come and go ---- */

#define STAYING 150

struct seen {
	uint32_t ids[STAYING];
	unsigned times[STAYING];
	uint32_t last;
};

static void dump_each(const struct genl_attrs *attrs, void *arg)
{
	struct seen *seen = arg;
	uint32_t id = attr_u32(attrs, GLEAM_A_SESSION_ID);

	CHECK(id > seen->last); /* in order, so none twice */
	seen->last = id;
	for (int i = 0; i < STAYING; i++)
		if (seen->ids[i] == id)
			seen->times[i]++;
}

static void churn_run(void *arg)
{
	for (;;) {
		int fds[8];

		for (int i = 0; i < 8; i++)
			fds[i] = session_try("/dev/gleam");
		for (int i = 0; i < 8; i++)
			close(fds[i]);
	}
}

static void dumps_hold_while_sessions_come_and_go(void)
{
	int broker = broker_attach();
	struct seen seen = { 0 };
	struct genl genl;
	pid_t child[2];

	for (int i = 0; i < 2; i++)
		child[i] = kt_child(churn_run, NULL, 1000);
	for (int i = 0; i < STAYING; i++)
		seen.ids[i] = session_info(session_open()).session;
	genl_open(&genl);
	for (unsigned round = 1; round <= 10; round++) {
		seen.last = 0;
		CHECK(genl_dump(&genl, GLEAM_CMD_SESSION_GET, dump_each, &seen) >= STAYING);
		for (int i = 0; i < STAYING; i++)
			SAME(seen.times[i], round);
	}
	for (int i = 0; i < 2; i++)
		kt_kill(child[i]);
	close(broker);
}

static void limits_are_dumped(void)
{
	struct genl genl;

	genl_open(&genl);
	for (unsigned i = 0; i < 300; i++)
		SAME(limit_set(&genl, i & 1 ? GLEAM_LIMIT_UID : GLEAM_LIMIT_CGROUP, 5000 + i, i, i), 0);
	/* more than one message; id 0 and the last id are among them */
	SAME(limit_set(&genl, GLEAM_LIMIT_UID, 0, 500, 1ull << 40), 0);
	SAME(limit_set(&genl, GLEAM_LIMIT_CGROUP, ~0ull, 1, 1), 0);
	SAME(genl_dump(&genl, GLEAM_CMD_LIMIT_GET, NULL, NULL), 302);
	for (unsigned i = 0; i < 300; i++)
		SAME(limit_set(&genl, i & 1 ? GLEAM_LIMIT_UID : GLEAM_LIMIT_CGROUP, 5000 + i,
			       i & 1 ? 1024 : GLEAM_NO_LIMIT, GLEAM_NO_LIMIT), 0);
	SAME(limit_set(&genl, GLEAM_LIMIT_UID, 0, 1024, GLEAM_NO_LIMIT), 0);
	SAME(limit_set(&genl, GLEAM_LIMIT_CGROUP, ~0ull, GLEAM_NO_LIMIT, GLEAM_NO_LIMIT), 0);
	SAME(genl_dump(&genl, GLEAM_CMD_LIMIT_GET, NULL, NULL), 0);
}

static void events_are_sent(void)
{
	struct genl events;
	struct genl_msg msg;
	struct genl_attrs attrs;
	int broker, fd;

	genl_open(&events);
	SAME(genl_listen(&events), 0);
	broker = broker_attach();
	CHECK(genl_event(&events, 1000, &msg, &attrs));
	SAME(attrs.cmd, GLEAM_CMD_BROKER_NTF);
	SAME(attr_u32(&attrs, GLEAM_A_BROKER_ATTACHED), 1);
	fd = session_open();
	CHECK(genl_event(&events, 1000, &msg, &attrs));
	SAME(attrs.cmd, GLEAM_CMD_SESSION_ATTACH_NTF);
	SAME(attr_u32(&attrs, GLEAM_A_SESSION_TGID), getpid());
	close(fd);
	CHECK(genl_event(&events, 1000, &msg, &attrs));
	SAME(attrs.cmd, GLEAM_CMD_SESSION_DETACH_NTF);
	SAME(attr_u32(&attrs, GLEAM_A_SESSION_REASON), GLEAM_DETACH_CLOSED);
	close(broker);
	CHECK(genl_event(&events, 1000, &msg, &attrs));
	SAME(attrs.cmd, GLEAM_CMD_BROKER_NTF);
	SAME(attr_u32(&attrs, GLEAM_A_BROKER_ATTACHED), 0);
	CHECK(!genl_event(&events, 20, &msg, &attrs));
}

static const struct kt_test tests[] = {
	{ "changes need a right", changes_need_a_right },
	{ "requests are checked", requests_are_checked },
	{ "the broker is told", broker_is_told },
	{ "sessions are told to whom they belong", sessions_are_told },
	{ "dumps hold while sessions come and go", dumps_hold_while_sessions_come_and_go },
	{ "limits are dumped", limits_are_dumped },
	{ "events are sent", events_are_sent },
	{ NULL, NULL },
};

const struct kt_group group_netlink = { "netlink", tests };
