/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in the files of the /gleam tree. See tree_file.h; the units are told in tree_node.h. */
#include "broker/local/tree_file.h"

#include <inttypes.h>

#include "gen/api.h"

#define UNKNOWN "-\n"

/* Names come from other processes: what could end a line or move a cursor is shown as '?'. */
static void put_line(FILE *out, const char *text)
{
	for (; *text; text++)
		fputc((unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text, out);
	fputc('\n', out);
}

static void put_text(FILE *out, const char *text)
{
	if (*text)
		put_line(out, text);
	else
		fputs(UNKNOWN, out);
}

static void put_number(FILE *out, uint64_t number)
{
	fprintf(out, "%" PRIu64 "\n", number);
}

/* As printf has it, in a tenth of its time: values are polled. */
static void put_decimal(FILE *out, double value, unsigned decimals)
{
	char text[32];
	char *at = text + sizeof(text);
	uint64_t scale = 1;

	for (unsigned i = 0; i < decimals; i++)
		scale *= 10;
	/* Also what isn't a number. */
	if (!(value >= 0 && value < 1e12)) {
		fprintf(out, "%.*f\n", (int)decimals, value);
		return;
	}

	uint64_t digits = (uint64_t)(value * (double)scale + 0.5);

	*--at = '\n';
	for (unsigned i = 0; i < decimals || digits || i == decimals; i++) {
		if (i == decimals && decimals)
			*--at = '.';
		*--at = (char)('0' + digits % 10);
		digits /= 10;
	}
	fwrite(at, 1, (size_t)(text + sizeof(text) - at), out);
}

/* ---- servers ---- */

static void server_address(FILE *out, const struct state_server *server)
{
	put_text(out, server->address);
}

static void server_load(FILE *out, const struct state_server *server)
{
	if (server->reported)
		put_decimal(out, server->load, 2);
	else
		fputs(UNKNOWN, out);
}

static void server_rtt(FILE *out, const struct state_server *server)
{
	uint64_t ns = server->link.rtt_ns ? server->link.rtt_ns : 1000ull * server->link.tcp_rtt_us;

	if (server->linked && ns)
		put_decimal(out, (double)ns / 1e6, 3);
	else
		fputs(UNKNOWN, out);
}

static void server_jitter(FILE *out, const struct state_server *server)
{
	if (server->linked && server->link.rtt_mean_ns)
		put_decimal(out, (double)server->link.jitter_ns / 1e6, 3);
	else
		fputs(UNKNOWN, out);
}

static void server_age(FILE *out, const struct state_server *server)
{
	if (server->reported)
		put_decimal(out, server->report_age_s, 1);
	else
		fputs(UNKNOWN, out);
}

static void server_bandwidth(FILE *out, const struct state_server *server)
{
	if (server->linked && server->link.bandwidth)
		put_decimal(out, (double)server->link.bandwidth * 8 / 1e6, 0);
	else
		fputs(UNKNOWN, out);
}

static void server_state(FILE *out, const struct state_server *server)
{
	put_text(out, server->state);
}

static void server_lanes(FILE *out, const struct state_server *server)
{
	put_number(out, server->linked ? server->link.lanes : 0);
}

/* Of all machines, as the server says. */
static void server_clients(FILE *out, const struct state_server *server)
{
	if (server->reported)
		put_number(out, server->report.sessions);
	else
		fputs(UNKNOWN, out);
}

const struct server_file tree_server_files[TREE_SERVER_FILES] = {
	{ "address", STATE_NAMES, server_address }, { "load", STATE_REPORT, server_load },
	{ "age", STATE_REPORT, server_age },	    { "jitter", STATE_LINK, server_jitter },
	{ "rtt", STATE_LINK, server_rtt },	    { "bandwidth", STATE_LINK, server_bandwidth },
	{ "state", STATE_NAMES, server_state },	    { "lanes", STATE_LINK, server_lanes },
	{ "clients", STATE_REPORT, server_clients },
};

/* ---- their caches; NULL: nobody knows ---- */

#define CACHE_FILE(field)                                                                                      \
	static void cache_##field(FILE *out, const struct cache_stats *cache)                                  \
	{                                                                                                      \
		if (cache)                                                                                     \
			put_number(out, cache->field);                                                         \
		else                                                                                           \
			fputs(UNKNOWN, out);                                                                   \
	}
CACHE_FILE(bytes)
CACHE_FILE(entries)
CACHE_FILE(hits)
CACHE_FILE(misses)
CACHE_FILE(saved)
CACHE_FILE(evictions)

const struct cache_file tree_cache_files[TREE_CACHE_FILES] = {
	{ "bytes", cache_bytes },   { "entries", cache_entries }, { "hits", cache_hits },
	{ "misses", cache_misses }, { "saved", cache_saved },	  { "evictions", cache_evictions },
};

/* ---- what is known of images ---- */

#define VERDICTS_FILE(field)                                                       \
	static void verdicts_##field(FILE *out, const struct verdicts_stats *verdicts) \
	{                                                                          \
		put_number(out, verdicts->field);                                  \
	}
VERDICTS_FILE(bytes)
VERDICTS_FILE(entries)
VERDICTS_FILE(hits)
VERDICTS_FILE(misses)
VERDICTS_FILE(evictions)

const struct verdicts_file tree_verdicts_files[TREE_VERDICTS_FILES] = {
	{ "bytes", verdicts_bytes },   { "entries", verdicts_entries },	    { "hits", verdicts_hits },
	{ "misses", verdicts_misses }, { "evictions", verdicts_evictions },
};

/* ---- their GPUs ---- */

static void gpu_name(FILE *out, const struct report_gpu *gpu)
{
	put_text(out, gpu->name);
}

static void gpu_memory(FILE *out, const struct report_gpu *gpu)
{
	put_number(out, gpu->memory);
}

static void gpu_memory_free(FILE *out, const struct report_gpu *gpu)
{
	if (gpu->memory_free == REPORT_UNKNOWN)
		fputs(UNKNOWN, out);
	else
		put_number(out, gpu->memory_free);
}

static void gpu_uuid(FILE *out, const struct report_gpu *gpu)
{
	fputs("GPU-", out);
	for (unsigned i = 0; i < sizeof(gpu->uuid); i++)
		fprintf(out, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", gpu->uuid[i]);
	fputc('\n', out);
}

static void gpu_utilisation(FILE *out, const struct report_gpu *gpu)
{
	if (gpu->utilisation == REPORT_UNKNOWN32)
		fputs(UNKNOWN, out);
	else
		put_number(out, gpu->utilisation);
}

static void gpu_speed(FILE *out, const struct report_gpu *gpu)
{
	if (gpu->speed)
		fprintf(out, "%.4g\n", (double)gpu->speed / (double)REPORT_SPEED_ONE);
	else
		fputs(UNKNOWN, out);
}

/* Of all machines. */
static void gpu_clients(FILE *out, const struct report_gpu *gpu)
{
	put_number(out, gpu->clients);
}

const struct gpu_file tree_gpu_files[TREE_GPU_FILES] = {
	{ "name", gpu_name },	{ "memory", gpu_memory },	    { "memory_free", gpu_memory_free },
	{ "uuid", gpu_uuid }, { "utilisation", gpu_utilisation }, { "speed", gpu_speed },
	{ "clients", gpu_clients },
};

/* ---- clients ---- */

static void client_server(FILE *out, const struct state_client *client, const struct api_count *counts)
{
	put_text(out, client->server);
}

static void client_state(FILE *out, const struct state_client *client, const struct api_count *counts)
{
	put_text(out, client->state);
}

static void client_program(FILE *out, const struct state_client *client, const struct api_count *counts)
{
	put_text(out, client->program);
}

static void client_uid(FILE *out, const struct state_client *client, const struct api_count *counts)
{
	put_number(out, client->uid);
}

static void client_calls(FILE *out, const struct state_client *client, const struct api_count *counts)
{
	put_number(out, client->calls);
}

static void client_bytes(FILE *out, const struct state_client *client, const struct api_count *counts)
{
	put_number(out, client->bytes);
}

static void client_round_trips(FILE *out, const struct state_client *client, const struct api_count *counts)
{
	put_number(out, client->round_trips);
}

static void client_waited(FILE *out, const struct state_client *client, const struct api_count *counts)
{
	put_decimal(out, client->waited_s * 1000, 3);
}

static void client_inflight(FILE *out, const struct state_client *client, const struct api_count *counts)
{
	put_number(out, client->inflight);
}

static void client_memory(FILE *out, const struct state_client *client, const struct api_count *counts)
{
	put_number(out, client->memory);
}

/* A line a function that was called, in the order of the API description. */
static void client_stats(FILE *out, const struct state_client *client, const struct api_count *counts)
{
	fputs("# name calls bytes trips waited_us\n", out);
	for (uint32_t i = 0; counts && i < API_COUNT && i < SESSION_API_MAX; i++) {
		const struct api_count *count = &counts[i];

		if (count->calls)
			fprintf(out, "%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", api_names[i],
				(uint64_t)count->calls, (uint64_t)count->bytes, (uint64_t)count->trips,
				(uint64_t)count->waited_ns / 1000);
	}
}

const struct client_file tree_client_files[TREE_CLIENT_FILES] = {
	{ "server", client_server }, { "state", client_state }, { "program", client_program }, { "uid", client_uid },
	{ "calls", client_calls },   { "bytes", client_bytes }, { "round_trips", client_round_trips },
	{ "waited", client_waited }, { "inflight", client_inflight }, { "memory", client_memory },
	{ "stats", client_stats },
};
