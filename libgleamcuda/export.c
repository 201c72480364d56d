// SPDX-License-Identifier: Apache-2.0
/*
 * cuGetExportTable: the private tables that cudart and the libraries ask for. An array of pointers whose first word is its
 * size in bytes; callers look at the size before they use a late slot, and at nothing else. Sizes are those of the real
 * driver. No slot is empty: what nobody was seen to call answers NOT_SUPPORTED.
 *
 * All slots are called on threads of the program, also before cuInit, in a forked child and from destructors.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gen/bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/cls.h"
#include "libgleamcuda/compiled.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/init.h"
#include "libgleamcuda/integrity.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stream.h"

#define SLOT(function) ((const void *)(uintptr_t)(function))

static CUresult slot_unused(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* The context that an argument names; NULL means the current one. */
static struct context *context_named(CUcontext ctx)
{
	return ctx ? context_find(ctx) : context_current();
}

static bool is_active(const struct context *context)
{
	return context && __atomic_load_n(&context->active, __ATOMIC_ACQUIRE);
}

/* A call of a slot's own: as of the public function that is its twin. */
static CUresult slot_enter(struct call *call, enum api api, struct context *context)
{
	CUresult result = call_enter(call, api, NEEDS_INIT, false);

	if (result)
		return result;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!is_active(context))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	call_in(call, context);
	return CUDA_SUCCESS;
}

/* ---- 6bd5fb6c: what the runtime needs beside the API ---- */

/* The primary context's handle, which is there before anybody retains it. */
static CUresult runtime_primary(CUcontext *ctx, CUdevice dev)
{
	struct context *context;

	if (!process_is_initialised())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	context = context_primary(dev);
	if (!context)
		return CUDA_ERROR_INVALID_DEVICE;
	*ctx = context->handle;
	return CUDA_SUCCESS;
}

/* Runtimes of CUDA 11 and 12 load their images here: a module load with the arguments in three orders. */
static CUresult runtime_load(CUmodule *module, const void *wrapper)
{
	return cuModuleLoadData(module, wrapper);
}

static CUresult runtime_load_more(CUmodule *module, const void *wrapper, void *a, void *b, unsigned int c)
{
	return cuModuleLoadData(module, wrapper);
}

static CUresult runtime_load_bare(const void *image, CUmodule *module, void *a, void *b, unsigned int c)
{
	return cuModuleLoadData(module, image);
}

static void runtime_size(size_t size)
{
}

static CUresult runtime_compilers(void)
{
	return CUDA_SUCCESS;
}

static const void *const runtime_table[] = {
	(const void *)(uintptr_t)(13 * sizeof(void *)),
	SLOT(runtime_load),
	SLOT(runtime_primary),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(runtime_load_more),
	SLOT(runtime_size),
	SLOT(runtime_load_bare),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(runtime_compilers),
};

/* ---- a094798c: where tools would set marks; zeroed, no tool is there ---- */

#define HOOKS_SIZE	 1024
#define HOOKS_SMALL_SIZE 14

static void *hooks[HOOKS_SIZE / sizeof(void *)];
static void *hooks_small[(HOOKS_SMALL_SIZE + sizeof(void *) - 1) / sizeof(void *)];

static void hooks_give(void **array, size_t *size)
{
	*array = hooks;
	*size = HOOKS_SIZE;
}

static void hooks_small_give(void **array, size_t *size)
{
	*array = hooks_small;
	*size = HOOKS_SMALL_SIZE;
}

static const void *const hooks_table[] = {
	(const void *)(uintptr_t)(7 * sizeof(void *)),
	SLOT(slot_unused),
	SLOT(hooks_give),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(hooks_small_give),
};

/* ---- 42d85a81: this thread's context ---- */

static CUresult tls_context(CUcontext *ctx)
{
	const struct context *context;

	if (!process_is_initialised())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	context = context_current();
	*ctx = context ? context->handle : NULL;
	return CUDA_SUCCESS;
}

static const void *const tls_table[] = {
	(const void *)(uintptr_t)(3 * sizeof(void *)),
	SLOT(slot_unused),
	SLOT(tls_context),
};

/* ---- c693336e: context-local storage; no size word, ends in NULL ---- */

