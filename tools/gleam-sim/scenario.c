// SPDX-License-Identifier: Apache-2.0
/* Reads a scenario; see scenario.h. One thread. */
#include "tools/gleam-sim/scenario.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_SIZE 512
#define WORDS_MAX     40

struct reading {
	struct scenario *scenario;
	char *words[WORDS_MAX];
	unsigned count;
	char *why;
	size_t why_size;
};

static int wrong(struct reading *r, const char *what, const char *word)
{
	snprintf(r->why, r->why_size, "%s: `%s`", what, word);
	return -EINVAL;
}

static int number(struct reading *r, const char *word, double *out)
{
	static const struct {
		const char *name;
		double factor;
	} units[] = {
		{ "", 1 },	   { "us", 1e-6 },     { "ms", 1e-3 },	      { "s", 1 },	  { "bit", 1.0 / 8 }, { "kbit", 1e3 / 8 },
		{ "mbit", 1e6 / 8 }, { "gbit", 1e9 / 8 }, { "k", 1024.0 }, { "m", 1048576.0 }, { "g", 1073741824.0 }, { "%", 0.01 },
	};
	char *end;
	double value = strtod(word, &end);

	if (end == word || !(value >= 0) || isinf(value))
		return wrong(r, "not a number that can be here", word);
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(end, units[i].name) == 0) {
			*out = value * units[i].factor;
			return 0;
		}
	}
	return wrong(r, "not a unit (us ms s, bit kbit mbit gbit, k m g, %)", word);
}

static int whole(struct reading *r, const char *word, unsigned least, unsigned most, unsigned *out)
{
	double value;
	int err = number(r, word, &value);

	if (!err && (value < least || value > most || floor(value) < value))
		return wrong(r, "not a whole number in its range", word);
	if (!err)
		*out = (unsigned)value;
	return err;
}

/* NAME VALUE pairs from @at on. */
struct field {
	const char *name;
	double *number;
	unsigned *whole;
	bool needed;
	bool seen;
};

static int fields_read(struct reading *r, unsigned at, struct field *fields, unsigned count)
{
	for (; at < r->count; at += 2) {
		struct field *field = NULL;
		int err;

		for (unsigned i = 0; i < count; i++)
			if (strcmp(r->words[at], fields[i].name) == 0)
				field = &fields[i];
		if (!field)
			return wrong(r, "not a word that is known here", r->words[at]);
		if (at + 1 == r->count)
			return wrong(r, "a value is missing behind", r->words[at]);
		if (field->whole)
			err = whole(r, r->words[at + 1], 0, 1u << 20, field->whole);
		else
			err = number(r, r->words[at + 1], field->number);
		if (err)
			return err;
		field->seen = true;
	}
	for (unsigned i = 0; i < count; i++)
		if (fields[i].needed && !fields[i].seen)
			return wrong(r, "missing", fields[i].name);
	return 0;
}

static int node_line(struct reading *r)
{
	struct scenario *s = r->scenario;
	struct node_class c = { .gpus = 1, .warm = 1, .sessions = 256 };
	struct field fields[] = {
		{ "count", NULL, &c.count, true, false },	{ "speed", &c.speed, NULL, true, false },
		{ "rtt", &c.rtt, NULL, true, false },		{ "bandwidth", &c.bandwidth, NULL, true, false },
		{ "nic", &c.nic, NULL, true, false },		{ "memory", &c.memory, NULL, true, false },
		{ "gpus", NULL, &c.gpus, false, false },	{ "warm", NULL, &c.warm, false, false },
		{ "sessions", NULL, &c.sessions, false, false }, { "site", NULL, &c.site, false, false },
	};
	unsigned total = 0;
	int err;

	if (r->count < 2 || s->class_count == SCENARIO_CLASSES)
		return wrong(r, "no name, or too many of them", r->words[0]);
	snprintf(c.name, sizeof(c.name), "%s", r->words[1]);
	err = fields_read(r, 2, fields, sizeof(fields) / sizeof(fields[0]));
	if (err)
		return err;
	for (unsigned i = 0; i < s->class_count; i++)
		total += s->classes[i].count;
	if (!c.count || !(c.speed > 0) || !(c.bandwidth > 0) || !(c.nic > 0) || !c.gpus || total + c.count > SCENARIO_NODES)
		return wrong(r, "nodes can't be so", c.name);
	s->classes[s->class_count++] = c;
	return 0;
}

