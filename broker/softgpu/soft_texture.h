/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texture and surface objects: what a kernel names by number when it samples memory.
 */
#ifndef SOFT_TEXTURE_H
#define SOFT_TEXTURE_H

#include "broker/softgpu/soft_context.h"
#include "broker/softgpu/soft_sampler.h"

/* ptx_host.texel: @user is the launch's context; the launch is a visit of the map. The pool's threads. */
int soft_texture_texel(void *user, struct ptx_texel *texel);

#endif
