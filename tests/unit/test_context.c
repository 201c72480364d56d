// SPDX-License-Identifier: Apache-2.0
/*
 * Start, contexts and primary contexts on a fake session: codes and values as driver 580.159 gave them, and what the worker
 * is told. The tests run in order; the first ones are before cuInit.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "broker/lib/shm.h"
#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/cls.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/init.h"
#include "libgleamcuda/peer.h"
#include "libgleamcuda/range.h"
#include "libgleamcuda/session.h"
#include "tests/unit/fake_client.h"

#define OK(call)	    assert_int_equal((call), CUDA_SUCCESS)
#define SAYS(code, call)    assert_int_equal((call), CUDA_ERROR_##code)
#define GARBAGE_COUNT	    6

static const uintptr_t garbage[GARBAGE_COUNT] = { 1, 2, 0x10, UINTPTR_MAX, 0x123456789a8, 0x5410000030000000 };

/* ---- before cuInit ---- */

static void before_init(void **state)
{
	CUcontext ctx;
	CUmoduleLoadingMode mode;
	int value = 0;

	SAYS(NOT_INITIALIZED, FAKE_INIT(do_cuDeviceGetCount(call, &value)));
	SAYS(NOT_INITIALIZED, FAKE_INIT(do_cuCtxGetCurrent(call, &ctx)));
	SAYS(NOT_INITIALIZED, FAKE_CONTEXT(do_cuCtxSynchronize(call)));
	SAYS(NOT_INITIALIZED, FAKE_INIT(do_cuModuleGetLoadingMode(call, &mode)));
	OK(FAKE_NONE(do_cuDriverGetVersion(call, &value)));
	assert_int_equal(value, 13000);
	SAYS(INVALID_VALUE, FAKE_NONE(do_cuDriverGetVersion(call, NULL)));
	SAYS(INVALID_VALUE, FAKE_NONE(do_cuInit(call, 1)));
	assert_int_equal(fake_open_count, 0);
}

/* A fork before cuInit does no harm to the child. */
static void fork_before_init(void **state)
{
	pid_t child = fork();
	int status;

	if (!child)
		_exit(process_is_forked() || FAKE_NONE(do_cuInit(call, 0)) != CUDA_SUCCESS || !process_is_initialised());
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
	assert_false(process_is_initialised());
}

