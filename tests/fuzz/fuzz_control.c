/* SPDX-License-Identifier: Apache-2.0 */
// sources: broker/lib/json.c libs:
/* Requests on the control socket, and text of others in answers. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct json_field fields[JSON_FIELDS_MAX];
	struct json json = { 0 };
	char *text = malloc(size + 1);
	unsigned count = 0;

	memcpy(text, data, size);
	text[size] = 0;
	if (json_read(text, fields, &count) == 0) {
		assert(count <= JSON_FIELDS_MAX);
		for (unsigned i = 0; i < count; i++)
			assert(json_field(fields, count, fields[i].name) == &fields[i]);
	}
	json_open(&json, NULL, '{');
	json_str(&json, "text", text);
	json_close(&json, '}');
	/* What is written has no raw quote or control byte inside. */
	assert(!json.fault && json.size >= 11);
	for (size_t i = 0; i < json.size; i++)
		assert((unsigned char)json.text[i] >= ' ');
	free(json.text);
	free(text);
	return 0;
}
