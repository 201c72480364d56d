// SPDX-License-Identifier: Apache-2.0
/*
 * A broker beside workers; see worker_broker.h.
 */
#include "tests/unit/worker_broker.h"

#include <sys/wait.h>

uint32_t session_first;

static void attach(struct client *c, uint64_t ordinals)
{
	struct bulk_ref cells = { .offset = 0, .size = SESSION_CELL_SIZE, .cookie = 77 };

	CHECK_EQUAL(wait_reply(c, SEND_FLAGS(c, gleamAttach, FRAME_WANTS_REPLY | FRAME_BULK_DOWN, &cells, .ordinals = ordinals, .first = session_first), NULL), 0);
	SEND(c, gleamContextOpen, .index = CTX, .device = 0, .primary = 1);
}

void session_end(struct client *c)
{
	__atomic_store_n(&shm_header(&c->shm)->state, SESSION_DEAD, __ATOMIC_RELEASE);
	shm_wake_all(&c->shm);
}

/* A worker of the software GPU in a process, beside the child's; in the child of a test. */
pid_t worker_begin(struct client *c)
{
	char word[256];
	pid_t pid = process_start(c, "libsoftcuda.so", NULL, word, sizeof(word));

	if (word[0] != 'R')
		fprintf(stderr, "the worker says: %s\n", word);
	CHECK(word[0] == 'R');
	c->worker.settings.range_device += session_first * SPACE_SPAN;
	return pid;
}

/* @run in a child, with a worker that has to end with @status. */
bool session_run(void (*run)(struct client *c), int status)
{
	pid_t child;
	int got = -1;

	fflush(NULL);
	child = fork();
	if (child == 0) {
		struct client c;
		pid_t worker;

		alarm(120);
		worker = worker_begin(&c);
		attach(&c, 0);
		run(&c);
		if (!status)
			session_end(&c);
		CHECK_EQUAL(process_end(&c, worker), status);
		_exit(0);
	}
	waitpid(child, &got, 0);
	return got == 0;
}

/* ---- a broker ---- */

void frame_put(struct client *c, const struct frame_hdr *hdr, const void *payload)
{
	uint8_t *room;
	int err;

	while ((err = ring_reserve(&c->c2n, hdr->size, &room)) == -EAGAIN) {
		settle(c);
		pause_ms(1);
	}
	CHECK(!err);
	memcpy(room, hdr, sizeof(*hdr));
	memcpy(room + sizeof(*hdr), payload, hdr->size - sizeof(*hdr));
	ring_commit(&c->c2n, hdr->size);
	if (ring_publish(&c->c2n))
		ring_wake_futex(c->c2n.ctl);
}

void broker_put(struct client *c, uint16_t op, uint16_t ctx, uint8_t flags, const void *payload, size_t size)
{
	struct frame_hdr hdr = {
		.size = (uint32_t)(sizeof(hdr) + size), .op = op, .kind = FRAME_COMMAND, .ctx = ctx, .flags = flags,
	};

	frame_put(c, &hdr, payload);
}

/* The answer to the broker's @op, taken out; NULL: the worker has ended. */
struct seen *answer_of(struct client *c, uint16_t op)
{
	for (int i = 0; i < 60000; i++) {
		settle(c);
		for (struct seen *s = c->seen; s; s = s->next)
			if (s->hdr.kind == FRAME_REPLY && s->hdr.seq == 0 && s->hdr.op == op) {
				s->hdr.kind = FRAME_PAD;
				return s;
			}
		pause_ms(1);
	}
	CHECK(!"an answer");
	return NULL;
}

struct out ask(struct client *c, uint32_t step, uint64_t limit)
{
	struct ans_gleamMoveOut a;
	struct out out = { 0 };
	struct reader r;
	struct seen *s;

	BROKER(c, gleamMoveOut, CTX_NONE, FRAME_WANTS_REPLY, .step = step, .limit = limit);
	s = answer_of(c, OP_gleamMoveOut);
	r = reader_on(s->payload, s->size);
	CHECK_EQUAL(get_u32(&r), 0);
	CHECK(ans_gleamMoveOut_get(&r, &a));
	out.code = a.code;
	out.left = a.left;
	out.total = a.total;
	memcpy(out.reason, a.reason, a.reason_size);
	return out;
}

void ask_well(struct client *c, uint32_t step)
{
	for (;;) {
		struct out out = ask(c, step, 64 * MIB);

		/* The end of work is heard of a moment after it. */
		if (step == MOVE_LAST && out.code == MOVE_NOT_READY) {
			pause_ms(1);
			continue;
		}
		if (out.code)
			fprintf(stderr, "step %u: %u, %s\n", step, out.code, out.reason);
		CHECK_EQUAL(out.code, 0);
		if (!out.left)
			return;
	}
}

const struct frame_hdr *inner(const struct seen *s)
{
	CHECK(s->size >= sizeof(struct frame_hdr));
	return (const void *)s->payload;
}

bool is_said(const struct seen *s)
{
	return s->hdr.kind == FRAME_NOTICE && s->hdr.op == NOTICE_MOVE;
}

