/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a function's body: declarations, labels, instructions with their operands. */
#include <string.h>

#include "broker/softgpu/ptx_parse.h"

#define SCOPE_DEPTH_MAX 256 /* inlined assembly nests a few */
#define OPERAND_MAX	4096 /* in one list; a call may have a thousand arguments */
#define OPERAND_DEPTH_MAX 4
#define RANGE_MAX	(16u << 20) /* %r<n>: registers come to life one by one, this only bounds the number */

struct body {
	struct parser *p;
	struct ptx_function *function;
	struct ptx_scope *scope;
};

static struct ptx_operand parse_operand(struct body *body, unsigned int depth);

static struct ptx_operand *operand_list(struct body *body, char close, unsigned int depth, uint32_t *count_out)
{
	struct parser *p = body->p;
	struct ptx_operand *list = NULL;
	uint32_t room = 0;
	uint32_t count = 0;

	if (depth > OPERAND_DEPTH_MAX)
		parse_fail(p, "operand nested too deeply");
	while (!parse_is(p, close)) {
		if (count == OPERAND_MAX)
			parse_fail(p, "too many operands");
		list = ptx_grow(p->module, list, count, &room, sizeof(*list));
		list[count++] = parse_operand(body, depth + 1);
		if (!parse_take(p, ','))
			break;
	}
	parse_expect(p, close);
	*count_out = count;
	return list;
}

static void use_register(struct body *body, struct ptx_symbol *symbol, struct ptx_operand *operand)
{
	struct parser *p = body->p;

	operand->kind = OP_REG;
	operand->type = symbol->type;
	if (symbol->vector > 1) {
		if (symbol->parts[0] == symbol->parts[1])
			for (unsigned int i = 0; i < symbol->vector; i++)
				symbol->parts[i] = ptx_slot_new(p->module, body->function, symbol->type);
		if (p->token.kind == TOKEN_DOT && p->token.size == 1) {
			unsigned int index = 0;

			while (index < 4 && "xyzw"[index] != *p->token.text && "rgba"[index] != *p->token.text)
				index++;
			if (index >= symbol->vector)
				parse_fail(p, "%s has no such element", symbol->name);
			operand->slot = symbol->parts[index];
			parse_next(p);
			return;
		}
		operand->kind = OP_VECTOR;
		operand->count = symbol->vector;
		operand->sub = ptx_alloc(p->module, symbol->vector * sizeof(*operand->sub));
		for (unsigned int i = 0; i < symbol->vector; i++)
			operand->sub[i] = (struct ptx_operand){ .kind = OP_REG, .type = symbol->type,
								.slot = symbol->parts[i] };
		return;
	}
	if (symbol->slot == PTX_NO_SLOT)
		symbol->slot = ptx_slot_new(p->module, body->function, symbol->type);
	operand->slot = symbol->slot;
}

static void name_operand(struct body *body, struct ptx_operand *operand)
{
	struct parser *p = body->p;
	const char *name = parse_name(p);
	struct ptx_symbol *symbol;
	char full[64];
	int sreg;

	if (name[0] == '_' && !name[1]) {
		operand->kind = OP_SINK;
		return;
	}
	symbol = ptx_symbol_lookup(p->module, body->scope, name);
	if (symbol && symbol->kind == SYM_REG) {
		use_register(body, symbol, operand);
		return;
	}
	if (!symbol && !strcmp(name, "WARP_SZ")) {
		operand->kind = OP_INT;
		operand->value = 32;
		return;
	}
	if (!symbol && name[0] == '%' && strlen(name) < sizeof(full) - 3) {
		strcpy(full, name);
		if (p->token.kind == TOKEN_DOT && p->token.size == 1) {
			size_t size = strlen(full);

			full[size] = '.';
			full[size + 1] = *p->token.text;
			full[size + 2] = 0;
			parse_next(p);
		}
		sreg = ptx_sreg_find(full);
		if (sreg < 0)
			parse_fail(p, "%s is neither declared nor a special register that we have", full);
		operand->kind = OP_SREG;
		operand->value = sreg;
		return;
	}
	operand->kind = OP_NAME;
	operand->name = name;
	operand->symbol = symbol; /* NULL: a label further down, or a function of the module */
	if (parse_is(p, '+') || parse_is(p, '-')) {
		bool minus = parse_is(p, '-');
		int64_t value;

		parse_next(p);
		value = parse_int(p);
		operand->value = minus ? (int64_t)(0 - (uint64_t)value) : value;
	}
}

