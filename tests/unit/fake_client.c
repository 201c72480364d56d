// SPDX-License-Identifier: Apache-2.0
/*
 * The fake client's session and worker. Thread: the test's, and one worker thread between start and stop.
 */
#include "tests/unit/fake_client.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "broker/lib/shm.h"
#include "broker/lib/slot.h"
#include "gen/bodies.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/servers.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stream.h"

CUresult fake_open_result;
unsigned int fake_open_count;
struct snapshot fake_snapshot;
struct fake_answer fake_answer;
unsigned int fake_waits;
CUresult fake_wait_result;

static const uint8_t hash[32] = { 1 };
static struct session session;
static struct session *current;
static struct ring worker_ring;

/* ---- the snapshot ---- */

void fake_snapshot_fill(void)
{
	static const uint8_t uuids[2][16] = {
		{ 0x1f, 0x50, 0x99, 0x20, 0x0f, 0xc8, 0x67, 0xdd, 0x93, 0xe3, 0xe0, 0xbd, 0x9e, 0xe6, 0x64, 0x9a },
		{ 0x96, 0x98, 0x34, 0x8a, 0x87, 0x1f, 0xae, 0xa7, 0xc7, 0xfe, 0x6c, 0x8d, 0x13, 0x89, 0xf4, 0xcf },
	};
	struct snapshot *s = &fake_snapshot;

	memset(s, 0, sizeof(*s));
	s->driver_version = 13000;
	setenv("GLEAM_GPUS", "all", 1); /* tests are of several devices */
	s->device_count = 2;
	for (int i = 0; i < 2; i++) {
		struct snapshot_device *d = &s->devices[i];

		snprintf(d->name, sizeof(d->name), "NVIDIA H200 %d", i);
		memcpy(d->uuid, uuids[i], 16);
		memcpy(d->uuid_v1, uuids[i], 16);
		/* The faster one has the higher place on the bus. */
		snprintf(d->pci, sizeof(d->pci), "0000:0%d:00.0", 7 - i);
		d->attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] = 7 - i;
		d->attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
		d->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = 132 - i;
		d->attributes[CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS] = 1;
		d->attributes[CU_DEVICE_ATTRIBUTE_NUMA_ID] = 5;
		d->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = 9;
		d->attributes[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH] = 1 << 28;
		d->memory = 150000000000ull + (unsigned int)i;
		d->priority_greatest = -5;
		d->limits_known = 1 << CU_LIMIT_STACK_SIZE | 1 << CU_LIMIT_PRINTF_FIFO_SIZE;
		d->limits[CU_LIMIT_STACK_SIZE] = 1024;
		d->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 8650752;
		d->shared_config = 1;
		d->context_flags = CU_CTX_MAP_HOST;
		d->api_version = 3020;
		d->tpcs = 4;
		memcpy(d->tpc_place, "\0\1\0\1", 4);
		memcpy(d->tpc_group, "\0\0\1\1", 4);
	}
}

/* ---- in place of session.c ---- */

struct session *session_current(void)
{
	return current;
}

struct session *session_at(uint32_t index)
{
	return index ? NULL : current;
}

uint32_t session_count(void)
{
	return current != NULL;
}

struct session *session_of_unit(uint64_t unit)
{
	return current && unit < current->snapshot.device_count ? current : NULL;
}

struct session *fake_session(void)
{
	return current;
}

int servers_open(CUresult *result_out)
{
	fake_open_count++;
	*result_out = fake_open_result;
	if (fake_open_result)
		return -ECONNREFUSED;
	if (shm_make(&session.shm, hash, 1))
		return -ENOMEM;
	session.header = shm_header(&session.shm);
	session_live_post(&session.shm);
	session.snapshot = fake_snapshot;
	session.doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&session.append_lock, NULL);
	shm_ring_c2n(&session.shm, &session.c2n);
	shm_ring_c2n(&session.shm, &worker_ring);
	current = &session;
	return 0;
}

bool session_is_dead(struct session *s)
{
	return __atomic_load_n(&s->dead, __ATOMIC_RELAXED);
}

bool session_check(struct session *s)
{
	return session_is_dead(s);
}

