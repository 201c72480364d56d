/* SPDX-License-Identifier: Apache-2.0 */
/* Results of calls, traps, and the functions that the driver provides: vprintf, assertions, malloc, free, conditions of graphs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/exec.h"

#define PRINT_TEXT_MAX 8192 /* of one call: more than the device's own limit of 32 arguments fills */
#define PRINT_STRING_MAX 4096
#define PRINT_WIDTH_MAX 1024 /* of one number: a hostile width must not cost memory */

void exec_nop(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	(void)warp;
	(void)insn;
	(void)mask;
}

void exec_trap(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	exec_fault(warp, PTX_FAULT_TRAP, (uint32_t)__builtin_ctz(mask), 0, 0, false, "%s",
		   insn->sub[0] ? "breakpoint" : "trap");
}

static const struct exec_call *call_of(struct exec_warp *warp, const struct exec_insn *insn)
{
	return warp->block->grid->module->calls[insn->target];
}

void exec_call_results(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const struct exec_call *call = call_of(warp, insn);

	FOR_LANES(lane, mask)
		for (uint32_t i = 0; i < call->result_count; i++)
			memcpy(exec_stack(warp, lane, warp->stack + call->results[i].caller),
			       exec_stack(warp, lane, warp->stack + call->caller->local_size + call->results[i].callee),
			       call->results[i].size);
}

void exec_stack_load(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	FOR_LANES(lane, mask)
	{
		uint8_t *to = exec_slot(warp, insn->dst) + lane * insn->sub[1];

		memset(to, 0, insn->sub[1]);
		memcpy(to, exec_stack(warp, lane, warp->stack + (uint32_t)insn->imm), insn->sub[0]);
	}
}

void exec_stack_store(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	FOR_LANES(lane, mask)
		memcpy(exec_stack(warp, lane, warp->stack + (uint32_t)insn->imm),
		       exec_slot(warp, insn->dst) + lane * insn->sub[1], insn->sub[0]);
}

/* The n-th argument of a call of a driver's function. */
static uint64_t argument(struct exec_warp *warp, const struct exec_call *call, uint32_t lane, uint32_t n)
{
	uint64_t value = 0;

	if (n < call->arg_count)
		memcpy(&value, exec_stack(warp, lane, warp->stack + call->args[n].caller),
		       call->args[n].size < 8 ? call->args[n].size : 8);
	return value;
}

static void put_result(struct exec_warp *warp, const struct exec_call *call, uint32_t lane, uint64_t value)
{
	if (call->result_count)
		memcpy(exec_stack(warp, lane, warp->stack + call->results[0].caller), &value,
		       call->results[0].size < 8 ? call->results[0].size : 8);
}

/* A string of the kernel's. False: a fault was raised. */
static bool read_string(struct exec_warp *warp, uint32_t lane, uint64_t address, char *text, size_t size)
{
	size_t i;

	for (i = 0; i < size - 1; i++) {
		const char *at = exec_pointer(warp, X_GENERIC, lane, address + i, 1, 1, false);

		if (!at)
			return false;
		text[i] = *at;
		if (!*at)
			return true;
	}
	text[i] = 0;
	return true;
}

struct printer {
	char *text;
	size_t used;
};

static void append(struct printer *printer, const char *text, size_t size)
{
	if (size > PRINT_TEXT_MAX - printer->used)
		size = PRINT_TEXT_MAX - printer->used;
	memcpy(printer->text + printer->used, text, size);
	printer->used += size;
}

