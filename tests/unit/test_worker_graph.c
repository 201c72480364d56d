// SPDX-License-Identifier: Apache-2.0
/*
 * gleam-worker: graphs. Described, made, launched and changed on the software GPU; what breaks the protocol ends the session,
 * and what a program may do wrong is its program's error.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "tests/unit/worker_session.h"

#define GRAPH(index) handle_make(OBJECT_GRAPHEXEC, 1, index)

static void fill(struct client *c, uint64_t graph, uint64_t at, uint32_t value, const uint32_t *needs, uint32_t count)
{
	SEND(c, gleamGraphFill, .graph = graph, .index = CTX, .needs = needs, .needs_count = count, .dst = at, .pitch = 16,
	     .value = value, .element = 4, .width = 4, .rows = 1);
}

static void copy(struct client *c, uint64_t graph, uint64_t to, uint64_t from, uint32_t after)
{
	SEND(c, gleamGraphCopy, .graph = graph, .index = CTX, .needs = &after, .needs_count = 1, .dst = to, .dst_pitch = 16,
	     .dst_height = 1, .src = from, .src_pitch = 16, .src_height = 1, .width = 16, .rows = 1, .depth = 1);
}

static void described_made_launched(struct client *c)
{
	uint64_t p = map_memory(c, 4096), s = stream(c, 1, 1);

	SEND(c, gleamGraphBegin, .graph = GRAPH(1));
	fill(c, GRAPH(1), p, 7, NULL, 0);
	copy(c, GRAPH(1), p + 64, p, 0);
	SEND(c, gleamGraphEmpty, .graph = GRAPH(1), .needs = (uint32_t[]){ 0, 1 }, .needs_count = 2);
	CHECK_EQUAL(CALL(c, gleamGraphMake, NULL, .graph = GRAPH(1)), 0);
	CHECK_EQUAL(read_u32(c, s, p + 64), 0);
	SEND(c, gleamGraphLaunch, .stream = s, .graph = GRAPH(1));
	CHECK_EQUAL(read_u32(c, s, p + 64), 7);

	/* One node of it, and all of it. */
	SEND(c, gleamGraphBegin, .graph = GRAPH(2));
	fill(c, GRAPH(2), p, 8, NULL, 0);
	SEND(c, gleamGraphSet, .stream = WIRE_STREAM_LEGACY, .graph = GRAPH(1), .place = 0, .from = GRAPH(2));
	SEND(c, gleamGraphLaunch, .stream = s, .graph = GRAPH(1));
	CHECK_EQUAL(read_u32(c, s, p + 64), 8);
	SEND(c, gleamGraphBegin, .graph = GRAPH(2));
	fill(c, GRAPH(2), p, 9, NULL, 0);
	copy(c, GRAPH(2), p + 128, p, 0);
	SEND(c, gleamGraphEmpty, .graph = GRAPH(2), .needs = (uint32_t[]){ 0, 1 }, .needs_count = 2);
	SEND(c, gleamGraphUpdate, .stream = WIRE_STREAM_LEGACY, .graph = GRAPH(1), .from = GRAPH(2));
	SEND(c, gleamGraphLaunch, .stream = s, .graph = GRAPH(1));
	CHECK_EQUAL(read_u32(c, s, p + 128), 9);
	CHECK_EQUAL(read_u32(c, s, p + 64), 8);
	SEND(c, gleamGraphSwitch, .stream = WIRE_STREAM_LEGACY, .graph = GRAPH(1), .place = 0, .on = 0);
	SEND(c, cuMemsetD32Async, .hStream = s, .dstDevice = p, .ui = 5, .N = 4);
	SEND(c, gleamGraphLaunch, .stream = s, .graph = GRAPH(1));
	CHECK_EQUAL(read_u32(c, s, p + 128), 5);
	SEND(c, gleamGraphEnd, .graph = GRAPH(1));
	/* The handle may be used again. */
	SEND(c, gleamGraphBegin, .graph = GRAPH(1));
	fill(c, GRAPH(1), p, 1, NULL, 0);
	CHECK_EQUAL(CALL(c, gleamGraphMake, NULL, .graph = GRAPH(1)), 0);
	SEND(c, gleamGraphLaunch, .stream = s, .graph = GRAPH(1));
	CHECK_EQUAL(read_u32(c, s, p), 1);
}

#define CONDITION(index) handle_make(OBJECT_CONDITION, 1, index)

