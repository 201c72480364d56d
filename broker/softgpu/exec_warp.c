/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one warp: which path is next, branches, calls, returns, and waiting within the warp. The pool's threads. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "broker/softgpu/exec.h"

#define SLICE	   4096 /* backward branches and calls: a millisecond or so */
#define SLICE_FAIR 64	/* of a path that runs out of order */
#define COST	   64	/* of what spin loops are made of: they give way after as many rounds */

struct frame_header {
	uint32_t pc[EXEC_LANES];
	uint32_t frame[EXEC_LANES];
	uint32_t stack[EXEC_LANES];
};
_Static_assert(sizeof(struct frame_header) == EXEC_FRAME_HEADER, "the header of a frame");

uint8_t *exec_stack(struct exec_warp *warp, uint32_t lane, uint32_t offset)
{
	const struct exec_block *block = warp->block;

	return block->stacks + (size_t)(warp->id * EXEC_LANES + lane) * block->grid->stack_size + offset;
}

void exec_fault(struct exec_warp *warp, enum ptx_status status, uint32_t lane, uint64_t address, uint32_t size,
		bool write, const char *format, ...)
{
	struct exec_grid *grid = warp->block->grid;
	const struct ptx_module *module = grid->module;
	struct ptx_fault *fault = grid->fault;
	va_list args;

	pthread_mutex_lock(grid->lock);
	if (fault->status == PTX_DONE) {
		fault->status = status;
		fault->kernel = grid->function->name;
		fault->address = address;
		fault->size = size;
		fault->write = write;
		memcpy(fault->ctaid, warp->block->ctaid, sizeof(fault->ctaid));
		for (int i = 0; i < 3; i++)
			fault->tid[i] = warp->tid[i][lane];
		if (warp->pc < module->code_count) {
			fault->line = module->code[warp->pc].line;
			snprintf(fault->instruction, sizeof(fault->instruction), "%.*s",
				 (int)module->code_text_size[warp->pc], module->code_text[warp->pc]);
			for (char *c = fault->instruction; *c; c++)
				if (*c == '\n' || *c == '\t' || *c == '\r')
					*c = ' ';
		}
		va_start(args, format);
		vsnprintf(fault->message, sizeof(fault->message), format, args);
		va_end(args);
	}
	pthread_mutex_unlock(grid->lock);
	atomic_store_explicit(&grid->stop, true, memory_order_relaxed);
	warp->stopped = true;
	warp->stop_pc = 0;
}

/* ---- paths ---- */

static bool same_place(const struct exec_path *a, const struct exec_path *b)
{
	return a->pc == b->pc && a->frame == b->frame && a->stack == b->stack && a->depth == b->depth;
}

static void path_remove(struct exec_warp *warp, uint32_t index)
{
	warp->path_count--;
	if (index != warp->path_count)
		warp->paths[index] = warp->paths[warp->path_count];
}

/* There is always room: each path has a lane of its own. */
static struct exec_path *path_fork(struct exec_warp *warp, const struct exec_path *from, uint32_t mask)
{
	struct exec_path *path = &warp->paths[warp->path_count++];

	*path = *from;
	path->mask = mask;
	path->state = PATH_RUN;
	return path;
}

/* Barriers that have been passed. */
static void wake(struct exec_warp *warp)
{
	struct exec_block *block = warp->block;

	for (uint32_t i = 0; i < warp->path_count; i++) {
		struct exec_path *path = &warp->paths[i];

		if (path->state != PATH_BARRIER || block->barriers[path->barrier].phase == path->phase)
			continue;
		path->state = PATH_RUN;
		warp->base[0] = warp->registers + path->frame;
		exec_barrier_wake(warp, &warp->code[path->pc - 1], path);
	}
}

