// SPDX-License-Identifier: Apache-2.0
/*
 * Runs a program: a host thread for each of its threads, which starts an operation when those that the model named have
 * returned. What is compared: the code of every call, what the program reads, and all memory at the end.
 */
#include <assert.h>
#include <pthread.h>
#include <signal.h>

#include "tests/cuda/differ.h"
#include "tests/cuda/prog.h"

#define QUERY_SECONDS 2.0

static const char *const function_names[FUNCTIONS] = { "step", "mix", "late_step", "through_global" };

struct cell {
	uint64_t value;
	uint64_t add[DIFFER_OPS];
};

unsigned play_seconds = 60;

/* Slots are guarded by the order that the model makes. */
static struct {
	CUcontext context;
	CUdevice device;
	char *ptx;
	CUstream streams[DIFFER_CREATED];
	CUevent events[DIFFER_EVENTS];
	struct {
		CUdeviceptr at;
		size_t size;
		bool pooled;
		bool mapped; /* memory of the host */
	} bufs[DIFFER_BUFS];
	struct {
		uint8_t *bytes;
		void *base; /* of registered and pageable memory */
		size_t size;
		int how;
	} hosts[DIFFER_HOSTS];
	struct {
		CUmodule module;
		CUfunction functions[FUNCTIONS];
		CUdeviceptr word;
	} modules[DIFFER_MODULES];
	CUmemoryPool pools[DIFFER_POOLS];
	uint64_t cells[DIFFER_CELLS];

	const struct program *program;
	int results[DIFFER_OPS];
	uint64_t values[DIFFER_OPS];

	pthread_mutex_t lock;
	pthread_cond_t moved;
	uint32_t done[DIFFER_THREADS]; /* guarded by lock */
} p = { .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER };

/* ---- one operation ---- */

/* The stream that @op names, in the spelling that its form asks for; true if the call has to be the _ptsz one. */
static bool stream_named(int64_t stream, int64_t form, CUstream *stream_out)
{
	bool other = form & FORM_OTHER;

	if (stream == 0)
		*stream_out = other ? CU_STREAM_LEGACY : NULL;
	else if (stream == 1)
		*stream_out = other ? NULL : CU_STREAM_PER_THREAD;
	else
		*stream_out = p.streams[stream - 2];
	return other && stream;
}

#define STREAM_CALL(name, other, ...) (ptsz ? other(__VA_ARGS__) : name(__VA_ARGS__))

static int copy_run(const struct op *op)
{
	const int64_t *a = op->a;
	CUdeviceptr at = p.bufs[a[0]].at + (CUdeviceptr)a[1];
	size_t size = (size_t)a[2];
	int64_t form = a[6];
	uint8_t *host = op->kind == OP_DEV ? NULL : p.hosts[a[3]].bytes + a[4];
	CUdeviceptr from = op->kind == OP_DEV ? p.bufs[a[3]].at + (CUdeviceptr)a[4] : (CUdeviceptr)(uintptr_t)host;
	CUstream s;
	bool ptsz = stream_named(a[5], form, &s), own = a[5] == 1;
	CUdeviceptr to = op->kind == OP_DOWN ? (CUdeviceptr)(uintptr_t)host : at;

	if (op->kind == OP_DOWN)
		from = at;
	if (form & FORM_SYNC) {
		if (form & FORM_UNIFIED)
			return own ? cuMemcpy_ptds(to, from, size) : cuMemcpy(to, from, size);
		if (op->kind == OP_UP)
			return own ? cuMemcpyHtoD_v2_ptds(to, host, size) : cuMemcpyHtoD(to, host, size);
		if (op->kind == OP_DOWN)
			return own ? cuMemcpyDtoH_v2_ptds(host, from, size) : cuMemcpyDtoH(host, from, size);
		return own ? cuMemcpyDtoD_v2_ptds(to, from, size) : cuMemcpyDtoD(to, from, size);
	}
	if (form & FORM_UNIFIED)
		return STREAM_CALL(cuMemcpyAsync, cuMemcpyAsync_ptsz, to, from, size, s);
	if (op->kind == OP_UP)
		return STREAM_CALL(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2_ptsz, to, host, size, s);
	if (op->kind == OP_DOWN)
		return STREAM_CALL(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2_ptsz, host, from, size, s);
	return STREAM_CALL(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2_ptsz, to, from, size, s);
}

