/* SPDX-License-Identifier: Apache-2.0 */
/* JSON for the control socket. Any thread; see json.h. */
#include "broker/lib/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

static void put(struct json *json, const char *bytes, size_t size)
{
	if (json->fault)
		return;
	if (size >= json->max - json->size) {
		size_t max = json->max ? json->max : 4096;
		char *grown;

		while (size >= max - json->size)
			max *= 2;
		grown = realloc(json->text, max);
		if (!grown) {
			json->fault = true;
			return;
		}
		json->text = grown;
		json->max = max;
	}
	memcpy(json->text + json->size, bytes, size);
	json->size += size;
	json->text[json->size] = 0;
}

/* Bytes of the UTF-8 sequence at @text, 0 if it is none. */
static size_t utf8_size(const unsigned char *text)
{
	size_t size = *text < 0x80 ? 1 : *text >= 0xc2 && *text < 0xe0 ? 2 : (*text & 0xf0) == 0xe0 ? 3 : *text >= 0xf0 && *text < 0xf5 ? 4 : 0;

	for (size_t i = 1; i < size; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	/* Overlong forms, surrogates, beyond the last. */
	if ((*text == 0xe0 && text[1] < 0xa0) || (*text == 0xed && text[1] > 0x9f) || (*text == 0xf0 && text[1] < 0x90) ||
	    (*text == 0xf4 && text[1] > 0x8f))
		return 0;
	return size;
}

static void put_quoted(struct json *json, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	put(json, "\"", 1);
	while (*at) {
		size_t size = utf8_size(at);
		char escape[8];

		if (size == 0) {
			put(json, "?", 1);
			at++;
			continue;
		}
		if (*at == '"' || *at == '\\') {
			escape[0] = '\\';
			escape[1] = (char)*at;
			put(json, escape, 2);
		} else if (*at < ' ') {
			snprintf(escape, sizeof(escape), "\\u%04x", *at);
			put(json, escape, 6);
		} else {
			put(json, (const char *)at, size);
		}
		at += size;
	}
	put(json, "\"", 1);
}

static void put_key(struct json *json, const char *key)
{
	if (json->comma)
		put(json, ",", 1);
	json->comma = true;
	if (key) {
		put_quoted(json, key);
		put(json, ":", 1);
	}
}

void json_open(struct json *json, const char *key, char bracket)
{
	put_key(json, key);
	put(json, &bracket, 1);
	json->comma = false;
}

void json_close(struct json *json, char bracket)
{
	put(json, &bracket, 1);
	json->comma = true;
}

void json_str(struct json *json, const char *key, const char *value)
{
	put_key(json, key);
	put_quoted(json, value);
}

void json_u64(struct json *json, const char *key, uint64_t value)
{
	char text[24];

	put_key(json, key);
	put(json, text, (size_t)snprintf(text, sizeof(text), "%llu", (unsigned long long)value));
}

void json_fixed(struct json *json, const char *key, double value, int decimals)
{
	char text[64];

	put_key(json, key);
	put(json, text, (size_t)snprintf(text, sizeof(text), "%.*f", decimals, value));
}

void json_bool(struct json *json, const char *key, bool value)
{
	put_key(json, key);
	put(json, value ? "true" : "false", value ? 4 : 5);
}

void json_null(struct json *json, const char *key)
{
	put_key(json, key);
	put(json, "null", 4);
}

/* ---- reading ---- */

static const char *skip(const char *at)
{
	return at + strspn(at, " \t\r\n");
}

/* A string without escapes but \" and \\, which names and program paths don't need more of. NULL: not one. */
static const char *read_text(const char *at, char *out, size_t size)
{
	size_t n = 0;

	if (*at++ != '"')
		return NULL;
	for (; *at != '"'; at++) {
		if ((unsigned char)*at < ' ')
			return NULL;
		if (*at == '\\') {
			at++;
			if (*at != '"' && *at != '\\' && *at != '/')
				return NULL;
		}
		if (n + 1 >= size)
			return NULL;
		out[n++] = *at;
	}
	out[n] = 0;
	return at + 1;
}

static const char *read_number(const char *at, uint64_t *out)
{
	uint64_t number = 0;
	const char *start = at;

	for (; *at >= '0' && *at <= '9'; at++) {
		if (number > (UINT64_MAX - (uint64_t)(*at - '0')) / 10)
			return NULL;
		number = 10 * number + (uint64_t)(*at - '0');
	}
	if (at == start || (*start == '0' && at != start + 1))
		return NULL;
	*out = number;
	return at;
}

int json_read(const char *text, struct json_field fields_out[JSON_FIELDS_MAX], unsigned *count_out)
{
	const char *at = skip(text);
	unsigned count = 0;

	if (*at != '{')
		return -EINVAL;
	at = skip(at + 1);
	while (*at != '}') {
		struct json_field *field = &fields_out[count];

		if (count == JSON_FIELDS_MAX)
			return -EINVAL;
		memset(field, 0, sizeof(*field));
		at = read_text(at, field->name, sizeof(field->name));
		if (!at || json_field(fields_out, count, field->name))
			return -EINVAL;
		at = skip(at);
		if (*at != ':')
			return -EINVAL;
		at = skip(at + 1);
		field->is_number = *at != '"';
		at = field->is_number ? read_number(at, &field->number) : read_text(at, field->text, sizeof(field->text));
		if (!at)
			return -EINVAL;
		count++;
		at = skip(at);
		if (*at == ',') {
			at = skip(at + 1);
			if (*at == '}')
				return -EINVAL;
		} else if (*at != '}') {
			return -EINVAL;
		}
	}
	if (*skip(at + 1) != 0)
		return -EINVAL;
	*count_out = count;
	return 0;
}

const struct json_field *json_field(const struct json_field *fields, unsigned count, const char *name)
{
	for (unsigned i = 0; i < count; i++)
		if (strcmp(fields[i].name, name) == 0)
			return &fields[i];
	return NULL;
}
