/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gleamctl doctor: looks at whatever Gleam needs on this machine and says for each finding what to do. One thread; changes
 * nothing anywhere.
 */
#ifndef GLEAMCTL_DOCTOR_H
#define GLEAMCTL_DOCTOR_H

#include <stdbool.h>

#include <jansson.h>

#include "broker/lib/conf.h"
#include "tools/gleamctl/gleamctl.h"

enum level { LEVEL_OK, LEVEL_NOTE, LEVEL_WARN, LEVEL_FAIL };

struct doctor {
	const struct options *options;
	json_t *findings;
	unsigned counts[4];
	struct conf conf;   /* of the daemon's file, or its defaults */
	const char *config; /* its path */
	json_t *status;	    /* the daemon's answer; NULL: there is none */
};

/* One finding: @check is one word, @advice what to do (NULL: nothing). */
void doctor_say(struct doctor *doctor, enum level level, const char *check, const char *advice, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

/* doctor_system.c: this machine */
void doctor_library(struct doctor *doctor);
void doctor_io_uring(struct doctor *doctor);
void doctor_fuse(struct doctor *doctor);
void doctor_limits(struct doctor *doctor);
void doctor_kernel(struct doctor *doctor);
void doctor_clock(struct doctor *doctor);

/* doctor_daemon.c: settings, the daemon and what it knows */
void doctor_config(struct doctor *doctor);
void doctor_key(struct doctor *doctor);
void doctor_daemon(struct doctor *doctor);
void doctor_servers(struct doctor *doctor);
void doctor_node(struct doctor *doctor);

#endif
