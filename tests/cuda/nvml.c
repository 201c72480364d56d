// SPDX-License-Identifier: Apache-2.0
/*
 * NVML and CUDA tell one story of a GPU: number, name, uuid, PCI address, capability, memory. `nvml memory`: also while memory
 * comes and goes, and of the process that has it.
 */
#include "tests/cuda/prog.h"

struct memory {
	unsigned long long total, free, used;
};

struct pci {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char text[32];
};

struct process {
	unsigned pid;
	unsigned long long memory;
	unsigned gpu_instance, compute_instance;
};

static void *dl;

/* A function of NVML that must be there. */
static void *function(const char *name)
{
	void *found = dlsym(dl, name);

	if (!found) {
		printf("NVML has no %s\n0 passed, 1 failed\n", name);
		exit(1);
	}
	return found;
}
#define NVML(name, type) ((int(*) type)function(name))

static void *device_by_uuid(const CUuuid *uuid, char text[48])
{
	const unsigned char *b = (const unsigned char *)uuid->bytes;
	void *device = NULL;

	snprintf(text, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4],
		 b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
	CHECK(NVML("nvmlDeviceGetHandleByUUID", (const char *, void **))(text, &device) == 0, "CUDA's GPU %s is unknown", text);
	return device;
}

static void one_gpu(int ordinal)
{
	char uuid_text[48], name[96] = "", cuda_name[96] = "", pci_text[32] = "";
	int major = 0, minor = 0, cuda_major = 0, cuda_minor = 0;
	struct memory memory = { 0 };
	struct pci pci = { .bus = 0 };
	void *device, *same = NULL;
	unsigned index = 99;
	size_t total = 0;
	CUuuid uuid;

	MUST(cuDeviceGetUuid_v2(&uuid, ordinal));
	device = device_by_uuid(&uuid, uuid_text);
	if (!device)
		return;
	MUST(cuDeviceGetName(cuda_name, sizeof(cuda_name), ordinal));
	NVML("nvmlDeviceGetName", (void *, char *, unsigned))(device, name, sizeof(name));
	CHECK(!strcmp(name, cuda_name), "name %s and %s", name, cuda_name);
	MUST(cuDeviceGetPCIBusId(pci_text, sizeof(pci_text), ordinal));
	NVML("nvmlDeviceGetPciInfo_v3", (void *, struct pci *))(device, &pci);
	/* CUDA writes the domain in four digits, NVML in eight; letters of either case. */
	CHECK(strlen(pci.text) > 4 && !strcasecmp(pci.text + 4, pci_text), "PCI %s and %s", pci.text, pci_text);
	CHECK(NVML("nvmlDeviceGetHandleByPciBusId_v2", (const char *, void **))(pci_text, &same) == 0 && same == device,
	      "not found by its PCI address");
	MUST(cuDeviceGetAttribute(&cuda_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ordinal));
	MUST(cuDeviceGetAttribute(&cuda_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, ordinal));
	NVML("nvmlDeviceGetCudaComputeCapability", (void *, int *, int *))(device, &major, &minor);
	CHECK(major == cuda_major && minor == cuda_minor, "capability %d.%d and %d.%d", major, minor, cuda_major, cuda_minor);
	MUST(cuDeviceTotalMem(&total, ordinal));
	if (NVML("nvmlDeviceGetMemoryInfo", (void *, struct memory *))(device, &memory) == 0) {
		CHECK(memory.free <= memory.total && memory.used <= memory.total, "memory %llu of %llu", memory.free, memory.total);
		/* Natively NVML counts what the system keeps, too. */
		CHECK(prog_on_gleam() ? memory.total == total : memory.total >= total, "total %llu and %zu", memory.total, total);
	}
	/* On Gleam NVML has CUDA's GPUs in CUDA's order once CUDA has begun. */
	NVML("nvmlDeviceGetIndex", (void *, unsigned *))(device, &index);
	CHECK(!prog_on_gleam() || index == (unsigned)ordinal, "GPU %d has index %u", ordinal, index);
}

static bool in_list(void *device, unsigned long long at_least)
{
	struct process list[64];
	unsigned count = 64;

	if (NVML("nvmlDeviceGetComputeRunningProcesses_v3", (void *, unsigned *, struct process *))(device, &count, list))
		return false;
	for (unsigned i = 0; i < count; i++)
		if (list[i].pid == (unsigned)getpid() && list[i].memory >= at_least)
			return true;
	return false;
}

/* NVML's numbers are a second or two old, and don't know of memory that the library keeps for the next allocation. */
static void memory_moves(void)
{
	const size_t size = 1500ull << 20, slack = 520ull << 20;
	struct memory memory = { 0 };
	double limit = prog_seconds() + 6;
	size_t free_bytes, total;
	CUdeviceptr data;
	char text[48];
	void *device;
	CUuuid uuid;
	bool listed = false;

	MUST(cuDeviceGetUuid_v2(&uuid, 0));
	device = device_by_uuid(&uuid, text);
	for (int turn = 0; turn < 2; turn++) {
		if (turn)
			MUST(cuMemFree(data));
		else
			MUST(cuMemAlloc(&data, size));
		MUST(cuMemGetInfo(&free_bytes, &total));
		limit = prog_seconds() + 6;
		do {
			usleep(100000);
			NVML("nvmlDeviceGetMemoryInfo", (void *, struct memory *))(device, &memory);
			MUST(cuMemGetInfo(&free_bytes, &total));
			listed = in_list(device, turn ? 0 : size);
		} while (prog_seconds() < limit &&
			 (memory.free + slack < free_bytes || memory.free > free_bytes + slack || !listed));
		CHECK(memory.free + slack >= free_bytes && memory.free <= free_bytes + slack, "free by NVML %llu MiB, by CUDA %zu MiB",
		      memory.free >> 20, free_bytes >> 20);
		CHECK(listed, "this process is not in the list, or with less memory");
	}
}

int main(int argc, char **argv)
{
	unsigned count = 0;
	int devices = 0, version = 0, cuda_version = 0;
	char driver[96] = "";

	prog_context(NULL);
	dl = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!dl) {
		printf("no NVML: %s\n", dlerror());
		return 77;
	}
	CHECK(NVML("nvmlInit_v2", (void))() == 0, "nvmlInit");
	MUST(cuDeviceGetCount(&devices));
	CHECK(NVML("nvmlDeviceGetCount_v2", (unsigned *))(&count) == 0 && count >= (unsigned)devices, "%u GPUs, CUDA has %d", count,
	      devices);
	CHECK(!prog_on_gleam() || count == (unsigned)devices, "%u GPUs, CUDA has %d", count, devices);
	CHECK(NVML("nvmlSystemGetDriverVersion", (char *, unsigned))(driver, sizeof(driver)) == 0 && *driver, "driver version");
	MUST(cuDriverGetVersion(&cuda_version));
	CHECK(NVML("nvmlSystemGetCudaDriverVersion_v2", (int *))(&version) == 0 && version >= cuda_version, "CUDA version %d and %d",
	      version, cuda_version);
	for (int i = 0; i < devices; i++)
		one_gpu(i);
	if (argc > 1 && !strcmp(argv[1], "memory"))
		memory_moves();
	CHECK(NVML("nvmlShutdown", (void))() == 0, "nvmlShutdown");
	return prog_end();
}
