/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of a node, as brokers ask for them: attached, carried on, taken up again, ended. Control thread; see node_private.h. */
#include "broker/node/node_private.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/log.h"

#define NODE_SETTINGS_MAX  16
#define CONTEXT_BYTES	   (1ull << 30) /* of a GPU: what a worker's context takes on a large one, and some */
#define NODE_AWAY_MS	   2000u /* for the broker's way to us, once it knows */

struct peer *peer_of(const struct node *node, const struct link *link)
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
struct seat *peer_seat(const struct peer *peer, uint32_t session, bool *depot_out)
{
	struct mirror *mirror = link_mirror_get(peer->link, session);

	*depot_out = mirror && mirror->depot;
	if (*depot_out) {
		mirror_put(mirror);
		mirror = NULL;
	}
	return (struct seat *)mirror;
}

void peer_seat_put(struct seat *seat)
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
void gpus_look(const struct node *node, struct gpus_have *have_out)
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

int node_attach(struct node *node, struct peer *peer, uint32_t session, struct reader *body)
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

int node_span(struct peer *peer, const struct link_hdr *hdr, struct reader *body)
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
int node_span_blank(struct peer *peer, const struct link_hdr *hdr, struct reader *body)
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
uint64_t node_away_ns(const struct node *node, const struct seat *seat)
{
	uint64_t grace_ms = seat_grace_ms(seat);

	if (grace_ms > node->conf->grace_ms)
		grace_ms = node->conf->grace_ms;
	return grace_ms ? (grace_ms + node->conf->keepalive_ms + node->conf->keepalive_ms / 4 + NODE_AWAY_MS) * NS_PER_MS : 0;
}

/* Its broker came back before the link was known to be lost. */
void node_resume_due(struct node *node, struct seat *seat)
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

int node_resume(struct node *node, struct peer *peer, uint32_t session, struct reader *body)
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

int node_seen(struct peer *peer, uint32_t session, struct reader *body)
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
int node_detach_away(struct node *node, struct peer *peer, struct reader *body)
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

/* A piece whose bytes are in the store. */
int node_ref(struct peer *peer, const struct link_hdr *hdr, struct reader *body)
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

int node_detach(struct peer *peer, uint32_t session)
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