static int program_line(struct reading *r)
{
	struct scenario *s = r->scenario;
	struct program_class p = { .weight = 1, .priority = PRIORITY_NORMAL };
	struct field fields[] = {
		{ "weight", &p.weight, NULL, false, false }, { "steps", &p.steps, NULL, true, false },
		{ "cpu", &p.cpu, NULL, true, false },	     { "gpu", &p.gpu, NULL, true, false },
		{ "trips", &p.trips, NULL, true, false },    { "up", &p.up, NULL, true, false },
		{ "down", &p.down, NULL, true, false },	     { "memory", &p.memory, NULL, false, false },
		{ "model", &p.model, NULL, false, false },   { "spread", &p.spread, NULL, false, false },
	};
	int err;

	if (r->count < 2 || s->program_count == SCENARIO_PROGRAMS)
		return wrong(r, "no name, or too many of them", r->words[0]);
	snprintf(p.name, sizeof(p.name), "%s", r->words[1]);
	if (r->count >= 4 && strcmp(r->words[r->count - 2], "priority") == 0) {
		const char *word = r->words[r->count - 1];

		p.priority = strcmp(word, "latency") == 0 ? PRIORITY_LATENCY : strcmp(word, "batch") == 0 ? PRIORITY_BATCH : PRIORITY_NORMAL;
		r->count -= 2;
	}
	err = fields_read(r, 2, fields, sizeof(fields) / sizeof(fields[0]));
	if (!err && (!(p.steps > 0) || !(p.spread < 1)))
		return wrong(r, "programs can't be so", p.name);
	if (!err)
		s->programs[s->program_count++] = p;
	return err;
}

static int change_line(struct reading *r)
{
	static const struct {
		const char *name;
		enum change_kind kind;
		bool value;
	} kinds[] = {
		{ "down", CHANGE_DOWN, false }, { "up", CHANGE_UP, false },	{ "stale", CHANGE_STALE, false },
		{ "told", CHANGE_TOLD, false }, { "rate", CHANGE_RATE, true }, { "rtt", CHANGE_RTT, true },
		{ "lie", CHANGE_LIE, true },	{ "drain", CHANGE_DRAIN, false },
	};
	struct change *change = &r->scenario->changes[r->scenario->change_count];
	int err;

	if (r->scenario->change_count == SCENARIO_CHANGES || r->count < 4)
		return wrong(r, "too many changes, or too few words", r->words[0]);
	err = number(r, r->words[1], &change->at);
	if (err)
		return err;
	snprintf(change->node, sizeof(change->node), "%s", r->words[2]);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(kinds[i].name, r->words[3]) != 0 || r->count != 4u + kinds[i].value)
			continue;
		change->kind = kinds[i].kind;
		err = kinds[i].value ? number(r, r->words[4], &change->value) : 0;
		r->scenario->change_count += !err;
		return err;
	}
	return wrong(r, "not a change that is known", r->words[3]);
}

static int job_line(struct reading *r)
{
	struct scenario *s = r->scenario;
	struct fixed_job *job = &s->jobs[s->job_count];
	int err;

	if (r->count != 4 || s->job_count == SCENARIO_JOBS)
		return wrong(r, "write: job AT PROGRAM BROKER", r->words[0]);
	err = number(r, r->words[1], &job->at);
	if (!err)
		err = whole(r, r->words[3], 0, SCENARIO_BROKERS - 1, &job->broker);
	for (job->program = 0; !err && job->program < s->program_count; job->program++)
		if (strcmp(s->programs[job->program].name, r->words[2]) == 0)
			break;
	if (!err && job->program == s->program_count)
		return wrong(r, "not a program of a line above", r->words[2]);
	s->job_count += !err;
	return err;
}

static int brokers_line(struct reading *r)
{
	struct scenario *s = r->scenario;
	unsigned count = 0, site = 0;
	struct field fields[] = { { "site", NULL, &site, false, false } };
	int err = r->count < 2 ? wrong(r, "how many", r->words[0]) : whole(r, r->words[1], 1, SCENARIO_BROKERS - s->brokers, &count);

	if (!err)
		err = fields_read(r, 2, fields, 1);
	for (unsigned i = 0; !err && i < count; i++)
		s->broker_site[s->brokers++] = site;
	return err;
}

