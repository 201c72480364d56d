/* SPDX-License-Identifier: Apache-2.0 */
/* Memory, names and symbols of a module being read. One thread at a time, until the module is bound. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/ptx_unit.h"

#define CHUNK_SIZE     (256u << 10)
#define ARENA_SIZE_MAX (8ull << 30) /* sixteen times the text: what a hostile image can cost at most */

struct ptx_chunk {
	struct ptx_chunk *next;
	size_t size;
	size_t used;
	max_align_t data[];
};

static const struct {
	const char *name;
	uint8_t size;
	bool is_signed;
	bool is_float;
} types[T_COUNT] = {
	[T_NONE] = { "", 0, false, false },
	[T_PRED] = { "pred", 0, false, false },
	[T_B8] = { "b8", 1, false, false },
	[T_B16] = { "b16", 2, false, false },
	[T_B32] = { "b32", 4, false, false },
	[T_B64] = { "b64", 8, false, false },
	[T_B128] = { "b128", 16, false, false },
	[T_U8] = { "u8", 1, false, false },
	[T_U16] = { "u16", 2, false, false },
	[T_U32] = { "u32", 4, false, false },
	[T_U64] = { "u64", 8, false, false },
	[T_S8] = { "s8", 1, true, false },
	[T_S16] = { "s16", 2, true, false },
	[T_S32] = { "s32", 4, true, false },
	[T_S64] = { "s64", 8, true, false },
	[T_F16] = { "f16", 2, false, true },
	[T_F16X2] = { "f16x2", 4, false, true },
	[T_BF16] = { "bf16", 2, false, true },
	[T_BF16X2] = { "bf16x2", 4, false, true },
	[T_TF32] = { "tf32", 4, false, true },
	[T_F32] = { "f32", 4, false, true },
	[T_F32X2] = { "f32x2", 8, false, true },
	[T_F64] = { "f64", 8, false, true },
	[T_U16X2] = { "u16x2", 4, false, false },
	[T_S16X2] = { "s16x2", 4, true, false },
	[T_U8X4] = { "u8x4", 4, false, false },
	[T_S8X4] = { "s8x4", 4, true, false },
	[T_E4M3X2] = { "e4m3x2", 2, false, true },
	[T_E5M2X2] = { "e5m2x2", 2, false, true },
	[T_E4M3] = { "e4m3", 1, false, true },
	[T_E5M2] = { "e5m2", 1, false, true },
	[T_TEXREF] = { "texref", 8, false, false },
	[T_SAMPLERREF] = { "samplerref", 8, false, false },
	[T_SURFREF] = { "surfref", 8, false, false },
};

uint32_t ptx_type_size(enum ptx_type type)
{
	return types[type].size;
}

bool ptx_type_signed(enum ptx_type type)
{
	return types[type].is_signed;
}

bool ptx_type_float(enum ptx_type type)
{
	return types[type].is_float;
}

enum ptx_type ptx_type_find(const char *name)
{
	for (unsigned int i = 1; i < T_COUNT; i++)
		if (!strcmp(types[i].name, name))
			return (enum ptx_type)i;
	return T_NONE;
}

_Noreturn void ptx_fail(struct ptx_module *module, enum ptx_error_kind kind, uint32_t line, uint32_t column,
			const char *format, ...)
{
	va_list args;

	module->error->kind = kind;
	module->error->source = module->source;
	module->error->line = line;
	module->error->column = column;
	va_start(args, format);
	vsnprintf(module->error->message, sizeof(module->error->message), format, args);
	va_end(args);
	longjmp(module->failed, 1);
}

void *ptx_alloc(struct ptx_module *module, size_t size)
{
	struct ptx_chunk *chunk = module->chunks;
	void *result;

	if (size > ARENA_SIZE_MAX - module->arena_size)
		ptx_fail(module, PTX_MEMORY, 0, 0, "the module needs more than %llu bytes",
			 (unsigned long long)ARENA_SIZE_MAX);
	size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
	if (!chunk || size > chunk->size - chunk->used) {
		size_t chunk_size = size > CHUNK_SIZE / 4 ? size : CHUNK_SIZE;

		chunk = calloc(1, sizeof(*chunk) + chunk_size);
		if (!chunk)
			ptx_fail(module, PTX_MEMORY, 0, 0, "no memory for %zu bytes", size);
		chunk->size = chunk_size;
		module->arena_size += chunk_size;
		if (module->chunks && chunk_size == size) { /* keep filling the one before */
			chunk->next = module->chunks->next;
			module->chunks->next = chunk;
		} else {
			chunk->next = module->chunks;
			module->chunks = chunk;
		}
	}
	result = (char *)chunk->data + chunk->used;
	chunk->used += size;
	return result;
}

void *ptx_grow(struct ptx_module *module, void *array, uint32_t count, uint32_t *room, size_t size)
{
	void *bigger;

	if (count < *room)
		return array;
	*room = *room ? *room * 2 : 8;
	bigger = ptx_alloc(module, *room * size);
	if (count)
		memcpy(bigger, array, count * size);
	return bigger;
}

static uint64_t hash_bytes(const char *text, size_t size)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3ull;
	return hash ^ hash >> 29;
}

