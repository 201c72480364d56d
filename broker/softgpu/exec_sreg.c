/* SPDX-License-Identifier: Apache-2.0 */
/* Special registers. The pool's threads. */
#include <string.h>
#include <time.h>

#include "broker/softgpu/exec.h"

enum sreg {
	SR_TID_X, SR_TID_Y, SR_TID_Z, SR_NTID_X, SR_NTID_Y, SR_NTID_Z, SR_CTAID_X, SR_CTAID_Y, SR_CTAID_Z,
	SR_NCTAID_X, SR_NCTAID_Y, SR_NCTAID_Z, SR_ZERO, SR_ONE, SR_LANEID, SR_WARPID, SR_NWARPID, SR_SMID, SR_NSMID,
	SR_GRIDID, SR_LANEMASK_EQ, SR_LANEMASK_LE, SR_LANEMASK_LT, SR_LANEMASK_GE, SR_LANEMASK_GT, SR_CLOCK,
	SR_CLOCK_HI, SR_CLOCK64, SR_TIMER, SR_TIMER_LO, SR_TIMER_HI, SR_DYNAMIC_SIZE, SR_TOTAL_SIZE, SR_AGGR_SIZE,
	SR_RESERVED, SR_ENVREG1, SR_ENVREG2, SR_EXPLICIT, SR_CL_X, SR_CL_Y, SR_CL_Z, SR_NCL_X, SR_NCL_Y, SR_NCL_Z,
	SR_CLCTA_X, SR_CLCTA_Y, SR_CLCTA_Z, SR_CLN_X, SR_CLN_Y, SR_CLN_Z, SR_CL_RANK, SR_CL_NRANK,
};

static const struct {
	const char *name;
	uint8_t sreg;
	uint8_t size; /* 4, 8; 0: a predicate */
} names[] = {
	{ "%tid.x", SR_TID_X, 4 }, { "%tid.y", SR_TID_Y, 4 }, { "%tid.z", SR_TID_Z, 4 }, { "%tid.w", SR_ZERO, 4 },
	{ "%ntid.x", SR_NTID_X, 4 }, { "%ntid.y", SR_NTID_Y, 4 }, { "%ntid.z", SR_NTID_Z, 4 }, { "%ntid.w", SR_ONE, 4 },
	{ "%ctaid.x", SR_CTAID_X, 4 }, { "%ctaid.y", SR_CTAID_Y, 4 }, { "%ctaid.z", SR_CTAID_Z, 4 },
	{ "%nctaid.x", SR_NCTAID_X, 4 }, { "%nctaid.y", SR_NCTAID_Y, 4 }, { "%nctaid.z", SR_NCTAID_Z, 4 },
	{ "%laneid", SR_LANEID, 4 }, { "%warpid", SR_WARPID, 4 }, { "%nwarpid", SR_NWARPID, 4 }, { "%smid", SR_SMID, 4 },
	{ "%nsmid", SR_NSMID, 4 }, { "%gridid", SR_GRIDID, 8 }, { "%lanemask_eq", SR_LANEMASK_EQ, 4 },
	{ "%lanemask_le", SR_LANEMASK_LE, 4 }, { "%lanemask_lt", SR_LANEMASK_LT, 4 }, { "%lanemask_ge", SR_LANEMASK_GE, 4 },
	{ "%lanemask_gt", SR_LANEMASK_GT, 4 }, { "%clock", SR_CLOCK, 4 }, { "%clock_hi", SR_CLOCK_HI, 4 },
	{ "%clock64", SR_CLOCK64, 8 }, { "%globaltimer", SR_TIMER, 8 }, { "%globaltimer_lo", SR_TIMER_LO, 4 },
	{ "%globaltimer_hi", SR_TIMER_HI, 4 }, { "%dynamic_smem_size", SR_DYNAMIC_SIZE, 4 },
	{ "%total_smem_size", SR_TOTAL_SIZE, 4 }, { "%aggr_smem_size", SR_AGGR_SIZE, 4 },
	{ "%reserved_smem_offset_begin", SR_ZERO, 4 }, { "%reserved_smem_offset_end", SR_ZERO, 4 },
	{ "%reserved_smem_offset_cap", SR_ZERO, 4 }, { "%current_graph_exec", SR_ZERO, 8 },
	{ "%envreg1", SR_ENVREG1, 4 }, { "%envreg2", SR_ENVREG2, 4 }, { "%envreg0", SR_ZERO, 4 },
	{ "%is_explicit_cluster", SR_EXPLICIT, 0 }, { "%clusterid.x", SR_CL_X, 4 }, { "%clusterid.y", SR_CL_Y, 4 },
	{ "%clusterid.z", SR_CL_Z, 4 }, { "%nclusterid.x", SR_NCL_X, 4 }, { "%nclusterid.y", SR_NCL_Y, 4 },
	{ "%nclusterid.z", SR_NCL_Z, 4 }, { "%cluster_ctaid.x", SR_CLCTA_X, 4 }, { "%cluster_ctaid.y", SR_CLCTA_Y, 4 },
	{ "%cluster_ctaid.z", SR_CLCTA_Z, 4 }, { "%cluster_nctaid.x", SR_CLN_X, 4 }, { "%cluster_nctaid.y", SR_CLN_Y, 4 },
	{ "%cluster_nctaid.z", SR_CLN_Z, 4 }, { "%cluster_ctarank", SR_CL_RANK, 4 }, { "%cluster_nctarank", SR_CL_NRANK, 4 },
};

