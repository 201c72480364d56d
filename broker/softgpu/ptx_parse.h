/* SPDX-License-Identifier: Apache-2.0 */
/* The parser's state and the steps that ptx_parse.c and ptx_parse_body.c share. Leaves by ptx_fail(). */
#ifndef GLEAM_SOFTGPU_PTX_PARSE_H
#define GLEAM_SOFTGPU_PTX_PARSE_H

#include "broker/softgpu/ptx_lex.h"
#include "broker/softgpu/ptx_unit.h"

struct parser {
	struct ptx_module *module;
	struct ptx_scope *file;
	struct ptx_lexer lexer;
	struct ptx_token token; /* the one to be looked at */
	char discard;		/* a scope for what is declared again */
};

struct parse_decl {
	enum ptx_type type;
	enum ptx_where where;
	enum ptx_linkage linkage;
	uint32_t align;
	uint32_t vector;
	bool pointer;
	bool managed;
};

#define parse_fail(p, ...) ptx_fail((p)->module, PTX_SYNTAX, (p)->token.line, (p)->token.column, __VA_ARGS__)

void parse_next(struct parser *p);
bool parse_is(const struct parser *p, char punct);
bool parse_take(struct parser *p, char punct);
void parse_expect(struct parser *p, char punct);
bool parse_is_dot(const struct parser *p, const char *name);
bool parse_take_dot(struct parser *p, const char *name);
const char *parse_name(struct parser *p);
int64_t parse_int(struct parser *p);
int64_t parse_int_depth(struct parser *p, unsigned int depth);
uint64_t parse_uint_max(struct parser *p, uint64_t max, const char *what);
void parse_variable_type(struct parser *p, struct parse_decl *decl);
struct ptx_symbol *parse_variable(struct parser *p, const void *scope, const struct parse_decl *decl);
void parse_debug_file(struct parser *p);
/* What follows .callprototype, up to the semicolon. */
void parse_prototype(struct parser *p, struct ptx_function *prototype);
void parse_body(struct parser *p, struct ptx_function *function);

#endif
