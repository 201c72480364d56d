/* SPDX-License-Identifier: Apache-2.0 */
/* What programs need, learned from their runs. No I/O; see sched_profile.h. */
#include "broker/local/sched_profile.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEARN_WEIGHT 0.3 /* of the newest run; the first ones count as in a plain mean */
#define HEADER	     "# gleam program profiles 1\n"

struct entry {
	uint64_t key; /* 0: free */
	uint64_t used; /* by the count of learnings */
	struct sched_profile profile;
};

struct sched_profiles {
	struct entry entries[SCHED_PROFILES_MAX];
	unsigned count;
	uint64_t clock;
};

struct sched_profiles *sched_profiles_new(void)
{
	return calloc(1, sizeof(struct sched_profiles));
}

void sched_profiles_free(struct sched_profiles *profiles)
{
	free(profiles);
}

uint64_t sched_key(const void *bytes, size_t size, uint64_t seed)
{
	const unsigned char *at = bytes;
	uint64_t hash = seed ? seed : 0xcbf29ce484222325ull;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ at[i]) * 0x100000001b3ull;
	return hash ? hash : 1;
}

static struct entry *entry_find(const struct sched_profiles *profiles, uint64_t key)
{
	for (unsigned i = 0; key && i < profiles->count; i++)
		if (profiles->entries[i].key == key)
			return (struct entry *)&profiles->entries[i];
	return NULL;
}

static struct entry *entry_make(struct sched_profiles *profiles, uint64_t key)
{
	struct entry *entry = &profiles->entries[0];

	if (profiles->count < SCHED_PROFILES_MAX)
		entry = &profiles->entries[profiles->count++];
	for (unsigned i = 1; profiles->count == SCHED_PROFILES_MAX && entry->key && i < profiles->count; i++)
		if (profiles->entries[i].used < entry->used)
			entry = &profiles->entries[i];
	*entry = (struct entry){ .key = key };
	return entry;
}

const struct sched_profile *sched_profile_find(const struct sched_profiles *profiles, uint64_t key)
{
	const struct entry *entry = entry_find(profiles, key);

	return entry && entry->profile.runs > 0 ? &entry->profile : NULL;
}

static double positive(double value)
{
	return value > 0 && isfinite(value) ? value : 0;
}

void sched_profile_of(const struct sched_usage *usage, double speed, double rtt, double bandwidth, struct sched_profile *profile_out)
{
	struct sched_profile profile = {
		.runs = 1,
		.wall = positive(usage->wall),
		.trips = positive(usage->trips),
		.bytes_up = positive(usage->bytes_up),
		.bytes_down = positive(usage->bytes_down),
		.memory = positive(usage->memory),
	};
	double up = bandwidth > 0 ? profile.bytes_up / bandwidth : 0;
	double down = bandwidth > 0 ? profile.bytes_down / bandwidth : 0;
	double trips = rtt > 0 ? profile.trips * rtt : 0;

	profile.cpu = positive(usage->wall - usage->waited);
	profile.gpu = positive(usage->gpu) * (speed > 0 ? speed : 1);
	/* The model adds what it can't know to have gone on at once; a run with contention tells nothing of that. */
	if (usage->gpu_wall <= usage->gpu * 1.2) {
		double longest = fmax(fmax(profile.cpu, positive(usage->gpu)), up);

		profile.overlap = positive(longest + trips + down - usage->wall);
		if (profile.overlap > trips + down)
			profile.overlap = trips + down;
	}
	*profile_out = profile;
}

static void mean(double *value, double newest, double weight)
{
	*value += weight * (newest - *value);
}

