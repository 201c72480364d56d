// SPDX-License-Identifier: Apache-2.0
/*
 * Memory between programs: an allocation (small and large) by cuIpcGetMemHandle, physical memory by a descriptor, a pool and what
 * was allocated from it. A parent makes, a child of it maps, both see what the other's kernels write; wrong tokens are errors.
 * "other FILE": writes a token of ours to the file and stays; "foreign FILE": such a token is of another server or tenant.
 * "open FILE CLOSE END": opens such a token, closes it when there is CLOSE, works on until there is END.
 */
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/cuda/prog.h"

#define SMALL 1000u
#define LARGE ((6u << 20) / 4 + 5)

static CUfunction add, fill;
static int channel; /* to the other program */

static void run(CUfunction function, CUdeviceptr data, uint32_t value, uint64_t n)
{
	void *params[] = { &data, &value, &n };

	MUST(cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, NULL, params, NULL));
	MUST(cuCtxSynchronize());
}

static void is_all(CUdeviceptr data, uint32_t value, uint32_t n, const char *what)
{
	uint32_t *host = malloc(n * 4);
	uint32_t wrong = 0;

	memset(host, 0xee, n * 4);
	MUST(cuMemcpyDtoH(host, data, n * 4));
	for (uint32_t i = 0; i < n; i++)
		wrong += host[i] != value;
	CHECK(!wrong, "%s: %u of %u words, the first is %u, not %u", what, wrong, n, host[0], value);
	free(host);
}

/* ---- from program to program ---- */

static void tell(const void *bytes, size_t size, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)bytes, .iov_len = size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		struct cmsghdr *c;

		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	if (sendmsg(channel, &msg, MSG_NOSIGNAL) != (ssize_t)size)
		_exit(1);
}

