/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes what computes on registers alone. Most of it is looked up in the tables of forms of lanes_*.h. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/ptx_decode.h"

static const struct {
	const char *name;
	uint32_t flag;
} flag_names[] = {
	{ "ftz", X_FTZ },
	{ "sat", X_SAT },
	{ "rn", X_RN },
	{ "rz", X_RZ },
	{ "rm", X_RM },
	{ "rp", X_RP },
	{ "rna", X_RNA },
	{ "rni", X_INT },
	{ "rzi", X_INT | X_RZ },
	{ "rmi", X_INT | X_RM },
	{ "rpi", X_INT | X_RP },
	{ "relu", X_RELU },
	{ "NaN", X_NAN },
	{ "xorsign", X_XORSIGN },
	{ "abs", X_ABS },
	{ "approx", X_APPROX },
	{ "full", X_FULL },
};

static uint32_t flag_find(const char *name)
{
	for (unsigned int i = 0; i < sizeof(flag_names) / sizeof(*flag_names); i++)
		if (!strcmp(flag_names[i].name, name))
			return flag_names[i].flag;
	return 0;
}

static uint32_t take_flags(struct decoder *d)
{
	uint32_t flags = 0;

	for (uint32_t i = 0; i < d->statement->modifier_count; i++) {
		uint32_t flag = d->taken >> i & 1 ? 0 : flag_find(d->statement->modifiers[i]);

		if (flag) {
			d->taken |= 1u << i;
			flags |= flag;
		}
	}
	return flags;
}

/* ---- the table of forms ---- */

#define FORM_TABLE_SIZE 2048 /* power of two, twice the number of forms */

static const struct exec_form *form_table[FORM_TABLE_SIZE];
static pthread_once_t form_once = PTHREAD_ONCE_INIT;

static uint32_t form_hash(const char *text)
{
	uint32_t hash = 2166136261u;

	while (*text)
		hash = (hash ^ (unsigned char)*text++) * 16777619u;
	return (hash ^ hash >> 15) & (FORM_TABLE_SIZE - 1);
}

static void form_table_init(void)
{
	const struct exec_lanes *lanes = exec_lanes();

	for (uint32_t list = 0; list < lanes->list_count; list++)
		for (uint32_t i = 0; i < lanes->lists[list].count; i++) {
			const struct exec_form *form = &lanes->lists[list].forms[i];
			uint32_t at = form_hash(form->text);

			while (form_table[at])
				at = (at + 1) & (FORM_TABLE_SIZE - 1);
			form_table[at] = form;
		}
}

const struct exec_form *exec_form_find(const char *text)
{
	pthread_once(&form_once, form_table_init);
	for (uint32_t at = form_hash(text); form_table[at]; at = (at + 1) & (FORM_TABLE_SIZE - 1))
		if (!strcmp(form_table[at]->text, text))
			return form_table[at];
	return NULL;
}

/* Chosen once: the processor does not change. GLEAM_SOFTGPU_SIMD=base is for tests of the other one. */
static const struct exec_lanes *lanes_chosen;
static pthread_once_t lanes_once = PTHREAD_ONCE_INIT;

