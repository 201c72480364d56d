/* SPDX-License-Identifier: Apache-2.0 */
/* Shuffles, votes, matches, reductions over a warp; mbarriers. The pool's threads. */
#include <string.h>

#include "broker/softgpu/exec_sync.h"

void exec_shfl(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const uint32_t *a = SRC(0, uint32_t);
	const uint32_t *b = SRC(1, uint32_t);
	const uint32_t *c = SRC(2, uint32_t);
	uint32_t *d = DST(uint32_t);
	uint32_t values[EXEC_LANES];
	uint32_t inside = 0;

	FOR_LANES(lane, mask)
	{
		uint32_t operand = b[lane] & 31;
		uint32_t clamp = c[lane] & 31;
		uint32_t segment = c[lane] >> 8 & 31;
		uint32_t max = (lane & segment) | (clamp & ~segment);
		uint32_t min = lane & segment;
		uint32_t from = lane;
		bool in;

		switch (insn->sub[0]) {
		case SHFL_UP:
			in = (int32_t)lane - (int32_t)operand >= (int32_t)max;
			from = lane - operand;
			break;
		case SHFL_DOWN:
			from = lane + operand;
			in = from <= max;
			break;
		case SHFL_BFLY:
			from = lane ^ operand;
			in = from <= max;
			break;
		default:
			from = min | (operand & ~segment);
			in = from <= max;
		}
		if (!in)
			from = lane;
		values[lane] = a[from & 31];
		inside |= (uint32_t)in << lane;
	}
	FOR_LANES(lane, mask)
		d[lane] = values[lane];
	if (insn->sub[1])
		*DST2(uint32_t) = (*DST2(uint32_t) & ~mask) | (inside & mask);
}

void exec_vote(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	uint32_t yes = *SRC(0, uint32_t) & mask;
	uint32_t *d = DST(uint32_t);
	bool result;

	if (insn->sub[0] == VOTE_BALLOT) {
		FOR_LANES(lane, mask)
			d[lane] = yes;
		return;
	}
	result = insn->sub[0] == VOTE_ALL ? yes == mask : insn->sub[0] == VOTE_ANY ? yes != 0 : !yes || yes == mask;
	*d = (*d & ~mask) | (result ? mask : 0);
}

void exec_match(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const uint8_t *a = exec_slot(warp, insn->src[0]);
	uint32_t size = insn->sub[1];
	uint32_t results[EXEC_LANES];
	uint32_t *d = DST(uint32_t);
	bool all = true;

	FOR_LANES(lane, mask)
	{
		uint32_t same = 0;

		FOR_LANES(other, mask)
			same |= (uint32_t)!memcmp(a + lane * size, a + other * size, size) << other;
		results[lane] = same;
		all &= same == mask;
	}
	FOR_LANES(lane, mask)
		d[lane] = insn->sub[0] && !all ? 0 : results[lane];
	if (insn->sub[2])
		*DST2(uint32_t) = (*DST2(uint32_t) & ~mask) | (all ? mask : 0);
}

static float redux_float(const struct exec_insn *insn, float x, float y)
{
	if (insn->sub[2] & 1) {
		x = __builtin_fabsf(x);
		y = __builtin_fabsf(y);
	}
	if (x != x || y != y) {
		if (insn->sub[2] & 2)
			return __builtin_nanf("");
		return x != x ? y : x;
	}
	if (insn->sub[0] == REDUX_FMIN)
		return x < y || (x == y && __builtin_signbit(x)) ? x : y;
	return x > y || (x == y && !__builtin_signbit(x)) ? x : y;
}

void exec_redux(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const uint32_t *a = SRC(0, uint32_t);
	uint32_t r = a[__builtin_ctz(mask)];
	bool first = true;
	float f;
	float g;

	memcpy(&f, &r, sizeof(f));
	if (insn->sub[0] >= REDUX_FMIN && insn->sub[2] & 1)
		f = __builtin_fabsf(f);
	FOR_LANES(lane, mask)
	{
		uint32_t x = a[lane];

		if (first) {
			first = false;
			continue;
		}
		switch (insn->sub[0]) {
		case REDUX_ADD:
			r += x;
			break;
		case REDUX_MIN:
			r = insn->sub[1] ? ((int32_t)x < (int32_t)r ? x : r) : (x < r ? x : r);
			break;
		case REDUX_MAX:
			r = insn->sub[1] ? ((int32_t)x > (int32_t)r ? x : r) : (x > r ? x : r);
			break;
		case REDUX_AND:
			r &= x;
			break;
		case REDUX_OR:
			r |= x;
			break;
		case REDUX_XOR:
			r ^= x;
			break;
		default:
			memcpy(&g, &x, sizeof(g));
			f = redux_float(insn, f, g);
		}
	}
	if (insn->sub[0] >= REDUX_FMIN) {
		memcpy(&r, &f, sizeof(r));
		if (f != f)
			r = 0x7fffffffu;
	}
	FOR_LANES(lane, mask)
		DST(uint32_t)[lane] = r;
}

void exec_elect(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	uint32_t leader = (uint32_t)__builtin_ctz(mask);
	uint32_t *p = DST2(uint32_t);

	if (insn->sub[1])
		FOR_LANES(lane, mask)
			DST(uint32_t)[lane] = leader;
	*p = (*p & ~mask) | 1u << leader;
}

