/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two ends of the kernel interface, for tests: a broker and sessions, by plain system calls.
 */
#ifndef TESTS_KMOD_DEV_H
#define TESTS_KMOD_DEV_H

#include <sys/ioctl.h>

#include "broker/lib/shm.h"
#include "broker/proto/ring.h"
#include "kmod/include/uapi/linux/gleam.h"
#include "tests/kmod/kt.h"

#define SYS_GLEAM "/sys/class/misc/gleam/"

/* ---- broker ---- */

/* Attached, waiting up to 10 s for the one before to be gone. */
int broker_attach(void);
/* The next event; the test fails without one within 10 s. */
struct gleam_event broker_event(int broker);
/* The next event, which is of this type. */
struct gleam_event broker_expect(int broker, enum gleam_event_type type);
/* No event comes within 50 ms. */
void broker_quiet(int broker);
/* 0 or -errno; @memory_out a descriptor. */
int broker_take(int broker, uint32_t session, int eventfd, int *memory_out);
int broker_ring(int broker, uint32_t session);
int broker_end(int broker, uint32_t session);
/* Expects ATTACH, takes the memory and maps it. */
struct gleam_event broker_accept(int broker, int eventfd, struct shm *shm_out);

/* ---- sessions ---- */

/* A descriptor, or -errno. */
int session_try(const char *path);
int session_open(void);
void *session_map(int fd);
struct gleam_info session_info(int fd);
long sessions_now(void);

/* A child that opens and maps a session, and then sleeps for ever. */
pid_t session_child(void);
void session_child_run(void *unused);

/* poll()'s events now. */
short events_now(int fd);

#endif
