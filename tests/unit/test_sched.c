// SPDX-License-Identifier: Apache-2.0
/* The scheduler: four situations with four right answers, what is no candidate and why, nodes that come and go or lie. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/local/sched.h"

static struct sched *sched;
static char why[SCHED_TEXT_SIZE];
static uint64_t decision;

static int setup(void **state)
{
	sched = sched_new(7);
	why[0] = 0;
	return sched ? 0 : -1;
}

static int teardown(void **state)
{
	sched_free(sched);
	return 0;
}

/* A good server on a good LAN; tests change what they are about. */
static struct sched_node_state good(void)
{
	return (struct sched_node_state){
		.up = true, .rtt = 0.0002, .jitter = 0, .bandwidth = 1.1e9, .speed = 1, .gpus = 1, .memory = 80e9, .memory_free = 80e9,
		.busy = 0, .busy_own = 0, .link_busy = 0, .sessions = 0, .sessions_max = 256, .warm = 1, .told_at = 0,
	};
}

static uint32_t add(const char *name, const struct sched_node_state *state)
{
	uint32_t node = sched_node_add(sched, name);

	assert_int_not_equal(node, SCHED_NONE);
	sched_node_set(sched, node, state, 0);
	return node;
}

static const struct sched_profile chatty = { .runs = 5, .wall = 10, .cpu = 1, .gpu = 1, .trips = 20000, .bytes_up = 1e6 };
static const struct sched_profile heavy = { .runs = 5, .wall = 60, .cpu = 1, .gpu = 60, .trips = 100, .bytes_up = 1e6, .memory = 20e9 };
static const struct sched_profile loader = { .runs = 5, .wall = 20, .cpu = 1, .gpu = 2, .trips = 200, .bytes_up = 20e9 };
static const struct sched_profile brief = { .runs = 5, .wall = 2, .cpu = 0.5, .gpu = 1, .trips = 100, .bytes_up = 1e6 };

static uint32_t pick_at(const struct sched_profile *profile, double now)
{
	struct sched_request request = { .profile = profile, .key = 1, .program = "program", .pid = 42 };

	return sched_pick(sched, &request, now, &decision, why, sizeof(why));
}

static uint32_t pick(const struct sched_profile *profile)
{
	return pick_at(profile, 0);
}

/* ---- four right answers ---- */

static void round_trips_follow_rtt(void **state)
{
	struct sched_node_state far = good(), near = good();

	far.rtt = 0.002;
	near.speed = 0.5;
	near.bandwidth = 1e8;
	add("far", &far);
	assert_int_equal(pick(&chatty), add("near", &near));
	assert_string_equal(sched_decision(sched, 0)->second, "far");
}

static void compute_follows_contention(void **state)
{
	struct sched_node_state busy = good(), idle = good();

	busy.busy = 2;
	idle.rtt = 0.005;
	idle.bandwidth = 1e8;
	add("busy", &busy);
	assert_int_equal(pick(&heavy), add("idle", &idle));
}

static double held(void *arg, uint32_t node)
{
	return node == *(uint32_t *)arg ? 0 : 14e9;
}

static void first_start_follows_the_cache(void **state)
{
	struct sched_node_state fast = good(), slow = good();
	struct sched_request request = { .profile = &brief, .uncached = held };
	uint32_t holder;

	slow.speed = 0.5;
	add("fast", &fast);
	holder = add("holder", &slow);
	request.uncached_arg = &holder;
	assert_int_equal(sched_pick(sched, &request, 0, &decision, why, sizeof(why)), holder);
	/* Where nobody has it the fast one is right. */
	request.uncached = NULL;
	assert_int_equal(sched_pick(sched, &request, 0, &decision, why, sizeof(why)), 0);
}

static void transfers_follow_bandwidth(void **state)
{
	struct sched_node_state thin = good(), thick = good();

	thin.bandwidth = 117e6;
	thick.rtt = 0.003;
	thick.speed = 0.5;
	add("thin", &thin);
	assert_int_equal(pick(&loader), add("thick", &thick));
	/* The link drops to 100 Mbit/s: the next one goes elsewhere. */
	thick.bandwidth = 12e6;
	sched_node_set(sched, 1, &thick, 1);
	assert_int_equal(pick_at(&loader, 1), 0);
}

