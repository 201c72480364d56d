/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service thread: reads the notices of the session's n2c ring (landings, freed ranges, host functions, printf) and
 * notices the end of the session. One a process, all signals blocked. It takes no lock that an application thread holds
 * while it waits.
 */
#ifndef GLEAM_SERVICE_H
#define GLEAM_SERVICE_H

#include "broker/proto/cuda_abi.h"

struct session;

/* Start it for @s: 0 or -errno. */
int service_start(struct session *s);
/* Ask for the device snapshot, right after the session is open and before anybody else uses it: 0 or -errno. */
int session_attach(struct session *s, CUresult *result_out);

#endif