static CUresult storage_put(CUcontext ctx, void *key, void *value, cls_destroy destroy)
{
	struct context *context;

	if (!process_is_initialised())
		return CUDA_ERROR_NOT_INITIALIZED;
	context = context_named(ctx);
	return context ? cls_put(context, key, value, destroy) : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult storage_delete(CUcontext ctx, void *key)
{
	struct context *context;

	if (!process_is_initialised())
		return CUDA_ERROR_NOT_INITIALIZED;
	context = context_named(ctx);
	return context ? cls_delete(context, key) : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult storage_get(void **value, CUcontext ctx, void *key)
{
	struct context *context;

	if (!process_is_initialised())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	context = context_named(ctx);
	return context ? cls_get(context, key, value) : CUDA_ERROR_INVALID_CONTEXT;
}

static const void *const storage_table[] = {
	SLOT(storage_put),
	SLOT(storage_delete),
	SLOT(storage_get),
	NULL,
};

/* ---- 263e8860: what kind of context it is ---- */

/* Flag 0: an ordinary one, none that wraps another. */
static CUresult check_kind(CUcontext ctx, uint32_t *flag, const void **other)
{
	if (!process_is_initialised())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!flag)
		return CUDA_ERROR_INVALID_VALUE;
	if (!context_named(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	*flag = 0;
	if (other)
		*other = NULL;
	return CUDA_SUCCESS;
}

static unsigned int check_none(void)
{
	return 0;
}

static const void *const check_table[] = {
	(const void *)(uintptr_t)(15 * sizeof(void *)),
	SLOT(slot_unused),
	SLOT(check_kind),
	SLOT(check_none),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(slot_unused),
};

/* ---- d4082055: integrity ---- */

static CUresult integrity_give(uint32_t version, uint64_t unix_seconds, uint8_t digest[INTEGRITY_SIZE]);

static const void *const integrity_table[] = {
	(const void *)(uintptr_t)(3 * sizeof(void *)),
	SLOT(integrity_give),
	SLOT(slot_unused),
};

static CUresult integrity_give(uint32_t version, uint64_t unix_seconds, uint8_t digest[INTEGRITY_SIZE])
{
	struct integrity_device devices[SNAPSHOT_DEVICES];
	struct integrity what = {
		.driver_version = driver_version(),
		.version = version,
		.process = (uint32_t)getpid(),
		.thread = (uint32_t)pthread_self(),
		.runtime_table = (uintptr_t)runtime_table,
		.integrity_table = (uintptr_t)integrity_table,
		.integrity_slot = (uintptr_t)integrity_table[1],
		.time = unix_seconds,
	};

	if (!process_is_initialised())
		return CUDA_ERROR_NOT_INITIALIZED;
	for (int i = 0; i < device_count(); i++) {
		const struct device *device = device_at(i);

		memcpy(devices[i].uuid, device->raw->uuid_v1, sizeof(devices[i].uuid));
		devices[i].domain = device->attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID];
		devices[i].bus = device->attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID];
		devices[i].device = device->attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID];
	}
	integrity_digest(&what, devices, (uint32_t)device_count(), digest);
	return CUDA_SUCCESS;
}

/* ---- 21318c60: numbers of contexts and streams, for caches of the libraries ---- */

static CUresult tools_context_id(CUcontext ctx, uint64_t *number)
{
	struct context *context;

	if (!process_is_initialised())
		return CUDA_ERROR_NOT_INITIALIZED;
	context = context_named(ctx);
	if (!context || !number)
		return context ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
	if (!is_active(context))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*number = __atomic_load_n(&context->id, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

/* The object of a stream: its wire handle, which is a number of its own for each thread's stream too. */
static CUresult tools_stream_object(CUcontext ctx, CUstream stream, void **object, int per_thread)
{
	struct call call;
	uint64_t handle;
	CUresult result = slot_enter(&call, API_cuStreamGetId, context_named(ctx));

	if (!result && !object)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		call.ptds = per_thread != 0;
		result = call_stream_named(&call, stream, &handle);
	}
	if (!result)
		*object = (void *)(uintptr_t)handle;
	return call_leave(&call, result);
}

static CUresult tools_stream_id(CUcontext ctx, void *object, uint64_t *id)
{
	struct call call;
	uint64_t handle = (uint64_t)(uintptr_t)object;
	uint64_t number = 0;
	CUresult result = slot_enter(&call, API_cuStreamGetId, context_named(ctx));

	if (!result && !id)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		number = stream_id(&call, handle);
		if (!number)
			result = CUDA_ERROR_INVALID_HANDLE;
	}
	if (!result)
		*id = number;
	return call_leave(&call, result);
}

#define TOOLS_CONTEXT_SLOTS 93

static const void *const tools_context_table[TOOLS_CONTEXT_SLOTS] = {
	[0] = (const void *)(uintptr_t)(TOOLS_CONTEXT_SLOTS * sizeof(void *)),
	[1 ... 3] = SLOT(slot_unused),
	[4] = SLOT(tools_context_id),
	[5 ... 38] = SLOT(slot_unused),
	[39] = SLOT(tools_stream_id),
	[40 ... 50] = SLOT(slot_unused),
	[51] = SLOT(tools_stream_object),
	[52 ... TOOLS_CONTEXT_SLOTS - 1] = SLOT(slot_unused),
};

/* ---- 6e163fbe: the functions of a module ---- */

#define FUNCTIONS_MAX 65536 /* of one module: what cuFFT asks about has one */

