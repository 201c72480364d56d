/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes mma.sync, ldmatrix, stmatrix, movmatrix. wmma of halves. wgmma is refused. */
#include <string.h>

#include "broker/softgpu/exec_matrix.h"
#include "broker/softgpu/ptx_decode.h"

static uint32_t table_new(struct decoder *d, const void *slots, size_t size)
{
	struct ptx_module *module = d->module;
	uint32_t *table = ptx_alloc(module, size);

	memcpy(table, slots, size);
	module->tables = ptx_grow(module, module->tables, module->table_count, &module->table_room, sizeof(*module->tables));
	module->tables[module->table_count] = table;
	return module->table_count++;
}

static void registers(struct decoder *d, const struct ptx_operand *operand, uint32_t count, enum ptx_type type, bool source,
		      uint32_t *slots)
{
	const struct ptx_operand *one = operand->kind == OP_VECTOR ? operand->sub : operand;

	if ((operand->kind == OP_VECTOR ? operand->count : 1) != count)
		decode_fail(d, "%u registers were expected", count);
	for (uint32_t i = 0; i < count; i++)
		slots[i] = source ? decode_source(d, &one[i], type) : decode_dest(d, &one[i], type);
}

static const struct shape {
	const char *name;
	uint8_t m;
	uint8_t k;
} shapes[] = {
	{ "m16n8k16", 16, 16 }, { "m16n8k8", 16, 8 }, { "m16n8k32", 16, 32 }, { "m16n8k4", 16, 4 },
	{ "m8n8k16", 8, 16 },	{ "m8n8k4", 8, 4 },
};

/* Bytes of k that a step of four lanes covers: a register each. */
static uint32_t steps_of(enum ptx_type type, uint32_t k)
{
	switch (type) {
	case T_F16:
	case T_BF16:
		return k / 8;
	case T_TF32:
		return k / 4;
	case T_S8:
	case T_U8:
	case T_E4M3:
	case T_E5M2:
		return k / 16;
	default:
		return 0;
	}
}

static void decode_mma(struct decoder *d)
{
	const struct shape *shape = NULL;
	struct exec_mma mma;
	struct exec_insn *insn;
	enum ptx_type types[4];
	bool saturate;
	uint32_t steps;
	uint32_t table;
	uint32_t all;

	memset(&mma, 0, sizeof(mma));
	if (!decode_take(d, "sync"))
		decode_fail(d, "without .sync");
	(void)decode_take(d, "aligned");
	for (unsigned int i = 0; i < sizeof(shapes) / sizeof(*shapes) && !shape; i++)
		if (decode_take(d, shapes[i].name))
			shape = &shapes[i];
	if (!shape)
		decode_fail(d, "another shape");
	if (!decode_take(d, "row") || !decode_take(d, "col"))
		decode_fail(d, "only .row.col");
	saturate = decode_take(d, "satfinite");
	(void)decode_take(d, "rn");
	(void)decode_take(d, "kind::f8f6f4");
	for (int i = 0; i < 4; i++)
		types[i] = decode_type(d);
	decode_done(d);
	decode_count(d, 4, 4);
	all = decode_const(d, EXEC_FULL, 4);
	if (types[0] == T_F64) {
		if (shape->m != 8 || shape->k != 4 || types[1] != T_F64 || types[2] != T_F64 || types[3] != T_F64)
			decode_fail(d, "another shape");
		registers(d, decode_operand(d, 1), 1, T_B64, true, mma.a);
		registers(d, decode_operand(d, 2), 1, T_B64, true, mma.b);
		registers(d, decode_operand(d, 3), 2, T_B64, true, mma.c);
		registers(d, decode_operand(d, 0), 2, T_B64, false, mma.d);
	} else {
		bool integers = types[1] == T_S8 || types[1] == T_U8;
		bool integers_too = types[2] == T_S8 || types[2] == T_U8;
		bool eights = (types[1] == T_E4M3 || types[1] == T_E5M2) && (types[2] == T_E4M3 || types[2] == T_E5M2);

		steps = steps_of(types[1], shape->k);
		if (!steps || (steps * shape->m / 8) > 4 || steps > 2 || integers != integers_too ||
		    (types[1] != types[2] && !integers && !eights) || types[0] != types[3] ||
		    (integers ? types[0] != T_S32 : types[0] != T_F32 && types[0] != T_F16) || (shape->m == 8 && !integers))
			decode_fail(d, "another combination of shape and types");
		registers(d, decode_operand(d, 1), steps * shape->m / 8, T_B32, true, mma.a);
		registers(d, decode_operand(d, 2), steps, T_B32, true, mma.b);
		registers(d, decode_operand(d, 3), shape->m / (types[3] == T_F16 ? 8 : 4), T_B32, true, mma.c);
		registers(d, decode_operand(d, 0), shape->m / (types[0] == T_F16 ? 8 : 4), T_B32, false, mma.d);
	}
	table = table_new(d, &mma, sizeof(mma));
	insn = decode_emit(d, exec_mma, EXEC_SYNC);
	insn->src[3] = all;
	insn->target = table;
	insn->sub[0] = shape->m;
	insn->sub[1] = shape->k;
	insn->sub[2] = (uint8_t)types[1];
	/* EXEC_SYNC reads sub[3] as "may wait anywhere": B's type is beside the others */
	insn->sub[3] = 0;
	insn->imm = types[2];
	insn->flags = (uint16_t)(types[0] | types[3] << 7 | (saturate ? MATRIX_SATURATE : 0));
}

