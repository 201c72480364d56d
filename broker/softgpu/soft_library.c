// SPDX-License-Identifier: Apache-2.0
/*
 * Libraries and their kernels. A library belongs to no context; its text is read once for its names, and once more
 * for each context that uses it. Any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/soft_memory.h"

#include "broker/softgpu/soft_module.h"
#include "broker/softgpu/soft_stream.h"

static pthread_mutex_t libraries_lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by libraries_lock */
static struct soft_library *libraries;

static void library_free(struct soft_object *object)
{
	struct soft_library *library = (struct soft_library *)object;

	ptx_module_free(library->ptx);
	soft_text_free(&library->text);
	free(library->kernels);
	free(library->managed);
	pthread_mutex_destroy(&library->lock);
	free(library);
}

static void kernel_free(struct soft_object *object)
{
	struct soft_kernel *kernel = (struct soft_kernel *)object;

	soft_object_put(&kernel->library->object);
	free(kernel);
}

static void module_drop(struct soft_in_context *use)
{
	/* The table's reference, unless the context's end was faster, and ours. */
	struct soft_object *object = soft_object_retire(atomic_load(&use->module->object.handle), SOFT_MODULE);

	if (object)
		soft_module_unload((struct soft_module *)object);
	soft_object_put(&use->module->object);
	free(use);
}

/* Takes kernels and modules out of sight, then lets go of the library. */
static void library_unload(struct soft_library *library)
{
	struct soft_in_context *use;

	pthread_mutex_lock(&libraries_lock);
	if (library->link) {
		*library->link = library->next;
		if (library->next)
			library->next->link = library->link;
		library->link = NULL;
	}
	pthread_mutex_unlock(&libraries_lock);
	pthread_mutex_lock(&library->lock);
	use = library->modules;
	library->modules = NULL;
	pthread_mutex_unlock(&library->lock);
	while (use) {
		struct soft_in_context *next = use->next;

		soft_context_sync(use->context);
		module_drop(use);
		use = next;
	}
	pthread_mutex_lock(&library->lock);
	for (uint32_t i = 0; library->managed && i < ptx_module_global_count(library->ptx); i++)
		if (library->managed[i])
			soft_memory_delete(library->managed[i], 1u << SOFT_RANGE_MANAGED);
	free(library->managed);
	library->managed = NULL;
	pthread_mutex_unlock(&library->lock);
	for (uint32_t i = 0; i < library->kernel_count; i++) {
		uint64_t handle = atomic_load(&library->kernels[i]->object.handle);

		soft_object_put(soft_object_retire(handle, SOFT_KERNEL));
	}
	soft_object_put(&library->object);
}

void soft_library_leave(struct soft_context *context)
{
	pthread_mutex_lock(&libraries_lock);
	for (struct soft_library *library = libraries; library; library = library->next) {
		struct soft_in_context **link, *use = NULL;

		pthread_mutex_lock(&library->lock);
		for (link = &library->modules; *link && (*link)->context != context; link = &(*link)->next)
			;
		use = *link;
		if (use)
			*link = use->next;
		pthread_mutex_unlock(&library->lock);
		if (use)
			module_drop(use);
	}
	pthread_mutex_unlock(&libraries_lock);
}

CUresult soft_library_module(struct soft_library *library, struct soft_context *context,
			     struct soft_module **module_out)
{
	struct ptx_error error = { .kind = PTX_OK };
	struct soft_in_context *use;
	CUresult result = CUDA_SUCCESS;

	context = soft_context_home(context);
	pthread_mutex_lock(&library->lock);
	for (use = library->modules; use && use->context != context; use = use->next)
		;
	if (!use) {
		use = calloc(1, sizeof(*use));
		result = use ? soft_module_new(context, &library->text, library, &error, &use->module)
			     : CUDA_ERROR_OUT_OF_MEMORY;
		if (result != CUDA_SUCCESS) {
			free(use);
			goto unlock;
		}
		soft_object_get(&use->module->object);
		use->context = context;
		use->next = library->modules;
		library->modules = use;
	}
	*module_out = (struct soft_module *)soft_object_get(&use->module->object);
unlock:
	pthread_mutex_unlock(&library->lock);
	return result;
}

