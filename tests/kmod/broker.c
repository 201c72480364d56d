// SPDX-License-Identifier: Apache-2.0
/*
 * One broker at a time; it may restart under its clients, and what happens when none comes back.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kmod/dev.h"
#include "tests/kmod/genl.h"

#define GRACE "/sys/module/gleam/parameters/grace_ms"

static void second_run(void *arg)
{
	SAME(RC(open("/dev/gleam-broker", O_RDWR)), getuid() ? -EACCES : -EBUSY);
}

static void there_is_one(void)
{
	int broker = broker_attach();

	SAME(RC(open("/dev/gleam-broker", O_RDWR)), -EBUSY);
	kt_join(kt_child(second_run, NULL, 0));
	kt_join(kt_child(second_run, NULL, 1000));
	close(broker);
	broker = (int)RC(open("/dev/gleam-broker", O_RDWR));
	CHECK(broker >= 0);
}

static void foreign_run(void *arg)
{
	int broker = *(int *)arg;
	struct gleam_session_ref ref = { .session = 1 };
	struct gleam_event event;

	SAME(RC(read(broker, &event, sizeof(event))), -EPERM);
	SAME(RC(ioctl(broker, GLEAM_IOC_END, &ref)), -EPERM);
}

static void its_file_is_nothing_to_others(void)
{
	int broker = broker_attach();

	kt_join(kt_child(foreign_run, &broker, 0));
}

/* Attaches, takes the one session there is, says how it is called, and waits to be killed. */
struct first {
	int pipe[2];
	bool child_keeps_file;
};

static void first_run(void *arg)
{
	const struct first *first = arg;
	int broker = broker_attach();
	struct gleam_event event = broker_expect(broker, GLEAM_EVENT_ATTACH);
	int memory;

	SAME(event.flags, 0);
	SAME(broker_take(broker, event.session, eventfd(0, 0), &memory), 0);
	if (first->child_keeps_file && !fork())
		for (;;)
			pause();
	SAME(write(first->pipe[1], &event, sizeof(event)), sizeof(event));
	for (;;)
		pause();
}

static void client_run(void *arg)
{
	const int *pipes = arg;
	uint8_t *base;
	char byte;
	int fd;

	WAIT_FOR((fd = session_try("/dev/gleam")) >= 0);
	base = session_map(fd);
	base[SESSION_AT_UP + 12345] = 0x77;
	/* Rings while no broker is there. */
	SAME(read(pipes[0], &byte, 1), 1);
	SAME(session_info(fd).broker, 0);
	SAME(RC(ioctl(fd, GLEAM_IOC_DOORBELL)), 0);
	SAME(write(pipes[1], "x", 1), 1);
	WAIT_FOR(base[SESSION_AT_UP + 12345] == 0x78);
	SAME(events_now(fd) & POLLHUP, 0);
}

static void restart(bool child_keeps_file)
{
	struct first first = { .child_keeps_file = child_keeps_file };
	int go[2], done[2], both[2];
	struct gleam_event event, again;
	struct shm shm;
	pid_t broker_pid, client;
	uint64_t count;
	int bell = eventfd(0, EFD_NONBLOCK), broker;
	char byte;

	SAME(pipe(first.pipe) | pipe(go) | pipe(done), 0);
	both[0] = go[0];
	both[1] = done[1];
	broker_pid = kt_child(first_run, &first, 0);
	client = kt_child(client_run, both, 0);
	SAME(read(first.pipe[0], &event, sizeof(event)), sizeof(event));
	kt_kill(broker_pid);
	WAIT_FOR(kt_read_number(SYS_GLEAM "broker") == 0);
	SAME(write(go[1], "x", 1), 1);
	SAME(read(done[0], &byte, 1), 1);
	SAME(sessions_now(), 1);

	broker = broker_attach();
	again = broker_expect(broker, GLEAM_EVENT_ATTACH);
	SAME(again.session, event.session);
	SAME(again.flags, GLEAM_EVENT_RESUMED);
	SAME(again.tgid, client);
	SAME(again.doorbells, 1);

	int memory;

	SAME(broker_take(broker, again.session, bell, &memory), 0);
	SAME(RC(read(bell, &count, 8)), 8); /* the one that rang in between */
	SAME(shm_map(&shm, memory, NULL), 0);
	SAME(shm_up(&shm)[12345], 0x77);
	shm_up(&shm)[12345] = 0x78;
	kt_join(client);
	SAME(broker_expect(broker, GLEAM_EVENT_DETACH).session, event.session);
}

static void it_restarts_under_its_clients(void)
{
	restart(false);
}

static void its_children_do_not_keep_it(void)
{
	restart(true);
}

static void fileless_client_run(void *arg)
{
	close(*(int *)arg); /* the broker's, which a fork has given it */
	session_child_run(NULL);
}

