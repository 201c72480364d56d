// SPDX-License-Identifier: Apache-2.0
/*
 * Programs: births and deaths of modules, libraries, functions and kernels, and their place in each other. What the API
 * calls mean is in module.c, library.c and kernel.c. Any thread.
 */
#include "libgleamcuda/program.h"

#include <stdlib.h>
#include <string.h>

#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/image.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/stable.h"

struct program_other {
	struct program_other *next;
	const struct answer_function *info;
	void *made;
};

static struct stable programs = STABLE(struct program);
static struct stable functions = STABLE(struct function);
static struct stable kernels = STABLE(struct kernel);

/* ---- programs ---- */

struct program *program_new(enum object_type type, struct context *context)
{
	struct program *program = stable_take(&programs);

	if (!program)
		return NULL;
	pthread_mutex_init(&program->lock, NULL);
	program->context = type == OBJECT_MODULE ? context : NULL;
	program->epoch = context ? __atomic_load_n(&context->epoch, __ATOMIC_RELAXED) : 0;
	program->device = context ? context->device : 0;
	program->handle = handle_new(type, program->context, program);
	if (!program->handle) {
		stable_give(&programs, program);
		return NULL;
	}
	return program;
}

CUresult library_tell(struct call *call, const struct program *library, CUresult (*send)(struct call *call, const void *message),
		      const void *message)
{
	CUresult result = CUDA_SUCCESS;
	struct session *s;

	for (uint32_t i = 0; (s = session_at(i)); i++) {
		struct call other;

		if (!(library->loaded >> i & 1))
			continue;
		if (s == call->session) {
			result = send(call, message);
			continue;
		}
		call_start(&other, s, NULL);
		/* One that is lost has told it already, or does at the next call. */
		(void)send(&other, message);
		call_leave(&other, CUDA_SUCCESS);
	}
	return result;
}

