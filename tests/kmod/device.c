// SPDX-License-Identifier: Apache-2.0
/*
 * Virtual GPUs: nodes, modes, sysfs, udev events, and what opening one gives.
 */
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/kmod/dev.h"
#include "tests/kmod/genl.h"

#define BIT_ULL(n) (1ull << (n))

static int uevent_open(void)
{
	struct sockaddr_nl address = { .nl_family = AF_NETLINK, .nl_groups = 1 };
	int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT);

	SAME(RC(bind(fd, (struct sockaddr *)&address, sizeof(address))), 0);
	return fd;
}

/* The next udev event of this action and path has all of @wanted (each with its NUL). */
static void uevent_expect(int fd, const char *head, const char *const *wanted)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
	char bytes[4096];

	for (;;) {
		ssize_t size;

		SAME(poll(&poll_fd, 1, 5000), 1);
		size = recv(fd, bytes, sizeof(bytes) - 1, 0);
		CHECK(size > 0);
		bytes[size] = '\0';
		if (!strcmp(bytes, head))
			for (; *wanted; wanted++)
				if (!memmem(bytes, (size_t)size, *wanted, strlen(*wanted) + 1))
					kt_fail(*wanted, 0, "in the event", 0, 1);
		if (!strcmp(bytes, head))
			return;
	}
}

static bool node_is(const char *path, mode_t mode)
{
	struct stat st;

	return !stat(path, &st) && S_ISCHR(st.st_mode) && (st.st_mode & 07777) == mode;
}

static bool attribute_is(unsigned index, const char *name, const char *wanted)
{
	char path[128], text[256];

	snprintf(path, sizeof(path), "/sys/class/gleam/gleam%u/%s", index, name);
	if (!kt_read_text(path, text, sizeof(text)))
		return false;
	if (strcmp(text, wanted))
		printf("# %s: %s\n", path, text);
	return !strcmp(text, wanted);
}

static void appear_change_and_go(void)
{
	int broker = broker_attach(), uevents = uevent_open();
	struct genl genl, events;
	struct genl_msg msg;
	struct genl_attrs attrs;

	genl_open(&genl);
	genl_open(&events);
	SAME(genl_listen(&events), 0);
	SAME(access("/dev/gleam0", F_OK), -1);
	SAME(device_add(&genl, "NVIDIA H200", "lab-a", 150ull << 30, -1, -1), 0);
	WAIT_FOR(node_is("/dev/gleam0", 0666));
	CHECK(attribute_is(0, "name", "NVIDIA H200"));
	CHECK(attribute_is(0, "server", "lab-a"));
	CHECK(attribute_is(0, "memory", "161061273600"));
	CHECK(attribute_is(0, "state", "up"));
	CHECK(attribute_is(0, "gpu", "0"));
	CHECK(attribute_is(0, "sessions", "0"));
	uevent_expect(uevents, "add@/devices/virtual/gleam/gleam0",
		      (const char *[]){ "GLEAM_NAME=NVIDIA H200", "GLEAM_SERVER=lab-a", "GLEAM_STATE=up",
					"DEVNAME=gleam0", "DEVMODE=0666", "SUBSYSTEM=gleam", NULL });
	CHECK(genl_event(&events, 1000, &msg, &attrs));
	SAME(attrs.cmd, GLEAM_CMD_DEVICE_ADD_NTF);
	CHECK(!strcmp(attr_str(&attrs, GLEAM_A_DEVICE_SERVER), "lab-a"));

	msg_begin(&genl, &msg, GLEAM_CMD_DEVICE_SET, 0);
	msg_u32(&msg, GLEAM_A_DEVICE_INDEX, 0);
	msg_u32(&msg, GLEAM_A_DEVICE_STATE, GLEAM_DEVICE_DRAINING);
	msg_u64(&msg, GLEAM_A_DEVICE_MEMORY, 42);
	SAME(genl_call(&genl, &msg, NULL, NULL), 0);
	CHECK(attribute_is(0, "state", "draining"));
	CHECK(attribute_is(0, "memory", "42"));
	CHECK(attribute_is(0, "name", "NVIDIA H200"));
	uevent_expect(uevents, "change@/devices/virtual/gleam/gleam0",
		      (const char *[]){ "GLEAM_STATE=draining", NULL });
	CHECK(genl_event(&events, 1000, &msg, &attrs));
	SAME(attrs.cmd, GLEAM_CMD_DEVICE_CHANGE_NTF);
	SAME(attr_u64(&attrs, GLEAM_A_DEVICE_MEMORY), 42);

	SAME(device_del(&genl, 0), 0);
	uevent_expect(uevents, "remove@/devices/virtual/gleam/gleam0", (const char *[]){ NULL });
	CHECK(genl_event(&events, 1000, &msg, &attrs));
	SAME(attrs.cmd, GLEAM_CMD_DEVICE_DEL_NTF);
	WAIT_FOR(access("/dev/gleam0", F_OK) == -1);
	SAME(access("/sys/class/gleam/gleam0", F_OK), -1);
	SAME(device_del(&genl, 0), -ENODEV);
	close(broker);
}

