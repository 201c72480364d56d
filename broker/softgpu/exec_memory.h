/* SPDX-License-Identifier: Apache-2.0 */
/* Loads, stores and copies. An instruction's flags hold the space; its fields are set by ptx_decode_memory.c. */
#ifndef GLEAM_SOFTGPU_EXEC_MEMORY_H
#define GLEAM_SOFTGPU_EXEC_MEMORY_H

#include "broker/softgpu/exec.h"

/*
 * sub[0]: size of an element, sub[1]: size of a register, with X_SIGNED if the element is extended by its sign,
 * sub[2]: number of elements. Registers are dst, dst2, src[1], src[2] of a load, src[1], src[2], dst, dst2 of a
 * store.
 */
#define X_SIGNED 0x80
void exec_load(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_load_param(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_load_ordered(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_store(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_store_ordered(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_fence(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);

/* sub[0] bytes to shared address src[0]+imm from global src[1]+(int32_t)target; src[2]: bytes really read. */
void exec_copy_async(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);

enum exec_atomic {
	AT_ADD, AT_MIN, AT_MAX, AT_AND, AT_OR, AT_XOR, AT_EXCH, AT_CAS, AT_INC, AT_DEC,
};
/* sub[0]: the operation, sub[1]: the type, sub[2]: 1 if nobody wants the old value (red); src[1], src[2]: operands */
void exec_atomic(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
bool exec_atomic_has(enum exec_atomic op, enum ptx_type type);

#endif