/* How often @op was said since drop(). */
unsigned said(struct client *c, uint16_t op)
{
	unsigned count = 0;

	settle(c);
	for (struct seen *s = c->seen; s; s = s->next)
		count += is_said(s) && inner(s)->op == op;
	return count;
}

/* The @number-th that was said with @op; its message follows the header. */
const uint8_t *message(struct client *c, uint16_t op, unsigned number)
{
	for (struct seen *s = c->seen; s; s = s->next)
		if (is_said(s) && inner(s)->op == op && number-- == 0)
			return s->payload + sizeof(struct frame_hdr);
	CHECK(!"said");
	return NULL;
}

uint64_t word_of(const uint8_t *message, unsigned at)
{
	uint64_t value;

	memcpy(&value, message + at, sizeof(value));
	return value;
}

void drop(struct client *c)
{
	settle(c);
	for (struct seen *s = c->seen; s; s = s->next)
		if (is_said(s))
			s->hdr.kind = FRAME_PAD;
}

const char image[] =
	".version 7.0\n.target sm_52\n.address_size 64\n.visible .global .align 4 .u32 counter = 20;\n"
	".visible .global .align 8 .u64 pointer = generic(counter);\n.visible .global .align 8 .u64 spare;\n"
	".visible .const .align 4 .u32 table[3] = {1, 2, 3};\n"
	".visible .entry grow(.param .u32 by)\n{\n\t.reg .b32 %r<4>;\n"
	"\tld.param.u32 %r1, [by];\n\tld.global.u32 %r2, [counter];\n\tadd.u32 %r3, %r2, %r1;\n\tst.global.u32 [counter], %r3;\n\tret;\n}\n";

const uint32_t image_size = sizeof(image);

void load(struct client *c, uint64_t module, uint64_t to)
{
	struct bulk_ref piece = up_take(c, sizeof(image)), cells = { .offset = SESSION_CELL_SIZE, .size = SESSION_CELL_SIZE };

	SEND(c, gleamLoadBegin, .object = module, .total_size = sizeof(image));
	up_land(c, &piece, image);
	SEND_FLAGS(c, gleamLoadPart, FRAME_BULK_UP, &piece, .object = module, .offset = 0);
	CHECK_EQUAL(wait_reply(c, SEND_FLAGS(c, gleamLoadImage, FRAME_WANTS_REPLY | FRAME_BULK_DOWN, &cells, .object = module, .kind = 2,
					     .total_size = sizeof(image)), NULL), 0);
	SEND(c, cuModuleGetFunction, .hfunc = to, .hmod = module, .name = "grow");
}

void grow(struct client *c, uint64_t f, uint32_t by)
{
	SEND(c, gleamLaunch, .stream = LEGACY, .function = f, .grid_x = 1, .grid_y = 1, .grid_z = 1, .block_x = 1, .block_y = 1,
	     .block_z = 1, .params = &by, .params_size = 4);
}

void array_make(struct client *c, uint64_t array, uint64_t width, uint64_t height, uint32_t flags)
{
	CHECK_EQUAL(CALL(c, gleamArrayCreate, NULL, .array = array, .width = width, .height = height, .format = CU_AD_FORMAT_FLOAT,
			 .channels = 1, .flags = flags), 0);
}

uint64_t texture_make(struct client *c, uint64_t tex, uint32_t type, uint64_t resource, uint64_t width)
{
	struct ans_gleamTexCreate a;
	struct seen *s;
	struct reader r;

	CHECK_EQUAL(CALL(c, gleamTexCreate, &s, .tex = tex, .type = type, .resource = resource, .format = CU_AD_FORMAT_FLOAT,
			 .channels = 1, .width = width), 0);
	r = reader_on(s->payload, s->size);
	get_u32(&r);
	CHECK(ans_gleamTexCreate_get(&r, &a));
	return a.value;
}

/* Plays what @a has said to @b. */
void play(struct client *a, struct client *b)
{
	settle(a);
	for (struct seen *s = a->seen; s; s = s->next)
		if (is_said(s)) {
			frame_put(b, inner(s), s->payload + sizeof(struct frame_hdr));
			s->hdr.kind = FRAME_PAD;
		}
}

/* "" or why @b can't be what it was played. */
const char *move_end(struct client *a, struct client *b)
{
	static char reason[256];
	struct ans_gleamMoveEnd e;
	struct reader r;
	struct seen *s;

	BROKER(b, gleamMoveEnd, CTX_NONE, FRAME_WANTS_REPLY, .sequence = a ? a->seq : 0, .up = a ? a->up_head : 0);
	s = answer_of(b, OP_gleamMoveEnd);
	r = reader_on(s->payload, s->size);
	CHECK_EQUAL(get_u32(&r), 0);
	CHECK(ans_gleamMoveEnd_get(&r, &e));
	memcpy(reason, e.reason, e.reason_size);
	if (a) {
		b->seq = a->seq;
		b->up_head = b->consumed = a->up_head;
	}
	return reason;
}
