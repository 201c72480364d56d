/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting to a server. Control thread, but for the look-up of names; see dial.h. */
#include "broker/core/dial.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/core/address.h"
#include "broker/core/hello.h"

#define DIAL_WHY_SIZE 200

struct dial_try {
	struct dial *dial;
	int fd; /* -1: not begun, or ended */
	uint64_t tag;
};

/*
 * LOOKING up the name; TRYING addresses; ENDED: the owner has been told or has gone, the last operations come to their
 * ends.
 */
enum dial_state { DIAL_LOOKING, DIAL_TRYING, DIAL_ENDED };

struct dial {
	struct loop *loop;
	enum dial_state state;
	dial_done *done; /* NULL once abandoned */
	void *owner;
	char address[ADDRESS_HOST_SIZE + 8];
	struct dial_try tries[ADDRESSES_MAX];
	unsigned begun;
	unsigned running;
	bool posted;
	struct loop_timer next;
	struct loop_timer late;
	struct loop_post post;
	bool looking;

	/* written by the look-up thread before it posts */
	struct address addresses[ADDRESSES_MAX];
	unsigned count;
	int err;
	char why[DIAL_WHY_SIZE];
	int fd;
};

static void dial_free_maybe(struct dial *dial)
{
	if (dial->state == DIAL_ENDED && dial->running == 0 && !dial->posted && !dial->looking)
		free(dial);
}

static void dial_told(struct loop_post *post)
{
	struct dial *dial = (struct dial *)((char *)post - offsetof(struct dial, post));

	dial->posted = false;
	if (dial->done)
		dial->done(dial->owner, dial->fd, dial->err, dial->why);
	else if (dial->fd >= 0)
		close(dial->fd);
	dial_free_maybe(dial);
}

/* Tells the owner from the loop; what still runs is ended. */
static void dial_end(struct dial *dial, int fd, int err)
{
	if (dial->state == DIAL_ENDED)
		return;
	dial->state = DIAL_ENDED;
	dial->fd = fd;
	dial->err = err;
	loop_timer_clear(dial->loop, &dial->next);
	loop_timer_clear(dial->loop, &dial->late);
	for (unsigned i = 0; i < dial->begun; i++)
		if (dial->tries[i].fd >= 0)
			loop_cancel(dial->loop, dial->tries[i].tag);
	dial->posted = true;
	dial->post.run = dial_told;
	loop_post(dial->loop, &dial->post);
}

static void dial_next(void *arg);

static void try_done(void *arg, int res, uint32_t flags)
{
	struct dial_try *attempt = arg;
	struct dial *dial = attempt->dial;
	int fd = attempt->fd;
	char at[PEER_TEXT_SIZE];

	attempt->fd = -1;
	dial->running--;
	if (dial->state != DIAL_TRYING) {
		close(fd);
		dial_free_maybe(dial);
		return;
	}
	if (res == 0) {
		dial_end(dial, fd, 0);
		return;
	}
	close(fd);
	address_text((struct sockaddr *)&dial->addresses[attempt - dial->tries].at, at);
	/* Of several reasons the first is told. */
	if (dial->why[0] == 0)
		snprintf(dial->why, sizeof(dial->why), "%s: %s", at, strerror(-res));
	dial_next(dial);
}

