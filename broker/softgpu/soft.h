/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every part of the software GPU's driver API uses: how an entry point is written, process state, the log.
 *
 * Locks, each named where it is defined, in the order in which they may be nested: start and end of primary
 * contexts; the list of libraries; a library; captures; graphs; an executable graph; an event; a pool; reserved addresses; the
 * scheduler; the heap; the map; a context's or a device's settings; the ledger; the handle table; visits. No lock is
 * held while a command runs or a caller's function is called.
 */
#ifndef SOFT_H
#define SOFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"

/*
 * Declares and defines an entry point; soft_symbols.py reads these lines, so a parameter list holds no parentheses.
 * Its per-thread-stream variants are generated there as well.
 */
#define SOFT_API(name, ...)      \
	CUresult name(__VA_ARGS__); \
	__attribute__((visibility("default"))) CUresult name(__VA_ARGS__)

/* At the beginning of an entry point: waits for the context's work if GLEAM_SOFTGPU_WAITS names it. */
#define SOFT_WAITS() soft_waits(__func__)
void soft_waits(const char *call);

/* A second name for an entry point of the same shape. */
#define SOFT_ALIAS(name, target) \
	extern __typeof__(target) name __attribute__((alias(#target), visibility("default")))

#define TRY(call)                                   \
	do {                                        \
		CUresult try_result = (call);       \
		if (try_result != CUDA_SUCCESS)     \
			return try_result;          \
	} while (0)

#define SOFT_VERSION 13000
/* More software devices than this tell nothing that fewer don't. */
#define SOFT_DEVICES_MAX 16

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* 0 after cuInit, else NOT_INITIALIZED; DEINITIALIZED in a forked child. */
CUresult soft_ready(void);

/* The pool that executes kernels; there after cuInit. */
struct exec_pool;
struct exec_pool *soft_pool(void);

/* One line to the file named by GLEAM_SOFTGPU_LOG; nothing where it is not set. */
void soft_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool soft_log_on(void);

uint64_t soft_now_ns(void);

/* While nonzero, stream NULL of this thread's calls means its own stream: set by the per-thread entry points. */
extern __thread unsigned int soft_per_thread_calls;

#endif
