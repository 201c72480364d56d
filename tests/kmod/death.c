// SPDX-License-Identifier: Apache-2.0
/*
 * However a process dies, wherever it is then: its session ends and the broker hears of it at once.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kmod/dev.h"
#include "tests/kmod/genl.h"

static int step[2]; /* a child says how far it has come */

static void step_init(void)
{
	SAME(pipe2(step, O_CLOEXEC), 0);
}

static void step_done(void)
{
	SAME(write(step[1], "x", 1), 1);
}

static void step_wait(void)
{
	char byte;

	SAME(read(step[0], &byte, 1), 1);
}

static void expect_death(int broker, uint32_t session, enum gleam_detach_reason reason)
{
	struct gleam_event event = broker_expect(broker, GLEAM_EVENT_DETACH);

	SAME(event.session, session);
	SAME(event.reason, reason);
	SAME(sessions_now(), 0);
	broker_quiet(broker);
}

static void opened_run(void *arg)
{
	session_open();
	step_done();
	pause();
}

static void killed_after_open(void)
{
	int broker = broker_attach();
	pid_t child;

	step_init();
	child = kt_child(opened_run, NULL, 0);
	step_wait();
	SAME(sessions_now(), 1);
	kt_kill(child);
	/* Never mapped: the broker has not heard of it and never does. */
	WAIT_FOR(sessions_now() == 0);
	broker_quiet(broker);
}

static void mapped_run(void *arg)
{
	session_map(session_open());
	step_done();
	pause();
}

static void killed_before_it_was_read(void)
{
	int broker = broker_attach();
	pid_t child;

	step_init();
	child = kt_child(mapped_run, NULL, 0);
	step_wait();
	kt_kill(child);
	WAIT_FOR(sessions_now() == 0);
	broker_quiet(broker);
}

static void killed_after_it_was_read(void)
{
	int broker = broker_attach();
	pid_t child = session_child();
	uint32_t session = broker_expect(broker, GLEAM_EVENT_ATTACH).session;

	kt_kill(child);
	expect_death(broker, session, GLEAM_DETACH_DIED);
}

static void killed_after_it_was_taken(void)
{
	int broker = broker_attach();
	pid_t child = session_child();
	int bell = eventfd(0, EFD_CLOEXEC);
	struct shm shm;
	struct gleam_event event = broker_accept(broker, bell, &shm);

	kt_kill(child);
	expect_death(broker, event.session, GLEAM_DETACH_DIED);
	/* The broker's own mapping stays whole. */
	SAME(shm_header(&shm)->client_pid, child);
	memset(shm_down(&shm), 1, 4096);
	SAME(broker_ring(broker, event.session), -ENOENT);
}

static void reader_run(void *arg)
{
	int fd = session_open();
	uint64_t count;

	session_map(fd);
	(void)!read(fd, &count, 8);
}

static void killed_while_it_reads(void)
{
	int broker = broker_attach();
	pid_t child = kt_child(reader_run, NULL, 0);
	uint32_t session = broker_expect(broker, GLEAM_EVENT_ATTACH).session;

	kt_nap_ms(20);
	kt_kill(child);
	expect_death(broker, session, GLEAM_DETACH_DIED);
}

static void ringer_run(void *arg)
{
	int fd = session_open();
	uint8_t *base = session_map(fd);

	for (uint32_t i = 0;; i++) {
		base[SESSION_AT_UP + i % SESSION_UP_SIZE] = 1;
		ioctl(fd, GLEAM_IOC_DOORBELL);
	}
}

static void killed_while_it_rings(void)
{
	int broker = broker_attach();

	for (int i = 0; i < 20; i++) {
		pid_t child = kt_child(ringer_run, NULL, 0);
		int bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		struct gleam_event event = broker_expect(broker, GLEAM_EVENT_ATTACH);
		uint32_t session = event.session;
		int memory;

		if (i & 1)
			SAME(broker_take(broker, session, bell, &memory), 0);
		kt_nap_ms(1 + (unsigned)i);
		kt_kill(child);
		while ((event = broker_event(broker)).type == GLEAM_EVENT_DOORBELL)
			;
		SAME(event.type, GLEAM_EVENT_DETACH);
		SAME(event.session, session);
		close(bell);
	}
	SAME(sessions_now(), 0);
}

static void *thread_pause(void *arg)
{
	for (;;)
		pause();
	return NULL;
}

static void threads_run(void *arg)
{
	pthread_t thread;

	session_map(session_open());
	for (int i = 0; i < 4; i++)
		SAME(pthread_create(&thread, NULL, thread_pause, NULL), 0);
	step_done();
	syscall(SYS_exit, 0); /* this thread alone */
}

static void outlives_the_thread_that_opened_it(void)
{
	int broker = broker_attach();
	uint32_t session;
	pid_t child;

	step_init();
	child = kt_child(threads_run, NULL, 0);
	session = broker_expect(broker, GLEAM_EVENT_ATTACH).session;
	step_wait();
	kt_nap_ms(20);
	SAME(sessions_now(), 1);
	broker_quiet(broker);
	kt_kill(child);
	expect_death(broker, session, GLEAM_DETACH_DIED);
}

/* A child that lives on has inherited the file, and that changes nothing. */
static void forker_run(void *arg)
{
	int fd = session_open();

	session_map(fd);
	if (!fork()) {
		step_done();
		for (;;)
			pause();
	}
	pause();
}