static CUresult kernel_new(struct soft_library *library, uint32_t index, struct soft_kernel **kernel_out)
{
	struct soft_kernel *kernel = calloc(1, sizeof(*kernel));
	CUresult result;

	if (!kernel)
		return CUDA_ERROR_OUT_OF_MEMORY;
	soft_object_init(&kernel->object, SOFT_KERNEL, NULL, kernel_free);
	kernel->library = (struct soft_library *)soft_object_get(&library->object);
	kernel->entry = ptx_module_entry(library->ptx, index);
	for (unsigned int i = 0; i < SOFT_DEVICES_MAX; i++)
		soft_settings_init(&kernel->settings[i], kernel->entry);
	result = soft_object_publish(&kernel->object);
	if (result != CUDA_SUCCESS)
		soft_object_put(&kernel->object);
	else
		*kernel_out = kernel;
	return result;
}

/* Takes @text, also on failure. */
static CUresult library_new(struct soft_text *text, const struct soft_device *device, struct ptx_error *error,
			    CUlibrary *library_out)
{
	struct soft_library *library = calloc(1, sizeof(*library));
	CUresult result;
	uint32_t count;

	if (!library) {
		soft_text_free(text);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	soft_object_init(&library->object, SOFT_LIBRARY, NULL, library_free);
	pthread_mutex_init(&library->lock, NULL);
	library->text = *text;
	result = soft_text_parse(text, device, &library->ptx, error);
	if (result != CUDA_SUCCESS) {
		library->ptx = NULL;
		goto unload;
	}
	count = ptx_module_entry_count(library->ptx);
	library->kernels = calloc(count ? count : 1, sizeof(struct soft_kernel *));
	result = library->kernels ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
		result = kernel_new(library, i, &library->kernels[i]);
		if (result == CUDA_SUCCESS)
			library->kernel_count++;
	}
	if (result == CUDA_SUCCESS)
		result = soft_object_publish(&library->object);
	if (result != CUDA_SUCCESS)
		goto unload;
	*library_out = (CUlibrary)(uintptr_t)atomic_load(&library->object.handle);
	pthread_mutex_lock(&libraries_lock);
	library->next = libraries;
	library->link = &libraries;
	if (library->next)
		library->next->link = &library->next;
	libraries = library;
	pthread_mutex_unlock(&libraries_lock);
	return CUDA_SUCCESS;
unload:
	library_unload(library);
	return result;
}

/* The device whose code is chosen: the current one, or the first, since all are alike. */
static struct soft_device *library_device(void)
{
	SOFT_HELD struct soft_context *context = NULL;

	if (soft_context_enter_failed(&context) == CUDA_SUCCESS)
		return context->device;
	return soft_device_find(0);
}

static CUresult options_check(const int *options, void *const *values, unsigned int count)
{
	if (count && (!options || !values))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++) {
		if (options[i] < 0 || options[i] >= CU_LIBRARY_NUM_OPTIONS)
			return CUDA_ERROR_INVALID_VALUE;
		if (options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE)
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	return CUDA_SUCCESS;
}

static CUresult library_load(CUlibrary *library, const void *image, const char *path, struct soft_jit *jit)
{
	struct ptx_error error = { .kind = PTX_OK };
	struct soft_device *device = library_device();
	struct soft_text text;
	CUresult result;

	TRY(image ? soft_image_text(image, device, &text) : soft_image_file(path, device, &text));
	result = library_new(&text, device, &error, library);
	soft_jit_end(jit, result == CUDA_SUCCESS ? NULL : &error);
	return result;
}

