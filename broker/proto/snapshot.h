/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything about a node's devices that a program may ask without a round trip: the worker writes it once, the answer
 * to gleamAttach carries it, the client keeps it. Raw values of the node's driver; what Gleam states instead is the
 * client's matter (libgleamcuda/api/attributes.toml).
 */
#ifndef GLEAM_PROTO_SNAPSHOT_H
#define GLEAM_PROTO_SNAPSHOT_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "broker/lib/codec.h"

#define SNAPSHOT_VERSION    2
#define SNAPSHOT_MAGIC	    0x504e5347u /* "GSNP" */
#define SNAPSHOT_DEVICES    16	 /* GPUs of a node: 8 in the largest servers, 16 in HGX-2 */
#define SNAPSHOT_NAME	    128	 /* with terminator */
#define SNAPSHOT_ATTRIBUTES 151	 /* CUdevice_attribute 1 .. 150 by number (13.0 ends at 147); 0: not known to the driver */
#define SNAPSHOT_P2P	    6	 /* CUdevice_P2PAttribute 1 .. 5 by number */
#define SNAPSHOT_LIMITS	    16	 /* CUlimit by number */
#define SNAPSHOT_TPCS	    256	 /* entries of the private arrays; 66 on an H200 */
#define SNAPSHOT_PCI	    16	 /* "0000:00:00.0" with terminator */

/* Of every device: what a new context of it begins with, and what only the card knows. */
struct snapshot_device {
	char name[SNAPSHOT_NAME];
	uint8_t uuid[16];    /* cuDeviceGetUuid_v2 */
	uint8_t uuid_v1[16]; /* cuDeviceGetUuid */
	uint8_t luid_known;
	uint8_t luid[8];
	uint32_t luid_mask;
	char pci[SNAPSHOT_PCI]; /* cuDeviceGetPCIBusId */
	uint64_t memory;	/* cuDeviceTotalMem */
	uint64_t granularity;	/* of cuMemCreate, minimum and recommended */
	uint64_t granularity_recommended;
	int32_t attributes[SNAPSHOT_ATTRIBUTES];
	uint32_t exec_affinity; /* bit per CUexecAffinityType that is supported */
	int32_t priority_least; /* cuCtxGetStreamPriorityRange */
	int32_t priority_greatest;
	uint32_t limits_known; /* bit per limit that the driver answers */
	uint64_t limits[SNAPSHOT_LIMITS];
	uint32_t cache_config;	/* cuCtxGetCacheConfig */
	uint32_t shared_config; /* cuCtxGetSharedMemConfig */
	uint32_t context_flags; /* cuCtxGetFlags of a primary context that nobody set flags for */
	uint32_t api_version;	/* cuCtxGetApiVersion */
	/* private table 1734dc26-800d-4745-8726-c0f1e7dd8bca, slot 4: two arrays; 0 entries where the driver has none */
	uint32_t tpcs;
	uint8_t tpc_place[SNAPSHOT_TPCS];
	uint8_t tpc_group[SNAPSHOT_TPCS];
};

struct snapshot {
	uint32_t driver_version; /* cuDriverGetVersion of the node's driver */
	uint32_t worker_pid;
	uint32_t mirrors_host; /* 1: the GPU reads and writes session memory itself (it could be registered) */
	uint32_t given;	       /* 1: the node has chosen these GPUs by the program's settings; they are taken as they are */
	uint32_t device_count;
	struct snapshot_device devices[SNAPSHOT_DEVICES];
	/* [a][b][attribute], by device */
	int32_t p2p[SNAPSHOT_DEVICES][SNAPSHOT_DEVICES][SNAPSHOT_P2P];
};

/* The most bytes that snapshot_put() writes. */
#define SNAPSHOT_SIZE_MAX \
	(256u + SNAPSHOT_DEVICES * (sizeof(struct snapshot_device) + 64u) + \
	 SNAPSHOT_DEVICES * SNAPSHOT_DEVICES * SNAPSHOT_P2P * 4u)

static inline void snapshot_device_put(struct writer *w, const struct snapshot_device *d)
{
	put_str(w, d->name);
	put_block(w, d->uuid, sizeof(d->uuid));
	put_block(w, d->uuid_v1, sizeof(d->uuid_v1));
	put_u8(w, d->luid_known);
	put_block(w, d->luid, sizeof(d->luid));
	put_u32(w, d->luid_mask);
	put_str(w, d->pci);
	put_u64(w, d->memory);
	put_u64(w, d->granularity);
	put_u64(w, d->granularity_recommended);
	put_bytes(w, d->attributes, sizeof(d->attributes));
	put_u32(w, d->exec_affinity);
	put_i32(w, d->priority_least);
	put_i32(w, d->priority_greatest);
	put_u32(w, d->limits_known);
	put_bytes(w, d->limits, sizeof(d->limits));
	put_u32(w, d->cache_config);
	put_u32(w, d->shared_config);
	put_u32(w, d->context_flags);
	put_u32(w, d->api_version);
	put_bytes(w, d->tpc_place, d->tpcs);
	put_bytes(w, d->tpc_group, d->tpcs);
}

