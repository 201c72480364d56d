// SPDX-License-Identifier: Apache-2.0
/* Sharing a GPU: who is held back, how far, and when no more; against a GPU that this test plays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "broker/local/sched_share.h"

/*
 * A GPU that gives each client with work equal parts in turn, a command at a time: of @cost seconds. What a client may send, it sends, up to
 * its own demand. Fills in what is measured.
 */
static void play(struct share_client *clients, const double *demand, const double *cost, unsigned count)
{
	double wanted[4] = { 0 }, total = 0;

	for (unsigned i = 0; i < count; i++) {
		double rate = clients[i].limit > 0 && clients[i].limit < demand[i] ? clients[i].limit : demand[i];

		wanted[i] = rate * cost[i];
		total += wanted[i];
	}
	for (unsigned i = 0; i < count; i++) {
		double others = 0;

		for (unsigned k = 0; k < count; k++)
			if (k != i)
				others += wanted[k] > 1 ? 1 : wanted[k];
		clients[i].gpu = total > 1 ? wanted[i] / total : wanted[i];
		clients[i].busy = total > 1 || wanted[i] > 0.95 ? 1 : wanted[i];
		clients[i].rate = clients[i].gpu / cost[i];
		clients[i].latency = cost[i] * (1 + 10 * others);
		if (clients[i].latency_best <= 0 || clients[i].latency < clients[i].latency_best)
			clients[i].latency_best = clients[i].latency;
	}
}

static void latency_is_protected(void **state)
{
	struct share_client clients[2] = { { .priority = PRIORITY_LATENCY }, { .priority = PRIORITY_BATCH } };
	const double alone[2] = { 50, 0 }, both[2] = { 50, 100000 }, cost[2] = { 0.002, 0.0005 };

	play(clients, alone, cost, 2);
	assert_true(clients[0].latency < 0.003);
	for (unsigned i = 0; i < 40; i++) {
		play(clients, both, cost, 2);
		sched_share(clients, 2);
	}
	assert_true(clients[1].limit > 0 && clients[1].limit < 500);
	assert_true(clients[0].latency < 0.006);
	assert_true(clients[0].limit < 1e-9); /* never itself */
	assert_true(clients[1].limit >= SHARE_LIMIT_MIN);
	/* It leaves: soon nobody is held back. */
	for (unsigned i = 0; i < 60; i++) {
		play(clients + 1, both + 1, cost + 1, 1);
		sched_share(clients + 1, 1);
	}
	assert_true(clients[1].limit > 1000 || clients[1].limit < 1e-9);
}

static void equals_get_equal_parts(void **state)
{
	struct share_client clients[2] = { { .priority = PRIORITY_NORMAL }, { .priority = PRIORITY_NORMAL } };
	const double demand[2] = { 800, 20000 }, cost[2] = { 0.001, 0.001 };

	for (unsigned i = 0; i < 40; i++) {
		play(clients, demand, cost, 2);
		sched_share(clients, 2);
	}
	assert_true(clients[0].gpu > 0.34 && clients[1].gpu < 0.66);
}

static void weights_count(void **state)
{
	struct share_client clients[2] = { { .priority = PRIORITY_BATCH }, { .priority = PRIORITY_NORMAL } };
	const double demand[2] = { 5000, 5000 }, cost[2] = { 0.001, 0.001 };

	for (unsigned i = 0; i < 60; i++) {
		play(clients, demand, cost, 2);
		sched_share(clients, 2);
	}
	assert_true(clients[1].gpu > 0.5);
}

static void nobody_is_held_for_nothing(void **state)
{
	struct share_client clients[2] = { { .priority = PRIORITY_LATENCY }, { .priority = PRIORITY_BATCH } };
	const double demand[2] = { 50, 100 }, cost[2] = { 0.0001, 0.0001 };

	for (unsigned i = 0; i < 20; i++) {
		play(clients, demand, cost, 2);
		sched_share(clients, 2);
		assert_true(clients[0].limit < 1e-9 && clients[1].limit < 1e-9);
	}
	/* Alone it may take all, whatever its latency does. */
	clients[1] = (struct share_client){ .priority = PRIORITY_BATCH, .gpu = 1, .busy = 1, .latency = 1, .latency_best = 0.001, .rate = 1000 };
	sched_share(clients + 1, 1);
	assert_true(clients[1].limit < 1e-9);
	sched_share(NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(latency_is_protected),
		cmocka_unit_test(equals_get_equal_parts),
		cmocka_unit_test(weights_count),
		cmocka_unit_test(nobody_is_held_for_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
