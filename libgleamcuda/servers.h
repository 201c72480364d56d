/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The servers that a process has sessions with.
 */
#ifndef GLEAM_SERVERS_H
#define GLEAM_SERVERS_H

#include "broker/proto/cuda_abi.h"

/*
 * Opens the process's sessions, each with its thread: 0, or -errno with a reason that the log has. NO_DEVICE and its kin are decided by
 * the caller from @result_out. By cuInit, once.
 */
int servers_open(CUresult *result_out);

#endif
