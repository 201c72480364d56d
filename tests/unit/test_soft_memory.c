// SPDX-License-Identifier: Apache-2.0
/*
 * Device and host memory: allocation, accounting, virtual memory, what a pointer is, copies and fills.
 */
#include "broker/proto/space.h"
#include "tests/unit/soft_driver.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define TOTAL (256 * MIB)
#define PIECE (2 * MIB)

static size_t memory_free(void)
{
	size_t unused, total;

	assert_ok(CU(cuMemGetInfo_v2)(&unused, &total));
	assert_int_equal(total, TOTAL);
	return unused;
}

static void test_allocation_is_counted(void **state)
{
	CUdeviceptr small[100], large, none = 77;
	size_t before, size;
	CUdeviceptr base;

	driver_start(0);
	before = memory_free();
	for (int i = 0; i < 100; i++) {
		assert_ok(CU(cuMemAlloc_v2)(&small[i], 1000));
		assert_int_equal(small[i] % 256, 0);
	}
	/* One chunk serves them all. */
	assert_int_equal(before - memory_free(), PIECE);
	assert_ok(CU(cuMemAlloc_v2)(&large, 5 * MIB));
	assert_int_equal(before - memory_free(), PIECE + 6 * MIB);
	assert_int_equal(CU(cuMemAlloc_v2)(&none, TOTAL), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(none, 77);
	assert_int_equal(CU(cuMemAlloc_v2)(&none, 0), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemGetAddressRange_v2)(&base, &size, large + 12345));
	assert_int_equal(base, large);
	assert_int_equal(size, 5 * MIB);
	assert_int_equal(CU(cuMemFree_v2)(large + 256), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemFree_v2)(large));
	assert_int_equal(CU(cuMemFree_v2)(large), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemFree_v2)(0));
	for (int i = 0; i < 100; i++)
		assert_ok(CU(cuMemFree_v2)(small[i]));
	assert_int_equal(memory_free(), before);
}

static void test_copies_and_fills(void **state)
{
	unsigned char host[1000], back[1000];
	CUdeviceptr first, second;
	uint32_t words[8];

	driver_start(0);
	for (size_t i = 0; i < sizeof(host); i++)
		host[i] = (unsigned char)(i * 7);
	assert_ok(CU(cuMemAlloc_v2)(&first, 1000));
	assert_ok(CU(cuMemAlloc_v2)(&second, 1000));
	assert_ok(CU(cuMemcpyHtoD_v2)(first, host, 1000));
	assert_ok(CU(cuMemcpyDtoD_v2)(second, first, 1000));
	assert_ok(CU(cuMemcpyDtoH_v2)(back, second, 1000));
	assert_memory_equal(host, back, 1000);
	memset(back, 0, 1000);
	assert_ok(CU(cuMemcpy)((CUdeviceptr)(uintptr_t)back, first, 1000));
	assert_memory_equal(host, back, 1000);

	assert_ok(CU(cuMemsetD32_v2)(first, 0x01020304, 4));
	assert_ok(CU(cuMemsetD16_v2)(first + 16, 0x0506, 4));
	assert_ok(CU(cuMemsetD8_v2)(first + 24, 7, 8));
	assert_ok(CU(cuMemcpyDtoH_v2)(words, first, 32));
	assert_int_equal(words[3], 0x01020304);
	assert_int_equal(words[5], 0x05060506);
	assert_int_equal(words[7], 0x07070707);

	assert_int_equal(CU(cuMemcpyHtoD_v2)(first + 1, host, 1000), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuMemcpyHtoD_v2)(0x1234, host, 4), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuMemcpyDtoH_v2)(back, first, (size_t)-1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuMemcpyHtoD_v2)(first, NULL, 4), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuMemsetD32_v2)(first + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuMemsetD32_v2)(first, 0, (size_t)-1 / 2), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemcpyHtoD_v2)(first, host, 0));
	assert_ok(CU(cuMemFree_v2)(first));
	assert_ok(CU(cuMemFree_v2)(second));
}