CUresult library_is_in(const struct program *library, const struct session *session)
{
	uint32_t index = session->index;
	uint32_t managed = __atomic_load_n(&library->managed, __ATOMIC_RELAXED);

	if (!(library->loaded >> index & 1))
		return library->results[index] ? library->results[index] : CUDA_ERROR_INVALID_HANDLE;
	if (managed && managed != index + 1) {
		gleam_log("a library with __managed__ variables runs on the GPUs of one server: that of the first that was asked for");
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	return CUDA_SUCCESS;
}

static void function_free(struct function *function)
{
	if (!function)
		return;
	if (function->handle)
		handle_end(function->handle);
	launch_state_free(function->state);
	function->state = NULL;
	stable_give(&functions, function);
}

static void kernel_free(struct kernel *kernel)
{
	if (!kernel)
		return;
	handle_end(kernel->handle);
	for (uint32_t i = 0; i < SESSION_CONTEXTS; i++)
		function_free(kernel->functions[i]);
	for (uint32_t i = 0; i < SNAPSHOT_DEVICES; i++)
		free(kernel->devices[i]);
	stable_give(&kernels, kernel);
}

static void made_free(struct program *program, void *made)
{
	if (handle_type(program->handle) == OBJECT_LIBRARY)
		kernel_free(made);
	else
		function_free(made);
}

void program_free(struct program *program)
{
	handle_end(program->handle);
	for (uint32_t i = 0; i < SESSION_CONTEXTS; i++)
		if (program->modules[i])
			program_free(program->modules[i]);
	if (program->made)
		for (uint32_t i = 0; i < answer_count(program->answer); i++)
			made_free(program, program->made[i]);
	while (program->others) {
		struct program_other *next = program->others->next;

		made_free(program, program->others->made);
		free(program->others);
		program->others = next;
	}
	program_variables_forget(program, NULL);
	free(program->made);
	program->made = NULL;
	if (program->answer)
		answer_put(program->answer);
	program->answer = NULL;
	pthread_mutex_destroy(&program->lock);
	stable_give(&programs, program);
}

static bool program_is_alive(const struct program *program)
{
	return !program->context || (__atomic_load_n(&program->context->active, __ATOMIC_ACQUIRE) &&
				     __atomic_load_n(&program->context->epoch, __ATOMIC_RELAXED) == program->epoch);
}

static CUresult program_of(enum object_type type, const void *handle, struct program **program_out)
{
	struct program *program = handle_data(type, (uint64_t)(uintptr_t)handle);

	if (!program || !program_is_alive(program))
		return CUDA_ERROR_INVALID_HANDLE;
	*program_out = program;
	return CUDA_SUCCESS;
}

CUresult module_of(CUmodule module, struct program **program_out)
{
	return program_of(OBJECT_MODULE, module, program_out);
}

CUresult library_of(CUlibrary library, struct program **program_out)
{
	return program_of(OBJECT_LIBRARY, library, program_out);
}

/* ---- the end of a context ---- */

static __thread struct context *gone; /* of the handle_each() in progress: its callback has no argument of ours */

static void kernel_forget(uint64_t handle, void *data)
{
	struct kernel *kernel = data;

	(void)handle;
	function_free(__atomic_exchange_n(&kernel->functions[gone->index], NULL, __ATOMIC_ACQ_REL));
}

static void library_forget(uint64_t handle, void *data)
{
	struct program *library = data;
	struct program *module;

	(void)handle;
	pthread_mutex_lock(&library->lock);
	module = library->modules[gone->index];
	library->modules[gone->index] = NULL;
	program_variables_forget(library, gone);
	pthread_mutex_unlock(&library->lock);
	if (module)
		program_free(module);
}

static void module_forget(uint64_t handle, void *data)
{
	(void)handle;
	program_free(data);
}

void programs_context_gone(struct context *context)
{
	gone = context;
	handle_each(OBJECT_KERNEL, NULL, kernel_forget);
	handle_each(OBJECT_LIBRARY, NULL, library_forget);
	handle_each(OBJECT_MODULE, context, module_forget);
	gone = NULL;
}

/* ---- names ---- */

/* Two devices of one model give a function the same attributes. */
static bool device_is_like(int a, int b)
{
	const struct device *x = device_at(a), *y = device_at(b);
	const int major = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
	const int minor = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;

	return a == b || (x && y && !strcmp(x->raw->name, y->raw->name) &&
			  x->raw->attributes[major] == y->raw->attributes[major] &&
			  x->raw->attributes[minor] == y->raw->attributes[minor]);
}

/* Is what the worker says of a function, on the device of the call, true on the one that the program's answer speaks of? */
static bool is_own(const struct call *call, const struct program *program)
{
	return !call->context || device_is_like(program->device, call->context->device);
}

CUresult program_find(struct call *call, struct program *program, const char *name, struct answer_function **info_out)
{
	int32_t attributes[VERDICT_ATTRIBUTES];
	struct answer_function *info;

	if (program->library)
		program = program->library;
	if (!program->answer)
		return program->load_result;
	if (strnlen(name, VERDICT_NAME) >= VERDICT_NAME)
		return CUDA_ERROR_NOT_FOUND;
	info = answer_find(program->answer, name);
	/* A lazy driver calls a library empty whose image it can't compile: asked for a name, it says why. */
	if (!info && (answer_is_unlisted(program->answer) || (!program->context && !answer_count(program->answer)))) {
		CUresult result = image_ask(call, program->handle, program->answer, name, is_own(call, program), &info, attributes);

		if (result)
			return result;
	}
	if (!info)
		return CUDA_ERROR_NOT_FOUND;
	*info_out = info;
	return CUDA_SUCCESS;
}

/* Where the object of @info is kept, NULL when memory is short. The program's lock is held. */
static void **place_locked(struct program *program, const struct answer_function *info)
{
	uint32_t index = answer_index(program->answer, info);
	struct program_other *other;

	if (index < answer_count(program->answer)) {
		if (!program->made)
			__atomic_store_n(&program->made, calloc(answer_count(program->answer), sizeof(void *)),
					 __ATOMIC_RELEASE);
		return program->made ? &program->made[index] : NULL;
	}
	for (other = program->others; other; other = other->next)
		if (other->info == info)
			return &other->made;
	other = calloc(1, sizeof(*other));
	if (!other)
		return NULL;
	other->info = info;
	other->next = program->others;
	program->others = other;
	return &other->made;
}

static void *made_find(struct program *program, const struct answer_function *info)
{
	uint32_t index = answer_index(program->answer, info);
	void **made = __atomic_load_n(&program->made, __ATOMIC_ACQUIRE);

	return made && index < answer_count(program->answer) ? __atomic_load_n(&made[index], __ATOMIC_ACQUIRE) : NULL;
}

/* ---- functions of modules ---- */

static struct function *function_new(struct program *program, struct kernel *kernel, struct answer_function *info,
				     struct context *context)
{
	struct function *function = stable_take(&functions);

	if (!function)
		return NULL;
	function->program = program;
	function->kernel = kernel;
	function->info = info;
	function->context = context;
	function->epoch = __atomic_load_n(&context->epoch, __ATOMIC_RELAXED);
	return function;
}

static CUresult function_birth(struct call *call, struct program *module, struct answer_function *info,
			       struct function **function_out)
{
	struct function *function = function_new(module, NULL, info, module->context);
	struct msg_cuModuleGetFunction m = { .hmod = module->handle, .name = info->name };
	CUresult result;

	if (!function)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m.hfunc = handle_new(OBJECT_FUNCTION, module->context, function);
	if (!m.hfunc) {
		stable_give(&functions, function);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	function->handle = function->wire = m.hfunc;
	result = CALL_SEND(call, cuModuleGetFunction, &m);
	if (result) {
		function_free(function);
		return result;
	}
	*function_out = function;
	return CUDA_SUCCESS;
}

CUresult program_function(struct call *call, struct program *module, struct answer_function *info,
			  struct function **function_out)
{
	struct function *function;
	struct kernel *kernel;
	CUresult result = CUDA_SUCCESS;
	uint64_t handle;

	if (module->library) {
		result = program_kernel(call, module->library, info, &kernel);
		if (!result)
			result = kernel_function(call, kernel, module->context, function_out);
		return result ? result : function_handle(call, *function_out, &handle);
	}
	function = made_find(module, info);
	if (!function) {
		pthread_mutex_lock(&module->lock);

		void **place = place_locked(module, info);

		if (!place)
			result = CUDA_ERROR_OUT_OF_MEMORY;
		else if (!*place)
			result = function_birth(call, module, info, &function);
		else
			function = *place;
		if (!result)
			__atomic_store_n(place, function, __ATOMIC_RELEASE);
		pthread_mutex_unlock(&module->lock);
	}
	if (!result)
		*function_out = function;
	return result;
}

/* ---- kernels of libraries ---- */

static CUresult kernel_send(struct call *call, const void *message)
{
	const struct msg_cuLibraryGetKernel *m = message;
	return CALL_SEND(call, cuLibraryGetKernel, m);
}

static CUresult kernel_birth(struct call *call, struct program *library, struct answer_function *info,
			     struct kernel **kernel_out)
{
	struct kernel *kernel = stable_take(&kernels);
	struct msg_cuLibraryGetKernel m = { .library = library->handle, .name = info->name };
	CUresult result;

	if (!kernel)
		return CUDA_ERROR_OUT_OF_MEMORY;
	kernel->program = library;
	kernel->info = info;
	m.pKernel = handle_new(OBJECT_KERNEL, NULL, kernel);
	if (!m.pKernel) {
		stable_give(&kernels, kernel);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	kernel->handle = m.pKernel;
	result = library_tell(call, library, kernel_send, &m);
	if (result) {
		kernel_free(kernel);
		return result;
	}
	*kernel_out = kernel;
	return CUDA_SUCCESS;
}

CUresult program_kernel(struct call *call, struct program *library, struct answer_function *info,
			struct kernel **kernel_out)
{
	struct kernel *kernel = made_find(library, info);
	CUresult result = CUDA_SUCCESS;

	if (!kernel) {
		pthread_mutex_lock(&library->lock);

		void **place = place_locked(library, info);

		if (!place)
			result = CUDA_ERROR_OUT_OF_MEMORY;
		else if (!*place)
			result = kernel_birth(call, library, info, &kernel);
		else
			kernel = *place;
		if (!result)
			__atomic_store_n(place, kernel, __ATOMIC_RELEASE);
		pthread_mutex_unlock(&library->lock);
	}
	if (!result)
		*kernel_out = kernel;
	return result;
}

CUresult kernel_function(struct call *call, struct kernel *kernel, struct context *context,
			 struct function **function_out)
{
	struct function **place = &kernel->functions[context->index];
	struct function *function = __atomic_load_n(place, __ATOMIC_ACQUIRE);
	struct function *expected = function;
	CUresult result;

	if (function && function->epoch == __atomic_load_n(&context->epoch, __ATOMIC_RELAXED)) {
		*function_out = function;
		return CUDA_SUCCESS;
	}
	result = library_is_in(kernel->program, context->session);
	if (result)
		return result;
	function = function_new(kernel->program, kernel, kernel->info, context);
	if (!function)
		return CUDA_ERROR_OUT_OF_MEMORY;
	function->wire = kernel->handle;
	function->cache_config = __atomic_load_n(&kernel->cache_config[context->device], __ATOMIC_RELAXED);
	if (!__atomic_compare_exchange_n(place, &expected, function, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		function_free(function);
		function = expected; /* another thread was first */
	} else {
		function_free(expected); /* of an older life of the context */
	}
	if (!function)
		return CUDA_ERROR_INVALID_CONTEXT;
	*function_out = function;
	return CUDA_SUCCESS;
}

CUresult function_handle(struct call *call, struct function *function, uint64_t *handle_out)
{
	struct program *program = function->program;
	uint64_t handle = __atomic_load_n(&function->handle, __ATOMIC_ACQUIRE);
	CUresult result = CUDA_SUCCESS;

	if (handle) {
		*handle_out = handle;
		return CUDA_SUCCESS;
	}
	pthread_mutex_lock(&program->lock);
	handle = function->handle;
	if (!handle) {
		struct msg_cuKernelGetFunction m = { .kernel = function->kernel->handle };
		struct context *current = call->context;

		m.pFunc = handle_new(OBJECT_FUNCTION, function->context, function);
		/* The worker makes it in the frame's context. */
		call_in(call, function->context);
		result = m.pFunc ? call_open(call, OP_cuKernelGetFunction, msg_cuKernelGetFunction_size(&m)) :
				   CUDA_ERROR_OUT_OF_MEMORY;
		if (!result) {
			msg_cuKernelGetFunction_put(&call->w, &m);
			call_post(call);
			handle = m.pFunc;
			__atomic_store_n(&function->handle, handle, __ATOMIC_RELEASE);
		} else if (m.pFunc) {
			handle_end(m.pFunc);
		}
		call_in(call, current);
	}
	pthread_mutex_unlock(&program->lock);
	if (!result)
		*handle_out = handle;
	return result;
}

/* ---- handles as arguments ---- */

static bool function_is_alive(const struct function *function)
{
	return __atomic_load_n(&function->context->epoch, __ATOMIC_RELAXED) == function->epoch &&
	       __atomic_load_n(&function->context->active, __ATOMIC_ACQUIRE);
}

CUresult function_of(CUfunction handle, struct function **function_out)
{
	struct function *function = handle_data(OBJECT_FUNCTION, (uint64_t)(uintptr_t)handle);

	if (!function || !function_is_alive(function))
		return CUDA_ERROR_INVALID_HANDLE;
	*function_out = function;
	return CUDA_SUCCESS;
}

CUresult kernel_of(CUkernel handle, struct kernel **kernel_out)
{
	struct kernel *kernel = handle_data(OBJECT_KERNEL, (uint64_t)(uintptr_t)handle);

	if (!kernel)
		return CUDA_ERROR_INVALID_HANDLE;
	*kernel_out = kernel;
	return CUDA_SUCCESS;
}

CUresult function_in(struct call *call, CUfunction handle, struct context *context, struct function **function_out)
{
	struct kernel *kernel;

	if (handle_type((uint64_t)(uintptr_t)handle) != OBJECT_KERNEL)
		return function_of(handle, function_out);

	CUresult result = kernel_of((CUkernel)handle, &kernel);

	return result ? result : kernel_function(call, kernel, context, function_out);
}

/* ---- values ---- */

/* The attributes that the function was loaded with on @device; asked for unless they came with the load. */
static CUresult info_values(struct call *call, struct program *program, struct answer_function *info, int device,
			    int32_t values_out[VERDICT_ATTRIBUTES])
{
	/* Pairs with the releases in answer_learn(). */
	if (__atomic_load_n(&info->has_params, __ATOMIC_ACQUIRE) && __atomic_load_n(&info->has_attributes, __ATOMIC_ACQUIRE) &&
	    device_is_like(program->device, device)) {
		memcpy(values_out, info->attributes, sizeof(info->attributes));
		return CUDA_SUCCESS;
	}
	return image_ask(call, program->handle, program->answer, info->name, is_own(call, program), &info, values_out);
}

CUresult kernel_at(struct call *call, const struct kernel *kernel, int device)
{
	struct session *of = device_at(device)->session;
	CUresult result = library_is_in(kernel->program, of);

	if (!result && of != call->session) {
		call->context = NULL;
		call_to(call, of);
	}
	return result;
}

/* Of a device that isn't the call's: attribute by attribute. */
static CUresult kernel_values_ask(struct call *call, struct kernel *kernel, int device,
				  int32_t values_out[VERDICT_ATTRIBUTES])
{
	CUresult there = kernel_at(call, kernel, device);

	if (there)
		return there;
	for (uint32_t i = 0; i < VERDICT_ATTRIBUTES; i++) {
		struct msg_cuKernelGetAttribute m = { .kernel = kernel->handle, .attrib = i,
						      .dev = (int32_t)device_at(device)->node_device };
		struct ans_cuKernelGetAttribute a;
		CUresult result = call_open(call, OP_cuKernelGetAttribute, msg_cuKernelGetAttribute_size(&m));

		if (result)
			return result;
		msg_cuKernelGetAttribute_put(&call->w, &m);
		result = call_wait(call);
		/* A driver that doesn't know the newest attributes says so: they are 0 then. */
		if (result && result != CUDA_ERROR_INVALID_VALUE)
			return result;
		if (!result && !ans_cuKernelGetAttribute_get(&call->r, &a))
			return CUDA_ERROR_UNKNOWN;
		values_out[i] = result ? 0 : a.pi;
	}
	return CUDA_SUCCESS;
}

static void bounds_begin(struct bounds *bounds, const int32_t values[VERDICT_ATTRIBUTES])
{
	bound_rise(&bounds->dynamic_shared, values[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES]);
	bound_rise(&bounds->nonportable, values[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED]);
}

CUresult kernel_values_of(struct call *call, struct kernel *kernel, int device, struct kernel_values **values_out)
{
	struct kernel_values *values = __atomic_load_n(&kernel->devices[device], __ATOMIC_ACQUIRE);
	struct kernel_values *expected = NULL;
	CUresult result;

	if (values) {
		*values_out = values;
		return CUDA_SUCCESS;
	}
	values = calloc(1, sizeof(*values));
	if (!values)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (device_is_like(kernel->program->device, device) || (call->context && call->context->device == device))
		result = info_values(call, kernel->program, kernel->info, device, values->values);
	else
		result = kernel_values_ask(call, kernel, device, values->values);
	if (result) {
		free(values);
		return result;
	}
	bounds_begin(&values->bounds, values->values);
	if (!__atomic_compare_exchange_n(&kernel->devices[device], &expected, values, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE)) {
		free(values);
		values = expected;
	}
	*values_out = values;
	return CUDA_SUCCESS;
}

CUresult function_ready_slowly(struct call *call, struct function *function)
{
	struct program *program = function->program;
	int32_t values[VERDICT_ATTRIBUTES];
	struct context *current = call->context;
	bool own_cluster = false;
	CUresult result;

	call_in(call, function->context);
	if (function->kernel) {
		struct kernel_values *of_kernel;

		result = kernel_values_of(call, function->kernel, function->context->device, &of_kernel);
		if (!result)
			own_cluster = __atomic_load_n(&of_kernel->own_cluster, __ATOMIC_RELAXED);
		for (uint32_t i = 0; !result && i < VERDICT_ATTRIBUTES; i++)
			values[i] = __atomic_load_n(&of_kernel->values[i], __ATOMIC_RELAXED);
		/* What its kernel is told from here on it is told, too: it can be found there. */
		if (!result) {
			bound_rise(&function->bounds.dynamic_shared, __atomic_load_n(&of_kernel->bounds.dynamic_shared, __ATOMIC_RELAXED));
			bound_rise(&function->bounds.nonportable, __atomic_load_n(&of_kernel->bounds.nonportable, __ATOMIC_RELAXED));
		}
	} else {
		result = info_values(call, program, function->info, function->context->device, values);
	}
	/* The layout is the same on every device. */
	if (!result && !__atomic_load_n(&function->info->has_params, __ATOMIC_ACQUIRE)) {
		int32_t ignored[VERDICT_ATTRIBUTES];
		struct answer_function *info;

		result = image_ask(call, program->handle, program->answer, function->info->name, is_own(call, program), &info,
				   ignored);
	}
	call_in(call, current);
	if (result)
		return result;
	pthread_mutex_lock(&program->lock);
	if (!function->ready) {
		memcpy(function->values, values, sizeof(values));
		bounds_begin(&function->bounds, values);
		function->own_cluster = own_cluster;
		function->params = function->info->params;
		function->param_count = function->info->param_count;
		function->params_size = function->info->params_size;
		function->has_gaps = function->info->has_gaps;
		/* Pairs with the acquire in function_ready(). */
		__atomic_store_n(&function->ready, 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&program->lock);
	return CUDA_SUCCESS;
}
