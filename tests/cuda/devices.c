// SPDX-License-Identifier: Apache-2.0
/*
 * Which devices a program sees: their number, and the UUIDs in their order, a line each; each of them computes. With words
 * as arguments also checks that these are the UUIDs (or beginnings of them), in this order. --hold FILE: stays until there is
 * such a file.
 */
#include "tests/cuda/prog.h"

#define COUNT 1000

static void uuid_print(const CUuuid *uuid, char *text)
{
	text += sprintf(text, "GPU-");
	for (int i = 0; i < 16; i++)
		text += sprintf(text, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)uuid->bytes[i]);
}

static void compute(CUdevice device)
{
	static uint32_t in[COUNT], out[COUNT];
	CUdeviceptr a, b;
	CUcontext context;
	CUdevice here;

	MUST(cuDevicePrimaryCtxRetain(&context, device));
	MUST(cuCtxSetCurrent(context));
	MUST(cuCtxGetDevice(&here));
	CHECK(here == device, "device %d's context is of device %d", device, here);
	for (uint32_t i = 0; i < COUNT; i++)
		in[i] = i * 7 + (uint32_t)device;
	MUST(cuMemAlloc(&a, sizeof(in)));
	MUST(cuMemAlloc(&b, sizeof(in)));
	MUST(cuMemcpyHtoD(a, in, sizeof(in)));
	MUST(cuMemcpyDtoD(b, a, sizeof(in)));
	MUST(cuMemcpyDtoH(out, b, sizeof(in)));
	CHECK(memcmp(in, out, sizeof(in)) == 0, "device %d copies wrongly", device);
	MUST(cuMemFree(a));
	MUST(cuMemFree(b));
	MUST(cuDevicePrimaryCtxRelease(device));
}

int main(int argc, char **argv)
{
	char seen[16][48];
	int count = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	MUST(cuInit(0));
	MUST(cuDeviceGetCount(&count));
	printf("%d devices\n", count);
	for (int i = 0; i < count && i < 16; i++) {
		char pci[32] = "";
		CUdevice device, by_pci = -1;
		CUuuid uuid;

		MUST(cuDeviceGet(&device, i));
		MUST(cuDeviceGetUuid_v2(&uuid, device));
		MUST(cuDeviceGetPCIBusId(pci, sizeof(pci), device));
		MUST(cuDeviceGetByPCIBusId(&by_pci, pci));
		uuid_print(&uuid, seen[i]);
		printf("%s\n", seen[i]);
		CHECK(by_pci == device, "%s is device %d, not %d", pci, by_pci, device);
		for (int j = 0; j < i; j++)
			CHECK(strcmp(seen[j], seen[i]) != 0, "devices %d and %d are one", j, i);
		compute(device);
	}
	if (argc == 3 && strcmp(argv[1], "--hold") == 0) {
		for (int i = 0; i < 3000 && access(argv[2], F_OK) != 0; i++)
			usleep(10000);
		argc = 1;
	}
	if (argc > 1)
		CHECK(count == argc - 1, "%d devices instead of %d", count, argc - 1);
	for (int i = 1; i < argc && i <= count; i++)
		CHECK(strncmp(seen[i - 1], argv[i], strlen(argv[i])) == 0, "device %d is %s, not %s", i - 1, seen[i - 1], argv[i]);
	return prog_end();
}
