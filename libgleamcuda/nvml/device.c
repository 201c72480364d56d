// SPDX-License-Identifier: Apache-2.0
/* What is asked of a GPU: see nvml.h. What the node's NVML didn't tell is NOT_SUPPORTED. Any thread. */
#include <stdio.h>
#include <string.h>

#include "libgleamcuda/nvml/nvml.h"

#define MIB 20

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

struct nvml_pci_v2 {
	char text[16];
	unsigned domain, bus, device, id, subsystem, reserved[4];
};

struct nvml_pci_v3 {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char text[32];
};

struct nvml_temperature {
	unsigned version;
	int sensor;
	int temperature;
};

struct nvml_process_v1 {
	unsigned pid;
	unsigned long long memory;
};

struct nvml_process_v2 {
	unsigned pid;
	unsigned long long memory;
	unsigned gpu_instance, compute_instance;
};

#define VERSIONED(type, number) ((unsigned)(sizeof(type) | (number) << 24))
#define NONE_INSTANCE 0xffffffffu

/* Every function: the checks, then its body with `gpu`, which sets result. */
#define ASK(name, args, ...)                                                   \
	NVML_EXPORT nvmlReturn_t name args;                                    \
	nvmlReturn_t name args                                                 \
	{                                                                      \
		nvmlReturn_t result = nvml_begin_device(device);               \
		const struct report_gpu *gpu;                                  \
									       \
		if (result)                                                    \
			return result;                                         \
		gpu = &device->gpu;                                            \
		(void)gpu;                                                     \
		__VA_ARGS__                                                    \
		return nvml_end(result);                                       \
	}

static nvmlReturn_t value_tell(const struct report_gpu *gpu, enum report_value value, unsigned *to)
{
	if (!to)
		return NVML_INVALID_ARGUMENT;
	if (gpu->values[value] == REPORT_UNKNOWN32)
		return NVML_NOT_SUPPORTED;
	*to = gpu->values[value];
	return NVML_SUCCESS;
}

static nvmlReturn_t text_tell(const char *text, char *to, unsigned size)
{
	if (!to)
		return NVML_INVALID_ARGUMENT;
	if (strlen(text) >= size)
		return NVML_INSUFFICIENT_SIZE;
	memcpy(to, text, strlen(text) + 1);
	return NVML_SUCCESS;
}

#define ONE(name, value) ASK(name, (nvmlDevice_t device, unsigned *to), { result = value_tell(gpu, value, to); })

/* ---- finding ---- */

