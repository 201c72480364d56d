/* SPDX-License-Identifier: Apache-2.0 */
/* What workers are started with. At start; see setting.h. */
#include "broker/node/setting.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/lib/log.h"

/* The folder of this program, with a slash; and whether it is an installed one (.../bin/gleamd). */
static int own_folder(char *out, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", out, size - 1);
	char *slash;

	if (n < 0)
		return -errno;
	out[n] = 0;
	slash = strrchr(out, '/');
	if (!slash)
		return -ENOENT;
	slash[1] = 0;
	return 0;
}

/* The first of @folders (relative to our own) that has @name. */
static int file_find(const char *name, const char *const *folders, int mode, char *out, size_t size)
{
	char own[CONF_PATH_SIZE];

	if (own_folder(own, sizeof(own)))
		return -ENOENT;
	for (; *folders; folders++) {
		if ((size_t)snprintf(out, size, "%s%s%s", own, *folders, name) < size && access(out, mode) == 0)
			return 0;
	}
	return -ENOENT;
}

static int worker_find(const struct conf *conf, struct proc_setting *out, char *why, size_t why_size)
{
	static const char *const folders[] = { "", "../libexec/gleam/", "../lib/gleam/", "../libexec/", NULL };

	if (*conf->worker) {
		snprintf(out->worker, sizeof(out->worker), "%s", conf->worker);
		if (access(out->worker, X_OK) == 0)
			return 0;
		snprintf(why, why_size, "the worker %.300s can't be run: %s; see [node] worker", out->worker, strerror(errno));
		return -ENOENT;
	}
	if (file_find("gleam-worker", folders, X_OK, out->worker, sizeof(out->worker)) == 0)
		return 0;
	snprintf(why, why_size, "gleam-worker is neither beside gleamd nor in ../libexec/gleam; see [node] worker");
	return -ENOENT;
}

static int driver_find(const struct conf *conf, struct proc_setting *out, char *why, size_t why_size)
{
	static const char *const folders[] = { "", "../lib/", "../lib/gleam/", "../libexec/gleam/", NULL };

	if (strcmp(conf->driver, "softgpu") == 0) {
		if (file_find("libsoftcuda.so", folders, R_OK, out->driver, sizeof(out->driver)) == 0)
			return 0;
		snprintf(why, why_size, "libsoftcuda.so is neither beside gleamd nor in ../lib or ../lib/gleam");
		return -ENOENT;
	}
	snprintf(out->driver, sizeof(out->driver), "%s", conf->driver);
	if (out->driver[0] != '/') {
		snprintf(why, why_size, "the driver `%.300s` is neither an absolute path nor softgpu; see [node] driver",
			 out->driver);
		return -EINVAL;
	}
	if (access(out->driver, R_OK) == 0)
		return 0;
	snprintf(why, why_size, "the driver %.300s can't be read: %s; see [node] driver (softgpu needs no GPU)", out->driver,
		 strerror(errno));
	return -ENOENT;
}

static int user_find(const struct conf *conf, struct proc_setting *out, char *why, size_t why_size)
{
	static const char *const defaults[] = { "gleam-worker", "nobody" };
	struct passwd *user = NULL;

	if (geteuid() != 0) {
		if (*conf->user) {
			snprintf(why, why_size, "only root can run workers as %s; leave [node] user out", conf->user);
			return -EPERM;
		}
		return 0;
	}
	if (*conf->user)
		user = getpwnam(conf->user);
	for (size_t i = 0; i < 2 && !user && !*conf->user; i++)
		user = getpwnam(defaults[i]);
	if (!user) {
		snprintf(why, why_size, "there is no user %s for workers; make it, or see [node] user",
			 *conf->user ? conf->user : "gleam-worker or nobody");
		return -ENOENT;
	}
	out->drop = true;
	out->uid = user->pw_uid;
	out->gid = user->pw_gid;
	out->group_count = (int)(sizeof(out->groups) / sizeof(out->groups[0]));
	/* Device files may belong to groups (video, render). */
	if (getgrouplist(user->pw_name, user->pw_gid, out->groups, &out->group_count) < 0)
		out->group_count = 0;
	if (proc_setting_try(out) == 0)
		return 0;
	if (*conf->user) {
		snprintf(why, why_size, "the user %s can't run %.200s or read %.200s: check the folders' modes", conf->user,
			 out->worker, out->driver);
		return -EACCES;
	}
	log_warn("workers run as root: %s can't reach %s and %s; install them where everybody may read, or name a user "
		 "in [node] user",
		 user->pw_name, out->worker, out->driver);
	out->drop = false;
	return 0;
}

int setting_make(const struct conf *conf, struct proc_setting *out, char *why, size_t why_size)
{
	int err = worker_find(conf, out, why, why_size);

	if (!err)
		err = driver_find(conf, out, why, why_size);
	if (!err)
		err = user_find(conf, out, why, why_size);
	return err;
}
