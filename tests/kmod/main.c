// SPDX-License-Identifier: Apache-2.0
/*
 * kmod-test [GROUP...]: runs tests of the kernel module and ends with a line `N passed, N failed, N skipped`.
 * kmod-test exit CODE: ends the guest, whose exit status is 2 * CODE + 1.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/io.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/kmod/kt.h"

#define KT_SKIPPED    77
#define TEST_LIMIT_MS 60000 /* emulated processors beside other work */
#define EXIT_PORT     0xf4  /* isa-debug-exit */

void kt_fail(const char *file, int line, const char *what, long got, long wanted)
{
	printf("# %s:%d: %s: %ld, not %ld\n", file, line, what, got, wanted);
	fflush(stdout);
	_exit(1);
}

void kt_skip(const char *why)
{
	printf("# skipped: %s\n", why);
	fflush(stdout);
	_exit(KT_SKIPPED);
}

pid_t kt_child(void (*run)(void *arg), void *arg, uid_t uid)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		kt_fail(__FILE__, __LINE__, "fork", -errno, 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (uid && (setresgid(uid, uid, uid) || setresuid(uid, uid, uid)))
		kt_fail(__FILE__, __LINE__, "setresuid", -errno, 0);
	run(arg);
	fflush(stdout);
	_exit(0);
}

void kt_join(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status))
		kt_fail(__FILE__, __LINE__, "status of a child", status, 0);
}

void kt_kill(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid)
		kt_fail(__FILE__, __LINE__, "waitpid", -errno, pid);
}

uint64_t kt_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void kt_nap_ms(unsigned ms)
{
	poll(NULL, 0, (int)ms);
}

bool kt_read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return false;
	got = read(fd, text, size - 1);
	close(fd);
	if (got < 0)
		return false;
	text[got] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return true;
}

long kt_read_number(const char *path)
{
	char text[64];

	return kt_read_text(path, text, sizeof(text)) ? strtol(text, NULL, 10) : -1;
}

void kt_write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		kt_fail(path, 0, "write", -errno, (long)strlen(text));
	close(fd);
}

/* ---- running ---- */

static void end_all(pid_t group)
{
	kill(-group, SIGKILL);
	while (waitpid(-group, NULL, 0) > 0)
		;
}

/* 0, 1, KT_SKIPPED. */
static int run_one(const struct kt_test *test)
{
	uint64_t until = kt_now_ms() + TEST_LIMIT_MS;
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		return 1;
	if (!pid) {
		setpgid(0, 0);
		test->run();
		fflush(stdout);
		_exit(0);
	}
	setpgid(pid, pid);
	for (;;) {
		pid_t done = waitpid(pid, &status, WNOHANG);

		if (done == pid)
			break;
		if (kt_now_ms() > until) {
			printf("# longer than %d s\n", TEST_LIMIT_MS / 1000);
			end_all(pid);
			return 1;
		}
		kt_nap_ms(2);
	}
	end_all(pid); /* its children; we are their subreaper */
	if (WIFSIGNALED(status))
		printf("# signal %d\n", WTERMSIG(status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
	static const struct kt_group *const groups[] = {
		&group_session, &group_death,	&group_broker, &group_limit,
		&group_device,	&group_netlink, &group_stress, &group_fuzz,
	};
	unsigned passed = 0, failed = 0, skipped = 0;

	if (argc == 3 && !strcmp(argv[1], "exit")) {
		if (ioperm(EXIT_PORT, 1, 1))
			return 1;
		outb((unsigned char)atoi(argv[2]), EXIT_PORT);
		return 1; /* still here */
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	signal(SIGPIPE, SIG_IGN);
	for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++) {
		bool wanted = argc < 2;

		for (int i = 1; i < argc; i++)
			wanted |= !strcmp(argv[i], groups[g]->name);
		for (const struct kt_test *test = groups[g]->tests; wanted && test->name; test++) {
			uint64_t from = kt_now_ms();
			int result = run_one(test);

			printf("%s %s: %s (%u ms)\n", !result ? "ok" : result == KT_SKIPPED ? "skipped" : "not ok",
			       groups[g]->name, test->name, (unsigned)(kt_now_ms() - from));
			if (!result)
				passed++;
			else if (result == KT_SKIPPED)
				skipped++;
			else
				failed++;
		}
	}
	printf("%u passed, %u failed, %u skipped\n", passed, failed, skipped);
	return failed || !passed;
}
