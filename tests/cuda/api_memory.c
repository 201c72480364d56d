// SPDX-License-Identifier: Apache-2.0
/*
 * Memory: fills of every width, copies of every form, virtual memory management, pools, what a pointer is, and what is said of
 * memory that isn't managed.
 */
#include "tests/cuda/prog.h"

#define MIB ((size_t)1 << 20)

static CUdevice device;
static CUcontext context;
static CUstream stream;

static void back(void *to, CUdeviceptr from, size_t size)
{
	MUST(cuMemcpyDtoH(to, from, size));
}

/* ---- fills ---- */

static bool all_16(const uint16_t *words, size_t count, uint16_t want)
{
	for (size_t i = 0; i < count; i++)
		if (words[i] != want)
			return false;
	return true;
}

/* A rectangle of @width elements of @bytes each in rows of 64 bytes: filled inside, untouched outside. */
static void rectangle(CUdeviceptr memory, unsigned int bytes, size_t width, size_t rows, uint32_t value, const char *what)
{
	uint8_t host[64 * 8];
	bool inside = true, outside = true;

	back(host, memory, sizeof(host));
	for (size_t y = 0; y < 8; y++)
		for (size_t x = 0; x < 64; x++) {
			uint8_t want = (uint8_t)(value >> 8 * (x % bytes));

			if (y < rows && x < width * bytes)
				inside &= host[y * 64 + x] == want;
			else
				outside &= host[y * 64 + x] == 0xee;
		}
	CHECK(inside && outside, "%s: inside %d, outside %d", what, inside, outside);
}

static void fills(void)
{
	uint16_t words[256];
	CUdeviceptr memory;

	MUST(cuMemAlloc(&memory, 512));
	EXPECT(cuMemsetD16_v2(memory, 0x1234, 256), CUDA_SUCCESS);
	back(words, memory, sizeof(words));
	CHECK(all_16(words, 256, 0x1234), "cuMemsetD16");
	EXPECT(cuMemsetD16Async(memory, 0x4321, 100, stream), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(stream));
	back(words, memory, sizeof(words));
	CHECK(all_16(words, 100, 0x4321) && all_16(words + 100, 156, 0x1234), "cuMemsetD16Async");
	EXPECT(cuMemsetD8Async(memory, 0xee, 512, stream), CUDA_SUCCESS);
	EXPECT(cuMemsetD2D8Async(memory, 64, 0x11, 7, 3, stream), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(stream));
	rectangle(memory, 1, 7, 3, 0x11, "cuMemsetD2D8Async");
	EXPECT(cuMemsetD8(memory, 0xee, 512), CUDA_SUCCESS);
	EXPECT(cuMemsetD2D8_v2(memory, 64, 0x22, 64, 2), CUDA_SUCCESS);
	rectangle(memory, 1, 64, 2, 0x22, "cuMemsetD2D8");
	EXPECT(cuMemsetD8(memory, 0xee, 512), CUDA_SUCCESS);
	EXPECT(cuMemsetD2D16_v2(memory, 64, 0x3344, 5, 8), CUDA_SUCCESS);
	rectangle(memory, 2, 5, 8, 0x3344, "cuMemsetD2D16");
	EXPECT(cuMemsetD2D16Async(memory, 64, 0x5566, 5, 8, stream), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(stream));
	rectangle(memory, 2, 5, 8, 0x5566, "cuMemsetD2D16Async");
	EXPECT(cuMemsetD2D32_v2(memory, 64, 0x778899aa, 3, 8), CUDA_SUCCESS);
	rectangle(memory, 4, 3, 8, 0x778899aa, "cuMemsetD2D32");
	EXPECT(cuMemsetD2D32Async(memory, 64, 0xbbccddee, 3, 8, stream), CUDA_SUCCESS);
	EXPECT(cuMemsetD32Async(memory + 256, 0, 0, stream), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(stream));
	rectangle(memory, 4, 3, 8, 0xbbccddee, "cuMemsetD2D32Async");
	EXPECT(cuMemsetD16_v2(memory, 1, 257), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemsetD16_v2(memory + 1, 1, 4), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemFree(memory));
}

/* ---- copies ---- */

