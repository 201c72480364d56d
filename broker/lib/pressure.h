/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the machine has cores to spare, as work of low priority sees it: by how long pieces of it took and how much of a core they
 * had meanwhile. Its owner's lock.
 */
#ifndef GLEAM_LIB_PRESSURE_H
#define GLEAM_LIB_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

#define PRESSURE_WINDOW_NS (20 * 1000000ull)	/* of a core's time, at least: what is judged */
#define PRESSURE_HOLD_NS   (20 * 1000000000ull)	/* who had waited is taken to wait so long, and looked at anew then */

struct pressure {
	uint64_t wall_ns, cpu_ns; /* since the last verdict */
	uint64_t until_ns;
};

/* A piece of work has ended. */
static inline void pressure_add(struct pressure *p, uint64_t wall_ns, uint64_t cpu_ns, uint64_t now_ns)
{
	p->wall_ns += wall_ns;
	p->cpu_ns += cpu_ns;
	/* Starved work uses little; that it took long is verdict enough. */
	if (p->cpu_ns < PRESSURE_WINDOW_NS && p->wall_ns < 4 * PRESSURE_WINDOW_NS)
		return;
	/* Half as long again: a third of its time it waited for others. */
	p->until_ns = p->wall_ns > p->cpu_ns + p->cpu_ns / 2 ? now_ns + PRESSURE_HOLD_NS : 0;
	p->wall_ns = 0;
	p->cpu_ns = 0;
}

static inline bool pressure_is(const struct pressure *p, uint64_t now_ns)
{
	return now_ns < p->until_ns;
}

#endif
