/* SPDX-License-Identifier: Apache-2.0 */
/* Hands texture and surface accesses to the front, lane by lane. The pool's threads. */
#include <errno.h>
#include <string.h>

#include "broker/softgpu/exec_texture.h"

static void put(struct exec_warp *warp, uint32_t slot, uint32_t size, uint32_t lane, uint64_t value)
{
	memcpy(exec_slot(warp, slot) + lane * size, &value, size);
}

static uint64_t get(struct exec_warp *warp, uint32_t slot, uint32_t size, uint32_t lane)
{
	uint64_t value = 0;

	memcpy(&value, exec_slot(warp, slot) + lane * size, size);
	return value;
}

static void coordinates(struct exec_warp *warp, const struct exec_insn *insn, const uint32_t *slots, uint32_t lane,
			struct ptx_texel *texel)
{
	for (int i = 0; i < 4; i++) {
		uint32_t bits;

		if (slots[4 + i] == TEXTURE_NONE)
			continue;
		bits = (uint32_t)get(warp, slots[4 + i], 4, lane);
		if (i < 3 && insn->sub[2] & TEXTURE_COORD_FLOAT)
			memcpy(&texel->coord[i], &bits, sizeof(bits));
		else
			texel->coord_int[i] = (int32_t)bits;
	}
	if (slots[8] != TEXTURE_NONE) {
		uint32_t bits = (uint32_t)get(warp, slots[8], 4, lane);

		texel->has_lod = true;
		if (insn->sub[2] & TEXTURE_COORD_FLOAT)
			memcpy(&texel->lod, &bits, sizeof(bits));
		else
			texel->lod = (float)(int32_t)bits;
	}
}

void exec_texture(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const struct exec_grid *grid = warp->block->grid;
	const struct ptx_host *host = grid->launch->host;
	const uint32_t *slots = grid->module->tables[insn->target];
	uint32_t count = insn->flags >> 8;
	uint32_t size = insn->dst2;

	FOR_LANES(lane, mask)
	{
		struct ptx_texel texel = {
			.op = insn->sub[0],
			.geometry = insn->sub[1],
			.query = insn->sub[3],
			.component = insn->sub[3],
			.handle = SRC(0, uint64_t)[lane],
			.coord_float = insn->sub[2] & TEXTURE_COORD_FLOAT,
			.result_float = insn->sub[2] & TEXTURE_RESULT_FLOAT,
			.clamp_trap = insn->sub[2] & TEXTURE_TRAP,
			.clamp_zero = insn->sub[2] & TEXTURE_ZERO,
			.element_size = (uint8_t)insn->flags,
			.element_count = (uint8_t)count,
		};
		int result;

		coordinates(warp, insn, slots, lane, &texel);
		if (texel.op == PTX_SUST)
			for (uint32_t i = 0; i < count; i++)
				texel.value[i] = get(warp, slots[i], size, lane);
		result = host->texel ? host->texel(host->user, &texel) : -EINVAL;
		if (result < 0) {
			exec_fault(warp, result == -EFAULT ? PTX_FAULT_ADDRESS : PTX_FAULT_INSTRUCTION, lane, texel.handle, 0,
				   texel.op == PTX_SUST, "%s", result == -EFAULT ? "outside of a surface"
										  : "a handle of no texture or surface");
			return;
		}
		if (texel.op == PTX_SUST)
			continue;
		for (uint32_t i = 0; i < count; i++)
			if (slots[i] != TEXTURE_NONE)
				put(warp, slots[i], size, lane, texel.value[i]);
	}
}
