/* SPDX-License-Identifier: Apache-2.0 */
/* Everybody leaves a server. Control thread; see drain.h. */
#include "broker/local/drain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/clock.h"
#include "broker/lib/log.h"
#include "broker/local/broker.h"
#include "broker/local/client_private.h"
#include "broker/local/place.h"
#include "broker/local/place_move.h"

#define DRAIN_LOOK_NS (100 * NS_PER_MS) /* between two looks while somebody is waited for */
#define DRAIN_TELL_NS (1 * NS_PER_S)	/* and between two words about it */

/* FREE: nobody. NEXT: a server is looked for. MOVING. */
enum leaver_state { LEAVER_FREE, LEAVER_NEXT, LEAVER_MOVING };

/* A program on its way out. */
struct leaver {
	struct drain *drain;
	enum leaver_state state;
	struct client *client; /* compared with those that are there before it is used in NEXT */
	uint32_t session;
	uint64_t tried; /* bit per server */
	uint64_t decision;
	char why[MOVE_WHY_SIZE]; /* of the last try */
};

struct drain {
	struct broker *broker;
	struct loop *loop;
	struct server *server;
	uint64_t number; /* clients that have been seen to have it */
	drain_hear *hear; /* NULL: nobody hears */
	void *arg;
	struct loop_timer timer;
	struct leaver leavers[MOVES_MAX];
	uint64_t told_ns;
	unsigned moved;
	unsigned stay;
};

static uint64_t last_number;

static void drain_look(struct drain *drain, uint64_t in_ns)
{
	loop_timer_set(drain->loop, &drain->timer, loop_now_ns(drain->loop) + in_ns);
}

static void tell_stay(struct drain *drain, const struct client *client, const char *why)
{
	struct move_news news = {
		.over = true, .why = why, .pid = client->pid, .program = client->program, .from = server_name(drain->server), .to = "",
	};

	drain->stay++;
	log_warn("pid %d (%s): stays on %s, which is drained: %s", client->pid, client->program, server_name(drain->server), why);
	if (drain->hear)
		drain->hear(drain->arg, &news);
}

static void drain_over(struct drain *drain)
{
	log_info("server %s: drained; %u programs were moved, %u stay", server_name(drain->server), drain->moved, drain->stay);
	loop_timer_clear(drain->loop, &drain->timer);
	if (drain->hear)
		drain->hear(drain->arg, NULL);
	free(drain);
}

/* Nobody hears, and no move of ours goes on. */
static bool drain_is_forgotten(const struct drain *drain)
{
	bool moving = false;

	for (unsigned i = 0; i < MOVES_MAX; i++)
		moving |= drain->leavers[i].state == LEAVER_MOVING;
	return !drain->hear && !moving;
}

static void leaver_hear(void *arg, const struct move_news *news)
{
	struct leaver *leaver = arg;
	struct drain *drain = leaver->drain;

	if (!news->over) {
		if (drain->hear)
			drain->hear(drain->arg, news);
		return;
	}
	place_leave_ended(drain->broker, leaver->decision, leaver->session, news);
	drain_look(drain, 0);
	leaver->state = LEAVER_FREE;
	if (news->done || leaver->client->state != CLIENT_LIVE) {
		/* Also one that has ended meanwhile is gone from there. */
		drain->moved += news->done;
		if (drain->hear && news->done)
			drain->hear(drain->arg, news);
	} else if (news->refused) {
		tell_stay(drain, leaver->client, news->why);
	} else {
		snprintf(leaver->why, sizeof(leaver->why), "%s", news->why);
		leaver->state = LEAVER_NEXT;
	}
	if (drain_is_forgotten(drain))
		drain_over(drain);
}

static bool client_is_there(const struct drain *drain, const struct client *client)
{
	for (unsigned i = 0; i < broker_client_count(drain->broker); i++)
		if (broker_client(drain->broker, i) == client)
			return client->drain == drain->number && client->state == CLIENT_LIVE && client->server == drain->server;
	return false;
}

/* Where the program has other GPUs: two of its own on one server might be the same one. */
static uint64_t siblings_there(const struct drain *drain, struct client *client)
{
	struct client *sessions[MOVE_SESSIONS_MAX];
	unsigned count = move_ask_sessions(drain->broker, client, sessions);
	uint64_t there = 0;

	for (unsigned i = 0; i < count; i++)
		if (sessions[i] != client && sessions[i]->server)
			there |= 1ull << place_server_index(broker_place(drain->broker), sessions[i]->server);
	return there;
}

