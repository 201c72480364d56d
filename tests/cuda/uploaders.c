// SPDX-License-Identifier: Apache-2.0
/*
 * Threads that upload at once, in copies of all sizes, with pauses in which everything has arrived: what each has sent lies in its own
 * memory in the end. Usage: uploaders [THREADS [COPIES]]
 */
#include "tests/cuda/prog.h"

#include <pthread.h>

#define THREADS_MAX 16
#define BUFFER	    (5u << 20)

static CUcontext context;
static int copies = 300;

struct uploader {
	pthread_t thread;
	uint32_t seed;
	size_t wrong;
};

static void *upload(void *arg)
{
	struct uploader *self = arg;
	uint8_t *bytes = malloc(BUFFER), *there = malloc(BUFFER), *back = malloc(BUFFER);
	CUdeviceptr device;
	CUstream stream;

	MUST(cuCtxSetCurrent(context));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuMemAlloc(&device, BUFFER));
	for (size_t i = 0; i < BUFFER; i++)
		bytes[i] = (uint8_t)prog_random(&self->seed);
	MUST(cuMemcpyHtoD(device, bytes, BUFFER));
	memcpy(there, bytes, BUFFER);
	for (int i = 0; i < copies; i++) {
		/* Bulk, and not of whole granules; now and then one of several pieces. */
		size_t size = (33u << 10) + prog_random(&self->seed) % (i % 7 ? 300000u : 3000000u);
		size_t from = prog_random(&self->seed) % (BUFFER - size), to = prog_random(&self->seed) % (BUFFER - size);

		MUST(cuMemcpyHtoDAsync(device + to, bytes + from, size, stream));
		memcpy(there + to, bytes + from, size);
		if (prog_random(&self->seed) % 4 == 0)
			MUST(cuStreamSynchronize(stream));
	}
	MUST(cuMemcpyDtoHAsync(back, device, BUFFER, stream));
	MUST(cuStreamSynchronize(stream));
	self->wrong = memcmp(there, back, BUFFER) != 0;
	free(bytes);
	free(there);
	free(back);
	return NULL;
}

int main(int argc, char **argv)
{
	struct uploader uploaders[THREADS_MAX];
	int count = argc > 1 ? atoi(argv[1]) : 4;

	copies = argc > 2 ? atoi(argv[2]) : copies;
	if (count < 1 || count > THREADS_MAX || copies < 1) {
		fprintf(stderr, "usage: uploaders [THREADS [COPIES]]\n");
		return 2;
	}
	context = prog_context(NULL);
	for (int i = 0; i < count; i++) {
		uploaders[i] = (struct uploader){ .seed = (uint32_t)i + 1 };
		pthread_create(&uploaders[i].thread, NULL, upload, &uploaders[i]);
	}
	for (int i = 0; i < count; i++) {
		pthread_join(uploaders[i].thread, NULL);
		CHECK(!uploaders[i].wrong, "bytes of thread %d", i);
	}
	return prog_end();
}
