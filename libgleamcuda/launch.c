// SPDX-License-Identifier: Apache-2.0
/*
 * Launches in every form. The hottest path of the library: one look-up without a lock, a few comparisons, one copy of the
 * parameters into the frame. Application threads.
 */
#include "libgleamcuda/launch.h"

#include <stdlib.h>
#include <string.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/event.h"
#include "libgleamcuda/graph.h"
#include "libgleamcuda/exposed.h"
#include "libgleamcuda/occupancy.h"
#include "libgleamcuda/program.h"
#include "libgleamcuda/region.h"
#include "libgleamcuda/stream.h"

/* Parameters up to this are packed on the stack at once; few kernels have more than some hundred bytes. */
#define SMALL_PARAMS 1024
/* Attributes of one call: ids may repeat, the last counts; more entries than this are nonsense. */
#define ATTRIBUTES_MAX 256
/* Pairs in an extra list: two are known, and they may repeat. */
#define EXTRA_MAX 16

static_assert(sizeof(CUlaunchAttribute) == 72, "launch attributes are 72 bytes on the wire");

/* ---- attributes ---- */

static uint32_t *cluster_of(CUlaunchAttributeValue *value)
{
	return &value->clusterDim.x;
}

/* Check one attribute and copy what it uses. */
static CUresult attribute_take(struct call *call, struct launch *launch, const CUlaunchAttribute *from,
			       CUlaunchAttribute *to)
{
	const CUlaunchAttributeValue *v = &from->value;
	const struct device *device = device_at(call->context->device);
	int domains;

	switch ((int)from->id) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		to->value.accessPolicyWindow = v->accessPolicyWindow;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		to->value.cooperative = v->cooperative;
		launch->cooperative = v->cooperative != 0;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		to->value.clusterDim = v->clusterDim;
		memcpy(launch->cluster, cluster_of(&to->value), sizeof(launch->cluster));
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		to->value.clusterSchedulingPolicyPreference = v->clusterSchedulingPolicyPreference;
		return (unsigned int)v->clusterSchedulingPolicyPreference <= CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING ?
			       CUDA_SUCCESS :
			       CUDA_ERROR_INVALID_VALUE;
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
		to->value.programmaticStreamSerializationAllowed = v->programmaticStreamSerializationAllowed;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
		to->value.programmaticEvent = v->programmaticEvent;
		return event_for_launch(call, v->programmaticEvent.event, &launch->event);
	case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
		to->value.launchCompletionEvent = v->launchCompletionEvent;
		return event_for_launch(call, v->launchCompletionEvent.event, &launch->event_too);
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		to->value.priority = v->priority;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		to->value.memSyncDomainMap = v->memSyncDomainMap;
		domains = device->raw->attributes[CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT];
		return v->memSyncDomainMap.default_ < domains && v->memSyncDomainMap.remote < domains ?
			       CUDA_SUCCESS :
			       CUDA_ERROR_INVALID_VALUE;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		to->value.memSyncDomain = v->memSyncDomain;
		return (unsigned int)v->memSyncDomain <= CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE ? CUDA_SUCCESS :
											    CUDA_ERROR_INVALID_VALUE;
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
		to->value.preferredClusterDim = v->preferredClusterDim;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
		/* The driver's own answer outside of a graph. */
		return CUDA_ERROR_NOT_SUPPORTED;
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		to->value.sharedMemCarveout = v->sharedMemCarveout;
		return v->sharedMemCarveout <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
		to->value.nvlinkUtilCentricScheduling = v->nvlinkUtilCentricScheduling;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUlaunchAttribute *attribute_place(struct launch *launch, CUlaunchAttributeID id)
{
	for (uint32_t i = 0; i < launch->attr_count; i++)
		if (launch->attrs[i].id == id)
			return &launch->attrs[i];
	return launch->attr_count < LAUNCH_ATTRIBUTES ? &launch->attrs[launch->attr_count++] : NULL;
}

/* A cluster of no blocks is none: the driver takes it, and so it isn't sent. */
static bool attribute_is_nothing(struct launch *launch, const CUlaunchAttribute *attribute)
{
	if (attribute->id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION || launch->cluster[0] || launch->cluster[1] ||
	    launch->cluster[2])
		return false;
	for (uint32_t i = 0; i < launch->attr_count; i++)
		if (launch->attrs[i].id == attribute->id)
			launch->attrs[i] = launch->attrs[--launch->attr_count];
	return true;
}

CUresult launch_attributes(struct call *call, struct launch *launch, const CUlaunchAttribute *attrs, uint32_t count)
{
	if (count && !attrs)
		return CUDA_ERROR_INVALID_VALUE;
	if (count > ATTRIBUTES_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < count; i++) {
		CUlaunchAttribute taken;
		CUlaunchAttribute *place;
		CUresult result;

		if (attrs[i].id == CU_LAUNCH_ATTRIBUTE_IGNORE)
			continue;
		memset(&taken, 0, sizeof(taken));
		taken.id = attrs[i].id;
		result = attribute_take(call, launch, &attrs[i], &taken);
		if (result)
			return result;
		if (attribute_is_nothing(launch, &taken))
			continue;
		place = attribute_place(launch, taken.id);
		if (!place)
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(place, &taken, sizeof(taken));
	}
	return CUDA_SUCCESS;
}

/* ---- checks ---- */

static CUresult cluster_check(const struct function *function, const struct launch *launch)
{
	static const CUfunction_attribute required[3] = {
		CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
		CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
		CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
	};
	bool given = launch->cluster[0] || launch->cluster[1] || launch->cluster[2];
	uint32_t cluster[3];
	uint64_t size = 1;

	for (uint32_t i = 0; i < 3; i++) {
		uint32_t wanted = (uint32_t)function_value(function, required[i]);

		cluster[i] = given ? launch->cluster[i] : wanted;
		if (!given && !wanted && i == 0)
			return CUDA_SUCCESS;
		if (!cluster[i] || (given && wanted && wanted != cluster[i]) || launch->grid[i] % cluster[i])
			return CUDA_ERROR_INVALID_CLUSTER_SIZE;
		size *= cluster[i];
	}
	/* Eight is what every device of this kind has; sixteen where the function asked for it. */
	if (size > (function_value(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) ? 16 : 8))
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	return CUDA_SUCCESS;
}

static CUresult cooperative_check(const struct function *function, const struct launch *launch, uint32_t threads)
{
	const int32_t *device = device_at(function->context->device)->raw->attributes;
	uint64_t grid = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
	int blocks;

	if (!device[CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH])
		return CUDA_ERROR_NOT_SUPPORTED;
	/* Where the rule for this architecture isn't known, the node decides. */
	if (!occupancy_blocks(function, (int)threads, launch->shared_size, &blocks))
		return CUDA_SUCCESS;
	return grid <= (uint64_t)blocks * (uint64_t)device[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] ?
		       CUDA_SUCCESS :
		       CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

CUresult launch_check(const struct function *function, const struct launch *launch)
{
	const int32_t *device = device_at(function->context->device)->raw->attributes;
	const int32_t *grid_max = &device[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X];
	const int32_t *block_max = &device[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X];
	uint32_t threads_max = (uint32_t)function_value(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
	uint64_t threads = 1;
	CUresult result;

	for (uint32_t i = 0; i < 3; i++) {
		/* One too low is beyond the other end. */
		if (launch->grid[i] - 1 >= (uint32_t)grid_max[i] || launch->block[i] - 1 >= (uint32_t)block_max[i])
			return CUDA_ERROR_INVALID_VALUE;
		threads *= launch->block[i];
	}
	if (threads > (uint32_t)device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK])
		return CUDA_ERROR_INVALID_VALUE;
	if (threads > threads_max)
		/* Too few registers is "out of resources"; a bound that the program itself set is a wrong value. */
		return threads_max == occupancy_register_threads(function) ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES :
									     CUDA_ERROR_INVALID_VALUE;
	if (launch->shared_size > (uint32_t)function_value(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES))
		return CUDA_ERROR_INVALID_VALUE;
	result = cluster_check(function, launch);
	if (!result && launch->cooperative)
		result = cooperative_check(function, launch, (uint32_t)threads);
	return result;
}

/* ---- parameters ---- */

static CUresult extra_of(const struct function *function, void **extra, struct launch_params *params_out)
{
	const void *block = NULL;
	const size_t *size = NULL;

	for (uint32_t i = 0;; i++) {
		uintptr_t tag = (uintptr_t)extra[2 * i];

		if (tag == (uintptr_t)CU_LAUNCH_PARAM_END)
			break;
		if (i == EXTRA_MAX)
			return CUDA_ERROR_INVALID_VALUE;
		if (tag == (uintptr_t)CU_LAUNCH_PARAM_BUFFER_POINTER)
			block = extra[2 * i + 1];
		else if (tag == (uintptr_t)CU_LAUNCH_PARAM_BUFFER_SIZE)
			size = extra[2 * i + 1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	*params_out = (struct launch_params){ .block = block, .size = size ? (uint32_t)*size : 0 };
	if (size && *size > ANSWER_PARAMS_SIZE)
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	if (!function->params_size && (!size || !*size))
		return CUDA_SUCCESS;
	if (!block || !size || !*size)
		return CUDA_ERROR_INVALID_VALUE;
	/* A block may be padded as a struct is; the node judges that. Shorter ones are taken. */
	return *size > ((function->params_size + 7u) & ~7u) ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_SUCCESS;
}

CUresult launch_params_of(const struct function *function, void **params, void **extra,
			  struct launch_params *params_out)
{
	if (extra)
		return params ? CUDA_ERROR_INVALID_VALUE : extra_of(function, extra, params_out);
	if (function->param_count) {
		if (!params)
			return CUDA_ERROR_INVALID_VALUE;
		for (uint32_t i = 0; i < function->param_count; i++)
			if (!params[i])
				return CUDA_ERROR_INVALID_VALUE;
	}
	*params_out = (struct launch_params){ .pointers = params, .size = function->params_size };
	return CUDA_SUCCESS;
}

void launch_params_pack(const struct function *function, const struct launch_params *from, uint8_t *to)
{
	const struct verdict_param *param = function->params;

	if (!from->pointers) {
		if (from->size)
			memcpy(to, from->block, from->size);
		return;
	}
	if (function->has_gaps)
		memset(to, 0, from->size);
	for (uint32_t i = 0; i < function->param_count; i++, param++) {
		/* Nearly all are pointers and numbers: sizes that the compiler knows cost one move. */
		switch (param->size) {
		case 8:
			memcpy(to + param->offset, from->pointers[i], 8);
			break;
		case 4:
			memcpy(to + param->offset, from->pointers[i], 4);
			break;
		default:
			memcpy(to + param->offset, from->pointers[i], param->size);
			break;
		}
	}
}

/* ---- the launch ---- */

static CUresult launch_send(struct call *call, const struct function *function, struct launch *launch,
			    uint64_t stream, const void *params, uint32_t params_size)
{
	/* A place is free: each id is there once, and this one isn't. */
	if (function_cluster(function, launch->attrs, launch->attr_count, &launch->attrs[launch->attr_count]))
		launch->attr_count++;

	struct msg_gleamLaunch m = {
		.stream = stream,
		.function = function->wire,
		.grid_x = launch->grid[0],
		.grid_y = launch->grid[1],
		.grid_z = launch->grid[2],
		.block_x = launch->block[0],
		.block_y = launch->block[1],
		.block_z = launch->block[2],
		.shared_size = launch->shared_size,
		.attrs = launch->attrs,
		.attrs_size = launch->attr_count * (uint32_t)sizeof(launch->attrs[0]),
		.params = params,
		.params_size = params_size,
	};
	CUresult result;

	result = exposed_params(call, params, params_size);
	if (__builtin_expect(result != CUDA_SUCCESS, 0))
		return result;
	if (exposed_any())
		exposed_push(call);
	if (region_any()) {
		result = region_give(call, stream);
		if (result)
			return result;
	}
	result = call_open(call, OP_gleamLaunch, msg_gleamLaunch_size(&m));
	uint64_t seq;

	if (__builtin_expect(result != CUDA_SUCCESS, 0))
		return result;
	msg_gleamLaunch_put(&call->w, &m);
	seq = call_post(call);
	stream_note(call, stream, seq);
	if (__builtin_expect(launch->attr_count != 0, 0)) {
		if (launch->event)
			event_launched(call, launch->event, stream, seq);
		if (launch->event_too)
			event_launched(call, launch->event_too, stream, seq);
	}
	return CUDA_SUCCESS;
}

/* Its own function for its stack. */
static __attribute__((noinline)) CUresult launch_send_large(struct call *call, const struct function *function,
							    struct launch *launch, uint64_t stream,
							    const struct launch_params *from)
{
	uint8_t *block = malloc(from->size);
	CUresult result;

	if (!block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	launch_params_pack(function, from, block);
	result = launch_send(call, function, launch, stream, block, from->size);
	free(block);
	return result;
}

bool launches_block(void)
{
	static int8_t blocking = -1; /* atomic; read once, as the driver does */
	int8_t value = __atomic_load_n(&blocking, __ATOMIC_RELAXED);

	if (__builtin_expect(value < 0, 0)) {
		const char *text = secure_getenv("CUDA_LAUNCH_BLOCKING");

		value = text && strtol(text, NULL, 10) != 0;
		__atomic_store_n(&blocking, value, __ATOMIC_RELAXED);
	}
	return value;
}

/*
 * A launch on a capturing stream. Its node comes wholly behind what the stream has captured so far, also where the launch
 * would allow an overlap: right in any case, and ports of edges are not asked for. Events that it records are the
 * capture's, as if they were recorded behind it.
 */
static __attribute__((noinline)) CUresult launch_captured(struct call *call, const struct function *function,
							  struct launch *launch, uint64_t stream,
							  const struct launch_params *from)
{
	struct graph_work work;
	uint32_t kept = 0;
	CUresult result;

	for (uint32_t i = 0; i < launch->attr_count; i++)
		switch ((int)launch->attrs[i].id) {
		case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
		case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
		case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
			break;
		default:
			if (kept != i)
				memcpy(&launch->attrs[kept], &launch->attrs[i], sizeof(launch->attrs[0]));
			kept++;
		}
	launch->attr_count = kept;
	result = graph_work_launch(function, (CUfunction)(uintptr_t)launch->captured, launch, from, &work);
	if (!result)
		result = capture_add(call, stream, &work);
	if (!result && launch->event)
		result = event_capture_record(call, launch->event, stream);
	if (!result && launch->event_too)
		result = event_capture_record(call, launch->event_too, stream);
	return result;
}

/*
 * Parameters are gathered on the stack before the frame is opened: they lie in the program's memory, and a fault there
 * (managed memory) must not find the append lock taken.
 */
static CUresult launch_run(struct call *call, const struct function *function, struct launch *launch, uint64_t stream,
			   void **params, void **extra)
{
	uint8_t block[SMALL_PARAMS] __attribute__((aligned(16)));
	struct launch_params from;
	CUresult result = launch_params_of(function, params, extra, &from);

	if (result)
		return result;
	if (__builtin_expect(launch->captured != 0, 0))
		return launch_captured(call, function, launch, stream, &from);
	if (__builtin_expect(from.size > sizeof(block), 0)) {
		result = launch_send_large(call, function, launch, stream, &from);
	} else {
		launch_params_pack(function, &from, block);
		result = launch_send(call, function, launch, stream, block, from.size);
	}
	if (!result && __builtin_expect(launches_block(), 0))
		result = stream_wait(call, stream_find(call, stream));
	return result;
}

/* Function and stream of a launch: of one context, which becomes the call's. */
static CUresult launch_open(struct call *call, CUfunction f, CUstream hStream, struct function **function_out,
			    uint64_t *stream_out, struct launch *launch)
{
	struct function *function;
	bool captured;
	CUresult result = call_stream_captured(call, hStream, stream_out, &captured);

	launch->captured = captured ? (uint64_t)(uintptr_t)f : 0;
	if (!result)
		result = function_in(call, f, context_base(call->context), &function);
	if (result)
		return result;
	if (function->context != context_base(call->context))
		return CUDA_ERROR_INVALID_HANDLE;
	*function_out = function;
	return function_ready(call, function);
}

CUresult do_cuLaunchKernel(struct call *call, CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
			   unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
			   unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
	/* Not initialised as a whole: the attributes' kilobyte is not looked at. */
	struct launch launch;
	struct function *function;
	uint64_t stream;
	CUresult result = launch_open(call, f, hStream, &function, &stream, &launch);

	if (result)
		return result;
	launch.grid[0] = gridDimX;
	launch.grid[1] = gridDimY;
	launch.grid[2] = gridDimZ;
	launch.block[0] = blockDimX;
	launch.block[1] = blockDimY;
	launch.block[2] = blockDimZ;
	launch.shared_size = sharedMemBytes;
	launch.cooperative = false;
	memset(launch.cluster, 0, sizeof(launch.cluster));
	launch.event = launch.event_too = 0;
	launch.attr_count = 0;
	result = launch_check(function, &launch);
	return result ? result : launch_run(call, function, &launch, stream, kernelParams, extra);
}

CUresult do_cuLaunchKernelEx(struct call *call, const CUlaunchConfig *config, CUfunction f, void **kernelParams,
			     void **extra)
{
	struct launch launch;
	struct function *function;
	uint64_t stream;
	CUresult result;

	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	result = launch_open(call, f, config->hStream, &function, &stream, &launch);
	if (result)
		return result;
	launch.grid[0] = config->gridDimX;
	launch.grid[1] = config->gridDimY;
	launch.grid[2] = config->gridDimZ;
	launch.block[0] = config->blockDimX;
	launch.block[1] = config->blockDimY;
	launch.block[2] = config->blockDimZ;
	launch.shared_size = config->sharedMemBytes;
	launch.cooperative = false;
	memset(launch.cluster, 0, sizeof(launch.cluster));
	launch.event = launch.event_too = 0;
	launch.attr_count = 0;
	result = launch_attributes(call, &launch, config->attrs, config->numAttrs);
	if (!result)
		result = launch_check(function, &launch);
	return result ? result : launch_run(call, function, &launch, stream, kernelParams, extra);
}

CUresult do_cuLaunchCooperativeKernel(struct call *call, CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
				      unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
				      unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
				      void **kernelParams)
{
	CUlaunchAttribute attribute = { .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1 };
	CUlaunchConfig config = {
		.gridDimX = gridDimX, .gridDimY = gridDimY, .gridDimZ = gridDimZ,
		.blockDimX = blockDimX, .blockDimY = blockDimY, .blockDimZ = blockDimZ,
		.sharedMemBytes = sharedMemBytes, .hStream = hStream, .attrs = &attribute, .numAttrs = 1,
	};

	return do_cuLaunchKernelEx(call, &config, f, kernelParams, NULL);
}

CUresult do_cuLaunchCooperativeKernelMultiDevice(struct call *call, CUDA_LAUNCH_PARAMS *launchParamsList,
						 unsigned int numDevices, unsigned int flags)
{
	(void)launchParamsList;
	(void)numDevices;
	(void)flags;
	return call_refuse(call, "grids over several devices synchronise through memory that the network can't share");
}

/* ---- the oldest form: parameters and shape are set on the function, then it is launched ---- */

struct launch_state {
	uint32_t block[3];
	uint32_t shared_size;
	uint32_t params_size;
	uint8_t params[ANSWER_PARAMS_SIZE + 4];
};

void launch_state_free(struct launch_state *state)
{
	free(state);
}

static CUresult state_of(struct call *call, CUfunction f, struct function **function_out, struct launch_state **state_out)
{
	struct launch_state *state, *expected = NULL;
	struct function *function;
	CUresult result = function_of(f, &function);

	if (!result)
		result = function_ready(call, function);
	if (result)
		return result;
	state = __atomic_load_n(&function->state, __ATOMIC_ACQUIRE);
	if (!state) {
		state = calloc(1, sizeof(*state));
		if (!state)
			return CUDA_ERROR_OUT_OF_MEMORY;
		state->block[0] = state->block[1] = state->block[2] = 1;
		if (!__atomic_compare_exchange_n(&function->state, &expected, state, false, __ATOMIC_ACQ_REL,
						 __ATOMIC_ACQUIRE)) {
			free(state);
			state = expected;
		}
	}
	*function_out = function;
	*state_out = state;
	return CUDA_SUCCESS;
}

CUresult do_cuFuncSetBlockShape(struct call *call, CUfunction hfunc, int x, int y, int z)
{
	struct launch launch = { .grid = { 1, 1, 1 }, .block = { (uint32_t)x, (uint32_t)y, (uint32_t)z } };
	struct launch_state *state;
	struct function *function;
	CUresult result = state_of(call, hfunc, &function, &state);

	if (!result)
		result = launch_check(function, &launch);
	/* Clusters are looked at with the grid. */
	if (result && result != CUDA_ERROR_INVALID_CLUSTER_SIZE)
		return result;
	memcpy(state->block, launch.block, sizeof(state->block));
	return CUDA_SUCCESS;
}

CUresult do_cuFuncSetSharedSize(struct call *call, CUfunction hfunc, unsigned int bytes)
{
	struct launch_state *state;
	struct function *function;
	CUresult result = state_of(call, hfunc, &function, &state);

	if (result)
		return result;
	if (bytes > (uint32_t)function_value(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES))
		return CUDA_ERROR_INVALID_VALUE;
	state->shared_size = bytes;
	return CUDA_SUCCESS;
}

CUresult do_cuParamSetSize(struct call *call, CUfunction hfunc, unsigned int numbytes)
{
	struct launch_state *state;
	struct function *function;
	CUresult result = state_of(call, hfunc, &function, &state);

	if (result)
		return result;
	if (numbytes > ANSWER_PARAMS_SIZE)
		return CUDA_ERROR_INVALID_VALUE;
	state->params_size = numbytes;
	return CUDA_SUCCESS;
}

CUresult do_cuParamSetv(struct call *call, CUfunction hfunc, int offset, void *ptr, unsigned int numbytes)
{
	struct launch_state *state;
	struct function *function;
	CUresult result = state_of(call, hfunc, &function, &state);

	if (result)
		return result;
	if (!ptr || offset < 0 || offset > ANSWER_PARAMS_SIZE || numbytes > ANSWER_PARAMS_SIZE - (uint32_t)offset)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(state->params + offset, ptr, numbytes);
	return CUDA_SUCCESS;
}

CUresult do_cuParamSeti(struct call *call, CUfunction hfunc, int offset, unsigned int value)
{
	return do_cuParamSetv(call, hfunc, offset, &value, sizeof(value));
}

CUresult do_cuParamSetf(struct call *call, CUfunction hfunc, int offset, float value)
{
	return do_cuParamSetv(call, hfunc, offset, &value, sizeof(value));
}

CUresult do_cuLaunchGridAsync(struct call *call, CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
	struct launch_state *state;
	struct function *function;
	CUresult result = state_of(call, f, &function, &state);
	size_t size;

	if (result)
		return result;
	size = state->params_size;
	/* Measured: a size that was set too small does not make the launch fail. */
	if (size < function->params_size)
		size = function->params_size;

	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, state->params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			  CU_LAUNCH_PARAM_END };

	return do_cuLaunchKernel(call, f, (unsigned int)grid_width, (unsigned int)grid_height, 1, state->block[0],
				 state->block[1], state->block[2], state->shared_size, hStream, NULL, extra);
}

CUresult do_cuLaunchGrid(struct call *call, CUfunction f, int grid_width, int grid_height)
{
	return do_cuLaunchGridAsync(call, f, grid_width, grid_height, NULL);
}

CUresult do_cuLaunch(struct call *call, CUfunction f)
{
	return do_cuLaunchGridAsync(call, f, 1, 1, NULL);
}
