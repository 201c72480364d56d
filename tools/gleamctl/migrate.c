// SPDX-License-Identifier: Apache-2.0
/* gleamctl migrate: a running program moves to another worker. One thread. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gleamctl/ask.h"
#include "tools/gleamctl/gleamctl.h"
#include "tools/gleamctl/value.h"

#define MIB (1024.0 * 1024)

static bool number_read(const char *text, long long most, long long *number_out)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	*number_out = strtoll(text, &end, 10);
	return !*end && *number_out <= most;
}

int migrate_command(const struct options *options)
{
	const char *to = options->count > 1 ? options->words[1] : NULL;
	const char *colon = to ? strrchr(to, ':') : NULL;
	long long pid, gpu = -1;
	json_t *args, *answer;

	if (!number_read(options->words[0], INT32_MAX, &pid) || !pid)
		return misused("migrate", "`%s` is not the pid of a process", options->words[0]);
	if (colon && (!number_read(colon + 1, 63, &gpu) || colon == to))
		return misused("migrate", "`%s` is not a server, or SERVER:GPU with the number of one of its GPUs", to);
	args = json_object();
	json_object_set_new(args, "pid", json_integer(pid));
	if (to)
		json_object_set_new(args, "server", json_stringn(to, colon ? (size_t)(colon - to) : strlen(to)));
	if (gpu >= 0)
		json_object_set_new(args, "gpu", json_integer(gpu));
	answer = ask(ask_socket(options->socket), "migrate", args);
	if (!answer)
		return EXIT_FAILED;
	if (options->json)
		return json_show(answer);
	printf("moved from %s to %s: %.1f MiB of memory, %.1f MiB sent, held for %.1f ms, %.2f s in all\n", text_of(answer, "from"),
	       text_of(answer, "to"), number_of(answer, "memory") / MIB, number_of(answer, "bytes") / MIB, number_of(answer, "pause_ms"),
	       number_of(answer, "total_s"));
	json_decref(answer);
	return output_end();
}
