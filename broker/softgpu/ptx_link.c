/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between reading and decoding: names of other sources, stack frames, shared memory, the call graph. And after
 * decoding: what each entry needs with all that it calls.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/exec.h"

/* ---- names ---- */

static void link_fail(struct ptx_module *module, enum ptx_error_kind kind, const struct ptx_symbol *symbol,
		      const char *what)
{
	module->source = symbol->source;
	ptx_fail(module, kind, symbol->line, 0, "%s %s", symbol->name, what);
}

static bool is_shared_name(const struct ptx_symbol *symbol)
{
	return symbol->linkage != LINK_STATIC && (symbol->kind == SYM_FUNCTION || symbol->kind == SYM_VAR);
}

static bool is_defined(const struct ptx_symbol *symbol)
{
	return symbol->defined && !symbol->names;
}

/* The one definition that all sources mean; the scope of such names is the module itself. */
static void offer_definition(struct ptx_module *module, struct ptx_symbol *symbol)
{
	struct ptx_symbol *global = ptx_symbol_find(module, module, symbol->name);
	struct ptx_symbol *before;

	if (!global) {
		global = ptx_symbol_add(module, module, symbol->name, SYM_ALIAS);
		global->link = symbol;
		return;
	}
	before = global->link;
	if (before->kind != symbol->kind)
		link_fail(module, PTX_DUPLICATE, symbol, "is a variable and a function");
	if (before->linkage == LINK_VISIBLE && symbol->linkage == LINK_VISIBLE)
		link_fail(module, PTX_DUPLICATE, symbol, "is defined twice");
	if (symbol->linkage == LINK_VISIBLE || (symbol->linkage == LINK_COMMON && symbol->size > before->size))
		global->link = symbol;
}

/* Collected first: adding names to the table while going over it would move them. */
static void collect_definitions(struct ptx_module *module)
{
	uint32_t count = 0;
	struct ptx_symbol **list = ptx_alloc(module, (module->symbol_count + 1) * sizeof(*list));

	for (uint32_t bucket = 0; bucket < module->symbol_room; bucket++)
		for (struct ptx_symbol *symbol = module->symbols[bucket]; symbol; symbol = symbol->chain)
			if (is_shared_name(symbol) && !(symbol->kind == SYM_VAR && symbol->where == IN_SHARED))
				list[count++] = symbol;
	for (uint32_t i = 0; i < count; i++)
		if (is_defined(list[i]))
			offer_definition(module, list[i]);
	for (uint32_t i = 0; i < count; i++) {
		struct ptx_symbol *global = ptx_symbol_find(module, module, list[i]->name);

		if (global && global->link != list[i])
			list[i]->link = global->link;
	}
}

static void link_aliases(struct ptx_module *module)
{
	for (uint32_t bucket = 0; bucket < module->symbol_room; bucket++)
		for (struct ptx_symbol *symbol = module->symbols[bucket]; symbol; symbol = symbol->chain) {
			struct ptx_symbol *target;

			if (symbol->kind != SYM_FUNCTION || !symbol->names)
				continue;
			target = ptx_symbol_find(module, symbol->scope, symbol->names[0]);
			if (!target || target->kind != SYM_FUNCTION || target == symbol || target->names)
				link_fail(module, PTX_UNRESOLVED, symbol, "is an alias of nothing");
			symbol->link = target;
		}
}

/* ---- layout ---- */

static uint64_t place(uint64_t *end, uint64_t size, uint32_t align)
{
	uint64_t at = (*end + align - 1) / align * align;

	*end = at + size;
	return at;
}

/* Results, then parameters: all functions of a signature agree, so that a call by pointer knows where. */
static void layout_stack(struct ptx_module *module, struct ptx_function *function)
{
	uint64_t end = 0;

	if (!function->is_entry) {
		for (int list = 0; list < 2; list++)
			for (struct ptx_symbol *one = list ? function->params : function->returns; one; one = one->next_param)
				one->offset = place(&end, one->size, one->align ? one->align : 1);
		function->param_bytes = (uint32_t)end;
	}
	for (uint32_t i = 0; i < function->var_count; i++) {
		struct ptx_symbol *var = function->vars[i];

		if (var->where == IN_LOCAL || var->where == IN_PARAM)
			var->offset = place(&end, var->size, var->align);
		if (end > PTX_LOCAL_SIZE_MAX)
			link_fail(module, PTX_UNSUPPORTED, var, "needs more local memory than a thread can have");
	}
	function->local_size = (uint32_t)((end + 15) & ~15ull);
}

