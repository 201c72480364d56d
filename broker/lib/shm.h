/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a session (broker/proto/ring.h): made by a daemon, mapped by the client library and the worker.
 * No thread of its own; a struct shm has one owner.
 */
#ifndef GLEAM_LIB_SHM_H
#define GLEAM_LIB_SHM_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/lib/ring.h"
#include "broker/proto/ring.h"

#define SHM_UNIT  (256u << 10) /* of arenas: what is mapped in one go */
#define SHM_UNITS ((SESSION_UP_SIZE + SESSION_DOWN_SIZE) / SHM_UNIT)

struct shm {
	uint8_t *base; /* SESSION_SIZE bytes, shared; NULL when closed */
	int fd;	       /* -1 when closed or not kept */
	uint64_t touched[SHM_UNITS / 64]; /* atomic; bit a unit: shm_up_touch(), shm_down_touch() */
};
static_assert(SESSION_AT_DOWN == SESSION_AT_UP + SESSION_UP_SIZE, "arenas lie side by side");
static_assert(SHM_UNITS % 64 == 0, "units fill words");

/* A memfd of SESSION_SIZE bytes that can neither grow nor shrink, header filled in, state SESSION_NEW, mapped. */
int shm_make(struct shm *shm, const uint8_t protocol_hash[32], uint32_t client_pid);
/*
 * Maps what another process passed. Takes @fd, also on failure. -EPROTO: not a memfd of ordinary pages (others may be short of pages,
 * which is a SIGBUS), wrong size, not sealed against shrinking, not a session memory. -EPROTONOSUPPORT: another version or protocol hash (@protocol_hash NULL: not compared).
 */
int shm_map(struct shm *shm, int fd, const uint8_t protocol_hash[32]);
/* Unmaps and closes. Harmless on a closed one. */
void shm_close(struct shm *shm);

/*
 * The memory for page-locked pages that a client shares with a worker of its machine: SESSION_PAGES_SIZE bytes, of which only those exist that
 * are used, which nobody can make smaller. A descriptor, or -errno.
 */
int shm_pages_make(void);

static inline struct session_header *shm_header(const struct shm *shm)
{
	return (struct session_header *)(void *)shm->base;
}

/* Indices are checked by the caller: they come from elsewhere. */
static inline struct reply_slot *shm_slot(const struct shm *shm, uint32_t slot)
{
	return (struct reply_slot *)(void *)(shm->base + SESSION_AT_SLOTS) + slot;
}

static inline uint32_t *shm_progress(const struct shm *shm, uint32_t word)
{
	return (uint32_t *)(void *)(shm->base + SESSION_AT_PROGRESS) + word;
}

static inline uint32_t *shm_landed(const struct shm *shm, uint32_t granule)
{
	return (uint32_t *)(void *)(shm->base + SESSION_AT_LANDED) + granule;
}

static inline struct error_word *shm_error(const struct shm *shm, uint32_t context)
{
	return (struct error_word *)(void *)(shm->base + SESSION_AT_ERRORS) + context;
}

static inline struct api_count *shm_count(const struct shm *shm, uint32_t api)
{
	return (struct api_count *)(void *)(shm->base + SESSION_AT_COUNTS) + api;
}

/* SESSION_TIMES counts, broker/proto/times.h. */
static inline uint32_t *shm_times(const struct shm *shm, uint32_t api)
{
	return (uint32_t *)(void *)(shm->base + SESSION_AT_TIMES) + api * SESSION_TIMES;
}

static inline uint8_t *shm_up(const struct shm *shm)
{
	return shm->base + SESSION_AT_UP;
}

static inline uint8_t *shm_down(const struct shm *shm)
{
	return shm->base + SESSION_AT_DOWN;
}

/*
 * Bytes of an arena are about to be read, or written, by this process: their pages are mapped in one go when it happens for the first
 * time. One by one, by faults, they cost several microseconds each, in each of the processes that a copy goes through.
 */
void shm_arena_touch(struct shm *shm, uint32_t at, uint32_t size, bool write);

static inline void shm_up_touch(struct shm *shm, uint32_t offset, uint32_t size, bool write)
{
	shm_arena_touch(shm, offset, size, write);
}

static inline void shm_down_touch(struct shm *shm, uint32_t offset, uint32_t size, bool write)
{
	shm_arena_touch(shm, SESSION_UP_SIZE + offset, size, write);
}

/* The own ends of the rings, at position 0. */
void shm_ring_c2n(const struct shm *shm, struct ring *ring_out);
void shm_ring_n2c(const struct shm *shm, struct ring *ring_out);
/* Of a client's memory; both ends are its daemon's. */
void shm_ring_overflow(const struct shm *shm, struct ring *ring_out);
/* Of a memory that client and worker share: the daemon's own. */
void shm_ring_side_c2n(const struct shm *shm, struct ring *ring_out);
void shm_ring_side_n2c(const struct shm *shm, struct ring *ring_out);

/* Every futex of the memory changes, and everybody who sleeps on one wakes to look at the state. */
void shm_wake_all(const struct shm *shm);

#endif
