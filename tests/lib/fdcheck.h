/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does a test program give back every descriptor it opens? In main():
 *
 *	struct fdcheck fds;
 *
 *	fdcheck_begin(&fds);
 *	failed = cmocka_run_group_tests(tests, NULL, NULL);
 *	return fdcheck_end(&fds) ? 1 : failed;
 *
 * Also usable around a part of a program. Not for programs whose other threads open files meanwhile.
 */
#ifndef TESTS_LIB_FDCHECK_H
#define TESTS_LIB_FDCHECK_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Descriptors above are not looked at; `ulimit -n` of a user is 1024. */
#define FDCHECK_MAX 4096

struct fdcheck {
	bool open[FDCHECK_MAX];
};

static inline void fdcheck_look(struct fdcheck *check)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;

	memset(check, 0, sizeof(*check));
	while (dir && (entry = readdir(dir))) {
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] != '.' && fd != dirfd(dir) && fd < FDCHECK_MAX)
			check->open[fd] = true;
	}
	if (dir)
		closedir(dir);
}

static inline void fdcheck_begin(struct fdcheck *check)
{
	fdcheck_look(check);
}

/* The number of descriptors that are open now and were not at the beginning; each is named on stderr. */
static inline int fdcheck_end(const struct fdcheck *check)
{
	struct fdcheck now;
	int leaked = 0;

	fdcheck_look(&now);
	for (int fd = 0; fd < FDCHECK_MAX; fd++) {
		char link[64], target[256];
		ssize_t length;

		if (!now.open[fd] || check->open[fd])
			continue;
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		length = readlink(link, target, sizeof(target) - 1);
		target[length > 0 ? length : 0] = 0;
		fprintf(stderr, "descriptor %d was left open: %s\n", fd, target);
		leaked++;
	}
	return leaked;
}

#endif
