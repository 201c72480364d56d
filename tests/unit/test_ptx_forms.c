/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One kernel for each form of an instruction: it is given a thousand values for each source, corner cases among
 * them, and every result is compared with a function of plain C.
 *
 * Letters of the operands: h 16 bits, w 32, d 64; the result's first.
 */
#include <fenv.h>
#include <math.h>

#include "tests/unit/test_ptx.h"

#define COUNT 1024

typedef uint64_t (*reference)(uint64_t a, uint64_t b, uint64_t c);

struct form {
	const char *text; /* of the instruction: $d, $a, $b, $c are registers */
	const char *operands;
	reference fn;
	int inputs; /* 0 integers, 1 f32, 2 f64, 3 halves, 4 bf16 */
};

#define REF(name, ...) \
	static uint64_t name(uint64_t a, uint64_t b, uint64_t c) \
	{ \
		(void)a; \
		(void)b; \
		(void)c; \
		__VA_ARGS__ \
	}

static float f32(uint64_t x)
{
	uint32_t bits = (uint32_t)x;
	float f;

	memcpy(&f, &bits, 4);
	return f;
}

static uint64_t u32f(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, 4);
	return f != f ? 0x7fffffffu : bits;
}

static double f64(uint64_t x)
{
	double f;

	memcpy(&f, &x, 8);
	return f;
}

static uint64_t u64f(double f)
{
	uint64_t bits;

	memcpy(&bits, &f, 8);
	return f != f ? 0x7ff8000000000000ull : bits;
}

static float flush(float f)
{
	return fabsf(f) < 0x1p-126f ? copysignf(0.0f, f) : f;
}

/* ---- integers ---- */

REF(mul_hi_s32, return (uint32_t)(((int64_t)(int32_t)a * (int32_t)b) >> 32);)
REF(mul_hi_u64, return (uint64_t)(((unsigned __int128)a * b) >> 64);)
REF(mul_hi_s64, return (uint64_t)(((__int128)(int64_t)a * (int64_t)b) >> 64);)
REF(mul_hi_s16, return (uint16_t)(((int32_t)(int16_t)a * (int16_t)b) >> 16);)
REF(mul_wide_s16, return (uint32_t)((int32_t)(int16_t)a * (int16_t)b);)
REF(mul_wide_u32, return (uint64_t)(uint32_t)a * (uint32_t)b;)
REF(mul_wide_s32, return (uint64_t)((int64_t)(int32_t)a * (int32_t)b);)
REF(mad_lo_s32, return (uint32_t)(a * b + c);)
REF(mad_hi_s32, return (uint32_t)((((int64_t)(int32_t)a * (int32_t)b) >> 32) + (int64_t)c);)
REF(mad_wide_s32, return (uint64_t)((int64_t)(int32_t)a * (int32_t)b) + c;)
REF(mad_lo_s64, return a * b + c;)
REF(mad_hi_u64, return (uint64_t)(((unsigned __int128)a * b) >> 64) + c;)
REF(mad_hi_sat, int64_t r = (((int64_t)(int32_t)a * (int32_t)b) >> 32) + (int32_t)c;
    return (uint32_t)(r > INT32_MAX ? INT32_MAX : r < INT32_MIN ? INT32_MIN : r);)
REF(sad_s32, int64_t x = (int32_t)a; int64_t y = (int32_t)b; return (uint32_t)((x > y ? x - y : y - x) + (int64_t)c);)
REF(sad_u64, return (a > b ? a - b : b - a) + c;)
REF(div_s32, int32_t x = (int32_t)a; int32_t y = (int32_t)b; return !y ? 0xffffffffu : (uint32_t)((int64_t)x / y);)
REF(rem_u64, return b ? a % b : a;)
REF(add_sat, int64_t r = (int64_t)(int32_t)a + (int32_t)b;
    return (uint32_t)(r > INT32_MAX ? INT32_MAX : r < INT32_MIN ? INT32_MIN : r);)
REF(sub_sat, int64_t r = (int64_t)(int32_t)a - (int32_t)b;
    return (uint32_t)(r > INT32_MAX ? INT32_MAX : r < INT32_MIN ? INT32_MIN : r);)
REF(abs_s64, return (int64_t)a < 0 ? 0 - a : a;)
REF(neg_s16, return (uint16_t)(0 - a);)
REF(min_s16, return (uint16_t)((int16_t)a < (int16_t)b ? a : b);)
REF(max_u64, return a > b ? a : b;)
REF(min_relu, int32_t m = (int32_t)a < (int32_t)b ? (int32_t)a : (int32_t)b; return (uint32_t)(m < 0 ? 0 : m);)
REF(min_s16x2, int16_t l = (int16_t)a < (int16_t)b ? (int16_t)a : (int16_t)b;
    int16_t h = (int16_t)(a >> 16) < (int16_t)(b >> 16) ? (int16_t)(a >> 16) : (int16_t)(b >> 16);
    return (uint32_t)(uint16_t)l | (uint32_t)(uint16_t)h << 16;)
REF(add_u16x2, return ((a + b) & 0xffff) | ((((a >> 16) + (b >> 16)) & 0xffff) << 16);)
REF(popc_64, return (uint64_t)__builtin_popcountll(a);)
REF(clz_32, return (uint32_t)a ? (uint64_t)__builtin_clz((uint32_t)a) : 32;)
REF(clz_64, return a ? (uint64_t)__builtin_clzll(a) : 64;)
REF(brev_32, uint32_t r = 0; for (int i = 0; i < 32; i++) r |= (uint32_t)(a >> i & 1) << (31 - i); return r;)
REF(brev_64, uint64_t r = 0; for (int i = 0; i < 64; i++) r |= (a >> i & 1) << (63 - i); return r;)
REF(bfind_s32, uint32_t x = (int32_t)a < 0 ? ~(uint32_t)a : (uint32_t)a; for (int i = 31; i >= 0; i--) if (x >> i & 1) return (uint64_t)i;
    return 0xffffffffu;)
