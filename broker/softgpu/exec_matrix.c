/* SPDX-License-Identifier: Apache-2.0 */
/* mma.sync, ldmatrix, stmatrix, movmatrix. The pool's threads. */
#include <math.h>
#include <string.h>

#include "broker/softgpu/exec_matrix.h"
#include "broker/softgpu/small_float.h"

#define M_MAX 16
#define N     8
#define K_MAX 32

static uint32_t reg(struct exec_warp *warp, uint32_t slot, uint32_t lane)
{
	return ((const uint32_t *)exec_slot(warp, slot))[lane];
}

static double half_value(uint16_t h)
{
	int exponent = h >> 10 & 31;
	double value;

	if (exponent == 31)
		value = h & 0x3ff ? NAN : INFINITY;
	else
		value = exponent ? ldexp((h & 0x3ff) | 0x400, exponent - 25) : ldexp(h & 0x3ff, -24);
	return h & 0x8000 ? -value : value;
}

static double eight_value(uint8_t b, bool e5m2)
{
	int mantissa_bits = e5m2 ? 2 : 3;
	int exponent = b >> mantissa_bits & (e5m2 ? 31 : 15);
	int mantissa = b & ((1 << mantissa_bits) - 1);
	int bias = e5m2 ? 15 : 7;
	double value;

	if (e5m2 && exponent == 31)
		value = mantissa ? NAN : INFINITY;
	else if (!e5m2 && (b & 0x7f) == 0x7f)
		value = NAN;
	else if (exponent)
		value = ldexp(mantissa | 1 << mantissa_bits, exponent - bias - mantissa_bits);
	else
		value = ldexp(mantissa, 1 - bias - mantissa_bits);
	return b & 0x80 ? -value : value;
}

/* Element @i of those that a register holds. */
static double element(enum ptx_type type, uint32_t bits, uint32_t i)
{
	switch (type) {
	case T_F16:
		return half_value((uint16_t)(bits >> (16 * i)));
	case T_BF16:
		return (double)bits_f32(bits >> (16 * i) << 16);
	case T_TF32:
		return (double)bits_f32(bits & 0xffffe000u);
	case T_S8:
		return (int8_t)(bits >> (8 * i));
	case T_U8:
		return (uint8_t)(bits >> (8 * i));
	default:
		return eight_value((uint8_t)(bits >> (8 * i)), type == T_E5M2);
	}
}

static uint32_t per_register(enum ptx_type type)
{
	return type == T_TF32 ? 1 : type == T_F16 || type == T_BF16 ? 2 : 4;
}

/*
 * Where elements are. A register holds p neighbours along k; a lane's group (lane / 4) is a row of A or a column of
 * B, its place in the group (lane % 4) p columns. Registers of A go through the rows (g, g + 8) first, then the
 * next 4 p columns.
 */
static void gather(struct exec_warp *warp, const struct exec_insn *insn, const struct exec_mma *mma, double (*a)[K_MAX],
		   double (*b)[N])
{
	uint32_t m = insn->sub[0];
	uint32_t k = insn->sub[1];
	uint32_t p = per_register(insn->sub[2]);
	uint32_t halves = m / 8;
	uint32_t steps = k / (4 * p);

	for (uint32_t lane = 0; lane < EXEC_LANES; lane++) {
		uint32_t g = lane / 4;
		uint32_t t = lane % 4;

		for (uint32_t step = 0; step < steps; step++) {
			for (uint32_t i = 0; i < p; i++) {
				uint32_t column = step * 4 * p + t * p + i;

				for (uint32_t half = 0; half < halves; half++)
					a[g + 8 * half][column] =
						element(insn->sub[2], reg(warp, mma->a[step * halves + half], lane), i);
				b[column][g] = element((enum ptx_type)insn->imm, reg(warp, mma->b[step], lane), i);
			}
		}
	}
}

static void multiply_f64(struct exec_warp *warp, const struct exec_mma *mma)
{
	double results[2][EXEC_LANES];

	for (uint32_t lane = 0; lane < EXEC_LANES; lane++)
		for (uint32_t i = 0; i < 2; i++) {
			double sum = ((const double *)exec_slot(warp, mma->c[i]))[lane];

			for (uint32_t k = 0; k < 4; k++)
				sum = fma(((const double *)exec_slot(warp, mma->a[0]))[lane / 4 * 4 + k],
					  ((const double *)exec_slot(warp, mma->b[0]))[(lane % 4 * 2 + i) * 4 + k], sum);
			results[i][lane] = sum;
		}
	for (uint32_t i = 0; i < 2; i++)
		memcpy(exec_slot(warp, mma->d[i]), results[i], sizeof(results[i]));
}

