/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: from addresses to checked pointers, loads and stores. The pool's threads.
 *
 * Each thread remembers a few ranges that the front has named; the generation tells it when to ask again.
 */
#include <errno.h>
#include <string.h>

#include "broker/softgpu/exec_memory.h"

static bool is_window(uint64_t address)
{
	return address - PTX_WINDOW_SHARED < 4 * PTX_WINDOW_SIZE;
}

static void check_generation(struct exec_warp *warp)
{
	struct exec_thread *thread = warp->thread;
	const struct ptx_host *host = warp->block->grid->launch->host;
	uint64_t generation = host->generation ? atomic_load_explicit(host->generation, memory_order_acquire) : 0;

	if (thread->generation != generation) {
		memset(thread->ranges, 0, sizeof(thread->ranges));
		thread->generation = generation;
	}
}

/* Whether [low, high) lies in one live range. */
static bool range_has(struct exec_warp *warp, uint64_t low, uint64_t high, bool write)
{
	struct exec_thread *thread = warp->thread;
	const struct exec_grid *grid = warp->block->grid;
	const struct ptx_host *host = grid->launch->host;
	struct ptx_range found;
	struct exec_range *range;

	if (high < low)
		return false;
	for (int i = 0; i < EXEC_RANGES; i++) {
		range = &thread->ranges[i];
		if (low >= range->base && high <= range->end && low < range->end)
			return !(write && range->read_only);
	}
	if (low >= grid->internal.base && high <= grid->internal.end)
		return true;
	if (!host->lookup || host->lookup(host->user, low, &found) < 0)
		return false;
	range = &thread->ranges[thread->next++ % EXEC_RANGES];
	range->base = found.base;
	range->end = found.base + found.size;
	range->read_only = found.read_only;
	return low >= range->base && high <= range->end && !(write && range->read_only);
}

void *exec_pointer(struct exec_warp *warp, enum exec_space space, uint32_t lane, uint64_t address, uint32_t size,
		   uint32_t align, bool write)
{
	const struct exec_block *block = warp->block;
	const struct exec_grid *grid = block->grid;
	uint64_t offset = address;
	uint64_t limit;
	uint8_t *base;

	if (address & (align - 1)) {
		exec_fault(warp, PTX_FAULT_MISALIGNED, lane, address, size, write, "not a multiple of %u", align);
		return NULL;
	}
	if (space == X_GENERIC && is_window(address)) {
		static const enum exec_space window_space[] = { X_SHARED, X_LOCAL, X_PARAM, X_GLOBAL };

		space = window_space[(address - PTX_WINDOW_SHARED) / PTX_WINDOW_SIZE];
		offset = (address - PTX_WINDOW_SHARED) % PTX_WINDOW_SIZE;
	}
	switch (space) {
	case X_SHARED:
		if (is_window(address) && offset == address) /* a generic address where a shared one was due */
			offset = address - PTX_WINDOW_SHARED;
		base = block->shared;
		limit = block->shared_size;
		break;
	case X_LOCAL:
		base = block->stacks + (size_t)(warp->id * EXEC_LANES + lane) * grid->stack_size;
		limit = grid->stack_size;
		break;
	case X_PARAM:
		base = grid->params;
		limit = grid->function->entry.param_size;
		if (write)
			limit = 0;
		break;
	default:
		check_generation(warp);
		if (!range_has(warp, address, address + size, write)) {
			exec_fault(warp, PTX_FAULT_ADDRESS, lane, address, size, write,
				   "%s of %u bytes at 0x%llx, where nothing is", write ? "write" : "read", size,
				   (unsigned long long)address);
			return NULL;
		}
		return (void *)(uintptr_t)address;
	}
	if (offset > limit || size > limit - offset) {
		exec_fault(warp, PTX_FAULT_ADDRESS, lane, address, size, write,
			   "%s of %u bytes at %s offset 0x%llx of 0x%llx", write ? "write" : "read", size,
			   space == X_SHARED ? "shared" : space == X_LOCAL ? "local" : "parameter",
			   (unsigned long long)offset, (unsigned long long)limit);
		return NULL;
	}
	return base + offset;
}

static void gather_addresses(struct exec_warp *warp, const struct exec_insn *insn, uint64_t *addresses)
{
	uint64_t offset = (uint64_t)insn->imm;

	switch (insn->sub[3]) {
	case X_BASE_64: {
		const uint64_t *a = SRC(0, uint64_t);

		for (int i = 0; i < EXEC_LANES; i++)
			addresses[i] = a[i] + offset;
		break;
	}
	case X_BASE_32: {
		const uint32_t *a = SRC(0, uint32_t);

		for (int i = 0; i < EXEC_LANES; i++)
			addresses[i] = (uint32_t)(a[i] + offset);
		break;
	}
	case X_BASE_STACK:
		offset += warp->stack;
		/* fall through */
	default:
		for (int i = 0; i < EXEC_LANES; i++)
			addresses[i] = offset;
	}
}