REF(bfind_u64, for (int i = 63; i >= 0; i--) if (a >> i & 1) return (uint64_t)i; return 0xffffffffu;)
REF(bfind_shift, for (int i = 31; i >= 0; i--) if (a >> i & 1) return (uint64_t)(31 - i); return 0xffffffffu;)
REF(bfe_u32, uint32_t p = b & 255; uint32_t l = c & 255; uint32_t r = 0;
    for (uint32_t i = 0; i < 32 && i < l; i++) r |= (p + i < 32 ? (uint32_t)(a >> (p + i) & 1) : 0) << i; return r;)
REF(bfe_s32, uint32_t p = b & 255; uint32_t l = c & 255; uint32_t top = p + l - 1 < 31 ? p + l - 1 : 31; uint32_t r = 0;
    uint32_t sign = l ? (uint32_t)(a >> top & 1) : 0;
    for (uint32_t i = 0; i < 32; i++) r |= (i < l && p + i < 32 ? (uint32_t)(a >> (p + i) & 1) : sign) << i; return r;)
REF(bfe_s64, uint32_t p = b & 255; uint32_t l = c & 255; uint32_t top = p + l - 1 < 63 ? p + l - 1 : 63; uint64_t r = 0;
    uint64_t sign = l ? a >> top & 1 : 0;
    for (uint32_t i = 0; i < 64; i++) r |= (i < l && p + i < 64 ? a >> (p + i) & 1 : sign) << i; return r;)
REF(bfi_32, uint32_t p = c & 255; uint32_t l = 9; uint32_t r = (uint32_t)b;
    for (uint32_t i = 0; i < l && p + i < 32; i++) r = (r & ~(1u << (p + i))) | (uint32_t)(a >> i & 1) << (p + i); return r;)
REF(bfi_64, uint32_t p = c & 255; uint32_t l = 37; uint64_t r = b;
    for (uint32_t i = 0; i < l && p + i < 64; i++) r = (r & ~(1ull << (p + i))) | (a >> i & 1) << (p + i); return r;)
REF(lop3_e8, return (uint32_t)((a & b) | (a & c) | (b & c));)
REF(lop3_1b, uint32_t r = 0; for (int i = 0; i < 32; i++) {
	uint32_t k = (uint32_t)((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)); r |= (0x1bu >> k & 1) << i; } return r;)
REF(shf_l_clamp, uint32_t n = (uint32_t)c < 32 ? (uint32_t)c : 32; return n == 32 ? (uint32_t)a : n ? (uint32_t)((uint32_t)b << n | (uint32_t)a >> (32 - n)) : (uint32_t)b;)
REF(shf_r_wrap, uint32_t n = c & 31; return n ? (uint32_t)((uint32_t)b << (32 - n) | (uint32_t)a >> n) : (uint32_t)a;)
REF(prmt, uint64_t s = (b << 32) | (uint32_t)a; uint32_t r = 0; for (int i = 0; i < 4; i++) { uint32_t k = (uint32_t)(c >> (4 * i));
	uint32_t v = (uint32_t)(s >> (8 * (k & 7))) & 255; if (k & 8) v = v & 128 ? 255 : 0; r |= v << (8 * i); } return r;)
REF(prmt_f4e, uint64_t s = (b << 32) | (uint32_t)a; uint32_t r = 0; for (uint32_t i = 0; i < 4; i++) r |= ((uint32_t)(s >> (8 * ((c & 3) + i))) & 255) << (8 * i); return r;)
REF(dp4a_su, int32_t r = (int32_t)c; for (int i = 0; i < 4; i++) r = (int32_t)((uint32_t)r + (uint32_t)((int8_t)(a >> (8 * i)) * (int32_t)(uint8_t)(b >> (8 * i)))); return (uint32_t)r;)
REF(dp2a_hi, int32_t r = (int32_t)c; for (int i = 0; i < 2; i++) r = (int32_t)((uint32_t)r + (uint32_t)((int16_t)(a >> (16 * i)) * (int32_t)(int8_t)(b >> (16 + 8 * i)))); return (uint32_t)r;)
REF(fns, uint32_t base = b & 31; int32_t n = 3; for (uint32_t i = base; i < 32; i++) if (a >> i & 1 && !--n) return i; return 0xffffffffu;)
REF(shl_64, uint32_t n = (uint32_t)b; return n > 63 ? 0 : a << n;)
REF(shr_s32, uint32_t n = (uint32_t)b; return (uint32_t)((int32_t)a >> (n > 31 ? 31 : n));)
REF(shr_u16, uint32_t n = (uint32_t)b; return n > 15 ? 0 : (uint16_t)a >> n;)
REF(cnot, return (uint32_t)a == 0;)
REF(slct, return (int32_t)c >= 0 ? (uint32_t)a : (uint32_t)b;)
REF(mul24, return (uint32_t)((int32_t)((uint32_t)a << 8) >> 8) * (uint32_t)((int32_t)((uint32_t)b << 8) >> 8);)
REF(min3, int32_t x = (int32_t)a; int32_t y = (int32_t)b; int32_t z = (int32_t)c; int32_t m = x < y ? x : y; return (uint32_t)(m < z ? m : z);)
REF(szext, uint32_t n = b & 31; return n ? (uint32_t)((int32_t)((uint32_t)a << (32 - n)) >> (32 - n)) : 0;)
REF(bmsk, uint64_t n = (uint32_t)b > 32 ? 32 : (uint32_t)b; return (uint32_t)a > 31 ? 0 : (uint32_t)(((1ull << n) - 1) << (a & 31));)
REF(chain, unsigned __int128 x = (unsigned __int128)b << 64 | a; unsigned __int128 y = (unsigned __int128)a << 64 | c; return (uint64_t)((x + y) >> 64);)
REF(borrow, unsigned __int128 x = (unsigned __int128)b << 64 | a; unsigned __int128 y = (unsigned __int128)a << 64 | c; return (uint64_t)((x - y) >> 64);)
REF(wide_mad, return a * b + c;)
REF(pack, return (a & 0xffff) | (b & 0xffff) << 16;)
REF(set_lt, return (int32_t)a < (int32_t)b ? 0xffffffffu : 0;)
REF(setp_and, return ((uint32_t)a < (uint32_t)b && (uint32_t)c > 1000) ? 1 : (!((uint32_t)a < (uint32_t)b) && (uint32_t)c > 1000) ? 2 : 0;)

