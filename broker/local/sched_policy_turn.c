/* SPDX-License-Identifier: Apache-2.0 */
/* Policy `round-robin`: one after the other. See sched.h. */
#include "broker/local/sched_private.h"

/* By the node's number, not the place among the candidates, which differ from request to request. */
static uint32_t choose(struct sched *sched, const struct sched_request *request, const struct sched_candidate *candidates,
		       uint32_t count, uint32_t *second_out)
{
	uint32_t at = 0;

	while (at < count && candidates[at].node < sched->policy_word)
		at++;
	at %= count;
	sched->policy_word = candidates[at].node + 1;
	*second_out = count > 1 ? (at + 1) % count : count;
	return at;
}

const struct sched_policy sched_policy_round_robin = { .name = "round-robin", .choose = choose };
