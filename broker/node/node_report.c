/* SPDX-License-Identifier: Apache-2.0 */
/* The load of a node: who has work, whose time the GPUs' time was, and what brokers are told of it. Control thread; see node_private.h. */
#include "broker/node/node_private.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define NODE_ACCOUNT_NS	   (20 * NS_PER_US) /* rounds that follow each other faster are one */

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

void report_send(struct node *node, struct peer *peer)
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

void node_sample(void *arg)
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

/* Whose work was there since the last look; the GPUs' time is shared out among them. */
void node_account(struct node *node, bool now_idle)
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
