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

/*
 * A wait is about to return: everything that the worker sent before the answer (bytes of host memory, printf text) has
 * been dealt with. Two loads when there is nothing. Not on the service thread.
 */
void service_settle(struct session *s);

/* Start it for @s: 0 or -errno. */
int service_start(struct session *s);
/* Ask for the device snapshot, right after the session is open and before anybody else uses it: 0 or -errno. */
int session_attach(struct session *s, CUresult *result_out);

#endif
