/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes branches, calls, returns, traps. */
#include <string.h>

#include "broker/softgpu/ptx_decode.h"

static const struct ptx_symbol *label_of(struct decoder *d, const struct ptx_operand *operand)
{
	const struct ptx_symbol *symbol;

	if (operand->kind != OP_NAME)
		decode_fail(d, "a label was expected");
	symbol = decode_symbol(d, operand);
	if (symbol->kind != SYM_LABEL || symbol->function != d->function)
		decode_fail(d, "%s is no label here", operand->name);
	return symbol;
}

static void branch_to(struct decoder *d, const struct ptx_symbol *label, uint32_t insn, uint32_t *place)
{
	struct decode_branch *branch = ptx_alloc(d->module, sizeof(*branch));

	branch->label = label;
	branch->insn = insn;
	branch->place = place;
	branch->next = d->branches;
	d->branches = branch;
}

static void decode_bra(struct decoder *d)
{
	(void)decode_take(d, "uni");
	decode_done(d);
	decode_count(d, 1, 1);
	branch_to(d, label_of(d, decode_operand(d, 0)), d->module->code_count, NULL);
	decode_emit(d, NULL, EXEC_BRANCH);
}

static void decode_brx(struct decoder *d)
{
	struct ptx_module *module = d->module;
	const struct ptx_symbol *targets;
	const struct ptx_operand *list;
	struct exec_insn *insn;
	uint32_t *table;
	uint32_t slot;

	if (!decode_take(d, "idx"))
		decode_fail(d, "brx without .idx");
	(void)decode_take(d, "uni");
	decode_done(d);
	decode_count(d, 2, 2);
	slot = decode_source(d, decode_operand(d, 0), T_B32);
	list = decode_operand(d, 1);
	if (list->kind != OP_NAME)
		decode_fail(d, "a list of targets was expected");
	targets = decode_symbol(d, list);
	if (targets->kind != SYM_TARGETS)
		decode_fail(d, "%s is no list of targets", list->name);
	table = ptx_alloc(module, (targets->name_count + 1) * sizeof(*table));
	table[0] = targets->name_count;
	for (uint32_t i = 0; i < targets->name_count; i++) {
		struct ptx_operand one = { .kind = OP_NAME, .name = targets->names[i] };

		branch_to(d, label_of(d, &one), 0, &table[1 + i]);
	}
	module->tables = ptx_grow(module, module->tables, module->table_count, &module->table_room, sizeof(*module->tables));
	module->tables[module->table_count] = table;
	insn = decode_emit(d, NULL, EXEC_BRANCH_TABLE);
	insn->src[0] = slot;
	insn->target = module->table_count++;
}

/* ---- calls ---- */

/* A slot of the stack frame for a value that is in a register here and in memory there. */
static uint32_t stack_temp(struct decoder *d, uint32_t size)
{
	uint32_t at = (d->function->local_size + size - 1) & ~(size - 1);

	if (at > PTX_LOCAL_SIZE_MAX)
		decode_fail(d, "too much local memory");
	d->function->local_size = (at + size + 15) & ~15u;
	return at;
}

static void emit_stack(struct decoder *d, bool store, uint32_t slot, uint32_t offset, uint32_t size, uint32_t reg)
{
	struct exec_insn *insn = decode_emit(d, store ? exec_stack_store : exec_stack_load, EXEC_ALU);

	insn->dst = slot;
	insn->imm = offset;
	insn->sub[0] = (uint8_t)size;
	insn->sub[1] = (uint8_t)reg;
}

/* One argument or result: a .param variable of the caller's, a register, or a constant. */
static uint32_t call_value(struct decoder *d, const struct ptx_operand *operand, const struct ptx_symbol *formal, bool result)
{
	struct ptx_symbol *symbol;
	uint32_t size;
	uint32_t slot;
	uint32_t offset;
	uint32_t reg;

	if (operand->kind == OP_NAME) {
		symbol = decode_symbol(d, operand);
		if (symbol->kind != SYM_VAR || symbol->where != IN_PARAM || (d->function->is_entry && !symbol->function))
			decode_fail(d, "%s can't be passed", operand->name);
		if (symbol->size < formal->size)
			decode_fail(d, "%s is smaller than the parameter", operand->name);
		return (uint32_t)symbol->offset;
	}
	size = (uint32_t)formal->size;
	if (size != 1 && size != 2 && size != 4 && size != 8 && size != 16)
		decode_fail(d, "a register for a parameter of %u bytes", size);
	offset = stack_temp(d, size);
	if (result) /* stored after the call, by the caller of this function */
		return offset;
	slot = decode_wide_source(d, operand, formal->type, &reg);
	emit_stack(d, true, slot, offset, size, reg);
	return offset;
}

