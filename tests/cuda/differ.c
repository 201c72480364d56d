// SPDX-License-Identifier: Apache-2.0
/*
 * The differential tester's program: makes and runs random programs of the driver API, and prints a line for each with a
 * hash of all result codes and of all memory. Run twice, directly on a driver and through Gleam, the lines are the same
 * (tests/cuda/differ.py does that, and makes a program that differs smaller). See differ.h.
 *
 *	differ [--seed N] [--count M] [--steps K] [--real] [--no-graphs] [--words] [--shared] [--callbacks] [--trace] [--print]
 *	differ --play FILE... [--mend] [--trace] [--print]
 *
 * --real leaves out what may crash a real driver, and what it orders otherwise; --print shows the program and runs nothing; --trace shows what came of
 * each operation; --hang N ends a program that takes N seconds; --mend drops what is impossible in a file and puts waits where it would race.
 */
#include <getopt.h>

#include "tests/cuda/differ.h"
#include "tests/cuda/prog.h"

static struct program program;
static bool traced, printed, mend, in_parts;
bool real_driver;

static void program_print(const struct program *p)
{
	if (p->reset)
		printf("# reset\n");
	for (uint32_t i = 0; i < p->count; i++) {
		op_print(stdout, &p->ops[i]);
		if (p->ops[i].kind == OP_ILLEGAL)
			printf(" # %s", illegal_name((unsigned)p->ops[i].a[0]));
		printf("\n");
	}
}

static void one(const char *name)
{
	static struct outcome outcome;

	if (printed) {
		program_print(&program);
		return;
	}
	play(&program, &outcome, traced ? stdout : NULL);
	if (in_parts) {
		printf("parts of %s", name);
		for (uint32_t i = 0; i < program.count; i++)
			printf(" %08x", outcome.parts[i]);
		printf(" %016llx\n", (unsigned long long)outcome.end);
	}
	printf("%s %u operations, results %016llx, memory %016llx\n", name, program.count,
	       (unsigned long long)outcome.results, (unsigned long long)outcome.memory);
	fflush(stdout);
}

/* A program from a file. Its model is made here, too: a file that races is refused, unless it is to be mended. */
static int file_read(const char *path)
{
	FILE *file = fopen(path, "r");
	char line[512];
	uint32_t number = 0;

	if (!file) {
		perror(path);
		return 2;
	}
	program.count = 0;
	program.seed = 0;
	program.reset = false;
	while (fgets(line, sizeof(line), file)) {
		int got;

		number++;
		if (!strcmp(line, "# reset\n"))
			program.reset = true;
		if (program.count == DIFFER_OPS)
			got = -1;
		else
			got = op_parse(line, &program.ops[program.count]);
		if (got < 0) {
			fprintf(stderr, "%s:%u: no operation: %s", path, number, line);
			fclose(file);
			return 2;
		}
		program.count += (uint32_t)got;
	}
	fclose(file);
	number = program.count;

	uint32_t dropped = program_mend(&program);

	if (!mend && (dropped || program.count != number)) {
		fprintf(stderr, "%s: %u operations are impossible, and %d waits are missing\n", path, dropped,
			(int)(program.count + dropped) - (int)number);
		return 2;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },  { "count", required_argument, NULL, 'c' },
		{ "steps", required_argument, NULL, 'k' }, { "real", no_argument, NULL, 'r' },
		{ "words", no_argument, NULL, 'w' },	   { "no-graphs", no_argument, NULL, 'g' },
		{ "trace", no_argument, NULL, 't' },	   { "shared", no_argument, NULL, 'd' },
		{ "print", no_argument, NULL, 'p' },	   { "play", no_argument, NULL, 'f' },
		{ "parts", no_argument, NULL, 'a' },	   { "callbacks", no_argument, NULL, 'b' },
		{ "mend", no_argument, NULL, 'm' },	   { "hang", required_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct make_options make = { .graphs = true };
	unsigned long long seed = 1, count = 1;
	bool files = false;
	int option, status = 0;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 's':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 'c':
			count = strtoull(optarg, NULL, 0);
			break;
		case 'k':
			make.steps = (uint32_t)strtoul(optarg, NULL, 0);
			if (make.steps > DIFFER_OPS / 3)
				make.steps = DIFFER_OPS / 3;
			break;
		case 'r':
			make.real = real_driver = true;
			break;
		case 'g':
			make.graphs = false;
			break;
		case 'w':
			make.words = true;
			break;
		case 'd':
			make.shared = true;
			break;
		case 'b':
			make.callbacks = true;
			break;
		case 't':
			traced = true;
			break;
		case 'p':
			printed = true;
			break;
		case 'a':
			in_parts = true;
			break;
		case 'f':
			files = true;
			break;
		case 'h':
			play_seconds = (unsigned)strtoul(optarg, NULL, 0);
			break;
		case 'm':
			mend = true;
			break;
		default:
			fprintf(stderr, "usage: differ [--seed N] [--count M] [--steps K] [--real] [--no-graphs] [--words] [--shared] [--callbacks] [--trace] "
					"[--parts] [--print] | --play FILE... [--mend] [--trace] [--print]\n");
			return 2;
		}
	}
	if (!printed)
		play_begin();
	if (files) {
		for (int i = optind; i < argc && !status; i++) {
			const char *slash = strrchr(argv[i], '/');

			status = file_read(argv[i]);
			if (!status)
				one(slash ? slash + 1 : argv[i]);
		}
	} else {
		for (unsigned long long i = 0; i < count; i++) {
			char name[40];

			snprintf(name, sizeof(name), "seed %llu:", seed + i);
			program_make(&program, seed + i, &make);
			one(name);
		}
	}
	if (!printed)
		play_end();
	return status;
}
