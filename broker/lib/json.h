/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON: a writer of answers and a strict reader of requests, which are one flat object of strings and whole numbers.
 * Any thread.
 */
#ifndef GLEAM_LIB_JSON_H
#define GLEAM_LIB_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
	char *text; /* free() it */
	size_t size;
	size_t max;
	bool comma; /* the next value needs one before it */
	bool fault; /* out of memory: text is not complete */
};

/* @key NULL inside arrays. Text that isn't UTF-8 comes out as '?'. */
void json_open(struct json *json, const char *key, char bracket); /* '{' or '[' */
void json_close(struct json *json, char bracket);
void json_str(struct json *json, const char *key, const char *value);
void json_u64(struct json *json, const char *key, uint64_t value);
void json_fixed(struct json *json, const char *key, double value, int decimals);
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);

#define JSON_FIELDS_MAX 8
#define JSON_TEXT_SIZE	256

struct json_field {
	char name[32];
	bool is_number;
	uint64_t number;
	char text[JSON_TEXT_SIZE];
};

/* -EINVAL: not such an object, a name twice, a value too long, or anything behind it. */
int json_read(const char *text, struct json_field fields_out[JSON_FIELDS_MAX], unsigned *count_out);
/* NULL: not there. */
const struct json_field *json_field(const struct json_field *fields, unsigned count, const char *name);

#endif
