/* SPDX-License-Identifier: Apache-2.0 */
/* A client's session moves to another worker: the course of it. Control thread; see move.h. */
#include "broker/local/move_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "broker/lib/clock.h"
#include "broker/lib/log.h"
#include "broker/local/broker.h"

#define MOVE_STUCK_NS (60 * NS_PER_S)  /* nothing has moved: modules may take long to load */
#define MOVE_AGAIN_NS (600 * NS_PER_S) /* nor has anything that is done again ended: a kernel may take long */

/* ---- the end ---- */

static void move_free(struct loop_post *post)
{
	struct move *move = (struct move *)((char *)post - offsetof(struct move, post));

	free(move->queue);
	replay_free(move->replay);
	if (move->mirror.shm.base)
		shm_close(&move->mirror.shm);
	pthread_mutex_destroy(&move->seen_lock);
	free(move);
}

/* Any thread. */
static void move_mirror_free(struct mirror *mirror)
{
	struct move *move = move_of(mirror);

	move->post.run = move_free;
	loop_post(move->loop, &move->post);
}

static void move_leave(struct move *move)
{
	saver_free(move->saver);
	loader_free(move->loader);
	move->saver = NULL;
	move_new_leave(move);
}

/* ---- news ---- */

const char *const move_phase_names[MOVE_PHASES] = {
	[MOVE_PHASE_REACH] = "reach", [MOVE_PHASE_CHECK] = "check", [MOVE_PHASE_COPY] = "copy", [MOVE_PHASE_LAST] = "last",
	[MOVE_PHASE_SWITCH] = "switch",
};

static void news_of(const struct move *move, struct move_news *news)
{
	uint64_t now = clock_ns();

	static const char *const ways[] = {
		[WAY_NONE] = "through this machine", [WAY_OPEN] = "node to node", [WAY_CLOSING] = "node to node", [WAY_CLOSED] = "node to node",
	};
	const struct move_way *way = &move->way;
	uint64_t held = move->held_ns ? move->bytes - move->bytes_free : 0;
	uint64_t bytes = move->bytes - way->cached;

	*news = (struct move_news){
		.why = "", .pid = move->client->pid, .program = move->client->program, .from = move->from_name, .to = move->to_name,
		.phase = move->phase, .held = move->held_ns != 0, .bytes = bytes, .avoided = move->avoided,
		.direct = way->bytes - way->cached, .cached = way->cached, .way = ways[way->state] ? ways[way->state] : "", .way_why = way->why,
		.bytes_held = held < bytes ? held : bytes, .memory = move->memory, .left = move->left,
		.pause_ns = !move->held_ns ? 0 : (move->freed_ns ? move->freed_ns : now) - move->held_ns, .total_ns = now - move->begun_ns, .rounds = move->rounds,
		.commands = move->info.sequence,
	};
	memcpy(news->phase_ns, move->phase_ns, sizeof(news->phase_ns));
	news->phase_ns[move->phase] += now - move->phase_begun_ns;
}

static void news_tell(const struct move *move)
{
	struct move_news news;

	if (!move->hear)
		return;
	news_of(move, &news);
	move->hear(move->arg, &news);
}

void move_goes_to(struct move *move, enum move_phase phase)
{
	uint64_t now = clock_ns();

	move->phase_ns[move->phase] += now - move->phase_begun_ns;
	move->phase_begun_ns = now;
	move->phase = phase;
	log_debug("move: pid %d: %s", move->client->pid, move_phase_names[phase]);
	news_tell(move);
}

/* The newer checkpoint counts from now on, or it has failed, and the older one does. */
static void records_turn(struct client *client, bool done)
{
	pthread_mutex_lock(&client->deliver_lock);
	record_free(done ? client->record : client->record_next);
	if (done)
		client->record = client->record_next;
	client->record_next = NULL;
	pthread_mutex_unlock(&client->deliver_lock);
}