static void layout_params(struct ptx_module *module, struct ptx_function *function)
{
	struct ptx_entry *entry = &function->entry;
	struct ptx_param *params = ptx_alloc(module, (function->param_count + 1) * sizeof(*params));
	uint64_t end = 0;
	uint32_t count = 0;

	for (struct ptx_symbol *one = function->params; one; one = one->next_param) {
		one->offset = place(&end, one->size, one->align ? one->align : 1);
		if (end > PTX_PARAM_SIZE_MAX)
			link_fail(module, PTX_UNSUPPORTED, one, "is beyond the largest parameter block");
		params[count].name = one->name;
		params[count].offset = (uint32_t)one->offset;
		params[count].size = (uint32_t)one->size;
		params[count].align = one->align;
		params[count].pointer = one->pointer;
		count++;
	}
	entry->name = function->name;
	entry->params = params;
	entry->param_count = count;
	entry->param_size = (uint32_t)end;
}

static void layout_globals(struct ptx_module *module)
{
	uint32_t count = 0;
	uint64_t shared = 0;
	uint64_t total = 0;

	for (uint32_t i = 0; i < module->var_count; i++)
		count += module->vars[i]->where != IN_SHARED;
	module->globals = ptx_alloc(module, (count + 1) * sizeof(*module->globals));
	module->global_symbols = ptx_alloc(module, (count + 1) * sizeof(*module->global_symbols));
	count = 0;
	for (uint32_t i = 0; i < module->var_count; i++) {
		struct ptx_symbol *var = module->vars[i];
		struct ptx_global *global;

		if (var->where == IN_SHARED) {
			if (var->defined && var->size && !var->link)
				var->offset = place(&shared, var->size, var->align);
			if (shared > PTX_SHARED_SIZE_MAX)
				link_fail(module, PTX_UNSUPPORTED, var, "needs more shared memory than there is");
			continue;
		}
		if (var->link)
			continue;
		if (!var->defined)
			link_fail(module, PTX_UNRESOLVED, var, "is declared .extern, and nobody defines it");
		if (var->size > PTX_GLOBAL_SIZE_MAX - total)
			link_fail(module, PTX_UNSUPPORTED, var, "needs more memory than a module may");
		total += var->size;
		global = &module->globals[count];
		module->global_symbols[count] = var;
		global->name = var->name;
		global->index = count;
		global->space = var->where == IN_CONST ? PTX_SPACE_CONST : PTX_SPACE_GLOBAL;
		global->size = var->size;
		global->align = var->align;
		global->visible = var->linkage != LINK_STATIC;
		global->managed = var->managed;
		global->texref = var->type >= T_TEXREF;
		var->offset = count++;
	}
	module->global_count = count;
	module->shared_size = (uint32_t)shared;
}

/* ---- the call graph and shared memory ---- */

static void add_callee(struct ptx_module *module, struct ptx_function *function, struct ptx_function *callee)
{
	for (uint32_t i = 0; i < function->callee_count; i++)
		if (function->callees[i] == callee)
			return;
	function->callees = ptx_grow(module, function->callees, function->callee_count, &function->callee_room,
				     sizeof(*function->callees));
	function->callees[function->callee_count++] = callee;
}

static void scan_operand(struct ptx_module *module, struct ptx_function *function, const struct ptx_statement *statement,
			 const struct ptx_operand *operand)
{
	struct ptx_symbol *symbol;

	for (uint32_t i = 0; operand->sub && i < operand->count; i++)
		scan_operand(module, function, statement, &operand->sub[i]);
	if (operand->kind != OP_NAME)
		return;
	symbol = operand->symbol ? operand->symbol : ptx_symbol_lookup(module, statement->scope, operand->name);
	if (!symbol)
		return;
	symbol = ptx_symbol_real(symbol);
	if (symbol->kind == SYM_FUNCTION && symbol->function && symbol->function->has_body)
		add_callee(module, function, symbol->function);
	if (symbol->kind != SYM_VAR || symbol->where != IN_SHARED)
		return;
	if (!symbol->defined || !symbol->size) {
		if (symbol->align > function->dynamic_align)
			function->dynamic_align = symbol->align;
	} else if (!symbol->function && symbol->offset + symbol->size > function->shared_used) {
		function->shared_used = (uint32_t)(symbol->offset + symbol->size);
	}
}

static void scan_function(struct ptx_module *module, struct ptx_function *function)
{
	for (const struct ptx_statement *statement = function->statements; statement; statement = statement->next) {
		for (uint32_t i = 0; i < statement->operand_count; i++)
			scan_operand(module, function, statement, &statement->operands[i]);
		/* call (result), register, ...: by pointer */
		if (statement->opcode && !strcmp(statement->opcode, "call"))
			for (uint32_t i = 0; i < statement->operand_count && i < 2; i++)
				function->calls_indirect |= statement->operands[i].kind == OP_REG;
	}
}

/* What callees touch, callers do. A function called by pointer may be any whose address is taken. */
static void spread(struct ptx_module *module)
{
	bool changed = true;

	while (changed) {
		changed = false;
		for (struct ptx_function *function = module->functions; function; function = function->next)
			for (uint32_t i = 0; i < function->callee_count; i++) {
				struct ptx_function *callee = function->callees[i];

				if (callee->shared_used > function->shared_used) {
					function->shared_used = callee->shared_used;
					changed = true;
				}
				if (callee->dynamic_align > function->dynamic_align) {
					function->dynamic_align = callee->dynamic_align;
					changed = true;
				}
				if (callee->calls_indirect && !function->calls_indirect) {
					function->calls_indirect = true;
					changed = true;
				}
			}
	}
	for (struct ptx_function *function = module->functions; function; function = function->next)
		if (function->calls_indirect)
			function->shared_used = module->shared_size;
}