static void test_copies_in_two_and_three_dimensions(void **state)
{
	unsigned char host[6][32], back[6][32];
	CUdeviceptr plane;
	size_t pitch;
	CUDA_MEMCPY2D flat = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .srcPitch = 32,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE, .WidthInBytes = 20, .Height = 6 };
	CUDA_MEMCPY3D box = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_HOST,
			      .dstHost = back, .dstPitch = 32, .dstHeight = 3, .WidthInBytes = 5, .Height = 2,
			      .Depth = 2, .srcXInBytes = 3, .srcY = 1, .srcHeight = 3, .dstXInBytes = 1 };

	driver_start(0);
	for (int y = 0; y < 6; y++)
		for (int x = 0; x < 32; x++)
			host[y][x] = (unsigned char)(y * 32 + x);
	assert_ok(CU(cuMemAllocPitch_v2)(&plane, &pitch, 20, 6, 4));
	assert_int_equal(pitch, 512);
	flat.dstDevice = plane;
	flat.dstPitch = pitch;
	assert_ok(CU(cuMemcpy2D_v2)(&flat));
	box.srcDevice = plane;
	box.srcPitch = pitch;
	memset(back, 0, sizeof(back));
	assert_ok(CU(cuMemcpy3D_v2)(&box));
	for (int z = 0; z < 2; z++)
		for (int y = 0; y < 2; y++)
			for (int x = 0; x < 5; x++)
				assert_int_equal(back[z * 3 + y][x + 1], host[z * 3 + y + 1][x + 3]);
	assert_int_equal(back[0][0], 0);
	assert_int_equal(back[2][1], 0);
	/* A last row that ends beyond the allocation. */
	flat.Height = 7;
	assert_int_equal(CU(cuMemcpy2D_v2)(&flat), CUDA_ERROR_INVALID_VALUE);
	flat.Height = 2;
	flat.dstPitch = 10;
	assert_int_equal(CU(cuMemcpy2DUnaligned_v2)(&flat), CUDA_ERROR_INVALID_VALUE);
	box.srcZ = (size_t)1 << 60;
	assert_int_equal(CU(cuMemcpy3D_v2)(&box), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemsetD2D8_v2)(plane, pitch, 9, 20, 6));
	assert_ok(CU(cuMemcpyDtoH_v2)(back, plane + 5 * pitch, 20));
	assert_int_equal(back[0][19], 9);
	assert_ok(CU(cuMemFree_v2)(plane));
}

static void test_arrays(void **state)
{
	CUDA_ARRAY_DESCRIPTOR flat = { 10, 6, 0x20, 2 }, told;
	CUDA_ARRAY3D_DESCRIPTOR box = { 8, 4, 3, 0x01, 1, 0 }, box_told;
	CUDA_MEMCPY2D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST, .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			       .srcPitch = 80, .WidthInBytes = 80, .Height = 6 };
	CUDA_MEMCPY3D deep = { .srcMemoryType = CU_MEMORYTYPE_ARRAY, .dstMemoryType = CU_MEMORYTYPE_HOST,
			       .srcXInBytes = 1, .srcY = 1, .srcZ = 1, .WidthInBytes = 4, .Height = 2, .Depth = 2 };
	unsigned char bytes[8 * 4 * 3], back[4 * 2 * 2];
	float values[6][20], read[6][20];
	CUarray array, second;
	size_t before;

	driver_start(0);
	before = memory_free();
	for (int i = 0; i < 120; i++)
		values[i / 20][i % 20] = (float)i;
	assert_ok(CU(cuArrayCreate_v2)(&array, &flat));
	assert_ok(CU(cuArrayGetDescriptor_v2)(&told, array));
	assert_memory_equal(&told, &flat, sizeof(flat));
	copy.srcHost = values;
	copy.dstArray = array;
	assert_ok(CU(cuMemcpy2D_v2)(&copy));
	copy = (CUDA_MEMCPY2D){ .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = array, .dstMemoryType = CU_MEMORYTYPE_HOST,
				.dstHost = read, .dstPitch = 80, .WidthInBytes = 80, .Height = 6 };
	assert_ok(CU(cuMemcpy2D_v2)(&copy));
	assert_memory_equal(values, read, sizeof(values));
	copy.srcY = 1;
	assert_int_equal(CU(cuMemcpy2D_v2)(&copy), CUDA_ERROR_INVALID_VALUE);
	copy.srcY = 0;
	copy.WidthInBytes = 4; /* half an element */
	assert_int_equal(CU(cuMemcpy2D_v2)(&copy), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemcpyAtoH_v2)(read, array, 8, 16));
	assert_true(read[0][0] == 2.0f && read[0][3] == 5.0f);
	assert_int_equal(CU(cuMemcpyAtoH_v2)(read, array, 72, 16), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuArray3DCreate_v2)(&second, &box));
	assert_ok(CU(cuArray3DGetDescriptor_v2)(&box_told, second));
	assert_memory_equal(&box_told, &box, offsetof(CUDA_ARRAY3D_DESCRIPTOR, Flags) + 4);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)i;
	{
		CUDA_MEMCPY3D up = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = bytes, .srcPitch = 8, .srcHeight = 4,
				     .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = second, .WidthInBytes = 8,
				     .Height = 4, .Depth = 3 };

		assert_ok(CU(cuMemcpy3D_v2)(&up));
	}
	deep.srcArray = second;
	deep.dstHost = back;
	deep.dstPitch = 4;
	deep.dstHeight = 2;
	assert_ok(CU(cuMemcpy3D_v2)(&deep));
	for (int z = 0; z < 2; z++)
		for (int y = 0; y < 2; y++)
			for (int x = 0; x < 4; x++)
				assert_int_equal(back[z * 8 + y * 4 + x], (z + 1) * 32 + (y + 1) * 8 + x + 1);
	assert_ok(CU(cuArrayDestroy)(array));
	assert_int_equal(CU(cuArrayDestroy)(array), CUDA_ERROR_INVALID_HANDLE);
	assert_ok(CU(cuArrayDestroy)(second));
	assert_int_equal(memory_free(), before);
	box.NumChannels = 3;
	assert_int_equal(CU(cuArray3DCreate_v2)(&second, &box), CUDA_ERROR_INVALID_VALUE);
	box.NumChannels = 1;
	box.Width = 20000;
	assert_int_equal(CU(cuArray3DCreate_v2)(&second, &box), CUDA_ERROR_INVALID_VALUE);
}

