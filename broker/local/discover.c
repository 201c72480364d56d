/* SPDX-License-Identifier: Apache-2.0 */
/* Servers of the LAN by DNS-SD. Control thread; see discover.h. */
#include "broker/local/discover.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/core/address.h"
#include "broker/core/hello.h"
#include "broker/lib/clock.h"
#include "broker/lib/fd.h"
#include "broker/lib/log.h"

#define DISCOVER_AGAIN_NS (15 * NS_PER_S) /* until a helper that ended is started again */
#define DISCOVER_LINE_MAX 2048

extern char **environ;

/* A process and what it prints. */
struct helper {
	struct discover *discover;
	const char *name;
	char *argv[8];
	pid_t pid; /* 0: none runs */
	int fd;
	uint64_t tag;
	bool reading;
	bool complained;
	struct loop_timer again;
	char line[DISCOVER_LINE_MAX];
	size_t size;
};

struct discover {
	struct loop *loop;
	void (*event)(void *owner, const struct discover_event *event);
	void *owner;
	bool stopped;
	char host[HELLO_HOST_SIZE];
	char port[8];
	struct helper browse;
	struct helper publish;
};

static void helper_arm(struct helper *helper);

static void child_main(const struct helper *helper, int out)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	/* A line at a time also where stdout is no terminal is what avahi-browse does by itself. */
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0)
		_exit(126);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	execvp(helper->argv[0], helper->argv);
	_exit(127);
}

static void helper_ended(struct helper *helper)
{
	struct discover *discover = helper->discover;
	int status = 0;

	fd_close(&helper->fd);
	if (helper->pid > 0) {
		kill(helper->pid, SIGKILL);
		waitpid(helper->pid, &status, 0);
	}
	helper->pid = 0;
	if (discover->stopped)
		return;
	if (!helper->complained)
		log_info("%s: %s; it is tried again, the configured servers are there all the same", helper->name,
			 WIFEXITED(status) && WEXITSTATUS(status) == 127 ? "not installed (package avahi-utils)" : "Avahi does not answer");
	helper->complained = true;
	loop_timer_set(discover->loop, &helper->again, loop_now_ns(discover->loop) + DISCOVER_AGAIN_NS);
}

static void helper_read(void *arg, int res, uint32_t flags)
{
	struct helper *helper = arg;
	struct discover *discover = helper->discover;

	helper->reading = false;
	if (!discover->stopped && (res == -EINTR || res == -EAGAIN)) {
		helper_arm(helper);
		return;
	}
	if (res <= 0 || discover->stopped) {
		helper_ended(helper);
		return;
	}
	helper->size += (size_t)res;
	for (char *end; (end = memchr(helper->line, '\n', helper->size));) {
		size_t used = (size_t)(end - helper->line) + 1;
		struct discover_event event;

		*end = 0;
		event = discover_line(helper->line);
		helper->complained = false;
		if (event.kind != DISCOVER_NONE && helper == &discover->browse)
			discover->event(discover->owner, &event);
		helper->size -= used;
		memmove(helper->line, helper->line + used, helper->size);
	}
	if (helper->size == sizeof(helper->line))
		helper->size = 0; /* not a line of Avahi's */
	helper_arm(helper);
}

static void helper_arm(struct helper *helper)
{
	struct io_uring_sqe *sqe = loop_sqe(helper->discover->loop);

	io_uring_prep_read(sqe, helper->fd, helper->line + helper->size, (unsigned)(sizeof(helper->line) - helper->size), (uint64_t)-1);
	helper->tag = loop_tag(helper->discover->loop, sqe, helper_read, helper);
	helper->reading = true;
}

static void helper_start(void *arg)
{
	struct helper *helper = arg;
	int fds[2] = { -1, -1 };

	if (helper->discover->stopped || helper->pid)
		return;
	helper->size = 0;
	if (pipe2(fds, O_CLOEXEC) < 0)
		goto failed;
	helper->pid = fork();
	if (helper->pid == 0)
		child_main(helper, fds[1]);
	if (helper->pid < 0)
		goto failed;
	close(fds[1]);
	helper->fd = fds[0];
	helper_arm(helper);
	return;

failed:
	log_warn("%s can't be started: %s", helper->name, strerror(errno));
	fd_close(&fds[0]);
	fd_close(&fds[1]);
	helper->pid = 0;
	loop_timer_set(helper->discover->loop, &helper->again, loop_now_ns(helper->discover->loop) + DISCOVER_AGAIN_NS);
}

static void helper_init(struct helper *helper, struct discover *discover, const char *name)
{
	helper->discover = discover;
	helper->name = name;
	helper->fd = -1;
	helper->again.fire = helper_start;
	helper->again.arg = helper;
}

struct discover *discover_new(struct loop *loop, const char *listen, void (*event)(void *owner, const struct discover_event *event),
			      void *owner)
{
	struct discover *discover = calloc(1, sizeof(*discover));
	const char *colon = strrchr(listen, ':');

	if (!discover)
		return NULL;
	discover->loop = loop;
	discover->event = event;
	discover->owner = owner;
	hello_host(discover->host);
	helper_init(&discover->browse, discover, "avahi-browse");
	helper_init(&discover->publish, discover, "avahi-publish-service");
	memcpy(discover->browse.argv,
	       (char *[]){ "avahi-browse", "--parsable", "--resolve", "--no-db-lookup", DISCOVER_TYPE, NULL }, 6 * sizeof(char *));
	helper_start(&discover->browse);
	if (colon && snprintf(discover->port, sizeof(discover->port), "%s", colon + 1) < (int)sizeof(discover->port)) {
		memcpy(discover->publish.argv,
		       (char *[]){ "avahi-publish-service", discover->host, DISCOVER_TYPE, discover->port, NULL }, 5 * sizeof(char *));
		helper_start(&discover->publish);
	}
	return discover;
}

static void helper_stop(struct helper *helper)
{
	loop_timer_clear(helper->discover->loop, &helper->again);
	if (helper->pid > 0)
		kill(helper->pid, SIGKILL);
	if (helper->reading)
		loop_cancel(helper->discover->loop, helper->tag);
}

void discover_stop(struct discover *discover)
{
	if (!discover || discover->stopped)
		return;
	discover->stopped = true;
	helper_stop(&discover->browse);
	helper_stop(&discover->publish);
}

bool discover_is_stopped(const struct discover *discover)
{
	return !discover || (discover->stopped && !discover->browse.reading && !discover->publish.reading);
}

void discover_free(struct discover *discover)
{
	free(discover);
}