static int rows_run(const struct op *op)
{
	const int64_t *a = op->a;
	CUDA_MEMCPY2D copy = { .WidthInBytes = (size_t)a[3], .Height = (size_t)a[4] };
	CUdeviceptr at = p.bufs[a[0]].at + (CUdeviceptr)a[1];
	CUstream s;
	bool ptsz = stream_named(a[8], a[9], &s);

	if (op->kind == OP_DOWN2D) {
		copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
		copy.srcDevice = at;
		copy.srcPitch = (size_t)a[2];
		copy.dstMemoryType = CU_MEMORYTYPE_HOST;
		copy.dstHost = p.hosts[a[5]].bytes + a[6];
		copy.dstPitch = (size_t)a[7];
	} else {
		copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
		copy.dstDevice = at;
		copy.dstPitch = (size_t)a[2];
		copy.srcPitch = (size_t)a[7];
		if (op->kind == OP_UP2D) {
			copy.srcMemoryType = CU_MEMORYTYPE_HOST;
			copy.srcHost = p.hosts[a[5]].bytes + a[6];
		} else {
			copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
			copy.srcDevice = p.bufs[a[5]].at + (CUdeviceptr)a[6];
		}
	}
	if (a[9] & FORM_UNIFIED) {
		if (op->kind == OP_DOWN2D)
			copy.dstDevice = (CUdeviceptr)(uintptr_t)copy.dstHost;
		if (op->kind == OP_UP2D)
			copy.srcDevice = (CUdeviceptr)(uintptr_t)copy.srcHost;
		copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
	}
	if (a[9] & FORM_SYNC)
		return a[8] == 1 ? cuMemcpy2D_v2_ptds(&copy) : cuMemcpy2D_v2(&copy);
	return STREAM_CALL(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz, &copy, s);
}

static int set_run(const struct op *op)
{
	const int64_t *a = op->a;
	CUdeviceptr at = p.bufs[a[0]].at + (CUdeviceptr)a[1];
	uint32_t v = (uint32_t)a[3];
	size_t n = (size_t)a[4];
	CUstream s;
	bool ptsz = stream_named(a[5], a[6], &s), own = a[5] == 1;

	if (a[6] & FORM_SYNC) {
		if (a[2] == 8)
			return own ? cuMemsetD8_v2_ptds(at, (uint8_t)v, n) : cuMemsetD8(at, (uint8_t)v, n);
		if (a[2] == 16)
			return own ? cuMemsetD16_v2_ptds(at, (uint16_t)v, n) : cuMemsetD16_v2(at, (uint16_t)v, n);
		return own ? cuMemsetD32_v2_ptds(at, v, n) : cuMemsetD32(at, v, n);
	}
	if (a[2] == 8)
		return STREAM_CALL(cuMemsetD8Async, cuMemsetD8Async_ptsz, at, (uint8_t)v, n, s);
	if (a[2] == 16)
		return STREAM_CALL(cuMemsetD16Async, cuMemsetD16Async_ptsz, at, (uint16_t)v, n, s);
	return STREAM_CALL(cuMemsetD32Async, cuMemsetD32Async_ptsz, at, v, n, s);
}

static int set_rows_run(const struct op *op)
{
	const int64_t *a = op->a;
	CUdeviceptr at = p.bufs[a[0]].at + (CUdeviceptr)a[1];
	uint32_t v = (uint32_t)a[4];
	size_t pitch = (size_t)a[2], w = (size_t)a[5], rows = (size_t)a[6];
	CUstream s;
	bool ptsz = stream_named(a[7], a[8], &s);

	if (a[3] == 8)
		return STREAM_CALL(cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz, at, pitch, (uint8_t)v, w, rows, s);
	if (a[3] == 16)
		return STREAM_CALL(cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz, at, pitch, (uint16_t)v, w, rows, s);
	return STREAM_CALL(cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz, at, pitch, v, w, rows, s);
}

struct packed {
	uint64_t data;
	uint32_t value, n;
	uint64_t from; /* or the time, its first half */
};

/* A bound and the launch that it is for: other threads set it lower. */
static pthread_mutex_t bound_lock = PTHREAD_MUTEX_INITIALIZER;

static int launch_make(const struct op *op, unsigned shared)
{
	const int64_t *a = op->a;
	CUfunction f = p.modules[a[0]].functions[a[1]];
	struct packed packed = { p.bufs[a[2]].at + (CUdeviceptr)a[3], (uint32_t)a[5], (uint32_t)a[4],
				 a[1] == FN_MIX ? p.bufs[a[6]].at + (CUdeviceptr)a[7] : (CUdeviceptr)a[8] };
	void *params[] = { &packed.data, &packed.value, &packed.n, &packed.from };
	size_t size = a[1] == FN_MIX ? 24 : a[1] == FN_LATE ? 20 : 16;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			  CU_LAUNCH_PARAM_END };
	bool one = a[1] == FN_LATE || a[1] == FN_GLOBAL, pack = a[10] & FORM_PACKED;
	unsigned grid = one ? 1 : 1 + (unsigned)a[5] % 3, block = 32u << (a[5] / 3 % 4);
	CUstream s;
	bool ptsz = stream_named(a[9], a[10], &s);

	if (a[10] & FORM_UNIFIED) {
		CUlaunchConfig config = { .gridDimX = grid, .gridDimY = 1, .gridDimZ = 1, .blockDimX = block,
					  .blockDimY = 1, .blockDimZ = 1, .sharedMemBytes = shared, .hStream = s };

		return STREAM_CALL(cuLaunchKernelEx, cuLaunchKernelEx_ptsz, &config, f, pack ? NULL : params,
				   pack ? extra : NULL);
	}
	return STREAM_CALL(cuLaunchKernel, cuLaunchKernel_ptsz, f, grid, 1, 1, block, 1, 1, shared, s, pack ? NULL : params,
			   pack ? extra : NULL);
}

