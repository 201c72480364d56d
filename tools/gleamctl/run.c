// SPDX-License-Identifier: Apache-2.0
/* gleamctl run: starts a program so that it finds our libcuda.so.1 first. One thread. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/gleamctl/gleamctl.h"

#define STATUS_NOT_FOUND 127 /* as shells say it */
#define STATUS_NOT_RUN	 126

/* The folder of our library, from where this program is: installed ../lib/gleam, built ../lib. */
static int library_folder(char out[PATH_MAX])
{
	static const char *const folders[] = { "../lib/gleam", "../lib" };
	char own[PATH_MAX], path[PATH_MAX + 64];
	ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);
	char *slash;

	if (n < 0)
		return -errno;
	own[n] = 0;
	slash = strrchr(own, '/');
	if (!slash)
		return -ENOENT;
	*slash = 0;
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s/libcuda.so.1", own, folders[i]);
		if (access(path, R_OK) == 0) {
			*strrchr(path, '/') = 0;
			return realpath(path, out) ? 0 : -errno;
		}
	}
	return -ENOENT;
}

/* What the dynamic linker is to look through first; what was there stays behind it. */
static int path_put(const char *folder)
{
	const char *before = getenv("LD_LIBRARY_PATH");
	char *path;
	int err;

	if (asprintf(&path, "%s%s%s", folder, before && *before ? ":" : "", before ? before : "") < 0)
		return -ENOMEM;
	err = setenv("LD_LIBRARY_PATH", path, 1) ? -errno : 0;
	free(path);
	return err;
}

/* The loader ignores LD_LIBRARY_PATH there; without a word the program would run on no GPU or another one. */
static void warn_of_privileges(const char *program)
{
	char found[PATH_MAX];
	struct stat st;

	if (strchr(program, '/'))
		snprintf(found, sizeof(found), "%s", program);
	else
		return;
	if (stat(found, &st) == 0 && (st.st_mode & (S_ISUID | S_ISGID)))
		fprintf(stderr,
			"gleamctl: warning: %s has the set-user-ID or set-group-ID bit, so the loader ignores LD_LIBRARY_PATH: it "
			"uses Gleam only where `make install` has made that the system's libcuda.so.1\n",
			program);
}

int run_command(const struct options *options)
{
	char folder[PATH_MAX], *end = NULL;
	int err;

	if (options->gpus && strcmp(options->gpus, "all") != 0 && (strtol(options->gpus, &end, 10) < 1 || *end || end == options->gpus))
		return misused("run", "--gpus `%s` is neither a number from 1 nor all", options->gpus);
	if (options->priority && strcmp(options->priority, "latency") != 0 && strcmp(options->priority, "normal") != 0 &&
	    strcmp(options->priority, "batch") != 0)
		return misused("run", "--priority `%s` is none of latency, normal, batch", options->priority);
	err = library_folder(folder);
	if (err)
		return failed("our libcuda.so.1 is neither in ../lib/gleam nor in ../lib of this program: run the gleamctl that was "
			      "installed or built with it");
	if (path_put(folder) || (options->server && setenv("GLEAM_SERVER", options->server, 1)) ||
	    (options->gpus && setenv("GLEAM_GPUS", options->gpus, 1)) ||
	    (options->priority && setenv("GLEAM_PRIORITY", options->priority, 1)) ||
	    (options->socket && setenv("GLEAM_SOCKET", options->socket, 1)))
		return failed("out of memory");
	warn_of_privileges(options->words[0]);
	execvp(options->words[0], options->words);
	err = errno;
	failed("can't run %s: %s", options->words[0], strerror(err));
	return err == ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_RUN;
}
