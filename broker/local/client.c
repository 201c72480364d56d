/* SPDX-License-Identifier: Apache-2.0 */
/* A process on the local socket: its packets, the life of its session. Control thread; see client.h. */
#include "broker/local/client_private.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/fd.h"
#include "broker/lib/hash.h"
#include "broker/lib/log.h"
#include "broker/lib/slot.h"
#include "broker/local/broker.h"
#include "broker/local/control.h"
#include "broker/local/move.h"
#include "broker/local/route.h"
#include "broker/node/node.h"
#include "gen/api.h"

#define CLIENT_OPEN_NS	2700000000ull /* without a link by then it is told why there is no session, within three seconds */
#define CLIENT_SEAT_NS	(LOCAL_OPEN_MS_MAX * NS_PER_MS) /* with one: the node is alive, and says itself when a worker fails */
#define CLIENT_AGAIN_NS 200000000ull  /* between two tries to get a lost link back: each has a time limit of its own */
#define CLIENT_ROOM_NS	(2400 * NS_PER_MS) /* servers that have no room are asked again so long: some reports, and a driver that frees */
#define CLIENT_LOOK_NS	(400 * NS_PER_MS)
#define CLIENT_RELINK_NS (50 * NS_PER_MS) /* after a link that was lost under clients that attach */
#define CLIENT_SETTLE_NS (10 * NS_PER_MS) /* to look again whether the first reports have come */
#define CLIENT_GREET_NS 10000000000ull /* a connection that says nothing is closed */

static void client_recv_arm(struct client *client);
static void client_send_next(struct client *client);

/* ---- the end of a client: in steps, as operations end ---- */

/* No lane holds the memory any more. Control thread. */
static void client_freed(struct loop_post *post)
{
	struct client *client = (struct client *)((char *)post - offsetof(struct client, post));

	broker_client_freed(client->broker, client);
	shm_close(&client->mirror.shm);
	fd_close(&client->doorbell);
	fd_close(&client->kernel_memory);
	fd_close(&client->fd);
	pthread_mutex_destroy(&client->deliver_lock);
	while (client->out_first) {
		struct packet *packet = client->out_first;

		client->out_first = packet->next;
		free(packet);
	}
	cache_client_free(client->cache);
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

static void client_settle(struct client *client)
{
	if (client->state != CLIENT_GONE || client->receiving || client->sending || client->bell_armed || client->settled)
		return;
	client->settled = true;
	mirror_put(&client->mirror);
}

/* From its first link to its end, if its program has it so (GLEAM_OFF=spin). */
void client_spin(struct client *client, bool forbid)
{
	if (!(client->mirror.off & OFF_SPIN) || client->forbids_spin == forbid)
		return;
	client->forbids_spin = forbid;
	loop_spin_forbid(client->loop, forbid);
}

/* The session stays; it may be continued on another link. */
static void client_unlink(struct client *client)
{
	cache_client_left(client->cache);
	link_mirror_remove(client->link, &client->mirror);
	client->on_link = false;
	client->resuming = false;
	client->link = NULL;
}

/* Off the link for good: the node is told, lanes drop what they have. */
static void client_leave(struct client *client, bool tell)
{
	client_spin(client, false);
	if (client->move)
		move_abandon(client->move, "the program's session has ended");
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
	client_leave(client, true);
	session_end_post(&client->mirror.shm, end);
}

/* It waits without a link, until then. */
static void client_wait_until(struct client *client, uint64_t until_ns)
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
	client_spin(client, false);
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

/* ---- packets out ---- */

static void client_send_done(void *arg, int res, uint32_t flags)
{
	struct client *client = arg;
	struct packet *packet = client->out_first;

	client->sending = false;
	client->out_first = packet->next;
	if (!client->out_first)
		client->out_last = &client->out_first;
	free(packet);
	if (res < 0 && client->state != CLIENT_GONE) {
		client_gone(client);
		return;
	}
	if (client->state == CLIENT_GONE)
		client_settle(client);
	else if (client->out_first)
		client_send_next(client);
	else if (client->state == CLIENT_LEAVING)
		client_gone(client);
}

static void client_send_next(struct client *client)
{
	struct packet *packet = client->out_first;
	struct io_uring_sqe *sqe = loop_sqe(client->loop);

	io_uring_prep_sendmsg(sqe, client->fd, &packet->msg, MSG_NOSIGNAL);
	client->send_tag = loop_tag(client->loop, sqe, client_send_done, client);
	client->sending = true;
}

int client_packet(struct client *client, const void *bytes, size_t size, const int *fds, unsigned fd_count)
{
	struct packet *packet;

	if (client->state == CLIENT_GONE || client->state == CLIENT_LEAVING)
		return -EPIPE;
	packet = calloc(1, sizeof(*packet) + size);
	if (!packet)
		return -ENOMEM;
	memcpy(packet->bytes, bytes, size);
	packet->iov = (struct iovec){ .iov_base = packet->bytes, .iov_len = size };
	packet->msg = (struct msghdr){ .msg_iov = &packet->iov, .msg_iovlen = 1 };
	if (fd_count) {
		struct cmsghdr *cmsg = (struct cmsghdr *)(void *)packet->control;

		packet->msg.msg_control = packet->control;
		packet->msg.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(cmsg), fds, fd_count * sizeof(int));
	}
	*client->out_last = packet;
	client->out_last = &packet->next;
	if (!client->sending)
		client_send_next(client);
	return 0;
}

