/* SPDX-License-Identifier: Apache-2.0 */
/* What worker and client tell each other of a part of a GPU's multiprocessors. */
#ifndef GLEAM_PROTO_RESOURCE_H
#define GLEAM_PROTO_RESOURCE_H

#include <assert.h>
#include <stdint.h>

#define RESOURCE_GROUPS 250u /* of one split, and of one green context: what an answer holds, and more than a device has parts */
#define RESOURCE_NONE	UINT32_MAX

/* Little-endian. */
struct resource_entry {
	uint32_t number; /* of the worker's; RESOURCE_NONE: there is none */
	uint32_t count;	 /* multiprocessors */
	uint32_t least;	 /* of a part of it */
	uint32_t unit;	 /* parts have multiples of this */
};
static_assert(sizeof(struct resource_entry) == 16, "resource_entry is fixed on the wire");

#endif
