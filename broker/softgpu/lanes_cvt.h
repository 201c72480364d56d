/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions. Part of exec_lanes_*.c. sub[0] and sub[1] are the types of result and source, sub[2] and sub[3] the
 * sizes of their registers, which may be larger: a result is extended by its type's sign to the register.
 */

static inline double source_float(const struct exec_insn *insn, struct exec_warp *warp, uint32_t i)
{
	float f;

	switch (insn->sub[1]) {
	case T_F16:
		f = half_to_f32((uint16_t)(insn->sub[3] == 4 ? SRC(0, uint32_t)[i] : SRC(0, uint16_t)[i]));
		break;
	case T_BF16:
		f = bf16_to_f32((uint16_t)(insn->sub[3] == 4 ? SRC(0, uint32_t)[i] : SRC(0, uint16_t)[i]));
		break;
	case T_F64:
		return SRC(0, double)[i];
	default:
		f = insn->sub[3] == 8 ? bits_f32((uint32_t)SRC(0, uint64_t)[i]) : SRC(0, float)[i];
		if (insn->flags & X_FTZ)
			f = ftz(f);
	}
	return (double)f;
}

static inline int64_t source_int(const struct exec_insn *insn, struct exec_warp *warp, uint32_t i)
{
	uint64_t x = insn->sub[3] == 2 ? SRC(0, uint16_t)[i] : insn->sub[3] == 4 ? SRC(0, uint32_t)[i] : SRC(0, uint64_t)[i];

	switch (insn->sub[1]) {
	case T_U8:
	case T_B8:
		return (uint8_t)x;
	case T_S8:
		return (int8_t)x;
	case T_U16:
	case T_B16:
		return (uint16_t)x;
	case T_S16:
		return (int16_t)x;
	case T_U32:
	case T_B32:
		return (uint32_t)x;
	case T_S32:
		return (int32_t)x;
	}
	return (int64_t)x;
}

static inline void result_bits(const struct exec_insn *insn, struct exec_warp *warp, uint32_t i, uint64_t x)
{
	if (insn->sub[2] == 2)
		DST(uint16_t)[i] = (uint16_t)x;
	else if (insn->sub[2] == 4)
		DST(uint32_t)[i] = (uint32_t)x;
	else
		DST(uint64_t)[i] = x;
}

/* Cuts an integer to a type and extends it again, or clamps it. */
static inline uint64_t to_int(enum ptx_type type, int64_t x, bool source_unsigned, bool clamp)
{
	uint32_t bits = ptx_type_size(type) * 8;
	bool is_signed = ptx_type_signed(type);

	if (clamp) {
		bool huge = source_unsigned && x < 0; /* beyond what int64_t holds */

		if (is_signed) {
			int64_t max = (int64_t)(bits == 64 ? INT64_MAX : (1ll << (bits - 1)) - 1);

			if (huge || x > max)
				return (uint64_t)max;
			return (uint64_t)(x < -max - 1 ? -max - 1 : x);
		}
		if (!source_unsigned && x < 0)
			return 0;
		if (bits < 64 && (huge || x > (1ll << bits) - 1))
			return (1ull << bits) - 1;
		return (uint64_t)x;
	}
	if (bits == 64)
		return (uint64_t)x;
	if (is_signed)
		return (uint64_t)((int64_t)((uint64_t)x << (64 - bits)) >> (64 - bits));
	return (uint64_t)x & ((1ull << bits) - 1);
}

static inline double round_integral(double x, uint32_t flags)
{
	if (flags & X_RZ)
		return trunc(x);
	if (flags & X_RM)
		return floor(x);
	if (flags & X_RP)
		return ceil(x);
	return nearbyint(x);
}

static uint64_t float_to_int(enum ptx_type type, enum ptx_type source, double x, uint32_t flags)
{
	uint32_t bits = ptx_type_size(type) * 8;
	bool is_signed = ptx_type_signed(type);

	if (x != x) /* zero, but for the wide types the middle of the range */
		return source == T_F64 || bits == 64 ? to_int(type, (int64_t)(1ull << (bits - 1)), true, false) : 0;
	x = round_integral(x, flags);
	if (is_signed) {
		double limit = ldexp(1.0, (int)bits - 1);

		if (x >= limit)
			return (1ull << (bits - 1)) - 1;
		if (x < -limit)
			return 0 - (1ull << (bits - 1));
		return (uint64_t)(int64_t)x;
	}
	if (x <= 0)
		return 0;
	if (x >= ldexp(1.0, (int)bits))
		return bits == 64 ? ~0ull : (1ull << bits) - 1;
	return (uint64_t)x;
}

