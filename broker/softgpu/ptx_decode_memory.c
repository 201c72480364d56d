/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes loads, stores, atomics, prefetches and asynchronous copies. */
#include <string.h>

#include "broker/softgpu/exec_memory.h"
#include "broker/softgpu/exec_sync.h"
#include "broker/softgpu/ptx_decode.h"

/* What changes nothing for us: caches, eviction, prefetch sizes, scopes (ours is always the system). */
static void take_hints(struct decoder *d)
{
	static const char *const hints[] = {
		"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified", "L1::evict_normal", "L1::evict_unchanged",
		"L1::evict_first", "L1::evict_last", "L1::no_allocate", "L2::evict_normal", "L2::evict_first",
		"L2::evict_last", "L2::cache_hint", "L2::64B", "L2::128B", "L2::256B", "cta", "cluster", "gpu", "sys",
		"weak", "noftz",
	};

	for (unsigned int i = 0; i < sizeof(hints) / sizeof(*hints); i++)
		while (decode_take(d, hints[i]))
			;
}

static bool take_ordered(struct decoder *d)
{
	bool ordered = false;

	for (;;) {
		if (decode_take(d, "volatile") || decode_take(d, "relaxed") || decode_take(d, "acquire") ||
		    decode_take(d, "release") || decode_take(d, "acq_rel") || decode_take(d, "mmio"))
			ordered = true;
		else
			return ordered;
	}
}

static uint32_t take_vector(struct decoder *d)
{
	return decode_take(d, "v2") ? 2 : decode_take(d, "v4") ? 4 : decode_take(d, "v8") ? 8 : 1;
}

/* The registers of a vector operand, or of one that is none. */
static const struct ptx_operand *elements(struct decoder *d, const struct ptx_operand *operand, uint32_t count)
{
	if (count == 1 && operand->kind != OP_VECTOR)
		return operand;
	if (operand->kind != OP_VECTOR || operand->count != count)
		decode_fail(d, "a vector of %u elements was expected", count);
	return operand->sub;
}

static void check_size(struct decoder *d, enum ptx_type type, uint32_t count)
{
	uint32_t size = ptx_type_size(type);

	if (!size || size * count > 32)
		decode_fail(d, "%u elements of %u bytes", count, size);
}

/* The address as a register of its own, where elements may overwrite it or a part is to follow. */
static void keep_address(struct decoder *d, struct exec_insn *draft)
{
	struct exec_insn *insn;
	uint32_t temp;
	bool wide = draft->sub[3] == X_BASE_64;

	if (draft->sub[3] != X_BASE_64 && draft->sub[3] != X_BASE_32)
		return;
	temp = decode_temp(d, wide ? T_B64 : T_B32);
	insn = decode_emit(d, decode_form(d, wide ? "mov.b64" : "mov.b32"), EXEC_ALU);
	insn->dst = temp;
	insn->src[0] = draft->src[0];
	draft->src[0] = temp;
}

static void decode_load(struct decoder *d)
{
	bool ordered = take_ordered(d);
	enum exec_space space = decode_space(d);
	uint32_t count = take_vector(d);
	struct exec_insn draft = { 0 };
	const struct ptx_operand *to;
	enum ptx_type type;
	uint32_t size;
	exec_fn fn = ordered ? exec_load_ordered : exec_load;

	take_hints(d);
	type = decode_type(d);
	decode_done(d);
	decode_count(d, 2, 3);
	check_size(d, type, count);
	size = ptx_type_size(type);
	space = decode_address(d, decode_operand(d, 1), space, &draft);
	to = elements(d, decode_operand(d, 0), count);
	if (space == X_PARAM && draft.sub[3] == X_BASE_NONE) {
		uint32_t limit = d->function->entry.param_size;

		if (draft.imm < 0 || draft.imm > limit || size * count > limit - draft.imm ||
		    draft.imm % (int64_t)(size * count))
			decode_fail(d, "not within the parameters");
		fn = exec_load_param;
	}
	if (count == 8)
		keep_address(d, &draft);
	for (uint32_t first = 0; first < count; first += 4) {
		uint32_t slots[4] = { 0 };
		uint32_t left = count - first < 4 ? count - first : 4;
		struct exec_insn *insn;
		uint32_t reg = 0;

		for (uint32_t i = 0; i < left; i++) {
			uint32_t one;

			slots[i] = decode_wide_dest(d, &to[first + i], type, &one);
			if (to[first + i].kind == OP_SINK && reg)
				one = reg; /* a temporary of another size would do as well, but be too small */
			if (reg && one != reg)
				decode_fail(d, "registers of different sizes");
			if (to[first + i].kind == OP_SINK)
				slots[i] = decode_temp(d, T_B128);
			else
				reg = one;
		}
		insn = decode_emit(d, fn, ordered ? EXEC_COSTLY : EXEC_ALU);
		insn->dst = slots[0];
		insn->dst2 = slots[1];
		insn->src[0] = draft.src[0];
		insn->src[1] = slots[2];
		insn->src[2] = slots[3];
		insn->imm = draft.imm + (int64_t)first * size;
		insn->flags = (uint16_t)space;
		insn->sub[0] = (uint8_t)size;
		insn->sub[1] = (uint8_t)((reg ? reg : decode_register_size(type)) | (ptx_type_signed(type) ? X_SIGNED : 0));
		insn->sub[2] = (uint8_t)left;
		insn->sub[3] = draft.sub[3];
	}
}

