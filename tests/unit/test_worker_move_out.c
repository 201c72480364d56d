// SPDX-License-Identifier: Apache-2.0
/*
 * gleam-worker: a session leaves. What is kept, forgotten, said again and counted; what is said of contents; and what stays.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "broker/proto/share.h"
#include "broker/worker/touch.h"
#include "broker/worker/variable.h"
#include "tests/unit/worker_broker.h"

/* ---- what is kept ---- */

static void births_and_deaths(struct client *c)
{
	uint64_t kept = stream(c, 1, 1), gone = stream(c, 2, 1);

	/* What has died is not said. */
	SEND(c, cuStreamDestroy_v2, .hStream = gone);
	SEND(c, cuEventCreate, .phEvent = EVENT(1), .Flags = 0);
	SEND(c, cuEventCreate, .phEvent = EVENT(2), .Flags = 0);
	SEND(c, cuEventDestroy_v2, .hEvent = EVENT(2));
	CHECK_EQUAL(ask(c, MOVE_CHECK, 0).code, 0);
	CHECK_EQUAL(said(c, OP_gleamMoveBegin), 0);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamMoveBegin), 1);
	CHECK_EQUAL(said(c, OP_gleamContextOpen), 1);
	CHECK_EQUAL(said(c, OP_cuStreamCreateWithPriority), 1);
	CHECK_EQUAL(word_of(message(c, OP_cuStreamCreateWithPriority, 0), 0), kept);
	CHECK_EQUAL(said(c, OP_cuEventCreate), 1);
	CHECK_EQUAL(said(c, OP_cuStreamDestroy_v2) + said(c, OP_cuEventDestroy_v2), 0);
	drop(c);

	/* Once; then what is new, and deaths of what was said. */
	stream(c, 3, 1);
	SEND(c, cuEventDestroy_v2, .hEvent = EVENT(1));
	SEND(c, cuStreamDestroy_v2, .hStream = kept);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamMoveBegin) + said(c, OP_gleamContextOpen), 0);
	CHECK_EQUAL(said(c, OP_cuStreamCreateWithPriority), 1);
	CHECK_EQUAL(word_of(message(c, OP_cuStreamDestroy_v2, 0), 0), kept);
	CHECK_EQUAL(word_of(message(c, OP_cuEventDestroy_v2, 0), 0), EVENT(1));
	drop(c);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_cuStreamDestroy_v2) + said(c, OP_cuEventDestroy_v2) + said(c, OP_cuStreamCreateWithPriority), 0);

	/* A move that has failed: from the beginning, without the dead. */
	CHECK_EQUAL(ask(c, MOVE_FORGET, 0).code, 0);
	drop(c);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamMoveBegin), 1);
	CHECK_EQUAL(said(c, OP_gleamContextOpen), 1);
	CHECK_EQUAL(said(c, OP_cuStreamCreateWithPriority), 1);
	CHECK_EQUAL(said(c, OP_cuStreamDestroy_v2) + said(c, OP_cuEventDestroy_v2) + said(c, OP_cuEventCreate), 0);
}

static void settings(struct client *c)
{
	CHECK_EQUAL(CALL(c, cuCtxSetLimit, NULL, .limit = CU_LIMIT_PRINTF_FIFO_SIZE, .value = 2 * MIB), 0);
	/* That one is waited for (limit.c), and remembered behind that. */
	CHECK_EQUAL(CALL(c, cuCtxSetLimit, NULL, .limit = CU_LIMIT_STACK_SIZE, .value = 8192), 0);
	/* The same again and again is one. */
	for (int i = 0; i < 100; i++)
		SEND(c, cuCtxSetCacheConfig, .config = 1 + (uint32_t)i % 2);
	/* What was refused isn't kept. */
	CHECK(CALL(c, cuCtxSetLimit, NULL, .limit = 999, .value = 1) != 0);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_cuCtxSetLimit), 2);
	CHECK_EQUAL(said(c, OP_cuCtxSetCacheConfig), 2);
	CHECK_EQUAL(*(const uint32_t *)(const void *)message(c, OP_cuCtxSetCacheConfig, 1), 2);
	drop(c);

	/* Its context is closed: its settings and objects go without a word of their own. */
	stream(c, 1, 1);
	ask_well(c, MOVE_COPY);
	drop(c);
	SEND(c, gleamContextClose, .index = CTX);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamContextClose), 1);
	CHECK_EQUAL(said(c, OP_cuStreamDestroy_v2), 0);
	CHECK_EQUAL(ask(c, MOVE_FORGET, 0).code, 0);
	drop(c);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamContextOpen) + said(c, OP_cuCtxSetLimit) + said(c, OP_cuStreamCreateWithPriority), 0);
}

