/* SPDX-License-Identifier: Apache-2.0 */
/* From statements to instructions: operands, constants, addresses. The families are in ptx_decode_*.c. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "broker/softgpu/ptx_decode.h"

struct ptx_const {
	uint64_t value;
	uint32_t size;
	uint32_t slot; /* 0: empty */
};

#define CONSTS_SIZE_MAX (1u << 30) /* 31 bits name a place in them */

_Noreturn void decode_fail(struct decoder *d, const char *format, ...)
{
	const struct ptx_statement *statement = d->statement;
	char what[PTX_NAME_SHOWN / 2];
	va_list args;
	int size;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	d->module->source = d->function->source;
	size = statement && statement->text_size < 100 ? (int)statement->text_size : 100;
	ptx_fail(d->module, PTX_UNSUPPORTED, statement ? statement->line : 0, statement ? statement->column : 0,
		 "%s: %.*s", what, statement ? size : 0, statement ? statement->text : "");
}

bool decode_take(struct decoder *d, const char *name)
{
	for (uint32_t i = 0; i < d->statement->modifier_count; i++)
		if (!(d->taken >> i & 1) && !strcmp(d->statement->modifiers[i], name)) {
			d->taken |= 1u << i;
			return true;
		}
	return false;
}

const char *decode_next(struct decoder *d)
{
	for (uint32_t i = 0; i < d->statement->modifier_count; i++)
		if (!(d->taken >> i & 1))
			return d->statement->modifiers[i];
	return NULL;
}

enum ptx_type decode_type(struct decoder *d)
{
	for (uint32_t i = 0; i < d->statement->modifier_count; i++) {
		enum ptx_type type = d->taken >> i & 1 ? T_NONE : ptx_type_find(d->statement->modifiers[i]);

		if (type != T_NONE) {
			d->taken |= 1u << i;
			return type;
		}
	}
	decode_fail(d, "no type");
}

void decode_done(struct decoder *d)
{
	const char *left = decode_next(d);

	if (left)
		decode_fail(d, "'.%s' is not something we can do here", left);
}

void decode_count(struct decoder *d, uint32_t least, uint32_t most)
{
	if (d->statement->operand_count < least || d->statement->operand_count > most)
		decode_fail(d, "%u operands", d->statement->operand_count);
}

const struct ptx_operand *decode_operand(struct decoder *d, uint32_t index)
{
	if (index >= d->statement->operand_count)
		decode_fail(d, "too few operands");
	return &d->statement->operands[index];
}

uint32_t decode_register_size(enum ptx_type type)
{
	uint32_t size = ptx_type_size(type);

	return size == 1 ? 2 : size;
}

uint32_t decode_temp(struct decoder *d, enum ptx_type type)
{
	return ptx_slot_new(d->module, d->function, type);
}

static uint32_t const_place(struct decoder *d, uint32_t size)
{
	struct ptx_module *module = d->module;
	uint32_t bytes = size ? size * EXEC_LANES : 64;
	uint32_t place;

	if (bytes < 64)
		bytes = 64;
	place = module->const_size;
	if (place > CONSTS_SIZE_MAX - bytes)
		decode_fail(d, "too many constants");
	if (place + bytes > module->const_room) {
		uint32_t room = module->const_room ? module->const_room * 2 : 65536;
		uint8_t *bigger = ptx_alloc(module, room + 64);

		bigger += (64 - (uintptr_t)bigger % 64) % 64;
		if (place)
			memcpy(bigger, module->consts, place);
		module->consts = bigger;
		module->const_room = room;
	}
	module->const_size += bytes;
	return place;
}

static void const_fill(uint8_t *at, uint64_t value, uint32_t size)
{
	if (!size) {
		uint32_t bits = value ? EXEC_FULL : 0;

		memcpy(at, &bits, sizeof(bits));
		return;
	}
	for (uint32_t i = 0; i < EXEC_LANES; i++)
		memcpy(at + i * size, &value, size > 8 ? 8 : size);
}

