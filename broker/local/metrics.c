/* SPDX-License-Identifier: Apache-2.0 */
/* /gleam/metrics: see metrics.h. A family is told whole before the next one begins, as the format wants it. */
#include "broker/local/metrics.h"

#include <inttypes.h>
#include <string.h>

#include "broker/lib/clock.h"

/* ---- the format ---- */

/* @unit "": none; it ends the name, as the format wants it. */
static void family(FILE *out, const char *name, const char *type, const char *unit, const char *help)
{
	fprintf(out, "# TYPE %s %s\n", name, type);
	if (*unit)
		fprintf(out, "# UNIT %s %s\n", name, unit);
	fprintf(out, "# HELP %s %s\n", name, help);
}

/* The bytes of the UTF-8 character at @text; 0: it is none. */
static unsigned utf8_size(const unsigned char *text)
{
	unsigned size = text[0] < 0x80 ? 1 : text[0] >= 0xc2 && text[0] < 0xe0 ? 2 : (text[0] & 0xf0) == 0xe0 ? 3 :
			text[0] >= 0xf0 && text[0] < 0xf5 ? 4 : 0;

	for (unsigned i = 1; i < size; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	/* Overlong forms and surrogates. */
	if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) || (text[0] == 0xf0 && text[1] < 0x90) ||
	    (text[0] == 0xf4 && text[1] > 0x8f))
		return 0;
	return size;
}

/* Names are the administrator's and other machines'. */
static void put_label(FILE *out, char before, const char *name, const char *value)
{
	fprintf(out, "%c%s=\"", before, name);
	for (const unsigned char *at = (const unsigned char *)value; *at;) {
		unsigned size = utf8_size(at);

		if (*at == '\\' || *at == '"')
			fprintf(out, "\\%c", *at);
		else if (size == 0 || *at < ' ' || *at == 0x7f)
			fputc('?', out);
		else
			fwrite(at, 1, size, out);
		at += size ? size : 1;
	}
	fputc('"', out);
}

/* ---- servers ---- */

static void put_server(FILE *out, const char *sample, const struct state_server *server)
{
	fputs(sample, out);
	put_label(out, '{', "server", server->name);
	fputs("} ", out);
}

static void put_server_states(FILE *out, const struct state *state)
{
	static const char *const states[] = { "idle", "connecting", "ready", "unreachable", "stopped" };
	enum { COUNT = sizeof(states) / sizeof(states[0]) };

	family(out, "gleam_server_state", "stateset", "", "Whether the server can be used.");
	for (unsigned s = 0; s < state->server_count; s++) {
		const char *now = state->servers[s].state;
		bool known = false;

		for (unsigned i = 0; i <= COUNT; i++) {
			const char *one = i < COUNT ? states[i] : now;

			/* A state that is newer than this list is told all the same. */
			if (i == COUNT && (known || !*now))
				break;
			known |= strcmp(one, now) == 0;
			fputs("gleam_server_state", out);
			put_label(out, '{', "server", state->servers[s].name);
			put_label(out, ',', "gleam_server_state", one);
			fprintf(out, "} %d\n", strcmp(one, now) == 0);
		}
	}
}