/* The answer to LOCAL_OPEN that isn't a session; then the socket closes. */
void client_refuse(struct client *client, enum session_end end, const char *why)
{
	uint8_t bytes[LINK_TEXT_MAX + 64] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));

	if (client->state != CLIENT_OPENING && client->state != CLIENT_NEW && client->state != CLIENT_RETURNING)
		return;
	log_warn("pid %d (%s) is refused: %s", client->pid, client->program, why);
	client_leave(client, true);
	put_u32(&w, LOCAL_REFUSED);
	put_u32(&w, end);
	put_str(&w, why);
	loop_timer_clear(client->loop, &client->timer);
	loop_timer_clear(client->loop, &client->retry);
	loop_timer_clear(client->loop, &client->again);
	loop_timer_clear(client->loop, &client->pace_timer);
	if (client_packet(client, bytes, w.at, NULL, 0)) {
		client_gone(client);
		return;
	}
	client->state = CLIENT_LEAVING;
}

/* ---- opening a session ---- */

static void client_try(struct client *client);

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

static int client_memory_make(struct client *client)
{
	int err;

	if (client->kernel_memory >= 0) {
		int fd = fcntl(client->kernel_memory, F_DUPFD_CLOEXEC, 0);

		err = fd < 0 ? -errno : shm_map(&client->mirror.shm, fd, NULL); /* takes the descriptor */
		if (err)
			return err;
		memcpy(shm_header(&client->mirror.shm)->protocol_hash, protocol_hash, PROTOCOL_HASH_SIZE);
		goto rings;
	}
	err = shm_make(&client->mirror.shm, protocol_hash, client->claimed_pid);
	if (err)
		return err;
	client->doorbell = eventfd(0, EFD_CLOEXEC);
	if (client->doorbell < 0)
		return -errno;
rings:
	shm_ring_c2n(&client->mirror.shm, &client->c2n);
	shm_ring_n2c(&client->mirror.shm, &client->n2c);
	shm_ring_overflow(&client->mirror.shm, &client->overflow_in);
	client->overflow_out = client->overflow_in;
	shm_header(&client->mirror.shm)->grace_ms = (uint32_t)broker_conf(client->broker)->grace_ms;
	client->acknowledged = 0;
	client->up_tail = 0;
	memset(&client->pieces, 0, sizeof(client->pieces));
	client->delta = client->seq = 0;
	memset(&client->seen, 0, sizeof(client->seen));
	return 0;
}

