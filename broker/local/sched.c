/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler: nodes, clients, decisions. No I/O, no clock; see sched.h. */
#include "broker/local/sched.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/local/sched_private.h"

#define FLAPS_MANY  3u	 /* within a minute or two: such a node gets nobody that another one takes until it has settled */
#define BIAS_WEIGHT 0.25 /* of the newest run in a node's bias */
#define BIAS_LIE    1.5	 /* beyond that it isn't bad luck: what the node says of its speed is not taken for true */
#define OVERDUE	    2.0	 /* times what was to be expected */
#define BIAS_RUNS   2.0	 /* a program with fewer runs tells nothing of the node */

static const struct sched_policy *const policies[] = {
	&sched_policy_cost, &sched_policy_least_loaded, &sched_policy_round_robin, &sched_policy_pinned,
};
#define POLICIES (sizeof(policies) / sizeof(policies[0]))

/* ---- life ---- */

struct sched *sched_new(uint64_t seed)
{
	struct sched *sched = calloc(1, sizeof(*sched));

	if (!sched)
		return NULL;
	sched->policy = policies[0];
	sched->speed_typical = 1;
	sched->random = seed * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull;
	return sched;
}

void sched_free(struct sched *sched)
{
	if (!sched)
		return;
	free(sched->nodes);
	free(sched->candidates);
	free(sched->clients);
	free(sched);
}

/* xorshift64*: which of two equals is taken matters to nobody. */
uint64_t sched_random(struct sched *sched)
{
	sched->random ^= sched->random >> 12;
	sched->random ^= sched->random << 25;
	sched->random ^= sched->random >> 27;
	return sched->random * 0x2545f4914f6cdd1dull >> 32;
}

int sched_policy_set(struct sched *sched, const char *name)
{
	for (size_t i = 0; i < POLICIES; i++) {
		if (strcmp(policies[i]->name, name) == 0) {
			sched->policy = policies[i];
			sched->policy_word = 0;
			return 0;
		}
	}
	return -EINVAL;
}

const char *sched_policy(const struct sched *sched)
{
	return sched->policy->name;
}

const char *sched_policy_name(unsigned index)
{
	return index < POLICIES ? policies[index]->name : NULL;
}

/* ---- nodes ---- */

uint32_t sched_node_add(struct sched *sched, const char *name)
{
	if (sched->node_count == sched->node_max) {
		uint32_t max = sched->node_max ? 2 * sched->node_max : 16;
		struct sched_node *nodes = realloc(sched->nodes, max * sizeof(*nodes));
		struct sched_candidate *candidates;

		if (!nodes)
			return SCHED_NONE;
		sched->nodes = nodes;
		candidates = realloc(sched->candidates, max * sizeof(*candidates));
		if (!candidates)
			return SCHED_NONE;
		sched->candidates = candidates;
		sched->node_max = max;
	}

	struct sched_node *node = &sched->nodes[sched->node_count];

	memset(node, 0, sizeof(*node));
	snprintf(node->name, sizeof(node->name), "%s", name);
	node->state = (struct sched_node_state){
		.rtt = SCHED_UNKNOWN, .jitter = SCHED_UNKNOWN, .bandwidth = SCHED_UNKNOWN, .speed = SCHED_UNKNOWN, .gpus = SCHED_UNKNOWN,
		.memory = SCHED_UNKNOWN, .memory_free = SCHED_UNKNOWN, .busy = SCHED_UNKNOWN, .busy_own = SCHED_UNKNOWN,
		.link_busy = SCHED_UNKNOWN, .sessions = SCHED_UNKNOWN, .sessions_max = SCHED_UNKNOWN, .warm = SCHED_UNKNOWN,
		.told_at = SCHED_UNKNOWN,
	};
	node->failed_at = SCHED_UNKNOWN;
	return sched->node_count++;
}

/* It has been up for a while: that it came and went is forgotten, flap by flap. */
static void node_calm(struct sched_node *node, double now)
{
	while (node->flaps && node->state.up && now - node->calm_at > SCHED_CALM_S) {
		node->flaps--;
		node->calm_at += SCHED_CALM_S;
	}
}

