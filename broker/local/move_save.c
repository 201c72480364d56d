/* SPDX-License-Identifier: Apache-2.0 */
/* A move with a file at one end: a checkpoint is written, and comes back. Control thread; see move.h. */
#include "broker/local/move_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/log.h"

/* ---- they are made ---- */

void move_save_end(struct move *move)
{
	struct client *client = move->client;

	move->info.sequence = client->seq;
	move->info.position = client->c2n.at;
	move->info.up = __atomic_load_n(&client->up_tail, __ATOMIC_ACQUIRE);
	move->info.landings = move->landings;
	move->info.memory = move->memory;
	move->info.bytes = move->bytes;
	move->freed_ns = clock_ns();
	move->stage = STAGE_SAVE;
	/* What comes after it is remembered; without memory for that, a program that goes on can't be restored. */
	pthread_mutex_lock(&client->deliver_lock);
	client->record_next = record_new(client->seq, client->c2n.at);
	pthread_mutex_unlock(&client->deliver_lock);
	client_mend(client);
	move_goes_to(move, MOVE_PHASE_SWITCH);
	saver_end(move->saver, &move->info);
}

static void save_heard(void *arg, bool over, int err)
{
	struct move *move = arg;
	struct client *client = move->client;

	move->moved_ns = loop_now_ns(move->loop);
	loop_nudge(move->loop);
	if (err) {
		move_failed(move, "the checkpoint can't be written: %s", strerror(-err));
	} else if (over) {
		client->saved = (struct client_saved){ .there = true, .sequence = move->info.sequence, .position = move->info.position };
		move_over(move, true, "");
	}
}

int move_save(struct broker *broker, struct client *client, int fd, move_hear *hear, void *arg, char *why, size_t why_size)
{
	int err = move_may(client, why, why_size);
	struct save_info info = { .pid = (uint32_t)client->pid, .uid = (uint32_t)client->uid, .made_s = (uint64_t)time(NULL) };
	struct move *move;

	if (!err && client->direct) {
		snprintf(why, why_size, "pid %d has a GPU of this machine by the short cut, so gleamd doesn't see what it does after a "
			 "checkpoint; gleamctl migrate %d %s moves it to a worker that it reaches through gleamd", client->pid, client->pid,
			 server_name(client->server));
		err = -EOPNOTSUPP;
	}
	if (err) {
		close(fd);
		return err;
	}
	/* At the first: one that a daemon has taken over from another one has none. */
	if (memcmp(client->identity, info.identity, sizeof(info.identity)) == 0 &&
	    getrandom(client->identity, sizeof(client->identity), 0) != (ssize_t)sizeof(client->identity)) {
		close(fd);
		snprintf(why, why_size, "the system gives gleamd no random number");
		return -EIO;
	}
	memcpy(info.identity, client->identity, sizeof(info.identity));
	snprintf(info.program, sizeof(info.program), "%.*s", (int)sizeof(info.program) - 2, client->program);
	move = move_new(broker, client, NULL, -1, STAGE_REST, hear, arg);
	if (!move) {
		close(fd);
		snprintf(why, why_size, "gleamd has no memory for it");
		return -ENOMEM;
	}
	move->info = info;
	move->saver = saver_new(move->loop, fd, &info, save_heard, move);
	if (!move->saver) {
		move->hear = NULL;
		move_over(move, false, "out of memory");
		snprintf(why, why_size, "gleamd has no memory for it");
		return -ENOMEM;
	}
	log_info("pid %d (%s): a checkpoint is made on %s", client->pid, client->program, move->from_name);
	return 0;
}

/* ---- they come back ---- */

/* @why: not this one. */
static bool load_fits(struct move *move, char *why, size_t why_size)
{
	struct client *client = move->client;
	const struct save_info *info = &move->info;
	const char *trouble;

	if (!client->saved.there || memcmp(info->identity, client->identity, sizeof(info->identity)) != 0) {
		snprintf(why, why_size, "the checkpoint is of another session (pid %u, %.100s), or of a gleamd that was restarted since: name the folder of this program's own", info->pid,
			 info->program);
		return false;
	}
	if (info->sequence != client->saved.sequence || info->position != client->saved.position) {
		snprintf(why, why_size, "pid %d has a newer checkpoint than this one: name the folder of that, since what came after this one isn't known any more", client->pid);
		return false;
	}
	trouble = client_lasts(client);
	if (trouble) {
		snprintf(why, why_size, "pid %d has gone on since the checkpoint by %" PRIu64 " commands, which can't be done again: %s; it has to be started again", client->pid,
			 client->seq - info->sequence, trouble);
		return false;
	}
	if (client->seq == info->sequence)
		return true;
	if (!wire_can_fill(client->c2n.at)) {
		snprintf(why, why_size, "the program has stopped at a place of its command ring where no other worker can go on; it has to be started again");
		return false;
	}
	/* It gets bytes for the program before the program does. */
	move->replay = replay_new(client->record, &move->mirror);
	if (!move->replay || shm_make(&move->mirror.shm, protocol_hash, (uint32_t)client->pid)) {
		snprintf(why, why_size, "gleamd has no memory for it");
		return false;
	}
	__atomic_store_n(&move->mirror.live, true, __ATOMIC_RELEASE);
	log_info("pid %d (%s): %" PRIu64 " commands since its checkpoint are done again", client->pid, client->program,
		 client->seq - info->sequence);
	return true;
}

