/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver says about a loaded image. Executor thread; see verdict_make.h.
 *
 * Asking about a function makes a lazy driver load it. So parameters and attributes of all functions are read only for images of few,
 * which are the program's own; of other images the client asks for each function that is used.
 */
#include "broker/worker/verdict_make.h"

#include <stdlib.h>
#include <string.h>

#include "broker/worker/keep.h"
#include "broker/worker/note.h"
#include "broker/worker/touch.h"

#define BLOB_FIRST 4096u

/* A function of a module, or a kernel of a library. */
struct asked {
	bool kernel;
	CUfunction function;
	CUkernel kernel_of;
	CUdevice device;
};

static CUresult param_info(struct worker *w, const struct asked *f, uint32_t index, struct verdict_param *param)
{
	size_t offset = 0, size = 0;
	CUresult r = f->kernel ? w->drv.cuKernelGetParamInfo(f->kernel_of, index, &offset, &size) :
				 w->drv.cuFuncGetParamInfo(f->function, index, &offset, &size);

	*param = (struct verdict_param){ .offset = (uint32_t)offset, .size = (uint32_t)size };
	return r;
}

/* False: the driver can't tell. */
static bool params_read(struct worker *w, const struct asked *f, struct verdict_param *params, uint32_t *count_out)
{
	uint32_t count = 0;
	CUresult r;

	while (count < VERDICT_PARAMS) {
		r = param_info(w, f, count, &params[count]);
		/* Beyond the last it is INVALID_VALUE; NOT_FOUND is a driver that does not know the question. */
		if (r == CUDA_ERROR_NOT_FOUND || r == CUDA_ERROR_NOT_SUPPORTED)
			return false;
		if (r != CUDA_SUCCESS)
			break;
		count++;
	}
	*count_out = count;
	return true;
}

static bool attributes_read(struct worker *w, const struct asked *f, int32_t attributes[VERDICT_ATTRIBUTES])
{
	for (int i = 0; i < VERDICT_ATTRIBUTES; i++) {
		int value = 0;
		CUresult r = f->kernel ? w->drv.cuKernelGetAttribute(&value, (CUfunction_attribute)i, f->kernel_of, f->device) :
					 w->drv.cuFuncGetAttribute(&value, (CUfunction_attribute)i, f->function);

		/* Some attributes are known only of a function that a lazy driver has loaded. */
		if (r == CUDA_ERROR_FUNCTION_NOT_LOADED && !f->kernel && w->drv.cuFuncLoad(f->function) == CUDA_SUCCESS)
			r = w->drv.cuFuncGetAttribute(&value, (CUfunction_attribute)i, f->function);
		if (r != CUDA_SUCCESS)
			note(w, "function attribute %d: %d", i, (int)r);
		/* Older drivers know fewer attributes; the first ones all do. */
		if (r != CUDA_SUCCESS && i <= CU_FUNC_ATTRIBUTE_BINARY_VERSION)
			return false;
		attributes[i] = r == CUDA_SUCCESS ? value : 0;
	}
	return true;
}

static const char *function_name(struct worker *w, const struct asked *f)
{
	const char *name = NULL;
	CUresult r = f->kernel ? w->drv.cuKernelGetName(&name, f->kernel_of) : w->drv.cuFuncGetName(&name, f->function);

	return r == CUDA_SUCCESS && name && strlen(name) <= VERDICT_NAME ? name : NULL;
}

/* @params is room for VERDICT_PARAMS. @all: more than its name. */
static void function_put(struct worker *w, const struct asked *f, const char *name, bool all, struct verdict_param *params, struct writer *out)
{
	int32_t attributes[VERDICT_ATTRIBUTES];
	uint32_t count = 0;
	uint32_t flags = 0;

	if (all && params_read(w, f, params, &count))
		flags |= VERDICT_HAS_PARAMS;
	else
		count = 0;
	if (all && attributes_read(w, f, attributes))
		flags |= VERDICT_HAS_ATTRIBUTES;
	verdict_function_put(out, name, params, count, flags, attributes);
}

/* All functions of the object: their number, and an array of the driver's handles. False: it can't enumerate. */
static bool functions_list(struct worker *w, bool library, void *driver, void ***list_out, uint32_t *count_out)
{
	unsigned int count = 0;
	CUresult r = library ? w->drv.cuLibraryGetKernelCount(&count, driver) :
			       w->drv.cuModuleGetFunctionCount(&count, driver);
	void **list;

	if (r != CUDA_SUCCESS || count > VERDICT_FUNCTIONS)
		return false;
	list = calloc(count ? count : 1, sizeof(*list));
	if (!list)
		return false;
	if (count)
		r = library ? w->drv.cuLibraryEnumerateKernels((CUkernel *)list, count, driver) :
			      w->drv.cuModuleEnumerateFunctions((CUfunction *)list, count, driver);
	if (r != CUDA_SUCCESS) {
		free(list);
		return false;
	}
	*list_out = list;
	*count_out = count;
	return true;
}

/* A buffer that grows: tries @put until it fits. */
struct blob {
	uint8_t *bytes;
	struct writer w;
};

