// SPDX-License-Identifier: Apache-2.0
/*
 * Copies between host and device by size, direction and kind of host memory: GB/s, the median of several, and that the bytes
 * are right. One line of JSON each. Usage: bandwidth [LEAST_KIB MOST_KIB [COPIES [KIND...]]]; KIND: up, down, up-locked,
 * down-locked (default: all).
 */
#include "tests/cuda/prog.h"

#define FACTOR	   8	       /* between sizes */
#define SPENT_MAX  2.0	       /* seconds a row: the rest of its copies is left out */
#define COPIES_MAX 200

struct kind {
	const char *name;
	bool up;
	bool locked;
};

static const struct kind kinds[] = {
	{ "up", true, false }, { "down", false, false }, { "up-locked", true, true }, { "down-locked", false, true },
};

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/*
 * Until the bytes are where they belong. Upwards the last of them is read back: the call, and a synchronise behind it, may return
 * while the device still waits for bytes that the program can't see any more.
 */
static double once(const struct kind *kind, CUdeviceptr device, void *host, size_t size, CUstream stream)
{
	double start = prog_seconds();

	if (kind->locked && kind->up)
		MUST(cuMemcpyHtoDAsync(device, host, size, stream));
	else if (kind->locked)
		MUST(cuMemcpyDtoHAsync(host, device, size, stream));
	else if (kind->up)
		MUST(cuMemcpyHtoD(device, host, size));
	else
		MUST(cuMemcpyDtoH(host, device, size));
	if (kind->locked)
		MUST(cuStreamSynchronize(stream));
	if (kind->up) {
		uint32_t last;

		MUST(cuMemcpyDtoH(&last, device + size - sizeof(last), sizeof(last)));
	}
	return prog_seconds() - start;
}

static void row(const struct kind *kind, size_t size, int copies)
{
	double took[COPIES_MAX], spent = 0;
	CUdeviceptr device;
	CUstream stream;
	uint64_t *host;
	size_t wrong = 0;
	int done = 0;

	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuMemAlloc(&device, size));
	if (kind->locked)
		MUST(cuMemAllocHost((void **)&host, size));
	else
		host = malloc(size);
	for (size_t i = 0; i < size / 8; i++)
		host[i] = i * 0x9e3779b97f4a7c15ull + size;
	if (!kind->up)
		MUST(cuMemcpyHtoD(device, host, size));
	once(kind, device, host, size, stream);
	while (done < copies && done < COPIES_MAX && spent < SPENT_MAX) {
		took[done] = once(kind, device, host, size, stream);
		spent += took[done++];
	}
	/* Back by the other way, over other bytes. */
	memset(host, 0x55, size);
	MUST(cuMemcpyDtoH(host, device, size));
	for (size_t i = 0; i < size / 8; i++)
		wrong += host[i] != i * 0x9e3779b97f4a7c15ull + size;
	CHECK(!wrong, "%s, %zu bytes: %zu words", kind->name, size, wrong);
	qsort(took, (size_t)done, sizeof(took[0]), by_size);
	printf("{\"kind\": \"%s\", \"bytes\": %zu, \"copies\": %d, \"us\": %.1f, \"best_us\": %.1f, \"gb_s\": %.3f}\n", kind->name, size,
	       done, took[done / 2] * 1e6, took[0] * 1e6, (double)size / took[done / 2] / 1e9);
	fflush(stdout);
	if (kind->locked)
		MUST(cuMemFreeHost(host));
	else
		free(host);
	MUST(cuMemFree(device));
	MUST(cuStreamDestroy(stream));
}

static bool wanted(int argc, char **argv, const char *name)
{
	for (int i = 4; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return true;
	return argc <= 4;
}

int main(int argc, char **argv)
{
	size_t least = argc > 2 ? (size_t)atol(argv[1]) << 10 : 64 << 10;
	size_t most = argc > 2 ? (size_t)atol(argv[2]) << 10 : 4 << 20;
	int copies = argc > 3 ? atoi(argv[3]) : 3;

	if (least < 8 || most < least || copies < 1) {
		fprintf(stderr, "usage: bandwidth [LEAST_KIB MOST_KIB [COPIES [KIND...]]]\n");
		return 2;
	}
	prog_context(NULL);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (size_t size = least; size <= most && wanted(argc, argv, kinds[k].name); size *= FACTOR)
			row(&kinds[k], size, copies);
	return prog_end();
}
