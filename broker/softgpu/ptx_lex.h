/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of PTX text. The text is borrowed; a token points into it. */
#ifndef GLEAM_SOFTGPU_PTX_LEX_H
#define GLEAM_SOFTGPU_PTX_LEX_H

#include <stddef.h>
#include <stdint.h>

enum ptx_token_kind {
	TOKEN_END,
	TOKEN_NAME,	/* add, %r1, $L__BB0_2, _ */
	TOKEN_DOT,	/* .global, .f32, .L1::no_allocate: text is without the dot */
	TOKEN_INT,	/* value */
	TOKEN_F32,	/* value is the bits, as 0f3F800000 */
	TOKEN_F64,	/* value is the bits: 0d..., or a decimal number */
	TOKEN_STRING,	/* text is between the quotes */
	TOKEN_PUNCT,	/* text[0] */
	TOKEN_BAD,
};

struct ptx_token {
	enum ptx_token_kind kind;
	const char *text;
	uint32_t size;
	uint32_t line;
	uint32_t column;
	uint64_t value;
};

struct ptx_lexer {
	const char *at;
	const char *end;
	const char *line_start;
	uint32_t line;
};

void ptx_lexer_init(struct ptx_lexer *lexer, const char *text, size_t size);
void ptx_lexer_next(struct ptx_lexer *lexer, struct ptx_token *token_out);

#endif
