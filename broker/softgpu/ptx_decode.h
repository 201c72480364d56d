/* SPDX-License-Identifier: Apache-2.0 */
/* What the decoders of instruction families share. Leaves by ptx_fail(). */
#ifndef GLEAM_SOFTGPU_PTX_DECODE_H
#define GLEAM_SOFTGPU_PTX_DECODE_H

#include "broker/softgpu/exec.h"

struct decode_branch {
	struct decode_branch *next;
	const struct ptx_symbol *label;
	uint32_t insn;	 /* whose target it is, or */
	uint32_t *place; /* an entry of a branch table */
};

struct decoder {
	struct ptx_module *module;
	struct ptx_function *function;
	const struct ptx_statement *statement;
	uint32_t taken; /* modifiers that have been understood */
	struct decode_branch *branches;
};

_Noreturn void decode_fail(struct decoder *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Modifiers: each is taken once; decode_done() refuses what is left. */
bool decode_take(struct decoder *d, const char *name);
enum ptx_type decode_type(struct decoder *d);
/* The next one not taken, NULL: none. */
const char *decode_next(struct decoder *d);
void decode_done(struct decoder *d);

/* Operands */
void decode_count(struct decoder *d, uint32_t least, uint32_t most);
const struct ptx_operand *decode_operand(struct decoder *d, uint32_t index);
/* The slot of a value of exactly this type's size; constants and addresses get one. */
uint32_t decode_source(struct decoder *d, const struct ptx_operand *operand, enum ptx_type type);
/* A register that may be wider than the type, as ld, st and cvt allow. */
uint32_t decode_wide_source(struct decoder *d, const struct ptx_operand *operand, enum ptx_type type,
			    uint32_t *size_out);
uint32_t decode_dest(struct decoder *d, const struct ptx_operand *operand, enum ptx_type type);
uint32_t decode_wide_dest(struct decoder *d, const struct ptx_operand *operand, enum ptx_type type,
			  uint32_t *size_out);
uint32_t decode_temp(struct decoder *d, enum ptx_type type);
/* A constant in all lanes. Size 0: a predicate. */
uint32_t decode_const(struct decoder *d, uint64_t value, uint32_t size);
uint32_t decode_register_size(enum ptx_type type);
struct ptx_symbol *decode_symbol(struct decoder *d, const struct ptx_operand *operand);
/* Fills in src[0], imm, sub[3] (the base) for [address]; returns the space it is in, given what was written. */
enum exec_space decode_address(struct decoder *d, const struct ptx_operand *operand, enum exec_space space,
			       struct exec_insn *insn);
/* A state space modifier; X_GENERIC if there is none. */
enum exec_space decode_space(struct decoder *d);

/* The instruction carries the statement's guard and line. Valid until the next one is emitted. */
struct exec_insn *decode_emit(struct decoder *d, exec_fn fn, enum exec_kind kind);
exec_fn decode_form(struct decoder *d, const char *text);

/* Families; false: not one of theirs. */
bool decode_alu(struct decoder *d);
bool decode_memory(struct decoder *d);
bool decode_flow(struct decoder *d);
bool decode_sync(struct decoder *d);
bool decode_texture(struct decoder *d);
bool decode_matrix(struct decoder *d);
/* The function's first and last words: parameters in registers. */
void decode_prologue(struct decoder *d);

#endif
