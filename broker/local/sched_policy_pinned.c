/* SPDX-License-Identifier: Apache-2.0 */
/* Policy `pinned`: the first server of the configuration that can take it. See sched.h. */
#include "broker/local/sched_private.h"

static uint32_t choose(struct sched *sched, const struct sched_request *request, const struct sched_candidate *candidates,
		       uint32_t count, uint32_t *second_out)
{
	*second_out = count > 1 ? 1 : count;
	return 0;
}

const struct sched_policy sched_policy_pinned = { .name = "pinned", .choose = choose };
