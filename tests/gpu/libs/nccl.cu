// SPDX-License-Identifier: Apache-2.0
// NCCL: collectives with one rank; where there are two GPUs, with two ranks in two processes that see both, in two processes that see
// one each, and in one process. Through Gleam each process is a client of its own, and their memory is shared at the node. What
// doesn't work between processes must be an error, with its text, within the limit.
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

// How two ranks are spread over processes; both: a process with two ranks.
enum { SEE_BOTH, SEE_ONE, IN_ONE, WAYS };
static const char *const ways[WAYS] = { "two processes that see two GPUs", "two processes that see one GPU each", "one process" };

// Two ranks in this process, a thread's group of calls for both.
static int both_in_one()
{
	const int devices[2] = { 0, 1 };
	ncclComm_t comms[2];
	std::vector<float> want(n);
	std::vector<float> in[2];
	float *send[2], *receive[2];
	cudaStream_t streams[2];
	int count = 0;

	alarm(30);
	if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2)
		return 77;
	MUST(ncclCommInitAll(comms, 2, devices));
	for (int r = 0; r < 2; r++) {
		in[r] = random_floats(n, 50 + r);
		for (size_t i = 0; i < n; i++)
			want[i] += in[r][i];
		MUST(cudaSetDevice(r));
		MUST(cudaMalloc((void **)&send[r], n * 4));
		MUST(cudaMalloc((void **)&receive[r], n * 4));
		MUST(cudaMemcpy(send[r], in[r].data(), n * 4, cudaMemcpyHostToDevice));
		MUST(cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking));
	}
	for (int turn = 0; turn < 5; turn++) {
		MUST(ncclGroupStart());
		for (int r = 0; r < 2; r++)
			MUST(ncclAllReduce(send[r], receive[r], n, ncclFloat, ncclSum, comms[r], streams[r]));
		MUST(ncclGroupEnd());
	}
	for (int r = 0; r < 2; r++) {
		std::vector<float> got(n);

		MUST(cudaSetDevice(r));
		MUST(cudaStreamSynchronize(streams[r]));
		MUST(cudaMemcpy(got.data(), receive[r], n * 4, cudaMemcpyDeviceToHost));
		CHECK(got == want, "rank %d of one process: all-reduce", r);
	}
	for (int r = 0; r < 2; r++)
		MUST(ncclCommDestroy(comms[r]));
	return failed ? 1 : 0;
}

// Rank 0 tells the id by a pipe. Exit 77 without a second GPU.
static int one_of_two(int way, int rank, int in, int out)
{
	ncclComm_t comm;
	ncclUniqueId id;
	ncclResult_t result;
	int count = 0;

	alarm(30);
	if (way == IN_ONE)
		return rank ? 0 : both_in_one();
	if (cudaGetDeviceCount(&count) != cudaSuccess || count < (way == SEE_BOTH ? 2 : 1))
		return 77;
	MUST(cudaSetDevice(way == SEE_BOTH ? rank : 0));
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

// Asked by a process of its own: this one must not know of a device before it has forked.
static int gpus()
{
	int count = 0, status = 0;
	pid_t pid = fork();

	if (!pid) {
		setenv("GLEAM_GPUS", "all", 1);
		_exit(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

// Processes of their own, begun before this one knows of a device.
static void two_ranks(char *self, int way)
{
	char numbers[4][16];
	pid_t pids[2];
	int ends[2], statuses[2] = {-1, -1};

	if (pipe(ends))
		lib_die("a pipe", -1, __FILE__, __LINE__);
	for (int rank = 0; rank < 2; rank++) {
		pids[rank] = fork();
		if (!pids[rank]) {
			const int values[4] = { way, rank, ends[0], ends[1] };

			for (int i = 0; i < 4; i++)
				snprintf(numbers[i], sizeof(numbers[i]), "%d", values[i]);
			if (way == SEE_ONE)
				setenv("CUDA_VISIBLE_DEVICES", numbers[1], 1);
			else
				setenv("GLEAM_GPUS", "2", 1);
			execl("/proc/self/exe", self, numbers[0], numbers[1], numbers[2], numbers[3], (char *)NULL);
			_exit(127);
		}
	}
	for (int rank = 0; rank < 2; rank++)
		waitpid(pids[rank], &statuses[rank], 0);
	close(ends[0]);
	close(ends[1]);
	if (WIFEXITED(statuses[0]) && WEXITSTATUS(statuses[0]) == 77) {
		printf("two ranks in %s are left out: they need two GPUs\n", ways[way]);
		return;
	}
	CHECK(statuses[0] == 0 && statuses[1] == 0, "two ranks in %s ended with %#x and %#x", ways[way], statuses[0], statuses[1]);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* Multicast over NVLink is not needed, and can trouble a GPU that others use. */
	setenv("NCCL_NVLS_ENABLE", "0", 0);
	/* GPU to GPU, whatever the buses look like from here. */
	setenv("NCCL_P2P_LEVEL", "SYS", 0);
	/* Page-locked memory by cuMemCreate is the server's, and refused. */
	setenv("NCCL_CUMEM_HOST_ENABLE", "0", 0);
	setenv("NCCL_DEBUG", "WARN", 0);
	if (argc > 4)
		return one_of_two(atoi(argv[1]), atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
	for (int way = 0; way < WAYS; way++) {
		/* A process that sees one GPU can't tell whether there is another one. */
		if (way == SEE_ONE && gpus() < 2)
			printf("two ranks in %s are left out: they need two GPUs\n", ways[way]);
		else
			two_ranks(argv[0], way);
	}
	lib_device();
	one_rank();
	return lib_end();
}
