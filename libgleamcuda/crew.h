/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between the program's memory and the session's by several cores: one alone copies more slowly than a link brings bytes, and
 * far more slowly than a GPU takes them. Threads of the library's own help whoever copies; they are started by the first large copy,
 * look for work while copies go on, and sleep otherwise. Any thread.
 */
#ifndef GLEAM_CREW_H
#define GLEAM_CREW_H

#include <stddef.h>

/* memcpy, back when all bytes are there. Short ones, and what comes while the helpers are taken, the caller copies alone. */
void crew_copy(void *to, const void *from, size_t size);

#endif
