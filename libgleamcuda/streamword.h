/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams that wait for words of host memory, and what that means for copies: the host may fill a page-locked source after
 * the call, and only then store the word. Any thread.
 */
#ifndef GLEAM_STREAMWORD_H
#define GLEAM_STREAMWORD_H

#include <stdbool.h>

#include "libgleamcuda/copy.h"

/* Is a stream waiting, or about to wait, for a word of host memory? Costs a load where no program does that. */
bool streamword_waiting(void);
/* A copy from page-locked memory to the device whose source is read when the stream comes to it. */
CUresult streamword_copy_later(struct call *call, const struct copy *copy);

#endif