static void decode_store(struct decoder *d)
{
	bool ordered = take_ordered(d);
	enum exec_space space = decode_space(d);
	uint32_t count = take_vector(d);
	struct exec_insn draft = { 0 };
	const struct ptx_operand *from;
	enum ptx_type type;
	uint32_t size;

	take_hints(d);
	type = decode_type(d);
	decode_done(d);
	decode_count(d, 2, 3);
	check_size(d, type, count);
	size = ptx_type_size(type);
	space = decode_address(d, decode_operand(d, 0), space, &draft);
	if (space == X_PARAM || space == X_CONST)
		decode_fail(d, "a store to what can't be written");
	from = elements(d, decode_operand(d, 1), count);
	for (uint32_t first = 0; first < count; first += 4) {
		uint32_t slots[4] = { 0 };
		uint32_t left = count - first < 4 ? count - first : 4;
		struct exec_insn *insn;
		uint32_t reg = 0;

		for (uint32_t i = 0; i < left; i++) { /* constants take the size of the registers beside them */
			uint32_t one;

			if (from[first + i].kind != OP_REG)
				continue;
			slots[i] = decode_wide_source(d, &from[first + i], type, &one);
			if (reg && one != reg)
				decode_fail(d, "registers of different sizes");
			reg = one;
		}
		for (uint32_t i = 0; i < left; i++) {
			uint32_t one;

			if (from[first + i].kind == OP_REG)
				continue;
			slots[i] = decode_wide_source(d, &from[first + i],
						      reg && reg != decode_register_size(type)
							      ? (reg == 8 ? T_B64 : reg == 4 ? T_B32 : T_B16)
							      : type,
						      &one);
		}
		if (!reg)
			reg = decode_register_size(type);
		insn = decode_emit(d, ordered ? exec_store_ordered : exec_store, EXEC_ALU);
		insn->src[0] = draft.src[0];
		insn->src[1] = slots[0];
		insn->src[2] = slots[1];
		insn->dst = slots[2];
		insn->dst2 = slots[3];
		insn->imm = draft.imm + (int64_t)first * size;
		insn->flags = (uint16_t)space;
		insn->sub[0] = (uint8_t)size;
		insn->sub[1] = (uint8_t)reg;
		insn->sub[2] = (uint8_t)left;
		insn->sub[3] = draft.sub[3];
	}
}

/* ---- atom, red ---- */

static enum exec_atomic take_operation(struct decoder *d)
{
	static const char *const names[] = { "add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec" };

