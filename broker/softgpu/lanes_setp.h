/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparisons. Part of exec_lanes_*.c. sub[0] is the comparison, sub[1] how it combines with the predicate
 * src[2]: 0 not at all, 1 and, 2 or, 3 xor; dst2 gets the opposite, unless it is the frame's spare slot.
 */

enum { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_EQU, CMP_NEU, CMP_LTU, CMP_LEU, CMP_GTU, CMP_GEU, CMP_NUM, CMP_NAN };

static inline uint32_t combine(const struct exec_insn *insn, uint32_t r, uint32_t c)
{
	switch (insn->sub[1]) {
	case 1:
		return r & c;
	case 2:
		return r | c;
	case 3:
		return r ^ c;
	}
	return r;
}

/* Comparison results are built in bytes, which vectorises, and then gathered to bits. */
static inline uint32_t gather_bits(const uint8_t *bytes)
{
	uint32_t bits = 0;

	for (int i = 0; i < 4; i++) {
		uint64_t eight;

		memcpy(&eight, bytes + i * 8, 8);
		bits |= (uint32_t)((eight & 0x0101010101010101ull) * 0x0102040810204080ull >> 56) << (i * 8);
	}
	return bits;
}

#define CMP_CASE(code, ...) \
	case code: \
		EACH_LANE { \
			r[i] = (__VA_ARGS__); \
		} \
		break;

#define COMPARE_INT(n, t) \
	static uint32_t compare_##n(struct exec_warp *warp, const struct exec_insn *insn) \
	{ \
		const t *a = SRC(0, t); \
		const t *b = SRC(1, t); \
		uint8_t r[EXEC_LANES] = { 0 }; \
		switch (insn->sub[0]) { \
			CMP_CASE(CMP_EQ, a[i] == b[i]) \
			CMP_CASE(CMP_NE, a[i] != b[i]) \
			CMP_CASE(CMP_LT, a[i] < b[i]) \
			CMP_CASE(CMP_LE, a[i] <= b[i]) \
			CMP_CASE(CMP_GT, a[i] > b[i]) \
			CMP_CASE(CMP_GE, a[i] >= b[i]) \
		} \
		return gather_bits(r); \
	}

#define COMPARE_FLOAT(n, t, get) \
	static uint32_t compare_##n(struct exec_warp *warp, const struct exec_insn *insn) \
	{ \
		const t *p = SRC(0, t); \
		const t *q = SRC(1, t); \
		double a[EXEC_LANES]; \
		double b[EXEC_LANES]; \
		uint8_t r[EXEC_LANES] = { 0 }; \
		bool flush = insn->flags & X_FTZ; \
		EACH_LANE { \
			a[i] = (double)get(p[i], flush); \
			b[i] = (double)get(q[i], flush); \
		} \
		(void)flush; \
		switch (insn->sub[0]) { \
			CMP_CASE(CMP_EQ, a[i] == b[i]) \
			CMP_CASE(CMP_NE, a[i] < b[i] || a[i] > b[i]) \
			CMP_CASE(CMP_LT, a[i] < b[i]) \
			CMP_CASE(CMP_LE, a[i] <= b[i]) \
			CMP_CASE(CMP_GT, a[i] > b[i]) \
			CMP_CASE(CMP_GE, a[i] >= b[i]) \
			CMP_CASE(CMP_EQU, !(a[i] < b[i] || a[i] > b[i])) \
			CMP_CASE(CMP_NEU, a[i] != b[i]) \
			CMP_CASE(CMP_LTU, !(a[i] >= b[i])) \
			CMP_CASE(CMP_LEU, !(a[i] > b[i])) \
			CMP_CASE(CMP_GTU, !(a[i] <= b[i])) \
			CMP_CASE(CMP_GEU, !(a[i] < b[i])) \
			CMP_CASE(CMP_NUM, a[i] == a[i] && b[i] == b[i]) \
			CMP_CASE(CMP_NAN, a[i] != a[i] || b[i] != b[i]) \
		} \
		return gather_bits(r); \
	}

#define GET_F32(x, flush)  (flush ? ftz(x) : (x))
#define GET_F64(x, flush)  (x)
#define GET_F16(x, flush)  half_to_f32(flush ? half_ftz(x) : (x))
#define GET_BF16(x, flush) bf16_to_f32(x)
COMPARE_INT(u16, uint16_t)
COMPARE_INT(u32, uint32_t)
COMPARE_INT(u64, uint64_t)
COMPARE_INT(s16, int16_t)
COMPARE_INT(s32, int32_t)
COMPARE_INT(s64, int64_t)
COMPARE_FLOAT(f32, float, GET_F32)
COMPARE_FLOAT(f64, double, GET_F64)
COMPARE_FLOAT(f16, uint16_t, GET_F16)
COMPARE_FLOAT(bf16, uint16_t, GET_BF16)

static inline uint32_t true_bits(const struct exec_insn *insn)
{
	return insn->sub[2]; /* set: 0 all ones (an integer), 1 1.0f, 2 1.0 in f16, 3 in bf16 */
}

/* set writes a number instead of a predicate */
static void set_result(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask, uint32_t r)
{
	static const uint32_t ones[] = { 0xffffffffu, 0x3f800000u, 0x3c00u, 0x3f80u };
	uint32_t one = ones[true_bits(insn) & 3];

	if (insn->sub[3] == 2) {
		uint16_t *d = DST(uint16_t);

		FOR_LANES(lane, mask)
			d[lane] = r >> lane & 1 ? (uint16_t)one : 0;
	} else {
		uint32_t *d = DST(uint32_t);

		FOR_LANES(lane, mask)
			d[lane] = r >> lane & 1 ? one : 0;
	}
}

