// SPDX-License-Identifier: Apache-2.0
/*
 * Devices as configured, their identity and their memory count. Any thread; made once under cuInit.
 */
#include "broker/softgpu/soft_device.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/lib/visible.h"
#include "broker/softgpu/soft_ledger.h"
#include "broker/softgpu/soft_time.h"

#define MEMORY_DEFAULT ((uint64_t)4 << 30)
#define MEMORY_LEAST ((uint64_t)16 << 20)
#define MEMORY_MOST ((uint64_t)1 << 40) /* a device's address range is 1 TiB */

static struct soft_device devices[SOFT_DEVICES_MAX];
static int device_count; /* that this process sees */

uint64_t soft_config_count(const char *name, uint64_t fallback, uint64_t least, uint64_t most)
{
	const char *text = getenv(name);
	unsigned int shift = 0;
	uint64_t value;
	char *end;

	if (!text || !*text)
		return fallback;
	errno = 0;
	value = strtoull(text, &end, 10);
	switch (toupper((unsigned char)*end)) {
	case 'T':
		shift += 10; /* fall through */
	case 'G':
		shift += 10; /* fall through */
	case 'M':
		shift += 10; /* fall through */
	case 'K':
		shift += 10;
		end++;
		break;
	default:
		break;
	}
	if (errno || *end || !isdigit((unsigned char)*text) || value > most >> shift || value << shift < least) {
		soft_log("%s=%s: not a count from %llu to %llu; %llu is used", name, text, (unsigned long long)least,
			 (unsigned long long)most, (unsigned long long)fallback);
		return fallback;
	}
	return value << shift;
}

/* FNV-1a with a finalizer: an identity need not resist anybody, only differ. */
static uint64_t identity_mix(uint64_t hash, const char *text)
{
	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
	hash ^= hash >> 33;
	hash *= 0xff51afd7ed558ccdu;
	return hash ^ hash >> 33;
}

static void identity_seed(char *seed, size_t size)
{
	const char *configured = getenv("GLEAM_SOFTGPU_SEED");
	FILE *file;

	if (configured && *configured) {
		snprintf(seed, size, "%s", configured);
		return;
	}
	seed[0] = 0;
	file = fopen("/etc/machine-id", "re");
	if (file) {
		if (!fgets(seed, (int)size, file))
			seed[0] = 0;
		fclose(file);
	}
	seed[strcspn(seed, "\n")] = 0;
	if (!seed[0] || strcmp(seed, "uninitialized") == 0)
		gethostname(seed, size - 1);
	seed[size - 1] = 0;
}

static void uuid_make(const char *seed, int ordinal, CUuuid *uuid_out)
{
	char text[32];
	uint64_t words[2];

	snprintf(text, sizeof(text), "softgpu %d", ordinal);
	words[0] = identity_mix(identity_mix(0xcbf29ce484222325u, seed), text);
	words[1] = identity_mix(identity_mix(words[0], text), seed);
	memcpy(uuid_out->bytes, words, sizeof(words));
	/* As RFC 4122 marks a version 8 UUID: one made by a rule of one's own. */
	uuid_out->bytes[6] = (uuid_out->bytes[6] & 0x0f) | 0x80;
	uuid_out->bytes[8] = (uuid_out->bytes[8] & 0x3f) | 0x80;
}

static void capability_read(int *major_out, int *minor_out)
{
	const char *text = getenv("GLEAM_SOFTGPU_CAPABILITY");
	int major, minor, used = 0;

	*major_out = 9;
	*minor_out = 0;
	if (!text || !*text)
		return;
	if (sscanf(text, "%2d.%1d%n", &major, &minor, &used) != 2 || text[used] || major < 5 || major > 12 || minor < 0) {
		soft_log("GLEAM_SOFTGPU_CAPABILITY=%s: not a capability from 5.0 to 12.9; 9.0 is used", text);
		return;
	}
	*major_out = major;
	*minor_out = minor;
}