	for (unsigned int i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (decode_take(d, names[i]))
			return (enum exec_atomic)i;
	decode_fail(d, "no operation");
}

static void decode_atomic(struct decoder *d, bool red)
{
	enum exec_space space;
	struct exec_insn draft = { 0 };
	enum exec_atomic op;
	enum ptx_type type;
	enum ptx_type reg_type;
	uint32_t count;
	uint32_t at = red ? 0 : 1;
	const struct ptx_operand *b;
	const struct ptx_operand *to = NULL;

	if (decode_take(d, "async"))
		decode_fail(d, "red.async");
	(void)take_ordered(d);
	space = decode_space(d);
	op = take_operation(d);
	count = take_vector(d);
	take_hints(d);
	type = decode_type(d);
	decode_done(d);
	decode_count(d, at + 2, at + 4);
	if (!exec_atomic_has(op, type) || (red && (op == AT_CAS || op == AT_EXCH)))
		decode_fail(d, "no such atomic");
	reg_type = type;
	space = decode_address(d, decode_operand(d, at), space, &draft);
	if (space == X_PARAM || space == X_CONST)
		decode_fail(d, "an atomic on what can't be written");
	b = elements(d, decode_operand(d, at + 1), count);
	if (!red)
		to = decode_operand(d, 0)->kind == OP_SINK ? NULL : elements(d, decode_operand(d, 0), count);
	if (count > 1)
		keep_address(d, &draft);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t source = decode_source(d, &b[i], reg_type);
		uint32_t other = op == AT_CAS ? decode_source(d, decode_operand(d, at + 2), reg_type) : 0;
		uint32_t dst = to ? decode_dest(d, &to[i], reg_type) : 0;
		struct exec_insn *insn = decode_emit(d, exec_atomic, EXEC_COSTLY);

		insn->dst = dst;
		insn->src[0] = draft.src[0];
		insn->src[1] = source;
		insn->src[2] = other;
		insn->imm = draft.imm + (int64_t)i * ptx_type_size(type);
		insn->flags = (uint16_t)space;
		insn->sub[0] = (uint8_t)op;
		insn->sub[1] = (uint8_t)type;
		insn->sub[2] = !to;
		insn->sub[3] = draft.sub[3];
	}
}

/* ---- cp.async ---- */

/* The address as a value of 64 bits in its space. */
static uint32_t address_value(struct decoder *d, const struct ptx_operand *operand, enum exec_space *space)
{
	struct exec_insn draft = { 0 };
	struct exec_insn *insn;
	uint32_t base;
	uint32_t offset;
	uint32_t sum;

	*space = decode_address(d, operand, *space, &draft);
	if (draft.sub[3] == X_BASE_NONE)
		return decode_const(d, (uint64_t)draft.imm, 8);
	if (draft.sub[3] == X_BASE_STACK)
		decode_fail(d, "not in local memory");
	base = draft.src[0];
	if (draft.sub[3] == X_BASE_32) {
		struct exec_insn blank = { .sub = { T_U64, T_U32, 8, 4 } };

		base = decode_temp(d, T_B64);
		insn = decode_emit(d, exec_lanes()->cvt(&blank), EXEC_ALU);
		insn->dst = base;
		insn->src[0] = draft.src[0];
	}
	if (!draft.imm)
		return base;
	offset = decode_const(d, (uint64_t)draft.imm, 8);
	sum = decode_temp(d, T_B64);
	insn = decode_emit(d, decode_form(d, "add.u64"), EXEC_ALU);
	insn->dst = sum;
	insn->src[0] = base;
	insn->src[1] = offset;
	return sum;
}

/* cp.async.bulk between global memory and the block's own shared memory; tensors and other blocks are refused. */
static void decode_bulk(struct decoder *d)
{
	enum exec_space to;
	enum exec_space from;
	enum exec_space barrier_space = X_SHARED;
	struct exec_insn *insn;
	uint32_t slots[4] = { 0 };
	bool barrier;

	if (decode_take(d, "commit_group")) {
		decode_done(d);
		decode_count(d, 0, 0);
		decode_emit(d, exec_fence, EXEC_ALU);
		return;
	}
	if (decode_take(d, "wait_group")) {
		(void)decode_take(d, "read");
		decode_done(d);
		decode_count(d, 1, 1);
		decode_emit(d, exec_fence, EXEC_ALU);
		return;
	}
	if (d->statement->modifier_count < 4)
		decode_fail(d, "unknown instruction");
	/* the order of the two spaces is what tells the direction */
	to = !strcmp(d->statement->modifiers[2], "global") ? X_GLOBAL : X_SHARED;
	(void)decode_space(d);
	(void)decode_space(d);
	from = to == X_GLOBAL ? X_SHARED : X_GLOBAL;
	barrier = decode_take(d, "mbarrier::complete_tx::bytes");
	if (!barrier && !decode_take(d, "bulk_group"))
		decode_fail(d, "no completion");
	take_hints(d);
	decode_done(d);
	decode_count(d, barrier ? 4 : 3, barrier ? 5 : 4);
	if (barrier != (to == X_SHARED))
		decode_fail(d, "between blocks");
	slots[0] = address_value(d, decode_operand(d, 0), &to);
	slots[1] = address_value(d, decode_operand(d, 1), &from);
	slots[2] = decode_source(d, decode_operand(d, 2), T_B32);
	if (barrier)
		slots[3] = address_value(d, decode_operand(d, 3), &barrier_space);
	insn = decode_emit(d, exec_copy_bulk, EXEC_ALU);
	memcpy(insn->src, slots, sizeof(slots));
	insn->sub[0] = (uint8_t)to;
	insn->sub[1] = (uint8_t)from;
	insn->sub[2] = barrier;
}

