// SPDX-License-Identifier: Apache-2.0
/*
 * Stream memory operations. Checks on the caller's thread, the words on the stream's.
 */
#include "broker/softgpu/soft_memop.h"

#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/soft_map.h"

#define WAIT_COMPARE 3u /* the bits that say how */
#define WAIT_FLAGS (WAIT_COMPARE | CU_STREAM_WAIT_VALUE_FLUSH)

static unsigned int op_size(uint32_t operation)
{
	return operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ? 8 : 4;
}

CUresult soft_memop_check(const CUstreamBatchMemOpParams *ops, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		const CUstreamBatchMemOpParams *op = &ops[i];
		unsigned int allowed;
		bool write = false;

		switch (op->operation) {
		case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		case CU_STREAM_MEM_OP_WRITE_VALUE_64:
			write = true;
			allowed = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
			break;
		case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		case CU_STREAM_MEM_OP_WAIT_VALUE_64:
			allowed = WAIT_FLAGS;
			break;
		case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
			if (op->flushRemoteWrites.flags)
				return CUDA_ERROR_INVALID_VALUE;
			continue;
		case CU_STREAM_MEM_OP_BARRIER:
			if (op->memoryBarrier.flags > 1)
				return CUDA_ERROR_INVALID_VALUE;
			continue;
		default:
			return CUDA_ERROR_INVALID_VALUE;
		}
		/* Waits and writes have the same layout. */
		if (op->waitValue.flags & ~allowed || op->waitValue.address % op_size(op->operation) ||
		    !soft_map_covers(op->waitValue.address, op_size(op->operation), write))
			return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

static bool word_matches(uint64_t word, uint64_t value, unsigned int flags, unsigned int size)
{
	switch (flags & WAIT_COMPARE) {
	case CU_STREAM_WAIT_VALUE_GEQ:
		/* Cyclic: a counter may wrap. */
		if (size == 4)
			return (int32_t)((uint32_t)word - (uint32_t)value) >= 0;
		return (int64_t)(word - value) >= 0;
	case CU_STREAM_WAIT_VALUE_EQ:
		return word == value;
	case CU_STREAM_WAIT_VALUE_AND:
		return (word & value) != 0;
	default:
		/* NOR: some bit is clear in both. */
		return size == 4 ? (uint32_t)~(word | value) != 0 : ~(word | value) != 0;
	}
}

CUresult soft_memop_ready(const CUstreamBatchMemOpParams *op, bool *ready_out)
{
	unsigned int size = op_size(op->operation);
	uint64_t address = op->waitValue.address;
	CUresult result = CUDA_SUCCESS;
	struct soft_visit visit;
	uint64_t word = 0;

	*ready_out = true;
	if (op->operation != CU_STREAM_MEM_OP_WAIT_VALUE_32 && op->operation != CU_STREAM_MEM_OP_WAIT_VALUE_64)
		return CUDA_SUCCESS;
	soft_visit_begin(&visit);
	if (!soft_map_covers(address, size, false)) {
		soft_log("wait for the word at %#llx: the memory was freed", (unsigned long long)address);
		result = CUDA_ERROR_ILLEGAL_ADDRESS;
	} else if (size == 4) {
		/* Pairs with whatever release the writer of the word uses: what it wrote before is seen after. */
		word = __atomic_load_n((const uint32_t *)(uintptr_t)address, __ATOMIC_ACQUIRE);
	} else {
		word = __atomic_load_n((const uint64_t *)(uintptr_t)address, __ATOMIC_ACQUIRE);
	}
	soft_visit_end(&visit);
	*ready_out = word_matches(word, size == 4 ? op->waitValue.value : op->waitValue.value64,
				  op->waitValue.flags, size);
	return result;
}

CUresult soft_memop_run(const CUstreamBatchMemOpParams *op)
{
	uint64_t address = op->writeValue.address;
	CUresult result = CUDA_SUCCESS;
	struct soft_visit visit;

	if (op->operation != CU_STREAM_MEM_OP_WRITE_VALUE_32 && op->operation != CU_STREAM_MEM_OP_WRITE_VALUE_64) {
		/* What the stream did before is visible to everyone from here on. */
		atomic_thread_fence(memory_order_seq_cst);
		return CUDA_SUCCESS;
	}
	soft_visit_begin(&visit);
	if (!soft_map_covers(address, op_size(op->operation), true)) {
		soft_log("write of the word at %#llx: the memory was freed", (unsigned long long)address);
		result = CUDA_ERROR_ILLEGAL_ADDRESS;
	} else if (op_size(op->operation) == 4) {
		/* Pairs with the acquire of whoever polls the word. */
		__atomic_store_n((uint32_t *)(uintptr_t)address, op->writeValue.value, __ATOMIC_SEQ_CST);
	} else {
		__atomic_store_n((uint64_t *)(uintptr_t)address, op->writeValue.value64, __ATOMIC_SEQ_CST);
	}
	soft_visit_end(&visit);
	return result;
}

CUresult soft_memop_run_all(const CUstreamBatchMemOpParams *ops, unsigned int count, const struct soft_stream *stream)
{
	for (unsigned int i = 0; i < count; i++) {
		unsigned int round = 0;
		bool ready;

		for (;;) {
			TRY(soft_memop_ready(&ops[i], &ready));
			if (ready)
				break;
			if (soft_stream_stopped(stream))
				return CUDA_SUCCESS;
			soft_poll_pause(&round);
		}
		TRY(soft_memop_run(&ops[i]));
	}
	return CUDA_SUCCESS;
}

struct memop_command {
	struct soft_command command;
	unsigned int count;
	CUstreamBatchMemOpParams ops[];
};

static CUresult memop_run(struct soft_command *command, struct soft_stream *stream)
{
	struct memop_command *memop = (struct memop_command *)command;

	return soft_memop_run_all(memop->ops, memop->count, stream);
}

static void memop_free(struct soft_command *command)
{
	free(command);
}

SOFT_API(cuStreamBatchMemOp_v2, CUstream handle, unsigned int count, CUstreamBatchMemOpParams *ops, unsigned int flags)
{
	struct memop_command *memop;

	SOFT_STREAM_ARG(stream, handle);
	if (!count || count > SOFT_MEMOPS_MAX || !ops || flags)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_memop_check(ops, count));
	memop = calloc(1, sizeof(*memop) + count * sizeof(*ops));
	if (!memop)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memop->command.run = memop_run;
	memop->command.free = memop_free;
	memop->count = count;
	memcpy(memop->ops, ops, count * sizeof(*ops));
	return soft_stream_submit(stream, &memop->command, NULL);
}

