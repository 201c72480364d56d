/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGSEGV, the only signal that the library ever handles, and only in programs with managed memory. Whatever handler the
 * program had, or has installed since, gets every fault that isn't ours.
 */
#ifndef GLEAM_SEGV_H
#define GLEAM_SEGV_H

/* Be the first who hears of a fault: at the first need, and again whenever pages are taken from the host, for the program may
 * have installed a handler of its own meanwhile. Any thread. */
void segv_install(void);

#endif
