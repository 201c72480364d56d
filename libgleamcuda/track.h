/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pages of a range has the program written since the last look? By the kernel's asynchronous write protection
 * (Linux 6.7), which costs the program one cheap fault per page and look, and no signal. Where it is missing the caller
 * compares everything. Any thread; one look at a time per range.
 */
#ifndef GLEAM_TRACK_H
#define GLEAM_TRACK_H

#include <stdbool.h>
#include <stdint.h>

#define TRACK_PAGE 4096ull

/* @start and @size are whole pages of anonymous memory. False: not possible here. */
bool track_begin(uint64_t start, uint64_t size);
void track_end(uint64_t start, uint64_t size);

struct track_run {
	uint64_t start;
	uint64_t end;
};
/*
 * Up to @count_max runs of pages written since the last call, from @from on; they count as clean from now on. @next_out
 * is where to go on, @end when there is nothing more. The number of runs, or -errno: compare everything.
 */
int track_written(uint64_t from, uint64_t end, struct track_run *runs, uint32_t count_max, uint64_t *next_out);

#endif