static void entry_points(void **state)
{
	CUdriverProcAddressQueryResult status = 99;
	void *f = (void *)1;

#define ASK(symbol, version, flags) FAKE_NONE(do_cuGetProcAddress_v2(call, symbol, &f, version, flags, &status))
	OK(ASK("cuCtxCreate", 2000, 0));
	assert_ptr_equal(f, (void *)1);
	OK(ASK("cuCtxCreate", 3010, 0));
	assert_ptr_equal(f, (void *)1);
	OK(ASK("cuCtxCreate", 3020, 0));
	assert_ptr_equal(f, (void *)2);
	OK(ASK("cuCtxCreate", 12040, 0));
	assert_ptr_equal(f, (void *)3);
	OK(ASK("cuCtxCreate", 13000, 0));
	assert_ptr_equal(f, (void *)4);
	OK(ASK("cuCtxCreate", -1, 0));
	assert_ptr_equal(f, (void *)4);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
	/* Streams of their own, where the function has such a form. */
	OK(ASK("cuMemcpyHtoD", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
	assert_ptr_equal(f, (void *)8);
	OK(ASK("cuMemcpyHtoD", 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM));
	assert_ptr_equal(f, (void *)7);
	OK(ASK("cuMemcpyHtoD", 6050, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
	assert_ptr_equal(f, (void *)7);
	OK(ASK("cuStreamQuery", 8000, 3));
	assert_ptr_equal(f, (void *)10);
	OK(ASK("cuInit", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
	assert_ptr_equal(f, (void *)5);
	/* What isn't there. */
	OK(ASK("cuInit", 1999, 0));
	assert_null(f);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	OK(ASK("", 0, 0));
	assert_null(f);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	OK(ASK("cuCtxCreate_v2", 13000, 0));
	assert_null(f);
	OK(ASK("zzz", 13000, 0));
	assert_null(f);
	/* Without a status it is an error. */
	f = (void *)1;
	SAYS(NOT_FOUND, FAKE_NONE(do_cuGetProcAddress_v2(call, "nope", &f, 13000, 0, NULL)));
	assert_null(f);
	f = (void *)1;
	SAYS(NOT_FOUND, FAKE_NONE(do_cuGetProcAddress(call, "nope", &f, 13000, 0)));
	assert_ptr_equal(f, (void *)1);
	OK(FAKE_NONE(do_cuGetProcAddress(call, "cuInit", &f, 13000, 0)));
	assert_ptr_equal(f, (void *)5);
	/* Newer than the driver, flags that don't exist, nothing. */
	f = (void *)1;
	SAYS(INVALID_VALUE, ASK("cuInit", 13001, 0));
	SAYS(INVALID_VALUE, ASK("cuInit", 13000, 4));
	SAYS(INVALID_VALUE, ASK(NULL, 13000, 0));
	SAYS(INVALID_VALUE, FAKE_NONE(do_cuGetProcAddress_v2(call, "cuInit", NULL, 13000, 0, &status)));
	assert_ptr_equal(f, (void *)1);
#undef ASK
}

/* One GPU, or what the settings say; a server that has chosen by them already is not chosen from again. */
static void how_many_devices(void **state)
{
	static const struct {
		const char *gpus, *visible;
		uint32_t given;
		CUresult result;
		int count;
	} cases[] = {
		{ NULL, NULL, 0, CUDA_SUCCESS, 1 },
		{ "", NULL, 0, CUDA_SUCCESS, 1 },
		{ "1", NULL, 0, CUDA_SUCCESS, 1 },
		{ "2", NULL, 0, CUDA_SUCCESS, 2 },
		{ "all", NULL, 0, CUDA_SUCCESS, 2 },
		{ "3", NULL, 0, CUDA_ERROR_NO_DEVICE, 0 },
		{ "zwei", NULL, 0, CUDA_ERROR_NO_DEVICE, 0 },
		{ NULL, "1,0", 0, CUDA_SUCCESS, 2 },
		{ NULL, "1", 0, CUDA_SUCCESS, 1 },
		{ "1", "1,0", 0, CUDA_SUCCESS, 1 },
		{ "2", "1", 0, CUDA_ERROR_NO_DEVICE, 0 },
		{ NULL, NULL, 1, CUDA_SUCCESS, 2 },
		{ "2", "7", 1, CUDA_SUCCESS, 2 },
	};

	static struct session one;
	struct session *only = &one;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cases[i].gpus ? setenv("GLEAM_GPUS", cases[i].gpus, 1) : unsetenv("GLEAM_GPUS");
		cases[i].visible ? setenv("CUDA_VISIBLE_DEVICES", cases[i].visible, 1) : unsetenv("CUDA_VISIBLE_DEVICES");
		fake_snapshot.given = cases[i].given;
		one.snapshot = fake_snapshot;
		if (devices_init(&only, 1) != cases[i].result || device_count() != cases[i].count)
			fail_msg("case %zu: %d devices", i, device_count());
	}
	unsetenv("CUDA_VISIBLE_DEVICES");
	fake_snapshot_fill();
}

/* Two servers with two GPUs each: their GPUs are one list, which the settings are about. */
static void two_servers_are_one_list(void **state)
{
	static const struct {
		const char *gpus, *visible;
		CUresult result;
		const char *order; /* a digit a device: server times two and the GPU there */
	} cases[] = {
		{ NULL, NULL, CUDA_SUCCESS, "0123" },	    { "all", NULL, CUDA_SUCCESS, "0123" },
		{ "3", NULL, CUDA_SUCCESS, "012" },	    { "5", NULL, CUDA_ERROR_NO_DEVICE, "" },
		{ NULL, "3,0", CUDA_SUCCESS, "30" },	    { "1", "3,0", CUDA_SUCCESS, "3" },
		{ NULL, "2,9,0", CUDA_SUCCESS, "2" },	    { NULL, "GPU-b1", CUDA_SUCCESS, "3" },
		{ "all", "GPU-b0,GPU-a1", CUDA_SUCCESS, "21" }, { "2", "1", CUDA_ERROR_NO_DEVICE, "" },
	};
	static struct session two[2];
	struct session *both[2] = { &two[0], &two[1] };

	for (int i = 0; i < 2; i++) {
		two[i].snapshot = fake_snapshot;
		two[i].first = (uint32_t)i * 2;
		for (int k = 0; k < 2; k++)
			memset(two[i].snapshot.devices[k].uuid, (i ? 0xb0 : 0xa0) + k, 16);
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char order[8] = "";

		cases[i].gpus ? setenv("GLEAM_GPUS", cases[i].gpus, 1) : unsetenv("GLEAM_GPUS");
		cases[i].visible ? setenv("CUDA_VISIBLE_DEVICES", cases[i].visible, 1) : unsetenv("CUDA_VISIBLE_DEVICES");
		assert_int_equal(devices_init(both, 2), cases[i].result);
		for (int d = 0; d < device_count(); d++) {
			const struct device *device = device_at(d);

			order[d] = (char)('0' + (device->session == &two[1]) * 2 + (int)device->node_device);
			assert_int_equal(device->unit, device->session->first + device->node_device);
			assert_int_equal(device_of_unit(device->unit), d);
		}
		assert_string_equal(order, cases[i].order);
	}
	setenv("GLEAM_GPUS", "2", 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
}

static void no_daemon(void **state)
{
	int count;

	fake_open_result = CUDA_ERROR_NO_DEVICE;
	SAYS(NO_DEVICE, FAKE_NONE(do_cuInit(call, 0)));
	assert_int_equal(fake_open_count, 1);
	SAYS(NOT_INITIALIZED, FAKE_INIT(do_cuDeviceGetCount(call, &count)));
	/* Programs ask a dozen times: the next tries are answered at once. */
	for (int i = 0; i < 10; i++)
		SAYS(NO_DEVICE, FAKE_NONE(do_cuInit(call, 0)));
	assert_int_equal(fake_open_count, 1);
	/* Later the daemon may be there. */
	usleep(1100000);
	fake_open_result = CUDA_SUCCESS;
	setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
	SAYS(NO_DEVICE, FAKE_NONE(do_cuInit(call, 0)));
	/* Nobody was asked: the program is to use no GPU. */
	assert_int_equal(fake_open_count, 1);
	usleep(1100000);
	setenv("CUDA_VISIBLE_DEVICES", "GPU-77", 1);
	SAYS(NO_DEVICE, FAKE_NONE(do_cuInit(call, 0)));
	unsetenv("CUDA_VISIBLE_DEVICES");
	assert_int_equal(fake_open_count, 2);
	usleep(1100000);
}

static void init(void **state)
{
	int count = 0;

	OK(FAKE_NONE(do_cuInit(call, 0)));
	OK(FAKE_NONE(do_cuInit(call, 0)));
	SAYS(INVALID_VALUE, FAKE_NONE(do_cuInit(call, 1)));
	assert_int_equal(fake_open_count, 2);
	OK(FAKE_INIT(do_cuDeviceGetCount(call, &count)));
	assert_int_equal(count, 2);
}

static void loading_mode(void **state)
{
	static const struct {
		const char *value;
		CUmoduleLoadingMode mode;
	} cases[] = { { "EAGER", 1 }, { "eager", 1 }, { "LAZY", 2 }, { "x", 2 }, { "", 2 }, { "DEFAULT", 2 } };
	CUmoduleLoadingMode mode;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setenv("CUDA_MODULE_LOADING", cases[i].value, 1);
		OK(FAKE_INIT(do_cuModuleGetLoadingMode(call, &mode)));
		assert_int_equal(mode, cases[i].mode);
	}
	unsetenv("CUDA_MODULE_LOADING");
	OK(FAKE_INIT(do_cuModuleGetLoadingMode(call, &mode)));
	assert_int_equal(mode, CU_MODULE_LAZY_LOADING);
}

/* ---- devices ---- */

static void devices(void **state)
{
	char text[64];
	int value = -7;
	unsigned int mask = 0;
	size_t size = 0;
	CUdevice dev;

	SAYS(INVALID_DEVICE, FAKE_INIT(do_cuDeviceGet(call, &dev, 2)));
	SAYS(INVALID_DEVICE, FAKE_INIT(do_cuDeviceGet(call, &dev, -1)));
	OK(FAKE_INIT(do_cuDeviceGet(call, &dev, 1)));
	assert_int_equal(dev, 1);
	OK(FAKE_INIT(do_cuDeviceGetAttribute(call, &value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1)));
	assert_int_equal(value, 131);
	/* The node has it, Gleam doesn't. */
	OK(FAKE_INIT(do_cuDeviceGetAttribute(call, &value, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0)));
	assert_int_equal(value, 0);
	OK(FAKE_INIT(do_cuDeviceGetAttribute(call, &value, CU_DEVICE_ATTRIBUTE_NUMA_ID, 0)));
	assert_int_equal(value, -1);
	for (int i = 1; i < 148; i++)
		OK(FAKE_INIT(do_cuDeviceGetAttribute(call, &value, (CUdevice_attribute)i, 0)));
	static const int bad[] = { -1, 0, 148, 149, 150, 151, 160, 1000 };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		SAYS(INVALID_VALUE, FAKE_INIT(do_cuDeviceGetAttribute(call, &value, (CUdevice_attribute)bad[i], 0)));
	SAYS(INVALID_DEVICE, FAKE_INIT(do_cuDeviceGetAttribute(call, &value, 1000, 2)));
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuDeviceGetAttribute(call, NULL, 1, 0)));

	memset(text, 'x', sizeof(text));
	OK(FAKE_INIT(do_cuDeviceGetName(call, text, 5, 0)));
	assert_string_equal(text, "NVID");
	assert_int_equal(text[5], 'x');
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuDeviceGetName(call, text, 0, 0)));
	SAYS(INVALID_DEVICE, FAKE_INIT(do_cuDeviceGetName(call, text, 64, 9)));
	OK(FAKE_INIT(do_cuDeviceTotalMem_v2(call, &size, 1)));
	assert_int_equal(size, 150000000001ull);
	OK(FAKE_INIT(do_cuDeviceTotalMem(call, &mask, 1)));
	assert_int_equal(mask, (unsigned int)150000000001ull);
	SAYS(NOT_SUPPORTED, FAKE_INIT(do_cuDeviceGetLuid(call, text, &mask, 0)));
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuDeviceGetLuid(call, NULL, &mask, 0)));
}