void exec_activemask(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	FOR_LANES(lane, mask)
		DST(uint32_t)[lane] = mask;
}

/* Giving way is what a sleeping thread is asked to do. */
void exec_nanosleep(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	(void)warp;
	(void)insn;
	(void)mask;
}

/*
 * An mbarrier: 8 bytes in shared memory whose layout is ours. The phase's parity is its lowest bit, then what is
 * pending and expected (15 bits each less than 2^14), then the bytes in flight.
 */
struct mbarrier {
	uint64_t phase : 1;
	uint64_t pending : 20;
	uint64_t expected : 20;
	int64_t bytes : 22;
	uint64_t valid : 1;
};
_Static_assert(sizeof(struct mbarrier) == 8, "an mbarrier object has 64 bits");

static void mbarrier_settle(struct mbarrier *barrier)
{
	if (!barrier->pending && !barrier->bytes) {
		barrier->phase ^= 1;
		barrier->pending = barrier->expected;
	}
}

void exec_mbarrier(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	void *pointers[EXEC_LANES];
	uint32_t answer = 0;

	if (!exec_pointers(warp, insn, mask, 8, true, pointers))
		return;
	FOR_LANES(lane, mask)
	{
		struct mbarrier barrier;
		uint64_t state;
		uint32_t operand = insn->sub[0] == MB_TEST ? 0 : SRC(1, uint32_t)[lane];

		memcpy(&barrier, pointers[lane], sizeof(barrier));
		memcpy(&state, &barrier, sizeof(state));
		if (insn->sub[0] != MB_INIT && !barrier.valid) {
			exec_fault(warp, PTX_FAULT_INSTRUCTION, lane, 0, 8, false, "an mbarrier that was not initialised");
			return;
		}
		switch (insn->sub[0]) {
		case MB_INIT:
			memset(&barrier, 0, sizeof(barrier));
			barrier.pending = operand;
			barrier.expected = operand;
			barrier.valid = 1;
			break;
		case MB_INVAL:
			memset(&barrier, 0, sizeof(barrier));
			break;
		case MB_ARRIVE_DROP:
			barrier.expected -= operand;
			/* fall through */
		case MB_ARRIVE:
			if (operand > barrier.pending) {
				exec_fault(warp, PTX_FAULT_INSTRUCTION, lane, 0, 8, false,
					   "more arrivals at an mbarrier than it expects");
				return;
			}
			barrier.pending -= operand;
			mbarrier_settle(&barrier);
			break;
		case MB_EXPECT_TX:
			barrier.bytes += (int32_t)operand;
			break;
		case MB_COMPLETE_TX:
			barrier.bytes -= (int32_t)operand;
			mbarrier_settle(&barrier);
			break;
		case MB_ARRIVE_EXPECT_TX:
			barrier.bytes += (int32_t)operand;
			barrier.pending -= 1;
			mbarrier_settle(&barrier);
			break;
		case MB_TEST:
			/* the state is what arrive returned: complete if the phase has moved on */
			answer |= (uint32_t)((SRC(1, uint64_t)[lane] & 1) != barrier.phase) << lane;
			continue;
		case MB_TEST_PARITY:
			answer |= (uint32_t)((operand & 1) != barrier.phase) << lane;
			continue;
		}
		memcpy(pointers[lane], &barrier, sizeof(barrier));
		if (insn->sub[1])
			DST(uint64_t)[lane] = state;
	}
	if (insn->sub[0] == MB_TEST || insn->sub[0] == MB_TEST_PARITY)
		*DST(uint32_t) = (*DST(uint32_t) & ~mask) | (answer & mask);
}

void exec_mbarrier_pending(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	FOR_LANES(lane, mask)
		DST(uint32_t)[lane] = (uint32_t)(SRC(1, uint64_t)[lane] >> 1 & 0xfffff);
}

bool exec_mbarrier_complete(struct exec_warp *warp, uint32_t lane, uint64_t address, uint32_t bytes)
{
	struct mbarrier barrier;
	void *pointer = exec_pointer(warp, X_SHARED, lane, address, 8, 8, true);

	if (!pointer)
		return false;
	memcpy(&barrier, pointer, sizeof(barrier));
	if (!barrier.valid) {
		exec_fault(warp, PTX_FAULT_INSTRUCTION, lane, address, 8, false, "an mbarrier that was not initialised");
		return false;
	}
	barrier.bytes -= (int32_t)bytes;
	mbarrier_settle(&barrier);
	memcpy(pointer, &barrier, sizeof(barrier));
	return true;
}

void exec_copy_bulk(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	FOR_LANES(lane, mask)
	{
		uint32_t bytes = SRC(2, uint32_t)[lane];
		void *to;
		void *from;

		if (bytes % 16) {
			exec_fault(warp, PTX_FAULT_MISALIGNED, lane, bytes, bytes, true, "a bulk copy of %u bytes", bytes);
			return;
		}
		if (bytes) {
			to = exec_pointer(warp, insn->sub[0], lane, SRC(0, uint64_t)[lane], bytes, 16, true);
			if (!to)
				return;
			from = exec_pointer(warp, insn->sub[1], lane, SRC(1, uint64_t)[lane], bytes, 16, false);
			if (!from)
				return;
			memmove(to, from, bytes);
		}
		if (insn->sub[2] && !exec_mbarrier_complete(warp, lane, SRC(3, uint64_t)[lane], bytes))
			return;
	}
}