LANE_FN(cvt_int_int)
{
	bool from_unsigned = !ptx_type_signed(insn->sub[1]);

	FOR_LANES(lane, mask)
		result_bits(insn, warp, lane,
			    to_int(insn->sub[0], source_int(insn, warp, lane), from_unsigned, insn->flags & X_SAT));
}

LANE_FN(cvt_float_int)
{
	FOR_LANES(lane, mask)
		result_bits(insn, warp, lane,
			    float_to_int(insn->sub[0], insn->sub[1], source_float(insn, warp, lane), insn->flags));
}

static uint32_t f64_to_f32_bits(double x, uint32_t flags)
{
	static const struct small_format format_f32 = { 32, 23, -126, 127, true };
	float f;

	if (flags & X_ROUND)
		f = bits_f32(round_small(x, &format_f32, flags, false));
	else
		f = (float)x;
	if (flags & X_SAT)
		f = saturate(f);
	if (flags & X_RELU)
		f = f > 0.0f || f != f ? f : 0.0f;
	return f32_bits(canonical(flags & X_FTZ ? ftz(f) : f));
}

/* A double that holds all that decides how the value rounds to anything shorter. */
static double int_to_odd(int64_t x, bool is_unsigned)
{
	uint64_t magnitude = !is_unsigned && x < 0 ? 0 - (uint64_t)x : (uint64_t)x;

	if (magnitude >> 53)
		magnitude = (magnitude & ~0xfffull) | (magnitude & 0xfff ? 0x800 : 0);
	return !is_unsigned && x < 0 ? -(double)magnitude : (double)magnitude;
}

static uint64_t f64_result(enum ptx_type type, double x, uint32_t flags, bool satfinite)
{
	if (type == T_F16 || type == T_BF16) {
		if (flags & X_SAT)
			x = x > 0.0 ? (x < 1.0 ? x : 1.0) : 0.0;
		if (flags & X_RELU)
			x = x > 0.0 || x != x ? x : 0.0;
		return round_small(x, type == T_F16 ? &format_f16 : &format_bf16, flags, satfinite);
	}
	if (type == T_F64) {
		if (flags & X_SAT)
			x = x > 0.0 ? (x < 1.0 ? x : 1.0) : 0.0;
		return f64_bits(x);
	}
	return f64_to_f32_bits(x, flags);
}

LANE_FN(cvt_int_float)
{
	bool from_unsigned = !ptx_type_signed(insn->sub[1]);

	FOR_LANES(lane, mask)
	{
		int64_t x = source_int(insn, warp, lane);
		uint64_t r;

		if (insn->sub[0] == T_F64) {
			volatile int64_t barrier = x;
			double value;

			fesetround(round_mode(insn));
			x = barrier;
			value = from_unsigned ? (double)(uint64_t)x : (double)x;
			FENCE(&value);
			fesetround(FE_TONEAREST);
			r = f64_result(T_F64, value, insn->flags, false);
		} else {
			r = f64_result(insn->sub[0], int_to_odd(x, from_unsigned), insn->flags, false);
		}
		result_bits(insn, warp, lane, r);
	}
}

LANE_FN(cvt_float_float)
{
	FOR_LANES(lane, mask)
	{
		double x = source_float(insn, warp, lane);
		uint32_t flags = insn->flags;

		if (flags & X_INT) {
			x = round_integral(x, flags);
			flags &= ~(uint32_t)X_ROUND;
		}
		result_bits(insn, warp, lane, f64_result(insn->sub[0], x, flags, insn->imm));
	}
}

/* clang-format off */
LANES1(cvt_s32_f32, float, int32_t, x)
LANES1(cvt_u32_f32, float, uint32_t, x)
LANES1(cvt_s32_f64, double, int32_t, x)
LANES1(cvt_u32_f64, double, uint32_t, x)
LANES1(cvt_f32_f64, double, float, x)
LANES1(cvt_f64_f32, float, double, canonical((float)x))
LANES1(cvt_f16_f32, float, uint16_t, canonical(half_to_f32(x)))
LANES1(cvt_bf16_f32, float, uint16_t, canonical(bf16_to_f32(x)))
LANES1(cvt_f32_f16, uint16_t, float, f32_to_half(x))
LANES1(cvt_f32_bf16, uint16_t, float, f32_to_bf16(x))
LANES1(cvt_u32_u64, uint64_t, uint32_t, x)
LANES1(cvt_s32_s64, int64_t, int32_t, x)
LANES1(cvt_u64_u32, uint32_t, uint64_t, x)
LANES1(cvt_u16_u32, uint32_t, uint16_t, x)
LANES1(cvt_s16_s32, int32_t, int16_t, x)
LANES1(cvt_u32_u16, uint16_t, uint32_t, x)
LANES1(cvt_f32_rzi_s32, int32_t, float, x != x ? 0 : x >= 2147483648.0f ? INT32_MAX : x < -2147483648.0f ? INT32_MIN : (int32_t)x)
LANES1(cvt_f32_floor, float, float, canonical(floorf(x)))
LANES1(cvt_f32_ceil, float, float, canonical(ceilf(x)))
LANES1(cvt_f32_trunc, float, float, canonical(truncf(x)))
LANES1(cvt_f32_nearest, float, float, canonical(nearbyintf(x)))
/* clang-format on */

