/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of the library in a process: cuInit, fork. Any thread.
 */
#ifndef GLEAM_INIT_H
#define GLEAM_INIT_H

#include <stdbool.h>
#include <stdint.h>

/* True after a cuInit that succeeded, in the process that made it (false in a forked child). Nanoseconds. */
bool process_is_initialised(void);
/* True in a child of a process that had called cuInit: CUDA is unusable there, as natively. */
bool process_is_forked(void);
/* What cuDriverGetVersion answers: the same for ever once it has been asked. */
uint32_t driver_version(void);

#endif
