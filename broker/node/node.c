/* SPDX-License-Identifier: Apache-2.0 */
/* The node role: peers and their seats. Control thread; see node.h. */
#include "broker/node/node.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/fd.h"
#include "broker/lib/log.h"
#include "broker/node/cache.h"
#include "broker/node/gate.h"
#include "broker/node/gpus.h"
#include "broker/node/pool.h"
#include "broker/node/probe.h"
#include "broker/node/seat.h"
#include "broker/node/setting.h"
#include "broker/node/ways.h"

#define NODE_PEERS_MAX	   256
#define NODE_SETTINGS_MAX  16
#define CONTEXT_BYTES	   (1ull << 30) /* of a GPU: what a worker's context takes on a large one, and some */
#define NODE_AWAY_MS	   2000u /* for the broker's way to us, once it knows */
#define NODE_SAMPLE_NS	   (100 * NS_PER_MS)
#define NODE_SAMPLES	   50 /* five seconds of them: what `load` is the mean over */
#define NODE_SAMPLES_NOW   10 /* a second: for schedulers, which are to change their minds within two */
#define NODE_ACCOUNT_NS	   (20 * NS_PER_US) /* rounds that follow each other faster are one */

struct peer {
	struct node *node;
	struct link *link;
	struct cache_peer *cache; /* NULL: it has none */
	unsigned seats;
	uint64_t report_ns; /* 0: not wanted */
	uint64_t report_due_ns;
	uint32_t samples[NODE_SAMPLES_NOW]; /* of its clients, at the places of the node's */
	uint64_t bytes;	 /* over its link, when they were looked at last */
	uint64_t rate;	 /* a second */
};

struct node {
	struct loop *loop;
	const struct conf *conf;
	struct link_setting link_setting;
	struct proc_setting proc_setting;
	struct gate *gate;
	struct pool *pool;
	struct probe *probe;
	struct cache *cache;
	struct ways *ways;
	bool stopping;

	struct peer *peers[NODE_PEERS_MAX];
	unsigned peer_count;
	struct seat **seats; /* conf->sessions_max; also those that wait for their worker's end */
	unsigned seat_count;
	unsigned seat_max;
	unsigned attached; /* of them on a link */

	struct loop_timer sample;
	uint32_t samples[NODE_SAMPLES];
	unsigned sample_at;
	unsigned sample_count;
	uint64_t rate_ns; /* when the links' bytes were counted */
	uint64_t rate;	  /* of all links */

	uint64_t account_ns; /* until when seats' work has been counted */
	bool *had_work;	     /* sessions_max: by seat, since then */
	bool draining;
};

/* ---- seats ---- */

static struct peer *peer_of(const struct node *node, const struct link *link)
{
	for (unsigned i = 0; i < node->peer_count; i++)
		if (node->peers[i]->link == link)
			return node->peers[i];
	return NULL;
}

static void node_seat_left(void *owner, struct seat *seat)
{
	struct node *node = owner;
	struct peer *peer = peer_of(node, seat_link(seat));

	assert(peer);
	ways_seat_left(node->ways, seat);
	peer->seats--;
	node->attached--;
}

static void node_seat_freed(void *owner, struct seat *seat)
{
	struct node *node = owner;

	for (unsigned i = 0; i < node->seat_count; i++) {
		if (node->seats[i] == seat) {
			node->seats[i] = node->seats[--node->seat_count];
			node->had_work[i] = node->had_work[node->seat_count];
			return;
		}
	}
}

/* All but @seat (or NULL) are asked for what they have of @gpu and don't use. How many have any. */
static unsigned node_recall(struct node *node, const struct seat *seat, uint32_t gpu, uint64_t bytes)
{
	unsigned asked = 0;

	for (unsigned i = 0; i < node->seat_count; i++)
		if (node->seats[i] != seat)
			asked += seat_recall(node->seats[i], gpu, bytes);
	return asked;
}

static unsigned node_seat_is_short(void *owner, struct seat *seat, uint32_t gpu, uint64_t bytes)
{
	if (gpu >= 32 || !(seat_gpus(seat) >> gpu & 1))
		return 0;
	return node_recall(owner, seat, gpu, bytes);
}

/* The seat of a link by its number there, counted by its mirror. NULL: none; a depot, for which the message isn't: @depot_out. */
static struct seat *peer_seat(const struct peer *peer, uint32_t session, bool *depot_out)
{
	struct mirror *mirror = link_mirror_get(peer->link, session);

