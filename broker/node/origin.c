/* SPDX-License-Identifier: Apache-2.0 */
/* By which chunks pieces came. Any thread; see origin.h. */
#include "broker/node/origin.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ORIGINS_FIRST 256u
#define ORIGINS_MAX   (64u << 10) /* pieces of 1 MiB at most: 64 GiB of weights; 4 MiB of ours */

/* By position: what came from the client, and what came from another node, both nearly in order. */
struct line {
	struct origin *all;
	uint32_t count;
	uint32_t room;
};

struct origins {
	pthread_mutex_t lock;
	/* guarded by lock */
	struct line lines[2];
};

static struct line *line_of(struct origins *origins, uint64_t position)
{
	return &origins->lines[position >= MOVE_UP_START];
}

struct origins *origins_new(void)
{
	struct origins *origins = calloc(1, sizeof(*origins));

	if (origins)
		pthread_mutex_init(&origins->lock, NULL);
	return origins;
}

void origins_free(struct origins *origins)
{
	if (!origins)
		return;
	free(origins->lines[0].all);
	free(origins->lines[1].all);
	pthread_mutex_destroy(&origins->lock);
	free(origins);
}

static bool line_grow(struct line *line)
{
	uint32_t room = line->room ? 2 * line->room : ORIGINS_FIRST;
	struct origin *all;

	if (room > ORIGINS_MAX) {
		line->count /= 2;
		memmove(line->all, line->all + line->room - line->count, line->count * sizeof(*line->all));
		return true;
	}
	all = realloc(line->all, room * sizeof(*all));
	if (!all)
		return false;
	line->all = all;
	line->room = room;
	return true;
}

/* How many begin at @position or before. */
static uint32_t line_place(const struct line *line, uint64_t position)
{
	uint32_t low = 0, high = line->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (line->all[middle].position <= position)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void origins_add(struct origins *origins, const struct origin *origin)
{
	struct line *line = line_of(origins, origin->position);
	uint32_t place;

	pthread_mutex_lock(&origins->lock);
	if (line->count < line->room || line_grow(line)) {
		place = line_place(line, origin->position);
		/* Sent again after a lost link: the same piece. */
		if (place && line->all[place - 1].position == origin->position) {
			line->all[place - 1] = *origin;
		} else {
			memmove(line->all + place + 1, line->all + place, (line->count - place) * sizeof(*line->all));
			line->all[place] = *origin;
			line->count++;
		}
	}
	pthread_mutex_unlock(&origins->lock);
}

bool origins_find(struct origins *origins, uint64_t position, uint32_t size, struct origin *origin_out)
{
	struct line *line = line_of(origins, position);
	bool found = false;
	uint32_t place;

	pthread_mutex_lock(&origins->lock);
	place = line_place(line, position);
	if (place) {
		const struct origin *origin = &line->all[place - 1];
		uint64_t at = position - origin->position;

		found = at < origin->size && size <= origin->size - at;
		if (found) {
			*origin_out = *origin;
			origin_out->position = position;
			origin_out->at += (uint32_t)at;
			origin_out->size = size;
		}
	}
	pthread_mutex_unlock(&origins->lock);
	return found;
}
