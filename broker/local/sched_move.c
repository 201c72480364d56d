/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler: which clients should run elsewhere. No I/O, no clock; see sched.h, docs/scheduler.md. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "broker/local/sched_private.h"

void sched_moves_set(struct sched *sched, bool on, double fixed)
{
	sched->moves = on;
	sched->move_cost = fixed;
}

/* What is left of its run: of a known one the rest, else as long again as it has run. */
static void profile_left(const struct sched_client *client, const struct sched_node *node, struct sched_profile *left_out)
{
	const struct sched_node_state *state = &node->state;
	struct sched_profile done;
	double share = 1;

	sched_profile_of(&client->used, state->speed > 0 ? state->speed : 1, state->rtt, state->bandwidth, &done);
	if (!client->known || client->profile.wall <= 0) {
		*left_out = done;
		left_out->memory = client->used.memory;
		return;
	}
	*left_out = client->profile;
	/* Work, not time, says how far it is: time depends on the node. */
	if (client->profile.gpu > 0)
		share = 1 - done.gpu / client->profile.gpu;
	else if (client->profile.cpu > 0)
		share = 1 - done.cpu / client->profile.cpu;
	if (share <= 0) {
		*left_out = done; /* it runs longer than it ever did */
		share = 1;
	}
	left_out->wall *= share;
	left_out->cpu *= share;
	left_out->gpu *= share;
	left_out->trips *= share;
	left_out->bytes_up *= share;
	left_out->bytes_down *= share;
	left_out->memory = client->used.memory;
}

static double bandwidth_of(const struct sched_node *node)
{
	return node->state.bandwidth > 0 ? node->state.bandwidth : SCHED_BANDWIDTH_DEFAULT;
}

/* All bytes come from the one and go to the other through this machine, at the rate of the slower link. */
static double price_of(const struct sched *sched, const struct sched_client *client, uint32_t to)
{
	return sched->move_cost +
	       client->used.memory / fmin(bandwidth_of(&sched->nodes[client->node]), bandwidth_of(&sched->nodes[to]));
}

/* What is left of a run there, and what others lose by it, as far as they are believed to stay. */
static double rest_of(const struct sched_cost *cost, const struct sched_profile *left)
{
	double alone = cost->gpu / (1 + cost->contention);
	double others = fmin(cost->gpu - alone, SCHED_MOVE_BELIEF_S * cost->contention / (1 + cost->contention));
	double longest = fmax(fmax(cost->cpu, alone + others), cost->up);

	return (longest + (cost->trips + cost->down) * (1 - left->overlap)) * cost->bias + fmin(cost->harm, others);
}

/* The best of the nodes that could take it. @even_doubtful: also ones that may be gone in a moment, where there is no other. */
static bool best_of(struct sched *sched, const struct sched_client *client, const uint64_t *tried, bool even_doubtful, double now,
		    struct sched_move *move_out)
{
	struct sched_profile left;
	struct sched_request request = { .profile = &left, .priority = client->priority, .tried = tried };
	struct sched_cost cost;
	bool best_doubtful = true;

	profile_left(client, &sched->nodes[client->node], &left);
	sched_cost_without(sched, client->node, &request, now, client->duty, client->link_duty, &cost);
	*move_out = (struct sched_move){
		.client = client->id, .node = SCHED_NONE, .stay = rest_of(&cost, &left), .go = INFINITY,
	};
	for (uint32_t i = 0; i < sched->node_count; i++) {
		bool doubtful;
		double go, price;

		if (i == client->node || !sched_node_takes(sched, i, &request, now, &doubtful) || (doubtful && !even_doubtful))
			continue;
		sched_cost(sched, i, &request, now, &cost);
		go = rest_of(&cost, &left) + cost.start;
		price = price_of(sched, client, i);
		if (move_out->node != SCHED_NONE && (doubtful != best_doubtful ? doubtful : go + price >= move_out->go + move_out->price))
			continue;
		best_doubtful = doubtful;
		move_out->node = i;
		move_out->go = go;
		move_out->price = price;
	}
	return move_out->node != SCHED_NONE;
}

