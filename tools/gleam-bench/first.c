// SPDX-License-Identifier: Apache-2.0
/*
 * The first allocation of a process, with all that comes before it: cuInit, the device's primary context. Natively a context is
 * made; through Gleam a warm worker has one. Each is a process of its own, for a driver is set up once in each.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/proto/cuda_abi.h"
#include "gen/api.h"
#include "tools/gleam-bench/bench.h"

#define FIRST_SIZE (1u << 20)

int first_run(const char *library)
{
	void *dl = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	__typeof__(cuInit) *init = dl ? (__typeof__(cuInit) *)dlsym(dl, "cuInit") : NULL;
	__typeof__(cuDevicePrimaryCtxRetain) *retain = dl ? (__typeof__(cuDevicePrimaryCtxRetain) *)dlsym(dl, "cuDevicePrimaryCtxRetain") : NULL;
	__typeof__(cuCtxSetCurrent) *set_current = dl ? (__typeof__(cuCtxSetCurrent) *)dlsym(dl, "cuCtxSetCurrent") : NULL;
	__typeof__(cuMemAlloc_v2) *alloc = dl ? (__typeof__(cuMemAlloc_v2) *)dlsym(dl, "cuMemAlloc_v2") : NULL;
	double from = seconds_of(CLOCK_MONOTONIC), cpu_from = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
	const char *what = "cuInit";
	CUcontext context;
	CUdeviceptr at;
	CUresult result;

	if (!init || !retain || !set_current || !alloc) {
		printf("no %s\n", dl ? "it is not a CUDA driver" : dlerror());
		return EXIT_FAILED;
	}
	result = init(0);
	if (result == CUDA_SUCCESS) {
		what = "cuDevicePrimaryCtxRetain";
		result = retain(&context, 0);
	}
	if (result == CUDA_SUCCESS) {
		what = "cuCtxSetCurrent";
		result = set_current(context);
	}
	if (result == CUDA_SUCCESS) {
		what = "cuMemAlloc";
		result = alloc(&at, FIRST_SIZE);
	}
	if (result != CUDA_SUCCESS) {
		printf("no %s: error %d\n", what, (int)result);
		return EXIT_FAILED;
	}
	printf("ok %.9g %.9g\n", (seconds_of(CLOCK_MONOTONIC) - from) * 1e6, (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu_from) * 1e6);
	return 0;
}

const char *first_measure(const char *library, double *values)
{
	static char line[160];
	FILE *from = NULL;
	size_t length;
	int ends[2];
	pid_t pid;

	if (pipe(ends) < 0)
		return strerror(errno);
	/* What this process has of the driver is not that one's: it begins anew. */
	pid = fork();
	if (pid == 0) {
		dup2(ends[1], STDOUT_FILENO);
		close(ends[0]);
		close(ends[1]);
		execl("/proc/self/exe", "gleam-bench", "--first", library, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	if (pid > 0)
		from = fdopen(ends[0], "r");
	length = from && fgets(line, sizeof(line), from) ? strcspn(line, "\n") : 0;
	line[length] = '\0';
	if (from)
		fclose(from);
	else
		close(ends[0]);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (sscanf(line, "ok %lf %lf", &values[0], &values[1]) == VALUES_MAX)
		return NULL;
	return strncmp(line, "no ", 3) == 0 ? line + 3 : "a process for one allocation could not be run";
}