static const struct form integer_forms[] = {
	{ "mul.hi.s32 $d, $a, $b;", "www", mul_hi_s32, 0 },
	{ "mul.hi.u64 $d, $a, $b;", "ddd", mul_hi_u64, 0 },
	{ "mul.hi.s64 $d, $a, $b;", "ddd", mul_hi_s64, 0 },
	{ "mul.hi.s16 $d, $a, $b;", "hhh", mul_hi_s16, 0 },
	{ "mul.wide.s16 $d, $a, $b;", "whh", mul_wide_s16, 0 },
	{ "mul.wide.u32 $d, $a, $b;", "dww", mul_wide_u32, 0 },
	{ "mul.wide.s32 $d, $a, $b;", "dww", mul_wide_s32, 0 },
	{ "mad.lo.s32 $d, $a, $b, $c;", "wwww", mad_lo_s32, 0 },
	{ "mad.hi.s32 $d, $a, $b, $c;", "wwww", mad_hi_s32, 0 },
	{ "mad.wide.s32 $d, $a, $b, $c;", "dwwd", mad_wide_s32, 0 },
	{ "mad.lo.s64 $d, $a, $b, $c;", "dddd", mad_lo_s64, 0 },
	{ "mad.hi.u64 $d, $a, $b, $c;", "dddd", mad_hi_u64, 0 },
	{ "mad.hi.sat.s32 $d, $a, $b, $c;", "wwww", mad_hi_sat, 0 },
	{ "sad.s32 $d, $a, $b, $c;", "wwww", sad_s32, 0 },
	{ "sad.u64 $d, $a, $b, $c;", "dddd", sad_u64, 0 },
	{ "div.s32 $d, $a, $b;", "www", div_s32, 0 },
	{ "rem.u64 $d, $a, $b;", "ddd", rem_u64, 0 },
	{ "add.sat.s32 $d, $a, $b;", "www", add_sat, 0 },
	{ "sub.sat.s32 $d, $a, $b;", "www", sub_sat, 0 },
	{ "abs.s64 $d, $a;", "dd", abs_s64, 0 },
	{ "neg.s16 $d, $a;", "hh", neg_s16, 0 },
	{ "min.s16 $d, $a, $b;", "hhh", min_s16, 0 },
	{ "max.u64 $d, $a, $b;", "ddd", max_u64, 0 },
	{ "min.relu.s32 $d, $a, $b;", "www", min_relu, 0 },
	{ "min.s16x2 $d, $a, $b;", "www", min_s16x2, 0 },
	{ "add.u16x2 $d, $a, $b;", "www", add_u16x2, 0 },
	{ "popc.b64 $d, $a;", "wd", popc_64, 0 },
	{ "clz.b32 $d, $a;", "ww", clz_32, 0 },
	{ "clz.b64 $d, $a;", "wd", clz_64, 0 },
	{ "brev.b32 $d, $a;", "ww", brev_32, 0 },
	{ "brev.b64 $d, $a;", "dd", brev_64, 0 },
	{ "bfind.s32 $d, $a;", "ww", bfind_s32, 0 },
	{ "bfind.u64 $d, $a;", "wd", bfind_u64, 0 },
	{ "bfind.shiftamt.u32 $d, $a;", "ww", bfind_shift, 0 },
	{ "bfe.u32 $d, $a, $b, $c;", "wwww", bfe_u32, 0 },
	{ "bfe.s32 $d, $a, $b, $c;", "wwww", bfe_s32, 0 },
	{ "bfe.s64 $d, $a, $b, $c;", "ddww", bfe_s64, 0 },
	{ "bfi.b32 $d, $a, $b, $c, 9;", "wwww", bfi_32, 0 },
	{ "bfi.b64 $d, $a, $b, $c, 37;", "dddw", bfi_64, 0 },
	{ "lop3.b32 $d, $a, $b, $c, 0xe8;", "wwww", lop3_e8, 0 },
	{ "lop3.b32 $d, $a, $b, $c, 0x1b;", "wwww", lop3_1b, 0 },
	{ "shf.l.clamp.b32 $d, $a, $b, $c;", "wwww", shf_l_clamp, 0 },
	{ "shf.r.wrap.b32 $d, $a, $b, $c;", "wwww", shf_r_wrap, 0 },
	{ "prmt.b32 $d, $a, $b, $c;", "wwww", prmt, 0 },
	{ "prmt.b32.f4e $d, $a, $b, $c;", "wwww", prmt_f4e, 0 },
	{ "dp4a.s32.u32 $d, $a, $b, $c;", "wwww", dp4a_su, 0 },
	{ "dp2a.hi.s32.s32 $d, $a, $b, $c;", "wwww", dp2a_hi, 0 },
	{ "fns.b32 $d, $a, $b, 3;", "www", fns, 0 },
	{ "shl.b64 $d, $a, $b;", "ddw", shl_64, 0 },
	{ "shr.s32 $d, $a, $b;", "www", shr_s32, 0 },
	{ "shr.u16 $d, $a, $b;", "hhw", shr_u16, 0 },
	{ "cnot.b32 $d, $a;", "ww", cnot, 0 },
	{ "slct.u32.s32 $d, $a, $b, $c;", "wwww", slct, 0 },
	{ "mul24.lo.s32 $d, $a, $b;", "www", mul24, 0 },
	{ "min.s32 $d, $a, $b, $c;", "wwww", min3, 0 },
	{ "szext.wrap.s32 $d, $a, $b;", "www", szext, 0 },
	{ "bmsk.clamp.b32 $d, $a, $b;", "www", bmsk, 0 },
	{ "{ .reg .b64 t; add.cc.u64 t, $a, $c; addc.u64 $d, $b, $a; }", "dddd", chain, 0 },
	{ "{ .reg .b64 t; sub.cc.u64 t, $a, $c; subc.u64 $d, $b, $a; }", "dddd", borrow, 0 },
	/* a product of 64 bits out of ones of 32 */
	{ "{ .reg .b32 al, ah, bl, bh, cl, ch, lo, hi; mov.b64 {al, ah}, $a; mov.b64 {bl, bh}, $b; mov.b64 {cl, ch}, $c;"
	  "  mad.lo.cc.u32 lo, al, bl, cl; madc.hi.u32 hi, al, bl, ch; mad.lo.u32 hi, al, bh, hi; mad.lo.u32 hi, ah, bl, hi;"
	  "  mov.b64 $d, {lo, hi}; }",
	  "dddd", wide_mad, 0 },
	{ "{ .reg .b16 x, y; mov.b32 {x, _}, $a; cvt.u16.u32 y, $b; mov.b32 $d, {x, y}; }", "www", pack, 0 },
	{ "set.lt.u32.s32 $d, $a, $b;", "www", set_lt, 0 },
	{ "{ .reg .pred p, q, r; setp.gt.u32 r, $c, 1000; setp.lt.and.u32 p|q, $a, $b, r; selp.b32 $d, 1, 0, p; @q mov.u32 $d, 2; }",
	  "wwww", setp_and, 0 },
};

