/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the program has said of pages of managed memory, for whoever asks back: nothing here depends on it. Any thread.
 */
#ifndef GLEAM_ADVICE_H
#define GLEAM_ADVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"

#define ADVICE_PAGE 4096ull

struct advice {
	CUmemLocation preferred; /* type CU_MEM_LOCATION_TYPE_INVALID: none */
	CUmemLocation prefetched;
	uint64_t accessed_by; /* bit for each device; ADVICE_CPU */
	bool read_mostly;
};
#define ADVICE_CPU (1ull << 63)

/* Calls @change for each page of [start, start + size), which lies in the memory that begins at @base and has @whole bytes.
 * OUT_OF_MEMORY. */
CUresult advice_change(uint64_t base, uint64_t whole, uint64_t start, uint64_t size,
		       void (*change)(struct advice *advice, const void *arg), const void *arg);
/* What all pages there have in common: the rest is as if nothing had been said. */
void advice_common(uint64_t base, uint64_t start, uint64_t size, struct advice *advice_out);
/* The memory is gone. */
void advice_forget(uint64_t base);

#endif
