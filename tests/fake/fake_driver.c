// SPDX-License-Identifier: Apache-2.0
/*
 * A driver that fails by plan: libfakecuda.so, for tests of gleam-worker. It has devices without processors: "kernels" are
 * four names with a built-in meaning, memory is memory, and one thread plays the streams, with the legacy stream's rule.
 * The functions fake_*() steer and ask; a test finds them by dlsym in the same library that the worker has opened.
 *
 *	hold()			the stream stops until fake_release()
 *	fill(p, value, count)	count bytes of value
 *	add(p, value)		u32 at p += value
 *	crash()			the context is lost (700)
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "broker/proto/cuda_abi.h"
#include "gen/api.h"
#include "tests/fake/fake_driver.h"

#define EXPORT __attribute__((visibility("default")))
#define STREAMS 4096
#define RANGES 4096
#define CALLS 64

enum op_kind { OP_WRITE32, OP_WAIT32, OP_COPY, OP_COPY_BOX, OP_SET, OP_EVENT, OP_EVENT_WAIT, OP_KERNEL };

enum kernel_kind { KERNEL_HOLD, KERNEL_FILL, KERNEL_ADD, KERNEL_CRASH, KERNELS };
static const char *const kernel_names[KERNELS] = { "hold", "fill", "add", "crash" };
static const struct {
	unsigned int count;
	size_t offset[3], size[3];
} kernel_params[KERNELS] = {
	[KERNEL_FILL] = { 3, { 0, 8, 12 }, { 8, 4, 4 } },
	[KERNEL_ADD] = { 2, { 0, 8 }, { 8, 4 } },
};

struct op {
	struct op *next;
	uint64_t number; /* in the order of issue, over all streams */
	enum op_kind kind;
	uint64_t a, b, c;
	uint32_t value;
	CUevent event;
	enum kernel_kind kernel;
	CUDA_MEMCPY3D box;
};

struct CUctx_st {
	int device;
	bool primary;
	int retained;
	CUresult lost;
};

struct CUstream_st {
	bool used;
	bool blocking;
	bool destroyed;
	unsigned int flags;
	struct CUctx_st *context;
	struct op *head, *tail;
	unsigned int pending;
};

struct CUevent_st {
	uint64_t recorded, done; /* numbers of records */
};

struct CUfunc_st {
	enum kernel_kind kind;
};

struct CUmod_st {
	struct CUfunc_st functions[KERNELS];
	unsigned int count;
};

struct range {
	uint8_t *start;
	size_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t bell = PTHREAD_COND_INITIALIZER;
static bool started;
static struct CUctx_st primaries[8];
static __thread CUcontext current;
static struct CUstream_st streams[STREAMS]; /* [0 .. 63]: legacy streams of contexts made so far */
static CUcontext legacy_of[64];
static unsigned int legacy_count;
static uint64_t numbers;
static unsigned int holds_released;
static unsigned int pending_most;
static unsigned int pageable;
static uint64_t memory_left;
static unsigned int pieces_live;
static struct range registered[RANGES];
static bool register_refused;
static void *kept[65536]; /* what queues may still name when it was destroyed */
static unsigned int kept_count;
static struct {
	const char *name;
	int code, after;
} plan[16];
static struct {
	char name[48];
	unsigned int count;
} calls[CALLS];

/* ---- steering ---- */

EXPORT void fake_release(unsigned int count)
{
	pthread_mutex_lock(&lock);
	holds_released += count;
	pthread_cond_broadcast(&bell);
	pthread_mutex_unlock(&lock);
}

EXPORT void fake_fail(const char *name, int code, int after)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < 16; i++)
		if (!plan[i].name) {
			plan[i].name = name;
			plan[i].code = code;
			plan[i].after = after;
			break;
		}
	pthread_mutex_unlock(&lock);
}

static const char *waits_in; /* guarded by lock */

