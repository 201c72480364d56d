// SPDX-License-Identifier: Apache-2.0
// sources: broker/softgpu/ptx_unit.c broker/softgpu/ptx_lex.c broker/softgpu/ptx_parse.c broker/softgpu/ptx_parse_body.c broker/softgpu/ptx_link.c broker/softgpu/ptx_module.c broker/softgpu/ptx_decode.c broker/softgpu/ptx_decode_alu.c broker/softgpu/ptx_decode_memory.c broker/softgpu/ptx_decode_flow.c broker/softgpu/ptx_decode_sync.c broker/softgpu/ptx_decode_texture.c broker/softgpu/ptx_decode_matrix.c broker/softgpu/exec_pool.c broker/softgpu/exec_launch.c broker/softgpu/exec_warp.c broker/softgpu/exec_barrier.c broker/softgpu/exec_call.c broker/softgpu/exec_memory.c broker/softgpu/exec_atomic.c broker/softgpu/exec_sync.c broker/softgpu/exec_sreg.c broker/softgpu/exec_texture.c broker/softgpu/exec_matrix.c broker/softgpu/exec_lanes_base.c broker/softgpu/exec_lanes_avx2.c libs: -lm
/*
 * Arbitrary text as PTX: read, bound, and every kernel of it run on a small block, with memory of a few pages. A
 * kernel that doesn't end is stopped.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "broker/softgpu/ptx.h"

#define GLOBALS_MAX    64
#define GLOBALS_SIZE   (1u << 16)
#define ARENA_SIZE     8192
#define PATIENCE_NS    3000000
#define SHARED_MAX     (16u << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t arena[ARENA_SIZE] __attribute__((aligned(256)));
static uint8_t *globals;
static _Atomic uint64_t started_ns;
static _Atomic uint32_t give_up;
static struct exec_pool *pool;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *watch(void *arg)
{
	struct timespec pause = { .tv_nsec = PATIENCE_NS };

	(void)arg;
	for (;;) {
		nanosleep(&pause, NULL);
		if (started_ns && now_ns() - started_ns > PATIENCE_NS)
			give_up = 1;
	}
	return NULL;
}

static void prepare(void)
{
	pthread_t thread;

	if (exec_pool_new(1, &pool) < 0 || pthread_create(&thread, NULL, watch, NULL))
		abort();
	pthread_detach(thread);
	globals = aligned_alloc(4096, GLOBALS_SIZE);
}

static int lookup(void *user, uint64_t addr, struct ptx_range *range_out)
{
	const uint8_t *bases[] = { arena, globals };
	const size_t sizes[] = { ARENA_SIZE, GLOBALS_SIZE };

	(void)user;
	for (int i = 0; i < 2; i++) {
		if (addr < (uintptr_t)bases[i] || addr - (uintptr_t)bases[i] >= sizes[i])
			continue;
		range_out->base = (uintptr_t)bases[i];
		range_out->size = sizes[i];
		range_out->read_only = false;
		return 0;
	}
	return -EFAULT;
}

static void print(void *user, const char *text, size_t size)
{
	(void)user;
	if (size && !text)
		abort();
}

static bool bind(struct ptx_module *module)
{
	uint64_t addresses[GLOBALS_MAX];
	uint32_t count = ptx_module_global_count(module);
	uint64_t used = 0;

	if (count > GLOBALS_MAX)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		const struct ptx_global *global = ptx_module_global(module, i);

		used = (used + global->align - 1) / global->align * global->align;
		if (used > GLOBALS_SIZE || global->size > GLOBALS_SIZE - used)
			return false;
		addresses[i] = (uintptr_t)globals + used;
		used += global->size;
	}
	return ptx_module_bind(module, addresses, NULL, count) == 0;
}

static void run(struct ptx_module *module, const struct ptx_entry *entry)
{
	static const struct ptx_host host = { .lookup = lookup, .print = print };
	uint64_t params[64];
	struct ptx_fault fault;
	struct ptx_launch launch = {
		.module = module,
		.entry = entry,
		.grid = { 2, 1, 1 },
		.block = { 40, 1, 1 },
		.shared_dynamic = 256,
		.params = params,
		.params_size = sizeof(params),
		.pool = pool,
		.host = &host,
		.abort = &give_up,
	};

	if (entry->shared_static > SHARED_MAX || entry->local_size > SHARED_MAX)
		return;
	for (int i = 0; i < 64; i++) /* pointers, which are good numbers too */
		params[i] = (uintptr_t)arena + (uint64_t)(i & 3) * 1024;
	give_up = 0;
	started_ns = now_ns();
	ptx_launch(&launch, &fault);
	started_ns = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct ptx_target target = { .sm = 90, .version_max = 90 };
	struct ptx_module *module;
	struct ptx_error error;

	pthread_once(&once, prepare);
	if (ptx_module_parse((const char *)data, size, &target, &module, &error) < 0) {
		if (error.kind == PTX_OK)
			abort();
		return 0;
	}
	if (bind(module))
		for (uint32_t i = 0; i < ptx_module_entry_count(module) && i < 8; i++)
			run(module, ptx_module_entry(module, i));
	ptx_module_free(module);
	return 0;
}