	*depot_out = mirror && mirror->depot;
	if (*depot_out) {
		mirror_put(mirror);
		mirror = NULL;
	}
	return (struct seat *)mirror;
}

static void peer_seat_put(struct seat *seat)
{
	if (seat)
		mirror_put(seat_mirror(seat));
}

static const struct seat_ops seat_ops = { .left = node_seat_left, .freed = node_seat_freed, .is_short = node_seat_is_short };

static void attach_refuse(struct link *link, uint32_t session, enum session_end end, const char *why)
{
	uint8_t bytes[LINK_TEXT_MAX + 64] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));

	put_u32(&w, end);
	put_str(&w, why);
	link_send(link, LINK_ATTACHED, session, bytes, w.at, NULL, 0);
	log_warn("%s: a client is refused: %s", link_peer(link), why);
}

/*
 * Of a client's environment only what the driver reads at its start and what can't harm: names from a list, values without
 * anything special. Paths of the client (CUDA_CACHE_PATH) mean nothing here. What says which GPUs goes into @wish_out.
 */
static void settings_pick(char *text, const char **settings_out, struct gpus_wish *wish_out)
{
	/* GLEAM_ONLY is of a broker whose client may use these GPUs alone (/dev/gleam<N>). */
	static const char digits[] = "0123456789", only[] = "0123456789abcdefGPU-,";
	const struct {
		const char *name, *allowed;
		const char **wish;
	} names[] = {
		{ "CUDA_CACHE_DISABLE=", digits, NULL },   { "CUDA_CACHE_MAXSIZE=", digits, NULL },
		{ "CUDA_FORCE_PTX_JIT=", digits, NULL },   { "CUDA_DISABLE_PTX_JIT=", digits, NULL },
		{ "CUDA_FORCE_JIT=", digits, NULL },	   { "CUDA_DISABLE_JIT=", digits, NULL },
		{ "GLEAM_ONLY=", only, &wish_out->only },  { "GLEAM_GPUS=", NULL, &wish_out->count },
		/* Read by the driver's rules, and never handed on. */
		{ "CUDA_VISIBLE_DEVICES=", NULL, &wish_out->visible },
		{ "CUDA_DEVICE_ORDER=", NULL, &wish_out->order },
	};
	unsigned seen = 0; /* bit per name: the first of each counts */
	unsigned count = 0;

	memset(wish_out, 0, sizeof(*wish_out));
	for (char *line; (line = strsep(&text, "\n")) && count < NODE_SETTINGS_MAX;) {
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			size_t size = strlen(names[i].name);

			if (strncmp(line, names[i].name, size) != 0 || seen & 1u << i ||
			    (names[i].allowed && strspn(line + size, names[i].allowed) != strlen(line + size)))
				continue;
			seen |= 1u << i;
			if (names[i].wish)
				*names[i].wish = line + size;
			else
				settings_out[count++] = line;
		}
	}
	settings_out[count] = NULL;
	if (wish_out->count && !*wish_out->count)
		wish_out->count = NULL; /* GLEAM_GPUS= is as good as none */
}

/* Its GPUs as they are now: who has them, and what is free. */
static void gpus_look(const struct node *node, struct gpus_have *have_out)
{
	struct report report = { 0 };

	probe_gpus(node->probe, &report);
	memset(have_out, 0, sizeof(*have_out));
	have_out->count = report.gpu_count;
	for (uint32_t i = 0; i < report.gpu_count; i++) {
		memcpy(have_out->gpus[i].uuid, report.gpus[i].uuid, sizeof(have_out->gpus[i].uuid));
		have_out->gpus[i].pci = probe_gpu_pci(node->probe, i);
		have_out->gpus[i].memory_free = report.gpus[i].memory_free;
		for (unsigned s = 0; s < node->seat_count; s++)
			have_out->gpus[i].clients += seat_gpus(node->seats[s]) >> i & 1;
	}
}

/*
 * A worker's context wants memory of the GPU before its client can ask for any. Where little is free others give back what they keep for their
 * next allocation, while the worker starts.
 */
static void node_make_room(struct node *node, const struct gpus_have *have, uint32_t mask)
{
	for (uint32_t gpu = 0; gpu < have->count && gpu < 32; gpu++) {
		uint64_t is_free = have->gpus[gpu].memory_free;

		if ((mask && !(mask >> gpu & 1)) || is_free == REPORT_UNKNOWN || is_free >= CONTEXT_BYTES)
			continue;
		node_recall(node, NULL, gpu, CONTEXT_BYTES - is_free);
	}
}

