/* SPDX-License-Identifier: Apache-2.0 */
/* Image files that the program names. Any thread. */
#ifndef GLEAM_FILE_H
#define GLEAM_FILE_H

#include <stdint.h>

#include "broker/proto/cuda_abi.h"

/* The whole file, from malloc, with a NUL behind it that counts (texts end with it, other images know their length).
 * FILE_NOT_FOUND; OUT_OF_MEMORY, also for what can't be read as a file, as the driver has it. */
CUresult file_read(const char *path, void **bytes_out, uint64_t *size_out);

#endif