/* The best of the servers that it hasn't been tried on, one where it has no other GPUs if there is any. */
static struct server *leaver_target(struct leaver *leaver, char *why, size_t why_size)
{
	struct broker *broker = leaver->drain->broker;
	struct client *client = leaver->client;
	uint64_t there = siblings_there(leaver->drain, client);
	struct server *to = NULL;

	if (there & ~leaver->tried)
		to = place_leave(broker, client, leaver->tried | there, &leaver->decision, why, why_size);
	return to ? to : place_leave(broker, client, leaver->tried, &leaver->decision, why, why_size);
}

/* To the best of the servers that it hasn't been tried on. */
static void leaver_next(struct leaver *leaver)
{
	struct drain *drain = leaver->drain;
	struct client *client = leaver->client;
	char why[MOVE_WHY_SIZE] = "";
	struct server *to;
	int err;

	if (!client_is_there(drain, client)) {
		leaver->state = LEAVER_FREE;
		return;
	}
	to = client->kernel && *client->kernel->server ? NULL : leaver_target(leaver, why, sizeof(why));
	if (!to) {
		leaver->state = LEAVER_FREE;
		if (client->kernel && *client->kernel->server)
			snprintf(why, sizeof(why), "it has come by a device of that server, and may use no other");
		tell_stay(drain, client, *leaver->why ? leaver->why : why);
		return;
	}
	leaver->session = client->mirror.id;
	leaver->tried |= 1ull << place_server_index(broker_place(drain->broker), to);
	err = move_ask(drain->broker, client, to, -1, leaver_hear, leaver, why, sizeof(why));
	if (!err) {
		leaver->state = LEAVER_MOVING;
		return;
	}

	/* Not to any server, as things are. */
	struct move_news news = { .over = true, .why = why, .refused = true };

	place_leave_ended(drain->broker, leaver->decision, leaver->session, &news);
	leaver->state = LEAVER_FREE;
	tell_stay(drain, client, why);
}

static void tell_wait(struct drain *drain, const struct client *client)
{
	struct move_news news = { .why = "", .pid = client->pid, .program = client->program, .from = server_name(drain->server), .to = "" };

	drain->told_ns = loop_now_ns(drain->loop);
	if (drain->hear)
		drain->hear(drain->arg, &news);
}

/* One that is still there and hasn't been seen to. @later: who will be, when it has come, is there again, or somebody else's move is over. */
static struct client *client_next(const struct drain *drain, struct client **later_out)
{
	for (unsigned i = 0; i < broker_client_count(drain->broker); i++) {
		struct client *client = broker_client(drain->broker, i);

		if (client->server != drain->server || client->drain == drain->number)
			continue;
		if (client->state == CLIENT_OPENING || (client->state == CLIENT_LIVE && (client->move || client->lost_ns)))
			*later_out = client;
		else if (client->state == CLIENT_LIVE)
			return client;
	}
	return NULL;
}

static void drain_timer(void *arg)
{
	struct drain *drain = arg;
	struct client *later = NULL;
	bool busy = false, again = false;

	for (unsigned i = 0; i < MOVES_MAX; i++) {
		struct leaver *leaver = &drain->leavers[i];
		struct client *client = NULL;

		if (leaver->state == LEAVER_FREE && drain->hear)
			client = client_next(drain, &later);
		if (client) {
			client->drain = drain->number;
			*leaver = (struct leaver){ .drain = drain, .state = LEAVER_NEXT, .client = client };
		}
		if (leaver->state == LEAVER_NEXT && move_ask_has_room(drain->broker)) {
			leaver_next(leaver);
			/* Another one may have its place. */
			again |= leaver->state == LEAVER_FREE;
		}
		busy |= leaver->state != LEAVER_FREE;
	}
	if (!busy && later && loop_now_ns(drain->loop) - drain->told_ns >= DRAIN_TELL_NS)
		tell_wait(drain, later);
	if (busy || later || again)
		drain_look(drain, again ? 0 : DRAIN_LOOK_NS);
	else
		drain_over(drain);
}

struct drain *drain_start(struct broker *broker, struct server *server, drain_hear *hear, void *arg)
{
	struct drain *drain = calloc(1, sizeof(*drain));

	if (!drain)
		return NULL;
	drain->broker = broker;
	drain->loop = broker_loop(broker);
	drain->server = server;
	drain->number = ++last_number;
	drain->hear = hear;
	drain->arg = arg;
	drain->timer.fire = drain_timer;
	drain->timer.arg = drain;
	drain_look(drain, 0);
	return drain;
}

void drain_unheard(struct drain *drain)
{
	drain->hear = NULL;
	if (drain_is_forgotten(drain))
		drain_over(drain);
}
