// SPDX-License-Identifier: Apache-2.0
/*
 * Modules: from text to functions and variables in a context. Any thread.
 */
#include "broker/softgpu/soft_module.h"

#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/soft_memory.h"
#include "broker/softgpu/soft_stream.h"

static const unsigned int symbol_kinds = 1u << SOFT_RANGE_SYMBOL | 1u << SOFT_RANGE_MANAGED;

static void module_free(struct soft_object *object)
{
	struct soft_module *module = (struct soft_module *)object;

	ptx_module_free(module->ptx);
	free(module->functions);
	free(module->globals);
	free(module);
}

static void function_free(struct soft_object *object)
{
	struct soft_function *function = (struct soft_function *)object;

	soft_object_put(&function->module->object);
	if (function->kernel)
		soft_object_put(&function->kernel->object);
	free(function);
}

/* Memory for every variable; what was taken stays in @module->globals for the caller to give back. */
static CUresult global_place(struct soft_module *module, struct soft_context *context, struct soft_library *library, uint32_t i,
			     bool *filled_out)
{
	const struct ptx_global *global = ptx_module_global(module->ptx, i);
	uint64_t size = MAX(global->size, 1);

	*filled_out = false;
	soft_places_variable(context->device);
	if (!global->managed)
		return soft_memory_new(context, size, SOFT_RANGE_SYMBOL, 0, &module->globals[i]);
	if (!library)
		return soft_memory_managed(context->device, context, size, 1, &module->globals[i]);
	/* A library's managed variables are one for all contexts. Its lock is held. */
	*filled_out = library->managed[i] != 0;
	if (!*filled_out)
		TRY(soft_memory_managed(context->device, NULL, size, 1, &library->managed[i]));
	module->globals[i] = library->managed[i];
	return CUDA_SUCCESS;
}

static CUresult globals_place(struct soft_module *module, struct soft_context *context, struct soft_library *library)
{
	uint32_t count = ptx_module_global_count(module->ptx);
	bool *filled = calloc(count ? count : 1, sizeof(*filled));
	CUresult result = CUDA_SUCCESS;

	module->globals = calloc(count ? count : 1, sizeof(*module->globals));
	if (library && !library->managed)
		library->managed = calloc(count ? count : 1, sizeof(*library->managed));
	if (!module->globals || !filled || (library && !library->managed))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
		result = global_place(module, context, library, i, &filled[i]);
		module->global_count = result == CUDA_SUCCESS ? i + 1 : i;
	}
	if (result == CUDA_SUCCESS && ptx_module_bind(module->ptx, module->globals, filled, count) < 0)
		result = CUDA_ERROR_INVALID_PTX;
	free(filled);
	return result;
}

static void globals_drop(struct soft_module *module)
{
	/* A context that has ended has given them back already: then they are not found. */
	for (uint32_t i = 0; i < module->global_count; i++)
		if (!module->library || !ptx_module_global(module->ptx, i)->managed)
			soft_memory_delete(module->globals[i], symbol_kinds);
	module->global_count = 0;
}

static CUresult function_new(struct soft_module *module, uint32_t index, struct soft_library *library,
			     struct soft_function **function_out)
{
	struct soft_context *context = module->object.owner;
	struct soft_function *function = calloc(1, sizeof(*function));
	CUresult result;

	if (!function)
		return CUDA_ERROR_OUT_OF_MEMORY;
	soft_object_init(&function->object, SOFT_FUNCTION, context, function_free);
	function->module = (struct soft_module *)soft_object_get(&module->object);
	function->entry = ptx_module_entry(module->ptx, index);
	soft_settings_init(&function->own, function->entry);
	function->settings = &function->own;
	if (library) {
		/* Two readings of one text list the same entries in the same order. */
		function->kernel = (struct soft_kernel *)soft_object_get(&library->kernels[index]->object);
		function->settings = &function->kernel->settings[context->device->ordinal];
	}
	result = soft_object_publish(&function->object);
	if (result != CUDA_SUCCESS)
		soft_object_put(&function->object);
	else
		*function_out = function;
	return result;
}

void soft_module_unload(struct soft_module *module)
{
	for (uint32_t i = 0; i < module->function_count; i++) {
		uint64_t handle = atomic_load(&module->functions[i]->object.handle);

		soft_object_put(soft_object_retire(handle, SOFT_FUNCTION));
	}
	globals_drop(module);
	soft_object_put(&module->object);
}

CUresult soft_module_new(struct soft_context *context, const struct soft_text *text, struct soft_library *library,
			 struct ptx_error *error, struct soft_module **module_out)
{
	struct soft_module *module = calloc(1, sizeof(*module));
	uint32_t count;
	CUresult result;

	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	soft_object_init(&module->object, SOFT_MODULE, context, module_free);
	module->library = library != NULL;
	result = soft_text_parse(text, context->device, &module->ptx, error);
	if (result != CUDA_SUCCESS) {
		module->ptx = NULL;
		goto unload;
	}
	result = globals_place(module, context, library);
	if (result != CUDA_SUCCESS)
		goto unload;
	count = ptx_module_entry_count(module->ptx);
	module->functions = calloc(count ? count : 1, sizeof(struct soft_function *));
	result = module->functions ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
		result = function_new(module, i, library, &module->functions[i]);
		if (result == CUDA_SUCCESS)
			module->function_count++;
	}
	if (result == CUDA_SUCCESS)
		result = soft_object_publish(&module->object);
	if (result != CUDA_SUCCESS)
		goto unload;
	*module_out = module;
	return CUDA_SUCCESS;
