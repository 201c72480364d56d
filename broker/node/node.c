/* SPDX-License-Identifier: Apache-2.0 */
/* The node role: peers and their seats. Control thread; see node.h. */
#include "broker/node/node_private.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/lib/fd.h"
#include "broker/lib/log.h"
#include "broker/node/setting.h"

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