static bool blob_grow(struct blob *b, size_t at)
{
	size_t size = b->w.size * 2;
	uint8_t *bytes = realloc(b->bytes, size);

	if (!bytes)
		return false;
	b->bytes = bytes;
	b->w = writer_on(bytes, size);
	b->w.at = at;
	return true;
}

uint8_t *verdict_make(struct worker *w, CUresult code, uint64_t object, uint32_t device, const struct verdict_jit *jit,
		      size_t *size_out)
{
	enum object_type type = object ? handle_type(object) : OBJECT_NONE;
	struct object *o = object ? object_find(w->tables, type, object) : NULL;
	struct verdict v = { .code = (uint32_t)code, .option_count = jit->count };
	struct verdict_param *params = malloc(VERDICT_PARAMS * sizeof(*params));
	struct blob b = { .bytes = malloc(BLOB_FIRST + 2 * VERDICT_LOG) };
	void **list = NULL;
	uint32_t count = 0;

	if (!params || !b.bytes)
		goto fail;
	if (o && !functions_list(w, type == OBJECT_LIBRARY, o->driver, &list, &count))
		v.flags |= VERDICT_UNLISTED;
	b.w = writer_on(b.bytes, BLOB_FIRST + 2 * VERDICT_LOG);
	verdict_put(&b.w, &v);
	for (uint32_t i = 0; i < jit->count; i++)
		verdict_option_put(&b.w, jit->options[i], jit->values[i]);
	verdict_logs_put(&b.w, jit->info, jit->error);

	for (uint32_t i = 0; i < count; i++) {
		struct asked f = { .kernel = type == OBJECT_LIBRARY, .function = list[i], .kernel_of = list[i],
				   .device = w->devices[device] };
		const char *name = function_name(w, &f);
		size_t at = b.w.at;

		if (!name) {
			complain("function %u of an image has no name that can be told", i);
			continue;
		}
		function_put(w, &f, name, count <= VERDICT_EAGER, params, &b.w);
		while (b.w.fault) {
			if (!blob_grow(&b, at))
				goto fail;
			function_put(w, &f, name, count <= VERDICT_EAGER, params, &b.w);
		}
		v.function_count++;
	}
	if (count)
		keep_touch(w, o->ctx, object, TOUCH_ALL, "");
	free(list);
	free(params);
	v.size = b.w.at;
	*size_out = b.w.at;

	struct writer head = writer_on(b.bytes, VERDICT_HEADER_SIZE);

	verdict_put(&head, &v);
	return b.bytes;

fail:
	free(list);
	free(params);
	free(b.bytes);
	return NULL;
}

/* What is asked about a function, whatever the answers are. */
static void function_ask(struct worker *w, const struct asked *f, struct verdict_param *params)
{
	int32_t attributes[VERDICT_ATTRIBUTES];
	uint32_t count;

	params_read(w, f, params, &count);
	attributes_read(w, f, attributes);
}

void verdict_touch(struct worker *w, uint64_t object, uint32_t device)
{
	enum object_type type = handle_type(object);
	struct object *o = object_find(w->tables, type, object);
	struct verdict_param *params = malloc(VERDICT_PARAMS * sizeof(*params));
	void **list = NULL;
	uint32_t count = 0;

	if (o && params && functions_list(w, type == OBJECT_LIBRARY, o->driver, &list, &count))
		for (uint32_t i = 0; i < count; i++) {
			struct asked f = { .kernel = type == OBJECT_LIBRARY, .function = list[i], .kernel_of = list[i],
					   .device = w->devices[device] };

			if (function_name(w, &f) && count <= VERDICT_EAGER)
				function_ask(w, &f, params);
		}
	free(list);
	free(params);
}

static CUresult function_find(struct worker *w, struct asked *f, void *driver, const char *name)
{
	return f->kernel ? w->drv.cuLibraryGetKernel(&f->kernel_of, driver, name) :
			   w->drv.cuModuleGetFunction(&f->function, driver, name);
}

CUresult verdict_function_touch(struct worker *w, uint64_t object, void *driver, const char *name, uint32_t device)
{
	struct asked f = { .kernel = handle_type(object) == OBJECT_LIBRARY, .device = w->devices[device] };
	struct verdict_param *params = malloc(VERDICT_PARAMS * sizeof(*params));
	CUresult r = params ? function_find(w, &f, driver, name) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r == CUDA_SUCCESS)
		function_ask(w, &f, params);
	free(params);
	return r;
}

CUresult verdict_function_make(struct worker *w, uint64_t object, void *driver, const char *name, uint32_t device,
			       struct writer *out)
{
	struct asked f = { .kernel = handle_type(object) == OBJECT_LIBRARY, .device = w->devices[device] };
	struct verdict_param *params = malloc(VERDICT_PARAMS * sizeof(*params));
	CUresult r;

	if (!params)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = function_find(w, &f, driver, name);
	if (r == CUDA_SUCCESS) {
		function_put(w, &f, name, true, params, out);
		keep_touch(w, w->cmd ? w->cmd->hdr->ctx : CTX_NONE, object, TOUCH_NAMED, name);
	}
	free(params);
	return r;
}
