/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions of an earlier daemon, which was killed or restarted. Its client has kept the memory, and in it lies what we have to know
 * (baton.h). From here on such a session is one whose link was lost: its worker waits at the node, and we come back to it by token.
 * Control thread.
 *
 * Neither the memory nor what it says is believed. A client that forges it names a token that its node doesn't have or has for another
 * process, or positions at which the node ends the session: its own. Until the node has agreed nothing is sent under that token that
 * could harm another's session.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/fd.h"
#include "broker/lib/hash.h"
#include "broker/lib/log.h"
#include "broker/lib/slot.h"
#include "broker/local/broker.h"
#include "broker/local/client_private.h"

#define RETURN_LOOK_NS (200 * NS_PER_MS) /* between two looks whether its server has been announced */

/* Its calls end, with the reason. */
static void return_refuse(struct client *client, enum session_end end, const char *why)
{
	/* By the socket the library hears the reason and ends them itself. */
	if (client->kernel_memory >= 0 && client->mirror.shm.base &&
	    __atomic_load_n(&shm_header(&client->mirror.shm)->state, __ATOMIC_ACQUIRE) != SESSION_DEAD)
		session_end_post(&client->mirror.shm, end);
	client_refuse(client, end, why);
}

static struct server *server_find(const struct broker *broker, const char *name)
{
	for (unsigned i = 0; i < broker_server_count(broker); i++)
		if (strcmp(server_name(broker_server(broker, i)), name) == 0)
			return broker_server(broker, i);
	return NULL;
}

/* Twice by one process. Another process's token is no good to it: its node says so, and must not be asked twice for the same one. */
static bool token_is_taken(const struct client *client)
{
	for (unsigned i = 0; i < broker_client_count(client->broker); i++) {
		const struct client *other = broker_client(client->broker, i);

		if (other == client || other->pid != client->pid || other->uid != client->uid)
			continue;
		if ((other->state == CLIENT_LIVE || other->state == CLIENT_RETURNING) &&
		    memcmp(other->token, client->token, sizeof(client->token)) == 0)
			return true;
	}
	return false;
}

/* From what was left; the rings stand where they stood. */
static void return_take(struct client *client, const struct baton *baton)
{
	const struct shm *shm = &client->mirror.shm;

	memcpy(client->token, baton->token, sizeof(client->token));
	memcpy(client->program, baton->program, sizeof(client->program));
	memcpy(client->settings, baton->settings, sizeof(client->settings));
	snprintf(client->route.wanted, sizeof(client->route.wanted), "%s", baton->server);
	client->adopted = true;
	client->delta = baton->delta;
	client->seq = baton->seq;
	client->seen = baton->seen;
	client->up_tail = baton->up_tail;
	client->acknowledged = baton->c2n_tail;
	shm_ring_c2n(shm, &client->c2n);
	shm_ring_n2c(shm, &client->n2c);
	shm_ring_overflow(shm, &client->overflow_in);
	client->overflow_out = client->overflow_in;
	/* All of it may have been sent. The node will say how far it has come. */
	client->c2n.seen = baton->c2n_head;
	client->taken = baton->taken;
	client->c2n.at = baton->taken ? baton->c2n_tail : baton->c2n_head;
	client->n2c.at = baton->n2c_head;
	client->n2c.seen = baton->n2c_tail;
	client->overflow_in.at = baton->overflow_head;
	client->overflow_in.seen = baton->overflow_tail;
	client->overflow_out.at = baton->overflow_tail;
	client->overflow_out.seen = baton->overflow_head;
	client->overflowing = baton->overflow_tail != baton->overflow_head;
	client->retry.fire = client_overflow_retry;
	baton_adopted(shm, baton);
	if (baton->moved)
		client_mend(client);
	client->held = baton->taken;
}

/* The cache has to know which pieces there are: a node may say that it lost one. */
static int return_pieces(struct client *client)
{
	for (uint64_t i = client->pieces.tail; i < client->pieces.head && client->cache; i++) {
		const struct journal_piece *piece = &client->pieces.pieces[i % JOURNAL_PIECES];
		const struct bulk_ref ref = { .offset = piece->offset, .size = piece->size, .cookie = piece->cookie };
		int err = cache_client_piece(client->cache, &ref, NULL);

		if (err)
			return err;
	}
	return 0;
}

