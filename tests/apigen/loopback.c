/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generated stubs and generated dispatch of good/sample.toml, wired to each other: a command is run where it is posted,
 * by a worker whose driver keeps notes. Built by tests/unit/test_apigen.py against the sample's gen folder.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "broker/worker/worker.h"
#include "gen/bodies.h"
#include "gen/procaddr.h"
#include "gen/worker_bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/trace.h"

#define OBJECTS 8

struct worker {
	struct drv drv;
	struct {
		uint64_t handle;
		enum object_type type;
		void *object;
	} objects[OBJECTS];
	bool full;
};

static struct worker worker;
static char note[256];	/* what the driver was called with */
static char client[256]; /* what the library's core was called with */
static CUresult drv_result;
static CUresult ran; /* the result of the last command */
static bool open_fails;
static bool contextless; /* the thread has no current context */
static uint64_t looked_for; /* whose context was asked for instead */
static uint64_t payload[64];
static uint64_t answer[64];
static uint32_t births;
static struct bulk_ref bulk = { .offset = 1 << 16, .size = 77, .cookie = 5 };

/* ---- the library's core ---- */

CUresult call_enter(struct call *call, enum api api, enum needs needs, bool ptds)
{
	*call = (struct call){ .api = (uint16_t)api, .ptds = ptds };
	snprintf(client, sizeof(client), "%s needs %d ptds %d;", api_names[api], needs, ptds);
	return contextless ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult call_enter_by(struct call *call, uint64_t handle)
{
	looked_for = handle;
	return looked_for == 0x1234 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult call_enter_at(struct call *call, uint64_t address)
{
	looked_for = address;
	return CUDA_ERROR_INVALID_CONTEXT;
}

bool trace_on;

void trace_call(const struct call *call, CUresult result, const uint64_t *args, uint32_t count)
{
}

CUresult call_leave(struct call *call, CUresult result)
{
	return result;
}

CUresult call_open(struct call *call, enum op op, size_t payload_max)
{
	if (open_fails)
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	call->op = (uint16_t)op;
	assert_true(payload_max <= sizeof(payload));
	call->w = writer_on(payload, payload_max);
	return CUDA_SUCCESS;
}

static CUresult run(struct call *call, uint8_t flags)
{
	struct frame_hdr hdr = { .op = call->op, .flags = flags };
	struct cmd cmd = { .hdr = &hdr, .bulk = bulk };
	struct reader r = reader_on(payload, call->w.at);
	struct writer ans = writer_on(answer, sizeof(answer));

	assert_false(call->w.fault);
	if (op_info[call->op].flags & OP_SCOPE_STREAM) {
		cmd.stream_handle = payload[0];
		assert_true(object_get(&worker, OBJECT_STREAM, payload[0], false, (void **)&cmd.stream));
	}
	put_u32(&ans, 0);
	ran = worker_handlers[call->op](&worker, &cmd, &r, &ans);
	call->r = reader_on(answer, ans.at);
	get_u32(&call->r);
	return ran;
}

uint64_t call_post(struct call *call)
{
	run(call, 0);
	return 1;
}

CUresult call_wait(struct call *call)
{
	return run(call, 0);
}

static void client_note(const char *what, uint64_t handle)
{
	size_t at = strlen(client);

	snprintf(client + at, sizeof(client) - at, " %s %#llx", what, (unsigned long long)handle);
}

CUresult call_handle(struct call *call, enum object_type type, const void *handle, unsigned marks, uint64_t *handle_out)
{
	*handle_out = (uintptr_t)handle;
	if (!handle && (marks & HANDLE_NULL_OK))
		return CUDA_SUCCESS;
	return handle_type(*handle_out) == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult call_stream(struct call *call, CUstream stream, uint64_t *handle_out)
{
	*handle_out = stream ? (uintptr_t)stream : WIRE_STREAM_LEGACY;
	return CUDA_SUCCESS;
}

CUresult call_birth(struct call *call, enum object_type type, uint64_t *handle_out)
{
	*handle_out = handle_make(type, 1, ++births);
	return CUDA_SUCCESS;
}

void call_death(struct call *call, uint64_t handle)
{
	client_note("dead", handle);
}

/* The program sees two devices, which are the worker's 5 and 3. */
const struct device *device_at(int ordinal)
{
	static const struct device devices[2] = { { .node_device = 5 }, { .node_device = 3 } };

	return ordinal == 0 || ordinal == 1 ? &devices[ordinal] : NULL;
}

CUresult call_refuse(struct call *call, const char *why)
{
	snprintf(client, sizeof(client), "%s: %s", api_names[call->api], why);
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult do_cuEventQuery(struct call *call, CUevent hEvent)
{
	return hEvent ? CUDA_ERROR_NOT_READY : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- the worker's core ---- */

const struct drv *worker_drv(const struct worker *w)
{
	return &w->drv;
}

bool object_get(struct worker *w, enum object_type type, uint64_t handle, bool null_ok, void **object_out)
{
	*object_out = NULL;
	if ((handle == 0 && null_ok) || (type == OBJECT_STREAM && handle == WIRE_STREAM_LEGACY))
		return true;
	for (unsigned i = 0; i < OBJECTS; i++) {
		if (handle && w->objects[i].handle == handle && w->objects[i].type == type) {
			*object_out = w->objects[i].object;
			return true;
		}
	}
	return false;
}

bool object_add(struct worker *w, enum object_type type, uint64_t handle, void *object)
{
	for (unsigned i = 0; i < OBJECTS && !w->full; i++) {
		if (!w->objects[i].handle) {
			w->objects[i].handle = handle;
			w->objects[i].type = type;
			w->objects[i].object = object;
			return true;
		}
	}
	return false;
}

void object_remove(struct worker *w, uint64_t handle)
{
	for (unsigned i = 0; i < OBJECTS; i++)
		if (w->objects[i].handle == handle)
			w->objects[i].handle = 0;
}

CUresult worker_do_gleamEcho(struct worker *w, struct cmd *cmd, const struct msg_gleamEcho *m, struct ans_gleamEcho *a)
{
	assert_int_equal(m->part.size, bulk.size);
	a->echo = m->text;
	a->echo_size = m->text_size;
	return CUDA_SUCCESS;
}

/* ---- the driver ---- */

#define NOTE(...) (snprintf(note, sizeof(note), __VA_ARGS__), drv_result)

static CUresult event_create(CUevent *phEvent, unsigned int Flags)
{
	*phEvent = (CUevent)0xe0;
	return NOTE("create %u", Flags);
}

static CUresult event_destroy(CUevent hEvent)
{
	return NOTE("destroy %p", (void *)hEvent);
}

static CUresult event_elapsed(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	*pMilliseconds = 2.5f;
	return NOTE("elapsed %p %p", (void *)hStart, (void *)hEnd);
}

static CUresult event_record(CUevent hEvent, CUstream hStream)
{
	return NOTE("record %p %p", (void *)hEvent, (void *)hStream);
}

static CUresult limit_set(CUlimit limit, size_t value)
{
	return NOTE("limit %d %zu", (int)limit, value);
}

static CUresult l2_reset(void)
{
	return NOTE("l2");
}

static CUresult kernel_cache(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
	return NOTE("cache %p %d of %d", (void *)kernel, (int)config, dev);
}

static CUresult mem_release(CUmemGenericAllocationHandle handle)
{
	return NOTE("release %llu", handle);
}

static CUresult module_global(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	*dptr = 0x200000000000;
	*bytes = 12;
	return NOTE("global %p %s", (void *)hmod, name);
}

static CUresult stream_copy(CUstream dst, CUstream src)
{
	return NOTE("copy %p %p", (void *)dst, (void *)src);
}

static int start(void **state)
{
	(void)state;
	worker = (struct worker){ 0 };
	worker.drv.cuEventCreate = event_create;
	worker.drv.cuEventDestroy_v2 = event_destroy;
	worker.drv.cuEventElapsedTime = event_elapsed;
	worker.drv.cuEventRecord = event_record;
	worker.drv.cuCtxSetLimit = limit_set;
	worker.drv.cuCtxResetPersistingL2Cache = l2_reset;
	worker.drv.cuKernelSetCacheConfig = kernel_cache;
	worker.drv.cuMemRelease = mem_release;
	worker.drv.cuModuleGetGlobal_v2 = module_global;
	worker.drv.cuStreamCopyAttributes = stream_copy;
	drv_result = CUDA_SUCCESS;
	open_fails = contextless = false;
	note[0] = 0;
	births = 0;
	return 0;
}

static uint64_t object(enum object_type type, uint32_t index, uintptr_t driver)
{
	uint64_t handle = handle_make(type, 9, index);

	assert_true(object_add(&worker, type, handle, (void *)driver));
	return handle;
}

/* ---- tests ---- */

static void test_numbers_reach_the_driver(void **state)
{
	(void)state;
	assert_int_equal(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1ull << 40), CUDA_SUCCESS);
	assert_string_equal(note, "limit 2 1099511627776");
	assert_string_equal(client, "cuCtxSetLimit needs 2 ptds 0;");
	assert_int_equal(cuCtxResetPersistingL2Cache(), CUDA_SUCCESS);
	assert_string_equal(note, "l2");
}

static void test_a_birth_is_the_client_s(void **state)
{
	CUevent event = NULL;

	(void)state;
	assert_int_equal(cuEventCreate(NULL, 3), CUDA_ERROR_INVALID_VALUE);
	assert_string_equal(note, "");
	assert_int_equal(cuEventCreate(&event, 3), CUDA_SUCCESS);
	assert_string_equal(note, "create 3");
	assert_int_equal((uintptr_t)event, handle_make(OBJECT_EVENT, 1, 1));

	void *found = NULL;

	assert_true(object_get(&worker, OBJECT_EVENT, (uintptr_t)event, false, &found));
	assert_ptr_equal(found, (void *)0xe0);
	assert_int_equal(cuEventDestroy(event), CUDA_SUCCESS);
	assert_string_equal(note, "destroy 0xe0");
	assert_non_null(strstr(client, "cuEventDestroy needs 2 ptds 0; dead 0x54"));
	assert_false(object_get(&worker, OBJECT_EVENT, (uintptr_t)event, false, &found));
}

static void test_a_birth_that_is_not_sent_is_undone(void **state)
{
	CUevent event = (CUevent)1;

	(void)state;
	open_fails = true;
	assert_int_equal(cuEventCreate(&event, 0), CUDA_ERROR_DEVICE_UNAVAILABLE);
	assert_ptr_equal(event, (CUevent)1);
	assert_non_null(strstr(client, " dead "));
	assert_string_equal(note, "");
}

static void test_a_birth_that_has_no_room_breaks_the_session(void **state)
{
	CUevent event;

	(void)state;
	worker.full = true;
	assert_int_equal(cuEventCreate(&event, 0), CUDA_SUCCESS);
	assert_int_equal(ran, CMD_BROKEN);
	assert_string_equal(note, "destroy 0xe0");
}

static void test_a_birth_that_fails_is_not_remembered(void **state)
{
	CUevent event;
	void *found;

	(void)state;
	drv_result = CUDA_ERROR_OUT_OF_MEMORY;
	assert_int_equal(cuEventCreate(&event, 0), CUDA_SUCCESS);
	assert_int_equal(ran, CUDA_ERROR_OUT_OF_MEMORY);
	assert_false(object_get(&worker, OBJECT_EVENT, (uintptr_t)event, false, &found));
}

static void test_streams_are_resolved(void **state)
{
	uint64_t event = object(OBJECT_EVENT, 4, 0xe4);
	uint64_t stream = object(OBJECT_STREAM, 5, 0x55);

	(void)state;
	assert_int_equal(cuEventRecord((CUevent)event, (CUstream)stream), CUDA_SUCCESS);
	assert_string_equal(note, "record 0xe4 0x55");
	assert_int_equal(payload[0], stream);
	assert_int_equal(cuEventRecord_ptsz((CUevent)event, NULL), CUDA_SUCCESS);
	assert_string_equal(note, "record 0xe4 (nil)");
	assert_string_equal(client, "cuEventRecord_ptsz needs 2 ptds 1;");
	assert_int_equal(cuStreamCopyAttributes((CUstream)stream, NULL), CUDA_SUCCESS);
	assert_string_equal(note, "copy 0x55 (nil)");
}

static void test_an_object_tells_the_context_where_none_is_current(void **state)
{
	CUevent event = NULL;

	(void)state;
	contextless = true;
	assert_int_equal(cuEventRecord((CUevent)0x99, (CUstream)0x1235), CUDA_ERROR_INVALID_CONTEXT);
	/* Of two objects the stream. */
	assert_int_equal(looked_for, 0x1235);
	/* Without an object there is nothing to look for. */
	looked_for = 0;
	assert_int_equal(cuEventCreate(&event, 0), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(looked_for, 0);
	assert_int_equal(cuEventDestroy((CUevent)0x1235), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(looked_for, 0x1235);
	assert_string_equal(note, "");
}

static void test_handles_are_checked_at_both_ends(void **state)
{
	uint64_t stream = object(OBJECT_STREAM, 5, 0x55);

	(void)state;
	assert_int_equal(cuEventRecord((CUevent)stream, NULL), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(cuEventRecord(NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
	/* One that the worker does not have. */
	assert_int_equal(cuEventRecord((CUevent)handle_make(OBJECT_EVENT, 1, 77), NULL), CUDA_SUCCESS);
	assert_int_equal(ran, CUDA_ERROR_INVALID_HANDLE);
	assert_string_equal(note, "");
}

static void test_answers_come_back(void **state)
{
	CUevent first = (CUevent)object(OBJECT_EVENT, 1, 0xe1);
	CUevent second = (CUevent)object(OBJECT_EVENT, 2, 0xe2);
	float milliseconds = 0;

	(void)state;
	assert_int_equal(cuEventElapsedTime(NULL, first, second), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuEventElapsedTime(&milliseconds, first, second), CUDA_SUCCESS);
	assert_true(milliseconds == 2.5f);
	assert_string_equal(note, "elapsed 0xe1 0xe2");
	milliseconds = -1;
	drv_result = CUDA_ERROR_NOT_READY;
	assert_int_equal(cuEventElapsedTime(&milliseconds, first, second), CUDA_ERROR_NOT_READY);
	assert_true(milliseconds == -1);
}

static void test_strings_and_answers_that_nobody_wants(void **state)
{
	CUmodule module = (CUmodule)object(OBJECT_MODULE, 1, 0x40);
	CUdeviceptr address = 0;
	size_t size = 0;

	(void)state;
	assert_int_equal(cuModuleGetGlobal_v2(&address, &size, module, "eight888"), CUDA_SUCCESS);
	assert_string_equal(note, "global 0x40 eight888");
	assert_int_equal(address, 0x200000000000);
	assert_int_equal(size, 12);
	assert_int_equal(cuModuleGetGlobal_v2(&address, NULL, NULL, ""), CUDA_SUCCESS);
	assert_string_equal(note, "global (nil) ");
	assert_int_equal(cuModuleGetGlobal_v2(NULL, NULL, NULL, "x"), CUDA_SUCCESS);
	assert_int_equal(cuModuleGetGlobal_v2(&address, &size, module, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuModuleGetGlobal_v2(&address, &size, module, "nine99999"), CUDA_ERROR_INVALID_VALUE);
}

static void test_numbers_as_handles(void **state)
{
	uint64_t handle = object(OBJECT_VMM, 3, 123);
	void *found;

	(void)state;
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
	assert_string_equal(note, "release 123");
	assert_string_equal(client, "cuMemRelease needs 1 ptds 0; dead 0x5510000090000030");
	assert_false(object_get(&worker, OBJECT_VMM, handle, false, &found));
}

static void test_devices_are_translated(void **state)
{
	CUkernel kernel = (CUkernel)object(OBJECT_KERNEL, 1, 0x77);

	(void)state;
	assert_int_equal(cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_L1, 1), CUDA_SUCCESS);
	assert_string_equal(note, "cache 0x77 2 of 3");
	assert_int_equal(cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_L1, 2), CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_L1, -1), CUDA_ERROR_INVALID_DEVICE);
}

static void test_refusals_say_why(void **state)
{
	(void)state;
	assert_int_equal(cuProfilerStart(), CUDA_ERROR_NOT_SUPPORTED);
	assert_string_equal(client, "cuProfilerStart: a reason");
	assert_int_equal(cuCtxGetCurrent(NULL), CUDA_ERROR_NOT_SUPPORTED);
	assert_string_equal(client, "cuCtxGetCurrent: not built yet");
	assert_int_equal(cuEventQuery((CUevent)1), CUDA_ERROR_NOT_READY);
}

static void test_handlers_by_hand(void **state)
{
	struct call call = { .op = OP_gleamEcho };
	struct msg_gleamEcho m = { .text = "sixteen letters", .text_size = 16 };
	struct ans_gleamEcho a;

	(void)state;
	call.w = writer_on(payload, sizeof(payload));
	msg_gleamEcho_put(&call.w, &m);
	assert_int_equal(run(&call, 0), CMD_BROKEN); /* its bulk part is not there */
	assert_int_equal(run(&call, FRAME_BULK_UP), CUDA_SUCCESS);
	assert_true(ans_gleamEcho_get(&call.r, &a));
	assert_int_equal(a.echo_size, 16);
	assert_string_equal(a.echo, "sixteen letters");

	uint64_t words[] = { 1, 2, 3, 4 };
	struct msg_gleamLater later = { .words = words, .words_count = 4, .block = "ab", .count = 9 };

	call = (struct call){ .op = OP_gleamLater, .w = writer_on(payload, sizeof(payload)) };
	msg_gleamLater_put(&call.w, &later);
	assert_int_equal(run(&call, 0), CUDA_ERROR_NOT_SUPPORTED);
}

static void test_broken_frames_are_seen(void **state)
{
	(void)state;
	for (unsigned op = 0; op < OP_MAX; op++) {
		if (!op_info[op].name || op == OP_cuCtxResetPersistingL2Cache)
			continue;
		memset(payload, 0xff, sizeof(payload));

		struct frame_hdr hdr = { .op = (uint16_t)op, .flags = FRAME_BULK_UP };
		struct cmd cmd = { .hdr = &hdr };

		for (size_t size = 0; size < sizeof(payload); size += 3) {
			struct reader r = reader_on(payload, size);
			struct writer ans = writer_on(answer, sizeof(answer));
			CUresult result = worker_handlers[op](&worker, &cmd, &r, &ans);

			assert_true(result == CMD_BROKEN || result == CUDA_ERROR_INVALID_HANDLE ||
				    op_info[op].flags == OP_AGAIN || op == OP_cuEventCreate);
		}
	}
}

static void test_ops_and_addresses_are_listed(void **state)
{
	(void)state;
	assert_int_equal(op_info[OP_cuEventCreate].flags, OP_BIRTH);
	assert_int_equal(op_info[OP_cuEventRecord].flags, OP_SCOPE_STREAM);
	assert_int_equal(op_info[OP_cuEventElapsedTime].flags, OP_HAS_REPLY | OP_AGAIN);
	assert_int_equal(op_info[OP_gleamEcho].flags, OP_HAS_REPLY | OP_BULK_UP | OP_INTERNAL);
	assert_int_equal(op_info[OP_gleamEcho].api, OP_NO_API);
	assert_int_equal(op_info[OP_cuEventRecord].api, API_cuEventRecord);
	for (unsigned i = 0; i < PROC_COUNT; i++) {
		if (i)
			assert_true(strcmp(proc_table[i - 1].base, proc_table[i].base) <= 0);
		if (!strcmp(proc_table[i].name, "cuEventRecord_ptsz")) {
			assert_ptr_equal(proc_table[i].address, (void *)cuEventRecord_ptsz);
			assert_int_equal(proc_table[i].kind, PROC_PTSZ);
			assert_int_equal(proc_table[i].since, 7000);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_numbers_reach_the_driver, start),
		cmocka_unit_test_setup(test_a_birth_is_the_client_s, start),
		cmocka_unit_test_setup(test_a_birth_that_is_not_sent_is_undone, start),
		cmocka_unit_test_setup(test_a_birth_that_has_no_room_breaks_the_session, start),
		cmocka_unit_test_setup(test_a_birth_that_fails_is_not_remembered, start),
		cmocka_unit_test_setup(test_streams_are_resolved, start),
		cmocka_unit_test_setup(test_an_object_tells_the_context_where_none_is_current, start),
		cmocka_unit_test_setup(test_handles_are_checked_at_both_ends, start),
		cmocka_unit_test_setup(test_answers_come_back, start),
		cmocka_unit_test_setup(test_strings_and_answers_that_nobody_wants, start),
		cmocka_unit_test_setup(test_numbers_as_handles, start),
		cmocka_unit_test_setup(test_devices_are_translated, start),
		cmocka_unit_test_setup(test_refusals_say_why, start),
		cmocka_unit_test_setup(test_handlers_by_hand, start),
		cmocka_unit_test_setup(test_broken_frames_are_seen, start),
		cmocka_unit_test_setup(test_ops_and_addresses_are_listed, start),
	};

	return cmocka_run_group_tests_name("loopback", tests, NULL, NULL);
}