static void pci_places(void **state)
{
	static const struct {
		const char *text;
		CUresult result;
		int dev;
	} cases[] = {
		{ "0000:07:00.0", 0, 0 },
		{ "0000:06:00.0", 0, 1 },
		{ "0000:06:00", 0, 1 },
		{ "06:00.0", 0, 1 },
		{ "00000000:06:00.0", 0, 1 },
		{ "0:6:0.0", 0, 1 },
		{ "06:00", CUDA_ERROR_INVALID_VALUE, 0 },
		{ "0000:06:00.1", CUDA_ERROR_INVALID_DEVICE, 0 },
		{ " 0000:06:00.0 ", CUDA_ERROR_INVALID_VALUE, 0 },
		{ "ffff:ff:1f.0", CUDA_ERROR_INVALID_DEVICE, 0 },
		{ "junk", CUDA_ERROR_INVALID_VALUE, 0 },
		{ "", CUDA_ERROR_INVALID_VALUE, 0 },
	};
	char text[16];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CUdevice dev = 0;

		assert_int_equal(FAKE_INIT(do_cuDeviceGetByPCIBusId(call, &dev, cases[i].text)), cases[i].result);
		assert_int_equal(dev, cases[i].dev);
	}
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuDeviceGetPCIBusId(call, text, 12, 0)));
	OK(FAKE_INIT(do_cuDeviceGetPCIBusId(call, text, 13, 0)));
	assert_string_equal(text, "0000:07:00.0");
}

static void between_devices(void **state)
{
	CUatomicOperation operations[] = { 0, 12, 13 };
	unsigned int capabilities[3] = { 7, 7, 7 };
	int value = -7;

	SAYS(INVALID_DEVICE, FAKE_INIT(do_cuDeviceGetP2PAttribute(call, &value, 1, 0, 0)));
	SAYS(INVALID_DEVICE, FAKE_INIT(do_cuDeviceGetP2PAttribute(call, &value, 99, 0, 2)));
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuDeviceGetP2PAttribute(call, &value, 0, 0, 1)));
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuDeviceGetP2PAttribute(call, &value, 6, 0, 1)));
	OK(FAKE_INIT(do_cuDeviceGetP2PAttribute(call, &value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1)));
	assert_int_equal(value, 0);
	OK(FAKE_INIT(do_cuDeviceCanAccessPeer(call, &value, 0, 0)));
	assert_int_equal(value, 0);
	SAYS(INVALID_DEVICE, FAKE_INIT(do_cuDeviceCanAccessPeer(call, &value, 0, 2)));
	OK(FAKE_INIT(do_cuDeviceGetHostAtomicCapabilities(call, capabilities, operations, 2, 0)));
	assert_int_equal(capabilities[1], 0);
	assert_int_equal(capabilities[2], 7);
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuDeviceGetHostAtomicCapabilities(call, capabilities, operations, 3, 0)));
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuDeviceGetHostAtomicCapabilities(call, capabilities, operations, 0, 0)));
	SAYS(INVALID_DEVICE, FAKE_INIT(do_cuDeviceGetP2PAtomicCapabilities(call, capabilities, operations, 2, 1, 1)));
}

static void texture_width(void **state)
{
	size_t width = 7;

	OK(FAKE_INIT(do_cuDeviceGetTexture1DLinearMaxWidth(call, &width, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0)));
	assert_int_equal(width, 1u << 30);
	OK(FAKE_INIT(do_cuDeviceGetTexture1DLinearMaxWidth(call, &width, CU_AD_FORMAT_HALF, 4, 0)));
	assert_int_equal(width, 1u << 29);
	OK(FAKE_INIT(do_cuDeviceGetTexture1DLinearMaxWidth(call, &width, CU_AD_FORMAT_FLOAT, 4, 0)));
	assert_int_equal(width, 1u << 28);
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuDeviceGetTexture1DLinearMaxWidth(call, &width, CU_AD_FORMAT_FLOAT, 3, 0)));
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuDeviceGetTexture1DLinearMaxWidth(call, &width, 0, 1, 0)));
}

/* ---- primary contexts ---- */

static unsigned int closed;

static void count_closed(struct context *context)
{
	closed++;
	assert_int_equal(context->active, 0);
}

static void state_is(unsigned int expected_flags, int expected_active)
{
	unsigned int flags = 99;
	int active = 99;

	OK(FAKE_INIT(do_cuDevicePrimaryCtxGetState(call, 0, &flags, &active)));
	assert_int_equal(flags, expected_flags);
	assert_int_equal(active, expected_active);
}

