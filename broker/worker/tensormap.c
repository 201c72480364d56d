/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensor maps, as the node's driver encodes them: arithmetic of the host that only the driver knows. Executor thread.
 */
#include "broker/proto/tensormap.h"

#include <stdlib.h>
#include <string.h>

#include "broker/worker/state.h"
#include "gen/worker_bodies.h"

static_assert(sizeof(CUtensorMap) == TENSORMAP_SIZE, "it travels as it lies");

static void *address_of(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

/* Arrays that the driver reads: as long as the rank says, or absent. Their elements came aligned. */
static bool arrays_fit(const struct msg_gleamTensorMap *m)
{
	uint32_t corners = m->form == TENSORMAP_IM2COL ? m->rank - 2 : 1;

	if (m->rank < 1 || m->rank > TENSORMAP_RANK_MAX || m->dims_count != m->rank || m->steps_count != m->rank)
		return false;
	if (m->strides_count < m->rank - 1 && (m->strides_count || m->rank > 1))
		return false;
	switch (m->form) {
	case TENSORMAP_TILED:
		return m->box_count == m->rank;
	case TENSORMAP_IM2COL:
	case TENSORMAP_IM2COL_WIDE:
		return m->rank >= 3 && m->box_count == corners && m->upper_count == corners;
	default:
		return false;
	}
}

static CUresult encode(struct worker *w, const struct msg_gleamTensorMap *m, CUtensorMap *map)
{
	const cuuint64_t *dims = (const cuuint64_t *)m->dims;
	const cuuint64_t *strides = m->strides_count ? (const cuuint64_t *)m->strides : NULL;
	const int *lower = (const int *)m->box, *upper = (const int *)m->upper;
	CUtensorMapDataType type = (CUtensorMapDataType)m->type;
	CUtensorMapInterleave interleave = (CUtensorMapInterleave)m->interleave;
	CUtensorMapSwizzle swizzle = (CUtensorMapSwizzle)m->swizzle;
	CUtensorMapL2promotion promotion = (CUtensorMapL2promotion)m->promotion;
	CUtensorMapFloatOOBfill fill = (CUtensorMapFloatOOBfill)m->fill;
	void *address = address_of(m->address);

	switch (m->form) {
	case TENSORMAP_TILED:
		return w->drv.cuTensorMapEncodeTiled(map, type, m->rank, address, dims, strides, m->box, m->steps,
						     interleave, swizzle, promotion, fill);
	case TENSORMAP_IM2COL:
		return w->drv.cuTensorMapEncodeIm2col(map, type, m->rank, address, dims, strides, lower, upper,
						      m->channels, m->pixels, m->steps, interleave, swizzle, promotion,
						      fill);
	default:
		return w->drv.cuTensorMapEncodeIm2colWide(map, type, m->rank, address, dims, strides, lower[0], upper[0],
							  m->channels, m->pixels, m->steps, interleave,
							  (CUtensorMapIm2ColWideMode)m->mode, swizzle, promotion, fill);
	}
}

CUresult worker_do_gleamTensorMap(struct worker *w, struct cmd *cmd, const struct msg_gleamTensorMap *m,
				  struct ans_gleamTensorMap *a)
{
	CUtensorMap map = { .opaque = { 0 } };
	CUresult r;

	if (!arrays_fit(m))
		return CMD_BROKEN;
	r = encode(w, m, &map);
	if (r != CUDA_SUCCESS)
		return r;
	memcpy(a->map, &map, sizeof(map));
	/* How the driver moves one: the client learns from the pair where the address is. A driver that can't leaves zeros. */
	memset(a->moved, 0, sizeof(a->moved));
	if (w->drv.cuTensorMapReplaceAddress(&map, address_of(m->other)) == CUDA_SUCCESS)
		memcpy(a->moved, &map, sizeof(map));
	return CUDA_SUCCESS;
}

CUresult worker_do_gleamTensorMapMove(struct worker *w, struct cmd *cmd, const struct msg_gleamTensorMapMove *m,
				      struct ans_gleamTensorMapMove *a)
{
	CUtensorMap map;
	CUresult r;

	if (m->map_size != sizeof(map))
		return CMD_BROKEN;
	memcpy(&map, m->map, sizeof(map));
	r = w->drv.cuTensorMapReplaceAddress(&map, address_of(m->address));
	if (r == CUDA_SUCCESS)
		memcpy(a->moved, &map, sizeof(map));
	return r;
}
