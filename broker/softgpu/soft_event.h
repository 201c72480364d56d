/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events: the ticket of the last point at which they were recorded.
 */
#ifndef SOFT_EVENT_H
#define SOFT_EVENT_H

#include "broker/softgpu/soft_stream.h"

struct soft_event {
	struct soft_object object;
	unsigned int flags;
	pthread_mutex_t lock;
	/* guarded by lock; NULL until it is recorded */
	struct soft_ticket *ticket;
	/* guarded by the lock of captures: what it stands for in one */
	struct soft_mark *mark;
	_Atomic bool captured;
};

CUresult soft_event_find(CUevent handle, struct soft_event **event_out);

#define SOFT_EVENT_ARG(name, handle)              \
	SOFT_HELD struct soft_event *name = NULL; \
	TRY(soft_event_find(handle, &name))

/* Makes the event stand for @ticket from now on. */
void soft_event_set(struct soft_event *event, struct soft_ticket *ticket);

/* The ticket it stands for, counted; NULL where it was never recorded. */
struct soft_ticket *soft_event_ticket(struct soft_event *event);

CUresult soft_event_record(struct soft_event *event, struct soft_stream *stream);

#endif