/* One conversion: @spec is "%-08.3" and the like without length, @kind its letter. */
static bool print_one(struct exec_warp *warp, struct printer *printer, uint32_t lane, char *spec, size_t spec_size,
		      char kind, int longs, uint64_t value)
{
	char buffer[PRINT_WIDTH_MAX + 512];
	int size = 0;
	double real;

	switch (kind) {
	case 'd':
	case 'i':
		snprintf(spec + spec_size, 8, "lld");
		size = snprintf(buffer, sizeof(buffer), spec, (long long)(longs > 0 ? (int64_t)value : (int32_t)value));
		break;
	case 'u':
	case 'x':
	case 'X':
	case 'o':
		snprintf(spec + spec_size, 8, "ll%c", kind);
		size = snprintf(buffer, sizeof(buffer), spec, (unsigned long long)(longs > 0 ? value : (uint32_t)value));
		break;
	case 'c':
		snprintf(spec + spec_size, 8, "c");
		size = snprintf(buffer, sizeof(buffer), spec, (int)(unsigned char)value);
		break;
	case 'p':
		snprintf(spec + spec_size, 8, "p");
		size = snprintf(buffer, sizeof(buffer), spec, (void *)(uintptr_t)value);
		break;
	case 's': {
		char text[PRINT_STRING_MAX];
		char out[PRINT_STRING_MAX + PRINT_WIDTH_MAX];

		if (value && !read_string(warp, lane, value, text, sizeof(text)))
			return false;
		if (!value)
			strcpy(text, "(null)");
		snprintf(spec + spec_size, 8, "s");
		size = snprintf(out, sizeof(out), spec, text);
		append(printer, out, size < 0 ? 0 : (size_t)size < sizeof(out) ? (size_t)size : sizeof(out) - 1);
		return true;
	}
	default: /* aAeEfFgG */
		memcpy(&real, &value, sizeof(real));
		snprintf(spec + spec_size, 8, "%c", kind);
		size = snprintf(buffer, sizeof(buffer), spec, real);
	}
	append(printer, buffer, size < 0 ? 0 : (size_t)size < sizeof(buffer) ? (size_t)size : sizeof(buffer) - 1);
	return true;
}

/* Arguments lie in the buffer as in a struct: 4 bytes, or 8 aligned to 8. */
static bool next_argument(struct exec_warp *warp, uint32_t lane, uint64_t *at, uint32_t size, uint64_t *value_out)
{
	const void *pointer;

	*at = (*at + size - 1) & ~(uint64_t)(size - 1);
	pointer = exec_pointer(warp, X_GENERIC, lane, *at, size, size, false);
	if (!pointer)
		return false;
	*value_out = 0;
	memcpy(value_out, pointer, size);
	*at += size;
	return true;
}

static bool print_lane(struct exec_warp *warp, uint32_t lane, const char *format, uint64_t arguments,
		       struct printer *printer, int *count_out)
{
	*count_out = 0;
	while (*format) {
		const char *percent = strchr(format, '%');
		char spec[64];
		size_t size = 0;
		int longs = 0;
		uint64_t value;
		bool is_float;

		if (!percent) {
			append(printer, format, strlen(format));
			break;
		}
		append(printer, format, (size_t)(percent - format));
		format = percent + 1;
		if (*format == '%') {
			append(printer, "%", 1);
			format++;
			continue;
		}
		spec[size++] = '%';
		while (*format && strchr("-+ #0", *format) && size < 8)
			spec[size++] = *format++;
		for (int part = 0; part < 2; part++) {
			uint32_t number = 0;
			bool given = false;

			if (part) {
				if (*format != '.')
					break;
				spec[size++] = *format++;
				given = true;
			}
			if (*format == '*') {
				format++;
				if (!next_argument(warp, lane, &arguments, 4, &value))
					return false;
				if ((int32_t)value < 0 && !part && size < 16)
					spec[size++] = '-';
				number = (int32_t)value < 0 ? (uint32_t)0 - (uint32_t)value : (uint32_t)value;
				given = true;
			}
			while (*format >= '0' && *format <= '9') {
				number = number < 100000 ? number * 10 + (uint32_t)(*format - '0') : number;
				format++;
				given = true;
			}
			if (given)
				size += (size_t)snprintf(spec + size, 16, "%u", number > PRINT_WIDTH_MAX ? PRINT_WIDTH_MAX : number);
		}
		while (*format == 'l' || *format == 'h' || *format == 'z' || *format == 'j' || *format == 't' || *format == 'L') {
			longs += *format != 'h' && *format != 'L';
			format++;
		}
		if (!*format || !strchr("diuxXocpsaAeEfFgG", *format)) {
			append(printer, spec, size); /* not a conversion: as it stands */
			continue;
		}
		is_float = strchr("aAeEfFgG", *format) != NULL;
		if (!next_argument(warp, lane, &arguments, is_float || longs || *format == 'p' || *format == 's' ? 8 : 4, &value))
			return false;
		if (!print_one(warp, printer, lane, spec, size, *format, longs, value))
			return false;
		(*count_out)++;
		format++;
	}
	return true;
}