/* A fill of a body, by values that are there from the start; and the same graph once more under the same handles. */
static void bodies_run_by_their_condition(struct client *c)
{
	uint64_t p = map_memory(c, 4096), s = stream(c, 1, 1), bodies[] = { GRAPH(2), GRAPH(3), GRAPH(4) };

	for (uint32_t value = 0; value < 4; value++) {
		SEND(c, gleamGraphBegin, .graph = GRAPH(1));
		fill(c, GRAPH(1), p, 1, NULL, 0);
		SEND(c, gleamGraphCondition, .graph = GRAPH(1), .index = CTX, .handle = CONDITION(1), .value = value,
		     .flags = CU_GRAPH_COND_ASSIGN_DEFAULT);
		SEND(c, gleamGraphBranch, .graph = GRAPH(1), .index = CTX, .needs = (uint32_t[]){ 0 }, .needs_count = 1,
		     .handle = CONDITION(1), .kind = CU_GRAPH_COND_TYPE_SWITCH, .bodies = bodies, .bodies_count = 3);
		for (uint32_t i = 0; i < 3; i++)
			fill(c, GRAPH(2 + i), p, 100 + i, NULL, 0);
		copy(c, GRAPH(4), p + 64, p, 0);
		CHECK_EQUAL(CALL(c, gleamGraphMake, NULL, .graph = GRAPH(1)), 0);
		SEND(c, gleamGraphLaunch, .stream = s, .graph = GRAPH(1));
		CHECK_EQUAL(read_u32(c, s, p), value < 3 ? 100 + value : 1);
		/* A node of a body. */
		SEND(c, gleamGraphBegin, .graph = GRAPH(9));
		fill(c, GRAPH(9), p, 200, NULL, 0);
		SEND(c, gleamGraphSet, .stream = WIRE_STREAM_LEGACY, .graph = GRAPH(3), .place = 0, .from = GRAPH(9));
		SEND(c, gleamGraphLaunch, .stream = s, .graph = GRAPH(1));
		CHECK_EQUAL(read_u32(c, s, p), value == 1 ? 200 : value < 3 ? 100 + value : 1);
		/* Bodies end with it. */
		SEND(c, gleamGraphEnd, .graph = GRAPH(1));
	}
	CHECK_EQUAL(read_u32(c, s, p + 64), 102);
	/* What can't be made is told by the make, and what comes for its bodies is no mistake. */
	SEND(c, gleamGraphBegin, .graph = GRAPH(1));
	SEND(c, gleamGraphBranch, .graph = GRAPH(1), .index = CTX, .handle = CONDITION(7), .bodies = bodies, .bodies_count = 2);
	fill(c, GRAPH(2), p, 5, NULL, 0);
	CHECK_EQUAL(CALL(c, gleamGraphMake, NULL, .graph = GRAPH(1)), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), 0);
}

/* Rows into an array and out of it; an array that isn't there is told by the make. */
static void boxes_of_arrays(struct client *c)
{
	uint64_t p = map_memory(c, 4096), s = stream(c, 1, 1), array = handle_make(OBJECT_ARRAY, 1, 1);

	CHECK_EQUAL(CALL(c, gleamArrayCreate, NULL, .array = array, .width = 4, .height = 4, .format = CU_AD_FORMAT_UNSIGNED_INT32,
			 .channels = 1), 0);
	SEND(c, gleamGraphBegin, .graph = GRAPH(1));
	fill(c, GRAPH(1), p, 7, NULL, 0);
	SEND(c, gleamGraphBox, .graph = GRAPH(1), .index = CTX, .needs = (uint32_t[]){ 0 }, .needs_count = 1, .dst_array = array, .dst_y = 2,
	     .src = p, .src_pitch = 16, .src_height = 1, .width = 16, .rows = 1, .depth = 1);
	SEND(c, gleamGraphBox, .graph = GRAPH(1), .index = CTX, .needs = (uint32_t[]){ 1 }, .needs_count = 1, .src_array = array, .src_x = 4,
	     .src_y = 2, .dst = p + 256, .dst_pitch = 16, .dst_height = 1, .width = 8, .rows = 1, .depth = 1);
	CHECK_EQUAL(CALL(c, gleamGraphMake, NULL, .graph = GRAPH(1)), 0);
	SEND(c, gleamGraphLaunch, .stream = s, .graph = GRAPH(1));
	CHECK_EQUAL(read_u32(c, s, p + 260), 7);
	SEND(c, gleamGraphBegin, .graph = GRAPH(2));
	SEND(c, gleamGraphBox, .graph = GRAPH(2), .index = CTX, .dst_array = handle_make(OBJECT_ARRAY, 1, 9), .src = p, .src_pitch = 16,
	     .src_height = 1, .width = 16, .rows = 1, .depth = 1);
	CHECK_EQUAL(CALL(c, gleamGraphMake, NULL, .graph = GRAPH(2)), CUDA_ERROR_INVALID_HANDLE);
}

static void body_twice(struct client *c)
{
	uint64_t bodies[] = { GRAPH(2), GRAPH(2) };

	SEND(c, gleamGraphBegin, .graph = GRAPH(1));
	SEND(c, gleamGraphCondition, .graph = GRAPH(1), .index = CTX, .handle = CONDITION(1));
	SEND(c, gleamGraphBranch, .graph = GRAPH(1), .index = CTX, .handle = CONDITION(1), .bodies = bodies, .bodies_count = 2);
}

static void no_bodies(struct client *c)
{
	SEND(c, gleamGraphBegin, .graph = GRAPH(1));
	SEND(c, gleamGraphBranch, .graph = GRAPH(1), .index = CTX, .handle = CONDITION(1));
}

