/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gleamctl's commands and what they share. One thread. Exit status: 0, 1 when it failed (one line on stderr: what, why, what to
 * do), 2 for wrong usage.
 */
#ifndef GLEAMCTL_H
#define GLEAMCTL_H

#include <stdbool.h>
#include <stdio.h>

#include <getopt.h>
#include <jansson.h>

#define EXIT_FAILED 1
#define EXIT_USAGE  2

/* What every command understands; `run` and `key` have more. */
struct options {
	bool json;
	const char *socket; /* NULL: the default place */
	const char *server; /* run */
	const char *gpus;   /* run */
	const char *priority; /* run */
	const char *tenant; /* key new */
	const char *config; /* doctor, pair: gleamd's settings */
	const char *interval; /* top: seconds */
	const char *batch;    /* top: frames */
	/* kernel limit */
	const char *sessions;
	const char *memory;
	/* pair */
	const char *listen;
	const char *code;
	const char *name;
	const char *every;    /* checkpoint: seconds */
	bool undo;	      /* drain */
	bool no_move;	      /* drain */
	const char *chrome; /* trace: file to write */
	bool hops;	    /* trace */
	/* what is left of the command line */
	char **words;
	int count;
};

struct command {
	const char *name;
	const char *arguments; /* behind the name in its usage line */
	const char *summary;   /* one line of the list */
	const char *help;      /* the options and whatever else there is to say */
	int words_min;
	int words_max; /* -1: any number */
	const char *takes; /* letters of long_options in main.c */
	int (*run)(const struct options *options);
};

extern const struct command commands[];
/* All that any command takes; val is its letter. */
extern const struct option long_options[];

/* show.c */
int show_status(const struct options *options);
int show_servers(const struct options *options);
int show_clients(const struct options *options);
int show_stats(const struct options *options);
int show_version(const struct options *options);
/* trace.c */
int trace_command(const struct options *options);
/* top_screen.c */
int top_command(const struct options *options);
/* sched.c */
int policy_command(const struct options *options);
int decisions_command(const struct options *options);
int drain_command(const struct options *options);
/* cache.c */
int cache_command(const struct options *options);
/* migrate.c */
int migrate_command(const struct options *options);
/* drain of a server whose programs are moved. */
int drain_moves(const struct options *options, const char *server);
/* checkpoint.c */
int checkpoint_command(const struct options *options);
int restore_command(const struct options *options);
/* doctor.c */
int doctor_command(const struct options *options);
/* pair.c */
int pair_command(const struct options *options);
/* kernel.c */
int kernel_command(const struct options *options);
/* complete.c */
int completion_command(const struct options *options);
/* Offers for the last of @words, which come behind `gleamctl`; others are what stands before it. */
int complete(int count, char **words);
/* key.c */
int key_command(const struct options *options);
/* run.c */
int run_command(const struct options *options);

/* Letters to insert, remove, replace or swap from one word to the other. */
unsigned word_distance(const char *a, const char *b);
/* One line on stderr behind "gleamctl: "; returns EXIT_FAILED. */
int failed(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same with a pointer to the help of @command; returns EXIT_USAGE. */
int misused(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* As --json shows it. Takes @value. EXIT_FAILED when stdout can't be written. */
int json_show(json_t *value);
/* Whether all of stdout has been written; a closed pipe is no error of ours. */
int output_end(void);

#endif
