// SPDX-License-Identifier: Apache-2.0
/*
 * The same tensors to the device in each step, as a program does that loads them anew: each is copied and its stream
 * awaited, while those of the step before are still there. One line of JSON a step, and that the bytes are right.
 *
 * Usage: again [MIB [COUNT [STEPS [PAUSE_MS [async | sync | locked [FILE]]]]]]
 * MIB a tensor, COUNT tensors, STEPS; PAUSE_MS between steps; sync: cuMemcpyHtoD instead of cuMemcpyHtoDAsync and a wait;
 * locked: from page-locked memory. With FILE it says when something small has gone, and goes on when there is that file.
 */
#include "tests/cuda/prog.h"

#define TENSORS_MAX 1024

static void bytes_make(uint64_t *words, size_t size, uint64_t seed)
{
	/* As random weights are: sixteen bits in 32 that don't repeat, and an exponent that nearly does. */
	for (size_t i = 0; i < size / 8; i++) {
		uint64_t z = seed += 0x9e3779b97f4a7c15ull;

		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
		words[i] = (z ^ z >> 27) & 0x83ffffff83ffffffull;
	}
}

int main(int argc, char **argv)
{
	size_t size = (size_t)(argc > 1 ? atoi(argv[1]) : 4) << 20;
	int count = argc > 2 ? atoi(argv[2]) : 4, steps = argc > 3 ? atoi(argv[3]) : 3, pause = argc > 4 ? atoi(argv[4]) : 0;
	bool sync = argc > 5 && strcmp(argv[5], "sync") == 0, locked = argc > 5 && strcmp(argv[5], "locked") == 0;
	static uint64_t *host[TENSORS_MAX];
	static CUdeviceptr device[2][TENSORS_MAX];
	uint64_t *back;
	size_t wrong = 0;

	if (!size || count < 1 || count > TENSORS_MAX || steps < 1) {
		fprintf(stderr, "usage: again [MIB [COUNT [STEPS [PAUSE_MS [async | sync | locked [FILE]]]]]]\n");
		return 2;
	}
	prog_context(NULL);
	back = malloc(size);
	for (int i = 0; i < count; i++) {
		if (locked)
			MUST(cuMemAllocHost((void **)&host[i], size));
		else
			host[i] = malloc(size);
		if (!host[i] || !back)
			prog_die(CUDA_ERROR_OUT_OF_MEMORY, "host memory", __FILE__, __LINE__);
		bytes_make(host[i], size, (uint64_t)i << 40 | (uint64_t)getpid() << 16);
		for (int half = 0; half < 2; half++)
			MUST(cuMemAlloc(&device[half][i], size));
	}
	/* Something small has gone before. */
	MUST(cuMemcpyHtoD(device[0][0], host[0], size < 1u << 20 ? size : 1u << 20));
	MUST(cuMemcpyDtoH(back, device[0][0], 4));
	if (argc > 6) {
		printf("begun\n");
		fflush(stdout);
		while (access(argv[6], F_OK) != 0)
			usleep(10000);
	}
	for (int step = 0; step < steps; step++) {
		CUdeviceptr *to = device[step % 2];
		double begin, called, landed;
		uint32_t last;

		if (step && pause)
			usleep((useconds_t)pause * 1000);
		begin = prog_seconds();
		for (int i = 0; i < count; i++) {
			if (sync) {
				MUST(cuMemcpyHtoD(to[i], host[i], size));
				continue;
			}
			MUST(cuMemcpyHtoDAsync(to[i], host[i], size, NULL));
			MUST(cuStreamSynchronize(NULL));
		}
		printf("{\"step\": %d, \"taken_s\": %.4f}\n", step, prog_seconds() - begin);
		fflush(stdout);
		MUST(cuCtxSynchronize());
		called = prog_seconds();
		MUST(cuMemcpyDtoH(&last, to[count - 1] + size - sizeof(last), sizeof(last)));
		landed = prog_seconds();
		printf("{\"step\": %d, \"bytes\": %zu, \"s\": %.4f, \"landed_s\": %.4f, \"gb_s\": %.3f}\n", step, size * (size_t)count,
		       called - begin, landed - begin, (double)size * count / (landed - begin) / 1e9);
		fflush(stdout);
	}
	for (int i = 0; i < count; i++) {
		MUST(cuMemcpyDtoH(back, device[(steps - 1) % 2][i], size));
		wrong += memcmp(back, host[i], size) != 0;
	}
	CHECK(!wrong, "%zu tensors are not what was copied", wrong);
	return prog_end();
}
