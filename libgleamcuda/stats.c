// SPDX-License-Identifier: Apache-2.0
/*
 * GLEAM_STATS=file: what the process has called, written when it ends; the same counters that /gleam shows while it runs.
 * Runs as a destructor, in whatever order; takes no lock. And their sums, for programs that measure themselves.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gen/api.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/init.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/version.h"

/* Over all servers. */
static struct api_count counted(uint32_t api)
{
	struct api_count sum = { 0 };
	struct session *s;

	for (uint32_t i = 0; (s = session_at(i)); i++) {
		const struct api_count *c = shm_count(&s->shm, api);

		sum.calls += c->calls;
		sum.trips += c->trips;
		sum.bytes += c->bytes;
		sum.waited_ns += c->waited_ns;
	}
	return sum;
}

GLEAM_EXPORT void gleam_counters(unsigned long long counters_out[4])
{
	for (int i = 0; i < 4; i++)
		counters_out[i] = 0;
	for (uint32_t api = 0; !process_is_forked() && api < API_COUNT; api++) {
		struct api_count c = counted(api);

		counters_out[0] += c.calls;
		counters_out[1] += c.trips;
		counters_out[2] += c.bytes;
		counters_out[3] += c.waited_ns;
	}
}

__attribute__((destructor)) static void stats_write(void)
{
	const char *path = secure_getenv("GLEAM_STATS");
	char line[256];
	int fd;

	if (!path || !*path || !session_current() || process_is_forked())
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	for (uint32_t api = 0; api < API_COUNT; api++) {
		const struct api_count sum = counted(api), *c = &sum;
		int size;

		if (!c->calls)
			continue;
		size = snprintf(line, sizeof(line), "%s %llu %llu %llu %llu\n", api_names[api],
				(unsigned long long)c->calls, (unsigned long long)c->bytes, (unsigned long long)c->trips,
				(unsigned long long)(c->waited_ns / 1000));
		if (write(fd, line, (size_t)size) != size)
			break;
	}
	close(fd);
}