void sched_node_set(struct sched *sched, uint32_t index, const struct sched_node_state *state, double now)
{
	struct sched_node *node = &sched->nodes[index];
	bool was_up = node->state.up;

	if (was_up && !state->up && node->seen_up)
		node->flaps += node->flaps < 16;
	if (!was_up && state->up) {
		node->up_at = node->calm_at = now;
		/* There for the first time: nothing speaks against it. */
		if (!node->seen_up)
			node->up_at = now - SCHED_SETTLE_MAX_S;
		node->seen_up = true;
	}
	node->state = *state;
	node_calm(node, now);
}

void sched_node_failed(struct sched *sched, uint32_t node, double now)
{
	sched->nodes[node].failed_at = now;
}

double sched_node_speed(const struct sched *sched, uint32_t index, double now)
{
	const struct sched_node *node = &sched->nodes[index];
	double bias = sched_bias(node, now);
	double speed = node->state.speed > 0 ? node->state.speed : SCHED_SPEED_DEFAULT;

	return bias > BIAS_LIE ? speed / bias : speed;
}

const char *sched_node_name(const struct sched *sched, uint32_t node)
{
	return sched->nodes[node].name;
}

const struct sched_node_state *sched_node_state(const struct sched *sched, uint32_t node)
{
	return &sched->nodes[node].state;
}

uint32_t sched_node_count(const struct sched *sched)
{
	return sched->node_count;
}

static double node_settle(const struct sched_node *node)
{
	return node->flaps ? fmin(SCHED_SETTLE_S * exp2(node->flaps), SCHED_SETTLE_MAX_S) : 0;
}

/* Whether what it offers may be gone in a moment. */
static bool node_is_doubtful(const struct sched_node *node, double now)
{
	return (node->failed_at >= 0 && now - node->failed_at < SCHED_SHUN_S) || now - node->up_at < node_settle(node);
}

/* ---- which nodes can take a request ---- */

enum node_fault { FAULT_NONE, FAULT_TRIED, FAULT_NAME, FAULT_DOWN, FAULT_FLAPS, FAULT_DRAINING, FAULT_GPUS, FAULT_FULL, FAULT_MEMORY };

static double memory_left(const struct sched_node *node)
{
	const struct sched_node_state *state = &node->state;

	if (state->memory_free >= 0)
		return state->memory_free - node->memory;
	return state->memory >= 0 ? state->memory - node->memory : INFINITY;
}

static enum node_fault node_fault(const struct sched *sched, uint32_t index, const struct sched_request *request, double now)
{
	const struct sched_node *node = &sched->nodes[index];
	const struct sched_node_state *state = &node->state;

	if (request->wanted && *request->wanted && strcmp(request->wanted, node->name) != 0)
		return FAULT_NAME;
	if (request->tried && request->tried[index / 64] & 1ull << index % 64)
		return FAULT_TRIED;
	if (!state->up && !request->even_down)
		return FAULT_DOWN;
	/* It would take the client with it when it goes again. */
	if (node->flaps >= FLAPS_MANY && now - node->up_at < node_settle(node))
		return FAULT_FLAPS;
	if (state->draining)
		return FAULT_DRAINING;
	if (state->gpus >= 0 && state->gpus < 1)
		return FAULT_GPUS;
	if (state->sessions_max > 0 && state->sessions >= state->sessions_max)
		return FAULT_FULL;
	if (request->profile && !request->rough && request->profile->memory > memory_left(node) && !(request->wanted && *request->wanted))
		return FAULT_MEMORY;
	return FAULT_NONE;
}

bool sched_node_takes(const struct sched *sched, uint32_t node, const struct sched_request *request, double now, bool *doubtful_out)
{
	*doubtful_out = node_is_doubtful(&sched->nodes[node], now);
	return node_fault(sched, node, request, now) == FAULT_NONE;
}