static void primary_is_there_before_it_is_held(void **state)
{
	CUcontext p = context_primary(0)->handle, now = NULL;
	unsigned int value = 99;
	unsigned long long id;
	CUdevice dev = 9;
	size_t limit;

	SAYS(INVALID_CONTEXT, FAKE_CONTEXT(do_cuCtxSynchronize(call)));
	SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxGetDevice(call, &dev)));
	SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxGetApiVersion(call, NULL, &value)));
	state_is(0, 0);
	OK(FAKE_INIT(do_cuCtxSetCurrent(call, p)));
	OK(FAKE_INIT(do_cuCtxGetCurrent(call, &now)));
	assert_ptr_equal(now, p);
	SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxGetApiVersion(call, p, &value)));
	SAYS(CONTEXT_IS_DESTROYED, FAKE_INIT(do_cuCtxGetId(call, p, &id)));
	SAYS(CONTEXT_IS_DESTROYED, FAKE_CONTEXT(do_cuCtxGetLimit(call, &limit, 0)));
	SAYS(CONTEXT_IS_DESTROYED, FAKE_CONTEXT(do_cuCtxSynchronize(call)));
	SAYS(CONTEXT_IS_DESTROYED, FAKE_INIT(do_cuCtxSynchronize_v2(call, p)));
	OK(FAKE_INIT(do_cuCtxGetFlags(call, &value)));
	assert_int_equal(value, 0);
	OK(FAKE_INIT(do_cuCtxGetDevice(call, &dev)));
	assert_int_equal(dev, 0);
	OK(FAKE_INIT(do_cuCtxGetDevice_v2(call, &dev, context_primary(1)->handle)));
	assert_int_equal(dev, 1);
	SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuDevicePrimaryCtxRelease_v2(call, 0)));
	OK(FAKE_INIT(do_cuDevicePrimaryCtxReset_v2(call, 0)));
	/* Nothing of this is anything to the worker. */
	assert_int_equal(fake_commands_of(OP_gleamContextOpen), 0);
}

static void primary_flags(void **state)
{
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuDevicePrimaryCtxSetFlags_v2(call, 0, 3)));
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuDevicePrimaryCtxSetFlags_v2(call, 0, 0x1000)));
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuDevicePrimaryCtxSetFlags_v2(call, 0, 8)));
	SAYS(INVALID_DEVICE, FAKE_INIT(do_cuDevicePrimaryCtxSetFlags_v2(call, 9, 0)));
	OK(FAKE_INIT(do_cuDevicePrimaryCtxSetFlags_v2(call, 0, 4)));
	state_is(4, 0);
	OK(FAKE_INIT(do_cuDevicePrimaryCtxSetFlags_v2(call, 0, 0x80)));
	state_is(0x80, 0);
	OK(FAKE_INIT(do_cuDevicePrimaryCtxSetFlags_v2(call, 0, 0)));
}

static void primary_life(void **state)
{
	CUcontext p = context_primary(0)->handle, got = NULL;
	struct context *context = context_find(p);
	unsigned int value = 0;
	unsigned long long id = 0, id2 = 0;
	uint32_t epoch;

	context_on_close(count_closed);
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuDevicePrimaryCtxRetain(call, NULL, 0)));
	SAYS(INVALID_DEVICE, FAKE_INIT(do_cuDevicePrimaryCtxRetain(call, &got, 9)));
	OK(FAKE_INIT(do_cuDevicePrimaryCtxRetain(call, &got, 0)));
	assert_ptr_equal(got, p);
	assert_int_equal(fake_commands_of(OP_gleamContextOpen), 1);
	state_is(0, 1);
	OK(FAKE_INIT(do_cuCtxGetFlags(call, &value)));
	assert_int_equal(value, 8);
	OK(FAKE_INIT(do_cuCtxGetApiVersion(call, p, &value)));
	assert_int_equal(value, 3020);
	OK(FAKE_INIT(do_cuCtxGetId(call, NULL, &id)));
	SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxDestroy_v2(call, p)));
	/* Flags while active. */
	OK(FAKE_INIT(do_cuDevicePrimaryCtxSetFlags_v2(call, 0, 1)));
	state_is(1, 1);
	OK(FAKE_INIT(do_cuCtxGetFlags(call, &value)));
	assert_int_equal(value, 9);
	OK(FAKE_CONTEXT(do_cuCtxSetFlags(call, 2)));
	state_is(1, 1);
	SAYS(INVALID_VALUE, FAKE_CONTEXT(do_cuCtxSetFlags(call, 3)));
	SAYS(INVALID_VALUE, FAKE_CONTEXT(do_cuCtxSetFlags(call, 0x1000)));
	/* A second retain sends nothing; the first release ends nothing. */
	OK(FAKE_INIT(do_cuDevicePrimaryCtxRetain(call, &got, 0)));
	OK(FAKE_INIT(do_cuDevicePrimaryCtxRelease_v2(call, 0)));
	state_is(1, 1);
	assert_int_equal(closed, 0);

	/* A reset ends it at once, with its memory; the count stays. */
	struct range range = { .start = 0x200000000000, .size = 4096, .context = context };

	assert_int_equal(range_add(&range), 0);
	epoch = context->epoch;
	fake_waits = 0;
	OK(FAKE_INIT(do_cuDevicePrimaryCtxReset_v2(call, 0)));
	assert_int_equal(fake_waits, 1);
	assert_int_equal(closed, 1);
	assert_int_equal(range_count(), 0);
	assert_int_equal(fake_commands_of(OP_gleamContextClose), 1);
	state_is(0, 0);
	SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxGetApiVersion(call, p, &value)));
	SAYS(CONTEXT_IS_DESTROYED, FAKE_INIT(do_cuCtxGetApiVersion(call, NULL, &value)));
	SAYS(CONTEXT_IS_DESTROYED, FAKE_CONTEXT(do_cuCtxSynchronize(call)));
	OK(FAKE_INIT(do_cuDevicePrimaryCtxReset_v2(call, 0)));
	assert_int_equal(closed, 1);
	OK(FAKE_INIT(do_cuDevicePrimaryCtxRelease_v2(call, 0)));
	SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuDevicePrimaryCtxRelease_v2(call, 0)));

	/* Again, with another number. */
	context->error = CUDA_ERROR_ILLEGAL_ADDRESS;
	shm_error(&fake_session()->shm, 0)->code = CUDA_ERROR_ILLEGAL_ADDRESS;
	OK(FAKE_INIT(do_cuDevicePrimaryCtxRetain(call, &got, 0)));
	assert_ptr_equal(got, p);
	assert_int_not_equal(context->epoch, epoch);
	OK(FAKE_INIT(do_cuCtxGetId(call, NULL, &id2)));
	assert_int_not_equal(id, id2);
	/* A failure of the life before is gone. */
	OK(FAKE_CONTEXT(do_cuCtxSynchronize(call)));
	OK(FAKE_INIT(do_cuDevicePrimaryCtxRelease_v2(call, 0)));
	state_is(0, 0);
	assert_int_equal(closed, 2);
	OK(FAKE_INIT(do_cuCtxSetCurrent(call, NULL)));
}

