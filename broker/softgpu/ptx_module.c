/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a module: read, linked, decoded, bound to addresses, freed. See ptx.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/exec.h"

#define SOURCES_MAX 4096 /* of a link */

/* As ptx_unit.c has it. */
struct ptx_chunk {
	struct ptx_chunk *next;
};

int ptx_module_link(const struct ptx_source *sources, size_t count, const struct ptx_target *target,
		    struct ptx_module **module_out, struct ptx_error *error)
{
	struct ptx_module *module;

	memset(error, 0, sizeof(*error));
	module = calloc(1, sizeof(*module));
	if (!module) {
		error->kind = PTX_MEMORY;
		return -ENOMEM;
	}
	module->error = error;
	module->target = *target;
	module->functions_tail = &module->functions;
	if (setjmp(module->failed)) {
		ptx_module_free(module);
		return error->kind == PTX_MEMORY ? -ENOMEM : -EINVAL;
	}
	if (!count || count > SOURCES_MAX)
		ptx_fail(module, PTX_SYNTAX, 0, 0, "%zu sources", count);
	module->files = ptx_alloc(module, count * sizeof(*module->files));
	module->file_count = (uint32_t)count;
	for (module->source = 0; module->source < count; module->source++) {
		const struct ptx_source *source = &sources[module->source];
		char *copy;

		if (source->size > PTX_TEXT_SIZE_MAX)
			ptx_fail(module, PTX_SYNTAX, 0, 0, "a text of %zu bytes", source->size);
		/* statements point into it as long as the module lives */
		copy = ptx_alloc(module, source->size + 1);
		memcpy(copy, source->text, source->size);
		ptx_parse_source(module, copy, source->size);
	}
	module->source = 0;
	ptx_link(module);
	ptx_decode(module);
	ptx_measure(module);
	module->error = NULL;
	*module_out = module;
	return 0;
}

int ptx_module_parse(const char *text, size_t size, const struct ptx_target *target, struct ptx_module **module_out,
		     struct ptx_error *error)
{
	struct ptx_source source = { .text = text, .size = size };

	return ptx_module_link(&source, 1, target, module_out, error);
}

void ptx_module_free(struct ptx_module *module)
{
	struct ptx_chunk *next;

	if (!module)
		return;
	for (struct ptx_chunk *chunk = module->chunks; chunk; chunk = next) {
		next = chunk->next;
		free(chunk);
	}
	free(module);
}

uint32_t ptx_module_version(const struct ptx_module *module)
{
	return module->version;
}

uint32_t ptx_module_sm(const struct ptx_module *module)
{
	return module->sm;
}

uint32_t ptx_module_entry_count(const struct ptx_module *module)
{
	return module->entry_count;
}

const struct ptx_entry *ptx_module_entry(const struct ptx_module *module, uint32_t index)
{
	return index < module->entry_count ? &module->entries[index]->entry : NULL;
}

const struct ptx_entry *ptx_module_entry_find(const struct ptx_module *module, const char *name)
{
	for (uint32_t i = 0; i < module->entry_count; i++)
		if (!strcmp(module->entries[i]->name, name))
			return &module->entries[i]->entry;
	return NULL;
}

uint32_t ptx_module_global_count(const struct ptx_module *module)
{
	return module->global_count;
}

const struct ptx_global *ptx_module_global(const struct ptx_module *module, uint32_t index)
{
	return index < module->global_count ? &module->globals[index] : NULL;
}

/* Without .visible too: nvcc marks no variable of a whole program so, and the driver finds them all the same. */
const struct ptx_global *ptx_module_global_find(const struct ptx_module *module, const char *name)
{
	for (uint32_t i = 0; i < module->global_count; i++)
		if (!strcmp(module->globals[i].name, name))
			return &module->globals[i];
	return NULL;
}

static uint64_t functions_moved; /* before the first module is read */

void ptx_functions_move(uint64_t bytes)
{
	functions_moved = bytes;
}

uint64_t ptx_functions_at(void)
{
	return PTX_WINDOW_FUNCTION + functions_moved;
}

/* The address of a name in an initialiser. 0: there is none. */
static uint64_t address_of(const struct ptx_module *module, struct ptx_symbol *symbol)
{
	symbol = ptx_symbol_real(symbol);
	if (symbol->kind == SYM_FUNCTION)
		return symbol->function && symbol->function->has_body
			       ? ptx_functions_at() + 16 * (symbol->function->index + 1ull)
			       : 0;
	if (symbol->kind != SYM_VAR)
		return 0;
	if (symbol->where == IN_GLOBAL || symbol->where == IN_CONST)
		return module->addresses[symbol->offset];
	return symbol->offset;
}

static int write_initial(struct ptx_module *module, uint32_t index)
{
	struct ptx_symbol *var = module->global_symbols[index];
	uint8_t *memory = (uint8_t *)(uintptr_t)module->addresses[index];

	memset(memory, 0, var->size);
	for (const struct ptx_init *init = var->init; init; init = init->next) {
		uint64_t value = init->value;

		if (init->offset > var->size || init->size > var->size - init->offset)
			return -EINVAL;
		if (init->name) {
			struct ptx_symbol *symbol = ptx_symbol_lookup(module, &module->files[var->source], init->name);

			if (!symbol)
				return -EINVAL;
			value += address_of(module, symbol);
			value >>= init->shift;
		}
		memcpy(memory + init->offset, &value, init->size);
	}
	return 0;
}

int ptx_module_bind(struct ptx_module *module, const uint64_t *addresses, const bool *filled, uint32_t count)
{
	struct ptx_error error;
	int result;

	if (module->bound || count != module->global_count)
		return -EINVAL;
	module->error = &error;
	if (setjmp(module->failed))
		return -ENOMEM;
	module->addresses = ptx_alloc(module, (count + 1) * sizeof(*module->addresses));
	if (count)
		memcpy(module->addresses, addresses, count * sizeof(*addresses));
	for (uint32_t i = 0; i < count; i++) {
		result = filled && filled[i] ? 0 : write_initial(module, i);
		if (result < 0)
			return result;
	}
	for (const struct ptx_fixup *fixup = module->fixups; fixup; fixup = fixup->next) {
		uint64_t value = module->addresses[fixup->symbol->offset] + (uint64_t)fixup->addend;

		for (uint32_t lane = 0; lane < EXEC_LANES; lane++)
			memcpy(module->consts + fixup->offset + lane * fixup->size, &value, fixup->size);
	}
	module->bound = true;
	module->error = NULL;
	return 0;
}
