// SPDX-License-Identifier: Apache-2.0
/* gleamctl migrate, and the moves of drain: running programs go to other workers. One thread. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gleamctl/ask.h"
#include "tools/gleamctl/gleamctl.h"
#include "tools/gleamctl/progress.h"
#include "tools/gleamctl/value.h"

#define MIB (1024.0 * 1024)

static const char *const steps[] = { "reach", "check", "copy", "last", "switch" };

static bool number_read(const char *text, long long most, long long *number_out)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	*number_out = strtoll(text, &end, 10);
	return !*end && *number_out <= most;
}

/* ---- while it goes on ---- */

struct watch {
	struct progress progress;
	char what[96];
	bool quiet; /* programs that have come aren't told */
	unsigned stay;
};

/* Its final line. */
static void put_moved(const json_t *moved)
{
	const json_t *times = json_object_get(moved, "steps");
	char key[16];

	printf("moved from %s to %s: %.1f MiB of memory, %.1f MiB sent %s, %.1f MiB were zeros, %.1f MiB cached there, held for %.1f ms with %.1f MiB, %.2f s in all",
	       text_of(moved, "from"), text_of(moved, "to"), number_of(moved, "memory") / MIB, number_of(moved, "bytes") / MIB, text_of(moved, "way"),
	       number_of(moved, "bytes_avoided") / MIB, number_of(moved, "bytes_cached") / MIB, number_of(moved, "pause_ms"), number_of(moved, "bytes_held") / MIB,
	       number_of(moved, "total_s"));
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		snprintf(key, sizeof(key), "%s_s", steps[i]);
		printf("%s %s %.2f", i ? "," : ":", steps[i], number_of(times, key));
	}
	if (*text_of(moved, "way_why"))
		printf("; not from node to node: %s", text_of(moved, "way_why"));
	putchar('\n');
}

/* Not where it would be in the way of what is told for good. */
static void put_step(struct watch *watch, const json_t *news)
{
	double memory = number_of(news, "memory");
	bool copies = strcmp(text_of(news, "step"), "copy") == 0;
	char note[128];

	snprintf(note, sizeof(note), "%s%s, %.1f MiB sent%s%s", text_of(news, "step"),
		 json_is_true(json_object_get(news, "held")) ? ", held" : "", number_of(news, "bytes") / MIB, *text_of(news, "way") ? " " : "",
		 text_of(news, "way"));
	progress_set(&watch->progress, copies ? memory - number_of(news, "left") : 0, copies ? memory : 0, note);
}

static void hear_one(void *arg, const json_t *news)
{
	put_step(arg, news);
}

static void hear_all(void *arg, const json_t *news)
{
	struct watch *watch = arg;

	snprintf(watch->what, sizeof(watch->what), "%lld to %s", whole_of(news, "pid"), *text_of(news, "to") ? text_of(news, "to") : "...");
	if (!has(news, "pid"))
		return;
	if (!json_is_boolean(json_object_get(news, "moved"))) {
		put_step(watch, news);
		return;
	}
	progress_end(&watch->progress);
	if (json_is_true(json_object_get(news, "moved"))) {
		if (!watch->quiet) {
			printf("%lld (%s): ", whole_of(news, "pid"), text_of(news, "program"));
			put_moved(news);
			fflush(stdout);
		}
		return;
	}
	watch->stay++;
	failed("%lld (%s) stays on %s: %s", whole_of(news, "pid"), text_of(news, "program"), text_of(news, "from"), text_of(news, "why"));
}

/* ---- commands ---- */

int migrate_command(const struct options *options)
{
	const char *to = options->count > 1 ? options->words[1] : NULL;
	const char *colon = to ? strrchr(to, ':') : NULL;
	struct watch watch = { 0 };
	const char *which = options->words[0], *from = strchr(which, ':');
	long long pid, gpu = -1;
	json_t *args, *answer;
	char number[24];

	snprintf(number, sizeof(number), "%.*s", (int)strcspn(which, ":"), which);
	if (!number_read(number, INT32_MAX, &pid) || !pid || (from && !from[1]))
		return misused("migrate", "`%s` is not the pid of a process, or PID:SERVER with the name of the one to leave", which);
	if (colon && (!number_read(colon + 1, 63, &gpu) || colon == to))
		return misused("migrate", "`%s` is not a server, or SERVER:GPU with the number of one of its GPUs", to);
	args = json_object();
	json_object_set_new(args, "pid", json_integer(pid));
	if (to)
		json_object_set_new(args, "server", json_stringn(to, colon ? (size_t)(colon - to) : strlen(to)));
	if (gpu >= 0)
		json_object_set_new(args, "gpu", json_integer(gpu));
	if (from)
		json_object_set_new(args, "from", json_string(from + 1));
	snprintf(watch.what, sizeof(watch.what), "moving %lld", pid);
	progress_begin(&watch.progress, watch.what);
	answer = ask_hearing(ask_socket(options->socket), "migrate", args, hear_one, &watch);
	progress_end(&watch.progress);
	if (!answer)
		return EXIT_FAILED;
	if (options->json)
		return json_show(answer);
	put_moved(answer);
	json_decref(answer);
	return output_end();
}

int drain_moves(const struct options *options, const char *server)
{
	struct watch watch = { .quiet = options->json };
	long long moved = 0;
	json_t *answer;
	const json_t *one;
	size_t i;
	int status;

	progress_begin(&watch.progress, watch.what);
	answer = ask_hearing(ask_socket(options->socket), "drain", json_pack("{s:s,s:i}", "server", server, "move", 1), hear_all, &watch);
	progress_end(&watch.progress);
	if (!answer)
		return EXIT_FAILED;
	json_array_foreach(json_object_get(answer, "moves"), i, one)
		moved += json_is_true(json_object_get(one, "moved"));
	if (options->json) {
		status = json_show(answer);
		return watch.stay ? EXIT_FAILED : status;
	}
	printf("%s gets no new client of this machine; %lld moved, %lld are there\n", server, moved, whole_of(answer, "clients"));
	json_decref(answer);
	status = output_end();
	return watch.stay ? EXIT_FAILED : status;
}