static void graph_fill(struct client *c, uint64_t graph, uint64_t at, uint32_t value)
{
	SEND(c, gleamGraphBegin, .graph = graph);
	SEND(c, gleamGraphFill, .graph = graph, .index = CTX, .dst = at, .pitch = 16, .value = value, .element = 4, .width = 4, .rows = 1);
}

static void graphs(struct client *c)
{
	uint64_t p = map_memory(c, 4096);

	graph_fill(c, GRAPH(1), p, 7);
	CHECK_EQUAL(CALL(c, gleamGraphMake, NULL, .graph = GRAPH(1)), 0);
	/* The same node again and again: the last counts, with what it was described by. */
	for (uint32_t i = 0; i < 20; i++) {
		graph_fill(c, GRAPH(2 + i), p, 100 + i);
		SEND(c, gleamGraphSet, .stream = LEGACY, .graph = GRAPH(1), .place = 0, .from = GRAPH(2 + i));
	}
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamGraphMake), 1);
	CHECK_EQUAL(said(c, OP_gleamGraphSet), 1);
	CHECK_EQUAL(said(c, OP_gleamGraphFill), 2);
	CHECK_EQUAL(word_of(message(c, OP_gleamGraphSet, 0), 24), GRAPH(21));
	drop(c);
	SEND(c, gleamGraphEnd, .graph = GRAPH(1));
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamGraphEnd), 1);
	CHECK_EQUAL(word_of(message(c, OP_gleamGraphEnd, 0), 0), GRAPH(1));
	drop(c);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamGraphEnd), 0);
}

static void modules(struct client *c)
{
	struct msg_gleamMoveImage part;
	struct msg_gleamMoveGlobal g;
	struct reader r;

	load(c, MODULE, function(1));
	load(c, handle_make(OBJECT_MODULE, 1, 2), function(2));
	SEND(c, cuModuleUnload, .hmod = handle_make(OBJECT_MODULE, 1, 2));
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0); /* the driver is asked when nothing uses it any more */
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamLoadBegin), 1);
	CHECK_EQUAL(said(c, OP_gleamMoveImage), 1);
	CHECK_EQUAL(said(c, OP_gleamLoadAgain), 1);
	CHECK_EQUAL(said(c, OP_cuModuleGetFunction), 1);
	r = reader_on(message(c, OP_gleamMoveImage, 0), 4096);
	part.object = get_u64(&r);
	part.offset = get_u64(&r);
	part.data = get_bytes(&r, 57344, &part.data_size);
	CHECK_EQUAL(part.object, MODULE);
	CHECK_EQUAL(part.data_size, image_size);
	CHECK(memcmp(part.data, image, image_size) == 0);
	/* Variables only when nothing runs, all that the text names, and then what has changed. */
	CHECK_EQUAL(said(c, OP_gleamMoveGlobal), 0);
	ask_well(c, MOVE_LAST);
	/* What is constant and as it was loaded goes by its name alone. */
	CHECK_EQUAL(said(c, OP_gleamMoveGlobal), 3);
	CHECK_EQUAL(said(c, OP_gleamMoveVariable), 5);
	drop(c);
	grow(c, function(1), 3);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
	ask_well(c, MOVE_LAST);
	/* And what its driver has filled in. */
	CHECK_EQUAL(said(c, OP_gleamMoveGlobal), 2);
	r = reader_on(message(c, OP_gleamMoveGlobal, 0), 4096);
	g.address = get_u64(&r);
	g.offset = get_u64(&r);
	g.words = get_bytes(&r, 6144, &g.words_size);
	g.data = get_bytes(&r, 49152, &g.data_size);
	CHECK(!r.fault && g.address && !g.offset);
	CHECK_EQUAL(g.words_size, 0);
	CHECK_EQUAL(g.data_size, 4);
	CHECK_EQUAL(*(const uint32_t *)g.data, 23);
	drop(c);
	SEND(c, cuModuleUnload, .hmod = MODULE);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_cuModuleUnload), 1);
}

