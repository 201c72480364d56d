/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions to tf32 and the 8-bit formats, and to all of them by other modes than to nearest. Part of exec_lanes_*.c. */

/* A binary format with @mantissa stored bits, least normal exponent @emin and greatest @emax. */
struct small_format {
	int bits;
	int mantissa;
	int emin;
	int emax;
	bool has_infinity; /* e4m3 has none: all exponents are numbers, but the last pattern */
};

static const struct small_format format_f16 = { 16, 10, -14, 15, true };
static const struct small_format format_bf16 = { 16, 7, -126, 127, true };
static const struct small_format format_tf32 = { 19, 10, -126, 127, true };
static const struct small_format format_e4m3 = { 8, 3, -6, 8, false };
static const struct small_format format_e5m2 = { 8, 2, -14, 15, true };

/* @mode: flags X_RZ, X_RM, X_RP, X_RNA, else nearest even. Result right-aligned. */
static uint32_t round_small(double value, const struct small_format *format, uint32_t mode, bool satfinite)
{
	uint64_t bits = f64_bits(value);
	bool negative = bits >> 63;
	uint32_t sign = (uint32_t)negative << (format->bits - 1);
	uint32_t infinity = (uint32_t)((format->emax - format->emin + 2)) << format->mantissa;
	uint32_t largest = infinity - 1;
	uint64_t mantissa;
	int exponent;
	int shift;
	uint64_t kept;
	uint64_t lost;
	uint64_t half;
	bool up;

	bits &= ~(1ull << 63);
	if (!format->has_infinity) {
		/* S.1111.111 is the only NaN, S.1111.110 the largest number */
		infinity = (1u << (format->bits - 1)) - 1;
		largest = infinity - 1;
	}
	if (bits > 0x7ff0000000000000ull)
		return (1u << (format->bits - 1)) - 1;
	if (bits == 0x7ff0000000000000ull)
		return sign | (satfinite ? largest : infinity);
	if (!bits)
		return sign;
	exponent = (int)(bits >> 52) - 1023;
	mantissa = bits & ((1ull << 52) - 1);
	if (bits >> 52)
		mantissa |= 1ull << 52;
	else
		exponent = -1022;
	shift = 52 - format->mantissa;
	if (exponent < format->emin)
		shift += format->emin - exponent;
	if (shift > 63)
		shift = 63; /* only stickiness is left */
	kept = mantissa >> shift;
	lost = mantissa & ((1ull << shift) - 1);
	half = 1ull << (shift - 1);
	if (mode & X_RZ)
		up = false;
	else if (mode & X_RM)
		up = negative && lost;
	else if (mode & X_RP)
		up = !negative && lost;
	else if (mode & X_RNA)
		up = lost >= half;
	else
		up = lost > half || (lost == half && (kept & 1));
	kept += up;
	if (exponent >= format->emin)
		kept += (uint64_t)(exponent - format->emin) << format->mantissa;
	if (kept > largest) {
		/* towards zero and away from the sign the largest number is where rounding ends */
		bool stays = satfinite || mode & X_RZ || (mode & X_RM && !negative) || (mode & X_RP && negative);

		kept = stays ? largest : infinity;
	}
	return sign | (uint32_t)kept;
}

static inline double small_to_f64(uint32_t bits, const struct small_format *format)
{
	bool negative = bits >> (format->bits - 1) & 1;
	uint32_t mantissa = bits & ((1u << format->mantissa) - 1);
	int exponent = (int)(bits >> format->mantissa & ((1u << (format->bits - 1 - format->mantissa)) - 1));
	double value;

	if (format->has_infinity && exponent == format->emax - format->emin + 2)
		value = mantissa ? NAN : INFINITY;
	else if (!format->has_infinity && (bits & 0x7f) == 0x7f)
		value = NAN;
	else if (!exponent)
		value = ldexp(mantissa, format->emin - format->mantissa);
	else
		value = ldexp(mantissa | 1u << format->mantissa, exponent - 1 + format->emin - format->mantissa);
	return negative ? -value : value;
}

/* The sum of two doubles, its last bit set if something was lost: rounding it again is then rounding once. */
static inline double add_odd(double x, double y)
{
	double sum = x + y;
	double part = sum - x;
	double lost = (x - (sum - part)) + (y - part);
	uint64_t bits = f64_bits(sum);

	if (lost != 0.0 && isfinite(sum) && !(bits & 1))
		sum = bits_f64((lost > 0) == (sum > 0) ? bits | 1 : bits - 1);
	return sum;
}
