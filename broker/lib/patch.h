/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A patch: changed bytes of a stretch of memory, packed. Records {u16 skip, u16 size, size bytes} follow each other; skip is
 * counted from the end of the record before, the first from the patch's address. No thread of its own.
 */
#ifndef GLEAM_LIB_PATCH_H
#define GLEAM_LIB_PATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PATCH_RECORD 4u
#define PATCH_RUN    0xffffu

struct patch {
	uint8_t *bytes;
	uint32_t size;
	uint32_t room;
	uint64_t address; /* where it begins; set by the first record */
	uint64_t at;	  /* end of the last record */
	uint32_t open;	  /* offset of the last record's header; its run may still grow */
};

static inline void patch_begin(struct patch *patch, void *bytes, uint32_t room)
{
	*patch = (struct patch){ .bytes = bytes, .room = room };
}

/* One changed byte; addresses ascend. False: it is full (or the gap too wide), send it and begin another. */
static inline bool patch_byte(struct patch *patch, uint64_t address, uint8_t value)
{
	uint16_t header[2];

	if (!patch->size)
		patch->address = patch->at = address;
	if (patch->size) {
		memcpy(header, patch->bytes + patch->open, sizeof(header));
		if (address == patch->at && header[1] < PATCH_RUN && patch->size < patch->room) {
			header[1]++;
			memcpy(patch->bytes + patch->open, header, sizeof(header));
			patch->bytes[patch->size++] = value;
			patch->at++;
			return true;
		}
	}
	if (patch->room - patch->size < PATCH_RECORD + 1 || address - patch->at > PATCH_RUN)
		return false;
	header[0] = (uint16_t)(address - patch->at);
	header[1] = 1;
	patch->open = patch->size;
	memcpy(patch->bytes + patch->size, header, sizeof(header));
	patch->size += PATCH_RECORD;
	patch->bytes[patch->size++] = value;
	patch->at = address + 1;
	return true;
}

/* Changed bytes in a row; addresses ascend. How many of them have found room: 0, send the patch and begin another. */
static inline uint32_t patch_run(struct patch *patch, uint64_t address, const uint8_t *bytes, uint32_t size)
{
	uint32_t most;
	uint16_t header[2];

	if (!patch->size)
		patch->address = patch->at = address;
	if (patch->room - patch->size < PATCH_RECORD + 1 || address - patch->at > PATCH_RUN)
		return 0;
	most = patch->room - patch->size - PATCH_RECORD;
	if (most > PATCH_RUN)
		most = PATCH_RUN;
	if (size > most)
		size = most;
	header[0] = (uint16_t)(address - patch->at);
	header[1] = (uint16_t)size;
	patch->open = patch->size;
	memcpy(patch->bytes + patch->size, header, sizeof(header));
	memcpy(patch->bytes + patch->size + PATCH_RECORD, bytes, size);
	patch->size += PATCH_RECORD + size;
	patch->at = address + size;
	return size;
}

/* Walks a patch of somebody else: 1 and a run, 0 at the end, -1 for nonsense. @offset begins with 0. */
static inline int patch_next(const uint8_t *bytes, uint32_t size, uint32_t *offset, uint64_t *address, const uint8_t **run_out,
			     uint32_t *run_size_out)
{
	uint16_t header[2];

	if (*offset == size)
		return 0;
	if (size - *offset < PATCH_RECORD)
		return -1;
	memcpy(header, bytes + *offset, sizeof(header));
	*offset += PATCH_RECORD;
	if (header[1] > size - *offset)
		return -1;
	*address += header[0];
	*run_out = bytes + *offset;
	*run_size_out = header[1];
	*offset += header[1];
	return 1;
}

#endif
