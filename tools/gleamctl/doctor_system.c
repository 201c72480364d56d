// SPDX-License-Identifier: Apache-2.0
/* gleamctl doctor: the library's place, io_uring, FUSE, limits, kernel module, clock. One thread; see doctor.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/lib/fd.h"
#include "tools/gleamctl/doctor.h"
#include "tools/gleamctl/value.h"

#define FILES_LEAST   4096 /* of gleamd: three a client, a few a link */
#define LOOK_MS	      2000 /* a tree that doesn't answer in this time hangs */
#define LIBRARY_MAX   (256ll << 20)
#define FUSE_MAGIC    0x65735546
#define TEXT_FILE_MAX (1u << 20)

/* ---- the library ---- */

/* Whether a file is Gleam's library: by the symbol that gleamd asks for, too. It is not loaded. */
static bool library_is_ours(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	bool ours = false;
	void *bytes;

	if (fd < 0)
		return false;
	if (fstat(fd, &st) == 0 && st.st_size > 0 && st.st_size < LIBRARY_MAX) {
		bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (bytes != MAP_FAILED) {
			ours = memmem(bytes, (size_t)st.st_size, "\0gleam_version", sizeof("\0gleam_version")) != NULL;
			munmap(bytes, (size_t)st.st_size);
		}
	}
	close(fd);
	return ours;
}

/* The first libcuda.so.1 of this machine's architecture in ldconfig's list. */
static bool library_first(char out[PATH_MAX])
{
	FILE *list = popen("PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null", "re");
	char line[PATH_MAX + 128];
	bool found = false;

	while (list && fgets(line, sizeof(line), list)) {
		char *arrow = strstr(line, " => ");

		line[strcspn(line, "\n")] = 0;
		if (found || !arrow || !strstr(line, "libcuda.so.1 (") || !strstr(line, "x86-64"))
			continue;
		snprintf(out, PATH_MAX, "%s", arrow + 4);
		found = true;
	}
	if (list)
		pclose(list);
	return found;
}

static void library_path_look(struct doctor *doctor)
{
	const char *set = getenv("LD_LIBRARY_PATH");
	char *all = strdup(set ? set : ""), *rest = all, path[PATH_MAX];

	for (char *folder; all && (folder = strsep(&rest, ":"));) {
		if (!*folder || (size_t)snprintf(path, sizeof(path), "%s/libcuda.so.1", folder) >= sizeof(path) || access(path, F_OK) < 0)
			continue;
		if (library_is_ours(path))
			doctor_say(doctor, LEVEL_OK, "library", NULL, "LD_LIBRARY_PATH of this shell leads to Gleam's: %s", path);
		else
			doctor_say(doctor, LEVEL_WARN, "library", "take that folder out of LD_LIBRARY_PATH, or use gleamctl run -- PROGRAM",
				   "LD_LIBRARY_PATH of this shell leads to another driver: %s", path);
		break;
	}
	free(all);
	if (getenv("LD_PRELOAD") && strstr(getenv("LD_PRELOAD"), "libcuda"))
		doctor_say(doctor, LEVEL_WARN, "library", "unset LD_PRELOAD", "LD_PRELOAD names a libcuda: %s", getenv("LD_PRELOAD"));
}

void doctor_library(struct doctor *doctor)
{
	char path[PATH_MAX];

	if (!library_first(path))
		doctor_say(doctor, LEVEL_NOTE, "library", "gleamctl run -- PROGRAM works all the same; make install, or ldconfig as root",
			   "the linker's list has no libcuda.so.1: programs find no CUDA by themselves");
	else if (library_is_ours(path))
		doctor_say(doctor, LEVEL_OK, "library", NULL, "programs find Gleam's libcuda.so.1 first: %s", path);
	else
		doctor_say(doctor, LEVEL_WARN, "library",
			   "gleamctl run -- PROGRAM works all the same; /etc/ld.so.conf.d/000-gleam.conf and ldconfig put Gleam's first",
			   "programs find another driver's libcuda.so.1 first: %s", path);
	library_path_look(doctor);
}

/* ---- io_uring ---- */

void doctor_io_uring(struct doctor *doctor)
{
	struct io_uring_params params = { 0 };
	int fd = (int)syscall(SYS_io_uring_setup, 4, &params);
	int err = errno;
	struct utsname system;

	uname(&system);
	if (fd >= 0) {
		close(fd);
		doctor_say(doctor, LEVEL_OK, "io_uring", NULL, "works");
		return;
	}
	/* A user may be refused what the daemon, run by root, may do. */
	doctor_say(doctor, geteuid() == 0 ? LEVEL_FAIL : LEVEL_WARN, "io_uring",
		   err == EPERM ? "sysctl kernel.io_uring_disabled must be 0 (1: for root alone); a container must allow io_uring_setup, "
				  "_enter and _register" :
		   err == ENOMEM ? "raise the limit on locked memory: LimitMEMLOCK= in the unit" :
				   "gleamd needs Linux 5.15 or newer with CONFIG_IO_URING",
		   "io_uring_setup is refused on this kernel (%s): %s", system.release, strerror(err));
}

/* ---- FUSE ---- */

