// SPDX-License-Identifier: Apache-2.0
/*
 * Random system calls on everything that the module offers: ioctl, mmap, read, write, netlink, from several processes at
 * once. Nothing is expected of an answer; what must hold is that the kernel stays whole (its log says otherwise) and that
 * in the end nothing is open and nothing charged. KMOD_FUZZ_SECONDS (3), KMOD_FUZZ_SEED (1).
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kmod/dev.h"
#include "tests/kmod/genl.h"

#define FILES 12
#define MAPS  4

struct fuzz {
	uint64_t state;
	int files[FILES];
	void *maps[MAPS];
	size_t map_sizes[MAPS];
	struct genl genl;
	bool broker; /* may attach */
	uint64_t calls;
};

static uint32_t roll(struct fuzz *fuzz, uint32_t sides)
{
	fuzz->state ^= fuzz->state << 13;
	fuzz->state ^= fuzz->state >> 7;
	fuzz->state ^= fuzz->state << 17;
	return (uint32_t)(fuzz->state >> 11) % sides;
}

/* Mostly plausible, sometimes anything. */
static uint32_t number(struct fuzz *fuzz)
{
	static const uint32_t odd[] = { 0, 1, 2, 3, 63, 64, 0x7fffffff, 0x80000000, 0xffffffff, 4096, 1000 };

	return roll(fuzz, 3) ? roll(fuzz, 16) : odd[roll(fuzz, sizeof(odd) / sizeof(odd[0]))];
}

static void file_put(struct fuzz *fuzz, int fd)
{
	uint32_t at = roll(fuzz, FILES);

	if (fd < 0)
		return;
	if (fuzz->files[at] >= 0)
		close(fuzz->files[at]);
	fuzz->files[at] = fd;
}

static int file_get(struct fuzz *fuzz)
{
	return roll(fuzz, 20) ? fuzz->files[roll(fuzz, FILES)] : (int)number(fuzz);
}

static void do_open(struct fuzz *fuzz)
{
	char path[32];
	uint32_t which = roll(fuzz, 10);

	if (which < 5)
		strcpy(path, "/dev/gleam");
	else if (which < 8)
		snprintf(path, sizeof(path), "/dev/gleam%u", roll(fuzz, 4));
	else
		strcpy(path, fuzz->broker ? "/dev/gleam-broker" : "/dev/gleam");
	file_put(fuzz, open(path, (int)(roll(fuzz, 8) ? O_RDWR : roll(fuzz, 4)) | O_CLOEXEC | O_NONBLOCK));
}

static void do_ioctl(struct fuzz *fuzz)
{
	static const unsigned long known[] = {
		GLEAM_IOC_INFO, GLEAM_IOC_DOORBELL, GLEAM_IOC_EVENTFD, GLEAM_IOC_JOIN,
		GLEAM_IOC_TAKE, GLEAM_IOC_RING,	    GLEAM_IOC_END,
	};
	uint32_t args[64];
	unsigned long cmd = known[roll(fuzz, sizeof(known) / sizeof(known[0]))];
	int fd = file_get(fuzz);

	if (!roll(fuzz, 10))
		cmd ^= 1ul << roll(fuzz, 32);
	for (size_t i = 0; i < 64; i++)
		args[i] = roll(fuzz, 3) ? 0 : number(fuzz);
	args[0] = roll(fuzz, 3) ? (uint32_t)file_get(fuzz) : number(fuzz);
	if (cmd == GLEAM_IOC_TAKE || cmd == GLEAM_IOC_RING || cmd == GLEAM_IOC_END)
		args[0] = roll(fuzz, 4) ? (uint32_t)kt_read_number(SYS_GLEAM "opened") - roll(fuzz, 8) : number(fuzz);
	if (cmd == GLEAM_IOC_TAKE)
		args[2] = (uint32_t)(roll(fuzz, 2) ? -1 : file_get(fuzz));
	if (roll(fuzz, 30))
		ioctl(fd, cmd, cmd == GLEAM_IOC_DOORBELL ? NULL : args);
	else
		ioctl(fd, cmd, (void *)(uintptr_t)((uint64_t)number(fuzz) << roll(fuzz, 33)));
	if (cmd == GLEAM_IOC_TAKE)
		file_put(fuzz, (int)args[3] > 2 ? (int)args[3] : -1);
}

