// SPDX-License-Identifier: Apache-2.0
/*
 * Many at once, and nothing is left afterwards.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/kmod/dev.h"
#include "tests/kmod/genl.h"

#define PROCESSES 8
#define ROUNDS	  125 /* 1,000 together */

static void open_close_run(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		int fd = session_open();

		if (i % 4) {
			uint8_t *base = session_map(fd);

			base[SESSION_AT_UP + i * 4096] = 1;
			SAME(RC(ioctl(fd, GLEAM_IOC_DOORBELL)), 0);
			if (i % 4 == 2)
				SAME(munmap(base, SESSION_SIZE), 0);
			else if (i % 4 == 3)
				close(fd); /* before the mapping */
			if (i % 4 == 3)
				SAME(munmap(base, SESSION_SIZE), 0);
			if (i % 4 != 3)
				close(fd);
			if (i % 4 == 1)
				SAME(munmap(base, SESSION_SIZE), 0);
		} else {
			close(fd);
		}
	}
}

static void a_thousand_opens_and_closes(void)
{
	long opened = kt_read_number(SYS_GLEAM "opened");
	int broker = broker_attach();
	int bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	unsigned attached = 0, detached = 0;
	pid_t child[PROCESSES];
	struct genl genl;

	for (int i = 0; i < PROCESSES; i++)
		child[i] = kt_child(open_close_run, NULL, i & 1 ? 1000 : 0);
	for (;;) {
		struct pollfd poll_fd = { .fd = broker, .events = POLLIN };
		struct gleam_event events[16];
		ssize_t size;
		int memory;

		fcntl(broker, F_SETFL, O_NONBLOCK);
		if (poll(&poll_fd, 1, attached && attached == detached ? 300 : 5000) == 0)
			break;
		size = read(broker, events, sizeof(events));
		if (size < 0 && errno == EAGAIN)
			continue;
		CHECK(size > 0 && size % (ssize_t)sizeof(events[0]) == 0);
		for (ssize_t i = 0; i < size / (ssize_t)sizeof(events[0]); i++) {
			attached += events[i].type == GLEAM_EVENT_ATTACH;
			detached += events[i].type == GLEAM_EVENT_DETACH;
			if (events[i].type == GLEAM_EVENT_ATTACH && attached % 3 == 0 &&
			    !broker_take(broker, events[i].session, bell, &memory))
				close(memory);
			if (events[i].type == GLEAM_EVENT_ATTACH && attached % 7 == 0)
				broker_ring(broker, events[i].session);
		}
	}
	for (int i = 0; i < PROCESSES; i++)
		kt_join(child[i]);
	SAME(attached, detached);
	SAME(kt_read_number(SYS_GLEAM "opened") - opened, PROCESSES * ROUNDS);
	SAME(sessions_now(), 0);
	genl_open(&genl);
	/* No account is left: nothing is charged to anybody. */
	WAIT_FOR(genl_dump(&genl, GLEAM_CMD_LIMIT_GET, NULL, NULL) == 0);
	printf("# %u of %u sessions were heard of\n", attached, PROCESSES * ROUNDS);
}

/* Threads of one process that use one session at once, while the broker ends it. */
static int shared_fd;

static void *shared_run(void *arg)
{
	struct gleam_fd bell = { .fd = eventfd(0, EFD_CLOEXEC) };
	struct gleam_info info;

	for (int i = 0; i < 300; i++) {
		ioctl(shared_fd, GLEAM_IOC_DOORBELL);
		ioctl(shared_fd, GLEAM_IOC_EVENTFD, &bell);
		ioctl(shared_fd, GLEAM_IOC_INFO, &info);
		if (i % 10 == (long)arg) {
			void *base = mmap(NULL, SESSION_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);

			if (base != MAP_FAILED)
				munmap(base, SESSION_SIZE);
		}
		events_now(shared_fd);
	}
	close(bell.fd);
	return NULL;
}

static void threads_share_a_session(void)
{
	int broker = broker_attach();
	pthread_t threads[4];

	fcntl(broker, F_SETFL, O_NONBLOCK);

	for (int round = 0; round < 4; round++) {
		shared_fd = session_open();
		for (long i = 0; i < 4; i++)
			SAME(pthread_create(&threads[i], NULL, shared_run, (void *)i), 0);
		for (int i = 0; i < 50; i++) {
			struct gleam_event event;
			struct pollfd poll_fd = { .fd = broker, .events = POLLIN };
			int memory;

			if (poll(&poll_fd, 1, 1) != 1 || read(broker, &event, sizeof(event)) <= 0)
				continue;
			if (!broker_take(broker, event.session, -1, &memory))
				close(memory);
			broker_ring(broker, event.session);
			if (i > 20)
				broker_end(broker, event.session);
		}
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
		close(shared_fd);
	}
	WAIT_FOR(sessions_now() == 0);
}

static const struct kt_test tests[] = {
	{ "a thousand opens and closes", a_thousand_opens_and_closes },
	{ "threads share a session", threads_share_a_session },
	{ NULL, NULL },
};

const struct kt_group group_stress = { "stress", tests };
