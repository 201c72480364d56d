// SPDX-License-Identifier: Apache-2.0
/*
 * Device printf: every line is on this program's stdout when the synchronise returns, before what the host writes after it
 * (field case P-020). The program looks at its own stdout through a file.
 */
#include <fcntl.h>

#include "tests/cuda/prog.h"

int main(void)
{
	char path[] = "/tmp/gleam-printf-XXXXXX", line[256];
	CUfunction say;
	unsigned int number = 4711, lines = 0, marker = 0, wrong = 0;
	void *params[] = { &number };
	int saved, fd;
	FILE *file;

	prog_context(NULL);
	say = prog_function("say", "say");
	fflush(stdout);
	saved = dup(STDOUT_FILENO);
	fd = mkstemp(path);
	dup2(fd, STDOUT_FILENO);
	MUST(cuLaunchKernel(say, 4, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
	MUST(cuCtxSynchronize());
	printf("marker\n");
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
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
	CHECK(lines == 128, "%u lines of 128", lines);
	CHECK(marker == lines, "%u lines before the marker", marker);
	CHECK(!wrong, "%u lines that no thread has written", wrong);
	return prog_end();
}