static void lanes_choose(void)
{
	const char *wish = getenv("GLEAM_SOFTGPU_SIMD");

	lanes_chosen = &exec_lanes_base;
#if defined(__x86_64__)
	if ((!wish || strcmp(wish, "base")) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		lanes_chosen = &exec_lanes_avx2;
#else
	(void)wish;
#endif
}

const struct exec_lanes *exec_lanes(void)
{
	pthread_once(&lanes_once, lanes_choose);
	return lanes_chosen;
}

/* ---- plain instructions ---- */

static enum ptx_type letter_type(char letter)
{
	switch (letter) {
	case 'p':
	case 'P':
		return T_PRED;
	case 'h':
		return T_B16;
	case 'w':
		return T_B32;
	case 'd':
		return T_B64;
	case 'q':
		return T_B128;
	case 'f':
		return T_F32;
	default: /* 'g' */
		return T_F64;
	}
}

static void emit_form(struct decoder *d, const struct exec_form *form, uint32_t flags)
{
	const char *letter = form->operands;
	const struct exec_insn blank = { 0 };
	struct exec_insn draft = blank;
	struct exec_insn *insn;
	uint32_t operand = 0;
	uint32_t source = 0;
	uint32_t sub = 0;

	draft.dst = decode_dest(d, decode_operand(d, operand++), letter_type(letter[0]));
	for (letter += 2; *letter; letter++) {
		if (*letter == 'i') {
			const struct ptx_operand *value = decode_operand(d, operand++);

			if (value->kind != OP_INT)
				decode_fail(d, "an immediate was expected");
			draft.sub[sub++] = (uint8_t)value->value;
		} else if (*letter >= '0' && *letter <= '9') {
			draft.sub[sub++] = (uint8_t)(*letter - '0');
		} else {
			draft.src[source++] = decode_source(d, decode_operand(d, operand++), letter_type(*letter));
		}
	}
	decode_count(d, operand, operand);
	insn = decode_emit(d, form->fn, EXEC_ALU);
	insn->dst = draft.dst;
	memcpy(insn->src, draft.src, sizeof(insn->src));
	memcpy(insn->sub, draft.sub, sizeof(insn->sub));
	insn->flags = (uint16_t)flags;
}

static void form_append(char *text, size_t size, const char *more)
{
	size_t used = strlen(text);

	if (used < size - 1)
		snprintf(text + used, size - used, ".%s", more);
}

static bool decode_plain(struct decoder *d)
{
	const struct ptx_statement *statement = d->statement;
	const struct exec_form *form;
	char text[96];
	uint32_t flags = 0;
	bool three = statement->operand_count == 4 && (!strcmp(statement->opcode, "min") || !strcmp(statement->opcode, "max"));

	snprintf(text, sizeof(text), "%s%s", statement->opcode, three ? "3" : "");
	for (uint32_t i = 0; i < statement->modifier_count; i++)
		form_append(text, sizeof(text), statement->modifiers[i]);
	form = exec_form_find(text);
	if (!form) {
		snprintf(text, sizeof(text), "%s%s", statement->opcode, three ? "3" : "");
		for (uint32_t i = 0; i < statement->modifier_count; i++) {
			uint32_t flag = flag_find(statement->modifiers[i]);

			if (flag)
				flags |= flag;
			else
				form_append(text, sizeof(text), statement->modifiers[i]);
		}
		form = exec_form_find(text);
		if (!form)
			return false;
		if (flags & ~form->flags)
			decode_fail(d, "a modifier that this instruction does not have");
	}
	emit_form(d, form, flags & ~(uint32_t)(X_RN | X_APPROX | X_FULL));
	return true;
}

/* ---- mov ---- */

static void emit_mov(struct decoder *d, uint32_t dst, uint32_t src, uint32_t size)
{
	struct exec_insn *insn = decode_emit(d,
					     decode_form(d, size == 0	  ? "mov.pred"
							    : size == 2	  ? "mov.b16"
							    : size == 4	  ? "mov.b32"
							    : size == 8	  ? "mov.b64"
									  : "mov.b128"),
					     EXEC_ALU);

	insn->dst = dst;
	insn->src[0] = src;
}

static uint32_t emit_pack(struct decoder *d, const char *form, enum ptx_type type, uint32_t lo, uint32_t hi)
{
	uint32_t dst = decode_temp(d, type);
	struct exec_insn *insn = decode_emit(d, decode_form(d, form), EXEC_ALU);

	insn->dst = dst;
	insn->src[0] = lo;
	insn->src[1] = hi;
	return dst;
}

/* d = {a, b[, c, d]} */
static void decode_pack(struct decoder *d, enum ptx_type type)
{
	const struct ptx_operand *vector = decode_operand(d, 1);
	uint32_t size = ptx_type_size(type);
	uint32_t dst = decode_dest(d, decode_operand(d, 0), type);
	uint32_t parts[4];
	uint32_t slot;

	if (vector->count != 2 && vector->count != 4)
		decode_fail(d, "a vector of %u elements", vector->count);
	if (size / vector->count == 1) {
		decode_fail(d, "packing of bytes");
	} else if (size == 16 && vector->count == 2) {
		struct exec_insn *insn;

		parts[0] = decode_source(d, &vector->sub[0], T_B64);
		parts[1] = decode_source(d, &vector->sub[1], T_B64);
		insn = decode_emit(d, exec_pack_128, EXEC_ALU);
		insn->dst = dst;
		insn->src[0] = parts[0];
		insn->src[1] = parts[1];
		return;
	} else if (size == 8 && vector->count == 2) {
		for (int i = 0; i < 2; i++)
			parts[i] = decode_source(d, &vector->sub[i], T_B32);
		slot = emit_pack(d, "pack.2x32", T_B64, parts[0], parts[1]);
	} else if (size == 4 && vector->count == 2) {
		for (int i = 0; i < 2; i++)
			parts[i] = decode_source(d, &vector->sub[i], T_B16);
		slot = emit_pack(d, "pack.2x16", T_B32, parts[0], parts[1]);
	} else if (size == 8 && vector->count == 4) {
		uint32_t halves[2];

		for (int i = 0; i < 4; i++)
			parts[i] = decode_source(d, &vector->sub[i], T_B16);
		halves[0] = emit_pack(d, "pack.2x16", T_B32, parts[0], parts[1]);
		halves[1] = emit_pack(d, "pack.2x16", T_B32, parts[2], parts[3]);
		slot = emit_pack(d, "pack.2x32", T_B64, halves[0], halves[1]);
	} else {
		decode_fail(d, "packing of %u elements into %u bytes", vector->count, size);
	}
	emit_mov(d, dst, slot, size);
}

/* {a, b[, c, d]} = s */
static void decode_unpack(struct decoder *d, enum ptx_type type)
{
	const struct ptx_operand *vector = decode_operand(d, 0);
	uint32_t size = ptx_type_size(type);
	uint32_t src;
	uint32_t part;
	const char *form;
	enum ptx_type part_type;

	if (vector->count != 2 && vector->count != 4)
		decode_fail(d, "a vector of %u elements", vector->count);
	src = decode_source(d, decode_operand(d, 1), type);
	part = size / vector->count;
	if (size == 16 && part == 8) {
		uint32_t lo = decode_dest(d, &vector->sub[0], T_B64);
		uint32_t hi = decode_dest(d, &vector->sub[1], T_B64);
		struct exec_insn *insn = decode_emit(d, exec_unpack_128, EXEC_ALU);

		insn->dst = lo;
		insn->dst2 = hi;
		insn->src[0] = src;
		return;
	}
	if (size == 8 && part == 4) {
		form = "part.64.32";
		part_type = T_B32;
	} else if (size == 8 && part == 2) {
		form = "part.64.16";
		part_type = T_B16;
	} else if (size == 4 && part == 2) {
		form = "part.32.16";
		part_type = T_B16;
	} else if (size == 4 && part == 1) {
		form = "part.32.8";
		part_type = T_B8;
	} else if (size == 2 && part == 1) {
		form = "part.16.8";
		part_type = T_B8;
	} else {
		decode_fail(d, "taking %u bytes apart into %u", size, vector->count);
	}
	for (uint32_t i = 0; i < vector->count; i++) {
		struct exec_insn *insn;
		uint32_t dst;

		if (vector->sub[i].kind == OP_SINK)
			continue;
		dst = decode_dest(d, &vector->sub[i], part_type);
		insn = decode_emit(d, decode_form(d, form), EXEC_ALU);
		insn->dst = dst;
		insn->src[0] = src;
		insn->sub[0] = (uint8_t)(i * part * 8);
	}
}

static void decode_mov(struct decoder *d)
{
	enum ptx_type type = decode_type(d);
	uint32_t size = decode_register_size(type);
	const struct ptx_operand *dst;
	const struct ptx_operand *src;
	uint32_t from;

	decode_done(d);
	decode_count(d, 2, 2);
	dst = decode_operand(d, 0);
	src = decode_operand(d, 1);
	if (dst->kind == OP_VECTOR && src->kind == OP_VECTOR) { /* vector registers */
		for (uint32_t i = 0; i < dst->count && i < src->count; i++) {
			from = decode_source(d, &src->sub[i], type);
			emit_mov(d, decode_dest(d, &dst->sub[i], type), from, size);
		}
		return;
	}
	if (dst->kind == OP_VECTOR) {
		decode_unpack(d, type);
		return;
	}
	if (src->kind == OP_VECTOR) {
		decode_pack(d, type);
		return;
	}
	if (src->kind == OP_SREG && type != T_PRED && ptx_sreg_size((int)src->value) && !ptx_sreg_grid((int)src->value)) {
		uint32_t to = decode_dest(d, dst, type);
		struct exec_insn *insn = decode_emit(d, exec_sreg, EXEC_ALU);

		insn->dst = to;
		insn->sub[0] = (uint8_t)src->value;
		insn->sub[1] = (uint8_t)size;
		return;
	}
	from = decode_source(d, src, type);
	emit_mov(d, decode_dest(d, dst, type), from, type == T_PRED ? 0 : size);
}

/* ---- setp, set ---- */

static const char *const comparisons[] = {
	"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
};
static const char *const unsigned_comparisons[] = { "", "", "lo", "ls", "hi", "hs" };

static uint8_t take_comparison(struct decoder *d)
{
	for (unsigned int i = 0; i < sizeof(comparisons) / sizeof(*comparisons); i++)
		if (decode_take(d, comparisons[i]))
			return (uint8_t)i;
	for (unsigned int i = 2; i < 6; i++)
		if (decode_take(d, unsigned_comparisons[i]))
			return (uint8_t)i;
	decode_fail(d, "no comparison");
}

static uint8_t take_combination(struct decoder *d)
{
	return decode_take(d, "and") ? 1 : decode_take(d, "or") ? 2 : decode_take(d, "xor") ? 3 : 0;
}

static void decode_setp(struct decoder *d, bool set)
{
	uint32_t flags = take_flags(d);
	uint8_t comparison = take_comparison(d);
	uint8_t combination = take_combination(d);
	enum ptx_type to = set ? decode_type(d) : T_PRED;
	enum ptx_type type = decode_type(d);
	exec_fn fn = set ? exec_lanes()->set(type) : exec_lanes()->setp(type);
	const struct ptx_operand *result = decode_operand(d, 0);
	uint32_t dst2 = 0;
	uint32_t dst;
	uint32_t src[3] = { 0 };
	struct exec_insn *insn;
	bool pair = result->kind == OP_PAIR;

	decode_done(d);
	decode_count(d, combination ? 4 : 3, combination ? 4 : 3);
	if (!fn || flags & ~(uint32_t)X_FTZ || (comparison > 5 && !ptx_type_float(type)))
		decode_fail(d, "no such comparison");
	src[0] = decode_source(d, decode_operand(d, 1), type);
	src[1] = decode_source(d, decode_operand(d, 2), type);
	if (combination)
		src[2] = decode_source(d, decode_operand(d, 3), T_PRED);
	if (pair && set)
		decode_fail(d, "two results");
	dst = decode_dest(d, pair ? &result->sub[0] : result, to);
	if (pair)
		dst2 = decode_dest(d, &result->sub[1], T_PRED);
	insn = decode_emit(d, fn, EXEC_ALU);
	insn->dst = dst;
	insn->dst2 = dst2;
	memcpy(insn->src, src, sizeof(src));
	insn->flags = (uint16_t)flags;
	insn->sub[0] = comparison;
	insn->sub[1] = combination;
	insn->sub[2] = pair;
	if (set) {
		insn->sub[2] = to == T_F32 ? 1 : to == T_F16 || to == T_F16X2 ? 2 : to == T_BF16 || to == T_BF16X2 ? 3 : 0;
		insn->sub[3] = (uint8_t)decode_register_size(to);
	}
}

/* ---- cvt and addresses ---- */

static void decode_cvt_pack(struct decoder *d)
{
	enum ptx_type to;
	enum ptx_type from;
	uint32_t src[3] = { 0 };
	uint32_t dst;
	struct exec_insn *insn;
	bool third;

	if (!decode_take(d, "sat"))
		decode_fail(d, "cvt.pack without .sat");
	to = decode_type(d);
	from = decode_type(d);
	third = decode_take(d, "b32");
	decode_done(d);
	decode_count(d, third ? 4 : 3, third ? 4 : 3);
	if (ptx_type_size(to) > 2 || (from != T_S32 && from != T_U32))
		decode_fail(d, "no such packing");
	for (uint32_t i = 0; i < (third ? 3u : 2u); i++)
		src[i] = decode_source(d, decode_operand(d, i + 1), T_B32);
	dst = decode_dest(d, decode_operand(d, 0), T_B32);
	insn = decode_emit(d, decode_form(d, "cvt.pack"), EXEC_ALU);
	insn->dst = dst;
	memcpy(insn->src, src, sizeof(src));
	insn->sub[0] = (uint8_t)to;
	insn->sub[1] = (uint8_t)from;
	insn->sub[2] = third;
}

static void decode_cvt(struct decoder *d)
{
	struct exec_insn draft = { 0 };
	struct exec_insn *insn;
	uint32_t size = 0;
	enum ptx_type to;
	enum ptx_type from;
	bool pair;

	if (decode_take(d, "pack")) {
		decode_cvt_pack(d);
		return;
	}
	draft.flags = (uint16_t)take_flags(d);
	draft.imm = decode_take(d, "satfinite");
	to = decode_type(d);
	from = decode_type(d);
	decode_done(d);
	pair = (to == T_F16X2 || to == T_BF16X2 || to == T_E4M3X2 || to == T_E5M2X2) && from == T_F32;
	decode_count(d, pair ? 3 : 2, pair ? 3 : 2);
	draft.src[0] = decode_wide_source(d, decode_operand(d, 1), from, &size);
	draft.sub[3] = (uint8_t)size;
	if (pair)
		draft.src[1] = decode_source(d, decode_operand(d, 2), from);
	draft.dst = decode_wide_dest(d, decode_operand(d, 0), to, &size);
	draft.sub[2] = (uint8_t)size;
	draft.sub[0] = (uint8_t)to;
	draft.sub[1] = (uint8_t)from;
	draft.fn = exec_lanes()->cvt(&draft);
	if (!draft.fn)
		decode_fail(d, "no such conversion");
	insn = decode_emit(d, draft.fn, EXEC_ALU);
	insn->dst = draft.dst;
	memcpy(insn->src, draft.src, sizeof(draft.src));
	memcpy(insn->sub, draft.sub, sizeof(draft.sub));
	insn->flags = draft.flags;
	insn->imm = draft.imm;
}

static const uint64_t windows[] = {
	[X_GENERIC] = 0, [X_GLOBAL] = 0, [X_SHARED] = PTX_WINDOW_SHARED, [X_LOCAL] = PTX_WINDOW_LOCAL,
	[X_PARAM] = PTX_WINDOW_PARAM, [X_CONST] = 0,
};

static void decode_cvta(struct decoder *d)
{
	bool to = decode_take(d, "to");
	enum exec_space space = decode_space(d);
	enum ptx_type type = decode_type(d);
	uint32_t size = ptx_type_size(type);
	uint64_t window;
	uint32_t src;
	uint32_t dst;
	uint32_t offset;
	struct exec_insn *insn;

	decode_done(d);
	decode_count(d, 2, 2);
	if (space == X_GENERIC || (size != 8 && size != 4))
		decode_fail(d, "which space?");
	if (space == X_PARAM && !d->function->is_entry)
		space = X_LOCAL;
	window = windows[space];
	src = decode_source(d, decode_operand(d, 1), type);
	dst = decode_dest(d, decode_operand(d, 0), type);
	if (!window || size == 4) {
		emit_mov(d, dst, src, size);
		return;
	}
	offset = decode_const(d, window, 8);
	insn = decode_emit(d, decode_form(d, to ? "sub.u64" : "add.u64"), EXEC_ALU);
	insn->dst = dst;
	insn->src[0] = src;
	insn->src[1] = offset;
}

static void decode_isspacep(struct decoder *d)
{
	enum exec_space space = decode_space(d);
	uint32_t src;
	uint32_t dst;
	struct exec_insn *insn;

	decode_done(d);
	decode_count(d, 2, 2);
	if (space == X_GENERIC)
		decode_fail(d, "which space?");
	src = decode_source(d, decode_operand(d, 1), T_B64);
	dst = decode_dest(d, decode_operand(d, 0), T_PRED);
	insn = decode_emit(d, exec_isspacep, EXEC_ALU);
	insn->dst = dst;
	insn->src[0] = src;
	insn->sub[0] = (uint8_t)space;
}

bool decode_alu(struct decoder *d)
{
	const char *opcode = d->statement->opcode;

	if (!strcmp(opcode, "mov")) {
		decode_mov(d);
		return true;
	}
	if (!strcmp(opcode, "setp") || !strcmp(opcode, "set")) {
		decode_setp(d, opcode[3] == 0);
		return true;
	}
	if (!strcmp(opcode, "cvt")) {
		decode_cvt(d);
		return true;
	}
	if (!strcmp(opcode, "cvta")) {
		decode_cvta(d);
		return true;
	}
	if (!strcmp(opcode, "isspacep")) {
		decode_isspacep(d);
		return true;
	}
	return decode_plain(d);
}
