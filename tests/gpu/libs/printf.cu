// SPDX-License-Identifier: Apache-2.0
// What kernels print comes at the next wait of whatever kind, complete, in order with what the host prints, into a file
// and into a pipe, and a closed stdout harms nothing (field case P-020).
#include "lib.h"
#include <sys/wait.h>
#include <unistd.h>

__global__ void say(int turn, int lines)
{
	for (int i = 0; i < lines; i++)
		printf("turn %d line %d: %s %.3f %c %llx%%\n", turn, i, i % 2 ? "odd" : "even", i * 0.5, 'a' + i % 26,
		       0xfedcba9876543210ull + i);
}

__global__ void say_each() { printf("block %d thread %d\n", blockIdx.x, threadIdx.x); }

static const int lines = 100;

// What the child does: a kernel, a wait of one kind, a line of the host.
static int child(bool flushed)
{
	cudaStream_t stream;
	cudaEvent_t event;
	int *memory, host = 0;

	MUST(cudaStreamCreate(&stream));
	MUST(cudaEventCreate(&event));
	MUST(cudaMalloc((void **)&memory, 4));
	for (int turn = 0; turn < 5; turn++) {
		say<<<1, 1, 0, stream>>>(turn, lines);
		switch (turn) {
		case 0: MUST(cudaStreamSynchronize(stream)); break;
		case 1:
			MUST(cudaEventRecord(event, stream));
			MUST(cudaEventSynchronize(event));
			break;
		case 2: MUST(cudaDeviceSynchronize()); break;
		case 3: MUST(cudaMemcpy(&host, memory, 4, cudaMemcpyDeviceToHost)); break;
		case 4:
			MUST(cudaMemcpyAsync(&host, memory, 4, cudaMemcpyDeviceToHost, stream));
			MUST(cudaStreamSynchronize(stream));
			break;
		}
		printf("the host after turn %d\n", turn);
		if (flushed)
			fflush(stdout);
	}
	say_each<<<4, 32>>>();
	MUST(cudaDeviceSynchronize());
	printf("the end\n");
	return 0;
}

// stdout of this program, run anew with @how, through a file or a pipe.
static std::string output(const char *self, const char *how, bool file)
{
	int ends[2] = {-1, -1}, status = 0;
	FILE *stored = file ? tmpfile() : NULL;
	std::string text;
	char piece[65536];
	ssize_t got;
	pid_t pid;

	fflush(stdout);
	if (file ? !stored : pipe(ends) != 0)
		lib_die("a file or a pipe", -1, __FILE__, __LINE__);
	pid = fork();
	if (!pid) {
		dup2(file ? fileno(stored) : ends[1], 1);
		if (!file) {
			close(ends[0]);
			close(ends[1]);
		}
		/* A log would be the next file to get the number of a closed stdout, and hide what else may get it. */
		if (!strcmp(how, "closed"))
			unsetenv("GLEAM_LOG");
		execl("/proc/self/exe", self, how, (char *)NULL);
		_exit(127);
	}
	if (!file) {
		close(ends[1]);
		while ((got = read(ends[0], piece, sizeof(piece))) > 0)
			text.append(piece, (size_t)got);
		close(ends[0]);
	}
	waitpid(pid, &status, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with status %#x", status);
	if (file) {
		rewind(stored);
		while ((got = (ssize_t)fread(piece, 1, sizeof(piece), stored)) > 0)
			text.append(piece, (size_t)got);
		fclose(stored);
	}
	return text;
}

static std::vector<std::string> split(const std::string &text)
{
	std::vector<std::string> all;
	size_t at = 0, end;

	while ((end = text.find('\n', at)) != std::string::npos) {
		all.push_back(text.substr(at, end - at));
		at = end + 1;
	}
	return all;
}

static void judge(const std::string &text, const char *what)
{
	std::vector<std::string> got = split(text);
	size_t at = 0, wrong = 0;
	bool seen[128] = {};
	int block, thread, count = 0;
	char want[128];

	for (int turn = 0; turn < 5 && at < got.size(); turn++) {
		for (int i = 0; i < lines; i++, at++) {
			snprintf(want, sizeof(want), "turn %d line %d: %s %.3f %c %llx%%", turn, i, i % 2 ? "odd" : "even", i * 0.5,
				 'a' + i % 26, 0xfedcba9876543210ull + i);
			if (at >= got.size() || got[at] != want) {
				if (!wrong++)
					printf("%s: line %zu is \"%s\", not \"%s\"\n", what, at,
					       at < got.size() ? got[at].c_str() : "nothing", want);
			}
		}
		snprintf(want, sizeof(want), "the host after turn %d", turn);
		if (at >= got.size() || got[at++] != want)
			wrong++;
	}
	CHECK(!wrong && at == 5 * (lines + 1), "%s: %zu lines of %zu", what, wrong, at);
	/* The last kernel's threads print in whatever order. */
	for (; at < got.size(); at++)
		if (sscanf(got[at].c_str(), "block %d thread %d", &block, &thread) == 2 && block >= 0 && block < 4 && thread >= 0 &&
		    thread < 32 && !seen[block * 32 + thread]) {
			seen[block * 32 + thread] = true;
			count++;
		}
	CHECK(count == 128 && !got.empty() && got.back() == "the end", "%s: %d threads of 128 were heard", what, count);
}

int main(int argc, char **argv)
{
	std::string text, other;

	if (argc > 1 && !strcmp(argv[1], "closed")) {
		void *memory;

		close(1);
		say<<<1, 1>>>(0, lines);
		/* What is said goes nowhere; all goes on. */
		return cudaDeviceSynchronize() == cudaSuccess && cudaMalloc(&memory, 1000) == cudaSuccess &&
				       cudaMemset(memory, 0, 1000) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess
			       ? 0
			       : 1;
	}
	if (argc > 1)
		return child(!strcmp(argv[1], "flushed"));
	/* No device in this process before fork and exec. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	text = output(argv[0], "flushed", true);
	judge(text, "into a file");
	other = output(argv[0], "flushed", false);
	judge(other, "into a pipe");
	text = text.substr(0, text.find("block "));
	result_add(text.data(), text.size());
	/* A host that does not flush: where its lines land is the native driver's habit, and ours is to be the same. */
	other = output(argv[0], "buffered", false);
	other = other.substr(0, other.find("block "));
	result_add(other.data(), other.size());
	printf("a host that does not flush: its lines are %s\n", other == text ? "in order" : "elsewhere");
	output(argv[0], "closed", false);
	return lib_end();
}