static void contention_of_ones_own_clients_counts_at_once(void **state)
{
	struct sched_node_state node = good();
	struct sched_request request = { .profile = &heavy, .key = 1 };
	unsigned on[3] = { 0 };

	for (unsigned i = 0; i < 3; i++)
		add(i ? i == 1 ? "b" : "c" : "a", &node);
	/* No report comes between them. */
	for (uint32_t id = 1; id <= 9; id++) {
		uint32_t to = pick(&heavy);

		on[to]++;
		if (id <= 9)
			assert_int_equal(sched_client_add(sched, id, to, decision, &request, 0), 0);
	}
	assert_int_equal(on[0], 3);
	assert_int_equal(on[1], 3);
	assert_int_equal(on[2], 3);
}

/* ---- no candidates ---- */

static void memory_must_fit(void **state)
{
	struct sched_node_state small = good(), large = good();

	small.memory_free = 16e9;
	large.memory_free = 24e9;
	large.speed = 0.1;
	add("small", &small);
	add("large", &large);
	assert_int_equal(pick(&heavy), 1);
	large.memory_free = 10e9;
	sched_node_set(sched, 1, &large, 0);
	assert_int_equal(pick(&heavy), SCHED_NONE);
	assert_non_null(strstr(why, "18.6 GiB"));
	assert_non_null(strstr(why, "small has 14.9"));
	assert_non_null(strstr(why, "large has 9.3"));
	assert_string_equal(sched_decision(sched, 0)->node, "");
	/* Who names a server takes the risk. */
	struct sched_request request = { .profile = &heavy, .wanted = "small" };

	assert_int_equal(sched_pick(sched, &request, 0, &decision, why, sizeof(why)), 0);
}

static void memory_of_the_newest_counts_before_it_is_used(void **state)
{
	struct sched_node_state one = good();
	struct sched_request request = { .profile = &heavy, .key = 1 };
	struct sched_usage usage = { .wall = 1, .memory = 20e9 };

	one.memory_free = 30e9;
	add("one", &one);
	assert_int_equal(pick(&heavy), 0);
	sched_client_add(sched, 1, 0, decision, &request, 0);
	assert_int_equal(pick(&heavy), SCHED_NONE);
	/* It has it now, and the node tells so: counted once. */
	one.memory_free = 25e9;
	sched_node_set(sched, 0, &one, 1);
	sched_client_used(sched, 1, &usage, 1);
	assert_int_equal(pick_at(&heavy, 1), 0);
	sched_client_remove(sched, 1, NULL, 2);
}

static void drained_full_and_named_nodes(void **state)
{
	struct sched_node_state drained = good(), full = good(), fine = good();
	struct sched_request request = { .profile = &brief, .wanted = "fine" };
	uint64_t tried[1] = { 0 };

	drained.draining = true;
	full.sessions = full.sessions_max = 4;
	fine.speed = 0.01;
	add("drained", &drained);
	add("full", &full);
	assert_int_equal(pick(&brief), SCHED_NONE);
	assert_non_null(strstr(why, "drained is drained"));
	assert_non_null(strstr(why, "full has 4 clients"));
	assert_int_equal(pick(&brief), SCHED_NONE);
	assert_int_equal(add("fine", &fine), 2);
	assert_int_equal(pick(&brief), 2);
	request.wanted = "drained";
	assert_int_equal(sched_pick(sched, &request, 0, &decision, why, sizeof(why)), SCHED_NONE);
	request.wanted = NULL;
	request.tried = tried;
	tried[0] = 1 << 2;
	assert_int_equal(sched_pick(sched, &request, 0, &decision, why, sizeof(why)), SCHED_NONE);
}

