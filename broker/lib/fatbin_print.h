/* SPDX-License-Identifier: Apache-2.0 */
/* Which images hold kernels that print: they name vprintf. Any thread. */
#ifndef GLEAM_LIB_FATBIN_PRINT_H
#define GLEAM_LIB_FATBIN_PRINT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Containers, cubins and text; packed entries are unpacked as far as the names of a cubin's symbols go, and no further than 16 MiB. An image that is
 * damaged, or for which there is no memory, holds none.
 */
bool fatbin_prints(const void *image, size_t size);

#endif
