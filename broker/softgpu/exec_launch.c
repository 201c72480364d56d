/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches: blocks are made, run in slices by the pool's threads, put aside and freed.
 *
 * A block that has used up its slice is put aside; the next step starts a new block while few are resident, else
 * takes the oldest one up again. So blocks that wait for each other get on as long as the waiting ones fit, as on a
 * device. A cooperative grid is resident as a whole.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "broker/softgpu/exec.h"

#define SLICE_NS	    5000000	   /* other launches wait at most this long times the blocks before them */
#define SPINS_MAX	    16		   /* rounds of nothing but atomics: a histogram, or waiting for another block */
#define RESIDENT_MEMORY_MAX (1ull << 30)   /* of blocks that are aside */
#define RESIDENT_MAX	    256		   /* of an ordinary grid: more than a device would hold of large blocks */
#define COOPERATIVE_MAX	    4096	   /* blocks of a cooperative grid */
#define RECURSION_FRAMES    (1u << 20)	   /* bytes of registers for calls whose depth can't be known */
#define GRID_WORKSPACE_SIZE 4096

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Fresh zero pages, so that what is never touched costs nothing. */
static void *pages_new(size_t size)
{
	void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return pages == MAP_FAILED ? NULL : pages;
}

static size_t stacks_size(const struct exec_grid *grid)
{
	return (size_t)grid->warps * EXEC_LANES * grid->stack_size;
}

static void block_free(struct exec_grid *grid, struct exec_block *block)
{
	if (!block)
		return;
	if (block->stacks && stacks_size(grid))
		munmap(block->stacks, stacks_size(grid));
	if (block->registers)
		munmap(block->registers, block->registers_size);
	if (block->warps)
		for (uint32_t i = 0; i < grid->warps; i++)
			free(block->warps[i]);
	free(block->warps);
	free(block->shared);
	free(block);
}

static struct exec_block *block_new(struct exec_grid *grid)
{
	struct exec_block *block = calloc(1, sizeof(*block));
	const uint32_t *dims = grid->launch->block;

	if (!block)
		return NULL;
	block->grid = grid;
	block->warp_count = grid->warps;
	block->registers_size = (size_t)grid->registers_size * grid->warps;
	block->registers = pages_new(block->registers_size);
	block->stacks = stacks_size(grid) ? pages_new(stacks_size(grid)) : NULL;
	block->shared_size = grid->shared_size;
	block->shared = aligned_alloc(1024, ((size_t)grid->shared_size + 1024) & ~(size_t)1023);
	block->warps = calloc(grid->warps, sizeof(*block->warps));
	if (!block->registers || (!block->stacks && stacks_size(grid)) || !block->shared || !block->warps)
		goto fail;
	for (uint32_t i = 0; i < grid->warps; i++) {
		struct exec_warp *warp = calloc(1, sizeof(*warp));

		if (!warp)
			goto fail;
		block->warps[i] = warp;
		warp->registers = block->registers + (size_t)i * grid->registers_size;
		warp->registers_size = grid->registers_size;
		warp->base[0] = warp->registers;
		warp->base[1] = grid->module->consts;
		warp->code = grid->module->code;
		warp->block = block;
		warp->id = i;
		/* the same in every block: divisions would be most of what a small block costs */
		for (uint32_t lane = 0; lane < EXEC_LANES; lane++) {
			uint32_t thread = i * EXEC_LANES + lane;

			warp->tid[0][lane] = thread % dims[0];
			warp->tid[1][lane] = thread / dims[0] % dims[1];
			warp->tid[2][lane] = thread / dims[0] / dims[1];
		}
	}
	return block;
fail:
	block_free(grid, block);
	return NULL;
}

static void block_start(struct exec_block *block, uint64_t index)
{
	const struct exec_grid *grid = block->grid;
	const struct ptx_launch *launch = grid->launch;

	block->index = index;
	block->ctaid[0] = (uint32_t)(index % launch->grid[0]);
	block->ctaid[1] = (uint32_t)(index / launch->grid[0] % launch->grid[1]);
	block->ctaid[2] = (uint32_t)(index / launch->grid[0] / launch->grid[1]);
	block->threads = grid->threads;
	block->live = grid->threads;
	memset(block->barriers, 0, sizeof(block->barriers));
	memset(block->shared, 0, block->shared_size);
	for (uint32_t i = 0; i < grid->warps; i++) {
		struct exec_warp *warp = block->warps[i];
		uint32_t lanes = grid->threads - i * EXEC_LANES;

		warp->lanes = lanes >= EXEC_LANES ? EXEC_FULL : (1u << lanes) - 1;
		exec_warp_start(warp);
	}
}

static bool aborted(const struct exec_grid *grid)
{
	const struct ptx_launch *launch = grid->launch;

	return atomic_load_explicit(&grid->stop, memory_order_relaxed) ||
	       (launch->abort && atomic_load_explicit(launch->abort, memory_order_relaxed));
}

