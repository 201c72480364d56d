/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings of gleam-chaos by name, the same on its command line and its control socket. "-up" (from the
 * client to the target) or "-down" behind a name is for one direction. Pure; any thread.
 */
#ifndef TESTS_FAULT_CHAOS_CONF_H
#define TESTS_FAULT_CHAOS_CONF_H

#include "tests/fault/chaos_pipe.h"

enum { CHAOS_UP, CHAOS_DOWN, CHAOS_LANES };

/* 0; -ENOENT: no such setting; -EINVAL or -ERANGE: no such value. Changes @conf on success only. */
int chaos_conf_set(struct pipe_conf conf[CHAOS_LANES], const char *name, const char *value);

/* Which directions "stall", "stall-up", "stall-down" mean: a bit per direction, 0 if @text is not @name. */
unsigned int chaos_directions(const char *text, const char *name);

#define CHAOS_CONF_USAGE                                                                                     \
	"  --delay MS        of each byte\n"                                                                 \
	"  --rate BIT/S\n"                                                                                   \
	"  --piece BYTES     passes on at most so many at once (1: byte by byte)\n"                          \
	"  --gap MS          between two pieces\n"                                                           \
	"  --flip P          share of bytes of which a bit is turned\n"                                      \
	"  --flip-at N       turns a bit of byte N of a connection's direction\n"                            \
	"  --cut-at N        resets a connection when N bytes have passed\n"                                 \
	"  --stall-at N      passes N bytes on and then no more\n"                                           \
	"                    N may be MIN:MAX, drawn for each connection, or off\n"

#endif
