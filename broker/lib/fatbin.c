// SPDX-License-Identifier: Apache-2.0
/*
 * The container reader: extents of bare pointers, entries of fat binaries, and their unpacking. What a cubin says
 * about its kernels is in fatbin_elf.c. Runs on whatever thread calls it; keeps nothing.
 */
#include "broker/lib/fatbin.h"

#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "broker/lib/fatbin_elf.h"

/* Sizes of the two headers as far as their fields are read; both may be longer. */
#define CONTAINER_HEADER_SIZE 16u
#define ENTRY_HEADER_SIZE 64u
/* An entry's header holds a file name and options at most; one beyond this is damage. */
#define ENTRY_HEADER_SIZE_MAX (1u << 20)

static uint16_t read16(const uint8_t *at)
{
	return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t read32(const uint8_t *at)
{
	return (uint32_t)read16(at) | (uint32_t)read16(at + 2) << 16;
}

static uint64_t read64(const uint8_t *at)
{
	return (uint64_t)read32(at) | (uint64_t)read32(at + 4) << 32;
}

/* @header has CONTAINER_HEADER_SIZE readable bytes. */
static int container_size(const uint8_t *header, uint64_t *size_out)
{
	uint64_t header_size = read16(header + 6);
	uint64_t body_size = read64(header + 8);

	if (read16(header + 4) != 1 || header_size < CONTAINER_HEADER_SIZE)
		return -EBADMSG;
	if (body_size > FATBIN_IMAGE_MAX - header_size)
		return -EMSGSIZE;
	*size_out = header_size + body_size;
	return 0;
}

static int text_size(const char *text, uint64_t *size_out)
{
	size_t length = strnlen(text, FATBIN_TEXT_MAX);

	if (length == FATBIN_TEXT_MAX)
		return -EMSGSIZE;
	*size_out = length + 1;
	return 0;
}

/*
 * What program memory at @data holds, which is no wrapper. An empty text is no image: the driver's answer to one is
 * the same as to garbage.
 */
static int extent_of_data(const uint8_t *data, struct fatbin_image *image)
{
	image->data = data;
	/* One byte at a time: a text may be shorter than a magic number. */
	for (unsigned int i = 0; i < 4; i++) {
		if (data[i] == 0) {
			if (i == 0)
				return -EINVAL;
			image->data_form = FATBIN_FORM_TEXT;
			image->size = i + 1;
			return 0;
		}
	}
	switch (read32(data)) {
	case FATBIN_MAGIC:
		image->data_form = FATBIN_FORM_CONTAINER;
		return container_size(data, &image->size);
	case FATBIN_ELF_MAGIC:
		image->data_form = FATBIN_FORM_ELF;
		return fatbin_elf_extent(data, UINT64_MAX, &image->size);
	default:
		image->data_form = FATBIN_FORM_TEXT;
		return text_size((const char *)data, &image->size);
	}
}

int fatbin_extent(const void *pointer, struct fatbin_image *image_out)
{
	struct fatbin_image image = { 0 };
	const uint8_t *bytes = pointer;
	int ret;

	if (!pointer)
		return -EINVAL;
	for (unsigned int i = 0; i < 4; i++)
		if (bytes[i] != (uint8_t)(FATBIN_WRAPPER_MAGIC >> 8 * i))
			goto bare;

	uint32_t version = read32(bytes + 4);
	const uint8_t *data = (const uint8_t *)(uintptr_t)read64(bytes + 8);
	const void *const *linked = (const void *const *)(uintptr_t)read64(bytes + 16);

	if ((version != 1 && version != 2) || !data)
		return -EBADMSG;
	ret = extent_of_data(data, &image);
	if (ret < 0)
		return ret;
	image.form = FATBIN_FORM_WRAPPER;
	if (version == 2 && linked) {
		uint32_t count = 0;

		while (linked[count])
			if (++count > FATBIN_LINKED_MAX)
				return -EMSGSIZE;
		image.linked = linked;
		image.linked_count = count;
	}
	*image_out = image;
	return 0;
bare:
	ret = extent_of_data(bytes, &image);
	if (ret < 0)
		return ret;
	image.form = image.data_form;
	*image_out = image;
	return 0;
}

int fatbin_parse(const void *data, size_t size, struct fatbin_image *image_out)
{
	struct fatbin_image image = { .data = data };
	uint32_t magic = size >= 4 ? read32(data) : 0;
	int ret = 0;

	if (size == 0 || magic == FATBIN_WRAPPER_MAGIC)
		return -EINVAL;
	if (magic == FATBIN_MAGIC) {
		if (size < CONTAINER_HEADER_SIZE)
			return -EBADMSG;
		image.data_form = FATBIN_FORM_CONTAINER;
		ret = container_size(data, &image.size);
	} else if (magic == FATBIN_ELF_MAGIC) {
		image.data_form = FATBIN_FORM_ELF;
		ret = fatbin_elf_extent(data, size, &image.size);
	} else {
		const uint8_t *end = memchr(data, 0, size);

		image.data_form = FATBIN_FORM_TEXT;
		if (!end || end == image.data)
			return -EINVAL;
		image.size = (uint64_t)(end - image.data) + 1;
		if (image.size > FATBIN_TEXT_MAX)
			return -EMSGSIZE;
	}
	if (ret < 0)
		return ret;
	if (image.size > size)
		return -EBADMSG;
	image.form = image.data_form;
	*image_out = image;
	return 0;
}

void fatbin_iter_init(struct fatbin_iter *iter, const void *data, size_t size)
{
	*iter = (struct fatbin_iter){ .data = data, .size = size };
}

/* Steps over padding and into the next container: 1, 0 where none follows. */
static int iter_open_container(struct fatbin_iter *iter)
{
	const uint8_t *header = iter->data + iter->next;
	uint64_t left = iter->size - iter->next;
	uint64_t size;
	int ret;

	if (left < CONTAINER_HEADER_SIZE || read32(header) != FATBIN_MAGIC)
		return iter->chained ? 0 : -EBADMSG;
	if (iter->chained == FATBIN_CHAIN_MAX)
		return -EBADMSG;
	ret = container_size(header, &size);
	if (ret < 0 || size > left)
		return -EBADMSG;
	iter->chained++;
	iter->end = iter->next + size;
	iter->next += read16(header + 6);
	return 1;
}

int fatbin_iter_next(struct fatbin_iter *iter, struct fatbin_entry *entry_out)
{
	struct fatbin_entry entry = { 0 };
	int ret;

	while (iter->next == iter->end) {
		ret = iter_open_container(iter);
		if (ret <= 0) {
			/* The walk has ended for good. */
			iter->size = iter->next = iter->end;
			return ret;
		}
	}

	const uint8_t *header = iter->data + iter->next;
	uint64_t left = iter->end - iter->next;

	if (left < ENTRY_HEADER_SIZE)
		goto damaged;

	uint64_t header_size = read32(header + 4);
	uint64_t stored_size = read64(header + 8);
	uint64_t packed_size = read32(header + 16);
	uint64_t flags = read64(header + 40);
	uint64_t unpacked_size = read64(header + 56);
	uint64_t name_offset = read32(header + 32);
	uint64_t name_size = read32(header + 36);

	if (header_size < ENTRY_HEADER_SIZE || header_size > ENTRY_HEADER_SIZE_MAX || header_size > left ||
	    stored_size > left - header_size)
		goto damaged;
	entry.kind = read16(header);
	entry.arch = read32(header + 28);
	entry.flags = (uint32_t)flags;
	entry.version_minor = read16(header + 24);
	entry.version_major = read16(header + 26);
	entry.payload = header + header_size;
	entry.offset = iter->next;
	entry.packed = flags & (FATBIN_FLAG_LZ4 | FATBIN_FLAG_ZSTD);
	if (entry.packed) {
		/* An old writer leaves the exact size out: then it is as stored. */
		entry.payload_size = packed_size ? packed_size : stored_size;
		entry.unpacked_size = unpacked_size;
		if (entry.payload_size > stored_size || unpacked_size > FATBIN_ENTRY_UNPACKED_MAX)
			goto damaged;
	} else {
		entry.payload_size = entry.unpacked_size = stored_size;
	}
	if (name_size && name_offset <= header_size && name_size <= header_size - name_offset) {
		entry.name = (const char *)header + name_offset;
		entry.name_size = (uint32_t)name_size;
	}
	iter->next += header_size + stored_size;
	*entry_out = entry;
	return 1;
damaged:
	iter->size = iter->next = iter->end;
	iter->chained = FATBIN_CHAIN_MAX;
	return -EBADMSG;
}

int fatbin_entry_unpack(const struct fatbin_entry *entry, void *buffer, size_t size, size_t *size_out)
{
	if (entry->unpacked_size > size)
		return -ENOSPC;
	if (!entry->packed) {
		memcpy(buffer, entry->payload, entry->payload_size);
		*size_out = entry->payload_size;
		return 0;
	}
	if (entry->flags & FATBIN_FLAG_ZSTD) {
		size_t got = ZSTD_decompress(buffer, entry->unpacked_size, entry->payload, entry->payload_size);

		if (ZSTD_isError(got) || got != entry->unpacked_size)
			return -EBADMSG;
		*size_out = got;
		return 0;
	}
	/* FATBIN_ENTRY_UNPACKED_MAX keeps unpacked_size in an int; the packed size need not be. */
	if (entry->payload_size > LZ4_MAX_INPUT_SIZE || entry->unpacked_size > INT32_MAX)
		return -EBADMSG;

	int got = LZ4_decompress_safe((const char *)entry->payload, buffer, (int)entry->payload_size,
				      (int)entry->unpacked_size);

	if (got < 0 || (uint64_t)got != entry->unpacked_size)
		return -EBADMSG;
	*size_out = (size_t)got;
	return 0;
}

static int zstd_head(const struct fatbin_entry *entry, void *buffer, size_t size, size_t *size_out)
{
	ZSTD_inBuffer in = { .src = entry->payload, .size = entry->payload_size };
	ZSTD_outBuffer out = { .dst = buffer, .size = size };
	ZSTD_DCtx *context = ZSTD_createDCtx();
	size_t left = 1, before;

	if (!context)
		return -ENOMEM;
	do {
		before = in.pos + out.pos;
		left = ZSTD_decompressStream(context, &out, &in);
	} while (!ZSTD_isError(left) && left && out.pos < size && in.pos + out.pos > before);
	ZSTD_freeDCtx(context);
	if (ZSTD_isError(left) || out.pos < size)
		return -EBADMSG;
	*size_out = size;
	return 0;
}

int fatbin_entry_unpack_head(const struct fatbin_entry *entry, void *buffer, size_t size, size_t *size_out)
{
	int got;

	if (size >= entry->unpacked_size)
		return fatbin_entry_unpack(entry, buffer, size, size_out);
	if (!entry->packed) {
		memcpy(buffer, entry->payload, size);
		*size_out = size;
		return 0;
	}
	if (entry->flags & FATBIN_FLAG_ZSTD)
		return zstd_head(entry, buffer, size, size_out);
	if (entry->payload_size > LZ4_MAX_INPUT_SIZE || size > INT32_MAX)
		return -EBADMSG;
	got = LZ4_decompress_safe_partial((const char *)entry->payload, buffer, (int)entry->payload_size, (int)size, (int)size);
	if (got < 0 || (size_t)got != size)
		return -EBADMSG;
	*size_out = size;
	return 0;
}

bool fatbin_entry_fits(const struct fatbin_entry *entry, int major, int minor)
{
	uint32_t entry_major = entry->arch / 10, entry_minor = entry->arch % 10;
	uint32_t device = (uint32_t)(major * 10 + minor);

	if (!(entry->flags & FATBIN_FLAG_64BIT))
		return false;
	if (entry->flags & FATBIN_FLAG_ARCH_SPECIFIC)
		return entry->arch == device;
	if (entry->flags & FATBIN_FLAG_FAMILY_SPECIFIC)
		return entry_major == (uint32_t)major && entry_minor <= (uint32_t)minor;
	switch (entry->kind) {
	case FATBIN_KIND_ELF:
		return entry_major == (uint32_t)major && entry_minor <= (uint32_t)minor;
	case FATBIN_KIND_PTX:
		return entry->arch <= device;
	default:
		return false;
	}
}

/* Whether @entry is taken rather than @best, both of which fit: machine code first, then the nearest architecture. */
static bool entry_is_better(const struct fatbin_entry *entry, const struct fatbin_entry *best)
{
	if (entry->kind != best->kind)
		return entry->kind == FATBIN_KIND_ELF;
	if (entry->arch != best->arch)
		return entry->arch > best->arch;
	/* An architecture's own code knows more than code for all that follow. */
	return entry->flags & (FATBIN_FLAG_ARCH_SPECIFIC | FATBIN_FLAG_FAMILY_SPECIFIC) &&
	       !(best->flags & (FATBIN_FLAG_ARCH_SPECIFIC | FATBIN_FLAG_FAMILY_SPECIFIC));
}

int fatbin_choose(const void *data, size_t size, int major, int minor, bool want_elf, struct fatbin_entry *entry_out)
{
	struct fatbin_iter iter;
	struct fatbin_entry entry, best;
	bool found = false;
	int ret;

	fatbin_iter_init(&iter, data, size);
	while ((ret = fatbin_iter_next(&iter, &entry)) > 0) {
		if (entry.kind != FATBIN_KIND_PTX && (entry.kind != FATBIN_KIND_ELF || !want_elf))
			continue;
		if (!fatbin_entry_fits(&entry, major, minor) || (found && !entry_is_better(&entry, &best)))
			continue;
		best = entry;
		found = true;
	}
	if (!found)
		return ret;
	*entry_out = best;
	return 1;
}