/* ---- contexts of one's own ---- */

static void stacks(void **state)
{
	CUcontext a = NULL, b = NULL, x = NULL;

	SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxPopCurrent_v2(call, &x)));
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuCtxPushCurrent_v2(call, NULL)));
	OK(FAKE_INIT(do_cuCtxSetCurrent(call, NULL)));
	SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxPopCurrent_v2(call, &x)));
	OK(FAKE_INIT(do_cuCtxCreate_v2(call, &a, 0, 0)));
	OK(FAKE_INIT(do_cuCtxCreate_v2(call, &b, 0, 1)));
	assert_ptr_equal(context_current()->handle, b);
	OK(FAKE_INIT(do_cuCtxPopCurrent_v2(call, &x)));
	assert_ptr_equal(x, b);
	assert_ptr_equal(context_current()->handle, a);
	/* SetCurrent takes the place of the top. */
	OK(FAKE_INIT(do_cuCtxSetCurrent(call, b)));
	OK(FAKE_INIT(do_cuCtxPopCurrent_v2(call, NULL)));
	assert_null(context_current());
	for (int i = 0; i < 5000; i++)
		OK(FAKE_INIT(do_cuCtxPushCurrent_v2(call, i % 2 ? a : b)));
	for (int i = 4999; i >= 0; i--) {
		OK(FAKE_INIT(do_cuCtxPopCurrent_v2(call, &x)));
		assert_ptr_equal(x, i % 2 ? a : b);
	}
	OK(FAKE_INIT(do_cuCtxDestroy_v2(call, a)));
	OK(FAKE_INIT(do_cuCtxDestroy_v2(call, b)));
}

static void destroyed_contexts(void **state)
{
	CUcontext a = NULL, b = NULL, c = NULL, x = NULL;
	unsigned int value = 99;
	unsigned long long id;
	CUdevice dev = 9;

	OK(FAKE_INIT(do_cuCtxCreate_v2(call, &a, 4, 1)));
	OK(FAKE_INIT(do_cuCtxGetFlags(call, &value)));
	assert_int_equal(value, 4);
	OK(FAKE_INIT(do_cuCtxCreate_v2(call, &b, 0, 0)));
	OK(FAKE_INIT(do_cuCtxCreate_v2(call, &c, 0, 0)));
	/* Not on top: it stays on the stack, dead. */
	OK(FAKE_INIT(do_cuCtxDestroy_v2(call, b)));
	assert_ptr_equal(context_current()->handle, c);
	OK(FAKE_INIT(do_cuCtxPopCurrent_v2(call, &x)));
	assert_ptr_equal(context_current()->handle, b);
	SAYS(CONTEXT_IS_DESTROYED, FAKE_CONTEXT(do_cuCtxSynchronize(call)));
	OK(FAKE_INIT(do_cuCtxGetDevice(call, &dev)));
	SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxGetApiVersion(call, b, &value)));
	SAYS(CONTEXT_IS_DESTROYED, FAKE_INIT(do_cuCtxGetId(call, b, &id)));
	SAYS(CONTEXT_IS_DESTROYED, FAKE_INIT(do_cuCtxSynchronize_v2(call, b)));
	SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxDestroy_v2(call, b)));
	/* While it is on a stack its place is not used again. */
	for (int i = 0; i < 3 * SESSION_CONTEXTS; i++) {
		CUcontext more = NULL;

		OK(FAKE_INIT(do_cuCtxCreate_v2(call, &more, 0, 0)));
		assert_ptr_not_equal(context_find(more), context_find(b));
		OK(FAKE_INIT(do_cuCtxDestroy_v2(call, more)));
		fake_commands_of(OP_gleamContextOpen);
	}
	assert_ptr_equal(context_current()->handle, b);
	OK(FAKE_INIT(do_cuCtxPopCurrent_v2(call, &x)));
	assert_ptr_equal(x, b);
	OK(FAKE_INIT(do_cuCtxDestroy_v2(call, c)));
	/* On top: what is below becomes current. */
	OK(FAKE_INIT(do_cuCtxSetCurrent(call, a)));
	OK(FAKE_INIT(do_cuCtxDestroy_v2(call, a)));
	assert_null(context_current());
	OK(FAKE_INIT(do_cuCtxSetCurrent(call, a)));
	OK(FAKE_INIT(do_cuCtxSetCurrent(call, NULL)));
}