/* Keeps of the machine's @count devices those that CUDA_VISIBLE_DEVICES names, in its order. */
static CUresult devices_select(int count)
{
	struct soft_device all[SOFT_DEVICES_MAX];
	struct visible_gpus gpus = { .count = (uint32_t)count };
	uint32_t chosen[VISIBLE_MAX], chosen_count;
	CUresult result;

	static_assert(SOFT_DEVICES_MAX <= VISIBLE_MAX, "all can be named");
	memcpy(all, devices, sizeof(all));
	for (int i = 0; i < count; i++) {
		memcpy(gpus.gpus[i].uuid, all[i].uuid.bytes, sizeof(gpus.gpus[i].uuid));
		memcpy(gpus.gpus[i].uuid_v1, all[i].uuid.bytes, sizeof(gpus.gpus[i].uuid_v1));
		gpus.gpus[i].pci = (uint64_t)i;
	}
	result = visible_select(&gpus, getenv("CUDA_VISIBLE_DEVICES"), getenv("CUDA_DEVICE_ORDER"), chosen, &chosen_count);
	device_count = result ? 0 : (int)chosen_count;
	for (int i = 0; i < device_count; i++) {
		devices[i] = all[chosen[i]];
		devices[i].ordinal = i;
		pthread_mutex_init(&devices[i].lock, NULL);
	}
	return result;
}

CUresult soft_device_setup(void)
{
	const char *name = getenv("GLEAM_SOFTGPU_NAME");
	uint64_t memory = soft_config_count("GLEAM_SOFTGPU_MEMORY", MEMORY_DEFAULT, MEMORY_LEAST, MEMORY_MOST);
	int count = (int)soft_config_count("GLEAM_SOFTGPU_DEVICES", 1, 0, SOFT_DEVICES_MAX);
	char seed[256];
	int major, minor;

	if (name && strlen(name) >= SOFT_NAME_SIZE) {
		soft_log("GLEAM_SOFTGPU_NAME: longer than %d bytes; the default is used", SOFT_NAME_SIZE - 1);
		name = NULL;
	}
	identity_seed(seed, sizeof(seed));
	capability_read(&major, &minor);
	for (int i = 0; i < count; i++) {
		struct soft_device *device = &devices[i];

		device->place = i;
		snprintf(device->name, sizeof(device->name), "%s", name && *name ? name : "Gleam Software GPU");
		uuid_make(seed, i, &device->uuid);
		device->major = major;
		device->minor = minor;
		device->memory_size = memory & ~(uint64_t)(SOFT_GRANULARITY - 1);
	}
	soft_ledger_setup();
	soft_time_setup();
	return devices_select(count);
}

int soft_device_count(void)
{
	return device_count;
}

struct soft_device *soft_device_find(CUdevice ordinal)
{
	return ordinal >= 0 && ordinal < device_count ? &devices[ordinal] : NULL;
}

CUresult soft_device_charge(struct soft_device *device, uint64_t size)
{
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	pthread_mutex_lock(&device->lock);
	if (size <= device->memory_size - device->memory_used) {
		result = soft_ledger_charge(device->place, size, device->memory_size);
		if (result == CUDA_SUCCESS)
			device->memory_used += size;
	}
	pthread_mutex_unlock(&device->lock);
	return result;
}

void soft_device_uncharge(struct soft_device *device, uint64_t size)
{
	pthread_mutex_lock(&device->lock);
	device->memory_used -= size;
	soft_ledger_uncharge(device->place, size);
	pthread_mutex_unlock(&device->lock);
}

void soft_device_memory(struct soft_device *device, uint64_t *free_out, uint64_t *total_out)
{
	uint64_t used;

	pthread_mutex_lock(&device->lock);
	used = device->memory_used + soft_ledger_others(device->place);
	pthread_mutex_unlock(&device->lock);
	*total_out = device->memory_size;
	*free_out = used < device->memory_size ? device->memory_size - used : 0;
}