/* What has been said of a variable; its name, 0: nothing. */
struct variable_said {
	uint64_t address;
	uint32_t flags;
	char where[256];
};

static struct variable_said variable_said(struct client *c, const char *wanted)
{
	struct variable_said v = { 0 };

	for (unsigned i = 0; i < said(c, OP_gleamMoveVariable); i++) {
		struct reader r = reader_on(message(c, OP_gleamMoveVariable, i), 8192);
		uint64_t address;
		uint32_t flags;

		get_u64(&r);
		address = get_u64(&r);
		get_u64(&r);
		flags = get_u32(&r);
		if (strcmp(get_str(&r, 4096), wanted) != 0)
			continue;
		v.address = address;
		v.flags = flags;
		snprintf(v.where, sizeof(v.where), "%s", get_str(&r, 256));
		CHECK(!r.fault);
	}
	return v;
}

/* First uses in their order, each once; and who knows where a variable lies. */
static void uses(struct client *c)
{
	uint64_t p = map_memory(c, 4096), lies;
	struct ans_cuModuleGetGlobal_v2 a;
	struct variable_said v;
	char where[64];
	struct seen *s;
	struct reader r;

	load(c, MODULE, function(1));
	ask_well(c, MOVE_COPY);
	/* With its verdict all of its few functions were asked about. */
	CHECK_EQUAL(said(c, OP_gleamMoveTouch), 1);
	CHECK_EQUAL(word_of(message(c, OP_gleamMoveTouch, 0), 0), MODULE);
	CHECK_EQUAL((uint32_t)word_of(message(c, OP_gleamMoveTouch, 0), 8), TOUCH_ALL);
	drop(c);
	for (int i = 0; i < 3; i++) {
		grow(c, function(1), 1);
		CHECK_EQUAL(CALL(c, cuModuleGetGlobal_v2, &s, .hmod = MODULE, .name = "counter"), 0);
	}
	r = reader_on(s->payload, s->size);
	get_u32(&r);
	CHECK(ans_cuModuleGetGlobal_v2_get(&r, &a));
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamMoveTouch), 2);
	CHECK_EQUAL(word_of(message(c, OP_gleamMoveTouch, 0), 0), function(1));
	CHECK_EQUAL((uint32_t)word_of(message(c, OP_gleamMoveTouch, 1), 8), TOUCH_VARIABLE);
	drop(c);

	ask_well(c, MOVE_LAST);
	v = variable_said(c, "counter");
	CHECK_EQUAL(v.address, a.dptr);
	CHECK_EQUAL(v.flags, VARIABLE_KNOWN);
	CHECK_EQUAL(variable_said(c, "table").flags, VARIABLE_CONSTANT);
	v = variable_said(c, "spare");
	CHECK(v.address && !v.flags);
	CHECK_EQUAL(variable_said(c, "pointer").flags, 0);
	drop(c);

	/* Its address comes to lie in memory, and goes again. */
	SEND(c, cuMemsetD32Async, .hStream = LEGACY, .dstDevice = p + 64, .ui = (uint32_t)v.address, .N = 1);
	SEND(c, cuMemsetD32Async, .hStream = LEGACY, .dstDevice = p + 68, .ui = (uint32_t)(v.address >> 32), .N = 1);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
	ask_well(c, MOVE_LAST);
	lies = v.address;
	v = variable_said(c, "spare");
	CHECK_EQUAL(v.address, lies);
	CHECK_EQUAL(v.flags, VARIABLE_HELD);
	snprintf(where, sizeof(where), "GPU memory at 0x%llx", (unsigned long long)p + 64);
	CHECK(strcmp(v.where, where) == 0);
	drop(c);
	SEND(c, cuMemsetD32Async, .hStream = LEGACY, .dstDevice = p + 64, .ui = (uint32_t)v.address + 9, .N = 1);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
	ask_well(c, MOVE_LAST);
	CHECK_EQUAL(variable_said(c, "spare").flags, 0);
}

