/* SPDX-License-Identifier: Apache-2.0 */
/* A process on the local socket: its birth, its end in steps, and how it looks from outside. Control thread; see client.h. */
#include "broker/local/client_private.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/fd.h"
#include "broker/lib/log.h"
#include "broker/lib/slot.h"
#include "broker/local/broker.h"
#include "broker/local/move.h"
#include "gen/api.h"

#define CLIENT_GREET_NS 10000000000ull /* a connection that says nothing is closed */

/* ---- the end of a client: in steps, as operations end ---- */

/* No lane holds the memory any more. Control thread. */
static void client_freed(struct loop_post *post)
{
	struct client *client = (struct client *)((char *)post - offsetof(struct client, post));

	broker_client_freed(client->broker, client);
	shm_close(&client->mirror.shm);
	fd_close(&client->doorbell);
	fd_close(&client->pages);
	fd_close(&client->kernel_memory);
	fd_close(&client->fd);
	pthread_mutex_destroy(&client->deliver_lock);
	while (client->out_first) {
		struct packet *packet = client->out_first;

		client->out_first = packet->next;
		free(packet);
	}
	cache_client_free(client->cache);
	verdict_parts_drop(&client->verdict);
	record_free(client->record);
	record_free(client->record_next);
	free(client->spans);
	free(client->kernel);
	free(client->packet);
	free(client);
}

/* Any thread. */
static void client_mirror_free(struct mirror *mirror)
{
	struct client *client = (struct client *)mirror;

	client->post.run = client_freed;
	loop_post(client->loop, &client->post);
}

static void client_mirror_room(struct mirror *mirror)
{
	loop_nudge(((struct client *)mirror)->loop);
}

void client_settle(struct client *client)
{
	if (client->state != CLIENT_GONE || client->receiving || client->sending || client->bell_armed || client->settled)
		return;
	client->settled = true;
	mirror_put(&client->mirror);
}

/* The session stays; it may be continued on another link. */
void client_unlink(struct client *client)
{
	cache_client_left(client->cache);
	link_mirror_remove(client->link, &client->mirror);
	client->on_link = false;
	client->resuming = false;
	client->link = NULL;
}

/* Off the link for good: the node is told, lanes drop what they have. */
void client_leave(struct client *client, bool tell)
{
	if (client->move) {
		char why[sizeof(client->reason) + 64];

		if (client->state == CLIENT_DEAD)
			snprintf(why, sizeof(why), "the program's session has ended: %s", client->reason);
		else
			snprintf(why, sizeof(why), "pid %d has ended meanwhile: there is nothing left of it that could be moved", client->pid);
		move_abandon(client->move, why);
	}
	client->taken = client->held = client->mending = false;
	if (!client->server)
		return;
	server_want_forget(client->server, &client->waiter);
	if (client->on_link) {
		__atomic_store_n(&client->mirror.dead, true, __ATOMIC_RELEASE);
		/* A token that only the client's memory says may be another's. */
		if (tell && client->resuming && client->owned)
			link_send(client->link, LINK_DETACH, 0, client->token, sizeof(client->token), NULL, 0);
		else if (tell && !client->resuming)
			link_send(client->link, LINK_DETACH, client->mirror.id, NULL, 0, NULL, 0);
		if (tell && client->owned)
			server_left(client->server, client->token);
		client_unlink(client);
	} else if (client->lost_ns && client->owned) {
		server_orphan(client->server, client->token);
	}
	client->lost_ns = 0;
}

void client_end(struct client *client, enum session_end end, const char *why)
{
	if (client->state != CLIENT_LIVE)
		return;
	log_info("pid %d (%s): session ended: %s", client->pid, client->program, why);
	if (client->placed)
		place_client_over(broker_place(client->broker), client, false);
	client->state = CLIENT_DEAD;
	snprintf(client->reason, sizeof(client->reason), "%s", why);
	loop_timer_clear(client->loop, &client->timer);
	loop_timer_clear(client->loop, &client->retry);
	loop_timer_clear(client->loop, &client->pace_timer);
	loop_timer_clear(client->loop, &client->again);
	client_ring(client);
	client_leave(client, true);
	session_end_post(&client->mirror.shm, end);
}

void client_wait_until(struct client *client, uint64_t until_ns)
{
	client->wait_until_ns = until_ns;
	loop_timer_set(client->loop, &client->timer, until_ns);
}

