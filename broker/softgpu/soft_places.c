// SPDX-License-Identifier: Apache-2.0
/*
 * A driver that loads lazily: where a module's variables and functions lie depends on what was used before. With GLEAM_SOFTGPU_PLACES=N[,M] each
 * function takes some memory among the variables when it is first used, N units lie before the first variable of the process, and functions
 * have addresses M further. Processes with other numbers have everything elsewhere. Any thread.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "broker/softgpu/ptx.h"
#include "broker/softgpu/soft_memory.h"
#include "broker/softgpu/soft_module.h"

#define UNIT	     256u
#define UNITS_MAX    1024u
#define FUNCTION_MAX 1024u /* addresses of functions are 16 apart */
/* One piece of addresses, from its beginning on: whoever uses the same in the same order has it at the same place. */
#define ROOM_BASE 0x390000000000ull
#define ROOM_SIZE (1ull << 30)

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static pthread_once_t places_once = PTHREAD_ONCE_INIT;
/* written once */
static bool places_wanted;
static _Atomic uint64_t next = ROOM_BASE;

static void places_read(void)
{
	const char *wanted = getenv("GLEAM_SOFTGPU_PLACES");
	char *rest;
	unsigned long units;

	if (!wanted)
		return;
	if (mmap((void *)(uintptr_t)ROOM_BASE, ROOM_SIZE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)
		return;
	places_wanted = true;
	units = strtoul(wanted, &rest, 10);
	atomic_fetch_add(&next, MIN(units, UNITS_MAX) * UNIT);
	if (*rest == ',')
		ptx_functions_move(16 * MIN(strtoul(rest + 1, NULL, 10), FUNCTION_MAX));
}

void soft_places_begin(void)
{
	pthread_once(&places_once, places_read);
}

/* What is given back is not given out again: nobody runs long with this. */
CUresult soft_places_variable(struct soft_context *context, uint64_t size, uint64_t *address_out)
{
	struct soft_range range = { .size = size, .kind = SOFT_RANGE_SYMBOL, .device = context->device->ordinal, .context = context };
	uint64_t room = (size + UNIT - 1) / UNIT * UNIT;

	if (!places_wanted)
		return soft_memory_new(context, size, SOFT_RANGE_SYMBOL, 0, address_out);
	range.context = soft_context_home(context);
	range.base = size <= ROOM_SIZE ? atomic_fetch_add(&next, room) : UINT64_MAX;
	if (range.base >= ROOM_BASE + ROOM_SIZE || room > ROOM_BASE + ROOM_SIZE - range.base || soft_map_add(&range) < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*address_out = range.base;
	return CUDA_SUCCESS;
}

void soft_places_function(struct soft_function *function)
{
	if (places_wanted && !atomic_exchange(&function->used, true))
		atomic_fetch_add(&next, UNIT);
}
