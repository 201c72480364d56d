/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast a GPU is, measured once by the process that asks the driver: the geometric mean of what it computes and what it
 * copies, against a reference GPU. In that process's only thread; see probe.h.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "broker/node/probe.h"

/* An H200 by its data sheet: single precision multiply-adds and bytes of memory a second. Only ratios matter. */
#define REFERENCE_FMA  30e12
#define REFERENCE_COPY 4.8e12

#define SPEED_LEAST_S	2e-3	      /* a run that is shorter tells of the launch more than of the GPU */
#define SPEED_TRIES	3	      /* the best of them counts: workers start at the same time */
#define SPEED_THREADS	256u
#define SPEED_LOOPS_MAX (1u << 20)
#define SPEED_FMAS	8u	      /* a turn of the loop */
#define SPEED_COPY	(16u << 20)
#define SPEED_COPIES_MAX 4096u

#define ATTRIBUTE_MULTIPROCESSORS 16

static const char speed_ptx[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".visible .entry spin(.param .u64 out, .param .u32 n)\n{\n"
	"\t.reg .pred %p<3>;\n\t.reg .f32 %f<12>;\n\t.reg .b32 %r<4>;\n\t.reg .b64 %rd<3>;\n"
	"\tld.param.u32 %r1, [n];\n"
	"\tmov.u32 %r2, %tid.x;\n"
	"\tcvt.rn.f32.u32 %f1, %r2;\n"
	"\tmov.f32 %f9, 0f3F7FFFFE;\n"
	"\tmov.f32 %f2, %f1;\n\tmov.f32 %f3, %f1;\n\tmov.f32 %f4, %f1;\n\tmov.f32 %f5, %f1;\n"
	"\tmov.f32 %f6, %f1;\n\tmov.f32 %f7, %f1;\n\tmov.f32 %f8, %f1;\n"
	"$loop:\n"
	"\tfma.rn.f32 %f1, %f1, %f9, %f9;\n\tfma.rn.f32 %f2, %f2, %f9, %f9;\n"
	"\tfma.rn.f32 %f3, %f3, %f9, %f9;\n\tfma.rn.f32 %f4, %f4, %f9, %f9;\n"
	"\tfma.rn.f32 %f5, %f5, %f9, %f9;\n\tfma.rn.f32 %f6, %f6, %f9, %f9;\n"
	"\tfma.rn.f32 %f7, %f7, %f9, %f9;\n\tfma.rn.f32 %f8, %f8, %f9, %f9;\n"
	"\tadd.s32 %r1, %r1, -1;\n"
	"\tsetp.ne.s32 %p1, %r1, 0;\n"
	"\t@%p1 bra $loop;\n"
	"\tadd.f32 %f1, %f1, %f2;\n\tadd.f32 %f3, %f3, %f4;\n\tadd.f32 %f5, %f5, %f6;\n\tadd.f32 %f7, %f7, %f8;\n"
	"\tadd.f32 %f1, %f1, %f3;\n\tadd.f32 %f5, %f5, %f7;\n\tadd.f32 %f1, %f1, %f5;\n"
	/* Never so; without it there would be nothing to compute. */
	"\tsetp.eq.f32 %p2, %f1, 0fC0490FDB;\n"
	"\tld.param.u64 %rd1, [out];\n"
	"\tcvta.to.global.u64 %rd2, %rd1;\n"
	"\t@%p2 st.global.f32 [%rd2], %f1;\n"
	"\tret;\n}\n";

struct cuda {
	int (*attribute)(int *value, int attribute, int device);
	int (*retain)(void **context, int device);
	int (*release)(int device);
	int (*current)(void *context);
	int (*load)(void **module, const void *image);
	int (*function)(void **function, void *module, const char *name);
	int (*unload)(void *module);
	int (*alloc)(uint64_t *address, size_t size);
	int (*release_memory)(uint64_t address);
	int (*copy)(uint64_t to, uint64_t from, size_t size);
	int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
		      void *stream, void **params, void **extra);
	int (*wait)(void);
};

