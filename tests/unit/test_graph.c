// SPDX-License-Identifier: Apache-2.0
/*
 * Graphs and captures of the library without a session: which messages they become and in which order, where a graph is
 * cut, what captures forbid, and what stale handles give. The layers around are fakes that write down what they are asked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/event.h"
#include "libgleamcuda/exposed.h"
#include "libgleamcuda/graph_exec.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/hostfunc.h"
#include "libgleamcuda/memory.h"
#include "libgleamcuda/program.h"
#include "libgleamcuda/range.h"
#include "libgleamcuda/region.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stream.h"

/* ---- what was asked: a letter each ---- */

/* Messages: B begin, K kernel, C copy, F fill, E empty, W words, D edges, M make, U update, S set, X switch, Z end,
 * L launch, N condition, I branch. Others: u upload, d download, h host stop, r record, w wait. */
static char asked[8192];
static size_t asked_count;

static void ask(char what)
{
	assert_true(asked_count + 1 < sizeof(asked));
	asked[asked_count++] = what;
	asked[asked_count] = '\0';
}

#define ASKED(text)                                     \
	do {                                            \
		assert_string_equal(asked, text);       \
		asked[asked_count = 0] = '\0';          \
	} while (0)

static void forget(void)
{
	asked[asked_count = 0] = '\0';
}

static struct context context = { .index = 0, .active = 1, .epoch = 1 };
static struct session session;
static struct thread thread = { .number = 1 }, other_thread = { .number = 2 };
static struct stream streams[3];
static CUstream handles[3];
static struct stream legacy = { .context = &context, .handle = WIRE_STREAM_LEGACY };
static uint8_t frame[FRAME_SIZE_MAX] __attribute__((aligned(8)));
static CUresult make_result;
static uint32_t needs_seen[4096], needs_seen_count, data_seen, bodies_seen;

static struct call call_new(enum api api)
{
	return (struct call){ .api = (uint16_t)api, .thread = &thread, .context = &context, .session = &session };
}

