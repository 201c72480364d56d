// SPDX-License-Identifier: Apache-2.0
/*
 * gleam-worker as the node starts it: what it says about itself, how it ends, what it may not do; and the software GPU
 * through it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "broker/proto/verdict.h"
#include "tests/unit/worker_session.h"

#define LEGACY WIRE_STREAM_LEGACY

static char status[1024];

static void end_session(struct client *c)
{
	__atomic_store_n(&shm_header(&c->shm)->state, SESSION_DEAD, __ATOMIC_RELEASE);
	ring_wake_futex(c->c2n.ctl);
}

static void test_ready_and_confined(void **state)
{
	char path[64], text[4096];
	struct client c;
	pid_t pid = process_start(&c, "libfakecuda.so", NULL, status, sizeof(status));
	int fd;
	ssize_t got;

	(void)state;
	assert_string_equal(status, "R");
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	fd = open(path, O_RDONLY);
	got = read(fd, text, sizeof(text) - 1);
	close(fd);
	assert_true(got > 0);
	text[got] = '\0';
	assert_non_null(strstr(text, "NoNewPrivs:\t1"));
	assert_non_null(strstr(text, "Seccomp:\t2"));
	SEND(&c, gleamContextOpen, .index = CTX, .device = 0, .primary = 1);
	/* No attach before: it sees no device. */
	assert_int_equal(CALL(&c, gleamContextSync, NULL, .index = CTX), CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(CALL(&c, gleamContextSync, NULL, .index = CTX), CUDA_ERROR_INVALID_CONTEXT);
	end_session(&c);
	assert_int_equal(process_end(&c, pid), EXIT_DONE);
}

static void test_breach_has_a_status_of_its_own(void **state)
{
	struct client c;
	pid_t pid = process_start(&c, "libfakecuda.so", NULL, status, sizeof(status));

	(void)state;
	assert_string_equal(status, "R");
	send_frame(&c, OP_gleamMap, 0, NULL, "x", 1);
	assert_int_equal(process_end(&c, pid), EXIT_PROTOCOL);
}

static void refuses(const char *driver, const char *argument, const char *says)
{
	struct client c;
	pid_t pid = process_start(&c, driver, argument, status, sizeof(status));

	assert_int_equal(process_end(&c, pid), EXIT_START);
	if (!says)
		return;
	assert_int_equal(status[0], 'E');
	if (!strstr(status, says))
		fail_msg("the reason is: %s", status + 1);
}

static void test_reasons(void **state)
{
	(void)state;
	refuses("/nowhere/libcuda.so.1", NULL, "/nowhere/libcuda.so.1");
	refuses("libfakeclient.so", NULL, "this is Gleam's own client library; give the real driver's path");
	refuses("/lib/x86_64-linux-gnu/libc.so.6", NULL, "lacks cuInit");
	setenv("FAKE_DEVICES", "0", 1);
	refuses("libfakecuda.so", NULL, "shows no GPU");
	unsetenv("FAKE_DEVICES");
	refuses("libfakecuda.so", "--no-such-option", NULL);
}

/* A worker whose node has died ends, also while nothing happens. */
static void test_orphan_ends(void **state)
{
	int pipe_fds[2];
	char byte;
	pid_t middle;

	(void)state;
	assert_int_equal(pipe(pipe_fds), 0);
	middle = fork();
	if (middle == 0) {
		struct client c;

		/* The worker inherits the writing end: its end is ours to read. */
		process_start(&c, "libfakecuda.so", NULL, status, sizeof(status));
		_exit(status[0] == 'R' ? 0 : 1);
	}
	close(pipe_fds[1]);
	waitpid(middle, NULL, 0);
	alarm(30);
	assert_int_equal(read(pipe_fds[0], &byte, 1), 0);
	alarm(0);
	close(pipe_fds[0]);
}

/* ---- the software GPU ---- */

static void load_ptx(struct client *c, uint64_t module, const char *name)
{
	struct bulk_ref cells = { .offset = SESSION_CELL_SIZE, .size = SESSION_CELL_SIZE };
	struct verdict_function f;
	struct verdict v;
	const char *info, *error;
	char path[256];
	char text[65536];
	struct bulk_ref piece;
	struct seen *s;
	struct reader r;
	ssize_t size;
	int fd;

	snprintf(path, sizeof(path), "tests/cuda/kernels/%s.ptx", name);
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	size = read(fd, text, sizeof(text) - 1);
	close(fd);
	assert_true(size > 0);
	text[size++] = '\0';
	piece = up_take(c, (uint32_t)size);
	SEND(c, gleamLoadBegin, .object = module, .total_size = (uint64_t)size);
	SEND_FLAGS(c, gleamLoadPart, FRAME_BULK_UP, &piece, .object = module, .offset = 0);
	up_land(c, &piece, text);
	assert_int_equal(wait_reply(c,
				    SEND_FLAGS(c, gleamLoadImage, FRAME_WANTS_REPLY | FRAME_BULK_DOWN, &cells,
					       .object = module, .kind = 2, .total_size = (uint64_t)size),
				    &s),
			 0);
	r = reader_on(shm_down(&c->shm) + s->bulk.offset, s->bulk.size);
	assert_true(verdict_get(&r, &v));
	assert_int_equal(v.code, 0);
	assert_true(verdict_logs_get(&r, &info, &error));
	assert_true(verdict_function_get(&r, &f));
	assert_string_equal(f.name, name);
	assert_int_equal(f.flags, VERDICT_HAS_PARAMS | VERDICT_HAS_ATTRIBUTES);
	SEND(c, cuModuleGetFunction, .hfunc = function(1), .hmod = module, .name = name);
}

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