/* Low and high end of what the lanes touch, and their bits for alignment; lanes that are off count as the first. */
static void extent(const uint64_t *addresses, uint32_t mask, uint64_t *low_out, uint64_t *high_out, uint64_t *bits_out)
{
	uint64_t first = addresses[__builtin_ctz(mask)];
	uint64_t low = first;
	uint64_t high = first;
	uint64_t bits = 0;

	if (mask == EXEC_FULL) {
		for (int i = 0; i < EXEC_LANES; i++) {
			uint64_t a = addresses[i];

			low = a < low ? a : low;
			high = a > high ? a : high;
			bits |= a;
		}
	} else {
		for (int i = 0; i < EXEC_LANES; i++) {
			uint64_t a = mask >> i & 1 ? addresses[i] : first;

			low = a < low ? a : low;
			high = a > high ? a : high;
			bits |= a;
		}
	}
	*low_out = low;
	*high_out = high;
	*bits_out = bits;
}

static inline bool lanes_pointers(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask, uint32_t size,
				  uint32_t align, bool write, void **pointers)
{
	enum exec_space space = insn->flags & 7;
	uint64_t addresses[EXEC_LANES];
	uint64_t low;
	uint64_t high;
	uint64_t bits;

	gather_addresses(warp, insn, addresses);
	extent(addresses, mask, &low, &high, &bits);
	if (!(bits & (align - 1)) && space == X_SHARED && high < warp->block->shared_size &&
	    size <= warp->block->shared_size - high) {
		uint8_t *shared = warp->block->shared;

		for (int i = 0; i < EXEC_LANES; i++)
			pointers[i] = shared + (uint32_t)addresses[i];
		return true;
	}
	if (!(bits & (align - 1)) && space != X_SHARED && space != X_LOCAL && space != X_PARAM &&
	    !(space == X_GENERIC && (is_window(low) || is_window(high)))) {
		check_generation(warp);
		if (range_has(warp, low, high + size, write)) {
			for (int i = 0; i < EXEC_LANES; i++)
				pointers[i] = (void *)(uintptr_t)addresses[i];
			return true;
		}
	}
	FOR_LANES(lane, mask)
	{
		pointers[lane] = exec_pointer(warp, space, lane, addresses[lane], size, align, write);
		if (!pointers[lane])
			return false;
	}
	return true;
}

bool exec_pointers(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask, uint32_t size, bool write,
		   void **pointers)
{
	return lanes_pointers(warp, insn, mask, size, size, write, pointers);
}

/* ---- load ---- */

#define COPY_LANES(to_type, from_type) \
	do { \
		to_type *d_ = to; \
		if (mask == EXEC_FULL) \
			for (int i = 0; i < EXEC_LANES; i++) \
				d_[i] = (to_type)((const from_type *)pointers[i])[index]; \
		else \
			FOR_LANES(lane, mask) \
				d_[lane] = (to_type)((const from_type *)pointers[lane])[index]; \
	} while (0)

static void load_element(void *to, void *const *pointers, uint32_t mask, uint32_t index, uint32_t size, uint32_t reg,
			 bool is_signed)
{
	switch (size << 8 | reg << 1 | is_signed) {
	case 4 << 8 | 4 << 1:
	case 4 << 8 | 4 << 1 | 1:
		COPY_LANES(uint32_t, uint32_t);
		break;
	case 8 << 8 | 8 << 1:
	case 8 << 8 | 8 << 1 | 1:
		COPY_LANES(uint64_t, uint64_t);
		break;
	case 2 << 8 | 2 << 1:
	case 2 << 8 | 2 << 1 | 1:
		COPY_LANES(uint16_t, uint16_t);
		break;
	case 1 << 8 | 2 << 1:
		COPY_LANES(uint16_t, uint8_t);
		break;
	case 1 << 8 | 2 << 1 | 1:
		COPY_LANES(int16_t, int8_t);
		break;
	case 1 << 8 | 4 << 1:
		COPY_LANES(uint32_t, uint8_t);
		break;
	case 1 << 8 | 4 << 1 | 1:
		COPY_LANES(int32_t, int8_t);
		break;
	case 1 << 8 | 8 << 1:
		COPY_LANES(uint64_t, uint8_t);
		break;
	case 1 << 8 | 8 << 1 | 1:
		COPY_LANES(int64_t, int8_t);
		break;
	case 2 << 8 | 4 << 1:
		COPY_LANES(uint32_t, uint16_t);
		break;
	case 2 << 8 | 4 << 1 | 1:
		COPY_LANES(int32_t, int16_t);
		break;
	case 2 << 8 | 8 << 1:
		COPY_LANES(uint64_t, uint16_t);
		break;
	case 2 << 8 | 8 << 1 | 1:
		COPY_LANES(int64_t, int16_t);
		break;
	case 4 << 8 | 8 << 1:
		COPY_LANES(uint64_t, uint32_t);
		break;
	case 4 << 8 | 8 << 1 | 1:
		COPY_LANES(int64_t, int32_t);
		break;
	default: /* 16 */
		FOR_LANES(lane, mask)
			memcpy((uint8_t *)to + lane * 16, (const uint8_t *)pointers[lane] + index * 16, 16);
	}
}

