// SPDX-License-Identifier: Apache-2.0
/*
 * Start, end, the table of GPUs, and what is asked of the system. The table is made by nvmlInit: first the GPUs that CUDA has in
 * this process, in its order, if it has begun; otherwise all of the servers that are known, or of GLEAM_SERVER. It stays as it is
 * until the last nvmlShutdown, and its contents are refreshed. One lock.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libgleamcuda/nvml/nvml.h"

#define FRESH_NS   500000000ull /* nodes measure once a second */
#define PENDING_MS 3000		/* for servers whose link is being opened */
#define PENDING_STEP_MS 50
#define SESSION_GPUS_MAX REPORT_GPUS_MAX

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static uint32_t users; /* nvmlInit less nvmlShutdown */
static nvmlDevice_t table[NVML_GPUS_MAX];
static uint32_t count;
static char version[32];
static uint64_t asked_ns;
static struct nvml_answer answer;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* What CUDA has in this process; 0 GPUs where it hasn't begun, or isn't Gleam's. */
static int session_gpus(uint8_t (*uuids)[16], char *server, size_t server_size)
{
	int (*devices)(unsigned char (*)[16], int, char *, unsigned long) = NULL;
	void *dl = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	int got = 0;

	if (!dl)
		return 0;
	*(void **)&devices = dlsym(dl, "gleam_devices");
	if (devices)
		got = devices(uuids, SESSION_GPUS_MAX, server, server_size);
	dlclose(dl);
	return got;
}

static bool is_same(const struct nvml_gpu *a, const struct nvml_gpu *b)
{
	return strcmp(a->server, b->server) == 0 && a->index == b->index && !memcmp(a->gpu.uuid, b->gpu.uuid, sizeof(a->gpu.uuid));
}

/* Moves @from's contents. */
static void gpu_set(nvmlDevice_t gpu, struct nvml_gpu *from)
{
	free(gpu->processes);
	*gpu = *from;
	from->processes = NULL;
	from->process_count = 0;
}

static nvmlReturn_t table_add_locked(struct nvml_gpu *from)
{
	/* Handles stay good over nvmlShutdown and a new nvmlInit: the same place holds whatever is there then. */
	if (!table[count])
		table[count] = calloc(1, sizeof(*table[count]));
	if (!table[count])
		return NVML_MEMORY;
	gpu_set(table[count++], from);
	return NVML_SUCCESS;
}

static nvmlReturn_t table_make_locked(void)
{
	uint8_t uuids[SESSION_GPUS_MAX][16];
	char server[CONF_NAME_SIZE] = ""; /* of a program with GPUs of several: their UUIDs tell them apart */
	int have = session_gpus(uuids, server, sizeof(server));
	nvmlReturn_t result = NVML_SUCCESS;

	count = 0;
	for (int i = 0; i < have && !result; i++)
		for (uint32_t g = 0; g < answer.count && !result; g++)
			if ((!*server || strcmp(answer.gpus[g].server, server) == 0) && !memcmp(answer.gpus[g].gpu.uuid, uuids[i], 16)) {
				result = table_add_locked(&answer.gpus[g]);
				break;
			}
	for (uint32_t g = 0; g < answer.count && !have && !result; g++)
		result = table_add_locked(&answer.gpus[g]);
	return result;
}

static int ask_locked(void)
{
	int err = nvml_ask(&answer);

	asked_ns = now_ns();
	if (!err && *answer.driver_version)
		memcpy(version, answer.driver_version, sizeof(version));
	return err;
}

static void refresh_locked(void)
{
	if (now_ns() - asked_ns < FRESH_NS)
		return;

	int err = ask_locked();

	for (uint32_t i = 0; i < count; i++) {
		bool found = false;

		for (uint32_t g = 0; g < answer.count && !err && !found; g++)
			if (is_same(table[i], &answer.gpus[g])) {
				gpu_set(table[i], &answer.gpus[g]);
				found = true;
			}
		table[i]->lost = !found;
	}
	nvml_answer_free(&answer);
}