const char *ptx_intern(struct ptx_module *module, const char *text, size_t size)
{
	uint64_t at;
	char *copy;

	if (module->name_count * 2 >= module->name_room) {
		uint32_t room = module->name_room ? module->name_room * 2 : 1024;
		const char **names = ptx_alloc(module, room * sizeof(*names));

		for (uint32_t i = 0; i < module->name_room; i++) {
			if (!module->names[i])
				continue;
			at = hash_bytes(module->names[i], strlen(module->names[i])) & (room - 1);
			while (names[at])
				at = (at + 1) & (room - 1);
			names[at] = module->names[i];
		}
		module->names = names;
		module->name_room = room;
	}
	at = hash_bytes(text, size) & (module->name_room - 1);
	while (module->names[at]) {
		if (!strncmp(module->names[at], text, size) && !module->names[at][size])
			return module->names[at];
		at = (at + 1) & (module->name_room - 1);
	}
	copy = ptx_alloc(module, size + 1);
	memcpy(copy, text, size);
	module->names[at] = copy;
	module->name_count++;
	return copy;
}

static uint64_t symbol_hash(const void *scope, const char *name)
{
	uint64_t hash = ((uintptr_t)scope >> 4) * 0x9e3779b97f4a7c15ull ^ ((uintptr_t)name >> 4) * 0xc2b2ae3d27d4eb4full;

	return hash ^ hash >> 31;
}

struct ptx_symbol *ptx_symbol_find(struct ptx_module *module, const void *scope, const char *name)
{
	struct ptx_symbol *symbol;

	if (!module->symbol_room)
		return NULL;
	symbol = module->symbols[symbol_hash(scope, name) & (module->symbol_room - 1)];
	while (symbol && (symbol->scope != scope || symbol->name != name))
		symbol = symbol->chain;
	return symbol;
}

struct ptx_symbol *ptx_symbol_add(struct ptx_module *module, const void *scope, const char *name,
				  enum ptx_symbol_kind kind)
{
	struct ptx_symbol *symbol = ptx_alloc(module, sizeof(*symbol));
	struct ptx_symbol **bucket;

	if (module->symbol_count >= module->symbol_room) {
		uint32_t room = module->symbol_room ? module->symbol_room * 2 : 1024;
		struct ptx_symbol **symbols = ptx_alloc(module, room * sizeof(*symbols));

		for (uint32_t i = 0; i < module->symbol_room; i++) {
			struct ptx_symbol *next;

			for (struct ptx_symbol *one = module->symbols[i]; one; one = next) {
				next = one->chain;
				bucket = &symbols[symbol_hash(one->scope, one->name) & (room - 1)];
				one->chain = *bucket;
				*bucket = one;
			}
		}
		module->symbols = symbols;
		module->symbol_room = room;
	}
	symbol->scope = scope;
	symbol->name = name;
	symbol->kind = kind;
	symbol->vector = 1;
	symbol->slot = PTX_NO_SLOT;
	symbol->source = module->source;
	bucket = &module->symbols[symbol_hash(scope, name) & (module->symbol_room - 1)];
	symbol->chain = *bucket;
	*bucket = symbol;
	module->symbol_count++;
	return symbol;
}

struct ptx_symbol *ptx_symbol_lookup(struct ptx_module *module, const struct ptx_scope *scope, const char *name)
{
	size_t size = strlen(name);
	size_t digits = size;
	uint64_t number = 0;
	const char *prefix = NULL;

	while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9' && size - digits < 9)
		digits--;
	if (digits < size && digits > 0 && (name[digits] != '0' || digits + 1 == size)) {
		number = strtoull(name + digits, NULL, 10);
		prefix = ptx_intern(module, name, digits);
	}
	for (; scope; scope = scope->parent) {
		struct ptx_symbol *symbol = ptx_symbol_find(module, scope, name);
		struct ptx_symbol *range;

		if (symbol && symbol->kind != SYM_RANGE)
			return symbol;
		/* %r17 may belong to %r<20>, or to %r1<8>: the longest prefix is what writers of PTX mean. */
		range = prefix ? ptx_symbol_find(module, scope, prefix) : NULL;
		if (range && range->kind == SYM_RANGE && number < range->count) {
			symbol = ptx_symbol_add(module, scope, name, SYM_REG);
			symbol->type = range->type;
			symbol->vector = range->vector;
			return symbol;
		}
	}
	return NULL;
}

struct ptx_symbol *ptx_symbol_real(struct ptx_symbol *symbol)
{
	/* Links are at most two deep: alias, then another source's definition. */
	for (int depth = 0; symbol->link && depth < 4; depth++)
		symbol = symbol->link;
	return symbol;
}

uint32_t ptx_slot_new(struct ptx_module *module, struct ptx_function *function, enum ptx_type type)
{
	uint32_t slot = function->frame_size;
	uint32_t size = type == T_PRED ? 64 : ptx_type_size(type) * 32;

	if (size < 64)
		size = 64;
	/* The highest bit of a slot says "constant"; a frame beyond this is no real program. */
	if (slot > (64u << 20))
		ptx_fail(module, PTX_UNSUPPORTED, 0, 0, "%s: more registers than we can hold", function->name);
	function->frame_size = slot + size;
	return slot;
}
