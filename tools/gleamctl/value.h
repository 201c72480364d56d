/* SPDX-License-Identifier: Apache-2.0 */
/* Values of an answer of the daemon: what isn't there, or has another type, is "", 0, false. Any thread. */
#ifndef GLEAMCTL_VALUE_H
#define GLEAMCTL_VALUE_H

#include <stdbool.h>

#include <jansson.h>

static inline const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static inline double number_of(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

static inline long long whole_of(const json_t *object, const char *key)
{
	return (long long)json_integer_value(json_object_get(object, key));
}

static inline bool has(const json_t *object, const char *key)
{
	return json_is_number(json_object_get(object, key));
}

#endif