const char *client_lasts(struct client *client)
{
	const char *why;

	if (!client->saved.there)
		return "it has no checkpoint";
	if (client->saved.sequence == client->seq && client->saved.position == client->c2n.at && client->acknowledged == client->c2n.at)
		return NULL;
	if (!client->record)
		return "nothing is known of what it has done since";
	pthread_mutex_lock(&client->deliver_lock);
	why = record_trouble(client->record);
	if (!why && !record_ends_at(client->record, client->seq, client->c2n.at))
		why = "its link was lost while commands were sent again";
	pthread_mutex_unlock(&client->deliver_lock);
	return why;
}

bool client_hold(struct client *client, const char *why)
{
	uint64_t hold_ns, now = loop_now_ns(client->loop);
	const char *lasts;

	if (client->state != CLIENT_LIVE || client->direct || !client->saved.there)
		return false;
	lasts = client_lasts(client);
	if (lasts) {
		log_warn("pid %d (%s): its checkpoint can't be restored: %s", client->pid, client->program, lasts);
		return false;
	}
	hold_ns = broker_conf(client->broker)->hold_ms * NS_PER_MS;
	if (!hold_ns)
		return false;
	if (client->move)
		move_abandon(client->move, "its worker is gone");
	client->taken = client->held = client->mending = false;
	server_want_forget(client->server, &client->waiter);
	loop_timer_clear(client->loop, &client->again);
	if (client->on_link)
		client_unlink(client);
	if (!client->lost_ns)
		client->lost_ns = now;
	client->holds = true;
	snprintf(client->reason, sizeof(client->reason), "%s", why);
	client_wait_until(client, now + hold_ns);
	log_warn("pid %d (%s): %s; its checkpoint may be restored within %.0f s (gleamctl restore %d)", client->pid, client->program, why,
		 (double)hold_ns / (double)NS_PER_S, client->pid);
	return true;
}

void client_waits(struct client *client, bool on)
{
	uint64_t now = loop_now_ns(client->loop);

	if (!on) {
		loop_timer_clear(client->loop, &client->timer);
		loop_timer_clear(client->loop, &client->again);
		server_want_forget(client->server, &client->waiter);
		return;
	}
	if (client->state != CLIENT_LIVE || client->on_link)
		return;
	client_wait_until(client, client->wait_until_ns > now ? client->wait_until_ns : now + NS_PER_S);
	if (!client->holds)
		loop_timer_set(client->loop, &client->again, now);
}

void client_found(struct client *client)
{
	loop_timer_clear(client->loop, &client->timer);
	loop_timer_clear(client->loop, &client->again);
	client->holds = client->resuming = false;
	client->on_link = client->owned = true;
	client->lost_ns = 0;
	client->reason[0] = 0;
}

/* Which functions the program called, for whoever reads the log: nobody can ask any more. */
static void client_log_calls(const struct client *client)
{
	char line[768];
	size_t at = 0;

	if (!log_on(LOG_LEVEL_DEBUG) || !client->mirror.shm.base)
		return;
	for (uint32_t i = 0; i < API_COUNT && i < SESSION_API_MAX; i++) {
		uint64_t calls = shm_count(&client->mirror.shm, i)->calls;

		if (calls)
			at += (size_t)snprintf(line + at, sizeof(line) - at, " %s=%" PRIu64, api_names[i], calls);
		/* A name and a number never fill the last 128 bytes. */
		if (at && (at > sizeof(line) - 128 || i == API_COUNT - 1)) {
			log_debug("pid %d: calls%s", client->pid, line);
			at = 0;
		}
	}
}

/* @tell: its socket ends now; else when nothing of ours touches its memory any more, since another daemon may be waiting for it. */
static void client_close(struct client *client, bool tell)
{
	client->state = CLIENT_GONE;
	client_ring(client);
	loop_timer_clear(client->loop, &client->timer);
	loop_timer_clear(client->loop, &client->retry);
	loop_timer_clear(client->loop, &client->pace_timer);
	loop_timer_clear(client->loop, &client->again);
	/* Ends the operations that are in flight. */
	if (tell)
		shutdown(client->fd, SHUT_RDWR);
	else if (client->sending)
		loop_cancel(client->loop, client->send_tag);
	if (client->receiving)
		loop_cancel(client->loop, client->recv_tag);
	if (client->bell_armed)
		ring_wake_fd(client->doorbell);
	client_settle(client);
}

bool client_is_gone(const struct client *client)
{
	struct pollfd end = { .fd = client->fd };

	return poll(&end, 1, 0) > 0 && (end.revents & (POLLHUP | POLLERR));
}

