/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers to gleamctl, and to the clients' NVML. Control thread; see control.h.
 *
 *	{"cmd":"version"}  {"cmd":"status"}  {"cmd":"servers"}  {"cmd":"clients"}  {"cmd":"clients","pid":N}
 *	and what control_sched.h, control_cache.h and control_move.h have
 *
 * With a pid the per-call table comes, too. What isn't understood is answered by {"error": "..."}.
 */
#include "broker/local/control.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/lib/codec.h"
#include "broker/lib/fd.h"
#include "broker/lib/json.h"
#include "broker/local/broker.h"
#include "broker/local/client_private.h"
#include "broker/local/control_cache.h"
#include "broker/local/control_sched.h"
#include "broker/local/control_move.h"
#include "broker/local/control_save.h"
#include "broker/local/state.h"
#include "broker/proto/times.h"
#include "broker/proto/wire.h"
#include "gen/api.h"

#define CONTROL_PART 32768u /* of an answer in one packet; the socket's buffer takes a few */

/* As nvidia-smi writes it. */
static void put_uuid(struct json *json, const uint8_t uuid[16])
{
	char text[48] = "GPU-";
	size_t at = 4;

	for (unsigned i = 0; i < 16; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
				       uuid[i]);
	json_str(json, "uuid", text);
}