static void uuid_text(const uint8_t *b, char *text, size_t size)
{
	snprintf(text, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4],
		 b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

static unsigned pci_domain(const struct report_gpu *gpu)
{
	return (unsigned)(gpu->pci >> 32);
}

static unsigned pci_bus(const struct report_gpu *gpu)
{
	return gpu->pci >> 16 & 0xffff;
}

static unsigned pci_device(const struct report_gpu *gpu)
{
	return gpu->pci & 0xffff;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device);
NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *text, nvmlDevice_t *device);

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
	nvmlReturn_t result = nvml_begin();

	if (result)
		return result;
	if (!count)
		return nvml_end(NVML_INVALID_ARGUMENT);
	*count = nvml_count();
	return nvml_end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCount(unsigned *count)
{
	return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
	nvmlReturn_t result = nvml_begin();

	if (result)
		return result;
	if (!device || index >= nvml_count())
		return nvml_end(NVML_INVALID_ARGUMENT);
	*device = nvml_at(index);
	return nvml_end(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static nvmlReturn_t find(bool (*is)(const struct report_gpu *gpu, const void *arg), const void *arg, nvmlDevice_t *device)
{
	nvmlReturn_t result = nvml_begin();

	if (result)
		return result;
	for (uint32_t i = 0; arg && device && i < nvml_count(); i++)
		if (is(&nvml_at(i)->gpu, arg)) {
			*device = nvml_at(i);
			return nvml_end(NVML_SUCCESS);
		}
	return nvml_end(arg && device ? NVML_NOT_FOUND : NVML_INVALID_ARGUMENT);
}

static bool uuid_is(const struct report_gpu *gpu, const void *arg)
{
	char text[48];

	uuid_text(gpu->uuid, text, sizeof(text));
	return strcmp(text, arg) == 0;
}

/* domain:bus:device.function, the domain of four digits or eight, or none. */
static bool pci_is(const struct report_gpu *gpu, const void *arg)
{
	unsigned domain = 0, bus, device, function = 0;
	int end = 0;

	if (sscanf(arg, "%x:%x:%x.%x%n", &domain, &bus, &device, &function, &end) < 4) {
		domain = 0;
		if (sscanf(arg, "%x:%x.%x%n", &bus, &device, &function, &end) < 3)
			return false;
	}
	return domain == pci_domain(gpu) && bus == pci_bus(gpu) && device == pci_device(gpu) && !function;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	return find(uuid_is, uuid, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device)
{
	return find(pci_is, text, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *text, nvmlDevice_t *device)
{
	return find(pci_is, text, device);
}

/* ---- who it is ---- */

ASK(nvmlDeviceGetName, (nvmlDevice_t device, char *to, unsigned size), { result = text_tell(gpu->name, to, size); })

ASK(nvmlDeviceGetUUID, (nvmlDevice_t device, char *to, unsigned size), {
	char text[48];

	uuid_text(gpu->uuid, text, sizeof(text));
	result = text_tell(text, to, size);
})

static unsigned index_of(nvmlDevice_t device)
{
	uint32_t i = 0;

	while (i < nvml_count() && nvml_at(i) != device)
		i++;
	return i;
}

ASK(nvmlDeviceGetIndex, (nvmlDevice_t device, unsigned *to), {
	if (to)
		*to = index_of(device);
	else
		result = NVML_INVALID_ARGUMENT;
})

/* Of the device node natively; there is none here, so it is the index. */
ASK(nvmlDeviceGetMinorNumber, (nvmlDevice_t device, unsigned *to), {
	if (to)
		*to = index_of(device);
	else
		result = NVML_INVALID_ARGUMENT;
})

static unsigned or_zero(const struct report_gpu *gpu, enum report_value value)
{
	return gpu->values[value] == REPORT_UNKNOWN32 ? 0 : gpu->values[value];
}

static void pci_v2(const struct report_gpu *gpu, struct nvml_pci_v2 *to)
{
	*to = (struct nvml_pci_v2){ .domain = pci_domain(gpu), .bus = pci_bus(gpu), .device = pci_device(gpu),
				    .id = or_zero(gpu, GPU_PCI_ID), .subsystem = or_zero(gpu, GPU_PCI_SUBSYSTEM) };
	snprintf(to->text, sizeof(to->text), "%04X:%02X:%02X.0", to->domain & 0xffff, to->bus & 0xff, to->device & 0xff);
}

static void pci_v3(const struct report_gpu *gpu, struct nvml_pci_v3 *to)
{
	*to = (struct nvml_pci_v3){ .domain = pci_domain(gpu), .bus = pci_bus(gpu), .device = pci_device(gpu),
				    .id = or_zero(gpu, GPU_PCI_ID), .subsystem = or_zero(gpu, GPU_PCI_SUBSYSTEM) };
	snprintf(to->legacy, sizeof(to->legacy), "%04X:%02X:%02X.0", to->domain & 0xffff, to->bus & 0xff, to->device & 0xff);
	snprintf(to->text, sizeof(to->text), "%08X:%02X:%02X.0", to->domain, to->bus & 0xff, to->device & 0xff);
}

#define PCI(name, type, fill)                                        \
	ASK(name, (nvmlDevice_t device, struct type *to), {          \
		if (to)                                              \
			fill(gpu, to);                               \
		else                                                 \
			result = NVML_INVALID_ARGUMENT;              \
	})
PCI(nvmlDeviceGetPciInfo, nvml_pci_v2, pci_v2)
PCI(nvmlDeviceGetPciInfo_v2, nvml_pci_v2, pci_v2)
PCI(nvmlDeviceGetPciInfo_v3, nvml_pci_v3, pci_v3)

ASK(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t device, int *major, int *minor), {
	result = value_tell(gpu, GPU_COMPUTE_MAJOR, (unsigned *)major);
	if (!result)
		result = value_tell(gpu, GPU_COMPUTE_MINOR, (unsigned *)minor);
})

ONE(nvmlDeviceGetBrand, GPU_BRAND)
ONE(nvmlDeviceGetArchitecture, GPU_ARCHITECTURE)
ONE(nvmlDeviceGetNumGpuCores, GPU_CORES)
ONE(nvmlDeviceGetMemoryBusWidth, GPU_BUS_WIDTH)
ONE(nvmlDeviceGetComputeMode, GPU_COMPUTE_MODE)
ONE(nvmlDeviceGetPersistenceMode, GPU_PERSISTENCE)

/* ---- memory ---- */

/* Total and free as cuMemGetInfo counts them; the system's own share is told apart. */
static nvmlReturn_t memory_of(const struct report_gpu *gpu, struct nvml_memory *to)
{
	if (gpu->memory_free == REPORT_UNKNOWN)
		return NVML_NOT_SUPPORTED;
	to->total = gpu->memory;
	to->free = gpu->memory_free < gpu->memory ? gpu->memory_free : gpu->memory;
	to->used = to->total - to->free;
	return NVML_SUCCESS;
}

ASK(nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, struct nvml_memory *to), {
	result = to ? memory_of(gpu, to) : NVML_INVALID_ARGUMENT;
})

ASK(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t device, struct nvml_memory_v2 *to), {
	struct nvml_memory memory;

	if (!to)
		result = NVML_INVALID_ARGUMENT;
	else if (to->version != VERSIONED(struct nvml_memory_v2, 2))
		result = NVML_ARGUMENT_VERSION_MISMATCH;
	else
		result = memory_of(gpu, &memory);
	if (!result) {
		to->total = memory.total;
		to->free = memory.free;
		to->used = memory.used;
		to->reserved = (unsigned long long)or_zero(gpu, GPU_RESERVED_MIB) << MIB;
	}
})

ASK(nvmlDeviceGetBAR1MemoryInfo, (nvmlDevice_t device, struct nvml_memory *to), {
	unsigned total = 0, used = 0;

	result = to ? value_tell(gpu, GPU_BAR1_MIB, &total) : NVML_INVALID_ARGUMENT;
	if (!result)
		result = value_tell(gpu, GPU_BAR1_USED_MIB, &used);
	if (!result)
		*to = (struct nvml_memory){ .total = (unsigned long long)total << MIB, .used = (unsigned long long)used << MIB,
					    .free = (unsigned long long)(total - (used < total ? used : total)) << MIB };
})

/* ---- load ---- */

ASK(nvmlDeviceGetUtilizationRates, (nvmlDevice_t device, struct nvml_utilization *to), {
	if (!to)
		result = NVML_INVALID_ARGUMENT;
	else if (gpu->utilisation == REPORT_UNKNOWN32)
		result = NVML_NOT_SUPPORTED;
	else
		*to = (struct nvml_utilization){ gpu->utilisation, or_zero(gpu, GPU_UTILISATION_MEMORY) };
})

#define RATE(name, value)                                                                   \
	ASK(name, (nvmlDevice_t device, unsigned *to, unsigned *period_us), {               \
		result = period_us ? value_tell(gpu, value, to) : NVML_INVALID_ARGUMENT;    \
		if (!result)                                                                \
			*period_us = 1000000;                                               \
	})
RATE(nvmlDeviceGetEncoderUtilization, GPU_UTILISATION_ENCODER)
RATE(nvmlDeviceGetDecoderUtilization, GPU_UTILISATION_DECODER)

/* ---- what it is like ---- */

ASK(nvmlDeviceGetTemperature, (nvmlDevice_t device, int sensor, unsigned *to), {
	result = sensor ? NVML_INVALID_ARGUMENT : value_tell(gpu, GPU_TEMPERATURE, to);
})

ASK(nvmlDeviceGetTemperatureV, (nvmlDevice_t device, struct nvml_temperature *to), {
	if (!to || to->sensor)
		result = NVML_INVALID_ARGUMENT;
	else if (to->version != VERSIONED(struct nvml_temperature, 1))
		result = NVML_ARGUMENT_VERSION_MISMATCH;
	else
		result = value_tell(gpu, GPU_TEMPERATURE, (unsigned *)&to->temperature);
})

ASK(nvmlDeviceGetTemperatureThreshold, (nvmlDevice_t device, int which, unsigned *to), {
	if (which == 0)
		result = value_tell(gpu, GPU_TEMPERATURE_SHUTDOWN, to);
	else if (which == 1)
		result = value_tell(gpu, GPU_TEMPERATURE_SLOWDOWN, to);
	else
		result = NVML_NOT_SUPPORTED;
})

ONE(nvmlDeviceGetPowerUsage, GPU_POWER)
ONE(nvmlDeviceGetEnforcedPowerLimit, GPU_POWER_LIMIT)
ONE(nvmlDeviceGetPowerManagementLimit, GPU_POWER_LIMIT_SET)
ONE(nvmlDeviceGetPowerManagementDefaultLimit, GPU_POWER_LIMIT_DEFAULT)
ONE(nvmlDeviceGetFanSpeed, GPU_FAN)
ONE(nvmlDeviceGetPerformanceState, GPU_PSTATE)
ONE(nvmlDeviceGetPowerState, GPU_PSTATE)
ONE(nvmlDeviceGetCurrPcieLinkGeneration, GPU_PCIE_GENERATION)
ONE(nvmlDeviceGetMaxPcieLinkGeneration, GPU_PCIE_GENERATION_MAX)
ONE(nvmlDeviceGetGpuMaxPcieLinkGeneration, GPU_PCIE_GENERATION_MAX)
ONE(nvmlDeviceGetCurrPcieLinkWidth, GPU_PCIE_WIDTH)
ONE(nvmlDeviceGetMaxPcieLinkWidth, GPU_PCIE_WIDTH_MAX)

ASK(nvmlDeviceGetFanSpeed_v2, (nvmlDevice_t device, unsigned fan, unsigned *to), {
	result = fan ? NVML_INVALID_ARGUMENT : value_tell(gpu, GPU_FAN, to);
})

ASK(nvmlDeviceGetPowerManagementMode, (nvmlDevice_t device, unsigned *to), {
	result = value_tell(gpu, GPU_POWER_LIMIT, to);
	if (!result)
		*to = 1;
})

ASK(nvmlDeviceGetPowerManagementLimitConstraints, (nvmlDevice_t device, unsigned *least, unsigned *most), {
	result = value_tell(gpu, GPU_POWER_LIMIT_MIN, least);
	if (!result)
		result = value_tell(gpu, GPU_POWER_LIMIT_MAX, most);
})

ASK(nvmlDeviceGetClockInfo, (nvmlDevice_t device, unsigned which, unsigned *to), {
	result = which > 3 ? NVML_INVALID_ARGUMENT : value_tell(gpu, GPU_CLOCK_GRAPHICS + which, to);
})

ASK(nvmlDeviceGetMaxClockInfo, (nvmlDevice_t device, unsigned which, unsigned *to), {
	result = which > 3 ? NVML_INVALID_ARGUMENT : value_tell(gpu, GPU_CLOCK_GRAPHICS_MAX + which, to);
})

/* The current one; clocks that somebody has set are the node's affair. */
ASK(nvmlDeviceGetClock, (nvmlDevice_t device, unsigned which, unsigned kind, unsigned *to), {
	if (which > 3 || kind > 3)
		result = NVML_INVALID_ARGUMENT;
	else
		result = kind ? NVML_NOT_SUPPORTED : value_tell(gpu, GPU_CLOCK_GRAPHICS + which, to);
})

#define REASONS(name)                                                              \
	ASK(name, (nvmlDevice_t device, unsigned long long *to), {                 \
		unsigned low = 0;                                                  \
										   \
		result = to ? value_tell(gpu, GPU_CLOCK_REASONS, &low) : NVML_INVALID_ARGUMENT; \
		if (!result)                                                       \
			*to = low;                                                 \
	})
REASONS(nvmlDeviceGetCurrentClocksThrottleReasons)
REASONS(nvmlDeviceGetCurrentClocksEventReasons)

ASK(nvmlDeviceGetEccMode, (nvmlDevice_t device, unsigned *current, unsigned *pending), {
	result = pending ? value_tell(gpu, GPU_ECC, current) : NVML_INVALID_ARGUMENT;
	if (!result)
		*pending = *current;
})

/* No screen is attached to it as far as this machine goes. */
#define ZERO(name)                                            \
	ASK(name, (nvmlDevice_t device, unsigned *to), {      \
		if (to)                                       \
			*to = 0;                              \
		else                                          \
			result = NVML_INVALID_ARGUMENT;       \
	})
ZERO(nvmlDeviceGetDisplayMode)
ZERO(nvmlDeviceGetDisplayActive)
ZERO(nvmlDeviceIsMigDeviceHandle)
ZERO(nvmlDeviceGetMultiGpuBoard)

ASK(nvmlDeviceOnSameBoard, (nvmlDevice_t device, nvmlDevice_t other, int *to), {
	if (!other || !to)
		result = NVML_INVALID_ARGUMENT;
	else
		*to = 0;
})

/* Whether GPUs reach each other CUDA tells; by NVML's means (NVLink, PCIe of this machine) they don't. */
ASK(nvmlDeviceGetP2PStatus, (nvmlDevice_t device, nvmlDevice_t other, int which, int *to), {
	(void)which;
	if (!other || !to)
		result = NVML_INVALID_ARGUMENT;
	else
		*to = 5; /* not supported */
})

/* ---- processes: of this machine ---- */

/* As many as there is room for are told; @size 0 asks for the number. */
#define PROCESSES(name, type, ...)                                                                             \
	ASK(name, (nvmlDevice_t device, unsigned *count, struct type *to), {                                   \
		if (!count || (*count && !to)) {                                                               \
			result = NVML_INVALID_ARGUMENT;                                                        \
		} else if (*count < device->process_count) {                                                   \
			*count = device->process_count;                                                        \
			result = NVML_INSUFFICIENT_SIZE;                                                       \
		} else {                                                                                       \
			*count = device->process_count;                                                        \
			for (uint32_t i = 0; i < device->process_count; i++)                                   \
				to[i] = (struct type){ .pid = device->processes[i].pid,                        \
						       .memory = device->processes[i].memory, ##__VA_ARGS__ }; \
		}                                                                                              \
	})
#define NO_INSTANCE .gpu_instance = NONE_INSTANCE, .compute_instance = NONE_INSTANCE
PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvml_process_v1)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvml_process_v2, NO_INSTANCE)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvml_process_v2, NO_INSTANCE)

/* Nobody draws, and nobody goes by way of MPS. */
#define NOBODY(name)                                                                \
	ASK(name, (nvmlDevice_t device, unsigned *count, void *to), {               \
		(void)to;                                                           \
		if (count)                                                          \
			*count = 0;                                                 \
		else                                                                \
			result = NVML_INVALID_ARGUMENT;                             \
	})
NOBODY(nvmlDeviceGetGraphicsRunningProcesses)
NOBODY(nvmlDeviceGetGraphicsRunningProcesses_v2)
NOBODY(nvmlDeviceGetGraphicsRunningProcesses_v3)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses_v3)
