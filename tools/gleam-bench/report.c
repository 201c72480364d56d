// SPDX-License-Identifier: Apache-2.0
/* Results as text, JSON and SVG. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gleam-bench/bench.h"

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double median_of(const double *values, unsigned count)
{
	double *sorted = malloc(count * sizeof(*sorted) + 1);
	double median;

	if (!sorted || !count) {
		free(sorted);
		return 0;
	}
	memcpy(sorted, values, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), by_size);
	median = count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
	free(sorted);
	return median;
}

static double least(const double *values, unsigned count)
{
	double best = count ? values[0] : 0;

	for (unsigned i = 1; i < count; i++)
		best = values[i] < best ? values[i] : best;
	return best;
}

static double most(const double *values, unsigned count)
{
	double best = count ? values[0] : 0;

	for (unsigned i = 1; i < count; i++)
		best = values[i] > best ? values[i] : best;
	return best;
}

static const char *size_text(uint64_t size, char text[32])
{
	if (size >= 1 << 30)
		snprintf(text, 32, "%g GiB", (double)size / (1 << 30));
	else if (size >= 1 << 20)
		snprintf(text, 32, "%g MiB", (double)size / (1 << 20));
	else
		snprintf(text, 32, "%g KiB", (double)size / (1 << 10));
	return text;
}

/* ---- text ---- */

void report_head(const struct report *report)
{
	printf("%-34s", "row");
	for (unsigned s = 0; s < report->side_count; s++)
		printf("  %24s", report->sides[s].name);
	if (report->side_count > 1)
		printf("  of %s", report->sides[0].name);
	printf("\n");
}

static void text_row(const struct report *report, const struct result *result)
{
	char size[32], name[64];

	for (unsigned v = 0; v < VALUES_MAX && result->row->values[v]; v++) {
		snprintf(name, sizeof(name), "%s%s%s, %s", v ? "  " : result->row->name, v || !result->size ? "" : " ",
			 v || !result->size ? "" : size_text(result->size, size), result->row->values[v]);
		if (v)
			snprintf(name, sizeof(name), "  %s", result->row->values[v]);
		printf("%-34s", name);
		for (unsigned s = 0; s < report->side_count; s++) {
			const double *values = result->values[s][v];
			unsigned turns = result->turns[s];
			char cell[64];

			if (turns)
				snprintf(cell, sizeof(cell), "%.4g (%.4g-%.4g)", median_of(values, turns), least(values, turns), most(values, turns));
			else
				snprintf(cell, sizeof(cell), "%s", v ? "" : "not measured");
			printf("  %24s", cell);
		}
		for (unsigned s = 1; s < report->side_count; s++)
			if (result->turns[s] && result->turns[0] && median_of(result->values[0][v], result->turns[0]) > 0)
				printf("  %.2f", median_of(result->values[s][v], result->turns[s]) / median_of(result->values[0][v], result->turns[0]));
		printf("\n");
	}
	for (unsigned s = 0; s < report->side_count; s++)
		if (!result->turns[s] && *result->why[s])
			printf("    %s: %s\n", report->sides[s].name, result->why[s]);
	fflush(stdout);
}

/* ---- JSON ---- */

static void json_text(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == '"' || *text == '\\')
			fprintf(out, "\\u%04x", (unsigned char)*text);
		else
			fputc(*text, out);
	fputc('"', out);
}

static void json_write(FILE *out, const struct report *report)
{
	fputs("{\"version\":", out);
	json_text(out, GLEAM_VERSION);
	fputs(",\"sides\":[", out);
	for (unsigned s = 0; s < report->side_count; s++) {
		fputs(s ? ",{\"name\":" : "{\"name\":", out);
		json_text(out, report->sides[s].name);
		fputs(",\"library\":", out);
		json_text(out, report->sides[s].library);
		fputs(",\"device\":", out);
		json_text(out, report->sides[s].device);
		fputs(",\"off\":", out);
		json_text(out, report->sides[s].off ? report->sides[s].off : "");
		fputs("}", out);
	}
	fputs("],\"rows\":[", out);
	for (unsigned i = 0; i < report->count; i++) {
		const struct result *result = &report->results[i];

		fprintf(out, "%s\n{\"row\":\"%s\",\"bytes\":%llu,\"unit\":\"%s\",\"sides\":[", i ? "," : "", result->row->name,
			(unsigned long long)result->size, result->row->unit == UNIT_US ? "us" : "GB/s");
		for (unsigned s = 0; s < report->side_count; s++) {
			fputs(s ? ",{" : "{", out);
			for (unsigned v = 0; v < VALUES_MAX && result->row->values[v] && result->turns[s]; v++) {
				json_text(out, result->row->values[v]);
				fprintf(out, ":{\"median\":%.9g,\"turns\":[", median_of(result->values[s][v], result->turns[s]));
				for (unsigned t = 0; t < result->turns[s]; t++)
					fprintf(out, "%s%.9g", t ? "," : "", result->values[s][v][t]);
				fputs(v + 1 < VALUES_MAX && result->row->values[v + 1] ? "]}," : "]}", out);
			}
			if (!result->turns[s]) {
				fputs("\"why\":", out);
				json_text(out, result->why[s]);
			}
			fputs("}", out);
		}
		fputs("]}", out);
	}
	fputs("\n]}\n", out);
}

