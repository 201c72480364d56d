// SPDX-License-Identifier: Apache-2.0
/*
 * The linker: PTX texts collected one by one and joined into one image. Machine code can't be linked here, since
 * there is nothing that would run it. A link state is used by one thread at a time, as with the real driver.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/soft_image.h"
#include "broker/softgpu/soft_module.h"

/* CUjitInputType */
enum { INPUT_CUBIN, INPUT_PTX, INPUT_FATBINARY, INPUT_OBJECT, INPUT_LIBRARY, INPUT_NVVM };

struct soft_link {
	struct soft_object object;
	struct soft_device *device;
	struct soft_jit jit; /* its buffers are the program's and last as long as the state */
	char *text;
	size_t size;
	uint32_t count;
};

static void link_free(struct soft_object *object)
{
	struct soft_link *link = (struct soft_link *)object;

	free(link->text);
	free(link);
}

static CUresult link_find(void *state, struct soft_link **link_out)
{
	TRY(soft_ready());
	*link_out = (struct soft_link *)soft_object_find((uint64_t)(uintptr_t)state, SOFT_LINK);
	return *link_out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

#define LINK_ARG(name, state)                    \
	SOFT_HELD struct soft_link *name = NULL; \
	TRY(link_find(state, &name))

SOFT_API(cuLinkCreate_v2, unsigned int count, CUjit_option *options, void **values, void **state)
{
	struct soft_link *link;
	struct soft_jit jit;
	CUresult result;

	SOFT_ENTER(context);
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_jit_begin(&jit, count, options, values));
	link = calloc(1, sizeof(*link));
	if (!link)
		return CUDA_ERROR_OUT_OF_MEMORY;
	soft_object_init(&link->object, SOFT_LINK, NULL, link_free);
	link->device = context->device;
	link->jit = jit;
	result = soft_object_publish(&link->object);
	if (result != CUDA_SUCCESS)
		soft_object_put(&link->object);
	else
		*state = (void *)(uintptr_t)atomic_load(&link->object.handle);
	return result;
}

SOFT_ALIAS(cuLinkCreate, cuLinkCreate_v2);

/* Takes @text. What is wrong with it shows when the link is completed, where all names are known. */
static CUresult link_append(struct soft_link *link, struct soft_text *text)
{
	size_t mark = link->count ? strlen(SOFT_LINK_MARK) : 0;
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	char *grown;

	if (link->count == SOFT_LINK_SOURCES_MAX || text->size > PTX_TEXT_SIZE_MAX - mark - link->size)
		goto free_text;
	grown = realloc(link->text, link->size + mark + text->size + 1);
	if (!grown)
		goto free_text;
	link->text = grown;
	memcpy(link->text + link->size, SOFT_LINK_MARK, mark);
	memcpy(link->text + link->size + mark, text->text, text->size + 1);
	link->size += mark + text->size;
	link->count++;
	result = CUDA_SUCCESS;
free_text:
	soft_text_free(text);
	return result;
}

static CUresult input_check(int type)
{
	switch (type) {
	case INPUT_PTX:
	case INPUT_FATBINARY:
		return CUDA_SUCCESS;
	case INPUT_CUBIN:
	case INPUT_OBJECT:
	case INPUT_LIBRARY:
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	case INPUT_NVVM:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

SOFT_API(cuLinkAddData_v2, void *state, int type, void *data, size_t size, const char *name, unsigned int count,
	 CUjit_option *options, void **values)
{
	struct soft_text text;
	struct soft_jit jit;
	char *copy;
	CUresult result;

	LINK_ARG(link, state);
	if (!data || !size)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_jit_begin(&jit, count, options, values));
	TRY(input_check(type));
	/* Its length is known here, so that a text need not end and a container is not believed beyond it. */
	copy = malloc(size + 1);
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(copy, data, size);
	copy[size] = 0;
	result = soft_image_bytes(copy, size + 1, link->device, &text);
	free(copy);
	if (result != CUDA_SUCCESS)
		return result;
	return link_append(link, &text);
}

SOFT_ALIAS(cuLinkAddData, cuLinkAddData_v2);

SOFT_API(cuLinkAddFile_v2, void *state, int type, const char *path, unsigned int count, CUjit_option *options,
	 void **values)
{
	struct soft_text text;
	struct soft_jit jit;

	LINK_ARG(link, state);
	TRY(soft_jit_begin(&jit, count, options, values));
	TRY(input_check(type));
	TRY(soft_image_file(path, link->device, &text));
	return link_append(link, &text);
}

SOFT_ALIAS(cuLinkAddFile, cuLinkAddFile_v2);

SOFT_API(cuLinkComplete, void *state, void **image, size_t *size)
{
	struct ptx_error error = { .kind = PTX_OK };
	struct ptx_module *module;
	struct soft_text text;
	CUresult result;

	LINK_ARG(link, state);
	if (!image || !link->count)
		return CUDA_ERROR_INVALID_VALUE;
	text = (struct soft_text){ .text = link->text, .size = link->size };
	result = soft_text_parse(&text, link->device, &module, &error);
	soft_jit_end(&link->jit, result == CUDA_SUCCESS ? NULL : &error);
	if (result != CUDA_SUCCESS)
		return result;
	ptx_module_free(module);
	/* The image is the state's, and is read by a module load as any text is. */
	*image = link->text;
	if (size)
		*size = link->size + 1;
	return CUDA_SUCCESS;
}

SOFT_API(cuLinkDestroy, void *state)
{
	struct soft_object *object;

	TRY(soft_ready());
	object = soft_object_retire((uint64_t)(uintptr_t)state, SOFT_LINK);
	if (!object)
		return CUDA_ERROR_INVALID_HANDLE;
	soft_object_put(object);
	return CUDA_SUCCESS;
}