static int launch_run(const struct op *op)
{
	const int64_t *a = op->a;
	unsigned shared = (unsigned)(a[5] >> 3) % (96u << 10);
	int result;

	if (a[5] % 4)
		return launch_make(op, 0);
	pthread_mutex_lock(&bound_lock);
	result = (int)cuFuncSetAttribute(p.modules[a[0]].functions[a[1]], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared);
	if (!result)
		result = launch_make(op, shared);
	pthread_mutex_unlock(&bound_lock);
	return result;
}

/* A chain of memsets and kernels, by hand. */
static int graph_run(const struct op *op)
{
	const int64_t *a = op->a;
	CUdeviceptr data = p.bufs[a[1]].at + (CUdeviceptr)a[2];
	uint32_t value = (uint32_t)a[4], n = (uint32_t)a[3];
	void *params[] = { &data, &value, &n };
	CUgraphNode last = NULL;
	CUgraphExec exec = NULL;
	CUgraph graph = NULL;
	CUstream s;
	bool ptsz = stream_named(a[6], a[7], &s);
	int result = (int)cuGraphCreate(&graph, 0);

	for (int64_t i = 0; i < a[5] && !result; i++) {
		CUgraphNode node;

		if ((value >> i & 3) == 3) {
			CUDA_MEMSET_NODE_PARAMS set = { .dst = data, .elementSize = 4, .value = value, .width = n, .height = 1 };

			result = (int)cuGraphAddMemsetNode(&node, graph, &last, last != NULL, &set, p.context);
		} else {
			CUDA_KERNEL_NODE_PARAMS kernel = { .func = p.modules[a[0]].functions[FN_STEP], .gridDimX = 2,
							   .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1,
							   .blockDimZ = 1, .kernelParams = params };

			value += (uint32_t)i;
			result = (int)cuGraphAddKernelNode_v2(&node, graph, &last, last != NULL, &kernel);
		}
		last = node;
	}
	if (!result)
		result = (int)cuGraphInstantiateWithFlags(&exec, graph, 0);
	if (!result)
		result = (int)STREAM_CALL(cuGraphLaunch, cuGraphLaunch_ptsz, exec, s);
	if (exec)
		result = result ? result : (int)cuGraphExecDestroy(exec);
	if (graph)
		cuGraphDestroy(graph);
	return result;
}

/* Kernels and fills of halves that two streams take in turns, fork and join; @shape's bits say which comes when. */
static int halves_capture(const struct op *op, CUstream first, CUstream second, CUevent event)
{
	const int64_t *a = op->a;
	CUdeviceptr data = p.bufs[a[1]].at + (CUdeviceptr)a[2];
	uint32_t value = (uint32_t)a[4], words = (uint32_t)a[3], half = words / 2;
	bool forked = false;
	int result = 0;

	for (int64_t i = 0; i < a[5] && !result; i++) {
		uint32_t way = value >> (2 * i) & 3;
		bool right = i & 1;
		CUdeviceptr at = data + (right ? half * 4 : 0);
		uint32_t n = right ? words - half : half;
		void *params[] = { &at, &value, &n };
		CUstream s = first;

		if (right && !forked) {
			result = (int)cuEventRecord(event, first);
			result = result ? result : (int)cuStreamWaitEvent(second, event, 0);
			forked = true;
		}
		if (right)
			s = second;
		if (result)
			break;
		if (way == 3)
			result = (int)cuMemsetD32Async(at, value, n, s);
		else if (way == 2 && n >= 2)
			result = (int)cuMemcpyDtoDAsync(at, at + n / 2 * 4, n / 2 * 4, s);
		else
			result = (int)cuLaunchKernel(p.modules[a[0]].functions[FN_STEP], 2, 1, 1, 64, 1, 1, 0, s, params, NULL);
		value += (uint32_t)i;
	}
	if (forked && !result)
		result = (int)cuEventRecord(event, second);
	if (forked && !result)
		result = (int)cuStreamWaitEvent(first, event, 0);
	if (!result && a[8] >= 0)
		result = (int)cuMemcpyDtoHAsync(p.hosts[a[8]].bytes + a[9], data, (size_t)words * 4, first);
	return result;
}