void move_over(struct move *move, bool done, const char *why)
{
	struct move_news news;

	if (move->stage == STAGE_OVER)
		return;
	news_of(move, &news);
	news.over = true;
	news.done = done;
	news.refused = move->refused;
	news.why = why;
	move->stage = STAGE_OVER;
	loop_timer_clear(move->loop, &move->timer);
	if (!done && move->on_link)
		link_send(move->link, LINK_DETACH, move->mirror.id, NULL, 0, NULL, 0);
	move_way_end(move);
	move_leave(move);
	if (!move->to)
		records_turn(move->client, done);
	move->client->move = NULL;
	client_direct_pages(move->client, true);
	/* Without a worker it waits on, for the one that it had or for another checkpoint. */
	if (!done && move->loader)
		client_waits(move->client, true);
	if (done && !move->to)
		log_info("checkpoint on %s: %" PRIu64 " bytes of memory, %" PRIu64 " written, %.1f ms held, %.2f s in all", move->from_name,
			 move->memory, move->bytes, (double)news.pause_ns / 1e6, (double)news.total_ns / 1e9);
	else if (done)
		log_info("move: %s to %s: %" PRIu64 " bytes of memory, %" PRIu64 " sent, of them %" PRIu64 " from node to node, and %" PRIu64
			 " cached there, %.1f ms held, %.2f s in all", move->from_name, move->to_name, move->memory, news.bytes, news.direct,
			 news.cached, (double)news.pause_ns / 1e6, (double)news.total_ns / 1e9);
	else
		log_warn("move: %s to %s: not done: %s", move->from_name, move->to ? move->to_name : "a file", why);
	if (move->hear)
		move->hear(move->arg, &news);
	mirror_put(&move->mirror);
}

void move_unheard(struct move *move)
{
	move->hear = NULL;
}

void move_failed(struct move *move, const char *format, ...)
{
	char why[MOVE_WHY_SIZE];
	va_list args;

	if (move->stage == STAGE_OVER)
		return;
	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	/* Whatever its servers make of that, which hear of it in their own time. */
	if (client_is_gone(move->client))
		snprintf(why, sizeof(why), "pid %d has ended meanwhile: there is nothing left of it that could be moved", move->client->pid);
	/* One that has no worker has no ring that would have to be given back. */
	if (!move->loader)
		client_mend(move->client);
	move_over(move, false, why);
}

void move_abandon(struct move *move, const char *why)
{
	move_over(move, false, why);
}

/* ---- rounds ---- */

/* When it has rested; every second all the same, for whoever hears of it. */
static void move_timer_set(struct move *move, uint64_t now)
{
	uint64_t next = now + NS_PER_S;

	if (move->stage == STAGE_REST && move->rest_ns > now && move->rest_ns < next)
		next = move->rest_ns;
	loop_timer_set(move->loop, &move->timer, next);
}

