// SPDX-License-Identifier: Apache-2.0
/*
 * Contexts and devices: questions whose answers must agree with one another, settings that are read back, stacks of current
 * contexts, and what each call says of wrong arguments.
 */
#include "tests/cuda/prog.h"

static int attribute(CUdevice device, CUdevice_attribute which)
{
	int value = -1;

	MUST(cuDeviceGetAttribute(&value, which, device));
	return value;
}

static void device_check(CUdevice device)
{
	char name[256] = "", bus[32] = "", luid[8];
	int major = 0, minor = 0, count = 0, affinity = -1;
	unsigned int mask;
	CUdevice found = -1;
	CUdevprop prop;
	CUuuid one, two;
	size_t total = 0, width = 0;

	EXPECT(cuDeviceGetName(name, sizeof(name), device), CUDA_SUCCESS);
	CHECK(strlen(name) > 3, "the name \"%s\"", name);
	EXPECT(cuDeviceComputeCapability(&major, &minor, device), CUDA_SUCCESS);
	CHECK(major == attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) &&
		      minor == attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
	      "capability %d.%d", major, minor);
	EXPECT(cuDeviceGetProperties(&prop, device), CUDA_SUCCESS);
	CHECK(prop.maxThreadsPerBlock == attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK), "threads of a block");
	CHECK(prop.SIMDWidth == attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE), "warp %d", prop.SIMDWidth);
	CHECK(prop.maxGridSize[0] == attribute(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X), "grid %d", prop.maxGridSize[0]);
	CHECK(prop.regsPerBlock == attribute(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK), "registers");
	EXPECT(cuDeviceTotalMem(&total, device), CUDA_SUCCESS);
	CHECK(total >= 1 << 20, "%zu bytes of memory", total);
	EXPECT(cuDeviceGetPCIBusId(bus, sizeof(bus), device), CUDA_SUCCESS);
	EXPECT(cuDeviceGetByPCIBusId(&found, bus), CUDA_SUCCESS);
	CHECK(found == device, "%s is device %d", bus, found);
	EXPECT(cuDeviceGetByPCIBusId(&found, "nonsense"), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuDeviceGetPCIBusId(bus, 4, device), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuDeviceGetUuid(&one, device), CUDA_SUCCESS);
	EXPECT(cuDeviceGetUuid_v2(&two, device), CUDA_SUCCESS);
	CHECK(!memcmp(&one, &two, sizeof(one)), "two identities of one device");
	EXPECT(cuDeviceGetLuid(luid, &mask, device), CUDA_ERROR_NOT_SUPPORTED);
	EXPECT(cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 1, device), CUDA_SUCCESS);
	CHECK(width > 0, "linear textures of %zu elements", width);
	EXPECT(cuDeviceGetExecAffinitySupport(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT, device), CUDA_SUCCESS);
	CHECK(affinity == 0 || affinity == 1, "affinity %d", affinity);
	EXPECT(cuDeviceGetCount(&count), CUDA_SUCCESS);
	EXPECT(cuDeviceGet(&found, count), CUDA_ERROR_INVALID_DEVICE);
	EXPECT(cuDeviceGetAttribute(&affinity, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1000), CUDA_ERROR_INVALID_DEVICE);
	EXPECT(cuDeviceGetAttribute(&affinity, (CUdevice_attribute)100000, device), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuDeviceGetName(NULL, 4, device), CUDA_ERROR_INVALID_VALUE);
}

