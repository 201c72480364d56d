/* SPDX-License-Identifier: Apache-2.0 */
/* Names, locks and remains of labs; see lanem_lab.h. */
#include "tests/lab/lanem_lab.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* The same lock file is removed by its last owner, so opening it may find one that is about to go. */
#define CLAIM_TRIES 20

int lab_name(struct lab *lab, const char *name, const char *control_path)
{
	size_t length = strlen(name);

	*lab = (struct lab){ .lock_fd = -1 };
	if (length == 0)
		return -EINVAL;
	if (length > LAB_NAME_MAX)
		return -ENAMETOOLONG;
	for (size_t i = 0; i < length; i++)
		if (!isalnum((unsigned char)name[i]) && name[i] != '-' && name[i] != '_')
			return -EINVAL;
	memcpy(lab->name, name, length + 1);
	/* In a user namespace root's /run is not ours. */
	if (geteuid() == 0 && access("/run", W_OK) == 0)
		snprintf(lab->dir, sizeof(lab->dir), "/run/lanem");
	else
		snprintf(lab->dir, sizeof(lab->dir), "/tmp/lanem-%u", geteuid());
	snprintf(lab->lock_path, sizeof(lab->lock_path), "%s/%s.lock", lab->dir, name);
	for (int i = 0; i < 2; i++)
		snprintf(lab->netns_name[i], sizeof(lab->netns_name[i]), "%s-%c", name, "ab"[i]);
	if (control_path && strlen(control_path) >= LAB_PATH_MAX)
		return -ENAMETOOLONG;
	if (control_path)
		snprintf(lab->control_path, sizeof(lab->control_path), "%s", control_path);
	else
		snprintf(lab->control_path, sizeof(lab->control_path), "%s/%s.sock", lab->dir, name);
	return 0;
}

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), err = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		err = -errno;
	close(fd);
	return err;
}

int lab_become_root(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[32];
	int err;

	if (uid == 0)
		return 0;
	if (unshare(CLONE_NEWUSER) < 0)
		return -errno;
	snprintf(map, sizeof(map), "0 %u 1", uid);
	err = write_file("/proc/self/uid_map", map);
	if (err)
		return err;
	/* Without this an ordinary user may not map a group. */
	err = write_file("/proc/self/setgroups", "deny");
	if (err && err != -ENOENT)
		return err;
	snprintf(map, sizeof(map), "0 %u 1", gid);
	return write_file("/proc/self/gid_map", map);
}

/* /tmp is everybody's: the folder must be ours and nobody else's, or the socket in it means nothing. */
static int own_dir(const char *path)
{
	struct stat st;

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return -errno;
	if (lstat(path, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 022)
		return -EPERM;
	return 0;
}

static void netns_path(const struct lab *lab, int end, char *path, size_t size)
{
	snprintf(path, size, "%s/%s", LAB_NETNS_DIR, lab->netns_name[end]);
}

static void unpublish(const struct lab *lab)
{
	char path[128];

	for (int end = 0; end < 2; end++) {
		netns_path(lab, end, path, sizeof(path));
		while (umount2(path, MNT_DETACH) == 0)
			;
		unlink(path);
	}
}

int lab_claim(struct lab *lab)
{
	struct stat opened, named;
	char pid[16];
	int fd, err = own_dir(lab->dir);

	if (err)
		return err;
	for (int i = 0; i < CLAIM_TRIES; i++) {
		fd = open(lab->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0)
			return -errno;
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			err = errno == EWOULDBLOCK ? -EBUSY : -errno;
			close(fd);
			return err;
		}
		/* Locked, but is it still the one that others find by this name? */
		if (fstat(fd, &opened) == 0 && stat(lab->lock_path, &named) == 0 &&
		    opened.st_ino == named.st_ino)
			break;
		close(fd);
		fd = -1;
	}
	if (fd < 0)
		return -EBUSY;
	lab->lock_fd = fd;
	snprintf(pid, sizeof(pid), "%d\n", getpid());
	if (ftruncate(fd, 0) < 0 || write(fd, pid, strlen(pid)) < 0) {
		err = -errno;
		lab_release(lab);
		return err;
	}
	/* The lock was free, so whoever made these is dead. The TUN interfaces went with its descriptors. */
	unpublish(lab);
	return 0;
}

int lab_publish(struct lab *lab, const int namespace_fd[2])
{
	char path[128], source[64];
	int fd, err;

	if (mkdir(LAB_NETNS_DIR, 0755) < 0 && errno != EEXIST)
		return -errno;
	lab->published = true;
	for (int end = 0; end < 2; end++) {
		netns_path(lab, end, path, sizeof(path));
		fd = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
		if (fd < 0) {
			err = -errno;
			goto undo;
		}
		close(fd);
		snprintf(source, sizeof(source), "/proc/self/fd/%d", namespace_fd[end]);
		if (mount(source, path, "none", MS_BIND, NULL) < 0) {
			err = -errno;
			goto undo;
		}
	}
	return 0;

undo:
	unpublish(lab);
	lab->published = false;
	return err;
}

void lab_release(struct lab *lab)
{
	if (lab->published)
		unpublish(lab);
	lab->published = false;
	if (lab->lock_fd < 0)
		return;
	unlink(lab->control_path);
	unlink(lab->lock_path);
	close(lab->lock_fd);
	lab->lock_fd = -1;
	/* Stays where another lab is in it. */
	rmdir(lab->dir);
}

int lab_signal_inhabitants(const int namespace_fd[2], int signal)
{
	struct stat ours[2], theirs;
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	char path[300];
	int count = 0;

	if (!dir || fstat(namespace_fd[0], &ours[0]) < 0 || fstat(namespace_fd[1], &ours[1]) < 0) {
		if (dir)
			closedir(dir);
		return 0;
	}
	while ((entry = readdir(dir))) {
		int pid = atoi(entry->d_name);

		if (pid <= 0 || pid == getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
		if (stat(path, &theirs) < 0)
			continue;
		for (int end = 0; end < 2; end++) {
			if (theirs.st_ino != ours[end].st_ino || theirs.st_dev != ours[end].st_dev)
				continue;
			count++;
			if (signal)
				kill(pid, signal);
		}
	}
	closedir(dir);
	return count;
}
