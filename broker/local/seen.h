/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fingerprints of pieces that have gone to a server without being kept there: what comes a second time is worth keeping. Newer ones
 * take older ones' places. Control thread.
 */
#ifndef GLEAM_LOCAL_SEEN_H
#define GLEAM_LOCAL_SEEN_H

#include <stdbool.h>
#include <stdint.h>

#define SEEN_SLOTS 16384u /* 16 GiB in pieces of a MiB */

struct seen {
	uint64_t *slots; /* print and size; NULL: nothing was seen */
};

/* Whether it was seen before; it has been, from now on. Without memory everything is new. */
bool seen_before(struct seen *seen, uint32_t print, uint32_t size);
void seen_clear(struct seen *seen);

#endif