static void builtin_vprintf(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const struct exec_call *call = call_of(warp, insn);
	const struct ptx_host *host = warp->block->grid->launch->host;
	char format[PRINT_STRING_MAX];
	char text[PRINT_TEXT_MAX];

	FOR_LANES(lane, mask)
	{
		struct printer printer = { .text = text };
		int count;

		if (!read_string(warp, lane, argument(warp, call, lane, 0), format, sizeof(format)) ||
		    !print_lane(warp, lane, format, argument(warp, call, lane, 1), &printer, &count))
			return;
		if (host->print)
			host->print(host->user, text, printer.used);
		put_result(warp, call, lane, (uint64_t)(int64_t)count);
	}
}

static void builtin_assert(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const struct exec_call *call = call_of(warp, insn);
	const struct ptx_host *host = warp->block->grid->launch->host;
	const struct exec_block *block = warp->block;
	uint32_t lane = (uint32_t)__builtin_ctz(mask);
	char message[512];
	char file[512];
	char function[512];
	char text[2048];
	uint32_t line = (uint32_t)argument(warp, call, lane, 2);
	int size;

	if (!read_string(warp, lane, argument(warp, call, lane, 0), message, sizeof(message)) ||
	    !read_string(warp, lane, argument(warp, call, lane, 1), file, sizeof(file)) ||
	    !read_string(warp, lane, argument(warp, call, lane, 3), function, sizeof(function)))
		return;
	FOR_LANES(one, mask)
	{
		size = snprintf(text, sizeof(text), "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n",
				file, line, function, block->ctaid[0], block->ctaid[1], block->ctaid[2], warp->tid[0][one],
				warp->tid[1][one], warp->tid[2][one], message);
		if (host->print && size > 0)
			host->print(host->user, text, (size_t)size < sizeof(text) ? (size_t)size : sizeof(text) - 1);
	}
	exec_fault(warp, PTX_FAULT_ASSERT, lane, 0, 0, false, "%s:%u: %s: `%s`", file, line, function, message);
}

static void builtin_malloc(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const struct exec_call *call = call_of(warp, insn);
	const struct ptx_host *host = warp->block->grid->launch->host;

	FOR_LANES(lane, mask)
		put_result(warp, call, lane,
			   host->heap_alloc ? host->heap_alloc(host->user, argument(warp, call, lane, 0)) : 0);
}

static void builtin_free(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const struct exec_call *call = call_of(warp, insn);
	const struct ptx_host *host = warp->block->grid->launch->host;

	FOR_LANES(lane, mask)
		if (host->heap_free && argument(warp, call, lane, 0))
			host->heap_free(host->user, argument(warp, call, lane, 0));
}

/* Of threads that set one value at once any may come last; here it is the lane with the highest number. */
static void builtin_condition(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const struct exec_call *call = call_of(warp, insn);
	const struct ptx_host *host = warp->block->grid->launch->host;

	FOR_LANES(lane, mask)
	{
		uint64_t handle = argument(warp, call, lane, 0);

		if (host->condition && host->condition(host->user, handle, (uint32_t)argument(warp, call, lane, 1)) == 0)
			continue;
		exec_fault(warp, PTX_FAULT_ADDRESS, lane, handle, 4, true, "no conditional handle of a graph");
		return;
	}
}

int exec_builtin_find(const char *name)
{
	if (!strcmp(name, "vprintf"))
		return BUILTIN_VPRINTF;
	if (!strcmp(name, "__assertfail"))
		return BUILTIN_ASSERT;
	if (!strcmp(name, "malloc"))
		return BUILTIN_MALLOC;
	if (!strcmp(name, "free"))
		return BUILTIN_FREE;
	if (!strcmp(name, "cudaGraphSetConditional"))
		return BUILTIN_CONDITION;
	return BUILTIN_NONE;
}

exec_fn exec_builtin_fn(int builtin)
{
	static const exec_fn fns[] = {
		NULL, builtin_vprintf, builtin_assert, builtin_malloc, builtin_free, builtin_condition,
	};

	return fns[builtin];
}