static void return_go_on(struct client *client, struct server *server)
{
	uint8_t bytes[LINK_TEXT_MAX + 64] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));

	client->server = server;
	client->waiter.done = client_server_done;
	client->opened_ns = loop_now_ns(client->loop);
	client->state = CLIENT_LIVE;
	__atomic_store_n(&client->mirror.live, true, __ATOMIC_RELEASE);
	put_u32(&w, LOCAL_OPENED);
	put_u32(&w, 0);
	put_str(&w, server_name(server));
	if (client_packet(client, bytes, w.at, &client->doorbell, 1)) {
		client_gone(client);
		return;
	}
	client_bell_arm(client);
	place_program_look(client->pid, client->settings, &client->route.program);
	place_client_live(broker_place(client->broker), client);
	snprintf(client->reason, sizeof(client->reason), "gleamd was restarted");
	log_info("pid %d (%s): session %u was an earlier gleamd's, on %s", client->pid, client->program, client->mirror.id,
		 server_name(server));
	client->lost_ns = 0;
	client_wait_for_link(client);
	loop_nudge(client->loop);
}

void client_return_look(struct client *client)
{
	struct server *server = server_find(client->broker, client->route.wanted);

	if (server)
		return_go_on(client, server);
	else
		loop_timer_set(client->loop, &client->again, loop_now_ns(client->loop) + RETURN_LOOK_NS);
}

/* Takes @fd. It goes on, or is refused. */
static void return_memory(struct client *client, int fd)
{
	const struct conf *conf = broker_conf(client->broker);
	enum session_end end = END_NONE;
	const char *why = "";
	struct baton *baton;
	int err = shm_map(&client->mirror.shm, fd, protocol_hash); /* takes it, too */

	if (err) {
		return_refuse(client, err == -EPROTONOSUPPORT ? END_VERSION : END_PROTOCOL,
			      err == -EPROTONOSUPPORT ? "the gleamd that was restarted is of another version than libcuda.so.1 in the "
							"program: start the program again" :
							"its memory is not a session's");
		return;
	}
	baton = malloc(sizeof(*baton));
	if (!baton) {
		return_refuse(client, END_REFUSED, "out of memory");
		return;
	}
	end = baton_read(&client->mirror.shm, baton, &client->pieces, &why);
	if (!end)
		return_take(client, baton);
	free(baton);
	if (!end && token_is_taken(client)) {
		end = END_PROTOCOL;
		why = "its session goes on already";
	}
	if (!end && conf->grace_ms == 0) {
		end = END_LINK_LOST;
		why = "gleamd was restarted, and [link] grace = 0 says that sessions don't wait";
	}
	if (!end)
		client_settings_use(client);
	if (!end && return_pieces(client)) {
		end = END_PROTOCOL;
		why = "what its memory says of the session is nonsense";
	}
	if (!end && client->kernel_memory < 0) {
		client->doorbell = eventfd(0, EFD_CLOEXEC);
		if (client->doorbell < 0) {
			end = END_REFUSED;
			why = "no doorbell: raise the limit on open files (LimitNOFILE=)";
		}
	}
	if (end) {
		return_refuse(client, end, why);
		return;
	}
	/* Servers of the LAN are heard of after a while; they never are in any other way. */
	client->state = CLIENT_RETURNING;
	snprintf(client->reason, sizeof(client->reason), "the restarted gleamd has no server %.63s, whose worker the program has",
		 client->route.wanted);
	loop_timer_set(client->loop, &client->timer, loop_now_ns(client->loop) + (conf->discover ? conf->grace_ms * NS_PER_MS : 0));
	client_return_look(client);
}

int client_return(struct client *client, struct reader *r, int fd)
{
	uint8_t hash[PROTOCOL_HASH_SIZE];
	uint32_t version = get_u32(r);

	get_block(r, hash, sizeof(hash));
	client->claimed_pid = get_u32(r);
	if (r->fault || (fd < 0) == (client->kernel_memory < 0)) {
		fd_close(&fd);
		return -EPROTO;
	}
	loop_timer_clear(client->loop, &client->timer);
	if (version != LINK_VERSION || memcmp(hash, protocol_hash, sizeof(hash)) != 0) {
		fd_close(&fd);
		return_refuse(client, END_VERSION,
			      "the gleamd that was restarted is of another version than libcuda.so.1 in the program: start the program again");
		return 0;
	}
	if (fd < 0)
		fd = fcntl(client->kernel_memory, F_DUPFD_CLOEXEC, 0);
	if (fd < 0) {
		return_refuse(client, END_REFUSED, "no descriptor for its memory: raise the limit on open files (LimitNOFILE=)");
		return 0;
	}
	return_memory(client, fd);
	return 0;
}
