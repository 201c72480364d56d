/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texture and surface objects. Their descriptions are remembered by the driver's number of each. Any thread.
 */
#ifndef GLEAM_TEXTURE_H
#define GLEAM_TEXTURE_H

struct context;

void texture_context_closed(struct context *context);

#endif
