/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel module's way in: /dev/gleam-broker. Its sessions become clients like those of the socket, whom the kernel
 * vouches for. Control thread.
 */
#ifndef GLEAM_LOCAL_KDEV_H
#define GLEAM_LOCAL_KDEV_H

#include <stdbool.h>

#include "broker/core/loop.h"

struct broker;
struct kdev;

/*
 * NULL: there is no module, or no right to it, or another daemon has it; the log says which, and the socket serves alone.
 */
struct kdev *kdev_start(struct broker *broker, struct loop *loop);
/* No session any more; kdev_is_stopped() tells when its operations have ended, then kdev_free(). NULL is harmless. */
void kdev_stop(struct kdev *kdev);
bool kdev_is_stopped(const struct kdev *kdev);
void kdev_free(struct kdev *kdev);

/* Sessions that came this way and are there now. */
unsigned kdev_session_count(const struct kdev *kdev);

#endif
