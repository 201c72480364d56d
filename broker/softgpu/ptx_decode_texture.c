/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes textures and surfaces. */
#include "broker/softgpu/ptx_decode.h"

bool decode_texture(struct decoder *d)
{
	(void)d;
	return false;
}
