/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes textures and surfaces: tex, tld4, suld, sust, txq, suq. */
#include <string.h>

#include "broker/softgpu/exec_memory.h"
#include "broker/softgpu/exec_texture.h"
#include "broker/softgpu/ptx_decode.h"

struct geometry {
	const char *name;
	enum ptx_geometry geometry;
	uint8_t coordinates;
	bool layered;
};

static const struct geometry geometries[] = {
	{ "1d", PTX_1D, 1, false },	    { "2d", PTX_2D, 2, false },	   { "3d", PTX_3D, 3, false },
	{ "a1d", PTX_1D_ARRAY, 1, true },   { "a2d", PTX_2D_ARRAY, 2, true }, { "cube", PTX_CUBE, 3, false },
	{ "acube", PTX_CUBE_ARRAY, 3, true },
};

static const struct geometry *take_geometry(struct decoder *d)
{
	for (unsigned int i = 0; i < sizeof(geometries) / sizeof(*geometries); i++)
		if (decode_take(d, geometries[i].name))
			return &geometries[i];
	decode_fail(d, "no geometry");
}

static uint32_t table_new(struct decoder *d, const uint32_t *slots)
{
	struct ptx_module *module = d->module;
	uint32_t *table = ptx_alloc(module, TEXTURE_SLOTS * sizeof(*table));

	memcpy(table, slots, TEXTURE_SLOTS * sizeof(*table));
	module->tables = ptx_grow(module, module->tables, module->table_count, &module->table_room, sizeof(*module->tables));
	module->tables[module->table_count] = table;
	return module->table_count++;
}

/* The handle: a register, or a .texref and its like, whose 8 bytes are the handle. */
static uint32_t decode_handle(struct decoder *d, const struct ptx_operand *operand)
{
	const struct ptx_operand *base = operand->sub;
	struct ptx_operand address;
	struct exec_insn draft = { 0 };
	struct exec_insn *insn;
	uint32_t slot;

	if (operand->kind != OP_MEM || operand->value)
		decode_fail(d, "a texture must be in brackets");
	if (base->kind == OP_REG)
		return decode_source(d, base, T_B64);
	address = *operand;
	if (decode_address(d, &address, X_GLOBAL, &draft) != X_GLOBAL)
		decode_fail(d, "a texture that is none");
	slot = decode_temp(d, T_B64);
	insn = decode_emit(d, exec_load, EXEC_ALU);
	insn->dst = slot;
	insn->src[0] = draft.src[0];
	insn->imm = draft.imm;
	insn->flags = X_GLOBAL;
	insn->sub[0] = 8;
	insn->sub[1] = 8;
	insn->sub[2] = 1;
	insn->sub[3] = draft.sub[3];
	return slot;
}

static void decode_coordinates(struct decoder *d, const struct ptx_operand *operand, const struct geometry *geometry,
			       enum ptx_type type, uint32_t *slots)
{
	const struct ptx_operand *vector = &operand->sub[operand->count - 1];
	const struct ptx_operand *one = vector->kind == OP_VECTOR ? vector->sub : vector;
	uint32_t count = vector->kind == OP_VECTOR ? vector->count : 1;
	uint32_t at = 0;

	/* a sampler of its own between them belongs to another mode than ours: handles carry theirs */
	if (operand->count < 2 || count < geometry->coordinates + (geometry->layered ? 1u : 0u))
		decode_fail(d, "too few coordinates");
	if (geometry->layered)
		slots[7] = decode_source(d, &one[at++], T_B32);
	for (uint32_t i = 0; i < geometry->coordinates; i++)
		slots[4 + i] = decode_source(d, &one[at++], type);
}

static uint32_t decode_values(struct decoder *d, const struct ptx_operand *operand, uint32_t count, enum ptx_type type,
			      bool source, uint32_t *slots)
{
	const struct ptx_operand *one = operand->kind == OP_VECTOR ? operand->sub : operand;
	uint32_t size = decode_register_size(type);

	if ((operand->kind == OP_VECTOR ? operand->count : 1) != count)
		decode_fail(d, "%u elements were expected", count);
	for (uint32_t i = 0; i < count; i++) {
		if (source)
			slots[i] = decode_source(d, &one[i], type);
		else if (one[i].kind != OP_SINK)
			slots[i] = decode_dest(d, &one[i], type);
	}
	return size;
}

static void emit_texture(struct decoder *d, const struct exec_insn *draft, const uint32_t *slots)
{
	uint32_t table = table_new(d, slots);
	struct exec_insn *insn = decode_emit(d, exec_texture, EXEC_ALU);

	insn->src[0] = draft->src[0];
	insn->dst2 = draft->dst2;
	insn->flags = draft->flags;
	memcpy(insn->sub, draft->sub, sizeof(insn->sub));
	insn->target = table;
}

