/* SPDX-License-Identifier: Apache-2.0 */
/* The functions over lanes once more, for processors with AVX2 and FMA: the Makefile's flags make the difference. */
#define EXEC_LANES_NAME exec_lanes_avx2
#include "broker/softgpu/exec_lanes_base.c"