static void reasons(struct client *c)
{
	uint64_t p = map_memory(c, 4096);
	struct out out;

	(void)p;
	/* What is in other programs' hands stays, as long as it is. */
	CHECK_EQUAL(CALL(c, gleamShare, NULL, .kind = SHARE_MEMORY, .object = p, .size = 2 * MIB, .device = 0), 0);
	out = ask(c, MOVE_CHECK, 0);
	CHECK_EQUAL(out.code, CUDA_ERROR_NOT_SUPPORTED);
	CHECK(strstr(out.reason, "it has shared memory"));
	CHECK(strstr(out.reason, "nobody has opened"));
	CHECK_EQUAL(ask(c, MOVE_COPY, MIB).code, CUDA_ERROR_NOT_SUPPORTED);
	CHECK_EQUAL(said(c, OP_gleamMoveBegin), 0);
	/* To forget is possible whatever there is. */
	CHECK_EQUAL(ask(c, MOVE_FORGET, 0).code, 0);
	SEND(c, gleamFree, .address = p, .bytes = 2 * MIB);
	CHECK_EQUAL(ask(c, MOVE_CHECK, 0).code, 0);
}

/* Links with what they have had, once; gone ones are forgotten, and one with too much stays as long as it is there. */
static void links(struct client *c)
{
	static uint8_t bytes[32768];
	const uint64_t one = handle_make(OBJECT_LINK, 1, 1), two = handle_make(OBJECT_LINK, 1, 2);
	struct bulk_ref cells = { .offset = 0, .size = SESSION_CELL_SIZE, .cookie = 77 };

	CHECK_EQUAL(CALL(c, gleamLinkCreate, NULL, .link = one), 0);
	SEND(c, gleamLinkPart, .link = one, .data = (const uint8_t *)"nonsense", .data_size = 8);
	/* It fails, which is a step as well: another worker has to fail, too. */
	wait_reply(c, SEND_FLAGS(c, gleamLinkAdd, FRAME_WANTS_REPLY | FRAME_BULK_DOWN, &cells, .link = one, .type = CU_JIT_INPUT_PTX,
				 .total_size = 8, .name = "it", .answer = cells), NULL);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamLinkCreate), 1);
	CHECK_EQUAL(said(c, OP_gleamLinkPart), 1);
	CHECK_EQUAL(said(c, OP_gleamLinkAgain), 1);
	drop(c);
	CHECK_EQUAL(CALL(c, gleamLinkCreate, NULL, .link = two), 0);
	SEND(c, gleamLinkEnd, .link = one);
	ask_well(c, MOVE_LAST);
	CHECK_EQUAL(said(c, OP_gleamLinkCreate), 1);
	CHECK_EQUAL(said(c, OP_gleamLinkPart) + said(c, OP_gleamLinkAgain), 0);
	CHECK_EQUAL(word_of(message(c, OP_gleamLinkEnd, 0), 0), one);
	CHECK_EQUAL(said(c, OP_gleamMoveLink), 1);
	CHECK_EQUAL(word_of(message(c, OP_gleamMoveLink, 0), 0), two);
	CHECK_EQUAL(ask(c, MOVE_FORGET, 0).code, 0);
	drop(c);
	/* Many, each with a bit: an input that grows by parts is copied again and again where memory is watched. */
	for (uint32_t i = 0; i < 60; i++)
		CHECK_EQUAL(CALL(c, gleamLinkCreate, NULL, .link = handle_make(OBJECT_LINK, 1, 3 + i)), 0);
	for (uint32_t i = 0; i < 4200; i++) {
		SEND(c, gleamLinkPart, .link = handle_make(OBJECT_LINK, 1, 3 + i % 60), .data = bytes, .data_size = sizeof(bytes));
		settle(c);
	}
	CHECK(strstr(ask(c, MOVE_CHECK, 0).reason, "linking more than can be remembered"));
	for (uint32_t i = 0; i < 60; i++)
		SEND(c, gleamLinkEnd, .link = handle_make(OBJECT_LINK, 1, 3 + i));
	CHECK_EQUAL(ask(c, MOVE_CHECK, 0).code, 0);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamLinkCreate), 1);
	CHECK_EQUAL(said(c, OP_gleamLinkPart), 0);
}