/* Printed, never judged: orders of magnitude of this machine. */
static void measure(struct client *c, uint64_t s, const uint8_t params[28])
{
	enum { LAUNCHES = 20000, SYNCS = 500 };
	double from = now_us();

	for (int i = 0; i < LAUNCHES; i++) {
		SEND(c, gleamLaunch, .stream = s, .function = function(1), .grid_x = 1, .grid_y = 1, .grid_z = 1,
		     .block_x = 32, .block_y = 1, .block_z = 1, .params = params, .params_size = 28);
		settle(c);
	}

	double sent = now_us();
	uint64_t last = SEND(c, gleamFlush, .stream = s);

	while (!reached(c, 1, last))
		;
	print_message("launch: %.2f us sent, %.2f us done\n", (sent - from) / LAUNCHES, (now_us() - from) / LAUNCHES);
	from = now_us();
	for (int i = 0; i < SYNCS; i++) {
		SEND(c, gleamLaunch, .stream = s, .function = function(1), .grid_x = 1, .grid_y = 1, .grid_z = 1,
		     .block_x = 32, .block_y = 1, .block_z = 1, .params = params, .params_size = 28);
		last = SEND_FLAGS(c, gleamStreamSync, FRAME_WANTS_REPLY, NULL, .stream = s);
		while (!have_reply(c, last))
			;
	}
	print_message("launch and synchronise: %.1f us\n", (now_us() - from) / SYNCS);
	from = now_us();
	for (int i = 0; i < SYNCS; i++) {
		last = SEND_FLAGS(c, gleamCopyDown, FRAME_WANTS_REPLY, NULL, .stream = s, .src = DEVICE_AT(c), .size = 4);
		while (!have_reply(c, last))
			;
	}
	print_message("4 bytes down: %.1f us\n", (now_us() - from) / SYNCS);
}

#define COUNT 300000u

