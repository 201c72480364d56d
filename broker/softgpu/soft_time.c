// SPDX-License-Identifier: Apache-2.0
/* Modelled time of kernels; see soft_time.h. Any thread. */
#include "broker/softgpu/soft_time.h"

#include <time.h>

#include "broker/softgpu/soft_ledger.h"

#define LAUNCH_US_MOST 1000000u
#define BACKLOG_MOST   60000000000u /* more is of before the machine's last start: a file outlives it, the clock begins anew */
#define SLICE_NS       20000000u /* so long a context that ends waits for one that sleeps */

/* set once by soft_time_setup(); 0: kernels take the time they take */
static uint64_t launch_ns;
/* until when each device has work, without a ledger */
static _Atomic uint64_t own_until[SOFT_DEVICES_MAX];

void soft_time_setup(void)
{
	launch_ns = soft_config_count("GLEAM_SOFTGPU_LAUNCH_US", 0, 0, LAUNCH_US_MOST) * 1000;
}

/* Its place in the device's queue: when it will have ended. Whoever dies meanwhile leaves no more behind than that time. */
static uint64_t end_take(int place, uint64_t began_ns)
{
	_Atomic uint64_t *shared = soft_ledger_until(place);
	_Atomic uint64_t *until = shared ? shared : &own_until[place];
	uint64_t busy = atomic_load(until);
	uint64_t end;

	do
		end = (busy > began_ns && busy - began_ns < BACKLOG_MOST ? busy : began_ns) + launch_ns;
	while (!atomic_compare_exchange_weak(until, &busy, end));
	return end;
}

void soft_time_spend(struct soft_context *context, uint64_t began_ns)
{
	uint64_t end;

	if (!launch_ns)
		return;
	end = end_take(context->device->place, began_ns);
	for (uint64_t now = soft_now_ns(); now < end && !atomic_load(&context->ending); now = soft_now_ns()) {
		uint64_t left = MIN(end - now, SLICE_NS);

		nanosleep(&(struct timespec){ .tv_nsec = (long)left }, NULL);
	}
}