static void test_links(void **state)
{
	(void)state;
	assert_true(session_run(links, 0));
}

/* More than is remembered: the session goes on, and doesn't move. */
static void too_much(struct client *c)
{
	static uint8_t params[32764];
	struct out out;

	load(c, MODULE, function(1));
	for (uint32_t i = 0; i < 8400; i++) {
		if (i % 100 == 0)
			SEND(c, gleamGraphBegin, .graph = GRAPH(1 + i / 100));
		SEND(c, gleamGraphKernel, .graph = GRAPH(1 + i / 100), .index = CTX, .function = function(1), .grid_x = 1, .grid_y = 1,
		     .grid_z = 1, .block_x = 1, .block_y = 1, .block_z = 1, .params = params, .params_size = sizeof(params));
		settle(c);
	}
	out = ask(c, MOVE_CHECK, 0);
	CHECK_EQUAL(out.code, CUDA_ERROR_NOT_SUPPORTED);
	CHECK(strstr(out.reason, "more objects than can be remembered"));
	CHECK_EQUAL(read_u32(c, LEGACY, map_memory(c, 4096)), 0);
}

/* ---- contents ---- */

static void contents(struct client *c)
{
	uint64_t p = map_memory(c, 2 * MIB), s = stream(c, 1, 1);
	struct out out;

	/* Zeros are a number, a chunk each. */
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamMovePieces), 1);
	CHECK_EQUAL(said(c, OP_gleamMoveMap), 1);
	CHECK_EQUAL(said(c, OP_gleamMoveBytes), 8);
	CHECK_EQUAL(word_of(message(c, OP_gleamMoveBytes, 0), 0), p);
	CHECK_EQUAL(word_of(message(c, OP_gleamMoveBytes, 0), 8), 256 << 10);
	drop(c);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamMoveBytes), 0);
	/* One byte: its chunk. */
	SEND(c, cuMemsetD8Async, .hStream = s, .dstDevice = p + 3 * (256 << 10) + 77, .uc = 9, .N = 1);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), 0);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamMoveBytes), 5);
	CHECK_EQUAL(word_of(message(c, OP_gleamMoveBytes, 0), 0), p + 3 * (256 << 10));
	CHECK_EQUAL(word_of(message(c, OP_gleamMoveBytes, 1), 0), p + 3 * (256 << 10) + 57344);
	drop(c);
	/* A limit: more is left, and it goes on where it was. */
	SEND(c, cuMemsetD8Async, .hStream = s, .dstDevice = p, .uc = 5, .N = 2 * MIB);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), 0);
	out = ask(c, MOVE_COPY, 1);
	CHECK_EQUAL(out.code, 0);
	CHECK_EQUAL(out.total, 2 * MIB);
	CHECK_EQUAL(out.left, 2 * MIB - (256 << 10));
	CHECK_EQUAL(said(c, OP_gleamMoveBytes), 5);
	CHECK_EQUAL(ask(c, MOVE_COPY, 0).left, 2 * MIB - (256 << 10));
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamMoveBytes), 40);
	drop(c);
	/* Memory that goes, and comes back at the same place. */
	SEND(c, gleamFree, .address = p, .bytes = 2 * MIB);
	wait_notice(c, NOTICE_FREED);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamMoveUnmap), 1);
	CHECK_EQUAL(said(c, OP_gleamMoveBytes), 0);
	CHECK_EQUAL(ask(c, MOVE_CHECK, 0).code, 0);
}

static void last_waits(struct client *c)
{
	uint64_t s = stream(c, 1, 1);
	struct out out;

	/* A stream that waits for a host function. */
	SEND(c, gleamHostFunc, .stream = s, .id = 7);
	wait_notice(c, NOTICE_HOST_CALL);
	out = ask(c, MOVE_LAST, MIB);
	CHECK_EQUAL(out.code, MOVE_WANTS_CLIENT);
	CHECK(strstr(out.reason, "function of the host"));
	/* Copying goes on meanwhile. */
	ask_well(c, MOVE_COPY);
	SEND(c, gleamHostDone, .id = 7);
	for (int i = 0; i < 20000 && (out = ask(c, MOVE_LAST, MIB)).code; i++)
		CHECK(out.code == MOVE_NOT_READY || out.code == MOVE_WANTS_CLIENT);
	CHECK_EQUAL(out.code, 0);
}