static void versions_of_create(void **state)
{
	CUexecAffinityParam affinity = { .type = CU_EXEC_AFFINITY_TYPE_SM_COUNT };
	CUctxCreateParams params = { 0 };
	CUcontext ctx = NULL;
	unsigned int value = 0;

	SAYS(INVALID_VALUE, FAKE_INIT(do_cuCtxCreate_v2(call, &ctx, 3, 0)));
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuCtxCreate_v2(call, &ctx, 0x2000, 0)));
	SAYS(INVALID_DEVICE, FAKE_INIT(do_cuCtxCreate_v2(call, &ctx, 0, 9)));
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuCtxCreate_v2(call, NULL, 0, 0)));
	SAYS(UNSUPPORTED_EXEC_AFFINITY, FAKE_INIT(do_cuCtxCreate_v3(call, &ctx, &affinity, 1, 0, 0)));
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuCtxCreate_v3(call, &ctx, NULL, 1, 0, 0)));
	assert_null(ctx);
	OK(FAKE_INIT(do_cuCtxCreate_v3(call, &ctx, &affinity, 0, 0x18, 0)));
	OK(FAKE_INIT(do_cuCtxGetFlags(call, &value)));
	assert_int_equal(value, 0x18);
	OK(FAKE_CONTEXT(do_cuCtxGetExecAffinity(call, &affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT)));
	assert_int_equal(affinity.param.smCount.val, 132);
	SAYS(UNSUPPORTED_EXEC_AFFINITY, FAKE_CONTEXT(do_cuCtxGetExecAffinity(call, &affinity, 5)));
	OK(FAKE_INIT(do_cuCtxDestroy_v2(call, ctx)));
	OK(FAKE_INIT(do_cuCtxCreate_v4(call, &ctx, NULL, 0, 0)));
	OK(FAKE_INIT(do_cuCtxDestroy_v2(call, ctx)));
	OK(FAKE_INIT(do_cuCtxCreate_v4(call, &ctx, &params, 0x80, 0)));
	OK(FAKE_INIT(do_cuCtxDestroy_v2(call, ctx)));
	params.numExecAffinityParams = 1;
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuCtxCreate_v4(call, &ctx, &params, 0, 0)));
	params.execAffinityParams = &affinity;
	SAYS(UNSUPPORTED_EXEC_AFFINITY, FAKE_INIT(do_cuCtxCreate_v4(call, &ctx, &params, 0, 0)));
	assert_null(context_current());
}

static void attach_and_detach(void **state)
{
	CUcontext a = NULL, x = NULL;

	SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxAttach(call, &x, 0)));
	OK(FAKE_INIT(do_cuCtxCreate_v2(call, &a, 0, 0)));
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuCtxAttach(call, &x, 1)));
	OK(FAKE_INIT(do_cuCtxAttach(call, &x, 0)));
	assert_ptr_equal(x, a);
	OK(FAKE_INIT(do_cuCtxDetach(call, a)));
	assert_ptr_equal(context_current()->handle, a);
	OK(FAKE_INIT(do_cuCtxDetach(call, a)));
	assert_null(context_current());
}

/* All 62 places, then no more; all can be had again. */
static void every_place(void **state)
{
	CUcontext ctx[SESSION_CONTEXTS], x;
	int count = 0;

	for (int round = 0; round < 2; round++) {
		for (count = 0; count < SESSION_CONTEXTS; count++)
			if (FAKE_INIT(do_cuCtxCreate_v2(call, &ctx[count], 0, 0)))
				break;
		assert_int_equal(count, SESSION_CONTEXTS - 2);
		SAYS(OUT_OF_MEMORY, FAKE_INIT(do_cuCtxCreate_v2(call, &x, 0, 0)));
		while (count--)
			OK(FAKE_INIT(do_cuCtxDestroy_v2(call, ctx[count])));
		fake_commands_of(OP_gleamContextOpen);
	}
}

static void garbage_handles(void **state)
{
	unsigned int value;
	unsigned long long id;
	CUdevice dev;

	for (int i = 0; i < GARBAGE_COUNT; i++) {
		CUcontext ctx = (CUcontext)garbage[i];

		SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxSetCurrent(call, ctx)));
		SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxPushCurrent_v2(call, ctx)));
		SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxGetApiVersion(call, ctx, &value)));
		SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxDestroy_v2(call, ctx)));
		SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxGetId(call, ctx, &id)));
		SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxGetDevice_v2(call, &dev, ctx)));
		SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxSynchronize_v2(call, ctx)));
		SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxDetach(call, ctx)));
		SAYS(INVALID_CONTEXT, FAKE_INIT(do_cuCtxEnablePeerAccess(call, ctx, 0)));
	}
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuCtxDestroy_v2(call, NULL)));
}

/* ---- settings ---- */

static void limits(void **state)
{
	CUcontext ctx;
	CUfunc_cache cache = 0;
	CUsharedconfig shared = 0;
	size_t value = 0;
	uint64_t answer = 1040;
	int least = 9, greatest = 9;

	OK(FAKE_INIT(do_cuDevicePrimaryCtxRetain(call, &ctx, 0)));
	OK(FAKE_INIT(do_cuCtxSetCurrent(call, ctx)));
	fake_commands_of(OP_gleamContextOpen);
	/* From the snapshot. */
	OK(FAKE_CONTEXT(do_cuCtxGetLimit(call, &value, CU_LIMIT_STACK_SIZE)));
	assert_int_equal(value, 1024);
	assert_int_equal(fake_commands_of(OP_cuCtxGetLimit), 0);
	SAYS(INVALID_VALUE, FAKE_CONTEXT(do_cuCtxGetLimit(call, &value, -1)));
	SAYS(INVALID_VALUE, FAKE_CONTEXT(do_cuCtxGetLimit(call, NULL, 0)));
	SAYS(INVALID_VALUE, FAKE_CONTEXT(do_cuCtxSetLimit(call, 99, 1)));
	/* A new value is the driver's to round: asked for once. */
	fake_worker_start();
	fake_answer = (struct fake_answer){ .result = CUDA_ERROR_INVALID_VALUE };
	SAYS(INVALID_VALUE, FAKE_CONTEXT(do_cuCtxSetLimit(call, CU_LIMIT_STACK_SIZE, 1u << 30)));
	OK(FAKE_CONTEXT(do_cuCtxGetLimit(call, &value, CU_LIMIT_STACK_SIZE)));
	assert_int_equal(value, 1024);
	fake_answer = (struct fake_answer){ 0 };
	OK(FAKE_CONTEXT(do_cuCtxSetLimit(call, CU_LIMIT_STACK_SIZE, 1025)));
	fake_answer.out_size = 8;
	memcpy(fake_answer.out, &answer, 8);
	OK(FAKE_CONTEXT(do_cuCtxGetLimit(call, &value, CU_LIMIT_STACK_SIZE)));
	assert_int_equal(value, 1040);
	/* An unknown one is asked for, and its error told. */
	fake_answer = (struct fake_answer){ .result = CUDA_ERROR_UNSUPPORTED_LIMIT };
	SAYS(UNSUPPORTED_LIMIT, FAKE_CONTEXT(do_cuCtxGetLimit(call, &value, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH)));
	fake_worker_stop();
	OK(FAKE_CONTEXT(do_cuCtxGetLimit(call, &value, CU_LIMIT_STACK_SIZE)));
	assert_int_equal(value, 1040);

	OK(FAKE_CONTEXT(do_cuCtxSetCacheConfig(call, CU_FUNC_CACHE_PREFER_L1)));
	assert_int_equal(fake_commands_of(OP_cuCtxSetCacheConfig), 1);
	OK(FAKE_CONTEXT(do_cuCtxGetCacheConfig(call, &cache)));
	assert_int_equal(cache, CU_FUNC_CACHE_PREFER_L1);
	SAYS(INVALID_VALUE, FAKE_CONTEXT(do_cuCtxSetCacheConfig(call, 9)));
	OK(FAKE_CONTEXT(do_cuCtxSetSharedMemConfig(call, 2)));
	OK(FAKE_CONTEXT(do_cuCtxGetSharedMemConfig(call, &shared)));
	assert_int_equal(shared, 1);
	SAYS(INVALID_VALUE, FAKE_CONTEXT(do_cuCtxSetSharedMemConfig(call, 9)));
	OK(FAKE_CONTEXT(do_cuCtxGetStreamPriorityRange(call, &least, &greatest)));
	assert_int_equal(least, 0);
	assert_int_equal(greatest, -5);
	OK(FAKE_CONTEXT(do_cuCtxGetStreamPriorityRange(call, NULL, NULL)));
}