static void user_opens_run(void *arg)
{
	const int *wanted = arg;

	for (int i = 0; i < 2; i++) {
		int rc = session_try(i ? "/dev/gleam6" : "/dev/gleam5");

		if (wanted[i] < 0)
			SAME(rc, wanted[i]);
		else
			CHECK(rc >= 0);
		if (rc >= 0)
			CHECK(session_info(rc).devices == BIT_ULL(i ? 6 : 5));
	}
}


static void modes_decide(void)
{
	int broker = broker_attach(), fd;
	struct genl genl;
	struct shm shm;

	genl_open(&genl);
	SAME(device_add(&genl, "GPU", "a", 1, 5, 0600), 5);
	SAME(device_add(&genl, "GPU", "a", 1, 6, 0666), 6);
	WAIT_FOR(node_is("/dev/gleam5", 0600) && node_is("/dev/gleam6", 0666));
	kt_join(kt_child(user_opens_run, (int[]){ -EACCES, 0 }, 1000));
	SAME(chmod("/dev/gleam5", 0666), 0);
	SAME(chmod("/dev/gleam6", 0660), 0);
	kt_join(kt_child(user_opens_run, (int[]){ 0, -EACCES }, 1000));
	SAME(chown("/dev/gleam6", 0, 1000), 0);
	kt_join(kt_child(user_opens_run, (int[]){ 0, 0 }, 1000));
	/* The broker is told which. */
	fd = session_open();
	session_map(fd);
	CHECK(broker_accept(broker, -1, &shm).devices == GLEAM_DEVICES_ANY);
	fd = session_try("/dev/gleam6");
	session_map(fd);
	CHECK(broker_accept(broker, -1, &shm).devices == BIT_ULL(6));
	CHECK(attribute_is(6, "sessions", "1"));
	CHECK(attribute_is(5, "sessions", "0"));
	SAME(device_del(&genl, 5) | device_del(&genl, 6), 0);
}

static void passed_device_run(void *arg)
{
	struct gleam_fd join = { .fd = *(int *)arg };

	/* Another process's session, though the file is here. */
	SAME(RC(ioctl(session_try("/dev/gleam1"), GLEAM_IOC_JOIN, &join)), -EPERM);
}

static void several_are_joined(void)
{
	int broker = broker_attach(), first, second;
	struct gleam_fd join;
	struct genl genl;

	genl_open(&genl);
	SAME(device_add(&genl, "GPU", "a", 1, 1, -1), 1);
	SAME(device_add(&genl, "GPU", "b", 1, 63, -1), 63);
	first = session_try("/dev/gleam1");
	second = session_try("/dev/gleam63");
	CHECK(first >= 0 && second >= 0);
	join = (struct gleam_fd){ .fd = second };
	kt_join(kt_child(passed_device_run, &second, 0));
	SAME(RC(ioctl(first, GLEAM_IOC_JOIN, &join)), 0);
	close(second);
	CHECK(session_info(first).devices == (BIT_ULL(1) | BIT_ULL(63)));
	session_map(first);
	CHECK(broker_expect(broker, GLEAM_EVENT_ATTACH).devices == (BIT_ULL(1) | BIT_ULL(63)));
	/* What the broker was told stays. */
	join.fd = session_try("/dev/gleam63");
	SAME(RC(ioctl(first, GLEAM_IOC_JOIN, &join)), -EBUSY);
	close(join.fd);
	/* One of two goes: the other stays. */
	SAME(device_del(&genl, 63), 0);
	CHECK(session_info(first).devices == BIT_ULL(1));
	SAME(events_now(first) & POLLHUP, 0);
	SAME(device_del(&genl, 1), 0);
}