bool move_poll(struct move *move)
{
	struct client *client = move->client;
	uint64_t now = loop_now_ns(move->loop);
	bool any = move_queue_pump(move);

	if (move->stage == STAGE_OVER)
		return true;
	move_seen_tell(move);
	if (__atomic_load_n(&move->broken, __ATOMIC_ACQUIRE)) {
		move_failed(move, "%s sent a frame that can't be: is its gleamd of the same version as this one?", move->to_name);
		return true;
	}
	if (any)
		move->moved_ns = now;
	switch (move->stage) {
	case STAGE_LINK:
		if (move_new_look(move))
			return true;
		break;
	case STAGE_REST:
		/* What was said is with the new worker, or nearly, before more is asked for. */
		if (now < move->rest_ns || move_queue_is_long(move) || (move->last && !move_new_has_all(move)))
			break;
		/* The first contents are said by the way that there is, if there is one. */
		if (move->checked && !move_way_is_settled(move))
			break;
		move_old_take(move);
		return true;
	case STAGE_TAKE:
		/* Where its ring can't be taken it has been let go by a command. */
		client->held = client->held || client->direct || wire_can_fill(client->c2n.at);
		if (!client_ring_take(client))
			break;
		if (move->last && !move->drain_ns)
			move->drain_ns = now;
		if (move->last && client->direct && !move_direct_stand(move))
			return true;
		if (move->last) {
			move->held_ns = clock_ns() - (now - move->taken_ns);
			move->bytes_free = move->bytes;
		}
		move_old_ask(move);
		return true;
	case STAGE_WAIT:
		if (now < move->rest_ns)
			break;
		move_old_ask(move);
		return true;
	case STAGE_FILL:
		if (!client_ring_give(client))
			break;
		move->rest_ns += now;
		move->stage = STAGE_REST;
		move_timer_set(move, now);
		loop_nudge(move->loop);
		return true;
	case STAGE_DRAIN:
		if (!move->final) {
			if (move_queue_is_long(move))
				break;
			move_old_ask(move);
			return true;
		}
		/* Also the frames that came by bulk lanes. */
		if (!move_new_has_all(move) || client_bulk_seen(client) < move->bulk)
			break;
		/* Nobody else may write into the memory of what is about to be the client's. */
		if (move->to && !move_way_close(move))
			break;
		if (move->saver)
			move_save_end(move);
		else
			move_new_end(move);
		return true;
	case STAGE_AGAIN:
		if (move_again_poll(move))
			return true;
		break;
	case STAGE_PLAY:
		if (move->loading || move_queue_is_long(move))
			break;
		move_load_next(move);
		return true;
	case STAGE_ALIGN:
		/* Lanes of its old link may still have bytes of it, in a queue that is to be the new link's. */
		if (move->loader && __atomic_load_n(&client->mirror.refs, __ATOMIC_ACQUIRE) != 1)
			break;
		if (!wire_fill(&move->new, client->c2n.at) || move->new.tail != move->new.at)
			break;
		move_switch(move);
		return true;
	default:
		break;
	}
	return any;
}

static void move_timer(void *arg)
{
	struct move *move = arg;
	uint64_t now = loop_now_ns(move->loop);
	uint64_t stuck_ns = move->stage == STAGE_AGAIN ? MOVE_AGAIN_NS : MOVE_STUCK_NS;

	/* A file may be large, and its disk slow. */
	if (now - move->moved_ns > stuck_ns && move->stage != STAGE_REST && move->stage != STAGE_OPEN) {
		move_failed(move, "nothing happened for %u s%s%s; the logs of both servers' gleamd tell what they wait for", (unsigned)(stuck_ns / NS_PER_S),
			    move->to ? " on the way to " : "", move->to_name);
		return;
	}
	news_tell(move);
	if (now - move->moved_ns > NS_PER_S)
		log_debug("move: stage %d%s: %zu bytes wait; old ring at %" PRIu64 ", consumed %" PRIu64 "; new at %" PRIu64
			  ", consumed %" PRIu64 "; client at %" PRIu64 ", consumed %" PRIu64 "; bulk %" PRIu64 " of %" PRIu64,
			  move->stage, move->last ? ", the last" : "", move->queue_size - move->queue_at, move->client->wire.at,
			  move->client->wire.tail, move->new.at, move->new.tail, move->client->c2n.at, move->client->acknowledged,
			  client_bulk_seen(move->client), move->bulk);
	move_timer_set(move, now);
	loop_nudge(move->loop);
}

void move_link_lost(struct move *move, struct server *server, const char *why)
{
	if (move->stage != STAGE_OVER && move->to == server && move->on_link)
		move_failed(move, "the link to %s is lost: %s; try again when gleamctl servers tells that it is there", move->to_name, why);
}

/* ---- the beginning ---- */