/* Another server has to do: what the last one saw of the session is gone. */
static void client_memory_drop(struct client *client)
{
	shm_close(&client->mirror.shm);
	if (client->kernel_memory < 0)
		fd_close(&client->doorbell);
}

static void client_attach(struct client *client)
{
	uint8_t bytes[2 * LINK_TEXT_MAX + CLIENT_SETTINGS_MAX] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));
	int err = client_memory_make(client);

	if (!err && getrandom(client->token, sizeof(client->token), 0) != (ssize_t)sizeof(client->token))
		err = -EIO;
	if (err) {
		client_memory_drop(client);
		client_refuse(client, END_REFUSED, "no memory for a session on this machine");
		return;
	}
	client->owned = true;
	client->link = server_link(client->server);
	client->on_link = true;
	client_spin(client, true);
	link_mirror_add(client->link, &client->mirror);
	put_u32(&w, (uint32_t)client->pid);
	put_u32(&w, (uint32_t)client->uid);
	put_u32(&w, (uint32_t)broker_conf(client->broker)->grace_ms);
	put_block(&w, client->token, sizeof(client->token));
	put_str(&w, client->program);
	put_str(&w, client->settings);
	assert(!w.fault);
	link_send(client->link, LINK_ATTACH, client->mirror.id, NULL, 0, bytes, w.at);
}

/* A live session looks for a link. */
static void client_again(void *arg)
{
	struct client *client = arg;

	if (client->state == CLIENT_RETURNING)
		client_return_look(client);
	else if (client->state == CLIENT_LIVE && !client->on_link && !client->waiter.waiting)
		server_want(client->server, &client->waiter);
}

/* The server that a live session waits for answers, or doesn't. */
static void client_server_back(struct client *client, int err)
{
	if (err) {
		loop_timer_set(client->loop, &client->again, loop_now_ns(client->loop) + CLIENT_AGAIN_NS);
		return;
	}
	client->link = server_link(client->server);
	client->on_link = true;
	client->resuming = true;
	link_mirror_add(client->link, &client->mirror);
	client_resume(client);
}

void client_server_done(struct server_waiter *waiter, struct server *server, int err, const char *why)
{
	struct client *client = (struct client *)((char *)waiter - offsetof(struct client, waiter));

	if (client->state == CLIENT_LIVE)
		client_server_back(client, err);
	if (client->state != CLIENT_OPENING)
		return;
	if (err) {
		route_failed(client->broker, &client->route, server, why);
		client->server = NULL;
		client_try(client);
		return;
	}
	client_attach(client);
}

static void client_settled(void *arg)
{
	struct client *client = arg;

	if (client->state == CLIENT_OPENING && !client->server)
		client_try(client);
}

static void client_try(struct client *client)
{
	char why[ROUTE_WHY_SIZE];
	struct server *server;

	if (!place_is_settled(broker_place(client->broker), client->route.wanted)) {
		loop_timer_set(client->loop, &client->retry, loop_now_ns(client->loop) + CLIENT_SETTLE_NS);
		return;
	}
	server = route_pick(client->broker, client, why, sizeof(why));
	/* What is known of memory and clients there is half a second old: they may have room already. */
	if (!server && client->route.end == END_REFUSED && !client->route.tried &&
	    loop_now_ns(client->loop) - client->opened_ns < CLIENT_ROOM_NS) {
		client->route.end = END_NONE;
		loop_timer_set(client->loop, &client->retry, loop_now_ns(client->loop) + CLIENT_LOOK_NS);
		return;
	}
	/* CLIENT_OPEN_NS ends that, with what came of the last tries. */
	if (!server && route_again(client->broker, &client->route, client->opened_ns - CLIENT_OPEN_NS)) {
		loop_timer_set(client->loop, &client->retry, loop_now_ns(client->loop) + CLIENT_RELINK_NS);
		return;
	}
	if (!server) {
		client_refuse(client, client->route.end ? client->route.end : END_NO_SERVER, why);
		return;
	}
	client->server = server;
	client->waiter.done = client_server_done;
	server_want(server, &client->waiter);
}