/* Captured on streams of its own, in a mode that leaves other threads alone; launched once or twice, and forgotten. */
static int capture_run(const struct op *op)
{
	const int64_t *a = op->a;
	CUstream s, own[2] = { NULL, NULL };
	CUgraphExec exec = NULL;
	CUevent event = NULL;
	CUgraph graph = NULL;
	bool ptsz = stream_named(a[6], a[7], &s);
	int result = (int)cuStreamCreate(&own[0], CU_STREAM_NON_BLOCKING);

	if (!result)
		result = (int)cuStreamCreate(&own[1], CU_STREAM_NON_BLOCKING);
	if (!result)
		result = (int)cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
	if (!result)
		result = (int)cuStreamBeginCapture_v2(own[0], a[4] & 1 ? CU_STREAM_CAPTURE_MODE_RELAXED :
									 CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	if (!result) {
		int ended;

		result = halves_capture(op, own[0], own[1], event);
		ended = (int)cuStreamEndCapture(own[0], &graph);
		result = result ? result : ended;
	}
	if (!result)
		result = (int)cuGraphInstantiateWithFlags(&exec, graph, 0);
	for (int i = 0; i < 1 + (a[4] >> 1 & 1) && !result; i++)
		result = (int)STREAM_CALL(cuGraphLaunch, cuGraphLaunch_ptsz, exec, s);
	if (exec)
		result = result ? result : (int)cuGraphExecDestroy(exec);
	if (graph)
		cuGraphDestroy(graph);
	if (event)
		cuEventDestroy(event);
	for (int i = 0; i < 2; i++)
		if (own[i])
			cuStreamDestroy(own[i]);
	return result;
}

struct due {
	uint64_t *cell;
	uint64_t value;
	const uint8_t *bytes; /* NULL: it looks at nothing */
	size_t size;
};
/* Of each host function; they outlive their program's operations by no more than its last wait. */
static struct due dues[DIFFER_OPS];

static void due_run(void *user)
{
	struct due *due = user;

	if (due->bytes)
		due->value = differ_hash(due->bytes, due->size);
	*due->cell = differ_mix(*due->cell, due->value);
}

static void callback_run(CUstream stream, CUresult status, void *user)
{
	struct due *due = user;

	(void)stream;
	due->value += (uint64_t)status * 1000;
	due_run(user);
}

static int due_add(struct due *due, int64_t stream, int64_t form)
{
	CUstream s;
	bool ptsz = stream_named(stream, form, &s);

	if (form & FORM_UNIFIED)
		return STREAM_CALL(cuStreamAddCallback, cuStreamAddCallback_ptsz, s, callback_run, due, 0);
	return STREAM_CALL(cuLaunchHostFunc, cuLaunchHostFunc_ptsz, s, due_run, due);
}

static int hostfunc_run(const struct op *op, uint32_t index)
{
	dues[index] = (struct due){ .cell = &p.cells[op->a[0]], .value = (uint64_t)op->a[1] };
	return due_add(&dues[index], op->a[2], op->a[3]);
}

static int hostlook_run(const struct op *op, uint32_t index)
{
	dues[index] = (struct due){ .cell = &p.cells[op->a[0]], .bytes = p.hosts[op->a[1]].bytes + op->a[2], .size = (size_t)op->a[3] };
	return due_add(&dues[index], op->a[4], op->a[5]);
}

static void host_pattern(uint8_t *bytes, size_t size, uint64_t value)
{
	uint64_t h = value;

	for (size_t i = 0; i < size; i++) {
		if (i % 8 == 0)
			h = differ_mix(h, i);
		bytes[i] = (uint8_t)(h >> i % 8 * 8);
	}
}

static int host_new(const struct op *op)
{
	int64_t host = op->a[0];
	size_t size = (size_t)op->a[1];
	void *bytes = NULL;
	int result = 0;

	p.hosts[host].base = NULL;
	switch (op->a[2]) {
	case HOST_ALLOC:
		result = (int)cuMemHostAlloc(&bytes, size, 0);
		break;
	case HOST_ALLOC_OLD:
		result = (int)cuMemAllocHost(&bytes, size);
		break;
	case HOST_PORTABLE:
		result = (int)cuMemHostAlloc(&bytes, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED);
		break;
	default:
		/* An odd beginning; registered memory with whole pages of its own around it. */
		if (posix_memalign(&p.hosts[host].base, 4096, (size / 4096 + 2) * 4096))
			abort();
		bytes = (uint8_t *)p.hosts[host].base + size % 60;
		if (op->a[2] == HOST_REGISTERED)
			result = (int)cuMemHostRegister(bytes, size, 0);
	}
	if (!result)
		memset(bytes, 0, size);
	p.hosts[host].bytes = bytes;
	p.hosts[host].size = size;
	p.hosts[host].how = (int)op->a[2];
	return result;
}

static int host_end(int64_t host)
{
	int result = 0;

	if (p.hosts[host].how == HOST_REGISTERED)
		result = (int)cuMemHostUnregister(p.hosts[host].bytes);
	else if (p.hosts[host].how != HOST_PAGEABLE)
		result = (int)cuMemFreeHost(p.hosts[host].bytes);
	free(p.hosts[host].base);
	p.hosts[host].base = NULL;
	p.hosts[host].bytes = NULL;
	return result;
}

static int module_new(const struct op *op)
{
	int64_t m = op->a[0];
	int result = op->a[1] ? (int)cuModuleLoadDataEx(&p.modules[m].module, p.ptx, 0, NULL, NULL) :
				(int)cuModuleLoadData(&p.modules[m].module, p.ptx);

	for (int i = 0; i < FUNCTIONS && !result; i++)
		result = (int)cuModuleGetFunction(&p.modules[m].functions[i], p.modules[m].module, function_names[i]);
	if (!result)
		result = (int)cuModuleGetGlobal(&p.modules[m].word, NULL, p.modules[m].module, "shared_word");
	return result;
}

static int pool_new(const struct op *op)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = p.device } };
	cuuint64_t threshold = op->a[1] ? UINT64_MAX : 0;
	int result = (int)cuMemPoolCreate(&p.pools[op->a[0]], &props);

	return result ? result :
			(int)cuMemPoolSetAttribute(p.pools[op->a[0]], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
}

