// SPDX-License-Identifier: Apache-2.0
/*
 * An NVML of a node, for tests: one GPU by whatever UUID is asked, with numbers that are easy to recognise. Lies beside the
 * driver that the node is told of.
 */
#include <stdio.h>
#include <string.h>

#define FAKE __attribute__((visibility("default"))) int

FAKE nvmlInit_v2(void);
FAKE nvmlSystemGetDriverVersion(char *text, unsigned size);
FAKE nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
FAKE nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory);
FAKE nvmlDeviceGetUtilizationRates(void *device, unsigned *rates);
FAKE nvmlDeviceGetTemperature(void *device, int sensor, unsigned *to);
FAKE nvmlDeviceGetPowerUsage(void *device, unsigned *to);
FAKE nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *to);
FAKE nvmlDeviceGetClockInfo(void *device, int which, unsigned *to);
FAKE nvmlDeviceGetFanSpeed(void *device, unsigned *to);

int nvmlInit_v2(void)
{
	return 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
	snprintf(text, size, "580.42.01");
	return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
	static int gpu;

	*device = &gpu;
	return strncmp(uuid, "GPU-", 4) ? 6 : 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
	(void)device;
	memory[0] = 8ull << 30;
	memory[1] = 5ull << 30;
	memory[2] = 3ull << 30;
	return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates)
{
	(void)device;
	rates[0] = 37;
	rates[1] = 12;
	return 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *to)
{
	(void)device;
	(void)sensor;
	*to = 46;
	return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *to)
{
	(void)device;
	*to = 123456;
	return 0;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *to)
{
	(void)device;
	*to = 700000;
	return 0;
}

int nvmlDeviceGetClockInfo(void *device, int which, unsigned *to)
{
	(void)device;
	*to = 1000 + (unsigned)which;
	return 0;
}

int nvmlDeviceGetFanSpeed(void *device, unsigned *to)
{
	(void)device;
	(void)to;
	return 3;
}