SOFT_API(cuLibraryLoadData, CUlibrary *library, const void *image, CUjit_option *jit_options, void **jit_values,
	 unsigned int jit_count, int *options, void **values, unsigned int count)
{
	struct soft_jit jit;

	TRY(soft_ready());
	if (!library || !image)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_jit_begin(&jit, jit_count, jit_options, jit_values));
	TRY(options_check(options, values, count));
	return library_load(library, image, NULL, &jit);
}

SOFT_API(cuLibraryLoadFromFile, CUlibrary *library, const char *path, CUjit_option *jit_options, void **jit_values,
	 unsigned int jit_count, int *options, void **values, unsigned int count)
{
	struct soft_jit jit;

	TRY(soft_ready());
	if (!library || !path)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_jit_begin(&jit, jit_count, jit_options, jit_values));
	TRY(options_check(options, values, count));
	return library_load(library, NULL, path, &jit);
}

SOFT_API(cuLibraryUnload, CUlibrary handle)
{
	struct soft_object *library;

	TRY(soft_ready());
	library = soft_object_retire((uint64_t)(uintptr_t)handle, SOFT_LIBRARY);
	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	library_unload((struct soft_library *)library);
	return CUDA_SUCCESS;
}

#define LIBRARY_ARG(name, handle)                                                                           \
	TRY(soft_ready());                                                                                  \
	SOFT_HELD struct soft_library *name =                                                               \
		(struct soft_library *)soft_object_find((uint64_t)(uintptr_t)(handle), SOFT_LIBRARY);       \
	if (!name)                                                                                          \
	return CUDA_ERROR_INVALID_HANDLE

#define KERNEL_ARG(name, handle)                                                                            \
	TRY(soft_ready());                                                                                  \
	SOFT_HELD struct soft_kernel *name =                                                                \
		(struct soft_kernel *)soft_object_find((uint64_t)(uintptr_t)(handle), SOFT_KERNEL);         \
	if (!name)                                                                                          \
	return CUDA_ERROR_INVALID_HANDLE

SOFT_API(cuLibraryGetKernel, CUkernel *kernel, CUlibrary handle, const char *name)
{
	const struct ptx_entry *entry;

	LIBRARY_ARG(library, handle);
	if (!kernel || !name)
		return CUDA_ERROR_INVALID_VALUE;
	entry = ptx_module_entry_find(library->ptx, name);
	if (!entry)
		return CUDA_ERROR_NOT_FOUND;
	*kernel = (CUkernel)(uintptr_t)atomic_load(&library->kernels[entry->index]->object.handle);
	return CUDA_SUCCESS;
}

SOFT_API(cuLibraryGetKernelCount, unsigned int *count, CUlibrary handle)
{
	LIBRARY_ARG(library, handle);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = library->kernel_count;
	return CUDA_SUCCESS;
}

SOFT_API(cuLibraryEnumerateKernels, CUkernel *kernels, unsigned int count, CUlibrary handle)
{
	LIBRARY_ARG(library, handle);
	if (!kernels)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < MIN(count, library->kernel_count); i++)
		kernels[i] = (CUkernel)(uintptr_t)atomic_load(&library->kernels[i]->object.handle);
	return CUDA_SUCCESS;
}

SOFT_API(cuLibraryGetModule, CUmodule *module_out, CUlibrary handle)
{
	SOFT_HELD struct soft_module *module = NULL;

	SOFT_ENTER(context);
	LIBRARY_ARG(library, handle);
	if (!module_out)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_library_module(library, context, &module));
	*module_out = (CUmodule)(uintptr_t)atomic_load(&module->object.handle);
	return CUDA_SUCCESS;
}

static CUresult library_variable(CUdeviceptr *pointer, size_t *size, CUlibrary handle, const char *name, bool managed)
{
	SOFT_HELD struct soft_module *module = NULL;
	const struct ptx_global *global;

	SOFT_ENTER(context);
	LIBRARY_ARG(library, handle);
	if ((!pointer && !size) || !name)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_library_module(library, context, &module));
	global = ptx_module_global_find(module->ptx, name);
	if (!global || (managed && !global->managed))
		return CUDA_ERROR_NOT_FOUND;
	if (pointer)
		*pointer = module->globals[global->index];
	if (size)
		*size = global->size;
	return CUDA_SUCCESS;
}

