/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variables that a module's image declares, and the words in them that a driver fills in when it loads it: addresses of other variables
 * and of functions. Of a cubin its symbols and relocations, of PTX its declarations and initialisers. Every byte is a stranger's.
 * No state, no threads.
 */
#ifndef GLEAM_LIB_IMAGEVARS_H
#define GLEAM_LIB_IMAGEVARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMAGEVARS_ANYWHERE UINT64_MAX /* which words of it can't be said */

struct imagevars_hear {
	/* A variable; @name is not terminated. Names may come twice, and some that are none of the driver's. */
	void (*variable)(void *arg, const char *name, size_t name_size, bool constant);
	/*
	 * An address is filled in somewhere in the 8 bytes at @offset of the variable of that name, which has been told before. The 8 bytes are
	 * those at a multiple of 8 of memory, so @offset may be negative (as a uint64_t) where the variable begins within them.
	 */
	void (*word)(void *arg, const char *name, size_t name_size, uint64_t offset);
	void *arg;
};

/* @bytes: a cubin or PTX, not packed. Of what is damaged the sound part is told. False: out of memory. */
bool imagevars_look(const void *bytes, size_t size, const struct imagevars_hear *hear);

#endif
