// SPDX-License-Identifier: Apache-2.0
// The mathematical functions that nvcc brings along, as long code out of plain instructions.
#include <cmath>

#define FUNCTION(name, type, expression) \
	extern "C" __global__ void name(const type *in, type *out, int n) \
	{ \
		int i = blockIdx.x * blockDim.x + threadIdx.x; \
		if (i < n) { \
			type x = in[i]; \
			out[i] = expression; \
		} \
	}

FUNCTION(f_sin, float, sinf(x))
FUNCTION(f_cos, float, cosf(x * 100.0f))
FUNCTION(f_tan, float, tanf(x))
FUNCTION(f_exp, float, expf(x))
FUNCTION(f_log, float, logf(fabsf(x)))
FUNCTION(f_pow, float, powf(fabsf(x), 1.7f))
FUNCTION(f_tanh, float, tanhf(x))
FUNCTION(f_erf, float, erff(x))
FUNCTION(f_gelu, float, 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x))))
FUNCTION(f_cbrt, float, cbrtf(x))
FUNCTION(f_atan, float, atanf(x))
FUNCTION(f_fmod, float, fmodf(x * 50.0f, 3.0f))
FUNCTION(d_sin, double, sin(x * 1000.0))
FUNCTION(d_exp, double, exp(x))
FUNCTION(d_log, double, log(fabs(x)))
FUNCTION(d_pow, double, pow(fabs(x), 2.3))
FUNCTION(d_sqrt, double, sqrt(fabs(x)))
FUNCTION(d_erf, double, erf(x))
FUNCTION(d_gamma, double, lgamma(fabs(x) + 0.5))
FUNCTION(d_atan2, double, atan2(x, 2.0))
FUNCTION(d_divide, double, 3.0 / x)
FUNCTION(f_fast, float, __expf(x) + __sinf(x) * __cosf(x) + __logf(fabsf(x) + 1.0f) + __fdividef(x, 3.0f) + rsqrtf(fabsf(x) + 1.0f))
