/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of stream words. Executor thread. Single ones are the dispatch's own.
 */
#include <string.h>

#include "broker/worker/state.h"
#include "gen/worker_bodies.h"

#define BATCH_MAX 256u /* the driver's own limit */

CUresult worker_do_cuStreamBatchMemOp_v2(struct worker *w, struct cmd *cmd, const struct msg_cuStreamBatchMemOp_v2 *m)
{
	CUstreamBatchMemOpParams ops[BATCH_MAX];

	if (m->ops_size != (uint64_t)m->count * sizeof(ops[0]) || m->count > BATCH_MAX)
		return CMD_BROKEN;
	if (!m->count)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(ops, m->ops, m->ops_size);
	for (uint32_t i = 0; i < m->count; i++)
		switch ((int)ops[i].operation) {
		case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		case CU_STREAM_MEM_OP_BARRIER:
		case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
			break;
		default:
			return CUDA_ERROR_INVALID_VALUE;
		}
	cmd->commands = m->count;
	return w->drv.cuStreamBatchMemOp_v2(cmd->stream, m->count, ops, m->flags);
}
