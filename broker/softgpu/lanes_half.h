/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f16 and bf16, alone and in pairs. Part of exec_lanes_*.c.
 *
 * Sums and products of halves are exact enough in f32 that rounding twice is rounding once; fma goes through
 * doubles, for bf16 with the last bit kept odd.
 */

#define HALF_GET(x) half_to_f32(x)
#define HALF_PUT(x) f32_to_half(x)
#define BF_GET(x)   bf16_to_f32(x)
#define BF_PUT(x)   f32_to_bf16(x)

static inline uint16_t half_ftz(uint16_t h)
{
	return h & 0x7c00u ? h : h & 0x8000u;
}

static inline float relu_f(const struct exec_insn *insn, float x)
{
	return insn->flags & X_RELU ? (x > 0.0f ? x : x != x ? x : 0.0f) : x;
}

static inline float finish_half(const struct exec_insn *insn, float x)
{
	if (insn->flags & X_SAT)
		x = saturate(x);
	return relu_f(insn, x);
}

/* @get and @put convert, @flush is for inputs and result with .ftz; count 1 or 2 in each lane */
#define HALF_BODY(get, put, flush, count, ...) \
	{ \
		const uint16_t *a = SRC(0, uint16_t); \
		const uint16_t *b = SRC(1, uint16_t); \
		const uint16_t *c = SRC(2, uint16_t); \
		uint16_t *d = DST(uint16_t); \
		uint16_t r[EXEC_LANES * count]; \
		bool flushing = insn->flags & X_FTZ; \
		for (uint32_t i = 0; i < EXEC_LANES * count; i++) \
		{ \
			float x = get(flushing ? flush(a[i]) : a[i]); \
			float y = get(flushing ? flush(b[i]) : b[i]); \
			float z = get(flushing ? flush(c[i]) : c[i]); \
			uint16_t v = put(finish_half(insn, __VA_ARGS__)); \
			r[i] = flushing ? flush(v) : v; \
			(void)x; \
			(void)y; \
			(void)z; \
		} \
		if (mask == EXEC_FULL) \
			memcpy(d, r, sizeof(r)); \
		else \
			for (uint32_t i = 0; i < EXEC_LANES * count; i++) \
				d[i] = mask >> (i / count) & 1 ? r[i] : d[i]; \
	}
