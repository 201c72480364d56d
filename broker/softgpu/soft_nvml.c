// SPDX-License-Identifier: Apache-2.0
/*
 * As much of NVML as the software GPU has to say: which devices there are, and what all processes of the node together use of
 * their memory. It has no temperature, power or clock. A handle is the device. Any thread.
 */
#include <stdio.h>
#include <string.h>

#include "broker/softgpu/soft_device.h"
#include "gen/softgpu/soft_api.h"

#define NVML_INVALID_ARGUMENT  2
#define NVML_NOT_FOUND	       6
#define NVML_INSUFFICIENT_SIZE 7
#define NVML_API	       __attribute__((visibility("default"))) int

struct soft_nvml_memory {
	unsigned long long total, free, used;
};

NVML_API nvmlInit_v2(void);
NVML_API nvmlSystemGetDriverVersion(char *text, unsigned int size);
NVML_API nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
NVML_API nvmlDeviceGetMemoryInfo(void *device, struct soft_nvml_memory *memory);

/* The devices are cuInit's. */
NVML_API nvmlInit_v2(void)
{
	return cuInit(0) == CUDA_SUCCESS ? 0 : 999;
}

NVML_API nvmlSystemGetDriverVersion(char *text, unsigned int size)
{
	int version = 0;

	cuDriverGetVersion(&version);
	if (!text)
		return NVML_INVALID_ARGUMENT;
	return snprintf(text, size, "%d.%d-softgpu", version / 1000, version % 1000 / 10) < (int)size ? 0 : NVML_INSUFFICIENT_SIZE;
}

NVML_API nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
	if (!uuid || !device)
		return NVML_INVALID_ARGUMENT;
	for (int i = 0; i < soft_device_count(); i++) {
		const unsigned char *b = (const unsigned char *)soft_device_find(i)->uuid.bytes;
		char text[64];

		snprintf(text, sizeof(text), "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
			 b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
		if (strcmp(text, uuid) == 0) {
			*device = soft_device_find(i);
			return 0;
		}
	}
	return NVML_NOT_FOUND;
}

NVML_API nvmlDeviceGetMemoryInfo(void *handle, struct soft_nvml_memory *memory)
{
	struct soft_device *device = handle;
	uint64_t unused, all;

	if (!device || !memory)
		return NVML_INVALID_ARGUMENT;
	soft_device_memory(device, &unused, &all);
	*memory = (struct soft_nvml_memory){ .total = all, .free = unused, .used = all - unused };
	return 0;
}
