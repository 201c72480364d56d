/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JIT options. Executor thread; see jit.h.
 */
#include "broker/worker/jit.h"

#define OPTION_SIZE 16u /* u32 option, u32 0, u64 value */

/* Options that are values. All others are pointers into the program, or belong to a linker. */
static bool option_is_value(uint32_t option)
{
	switch (option) {
	case CU_JIT_MAX_REGISTERS:
	case CU_JIT_THREADS_PER_BLOCK:
	case CU_JIT_WALL_TIME:
	case CU_JIT_OPTIMIZATION_LEVEL:
	case CU_JIT_TARGET_FROM_CUCONTEXT:
	case CU_JIT_TARGET:
	case CU_JIT_FALLBACK_STRATEGY:
	case CU_JIT_GENERATE_DEBUG_INFO:
	case CU_JIT_LOG_VERBOSE:
	case CU_JIT_GENERATE_LINE_INFO:
	case CU_JIT_CACHE_MODE:
	case CU_JIT_NEW_SM3X_OPT:
	case CU_JIT_FAST_COMPILE:
	case CU_JIT_LTO:
	case CU_JIT_FTZ:
	case CU_JIT_PREC_DIV:
	case CU_JIT_PREC_SQRT:
	case CU_JIT_FMA:
	case CU_JIT_OPTIMIZE_UNUSED_DEVICE_VARIABLES:
	case CU_JIT_POSITION_INDEPENDENT_CODE:
	case CU_JIT_MIN_CTA_PER_SM:
	case CU_JIT_MAX_THREADS_PER_BLOCK:
	case CU_JIT_OVERRIDE_DIRECTIVE_VALUES:
	case CU_JIT_SPLIT_COMPILE:
		return true;
	default:
		return false;
	}
}

static void jit_log(struct jit *jit, CUjit_option buffer, CUjit_option size, char *text, uint64_t room)
{
	text[0] = '\0';
	if (room > VERDICT_LOG - 1)
		room = VERDICT_LOG - 1;
	jit->options[jit->count] = buffer;
	jit->values[jit->count++] = text;
	jit->options[jit->count] = size;
	jit->values[jit->count++] = (void *)(uintptr_t)room;
}

bool jit_read(struct jit *jit, const uint8_t *bytes, uint32_t size)
{
	struct reader r = reader_on(bytes, size);

	jit->count = 0;
	jit->info[0] = jit->error[0] = '\0';
	if (size % OPTION_SIZE || size / OPTION_SIZE > VERDICT_OPTIONS - 2)
		return false;
	for (uint32_t i = 0; i < size / OPTION_SIZE; i++) {
		uint32_t option = get_u32(&r);
		uint32_t zero = get_u32(&r);
		uint64_t value = get_u64(&r);

		if (r.fault || zero)
			return false;
		if (option == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) {
			if (!jit->wants_info)
				jit_log(jit, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, jit->info, value);
			jit->wants_info = true;
		} else if (option == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
			if (!jit->wants_error)
				jit_log(jit, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, jit->error, value);
			jit->wants_error = true;
		} else if (option_is_value(option)) {
			jit->options[jit->count] = (CUjit_option)option;
			jit->values[jit->count++] = (void *)(uintptr_t)value;
		} else {
			return false;
		}
	}
	return true;
}

void jit_told(struct jit *jit, struct verdict_jit *told_out)
{
	told_out->count = 0;
	for (unsigned int i = 0; i < jit->count; i++)
		if (jit->options[i] == CU_JIT_WALL_TIME || jit->options[i] == CU_JIT_THREADS_PER_BLOCK) {
			told_out->options[told_out->count] = (uint32_t)jit->options[i];
			told_out->values[told_out->count++] = (uint32_t)(uintptr_t)jit->values[i];
		}
	jit->info[VERDICT_LOG - 1] = jit->error[VERDICT_LOG - 1] = '\0';
	told_out->info = jit->info;
	told_out->error = jit->error;
}