static void put_servers(FILE *out, const struct state *state)
{
#define EACH_SERVER(condition, sample, format, ...)                          \
	for (unsigned i = 0; i < state->server_count; i++) {                 \
		const struct state_server *server = &state->servers[i];      \
									     \
		if (condition) {                                             \
			put_server(out, sample, server);                     \
			fprintf(out, format "\n", __VA_ARGS__);              \
		}                                                            \
	}
	put_server_states(out, state);
	family(out, "gleam_server_load", "gauge", "", "Clients with unfinished work per GPU of the server, mean over 5 s.");
	EACH_SERVER(server->reported, "gleam_server_load", "%.3f", server->load)
	family(out, "gleam_server_clients", "gauge", "", "Clients that the server has, of all machines.");
	EACH_SERVER(server->reported, "gleam_server_clients", "%" PRIu32, server->report.sessions)
	family(out, "gleam_server_clients_max", "gauge", "", "Clients that the server takes.");
	EACH_SERVER(server->reported, "gleam_server_clients_max", "%" PRIu32, server->report.sessions_max)
	family(out, "gleam_server_workers_warm", "gauge", "", "Workers that wait for a client.");
	EACH_SERVER(server->reported, "gleam_server_workers_warm", "%" PRIu32, server->report.warm)
	family(out, "gleam_server_drained", "gauge", "", "1: gets no new clients, by its own wish or ours.");
	EACH_SERVER(true, "gleam_server_drained", "%d", server->drained)
	family(out, "gleam_link_rtt_seconds", "gauge", "seconds", "Round trip time of the newest ping to the server.");
	EACH_SERVER(server->linked && server->link.rtt_ns, "gleam_link_rtt_seconds", "%.9f",
		    (double)server->link.rtt_ns / (double)NS_PER_S)
	family(out, "gleam_link_bandwidth_bytes_per_second", "gauge", "bytes_per_second",
	       "Towards the server, as the system has measured it on the fastest bulk lane.");
	EACH_SERVER(server->linked && server->link.bandwidth, "gleam_link_bandwidth_bytes_per_second", "%" PRIu64,
		    server->link.bandwidth)
	family(out, "gleam_link_usable_bytes_per_second", "gauge", "bytes_per_second", "Bandwidth that the scheduler counts on.");
	EACH_SERVER(server->linked && server->usable > 0, "gleam_link_usable_bytes_per_second", "%.0f", server->usable)
	family(out, "gleam_link_lanes", "gauge", "", "Bulk connections that are up.");
	EACH_SERVER(true, "gleam_link_lanes", "%u", server->linked ? server->link.lanes : 0)
	family(out, "gleam_link_sent_bytes", "counter", "bytes", "Sent to the server; begins again with a new link.");
	EACH_SERVER(server->linked, "gleam_link_sent_bytes_total", "%" PRIu64, server->link.sent)
	family(out, "gleam_link_received_bytes", "counter", "bytes", "Received from the server; begins again with a new link.");
	EACH_SERVER(server->linked, "gleam_link_received_bytes_total", "%" PRIu64, server->link.received)
	family(out, "gleam_link_retransmits", "counter", "", "TCP segments sent again; begins again with a new link.");
	EACH_SERVER(server->linked, "gleam_link_retransmits_total", "%" PRIu32, server->link.retransmits)
	family(out, "gleam_cache_bytes", "gauge", "bytes", "What the server keeps of this tenant's uploads.");
	EACH_SERVER(server->cached, "gleam_cache_bytes", "%" PRIu64, server->cache.bytes)
	family(out, "gleam_cache_chunks", "gauge", "", "In so many chunks.");
	EACH_SERVER(server->cached, "gleam_cache_chunks", "%" PRIu64, server->cache.entries)
	family(out, "gleam_cache_hits", "counter", "", "Pieces of uploads that went as references.");
	EACH_SERVER(server->cached, "gleam_cache_hits_total", "%" PRIu64, server->cache.hits)
	family(out, "gleam_cache_misses", "counter", "", "Pieces whose bytes went, and were kept.");
	EACH_SERVER(server->cached, "gleam_cache_misses_total", "%" PRIu64, server->cache.misses)
	family(out, "gleam_cache_saved_bytes", "counter", "bytes", "What needn't travel.");
	EACH_SERVER(server->cached, "gleam_cache_saved_bytes_total", "%" PRIu64, server->cache.saved)
	family(out, "gleam_cache_evictions", "counter", "", "Chunks that went for room.");
	EACH_SERVER(server->cached, "gleam_cache_evictions_total", "%" PRIu64, server->cache.evictions)
	family(out, "gleam_cache_damaged", "counter", "", "Chunks that were found damaged on disk.");
	EACH_SERVER(server->cached, "gleam_cache_damaged_total", "%" PRIu64, server->cache.damaged)
#undef EACH_SERVER
}

/* ---- their GPUs ---- */

static void put_gpu(FILE *out, const char *sample, const struct state_server *server, unsigned gpu)
{
	char number[16];

	snprintf(number, sizeof(number), "%u", gpu);
	fputs(sample, out);
	put_label(out, '{', "server", server->name);
	put_label(out, ',', "gpu", number);
}

static void put_gpus(FILE *out, const struct state *state)
{
#define GPU state->servers[s].report.gpus[g]
#define EACH_GPU(condition, sample)                                                                             \
	for (unsigned s = 0; s < state->server_count; s++)                                                      \
		for (unsigned g = 0; state->servers[s].reported && g < state->servers[s].report.gpu_count; g++) \
			if ((condition) &&                                                                      \
			    (put_gpu(out, sample, &state->servers[s], g), true))
	family(out, "gleam_gpu", "info", "", "A GPU of a server.");
	EACH_GPU(true, "gleam_gpu_info") {
		put_label(out, ',', "name", GPU.name);
		fputs("} 1\n", out);
	}
	family(out, "gleam_gpu_memory_bytes", "gauge", "bytes", "Memory of the GPU.");
	EACH_GPU(GPU.memory != REPORT_UNKNOWN, "gleam_gpu_memory_bytes")
		fprintf(out, "} %" PRIu64 "\n", GPU.memory);
	family(out, "gleam_gpu_memory_free_bytes", "gauge", "bytes", "Of that, free.");
	EACH_GPU(GPU.memory_free != REPORT_UNKNOWN, "gleam_gpu_memory_free_bytes")
		fprintf(out, "} %" PRIu64 "\n", GPU.memory_free);
	family(out, "gleam_gpu_clients", "gauge", "", "Clients of all machines that may use the GPU.");
	EACH_GPU(true, "gleam_gpu_clients")
		fprintf(out, "} %" PRIu32 "\n", GPU.clients);
	family(out, "gleam_gpu_utilisation_ratio", "gauge", "ratio", "Share of time with a kernel running, as NVML tells.");
	EACH_GPU(GPU.utilisation != REPORT_UNKNOWN32, "gleam_gpu_utilisation_ratio")
		fprintf(out, "} %.2f\n", GPU.utilisation / 100.0);
#undef EACH_GPU
#undef GPU
}

