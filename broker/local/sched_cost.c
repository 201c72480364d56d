/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model of the scheduler. See sched.h, docs/scheduler.md. */
#include <math.h>
#include <string.h>

#include "broker/local/sched_private.h"

/* Of a program that has never run: moderate in everything, so that no term decides alone. */
static const struct sched_profile profile_default = {
	.wall = 10, .cpu = 2, .gpu = 5, .trips = 2000, .bytes_up = 500e6, .bytes_down = 10e6,
};

/* What others and we have running there, a GPU. A report that is old is believed less: load comes and goes. */
double sched_load(const struct sched_node *node, double now)
{
	const struct sched_node_state *state = &node->state;
	double others = sched_known_or(state->busy, 0) - sched_known_or(state->busy_own, 0);
	double age = state->told_at >= 0 ? now - state->told_at : 0;
	double gpus = state->gpus > 1 ? state->gpus : 1;

	if (others < 0)
		others = 0;
	if (age > SCHED_STALE_S)
		others *= SCHED_STALE_S / age;
	return (others + node->duty) / gpus;
}

double sched_bias(const struct sched_node *node, double now)
{
	double age = now - node->bias_at;

	if (fabs(node->bias) < 1e-3)
		return 1;
	return exp(node->bias * exp2(-(age > 0 ? age : 0) / SCHED_BIAS_HALF_S));
}

void sched_cost_without(const struct sched *sched, uint32_t index, const struct sched_request *request, double now, double own_duty,
			double own_link_duty, struct sched_cost *cost_out)
{
	const struct sched_node *node = &sched->nodes[index];
	const struct sched_node_state *state = &node->state;
	const struct sched_profile *profile = request->profile ? request->profile : &profile_default;
	double gpus = state->gpus > 1 ? state->gpus : 1;
	double rtt = sched_known_or(state->rtt, SCHED_RTT_DEFAULT);
	double speed = state->speed > 0 ? state->speed : SCHED_SPEED_DEFAULT;
	double free_share = 1 - sched_known_or(state->link_busy, 0);
	double sharers = node->link_duty - own_link_duty;
	double bandwidth = state->bandwidth > 0 ? state->bandwidth : SCHED_BANDWIDTH_DEFAULT;
	struct sched_cost cost = { 0 };
	double longest, alone;

	bandwidth *= (free_share > 0.05 ? free_share : 0.05) / (1 + (sharers > 0 ? sharers : 0));
	cost.contention = sched_load(node, now) - own_duty / gpus;
	if (cost.contention < 0)
		cost.contention = 0;
	/* Who is to be answered fast is not crowded by who has time. */
	if (request->priority == PRIORITY_BATCH && node->latency_clients)
		cost.contention += node->latency_clients / gpus;
	cost.uncached = request->uncached ? sched_known_or(request->uncached(request->uncached_arg, index), 0) : 0;
	cost.start = (state->warm > 0 ? SCHED_START_WARM : SCHED_START_COLD) + cost.uncached / bandwidth;
	cost.cpu = profile->cpu;
	/* Of an unknown program there is only a time to guess, not work. */
	alone = profile->gpu / speed * (request->profile ? 1 : sched->speed_typical);
	cost.gpu = alone * (1 + cost.contention);
	cost.up = profile->bytes_up / bandwidth;
	cost.trips = profile->trips * rtt;
	cost.down = profile->bytes_down / bandwidth;
	cost.bias = sched_bias(node, now);
	longest = fmax(fmax(cost.cpu, cost.gpu), cost.up);
	cost.total = longest + (cost.trips + cost.down) * (1 - profile->overlap);
	cost.total = cost.total * cost.bias + cost.start;
	/* Whoever works there meanwhile loses as much time to it as it to them. */
	cost.harm = alone * cost.contention * SCHED_OTHERS;
	*cost_out = cost;
}

void sched_cost(const struct sched *sched, uint32_t node, const struct sched_request *request, double now,
		struct sched_cost *cost_out)
{
	sched_cost_without(sched, node, request, now, 0, 0, cost_out);
}