static void condition_of_no_kind(struct client *c)
{
	SEND(c, gleamGraphBegin, .graph = GRAPH(1));
	SEND(c, gleamGraphCondition, .graph = GRAPH(1), .index = CTX, .handle = GRAPH(1));
}

static void failures_of_nodes_come_with_the_make(struct client *c)
{
	uint64_t p = map_memory(c, 4096), s = stream(c, 1, 1);

	SEND(c, gleamGraphBegin, .graph = GRAPH(1));
	fill(c, GRAPH(1), p, 1, NULL, 0);
	SEND(c, gleamGraphFill, .graph = GRAPH(1), .index = CTX, .dst = p, .value = 1, .element = 3, .width = 4, .rows = 1);
	fill(c, GRAPH(1), p, 1, (uint32_t[]){ 1 }, 1);
	CHECK_EQUAL(CALL(c, gleamGraphMake, NULL, .graph = GRAPH(1)), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), 0);
	SEND(c, gleamGraphEnd, .graph = GRAPH(1));
	/* A function that nobody knows, and a graph that nobody knows. */
	SEND(c, gleamGraphBegin, .graph = GRAPH(1));
	SEND(c, gleamGraphKernel, .graph = GRAPH(1), .index = CTX, .function = handle_make(OBJECT_FUNCTION, 1, 77), .grid_x = 1,
	     .grid_y = 1, .grid_z = 1, .block_x = 1, .block_y = 1, .block_z = 1);
	CHECK_EQUAL(CALL(c, gleamGraphMake, NULL, .graph = GRAPH(1)), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(CALL(c, gleamGraphMake, NULL, .graph = GRAPH(5)), CUDA_ERROR_INVALID_HANDLE);
	SEND(c, gleamGraphLaunch, .stream = s, .graph = GRAPH(5));
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), CUDA_ERROR_INVALID_HANDLE);
	SEND(c, gleamGraphSet, .stream = WIRE_STREAM_LEGACY, .graph = GRAPH(5), .place = 0, .from = GRAPH(1));
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), CUDA_ERROR_INVALID_HANDLE);
}

static void needs_of_later_nodes(struct client *c)
{
	uint64_t p = map_memory(c, 4096);

	SEND(c, gleamGraphBegin, .graph = GRAPH(1));
	fill(c, GRAPH(1), p, 1, (uint32_t[]){ 0 }, 1);
}

static void edges_backwards(struct client *c)
{
	uint64_t p = map_memory(c, 4096);

	SEND(c, gleamGraphBegin, .graph = GRAPH(1));
	fill(c, GRAPH(1), p, 1, NULL, 0);
	fill(c, GRAPH(1), p, 1, NULL, 0);
	SEND(c, gleamGraphEdges, .graph = GRAPH(1), .from = (uint32_t[]){ 1 }, .from_count = 1, .to = (uint32_t[]){ 0 },
	     .to_count = 1);
}

static void a_handle_twice(struct client *c)
{
	SEND(c, gleamGraphBegin, .graph = GRAPH(1));
	SEND(c, gleamGraphBegin, .graph = GRAPH(1));
}

static void a_place_beyond_the_end(struct client *c)
{
	uint64_t p = map_memory(c, 4096);

	SEND(c, gleamGraphBegin, .graph = GRAPH(1));
	fill(c, GRAPH(1), p, 1, NULL, 0);
	CHECK_EQUAL(CALL(c, gleamGraphMake, NULL, .graph = GRAPH(1)), 0);
	SEND(c, gleamGraphSwitch, .stream = WIRE_STREAM_LEGACY, .graph = GRAPH(1), .place = 1);
}

static void a_made_graph_grows(struct client *c)
{
	uint64_t p = map_memory(c, 4096);

	SEND(c, gleamGraphBegin, .graph = GRAPH(1));
	fill(c, GRAPH(1), p, 1, NULL, 0);
	CHECK_EQUAL(CALL(c, gleamGraphMake, NULL, .graph = GRAPH(1)), 0);
	fill(c, GRAPH(1), p, 1, NULL, 0);
}

static void test_graphs(void **state)
{
	assert_true(soft_run(described_made_launched, 0));
	assert_true(soft_run(bodies_run_by_their_condition, 0));
	assert_true(soft_run(boxes_of_arrays, 0));
	assert_true(soft_run(failures_of_nodes_come_with_the_make, 0));
}

static void test_broken_descriptions(void **state)
{
	assert_true(soft_run(needs_of_later_nodes, EXIT_PROTOCOL));
	assert_true(soft_run(edges_backwards, EXIT_PROTOCOL));
	assert_true(soft_run(a_handle_twice, EXIT_PROTOCOL));
	assert_true(soft_run(a_place_beyond_the_end, EXIT_PROTOCOL));
	assert_true(soft_run(a_made_graph_grows, EXIT_PROTOCOL));
	assert_true(soft_run(body_twice, EXIT_PROTOCOL));
	assert_true(soft_run(no_bodies, EXIT_PROTOCOL));
	assert_true(soft_run(condition_of_no_kind, EXIT_PROTOCOL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_graphs),
		cmocka_unit_test(test_broken_descriptions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
