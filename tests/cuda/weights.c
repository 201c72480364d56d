// SPDX-License-Identifier: Apache-2.0
/*
 * Loads a model as programs do: a file's tensors, of odd sizes and one behind the other, to the device, from a mapping of the
 * file or from memory that it was read into; then looks whether the right bytes lie there.
 *
 * Usage: weights FILE mapped|shared|heap|fresh|slice|private|changing [none | until PATH]
 *
 *	mapped	  from a private mapping (safetensors)		shared	from a shared one
 *	heap	  from memory that it was read into (torch.load)
 *	fresh	  from memory with bytes that there have never been before, as many as the file has
 *	slice	  the second half of each tensor, mapped (a part of a model on each of two GPUs)
 *	private	  mapped, but the program has changed some of its pages
 *	changing  from memory whose bytes another thread changes between uploads, and the copy that was asked for must be there
 * none: bytes are not compared, for times. until: a few bytes are written over, and all are compared when there is that file.
 *
 * Says how long it took from the start of the process to the last tensor, with contexts and without, and where that went.
 */
#include "tests/cuda/prog.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define TENSORS_MAX 4096
#define CHANGED	    100 /* bytes that are written over */
#define HEADER	    (40u << 10) /* what a safetensors file has before its tensors, about */

struct tensor {
	size_t at, size;
	CUdeviceptr device;
};

/* Where the time of a load goes, in seconds. */
struct phase {
	double total, longest;
	double at; /* when the longest call began */
};

static struct tensor tensors[TENSORS_MAX];
static unsigned tensor_count;

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void phase_add(struct phase *phase, double from, double to)
{
	phase->total += to - from;
	if (to - from <= phase->longest)
		return;
	phase->longest = to - from;
	phase->at = from;
}

/* When this process began, on the same clock. */
static double born_s(void)
{
	unsigned long long ticks = 0;
	char text[1024];
	FILE *file = fopen("/proc/self/stat", "r");
	char *at;

	if (!file || !fgets(text, sizeof(text), file) || !(at = strrchr(text, ')')))
		return now_s();
	fclose(file);
	sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &ticks);
	return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

/* Mostly large ones with a few small between, as in a model. */
static void tensors_make(size_t size, bool halves)
{
	size_t at = size > 4 * HEADER ? HEADER : 0;
	uint32_t seed = 7;

	while (at < size && tensor_count < TENSORS_MAX) {
		size_t want = tensor_count % 4 == 3 ? 4096 + prog_random(&seed) % 30000 * 64 :
						      (1u << 20) + prog_random(&seed) % 180000 * 64;
		struct tensor *tensor = &tensors[tensor_count++];

		if (tensor_count == TENSORS_MAX || want > size - at)
			want = size - at;
		*tensor = (struct tensor){ .at = at, .size = want };
		if (halves && want > 1) {
			tensor->at += want / 2;
			tensor->size -= want / 2;
		}
		at += want;
	}
}

static uint8_t *file_read(int fd, size_t size)
{
	uint8_t *bytes = malloc(size);

	for (size_t at = 0; bytes && at < size;) {
		ssize_t n = pread(fd, bytes + at, size - at, (off_t)at);

		if (n <= 0) {
			free(bytes);
			return NULL;
		}
		at += (size_t)n;
	}
	return bytes;
}

/* Nobody has seen these; they don't compress. */
static uint8_t *bytes_make(size_t size)
{
	uint64_t *words = malloc(size + 8);
	uint64_t state = (uint64_t)getpid() << 32 ^ (uint64_t)(now_s() * 1e9);

	for (size_t i = 0; words && i <= size / 8; i++) {
		uint64_t z = state += 0x9e3779b97f4a7c15ull;

		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
		words[i] = z ^ z >> 27;
	}
	return (uint8_t *)words;
}

/* One of our own, where none is named. */
static int file_make(void)
{
	FILE *file = tmpfile();
	uint32_t seed = 1;

	for (int i = 0; file && i < 3 << 20; i++) {
		uint32_t word = prog_random(&seed);

		fwrite(&word, sizeof(word), 1, file);
	}
	return file && fflush(file) == 0 ? dup(fileno(file)) : -1;
}

/* Each copy's bytes are what they were when it was asked for. */
static void changing_run(uint8_t *bytes, size_t size)
{
	const size_t part = 3u << 20;
	uint8_t *back = malloc(part), *asked = malloc(part);
	CUdeviceptr device[8];
	uint32_t seed = 3;

	if (size < part || !back || !asked)
		prog_die(CUDA_ERROR_INVALID_VALUE, "changing needs 3 MiB", __FILE__, __LINE__);
	for (int i = 0; i < 8; i++)
		MUST(cuMemAlloc(&device[i], part));
	for (int round = 0; round < 6; round++) {
		for (int i = 0; i < 8; i++) {
			uint32_t where = prog_random(&seed) % (uint32_t)part;

			/* Once in a while it is what was there before. */
			if (i % 3)
				bytes[where] ^= (uint8_t)(1 + round);
			MUST(cuMemcpyHtoDAsync(device[i], bytes, part, NULL));
			memcpy(asked, bytes, part);
			if (i % 2)
				memset(bytes + where / 2, round, 64); /* right after the call, before its bytes can have gone */
			if (i == 7) {
				MUST(cuMemcpyDtoH(back, device[i], part));
				CHECK(memcmp(back, asked, part) == 0, "round %d: not the bytes at the time of the call", round);
			}
		}
	}
}

