/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines to the standard error stream, which the node collects. Any thread.
 */
#ifndef GLEAM_WORKER_NOTE_H
#define GLEAM_WORKER_NOTE_H

struct worker;

/* What an operator has to know. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Only where the worker was started with --verbose: failures of the program, which it is told of itself. */
void note(const struct worker *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
