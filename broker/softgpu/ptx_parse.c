/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one PTX source: directives, variables, functions. Statements are ptx_parse_body.c's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/exec.h"
#include "broker/softgpu/ptx_parse.h"

#define NEST_MAX 64 /* braces in initialisers, scopes, parentheses: real code has under ten */

void parse_next(struct parser *p)
{
	ptx_lexer_next(&p->lexer, &p->token);
	if (p->token.kind == TOKEN_BAD)
		parse_fail(p, "not a token: '%.*s'", (int)(p->token.size > 20 ? 20 : p->token.size), p->token.text);
}

bool parse_is(const struct parser *p, char punct)
{
	return p->token.kind == TOKEN_PUNCT && *p->token.text == punct;
}

bool parse_take(struct parser *p, char punct)
{
	if (!parse_is(p, punct))
		return false;
	parse_next(p);
	return true;
}

void parse_expect(struct parser *p, char punct)
{
	if (!parse_take(p, punct))
		parse_fail(p, "expected '%c' before '%.*s'", punct, (int)(p->token.size > 40 ? 40 : p->token.size),
			   p->token.text);
}

bool parse_is_dot(const struct parser *p, const char *name)
{
	return p->token.kind == TOKEN_DOT && strlen(name) == p->token.size &&
	       !memcmp(p->token.text, name, p->token.size);
}

bool parse_take_dot(struct parser *p, const char *name)
{
	if (!parse_is_dot(p, name))
		return false;
	parse_next(p);
	return true;
}

const char *parse_name(struct parser *p)
{
	const char *name;

	if (p->token.kind != TOKEN_NAME)
		parse_fail(p, "expected a name before '%.*s'", (int)(p->token.size > 40 ? 40 : p->token.size),
			   p->token.text);
	name = ptx_intern(p->module, p->token.text, p->token.size);
	parse_next(p);
	return name;
}

static int64_t parse_unary(struct parser *p, unsigned int depth);

static int64_t parse_unary(struct parser *p, unsigned int depth)
{
	int64_t value;

	if (depth > NEST_MAX)
		parse_fail(p, "expression nested too deeply");
	if (parse_take(p, '-'))
		return (int64_t)(0 - (uint64_t)parse_unary(p, depth + 1));
	if (parse_take(p, '+'))
		return parse_unary(p, depth + 1);
	if (parse_take(p, '~'))
		return ~parse_unary(p, depth + 1);
	if (parse_take(p, '!'))
		return !parse_unary(p, depth + 1);
	if (parse_take(p, '(')) {
		/* a cast such as (.u64) changes nothing we keep */
		if (p->token.kind == TOKEN_DOT) {
			parse_next(p);
			parse_expect(p, ')');
			return parse_unary(p, depth + 1);
		}
		value = parse_int_depth(p, depth + 1);
		parse_expect(p, ')');
		return value;
	}
	if (p->token.kind != TOKEN_INT)
		parse_fail(p, "expected a number before '%.*s'", (int)(p->token.size > 40 ? 40 : p->token.size),
			   p->token.text);
	value = (int64_t)p->token.value;
	parse_next(p);
	return value;
}

/* Integer expressions: what writers of PTX use of them, from left to right within two levels. */
int64_t parse_int_depth(struct parser *p, unsigned int depth)
{
	uint64_t sum = 0;
	bool minus = false;

	for (;;) {
		uint64_t product = (uint64_t)parse_unary(p, depth);

		while (parse_is(p, '*') || parse_is(p, '/') || parse_is(p, '%')) {
			char op = *p->token.text;
			int64_t right;

			parse_next(p);
			right = parse_unary(p, depth);
			if (op == '*')
				product *= (uint64_t)right;
			else if (!right || right == -1)
				product = !right ? (parse_fail(p, "division by zero"), 0) : op == '/' ? 0 - product : 0;
			else
				product = (uint64_t)(op == '/' ? (int64_t)product / right : (int64_t)product % right);
		}
		sum = minus ? sum - product : sum + product;
		if (parse_is(p, '+') || parse_is(p, '-')) {
			minus = parse_is(p, '-');
			parse_next(p);
			continue;
		}
		return (int64_t)sum;
	}
}