static void nodes_that_are_down(void **state)
{
	struct sched_node_state one = good(), two = good();
	struct sched_request request = { .profile = &brief, .even_down = true };

	two.speed = 0.1;
	add("one", &one);
	add("two", &two);
	one.up = false;
	sched_node_set(sched, 0, &one, 1);
	assert_int_equal(pick_at(&brief, 1), 1);
	two.up = false;
	sched_node_set(sched, 1, &two, 2);
	assert_int_equal(pick_at(&brief, 2), SCHED_NONE);
	assert_non_null(strstr(why, "can't be reached"));
	/* Whoever wants to hear why may try. */
	assert_int_not_equal(sched_pick(sched, &request, 2, &decision, why, sizeof(why)), SCHED_NONE);
}

static void a_node_that_failed_comes_last_for_a_while(void **state)
{
	struct sched_node_state fast = good(), slow = good();

	slow.speed = 0.1;
	add("fast", &fast);
	add("slow", &slow);
	sched_node_failed(sched, 0, 10);
	assert_int_equal(pick_at(&heavy, 11), 1);
	assert_int_equal(pick_at(&heavy, 16), 0);
}

static void a_node_that_flaps_gets_nobody(void **state)
{
	struct sched_node_state good_one = good(), flapping = good();
	double now = 0;

	good_one.speed = 0.1;
	add("good", &good_one);
	add("flapping", &flapping);
	assert_int_equal(pick(&heavy), 1); /* nothing is known against it yet */
	for (unsigned i = 0; i < 20; i++) {
		now += 1;
		flapping.up = i % 2;
		sched_node_set(sched, 1, &flapping, now);
		assert_int_equal(pick_at(&heavy, now + 0.5), 0);
	}
	/* Where there is nobody else it is better than none: a client's session outlives a lost link. */
	good_one.up = false;
	sched_node_set(sched, 0, &good_one, now);
	assert_int_equal(pick_at(&heavy, now), 1);
	/* It stays: after a minute or so it is as good as any. */
	for (unsigned i = 0; i < 400; i++)
		sched_node_set(sched, 1, &flapping, now += 1);
	assert_int_equal(pick_at(&heavy, now), 1);
}

static void a_silent_node_is_believed_less_and_less(void **state)
{
	struct sched_node_state busy = good(), other = good();

	busy.busy = 3;
	other.busy = 1;
	add("busy", &busy);
	add("other", &other);
	other.told_at = 100;
	sched_node_set(sched, 1, &other, 100);
	/* Its last word is a hundred seconds old: three clients then are not three clients now. */
	assert_int_equal(pick_at(&heavy, 100), 0);
}

static void a_liar_is_found_out(void **state)
{
	struct sched_node_state liar = good(), honest = good();
	struct sched_request request = { .profile = &heavy, .key = 1 };
	struct sched_usage usage = { .wall = 300 };
	unsigned runs = 0;

	liar.speed = 8;
	add("liar", &liar);
	add("honest", &honest);
	while (pick_at(&heavy, runs) == 0) {
		assert_true(++runs < 10);
		sched_client_add(sched, runs, 0, decision, &request, runs);
		sched_client_remove(sched, runs, &usage, runs);
	}
	assert_true(sched_node_speed(sched, 0, runs) < 2);
	/* One that runs and runs needn't have ended. */
	teardown(NULL);
	setup(NULL);
	add("liar", &liar);
	add("honest", &honest);
	assert_int_equal(pick(&heavy), 0);
	sched_client_add(sched, 1, 0, decision, &request, 0);
	for (double at = 1; at < 200; at += 0.5) {
		usage.wall = at;
		sched_client_used(sched, 1, &usage, at);
	}
	sched_client_remove(sched, 1, NULL, 200);
	assert_int_equal(pick_at(&heavy, 200), 1);
}

/* ---- policies, decisions ---- */