static void decode_ldst(struct decoder *d, bool store)
{
	struct exec_insn draft = { 0 };
	struct exec_insn *insn;
	uint32_t slots[4] = { 0 };
	uint32_t count;
	uint32_t table;
	uint32_t all;
	enum exec_space space;
	bool transposed;

	if (!decode_take(d, "sync"))
		decode_fail(d, "without .sync");
	(void)decode_take(d, "aligned");
	if (!decode_take(d, "m8n8"))
		decode_fail(d, "another shape");
	count = decode_take(d, "x4") ? 4 : decode_take(d, "x2") ? 2 : 1;
	(void)decode_take(d, "x1");
	transposed = decode_take(d, "trans");
	space = decode_space(d);
	if (!decode_take(d, "b16"))
		decode_fail(d, "another type");
	decode_done(d);
	decode_count(d, 2, 2);
	space = decode_address(d, decode_operand(d, store ? 0 : 1), space, &draft);
	if (draft.sub[3] != X_BASE_32 && draft.sub[3] != X_BASE_64)
		decode_fail(d, "rows need addresses of their own");
	if (space != X_SHARED && space != X_GENERIC)
		decode_fail(d, "not in shared memory");
	registers(d, decode_operand(d, store ? 1 : 0), count, T_B32, store, slots);
	/* sub[3] tells the base's size here, which EXEC_SYNC would take for something else: 64 bits throughout */
	if (draft.sub[3] == X_BASE_32) {
		uint32_t wide = decode_temp(d, T_B64);
		struct exec_insn blank = { .sub = { T_U64, T_U32, 8, 4 } };

		insn = decode_emit(d, exec_lanes()->cvt(&blank), EXEC_ALU);
		insn->dst = wide;
		insn->src[0] = draft.src[0];
		draft.src[0] = wide;
	}
	all = decode_const(d, EXEC_FULL, 4);
	table = table_new(d, slots, sizeof(slots));
	insn = decode_emit(d, store ? exec_stmatrix : exec_ldmatrix, EXEC_SYNC);
	insn->src[0] = draft.src[0];
	insn->src[3] = all;
	insn->imm = draft.imm;
	insn->flags = (uint16_t)space;
	insn->target = table;
	insn->sub[0] = (uint8_t)count;
	insn->sub[1] = transposed;
}