static void copies(void)
{
	uint32_t host[64], got[64];
	CUdeviceptr a, b, dsts[2], srcs[2];
	size_t sizes[] = { 64, 128 }, first[] = { 0 };
	CUmemcpyAttributes attributes = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
	CUDA_MEMCPY3D_PEER peer = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE };

	for (uint32_t i = 0; i < 64; i++)
		host[i] = i * 7 + 1;
	MUST(cuMemAlloc(&a, 256));
	MUST(cuMemAlloc(&b, 256));
	EXPECT(cuMemcpy(a, (CUdeviceptr)(uintptr_t)host, 256), CUDA_SUCCESS);
	EXPECT(cuMemcpy(b, a, 256), CUDA_SUCCESS);
	memset(got, 0, sizeof(got));
	EXPECT(cuMemcpy((CUdeviceptr)(uintptr_t)got, b, 256), CUDA_SUCCESS);
	CHECK(!memcmp(got, host, 256), "cuMemcpy");
	MUST(cuMemsetD8(b, 0, 256));
	EXPECT(cuMemcpyAsync(b, a, 128, stream), CUDA_SUCCESS);
	EXPECT(cuMemcpyDtoDAsync(b + 128, a + 128, 128, stream), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(stream));
	back(got, b, 256);
	CHECK(!memcmp(got, host, 256), "cuMemcpyAsync");
	MUST(cuMemsetD8(b, 0, 256));
	EXPECT(cuMemcpyPeer(b, context, a, context, 128), CUDA_SUCCESS);
	EXPECT(cuMemcpyPeerAsync(b + 128, context, a + 128, context, 128, stream), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(stream));
	back(got, b, 256);
	CHECK(!memcmp(got, host, 256), "cuMemcpyPeer");
	MUST(cuMemsetD8(b, 0, 256));
	peer.srcDevice = a;
	peer.dstDevice = b;
	peer.srcContext = peer.dstContext = context;
	peer.srcPitch = peer.dstPitch = 32;
	peer.srcHeight = peer.dstHeight = 4;
	peer.WidthInBytes = 16;
	peer.Height = 4;
	peer.Depth = 2;
	EXPECT(cuMemcpy3DPeerAsync(&peer, stream), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(stream));
	peer.srcXInBytes = peer.dstXInBytes = 16;
	EXPECT(cuMemcpy3DPeer(&peer), CUDA_SUCCESS);
	MUST(cuCtxSynchronize());
	back(got, b, 256);
	CHECK(!memcmp(got, host, 256), "cuMemcpy3DPeer");
	MUST(cuMemsetD8(b, 0, 256));
	MUST(cuCtxSynchronize());
	dsts[0] = b;
	srcs[0] = a;
	dsts[1] = b + 64;
	srcs[1] = a + 64;
	EXPECT(cuMemcpyBatchAsync_v2(dsts, srcs, sizes, 2, &attributes, first, 1, stream), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(stream));
	back(got, b, 256);
	CHECK(!memcmp(got, host, 192) && !got[48], "cuMemcpyBatchAsync");
	EXPECT(cuMemcpyBatchAsync_v2(dsts, srcs, sizes, 0, &attributes, first, 1, stream), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemFree(a));
	MUST(cuMemFree(b));
}

