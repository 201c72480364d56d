/* SPDX-License-Identifier: Apache-2.0 */
/* The functions over lanes, for any processor. No state; the pool's threads. */
#ifndef EXEC_LANES_NAME
#define EXEC_LANES_NAME exec_lanes_base
#endif
#include "broker/softgpu/exec_lanes.h"
#include "broker/softgpu/lanes_bits.h"
#include "broker/softgpu/lanes_int.h"
#include "broker/softgpu/lanes_float.h"
#include "broker/softgpu/lanes_small.h"
#include "broker/softgpu/lanes_half.h"
#include "broker/softgpu/lanes_setp.h"
#include "broker/softgpu/lanes_cvt.h"

#define LIST(forms) { forms, sizeof(forms) / sizeof(*(forms)) }

static const struct exec_forms lists[] = {
	LIST(int_forms),
	LIST(float_forms),
	LIST(half_forms),
	LIST(cvt_forms),
};

const struct exec_lanes EXEC_LANES_NAME = {
	.lists = lists,
	.list_count = sizeof(lists) / sizeof(*lists),
	.setp = setp_find,
	.set = set_find,
	.cvt = cvt_find,
};
