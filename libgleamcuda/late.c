// SPDX-License-Identifier: Apache-2.0
/*
 * Late copies. At most one a cell is in flight, so each session's table has an entry per cell and the cookie tells generations
 * apart. Application threads add and wait; the service thread lands. The bytes are stored by the service thread and by
 * whoever waits for them or for cells meanwhile: one core alone copies more slowly than a link brings them.
 */
#include "libgleamcuda/late.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "broker/lib/spin.h"
#include "broker/proto/progress.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/crew.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/service.h"
#include "libgleamcuda/session.h"

struct late {
	struct late *next;
	struct late_list *list; /* NULL: free */
	struct late_target target;
	struct bulk_ref ref;
	uint64_t seq; /* UINT64_MAX until posted: not yet countable, but in order */
	bool arrived; /* its bytes are in the cells and not yet stored */
	uint32_t size; /* of what arrived */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t landed = PTHREAD_COND_INITIALIZER;
/* guarded by lock: of each session */
static struct lates {
	struct late of_cell[SESSION_CELLS];
	uint32_t storing; /* copies whose bytes are being stored, by any thread */
	uint32_t landings; /* notices whose bytes are in place, as PROGRESS_LANDINGS counts them */
	uint32_t newest;   /* of those that have come */
	uint32_t news;	   /* landings that have come, and those that are in place: read without the lock, too */
	bool failed; /* the session has ended: nothing lands any more */
} lates[SESSIONS_MAX];
static uint64_t cookies;
static struct spin landing_spin; /* how long those who wait look for the next landing */
static uint32_t under_way; /* also read without it */

static bool wait_helps_locked(struct session *s);

static struct late *late_of(const struct session *s, const struct bulk_ref *ref)
{
	uint32_t cell = ref->offset / SESSION_CELL_SIZE;

	if (cell >= SESSION_CELLS || ref->offset % SESSION_CELL_SIZE)
		return NULL;

	struct late *late = &lates[s->index].of_cell[cell];

