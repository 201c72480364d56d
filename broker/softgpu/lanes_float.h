/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f32 and f64 arithmetic. Part of exec_lanes_*.c.
 *
 * Each instruction has up to three loops: as it is, with subnormals flushed, and with everything (rounding,
 * saturation), so that the first two vectorise. The approximate functions are computed at least as accurately as
 * PTX asks: with the C library's functions in the next higher precision where that is cheap.
 */

#define PASS(x) (x)

#define F32_LOOP(in, out, body) \
	EACH_LANE { \
		float x = in(a[i]); \
		float y = in(b[i]); \
		float z = in(c[i]); \
		r[i] = out(body); \
		(void)x; \
		(void)y; \
		(void)z; \
	}
#define FTZ_OUT(v)  canonical(ftz(v))
#define NORM_OUT(v) canonical(v)

#define F32_OP(name, ...) \
	LANE_FN(name) \
	{ \
		const float *a = SRC(0, float); \
		const float *b = SRC(1, float); \
		const float *c = SRC(2, float); \
		float *d = DST(float); \
		float r[EXEC_LANES]; \
		if (insn->flags & X_ROUND) { \
			fesetround(round_mode(insn)); \
			FENCE(r); \
			if (insn->flags & X_FTZ) { \
				F32_LOOP(ftz, FTZ_OUT, __VA_ARGS__) \
			} else { \
				F32_LOOP(PASS, NORM_OUT, __VA_ARGS__) \
			} \
			FENCE(r); \
			fesetround(FE_TONEAREST); \
		} else if (insn->flags & X_FTZ) { \
			F32_LOOP(ftz, FTZ_OUT, __VA_ARGS__) \
		} else { \
			F32_LOOP(PASS, NORM_OUT, __VA_ARGS__) \
		} \
		if (insn->flags & X_SAT) { \
			EACH_LANE { \
				r[i] = saturate(r[i]); \
			} \
		} \
		STORE_LANES(float, d, r, mask); \
	}

#define F64_OP(name, ...) \
	LANE_FN(name) \
	{ \
		const double *a = SRC(0, double); \
		const double *b = SRC(1, double); \
		const double *c = SRC(2, double); \
		double *d = DST(double); \
		double r[EXEC_LANES]; \
		if (insn->flags & X_ROUND) { \
			fesetround(round_mode(insn)); \
			FENCE(r); \
		} \
		EACH_LANE { \
			double x = a[i]; \
			double y = b[i]; \
			double z = c[i]; \
			r[i] = (__VA_ARGS__); \
			(void)x; \
			(void)y; \
			(void)z; \
		} \
		if (insn->flags & X_ROUND) { \
			FENCE(r); \
			fesetround(FE_TONEAREST); \
		} \
		STORE_LANES(double, d, r, mask); \
	}

/* -0 is less than +0; a NaN loses against a number, unless .NaN was asked for. */
static inline float min_f32(float x, float y)
{
	float r = x < y ? x : y;

	r = x == y ? bits_f32(f32_bits(x) | f32_bits(y)) : r;
	r = x != x ? y : r;
	return y != y ? x : r;
}

static inline float max_f32(float x, float y)
{
	float r = x > y ? x : y;

	r = x == y ? bits_f32(f32_bits(x) & f32_bits(y)) : r;
	r = x != x ? y : r;
	return y != y ? x : r;
}

static inline double min_f64(double x, double y)
{
	double r = x < y ? x : y;

	r = x == y ? bits_f64(f64_bits(x) | f64_bits(y)) : r;
	r = x != x ? y : r;
	return y != y ? x : r;
}

static inline double max_f64(double x, double y)
{
	double r = x > y ? x : y;

	r = x == y ? bits_f64(f64_bits(x) & f64_bits(y)) : r;
	r = x != x ? y : r;
	return y != y ? x : r;
}

static inline float minmax_f32(const struct exec_insn *insn, float x, float y, int maximum)
{
	float r;
	uint32_t sign = (f32_bits(x) ^ f32_bits(y)) & 0x80000000u;
	int nan = x != x || y != y;

	if (insn->flags & X_ABS) {
		x = bits_f32(f32_bits(x) & 0x7fffffffu);
		y = bits_f32(f32_bits(y) & 0x7fffffffu);
	}
	r = maximum ? max_f32(x, y) : min_f32(x, y);
	if (insn->flags & X_XORSIGN)
		r = bits_f32((f32_bits(r) & 0x7fffffffu) | sign);
	return insn->flags & X_NAN && nan ? bits_f32(0x7fffffffu) : r;
}

