// SPDX-License-Identifier: Apache-2.0
// NCCL: collectives with one rank; with two ranks in two processes on two GPUs, where there are two (each then is a client
// of its own through Gleam). What doesn't work between processes must be an error, with its text, within the limit.
#include "lib.h"
#include <cuda_fp16.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

static const size_t n = 1 << 20;

// The collectives of one rank, whose input is the rank's own; what the result must be is known from all.
static void collectives(ncclComm_t comm, int rank, int ranks)
{
	std::vector<float> in = random_floats(n, 50 + rank), want(n), root = random_floats(n, 50), got;
	std::vector<std::vector<float>> all;
	Device<float> send(in), receive(n), gathered(n * ranks);
	cudaStream_t stream;

	for (int r = 0; r < ranks; r++)
		all.push_back(random_floats(n, 50 + r));
	for (size_t i = 0; i < n; i++)
		for (int r = 0; r < ranks; r++)
			want[i] += all[r][i];
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (int turn = 0; turn < 5; turn++)
		MUST(ncclAllReduce(send.at, receive.at, n, ncclFloat, ncclSum, comm, stream));
	MUST(cudaStreamSynchronize(stream));
	CHECK(receive.get() == want, "rank %d: all-reduce", rank);
	MUST(ncclAllReduce(send.at, send.at, n, ncclFloat, ncclSum, comm, stream)); /* in place */
	CHECK(send.get() == want, "rank %d: all-reduce in place", rank);
	send.set(in);
	MUST(ncclBroadcast(send.at, receive.at, n, ncclFloat, 0, comm, stream));
	CHECK(receive.get() == root, "rank %d: broadcast", rank);
	MUST(ncclGroupStart());
	MUST(ncclAllGather(send.at, gathered.at, n, ncclFloat, comm, stream));
	MUST(ncclReduce(send.at, receive.at, n, ncclFloat, ncclMax, 0, comm, stream));
	MUST(ncclGroupEnd());
	got = gathered.get();
	for (int r = 0; r < ranks; r++)
		CHECK(!memcmp(&got[r * n], all[r].data(), n * 4), "rank %d: all-gather of %d", rank, r);
	MUST(ncclReduceScatter(gathered.at, receive.at, n, ncclFloat, ncclSum, comm, stream));
	got = receive.get();
	int wrong = 0;
	for (size_t i = 0; i < n; i++)
		wrong += got[i] != all[rank][i] * (float)ranks;
	CHECK(!wrong, "rank %d: reduce-scatter", rank);
	MUST(cudaStreamDestroy(stream));
}

static void one_rank()
{
	ncclComm_t comm;
	ncclUniqueId id;
	int device = 0, version = 0, count = 0;
	ncclResult_t state;

	MUST(ncclGetVersion(&version));
	printf("NCCL %d\n", version);
	MUST(ncclCommInitAll(&comm, 1, &device));
	collectives(comm, 0, 1);
	MUST(ncclCommGetAsyncError(comm, &state));
	CHECK(state == ncclSuccess, "asynchronous error %d", (int)state);
	MUST(ncclCommDestroy(comm));
	/* As a launcher with one process does it. */
	MUST(ncclGetUniqueId(&id));
	MUST(ncclCommInitRank(&comm, 1, id, 0));
	MUST(ncclCommCount(comm, &count));
	CHECK(count == 1, "%d ranks", count);
	collectives(comm, 0, 1);
	MUST(ncclCommDestroy(comm));
}

// Rank 0 tells the id by a pipe. Exit 77 without a second GPU.
static int one_of_two(int rank, int in, int out)
{
	ncclComm_t comm;
	ncclUniqueId id;
	ncclResult_t result;
	int count = 0;

	alarm(30);
	if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2)
		return 77;
	MUST(cudaSetDevice(rank));
	if (!rank) {
		MUST(ncclGetUniqueId(&id));
		if (write(out, &id, sizeof(id)) != sizeof(id))
			return 1;
	} else if (read(in, &id, sizeof(id)) != sizeof(id)) {
		return 1;
	}
	result = ncclCommInitRank(&comm, 2, id, rank);
	if (result != ncclSuccess) {
		printf("rank %d of 2: %s: %s\n", rank, ncclGetErrorString(result), ncclGetLastError(NULL));
		return 1;
	}
	collectives(comm, rank, 2);
	MUST(ncclCommDestroy(comm));
	return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
	char sum[64], path[4096];
	pid_t pids[2];
	int ends[2], statuses[2] = {-1, -1};

	setvbuf(stdout, NULL, _IOLBF, 0);
	/* Multicast over NVLink is not needed, and can trouble a GPU that others use. */
	setenv("NCCL_NVLS_ENABLE", "0", 0);
	if (argc > 3)
		return one_of_two(atoi(argv[1]), atoi(argv[2]), atoi(argv[3]));
	if (readlink("/proc/self/exe", path, sizeof(path)) < 0 || pipe(ends))
		lib_die("a pipe", -1, __FILE__, __LINE__);
	/* Processes of their own, begun before this one knows of a device. */
	for (int rank = 0; rank < 2; rank++) {
		pids[rank] = fork();
		if (!pids[rank]) {
			char in[16], out[16];

			snprintf(sum, sizeof(sum), "%d", rank);
			snprintf(in, sizeof(in), "%d", ends[0]);
			snprintf(out, sizeof(out), "%d", ends[1]);
			execl("/proc/self/exe", argv[0], sum, in, out, (char *)NULL);
			_exit(127);
		}
	}
	for (int rank = 0; rank < 2; rank++)
		waitpid(pids[rank], &statuses[rank], 0);
	if (WIFEXITED(statuses[0]) && WEXITSTATUS(statuses[0]) == 77) {
		printf("two ranks are left out: they need two GPUs\n");
	} else {
		CHECK(statuses[0] == 0 && statuses[1] == 0, "two ranks in two processes ended with %#x and %#x", statuses[0], statuses[1]);
	}
	lib_device();
	one_rank();
	return lib_end();
}
