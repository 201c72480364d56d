/* SPDX-License-Identifier: Apache-2.0 */
/* Work beside the loop. See aside.h. */
#include "broker/local/aside.h"

#include <assert.h>
#include <signal.h>
#include <stddef.h>

static void aside_put(struct aside *aside)
{
	bool last;

	pthread_mutex_lock(&aside->lock);
	last = --aside->refs == 0;
	pthread_mutex_unlock(&aside->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&aside->lock);
	pthread_cond_destroy(&aside->bell);
	aside->ops->free(aside);
}

static void aside_done(struct loop_post *post)
{
	struct aside *aside = (struct aside *)((char *)post - offsetof(struct aside, post));
	bool left;

	pthread_mutex_lock(&aside->lock);
	left = aside->left;
	pthread_mutex_unlock(&aside->lock);
	aside->busy = false;
	if (!left)
		aside->ops->done(aside);
	aside_put(aside);
}

static void *aside_main(void *arg)
{
	struct aside *aside = arg;

	pthread_setname_np(pthread_self(), "gleam-save");
	for (;;) {
		pthread_mutex_lock(&aside->lock);
		while (!aside->wanted && !aside->left)
			pthread_cond_wait(&aside->bell, &aside->lock);
		if (aside->left) {
			pthread_mutex_unlock(&aside->lock);
			break;
		}
		aside->wanted = false;
		pthread_mutex_unlock(&aside->lock);
		aside->ops->work(aside);
		/* Once it is left the loop may be gone. */
		pthread_mutex_lock(&aside->lock);
		if (!aside->left) {
			aside->refs++;
			loop_post(aside->loop, &aside->post);
		}
		pthread_mutex_unlock(&aside->lock);
	}
	aside_put(aside);
	return NULL;
}

int aside_start(struct aside *aside, const struct aside_ops *ops, struct loop *loop)
{
	pthread_attr_t attr;
	sigset_t all, before;
	pthread_t thread;
	int err;

	aside->ops = ops;
	aside->loop = loop;
	aside->refs = 2;
	aside->post.run = aside_done;
	pthread_mutex_init(&aside->lock, NULL);
	pthread_cond_init(&aside->bell, NULL);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&thread, &attr, aside_main, aside);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (!err)
		return 0;
	pthread_mutex_destroy(&aside->lock);
	pthread_cond_destroy(&aside->bell);
	return -err;
}

void aside_go(struct aside *aside)
{
	assert(!aside->busy);
	aside->busy = true;
	pthread_mutex_lock(&aside->lock);
	aside->wanted = true;
	pthread_cond_signal(&aside->bell);
	pthread_mutex_unlock(&aside->lock);
}

void aside_leave(struct aside *aside)
{
	pthread_mutex_lock(&aside->lock);
	aside->left = true;
	pthread_cond_signal(&aside->bell);
	pthread_mutex_unlock(&aside->lock);
	aside_put(aside);
}