static struct exec_copy *call_copies(struct decoder *d, const struct ptx_operand *list, struct ptx_symbol *formals,
				     bool result, uint32_t *count_out)
{
	struct exec_copy *copies;
	uint32_t count = 0;

	for (const struct ptx_symbol *one = formals; one; one = one->next_param)
		count++;
	/* what is named beside a function without results is a sink */
	if (list && list->kind == OP_LIST && list->count != count)
		decode_fail(d, "%u %s where there are %u", list->count, result ? "results" : "arguments", count);
	if (!list && count && !result)
		decode_fail(d, "no arguments where there are %u", count);
	*count_out = list ? count : 0;
	copies = ptx_alloc(d->module, (count + 1) * sizeof(*copies));
	if (!list)
		return copies;
	count = 0;
	for (const struct ptx_symbol *one = formals; one; one = one->next_param) {
		const struct ptx_operand *operand = &list->sub[count];

		copies[count].size = (uint32_t)one->size;
		copies[count].callee = (uint32_t)one->offset;
		copies[count].caller = operand->kind == OP_SINK ? stack_temp(d, 16) : call_value(d, operand, one, result);
		count++;
	}
	return copies;
}

/* Offsets of a prototype's parameters: as ptx_link.c places those of functions. */
static uint32_t prototype_layout(struct ptx_function *prototype)
{
	uint64_t end = 0;

	for (int list = 0; list < 2; list++)
		for (struct ptx_symbol *one = list ? prototype->params : prototype->returns; one; one = one->next_param) {
			uint32_t align = one->align ? one->align : 1;

			one->offset = (end + align - 1) / align * align;
			end = one->offset + one->size;
		}
	return (uint32_t)end;
}

static void decode_call(struct decoder *d)
{
	struct ptx_module *module = d->module;
	struct exec_call *call = ptx_alloc(module, sizeof(*call));
	const struct ptx_operand *results = NULL;
	const struct ptx_operand *args = NULL;
	const struct ptx_operand *target;
	struct ptx_symbol *symbol = NULL;
	struct ptx_function *signature;
	struct exec_insn *insn;
	uint32_t at = 0;
	uint32_t index;
	uint32_t slot = 0;
	int builtin = BUILTIN_NONE;

	(void)decode_take(d, "uni");
	decode_done(d);
	if (decode_operand(d, 0)->kind == OP_LIST)
		results = decode_operand(d, at++);
	target = decode_operand(d, at++);
	if (at < d->statement->operand_count && decode_operand(d, at)->kind == OP_LIST)
		args = decode_operand(d, at++);
	if (target->kind == OP_REG) {
		struct ptx_symbol *prototype;

		if (at >= d->statement->operand_count)
			decode_fail(d, "a call by pointer without a prototype");
		prototype = decode_symbol(d, decode_operand(d, at));
		if (prototype->kind == SYM_TARGETS && prototype->name_count) { /* .calltargets: functions of one kind */
			struct ptx_operand one = { .kind = OP_NAME, .name = prototype->names[0] };

			prototype = decode_symbol(d, &one);
		} else if (prototype->kind == SYM_PROTOTYPE) {
			call->param_bytes = prototype_layout(prototype->function);
		}
		if ((prototype->kind != SYM_PROTOTYPE && prototype->kind != SYM_FUNCTION) || !prototype->function)
			decode_fail(d, "a call by pointer without a prototype");
		signature = prototype->function;
		if (prototype->kind == SYM_FUNCTION)
			call->param_bytes = signature->param_bytes;
		slot = decode_source(d, target, T_B64);
	} else if (target->kind == OP_NAME) {
		symbol = decode_symbol(d, target);
		if (symbol->kind != SYM_FUNCTION || !symbol->function || symbol->function->is_entry)
			decode_fail(d, "%s is no function", target->name);
		signature = symbol->function;
		if (!signature->has_body) {
			builtin = exec_builtin_find(symbol->name);
			if (!builtin) {
				module->source = d->function->source;
				ptx_fail(module, PTX_UNRESOLVED, d->statement->line, d->statement->column,
					 "%s is declared .extern, and nobody defines it", symbol->name);
			}
			(void)prototype_layout(signature);
		} else {
			call->function = signature;
		}
	} else {
		decode_fail(d, "a function was expected");
	}
	call->args = call_copies(d, args, signature->params, false, &call->arg_count);
	call->results = call_copies(d, results, signature->returns, true, &call->result_count);
	index = module->call_count++;
	module->calls = ptx_grow(module, module->calls, index, &module->call_room, sizeof(*module->calls));
	module->calls[index] = call;
	call->caller = d->function;
	if (builtin) {
		insn = decode_emit(d, exec_builtin_fn(builtin), EXEC_ALU);
		insn->target = index;
	} else {
		insn = decode_emit(d, NULL, call->function ? EXEC_CALL : EXEC_CALL_INDIRECT);
		insn->src[0] = slot;
		insn->target = index;
		if (call->result_count) {
			insn = decode_emit(d, exec_call_results, EXEC_ALU);
			insn->target = index;
		}
	}
	for (uint32_t i = 0; results && i < call->result_count; i++) {
		const struct ptx_operand *operand = &results->sub[i];
		uint32_t reg;
		uint32_t dst;

		if (operand->kind != OP_REG)
			continue;
		for (struct ptx_symbol *formal = signature->returns; formal; formal = formal->next_param)
			if (formal->offset == call->results[i].callee) {
				dst = decode_wide_dest(d, operand, formal->type, &reg);
				emit_stack(d, false, dst, call->results[i].caller, call->results[i].size, reg);
			}
	}
}