/* From a process that can be left behind: a tree whose daemon hangs never answers. 0 and the type, -errno. */
static int tree_look(const char *path, long *type_out)
{
	int fds[2], err = -ETIMEDOUT;
	struct pollfd ready;
	struct statfs fs;
	long type;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		type = statfs(path, &fs) == 0 ? (long)fs.f_type : -errno;
		_exit(write(fds[1], &type, sizeof(type)) == sizeof(type) ? 0 : 1);
	}
	close(fds[1]);
	ready = (struct pollfd){ .fd = fds[0], .events = POLLIN };
	if (pid > 0 && poll(&ready, 1, LOOK_MS) == 1 && read(fds[0], &type, sizeof(type)) == sizeof(type)) {
		err = type < 0 ? (int)type : 0;
		*type_out = type;
	} else if (pid > 0) {
		kill(pid, SIGKILL);
	}
	close(fds[0]);
	if (pid > 0)
		waitpid(pid, NULL, err == -ETIMEDOUT ? WNOHANG : 0);
	return err;
}

void doctor_fuse(struct doctor *doctor)
{
	const char *path = *doctor->conf.mount ? doctor->conf.mount : NULL;
	long type = 0;
	int err;

	if (!path)
		return;
	err = tree_look(path, &type);
	if (err == 0 && type == FUSE_MAGIC)
		doctor_say(doctor, LEVEL_OK, "tree", NULL, "%s is mounted and answers", path);
	else if (err == -ENOTCONN)
		doctor_say(doctor, LEVEL_FAIL, "tree", "restart gleamd: it clears that away", "%s was left behind by a gleamd that is gone", path);
	else if (err == -ETIMEDOUT)
		doctor_say(doctor, LEVEL_FAIL, "tree", "does gleamd hang? gleamctl status; restart it", "%s does not answer", path);
	else if (access("/dev/fuse", F_OK) < 0)
		doctor_say(doctor, LEVEL_WARN, "tree", "modprobe fuse, or give the container /dev/fuse; gleamctl works without it",
			   "%s is not mounted: there is no /dev/fuse", path);
	else
		doctor_say(doctor, LEVEL_NOTE, "tree", "gleamd run by root mounts it; the log says why if it could not",
			   "%s is not mounted", path);
}

/* ---- limits ---- */

/* "Max open files   1024   4096   files": the first number, ULLONG_MAX for unlimited, 0 if it can't be read. */
static unsigned long long limit_of(long long pid, const char *name)
{
	char path[64], *text, *at;
	unsigned long long value = 0;
	size_t size;

	snprintf(path, sizeof(path), "/proc/%lld/limits", pid);
	if (fd_read_file(path, TEXT_FILE_MAX, &text, &size))
		return 0;
	at = strstr(text, name);
	if (at) {
		at += strlen(name);
		at += strspn(at, " ");
		value = strncmp(at, "unlimited", 9) == 0 ? ULLONG_MAX : strtoull(at, NULL, 10);
	}
	free(text);
	return value;
}

void doctor_limits(struct doctor *doctor)
{
	struct rlimit limit;
	unsigned long long files = doctor->status ? limit_of(whole_of(doctor->status, "pid"), "Max open files") : 0;

	if (files && files < FILES_LEAST)
		doctor_say(doctor, LEVEL_WARN, "limits", "LimitNOFILE=65536 in gleamd's unit, or ulimit -n before it starts",
			   "gleamd may open %llu files: enough for some %llu programs", files, files / 4);
	else if (files)
		doctor_say(doctor, LEVEL_OK, "limits", NULL, "gleamd may open %llu files", files);
	/* The library reserves a range of addresses for each device. */
	if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		doctor_say(doctor, LEVEL_FAIL, "limits", "ulimit -v unlimited, before a program starts",
			   "addresses are limited to %llu MiB here: CUDA needs terabytes of them, of no memory",
			   (unsigned long long)limit.rlim_cur >> 20);
}

/* ---- the kernel module ---- */

void doctor_kernel(struct doctor *doctor)
{
	char *text = NULL;
	size_t size;
	long long broker;

	if (access("/sys/class/misc/gleam", F_OK) < 0) {
		doctor_say(doctor, LEVEL_NOTE, "kernel", NULL, "gleam.ko is not loaded; it is optional, programs use the socket");
		return;
	}
	if (fd_read_file("/sys/class/misc/gleam/broker", 64, &text, &size)) {
		doctor_say(doctor, LEVEL_WARN, "kernel", "modprobe -r gleam; modprobe gleam", "gleam.ko does not tell its broker");
		return;
	}
	broker = atoll(text);
	free(text);
	if (broker <= 0)
		doctor_say(doctor, LEVEL_WARN, "kernel", "restart gleamd without --socket: it attaches when it starts",
			   "gleam.ko is loaded and no gleamd has attached: programs use the socket");
	else if (access("/dev/gleam", R_OK | W_OK) < 0)
		doctor_say(doctor, LEVEL_NOTE, "kernel", "a udev rule gives it to a group: docs/kernel.md",
			   "gleam.ko is in use by pid %lld; you may not open /dev/gleam", broker);
	else
		doctor_say(doctor, LEVEL_OK, "kernel", NULL, "gleam.ko is in use by pid %lld", broker);
}

/* ---- the clock ---- */

void doctor_clock(struct doctor *doctor)
{
	struct timex state = { 0 };
	int ret = adjtimex(&state);

	/* Nothing in the protocol depends on it; the ages of files in the weight cache and people who compare logs do. */
	if (ret == TIME_ERROR || (ret >= 0 && (state.status & STA_UNSYNC)))
		doctor_say(doctor, LEVEL_NOTE, "clock", "timedatectl set-ntp true, or chrony",
			   "nothing keeps this machine's clock right: logs of two machines are hard to compare");
	else if (ret >= 0)
		doctor_say(doctor, LEVEL_OK, "clock", NULL, "is kept right, to about %.1f ms", (double)state.esterror / 1000);
}
