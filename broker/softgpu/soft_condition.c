// SPDX-License-Identifier: Apache-2.0
/*
 * The values that conditional nodes look at. Any thread.
 */
#include "broker/softgpu/soft_condition.h"

#include <stdlib.h>

#include "broker/softgpu/soft_graph.h"

static void condition_free(struct soft_object *object)
{
	free(object);
}

CUresult soft_condition_new(CUcontext context, uint32_t first, bool assigns, struct soft_condition **condition_out)
{
	struct soft_condition *condition = calloc(1, sizeof(*condition));
	CUresult result;

	if (!condition)
		return CUDA_ERROR_OUT_OF_MEMORY;
	soft_object_init(&condition->object, SOFT_CONDITION, NULL, condition_free);
	atomic_init(&condition->holders, 1);
	condition->context = context;
	condition->first = first;
	condition->assigns = assigns;
	result = soft_object_publish(&condition->object);
	if (result != CUDA_SUCCESS)
		soft_object_put(&condition->object);
	else
		*condition_out = condition;
	return result;
}

struct soft_condition *soft_condition_hold(struct soft_condition *condition)
{
	atomic_fetch_add(&condition->holders, 1);
	return condition;
}

void soft_condition_drop(struct soft_condition *condition)
{
	if (!condition || atomic_fetch_sub(&condition->holders, 1) != 1)
		return;
	soft_object_put(soft_object_retire(atomic_load(&condition->object.handle), SOFT_CONDITION));
}

bool soft_condition_set(uint64_t handle, uint32_t value)
{
	SOFT_HELD struct soft_condition *condition = (struct soft_condition *)soft_object_find(handle, SOFT_CONDITION);

	if (!condition)
		return false;
	atomic_store(&condition->value, value);
	return true;
}

/* ---- entry points ---- */

SOFT_API(cuGraphConditionalHandleCreate, CUgraphConditionalHandle *handle_out, CUgraph graph_handle, CUcontext context,
	 unsigned int value, unsigned int flags)
{
	SOFT_HELD struct soft_context *named = NULL;
	struct soft_condition *condition;
	struct soft_condition **grown;

	SOFT_GRAPH_ARG(graph, graph_handle);
	if (!handle_out || flags & ~(unsigned int)CU_GRAPH_COND_ASSIGN_DEFAULT)
		return CUDA_ERROR_INVALID_VALUE;
	if (context) {
		TRY(soft_context_find(context, &named));
	} else {
		SOFT_ENTER(current);
		context = soft_context_handle(current);
	}
	TRY(soft_condition_new(context, value, flags & CU_GRAPH_COND_ASSIGN_DEFAULT, &condition));
	soft_graph_lock();
	grown = realloc(graph->conditions, (graph->condition_count + 1u) * sizeof(struct soft_condition *));
	if (grown) {
		graph->conditions = grown;
		grown[graph->condition_count++] = condition;
		*handle_out = atomic_load(&condition->object.handle);
	}
	soft_graph_unlock();
	if (!grown)
		soft_condition_drop(condition);
	return grown ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
