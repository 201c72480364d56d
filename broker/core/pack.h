/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LZ4 for bulk, where that shortens the way: the link must be slower than compressing, as both have been measured, and a sample
 * of the bytes must shrink. One struct packer belongs to a bulk lane's thread.
 */
#ifndef GLEAM_CORE_PACK_H
#define GLEAM_CORE_PACK_H

#include <stdbool.h>
#include <stdint.h>

#define PACK_SIZE_MAX (1u << 20) /* bytes of a piece */

struct packer {
	uint8_t *packed;    /* made at first need */
	uint64_t speed;	    /* bytes a second that this thread compresses; 0: not measured yet */
	uint32_t skip;	    /* pieces that aren't sampled, since those before did not shrink */
	uint32_t skip_next; /* how many of them after the next disappointment */
	uint64_t saved;	    /* bytes that did not travel */
};

void pack_fini(struct packer *packer);
/*
 * @bandwidth: bytes a second of the link, as this lane sees it; 0: not known, and then nothing is compressed. True: packer->packed has
 * @stored_out bytes, less than @size. It is used until the next call.
 */
bool pack_try(struct packer *packer, const void *bytes, uint32_t size, uint64_t bandwidth, uint32_t *stored_out);
/* Exactly @size bytes at @bytes, or -EPROTO. */
int unpack(const void *packed, uint32_t stored, void *bytes, uint32_t size);

#endif