uint32_t decode_const(struct decoder *d, uint64_t value, uint32_t size)
{
	struct ptx_module *module = d->module;
	uint64_t at;
	uint32_t place;

	if (size && size < 8)
		value &= (1ull << size * 8) - 1;
	if (!size)
		value = value != 0;
	if (module->const_count * 2 >= module->const_table_room) {
		uint32_t room = module->const_table_room ? module->const_table_room * 2 : 256;
		struct ptx_const *table = ptx_alloc(module, room * sizeof(*table));

		for (uint32_t i = 0; i < module->const_table_room; i++) {
			struct ptx_const *one = &module->const_table[i];

			if (!one->slot)
				continue;
			at = (one->value * 0x9e3779b97f4a7c15ull >> 32 ^ one->size) & (room - 1);
			while (table[at].slot)
				at = (at + 1) & (room - 1);
			table[at] = *one;
		}
		module->const_table = table;
		module->const_table_room = room;
	}
	at = (value * 0x9e3779b97f4a7c15ull >> 32 ^ size) & (module->const_table_room - 1);
	for (; module->const_table[at].slot; at = (at + 1) & (module->const_table_room - 1))
		if (module->const_table[at].value == value && module->const_table[at].size == size)
			return module->const_table[at].slot;
	place = const_place(d, size);
	const_fill(module->consts + place, value, size);
	module->const_table[at] = (struct ptx_const){ .value = value, .size = size, .slot = place | 1u << 31 };
	module->const_count++;
	return place | 1u << 31;
}

/* ---- instructions ---- */

struct exec_insn *decode_emit(struct decoder *d, exec_fn fn, enum exec_kind kind)
{
	struct ptx_module *module = d->module;
	uint32_t count = module->code_count;
	struct exec_insn *insn;

	if (count >= PTX_INSN_COUNT_MAX)
		decode_fail(d, "more than %u instructions", PTX_INSN_COUNT_MAX);
	if (count == module->code_room) {
		uint32_t room = module->code_room;

		module->code_text = ptx_grow(module, module->code_text, count, &room, sizeof(*module->code_text));
		room = module->code_room;
		module->code_text_size =
			ptx_grow(module, module->code_text_size, count, &room, sizeof(*module->code_text_size));
		module->code = ptx_grow(module, module->code, count, &module->code_room, sizeof(*module->code));
	}
	insn = &module->code[count];
	memset(insn, 0, sizeof(*insn));
	insn->fn = fn;
	insn->kind = (uint8_t)kind;
	if (d->statement) {
		insn->line = d->statement->line;
		module->code_text[count] = d->statement->text;
		module->code_text_size[count] = d->statement->text_size;
		if (d->statement->guarded) {
			insn->guard = d->statement->guard_slot;
			insn->guard_mode = d->statement->guard_negated ? 2 : 1;
		}
	} else {
		module->code_text[count] = "";
		module->code_text_size[count] = 0;
	}
	module->code_count++;
	return insn;
}

exec_fn decode_form(struct decoder *d, const char *text)
{
	const struct exec_form *form = exec_form_find(text);

	if (!form)
		decode_fail(d, "no form %s", text);
	return form->fn;
}

/* ---- operands ---- */

struct ptx_symbol *decode_symbol(struct decoder *d, const struct ptx_operand *operand)
{
	struct ptx_symbol *symbol = operand->symbol;

	if (!symbol)
		symbol = ptx_symbol_lookup(d->module, d->statement->scope, operand->name);
	if (!symbol)
		ptx_fail(d->module, PTX_SYNTAX, d->statement->line, d->statement->column, "%s is not declared",
			 operand->name);
	return ptx_symbol_real(symbol);
}

static bool is_kernel_param(const struct decoder *d, const struct ptx_symbol *symbol)
{
	return symbol->where == IN_PARAM && d->function->is_entry && !symbol->function;
}

static uint32_t fixup_const(struct decoder *d, struct ptx_symbol *symbol, int64_t addend, uint32_t size)
{
	struct ptx_fixup *fixup = ptx_alloc(d->module, sizeof(*fixup));
	uint32_t place = const_place(d, size);

	fixup->symbol = symbol;
	fixup->addend = addend;
	fixup->offset = place;
	fixup->size = (uint8_t)size;
	fixup->next = d->module->fixups;
	d->module->fixups = fixup;
	return place | 1u << 31;
}

/* A variable's or function's address as a value. */
static uint32_t address_source(struct decoder *d, const struct ptx_operand *operand, uint32_t size)
{
	struct ptx_symbol *symbol = decode_symbol(d, operand);
	struct exec_insn *insn;
	uint32_t slot;

	if (size != 4 && size != 8)
		decode_fail(d, "an address of %u bytes", size);
	if (symbol->kind == SYM_FUNCTION) {
		if (!symbol->function || !symbol->function->has_body)
			decode_fail(d, "the address of %s, which is not ours", symbol->name);
		return decode_const(d, ptx_functions_at() + 16 * (symbol->function->index + 1ull), size);
	}
	if (symbol->kind != SYM_VAR)
		decode_fail(d, "%s has no address", symbol->name);
	switch (symbol->where) {
	case IN_GLOBAL:
	case IN_CONST:
		return fixup_const(d, symbol, operand->value, size);
	case IN_SHARED:
		if (symbol->defined && symbol->size)
			return decode_const(d, symbol->offset + (uint64_t)operand->value, size);
		slot = decode_temp(d, size == 4 ? T_B32 : T_B64);
		insn = decode_emit(d, exec_dynamic_address, EXEC_ALU);
		break;
	default:
		if (is_kernel_param(d, symbol))
			return decode_const(d, symbol->offset + (uint64_t)operand->value, size);
		slot = decode_temp(d, size == 4 ? T_B32 : T_B64);
		insn = decode_emit(d, exec_stack_address, EXEC_ALU);
		insn->imm = (int64_t)symbol->offset;
	}
	insn->dst = slot;
	insn->sub[1] = (uint8_t)size;
	insn->imm += operand->value;
	insn->guard_mode = 0;
	return slot;
}