static int ask(const struct op *op, uint64_t *value_out)
{
	CUdeviceptr at = 0, base = 0;
	CUstream s;
	CUcontext context = NULL;
	unsigned int word = 0;
	size_t size = 0;
	int number = 0, result;

	switch (op->a[0]) {
	case 0:
		stream_named(op->a[1], 0, &s);
		result = (int)cuStreamGetFlags(s, &word);
		*value_out = word;
		return result;
	case 1:
		stream_named(op->a[1], 0, &s);
		result = (int)cuStreamGetPriority(s, &number);
		*value_out = (uint64_t)number;
		return result;
	case 2:
		stream_named(op->a[1], 0, &s);
		result = (int)cuStreamGetCtx(s, &context);
		*value_out = context == p.context;
		return result;
	case 3:
		at = p.bufs[op->a[1]].at + (CUdeviceptr)op->a[2];
		result = (int)cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
		*value_out = word;
		return result;
	case 4:
		at = p.bufs[op->a[1]].at + (CUdeviceptr)op->a[2];
		result = (int)cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
		*value_out = (uint64_t)number;
		return result;
	case 5:
		/* How much of a pool's or a rounded allocation is told is the driver's business. */
		at = p.bufs[op->a[1]].at + (CUdeviceptr)op->a[2];
		result = (int)cuMemGetAddressRange_v2(&base, &size, at);
		if (!result && !p.bufs[op->a[1]].pooled)
			*value_out = (at - base) * 31 + (size >= p.bufs[op->a[1]].size);
		return result;
	case 6:
		result = (int)cuMemHostGetFlags(&word, p.hosts[op->a[1]].bytes);
		*value_out = word & ~(unsigned)CU_MEMHOSTALLOC_DEVICEMAP;
		return result;
	case 7:
		result = (int)cuFuncGetAttribute(&number, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
						 p.modules[op->a[1]].functions[0]);
		*value_out = (uint64_t)number;
		return result;
	default: {
		CUmodule module = NULL;

		result = (int)cuFuncGetModule(&module, p.modules[op->a[1]].functions[1]);
		*value_out = module == p.modules[op->a[1]].module;
		return result;
	}
	}
}

/*
 * "Not yet" is right at any time, unless the program has waited for what it asks about: then a moment may pass until
 * a question hears of it, without another wait (docs/consistency.md), and no more.
 */
static CUresult query_once(const struct op *op)
{
	float ms = 0;
	CUstream s;
	bool ptsz;

	switch (op->kind) {
	case OP_QUERY_STREAM:
		ptsz = stream_named(op->a[0], op->a[1], &s);
		return STREAM_CALL(cuStreamQuery, cuStreamQuery_ptsz, s);
	case OP_QUERY_EVENT:
		return cuEventQuery(p.events[op->a[0]]);
	default:
		return cuEventElapsedTime(&ms, p.events[op->a[0]], p.events[op->a[1]]);
	}
}

static int query_run(const struct op *op)
{
	double until = prog_seconds() + QUERY_SECONDS;
	CUresult result;

	do {
		result = query_once(op);
		if (result != CUDA_ERROR_NOT_READY)
			return (int)result;
		if (!op->known)
			return 0;
		usleep(50);
	} while (prog_seconds() < until);
	return (int)result;
}

static int buf_free(int64_t buf)
{
	if (p.bufs[buf].mapped)
		return (int)cuMemFreeHost((void *)(uintptr_t)p.bufs[buf].at);
	return (int)cuMemFree(p.bufs[buf].at);
}

