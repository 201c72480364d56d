/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables of modules in a move. A driver puts them where it likes, and another worker's may put them elsewhere: whether that matters is
 * found out here; docs/migration.md has the rule. Executor thread.
 */
#ifndef GLEAM_WORKER_VARIABLE_H
#define GLEAM_WORKER_VARIABLE_H

#include "broker/worker/move_out.h"

/* Of a variable that leaves. */
enum variable_flags {
	VARIABLE_KNOWN = 1,    /* the program has asked where it lies */
	VARIABLE_HELD = 2,     /* something that moves points to it */
	VARIABLE_CONSTANT = 4, /* kernels can't change it */
};

/* Of 8 bytes of a variable. */
enum word_flags {
	WORD_FILLED = 1, /* its driver has filled in an address when it loaded the module */
	WORD_HELD = 2,	 /* which something that moves holds, too */
};

/* ---- leaving ---- */

/*
 * The last turn over all contents begins: where do variables lie? The driver is asked, so no work may run. False: it can't say, or out of
 * memory.
 */
bool variables_look(struct worker *w);
/* That is still so. */
bool variables_are_known(const struct worker *w);
/* Names in images, as far as @limit goes, so that less is to be done at the end. Calls no driver. */
void variables_prepare(struct worker *w, uint64_t *limit);
/* Contents of @size bytes at @place and @offset: what of them points to variables? */
void variables_held_by(struct worker *w, const struct move_place *place, uint64_t offset, const void *bytes, uint64_t size);
/* After all contents: variables, and what has changed in them, until @limit is used up: then @left is not 0. False: they can't be read. */
bool variables_say(struct worker *w, uint64_t *limit, uint64_t *left);

/* ---- arriving ---- */

/* One that the program knows to lie at @there lies @here. */
void variables_in_known(struct worker *w, const char *name, uint64_t there, uint64_t here);
/* Contents begin to come: if that is known to be in vain it ends the move. */
void variables_in_doubt(struct worker *w, uint16_t op);
/* All have come: what was wrong of them ends the move. */
void variables_in_end(struct worker *w, uint16_t op);
void variables_in_stop(struct worker *w);

/* Where the variable of a module or library lies; a code of the driver. Its context is the current one. */
CUresult variable_find(struct worker *w, uint64_t object, const char *name, uint64_t *address_out, uint64_t *size_out);

#endif