/* Boxes of a batch: rows of 24 bytes out of rows of 32, two layers. */
static void box_batch(void)
{
	CUDA_MEMCPY3D_BATCH_OP ops[2];
	uint8_t host[32 * 4 * 2], got[24 * 4 * 2];
	CUdeviceptr a, b;
	CUresult result;
	int wrong = 0;

	for (unsigned int i = 0; i < sizeof(host); i++)
		host[i] = (uint8_t)(i * 3);
	MUST(cuMemAlloc(&a, sizeof(host)));
	MUST(cuMemAlloc(&b, sizeof(got)));
	MUST(cuMemcpyHtoD(a, host, sizeof(host)));
	MUST(cuMemsetD8(b, 0, sizeof(got)));
	MUST(cuCtxSynchronize());
	memset(ops, 0, sizeof(ops));
	for (unsigned int layer = 0; layer < 2; layer++) {
		CUDA_MEMCPY3D_BATCH_OP *op = &ops[layer];

		op->src.type = op->dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
		op->src.op.ptr.ptr = a + layer * 128;
		op->src.op.ptr.rowLength = 32;
		op->src.op.ptr.layerHeight = 4;
		op->dst.op.ptr.ptr = b + layer * 96;
		op->extent = (CUextent3D){ 24, 4, 1 };
		op->srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
	}
	result = cuMemcpy3DBatchAsync_v2(2, ops, 0, stream);
	CHECK(result == CUDA_SUCCESS, "a batch of boxes: %d", (int)result);
	MUST(cuStreamSynchronize(stream));
	back(got, b, sizeof(got));
	for (unsigned int y = 0; y < 8; y++)
		wrong += memcmp(got + y * 24, host + y * 32, 24) != 0;
	CHECK(!wrong, "%d rows of a batch of boxes", wrong);
	EXPECT(cuMemcpy3DBatchAsync_v2(0, ops, 0, stream), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemcpy3DBatchAsync_v2(2, ops, 1, stream), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemFree(a));
	MUST(cuMemFree(b));
}

/* ---- virtual memory ---- */