#define SETP(n) \
	LANE_FN(setp_##n) \
	{ \
		uint32_t r = compare_##n(warp, insn); \
		uint32_t c = insn->sub[1] ? *SRC(2, uint32_t) : 0; \
		uint32_t *d = DST(uint32_t); \
		uint32_t *e = DST2(uint32_t); \
		if (insn->sub[2]) \
			*e = (*e & ~mask) | (combine(insn, ~r, c) & mask); \
		*d = (*d & ~mask) | (combine(insn, r, c) & mask); \
	} \
	LANE_FN(set_##n) \
	{ \
		uint32_t r = compare_##n(warp, insn); \
		set_result(warp, insn, mask, combine(insn, r, insn->sub[1] ? *SRC(2, uint32_t) : 0)); \
	}
SETP(u16)
SETP(u32)
SETP(u64)
SETP(s16)
SETP(s32)
SETP(s64)
SETP(f32)
SETP(f64)
SETP(f16)
SETP(bf16)

/* Pairs of halves: setp has one predicate for each half, set a pair of numbers. */
static uint32_t compare_half(struct exec_warp *warp, const struct exec_insn *insn, uint32_t half, int bf)
{
	const uint32_t *p = SRC(0, uint32_t);
	const uint32_t *q = SRC(1, uint32_t);
	uint32_t bits = 0;

	for (uint32_t i = 0; i < EXEC_LANES; i++) {
		uint16_t u = (uint16_t)(p[i] >> (half * 16));
		uint16_t v = (uint16_t)(q[i] >> (half * 16));
		float a = bf ? bf16_to_f32(u) : GET_F16(u, (insn->flags & X_FTZ));
		float b = bf ? bf16_to_f32(v) : GET_F16(v, (insn->flags & X_FTZ));
		bool nan = a != a || b != b;
		bool r = false;

		switch (insn->sub[0]) {
		case CMP_EQ: r = a == b; break;
		case CMP_NE: r = a < b || a > b; break;
		case CMP_LT: r = a < b; break;
		case CMP_LE: r = a <= b; break;
		case CMP_GT: r = a > b; break;
		case CMP_GE: r = a >= b; break;
		case CMP_EQU: r = nan || a == b; break;
		case CMP_NEU: r = nan || a != b; break;
		case CMP_LTU: r = nan || a < b; break;
		case CMP_LEU: r = nan || a <= b; break;
		case CMP_GTU: r = nan || a > b; break;
		case CMP_GEU: r = nan || a >= b; break;
		case CMP_NUM: r = !nan; break;
		case CMP_NAN: r = nan; break;
		}
		bits |= (uint32_t)r << i;
	}
	return bits;
}

#define SETP_PAIR(n, bf) \
	LANE_FN(setp_##n) \
	{ \
		uint32_t lo = compare_half(warp, insn, 0, bf); \
		uint32_t hi = compare_half(warp, insn, 1, bf); \
		uint32_t c = insn->sub[1] ? *SRC(2, uint32_t) : 0; \
		uint32_t *d = DST(uint32_t); \
		uint32_t *e = DST2(uint32_t); \
		if (insn->sub[2]) \
			*e = (*e & ~mask) | (combine(insn, hi, c) & mask); \
		*d = (*d & ~mask) | (combine(insn, lo, c) & mask); \
	} \
	LANE_FN(set_##n) \
	{ \
		uint32_t lo = compare_half(warp, insn, 0, bf); \
		uint32_t hi = compare_half(warp, insn, 1, bf); \
		uint32_t c = insn->sub[1] ? *SRC(2, uint32_t) : 0; \
		static const uint32_t ones[] = { 0xffffu, 0, 0x3c00u, 0x3f80u }; \
		uint32_t one = ones[true_bits(insn) & 3]; \
		uint32_t *d = DST(uint32_t); \
		lo = combine(insn, lo, c); \
		hi = combine(insn, hi, c); \
		FOR_LANES(lane, mask) \
			d[lane] = (lo >> lane & 1 ? one : 0) | (hi >> lane & 1 ? one << 16 : 0); \
	}
SETP_PAIR(f16x2, 0)
SETP_PAIR(bf16x2, 1)

static exec_fn setp_find(enum ptx_type type)
{
	static const exec_fn fns[T_COUNT] = {
		[T_B16] = setp_u16, [T_U16] = setp_u16, [T_S16] = setp_s16, [T_B32] = setp_u32, [T_U32] = setp_u32,
		[T_S32] = setp_s32, [T_B64] = setp_u64, [T_U64] = setp_u64, [T_S64] = setp_s64, [T_F32] = setp_f32,
		[T_F64] = setp_f64, [T_F16] = setp_f16, [T_BF16] = setp_bf16, [T_F16X2] = setp_f16x2,
		[T_BF16X2] = setp_bf16x2,
	};

	return fns[type];
}

static exec_fn set_find(enum ptx_type type)
{
	static const exec_fn fns[T_COUNT] = {
		[T_B16] = set_u16, [T_U16] = set_u16, [T_S16] = set_s16, [T_B32] = set_u32, [T_U32] = set_u32,
		[T_S32] = set_s32, [T_B64] = set_u64, [T_U64] = set_u64, [T_S64] = set_s64, [T_F32] = set_f32,
		[T_F64] = set_f64, [T_F16] = set_f16, [T_BF16] = set_bf16, [T_F16X2] = set_f16x2,
		[T_BF16X2] = set_bf16x2,
	};

	return fns[type];
}