static int line_read(struct reading *r)
{
	struct scenario *s = r->scenario;
	const char *word = r->words[0];
	struct field wan[] = { { "rtt", &s->wan_rtt, NULL, true, false }, { "bandwidth", &s->wan_bandwidth, NULL, true, false } };
	struct field users[] = { { "think", &s->think, NULL, true, false } };

	if (strcmp(word, "node") == 0)
		return node_line(r);
	if (strcmp(word, "program") == 0)
		return program_line(r);
	if (strcmp(word, "at") == 0)
		return change_line(r);
	if (strcmp(word, "job") == 0)
		return job_line(r);
	if (strcmp(word, "brokers") == 0)
		return brokers_line(r);
	if (strcmp(word, "wan") == 0)
		return fields_read(r, 1, wan, 2);
	if (r->count < 2)
		return wrong(r, "not a line that is known", word);
	if (strcmp(word, "users") == 0) {
		int err = whole(r, r->words[1], 1, 100000, &s->users);

		return err ? err : fields_read(r, 2, users, 1);
	}
	if (strcmp(word, "flap") == 0 && r->count == 3) {
		snprintf(s->flap, sizeof(s->flap), "%s", r->words[1]);
		return number(r, r->words[2], &s->flap_period);
	}
	if (strcmp(word, "horizon") == 0)
		return number(r, r->words[1], &s->horizon);
	if (strcmp(word, "report") == 0)
		return number(r, r->words[1], &s->report);
	if (strcmp(word, "noise") == 0)
		return number(r, r->words[1], &s->noise);
	if (strcmp(word, "seeds") == 0)
		return whole(r, r->words[1], 1, 1000, &s->seeds);
	if (strcmp(word, "profiles") == 0) {
		s->profiles_known = strcmp(r->words[1], "known") == 0;
		return s->profiles_known || strcmp(r->words[1], "learned") == 0 ? 0 : wrong(r, "known or learned", r->words[1]);
	}
	return wrong(r, "not a line that is known", word);
}

int scenario_read(const char *path, struct scenario *scenario, char *why, size_t why_size)
{
	char what[200] = "", line[LINE_MAX_SIZE];
	struct reading r = { .scenario = scenario, .why = what, .why_size = sizeof(what) };
	const char *slash = strrchr(path, '/');
	FILE *in = fopen(path, "r");
	unsigned at = 0;
	int err = 0;

	if (!in) {
		snprintf(why, why_size, "%s: %s", path, strerror(errno));
		return -errno;
	}
	memset(scenario, 0, sizeof(*scenario));
	scenario->horizon = 600;
	scenario->seeds = 20;
	scenario->report = 0.5;
	scenario->noise = 0.1;
	snprintf(scenario->name, sizeof(scenario->name), "%s", slash ? slash + 1 : path);
	scenario->name[strcspn(scenario->name, ".")] = 0;
	while (!err && fgets(line, sizeof(line), in)) {
		char *rest = line;

		at++;
		if (!strchr(line, '\n') && !feof(in)) {
			err = wrong(&r, "the line is too long", "...");
			break;
		}
		line[strcspn(line, "#\n")] = 0;
		r.count = 0;
		for (char *word; (word = strsep(&rest, " \t"));)
			if (*word && r.count < WORDS_MAX)
				r.words[r.count++] = word;
		if (r.count)
			err = line_read(&r);
	}
	fclose(in);
	if (!err && (!scenario->brokers || !scenario->class_count || !scenario->program_count || !(scenario->report > 0) ||
		     !(scenario->horizon > 0) || (!scenario->users && !scenario->job_count)))
		err = wrong(&r, "it needs brokers, a node, a program, and users or jobs", scenario->name);
	for (unsigned i = 0; !err && i < scenario->job_count; i++)
		if (scenario->jobs[i].broker >= scenario->brokers)
			err = wrong(&r, "a job names a broker that isn't there", scenario->name);
	if (err)
		snprintf(why, why_size, "%s:%u: %s", path, at, what);
	return err;
}