/* The books are here, a context into a context; the worker hears of each pair of devices, and of nothing that changes nothing. */
static void peers(void **state)
{
	CUcontext one, two, other;

	context_on_close(peer_context_closed);
	OK(FAKE_INIT(do_cuDevicePrimaryCtxRetain(call, &one, 0)));
	OK(FAKE_INIT(do_cuDevicePrimaryCtxRetain(call, &two, 1)));
	OK(FAKE_INIT(do_cuCtxCreate_v2(call, &other, 0, 1)));
	OK(FAKE_INIT(do_cuCtxPopCurrent_v2(call, NULL)));
	OK(FAKE_INIT(do_cuCtxPushCurrent_v2(call, one)));
	SAYS(PEER_ACCESS_UNSUPPORTED, FAKE_CONTEXT(do_cuCtxEnablePeerAccess(call, two, 0)));
	session_current()->snapshot.p2p[0][1][CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED] = 1;
	SAYS(INVALID_CONTEXT, FAKE_CONTEXT(do_cuCtxEnablePeerAccess(call, one, 0)));
	SAYS(INVALID_CONTEXT, FAKE_CONTEXT(do_cuCtxEnablePeerAccess(call, NULL, 0)));
	SAYS(INVALID_VALUE, FAKE_CONTEXT(do_cuCtxEnablePeerAccess(call, two, 1)));
	SAYS(PEER_ACCESS_NOT_ENABLED, FAKE_CONTEXT(do_cuCtxDisablePeerAccess(call, two)));
	assert_int_equal(fake_commands_of(OP_gleamPeer), 0);
	OK(FAKE_CONTEXT(do_cuCtxEnablePeerAccess(call, two, 0)));
	SAYS(PEER_ACCESS_ALREADY_ENABLED, FAKE_CONTEXT(do_cuCtxEnablePeerAccess(call, two, 0)));
	assert_int_equal(fake_commands_of(OP_gleamPeer), 1);
	OK(FAKE_CONTEXT(do_cuCtxEnablePeerAccess(call, other, 0)));
	assert_int_equal(fake_commands_of(OP_gleamPeer), 1);
	/* One pair is left: the memory stays open. */
	OK(FAKE_CONTEXT(do_cuCtxDisablePeerAccess(call, two)));
	assert_int_equal(fake_commands_of(OP_gleamPeer), 0);
	OK(FAKE_CONTEXT(do_cuCtxDisablePeerAccess(call, other)));
	assert_int_equal(fake_commands_of(OP_gleamPeer), 1);
	SAYS(PEER_ACCESS_NOT_ENABLED, FAKE_CONTEXT(do_cuCtxDisablePeerAccess(call, other)));
	/* What ends is let in nowhere. */
	OK(FAKE_CONTEXT(do_cuCtxEnablePeerAccess(call, other, 0)));
	OK(FAKE_INIT(do_cuCtxDestroy_v2(call, other)));
	SAYS(INVALID_CONTEXT, FAKE_CONTEXT(do_cuCtxDisablePeerAccess(call, other)));
	session_current()->snapshot.p2p[0][1][CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED] = 0;
	OK(FAKE_INIT(do_cuCtxPopCurrent_v2(call, NULL)));
	OK(FAKE_INIT(do_cuDevicePrimaryCtxRelease_v2(call, 1)));
	OK(FAKE_INIT(do_cuDevicePrimaryCtxRelease_v2(call, 0)));
}

static void capture_mode_is_the_threads(void **state)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	OK(FAKE_INIT(do_cuThreadExchangeStreamCaptureMode(call, &mode)));
	assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(FAKE_INIT(do_cuThreadExchangeStreamCaptureMode(call, &mode)));
	assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuThreadExchangeStreamCaptureMode(call, NULL)));
}

/* ---- context-local storage ---- */

static unsigned int destroyed;

static void value_destroy(CUcontext ctx, void *key, void *value)
{
	unsigned int flags;
	int active = 9;

	destroyed++;
	assert_ptr_equal(value, (char *)key + 1);
	/* As in the driver: still current, no longer active, and calls work. */
	assert_ptr_equal(context_current()->handle, ctx);
	OK(FAKE_INIT(do_cuDevicePrimaryCtxGetState(call, 0, &flags, &active)));
	assert_int_equal(active, 0);
	SAYS(CONTEXT_IS_DESTROYED, FAKE_CONTEXT(do_cuCtxSynchronize(call)));
}

static void storage(void **state)
{
	static char keys[100];
	struct context *context = context_current();
	void *value = (void *)5;

	assert_int_equal(context->active, 1);
	SAYS(INVALID_HANDLE, cls_get(context, &keys[0], &value));
	SAYS(INVALID_HANDLE, cls_delete(context, &keys[0]));
	SAYS(INVALID_HANDLE, cls_get(context, NULL, &value));
	assert_ptr_equal(value, (void *)5);
	for (int i = 0; i < 99; i++)
		OK(cls_put(context, &keys[i], &keys[i] + 1, value_destroy));
	SAYS(INVALID_HANDLE, cls_put(context, &keys[0], NULL, NULL));
	for (int i = 0; i < 99; i++) {
		OK(cls_get(context, &keys[i], &value));
		assert_ptr_equal(value, &keys[i] + 1);
	}
	/* Deleting does not destroy; the place is used again. */
	OK(cls_delete(context, &keys[50]));
	SAYS(INVALID_HANDLE, cls_delete(context, &keys[50]));
	SAYS(INVALID_HANDLE, cls_get(context, &keys[50], &value));
	OK(cls_put(context, &keys[50], NULL, NULL));
	OK(cls_get(context, &keys[50], &value));
	assert_null(value);
	assert_int_equal(destroyed, 0);
	OK(FAKE_INIT(do_cuDevicePrimaryCtxReset_v2(call, 0)));
	assert_int_equal(destroyed, 98);
	SAYS(INVALID_HANDLE, cls_get(context, &keys[0], &value));
	SAYS(CONTEXT_IS_DESTROYED, cls_put(context, &keys[0], NULL, NULL));
	OK(FAKE_INIT(do_cuDevicePrimaryCtxRelease_v2(call, 0)));
}