EXPORT void fake_wait_in(const char *name)
{
	pthread_mutex_lock(&lock);
	waits_in = name;
	pthread_mutex_unlock(&lock);
}

EXPORT void fake_refuse_register(bool refuse)
{
	register_refused = refuse;
}

EXPORT void fake_memory(uint64_t bytes)
{
	pthread_mutex_lock(&lock);
	memory_left = bytes;
	pthread_mutex_unlock(&lock);
}

EXPORT unsigned int fake_ask(enum fake_question question)
{
	unsigned int answer = 0;

	pthread_mutex_lock(&lock);
	switch (question) {
	case FAKE_PENDING_MOST:
		answer = pending_most;
		break;
	case FAKE_PIECES:
		answer = pieces_live;
		break;
	case FAKE_PAGEABLE:
		answer = pageable;
		break;
	case FAKE_PENDING:
		for (int i = 0; i < STREAMS; i++)
			answer += streams[i].pending;
		break;
	}
	pthread_mutex_unlock(&lock);
	return answer;
}

EXPORT unsigned int fake_calls(const char *name)
{
	unsigned int count = 0;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < CALLS; i++)
		if (strcmp(calls[i].name, name) == 0)
			count = calls[i].count;
	pthread_mutex_unlock(&lock);
	return count;
}

static void *keep(size_t size)
{
	void *p = calloc(1, size);

	pthread_mutex_lock(&lock);
	kept[kept_count++ % 65536] = p;
	pthread_mutex_unlock(&lock);
	return p;
}

/* As the real one does now and then: until all queues are empty, for seconds at most. */
static CUresult device_waits(const char *name)
{
	for (int i = 0; i < 5000; i++) {
		pthread_mutex_lock(&lock);
		bool waits = waits_in && strcmp(waits_in, name) == 0;
		pthread_mutex_unlock(&lock);
		if (!waits || !fake_ask(FAKE_PENDING))
			return CUDA_SUCCESS;
		usleep(1000);
	}
	return CUDA_ERROR_LAUNCH_TIMEOUT;
}

/* Every function begins with this: counts, and fails if the plan says so. */
static CUresult enter(const char *name)
{
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < CALLS; i++)
		if (!calls[i].name[0] || strcmp(calls[i].name, name) == 0) {
			snprintf(calls[i].name, sizeof(calls[i].name), "%s", name);
			calls[i].count++;
			break;
		}
	for (int i = 0; i < 16; i++)
		if (plan[i].name && strcmp(plan[i].name, name) == 0 && plan[i].after-- <= 0) {
			r = (CUresult)plan[i].code;
			plan[i].name = NULL;
			break;
		}
	if (r == CUDA_SUCCESS && current && current->lost)
		r = current->lost;
	pthread_mutex_unlock(&lock);
	return r == CUDA_SUCCESS ? device_waits(name) : r;
}

#define ENTER()                                                                                                        \
	do {                                                                                                           \
		CUresult enter_ = enter(__func__);                                                                     \
                                                                                                                       \
		if (enter_ != CUDA_SUCCESS)                                                                            \
			return enter_;                                                                                 \
	} while (0)

/* ---- the processor ---- */

static bool may_run(const struct CUstream_st *s)
{
	bool legacy = s < streams + 64;

	if (!legacy && !s->blocking)
		return true;
	for (int i = 0; i < STREAMS; i++) {
		const struct CUstream_st *o = &streams[i];

		if (o == s || !o->head || o->context != s->context || o->head->number > s->head->number)
			continue;
		if (legacy ? i >= 64 && o->blocking : i < 64)
			return false;
	}
	return true;
}

struct CUarray_st {
	size_t width, rows;
	uint8_t bytes[];
};

