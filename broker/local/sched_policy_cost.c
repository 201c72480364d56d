/* SPDX-License-Identifier: Apache-2.0 */
/* Policy `cost`: where the run is predicted to cost least, what it costs others included; of two that are as good as equal, either. See sched.h. */
#include "broker/local/sched_private.h"

/*
 * Brokers decide apart from each other on reports of the same age: if each took the very best they would all come to one
 * node. So a near second is as good.
 */
static double score(const struct sched_candidate *candidate)
{
	return candidate->cost.total + candidate->cost.harm;
}

static uint32_t choose(struct sched *sched, const struct sched_request *request, const struct sched_candidate *candidates,
		       uint32_t count, uint32_t *second_out)
{
	uint32_t best = 0, second = count;

	for (uint32_t i = 1; i < count; i++) {
		double one = score(&candidates[i]);

		if (one < score(&candidates[best])) {
			second = best;
			best = i;
		} else if (second == count || one < score(&candidates[second])) {
			second = i;
		}
	}
	if (second < count && score(&candidates[second]) <= score(&candidates[best]) * SCHED_NEAR &&
	    sched_random(sched) & 1) {
		uint32_t other = best;

		best = second;
		second = other;
	}
	*second_out = second;
	return best;
}

const struct sched_policy sched_policy_cost = { .name = "cost", .choose = choose };
