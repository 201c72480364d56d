/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles: what the program holds instead of the driver's pointers. The client makes them, the worker maps them.
 *
 *   63      58      52           28          4    0
 *   | 0x15  | type  | generation | index     | 0  |
 *
 * Never 0, 1 or 2; the low four bits are zero because programs (PyTorch's stream ids among them) use low bits of
 * such pointers. An index is reused with another generation, so a stale handle is told from a live one.
 */
#ifndef GLEAM_PROTO_HANDLE_H
#define GLEAM_PROTO_HANDLE_H

#include <stdint.h>

enum object_type {
	OBJECT_NONE = 0,
	OBJECT_CONTEXT = 1,
	OBJECT_STREAM = 2,
	OBJECT_EVENT = 3,
	OBJECT_MODULE = 4,
	OBJECT_LIBRARY = 5,
	OBJECT_KERNEL = 6,
	OBJECT_FUNCTION = 7,
	OBJECT_GRAPH = 8,
	OBJECT_GRAPHEXEC = 9,
	OBJECT_GRAPHNODE = 10,
	OBJECT_ARRAY = 11,
	OBJECT_MIPMAP = 12,
	OBJECT_TEX = 13,
	OBJECT_SURF = 14,
	OBJECT_LINK = 15,
	OBJECT_POOL = 16,
	OBJECT_VMM = 17, /* cuMemCreate */
	OBJECT_CONDITION = 18, /* cuGraphConditionalHandleCreate */
	OBJECT_GREEN = 19,     /* cuGreenCtxCreate; its context has a handle of its own */
	OBJECT_DESC = 20,      /* cuDevResourceGenerateDesc */
	OBJECT_TYPES = 21,
};

#define HANDLE_MARK	 0x15ull
#define HANDLE_INDEX_MAX 0xffffffu
#define HANDLE_GEN_MAX	 0xffffffu

/* Streams that have no handle of their own, on the wire: the legacy stream of the context in the frame's header. */
#define WIRE_STREAM_LEGACY 1ull

static inline uint64_t handle_make(enum object_type type, uint32_t generation, uint32_t index)
{
	return HANDLE_MARK << 58 | (uint64_t)type << 52 | (uint64_t)generation << 28 | (uint64_t)index << 4;
}

static inline enum object_type handle_type(uint64_t handle)
{
	if (handle >> 58 != HANDLE_MARK || (handle & 15) || (handle >> 52 & 63) >= OBJECT_TYPES)
		return OBJECT_NONE;
	return (enum object_type)(handle >> 52 & 63);
}

static inline uint32_t handle_index(uint64_t handle)
{
	return (uint32_t)(handle >> 4) & HANDLE_INDEX_MAX;
}

static inline uint32_t handle_generation(uint64_t handle)
{
	return (uint32_t)(handle >> 28) & HANDLE_GEN_MAX;
}

#endif