static void early_ready(void *owner, struct proc *proc)
{
}

static void early_ended(void *owner, struct proc *proc, enum session_end end, const char *why)
{
	proc_free(proc);
}

static int node_attach(struct node *node, struct peer *peer, uint32_t session, struct reader *body)
{
	/* Until the seat takes it. */
	static const struct proc_ops early_ops = { .ready = early_ready, .ended = early_ended };
	struct seat_client client = { 0 };
	const char *picked[NODE_SETTINGS_MAX + 1];
	struct gpus_have have;
	struct gpus_wish wish;
	struct gpus_choice choice;
	char settings[4096];
	char why[PROC_WHY_SIZE];
	struct mirror *mirror = link_mirror_get(peer->link, session);
	struct proc *proc;

	client.pid = get_u32(body);
	client.uid = get_u32(body);
	client.grace_ms = get_u32(body);
	get_block(body, client.token, sizeof(client.token));
	snprintf(client.program, sizeof(client.program), "%s", get_str(body, LINK_TEXT_MAX));
	snprintf(settings, sizeof(settings), "%s", get_str(body, sizeof(settings) - 1));
	if (mirror)
		mirror_put(mirror);
	if (body->fault || session == 0 || mirror)
		return -EPROTO;
	if (node->stopping) {
		attach_refuse(peer->link, session, END_SHUTDOWN, "the node is being stopped");
		return 0;
	}
	if (node->draining) {
		attach_refuse(peer->link, session, END_REFUSED,
			      "the node is drained: it takes no new clients until `gleamctl drain --undo` is said there");
		return 0;
	}
	/* Seats whose workers are still ending count: their GPU memory isn't free yet. */
	if (node->seat_count == node->seat_max || peer->seats >= node->conf->link_sessions_max) {
		snprintf(why, sizeof(why), "the node serves %u clients (%u of this broker), its limit; see [node] sessions",
			 node->attached, peer->seats);
		attach_refuse(peer->link, session, END_REFUSED, why);
		return 0;
	}
	client.off = off_find(settings);
	settings_pick(settings, picked, &wish);
	gpus_look(node, &have);
	if (gpus_choose(&have, &wish, &choice, why, sizeof(why))) {
		attach_refuse(peer->link, session, END_REFUSED, why);
		return 0;
	}
	client.gpus = choice.mask;
	node_make_room(node, &have, choice.mask);
	if (pool_take(node->pool, &choice, picked, &early_ops, node, &proc, why, sizeof(why))) {
		attach_refuse(peer->link, session, END_REFUSED, why);
		return 0;
	}

	struct seat *seat = seat_new(node->loop, peer->link, session, &client, proc, &seat_ops, node);

	if (!seat) {
		proc_kill(proc, false);
		attach_refuse(peer->link, session, END_REFUSED, "out of memory");
		return 0;
	}
	node->had_work[node->seat_count] = false;
	cache_mirror_attach(peer->cache, seat_mirror(seat));
	node->seats[node->seat_count++] = seat;
	node->attached++;
	peer->seats++;
	return 0;
}

static void report_send(struct node *node, struct peer *peer);

static int node_span(struct peer *peer, const struct link_hdr *hdr, struct reader *body)
{
	uint64_t position = get_u64(body);
	size_t size = reader_left(body);
	const uint8_t *bytes = reader_take(body, 1, size);
	bool depot;
	struct seat *seat = peer_seat(peer, hdr->session, &depot);
	bool fault = body->fault || size > LINK_SPAN_MAX + FRAME_SIZE_MAX || depot;

	/* Without a seat it has ended, and the broker will have heard so. */
	if (seat && !fault && seat_span(seat, position, bytes, (uint32_t)size)) {
		log_error("session %u: a span at %llu that doesn't continue its ring", hdr->session, (unsigned long long)position);
		seat_end(seat, END_PROTOCOL, "commands did not continue where the last ones ended", true);
	}
	peer_seat_put(seat);
	return fault ? -EPROTO : 0;
}

/* A span of which only the beginning has come, since the rest is zeros. */
static int node_span_blank(struct peer *peer, const struct link_hdr *hdr, struct reader *body)
{
	uint8_t bytes[sizeof(uint64_t) + FRAME_SIZE_MAX] __attribute__((aligned(8)));
	uint64_t position = get_u64(body);
	uint32_t size = get_u32(body);
	struct reader whole;

	get_u32(body);

	size_t head = reader_left(body);
	const uint8_t *first = reader_take(body, 1, head);

	if (body->fault || size > FRAME_SIZE_MAX || head > size)
		return -EPROTO;
	memcpy(bytes, &position, sizeof(position));
	memcpy(bytes + sizeof(position), first, head);
	memset(bytes + sizeof(position) + head, 0, size - head);
	whole = reader_on(bytes, sizeof(position) + size);
	return node_span(peer, hdr, &whole);
}