/* Results that are registers go to the stack frame, where the caller looks. */
static void decode_ret(struct decoder *d)
{
	(void)decode_take(d, "uni");
	decode_done(d);
	decode_count(d, 0, 0);
	for (struct ptx_symbol *one = d->function->returns; one; one = one->next_param)
		if (one->kind == SYM_REG)
			emit_stack(d, true, one->slot, (uint32_t)one->offset, (uint32_t)one->size, decode_register_size(one->type));
	decode_emit(d, NULL, d->function->is_entry ? EXEC_EXIT : EXEC_RETURN);
}

void decode_prologue(struct decoder *d)
{
	for (struct ptx_symbol *one = d->function->params; one && !d->function->is_entry; one = one->next_param)
		if (one->kind == SYM_REG)
			emit_stack(d, false, one->slot, (uint32_t)one->offset, (uint32_t)one->size, decode_register_size(one->type));
	for (struct ptx_symbol *one = d->function->params; one && d->function->is_entry; one = one->next_param)
		if (one->kind == SYM_REG)
			ptx_fail(d->module, PTX_UNSUPPORTED, one->line, 0, "%s: a kernel with parameters in registers",
				 d->function->name);
}

bool decode_flow(struct decoder *d)
{
	const char *opcode = d->statement->opcode;
	struct exec_insn *insn;

	if (!strcmp(opcode, "bra")) {
		decode_bra(d);
	} else if (!strcmp(opcode, "brx")) {
		decode_brx(d);
	} else if (!strcmp(opcode, "call")) {
		decode_call(d);
	} else if (!strcmp(opcode, "ret")) {
		decode_ret(d);
	} else if (!strcmp(opcode, "exit")) {
		decode_done(d);
		decode_count(d, 0, 0);
		decode_emit(d, NULL, EXEC_EXIT);
	} else if (!strcmp(opcode, "trap") || !strcmp(opcode, "brkpt")) {
		decode_done(d);
		decode_count(d, 0, 0);
		insn = decode_emit(d, exec_trap, EXEC_ALU);
		insn->sub[0] = opcode[0] == 'b';
	} else if (!strcmp(opcode, "pmevent") || !strcmp(opcode, "setmaxnreg")) {
		/* a counter's event, or a hint to the allocator of registers */
	} else {
		return false;
	}
	return true;
}