SOFT_API(cuLibraryGetGlobal, CUdeviceptr *pointer, size_t *size, CUlibrary library, const char *name)
{
	return library_variable(pointer, size, library, name, false);
}

SOFT_API(cuLibraryGetManaged, CUdeviceptr *pointer, size_t *size, CUlibrary library, const char *name)
{
	return library_variable(pointer, size, library, name, true);
}

/* ---- kernels ---- */

CUresult soft_function_find(CUfunction handle, struct soft_context *context, struct soft_function **function_out)
{
	SOFT_HELD struct soft_kernel *kernel = NULL;
	SOFT_HELD struct soft_module *module = NULL;
	struct soft_object *object = soft_object_find((uint64_t)(uintptr_t)handle, SOFT_FUNCTION);

	if (object) {
		*function_out = (struct soft_function *)object;
		return CUDA_SUCCESS;
	}
	kernel = (struct soft_kernel *)soft_object_find((uint64_t)(uintptr_t)handle, SOFT_KERNEL);
	if (!kernel)
		return CUDA_ERROR_INVALID_HANDLE;
	TRY(soft_library_module(kernel->library, context, &module));
	*function_out = (struct soft_function *)soft_object_get(&module->functions[kernel->entry->index]->object);
	return CUDA_SUCCESS;
}

SOFT_API(cuKernelGetFunction, CUfunction *function_out, CUkernel handle)
{
	SOFT_HELD struct soft_function *function = NULL;

	SOFT_ENTER(context);
	KERNEL_ARG(kernel, handle);
	if (!function_out)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_function_find((CUfunction)handle, context, &function));
	*function_out = (CUfunction)(uintptr_t)atomic_load(&function->object.handle);
	return CUDA_SUCCESS;
}

SOFT_API(cuKernelGetLibrary, CUlibrary *library, CUkernel handle)
{
	KERNEL_ARG(kernel, handle);
	if (!library)
		return CUDA_ERROR_INVALID_VALUE;
	*library = (CUlibrary)(uintptr_t)atomic_load(&kernel->library->object.handle);
	return CUDA_SUCCESS;
}

SOFT_API(cuKernelGetName, const char **name, CUkernel handle)
{
	KERNEL_ARG(kernel, handle);
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	*name = kernel->entry->name;
	return CUDA_SUCCESS;
}

SOFT_API(cuKernelGetParamInfo, CUkernel handle, size_t index, size_t *offset, size_t *size)
{
	KERNEL_ARG(kernel, handle);
	return soft_entry_param(kernel->entry, index, offset, size);
}

SOFT_API(cuKernelGetAttribute, int *value, CUfunction_attribute attribute, CUkernel handle, CUdevice dev)
{
	KERNEL_ARG(kernel, handle);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (!soft_device_find(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	return soft_settings_get(&kernel->settings[dev], kernel->entry, kernel->library->ptx, soft_device_find(dev),
				 attribute, value);
}

SOFT_API(cuKernelSetAttribute, CUfunction_attribute attribute, int value, CUkernel handle, CUdevice dev)
{
	KERNEL_ARG(kernel, handle);
	if (!soft_device_find(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	return soft_settings_set(&kernel->settings[dev], kernel->entry, attribute, value);
}

SOFT_API(cuKernelSetCacheConfig, CUkernel handle, int config, CUdevice dev)
{
	KERNEL_ARG(kernel, handle);
	if (!soft_device_find(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (config < 0 || config > 3)
		return CUDA_ERROR_INVALID_VALUE;
	atomic_store(&kernel->settings[dev].cache_config, config);
	return CUDA_SUCCESS;
}