/* The descriptor that came along, or -1. */
static int hear(void *bytes, size_t size)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { .iov_base = bytes, .iov_len = size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	int fd = -1;

	if (recvmsg(channel, &msg, MSG_WAITALL) != (ssize_t)size) {
		printf("the other program has ended\n");
		_exit(1);
	}
	if (CMSG_FIRSTHDR(&msg))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

static void turn_over(void)
{
	char byte = 1;

	tell(&byte, 1, -1);
}

static void turn_wait(void)
{
	char byte;

	hear(&byte, 1);
}

static void start(void)
{
	CUmodule module;

	prog_context(NULL);
	module = prog_module("util");
	MUST(cuModuleGetFunction(&add, module, "add"));
	MUST(cuModuleGetFunction(&fill, module, "fill"));
}

/* ---- allocations ---- */

struct offer {
	CUipcMemHandle handle;
	uint32_t n;
};

static void ipc_make(void)
{
	static const uint32_t sizes[] = { SMALL, LARGE };
	CUdeviceptr own, other;

	for (int i = 0; i < 2; i++) {
		struct offer offer = { .n = sizes[i] };
		CUdeviceptr beside;

		MUST(cuMemAlloc(&beside, 4096)); /* so that it isn't the first of its piece */
		MUST(cuMemAlloc(&own, sizes[i] * 4));
		run(fill, own, 10, sizes[i]);
		EXPECT(cuIpcGetMemHandle(&offer.handle, own), CUDA_SUCCESS);
		tell(&offer, sizeof(offer), -1);
		turn_wait();
		is_all(own, 15, sizes[i], "what the other program added");
		run(add, own, 100, sizes[i]);
		turn_over();
		turn_wait();
		if (i == 0)
			EXPECT(cuIpcOpenMemHandle_v2(&other, offer.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
			       CUDA_ERROR_INVALID_CONTEXT);
		MUST(cuMemFree(own));
		MUST(cuMemFree(beside));
	}
	EXPECT(cuIpcGetMemHandle(&(CUipcMemHandle){ { 0 } }, 4096), CUDA_ERROR_INVALID_VALUE);
}

static void ipc_open(void)
{
	for (int i = 0; i < 2; i++) {
		CUdeviceptr at = 0, again = 0, base = 0;
		struct offer offer;
		size_t size = 0;

		hear(&offer, sizeof(offer));
		EXPECT(cuIpcOpenMemHandle_v2(&at, offer.handle, 0), CUDA_ERROR_INVALID_VALUE);
		MUST(cuIpcOpenMemHandle_v2(&at, offer.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
		is_all(at, 10, offer.n, "what the first program filled");
		MUST(cuMemGetAddressRange_v2(&base, &size, at + 4));
		CHECK(base == at && size >= offer.n * 4, "the range of opened memory is %llx, %zu bytes", base, size);
		run(add, at, 5, offer.n);
		turn_over();
		turn_wait();
		is_all(at, 115, offer.n, "what the first program added");
		if (prog_on_gleam()) {
			/* Once more, and closed once more. */
			MUST(cuIpcOpenMemHandle_v2(&again, offer.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
			CHECK(again == at, "opened again it lies at %llx, not %llx", again, at);
			EXPECT(cuIpcCloseMemHandle(again), CUDA_SUCCESS);
			is_all(at, 115, offer.n, "what is still open");
		}
		EXPECT(cuIpcCloseMemHandle(at), CUDA_SUCCESS);
		EXPECT(cuIpcCloseMemHandle(at), CUDA_ERROR_INVALID_VALUE);
		turn_over();
	}
	if (prog_on_gleam()) {
		CUipcMemHandle made_up = { { 0 } };
		CUdeviceptr at;

		EXPECT(cuIpcOpenMemHandle_v2(&at, made_up, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_VALUE);
	}
}

/* ---- physical memory ---- */

static CUmemAllocationProp vmm_prop(void)
{
	return (CUmemAllocationProp){ .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				      .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
}

static CUdeviceptr vmm_map(CUmemGenericAllocationHandle handle, size_t size)
{
	CUmemAccessDesc access = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUdeviceptr at;

	MUST(cuMemAddressReserve(&at, size, 0, 0, 0));
	MUST(cuMemMap(at, size, 0, handle, 0));
	MUST(cuMemSetAccess(at, size, &access, 1));
	return at;
}

static void vmm_unmap(CUdeviceptr at, size_t size)
{
	MUST(cuMemUnmap(at, size));
	MUST(cuMemAddressFree(at, size));
}

static void vmm_make(void)
{
	CUmemAllocationProp prop = vmm_prop();
	CUmemGenericAllocationHandle handle, plain;
	CUdeviceptr at;
	size_t size = 0;
	int fd = -1;

	MUST(cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	MUST(cuMemCreate(&handle, size, &prop, 0));
	at = vmm_map(handle, size);
	run(fill, at, 20, size / 4);
	EXPECT(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CHECK(fd > 2, "a descriptor %d", fd);
	tell(&size, sizeof(size), fd);
	close(fd);
	turn_wait();
	is_all(at, 27, (uint32_t)(size / 4), "what the other program added to physical memory");
	vmm_unmap(at, size);
	MUST(cuMemRelease(handle));
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
	MUST(cuMemCreate(&plain, size, &prop, 0));
	EXPECT(cuMemExportToShareableHandle(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemRelease(plain));
}

static void vmm_open(void)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop;
	CUdeviceptr at;
	size_t size;
	int fd = hear(&size, sizeof(size));

	MUST(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	MUST(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
	CHECK(prop.type == CU_MEM_ALLOCATION_TYPE_PINNED && prop.location.id == 0, "imported memory is of device %d",
	      prop.location.id);
	at = vmm_map(handle, size);
	is_all(at, 20, (uint32_t)(size / 4), "imported physical memory");
	run(add, at, 7, size / 4);
	turn_over();
	vmm_unmap(at, size);
	MUST(cuMemRelease(handle));
	if (prog_on_gleam())
		EXPECT(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		       CUDA_ERROR_INVALID_VALUE);
}

/* ---- pools ---- */

static void pool_make(void)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemPoolPtrExportData data;
	CUmemoryPool pool;
	CUdeviceptr at;
	int fd = -1;

	MUST(cuMemPoolCreate(&pool, &props));
	MUST(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	MUST(cuMemAllocFromPoolAsync(&at, LARGE * 4, pool, NULL));
	run(fill, at, 30, LARGE);
	MUST(cuMemPoolExportPointer(&data, at));
	tell(&data, sizeof(data), fd);
	close(fd);
	turn_wait();
	is_all(at, 33, LARGE, "what the other program added to a pool's memory");
	MUST(cuMemFreeAsync(at, NULL));
	MUST(cuCtxSynchronize());
	MUST(cuMemPoolDestroy(pool));
}

static void pool_open(void)
{
	CUmemPoolPtrExportData data;
	CUmemoryPool pool;
	CUdeviceptr at, other;
	int fd = hear(&data, sizeof(data));

	MUST(cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	close(fd);
	MUST(cuMemPoolImportPointer(&at, pool, &data));
	is_all(at, 30, LARGE, "imported memory of a pool");
	run(add, at, 3, LARGE);
	CHECK(cuMemAllocFromPoolAsync(&other, 4096, pool, NULL) != CUDA_SUCCESS, "an imported pool gives memory");
	MUST(cuMemFreeAsync(at, NULL));
	MUST(cuCtxSynchronize());
	turn_over();
	MUST(cuMemPoolDestroy(pool));
}

static int attribute(CUdevice_attribute which)
{
	int value = 0;

	MUST(cuDeviceGetAttribute(&value, which, 0));
	return value;
}

/* ---- tokens that lead nowhere ---- */

static bool token_read(const char *path, CUipcMemHandle *handle_out)
{
	FILE *file = fopen(path, "rb");
	bool whole = file && fread(handle_out, sizeof(*handle_out), 1, file) == 1;

	if (!whole)
		perror(path);
	if (file)
		fclose(file);
	return whole;
}

static int foreign(const char *path)
{
	CUipcMemHandle handle;
	CUdeviceptr at;

	if (!token_read(path, &handle))
		return 1;
	EXPECT(cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_HANDLE);
	/* And nothing else is broken. */
	MUST(cuMemAlloc(&at, 4096));
	run(fill, at, 1, 1024);
	MUST(cuMemFree(at));
	return prog_end();
}

static void wait_for_file(const char *path)
{
	while (access(path, F_OK) != 0)
		usleep(1000);
}

static int open_and_close(const char *path, const char *close_at, const char *end_at)
{
	CUipcMemHandle handle;
	CUdeviceptr theirs, own;

	if (!token_read(path, &handle))
		return 1;
	MUST(cuMemAlloc(&own, SMALL * 4));
	run(fill, own, 5, SMALL);
	MUST(cuIpcOpenMemHandle_v2(&theirs, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	printf("opened\n");
	wait_for_file(close_at);
	MUST(cuIpcCloseMemHandle(theirs));
	MUST(cuCtxSynchronize());
	printf("closed\n");
	wait_for_file(end_at);
	run(add, own, 2, SMALL);
	is_all(own, 7, SMALL, "its own memory at the end");
	MUST(cuMemFree(own));
	return prog_end();
}

static int other(const char *path)
{
	CUipcMemHandle handle;
	CUdeviceptr at;
	FILE *file;

	MUST(cuMemAlloc(&at, 4096));
	MUST(cuIpcGetMemHandle(&handle, at));
	file = fopen(path, "wb");
	if (!file || fwrite(&handle, sizeof(handle), 1, file) != 1 || fclose(file))
		return 1;
	printf("token written\n");
	pause();
	return 0;
}

int main(int argc, char **argv)
{
	int pair[2];
	int status = 0;
	bool makes;
	pid_t pid;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 5) {
		start();
		return open_and_close(argv[2], argv[3], argv[4]);
	}
	if (argc == 3) {
		start();
		return strcmp(argv[1], "other") == 0 ? other(argv[2]) : foreign(argv[2]);
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		return 1;
	/* Before either has CUDA: a fork takes none along. */
	pid = fork();
	makes = pid != 0;
	channel = pair[makes];
	close(pair[!makes]);
	start();
	makes ? ipc_make() : ipc_open();
	if (attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
		makes ? vmm_make() : vmm_open();
		if (attribute(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES) & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
			makes ? pool_make() : pool_open();
		else if (makes)
			printf("pools of this driver are not shared\n");
	} else if (makes) {
		printf("descriptors of this driver are not shared\n");
	}
	if (!makes) {
		fflush(stdout);
		_exit(prog_end());
	}
	close(channel);
	waitpid(pid, &status, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the other program ended with %#x", status);
	return prog_end();
}