void sched_profile_learn(struct sched_profiles *profiles, uint64_t key, const struct sched_usage *usage, double speed, double rtt,
			 double bandwidth)
{
	struct sched_profile run;
	struct sched_profile *known;
	struct entry *entry;
	double weight;

	if (!key || !(usage->wall >= SCHED_PROFILE_LEAST))
		return;
	entry = entry_find(profiles, key);
	if (!entry)
		entry = entry_make(profiles, key);
	entry->used = ++profiles->clock;
	known = &entry->profile;
	sched_profile_of(usage, speed, rtt, bandwidth, &run);
	weight = fmax(1 / (known->runs + 1), LEARN_WEIGHT);
	/* One that ended early was stopped, as likely as not: it teaches as little as it did. */
	if (known->runs > 0 && run.wall < known->wall)
		weight *= run.wall / known->wall;
	known->runs += known->runs < 1e6;
	mean(&known->wall, run.wall, weight);
	mean(&known->cpu, run.cpu, weight);
	mean(&known->gpu, run.gpu, weight);
	mean(&known->trips, run.trips, weight);
	mean(&known->bytes_up, run.bytes_up, weight);
	mean(&known->bytes_down, run.bytes_down, weight);
	mean(&known->overlap, run.overlap, weight);
	/* The most it took, forgotten slowly: too much is a longer way, too little a failure. */
	known->memory = run.memory > known->memory ? run.memory : known->memory + weight * (run.memory - known->memory);
}

static int entry_order(const void *a, const void *b)
{
	const struct entry *x = *(const struct entry *const *)a, *y = *(const struct entry *const *)b;

	return x->used < y->used ? -1 : x->used > y->used;
}

char *sched_profiles_text(const struct sched_profiles *profiles, size_t *size_out)
{
	const struct entry **order = calloc(profiles->count + 1, sizeof(*order));
	char *text = NULL;
	FILE *out = order ? open_memstream(&text, size_out) : NULL;

	if (!out) {
		free(order);
		return NULL;
	}
	for (unsigned i = 0; i < profiles->count; i++)
		order[i] = &profiles->entries[i];
	qsort(order, profiles->count, sizeof(*order), entry_order);
	fputs(HEADER "# key runs wall cpu gpu trips bytes_up bytes_down memory overlap\n", out);
	for (unsigned i = 0; i < profiles->count; i++) {
		const struct sched_profile *p = &order[i]->profile;

		fprintf(out, "%016" PRIx64 " %.0f %.6g %.6g %.6g %.6g %.9g %.9g %.9g %.6g\n", order[i]->key, p->runs, p->wall, p->cpu,
			p->gpu, p->trips, p->bytes_up, p->bytes_down, p->memory, p->overlap);
	}
	free(order);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}

/* A number of a profile: not negative, not absurd, and one that the next run can change. */
static bool in_range(double value)
{
	return value >= 0 && value < 1e18;
}

unsigned sched_profiles_read(struct sched_profiles *profiles, const char *text)
{
	unsigned wrong = 0;

	while (*text) {
		size_t size = strcspn(text, "\n");
		struct sched_profile p;
		struct entry *entry;
		char line[256];
		uint64_t key;
		int end = 0;

		if (size == 0 || *text == '#') {
			text += size + (text[size] != 0);
			continue;
		}
		snprintf(line, sizeof(line), "%.*s", (int)(size < sizeof(line) ? size : sizeof(line) - 1), text);
		text += size + (text[size] != 0);
		if (size >= sizeof(line) ||
		    sscanf(line, "%16" SCNx64 " %lf %lf %lf %lf %lf %lf %lf %lf %lf%n", &key, &p.runs, &p.wall, &p.cpu, &p.gpu, &p.trips,
			   &p.bytes_up, &p.bytes_down, &p.memory, &p.overlap, &end) != 10 ||
		    line[end] || !key || !(p.runs >= 1) || !in_range(p.runs) || !in_range(p.wall) || !in_range(p.cpu) ||
		    !in_range(p.gpu) || !in_range(p.trips) || !in_range(p.bytes_up) || !in_range(p.bytes_down) || !in_range(p.memory) ||
		    !in_range(p.overlap)) {
			wrong++;
			continue;
		}
		entry = entry_find(profiles, key);
		if (!entry)
			entry = entry_make(profiles, key);
		entry->used = ++profiles->clock;
		entry->profile = p;
	}
	return wrong;
}
