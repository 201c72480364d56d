/* SPDX-License-Identifier: Apache-2.0 */
/* Integer and bit instructions. Part of exec_lanes_*.c. */

/* clang-format off */
#define INT_ARITH(n, u, s) \
	LANES2(add_##n, u, x + y) \
	LANES2(sub_##n, u, x - y) \
	LANES2(mul_lo_##n, u, (u)((uint64_t)x * y)) \
	LANES3(mad_lo_##n, u, (u)((uint64_t)x * y + z)) \
	LANES2(and_##n, u, x & y) \
	LANES2(or_##n, u, x | y) \
	LANES2(xor_##n, u, x ^ y) \
	LANES1(not_##n, u, u, ~x) \
	LANES1(cnot_##n, u, u, x == 0) \
	LANES1(neg_##n, u, u, 0 - x) \
	LANES1(abs_##n, u, u, (s)x < 0 ? 0 - x : x) \
	LANES2(min_u##n, u, x < y ? x : y) \
	LANES2(max_u##n, u, x > y ? x : y) \
	LANES2(min_s##n, s, x < y ? x : y) \
	LANES2(max_s##n, s, x > y ? x : y) \
	LANES2X(shl_##n, u, u, uint32_t, y < sizeof(u) * 8 ? (u)((uint64_t)x << (y & 63)) : 0) \
	LANES2X(shr_u##n, u, u, uint32_t, y < sizeof(u) * 8 ? x >> (y & (sizeof(u) * 8 - 1)) : 0) \
	LANES2X(shr_s##n, s, s, uint32_t, x >> (y < sizeof(u) * 8 ? y : sizeof(u) * 8 - 1)) \
	LANES2(div_u##n, u, y ? x / (y ? y : 1) : (u)~(u)0) \
	LANES2(rem_u##n, u, y ? x % (y ? y : 1) : x) \
	LANES2(div_s##n, s, div_signed_##n(x, y)) \
	LANES2(rem_s##n, s, rem_signed_##n(x, y)) \
	LANES3(sad_u##n, u, z + (x > y ? x - y : y - x)) \
	LANES3X(sad_s##n, u, s, s, u, z + (x > y ? (u)x - (u)y : (u)y - (u)x))

#define INT_DIVIDE(n, u, s) \
	/* The result of a division by zero is not specified; all ones is what hardware gives. */ \
	static inline s div_signed_##n(s x, s y) { return !y ? (s)-1 : y == -1 ? (s)(0 - (u)x) : (s)(x / y); } \
	static inline s rem_signed_##n(s x, s y) { return !y ? x : y == -1 ? 0 : (s)(x % y); }

INT_DIVIDE(16, uint16_t, int16_t)
INT_DIVIDE(32, uint32_t, int32_t)
INT_DIVIDE(64, uint64_t, int64_t)
INT_ARITH(16, uint16_t, int16_t)
INT_ARITH(32, uint32_t, int32_t)
INT_ARITH(64, uint64_t, int64_t)

LANES2(mul_hi_u16, uint16_t, ((uint32_t)x * y) >> 16)
LANES2(mul_hi_s16, int16_t, ((int32_t)x * y) >> 16)
LANES2(mul_hi_u32, uint32_t, ((uint64_t)x * y) >> 32)
LANES2(mul_hi_s32, int32_t, ((int64_t)x * y) >> 32)
LANES2(mul_hi_u64, uint64_t, (uint64_t)(((unsigned __int128)x * y) >> 64))
LANES2(mul_hi_s64, int64_t, (int64_t)(((__int128)x * y) >> 64))
LANES2X(mul_wide_u16, uint32_t, uint16_t, uint16_t, (uint32_t)x * y)
LANES2X(mul_wide_s16, int32_t, int16_t, int16_t, (int32_t)x * y)
LANES2X(mul_wide_u32, uint64_t, uint32_t, uint32_t, (uint64_t)x * y)
LANES2X(mul_wide_s32, int64_t, int32_t, int32_t, (int64_t)x * y)
LANES3X(mad_wide_u16, uint32_t, uint16_t, uint16_t, uint32_t, (uint32_t)x * y + z)
LANES3X(mad_wide_s16, uint32_t, int16_t, int16_t, uint32_t, (uint32_t)((int32_t)x * y) + z)
LANES3X(mad_wide_u32, uint64_t, uint32_t, uint32_t, uint64_t, (uint64_t)x * y + z)
LANES3X(mad_wide_s32, uint64_t, int32_t, int32_t, uint64_t, (uint64_t)((int64_t)x * y) + z)
LANES3(mad_hi_u16, uint16_t, (((uint32_t)x * y) >> 16) + z)
LANES3X(mad_hi_s16, uint16_t, int16_t, int16_t, uint16_t, (uint32_t)(((int32_t)x * y) >> 16) + z)
LANES3(mad_hi_u32, uint32_t, (uint32_t)(((uint64_t)x * y) >> 32) + z)
LANES3X(mad_hi_s32, uint32_t, int32_t, int32_t, uint32_t, (uint32_t)(((int64_t)x * y) >> 32) + z)
LANES3(mad_hi_u64, uint64_t, (uint64_t)(((unsigned __int128)x * y) >> 64) + z)
LANES3X(mad_hi_s64, uint64_t, int64_t, int64_t, uint64_t, (uint64_t)(int64_t)(((__int128)x * y) >> 64) + z)
LANES3X(mad_hi_sat_s32, int32_t, int32_t, int32_t, int32_t, clamp_s32((((int64_t)x * y) >> 32) + z))
LANES2(mul24_lo_u32, uint32_t, (x & 0xffffff) * (y & 0xffffff))
LANES2(mul24_lo_s32, uint32_t, (uint32_t)(sign24(x) * sign24(y)))
LANES2(mul24_hi_u32, uint32_t, ((uint64_t)(x & 0xffffff) * (y & 0xffffff)) >> 16)
LANES2(mul24_hi_s32, uint32_t, (uint32_t)((sign24(x) * sign24(y)) >> 16))
LANES3(mad24_lo_u32, uint32_t, (x & 0xffffff) * (y & 0xffffff) + z)
LANES3(mad24_lo_s32, uint32_t, (uint32_t)(sign24(x) * sign24(y)) + z)

LANES2(add_sat_s32, int32_t, clamp_s32((int64_t)x + y))
LANES2(sub_sat_s32, int32_t, clamp_s32((int64_t)x - y))
LANES1(neg_relu_s32, int32_t, int32_t, x < 0 ? (int32_t)(0 - (uint32_t)x) : 0)
LANES2(min_relu_s32, int32_t, (x < y ? x : y) > 0 ? (x < y ? x : y) : 0)
LANES2(max_relu_s32, int32_t, (x > y ? x : y) > 0 ? (x > y ? x : y) : 0)
LANES3(min3_s32, int32_t, min_s(min_s(x, y), z))
LANES3(max3_s32, int32_t, max_s(max_s(x, y), z))
LANES3(min3_u32, uint32_t, min_u(min_u(x, y), z))
LANES3(max3_u32, uint32_t, max_u(max_u(x, y), z))
LANES3(add3_u32, uint32_t, x + y + z)

/* Two 16-bit halves. */
#define PAIR(lo, hi) ((uint32_t)(uint16_t)(lo) | (uint32_t)(uint16_t)(hi) << 16)
#define LO_S(x) ((int16_t)(x))
#define HI_S(x) ((int16_t)((x) >> 16))
#define LO_U(x) ((uint16_t)(x))
#define HI_U(x) ((uint16_t)((x) >> 16))
LANES2(add_u16x2, uint32_t, PAIR(LO_U(x) + LO_U(y), HI_U(x) + HI_U(y)))
LANES2(sub_u16x2, uint32_t, PAIR(LO_U(x) - LO_U(y), HI_U(x) - HI_U(y)))
LANES2(min_u16x2, uint32_t, PAIR(LO_U(x) < LO_U(y) ? LO_U(x) : LO_U(y), HI_U(x) < HI_U(y) ? HI_U(x) : HI_U(y)))
LANES2(max_u16x2, uint32_t, PAIR(LO_U(x) > LO_U(y) ? LO_U(x) : LO_U(y), HI_U(x) > HI_U(y) ? HI_U(x) : HI_U(y)))
LANES2(min_s16x2, uint32_t, PAIR(relu_s(insn, min_s(LO_S(x), LO_S(y))), relu_s(insn, min_s(HI_S(x), HI_S(y)))))
LANES2(max_s16x2, uint32_t, PAIR(relu_s(insn, max_s(LO_S(x), LO_S(y))), relu_s(insn, max_s(HI_S(x), HI_S(y)))))

LANES1(popc_32, uint32_t, uint32_t, count32(x))
LANES1(popc_64, uint32_t, uint64_t, count32((uint32_t)x) + count32((uint32_t)(x >> 32)))
LANES1(clz_32, uint32_t, uint32_t, x ? __builtin_clz(x | 0) : 32)
LANES1(clz_64, uint32_t, uint64_t, x ? __builtin_clzll(x) : 64)
LANES1(brev_32, uint32_t, uint32_t, reverse32(x))
LANES1(brev_64, uint64_t, uint64_t, (uint64_t)reverse32((uint32_t)x) << 32 | reverse32((uint32_t)(x >> 32)))
LANES1(bfind_u32, uint32_t, uint32_t, find32(x))
LANES1(bfind_s32, uint32_t, uint32_t, find32((int32_t)x < 0 ? ~x : x))
LANES1(bfind_u64, uint32_t, uint64_t, find64(x))
LANES1(bfind_s64, uint32_t, uint64_t, find64((int64_t)x < 0 ? ~x : x))
LANES1(bfind_shift_u32, uint32_t, uint32_t, x ? 31 - find32(x) : ~0u)
LANES1(bfind_shift_s32, uint32_t, uint32_t, ((int32_t)x < 0 ? ~x : x) ? 31 - find32((int32_t)x < 0 ? ~x : x) : ~0u)
LANES1(bfind_shift_u64, uint32_t, uint64_t, x ? 63 - find64(x) : ~0u)
LANES1(bfind_shift_s64, uint32_t, uint64_t, ((int64_t)x < 0 ? ~x : x) ? 63 - find64((int64_t)x < 0 ? ~x : x) : ~0u)
LANES3X(bfe_u32, uint32_t, uint32_t, uint32_t, uint32_t, extract(x, 32, y & 255, z & 255, 0))
LANES3X(bfe_s32, uint32_t, uint32_t, uint32_t, uint32_t, extract((uint64_t)(int64_t)(int32_t)x, 32, y & 255, z & 255, 1))
LANES3X(bfe_u64, uint64_t, uint64_t, uint32_t, uint32_t, extract(x, 64, y & 255, z & 255, 0))
LANES3X(bfe_s64, uint64_t, uint64_t, uint32_t, uint32_t, extract(x, 64, y & 255, z & 255, 1))
LANES3X(fns_b32, uint32_t, uint32_t, uint32_t, int32_t, find_nth(x, y, z))
LANES3(lop3, uint32_t, lop3_bits(x, y, z, insn->sub[0]))
LANES3(prmt, uint32_t, permute((uint64_t)y << 32 | x, z, insn->sub[0]))
LANES3(shf_l_clamp, uint32_t, (uint32_t)((((uint64_t)y << 32 | x) << (z < 32 ? z : 32)) >> 32))
LANES3(shf_r_clamp, uint32_t, (uint32_t)(((uint64_t)y << 32 | x) >> (z < 32 ? z : 32)))
LANES3(shf_l_wrap, uint32_t, (uint32_t)((((uint64_t)y << 32 | x) << (z & 31)) >> 32))
LANES3(shf_r_wrap, uint32_t, (uint32_t)(((uint64_t)y << 32 | x) >> (z & 31)))
LANES2(bmsk_clamp, uint32_t, mask_bits(x, y < 32 ? y : 32, x >= 32))
LANES2(bmsk_wrap, uint32_t, mask_bits(x & 31, y & 31, 0))
LANES2X(szext_u_clamp, uint32_t, uint32_t, uint32_t, y >= 32 ? x : x & ((1u << (y & 31)) - 1))
LANES2X(szext_u_wrap, uint32_t, uint32_t, uint32_t, x & ((1u << (y & 31)) - 1))
LANES2X(szext_s_clamp, uint32_t, uint32_t, uint32_t, y >= 32 ? x : !y ? 0 : (uint32_t)((int32_t)(x << (32 - y)) >> (32 - y)))
LANES2X(szext_s_wrap, uint32_t, uint32_t, uint32_t, !(y & 31) ? 0 : (uint32_t)((int32_t)(x << (32 - (y & 31))) >> (32 - (y & 31))))
LANES3(dp4a, uint32_t, dot4(x, y, z, insn->sub[0], insn->sub[1]))
LANES3(dp2a, uint32_t, dot2(x, y, z, insn->sub[0], insn->sub[1], insn->sub[2]))
LANES1(mov_16, uint16_t, uint16_t, x)
LANES1(mov_32, uint32_t, uint32_t, x)
LANES1(mov_64, uint64_t, uint64_t, x)
LANES3X(slct_s_16, uint16_t, uint16_t, uint16_t, int32_t, z >= 0 ? x : y)
LANES3X(slct_s_32, uint32_t, uint32_t, uint32_t, int32_t, z >= 0 ? x : y)
LANES3X(slct_s_64, uint64_t, uint64_t, uint64_t, int32_t, z >= 0 ? x : y)
LANES3X(slct_f_16, uint16_t, uint16_t, uint16_t, float, z >= 0 ? x : y)
LANES3X(slct_f_32, uint32_t, uint32_t, uint32_t, float, z >= 0 ? x : y)
LANES3X(slct_f_64, uint64_t, uint64_t, uint64_t, float, z >= 0 ? x : y)
/* clang-format on */

/* Packing and taking apart: sub[0] is the shift. */
LANES2X(pack_2x32, uint64_t, uint32_t, uint32_t, x | (uint64_t)y << 32)
LANES2X(pack_2x16, uint32_t, uint16_t, uint16_t, x | (uint32_t)y << 16)
LANES1(part_64_32, uint32_t, uint64_t, x >> insn->sub[0])
LANES1(part_64_16, uint16_t, uint64_t, x >> insn->sub[0])
LANES1(part_32_16, uint16_t, uint32_t, x >> insn->sub[0])
LANES1(part_32_8, uint16_t, uint32_t, x >> insn->sub[0] & 255)
LANES1(part_16_8, uint16_t, uint16_t, x >> insn->sub[0] & 255)

LANE_FN(mov_128)
{
	const uint64_t *a = SRC(0, uint64_t);
	uint64_t *d = DST(uint64_t);

	FOR_LANES(lane, mask)
	{
		d[lane * 2] = a[lane * 2];
		d[lane * 2 + 1] = a[lane * 2 + 1];
	}
}

#define SELP(n, t) \
	LANE_FN(selp_##n) \
	{ \
		const t *a = SRC(0, t); \
		const t *b = SRC(1, t); \
		uint32_t p = *SRC(2, uint32_t) ^ (insn->sub[0] ? EXEC_FULL : 0); \
		t *d = DST(t); \
		t r[EXEC_LANES]; \
		EACH_LANE { \
			r[i] = p >> i & 1 ? a[i] : b[i]; \
		} \
		STORE_LANES(t, d, r, mask); \
	}
SELP(16, uint16_t)
SELP(32, uint32_t)
SELP(64, uint64_t)

LANE_FN(bfi_32)
{
	const uint32_t *a = SRC(0, uint32_t);
	const uint32_t *b = SRC(1, uint32_t);
	const uint32_t *c = SRC(2, uint32_t);
	const uint32_t *e = SRC(3, uint32_t);
	uint32_t *d = DST(uint32_t);
	uint32_t r[EXEC_LANES];

	EACH_LANE {
		r[i] = (uint32_t)insert(a[i], b[i], 32, c[i] & 255, e[i] & 255);
	}
	STORE_LANES(uint32_t, d, r, mask);
}

LANE_FN(bfi_64)
{
	const uint64_t *a = SRC(0, uint64_t);
	const uint64_t *b = SRC(1, uint64_t);
	const uint32_t *c = SRC(2, uint32_t);
	const uint32_t *e = SRC(3, uint32_t);
	uint64_t *d = DST(uint64_t);
	uint64_t r[EXEC_LANES];

	EACH_LANE {
		r[i] = insert(a[i], b[i], 64, c[i] & 255, e[i] & 255);
	}
	STORE_LANES(uint64_t, d, r, mask);
}

/* Carry chains: sub[0] takes the carry in, sub[1] sets it. A borrow is an inverted carry. */
#define CARRY(n, u) \
	LANE_FN(carry_add_##n) \
	{ \
		const u *a = SRC(0, u); \
		const u *b = SRC(1, u); \
		u *d = DST(u); \
		FOR_LANES(lane, mask) \
		{ \
			unsigned __int128 sum = (unsigned __int128)a[lane] + b[lane] + \
						(insn->sub[0] ? warp->cc >> lane & 1 : 0); \
			d[lane] = (u)sum; \
			if (insn->sub[1]) \
				warp->cc = (warp->cc & ~(1u << lane)) | (uint32_t)(sum >> (sizeof(u) * 8) & 1) << lane; \
		} \
	} \
	LANE_FN(carry_sub_##n) \
	{ \
		const u *a = SRC(0, u); \
		const u *b = SRC(1, u); \
		u *d = DST(u); \
		FOR_LANES(lane, mask) \
		{ \
			unsigned __int128 sum = (unsigned __int128)a[lane] - b[lane] - \
						(insn->sub[0] ? warp->cc >> lane & 1 : 0); \
			d[lane] = (u)sum; \
			if (insn->sub[1]) \
				warp->cc = (warp->cc & ~(1u << lane)) | (uint32_t)(sum >> (sizeof(u) * 8) & 1) << lane; \
		} \
	} \
	/* sub[2]: the high half of the product */ \
	LANE_FN(carry_mad_##n) \
	{ \
		const u *a = SRC(0, u); \
		const u *b = SRC(1, u); \
		const u *c = SRC(2, u); \
		u *d = DST(u); \
		FOR_LANES(lane, mask) \
		{ \
			unsigned __int128 product = (unsigned __int128)a[lane] * b[lane]; \
			unsigned __int128 sum; \
			if (insn->sub[3]) /* signed */ \
				product = (unsigned __int128)((__int128)signed_##n(a[lane]) * signed_##n(b[lane])); \
			sum = (unsigned __int128)(u)(insn->sub[2] ? product >> (sizeof(u) * 8) : product) + c[lane] + \
			      (insn->sub[0] ? warp->cc >> lane & 1 : 0); \
			d[lane] = (u)sum; \
			if (insn->sub[1]) \
				warp->cc = (warp->cc & ~(1u << lane)) | (uint32_t)(sum >> (sizeof(u) * 8) & 1) << lane; \
		} \
	}
static inline int32_t signed_32(uint32_t x)
{
	return (int32_t)x;
}
static inline int64_t signed_64(uint64_t x)
{
	return (int64_t)x;
}
CARRY(32, uint32_t)
CARRY(64, uint64_t)

/* Predicates are masks. */
#define PRED_FN(name, ...) \
	LANE_FN(name) \
	{ \
		uint32_t x = *SRC(0, uint32_t); \
		uint32_t y = *SRC(1, uint32_t); /* slot 0 if there is none */ \
		uint32_t *d = DST(uint32_t); \
		*d = (*d & ~mask) | ((__VA_ARGS__) & mask); \
		(void)y; \
	}
PRED_FN(pred_and, x &y)
PRED_FN(pred_or, x | y)
PRED_FN(pred_xor, x ^ y)
PRED_FN(pred_not, ~x)
PRED_FN(pred_mov, x)

/* clang-format off */
static const struct exec_form int_forms[] = {
#define EACH_WIDTH(n, w) \
	{ "add.u" #n, #w "=" #w #w, add_##n, 0 }, { "add.s" #n, #w "=" #w #w, add_##n, 0 }, \
	{ "sub.u" #n, #w "=" #w #w, sub_##n, 0 }, { "sub.s" #n, #w "=" #w #w, sub_##n, 0 }, \
	{ "mul.lo.u" #n, #w "=" #w #w, mul_lo_##n, 0 }, { "mul.lo.s" #n, #w "=" #w #w, mul_lo_##n, 0 }, \
	{ "mul.hi.u" #n, #w "=" #w #w, mul_hi_u##n, 0 }, { "mul.hi.s" #n, #w "=" #w #w, mul_hi_s##n, 0 }, \
	{ "mad.lo.u" #n, #w "=" #w #w #w, mad_lo_##n, 0 }, { "mad.lo.s" #n, #w "=" #w #w #w, mad_lo_##n, 0 }, \
	{ "mad.hi.u" #n, #w "=" #w #w #w, mad_hi_u##n, 0 }, { "mad.hi.s" #n, #w "=" #w #w #w, mad_hi_s##n, 0 }, \
	{ "and.b" #n, #w "=" #w #w, and_##n, 0 }, { "or.b" #n, #w "=" #w #w, or_##n, 0 }, \
	{ "xor.b" #n, #w "=" #w #w, xor_##n, 0 }, { "not.b" #n, #w "=" #w, not_##n, 0 }, \
	{ "cnot.b" #n, #w "=" #w, cnot_##n, 0 }, { "neg.s" #n, #w "=" #w, neg_##n, 0 }, \
	{ "abs.s" #n, #w "=" #w, abs_##n, 0 }, \
	{ "min.u" #n, #w "=" #w #w, min_u##n, 0 }, { "max.u" #n, #w "=" #w #w, max_u##n, 0 }, \
	{ "min.s" #n, #w "=" #w #w, min_s##n, 0 }, { "max.s" #n, #w "=" #w #w, max_s##n, 0 }, \
	{ "shl.b" #n, #w "=" #w "w", shl_##n, 0 }, { "shr.b" #n, #w "=" #w "w", shr_u##n, 0 }, \
	{ "shr.u" #n, #w "=" #w "w", shr_u##n, 0 }, { "shr.s" #n, #w "=" #w "w", shr_s##n, 0 }, \
	{ "div.u" #n, #w "=" #w #w, div_u##n, 0 }, { "div.s" #n, #w "=" #w #w, div_s##n, 0 }, \
	{ "rem.u" #n, #w "=" #w #w, rem_u##n, 0 }, { "rem.s" #n, #w "=" #w #w, rem_s##n, 0 }, \
	{ "sad.u" #n, #w "=" #w #w #w, sad_u##n, 0 }, { "sad.s" #n, #w "=" #w #w #w, sad_s##n, 0 }, \
	{ "selp.b" #n, #w "=" #w #w "P", selp_##n, 0 }, { "selp.u" #n, #w "=" #w #w "P", selp_##n, 0 }, \
	{ "selp.s" #n, #w "=" #w #w "P", selp_##n, 0 }, \
	{ "slct.b" #n ".s32", #w "=" #w #w "w", slct_s_##n, 0 }, { "slct.u" #n ".s32", #w "=" #w #w "w", slct_s_##n, 0 }, \
	{ "slct.s" #n ".s32", #w "=" #w #w "w", slct_s_##n, 0 }, \
	{ "slct.b" #n ".f32", #w "=" #w #w "f", slct_f_##n, X_FTZ }, { "slct.u" #n ".f32", #w "=" #w #w "f", slct_f_##n, X_FTZ }, \
	{ "slct.s" #n ".f32", #w "=" #w #w "f", slct_f_##n, X_FTZ },
	EACH_WIDTH(16, h)
	EACH_WIDTH(32, w)
	EACH_WIDTH(64, d)
	{ "selp.f16", "h=hhP", selp_16, 0 }, { "selp.bf16", "h=hhP", selp_16, 0 },
	{ "selp.f32", "f=ffP", selp_32, 0 }, { "selp.f64", "g=ggP", selp_64, 0 },
	{ "slct.f32.s32", "f=ffw", slct_s_32, 0 }, { "slct.f64.s32", "g=ggw", slct_s_64, 0 },
	{ "slct.f32.f32", "f=fff", slct_f_32, X_FTZ }, { "slct.f64.f32", "g=ggf", slct_f_64, X_FTZ },
	{ "mul.wide.u16", "w=hh", mul_wide_u16, 0 }, { "mul.wide.s16", "w=hh", mul_wide_s16, 0 },
	{ "mul.wide.u32", "d=ww", mul_wide_u32, 0 }, { "mul.wide.s32", "d=ww", mul_wide_s32, 0 },
	{ "mad.wide.u16", "w=hhw", mad_wide_u16, 0 }, { "mad.wide.s16", "w=hhw", mad_wide_s16, 0 },
	{ "mad.wide.u32", "d=wwd", mad_wide_u32, 0 }, { "mad.wide.s32", "d=wwd", mad_wide_s32, 0 },
	{ "mad.hi.sat.s32", "w=www", mad_hi_sat_s32, 0 },
	{ "mul24.lo.u32", "w=ww", mul24_lo_u32, 0 }, { "mul24.lo.s32", "w=ww", mul24_lo_s32, 0 },
	{ "mul24.hi.u32", "w=ww", mul24_hi_u32, 0 }, { "mul24.hi.s32", "w=ww", mul24_hi_s32, 0 },
	{ "mad24.lo.u32", "w=www", mad24_lo_u32, 0 }, { "mad24.lo.s32", "w=www", mad24_lo_s32, 0 },
	{ "add.sat.s32", "w=ww", add_sat_s32, 0 }, { "sub.sat.s32", "w=ww", sub_sat_s32, 0 },
	{ "min.relu.s32", "w=ww", min_relu_s32, 0 }, { "max.relu.s32", "w=ww", max_relu_s32, 0 },
	{ "neg.relu.s32", "w=w", neg_relu_s32, 0 },
	{ "min3.s32", "w=www", min3_s32, 0 }, { "max3.s32", "w=www", max3_s32, 0 },
	{ "min3.u32", "w=www", min3_u32, 0 }, { "max3.u32", "w=www", max3_u32, 0 },
	{ "add3.u32", "w=www", add3_u32, 0 }, { "add3.s32", "w=www", add3_u32, 0 },
	{ "add.u16x2", "w=ww", add_u16x2, 0 }, { "add.s16x2", "w=ww", add_u16x2, 0 },
	{ "sub.u16x2", "w=ww", sub_u16x2, 0 }, { "sub.s16x2", "w=ww", sub_u16x2, 0 },
	{ "min.u16x2", "w=ww", min_u16x2, 0 }, { "max.u16x2", "w=ww", max_u16x2, 0 },
	{ "min.s16x2", "w=ww", min_s16x2, X_RELU }, { "max.s16x2", "w=ww", max_s16x2, X_RELU },
	{ "min.relu.s16x2", "w=ww", min_s16x2, 0 }, { "max.relu.s16x2", "w=ww", max_s16x2, 0 },
	{ "popc.b32", "w=w", popc_32, 0 }, { "popc.b64", "w=d", popc_64, 0 },
	{ "clz.b32", "w=w", clz_32, 0 }, { "clz.b64", "w=d", clz_64, 0 },
	{ "brev.b32", "w=w", brev_32, 0 }, { "brev.b64", "d=d", brev_64, 0 },
	{ "bfind.u32", "w=w", bfind_u32, 0 }, { "bfind.s32", "w=w", bfind_s32, 0 },
	{ "bfind.b32", "w=w", bfind_u32, 0 },
	{ "bfind.u64", "w=d", bfind_u64, 0 }, { "bfind.s64", "w=d", bfind_s64, 0 },
	{ "bfind.shiftamt.u32", "w=w", bfind_shift_u32, 0 }, { "bfind.shiftamt.s32", "w=w", bfind_shift_s32, 0 },
	{ "bfind.shiftamt.u64", "w=d", bfind_shift_u64, 0 }, { "bfind.shiftamt.s64", "w=d", bfind_shift_s64, 0 },
	{ "bfe.u32", "w=www", bfe_u32, 0 }, { "bfe.s32", "w=www", bfe_s32, 0 },
	{ "bfe.u64", "d=dww", bfe_u64, 0 }, { "bfe.s64", "d=dww", bfe_s64, 0 },
	{ "bfi.b32", "w=wwww", bfi_32, 0 }, { "bfi.b64", "d=ddww", bfi_64, 0 },
	{ "fns.b32", "w=www", fns_b32, 0 }, { "lop3.b32", "w=wwwi", lop3, 0 },
	{ "shf.l.clamp.b32", "w=www", shf_l_clamp, 0 }, { "shf.r.clamp.b32", "w=www", shf_r_clamp, 0 },
	{ "shf.l.wrap.b32", "w=www", shf_l_wrap, 0 }, { "shf.r.wrap.b32", "w=www", shf_r_wrap, 0 },
	{ "bmsk.clamp.b32", "w=ww", bmsk_clamp, 0 }, { "bmsk.wrap.b32", "w=ww", bmsk_wrap, 0 },
	{ "szext.clamp.u32", "w=ww", szext_u_clamp, 0 }, { "szext.wrap.u32", "w=ww", szext_u_wrap, 0 },
	{ "szext.clamp.s32", "w=ww", szext_s_clamp, 0 }, { "szext.wrap.s32", "w=ww", szext_s_wrap, 0 },
	{ "prmt.b32", "w=www0", prmt, 0 }, { "prmt.b32.f4e", "w=www1", prmt, 0 }, { "prmt.b32.b4e", "w=www2", prmt, 0 },
	{ "prmt.b32.rc8", "w=www3", prmt, 0 }, { "prmt.b32.ecl", "w=www4", prmt, 0 },
	{ "prmt.b32.ecr", "w=www5", prmt, 0 }, { "prmt.b32.rc16", "w=www6", prmt, 0 },
	{ "dp4a.u32.u32", "w=www00", dp4a, 0 }, { "dp4a.u32.s32", "w=www01", dp4a, 0 },
	{ "dp4a.s32.u32", "w=www10", dp4a, 0 }, { "dp4a.s32.s32", "w=www11", dp4a, 0 },
	{ "dp2a.lo.u32.u32", "w=www000", dp2a, 0 }, { "dp2a.lo.u32.s32", "w=www010", dp2a, 0 },
	{ "dp2a.lo.s32.u32", "w=www100", dp2a, 0 }, { "dp2a.lo.s32.s32", "w=www110", dp2a, 0 },
	{ "dp2a.hi.u32.u32", "w=www001", dp2a, 0 }, { "dp2a.hi.u32.s32", "w=www011", dp2a, 0 },
	{ "dp2a.hi.s32.u32", "w=www101", dp2a, 0 }, { "dp2a.hi.s32.s32", "w=www111", dp2a, 0 },
	{ "and.pred", "p=pp", pred_and, 0 }, { "or.pred", "p=pp", pred_or, 0 }, { "xor.pred", "p=pp", pred_xor, 0 },
	{ "not.pred", "p=p", pred_not, 0 }, { "mov.pred", "p=p", pred_mov, 0 },
	{ "mov.b16", "h=h", mov_16, 0 }, { "mov.u16", "h=h", mov_16, 0 }, { "mov.s16", "h=h", mov_16, 0 },
	{ "mov.f16", "h=h", mov_16, 0 }, { "mov.bf16", "h=h", mov_16, 0 },
	{ "mov.b32", "w=w", mov_32, 0 }, { "mov.u32", "w=w", mov_32, 0 }, { "mov.s32", "w=w", mov_32, 0 },
	{ "mov.f16x2", "w=w", mov_32, 0 }, { "mov.bf16x2", "w=w", mov_32, 0 },
	{ "mov.f32", "f=f", mov_32, 0 },
	{ "mov.b64", "d=d", mov_64, 0 }, { "mov.u64", "d=d", mov_64, 0 }, { "mov.s64", "d=d", mov_64, 0 },
	{ "pack.2x32", "d=ww", pack_2x32, 0 }, { "pack.2x16", "w=hh", pack_2x16, 0 },
	{ "part.64.32", "w=d", part_64_32, 0 }, { "part.64.16", "h=d", part_64_16, 0 }, { "part.32.16", "h=w", part_32_16, 0 },
	{ "part.32.8", "h=w", part_32_8, 0 }, { "part.16.8", "h=h", part_16_8, 0 },
	{ "mov.f64", "g=g", mov_64, 0 }, { "mov.b128", "q=q", mov_128, 0 },
#define EACH_CARRY(t, n, w) \
	{ "add.cc." t #n, #w "=" #w #w "01", carry_add_##n, 0 }, { "addc." t #n, #w "=" #w #w "10", carry_add_##n, 0 }, \
	{ "addc.cc." t #n, #w "=" #w #w "11", carry_add_##n, 0 }, { "sub.cc." t #n, #w "=" #w #w "01", carry_sub_##n, 0 }, \
	{ "subc." t #n, #w "=" #w #w "10", carry_sub_##n, 0 }, { "subc.cc." t #n, #w "=" #w #w "11", carry_sub_##n, 0 }
	EACH_CARRY("u", 32, w), EACH_CARRY("s", 32, w), EACH_CARRY("u", 64, d), EACH_CARRY("s", 64, d),
#define EACH_MADC(t, n, w, s) \
	{ "mad.lo.cc." t #n, #w "=" #w #w #w "010" s, carry_mad_##n, 0 }, { "mad.hi.cc." t #n, #w "=" #w #w #w "011" s, carry_mad_##n, 0 }, \
	{ "madc.lo." t #n, #w "=" #w #w #w "100" s, carry_mad_##n, 0 }, { "madc.hi." t #n, #w "=" #w #w #w "101" s, carry_mad_##n, 0 }, \
	{ "madc.lo.cc." t #n, #w "=" #w #w #w "110" s, carry_mad_##n, 0 }, { "madc.hi.cc." t #n, #w "=" #w #w #w "111" s, carry_mad_##n, 0 }
	EACH_MADC("u", 32, w, "0"), EACH_MADC("s", 32, w, "1"), EACH_MADC("u", 64, d, "0"), EACH_MADC("s", 64, d, "1"),
};
/* clang-format on */