void sched_why_none(const struct sched *sched, const struct sched_request *request, double now, char *why, size_t why_size)
{
	static const double gib = 1024.0 * 1024 * 1024;
	double need = request->profile ? request->profile->memory / gib : 0;
	size_t at = 0;
	unsigned told = 0;
	bool memory = false;

	for (uint32_t i = 0; i < sched->node_count; i++)
		memory |= node_fault(sched, i, request, now) == FAULT_MEMORY;
	why[0] = 0;
	if (memory)
		at = (size_t)snprintf(why, why_size, "no server has the %.1f GiB of free device memory that this program took before: ", need);
	for (uint32_t i = 0; i < sched->node_count && at < why_size; i++) {
		const struct sched_node *node = &sched->nodes[i];
		enum node_fault fault = node_fault(sched, i, request, now);
		double left = memory_left(node);

		if (fault == FAULT_NAME || fault == FAULT_TRIED)
			continue;
		at += (size_t)snprintf(why + at, why_size - at, "%s%s ", told++ ? "; " : "", node->name);
		if (at >= why_size)
			break;
		switch (fault) {
		case FAULT_DOWN:
			at += (size_t)snprintf(why + at, why_size - at, "can't be reached");
			break;
		case FAULT_FLAPS:
			at += (size_t)snprintf(why + at, why_size - at, "comes and goes");
			break;
		case FAULT_DRAINING:
			at += (size_t)snprintf(why + at, why_size - at, "is drained and takes no new clients (gleamctl drain --off)");
			break;
		case FAULT_GPUS:
			at += (size_t)snprintf(why + at, why_size - at, "offers no GPU");
			break;
		case FAULT_FULL:
			at += (size_t)snprintf(why + at, why_size - at, "has %.0f clients, its limit ([node] sessions there)",
					       node->state.sessions);
			break;
		case FAULT_MEMORY:
			at += (size_t)snprintf(why + at, why_size - at, "has %.1f", (left > 0 ? left : 0) / gib);
			break;
		default:
			break;
		}
	}
}

/* ---- deciding ---- */

struct sched_decision *sched_decision_new(struct sched *sched, const struct sched_request *request, double now)
{
	struct sched_decision *decision = &sched->decisions[sched->decision_count % SCHED_DECISIONS];

	*decision = (struct sched_decision){
		.number = ++sched->decision_count,
		.at = now,
		.pid = request->pid,
		.uid = request->uid,
		.known = request->profile && !request->rough,
		.measured = SCHED_UNKNOWN,
		.second_total = SCHED_UNKNOWN,
	};
	snprintf(decision->program, sizeof(decision->program), "%s", request->program ? request->program : "");
	snprintf(decision->policy, sizeof(decision->policy), "%s", sched->policy->name);
	return decision;
}

struct sched_decision *sched_decision_find(struct sched *sched, uint64_t number)
{
	struct sched_decision *decision = number ? &sched->decisions[(number - 1) % SCHED_DECISIONS] : NULL;

	return decision && decision->number == number ? decision : NULL;
}

const struct sched_decision *sched_decision(const struct sched *sched, unsigned back)
{
	if (back >= SCHED_DECISIONS || back >= sched->decision_count)
		return NULL;
	return &sched->decisions[(sched->decision_count - 1 - back) % SCHED_DECISIONS];
}

static double speed_typical(const struct sched *sched)
{
	double sum = 0;
	uint32_t count = 0;

	for (uint32_t i = 0; i < sched->node_count; i++) {
		const struct sched_node_state *state = &sched->nodes[i].state;

		if (!state->up || state->speed <= 0)
			continue;
		sum += state->speed;
		count++;
	}
	return count ? sum / count : 1;
}

