/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NVRTC and nvJitLink have compiled, kept: a driver has a cache for them (natively ~/.nv/ComputeCache), reached by a table of
 * cuGetExportTable. cuDNN compiles the same kernel again for each new length of a sequence, 0.3 s each time without it.
 *
 * A few results in memory, and files in $CUDA_CACHE_PATH/gleam, or $XDG_CACHE_HOME/gleam/compiled, or ~/.cache/gleam/compiled, of this user
 * alone. CUDA_CACHE_DISABLE=1: neither. CUDA_CACHE_MAXSIZE: bytes of files (1 GiB); the longest unused go first. Nothing is sent
 * anywhere. Any thread, also before cuInit and in a forked child.
 */
#ifndef GLEAM_COMPILED_H
#define GLEAM_COMPILED_H

#include <stddef.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"

/* The most that one result may be; more isn't kept. */
#define COMPILED_SIZE_MAX (64u << 20)
/* What this process keeps in memory, bytes. */
#define COMPILED_MEMORY_MAX (32u << 20)

/* As the compilers call it; the first word is its size in bytes. */
extern const void *const compiled_table[];

struct compiled;

/*
 * One result, named by all that it depends on: @kind (1: a cubin, 2: PTX), the source's bytes, options, compiler. To be closed. NOT_SUPPORTED:
 * it is too large, or nothing is to be kept; the compiler then does without.
 */
CUresult compiled_open(struct compiled **entry_out, int kind, const void *source, size_t size, const char *options, const char *host,
		       const char *built, int arch);
void compiled_close(struct compiled *entry);
/* A copy, malloced; NOT_FOUND. */
CUresult compiled_get(struct compiled *entry, void **data_out, uint32_t *size_out);
/* Keeps a copy where that is possible; nobody is told where not. */
void compiled_put(struct compiled *entry, const void *data, uint32_t size);

#endif