/* ---- floats ---- */

#define ROUNDED(mode, type, expression) \
	volatile type x_ = (type)0; \
	fesetround(mode); \
	x_ = (expression); \
	fesetround(FE_TONEAREST);

static float volatile va, vb, vc;
static double volatile da, db, dc;
#define LOAD32 va = f32(a); vb = f32(b); vc = f32(c);
#define LOAD64 da = f64(a); db = f64(b); dc = f64(c);

REF(add_f32, LOAD32 return u32f(va + vb);)
REF(add_rz, LOAD32 ROUNDED(FE_TOWARDZERO, float, va + vb) return u32f(x_);)
REF(mul_rm, LOAD32 ROUNDED(FE_DOWNWARD, float, va * vb) return u32f(x_);)
REF(fma_rp, LOAD32 ROUNDED(FE_UPWARD, float, fmaf(va, vb, vc)) return u32f(x_);)
REF(fma_f32, LOAD32 return u32f(fmaf(va, vb, vc));)
REF(mul_ftz, LOAD32 return u32f(flush(flush(va) * flush(vb)));)
REF(add_sat_f32, LOAD32 float r = va + vb; return u32f(r > 0 ? (r < 1 ? r : 1.0f) : 0.0f);)
REF(div_rn, LOAD32 return u32f(va / vb);)
REF(div_rp, LOAD32 ROUNDED(FE_UPWARD, float, va / vb) return u32f(x_);)
REF(sqrt_rn, LOAD32 return u32f(sqrtf(va));)
REF(rcp_rn, LOAD32 return u32f(1.0f / va);)
REF(min_f32, LOAD32 return u32f(va != va ? vb : vb != vb ? va : va < vb || (va == vb && signbit(va)) ? va : vb);)
REF(max_nan, LOAD32 return u32f(va != va || vb != vb ? NAN : va > vb || (va == vb && !signbit(va)) ? va : vb);)
REF(neg_f32, return (uint32_t)a ^ 0x80000000u;)
REF(copysign32, return ((uint32_t)a & 0x80000000u) | ((uint32_t)b & 0x7fffffffu);)
REF(setp_equ, LOAD32 return !(va < vb || va > vb);)
REF(setp_ne, LOAD32 return va < vb || va > vb;)
REF(setp_nan, LOAD32 return va != va || vb != vb;)
REF(testp_sub, return ((uint32_t)a & 0x7f800000u) == 0 && ((uint32_t)a & 0x7fffffffu);)
REF(add_f64, LOAD64 return u64f(da + db);)
REF(mul_rz64, LOAD64 ROUNDED(FE_TOWARDZERO, double, da * db) return u64f(x_);)
REF(fma_rm64, LOAD64 ROUNDED(FE_DOWNWARD, double, fma(da, db, dc)) return u64f(x_);)
REF(div_rn64, LOAD64 return u64f(da / db);)
REF(sqrt_rp64, LOAD64 ROUNDED(FE_UPWARD, double, sqrt(da)) return u64f(x_);)
REF(max_f64, LOAD64 return u64f(da != da ? db : db != db ? da : da > db || (da == db && !signbit(da)) ? da : db);)

