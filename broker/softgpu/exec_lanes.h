/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How functions of instructions over lanes are written. Only the exec_lanes_*.c wrappers include this and the
 * lanes_*.h files: each wrapper is the same text compiled for one level of the processor.
 *
 * Every lane is computed, also those that are off, since that is what vectorises; results are stored for the
 * lanes that are on. No function here can trap.
 */
#ifndef GLEAM_SOFTGPU_EXEC_LANES_H
#define GLEAM_SOFTGPU_EXEC_LANES_H

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "broker/softgpu/exec.h"
#include "broker/softgpu/small_float.h"

/* Sources and destination are the same register or different ones, never partly the same. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed" /* where it can't vectorise, it needn't */
#define EACH_LANE _Pragma("clang loop vectorize(assume_safety)") for (uint32_t i = 0; i < EXEC_LANES; i++)
#else
#define EACH_LANE _Pragma("GCC ivdep") for (uint32_t i = 0; i < EXEC_LANES; i++)
#endif

#define STORE_LANES(type, to, from, mask) \
	do { \
		if ((mask) == EXEC_FULL) { \
			memcpy(to, from, sizeof(type) * EXEC_LANES); \
		} else { \
			EACH_LANE { \
				(to)[i] = (mask) >> i & 1 ? (from)[i] : (to)[i]; \
			} \
		} \
	} while (0)

#define LANE_FN(name) static void name(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask)

/* One, two, three sources of type @st, result of type @dt: x, y, z are the values of a lane. */
#define LANES1(name, dt, st, ...) \
	LANE_FN(name) \
	{ \
		const st *a = SRC(0, st); \
		dt *d = DST(dt); \
		dt r[EXEC_LANES]; \
		EACH_LANE { \
			st x = a[i]; \
			r[i] = (dt)(__VA_ARGS__); \
		} \
		STORE_LANES(dt, d, r, mask); \
	}
#define LANES2X(name, dt, at, bt, ...) \
	LANE_FN(name) \
	{ \
		const at *a = SRC(0, at); \
		const bt *b = SRC(1, bt); \
		dt *d = DST(dt); \
		dt r[EXEC_LANES]; \
		EACH_LANE { \
			at x = a[i]; \
			bt y = b[i]; \
			r[i] = (dt)(__VA_ARGS__); \
		} \
		STORE_LANES(dt, d, r, mask); \
	}
#define LANES2(name, t, ...) LANES2X(name, t, t, t, __VA_ARGS__)
#define LANES3X(name, dt, at, bt, ct, ...) \
	LANE_FN(name) \
	{ \
		const at *a = SRC(0, at); \
		const bt *b = SRC(1, bt); \
		const ct *c = SRC(2, ct); \
		dt *d = DST(dt); \
		dt r[EXEC_LANES]; \
		EACH_LANE { \
			at x = a[i]; \
			bt y = b[i]; \
			ct z = c[i]; \
			r[i] = (dt)(__VA_ARGS__); \
		} \
		STORE_LANES(dt, d, r, mask); \
	}
#define LANES3(name, t, ...) LANES3X(name, t, t, t, t, __VA_ARGS__)

/* Subnormals become zero of their sign. */
static inline float ftz(float x)
{
	uint32_t bits = f32_bits(x);

	return bits_f32((bits & 0x7f800000u) ? bits : bits & 0x80000000u);
}

/* Every f32 NaN that an instruction makes is this one. */
static inline float canonical(float x)
{
	return x != x ? bits_f32(0x7fffffffu) : x;
}

static inline float saturate(float x)
{
	/* NaN becomes +0 */
	return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}

static inline int round_mode(const struct exec_insn *insn)
{
	return insn->flags & X_RZ ? FE_TOWARDZERO : insn->flags & X_RM ? FE_DOWNWARD
					  : insn->flags & X_RP	       ? FE_UPWARD
								       : FE_TONEAREST;
}

/* The compiler may not move what is computed into @array over this. */
#define FENCE(array) __asm__ volatile("" ::"r"(array) : "memory")

#endif