static void move_begin(void *arg)
{
	struct move *move = arg;

	move->timer.fire = move_timer;
	loop_timer_set(move->loop, &move->timer, loop_now_ns(move->loop) + NS_PER_S);
	if (move->stage == STAGE_LINK)
		move_new_reach(move);
	else if (move->stage == STAGE_REST)
		move_goes_to(move, MOVE_PHASE_CHECK);
}

int move_may(const struct client *client, char *why, size_t why_size)
{
	if (client->state == CLIENT_DEAD) {
		snprintf(why, why_size, "pid %d has lost its GPU and can't have it back: %.150s; it has to be started again", client->pid, client->reason);
		return -ESRCH;
	}
	if (client->state != CLIENT_LIVE) {
		snprintf(why, why_size, "pid %d has no worker yet; try again when gleamctl clients tells that it is live", client->pid);
		return -ESRCH;
	}
	if (client->move) {
		snprintf(why, why_size, "pid %d is being moved already, saved or restored; gleamctl clients tells when it is live again", client->pid);
		return -EALREADY;
	}
	if (client->limited) {
		snprintf(why, why_size, "pid %d may use single devices (/dev/gleam<N>) alone, and gleamd was restarted since it was given "
			 "them: it stays until it is started again", client->pid);
		return -EOPNOTSUPP;
	}
	if (!client->on_link || client->resuming) {
		snprintf(why, why_size, "pid %d has no link to %s at the moment%s%.100s; %s", client->pid, server_name(client->server),
			 *client->reason ? ": " : "", client->reason,
			 client->saved.there ? "gleamctl restore lets it go on elsewhere, from its checkpoint" :
					       "try again when gleamctl clients tells that it is live");
		return -EAGAIN;
	}
	return 0;
}

struct move *move_new(struct broker *broker, struct client *client, struct server *to, int gpu, enum move_stage stage, move_hear *hear,
		      void *arg)
{
	struct move *move = calloc(1, sizeof(*move));

	if (!move || getrandom(move->token, sizeof(move->token), 0) != (ssize_t)sizeof(move->token)) {
		free(move);
		return NULL;
	}
	move->stage = stage;
	mirror_init(&move->mirror);
	pthread_mutex_init(&move->seen_lock, NULL);
	move->mirror.id = broker_session_take(broker);
	move->mirror.shm.fd = -1;
	move->mirror.free = move_mirror_free;
	move->mirror.deliver = move_deliver;
	move->mirror.room = move_room;
	move->mirror.is_move = true;
	move->broker = broker;
	move->loop = client->loop;
	move->client = client;
	move->from = client->server;
	move->to = to;
	move->gpu = gpu;
	snprintf(move->from_name, sizeof(move->from_name), "%s", server_name(client->server));
	snprintf(move->to_name, sizeof(move->to_name), "%s", to ? server_name(to) : "");
	move->hear = hear;
	move->arg = arg;
	move->begun_ns = move->phase_begun_ns = clock_ns();
	move->moved_ns = loop_now_ns(move->loop);
	move->timer.arg = move;
	client->move = move;
	client_direct_pages(client, false);
	/* From the loop, so that hear() is never called from here. */
	move->timer.fire = move_begin;
	loop_timer_set(move->loop, &move->timer, loop_now_ns(move->loop));
	return move;
}

int move_start(struct broker *broker, struct client *client, struct server *to, int gpu, move_hear *hear, void *arg, char *why,
	       size_t why_size)
{
	int err = move_may(client, why, why_size);

	if (err)
		return err;
	if (!move_new(broker, client, to, gpu, STAGE_LINK, hear, arg)) {
		snprintf(why, why_size, "gleamd has no memory for it");
		return -ENOMEM;
	}
	log_info("pid %d (%s): is moved from %s to %s", client->pid, client->program, server_name(client->server), server_name(to));
	return 0;
}

bool move_needs_link(const struct move *move)
{
	return move->stage != STAGE_SAVE;
}

const char *move_state(const struct move *move)
{
	return !move->to ? "live" : move->loader ? "restoring" : "moving";
}