/* ---- arrays, textures, physical memory ---- */

static void arrays(struct client *c)
{
	uint64_t p = map_memory(c, 4096), value;

	array_make(c, ARRAY(1), 64, 32, CUDA_ARRAY3D_SURFACE_LDST);
	array_make(c, ARRAY(2), 64, 32, 0);
	value = texture_make(c, TEX(1), CU_RESOURCE_TYPE_ARRAY, ARRAY(1), 0);
	texture_make(c, TEX(2), CU_RESOURCE_TYPE_ARRAY, ARRAY(2), 0);
	CHECK_EQUAL(CALL(c, gleamSurfCreate, NULL, .surf = SURF(1), .array = ARRAY(1)), 0);
	/* Over memory that goes before it does. */
	texture_make(c, TEX(3), CU_RESOURCE_TYPE_LINEAR, p, 4096);
	SEND(c, gleamArrayEnd, .array = ARRAY(2));
	SEND(c, gleamFree, .address = p, .bytes = 2 * MIB);
	wait_notice(c, NOTICE_FREED);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamArrayCreate), 1);
	CHECK_EQUAL(said(c, OP_gleamTexCreate), 1);
	CHECK_EQUAL(said(c, OP_gleamSurfCreate), 1);
	CHECK_EQUAL(said(c, OP_gleamMoveNumber), 2);
	CHECK_EQUAL(word_of(message(c, OP_gleamMoveNumber, 0), 0), TEX(1));
	CHECK_EQUAL(word_of(message(c, OP_gleamMoveNumber, 0), 8), value);
	CHECK_EQUAL(said(c, OP_gleamMoveArray), 1);
	drop(c);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamMoveArray) + said(c, OP_gleamTexCreate), 0);
	/* Deaths, and the whole again after a move that has failed. */
	SEND(c, gleamTexEnd, .tex = TEX(1));
	SEND(c, gleamSurfEnd, .surf = SURF(1));
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamTexEnd), 1);
	CHECK_EQUAL(said(c, OP_gleamSurfEnd), 1);
	CHECK_EQUAL(ask(c, MOVE_FORGET, 0).code, 0);
	drop(c);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamArrayCreate), 1);
	CHECK_EQUAL(said(c, OP_gleamMoveArray), 1);
	CHECK_EQUAL(said(c, OP_gleamMoveNumber), 0);
}

static void physical(struct client *c)
{
	uint64_t at = DEVICE_AT(c) + (64ull << 30);

	CHECK_EQUAL(CALL(c, gleamVmmCreate, NULL, .handle = VMM(1), .device = 0, .size = 2 * MIB), 0);
	SEND(c, gleamVmmMap, .address = at, .size = 2 * MIB, .handle = VMM(1));
	SEND(c, gleamVmmMap, .address = at + 2 * MIB, .size = 2 * MIB, .handle = VMM(1));
	SEND(c, gleamVmmAccess, .address = at, .size = 4 * MIB, .device = 0, .access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	SEND(c, cuMemsetD8Async, .hStream = LEGACY, .dstDevice = at, .uc = 6, .N = 2 * MIB);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamVmmCreate), 1);
	CHECK_EQUAL(said(c, OP_gleamVmmMap), 2);
	CHECK_EQUAL(said(c, OP_gleamVmmAccess), 2);
	/* Its bytes once, for both mappings. */
	CHECK_EQUAL(said(c, OP_gleamMoveVmm), 40);
	drop(c);
	/* Mapped nowhere it keeps its bytes; they haven't changed. */
	SEND(c, gleamVmmUnmap, .address = at, .size = 4 * MIB);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamVmmUnmap), 2);
	CHECK_EQUAL(said(c, OP_gleamMoveVmm), 0);
	drop(c);
	SEND(c, gleamVmmMap, .address = at + 4 * MIB, .size = 2 * MIB, .handle = VMM(1));
	SEND(c, gleamVmmAccess, .address = at + 4 * MIB, .size = 2 * MIB, .device = 0, .access = CU_MEM_ACCESS_FLAGS_PROT_READ);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamVmmMap), 1);
	CHECK_EQUAL(said(c, OP_gleamVmmAccess), 1);
	CHECK_EQUAL(said(c, OP_gleamMoveVmm), 0);
	drop(c);
	/* Who may do what is said when it changes. */
	SEND(c, gleamVmmAccess, .address = at + 4 * MIB, .size = 2 * MIB, .device = 0, .access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamVmmMap), 0);
	CHECK_EQUAL(said(c, OP_gleamVmmAccess), 1);
	drop(c);
	SEND(c, gleamVmmUnmap, .address = at + 4 * MIB, .size = 2 * MIB);
	SEND(c, gleamVmmRelease, .handle = VMM(1));
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamVmmUnmap), 1);
	CHECK_EQUAL(said(c, OP_gleamVmmRelease), 1);
	drop(c);
	/* A client that lets go of what it has mapped doesn't move. */
	CHECK_EQUAL(CALL(c, gleamVmmCreate, NULL, .handle = VMM(2), .device = 0, .size = 2 * MIB), 0);
	SEND(c, gleamVmmMap, .address = at, .size = 2 * MIB, .handle = VMM(2));
	SEND(c, gleamVmmRelease, .handle = VMM(2));
	CHECK(strstr(ask(c, MOVE_CHECK, 0).reason, "let go of physical memory"));
	SEND(c, gleamVmmUnmap, .address = at, .size = 2 * MIB);
	CHECK_EQUAL(ask(c, MOVE_CHECK, 0).code, 0);
}