/* On the device alone. */
static void bytes_change(const struct tensor *tensor)
{
	MUST(cuMemsetD8(tensor->device + tensor->size / 2, 0x5a, CHANGED));
	MUST(cuCtxSynchronize());
}

/* And back here: whether they are there. */
static bool bytes_mend(const struct tensor *tensor, uint8_t *back, const uint8_t *bytes)
{
	size_t at = tensor->size / 2;
	bool there = true;

	for (size_t i = at; i < at + CHANGED; i++)
		there = there && back[i] == 0x5a;
	memcpy(back + at, bytes + tensor->at + at, CHANGED);
	return there;
}

int main(int argc, char **argv)
{
	double born = born_s(), ready, began, waited, done;
	struct phase allocating = { 0 }, copying = { 0 };
	const char *mode = argc > 2 ? argv[2] : "mapped";
	bool check = argc <= 3 || strcmp(argv[3], "none") != 0;
	const char *until = argc > 4 && strcmp(argv[3], "until") == 0 ? argv[4] : NULL;
	int fd = argc > 1 ? open(argv[1], O_RDONLY) : file_make();
	struct stat st;
	CUdevice device;
	uint8_t *bytes, *back;
	size_t total = 0;
	unsigned wrong = 0;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size == 0) {
		fprintf(stderr, "usage: weights FILE mapped|shared|heap|fresh|slice|private|changing [none | until PATH]\n");
		return 2;
	}
	prog_context(&device);
	ready = now_s();
	if (strcmp(mode, "heap") == 0 || strcmp(mode, "changing") == 0) {
		bytes = file_read(fd, (size_t)st.st_size);
	} else if (strcmp(mode, "fresh") == 0) {
		bytes = bytes_make((size_t)st.st_size);
	} else {
		bool writes = strcmp(mode, "private") == 0;

		bytes = mmap(NULL, (size_t)st.st_size, writes ? PROT_READ | PROT_WRITE : PROT_READ,
			     strcmp(mode, "shared") == 0 ? MAP_SHARED : MAP_PRIVATE, fd, 0);
		if (bytes == MAP_FAILED)
			bytes = NULL;
		for (size_t at = 5000; bytes && writes && at < (size_t)st.st_size; at += 9u << 20)
			bytes[at] ^= 0x5a;
	}
	close(fd);
	if (!bytes) {
		fprintf(stderr, "weights: %s can't be read\n", argv[1]);
		return 1;
	}
	if (strcmp(mode, "changing") == 0) {
		changing_run(bytes, (size_t)st.st_size);
		return prog_end();
	}
	tensors_make((size_t)st.st_size, strcmp(mode, "slice") == 0);
	began = now_s();
	for (unsigned i = 0; i < tensor_count; i++) {
		double before = now_s(), between;

		MUST(cuMemAlloc(&tensors[i].device, tensors[i].size));
		between = now_s();
		MUST(cuMemcpyHtoDAsync(tensors[i].device, bytes + tensors[i].at, tensors[i].size, NULL));
		phase_add(&allocating, before, between);
		phase_add(&copying, between, now_s());
		total += tensors[i].size;
	}
	waited = now_s();
	MUST(cuCtxSynchronize());
	done = now_s();
	printf("weights: %zu bytes, %u tensors, %s: %.3f s from the start, %.3f s without the context, %.1f MB/s\n", total,
	       tensor_count, mode, done - born, done - ready, (double)total / 1e6 / (done - ready));
	printf("phases: load %.3f: context %.3f, file %.3f, allocations %.3f (longest %.3f, at %.3f), copies %.3f (longest %.3f, at %.3f), end %.3f\n",
	       done - began, ready - born, began - ready, allocating.total, allocating.longest, allocating.at - ready, copying.total,
	       copying.longest, copying.at - ready, done - waited);
	fflush(stdout);
	if (until) {
		bytes_change(&tensors[1]);
		printf("weights: waits\n");
		fflush(stdout);
		while (access(until, F_OK) != 0)
			usleep(10000);
	}
	back = check ? malloc((size_t)st.st_size) : NULL;
	for (unsigned i = 0; back && i < tensor_count; i++) {
		MUST(cuMemcpyDtoH(back, tensors[i].device, tensors[i].size));
		if (until && i == 1)
			wrong += !bytes_mend(&tensors[i], back, bytes);
		wrong += memcmp(back, bytes + tensors[i].at, tensors[i].size) != 0;
	}
	if (check)
		CHECK(back && !wrong, "%u of %u tensors", wrong, tensor_count);
	else
		CHECK(total > 0, "an empty file");
	free(back);
	if (strcmp(mode, "heap") == 0 || strcmp(mode, "fresh") == 0)
		free(bytes);
	return prog_end();
}