/* @recovers: a lost context can be made again. The real driver keeps the process lost, natively too. */
static void vectors_add(const char *driver, bool recovers)
{
	struct bulk_ref snapshot_cells = { .offset = 0, .size = SESSION_CELL_SIZE };
	float *a = malloc(COUNT * sizeof(float)), *b = malloc(COUNT * sizeof(float));
	struct snapshot *snapshot = malloc(sizeof(*snapshot));
	uint64_t s, p, at[3];
	uint32_t bytes = COUNT * sizeof(float);
	uint8_t params[28];
	struct client c;
	struct seen *seen;
	struct reader r;
	pid_t pid = process_start(&c, driver, NULL, status, sizeof(status));

	if (status[0] != 'R')
		fail_msg("the worker says: %s", status);
	assert_int_equal(wait_reply(&c, SEND_FLAGS(&c, gleamAttach, FRAME_WANTS_REPLY | FRAME_BULK_DOWN, &snapshot_cells,
						   .ordinals = 1), &seen), 0);
	r = reader_on(shm_down(&c.shm) + seen->bulk.offset, seen->bulk.size);
	assert_true(snapshot_get(&r, snapshot));
	assert_int_equal(snapshot->device_count, 1);
	assert_int_equal(snapshot->mirrors_host, 1);
	print_message("%s, driver %u, %u MiB, %u TPCs\n", snapshot->devices[0].name, snapshot->driver_version,
		      (unsigned int)(snapshot->devices[0].memory >> 20), snapshot->devices[0].tpcs);
	SEND(&c, gleamContextOpen, .index = CTX, .device = 0, .primary = 1);
	p = map_memory(&c, 3ull * 2 << 20);
	load_ptx(&c, handle_make(OBJECT_MODULE, 1, 1), "vecadd");
	s = stream(&c, 1, 1);
	for (int i = 0; i < 3; i++)
		at[i] = p + (uint64_t)i * (2 << 20);
	/* Wiped before it was granted. */
	assert_int_equal(read_u32(&c, s, at[2]), 0);
	for (uint32_t i = 0; i < COUNT; i++) {
		a[i] = (float)i;
		b[i] = 0.5f * (float)i;
	}
	for (int i = 0; i < 2; i++)
		for (uint32_t done = 0; done < bytes; done += SESSION_CELL_SIZE) {
			uint32_t part = bytes - done < SESSION_CELL_SIZE ? bytes - done : SESSION_CELL_SIZE;
			struct bulk_ref piece = up_take(&c, part);

			/* One vector lands before its commands, the other after them. */
			if (i)
				up_land(&c, &piece, (uint8_t *)b + done);
			SEND_FLAGS(&c, gleamCopyUpBulk, FRAME_BULK_UP, &piece, .stream = s, .dst = at[i] + done);
			if (!i)
				up_land(&c, &piece, (uint8_t *)a + done);
		}
	memcpy(params, at, 24);
	memcpy(params + 24, &(uint32_t){ COUNT }, 4);
	for (int i = 0; i < 2000; i++)
		SEND(&c, gleamLaunch, .stream = s, .function = function(1), .grid_x = 1, .grid_y = 1, .grid_z = 1, .block_x = 32,
		     .block_y = 1, .block_z = 1, .params = params, .params_size = sizeof(params));
	uint64_t last = SEND(&c, gleamLaunch, .stream = s, .function = function(1), .grid_x = (COUNT + 255) / 256, .grid_y = 1,
			     .grid_z = 1, .block_x = 256, .block_y = 1, .block_z = 1, .params = params,
			     .params_size = sizeof(params));
	struct bulk_ref cells = { .offset = 2 * SESSION_CELL_SIZE, .size = 2 * SESSION_CELL_SIZE };

	SEND_FLAGS(&c, gleamCopyDownLate, FRAME_BULK_DOWN, &cells, .stream = s, .src = at[2], .size = bytes);
	wait_progress(&c, 1, last);
	seen = wait_notice(&c, NOTICE_LANDED);
	assert_int_equal(seen->bulk.size, bytes);

	const float *sum = (const void *)(shm_down(&c.shm) + seen->bulk.offset);

	for (uint32_t i = 0; i < COUNT; i++)
		if (sum[i] != 1.5f * (float)i)
			fail_msg("element %u is %f", i, (double)sum[i]);
	wait_consumed(&c, c.up_head);
	/* A host function, whose words the GPU reads and writes. */
	SEND(&c, gleamHostFunc, .stream = s, .id = 7);
	SEND(&c, cuMemsetD8Async, .hStream = s, .dstDevice = at[2], .uc = 9, .N = 4);
	wait_notice(&c, NOTICE_HOST_CALL);
	SEND(&c, gleamHostDone, .id = 7);
	assert_int_equal(read_u32(&c, s, at[2]), 0x09090909);
	assert_int_equal(CALL(&c, gleamContextSync, NULL, .index = CTX), 0);
	measure(&c, s, params);
	/* A kernel that goes astray: the context is lost, and the next one works. */
	memset(params, 0xe0, 24);
	SEND(&c, gleamLaunch, .stream = s, .function = function(1), .grid_x = 1, .grid_y = 1, .grid_z = 1, .block_x = 32,
	     .block_y = 1, .block_z = 1, .params = params, .params_size = sizeof(params));
	assert_int_equal(CALL(&c, gleamStreamSync, NULL, .stream = s), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(CALL(&c, gleamContextSync, NULL, .index = CTX), CUDA_ERROR_ILLEGAL_ADDRESS);
	wait_notice(&c, NOTICE_ERROR);
	SEND(&c, gleamContextClose, .index = CTX);
	SEND(&c, gleamContextOpen, .index = CTX, .device = 0, .primary = 1);
	if (!recovers) {
		assert_int_equal(CALL(&c, gleamCopyDown, NULL, .stream = LEGACY, .src = at[1], .size = 4),
				 CUDA_ERROR_ILLEGAL_ADDRESS);
		goto end;
	}
	assert_int_equal(read_u32(&c, LEGACY, at[1] + 8), 0x3f800000);
	SEND(&c, gleamFree, .address = p, .bytes = 6 << 20);
	wait_notice(&c, NOTICE_FREED);
	assert_int_equal(CALL(&c, gleamContextSync, NULL, .index = CTX), 0);
	assert_false(have_notice(&c, NOTICE_ERROR));
end:
	end_session(&c);
	assert_int_equal(process_end(&c, pid), EXIT_DONE);
	free(snapshot);
	free(a);
	free(b);
}

static void test_software_gpu_adds_vectors(void **state)
{
	(void)state;
	vectors_add("libsoftcuda.so", true);
}

/* GLEAM_TEST_DRIVER=/usr/lib/.../libcuda.so.1 */
static void test_real_gpu_adds_vectors(void **state)
{
	(void)state;
	if (!getenv("GLEAM_TEST_DRIVER")) {
		print_message("no GLEAM_TEST_DRIVER: nothing but the software GPU is tried\n");
		skip();
	}
	vectors_add(getenv("GLEAM_TEST_DRIVER"), false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ready_and_confined),
		cmocka_unit_test(test_breach_has_a_status_of_its_own),
		cmocka_unit_test(test_reasons),
		cmocka_unit_test(test_orphan_ends),
		cmocka_unit_test(test_software_gpu_adds_vectors),
		cmocka_unit_test(test_real_gpu_adds_vectors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