CUresult session_death(struct session *s)
{
	return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

uint16_t session_slot_take(struct session *s)
{
	for (;;)
		for (uint16_t i = 0; i < 64; i++)
			if (!(__atomic_fetch_or(&s->slots_used[0], 1ull << i, __ATOMIC_ACQUIRE) & 1ull << i))
				return i;
}

void session_slot_give(struct session *s, uint16_t slot)
{
	__atomic_fetch_and(&s->slots_used[0], ~(1ull << slot), __ATOMIC_RELEASE);
}

bool session_reached(const struct session *s, uint32_t word, uint64_t seq)
{
	return true;
}

CUresult session_error_peek(const struct session *s, uint32_t index)
{
	return (CUresult)shm_error(&s->shm, index)->code;
}

CUresult session_error_take(struct session *s, uint32_t index)
{
	return session_error_peek(s, index);
}

/* ---- in place of stream.c: streams are numbers ---- */

CUresult context_wait(struct call *call)
{
	__atomic_fetch_add(&fake_waits, 1, __ATOMIC_RELAXED);
	return fake_wait_result;
}

CUresult call_stream_named(struct call *call, CUstream stream, uint64_t *handle_out)
{
	uint64_t value = (uint64_t)(uintptr_t)stream;

	if (value == 2 || (!value && call->ptds))
		value = 0x1000 + call->thread->number;
	else if (value < 2)
		value = WIRE_STREAM_LEGACY;
	*handle_out = value;
	return CUDA_SUCCESS;
}

uint64_t stream_id(struct call *call, uint64_t handle)
{
	return handle == WIRE_STREAM_LEGACY ? UINT64_MAX - call->context->id : handle;
}

/* ---- the worker ---- */

bool fake_command(struct frame_hdr *hdr_out, uint8_t payload_out[256], uint32_t *size_out)
{
	const uint8_t *frame;
	uint32_t size;

	do {
		if (!current || ring_peek(&worker_ring, hdr_out, &frame) <= 0)
			return false;
		size = hdr_out->size - (uint32_t)sizeof(*hdr_out);
		if (hdr_out->kind == FRAME_COMMAND)
			memcpy(payload_out, frame + sizeof(*hdr_out), size < 256 ? size : 256);
		ring_next(&worker_ring, hdr_out);
		ring_release(&worker_ring);
	} while (hdr_out->kind != FRAME_COMMAND);
	*size_out = size;
	return true;
}

unsigned int fake_commands_of(enum op op)
{
	struct frame_hdr hdr;
	uint8_t payload[256];
	uint32_t size;
	unsigned int count = 0;

	while (fake_command(&hdr, payload, &size))
		count += hdr.op == op;
	return count;
}

static pthread_t worker;
static uint32_t worker_stop; /* atomic */

static void *worker_run(void *arg)
{
	struct frame_hdr hdr;
	uint8_t payload[256];
	uint32_t size;

	while (!__atomic_load_n(&worker_stop, __ATOMIC_ACQUIRE)) {
		if (!fake_command(&hdr, payload, &size)) {
			usleep(200);
			continue;
		}
		if (!(hdr.flags & FRAME_WANTS_REPLY))
			continue;

		uint8_t reply[sizeof(hdr) + 4 + 4 + sizeof(fake_answer.out)] = { 0 };
		struct writer w = writer_on(reply + sizeof(hdr), sizeof(reply) - sizeof(hdr));
		struct frame_hdr answer = hdr;

		put_u32(&w, (uint32_t)fake_answer.result);
		if (fake_answer.out_size) {
			put_u32(&w, 0); /* out fields of 8 bytes are aligned */
			memcpy(reply + sizeof(hdr) + 8, fake_answer.out, fake_answer.out_size);
			w.at = 8 + fake_answer.out_size;
		}
		answer.kind = FRAME_REPLY;
		answer.size = (uint32_t)(sizeof(hdr) + w.at);
		memcpy(reply, &answer, sizeof(answer));
		session_reply_post(&current->shm, reply);
	}
	return NULL;
}

void fake_worker_start(void)
{
	__atomic_store_n(&worker_stop, 0, __ATOMIC_RELEASE);
	pthread_create(&worker, NULL, worker_run, NULL);
}

void fake_worker_stop(void)
{
	__atomic_store_n(&worker_stop, 1, __ATOMIC_RELEASE);
	pthread_join(worker, NULL);
}
