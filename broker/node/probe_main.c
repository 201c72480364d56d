/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that asks a driver for its GPUs: gleamd --probe-driver PATH. Lines on stdout, see probe.c. It has no other
 * task, so a driver that crashes takes nothing with it. One thread of ours.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "broker/lib/visible.h"
#include "broker/node/probe.h"

struct uuid {
	uint8_t bytes[16];
};

/* Only what is asked here, with the driver's and NVML's own types. */
struct nvml_memory {
	unsigned long long total, free, used;
};

struct nvml_utilization {
	unsigned gpu, memory;
};

struct driver {
	void *dl;
	int (*init)(unsigned flags);
	int (*count)(int *count);
	int (*name)(char *name, int size, int device);
	int (*memory)(size_t *bytes, int device);
	int (*uuid)(struct uuid *uuid, int device);
	int (*attribute)(int *value, int attribute, int device);
};

struct nvml {
	int (*init)(void);
	int (*by_uuid)(const char *uuid, void **device);
	int (*memory)(void *device, struct nvml_memory *memory);
	int (*utilization)(void *device, struct nvml_utilization *utilization);
};

static void *symbol(void *dl, const char *name, const char *other)
{
	void *found = dlsym(dl, name);

	return found || !other ? found : dlsym(dl, other);
}

static bool driver_open(const char *path, struct driver *driver)
{
	void *dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!dl) {
		printf("why %s\n", dlerror());
		return false;
	}
	/* Ours would come back to this daemon. */
	if (dlsym(dl, "gleam_version")) {
		printf("why %s is Gleam's own client library; name the real driver in [node] driver\n", path);
		return false;
	}
	driver->dl = dl;
	*(void **)&driver->init = symbol(dl, "cuInit", NULL);
	*(void **)&driver->count = symbol(dl, "cuDeviceGetCount", NULL);
	*(void **)&driver->name = symbol(dl, "cuDeviceGetName", NULL);
	*(void **)&driver->memory = symbol(dl, "cuDeviceTotalMem_v2", "cuDeviceTotalMem");
	*(void **)&driver->uuid = symbol(dl, "cuDeviceGetUuid_v2", "cuDeviceGetUuid");
	*(void **)&driver->attribute = symbol(dl, "cuDeviceGetAttribute", NULL);
	if (driver->init && driver->count && driver->name && driver->memory && driver->uuid && driver->attribute)
		return true;
	printf("why %s is not a CUDA driver: it lacks the device functions\n", path);
	return false;
}

/* A driver's NVML is beside it; only where it isn't the system's is as good. */
static bool nvml_open(const char *driver, struct nvml *nvml)
{
	const char *slash = strrchr(driver, '/');
	char path[4096];
	void *dl = NULL;

	if (slash && snprintf(path, sizeof(path), "%.*s/libnvidia-ml.so.1", (int)(slash - driver), driver) < (int)sizeof(path))
		dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!dl)
		dl = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!dl || dlsym(dl, "gleam_version"))
		return false;
	*(void **)&nvml->init = symbol(dl, "nvmlInit_v2", NULL);
	*(void **)&nvml->by_uuid = symbol(dl, "nvmlDeviceGetHandleByUUID", NULL);
	*(void **)&nvml->memory = symbol(dl, "nvmlDeviceGetMemoryInfo", NULL);
	*(void **)&nvml->utilization = symbol(dl, "nvmlDeviceGetUtilizationRates", NULL);
	return nvml->init && nvml->by_uuid && nvml->memory && nvml->utilization && nvml->init() == 0;
}

static void uuid_text(const struct uuid *uuid, char out[41])
{
	const uint8_t *b = uuid->bytes;

	snprintf(out, 41, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3],
		 b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

int probe_main(const char *path, bool measure)
{
	struct uuid uuids[REPORT_GPUS_MAX] = { 0 };
	void *devices[REPORT_GPUS_MAX] = { 0 };
	struct driver driver;
	struct nvml nvml;
	int count = 0;
	int any = 0;
	int ret;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!driver_open(path, &driver))
		return 1;
	ret = driver.init(0);
	if (ret == 0)
		ret = driver.count(&count);
	if (ret || count < 1) {
		printf("why the driver %s shows no GPU (CUresult %d)\n", path, ret);
		return 1;
	}
	for (int i = 0; i < count && i < REPORT_GPUS_MAX; i++) {
		char name[REPORT_NAME_SIZE] = "?";
		int domain = 0, bus = 0, device = 0;
		size_t bytes = 0;

		driver.name(name, sizeof(name) - 1, i);
		driver.memory(&bytes, i);
		driver.uuid(&uuids[i], i);
		driver.attribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, i);
		driver.attribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, i);
		driver.attribute(&device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, i);
		printf("gpu %d %zu ", i, bytes);
		for (int b = 0; b < 16; b++)
			printf("%02x", uuids[i].bytes[b]);
		printf(" %llx %s\n", (unsigned long long)visible_pci(domain, bus, device), name);
	}
	printf("all\n");
	/* The names are out by now: a GPU that hangs is known at least. */
	for (int i = 0; measure && i < count && i < REPORT_GPUS_MAX; i++) {
		double speed = probe_speed(driver.dl, i);

		/* One that can't be measured counts as the reference: it has no part in comparing. */
		printf("speed %d %.9g\n", i, speed > 0 ? speed : 1);
	}
	if (!nvml_open(path, &nvml))
		return 0;
	for (int i = 0; i < count && i < REPORT_GPUS_MAX; i++) {
		char text[41];

		uuid_text(&uuids[i], text);
		any |= nvml.by_uuid(text, &devices[i]) == 0 && devices[i];
	}
	/* Ends by SIGPIPE or the daemon's death. */
	while (any) {
		for (int i = 0; i < count && i < REPORT_GPUS_MAX; i++) {
			struct nvml_memory memory;
			struct nvml_utilization utilization;

			if (devices[i] && nvml.memory(devices[i], &memory) == 0 &&
			    nvml.utilization(devices[i], &utilization) == 0)
				printf("free %d %llu %u\n", i, memory.free, utilization.gpu);
		}
		nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
	}
	return 0;
}