int64_t parse_int(struct parser *p)
{
	return parse_int_depth(p, 0);
}

uint64_t parse_uint_max(struct parser *p, uint64_t max, const char *what)
{
	int64_t value = parse_int(p);

	if (value < 0 || (uint64_t)value > max)
		parse_fail(p, "%s out of bounds: %lld", what, (long long)value);
	return (uint64_t)value;
}

/* Skips a balanced {...}; the token is the opening one. */
static void skip_braces(struct parser *p)
{
	unsigned int depth = 0;

	do {
		if (parse_is(p, '{'))
			depth++;
		else if (parse_is(p, '}'))
			depth--;
		else if (p->token.kind == TOKEN_END)
			parse_fail(p, "end of text within braces");
		parse_next(p);
	} while (depth);
}

/* ---- variables ---- */

static bool parse_generic_name(struct parser *p, struct ptx_init *init)
{
	const char *name;

	if (p->token.kind != TOKEN_NAME)
		return false;
	name = parse_name(p);
	if (!strcmp(name, "generic") && parse_take(p, '(')) {
		init->generic = true;
		name = parse_name(p);
		parse_expect(p, ')');
	} else if (!strcmp(name, "mask") && parse_take(p, '(')) {
		parse_fail(p, "mask() in an initialiser");
	}
	init->name = name;
	if (parse_is(p, '+') || parse_is(p, '-')) {
		bool minus = parse_is(p, '-');

		parse_next(p);
		init->value = (uint64_t)parse_unary(p, 0);
		if (minus)
			init->value = 0 - init->value;
	}
	return true;
}

static void init_element(struct parser *p, struct ptx_symbol *var, struct ptx_init ***tail, uint64_t offset)
{
	uint32_t size = ptx_type_size(var->type);
	struct ptx_init *init = ptx_alloc(p->module, sizeof(*init));

	init->offset = offset;
	init->size = (uint8_t)size;
	init->line = p->token.line;
	if (p->token.kind == TOKEN_F32 || p->token.kind == TOKEN_F64 ||
	    (parse_is(p, '-') && ptx_type_float(var->type))) {
		bool minus = parse_take(p, '-');
		double value;

		if (p->token.kind == TOKEN_F32) {
			uint32_t bits = (uint32_t)p->token.value;
			float single;

			memcpy(&single, &bits, sizeof(single));
			value = (double)single;
		} else if (p->token.kind == TOKEN_F64) {
			memcpy(&value, &p->token.value, sizeof(value));
		} else if (p->token.kind == TOKEN_INT) {
			value = (double)p->token.value;
		} else {
			parse_fail(p, "expected a number");
		}
		if (var->type == T_F32 && p->token.kind == TOKEN_F32) {
			init->value = p->token.value ^ (minus ? 0x80000000u : 0);
		} else if (size == 4) {
			float single = (float)(minus ? -value : value);

			memcpy(&init->value, &single, sizeof(single));
		} else if (size == 8) {
			value = minus ? -value : value;
			memcpy(&init->value, &value, sizeof(value));
		} else {
			parse_fail(p, "a floating-point value for .%u bytes", size);
		}
		parse_next(p);
	} else if (!parse_generic_name(p, init)) {
		int64_t value = parse_int(p);

		/* 0xFF0000(symbol): one byte of an address */
		if (parse_take(p, '(')) {
			if (size != 1 || value <= 0 || !parse_generic_name(p, init))
				parse_fail(p, "mask of an address in an initialiser of %u bytes", size);
			parse_expect(p, ')');
			init->shift = (uint8_t)__builtin_ctzll((uint64_t)value);
		} else if (ptx_type_float(var->type) && size == 8) {
			double real = (double)value;

			memcpy(&init->value, &real, sizeof(real));
		} else if (var->type == T_F32) {
			float real = (float)value;

			memcpy(&init->value, &real, sizeof(real));
		} else {
			init->value = (uint64_t)value;
		}
	}
	**tail = init;
	*tail = &init->next;
}

