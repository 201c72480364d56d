/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes of streams that the driver makes use of. Executor thread.
 */
#include <string.h>

#include "broker/worker/note.h"
#include "broker/worker/state.h"
#include "gen/worker_bodies.h"

CUresult worker_do_gleamStreamAttribute(struct worker *w, struct cmd *cmd, const struct msg_gleamStreamAttribute *m)
{
	CUstreamAttrValue value;
	CUresult r;

	if (m->value_size != sizeof(value))
		return CMD_BROKEN;
	switch (m->attr) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		break;
	default:
		return CMD_BROKEN;
	}
	memcpy(&value, m->value, sizeof(value));
	cmd->commands = 0;
	r = w->drv.cuStreamSetAttribute(cmd->stream, (CUstreamAttrID)m->attr, &value);
	/* Hints that change no result: the client has said that they are set, so nothing is latched. */
	if (r != CUDA_SUCCESS)
		note(w, "attribute %u of a stream: %d", m->attr, (int)r);
	return CUDA_SUCCESS;
}
