/* SPDX-License-Identifier: Apache-2.0 */
/* One-lane helpers of the integer instructions. Part of exec_lanes_*.c. */

static inline int32_t clamp_s32(int64_t x)
{
	return x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : (int32_t)x;
}

static inline int64_t sign24(uint32_t x)
{
	return (int32_t)(x << 8) >> 8;
}

static inline int32_t min_s(int32_t x, int32_t y)
{
	return x < y ? x : y;
}

static inline int32_t max_s(int32_t x, int32_t y)
{
	return x > y ? x : y;
}

static inline uint32_t min_u(uint32_t x, uint32_t y)
{
	return x < y ? x : y;
}

static inline uint32_t max_u(uint32_t x, uint32_t y)
{
	return x > y ? x : y;
}

static inline int32_t relu_s(const struct exec_insn *insn, int32_t x)
{
	return insn->flags & X_RELU && x < 0 ? 0 : x;
}

static inline uint32_t count32(uint32_t x)
{
	x -= x >> 1 & 0x55555555u;
	x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
	x = (x + (x >> 4)) & 0x0f0f0f0fu;
	return x * 0x01010101u >> 24;
}

static inline uint32_t reverse32(uint32_t x)
{
	x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
	x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
	x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
	return __builtin_bswap32(x);
}

static inline uint32_t find32(uint32_t x)
{
	return x ? 31 - (uint32_t)__builtin_clz(x) : ~0u;
}

static inline uint32_t find64(uint64_t x)
{
	return x ? 63 - (uint32_t)__builtin_clzll(x) : ~0u;
}

/* bfe: bits beyond the value are copies of its sign bit, or zeros. @x is sign-extended for signed types. */
static inline uint64_t extract(uint64_t x, uint32_t width, uint32_t position, uint32_t length, int is_signed)
{
	uint64_t sign_bit;
	uint64_t part;
	uint32_t last;

	if (!length)
		return 0;
	last = position + length - 1 < width - 1 ? position + length - 1 : width - 1;
	sign_bit = is_signed ? x >> last & 1 : 0;
	if (position >= width)
		return is_signed && (x >> (width - 1) & 1) ? ~0ull : 0;
	part = (width == 32 ? (uint32_t)x : x) >> position;
	if (last - position + 1 < 64)
		part &= (1ull << (last - position + 1)) - 1;
	if (sign_bit && last - position + 1 < 64)
		part |= ~0ull << (last - position + 1);
	return part;
}

static inline uint64_t insert(uint64_t field, uint64_t into, uint32_t width, uint32_t position, uint32_t length)
{
	uint64_t bits;

	if (!length || position >= width)
		return into;
	if (length > width - position)
		length = width - position;
	bits = (length < 64 ? (1ull << length) - 1 : ~0ull) << position;
	return (into & ~bits) | (field << position & bits);
}

static inline uint32_t find_nth(uint32_t x, uint32_t base, int32_t offset)
{
	base &= 31;
	if (!offset)
		return x >> base & 1 ? base : ~0u;
	if (offset > 0) {
		for (uint32_t i = base; i < 32; i++)
			if (x >> i & 1 && --offset == 0)
				return i;
	} else {
		for (uint32_t i = base + 1; i-- > 0;)
			if (x >> i & 1 && ++offset == 0)
				return i;
	}
	return ~0u;
}

static inline uint32_t lop3_bits(uint32_t x, uint32_t y, uint32_t z, uint32_t table)
{
	uint32_t r = 0;

	r |= table & 1 ? ~x & ~y & ~z : 0;
	r |= table & 2 ? ~x & ~y & z : 0;
	r |= table & 4 ? ~x & y & ~z : 0;
	r |= table & 8 ? ~x & y & z : 0;
	r |= table & 16 ? x & ~y & ~z : 0;
	r |= table & 32 ? x & ~y & z : 0;
	r |= table & 64 ? x & y & ~z : 0;
	r |= table & 128 ? x & y & z : 0;
	return r;
}

static inline uint32_t permute(uint64_t bytes, uint32_t selector, int mode)
{
	uint32_t s = selector & 3;
	uint32_t r = 0;

	for (uint32_t i = 0; i < 4; i++) {
		uint32_t from = i;
		uint32_t byte;

		switch (mode) {
		case 0:
			from = selector >> (i * 4) & 15;
			break;
		case 1: /* f4e */
			from = s + i;
			break;
		case 2: /* b4e */
			from = (s - i) & 7;
			break;
		case 3: /* rc8 */
			from = s;
			break;
		case 4: /* ecl */
			from = i < s ? s : i;
			break;
		case 5: /* ecr */
			from = i < s ? i : s;
			break;
		case 6: /* rc16 */
			from = (s & 1) * 2 + (i & 1);
			break;
		}
		byte = (uint32_t)(bytes >> (from & 7) * 8) & 255;
		if (mode == 0 && from & 8)
			byte = byte & 128 ? 255 : 0;
		r |= byte << (i * 8);
	}
	return r;
}

static inline uint32_t mask_bits(uint32_t from, uint32_t length, int none)
{
	uint64_t bits = length >= 32 ? 0xffffffffull : (1ull << length) - 1;

	return none ? 0 : (uint32_t)(bits << (from & 31));
}

static inline uint32_t dot4(uint32_t x, uint32_t y, uint32_t z, int x_signed, int y_signed)
{
	for (int i = 0; i < 4; i++) {
		int32_t p = x_signed ? (int8_t)(x >> (i * 8)) : (int32_t)(uint8_t)(x >> (i * 8));
		int32_t q = y_signed ? (int8_t)(y >> (i * 8)) : (int32_t)(uint8_t)(y >> (i * 8));

		z += (uint32_t)(p * q);
	}
	return z;
}

static inline uint32_t dot2(uint32_t x, uint32_t y, uint32_t z, int x_signed, int y_signed, int high)
{
	for (int i = 0; i < 2; i++) {
		int32_t p = x_signed ? (int16_t)(x >> (i * 16)) : (int32_t)(uint16_t)(x >> (i * 16));
		uint32_t byte = y >> (i * 8 + (high ? 16 : 0)) & 255;
		int32_t q = y_signed ? (int8_t)byte : (int32_t)byte;

		z += (uint32_t)(p * q);
	}
	return z;
}