static uint8_t *box_side(CUmemorytype type, const void *host, CUdeviceptr device, CUarray array, size_t x, size_t y, size_t z,
			 size_t *pitch, size_t *rows)
{
	const uint8_t *base = type == CU_MEMORYTYPE_HOST ? host : (const uint8_t *)(uintptr_t)device;

	if (type == CU_MEMORYTYPE_ARRAY) {
		base = array->bytes;
		*pitch = array->width;
		*rows = array->rows;
	}
	return (uint8_t *)(uintptr_t)base + (z * *rows + y) * *pitch + x;
}

static void copy_box(const CUDA_MEMCPY3D *c)
{
	size_t dst_pitch = c->dstPitch, dst_rows = c->dstHeight, src_pitch = c->srcPitch, src_rows = c->srcHeight;
	uint8_t *to = box_side(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstArray, c->dstXInBytes, c->dstY, c->dstZ,
			       &dst_pitch, &dst_rows);
	const uint8_t *from = box_side(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcArray, c->srcXInBytes, c->srcY,
				       c->srcZ, &src_pitch, &src_rows);

	for (size_t z = 0; z < c->Depth; z++)
		for (size_t y = 0; y < c->Height; y++)
			memcpy(to + (z * dst_rows + y) * dst_pitch, from + (z * src_rows + y) * src_pitch,
			       c->WidthInBytes);
}

/* False: not yet. */
static bool play(struct CUstream_st *s, struct op *op)
{
	uint32_t value;

	switch (op->kind) {
	case OP_WRITE32:
		__atomic_store_n((uint32_t *)(uintptr_t)op->a, op->value, __ATOMIC_RELEASE);
		break;
	case OP_WAIT32:
		value = __atomic_load_n((uint32_t *)(uintptr_t)op->a, __ATOMIC_ACQUIRE);
		return op->c == CU_STREAM_WAIT_VALUE_EQ ? value == op->value : (int32_t)(value - op->value) >= 0;
	case OP_COPY:
		memmove((void *)(uintptr_t)op->a, (const void *)(uintptr_t)op->b, op->c);
		break;
	case OP_COPY_BOX:
		copy_box(&op->box);
		break;
	case OP_SET:
		memset((void *)(uintptr_t)op->a, (int)op->value, op->c);
		break;
	case OP_EVENT:
		op->event->done = op->b;
		break;
	case OP_EVENT_WAIT:
		return op->event->done >= op->b;
	case OP_KERNEL:
		switch (op->kernel) {
		case KERNEL_HOLD:
			if (!holds_released)
				return false;
			holds_released--;
			break;
		case KERNEL_FILL:
			memset((void *)(uintptr_t)op->a, (int)op->b, op->c);
			break;
		case KERNEL_ADD:
			*(uint32_t *)(uintptr_t)op->a += (uint32_t)op->b;
			break;
		case KERNEL_CRASH:
			s->context->lost = CUDA_ERROR_ILLEGAL_ADDRESS;
			break;
		case KERNELS:
			break;
		}
		break;
	}
	return true;
}

static void op_pop(struct CUstream_st *s)
{
	struct op *op = s->head;

	s->head = op->next;
	if (!s->head)
		s->tail = NULL;
	s->pending--;
	free(op);
}

static void *processor(void *arg)
{
	struct timespec until;

	pthread_mutex_lock(&lock);
	for (;;) {
		bool any = false;

		for (int i = 0; i < STREAMS; i++) {
			struct CUstream_st *s = &streams[i];

			while (s->head && s->context->lost)
				op_pop(s);
			if (!s->head || !may_run(s) || !play(s, s->head))
				continue;
			if (!s->context->lost)
				op_pop(s);
			any = true;
		}
		for (int i = 64; i < STREAMS; i++)
			if (streams[i].destroyed && !streams[i].head)
				streams[i] = (struct CUstream_st){ .used = false };
		pthread_cond_broadcast(&bell);
		if (any)
			continue;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 200000; /* words change without a bell */
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		pthread_cond_timedwait(&bell, &lock, &until);
	}
	return arg;
}

