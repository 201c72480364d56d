// SPDX-License-Identifier: Apache-2.0
/*
 * gleamctl checkpoint and restore: the state of a program's GPU in a file, and back. One thread.
 *
 * The file is made here, with the rights of whoever asks, and gleamd gets its descriptor: it never opens a path of a user's. It has what
 * lies in GPU memory, so nobody else may read it. A checkpoint replaces the one before it only when it is whole and on disk.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "broker/local/save.h"
#include "tools/gleamctl/ask.h"
#include "tools/gleamctl/gleamctl.h"
#include "tools/gleamctl/progress.h"
#include "tools/gleamctl/value.h"

#define MIB	(1024.0 * 1024)
#define NAME	"checkpoint" /* of the first session of a process; of the next ones checkpoint.2 and so on */
#define NEW	"checkpoint.new" /* while it is written */
#define SESSIONS_MAX 8	/* of a process, as many as its library opens */
#define EVERY_MAX 86400
#define LOOK_MS	  200 /* between two looks whether gleamd, and the program's session, are there again */
#define UNCHANGED (-1) /* no exit status */

static volatile sig_atomic_t stopped;

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

static bool pid_read(const char *text, long long *pid_out)
{
	char *end;

	if (*text < '1' || *text > '9')
		return false;
	*pid_out = strtoll(text, &end, 10);
	return !*end && *pid_out <= INT32_MAX;
}

/* ---- the folder ---- */

/* -1 after a line on stderr. It is this process's until it is closed. */
static int folder_open(const char *path)
{
	struct stat st;
	int fd;

	if (mkdir(path, 0700) < 0 && errno != EEXIST) {
		failed("%s: can't be made: %s", path, strerror(errno));
		return -1;
	}
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0) {
		failed("%s: %s", path, strerror(errno));
		goto close_fd;
	}
	/* Whoever may write there could put another file in its place. */
	if ((st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & (S_IWGRP | S_IWOTH))) {
		failed("%s: others may write there; a checkpoint wants a folder of its owner's alone (chmod 700)", path);
		goto close_fd;
	}
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd;
	failed("%s: another gleamctl writes a checkpoint there", path);
close_fd:
	if (fd >= 0)
		close(fd);
	return -1;
}