#define CALL(name, ...)                                                        \
	({                                                                     \
		struct call made_call = call_new(API_##name);                  \
		do_##name(&made_call, __VA_ARGS__);                            \
	})

/* ---- in place of call.c ---- */

uint32_t captures_going;
CUresult (*capture_gate)(struct call *call);
uint32_t exposed_count;
uint32_t exposed_everywhere;
uint32_t region_count;
uint32_t techniques_off;

void call_start(struct call *call, struct session *s, struct context *c)
{
	*call = (struct call){ .session = s, .context = c };
}

CUresult call_leave(struct call *call, CUresult result)
{
	return result;
}

CUresult call_open(struct call *call, enum op op, size_t payload_max)
{
	call->op = (uint16_t)op;
	call->w = writer_on(frame, payload_max);
	return CUDA_SUCCESS;
}

static void seen(uint16_t op)
{
	struct reader r = reader_on(frame, sizeof(frame));

	switch (op) {
	case OP_gleamGraphBegin: ask('B'); break;
	case OP_gleamGraphKernel: {
		struct msg_gleamGraphKernel m;

		r.size = FRAME_SIZE_MAX;
		msg_gleamGraphKernel_get(&r, &m);
		needs_seen_count = m.needs_count;
		memcpy(needs_seen, m.needs, m.needs_count * sizeof(needs_seen[0]));
		ask('K');
		break;
	}
	case OP_gleamGraphCopy: ask('C'); break;
	case OP_gleamGraphFill: ask('F'); break;
	case OP_gleamGraphEmpty: ask('E'); break;
	case OP_gleamGraphWords: ask('W'); break;
	case OP_gleamGraphEdges: {
		struct msg_gleamGraphEdges m;

		msg_gleamGraphEdges_get(&r, &m);
		data_seen = m.data_size;
		ask('D');
		break;
	}
	case OP_gleamGraphMake: ask('M'); break;
	case OP_gleamGraphCondition: ask('N'); break;
	case OP_gleamGraphBranch: {
		struct msg_gleamGraphBranch m;

		msg_gleamGraphBranch_get(&r, &m);
		bodies_seen = m.bodies_count;
		ask('I');
		break;
	}
	case OP_gleamGraphUpdate: ask('U'); break;
	case OP_gleamGraphSet: ask('S'); break;
	case OP_gleamGraphSwitch: ask('X'); break;
	case OP_gleamGraphEnd: ask('Z'); break;
	case OP_gleamGraphLaunch: ask('L'); break;
	default: fail();
	}
}

uint64_t call_post(struct call *call)
{
	static uint64_t seq;

	assert_false(call->w.fault);
	seen(call->op);
	return ++seq;
}

CUresult call_wait(struct call *call)
{
	seen(call->op);
	return make_result;
}

CUresult call_handle(struct call *call, enum object_type type, const void *handle, unsigned marks, uint64_t *handle_out)
{
	*handle_out = (uint64_t)(uintptr_t)handle;
	return handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult call_refuse(struct call *call, const char *why)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- in place of stream.c, event.c, hostfunc.c, copy.c, exposed.c ---- */

CUresult call_stream_named(struct call *call, CUstream stream, uint64_t *handle_out)
{
	*handle_out = stream ? (uint64_t)(uintptr_t)stream : WIRE_STREAM_LEGACY;
	return CUDA_SUCCESS;
}

CUresult call_stream(struct call *call, CUstream stream, uint64_t *handle_out)
{
	CUresult result = call_stream_named(call, stream, handle_out);

	return !result && capture_going() ? capture_refuses(call, *handle_out) : result;
}

struct stream *stream_find(struct call *call, uint64_t handle)
{
	return handle == WIRE_STREAM_LEGACY ? &legacy : handle_data(OBJECT_STREAM, handle);
}

struct stream *stream_side(struct call *call)
{
	return &streams[2];
}

void stream_note(struct call *call, uint64_t handle, uint64_t seq)
{
}

CUresult stream_wait(struct call *call, struct stream *stream)
{
	return CUDA_SUCCESS;
}

CUresult do_cuEventCreate(struct call *call, CUevent *phEvent, unsigned int Flags)
{
	*phEvent = (CUevent)0x77;
	return CUDA_SUCCESS;
}

CUresult do_cuEventDestroy_v2(struct call *call, CUevent hEvent)
{
	return CUDA_SUCCESS;
}

CUresult do_cuEventRecord(struct call *call, CUevent hEvent, CUstream hStream)
{
	ask('r');
	return CUDA_SUCCESS;
}

CUresult do_cuStreamWaitEvent(struct call *call, CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	ask('w');
	return CUDA_SUCCESS;
}

static CUhostFn stop_function;
static void *stop_user;

CUresult hostfunc_stop(struct call *call, uint64_t stream, CUhostFn function, void *user)
{
	ask('h');
	stop_function = function;
	stop_user = user;
	return CUDA_SUCCESS;
}

static struct copy first_copy, last_copy;

CUresult copy_run(struct call *call, const struct copy *copy)
{
	ask(copy->dst_place == PLACE_DEVICE ? 'u' : 'd');
	if (asked_count == 1)
		first_copy = *copy;
	last_copy = *copy;
	return CUDA_SUCCESS;
}

/* Below 1 MiB is device memory, the next MiB is page-locked, all else is pageable. */
enum place place_of(uint64_t address, uint64_t *left_out)
{
	*left_out = address < 2u << 20 ? (1u << 20) - (address & 0xfffff) : UINT64_MAX;
	return address < 1u << 20 ? PLACE_DEVICE : address < 2u << 20 ? PLACE_PINNED : PLACE_PAGEABLE;
}

enum place place_host(uint64_t *address, uint64_t *left_out)
{
	return place_of(*address, left_out);
}

uint32_t exposed_moved;

uint64_t exposed_device_slow(uint64_t address)
{
	abort();
}

CUresult exposed_ops(const CUstreamBatchMemOpParams *ops, uint32_t count, CUstreamBatchMemOpParams **ops_out)
{
	*ops_out = NULL;
	return CUDA_SUCCESS;
}

CUresult region_give(struct call *call, uint64_t stream)
{
	abort();
}

struct session *session_of_unit(uint64_t unit)
{
	return NULL;
}

void gleam_log(const char *format, ...)
{
}

struct session *session_at(uint32_t index)
{
	return index ? NULL : &session;
}

void call_to(struct call *call, struct session *to)
{
	call->session = to;
}

void exposed_push(struct call *call)
{
}

CUresult exposed_need(struct call *call, uint64_t address)
{
	return CUDA_SUCCESS;
}

CUresult exposed_params_slow(struct call *call, const void *params, uint32_t size)
{
	return CUDA_SUCCESS;
}

/* ---- in place of memory.c, range.c, context.c, launch.c, program.c ---- */

static unsigned int taken;

CUresult memory_take(struct call *call, uint64_t size, uint64_t *address_out, void **owner_out)
{
	*address_out = 0x1000 + 0x1000 * (uint64_t)++taken;
	*owner_out = NULL;
	return CUDA_SUCCESS;
}

CUresult memory_give(struct call *call, uint64_t address, uint64_t size, void *owner)
{
	taken--;
	return CUDA_SUCCESS;
}

int range_add(struct range *range)
{
	return 0;
}

int range_remove(uint64_t start, bool reserved, struct range *range_out)
{
	return 0;
}

int device_count(void)
{
	return 1;
}

struct context *context_find(CUcontext handle)
{
	return &context;
}

static const struct verdict_param one_param = { .offset = 0, .size = 4 };
static struct function function = { .context = &context, .wire = 0x123, .ready = 1, .param_count = 1, .params_size = 4,
				    .params = &one_param };

CUresult function_in(struct call *call, CUfunction f, struct context *in, struct function **function_out)
{
	*function_out = &function;
	return CUDA_SUCCESS;
}

bool function_cluster_slowly(const struct function *f, const CUlaunchAttribute *attrs, uint32_t count, CUlaunchAttribute *attr_out)
{
	return false;
}

CUresult function_ready_slowly(struct call *call, struct function *f)
{
	return CUDA_SUCCESS;
}

CUresult launch_check(const struct function *f, const struct launch *launch)
{
	return launch->grid[0] ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult launch_params_of(const struct function *f, void **params, void **extra, struct launch_params *params_out)
{
	*params_out = (struct launch_params){ .pointers = params, .size = 4 };
	return params ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void launch_params_pack(const struct function *f, const struct launch_params *from, uint8_t *to)
{
	memcpy(to, from->pointers[0], 4);
}

CUresult launch_attributes(struct call *call, struct launch *launch, const CUlaunchAttribute *attrs, uint32_t count)
{
	launch->attrs[0] = attrs[0];
	launch->attr_count = 1;
	return CUDA_SUCCESS;
}

/* ---- helpers ---- */

static int setup(void **state)
{
	for (int i = 0; i < 3; i++) {
		streams[i] = (struct stream){ .context = &context, .flags = i ? CU_STREAM_NON_BLOCKING : 0 };
		streams[i].handle = handle_new(OBJECT_STREAM, &context, &streams[i]);
		handles[i] = (CUstream)(uintptr_t)streams[i].handle;
	}
	context.session = &session;
	make_result = CUDA_SUCCESS;
	taken = 0;
	forget();
	return 0;
}

static int teardown(void **state)
{
	for (int i = 0; i < 3; i++)
		handle_end(streams[i].handle);
	assert_int_equal(captures_going, 0);
	assert_int_equal(taken, 0);
	return 0;
}

static CUgraph graph_make(void)
{
	CUgraph graph;

	assert_int_equal(CALL(cuGraphCreate, &graph, 0), 0);
	return graph;
}

static CUgraphNode kernel(CUgraph graph, const CUgraphNode *needs, size_t count)
{
	unsigned int value = 5;
	void *params[] = { &value };
	CUDA_KERNEL_NODE_PARAMS p = { .func = (CUfunction)0x10, .gridDimX = 1, .kernelParams = params };
	CUgraphNode node;

	assert_int_equal(CALL(cuGraphAddKernelNode_v2, &node, graph, needs, count, &p), 0);
	return node;
}

static CUgraphNode copy(CUgraph graph, uint64_t dst, uint64_t src, const CUgraphNode *needs, size_t count)
{
	CUDA_MEMCPY3D p = { .srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = src, .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
			    .dstDevice = dst, .WidthInBytes = 64, .Height = 1, .Depth = 1 };
	CUgraphNode node;

	assert_int_equal(CALL(cuGraphAddMemcpyNode, &node, graph, needs, count, &p, NULL), 0);
	return node;
}

static CUgraphNode host(CUgraph graph, CUhostFn fn, void *user, const CUgraphNode *needs, size_t count)
{
	CUDA_HOST_NODE_PARAMS p = { fn, user };
	CUgraphNode node;

	assert_int_equal(CALL(cuGraphAddHostNode, &node, graph, needs, count, &p), 0);
	return node;
}

static CUgraphExec make(CUgraph graph, unsigned long long flags)
{
	CUgraphExec exec;

	assert_int_equal(CALL(cuGraphInstantiateWithFlags, &exec, graph, flags), 0);
	return exec;
}

static void end(CUgraph graph, CUgraphExec exec)
{
	if (exec)
		assert_int_equal(CALL(cuGraphExecDestroy, exec), 0);
	if (graph)
		assert_int_equal(CALL(cuGraphDestroy, graph), 0);
}

static void called(void *user)
{
	++*(unsigned int *)user;
	ask('f');
}

#define DEVICE 0x800u
#define PINNED (1u << 20)
#define PAGEABLE (16u << 20)

/* ---- messages ---- */

static void test_a_launch_is_one_message(void **state)
{
	CUgraph graph = graph_make();
	CUgraphNode a = kernel(graph, NULL, 0), b = kernel(graph, &a, 1);
	CUgraphExec exec;

	copy(graph, DEVICE, DEVICE + 64, &b, 1);
	ASKED("");
	exec = make(graph, 0);
	ASKED("BKKCM");
	end(graph, NULL);
	for (int i = 0; i < 3; i++)
		assert_int_equal(CALL(cuGraphLaunch, exec, handles[1]), 0);
	ASKED("LLL");
	end(NULL, exec);
	ASKED("Z");
}

static void test_what_the_driver_refuses_is_told(void **state)
{
	CUgraph graph = graph_make();
	CUgraphExec exec = NULL;

	kernel(graph, NULL, 0);
	make_result = CUDA_ERROR_OUT_OF_MEMORY;
	assert_int_equal(CALL(cuGraphInstantiateWithFlags, &exec, graph, 0), CUDA_ERROR_OUT_OF_MEMORY);
	assert_null(exec);
	ASKED("BKMZ");
	end(graph, NULL);
}

static void test_wide_nodes_and_edge_data(void **state)
{
	enum { WIDE = 1500 };
	CUgraph graph = graph_make();
	CUgraphNode nodes[WIDE], last, from[2], to[2];
	CUgraphEdgeData data = { .from_port = 1, .type = 1 };
	CUgraphExec exec;
	size_t count = 2;

	for (int i = 0; i < WIDE; i++)
		nodes[i] = kernel(graph, NULL, 0);
	last = kernel(graph, nodes, WIDE);
	exec = make(graph, 0);
	assert_int_equal(asked[asked_count - 2], 'D');
	assert_int_equal(needs_seen_count, 1024);
	assert_int_equal(needs_seen[7], 7);
	assert_int_equal(data_seen, 0);
	end(NULL, exec);
	end(graph, NULL);

	graph = graph_make();
	nodes[0] = kernel(graph, NULL, 0);
	last = kernel(graph, NULL, 0);
	assert_int_equal(CALL(cuGraphAddDependencies_v2, graph, nodes, &last, &data, 1), 0);
	assert_int_equal(CALL(cuGraphGetEdges, graph, from, to, &count), CUDA_ERROR_LOSSY_QUERY);
	assert_int_equal(CALL(cuGraphGetEdges_v2, graph, from, to, &data, &count), 0);
	assert_int_equal(count, 1);
	forget();
	exec = make(graph, 0);
	ASKED("BKKDM");
	assert_int_equal(data_seen, sizeof(data));
	end(graph, exec);
}

/* ---- cuts ---- */

static void test_host_memory_is_staged(void **state)
{
	CUgraph graph = graph_make();
	CUgraphNode up = copy(graph, DEVICE, PAGEABLE, NULL, 0), k = kernel(graph, &up, 1);
	CUgraphExec exec;

	copy(graph, PINNED, DEVICE, &k, 1);
	exec = make(graph, 0);
	ASKED("BCKCM");
	assert_int_equal(taken, 2);
	assert_int_equal(CALL(cuGraphLaunch, exec, handles[1]), 0);
	ASKED("uLdr");
	assert_int_equal(first_copy.src_place, PLACE_PINNED); /* pageable, but under that rule */
	assert_int_equal(last_copy.dst, PINNED);
	assert_true(last_copy.async);
	/* The next one on another stream waits. */
	assert_int_equal(CALL(cuGraphLaunch, exec, handles[2]), 0);
	ASKED("wuLdr");
	end(graph, exec);
}

static void test_batches_do_not_cut(void **state)
{
	CUgraph graph = graph_make();
	CUgraphNode at = 0;
	CUgraphExec exec;

	for (unsigned int i = 0; i < 3; i++) {
		at = copy(graph, DEVICE, PAGEABLE + i * 64, at ? &at : NULL, at ? 1 : 0);
		at = kernel(graph, &at, 1);
		at = copy(graph, PAGEABLE + 4096 + i * 64, DEVICE, &at, 1);
	}
	exec = make(graph, 0);
	forget();
	assert_int_equal(CALL(cuGraphLaunch, exec, handles[1]), 0);
	ASKED("uuuLdddr");
	end(graph, exec);
}

static void test_a_host_function_cuts(void **state)
{
	CUgraph graph = graph_make();
	unsigned int count = 0;
	CUgraphNode n = kernel(graph, NULL, 0);
	CUgraphExec exec;

	n = copy(graph, PAGEABLE, DEVICE, &n, 1);
	n = host(graph, called, &count, &n, 1);
	n = host(graph, called, &count, &n, 1);
	n = copy(graph, DEVICE, PAGEABLE, &n, 1);
	kernel(graph, &n, 1);
	exec = make(graph, 0);
	ASKED("BKCMBCKM");
	assert_int_equal(CALL(cuGraphLaunch, exec, handles[1]), 0);
	ASKED("LdhLr");
	/* What was made may go: the stop still has what it needs. */
	end(graph, exec);
	assert_int_equal(taken, 2);
	forget();
	stop_function(stop_user);
	ASKED("ffu");
	assert_int_equal(count, 2);
	/* Read at once, on the side. */
	assert_int_equal(last_copy.src_place, PLACE_PAGEABLE);
	assert_int_equal(last_copy.stream, streams[2].handle);
}

static void test_what_came_down_goes_up(void **state)
{
	CUgraph graph = graph_make();
	CUgraphNode n = copy(graph, PAGEABLE, DEVICE, NULL, 0);
	CUgraphExec exec;

	copy(graph, DEVICE + 64, PAGEABLE + 32, &n, 1);
	exec = make(graph, 0);
	forget();
	assert_int_equal(CALL(cuGraphLaunch, exec, handles[1]), 0);
	ASKED("LdhLr");
	stop_function(stop_user);
	ASKED("u");
	end(graph, exec);
}

static void test_events_are_around_parts(void **state)
{
	CUgraph graph = graph_make();
	CUgraphNode a = kernel(graph, NULL, 0), r, w;
	CUgraphExec exec;

	assert_int_equal(CALL(cuGraphAddEventRecordNode, &r, graph, &a, 1, (CUevent)0x50), 0);
	assert_int_equal(CALL(cuGraphAddEventWaitNode, &w, graph, &r, 1, (CUevent)0x60), 0);
	kernel(graph, &w, 1);
	exec = make(graph, 0);
	ASKED("BKMBKM");
	assert_int_equal(CALL(cuGraphLaunch, exec, handles[1]), 0);
	ASKED("LrwL");
	end(graph, exec);
}

/* A node behind a record needs what the record needed. */
static void test_records_are_seen_through(void **state)
{
	CUgraph graph = graph_make();
	CUgraphNode a = kernel(graph, NULL, 0), b = kernel(graph, NULL, 0), r;
	CUgraphExec exec;

	assert_int_equal(CALL(cuGraphAddEventRecordNode, &r, graph, &b, 1, (CUevent)0x50), 0);
	kernel(graph, &r, 1);
	(void)a;
	exec = make(graph, 0);
	assert_int_equal(needs_seen_count, 1);
	assert_int_equal(needs_seen[0], 1);
	end(graph, exec);
}

/* ---- changes ---- */

static void test_changes(void **state)
{
	CUgraph graph = graph_make(), other = graph_make();
	CUgraphNode a = kernel(graph, NULL, 0), b;
	CUDA_MEMSET_NODE_PARAMS set = { .dst = DEVICE, .elementSize = 4, .width = 4, .height = 1 };
	CUgraphExecUpdateResultInfo info;
	unsigned int value = 9;
	void *params[] = { &value };
	CUDA_KERNEL_NODE_PARAMS p = { .func = (CUfunction)0x10, .gridDimX = 1, .kernelParams = params };
	CUgraphExec exec;

	assert_int_equal(CALL(cuGraphAddMemsetNode, &b, graph, &a, 1, &set, NULL), 0);
	exec = make(graph, 0);
	forget();
	assert_int_equal(CALL(cuGraphExecKernelNodeSetParams_v2, exec, a, &p), 0);
	ASKED("BKS");
	assert_int_equal(CALL(cuGraphExecKernelNodeSetParams_v2, exec, b, &p), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CALL(cuGraphNodeSetEnabled, exec, b, 0), 0);
	ASKED("X");
	assert_int_equal(CALL(cuGraphExecUpdate_v2, exec, graph, &info), 0);
	ASKED("BKFU");
	kernel(other, NULL, 0);
	assert_int_equal(CALL(cuGraphExecUpdate_v2, exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	ASKED("");
	end(other, NULL);
	end(graph, exec);
}

/* ---- handles ---- */

static void test_stale_handles(void **state)
{
	CUgraph graph = graph_make(), other = graph_make(), got;
	CUgraphNode node = kernel(graph, NULL, 0), foreign = kernel(other, NULL, 0), out;
	CUgraphExec exec = make(graph, 0), none;
	CUgraphNodeType type;
	size_t count;

	assert_int_equal(CALL(cuGraphAddEmptyNode, &out, graph, &foreign, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CALL(cuGraphAddDependencies, graph, &node, &foreign, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CALL(cuGraphGetNodes, graph, NULL, &count), 0);
	assert_int_equal(count, 1);
	end(graph, exec);
	assert_int_equal(CALL(cuGraphDestroy, graph), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CALL(cuGraphExecDestroy, exec), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CALL(cuGraphLaunch, exec, handles[1]), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CALL(cuGraphNodeGetType, node, &type), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CALL(cuGraphDestroyNode, node), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CALL(cuGraphClone, &got, graph), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CALL(cuGraphInstantiateWithFlags, &none, graph, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CALL(cuGraphInstantiateWithFlags, &none, other, 64), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CALL(cuGraphInstantiateWithFlags, &none, other, 4), CUDA_ERROR_NOT_SUPPORTED);
	end(other, NULL);
}

/* The graph of a child node goes with its node, and not before. */
static void test_children_are_owned(void **state)
{
	CUgraph child = graph_make(), graph = graph_make(), inner;
	CUgraphNode node;
	CUgraphExec exec;

	kernel(child, NULL, 0);
	assert_int_equal(CALL(cuGraphAddChildGraphNode, &node, graph, NULL, 0, child), 0);
	assert_int_equal(CALL(cuGraphChildGraphNodeGetGraph, node, &inner), 0);
	assert_int_equal(CALL(cuGraphDestroy, inner), CUDA_ERROR_INVALID_VALUE);
	end(child, NULL);
	exec = make(graph, 0);
	ASKED("BEKEM");
	end(graph, exec);
	assert_int_equal(CALL(cuGraphDestroy, inner), CUDA_ERROR_INVALID_VALUE);
}

static void test_user_objects(void **state)
{
	CUgraph graph = graph_make(), clone;
	CUuserObject object;
	unsigned int count = 0;

	assert_int_equal(CALL(cuUserObjectCreate, &object, &count, called, 1, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CALL(cuUserObjectCreate, &object, &count, called, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC), 0);
	assert_int_equal(CALL(cuGraphRetainUserObject, graph, object, 1, 0), 0);
	assert_int_equal(CALL(cuGraphClone, &clone, graph), 0);
	assert_int_equal(CALL(cuUserObjectRelease, object, 2), 0);
	assert_int_equal(CALL(cuGraphReleaseUserObject, graph, object, 2), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CALL(cuGraphReleaseUserObject, graph, object, 1), 0);
	assert_int_equal(count, 0);
	end(clone, NULL);
	assert_int_equal(count, 1);
	assert_int_equal(CALL(cuUserObjectRetain, object, 1), CUDA_ERROR_INVALID_VALUE);
	end(graph, NULL);
}

static void test_memory_of_graphs(void **state)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = { .poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } }, .bytesize = 512 };
	CUgraph graph = graph_make();
	CUgraphExec exec, freeing;
	CUgraphNode node;
	CUresult result;

	assert_int_equal(CALL(cuGraphAddMemFreeNode, &node, graph, NULL, 0, 0x5000), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CALL(cuGraphAddMemAllocNode, &node, graph, NULL, 0, &p), 0);
	exec = make(graph, 0);
	freeing = make(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
	assert_true(graph_memory_free(p.dptr, &result));
	assert_int_equal(result, CUDA_ERROR_INVALID_VALUE); /* nothing has allocated it yet */
	assert_int_equal(CALL(cuGraphLaunch, exec, handles[1]), 0);
	/* Not twice without a free between, unless that is part of it. */
	assert_int_equal(CALL(cuGraphLaunch, exec, handles[1]), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CALL(cuGraphLaunch, freeing, handles[1]), 0);
	end(graph, exec);
	end(NULL, freeing);
	/* The program's, until it frees it. */
	assert_int_equal(taken, 1);
	assert_true(graph_memory_free(p.dptr, &result));
	assert_int_equal(result, CUDA_SUCCESS);
	struct call call = call_new(API_cuMemFree_v2);

	graph_memory_sweep(&call);
	assert_false(graph_memory_free(p.dptr, &result));
}

/* ---- captures ---- */

static CUresult gated(enum api api, struct thread *by, CUstreamCaptureMode mode)
{
	struct call call = call_new(api);
	CUstreamCaptureMode before = by->capture_mode;
	CUresult result;

	call.thread = by;
	by->capture_mode = mode;
	result = captures_going ? capture_gate(&call) : CUDA_SUCCESS;
	by->capture_mode = before;
	return result;
}

static void test_modes(void **state)
{
	/* forbidden to: the capturing thread, another one; each with its own mode global, thread-local, relaxed */
	static const bool forbidden[3][2][3] = {
		[CU_STREAM_CAPTURE_MODE_GLOBAL] = { { true, true, false }, { true, false, false } },
		[CU_STREAM_CAPTURE_MODE_THREAD_LOCAL] = { { true, true, false }, { false, false, false } },
		[CU_STREAM_CAPTURE_MODE_RELAXED] = { { false, false, false }, { false, false, false } },
	};

	for (int capture = 0; capture < 3; capture++)
		for (int by = 0; by < 2; by++)
			for (int own = 0; own < 3; own++) {
				CUgraph graph;
				CUresult want = forbidden[capture][by][own] ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;

				assert_int_equal(CALL(cuStreamBeginCapture_v2, handles[1], (CUstreamCaptureMode)capture), 0);
				assert_int_equal(gated(API_cuStreamGetFlags, &thread, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
				assert_int_equal(gated(API_cuMemAlloc_v2, by ? &other_thread : &thread,
						       (CUstreamCaptureMode)own), want);
				assert_int_equal(CALL(cuStreamEndCapture, handles[1], &graph),
						 want ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
				if (!want)
					end(graph, NULL);
				else
					assert_null(graph);
			}
}

static void test_who_ends_a_capture(void **state)
{
	struct call call = call_new(API_cuStreamEndCapture);
	CUgraph graph;

	call.thread = &other_thread;
	assert_int_equal(CALL(cuStreamEndCapture, handles[1], &graph), CUDA_ERROR_ILLEGAL_STATE);
	assert_int_equal(CALL(cuStreamBeginCapture_v2, NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
			 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_int_equal(CALL(cuStreamBeginCapture_v2, handles[1], CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(CALL(cuStreamBeginCapture_v2, handles[1], CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
	assert_int_equal(do_cuStreamEndCapture(&call, handles[1], &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	assert_int_equal(CALL(cuStreamEndCapture, handles[1], &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_int_equal(CALL(cuStreamBeginCapture_v2, handles[1], CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(do_cuStreamEndCapture(&call, handles[1], &graph), 0);
	end(graph, NULL);
}

/* What knows nothing of captures is refused on a capturing stream, and questions are answered. */
static void test_calls_that_are_not_captured(void **state)
{
	struct call call = call_new(API_cuStreamBatchMemOp_v2);
	CUstreamCaptureStatus status;
	uint64_t handle;
	CUgraph graph;

	assert_int_equal(CALL(cuStreamBeginCapture_v2, handles[0], CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(call_stream(&call, handles[1], &handle), 0);
	assert_int_equal(CALL(cuStreamIsCapturing, handles[0], &status), 0);
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_int_equal(call_stream(&call, handles[0], &handle), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_int_equal(call_stream(&call, handles[0], &handle), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_int_equal(CALL(cuStreamIsCapturing, handles[0], &status), 0);
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	assert_int_equal(CALL(cuStreamEndCapture, handles[0], &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	/* The legacy stream and a blocking one. */
	assert_int_equal(CALL(cuStreamBeginCapture_v2, handles[0], CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(call_stream(&call, NULL, &handle), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	assert_int_equal(CALL(cuStreamEndCapture, handles[0], &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_int_equal(CALL(cuStreamBeginCapture_v2, handles[1], CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	assert_int_equal(call_stream(&call, NULL, &handle), 0);
	/* A stream, and a context, that go. */
	capture_stream_gone(&streams[1]);
	assert_int_equal(captures_going, 0);
	assert_int_equal(CALL(cuStreamBeginCapture_v2, handles[1], CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	capture_context_closed(&context);
	assert_int_equal(captures_going, 0);
}

/* A graph that is launched into a capture is a child of what is captured. */
static void test_launches_are_captured(void **state)
{
	CUgraph graph = graph_make(), captured;
	CUgraphNode a = kernel(graph, NULL, 0), node;
	CUgraphNodeType type;
	CUgraphExec exec, second;
	size_t count = 1;

	kernel(graph, &a, 1);
	exec = make(graph, 0);
	assert_int_equal(CALL(cuStreamBeginCapture_v2, handles[1], CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	forget();
	assert_int_equal(CALL(cuGraphLaunch, exec, handles[1]), 0);
	ASKED("");
	assert_int_equal(CALL(cuStreamEndCapture, handles[1], &captured), 0);
	assert_int_equal(CALL(cuGraphGetNodes, captured, &node, &count), 0);
	assert_int_equal(count, 1);
	assert_int_equal(CALL(cuGraphNodeGetType, node, &type), 0);
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_GRAPH);
	second = make(captured, 0);
	ASKED("BEKKEM");
	end(captured, second);
	end(graph, exec);
}

/* ---- conditional nodes ---- */

static CUgraphNode branch(CUgraph graph, CUgraphConditionalHandle handle, unsigned int size, const CUgraphNode *need, CUgraph **bodies_out)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
				.conditional = { .handle = handle, .type = size > 2 ? CU_GRAPH_COND_TYPE_SWITCH : CU_GRAPH_COND_TYPE_IF,
						 .size = size } };
	CUgraphNode node;

	assert_int_equal(CALL(cuGraphAddNode_v2, &node, graph, need, NULL, need ? 1 : 0, &p), 0);
	*bodies_out = p.conditional.phGraph_out;
	return node;
}

static void test_bodies_are_described_in_their_node(void **state)
{
	CUgraph graph = graph_make(), other = graph_make(), clone, *bodies, *inner;
	CUgraphConditionalHandle outer_handle, inner_handle, other_handle;
	CUgraphExecUpdateResultInfo info;
	CUgraphNode first, node;
	CUgraphExec exec, second;

	assert_int_equal(CALL(cuGraphConditionalHandleCreate, &outer_handle, graph, NULL, 0, 0), 0);
	first = kernel(graph, NULL, 0);
	node = branch(graph, outer_handle, 3, &first, &bodies);
	assert_int_equal(CALL(cuGraphConditionalHandleCreate, &inner_handle, bodies[1], NULL, 1, CU_GRAPH_COND_ASSIGN_DEFAULT), 0);
	branch(bodies[1], inner_handle, 2, NULL, &inner);
	kernel(inner[1], NULL, 0);
	kernel(bodies[2], NULL, 0);
	kernel(graph, &node, 1);
	exec = make(graph, 0);
	/* The first body is empty; the second has a condition and a node of its own. */
	ASKED("BNKINIKKKM");
	assert_int_equal(bodies_seen, 2);
	assert_int_equal(CALL(cuGraphInstantiateWithFlags, &second, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(CALL(cuGraphClone, &clone, graph), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(CALL(cuGraphAddChildGraphNode, &node, other, NULL, 0, graph), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(CALL(cuGraphDestroy, bodies[0]), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CALL(cuGraphInstantiateWithFlags, &second, bodies[0], 0), CUDA_ERROR_INVALID_VALUE);
	ASKED("");
	/* A graph of the same shape, whose conditions are its own. */
	assert_int_equal(CALL(cuGraphConditionalHandleCreate, &other_handle, other, NULL, 0, 0), 0);
	first = kernel(other, NULL, 0);
	node = branch(other, other_handle, 3, &first, &bodies);
	assert_int_equal(CALL(cuGraphConditionalHandleCreate, &inner_handle, bodies[1], NULL, 1, 0), 0);
	branch(bodies[1], inner_handle, 2, NULL, &inner);
	kernel(inner[1], NULL, 0);
	kernel(bodies[2], NULL, 0);
	kernel(other, &node, 1);
	assert_int_equal(CALL(cuGraphExecUpdate_v2, exec, other, &info), 0);
	ASKED("BNKINIKKKU");
	kernel(bodies[0], NULL, 0);
	assert_int_equal(CALL(cuGraphExecUpdate_v2, exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	ASKED("");
	assert_int_equal(CALL(cuGraphDestroy, other), 0);
	end(graph, exec);
}

static void test_what_bodies_and_conditions_can_not_be(void **state)
{
	CUgraph graph = graph_make(), *bodies;
	CUDA_HOST_NODE_PARAMS host_params = { .fn = (CUhostFn)0x50 };
	CUDA_GRAPH_INSTANTIATE_PARAMS ask_params = { 0 };
	CUgraphConditionalHandle handle, unused;
	CUgraphNode first, node;
	CUgraphNodeParams p;
	CUgraphExec exec;

	/* A host function in a body. */
	assert_int_equal(CALL(cuGraphConditionalHandleCreate, &handle, graph, NULL, 0, 0), 0);
	first = branch(graph, handle, 1, NULL, &bodies);
	assert_int_equal(CALL(cuGraphAddHostNode, &node, bodies[0], NULL, 0, &host_params), 0);
	assert_int_equal(CALL(cuGraphInstantiateWithFlags, &exec, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(CALL(cuGraphDestroyNode, node), 0);
	/* One between two nodes that look at the same value: they would be in two graphs of the driver's. */
	assert_int_equal(CALL(cuGraphAddHostNode, &node, graph, &first, 1, &host_params), 0);
	branch(graph, handle, 1, &node, &bodies);
	assert_int_equal(CALL(cuGraphInstantiateWithFlags, &exec, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
	/* A value that nobody looks at. */
	assert_int_equal(CALL(cuGraphDestroyNode, first), 0);
	assert_int_equal(CALL(cuGraphConditionalHandleCreate, &unused, graph, NULL, 0, 0), 0);
	assert_int_equal(CALL(cuGraphInstantiateWithParams, &exec, graph, &ask_params), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(ask_params.result_out, CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
	assert_int_equal(CALL(cuGraphDestroy, graph), 0);
	/* A handle that has ended with its graph. */
	graph = graph_make();
	p = (CUgraphNodeParams){ .type = CU_GRAPH_NODE_TYPE_CONDITIONAL, .conditional = { .handle = handle, .size = 1 } };
	assert_int_equal(CALL(cuGraphAddNode_v2, &node, graph, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
	assert_null(p.conditional.phGraph_out);
	assert_int_equal(CALL(cuGraphDestroy, graph), 0);
	ASKED("");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_a_launch_is_one_message),
		T(test_what_the_driver_refuses_is_told),
		T(test_wide_nodes_and_edge_data),
		T(test_host_memory_is_staged),
		T(test_batches_do_not_cut),
		T(test_a_host_function_cuts),
		T(test_what_came_down_goes_up),
		T(test_events_are_around_parts),
		T(test_records_are_seen_through),
		T(test_changes),
		T(test_stale_handles),
		T(test_children_are_owned),
		T(test_user_objects),
		T(test_memory_of_graphs),
		T(test_modes),
		T(test_who_ends_a_capture),
		T(test_calls_that_are_not_captured),
		T(test_launches_are_captured),
		T(test_bodies_are_described_in_their_node),
		T(test_what_bodies_and_conditions_can_not_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