/*
 * Whether it has a server whose link is alive (pings see to that) and that makes a worker ready for it: with a driver that
 * starts several at once that is natively slow, too. The client hears that it goes on.
 */
static bool client_waits_on(struct client *client)
{
	uint8_t bytes[LINK_TEXT_MAX + 64] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));
	uint64_t now = loop_now_ns(client->loop);

	if (!client->server || !client->on_link || now - client->opened_ns >= CLIENT_SEAT_NS)
		return false;
	put_u32(&w, LOCAL_WAITING);
	put_str(&w, server_name(client->server));
	if (!client->kernel && client_packet(client, bytes, w.at, NULL, 0)) {
		client_gone(client);
		return true;
	}
	loop_timer_set(client->loop, &client->timer, now + LOCAL_WAITING_MS * NS_PER_MS);
	return true;
}

static void client_timer(void *arg)
{
	struct client *client = arg;
	char why[ROUTE_WHY_SIZE];

	if (client->state == CLIENT_NEW) {
		client_gone(client);
	} else if (client->state == CLIENT_RETURNING) {
		client_refuse(client, END_NO_SERVER, client->reason);
	} else if (client->state == CLIENT_OPENING) {
		if (client_waits_on(client))
			return;
		if (client->server) {
			const char *last = client->on_link ? "the node did not attach a worker in time" :
							     server_why(client->server);

			route_failed(client->broker, &client->route, client->server, *last ? last : "no answer in time");
		}
		route_why(&client->route, why, sizeof(why));
		client_refuse(client, END_NO_SERVER, why);
	} else if (client->state == CLIENT_LIVE) {
		char text[sizeof(client->reason)];

		if (client->holds)
			snprintf(text, sizeof(text), "%.180s; no checkpoint was restored in time", client->reason);
		else
			snprintf(text, sizeof(text), "%.180s; it did not come back within %.1f s", client->reason,
				 (double)broker_conf(client->broker)->grace_ms / 1000);
		if (client->holds || !client_hold(client, text))
			client_end(client, END_LINK_LOST, text);
	}
}

/*
 * Its worker may be a child of this daemon, at the other end of a link to ourselves: then it gets the worker's memory instead of
 * ours, and the link has nothing more to carry than its beginning and end. Memory of the kernel module stays what it is.
 */
static void client_direct(struct client *client)
{
	struct node *node = broker_node(client->broker);
	struct shm shm;
	int fd;

	if (!node || !broker_conf(client->broker)->direct || client->kernel_memory >= 0)
		return;
	fd = node_direct(node, link_id(client->link), client->mirror.id);
	if (fd < 0)
		return;
	/* No lane uses the old one: the mirror isn't live yet. If this fails the session can't go on, as the seat moves nothing. */
	if (shm_map(&shm, fd, protocol_hash)) {
		client_refuse(client, END_REFUSED, "can't map the worker's memory");
		return;
	}
	shm_close(&client->mirror.shm);
	client->mirror.shm = shm;
	shm_ring_c2n(&client->mirror.shm, &client->c2n);
	shm_ring_n2c(&client->mirror.shm, &client->n2c);
	client->direct = true;
}

struct baton_name client_baton_name(const struct client *client)
{
	return (struct baton_name){
		.server = server_name(client->server), .program = client->program, .settings = client->settings, .token = client->token,
	};
}