static int file_make(int folder, const char *path)
{
	int fd;

	/* Left by one that was killed. */
	unlinkat(folder, NEW, 0);
	fd = openat(folder, NEW, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		failed("%s/" NEW ": %s", path, strerror(errno));
	return fd;
}

static const char *file_name(unsigned session, char *room, size_t size)
{
	if (session)
		snprintf(room, size, NAME ".%u", session + 1);
	else
		snprintf(room, size, NAME);
	return room;
}

/* gleamd has it on disk already; that it is the one to be found, too. */
static int file_keep(int folder, const char *path, unsigned session)
{
	char name[32];

	if (renameat(folder, NEW, folder, file_name(session, name, sizeof(name))) == 0 && fsync(folder) == 0)
		return 0;
	return failed("%s/%s: %s", path, name, strerror(errno));
}

/* Of a program that had more sessions than this one. */
static void files_drop(int folder, unsigned sessions)
{
	char name[32];

	for (unsigned i = sessions ? sessions : 1; i < SESSIONS_MAX; i++)
		unlinkat(folder, file_name(i, name, sizeof(name)), 0);
}

/* ---- progress ---- */

static void put_step(void *arg, const json_t *news)
{
	double memory = number_of(news, "memory");
	bool copies = strcmp(text_of(news, "step"), "copy") == 0;
	char note[128];

	snprintf(note, sizeof(note), "%s%s, %.1f MiB", text_of(news, "step"),
		 json_is_true(json_object_get(news, "held")) ? ", held" : "", number_of(news, "bytes") / MIB);
	progress_set(arg, copies ? memory - number_of(news, "left") : 0, copies ? memory : 0, note);
}

/* ---- checkpoint ---- */

/* What a program has sent when its checkpoints were made, by session. */
struct since {
	unsigned sessions; /* of which it is known that there are */
	long long commands[SESSIONS_MAX]; /* -1: there is none */
};

static void since_forget(struct since *since)
{
	since->sessions = 1;
	for (unsigned i = 0; i < SESSIONS_MAX; i++)
		since->commands[i] = -1;
}

/* gleamd sees nothing of what passes between a program and a worker of its own machine: it goes to one that it does. */
static bool long_way(const struct options *options, long long pid, unsigned session, const char *server)
{
	struct progress progress;
	json_t *answer;
	char what[96];

	snprintf(what, sizeof(what), "%lld gives up its short cut", pid);
	progress_begin(&progress, what);
	answer = ask_hearing(ask_socket(options->socket), "migrate",
			     json_pack("{s:I,s:I,s:s}", "pid", (json_int_t)pid, "session", (json_int_t)session, "server", server), put_step, &progress);
	progress_end(&progress);
	if (answer && !options->json)
		printf("moved %lld to another worker of %s, which gleamd sees the commands of: %.1f MiB of memory, held for %.1f ms; its calls take a little longer "
		       "from now on\n", pid, server, number_of(answer, "memory") / MIB, number_of(answer, "pause_ms"));
	else if (!answer)
		fprintf(stderr, "gleamctl: %lld shares its memory with a worker of this machine; a program that is started with GLEAM_OFF=direct can have checkpoints "
			"without being moved first\n", pid);
	json_decref(answer);
	return answer;
}

/* Of one session. UNCHANGED; 0; EXIT_FAILED after its line, *@over_out: no other one can follow. */
static int checkpoint_session(const struct options *options, long long pid, unsigned session, int folder, struct since *since, bool *over_out)
{
	const char *path = options->words[1];
	json_t *args = json_object(), *answer;
	struct progress progress;
	int fd = file_make(folder, path), status = EXIT_FAILED;
	char what[64], name[32], *server = NULL;
	bool unchanged;

	*over_out = true;
	if (fd < 0) {
		json_decref(args);
		return EXIT_FAILED;
	}
	json_object_set_new(args, "pid", json_integer(pid));
	if (session)
		json_object_set_new(args, "session", json_integer(session));
	if (since->commands[session] >= 0)
		json_object_set_new(args, "since", json_integer(since->commands[session]));
	snprintf(what, sizeof(what), "checkpoint of %lld", pid);
	progress_begin(&progress, what);
	answer = ask_hearing_with(ask_socket(options->socket), "checkpoint", args, fd, put_step, &progress);
	progress_end(&progress);
	close(fd);
	if (has(answer, "sessions"))
		since->sessions = (unsigned)whole_of(answer, "sessions");
	if (json_is_true(json_object_get(answer, "short_cut")))
		server = strdup(text_of(answer, "server"));
	unchanged = answer && json_is_true(json_object_get(answer, "unchanged"));
	if (server) {
		bool sees;

		json_decref(answer);
		unlinkat(folder, NEW, 0);
		sees = long_way(options, pid, session, server);
		free(server);
		/* A session has that way once in its life, so this happens once. */
		if (sees)
			return checkpoint_session(options, pid, session, folder, since, over_out);
		*over_out = kill((pid_t)pid, 0) < 0 && errno == ESRCH;
		return EXIT_FAILED;
	}
	if (!answer || unchanged) {
		unlinkat(folder, NEW, 0);
		*over_out = !answer && kill((pid_t)pid, 0) < 0 && errno == ESRCH;
		json_decref(answer);
		return unchanged ? UNCHANGED : EXIT_FAILED;
	}
	if (file_keep(folder, path, session) == 0) {
		file_name(session, name, sizeof(name));
		*over_out = false;
		since->commands[session] = whole_of(answer, "commands");
		if (options->json) {
			json_object_set_new(answer, "file", json_sprintf("%s/%s", path, name));
			return json_show(answer);
		}
		printf("checkpoint of %lld (%s) on %s in %s/%s: %.1f MiB of memory, %.1f MiB written, held for %.1f ms, %.2f s in all\n", pid,
		       text_of(answer, "program"), text_of(answer, "from"), path, name, number_of(answer, "memory") / MIB,
		       number_of(answer, "bytes") / MIB, number_of(answer, "pause_ms"), number_of(answer, "total_s"));
		status = output_end();
	}
	json_decref(answer);
	return status;
}

/*
 * Of all sessions, one after the other: each is restored by its own and what it has done since, so they need not be of one moment. UNCHANGED: of
 * all of them.
 */
static int checkpoint_once(const struct options *options, long long pid, int folder, struct since *since, bool *over_out)
{
	int status = UNCHANGED;

	for (unsigned i = 0; i < since->sessions && i < SESSIONS_MAX; i++) {
		int one = checkpoint_session(options, pid, i, folder, since, over_out);

		if (one > 0)
			return one;
		if (one == 0)
			status = 0;
	}
	files_drop(folder, since->sessions);
	return status;
}

/* ---- again and again ---- */

static long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static bool is_live(const char *socket, long long pid)
{
	char why[1024];
	json_t *answer = ask_quietly(socket, "clients", NULL, why, sizeof(why)), *one;
	bool live = false;
	size_t at;

	json_array_foreach (json_object_get(answer, "clients"), at, one)
		if (whole_of(one, "pid") == pid && strcmp(text_of(one, "state"), "live") == 0)
			live = true;
	json_decref(answer);
	return live;
}

/*
 * Until the next checkpoint is due. Takes @watch, which ends with the gleamd of the one before. True: gleamd has been restarted meanwhile and is there again, and so is the program: the new one knows of no
 * checkpoint, so the next one is due at once.
 */
static bool pause_or_restart(const char *socket, long long pid, double seconds, int watch)
{
	struct pollfd ends = { .fd = watch, .events = POLLIN };
	long long until = now_ms() + (long long)(seconds * 1000), left;

	while (!stopped && (left = until - now_ms()) > 0) {
		/* Not there at the moment either: as one that ends now. */
		if (ends.fd >= 0 && poll(&ends, 1, (int)left) <= 0)
			continue;
		if (ends.fd >= 0)
			close(ends.fd);
		fprintf(stderr, "gleamctl: gleamd has ended; another one knows of no checkpoint of %lld: the next is made as soon as it is there\n", pid);
		while (!stopped && !is_live(socket, pid)) {
			if (kill((pid_t)pid, 0) < 0 && errno == ESRCH)
				return true; /* that is told by whoever asks for it now */
			poll(NULL, 0, LOOK_MS);
		}
		return !stopped;
	}
	if (ends.fd >= 0)
		close(ends.fd);
	return false;
}

int checkpoint_command(const struct options *options)
{
	struct sigaction ends = { .sa_handler = stop };
	struct since since;
	long long pid;
	double every = 0;
	bool over = false, made = false;
	int folder, status;
	char *end;

	if (!pid_read(options->words[0], &pid))
		return misused("checkpoint", "`%s` is not the pid of a process", options->words[0]);
	if (options->every) {
		every = strtod(options->every, &end);
		if (*end || end == options->every || !(every >= 1 && every <= EVERY_MAX))
			return misused("checkpoint", "`%s` is not a number of seconds from 1 to %d", options->every, EVERY_MAX);
	}
	folder = folder_open(options->words[1]);
	if (folder < 0)
		return EXIT_FAILED;
	/* What has been begun is brought to its end, and nothing half is left. */
	sigaction(SIGINT, &ends, NULL);
	sigaction(SIGTERM, &ends, NULL);
	since_forget(&since);
	do {
		int watch = every ? ask_watch(ask_socket(options->socket)) : -1;

		status = checkpoint_once(options, pid, folder, &since, &over);
		made |= status == 0;
		if (!every || over || stopped) {
			if (watch >= 0)
				close(watch);
			break;
		}
		fflush(stdout);
		/* One that did not come to be, since its work doesn't end: the next may. */
		if (pause_or_restart(ask_socket(options->socket), pid, every, watch))
			since_forget(&since);
	} while (!stopped);
	close(folder);
	/* The program has ended, as programs do. */
	return status == UNCHANGED || (every && over && made) || stopped ? 0 : status;
}

/* ---- restore ---- */

/* Which session of a process the file is of, in the words of gleamd; false: no such file, whose reason gleamd gives. */
static bool identity_of(int fd, char text[2 * SAVE_IDENTITY_SIZE + 1])
{
	uint8_t bytes[SAVE_IDENTITY_SIZE];

	if (pread(fd, bytes, sizeof(bytes), SAVE_IDENTITY_AT) != (ssize_t)sizeof(bytes))
		return false;
	for (unsigned i = 0; i < sizeof(bytes); i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	return true;
}

struct wish {
	long long pid;
	const char *from; /* NULL: of whatever server */
	char *to;	  /* NULL: to another one than it was on */
	long long gpu;	  /* < 0: any */
	bool several;	  /* sessions that aren't lost are no failure */
};

/* From one file, which is closed. *@unneeded_out: its session isn't lost. */
static int restore_session(const struct options *options, const struct wish *wish, int fd, bool *unneeded_out)
{
	char what[64], identity[2 * SAVE_IDENTITY_SIZE + 1];
	json_t *args = json_object(), *answer;
	struct progress progress;

	json_object_set_new(args, "pid", json_integer(wish->pid));
	if (wish->to)
		json_object_set_new(args, "server", json_string(wish->to));
	if (wish->gpu >= 0)
		json_object_set_new(args, "gpu", json_integer(wish->gpu));
	if (identity_of(fd, identity))
		json_object_set_new(args, "identity", json_string(identity));
	if (wish->several || wish->from)
		json_object_set_new(args, "from", json_string(wish->from ? wish->from : ""));
	snprintf(what, sizeof(what), "restoring %lld", wish->pid);
	progress_begin(&progress, what);
	answer = ask_hearing_with(ask_socket(options->socket), "restore", args, fd, put_step, &progress);
	progress_end(&progress);
	close(fd);
	*unneeded_out = json_is_true(json_object_get(answer, "unneeded"));
	if (!answer || *unneeded_out) {
		json_decref(answer);
		return *unneeded_out ? 0 : EXIT_FAILED;
	}
	if (options->json)
		return json_show(answer);
	printf("restored %lld (%s) on %s: %.1f MiB of memory, %.1f MiB sent, %.2f s in all\n", wish->pid, text_of(answer, "program"),
	       text_of(answer, "to"), number_of(answer, "memory") / MIB, number_of(answer, "bytes") / MIB, number_of(answer, "total_s"));
	json_decref(answer);
	return output_end();
}

/* All sessions that are lost, of the files that there are. */
static int restore_all(const struct options *options, struct wish *wish)
{
	const char *path = options->words[1];
	int fds[SESSIONS_MAX], status = 0;
	unsigned count = 0, restored = 0;
	char file[4096], name[32];
	bool unneeded;

	for (; count < SESSIONS_MAX; count++) {
		snprintf(file, sizeof(file), "%s/%s", path, file_name(count, name, sizeof(name)));
		fds[count] = open(file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (fds[count] < 0 && count && errno == ENOENT)
			break;
		if (fds[count] < 0) {
			status = failed("%s: %s", file, strerror(errno));
			break;
		}
	}
	wish->several = count > 1;
	for (unsigned i = 0; i < count; i++) {
		if (status) {
			close(fds[i]);
			continue;
		}
		status = restore_session(options, wish, fds[i], &unneeded);
		restored += !status && !unneeded;
	}
	if (status || restored)
		return status;
	return failed("no session of pid %lld%s%s is lost that %s has a checkpoint of; gleamctl clients tells their states", wish->pid,
		      wish->from ? " on " : "", wish->from ? wish->from : "", path);
}

int restore_command(const struct options *options)
{
	const char *which = options->words[0], *from = strchr(which, ':'), *to = options->count > 2 ? options->words[2] : NULL;
	const char *colon = to ? strrchr(to, ':') : NULL;
	struct wish wish = { .from = from ? from + 1 : NULL, .gpu = -1 };
	char number[24], *end;
	int status;

	snprintf(number, sizeof(number), "%.*s", (int)strcspn(which, ":"), which);
	if (!pid_read(number, &wish.pid) || (from && !from[1]))
		return misused("restore", "`%s` is not the pid of a process, or PID:SERVER with the name of a server that it has lost", which);
	if (colon) {
		wish.gpu = strtoll(colon + 1, &end, 10);
		if (colon[1] < '0' || colon[1] > '9' || *end || wish.gpu > 63 || colon == to)
			return misused("restore", "`%s` is not a server, or SERVER:GPU with the number of one of its GPUs", to);
	}
	wish.to = to ? strndup(to, colon ? (size_t)(colon - to) : strlen(to)) : NULL;
	status = restore_all(options, &wish);
	free(wish.to);
	return status;
}
