/* SPDX-License-Identifier: Apache-2.0 */
/* What a fuzz target defines; called by libFuzzer or by fuzz_replay.c. */
#ifndef TESTS_LIB_FUZZ_H
#define TESTS_LIB_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Returns 0 for every input. @data is exactly @size bytes long: an overrun by one is a fault. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
