// SPDX-License-Identifier: Apache-2.0
/*
 * Exposed host memory. A shadow of each range holds what both sides agreed on last; what differs from it is what this
 * side has changed, and exactly those bytes travel, so that words of both sides beside each other survive. The cost is
 * a comparison of all exposed memory per launch: these ranges are small (flags, counters, results) in real programs.
 */
#include "libgleamcuda/exposed.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/session.h"

#define PAGE  4096ull
#define BLOCK 256u /* compared at once; only in those that differ single bytes are looked at */
#define LARGE (1ull << 20)

struct exposed {
	struct exposed *next;
	uint64_t start;
	uint64_t size;
	uint8_t *shadow;
};

uint32_t exposed_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct exposed *all; /* guarded by lock */

static struct exposed **find_locked(uint64_t start)
{
	struct exposed **at = &all;

	while (*at && (*at)->start != start)
		at = &(*at)->next;
	return at;
}

bool exposed_is(uint64_t start)
{
	bool is;

	pthread_mutex_lock(&lock);
	is = *find_locked(start) != NULL;
	pthread_mutex_unlock(&lock);
	return is;
}

bool exposed_holds(uint64_t address)
{
	bool holds = false;

	pthread_mutex_lock(&lock);
	for (struct exposed *e = all; e && !holds; e = e->next)
		holds = address - e->start < e->size;
	pthread_mutex_unlock(&lock);
	return holds;
}

/* The worker mirrors whole pages. */
static struct msg_gleamHostRange range_message(uint64_t start, uint64_t size, uint32_t open)
{
	uint64_t first = start & ~(PAGE - 1);

	return (struct msg_gleamHostRange){ .address = first, .bytes = ((start + size + PAGE - 1) & ~(PAGE - 1)) - first,
					    .open = open };
}

CUresult exposed_open(struct call *call, uint64_t start, uint64_t size)
{
	struct msg_gleamHostRange m = range_message(start, size, 1);
	struct exposed *exposed;
	CUresult result;

	if (exposed_is(start))
		return CUDA_SUCCESS;
	exposed = calloc(1, sizeof(*exposed));
	if (!exposed)
		return CUDA_ERROR_OUT_OF_MEMORY;
	exposed->start = start;
	exposed->size = size;
	/* The fresh mirror is zero, and so is this. */
	exposed->shadow = calloc(1, size);
	if (!exposed->shadow) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
		goto free_exposed;
	}
	result = call_open(call, OP_gleamHostRange, msg_gleamHostRange_size(&m));
	if (result)
		goto free_shadow;
	msg_gleamHostRange_put(&call->w, &m);
	result = call_wait(call);
	if (result)
		goto free_shadow;
	if (size >= LARGE)
		gleam_log("%llu MiB of host memory can be reached by kernels: each launch compares them",
			  (unsigned long long)(size >> 20));
	pthread_mutex_lock(&lock);
	exposed->next = all;
	all = exposed;
	__atomic_fetch_add(&exposed_count, 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;

free_shadow:
	free(exposed->shadow);
free_exposed:
	free(exposed);
	return result;
}

void exposed_close(struct call *call, uint64_t start)
{
	struct msg_gleamHostRange m;
	struct exposed *exposed;

	pthread_mutex_lock(&lock);

	struct exposed **at = find_locked(start);

	exposed = *at;
	if (exposed) {
		*at = exposed->next;
		__atomic_fetch_sub(&exposed_count, 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	if (!exposed)
		return;
	m = range_message(start, exposed->size, 0);
	if (!call_open(call, OP_gleamHostRange, msg_gleamHostRange_size(&m))) {
		msg_gleamHostRange_put(&call->w, &m);
		call_wait(call);
	}
	free(exposed->shadow);
	free(exposed);
}

static bool write_post(struct call *call, uint64_t address, const uint8_t *bytes, uint32_t size)
{
	struct msg_gleamHostWrite m = { .address = address, .data = bytes, .data_size = size };

	if (call_open(call, OP_gleamHostWrite, msg_gleamHostWrite_size(&m)))
		return false;
	msg_gleamHostWrite_put(&call->w, &m);
	call_post(call);
	return true;
}

/* Runs of changed bytes go out from the shadow, which has them by then: the host may go on writing. */
static bool push_one(struct call *call, struct exposed *e)
{
	const volatile uint8_t *memory = (const volatile uint8_t *)(uintptr_t)e->start;
	uint64_t run = 0, run_size = 0;

	for (uint64_t block = 0; block < e->size; block += BLOCK) {
		uint64_t size = e->size - block < BLOCK ? e->size - block : BLOCK;

		if (!run_size && !memcmp((const void *)(uintptr_t)(e->start + block), e->shadow + block, size))
			continue;
		for (uint64_t at = block; at < block + size; at++) {
			uint8_t now = memory[at];

			if (now != e->shadow[at]) {
				e->shadow[at] = now;
				if (!run_size)
					run = at;
				if (++run_size < INLINE_MAX)
					continue;
			} else if (!run_size) {
				continue;
			}
			if (!write_post(call, e->start + run, e->shadow + run, (uint32_t)run_size))
				return false;
			run_size = 0;
		}
	}
	return !run_size || write_post(call, e->start + run, e->shadow + run, (uint32_t)run_size);
}

void exposed_push(struct call *call)
{
	pthread_mutex_lock(&lock);
	for (struct exposed *e = all; e; e = e->next)
		if (!push_one(call, e))
			break; /* the session has ended */
	pthread_mutex_unlock(&lock);
}

void exposed_apply(struct reader *r)
{
	uint64_t address = get_u64(r);
	uint32_t size = 0;
	const uint8_t *bytes = get_bytes(r, FRAME_SIZE_MAX, &size);

	if (r->fault)
		return;
	pthread_mutex_lock(&lock);
	for (struct exposed *e = all; e; e = e->next) {
		for (uint32_t i = 0; i < size; i++) {
			uint64_t at = address + i - e->start;

			if (at >= e->size)
				continue;
			/* Byte by byte: neighbours that the host writes meanwhile stay as they are. */
			*(volatile uint8_t *)(uintptr_t)(e->start + at) = bytes[i];
			e->shadow[at] = bytes[i];
		}
	}
	pthread_mutex_unlock(&lock);
}

void exposed_settle(struct session *s)
{
	/* The broker has put the bytes into the ring before the word or the reply that said that the work is done. */
	uint64_t head = __atomic_load_n(&s->header->n2c.head, __ATOMIC_ACQUIRE);

	for (int turn = 0; __atomic_load_n(&s->header->n2c.tail, __ATOMIC_ACQUIRE) < head; turn++) {
		if (session_is_dead(s))
			return;
		if (turn < 100)
			sched_yield();
		else
			nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
	}
}
