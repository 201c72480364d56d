/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes matrix instructions. */
#include "broker/softgpu/ptx_decode.h"

bool decode_matrix(struct decoder *d)
{
	(void)d;
	return false;
}
