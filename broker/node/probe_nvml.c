/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NVML says of a node's GPUs: the driver's, which lies beside it or in it, or the system's. In the process that asks the
 * driver; lines as in probe.c. One thread.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "broker/node/probe.h"
#include "broker/proto/stats.h"

/* NVML's own types, as far as they are asked for. */
struct nvml_memory {
	unsigned long long total, free, used;
};

struct nvml_memory_v2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};

struct nvml_utilization {
	unsigned gpu, memory;
};

struct nvml_pci {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char text[32];
};

#define MEMORY_V2 (sizeof(struct nvml_memory_v2) | 2u << 24)

static void *nvml;
static void *devices[REPORT_GPUS_MAX];
static uint32_t told[REPORT_GPUS_MAX][REPORT_VALUES];

static bool is_nvml(void *dl)
{
	int (*init)(void);

	/* The client's comes back to this daemon. */
	if (!dl || dlsym(dl, "gleam_version"))
		return false;
	*(void **)&init = dlsym(dl, "nvmlInit_v2");
	return init && init() == 0;
}

bool probe_nvml_open(const char *path, void *driver)
{
	const char *slash = strrchr(path, '/');
	char beside[4096];
	char version[80] = "";
	int (*version_of)(char *text, unsigned size);

	if (slash && snprintf(beside, sizeof(beside), "%.*s/libnvidia-ml.so.1", (int)(slash - path), path) < (int)sizeof(beside))
		nvml = dlopen(beside, RTLD_NOW | RTLD_LOCAL);
	if (!is_nvml(nvml))
		nvml = driver;
	if (!is_nvml(nvml))
		nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!is_nvml(nvml))
		return false;
	*(void **)&version_of = dlsym(nvml, "nvmlSystemGetDriverVersion");
	if (version_of && version_of(version, sizeof(version)) == 0)
		printf("version %s\n", version);
	memset(told, 0xff, sizeof(told));
	return true;
}

bool probe_nvml_device(int index, const char *uuid)
{
	int (*by_uuid)(const char *text, void **device);

	*(void **)&by_uuid = dlsym(nvml, "nvmlDeviceGetHandleByUUID");
	return by_uuid && by_uuid(uuid, &devices[index]) == 0 && devices[index];
}

static void tell(int index, enum report_value value, unsigned number)
{
	if (told[index][value] == number)
		return;
	told[index][value] = number;
	printf("value %d %d %u\n", index, value, number);
}

/* Functions of one form each. An NVML that lacks one, or says that the GPU does, leaves the value unknown. */

static void one(int index, const char *name, enum report_value value)
{
	int (*ask)(void *device, unsigned *number);
	unsigned number;

	*(void **)&ask = dlsym(nvml, name);
	if (ask && ask(devices[index], &number) == 0)
		tell(index, value, number);
}

static void one_of(int index, const char *name, int which, enum report_value value)
{
	int (*ask)(void *device, int which, unsigned *number);
	unsigned number;

	*(void **)&ask = dlsym(nvml, name);
	if (ask && ask(devices[index], which, &number) == 0)
		tell(index, value, number);
}

/* @second may be REPORT_VALUES: nobody wants it. */
static void two(int index, const char *name, enum report_value first, enum report_value second)
{
	int (*ask)(void *device, unsigned *a, unsigned *b);
	unsigned a, b;

	*(void **)&ask = dlsym(nvml, name);
	if (!ask || ask(devices[index], &a, &b))
		return;
	tell(index, first, a);
	if (second != REPORT_VALUES)
		tell(index, second, b);
}