static void layout_shared(struct ptx_module *module, struct ptx_function *function)
{
	uint64_t end = function->shared_used;
	uint32_t max = module->target.shared_max ? module->target.shared_max : 48 * 1024;

	for (uint32_t i = 0; i < function->var_count; i++) {
		struct ptx_symbol *var = function->vars[i];

		if (var->where == IN_SHARED && var->defined && var->size)
			var->offset = place(&end, var->size, var->align);
		if (end > PTX_SHARED_SIZE_MAX)
			break;
	}
	if (end > max)
		link_fail(module, PTX_UNSUPPORTED, function->symbol, "uses too much shared data");
	function->entry.shared_static = (uint32_t)end;
}

/* Shared variables inside device functions are the module's. */
static void adopt_shared(struct ptx_module *module, struct ptx_function *function)
{
	for (uint32_t i = 0; i < function->var_count; i++) {
		struct ptx_symbol *var = function->vars[i];

		if (var->where != IN_SHARED || !var->defined || !var->size)
			continue;
		var->function = NULL;
		module->vars = ptx_grow(module, module->vars, module->var_count, &module->var_room, sizeof(*module->vars));
		module->vars[module->var_count++] = var;
	}
}

void ptx_link(struct ptx_module *module)
{
	uint32_t count = 0;

	collect_definitions(module);
	link_aliases(module);
	for (struct ptx_function *function = module->functions; function; function = function->next)
		if (!function->is_entry)
			adopt_shared(module, function);
	layout_globals(module);
	module->function_table = ptx_alloc(module, (module->function_count + 1) * sizeof(*module->function_table));
	module->entries = ptx_alloc(module, (module->function_count + 1) * sizeof(*module->entries));
	for (struct ptx_function *function = module->functions; function; function = function->next) {
		module->function_table[function->index] = function;
		layout_stack(module, function);
		if (function->is_entry) {
			layout_params(module, function);
			function->entry.index = count;
			module->entries[count++] = function;
		}
	}
	module->entry_count = count;
	for (struct ptx_function *function = module->functions; function; function = function->next)
		scan_function(module, function);
	spread(module);
	for (struct ptx_function *function = module->functions; function; function = function->next)
		if (function->is_entry)
			layout_shared(module, function);
}

/* ---- after decoding ---- */

#define CALL_DEPTH_MAX 512 /* of the graph; deeper chains count as recursion */

static void measure(struct ptx_function *function, unsigned int depth)
{
	uint32_t stack = 0;
	uint32_t frame = 0;

	if (function->mark == 2)
		return;
	if (function->mark == 1 || depth > CALL_DEPTH_MAX) { /* recursion: as for calls by pointer */
		function->calls_indirect = true;
		function->stack_deep = function->local_size;
		function->frame_deep = function->frame_size;
		return;
	}
	function->mark = 1;
	for (uint32_t i = 0; i < function->callee_count; i++) {
		struct ptx_function *callee = function->callees[i];

		measure(callee, depth + 1);
		function->calls_indirect |= callee->calls_indirect;
		function->grid_sync |= callee->grid_sync;
		function->clusters |= callee->clusters;
		stack = callee->stack_deep > stack ? callee->stack_deep : stack;
		frame = callee->frame_deep > frame ? callee->frame_deep : frame;
	}
	function->stack_deep = function->local_size + stack;
	function->frame_deep = function->frame_size + frame;
	function->mark = 2;
}

void ptx_measure(struct ptx_module *module)
{
	uint32_t stack_any = 0;

	for (struct ptx_function *function = module->functions; function; function = function->next)
		stack_any = function->local_size > stack_any ? function->local_size : stack_any;
	for (struct ptx_function *function = module->functions; function; function = function->next) {
		struct ptx_entry *entry = &function->entry;
		uint64_t const_size = 0;
		uint32_t regs;

		if (!function->is_entry)
			continue;
		measure(function, 0);
		if (function->calls_indirect)
			function->stack_deep += stack_any;
		for (uint32_t i = 0; i < module->global_count; i++)
			if (module->globals[i].space == PTX_SPACE_CONST)
				const_size += module->globals[i].size;
		entry->const_size = (uint32_t)const_size;
		entry->local_size = function->stack_deep;
		entry->uses_grid_sync = function->grid_sync;
		/* an allocator would reuse registers; a square root of what is named is near what it comes to */
		regs = 16;
		while (regs < 255 && (uint64_t)regs * regs < (uint64_t)function->frame_size / 128 * 16)
			regs += 2;
		entry->regs = entry->maxnreg && entry->maxnreg < regs ? entry->maxnreg : regs > 255 ? 255 : regs;
	}
}
