// SPDX-License-Identifier: Apache-2.0
/*
 * Loads: what is refused here, what is sent, what is remembered, and what comes back into the caller's memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "broker/lib/fatbin.h"
#include "libgleamcuda/image.h"
#include "libgleamcuda/program.h"
#include "tests/unit/fake_call.h"

static const struct fake_function two[] = {
	{ .name = "first", .param_count = 1, .params = { { 0, 8 } }, .attributes = { 1024 } },
	{ .name = "second", .param_count = 2, .params = { { 0, 4 }, { 8, 8 } }, .attributes = { 1024 } },
};

/* Each test its own text: what is remembered of one must not answer another. */
#define TEXT(name) FAKE_PTX "// " name "\n"

static CUresult load(const void *image, CUmodule *module)
{
	struct call call = fake_call();

	return do_cuModuleLoadData(&call, module, image);
}

static int setup(void **state)
{
	fake_reset();
	fake_worker.functions = two;
	fake_worker.function_count = 2;
	return 0;
}

static int teardown(void **state)
{
	fake_check_balance();
	return 0;
}

/* ---- refused here ---- */

static void test_bad_images_cost_no_trip(void **state)
{
	struct call call = fake_call();
	uint8_t *foreign, *container;
	size_t size;
	CUmodule m;

	assert_int_equal(load(NULL, &m), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(load("x", NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(load("", &m), CUDA_ERROR_INVALID_IMAGE);
	assert_int_equal(load("garbage", &m), CUDA_ERROR_INVALID_IMAGE);

	foreign = fake_cubin(100, &size);
	assert_int_equal(load(foreign, &m), CUDA_ERROR_NO_BINARY_FOR_GPU);
	container = fake_container(&(struct fake_entry){ 2, 100, 0, foreign, (uint32_t)size }, 1, &size);
	assert_int_equal(load(container, &m), CUDA_ERROR_NO_BINARY_FOR_GPU);
	container[4] = 9; /* version */
	assert_int_equal(load(container, &m), CUDA_ERROR_INVALID_IMAGE);
	container[4] = 1;
	memset(container + 8, 0xff, 8); /* longer than anything */
	assert_int_equal(load(container, &m), CUDA_ERROR_INVALID_IMAGE);
	memset(container + 8, 0, 8); /* no entry */
	assert_int_equal(load(container, &m), CUDA_ERROR_NO_BINARY_FOR_GPU);
	free(container);
	foreign[18] = 62; /* machine */
	assert_int_equal(load(foreign, &m), CUDA_ERROR_INVALID_IMAGE);
	free(foreign);

	assert_int_equal(do_cuModuleLoad(&call, &m, "/nonexistent"), CUDA_ERROR_FILE_NOT_FOUND);
	assert_int_equal(do_cuModuleLoad(&call, &m, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuModuleLoad(&call, &m, "/tmp"), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(fake_worker.trips, 0);
	assert_int_equal(fake_worker.last_seq, 0);
}

/* ---- chosen and sent ---- */

static void entry_that_fits(void)
{
	static const char ptx[] = TEXT("fits");
	size_t size80, size90, size100, size;
	uint8_t *c80 = fake_cubin(80, &size80), *c90 = fake_cubin(90, &size90), *c100 = fake_cubin(100, &size100);
	const struct fake_entry entries[] = {
		{ 2, 80, 0, c80, (uint32_t)size80 },	   { 2, 90, 0, c90, (uint32_t)size90 },
		{ 2, 100, 0, c100, (uint32_t)size100 }, { 1, 80, 0, ptx, sizeof(ptx) },
	};
	uint8_t *container = fake_container(entries, 4, &size);
	struct fatbin_entry entry;
	struct fatbin_iter iter;
	struct {
		uint32_t magic, version;
		const void *data;
		void *extra;
	} wrapper = { FATBIN_WRAPPER_MAGIC, 1, container, NULL };
	CUmodule m;

	assert_int_equal(load(&wrapper, &m), CUDA_SUCCESS);
	assert_int_equal(fake_worker.image_kind, IMAGE_CONTAINER);
	fatbin_iter_init(&iter, fake_worker.image, fake_worker.image_size);
	assert_int_equal(fatbin_iter_next(&iter, &entry), 1);
	assert_int_equal(entry.kind, FATBIN_KIND_ELF);
	assert_int_equal(entry.arch, 90);
	assert_memory_equal(entry.payload, c90, size90);
	assert_int_equal(fatbin_iter_next(&iter, &entry), 0);
	free(container);

	/* Without a cubin that fits, the PTX. */
	container = fake_container((const struct fake_entry[]){ entries[0], entries[2], entries[3] }, 3, &size);
	assert_int_equal(load(container, &m), CUDA_SUCCESS);
	fatbin_iter_init(&iter, fake_worker.image, fake_worker.image_size);
	assert_int_equal(fatbin_iter_next(&iter, &entry), 1);
	assert_int_equal(entry.kind, FATBIN_KIND_PTX);
	assert_int_equal(fatbin_iter_next(&iter, &entry), 0);

	/* An option that changes the choice leaves it to the node. */
	CUjit_option option = CU_JIT_FALLBACK_STRATEGY;
	void *value = (void *)(uintptr_t)CU_PREFER_PTX;
	struct call call = fake_call();

	assert_int_equal(do_cuModuleLoadDataEx(&call, &m, container, 1, &option, &value), CUDA_SUCCESS);
	assert_int_equal(fake_worker.image_size, size);
	assert_memory_equal(fake_worker.image, container, size);
	free(container);
	free(c80);
	free(c90);
	free(c100);
}

static void test_large_images_go_in_parts(void **state)
{
	const size_t size = 3 * SESSION_CELL_SIZE + 5;
	char *text = malloc(size);
	CUmodule m;

	memset(text, ' ', size);
	for (size_t i = 1000; i < size; i += 997)
		text[i] = (char)('a' + i % 26);
	memcpy(text, ".version 8.0", 12);
	text[size - 1] = '\0';
	assert_int_equal(load(text, &m), CUDA_SUCCESS);
	assert_int_equal(fake_worker.counts[OP_gleamLoadPart], 4);
	assert_int_equal(fake_worker.image_size, size);
	assert_memory_equal(fake_worker.image, text, size);
	assert_int_equal(fake_worker.image_kind, IMAGE_PTX);
	free(text);
}

/* ---- remembered ---- */

static void test_a_second_load_costs_no_trip(void **state)
{
	struct call call = fake_call();
	CUmodule a, b;
	CUfunction f, g;

	assert_int_equal(load(TEXT("again"), &a), CUDA_SUCCESS);
	assert_int_equal(fake_worker.trips, 1);
	assert_int_equal(load(TEXT("again"), &b), CUDA_SUCCESS);
	assert_int_equal(fake_worker.trips, 1);
	assert_int_equal(fake_worker.counts[OP_gleamLoadAgain], 1);
	assert_ptr_not_equal(a, b);
	assert_int_equal(do_cuModuleGetFunction(&call, &f, a, "second"), CUDA_SUCCESS);
	assert_int_equal(do_cuModuleGetFunction(&call, &g, b, "second"), CUDA_SUCCESS);
	assert_ptr_not_equal(f, g);
	/* After the first is gone, too. */
	assert_int_equal(do_cuModuleUnload(&call, a), CUDA_SUCCESS);
	assert_int_equal(do_cuModuleUnload(&call, a), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(load(TEXT("again"), &a), CUDA_SUCCESS);
	assert_int_equal(fake_worker.trips, 1);
	/* One byte more is another image. */
	assert_int_equal(load(TEXT("again2"), &a), CUDA_SUCCESS);
	assert_int_equal(fake_worker.trips, 2);
}

static void test_a_load_behind_a_host_function_is_waited_for(void **state)
{
	CUmodule m;

	assert_int_equal(load(TEXT("behind"), &m), CUDA_SUCCESS);
	/* The node's driver may wait for the function before it loads, and nobody else would hold the next commands back. */
	fake_worker.host_function = true;
	assert_int_equal(load(TEXT("behind"), &m), CUDA_SUCCESS);
	fake_worker.host_function = false;
	assert_int_equal(fake_worker.trips, 2);
	assert_int_equal(fake_worker.counts[OP_gleamLoadAgain], 0);
	assert_int_equal(load(TEXT("behind"), &m), CUDA_SUCCESS);
	assert_int_equal(fake_worker.counts[OP_gleamLoadAgain], 1);
}

/* What another process was told is good for this one's first load. */
static void test_what_gleamd_knows_costs_no_trip(void **state)
{
	struct call call = fake_call();
	CUfunction f;
	CUmodule m;

	assert_int_equal(load(TEXT("kept"), &m), CUDA_SUCCESS);
	assert_int_equal(fake_worker.asked_count, 1);
	assert_int_equal(fake_worker.kept_count, 1);
	assert_int_equal(fake_worker.trips, 1);
	/* The process remembers that itself. */
	assert_int_equal(load(TEXT("kept"), &m), CUDA_SUCCESS);
	assert_int_equal(fake_worker.asked_count, 1);
	fake_worker.kept_fits = true;
	assert_int_equal(load(TEXT("kept, as another process has it"), &m), CUDA_SUCCESS);
	assert_int_equal(fake_worker.asked_count, 2);
	assert_int_equal(fake_worker.kept_count, 1);
	assert_int_equal(fake_worker.trips, 1);
	assert_int_equal(fake_worker.counts[OP_gleamLoadAgain], 2);
	assert_int_equal(do_cuModuleGetFunction(&call, &f, m, "second"), CUDA_SUCCESS);
	assert_int_equal(do_cuModuleGetFunction(&call, &f, m, "third"), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(fake_worker.trips, 1);
}

/* What is learnt of a function later is left there, too, once. */
static void test_what_is_learnt_is_left_with_gleamd(void **state)
{
	struct call call = fake_call();
	CUfunction f;
	CUmodule m;
	int value;

	fake_worker.without_attributes = true;
	assert_int_equal(load(TEXT("learnt"), &m), CUDA_SUCCESS);
	assert_int_equal(do_cuModuleGetFunction(&call, &f, m, "second"), CUDA_SUCCESS);
	for (int i = 0; i < 2; i++)
		assert_int_equal(do_cuFuncGetAttribute(&call, &value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f), CUDA_SUCCESS);
	assert_int_equal(fake_worker.more_count, 1);
	assert_string_equal(fake_worker.more_name, "second");
	assert_memory_equal(&fake_worker.more_key, &fake_worker.kept_key, sizeof(fake_worker.kept_key));
}

/* What is learnt on a GPU of another model than the load's: the layout is true for both, the attributes aren't. */
static void test_attributes_of_another_model_are_nobodys(void **state)
{
	static uint8_t text[256] __attribute__((aligned(8)));
	const struct verdict_key key = { .hash = { 11, 12 }, .size = 13 };
	struct verdict v = { .flags = VERDICT_UNLISTED };
	struct writer w = writer_on(text, sizeof(text)), head = writer_on(text, sizeof(text));
	int32_t attributes[VERDICT_ATTRIBUTES];
	struct call call = fake_call();
	struct answer_function *f;
	struct answer *answer;
	CUresult result;
	uint8_t *bytes;

	verdict_put(&w, &v);
	verdict_logs_put(&w, "", "");
	v.size = w.at;
	verdict_put(&head, &v);
	bytes = malloc(w.at);
	memcpy(bytes, text, w.at);
	answer = answer_new(bytes, w.at, &result);
	assert_non_null(answer);
	answer_store_keep(&key, answer);
	assert_int_equal(image_ask(&call, 1, answer, "second", false, &f, attributes), CUDA_SUCCESS);
	assert_true(f->has_params);
	assert_false(f->has_attributes);
	assert_int_equal(attributes[0], two[1].attributes[0]);
	assert_int_equal(fake_worker.more_count, 0);
	assert_int_equal(image_ask(&call, 1, answer, "first", true, &f, attributes), CUDA_SUCCESS);
	assert_true(f->has_params && f->has_attributes);
	assert_int_equal(fake_worker.more_count, 1);
	assert_memory_equal(&fake_worker.more_key, &key, sizeof(key));
	answer_put(answer);
}

/* A driver that was told not to compile fails where another one doesn't. */
static void test_settings_of_the_compiler_are_part_of_what_is_asked_for(void **state)
{
	static const char *const names[] = { "CUDA_FORCE_PTX_JIT", "CUDA_DISABLE_PTX_JIT", "CUDA_FORCE_JIT", "CUDA_DISABLE_JIT" };
	CUmodule m;

	assert_int_equal(load(TEXT("settings"), &m), CUDA_SUCCESS);
	for (unsigned int i = 0; i < 4; i++) {
		setenv(names[i], "1", 1);
		assert_int_equal(load(TEXT("settings"), &m), CUDA_SUCCESS);
		assert_int_equal(fake_worker.asked_count, i + 2);
		assert_int_equal(fake_worker.kept_count, i + 2);
		unsetenv(names[i]);
	}
	assert_int_equal(load(TEXT("settings"), &m), CUDA_SUCCESS);
	assert_int_equal(fake_worker.asked_count, 5);
	assert_int_equal(fake_worker.trips, 5);
}

static void test_failures_are_not_remembered(void **state)
{
	CUmodule m;

	fake_worker.load_result = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
	assert_int_equal(load(TEXT("fails"), &m), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
	assert_int_equal(fake_worker.kept_count, 0);
	fake_worker.load_result = CUDA_SUCCESS;
	assert_int_equal(load(TEXT("fails"), &m), CUDA_SUCCESS);
	assert_int_equal(fake_worker.trips, 2);
}

static void no_cubins(void)
{
	static const char ptx[] = TEXT("soft");
	size_t size90, size;
	uint8_t *c90 = fake_cubin(90, &size90);
	const struct fake_entry entries[] = { { 2, 90, 0, c90, (uint32_t)size90 }, { 1, 80, 0, ptx, sizeof(ptx) } };
	uint8_t *container = fake_container(entries, 2, &size);
	CUmodule m;

	fake_worker.refuses_cubins = true;
	assert_int_equal(load(container, &m), CUDA_SUCCESS);
	assert_int_equal(fake_worker.trips, 2);
	free(container);
	/* Known from now on. */
	container = fake_container((const struct fake_entry[]){ entries[0], { 1, 75, 0, ptx, sizeof(ptx) } }, 2, &size);
	assert_int_equal(load(container, &m), CUDA_SUCCESS);
	assert_int_equal(fake_worker.trips, 3);
	free(container);
	free(c90);
}

/* What a process learns about its device stays: in a process of their own. */
static void in_child(void (*test)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		test();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_only_the_entry_that_fits_is_sent(void **state)
{
	in_child(entry_that_fits);
}

static void test_a_device_that_runs_no_cubins_gets_ptx(void **state)
{
	in_child(no_cubins);
}

/* ---- answers ---- */

static void test_long_answers_are_asked_for_again(void **state)
{
	enum { COUNT = 3000, NAME = 1000 };
	struct fake_function *many = calloc(COUNT, sizeof(*many));
	char *names = calloc(COUNT, NAME + 1);
	struct call call = fake_call();
	unsigned int count;
	CUmodule m;

	for (int i = 0; i < COUNT; i++) {
		char *name = names + i * (NAME + 1);

		memset(name, 'n', NAME);
		memcpy(name + snprintf(name, NAME, "_Z%06d", i), "n", 1);
		many[i] = two[i % 2];
		many[i].name = name;
	}
	fake_worker.functions = many;
	fake_worker.function_count = COUNT;
	assert_int_equal(load(TEXT("long"), &m), CUDA_SUCCESS);
	assert_int_equal(fake_worker.trips, 2);
	assert_int_equal(fake_worker.counts[OP_gleamVerdict], 1);
	assert_int_equal(do_cuModuleGetFunctionCount(&call, &count, m), CUDA_SUCCESS);
	assert_int_equal(count, COUNT);
	for (int i = 0; i < COUNT; i++) {
		CUfunction f;
		const char *name;

		assert_int_equal(do_cuModuleGetFunction(&call, &f, m, many[i].name), CUDA_SUCCESS);
		assert_int_equal(do_cuFuncGetName(&call, &name, f), CUDA_SUCCESS);
		assert_string_equal(name, many[i].name);
	}
	assert_int_equal(fake_worker.trips, 2);
	assert_int_equal(do_cuModuleUnload(&call, m), CUDA_SUCCESS);
	free(many);
	free(names);
}

static void test_unlisted_functions_are_asked_for_once(void **state)
{
	struct call call = fake_call();
	CUfunction f, g;
	unsigned int count;
	size_t offset, size;
	CUmodule m;

	fake_worker.unlisted = true;
	assert_int_equal(load(TEXT("unlisted"), &m), CUDA_SUCCESS);
	assert_int_equal(do_cuModuleGetFunction(&call, &f, m, "third"), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(do_cuModuleGetFunction(&call, &f, m, "second"), CUDA_SUCCESS);
	assert_int_equal(fake_worker.trips, 3);
	assert_int_equal(do_cuModuleGetFunction(&call, &g, m, "second"), CUDA_SUCCESS);
	assert_ptr_equal(f, g);
	assert_int_equal(do_cuFuncGetParamInfo(&call, f, 1, &offset, &size), CUDA_SUCCESS);
	assert_int_equal(offset, 8);
	assert_int_equal(fake_worker.trips, 3);
	assert_int_equal(do_cuModuleGetFunctionCount(&call, &count, m), CUDA_ERROR_NOT_SUPPORTED);
}

static void test_attributes_that_did_not_come_cost_one_trip(void **state)
{
	struct call call = fake_call();
	CUfunction f;
	CUmodule m;
	int value;

	fake_worker.without_attributes = true;
	assert_int_equal(load(TEXT("without"), &m), CUDA_SUCCESS);
	assert_int_equal(do_cuModuleGetFunction(&call, &f, m, "first"), CUDA_SUCCESS);
	assert_int_equal(fake_worker.trips, 1);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(do_cuFuncGetAttribute(&call, &value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f),
				 CUDA_SUCCESS);
		assert_int_equal(value, 1024);
	}
	assert_int_equal(fake_worker.trips, 2);
}

/* Every truncation of an answer, and answers that would lead a launch outside of its block. */
static void test_malformed_answers_are_refused(void **state)
{
	static uint8_t blob[4096] __attribute__((aligned(8)));
	struct verdict_function f;
	struct writer w = writer_on(blob, sizeof(blob));
	struct verdict v = { .function_count = 2 };
	char text[200];
	CUmodule m;

	verdict_put(&w, &v);
	verdict_logs_put(&w, "", "");
	for (int i = 0; i < 2; i++)
		verdict_function_put(&w, two[i].name, two[i].params, two[i].param_count,
				     VERDICT_HAS_PARAMS | VERDICT_HAS_ATTRIBUTES, two[i].attributes);
	for (size_t size = 0; size < w.at; size++) {
		v.size = size;
		w = (struct writer){ .start = blob, .size = sizeof(blob), .at = w.at };

		struct writer head = writer_on(blob, VERDICT_HEADER_SIZE);

		verdict_put(&head, &v);
		fake_worker.raw = blob;
		fake_worker.raw_size = size;
		snprintf(text, sizeof(text), TEXT("truncated %zu"), size);
		assert_int_equal(load(text, &m), CUDA_ERROR_UNKNOWN);
		fake_check_balance();
	}
	for (int bad = 0; bad < 3; bad++) {
		const struct verdict_param params[] = { { 0, 8 }, { bad == 0 ? 32760 : bad == 1 ? 0xfffffff8 : 0, bad == 2 ? 0xffffffff : 8 } };

		w = writer_on(blob, sizeof(blob));
		v.function_count = 1;
		verdict_put(&w, &v);
		verdict_logs_put(&w, "", "");
		verdict_function_put(&w, "f", params, 2, VERDICT_HAS_PARAMS, NULL);
		v.size = w.at;
		w = writer_on(blob, VERDICT_HEADER_SIZE);
		verdict_put(&w, &v);
		fake_worker.raw_size = v.size;
		snprintf(text, sizeof(text), TEXT("layout %d"), bad);
		assert_int_equal(load(text, &m), CUDA_ERROR_UNKNOWN);
	}
	(void)f;
	/* A worker that loaded what we can't use is told to drop it. */
	assert_true(fake_worker.counts[OP_cuModuleUnload] > 0);
	assert_int_equal(fake_worker.kept_count, 0);
}

/* ---- JIT options (P-016) ---- */

static void jit_check(size_t size, CUresult want)
{
	static char info[200], error[200];
	CUjit_option options[] = { CU_JIT_INFO_LOG_BUFFER,  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
				   CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
				   CU_JIT_WALL_TIME,	    CU_JIT_MAX_REGISTERS };
	void *values[] = { info, (void *)size, error, (void *)size, (void *)0xaaaaaaaabbbbbbbbul, (void *)32 };
	struct call call = fake_call();
	struct reader r;
	float time;
	CUmodule m;

	memset(info, 0xaa, sizeof(info));
	memset(error, 0xaa, sizeof(error));
	assert_int_equal(do_cuModuleLoadDataEx(&call, &m, TEXT("jit"), 6, options, values), want);
	/* As measured: the text is cut and ended, its size without the end or the buffer's. */
	assert_int_equal((uintptr_t)values[1], 0);
	assert_int_equal((uintptr_t)values[3], size > 100 ? 100 : size);
	assert_int_equal((uint8_t)error[size], 0xaa);
	if (size) {
		assert_int_equal(info[0], 0);
		assert_int_equal(strlen(error), size > 100 ? 100 : size - 1);
	}
	memcpy(&time, &values[4], 4);
	assert_true(time == 1.5f);
	assert_int_equal((uintptr_t)values[4] >> 32, 0xaaaaaaaa);
	assert_int_equal((uintptr_t)values[5], 32);
	/* Values travel, buffers don't. */
	assert_int_equal(fake_worker.options_size, 4 * 16);
	r = reader_on(fake_worker.options, fake_worker.options_size);
	assert_int_equal(get_u32(&r), CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
	assert_int_equal(get_u32(&r), 0);
	/* All of the text is asked for: it is cut here. */
	assert_int_equal(get_u64(&r), size ? VERDICT_LOG - 1 : 0);
}

static void test_jit_options_go_out_and_come_back(void **state)
{
	char text[101];
	float time = 1.5f;

	memset(text, 'e', 100);
	text[100] = '\0';
	fake_worker.error = text;
	memcpy(&fake_worker.wall_time, &time, 4);
	for (int bad = 0; bad < 2; bad++) {
		fake_worker.load_result = bad ? CUDA_ERROR_INVALID_PTX : CUDA_SUCCESS;
		jit_check(0, fake_worker.load_result);
		jit_check(1, fake_worker.load_result);
		jit_check(64, fake_worker.load_result);
		jit_check(100, fake_worker.load_result);
		jit_check(150, fake_worker.load_result);
	}
	/* Loads that tell something always ask. */
	assert_int_equal(fake_worker.trips, 10);
}

static void test_bad_jit_options(void **state)
{
	struct call call = fake_call();
	CUjit_option option = 99;
	void *value = NULL;
	CUmodule m;

	assert_int_equal(do_cuModuleLoadDataEx(&call, &m, TEXT("o"), 1, &option, &value), CUDA_ERROR_INVALID_VALUE);
	option = CU_JIT_INFO_LOG_BUFFER;
	assert_int_equal(do_cuModuleLoadDataEx(&call, &m, TEXT("o"), 1, &option, &value), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuModuleLoadDataEx(&call, &m, TEXT("o"), 1, NULL, &value), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuModuleLoadDataEx(&call, &m, TEXT("o"), 1, &option, NULL), CUDA_ERROR_INVALID_VALUE);
	option = CU_JIT_TARGET;
	value = (void *)12345;
	assert_int_equal(do_cuModuleLoadDataEx(&call, &m, TEXT("o"), 1, &option, &value), CUDA_ERROR_INVALID_VALUE);
	option = CU_JIT_GLOBAL_SYMBOL_NAMES;
	assert_int_equal(do_cuModuleLoadDataEx(&call, &m, TEXT("o"), 1, &option, &value), CUDA_ERROR_NOT_SUPPORTED);
	option = CU_JIT_OPTIMIZATION_LEVEL;
	value = (void *)4;
	assert_int_equal(do_cuModuleLoadDataEx(&call, &m, TEXT("o"), 1, &option, &value), CUDA_SUCCESS);
	assert_int_equal(fake_worker.trips, 1);
}

/* ---- files ---- */

static void test_files_are_read_whole(void **state)
{
	char path[] = "/tmp/gleam-test-image-XXXXXX";
	int fd = mkstemp(path);
	static const char text[] = TEXT("file");
	struct call call = fake_call();
	uint8_t *cubin;
	size_t size;
	CUmodule m;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
	assert_int_equal(do_cuModuleLoad(&call, &m, path), CUDA_SUCCESS);
	assert_int_equal(fake_worker.image_size, sizeof(text));
	assert_memory_equal(fake_worker.image, text, sizeof(text));
	/* A file that ends before its image does. */
	cubin = fake_cubin(90, &size);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(pwrite(fd, cubin, size - 8, 0), (ssize_t)size - 8);
	assert_int_equal(do_cuModuleLoad(&call, &m, path), CUDA_ERROR_INVALID_IMAGE);
	assert_int_equal(pwrite(fd, cubin, size, 0), (ssize_t)size);
	assert_int_equal(do_cuModuleLoad(&call, &m, path), CUDA_SUCCESS);
	assert_int_equal(fake_worker.image_kind, IMAGE_CUBIN);
	free(cubin);
	close(fd);
	unlink(path);
}

/* ---- libraries ---- */

static CUresult load_library(const void *image, CUlibrary *library)
{
	struct call call = fake_call();
	CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
	void *value = (void *)1;

	return do_cuLibraryLoadData(&call, library, image, NULL, NULL, 0, &option, &value, 1);
}

static void test_a_bad_library_shows_when_it_is_used(void **state)
{
	struct call call = fake_call();
	uint8_t *foreign;
	size_t size;
	unsigned int count;
	CUdeviceptr address;
	CUlibrary library;
	CUkernel kernel;

	/* The real driver takes all of these. */
	assert_int_equal(load_library("garbage", &library), CUDA_SUCCESS);
	assert_int_equal(do_cuLibraryGetKernel(&call, &kernel, library, "first"), CUDA_ERROR_INVALID_IMAGE);
	assert_int_equal(do_cuLibraryGetKernelCount(&call, &count, library), CUDA_ERROR_INVALID_IMAGE);
	assert_int_equal(do_cuLibraryGetGlobal(&call, &address, NULL, library, "v"), CUDA_ERROR_INVALID_IMAGE);
	assert_int_equal(do_cuLibraryUnload(&call, library), CUDA_SUCCESS);
	assert_int_equal(fake_worker.counts[OP_cuLibraryUnload], 0);
	foreign = fake_cubin(80, &size);
	assert_int_equal(load_library(foreign, &library), CUDA_SUCCESS);
	assert_int_equal(do_cuLibraryGetKernel(&call, &kernel, library, "first"), CUDA_ERROR_NO_BINARY_FOR_GPU);
	free(foreign);
	fake_worker.load_result = CUDA_ERROR_INVALID_PTX;
	assert_int_equal(load_library(TEXT("bad library"), &library), CUDA_SUCCESS);
	assert_int_equal(do_cuLibraryGetKernel(&call, &kernel, library, "first"), CUDA_ERROR_INVALID_PTX);
	/* As a lazy driver has it: loaded, empty, and the reason comes when a kernel is wanted. */
	fake_worker.load_result = CUDA_SUCCESS;
	fake_worker.function_count = 0;
	fake_worker.info_result = CUDA_ERROR_INVALID_PTX;
	assert_int_equal(load_library(TEXT("empty library"), &library), CUDA_SUCCESS);
	assert_int_equal(do_cuLibraryGetKernel(&call, &kernel, library, "first"), CUDA_ERROR_INVALID_PTX);
	assert_int_equal(do_cuLibraryGetKernel(&call, &kernel, NULL, "first"), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(load_library(NULL, &library), CUDA_ERROR_INVALID_VALUE);
}

static void test_library_objects_relate_as_the_drivers_do(void **state)
{
	struct call call = fake_call();
	CUlibrary library, other;
	CUkernel k, k2;
	CUfunction f, f2, g;
	CUmodule m, m2;
	const char *name;
	size_t offset, size;

	assert_int_equal(load_library(TEXT("relations"), &library), CUDA_SUCCESS);
	assert_int_equal(do_cuLibraryGetKernel(&call, &k, library, "nope"), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(do_cuLibraryGetKernel(&call, &k, library, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuLibraryGetKernel(&call, &k, library, "second"), CUDA_SUCCESS);
	assert_int_equal(do_cuLibraryGetKernel(&call, &k2, library, "second"), CUDA_SUCCESS);
	assert_ptr_equal(k, k2);
	assert_int_equal(do_cuKernelGetFunction(&call, &f, k), CUDA_SUCCESS);
	assert_int_equal(do_cuKernelGetFunction(&call, &f2, k), CUDA_SUCCESS);
	assert_ptr_equal(f, f2);
	assert_int_equal(fake_worker.counts[OP_cuKernelGetFunction], 1);
	assert_int_equal(do_cuLibraryGetModule(&call, &m, library), CUDA_SUCCESS);
	assert_int_equal(do_cuLibraryGetModule(&call, &m2, library), CUDA_SUCCESS);
	assert_ptr_equal(m, m2);
	assert_int_equal(do_cuModuleGetFunction(&call, &f2, m, "second"), CUDA_SUCCESS);
	assert_ptr_equal(f, f2);
	assert_int_equal(do_cuFuncGetModule(&call, &m2, f), CUDA_SUCCESS);
	assert_ptr_equal(m, m2);
	assert_int_equal(do_cuModuleUnload(&call, m), CUDA_ERROR_NOT_PERMITTED);
	assert_int_equal(do_cuKernelGetLibrary(&call, &other, k), CUDA_SUCCESS);
	assert_ptr_equal(other, library);
	assert_int_equal(do_cuKernelGetName(&call, &name, k), CUDA_SUCCESS);
	assert_string_equal(name, "second");
	assert_int_equal(do_cuFuncGetName(&call, &name, (CUfunction)k), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(do_cuKernelGetName(&call, &name, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuKernelGetParamInfo(&call, k, 1, &offset, &size), CUDA_SUCCESS);
	assert_int_equal(offset, 8);
	assert_int_equal(size, 8);
	assert_int_equal(do_cuKernelGetParamInfo(&call, k, 2, &offset, &size), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuKernelGetParamInfo(&call, k, 0, NULL, NULL), CUDA_ERROR_INVALID_VALUE);

	/* Another context has functions of its own. */
	call.context = &fake_contexts[1];
	assert_int_equal(do_cuKernelGetFunction(&call, &g, k), CUDA_SUCCESS);
	assert_ptr_not_equal(f, g);
	/* When it ends they end; library and kernel live on. */
	fake_contexts[1].active = 0;
	programs_context_gone(&fake_contexts[1]);
	fake_contexts[1].epoch++;
	fake_contexts[1].active = 1;
	assert_int_equal(do_cuFuncGetName(&call, &name, g), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(do_cuFuncGetName(&call, &name, f), CUDA_SUCCESS);
	assert_int_equal(do_cuKernelGetFunction(&call, &f2, k), CUDA_SUCCESS);
	assert_ptr_not_equal(g, f2);
	call.context = NULL;
	assert_int_equal(do_cuKernelGetParamInfo(&call, k, 0, &offset, &size), CUDA_ERROR_INVALID_CONTEXT);

	call = fake_call();
	assert_int_equal(do_cuLibraryUnload(&call, library), CUDA_SUCCESS);
	assert_int_equal(do_cuLibraryUnload(&call, library), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(do_cuKernelGetName(&call, &name, k), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(do_cuFuncGetName(&call, &name, f), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(do_cuModuleGetFunction(&call, &f, m, "second"), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(fake_worker.trips, 1);
}

static unsigned int each_count;

static void each(void *user, CUfunction f)
{
	assert_ptr_equal(user, &each_count);
	assert_non_null(f);
	each_count++;
}

static void test_functions_are_listed(void **state)
{
	struct call call = fake_call();
	CUfunction listed[4] = { 0 }, f;
	unsigned int count;
	CUmodule m;

	assert_int_equal(load(TEXT("listed"), &m), CUDA_SUCCESS);
	assert_int_equal(do_cuModuleGetFunctionCount(&call, &count, m), CUDA_SUCCESS);
	assert_int_equal(count, 2);
	assert_int_equal(do_cuModuleGetFunctionCount(&call, NULL, m), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuModuleGetFunctionCount(&call, &count, NULL), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(do_cuModuleEnumerateFunctions(&call, listed, 1, m), CUDA_SUCCESS);
	assert_non_null(listed[0]);
	assert_null(listed[1]);
	assert_int_equal(do_cuModuleEnumerateFunctions(&call, listed, 4, m), CUDA_SUCCESS);
	assert_null(listed[2]);
	assert_int_equal(do_cuModuleGetFunction(&call, &f, m, "second"), CUDA_SUCCESS);
	assert_ptr_equal(f, listed[1]);
	assert_int_equal(do_cuModuleEnumerateFunctions(&call, NULL, 4, m), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(module_each_function(m, each, &each_count), CUDA_SUCCESS);
	assert_int_equal(each_count, 2);
	assert_int_equal(fake_worker.trips, 1);
}

static void test_variables_are_asked_for_once(void **state)
{
	struct call call = fake_call();
	CUdeviceptr address = 0;
	size_t size = 0;
	CUmodule m;

	assert_int_equal(load(TEXT("variables"), &m), CUDA_SUCCESS);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(do_cuModuleGetGlobal_v2(&call, &address, &size, m, "counter"), CUDA_SUCCESS);
		assert_int_equal(address, 0x7000000);
		assert_int_equal(size, 4);
	}
	assert_int_equal(do_cuModuleGetGlobal_v2(&call, NULL, &size, m, "counter"), CUDA_SUCCESS);
	assert_int_equal(fake_worker.trips, 2);
	assert_int_equal(do_cuModuleGetGlobal_v2(&call, &address, &size, m, "other"), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(do_cuModuleGetGlobal_v2(&call, NULL, NULL, m, "counter"), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuModuleGetGlobal_v2(&call, &address, &size, NULL, "counter"), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(do_cuModuleUnload(&call, m), CUDA_SUCCESS);
}

/* The store forgets the oldest, and says nothing wrong when it is full. */
static void test_the_store_is_bounded(void **state)
{
	char text[100];
	CUmodule m;
	struct call call = fake_call();

	for (int i = 0; i < 5000; i++) {
		snprintf(text, sizeof(text), TEXT("store %d"), i);
		assert_int_equal(load(text, &m), CUDA_SUCCESS);
		assert_int_equal(do_cuModuleUnload(&call, m), CUDA_SUCCESS);
	}
	assert_int_equal(fake_worker.trips, 5000);
	snprintf(text, sizeof(text), TEXT("store %d"), 4999);
	assert_int_equal(load(text, &m), CUDA_SUCCESS);
	assert_int_equal(fake_worker.trips, 5000);
	snprintf(text, sizeof(text), TEXT("store %d"), 0);
	assert_int_equal(load(text, &m), CUDA_SUCCESS);
	assert_int_equal(fake_worker.trips, 5001);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_bad_images_cost_no_trip),
		TEST(test_only_the_entry_that_fits_is_sent),
		TEST(test_a_device_that_runs_no_cubins_gets_ptx),
		TEST(test_large_images_go_in_parts),
		TEST(test_a_second_load_costs_no_trip),
		TEST(test_a_load_behind_a_host_function_is_waited_for),
		TEST(test_what_gleamd_knows_costs_no_trip),
		TEST(test_what_is_learnt_is_left_with_gleamd),
		TEST(test_attributes_of_another_model_are_nobodys),
		TEST(test_settings_of_the_compiler_are_part_of_what_is_asked_for),
		TEST(test_failures_are_not_remembered),
		TEST(test_long_answers_are_asked_for_again),
		TEST(test_unlisted_functions_are_asked_for_once),
		TEST(test_attributes_that_did_not_come_cost_one_trip),
		TEST(test_malformed_answers_are_refused),
		TEST(test_jit_options_go_out_and_come_back),
		TEST(test_bad_jit_options),
		TEST(test_files_are_read_whole),
		TEST(test_a_bad_library_shows_when_it_is_used),
		TEST(test_library_objects_relate_as_the_drivers_do),
		TEST(test_functions_are_listed),
		TEST(test_variables_are_asked_for_once),
		TEST(test_the_store_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