static void decode_movmatrix(struct decoder *d)
{
	struct exec_insn *insn;
	uint32_t src;
	uint32_t dst;
	uint32_t all;

	if (!decode_take(d, "sync") || !decode_take(d, "aligned") || !decode_take(d, "m8n8") || !decode_take(d, "trans") ||
	    !decode_take(d, "b16"))
		decode_fail(d, "another form");
	decode_done(d);
	decode_count(d, 2, 2);
	src = decode_source(d, decode_operand(d, 1), T_B32);
	dst = decode_dest(d, decode_operand(d, 0), T_B32);
	all = decode_const(d, EXEC_FULL, 4);
	insn = decode_emit(d, exec_movmatrix, EXEC_SYNC);
	insn->dst = dst;
	insn->src[0] = src;
	insn->src[3] = all;
}

/* ---- wmma ---- */

static const struct {
	const char *name;
	uint8_t m;
	uint8_t n;
	uint8_t k;
} wmma_shapes[] = { { "m16n16k16", 16, 16, 16 }, { "m32n8k16", 32, 8, 16 }, { "m8n32k16", 8, 32, 16 } };

/* The address in 64 bits, whose lane 0 counts. */
static void wmma_address(struct decoder *d, const struct ptx_operand *operand, enum exec_space space, struct exec_insn *draft)
{
	struct exec_insn *insn;
	uint32_t wide;

	draft->flags = (uint16_t)decode_address(d, operand, space, draft);
	if (draft->sub[3] == X_BASE_32) {
		struct exec_insn blank = { .sub = { T_U64, T_U32, 8, 4 } };

		wide = decode_temp(d, T_B64);
		insn = decode_emit(d, exec_lanes()->cvt(&blank), EXEC_ALU);
		insn->dst = wide;
		insn->src[0] = draft->src[0];
		draft->src[0] = wide;
	} else if (draft->sub[3] == X_BASE_NONE) {
		draft->src[0] = decode_const(d, 0, 8);
	} else if (draft->sub[3] != X_BASE_64) {
		decode_fail(d, "an address of another kind");
	}
}

static uint32_t wmma_registers(enum ptx_type type, uint32_t elements)
{
	/* A and B of halves have eight registers whatever their shape; ours fill what they need of them */
	return elements / EXEC_LANES / (4 / ptx_type_size(type));
}

