/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual GPUs: every GPU of every server that is known as /dev/gleam<N>, by the kernel module's netlink family. Control
 * thread. Requests are answered by the kernel within the call, so nothing waits.
 */
#ifndef GLEAM_LOCAL_KNL_H
#define GLEAM_LOCAL_KNL_H

#include <stddef.h>
#include <stdint.h>

#include "broker/core/loop.h"

struct broker;
struct knl;

/* After kdev_start(), for the kernel takes them from the attached daemon alone. NULL: not possible, and the log says why. */
struct knl *knl_start(struct broker *broker, struct loop *loop);
/* They stay for the next daemon, and go when none comes. NULL is harmless. */
void knl_free(struct knl *knl);

/*
 * What a session may use that has come through single devices: the server, and its GPUs as CUDA_VISIBLE_DEVICES names them.
 * -ENODEV: none of them is there any more. -EXDEV: they are of several servers.
 */
int knl_devices(const struct knl *knl, uint64_t devices, char *server, size_t server_size, char *visible, size_t visible_size);

#endif