/* ---- conversions ---- */

static uint64_t to_signed(double x, int bits, uint64_t nan)
{
	double limit = ldexp(1, bits - 1);

	return x != x ? nan : x >= limit ? (1ull << (bits - 1)) - 1 : x < -limit ? 1ull << (bits - 1) : (uint64_t)(int64_t)x;
}

REF(cvt_rzi_s32, LOAD32 return (uint32_t)to_signed(trunc((double)va), 32, 0);)
REF(cvt_rni_s64, LOAD32 return to_signed(rint((double)va), 64, 1ull << 63);)
REF(cvt_rpi_u8, LOAD32 double r = ceil((double)va); return va != va || r < 0 ? 0 : r > 255 ? 255 : (uint64_t)r;)
REF(cvt_rmi_f32, LOAD32 return u32f(floorf(va));)
REF(cvt_f32_f64, LOAD64 return u32f((float)da);)
REF(cvt_f32_f64_rz, LOAD64 ROUNDED(FE_TOWARDZERO, float, (float)da) return u32f(x_);)
REF(cvt_f64_s64, return u64f((double)(int64_t)a);)
REF(cvt_f32_u64, return u32f((float)a);)
REF(cvt_f32_s64_rm, volatile int64_t v = (int64_t)a; ROUNDED(FE_DOWNWARD, float, (float)v) return u32f(x_);)
REF(cvt_f64_u64_rp, volatile uint64_t v = a; ROUNDED(FE_UPWARD, double, (double)v) return u64f(x_);)
REF(cvt_sat_u8_s32, int32_t x = (int32_t)a; return x < 0 ? 0 : x > 255 ? 255 : (uint64_t)x;)
REF(cvt_sat_s16_u64, return a > 32767 ? 32767 : a;)
REF(cvt_s64_s8, return (uint64_t)(int64_t)(int8_t)a;)
REF(cvt_u32_s16, return (uint32_t)(int16_t)a;)
REF(cvt_s32_f64, LOAD64 return (uint32_t)to_signed(trunc(da), 32, 1u << 31);)
REF(cvt_u64_f64, LOAD64 double r = rint(da); return da != da ? 1ull << 63 : r <= 0 ? 0 : r >= 0x1p64 ? ~0ull : (uint64_t)r;)
REF(cvt_pack, int32_t x = (int32_t)a; int32_t y = (int32_t)b; x = x > 127 ? 127 : x < -128 ? -128 : x; y = y > 127 ? 127 : y < -128 ? -128 : y;
    return (uint32_t)((uint32_t)c << 16 | (uint32_t)(uint8_t)x << 8 | (uint8_t)y);)

static const struct form float_forms[] = {
	{ "add.f32 $d, $a, $b;", "www", add_f32, 1 },
	{ "add.rz.f32 $d, $a, $b;", "www", add_rz, 1 },
	{ "mul.rm.f32 $d, $a, $b;", "www", mul_rm, 1 },
	{ "fma.rp.f32 $d, $a, $b, $c;", "wwww", fma_rp, 1 },
	{ "fma.rn.f32 $d, $a, $b, $c;", "wwww", fma_f32, 1 },
	{ "mul.ftz.f32 $d, $a, $b;", "www", mul_ftz, 1 },
	{ "add.sat.f32 $d, $a, $b;", "www", add_sat_f32, 1 },
	{ "div.rn.f32 $d, $a, $b;", "www", div_rn, 1 },
	{ "div.rp.f32 $d, $a, $b;", "www", div_rp, 1 },
	{ "sqrt.rn.f32 $d, $a;", "ww", sqrt_rn, 1 },
	{ "rcp.rn.f32 $d, $a;", "ww", rcp_rn, 1 },
	{ "min.f32 $d, $a, $b;", "www", min_f32, 1 },
	{ "max.NaN.f32 $d, $a, $b;", "www", max_nan, 1 },
	{ "neg.f32 $d, $a;", "ww", neg_f32, 1 },
	{ "copysign.f32 $d, $a, $b;", "www", copysign32, 1 },
	{ "{ .reg .pred p; setp.equ.f32 p, $a, $b; selp.u32 $d, 1, 0, p; }", "www", setp_equ, 1 },
	{ "{ .reg .pred p; setp.ne.f32 p, $a, $b; selp.u32 $d, 1, 0, p; }", "www", setp_ne, 1 },
	{ "{ .reg .pred p; setp.nan.f32 p, $a, $b; selp.u32 $d, 1, 0, p; }", "www", setp_nan, 1 },
	{ "{ .reg .pred p; testp.subnormal.f32 p, $a; selp.u32 $d, 1, 0, p; }", "ww", testp_sub, 1 },
	{ "add.f64 $d, $a, $b;", "ddd", add_f64, 2 },
	{ "mul.rz.f64 $d, $a, $b;", "ddd", mul_rz64, 2 },
	{ "fma.rm.f64 $d, $a, $b, $c;", "dddd", fma_rm64, 2 },
	{ "div.rn.f64 $d, $a, $b;", "ddd", div_rn64, 2 },
	{ "sqrt.rp.f64 $d, $a;", "dd", sqrt_rp64, 2 },
	{ "max.f64 $d, $a, $b;", "ddd", max_f64, 2 },
	{ "cvt.rzi.s32.f32 $d, $a;", "ww", cvt_rzi_s32, 1 },
	{ "cvt.rni.s64.f32 $d, $a;", "dw", cvt_rni_s64, 1 },
	{ "cvt.rpi.u8.f32 $d, $a;", "ww", cvt_rpi_u8, 1 },
	{ "cvt.rmi.f32.f32 $d, $a;", "ww", cvt_rmi_f32, 1 },
	{ "cvt.rn.f32.f64 $d, $a;", "wd", cvt_f32_f64, 2 },
	{ "cvt.rz.f32.f64 $d, $a;", "wd", cvt_f32_f64_rz, 2 },
	{ "cvt.rn.f64.s64 $d, $a;", "dd", cvt_f64_s64, 0 },
	{ "cvt.rn.f32.u64 $d, $a;", "wd", cvt_f32_u64, 0 },
	{ "cvt.rm.f32.s64 $d, $a;", "wd", cvt_f32_s64_rm, 0 },
	{ "cvt.rp.f64.u64 $d, $a;", "dd", cvt_f64_u64_rp, 0 },
	{ "cvt.sat.u8.s32 $d, $a;", "ww", cvt_sat_u8_s32, 0 },
	{ "cvt.sat.s16.u64 $d, $a;", "hd", cvt_sat_s16_u64, 0 },
	{ "cvt.s64.s8 $d, $a;", "dw", cvt_s64_s8, 0 },
	{ "cvt.u32.s16 $d, $a;", "wh", cvt_u32_s16, 0 },
	{ "cvt.rzi.s32.f64 $d, $a;", "wd", cvt_s32_f64, 2 },
	{ "cvt.rni.u64.f64 $d, $a;", "dd", cvt_u64_f64, 2 },
	{ "cvt.pack.sat.s8.s32.b32 $d, $a, $b, $c;", "wwww", cvt_pack, 0 },
};