static void do_map(struct fuzz *fuzz)
{
	uint32_t at = roll(fuzz, MAPS);
	size_t size = roll(fuzz, 4) ? SESSION_SIZE : (size_t)number(fuzz) + 1;
	int prot = roll(fuzz, 8) ? PROT_READ | PROT_WRITE : (int)roll(fuzz, 8);
	void *base;

	if (size > 1ul << 30)
		size = 1ul << 30;
	if (fuzz->maps[at])
		munmap(fuzz->maps[at], fuzz->map_sizes[at]);
	fuzz->maps[at] = NULL;
	base = mmap(NULL, size, prot, roll(fuzz, 8) ? MAP_SHARED : MAP_PRIVATE, file_get(fuzz),
		    roll(fuzz, 8) ? 0 : (off_t)number(fuzz) << 12);
	if (base == MAP_FAILED)
		return;
	fuzz->maps[at] = base;
	fuzz->map_sizes[at] = size;
}

/* What one may do to a mapping; nothing that would make a later touch a fault. */
static void do_mapping(struct fuzz *fuzz)
{
	uint32_t at = roll(fuzz, MAPS);
	uint8_t *base = fuzz->maps[at];
	size_t size = fuzz->map_sizes[at];

	if (!base || size != SESSION_SIZE)
		return;

	uint8_t *part = base + ((size_t)roll(fuzz, SESSION_SIZE / 4096) << 12);

	switch (roll(fuzz, 7)) {
	case 0:
		munmap(part, 4096 * (1 + (size_t)roll(fuzz, 4)));
		break;
	case 1:
		mprotect(part, 4096, (int)roll(fuzz, 8));
		break;
	case 2:
		madvise(part, 65536, (int)roll(fuzz, 26));
		break;
	case 3:
		msync(part, 4096, (int)roll(fuzz, 8));
		break;
	case 4:
		mremap(part, 4096, 4096 * (1 + (size_t)roll(fuzz, 3)), MREMAP_MAYMOVE);
		break;
	case 5:
		mlock(part, 4096);
		break;
	default: {
		/* Written through the kernel, which answers EFAULT where there is nothing any more. */
		int pipes[2];

		if (pipe(pipes))
			break;
		(void)!write(pipes[1], "gleam-gleam-gleam", 16);
		(void)!read(pipes[0], part, 16);
		close(pipes[0]);
		close(pipes[1]);
	}
	}
}

static void do_read_write(struct fuzz *fuzz)
{
	uint8_t bytes[1024];
	int fd = file_get(fuzz);
	size_t size = roll(fuzz, 2) ? 8 : number(fuzz) % sizeof(bytes);

	if (fd < 3)
		return;
	if (roll(fuzz, 2))
		(void)!read(fd, bytes, size);
	else
		(void)!write(fd, bytes, size);
}

static void do_netlink(struct fuzz *fuzz)
{
	struct genl_msg msg;
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	uint8_t drop[8192];
	uint8_t cmd = (uint8_t)(roll(fuzz, 10) ? roll(fuzz, __GLEAM_CMD_MAX) : number(fuzz));

	msg_begin(&fuzz->genl, &msg, cmd, roll(fuzz, 4) ? 0 : NLM_F_DUMP);
	for (uint32_t i = roll(fuzz, 6); i; i--) {
		uint16_t type = (uint16_t)(roll(fuzz, 10) ? roll(fuzz, 9) : number(fuzz));

		switch (roll(fuzz, 5)) {
		case 0:
			msg_u64(&msg, type, (uint64_t)number(fuzz) << roll(fuzz, 33));
			break;
		case 1:
			msg_str(&msg, type, roll(fuzz, 2) ? "name" : "\x7f\n");
			break;
		case 2:
			msg_raw(&msg, type, drop, roll(fuzz, 100));
			break;
		default:
			msg_u32(&msg, type, number(fuzz));
		}
	}
	if (!roll(fuzz, 8) && msg.size > NLMSG_HDRLEN)
		msg.bytes[roll(fuzz, msg.size - 4) + 4] ^= (uint8_t)(1u << roll(fuzz, 8));
	msg.hdr.nlmsg_len = msg.size;
	sendto(fuzz->genl.fd, msg.bytes, msg.size, MSG_DONTWAIT, (struct sockaddr *)&kernel, sizeof(kernel));
	while (recv(fuzz->genl.fd, drop, sizeof(drop), MSG_DONTWAIT) > 0)
		;
}