uint32_t sched_pick(struct sched *sched, const struct sched_request *request, double now, uint64_t *decision_out, char *why,
		    size_t why_size)
{
	struct sched_decision *decision = sched_decision_new(sched, request, now);
	uint32_t count = 0, doubtful = 0, taken, second;
	bool others = false;

	if (!request->profile)
		sched->speed_typical = speed_typical(sched);
	for (uint32_t i = 0; i < sched->node_count; i++) {
		enum node_fault fault = node_fault(sched, i, request, now);

		/* Up and calm, if full at the moment. */
		others |= fault == FAULT_FULL || fault == FAULT_MEMORY || fault == FAULT_GPUS;
		if (fault != FAULT_NONE)
			continue;
		if (!sched->nodes[i].state.up || node_is_doubtful(&sched->nodes[i], now)) {
			doubtful++;
			continue;
		}
		sched->candidates[count++].node = i;
	}
	/* Better a doubtful one than none. */
	for (uint32_t i = 0; count == 0 && doubtful && i < sched->node_count; i++)
		if (node_fault(sched, i, request, now) == FAULT_NONE)
			sched->candidates[count++].node = i;
	/* Where there is no other server, one that comes and goes: its link may be lost again, which sessions outlive for a while. */
	for (uint32_t i = 0; count == 0 && !others && i < sched->node_count; i++)
		if (node_fault(sched, i, request, now) == FAULT_FLAPS)
			sched->candidates[count++].node = i;
	decision->candidates = count;
	*decision_out = decision->number;
	if (count == 0) {
		sched_why_none(sched, request, now, why, why_size);
		snprintf(decision->why, sizeof(decision->why), "%.*s", (int)sizeof(decision->why) - 1, why);
		return SCHED_NONE;
	}
	for (uint32_t i = 0; i < count; i++) {
		struct sched_candidate *candidate = &sched->candidates[i];

		sched_cost(sched, candidate->node, request, now, &candidate->cost);
		candidate->load = sched_load(&sched->nodes[candidate->node], now);
	}
	second = count;
	taken = sched->policy->choose(sched, request, sched->candidates, count, &second);

	const struct sched_candidate *candidate = &sched->candidates[taken];
	const struct sched_node *node = &sched->nodes[candidate->node];

	memcpy(decision->node, node->name, sizeof(decision->node));
	decision->cost = candidate->cost;
	decision->state = node->state;
	if (second < count) {
		memcpy(decision->second, sched->nodes[sched->candidates[second].node].name, sizeof(decision->second));
		decision->second_total = sched->candidates[second].cost.total;
	}
	return candidate->node;
}

/* ---- clients ---- */

struct sched_client *sched_client_find(struct sched *sched, uint32_t id)
{
	for (uint32_t i = 0; i < sched->client_count; i++)
		if (sched->clients[i].id == id)
			return &sched->clients[i];
	return NULL;
}

static double clamp(double value, double least, double most)
{
	return value < least ? least : value > most ? most : value;
}

/* What it adds to its node's load, as expected or as seen. */
static void client_weigh(struct sched *sched, struct sched_client *client, double duty, double link_duty, double memory_due)
{
	struct sched_node *node = &sched->nodes[client->node];

	node->duty += duty - client->duty;
	node->link_duty += link_duty - client->link_duty;
	node->memory += memory_due - client->memory_due;
	/* Sums of doubles that return to nothing end beside it. */
	if (node->clients == 0)
		node->duty = node->link_duty = node->memory = 0;
	client->duty = duty;
	client->link_duty = link_duty;
	client->memory_due = memory_due;
}

static void client_expect(struct sched *sched, struct sched_client *client, double now)
{
	struct sched_request request = { .profile = client->known ? &client->profile : NULL, .priority = client->priority };
	struct sched_cost cost;
	double run;

	sched_cost_without(sched, client->node, &request, now, client->duty, client->link_duty, &cost);
	run = cost.total - cost.start;
	if (run <= 0)
		run = 1e-3;
	client_weigh(sched, client, clamp(cost.gpu / run, 0, 1), clamp((cost.up + cost.down) / run, 0, 1),
		     client->known && !client->rough ? client->profile.memory : 0);
}

int sched_client_add(struct sched *sched, uint32_t id, uint32_t node, uint64_t decision, const struct sched_request *request,
		     double now)
{
	if (sched->client_count == sched->client_max) {
		uint32_t max = sched->client_max ? 2 * sched->client_max : 16;
		struct sched_client *clients = realloc(sched->clients, max * sizeof(*clients));

		if (!clients)
			return -ENOMEM;
		sched->clients = clients;
		sched->client_max = max;
	}

	struct sched_client *client = &sched->clients[sched->client_count++];

	*client = (struct sched_client){
		.id = id,
		.node = node,
		.key = request->key,
		.decision = decision,
		.priority = request->priority,
		.known = request->profile != NULL,
		.rough = request->rough,
		.added_at = now,
		.pinned = request->wanted && *request->wanted,
		.better = SCHED_NONE,
		.moved_at = SCHED_UNKNOWN,
		.still_until = SCHED_UNKNOWN,
	};
	if (request->profile)
		client->profile = *request->profile;
	sched->nodes[node].clients++;
	sched->nodes[node].latency_clients += client->priority == PRIORITY_LATENCY;
	sched->nodes[node].failed_at = SCHED_UNKNOWN;
	client_expect(sched, client, now);
	return 0;
}

