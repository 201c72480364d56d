// SPDX-License-Identifier: Apache-2.0
/*
 * The two ends of the kernel interface; see dev.h.
 */
#include "tests/kmod/dev.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

int broker_attach(void)
{
	int fd;

	WAIT_FOR((fd = open("/dev/gleam-broker", O_RDWR | O_CLOEXEC)) >= 0 || errno != EBUSY);
	CHECK(fd >= 0);
	return fd;
}

struct gleam_event broker_event(int broker)
{
	struct gleam_event event;
	long got;

	/* What poll() saw may have been taken back: a session that ends unheard of is no event. */
	fcntl(broker, F_SETFL, O_NONBLOCK);
	for (;;) {
		struct pollfd poll_fd = { .fd = broker, .events = POLLIN };

		SAME(poll(&poll_fd, 1, 10000), 1);
		got = RC(read(broker, &event, sizeof(event)));
		if (got != -EAGAIN)
			break;
	}
	SAME(got, sizeof(event));
	return event;
}

struct gleam_event broker_expect(int broker, enum gleam_event_type type)
{
	struct gleam_event event = broker_event(broker);

	SAME(event.type, type);
	return event;
}

void broker_quiet(int broker)
{
	struct pollfd poll_fd = { .fd = broker, .events = POLLIN };

	SAME(poll(&poll_fd, 1, 50), 0);
}

int broker_take(int broker, uint32_t session, int eventfd, int *memory_out)
{
	struct gleam_take take = { .session = session, .doorbell = eventfd };
	int err = (int)RC(ioctl(broker, GLEAM_IOC_TAKE, &take));

	*memory_out = err ? -1 : take.memory;
	return err;
}

int broker_ring(int broker, uint32_t session)
{
	struct gleam_session_ref ref = { .session = session };

	return (int)RC(ioctl(broker, GLEAM_IOC_RING, &ref));
}

int broker_end(int broker, uint32_t session)
{
	struct gleam_session_ref ref = { .session = session };

	return (int)RC(ioctl(broker, GLEAM_IOC_END, &ref));
}

struct gleam_event broker_accept(int broker, int eventfd, struct shm *shm_out)
{
	struct gleam_event event = broker_expect(broker, GLEAM_EVENT_ATTACH);
	int memory;

	SAME(broker_take(broker, event.session, eventfd, &memory), 0);
	SAME(shm_map(shm_out, memory, NULL), 0);
	return event;
}

int session_try(const char *path)
{
	return (int)RC(open(path, O_RDWR | O_CLOEXEC));
}

int session_open(void)
{
	int fd = session_try("/dev/gleam");

	CHECK(fd >= 0);
	return fd;
}

void *session_map(int fd)
{
	void *base = mmap(NULL, SESSION_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(base != MAP_FAILED);
	return base;
}

struct gleam_info session_info(int fd)
{
	struct gleam_info info;

	SAME(RC(ioctl(fd, GLEAM_IOC_INFO, &info)), 0);
	return info;
}

long sessions_now(void)
{
	return kt_read_number(SYS_GLEAM "sessions");
}

void session_child_run(void *unused)
{
	session_map(session_open());
	for (;;)
		pause();
}

pid_t session_child(void)
{
	return kt_child(session_child_run, NULL, 0);
}

short events_now(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN | POLLOUT };

	CHECK(poll(&poll_fd, 1, 0) >= 0);
	return poll_fd.revents;
}