SOFT_ALIAS(cuStreamBatchMemOp, cuStreamBatchMemOp_v2);

static CUresult memop_one(CUstream stream, uint32_t operation, CUdeviceptr address, uint64_t value, unsigned int flags)
{
	CUstreamBatchMemOpParams op = { .pad = { 0 } };

	op.waitValue.operation = operation;
	op.waitValue.address = address;
	if (op_size(operation) == 8)
		op.waitValue.value64 = value;
	else
		op.waitValue.value = (uint32_t)value;
	op.waitValue.flags = flags;
	return cuStreamBatchMemOp_v2(stream, 1, &op, 0);
}

SOFT_API(cuStreamWaitValue32_v2, CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags)
{
	return memop_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}

SOFT_API(cuStreamWaitValue64_v2, CUstream stream, CUdeviceptr address, uint64_t value, unsigned int flags)
{
	return memop_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}

SOFT_API(cuStreamWriteValue32_v2, CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags)
{
	return memop_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}

SOFT_API(cuStreamWriteValue64_v2, CUstream stream, CUdeviceptr address, uint64_t value, unsigned int flags)
{
	return memop_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}

SOFT_ALIAS(cuStreamWaitValue32, cuStreamWaitValue32_v2);
SOFT_ALIAS(cuStreamWaitValue64, cuStreamWaitValue64_v2);
SOFT_ALIAS(cuStreamWriteValue32, cuStreamWriteValue32_v2);
SOFT_ALIAS(cuStreamWriteValue64, cuStreamWriteValue64_v2);
