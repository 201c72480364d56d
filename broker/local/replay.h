/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record is done again by a worker that has become what the checkpoint before it says: each command when all that was heard before it has come
 * again. An answer that is another one than the program had contradicts it, and ends the matter. What is new (answers that the program still
 * waits for) is kept for it. Control thread, unless said otherwise.
 */
#ifndef GLEAM_LOCAL_REPLAY_H
#define GLEAM_LOCAL_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/core/link.h"
#include "broker/local/record.h"
#include "broker/local/wire.h"

struct replay;

/* @record and @mirror, which has memory of its own, are borrowed. NULL: out of memory. */
struct replay *replay_new(const struct record *record, struct mirror *mirror);
void replay_free(struct replay *p); /* NULL: nothing */
/* A frame of the worker; lanes, too. False: it can't be. */
bool replay_frame(struct replay *p, const uint8_t *frame, uint32_t size);

/*
 * GOES: something was done. WAITS: to be asked again when a frame has come, or a second later. DONE: everything, and nothing of it is on its way, but for
 * what may wait for a host function that is due.
 */
enum replay_result { REPLAY_GOES, REPLAY_WAITS, REPLAY_DONE, REPLAY_FAILED };
enum replay_result replay_step(struct replay *p, struct wire *wire, const char **why_out);
/*
 * What the program hasn't heard, oldest first, after DONE: frames, with the bytes of their cells (NULL: none).
 */
void replay_rest(struct replay *p, void (*give)(void *arg, const uint8_t *frame, uint32_t size, const uint8_t *cells), void *arg);

#endif