static void test_host_memory(void **state)
{
	unsigned int flags;
	CUdeviceptr device;
	void *pinned, *plain;

	driver_start(0);
	assert_ok(CU(cuMemHostAlloc)(&pinned, 10000, CU_MEMHOSTALLOC_PORTABLE));
	memset(pinned, 5, 10000);
	assert_ok(CU(cuMemHostGetDevicePointer_v2)(&device, (char *)pinned + 100, 0));
	assert_int_equal(device, (uintptr_t)pinned + 100);
	assert_ok(CU(cuMemHostGetFlags)(&flags, pinned));
	assert_int_equal(flags, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	assert_ok(CU(cuMemFreeHost)(pinned));
	assert_int_equal(CU(cuMemFreeHost)(pinned), CUDA_ERROR_INVALID_VALUE);

	plain = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(plain, MAP_FAILED);
	assert_int_equal(CU(cuMemHostGetDevicePointer_v2)(&device, plain, 0), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemHostRegister_v2)(plain, 3 * 4096, 0));
	assert_int_equal(CU(cuMemHostRegister_v2)((char *)plain + 4096, 4096, 0),
			 CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	assert_ok(CU(cuMemHostGetDevicePointer_v2)(&device, plain, 0));
	assert_int_equal(device, (uintptr_t)plain);
	assert_int_equal(CU(cuMemHostUnregister)((char *)plain + 4096), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	assert_ok(CU(cuMemHostUnregister)(plain));
	assert_int_equal(CU(cuMemHostUnregister)(plain), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	munmap(plain, 4 * 4096);
	assert_int_equal(CU(cuMemHostRegister_v2)(plain, 4096, 0), CUDA_ERROR_INVALID_VALUE);
}

static void test_pointer_attributes(void **state)
{
	CUpointer_attribute asked[] = { CU_POINTER_ATTRIBUTE_CONTEXT,	     CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
					CU_POINTER_ATTRIBUTE_IS_MANAGED,     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL };
	CUcontext context, current;
	unsigned int type, managed;
	uint64_t device, host, id;
	int ordinal;
	void *answers[] = { &context, &type, &device, &host, &managed, &ordinal };
	CUdeviceptr memory;
	int local = 0;

	driver_start(0);
	assert_ok(CU(cuCtxGetCurrent)(&current));
	assert_ok(CU(cuMemAlloc_v2)(&memory, 4096));
	assert_ok(CU(cuPointerGetAttributes)(6, asked, answers, memory + 8));
	assert_ptr_equal(context, current);
	assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
	assert_int_equal(device, memory + 8);
	assert_int_equal(host, 0);
	assert_int_equal(managed, 0);
	assert_int_equal(ordinal, 0);
	assert_ok(CU(cuPointerGetAttribute)(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
	assert_int_not_equal(id, 0);
	/* The program's own memory: known as unknown in the plural form, refused in the singular one. */
	assert_ok(CU(cuPointerGetAttributes)(6, asked, answers, (CUdeviceptr)(uintptr_t)&local));
	assert_null(context);
	assert_int_equal(type, 0);
	assert_int_equal(ordinal, -2);
	assert_int_equal(CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&local),
			 CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemFree_v2)(memory));
	assert_ok(CU(cuMemAllocManaged)(&memory, 4096, 1));
	*(int *)(uintptr_t)memory = 5;
	assert_ok(CU(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory));
	assert_int_equal(managed, 1);
	assert_ok(CU(cuMemFree_v2)(memory));
}

static const CUmemAllocationProp shareable = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
};
static const CUmemAccessDesc writable = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

static void test_virtual_memory(void **state)
{
	CUmemGenericAllocationHandle piece, second, again;
	CUdeviceptr range;
	unsigned long long access;
	size_t before, granularity;
	char back[16];

	driver_start(0);
	before = memory_free();
	assert_ok(CU(cuMemGetAllocationGranularity)(&granularity, &shareable, 0));
	assert_int_equal(granularity, PIECE);
	assert_ok(CU(cuMemAddressReserve)(&range, 16 * PIECE, 0, 0, 0));
	assert_ok(CU(cuMemCreate)(&piece, PIECE, &shareable, 0));
	assert_ok(CU(cuMemCreate)(&second, 2 * PIECE, &shareable, 0));
	assert_int_equal(before - memory_free(), 3 * PIECE);
	assert_int_equal(CU(cuMemCreate)(&again, PIECE + 1, &shareable, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuMemCreate)(&again, TOTAL, &shareable, 0), CUDA_ERROR_OUT_OF_MEMORY);

	/* Whole or not at all, within a reservation, and nothing on top of another. */
	assert_int_equal(CU(cuMemMap)(range, PIECE, 0, second, 0), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(CU(cuMemMap)(range + 15 * PIECE, 2 * PIECE, 0, second, 0), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemMap)(range, PIECE, 0, piece, 0));
	assert_int_equal(CU(cuMemMap)(range, PIECE, 0, piece, 0), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemMap)(range + PIECE, 2 * PIECE, 0, second, 0));
	assert_ok(CU(cuMemMap)(range + 8 * PIECE, PIECE, 0, piece, 0)); /* twice, whole */

	/* Without access there is nothing to copy to. */
	assert_int_equal(CU(cuMemcpyHtoD_v2)(range, "hello", 6), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemGetAccess)(&access, &writable.location, range));
	assert_int_equal(access, 0);
	assert_int_equal(CU(cuMemSetAccess)(range, 4 * PIECE, &writable, 1), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemSetAccess)(range, 3 * PIECE, &writable, 1));
	assert_ok(CU(cuMemSetAccess)(range + 8 * PIECE, PIECE, &writable, 1));
	assert_ok(CU(cuMemGetAccess)(&access, &writable.location, range));
	assert_int_equal(access, 3);
	assert_ok(CU(cuMemcpyDtoH_v2)(back, range + PIECE - 8, 16));
	assert_int_equal(back[3] | back[12], 0); /* new memory is clean */
	/* Over the seam of two mappings, and seen through the second mapping of the piece. */
	assert_ok(CU(cuMemcpyHtoD_v2)(range + PIECE - 8, "0123456789abcdef", 16));
	assert_ok(CU(cuMemcpyDtoH_v2)(back, range + 9 * PIECE - 8, 8));
	assert_memory_equal(back, "01234567", 8);

	assert_ok(CU(cuMemRetainAllocationHandle)(&again, (void *)(uintptr_t)(range + 100)));
	assert_int_equal(again, piece);
	assert_ok(CU(cuMemRelease)(again));
	assert_ok(CU(cuMemRelease)(piece));
	/* Mapped: still there, still counted. */
	assert_ok(CU(cuMemcpyDtoH_v2)(back, range + PIECE - 8, 8));
	assert_int_equal(before - memory_free(), 3 * PIECE);
	assert_int_equal(CU(cuMemUnmap)(range, PIECE / 2), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuMemAddressFree)(range, 16 * PIECE), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemUnmap)(range, 3 * PIECE));
	assert_ok(CU(cuMemUnmap)(range + 8 * PIECE, PIECE));
	assert_int_equal(before - memory_free(), 2 * PIECE);
	assert_int_equal(CU(cuMemRelease)(piece), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemRelease)(second));
	assert_int_equal(memory_free(), before);
	assert_int_equal(CU(cuMemcpyDtoH_v2)(back, range, 8), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemAddressFree)(range, 16 * PIECE));
	assert_int_equal(CU(cuMemAddressFree)(range, 16 * PIECE), CUDA_ERROR_INVALID_VALUE);
}

