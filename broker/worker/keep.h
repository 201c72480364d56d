/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a session is made of, beside memory: the commands that gave birth to what lives now, and those that changed it, in their
 * order, as frames; and the images of modules. Another worker that plays them has the same objects under the same handles. What has
 * died is forgotten; what isn't understood is remembered as a reason not to move. Executor thread.
 */
#ifndef GLEAM_WORKER_KEEP_H
#define GLEAM_WORKER_KEEP_H

#include "broker/worker/state.h"

/* After a command that succeeded. */
void keep_frame(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame);
/* Something of @key was used for the first time (enum touch in touch.h). */
void keep_touch(struct worker *w, uint16_t ctx, uint64_t key, uint32_t what, const char *name);
/* The program has been told that a variable of @object lies at @address. */
void keep_told(struct worker *w, uint16_t ctx, uint64_t object, const char *name, uint64_t address, uint64_t size);
/* A link has ended: its steps need not be kept. */
void keep_link_gone(struct worker *w, uint64_t link);
/* A module or library was loaded. Takes @bytes (malloc'ed), also on failure. */
void keep_image(struct worker *w, uint64_t object, const struct frame_hdr *hdr, uint8_t *bytes, uint64_t size,
		const uint8_t *options, uint32_t options_size);
/* A module or library is gone: its image need not be kept. */
void keep_image_gone(struct worker *w, uint64_t object);
void keep_stop(struct worker *w);

/* NULL: none. Otherwise what the program uses that can't be moved (the first reason). */
const char *keep_trouble(struct worker *w);
/* Tells the log all of them, if there are several. */
void keep_troubles_tell(struct worker *w);
/* Says all that has come and gone since it was said last (move_out.h). False: a reason has been found not to. */
bool keep_say(struct worker *w);
/* Contents of arrays; as grants_contents_say() in grant.h. */
bool keep_arrays_say(struct worker *w, uint64_t *limit, uint64_t *left, uint64_t *total);
void keep_arrays_turn(struct worker *w);
/* Nothing has been said. */
void keep_forget(struct worker *w);

#endif