/* ---- a driver that fails ---- */

static void unreadable(struct client *c)
{
	struct out out;

	open_context(c);
	map_memory(c, 2 * MIB);
	c->fake.plan("cuMemcpyDtoHAsync_v2", CUDA_ERROR_UNKNOWN, 0);
	out = ask(c, MOVE_COPY, MIB);
	CHECK_EQUAL(out.code, CUDA_ERROR_UNKNOWN);
	CHECK(strstr(out.reason, "memory can't be read") == out.reason);
	CHECK_EQUAL(ask(c, MOVE_FORGET, 0).code, 0);
	drop(c);
	ask_well(c, MOVE_COPY);
	CHECK_EQUAL(said(c, OP_gleamMoveMap), 1);
}

static void test_births_and_deaths(void **state)
{
	(void)state;
	assert_true(session_run(births_and_deaths, 0));
}

static void test_settings_count_once(void **state)
{
	(void)state;
	assert_true(session_run(settings, 0));
}

static void test_graphs_with_their_changes(void **state)
{
	(void)state;
	assert_true(session_run(graphs, 0));
}

static void test_modules_with_their_variables(void **state)
{
	(void)state;
	assert_true(session_run(modules, 0));
}

static void test_first_uses_and_who_knows(void **state)
{
	(void)state;
	assert_true(session_run(uses, 0));
}

static void test_reasons_not_to(void **state)
{
	(void)state;
	assert_true(session_run(reasons, 0));
	assert_true(session_run(too_much, 0));
}

static void test_contents_that_have_changed(void **state)
{
	(void)state;
	assert_true(session_run(contents, 0));
}

static void test_work_is_waited_for(void **state)
{
	(void)state;
	assert_true(session_run(last_waits, 0));
}

static void test_arrays_and_textures(void **state)
{
	(void)state;
	assert_true(session_run(arrays, 0));
}

static void test_physical_memory(void **state)
{
	(void)state;
	assert_true(session_run(physical, 0));
}

static void test_a_driver_that_fails(void **state)
{
	(void)state;
	assert_true(child_run(unreadable, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_births_and_deaths),
		cmocka_unit_test(test_settings_count_once),
		cmocka_unit_test(test_graphs_with_their_changes),
		cmocka_unit_test(test_modules_with_their_variables),
		cmocka_unit_test(test_first_uses_and_who_knows),
		cmocka_unit_test(test_links),
		cmocka_unit_test(test_reasons_not_to),
		cmocka_unit_test(test_contents_that_have_changed),
		cmocka_unit_test(test_work_is_waited_for),
		cmocka_unit_test(test_arrays_and_textures),
		cmocka_unit_test(test_physical_memory),
		cmocka_unit_test(test_a_driver_that_fails),
	};

	setenv("GLEAM_SOFTGPU_MEMORY", "256M", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
