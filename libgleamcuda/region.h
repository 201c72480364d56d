/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Managed memory: pages that host and device have in turns. On the device it is ordinary memory at the address that the host
 * knows it by. A page of the host is stale from when a command is sent that lets the device reach it, until the program
 * touches it: then the device's work is waited for, and the page is brought. What the host has written goes out before the
 * next command. Those are the rules of a device without concurrent access; a program that breaks them waits where it would
 * have crashed.
 *
 * Which pages the host has written the kernel tells (track.h), or a fault at the first write. The memory is mapped twice:
 * bytes come and go through the second mapping, which no other thread looks at. Any thread; one lock, never held over a wait
 * for the device's work. region_fault() runs in a signal handler: nobody may touch managed memory while holding a lock of the
 * library's.
 */
#ifndef GLEAM_REGION_H
#define GLEAM_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"

struct call;
struct context;

/* Who reaches it: cuStreamAttachMemAsync. */
enum region_attach { REGION_GLOBAL, REGION_HOST, REGION_STREAM };

extern uint32_t region_count;  /* atomic */
extern uint32_t region_wishes; /* atomic: regions that are to be brought at the next wait, or the process wants all */

static inline bool region_any(void)
{
	return __builtin_expect(__atomic_load_n(&region_count, __ATOMIC_RELAXED) != 0, 0);
}

static inline bool region_wished(void)
{
	return __builtin_expect(__atomic_load_n(&region_wishes, __ATOMIC_RELAXED) != 0, 0);
}

/*
 * [start, start + size) becomes managed memory of the call's context; @start and @size need not be whole pages, and regions
 * may share a page (variables of modules). @ours: the addresses are reserved by the library. @filled: the device has contents
 * already; otherwise both sides begin with zeros, and the device's are seen to. OUT_OF_MEMORY, NOT_SUPPORTED (the addresses
 * are taken in this process).
 */
CUresult region_open(struct call *call, uint64_t start, uint64_t size, bool ours, bool filled);
/* Its end; the device's memory is the caller's to free. Nothing of the host's is sent any more. */
void region_close(uint64_t start);

/* A command that may reach all managed memory of the call's server comes next on @stream, a wire handle: a launch. */
CUresult region_give(struct call *call, uint64_t stream);
/* The same for commands that @stream has already, and which wait for the host: the bytes go by another stream, and are there. */
CUresult region_give_by(struct call *call, uint64_t stream, uint64_t by);
/* A command that reads or writes these bytes comes next; harmless for any other memory. */
CUresult region_use(struct call *call, uint64_t stream, uint64_t address, uint64_t size, bool write);
/* What the host has written there goes out now, and the pages stay readable: a prefetch to the device. */
CUresult region_push(struct call *call, uint64_t stream, uint64_t address, uint64_t size);
/* Bring it at the first wait that finds the stream's work up to now done: a prefetch to the host. */
void region_wish(struct call *call, uint64_t stream, uint64_t address, uint64_t size);
/* A wait has succeeded: what was wished for is brought. */
void region_bring(struct call *call);

/* NULL stream unless REGION_STREAM. INVALID_VALUE if nothing begins at @start. */
CUresult region_attach(uint64_t start, enum region_attach attach, uint64_t stream);
void region_stream_gone(uint64_t stream);

/* Signal handler: the program has touched @address. True if it may go on. */
bool region_fault(uint64_t address, bool write);

#endif