static void decode_tex(struct decoder *d, bool gather)
{
	uint32_t slots[TEXTURE_SLOTS];
	struct exec_insn draft = { 0 };
	const struct geometry *geometry;
	enum ptx_type type;
	enum ptx_type coord_type = T_F32;
	const struct ptx_operand *where;
	bool level;

	memset(slots, 0xff, sizeof(slots));
	draft.sub[0] = gather ? PTX_TLD4 : PTX_TEX;
	if (gather) {
		static const char *const components[] = { "r", "g", "b", "a" };
		uint8_t i;

		for (i = 0; i < 4 && !decode_take(d, components[i]); i++)
			;
		draft.sub[3] = i & 3;
	}
	(void)decode_take(d, "base");
	level = decode_take(d, "level");
	geometry = take_geometry(d);
	if (!decode_take(d, "v4"))
		decode_fail(d, "a result other than .v4");
	type = decode_type(d);
	coord_type = decode_type(d);
	decode_done(d);
	if ((type != T_F32 && type != T_S32 && type != T_U32) || (coord_type != T_F32 && coord_type != T_S32))
		decode_fail(d, "a result or coordinates of another type");
	decode_count(d, level ? 3 : 2, level ? 3 : 2);
	where = decode_operand(d, 1);
	draft.src[0] = decode_handle(d, where);
	decode_coordinates(d, where, geometry, coord_type == T_F32 ? T_F32 : T_B32, slots);
	if (level)
		slots[8] = decode_source(d, decode_operand(d, 2), coord_type == T_F32 ? T_F32 : T_B32);
	draft.dst2 = decode_values(d, decode_operand(d, 0), 4, T_B32, false, slots);
	draft.sub[1] = (uint8_t)geometry->geometry;
	draft.sub[2] = (uint8_t)((coord_type == T_F32 ? TEXTURE_COORD_FLOAT : 0) | (type == T_F32 ? TEXTURE_RESULT_FLOAT : 0));
	draft.flags = 4 | 4 << 8;
	emit_texture(d, &draft, slots);
}

static void decode_surface(struct decoder *d, bool store)
{
	uint32_t slots[TEXTURE_SLOTS];
	struct exec_insn draft = { 0 };
	const struct geometry *geometry;
	enum ptx_type type;
	uint32_t count;
	const struct ptx_operand *where;

	memset(slots, 0xff, sizeof(slots));
	if (!decode_take(d, "b"))
		decode_fail(d, "formatted access");
	draft.sub[0] = store ? PTX_SUST : PTX_SULD;
	geometry = take_geometry(d);
	(void)(decode_take(d, "ca") || decode_take(d, "cg") || decode_take(d, "cs") || decode_take(d, "cv") ||
	       decode_take(d, "wb") || decode_take(d, "wt"));
	count = decode_take(d, "v2") ? 2 : decode_take(d, "v4") ? 4 : 1;
	draft.sub[2] = decode_take(d, "trap") ? TEXTURE_TRAP : decode_take(d, "zero") ? TEXTURE_ZERO : 0;
	(void)decode_take(d, "clamp");
	type = decode_type(d);
	decode_done(d);
	decode_count(d, 2, 2);
	where = decode_operand(d, store ? 0 : 1);
	draft.src[0] = decode_handle(d, where);
	decode_coordinates(d, where, geometry, T_B32, slots);
	draft.dst2 = decode_values(d, decode_operand(d, store ? 1 : 0), count, type, store, slots);
	draft.sub[1] = (uint8_t)geometry->geometry;
	draft.flags = (uint16_t)(ptx_type_size(type) | count << 8);
	emit_texture(d, &draft, slots);
}

static void decode_query(struct decoder *d)
{
	static const char *const queries[] = { "width", "height", "depth", "channel_data_type", "channel_order" };
	uint32_t slots[TEXTURE_SLOTS];
	struct exec_insn draft = { 0 };
	uint8_t i;

	memset(slots, 0xff, sizeof(slots));
	for (i = 0; i < 5 && !decode_take(d, queries[i]); i++)
		;
	if (i == 5 || !decode_take(d, "b32"))
		decode_fail(d, "another query");
	decode_done(d);
	decode_count(d, 2, 2);
	draft.sub[0] = PTX_TXQ;
	draft.sub[3] = i;
	draft.src[0] = decode_handle(d, decode_operand(d, 1));
	draft.dst2 = decode_values(d, decode_operand(d, 0), 1, T_B32, false, slots);
	draft.flags = 4 | 1 << 8;
	emit_texture(d, &draft, slots);
}

bool decode_texture(struct decoder *d)
{
	const char *opcode = d->statement->opcode;

	if (!strcmp(opcode, "tex"))
		decode_tex(d, false);
	else if (!strcmp(opcode, "tld4"))
		decode_tex(d, true);
	else if (!strcmp(opcode, "suld"))
		decode_surface(d, false);
	else if (!strcmp(opcode, "sust"))
		decode_surface(d, true);
	else if (!strcmp(opcode, "txq") || !strcmp(opcode, "suq"))
		decode_query(d);
	else
		return false;
	return true;
}
