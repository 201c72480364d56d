/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Atomics: lanes one after the other, each with the processor's own atomic or a compare-and-swap loop, in every
 * space alike. The pool's threads.
 */
#include <string.h>

#include "broker/softgpu/exec_memory.h"
#include "broker/softgpu/small_float.h"

static uint64_t read_reg(struct exec_warp *warp, uint32_t slot, uint32_t size, uint32_t lane)
{
	uint64_t value = 0;

	memcpy(&value, exec_slot(warp, slot) + lane * size, size);
	return value;
}

static float half_get(uint16_t h, bool bf)
{
	return bf ? bf16_to_f32(h) : half_to_f32(h);
}

static uint16_t half_put(float value, bool bf)
{
	return bf ? f32_to_bf16(value) : f32_to_half(value);
}

static uint16_t half_combine(enum exec_atomic op, uint16_t x, uint16_t y, bool bf)
{
	float a = half_get(x, bf);
	float b = half_get(y, bf);

	if (op == AT_ADD)
		return half_put(a + b, bf);
	if (a != a)
		return y;
	if (b != b)
		return x;
	return op == AT_MIN ? (b < a ? y : x) : (b > a ? y : x);
}

/* The new value of 8, 4 or 2 bytes. */
static uint64_t combine(enum exec_atomic op, enum ptx_type type, uint64_t old, uint64_t b, uint64_t c)
{
	float f;
	float g;
	double e;
	double h;

	switch (op) {
	case AT_EXCH:
		return b;
	case AT_CAS:
		return old == b ? c : old;
	case AT_AND:
		return old & b;
	case AT_OR:
		return old | b;
	case AT_XOR:
		return old ^ b;
	case AT_INC:
		return (uint32_t)old >= (uint32_t)b ? 0 : (uint32_t)old + 1;
	case AT_DEC:
		return !(uint32_t)old || (uint32_t)old > (uint32_t)b ? (uint32_t)b : (uint32_t)old - 1;
	default:
		break;
	}
	switch (type) {
	case T_F32: {
		uint32_t x = (uint32_t)old;
		uint32_t y = (uint32_t)b;

		memcpy(&f, &x, sizeof(f));
		memcpy(&g, &y, sizeof(g));
		if (op == AT_ADD)
			f += g;
		else if (f != f || (op == AT_MIN ? g < f : g > f))
			f = g;
		memcpy(&x, &f, sizeof(x));
		return x;
	}
	case T_F64:
		memcpy(&e, &old, sizeof(e));
		memcpy(&h, &b, sizeof(h));
		if (op == AT_ADD)
			e += h;
		else if (e != e || (op == AT_MIN ? h < e : h > e))
			e = h;
		memcpy(&old, &e, sizeof(old));
		return old;
	case T_F16:
	case T_BF16:
		return half_combine(op, (uint16_t)old, (uint16_t)b, type == T_BF16);
	case T_F16X2:
	case T_BF16X2:
		return half_combine(op, (uint16_t)old, (uint16_t)b, type == T_BF16X2) |
		       (uint32_t)half_combine(op, (uint16_t)(old >> 16), (uint16_t)(b >> 16), type == T_BF16X2) << 16;
	case T_S32:
		if (op == AT_ADD)
			return (uint32_t)old + (uint32_t)b;
		return op == AT_MIN ? ((int32_t)b < (int32_t)old ? b : old) : ((int32_t)b > (int32_t)old ? b : old);
	case T_S64:
		if (op == AT_ADD)
			return old + b;
		return op == AT_MIN ? ((int64_t)b < (int64_t)old ? b : old) : ((int64_t)b > (int64_t)old ? b : old);
	default:
		if (op == AT_ADD)
			return old + b;
		return op == AT_MIN ? (b < old ? b : old) : (b > old ? b : old);
	}
}

bool exec_atomic_has(enum exec_atomic op, enum ptx_type type)
{
	switch (op) {
	case AT_EXCH:
	case AT_CAS:
		return type == T_B16 || type == T_B32 || type == T_B64 || type == T_B128 || type == T_U32 || type == T_U64 ||
		       type == T_S32 || type == T_S64;
	case AT_AND:
	case AT_OR:
	case AT_XOR:
		return type == T_B32 || type == T_B64;
	case AT_INC:
	case AT_DEC:
		return type == T_U32;
	case AT_ADD:
		if (type == T_F32 || type == T_F64)
			return true;
		/* fall through */
	default:
		return type == T_U32 || type == T_U64 || type == T_S32 || type == T_S64 || type == T_F16 || type == T_BF16 ||
		       type == T_F16X2 || type == T_BF16X2 || (op != AT_ADD && type == T_F32);
	}
}

#define LOOP_CAS(bits) \
	do { \
		uint##bits##_t *at_ = pointer; \
		uint##bits##_t seen_ = __atomic_load_n(at_, __ATOMIC_RELAXED); \
		uint##bits##_t next_; \
		do { \
			next_ = (uint##bits##_t)combine(op, type, seen_, b, c); \
		} while (!__atomic_compare_exchange_n(at_, &seen_, next_, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)); \
		old = seen_; \
	} while (0)

/* Sixteen bytes: exchange and compare-and-swap under one lock of the process, since only these are atomic. */
static pthread_mutex_t lock_128 = PTHREAD_MUTEX_INITIALIZER;

static void atomic_128(struct exec_warp *warp, const struct exec_insn *insn, uint32_t lane, void *pointer)
{
	uint8_t old[16];

	pthread_mutex_lock(&lock_128);
	memcpy(old, pointer, 16);
	if (insn->sub[0] == AT_EXCH)
		memcpy(pointer, exec_slot(warp, insn->src[1]) + lane * 16, 16);
	else if (!memcmp(old, exec_slot(warp, insn->src[1]) + lane * 16, 16))
		memcpy(pointer, exec_slot(warp, insn->src[2]) + lane * 16, 16);
	pthread_mutex_unlock(&lock_128);
	if (!insn->sub[2])
		memcpy(exec_slot(warp, insn->dst) + lane * 16, old, 16);
}

void exec_atomic(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	enum exec_atomic op = insn->sub[0];
	enum ptx_type type = insn->sub[1];
	uint32_t size = ptx_type_size(type);
	void *pointers[EXEC_LANES];

	if (!exec_pointers(warp, insn, mask, size, true, pointers))
		return;
	FOR_LANES(lane, mask)
	{
		void *pointer = pointers[lane];
		uint64_t old;
		uint64_t b;
		uint64_t c;

		if (size == 16) {
			atomic_128(warp, insn, lane, pointer);
			continue;
		}
		b = read_reg(warp, insn->src[1], size, lane);
		c = op == AT_CAS ? read_reg(warp, insn->src[2], size, lane) : 0;
		if (op == AT_ADD && (type == T_U32 || type == T_S32))
			old = __atomic_fetch_add((uint32_t *)pointer, (uint32_t)b, __ATOMIC_SEQ_CST);
		else if (op == AT_ADD && (type == T_U64 || type == T_S64))
			old = __atomic_fetch_add((uint64_t *)pointer, b, __ATOMIC_SEQ_CST);
		else if (size == 4)
			LOOP_CAS(32);
		else if (size == 8)
			LOOP_CAS(64);
		else
			LOOP_CAS(16);
		if (!insn->sub[2])
			memcpy(exec_slot(warp, insn->dst) + lane * size, &old, size);
	}
}
