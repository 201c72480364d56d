/* SPDX-License-Identifier: Apache-2.0 */
/* Moves that the scheduler thinks of. Control thread; see place_move.h. */
#include "broker/local/place_move.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "broker/lib/log.h"
#include "broker/local/broker.h"
#include "broker/local/client_private.h"
#include "broker/local/place.h"

#define MOVE_FIXED_S 1.0 /* a worker is found, modules are loaded, work ends: a second of the program's, all in all */

void place_moves_init(struct place_moves *moves, struct broker *broker, struct place *place, bool on)
{
	*moves = (struct place_moves){ .broker = broker, .place = place, .on = on };
}

static void request_of(const struct client *client, struct sched_request *request_out)
{
	const char *slash = strrchr(client->program, '/');

	*request_out = (struct sched_request){
		.key = client->route.program.key, .program = slash ? slash + 1 : client->program, .pid = client->pid, .uid = client->uid,
		.priority = client->route.program.priority,
	};
}

static void ended(struct place *place, uint64_t decision, uint32_t session, const struct move_news *news)
{
	const char *why = news->done ? "" : *news->why ? news->why : "it failed";

	sched_move_ended(place_sched_now(place), decision, session, why, news->refused, (double)news->total_ns / 1e9, place_now(place));
}

/* ---- the scheduler's own wish ---- */

static void wish_hear(void *arg, const struct move_news *news)
{
	struct place_wish *wish = arg;

	if (!news->over)
		return;
	ended(wish->moves->place, wish->decision, wish->session, news);
	wish->session = 0;
}

static struct client *client_of(const struct broker *broker, uint32_t session)
{
	for (unsigned i = 0; i < broker_client_count(broker); i++)
		if (client_session(broker_client(broker, i)) == session)
			return broker_client(broker, i);
	return NULL;
}

static void wish_begin(struct place_moves *moves, struct sched *sched, const struct sched_move *move)
{
	struct client *client = client_of(moves->broker, move->client);
	struct server *to = broker_server(moves->broker, move->node);
	double now = place_now(moves->place);
	struct place_wish *wish = &moves->wish;
	struct sched_request request;
	char why[MOVE_WHY_SIZE];
	int err;

	if (!client || client->move)
		return;
	err = client_has_sibling(client) ? -EOPNOTSUPP : move_ask(moves->broker, client, to, -1, wish_hear, wish, why, sizeof(why));
	/* What its GPUs do together no profile tells, nor what they would lose on one server. */
	if (client_has_sibling(client))
		snprintf(why, sizeof(why), "it has GPUs of several servers, which only people and drains move");
	if (err == -EAGAIN)
		return; /* the next look asks again */
	request_of(client, &request);
	*wish = (struct place_wish){
		.moves = moves,
		.session = err ? 0 : move->client,
		.decision = sched_move_decided(sched, move, "migrate", &request, now),
	};
	log_info("pid %d (%s): the scheduler %s it from %s to %s: %.1f s are left here, %.1f s there, the move takes %.1f s%s%s",
		 client->pid, client->program, err ? "would move" : "moves", server_name(client->server), server_name(to), move->stay,
		 move->go, move->price, err ? "; " : "", err ? why : "");
	if (err)
		sched_move_ended(sched, wish->decision, move->client, why, err == -EOPNOTSUPP || err == -EPERM, SCHED_UNKNOWN, now);
}

void place_moves_tick(struct place_moves *moves)
{
	struct sched_move wanted;
	struct sched *sched;

	/* Only that policy knows what a place is worth. */
	if (!moves->on || moves->wish.session || strcmp(sched_policy(place_sched(moves->place)), "cost") != 0)
		return;
	sched = place_sched_now(moves->place);
	sched_moves_set(sched, true, MOVE_FIXED_S);
	if (sched_moves(sched, place_now(moves->place), &wanted, 1))
		wish_begin(moves, sched, &wanted);
}

/* ---- leaving ---- */

struct server *place_leave(struct broker *broker, const struct client *client, uint64_t tried, uint64_t *decision_out, char *why,
			   size_t why_size)
{
	struct place *place = broker_place(broker);
	struct sched *sched = place_sched_now(place);
	struct sched_request request;
	struct sched_move move;

	*decision_out = 0;
	if (!sched_move_best(sched, client->mirror.id, tried, place_now(place), &move, why, why_size))
		return NULL;
	request_of(client, &request);
	*decision_out = sched_move_decided(sched, &move, "drain", &request, place_now(place));
	return broker_server(broker, move.node);
}

void place_leave_ended(struct broker *broker, uint64_t decision, uint32_t session, const struct move_news *news)
{
	ended(broker_place(broker), decision, session, news);
}
