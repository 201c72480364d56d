/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a client comes to a session on a server, and what the link brings and takes: tries of servers, ATTACH, messages, a lost link.
 * Control thread; see client.h.
 */
#include "broker/local/client_private.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include "broker/core/small.h"
#include "broker/lib/clock.h"
#include "broker/lib/fd.h"
#include "broker/lib/hash.h"
#include "broker/lib/log.h"
#include "broker/lib/slot.h"
#include "broker/local/broker.h"
#include "broker/local/move.h"
#include "broker/local/route.h"

#define CLIENT_OPEN_NS	2700000000ull /* without a link by then it is told why there is no session, within three seconds */
#define CLIENT_SEAT_NS	(LOCAL_OPEN_MS_MAX * NS_PER_MS) /* with one: the node is alive, and says itself when a worker fails */
#define CLIENT_AGAIN_NS 200000000ull  /* between two tries to get a lost link back: each has a time limit of its own */
#define CLIENT_ROOM_NS	(2400 * NS_PER_MS) /* servers that have no room are asked again so long: some reports, and a driver that frees */
#define CLIENT_LOOK_NS	(400 * NS_PER_MS)
#define CLIENT_RELINK_NS (50 * NS_PER_MS) /* after a link that was lost under clients that attach */
#define CLIENT_SETTLE_NS (10 * NS_PER_MS) /* to look again whether the first reports have come */

static void client_try(struct client *client);

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
void client_again(void *arg)
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

void client_settled(void *arg)
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

void client_timer(void *arg)
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

	const int fds[3] = { client->mirror.shm.fd, client->doorbell, client->pages };
	const struct baton_name name = client_baton_name(client);

	baton_open(&client->mirror.shm, client->direct ? BATON_DIRECT : BATON_LIVE, &name);

	put_u32(&w, LOCAL_OPENED);
	put_u32(&w, route_others(client->broker, client));
	put_str(&w, server_name(client->server));
	if (!client->direct)
		__atomic_store_n(&client->mirror.live, true, __ATOMIC_RELEASE);
	session_live_post(&client->mirror.shm);
	if (client_packet(client, bytes, w.at, fds, client->pages >= 0 ? 3 : 2)) {
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

int client_open(struct client *client, struct reader *r)
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
	case LINK_FRAME_BYTES: {
		uint32_t size;
		const uint8_t *frame = small_take(body, &client->mirror, &size);

		if (!frame)
			return -EPROTO;
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
	case LINK_POUR_READY:
	case LINK_POUR_ENDED:
		return client->move ? move_way_poured(client->move, hdr, body) : 0;
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
