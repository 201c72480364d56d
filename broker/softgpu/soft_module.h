/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules, which belong to a context, and libraries, which don't and become a module in each context that uses them.
 */
#ifndef SOFT_MODULE_H
#define SOFT_MODULE_H

#include "broker/softgpu/soft_context.h"
#include "broker/softgpu/soft_image.h"

/* What a program sets of a function. One word each, so that they are read without a lock. */
struct soft_settings {
	_Atomic int dynamic_max; /* shared bytes a launch may ask for */
	_Atomic int carveout;
	_Atomic int nonportable;
	_Atomic int cluster_policy;
	_Atomic int cluster[3]; /* required by the program, where the code requires none; 0: neither does */
	_Atomic int cache_config;
};

struct soft_kernel;
struct soft_module;

struct soft_function {
	struct soft_object object;
	/* counted */
	struct soft_module *module;
	struct soft_kernel *kernel; /* NULL where the module is no library's */
	const struct ptx_entry *entry;
	struct soft_settings *settings; /* own, or the kernel's */
	struct soft_settings own;
	_Atomic bool used; /* soft_places.c */
};

struct soft_module {
	struct soft_object object;
	struct ptx_module *ptx;
	uint32_t function_count;
	struct soft_function **functions; /* alive until the module is unloaded */
	uint32_t global_count;
	uint64_t *globals; /* addresses */
	bool library;	   /* made for a library: the program can't unload it */
};

struct soft_library {
	struct soft_object object;
	struct soft_text text;
	struct ptx_module *ptx; /* for names and properties; never bound */
	uint32_t kernel_count;
	struct soft_kernel **kernels;
	struct soft_library *next, **link; /* guarded by the libraries' lock */

	pthread_mutex_t lock;
	/* guarded by lock: addresses of managed variables by index, 0: not made yet; of all contexts */
	uint64_t *managed;
	/* guarded by lock: this library's module in each context that has used it */
	struct soft_in_context {
		struct soft_in_context *next;
		struct soft_context *context;
		struct soft_module *module;
	} *modules;
};

struct soft_kernel {
	struct soft_object object;
	struct soft_library *library; /* counted */
	const struct ptx_entry *entry;
	struct soft_settings settings[SOFT_DEVICES_MAX];
};

/* Makes a module of @text in @context; with @library's kernels behind its functions where it is given. */
CUresult soft_module_new(struct soft_context *context, const struct soft_text *text, struct soft_library *library,
			 struct ptx_error *error, struct soft_module **module_out);

/* Takes the module out of the program's sight and frees what it has. Takes the table's reference. */
void soft_module_unload(struct soft_module *module);

/* This library's module in @context, counted; made at the first use. */
CUresult soft_library_module(struct soft_library *library, struct soft_context *context,
			     struct soft_module **module_out);

/* Drops every library's module in a context that ends. */
void soft_library_leave(struct soft_context *context);

/* What a CUfunction argument names, counted: a function, or a kernel, which becomes one in @context. */
CUresult soft_function_find(CUfunction handle, struct soft_context *context, struct soft_function **function_out);

void soft_settings_init(struct soft_settings *settings, const struct ptx_entry *entry);

/* One attribute of an entry; INVALID_VALUE where there is none such. */
CUresult soft_settings_get(const struct soft_settings *settings, const struct ptx_entry *entry,
			   const struct ptx_module *ptx, const struct soft_device *device, int attribute, int *value_out);
CUresult soft_settings_set(struct soft_settings *settings, const struct ptx_entry *entry, int attribute, int value);

/* soft_places.c: at the start; before a variable gets its place; when @function is used. */
void soft_places_begin(void);
void soft_places_variable(struct soft_device *device);
void soft_places_function(struct soft_function *function);

CUresult soft_entry_param(const struct ptx_entry *entry, size_t index, size_t *offset, size_t *size);

#endif