static void peer_check(CUdevice device, CUcontext context)
{
	CUatomicOperation operations[] = { CU_ATOMIC_OPERATION_INTEGER_ADD, CU_ATOMIC_OPERATION_CAS };
	unsigned int capabilities[2] = { 77, 77 };
	int count = 0, can = -1, value = -1, rank = -1;
	CUcontext other;

	MUST(cuDeviceGetCount(&count));
	EXPECT(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, device, device),
	       CUDA_ERROR_INVALID_DEVICE);
	EXPECT(cuDeviceCanAccessPeer(&can, device, 1000), CUDA_ERROR_INVALID_DEVICE);
	EXPECT(cuDeviceGetHostAtomicCapabilities(capabilities, operations, 2, device), CUDA_SUCCESS);
	CHECK(capabilities[0] != 77 && capabilities[1] != 77, "nothing was written");
	EXPECT(cuDeviceGetP2PAtomicCapabilities(capabilities, operations, 2, device, 1000), CUDA_ERROR_INVALID_DEVICE);
	EXPECT(cuCtxEnablePeerAccess(NULL, 0), CUDA_ERROR_INVALID_CONTEXT);
	EXPECT(cuCtxDisablePeerAccess(NULL), CUDA_ERROR_INVALID_CONTEXT);
	if (count < 2) {
		printf("one device: access between two is left out\n");
		return;
	}
	EXPECT(cuDeviceCanAccessPeer(&can, 0, 1), CUDA_SUCCESS);
	EXPECT(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1), CUDA_SUCCESS);
	EXPECT(cuDeviceGetP2PAttribute(&rank, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 0, 1), CUDA_SUCCESS);
	CHECK(can == value, "two answers: %d and %d", can, value);
	EXPECT(cuDeviceGetP2PAtomicCapabilities(capabilities, operations, 2, 0, 1), CUDA_SUCCESS);
	MUST(cuDevicePrimaryCtxRetain(&other, device ? 0 : 1));
	EXPECT(cuCtxEnablePeerAccess(other, 1), CUDA_ERROR_INVALID_VALUE);
	if (can) {
		EXPECT(cuCtxEnablePeerAccess(other, 0), CUDA_SUCCESS);
		EXPECT(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
		EXPECT(cuCtxDisablePeerAccess(other), CUDA_SUCCESS);
	} else {
		EXPECT(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
	}
	EXPECT(cuCtxDisablePeerAccess(other), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	MUST(cuDevicePrimaryCtxRelease(device ? 0 : 1));
	MUST(cuCtxSetCurrent(context));
}

static void settings_check(CUcontext context)
{
	CUexecAffinityParam affinity = { .type = CU_EXEC_AFFINITY_TYPE_SM_COUNT };
	size_t stack = 0, again = 0, heap = 0;
	unsigned int version = 0, flags = 77;
	CUsharedconfig banks = (CUsharedconfig)77;
	unsigned long long id = 0;
	CUfunc_cache cache;
	CUresult result;

	EXPECT(cuCtxGetApiVersion(context, &version), CUDA_SUCCESS);
	CHECK(version >= 3010, "API version %u", version);
	EXPECT(cuCtxGetId(context, &id), CUDA_SUCCESS);
	CHECK(id > 0, "id %llu", id);
	EXPECT(cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
	EXPECT(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
	EXPECT(cuCtxGetLimit(&again, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
	CHECK(again >= 4096, "a stack of %zu", again);
	EXPECT(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, stack), CUDA_SUCCESS);
	EXPECT(cuCtxGetLimit(&heap, CU_LIMIT_MALLOC_HEAP_SIZE), CUDA_SUCCESS);
	CHECK(heap > 0, "a heap of %zu", heap);
	EXPECT(cuCtxGetLimit(&heap, (CUlimit)1000), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuCtxGetLimit(NULL, CU_LIMIT_STACK_SIZE), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuCtxSetLimit((CUlimit)1000, 1), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuCtxGetCacheConfig(&cache), CUDA_SUCCESS);
	CHECK(cache == CU_FUNC_CACHE_PREFER_NONE, "cache preference %d", (int)cache);
	EXPECT(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1), CUDA_SUCCESS);
	EXPECT(cuCtxGetCacheConfig(&cache), CUDA_SUCCESS);
	CHECK(cache == CU_FUNC_CACHE_PREFER_L1, "cache preference %d after it was set", (int)cache);
	EXPECT(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_NONE), CUDA_SUCCESS);
	EXPECT(cuCtxSetCacheConfig((CUfunc_cache)9), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuCtxGetSharedMemConfig(&banks), CUDA_SUCCESS);
	CHECK(banks <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE, "banks %d", (int)banks);
	EXPECT(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE), CUDA_SUCCESS);
	EXPECT(cuCtxSetSharedMemConfig((CUsharedconfig)9), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuCtxGetFlags(&flags), CUDA_SUCCESS);
	CHECK(flags != 77, "flags were not written");
	result = cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT);
	CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "affinity: %d", (int)result);
	EXPECT(cuCtxResetPersistingL2Cache(), CUDA_SUCCESS);
}

