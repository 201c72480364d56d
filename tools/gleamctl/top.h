/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gleamctl top shows, apart from the terminal: two answers of the daemon become rates, rows are filtered and sorted,
 * and everything is lines of text. One thread.
 */
#ifndef GLEAMCTL_TOP_H
#define GLEAMCTL_TOP_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#define TOP_LINE_SIZE	512 /* bytes; a terminal that is wider gets no more */
#define TOP_FILTER_SIZE 64

enum top_table { TOP_SERVERS, TOP_CLIENTS, TOP_TABLES };

/* A row, and what an action on it needs. */
struct top_row {
	char text[TOP_LINE_SIZE];
	char server[64];  /* of a server or GPU: its name; of a client: where it runs */
	long long pid;	  /* of a client */
	bool marked;	  /* worth a second look: a dead client, a server that can't be reached */
};

struct top {
	/* what the user has chosen */
	unsigned sort;	/* column of the clients' table, see top_sort_name() */
	bool reverse;
	char filter[TOP_FILTER_SIZE];
	/* the last two answers, for rates */
	json_t *before;
	json_t *now;
	double seconds; /* between them */
	double now_s;
	/* made by top_make() */
	char head[3][TOP_LINE_SIZE];
	char titles[TOP_TABLES][TOP_LINE_SIZE];
	struct top_row *rows[TOP_TABLES];
	size_t count[TOP_TABLES];
	size_t filtered; /* clients that the filter hides */
};

void top_init(struct top *top);
void top_fini(struct top *top);
/* @answer: of `status`, taken at @now_s of a clock that only grows; borrowed. */
void top_take(struct top *top, json_t *answer, double now_s);
/* Rows of what was taken last, as sort and filter want them now. False: out of memory. */
bool top_make(struct top *top);
unsigned top_sort_count(void);
const char *top_sort_name(unsigned sort);

#endif
