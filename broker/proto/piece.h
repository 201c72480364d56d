/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces: what device memory is granted in. The number of a piece names its class, so both ends must mean the same size.
 */
#ifndef GLEAM_PIECE_H
#define GLEAM_PIECE_H

#include <stdint.h>

#define PIECE_CLASSES 3

/* bytes, smallest first */
static const uint64_t piece_class_size[PIECE_CLASSES] = { 2ull << 20, 32ull << 20, 256ull << 20 };

#endif
