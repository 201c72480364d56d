// SPDX-License-Identifier: Apache-2.0
/*
 * The way to gleamd through the kernel module; see kdev.h. The packets are those of the socket (broker/proto/door.h).
 */
#include "libgleamcuda/kdev.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker/lib/futex.h"
#include "broker/proto/door.h"
#include "kmod/include/uapi/linux/gleam.h"
#include "libgleamcuda/log.h"

#define LOOK_MS 50 /* how often a waiting opener looks whether the session is over */

static int device_try(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct gleam_info info;
	int err;

	if (fd < 0)
		return -errno;
	/* Whatever lies at that path: it must be ours, and speak what we do. */
	if (ioctl(fd, GLEAM_IOC_INFO, &info) < 0 || info.abi != GLEAM_ABI_VERSION || info.memory_size != SESSION_SIZE) {
		err = -EPROTONOSUPPORT;
		gleam_log("%s: the kernel module is of another version; the socket is tried", path);
		close(fd);
		return err;
	}
	return fd;
}

/* All single GPUs that may be opened, joined into one session. */
static int devices_join(void)
{
	int found = -EACCES;

	for (unsigned i = 0; i < GLEAM_DEVICES_MAX; i++) {
		char path[32];
		int fd;

		snprintf(path, sizeof(path), "/dev/gleam%u", i);
		fd = device_try(path);
		if (fd < 0)
			continue;
		if (found < 0) {
			found = fd;
			continue;
		}

		struct gleam_fd join = { .fd = fd };

		if (ioctl(found, GLEAM_IOC_JOIN, &join) < 0)
			gleam_log("%s: %s; this GPU is left out", path, strerror(errno));
		close(fd);
	}
	return found;
}

int kdev_find(void)
{
	int fd = device_try("/dev/gleam");

	/* ENXIO: the module is there, and gleamd is not: the socket can't work either, but its message is the better one. */
	if (fd == -EACCES || fd == -EPERM)
		fd = devices_join();
	if (fd == -EDQUOT)
		gleam_log("/dev/gleam: a limit on sessions or their memory is reached");
	return fd;
}

int kdev_map(int fd, struct shm *shm_out)
{
	void *base = mmap(NULL, SESSION_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (base == MAP_FAILED)
		return -errno;
	/* The kernel has written the header, and keeps it from children of a fork. */
	*shm_out = (struct shm){ .base = base, .fd = -1 };
	return 0;
}

bool kdev_is_over(int fd)
{
	struct pollfd poll_fd = { .fd = fd };

	return poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & (POLLHUP | POLLERR | POLLNVAL));
}

int kdev_ask(int fd, const struct shm *shm, const void *packet, size_t size, void *answer, size_t answer_size, int wait_ms)
{
	struct door *ask = (struct door *)(void *)(shm->base + DOOR_AT_ASK);
	struct door *door = (struct door *)(void *)(shm->base + DOOR_AT_ANSWER);

	if (size > sizeof(ask->bytes))
		return -EMSGSIZE;
	memcpy(ask->bytes, packet, size);
	ask->size = (uint32_t)size;
	/* Pairs with the acquire in the broker's ask_take(). */
	__atomic_store_n(&ask->state, DOOR_FULL, __ATOMIC_RELEASE);
	if (ioctl(fd, GLEAM_IOC_DOORBELL, 0) < 0)
		return -errno;
	/* Pairs with the release in the broker's answer_post(). */
	while (__atomic_load_n(&door->state, __ATOMIC_ACQUIRE) != DOOR_FULL) {
		if (kdev_is_over(fd))
			return -ECONNRESET;
		if (wait_ms <= 0)
			return -ETIMEDOUT;
		futex_wait(&door->state, DOOR_EMPTY, LOOK_MS * 1000000ll);
		wait_ms -= LOOK_MS;
	}

	uint32_t got = __atomic_load_n(&door->size, __ATOMIC_RELAXED);

	if (got > answer_size || got > sizeof(door->bytes))
		return -EMSGSIZE;
	memcpy(answer, door->bytes, got);
	return (int)got;
}