static void load_opened(void *arg, const struct save_info *info, const char *why)
{
	struct move *move = arg;
	char text[MOVE_WHY_SIZE];

	if (!info) {
		move_failed(move, "the checkpoint: %s", why);
		return;
	}
	move->info = *info;
	move->memory = info->memory;
	move->moved_ns = loop_now_ns(move->loop);
	if (!load_fits(move, text, sizeof(text))) {
		move_failed(move, "%s", text);
		return;
	}
	move->stage = STAGE_LINK;
	move_new_reach(move);
}

void move_load_next(struct move *move)
{
	move->loading = true;
	loader_next(move->loader);
}

static void load_frames(void *arg, const uint8_t *frames, uint32_t size, const char *why)
{
	struct move *move = arg;

	move->loading = false;
	move->moved_ns = loop_now_ns(move->loop);
	loop_nudge(move->loop);
	if (*why) {
		move_failed(move, "the checkpoint: %s", why);
		return;
	}
	for (uint32_t at = 0; at < size && move->stage == STAGE_PLAY;) {
		struct frame_hdr hdr;

		memcpy(&hdr, frames + at, sizeof(hdr));
		move_queue_add(move, frames + at, hdr.size);
		at += RING_ALIGN(hdr.size);
	}
	if (!frames && move->stage == STAGE_PLAY) {
		move->landings = move->info.landings;
		move->final = true;
		move->stage = STAGE_DRAIN;
		move_goes_to(move, MOVE_PHASE_SWITCH);
	}
}

int move_load(struct broker *broker, struct client *client, struct server *to, int gpu, int fd, move_hear *hear, void *arg, char *why,
	      size_t why_size)
{
	static const struct loader_ops ops = { .opened = load_opened, .frames = load_frames };
	struct move *move = NULL;
	int err = 0;

	if (client->state != CLIENT_LIVE || client->direct) {
		snprintf(why, why_size, "pid %d has no session that could go on: one that has ended, or never had a checkpoint, has to be started again", client->pid);
		err = -ESRCH;
	} else if (client->on_link || !client->lost_ns) {
		snprintf(why, why_size, "pid %d has its worker on %s, and needs no checkpoint; gleamctl migrate moves it", client->pid,
			 server_name(client->server));
		err = -EALREADY;
	} else if (client->move) {
		snprintf(why, why_size, "pid %d is being restored already; gleamctl clients tells when it is live again", client->pid);
		err = -EBUSY;
	} else {
		move = move_new(broker, client, to, gpu, STAGE_OPEN, hear, arg);
		if (!move) {
			snprintf(why, why_size, "gleamd has no memory for it");
			err = -ENOMEM;
		}
	}
	if (err) {
		close(fd);
		return err;
	}
	move->loader = loader_new(move->loop, fd, &ops, move);
	if (!move->loader) {
		move->hear = NULL;
		move_abandon(move, "out of memory");
		snprintf(why, why_size, "gleamd has no memory for it");
		return -ENOMEM;
	}
	client_waits(client, false);
	log_info("pid %d (%s): a checkpoint is restored on %s", client->pid, client->program, move->to_name);
	return 0;
}

/* ---- what came after them ---- */

bool move_again_poll(struct move *move)
{
	const char *why = NULL;

	switch (replay_step(move->replay, &move->new, &why)) {
	case REPLAY_FAILED:
		move_failed(move, "%s: %s", move->to_name, why);
		return true;
	case REPLAY_GOES:
		move->moved_ns = loop_now_ns(move->loop);
		return true;
	case REPLAY_DONE:
		if (move->new.tail != move->new.at)
			return false;
		move->stage = STAGE_ALIGN;
		return true;
	default:
		return false;
	}
}