static void test_reservations_honour_their_hint(void **state)
{
	CUdeviceptr first, second, third;

	driver_start(0);
	assert_ok(CU(cuMemAddressReserve)(&first, SPACE_SPAN, 0, SPACE_DEVICE, 0));
	assert_int_equal(first, SPACE_DEVICE);
	assert_ok(CU(cuMemAddressReserve)(&second, SPACE_SPAN, 0, SPACE_HOST, 0));
	assert_int_equal(second, SPACE_HOST);
	/* A hint that is taken moves. */
	assert_ok(CU(cuMemAddressReserve)(&third, PIECE, 0, SPACE_DEVICE, 0));
	assert_int_not_equal(third, SPACE_DEVICE);
	assert_ok(CU(cuMemAddressFree)(first, SPACE_SPAN));
	assert_ok(CU(cuMemAddressFree)(second, SPACE_SPAN));
	assert_ok(CU(cuMemAddressFree)(third, PIECE));
	assert_ok(CU(cuMemAddressReserve)(&first, SPACE_SPAN, 0, SPACE_DEVICE, 0));
	assert_int_equal(first, SPACE_DEVICE);
	assert_ok(CU(cuMemAddressFree)(first, SPACE_SPAN));
}

static void test_memory_travels_as_a_descriptor(void **state)
{
	CUmemGenericAllocationHandle piece, imported;
	CUmemAllocationProp prop = shareable;
	CUdeviceptr range;
	size_t before;
	char back[6];
	int fd, file;

	driver_start(0);
	before = memory_free();
	assert_ok(CU(cuMemCreate)(&piece, PIECE, &shareable, 0));
	assert_ok(CU(cuMemExportToShareableHandle)(&fd, piece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	assert_ok(CU(cuMemImportFromShareableHandle)(&imported, (void *)(intptr_t)fd, 1));
	close(fd);
	assert_int_equal(before - memory_free(), PIECE);
	assert_ok(CU(cuMemAddressReserve)(&range, 2 * PIECE, 0, 0, 0));
	assert_ok(CU(cuMemMap)(range, PIECE, 0, piece, 0));
	assert_ok(CU(cuMemMap)(range + PIECE, PIECE, 0, imported, 0));
	assert_ok(CU(cuMemSetAccess)(range, 2 * PIECE, &writable, 1));
	assert_ok(CU(cuMemcpyHtoD_v2)(range, "hello", 6));
	assert_ok(CU(cuMemcpyDtoH_v2)(back, range + PIECE, 6));
	assert_string_equal(back, "hello");
	assert_ok(CU(cuMemUnmap)(range, 2 * PIECE));
	assert_ok(CU(cuMemAddressFree)(range, 2 * PIECE));
	assert_ok(CU(cuMemRelease)(piece));
	assert_ok(CU(cuMemRelease)(imported));
	assert_int_equal(memory_free(), before);

	/* What was not asked for at its making can't be exported, and not everything is memory. */
	prop.requestedHandleTypes = 0;
	assert_ok(CU(cuMemCreate)(&piece, PIECE, &prop, 0));
	assert_int_equal(CU(cuMemExportToShareableHandle)(&fd, piece, 1, 0), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemRelease)(piece));
	file = memfd_create("plain", 0);
	assert_int_equal(ftruncate(file, (off_t)PIECE), 0);
	assert_int_equal(CU(cuMemImportFromShareableHandle)(&imported, (void *)(intptr_t)file, 1), CUDA_ERROR_INVALID_VALUE);
	close(file);
	assert_int_equal(CU(cuMemImportFromShareableHandle)(&imported, (void *)(intptr_t)9999, 1), CUDA_ERROR_INVALID_VALUE);
}

static void test_many_small_allocations(void **state)
{
	static CUdeviceptr pointers[5000];
	unsigned int seed = 1;
	size_t before;

	driver_start(0);
	before = memory_free();
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 5000; i++) {
			seed = seed * 1103515245 + 12345;
			if (!pointers[i])
				assert_ok(CU(cuMemAlloc_v2)(&pointers[i], 1 + seed / 65536 % 20000));
			else if (seed & 0x10000) {
				assert_ok(CU(cuMemFree_v2)(pointers[i]));
				pointers[i] = 0;
			}
		}
	}
	for (int i = 0; i < 5000; i++)
		assert_ok(CU(cuMemFree_v2)(pointers[i]));
	assert_int_equal(memory_free(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_allocation_is_counted),
		cmocka_unit_test(test_copies_and_fills),
		cmocka_unit_test(test_copies_in_two_and_three_dimensions),
		cmocka_unit_test(test_arrays),
		cmocka_unit_test(test_host_memory),
		cmocka_unit_test(test_pointer_attributes),
		cmocka_unit_test(test_virtual_memory),
		cmocka_unit_test(test_reservations_honour_their_hint),
		cmocka_unit_test(test_memory_travels_as_a_descriptor),
		cmocka_unit_test(test_many_small_allocations),
	};

	setenv("GLEAM_SOFTGPU_MEMORY", "256M", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