/* ---- halves ---- */

/* An exact value to the nearest of those that the format has, found by trying them: slow and plain. */
static double half_value(uint32_t h, bool bf)
{
	uint32_t bits = h << 16;
	float f;
	int exponent = (int)(h >> 10 & 31);
	double r;

	if (bf) {
		memcpy(&f, &bits, 4);
		return (double)f;
	}
	r = exponent == 31 ? (h & 1023 ? NAN : INFINITY) : exponent ? ldexp(1024 + (h & 1023), exponent - 25) : ldexp(h & 1023, -24);
	return h & 0x8000 ? -r : r;
}

/* @sign of an error that the value itself does not show: for sums that a double can't hold. */
static uint64_t half_round(double x, int sign, bool bf)
{
	uint32_t infinity = bf ? 0x7f80 : 0x7c00;
	double magnitude = fabs(x);
	uint32_t low = 0;
	uint32_t high = infinity;
	double below;
	double above;

	if (x != x)
		return 0x7fff;
	if (x < 0)
		sign = -sign;
	while (high - low > 1) {
		uint32_t middle = (low + high) / 2;

		if (half_value(middle, bf) <= magnitude)
			low = middle;
		else
			high = middle;
	}
	below = half_value(low, bf);
	above = high == infinity ? (bf ? 0x1p128 : 65536.0) : half_value(high, bf);
	if (magnitude - below > above - magnitude || (magnitude - below == above - magnitude && (sign > 0 || (!sign && low & 1))))
		low = high;
	else if (magnitude == INFINITY)
		low = infinity;
	return low | (signbit(x) ? 0x8000 : 0);
}

#define HALF2(fn) return fn(a, b, c) | fn(a >> 16, b >> 16, c >> 16) << 16;
#define H(x) half_value((uint32_t)((x) & 0xffff), false)
#define B(x) half_value((uint32_t)((x) & 0xffff), true)

static uint64_t sum_round(double p, double z, bool bf)
{
	double sum = p + z;
	double part = sum - p;
	double lost = (p - (sum - part)) + (z - part);

	return half_round(sum, isfinite(sum) ? (lost > 0) - (lost < 0) : 0, bf);
}

REF(hadd, return half_round(H(a) + H(b), 0, false);)
REF(hmul, return half_round(H(a) * H(b), 0, false);)
REF(hfma, return sum_round(H(a) * H(b), H(c), false);)
REF(hfma_relu, uint64_t r = sum_round(H(a) * H(b), H(c), false); return r == 0x7fff ? r : r & 0x8000 ? 0 : r;)
REF(hadd2, HALF2(hadd))
REF(hfma2, HALF2(hfma))
REF(hsub, return half_round(H(a) - H(b), 0, false);)
REF(badd, return half_round(B(a) + B(b), 0, true);)
REF(bfma, return sum_round(B(a) * B(b), B(c), true);)
REF(bfma2, HALF2(bfma))
REF(bmul, return half_round(B(a) * B(b), 0, true);)
REF(hmin, double x = H(a); double y = H(b); uint64_t r = x != x ? b : y != y ? a : x < y || (x == y && signbit(x)) ? a : b; return H(r) != H(r) ? 0x7fff : r & 0xffff;)
REF(hneg, return (a ^ 0x8000) & 0xffff;)
REF(hsetp, return H(a) < H(b);)
REF(cvt_f16_f32, LOAD32 return half_round((double)va, 0, false);)
REF(cvt_bf16_f32, LOAD32 return half_round((double)va, 0, true);)
REF(cvt_f32_f16, return u32f((float)H(a));)
REF(cvt_f16x2_f32, LOAD32 return half_round((double)va, 0, false) << 16 | half_round((double)vb, 0, false);)
REF(cvt_f16_s32, return half_round((double)(int32_t)a, 0, false);)
REF(cvt_s16_f16, double x = H(a); x = trunc(x); return (uint16_t)(x != x ? 0 : x > 32767 ? 32767 : x < -32768 ? -32768 : (int)x);)
REF(cvt_f16_f64, LOAD64 return half_round(da, 0, false);)