static void decode_cp(struct decoder *d)
{
	struct exec_insn draft = { 0 };
	struct exec_insn from = { 0 };
	const struct ptx_operand *size;
	struct exec_insn *insn;
	uint32_t third = 0;
	bool ignore = false;

	if (!decode_take(d, "async"))
		decode_fail(d, "unknown instruction");
	if (decode_take(d, "bulk")) {
		decode_bulk(d);
		return;
	}
	/* The copy is done at once, so groups are complete when they are committed. */
	if (decode_take(d, "commit_group") || decode_take(d, "wait_all")) {
		decode_done(d);
		decode_count(d, 0, 0);
		decode_emit(d, exec_fence, EXEC_ALU);
		return;
	}
	if (decode_take(d, "wait_group")) {
		decode_done(d);
		decode_count(d, 1, 1);
		decode_emit(d, exec_fence, EXEC_ALU);
		return;
	}
	(void)decode_space(d); /* shared */
	(void)decode_space(d); /* global */
	take_hints(d);
	decode_done(d);
	decode_count(d, 3, 5);
	if (decode_address(d, decode_operand(d, 0), X_SHARED, &draft) != X_SHARED ||
	    decode_address(d, decode_operand(d, 1), X_GLOBAL, &from) != X_GLOBAL || from.sub[3] != X_BASE_64)
		decode_fail(d, "not from global to shared memory");
	size = decode_operand(d, 2);
	if (size->kind != OP_INT || (size->value != 4 && size->value != 8 && size->value != 16))
		decode_fail(d, "a size other than 4, 8, 16");
	if (from.imm != (int32_t)from.imm)
		decode_fail(d, "an offset too large");
	if (d->statement->operand_count > 3) {
		const struct ptx_operand *last = decode_operand(d, 3);

		ignore = last->kind == OP_REG && last->type == T_PRED;
		/* a cache policy is 64 bits wide, a size 32 */
		if (last->kind == OP_REG && last->type != T_PRED && ptx_type_size(last->type) == 8)
			third = 0;
		else
			third = decode_source(d, last, ignore ? T_PRED : T_B32);
	}
	insn = decode_emit(d, exec_copy_async, EXEC_ALU);
	insn->src[0] = draft.src[0];
	insn->imm = draft.imm;
	insn->sub[3] = draft.sub[3];
	insn->src[1] = from.src[0];
	insn->target = (uint32_t)(int32_t)from.imm;
	insn->src[2] = ignore ? 0 : third;
	insn->src[3] = ignore ? third : 0;
	insn->sub[0] = (uint8_t)size->value;
	insn->sub[1] = third && !ignore;
	insn->sub[2] = ignore;
	insn->flags = X_SHARED;
}

bool decode_memory(struct decoder *d)
{
	const char *opcode = d->statement->opcode;

	if (!strcmp(opcode, "ld") || !strcmp(opcode, "ldu")) {
		decode_load(d);
	} else if (!strcmp(opcode, "st")) {
		if (decode_take(d, "async") || decode_take(d, "bulk"))
			decode_fail(d, "st.async");
		decode_store(d);
	} else if (!strcmp(opcode, "atom")) {
		decode_atomic(d, false);
	} else if (!strcmp(opcode, "red")) {
		decode_atomic(d, true);
	} else if (!strcmp(opcode, "cp")) {
		if (d->statement->modifier_count > 1 && !strcmp(d->statement->modifiers[1], "mbarrier"))
			return false;
		decode_cp(d);
	} else if (!strcmp(opcode, "prefetch") || !strcmp(opcode, "prefetchu") || !strcmp(opcode, "applypriority") ||
		   !strcmp(opcode, "discard")) {
		/* nothing to do: there is no cache of ours */
	} else if (!strcmp(opcode, "createpolicy")) {
		uint32_t zero = decode_const(d, 0, 8);
		uint32_t dst = decode_dest(d, decode_operand(d, 0), T_B64);
		struct exec_insn *insn = decode_emit(d, decode_form(d, "mov.b64"), EXEC_ALU);

		insn->dst = dst;
		insn->src[0] = zero;
	} else {
		return false;
	}
	return true;
}
