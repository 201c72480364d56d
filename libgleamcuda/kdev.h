/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way to gleamd through the kernel module, where it is loaded: /dev/gleam, or those /dev/gleam<N> that the program may
 * open. The thread that opens the session.
 */
#ifndef GLEAM_KDEV_H
#define GLEAM_KDEV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/lib/shm.h"

/* An open session, or -errno: there is no module, no gleamd attached to it, or no right. */
int kdev_find(void);
/* Maps the memory of @fd; @shm_out has no descriptor of its own. */
int kdev_map(int fd, struct shm *shm_out);
/*
 * Hands LOCAL_OPEN over and waits for the answer, @wait_ms at most: its size, or -errno. -EMSGSIZE: the answer is nonsense.
 */
int kdev_ask(int fd, const struct shm *shm, const void *packet, size_t size, void *answer, size_t answer_size,
	     int wait_ms);
/* The broker is gone for good, or has ended it. */
bool kdev_is_over(int fd);

#endif
