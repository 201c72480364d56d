/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker in the test's own process, and a client that talks to it through session memory as a node would pass it on.
 * Every test runs in a child process, since a driver and Gleam's address ranges exist once a process.
 */
#ifndef TESTS_WORKER_SESSION_H
#define TESTS_WORKER_SESSION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/proto/resource.h"
#include "broker/worker/executor.h"
#include "broker/worker/start.h"
#include "tests/fake/fake_driver.h"

/* In a child there is no test framework: a failure is a line and an exit. */
#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                      \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)
#define CHECK_EQUAL(a, b)                                                                                              \
	do {                                                                                                           \
		unsigned long long a_ = (unsigned long long)(a), b_ = (unsigned long long)(b);                         \
                                                                                                                       \
		if (a_ != b_) {                                                                                        \
			fprintf(stderr, "%s:%d: %s is %llu (0x%llx), not %llu\n", __FILE__, __LINE__, #a, a_, a_, b_);  \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)

struct fake {
	void (*release)(unsigned int count);
	void (*plan)(const char *name, int code, int after);
	void (*refuse_register)(bool refuse);
	void (*wait_in)(const char *name);
	void (*memory)(uint64_t bytes);
	unsigned int (*ask)(enum fake_question question);
	unsigned int (*calls)(const char *name);
};

/* A frame that came back. */
struct seen {
	struct seen *next;
	struct frame_hdr hdr;
	struct bulk_ref bulk;
	uint32_t size;
	uint8_t payload[] __attribute__((aligned(8)));
};

struct client {
	struct worker worker;
	struct shm shm; /* the client's own mapping */
	struct ring c2n;
	struct ring n2c;
	struct fake fake;
	pthread_t executor;
	int exit_code;
	uint64_t seq;
	uint16_t ctx; /* of what is sent; CTX at first */
	uint64_t up_head;
	struct seen *seen;
	uint32_t progress[SESSION_PROGRESS_WORDS];
	uint32_t landed; /* NOTICE_LANDED seen */
	uint64_t consumed;
};

#define DEVICE_AT(c) ((c)->worker.settings.range_device)

/* Runs @test in a child with a fresh worker; true if it ended well. @prepare is called before the worker starts. */
bool child_run(void (*test)(struct client *c), void (*prepare)(struct client *c));

/*
 * The same with bin/gleam-worker in a process of its own, on @driver (a name beside libfakecuda.so, or a path).
 * @argument is one more for it, or NULL. "R" or the reason comes in @status_out; c->worker is not used.
 */
pid_t process_start(struct client *c, const char *driver, const char *argument, char *status_out, size_t size);
/* Waits for its end and gives the exit status (or 128 + signal); everything of @c is closed. */
int process_end(struct client *c, pid_t pid);

/* What the calls of this file send as context and slot. */
#define CTX 0

uint64_t send_frame(struct client *c, uint16_t op, uint8_t flags, const struct bulk_ref *bulk, const void *payload,
		    uint32_t size);
extern uint8_t send_room[FRAME_SIZE_MAX];
/* SEND(c, gleamMap, .address = ...): the sequence number. */
#define SEND_FLAGS(c, name, flags_, bulk_, ...)                                                                        \
	({                                                                                                             \
		struct msg_##name m_ = { __VA_ARGS__ };                                                                \
		struct writer w_ = writer_on(send_room, sizeof(send_room));                                            \
                                                                                                                       \
		msg_##name##_put(&w_, &m_);                                                                            \
		send_frame(c, OP_##name, flags_, bulk_, send_room, (uint32_t)w_.at);                                   \
	})
#define SEND(c, name, ...) SEND_FLAGS(c, name, 0, NULL, __VA_ARGS__)
/* Sends, waits, and gives the CUresult; the reply itself is in @seen_out. */
#define CALL(c, name, seen_out, ...)                                                                                   \
	wait_reply(c, SEND_FLAGS(c, name, FRAME_WANTS_REPLY, NULL, __VA_ARGS__), seen_out)

/* The CUresult of the reply to @seq; @seen_out (or NULL) is the frame, kept by @c. Fails after some seconds. */
CUresult wait_reply(struct client *c, uint64_t seq, struct seen **seen_out);
/* The first notice of that kind that was not taken yet. */
struct seen *wait_notice(struct client *c, enum notice notice);
bool have_notice(struct client *c, enum notice notice);
bool have_reply(struct client *c, uint64_t seq);
void wait_progress(struct client *c, uint32_t word, uint64_t seq);
bool reached(struct client *c, uint32_t word, uint64_t seq);
void wait_consumed(struct client *c, uint64_t position);
/* A few rounds of looking at what comes back, without waiting for anything. */
void settle(struct client *c);
/* The worker has ended by itself; its code. */
int wait_exit(struct client *c);
void pause_ms(unsigned int ms);

/* Things that most tests begin with. */
void open_context(struct client *c);			    /* attach and context 0 on device 0 */
uint64_t map_memory(struct client *c, uint64_t bytes);	    /* an address in device 0's range */
uint64_t load_functions(struct client *c);		    /* module with all four; function handles follow */
enum { FUNCTION_HOLD = 1, FUNCTION_FILL, FUNCTION_ADD, FUNCTION_CRASH };
uint64_t function(int which);
uint64_t stream(struct client *c, uint32_t index, uint32_t flags);
uint64_t launch_hold(struct client *c, uint64_t stream);
uint64_t launch_add(struct client *c, uint64_t stream, uint64_t at, uint32_t value);
uint64_t launch_fill(struct client *c, uint64_t stream, uint64_t at, uint8_t value, uint32_t count);
uint64_t launch_crash(struct client *c, uint64_t stream);
uint32_t read_u32(struct client *c, uint64_t stream, uint64_t at);
/* What a context (CTX_NONE: device 0) has of multiprocessors, as cuCtxGetDevResource() tells it. */
struct resource_entry resource(struct client *c, uint32_t index);
/* A piece of the up arena; landing writes bytes and the landed word, as a node does. */
struct bulk_ref up_take(struct client *c, uint32_t size);
void up_land(struct client *c, const struct bulk_ref *ref, const void *bytes);

/*
 * @run in a child of its own (the session's memory lies at fixed addresses), with a worker on the software GPU that is attached and has
 * the primary context CTX open. The worker has to end with @status.
 */
bool soft_run(void (*run)(struct client *c), int status);

#endif
