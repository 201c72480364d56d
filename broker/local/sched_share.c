/* SPDX-License-Identifier: Apache-2.0 */
/* Sharing a GPU among clients. No I/O; see sched_share.h. */
#include "broker/local/sched_share.h"

#define SHARE_SLOW	2.0  /* times its best latency: somebody is in its way */
#define SHARE_SLOW_LEAST 1e-3 /* seconds more than its best; less nobody notices */
#define SHARE_USED	0.05 /* a client with less of the GPU is in nobody's way */
#define SHARE_WAITS	0.9  /* of the time with unfinished work: it could use more */
#define SHARE_LACKS	0.7  /* of its fair part: it gets too little */
#define SHARE_LESS	0.7  /* a limit's next value while somebody waits */
#define SHARE_MORE	1.15 /* and while nobody does */
#define SHARE_FREE	2.0  /* times what it sends: the limit limits nothing */

/* A priority counts four times the one below. */
static double weight(const struct share_client *client)
{
	static const double weights[] = { [PRIORITY_BATCH] = 1, [PRIORITY_NORMAL] = 4, [PRIORITY_LATENCY] = 16 };

	return weights[client->priority];
}

static bool uses(const struct share_client *client)
{
	return client->gpu > SHARE_USED || client->busy > SHARE_USED;
}

/* Somebody is to be answered fast, and is not. */
static bool is_late(const struct share_client *client)
{
	return client->priority == PRIORITY_LATENCY && client->latency > 0 && client->latency_best > 0 &&
	       client->latency > SHARE_SLOW * client->latency_best && client->latency > client->latency_best + SHARE_SLOW_LEAST;
}

static void hold(struct share_client *client)
{
	double from = client->limit > 0 && client->limit < client->rate ? client->limit : client->rate;

	client->limit = from * SHARE_LESS > SHARE_LIMIT_MIN ? from * SHARE_LESS : SHARE_LIMIT_MIN;
}

static void release(struct share_client *client)
{
	if (client->limit <= 0)
		return;
	client->limit *= SHARE_MORE;
	if (client->limit > SHARE_FREE * client->rate && client->limit > 2 * SHARE_LIMIT_MIN)
		client->limit = 0;
}

void sched_share(struct share_client *clients, unsigned count)
{
	double weights = 0, late_above = -1, gpu = 0;
	bool lacking = false;

	for (unsigned i = 0; i < count; i++) {
		if (!uses(&clients[i]))
			continue;
		weights += weight(&clients[i]);
		gpu += clients[i].gpu;
	}
	for (unsigned i = 0; i < count; i++) {
		const struct share_client *client = &clients[i];

		if (is_late(client))
			late_above = weight(client);
		/* It always has work, and gets less than is its due, though the GPU is in use. */
		if (uses(client) && weights > 0 && gpu > 0.5 && client->busy > SHARE_WAITS &&
		    client->gpu < SHARE_LACKS * weight(client) / weights)
			lacking = true;
	}
	for (unsigned i = 0; i < count; i++) {
		struct share_client *client = &clients[i];
		bool in_the_way = late_above > weight(client) && client->gpu > SHARE_USED;

		in_the_way |= lacking && weights > 0 && client->gpu > weight(client) / weights / SHARE_LACKS;
		if (in_the_way && count > 1)
			hold(client);
		else if (late_above < 0 && !lacking)
			release(client);
	}
}
