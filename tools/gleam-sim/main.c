// SPDX-License-Identifier: Apache-2.0
/*
 * gleam-sim: the scheduler in a simulated cluster. Reads a scenario, runs policies over seeds and loads, writes tab-separated
 * tables. See docs/scheduler.md. One thread.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/gleam-sim/sim.h"

#define SEEDS_MAX    1000
#define POLICIES_MAX 16
#define LOADS_MAX    16
#define EXIT_USAGE   2

static void usage(FILE *out)
{
	fputs("usage: gleam-sim [options] SCENARIO\n"
	      "Runs Gleam's scheduler in a simulated cluster and compares its policies.\n"
	      "\n"
	      "  --policy LIST   of cost, moves (cost, and programs that run are moved where that pays), least-loaded, round-robin, pinned, oracle\n"
	      "                  (default: all but moves and pinned)\n"
	      "  --seeds N       the first N seeds (default: what the scenario says)\n"
	      "  --load LIST     factors of the scenario's users (default: 1)\n"
	      "  --ratios        instead of a line a run: throughput of the first policy against each other's, over seeds\n"
	      "  --trace         a line a job, on stderr\n"
	      "  --decide NODES  instead of a scenario: the time of a decision among so many nodes\n"
	      "  --help          this text\n",
	      out);
}

static unsigned list_split(char *text, char **parts, unsigned max)
{
	unsigned count = 0;

	for (char *part; (part = strsep(&text, ","));)
		if (*part && count < max)
			parts[count++] = part;
	return count;
}

static int double_order(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* The oracle knows the world, not the future: how much others' delay should count it finds by trying. */
static int run_one(const struct scenario *scenario, struct sim_options *options, struct sim_result *result_out)
{
	static const double altruisms[] = { 0, 0.5, 1, 2 };
	struct sim_result best = { 0 };
	int err = 0;

	options->moves = strcmp(options->policy, "moves") == 0;
	if (options->moves)
		options->policy = "cost";
	if (strcmp(options->policy, "oracle") != 0)
		return sim_run(scenario, options, result_out);
	for (size_t i = 0; !err && i < sizeof(altruisms) / sizeof(altruisms[0]); i++) {
		struct sim_result result;

		options->altruism = altruisms[i];
		err = sim_run(scenario, options, &result);
		if (!err && (scenario->job_count ? i == 0 || result.makespan < best.makespan : result.throughput > best.throughput))
			best = result;
	}
	*result_out = best;
	return err;
}

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* As a broker with that many nodes has it, 100 clients of its own among them. */
static int decide(unsigned count)
{
	enum { TIMES = 2000 };
	struct sched *sched = sched_new(1);
	struct sched_profile profile = { .runs = 3, .wall = 20, .cpu = 5, .gpu = 8, .trips = 4000, .bytes_up = 1e9, .bytes_down = 1e6,
					 .memory = 8e9 };
	struct sched_request request = { .profile = &profile, .key = 1, .program = "decide" };
	double took[TIMES], sum = 0;
	char why[SCHED_TEXT_SIZE];
	uint64_t decision;

	if (!sched)
		return -ENOMEM;
	for (unsigned i = 0; i < count; i++) {
		struct sched_node_state state = { .up = true, .rtt = 1e-4 * (1 + i % 37), .bandwidth = 1e8 * (1 + i % 13), .speed = 1 + i % 5,
						  .gpus = 1 + i % 4, .memory = 8e10, .memory_free = 7e10, .busy = i % 7, .busy_own = 0,
						  .link_busy = 0.1 * (i % 6), .sessions = i % 7, .sessions_max = 256, .warm = i % 2 };
		char name[32];

		snprintf(name, sizeof(name), "node%u", i);
		if (sched_node_add(sched, name) == SCHED_NONE)
			return -ENOMEM;
		sched_node_set(sched, i, &state, 0);
	}
	for (unsigned i = 0; i < 100; i++)
		sched_client_add(sched, i + 1, i % count, 0, &request, 0);
	for (unsigned i = 0; i < TIMES; i++) {
		double before = now_s();

		if (sched_pick(sched, &request, 1 + i * 0.01, &decision, why, sizeof(why)) == SCHED_NONE)
			return -ENOENT;
		took[i] = now_s() - before;
		sum += took[i];
	}
	qsort(took, TIMES, sizeof(double), double_order);
	printf("nodes\tmean_us\tmedian_us\tp99_us\n%u\t%.2f\t%.2f\t%.2f\n", count, sum / TIMES * 1e6, took[TIMES / 2] * 1e6,
	       took[TIMES * 99 / 100] * 1e6);
	sched_free(sched);
	return 0;
}

static int ratios(const struct scenario *scenario, char **policies, unsigned policy_count, unsigned seeds, double load)
{
	static double throughput[POLICIES_MAX][SEEDS_MAX];
	double ratio[SEEDS_MAX];

	for (unsigned p = 0; p < policy_count; p++) {
		for (unsigned seed = 1; seed <= seeds; seed++) {
			struct sim_options options = { .policy = policies[p], .seed = seed, .load = load };
			struct sim_result result;
			int err = run_one(scenario, &options, &result);

			if (err)
				return err;
			throughput[p][seed - 1] = scenario->job_count ? 1 / result.makespan : result.throughput;
		}
	}
	for (unsigned p = 1; p < policy_count; p++) {
		for (unsigned i = 0; i < seeds; i++)
			ratio[i] = throughput[0][i] / throughput[p][i];
		qsort(ratio, seeds, sizeof(double), double_order);
		printf("%s\t%.2f\t%s/%s\t%u\t%.3f\t%.3f\t%.3f\n", scenario->name, load, policies[0], policies[p], seeds,
		       seeds % 2 ? ratio[seeds / 2] : (ratio[seeds / 2 - 1] + ratio[seeds / 2]) / 2, ratio[0], ratio[seeds - 1]);
	}
	return 0;
}