static const struct form half_forms[] = {
	{ "add.f16 $d, $a, $b;", "hhh", hadd, 3 },
	{ "sub.f16 $d, $a, $b;", "hhh", hsub, 3 },
	{ "mul.f16 $d, $a, $b;", "hhh", hmul, 3 },
	{ "fma.rn.f16 $d, $a, $b, $c;", "hhhh", hfma, 3 },
	{ "fma.rn.relu.f16 $d, $a, $b, $c;", "hhhh", hfma_relu, 3 },
	{ "add.f16x2 $d, $a, $b;", "www", hadd2, 3 },
	{ "fma.rn.f16x2 $d, $a, $b, $c;", "wwww", hfma2, 3 },
	{ "add.rn.bf16 $d, $a, $b;", "hhh", badd, 4 },
	{ "mul.rn.bf16 $d, $a, $b;", "hhh", bmul, 4 },
	{ "fma.rn.bf16 $d, $a, $b, $c;", "hhhh", bfma, 4 },
	{ "fma.rn.bf16x2 $d, $a, $b, $c;", "wwww", bfma2, 4 },
	{ "min.f16 $d, $a, $b;", "hhh", hmin, 3 },
	{ "neg.f16 $d, $a;", "hh", hneg, 3 },
	{ "{ .reg .pred p; setp.lt.f16 p, $a, $b; selp.u32 $d, 1, 0, p; }", "whh", hsetp, 3 },
	{ "cvt.rn.f16.f32 $d, $a;", "hw", cvt_f16_f32, 1 },
	{ "cvt.rn.bf16.f32 $d, $a;", "hw", cvt_bf16_f32, 1 },
	{ "cvt.f32.f16 $d, $a;", "wh", cvt_f32_f16, 3 },
	{ "cvt.rn.f16x2.f32 $d, $a, $b;", "www", cvt_f16x2_f32, 1 },
	{ "cvt.rn.f16.s32 $d, $a;", "hw", cvt_f16_s32, 0 },
	{ "cvt.rzi.s16.f16 $d, $a;", "hh", cvt_s16_f16, 3 },
	{ "cvt.rn.f16.f64 $d, $a;", "hd", cvt_f16_f64, 2 },
};

/* ---- running them ---- */

static uint64_t input(int kind, int which, int i)
{
	static const uint64_t corners[] = { 0, 1, 2, ~0ull, 1ull << 63, (1ull << 63) - 1, 0x80000000u, 0x7fffffffu, 31, 32, 33, 63, 64 };
	static const uint32_t corners32[] = { 0, 0x80000000u, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, 0x7fc00000, 1,
					      0x007fffff, 0x00800000, 0x7f7fffff, 0x3effffff, 0x4b000001, 0x4f000000, 0xcf000000 };
	static const double corners64[] = { 0.0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 4.9e-324, 2.2e-308, 1.7e308, 0.5, 2147483648.0, 1e30 };
	uint64_t bits = (uint64_t)kit_random() << 32 | kit_random();
	double real;
	float single;

	switch (kind) {
	case 1:
		if (i < 225)
			return corners32[which == 0 ? i % 15 : which == 1 ? i / 15 : (i * 7) % 15];
		if (i & 1)
			return (uint32_t)bits;
		single = ldexpf((float)(int32_t)bits, -(int)(bits >> 60) * 3);
		memcpy(&bits, &single, 4);
		return (uint32_t)bits;
	case 2:
		if (i < 169)
			real = corners64[which == 0 ? i % 13 : which == 1 ? i / 13 : (i * 5) % 13];
		else if (i & 1)
			return bits;
		else
			real = ldexp((double)(int64_t)bits, -(int)(bits & 127));
		memcpy(&bits, &real, 8);
		return bits;
	case 3:
	case 4:
		if (i % 3 == 0) /* near to each other, so that sums cancel and round */
			return ((bits & 0x83ff83ffull) | 0x34003400ull) + (bits >> 40 & 0x0c000c00ull);
		return bits;
	}
	if (i < 169)
		return corners[which == 0 ? i % 13 : which == 1 ? i / 13 : (i * 5) % 13];
	return i % 5 == 0 ? (uint64_t)((int64_t)bits >> (bits & 63)) : i % 5 == 1 ? bits & 63 : bits;
}

static const char *letter_type(char letter)
{
	return letter == 'h' ? "b16" : letter == 'w' ? "b32" : "b64";
}

static uint32_t letter_size(char letter)
{
	return letter == 'h' ? 2 : letter == 'w' ? 4 : 8;
}

static struct ptx_module *compile(const struct form *form)
{
	char text[4096];
	char body[2048];
	size_t used = 0;
	int sources = (int)strlen(form->operands) - 1;

	for (const char *c = form->text; *c; c++) {
		if (*c == '$') {
			used += (size_t)sprintf(body + used, "%%%c", *++c);
		} else {
			body[used++] = *c;
		}
	}
	body[used] = 0;
	used = (size_t)sprintf(text, ".version 8.8\n.target sm_90\n.address_size 64\n.visible .entry form(.param .u64 out, .param .u64 in)\n{\n"
				     ".reg .b64 %%o, %%i;\n.reg .b32 %%t;\n.reg .%s %%d;\n", letter_type(form->operands[0]));
	for (int s = 0; s < sources; s++)
		used += (size_t)sprintf(text + used, ".reg .%s %%%c;\n", letter_type(form->operands[s + 1]), 'a' + s);
	used += (size_t)sprintf(text + used, "ld.param.u64 %%o, [out];\nld.param.u64 %%i, [in];\nmov.u32 %%t, %%ctaid.x;\n"
					     "mad.lo.u32 %%t, %%t, 128, 0;\n{ .reg .b32 x; mov.u32 x, %%tid.x; add.u32 %%t, %%t, x; }\n"
					     "mad.wide.u32 %%o, %%t, 8, %%o;\nmad.wide.u32 %%i, %%t, 24, %%i;\n");
	for (int s = 0; s < sources; s++)
		used += (size_t)sprintf(text + used, "ld.global.%s %%%c, [%%i+%d];\n", letter_type(form->operands[s + 1]), 'a' + s, s * 8);
	used += (size_t)sprintf(text + used, "%s\nst.global.%s [%%o], %%d;\nret;\n}\n", body, letter_type(form->operands[0]));
	return kit_load_text(text);
}