static struct ptx_operand parse_operand(struct body *body, unsigned int depth)
{
	struct parser *p = body->p;
	struct ptx_operand operand = { 0 };
	bool minus = false;

	if (depth > 4 * OPERAND_DEPTH_MAX)
		parse_fail(p, "operand nested too deeply");
	if (parse_take(p, '!')) {
		operand = parse_operand(body, depth + 1);
		if (operand.kind != OP_REG && operand.kind != OP_INT)
			parse_fail(p, "'!' before what is no predicate");
		operand.negated = !operand.negated;
		return operand;
	}
	if (parse_take(p, '{')) {
		operand.kind = OP_VECTOR;
		operand.sub = operand_list(body, '}', depth, &operand.count);
		return operand;
	}
	if (parse_take(p, '(')) {
		operand.kind = OP_LIST;
		operand.sub = operand_list(body, ')', depth, &operand.count);
		return operand;
	}
	if (parse_take(p, '[')) {
		if (depth)
			parse_fail(p, "an address within an operand");
		operand.kind = OP_MEM;
		operand.sub = ptx_alloc(p->module, 4 * sizeof(*operand.sub));
		for (;;) {
			struct ptx_operand *sub = &operand.sub[operand.count++];

			*sub = parse_operand(body, depth + 1);
			if (operand.count == 1 && (parse_is(p, '+') || parse_is(p, '-'))) {
				bool below = parse_is(p, '-');
				int64_t value;

				parse_next(p);
				value = parse_int(p);
				operand.value = below ? (int64_t)(0 - (uint64_t)value) : value;
			}
			if (!parse_take(p, ','))
				break;
			if (operand.count == 4)
				parse_fail(p, "too many operands in an address");
		}
		parse_expect(p, ']');
		return operand;
	}
	if (p->token.kind == TOKEN_NAME) {
		name_operand(body, &operand);
		if (depth < OPERAND_DEPTH_MAX && parse_is(p, '|')) {
			struct ptx_operand pair = { .kind = OP_PAIR, .count = 2 };

			parse_next(p);
			pair.sub = ptx_alloc(p->module, 2 * sizeof(*pair.sub));
			pair.sub[0] = operand;
			pair.sub[1] = parse_operand(body, OPERAND_DEPTH_MAX);
			return pair;
		}
		return operand;
	}
	if (parse_is(p, '-')) {
		struct ptx_lexer saved = p->lexer;
		struct ptx_token minus_token = p->token;

		parse_next(p);
		if (p->token.kind == TOKEN_F32 || p->token.kind == TOKEN_F64) {
			minus = true;
		} else {
			p->lexer = saved;
			p->token = minus_token;
		}
	}
	if (p->token.kind == TOKEN_F32) {
		operand.kind = OP_F32;
		operand.value = (int64_t)(p->token.value ^ (minus ? 0x80000000u : 0));
		parse_next(p);
	} else if (p->token.kind == TOKEN_F64) {
		operand.kind = OP_F64;
		operand.value = (int64_t)(p->token.value ^ (minus ? 1ull << 63 : 0));
		parse_next(p);
	} else {
		operand.kind = OP_INT;
		operand.value = parse_int(p);
	}
	return operand;
}

static void parse_statement(struct body *body, const char *text, uint32_t line, uint32_t column, bool guarded,
			    bool negated, uint32_t guard_slot, const char *opcode)
{
	struct parser *p = body->p;
	struct ptx_statement *statement = ptx_alloc(p->module, sizeof(*statement));
	uint32_t room = 0;

	statement->scope = body->scope;
	statement->line = line;
	statement->column = column;
	statement->opcode = opcode;
	statement->guarded = guarded;
	statement->guard_negated = negated;
	statement->guard_slot = guard_slot;
	while (p->token.kind == TOKEN_DOT) {
		if (statement->modifier_count == PTX_MODIFIERS_MAX)
			parse_fail(p, "too many modifiers");
		statement->modifiers[statement->modifier_count++] =
			ptx_intern(p->module, p->token.text, p->token.size);
		parse_next(p);
	}
	while (!parse_is(p, ';')) {
		uint32_t count = statement->operand_count;

		if (count == 16)
			parse_fail(p, "too many operands");
		statement->operands =
			ptx_grow(p->module, statement->operands, count, &room, sizeof(*statement->operands));
		statement->operands[count] = parse_operand(body, 0);
		statement->operand_count++;
		if (!parse_take(p, ','))
			break;
	}
	if (!parse_is(p, ';'))
		parse_fail(p, "expected ';' before '%.*s'", (int)(p->token.size > 40 ? 40 : p->token.size),
			   p->token.text);
	statement->text = text;
	statement->text_size = (uint32_t)(p->token.text + 1 - text);
	parse_next(p);
	*body->function->statements_tail = statement;
	body->function->statements_tail = &statement->next;
}