/* Of the current context for NULL. */
static struct CUstream_st *stream_of(CUstream s)
{
	if (s && s != (CUstream)1)
		return s;
	for (unsigned int i = 0; i < legacy_count; i++)
		if (legacy_of[i] == current)
			return &streams[i];
	legacy_of[legacy_count] = current;
	streams[legacy_count] = (struct CUstream_st){ .used = true, .blocking = true, .context = current };
	return &streams[legacy_count++];
}

static CUresult issue(CUstream stream, struct op op)
{
	struct op *copy = malloc(sizeof(*copy));
	CUresult r = CUDA_SUCCESS;

	if (!current) {
		free(copy);
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	*copy = op;
	copy->next = NULL;
	pthread_mutex_lock(&lock);

	struct CUstream_st *s = stream_of(stream);

	if (s->context->lost) {
		r = s->context->lost;
		free(copy);
	} else {
		copy->number = ++numbers;
		if (s->tail)
			s->tail->next = copy;
		else
			s->head = copy;
		s->tail = copy;
		if (++s->pending > pending_most)
			pending_most = s->pending;
		pthread_cond_broadcast(&bell);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

static bool is_registered(const void *p, size_t size)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < RANGES && !found; i++)
		found = registered[i].start && (const uint8_t *)p >= registered[i].start &&
			(const uint8_t *)p + size <= registered[i].start + registered[i].size;
	pthread_mutex_unlock(&lock);
	return found;
}

/* ---- init and devices ---- */

EXPORT CUresult cuInit(unsigned int flags)
{
	pthread_t thread;

	ENTER();
	pthread_mutex_lock(&lock);
	if (!started) {
		started = true;
		if (!memory_left)
			memory_left = 8ull << 30;
		pthread_create(&thread, NULL, processor, NULL);
		pthread_detach(thread);
	}
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
	ENTER();
	*version = CUDA_VERSION;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	const char *text = getenv("FAKE_DEVICES");

	ENTER();
	*count = text ? atoi(text) : 1;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	ENTER();
	*device = ordinal;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
	ENTER();
	snprintf(name, (size_t)size, "Fake %d", device);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	ENTER();
	memset(uuid, 0x40 + device, sizeof(*uuid));
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	ENTER();
	*bytes = 8ull << 30;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device)
{
	ENTER();
	snprintf(text, (size_t)size, "0000:%02x:00.0", device + 1);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	ENTER();
	if ((int)attribute > 147)
		return CUDA_ERROR_INVALID_VALUE;
	*value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 8 : (int)attribute * 10;
	return CUDA_SUCCESS;
}

/* ---- contexts ---- */

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	ENTER();
	primaries[device].primary = true;
	primaries[device].device = device;
	primaries[device].retained++;
	*context = &primaries[device];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	enter(__func__);
	primaries[device].retained--;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	enter(__func__);
	pthread_mutex_lock(&lock);
	primaries[device].lost = CUDA_SUCCESS;
	primaries[device].retained = 0;
	memset(registered, 0, sizeof(registered));
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	ENTER();
	*context = keep(sizeof(**context));
	(*context)->device = device;
	current = *context;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
	enter(__func__);
	pthread_mutex_lock(&lock);
	for (int i = 0; i < STREAMS; i++)
		if (streams[i].context == context) {
			while (streams[i].head)
				op_pop(&streams[i]);
			if (i >= 64)
				streams[i] = (struct CUstream_st){ .used = false };
		}
	pthread_mutex_unlock(&lock);
	if (current == context)
		current = NULL;
	return CUDA_SUCCESS; /* kept: streams[] may still point to it */
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
	enter(__func__);
	current = context;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	ENTER();
	*least = 0;
	*greatest = -5;
	return CUDA_SUCCESS;
}

static size_t stack_limit = 1024;

