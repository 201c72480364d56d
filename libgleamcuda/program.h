/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs: the modules and libraries that the program loaded, with their functions and kernels. Everything about them is
 * answered from the answer to the load; handles are made here and told to the worker without waiting.
 *
 *	library --- kernel (one a name) --- function (one a context in which it was used)
 *	   \------- module (one a context, for cuLibraryGetModule; its functions are the kernels')
 *	module ---- function (one a name)
 *
 * Objects are type-stable: a stale handle reads an old object, never freed memory. Any thread.
 */
#ifndef GLEAM_PROGRAM_H
#define GLEAM_PROGRAM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"
#include "broker/proto/handle.h"
#include "broker/proto/ring.h"
#include "broker/proto/snapshot.h"
#include "libgleamcuda/answer.h"
#include "libgleamcuda/session.h"

struct call;
struct context;
struct launch_state;
struct variable;

#define PROGRAM_VARIABLE_BUCKETS 64 /* a power of two; programs ask for a few, the largest for some thousand */

struct program {
	/* set before its handle is known, then only read */
	uint64_t handle; /* OBJECT_MODULE or OBJECT_LIBRARY */
	struct context *context; /* of a module; NULL for a library */
	uint32_t epoch;		 /* of that context */
	int device;		 /* that the answer's attributes speak of */
	struct answer *answer;	 /* NULL: a library whose load failed, with load_result (told when something is asked of it) */
	CUresult load_result;
	uint32_t loaded;	 /* bit per session whose worker has it */
	CUresult results[SESSIONS_MAX]; /* of loads at those that don't */
	uint32_t managed;	 /* atomic: 1 + session whose worker has its managed variables; 0: none is known */
	struct program *library; /* of a module that cuLibraryGetModule gave */
	void **made;		 /* by index in the answer: struct function, or struct kernel of a library; atomic pointers */

	pthread_mutex_t lock;
	/* guarded by lock */
	struct program_other *others; /* made for functions that the answer learnt by name */
	struct variable *variables[PROGRAM_VARIABLE_BUCKETS];
	struct program *modules[SESSION_CONTEXTS]; /* of a library */
};

/*
 * What a worker's driver holds launches against, the highest that it was ever told. A launch is checked here, when it is made; by when
 * it reaches the driver the program may have set the bound lower, for its next one, so there it is never lowered. Atomics that only
 * rise; they begin with what the load told.
 */
struct bounds {
	int32_t dynamic_shared; /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes */
	int32_t nonportable;	/* CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED */
};

static inline void bound_rise(int32_t *bound, int32_t value)
{
	int32_t old = __atomic_load_n(bound, __ATOMIC_RELAXED);

	while (old < value && !__atomic_compare_exchange_n(bound, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

struct function {
	/* set before it can be found, then only read */
	struct program *program;
	struct kernel *kernel; /* of a library's function */
	struct answer_function *info;
	struct context *context;
	uint32_t epoch;
	uint64_t wire; /* what commands call it: the kernel's handle, or its own */

	/* written once by function_ready(), then only read; ready is released after them */
	uint32_t ready;
	uint32_t param_count;
	uint32_t params_size;
	bool has_gaps;
	const struct verdict_param *params;

	/* atomics */
	int32_t values[VERDICT_ATTRIBUTES]; /* by CUfunction_attribute, as they are now */
	struct bounds bounds;
	bool own_cluster;		    /* see function_cluster() */
	uint64_t handle;		    /* OBJECT_FUNCTION; 0 until the program asks for it */
	uint32_t cache_config;
	struct launch_state *state; /* of the oldest launch functions; made by the first of them */
};

struct kernel {
	/* set before it can be found, then only read */
	uint64_t handle;
	struct program *program;
	struct answer_function *info;

	/* atomics */
	struct kernel_values *devices[SNAPSHOT_DEVICES];
	struct function *functions[SESSION_CONTEXTS];
	uint32_t cache_config[SNAPSHOT_DEVICES];
};

/* A kernel's attributes on one device. */
struct kernel_values {
	int32_t values[VERDICT_ATTRIBUTES]; /* atomics */
	struct bounds bounds;
	bool own_cluster; /* atomic */
};

/* ---- programs ---- */

/* Not yet known by any handle. NULL when memory is short. */
struct program *program_new(enum object_type type, struct context *context);
/* What every worker that has the library is told by @send; what it came to at the call's own. */
CUresult library_tell(struct call *call, const struct program *library, CUresult (*send)(struct call *call, const void *message),
		      const void *message);
/* Does the session's worker have the library, and may it run there? The failure of the load if not. */
CUresult library_is_in(const struct program *library, const struct session *session);
/* Ends its handle and those of everything in it; tells nobody. */
void program_free(struct program *program);
/* A live module of a live context, or a live library. INVALID_HANDLE. */
CUresult module_of(CUmodule module, struct program **program_out);
CUresult library_of(CUlibrary library, struct program **program_out);
/* A context was destroyed or reset (the worker knows): end its modules and functions. */
void programs_context_gone(struct context *context);

/* ---- functions and kernels ---- */

/* NOT_FOUND; also the failure of a library's load. */
CUresult program_find(struct call *call, struct program *program, const char *name, struct answer_function **info_out);
/* The module's function or the library's kernel, made and told to the worker at the first time. */
CUresult program_function(struct call *call, struct program *module, struct answer_function *info,
			  struct function **function_out);
CUresult program_kernel(struct call *call, struct program *library, struct answer_function *info,
			struct kernel **kernel_out);

/* What a CUfunction argument means for questions and settings, where the driver takes functions only. INVALID_HANDLE. */
CUresult function_of(CUfunction function, struct function **function_out);
CUresult kernel_of(CUkernel kernel, struct kernel **kernel_out);
/* What it means for launches and occupancy, where a kernel stands for its function in @context. */
CUresult function_in(struct call *call, CUfunction function, struct context *context, struct function **function_out);
/* The kernel's function in a context; no message is sent. */
CUresult kernel_function(struct call *call, struct kernel *kernel, struct context *context,
			 struct function **function_out);
/* The module that a library is in a context, made at the first time. */
CUresult library_module(struct call *call, struct program *library, struct context *context, struct program **module_out);
/* Its handle, told to the worker at the first time. */
CUresult function_handle(struct call *call, struct function *function, uint64_t *handle_out);

bool function_cluster_slowly(const struct function *function, const CUlaunchAttribute *attrs, uint32_t count,
			     CUlaunchAttribute *attr_out);
CUresult function_ready_slowly(struct call *call, struct function *function);
/* Layout and values are known after this. At most one trip, and none for what came with the load. */
static inline CUresult function_ready(struct call *call, struct function *function)
{
	/* Pairs with the release in function_ready_slowly(). */
	if (__builtin_expect(__atomic_load_n(&function->ready, __ATOMIC_ACQUIRE), 1))
		return CUDA_SUCCESS;
	return function_ready_slowly(call, function);
}

static inline int32_t function_value(const struct function *function, CUfunction_attribute attribute)
{
	return __atomic_load_n(&function->values[attribute], __ATOMIC_RELAXED);
}

/*
 * The cluster that the program has required of a function since it was loaded. The worker's driver is never told: it would hold older
 * launches that wait there against it. So it is an attribute of each launch that has none such (@attrs, @count). False: none is needed;
 * what a function was compiled for the driver knows.
 */
static inline bool function_cluster(const struct function *function, const CUlaunchAttribute *attrs, uint32_t count,
				    CUlaunchAttribute *attr_out)
{
	if (__builtin_expect(!__atomic_load_n(&function->own_cluster, __ATOMIC_RELAXED), 1))
		return false;
	return function_cluster_slowly(function, attrs, count, attr_out);
}

/* What follows is about the kernel on @device, at that one's worker: the load's failure where it isn't there. */
CUresult kernel_at(struct call *call, const struct kernel *kernel, int device);
/* The kernel's values on a device, asked for at most once. */
CUresult kernel_values_of(struct call *call, struct kernel *kernel, int device, struct kernel_values **values_out);

/* Of a launch's older relatives; launch.c. */
void launch_state_free(struct launch_state *state);

/* Calls @each with every function of a module, as the tools-module table of cuFFT wants it. */
CUresult module_each_function(CUmodule module, void (*each)(void *user, CUfunction), void *user);

/* ---- variables ---- */

/* The address of a variable in the call's context: one trip, then remembered. NOT_FOUND. NOT_SUPPORTED for a managed one whose
 * address is taken in this process, or that another server has. */
CUresult program_variable(struct call *call, struct program *program, const char *name, uint64_t *address_out,
			  uint64_t *size_out, bool *managed_out);
/* Forget what was remembered for one context (NULL: all). Program's lock is held, or nobody else can have it. */
void program_variables_forget(struct program *program, const struct context *context);

#endif