bool sched_move_best(struct sched *sched, uint32_t id, uint64_t tried, double now, struct sched_move *move_out, char *why,
		     size_t why_size)
{
	const struct sched_client *client = sched_client_find(sched, id);
	struct sched_profile left;
	struct sched_request request = { .profile = &left, .tried = &tried };

	if (!client) {
		snprintf(why, why_size, "it is not known to the scheduler");
		return false;
	}
	if (best_of(sched, client, &tried, true, now, move_out))
		return true;
	tried |= 1ull << client->node % 64;
	profile_left(client, &sched->nodes[client->node], &left);
	sched_why_none(sched, &request, now, why, why_size);
	if (!*why)
		snprintf(why, why_size, "there is no other server");
	return false;
}

static bool client_move(struct sched *sched, struct sched_client *client, double now, struct sched_move *move_out)
{
	const struct sched_node_state *here = &sched->nodes[client->node].state;
	bool leave = here->draining && !here->keeps;

	if (client->pinned || !here->up || now - client->added_at < SCHED_DWELL_S || client->used.wall < SCHED_DWELL_S)
		return false;
	if (now < client->still_until || (!leave && client->moved_at >= 0 && now - client->moved_at < SCHED_MOVE_AGAIN_S))
		return false;
	if (!best_of(sched, client, NULL, false, now, move_out) ||
	    (!leave && (move_out->stay - move_out->go < SCHED_MOVE_GAIN * move_out->price ||
			move_out->stay < SCHED_MOVE_SURE * move_out->go))) {
		client->better = SCHED_NONE;
		return false;
	}
	/* Which of two better ones it is may change: that it is better elsewhere must last. */
	if (client->better == SCHED_NONE)
		client->better_at = now;
	client->better = move_out->node;
	return leave || now - client->better_at >= SCHED_DWELL_S;
}

uint32_t sched_moves(struct sched *sched, double now, struct sched_move *moves_out, uint32_t max)
{
	uint32_t count = 0;

	if (!sched->moves)
		return 0;
	for (uint32_t i = 0; i < sched->client_count && count < max; i++)
		count += client_move(sched, &sched->clients[i], now, &moves_out[count]);
	return count;
}

uint64_t sched_move_decided(struct sched *sched, const struct sched_move *move, const char *by, const struct sched_request *request,
			    double now)
{
	struct sched_decision *decision = sched_decision_new(sched, request, now);
	const struct sched_client *client = sched_client_find(sched, move->client);
	const struct sched_node *node = &sched->nodes[move->node];
	struct sched_profile left;
	struct sched_request rest = *request;

	decision->move = true;
	decision->candidates = 1;
	snprintf(decision->policy, sizeof(decision->policy), "%s", by);
	memcpy(decision->node, node->name, sizeof(decision->node));
	decision->state = node->state;
	if (!client)
		return decision->number;
	profile_left(client, &sched->nodes[client->node], &left);
	rest.profile = &left;
	sched_cost(sched, move->node, &rest, now, &decision->cost);
	decision->cost.start += move->price;
	decision->cost.total += move->price;
	memcpy(decision->second, sched->nodes[client->node].name, sizeof(decision->second));
	decision->second_total = move->stay;
	return decision->number;
}

void sched_move_ended(struct sched *sched, uint64_t number, uint32_t id, const char *why, bool final, double took, double now)
{
	struct sched_decision *decision = sched_decision_find(sched, number);
	struct sched_client *client = sched_client_find(sched, id);

	if (decision) {
		decision->measured = took;
		snprintf(decision->why, sizeof(decision->why), "%.*s", (int)sizeof(decision->why) - 1, why);
	}
	if (client && *why)
		client->still_until = now + (final ? SCHED_MOVE_AGAIN_S : SCHED_MOVE_RETRY_S);
}
