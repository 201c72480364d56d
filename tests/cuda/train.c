// SPDX-License-Identifier: Apache-2.0
/*
 * Stochastic gradient descent, twice from the same beginning: the losses are the same, bit for bit. Each is told, so that one run can be compared
 * with another. Beside it memory of MIB that is all filled, of which CHANGED is written anew in each step.
 *
 *	train [STEPS [FILE [MIB [CHANGED [MS]]]]]	FILE: goes on until there is that file, once only; - for none. MS: a pause after each step
 */
#include <math.h>

#include "tests/cuda/prog.h"

#define FEATURES 128
#define BATCH	 64
#define BATCHES	 8
#define SAMPLES	 (BATCH * BATCHES)
#define MIB	 (1ull << 20)

/* As the kernels have it. */
struct model {
	CUdeviceptr samples;
	CUdeviceptr wanted;
	CUdeviceptr weights;
	CUdeviceptr velocity;
	CUdeviceptr error;
	CUdeviceptr loss;
};

static struct model model;
static CUdeviceptr model_at, extra;
static CUfunction forward, loss, update, scramble;
static size_t extra_size, changed;

static CUdeviceptr device_new(const void *bytes, size_t size)
{
	CUdeviceptr at;

	MUST(cuMemAlloc(&at, size));
	if (bytes)
		MUST(cuMemcpyHtoD(at, bytes, size));
	else
		MUST(cuMemsetD8(at, 0, size));
	return at;
}

static void data_make(void)
{
	static float samples[SAMPLES][FEATURES], wanted[SAMPLES], weights[FEATURES];
	uint32_t seed = 11;

	for (int k = 0; k < FEATURES; k++)
		weights[k] = (float)(int)(prog_random(&seed) % 2001) / 1000 - 1;
	for (int i = 0; i < SAMPLES; i++) {
		for (int k = 0; k < FEATURES; k++) {
			samples[i][k] = (float)(int)(prog_random(&seed) % 2001) / 1000 - 1;
			wanted[i] += samples[i][k] * weights[k];
		}
	}
	model = (struct model){
		.samples = device_new(samples, sizeof(samples)), .wanted = device_new(wanted, sizeof(wanted)),
		.weights = device_new(NULL, sizeof(weights)), .velocity = device_new(NULL, sizeof(weights)),
		.error = device_new(NULL, BATCH * sizeof(float)), .loss = device_new(NULL, sizeof(float)),
	};
	model_at = device_new(&model, sizeof(model));
}

static void extra_write(uint32_t step, size_t size)
{
	unsigned long long n = size / 4;
	void *params[] = { &extra, &step, &n };

	if (size)
		MUST(cuLaunchKernel(scramble, 64, 1, 1, 128, 1, 1, 0, NULL, params, NULL));
}

static float one_step(uint32_t step)
{
	int features = FEATURES, batch = BATCH, at = (int)(step % BATCHES) * BATCH;
	float rate = 0.05f, now;
	void *to_forward[] = { &model_at, &features, &batch, &at };
	void *to_loss[] = { &model_at, &batch };
	void *to_update[] = { &model_at, &features, &batch, &at, &rate };

	MUST(cuLaunchKernel(forward, BATCH / 32, 1, 1, 32, 1, 1, 0, NULL, to_forward, NULL));
	MUST(cuLaunchKernel(loss, 1, 1, 1, 1, 1, 1, 0, NULL, to_loss, NULL));
	MUST(cuLaunchKernel(update, FEATURES / 32, 1, 1, 32, 1, 1, 0, NULL, to_update, NULL));
	extra_write(step, changed);
	MUST(cuMemcpyDtoH(&now, model.loss, sizeof(now)));
	return now;
}

/* The first and last words of it, as the last steps left them. */
static void extra_check(uint32_t step)
{
	static const uint64_t places[] = { 0, 1, 4095, 65536, 262143 };
	uint32_t got;

	for (size_t p = 0; p < 2 * sizeof(places) / sizeof(places[0]) && extra_size; p++) {
		uint64_t i = p < 5 ? places[p] : extra_size / 4 - 1 - places[p - 5];
		uint32_t x = (uint32_t)i * 0x9e3779b9u ^ (i * 4 < changed ? step : 0xffffffffu) * 0x85ebca6bu;

		x ^= x >> 15;
		x *= 0x2c1b3c6du;
		x ^= x >> 12;
		x *= 0x297a2d39u;
		x ^= x >> 15;
		MUST(cuMemcpyDtoH(&got, extra + i * 4, 4));
		CHECK(got == x, "word %llu beside it: %08x, not %08x", (unsigned long long)i, got, x);
	}
}

/* All losses but those of @kept are also compared with them. */
static uint32_t train(uint32_t steps, const char *file, uint32_t *kept, bool compare, long pause_ms)
{
	uint32_t step, differ = 0;
	float first = 0, now = 0;

	MUST(cuMemsetD8(model.weights, 0, FEATURES * sizeof(float)));
	MUST(cuMemsetD8(model.velocity, 0, FEATURES * sizeof(float)));
	for (step = 0; step < steps || (file && access(file, F_OK) != 0); step++) {
		uint32_t bits;

		now = one_step(step);
		memcpy(&bits, &now, sizeof(bits));
		first = step ? first : now;
		if (step < steps && compare)
			differ += kept[step] != bits;
		else if (step < steps)
			kept[step] = bits;
		if (!compare)
			printf("loss %u %08x\n", step, bits);
		if (pause_ms)
			usleep((useconds_t)pause_ms * 1000);
	}
	CHECK(!differ, "%u losses of %u differ from those of the first run", differ, steps);
	CHECK(isfinite(now) && now < first, "the loss went from %g to %g", (double)first, (double)now);
	return step - 1;
}

int main(int argc, char **argv)
{
	uint32_t steps = argc > 1 ? (uint32_t)atoi(argv[1]) : 100, last;
	const char *file = argc > 2 && strcmp(argv[2], "-") != 0 ? argv[2] : NULL;
	long pause_ms = argc > 5 ? atol(argv[5]) : 0;
	uint32_t *kept = calloc(steps + 1, sizeof(*kept));
	CUdeviceptr base;
	CUmodule module;
	size_t size;

	extra_size = argc > 3 ? (size_t)atol(argv[3]) * MIB : 4 * MIB;
	changed = argc > 4 ? (size_t)atol(argv[4]) * MIB : MIB;
	prog_context(NULL);
	module = prog_module("train");
	MUST(cuModuleGetFunction(&forward, module, "forward"));
	MUST(cuModuleGetFunction(&loss, module, "loss"));
	MUST(cuModuleGetFunction(&update, module, "update"));
	MUST(cuModuleGetFunction(&scramble, module, "scramble"));
	data_make();
	if (extra_size)
		extra = device_new(NULL, extra_size);
	extra_write(0xffffffffu, extra_size);
	MUST(cuCtxSynchronize());
	printf("ready\n");
	last = train(steps, file, kept, false, pause_ms);
	if (!file)
		last = train(steps, NULL, kept, true, 0);
	extra_check(last);
	MUST(cuMemGetAddressRange_v2(&base, &size, model.weights + 8));
	CHECK(base == model.weights && size == FEATURES * sizeof(float), "the range of the weights: %llx", (unsigned long long)base);
	free(kept);
	return prog_end();
}