static void decode_wmma(struct decoder *d)
{
	struct exec_wmma wmma;
	struct exec_insn draft = { 0 };
	struct exec_insn *insn;
	bool load = decode_take(d, "load");
	bool store = !load && decode_take(d, "store");
	bool row_a;
	bool column;
	bool fragment_a;
	bool fragment_b;
	enum exec_space space;
	enum ptx_type type;
	unsigned int shape;
	uint32_t count;
	uint32_t table;
	uint32_t all;

	memset(&wmma, 0, sizeof(wmma));
	if (!load && !store && !decode_take(d, "mma"))
		decode_fail(d, "unknown instruction");
	fragment_a = load && decode_take(d, "a");
	fragment_b = load && !fragment_a && decode_take(d, "b");
	if (load && !fragment_a && !fragment_b && !decode_take(d, "c"))
		decode_fail(d, "no matrix");
	if (store && !decode_take(d, "d"))
		decode_fail(d, "no matrix");
	if (!decode_take(d, "sync"))
		decode_fail(d, "without .sync");
	(void)decode_take(d, "aligned");
	row_a = decode_take(d, "row");
	column = decode_take(d, "col");
	if (!load && !store) /* the layouts that the fragments were loaded with: ours do not depend on them */
		(void)(decode_take(d, "row") || decode_take(d, "col"));
	for (shape = 0; shape < 3 && !decode_take(d, wmma_shapes[shape].name); shape++)
		;
	if (shape == 3)
		decode_fail(d, "another shape");
	(void)row_a;
	all = decode_const(d, EXEC_FULL, 4);
	if (!load && !store) {
		enum ptx_type to;
		enum ptx_type from;

		(void)decode_take(d, "rn");
		to = decode_type(d);
		from = decode_type(d);
		type = T_F16;
		if (to == T_BF16 || to == T_S8 || to == T_U8 || to == T_S32)
			decode_fail(d, "another type");
		if (from == T_BF16) { /* .f32.bf16.bf16.f32 */
			if (decode_type(d) != T_BF16)
				decode_fail(d, "another type");
			type = T_BF16;
			from = decode_type(d);
		}
		decode_done(d);
		decode_count(d, 4, 4);
		if ((to != T_F32 && to != T_F16) || (from != T_F32 && from != T_F16))
			decode_fail(d, "another type");
		for (int i = 0; i < 2; i++) {
			const struct ptx_operand *operand = decode_operand(d, i ? 2u : 1u);
			uint32_t needed = wmma_registers(type, i ? wmma_shapes[shape].k * wmma_shapes[shape].n
								 : wmma_shapes[shape].m * wmma_shapes[shape].k);

			if (operand->kind != OP_VECTOR || operand->count < needed || operand->count > 8)
				decode_fail(d, "%u registers were expected", needed);
			registers(d, operand, operand->count, T_B32, true, i ? wmma.b : wmma.a);
		}
		registers(d, decode_operand(d, 3), from == T_F16 ? 4 : 8, T_B32, true, wmma.c);
		registers(d, decode_operand(d, 0), to == T_F16 ? 4 : 8, T_B32, false, wmma.d);
		table = table_new(d, &wmma, sizeof(wmma));
		insn = decode_emit(d, exec_wmma_mma, EXEC_SYNC);
		insn->src[3] = all;
		insn->target = table;
		insn->sub[0] = wmma_shapes[shape].m;
		insn->sub[1] = wmma_shapes[shape].n;
		insn->sub[2] = wmma_shapes[shape].k;
		insn->imm = type;
		insn->flags = (uint16_t)(to | from << 7);
		return;
	}
	space = decode_space(d);
	type = decode_type(d);
	decode_done(d);
	decode_count(d, 2, 3);
	if (type != T_F16 && type != T_BF16 && (type != T_F32 || fragment_a || fragment_b))
		decode_fail(d, "another type");
	wmma.rows = fragment_b ? wmma_shapes[shape].k : wmma_shapes[shape].m;
	wmma.columns = fragment_a ? wmma_shapes[shape].k : wmma_shapes[shape].n;
	wmma.stride = d->statement->operand_count == 3 ? decode_source(d, decode_operand(d, 2), T_B32) : WMMA_NONE;
	wmma_address(d, decode_operand(d, store ? 0 : 1), space, &draft);
	count = decode_operand(d, store ? 1 : 0)->count;
	if (decode_operand(d, store ? 1 : 0)->kind != OP_VECTOR || count > 8 ||
	    count < wmma_registers(type, wmma.rows * wmma.columns))
		decode_fail(d, "another number of registers");
	registers(d, decode_operand(d, store ? 1 : 0), count, T_B32, store, wmma.d);
	table = table_new(d, &wmma, sizeof(wmma));
	insn = decode_emit(d, store ? exec_wmma_store : exec_wmma_load, EXEC_SYNC);
	insn->src[0] = draft.src[0];
	insn->src[3] = all;
	insn->imm = draft.imm;
	insn->flags = draft.flags;
	insn->target = table;
	insn->sub[0] = (uint8_t)type;
	insn->sub[1] = column;
	insn->sub[2] = (uint8_t)ptx_type_size(type);
}

bool decode_matrix(struct decoder *d)
{
	const char *opcode = d->statement->opcode;

	if (!strcmp(opcode, "mma"))
		decode_mma(d);
	else if (!strcmp(opcode, "ldmatrix"))
		decode_ldst(d, false);
	else if (!strcmp(opcode, "stmatrix"))
		decode_ldst(d, true);
	else if (!strcmp(opcode, "movmatrix"))
		decode_movmatrix(d);
	else if (!strcmp(opcode, "wmma"))
		decode_wmma(d);
	else
		return false;
	return true;
}
