// SPDX-License-Identifier: Apache-2.0
/*
 * The beginning: cuInit opens the session, once; the driver's version; the table of entry points. After a fork the child
 * has no CUDA, as natively: the session's socket and memory are its parent's. Any thread.
 */
#include "libgleamcuda/init.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "gen/bodies.h"
#include "gen/procaddr.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/servers.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/trace.h"

/*
 * A cuInit that failed is not tried again for this long, or four times as long as it took: programs ask a dozen times while
 * they import their packages, and each try of a daemon that doesn't answer takes seconds.
 */
#define RETRY_MS 1000

enum init_state {
	INIT_NONE = 0,
	INIT_OPENING = 1,
	INIT_DONE = 2,
	INIT_FORKED = 3, /* in a child: for ever */
};

static uint32_t state; /* atomic; enum init_state */
static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static uint32_t version_told; /* atomic; what cuDriverGetVersion has answered, 0 before it was asked */

/* guarded by init_lock */
static CUresult last_failure;
static uint64_t next_try_ms;

bool process_is_initialised(void)
{
	return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == INIT_DONE;
}

bool process_is_forked(void)
{
	return __atomic_load_n(&state, __ATOMIC_RELAXED) == INIT_FORKED;
}

/* In the child, with whatever locks other threads of the parent held: only stores. */
static void fork_in_child(void)
{
	if (__atomic_load_n(&state, __ATOMIC_RELAXED) != INIT_NONE || session_current())
		__atomic_store_n(&state, INIT_FORKED, __ATOMIC_RELEASE);
}

static void fork_watch(void)
{
	pthread_atfork(NULL, NULL, fork_in_child);
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static CUresult init_locked(void)
{
	CUresult result = CUDA_ERROR_NO_DEVICE;
	uint64_t from = now_ms();

	if (last_failure && from < next_try_ms)
		return last_failure;
	__atomic_store_n(&state, INIT_OPENING, __ATOMIC_RELEASE);
	/* A session whose devices CUDA_VISIBLE_DEVICES hides stays open: the next try needs no other. */
	if (!session_current() && devices_hidden())
		gleam_log("no device: CUDA_VISIBLE_DEVICES hides them all");
	else if (session_current() || servers_open(&result) == 0)
		result = contexts_init();
	else if (result == CUDA_SUCCESS)
		result = CUDA_ERROR_SYSTEM_NOT_READY;
	if (result) {
		uint64_t now = now_ms();
		uint64_t wait = 4 * (now - from) > RETRY_MS ? 4 * (now - from) : RETRY_MS;

		last_failure = result;
		next_try_ms = now + wait;
		__atomic_store_n(&state, INIT_NONE, __ATOMIC_RELEASE);
		return result;
	}
	last_failure = CUDA_SUCCESS;
	__atomic_store_n(&state, INIT_DONE, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

CUresult do_cuInit(struct call *call, unsigned int Flags)
{
	CUresult result;

	if (Flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (process_is_initialised())
		return CUDA_SUCCESS;
	if (process_is_forked())
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_once(&fork_once, fork_watch);
	pthread_mutex_lock(&init_lock);
	trace_start();
	/* The call that begins it all is the first in the file. */
	if (!call->entered_ns && trace_on)
		call->entered_ns = trace_now();
	result = process_is_initialised() ? CUDA_SUCCESS : init_locked();
	pthread_mutex_unlock(&init_lock);
	return result;
}

/*
 * The least of the nodes' and ours; ours while there is no session. cudart asks before cuInit, keeps the answer, and takes
 * it into its digest: what was told once stays.
 */
uint32_t driver_version(void)
{
	uint32_t version = CUDA_VERSION;
	uint32_t told = 0;
	const struct session *s;

	for (uint32_t i = 0; (s = session_at(i)); i++)
		if (s->snapshot.driver_version && s->snapshot.driver_version < version)
			version = s->snapshot.driver_version;
	if (!__atomic_compare_exchange_n(&version_told, &told, version, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		version = told;
	return version;
}

CUresult do_cuDriverGetVersion(struct call *call, int *driverVersion)
{
	if (!driverVersion)
		return CUDA_ERROR_INVALID_VALUE;
	*driverVersion = (int)driver_version();
	return CUDA_SUCCESS;
}

CUresult do_cuModuleGetLoadingMode(struct call *call, CUmoduleLoadingMode *mode)
{
	const char *asked = secure_getenv("CUDA_MODULE_LOADING");

	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = asked && strcasecmp(asked, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}

/* ---- entry points ---- */

/* The first entry of @base; PROC_COUNT if there is none. */
static uint32_t proc_first(const char *base)
{
	uint32_t low = 0, high = PROC_COUNT;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (strcmp(proc_table[middle].base, base) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < PROC_COUNT && strcmp(proc_table[low].base, base) == 0 ? low : PROC_COUNT;
}

/* The newest entry of @base that @version knows, of the family that @per_thread asks for; the plain one where that has none. */
static const struct proc *proc_find(const char *base, uint32_t version, bool per_thread, bool *known_out)
{
	const struct proc *plain = NULL, *own = NULL;
	uint32_t at = proc_first(base);

	*known_out = at < PROC_COUNT;
	for (; at < PROC_COUNT && strcmp(proc_table[at].base, base) == 0; at++) {
		const struct proc *proc = &proc_table[at];

		if (proc->since > version)
			continue;
		if (proc->kind == PROC_LEGACY)
			plain = proc;
		else
			own = proc;
	}
	/* A per-thread variant of an older version than the newest plain one would be another function. */
	return per_thread && own ? own : plain;
}

#define PROC_FLAGS (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)

static CUresult proc_address(const char *symbol, int version, cuuint64_t flags, const struct proc **proc_out,
			     CUdriverProcAddressQueryResult *status_out)
{
	bool known;

	if (!symbol || (flags & ~(cuuint64_t)PROC_FLAGS))
		return CUDA_ERROR_INVALID_VALUE;
	/* Newer than the driver: the caller knows functions that we can't. A negative one means any. */
	if (version > (int)driver_version())
		return CUDA_ERROR_INVALID_VALUE;
	*proc_out = proc_find(symbol, (uint32_t)version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &known);
	*status_out = *proc_out ? CU_GET_PROC_ADDRESS_SUCCESS :
			  known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT :
				  CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return CUDA_SUCCESS;
}

/* With somewhere to put the status a name that isn't there is no error. */
CUresult do_cuGetProcAddress_v2(struct call *call, const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
				CUdriverProcAddressQueryResult *symbolStatus)
{
	CUdriverProcAddressQueryResult status;
	const struct proc *proc;
	CUresult result;

	if (!pfn)
		return CUDA_ERROR_INVALID_VALUE;
	result = proc_address(symbol, cudaVersion, flags, &proc, &status);
	if (result)
		return result;
	*pfn = proc ? proc->address : NULL;
	if (symbolStatus)
		*symbolStatus = status;
	return proc || symbolStatus ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult do_cuGetProcAddress(struct call *call, const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult status;
	const struct proc *proc;
	CUresult result;

	if (!pfn)
		return CUDA_ERROR_INVALID_VALUE;
	result = proc_address(symbol, cudaVersion, flags, &proc, &status);
	if (result)
		return result;
	if (!proc)
		return CUDA_ERROR_NOT_FOUND;
	*pfn = proc->address;
	return CUDA_SUCCESS;
}
