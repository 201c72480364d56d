/* SPDX-License-Identifier: Apache-2.0 */
/* What programs need, learned from their runs. No I/O; see sched_profile.h. */
#include "broker/local/sched_profile.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEARN_WEIGHT 0.3 /* of the newest run; the first ones count as in a plain mean */
#define OVERLAP_MAX  0.7 /* a round trip time that was measured too long must not make trips free */
#define HEADER	     "# gleam program profiles 2\n"
#define LINE_SIZE    512

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

	profile.model = positive(usage->model);
	profile.sample_count = usage->sample_count < SCHED_SAMPLES ? usage->sample_count : SCHED_SAMPLES;
	memcpy(profile.samples, usage->samples, sizeof(profile.samples));
	profile.cpu = positive(usage->wall - usage->waited);
	profile.gpu = positive(usage->gpu) * (speed > 0 ? speed : 1);
	/* The model adds what it can't know to have gone on at once; a run with contention tells nothing of that. */
	if (usage->gpu_wall <= usage->gpu * 1.2) {
		double longest = fmax(fmax(profile.cpu, positive(usage->gpu)), up);

		if (trips + down > 0)
			profile.overlap = positive(longest + trips + down - usage->wall) / (trips + down);
		if (profile.overlap > OVERLAP_MAX)
			profile.overlap = OVERLAP_MAX;
	}
	*profile_out = profile;
}

static void mean(double *value, double newest, double weight)
{
	*value += weight * (newest - *value);
}

static double samples_common(const struct sched_profile *a, const struct sched_profile *b)
{
	unsigned common = 0;

	for (uint32_t i = 0; i < b->sample_count; i++)
		for (uint32_t k = 0; k < a->sample_count; k++)
			common += a->samples[k].print == b->samples[i].print && a->samples[k].size == b->samples[i].size;
	return b->sample_count ? (double)common / b->sample_count : 0;
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
	known->model = run.model;
	known->repeats = samples_common(known, &run);
	known->sample_count = run.sample_count;
	memcpy(known->samples, run.samples, sizeof(known->samples));
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
	fputs(HEADER "# key runs wall cpu gpu trips bytes_up bytes_down memory overlap model repeats samples\n", out);
	for (unsigned i = 0; i < profiles->count; i++) {
		const struct sched_profile *p = &order[i]->profile;

		fprintf(out, "%016" PRIx64 " %.0f %.6g %.6g %.6g %.6g %.9g %.9g %.9g %.6g %.9g %.3g ", order[i]->key, p->runs, p->wall, p->cpu,
			p->gpu, p->trips, p->bytes_up, p->bytes_down, p->memory, p->overlap, p->model, p->repeats);
		for (uint32_t k = 0; k < p->sample_count; k++)
			fprintf(out, "%s%08" PRIx32 ":%" PRIx32, k ? "," : "", p->samples[k].print, p->samples[k].size);
		fputs(p->sample_count ? "\n" : "-\n", out);
	}
	free(order);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}

/* `-`, or fingerprint:size in hexadecimal, with commas between. */
static bool samples_read(const char *text, struct sched_profile *p)
{
	p->sample_count = 0;
	if (strcmp(text, "-") == 0)
		return true;
	for (;;) {
		struct sched_sample sample;
		int used = 0;

		if (p->sample_count == SCHED_SAMPLES || sscanf(text, "%8" SCNx32 ":%8" SCNx32 "%n", &sample.print, &sample.size, &used) != 2)
			return false;
		p->samples[p->sample_count++] = sample;
		text += used;
		if (!*text)
			return true;
		if (*text++ != ',')
			return false;
	}
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
		struct sched_profile p = { 0 };
		struct entry *entry;
		char line[LINE_SIZE];
		uint64_t key;
		int end = 0;

		if (size == 0 || *text == '#') {
			text += size + (text[size] != 0);
			continue;
		}
		snprintf(line, sizeof(line), "%.*s", (int)(size < sizeof(line) ? size : sizeof(line) - 1), text);
		text += size + (text[size] != 0);
		if (size >= sizeof(line) ||
		    sscanf(line, "%16" SCNx64 " %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf %n", &key, &p.runs, &p.wall, &p.cpu, &p.gpu, &p.trips,
			   &p.bytes_up, &p.bytes_down, &p.memory, &p.overlap, &p.model, &p.repeats, &end) != 12 ||
		    !end || !samples_read(line + end, &p) || !key || !(p.runs >= 1) || !in_range(p.runs) || !in_range(p.wall) || !in_range(p.cpu) ||
		    !in_range(p.gpu) || !in_range(p.trips) || !in_range(p.bytes_up) || !in_range(p.bytes_down) || !in_range(p.memory) ||
		    !in_range(p.overlap) || !in_range(p.model) || !(p.repeats >= 0 && p.repeats <= 1)) {
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