static void client_attached(struct client *client, struct reader *body)
{
	uint8_t bytes[LINK_TEXT_MAX + 64] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));
	uint32_t end = get_u32(body);
	const char *why = get_str(body, LINK_TEXT_MAX);

	if (client->state != CLIENT_OPENING)
		return;
	if (body->fault || end != END_NONE) {
		/* Another server may have what this one lacks. */
		route_failed(client->broker, &client->route, client->server, *why ? why : "it refused without a reason");
		client->route.end = end ? end : END_PROTOCOL;
		client_leave(client, false);
		client->server = NULL;
		client->mirror.dead = false;
		client_memory_drop(client);
		client_try(client);
		return;
	}

	client_direct(client);
	if (client->state != CLIENT_OPENING)
		return;

	const int fds[2] = { client->mirror.shm.fd, client->doorbell };
	const struct baton_name name = client_baton_name(client);

	baton_open(&client->mirror.shm, client->direct ? BATON_DIRECT : BATON_LIVE, &name);

	put_u32(&w, LOCAL_OPENED);
	put_u32(&w, route_others(client->broker, client));
	put_str(&w, server_name(client->server));
	if (!client->direct)
		__atomic_store_n(&client->mirror.live, true, __ATOMIC_RELEASE);
	session_live_post(&client->mirror.shm);
	if (client_packet(client, bytes, w.at, fds, 2)) {
		client_gone(client);
		return;
	}
	loop_timer_clear(client->loop, &client->timer);
	client->state = CLIENT_LIVE;
	client->retry.fire = client_overflow_retry;
	place_client_live(broker_place(client->broker), client);
	client_bell_arm(client);
	log_info("pid %d (%s): session %u on %s%s", client->pid, client->program, client->mirror.id,
		 server_name(client->server), client->direct ? ", this machine's own worker" : "");
}

static void client_setting_find(const char *settings, const char *name, char *out, size_t size)
{
	size_t length = strlen(name);

	out[0] = 0;
	for (const char *line = settings; *line;) {
		size_t end = strcspn(line, "\n");

		if (strncmp(line, name, length) == 0 && end - length < size && end >= length) {
			memcpy(out, line + length, end - length);
			out[end - length] = 0;
		}
		line += end + (line[end] != 0);
	}
}

/* As its environment wants it (GLEAM_CACHE), within what the daemon allows. */
static void client_cache_open(struct client *client)
{
	struct cache_local *cache = broker_cache(client->broker);
	enum conf_cache_use use = cache ? cache_local_use(cache) : CACHE_OFF;
	char text[16];

	client_setting_find(client->settings, "GLEAM_CACHE=", text, sizeof(text));
	if (*text && conf_cache_use_parse(text, &use))
		log_warn("pid %d (%s): GLEAM_CACHE=%s is not auto, on or off", client->pid, client->program, text);
	if (use != CACHE_OFF && client->mirror.off != OFF_ALL)
		client->cache = cache_client_new(cache, client, use, client->uid);
}

void client_settings_use(struct client *client)
{
	client->mirror.off = off_find(client->settings);
	/* Without memory for them the trace has fewer. */
	if (client->mirror.off & OFF_TRACED && !client->spans)
		client->spans = calloc(1, sizeof(*client->spans));
	client_cache_open(client);
}

/* It has come through single virtual GPUs: that server, and those GPUs. True: it has been refused. */
static bool client_kernel_limit(struct client *client)
{
	const struct client_kernel *kernel = client->kernel;
	char settings[CLIENT_SETTINGS_MAX];
	const char *why = kernel->refused;

	if (!why && *client->route.wanted && strcmp(client->route.wanted, kernel->server) != 0)
		why = "GLEAM_SERVER names a server whose devices (/dev/gleam<N>) it may not open";
	/* The worker's driver shows no others, whatever the program does. Before its own: the first of a name counts. */
	if (!why && (size_t)snprintf(settings, sizeof(settings), "GLEAM_ONLY=%s\n%s", kernel->visible,
				     client->settings) >= sizeof(settings))
		why = "its environment is too long";
	if (!why)
		memcpy(client->settings, settings, sizeof(settings));
	if (why)
		client_refuse(client, END_NO_DEVICE, why);
	snprintf(client->route.wanted, sizeof(client->route.wanted), "%s", kernel->server);
	return why;
}