static int table(const struct scenario *scenario, char **policies, unsigned policy_count, unsigned seeds, double load, FILE *trace)
{
	for (unsigned p = 0; p < policy_count; p++) {
		for (unsigned seed = 1; seed <= seeds; seed++) {
			struct sim_options options = { .policy = policies[p], .seed = seed, .load = load, .trace = trace };
			struct sim_result r;
			int err = run_one(scenario, &options, &r);

			if (err)
				return err;
			printf("%s\t%.2f\t%s\t%u\t%.4f\t%.3f\t%.3f\t%.3f\t%u\t%u\t%u\t%u\t%.3f\t%.2f\t%u\n", scenario->name, load, policies[p],
			       seed, r.throughput, r.slowdown, r.slowdown_p95, r.makespan, r.finished, r.refused, r.lost, r.doubtful, r.error,
			       r.decide_us, r.moves);
		}
	}
	return 0;
}

enum { OPT_POLICY = 256, OPT_SEEDS, OPT_LOAD, OPT_RATIOS, OPT_TRACE, OPT_DECIDE, OPT_HELP };

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "policy", required_argument, NULL, OPT_POLICY }, { "seeds", required_argument, NULL, OPT_SEEDS },
		{ "load", required_argument, NULL, OPT_LOAD },	   { "ratios", no_argument, NULL, OPT_RATIOS },
		{ "trace", no_argument, NULL, OPT_TRACE },	   { "decide", required_argument, NULL, OPT_DECIDE },
		{ "help", no_argument, NULL, OPT_HELP },	   { NULL, 0, NULL, 0 },
	};
	static struct scenario scenario;
	char policy_default[] = "cost,least-loaded,round-robin,oracle", load_default[] = "1";
	char *policies[POLICIES_MAX], *loads[LOADS_MAX];
	unsigned policy_count = list_split(policy_default, policies, POLICIES_MAX);
	unsigned load_count = list_split(load_default, loads, LOADS_MAX);
	unsigned seeds = 0;
	bool as_ratios = false, trace = false;
	char why[400];
	int id, err = 0;

	while ((id = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (id) {
		case OPT_POLICY:
			policy_count = list_split(optarg, policies, POLICIES_MAX);
			break;
		case OPT_SEEDS:
			seeds = (unsigned)strtoul(optarg, NULL, 10);
			if (seeds < 1 || seeds > SEEDS_MAX) {
				fprintf(stderr, "gleam-sim: --seeds: 1 to %d\n", SEEDS_MAX);
				return EXIT_USAGE;
			}
			break;
		case OPT_LOAD:
			load_count = list_split(optarg, loads, LOADS_MAX);
			break;
		case OPT_RATIOS:
			as_ratios = true;
			break;
		case OPT_TRACE:
			trace = true;
			break;
		case OPT_DECIDE:
			seeds = (unsigned)strtoul(optarg, NULL, 10);
			if (seeds < 1 || seeds > 1000000) {
				fprintf(stderr, "gleam-sim: --decide: 1 to 1000000 nodes\n");
				return EXIT_USAGE;
			}
			return decide(seeds) ? 1 : 0;
		case OPT_HELP:
			usage(stdout);
			return 0;
		default:
			return EXIT_USAGE;
		}
	}
	if (optind + 1 != argc) {
		fputs("gleam-sim: one scenario; see gleam-sim --help\n", stderr);
		return EXIT_USAGE;
	}
	for (unsigned p = 0; p < policy_count; p++) {
		bool known = strcmp(policies[p], "oracle") == 0 || strcmp(policies[p], "moves") == 0;

		for (unsigned i = 0; sched_policy_name(i); i++)
			known |= strcmp(sched_policy_name(i), policies[p]) == 0;
		if (!known) {
			fprintf(stderr, "gleam-sim: `%s` is not a policy; there are cost, moves, least-loaded, round-robin, pinned, oracle\n",
				policies[p]);
			return EXIT_USAGE;
		}
	}
	if (scenario_read(argv[optind], &scenario, why, sizeof(why))) {
		fprintf(stderr, "gleam-sim: %s\n", why);
		return 1;
	}
	if (!seeds)
		seeds = scenario.seeds;
	puts(as_ratios ? "scenario\tload\tratio\tseeds\tmedian\tworst\tbest" :
			 "scenario\tload\tpolicy\tseed\tthroughput\tslowdown\tslowdown_p95\tmakespan\tfinished\trefused\tlost\tdoubtful\terror\tdecide_us\tmoves");
	for (unsigned i = 0; !err && i < load_count; i++) {
		double load = strtod(loads[i], NULL);

		if (!(load > 0)) {
			fprintf(stderr, "gleam-sim: --load: `%s` is not a factor\n", loads[i]);
			return EXIT_USAGE;
		}
		err = as_ratios ? ratios(&scenario, policies, policy_count, seeds, load) :
				  table(&scenario, policies, policy_count, seeds, load, trace ? stderr : NULL);
	}
	if (err)
		fprintf(stderr, "gleam-sim: %s\n", strerror(-err));
	return err ? 1 : 0;
}