static void policies_are_switched(void **state)
{
	struct sched_node_state node = good();
	unsigned on[3] = { 0 };

	for (unsigned i = 0; i < 3; i++) {
		node.speed = i + 1;
		node.busy = i == 1 ? 0 : 2;
		add(i ? i == 1 ? "b" : "c" : "a", &node);
	}
	assert_string_equal(sched_policy(sched), "cost");
	assert_int_equal(sched_policy_set(sched, "fastest"), -EINVAL);
	assert_int_equal(sched_policy_set(sched, ""), -EINVAL);
	assert_string_equal(sched_policy(sched), "cost");
	assert_int_equal(sched_policy_set(sched, "least-loaded"), 0);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(pick(&heavy), 1);
	assert_int_equal(sched_policy_set(sched, "round-robin"), 0);
	for (unsigned i = 0; i < 9; i++)
		on[pick(&heavy)]++;
	assert_int_equal(on[0], 3);
	assert_int_equal(on[1], 3);
	assert_int_equal(on[2], 3);
	assert_int_equal(sched_policy_set(sched, "pinned"), 0);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(pick(&heavy), 0);
	assert_string_equal(sched_decision(sched, 0)->policy, "pinned");
}

static void equals_share(void **state)
{
	struct sched_node_state node = good();
	unsigned on[2] = { 0 };

	add("a", &node);
	node.speed = 0.99;
	add("b", &node);
	for (unsigned i = 0; i < 400; i++)
		on[pick(&heavy)]++;
	assert_in_range(on[0], 120, 280);
}

static void decisions_are_remembered(void **state)
{
	struct sched_node_state node = good();
	struct sched_request request = { .profile = &heavy, .key = 1 };
	struct sched_usage usage = { .wall = 61 };
	const struct sched_decision *d;

	add("a", &node);
	pick(&heavy);
	sched_client_add(sched, 5, 0, decision, &request, 0);
	d = sched_decision(sched, 0);
	assert_int_equal(d->number, 1);
	assert_int_equal(d->pid, 42);
	assert_true(d->known && d->measured < 0);
	assert_true(d->cost.total > 60 && d->cost.total < 62);
	sched_client_remove(sched, 5, &usage, 61);
	assert_true(d->measured > 60.9 && d->measured < 61.1);
	for (unsigned i = 0; i < 2 * SCHED_DECISIONS; i++)
		pick(NULL);
	assert_int_equal(sched_decision(sched, 0)->number, 2 * SCHED_DECISIONS + 1);
	assert_false(sched_decision(sched, 0)->known);
	assert_non_null(sched_decision(sched, SCHED_DECISIONS - 1));
	assert_null(sched_decision(sched, SCHED_DECISIONS));
	/* One whose decision has been forgotten ends all the same. */
	sched_client_add(sched, 6, 0, 1, &request, 0);
	sched_client_remove(sched, 6, &usage, 61);
}

/* ---- profiles ---- */

static void profiles_are_learned(void **state)
{
	struct sched_profiles *profiles = sched_profiles_new();
	struct sched_usage usage = { .wall = 10, .waited = 7, .gpu = 5, .gpu_wall = 5, .trips = 1000, .bytes_up = 1e9, .bytes_down = 1e6,
				     .memory = 4e9, .model = 14e9,
				     .samples = { { 0x12, 0x400000 }, { 0xffffffff, 1 } }, .sample_count = 2 };
	const struct sched_profile *p;

	assert_null(sched_profile_find(profiles, 9));
	assert_null(sched_profile_find(profiles, 0));
	sched_profile_learn(profiles, 9, &usage, 0.5, 0.001, 1e9);
	p = sched_profile_find(profiles, 9);
	assert_true(p->runs > 0.9 && p->cpu > 2.9 && p->cpu < 3.1);
	assert_true(p->gpu > 2.4 && p->gpu < 2.6); /* of a GPU twice as fast */
	usage.wall = 0.001;
	sched_profile_learn(profiles, 9, &usage, 0.5, 0.001, 1e9);
	assert_true(sched_profile_find(profiles, 9)->runs < 1.1); /* too short to tell */
	usage.wall = 20;
	usage.memory = 1e9;
	sched_profile_learn(profiles, 9, &usage, 0.5, 0.001, 1e9);
	p = sched_profile_find(profiles, 9);
	assert_true(p->wall > 14.9 && p->wall < 15.1);
	assert_true(p->memory > 2e9); /* forgotten slowly */
	assert_true(p->repeats > 0.99);
	usage.samples[0].print = 77;
	sched_profile_learn(profiles, 9, &usage, 0.5, 0.001, 1e9);
	p = sched_profile_find(profiles, 9);
	assert_true(p->repeats > 0.49 && p->repeats < 0.51);
	/* More programs than are kept: the eldest goes. */
	for (uint64_t key = 100; key < 100 + SCHED_PROFILES_MAX; key++)
		sched_profile_learn(profiles, key, &usage, 1, 0.001, 1e9);
	assert_null(sched_profile_find(profiles, 9));
	assert_non_null(sched_profile_find(profiles, 100));
	sched_profiles_free(profiles);
}