static int client_open(struct client *client, struct reader *r)
{
	uint8_t hash[PROTOCOL_HASH_SIZE];
	uint32_t version = get_u32(r);
	char not[CLIENT_SETTINGS_MAX];

	get_block(r, hash, sizeof(hash));
	client->claimed_pid = get_u32(r);
	snprintf(client->program, sizeof(client->program), "%s", get_str(r, LINK_TEXT_MAX));
	snprintf(client->settings, sizeof(client->settings), "%s", get_str(r, CLIENT_SETTINGS_MAX - 1));
	client->state = CLIENT_OPENING;
	if (!r->fault && (version != LINK_VERSION || memcmp(hash, protocol_hash, sizeof(hash)) != 0)) {
		char ours[HASH_TEXT_SIZE], theirs[HASH_TEXT_SIZE], why[256];

		hash_text(protocol_hash, ours);
		hash_text(hash, theirs);
		snprintf(why, sizeof(why),
			 "libcuda.so.1 and gleamd are of different versions (protocol %u.%s and %u.%s): restart gleamd, or "
			 "update the older one",
			 version, theirs, LINK_VERSION, ours);
		client_refuse(client, END_VERSION, why);
		return 0;
	}
	if (r->fault)
		return -EPROTO;
	client_settings_use(client);
	client_setting_find(client->settings, "GLEAM_SERVER=", client->route.wanted, sizeof(client->route.wanted));
	client_setting_find(client->settings, "NOT_SERVERS=", not, sizeof(not));
	route_leave_out(client->broker, &client->route, not);
	if (client->kernel && client_kernel_limit(client))
		return 0;
	place_program_look(client->pid, client->settings, &client->route.program);
	client->opened_ns = loop_now_ns(client->loop);
	loop_timer_set(client->loop, &client->timer, client->opened_ns + CLIENT_OPEN_NS);
	client_try(client);
	return 0;
}

/* ---- messages of the link ---- */

int client_message(struct client *client, const struct link_hdr *hdr, struct reader *body)
{
	if (hdr->type == LINK_ATTACHED) {
		client_attached(client, body);
		return 0;
	}
	if (client->state != CLIENT_LIVE)
		return 0; /* it crossed our detach */
	switch (hdr->type) {
	case LINK_RESUMED:
		if (!client->resuming)
			return -EPROTO;
		client_resumed(client, body);
		return 0;
	case LINK_SEEN:
		__atomic_store_n(&client->seen_due, true, __ATOMIC_RELEASE);
		return 0;
	case LINK_CONSUMED:
		client_consumed(client, get_u64(body), body->fault);
		return 0;
	case LINK_FRAME: {
		uint32_t size = (uint32_t)reader_left(body);
		const uint8_t *frame = reader_take(body, 8, size);

		client_deliver(&client->mirror, 0, frame, size);
		return 0;
	}
	case LINK_BULK_BAD: {
		int err = !client->cache ? -EPROTO :
					   cache_client_bad(client->cache, server_cache(client->server), client->link,
							    &client->mirror, body);

		/* The program may have changed what an earlier daemon had written of its pieces. */
		if (err && client->adopted) {
			client_end(client, END_PROTOCOL, "its node lost a piece that its memory doesn't speak of");
			return 0;
		}
		return err;
	}
	case LINK_ENDED: {
		uint32_t end = get_u32(body);
		const char *why = get_str(body, LINK_TEXT_MAX);

		/* Not what it has brought upon itself. */
		if (!body->fault && (end == END_WORKER_DIED || end == END_SHUTDOWN) && client_hold(client, *why ? why : "its worker is gone"))
			return 0;
		client_end(client, body->fault || end == END_NONE ? END_PROTOCOL : (enum session_end)end,
			   *why ? why : "the node ended it");
		return 0;
	}
	default:
		return -EPROTO;
	}
}

