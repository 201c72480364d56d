/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers on the software GPU in processes of their own, and a broker that lets one say what it is and plays that to another: for
 * tests of a session that leaves and arrives. In a child, as worker_session.h says.
 */
#ifndef TESTS_WORKER_BROKER_H
#define TESTS_WORKER_BROKER_H

#include "tests/unit/worker_session.h"

#define MIB	   (1ull << 20)
#define LEGACY	   WIRE_STREAM_LEGACY
#define EVENT(i)   handle_make(OBJECT_EVENT, 1, i)
#define GRAPH(i)   handle_make(OBJECT_GRAPHEXEC, 1, i)
#define ARRAY(i)   handle_make(OBJECT_ARRAY, 1, i)
#define MIPMAP(i)  handle_make(OBJECT_MIPMAP, 1, i)
#define TEX(i)	   handle_make(OBJECT_TEX, 1, i)
#define SURF(i)	   handle_make(OBJECT_SURF, 1, i)
#define VMM(i)	   handle_make(OBJECT_VMM, 1, i)
#define MODULE	   handle_make(OBJECT_MODULE, 1, 1)

/* A worker, beside the child's. */
pid_t worker_begin(struct client *c);
/* Address ranges before those of the sessions' devices: GPUs of other servers have them. */
extern uint32_t session_first;
void session_end(struct client *c);
/* @run in a child, with a worker that sees all devices and has a context, and has to end with @status. */
bool session_run(void (*run)(struct client *c), int status);

/* A frame as it stands. */
void frame_put(struct client *c, const struct frame_hdr *hdr, const void *payload);
void broker_put(struct client *c, uint16_t op, uint16_t ctx, uint8_t flags, const void *payload, size_t size);
/* BROKER(c, gleamMoveBytes, ctx, flags, .address = ...): a command with sequence number 0. */
#define BROKER(c, name, ctx_, flags_, ...)                                                                             \
	do {                                                                                                           \
		struct msg_##name m_ = { __VA_ARGS__ };                                                                \
		struct writer w_ = writer_on(send_room, sizeof(send_room));                                            \
                                                                                                                       \
		msg_##name##_put(&w_, &m_);                                                                            \
		CHECK(!w_.fault);                                                                                      \
		broker_put(c, OP_##name, ctx_, flags_, send_room, w_.at);                                              \
	} while (0)

/* The answer to the broker's @op, taken out. */
struct seen *answer_of(struct client *c, uint16_t op);

struct out {
	uint32_t code;
	uint64_t left, total;
	char reason[256];
};

/* gleamMoveOut; and until nothing is left, which must go well. */
struct out ask(struct client *c, uint32_t step, uint64_t limit);
void ask_well(struct client *c, uint32_t step);

/* What has been said since drop(): is it that; its command; how often; the message of the @number-th; a word of a message. */
bool is_said(const struct seen *s);
const struct frame_hdr *inner(const struct seen *s);
unsigned said(struct client *c, uint16_t op);
const uint8_t *message(struct client *c, uint16_t op, unsigned number);
uint64_t word_of(const uint8_t *message, unsigned at);
void drop(struct client *c);
/* Plays what @a has said to @b, and drops it. */
void play(struct client *a, struct client *b);
/* "", or why @b can't be what it was played. Its client is @a's from then on, unless that is NULL. */
const char *move_end(struct client *a, struct client *b);

/* A module with the variables counter = 20, pointer = &counter, spare and table[3], in this order, and its function grow(by). */
extern const char image[];
extern const uint32_t image_size;
void load(struct client *c, uint64_t module, uint64_t function);
void grow(struct client *c, uint64_t function, uint32_t by);
/* Of floats; @height 0: a line. */
void array_make(struct client *c, uint64_t array, uint64_t width, uint64_t height, uint32_t flags);
uint64_t texture_make(struct client *c, uint64_t tex, uint32_t type, uint64_t resource, uint64_t width);

#endif
