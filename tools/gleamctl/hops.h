/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of what the calls are made that waited for an answer: for each function a line of medians, one for each party that the command and its
 * answer went by. One thread.
 */
#ifndef GLEAMCTL_HOPS_H
#define GLEAMCTL_HOPS_H

#include "tools/gleamctl/recording.h"

/* On stdout. 0, or an exit status after a complaint. */
int hops_print(const struct recording *r);

#endif