static void others(int index)
{
	int (*pci_of)(void *device, struct nvml_pci *pci);
	int (*bar_of)(void *device, struct nvml_memory *bar);
	int (*memory_of)(void *device, struct nvml_memory_v2 *memory);
	int (*reasons_of)(void *device, unsigned long long *reasons);
	struct nvml_memory_v2 memory = { .version = MEMORY_V2 };
	struct nvml_memory bar; /* total, unused, used */
	struct nvml_pci pci;
	unsigned long long reasons;

	*(void **)&pci_of = dlsym(nvml, "nvmlDeviceGetPciInfo_v3");
	if (pci_of && pci_of(devices[index], &pci) == 0) {
		tell(index, GPU_PCI_ID, pci.id);
		tell(index, GPU_PCI_SUBSYSTEM, pci.subsystem);
	}
	*(void **)&bar_of = dlsym(nvml, "nvmlDeviceGetBAR1MemoryInfo");
	if (bar_of && bar_of(devices[index], &bar) == 0) {
		tell(index, GPU_BAR1_MIB, (unsigned)(bar.total >> 20));
		tell(index, GPU_BAR1_USED_MIB, (unsigned)(bar.used >> 20));
	}
	*(void **)&memory_of = dlsym(nvml, "nvmlDeviceGetMemoryInfo_v2");
	if (memory_of && memory_of(devices[index], &memory) == 0)
		tell(index, GPU_RESERVED_MIB, (unsigned)(memory.reserved >> 20));
	*(void **)&reasons_of = dlsym(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons");
	if (reasons_of && reasons_of(devices[index], &reasons) == 0)
		tell(index, GPU_CLOCK_REASONS, (unsigned)reasons);
}

void probe_nvml_tell(int index)
{
	int (*memory_of)(void *device, struct nvml_memory *memory);
	int (*utilization_of)(void *device, struct nvml_utilization *utilization);
	struct nvml_utilization utilization = { REPORT_UNKNOWN32, REPORT_UNKNOWN32 };
	struct nvml_memory memory;

	if (!devices[index])
		return;
	*(void **)&memory_of = dlsym(nvml, "nvmlDeviceGetMemoryInfo");
	*(void **)&utilization_of = dlsym(nvml, "nvmlDeviceGetUtilizationRates");
	if (utilization_of && utilization_of(devices[index], &utilization) == 0)
		tell(index, GPU_UTILISATION_MEMORY, utilization.memory);
	if (memory_of && memory_of(devices[index], &memory) == 0)
		printf("free %d %llu %u\n", index, memory.free, utilization.gpu);
	one_of(index, "nvmlDeviceGetTemperature", 0, GPU_TEMPERATURE);
	one_of(index, "nvmlDeviceGetTemperatureThreshold", 0, GPU_TEMPERATURE_SHUTDOWN);
	one_of(index, "nvmlDeviceGetTemperatureThreshold", 1, GPU_TEMPERATURE_SLOWDOWN);
	one(index, "nvmlDeviceGetPowerUsage", GPU_POWER);
	one(index, "nvmlDeviceGetEnforcedPowerLimit", GPU_POWER_LIMIT);
	one(index, "nvmlDeviceGetPowerManagementLimit", GPU_POWER_LIMIT_SET);
	one(index, "nvmlDeviceGetPowerManagementDefaultLimit", GPU_POWER_LIMIT_DEFAULT);
	two(index, "nvmlDeviceGetPowerManagementLimitConstraints", GPU_POWER_LIMIT_MIN, GPU_POWER_LIMIT_MAX);
	for (int clock = 0; clock < 4; clock++) {
		one_of(index, "nvmlDeviceGetClockInfo", clock, GPU_CLOCK_GRAPHICS + (enum report_value)clock);
		one_of(index, "nvmlDeviceGetMaxClockInfo", clock, GPU_CLOCK_GRAPHICS_MAX + (enum report_value)clock);
	}
	two(index, "nvmlDeviceGetEncoderUtilization", GPU_UTILISATION_ENCODER, REPORT_VALUES);
	two(index, "nvmlDeviceGetDecoderUtilization", GPU_UTILISATION_DECODER, REPORT_VALUES);
	one(index, "nvmlDeviceGetFanSpeed", GPU_FAN);
	one(index, "nvmlDeviceGetPerformanceState", GPU_PSTATE);
	one(index, "nvmlDeviceGetCurrPcieLinkGeneration", GPU_PCIE_GENERATION);
	one(index, "nvmlDeviceGetMaxPcieLinkGeneration", GPU_PCIE_GENERATION_MAX);
	one(index, "nvmlDeviceGetCurrPcieLinkWidth", GPU_PCIE_WIDTH);
	one(index, "nvmlDeviceGetMaxPcieLinkWidth", GPU_PCIE_WIDTH_MAX);
	two(index, "nvmlDeviceGetEccMode", GPU_ECC, REPORT_VALUES);
	one(index, "nvmlDeviceGetPersistenceMode", GPU_PERSISTENCE);
	one(index, "nvmlDeviceGetComputeMode", GPU_COMPUTE_MODE);
	one(index, "nvmlDeviceGetNumGpuCores", GPU_CORES);
	one(index, "nvmlDeviceGetMemoryBusWidth", GPU_BUS_WIDTH);
	one(index, "nvmlDeviceGetArchitecture", GPU_ARCHITECTURE);
	one(index, "nvmlDeviceGetBrand", GPU_BRAND);
	others(index);
}
