// SPDX-License-Identifier: Apache-2.0
/*
 * What each technique saves, spent again. Application threads; see off.h.
 */
#include "libgleamcuda/off.h"

#include <stdlib.h>

#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/log.h"

uint32_t techniques_off;

void off_start(void)
{
	const char *text = secure_getenv("GLEAM_OFF");
	char unknown[OFF_UNKNOWN_SIZE];

	if (!text || !*text)
		return;
	techniques_off = off_read(text, unknown);
	if (*unknown)
		gleam_log("GLEAM_OFF: `%s` is not a technique; these are: " OFF_WORDS, unknown);
}

bool off_awaits(const struct call *call, uint16_t op)
{
	/* What the library says by itself belongs to no call of the program's. */
	if (!call->thread || call->unawaited)
		return false;
	switch (op) {
	case OP_gleamHostWrite:
	case OP_gleamHostDone:
	case OP_gleamFlush:
		return false;
	case OP_gleamMap:
		/* The memory was asked for already. */
		return is_off(OFF_ASYNC) && !is_off(OFF_GRANTS);
	case OP_gleamFree:
	case OP_gleamGrantReturn:
		return is_off(OFF_ASYNC | OFF_GRANTS);
	default:
		return is_off(OFF_ASYNC) || (is_off(OFF_HANDLES) && op_info[op].flags & (OP_BIRTH | OP_DEATH));
	}
}

/* Functions that are answered here, by what makes that possible. Those of the program's own state belong to none. */
static uint32_t technique_of(uint16_t api)
{
	switch (api) {
	case API_cuDeviceGetAttribute:
	case API_cuDeviceGetName:
	case API_cuDeviceGetUuid:
	case API_cuDeviceGetUuid_v2:
	case API_cuDeviceGetPCIBusId:
	case API_cuDeviceGetByPCIBusId:
	case API_cuDeviceTotalMem:
	case API_cuDeviceTotalMem_v2:
	case API_cuDeviceComputeCapability:
	case API_cuDeviceGetProperties:
	case API_cuDeviceGetP2PAttribute:
	case API_cuDeviceCanAccessPeer:
	case API_cuDeviceGetTexture1DLinearMaxWidth:
	case API_cuCtxGetStreamPriorityRange:
	case API_cuFuncGetAttribute:
	case API_cuFuncGetParamInfo:
	case API_cuKernelGetAttribute:
	case API_cuKernelGetParamInfo:
	case API_cuOccupancyAvailableDynamicSMemPerBlock:
	case API_cuOccupancyMaxActiveBlocksPerMultiprocessor:
	case API_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags:
	case API_cuOccupancyMaxActiveClusters:
	case API_cuOccupancyMaxPotentialBlockSize:
	case API_cuOccupancyMaxPotentialBlockSizeWithFlags:
	case API_cuOccupancyMaxPotentialClusterSize:
	case API_cuPointerGetAttribute:
	case API_cuPointerGetAttributes:
	case API_cuMemGetAddressRange_v2:
	case API_cuMemGetAllocationGranularity:
		return OFF_SNAPSHOT;
	case API_cuModuleGetFunction:
	case API_cuModuleGetGlobal_v2:
	case API_cuLibraryGetKernel:
	case API_cuLibraryGetGlobal:
	case API_cuLibraryGetModule:
	case API_cuKernelGetFunction:
		return OFF_VERDICTS;
	case API_cuEventQuery:
	case API_cuEventSynchronize:
	case API_cuStreamQuery:
	case API_cuStreamQuery_ptsz:
		return OFF_ASYNC;
	default:
		return 0;
	}
}

CUresult off_trip(struct call *call)
{
	struct msg_gleamAsk m = { .attribute = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR };
	struct ans_gleamAsk a;
	CUresult result = call_open(call, OP_gleamAsk, msg_gleamAsk_size(&m));

	if (result)
		return result;
	msg_gleamAsk_put(&call->w, &m);
	result = call_wait(call);
	if (!result && !ans_gleamAsk_get(&call->r, &a))
		result = CUDA_ERROR_UNKNOWN;
	return result;
}

CUresult off_ask(struct call *call)
{
	return technique_of(call->api) & techniques_off ? off_trip(call) : CUDA_SUCCESS;
}
