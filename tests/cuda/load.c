// SPDX-License-Identifier: Apache-2.0
/*
 * A program of given needs, for tests of scheduling: STEPS times TRIPS round trips, UP KiB to the device that don't compress, WORK
 * launches, and CPU microseconds of its own. Checks what comes back. With a SEED the first step's bytes are the same in each run, with 0
 * they are not. A launch writes WORDS words (256 Ki): few where the GPU's time is modelled (GLEAM_SOFTGPU_LAUNCH_US).
 * Usage: load STEPS TRIPS UP WORK CPU [SEED [WORDS]]
 */
#include "tests/cuda/prog.h"

#define FILLED (256u << 10)

static void cpu_spend(int us)
{
	double end = prog_seconds() + us / 1e6;

	while (prog_seconds() < end)
		;
}

int main(int argc, char **argv)
{
	int steps = argc > 1 ? atoi(argv[1]) : 10, trips = argc > 2 ? atoi(argv[2]) : 1;
	size_t up = (argc > 3 ? (size_t)atoi(argv[3]) : 0) << 10;
	int work = argc > 4 ? atoi(argv[4]) : 1, cpu_us = argc > 5 ? atoi(argv[5]) : 0;
	uint32_t given = argc > 6 ? (uint32_t)atoi(argv[6]) : 0, seed = given ? given : (uint32_t)getpid();
	size_t words = argc > 7 ? (size_t)atoi(argv[7]) : FILLED;
	uint32_t *bytes = malloc(up + 4);
	CUdeviceptr filled, sent = 0;
	CUfunction fill;
	double start;
	int wrong = 0;

	prog_context(NULL);
	fill = prog_function("util", "fill");
	MUST(cuMemAlloc(&filled, words * 4));
	if (up)
		MUST(cuMemAlloc(&sent, up));
	for (size_t i = 0; i < up / 4; i++)
		bytes[i] = prog_random(&seed) << 16 ^ prog_random(&seed);
	start = prog_seconds();
	for (int step = 0; step < steps; step++) {
		unsigned value = (unsigned)step + 3, back = 0;
		unsigned long long n = words;
		void *params[] = { &filled, &value, &n };

		if (up) {
			bytes[0] = value; /* never the same bytes again */
			MUST(cuMemcpyHtoD(sent, bytes, up));
		}
		for (int i = 0; i < work; i++)
			MUST(cuLaunchKernel(fill, 8, 1, 1, 128, 1, 1, 0, NULL, params, NULL));
		if (cpu_us)
			cpu_spend(cpu_us);
		for (int i = 0; i < trips; i++) {
			MUST(cuMemcpyDtoH(&back, work || !up ? filled : sent, 4));
			wrong += (work || up) && back != value;
		}
	}
	MUST(cuCtxSynchronize());
	printf("load: %.3f s\n", prog_seconds() - start);
	CHECK(!wrong, "%d values", wrong);
	MUST(cuMemFree(filled));
	if (sent)
		MUST(cuMemFree(sent));
	free(bytes);
	return prog_end();
}