EXPORT CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
	ENTER();
	*value = limit == CU_LIMIT_STACK_SIZE ? stack_limit : 1024u * ((unsigned int)limit + 1);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	ENTER();
	if (limit == CU_LIMIT_STACK_SIZE && value > 512u << 10)
		return CUDA_ERROR_INVALID_VALUE;
	if (limit == CU_LIMIT_STACK_SIZE)
		stack_limit = value;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void)
{
	CUresult r;

	ENTER();
	pthread_mutex_lock(&lock);
	for (;;) {
		unsigned int pending = 0;

		for (int i = 0; i < STREAMS; i++)
			if (streams[i].context == current)
				pending += streams[i].pending;
		if (!pending || current->lost)
			break;
		pthread_cond_wait(&bell, &lock);
	}
	r = current->lost;
	pthread_mutex_unlock(&lock);
	return r;
}

/* ---- streams and events ---- */

EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	ENTER();
	pthread_mutex_lock(&lock);
	for (int i = 64; i < STREAMS; i++)
		if (!streams[i].used) {
			streams[i] = (struct CUstream_st){ .used = true, .blocking = !(flags & 1), .flags = flags, .context = current };
			*stream = &streams[i];
			break;
		}
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
	return cuStreamCreateWithPriority(stream, flags, 0);
}

EXPORT CUresult cuStreamGetFlags(CUstream stream, unsigned int *flags)
{
	ENTER();
	*flags = stream->flags;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
	enter(__func__);
	pthread_mutex_lock(&lock);
	stream->destroyed = true;
	pthread_mutex_unlock(&lock);
	/* Long enough for any other thread to come with a handle that is void now. */
	usleep(20000);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamQuery(CUstream stream)
{
	CUresult r;

	ENTER();
	pthread_mutex_lock(&lock);
	stream = stream_of(stream);
	r = stream->destroyed ? CUDA_ERROR_INVALID_HANDLE : stream->head ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
	pthread_mutex_unlock(&lock);
	return r;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
	CUresult r;

	ENTER();
	pthread_mutex_lock(&lock);
	while (stream_of(stream)->pending && !current->lost)
		pthread_cond_wait(&bell, &lock);
	r = current->lost;
	pthread_mutex_unlock(&lock);
	return r;
}

EXPORT CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned int flags)
{
	ENTER();
	return issue(stream, (struct op){ .kind = OP_WRITE32, .a = at, .value = value });
}

EXPORT CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned int flags)
{
	ENTER();
	return issue(stream, (struct op){ .kind = OP_WAIT32, .a = at, .value = value, .c = flags });
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	ENTER();
	*event = keep(sizeof(**event));
	return CUDA_SUCCESS;
}

EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
	enter(__func__);
	return CUDA_SUCCESS; /* kept: queues may still name it */
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
	ENTER();
	pthread_mutex_lock(&lock);
	event->recorded++;
	uint64_t record = event->recorded;
	pthread_mutex_unlock(&lock);
	return issue(stream, (struct op){ .kind = OP_EVENT, .event = event, .b = record });
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	ENTER();
	pthread_mutex_lock(&lock);
	uint64_t record = event->recorded;
	pthread_mutex_unlock(&lock);
	return issue(stream, (struct op){ .kind = OP_EVENT_WAIT, .event = event, .b = record });
}

EXPORT CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	ENTER();
	if (!start->recorded || !end->recorded)
		return CUDA_ERROR_INVALID_HANDLE;
	if (start->done < start->recorded || end->done < end->recorded)
		return CUDA_ERROR_NOT_READY;
	*ms = 1.0f;
	return CUDA_SUCCESS;
}

/* ---- host memory ---- */

EXPORT CUresult cuMemHostRegister_v2(void *p, size_t size, unsigned int flags)
{
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	ENTER();
	/* Shared memory alone is refused: what a sandbox does. */
	if (register_refused && size > (1u << 20))
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < RANGES; i++)
		if (!registered[i].start) {
			registered[i] = (struct range){ p, size };
			r = CUDA_SUCCESS;
			break;
		}
	pthread_mutex_unlock(&lock);
	return r;
}