/* New memory reads as zero, so that programs without some of their operations are determined, too. */
static int alloc_run(const struct op *op)
{
	const int64_t *a = op->a;
	size_t size = (size_t)a[1], pitch = 0;
	CUdeviceptr *at = &p.bufs[a[0]].at;
	void *host = NULL;
	int result;

	p.bufs[a[0]].size = size;
	p.bufs[a[0]].pooled = op->kind == OP_ALLOC_ASYNC;
	p.bufs[a[0]].mapped = op->kind == OP_ALLOC && a[2] == ALLOC_MAPPED;
	if (op->kind == OP_ALLOC) {
		switch (a[2]) {
		case ALLOC_PITCH:
			result = (int)cuMemAllocPitch_v2(at, &pitch, size, 1, 4);
			break;
		case ALLOC_MANAGED:
			result = (int)cuMemAllocManaged(at, size, CU_MEM_ATTACH_GLOBAL);
			break;
		case ALLOC_MAPPED:
			result = (int)cuMemHostAlloc(&host, size, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
			if (!result)
				result = (int)cuMemHostGetDevicePointer_v2(at, host, 0);
			break;
		default:
			result = (int)cuMemAlloc(at, size);
		}
		if (!result)
			result = (int)cuMemsetD8(*at, 0, size);
		return result ? result : (int)cuStreamSynchronize(NULL);
	}

	CUstream s;
	bool ptsz = stream_named(a[3], a[4], &s);

	if (a[2])
		result = (int)STREAM_CALL(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz, at, size, p.pools[a[2] - 1], s);
	else
		result = (int)STREAM_CALL(cuMemAllocAsync, cuMemAllocAsync_ptsz, at, size, s);
	return result ? result : (int)STREAM_CALL(cuMemsetD8Async, cuMemsetD8Async_ptsz, *at, 0, size, s);
}

static int op_run(const struct op *op, uint32_t index, uint64_t *value_out)
{
	const int64_t *a = op->a;
	struct illegal_at at;
	CUstream s;
	bool ptsz;
	int result;

	switch (op->kind) {
	case OP_ALLOC:
	case OP_ALLOC_ASYNC:
		return alloc_run(op);
	case OP_FREE:
		return buf_free(a[0]);
	case OP_BUF_FILL:
		host_pattern((uint8_t *)(uintptr_t)p.bufs[a[0]].at + a[1], (size_t)a[2], (uint64_t)a[3]);
		return 0;
	case OP_BUF_READ:
		*value_out = differ_hash((uint8_t *)(uintptr_t)p.bufs[a[0]].at + a[1], (size_t)a[2]);
		return 0;
	case OP_FREE_ASYNC:
		ptsz = stream_named(a[1], a[2], &s);
		return STREAM_CALL(cuMemFreeAsync, cuMemFreeAsync_ptsz, p.bufs[a[0]].at, s);
	case OP_HOST_NEW:
		return host_new(op);
	case OP_HOST_END:
		return host_end(a[0]);
	case OP_HOST_FILL:
		host_pattern(p.hosts[a[0]].bytes + a[1], (size_t)a[2], (uint64_t)a[3]);
		return 0;
	case OP_HOST_READ:
		*value_out = differ_hash(p.hosts[a[0]].bytes + a[1], (size_t)a[2]);
		return 0;
	case OP_UP:
	case OP_DEV:
		return copy_run(op);
	case OP_DOWN:
		result = copy_run(op);
		/* Pageable memory has them when the call returns; page-locked memory does after one that waits. */
		if (p.hosts[a[3]].how == HOST_PAGEABLE || a[6] & FORM_SYNC)
			*value_out = differ_hash(p.hosts[a[3]].bytes + a[4], (size_t)a[2]);
		return result;
	case OP_UP2D:
	case OP_DOWN2D:
	case OP_DEV2D:
		return rows_run(op);
	case OP_SET:
		return set_run(op);
	case OP_SET2D:
		return set_rows_run(op);
	case OP_LAUNCH:
		return launch_run(op);
	case OP_HOSTFUNC:
		return hostfunc_run(op, index);
	case OP_HOSTLOOK:
		return hostlook_run(op, index);
	case OP_WRITE_VALUE:
		ptsz = stream_named(a[3], a[4], &s);
		return STREAM_CALL(cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz, s,
				   p.bufs[a[0]].at + (CUdeviceptr)a[1], (cuuint32_t)a[2], 0);
	case OP_GRAPH:
		return graph_run(op);
	case OP_CAPTURE:
		return capture_run(op);
	case OP_STREAM_NEW:
		if (a[2] == -6)
			return (int)cuStreamCreate(&p.streams[a[0] - 2], (unsigned)a[1]);
		return (int)cuStreamCreateWithPriority(&p.streams[a[0] - 2], (unsigned)a[1], (int)a[2]);
	case OP_STREAM_END:
		return (int)cuStreamDestroy(p.streams[a[0] - 2]);
	case OP_EVENT_NEW:
		return (int)cuEventCreate(&p.events[a[0]], (unsigned)a[1]);
	case OP_EVENT_END:
		return (int)cuEventDestroy(p.events[a[0]]);
	case OP_RECORD:
		ptsz = stream_named(a[1], a[2], &s);
		return STREAM_CALL(cuEventRecord, cuEventRecord_ptsz, p.events[a[0]], s);
	case OP_WAIT:
		ptsz = stream_named(a[1], a[2], &s);
		return STREAM_CALL(cuStreamWaitEvent, cuStreamWaitEvent_ptsz, s, p.events[a[0]], 0);
	case OP_SYNC_STREAM:
		ptsz = stream_named(a[0], a[1], &s);
		return STREAM_CALL(cuStreamSynchronize, cuStreamSynchronize_ptsz, s);
	case OP_SYNC_EVENT:
		return (int)cuEventSynchronize(p.events[a[0]]);
	case OP_SYNC_CONTEXT:
		return (int)cuCtxSynchronize();
	case OP_QUERY_STREAM:
	case OP_QUERY_EVENT:
	case OP_ELAPSED:
		return query_run(op);
	case OP_MODULE_NEW:
		return module_new(op);
	case OP_MODULE_END:
		return (int)cuModuleUnload(p.modules[a[0]].module);
	case OP_GLOBAL_SET: {
		uint32_t word = (uint32_t)a[1];

		ptsz = stream_named(a[2], a[3], &s);
		return STREAM_CALL(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2_ptsz, p.modules[a[0]].word, &word, 4, s);
	}
	case OP_POOL_NEW:
		return pool_new(op);
	case OP_POOL_END:
		return (int)cuMemPoolDestroy(p.pools[a[0]]);
	case OP_POOL_TRIM:
		return (int)cuMemPoolTrimTo(p.pools[a[0]], (size_t)a[1]);
	case OP_ASK:
		return ask(op, value_out);
	case OP_ILLEGAL:
		stream_named(a[2], 0, &s);
		at = (struct illegal_at){ p.bufs[a[1]].at, p.bufs[a[1]].size, s, p.modules[0].functions[FN_STEP], p.device };
		return illegal_call((unsigned)a[0], &at);
	default:
		abort();
	}
}

/* ---- threads ---- */

static void *thread_run(void *arg)
{
	int thread = (int)(intptr_t)arg;

	MUST(cuCtxSetCurrent(p.context));
	for (uint32_t i = 0; i < p.program->count; i++) {
		const struct op *op = &p.program->ops[i];

		if (op->thread != thread)
			continue;
		pthread_mutex_lock(&p.lock);
		for (int t = 0; t < DIFFER_THREADS; t++)
			while (p.done[t] < op->after[t])
				pthread_cond_wait(&p.moved, &p.lock);
		pthread_mutex_unlock(&p.lock);
		p.results[i] = op_run(op, i, &p.values[i]);
		pthread_mutex_lock(&p.lock);
		p.done[thread]++;
		pthread_cond_broadcast(&p.moved);
		pthread_mutex_unlock(&p.lock);
	}
	return NULL;
}

static void hang(int signal)
{
	(void)signal;
	printf("seed %llu hangs: the threads have done", (unsigned long long)p.program->seed);
	for (int t = 0; t < DIFFER_THREADS; t++)
		printf(" %u", p.done[t]);
	printf(" operations\n");
	fflush(stdout);
	_exit(3);
}

/* ---- what is left ---- */

struct left {
	bool streams[DIFFER_CREATED], events[DIFFER_EVENTS], bufs[DIFFER_BUFS], hosts[DIFFER_HOSTS],
		modules[DIFFER_MODULES], pools[DIFFER_POOLS];
};

static void left_find(struct left *left)
{
	memset(left, 0, sizeof(*left));
	for (uint32_t i = 0; i < p.program->count; i++) {
		const struct op *op = &p.program->ops[i];

		switch (op->kind) {
		case OP_ALLOC: case OP_ALLOC_ASYNC: case OP_FREE: case OP_FREE_ASYNC:
			left->bufs[op->a[0]] = op->kind == OP_ALLOC || op->kind == OP_ALLOC_ASYNC;
			break;
		case OP_HOST_NEW: case OP_HOST_END:
			left->hosts[op->a[0]] = op->kind == OP_HOST_NEW;
			break;
		case OP_STREAM_NEW: case OP_STREAM_END:
			left->streams[op->a[0] - 2] = op->kind == OP_STREAM_NEW;
			break;
		case OP_EVENT_NEW: case OP_EVENT_END:
			left->events[op->a[0]] = op->kind == OP_EVENT_NEW;
			break;
		case OP_MODULE_NEW: case OP_MODULE_END:
			left->modules[op->a[0]] = op->kind == OP_MODULE_NEW;
			break;
		case OP_POOL_NEW: case OP_POOL_END:
			left->pools[op->a[0]] = op->kind == OP_POOL_NEW;
			break;
		default:
			break;
		}
	}
}

static uint64_t memory_hash(const struct left *left, FILE *trace)
{
	uint64_t all = (uint64_t)cuCtxSynchronize();
	uint8_t *bytes = malloc(DIFFER_SIZE_MAX);

	assert(bytes);
	for (int i = 0; i < DIFFER_BUFS; i++)
		if (left->bufs[i]) {
			int result = (int)cuMemcpyDtoH(bytes, p.bufs[i].at, p.bufs[i].size);
			uint64_t h = differ_hash(bytes, p.bufs[i].size);

			if (trace)
				fprintf(trace, "at the end: buf %d -> %d %016llx\n", i, result, (unsigned long long)h);
			all = differ_mix(differ_mix(all, (uint64_t)result), h);
		}
	for (int i = 0; i < DIFFER_HOSTS; i++)
		if (left->hosts[i]) {
			uint64_t h = differ_hash(p.hosts[i].bytes, p.hosts[i].size);

			if (trace)
				fprintf(trace, "at the end: host %d -> %016llx\n", i, (unsigned long long)h);
			all = differ_mix(all, h);
		}
	for (int i = 0; i < DIFFER_MODULES; i++)
		if (left->modules[i]) {
			uint32_t word = 0;
			int result = (int)cuMemcpyDtoH(&word, p.modules[i].word, 4);

			if (trace)
				fprintf(trace, "at the end: module %d -> %d %08x\n", i, result, word);
			all = differ_mix(differ_mix(all, (uint64_t)result), word);
		}
	for (int i = 0; i < DIFFER_CELLS; i++) {
		if (trace)
			fprintf(trace, "at the end: cell %d -> %016llx\n", i, (unsigned long long)p.cells[i]);
		all = differ_mix(all, p.cells[i]);
	}
	free(bytes);
	return all;
}

static uint64_t left_end(const struct left *left)
{
	uint64_t all = 0;

	for (int i = 0; i < DIFFER_BUFS; i++)
		if (left->bufs[i])
			all = differ_mix(all, p.bufs[i].pooled && i % 2 ? (uint64_t)cuMemFreeAsync(p.bufs[i].at, NULL) :
									  (uint64_t)buf_free(i));
	for (int i = 0; i < DIFFER_HOSTS; i++)
		if (left->hosts[i])
			all = differ_mix(all, (uint64_t)host_end(i));
	for (int i = 0; i < DIFFER_MODULES; i++)
		if (left->modules[i])
			all = differ_mix(all, cuModuleUnload(p.modules[i].module));
	for (int i = 0; i < DIFFER_EVENTS; i++)
		if (left->events[i])
			all = differ_mix(all, cuEventDestroy(p.events[i]));
	for (int i = 0; i < DIFFER_CREATED; i++)
		if (left->streams[i])
			all = differ_mix(all, cuStreamDestroy(p.streams[i]));
	for (int i = 0; i < DIFFER_POOLS; i++)
		if (left->pools[i] && !real_driver)
			all = differ_mix(all, cuMemPoolDestroy(p.pools[i]));
	return all;
}

/* Nothing is freed but what is not the context's; then all is gone at once. */
static uint64_t left_reset(const struct left *left)
{
	uint64_t all;

	for (int i = 0; i < DIFFER_HOSTS; i++)
		if (left->hosts[i] && p.hosts[i].how == HOST_REGISTERED)
			cuMemHostUnregister(p.hosts[i].bytes);
	for (int i = 0; i < DIFFER_POOLS; i++)
		if (left->pools[i]) {
			for (int b = 0; b < DIFFER_BUFS; b++)
				if (left->bufs[b] && p.bufs[b].pooled)
					cuMemFree(p.bufs[b].at);
			break;
		}
	for (int i = 0; i < DIFFER_POOLS; i++)
		if (left->pools[i])
			cuMemPoolDestroy(p.pools[i]);
	all = differ_mix(cuDevicePrimaryCtxReset(p.device), 0);
	for (int i = 0; i < DIFFER_HOSTS; i++)
		if (left->hosts[i])
			free(p.hosts[i].base);
	all = differ_mix(all, cuDevicePrimaryCtxRelease(p.device));
	MUST(cuDevicePrimaryCtxRetain(&p.context, p.device));
	MUST(cuCtxSetCurrent(p.context));
	return all;
}

/* ---- the whole ---- */

void play_begin(void)
{
	p.context = prog_context(&p.device);
	p.ptx = prog_ptx("differ");
	signal(SIGALRM, hang);
}

void play(const struct program *program, struct outcome *outcome_out, FILE *trace)
{
	pthread_t threads[DIFFER_THREADS];
	struct left left;
	uint64_t results = 0;

	p.program = program;
	memset(p.done, 0, sizeof(p.done));
	memset(p.values, 0, sizeof(p.values[0]) * program->count);
	for (int i = 0; i < DIFFER_CELLS; i++)
		p.cells[i] = (uint64_t)i;
	alarm(play_seconds);
	for (int t = 0; t < DIFFER_THREADS; t++)
		if (pthread_create(&threads[t], NULL, thread_run, (void *)(intptr_t)t))
			abort();
	for (int t = 0; t < DIFFER_THREADS; t++)
		pthread_join(threads[t], NULL);
	for (uint32_t i = 0; i < program->count; i++) {
		if (trace) {
			fprintf(trace, "%u: ", i);
			op_print(trace, &program->ops[i]);
			if (program->ops[i].kind == OP_ILLEGAL)
				fprintf(trace, " (%s)", illegal_name((unsigned)program->ops[i].a[0]));
			fprintf(trace, " -> %d", p.results[i]);
			if (p.values[i])
				fprintf(trace, " %016llx", (unsigned long long)p.values[i]);
			fprintf(trace, "\n");
		}
		results = differ_mix(differ_mix(results, (uint64_t)p.results[i]), p.values[i]);
		outcome_out->parts[i] = (uint32_t)differ_mix((uint64_t)p.results[i], p.values[i]);
	}
	left_find(&left);
	outcome_out->memory = memory_hash(&left, trace);

	uint64_t end = program->reset ? left_reset(&left) : left_end(&left);

	if (trace)
		fprintf(trace, "the end -> %016llx\n", (unsigned long long)end);
	outcome_out->end = end;
	outcome_out->results = differ_mix(results, end);
	alarm(0);
}

void play_end(void)
{
	free(p.ptx);
	MUST(cuDevicePrimaryCtxRelease(p.device));
}