static struct seat *node_seat(const struct node *node, const uint8_t token[RESUME_TOKEN_SIZE], const char *tenant)
{
	for (unsigned i = 0; i < node->seat_count; i++)
		if (seat_is(node->seats[i], token, tenant))
			return node->seats[i];
	return NULL;
}

/* How long a seat waits: what its broker asked for, and the time in which that notices that the link is lost. */
static uint64_t node_away_ns(const struct node *node, const struct seat *seat)
{
	uint64_t grace_ms = seat_grace_ms(seat);

	if (grace_ms > node->conf->grace_ms)
		grace_ms = node->conf->grace_ms;
	return grace_ms ? (grace_ms + node->conf->keepalive_ms + node->conf->keepalive_ms / 4 + NODE_AWAY_MS) * NS_PER_MS : 0;
}

/* Its broker came back before the link was known to be lost. */
static void node_resume_due(struct node *node, struct seat *seat)
{
	struct peer *peer = peer_of(node, seat_resume_link(seat));

	/* What the store still puts into its arena must be told as landed: the next round looks again. */
	if (__atomic_load_n(&seat_mirror(seat)->fetches, __ATOMIC_RELAXED))
		return;
	cache_mirror_attach(peer->cache, seat_mirror(seat));
	if (!seat_resume_due(seat))
		return;
	peer->seats++;
	node->attached++;
}

static int node_resume(struct node *node, struct peer *peer, uint32_t session, struct reader *body)
{
	struct mirror *mirror = link_mirror_get(peer->link, session);
	uint8_t token[RESUME_TOKEN_SIZE];
	struct seat_resume resume;
	uint32_t pid, uid;
	struct seat *seat;

	get_block(body, token, sizeof(token));
	pid = get_u32(body);
	uid = get_u32(body);
	resume.frames = get_u64(body);
	resume.bulk = get_u64(body);
	get_block(body, resume.bits, sizeof(resume.bits));
	if (mirror)
		mirror_put(mirror);
	if (body->fault || session == 0 || mirror)
		return -EPROTO;
	seat = node_seat(node, token, link_tenant(peer->link));
	if (!seat || node->stopping) {
		seat_resume_refuse(peer->link, session, node->stopping ? END_SHUTDOWN : END_LINK_LOST,
				   node->stopping ? "the node is being stopped" :
						    "it doesn't have the session any more: it was restarted, or has waited long enough");
	} else if (!seat_is_of(seat, pid, uid)) {
		log_warn("session %u: pid %u of uid %u came back with another process's token: refused", session, pid, uid);
		seat_resume_refuse(peer->link, session, END_REFUSED, "the session belongs to another process or user");
	} else if (seat_is_away(seat)) {
		if (peer->seats >= node->conf->link_sessions_max) {
			seat_resume_refuse(peer->link, session, END_REFUSED, "the link has as many sessions as it may; see [node] sessions_per_link");
			return 0;
		}
		seat_resume_later(seat, peer->link, session, &resume);
		node_resume_due(node, seat);
	} else if (seat_link(seat) == peer->link) {
		return -EPROTO;
	} else {
		/* The broker has lost the link before us. */
		seat_resume_later(seat, peer->link, session, &resume);
		link_close(seat_link(seat), -ECONNRESET, "its broker has come again, on another link");
	}
	return 0;
}

static int node_seen(struct peer *peer, uint32_t session, struct reader *body)
{
	uint64_t frames = get_u64(body);
	uint64_t bulk = get_u64(body);
	bool depot;
	struct seat *seat = peer_seat(peer, session, &depot);

	if (seat && !body->fault && seat_seen(seat, frames, bulk))
		seat_end(seat, END_PROTOCOL, "its broker told of frames that were never sent", true);
	peer_seat_put(seat);
	return body->fault || depot ? -EPROTO : 0;
}

/* A client ended while its broker had no link. */
static int node_detach_away(struct node *node, struct peer *peer, struct reader *body)
{
	uint8_t token[RESUME_TOKEN_SIZE];
	struct seat *seat;

	get_block(body, token, sizeof(token));
	if (body->fault)
		return -EPROTO;
	seat = node_seat(node, token, link_tenant(peer->link));
	if (seat)
		seat_end(seat, END_CLIENT_GONE, "the client is gone", false);
	return 0;
}