static void instruction(struct body *body)
{
	struct parser *p = body->p;
	const char *text = p->token.text;
	uint32_t line = p->token.line;
	uint32_t column = p->token.column;
	bool guarded = false;
	bool negated = false;
	uint32_t slot = 0;

	if (parse_take(p, '@')) {
		struct ptx_operand guard;

		guard = parse_operand(body, OPERAND_DEPTH_MAX);
		if (guard.kind != OP_REG || guard.type != T_PRED)
			parse_fail(p, "a guard that is no predicate register");
		guarded = true;
		negated = guard.negated;
		slot = guard.slot;
	}
	parse_statement(body, text, line, column, guarded, negated, slot, parse_name(p));
}

static void add_label(struct body *body, const char *name, uint32_t line)
{
	struct parser *p = body->p;
	struct ptx_symbol *symbol = ptx_symbol_find(p->module, body->scope, name);
	struct ptx_statement *statement;

	if (symbol)
		parse_fail(p, "%s is declared twice", name);
	symbol = ptx_symbol_add(p->module, body->scope, name, SYM_LABEL);
	symbol->line = line;
	symbol->function = body->function;
	statement = ptx_alloc(p->module, sizeof(*statement));
	statement->label = symbol;
	statement->line = line;
	statement->text = "";
	statement->scope = body->scope;
	*body->function->statements_tail = statement;
	body->function->statements_tail = &statement->next;
}

/* label: .branchtargets, .calltargets or .callprototype */
static bool labelled_directive(struct body *body, const char *name)
{
	struct parser *p = body->p;
	struct ptx_symbol *symbol;
	uint32_t room = 0;

	if (parse_is_dot(p, "branchtargets") || parse_is_dot(p, "calltargets")) {
		parse_next(p);
		symbol = ptx_symbol_add(p->module, body->scope, name, SYM_TARGETS);
		do {
			symbol->names = ptx_grow(p->module, symbol->names, symbol->name_count, &room,
						 sizeof(*symbol->names));
			symbol->names[symbol->name_count++] = parse_name(p);
		} while (parse_take(p, ','));
		parse_expect(p, ';');
		return true;
	}
	if (parse_is_dot(p, "callprototype")) {
		struct ptx_function *prototype = ptx_alloc(p->module, sizeof(*prototype));

		parse_next(p);
		symbol = ptx_symbol_add(p->module, body->scope, name, SYM_PROTOTYPE);
		symbol->function = prototype;
		prototype->module = p->module;
		prototype->name = name;
		prototype->symbol = symbol;
		prototype->returns = NULL;
		parse_prototype(p, prototype);
		parse_expect(p, ';');
		return true;
	}
	return false;
}

static void declare_registers(struct body *body)
{
	struct parser *p = body->p;
	struct parse_decl decl = { .where = IN_REG, .vector = 1 };

	parse_variable_type(p, &decl);
	do {
		const char *name = parse_name(p);
		struct ptx_symbol *symbol = ptx_symbol_find(p->module, body->scope, name);
		bool range = parse_take(p, '<');

		if (symbol && (symbol->kind != SYM_RANGE || !range))
			parse_fail(p, "%s is declared twice", name);
		symbol = ptx_symbol_add(p->module, body->scope, name, range ? SYM_RANGE : SYM_REG);
		symbol->type = decl.type;
		symbol->vector = (uint8_t)decl.vector;
		symbol->where = IN_REG;
		if (range) {
			symbol->count = parse_uint_max(p, RANGE_MAX, "count of registers");
			parse_expect(p, '>');
		}
	} while (parse_take(p, ','));
	parse_expect(p, ';');
}

