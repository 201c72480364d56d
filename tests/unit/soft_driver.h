/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The software GPU as a program sees it: the library opened by path, its functions by name.
 */
#ifndef SOFT_DRIVER_H
#define SOFT_DRIVER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

#include "gen/softgpu/soft_api.h"

/* The function of that name in libsoftcuda.so, which is opened at the first call; ends the test where it is missing. */
void *driver_symbol(const char *name);

/* NULL where there is none. */
void *driver_symbol_maybe(const char *name);

#define CU(name) (*(__typeof__(&name))driver_symbol(#name))

#define assert_ok(call) assert_int_equal((call), CUDA_SUCCESS)

/* Starts the driver and makes the primary context of @device current in this thread. */
void driver_start(CUdevice device);

/* The bytes of a file relative to the top of the source tree or absolute, with a NUL behind them; the test's to free. */
char *driver_file(const char *path, size_t *size_out);

/* Loads a module from PTX text and ends the test where that fails, with the log. */
CUmodule driver_module(const char *ptx);
CUfunction driver_function(CUmodule module, const char *name);

/*
 * The test's program once more, as `PROGRAM neighbour ANSWER ORDER`: descriptors to say something by, and to hear from us by. The ends
 * that are ours, @answer_out and @order_out, are the test's to close; so is the process to wait for.
 */
pid_t driver_neighbour(int *answer_out, int *order_out);

#endif