static uint64_t immediate(struct decoder *d, const struct ptx_operand *operand, enum ptx_type type)
{
	double real = 0;
	float single;
	uint64_t bits = 0;

	if (operand->kind == OP_F32) {
		uint32_t pattern = (uint32_t)operand->value;

		if (type != T_F64)
			return pattern;
		memcpy(&single, &pattern, sizeof(single));
		real = (double)single;
	} else if (operand->kind == OP_F64) {
		memcpy(&real, &operand->value, sizeof(real));
		if (type == T_F32 || ptx_type_size(type) == 4) {
			single = (float)real;
			memcpy(&bits, &single, sizeof(single));
			return bits;
		}
		return (uint64_t)operand->value;
	} else if (type == T_F32 || type == T_F64) {
		real = (double)operand->value;
		if (type == T_F32) {
			single = (float)real;
			memcpy(&bits, &single, sizeof(single));
			return bits;
		}
	} else {
		return (uint64_t)operand->value;
	}
	memcpy(&bits, &real, sizeof(bits));
	return bits;
}

uint32_t decode_wide_source(struct decoder *d, const struct ptx_operand *operand, enum ptx_type type,
			    uint32_t *size_out)
{
	uint32_t size = decode_register_size(type);
	struct exec_insn *insn;
	uint32_t slot;

	*size_out = size;
	switch (operand->kind) {
	case OP_REG:
		if ((operand->type == T_PRED) != (type == T_PRED))
			decode_fail(d, "a predicate where there must be none, or the reverse");
		*size_out = decode_register_size(operand->type);
		if (*size_out < size)
			decode_fail(d, "a register of %u bytes for a value of %u", *size_out, size);
		if (!operand->negated)
			return operand->slot;
		if (type != T_PRED)
			decode_fail(d, "'!' before what is no predicate");
		slot = decode_temp(d, T_PRED);
		insn = decode_emit(d, decode_form(d, "not.pred"), EXEC_ALU);
		insn->dst = slot;
		insn->src[0] = operand->slot;
		return slot;
	case OP_INT:
	case OP_F32:
	case OP_F64:
		if (operand->negated && type == T_PRED)
			return decode_const(d, !operand->value, 0);
		return decode_const(d, immediate(d, operand, type), size);
	case OP_SREG:
		if (ptx_sreg_pred((int)operand->value) != (type == T_PRED))
			decode_fail(d, "a special register of another kind");
		if (ptx_sreg_grid((int)operand->value))
			d->function->grid_sync = true;
		slot = decode_temp(d, type == T_PRED ? T_PRED : size == 8 ? T_B64 : size == 4 ? T_B32 : T_B16);
		insn = decode_emit(d, exec_sreg, EXEC_ALU);
		insn->dst = slot;
		insn->sub[0] = (uint8_t)operand->value;
		insn->sub[1] = (uint8_t)size;
		insn->guard_mode = 0;
		return slot;
	case OP_NAME:
		return address_source(d, operand, size);
	default:
		decode_fail(d, "an operand of another kind");
	}
}

uint32_t decode_source(struct decoder *d, const struct ptx_operand *operand, enum ptx_type type)
{
	uint32_t size;
	uint32_t slot = decode_wide_source(d, operand, type, &size);

	if (size != decode_register_size(type))
		decode_fail(d, "a register of %u bytes for a value of %u", size, decode_register_size(type));
	return slot;
}

uint32_t decode_wide_dest(struct decoder *d, const struct ptx_operand *operand, enum ptx_type type,
			  uint32_t *size_out)
{
	*size_out = decode_register_size(type);
	if (operand->kind == OP_SINK)
		return decode_temp(d, type);
	if (operand->kind != OP_REG || operand->negated)
		decode_fail(d, "the result must be a register");
	if ((operand->type == T_PRED) != (type == T_PRED))
		decode_fail(d, "a predicate where there must be none, or the reverse");
	if (decode_register_size(operand->type) < *size_out)
		decode_fail(d, "a register too small for the result");
	*size_out = decode_register_size(operand->type);
	return operand->slot;
}