/* Pairs: d = a << 16 | b, each converted; imm is 1 for .satfinite. */
LANE_FN(cvt_f32_pair)
{
	const float *a = SRC(0, float);
	const float *b = SRC(1, float);
	uint32_t *d = DST(uint32_t);
	enum ptx_type type = insn->sub[0] == T_F16X2 ? T_F16 : T_BF16;

	FOR_LANES(lane, mask)
	{
		uint32_t hi = (uint32_t)f64_result(type, (double)a[lane], insn->flags, insn->imm);
		uint32_t lo = (uint32_t)f64_result(type, (double)b[lane], insn->flags, insn->imm);

		d[lane] = hi << 16 | lo;
	}
}

LANE_FN(cvt_f32_eight)
{
	const struct small_format *format = insn->sub[0] == T_E4M3X2 ? &format_e4m3 : &format_e5m2;
	const float *a = SRC(0, float);
	const float *b = SRC(1, float);
	uint16_t *d = DST(uint16_t);

	FOR_LANES(lane, mask)
	{
		float x = a[lane];
		float y = b[lane];

		if (insn->flags & X_RELU) {
			x = x > 0.0f || x != x ? x : 0.0f;
			y = y > 0.0f || y != y ? y : 0.0f;
		}
		d[lane] = (uint16_t)(round_small((double)x, format, 0, true) << 8 |
				     round_small((double)y, format, 0, true));
	}
}

LANE_FN(cvt_half_eight)
{
	const struct small_format *format = insn->sub[0] == T_E4M3X2 ? &format_e4m3 : &format_e5m2;
	const uint32_t *a = SRC(0, uint32_t);
	uint16_t *d = DST(uint16_t);

	FOR_LANES(lane, mask)
	{
		float x = half_to_f32((uint16_t)(a[lane] >> 16));
		float y = half_to_f32((uint16_t)a[lane]);

		if (insn->flags & X_RELU) {
			x = x > 0.0f || x != x ? x : 0.0f;
			y = y > 0.0f || y != y ? y : 0.0f;
		}
		d[lane] = (uint16_t)(round_small((double)x, format, 0, true) << 8 |
				     round_small((double)y, format, 0, true));
	}
}

LANE_FN(cvt_eight_half)
{
	const struct small_format *format = insn->sub[1] == T_E4M3X2 ? &format_e4m3 : &format_e5m2;
	const uint16_t *a = SRC(0, uint16_t);
	uint32_t *d = DST(uint32_t);

	FOR_LANES(lane, mask)
	{
		double x = small_to_f64(a[lane] >> 8, format);
		double y = small_to_f64(a[lane] & 255, format);

		if (insn->flags & X_RELU) {
			x = x > 0.0 || x != x ? x : 0.0;
			y = y > 0.0 || y != y ? y : 0.0;
		}
		d[lane] = round_small(x, &format_f16, 0, false) << 16 | round_small(y, &format_f16, 0, false);
	}
}

LANE_FN(cvt_tf32)
{
	const float *a = SRC(0, float);
	uint32_t *d = DST(uint32_t);

	FOR_LANES(lane, mask)
	{
		float x = a[lane];

		if (insn->flags & X_RELU)
			x = x > 0.0f || x != x ? x : 0.0f;
		d[lane] = round_small((double)x, &format_tf32, insn->flags, insn->imm) << 13;
		if (x != x)
			d[lane] = 0x7fffffffu;
	}
}

