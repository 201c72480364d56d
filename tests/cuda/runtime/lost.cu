// SPDX-License-Identifier: Apache-2.0
// What a program of the runtime API is told when the process on the server that works for it is killed: the error says that the device isn't
// there, every later call says so, too, at once, the program lives on, and GLEAM_LOG names cause and call. Natively, where there is no such process (or
// it can't be seen), only the work is checked.
#include <cuda_runtime.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <chrono>
#include <dirent.h>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>

static int passed, failed;

#define CHECK(condition, ...)                                                                            \
	do {                                                                                             \
		if (condition) {                                                                         \
			passed++;                                                                        \
		} else {                                                                                 \
			failed++;                                                                        \
			printf("%s:%d: wrong: ", __FILE__, __LINE__);                                    \
			printf(__VA_ARGS__);                                                             \
			printf("\n");                                                                    \
		}                                                                                        \
	} while (0)

__global__ void step(float *x, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		x[i] = x[i] * 0.5f + 1.0f;
}

// Page-locked memory that the device has used lies at the same address in the process that works for us; of this size it is ours.
static pid_t find_worker(const void *pinned, size_t size)
{
	char wanted[64];
	pid_t found = 0;
	DIR *all = opendir("/proc");

	snprintf(wanted, sizeof(wanted), "%lx-%lx ", (unsigned long)pinned, (unsigned long)pinned + size);
	for (struct dirent *entry; all && (entry = readdir(all));) {
		std::string folder = std::string("/proc/") + entry->d_name, name, line;
		std::ifstream comm(folder + "/comm");

		if (!std::getline(comm, name) || name != "gleam-worker")
			continue;
		std::ifstream maps(folder + "/maps");

		while (std::getline(maps, line))
			if (line.compare(0, strlen(wanted), wanted) == 0)
				found = (pid_t)atoi(entry->d_name);
	}
	if (all)
		closedir(all);
	return found;
}

static std::string read_all(const char *path)
{
	std::ifstream file(path);
	std::stringstream text;

	text << file.rdbuf();
	return text.str();
}

static double seconds()
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main()
{
	const size_t pinned_size = 4096u * (1200 + (unsigned)getpid() % 800);
	const int n = 100000;
	const char *folder = getenv("TMPDIR");
	std::string path = std::string(folder ? folder : "/tmp") + "/gleam-lost-XXXXXX";
	char *log = path.data();
	float *x, last = 0;
	void *pinned, *seen;
	cudaError_t error = cudaSuccess;
	int fd = mkstemp(log);
	double killed;

	setenv("GLEAM_LOG", log, 1);
	CHECK(cudaHostAlloc(&pinned, pinned_size, cudaHostAllocMapped) == cudaSuccess && cudaMalloc(&x, n * sizeof(float)) == cudaSuccess, "memory");
	CHECK(cudaHostGetDevicePointer(&seen, pinned, 0) == cudaSuccess && cudaMemset(seen, 3, 1000) == cudaSuccess, "page-locked memory");
	CHECK(cudaMemset(x, 0, n * sizeof(float)) == cudaSuccess, "memset");
	for (int i = 0; i < 60; i++)
		step<<<(n + 255) / 256, 256>>>(x, n);
	error = cudaMemcpy(&last, x + n - 1, sizeof(last), cudaMemcpyDeviceToHost);
	CHECK(error == cudaSuccess && last == 2.0f, "%s, %f", cudaGetErrorString(error), last);
	CHECK(((char *)pinned)[999] == 3, "page-locked memory");

	pid_t worker = getenv("GLEAM_SOCKET") ? find_worker(pinned, pinned_size) : 0;

	if (!worker) {
		unlink(log);
		printf("%s\n", getenv("GLEAM_SOCKET") ? "the worker can't be seen from here" : "natively: nobody is killed");
		printf("%d passed, %d failed\n", passed, failed);
		return failed != 0;
	}
	std::thread killer([&] {
		usleep(50000);
		killed = seconds();
		kill(worker, SIGKILL);
	});
	for (int i = 0; i < 100000 && error == cudaSuccess; i++) {
		step<<<(n + 255) / 256, 256>>>(x, n);
		error = cudaGetLastError();
		if (error == cudaSuccess)
			error = cudaMemcpy(&last, x, sizeof(last), cudaMemcpyDeviceToHost);
	}
	double told = seconds();

	killer.join();
	printf("%s: %s, %.3f s after the kill\n", cudaGetErrorName(error), cudaGetErrorString(error), told - killed);
	CHECK(error == cudaErrorDevicesUnavailable, "the error is %s", cudaGetErrorName(error));
	CHECK(strstr(cudaGetErrorString(error), "unavailable"), "the error says %s", cudaGetErrorString(error));
	CHECK(told - killed < 10, "told after %.1f s", told - killed);
	// It stays so, without a wait, for calls of every kind.
	void *more;
	cudaStream_t stream;

	told = seconds();
	for (int i = 0; i < 100; i++) {
		CHECK(cudaDeviceSynchronize() == cudaErrorDevicesUnavailable, "a wait");
		CHECK(cudaMemset(x, 1, 4) == cudaErrorDevicesUnavailable, "a memset");
		CHECK(cudaMalloc(&more, 1000) == cudaErrorDevicesUnavailable, "an allocation");
		CHECK(cudaStreamCreate(&stream) == cudaErrorDevicesUnavailable, "a stream");
		CHECK(cudaFree(x) == cudaErrorDevicesUnavailable, "a free");
		step<<<1, 1>>>(x, 1);
		CHECK(cudaGetLastError() == cudaErrorDevicesUnavailable, "a launch");
	}
	CHECK(seconds() - told < 5, "600 calls took %.1f s", seconds() - told);
	// What is the program's stays the program's.
	memset(pinned, 1, pinned_size);
	CHECK(((char *)pinned)[pinned_size - 1] == 1, "page-locked memory");

	std::string text = read_all(log);

	CHECK(text.find("the worker process on the server died") != std::string::npos, "GLEAM_LOG has no cause: %s", text.c_str());
	CHECK(text.find("cuMemAlloc_v2: error 46") != std::string::npos, "GLEAM_LOG names no call: %s", text.c_str());
	unlink(log);
	close(fd);
	printf("%d passed, %d failed\n", passed, failed);
	return failed != 0;
}
