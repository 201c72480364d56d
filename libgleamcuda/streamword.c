// SPDX-License-Identifier: Apache-2.0
/*
 * Words that streams wait for and write. A word of device memory is the worker's affair; one of page-locked memory makes its
 * range exposed, and the stream at the worker looks at the mirror, which has the same address. Application threads.
 */
#include "libgleamcuda/streamword.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/across.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/copy.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/exposed.h"
#include "libgleamcuda/graph.h"
#include "libgleamcuda/hostfunc.h"
#include "libgleamcuda/region.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stream.h"

#define WORDS_MAX 256u	/* of a batch: the driver's own limit */
#define WAITERS_MAX 64u /* streams that wait for the host at a time; with more, every pinned source is read late */

/* ---- streams that wait for the host ---- */

struct waiter {
	struct session *session;
	uint32_t word; /* progress word of the stream */
	uint64_t seq;  /* of its newest wait */
};

static pthread_mutex_t waiters_lock = PTHREAD_MUTEX_INITIALIZER;
static struct waiter waiters[WAITERS_MAX]; /* guarded by waiters_lock */
static uint32_t waiter_count;		   /* atomic; written under waiters_lock */

static void waiter_add(struct call *call, uint64_t stream, uint64_t seq)
{
	uint32_t word = stream_find(call, stream)->word;
	uint32_t i = 0;

	pthread_mutex_lock(&waiters_lock);
	while (i < waiter_count && (waiters[i].word != word || waiters[i].session != call->session))
		i++;
	/* More than there is room for: the last place keeps the newest, and is done when that is. */
	if (i == WAITERS_MAX)
		i--;
	waiters[i] = (struct waiter){ call->session, word, seq };
	if (i == waiter_count)
		__atomic_store_n(&waiter_count, i + 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&waiters_lock);
}

bool streamword_waiting(void)
{
	uint32_t kept = 0;

	if (!__atomic_load_n(&waiter_count, __ATOMIC_RELAXED))
		return false;
	pthread_mutex_lock(&waiters_lock);
	for (uint32_t i = 0; i < waiter_count; i++)
		if (!session_is_dead(waiters[i].session) && !session_reached(waiters[i].session, waiters[i].word, waiters[i].seq))
			waiters[kept++] = waiters[i];
	__atomic_store_n(&waiter_count, kept, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&waiters_lock);
	return kept != 0;
}

struct later {
	struct context *context;
	struct copy copy;
};

/* On the thread of host functions; the stream stands still until this returns. */
static void later_run(void *arg)
{
	struct later *later = arg;
	struct stream *side;
	struct call call;

	call_start(&call, later->context->session, later->context);
	/* Not on the stream, which waits for us: beside it, and it has to be there when the stream goes on. */
	side = stream_side(&call);
	if (side) {
		later->copy.stream = side->handle;
		if (!copy_run(&call, &later->copy))
			stream_wait(&call, side);
	}
	call_leave(&call, CUDA_SUCCESS);
	free(later);
}

CUresult streamword_copy_later(struct call *call, const struct copy *copy)
{
	struct later *later = malloc(sizeof(*later));
	CUresult result;

	if (!later)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*later = (struct later){ .context = call->context, .copy = *copy };
	/* The stream has come to it: all that could write the source is done, nothing is to be waited for. */
	later->copy.src_place = PLACE_PAGEABLE;
	later->copy.async = true;
	result = hostfunc_stop(call, copy->stream, later_run, later);
	if (result)
		free(later);
	return result;
}

/* ---- checks ---- */

static bool device_has(const struct call *call, CUdevice_attribute attribute)
{
	const struct device *device = device_at(call->context->device);

	return device && device->attributes[attribute];
}

