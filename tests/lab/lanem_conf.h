/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of the emulated LAN by name: `--rate 1gbit` on the command line and `rate 1gbit` on the
 * control socket mean the same. "-ab" or "-ba" behind a name is for one direction. Pure; any thread.
 */
#ifndef TESTS_LAB_LANEM_CONF_H
#define TESTS_LAB_LANEM_CONF_H

#include "tests/lab/lanem_lane.h"

/* 0; -ENOENT: no such setting; -EINVAL or -ERANGE: no such value. Changes @conf on success only. */
int conf_set(struct lane_conf conf[2], const char *name, const char *value);

/* Which directions "cut", "cut-ab", "cut-ba" mean: a bit per lane, 0 if @text is not @name. */
unsigned int conf_directions(const char *text, const char *name);

/* Whether the luck of single frames matters, so that the kernel must not glue them together. */
bool conf_needs_frames(const struct lane_conf conf[2]);

#define CONF_USAGE                                                                                           \
	"  --rtt MS          round trip; half of it each way\n"                                              \
	"  --delay MS        one way\n"                                                                      \
	"  --jitter MS       up to so much more, order kept\n"                                               \
	"  --rate BIT/S      1gbit, 100mbit, ...; headers and Ethernet's overhead are paid (0: no limit)\n"  \
	"  --queue BYTES     before the sender of that rate (default: 50 ms of it)\n"                        \
	"  --loss P          0.01 or 1%; of frames, so no segmentation offload then\n"                       \
	"  --reorder P       of frames; they come later by\n"                                                \
	"  --hold MS         (default 1)\n"                                                                  \
	"  --overhead BYTES  a frame pays beside its IP packet (default 38)\n"

#endif
