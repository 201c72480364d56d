// SPDX-License-Identifier: Apache-2.0
/*
 * Device printf: every line is on this program's stdout when the synchronise returns, before what the host writes after it
 * (field case P-020). The program looks at its own stdout through a file.
 */
#include <fcntl.h>

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

		if (!strcmp(line, "marker\n"))
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
	CHECK(!wrong, "%s: %u lines that no thread has written", heard_names[how], wrong);
}

int main(void)
{
	CUstream stream;
	CUevent event;

	prog_context(NULL);
	say = prog_function("say", "say");
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (int how = 0; how < HEARD; how++)
		for (int turn = 0; turn < 3; turn++)
			printed(how, stream, event);
	MUST(cuEventDestroy(event));
	MUST(cuStreamDestroy(stream));
	return prog_end();
}
