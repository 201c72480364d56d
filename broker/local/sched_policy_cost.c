/* SPDX-License-Identifier: Apache-2.0 */
/* Policy `cost`: where the run is predicted to cost least; of two that are as good as equal, either. See sched.h. */
#include "broker/local/sched_private.h"

/*
 * Brokers decide apart from each other on reports of the same age: if each took the very best they would all come to one
 * node. So a near second is as good.
 */
static uint32_t choose(struct sched *sched, const struct sched_request *request, const struct sched_candidate *candidates,
		       uint32_t count, uint32_t *second_out)
{
	uint32_t best = 0, second = count;

	for (uint32_t i = 1; i < count; i++) {
		double total = candidates[i].cost.total;

		if (total < candidates[best].cost.total) {
			second = best;
			best = i;
		} else if (second == count || total < candidates[second].cost.total) {
			second = i;
		}
	}
	if (second < count && candidates[second].cost.total <= candidates[best].cost.total * SCHED_NEAR &&
	    sched_random(sched) & 1) {
		uint32_t other = best;

		best = second;
		second = other;
	}
	*second_out = second;
	return best;
}

const struct sched_policy sched_policy_cost = { .name = "cost", .choose = choose };
