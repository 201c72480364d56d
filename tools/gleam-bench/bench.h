/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gleam-bench: what calls of the CUDA driver API take, natively, through Gleam, and through Gleam with techniques switched
 * off. Each side is a child process of its own with its own libcuda; they take turns. One thread a process.
 */
#ifndef GLEAM_BENCH_H
#define GLEAM_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define EXIT_FAILED 1
#define EXIT_USAGE  2

#define SIDES_MAX  4
#define TURNS_MAX  64
#define VALUES_MAX 2 /* what one turn of a row gives */

enum unit { UNIT_US, UNIT_GB_S };

/* What is measured. */
struct row {
	const char *name;
	const char *what;		 /* for people */
	const char *values[VALUES_MAX];	 /* what the numbers are; the first is the row's own */
	enum unit unit;
	bool sized; /* once for each size of copies */
	double pause_s; /* before each turn, which is one process */
};

extern const struct row rows[]; /* ends with a NULL name */
#define ROWS_MAX 32

/* ---- measure.c: in the child ---- */

/*
 * Answers requests on stdin ("ROW SIZE SECONDS") by lines on stdout ("ok V1 V2" or "no REASON"), after a first line "ready
 * DEVICE". Returns the exit status.
 */
int measure_run(const char *library);

double seconds_of(clockid_t clock);

/* ---- first.c: in the child, and in a child of its own ---- */

/* Its two numbers of one process; NULL, or why there are none (static). */
const char *first_measure(const char *library, double *values);
/* That process: one line on stdout, as measure_run() answers. Returns the exit status. */
int first_run(const char *library);

/* ---- side.c: the parent's end of a child ---- */

struct side {
	char name[32];
	const char *library;
	const char *off; /* GLEAM_OFF; NULL: as the environment has it */
	int pid;
	int to;
	int from;
	char device[128];
};

/* Starts it and waits until it is ready; 0, or -1 with the reason in @why. */
int side_start(struct side *side, char *why, size_t size);
/* One turn: 0; 1 if the side has no such thing (@why); -1 when it has ended. */
int side_ask(struct side *side, const struct row *row, uint64_t size, double seconds, double values_out[VALUES_MAX], char *why,
	     size_t why_size);
void side_stop(struct side *side);

/* ---- report.c ---- */

struct result {
	const struct row *row;
	uint64_t size;
	unsigned turns[SIDES_MAX];
	double values[SIDES_MAX][VALUES_MAX][TURNS_MAX];
	char why[SIDES_MAX][96]; /* nothing was measured, because */
};

struct report {
	const struct side *sides;
	unsigned side_count;
	struct result *results;
	unsigned count;
	const char *json;
	const char *svg;
};

double median_of(const double *values, unsigned count);
void report_head(const struct report *report);
/* The newest result as text, and files anew. 0, or -errno of the file that can't be written (told). */
int report_row(const struct report *report);

#endif
