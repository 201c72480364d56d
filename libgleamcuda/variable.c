// SPDX-License-Identifier: Apache-2.0
/*
 * Variables of modules and libraries: where the driver put them. Asked for once, then remembered, and known to the range
 * map as long as their program lives. Any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/managed.h"
#include "libgleamcuda/program.h"
#include "libgleamcuda/range.h"

struct variable {
	struct variable *next;
	struct context *context;
	uint32_t epoch;
	uint64_t address;
	uint64_t size;
	bool managed;
	char name[];
};

static struct variable **bucket_of(struct program *program, const char *name)
{
	struct verdict_key key = { 0 };

	answer_key_add(&key, name, strlen(name));
	return &program->variables[key.hash[0] % PROGRAM_VARIABLE_BUCKETS];
}

/* A library's managed variable is one for all contexts. */
static bool variable_is_of(const struct program *program, const struct variable *v, const struct context *context)
{
	return (v->context == context || (v->managed && !program->context && v->context->session == context->session)) &&
	       v->epoch == __atomic_load_n(&v->context->epoch, __ATOMIC_RELAXED);
}

static struct variable *variable_find_locked(struct program *program, const struct context *context, const char *name)
{
	struct variable *v = *bucket_of(program, name);

	while (v && (!variable_is_of(program, v, context) || strcmp(v->name, name)))
		v = v->next;
	return v;
}

static CUresult variable_ask(struct call *call, struct program *program, const char *name, uint64_t *address_out,
			     uint64_t *size_out, bool *managed_out)
{
	CUresult result;

	if (handle_type(program->handle) == OBJECT_MODULE) {
		struct msg_cuModuleGetGlobal_v2 m = { .hmod = program->handle, .name = name };
		struct ans_cuModuleGetGlobal_v2 a;

		result = CALL_ASK(call, cuModuleGetGlobal_v2, &m);
		if (result)
			return result;
		if (!ans_cuModuleGetGlobal_v2_get(&call->r, &a))
			return CUDA_ERROR_UNKNOWN;
		*address_out = a.dptr;
		*size_out = a.bytes;
		*managed_out = a.managed;
	} else {
		struct msg_cuLibraryGetGlobal m = { .library = program->handle, .name = name };
		struct ans_cuLibraryGetGlobal a;

		result = CALL_ASK(call, cuLibraryGetGlobal, &m);
		if (result)
			return result;
		if (!ans_cuLibraryGetGlobal_get(&call->r, &a))
			return CUDA_ERROR_UNKNOWN;
		*address_out = a.dptr;
		*size_out = a.bytes;
		*managed_out = a.managed;
	}
	return CUDA_SUCCESS;
}

static CUresult variable_remember_locked(struct call *call, struct program *program, struct context *context,
					 const char *name, uint64_t address, uint64_t size, bool managed)
{
	size_t name_size = strlen(name) + 1;
	struct variable **bucket = bucket_of(program, name);
	struct variable *v = malloc(sizeof(*v) + name_size);
	struct range range = { .start = address, .size = size, .kind = RANGE_GLOBAL, .device = context->device,
			       .context = context, .dev = address, .owner = program };
	uint32_t none = 0, here = context->session->index + 1;
	CUresult result = CUDA_SUCCESS;

	/* Host and devices have it in turns, which one server can see to. */
	if (managed && !__atomic_compare_exchange_n(&program->managed, &none, here, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) &&
	    none != here)
		result = CUDA_ERROR_NOT_SUPPORTED;
	if (!result && managed && size && v)
		result = managed_variable(call, program, address, size);

	/* Without it the next call asks again. */
	if (!v || result) {
		free(v);
		return managed && !result ? CUDA_ERROR_OUT_OF_MEMORY : result;
	}
	*v = (struct variable){ .next = *bucket, .context = context, .address = address, .size = size,
				.managed = managed, .epoch = __atomic_load_n(&context->epoch, __ATOMIC_RELAXED) };
	memcpy(v->name, name, name_size);
	*bucket = v;
	/* Aliases have one address: the first name has the range. */
	if (size && !managed)
		(void)range_add(&range);
	return CUDA_SUCCESS;
}

CUresult program_variable(struct call *call, struct program *program, const char *name, uint64_t *address_out,
			  uint64_t *size_out, bool *managed_out)
{
	struct context *context = program->context ? program->context : call->context;
	struct variable *v;
	uint64_t address, size;
	bool managed = false;
	CUresult result;

	if (!program->answer && !program->library)
		return program->load_result;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!program->context) {
		result = library_is_in(program, context->session);
		if (result)
			return result;
	}
	if (strnlen(name, VERDICT_NAME) >= VERDICT_NAME)
		return CUDA_ERROR_NOT_FOUND;
	pthread_mutex_lock(&program->lock);
	v = variable_find_locked(program, context, name);
	if (v) {
		*address_out = v->address;
		*size_out = v->size;
		*managed_out = v->managed;
	}
	pthread_mutex_unlock(&program->lock);
	if (v)
		return CUDA_SUCCESS;

	struct context *current = call->context;

	call_in(call, context);
	result = variable_ask(call, program, name, &address, &size, &managed);
	if (!result) {
		pthread_mutex_lock(&program->lock);
		if (!variable_find_locked(program, context, name))
			result = variable_remember_locked(call, program, context, name, address, size, managed);
		pthread_mutex_unlock(&program->lock);
	}
	call_in(call, current);
	if (result)
		return result;
	*address_out = address;
	*size_out = size;
	*managed_out = managed;
	return CUDA_SUCCESS;
}

void program_variables_forget(struct program *program, const struct context *context)
{
	for (uint32_t i = 0; i < PROGRAM_VARIABLE_BUCKETS; i++) {
		struct variable **at = &program->variables[i];

		while (*at) {
			struct variable *v = *at;
			struct range range;

			if (context && v->context != context) {
				at = &v->next;
				continue;
			}
			*at = v->next;
			if (v->managed)
				managed_variable_gone(program, v->address);
			else if (range_find(v->address, &range) && range.kind == RANGE_GLOBAL && range.owner == program &&
			    range.start == v->address)
				range_remove(v->address, false, NULL);
			free(v);
		}
	}
}