static inline void snapshot_text_get(struct reader *r, char *text_out, uint32_t size)
{
	const char *text = get_str(r, size - 1);

	/* get_str() has bounded it. */
	memcpy(text_out, text, strlen(text) + 1);
}

/* An array whose size both sides must agree on. */
static inline void snapshot_array_get(struct reader *r, void *out, uint32_t size)
{
	uint32_t got = 0;
	const void *bytes = get_bytes(r, size, &got);

	if (got != size)
		r->fault = true;
	else
		memcpy(out, bytes, size);
}

static inline void snapshot_device_get(struct reader *r, struct snapshot_device *d)
{
	const void *bytes;
	uint32_t size = 0;

	snapshot_text_get(r, d->name, sizeof(d->name));
	get_block(r, d->uuid, sizeof(d->uuid));
	get_block(r, d->uuid_v1, sizeof(d->uuid_v1));
	d->luid_known = get_u8(r);
	get_block(r, d->luid, sizeof(d->luid));
	d->luid_mask = get_u32(r);
	snapshot_text_get(r, d->pci, sizeof(d->pci));
	d->memory = get_u64(r);
	d->granularity = get_u64(r);
	d->granularity_recommended = get_u64(r);
	snapshot_array_get(r, d->attributes, sizeof(d->attributes));
	d->exec_affinity = get_u32(r);
	d->priority_least = get_i32(r);
	d->priority_greatest = get_i32(r);
	d->limits_known = get_u32(r);
	snapshot_array_get(r, d->limits, sizeof(d->limits));
	d->cache_config = get_u32(r);
	d->shared_config = get_u32(r);
	d->context_flags = get_u32(r);
	d->api_version = get_u32(r);
	bytes = get_bytes(r, SNAPSHOT_TPCS, &size);
	d->tpcs = size;
	if (size)
		memcpy(d->tpc_place, bytes, size);
	bytes = get_bytes(r, SNAPSHOT_TPCS, &size);
	if (size != d->tpcs)
		r->fault = true;
	else if (size)
		memcpy(d->tpc_group, bytes, size);
}

/* Look at w->fault afterwards. */
static inline void snapshot_put(struct writer *w, const struct snapshot *s)
{
	put_u32(w, SNAPSHOT_MAGIC);
	put_u32(w, SNAPSHOT_VERSION);
	put_u32(w, s->driver_version);
	put_u32(w, s->worker_pid);
	put_u32(w, s->mirrors_host);
	put_u32(w, s->given);
	put_u32(w, s->device_count);
	for (uint32_t i = 0; i < s->device_count && i < SNAPSHOT_DEVICES; i++)
		snapshot_device_put(w, &s->devices[i]);
	for (uint32_t a = 0; a < s->device_count && a < SNAPSHOT_DEVICES; a++)
		for (uint32_t b = 0; b < s->device_count && b < SNAPSHOT_DEVICES; b++)
			for (uint32_t i = 0; i < SNAPSHOT_P2P; i++)
				put_i32(w, s->p2p[a][b][i]);
}

/* False for another version, a truncated or a wrong one; @s is then all zero. Bytes after it are left alone. */
static inline bool snapshot_get(struct reader *r, struct snapshot *s)
{
	memset(s, 0, sizeof(*s));
	if (get_u32(r) != SNAPSHOT_MAGIC || get_u32(r) != SNAPSHOT_VERSION)
		return false;
	s->driver_version = get_u32(r);
	s->worker_pid = get_u32(r);
	s->mirrors_host = get_u32(r);
	s->given = get_u32(r);
	s->device_count = get_u32(r);
	if (s->device_count > SNAPSHOT_DEVICES) {
		memset(s, 0, sizeof(*s));
		return false;
	}
	for (uint32_t i = 0; i < s->device_count && !r->fault; i++)
		snapshot_device_get(r, &s->devices[i]);
	for (uint32_t a = 0; a < s->device_count && !r->fault; a++)
		for (uint32_t b = 0; b < s->device_count; b++)
			for (uint32_t i = 0; i < SNAPSHOT_P2P; i++)
				s->p2p[a][b][i] = get_i32(r);
	if (!r->fault)
		return true;
	memset(s, 0, sizeof(*s));
	return false;
}

#endif