static bool is_nan(int kind, char letter, uint64_t value)
{
	if (kind == 2 && letter == 'd')
		return (value & ~(1ull << 63)) > 0x7ff0000000000000ull;
	return false;
}

static void run_form(const struct form *form)
{
	struct ptx_module *module = compile(form);
	uint64_t(*in)[3] = kit_alloc(COUNT * sizeof(*in));
	uint64_t *out = kit_alloc(COUNT * sizeof(*out));
	char letter = form->operands[0];

	for (int i = 0; i < COUNT; i++)
		for (int s = 0; s < 3; s++)
			in[i][s] = input(form->inputs, s, i);
	kit_run_ok(module, "form", COUNT / 128, 128, 0, PARAMS(&out, &in));
	for (int i = 0; i < COUNT; i++) {
		uint64_t args[3];
		uint64_t want;
		uint64_t mask = letter == 'd' ? ~0ull : letter == 'w' ? 0xffffffffu : 0xffff;

		for (int s = 0; s < 3; s++) {
			char source = s + 1 < (int)strlen(form->operands) ? form->operands[s + 1] : 'd';

			args[s] = letter_size(source) == 8 ? in[i][s] : in[i][s] & ((1ull << letter_size(source) * 8) - 1);
		}
		want = form->fn(args[0], args[1], args[2]) & mask;
		/* the payload and sign of an f64 NaN are nobody's promise */
		if (is_nan(form->inputs, letter, want) && is_nan(form->inputs, letter, out[i]))
			continue;
		if ((out[i] & mask) != want)
			fail_msg("%s of 0x%llx, 0x%llx, 0x%llx is 0x%llx, not 0x%llx", form->text, (unsigned long long)args[0],
				 (unsigned long long)args[1], (unsigned long long)args[2], (unsigned long long)want,
				 (unsigned long long)out[i]);
	}
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void integers(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(integer_forms) / sizeof(*integer_forms); i++)
		run_form(&integer_forms[i]);
}

static void floats(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(float_forms) / sizeof(*float_forms); i++)
		run_form(&float_forms[i]);
}

static void halves(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(half_forms) / sizeof(*half_forms); i++)
		run_form(&half_forms[i]);
}

/* ---- functions that are only nearly right: to the accuracy that PTX states ---- */

struct near {
	const char *text;
	double (*fn)(double x);
	double low;
	double high;
	double relative;
	double absolute;
};

static double one_over(double x)
{
	return 1 / x;
}

static double one_over_sqrt(double x)
{
	return 1 / sqrt(x);
}

static const struct near nears[] = {
	{ "rcp.approx.f32 $d, $a;", one_over, 1e-30, 1e30, 0x1p-23, 0 },
	{ "sqrt.approx.f32 $d, $a;", sqrt, 0, 1e30, 0x1p-23, 0 },
	{ "rsqrt.approx.f32 $d, $a;", one_over_sqrt, 1e-30, 1e30, 0x1p-22, 0 },
	{ "sin.approx.f32 $d, $a;", sin, -100, 100, 0, 0x1p-20 },
	{ "cos.approx.f32 $d, $a;", cos, -100, 100, 0, 0x1p-20 },
	{ "lg2.approx.f32 $d, $a;", log2, 1e-30, 1e30, 0x1p-22, 0x1p-22 },
	{ "ex2.approx.f32 $d, $a;", exp2, -100, 100, 0x1p-22, 0 },
	{ "tanh.approx.f32 $d, $a;", tanh, -10, 10, 0x1p-10, 0 },
};

static void approximations(void **state)
{
	uint64_t(*in)[3] = kit_alloc(COUNT * sizeof(*in));
	uint64_t *out = kit_alloc(COUNT * sizeof(*out));

	(void)state;
	for (size_t n = 0; n < sizeof(nears) / sizeof(*nears); n++) {
		const struct near *near = &nears[n];
		struct form form = { near->text, "ww", NULL, 1 };
		struct ptx_module *module = compile(&form);

		for (int i = 0; i < COUNT; i++) {
			double part = kit_random() / 4294967296.0;
			float x = (float)(near->low > 0 ? near->low * pow(near->high / near->low, part)
							: near->low + (near->high - near->low) * part);

			memcpy(in[i], &x, 4);
		}
		kit_run_ok(module, "form", COUNT / 128, 128, 0, PARAMS(&out, &in));
		for (int i = 0; i < COUNT; i++) {
			double x = (double)f32(in[i][0]);
			double want = near->fn(x);
			double got = (double)f32(out[i]);

			if (!(fabs(got - want) <= near->relative * fabs(want) + near->absolute))
				fail_msg("%s of %.9g is %.9g, not %.9g", near->text, x, want, got);
		}
		kit_unload(module);
	}
	kit_free(in);
	kit_free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(integers),
		cmocka_unit_test(floats),
		cmocka_unit_test(halves),
		cmocka_unit_test(approximations),
	};

	return cmocka_run_group_tests(tests, kit_setup, kit_teardown);
}
