/* SPDX-License-Identifier: Apache-2.0 */
/* A client's end of a session for tests: opens it at gleamd and sends commands of tests/fake/fake.h. One thread. */
#ifndef GLEAM_TEST_FAKE_SESSION_H
#define GLEAM_TEST_FAKE_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/lib/shm.h"
#include "broker/proto/wire.h"
#include "tests/fake/fake.h"

struct fake_session {
	int fd;
	int doorbell;
	struct shm shm;
	struct ring c2n;
	struct ring n2c;
	uint64_t seq;
	uint64_t up_head;
	char server[64];
	unsigned waited; /* how often it heard that a worker is being made ready */
	uint32_t end; /* why it was refused, or ended */
	char why[1024];
	char path[108];
	bool returns; /* when gleamd is gone it goes on with the next one */
	unsigned returned; /* how often it has */
};

/* -ECONNREFUSED: end and why are set. */
int fake_open(struct fake_session *s, const char *socket, const char *settings);
void fake_close(struct fake_session *s);
/*
 * LOCAL_RETURN to the gleamd that is there now, with @memory (-1: no descriptor): 0 and it goes on; -ECONNREFUSED: it was refused, end
 * and why are set; -EPIPE: it was closed without an answer; else there is nobody.
 */
int fake_return(struct fake_session *s, int memory, uint32_t version);
/* Its gleamd has closed the socket. */
bool fake_is_alone(const struct fake_session *s);

/* Waits for room; returns the sequence number, 0 when the session has ended. @ref may be NULL. */
uint64_t fake_post(struct fake_session *s, enum fake_op op, uint16_t flags, uint16_t slot, const struct bulk_ref *ref,
		   uint64_t argument, const void *bytes, size_t size);
/* The answer in @slot: bytes behind result, or -ENODEV when the session has ended, -ETIMEDOUT. */
int fake_wait(struct fake_session *s, uint16_t slot, void *out, size_t size_max, int timeout_ms);
/* fake_post() and fake_wait() in slot 0. */
int fake_call(struct fake_session *s, enum fake_op op, uint64_t argument, const void *bytes, size_t size, void *out,
	      size_t size_max);
/* A piece of the up arena of @size bytes at most SESSION_CELL_SIZE. False: the session has ended. */
bool fake_up_take(struct fake_session *s, uint32_t size, struct bulk_ref *ref_out);
bool fake_is_dead(struct fake_session *s);
/* Sends a packet and takes the answer: what LOCAL_CONTROL brings, in one text. free() it. */
char *fake_ask(const char *socket, const char *request);
int fake_connect(const char *socket);

#endif
