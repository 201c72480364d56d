// SPDX-License-Identifier: Apache-2.0
/*
 * The handler of page faults. It runs on the thread that has touched managed memory, which holds none of the library's locks:
 * so it may wait, as a call of that thread would. Everything else goes to the program's handler, or has the default effect.
 */
#include "libgleamcuda/segv.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

#include "libgleamcuda/region.h"

/* Handlers of the program, the newest at `newest`: one that is being called must not change. */
#define KEPT 8u
/* In si_errno, which faults leave 0: this one has been through here. A count would be wrong after a jump out of a handler. */
#define CHAINED 0x676c65

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction kept[KEPT]; /* guarded by lock; published by newest */
static uint32_t newest;		    /* atomic */

static void on_fault(int number, siginfo_t *info, void *context);

static bool was_write(const void *context)
{
#if defined(__x86_64__)
	const ucontext_t *u = context;

	return u->uc_mcontext.gregs[REG_ERR] & 2;
#else
	/* Not told in one way on all machines: a page that is only read then goes out once for nothing. */
	(void)context;
	return true;
#endif
}

/* As if no handler were there: the instruction is executed again, and ends the process. */
static void fall(void)
{
	signal(SIGSEGV, SIG_DFL);
}

static void chain(int number, siginfo_t *info, void *context)
{
	struct sigaction *before = &kept[__atomic_load_n(&newest, __ATOMIC_ACQUIRE) % KEPT];
	bool plain = !(before->sa_flags & SA_SIGINFO);
	siginfo_t copy = *info;
	sigset_t mask, blocked = before->sa_mask;

	/* The program's handler calls the one that it has replaced, which was this: nobody wants it. */
	if (info->si_errno == CHAINED || (plain && before->sa_handler == SIG_DFL)) {
		fall();
		return;
	}
	/* A fault can't be ignored; a signal that somebody has sent can. */
	if (plain && before->sa_handler == SIG_IGN) {
		if (info->si_code > 0)
			fall();
		return;
	}
	/* Not SIGSEGV itself: the handler may use managed memory. */
	sigdelset(&blocked, SIGSEGV);
	pthread_sigmask(SIG_BLOCK, &blocked, &mask);
	copy.si_errno = CHAINED;
	if (plain)
		before->sa_handler(number);
	else
		before->sa_sigaction(number, &copy, context);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	int saved = errno;

	/* Pages of ours are there and may not be touched; everything else is another kind of fault, or a sent signal. */
	if (info->si_code != SEGV_ACCERR || !region_fault((uint64_t)(uintptr_t)info->si_addr, was_write(context)))
		chain(number, info, context);
	errno = saved;
}

void segv_install(void)
{
	struct sigaction now, ours = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };

	if (sigaction(SIGSEGV, NULL, &now) || (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_fault))
		return;
	sigemptyset(&ours.sa_mask);
	pthread_mutex_lock(&lock);
	if (!sigaction(SIGSEGV, NULL, &now) && !(now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_fault)) {
		uint32_t next = newest + 1;

		kept[next % KEPT] = now;
		__atomic_store_n(&newest, next, __ATOMIC_RELEASE);
		sigaction(SIGSEGV, &ours, NULL);
	}
	pthread_mutex_unlock(&lock);
}