/* ---- this machine's programs ---- */

static void put_clients(FILE *out, const struct state *state)
{
	unsigned live = 0;
	uint64_t memory = 0, inflight = 0;

	for (unsigned i = 0; i < state->client_count; i++) {
		live += strcmp(state->clients[i].state, "live") == 0;
		memory += state->clients[i].memory;
		inflight += state->clients[i].inflight;
	}
	family(out, "gleam_clients", "gauge", "", "Programs of this machine that use a GPU now.");
	fprintf(out, "gleam_clients %u\n", live);
	family(out, "gleam_clients_memory_bytes", "gauge", "bytes", "Device memory that they hold.");
	fprintf(out, "gleam_clients_memory_bytes %" PRIu64 "\n", memory);
	family(out, "gleam_clients_inflight_bytes", "gauge", "bytes", "Commands and data that no worker has taken yet.");
	fprintf(out, "gleam_clients_inflight_bytes %" PRIu64 "\n", inflight);
	family(out, "gleam_sessions", "counter", "", "CUDA sessions that programs of this machine have begun.");
	fprintf(out, "gleam_sessions_total %" PRIu64 "\n", state->sessions);
	family(out, "gleam_calls", "counter", "", "CUDA functions that they have called.");
	fprintf(out, "gleam_calls_total %" PRIu64 "\n", state->totals.calls);
	family(out, "gleam_round_trips", "counter", "", "Calls that waited for an answer of the server.");
	fprintf(out, "gleam_round_trips_total %" PRIu64 "\n", state->totals.trips);
	family(out, "gleam_waited_seconds", "counter", "seconds", "Time in those, and waiting for room.");
	fprintf(out, "gleam_waited_seconds_total %.6f\n", (double)state->totals.waited_ns / (double)NS_PER_S);
	family(out, "gleam_moved_bytes", "counter", "bytes", "Commands and data of these calls, both ways.");
	fprintf(out, "gleam_moved_bytes_total %" PRIu64 "\n", state->totals.bytes);
}

static void put_verdicts(FILE *out, const struct verdicts_stats *verdicts)
{
	family(out, "gleam_verdicts_bytes", "gauge", "bytes", "What servers have said about images, kept for the next programs' loads.");
	fprintf(out, "gleam_verdicts_bytes %" PRIu64 "\n", verdicts->bytes);
	family(out, "gleam_verdicts_images", "gauge", "", "Of so many images.");
	fprintf(out, "gleam_verdicts_images %" PRIu64 "\n", verdicts->entries);
	family(out, "gleam_verdicts_hits", "counter", "", "Loads that needn't wait for an answer.");
	fprintf(out, "gleam_verdicts_hits_total %" PRIu64 "\n", verdicts->hits);
	family(out, "gleam_verdicts_misses", "counter", "", "Loads of images of which nothing was known.");
	fprintf(out, "gleam_verdicts_misses_total %" PRIu64 "\n", verdicts->misses);
	family(out, "gleam_verdicts_evictions", "counter", "", "Images that went for room.");
	fprintf(out, "gleam_verdicts_evictions_total %" PRIu64 "\n", verdicts->evictions);
}

void metrics_put(FILE *out, const struct state *state)
{
	family(out, "gleam_build", "info", "", "The daemon.");
	fputs("gleam_build_info", out);
	put_label(out, '{', "version", state->version);
	put_label(out, ',', "protocol", state->protocol);
	fputs("} 1\n", out);
	family(out, "gleam_uptime_seconds", "gauge", "seconds", "Since the daemon started.");
	fprintf(out, "gleam_uptime_seconds %.3f\n", state->age_s);
	if (*state->node) {
		family(out, "gleam_node_clients", "gauge", "", "Clients that this machine's own GPUs serve.");
		fprintf(out, "gleam_node_clients %" PRIu32 "\n", state->node_report.sessions);
		family(out, "gleam_node_workers_warm", "gauge", "", "Workers of this machine that wait for a client.");
		fprintf(out, "gleam_node_workers_warm %" PRIu32 "\n", state->node_report.warm);
		family(out, "gleam_node_busy", "gauge", "", "Clients of it with unfinished work, mean over 5 s.");
		fprintf(out, "gleam_node_busy %.3f\n", state->node_report.busy_milli / 1000.0);
	}
	put_verdicts(out, &state->verdicts);
	put_servers(out, state);
	put_gpus(out, state);
	put_clients(out, state);
	fputs("# EOF\n", out);
}