/* Joins runnable paths at the same place, then picks one. False: all wait. */
static bool choose(struct exec_warp *warp)
{
	struct exec_path *best = NULL;
	struct exec_path *path;
	uint32_t stop = UINT32_MAX;

	wake(warp);
	for (uint32_t i = 0; i < warp->path_count; i++) {
		if (warp->paths[i].state != PATH_RUN)
			continue;
		for (uint32_t j = i + 1; j < warp->path_count;) {
			if (warp->paths[j].state == PATH_RUN && same_place(&warp->paths[i], &warp->paths[j])) {
				warp->paths[i].mask |= warp->paths[j].mask;
				path_remove(warp, j);
			} else {
				j++;
			}
		}
	}
	for (uint32_t i = 0; i < warp->path_count; i++) {
		path = &warp->paths[i];
		if (path->state != PATH_RUN)
			continue;
		if (!best)
			best = path;
		else if (warp->fair ? path->turn < best->turn
				    : path->depth > best->depth || (path->depth == best->depth && path->pc < best->pc))
			best = path;
	}
	if (!best)
		return false;
	/* Stop where another path of this depth stands: below it in the text, or at its place. */
	for (uint32_t i = 0; i < warp->path_count && !warp->fair; i++) {
		path = &warp->paths[i];
		if (path != best && path->state == PATH_RUN && path->depth == best->depth && path->pc < stop)
			stop = path->pc;
	}
	best->turn = ++warp->turn;
	warp->current = (uint32_t)(best - warp->paths);
	warp->stop_pc = stop;
	warp->mask = best->mask;
	warp->base[0] = warp->registers + best->frame;
	warp->stack = best->stack;
	return true;
}

/* ---- control ---- */

static void branch_table(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const uint32_t *table = warp->block->grid->module->tables[insn->target];
	const uint32_t *index = SRC(0, uint32_t);
	struct exec_path *path = &warp->paths[warp->current];
	uint32_t left = mask;
	uint32_t rest = path->mask & ~mask;

	FOR_LANES(lane, mask)
	{
		if (index[lane] >= table[0]) {
			exec_fault(warp, PTX_FAULT_PC, lane, index[lane], 0, false, "brx to target %u of %u", index[lane],
				   table[0]);
			return;
		}
	}
	if (rest) {
		path_fork(warp, path, rest)->pc = path->pc + 1;
		path->mask = mask;
	}
	while (left) {
		uint32_t first = index[__builtin_ctz(left)];
		uint32_t group = 0;

		FOR_LANES(lane, left)
			group |= (uint32_t)(index[lane] == first) << lane;
		left &= ~group;
		if (left) {
			path_fork(warp, path, group)->pc = table[1 + first];
			path->mask &= ~group;
		} else {
			path->pc = table[1 + first];
		}
	}
}

/* The lanes of @mask, all of the path's, enter the function. */
static bool enter(struct exec_warp *warp, struct exec_path *path, const struct exec_call *call,
		  const struct ptx_function *callee, uint32_t mask)
{
	uint32_t frame = path->frame + call->caller->frame_size;
	uint32_t stack = path->stack + call->caller->local_size;
	struct frame_header *header;

	if (frame > warp->registers_size || callee->frame_size > warp->registers_size - frame ||
	    stack > warp->block->grid->stack_size || callee->local_size > warp->block->grid->stack_size - stack ||
	    call->param_bytes > callee->local_size) {
		exec_fault(warp, call->param_bytes > callee->local_size ? PTX_FAULT_PC : PTX_FAULT_STACK,
			   (uint32_t)__builtin_ctz(mask), 0, 0, false, "no room to call %s", callee->name);
		return false;
	}
	header = (struct frame_header *)(warp->registers + frame);
	FOR_LANES(lane, mask)
	{
		header->pc[lane] = path->pc + 1;
		header->frame[lane] = path->frame;
		header->stack[lane] = path->stack;
		for (uint32_t i = 0; i < call->arg_count; i++)
			memcpy(exec_stack(warp, lane, stack + call->args[i].callee),
			       exec_stack(warp, lane, path->stack + call->args[i].caller), call->args[i].size);
	}
	path->pc = callee->pc;
	path->frame = frame;
	path->stack = stack;
	path->depth++;
	return true;
}

static void call(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const struct ptx_module *module = warp->block->grid->module;
	const struct exec_call *target = module->calls[insn->target];
	struct exec_path *path = &warp->paths[warp->current];
	uint32_t rest = path->mask & ~mask;

	if (rest) {
		path_fork(warp, path, rest)->pc = path->pc + 1;
		path->mask = mask;
	}
	if (target->function) {
		enter(warp, path, target, target->function, mask);
		return;
	}
	while (mask) {
		const uint64_t *address = SRC(0, uint64_t);
		uint64_t first = address[__builtin_ctz(mask)];
		uint64_t index = (first - ptx_functions_at()) / 16 - 1;
		uint32_t group = 0;
		struct exec_path *one = path;

		FOR_LANES(lane, mask)
			group |= (uint32_t)(address[lane] == first) << lane;
		if (first <= ptx_functions_at() || first % 16 || index >= module->function_count ||
		    module->function_table[index]->is_entry) {
			exec_fault(warp, PTX_FAULT_PC, (uint32_t)__builtin_ctz(group), first, 0, false,
				   "a call to 0x%llx, which is no function", (unsigned long long)first);
			return;
		}
		mask &= ~group;
		if (mask) {
			one = path_fork(warp, path, group);
			path->mask &= ~group;
		}
		if (!enter(warp, one, target, module->function_table[index], group))
			return;
	}
}

