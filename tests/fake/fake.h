/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fake client and fake worker say to each other, in the place of CUDA calls: the daemons between them look at
 * headers only. The payload of a command is: u64 argument, then whatever bytes.
 */
#ifndef GLEAM_TEST_FAKE_H
#define GLEAM_TEST_FAKE_H

#include <stddef.h>
#include <stdint.h>

enum fake_op {
	FAKE_ECHO = 1,	   /* reply: the payload as it came */
	FAKE_SUM = 2,	   /* up bytes: reply u64 sum of them */
	FAKE_FILL = 3,	   /* down cells: fill them from seed @argument, reply with them */
	FAKE_PROGRESS = 4, /* notice PROGRESS: word @argument >> 32, value the low half */
	FAKE_ERROR = 5,	   /* notice ERROR: context 0, code @argument */
	FAKE_PRINT = 6,	   /* @argument notices PRINT */
	FAKE_CRASH = 7,
	FAKE_EXIT = 8,	   /* with status @argument */
	FAKE_LIE_FRAME = 9, /* a frame with unknown flags */
	FAKE_LIE_TAIL = 10, /* a tail that is ahead of the head */
	FAKE_LIE_BULK = 11, /* bulk_ref out of its arena */
	FAKE_STALL = 12,   /* consumes nothing any more */
	FAKE_PID = 13,	   /* reply: u64 pid of the worker */
	FAKE_COMMAND = 14, /* a frame of kind COMMAND, which no worker sends */
	FAKE_SINK = 15,	   /* up bytes: consumed without a look at them */
	FAKE_OP_MAX,
};

static inline uint64_t fake_sum(const uint8_t *bytes, size_t size, uint64_t sum)
{
	for (size_t i = 0; i < size; i++)
		sum = sum * 1099511628211u + bytes[i];
	return sum;
}

static inline void fake_fill(uint8_t *bytes, size_t size, uint64_t seed)
{
	uint64_t x = seed * 2862933555777941757u + 3037000493u;

	for (size_t i = 0; i < size; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		/* Of even seeds they shrink by LZ4, of odd ones they don't. */
		bytes[i] = seed % 2 || (x >> 40) % 8 == 0 ? (uint8_t)x : 0;
	}
}

#endif
