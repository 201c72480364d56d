// SPDX-License-Identifier: Apache-2.0
/*
 * The node's memory ledger: a mapped file, its changes made under a file lock. Any thread.
 */
#include "broker/softgpu/soft_ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEDGER_MAGIC 0x676c6565u
/* Processes with a software GPU on one node at once. */
#define LEDGER_SLOTS 512

struct ledger_slot {
	int32_t pid; /* 0: free */
	uint32_t reserved;
	uint64_t started; /* in clock ticks after boot: tells a reused pid from its predecessor */
	uint64_t used[SOFT_DEVICES_MAX];
};

struct ledger {
	uint32_t magic;
	uint32_t slot_count;
	_Atomic uint64_t until[SOFT_DEVICES_MAX];
	struct ledger_slot slots[LEDGER_SLOTS];
};

static pthread_mutex_t ledger_lock = PTHREAD_MUTEX_INITIALIZER;
/* set once by soft_ledger_setup() */
static int ledger_fd = -1;
static struct ledger *ledger;
static struct ledger_slot *ledger_own;

/* Field 22 of /proc/PID/stat; 0 where the process is gone. */
static uint64_t process_started(int pid)
{
	char path[64], text[1024];
	unsigned long long started = 0;
	char *at;
	ssize_t size;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	size = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (size <= 0)
		return 0;
	text[size] = 0;
	/* The name in parentheses may hold anything; what follows is numbers. */
	at = strrchr(text, ')');
	if (!at)
		return 0;
	for (unsigned int field = 2; field < 22 && at; field++)
		at = strchr(at + 1, ' ');
	if (!at || sscanf(at, " %llu", &started) != 1)
		return 0;
	return started;
}

static void ledger_take(void)
{
	pthread_mutex_lock(&ledger_lock);
	while (flock(ledger_fd, LOCK_EX) < 0 && errno == EINTR)
		;
}

static void ledger_give(void)
{
	flock(ledger_fd, LOCK_UN);
	pthread_mutex_unlock(&ledger_lock);
}

static void ledger_reap_locked(void)
{
	for (unsigned int i = 0; i < LEDGER_SLOTS; i++) {
		struct ledger_slot *slot = &ledger->slots[i];

		if (slot->pid && slot != ledger_own && process_started(slot->pid) != slot->started)
			memset(slot, 0, sizeof(*slot));
	}
}

static bool ledger_join_locked(void)
{
	ledger_reap_locked();
	for (unsigned int i = 0; i < LEDGER_SLOTS; i++) {
		if (ledger->slots[i].pid)
			continue;
		ledger_own = &ledger->slots[i];
		memset(ledger_own, 0, sizeof(*ledger_own));
		ledger_own->pid = getpid();
		ledger_own->started = process_started(getpid());
		return true;
	}
	return false;
}

void soft_ledger_setup(void)
{
	const char *path = getenv("GLEAM_SOFTGPU_LEDGER");
	struct stat info;
	bool joined;

	if (!path || !*path)
		return;
	ledger_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (ledger_fd < 0) {
		soft_log("ledger %s: %s; this process counts alone", path, strerror(errno));
		return;
	}
	ledger_take();
	if (fstat(ledger_fd, &info) < 0 || (info.st_size != 0 && info.st_size != (off_t)sizeof(struct ledger)) ||
	    (info.st_size == 0 && ftruncate(ledger_fd, sizeof(struct ledger)) < 0))
		goto unusable;
	ledger = mmap(NULL, sizeof(struct ledger), PROT_READ | PROT_WRITE, MAP_SHARED, ledger_fd, 0);
	if (ledger == MAP_FAILED)
		goto unusable;
	if (ledger->magic == 0) {
		ledger->magic = LEDGER_MAGIC;
		ledger->slot_count = LEDGER_SLOTS;
	}
	if (ledger->magic != LEDGER_MAGIC || ledger->slot_count != LEDGER_SLOTS) {
		munmap(ledger, sizeof(struct ledger));
		goto unusable;
	}
	joined = ledger_join_locked();
	ledger_give();
	if (!joined)
		soft_log("ledger %s: all %d slots are taken; this process counts alone", path, LEDGER_SLOTS);
	return;
unusable:
	soft_log("ledger %s: is not one of ours; this process counts alone", path);
	ledger = NULL;
	ledger_give();
	close(ledger_fd);
	ledger_fd = -1;
}

static uint64_t ledger_others_locked(CUdevice ordinal)
{
	uint64_t used = 0;

	ledger_reap_locked();
	for (unsigned int i = 0; i < LEDGER_SLOTS; i++)
		if (ledger->slots[i].pid && &ledger->slots[i] != ledger_own)
			used += ledger->slots[i].used[ordinal];
	return used;
}

CUresult soft_ledger_charge(CUdevice ordinal, uint64_t size, uint64_t total)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t used;

	if (!ledger_own)
		return CUDA_SUCCESS;
	ledger_take();
	used = ledger_others_locked(ordinal) + ledger_own->used[ordinal];
	if (used > total || size > total - used)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	else
		ledger_own->used[ordinal] += size;
	ledger_give();
	return result;
}

void soft_ledger_uncharge(CUdevice ordinal, uint64_t size)
{
	if (!ledger_own)
		return;
	ledger_take();
	ledger_own->used[ordinal] -= MIN(size, ledger_own->used[ordinal]);
	ledger_give();
}

uint64_t soft_ledger_others(CUdevice ordinal)
{
	uint64_t used;

	if (!ledger_own)
		return 0;
	ledger_take();
	used = ledger_others_locked(ordinal);
	ledger_give();
	return used;
}

_Atomic uint64_t *soft_ledger_until(int place)
{
	return ledger ? &ledger->until[place] : NULL;
}
