// SPDX-License-Identifier: Apache-2.0
/*
 * Kernel launches. Checked on the caller's thread, run on the stream's.
 */
#include "broker/softgpu/soft_launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/soft_capture.h"
#include "broker/softgpu/soft_condition.h"
#include "broker/softgpu/soft_event.h"
#include "broker/softgpu/soft_memory.h"
#include "broker/softgpu/soft_texture.h"
#include "broker/softgpu/soft_time.h"
#include "broker/softgpu/soft_work.h"

#define GRID_X_MAX 2147483647u
#define GRID_YZ_MAX 65535u
#define BLOCK_XY_MAX 1024u
#define BLOCK_Z_MAX 64u
#define CLUSTER_PORTABLE_MAX 8u
#define CLUSTER_MAX 16u
#define LAUNCH_ATTRIBUTES_MAX 64u

static _Atomic uint64_t grid_ids = 1;

/* ---- checks ---- */

/* A kernel's parameters, one pointer each, or one block. */
static CUresult params_copy(const struct ptx_entry *entry, void **params, void **extra, uint8_t *block)
{
	const void *packed = NULL;
	const size_t *size = NULL;

	if (params) {
		for (uint32_t i = 0; i < entry->param_count; i++) {
			if (!params[i])
				return CUDA_ERROR_INVALID_VALUE;
			memcpy(block + entry->params[i].offset, params[i], entry->params[i].size);
		}
		return CUDA_SUCCESS;
	}
	if (!extra)
		return entry->param_size ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	/* Pairs of name and value; each name once. */
	for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER && !packed && extra[1])
			packed = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE && !size && extra[1])
			size = extra[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (!size || (*size && !packed) || *size < entry->param_size || *size > PTX_PARAM_SIZE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (entry->param_size)
		memcpy(block, packed, entry->param_size);
	return CUDA_SUCCESS;
}

static CUresult cluster_check(const struct soft_function *function, const struct soft_launch_ask *ask,
			      uint32_t *cluster_out)
{
	bool compiled = function->entry->reqnctapercluster[0];
	uint32_t required[3];
	uint32_t limit = atomic_load(&function->settings->nonportable) ? CLUSTER_MAX : CLUSTER_PORTABLE_MAX;
	uint64_t count = 1;

	memset(cluster_out, 0, 3 * sizeof(*cluster_out));
	for (unsigned int i = 0; i < 3; i++) {
		/* Code may leave out what is 1. */
		required[i] = (uint32_t)atomic_load(&function->settings->cluster[i]);
		if (compiled)
			required[i] = MAX(required[i], 1);
		cluster_out[i] = ask->cluster[i] ? ask->cluster[i] : required[0] ? required[i] : 0;
		if (required[0] && ask->cluster[0] && ask->cluster[i] != required[i])
			return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	}
	if (!cluster_out[0])
		return CUDA_SUCCESS;
	for (unsigned int i = 0; i < 3; i++) {
		if (!cluster_out[i] || cluster_out[i] > CLUSTER_MAX || ask->grid[i] % cluster_out[i])
			return CUDA_ERROR_INVALID_CLUSTER_SIZE;
		count *= cluster_out[i];
	}
	if (count > limit)
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	/* A cluster of one block is no cluster. */
	if (count == 1)
		memset(cluster_out, 0, 3 * sizeof(*cluster_out));
	else if (function->object.owner->device->major < 9)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

CUresult soft_launch_cluster(struct soft_launch *launch, const uint32_t cluster[3])
{
	struct soft_launch_ask ask = { .grid = launch->grid, .cluster = { cluster[0], cluster[1], cluster[2] } };
	uint32_t taken[3];

	TRY(cluster_check(launch->function, &ask, taken));
	memcpy(launch->cluster, taken, sizeof(taken));
	return CUDA_SUCCESS;
}

static CUresult shape_check(const struct soft_function *function, const struct soft_launch_ask *ask)
{
	const struct ptx_entry *entry = function->entry;
	uint64_t threads, blocks;
	int threads_max;

	for (unsigned int i = 0; i < 3; i++)
		if (!ask->grid[i] || !ask->block[i] || ask->grid[i] > (i ? GRID_YZ_MAX : GRID_X_MAX) ||
		    ask->block[i] > (i == 2 ? BLOCK_Z_MAX : BLOCK_XY_MAX))
			return CUDA_ERROR_INVALID_VALUE;
	threads = (uint64_t)ask->block[0] * ask->block[1] * ask->block[2];
	if (threads > SOFT_THREADS_PER_BLOCK)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_settings_get(function->settings, entry, function->module->ptx, function->object.owner->device,
			      CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &threads_max));
	if (threads > (uint64_t)threads_max)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < 3; i++)
		if (entry->reqntid[0] && ask->block[i] != MAX(entry->reqntid[i], 1))
			return CUDA_ERROR_INVALID_VALUE;
	if (ask->shared_dynamic > (uint32_t)atomic_load(&function->settings->dynamic_max))
		return CUDA_ERROR_INVALID_VALUE;
	blocks = (uint64_t)ask->grid[0] * ask->grid[1] * ask->grid[2];
	if (blocks > GRID_X_MAX) {
		soft_log("%s: %llu blocks are more than a software GPU counts", entry->name, (unsigned long long)blocks);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (ask->cooperative) {
		uint64_t fit = (uint64_t)soft_blocks_per_sm(function, (uint32_t)threads, ask->shared_dynamic) *
			       SOFT_SM_COUNT;

		if (blocks > MIN(fit, ptx_cooperative_blocks_max(entry, (uint32_t)threads, ask->shared_dynamic)))
			return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	}
	return CUDA_SUCCESS;
}

CUresult soft_launch_new(struct soft_function *function, const struct soft_launch_ask *ask,
			 struct soft_launch **launch_out)
{
	struct soft_launch *launch;
	CUresult result;

	TRY(shape_check(function, ask));
	if (ask->params && ask->extra)
		return CUDA_ERROR_INVALID_VALUE;
	launch = calloc(1, sizeof(*launch) + function->entry->param_size);
	if (!launch)
		return CUDA_ERROR_OUT_OF_MEMORY;
	soft_places_function(function);
	launch->function = (struct soft_function *)soft_object_get(&function->object);
	memcpy(launch->grid, ask->grid, sizeof(launch->grid));
	memcpy(launch->block, ask->block, sizeof(launch->block));
	launch->shared_dynamic = ask->shared_dynamic;
	launch->cooperative = ask->cooperative;
	launch->params_size = function->entry->param_size;
	result = cluster_check(function, ask, launch->cluster);
	if (result == CUDA_SUCCESS)
		result = params_copy(function->entry, ask->params, ask->extra, launch->params);
	if (result != CUDA_SUCCESS) {
		soft_launch_free(launch);
		return result;
	}
	*launch_out = launch;
	return CUDA_SUCCESS;
}

void soft_launch_free(struct soft_launch *launch)
{
	if (!launch)
		return;
	soft_object_put(&launch->function->object);
	free(launch);
}

/* ---- what a running kernel asks ---- */

/* Whether kernels of @context may touch @range: another device's memory only after it was opened to them. */
static bool range_open(const struct soft_context *context, const struct soft_range *range)
{
	if (range->blocked || range->kind == SOFT_RANGE_ARRAY)
		return false;
	switch (range->kind) {
	case SOFT_RANGE_DEVICE:
	case SOFT_RANGE_SYMBOL:
	case SOFT_RANGE_HEAP:
		return range->device == context->device->ordinal ||
		       atomic_load(&context->peers) >> range->device & 1;
	case SOFT_RANGE_POOL:
		return range->device == context->device->ordinal || soft_pool_is_open(range->owner, context->device->ordinal);
	case SOFT_RANGE_PHYSICAL:
		return range->readers >> context->device->ordinal & 1;
	default:
		return true;
	}
}

static int host_lookup(void *user, uint64_t address, struct ptx_range *range_out)
{
	const struct soft_context *context = user;
	struct soft_range range;

	if (!soft_map_find(address, &range) || !range_open(context, &range))
		return -EFAULT;
	if (range.kind == SOFT_RANGE_PHYSICAL)
		range.read_only = !(range.writers >> context->device->ordinal & 1);
	*range_out = (struct ptx_range){ .base = range.base, .size = range.size, .read_only = range.read_only };
	return 0;
}

static void host_print(void *user, const char *text, size_t size)
{
	/* A kernel's printf goes where the process's own does; the end of the kernel flushes it. */
	fwrite(text, 1, size, stdout);
}

static uint64_t host_heap_alloc(void *user, uint64_t size)
{
	struct soft_context *context = user;
	uint64_t limit, address;

	pthread_mutex_lock(&context->lock);
	limit = context->limits[CU_LIMIT_MALLOC_HEAP_SIZE];
	pthread_mutex_unlock(&context->lock);
	if (!size || size > limit)
		return 0;
	if (atomic_fetch_add(&context->heap_used, size) + size > limit)
		goto give_back;
	if (soft_memory_new(context, size, SOFT_RANGE_HEAP, 0, &address) == CUDA_SUCCESS)
		return address;
give_back:
	atomic_fetch_sub(&context->heap_used, size);
	return 0;
}

static void host_heap_free(void *user, uint64_t address)
{
	struct soft_context *context = user;
	struct soft_range range;

	if (!soft_map_find(address, &range) || range.base != address || range.kind != SOFT_RANGE_HEAP)
		return;
	if (soft_memory_delete(address, 1u << SOFT_RANGE_HEAP) == CUDA_SUCCESS)
		atomic_fetch_sub(&context->heap_used, range.size);
}

static int host_condition(void *user, uint64_t handle, uint32_t value)
{
	return soft_condition_set(handle, value) ? 0 : -EINVAL;
}

static CUresult fault_report(const struct ptx_fault *fault, const struct soft_context *context)
{
	static const CUresult codes[] = {
		[PTX_FAULT_ADDRESS] = CUDA_ERROR_ILLEGAL_ADDRESS,
		[PTX_FAULT_MISALIGNED] = CUDA_ERROR_MISALIGNED_ADDRESS,
		[PTX_FAULT_SPACE] = CUDA_ERROR_INVALID_ADDRESS_SPACE,
		[PTX_FAULT_PC] = CUDA_ERROR_INVALID_PC,
		[PTX_FAULT_INSTRUCTION] = CUDA_ERROR_ILLEGAL_INSTRUCTION,
		[PTX_FAULT_TRAP] = CUDA_ERROR_LAUNCH_FAILED,
		[PTX_FAULT_ASSERT] = CUDA_ERROR_ASSERT,
		[PTX_FAULT_STACK] = CUDA_ERROR_HARDWARE_STACK_ERROR,
		[PTX_FAULT_DEADLOCK] = CUDA_ERROR_LAUNCH_FAILED,
		[PTX_NO_MEMORY] = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
	};

	soft_log("kernel %s: %s, line %u: %s: %s of %u bytes at %#llx, block (%u,%u,%u) thread (%u,%u,%u) device %d%s%s",
		 fault->kernel ? fault->kernel : "?", ptx_status_name(fault->status), fault->line, fault->instruction,
		 fault->write ? "write" : "read", fault->size, (unsigned long long)fault->address, fault->ctaid[0],
		 fault->ctaid[1], fault->ctaid[2], fault->tid[0], fault->tid[1], fault->tid[2], context->device->ordinal,
		 fault->message[0] ? ": " : "", fault->message);
	return codes[fault->status];
}

CUresult soft_launch_run(const struct soft_launch *launch)
{
	struct soft_context *context = launch->function->object.owner;
	const struct ptx_host host = {
		.user = context,
		.lookup = host_lookup,
		.generation = &soft_map_generation,
		.print = host_print,
		.heap_alloc = host_heap_alloc,
		.heap_free = host_heap_free,
		.condition = host_condition,
		.texel = soft_texture_texel,
	};
	struct ptx_launch grid = {
		.module = launch->function->module->ptx,
		.entry = launch->function->entry,
		.grid = { launch->grid[0], launch->grid[1], launch->grid[2] },
		.block = { launch->block[0], launch->block[1], launch->block[2] },
		.cluster = { launch->cluster[0], launch->cluster[1], launch->cluster[2] },
		.shared_dynamic = launch->shared_dynamic,
		.params = launch->params,
		.params_size = launch->params_size,
		.cooperative = launch->cooperative,
		.grid_id = atomic_fetch_add(&grid_ids, 1),
		.sm_count = SOFT_SM_COUNT,
		.pool = soft_pool(),
		.host = &host,
		.abort = &context->abort,
	};
	uint64_t began_ns = soft_now_ns();
	enum ptx_status status;
	struct soft_visit visit;
	struct ptx_fault fault;

	pthread_mutex_lock(&context->lock);
	grid.stack_size = launch->function->entry->local_size + (uint32_t)context->limits[CU_LIMIT_STACK_SIZE];
	pthread_mutex_unlock(&context->lock);
	grid.stack_size = MIN(grid.stack_size, PTX_LOCAL_SIZE_MAX);
	soft_visit_begin(&visit);
	status = ptx_launch(&grid, &fault);
	soft_visit_end(&visit);
	fflush(stdout);
	soft_time_spend(context, began_ns);
	if (status == PTX_DONE || status == PTX_ABORTED)
		return CUDA_SUCCESS;
	return fault_report(&fault, context);
}

/* ---- entry points ---- */

struct launch_command {
	struct soft_command command;
	struct soft_launch *launch;
};

static CUresult launch_run(struct soft_command *command, struct soft_stream *stream)
{
	return soft_launch_run(((struct launch_command *)command)->launch);
}

static void launch_free(struct soft_command *command)
{
	soft_launch_free(((struct launch_command *)command)->launch);
	free(command);
}

static CUresult launch_submit(CUfunction handle, CUstream stream_handle, const struct soft_launch_ask *ask)
{
	SOFT_HELD struct soft_function *function = NULL;
	struct launch_command *command;
	struct soft_launch *launch;

	SOFT_STREAM_ARG(stream, stream_handle);
	TRY(soft_function_find(handle, soft_stream_context(stream), &function));
	/* A function runs in the context of its module. */
	if (function->object.owner != soft_context_home(soft_stream_context(stream)))
		return CUDA_ERROR_INVALID_HANDLE;
	TRY(soft_launch_new(function, ask, &launch));
	if (soft_capturing(stream)) {
		struct soft_work work;

		TRY(soft_work_launch(&work, handle, launch));
		return soft_capture_add(stream, &work);
	}
	command = calloc(1, sizeof(*command));
	if (!command) {
		soft_launch_free(launch);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	command->command.run = launch_run;
	command->command.free = launch_free;
	command->launch = launch;
	return soft_stream_submit(stream, &command->command, NULL);
}

SOFT_API(cuLaunchKernel, CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
	 unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared, CUstream stream,
	 void **params, void **extra)
{
	const uint32_t grid[3] = { grid_x, grid_y, grid_z }, block[3] = { block_x, block_y, block_z };
	const struct soft_launch_ask ask = {
		.grid = grid,
		.block = block,
		.shared_dynamic = shared,
		.params = params,
		.extra = extra,
	};

	return launch_submit(function, stream, &ask);
}

SOFT_API(cuLaunchCooperativeKernel, CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
	 unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared, CUstream stream,
	 void **params)
{
	const uint32_t grid[3] = { grid_x, grid_y, grid_z }, block[3] = { block_x, block_y, block_z };
	const struct soft_launch_ask ask = {
		.grid = grid,
		.block = block,
		.shared_dynamic = shared,
		.cooperative = true,
		.params = params,
	};

	return launch_submit(function, stream, &ask);
}

/* Puts one attribute into @ask; events that the launch is to trigger into @events. */
static CUresult attribute_take(const CUlaunchAttribute *attribute, struct soft_launch_ask *ask, CUevent events[2])
{
	switch (attribute->id) {
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		ask->cooperative = attribute->value.cooperative != 0;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		if (!attribute->value.clusterDim.x || !attribute->value.clusterDim.y || !attribute->value.clusterDim.z)
			return CUDA_ERROR_INVALID_VALUE;
		ask->cluster[0] = attribute->value.clusterDim.x;
		ask->cluster[1] = attribute->value.clusterDim.y;
		ask->cluster[2] = attribute->value.clusterDim.z;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
		events[0] = attribute->value.programmaticEvent.event;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
		events[1] = attribute->value.launchCompletionEvent.event;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
		return attribute->value.cooperative ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
	/* Hints: what they allow to happen earlier happens in order here. */
	case CU_LAUNCH_ATTRIBUTE_IGNORE:
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
	case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

SOFT_API(cuLaunchKernelEx, const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	CUevent events[2] = { NULL, NULL };
	struct soft_launch_ask ask = { .params = params, .extra = extra };
	uint32_t grid[3], block[3];

	TRY(soft_ready());
	if (!config || (config->numAttrs && !config->attrs) || config->numAttrs > LAUNCH_ATTRIBUTES_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(grid, &config->gridDimX, sizeof(grid));
	memcpy(block, &config->blockDimX, sizeof(block));
	ask.grid = grid;
	ask.block = block;
	ask.shared_dynamic = config->sharedMemBytes;
	for (unsigned int i = 0; i < config->numAttrs; i++)
		TRY(attribute_take(&config->attrs[i], &ask, events));
	for (unsigned int i = 0; i < 2; i++) {
		SOFT_HELD struct soft_event *event = NULL;

		if (events[i])
			TRY(soft_event_find(events[i], &event));
	}
	TRY(launch_submit(function, config->hStream, &ask));
	for (unsigned int i = 0; i < 2; i++) {
		if (events[i]) {
			SOFT_EVENT_ARG(event, events[i]);
			SOFT_STREAM_ARG(stream, config->hStream);
			TRY(soft_event_record(event, stream));
		}
	}
	return CUDA_SUCCESS;
}
