/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER by the driver's rules, for whoever chooses among GPUs: the node for its clients,
 * the library, the software GPU. And GLEAM_GPUS. No state; any thread.
 */
#ifndef GLEAM_LIB_VISIBLE_H
#define GLEAM_LIB_VISIBLE_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"

#define VISIBLE_MAX	  16 /* GPUs of one machine, as SNAPSHOT_DEVICES and REPORT_GPUS_MAX */
#define VISIBLE_UUID_SIZE 37 /* 8-4-4-4-12 and the terminator */

struct visible_gpus {
	uint32_t count; /* VISIBLE_MAX at most */
	struct {
		uint8_t uuid[16];
		uint8_t uuid_v1[16]; /* differs for a slice of a GPU */
		uint64_t pci;	     /* domain, bus and device as a number to sort by */
	} gpus[VISIBLE_MAX];
};

/*
 * The GPUs that @visible (CUDA_VISIBLE_DEVICES) and @order (CUDA_DEVICE_ORDER) choose, as places in @s, in the program's
 * order; NULL is a variable that isn't set. NO_DEVICE, or INVALID_DEVICE for what the driver refuses; 0 GPUs then.
 */
CUresult visible_select(const struct visible_gpus *s, const char *visible, const char *order,
			uint32_t ordinals_out[VISIBLE_MAX], uint32_t *count_out);

/* GLEAM_GPUS: a number from 1 to VISIBLE_MAX, or "all" (UINT32_MAX). False for anything else. */
bool visible_count(const char *text, uint32_t *count_out);

/* The same, and behind VISIBLE_UPTO a number that may be too large: as many as there are, then. */
#define VISIBLE_UPTO "upto:"

/* "1f509920-0fc8-67dd-93e3-e0bd9ee6649a" */
void visible_uuid_text(const uint8_t uuid[16], char text[VISIBLE_UUID_SIZE]);

static inline uint64_t visible_pci(int32_t domain, int32_t bus, int32_t device)
{
	return (uint64_t)(uint32_t)domain << 32 | (uint64_t)(bus & 0xffff) << 16 | (uint64_t)(device & 0xffff);
}

#endif