static bool cuda_find(void *dl, struct cuda *cuda)
{
	*(void **)&cuda->attribute = dlsym(dl, "cuDeviceGetAttribute");
	*(void **)&cuda->retain = dlsym(dl, "cuDevicePrimaryCtxRetain");
	*(void **)&cuda->release = dlsym(dl, "cuDevicePrimaryCtxRelease_v2");
	*(void **)&cuda->current = dlsym(dl, "cuCtxSetCurrent");
	*(void **)&cuda->load = dlsym(dl, "cuModuleLoadData");
	*(void **)&cuda->function = dlsym(dl, "cuModuleGetFunction");
	*(void **)&cuda->unload = dlsym(dl, "cuModuleUnload");
	*(void **)&cuda->alloc = dlsym(dl, "cuMemAlloc_v2");
	*(void **)&cuda->release_memory = dlsym(dl, "cuMemFree_v2");
	*(void **)&cuda->copy = dlsym(dl, "cuMemcpyDtoD_v2");
	*(void **)&cuda->launch = dlsym(dl, "cuLaunchKernel");
	*(void **)&cuda->wait = dlsym(dl, "cuCtxSynchronize");
	return cuda->attribute && cuda->retain && cuda->release && cuda->current && cuda->load && cuda->function && cuda->unload &&
	       cuda->alloc && cuda->release_memory && cuda->copy && cuda->launch && cuda->wait;
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Multiply-adds a second; 0: it refused. */
static double speed_compute(const struct cuda *cuda, void *function, uint64_t out, unsigned blocks)
{
	double best = 0;

	for (unsigned loops = 32, tries = 0; tries < SPEED_TRIES;) {
		void *params[] = { &out, &loops };
		double took, began = seconds();

		if (cuda->launch(function, blocks, 1, 1, SPEED_THREADS, 1, 1, 0, NULL, params, NULL) || cuda->wait())
			return 0;
		took = seconds() - began;
		if (took < SPEED_LEAST_S && loops < SPEED_LOOPS_MAX) {
			loops *= 2;
			continue;
		}
		best = fmax(best, (double)blocks * SPEED_THREADS * loops * SPEED_FMAS / took);
		tries++;
	}
	return best;
}

/* Bytes of memory read and written a second. */
static double speed_copy(const struct cuda *cuda, uint64_t memory)
{
	double best = 0;

	for (unsigned copies = 1, tries = 0; tries < SPEED_TRIES;) {
		double took, began = seconds();

		for (unsigned i = 0; i < copies; i++)
			if (cuda->copy(memory, memory + SPEED_COPY, SPEED_COPY))
				return 0;
		if (cuda->wait())
			return 0;
		took = seconds() - began;
		if (took < SPEED_LEAST_S && copies < SPEED_COPIES_MAX) {
			copies *= 2;
			continue;
		}
		best = fmax(best, 2.0 * SPEED_COPY * copies / took);
		tries++;
	}
	return best;
}

double probe_speed(void *driver, int device)
{
	void *context, *module, *function;
	uint64_t memory = 0;
	int multiprocessors = 1;
	double compute = 0, copy = 0;
	struct cuda cuda;

	if (!cuda_find(driver, &cuda) || cuda.attribute(&multiprocessors, ATTRIBUTE_MULTIPROCESSORS, device) ||
	    cuda.retain(&context, device))
		return 0;
	if (cuda.current(context) == 0 && cuda.alloc(&memory, 2 * SPEED_COPY) == 0) {
		copy = speed_copy(&cuda, memory);
		if (cuda.load(&module, speed_ptx) == 0) {
			if (cuda.function(&function, module, "spin") == 0)
				compute = speed_compute(&cuda, function, memory, 8u * (unsigned)(multiprocessors > 0 ? multiprocessors : 1));
			cuda.unload(module);
		}
		cuda.release_memory(memory);
	}
	cuda.current(NULL);
	cuda.release(device);
	return sqrt(compute / REFERENCE_FMA * (copy / REFERENCE_COPY));
}