enum exec_block_outcome exec_block_run(struct exec_block *block, struct exec_thread *thread)
{
	uint64_t end = now_ns() + SLICE_NS;
	uint32_t spins = block->grid->launch->cooperative ? 1 : SPINS_MAX;

	for (;;) {
		struct exec_warp *waiting = NULL;
		bool progress = false;
		bool spinning = true;

		for (uint32_t i = 0; i < block->warp_count; i++) {
			struct exec_warp *warp = block->warps[i];
			enum exec_outcome outcome;

			if (!warp->path_count)
				continue;
			warp->thread = thread;
			outcome = exec_warp_run(warp);
			if (warp->stopped)
				return BLOCK_CUT;
			progress |= warp->ran;
			spinning &= !warp->ran || (outcome == WARP_SLICE && warp->spinning);
			if (outcome != WARP_DONE)
				waiting = warp;
		}
		if (!waiting)
			return BLOCK_ENDED;
		if (aborted(block->grid))
			return BLOCK_CUT;
		if (!progress) {
			/* a device would hang here until its watchdog came */
			waiting->pc = waiting->paths[0].pc - (waiting->paths[0].state == PATH_BARRIER);
			exec_fault(waiting, PTX_FAULT_DEADLOCK, (uint32_t)__builtin_ctz(waiting->paths[0].mask), 0, 0,
				   false, "all threads of the block wait for others");
			return BLOCK_CUT;
		}
		if ((spinning && !--spins) || now_ns() > end)
			return BLOCK_ASIDE;
	}
}

/* ---- the grid's job ---- */

static void record(struct exec_grid *grid, enum ptx_status status)
{
	pthread_mutex_lock(grid->lock);
	if (grid->fault->status == PTX_DONE) {
		grid->fault->status = status;
		grid->fault->kernel = grid->function->name;
	}
	pthread_mutex_unlock(grid->lock);
	atomic_store_explicit(&grid->stop, true, memory_order_relaxed);
}

static struct exec_block *take_block(struct exec_grid *grid)
{
	struct exec_block *block = NULL;
	uint64_t index;
	bool whole = grid->launch->cooperative;

	pthread_mutex_lock(grid->lock);
	if (aborted(grid)) {
		grid->cut |= grid->next_block < grid->block_count;
		grid->next_block = grid->block_count;
		block = grid->parked;
		if (block) {
			grid->parked = block->next;
			if (!grid->parked)
				grid->parked_tail = &grid->parked;
		}
		pthread_mutex_unlock(grid->lock);
		return block;
	}
	if (grid->next_block < grid->block_count && (whole || !grid->parked || grid->resident < RESIDENT_MAX)) {
		size_t each = (size_t)grid->registers_size * grid->warps + stacks_size(grid) + grid->shared_size;

		if (whole || !grid->parked || (grid->resident + 1) * each < RESIDENT_MEMORY_MAX) {
			index = grid->next_block++;
			grid->resident++;
			block = grid->free;
			if (block)
				grid->free = block->next;
			pthread_mutex_unlock(grid->lock);
			if (!block)
				block = block_new(grid);
			if (!block) {
				record(grid, PTX_NO_MEMORY);
				return NULL;
			}
			block_start(block, index);
			return block;
		}
	}
	block = grid->parked;
	if (block) {
		grid->parked = block->next;
		if (!grid->parked)
			grid->parked_tail = &grid->parked;
	}
	pthread_mutex_unlock(grid->lock);
	return block;
}

static bool grid_step(struct exec_job *job)
{
	struct exec_grid *grid = (struct exec_grid *)((char *)job - offsetof(struct exec_grid, job));
	struct exec_thread thread = { .generation = UINT64_MAX };
	uint64_t end = now_ns() + SLICE_NS;
	struct exec_block *block;

	do {
		enum exec_block_outcome outcome;

		block = take_block(grid);
		if (!block)
			return false;
		outcome = aborted(grid) ? BLOCK_CUT : exec_block_run(block, &thread);
		pthread_mutex_lock(grid->lock);
		if (outcome != BLOCK_ASIDE) {
			grid->cut |= outcome == BLOCK_CUT;
			block->next = grid->free;
			grid->free = block;
			grid->resident--;
		} else {
			block->next = NULL;
			*grid->parked_tail = block;
			grid->parked_tail = &block->next;
		}
		pthread_mutex_unlock(grid->lock);
	} while (now_ns() < end);
	return true;
}

static void free_blocks(struct exec_grid *grid, struct exec_block *block)
{
	struct exec_block *next;

	for (; block; block = next) {
		next = block->next;
		block_free(grid, block);
	}
}

static uint32_t round_up(uint32_t value, uint32_t align)
{
	return (value + align - 1) / align * align;
}

