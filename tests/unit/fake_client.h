/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client library without a daemon: a session whose memory the test made, a snapshot that the test filled, and a
 * "worker" that the test is: it takes commands off the ring and answers what waits. In place of libgleamcuda/session.c
 * and stream.c.
 */
#ifndef GLEAM_TESTS_FAKE_CLIENT_H
#define GLEAM_TESTS_FAKE_CLIENT_H

#include "broker/proto/cuda_abi.h"
#include "broker/proto/snapshot.h"
#include "broker/proto/wire.h"
#include "libgleamcuda/call.h"

struct session;

/* What the next servers_open() does; CUDA_SUCCESS makes the session. */
extern CUresult fake_open_result;
extern unsigned int fake_open_count;
/* Filled before cuInit: two devices that differ, an H200's figures. */
extern struct snapshot fake_snapshot;
void fake_snapshot_fill(void);

struct session *fake_session(void);

/* The oldest command that nobody has taken: its header; its payload in @payload_out (size_out bytes). False: none. */
bool fake_command(struct frame_hdr *hdr_out, uint8_t payload_out[256], uint32_t *size_out);
/* Takes all, and returns how many of them had @op. */
unsigned int fake_commands_of(enum op op);

/* A worker thread that answers every command that waits: CUDA_SUCCESS, or what fake_answer says. */
struct fake_answer {
	CUresult result;
	uint8_t out[64]; /* out fields, as they follow the result */
	uint32_t out_size;
};
extern struct fake_answer fake_answer;
void fake_worker_start(void);
void fake_worker_stop(void);

/* How often context_wait() has been called, and what it returns. */
extern unsigned int fake_waits;
extern CUresult fake_wait_result;

/* Enters as a stub would, calls, leaves. */
#define FAKE_CALL(needs, body)                                                                                 \
	({                                                                                                     \
		struct call call_;                                                                             \
		struct call *call = &call_;                                                                    \
		CUresult result_ = call_enter(call, API_cuInit, (needs), false);                               \
                                                                                                               \
		if (!result_)                                                                                  \
			result_ = (body);                                                                      \
		call_leave(call, result_);                                                                     \
	})
#define FAKE_NONE(body)	   FAKE_CALL(NEEDS_NONE, body)
#define FAKE_INIT(body)	   FAKE_CALL(NEEDS_INIT, body)
#define FAKE_CONTEXT(body) FAKE_CALL(NEEDS_CONTEXT, body)

#endif
