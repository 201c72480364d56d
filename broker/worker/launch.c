/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches. Executor thread; see launch.h.
 */
#include "broker/worker/launch.h"

#include <string.h>

#include "broker/worker/frame.h"
#include "broker/worker/note.h"
#include "broker/worker/sync.h"
#include "broker/worker/touch.h"
#include "gen/worker_bodies.h"

#define LAUNCHES_TOLD 8 /* of a worker; a program that goes on after one fails in many */

static CUresult event_of(struct worker *w, uint64_t handle, CUevent *event_out)
{
	struct object *o = object_find(w->tables, OBJECT_EVENT, handle);

	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	*event_out = o->driver;
	return CUDA_SUCCESS;
}

/* Handles in attributes are 64 bits wide, as the pointers of the driver's type are. */
static uint64_t handle_in(CUevent event)
{
	return (uint64_t)(uintptr_t)event;
}

CUresult launch_attributes(struct worker *w, const void *bytes, uint32_t size, CUlaunchAttribute out[LAUNCH_ATTRIBUTES],
			   unsigned int *count_out)
{
	unsigned int count = size / sizeof(CUlaunchAttribute);

	if (size % sizeof(CUlaunchAttribute) || count > LAUNCH_ATTRIBUTES)
		return CMD_BROKEN;
	if (size)
		memcpy(out, bytes, size);
	for (unsigned int i = 0; i < count; i++) {
		CUresult r = CUDA_SUCCESS;

		switch ((int)out[i].id) {
		case CU_LAUNCH_ATTRIBUTE_IGNORE:
		case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
		case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
		case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
			break;
		case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
			r = event_of(w, handle_in(out[i].value.programmaticEvent.event), &out[i].value.programmaticEvent.event);
			break;
		case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
			r = event_of(w, handle_in(out[i].value.launchCompletionEvent.event),
				     &out[i].value.launchCompletionEvent.event);
			break;
		default:
			/* Device-updatable nodes give a handle back; what is newer than this code may hold anything. */
			complain("launch attribute %d is not served", (int)out[i].id);
			return CUDA_ERROR_NOT_SUPPORTED;
		}
		if (r != CUDA_SUCCESS)
			return r;
	}
	*count_out = count;
	return CUDA_SUCCESS;
}

uint64_t launch_event(const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct reader r = frame_payload(hdr, frame);
	struct msg_gleamLaunch m;
	CUlaunchAttribute attribute;

	if (!msg_gleamLaunch_get(&r, &m))
		return 0;
	for (uint32_t at = 0; m.attrs_size - at >= sizeof(attribute); at += sizeof(attribute)) {
		memcpy(&attribute, (const uint8_t *)m.attrs + at, sizeof(attribute));
		if ((int)attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
			return handle_in(attribute.value.programmaticEvent.event);
		if ((int)attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
			return handle_in(attribute.value.launchCompletionEvent.event);
	}
	return 0;
}

/* The program is told a code, at some later call: here is which kernel that was. */
static CUresult told(struct worker *w, const struct object *o, const struct msg_gleamLaunch *m, CUresult r)
{
	const char *name = NULL;
	CUresult named;

	if (__builtin_expect(r == CUDA_SUCCESS, 1) || w->launches_told >= LAUNCHES_TOLD)
		return r;
	w->launches_told++;
	named = handle_type(m->function) == OBJECT_KERNEL ? w->drv.cuKernelGetName(&name, o->driver) : w->drv.cuFuncGetName(&name, o->driver);
	complain("the launch of %.200s failed with %d: grid %u %u %u, block %u %u %u, %u bytes of shared memory, %u of parameters, %zu attributes",
		 named == CUDA_SUCCESS && name ? name : "a kernel", (int)r, m->grid_x, m->grid_y, m->grid_z, m->block_x, m->block_y,
		 m->block_z, m->shared_size, m->params_size, m->attrs_size / sizeof(CUlaunchAttribute));
	return r;
}

CUresult worker_do_gleamLaunch(struct worker *w, struct cmd *cmd, const struct msg_gleamLaunch *m)
{
	CUlaunchAttribute attributes[LAUNCH_ATTRIBUTES];
	unsigned int count = 0;
	size_t size = m->params_size;
	void *extra[] = {
		CU_LAUNCH_PARAM_BUFFER_POINTER, w->params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END,
	};
	/* The driver takes a kernel wherever it takes a function. */
	struct object *o = object_find(w->tables, handle_type(m->function) == OBJECT_KERNEL ? OBJECT_KERNEL : OBJECT_FUNCTION, m->function);
	void *function;
	CUresult r;

	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	function = o->driver;
	/* At its first launch the driver may load it, and wait for the context's work as any load may: see load_must_wait(). */
	if (__builtin_expect(!(o->used & touch_bit(cmd->hdr->ctx)), 0)) {
		if (host_calls_pending(w, cmd->own->context))
			return CMD_PARK;
		o->used |= touch_bit(cmd->hdr->ctx);
		touch_function(w, cmd->hdr->ctx, m->function, o);
	}
	if (size > LAUNCH_PARAMS_MAX)
		return CMD_BROKEN;
	/* One place for all of them, which stays in the cache; not the stack, whose many pages would be touched each time. */
	if (size)
		memcpy(w->params, m->params, size);
	if (!m->attrs_size)
		return told(w, o, m,
			    w->drv.cuLaunchKernel(function, m->grid_x, m->grid_y, m->grid_z, m->block_x, m->block_y, m->block_z,
						  m->shared_size, cmd->stream, NULL, size ? extra : NULL));
	r = launch_attributes(w, m->attrs, m->attrs_size, attributes, &count);
	if (r != CUDA_SUCCESS)
		return r;

	CUlaunchConfig config = {
		.gridDimX = m->grid_x, .gridDimY = m->grid_y, .gridDimZ = m->grid_z,
		.blockDimX = m->block_x, .blockDimY = m->block_y, .blockDimZ = m->block_z,
		.sharedMemBytes = m->shared_size, .hStream = cmd->stream,
		.attrs = attributes, .numAttrs = count,
	};

	return told(w, o, m, w->drv.cuLaunchKernelEx(&config, function, NULL, size ? extra : NULL));
}
