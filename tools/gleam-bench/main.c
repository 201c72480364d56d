// SPDX-License-Identifier: Apache-2.0
/* gleam-bench: the command line, the plan, and whose turn it is. */
#include <errno.h>
#include <getopt.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/proto/off.h"
#include "tools/gleam-bench/bench.h"

#define SIZE_LEAST   (4ull << 10)
#define SIZE_FACTOR  8u
#define SIZES_MAX    16u
#define START_S	     1.5 /* a side: the library, a context, a module, a graph */
#define WARM_S	     2.0 /* the next worker has its contexts by then */

const struct row rows[] = {
	{ "launch", "an asynchronous launch, as its caller sees it", { "us", "CPU us" }, UNIT_US, false, 0 },
	{ "launch_rate", "launches until they are done, each", { "us", "CPU us" }, UNIT_US, false, 0 },
	{ "launch_sync", "a launch and a synchronise", { "us", "CPU us" }, UNIT_US, false, 0 },
	{ "graph_launch", "a graph of 50 kernels and a synchronise", { "us", "CPU us" }, UNIT_US, false, 0 },
	{ "copy4_up", "4 bytes to the device", { "us", "CPU us" }, UNIT_US, false, 0 },
	{ "copy4_down", "4 bytes from the device", { "us", "CPU us" }, UNIT_US, false, 0 },
	{ "event_record", "an event recorded", { "us", "CPU us" }, UNIT_US, false, 0 },
	{ "event_query", "an event asked for", { "us", "CPU us" }, UNIT_US, false, 0 },
	{ "context_get", "the current context", { "us", "CPU us" }, UNIT_US, false, 0 },
	{ "attribute_get", "an attribute of the device", { "us", "CPU us" }, UNIT_US, false, 0 },
	{ "first_alloc", "a new process's cuInit, context and 1 MiB allocated", { "us", "CPU us" }, UNIT_US, false, WARM_S },
	{ "alloc_small", "4 KiB allocated and freed", { "us", "CPU us" }, UNIT_US, false, 0 },
	{ "alloc_large", "16 MiB allocated and freed", { "us", "CPU us" }, UNIT_US, false, 0 },
	{ "module_load", "PTX loaded that wasn't before, and unloaded", { "us", "CPU us" }, UNIT_US, false, 0 },
	{ "up", "to the device, pageable memory", { "GB/s", "CPU us/MiB" }, UNIT_GB_S, true, 0 },
	{ "down", "from the device, pageable memory", { "GB/s", "CPU us/MiB" }, UNIT_GB_S, true, 0 },
	{ "up_locked", "to the device, page-locked memory", { "GB/s", "CPU us/MiB" }, UNIT_GB_S, true, 0 },
	{ "down_locked", "from the device, page-locked memory", { "GB/s", "CPU us/MiB" }, UNIT_GB_S, true, 0 },
	{ 0 },
};

struct options {
	const char *native;
	const char *gleam;
	const char *off;
	bool no_gleam;
	const char *only;
	double seconds;
	unsigned turns;
	uint64_t size_max;
	bool list;
	const char *json;
	const char *svg;
};

static void usage(FILE *out)
{
	fputs("usage: gleam-bench [--native LIBCUDA] [--gleam LIBCUDA | --no-gleam] [--off WORDS] [options]\n"
	      "What calls of the CUDA driver API take: natively, through Gleam, and with techniques of it switched off, in turns.\n"
	      "\n"
	      "  --native LIBCUDA  the driver's own library, or libsoftcuda.so; without it Gleam is measured alone\n"
	      "  --gleam LIBCUDA   Gleam's library (default: the one beside this program, else the system's libcuda.so.1)\n"
	      "  --no-gleam        measure natively alone\n"
	      "  --off WORDS       a third side with these off: all, or words of GLEAM_OFF with commas\n"
	      "  --only REGEX      rows whose name it matches\n"
	      "  --seconds S       a turn's time (default: 0.2)\n"
	      "  --turns N         turns of each side a row, 1 to 64 (default: 5)\n"
	      "  --max-size SIZE   largest copy: 4K to 4G (default: 1G; 4G needs that much memory twice)\n"
	      "  --json FILE       results, written anew after each row\n"
	      "  --svg FILE        a picture of them, likewise\n"
	      "  --list            name the rows and the time they will take, and end\n"
	      "  --help            this text\n"
	      "  --version         the version\n"
	      "\n"
	      "Numbers are medians of turns, with the least and the most. Which daemon: GLEAM_SOCKET, GLEAM_SERVER.\n"
	      "Exit status: 0; 1 if it failed, with the cause on stderr; 2 for wrong usage.\n",
	      out);
}

