/* SPDX-License-Identifier: Apache-2.0 */
/* The 16 named barriers of a block. Only the thread that runs the block comes here. */
#include <string.h>

#include "broker/softgpu/exec.h"

static uint32_t expected(const struct exec_block *block, const struct exec_barrier *barrier)
{
	return barrier->expected ? barrier->expected : block->live;
}

static void complete(struct exec_barrier *barrier)
{
	barrier->result_count = barrier->count;
	barrier->result_arrived = barrier->arrived;
	barrier->arrived = 0;
	barrier->count = 0;
	barrier->expected = 0;
	barrier->phase++;
}

void exec_barrier_settle(struct exec_block *block)
{
	for (int i = 0; i < EXEC_BARRIERS; i++) {
		struct exec_barrier *barrier = &block->barriers[i];

		if (barrier->arrived && barrier->arrived >= expected(block, barrier))
			complete(barrier);
	}
}

/* src[0] is the barrier's number, src[1] the number of threads (sub[1] set), src[2] the predicate. */
bool exec_barrier_arrive(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask, uint8_t *id_out,
			 uint32_t *phase_out)
{
	struct exec_block *block = warp->block;
	uint32_t first = (uint32_t)__builtin_ctz(mask);
	uint32_t id = SRC(0, uint32_t)[first];
	struct exec_barrier *barrier;

	if (id >= EXEC_BARRIERS) {
		exec_fault(warp, PTX_FAULT_INSTRUCTION, first, id, 0, false, "barrier %u of %u", id, EXEC_BARRIERS);
		return false;
	}
	barrier = &block->barriers[id];
	*id_out = (uint8_t)id;
	*phase_out = barrier->phase;
	if (insn->sub[1])
		barrier->expected = SRC(1, uint32_t)[first];
	if (insn->sub[0] >= BAR_POPC)
		barrier->count += (uint32_t)__builtin_popcount(*SRC(2, uint32_t) & mask);
	barrier->arrived += (uint32_t)__builtin_popcount(mask);
	if (barrier->arrived >= expected(block, barrier))
		complete(barrier);
	return insn->sub[0] != BAR_ARRIVE;
}

void exec_barrier_wake(struct exec_warp *warp, const struct exec_insn *insn, const struct exec_path *path)
{
	const struct exec_barrier *barrier = &warp->block->barriers[path->barrier];
	uint32_t yes;

	if (insn->kind != EXEC_BARRIER)
		return;
	switch (insn->sub[0]) {
	case BAR_POPC:
		FOR_LANES(lane, path->mask)
			DST(uint32_t)[lane] = barrier->result_count;
		break;
	case BAR_AND:
	case BAR_OR:
		yes = insn->sub[0] == BAR_AND ? barrier->result_count == barrier->result_arrived : barrier->result_count != 0;
		*DST(uint32_t) = (*DST(uint32_t) & ~path->mask) | (yes ? path->mask : 0);
		break;
	}
}
