/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everybody leaves a server: its programs of this machine are moved elsewhere, MOVES_MAX at a time, the others wait for their turn. Who can't be
 * moved stays. It ends when nobody is there who hasn't been tried. Control thread.
 */
#ifndef GLEAM_LOCAL_DRAIN_H
#define GLEAM_LOCAL_DRAIN_H

#include "broker/local/move_ask.h"

struct drain;

/*
 * From the loop: how a move goes on, and its end (of a program that was tried on several servers the last one's), and @news NULL when all is over.
 * Then the drain is no more.
 */
typedef void drain_hear(void *arg, const struct move_news *news);

/* The server has been marked (place_drain()): nobody new comes. NULL: out of memory. */
struct drain *drain_start(struct broker *broker, struct server *server, drain_hear *hear, void *arg);
/* Whoever would hear is gone: moves that have begun go on, no other begins. */
void drain_unheard(struct drain *drain);

#endif
