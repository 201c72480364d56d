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

/* Only what is asked here, with the driver's own types. */
struct driver {
	void *dl;
	int (*init)(unsigned flags);
	int (*count)(int *count);
	int (*name)(char *name, int size, int device);
	int (*memory)(size_t *bytes, int device);
	int (*uuid)(struct uuid *uuid, int device);
	int (*attribute)(int *value, int attribute, int device);
	int (*version)(int *version); /* or NULL */
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
	*(void **)&driver->version = symbol(dl, "cuDriverGetVersion", NULL);
	if (driver->init && driver->count && driver->name && driver->memory && driver->uuid && driver->attribute)
		return true;
	printf("why %s is not a CUDA driver: it lacks the device functions\n", path);
	return false;
}

static void uuid_text(const struct uuid *uuid, char out[41])
{
	const uint8_t *b = uuid->bytes;

	snprintf(out, 41, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3],
		 b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* What NVML may not say, but the driver does. */
static void values_tell(const struct driver *driver, int index)
{
	static const struct {
		enum report_value value;
		int attribute;
	} known[] = {
		{ GPU_COMPUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR },
		{ GPU_COMPUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR },
		{ GPU_COMPUTE_MODE, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE },
		{ GPU_BUS_WIDTH, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH },
		{ GPU_ECC, CU_DEVICE_ATTRIBUTE_ECC_ENABLED },
	};
	int value;

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (driver->attribute(&value, known[i].attribute, index) == 0 && value >= 0)
			printf("value %d %d %d\n", index, known[i].value, value);
	if (driver->version && driver->version(&value) == 0)
		printf("value %d %d %d\n", index, GPU_CUDA_VERSION, value);
}

int probe_main(const char *path, bool measure)
{
	struct uuid uuids[REPORT_GPUS_MAX] = { 0 };
	struct driver driver;
	int count = 0;
	bool any = false, has_nvml;
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
		values_tell(&driver, i);
	}
	printf("all\n");
	has_nvml = probe_nvml_open(path, driver.dl);
	for (int i = 0; has_nvml && i < count && i < REPORT_GPUS_MAX; i++) {
		char text[41];

		uuid_text(&uuids[i], text);
		if (probe_nvml_device(i, text)) {
			probe_nvml_tell(i);
			any = true;
		}
	}
	/* The names are out by now: a GPU that hangs is known at least. */
	for (int i = 0; measure && i < count && i < REPORT_GPUS_MAX; i++) {
		double speed = probe_speed(driver.dl, i);

		/* One that can't be measured counts as the reference: it has no part in comparing. */
		printf("speed %d %.9g\n", i, speed > 0 ? speed : 1);
	}
	/* Ends by SIGPIPE or the daemon's death. */
	while (any) {
		for (int i = 0; i < count && i < REPORT_GPUS_MAX; i++)
			probe_nvml_tell(i);
		nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
	}
	return 0;
}
