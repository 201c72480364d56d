// SPDX-License-Identifier: Apache-2.0
/*
 * JIT options: an array of numbers and an array of words that are values, pointers, or both. Values travel; of pointers
 * only log buffers are known, whose sizes travel and whose text comes back with the verdict. Application threads.
 */
#include <string.h>

#include "libgleamcuda/call.h"
#include "libgleamcuda/image.h"

/* What the driver refuses before it looks at the image (measured: an unknown number, a NULL buffer, a bad target). */
static CUresult option_check(struct call *call, CUjit_option option, const void *value)
{
	switch ((int)option) {
	case CU_JIT_INFO_LOG_BUFFER:
	case CU_JIT_ERROR_LOG_BUFFER:
		return value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_JIT_TARGET:
		/* 30 .. 129, with the flags of sm_90a and sm_100f above them. */
		return (uintptr_t)value % 0x10000 >= 30 && (uintptr_t)value % 0x10000 < 130 ? CUDA_SUCCESS :
											      CUDA_ERROR_INVALID_VALUE;
	case CU_JIT_GLOBAL_SYMBOL_NAMES:
	case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
	case CU_JIT_GLOBAL_SYMBOL_COUNT:
		return call_refuse(call, "symbols of the host program can't be given to device code elsewhere");
	default:
		return option >= 0 && (int)option < CU_JIT_NUM_OPTIONS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	}
}

bool jit_is_told(CUjit_option option)
{
	return option == CU_JIT_WALL_TIME || option == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES ||
	       option == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES || option == CU_JIT_THREADS_PER_BLOCK;
}

static bool option_travels(CUjit_option option)
{
	switch ((int)option) {
	case CU_JIT_INFO_LOG_BUFFER:
	case CU_JIT_ERROR_LOG_BUFFER:
	/* Deprecated, and only with link-time optimisation: without effect here. */
	case CU_JIT_REFERENCED_KERNEL_NAMES:
	case CU_JIT_REFERENCED_KERNEL_COUNT:
	case CU_JIT_REFERENCED_VARIABLE_NAMES:
	case CU_JIT_REFERENCED_VARIABLE_COUNT:
		return false;
	default:
		return true;
	}
}

/* Logs are cut here, as the driver would cut them: the node is asked for all of the text. */
static uint64_t option_value(CUjit_option option, const void *value)
{
	switch ((int)option) {
	case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
	case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
		return value ? VERDICT_LOG - 1 : 0;
	default:
		return (uint64_t)(uintptr_t)value;
	}
}

CUresult jit_read(struct call *call, uint32_t count, const CUjit_option *options, void **values, struct jit *jit_out)
{
	struct jit *jit = jit_out;

	jit->count = count;
	jit->options = options;
	jit->values = values;
	jit->tells = false;
	jit->chooses = false;
	jit->wire_size = 0;
	if (!count)
		return CUDA_SUCCESS;
	if (!options || !values || count > JIT_OPTIONS)
		return CUDA_ERROR_INVALID_VALUE;

	struct writer w = writer_on(jit->wire, sizeof(jit->wire));

	for (uint32_t i = 0; i < count; i++) {
		CUresult result = option_check(call, options[i], values[i]);

		if (result)
			return result;
		if (jit_is_told(options[i]) || options[i] == CU_JIT_INFO_LOG_BUFFER || options[i] == CU_JIT_ERROR_LOG_BUFFER)
			jit->tells = true;
		switch ((int)options[i]) {
		case CU_JIT_TARGET:
		case CU_JIT_TARGET_FROM_CUCONTEXT:
		case CU_JIT_FALLBACK_STRATEGY:
			jit->chooses = true;
			break;
		default:
			break;
		}
		if (!option_travels(options[i]))
			continue;
		put_u32(&w, (uint32_t)options[i]);
		put_u32(&w, 0);
		put_u64(&w, option_value(options[i], values[i]));
	}
	jit->wire_size = (uint32_t)w.at;
	return CUDA_SUCCESS;
}

/* The last entry of @option, -1 if there is none. */
static int option_place(const struct jit *jit, CUjit_option option)
{
	for (uint32_t i = jit->count; i-- > 0;)
		if (jit->options[i] == option)
			return (int)i;
	return -1;
}

/* As the driver does it: cut to the buffer, ended by NUL, and the size option becomes the number of characters, at most
 * the size it was. Without a size option there is no room. */
static void log_tell(const struct jit *jit, CUjit_option buffer, CUjit_option size, const char *text)
{
	int at = option_place(jit, buffer);
	int size_at = option_place(jit, size);
	size_t room, length = strlen(text);

	if (size_at < 0)
		return;
	room = (size_t)(unsigned int)(uintptr_t)jit->values[size_at];
	if (at >= 0 && room) {
		size_t kept = length < room ? length : room - 1;
		char *to = jit->values[at];

		memcpy(to, text, kept);
		to[kept] = '\0';
	}
	jit->values[size_at] = (void *)(uintptr_t)(length < room ? length : room);
}

void jit_tell(const struct jit *jit, const void *verdict, size_t size)
{
	struct reader r = reader_on(verdict, size);
	struct verdict v;
	const char *info, *error;

	if (!jit->tells || !verdict_get(&r, &v))
		return;
	for (uint32_t i = 0; i < v.option_count; i++) {
		uint32_t option;
		uint64_t value;
		int at;

		if (!verdict_option_get(&r, &option, &value))
			return;
		at = option_place(jit, (CUjit_option)option);
		if (at < 0)
			continue;
		switch (option) {
		case CU_JIT_WALL_TIME:
		case CU_JIT_THREADS_PER_BLOCK:
			/* The driver writes the low half of the word and leaves the high one. */
			memcpy(&jit->values[at], &value, 4);
			break;
		default:
			break;
		}
	}
	if (!verdict_logs_get(&r, &info, &error))
		return;
	log_tell(jit, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, info);
	log_tell(jit, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, error);
}