void client_move_lost(struct client *client, struct server *server, const char *why)
{
	if (client->move)
		move_link_lost(client->move, server, why);
}

void client_wait_for_link(struct client *client)
{
	uint64_t grace_ns = broker_conf(client->broker)->grace_ms * NS_PER_MS;

	/* A new link that is lost before it has answered gives no more time. */
	if (client->lost_ns == 0) {
		client->lost_ns = loop_now_ns(client->loop);
		client_wait_until(client, client->lost_ns + grace_ns);
		log_warn("pid %d (%s): %s; its session waits up to %.1f s for it", client->pid, client->program, client->reason,
			 (double)grace_ns / (double)NS_PER_S);
	}
	loop_timer_set(client->loop, &client->again, loop_now_ns(client->loop));
}

void client_link_lost(struct client *client, struct server *server, const char *why)
{
	uint64_t grace_ns = broker_conf(client->broker)->grace_ms * NS_PER_MS;

	if (client->server != server || !client->on_link)
		return;
	if (client->state == CLIENT_OPENING) {
		client_leave(client, false);
		route_failed(client->broker, &client->route, server, why);
		client->server = NULL;
		client->mirror.dead = false;
		client_memory_drop(client);
		client_try(client);
		return;
	}
	if (client->move && move_needs_link(client->move)) {
		client_mend(client);
		move_abandon(client->move, "the link to the program's server is lost");
	}
	client_ring_lost(client);
	client_unlink(client);
	if (client->state != CLIENT_LIVE)
		return;
	snprintf(client->reason, sizeof(client->reason), "the link to %s is lost: %s", server_name(server), why);
	/* What ends with a link to ourselves is this daemon. */
	if (grace_ns == 0 || client->direct) {
		client_end(client, END_LINK_LOST, client->reason);
		return;
	}
	client_wait_for_link(client);
}

/* ---- packets in ---- */

/* There is no cache for it. */
static int client_file_none(struct client *client, uint32_t number)
{
	uint8_t bytes[64] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));

	put_u32(&w, LOCAL_FILE_KNOWN);
	put_u32(&w, number);
	put_u32(&w, EOPNOTSUPP);
	put_u64(&w, 0);
	put_u64(&w, 0);
	put_u64(&w, 0);
	put_u32(&w, 0);
	put_bytes(&w, NULL, 0);
	return client_packet(client, bytes, w.at, NULL, 0);
}

/* The descriptor that came with a packet; -1. */
static int client_recv_fd(const struct client *client)
{
	const struct cmsghdr *cmsg = CMSG_FIRSTHDR(&client->recv_msg);
	int fd = -1;

	/* The kernel has closed what there was no room for. */
	if (cmsg && cmsg->cmsg_level == SOL_SOCKET && cmsg->cmsg_type == SCM_RIGHTS && cmsg->cmsg_len == CMSG_LEN(sizeof(fd)))
		memcpy(&fd, CMSG_DATA(cmsg), sizeof(fd));
	return fd;
}

/* Takes @fd. */
static int client_file(struct client *client, struct reader *r, int fd)
{
	uint32_t number = get_u32(r);

	/* What goes straight to a worker of this machine passes nobody who could send references. */
	if (!r->fault && client->cache && !client->direct)
		return cache_client_file(client->cache, server_cache(client->server), number, fd);
	fd_close(&fd);
	return r->fault ? -EPROTO : client_file_none(client, number);
}

