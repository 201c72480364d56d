/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing and reading of fields: little-endian, aligned to their size counted from the start of the buffer, which
 * is itself aligned to 8. A writer that runs out of room and a reader that runs out of bytes become faulty and stay
 * so: later writes do nothing, later reads give zero; one look at fault after the last field decides.
 */
#ifndef GLEAM_LIB_CODEC_H
#define GLEAM_LIB_CODEC_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fields are copied as they lie in memory");

struct writer {
	uint8_t *start;
	size_t at;
	size_t size;
	bool fault;
};

struct reader {
	const uint8_t *start;
	size_t at;
	size_t size;
	bool fault;
};

static inline struct writer writer_on(void *buf, size_t size)
{
	return (struct writer){ .start = buf, .size = size };
}

static inline struct reader reader_on(const void *buf, size_t size)
{
	return (struct reader){ .start = buf, .size = size };
}

/* Room for @size bytes at a multiple of @align, the gap zeroed; NULL and a fault if there is none. */
static inline uint8_t *writer_room(struct writer *w, size_t align, size_t size)
{
	size_t gap = -w->at & (align - 1);

	if (w->fault || gap > w->size - w->at || size > w->size - w->at - gap) {
		w->fault = true;
		return NULL;
	}
	uint8_t *room = w->start + w->at + gap;

	if (gap)
		memset(room - gap, 0, gap);
	w->at += gap + size;
	return room;
}

static inline const uint8_t *reader_take(struct reader *r, size_t align, size_t size)
{
	size_t gap = -r->at & (align - 1);

	if (r->fault || gap > r->size - r->at || size > r->size - r->at - gap) {
		r->fault = true;
		return NULL;
	}
	const uint8_t *bytes = r->start + r->at + gap;

	r->at += gap + size;
	return bytes;
}

#define CODEC_FIELD(name, type)                                                                                \
	static inline void put_##name(struct writer *w, type value)                                            \
	{                                                                                                      \
		uint8_t *room = writer_room(w, sizeof(value), sizeof(value));                                  \
                                                                                                               \
		if (room)                                                                                      \
			memcpy(room, &value, sizeof(value));                                                   \
	}                                                                                                      \
	static inline type get_##name(struct reader *r)                                                        \
	{                                                                                                      \
		const uint8_t *bytes = reader_take(r, sizeof(type), sizeof(type));                             \
		type value = 0;                                                                                \
                                                                                                               \
		if (bytes)                                                                                     \
			memcpy(&value, bytes, sizeof(value));                                                  \
		return value;                                                                                  \
	}

CODEC_FIELD(u8, uint8_t)
CODEC_FIELD(u16, uint16_t)
CODEC_FIELD(u32, uint32_t)
CODEC_FIELD(i32, int32_t)
CODEC_FIELD(u64, uint64_t)
CODEC_FIELD(f32, float)

/* u32 length, then the bytes at a multiple of 8: so that what lies in them is aligned as it was. */
static inline void put_bytes(struct writer *w, const void *bytes, uint32_t size)
{
	put_u32(w, size);

	uint8_t *room = writer_room(w, 8, size);

	if (room && size)
		memcpy(room, bytes, size);
}

/* Borrowed from the reader's buffer. @size_max guards the caller; more is a fault. */
static inline const void *get_bytes(struct reader *r, uint32_t size_max, uint32_t *size_out)
{
	uint32_t size = get_u32(r);

	*size_out = 0;
	if (size > size_max)
		r->fault = true;

	const uint8_t *bytes = reader_take(r, 8, size);

	if (bytes)
		*size_out = size;
	return bytes;
}

/* A string: its length without the terminator, then the bytes and one zero byte, which is checked when read. */
static inline void put_str(struct writer *w, const char *text)
{
	uint32_t size = text ? (uint32_t)strlen(text) : 0;

	put_u32(w, size);

	uint8_t *room = writer_room(w, 1, (size_t)size + 1);

	if (room) {
		if (size)
			memcpy(room, text, size);
		room[size] = 0;
	}
}

/* Borrowed, terminated, "" after a fault. Holds no zero byte before its end. */
static inline const char *get_str(struct reader *r, uint32_t size_max)
{
	uint32_t size = get_u32(r);

	if (size > size_max)
		r->fault = true;

	const uint8_t *bytes = r->fault ? NULL : reader_take(r, 1, (size_t)size + 1);

	if (!bytes)
		return "";
	if (bytes[size] != 0 || memchr(bytes, 0, size)) {
		r->fault = true;
		return "";
	}
	return (const char *)bytes;
}

/* A block of fixed size that both sides know, without a length. */
static inline void put_block(struct writer *w, const void *bytes, size_t size)
{
	uint8_t *room = writer_room(w, 1, size);

	if (room)
		memcpy(room, bytes, size);
}

static inline void get_block(struct reader *r, void *bytes_out, size_t size)
{
	const uint8_t *bytes = reader_take(r, 1, size);

	if (bytes)
		memcpy(bytes_out, bytes, size);
	else
		memset(bytes_out, 0, size);
}

static inline size_t reader_left(const struct reader *r)
{
	return r->fault ? 0 : r->size - r->at;
}

#endif