void exec_mma(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const struct exec_mma *mma = (const struct exec_mma *)warp->block->grid->module->tables[insn->target];
	enum ptx_type to = insn->flags & 0x7f;
	enum ptx_type from = insn->flags >> 7 & 0x7f;
	double a[M_MAX][K_MAX];
	double b[K_MAX][N];
	uint32_t results[4][EXEC_LANES] = { { 0 } };
	uint32_t m = insn->sub[0];

	if (mask != EXEC_FULL) {
		exec_fault(warp, PTX_FAULT_INSTRUCTION, (uint32_t)__builtin_ctz(mask), 0, 0, false,
			   "a matrix instruction without the whole warp");
		return;
	}
	if (to == T_F64) {
		multiply_f64(warp, mma);
		return;
	}
	gather(warp, insn, mma, a, b);
	for (uint32_t lane = 0; lane < EXEC_LANES; lane++) {
		for (uint32_t i = 0; i < m / 4; i++) {
			uint32_t row = lane / 4 + (i >= 2 ? 8 : 0);
			uint32_t column = lane % 4 * 2 + (i & 1);
			uint32_t bits = from == T_F16 ? reg(warp, mma->c[i / 2], lane) >> (16 * (i & 1)) : reg(warp, mma->c[i], lane);

			if (to == T_S32) {
				int64_t sum = (int32_t)bits;

				for (uint32_t k = 0; k < insn->sub[1]; k++)
					sum += (int64_t)(a[row][k] * b[k][column]);
				if (insn->flags & MATRIX_SATURATE)
					sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
				results[i][lane] = (uint32_t)sum;
			} else {
				float sum = from == T_F16 ? (float)half_value((uint16_t)bits) : bits_f32(bits);

				/* a product of two such numbers is exact */
				for (uint32_t k = 0; k < insn->sub[1]; k++)
					sum = (float)((double)sum + a[row][k] * b[k][column]);
				if (to == T_F16)
					results[i / 2][lane] |= (uint32_t)f32_to_half(sum) << (16 * (i & 1));
				else
					memcpy(&results[i][lane], &sum, sizeof(sum));
			}
		}
	}
	for (uint32_t i = 0; i < (to == T_F16 ? m / 8 : m / 4); i++)
		memcpy(exec_slot(warp, mma->d[i]), results[i], sizeof(results[i]));
}

/* Lane 8 j + r holds the address of row r of matrix j: eight numbers of 16 bits. */
void exec_ldmatrix(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const uint32_t *slots = warp->block->grid->module->tables[insn->target];
	uint32_t lanes = insn->sub[0] * 8;
	struct exec_insn address = *insn;
	void *rows[EXEC_LANES];

	address.sub[3] = X_BASE_64;
	if (!exec_pointers(warp, &address, mask & (lanes >= 32 ? EXEC_FULL : (1u << lanes) - 1), 16, false, rows))
		return;
	if (mask != EXEC_FULL) {
		exec_fault(warp, PTX_FAULT_INSTRUCTION, (uint32_t)__builtin_ctz(mask), 0, 0, false,
			   "a matrix instruction without the whole warp");
		return;
	}
	for (uint32_t j = 0; j < insn->sub[0]; j++) {
		uint32_t *d = (uint32_t *)exec_slot(warp, slots[j]);

		for (uint32_t lane = 0; lane < EXEC_LANES; lane++) {
			uint16_t pair[2];

			for (uint32_t i = 0; i < 2; i++) {
				uint32_t row = insn->sub[1] ? lane % 4 * 2 + i : lane / 4;
				uint32_t column = insn->sub[1] ? lane / 4 : lane % 4 * 2 + i;

				pair[i] = ((const uint16_t *)rows[j * 8 + row])[column];
			}
			d[lane] = pair[0] | (uint32_t)pair[1] << 16;
		}
	}
}

void exec_stmatrix(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const uint32_t *slots = warp->block->grid->module->tables[insn->target];
	uint32_t lanes = insn->sub[0] * 8;
	struct exec_insn address = *insn;
	void *rows[EXEC_LANES];

	address.sub[3] = X_BASE_64;
	if (!exec_pointers(warp, &address, mask & (lanes >= 32 ? EXEC_FULL : (1u << lanes) - 1), 16, true, rows))
		return;
	if (mask != EXEC_FULL) {
		exec_fault(warp, PTX_FAULT_INSTRUCTION, (uint32_t)__builtin_ctz(mask), 0, 0, false,
			   "a matrix instruction without the whole warp");
		return;
	}
	for (uint32_t j = 0; j < insn->sub[0]; j++)
		for (uint32_t lane = 0; lane < EXEC_LANES; lane++)
			for (uint32_t i = 0; i < 2; i++) {
				uint32_t row = insn->sub[1] ? lane % 4 * 2 + i : lane / 4;
				uint32_t column = insn->sub[1] ? lane / 4 : lane % 4 * 2 + i;

				((uint16_t *)rows[j * 8 + row])[column] = (uint16_t)(reg(warp, slots[j], lane) >> (16 * i));
			}
}

