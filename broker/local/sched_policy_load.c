/* SPDX-License-Identifier: Apache-2.0 */
/* Policy `least-loaded`: where fewest clients have unfinished GPU work, a GPU; equals take turns. See sched.h. */
#include "broker/local/sched_private.h"

static uint32_t choose(struct sched *sched, const struct sched_request *request, const struct sched_candidate *candidates,
		       uint32_t count, uint32_t *second_out)
{
	uint32_t start = (uint32_t)(sched->policy_word++ % count);
	uint32_t best = start, second = count;

	for (uint32_t i = 1; i < count; i++) {
		uint32_t at = (start + i) % count;

		if (candidates[at].load < candidates[best].load) {
			second = best;
			best = at;
		} else if (second == count || candidates[at].load < candidates[second].load) {
			second = at;
		}
	}
	*second_out = second;
	return best;
}

const struct sched_policy sched_policy_least_loaded = { .name = "least-loaded", .choose = choose };