/* clang-format off */
#define HALF_ALL(name, ...) \
	LANE_FN(name##_f16) HALF_BODY(HALF_GET, HALF_PUT, half_ftz, 1, __VA_ARGS__) \
	LANE_FN(name##_f16x2) HALF_BODY(HALF_GET, HALF_PUT, half_ftz, 2, __VA_ARGS__) \
	LANE_FN(name##_bf16) HALF_BODY(BF_GET, BF_PUT, PASS, 1, __VA_ARGS__) \
	LANE_FN(name##_bf16x2) HALF_BODY(BF_GET, BF_PUT, PASS, 2, __VA_ARGS__)

HALF_ALL(h_add, x + y)
HALF_ALL(h_sub, x - y)
HALF_ALL(h_mul, x * y)
HALF_ALL(h_ex2, exp2f(x))
HALF_ALL(h_tanh, tanhf(x))
HALF_ALL(h_min, minmax_f32(insn, x, y, 0))
HALF_ALL(h_max, minmax_f32(insn, x, y, 1))
HALF_ALL(h_min3, minmax_f32(insn, minmax_f32(insn, x, y, 0), z, 0))
HALF_ALL(h_max3, minmax_f32(insn, minmax_f32(insn, x, y, 1), z, 1))

static inline uint16_t fma_half(const struct exec_insn *insn, uint16_t x, uint16_t y, uint16_t z, int bf)
{
	double p;
	double sum;
	uint16_t r;

	if (insn->flags & X_FTZ && !bf) {
		x = half_ftz(x);
		y = half_ftz(y);
		z = half_ftz(z);
	}
	p = bf ? (double)bf16_to_f32(x) * (double)bf16_to_f32(y) : (double)half_to_f32(x) * (double)half_to_f32(y);
	sum = add_odd(p, (double)(bf ? bf16_to_f32(z) : half_to_f32(z)));
	if (insn->flags & X_SAT)
		sum = sum > 0.0 ? (sum < 1.0 ? sum : 1.0) : 0.0;
	if (insn->flags & X_RELU)
		sum = sum > 0.0 ? sum : sum != sum ? sum : 0.0;
	r = (uint16_t)round_small(sum, bf ? &format_bf16 : &format_f16, 0, false);
	return insn->flags & X_FTZ && !bf ? half_ftz(r) : r;
}

#define HALF_FMA(name, count, bf) \
	LANE_FN(name) \
	{ \
		const uint16_t *a = SRC(0, uint16_t); \
		const uint16_t *b = SRC(1, uint16_t); \
		const uint16_t *c = SRC(2, uint16_t); \
		uint16_t *d = DST(uint16_t); \
		FOR_LANES(lane, mask) \
		{ \
			for (uint32_t i = lane * count; i < (lane + 1) * count; i++) \
				d[i] = fma_half(insn, a[i], b[i], c[i], bf); \
		} \
	}
HALF_FMA(h_fma_f16, 1, 0)
HALF_FMA(h_fma_f16x2, 2, 0)
HALF_FMA(h_fma_bf16, 1, 1)
HALF_FMA(h_fma_bf16x2, 2, 1)
LANES1(h_neg_1, uint16_t, uint16_t, x ^ 0x8000u)
LANES1(h_abs_1, uint16_t, uint16_t, x & 0x7fffu)
LANES1(h_neg_2, uint32_t, uint32_t, x ^ 0x80008000u)
LANES1(h_abs_2, uint32_t, uint32_t, x & 0x7fff7fffu)

#define X_HALF (X_FTZ | X_SAT | X_RN)
static const struct exec_form half_forms[] = {
#define EACH_HALF(t, w) \
	{ "add." #t, w "=" w w, h_add_##t, X_HALF }, { "sub." #t, w "=" w w, h_sub_##t, X_HALF }, \
	{ "mul." #t, w "=" w w, h_mul_##t, X_HALF }, { "fma." #t, w "=" w w w, h_fma_##t, X_HALF | X_RELU }, \
	{ "fma.oob." #t, w "=" w w w, h_fma_##t, X_HALF | X_RELU }, \
	{ "min." #t, w "=" w w, h_min_##t, X_FTZ | X_NAN | X_XORSIGN | X_ABS }, \
	{ "max." #t, w "=" w w, h_max_##t, X_FTZ | X_NAN | X_XORSIGN | X_ABS }, \
	{ "min3." #t, w "=" w w w, h_min3_##t, X_FTZ | X_NAN | X_ABS }, \
	{ "max3." #t, w "=" w w w, h_max3_##t, X_FTZ | X_NAN | X_ABS }, \
	{ "ex2." #t, w "=" w, h_ex2_##t, X_APPROX | X_FTZ }, { "tanh." #t, w "=" w, h_tanh_##t, X_APPROX },
	EACH_HALF(f16, "h") EACH_HALF(f16x2, "w") EACH_HALF(bf16, "h") EACH_HALF(bf16x2, "w")
	{ "neg.f16", "h=h", h_neg_1, X_FTZ }, { "neg.bf16", "h=h", h_neg_1, 0 },
	{ "neg.f16x2", "w=w", h_neg_2, X_FTZ }, { "neg.bf16x2", "w=w", h_neg_2, 0 },
	{ "abs.f16", "h=h", h_abs_1, X_FTZ }, { "abs.bf16", "h=h", h_abs_1, 0 },
	{ "abs.f16x2", "w=w", h_abs_2, X_FTZ }, { "abs.bf16x2", "w=w", h_abs_2, 0 },
};
/* clang-format on */