static CUresult wait_flags(const struct call *call, unsigned int flags)
{
	if (flags & ~(unsigned int)(CU_STREAM_WAIT_VALUE_NOR | CU_STREAM_WAIT_VALUE_FLUSH))
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CU_STREAM_WAIT_VALUE_FLUSH && !device_has(call, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES))
		return CUDA_ERROR_NOT_SUPPORTED;
	if ((flags & CU_STREAM_WAIT_VALUE_NOR) == CU_STREAM_WAIT_VALUE_NOR &&
	    !device_has(call, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR))
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

/* Is @address a place for a word of @size bytes that the device reaches? */
static CUresult word_check(uint64_t address, uint64_t size, enum place *place_out)
{
	uint64_t left;

	if (!address || address % size)
		return CUDA_ERROR_INVALID_VALUE;
	*place_out = place_of(address, &left);
	return *place_out == PLACE_PAGEABLE || left < size ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Bytes of the word that an operation is about; 0: none. */
static uint32_t word_size(CUstreamBatchMemOpType operation)
{
	switch ((int)operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		return 4;
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return 8;
	default:
		return 0;
	}
}

/* Waits and writes have the same layout. */
static CUresult op_check(const struct call *call, const CUstreamBatchMemOpParams *op)
{
	uint32_t size = word_size(op->operation);
	CUresult result;
	enum place place;

	if (size == 8 && !device_has(call, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS))
		return CUDA_ERROR_NOT_SUPPORTED;
	switch ((int)op->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		result = wait_flags(call, op->waitValue.flags);
		return result ? result : word_check(op->waitValue.address, size, &place);
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		/* An H200 refuses to leave the barrier out; asking each device would cost a trip. */
		if (op->writeValue.flags)
			return CUDA_ERROR_INVALID_VALUE;
		return word_check(op->writeValue.address, size, &place);
	case CU_STREAM_MEM_OP_BARRIER:
		return op->memoryBarrier.flags > CU_STREAM_MEMORY_BARRIER_TYPE_GPU ? CUDA_ERROR_INVALID_VALUE :
										       CUDA_SUCCESS;
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		if (op->flushRemoteWrites.flags)
			return CUDA_ERROR_INVALID_VALUE;
		return device_has(call, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES) ? CUDA_SUCCESS :
											CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* Host memory that a stream looks at, or writes to, is mirrored from now on. */
static CUresult op_expose(struct call *call, const CUstreamBatchMemOpParams *op, bool *waits_out)
{
	uint32_t size = word_size(op->operation);
	uint64_t address, left;
	CUresult result;
	enum place place;

	if (!size)
		return CUDA_SUCCESS;
	result = word_check(op->waitValue.address, size, &place);
	if (result || place != PLACE_PINNED)
		return result;
	address = op->waitValue.address;
	place_host(&address, &left);
	result = exposed_need(call, address);
	if (result)
		return result;
	if (op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64) {
		exposed_watch(address, size);
		*waits_out = true;
	}
	return CUDA_SUCCESS;
}

/* What a call is about: filled by words_begin(). */
struct words {
	uint64_t stream;
	bool captured; /* it has become a node, and nothing is to be sent */
	bool waits;    /* for the host */
};

static CUresult words_begin(struct call *call, CUstream hStream, unsigned int count, CUstreamBatchMemOpParams *ops,
			    struct words *words_out)
{
	CUresult result = call_stream_captured(call, hStream, &words_out->stream, &words_out->captured);

	if (result)
		return result;
	for (unsigned int i = 0; i < count; i++) {
		result = op_check(call, &ops[i]);
		if (!result && across_any() && word_size(ops[i].operation) && across_owner(call, ops[i].waitValue.address))
			result = call_refuse(call, "a stream reaches words of its own server's GPUs and of the host alone");
		if (result)
			return result;
	}
	for (unsigned int i = 0; i < count; i++) {
		result = op_expose(call, &ops[i], &words_out->waits);
		if (result)
			return result;
	}
	if (words_out->captured) {
		CUDA_BATCH_MEM_OP_NODE_PARAMS params = { .ctx = call->context->handle, .count = count, .paramArray = ops };
		struct graph_work work;

		result = graph_work_words(call, &params, &work);
		return result ? result : capture_add(call, words_out->stream, &work);
	}
	/* What the host has written before is older than what the stream will write, and may be what it waits for. */
	if (exposed_any())
		exposed_push(call);
	for (unsigned int i = 0; region_any() && i < count && !result; i++)
		result = region_use(call, words_out->stream, ops[i].waitValue.address, word_size(ops[i].operation), true);
	return result;
}

/* Publish the command that is open. */
static void words_post(struct call *call, const struct words *words)
{
	uint64_t seq = call_post(call);

	stream_note(call, words->stream, seq);
	if (words->waits)
		waiter_add(call, words->stream, seq);
}

static CUresult one_begin(struct call *call, CUstream hStream, CUstreamBatchMemOpType operation, CUdeviceptr addr,
			  cuuint64_t value, unsigned int flags, struct words *words_out)
{
	CUstreamBatchMemOpParams op = { .pad = { 0 } };

	op.waitValue.operation = operation;
	op.waitValue.address = addr;
	if (word_size(operation) == 8)
		op.waitValue.value64 = value;
	else
		op.waitValue.value = (cuuint32_t)value;
	op.waitValue.flags = flags;
	return words_begin(call, hStream, 1, &op, words_out);
}

#define WORD(name, bits, kind)                                                                                         \
	CUresult do_cuStream##name##_v2(struct call *call, CUstream stream, CUdeviceptr addr, cuuint##bits##_t value,   \
					unsigned int flags)                                                            \
	{                                                                                                              \
		struct msg_cuStream##name##_v2 m = { .addr = addr, .value = value, .flags = flags };                   \
		struct words words = { 0 };                                                                            \
		CUresult result = one_begin(call, stream, CU_STREAM_MEM_OP_##kind, addr, value, flags, &words);         \
                                                                                                                       \
		if (result || words.captured)                                                                          \
			return result;                                                                                 \
		m.stream = words.stream;                                                                               \
		m.addr = exposed_device(addr);                                                                         \
		result = call_open(call, OP_cuStream##name##_v2, msg_cuStream##name##_v2_size(&m));                    \
		if (result)                                                                                            \
			return result;                                                                                 \
		msg_cuStream##name##_v2_put(&call->w, &m);                                                             \
		words_post(call, &words);                                                                              \
		return CUDA_SUCCESS;                                                                                   \
	}

WORD(WaitValue32, 32, WAIT_VALUE_32)
WORD(WaitValue64, 64, WAIT_VALUE_64)
WORD(WriteValue32, 32, WRITE_VALUE_32)
WORD(WriteValue64, 64, WRITE_VALUE_64)

CUresult do_cuStreamBatchMemOp_v2(struct call *call, CUstream stream, unsigned int count,
				  CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
	struct msg_cuStreamBatchMemOp_v2 m = { .count = count, .flags = flags };
	CUstreamBatchMemOpParams *moved = NULL;
	struct words words = { 0 };
	CUresult result;

	if (!count)
		return CUDA_SUCCESS; /* as the driver */
	if (count > WORDS_MAX || !paramArray || flags)
		return CUDA_ERROR_INVALID_VALUE;
	m.ops_size = count * (uint32_t)sizeof(paramArray[0]);
	result = words_begin(call, stream, count, paramArray, &words);
	if (result || words.captured)
		return result;
	m.stream = words.stream;
	result = exposed_ops(paramArray, count, &moved);
	m.ops = moved ? moved : paramArray;
	if (!result)
		result = call_open(call, OP_cuStreamBatchMemOp_v2, msg_cuStreamBatchMemOp_v2_size(&m));
	if (!result) {
		msg_cuStreamBatchMemOp_v2_put(&call->w, &m);
		words_post(call, &words);
	}
	free(moved);
	return result;
}