	return late->list && late->ref.cookie == ref->cookie ? late : NULL;
}

CUresult late_add(struct session *s, struct late_list *list, struct bulk_ref *ref, const struct late_target *target)
{
	pthread_mutex_lock(&lock);

	struct late *late = &lates[s->index].of_cell[ref->offset / SESSION_CELL_SIZE];

	ref->cookie = ++cookies;
	*late = (struct late){ .list = list, .target = *target, .ref = *ref, .seq = UINT64_MAX };
	if (list->last)
		list->last->next = late;
	else
		__atomic_store_n(&list->first, late, __ATOMIC_RELEASE);
	list->last = late;
	__atomic_fetch_add(&under_way, 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

bool late_any(void)
{
	return __atomic_load_n(&under_way, __ATOMIC_ACQUIRE) != 0;
}

void late_posted(struct session *s, const struct bulk_ref *ref, uint64_t seq)
{
	pthread_mutex_lock(&lock);

	struct late *late = late_of(s, ref);

	/* It may have landed already. */
	if (late)
		late->seq = seq;
	pthread_mutex_unlock(&lock);
}

static void late_remove_locked(struct late *late)
{
	struct late_list *list = late->list;
	struct late *before = NULL;

	for (struct late *at = list->first; at && at != late; at = at->next)
		before = at;
	if (before)
		before->next = late->next;
	else
		/* Pairs with the acquire of those who look without the lock: the bytes are there when the list is empty. */
		__atomic_store_n(&list->first, late->next, __ATOMIC_RELEASE);
	if (list->last == late)
		list->last = before;
	late->list = NULL;
	__atomic_fetch_sub(&under_way, 1, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&landed);
}

/* Copies of a stream may land out of order (bulk lanes), so the whole list counts. An unposted one is of a later command. */
static bool late_done_locked(const struct late_list *list, uint64_t seq)
{
	for (const struct late *late = list->first; late; late = late->next)
		if (late->seq <= seq)
			return false;
	return true;
}

bool late_done(const struct late_list *list, uint64_t seq)
{
	bool done;

	/* Most streams never have one. A racing add is of a command that the caller does not ask about. */
	if (!__atomic_load_n(&list->first, __ATOMIC_ACQUIRE))
		return true;
	pthread_mutex_lock(&lock);
	done = late_done_locked(list, seq);
	pthread_mutex_unlock(&lock);
	return done;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/*
 * Looks for the next landing, and takes it from among the notices: one that wakes the service thread, which wakes whoever waits, costs two wake-ups more
 * than its bytes. The lock is let go of meanwhile. False: it is time to sleep, @from_ns after it began.
 */
static bool look_locked(struct session *s, uint64_t from_ns)
{
	const uint32_t *news = &lates[s->index].news;
	uint32_t before = *news;
	uint64_t limit = call_spin_limit();
	uint64_t ns = spin_ns(&landing_spin);
	uint64_t now = from_ns;
	unsigned turns = 0;
	bool came;

	pthread_mutex_unlock(&lock);
	while (!(came = service_landings_take(s) || __atomic_load_n(news, __ATOMIC_RELAXED) != before) && now - from_ns < ns) {
		spin_rest(now - from_ns, limit, &turns);
		now = now_ns();
	}
	pthread_mutex_lock(&lock);
	if (came)
		spin_learn(&landing_spin, now - from_ns, limit);
	return came;
}

/*
 * Stores what has arrived, or waits for more: one turn of every wait. *@looked_ns: when it began to look for the next landing, 0 at first and when
 * that has come. DEVICE_UNAVAILABLE: nothing lands any more.
 */
static CUresult landing_locked(struct session *s, uint64_t *looked_ns)
{
	if (lates[s->index].failed)
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	if (wait_helps_locked(s))
		return CUDA_SUCCESS;
	if (!*looked_ns) {
		uint64_t now = now_ns();

		/* Before the sleep the caller looks once more at what it waits for, since the lock was let go of. */
		*looked_ns = look_locked(s, now) ? 0 : now;
		return CUDA_SUCCESS;
	}
	pthread_cond_wait(&landed, &lock);
	spin_learn(&landing_spin, now_ns() - *looked_ns, call_spin_limit());
	*looked_ns = 0;
	return CUDA_SUCCESS;
}

CUresult late_wait(struct session *s, const struct late_list *list, uint64_t seq)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t looked_ns = 0;

	if (!__atomic_load_n(&list->first, __ATOMIC_ACQUIRE))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	while (!result && !late_done_locked(list, seq))
		result = landing_locked(s, &looked_ns);
	pthread_mutex_unlock(&lock);
	return result;
}

static bool told_done_locked(struct session *s)
{
	/* Pairs with the release in session_progress_post(). */
	uint32_t told = __atomic_load_n(shm_progress(&s->shm, PROGRESS_LANDINGS), __ATOMIC_ACQUIRE);
	const struct lates *l = &lates[s->index];

	/* Of as many as have come none is missing when they are as many as the newest says: or else it may have overtaken one that was told. */
	return progress_reached(l->landings, told) && progress_reached(l->landings, l->newest);
}

bool late_told_done(struct session *s)
{
	bool done;

	pthread_mutex_lock(&lock);
	done = told_done_locked(s);
	pthread_mutex_unlock(&lock);
	return done;
}

CUresult late_told_wait(struct session *s)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t looked_ns = 0;

	pthread_mutex_lock(&lock);
	while (!result && !told_done_locked(s))
		result = landing_locked(s, &looked_ns);
	pthread_mutex_unlock(&lock);
	return result;
}

static uintptr_t target_end(const struct late_target *t)
{
	return (uintptr_t)t->bytes + (t->rows - 1) * t->pitch + t->width;
}

static bool target_meets(const struct late_target *t, uintptr_t from, uintptr_t end)
{
	return (uintptr_t)t->bytes < end && from < target_end(t);
}

static bool context_done_locked(const struct session *s, uint32_t context, uint64_t seq)
{
	const struct late *late = lates[s->index].of_cell;

	for (uint32_t i = 0; i < SESSION_CELLS; i++)
		if (late[i].list && late[i].target.context == context && late[i].seq <= seq)
			return false;
	return true;
}

CUresult late_wait_context(struct session *s, uint32_t context, uint64_t seq)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t looked_ns = 0;

	if (!late_any())
		return CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	while (!result && !context_done_locked(s, context, seq))
		result = landing_locked(s, &looked_ns);
	pthread_mutex_unlock(&lock);
	return result;
}

static bool range_meets_locked(const struct session *s, uintptr_t from, uintptr_t end)
{
	const struct late *late = lates[s->index].of_cell;

	for (uint32_t i = 0; i < SESSION_CELLS; i++)
		if (late[i].list && target_meets(&late[i].target, from, end))
			return true;
	return false;
}

void late_wait_range(const void *bytes, size_t size)
{
	uintptr_t from = (uintptr_t)bytes;
	uint64_t looked_ns = 0;
	struct session *s;

	if (!late_any())
		return;
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; (s = session_at(i)); i++)
		while (range_meets_locked(s, from, from + size) && !landing_locked(s, &looked_ns))
			;
	pthread_mutex_unlock(&lock);
}