static void vmm(void)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, device } };
	CUmemAccessDesc access = { .location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle one, two, retained = 0;
	CUmemAllocationProp told;
	unsigned long long flags = 77;
	size_t granule = 0, larger = 0;
	CUdeviceptr range = 0;
	uint32_t word = 0, words[4];

	EXPECT(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM), CUDA_SUCCESS);
	EXPECT(cuMemGetAllocationGranularity(&larger, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), CUDA_SUCCESS);
	CHECK(granule && larger >= granule && larger % granule == 0, "granules %zu and %zu", granule, larger);
	EXPECT(cuMemAddressReserve(&range, 4 * larger, 0, 0, 0), CUDA_SUCCESS);
	EXPECT(cuMemCreate(&one, larger, &prop, 0), CUDA_SUCCESS);
	EXPECT(cuMemCreate(&two, larger, &prop, 0), CUDA_SUCCESS);
	EXPECT(cuMemMap(range, larger, 0, one, 0), CUDA_SUCCESS);
	EXPECT(cuMemMap(range + larger, larger, 0, two, 0), CUDA_SUCCESS);
	EXPECT(cuMemGetAccess(&flags, &prop.location, range), CUDA_SUCCESS);
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE, "access %llu before it was given", flags);
	EXPECT(cuMemSetAccess(range, 2 * larger, &access, 1), CUDA_SUCCESS);
	EXPECT(cuMemGetAccess(&flags, &prop.location, range + larger), CUDA_SUCCESS);
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "access %llu", flags);
	EXPECT(cuMemGetAllocationPropertiesFromHandle(&told, one), CUDA_SUCCESS);
	CHECK(told.type == prop.type && told.location.id == device, "properties of a handle");
	EXPECT(cuMemRetainAllocationHandle(&retained, (void *)(uintptr_t)range), CUDA_SUCCESS);
	CHECK(retained == one, "another handle for the same memory");
	EXPECT(cuMemRelease(retained), CUDA_SUCCESS);
	/* Across the seam of two pieces. */
	EXPECT(cuMemsetD32(range + larger - 8, 0x5a5a5a5a, 4), CUDA_SUCCESS);
	back(&word, range + larger + 4, 4);
	CHECK(word == 0x5a5a5a5a, "a word behind the seam: %#x", word);
	for (unsigned int i = 0; i < 4; i++)
		words[i] = i + 1;
	EXPECT(cuMemcpyHtoD(range + larger - 8, words, 16), CUDA_SUCCESS);
	EXPECT(cuMemcpyDtoD(range, range + larger - 8, 16), CUDA_SUCCESS);
	memset(words, 0, sizeof(words));
	EXPECT(cuMemcpyDtoH(words, range + larger - 8, 16), CUDA_SUCCESS);
	CHECK(words[0] == 1 && words[3] == 4, "words over the seam: %u %u", words[0], words[3]);
	EXPECT(cuMemcpyDtoH(words, range + 2 * larger - 8, 16), CUDA_ERROR_INVALID_VALUE);
	MUST(cuCtxSynchronize());
	EXPECT(cuMemUnmap(range, 2 * larger), CUDA_SUCCESS);
	EXPECT(cuMemRelease(one), CUDA_SUCCESS);
	EXPECT(cuMemRelease(two), CUDA_SUCCESS);
	EXPECT(cuMemAddressFree(range, 4 * larger), CUDA_SUCCESS);
	EXPECT(cuMemCreate(&one, larger + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemAddressReserve(&range, 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

/* ---- pools ---- */

static void pools(void)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, device } };
	CUmemAccessDesc access = { .location = props.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemoryPool pool, standard = NULL, current = NULL, by_place = NULL;
	CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	cuuint64_t threshold = 5 << 20, word = 0, used = 0;
	CUdeviceptr memory = 0, plain = 0;
	uint32_t got = 0;
	int reuse = 7;

	EXPECT(cuDeviceGetDefaultMemPool(&standard, device), CUDA_SUCCESS);
	EXPECT(cuDeviceGetMemPool(&current, device), CUDA_SUCCESS);
	CHECK(current == standard && standard, "a device begins with another pool than its default one");
	EXPECT(cuMemGetDefaultMemPool(&by_place, &props.location, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_SUCCESS);
	CHECK(by_place == standard, "two default pools");
	EXPECT(cuMemGetMemPool(&by_place, &props.location, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_SUCCESS);
	CHECK(by_place == standard, "two current pools");
	EXPECT(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
	EXPECT(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold), CUDA_SUCCESS);
	EXPECT(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &word), CUDA_SUCCESS);
	CHECK(word == threshold, "threshold %llu", (unsigned long long)word);
	EXPECT(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse), CUDA_SUCCESS);
	CHECK(reuse == 1, "reuse %d", reuse);
	EXPECT(cuMemPoolSetAccess(pool, &access, 1), CUDA_SUCCESS);
	EXPECT(cuMemPoolGetAccess(&flags, pool, &props.location), CUDA_SUCCESS);
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "access %d", (int)flags);
	EXPECT(cuMemAllocFromPoolAsync(&memory, MIB, pool, stream), CUDA_SUCCESS);
	EXPECT(cuMemsetD32Async(memory, 99, 16, stream), CUDA_SUCCESS);
	EXPECT(cuMemcpyDtoHAsync(&got, memory, 4, stream), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(stream));
	CHECK(got == 99, "a word of a pool: %u", got);
	EXPECT(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used), CUDA_SUCCESS);
	CHECK(used >= MIB, "%llu bytes used", (unsigned long long)used);
	EXPECT(cuMemFreeAsync(memory, stream), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(stream));
	EXPECT(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
	EXPECT(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used), CUDA_SUCCESS);
	CHECK(used == 0, "%llu bytes used after the free", (unsigned long long)used);
	EXPECT(cuDeviceSetMemPool(device, pool), CUDA_SUCCESS);
	EXPECT(cuDeviceGetMemPool(&current, device), CUDA_SUCCESS);
	CHECK(current == pool, "the pool that was set");
	EXPECT(cuMemSetMemPool(&props.location, CU_MEM_ALLOCATION_TYPE_PINNED, standard), CUDA_SUCCESS);
	EXPECT(cuDeviceGetMemPool(&current, device), CUDA_SUCCESS);
	CHECK(current == standard, "the pool that was set by place");
	EXPECT(cuMemAllocAsync(&plain, 4096, stream), CUDA_SUCCESS);
	EXPECT(cuMemFreeAsync(plain, stream), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(stream));
	EXPECT(cuMemPoolDestroy(pool), CUDA_SUCCESS);
	EXPECT(cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemPoolGetAttribute(standard, (CUmemPool_attribute)99, &word), CUDA_ERROR_INVALID_VALUE);
}

/* ---- pointers ---- */