static enum ptx_status grid_init(struct exec_grid *grid, const struct ptx_launch *launch)
{
	const struct ptx_function *function = launch->module->entries[launch->entry->index];
	uint32_t dynamic_align = function->dynamic_align ? function->dynamic_align : 16;

	grid->launch = launch;
	grid->module = launch->module;
	grid->function = function;
	grid->threads = launch->block[0] * launch->block[1] * launch->block[2];
	grid->warps = (grid->threads + EXEC_LANES - 1) / EXEC_LANES;
	grid->block_count = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
	grid->stack_size = launch->stack_size > function->stack_deep + 1024 ? launch->stack_size : function->stack_deep + 1024;
	if (!function->stack_deep && !function->calls_indirect)
		grid->stack_size = 0;
	grid->stack_size = round_up(grid->stack_size, 64);
	grid->dynamic_offset = round_up(launch->entry->shared_static, dynamic_align < 16 ? 16 : dynamic_align);
	grid->shared_size = launch->shared_dynamic ? grid->dynamic_offset + launch->shared_dynamic : launch->entry->shared_static;
	grid->registers_size = round_up(function->frame_deep + (function->calls_indirect ? RECURSION_FRAMES : 0), 4096);
	grid->parked_tail = &grid->parked;
	grid->job.step = grid_step;
	grid->params = calloc(1, launch->entry->param_size + 1);
	if (!grid->params)
		return PTX_NO_MEMORY;
	memcpy(grid->params, launch->params,
	       launch->params_size < launch->entry->param_size ? launch->params_size : launch->entry->param_size);
	if (launch->cooperative) {
		if (grid->block_count > COOPERATIVE_MAX)
			return PTX_NO_MEMORY;
		grid->workspace = aligned_alloc(64, GRID_WORKSPACE_SIZE);
		if (!grid->workspace)
			return PTX_NO_MEMORY;
		memset(grid->workspace, 0, GRID_WORKSPACE_SIZE);
		*(uint32_t *)grid->workspace = GRID_WORKSPACE_SIZE;
		grid->internal.base = (uintptr_t)grid->workspace;
		grid->internal.end = grid->internal.base + GRID_WORKSPACE_SIZE;
	}
	return PTX_DONE;
}

enum ptx_status ptx_launch(const struct ptx_launch *launch, struct ptx_fault *fault)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct exec_grid grid = { .fault = fault, .lock = &lock };
	enum ptx_status status;

	memset(fault, 0, sizeof(*fault));
	assert(launch->module->bound);
	status = grid_init(&grid, launch);
	if (status == PTX_DONE && grid.function->clusters && launch->cluster[0] * launch->cluster[1] * launch->cluster[2] > 1) {
		status = PTX_FAULT_INSTRUCTION;
		snprintf(fault->message, sizeof(fault->message), "barriers of clusters of several blocks are not there");
	}
	if (status != PTX_DONE) {
		fault->status = status;
		fault->kernel = launch->entry->name;
	} else if (grid.block_count && grid.threads) {
		exec_pool_submit(launch->pool, &grid.job);
		exec_pool_wait(launch->pool, &grid.job);
		if (fault->status == PTX_DONE && grid.cut)
			record(&grid, PTX_ABORTED);
	}
	free_blocks(&grid, grid.free);
	free_blocks(&grid, grid.parked);
	free(grid.params);
	free(grid.workspace);
	pthread_mutex_destroy(&lock);
	return fault->status;
}

uint32_t ptx_cooperative_blocks_max(const struct ptx_entry *entry, uint32_t threads, uint32_t shared_dynamic)
{
	uint64_t each = (uint64_t)(entry->local_size + 1024) * threads + entry->shared_static + shared_dynamic + 65536;
	uint64_t count = 4 * RESIDENT_MEMORY_MAX / each;

	return count > COOPERATIVE_MAX ? COOPERATIVE_MAX : (uint32_t)count;
}

const char *ptx_status_name(enum ptx_status status)
{
	static const char *const names[] = {
		[PTX_DONE] = "done",
		[PTX_FAULT_ADDRESS] = "illegal address",
		[PTX_FAULT_MISALIGNED] = "misaligned address",
		[PTX_FAULT_SPACE] = "invalid address space",
		[PTX_FAULT_PC] = "invalid program counter",
		[PTX_FAULT_INSTRUCTION] = "illegal instruction",
		[PTX_FAULT_TRAP] = "trap",
		[PTX_FAULT_ASSERT] = "assertion failed",
		[PTX_FAULT_STACK] = "stack overflow",
		[PTX_FAULT_DEADLOCK] = "deadlock",
		[PTX_ABORTED] = "aborted",
		[PTX_NO_MEMORY] = "no memory",
	};

	return (unsigned int)status < sizeof(names) / sizeof(*names) ? names[status] : "unknown";
}