/* cvt.pack.sat: sub[0] the small type, sub[1] the source's, sub[2] 1 if c fills the upper part. */
LANE_FN(cvt_pack)
{
	const int32_t *a = SRC(0, int32_t);
	const int32_t *b = SRC(1, int32_t);
	const uint32_t *c = SRC(2, uint32_t);
	uint32_t *d = DST(uint32_t);
	uint32_t bits = ptx_type_size(insn->sub[0]) * 8;

	FOR_LANES(lane, mask)
	{
		bool from_unsigned = insn->sub[1] == T_U32;
		int64_t x = from_unsigned ? (int64_t)(uint32_t)a[lane] : a[lane];
		int64_t y = from_unsigned ? (int64_t)(uint32_t)b[lane] : b[lane];
		uint32_t hi = (uint32_t)to_int(insn->sub[0], x, false, true) & ((1u << bits) - 1);
		uint32_t lo = (uint32_t)to_int(insn->sub[0], y, false, true) & ((1u << bits) - 1);
		uint32_t upper = insn->sub[2] ? c[lane] << (bits * 2 & 31) : 0;

		d[lane] = upper | hi << bits | lo;
	}
}

static exec_fn cvt_find(const struct exec_insn *insn)
{
	enum ptx_type to = insn->sub[0];
	enum ptx_type from = insn->sub[1];
	uint32_t flags = insn->flags & ~(uint32_t)X_RN;
	bool exact_size = insn->sub[2] == ptx_type_size(to) && insn->sub[3] == ptx_type_size(from);

	if (exact_size && !flags && !insn->imm) {
		if (to == T_F32 && from == T_S32)
			return cvt_s32_f32;
		if (to == T_F32 && from == T_U32)
			return cvt_u32_f32;
		if (to == T_F64 && from == T_S32)
			return cvt_s32_f64;
		if (to == T_F64 && from == T_U32)
			return cvt_u32_f64;
		if (to == T_F64 && from == T_F32)
			return cvt_f32_f64;
		if (to == T_F32 && from == T_F64)
			return cvt_f64_f32;
		if (to == T_F32 && from == T_F16)
			return cvt_f16_f32;
		if (to == T_F32 && from == T_BF16)
			return cvt_bf16_f32;
		if (to == T_F16 && from == T_F32)
			return cvt_f32_f16;
		if (to == T_BF16 && from == T_F32)
			return cvt_f32_bf16;
		if ((to == T_U64 || to == T_S64) && from == T_U32)
			return cvt_u32_u64;
		if ((to == T_U64 || to == T_S64) && from == T_S32)
			return cvt_s32_s64;
		if ((to == T_U32 || to == T_S32) && (from == T_U64 || from == T_S64))
			return cvt_u64_u32;
		if ((to == T_U32 || to == T_S32) && from == T_U16)
			return cvt_u16_u32;
		if ((to == T_U32 || to == T_S32) && from == T_S16)
			return cvt_s16_s32;
		if ((to == T_U16 || to == T_S16) && (from == T_U32 || from == T_S32))
			return cvt_u32_u16;
	}
	if (exact_size && to == T_S32 && from == T_F32 && flags == (X_INT | X_RZ))
		return cvt_f32_rzi_s32;
	if (exact_size && to == T_F32 && from == T_F32 && flags & X_INT && !(flags & ~(uint32_t)(X_INT | X_ROUND))) {
		if (flags & X_RM)
			return cvt_f32_floor;
		if (flags & X_RP)
			return cvt_f32_ceil;
		return flags & X_RZ ? cvt_f32_trunc : cvt_f32_nearest;
	}
	if (to == T_F16X2 || to == T_BF16X2)
		return from == T_F32 ? cvt_f32_pair
		       : to == T_F16X2 && (from == T_E4M3X2 || from == T_E5M2X2) ? cvt_eight_half
									      : NULL;
	if (to == T_E4M3X2 || to == T_E5M2X2)
		return from == T_F32 ? cvt_f32_eight : from == T_F16X2 ? cvt_half_eight : NULL;
	if (to == T_TF32)
		return from == T_F32 ? cvt_tf32 : NULL;
	if (ptx_type_float(to) && ptx_type_size(to) < 2)
		return NULL;
	if (ptx_type_float(from) && (ptx_type_size(from) < 2 || from == T_F16X2 || from == T_BF16X2 || from == T_F32X2))
		return NULL;
	if (to == T_PRED || from == T_PRED || to == T_B128 || from == T_B128)
		return NULL;
	if (ptx_type_float(to))
		return ptx_type_float(from) ? cvt_float_float : cvt_int_float;
	return ptx_type_float(from) ? cvt_float_int : cvt_int_int;
}

static const struct exec_form cvt_forms[] = {
	{ "cvt.pack", "w=www", cvt_pack, 0 },
};