static const uint32_t *load_slots(const struct exec_insn *insn, uint32_t slots[4])
{
	slots[0] = insn->dst;
	slots[1] = insn->dst2;
	slots[2] = insn->src[1];
	slots[3] = insn->src[2];
	return slots;
}

void exec_load(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	void *pointers[EXEC_LANES];
	uint32_t slots[4];
	uint32_t size = insn->sub[0];
	uint32_t count = insn->sub[2];

	if (!lanes_pointers(warp, insn, mask, size * count, size * count, false, pointers))
		return;
	load_slots(insn, slots);
	for (uint32_t i = 0; i < count; i++)
		load_element(exec_slot(warp, slots[i]), pointers, mask, i, size, insn->sub[1] & ~X_SIGNED,
			     insn->sub[1] & X_SIGNED);
}

/* A kernel parameter at a fixed place: the same for all lanes. The place was checked when it was decoded. */
void exec_load_param(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const uint8_t *param = warp->block->grid->params + insn->imm;
	void *pointers[EXEC_LANES];
	uint32_t slots[4];

	for (int i = 0; i < EXEC_LANES; i++)
		pointers[i] = (void *)(uintptr_t)param;
	load_slots(insn, slots);
	for (uint32_t i = 0; i < insn->sub[2]; i++)
		load_element(exec_slot(warp, slots[i]), pointers, mask, i, insn->sub[0], insn->sub[1] & ~X_SIGNED,
			     insn->sub[1] & X_SIGNED);
}

/* volatile, relaxed, acquire: whole, and not before what follows. */
void exec_load_ordered(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	void *pointers[EXEC_LANES];
	uint64_t values[EXEC_LANES];
	uint32_t size = insn->sub[0];

	if (insn->sub[2] != 1 || size > 8) {
		atomic_thread_fence(memory_order_seq_cst);
		exec_load(warp, insn, mask);
		atomic_thread_fence(memory_order_seq_cst);
		return;
	}
	if (!lanes_pointers(warp, insn, mask, size, size, false, pointers))
		return;
	FOR_LANES(lane, mask)
	{
		switch (size) {
		case 1:
			values[lane] = __atomic_load_n((uint8_t *)pointers[lane], __ATOMIC_ACQUIRE);
			break;
		case 2:
			values[lane] = __atomic_load_n((uint16_t *)pointers[lane], __ATOMIC_ACQUIRE);
			break;
		case 4:
			values[lane] = __atomic_load_n((uint32_t *)pointers[lane], __ATOMIC_ACQUIRE);
			break;
		default:
			values[lane] = __atomic_load_n((uint64_t *)pointers[lane], __ATOMIC_ACQUIRE);
		}
		pointers[lane] = &values[lane];
	}
	load_element(exec_slot(warp, insn->dst), pointers, mask, 0, size, insn->sub[1] & ~X_SIGNED,
		     insn->sub[1] & X_SIGNED);
}

/* ---- store ---- */

#define PUT_LANES(to_type, from_type) \
	do { \
		const from_type *s_ = from; \
		if (mask == EXEC_FULL) \
			for (int i = 0; i < EXEC_LANES; i++) \
				((to_type *)pointers[i])[index] = (to_type)s_[i]; \
		else \
			FOR_LANES(lane, mask) \
				((to_type *)pointers[lane])[index] = (to_type)s_[lane]; \
	} while (0)

static void store_element(const void *from, void *const *pointers, uint32_t mask, uint32_t index, uint32_t size,
			  uint32_t reg)
{
	switch (size << 8 | reg) {
	case 4 << 8 | 4:
		PUT_LANES(uint32_t, uint32_t);
		break;
	case 8 << 8 | 8:
		PUT_LANES(uint64_t, uint64_t);
		break;
	case 1 << 8 | 2:
		PUT_LANES(uint8_t, uint16_t);
		break;
	case 1 << 8 | 4:
		PUT_LANES(uint8_t, uint32_t);
		break;
	case 1 << 8 | 8:
		PUT_LANES(uint8_t, uint64_t);
		break;
	case 2 << 8 | 2:
		PUT_LANES(uint16_t, uint16_t);
		break;
	case 2 << 8 | 4:
		PUT_LANES(uint16_t, uint32_t);
		break;
	case 2 << 8 | 8:
		PUT_LANES(uint16_t, uint64_t);
		break;
	case 4 << 8 | 8:
		PUT_LANES(uint32_t, uint64_t);
		break;
	default:
		FOR_LANES(lane, mask)
			memcpy((uint8_t *)pointers[lane] + index * 16, (const uint8_t *)from + lane * 16, 16);
	}
}