static void stack_check(CUdevice device, CUcontext primary)
{
	CUcontext made, popped, current, attached;
	CUdevice where = -1;
	unsigned int flags = 0;
	CUresult result;
	CUcontext v4 = NULL;

	EXPECT(cuCtxCreate_v2(&made, CU_CTX_SCHED_YIELD, device), CUDA_SUCCESS);
	EXPECT(cuCtxGetCurrent(&current), CUDA_SUCCESS);
	CHECK(current == made, "a new context is not current");
	EXPECT(cuCtxGetFlags(&flags), CUDA_SUCCESS);
	CHECK((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_YIELD, "flags %#x", flags);
	EXPECT(cuCtxSetFlags(CU_CTX_SCHED_SPIN), CUDA_SUCCESS);
	EXPECT(cuCtxGetFlags(&flags), CUDA_SUCCESS);
	CHECK((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_SPIN, "flags %#x after they were set", flags);
	EXPECT(cuCtxGetDevice(&where), CUDA_SUCCESS);
	CHECK(where == device, "device %d", where);
	where = -1;
	EXPECT(cuCtxGetDevice_v2(&where, made), CUDA_SUCCESS);
	CHECK(where == device, "device %d of the context", where);
	EXPECT(cuCtxPushCurrent(primary), CUDA_SUCCESS);
	EXPECT(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
	CHECK(popped == primary, "the one that was pushed is not the one that is popped");
	EXPECT(cuCtxPushCurrent(NULL), CUDA_ERROR_INVALID_VALUE);
	result = cuCtxAttach(&attached, 0);
	CHECK(result == CUDA_SUCCESS, "attach: %d", (int)result);
	if (!result) {
		CHECK(attached == made, "attached to another");
		EXPECT(cuCtxDetach(attached), CUDA_SUCCESS);
	}
	EXPECT(cuCtxSynchronize(), CUDA_SUCCESS);
	EXPECT(cuCtxSynchronize_v2(primary), CUDA_SUCCESS);
	EXPECT(cuCtxDestroy(made), CUDA_SUCCESS);
	result = cuCtxCreate_v4(&v4, NULL, 0, device);
	CHECK(result == CUDA_SUCCESS, "the newest form: %d", (int)result);
	if (!result)
		EXPECT(cuCtxDestroy(v4), CUDA_SUCCESS);
	MUST(cuCtxSetCurrent(primary));
	EXPECT(cuCtxCreate_v2(NULL, 0, device), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuCtxCreate_v2(&made, 0, 1000), CUDA_ERROR_INVALID_DEVICE);
	EXPECT(cuCtxDestroy(NULL), CUDA_ERROR_INVALID_VALUE);
}

static void primary_check(CUdevice device)
{
	unsigned int flags = 77;
	CUcontext again;
	int active = -1;

	EXPECT(cuDevicePrimaryCtxGetState(device, &flags, &active), CUDA_SUCCESS);
	CHECK(active == 1, "active %d", active);
	EXPECT(cuDevicePrimaryCtxSetFlags_v2(device, CU_CTX_SCHED_BLOCKING_SYNC), CUDA_SUCCESS);
	EXPECT(cuDevicePrimaryCtxGetState(device, &flags, &active), CUDA_SUCCESS);
	CHECK(flags == CU_CTX_SCHED_BLOCKING_SYNC, "flags %#x", flags);
	EXPECT(cuDevicePrimaryCtxSetFlags_v2(device, 0xff00), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuDevicePrimaryCtxSetFlags_v2(device, 0), CUDA_SUCCESS);
	MUST(cuDevicePrimaryCtxRetain(&again, device));
	EXPECT(cuDevicePrimaryCtxRelease(device), CUDA_SUCCESS);
	EXPECT(cuDevicePrimaryCtxGetState(device, &flags, &active), CUDA_SUCCESS);
	CHECK(active == 1, "released once of two, and not active");
	EXPECT(cuDevicePrimaryCtxGetState(1000, &flags, &active), CUDA_ERROR_INVALID_DEVICE);
}

static void names_check(void)
{
	CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
	const char *name = NULL, *text = NULL;
	const void *table = &table;
	CUresult (*count)(int *) = NULL;
	CUmoduleLoadingMode mode;
	CUuuid nobody = { { 0 } };
	int devices = 0, same = 0, version = 0;
	void *function = NULL;

	EXPECT(cuInit(0), CUDA_SUCCESS);
	EXPECT(cuInit(1), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuDriverGetVersion(&version), CUDA_SUCCESS);
	CHECK(version >= 12000, "version %d", version);
	EXPECT(cuDriverGetVersion(NULL), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuGetErrorName(CUDA_ERROR_NOT_READY, &name), CUDA_SUCCESS);
	CHECK(name && !strcmp(name, "CUDA_ERROR_NOT_READY"), "the name of 600 is %s", name);
	EXPECT(cuGetErrorString(CUDA_ERROR_NOT_READY, &text), CUDA_SUCCESS);
	CHECK(text && strlen(text) > 4 && strcmp(text, name), "the text of 600 is %s", text);
	EXPECT(cuGetErrorString((CUresult)99999, &text), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuGetProcAddress_v2("cuDeviceGetCount", &function, version, 0, &status), CUDA_SUCCESS);
	CHECK(function && status == CU_GET_PROC_ADDRESS_SUCCESS, "cuDeviceGetCount isn't there");
	memcpy(&count, &function, sizeof(count));
	if (count) {
		EXPECT(count(&devices), CUDA_SUCCESS);
		MUST(cuDeviceGetCount(&same));
		CHECK(devices == same, "%d and %d devices", devices, same);
	}
	EXPECT(cuGetProcAddress_v2("cuNobodyHasThis", &function, version, 0, &status), CUDA_SUCCESS);
	CHECK(!function && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, "a name that isn't there has status %d", (int)status);
	EXPECT(cuGetProcAddress("cuNobodyHasThis", &function, version, 0), CUDA_ERROR_NOT_FOUND);
	EXPECT(cuGetProcAddress_v2("cuMemAlloc", &function, 99999999, 0, &status), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuGetExportTable(&table, &nobody), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuModuleGetLoadingMode(&mode), CUDA_SUCCESS);
	CHECK(mode == CU_MODULE_EAGER_LOADING || mode == CU_MODULE_LAZY_LOADING, "loading mode %d", (int)mode);
}

static void odds(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED, back = CU_STREAM_CAPTURE_MODE_RELAXED;
	int least = 77, greatest = 77;

	EXPECT(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
	CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL, "a thread begins with mode %d", (int)mode);
	EXPECT(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
	CHECK(mode == back, "the mode that was set is %d", (int)mode);
	EXPECT(cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_SUCCESS);
	CHECK(greatest <= least && least == 0, "priorities %d to %d", least, greatest);
	EXPECT(cuProfilerStart(), CUDA_SUCCESS);
	EXPECT(cuProfilerStop(), CUDA_SUCCESS);
}

static int logged;

static void on_log(void *data, CUlogLevel level, char *message, size_t length)
{
	*(int *)data += level == CU_LOG_LEVEL_ERROR && strlen(message) >= length / 2;
}

/* A failed call is in the log, and whoever asked is called. Which failures a driver logs is its own affair: garbage as a
 * size of memory is one that all do. */
static void log_check(void)
{
	CUlogsCallbackHandle handle = NULL;
	char text[8192], path[64], line[256] = "";
	CUlogIterator from = 0, after = 0;
	size_t size = sizeof(text), later = sizeof(text);
	CUdeviceptr memory;
	CUresult result = cuLogsCurrent(&from, 0);
	FILE *file;

	CHECK(result == CUDA_SUCCESS, "cuLogsCurrent: %d", (int)result);
	EXPECT(cuLogsRegisterCallback(on_log, &logged, &handle), CUDA_SUCCESS);
	EXPECT(cuMemAlloc(&memory, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemFree(12345), CUDA_ERROR_INVALID_VALUE);
	after = from;
	EXPECT(cuLogsDumpToMemory(&after, text, &size, 0), CUDA_SUCCESS);
	CHECK(size < sizeof(text) && strlen(text) <= size, "%zu bytes of log", size);
	CHECK(!prog_on_gleam() || (logged == 2 && strstr(text, "cuMemFree") && strstr(text, "INVALID_VALUE")),
	      "%d lines were told of: %s", logged, text);
	/* The iterator stands behind what was read. */
	EXPECT(cuLogsDumpToMemory(&after, text, &later, 0), CUDA_SUCCESS);
	CHECK(later <= 1, "%zu bytes a second time", later);
	snprintf(path, sizeof(path), "/tmp/gleam-api-log-%d", (int)getpid());
	EXPECT(cuLogsDumpToFile(&from, path, 0), CUDA_SUCCESS);
	file = fopen(path, "r");
	CHECK(file != NULL, "no file was written");
	if (file) {
		CHECK(!prog_on_gleam() || (fgets(line, sizeof(line), file) && strstr(line, "cuMemAlloc")), "the file begins with %s",
		      line);
		fclose(file);
	}
	unlink(path);
	EXPECT(cuLogsUnregisterCallback(handle), CUDA_SUCCESS);
	EXPECT(cuMemAlloc(&memory, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK(!prog_on_gleam() || logged == 2, "called after the end");
	EXPECT(cuLogsRegisterCallback(NULL, NULL, &handle), CUDA_ERROR_INVALID_VALUE);
}

static void without_context(void)
{
	CUcontext current, popped;
	unsigned int flags;
	CUdevice device;

	EXPECT(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
	EXPECT(cuCtxGetCurrent(&current), CUDA_SUCCESS);
	CHECK(!current, "a context is left");
	EXPECT(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
	EXPECT(cuCtxGetFlags(&flags), CUDA_ERROR_INVALID_CONTEXT);
	EXPECT(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
	EXPECT(cuCtxPopCurrent(&current), CUDA_ERROR_INVALID_CONTEXT);
	EXPECT(cuProfilerStart(), CUDA_ERROR_INVALID_CONTEXT);
	MUST(cuCtxSetCurrent(popped));
}

int main(void)
{
	CUdevice device;
	CUcontext context = prog_context(&device);

	device_check(device);
	peer_check(device, context);
	settings_check(context);
	stack_check(device, context);
	primary_check(device);
	names_check();
	odds();
	log_check();
	without_context();
	return prog_end();
}
