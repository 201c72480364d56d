/* SPDX-License-Identifier: Apache-2.0 */
/* 1024 words of page-locked memory that kernels and the test see at one address. Any thread, once words_clear() has made them. */
#ifndef SOFT_WORDS_H
#define SOFT_WORDS_H

#include "tests/unit/soft_driver.h"

static uint32_t *words;

static inline CUdeviceptr word(unsigned int index)
{
	return (CUdeviceptr)(uintptr_t)&words[index];
}

static inline void words_clear(void)
{
	driver_start(0);
	if (!words)
		assert_ok(CU(cuMemHostAlloc)((void **)&words, 4096, 0));
	for (unsigned int i = 0; i < 1024; i++)
		__atomic_store_n(&words[i], 0, __ATOMIC_SEQ_CST);
}

static inline uint32_t word_read(unsigned int index)
{
	return __atomic_load_n(&words[index], __ATOMIC_ACQUIRE);
}

#endif