void client_gone(struct client *client)
{
	if (client->state == CLIENT_GONE)
		return;
	client_log_calls(client);
	if (client->asks_gone)
		client->asks_gone(client->asks);
	client->asks_gone = NULL;
	if (client->placed)
		place_client_over(broker_place(client->broker), client, client->state == CLIENT_LIVE && !client->adopted);
	if (client->state == CLIENT_LIVE)
		log_debug("pid %d (%s): gone", client->pid, client->program);
	client_leave(client, true);
	/* One that has ended was told why. */
	if (client->mirror.shm.base && client->state != CLIENT_DEAD)
		session_end_post(&client->mirror.shm, END_CLIENT_GONE);
	client_close(client, true);
}

/* A program goes on with the daemon that comes after us: nobody is told that anything has ended. */
static bool client_hand_over(struct client *client)
{
	/* It has nothing of ours yet, and asks the next one. */
	if (client->state == CLIENT_OPENING || client->state == CLIENT_RETURNING) {
		client_leave(client, true);
		client_close(client, true);
		return true;
	}
	if (client->state != CLIENT_LIVE || client->direct || broker_conf(client->broker)->grace_ms == 0)
		return false;
	log_info("pid %d (%s): session %u waits for the next gleamd", client->pid, client->program, client->mirror.id);
	if (client->asks)
		move_unheard(client->asks);
	client->asks = NULL;
	if (client->placed)
		place_client_over(broker_place(client->broker), client, false);
	if (client->move)
		move_abandon(client->move, "gleamd is being stopped");
	server_want_forget(client->server, &client->waiter);
	if (client->on_link) {
		/* What lanes deliver until they look is counted as always. */
		__atomic_store_n(&client->mirror.dead, true, __ATOMIC_RELEASE);
		client_unlink(client);
	}
	client->lost_ns = 0;
	client_close(client, false);
	return true;
}

void client_stop(struct client *client, bool next)
{
	if (next && client_hand_over(client))
		return;
	if (client->state == CLIENT_OPENING)
		client_refuse(client, END_SHUTDOWN, "gleamd is being stopped");
	client_end(client, END_SHUTDOWN, "gleamd is being stopped");
	if (client->state != CLIENT_LEAVING)
		client_gone(client);
}

/* ---- the doorbell ---- */

static void client_bell_done(void *arg, int res, uint32_t flags);

void client_bell_arm(struct client *client)
{
	struct io_uring_sqe *sqe = loop_sqe(client->loop);

	io_uring_prep_read(sqe, client->doorbell, &client->bell_value, sizeof(client->bell_value), 0);
	loop_tag(client->loop, sqe, client_bell_done, client);
	client->bell_armed = true;
}

static void client_bell_done(void *arg, int res, uint32_t flags)
{
	struct client *client = arg;

	client->bell_armed = false;
	if (client->state == CLIENT_GONE) {
		client_settle(client);
		return;
	}
	if (res < 0 && res != -EINTR) {
		/* A client that made the eventfd non-blocking would have us spin. */
		client_end(client, END_PROTOCOL, "its doorbell doesn't work");
		return;
	}
	client_bell_arm(client);
}

/* ---- birth ---- */

/* It may send again: the next round looks. */
static void client_paced(void *arg)
{
}

struct client *client_new(struct broker *broker, struct loop *loop, int fd, uint32_t session)
{
	struct client *client = calloc(1, sizeof(*client));
	struct ucred cred = { .pid = -1, .uid = (uid_t)-1 };
	socklen_t size = sizeof(cred);

	if (!client)
		goto close_fd;
	/* A packet's pages are touched only as far as packets are long. */
	client->packet = malloc(LOCAL_MSG_MAX);
	if (!client->packet)
		goto free_client;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
		goto free_client;
	mirror_init(&client->mirror);
	client->mirror.id = client->born_as = session;
	client->mirror.shm.fd = -1;
	client->mirror.deliver = client_deliver;
	client->mirror.room = client_mirror_room;
	client->mirror.free = client_mirror_free;
	client->broker = broker;
	client->loop = loop;
	client->fd = fd;
	client->doorbell = -1;
	client->pages = -1;
	client->kernel_memory = -1;
	client->pid = cred.pid;
	client->uid = cred.uid;
	client->out_last = &client->out_first;
	client->born_ns = loop_now_ns(loop);
	client->timer.fire = client_timer;
	client->timer.arg = client;
	client->retry.fire = client_settled;
	client->pace_timer.fire = client_paced;
	client->pace_timer.arg = client;
	client->retry.arg = client;
	client->ring_flush.run = client_ring_run;
	client->again.fire = client_again;
	client->again.arg = client;
	pthread_mutex_init(&client->deliver_lock, NULL);
	strcpy(client->program, "?");
	loop_timer_set(loop, &client->timer, client->born_ns + CLIENT_GREET_NS);
	client_recv_arm(client);
	return client;

free_client:
	free(client->packet);
	free(client);
close_fd:
	close(fd);
	return NULL;
}