/* ---- threads ---- */

static unsigned int ended;

static void count_ended(struct thread *thread)
{
	__atomic_fetch_add(&ended, 1, __ATOMIC_RELAXED);
	assert_ptr_equal(context_current(), context_primary(0));
}

static void *thread_body(void *arg)
{
	CUcontext ctx = (void *)1, p = arg, got;
	uintptr_t wrong = 0;

	wrong += FAKE_INIT(do_cuCtxGetCurrent(call, &ctx)) != CUDA_SUCCESS || ctx;
	for (int i = 0; i < 200; i++) {
		unsigned int version;
		CUcontext own = NULL;

		wrong += FAKE_INIT(do_cuDevicePrimaryCtxRetain(call, &got, 0)) != CUDA_SUCCESS || got != p;
		wrong += FAKE_INIT(do_cuCtxSetCurrent(call, p)) != CUDA_SUCCESS;
		wrong += FAKE_INIT(do_cuCtxGetApiVersion(call, p, &version)) != CUDA_SUCCESS;
		wrong += FAKE_INIT(do_cuCtxCreate_v2(call, &own, 0, 1)) != CUDA_SUCCESS;
		wrong += cls_put(context_find(own), &wrong, arg, NULL) != CUDA_SUCCESS;
		wrong += FAKE_INIT(do_cuCtxDestroy_v2(call, own)) != CUDA_SUCCESS;
		wrong += FAKE_INIT(do_cuDevicePrimaryCtxRelease_v2(call, 0)) != CUDA_SUCCESS;
	}
	return (void *)wrong;
}

static void many_threads(void **state)
{
	pthread_t threads[8];
	void *wrong;

	thread_on_end(count_ended);
	fake_worker_start();
	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, thread_body, context_primary(0)->handle), 0);
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], &wrong);
		assert_int_equal((uintptr_t)wrong, 0);
	}
	fake_worker_stop();
	/* The eight, and the fake worker, which never called anything. */
	assert_int_equal(ended, 8);
	state_is(0, 0);
	/* Stacks of ended threads hold on to nothing. */
	assert_int_equal(context_primary(0)->stacked, 1);
	every_place(state);
}

/* ---- fork ---- */

static void forked_child(void **state)
{
	pid_t child = fork();
	int status;

	if (!child) {
		CUcontext ctx;
		CUmoduleLoadingMode mode;
		const char *text;
		int value, wrong = 0;

		wrong += FAKE_INIT(do_cuDeviceGetCount(call, &value)) != CUDA_ERROR_NOT_INITIALIZED;
		wrong += FAKE_NONE(do_cuInit(call, 0)) != CUDA_ERROR_NOT_INITIALIZED;
		wrong += FAKE_INIT(do_cuCtxGetCurrent(call, &ctx)) != CUDA_ERROR_NOT_INITIALIZED;
		wrong += FAKE_INIT(do_cuModuleGetLoadingMode(call, &mode)) != CUDA_ERROR_NOT_INITIALIZED;
		wrong += FAKE_NONE(do_cuDriverGetVersion(call, &value)) != CUDA_SUCCESS;
		wrong += FAKE_NONE(do_cuGetErrorName(call, 1, &text)) != CUDA_SUCCESS;
		wrong += !process_is_forked() || process_is_initialised();
		_exit(wrong);
	}
	waitpid(child, &status, 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_true(process_is_initialised());
}

static void dead_session(void **state)
{
	CUcontext ctx;

	OK(FAKE_INIT(do_cuDevicePrimaryCtxRetain(call, &ctx, 0)));
	OK(FAKE_INIT(do_cuCtxSetCurrent(call, ctx)));
	__atomic_store_n(&fake_session()->dead, 1, __ATOMIC_RELAXED);
	SAYS(DEVICE_UNAVAILABLE, FAKE_CONTEXT(do_cuCtxSynchronize(call)));
	SAYS(DEVICE_UNAVAILABLE, FAKE_INIT(do_cuCtxSynchronize_v2(call, ctx)));
	/* At exit everything may still be let go. */
	OK(FAKE_INIT(do_cuDevicePrimaryCtxRelease_v2(call, 0)));
	SAYS(DEVICE_UNAVAILABLE, FAKE_INIT(do_cuDevicePrimaryCtxRetain(call, &ctx, 0)));
	state_is(0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(before_init),
		cmocka_unit_test(fork_before_init),
		cmocka_unit_test(entry_points),
		cmocka_unit_test(how_many_devices),
		cmocka_unit_test(two_servers_are_one_list),
		cmocka_unit_test(no_daemon),
		cmocka_unit_test(init),
		cmocka_unit_test(loading_mode),
		cmocka_unit_test(devices),
		cmocka_unit_test(pci_places),
		cmocka_unit_test(between_devices),
		cmocka_unit_test(texture_width),
		cmocka_unit_test(primary_is_there_before_it_is_held),
		cmocka_unit_test(primary_flags),
		cmocka_unit_test(primary_life),
		cmocka_unit_test(stacks),
		cmocka_unit_test(destroyed_contexts),
		cmocka_unit_test(versions_of_create),
		cmocka_unit_test(attach_and_detach),
		cmocka_unit_test(every_place),
		cmocka_unit_test(garbage_handles),
		cmocka_unit_test(limits),
		cmocka_unit_test(peers),
		cmocka_unit_test(capture_mode_is_the_threads),
		cmocka_unit_test(storage),
		cmocka_unit_test(many_threads),
		cmocka_unit_test(forked_child),
		cmocka_unit_test(dead_session),
	};

	fake_snapshot_fill();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