static void client_packet_take(struct client *client, size_t size)
{
	struct reader r = reader_on(client->packet, size);
	uint32_t type = get_u32(&r);
	int fd = client_recv_fd(client);

	if (type == LOCAL_FILE && client->state == CLIENT_LIVE) {
		if (client_file(client, &r, fd) == 0)
			return;
		fd = -1;
	}
	/* One that has died meanwhile asks in vain. */
	if (type == LOCAL_FILE && client->state == CLIENT_DEAD) {
		fd_close(&fd);
		return;
	}
	if (type == LOCAL_RETURN && client->state == CLIENT_NEW) {
		if (client_return(client, &r, fd) == 0)
			return;
		fd = -1;
	}
	if (type != LOCAL_CONTROL)
		fd_close(&fd);
	if (type == LOCAL_OPEN && client->state == CLIENT_NEW) {
		if (client_open(client, &r) == 0)
			return;
	} else if (type == LOCAL_CONTROL && (client->state == CLIENT_NEW || client->state == CLIENT_ASKING)) {
		const char *request = get_str(&r, LOCAL_MSG_MAX);

		client->state = CLIENT_ASKING;
		loop_timer_clear(client->loop, &client->timer);
		if (!r.fault && control_answer(client->broker, client, client->uid, request, fd) == 0)
			return;
		if (!r.fault)
			fd = -1;
	}
	if (type == LOCAL_GPUS && (client->state == CLIENT_NEW || client->state == CLIENT_ASKING)) {
		const char *server = get_str(&r, LOCAL_MSG_MAX);

		client->state = CLIENT_ASKING;
		loop_timer_clear(client->loop, &client->timer);
		if (!r.fault && control_gpus(client->broker, client, client->uid, server) == 0)
			return;
	}
	fd_close(&fd);
	log_warn("pid %d: not a packet that gleamd knows (type %u, %zu bytes): closed", client->pid, type, size);
	client_end(client, END_PROTOCOL, "an unknown packet on its socket");
	client_gone(client);
}

/* It may send again: the next round looks. */
static void client_paced(void *arg)
{
}

static void client_recv_done(void *arg, int res, uint32_t flags)
{
	struct client *client = arg;

	client->receiving = false;
	if (client->state == CLIENT_GONE) {
		client_settle(client);
		return;
	}
	if (res == -EINTR || res == -EAGAIN) {
		client_recv_arm(client);
		return;
	}
	if (res <= 0) {
		client_gone(client);
		return;
	}
	/* MSG_TRUNC: the length that it had. */
	if ((size_t)res > LOCAL_MSG_MAX) {
		int fd = client_recv_fd(client);

		fd_close(&fd);
		client_gone(client);
	}
	else
		client_packet_take(client, (size_t)res);
	if (client->state == CLIENT_GONE)
		client_settle(client);
	else
		client_recv_arm(client);
}

static void client_recv_arm(struct client *client)
{
	struct io_uring_sqe *sqe = loop_sqe(client->loop);

	client->recv_iov = (struct iovec){ .iov_base = client->packet, .iov_len = LOCAL_MSG_MAX };
	client->recv_msg = (struct msghdr){ .msg_iov = &client->recv_iov, .msg_iovlen = 1, .msg_control = client->recv_control,
					    .msg_controllen = sizeof(client->recv_control) };
	io_uring_prep_recvmsg(sqe, client->fd, &client->recv_msg, MSG_TRUNC | MSG_CMSG_CLOEXEC);
	client->recv_tag = loop_tag(client->loop, sqe, client_recv_done, client);
	client->receiving = true;
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
		struct api_count sums = { 0 };

		client_sums(client, &sums);
		view.calls = sums.calls;
		view.bytes = sums.bytes;
		view.round_trips = sums.trips;
		view.waited_ns = sums.waited_ns;
		/* What it wrote there may be nonsense. */
		view.inflight = (queued <= SESSION_C2N_SIZE ? queued : 0) + (up <= SESSION_UP_SIZE ? up : 0);
		view.memory = hdr->memory;
	}
	*view_out = view;
	return true;
}
