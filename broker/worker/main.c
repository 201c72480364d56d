/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gleam-worker: plays one client's CUDA commands on a driver. Started by the node role of gleamd, never by hand.
 *
 *	gleam-worker --session-fd N --doorbell-fd N --status-fd N --driver PATH [--warm] [--no-wipe] [--no-confine]
 *		     [--grant-max BYTES] [--verbose]
 *
 * The status descriptor gets 'R' when the worker is ready, or 'E' and a line of reason. Ends with enum worker_exit.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/worker/confine.h"
#include "broker/worker/cost.h"
#include "broker/worker/executor.h"
#include "broker/worker/note.h"
#include "broker/worker/pages.h"
#include "broker/worker/print.h"
#include "broker/worker/start.h"

#define WHY_SIZE 512

static const uint8_t protocol_hash[32] = PROTOCOL_HASH;

struct options {
	int session_fd;
	int doorbell_fd;
	int status_fd;
	int pages_fd; /* -1: none */
	const char *driver;
	struct worker_settings settings;
};

static bool fd_read(const char *text, int *fd_out)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*end || end == text || value < 0 || value > 1 << 20)
		return false;
	*fd_out = (int)value;
	return true;
}

static bool options_read(int argc, char **argv, struct options *o)
{
	static const struct option known[] = {
		{ "session-fd", required_argument, NULL, 's' }, { "doorbell-fd", required_argument, NULL, 'd' },
		{ "status-fd", required_argument, NULL, 't' },	{ "driver", required_argument, NULL, 'p' },
		{ "pages-fd", required_argument, NULL, 'P' },
		{ "warm", no_argument, NULL, 'w' },		{ "no-wipe", no_argument, NULL, 'W' },
		{ "no-confine", no_argument, NULL, 'C' },	{ "grant-max", required_argument, NULL, 'g' },
		{ "verbose", no_argument, NULL, 'v' },		{ NULL, 0, NULL, 0 },
	};
	bool sound = true;
	char *end;
	int c;

	*o = (struct options){ .session_fd = -1, .doorbell_fd = -1, .status_fd = -1, .pages_fd = -1,
			       .settings = { .wipe = true, .confine = true } };
	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 's':
			sound &= fd_read(optarg, &o->session_fd);
			break;
		case 'd':
			sound &= fd_read(optarg, &o->doorbell_fd);
			break;
		case 't':
			sound &= fd_read(optarg, &o->status_fd);
			break;
		case 'P':
			sound &= fd_read(optarg, &o->pages_fd);
			break;
		case 'p':
			o->driver = optarg;
			break;
		case 'w':
			o->settings.warm = true;
			break;
		case 'W':
			o->settings.wipe = false;
			break;
		case 'C':
			o->settings.confine = false;
			break;
		case 'g':
			o->settings.grant_max = strtoull(optarg, &end, 10);
			sound &= !*end && end != optarg;
			break;
		case 'v':
			o->settings.verbose = true;
			break;
		default:
			return false;
		}
	}
	return sound && optind == argc && o->session_fd >= 0 && o->doorbell_fd >= 0 && o->status_fd >= 0 && o->driver;
}

static void status_tell(int fd, char state, const char *reason)
{
	char line[WHY_SIZE + 2];
	int size = snprintf(line, sizeof(line), "%c%s", state, reason);

	if (size > (int)sizeof(line) - 1)
		size = sizeof(line) - 1;

	ssize_t written = write(fd, line, (size_t)size);

	(void)written;
}

/* Addresses that only the driver chooses repeat when it starts in a process without randomised addresses. */
static void addresses_fix(char **argv)
{
	int now = personality(0xffffffff);

	if (now < 0 || (now & ADDR_NO_RANDOMIZE) || getenv("GLEAM_WORKER_AGAIN"))
		return;
	if (personality((unsigned long)now | ADDR_NO_RANDOMIZE) < 0)
		return;
	setenv("GLEAM_WORKER_AGAIN", "1", 1);
	execv("/proc/self/exe", argv);
	unsetenv("GLEAM_WORKER_AGAIN");
}

int main(int argc, char **argv)
{
	static struct worker w;
	struct options o;
	char why[WHY_SIZE] = "";
	pid_t parent = getppid(); /* before anything takes time: it may die while the driver starts */

	if (!options_read(argc, argv, &o)) {
		fprintf(stderr, "gleam-worker is started by gleamd; it wants --session-fd, --doorbell-fd, --status-fd and --driver\n");
		return EXIT_START;
	}
	addresses_fix(argv);
	unsetenv("GLEAM_WORKER_AGAIN");
	confine_early();
	/* The node that does not read any more is no reason to die in the middle. */
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_NAME, "gleam-worker");

	if (print_start())
		complain("device printf can't be caught");
	w.settings = o.settings;
	w.settings.given = getenv("GLEAM_WORKER_GIVEN") != NULL;
	w.parent = parent;
	w.doorbell = o.doorbell_fd;
	if ((o.pages_fd >= 0 && pages_start(&w, o.pages_fd)) || worker_start(&w, o.session_fd, protocol_hash, o.driver, why, sizeof(why)) ||
	    (o.settings.confine && confine_late(why, sizeof(why)))) {
		complain("%s", why);
		status_tell(o.status_fd, 'E', why);
		/* Without destructors: a driver that did not start may not end well either. */
		_exit(EXIT_START);
	}
	status_tell(o.status_fd, 'R', "");
	/* Nothing more to tell it; of a socket (a pipe in tests) the other direction stays. */
	if (shutdown(o.status_fd, SHUT_WR) == 0)
		w.node = o.status_fd;
	else
		close(o.status_fd);

	int code = executor_run(&w);

	cost_report();
	note(&w, "the session is over (%d)", code);
	/* The process's end frees everything, also what the GPU still waits for; the driver's own way out might wait with it. */
	_exit(code);
}