void exec_store(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const uint32_t slots[4] = { insn->src[1], insn->src[2], insn->dst, insn->dst2 };
	void *pointers[EXEC_LANES];
	uint32_t size = insn->sub[0];
	uint32_t count = insn->sub[2];

	if (!lanes_pointers(warp, insn, mask, size * count, size * count, true, pointers))
		return;
	for (uint32_t i = 0; i < count; i++)
		store_element(exec_slot(warp, slots[i]), pointers, mask, i, size, insn->sub[1]);
}

void exec_store_ordered(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	void *pointers[EXEC_LANES];
	uint32_t size = insn->sub[0];
	const uint8_t *from = exec_slot(warp, insn->src[1]);

	if (insn->sub[2] != 1 || size > 8) {
		atomic_thread_fence(memory_order_seq_cst);
		exec_store(warp, insn, mask);
		atomic_thread_fence(memory_order_seq_cst);
		return;
	}
	if (!lanes_pointers(warp, insn, mask, size, size, true, pointers))
		return;
	FOR_LANES(lane, mask)
	{
		uint64_t value = 0;

		memcpy(&value, from + lane * insn->sub[1], insn->sub[1]);
		switch (size) {
		case 1:
			__atomic_store_n((uint8_t *)pointers[lane], (uint8_t)value, __ATOMIC_RELEASE);
			break;
		case 2:
			__atomic_store_n((uint16_t *)pointers[lane], (uint16_t)value, __ATOMIC_RELEASE);
			break;
		case 4:
			__atomic_store_n((uint32_t *)pointers[lane], (uint32_t)value, __ATOMIC_RELEASE);
			break;
		default:
			__atomic_store_n((uint64_t *)pointers[lane], value, __ATOMIC_RELEASE);
		}
	}
}

void exec_fence(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	(void)warp;
	(void)insn;
	(void)mask;
	atomic_thread_fence(memory_order_seq_cst);
}

void exec_copy_async(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const uint32_t *really = insn->sub[1] ? SRC(2, uint32_t) : NULL;
	void *to[EXEC_LANES];
	uint32_t size = insn->sub[0];

	if (!lanes_pointers(warp, insn, mask, size, size, true, to))
		return;
	FOR_LANES(lane, mask)
	{
		uint32_t bytes = really && really[lane] < size ? really[lane] : size;
		uint64_t address = SRC(1, uint64_t)[lane] + (uint64_t)(int64_t)(int32_t)insn->target;
		void *pointer;

		if (insn->sub[2]) /* ignore-src: a predicate says that nothing is read */
			bytes = SRC(3, uint32_t)[0] >> lane & 1 ? 0 : bytes;
		memset(to[lane], 0, size);
		if (!bytes)
			continue;
		pointer = exec_pointer(warp, X_GLOBAL, lane, address, bytes, size, false);
		if (!pointer)
			return;
		memcpy(to[lane], pointer, bytes);
	}
}

/* ---- spaces ---- */

void exec_isspacep(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const uint64_t *a = SRC(0, uint64_t);
	uint32_t *d = DST(uint32_t);
	uint32_t r = 0;

	for (uint32_t i = 0; i < EXEC_LANES; i++) {
		uint64_t window = is_window(a[i]) ? (a[i] - PTX_WINDOW_SHARED) / PTX_WINDOW_SIZE : 9;
		bool yes = false;

		switch (insn->sub[0]) {
		case X_SHARED:
			yes = window == 0;
			break;
		case X_LOCAL:
			yes = window == 1;
			break;
		case X_PARAM:
			yes = window == 2;
			break;
		case X_GLOBAL:
			yes = window == 9;
			break;
		}
		r |= (uint32_t)yes << i;
	}
	*d = (*d & ~mask) | (r & mask);
}

void exec_pack_128(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const uint64_t *lo = SRC(0, uint64_t);
	const uint64_t *hi = SRC(1, uint64_t);
	uint64_t *d = DST(uint64_t);

	FOR_LANES(lane, mask)
	{
		d[lane * 2] = lo[lane];
		d[lane * 2 + 1] = hi[lane];
	}
}

void exec_unpack_128(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const uint64_t *a = SRC(0, uint64_t);
	uint64_t *lo = DST(uint64_t);
	uint64_t *hi = DST2(uint64_t);

	FOR_LANES(lane, mask)
	{
		lo[lane] = a[lane * 2];
		hi[lane] = a[lane * 2 + 1];
	}
}
