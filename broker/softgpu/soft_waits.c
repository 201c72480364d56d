// SPDX-License-Identifier: Apache-2.0
/*
 * Calls that wait for the context's work before they do theirs, as those of a real driver do now and then: named in GLEAM_SOFTGPU_WAITS,
 * with commas. What stands between such a call and its end shows with it each time. Any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/soft.h"
#include "broker/softgpu/soft_context.h"
#include "broker/softgpu/soft_stream.h"

void soft_waits(const char *call)
{
	/* Of the process that loads us; nobody changes it later. */
	const char *list = getenv("GLEAM_SOFTGPU_WAITS");
	size_t size = strlen(call);

	for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (strncmp(at, call, size) == 0 && (at[size] == ',' || at[size] == '\0')) {
			struct soft_context *context;

			if (soft_context_enter(&context) == CUDA_SUCCESS) {
				soft_context_sync(context);
				soft_object_put(&context->object);
			}
			return;
		}
}