uint32_t decode_dest(struct decoder *d, const struct ptx_operand *operand, enum ptx_type type)
{
	uint32_t size;
	uint32_t slot = decode_wide_dest(d, operand, type, &size);

	if (size != decode_register_size(type))
		decode_fail(d, "a result of %u bytes for a register of %u", decode_register_size(type), size);
	return slot;
}

enum exec_space decode_space(struct decoder *d)
{
	if (decode_take(d, "global"))
		return X_GLOBAL;
	if (decode_take(d, "shared") || decode_take(d, "shared::cta") || decode_take(d, "shared::cluster"))
		return X_SHARED;
	if (decode_take(d, "local"))
		return X_LOCAL;
	if (decode_take(d, "param") || decode_take(d, "param::entry") || decode_take(d, "param::func"))
		return X_PARAM;
	if (decode_take(d, "const"))
		return X_CONST;
	return X_GENERIC;
}

enum exec_space decode_address(struct decoder *d, const struct ptx_operand *operand, enum exec_space space,
			       struct exec_insn *insn)
{
	const struct ptx_operand *base = operand->sub;
	struct ptx_symbol *symbol;
	struct ptx_operand plain;

	if (operand->kind != OP_MEM)
		decode_fail(d, "an address must be in brackets");
	insn->imm = operand->value;
	insn->src[0] = 0;
	/* a device function's parameters are in its stack frame */
	if (space == X_PARAM && !d->function->is_entry)
		space = X_LOCAL;
	switch (base->kind) {
	case OP_REG:
		if (ptx_type_size(base->type) != 4 && ptx_type_size(base->type) != 8)
			decode_fail(d, "an address of %u bytes", ptx_type_size(base->type));
		insn->src[0] = base->slot;
		insn->sub[3] = ptx_type_size(base->type) == 4 ? X_BASE_32 : X_BASE_64;
		return space;
	case OP_INT:
		insn->imm += base->value;
		insn->sub[3] = X_BASE_NONE;
		return space;
	case OP_NAME:
		break;
	default:
		decode_fail(d, "an address of another kind");
	}
	symbol = decode_symbol(d, base);
	if (symbol->kind != SYM_VAR)
		decode_fail(d, "%s is no variable", symbol->name);
	insn->imm += base->value;
	switch (symbol->where) {
	case IN_GLOBAL:
	case IN_CONST:
		insn->src[0] = fixup_const(d, symbol, 0, 8);
		insn->sub[3] = X_BASE_64;
		return symbol->where == IN_GLOBAL ? X_GLOBAL : X_CONST;
	case IN_SHARED:
		if (symbol->defined && symbol->size) {
			insn->imm += (int64_t)symbol->offset;
			insn->sub[3] = X_BASE_NONE;
			return X_SHARED;
		}
		plain = *base;
		plain.value = 0;
		insn->src[0] = address_source(d, &plain, 4);
		insn->sub[3] = X_BASE_32;
		return X_SHARED;
	default:
		insn->imm += (int64_t)symbol->offset;
		if (is_kernel_param(d, symbol)) {
			insn->sub[3] = X_BASE_NONE;
			return X_PARAM;
		}
		insn->sub[3] = X_BASE_STACK;
		return X_LOCAL;
	}
}

/* ---- functions ---- */

static void decode_function(struct ptx_module *module, struct ptx_function *function)
{
	struct decoder decoder = { .module = module, .function = function };
	struct decoder *d = &decoder;

	module->source = function->source;
	function->pc = module->code_count;
	decode_prologue(d);
	for (const struct ptx_statement *statement = function->statements; statement; statement = statement->next) {
		d->statement = statement;
		d->taken = 0;
		if (statement->label) {
			statement->label->pc = module->code_count;
			continue;
		}
		if (!decode_flow(d) && !decode_memory(d) && !decode_sync(d) && !decode_texture(d) &&
		    !decode_matrix(d) && !decode_alu(d))
			decode_fail(d, "unknown instruction");
	}
	/* Whatever runs off the end returns. */
	d->statement = NULL;
	decode_emit(d, NULL, function->is_entry ? EXEC_EXIT : EXEC_RETURN);
	function->pc_end = module->code_count;
	for (struct decode_branch *branch = d->branches; branch; branch = branch->next) {
		if (branch->place)
			*branch->place = branch->label->pc;
		else
			module->code[branch->insn].target = branch->label->pc;
	}
	function->frame_size = (function->frame_size + 63) & ~63u;
}

void ptx_decode(struct ptx_module *module)
{
	for (struct ptx_function *function = module->functions; function; function = function->next)
		decode_function(module, function);
}