int client_kernel_set(struct client *client, const struct client_kernel *kernel)
{
	client->pid = kernel->pid;
	client->uid = kernel->uid;
	client->kernel_memory = kernel->memory;
	client->doorbell = kernel->doorbell;
	client->limited = kernel->limited;
	if (!*kernel->server && !kernel->refused)
		return 0;
	client->kernel = malloc(sizeof(*client->kernel));
	/* Without it the client would have rights that it hasn't. */
	if (!client->kernel)
		return -ENOMEM;
	*client->kernel = *kernel;
	return 0;
}

/* ---- views ---- */

bool client_is_sibling(const struct client *client, const struct client *of)
{
	return client != of && client->pid == of->pid && client->pid > 0 && client->uid == of->uid &&
	       client->state == CLIENT_LIVE && of->state == CLIENT_LIVE;
}

bool client_has_sibling(const struct client *client)
{
	for (unsigned i = 0; i < broker_client_count(client->broker); i++)
		if (client_is_sibling(broker_client(client->broker, i), client))
			return true;
	return false;
}

struct baton_name client_baton_name(const struct client *client)
{
	return (struct baton_name){
		.server = server_name(client->server), .program = client->program, .settings = client->settings, .token = client->token,
	};
}

uint32_t client_session(const struct client *client)
{
	return client->mirror.id;
}

uint32_t client_born_as(const struct client *client)
{
	return client->born_as;
}

void client_count(const struct client *client, uint32_t api, struct api_count *count_out)
{
	memset(count_out, 0, sizeof(*count_out));
	if (client->mirror.shm.base)
		*count_out = *shm_count(&client->mirror.shm, api);
}

void client_times(const struct client *client, uint32_t api, uint32_t times_out[SESSION_TIMES])
{
	memset(times_out, 0, SESSION_TIMES * sizeof(*times_out));
	if (client->mirror.shm.base)
		memcpy(times_out, shm_times(&client->mirror.shm, api), SESSION_TIMES * sizeof(*times_out));
}

bool client_sums(const struct client *client, struct api_count *sums_out)
{
	struct api_count sums = { 0 };

	if (!client->mirror.shm.base)
		return false;
	for (uint32_t i = 0; i < SESSION_API_MAX; i++) {
		const struct api_count *count = shm_count(&client->mirror.shm, i);

		sums.calls += count->calls;
		sums.bytes += count->bytes;
		sums.trips += count->trips;
		sums.waited_ns += count->waited_ns;
	}
	*sums_out = sums;
	return true;
}

bool client_view(const struct client *client, struct client_view *view_out)
{
	static const char *const states[] = { [CLIENT_OPENING] = "opening", [CLIENT_LIVE] = "live", [CLIENT_DEAD] = "dead" };
	struct client_view view = { .pid = client->pid, .uid = client->uid, .program = client->program,
				    .reason = client->reason, .direct = client->direct, .sent = client->sent,
				    .received = __atomic_load_n(&client->received, __ATOMIC_RELAXED) };

	if (client->state != CLIENT_OPENING && client->state != CLIENT_LIVE && client->state != CLIENT_DEAD)
		return false;
	view.server = client->server ? server_name(client->server) : "";
	view.state = client->move ? move_state(client->move) : client->holds ? "held" : client->lost_ns ? "reconnecting" :
		     states[client->state];
	view.age_ns = loop_now_ns(client->loop) - client->born_ns;
	view.pace = client->pace;
	if (client->mirror.shm.base) {
		const struct session_header *hdr = shm_header(&client->mirror.shm);
		uint64_t queued = hdr->c2n.head - (client->direct ? hdr->c2n.tail : client->acknowledged);
		uint64_t up = hdr->up_head - (client->direct ? hdr->up_tail : client->up_tail);
		uint64_t lap = hdr->up_head % SESSION_UP_SIZE;
		struct api_count sums = { 0 };

		client_sums(client, &sums);
		view.calls = sums.calls;
		view.bytes = sums.bytes;
		view.round_trips = sums.trips;
		view.waited_ns = sums.waited_ns;
		/*
		 * What it wrote there may be nonsense. The end of the lap before may have been passed over: it doesn't count, and may be free
		 * already, so that another lap's worth is taken.
		 */
		view.inflight = (queued <= SESSION_C2N_SIZE ? queued : 0) + (up <= 2 * SESSION_UP_SIZE ? up < lap ? up : lap : 0);
		view.memory = hdr->memory;
	}
	*view_out = view;
	return true;
}
