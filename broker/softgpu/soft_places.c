// SPDX-License-Identifier: Apache-2.0
/*
 * A driver that loads lazily: where a module's variables and functions lie depends on what was used before. With GLEAM_SOFTGPU_PLACES=N[,M] each
 * function takes some memory among the variables when it is first used, N units lie before the first variable of the process, and functions
 * have addresses M further. Processes with other numbers have everything elsewhere. Any thread.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "broker/softgpu/ptx.h"
#include "broker/softgpu/soft_memory.h"
#include "broker/softgpu/soft_module.h"

#define UNIT	     512u
#define UNITS_MAX    1024u
#define FUNCTION_MAX 1024u /* addresses of functions are 16 apart */

static pthread_once_t places_once = PTHREAD_ONCE_INIT;
/* written once */
static bool places_wanted;
static _Atomic uint32_t units_before;

static void places_read(void)
{
	const char *wanted = getenv("GLEAM_SOFTGPU_PLACES");
	char *rest;
	unsigned long units;

	if (!wanted)
		return;
	places_wanted = true;
	units = strtoul(wanted, &rest, 10);
	atomic_store(&units_before, (uint32_t)MIN(units, UNITS_MAX));
	if (*rest == ',')
		ptx_functions_move(16 * MIN(strtoul(rest + 1, NULL, 10), FUNCTION_MAX));
}

void soft_places_begin(void)
{
	pthread_once(&places_once, places_read);
}

/* Nobody gives it back: this is for tests. */
static void places_take(struct soft_device *device, uint64_t size)
{
	uint64_t address;
	void *backing;

	soft_heap_take(device, size, true, &address, &backing);
}

void soft_places_variable(struct soft_device *device)
{
	uint32_t units = atomic_load(&units_before) ? atomic_exchange(&units_before, 0) : 0;

	if (units)
		places_take(device, units * (uint64_t)UNIT);
}

void soft_places_function(struct soft_function *function)
{
	if (places_wanted && !atomic_exchange(&function->used, true))
		places_take(function->object.owner->device, UNIT);
}