static void pointers(void)
{
	static unsigned char registered[8192];
	CUpointer_attribute which[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE };
	unsigned int type = 0, ordinal = 77, flags = 77, one = 1;
	void *host = NULL, *found = NULL;
	CUdeviceptr memory, base = 0, at = 0;
	unsigned long long id = 0, other = 0;
	size_t size = 0, range_size = 0;
	void *answers[] = { &type, &range_size };
	CUcontext owner = NULL;

	MUST(cuMemAlloc(&memory, 3 * MIB));
	EXPECT(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 5), CUDA_SUCCESS);
	CHECK(type == CU_MEMORYTYPE_DEVICE, "type %u", type);
	EXPECT(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory), CUDA_SUCCESS);
	CHECK(owner == context, "the context of memory");
	EXPECT(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory), CUDA_SUCCESS);
	CHECK(ordinal == (unsigned int)device, "ordinal %u", ordinal);
	EXPECT(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory), CUDA_SUCCESS);
	EXPECT(cuPointerGetAttribute(&other, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory + MIB), CUDA_SUCCESS);
	CHECK(id && id == other, "ids %llu and %llu", id, other);
	EXPECT(cuPointerGetAttributes(2, which, answers, memory + 100), CUDA_SUCCESS);
	CHECK(type == CU_MEMORYTYPE_DEVICE && range_size >= 3 * MIB, "type %u, range of %zu", type, range_size);
	EXPECT(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory), CUDA_SUCCESS);
	EXPECT(cuMemGetAddressRange_v2(&base, &size, memory + MIB), CUDA_SUCCESS);
	CHECK(base == memory && size >= 3 * MIB, "range %#llx of %zu", base, size);
	MUST(cuMemHostAlloc(&host, 8192, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
	EXPECT(cuMemHostGetFlags(&flags, host), CUDA_SUCCESS);
	CHECK(flags & CU_MEMHOSTALLOC_PORTABLE, "flags %#x", flags);
	EXPECT(cuMemHostGetDevicePointer_v2(&at, host, 0), CUDA_SUCCESS);
	EXPECT(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)host), CUDA_SUCCESS);
	CHECK(type == CU_MEMORYTYPE_HOST, "type %u of host memory", type);
	EXPECT(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_HOST_POINTER, at), CUDA_SUCCESS);
	CHECK(found == host, "the host pointer of a device pointer");
	EXPECT(cuMemHostGetFlags(&flags, &flags), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemHostRegister(registered, sizeof(registered), CU_MEMHOSTREGISTER_PORTABLE), CUDA_SUCCESS);
	EXPECT(cuMemHostGetFlags(&flags, registered), CUDA_SUCCESS);
	CHECK(flags == (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP), "flags %#x of registered memory", flags);
	EXPECT(cuMemHostUnregister(registered), CUDA_SUCCESS);
	EXPECT(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&type),
	       CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemFreeHost(host));
	MUST(cuMemFree(memory));
}

/* Ordinary memory is not managed. */
static void not_managed(void)
{
	CUmemLocation here = { CU_MEM_LOCATION_TYPE_DEVICE, device };
	CUmem_range_attribute which = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
	size_t size = MIB, data_size = 4, first = 0;
	int answer = 77;
	void *answers[] = { &answer };
	CUdeviceptr memory;

	MUST(cuMemAlloc(&memory, MIB));
	EXPECT(cuMemAdvise_v2(memory, MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, here), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemPrefetchAsync_v2(memory, MIB, here, 0, stream), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemRangeGetAttribute(&answer, 4, which, memory, MIB), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemRangeGetAttributes(answers, &data_size, &which, 1, memory, MIB), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuStreamAttachMemAsync(stream, memory, 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemPrefetchBatchAsync(&memory, &size, 1, &here, &first, 1, 0, stream) != CUDA_SUCCESS, "a prefetch went well");
	CHECK(cuMemDiscardBatchAsync(&memory, &size, 1, 0, stream) != CUDA_SUCCESS, "a discard went well");
	CHECK(cuMemDiscardAndPrefetchBatchAsync(&memory, &size, 1, &here, &first, 1, 0, stream) != CUDA_SUCCESS,
	      "a discard with a prefetch went well");
	CHECK(answer == 77, "an answer was written");
	EXPECT(cuStreamSynchronize(stream), CUDA_SUCCESS);
	MUST(cuMemFree(memory));
}

int main(void)
{
	context = prog_context(&device);
	/* It keeps order with the legacy stream, on which the fills between the checks run. */
	MUST(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	fills();
	copies();
	box_batch();
	vmm();
	pools();
	pointers();
	not_managed();
	MUST(cuStreamDestroy(stream));
	return prog_end();
}
