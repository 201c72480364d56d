/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main() of a fuzz target in `make check`: replays the committed corpus, with the ordinary compiler and
 * whatever sanitizer the build has. Of each input every truncation is played too (each byte of the first
 * kilobyte, then a spread), since cut-off messages are what a stranger sends most easily.
 */
#include "tests/lib/fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Larger inputs belong into a generator, not into the repository. */
#define INPUT_SIZE_MAX	  (16u << 20)
#define TRUNCATION_DENSE  1024u
#define TRUNCATION_SPREAD 64u

/* The copy is made anew each time so that it ends where the heap's guard begins. */
static void play(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy) {
		fprintf(stderr, "out of memory for %zu bytes\n", size);
		exit(1);
	}
	if (size)
		memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static int play_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	struct stat st;
	uint8_t *data;
	size_t size;

	if (!file || fstat(fileno(file), &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > INPUT_SIZE_MAX) {
		fprintf(stderr, "%s: %s\n", path, file ? "no input of a sensible size" : strerror(errno));
		if (file)
			fclose(file);
		return -1;
	}
	size = st.st_size;
	data = malloc(size ? size : 1);
	if (!data || fread(data, 1, size, file) != size) {
		fprintf(stderr, "%s: cannot be read\n", path);
		free(data);
		fclose(file);
		return -1;
	}
	fclose(file);

	play(data, size);
	for (size_t cut = 0; cut < size && cut < TRUNCATION_DENSE; cut++)
		play(data, cut);
	for (size_t i = 1; size > TRUNCATION_DENSE && i < TRUNCATION_SPREAD; i++)
		play(data, TRUNCATION_DENSE + (size - TRUNCATION_DENSE) / TRUNCATION_SPREAD * i);
	free(data);
	return 0;
}

static int play_dir(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char file[4096];
	int count = 0;

	if (!dir)
		return -1;
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		if (snprintf(file, sizeof(file), "%s/%s", path, entry->d_name) >= (int)sizeof(file) ||
		    play_file(file) < 0) {
			closedir(dir);
			return -1;
		}
		count++;
	}
	closedir(dir);
	return count;
}

int main(int argc, char **argv)
{
	const char *top = getenv("GLEAM_TOP");
	const char *name = strrchr(argv[0], '/');
	char path[4096];
	struct stat st;
	int count;

	if (argc > 1) {
		for (int i = 1; i < argc; i++)
			if (play_file(argv[i]) < 0)
				return 1;
		return 0;
	}
	name = name ? name + 1 : argv[0];
	if (!top)
		top = ".";
	snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/%s", top,
		 strncmp(name, "fuzz_", 5) == 0 ? name + 5 : name);
	if (stat(path, &st) < 0)
		snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/%s", top, name);
	count = play_dir(path);
	if (count <= 0) {
		fprintf(stderr, "%s: no corpus, or one that cannot be played\n", path);
		return 1;
	}
	printf("%d inputs and their truncations\n", count);
	return 0;
}