/* @dims: sizes in elements of what one element of each nesting level holds. */
static void init_list(struct parser *p, struct ptx_symbol *var, struct ptx_init ***tail, const uint64_t *dims,
		      unsigned int dim_count, unsigned int level, uint64_t *offset)
{
	uint64_t start = *offset;
	uint32_t size = ptx_type_size(var->type);

	parse_expect(p, '{');
	while (!parse_is(p, '}')) {
		if (parse_is(p, '{')) {
			uint64_t before = *offset;

			if (level + 1 >= dim_count)
				parse_fail(p, "initialiser nested too deeply");
			init_list(p, var, tail, dims, dim_count, level + 1, offset);
			*offset = before + dims[level] * size;
		} else {
			if (var->size && *offset > var->size - size)
				parse_fail(p, "more initial values than elements");
			init_element(p, var, tail, *offset);
			*offset += size;
		}
		if (!parse_take(p, ','))
			break;
	}
	parse_expect(p, '}');
	(void)start;
}

void parse_variable_type(struct parser *p, struct parse_decl *decl)
{
	for (;;) {
		char name[16];

		if (p->token.kind != TOKEN_DOT)
			parse_fail(p, "expected a type");
		if (parse_take_dot(p, "align")) {
			decl->align = (uint32_t)parse_uint_max(p, 65536, "alignment");
			if (!decl->align || (decl->align & (decl->align - 1)))
				parse_fail(p, "an alignment that is no power of two");
			continue;
		}
		if (parse_take_dot(p, "attribute")) {
			parse_expect(p, '(');
			while (!parse_is(p, ')')) {
				if (p->token.kind == TOKEN_END)
					parse_fail(p, "end of text");
				decl->managed |= parse_is_dot(p, "managed");
				parse_next(p);
			}
			parse_next(p);
			continue;
		}
		if (parse_take_dot(p, "v2")) {
			decl->vector = 2;
			continue;
		}
		if (parse_take_dot(p, "v4")) {
			decl->vector = 4;
			continue;
		}
		if (parse_is_dot(p, "ptr")) { /* .param .u64 .ptr .global .align 4 name */
			decl->pointer = true;
			parse_next(p);
			if (p->token.kind == TOKEN_DOT && !parse_is_dot(p, "align"))
				parse_next(p);
			if (parse_take_dot(p, "align"))
				(void)parse_int(p);
			return;
		}
		if (decl->type != T_NONE)
			parse_fail(p, "unknown directive '.%.*s'", (int)(p->token.size > 40 ? 40 : p->token.size),
				   p->token.text);
		snprintf(name, sizeof(name), "%.*s", (int)p->token.size, p->token.text);
		decl->type = ptx_type_find(name);
		if (decl->type == T_NONE)
			parse_fail(p, "unknown type '.%.*s'", (int)(p->token.size > 40 ? 40 : p->token.size),
				   p->token.text);
		parse_next(p);
		if (!parse_is_dot(p, "ptr"))
			return;
	}
}

/* name, array sizes and initialiser of one variable; the symbol is not laid out yet */
struct ptx_symbol *parse_variable(struct parser *p, const void *scope, const struct parse_decl *decl)
{
	uint32_t line = p->token.line;
	const char *name = parse_name(p);
	struct ptx_symbol *var = ptx_symbol_find(p->module, scope, name);
	uint64_t dims[8];
	unsigned int dim_count = 0;
	uint64_t count = decl->vector;
	uint32_t size = ptx_type_size(decl->type);
	struct ptx_init **tail;

