/* SPDX-License-Identifier: Apache-2.0 */
/* All forms once more with the functions over lanes for processors without AVX2: they are chosen once a process. */
#include <stdlib.h>

__attribute__((constructor)) static void choose(void)
{
	setenv("GLEAM_SOFTGPU_SIMD", "base", 1);
}

#include "tests/unit/test_ptx_forms.c"