/* ---- SVG: a bar a side for each row, logarithmic, and the spread as a line ---- */

#define BAR	    12
#define LEFT	    250
#define WIDTH	    560
#define COLOURS_MAX 4

static void svg_escape(FILE *out, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '<':
			fputs("&lt;", out);
			break;
		case '&':
			fputs("&amp;", out);
			break;
		default:
			fputc(*text, out);
		}
}

static double svg_x(double value, double from, double to)
{
	if (value <= from || to <= from)
		return LEFT;
	return LEFT + WIDTH * (log10(value) - log10(from)) / (log10(to) - log10(from));
}

static void svg_write(FILE *out, const struct report *report)
{
	static const char *const colours[COLOURS_MAX] = { "#4e79a7", "#59a14f", "#e15759", "#b07aa1" };
	unsigned height = 60 + report->count * (report->side_count * BAR + 10) + 40;
	double from[2] = { 1e300, 1e300 }, to[2] = { 0, 0 };
	unsigned y = 50;
	char size[32];

	for (unsigned i = 0; i < report->count; i++)
		for (unsigned s = 0; s < report->side_count; s++)
			for (unsigned t = 0; t < report->results[i].turns[s]; t++) {
				double value = report->results[i].values[s][0][t];
				int unit = report->results[i].row->unit;

				if (value > 0 && value < from[unit])
					from[unit] = value;
				if (value > to[unit])
					to[unit] = value;
			}
	fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" font-family=\"sans-serif\" font-size=\"11\">\n",
		LEFT + WIDTH + 120, height);
	fputs("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n", out);
	for (unsigned s = 0; s < report->side_count; s++) {
		fprintf(out, "<rect x=\"%u\" y=\"14\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%u\" y=\"24\">", LEFT + s * 170,
			colours[s % COLOURS_MAX], LEFT + 16 + s * 170);
		svg_escape(out, report->sides[s].name);
		fputs("</text>\n", out);
	}
	fputs("<text x=\"8\" y=\"24\">medians; lines from least to most; logarithmic</text>\n", out);
	for (unsigned i = 0; i < report->count; i++) {
		const struct result *result = &report->results[i];
		int unit = result->row->unit;
		/* A little room to the left, so that the least has a bar. */
		double low = from[unit] / 1.5;

		fprintf(out, "<text x=\"8\" y=\"%u\">", y + 10);
		svg_escape(out, result->row->name);
		fprintf(out, "%s%s</text>\n", result->size ? " " : "", result->size ? size_text(result->size, size) : "");
		for (unsigned s = 0; s < report->side_count; s++, y += BAR) {
			const double *values = result->values[s][0];
			double median = median_of(values, result->turns[s]), end = svg_x(median, low, to[unit]);

			if (!result->turns[s]) {
				fprintf(out, "<text x=\"%d\" y=\"%u\" fill=\"#888\">not measured</text>\n", LEFT, y + 10);
				continue;
			}
			fprintf(out, "<rect x=\"%d\" y=\"%u\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>", LEFT, y, end - LEFT, BAR - 2,
				colours[s % COLOURS_MAX]);
			fprintf(out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%u\" y2=\"%u\" stroke=\"black\"/>",
				svg_x(least(values, result->turns[s]), low, to[unit]), svg_x(most(values, result->turns[s]), low, to[unit]), y + 5,
				y + 5);
			fprintf(out, "<text x=\"%.1f\" y=\"%u\">%.4g %s</text>\n", svg_x(most(values, result->turns[s]), low, to[unit]) + 4, y + 9,
				median, unit == UNIT_US ? "us" : "GB/s");
		}
		y += 10;
	}
	fputs("</svg>\n", out);
}

/* ---- files ---- */

/* Whole or not at all: what was there stays until the new one is complete. */
static int file_write(const char *path, const struct report *report, void (*write_it)(FILE *, const struct report *))
{
	char temporary[4096];
	FILE *out;
	int err = 0;

	snprintf(temporary, sizeof(temporary), "%s.new", path);
	out = fopen(temporary, "we");
	if (!out) {
		err = -errno;
	} else {
		write_it(out, report);
		if (ferror(out))
			err = -EIO;
		if (fclose(out) && !err)
			err = -errno;
		if (!err && rename(temporary, path) < 0)
			err = -errno;
		if (err)
			remove(temporary);
	}
	if (err)
		fprintf(stderr, "gleam-bench: %s: %s\n", path, strerror(-err));
	return err;
}

int report_row(const struct report *report)
{
	int err = 0;

	if (report->count)
		text_row(report, &report->results[report->count - 1]);
	if (report->json)
		err = file_write(report->json, report, json_write);
	if (!err && report->svg)
		err = file_write(report->svg, report, svg_write);
	return err;
}