	if (!size)
		parse_fail(p, "a predicate variable");
	if (var && (var->kind != SYM_VAR || (var->defined && decl->linkage != LINK_EXTERN)))
		parse_fail(p, "%s is declared twice", name);
	if (!var)
		var = ptx_symbol_add(p->module, scope, name, SYM_VAR);
	else if (decl->linkage == LINK_EXTERN && var->defined) /* extern after the definition */
		var = ptx_symbol_add(p->module, &p->discard, name, SYM_VAR);
	var->line = line;
	var->type = decl->type;
	var->where = decl->where;
	var->linkage = decl->linkage;
	var->pointer = decl->pointer;
	var->managed = decl->managed;
	var->vector = (uint8_t)decl->vector;
	while (parse_take(p, '[')) {
		if (dim_count == 8)
			parse_fail(p, "more than 8 dimensions");
		var->array = true;
		dims[dim_count] = 0;
		if (!parse_is(p, ']')) {
			dims[dim_count] = parse_uint_max(p, PTX_GLOBAL_SIZE_MAX, "array size");
			if (__builtin_mul_overflow(count, dims[dim_count], &count) || count > PTX_GLOBAL_SIZE_MAX)
				parse_fail(p, "array too large");
		} else if (dim_count) {
			parse_fail(p, "only the first dimension may be left out");
		}
		dim_count++;
		parse_expect(p, ']');
	}
	if (count > PTX_GLOBAL_SIZE_MAX / size)
		parse_fail(p, "array too large");
	var->align = decl->align ? decl->align : size * decl->vector;
	var->size = count * size;
	if (var->array && dims[0] == 0)
		var->size = 0;
	var->defined = decl->linkage != LINK_EXTERN;
	tail = &var->init;
	if (parse_take(p, '=')) {
		uint64_t below[8];
		uint64_t offset = 0;
		uint64_t each = decl->vector;

		if (decl->where != IN_GLOBAL && decl->where != IN_CONST)
			parse_fail(p, "an initialiser outside .global and .const");
		for (unsigned int i = dim_count; i-- > 0;) {
			below[i] = each;
			each *= dims[i] ? dims[i] : 1;
		}
		if (!dim_count)
			below[0] = each;
		if (parse_is(p, '{'))
			init_list(p, var, &tail, below, dim_count + (decl->vector > 1), 0, &offset);
		else
			init_element(p, var, &tail, 0);
		if (!var->size && var->array)
			var->size = offset;
	}
	return var;
}

static void module_variable(struct parser *p, struct parse_decl *decl)
{
	struct ptx_module *module = p->module;

	parse_variable_type(p, decl);
	do {
		struct ptx_symbol *var = parse_variable(p, p->file, decl);

		module->vars = ptx_grow(module, module->vars, module->var_count, &module->var_room,
					sizeof(*module->vars));
		module->vars[module->var_count++] = var;
	} while (parse_take(p, ','));
	parse_expect(p, ';');
}

/* ---- functions ---- */

static struct ptx_symbol *parse_param_list(struct parser *p, const void *scope, uint32_t *count_out)
{
	struct ptx_symbol *first = NULL;
	struct ptx_symbol **tail = &first;
	uint32_t count = 0;