static void put_gpus(struct json *json, const struct report *report)
{
	json_open(json, "gpus", '[');
	for (uint32_t i = 0; i < report->gpu_count; i++) {
		const struct report_gpu *gpu = &report->gpus[i];

		json_open(json, NULL, '{');
		json_str(json, "name", gpu->name);
		put_uuid(json, gpu->uuid);
		json_u64(json, "memory", gpu->memory);
		if (gpu->memory_free == REPORT_UNKNOWN)
			json_null(json, "memory_free");
		else
			json_u64(json, "memory_free", gpu->memory_free);
		if (gpu->utilisation == REPORT_UNKNOWN32)
			json_null(json, "utilisation");
		else
			json_u64(json, "utilisation", gpu->utilisation);
		json_u64(json, "clients", gpu->clients);
		if (gpu->speed)
			json_fixed(json, "speed", (double)gpu->speed / (double)REPORT_SPEED_ONE, 9);
		else
			json_null(json, "speed");
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void put_server(struct json *json, const struct state_server *server)
{
	json_open(json, NULL, '{');
	json_str(json, "name", server->name);
	json_str(json, "address", server->address);
	json_str(json, "state", server->state);
	json_str(json, "why", server->why);
	json_u64(json, "clients", server->clients);
	json_bool(json, "drained", server->drained);
	if (server->linked) {
		json_str(json, "peer", server->peer);
		json_str(json, "host", server->host);
		json_bool(json, "tls", server->link.tls);
		json_u64(json, "lanes", server->link.lanes);
		json_fixed(json, "rtt_us", (double)server->link.rtt_ns / 1000, 1);
		json_fixed(json, "rtt_min_us", (double)server->link.rtt_min_ns / 1000, 1);
		json_fixed(json, "jitter_us", (double)server->link.jitter_ns / 1000, 1);
		json_u64(json, "tcp_rtt_us", server->link.tcp_rtt_us);
		if (server->link.bandwidth)
			json_u64(json, "bandwidth", server->link.bandwidth);
		else
			json_null(json, "bandwidth");
		if (server->usable > 0)
			json_fixed(json, "bandwidth_usable", server->usable, 0);
		else
			json_null(json, "bandwidth_usable");
		json_str(json, "interface", server->interface);
		json_u64(json, "saved", server->link.saved);
		json_u64(json, "retransmits", server->link.retransmits);
		json_u64(json, "sent", server->link.sent);
		json_u64(json, "received", server->link.received);
	}
	if (server->cached) {
		json_open(json, "cache", '{');
		json_u64(json, "bytes", server->cache.bytes);
		json_u64(json, "hits", server->cache.hits);
		json_u64(json, "misses", server->cache.misses);
		json_u64(json, "saved", server->cache.saved);
		json_close(json, '}');
	}
	if (server->reported) {
		json_fixed(json, "load", server->load, 2);
		json_fixed(json, "report_age_s", server->report_age_s, 1);
		json_u64(json, "sessions", server->report.sessions);
		json_u64(json, "sessions_max", server->report.sessions_max);
		json_u64(json, "warm", server->report.warm);
		json_str(json, "driver", server->report.driver);
		put_gpus(json, &server->report);
	}
	json_close(json, '}');
}

static void put_counts(struct json *json, const struct broker *broker, uint32_t session)
{
	struct api_count *counts = calloc(SESSION_API_MAX, sizeof(*counts));
	uint32_t times[SESSION_TIMES];

	if (!counts || state_counts(broker, session, counts)) {
		free(counts);
		return;
	}
	json_open(json, "api", '[');
	for (uint32_t i = 0; i < API_COUNT && i < SESSION_API_MAX; i++) {
		if (counts[i].calls == 0)
			continue;
		json_open(json, NULL, '{');
		json_str(json, "name", api_names[i]);
		json_u64(json, "calls", counts[i].calls);
		json_u64(json, "round_trips", counts[i].trips);
		json_u64(json, "bytes", counts[i].bytes);
		json_u64(json, "waited_ns", counts[i].waited_ns);
		state_times(broker, session, i, times);
		json_u64(json, "p50_ns", times_quantile(times, 0.5));
		json_u64(json, "p99_ns", times_quantile(times, 0.99));
		json_close(json, '}');
	}
	json_close(json, ']');
	free(counts);
}

static void put_client(struct json *json, const struct broker *broker, const struct state_client *client, bool counts)
{
	json_open(json, NULL, '{');
	json_u64(json, "pid", (uint64_t)client->pid);
	json_u64(json, "uid", client->uid);
	json_u64(json, "session", client->session);
	json_str(json, "program", client->program);
	json_str(json, "server", client->server);
	json_str(json, "state", client->state);
	json_str(json, "reason", client->reason);
	json_bool(json, "direct", client->direct);
	json_fixed(json, "age_s", client->age_s, 3);
	json_u64(json, "calls", client->calls);
	json_u64(json, "bytes", client->bytes);
	json_u64(json, "round_trips", client->round_trips);
	json_fixed(json, "waited_s", client->waited_s, 6);
	json_u64(json, "inflight", client->inflight);
	json_u64(json, "memory", client->memory);
	if (client->pace > 0)
		json_fixed(json, "pace", client->pace, 1);
	else
		json_null(json, "pace");
	json_u64(json, "link_sent", client->link_sent);
	json_u64(json, "link_received", client->link_received);
	if (counts)
		put_counts(json, broker, client->session);
	json_close(json, '}');
}

/* A user sees its own processes; root and the daemon's user see all. */
static void put_clients(struct json *json, const struct broker *broker, const struct state *state, uid_t uid, uint64_t pid)
{
	bool all = uid == 0 || uid == geteuid();
	unsigned hidden = 0;

	json_open(json, "clients", '[');
	for (unsigned i = 0; i < state->client_count; i++) {
		const struct state_client *client = &state->clients[i];

		if (!all && client->uid != uid)
			hidden++;
		else if (pid == 0 || (uint64_t)client->pid == pid)
			put_client(json, broker, client, pid != 0);
	}
	json_close(json, ']');
	json_u64(json, "hidden", hidden);
}

static void put_status(struct json *json, const struct state *state)
{
	json_str(json, "version", state->version);
	json_str(json, "protocol", state->protocol);
	json_str(json, "socket", state->socket);
	json_u64(json, "pid", (uint64_t)getpid());
	json_fixed(json, "age_s", state->age_s, 1);
	json_u64(json, "server_count", state->server_count);
	json_u64(json, "client_count", state->client_count);
	json_open(json, "verdicts", '{');
	json_u64(json, "bytes", state->verdicts.bytes);
	json_u64(json, "entries", state->verdicts.entries);
	json_u64(json, "hits", state->verdicts.hits);
	json_u64(json, "misses", state->verdicts.misses);
	json_u64(json, "evictions", state->verdicts.evictions);
	json_close(json, '}');
	if (*state->node) {
		json_open(json, "node", '{');
		json_str(json, "listen", state->node);
		json_str(json, "driver", state->node_report.driver);
		json_str(json, "trouble", state->node_trouble);
		json_u64(json, "sessions", state->node_report.sessions);
		json_u64(json, "sessions_max", state->node_report.sessions_max);
		json_u64(json, "warm", state->node_report.warm);
		put_gpus(json, &state->node_report);
		json_close(json, '}');
	}
}

static void put_servers(struct json *json, const struct state *state)
{
	json_open(json, "servers", '[');
	for (unsigned i = 0; i < state->server_count; i++)
		put_server(json, &state->servers[i]);
	json_close(json, ']');
}

void control_refuse(struct json *json, const char *format, ...)
{
	char why[PATH_MAX + 512]; /* it may name a file */
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	json_open(json, NULL, '{');
	json_str(json, "error", why);
	json_close(json, '}');
}

static void answer_make(struct broker *broker, uid_t uid, const char *request, int *fd, struct json *json)
{
	struct json_field fields[JSON_FIELDS_MAX];
	unsigned count = 0;
	const struct json_field *cmd, *pid;
	struct state *state;

	if (json_read(request, fields, &count)) {
		control_refuse(json, "the request is not a flat JSON object");
		return;
	}
	cmd = json_field(fields, count, "cmd");
	pid = json_field(fields, count, "pid");
	if (!cmd || cmd->is_number || (pid && !pid->is_number)) {
		control_refuse(json, "the request has no \"cmd\", or its \"pid\" is not a number");
		return;
	}
	if (control_sched(broker, uid, fields, count, json) || control_cache(broker, uid, fields, count, fd, json))
		return;
	state_refresh(broker);
	state = state_take(broker);
	if (!state) {
		control_refuse(json, "out of memory");
		return;
	}
	if (strcmp(cmd->text, "version") == 0) {
		json_open(json, NULL, '{');
		json_str(json, "version", state->version);
		json_str(json, "protocol", state->protocol);
		json_close(json, '}');
	} else if (strcmp(cmd->text, "status") == 0) {
		json_open(json, NULL, '{');
		put_status(json, state);
		put_servers(json, state);
		put_clients(json, broker, state, uid, 0);
		json_close(json, '}');
	} else if (strcmp(cmd->text, "servers") == 0) {
		json_open(json, NULL, '{');
		put_servers(json, state);
		json_close(json, '}');
	} else if (strcmp(cmd->text, "clients") == 0) {
		json_open(json, NULL, '{');
		put_clients(json, broker, state, uid, pid ? pid->number : 0);
		json_close(json, '}');
	} else {
		/* Mostly after an update: the programs are new, the daemon still runs. */
		control_refuse(json, "this gleamd (%s) doesn't know the command `%.40s`; if it is older than gleamctl, restart it: "
			       "systemctl restart gleamd", state->version, cmd->text);
	}
	state_free(state);
}

int control_answer(struct broker *broker, struct client *client, uid_t uid, const char *request, int fd)
{
	struct json json = { 0 };

	bool later = control_save(broker, client, uid, request, &fd, &json) ||
		     (!json.size && !json.fault && control_move(broker, client, uid, request, &json));

	if (!later && !json.size && !json.fault)
		answer_make(broker, uid, request, &fd, &json);
	fd_close(&fd);
	return later ? 0 : control_send(client, &json);
}

int control_send(struct client *client, struct json *json)
{
	static const size_t head = 3 * sizeof(uint32_t);
	uint8_t *packet = malloc(head + CONTROL_PART + 8);
	int err = packet && !json->fault ? 0 : -ENOMEM;
	size_t at = 0;

	while (!err) {
		size_t size = json->size - at < CONTROL_PART ? json->size - at : CONTROL_PART;
		bool more = at + size < json->size;
		struct writer w = writer_on(packet, head + CONTROL_PART + 8);

		/* LOCAL_JSON, u32 more, str */
		put_u32(&w, LOCAL_JSON);
		put_u32(&w, more);
		put_u32(&w, (uint32_t)size);
		put_block(&w, json->text + at, size);
		put_u8(&w, 0);
		err = client_packet(client, packet, w.at, NULL, 0);
		at += size;
		if (!more)
			break;
	}
	free(packet);
	free(json->text);
	json->text = NULL;
	return err;
}

void control_news(struct client *client, struct json *json)
{
	uint8_t packet[4096];
	struct writer w = writer_on(packet, sizeof(packet));

	put_u32(&w, LOCAL_NEWS);
	put_str(&w, json->fault ? "{}" : json->text);
	/* One that is lost is followed by others. */
	if (!w.fault)
		client_packet(client, packet, w.at, NULL, 0);
	free(json->text);
	json->text = NULL;
}

/* ---- GPUs of the servers and who of this machine has them, for the client's NVML ---- */

#define PROCESSES_MAX 1024u /* of a GPU; the packet has room for some thousand */

static bool seat_has(const struct report *report, uint32_t session, uint32_t gpu)
{
	for (uint32_t i = 0; i < report->seat_count; i++)
		if (report->seats[i].session == session)
			return report->seats[i].gpus >> gpu & 1;
	/* Newer than the report, or one of very many: everybody has the only GPU. */
	return report->gpu_count == 1;
}

static bool is_on(const struct state_client *client, const struct state_server *server, uint32_t gpu, uid_t uid)
{
	return client->pid > 0 && (uid == 0 || uid == geteuid() || client->uid == uid) && strcmp(client->state, "live") == 0 &&
	       strcmp(client->server, server->name) == 0 && seat_has(&server->report, client->session, gpu);
}

/* Memory is the program's, on whichever of its GPUs it lies: told of the first. */
static uint64_t memory_on(const struct state_client *client, const struct report *report, uint32_t gpu)
{
	for (uint32_t i = 0; i < gpu; i++)
		if (seat_has(report, client->session, i))
			return 0;
	return client->memory;
}

static void put_processes(struct writer *w, const struct state *state, const struct state_server *server, uint32_t gpu, uid_t uid)
{
	uint32_t count = 0;

	for (unsigned i = 0; i < state->client_count && count < PROCESSES_MAX; i++)
		count += is_on(&state->clients[i], server, gpu, uid);
	put_u32(w, count);
	for (unsigned i = 0; i < state->client_count && count; i++) {
		const struct state_client *client = &state->clients[i];

		if (!is_on(client, server, gpu, uid))
			continue;
		put_u32(w, (uint32_t)client->pid);
		put_u64(w, memory_on(client, &server->report, gpu));
		count--;
	}
}

static int gpu_send(struct client *client, const struct state *state, const struct state_server *server, uint32_t index, uid_t uid,
		    uint8_t *packet)
{
	const struct report_gpu *gpu = &server->report.gpus[index];
	struct writer w = writer_on(packet, LOCAL_MSG_MAX);

	put_u32(&w, LOCAL_GPU);
	put_u32(&w, 1);
	put_u32(&w, 0);
	put_str(&w, server->name);
	put_u32(&w, index);
	put_str(&w, server->report.driver_version);
	put_str(&w, gpu->name);
	put_block(&w, gpu->uuid, sizeof(gpu->uuid));
	put_u64(&w, gpu->memory);
	put_u64(&w, gpu->memory_free);
	put_u32(&w, gpu->utilisation);
	put_u64(&w, gpu->pci);
	put_u32(&w, REPORT_VALUES);
	for (uint32_t v = 0; v < REPORT_VALUES; v++)
		put_u32(&w, gpu->values[v]);
	put_processes(&w, state, server, index, uid);
	return w.fault ? -EMSGSIZE : client_packet(client, packet, w.at, NULL, 0);
}

/* Will its GPUs be known in a moment? */
static bool is_pending(const struct state_server *server)
{
	return !server->reported && strcmp(server->state, "unreachable") != 0 && strcmp(server->state, "stopped") != 0;
}

/* @wanted: names with commas between; "": all. */
static bool is_wanted(const char *wanted, const char *name)
{
	size_t length = strlen(name);

	if (!*wanted)
		return true;
	for (; *wanted; wanted += strcspn(wanted, ","), wanted += *wanted == ',')
		if (strcspn(wanted, ",") == length && !memcmp(wanted, name, length))
			return true;
	return false;
}

int control_gpus(struct broker *broker, struct client *client, uid_t uid, const char *wanted)
{
	uint8_t *packet = malloc(LOCAL_MSG_MAX);
	struct state *state;
	uint32_t pending = 0;
	int err = -ENOMEM;

	state_refresh(broker);
	state = state_take(broker);
	if (!state || !packet)
		goto free_all;
	err = 0;
	for (unsigned s = 0; s < state->server_count && !err; s++) {
		const struct state_server *server = &state->servers[s];

		if (!is_wanted(wanted, server->name))
			continue;
		pending += is_pending(server);
		for (uint32_t i = 0; server->reported && i < server->report.gpu_count && !err; i++)
			err = gpu_send(client, state, server, i, uid, packet);
	}
	if (!err) {
		struct writer w = writer_on(packet, LOCAL_MSG_MAX);

		put_u32(&w, LOCAL_GPU);
		put_u32(&w, 0);
		put_u32(&w, pending);
		err = client_packet(client, packet, w.at, NULL, 0);
	}
free_all:
	state_free(state);
	free(packet);
	return err;
}
