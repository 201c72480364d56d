/* SPDX-License-Identifier: Apache-2.0 */
/* Links of several images into one (cuLink*). Any thread. */
#ifndef GLEAM_LINK_H
#define GLEAM_LINK_H

struct context;

/* A context ends, and its links with it. */
void link_context_closed(struct context *context);

#endif
