// SPDX-License-Identifier: Apache-2.0
/*
 * How many blocks fit: the arithmetic of a multiprocessor with a warp granularity of 4 and registers in units of
 * 256 a warp. Any thread.
 */
#include "broker/softgpu/soft_launch.h"

#define REG_UNIT 256u
#define WARP_UNIT 4u
#define SHARED_UNIT 128u
/* Multiprocessors of a processing cluster, as far as a cluster may spread. */
#define SM_PER_GPC 16u

static uint32_t round_up(uint64_t value, uint32_t unit)
{
	return (uint32_t)((value + unit - 1) / unit * unit);
}

unsigned int soft_blocks_per_sm(const struct soft_function *function, uint32_t threads, uint64_t shared_dynamic)
{
	const struct ptx_entry *entry = function->entry;
	uint32_t warps = (threads + SOFT_WARP_SIZE - 1) / SOFT_WARP_SIZE;
	uint64_t shared = shared_dynamic + entry->shared_static + SOFT_SHARED_RESERVED;
	uint32_t regs = round_up((uint64_t)MAX(entry->regs, 1) * SOFT_WARP_SIZE, REG_UNIT);
	unsigned int blocks = SOFT_BLOCKS_PER_SM;

	if (!warps || shared > SOFT_SHARED_PER_SM)
		return 0;
	blocks = MIN(blocks, SOFT_THREADS_PER_SM / SOFT_WARP_SIZE / warps);
	blocks = MIN(blocks, SOFT_REGS_PER_SM / regs / round_up(warps, WARP_UNIT));
	blocks = MIN(blocks, SOFT_SHARED_PER_SM / round_up(shared, SHARED_UNIT));
	return blocks;
}

static CUresult function_arg(CUfunction handle, struct soft_function **function_out)
{
	SOFT_ENTER(context);
	return soft_function_find(handle, context, function_out);
}

static bool block_valid(const struct soft_function *function, int block, size_t dynamic)
{
	return block > 0 && (unsigned int)block <= SOFT_THREADS_PER_BLOCK &&
	       dynamic <= SOFT_SHARED_OPTIN - MIN(function->entry->shared_static, SOFT_SHARED_OPTIN);
}

SOFT_API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *blocks, CUfunction handle, int block,
	 size_t dynamic, unsigned int flags)
{
	SOFT_HELD struct soft_function *function = NULL;

	TRY(function_arg(handle, &function));
	if (!blocks || block <= 0 || flags > 1)
		return CUDA_ERROR_INVALID_VALUE;
	*blocks = block_valid(function, block, dynamic) ? (int)soft_blocks_per_sm(function, (uint32_t)block, dynamic) : 0;
	return CUDA_SUCCESS;
}

SOFT_API(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *blocks, CUfunction function, int block, size_t dynamic)
{
	return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block, dynamic, 0);
}

SOFT_API(cuOccupancyMaxPotentialBlockSizeWithFlags, int *grid, int *block, CUfunction handle, CUoccupancyB2DSize dynamic_of,
	 size_t dynamic, int limit, unsigned int flags)
{
	SOFT_HELD struct soft_function *function = NULL;
	unsigned int best_threads = 0, best_blocks = 0;
	int most;

	TRY(function_arg(handle, &function));
	if (!grid || !block || flags > 1)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_settings_get(function->settings, function->entry, function->module->ptx,
			      function->object.owner->device, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &most));
	if (limit > 0)
		most = MIN(most, limit);
	/* From large to small: of equal occupancies the larger block is taken. */
	for (int threads = most; threads > 0; threads = (threads - 1) / (int)SOFT_WARP_SIZE * (int)SOFT_WARP_SIZE) {
		size_t bytes = dynamic_of ? dynamic_of(threads) : dynamic;
		unsigned int blocks = block_valid(function, threads, bytes)
					      ? soft_blocks_per_sm(function, (uint32_t)threads, bytes)
					      : 0;

		if (blocks * (unsigned int)threads > best_blocks * best_threads) {
			best_blocks = blocks;
			best_threads = (unsigned int)threads;
		}
	}
	*block = (int)best_threads;
	*grid = (int)(best_blocks * SOFT_SM_COUNT);
	return CUDA_SUCCESS;
}

SOFT_API(cuOccupancyMaxPotentialBlockSize, int *grid, int *block, CUfunction function, CUoccupancyB2DSize dynamic_of,
	 size_t dynamic, int limit)
{
	return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, dynamic_of, dynamic, limit, 0);
}

SOFT_API(cuOccupancyAvailableDynamicSMemPerBlock, size_t *bytes, CUfunction handle, int blocks, int block)
{
	SOFT_HELD struct soft_function *function = NULL;
	uint32_t each, used;

	TRY(function_arg(handle, &function));
	if (!bytes || blocks <= 0 || block <= 0 || (unsigned int)block > SOFT_THREADS_PER_BLOCK)
		return CUDA_ERROR_INVALID_VALUE;
	if ((unsigned int)blocks > soft_blocks_per_sm(function, (uint32_t)block, 0))
		return CUDA_ERROR_INVALID_VALUE;
	each = SOFT_SHARED_PER_SM / (uint32_t)blocks / SHARED_UNIT * SHARED_UNIT;
	used = function->entry->shared_static + SOFT_SHARED_RESERVED;
	*bytes = MIN(each, SOFT_SHARED_PER_SM) - MIN(used, each);
	return CUDA_SUCCESS;
}

/* Blocks of a cluster that @config asks for; 1 where it asks for none. */
static uint32_t cluster_size(const CUlaunchConfig *config, const struct soft_function *function)
{
	uint32_t size = 1;

	for (unsigned int i = 0; i < config->numAttrs && config->attrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			return config->attrs[i].value.clusterDim.x * config->attrs[i].value.clusterDim.y *
			       config->attrs[i].value.clusterDim.z;
	for (unsigned int i = 0; i < 3; i++)
		size *= MAX((uint32_t)atomic_load(&function->settings->cluster[i]), 1);
	return size;
}

static unsigned int config_blocks(const CUlaunchConfig *config, const struct soft_function *function)
{
	uint64_t threads = (uint64_t)config->blockDimX * config->blockDimY * config->blockDimZ;

	if (!threads || threads > SOFT_THREADS_PER_BLOCK || !block_valid(function, (int)threads, config->sharedMemBytes))
		return 0;
	return soft_blocks_per_sm(function, (uint32_t)threads, config->sharedMemBytes);
}

SOFT_API(cuOccupancyMaxActiveClusters, int *clusters, CUfunction handle, const CUlaunchConfig *config)
{
	SOFT_HELD struct soft_function *function = NULL;
	uint32_t size;

	TRY(function_arg(handle, &function));
	if (!clusters || !config)
		return CUDA_ERROR_INVALID_VALUE;
	size = cluster_size(config, function);
	if (!size || size > 16)
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	/* A cluster lies within one group of multiprocessors. */
	*clusters = (int)(SM_PER_GPC * config_blocks(config, function) / size * (SOFT_SM_COUNT / SM_PER_GPC));
	return CUDA_SUCCESS;
}

SOFT_API(cuOccupancyMaxPotentialClusterSize, int *size, CUfunction handle, const CUlaunchConfig *config)
{
	SOFT_HELD struct soft_function *function = NULL;

	TRY(function_arg(handle, &function));
	if (!size || !config)
		return CUDA_ERROR_INVALID_VALUE;
	if (!config_blocks(config, function))
		return CUDA_ERROR_INVALID_VALUE;
	*size = atomic_load(&function->settings->nonportable) ? 16 : 8;
	return CUDA_SUCCESS;
}
