/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ThreadSanitizer can't see by itself. It knows the threads of one process: where one of them hands something over by way of another
 * process (words of session memory, a connection), it has to be told, or it takes the next user for a race with the last. And memory
 * that program and kernels share is read while they write to it, and the other way round: what is missed is seen the next time. Nothing in
 * other builds. Any thread.
 */
#ifndef GLEAM_LIB_TSAN_H
#define GLEAM_LIB_TSAN_H

#include "broker/proto/space.h"

/* For limits of time: what runs under it takes about so many times as long. */
#ifdef SPACE_IS_TSAN
#define TSAN_SLOW 4u
#else
#define TSAN_SLOW 1u
#endif

#ifdef SPACE_IS_TSAN
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);

/* What this thread has done is done for whoever hears of it by the other side of @session. */
static inline void order_give(const void *session)
{
	__tsan_release((void *)session);
}

/* The other side of @session has said something: after what order_give() told it. */
static inline void order_take(const void *session)
{
	__tsan_acquire((void *)session);
}

/* Between the two it reads what may be being written, or writes what may be being read. */
static inline void foreign_begin(void)
{
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
}

static inline void foreign_end(void)
{
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
static inline void order_give(const void *session)
{
	(void)session;
}

static inline void order_take(const void *session)
{
	(void)session;
}

static inline void foreign_begin(void)
{
}

static inline void foreign_end(void)
{
}
#endif

#endif
