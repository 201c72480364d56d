// SPDX-License-Identifier: Apache-2.0
/* A child per side, and the two pipes to it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/gleam-bench/bench.h"

#define ANSWER_MS 120000 /* a turn of a large copy with everything off over a slow network */

/* One line without its end; -1 when there is none in time. */
static int line_read(struct side *side, char *line, size_t size)
{
	size_t at = 0;

	for (;;) {
		struct pollfd poll_fd = { .fd = side->from, .events = POLLIN };
		char c;

		if (poll(&poll_fd, 1, ANSWER_MS) <= 0 && errno != EINTR)
			return -1;
		if (read(side->from, &c, 1) != 1)
			return -1;
		if (c == '\n')
			break;
		if (at < size - 1)
			line[at++] = c;
	}
	line[at] = '\0';
	return 0;
}

int side_start(struct side *side, char *why, size_t size)
{
	int to[2], from[2];
	char line[256];

	if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0) {
		snprintf(why, size, "%s", strerror(errno));
		return -1;
	}
	side->pid = fork();
	if (side->pid == 0) {
		/* Nothing of it outlives us. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGPIPE, SIG_DFL);
		dup2(to[0], STDIN_FILENO);
		dup2(from[1], STDOUT_FILENO);
		if (side->off)
			setenv("GLEAM_OFF", side->off, 1);
		execl("/proc/self/exe", "gleam-bench", "--side", side->library, (char *)NULL);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	side->to = to[1];
	side->from = from[0];
	if (side->pid < 0) {
		snprintf(why, size, "%s", strerror(errno));
		return -1;
	}
	if (line_read(side, line, sizeof(line)) || strncmp(line, "ready ", 6) != 0) {
		snprintf(why, size, "%s", strncmp(line, "no ", 3) == 0 ? line + 3 : "its process ended before it was ready");
		return -1;
	}
	snprintf(side->device, sizeof(side->device), "%.127s", line + 6);
	return 0;
}

int side_ask(struct side *side, const struct row *row, uint64_t size, double seconds, double values_out[VALUES_MAX], char *why,
	     size_t why_size)
{
	char line[256];
	int length = snprintf(line, sizeof(line), "%s %llu %f\n", row->name, (unsigned long long)size, seconds);

	if (write(side->to, line, (size_t)length) != length || line_read(side, line, sizeof(line))) {
		snprintf(why, why_size, "the process of this side has ended");
		return -1;
	}
	if (sscanf(line, "ok %lf %lf", &values_out[0], &values_out[1]) == 2)
		return 0;
	snprintf(why, why_size, "%s", strncmp(line, "no ", 3) == 0 ? line + 3 : line);
	return 1;
}

void side_stop(struct side *side)
{
	if (side->pid <= 0)
		return;
	close(side->to);
	close(side->from);
	for (int i = 0; i < 100 && waitpid(side->pid, NULL, WNOHANG) == 0; i++) {
		usleep(20000);
		if (i == 98)
			kill(side->pid, SIGKILL);
	}
	side->pid = 0;
}