	parse_expect(p, '(');
	while (!parse_is(p, ')')) {
		struct parse_decl decl = { .where = IN_PARAM, .vector = 1, .linkage = LINK_STATIC };
		struct ptx_symbol *var;

		if (parse_is_dot(p, "reg")) {
			decl.where = IN_REG;
			parse_next(p);
		} else if (!parse_take_dot(p, "param")) {
			parse_fail(p, "expected .param");
		}
		parse_variable_type(p, &decl);
		if (decl.where == IN_REG) {
			const char *name = parse_name(p);

			if (ptx_symbol_find(p->module, scope, name))
				parse_fail(p, "%s is declared twice", name);
			var = ptx_symbol_add(p->module, scope, name, SYM_REG);
			var->type = decl.type;
			var->where = IN_REG;
			if (decl.type == T_PRED || decl.vector > 1)
				ptx_fail(p->module, PTX_UNSUPPORTED, p->token.line, p->token.column,
					 "a predicate or vector register as parameter");
			var->size = ptx_type_size(decl.type);
			var->align = (uint32_t)var->size;
		} else {
			/* In prototypes names may be '_'; all of them are different. */
			bool unnamed = p->token.kind == TOKEN_NAME && p->token.size == 1 && *p->token.text == '_';

			var = parse_variable(p, unnamed ? (const void *)p->token.text : scope, &decl);
		}
		*tail = var;
		tail = &var->next_param;
		if (++count > PTX_PARAM_SIZE_MAX)
			parse_fail(p, "too many parameters");
		if (!parse_take(p, ','))
			break;
	}
	parse_expect(p, ')');
	*count_out = count;
	return first;
}

static void parse_triple(struct parser *p, uint32_t out[3])
{
	out[1] = out[2] = 1;
	for (int i = 0; i < 3; i++) {
		out[i] = (uint32_t)parse_uint_max(p, UINT32_MAX, "dimension");
		if (!parse_take(p, ','))
			break;
	}
}

static void function_directives(struct parser *p, struct ptx_function *function)
{
	struct ptx_entry *entry = &function->entry;
	uint32_t ignored[3];

	while (p->token.kind == TOKEN_DOT) {
		if (parse_take_dot(p, "maxntid"))
			parse_triple(p, entry->maxntid);
		else if (parse_take_dot(p, "reqntid"))
			parse_triple(p, entry->reqntid);
		else if (parse_take_dot(p, "reqnctapercluster"))
			parse_triple(p, entry->reqnctapercluster);
		else if (parse_take_dot(p, "minnctapersm"))
			entry->minnctapersm = (uint32_t)parse_uint_max(p, UINT32_MAX, "count");
		else if (parse_take_dot(p, "maxnctapersm") || parse_take_dot(p, "maxclusterrank"))
			parse_triple(p, ignored);
		else if (parse_take_dot(p, "maxnreg"))
			entry->maxnreg = (uint32_t)parse_uint_max(p, UINT32_MAX, "count");
		else if (parse_take_dot(p, "noreturn"))
			function->noreturn = true;
		else if (parse_take_dot(p, "explicitcluster") || parse_take_dot(p, "blocksareclusters"))
			continue;
		else if (parse_take_dot(p, "abi_preserve") || parse_take_dot(p, "abi_preserve_control"))
			(void)parse_int(p);
		else if (parse_take_dot(p, "attribute")) {
			while (!parse_is(p, ')') && p->token.kind != TOKEN_END)
				parse_next(p);
			parse_expect(p, ')');
		} else if (parse_take_dot(p, "pragma")) {
			while (!parse_is(p, ';') && p->token.kind != TOKEN_END)
				parse_next(p);
			parse_expect(p, ';');
		} else {
			parse_fail(p, "unknown directive '.%.*s'", (int)(p->token.size > 40 ? 40 : p->token.size),
				   p->token.text);
		}
	}
}

void parse_prototype(struct parser *p, struct ptx_function *prototype)
{
	uint32_t ignored;

	if (parse_is(p, '('))
		prototype->returns = parse_param_list(p, &prototype->scope, &ignored);
	(void)parse_name(p);
	if (parse_is(p, '('))
		prototype->params = parse_param_list(p, &prototype->scope, &prototype->param_count);
	function_directives(p, prototype);
}

