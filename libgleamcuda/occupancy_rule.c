// SPDX-License-Identifier: Apache-2.0
/*
 * Occupancy rules, measured on compute capability 9.0 against driver 580.159 over registers, shared memory, block sizes and
 * preferences; the constants of other capabilities are those that NVIDIA's programming guide lists. Any thread.
 */
#include "libgleamcuda/occupancy.h"

#include <stddef.h>

#define WARP 32
#define REGISTER_UNIT 256 /* registers are given to a warp in this unit */
#define PARTITIONS 4	  /* of a multiprocessor: warps and registers are divided among them */
#define KIB 1024

struct capability {
	int32_t number;	     /* 90 for 9.0 */
	int32_t shared_unit; /* shared memory is given to a block in this unit */
	/* sizes that shared memory can be set to, in KiB, ended by 0; the smallest is 0 */
	int16_t sizes[12];
};

static const struct capability capabilities[] = {
	{ 70, 256, { 8, 16, 32, 64, 96, 0 } },
	{ 72, 256, { 8, 16, 32, 64, 96, 0 } },
	{ 75, 256, { 32, 64, 0 } },
	{ 80, 128, { 8, 16, 32, 64, 100, 132, 164, 0 } },
	{ 86, 128, { 8, 16, 32, 64, 100, 0 } },
	{ 87, 128, { 8, 16, 32, 64, 100, 132, 164, 0 } },
	{ 89, 128, { 8, 16, 32, 64, 100, 0 } },
	{ 90, 128, { 8, 16, 32, 64, 100, 132, 164, 196, 228, 0 } },
	{ 100, 128, { 8, 16, 32, 64, 100, 132, 164, 196, 228, 0 } },
	{ 103, 128, { 8, 16, 32, 64, 100, 132, 164, 196, 228, 0 } },
	{ 110, 128, { 8, 16, 32, 64, 100, 132, 164, 196, 228, 0 } },
	{ 120, 128, { 8, 16, 32, 64, 100, 0 } },
	{ 121, 128, { 8, 16, 32, 64, 100, 0 } },
};

static const struct capability *capability_of(const int32_t *device)
{
	int32_t number = device[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] * 10 +
			 device[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];

	for (size_t i = 0; i < sizeof(capabilities) / sizeof(capabilities[0]); i++)
		if (capabilities[i].number == number)
			return &capabilities[i];
	return NULL;
}

static int64_t round_up(int64_t value, int64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

/* The smallest setting with @wanted bytes. The preference gives way to what one block needs. */
static int64_t shared_setting(const struct capability *c, int64_t wanted)
{
	for (const int16_t *size = c->sizes; *size; size++)
		if (*size * (int64_t)KIB >= wanted)
			return *size * (int64_t)KIB;
	return -1;
}

/* Shared memory of a multiprocessor while the kernel runs there; false where the preference's effect isn't known. */
static bool shared_capacity(const struct capability *c, const int32_t *device, const struct occupancy_kernel *kernel,
			    int64_t block_need, int64_t *capacity_out)
{
	int64_t whole = device[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR];
	int64_t wanted;

	if (kernel->carveout >= 0) {
		wanted = whole * kernel->carveout / 100;
	} else if (kernel->cache_config == CU_FUNC_CACHE_PREFER_L1) {
		wanted = 0;
	} else {
		*capacity_out = whole;
		return kernel->cache_config != CU_FUNC_CACHE_PREFER_EQUAL;
	}
	*capacity_out = shared_setting(c, wanted > block_need ? wanted : block_need);
	if (*capacity_out < 0)
		*capacity_out = whole;
	return true;
}

static int64_t warps_by_registers(const int32_t *device, int32_t registers)
{
	int64_t per_warp = round_up((int64_t)(registers > 0 ? registers : 1) * WARP, REGISTER_UNIT);

	return device[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR] / PARTITIONS / per_warp * PARTITIONS;
}

uint32_t occupancy_threads_by_registers(const int32_t *device, int32_t registers)
{
	int64_t per_warp = round_up((int64_t)(registers > 0 ? registers : 1) * WARP, REGISTER_UNIT);
	int64_t warps = device[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK] / PARTITIONS / per_warp * PARTITIONS;
	int64_t most = device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK];

	return (uint32_t)(warps * WARP < most ? warps * WARP : most);
}

static void least(int64_t *value, int64_t other)
{
	if (other < *value)
		*value = other;
}

bool occupancy_compute(const int32_t *device, const struct occupancy_kernel *kernel, int threads, uint64_t dynamic_size,
		       int *blocks_out)
{
	const struct capability *c = capability_of(device);
	int64_t warps = round_up(threads, WARP) / WARP;
	int64_t blocks = device[CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR];
	int64_t need, capacity;

	if (!c || !blocks)
		return false;
	*blocks_out = 0;
	if (threads > device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] || dynamic_size > (uint64_t)kernel->dynamic_max)
		return true;
	need = round_up(kernel->shared_size + (int64_t)dynamic_size, c->shared_unit) +
	       device[CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK];
	if (!shared_capacity(c, device, kernel, need, &capacity))
		return false;
	least(&blocks, device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR] / WARP / warps);
	least(&blocks, warps_by_registers(device, kernel->registers) / warps);
	if (need)
		least(&blocks, capacity / need);
	*blocks_out = (int)blocks;
	return true;
}

bool occupancy_available(const int32_t *device, const struct occupancy_kernel *kernel, int blocks, int threads,
			 int64_t *size_out)
{
	const struct capability *c = capability_of(device);
	int64_t whole = device[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR];
	int64_t need, capacity, size;
	int most;

	if (!c || !occupancy_compute(device, kernel, threads, 0, &most))
		return false;
	*size_out = -1;
	if (blocks < 1 || blocks > most)
		return true;
	/* One block alone may have all there is; what is reserved for each block isn't counted here. */
	need = round_up(kernel->shared_size, c->shared_unit) +
	       device[CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK];
	if (blocks == 1)
		capacity = whole;
	else if (!shared_capacity(c, device, kernel, need, &capacity))
		return false;
	size = capacity / blocks / c->shared_unit * c->shared_unit - kernel->shared_size;
	least(&size, kernel->dynamic_max);
	*size_out = size;
	return true;
}