static int misused(const char *what, const char *value)
{
	fprintf(stderr, "gleam-bench: %s%s%s%s; see gleam-bench --help\n", what, *value ? " `" : "", value, *value ? "`" : "");
	return EXIT_USAGE;
}

static bool size_read(const char *text, uint64_t *size_out)
{
	char *end;
	double value = strtod(text, &end);

	switch (*end) {
	case 'G':
		value *= 1024;
		/* fallthrough */
	case 'M':
		value *= 1024;
		/* fallthrough */
	case 'K':
		value *= 1024;
		end++;
		break;
	default:
		break;
	}
	if (end == text || *end || value < (double)SIZE_LEAST || value > (double)(4ull << 30))
		return false;
	*size_out = (uint64_t)value;
	return true;
}

/* Exit status, or -1: go on. */
static int options_read(int argc, char **argv, struct options *o)
{
	static const struct option known[] = {
		{ "native", required_argument, NULL, 'n' }, { "gleam", required_argument, NULL, 'g' },
		{ "no-gleam", no_argument, NULL, 'G' },	    { "off", required_argument, NULL, 'o' },
		{ "only", required_argument, NULL, 'O' },   { "seconds", required_argument, NULL, 's' },
		{ "turns", required_argument, NULL, 't' },  { "max-size", required_argument, NULL, 'm' },
		{ "json", required_argument, NULL, 'j' },   { "svg", required_argument, NULL, 'v' },
		{ "list", no_argument, NULL, 'l' },	    { "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },	    { NULL, 0, NULL, 0 },
	};
	char unknown[OFF_UNKNOWN_SIZE], *end;
	int c;

	*o = (struct options){ .seconds = 0.2, .turns = 5, .size_max = 1ull << 30 };
	opterr = 0;
	while ((c = getopt_long(argc, argv, ":", known, NULL)) != -1)
		switch (c) {
		case 'n':
			o->native = optarg;
			break;
		case 'g':
			o->gleam = optarg;
			break;
		case 'G':
			o->no_gleam = true;
			break;
		case 'o':
			o->off = optarg;
			off_read(optarg, unknown);
			if (*unknown)
				return misused("--off: the words are " OFF_WORDS ", not", unknown);
			break;
		case 'O':
			o->only = optarg;
			break;
		case 's':
			o->seconds = strtod(optarg, &end);
			if (end == optarg || *end || !(o->seconds >= 0.001 && o->seconds <= 60))
				return misused("--seconds wants 0.001 to 60, not", optarg);
			break;
		case 't':
			o->turns = (unsigned)strtoul(optarg, &end, 10);
			if (end == optarg || *end || o->turns < 1 || o->turns > TURNS_MAX)
				return misused("--turns wants 1 to 64, not", optarg);
			break;
		case 'm':
			if (!size_read(optarg, &o->size_max))
				return misused("--max-size wants 4K to 4G, not", optarg);
			break;
		case 'j':
			o->json = optarg;
			break;
		case 'v':
			o->svg = optarg;
			break;
		case 'l':
			o->list = true;
			break;
		case 'h':
			usage(stdout);
			return 0;
		case 'V':
			puts("gleam-bench " GLEAM_VERSION);
			return 0;
		case ':':
			return misused("a value is missing behind", argv[optind - 1]);
		default:
			return misused("no such option:", argv[optind - 1]);
		}
	if (optind < argc)
		return misused("one word too many:", argv[optind]);
	if (o->no_gleam && (!o->native || o->off || o->gleam))
		return misused("--no-gleam leaves nothing to measure without --native, and goes with neither --gleam nor --off", "");
	return -1;
}

/* Beside this program, as it is built and as it is installed. */
static const char *gleam_find(char *path, size_t size)
{
	static const char *const places[] = { "../lib/gleam/libcuda.so.1", "../lib/libcuda.so.1", "../gleam/libcuda.so.1" };
	char self[2048];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[length > 0 ? length : 0] = '\0';
	if (strrchr(self, '/'))
		*strrchr(self, '/') = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, size, "%s/%s", self, places[i]);
		if (access(path, R_OK) == 0)
			return path;
	}
	return "libcuda.so.1";
}

static unsigned sizes_of(const struct row *row, uint64_t most, uint64_t *sizes_out)
{
	unsigned count = 0;

	if (!row->sized) {
		sizes_out[0] = 0;
		return 1;
	}
	for (uint64_t size = SIZE_LEAST; size < most && count < SIZES_MAX - 1; size *= SIZE_FACTOR)
		sizes_out[count++] = size;
	sizes_out[count++] = most;
	return count;
}