static void parse_function(struct parser *p, bool is_entry, enum ptx_linkage linkage)
{
	struct ptx_module *module = p->module;
	struct ptx_function *function = ptx_alloc(module, sizeof(*function));
	struct ptx_symbol *symbol;
	uint32_t ignored;
	uint32_t line;

	function->module = module;
	function->source = module->source;
	function->is_entry = is_entry;
	function->frame_size = EXEC_FRAME_HEADER;
	function->scope.parent = p->file;
	function->statements_tail = &function->statements;
	if (parse_take_dot(p, "attribute")) {
		while (!parse_is(p, ')') && p->token.kind != TOKEN_END)
			parse_next(p);
		parse_expect(p, ')');
	}
	if (parse_is(p, '(') && !is_entry)
		function->returns = parse_param_list(p, &function->scope, &ignored);
	line = p->token.line;
	function->name = parse_name(p);
	if (parse_is(p, '('))
		function->params = parse_param_list(p, &function->scope, &function->param_count);
	function_directives(p, function);

	symbol = ptx_symbol_find(module, p->file, function->name);
	if (symbol && symbol->kind != SYM_FUNCTION)
		parse_fail(p, "%s is declared twice", function->name);
	if (!symbol) {
		symbol = ptx_symbol_add(module, p->file, function->name, SYM_FUNCTION);
		symbol->linkage = linkage;
		symbol->function = function;
		symbol->line = line;
	}
	function->symbol = symbol;
	if (parse_take(p, ';')) /* a declaration: what comes first is kept for its parameters */
		return;
	if (symbol->defined)
		parse_fail(p, "%s is defined twice", function->name);
	if (linkage == LINK_EXTERN)
		parse_fail(p, "%s is .extern and has a body", function->name);
	symbol->defined = true;
	symbol->function = function;
	if (linkage != LINK_STATIC || symbol->linkage == LINK_EXTERN)
		symbol->linkage = linkage;
	function->has_body = true;
	function->index = module->function_count++;
	*module->functions_tail = function;
	module->functions_tail = &function->next;
	parse_body(p, function);
}

static void parse_target(struct parser *p)
{
	do {
		if (p->token.kind != TOKEN_NAME)
			parse_fail(p, "expected a target");
		if (p->token.size > 3 && !memcmp(p->token.text, "sm_", 3)) {
			uint32_t sm = (uint32_t)strtoul(p->token.text + 3, NULL, 10);
			char last = p->token.text[p->token.size - 1];

			/* sm_90a runs on 9.0 alone, sm_100f within its major version */
			if (sm > p->module->target.sm || (last == 'a' && sm != p->module->target.sm) ||
			    (last == 'f' && sm / 10 != p->module->target.sm / 10))
				ptx_fail(p->module, PTX_TARGET, p->token.line, p->token.column,
					 ".target %.*s is not what this device (%u.%u) runs", (int)p->token.size,
					 p->token.text, p->module->target.sm / 10, p->module->target.sm % 10);
			if (sm > p->module->sm)
				p->module->sm = sm;
		}
		parse_next(p);
	} while (parse_take(p, ','));
}

static void parse_version(struct parser *p)
{
	uint32_t major;
	uint32_t minor = 0;
	const char *dot;

	/* "8.3" reads as a decimal number; its text is what counts */
	if (p->token.kind != TOKEN_F64 && p->token.kind != TOKEN_INT)
		parse_fail(p, "expected a version number");
	major = (uint32_t)strtoul(p->token.text, NULL, 10);
	dot = memchr(p->token.text, '.', p->token.size);
	if (dot)
		minor = (uint32_t)strtoul(dot + 1, NULL, 10);
	if (major > 99 || minor > 9 || major * 10 + minor > p->module->target.version_max)
		ptx_fail(p->module, PTX_VERSION, p->token.line, p->token.column,
			 "PTX version %u.%u is newer than %u.%u", major, minor, p->module->target.version_max / 10,
			 p->module->target.version_max % 10);
	if (major * 10 + minor > p->module->version)
		p->module->version = major * 10 + minor;
	parse_next(p);
}