/* It runs on and on, beyond what the load that is told explains: one needn't wait for its end to see that something is wrong. */
static void overdue_learn(struct sched *sched, const struct sched_client *client, double wall, double now)
{
	struct sched_node *node = &sched->nodes[client->node];
	struct sched_request request = { .profile = &client->profile, .priority = client->priority };
	struct sched_cost cost;
	double run, least;

	if (!client->known || client->rough || client->profile.runs < BIAS_RUNS)
		return;
	sched_cost_without(sched, client->node, &request, now, client->duty, client->link_duty, &cost);
	run = (cost.total - cost.start) / cost.bias;
	if (run <= 0 || wall < OVERDUE * run)
		return;
	least = log(clamp(wall / run / BIAS_LIE, 1, SCHED_BIAS_MAX));
	if (least > log(cost.bias)) {
		node->bias = least;
		node->bias_at = now;
	}
}

void sched_client_used(struct sched *sched, uint32_t id, const struct sched_usage *usage, double now)
{
	struct sched_client *client = sched_client_find(sched, id);
	double wall, duty, link_duty, weight;

	if (!client)
		return;
	wall = usage->wall - client->used.wall;
	if (wall < 1e-3)
		return;
	duty = clamp((usage->gpu_wall - client->used.gpu_wall) / wall, 0, 1);
	link_duty = clamp((usage->bytes_up + usage->bytes_down - client->used.bytes_up - client->used.bytes_down) / wall /
				  sched_known_or(sched->nodes[client->node].state.bandwidth, SCHED_BANDWIDTH_DEFAULT), 0, 1);
	/* A second's worth counts half: programs have phases, and one look is not the program. */
	weight = clamp(wall / (wall + 1), 0, 1);
	duty = client->duty + weight * (duty - client->duty);
	link_duty = client->link_duty + weight * (link_duty - client->link_duty);
	client->used = *usage;
	overdue_learn(sched, client, usage->wall, now);
	client_weigh(sched, client, duty, link_duty, clamp(client->memory_due, 0, fmax(0, client->profile.memory - usage->memory)));
}

/* How long it took against what was said, for programs whose runs are known: the rest is the node's. */
static void bias_learn(struct sched_node *node, const struct sched_client *client, const struct sched_decision *decision,
		       double wall, double now)
{
	double run = decision->cost.total - decision->cost.start;
	double age = now - node->bias_at;
	double old = node->bias * exp2(-(age > 0 ? age : 0) / SCHED_BIAS_HALF_S);
	double ratio;

	if (!client->known || client->rough || client->profile.runs < BIAS_RUNS || run <= 0 || wall < SCHED_PROFILE_LEAST)
		return;
	ratio = log(clamp(wall / (run / decision->cost.bias), 0.125, 32));
	node->bias = clamp(old + BIAS_WEIGHT * (ratio - old), log(SCHED_BIAS_MIN), log(SCHED_BIAS_MAX));
	node->bias_at = now;
}

void sched_client_remove(struct sched *sched, uint32_t id, const struct sched_usage *usage, double now)
{
	struct sched_client *client = sched_client_find(sched, id);
	struct sched_decision *decision;
	struct sched_node *node;

	if (!client)
		return;
	node = &sched->nodes[client->node];
	decision = sched_decision_find(sched, client->decision);
	if (usage && decision) {
		decision->measured = usage->wall;
		/* Of a run on several nodes nobody knows whose fault its time is. */
		if (client->moved_at < 0)
			bias_learn(node, client, decision, usage->wall, now);
	}
	node->clients--;
	node->latency_clients -= client->priority == PRIORITY_LATENCY;
	client_weigh(sched, client, 0, 0, 0);
	*client = sched->clients[--sched->client_count];
}

void sched_client_moved(struct sched *sched, uint32_t client_id, uint32_t id, uint32_t to, double now)
{
	struct sched_client *client = sched_client_find(sched, client_id);

	if (!client)
		return;
	client->id = id;
	client->better = SCHED_NONE;
	client->added_at = client->moved_at = now;
	/* To another worker there. */
	if (client->node == to)
		return;
	sched->nodes[client->node].clients--;
	sched->nodes[client->node].latency_clients -= client->priority == PRIORITY_LATENCY;
	client_weigh(sched, client, 0, 0, 0);
	client->node = to;
	sched->nodes[to].clients++;
	sched->nodes[to].latency_clients += client->priority == PRIORITY_LATENCY;
	client_expect(sched, client, now);
}
