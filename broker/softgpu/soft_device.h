/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices that the environment asked for: name, capability, memory, identity. Made once by cuInit; after that
 * only the memory count changes.
 */
#ifndef SOFT_DEVICE_H
#define SOFT_DEVICE_H

#include <pthread.h>

#include "broker/softgpu/soft.h"

#define SOFT_NAME_SIZE 128

/* What a device of this make has; the numbers are an H200's. */
#define SOFT_SM_COUNT 132u
#define SOFT_WARP_SIZE 32u
#define SOFT_THREADS_PER_BLOCK 1024u
#define SOFT_THREADS_PER_SM 2048u
#define SOFT_BLOCKS_PER_SM 32u
#define SOFT_REGS_PER_SM 65536u
#define SOFT_SHARED_PER_BLOCK 49152u
#define SOFT_SHARED_PER_SM 233472u
#define SOFT_SHARED_RESERVED 1024u
#define SOFT_SHARED_OPTIN (SOFT_SHARED_PER_SM - SOFT_SHARED_RESERVED)
#define SOFT_GRANULARITY ((size_t)2 << 20)
#define SOFT_PRIORITY_LEAST 0
#define SOFT_PRIORITY_GREATEST (-5)

struct soft_context;

struct soft_device {
	/* set before anyone can see the device, then only read */
	CUdevice ordinal; /* as this process counts */
	int place;	  /* as the machine counts, whatever CUDA_VISIBLE_DEVICES says */
	char name[SOFT_NAME_SIZE];
	CUuuid uuid;
	int major, minor;
	uint64_t memory_size;
	struct soft_context *primary;

	pthread_mutex_t lock;
	/* guarded by lock */
	uint64_t memory_used;
	unsigned int primary_count;
	unsigned int primary_flags;
	CUmemoryPool pool_default;
	CUmemoryPool pool_current;
};

/* Reads the environment and makes the devices. */
CUresult soft_device_setup(void);

int soft_device_count(void);
/* NULL where there is no such device. */
struct soft_device *soft_device_find(CUdevice ordinal);

/* Counts @size bytes as used: OUT_OF_MEMORY where neither this process nor the node has as much left. */
CUresult soft_device_charge(struct soft_device *device, uint64_t size);
void soft_device_uncharge(struct soft_device *device, uint64_t size);
void soft_device_memory(struct soft_device *device, uint64_t *free_out, uint64_t *total_out);

/* One setting as a count with an optional suffix K, M, G, T; @fallback and a log line where it makes no sense. */
uint64_t soft_config_count(const char *name, uint64_t fallback, uint64_t least, uint64_t most);

#endif
