/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cubins, as far as a container reader needs them: how long one is. fatbin.h has what callers ask about kernels.
 */
#ifndef GLEAM_LIB_FATBIN_ELF_H
#define GLEAM_LIB_FATBIN_ELF_H

#include <stdint.h>

/*
 * The length of a cubin from its own headers: sections, section table and program headers, which nvcc puts last.
 * @limit is what may be read; UINT64_MAX for an image of unknown length, which is read as far as its headers reach.
 */
int fatbin_elf_extent(const uint8_t *data, uint64_t limit, uint64_t *size_out);

#endif