static void profiles_are_kept(void **state)
{
	struct sched_profiles *profiles = sched_profiles_new(), *other = sched_profiles_new();
	struct sched_usage usage = { .wall = 10, .waited = 7, .gpu = 5, .gpu_wall = 5, .trips = 1000, .bytes_up = 1e9,
				     .model = 7e9, .samples = { { 0x12, 0x400000 }, { 0xffffffff, 1 } }, .sample_count = 2 };
	size_t size, again_size;
	char *text, *again;

	for (uint64_t key = 1; key < 50; key++) {
		usage.trips = (double)key;
		sched_profile_learn(profiles, key, &usage, 1, 0.001, 1e9);
	}
	text = sched_profiles_text(profiles, &size);
	assert_int_equal(sched_profiles_read(other, text), 0);
	again = sched_profiles_text(other, &again_size);
	assert_string_equal(text, again);
	/* Every truncation, and nonsense. */
	for (size_t i = 0; i < size; i += 7) {
		char *cut = strndup(text, i);

		sched_profiles_read(other, cut);
		free(cut);
	}
	assert_int_equal(sched_profiles_read(other, "0000000000000005 1 2 3\n"), 1);
	assert_int_equal(sched_profiles_read(other, "0000000000000005 1 nan 3 4 5 6 7 8 9 0 0 -\n"), 1);
	assert_int_equal(sched_profiles_read(other, "0000000000000005 1 -2 3 4 5 6 7 8 9 0 0 -\n"), 1);
	assert_int_equal(sched_profiles_read(other, "0000000000000005 1 1e300 3 4 5 6 7 8 9 0 0 -\n"), 1);
	assert_int_equal(sched_profiles_read(other, "0000000000000000 1 2 3 4 5 6 7 8 9 0 0 -\n"), 1);
	assert_int_equal(sched_profiles_read(other, "0000000000000005 1 2 3 4 5 6 7 8 9 0 0 -\n"), 0);
	assert_int_equal(sched_profiles_read(other, "0000000000000005 1 2 3 4 5 6 7 8 9 0 0 1:2,\n"), 1);
	assert_int_equal(sched_profiles_read(other, "0000000000000005 1 2 3 4 5 6 7 8 9 0 0 1:2;3:4\n"), 1);
	assert_int_equal(sched_profiles_read(other, "0000000000000005 1 2 3 4 5 6 7 8 9 0 0 1:1,1:1,1:1,1:1,1:1,1:1,1:1,1:1,1:1\n"), 1);
	assert_int_equal(sched_profiles_read(other, "garbage\n# comment\n\n"), 1);
	free(text);
	free(again);
	sched_profiles_free(profiles);
	sched_profiles_free(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		T(round_trips_follow_rtt), T(compute_follows_contention), T(first_start_follows_the_cache), T(transfers_follow_bandwidth),
		T(contention_of_ones_own_clients_counts_at_once), T(memory_must_fit), T(memory_of_the_newest_counts_before_it_is_used),
		T(drained_full_and_named_nodes), T(nodes_that_are_down), T(a_node_that_failed_comes_last_for_a_while),
		T(a_node_that_flaps_gets_nobody), T(a_silent_node_is_believed_less_and_less), T(a_liar_is_found_out),
		T(policies_are_switched), T(equals_share), T(decisions_are_remembered),
		T(profiles_are_learned), T(profiles_are_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
