// SPDX-License-Identifier: Apache-2.0
/* Tables for people. One thread; see table.h. */
#include "tools/gleamctl/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void table_begin(struct table *table, const char *const *titles)
{
	*table = (struct table){ 0 };
	while (table->columns < TABLE_COLUMNS_MAX && titles[table->columns]) {
		table->titles[table->columns] = titles[table->columns];
		table->columns++;
	}
}

static void no_memory(void)
{
	fputs("gleamctl: out of memory\n", stderr);
	exit(1);
}

/* Names come from other processes: nothing in them reaches the terminal as a command. */
static void clean(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
}

void table_add(struct table *table, const char *format, ...)
{
	va_list args;
	char *cell;

	va_start(args, format);
	if (vasprintf(&cell, format, args) < 0)
		no_memory();
	va_end(args);
	clean(cell);
	if (!*cell) {
		free(cell);
		cell = strdup("-");
	}
	if (table->count == table->max) {
		table->max = table->max ? 2 * table->max : 64;
		table->cells = realloc(table->cells, table->max * sizeof(*table->cells));
	}
	if (!cell || !table->cells)
		no_memory();
	table->cells[table->count++] = cell;
}

/* Characters, not bytes: continuation bytes of UTF-8 take no place. */
static size_t width_of(const char *text)
{
	size_t width = 0;

	for (; *text; text++)
		width += (*text & 0xc0) != 0x80;
	return width;
}

static void put_cell(const char *text, size_t width, int right, int last)
{
	size_t pad = width - width_of(text);

	if (right)
		printf("%*s%s", (int)pad, "", text);
	else if (last)
		fputs(text, stdout);
	else
		printf("%s%*s", text, (int)pad, "");
	fputs(last ? "\n" : "  ", stdout);
}

void table_end(struct table *table)
{
	size_t widths[TABLE_COLUMNS_MAX] = { 0 };
	unsigned columns = table->columns;

	for (unsigned c = 0; c < columns; c++)
		widths[c] = width_of(table->titles[c] + (table->titles[c][0] == '>'));
	for (size_t i = 0; i < table->count; i++)
		if (width_of(table->cells[i]) > widths[i % columns])
			widths[i % columns] = width_of(table->cells[i]);
	for (unsigned c = 0; c < columns; c++)
		put_cell(table->titles[c] + (table->titles[c][0] == '>'), widths[c], table->titles[c][0] == '>',
			 c + 1 == columns);
	for (size_t i = 0; i < table->count; i++) {
		unsigned c = (unsigned)(i % columns);

		put_cell(table->cells[i], widths[c], table->titles[c][0] == '>', c + 1 == columns);
		free(table->cells[i]);
	}
	free(table->cells);
	*table = (struct table){ 0 };
}