/* clang-format off */
F32_OP(add_f32, x + y)
F32_OP(sub_f32, x - y)
F32_OP(mul_f32, x * y)
F32_OP(fma_f32, __builtin_fmaf(x, y, z))
F32_OP(div_f32, x / y)
F32_OP(rcp_f32, 1.0f / x)
F32_OP(sqrt_f32, sqrtf(x))
F32_OP(rsqrt_f32, (float)(1.0 / sqrt((double)x)))
F32_OP(sin_f32, (float)sin((double)x))
F32_OP(cos_f32, (float)cos((double)x))
F32_OP(lg2_f32, log2f(x))
F32_OP(ex2_f32, exp2f(x))
F32_OP(tanh_f32, tanhf(x))
F32_OP(min_f32_, minmax_f32(insn, x, y, 0))
F32_OP(max_f32_, minmax_f32(insn, x, y, 1))
F32_OP(min3_f32, minmax_f32(insn, minmax_f32(insn, x, y, 0), z, 0))
F32_OP(max3_f32, minmax_f32(insn, minmax_f32(insn, x, y, 1), z, 1))
F64_OP(add_f64, x + y)
F64_OP(sub_f64, x - y)
F64_OP(mul_f64, x * y)
F64_OP(fma_f64, __builtin_fma(x, y, z))
F64_OP(div_f64, x / y)
F64_OP(rcp_f64, 1.0 / x)
F64_OP(sqrt_f64, sqrt(x))
F64_OP(rsqrt_f64, 1.0 / sqrt(x))
/* .approx.ftz.f64 looks at the upper half alone and its result has no lower one */
F64_OP(rcp_gross_f64, bits_f64(f64_bits(1.0 / bits_f64(f64_bits(x) & ~0xffffffffull)) & ~0xffffffffull))
F64_OP(rsqrt_gross_f64, bits_f64(f64_bits(1.0 / sqrt(bits_f64(f64_bits(x) & ~0xffffffffull))) & ~0xffffffffull))
F64_OP(min_f64_, min_f64(x, y))
F64_OP(max_f64_, max_f64(x, y))
/* Signs are bits: these keep NaNs as they are. */
LANES1(neg_f32, uint32_t, uint32_t, x ^ 0x80000000u)
LANES1(abs_f32, uint32_t, uint32_t, x & 0x7fffffffu)
LANES1(neg_ftz_f32, uint32_t, float, f32_bits(ftz(x)) ^ 0x80000000u)
LANES1(abs_ftz_f32, uint32_t, float, f32_bits(ftz(x)) & 0x7fffffffu)
LANES1(neg_f64, uint64_t, uint64_t, x ^ 1ull << 63)
LANES1(abs_f64, uint64_t, uint64_t, x & ~(1ull << 63))
LANES2(copysign_f32, uint32_t, (x & 0x80000000u) | (y & 0x7fffffffu))
LANES2(copysign_f64, uint64_t, (x & 1ull << 63) | (y & ~(1ull << 63)))

#define F32X2(name, ...) \
	LANE_FN(name) \
	{ \
		const float *a = SRC(0, float); \
		const float *b = SRC(1, float); \
		const float *c = SRC(2, float); \
		float *d = DST(float); \
		if (insn->flags & X_ROUND) \
			fesetround(round_mode(insn)); \
		FOR_LANES(lane, mask) \
		{ \
			for (uint32_t i = lane * 2; i < lane * 2 + 2; i++) { \
				float x = a[i]; \
				float y = b[i]; \
				float z = c[i]; \
				float r; \
				if (insn->flags & X_FTZ) { \
					x = ftz(x); \
					y = ftz(y); \
					z = ftz(z); \
				} \
				FENCE(&x); \
				FENCE(&y); \
				r = (__VA_ARGS__); \
				FENCE(&r); \
				d[i] = canonical(insn->flags & X_FTZ ? ftz(r) : r); \
				(void)z; \
			} \
		} \
		if (insn->flags & X_ROUND) \
			fesetround(FE_TONEAREST); \
	}
F32X2(add_f32x2, x + y)
F32X2(sub_f32x2, x - y)
F32X2(mul_f32x2, x * y)
F32X2(fma_f32x2, __builtin_fmaf(x, y, z))

