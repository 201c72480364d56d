/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bar on stderr for what takes longer than a second, where stderr is a terminal; nothing otherwise. Call progress_set() as
 * often as you like: it is drawn ten times a second at most. One thread.
 */
#ifndef GLEAMCTL_PROGRESS_H
#define GLEAMCTL_PROGRESS_H

#include <stdbool.h>

struct progress {
	const char *what; /* borrowed */
	double began_s;
	double drawn_s;
	bool shown;
};

void progress_begin(struct progress *progress, const char *what);
/* @total 0: nobody knows; the time is shown instead of a share. @note: behind it, or NULL. */
void progress_set(struct progress *progress, double done, double total, const char *note);
/* Takes the bar away. */
void progress_end(struct progress *progress);

#endif