static void do_device(struct fuzz *fuzz)
{
	if (roll(fuzz, 2))
		device_add(&fuzz->genl, "GPU", "a", number(fuzz), (int)roll(fuzz, 4), -1);
	else
		device_del(&fuzz->genl, roll(fuzz, 4));
}

static void fuzz_one(struct fuzz *fuzz)
{
	fuzz->calls++;
	switch (roll(fuzz, 16)) {
	case 0:
	case 1:
		do_open(fuzz);
		break;
	case 2:
		if (!roll(fuzz, 4))
			file_put(fuzz, roll(fuzz, 2) ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : dup(file_get(fuzz)));
		break;
	case 3:
	case 4:
		do_map(fuzz);
		break;
	case 5:
	case 6:
		do_mapping(fuzz);
		break;
	case 7:
	case 8:
		do_read_write(fuzz);
		break;
	case 9:
		do_netlink(fuzz);
		break;
	case 10:
		if (fuzz->broker && !roll(fuzz, 3))
			do_device(fuzz);
		break;
	case 11:
		if (!roll(fuzz, 20) && fork() == 0) {
			/* holds everything for a moment */
			kt_nap_ms(roll(fuzz, 5));
			_exit(0);
		}
		break;
	default:
		do_ioctl(fuzz);
	}
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

static void fuzz_run(void *arg)
{
	struct fuzz fuzz = { .state = *(uint64_t *)arg * 0x9e3779b97f4a7c15ull + 1, .broker = *(uint64_t *)arg % 3 == 0 };

	for (int i = 0; i < FILES; i++)
		fuzz.files[i] = -1;
	genl_open(&fuzz.genl);
	/* A new life from time to time: until somebody kills it. */
	for (;;)
		fuzz_one(&fuzz);
}

static void random_calls(void)
{
	const char *seconds = getenv("KMOD_FUZZ_SECONDS"), *seed_text = getenv("KMOD_FUZZ_SEED");
	uint64_t until = kt_now_ms() + 1000 * (seconds ? strtoul(seconds, NULL, 10) : 3);
	uint64_t seed = seed_text ? strtoull(seed_text, NULL, 10) : 1, lives = 0;
	uint64_t seeds[6];
	pid_t child[6];
	struct genl genl;

	for (int i = 0; i < 6; i++) {
		seeds[i] = seed * 1000003 + lives++;
		child[i] = kt_child(fuzz_run, &seeds[i], i & 1 ? 1000 : 0);
	}
	while (kt_now_ms() < until) {
		int i = (int)(lives % 6);

		kt_nap_ms(40);
		kill(child[i], SIGKILL);
		waitpid(child[i], NULL, 0);
		seeds[i] = seed * 1000003 + lives++;
		child[i] = kt_child(fuzz_run, &seeds[i], i & 1 ? 1000 : 0);
	}
	for (int i = 0; i < 6; i++)
		kt_kill(child[i]);

	/* One that does its work finds nothing left, and an end of what was left. */
	int broker = broker_attach();

	WAIT_FOR(sessions_now() == 0);
	genl_open(&genl);
	for (unsigned i = 0; i < GLEAM_DEVICES_MAX; i++)
		device_del(&genl, i);
	close(session_open());
	close(broker);
	printf("# seed %llu, %llu lives\n", (unsigned long long)seed, (unsigned long long)lives);
}

static const struct kt_test tests[] = {
	{ "random calls", random_calls },
	{ NULL, NULL },
};

const struct kt_group group_fuzz = { "fuzz", tests };