static void declare_variables(struct body *body, enum ptx_where where)
{
	struct parser *p = body->p;
	struct ptx_function *function = body->function;
	struct parse_decl decl = { .where = where, .vector = 1 };

	parse_variable_type(p, &decl);
	do {
		struct ptx_symbol *var = parse_variable(p, body->scope, &decl);

		if ((where == IN_LOCAL || where == IN_PARAM) && var->size > PTX_LOCAL_SIZE_MAX)
			parse_fail(p, "%s: more local memory than a thread can have", var->name);
		var->function = function;
		function->vars = ptx_grow(p->module, function->vars, function->var_count, &function->var_room,
					  sizeof(*function->vars));
		function->vars[function->var_count++] = var;
	} while (parse_take(p, ','));
	parse_expect(p, ';');
}

/* A variable of the module that is declared within a function: its scope is the function, its life is not. */
static void declare_static(struct body *body, enum ptx_where where)
{
	struct parser *p = body->p;
	struct ptx_module *module = p->module;
	struct parse_decl decl = { .where = where, .vector = 1 };

	parse_variable_type(p, &decl);
	do {
		struct ptx_symbol *var = parse_variable(p, body->scope, &decl);

		module->vars = ptx_grow(module, module->vars, module->var_count, &module->var_room,
					sizeof(*module->vars));
		module->vars[module->var_count++] = var;
	} while (parse_take(p, ','));
	parse_expect(p, ';');
}

static void body_directive(struct body *body)
{
	struct parser *p = body->p;

	if (parse_take_dot(p, "reg")) {
		declare_registers(body);
	} else if (parse_take_dot(p, "local")) {
		declare_variables(body, IN_LOCAL);
	} else if (parse_take_dot(p, "shared")) {
		declare_variables(body, IN_SHARED);
	} else if (parse_take_dot(p, "param")) {
		declare_variables(body, IN_PARAM);
	} else if (parse_take_dot(p, "global")) {
		declare_static(body, IN_GLOBAL);
	} else if (parse_take_dot(p, "const")) {
		declare_static(body, IN_CONST);
	} else if (parse_is_dot(p, "loc")) {
		uint32_t line = p->token.line;

		while (p->token.kind != TOKEN_END && p->token.line == line)
			parse_next(p);
	} else if (parse_take_dot(p, "pragma")) {
		while (!parse_is(p, ';') && p->token.kind != TOKEN_END)
			parse_next(p);
		parse_expect(p, ';');
	} else if (parse_take_dot(p, "file")) {
		parse_debug_file(p);
	} else {
		parse_fail(p, "unknown directive '.%.*s'", (int)(p->token.size > 40 ? 40 : p->token.size),
			   p->token.text);
	}
}

void parse_body(struct parser *p, struct ptx_function *function)
{
	struct body body = { .p = p, .function = function, .scope = &function->scope };
	unsigned int depth = 1;

	/* Parameters in registers (.func (.reg ...)) have their slots from the beginning. */
	for (int list = 0; list < 2; list++)
		for (struct ptx_symbol *one = list ? function->returns : function->params; one; one = one->next_param)
			if (one->kind == SYM_REG)
				one->slot = ptx_slot_new(p->module, function, one->type);
	parse_expect(p, '{');
	while (depth) {
		if (parse_take(p, '{')) {
			struct ptx_scope *scope = ptx_alloc(p->module, sizeof(*scope));

			if (depth++ == SCOPE_DEPTH_MAX)
				parse_fail(p, "scopes nested too deeply");
			scope->parent = body.scope;
			body.scope = scope;
		} else if (parse_take(p, '}')) {
			depth--;
			body.scope = body.scope->parent;
		} else if (parse_take(p, ';')) {
			continue;
		} else if (p->token.kind == TOKEN_DOT) {
			body_directive(&body);
		} else if (p->token.kind == TOKEN_NAME) {
			const char *text = p->token.text;
			uint32_t line = p->token.line;
			uint32_t column = p->token.column;
			const char *name = parse_name(p);

			if (parse_take(p, ':')) {
				if (p->token.kind != TOKEN_DOT || !labelled_directive(&body, name))
					add_label(&body, name, line);
			} else {
				parse_statement(&body, text, line, column, false, false, 0, name);
			}
		} else if (parse_is(p, '@')) {
			instruction(&body);
		} else {
			parse_fail(p, "expected an instruction before '%.*s'",
				   (int)(p->token.size > 40 ? 40 : p->token.size), p->token.text);
		}
	}
}