static void call_return(struct exec_warp *warp, uint32_t mask)
{
	struct exec_path *path = &warp->paths[warp->current];
	const struct frame_header *header = (const struct frame_header *)(warp->registers + path->frame);
	uint32_t rest = path->mask & ~mask;

	if (rest) {
		path_fork(warp, path, rest)->pc = path->pc + 1;
		path->mask = mask;
	}
	while (mask) {
		uint32_t first = (uint32_t)__builtin_ctz(mask);
		struct exec_path *one = path;
		uint32_t group = 0;

		FOR_LANES(lane, mask)
			group |= (uint32_t)(header->pc[lane] == header->pc[first] &&
					    header->frame[lane] == header->frame[first] &&
					    header->stack[lane] == header->stack[first])
				 << lane;
		mask &= ~group;
		if (mask) {
			one = path_fork(warp, path, group);
			path->mask &= ~group;
		}
		one->pc = header->pc[first];
		one->frame = header->frame[first];
		one->stack = header->stack[first];
		one->depth--;
	}
}

static void lanes_exit(struct exec_warp *warp, uint32_t mask)
{
	struct exec_block *block = warp->block;
	struct exec_path *path = &warp->paths[warp->current];

	warp->exited |= mask;
	block->live -= (uint32_t)__builtin_popcount(mask);
	path->mask &= ~mask;
	if (path->mask)
		path->pc++;
	else
		path_remove(warp, warp->current);
	/* what waited for these lanes looks again */
	for (uint32_t i = 0; i < warp->path_count; i++)
		if (warp->paths[i].state == PATH_SYNC)
			warp->paths[i].state = PATH_RUN;
	exec_barrier_settle(block);
}

/*
 * A warp-wide instruction with a member mask. True: all are here, and now in the current path, whose active lanes
 * are *mask_out. False: this path waits. sub[3] set: lanes may wait at different instructions of this sort.
 */
static bool sync_lanes(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask, uint32_t *mask_out)
{
	struct exec_path *path = &warp->paths[warp->current];
	uint32_t members = SRC(3, uint32_t)[__builtin_ctz(mask)];
	uint32_t here = mask;
	uint32_t needed = members & warp->lanes & ~warp->exited;
	uint32_t rest;

	if ((needed & ~here) == 0) {
		*mask_out = mask;
		return true;
	}
	for (uint32_t i = 0; i < warp->path_count; i++) {
		struct exec_path *other = &warp->paths[i];

		if (i != warp->current && other->state == PATH_SYNC &&
		    (same_place(path, other) || (insn->sub[3] && warp->code[other->pc].kind == EXEC_SYNC &&
						 warp->code[other->pc].sub[3])))
			here |= other->mask;
	}
	if (needed & ~here) {
		rest = path->mask & ~mask;
		if (rest) {
			path_fork(warp, path, rest)->pc = path->pc + 1;
			path->mask = mask;
		}
		path->state = PATH_SYNC;
		return false;
	}
	for (uint32_t i = 0; i < warp->path_count; i++) {
		struct exec_path *other = &warp->paths[i];

		if (i == warp->current || other->state != PATH_SYNC || !(other->mask & needed))
			continue;
		if (same_place(path, other)) {
			mask |= other->mask;
			path->mask |= other->mask;
			other->mask = 0;
		} else if (insn->sub[3] && warp->code[other->pc].kind == EXEC_SYNC && warp->code[other->pc].sub[3]) {
			other->state = PATH_RUN;
			other->pc++;
		}
	}
	for (uint32_t i = warp->path_count; i-- > 0;) {
		if (warp->paths[i].mask)
			continue;
		if (warp->current == warp->path_count - 1)
			warp->current = i; /* the current path moves into the hole */
		path_remove(warp, i);
	}
	warp->mask = warp->paths[warp->current].mask;
	*mask_out = mask;
	return true;
}