/* 1 is success, for whoever calls. */
static int tools_module_each(CUcontext ctx, CUmodule module, void (*each)(void *user, CUfunction function), void *user)
{
	CUfunction *functions;
	unsigned int count = 0;
	int done = 0;

	if (!each || cuModuleGetFunctionCount(&count, module) != CUDA_SUCCESS || count > FUNCTIONS_MAX)
		return 0;
	if (!count)
		return 1;
	functions = calloc(count, sizeof(functions[0]));
	if (!functions)
		return 0;
	if (cuModuleEnumerateFunctions(functions, count, module) == CUDA_SUCCESS) {
		for (unsigned int i = 0; i < count; i++)
			each(user, functions[i]);
		done = 1;
	}
	free(functions);
	return done;
}

static const void *const tools_module_table[] = {
	(const void *)(uintptr_t)(8 * sizeof(void *)),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(slot_unused),
	SLOT(tools_module_each),
};

/* ---- 1734dc26: how the card's multiprocessors are grouped, for cuBLASLt on Hopper ---- */

static uint8_t *bytes_copy(const uint8_t *bytes, size_t size)
{
	uint8_t *copy = malloc(size);

	if (copy)
		memcpy(copy, bytes, size);
	return copy;
}

/* Two arrays in memory of their own: each multiprocessor pair's place in its group, and its group. */
static CUresult groups_give(uint8_t **places, uint8_t **groups)
{
	const struct context *context = context_current();
	const struct snapshot_device *raw;
	uint8_t *place, *group;

	if (!process_is_initialised())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!places || !groups)
		return CUDA_ERROR_INVALID_VALUE;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	raw = device_at(context->device)->raw;
	if (!raw->tpcs || raw->tpcs > SNAPSHOT_TPCS)
		return CUDA_ERROR_NOT_SUPPORTED;
	place = bytes_copy(raw->tpc_place, raw->tpcs);
	group = bytes_copy(raw->tpc_group, raw->tpcs);
	if (!place || !group) {
		free(place);
		free(group);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*places = place;
	*groups = group;
	return CUDA_SUCCESS;
}

static CUresult groups_free(uint8_t *places, uint8_t *groups)
{
	free(places);
	free(groups);
	return CUDA_SUCCESS;
}

#define GROUPS_SLOTS 17

static const void *const groups_table[GROUPS_SLOTS] = {
	[0] = (const void *)(uintptr_t)(GROUPS_SLOTS * sizeof(void *)),
	[1 ... 3] = SLOT(slot_unused),
	[4] = SLOT(groups_give),
	[5 ... 12] = SLOT(slot_unused),
	[13] = SLOT(groups_free),
	[14 ... GROUPS_SLOTS - 1] = SLOT(slot_unused),
};

/* ---- the list ---- */

struct export_table {
	uint8_t id[16];
	const void *table; /* NULL: known, and refused without effect on who asks */
	const char *name;
};

static const struct export_table tables[] = {
	{ { 0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9 },
	  runtime_table, "runtime interface" },
	{ { 0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66 },
	  hooks_table, "tools hooks" },
	{ { 0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc },
	  tls_table, "tools thread" },
	{ { 0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93 },
	  storage_table, "context-local storage" },
	{ { 0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e },
	  check_table, "context checks" },
	{ { 0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2 },
	  integrity_table, "integrity" },
	{ { 0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2 },
	  tools_context_table, "tools context" },
	{ { 0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99, 0x1e },
	  tools_module_table, "tools module" },
	{ { 0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b, 0xca },
	  groups_table, "multiprocessor groups" },
	{ { 0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e, 0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d, 0xd9 },
	  NULL, "log sink" },
	{ { 0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3, 0x28 },
	  compiled_table, "compile cache" },
	{ { 0x69, 0xa2, 0x8e, 0x9f, 0x24, 0x49, 0x8b, 0x47, 0xb0, 0x30, 0xc5, 0xda, 0x33, 0x0e, 0xa4, 0xe9 },
	  NULL, "NVML's table" },
};

static void unknown_log(const CUuuid *id)
{
	char text[2 * 16 + 1];

	for (int i = 0; i < 16; i++) {
		text[2 * i] = "0123456789abcdef"[(uint8_t)id->bytes[i] >> 4];
		text[2 * i + 1] = "0123456789abcdef"[(uint8_t)id->bytes[i] & 15];
	}
	text[32] = '\0';
	gleam_log("cuGetExportTable: the program asks for table %s, which nobody knows here", text);
}

/* Works before cuInit: cudart asks for its first table then. */
CUresult do_cuGetExportTable(struct call *call, const void **ppExportTable, const CUuuid *pExportTableId)
{
	if (!ppExportTable || !pExportTableId)
		return CUDA_ERROR_INVALID_VALUE;
	*ppExportTable = NULL;
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		if (memcmp(tables[i].id, pExportTableId->bytes, sizeof(tables[i].id)) != 0)
			continue;
		*ppExportTable = tables[i].table;
		return tables[i].table ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	}
	if (gleam_log_wanted())
		unknown_log(pExportTableId);
	return CUDA_ERROR_INVALID_VALUE;
}
