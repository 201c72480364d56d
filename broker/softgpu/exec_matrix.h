/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix instructions: a warp's lanes hold a matrix together.
 *
 * An instruction's target is a table of slots. Sums are made in order in f32 (f64 for f64, s32 for integers): the
 * device's own order is not specified either.
 */
#ifndef GLEAM_SOFTGPU_EXEC_MATRIX_H
#define GLEAM_SOFTGPU_EXEC_MATRIX_H

#include "broker/softgpu/exec.h"

/* sub[0]: m, sub[1]: k (n is 8), sub[2]: type of A, imm: type of B; flags: types of D and C, saturation */
#define MATRIX_SATURATE 0x8000
struct exec_mma {
	uint32_t d[4];
	uint32_t a[4];
	uint32_t b[2];
	uint32_t c[4];
};
void exec_mma(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);

/* sub[0]: matrices (1, 2, 4), sub[1]: transposed; the table holds their slots */
void exec_ldmatrix(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_stmatrix(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_movmatrix(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);

/*
 * wmma: a fragment's layout is ours to choose. Lane l holds elements e = l, l + 32, ... of the matrix (row-major by
 * m x k, k x n or m x n), as many as there are; 16-bit ones two in a register.
 */
struct exec_wmma {
	uint32_t d[8];
	uint32_t a[8];
	uint32_t b[8];
	uint32_t c[8];
	uint32_t rows;
	uint32_t columns;
	uint32_t stride; /* slot, or none: packed */
};
#define WMMA_NONE UINT32_MAX
/* load and store: sub[0] type, sub[1] column-major, sub[2] bytes of an element; sub[3] unused, a 64-bit base */
void exec_wmma_load(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_wmma_store(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
/* sub[0] m, sub[1] n, sub[2] k; imm: type of A and B; flags: types of D and C */
void exec_wmma_mma(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);

#endif