int ptx_sreg_find(const char *name)
{
	for (unsigned int i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(names[i].name, name))
			return (int)i;
	return -1;
}

uint32_t ptx_sreg_size(int sreg)
{
	return names[sreg].size;
}

bool ptx_sreg_pred(int sreg)
{
	return !names[sreg].size;
}

bool ptx_sreg_grid(int sreg)
{
	return names[sreg].sreg == SR_ENVREG1 || names[sreg].sreg == SR_ENVREG2;
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint32_t cluster_of(const uint32_t cluster[3], int i)
{
	return cluster[0] && cluster[i] ? cluster[i] : 1;
}

/* Registers that are the same for all lanes of a warp. */
static uint64_t uniform_sreg(struct exec_warp *warp, enum sreg sreg)
{
	const struct exec_block *block = warp->block;
	const struct exec_grid *grid = block->grid;
	const struct ptx_launch *launch = grid->launch;
	const uint32_t *cluster = launch->cluster;
	int i;

	switch (sreg) {
	case SR_NTID_X:
	case SR_NTID_Y:
	case SR_NTID_Z:
		return launch->block[sreg - SR_NTID_X];
	case SR_CTAID_X:
	case SR_CTAID_Y:
	case SR_CTAID_Z:
		return block->ctaid[sreg - SR_CTAID_X];
	case SR_NCTAID_X:
	case SR_NCTAID_Y:
	case SR_NCTAID_Z:
		return launch->grid[sreg - SR_NCTAID_X];
	case SR_ONE:
		return 1;
	case SR_WARPID:
		return warp->id;
	case SR_NWARPID:
		return 64;
	case SR_SMID:
		return block->index % (launch->sm_count ? launch->sm_count : exec_pool_threads(launch->pool));
	case SR_NSMID:
		return launch->sm_count ? launch->sm_count : exec_pool_threads(launch->pool);
	case SR_GRIDID:
		return launch->grid_id;
	case SR_CLOCK:
	case SR_CLOCK64:
		return now_ns(CLOCK_MONOTONIC); /* as if a cycle took a nanosecond */
	case SR_CLOCK_HI:
		return now_ns(CLOCK_MONOTONIC) >> 32;
	case SR_TIMER:
	case SR_TIMER_LO:
		return now_ns(CLOCK_REALTIME);
	case SR_TIMER_HI:
		return now_ns(CLOCK_REALTIME) >> 32;
	case SR_DYNAMIC_SIZE:
		return launch->shared_dynamic;
	case SR_TOTAL_SIZE:
	case SR_AGGR_SIZE:
		return grid->shared_size;
	case SR_ENVREG1: /* the cooperative groups library puts a pointer together: high half first */
		return (uint64_t)(uintptr_t)grid->workspace >> 32;
	case SR_ENVREG2:
		return (uint32_t)(uintptr_t)grid->workspace;
	case SR_EXPLICIT:
		return cluster[0] != 0;
	case SR_CL_X:
	case SR_CL_Y:
	case SR_CL_Z:
		i = sreg - SR_CL_X;
		return block->ctaid[i] / cluster_of(cluster, i);
	case SR_NCL_X:
	case SR_NCL_Y:
	case SR_NCL_Z:
		i = sreg - SR_NCL_X;
		return launch->grid[i] / cluster_of(cluster, i);
	case SR_CLCTA_X:
	case SR_CLCTA_Y:
	case SR_CLCTA_Z:
		i = sreg - SR_CLCTA_X;
		return block->ctaid[i] % cluster_of(cluster, i);
	case SR_CLN_X:
	case SR_CLN_Y:
	case SR_CLN_Z:
		return cluster_of(cluster, sreg - SR_CLN_X);
	case SR_CL_RANK:
		return block->ctaid[0] % cluster_of(cluster, 0) +
		       cluster_of(cluster, 0) * (block->ctaid[1] % cluster_of(cluster, 1) +
						 cluster_of(cluster, 1) * (block->ctaid[2] % cluster_of(cluster, 2)));
	case SR_CL_NRANK:
		return cluster_of(cluster, 0) * cluster_of(cluster, 1) * cluster_of(cluster, 2);
	default:
		return 0;
	}
}

static uint32_t lane_sreg(const struct exec_warp *warp, enum sreg sreg, uint32_t lane)
{
	switch (sreg) {
	case SR_TID_X:
	case SR_TID_Y:
	case SR_TID_Z:
		return warp->tid[sreg - SR_TID_X][lane];
	case SR_LANEID:
		return lane;
	case SR_LANEMASK_EQ:
		return 1u << lane;
	case SR_LANEMASK_LE:
		return (2u << lane) - 1;
	case SR_LANEMASK_LT:
		return (1u << lane) - 1;
	case SR_LANEMASK_GE:
		return ~0u << lane;
	default: /* SR_LANEMASK_GT */
		return lane == 31 ? 0 : ~0u << (lane + 1);
	}
}

void exec_sreg(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	enum sreg sreg = names[insn->sub[0]].sreg;
	bool varies = sreg <= SR_TID_Z || sreg == SR_LANEID || (sreg >= SR_LANEMASK_EQ && sreg <= SR_LANEMASK_GT);
	uint64_t value = varies ? 0 : uniform_sreg(warp, sreg);

	if (!insn->sub[1]) {
		uint32_t *d = DST(uint32_t);

		*d = (*d & ~mask) | (value ? mask : 0);
		return;
	}
	if (insn->sub[1] == 4 && !varies) { /* the common ones, without asking for each lane */
		uint32_t *d = DST(uint32_t);

		FOR_LANES(lane, mask)
			d[lane] = (uint32_t)value;
		return;
	}
	if (insn->sub[1] == 4 && sreg <= SR_TID_Z && mask == EXEC_FULL) {
		memcpy(DST(uint32_t), warp->tid[sreg - SR_TID_X], sizeof(warp->tid[0]));
		return;
	}
	FOR_LANES(lane, mask)
	{
		uint64_t v = varies ? lane_sreg(warp, sreg, lane) : value;

		if (insn->sub[1] == 2)
			DST(uint16_t)[lane] = (uint16_t)v;
		else if (insn->sub[1] == 4)
			DST(uint32_t)[lane] = (uint32_t)v;
		else
			DST(uint64_t)[lane] = names[insn->sub[0]].size == 4 ? (uint32_t)v : v;
	}
}

static void put_address(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask, uint64_t value)
{
	FOR_LANES(lane, mask)
	{
		if (insn->sub[1] == 4)
			DST(uint32_t)[lane] = (uint32_t)value;
		else
			DST(uint64_t)[lane] = value;
	}
}

void exec_dynamic_address(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	put_address(warp, insn, mask, warp->block->grid->dynamic_offset + (uint64_t)insn->imm);
}

void exec_stack_address(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	put_address(warp, insn, mask, warp->stack + (uint64_t)insn->imm);
}