static void many_times(void)
{
	int broker = broker_attach();
	pid_t child = kt_child(fileless_client_run, &broker, 0);
	uint32_t session = 0;

	for (int i = 0; i < 50; i++) {
		struct gleam_event event = broker_expect(broker, GLEAM_EVENT_ATTACH);
		int memory;

		SAME(event.flags, i ? GLEAM_EVENT_RESUMED : 0);
		SAME(event.session, session ? session : event.session);
		session = event.session;
		if (i % 3 == 0) {
			SAME(broker_take(broker, session, -1, &memory), 0);
			close(memory);
		}
		close(broker);
		broker = broker_attach();
	}
	kt_kill(child);
	/* Attached again and not read: its end needs no telling, or is told after the attach. */
	WAIT_FOR(sessions_now() == 0);
}

static void ends_unread_are_forgotten(void)
{
	int broker = broker_attach();
	pid_t child = session_child();

	broker_expect(broker, GLEAM_EVENT_ATTACH);
	kt_kill(child);
	WAIT_FOR(sessions_now() == 0);
	close(broker);
	broker = broker_attach();
	broker_quiet(broker);
}

static void grace_run(void *arg)
{
	int broker = broker_attach();
	struct genl genl;

	genl_open(&genl);
	SAME(device_add(&genl, "H200", "a", 1 << 30, 9, -1), 9);
	SAME(write(*(int *)arg, "x", 1), 1);
	broker_expect(broker, GLEAM_EVENT_ATTACH);
	/* and dies */
}

static void without_one_sessions_end(void)
{
	int pipes[2];
	struct session_header *header;
	pid_t broker_pid;
	char byte;
	int fd, opened;

	SAME(pipe(pipes), 0);
	kt_write_text(GRACE, "400");
	broker_pid = kt_child(grace_run, &pipes[1], 0);
	SAME(read(pipes[0], &byte, 1), 1);
	fd = session_open();
	opened = session_try("/dev/gleam9");
	CHECK(opened >= 0);
	header = session_map(fd);
	kt_join(broker_pid);
	/* Within the grace: alive, and new ones may come. */
	SAME(header->state, SESSION_NEW);
	SAME(RC(ioctl(fd, GLEAM_IOC_DOORBELL)), 0);
	close(session_open());
	WAIT_FOR(events_now(fd) & POLLHUP);
	SAME(__atomic_load_n(&header->state, __ATOMIC_ACQUIRE), SESSION_DEAD);
	SAME(header->reason, END_SHUTDOWN);
	SAME(GLEAM_REASON_BROKER_GONE, END_SHUTDOWN);
	SAME(RC(ioctl(fd, GLEAM_IOC_DOORBELL)), -EPIPE);
	WAIT_FOR(session_try("/dev/gleam9") == -ENOENT);
	SAME(session_try("/dev/gleam"), -ENXIO);
	SAME(sessions_now(), 0);
	/* Another one begins anew. */
	int broker = broker_attach();

	broker_quiet(broker);
	close(session_open());
	kt_write_text(GRACE, "20000");
}

static void none_has_been(void)
{
	int broker = broker_attach();

	kt_write_text(GRACE, "0");
	close(broker);
	WAIT_FOR(session_try("/dev/gleam") == -ENXIO);
	kt_write_text(GRACE, "20000");
	SAME(RC(open(GRACE, O_WRONLY)) < 0, 0);

	int fd = open(GRACE, O_WRONLY);

	SAME(RC(write(fd, "600001", 6)), -EINVAL);
	SAME(RC(write(fd, "-1", 2)), -EINVAL);
}

static void devices_survive_a_restart(void)
{
	int broker = broker_attach();
	struct genl genl;

	genl_open(&genl);
	SAME(device_add(&genl, "H200", "a", 1 << 30, 3, -1), 3);
	close(broker);
	/* Between two brokers there is none to change it. */
	SAME(device_del(&genl, 3), -EPERM);
	broker = broker_attach();
	SAME(genl_dump(&genl, GLEAM_CMD_DEVICE_GET, NULL, NULL), 1);
	SAME(device_del(&genl, 3), 0);
}

static const struct kt_test tests[] = {
	{ "there is one", there_is_one },
	{ "its file is nothing to others", its_file_is_nothing_to_others },
	{ "it restarts under its clients", it_restarts_under_its_clients },
	{ "its children do not keep it attached", its_children_do_not_keep_it },
	{ "it restarts many times", many_times },
	{ "ends that were not read are forgotten with it", ends_unread_are_forgotten },
	{ "virtual GPUs survive a restart", devices_survive_a_restart },
	{ "sessions and virtual GPUs end when none comes back", without_one_sessions_end },
	{ "without one nothing opens", none_has_been },
	{ NULL, NULL },
};

const struct kt_group group_broker = { "broker", tests };
