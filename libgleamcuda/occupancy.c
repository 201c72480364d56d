// SPDX-License-Identifier: Apache-2.0
/*
 * Occupancy: cuOccupancy*. Computed here by the rules of occupancy_rule.c; clusters, whose placement only the driver knows,
 * are asked for once and remembered by all arguments. Application threads.
 */
#include "libgleamcuda/occupancy.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/answer.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/launch.h"
#include "libgleamcuda/program.h"

#define WARP 32
/* Questions about clusters that are remembered: cuBLAS and cuDNN ask 26 to 100 different ones. A newer one takes the
 * place of an older one with the same low bits. */
#define CLUSTER_ANSWERS 1024

/* ---- functions ---- */

static struct occupancy_kernel kernel_of_function(const struct function *function)
{
	uint32_t config = __atomic_load_n(&function->cache_config, __ATOMIC_RELAXED);

	return (struct occupancy_kernel){
		.registers = function_value(function, CU_FUNC_ATTRIBUTE_NUM_REGS),
		.shared_size = function_value(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
		.dynamic_max = function_value(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES),
		.carveout = function_value(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT),
		.cache_config = config ? config : __atomic_load_n(&function->context->cache_config, __ATOMIC_RELAXED),
	};
}

static const int32_t *device_of(const struct function *function)
{
	return device_at(function->context->device)->raw->attributes;
}

bool occupancy_blocks(const struct function *function, int threads, uint64_t dynamic_size, int *blocks_out)
{
	struct occupancy_kernel kernel = kernel_of_function(function);

	return occupancy_compute(device_of(function), &kernel, threads, dynamic_size, blocks_out);
}

uint32_t occupancy_register_threads(const struct function *function)
{
	return occupancy_threads_by_registers(device_of(function), function_value(function, CU_FUNC_ATTRIBUTE_NUM_REGS));
}

/* The function of a question, ready. */
static CUresult asked(struct call *call, CUfunction func, struct function **function_out)
{
	CUresult result = function_in(call, func, call->context, function_out);

	return result ? result : function_ready(call, *function_out);
}

/* ---- blocks ---- */

static CUresult blocks_ask(struct call *call, const struct function *function, int threads, uint64_t dynamic_size,
			   int *blocks_out)
{
	struct msg_cuOccupancyMaxActiveBlocksPerMultiprocessor m = { .func = function->wire, .blockSize = threads,
								     .dynamicSMemSize = dynamic_size };
	struct ans_cuOccupancyMaxActiveBlocksPerMultiprocessor a;
	CUresult result;

	if (occupancy_blocks(function, threads, dynamic_size, blocks_out))
		return CUDA_SUCCESS;
	result = CALL_ASK(call, cuOccupancyMaxActiveBlocksPerMultiprocessor, &m);
	if (result)
		return result;
	if (!ans_cuOccupancyMaxActiveBlocksPerMultiprocessor_get(&call->r, &a))
		return CUDA_ERROR_UNKNOWN;
	*blocks_out = a.numBlocks;
	return CUDA_SUCCESS;
}

CUresult do_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(struct call *call, int *numBlocks, CUfunction func,
								 int blockSize, size_t dynamicSMemSize,
								 unsigned int flags)
{
	struct function *function;
	CUresult result;

	if (!numBlocks || (flags & ~(unsigned int)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE))
		return CUDA_ERROR_INVALID_VALUE;
	result = asked(call, func, &function);
	if (result)
		return result;
	if (blockSize < 1)
		return CUDA_ERROR_INVALID_VALUE;
	return blocks_ask(call, function, blockSize, dynamicSMemSize, numBlocks);
}

CUresult do_cuOccupancyMaxActiveBlocksPerMultiprocessor(struct call *call, int *numBlocks, CUfunction func, int blockSize,
							size_t dynamicSMemSize)
{
	return do_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(call, numBlocks, func, blockSize, dynamicSMemSize,
								       CU_OCCUPANCY_DEFAULT);
}

/* As the driver counts while it looks for a block size: a carveout that the program prefers isn't looked at (measured), the
 * cache preference is. */
static CUresult potential_ask(struct call *call, const struct function *function, int threads, uint64_t dynamic_size,
			      int *blocks_out)
{
	struct occupancy_kernel kernel = kernel_of_function(function);

	kernel.carveout = -1;
	if (occupancy_compute(device_of(function), &kernel, threads, dynamic_size, blocks_out))
		return CUDA_SUCCESS;
	return blocks_ask(call, function, threads, dynamic_size, blocks_out);
}

/* The program's callback runs without any lock of ours: it may call CUDA. */
CUresult do_cuOccupancyMaxPotentialBlockSizeWithFlags(struct call *call, int *minGridSize, int *blockSize,
						      CUfunction func, CUoccupancyB2DSize blockSizeToDynamicSMemSize,
						      size_t dynamicSMemSize, int blockSizeLimit, unsigned int flags)
{
	struct function *function;
	const int32_t *device;
	int limit, best_threads = 0, best_blocks = 0;
	CUresult result;

	if (!minGridSize || !blockSize || blockSizeLimit < 0 ||
	    (flags & ~(unsigned int)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE))
		return CUDA_ERROR_INVALID_VALUE;
	result = asked(call, func, &function);
	if (result)
		return result;
	device = device_of(function);
	limit = function_value(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
	if (blockSizeLimit && blockSizeLimit < limit)
		limit = blockSizeLimit;
	for (int whole = (limit + WARP - 1) / WARP * WARP; whole > 0; whole -= WARP) {
		int threads = whole < limit ? whole : limit;
		uint64_t dynamic_size = blockSizeToDynamicSMemSize ? blockSizeToDynamicSMemSize(threads) : dynamicSMemSize;
		int blocks;

		result = potential_ask(call, function, threads, dynamic_size, &blocks);
		if (result)
			return result;
		if (threads * blocks > best_threads * best_blocks) {
			best_threads = threads;
			best_blocks = blocks;
		}
		if (best_threads * best_blocks >= device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR])
			break;
	}
	*minGridSize = best_blocks * device[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
	*blockSize = best_threads;
	return CUDA_SUCCESS;
}

CUresult do_cuOccupancyMaxPotentialBlockSize(struct call *call, int *minGridSize, int *blockSize, CUfunction func,
					     CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
					     int blockSizeLimit)
{
	return do_cuOccupancyMaxPotentialBlockSizeWithFlags(call, minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
							    dynamicSMemSize, blockSizeLimit, CU_OCCUPANCY_DEFAULT);
}

CUresult do_cuOccupancyAvailableDynamicSMemPerBlock(struct call *call, size_t *dynamicSmemSize, CUfunction func,
						    int numBlocks, int blockSize)
{
	struct msg_cuOccupancyAvailableDynamicSMemPerBlock m = { .numBlocks = numBlocks, .blockSize = blockSize };
	struct ans_cuOccupancyAvailableDynamicSMemPerBlock a;
	struct occupancy_kernel kernel;
	struct function *function;
	int64_t size;
	CUresult result = asked(call, func, &function);

	if (result)
		return result;
	if (!dynamicSmemSize || blockSize < 1 || numBlocks < 1)
		return CUDA_ERROR_INVALID_VALUE;
	kernel = kernel_of_function(function);
	if (occupancy_available(device_of(function), &kernel, numBlocks, blockSize, &size)) {
		if (size < 0)
			return CUDA_ERROR_INVALID_VALUE;
		*dynamicSmemSize = (size_t)size;
		return CUDA_SUCCESS;
	}
	m.func = function->wire;
	result = CALL_ASK(call, cuOccupancyAvailableDynamicSMemPerBlock, &m);
	if (result)
		return result;
	if (!ans_cuOccupancyAvailableDynamicSMemPerBlock_get(&call->r, &a))
		return CUDA_ERROR_UNKNOWN;
	*dynamicSmemSize = (size_t)a.dynamicSmemSize;
	return CUDA_SUCCESS;
}

/* ---- clusters ---- */

static struct {
	pthread_mutex_t lock;
	/* guarded by lock */
	struct {
		struct verdict_key key;
		CUresult result;
		int value;
	} answers[CLUSTER_ANSWERS];
} clusters = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Everything that the answer depends on: the function with its settings, and the configuration. */
static void cluster_key(struct verdict_key *key, const struct function *function, const struct launch *launch, int api)
{
	int32_t values[VERDICT_ATTRIBUTES];

	for (uint32_t i = 0; i < VERDICT_ATTRIBUTES; i++)
		values[i] = function_value(function, (CUfunction_attribute)i);
	memset(key, 0, sizeof(*key));
	answer_key_add(key, &function->wire, sizeof(function->wire));
	answer_key_add(key, &function->context->index, sizeof(function->context->index));
	answer_key_add(key, &function->epoch, sizeof(function->epoch));
	answer_key_add(key, values, sizeof(values));
	answer_key_add(key, launch->grid, sizeof(launch->grid));
	answer_key_add(key, launch->block, sizeof(launch->block));
	answer_key_add(key, &launch->shared_size, sizeof(launch->shared_size));
	answer_key_add(key, launch->attrs, launch->attr_count * sizeof(launch->attrs[0]));
	answer_key_add(key, &api, sizeof(api));
}

static bool cluster_remembered(const struct verdict_key *key, CUresult *result_out, int *value_out)
{
	uint32_t at = (uint32_t)key->hash[0] % CLUSTER_ANSWERS;
	bool found;

	pthread_mutex_lock(&clusters.lock);
	found = !memcmp(&clusters.answers[at].key, key, sizeof(*key));
	if (found) {
		*result_out = clusters.answers[at].result;
		*value_out = clusters.answers[at].value;
	}
	pthread_mutex_unlock(&clusters.lock);
	return found;
}

static void cluster_remember(const struct verdict_key *key, CUresult result, int value)
{
	uint32_t at = (uint32_t)key->hash[0] % CLUSTER_ANSWERS;

	pthread_mutex_lock(&clusters.lock);
	clusters.answers[at].key = *key;
	clusters.answers[at].result = result;
	clusters.answers[at].value = value;
	pthread_mutex_unlock(&clusters.lock);
}

/* Both questions have the same fields on the wire: one is filled as the other. */
static CUresult cluster_ask(struct call *call, const struct function *function, const struct launch *launch, bool active,
			    int *value_out)
{
	struct msg_cuOccupancyMaxActiveClusters m = {
		.func = function->wire,
		.grid_x = launch->grid[0],
		.grid_y = launch->grid[1],
		.grid_z = launch->grid[2],
		.block_x = launch->block[0],
		.block_y = launch->block[1],
		.block_z = launch->block[2],
		.shared_size = launch->shared_size,
		.attrs = launch->attrs,
		.attrs_size = launch->attr_count * (uint32_t)sizeof(launch->attrs[0]),
	};
	struct msg_cuOccupancyMaxPotentialClusterSize n = {
		.func = m.func,
		.grid_x = m.grid_x,
		.grid_y = m.grid_y,
		.grid_z = m.grid_z,
		.block_x = m.block_x,
		.block_y = m.block_y,
		.block_z = m.block_z,
		.shared_size = m.shared_size,
		.attrs = m.attrs,
		.attrs_size = m.attrs_size,
	};
	struct ans_cuOccupancyMaxActiveClusters a;
	struct ans_cuOccupancyMaxPotentialClusterSize b;
	CUresult result;

	if (active)
		result = call_open(call, OP_cuOccupancyMaxActiveClusters, msg_cuOccupancyMaxActiveClusters_size(&m));
	else
		result = call_open(call, OP_cuOccupancyMaxPotentialClusterSize,
				   msg_cuOccupancyMaxPotentialClusterSize_size(&n));
	if (result)
		return result;
	if (active)
		msg_cuOccupancyMaxActiveClusters_put(&call->w, &m);
	else
		msg_cuOccupancyMaxPotentialClusterSize_put(&call->w, &n);
	result = call_wait(call);
	if (result)
		return result;
	if (active ? !ans_cuOccupancyMaxActiveClusters_get(&call->r, &a) :
		     !ans_cuOccupancyMaxPotentialClusterSize_get(&call->r, &b))
		return CUDA_ERROR_UNKNOWN;
	*value_out = active ? a.numClusters : b.clusterSize;
	return CUDA_SUCCESS;
}

static CUresult cluster_question(struct call *call, int *value_out, CUfunction func, const CUlaunchConfig *config,
				 bool active)
{
	/* Not initialised as a whole: only attr_count of the attributes are looked at. */
	struct launch launch;
	struct function *function;
	struct verdict_key key;
	uint64_t stream;
	CUresult result;

	/* A NULL function is a wrong value here, not a wrong handle: measured. */
	if (!value_out || !func || !config)
		return CUDA_ERROR_INVALID_VALUE;
	result = call_stream_named(call, config->hStream, &stream);
	if (!result)
		result = asked(call, func, &function);
	if (result)
		return result;
	memcpy(launch.grid, &config->gridDimX, sizeof(launch.grid));
	memcpy(launch.block, &config->blockDimX, sizeof(launch.block));
	launch.shared_size = config->sharedMemBytes;
	launch.cooperative = false;
	memset(launch.cluster, 0, sizeof(launch.cluster));
	launch.event = launch.event_too = 0;
	launch.attr_count = 0;
	result = launch_attributes(call, &launch, config->attrs, config->numAttrs);
	if (result)
		return result;
	/* The largest that is possible doesn't depend on what is required. */
	if (active && function_cluster(function, launch.attrs, launch.attr_count, &launch.attrs[launch.attr_count]))
		launch.attr_count++;
	call_in(call, function->context);
	cluster_key(&key, function, &launch, active);
	if (cluster_remembered(&key, &result, value_out))
		return result;
	result = cluster_ask(call, function, &launch, active, value_out);
	/* A refusal by value is an answer too, and asked for again just as often. */
	if (!result || result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_CLUSTER_SIZE)
		cluster_remember(&key, result, result ? 0 : *value_out);
	return result;
}

CUresult do_cuOccupancyMaxActiveClusters(struct call *call, int *numClusters, CUfunction func,
					 const CUlaunchConfig *config)
{
	return cluster_question(call, numClusters, func, config, true);
}

CUresult do_cuOccupancyMaxPotentialClusterSize(struct call *call, int *clusterSize, CUfunction func,
					       const CUlaunchConfig *config)
{
	return cluster_question(call, clusterSize, func, config, false);
}
