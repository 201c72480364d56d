/* SPDX-License-Identifier: Apache-2.0 */
/* What is remembered of programs, on disk; and who a program is. Control thread; see place_store.h. */
#include "broker/local/place_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/lib/fd.h"
#include "broker/lib/log.h"
#include "broker/local/place.h"

#define STORE_SYSTEM  "/var/lib/gleam/profiles"
#define STORE_MAX     (1u << 20) /* 1024 lines of at most 256 bytes, and room */
#define CMDLINE_MAX   (64u << 10)

struct place_store {
	char path[CONF_PATH_SIZE]; /* "": nowhere */
	bool complained;
};

/* ---- the file ---- */

/* The machine's daemon: /var/lib; a user's own: $XDG_STATE_HOME; one that was given a socket of its own, as tests do: none. */
static void path_find(const struct conf *conf, char *path, size_t size)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

	path[0] = 0;
	if (strcmp(conf->profiles, "no") == 0)
		return;
	if (*conf->profiles)
		snprintf(path, size, "%s", conf->profiles);
	else if (*conf->socket)
		return;
	else if (geteuid() == 0)
		snprintf(path, size, STORE_SYSTEM);
	else if (state && *state == '/')
		snprintf(path, size, "%s/gleam/profiles", state);
	else if (home && *home == '/')
		snprintf(path, size, "%s/.local/state/gleam/profiles", home);
}

/* Only the last two folders: what is above them belongs to others. */
static void folder_make(const char *path)
{
	char folder[CONF_PATH_SIZE];
	char *slash;

	snprintf(folder, sizeof(folder), "%s", path);
	slash = strrchr(folder, '/');
	if (!slash || slash == folder)
		return;
	*slash = 0;
	if (mkdir(folder, 0700) == 0 || errno != ENOENT)
		return;
	slash = strrchr(folder, '/');
	if (slash && slash != folder) {
		*slash = 0;
		mkdir(folder, 0700);
		*slash = '/';
		mkdir(folder, 0700);
	}
}

struct place_store *place_store_open(const struct conf *conf, struct sched_profiles *profiles)
{
	struct place_store *store = calloc(1, sizeof(*store));
	unsigned wrong;
	char *text;
	size_t size;
	int err;

	if (!store)
		return NULL;
	path_find(conf, store->path, sizeof(store->path));
	if (!*store->path)
		return store;
	err = fd_read_file(store->path, STORE_MAX, &text, &size);
	if (err) {
		if (err != -ENOENT)
			log_warn("what programs need is not remembered from before: %s: %s", store->path, strerror(-err));
		return store;
	}
	wrong = sched_profiles_read(profiles, text);
	if (wrong)
		log_warn("%s: %u lines are not profiles of programs: left out", store->path, wrong);
	free(text);
	return store;
}

void place_store_save(struct place_store *store, const struct sched_profiles *profiles)
{
	char fresh[CONF_PATH_SIZE + 16];
	size_t size = 0, at = 0;
	char *text;
	int fd, err = 0;

	if (!*store->path)
		return;
	text = sched_profiles_text(profiles, &size);
	if (!text)
		return;
	folder_make(store->path);
	snprintf(fresh, sizeof(fresh), "%s.%d", store->path, (int)getpid());
	/* Keys are hashes, but how much others compute is nobody's business. */
	fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		err = -errno;
	while (!err && at < size) {
		ssize_t n = write(fd, text + at, size - at);

		if (n < 0 && errno != EINTR)
			err = -errno;
		else if (n > 0)
			at += (size_t)n;
	}
	if (fd >= 0 && close(fd) < 0 && !err)
		err = -errno;
	if (!err && rename(fresh, store->path) < 0)
		err = -errno;
	if (err) {
		unlink(fresh);
		if (!store->complained)
			log_warn("what programs need can't be remembered in %s: %s; see [scheduler] profiles", store->path, strerror(-err));
		store->complained = true;
	}
	free(text);
}

void place_store_close(struct place_store *store)
{
	free(store);
}

/* ---- who a program is ---- */

static size_t setting_find(const char *settings, const char *name, char *out, size_t size)
{
	size_t length = strlen(name);

	out[0] = 0;
	for (const char *line = settings; *line;) {
		size_t end = strcspn(line, "\n");

		if (end >= length && strncmp(line, name, length) == 0 && end - length < size) {
			memcpy(out, line + length, end - length);
			out[end - length] = 0;
			return end - length;
		}
		line += end + (line[end] != 0);
	}
	return 0;
}

/* What a file is, not what it is called: a program that was built again is another one. */
static uint64_t key_of_file(const char *path, uint64_t seed)
{
	struct stat st;
	uint64_t id[5];

	if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	id[0] = st.st_dev;
	id[1] = st.st_ino;
	id[2] = (uint64_t)st.st_size;
	id[3] = (uint64_t)st.st_mtim.tv_sec;
	id[4] = (uint64_t)st.st_mtim.tv_nsec;
	return sched_key(id, sizeof(id), seed);
}

static size_t cmdline_read(pid_t pid, char *out, size_t size)
{
	char path[64];
	size_t at = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	while (at < size && (n = read(fd, out + at, size - at)) > 0)
		at += (size_t)n;
	close(fd);
	return at;
}

void place_program_look(pid_t pid, const char *settings, struct place_program *program_out)
{
	struct place_program program = { .priority = PRIORITY_NORMAL };
	char path[64 + CONF_PATH_SIZE], word[16];
	char *cmdline = malloc(CMDLINE_MAX);
	size_t size = cmdline && pid > 0 ? cmdline_read(pid, cmdline, CMDLINE_MAX) : 0;
	uint64_t script = 0;

	setting_find(settings, "GLEAM_PRIORITY=", word, sizeof(word));
	if (strcmp(word, "latency") == 0)
		program.priority = PRIORITY_LATENCY;
	else if (strcmp(word, "batch") == 0)
		program.priority = PRIORITY_BATCH;
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	program.key_any = pid > 0 ? key_of_file(path, 0) : 0;
	if (program.key_any && size) {
		size_t first = strnlen(cmdline, size) + 1;

		program.key = sched_key(cmdline, size, program.key_any);
		/* An interpreter's first argument is the program; seen from where the process stands. */
		if (first < size && cmdline[first] != '-' && strnlen(cmdline + first, size - first) < CONF_PATH_SIZE &&
		    memchr(cmdline + first, 0, size - first)) {
			if (cmdline[first] == '/')
				snprintf(path, sizeof(path), "/proc/%d/root%.*s", (int)pid, CONF_PATH_SIZE - 1, cmdline + first);
			else
				snprintf(path, sizeof(path), "/proc/%d/cwd/%.*s", (int)pid, CONF_PATH_SIZE - 1, cmdline + first);
			script = key_of_file(path, program.key_any);
		}
		if (script)
			program.key_any = script;
	}
	free(cmdline);
	*program_out = program;
}
