// SPDX-License-Identifier: Apache-2.0
/*
 * Write tracking by userfaultfd in its asynchronous mode and the page map's scan. The kernel's headers of older
 * distributions know neither; numbers and structs are those of Linux 6.7.
 */
#include "libgleamcuda/track.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define FEATURE_WP_UNPOPULATED (1u << 13)
#define FEATURE_WP_ASYNC       (1u << 15)

struct scan_arg {
	uint64_t size;
	uint64_t flags;
	uint64_t start;
	uint64_t end;
	uint64_t walk_end;
	uint64_t vec;
	uint64_t vec_len;
	uint64_t max_pages;
	uint64_t category_inverted;
	uint64_t category_mask;
	uint64_t category_anyof_mask;
	uint64_t return_mask;
};
struct scan_region {
	uint64_t start;
	uint64_t end;
	uint64_t categories;
};
#define SCAN_IOCTL	   _IOWR('f', 16, struct scan_arg)
#define SCAN_WP_MATCHING   (1u << 0)
#define SCAN_CHECK_WPASYNC (1u << 1)
#define SCAN_WRITTEN	   (1u << 1)
#define SCAN_RUNS	   64u

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int fault_fd = -1;
static int map_fd = -1;

static void open_once(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = FEATURE_WP_ASYNC | FEATURE_WP_UNPOPULATED };

	const char *wish = secure_getenv("GLEAM_TRACK");

	if (wish && !strcmp(wish, "off"))
		return;
	fault_fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (fault_fd < 0)
		return;
	map_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (map_fd >= 0 && ioctl(fault_fd, UFFDIO_API, &api) == 0)
		return;
	close(fault_fd);
	fault_fd = -1;
}

bool track_begin(uint64_t start, uint64_t size)
{
	struct uffdio_register reg = { .range = { .start = start, .len = size }, .mode = UFFDIO_REGISTER_MODE_WP };
	struct uffdio_writeprotect protect = { .range = { .start = start, .len = size },
					       .mode = UFFDIO_WRITEPROTECT_MODE_WP };

	pthread_once(&once, open_once);
	if (fault_fd < 0 || ioctl(fault_fd, UFFDIO_REGISTER, &reg) < 0)
		return false;
	/* Nothing is missed: what was written before is compared whole by the first exchange. */
	if (ioctl(fault_fd, UFFDIO_WRITEPROTECT, &protect) == 0)
		return true;
	track_end(start, size);
	return false;
}

void track_end(uint64_t start, uint64_t size)
{
	struct uffdio_range range = { .start = start, .len = size };

	if (fault_fd >= 0)
		ioctl(fault_fd, UFFDIO_UNREGISTER, &range);
}

int track_written(uint64_t from, uint64_t end, struct track_run *runs, uint32_t count_max, uint64_t *next_out)
{
	struct scan_region regions[SCAN_RUNS];
	struct scan_arg arg = {
		.size = sizeof(arg),
		.flags = SCAN_WP_MATCHING | SCAN_CHECK_WPASYNC,
		.start = from,
		.end = end,
		.vec = (uint64_t)(uintptr_t)regions,
		.vec_len = count_max < SCAN_RUNS ? count_max : SCAN_RUNS,
		.category_mask = SCAN_WRITTEN,
		.return_mask = SCAN_WRITTEN,
	};
	int count = ioctl(map_fd, SCAN_IOCTL, &arg);

	if (count < 0)
		return -errno;
	for (int i = 0; i < count; i++)
		runs[i] = (struct track_run){ .start = regions[i].start, .end = regions[i].end };
	*next_out = arg.walk_end > from ? arg.walk_end : end;
	return count;
}
