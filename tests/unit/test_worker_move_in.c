// SPDX-License-Identifier: Apache-2.0
/*
 * gleam-worker: a session arrives. One worker becomes another one; and what a broker that lies does to the worker that it plays
 * commands to: its session ends, or the move fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "broker/worker/touch.h"
#include "broker/worker/variable.h"
#include "tests/unit/worker_broker.h"

/* ---- two workers ---- */

static const void *global_data(struct client *c, unsigned number)
{
	struct reader r = reader_on(message(c, OP_gleamMoveGlobal, number), 4096);
	uint32_t size;

	get_u64(&r);
	get_u64(&r);
	get_bytes(&r, 6144, &size);
	return get_bytes(&r, 49152, &size);
}

static void moves_whole(struct client *a)
{
	uint64_t p = map_memory(a, 4 * MIB), at = DEVICE_AT(a) + (64ull << 30), s = stream(a, 1, 1), f = function(1), number, wanted;
	struct client b;
	pid_t worker = worker_begin(&b);
	uint32_t code;

	load(a, MODULE, f);
	grow(a, f, 100);
	SEND(a, cuMemsetD32Async, .hStream = s, .dstDevice = p + 4096, .ui = 1234, .N = 1000);
	array_make(a, ARRAY(1), 300, 300, 0);
	array_make(a, ARRAY(2), 30000, 0, 0);
	SEND(a, gleamArrayCopy, .stream = s, .dst_array = ARRAY(1), .src = p + 4096, .src_pitch = 1200, .src_height = 1, .width = 1200,
	     .rows = 1, .depth = 1, .dst_y = 299);
	SEND(a, gleamArrayCopy, .stream = s, .dst_array = ARRAY(2), .dst_x = 29000 * 4, .src = p + 4096, .src_pitch = 4000, .src_height = 1,
	     .width = 4000, .rows = 1, .depth = 1);
	/* A gap before the number that is kept. */
	for (uint32_t i = 1; i < 6; i++)
		wanted = texture_make(a, TEX(i), CU_RESOURCE_TYPE_ARRAY, ARRAY(1), 0);
	for (uint32_t i = 1; i < 5; i++)
		SEND(a, gleamTexEnd, .tex = TEX(i));
	CHECK_EQUAL(CALL(a, gleamVmmCreate, NULL, .handle = VMM(1), .device = 0, .size = 2 * MIB), 0);
	SEND(a, gleamVmmMap, .address = at, .size = 2 * MIB, .handle = VMM(1));
	SEND(a, gleamVmmAccess, .address = at, .size = 2 * MIB, .device = 0, .access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	SEND(a, cuMemsetD32Async, .hStream = s, .dstDevice = at, .ui = 4321, .N = 1000);
	CHECK_EQUAL(CALL(a, gleamContextSync, NULL, .index = CTX), 0);
	SEND(a, gleamVmmAccess, .address = at, .size = 2 * MIB, .device = 0, .access = CU_MEM_ACCESS_FLAGS_PROT_READ);
	ask_well(a, MOVE_COPY);
	play(a, &b);
	/* A failure that is told later. */
	SEND(a, cuMemsetD32Async, .hStream = s, .dstDevice = at, .ui = 1, .N = 1);
	wait_notice(a, NOTICE_ERROR);
	ask_well(a, MOVE_LAST);
	CHECK_EQUAL(said(a, OP_gleamMoveLatch), 1);
	play(a, &b);
	CHECK_EQUAL(strlen(move_end(a, &b)), 0);
	CHECK(!have_notice(&b, NOTICE_ERROR));

	/* From here on the client's commands go to the other one. */
	CHECK_EQUAL(CALL(&b, gleamContextSync, NULL, .index = CTX), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(CALL(&b, gleamContextSync, NULL, .index = CTX), 0);
	CHECK_EQUAL(read_u32(&b, s, p + 4096 + 3996), 1234);
	CHECK_EQUAL(read_u32(&b, s, p + 4096 + 4000), 0);
	CHECK_EQUAL(read_u32(&b, s, at + 3996), 4321);
	SEND(&b, gleamArrayCopy, .stream = s, .dst = p, .dst_pitch = 4, .dst_height = 1, .src_array = ARRAY(1), .src_x = 1196, .src_y = 299,
	     .width = 4, .rows = 1, .depth = 1);
	SEND(&b, gleamArrayCopy, .stream = s, .dst = p + 4, .dst_pitch = 4, .dst_height = 1, .src_array = ARRAY(2), .src_x = 29999 * 4,
	     .width = 4, .rows = 1, .depth = 1);
	CHECK_EQUAL(read_u32(&b, s, p), 1234);
	CHECK_EQUAL(read_u32(&b, s, p + 4), 1234);
	/* The numbers in the gap are free again, the one above it is taken. */
	for (uint32_t i = 10; i < 14; i++) {
		number = texture_make(&b, TEX(i), CU_RESOURCE_TYPE_ARRAY, ARRAY(1), 0);
		CHECK(number < wanted);
	}
	CHECK(texture_make(&b, TEX(14), CU_RESOURCE_TYPE_ARRAY, ARRAY(1), 0) > wanted);
	/* The module's variable is what it was. */
	grow(&b, f, 1);
	ask_well(&b, MOVE_COPY);
	ask_well(&b, MOVE_LAST);
	/* Of the variables those that aren't constant. */
	CHECK_EQUAL(said(&b, OP_gleamMoveGlobal), 3);
	memcpy(&code, global_data(&b, 0), sizeof(code));
	CHECK_EQUAL(code, 121);
	session_end(&b);
	CHECK_EQUAL(process_end(&b, worker), EXIT_DONE);
}

/* GPUs of another server have the first two ranges: the new worker takes the third, too. */
static void third_range(struct client *a)
{
	struct client b;
	pid_t worker = worker_begin(&b);
	uint64_t s = stream(a, 1, 1), p = map_memory(a, MIB);

	CHECK(p >= SPACE_DEVICE + 2 * SPACE_SPAN);
	SEND(a, cuMemsetD32Async, .hStream = s, .dstDevice = p, .ui = 77, .N = 1000);
	CHECK_EQUAL(CALL(a, gleamContextSync, NULL, .index = CTX), 0);
	ask_well(a, MOVE_COPY);
	play(a, &b);
	ask_well(a, MOVE_LAST);
	play(a, &b);
	CHECK_EQUAL(strlen(move_end(a, &b)), 0);
	CHECK_EQUAL(read_u32(&b, s, p + 3996), 77);
	session_end(&b);
	CHECK_EQUAL(process_end(&b, worker), EXIT_DONE);
}

static void test_beside_gpus_of_other_servers(void **state)
{
	(void)state;
	session_first = 2;
	assert_true(session_run(third_range, 0));
	session_first = 0;
}

/* ---- what arrives ---- */

/* A worker that nobody has attached to, and that is told to become another one; @run in a child. */
static struct seen *begin(struct client *a, struct client *b)
{
	struct seen *s;

	ask_well(a, MOVE_COPY);
	for (s = a->seen; s; s = s->next)
		if (is_said(s) && inner(s)->op == OP_gleamMoveBegin) {
			frame_put(b, inner(s), s->payload + sizeof(struct frame_hdr));
			s->hdr.kind = FRAME_PAD;
			break;
		}
	return answer_of(b, OP_gleamMoveBegin);
}

/* A frame after the beginning ends the worker's session; it ends with EXIT_PROTOCOL. */
#define BREAKS(a, begins, name, ctx, ...)                                                                              \
	do {                                                                                                           \
		struct client other_;                                                                                      \
		pid_t worker_ = worker_begin(&other_);                                                                     \
                                                                                                                       \
		if (begins) {                                                                                          \
			CHECK_EQUAL(ask(a, MOVE_FORGET, 0).code, 0);                                                   \
			begin(a, &other_);                                                                                 \
			play(a, &other_);                                                                                  \
		}                                                                                                      \
		BROKER(&other_, name, ctx, op_info[OP_##name].flags & OP_HAS_REPLY ? FRAME_WANTS_REPLY : 0, __VA_ARGS__);  \
		CHECK_EQUAL(process_end(&other_, worker_), EXIT_PROTOCOL);                                                 \
	} while (0)

static void breaks(struct client *a)
{
	static uint8_t bytes[64];
	uint64_t odd[1] = { 0 }, class[1] = { 1 << 8 | 9 };

	array_make(a, ARRAY(1), 16, 16, 0);
	/* Nobody has said that it is to become another one. */
	BREAKS(a, false, gleamMoveBytes, CTX_NONE, .address = DEVICE_AT(a), .zeros = 1);
	BREAKS(a, false, gleamMoveVmm, CTX_NONE, .handle = VMM(1), .zeros = 1);
	BREAKS(a, false, gleamMoveArray, CTX, .array = ARRAY(1), .level = UINT32_MAX, .width = 4, .rows = 1);
	BREAKS(a, false, gleamMoveNumber, CTX, .object = TEX(1), .number = 1);
	BREAKS(a, false, gleamMoveLatch, CTX_NONE, .index = 0, .code = 1);
	BREAKS(a, false, gleamMovePieces, CTX_NONE, .device = 0);
	BREAKS(a, false, gleamMoveUnmap, CTX_NONE, .address = DEVICE_AT(a));
	BREAKS(a, false, gleamMoveEnd, CTX_NONE, .sequence = 1);
	BREAKS(a, false, gleamMoveLink, CTX, .link = handle_make(OBJECT_LINK, 1, 1));
	BREAKS(a, false, gleamLinkAgain, CTX, .link = handle_make(OBJECT_LINK, 1, 1), .name = "");
	/* What no worker says. */
	BREAKS(a, true, gleamMovePieces, CTX_NONE, .device = 77);
	BREAKS(a, true, gleamMovePieces, CTX_NONE, .device = 0, .pieces = odd, .pieces_count = 1);
	BREAKS(a, true, gleamMovePieces, CTX_NONE, .device = 0, .pieces = class, .pieces_count = 1);
	BREAKS(a, true, gleamMoveMap, CTX_NONE, .address = DEVICE_AT(a), .device = 0, .pieces = class, .pieces_count = 1);
	BREAKS(a, true, gleamMoveArray, CTX, .array = ARRAY(1), .level = UINT32_MAX, .width = 4, .rows = 1, .data = bytes, .data_size = 3);
	BREAKS(a, true, gleamMoveArray, CTX, .array = ARRAY(1), .level = UINT32_MAX, .width = 1ull << 40, .rows = 1ull << 40);
	BREAKS(a, false, gleamMoveTouch, CTX, .object = MODULE, .what = 1, .name = "");
	BREAKS(a, false, gleamMoveVariable, CTX, .object = MODULE, .name = "x", .where = "", .size = 4);
	BREAKS(a, false, gleamMoveGlobal, CTX, .address = 77, .data = bytes, .data_size = 4);
	BREAKS(a, true, gleamMoveTouch, CTX, .object = ARRAY(1), .what = 1, .name = "");
	BREAKS(a, true, gleamMoveTouch, CTX, .object = MODULE, .what = 0, .name = "");
	BREAKS(a, true, gleamMoveTouch, CTX, .object = MODULE, .what = 99, .name = "");
	BREAKS(a, true, gleamMoveVariable, CTX, .object = MODULE, .name = "x", .where = "", .address = UINT64_MAX, .size = 4);
	/* Contents of what nobody has named. */
	BREAKS(a, true, gleamMoveGlobal, CTX, .address = 77, .data = bytes, .data_size = 4);
	BREAKS(a, true, gleamMoveLatch, CTX_NONE, .index = 9999, .code = 1);
	BREAKS(a, true, gleamMoveLatch, CTX_NONE, .index = 0, .code = 0);
	BREAKS(a, true, gleamMoveLatch, CTX_NONE, .index = 0, .code = 1, .op = OP_MAX);
	BREAKS(a, true, gleamMoveBegin, CTX_NONE, .ordinals = 1);
	BREAKS(a, true, gleamMoveOut, CTX_NONE, .step = 99);
}

/* A command that fails: nothing is told to a client, and the end gives the first reason. */
#define FAILS(a, why, name, ctx, ...)                                                                                  \
	do {                                                                                                           \
		struct client other_;                                                                                      \
		pid_t worker_ = worker_begin(&other_);                                                                     \
		const char *got_;                                                                                      \
                                                                                                                       \
		CHECK_EQUAL(ask(a, MOVE_FORGET, 0).code, 0);                                                           \
		begin(a, &other_);                                                                                         \
		play(a, &other_);                                                                                          \
		BROKER(&other_, name, ctx, op_info[OP_##name].flags & OP_HAS_REPLY ? FRAME_WANTS_REPLY : 0, __VA_ARGS__);  \
		/* What comes behind is of no use. */                                                                  \
		BROKER(&other_, gleamMoveUnmap, CTX_NONE, 0, .address = 3);                                                \
		got_ = move_end(NULL, &other_);                                                                            \
		CHECK(got_);                                                                                           \
		if (!strstr(got_, why))                                                                                \
			fprintf(stderr, "%s: %s\n", #name, got_);                                                      \
		CHECK(strstr(got_, why));                                                                              \
		CHECK(have_notice(&other_, NOTICE_MOVE));                                                                  \
		CHECK(!have_notice(&other_, NOTICE_ERROR));                                                                \
		session_end(&other_);                                                                                      \
		CHECK_EQUAL(process_end(&other_, worker_), EXIT_DONE);                                                     \
	} while (0)

static void fails(struct client *a)
{
	static uint8_t bytes[64];

	load(a, MODULE, function(1));
	array_make(a, ARRAY(1), 16, 16, 0);
	CHECK_EQUAL(CALL(a, gleamVmmCreate, NULL, .handle = VMM(1), .device = 0, .size = 2 * MIB), 0);
	FAILS(a, "gleamMoveBytes gives", gleamMoveBytes, CTX_NONE, .address = DEVICE_AT(a) + (300ull << 30), .data = bytes, .data_size = 64);
	FAILS(a, "gleamMoveBytes gives 1 there", gleamMoveBytes, CTX_NONE, .address = 4096, .zeros = 64);
	FAILS(a, "gleamMoveVmm gives 400 there", gleamMoveVmm, CTX_NONE, .handle = VMM(9), .zeros = 64);
	FAILS(a, "gleamMoveVmm gives 1 there", gleamMoveVmm, CTX_NONE, .handle = VMM(1), .offset = 2 * MIB, .zeros = 1);
	FAILS(a, "gleamMoveVmm gives 1 there", gleamMoveVmm, CTX_NONE, .handle = VMM(1), .offset = UINT64_MAX, .zeros = 2);
	FAILS(a, "gleamMoveArray gives 400 there", gleamMoveArray, CTX, .array = ARRAY(7), .level = UINT32_MAX, .width = 4, .rows = 1);
	FAILS(a, "gleamMoveArray gives 400 there", gleamMoveArray, CTX, .array = ARRAY(1), .level = 0, .width = 4, .rows = 1);
	FAILS(a, "gleamMoveArray gives 1 there", gleamMoveArray, CTX, .array = ARRAY(1), .level = UINT32_MAX, .y = 16, .width = 4, .rows = 1);
	FAILS(a, "(absent) of 4 bytes isn't there", gleamMoveVariable, CTX, .object = MODULE, .name = "absent", .where = "", .address = 77,
	      .size = 4);
	FAILS(a, "(counter) of 8 bytes isn't there", gleamMoveVariable, CTX, .object = MODULE, .name = "counter", .where = "", .address = 77,
	      .size = 8);
	FAILS(a, "gleamMoveTouch gives 400 there", gleamMoveTouch, CTX, .object = handle_make(OBJECT_MODULE, 9, 9), .what = 1, .name = "");
	/* Its answer is nobody's; its failure is the move's. */
	FAILS(a, "has too little free memory (gleamVmmCreate)", gleamVmmCreate, CTX_NONE, .handle = VMM(2), .device = 0, .size = 1ull << 39);
	FAILS(a, "gleamMoveLatch gives 201 there", gleamMoveLatch, CTX_NONE, .index = 5, .code = 1);
	CHECK_EQUAL(CALL(a, gleamLinkCreate, NULL, .link = handle_make(OBJECT_LINK, 1, 1)), 0);
	FAILS(a, "comes out otherwise there", gleamMoveLink, CTX, .link = handle_make(OBJECT_LINK, 1, 1), .codes = 1);
	FAILS(a, "gleamMoveLink gives 400 there", gleamMoveLink, CTX, .link = handle_make(OBJECT_LINK, 1, 2));
	FAILS(a, "gives 400 there", gleamGraphLaunch, CTX, .stream = handle_make(OBJECT_STREAM, 9, 9), .graph = GRAPH(1));
}

/* What has been said of variables that lie elsewhere here, one after the other; then the end of it. */
struct variable_said {
	uint64_t address;
	uint32_t flags;
	const char *where;
};

/* A worker that is told of "counter" as @told tells, with @value in it if @from isn't 0; why it can't be: "" if it can. */
static const char *with_variables(struct client *a, const struct variable_said *told, unsigned count, uint64_t from, uint32_t value)
{
	struct client b;
	pid_t worker = worker_begin(&b);
	const char *why;

	CHECK_EQUAL(ask(a, MOVE_FORGET, 0).code, 0);
	begin(a, &b);
	play(a, &b);
	for (unsigned i = 0; i < count; i++)
		BROKER(&b, gleamMoveVariable, CTX, 0, .object = MODULE, .name = "counter", .where = told[i].where,
		       .address = told[i].address, .size = 4, .flags = told[i].flags);
	BROKER(&b, gleamMoveVariable, CTX_NONE, 0, .name = "", .where = "");
	if (from)
		BROKER(&b, gleamMoveGlobal, CTX, 0, .address = from, .data = &value, .data_size = 4);
	why = move_end(a, &b);
	if (!*why && from) {
		uint32_t got;

		ask_well(&b, MOVE_COPY);
		ask_well(&b, MOVE_LAST);
		CHECK_EQUAL(said(&b, OP_gleamMoveGlobal), 3);
		memcpy(&got, global_data(&b, 0), sizeof(got));
		CHECK_EQUAL(got, value);
	}
	session_end(&b);
	CHECK_EQUAL(process_end(&b, worker), EXIT_DONE);
	return why;
}

static void variables(struct client *a)
{
	const struct variable_said known[] = { { 0x7000, VARIABLE_KNOWN, "" } }, held[] = { { 0x7000, VARIABLE_HELD, "GPU memory at 0x5" } };
	const struct variable_said many[] = { { 0x7000, VARIABLE_HELD, "GPU memory at 0x5" }, { 0x8000, VARIABLE_KNOWN, "" } };
	const struct variable_said nobodys[] = { { 0x7000, 0, "" } };

	load(a, MODULE, function(1));
	CHECK(strstr(with_variables(a, known, 1, 0, 0), "instead of 0x7000, which the program knows"));
	CHECK(strstr(with_variables(a, held, 1, 0, 0), "instead of 0x7000, where GPU memory at 0x5 points to"));
	CHECK(strstr(with_variables(a, many, 2, 0, 0), "and 1 more like that, see its log"));
	CHECK(strstr(with_variables(a, nobodys, 1, 0x7004, 5), "gleamMoveGlobal gives 1 there"));
	CHECK_EQUAL(strlen(with_variables(a, nobodys, 1, 0x7000, 55)), 0);
}

/* What the program knows is found before contents come, all of it; and no contents are awaited for it. */
static void known_early(struct client *a)
{
	struct client b;
	pid_t worker = worker_begin(&b);
	const char *why;

	load(a, MODULE, function(1));
	CHECK_EQUAL(ask(a, MOVE_FORGET, 0).code, 0);
	begin(a, &b);
	play(a, &b);
	BROKER(&b, gleamMoveTouch, CTX, 0, .object = MODULE, .what = TOUCH_VARIABLE, .name = "counter", .address = 0x7000);
	BROKER(&b, gleamMoveTouch, CTX, 0, .object = MODULE, .what = TOUCH_VARIABLE, .name = "spare", .address = 0x7008);
	BROKER(&b, gleamMoveTouch, CTX, 0, .object = MODULE, .what = TOUCH_VARIABLE, .name = "absent", .address = 0x7018);
	CHECK(!have_notice(&b, NOTICE_MOVE));
	BROKER(&b, gleamMoveBytes, CTX_NONE, 0, .address = DEVICE_AT(a), .zeros = 64);
	wait_notice(&b, NOTICE_MOVE);
	why = move_end(NULL, &b);
	CHECK(strstr(why, "(counter) would lie at 0x"));
	CHECK(strstr(why, "instead of 0x7000, which the program knows, and 1 more like that"));
	session_end(&b);
	CHECK_EQUAL(process_end(&b, worker), EXIT_DONE);
}

/*
 * A worker that is told of "counter" at 0x7000 and of "pointer" at 0x7010 with @word in it, of which @flags are known. What comes of it is why not, or
 * what is in "pointer" then: @word, or (@filled_in) where "counter" lies.
 */
static const char *with_word(struct client *a, uint64_t word, uint8_t flags, uint32_t variable_flags, bool filled_in)
{
	struct client b;
	pid_t worker = worker_begin(&b);
	const char *why;

	CHECK_EQUAL(ask(a, MOVE_FORGET, 0).code, 0);
	begin(a, &b);
	play(a, &b);
	BROKER(&b, gleamMoveVariable, CTX, 0, .object = MODULE, .name = "counter", .where = "", .address = 0x7000, .size = 4);
	BROKER(&b, gleamMoveVariable, CTX, 0, .object = MODULE, .name = "pointer", .where = "", .address = 0x7010, .size = 8,
	       .flags = variable_flags);
	BROKER(&b, gleamMoveVariable, CTX_NONE, 0, .name = "", .where = "");
	BROKER(&b, gleamMoveGlobal, CTX, 0, .address = 0x7010, .words = &flags, .words_size = 1, .data = &word, .data_size = 8);
	why = move_end(a, &b);
	if (!*why) {
		uint64_t got;

		ask_well(&b, MOVE_COPY);
		ask_well(&b, MOVE_LAST);
		memcpy(&got, global_data(&b, 1), sizeof(got));
		CHECK_EQUAL(got, filled_in ? word_of(message(&b, OP_gleamMoveVariable, 0), 8) : word);
	}
	session_end(&b);
	CHECK_EQUAL(process_end(&b, worker), EXIT_DONE);
	return why;
}

static void words(struct client *a)
{
	load(a, MODULE, function(1));
	/* The driver has filled in the same pointer. */
	CHECK_EQUAL(strlen(with_word(a, 0x7000, WORD_FILLED, 0, true)), 0);
	/* A kernel has put another one there, into the variable or behind it. */
	CHECK(strstr(with_word(a, 0x7002, WORD_FILLED, 0, false), "(counter) would lie at"));
	CHECK(strstr(with_word(a, 0x7004, 0, 0, false), "where another one (pointer) points to"));
	/* A number. */
	CHECK_EQUAL(strlen(with_word(a, 0x7005, 0, 0, false)), 0);
	CHECK_EQUAL(strlen(with_word(a, 0x123456789, 0, 0, false)), 0);
	/* A function's address, which lies elsewhere here: of a constant it is known to be the same function's. */
	CHECK(strstr(with_word(a, 0x123456789, WORD_FILLED, 0, false), "(pointer) has a function's address at byte 0, 0x123456789, which would be"));
	CHECK_EQUAL(strlen(with_word(a, 0x123456789, WORD_FILLED, VARIABLE_CONSTANT, true)), 0);
	CHECK(strstr(with_word(a, 0x123456789, WORD_FILLED | WORD_HELD, VARIABLE_CONSTANT, false), "which memory holds"));
}

/* Not like the one that the program has begun with. */
static void other_gpu(struct client *a)
{
	struct client b;
	pid_t worker = worker_begin(&b);
	struct seen *s;

	ask_well(a, MOVE_COPY);
	for (s = a->seen; s; s = s->next)
		if (is_said(s) && inner(s)->op == OP_gleamMoveBegin)
			break;
	CHECK(s);
	/* A byte of a name. */
	s->payload[s->size - 60] ^= 1;
	frame_put(&b, inner(s), s->payload + sizeof(struct frame_hdr));
	answer_of(&b, OP_gleamMoveBegin);
	CHECK(strstr(move_end(NULL, &b), "isn't like the one that the program has begun with"));
	session_end(&b);
	CHECK_EQUAL(process_end(&b, worker), EXIT_DONE);
}

/* Every command of a move, cut off at any place, ends the session and nothing else. */
static void cut_off(struct client *a)
{
	static const uint16_t ops[] = {
		OP_gleamMoveBegin, OP_gleamMovePieces, OP_gleamMoveMap, OP_gleamMoveBytes, OP_gleamMoveImage, OP_gleamMoveGlobal,
		OP_gleamMoveArray, OP_gleamMoveVmm, OP_gleamMoveNumber, OP_gleamMoveTouch, OP_gleamMoveVariable,
	};
	struct seen *s;

	load(a, MODULE, function(1));
	array_make(a, ARRAY(1), 4, 4, 0);
	texture_make(a, TEX(1), CU_RESOURCE_TYPE_ARRAY, ARRAY(1), 0);
	map_memory(a, 4096);
	CHECK_EQUAL(CALL(a, gleamVmmCreate, NULL, .handle = VMM(1), .device = 0, .size = 2 * MIB), 0);
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		struct client b;
		pid_t worker = worker_begin(&b);
		struct frame_hdr hdr;
		uint32_t size;

		CHECK_EQUAL(ask(a, MOVE_FORGET, 0).code, 0);
		drop(a);
		ask_well(a, MOVE_COPY);
		ask_well(a, MOVE_LAST);
		for (s = a->seen; s; s = s->next) {
			if (!is_said(s))
				continue;
			if (inner(s)->op == ops[i])
				break;
			frame_put(&b, inner(s), s->payload + sizeof(struct frame_hdr));
		}
		CHECK(s);
		hdr = *inner(s);
		size = hdr.size - (uint32_t)sizeof(hdr);
		hdr.size = (uint32_t)sizeof(hdr) + (size < 24 ? size - 1 : size / 2 | 1);
		frame_put(&b, &hdr, s->payload + sizeof(hdr));
		CHECK_EQUAL(process_end(&b, worker), EXIT_PROTOCOL);
	}
}

static void test_another_becomes_it(void **state)
{
	(void)state;
	assert_true(session_run(moves_whole, 0));
}

static void test_lies_end_the_session(void **state)
{
	(void)state;
	assert_true(session_run(breaks, 0));
	assert_true(session_run(cut_off, 0));
}

static void test_failures_are_the_moves(void **state)
{
	(void)state;
	assert_true(session_run(fails, 0));
	assert_true(session_run(other_gpu, 0));
}

static void test_variables_may_lie_elsewhere(void **state)
{
	(void)state;
	assert_true(session_run(variables, 0));
	assert_true(session_run(words, 0));
	assert_true(session_run(known_early, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_beside_gpus_of_other_servers),
		cmocka_unit_test(test_another_becomes_it),
		cmocka_unit_test(test_lies_end_the_session),
		cmocka_unit_test(test_failures_are_the_moves),
		cmocka_unit_test(test_variables_may_lie_elsewhere),
	};

	setenv("GLEAM_SOFTGPU_MEMORY", "256M", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