static void node_account(struct node *node, bool now_idle);

/* A piece whose bytes are in the store. */
static int node_ref(struct peer *peer, const struct link_hdr *hdr, struct reader *body)
{
	struct mirror *mirror = link_mirror_get(peer->link, hdr->session);
	bool fill = mirror && mirror->fill;
	int err = mirror && mirror->depot && !fill ? -EPROTO : cache_ref(peer->cache, mirror, body);

	if (err == -EACCES && fill) {
		/* What the other node has said of one piece is worth as much for the others. */
		err = link_blame(peer->link, -EPROTO, "a reference to a chunk that it may not name");
	} else if (err == -EACCES) {
		log_error("session %u: a reference to a chunk that it may not name", hdr->session);
		seat_end((struct seat *)mirror, END_PROTOCOL, "it referred to cached bytes that it may not name", true);
		err = 0;
	}
	if (mirror)
		mirror_put(mirror);
	return err;
}

static int node_detach(struct peer *peer, uint32_t session)
{
	bool depot;
	struct seat *seat = peer_seat(peer, session, &depot);

	if (!seat)
		return depot ? -EPROTO : 0;
	/* What it used in the end: its broker remembers that for the next run. */
	if (peer->report_ns) {
		node_account(peer->node, true);
		report_send(peer->node, peer);
	}
	seat_end(seat, END_CLIENT_GONE, "the client is gone", false);
	peer_seat_put(seat);
	return 0;
}

/* ---- reports ---- */

/* Mean over the last second of a ring of @size samples, in thousandths. */
static uint32_t samples_now(const struct node *node, const uint32_t *samples, unsigned size)
{
	unsigned count = node->sample_count < NODE_SAMPLES_NOW ? node->sample_count : NODE_SAMPLES_NOW;
	uint64_t sum = 0;

	for (unsigned i = 1; i <= count; i++)
		sum += samples[(node->sample_at + NODE_SAMPLES - i) % size];
	return count ? (uint32_t)(sum * 1000 / count) : 0;
}

void node_report(const struct node *node, struct report *report_out)
{
	struct report report = { .sessions = node->attached, .sessions_max = node->seat_max,
				 .warm = pool_ready_count(node->pool) };
	uint64_t sum = 0;

	for (unsigned i = 0; i < node->sample_count; i++)
		sum += node->samples[i];
	if (node->sample_count)
		report.busy_milli = (uint32_t)(sum * 1000 / node->sample_count);
	report.busy_now_milli = samples_now(node, node->samples, NODE_SAMPLES);
	report.draining = node->draining;
	snprintf(report.driver, sizeof(report.driver), "%.*s", (int)sizeof(report.driver) - 1, node->proc_setting.driver);
	probe_gpus(node->probe, &report);
	for (uint32_t i = 0; i < report.gpu_count; i++)
		for (unsigned s = 0; s < node->seat_count; s++) {
			uint32_t mask = seat_gpus(node->seats[s]);

			/* Without one it may use them all. */
			report.gpus[i].clients += !mask || (mask >> i & 1);
		}
	*report_out = report;
}

static void report_send(struct node *node, struct peer *peer)
{
	uint8_t bytes[REPORT_SIZE_MAX] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));
	struct report report;

	node_report(node, &report);
	report.busy_yours_milli = samples_now(node, peer->samples, NODE_SAMPLES_NOW);
	report.others_rate = node->rate > peer->rate ? node->rate - peer->rate : 0;
	for (unsigned i = 0; i < node->seat_count && report.seat_count < REPORT_SEATS_MAX; i++)
		if (seat_link(node->seats[i]) == peer->link)
			seat_report(node->seats[i], &report.seats[report.seat_count++]);
	report_put(&w, &report);
	assert(!w.fault);
	link_send(peer->link, LINK_REPORT, 0, NULL, 0, bytes, w.at);
}

/* How many bytes go over each link. */
static void node_rates(struct node *node, uint64_t now)
{
	uint64_t passed = now - node->rate_ns;

	node->rate = 0;
	for (unsigned i = 0; i < node->peer_count; i++) {
		struct peer *peer = node->peers[i];
		struct link_stats stats;

		link_stats(peer->link, &stats);
		peer->rate = (uint64_t)((double)(stats.sent + stats.received - peer->bytes) / (double)passed * NS_PER_S);
		peer->bytes = stats.sent + stats.received;
		node->rate += peer->rate;
	}
	node->rate_ns = now;
}