static void forker_opened_run(void *arg)
{
	session_open();
	if (!fork()) {
		step_done();
		for (;;)
			pause();
	}
	pause();
}

static void a_child_with_the_file_does_not_keep_it(void)
{
	int broker = broker_attach();
	uint32_t session;
	pid_t child;

	step_init();
	child = kt_child(forker_run, NULL, 0);
	session = broker_expect(broker, GLEAM_EVENT_ATTACH).session;
	step_wait();
	kt_kill(child);
	expect_death(broker, session, GLEAM_DETACH_DIED);

	/* Nor one that was never mapped. */
	child = kt_child(forker_opened_run, NULL, 0);
	step_wait();
	SAME(sessions_now(), 1);
	kt_kill(child);
	WAIT_FOR(sessions_now() == 0);
	broker_quiet(broker);
}

static void exec_run(void *arg)
{
	char *args[] = { "busybox", "sleep", "1000", NULL };
	int fd = session_open();

	fcntl(fd, F_SETFD, 0); /* inherited by the new program, which can't know of it */
	session_map(fd);
	step_wait(); /* until the broker has read of it */
	execv("/bin/busybox", args);
}

static void exec_ends_it(void)
{
	int broker = broker_attach();
	uint32_t session;
	pid_t child;

	step_init();
	child = kt_child(exec_run, NULL, 0);
	session = broker_expect(broker, GLEAM_EVENT_ATTACH).session;
	step_done();
	expect_death(broker, session, GLEAM_DETACH_CLOSED);
	kt_kill(child);
}

static void unmapping_ends_it(void)
{
	int broker = broker_attach();
	int fd = session_open();
	uint8_t *base = session_map(fd);
	uint8_t *elsewhere;
	uint32_t session = broker_expect(broker, GLEAM_EVENT_ATTACH).session;

	/* In parts, and one of them moved: it ends with the last. */
	SAME(munmap(base + SESSION_AT_UP, 4096), 0);
	SAME(mprotect(base, 4096, PROT_READ), 0);
	elsewhere = mremap(base + SESSION_AT_DOWN, SESSION_DOWN_SIZE, SESSION_DOWN_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED,
			   base + (1ull << 32));
	CHECK(elsewhere == base + (1ull << 32));
	elsewhere[0] = 1;
	SAME(munmap(base, SESSION_AT_DOWN), 0);
	SAME(munmap(base + SESSION_AT_TIMES, SESSION_SIZE - SESSION_AT_TIMES), 0);
	SAME(RC(ioctl(fd, GLEAM_IOC_DOORBELL)), 0);
	SAME(broker_expect(broker, GLEAM_EVENT_DOORBELL).session, session);
	SAME(munmap(elsewhere, SESSION_DOWN_SIZE), 0);
	expect_death(broker, session, GLEAM_DETACH_CLOSED);
	SAME(RC(ioctl(fd, GLEAM_IOC_DOORBELL)), -EPIPE);
	CHECK(mmap(NULL, SESSION_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EPIPE);
}

static void closing_ends_it(void)
{
	int broker = broker_attach();
	int fd = session_open();
	int again = dup(fd);
	uint8_t *base = session_map(fd);
	uint32_t session = broker_expect(broker, GLEAM_EVENT_ATTACH).session;

	close(fd);
	broker_quiet(broker);
	SAME(RC(ioctl(again, GLEAM_IOC_DOORBELL)), 0);
	SAME(broker_expect(broker, GLEAM_EVENT_DOORBELL).session, session);
	close(again);
	expect_death(broker, session, GLEAM_DETACH_CLOSED);
	/* The mapping is memory of the process still, and nothing else. */
	base[SESSION_AT_UP] = 1;
}

static uint64_t pages_of_root(struct genl *genl)
{
	struct genl_msg msg;
	struct genl_attrs attrs;

	return limit_get(genl, GLEAM_LIMIT_UID, 0, &msg, &attrs) ? 0 : attr_u64(&attrs, GLEAM_A_LIMIT_PAGES);
}

static void pages_are_given_back_with_the_memory(void)
{
	int broker = broker_attach();
	pid_t child = session_child();
	struct genl genl;
	struct shm shm;
	struct gleam_event event = broker_accept(broker, -1, &shm);

	genl_open(&genl);
	SAME(pages_of_root(&genl), SESSION_SIZE / 4096);
	kt_kill(child);
	expect_death(broker, event.session, GLEAM_DETACH_DIED);
	/* The broker's mapping and file still hold them. */
	SAME(pages_of_root(&genl), SESSION_SIZE / 4096);
	shm_close(&shm);
	WAIT_FOR(pages_of_root(&genl) == 0);
}

static const struct kt_test tests[] = {
	{ "killed after open", killed_after_open },
	{ "killed before the broker has read of it", killed_before_it_was_read },
	{ "killed after the broker has read of it", killed_after_it_was_read },
	{ "killed after the broker has taken it", killed_after_it_was_taken },
	{ "killed while it reads", killed_while_it_reads },
	{ "killed while it rings", killed_while_it_rings },
	{ "it outlives the thread that opened it", outlives_the_thread_that_opened_it },
	{ "a child that has the file does not keep it", a_child_with_the_file_does_not_keep_it },
	{ "exec ends it", exec_ends_it },
	{ "unmapping the last part ends it", unmapping_ends_it },
	{ "closing the last file ends it", closing_ends_it },
	{ "pages are given back with the memory", pages_are_given_back_with_the_memory },
	{ NULL, NULL },
};

const struct kt_group group_death = { "death", tests };
