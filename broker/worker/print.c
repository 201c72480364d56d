// SPDX-License-Identifier: Apache-2.0
/*
 * Device printf. A driver prints when it is asked to synchronise, which the worker otherwise never does; so images are
 * searched for vprintf, and only sessions that have it pay. stdout is a pipe to a thread of our own, since a driver that
 * prints more than a pipe holds must not wait for the thread that it runs on.
 */
#include "broker/worker/print.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/fatbin_print.h"
#include "broker/worker/note.h"
#include "broker/worker/post.h"

#define TEXT_MAX   (4u << 20)  /* kept until the next synchronise; what comes on top is dropped, and that is said */
#define CHUNK	   (32u << 10) /* bytes of a notice */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static char *text;
static size_t text_size;
static size_t dropped;
static int pipe_fd = -1;
static bool wanted; /* atomic */

/* Everything that is in the pipe now. */
static void pipe_empty_locked(void)
{
	char bytes[16384];
	ssize_t size;

	while ((size = read(pipe_fd, bytes, sizeof(bytes))) > 0) {
		size_t room = TEXT_MAX - text_size;
		size_t take = (size_t)size < room ? (size_t)size : room;

		memcpy(text + text_size, bytes, take);
		text_size += take;
		dropped += (size_t)size - take;
	}
}

static void *print_run(void *arg)
{
	struct pollfd ready = { .fd = pipe_fd, .events = POLLIN };

	for (;;) {
		if (poll(&ready, 1, -1) < 0 && errno != EINTR)
			return NULL;
		if (ready.revents & (POLLHUP | POLLERR))
			return NULL;
		pthread_mutex_lock(&lock);
		pipe_empty_locked();
		pthread_mutex_unlock(&lock);
	}
}

int print_start(void)
{
	pthread_t thread;
	sigset_t all, before;
	int fds[2];
	int err;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	text = malloc(TEXT_MAX);
	if (!text || fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0 || dup2(fds[1], STDOUT_FILENO) < 0) {
		err = text ? -errno : -ENOMEM;
		free(text);
		close(fds[0]);
		close(fds[1]);
		return err;
	}
	close(fds[1]);
	pipe_fd = fds[0];
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&thread, NULL, print_run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!err)
		pthread_detach(thread);
	return -err;
}

/* ---- who prints ---- */

void print_look(const void *image, uint64_t size)
{
	if (!__atomic_load_n(&wanted, __ATOMIC_RELAXED) && fatbin_prints(image, size))
		__atomic_store_n(&wanted, true, __ATOMIC_RELEASE);
}

bool print_wanted(void)
{
	return pipe_fd >= 0 && __atomic_load_n(&wanted, __ATOMIC_ACQUIRE);
}

/* ---- sending ---- */

static void text_send(struct worker *w)
{
	static uint8_t payload[CHUNK + 16] __attribute__((aligned(8))); /* guarded by lock */

	/* What the driver printed through the C library. */
	fflush(stdout);
	pthread_mutex_lock(&lock);
	pipe_empty_locked();
	for (size_t at = 0; at < text_size; at += CHUNK) {
		struct writer p = writer_on(payload, sizeof(payload));

		put_bytes(&p, text + at, (uint32_t)(text_size - at < CHUNK ? text_size - at : CHUNK));
		post_notice(w, NOTICE_PRINT, 0, 0, payload, (uint32_t)p.at);
	}
	if (dropped)
		complain("%zu bytes of device printf were dropped: more than %u MiB between two synchronisations", dropped,
			 TEXT_MAX >> 20);
	text_size = dropped = 0;
	pthread_mutex_unlock(&lock);
}

void print_stream(struct worker *w, CUcontext context, CUstream driver)
{
	if (w->drv.cuCtxSetCurrent(context) == CUDA_SUCCESS)
		w->drv.cuStreamSynchronize(driver);
	text_send(w);
}

void print_context(struct worker *w, CUcontext context)
{
	w->current_known = false;
	if (w->drv.cuCtxSetCurrent(context) == CUDA_SUCCESS)
		w->drv.cuCtxSynchronize();
	text_send(w);
}

/* ---- as work goes on ---- */

/*
 * An event on an idle stream passes at once where the machine isn't busy, and never while its hardware queue stands still: then
 * the second time is a short one.
 */
#define SOON_PATIENT_NS (300 * 1000000ull)
#define SOON_SHORT_NS	(1 * 1000000ull)
#define SOON_PAUSE_NS	20000

/* A stream of our own in a context, and an event on it: to synchronise with something that never waits. */
struct printer {
	CUcontext context; /* NULL: it isn't open */
	CUstream stream;
	CUevent event;
	bool stands; /* the last wait was in vain */
};

static pthread_mutex_t printers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct printer printers[SESSION_CONTEXTS]; /* guarded by printers_lock */

void print_begin(uint32_t index, CUcontext context)
{
	pthread_mutex_lock(&printers_lock);
	printers[index] = (struct printer){ .context = context };
	pthread_mutex_unlock(&printers_lock);
}

void print_end(struct worker *w, uint32_t index, bool alive)
{
	struct printer *p = &printers[index];

	pthread_mutex_lock(&printers_lock);
	if (alive && p->event)
		w->drv.cuEventDestroy_v2(p->event);
	if (alive && p->stream)
		w->drv.cuStreamDestroy_v2(p->stream);
	*p = (struct printer){ .context = NULL };
	pthread_mutex_unlock(&printers_lock);
}

static bool printer_flush_locked(struct worker *w, struct printer *p)
{
	static const struct timespec pause = { .tv_nsec = SOON_PAUSE_NS };
	uint64_t begin_ns = clock_ns();

	if (!p->context || w->drv.cuCtxSetCurrent(p->context) != CUDA_SUCCESS)
		return false;
	if (!p->stream && w->drv.cuStreamCreate(&p->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
		p->stream = NULL;
		return false;
	}
	if (!p->event && w->drv.cuEventCreate(&p->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
		p->event = NULL;
		return false;
	}
	if (w->drv.cuEventRecord(p->event, p->stream) != CUDA_SUCCESS)
		return false;
	do {
		CUresult r = w->drv.cuEventQuery(p->event);

		if (r == CUDA_SUCCESS) {
			p->stands = false;
			/* Asking prints nothing, waiting does. */
			return w->drv.cuEventSynchronize(p->event) == CUDA_SUCCESS;
		}
		if (r != CUDA_ERROR_NOT_READY)
			return false;
		nanosleep(&pause, NULL);
	} while (clock_ns() - begin_ns < (p->stands ? SOON_SHORT_NS : SOON_PATIENT_NS));
	/* It may stand behind a stream that waits for the client, who waits for us. */
	p->stands = true;
	return false;
}

void print_soon(struct worker *w, uint32_t index)
{
	bool flushed;

	if (index >= SESSION_CONTEXTS)
		return;
	pthread_mutex_lock(&printers_lock);
	flushed = printer_flush_locked(w, &printers[index]);
	pthread_mutex_unlock(&printers_lock);
	if (flushed)
		text_send(w);
}