static void node_sample(void *arg)
{
	struct node *node = arg;
	uint64_t now = loop_now_ns(node->loop);
	uint32_t busy = 0;

	for (unsigned i = 0; i < node->peer_count; i++)
		node->peers[i]->samples[node->sample_at % NODE_SAMPLES_NOW] = 0;
	for (unsigned i = 0; i < node->seat_count; i++) {
		struct peer *peer = peer_of(node, seat_link(node->seats[i]));

		if (!seat_has_work(node->seats[i]))
			continue;
		busy++;
		if (peer)
			peer->samples[node->sample_at % NODE_SAMPLES_NOW]++;
	}
	if (now - node->rate_ns >= NS_PER_S)
		node_rates(node, now);
	node->samples[node->sample_at] = busy;
	node->sample_at = (node->sample_at + 1) % NODE_SAMPLES;
	if (node->sample_count < NODE_SAMPLES)
		node->sample_count++;
	for (unsigned i = 0; i < node->peer_count; i++) {
		struct peer *peer = node->peers[i];

		if (!peer->report_ns || peer->report_due_ns > now)
			continue;
		peer->report_due_ns = now + peer->report_ns - NODE_SAMPLE_NS / 2;
		report_send(node, peer);
	}
	/* Nobody to tell, nothing to count: no wake-ups. */
	if (node->peer_count)
		loop_timer_set(node->loop, &node->sample, now + NODE_SAMPLE_NS);
	else
		node->sample_count = 0;
}

/* ---- peers ---- */

static int peer_message(void *owner, struct link *link, const struct link_hdr *hdr, struct reader *body)
{
	struct peer *peer = owner;
	struct node *node = peer->node;
	int err = cache_peer_message(peer->cache, hdr, body);

	if (err != -ENOENT)
		return err;
	switch (hdr->type) {
	case LINK_ATTACH:
		return node_attach(node, peer, hdr->session, body);
	case LINK_RESUME:
		return node_resume(node, peer, hdr->session, body);
	case LINK_SEEN:
		return node_seen(peer, hdr->session, body);
	case LINK_DETACH:
		if (hdr->session == 0)
			return node_detach_away(node, peer, body);
		return node_detach(peer, hdr->session);
	case LINK_SPAN:
		return node_span(peer, hdr, body);
	case LINK_SPAN_BLANK:
		return node_span_blank(peer, hdr, body);
	case LINK_BULK_REF:
		return node_ref(peer, hdr, body);
	case LINK_REPORT_WANTED: {
		uint32_t ms = get_u32(body);

		if (body->fault)
			return -EPROTO;
		if (ms && ms < REPORT_MS_MIN)
			ms = REPORT_MS_MIN;
		peer->report_ns = ms * NS_PER_MS;
		peer->report_due_ns = 0;
		if (ms)
			report_send(node, peer);
		return 0;
	}
	default: {
		bool depot;
		struct seat *seat = peer_seat(peer, hdr->session, &depot);

		err = ways_message(node->ways, link, seat, hdr, body);
		peer_seat_put(seat);
		return err == -ENOENT ? -EPROTO : err;
	}
	}
}

static void peer_ready(void *owner, struct link *link)
{
	log_info("%s (%s): link with %s, tenant %s", link_peer(link), link_host(link),
		 *link_tenant(link) ? "TLS" : "CLEARTEXT", *link_tenant(link) ? link_tenant(link) : "-");
}

static void peer_lost(void *owner, struct link *link, int err, const char *why)
{
	struct peer *peer = owner;
	struct node *node = peer->node;

	log_info("%s (%s): link ended: %s", link_peer(link), link_host(link), why);
	ways_link_lost(node->ways, link, why);
	for (unsigned i = 0; i < node->seat_count; i++) {
		struct seat *seat = node->seats[i];

		if (seat_resume_link(seat) == link)
			seat_resume_forget(seat);
		if (seat_link(seat) != link)
			continue;
		if (node->stopping || !seat_away(seat, node_away_ns(node, seat)))
			seat_end(seat, END_LINK_LOST, "the link to its broker is gone", false);
		else if (seat_resume_link(seat))
			node_resume_due(node, seat);
	}
	assert(peer->seats == 0);
	cache_peer_free(peer->cache);
	for (unsigned i = 0; i < node->peer_count; i++) {
		if (node->peers[i] == peer) {
			node->peers[i] = node->peers[--node->peer_count];
			break;
		}
	}
	link_free(link);
	free(peer);
}