EXPORT CUresult cuMemHostUnregister(void *p)
{
	enter(__func__);
	pthread_mutex_lock(&lock);
	for (int i = 0; i < RANGES; i++)
		if (registered[i].start == p)
			registered[i] = (struct range){ NULL, 0 };
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostAlloc(void **p, size_t size, unsigned int flags)
{
	ENTER();
	*p = aligned_alloc(4096, size);
	pthread_mutex_lock(&lock);
	for (int i = 0; i < RANGES; i++)
		if (!registered[i].start) {
			registered[i] = (struct range){ *p, size };
			break;
		}
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFreeHost(void *p)
{
	cuMemHostUnregister(p);
	free(p);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *at, void *p, unsigned int flags)
{
	ENTER();
	*at = (CUdeviceptr)(uintptr_t)p;
	return CUDA_SUCCESS;
}

/* ---- device memory ---- */

EXPORT CUresult cuMemGetAllocationGranularity(size_t *size, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags flag)
{
	ENTER();
	*size = 2u << 20;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *at, size_t size, size_t align, CUdeviceptr hint, unsigned long long flags)
{
	void *p;

	ENTER();
	p = mmap((void *)(uintptr_t)hint, size, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (hint ? MAP_FIXED_NOREPLACE : 0), -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*at = (CUdeviceptr)(uintptr_t)p;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr at, size_t size)
{
	enter(__func__);
	munmap((void *)(uintptr_t)at, size);
	return CUDA_SUCCESS;
}

/* A piece is a memfd; its handle the descriptor plus one, and the size above. New memory is full of another client's. */
EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
			    unsigned long long flags)
{
	static const char dirt[] = "left by somebody else";
	int fd;

	ENTER();
	pthread_mutex_lock(&lock);
	bool fits = size <= memory_left;

	if (fits) {
		memory_left -= size;
		pieces_live++;
	}
	pthread_mutex_unlock(&lock);
	if (!fits)
		return CUDA_ERROR_OUT_OF_MEMORY;
	fd = memfd_create("piece", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)size) || pwrite(fd, dirt, sizeof(dirt), 0) < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*handle = (uint64_t)size << 16 | (uint64_t)(fd + 1);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	enter(__func__);
	pthread_mutex_lock(&lock);
	memory_left += handle >> 16;
	pieces_live--;
	pthread_mutex_unlock(&lock);
	close((int)(handle & 0xffff) - 1);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemMap(CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	ENTER();
	if (offset || size != handle >> 16)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (mmap((void *)(uintptr_t)at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, (int)(handle & 0xffff) - 1, 0) ==
	    MAP_FAILED)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr at, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	ENTER();
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr at, size_t size)
{
	enter(__func__);
	mmap((void *)(uintptr_t)at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	ENTER();
	pthread_mutex_lock(&lock);
	*free_bytes = memory_left;
	pthread_mutex_unlock(&lock);
	*total = 8ull << 30;
	return CUDA_SUCCESS;
}

/* ---- copies ---- */

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
	ENTER();
	if (!is_registered(from, size)) {
		pthread_mutex_lock(&lock);
		pageable++;
		pthread_mutex_unlock(&lock);
	}
	return issue(stream, (struct op){ .kind = OP_COPY, .a = to, .b = (uintptr_t)from, .c = size });
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
	ENTER();
	if (!is_registered(to, size)) {
		pthread_mutex_lock(&lock);
		pageable++;
		pthread_mutex_unlock(&lock);
	}
	return issue(stream, (struct op){ .kind = OP_COPY, .a = (uintptr_t)to, .b = from, .c = size });
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	ENTER();
	return issue(stream, (struct op){ .kind = OP_COPY, .a = to, .b = from, .c = size });
}

EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
	ENTER();
	return issue(stream, (struct op){
		.kind = OP_COPY_BOX,
		.box = { .srcMemoryType = copy->srcMemoryType, .srcHost = copy->srcHost, .srcDevice = copy->srcDevice,
			 .srcPitch = copy->srcPitch, .dstMemoryType = copy->dstMemoryType, .dstHost = copy->dstHost,
			 .dstDevice = copy->dstDevice, .dstPitch = copy->dstPitch, .WidthInBytes = copy->WidthInBytes,
			 .Height = copy->Height, .Depth = 1 } });
}

EXPORT CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream)
{
	ENTER();
	return issue(stream, (struct op){ .kind = OP_COPY_BOX, .box = *copy });
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	size_t rows = desc->Height ? desc->Height : 1, layers = desc->Depth ? desc->Depth : 1;

	ENTER();
	/* Elements of one byte are all that tests need. */
	if (desc->Format != CU_AD_FORMAT_UNSIGNED_INT8 || desc->NumChannels != 1)
		return CUDA_ERROR_INVALID_VALUE;
	*array = keep(sizeof(**array) + desc->Width * rows * layers);
	(*array)->width = desc->Width;
	(*array)->rows = rows;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuArrayDestroy(CUarray array)
{
	ENTER();
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t count, CUstream stream)
{
	ENTER();
	return issue(stream, (struct op){ .kind = OP_SET, .a = at, .value = value, .c = count });
}

/* ---- images: "// fake NAME NAME ..." ---- */

static CUmodule module_read(const char *text)
{
	CUmodule module;
	char copy[256];
	char *rest = copy;
	char *word;

	if (strncmp(text, "// fake ", 8) != 0)
		return NULL;
	module = keep(sizeof(*module));
	snprintf(copy, sizeof(copy), "%s", text + 8);
	while ((word = strtok_r(rest, " \n", &rest)))
		for (int k = 0; k < KERNELS; k++)
			if (strcmp(word, kernel_names[k]) == 0)
				module->functions[module->count++].kind = (enum kernel_kind)k;
	return module;
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values)
{
	ENTER();
	*module = module_read(image);
	for (unsigned int i = 0; i < count; i++)
		if (options[i] == CU_JIT_ERROR_LOG_BUFFER && !*module)
			strcpy(values[i], "no fake image");
	return *module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
	enter(__func__);
	return CUDA_SUCCESS; /* kept: queues do not name it, tests may */
}

EXPORT CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module)
{
	ENTER();
	*count = module->count;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule module)
{
	ENTER();
	for (unsigned int i = 0; i < count && i < module->count; i++)
		functions[i] = &module->functions[i];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	ENTER();
	for (unsigned int i = 0; i < module->count; i++)
		if (strcmp(kernel_names[module->functions[i].kind], name) == 0) {
			*function = &module->functions[i];
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuFuncGetName(const char **name, CUfunction function)
{
	ENTER();
	*name = kernel_names[function->kind];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
	ENTER();
	if (index >= kernel_params[function->kind].count)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = kernel_params[function->kind].offset[index];
	*size = kernel_params[function->kind].size[index];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
	ENTER();
	*value = 100 + (int)attribute;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
			       unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params, void **extra)
{
	struct op op = { .kind = OP_KERNEL, .kernel = function->kind };
	uint8_t *bytes = NULL;
	size_t size = 0;
	uint32_t word;

	ENTER();
	if (!gx || bx > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			bytes = extra[i + 1];
		else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			size = *(size_t *)extra[i + 1];
	}
	if (kernel_params[function->kind].count && (!bytes || size < 12))
		return CUDA_ERROR_INVALID_VALUE;
	if (size >= 12) {
		memcpy(&op.a, bytes, 8);
		memcpy(&word, bytes + 8, 4);
		op.b = word;
	}
	if (size >= 16) {
		memcpy(&word, bytes + 12, 4);
		op.c = word;
	}
	return issue(stream, op);
}
