/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service thread: reads the notices of the session's n2c ring (landings, freed ranges, host functions, printf) and
 * notices the end of the session. One a process, all signals blocked. It takes no lock that an application thread holds
 * while it waits. (An application thread has notice_lock for moments, to take landings, and only where nobody has it.)
 */
#ifndef GLEAM_SERVICE_H
#define GLEAM_SERVICE_H

#include <stdbool.h>

#include "broker/proto/cuda_abi.h"

struct session;

/*
 * A wait is about to return: everything that the worker sent before the answer (bytes of host memory, printf text) has
 * been dealt with. Two loads when there is nothing. Not on the service thread.
 */
void service_settle(struct session *s);

/*
 * Takes the landings that are next among the notices, unless another thread is at the notices: whoever waits for bytes needs not wait for the service
 * thread to wake up, too. True: there were some. Not on the service thread, and without any lock of late.c.
 */
bool service_landings_take(struct session *s);

/* Start it for @s: 0 or -errno. */
int service_start(struct session *s);
/* Ask for the device snapshot, right after the session is open and before anybody else uses it: 0 or -errno. */
int session_attach(struct session *s, CUresult *result_out);

#endif
