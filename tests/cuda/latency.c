// SPDX-License-Identifier: Apache-2.0
/*
 * How long a small call takes that needs an answer: 4 bytes from the device, many times. Prints the quantiles in
 * microseconds as JSON. Usage: latency [CALLS [bulk MIB]]; with bulk it copies that much to the device instead, and
 * prints the rate.
 */
#include "tests/cuda/prog.h"

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void bulk(size_t mib)
{
	size_t size = 64 << 20;
	char *bytes = malloc(size);
	CUdeviceptr device;
	double start;

	memset(bytes, 1, size);
	MUST(cuMemAlloc(&device, size));
	MUST(cuMemcpyHtoD(device, bytes, size));
	MUST(cuCtxSynchronize());
	start = prog_seconds();
	for (size_t done = 0; done < mib; done += 64)
		MUST(cuMemcpyHtoD(device, bytes, size));
	MUST(cuCtxSynchronize());
	printf("{\"mib\": %zu, \"mib_s\": %.0f}\n", mib, (double)mib / (prog_seconds() - start));
	CHECK(true, "-");
	MUST(cuMemFree(device));
	free(bytes);
}

int main(int argc, char **argv)
{
	int calls = argc > 1 ? atoi(argv[1]) : 200;
	double *took = malloc((size_t)calls * sizeof(*took));
	unsigned int value = 7, back = 0;
	CUdeviceptr device;
	int wrong = 0;

	prog_context(NULL);
	if (argc > 3) {
		bulk((size_t)atoi(argv[3]));
		return prog_end();
	}
	MUST(cuMemAlloc(&device, 4));
	MUST(cuMemcpyHtoD(device, &value, 4));
	for (int i = 0; i < calls; i++) {
		double start = prog_seconds();

		MUST(cuMemcpyDtoH(&back, device, 4));
		took[i] = (prog_seconds() - start) * 1e6;
		wrong += back != 7;
	}
	qsort(took, (size_t)calls, sizeof(*took), by_size);
	printf("{\"calls\": %d, \"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"max\": %.1f}\n", calls, took[calls / 2],
	       took[calls * 9 / 10], took[calls * 99 / 100], took[calls - 1]);
	CHECK(!wrong, "%d answers", wrong);
	MUST(cuMemFree(device));
	free(took);
	return prog_end();
}
