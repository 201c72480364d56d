/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Floats and their bits, and f16 and bf16 to and from them, rounded to nearest even. Without a branch, so that loops over lanes
 * vectorise. Any thread.
 */
#ifndef GLEAM_SOFTGPU_SMALL_FLOAT_H
#define GLEAM_SOFTGPU_SMALL_FLOAT_H

#include <stdint.h>
#include <string.h>

static inline float bits_f32(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline uint32_t f32_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline double bits_f64(uint64_t bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline uint64_t f64_bits(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float half_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
	uint32_t rest = (uint32_t)(h & 0x7fffu) << 13;
	/* exponent moved by multiplication, so that subnormals come out right */
	float value = bits_f32(rest) * bits_f32(0x77800000u); /* 2^112 */
	uint32_t bits = f32_bits(value);

	bits = (h & 0x7c00u) == 0x7c00u ? rest | 0x7f800000u : bits;
	return bits_f32(bits | sign);
}

/* Round to nearest even; NaN becomes 0x7fff as on the device. */
static inline uint16_t f32_to_half(float f)
{
	uint32_t bits = f32_bits(f);
	uint32_t sign = bits >> 16 & 0x8000u;
	uint32_t rest = bits & 0x7fffffffu;
	uint32_t normal = (rest + 0xfffu + (rest >> 13 & 1) - 0x38000000u) >> 13;
	/* adding this number lines a subnormal's last bit up with the float's */
	uint32_t tiny = f32_bits(bits_f32(rest) + 0.5f) - 0x3f000000u;
	uint32_t r = rest < 0x38800000u ? tiny : rest >= 0x47800000u ? 0x7c00u : normal;

	return (uint16_t)(rest > 0x7f800000u ? 0x7fffu : (r | sign));
}

static inline float bf16_to_f32(uint16_t h)
{
	return bits_f32((uint32_t)h << 16);
}

static inline uint16_t f32_to_bf16(float f)
{
	uint32_t bits = f32_bits(f);
	uint32_t r = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;

	return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : r);
}

#endif