#define TESTP(n, t, toabs, inf, norm) \
	LANE_FN(testp_f##n) \
	{ \
		const t *a = SRC(0, t); \
		uint32_t *d = DST(uint32_t); \
		uint32_t r = 0; \
		for (uint32_t i = 0; i < EXEC_LANES; i++) { \
			t v = a[i] & toabs; \
			int yes = 0; \
			switch (insn->sub[0]) { \
			case 0: yes = v < inf; break; /* finite */ \
			case 1: yes = v == inf; break; \
			case 2: yes = v <= inf; break; /* number */ \
			case 3: yes = v > inf; break; \
			case 4: yes = v >= norm && v < inf; break; \
			case 5: yes = v < norm && v; break; /* subnormal */ \
			} \
			r |= (uint32_t)yes << i; \
		} \
		*d = (*d & ~mask) | (r & mask); \
	}
TESTP(32, uint32_t, 0x7fffffffu, 0x7f800000u, 0x00800000u)
TESTP(64, uint64_t, 0x7fffffffffffffffull, 0x7ff0000000000000ull, 0x0010000000000000ull)

#define X_RNDS (X_RN | X_ROUND)
static const struct exec_form float_forms[] = {
	{ "add.f32", "f=ff", add_f32, X_FTZ | X_SAT | X_RNDS }, { "sub.f32", "f=ff", sub_f32, X_FTZ | X_SAT | X_RNDS },
	{ "mul.f32", "f=ff", mul_f32, X_FTZ | X_SAT | X_RNDS }, { "fma.f32", "f=fff", fma_f32, X_FTZ | X_SAT | X_RNDS },
	{ "mad.f32", "f=fff", fma_f32, X_FTZ | X_SAT | X_RNDS }, { "div.f32", "f=ff", div_f32, X_FTZ | X_RNDS | X_APPROX | X_FULL },
	{ "rcp.f32", "f=f", rcp_f32, X_FTZ | X_RNDS | X_APPROX }, { "sqrt.f32", "f=f", sqrt_f32, X_FTZ | X_RNDS | X_APPROX },
	{ "rsqrt.f32", "f=f", rsqrt_f32, X_FTZ | X_APPROX }, { "sin.f32", "f=f", sin_f32, X_FTZ | X_APPROX },
	{ "cos.f32", "f=f", cos_f32, X_FTZ | X_APPROX }, { "lg2.f32", "f=f", lg2_f32, X_FTZ | X_APPROX },
	{ "ex2.f32", "f=f", ex2_f32, X_FTZ | X_APPROX }, { "tanh.f32", "f=f", tanh_f32, X_APPROX },
	{ "min.f32", "f=ff", min_f32_, X_FTZ | X_NAN | X_XORSIGN | X_ABS }, { "max.f32", "f=ff", max_f32_, X_FTZ | X_NAN | X_XORSIGN | X_ABS },
	{ "min3.f32", "f=fff", min3_f32, X_FTZ | X_NAN | X_ABS }, { "max3.f32", "f=fff", max3_f32, X_FTZ | X_NAN | X_ABS },
	{ "neg.f32", "f=f", neg_f32, 0 }, { "abs.f32", "f=f", abs_f32, 0 }, { "copysign.f32", "f=ff", copysign_f32, 0 },
	{ "neg.ftz.f32", "f=f", neg_ftz_f32, 0 }, { "abs.ftz.f32", "f=f", abs_ftz_f32, 0 },
	{ "add.f64", "g=gg", add_f64, X_RNDS }, { "sub.f64", "g=gg", sub_f64, X_RNDS }, { "mul.f64", "g=gg", mul_f64, X_RNDS },
	{ "fma.f64", "g=ggg", fma_f64, X_RNDS }, { "mad.f64", "g=ggg", fma_f64, X_RNDS }, { "div.f64", "g=gg", div_f64, X_RNDS },
	{ "rcp.f64", "g=g", rcp_f64, X_RNDS }, { "sqrt.f64", "g=g", sqrt_f64, X_RNDS },
	{ "rcp.approx.ftz.f64", "g=g", rcp_gross_f64, 0 }, { "rsqrt.approx.ftz.f64", "g=g", rsqrt_gross_f64, 0 },
	{ "rsqrt.f64", "g=g", rsqrt_f64, X_APPROX },
	{ "min.f64", "g=gg", min_f64_, 0 }, { "max.f64", "g=gg", max_f64_, 0 }, { "neg.f64", "g=g", neg_f64, 0 },
	{ "abs.f64", "g=g", abs_f64, 0 }, { "copysign.f64", "g=gg", copysign_f64, 0 },
	{ "add.f32x2", "d=dd", add_f32x2, X_FTZ | X_RNDS }, { "sub.f32x2", "d=dd", sub_f32x2, X_FTZ | X_RNDS },
	{ "mul.f32x2", "d=dd", mul_f32x2, X_FTZ | X_RNDS }, { "fma.f32x2", "d=ddd", fma_f32x2, X_FTZ | X_RNDS },
#define EACH_TESTP(n, w) \
	{ "testp.finite.f" #n, "p=" w "0", testp_f##n, 0 }, { "testp.infinite.f" #n, "p=" w "1", testp_f##n, 0 }, \
	{ "testp.number.f" #n, "p=" w "2", testp_f##n, 0 }, { "testp.notanumber.f" #n, "p=" w "3", testp_f##n, 0 }, \
	{ "testp.normal.f" #n, "p=" w "4", testp_f##n, 0 }, { "testp.subnormal.f" #n, "p=" w "5", testp_f##n, 0 },
	EACH_TESTP(32, "f") EACH_TESTP(64, "g")
};
/* clang-format on */