static int measure(const struct options *o, const struct row *const *chosen, struct report *report, struct side *sides)
{
	uint64_t sizes[SIZES_MAX];
	char why[96];

	for (unsigned s = 0; s < report->side_count; s++)
		if (side_start(&sides[s], why, sizeof(why))) {
			fprintf(stderr, "gleam-bench: %s (%s): %s\n", sides[s].name, sides[s].library, why);
			return EXIT_FAILED;
		}
	for (unsigned s = 0; s < report->side_count; s++)
		printf("%s: %s, %s\n", sides[s].name, sides[s].device, sides[s].library);
	report_head(report);
	for (unsigned i = 0; chosen[i]; i++) {
		unsigned count = sizes_of(chosen[i], o->size_max, sizes);

		for (unsigned z = 0; z < count; z++) {
			struct result *result = &report->results[report->count++];

			*result = (struct result){ .row = chosen[i], .size = sizes[z] };
			for (unsigned t = 0; t < o->turns; t++)
				for (unsigned k = 0; k < report->side_count; k++) {
					/* Now the one first, now the other. */
					unsigned s = (k + t) % report->side_count;
					double values[VALUES_MAX];
					int got;

					if (t && !result->turns[s])
						continue;
					/* Natively there is nothing to get ready. */
					if (chosen[i]->pause_s > 0 && strcmp(sides[s].name, "native") != 0)
						usleep((useconds_t)(chosen[i]->pause_s * 1e6));
					got = side_ask(&sides[s], chosen[i], sizes[z], o->seconds, values, result->why[s], sizeof(result->why[s]));
					if (got < 0) {
						fprintf(stderr, "gleam-bench: %s: %s, in %s\n", sides[s].name, result->why[s], chosen[i]->name);
						return EXIT_FAILED;
					}
					if (got)
						continue;
					for (unsigned v = 0; v < VALUES_MAX; v++)
						result->values[s][v][result->turns[s]] = values[v];
					result->turns[s]++;
				}
			if (report_row(report))
				return EXIT_FAILED;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	static struct side sides[SIDES_MAX];
	const struct row *chosen[ROWS_MAX] = { NULL };
	struct report report = { .sides = sides };
	uint64_t sizes[SIZES_MAX];
	unsigned count = 0, total = 0;
	double pauses = 0;
	struct options o;
	char path[4096];
	regex_t regex;
	int status;

	/* What a side is: ourselves, with one library; and what that starts for one allocation. */
	if (argc == 3 && strcmp(argv[1], "--side") == 0)
		return measure_run(argv[2]);
	if (argc == 3 && strcmp(argv[1], "--first") == 0)
		return first_run(argv[2]);
	status = options_read(argc, argv, &o);
	if (status >= 0)
		return status;
	if (o.only && regcomp(&regex, o.only, REG_EXTENDED | REG_NOSUB))
		return misused("--only wants a regular expression, not", o.only);
	signal(SIGPIPE, SIG_IGN);
	if (o.native)
		sides[report.side_count++] = (struct side){ .name = "native", .library = o.native, .off = "" };
	if (!o.no_gleam) {
		const char *gleam = o.gleam ? o.gleam : gleam_find(path, sizeof(path));

		sides[report.side_count++] = (struct side){ .name = "Gleam", .library = gleam };
		if (o.off) {
			sides[report.side_count] = (struct side){ .library = gleam, .off = o.off };
			snprintf(sides[report.side_count].name, sizeof(sides[0].name), "off: %s", o.off);
			report.side_count++;
		}
	}
	for (const struct row *row = rows; row->name; row++)
		if (!o.only || regexec(&regex, row->name, 0, NULL, 0) == 0) {
			chosen[count++] = row;
			total += sizes_of(row, o.size_max, sizes);
			pauses += row->pause_s;
			if (o.list)
				printf("%-14s %s\n", row->name, row->what);
		}
	if (o.only)
		regfree(&regex);
	if (!count)
		return misused("--only: no row is called", o.only);
	/* Large copies take a copy at least, with everything off and over a slow network longer: not foreseen. */
	printf("about %.0f s: %u rows, %u sides, %u turns of %g s each\n",
	       (total * o.seconds + pauses) * report.side_count * o.turns + report.side_count * START_S, total, report.side_count, o.turns, o.seconds);
	fflush(stdout);
	if (o.list)
		return 0;
	report.json = o.json;
	report.svg = o.svg;
	report.results = calloc(total, sizeof(*report.results));
	if (!report.results) {
		fprintf(stderr, "gleam-bench: out of memory\n");
		return EXIT_FAILED;
	}
	/* A file that can't be written is found out before anything is measured. */
	status = report_row(&report) ? EXIT_FAILED : measure(&o, chosen, &report, sides);
	for (unsigned s = 0; s < report.side_count; s++)
		side_stop(&sides[s]);
	free(report.results);
	return status;
}