/* Begins with the next address; without one it ends when the last has failed. */
static void dial_next(void *arg)
{
	struct dial *dial = arg;

	while (dial->begun < dial->count) {
		struct address *address = &dial->addresses[dial->begun];
		struct dial_try *attempt = &dial->tries[dial->begun++];
		struct io_uring_sqe *sqe;

		attempt->fd = socket(address->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (attempt->fd < 0) {
			if (dial->why[0] == 0)
				snprintf(dial->why, sizeof(dial->why), "no socket: %s", strerror(errno));
			continue;
		}
		sqe = loop_sqe(dial->loop);
		io_uring_prep_connect(sqe, attempt->fd, (struct sockaddr *)&address->at, address->size);
		attempt->tag = loop_tag(dial->loop, sqe, try_done, attempt);
		dial->running++;
		loop_timer_set(dial->loop, &dial->next, loop_now_ns(dial->loop) + DIAL_NEXT_NS);
		return;
	}
	if (dial->running == 0)
		dial_end(dial, -1, -EHOSTUNREACH);
}

static void dial_late(void *arg)
{
	struct dial *dial = arg;

	if (dial->state == DIAL_LOOKING)
		snprintf(dial->why, sizeof(dial->why), "looking up %.128s takes too long", dial->address);
	else if (dial->why[0] == 0)
		snprintf(dial->why, sizeof(dial->why), "%.128s: no answer within 2 s", dial->address);
	dial_end(dial, -1, -ETIMEDOUT);
}

static void dial_looked(struct dial *dial, int err)
{
	if (dial->state != DIAL_LOOKING) {
		dial_free_maybe(dial);
		return;
	}
	if (err) {
		dial_end(dial, -1, err);
		return;
	}
	dial->state = DIAL_TRYING;
	dial_next(dial);
}

/* ---- the look-up thread: writes to a job of its own, since the dial may end before it ---- */

struct lookup {
	struct loop_post post;
	struct dial *dial;
	struct loop *loop;
	char text[ADDRESS_HOST_SIZE + 8];
	struct address addresses[ADDRESSES_MAX];
	unsigned count;
	int err;
	char why[DIAL_WHY_SIZE];
};

static void lookup_run(struct loop_post *post)
{
	struct lookup *lookup = (struct lookup *)((char *)post - offsetof(struct lookup, post));
	struct dial *dial = lookup->dial;

	dial->looking = false;
	if (dial->state == DIAL_LOOKING) {
		memcpy(dial->addresses, lookup->addresses, sizeof(dial->addresses));
		dial->count = lookup->count;
		memcpy(dial->why, lookup->why, sizeof(dial->why));
	}
	dial_looked(dial, lookup->err);
	free(lookup);
}

static void *lookup_main(void *arg)
{
	struct lookup *lookup = arg;

	lookup->err = address_resolve(lookup->text, false, false, lookup->addresses, &lookup->count, lookup->why,
				      sizeof(lookup->why));
	loop_post(lookup->loop, &lookup->post);
	return NULL;
}

static int lookup_start(struct dial *dial)
{
	struct lookup *lookup = calloc(1, sizeof(*lookup));
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, before;
	int err;

	if (!lookup)
		return -ENOMEM;
	lookup->post.run = lookup_run;
	lookup->dial = dial;
	lookup->loop = dial->loop;
	memcpy(lookup->text, dial->address, sizeof(lookup->text));
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = -pthread_create(&thread, &attr, lookup_main, lookup);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (err) {
		free(lookup);
		return err;
	}
	dial->looking = true;
	return 0;
}

static void dial_begin(struct loop_post *post)
{
	struct dial *dial = (struct dial *)((char *)post - offsetof(struct dial, post));
	int err;

	dial->posted = false;
	if (dial->state != DIAL_LOOKING) {
		dial_free_maybe(dial);
		return;
	}
	err = address_resolve(dial->address, true, false, dial->addresses, &dial->count, dial->why, sizeof(dial->why));
	if (err == -EAGAIN) {
		err = lookup_start(dial);
		if (!err)
			return;
		snprintf(dial->why, sizeof(dial->why), "can't look up a name: %s", strerror(-err));
	}
	dial_looked(dial, err);
}

struct dial *dial_start(struct loop *loop, const char *address, dial_done *done, void *owner)
{
	struct dial *dial = calloc(1, sizeof(*dial));

	if (!dial)
		return NULL;
	dial->loop = loop;
	dial->done = done;
	dial->owner = owner;
	dial->fd = -1;
	snprintf(dial->address, sizeof(dial->address), "%s", address);
	for (unsigned i = 0; i < ADDRESSES_MAX; i++)
		dial->tries[i] = (struct dial_try){ .dial = dial, .fd = -1 };
	dial->next.fire = dial_next;
	dial->next.arg = dial;
	dial->late.fire = dial_late;
	dial->late.arg = dial;
	loop_timer_set(loop, &dial->late, loop_now_ns(loop) + DIAL_NS);
	dial->posted = true;
	dial->post.run = dial_begin;
	loop_post(loop, &dial->post);
	return dial;
}

void dial_abandon(struct dial *dial)
{
	dial->done = NULL;
	if (dial->state == DIAL_ENDED)
		return;
	dial->state = DIAL_ENDED;
	dial->fd = -1;
	loop_timer_clear(dial->loop, &dial->next);
	loop_timer_clear(dial->loop, &dial->late);
	for (unsigned i = 0; i < dial->begun; i++)
		if (dial->tries[i].fd >= 0)
			loop_cancel(dial->loop, dial->tries[i].tag);
	dial_free_maybe(dial);
}