void exec_movmatrix(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	uint16_t matrix[8][8];

	if (mask != EXEC_FULL) {
		exec_fault(warp, PTX_FAULT_INSTRUCTION, (uint32_t)__builtin_ctz(mask), 0, 0, false,
			   "a matrix instruction without the whole warp");
		return;
	}
	for (uint32_t lane = 0; lane < EXEC_LANES; lane++)
		for (uint32_t i = 0; i < 2; i++)
			matrix[lane / 4][lane % 4 * 2 + i] = (uint16_t)(reg(warp, insn->src[0], lane) >> (16 * i));
	for (uint32_t lane = 0; lane < EXEC_LANES; lane++)
		DST(uint32_t)[lane] = matrix[lane % 4 * 2][lane / 4] | (uint32_t)matrix[lane % 4 * 2 + 1][lane / 4] << 16;
}

/* ---- wmma ---- */

static bool whole_warp(struct exec_warp *warp, uint32_t mask)
{
	if (mask != EXEC_FULL)
		exec_fault(warp, PTX_FAULT_INSTRUCTION, (uint32_t)__builtin_ctz(mask), 0, 0, false,
			   "a matrix instruction without the whole warp");
	return mask == EXEC_FULL;
}

/* Element e of a fragment: which lane, register and part. */
static uint8_t *fragment(struct exec_warp *warp, const uint32_t *slots, uint32_t e, uint32_t size)
{
	uint32_t lane = e % EXEC_LANES;
	uint32_t i = e / EXEC_LANES;
	uint32_t per = 4 / size;

	return exec_slot(warp, slots[i / per]) + lane * 4 + i % per * size;
}

static uint64_t element_address(const struct exec_wmma *wmma, const struct exec_insn *insn, uint64_t base, uint32_t stride,
				uint32_t e)
{
	uint32_t row = e / wmma->columns;
	uint32_t column = e % wmma->columns;
	uint64_t index = insn->sub[1] ? (uint64_t)column * stride + row : (uint64_t)row * stride + column;

	return base + index * insn->sub[2];
}

static uint32_t stride_of(struct exec_warp *warp, const struct exec_wmma *wmma, const struct exec_insn *insn)
{
	if (wmma->stride != WMMA_NONE)
		return ((const uint32_t *)exec_slot(warp, wmma->stride))[0];
	return insn->sub[1] ? wmma->rows : wmma->columns;
}

static void wmma_copy(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask, bool store)
{
	const struct exec_wmma *wmma = (const struct exec_wmma *)warp->block->grid->module->tables[insn->target];
	uint64_t base = SRC(0, uint64_t)[0] + (uint64_t)insn->imm;
	uint32_t size = insn->sub[2];
	uint32_t stride;

	if (!whole_warp(warp, mask))
		return;
	stride = stride_of(warp, wmma, insn);
	for (uint32_t e = 0; e < wmma->rows * wmma->columns; e++) {
		void *memory = exec_pointer(warp, insn->flags & 7, 0, element_address(wmma, insn, base, stride, e), size, size, store);
		uint8_t *part = fragment(warp, wmma->d, e, size);

		if (!memory)
			return;
		if (store)
			memcpy(memory, part, size);
		else
			memcpy(part, memory, size);
	}
}

void exec_wmma_load(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	wmma_copy(warp, insn, mask, false);
}

void exec_wmma_store(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	wmma_copy(warp, insn, mask, true);
}

static double fragment_value(struct exec_warp *warp, const uint32_t *slots, enum ptx_type type, uint32_t e)
{
	uint32_t size = ptx_type_size(type);
	uint32_t bits = 0;

	memcpy(&bits, fragment(warp, slots, e, size), size);
	if (type == T_S32)
		return (int32_t)bits;
	return type == T_F32 ? (double)bits_f32(bits) : element(type, bits, 0);
}

void exec_wmma_mma(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)
{
	const struct exec_wmma *wmma = (const struct exec_wmma *)warp->block->grid->module->tables[insn->target];
	uint32_t m = insn->sub[0];
	uint32_t n = insn->sub[1];
	uint32_t k = insn->sub[2];
	enum ptx_type type = (enum ptx_type)insn->imm;
	enum ptx_type to = insn->flags & 0x7f;
	enum ptx_type from = insn->flags >> 7 & 0x7f;
	float a[32 * 16];
	float b[32 * 16];
	float results[256];

	if (!whole_warp(warp, mask))
		return;
	for (uint32_t e = 0; e < m * k; e++)
		a[e] = (float)fragment_value(warp, wmma->a, type, e);
	for (uint32_t e = 0; e < k * n; e++)
		b[e] = (float)fragment_value(warp, wmma->b, type, e);
	for (uint32_t e = 0; e < m * n; e++) {
		const float *row = a + e / n * k;
		float sum = (float)fragment_value(warp, wmma->c, from, e);

		for (uint32_t i = 0; i < k; i++)
			sum += row[i] * b[i * n + e % n];
		results[e] = sum;
	}
	for (uint32_t e = 0; e < m * n; e++) {
		uint16_t half = to == T_F16 ? f32_to_half(results[e]) : 0;

		if (to == T_F16)
			memcpy(fragment(warp, wmma->d, e, 2), &half, 2);
		else
			memcpy(fragment(warp, wmma->d, e, 4), &results[e], 4);
	}
}
