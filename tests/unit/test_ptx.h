/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the PTX processor share: modules from files, memory with checked bounds, launches. */
#ifndef GLEAM_TESTS_TEST_PTX_H
#define GLEAM_TESTS_TEST_PTX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h wants those before it */
#include <cmocka.h>

#include "broker/softgpu/ptx.h"

/* The .ptx of tests/cuda/kernels, bound to memory of its own. Fails the test if it can't. */
struct ptx_module *kit_load(const char *name);
/* The same from text; @target may be NULL. */
struct ptx_module *kit_load_text(const char *text);
/* The error of a text that must be refused. */
struct ptx_error kit_refused(const char *text);
/* Memory for the globals of a module that was not loaded by the two above. */
void kit_bind(struct ptx_module *module);
void kit_unload(struct ptx_module *module);

/* Memory that kernels may touch, zeroed; with a hole behind it. */
void *kit_alloc(size_t size);
void kit_free(void *memory);

/* The address a global was bound to. */
void *kit_global(const struct ptx_module *module, const char *name);

struct kit_launch {
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t shared;
	bool cooperative;
	uint32_t cluster[3];
	const _Atomic uint32_t *abort;
};

/* Parameters follow as (const void *, size) pairs are packed by the entry's own layout: pointers to each value. */
enum ptx_status kit_run(struct ptx_module *module, const char *entry, const struct kit_launch *launch,
			 const void *const *params, struct ptx_fault *fault_out);
/* Must be PTX_DONE. One-dimensional. */
void kit_run_ok(struct ptx_module *module, const char *entry, uint32_t blocks, uint32_t threads, uint32_t shared,
		 const void *const *params);

/* Who answers texture accesses from now on; NULL: nobody. */
void kit_texel(int (*texel)(void *user, struct ptx_texel *texel));

#define PARAMS(...) ((const void *const[]){ __VA_ARGS__ })

/* What kernels printed since the last call; static. */
const char *kit_printed(void);

/* Repeatable pseudo-random numbers. */
uint32_t kit_random(void);
void kit_seed(uint64_t seed);

int kit_setup(void **state);
int kit_teardown(void **state);

#endif
