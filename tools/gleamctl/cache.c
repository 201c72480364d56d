// SPDX-License-Identifier: Apache-2.0
/* gleamctl cache: what servers keep of uploads. One thread. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/gleamctl/ask.h"
#include "tools/gleamctl/gleamctl.h"
#include "tools/gleamctl/table.h"
#include "tools/gleamctl/value.h"

#define MIB	(1024.0 * 1024.0)
#define LOOK_MS 150 /* between two questions how far it is */

static int show(const struct options *options)
{
	static const char *const titles[] = { "SERVER", "CACHE", ">MiB", ">MEMORY", ">DISK", ">CHUNKS", ">HITS", ">MISSES", ">SAVED MiB",
					      ">EVICTED", ">DAMAGED", NULL };
	json_t *answer = ask(ask_socket(options->socket), "cache", NULL);
	const json_t *server;
	struct table table;
	size_t i;

	if (!answer)
		return EXIT_FAILED;
	if (options->json)
		return json_show(answer);
	table_begin(&table, titles);
	json_array_foreach(json_object_get(answer, "servers"), i, server) {
		static const char *const counts[] = { "hits", "misses" }, *const ends[] = { "evictions", "damaged" };
		static const char *const sizes[] = { "bytes", "memory", "disk" };
		bool known = has(server, "bytes");

		table_add(&table, "%s", text_of(server, "name"));
		table_add(&table, "%s", text_of(server, "state"));
		for (unsigned k = 0; k < 3; k++)
			known ? table_add(&table, "%.0f", number_of(server, sizes[k]) / MIB) : table_add(&table, "-");
		known ? table_add(&table, "%lld", whole_of(server, "entries")) : table_add(&table, "-");
		for (unsigned k = 0; k < 2; k++)
			known ? table_add(&table, "%lld", whole_of(server, counts[k])) : table_add(&table, "-");
		known ? table_add(&table, "%.0f", number_of(server, "saved") / MIB) : table_add(&table, "-");
		for (unsigned k = 0; k < 2; k++)
			known ? table_add(&table, "%lld", whole_of(server, ends[k])) : table_add(&table, "-");
	}
	table_end(&table);
	if (strcmp(text_of(answer, "use"), "off") == 0)
		puts("this machine's daemon has [cache] use = off: its programs use none of it");
	json_decref(answer);
	return output_end();
}

static int list(const struct options *options, const char *server)
{
	json_t *answer = ask(ask_socket(options->socket), "cache", json_pack("{s:s}", "server", server));
	const json_t *chunk, *of;
	size_t i;

	if (!answer)
		return EXIT_FAILED;
	if (options->json)
		return json_show(answer);
	of = json_array_get(json_object_get(answer, "servers"), 0);
	json_array_foreach(json_object_get(of, "chunks"), i, chunk)
		printf("%s %lld\n", text_of(chunk, "hash"), whole_of(chunk, "size"));
	if (json_is_true(json_object_get(of, "more")))
		fprintf(stderr, "gleamctl: there are more; these are the first %zu\n", json_array_size(json_object_get(of, "chunks")));
	json_decref(answer);
	return output_end();
}

static void progress(const char *name, const json_t *view)
{
	double size = number_of(view, "size");

	fprintf(stderr, "\r%s: %.0f of %.0f MiB there, %.0f sent", name, number_of(view, "done") / MIB, size / MIB,
		number_of(view, "sent") / MIB);
}

/* Until what @answer names is over. Takes it; NULL after a line on stderr. */
static json_t *wait_over(const struct options *options, json_t *answer, const char *name, bool show_progress)
{
	long long id = answer ? whole_of(answer, "id") : 0;

	if (!answer)
		return NULL;
	json_decref(answer);
	for (;;) {
		answer = ask(ask_socket(options->socket), "cache-wait", json_pack("{s:I}", "id", (json_int_t)id));
		if (!answer)
			return NULL;
		if (show_progress)
			progress(name, answer);
		if (json_is_true(json_object_get(answer, "over")))
			break;
		json_decref(answer);
		nanosleep(&(struct timespec){ .tv_nsec = LOOK_MS * 1000000l }, NULL);
	}
	if (show_progress)
		fputc('\n', stderr);
	return answer;
}

static int command(const struct options *options, const char *what, const char *server, const char *hash)
{
	json_t *answer = ask(ask_socket(options->socket), "cache-do",
			     json_pack("{s:s,s:s,s:s}", "what", what, "server", server, "hash", hash));
	int status = 0;

	answer = wait_over(options, answer, hash, false);
	if (!answer)
		return EXIT_FAILED;
	if (whole_of(answer, "errno"))
		status = failed("%s: %s", hash, text_of(answer, "why"));
	else if (strcmp(what, "verify") == 0 && whole_of(answer, "value"))
		status = failed("%s: %lld damaged chunks were found, and dropped", hash, whole_of(answer, "value"));
	if (options->json) {
		int shown = json_show(answer);

		return status ? status : shown;
	}
	if (!status && strcmp(what, "drop") == 0)
		printf("%lld dropped\n", whole_of(answer, "value"));
	json_decref(answer);
	return status ? status : output_end();
}

static int prefetch(const struct options *options, const char *server, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	json_t *answer;
	int status = 0;

	if (fd < 0)
		return failed("%s: %s", path, strerror(errno));
	answer = ask_with(ask_socket(options->socket), "cache-prefetch", json_pack("{s:s}", "server", server), fd);
	close(fd);
	if (!answer) {
		fprintf(stderr, "gleamctl: %s was not prefetched\n", path);
		return EXIT_FAILED;
	}
	answer = wait_over(options, answer, path, !options->json && isatty(STDERR_FILENO));
	if (!answer)
		return EXIT_FAILED;
	if (whole_of(answer, "errno"))
		status = failed("%s: %s", path, text_of(answer, "why"));
	if (options->json) {
		int shown = json_show(answer);

		return status ? status : shown;
	}
	if (!status)
		printf("%s: %lld bytes are there, %lld of them were sent\n", path, whole_of(answer, "done"), whole_of(answer, "sent"));
	json_decref(answer);
	return status ? status : output_end();
}

int cache_command(const struct options *options)
{
	static const char *const commands_of_chunks[] = { "pin", "unpin", "drop", "verify" };
	const char *what = options->count ? options->words[0] : NULL;

	if (!what)
		return show(options);
	if (strcmp(what, "list") == 0)
		return options->count == 2 ? list(options, options->words[1]) : misused("cache", "list takes the name of a server");
	if (strcmp(what, "prefetch") == 0)
		return options->count == 3 ? prefetch(options, options->words[1], options->words[2]) :
					     misused("cache", "prefetch takes the name of a server and a file");
	for (size_t i = 0; i < sizeof(commands_of_chunks) / sizeof(commands_of_chunks[0]); i++)
		if (strcmp(what, commands_of_chunks[i]) == 0)
			return options->count == 3 ? command(options, what, options->words[1], options->words[2]) :
						     misused("cache", "%s takes the name of a server, and a hash or `all`", what);
	return misused("cache", "`%s` is none of list, pin, unpin, drop, verify, prefetch", what);
}
