// SPDX-License-Identifier: Apache-2.0
/*
 * Device printf: every line is on this program's stdout when the synchronise returns, before what the host writes after it
 * (field case P-020). The program looks at its own stdout through a file.
 */
#include <fcntl.h>
#include <sys/wait.h>

#include "tests/cuda/prog.h"

static CUfunction say;

/* How the end of the work is heard of. */
enum heard { CONTEXT, STREAM, EVENT, HEARD };
static const char *const heard_names[] = { "the context", "a stream", "an event" };

static void wait_for(enum heard how, CUstream stream, CUevent event)
{
	switch (how) {
	case CONTEXT:
		MUST(cuCtxSynchronize());
		break;
	case STREAM:
		MUST(cuStreamSynchronize(stream));
		break;
	default:
		MUST(cuEventRecord(event, stream));
		MUST(cuEventSynchronize(event));
	}
}

static void printed(enum heard how, CUstream stream, CUevent event)
{
	char path[] = "/tmp/gleam-printf-XXXXXX", line[256];
	unsigned int number = 4711, lines = 0, marker = 0, wrong = 0;
	void *params[] = { &number };
	int saved, fd;
	FILE *file;

	fflush(stdout);
	saved = dup(STDOUT_FILENO);
	fd = mkstemp(path);
	dup2(fd, STDOUT_FILENO);
	/* Left in the C library's buffer. */
	printf("before\n");
	MUST(cuLaunchKernel(say, 4, 1, 1, 32, 1, 1, 0, stream, params, NULL));
	wait_for(how, stream, event);
	printf("marker\n");
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	close(fd);
	file = fopen(path, "r");
	while (fgets(line, sizeof(line), file)) {
		unsigned int block, thread, got;

		if (!strcmp(line, "before\n"))
			wrong += lines != 0;
		else if (!strcmp(line, "marker\n"))
			marker = lines;
		else if (sscanf(line, "block %u thread %u says %u", &block, &thread, &got) == 3)
			lines++, wrong += got != number || block > 3 || thread > 31;
		else
			wrong++;
	}
	fclose(file);
	unlink(path);
	CHECK(lines == 128, "%s: %u lines of 128", heard_names[how], lines);
	CHECK(marker == lines, "%s: %u lines before the marker", heard_names[how], marker);
	CHECK(!wrong, "%s: %u lines that no thread has written, or out of order", heard_names[how], wrong);
}

/* Without a stdout what is said goes nowhere, and certainly not into whatever else has got its number. */
static int closed(void)
{
	unsigned int number = 4711, back = 0;
	void *params[] = { &number };
	CUdeviceptr memory;

	prog_context(NULL);
	say = prog_function("say", "say");
	if (cuLaunchKernel(say, 4, 1, 1, 32, 1, 1, 0, NULL, params, NULL) || cuCtxSynchronize() || cuMemAlloc(&memory, 4) ||
	    cuMemcpyHtoD(memory, &number, 4) || cuMemcpyDtoH(&back, memory, 4))
		return 1;
	return back == number ? 0 : 2;
}

static int closed_status(void)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		close(STDOUT_FILENO);
		execl("/proc/self/exe", "printf", "closed", (char *)NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	return status;
}

int main(int argc, char **argv)
{
	CUstream stream;
	CUevent event;
	int status;

	if (argc > 1 && !strcmp(argv[1], "closed"))
		return closed();
	/* Before this process has a device. */
	status = closed_status();
	CHECK(status == 0, "with stdout closed: status %#x", status);
	prog_context(NULL);
	say = prog_function("say", "say");
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (int how = 0; how < HEARD; how++)
		for (int turn = 0; turn < (getenv("GLEAM_LONG") ? 100 : 3); turn++)
			printed(how, stream, event);
	MUST(cuEventDestroy(event));
	MUST(cuStreamDestroy(stream));
	return prog_end();
}