static void late_store(const struct late *late, const uint8_t *bytes)
{
	const struct late_target *t = &late->target;

	if (t->rows == 1) {
		crew_copy(t->bytes, bytes, t->width);
		return;
	}
	for (size_t row = 0; row < t->rows; row++)
		memcpy((uint8_t *)t->bytes + row * t->pitch, bytes + row * t->width, t->width);
}

/* An older copy to the same bytes is still on its way: lanes overtake each other, but the younger copy's bytes stay. */
static bool older_meets_locked(const struct late *all, const struct late *late)
{
	for (uint32_t i = 0; i < SESSION_CELLS; i++)
		if (all[i].list && all[i].ref.cookie < late->ref.cookie &&
		    target_meets(&all[i].target, (uintptr_t)late->target.bytes, target_end(&late->target)))
			return true;
	return false;
}

static struct late *arrived_locked(const struct session *s)
{
	struct late *all = lates[s->index].of_cell;

	for (uint32_t i = 0; i < SESSION_CELLS; i++)
		if (all[i].list && all[i].arrived && !older_meets_locked(all, &all[i]))
			return &all[i];
	return NULL;
}

/* Stores a copy that has arrived and need not wait for older bytes; false: there is none. Lock held, and let go of meanwhile. */
static bool arrived_store_locked(struct session *s)
{
	struct late *late = arrived_locked(s);

	if (!late)
		return false;

	struct late copy = *late;

	late->arrived = false; /* ours; it stays in its list until the bytes are in place */
	lates[s->index].storing++;
	pthread_mutex_unlock(&lock);
	/* Fewer bytes than asked for: the command was skipped after a failure, which the context's error word tells. */
	if (copy.size == copy.ref.size) {
		shm_down_touch(&s->shm, copy.ref.offset, copy.size, false);
		late_store(&copy, shm_down(&s->shm) + copy.ref.offset);
	}
	pthread_mutex_lock(&lock);
	lates[s->index].storing--;
	lates[s->index].landings++;
	__atomic_fetch_add(&lates[s->index].news, 1, __ATOMIC_RELAXED);
	late_remove_locked(late);
	pthread_mutex_unlock(&lock);
	session_cells_give(s, &copy.ref);
	pthread_mutex_lock(&lock);
	return true;
}

/*
 * Before a wait: stores whatever there is to store, also what that has made storable, for the service thread may be asleep by then.
 * True: look again at what is waited for.
 */
static bool wait_helps_locked(struct session *s)
{
	bool any = false;

	while (arrived_store_locked(s))
		any = true;
	return any;
}

bool late_help(struct session *s)
{
	bool any;

	if (!late_any())
		return false;
	pthread_mutex_lock(&lock);
	any = wait_helps_locked(s);
	pthread_mutex_unlock(&lock);
	return any;
}

bool late_store_one(struct session *s)
{
	bool any;

	if (!late_any())
		return false;
	pthread_mutex_lock(&lock);
	any = arrived_store_locked(s);
	pthread_mutex_unlock(&lock);
	return any;
}

void late_settle(struct session *s)
{
	if (!late_any())
		return;
	pthread_mutex_lock(&lock);
	while (wait_helps_locked(s) || lates[s->index].storing)
		if (lates[s->index].storing)
			pthread_cond_wait(&landed, &lock);
	pthread_mutex_unlock(&lock);
}

void late_cancel(struct session *s, const struct bulk_ref *ref)
{
	pthread_mutex_lock(&lock);

	struct late *late = late_of(s, ref);

	if (late) {
		late_remove_locked(late);
		wait_helps_locked(s);
	}
	pthread_mutex_unlock(&lock);
	session_cells_give(s, ref);
}

void late_landed(struct session *s, const struct bulk_ref *ref, uint32_t which)
{
	pthread_mutex_lock(&lock);

	struct late *late = late_of(s, ref);

	if (progress_reached(which, lates[s->index].newest))
		lates[s->index].newest = which;

	if (!late || late->arrived) {
		pthread_mutex_unlock(&lock);
		gleam_log("a landing at offset %u that nobody waits for", ref->offset);
		return;
	}
	late->arrived = true;
	late->size = ref->size;
	__atomic_fetch_add(&lates[s->index].news, 1, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&landed);
	pthread_mutex_unlock(&lock);
	session_cells_nudge(s);
}

void late_fail(struct session *s)
{
	pthread_mutex_lock(&lock);
	lates[s->index].failed = true;
	pthread_cond_broadcast(&landed);
	pthread_mutex_unlock(&lock);
}