static void peer_drained(void *owner, struct link *link)
{
	struct peer *peer = owner;

	cache_peer_drained(peer->cache);
}

static const struct link_ops peer_ops = {
	.ready = peer_ready, .message = peer_message, .drained = peer_drained, .lost = peer_lost,
};

/* The gate: somebody has said hello. NULL: the connection is taken; else why not. */
static const char *node_hello(void *owner, struct hello *hello, const struct hello_info *theirs, const char *tenant)
{
	struct node *node = owner;
	struct peer *peer;

	if (node->stopping)
		return "the node is being stopped";
	for (unsigned i = 0; i < node->peer_count && theirs->lane > 0; i++) {
		struct link *link = node->peers[i]->link;

		/* A lane comes with the same key as its link. */
		if (memcmp(link_id(link), theirs->id, HELLO_ID_SIZE) == 0 && strcmp(link_tenant(link), tenant) == 0) {
			if (!link_lane_fits(link, theirs))
				return "this link has no such lane, or has it already";
			link_lane_take(link, hello_take(hello), theirs);
			return NULL;
		}
	}
	if (theirs->lane > 0)
		return "a lane of a link that isn't here";
	if (node->peer_count == NODE_PEERS_MAX)
		return "too many links";
	for (unsigned i = 0; i < node->peer_count; i++)
		if (memcmp(link_id(node->peers[i]->link), theirs->id, HELLO_ID_SIZE) == 0)
			return "a link of this id is here already";
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return "out of memory";
	peer->node = node;
	peer->link = link_accept(node->loop, hello_take(hello), theirs, &node->link_setting, &peer_ops, peer);
	if (!peer->link) {
		log_error("out of memory for a link");
		free(peer);
		return NULL;
	}
	peer->cache = cache_peer_new(node->cache, peer->link);
	node->peers[node->peer_count++] = peer;
	if (!node->sample.place)
		loop_timer_set(node->loop, &node->sample, loop_now_ns(node->loop) + NODE_SAMPLE_NS);
	return NULL;
}

/* ---- the hook ---- */

/* Whose work was there since the last look; the GPUs' time is shared out among them. */
static void node_account(struct node *node, bool now_idle)
{
	uint64_t now = loop_now_ns(node->loop);
	uint64_t passed = now - node->account_ns;
	uint64_t gpus = probe_gpu_count(node->probe);
	unsigned busy = 0;

	if (passed < NODE_ACCOUNT_NS && !now_idle)
		return;
	node->account_ns = now;
	for (unsigned i = 0; i < node->seat_count; i++)
		busy += node->had_work[i];
	for (unsigned i = 0; i < node->seat_count; i++) {
		if (node->had_work[i])
			seat_account(node->seats[i], passed, busy > gpus && gpus ? passed * gpus / busy : passed);
		node->had_work[i] = seat_has_work(node->seats[i]);
	}
}

bool node_poll(struct node *node)
{
	bool moved = false;

	for (unsigned i = 0; i < node->seat_count; i++) {
		if (seat_is_away(node->seats[i]) && seat_resume_link(node->seats[i]))
			node_resume_due(node, node->seats[i]);
		moved |= seat_poll(node->seats[i]);
	}
	node_account(node, false);
	return moved;
}

bool node_sleep(struct node *node)
{
	node_account(node, true);
	for (unsigned i = 0; i < node->seat_count; i++) {
		if (!seat_sleep(node->seats[i])) {
			while (i--)
				seat_wake(node->seats[i]);
			return false;
		}
	}
	return true;
}

void node_wake(struct node *node)
{
	for (unsigned i = 0; i < node->seat_count; i++)
		seat_wake(node->seats[i]);
}

static struct seat *seat_of_link(struct node *node, const uint8_t *link_id_wanted, uint32_t session)
{
	for (unsigned i = 0; i < node->seat_count; i++) {
		struct seat *seat = node->seats[i];
		const struct link *link = seat_link(seat);

		if (link && seat_session(seat) == session && memcmp(link_id(link), link_id_wanted, HELLO_ID_SIZE) == 0)
			return seat;
	}
	return NULL;
}

int node_direct(struct node *node, const uint8_t *link_id_wanted, uint32_t session, int *pages_out)
{
	struct seat *seat = seat_of_link(node, link_id_wanted, session);

	return seat ? seat_direct(seat, pages_out) : -ENOENT;
}

