/* SPDX-License-Identifier: Apache-2.0 */
/* Tables for people: columns as wide as their longest cell, numbers to the right. One thread. */
#ifndef GLEAMCTL_TABLE_H
#define GLEAMCTL_TABLE_H

#include <stddef.h>

#define TABLE_COLUMNS_MAX 12

struct table {
	unsigned columns;
	const char *titles[TABLE_COLUMNS_MAX]; /* one that begins with '>' is of numbers */
	char **cells; /* rows * columns of them */
	size_t count;
	size_t max;
};

/* Columns until NULL; borrowed. */
void table_begin(struct table *table, const char *const *titles);
/* The next cell, row by row. NULL or "" is shown as "-". */
void table_add(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints it and frees its cells. */
void table_end(struct table *table);

#endif