static void parse_alias(struct parser *p)
{
	const char *name = parse_name(p);
	const char **target = ptx_alloc(p->module, sizeof(*target));
	struct ptx_symbol *symbol = ptx_symbol_find(p->module, p->file, name);

	parse_expect(p, ',');
	*target = parse_name(p);
	parse_expect(p, ';');
	if (!symbol || symbol->kind != SYM_FUNCTION || symbol->defined)
		parse_fail(p, "alias %s of nothing declared before", name);
	symbol->names = target;
	symbol->name_count = 1;
}

static void module_directive(struct parser *p)
{
	enum ptx_linkage linkage = LINK_STATIC;
	struct parse_decl decl = { .vector = 1 };

	for (;;) {
		if (parse_take_dot(p, "visible"))
			linkage = LINK_VISIBLE;
		else if (parse_take_dot(p, "extern"))
			linkage = LINK_EXTERN;
		else if (parse_take_dot(p, "weak"))
			linkage = LINK_WEAK;
		else if (parse_take_dot(p, "common"))
			linkage = LINK_COMMON;
		else
			break;
	}
	decl.linkage = linkage;
	if (parse_take_dot(p, "entry")) {
		parse_function(p, true, linkage);
	} else if (parse_take_dot(p, "func")) {
		parse_function(p, false, linkage);
	} else if (parse_take_dot(p, "global")) {
		decl.where = IN_GLOBAL;
		module_variable(p, &decl);
	} else if (parse_take_dot(p, "const")) {
		decl.where = IN_CONST;
		if (p->token.kind == TOKEN_PUNCT && parse_take(p, '[')) { /* .const[0], of old */
			(void)parse_int(p);
			parse_expect(p, ']');
		}
		module_variable(p, &decl);
	} else if (parse_take_dot(p, "shared")) {
		decl.where = IN_SHARED;
		module_variable(p, &decl);
	} else if (parse_take_dot(p, "version")) {
		parse_version(p);
	} else if (parse_take_dot(p, "target")) {
		parse_target(p);
	} else if (parse_take_dot(p, "address_size")) {
		if (parse_int(p) != 64)
			ptx_fail(p->module, PTX_UNSUPPORTED, p->token.line, p->token.column, "only 64-bit addresses");
	} else if (parse_take_dot(p, "file")) {
		parse_debug_file(p);
	} else if (parse_take_dot(p, "section")) {
		while (!parse_is(p, '{') && p->token.kind != TOKEN_END)
			parse_next(p);
		skip_braces(p);
	} else if (parse_take_dot(p, "pragma")) {
		while (!parse_is(p, ';') && p->token.kind != TOKEN_END)
			parse_next(p);
		parse_expect(p, ';');
	} else if (parse_take_dot(p, "alias")) {
		parse_alias(p);
	} else {
		/* .tex .u32 name and its like are of PTX 1.x; .local at module scope is refused as the driver does */
		parse_fail(p, "unknown directive '.%.*s'", (int)(p->token.size > 40 ? 40 : p->token.size), p->token.text);
	}
}

/* .file 1 "name" [, timestamp, size] */
void parse_debug_file(struct parser *p)
{
	(void)parse_int(p);
	if (p->token.kind != TOKEN_STRING)
		parse_fail(p, "expected a file name");
	parse_next(p);
	while (parse_take(p, ','))
		(void)parse_int(p);
}

void ptx_parse_source(struct ptx_module *module, const char *text, size_t size)
{
	struct parser parser = { .module = module, .file = &module->files[module->source] };
	struct parser *p = &parser;

	ptx_lexer_init(&p->lexer, text, size);
	parse_next(p);
	if (!parse_is_dot(p, "version"))
		parse_fail(p, "PTX begins with .version");
	while (p->token.kind != TOKEN_END) {
		if (parse_take(p, ';'))
			continue;
		if (p->token.kind != TOKEN_DOT)
			parse_fail(p, "expected a directive before '%.*s'",
				   (int)(p->token.size > 40 ? 40 : p->token.size), p->token.text);
		module_directive(p);
	}
	if (!module->sm)
		parse_fail(p, "no .target");
}
