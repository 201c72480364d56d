// SPDX-License-Identifier: Apache-2.0
/*
 * Modelled time of kernels: a launch takes as long as it is said to and costs no CPU, and a device is shared, also between processes.
 */
#include "tests/unit/soft_driver.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LAUNCH_S 0.02
#define LAUNCHES 10

static char ledger_path[] = "/tmp/test_soft_time.XXXXXX";

static const char kernels[] = ".version 8.0\n"
			      ".target sm_75\n"
			      ".address_size 64\n"
			      ".visible .entry store(.param .u64 where)\n"
			      "{\n"
			      "	.reg .b64 %rd<2>;\n"
			      "	.reg .b32 %r<2>;\n"
			      "	ld.param.u64 %rd1, [where];\n"
			      "	mov.u32 %r1, 7;\n"
			      "	st.global.u32 [%rd1], %r1;\n"
			      "	ret;\n"
			      "}\n";

static double seconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* How long @count launches take. */
static double launches(CUfunction store, int count)
{
	CUdeviceptr memory;
	void *params[] = { &memory };
	uint32_t value = 0;
	double began;

	assert_ok(CU(cuMemAlloc_v2)(&memory, 4));
	began = seconds(CLOCK_MONOTONIC);
	for (int i = 0; i < count; i++)
		assert_ok(CU(cuLaunchKernel)(store, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	assert_ok(CU(cuMemcpyDtoH_v2)(&value, memory, 4));
	began = seconds(CLOCK_MONOTONIC) - began;
	assert_int_equal(value, 7);
	assert_ok(CU(cuMemFree_v2)(memory));
	return began;
}

static CUfunction function;

static int setup(void **state)
{
	driver_start(0);
	function = driver_function(driver_module(kernels), "store");
	return 0;
}

static void test_a_launch_takes_its_time(void **state)
{
	double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
	double took = launches(function, LAUNCHES);

	cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	/* Never less; more where the machine has other work. */
	assert_true(took >= LAUNCHES * LAUNCH_S);
	assert_true(cpu < took / 2);
}

/* Launches until the pipe at @order ends; says when it has begun, and in the end how many there were. */
static int neighbour(int answer, int order)
{
	struct timespec none = { 0 };
	char byte = 1;
	int count = 1;
	fd_set set;

	setup(NULL);
	launches(function, 1);
	if (write(answer, &byte, 1) != 1)
		return 1;
	do {
		launches(function, 1);
		count++;
		FD_ZERO(&set);
		FD_SET(order, &set);
	} while (pselect(order + 1, &set, NULL, NULL, &none, NULL) == 0);
	return write(answer, &count, sizeof(count)) != sizeof(count);
}

static void test_processes_share_a_device(void **state)
{
	int answer, order, status, others;
	pid_t child;
	double took;
	char byte;

	took = seconds(CLOCK_MONOTONIC);
	child = driver_neighbour(&answer, &order);
	assert_int_equal(read(answer, &byte, 1), 1);
	launches(function, LAUNCHES);
	close(order);
	assert_int_equal(read(answer, &others, sizeof(others)), sizeof(others));
	assert_int_equal(waitpid(child, &status, 0), child);
	took = seconds(CLOCK_MONOTONIC) - took;
	assert_int_equal(status, 0);
	close(answer);
	/* One at a time, whoever asks. */
	assert_true(others >= 2);
	assert_true((LAUNCHES + others) * LAUNCH_S <= took);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_launch_takes_its_time),
		cmocka_unit_test(test_processes_share_a_device),
	};
	int fd, failed;

	if (argc == 4 && strcmp(argv[1], "neighbour") == 0)
		return neighbour(atoi(argv[2]), atoi(argv[3]));
	fd = mkstemp(ledger_path);
	if (fd < 0)
		return 1;
	close(fd);
	setenv("GLEAM_SOFTGPU_LEDGER", ledger_path, 1);
	setenv("GLEAM_SOFTGPU_LAUNCH_US", "20000", 1);
	failed = cmocka_run_group_tests(tests, setup, NULL);
	unlink(ledger_path);
	return failed;
}