unload:
	soft_module_unload(module);
	return result;
}

static CUresult module_load(CUmodule *module_out, struct soft_context *context, struct soft_text *text,
			    const struct soft_jit *jit)
{
	struct ptx_error error = { .kind = PTX_OK };
	struct soft_module *module;
	CUresult result = soft_module_new(context, text, NULL, &error, &module);

	soft_jit_end(jit, result == CUDA_SUCCESS ? NULL : &error);
	if (result == CUDA_SUCCESS)
		*module_out = (CUmodule)(uintptr_t)atomic_load(&module->object.handle);
	soft_text_free(text);
	return result;
}

SOFT_API(cuModuleLoadDataEx, CUmodule *module, const void *image, unsigned int option_count, CUjit_option *options,
	 void **values)
{
	struct soft_text text;
	struct soft_jit jit;

	SOFT_ENTER(context);
	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_jit_begin(&jit, option_count, options, values));
	TRY(soft_image_text(image, context->device, &text));
	/* As NVIDIA's driver may, and on an H200 does: whoever puts a wait in front of a load that ends only behind it hangs. */
	soft_context_sync(context);
	return module_load(module, context, &text, &jit);
}

SOFT_API(cuModuleLoadData, CUmodule *module, const void *image)
{
	return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

SOFT_API(cuModuleLoadFatBinary, CUmodule *module, const void *image)
{
	return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

SOFT_API(cuModuleLoad, CUmodule *module, const char *path)
{
	struct soft_text text;
	struct soft_jit jit;

	SOFT_ENTER(context);
	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_jit_begin(&jit, 0, NULL, NULL));
	TRY(soft_image_file(path, context->device, &text));
	return module_load(module, context, &text, &jit);
}

#define MODULE_ARG(name, handle)                                                                                      \
	SOFT_HELD struct soft_module *name =                                                                          \
		(struct soft_module *)soft_object_find((uint64_t)(uintptr_t)(handle), SOFT_MODULE);                   \
	if (!name)                                                                                                    \
	return CUDA_ERROR_INVALID_HANDLE

SOFT_API(cuModuleUnload, CUmodule handle)
{
	struct soft_module *module;

	SOFT_ENTER(context);
	MODULE_ARG(found, handle);
	if (found->library)
		return CUDA_ERROR_NOT_PERMITTED;
	/* Its variables go: nothing that uses them may be on its way. */
	TRY(soft_context_sync(found->object.owner));
	module = (struct soft_module *)soft_object_retire((uint64_t)(uintptr_t)handle, SOFT_MODULE);
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	soft_module_unload(module);
	return CUDA_SUCCESS;
}

SOFT_API(cuModuleGetLoadingMode, int *mode)
{
	const char *wanted = getenv("CUDA_MODULE_LOADING");

	TRY(soft_ready());
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = wanted && strcmp(wanted, "EAGER") == 0 ? 1 : 2;
	return CUDA_SUCCESS;
}

SOFT_API(cuModuleGetFunction, CUfunction *function, CUmodule handle, const char *name)
{
	const struct ptx_entry *entry;

	SOFT_ENTER(context);
	if (!function || !name)
		return CUDA_ERROR_INVALID_VALUE;
	MODULE_ARG(module, handle);
	entry = ptx_module_entry_find(module->ptx, name);
	if (!entry)
		return CUDA_ERROR_NOT_FOUND;
	*function = (CUfunction)(uintptr_t)atomic_load(&module->functions[entry->index]->object.handle);
	return CUDA_SUCCESS;
}

SOFT_API(cuModuleGetFunctionCount, unsigned int *count, CUmodule handle)
{
	SOFT_ENTER(context);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	MODULE_ARG(module, handle);
	*count = module->function_count;
	return CUDA_SUCCESS;
}

SOFT_API(cuModuleEnumerateFunctions, CUfunction *functions, unsigned int count, CUmodule handle)
{
	SOFT_ENTER(context);
	if (!functions)
		return CUDA_ERROR_INVALID_VALUE;
	MODULE_ARG(module, handle);
	for (uint32_t i = 0; i < MIN(count, module->function_count); i++)
		functions[i] = (CUfunction)(uintptr_t)atomic_load(&module->functions[i]->object.handle);
	return CUDA_SUCCESS;
}

SOFT_API(cuModuleGetGlobal_v2, CUdeviceptr *pointer, size_t *size, CUmodule handle, const char *name)
{
	const struct ptx_global *global;

	SOFT_ENTER(context);
	if ((!pointer && !size) || !name)
		return CUDA_ERROR_INVALID_VALUE;
	MODULE_ARG(module, handle);
	global = ptx_module_global_find(module->ptx, name);
	if (!global)
		return CUDA_ERROR_NOT_FOUND;
	if (pointer)
		*pointer = module->globals[global->index];
	if (size)
		*size = global->size;
	return CUDA_SUCCESS;
}
