/* SPDX-License-Identifier: Apache-2.0 */
/* The lexer. No state but the place in the text; any thread. */
#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/ptx_lex.h"

/* Longest decimal number we hand to strtod; PTX writers use 17 digits. */
#define NUMBER_SIZE_MAX 64

void ptx_lexer_init(struct ptx_lexer *lexer, const char *text, size_t size)
{
	const char *nul = memchr(text, 0, size);

	lexer->at = text;
	lexer->end = nul ? nul : text + size;
	lexer->line_start = text;
	lexer->line = 1;
}

static bool is_name(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$';
}

static void newline(struct ptx_lexer *lexer)
{
	lexer->line++;
	lexer->line_start = lexer->at + 1;
}

static void skip_space(struct ptx_lexer *lexer)
{
	while (lexer->at < lexer->end) {
		char c = *lexer->at;
		size_t left = (size_t)(lexer->end - lexer->at);

		if (c == '\n') {
			newline(lexer);
			lexer->at++;
		} else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
			lexer->at++;
		} else if (c == '/' && left > 1 && lexer->at[1] == '/') {
			while (lexer->at < lexer->end && *lexer->at != '\n')
				lexer->at++;
		} else if (c == '/' && left > 1 && lexer->at[1] == '*') {
			lexer->at += 2;
			while (lexer->at < lexer->end) {
				if (*lexer->at == '\n')
					newline(lexer);
				if (*lexer->at == '*' && lexer->end - lexer->at > 1 && lexer->at[1] == '/') {
					lexer->at += 2;
					break;
				}
				lexer->at++;
			}
		} else if (c == '#') { /* preprocessor line marks */
			while (lexer->at < lexer->end && *lexer->at != '\n')
				lexer->at++;
		} else {
			return;
		}
	}
}

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return 99;
}

static void lex_digits(struct ptx_lexer *lexer, struct ptx_token *token, unsigned int base, unsigned int count_max)
{
	uint64_t value = 0;
	unsigned int count = 0;

	while (lexer->at < lexer->end && (unsigned int)digit_value(*lexer->at) < base && count < count_max) {
		value = value * base + (unsigned int)digit_value(*lexer->at);
		lexer->at++;
		count++;
	}
	token->value = value;
	if (!count)
		token->kind = TOKEN_BAD;
}

static void lex_number(struct ptx_lexer *lexer, struct ptx_token *token)
{
	const char *start = lexer->at;
	size_t left = (size_t)(lexer->end - start);
	char second = left > 1 ? start[1] : 0;
	const char *scan;
	bool is_float = false;

	token->kind = TOKEN_INT;
	if (start[0] == '0' && (second == 'f' || second == 'F')) {
		lexer->at += 2;
		token->kind = TOKEN_F32;
		lex_digits(lexer, token, 16, 8);
		return;
	}
	if (start[0] == '0' && (second == 'd' || second == 'D')) {
		lexer->at += 2;
		token->kind = TOKEN_F64;
		lex_digits(lexer, token, 16, 16);
		return;
	}
	if (start[0] == '0' && (second == 'x' || second == 'X')) {
		lexer->at += 2;
		lex_digits(lexer, token, 16, 32);
	} else if (start[0] == '0' && (second == 'b' || second == 'B')) {
		lexer->at += 2;
		lex_digits(lexer, token, 2, 64);
	} else {
		for (scan = start; scan < lexer->end && (isdigit((unsigned char)*scan) || *scan == '.' ||
							 *scan == 'e' || *scan == 'E' ||
							 ((*scan == '-' || *scan == '+') && scan > start &&
							  (scan[-1] == 'e' || scan[-1] == 'E')));
		     scan++)
			is_float |= *scan == '.' || *scan == 'e' || *scan == 'E';
		if (is_float) {
			char copy[NUMBER_SIZE_MAX];
			size_t size = (size_t)(scan - start);
			double value;

			if (size >= sizeof(copy)) {
				token->kind = TOKEN_BAD;
				return;
			}
			memcpy(copy, start, size);
			copy[size] = 0;
			value = strtod(copy, NULL);
			memcpy(&token->value, &value, sizeof(value));
			token->kind = TOKEN_F64;
			lexer->at = scan;
			return;
		}
		lex_digits(lexer, token, start[0] == '0' ? 8 : 10, NUMBER_SIZE_MAX);
	}
	if (lexer->at < lexer->end && (*lexer->at == 'U' || *lexer->at == 'u'))
		lexer->at++;
}

void ptx_lexer_next(struct ptx_lexer *lexer, struct ptx_token *token)
{
	char c;

	skip_space(lexer);
	token->line = lexer->line;
	token->column = (uint32_t)(lexer->at - lexer->line_start) + 1;
	token->text = lexer->at;
	token->size = 0;
	token->value = 0;
	if (lexer->at >= lexer->end) {
		token->kind = TOKEN_END;
		return;
	}
	c = *lexer->at;
	if (c == '.') {
		token->kind = TOKEN_DOT;
		lexer->at++;
		token->text = lexer->at;
		while (lexer->at < lexer->end) {
			if (is_name(*lexer->at))
				lexer->at++;
			else if (lexer->end - lexer->at > 2 && lexer->at[0] == ':' && lexer->at[1] == ':' &&
				 is_name(lexer->at[2]))
				lexer->at += 2;
			else
				break;
		}
		token->size = (uint32_t)(lexer->at - token->text);
		if (!token->size)
			token->kind = TOKEN_BAD;
		return;
	}
	if (isdigit((unsigned char)c)) {
		lex_number(lexer, token);
		token->size = (uint32_t)(lexer->at - token->text);
		return;
	}
	if (is_name(c) || c == '%') {
		token->kind = TOKEN_NAME;
		lexer->at++;
		while (lexer->at < lexer->end && is_name(*lexer->at))
			lexer->at++;
		token->size = (uint32_t)(lexer->at - token->text);
		return;
	}
	if (c == '"') {
		lexer->at++;
		token->text = lexer->at;
		while (lexer->at < lexer->end && *lexer->at != '"' && *lexer->at != '\n')
			lexer->at++;
		token->size = (uint32_t)(lexer->at - token->text);
		token->kind = lexer->at < lexer->end && *lexer->at == '"' ? TOKEN_STRING : TOKEN_BAD;
		if (lexer->at < lexer->end)
			lexer->at++;
		return;
	}
	token->kind = strchr("{}[]()<>,;:=+-*/|&^!~@%?", c) ? TOKEN_PUNCT : TOKEN_BAD;
	token->size = 1;
	lexer->at++;
}
