/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what workers are started with: program, driver, user. At start. */
#ifndef GLEAM_NODE_SETTING_H
#define GLEAM_NODE_SETTING_H

#include "broker/lib/conf.h"
#include "broker/node/proc.h"

/* -errno and a line in @why. */
int setting_make(const struct conf *conf, struct proc_setting *out, char *why, size_t why_size);

#endif
