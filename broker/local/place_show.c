/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions of the scheduler, for people. Control thread; see place_show.h. */
#include "broker/local/place_show.h"

#include <inttypes.h>

/* A word: names come from processes and files. */
static void put_word(FILE *out, const char *text)
{
	fputc(' ', out);
	if (!*text)
		fputc('-', out);
	for (; *text; text++)
		fputc((unsigned char)*text <= ' ' || *text == 0x7f ? '?' : *text, out);
}

static void put_number(FILE *out, double value, const char *format)
{
	fputc(' ', out);
	if (value < 0)
		fputc('-', out);
	else
		fprintf(out, format, value);
}

static const char *part_most(const struct sched_cost *cost)
{
	const struct {
		const char *name;
		double value;
	} parts[] = { { "gpu", cost->gpu },	{ "cpu", cost->cpu },	  { "upload", cost->up },
		      { "trips", cost->trips }, { "download", cost->down }, { "start", cost->start } };
	unsigned most = 0;

	for (unsigned i = 1; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (parts[i].value > parts[most].value)
			most = i;
	return parts[most].name;
}

/* As long as it is remembered. */
static const struct sched_decision *decision_at(const struct place *place, unsigned back)
{
	return sched_decision(place_sched(place), back);
}

void place_decisions_put(FILE *out, const struct place *place)
{
	double now = place_now(place);
	unsigned count = 0;

	while (decision_at(place, count))
		count++;
	fputs("# number age_s pid program policy server predicted_s measured_s second second_s candidates known most start_s cpu_s gpu_s "
	      "up_s trips_s down_s rtt_ms bandwidth_mbit speed contention uncached_mib bias report_age_s moved_from\n",
	      out);
	while (count--) {
		const struct sched_decision *d = decision_at(place, count);
		const struct sched_cost *c = &d->cost;
		bool some = *d->node;

		fprintf(out, "%" PRIu64 " %.1f %" PRId64, d->number, now - d->at, d->pid);
		put_word(out, d->program);
		put_word(out, d->policy);
		put_word(out, d->node);
		put_number(out, some ? c->total : -1, "%.3f");
		put_number(out, d->measured, "%.3f");
		put_word(out, d->second);
		put_number(out, d->second_total, "%.3f");
		fprintf(out, " %u %s %s", d->candidates, d->known ? "yes" : "no", some ? part_most(c) : "-");
		put_number(out, some ? c->start : -1, "%.3f");
		put_number(out, some ? c->cpu : -1, "%.3f");
		put_number(out, some ? c->gpu : -1, "%.3f");
		put_number(out, some ? c->up : -1, "%.3f");
		put_number(out, some ? c->trips : -1, "%.3f");
		put_number(out, some ? c->down : -1, "%.3f");
		put_number(out, some && d->state.rtt >= 0 ? d->state.rtt * 1e3 : -1, "%.3f");
		put_number(out, some && d->state.bandwidth >= 0 ? d->state.bandwidth * 8 / 1e6 : -1, "%.0f");
		put_number(out, some ? d->state.speed : -1, "%.4g");
		put_number(out, some ? c->contention : -1, "%.2f");
		put_number(out, some ? c->uncached / 1048576 : -1, "%.0f");
		put_number(out, some ? c->bias : -1, "%.2f");
		put_number(out, some && d->state.told_at >= 0 ? d->at - d->state.told_at : -1, "%.1f");
		put_word(out, d->move ? d->second : "");
		fputc('\n', out);
	}
}

static void json_known(struct json *json, const char *key, double value, int decimals)
{
	if (value < 0)
		json_null(json, key);
	else
		json_fixed(json, key, value, decimals);
}

void place_decisions_json(struct json *json, const struct place *place, uid_t uid, bool all)
{
	double now = place_now(place);
	unsigned count = 0;

	while (decision_at(place, count))
		count++;
	json_open(json, "decisions", '[');
	while (count--) {
		const struct sched_decision *d = decision_at(place, count);
		const struct sched_cost *c = &d->cost;

		if (!all && d->uid != uid)
			continue;
		json_open(json, NULL, '{');
		json_u64(json, "number", d->number);
		json_fixed(json, "age_s", now - d->at, 1);
		json_u64(json, "pid", (uint64_t)d->pid);
		json_str(json, "program", d->program);
		json_str(json, "policy", d->policy);
		json_str(json, "server", d->node);
		json_str(json, "why", d->why);
		json_known(json, "predicted_s", *d->node ? c->total : -1, 3);
		json_known(json, "measured_s", d->measured, 3);
		json_str(json, "second", d->second);
		json_str(json, "moved_from", d->move ? d->second : "");
		json_known(json, "second_s", d->second_total, 3);
		json_u64(json, "candidates", d->candidates);
		json_bool(json, "known", d->known);
		if (*d->node) {
			json_str(json, "most", part_most(c));
			json_fixed(json, "start_s", c->start, 3);
			json_fixed(json, "cpu_s", c->cpu, 3);
			json_fixed(json, "gpu_s", c->gpu, 3);
			json_fixed(json, "up_s", c->up, 3);
			json_fixed(json, "trips_s", c->trips, 3);
			json_fixed(json, "down_s", c->down, 3);
			json_fixed(json, "harm_s", c->harm, 3);
			json_fixed(json, "contention", c->contention, 2);
			json_fixed(json, "uncached", c->uncached, 0);
			json_fixed(json, "bias", c->bias, 2);
			json_known(json, "rtt_us", d->state.rtt >= 0 ? d->state.rtt * 1e6 : -1, 1);
			json_known(json, "bandwidth", d->state.bandwidth, 0);
			json_known(json, "speed", d->state.speed, 9);
			json_known(json, "report_age_s", d->state.told_at >= 0 ? d->at - d->state.told_at : -1, 1);
		}
		json_close(json, '}');
	}
	json_close(json, ']');
}
