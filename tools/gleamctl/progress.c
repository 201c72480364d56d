// SPDX-License-Identifier: Apache-2.0
/* A bar on stderr. One thread; see progress.h. */
#include "tools/gleamctl/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define QUIET_S 1.0 /* what is done sooner needs no bar */
#define DRAW_S	0.1
#define BAR_MAX 40
#define LINE_MAX 256

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

void progress_begin(struct progress *progress, const char *what)
{
	*progress = (struct progress){ .what = what, .began_s = now_s() };
}

static int columns(void)
{
	struct winsize size;

	return ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

void progress_set(struct progress *progress, double done, double total, const char *note)
{
	double now = now_s(), share = total > 0 ? done / total : 0;
	char line[LINE_MAX], bar[BAR_MAX + 1];
	int width = columns(), room, filled;

	if (now - progress->began_s < QUIET_S || now - progress->drawn_s < DRAW_S || !isatty(2))
		return;
	progress->drawn_s = now;
	progress->shown = true;
	if (share > 1)
		share = 1;
	room = width - (int)strlen(progress->what) - (note ? (int)strlen(note) + 1 : 0) - 10;
	room = room > BAR_MAX ? BAR_MAX : room < 4 ? 4 : room;
	filled = (int)(share * room);
	memset(bar, '#', (size_t)filled);
	memset(bar + filled, '.', (size_t)(room - filled));
	bar[room] = 0;
	if (total > 0)
		snprintf(line, sizeof(line), "%s [%s] %3.0f%%%s%s", progress->what, bar, share * 100, note ? " " : "", note ? note : "");
	else
		snprintf(line, sizeof(line), "%s, %.0f s%s%s", progress->what, now - progress->began_s, note ? " " : "", note ? note : "");
	/* The whole line again, and what was there before taken away; never beyond the edge, which would begin a new one. */
	if (width > 1 && (size_t)width <= strlen(line))
		line[width - 1] = 0;
	fprintf(stderr, "\r%s\033[K", line);
	fflush(stderr);
}

void progress_end(struct progress *progress)
{
	if (progress->shown) {
		fputs("\r\033[K", stderr);
		fflush(stderr);
	}
	progress->shown = false;
}
