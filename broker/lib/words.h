/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that come to memory which somebody else reads and writes meanwhile: a kernel, a stream that waits for a word, the program.
 * Nobody sees half a change of an aligned word of 8 bytes or less, and what is written beside it stays. Any thread; several may
 * write at once.
 */
#ifndef GLEAM_LIB_WORDS_H
#define GLEAM_LIB_WORDS_H

#include <stdint.h>
#include <string.h>

/* Bytes [at, at + count) of the word at @first. */
static inline void word_merge(uint64_t first, uint32_t at, const uint8_t *bytes, uint32_t count)
{
	uint64_t *word = (uint64_t *)(uintptr_t)first;
	uint64_t before, after;

	if (count == sizeof(after)) {
		memcpy(&after, bytes, sizeof(after));
		__atomic_store_n(word, after, __ATOMIC_RELEASE);
		return;
	}
	before = __atomic_load_n(word, __ATOMIC_RELAXED);
	do {
		after = before;
		memcpy((uint8_t *)&after + at, bytes, count);
	} while (!__atomic_compare_exchange_n(word, &before, after, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

/* @size bytes at @address, of memory that is ours from @low to @end: the rest of a word there isn't ours to write, not even with what is there. */
static inline void words_store(uint64_t address, const uint8_t *bytes, uint64_t size, uint64_t low, uint64_t end)
{
	while (size) {
		uint64_t first = address & ~7ull;
		uint64_t rest = 8 - (address - first);
		uint32_t count = (uint32_t)(size < rest ? size : rest);

		if (first >= low && end - first >= 8)
			word_merge(first, (uint32_t)(address - first), bytes, count);
		else
			for (uint32_t i = 0; i < count; i++)
				*(volatile uint8_t *)(uintptr_t)(address + i) = bytes[i];
		address += count;
		bytes += count;
		size -= count;
	}
}

#endif