static void a_removed_one_takes_its_sessions(void)
{
	int broker = broker_attach(), bound, any;
	struct session_header *header;
	struct gleam_event event;
	struct genl genl;

	genl_open(&genl);
	SAME(device_add(&genl, "GPU", "a", 1, 2, -1), 2);
	bound = session_try("/dev/gleam2");
	any = session_open();
	header = session_map(bound);
	uint32_t session = broker_expect(broker, GLEAM_EVENT_ATTACH).session;

	SAME(device_del(&genl, 2), 0);
	CHECK(events_now(bound) & POLLHUP);
	SAME(header->state, SESSION_DEAD);
	SAME(events_now(any) & POLLHUP, 0);
	event = broker_expect(broker, GLEAM_EVENT_DETACH);
	SAME(event.session, session);
	SAME(event.reason, GLEAM_DETACH_DEVICE);
	/* A new one of that number gives the old session nothing. */
	SAME(device_add(&genl, "GPU", "b", 1, 2, -1), 2);
	SAME(session_info(bound).devices, 0);
	SAME(RC(ioctl(bound, GLEAM_IOC_DOORBELL)), -EPIPE);
	SAME(device_del(&genl, 2), 0);
}

static void there_are_64(void)
{
	int broker = broker_attach();
	struct genl genl;

	genl_open(&genl);
	SAME(device_add(&genl, "GPU", "a", 1, 1, -1), 1);
	SAME(device_add(&genl, "GPU", "a", 1, 1, -1), -EEXIST);
	for (int i = 0; i < GLEAM_DEVICES_MAX - 1; i++)
		SAME(device_add(&genl, "GPU", "a", 1, -1, -1), i ? i + 1 : 0);
	SAME(device_add(&genl, "GPU", "a", 1, -1, -1), -ENOSPC);
	SAME(genl_dump(&genl, GLEAM_CMD_DEVICE_GET, NULL, NULL), GLEAM_DEVICES_MAX);
	for (unsigned i = 0; i < GLEAM_DEVICES_MAX; i++)
		SAME(device_del(&genl, i), 0);
	SAME(genl_dump(&genl, GLEAM_CMD_DEVICE_GET, NULL, NULL), 0);
	close(broker);
}

static void opener_run(void *arg)
{
	for (;;) {
		int fd = session_try("/dev/gleam7");

		if (fd < 0)
			continue;
		/* It may have gone in between: then there is nothing to map. */
		if (mmap(NULL, SESSION_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED)
			SAME(errno, EPIPE);
		close(fd);
	}
}

static void come_and_go_while_opened(void)
{
	int broker = broker_attach();
	struct genl genl;
	pid_t child[2];

	genl_open(&genl);
	for (int i = 0; i < 2; i++)
		child[i] = kt_child(opener_run, NULL, 1000);
	for (int i = 0; i < 60; i++) {
		SAME(device_add(&genl, "GPU", "a", 1, 7, -1), 7);
		kt_nap_ms(3);
		SAME(device_del(&genl, 7), 0);
	}
	for (int i = 0; i < 2; i++)
		kt_kill(child[i]);
	WAIT_FOR(sessions_now() == 0);
	close(broker);
}

static const struct kt_test tests[] = {
	{ "appear, change and go", appear_change_and_go },
	{ "modes of the nodes decide", modes_decide },
	{ "several are joined", several_are_joined },
	{ "a removed one takes its sessions with it", a_removed_one_takes_its_sessions },
	{ "there are 64 at most", there_are_64 },
	{ "come and go while they are opened", come_and_go_while_opened },
	{ NULL, NULL },
};

const struct kt_group group_device = { "device", tests };
