/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Textures and surfaces: the kernel's side. What a texel is, the front knows.
 *
 * An instruction's target is a table of slots: results or values (4), coordinates (4: x y z, then the layer), the
 * level; TEXTURE_NONE where there is none. src[0] is the handle.
 */
#ifndef GLEAM_SOFTGPU_EXEC_TEXTURE_H
#define GLEAM_SOFTGPU_EXEC_TEXTURE_H

#include "broker/softgpu/exec.h"

#define TEXTURE_NONE  UINT32_MAX
#define TEXTURE_SLOTS 9

enum {
	TEXTURE_COORD_FLOAT = 1,
	TEXTURE_RESULT_FLOAT = 2,
	TEXTURE_TRAP = 4,
	TEXTURE_ZERO = 8,
};

/* sub[0] enum ptx_tex_op, sub[1] enum ptx_geometry, sub[2] flags; sub[3] component of a gather, or the query;
 * flags: bytes of an element, count of elements << 8; dst2: size of a register */
void exec_texture(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);

#endif