static void barrier(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	struct exec_path *path = &warp->paths[warp->current];
	uint32_t rest = path->mask & ~mask;
	uint8_t id;
	uint32_t phase;

	if (rest) {
		path_fork(warp, path, rest)->pc = path->pc + 1;
		path->mask = mask;
	}
	path->pc++;
	if (exec_barrier_arrive(warp, insn, mask, &id, &phase)) {
		path->state = PATH_BARRIER;
		path->barrier = id;
		path->phase = phase;
	}
}

void exec_warp_start(struct exec_warp *warp)
{
	struct exec_path *path = &warp->paths[0];

	warp->path_count = 1;
	warp->current = 0;
	warp->exited = 0;
	warp->cc = 0;
	warp->turn = 0;
	warp->fair = false;
	warp->stopped = false;
	memset(path, 0, sizeof(*path));
	path->mask = warp->lanes;
	path->pc = warp->block->grid->function->pc;
	path->state = PATH_RUN;
}

/* Runs the chosen path until it stops, waits or has used up the budget. */
static void run_path(struct exec_warp *warp)
{
	const struct exec_insn *code = warp->code;
	uint32_t pc = warp->paths[warp->current].pc;
	uint32_t full = warp->mask;

	for (;;) {
		const struct exec_insn *insn = &code[pc];
		uint32_t mask = full;

		if (insn->guard_mode) {
			uint32_t predicate = *(const uint32_t *)exec_slot(warp, insn->guard);

			mask &= insn->guard_mode == 1 ? predicate : ~predicate;
		}
		warp->pc = pc;
		if (__builtin_expect(insn->kind == EXEC_ALU, 1)) {
			if (mask)
				insn->fn(warp, insn, mask);
			if (++pc >= warp->stop_pc)
				break;
			continue;
		}
		if (!mask) {
			if (++pc >= warp->stop_pc)
				break;
			continue;
		}
		switch (insn->kind) {
		case EXEC_BRANCH:
			if (insn->target <= pc)
				warp->budget--;
			if (mask == full) {
				pc = insn->target;
				if (pc < warp->stop_pc && warp->budget > 0)
					continue;
				break;
			}
			warp->paths[warp->current].pc = pc;
			warp->paths[warp->current].mask = full & ~mask;
			path_fork(warp, &warp->paths[warp->current], mask)->pc = insn->target;
			pc++;
			break;
		case EXEC_COSTLY:
			insn->fn(warp, insn, mask);
			warp->budget -= COST;
			warp->spinning = true;
			if (++pc < warp->stop_pc && warp->budget > 0)
				continue;
			break;
		case EXEC_YIELD:
			insn->fn(warp, insn, mask);
			warp->budget = 0;
			warp->spinning = true;
			pc++;
			break;
		case EXEC_SYNC:
			warp->paths[warp->current].pc = pc;
			if (!sync_lanes(warp, insn, mask, &mask))
				return;
			insn->fn(warp, insn, mask);
			warp->paths[warp->current].pc = pc + 1;
			if (warp->path_count == 1 && pc + 1 < warp->stop_pc) {
				full = warp->mask;
				pc++;
				continue;
			}
			return;
		default:
			warp->paths[warp->current].pc = pc;
			warp->budget--;
			if (insn->kind == EXEC_BRANCH_TABLE)
				branch_table(warp, insn, mask);
			else if (insn->kind == EXEC_CALL || insn->kind == EXEC_CALL_INDIRECT)
				call(warp, insn, mask);
			else if (insn->kind == EXEC_RETURN)
				call_return(warp, mask);
			else if (insn->kind == EXEC_EXIT)
				lanes_exit(warp, mask);
			else
				barrier(warp, insn, mask);
			return;
		}
		break;
	}
	warp->paths[warp->current].pc = pc;
}

enum exec_outcome exec_warp_run(struct exec_warp *warp)
{
	warp->budget = warp->fair ? SLICE_FAIR : SLICE;
	warp->spinning = false;
	warp->ran = false;
	while (warp->path_count) {
		if (!choose(warp))
			return WARP_WAITS;
		warp->ran = true;
		run_path(warp);
		if (warp->stopped)
			return WARP_DONE;
		if (warp->budget <= 0) {
			/* one turn out of order for the path that has waited longest, then as before */
			warp->fair = !warp->fair && warp->path_count > 1;
			return WARP_SLICE;
		}
	}
	return WARP_DONE;
}