int node_left(struct node *node, const uint8_t *link_id_wanted, uint32_t session)
{
	struct seat *seat = seat_of_link(node, link_id_wanted, session);

	return seat ? seat_left(seat) : -ENOENT;
}

/* ---- life ---- */

/* On a node with several GPUs a warm worker belongs to one of them. */
static void node_gpus_known(void *owner)
{
	struct node *node = owner;
	struct gpus_have have;

	gpus_look(node, &have);
	if (node->pool && !node->stopping)
		pool_gpus(node->pool, &have);
}

/* Nobody who has come lately is at work. */
static bool node_is_calm(void *owner)
{
	const struct node *node = owner;

	for (unsigned i = 0; i < node->seat_count; i++)
		if (seat_is_new(node->seats[i]) && seat_is_busy(node->seats[i]))
			return false;
	return true;
}

int node_start(struct loop *loop, const struct conf *conf, struct tls_keys *keys, struct node **node_out, char *why,
	       size_t why_size)
{
	struct node *node = calloc(1, sizeof(*node));
	int err = -ENOMEM;

	if (!node)
		goto no_memory;
	node->loop = loop;
	node->conf = conf;
	node->link_setting = (struct link_setting){ .keys = keys, .lanes = conf->lanes, .compress = conf->compress, .keepalive_ns = conf->keepalive_ms * NS_PER_MS };
	node->seat_max = conf->sessions_max;
	node->seats = calloc(node->seat_max, sizeof(struct seat *));
	node->had_work = calloc(node->seat_max, sizeof(bool));
	node->sample.fire = node_sample;
	node->sample.arg = node;
	node->ways = ways_new(loop, &node->link_setting, &node->cache);
	if (!node->seats || !node->had_work || !node->ways)
		goto no_memory;
	err = setting_make(conf, &node->proc_setting, why, why_size);
	if (err)
		goto free_node;
	err = gate_open(loop, conf->listen, keys, node_hello, node, &node->gate, why, why_size);
	if (err)
		goto free_node;
	err = pool_new(loop, &node->proc_setting, conf->warm, node_is_calm, node, &node->pool);
	if (err)
		goto close_gate;
	probe_start(loop, &node->proc_setting, conf->speed, node_gpus_known, node, &node->probe);
	node->cache = cache_start(loop, conf, keys);
	log_info("node: listening on %s, driver %s%s", gate_address(node->gate), node->proc_setting.driver,
		 keys ? "" : ", without a key: CLEARTEXT, loopback only");
	*node_out = node;
	return 0;

close_gate:
	snprintf(why, why_size, "out of memory");
	gate_stop(node->gate);
	return err; /* the daemon ends with this */
no_memory:
	snprintf(why, why_size, "out of memory");
free_node:
	if (node) {
		free(node->seats);
		free(node->had_work);
		ways_free(node->ways);
	}
	free(node);
	return err;
}

void node_stop(struct node *node)
{
	if (node->stopping)
		return;
	node->stopping = true;
	gate_stop(node->gate);
	for (unsigned i = 0; i < node->seat_count; i++)
		seat_end(node->seats[i], END_SHUTDOWN, "the node is being stopped", true);
	for (unsigned i = 0; i < node->peer_count; i++)
		link_close_flushed(node->peers[i]->link, -ESHUTDOWN, "the node is being stopped");
	pool_stop(node->pool);
	probe_stop(node->probe);
}

bool node_is_stopped(const struct node *node)
{
	return node->stopping && node->peer_count == 0 && node->seat_count == 0 && pool_is_empty(node->pool) &&
	       gate_is_stopped(node->gate) && ways_are_gone(node->ways) && probe_is_stopped(node->probe) && cache_is_idle(node->cache);
}

void node_free(struct node *node)
{
	loop_timer_clear(node->loop, &node->sample);
	ways_free(node->ways);
	cache_free(node->cache);
	gate_free(node->gate);
	probe_free(node->probe);
	pool_free(node->pool);
	free(node->seats);
	free(node->had_work);
	free(node);
}

void node_drain(struct node *node, bool on)
{
	if (node->draining != on)
		log_info("node: %s", on ? "drained: no new clients are taken; those that are here stay" : "takes new clients again");
	node->draining = on;
	/* At once, so that nobody is sent here in vain. */
	for (unsigned i = 0; i < node->peer_count; i++)
		if (node->peers[i]->report_ns)
			report_send(node, node->peers[i]);
}

const char *node_address(const struct node *node)
{
	return gate_address(node->gate);
}

const char *node_trouble(const struct node *node)
{
	return pool_trouble(node->pool);
}
