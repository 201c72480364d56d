/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of the /gleam tree. Control thread; see tree_mount.h. */
#include "broker/local/tree_mount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/lib/fd.h"
#include "broker/lib/log.h"

#define MOUNTS_SIZE_MAX (4u << 20) /* thousands of containers have their mounts there */
#define STALE_MAX	8	   /* daemons that were killed one after the other, each mounted over the last */
#define OUR_TYPE	"fuse.gleam"

extern char **environ;

/* Without a look at the last component, which may be a file system that doesn't answer. */
static int path_resolve(const char *path, char *out, size_t size)
{
	char folder[CONF_PATH_SIZE];
	char *real, *slash;
	int n;

	if ((size_t)snprintf(folder, sizeof(folder), "%s", path) >= sizeof(folder))
		return -ENAMETOOLONG;
	for (size_t end = strlen(folder); end > 1 && folder[end - 1] == '/'; end--)
		folder[end - 1] = 0;
	slash = strrchr(folder, '/');
	if (strcmp(folder, "/") == 0 || strcmp(slash ? slash + 1 : folder, "..") == 0 ||
	    strcmp(slash ? slash + 1 : folder, ".") == 0)
		return -EINVAL;
	if (slash)
		*slash = 0;
	real = realpath(slash ? (*folder ? folder : "/") : ".", NULL);
	if (!real)
		return -errno;
	n = snprintf(out, size, "%s/%s", strcmp(real, "/") ? real : "", slash ? slash + 1 : folder);
	free(real);
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

/* mountinfo writes space, tab, newline and backslash as three octal digits. */
static void octal_undo(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' && from[2] <= '7' && from[3] >= '0' &&
		    from[3] <= '7') {
			*to++ = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
			from += 3;
		} else {
			*to++ = *from;
		}
	}
	*to = 0;
}

/* The type of the file system mounted last at @path; -ENOENT: none is. */
static int mount_type(const char *path, char *type_out, size_t size)
{
	char *text, *rest;
	size_t text_size;
	int found = -ENOENT;
	int err = fd_read_file("/proc/self/mountinfo", MOUNTS_SIZE_MAX, &text, &text_size);

	if (err)
		return err;
	rest = text;
	for (char *line; (line = strsep(&rest, "\n"));) {
		char *words[5] = { 0 };
		char *type = strstr(line, " - ");

		for (int i = 0; i < 5; i++)
			words[i] = strsep(&line, " ");
		if (!type || !words[4])
			continue;
		octal_undo(words[4]);
		if (strcmp(words[4], path) != 0)
			continue;
		type += 3;
		snprintf(type_out, size, "%.*s", (int)strcspn(type, " "), type);
		found = 0;
	}
	free(text);
	return found;
}

/*
 * What the file system at @path says, from a process that can be left behind: a file system whose daemon is stopped answers never.
 * -ETIMEDOUT then.
 */
static int look(const char *path)
{
	pid_t pid = fork();
	struct pollfd ready = { .events = POLLIN };
	struct statfs fs;
	int status = 0;
	int err;

	/* Not stat(): the kernel may remember what that asks for. */
	if (pid == 0)
		_exit(statfs(path, &fs) == 0 ? 0 : errno & 0xff);
	if (pid < 0)
		return -errno;
	ready.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	err = ready.fd < 0 ? -errno : 0;
	if (!err && poll(&ready, 1, TREE_LOOK_MS) != 1)
		err = -ETIMEDOUT;
	if (err)
		kill(pid, SIGKILL);
	fd_close(&ready.fd);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (err)
		return err;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

static int unmount(const char *path)
{
	char *argv[] = { "fusermount3", "-u", "-z", "-q", "--", (char *)path, NULL };
	pid_t pid;
	int status;

	if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
		return 0;
	if (errno != EPERM)
		return -errno;
	if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ))
		return -EPERM;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

static int stale_remove(const char *path, char *why, size_t why_size)
{
	char type[64];

	for (int i = 0; i < STALE_MAX; i++) {
		int err = mount_type(path, type, sizeof(type));

		if (err)
			return err == -ENOENT ? 0 : err;
		if (strcmp(type, OUR_TYPE) != 0) {
			snprintf(why, why_size, "a file system of type %s is mounted there; choose another folder with --mount DIR",
				 type);
			return -EBUSY;
		}
		err = look(path);
		if (err != -ENOTCONN && err != -ECONNABORTED) {
			snprintf(why, why_size,
				 "another gleamd shows its tree there%s; stop it, or choose another folder with --mount DIR",
				 err == -ETIMEDOUT ? " and does not answer" : "");
			return -EBUSY;
		}
		err = unmount(path);
		if (err) {
			snprintf(why, why_size, "the mount of a daemon that is gone can't be removed: %s; umount -l %.200s",
				 strerror(-err), path);
			return err;
		}
		log_info("%s was left behind by a daemon that is gone: unmounted", path);
	}
	return -EBUSY;
}

/* Nobody's files are to be hidden. */
static int folder_check(const char *path)
{
	DIR *folder = opendir(path);
	int err = folder ? 0 : -errno;

	for (struct dirent *entry; folder && (entry = readdir(folder));)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			err = -ENOTEMPTY;
	if (folder)
		closedir(folder);
	return err;
}

int tree_place_take(struct tree_place *place, const char *path, char *why, size_t why_size)
{
	struct stat st;
	int err;

	*place = (struct tree_place){ 0 };
	*why = 0;
	err = path_resolve(path, place->path, sizeof(place->path));
	if (!err)
		err = stale_remove(place->path, why, why_size);
	if (!err && lstat(place->path, &st) < 0) {
		err = -errno;
		if (err == -ENOENT) {
			err = mkdir(place->path, 0755) < 0 ? -errno : 0;
			place->made = !err;
		}
	} else if (!err && !S_ISDIR(st.st_mode)) {
		err = -ENOTDIR;
	} else if (!err) {
		err = folder_check(place->path);
	}
	if (err && !*why)
		snprintf(why, why_size, "%s; choose an empty folder that you own with --mount DIR, or --no-fuse", strerror(-err));
	return err;
}

void tree_place_give(struct tree_place *place)
{
	if (place->made && rmdir(place->path) < 0)
		log_warn("%s, which this daemon made, stays: %s", place->path, strerror(errno));
	place->made = false;
}
