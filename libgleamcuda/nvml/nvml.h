/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libnvidia-ml.so.1 for clients: what programs ask of NVML, answered from what gleamd knows of the servers' GPUs. Types and
 * numbers are NVML's. Any thread; the library never prints, and opens its socket for the time of a question only.
 */
#ifndef GLEAM_NVML_H
#define GLEAM_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/lib/conf.h"
#include "broker/proto/stats.h"

#define NVML_EXPORT __attribute__((visibility("default")))

typedef enum nvml_return {
	NVML_SUCCESS = 0,
	NVML_UNINITIALIZED = 1,
	NVML_INVALID_ARGUMENT = 2,
	NVML_NOT_SUPPORTED = 3,
	NVML_NOT_FOUND = 6,
	NVML_INSUFFICIENT_SIZE = 7,
	NVML_DRIVER_NOT_LOADED = 9,
	NVML_GPU_IS_LOST = 15,
	NVML_MEMORY = 20,
	NVML_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_UNKNOWN = 999,
} nvmlReturn_t;

/* A GPU of a server. Its place in the table is its index, and its address the handle; it is never freed. */
typedef struct nvml_gpu {
	char server[CONF_NAME_SIZE];
	uint32_t index; /* at the server */
	bool lost;	/* not among those that are known now */
	struct report_gpu gpu;
	uint32_t process_count;
	struct nvml_process {
		uint32_t pid;
		uint64_t memory;
	} *processes; /* owned */
} *nvmlDevice_t;

#define NVML_GPUS_MAX 64u /* of all servers */

/* What gleamd knows, by one question. */
struct nvml_answer {
	uint32_t count;
	struct nvml_gpu gpus[NVML_GPUS_MAX];
	char driver_version[32];
	uint32_t pending; /* servers that will be known in a moment */
};

/* Asks. 0 or -errno; nvml_answer_free() it in any case. */
int nvml_ask(struct nvml_answer *answer_out);
void nvml_answer_free(struct nvml_answer *answer);

/*
 * library.c: a question begins with one of these, which refresh what is older than half a second, and take the lock when they
 * succeed; nvml_end() lets it go.
 */
nvmlReturn_t nvml_begin(void);
nvmlReturn_t nvml_begin_device(nvmlDevice_t device);
nvmlReturn_t nvml_end(nvmlReturn_t result);
uint32_t nvml_count(void);
nvmlDevice_t nvml_at(uint32_t index);
const char *nvml_driver_version(void);

#endif