nvmlReturn_t nvml_begin(void)
{
	pthread_mutex_lock(&lock);
	if (!users) {
		pthread_mutex_unlock(&lock);
		return NVML_UNINITIALIZED;
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvml_begin_device(nvmlDevice_t device)
{
	nvmlReturn_t result = nvml_begin();
	uint32_t i = 0;

	if (result)
		return result;
	while (i < count && table[i] != device)
		i++;
	if (i == count)
		return nvml_end(NVML_INVALID_ARGUMENT);
	refresh_locked();
	return device->lost ? nvml_end(NVML_GPU_IS_LOST) : NVML_SUCCESS;
}

nvmlReturn_t nvml_end(nvmlReturn_t result)
{
	pthread_mutex_unlock(&lock);
	return result;
}

uint32_t nvml_count(void)
{
	return count;
}

nvmlDevice_t nvml_at(uint32_t index)
{
	return index < count ? table[index] : NULL;
}

const char *nvml_driver_version(void)
{
	return version;
}

/* ---- start and end ---- */

NVML_EXPORT nvmlReturn_t nvmlInit_v2(void);
NVML_EXPORT nvmlReturn_t nvmlInit(void);
NVML_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags);
NVML_EXPORT nvmlReturn_t nvmlShutdown(void);
NVML_EXPORT const char *nvmlErrorString(nvmlReturn_t result);
NVML_EXPORT const char *gleam_version(void);

nvmlReturn_t nvmlInit_v2(void)
{
	nvmlReturn_t result = NVML_SUCCESS;
	int err = 0;

	pthread_mutex_lock(&lock);
	if (users) {
		users++;
		goto unlock;
	}
	/* Links to servers that nobody has used yet are opened by the question. */
	for (int waited = 0; waited <= PENDING_MS; waited += PENDING_STEP_MS) {
		err = ask_locked();
		if (err || !answer.pending)
			break;
		nvml_answer_free(&answer);
		nanosleep(&(struct timespec){ .tv_nsec = PENDING_STEP_MS * 1000000 }, NULL);
	}
	if (err)
		result = NVML_DRIVER_NOT_LOADED;
	else if (answer.count == 0 && answer.pending)
		ask_locked();
	if (!result)
		result = table_make_locked();
	nvml_answer_free(&answer);
	if (!result)
		users = 1;
unlock:
	pthread_mutex_unlock(&lock);
	return result;
}

nvmlReturn_t nvmlInit(void)
{
	return nvmlInit_v2();
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
	/* No GPUs is no error here either, and there is nothing to attach to: 1 and 2 are both as nothing. */
	return flags & ~3u ? NVML_INVALID_ARGUMENT : nvmlInit_v2();
}

nvmlReturn_t nvmlShutdown(void)
{
	nvmlReturn_t result = nvml_begin();

	if (result)
		return result;
	if (--users == 0)
		count = 0;
	return nvml_end(NVML_SUCCESS);
}

const char *nvmlErrorString(nvmlReturn_t result)
{
	static const char *const texts[] = {
		"The operation was successful", "NVML was not first initialized with nvmlInit()", "A supplied argument is invalid",
		"The requested operation is not available on target device", "The current user does not have permission for operation",
		"Deprecated: already initialized", "A query to find an object was unsuccessful", "An input argument is not large enough",
		"A device's external power cables are not properly attached", "The daemon of Gleam is not running",
		"User provided timeout passed", "NVIDIA Kernel detected an interrupt issue with a GPU", "NVML Shared Library couldn't be found or loaded",
		"Local version of NVML doesn't implement this function", "infoROM is corrupted", "The GPU's server can't be reached",
		"The GPU requires a reset before it can be used again", "The GPU control device has been blocked by the operating system",
		"RM detects a driver/library version mismatch", "An operation cannot be performed because the GPU is currently in use",
		"Insufficient memory", "No data", "vGPU operation is not available on target device, because ECC is enabled",
		"Ran out of critical resources, other than memory", "The requested frequency is not supported",
		"The provided version is invalid or unsupported", "The requested functionality has been deprecated",
		"The system is not ready for the request", "No GPUs were found", "The resource is not in the correct state",
	};

	return (unsigned)result < sizeof(texts) / sizeof(texts[0]) ? texts[result] : "Unknown error";
}

/* A node takes no library of ours for a driver's. */
const char *gleam_version(void)
{
	return GLEAM_VERSION;
}

/* ---- the system ---- */

NVML_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned size);
NVML_EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *text, unsigned size);
NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version_out);
NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version_out);
NVML_EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *text, unsigned size);
NVML_EXPORT nvmlReturn_t nvmlSystemGetHicVersion(unsigned *hic_count, void *entries);
NVML_EXPORT nvmlReturn_t nvmlUnitGetCount(unsigned *unit_count);

static nvmlReturn_t text_tell(const char *text, char *to, unsigned size)
{
	if (!to)
		return NVML_INVALID_ARGUMENT;
	if (strlen(text) >= size)
		return NVML_INSUFFICIENT_SIZE;
	memcpy(to, text, strlen(text) + 1);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned size)
{
	nvmlReturn_t result = nvml_begin();

	if (result)
		return result;
	return nvml_end(*version ? text_tell(version, text, size) : NVML_NOT_SUPPORTED);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *text, unsigned size)
{
	nvmlReturn_t result = nvml_begin();
	char both[64];

	if (result)
		return result;
	/* As the first part of NVML's tells the API's major version. */
	snprintf(both, sizeof(both), "13.%s", *version ? version : GLEAM_VERSION);
	return nvml_end(text_tell(both, text, size));
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version_out)
{
	nvmlReturn_t result = nvml_begin();

	if (result)
		return result;
	if (!version_out)
		return nvml_end(NVML_INVALID_ARGUMENT);
	if (!count || table[0]->gpu.values[GPU_CUDA_VERSION] == REPORT_UNKNOWN32)
		return nvml_end(NVML_NOT_SUPPORTED);
	*version_out = (int)table[0]->gpu.values[GPU_CUDA_VERSION];
	return nvml_end(NVML_SUCCESS);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version_out)
{
	return nvmlSystemGetCudaDriverVersion_v2(version_out);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *text, unsigned size)
{
	nvmlReturn_t result = nvml_begin();
	char path[64], name[4096];
	ssize_t length;

	if (result)
		return result;
	nvml_end(NVML_SUCCESS);
	snprintf(path, sizeof(path), "/proc/%u/exe", pid);
	length = readlink(path, name, sizeof(name) - 1);
	if (length < 0)
		return errno == ENOENT || errno == ESRCH ? NVML_NOT_FOUND : NVML_UNKNOWN;
	name[length] = '\0';
	if (!text || !size)
		return NVML_INVALID_ARGUMENT;
	/* A name that is too long is cut, as natively. */
	snprintf(text, size, "%s", name);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetHicVersion(unsigned *hic_count, void *entries)
{
	nvmlReturn_t result = nvml_begin();

	(void)entries;
	if (result)
		return result;
	if (hic_count)
		*hic_count = 0;
	return nvml_end(hic_count ? NVML_SUCCESS : NVML_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlUnitGetCount(unsigned *unit_count)
{
	return nvmlSystemGetHicVersion(unit_count, NULL);
}
