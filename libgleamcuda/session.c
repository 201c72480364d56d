// SPDX-License-Identifier: Apache-2.0
/*
 * The process's open sessions: the list of them, how each ends. What threads share of one (slots, cells, up pieces, words) is handed
 * out here. Any thread.
 */
#include "libgleamcuda/session.h"

#include <errno.h>
#include <sys/socket.h>
#include <time.h>

#include "broker/lib/slot.h"
#include "broker/lib/tsan.h"
#include "gen/ops.h"
#include "libgleamcuda/hostfunc.h"
#include "libgleamcuda/kdev.h"
#include "libgleamcuda/late.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/reconnect.h"

#define UP_AGAIN    (512u << 10) /* what small copies go round in: a part of any second level cache */
#define RELAY_CELLS 8u /* what one copy between servers has on its way */

/* Written by cuInit, the count behind its entry. */
static struct session *sessions[SESSIONS_MAX]; /* atomic */
static uint32_t opened_count;		       /* atomic */

struct session *session_current(void)
{
	return __atomic_load_n(&sessions[0], __ATOMIC_ACQUIRE);
}

struct session *session_at(uint32_t index)
{
	return index < SESSIONS_MAX ? __atomic_load_n(&sessions[index], __ATOMIC_ACQUIRE) : NULL;
}

uint32_t session_count(void)
{
	return __atomic_load_n(&opened_count, __ATOMIC_ACQUIRE);
}

struct session *session_of_unit(uint64_t unit)
{
	struct session *s;

	for (uint32_t i = 0; (s = session_at(i)); i++)
		if (unit >= s->first && unit - s->first < s->snapshot.device_count)
			return s;
	return NULL;
}

void session_show(struct session *s, uint32_t index)
{
	s->index = index;
	__atomic_store_n(&sessions[index], s, __ATOMIC_RELEASE);
	__atomic_store_n(&opened_count, index + 1, __ATOMIC_RELEASE);
}

/* ---- death ---- */

bool session_is_dead(struct session *s)
{
	return __atomic_load_n(&s->dead, __ATOMIC_RELAXED) ||
	       __atomic_load_n(&s->header->state, __ATOMIC_ACQUIRE) == SESSION_DEAD;
}

bool session_has_ended(const struct session *s)
{
	char byte;
	ssize_t size = recv(s->socket, &byte, 1, MSG_DONTWAIT | MSG_PEEK);

	return size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR);
}

bool session_check(struct session *s)
{
	if (session_is_dead(s))
		return true;
	if (!s->kernel)
		return session_has_ended(s) && reconnect_look(s);
	if (!kdev_is_over(s->socket))
		return false;
	if (!__atomic_exchange_n(&s->dead, 1, __ATOMIC_RELAXED))
		gleam_log("gleamd has ended: every CUDA call fails from now on; start it (systemctl start gleamd), then the program again");
	return true;
}

CUresult session_death(struct session *s)
{
	if (!__atomic_exchange_n(&s->death_told, 1, __ATOMIC_RELAXED)) {
		static const char *const reasons[] = {
			[END_NONE] = "gleamd has ended",
			[END_CLIENT_GONE] = "the session was closed",
			[END_WORKER_DIED] = "the worker process on the server died (its log says why)",
			[END_LINK_LOST] = "the connection to the server was lost",
			[END_PROTOCOL] = "the server ended it for a broken protocol",
			[END_NO_SERVER] = "no server is reachable",
			[END_NO_DEVICE] = "the server has no usable GPU",
			[END_REFUSED] = "the server refused it",
			[END_VERSION] = "library and server are of different versions",
			[END_SHUTDOWN] = "the server is shutting down",
		};
		uint32_t reason = __atomic_load_n(&s->header->reason, __ATOMIC_RELAXED);

		/* The kernel says so, too, when no gleamd has come back in time. */
		if (s->kernel && reason == END_SHUTDOWN)
			gleam_log("session with %s: gleamd was stopped, or has ended and did not come back in time; every CUDA call fails from "
				  "now on; start it (systemctl start gleamd), then the program again", s->server);
		else
			gleam_log("session with %s: %s; every CUDA call fails from now on", s->server,
				  reason < sizeof(reasons) / sizeof(reasons[0]) && reasons[reason] ? reasons[reason] : "ended");
	}
	return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

/* ---- slots ---- */

uint16_t session_slot_take(struct session *s)
{
	static __thread uint32_t first; /* threads begin in different words, so that they seldom meet */

	for (;;) {
		for (uint32_t i = 0; i < SESSION_SLOTS / 64; i++) {
			uint32_t at = (first + i) % (SESSION_SLOTS / 64);
			uint64_t used = __atomic_load_n(&s->slots_used[at], __ATOMIC_RELAXED);

			while (used != ~0ull) {
				uint32_t bit = (uint32_t)__builtin_ctzll(~used);

				if (__atomic_compare_exchange_n(&s->slots_used[at], &used, used | 1ull << bit, false,
								__ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
					first = at;
					return (uint16_t)(at * 64 + bit);
				}
			}
		}
		/* More than SESSION_SLOTS threads wait at once: rare enough for a short nap. */
		nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
	}
}

void session_slot_give(struct session *s, uint16_t slot)
{
	__atomic_fetch_and(&s->slots_used[slot / 64], ~(1ull << slot % 64), __ATOMIC_RELEASE);
}

/* ---- arenas ---- */

enum up_room { UP_ROOM, UP_FULL, UP_UNPOSTED };

/* UNPOSTED: other threads' commands have to be in the ring first. @tail_out: how far the worker had come. */
static enum up_room up_take(struct session *s, uint32_t size, struct bulk_ref *ref_out, void **bytes_out, uint64_t *tail_out)
{
	uint64_t need = (size + (uint64_t)SESSION_GRANULE - 1) & ~(uint64_t)(SESSION_GRANULE - 1);
	enum up_room room = UP_ROOM;

	pthread_mutex_lock(&s->up_lock);

	uint64_t tail = __atomic_load_n(&s->header->up_tail, __ATOMIC_ACQUIRE);
	uint64_t at = s->up_head;
	uint32_t offset = (uint32_t)(at % SESSION_UP_SIZE);
	bool empty = tail == at;
	/*
	 * A piece does not wrap: what is left at the end is passed over. Where nothing is in the arena its beginning is taken again,
	 * whose pages are mapped and in the caches of everybody on the way.
	 */
	bool gap = need > SESSION_UP_SIZE - offset || (empty && offset >= UP_AGAIN && offset >= need);
	/*
	 * What was passed over of an empty arena is free at once, to the worker as well, and not only when the piece behind it has been
	 * used up: else there is no room beside that one, and the next one finds an empty arena, too.
	 */
	uint64_t taken = tail == s->up_empty ? s->up_begun : tail;

	if (gap) {
		at += SESSION_UP_SIZE - offset;
		offset = 0;
	}
	/* A tail that is ahead of our head is a broken daemon's: there is no room then, for ever. */
	if (tail > s->up_head || at + need - taken > SESSION_UP_SIZE)
		room = UP_FULL;
	else if (s->up_first || (gap && s->up_open))
		room = UP_UNPOSTED;
	if (room == UP_ROOM) {
		if (gap && empty) {
			s->up_empty = tail;
			s->up_begun = at;
		}
		s->up_head = at + need;
		s->up_open++;
		if (gap)
			s->up_first = at;
		__atomic_store_n(&s->header->up_head, s->up_head, __ATOMIC_RELAXED);
		*ref_out = (struct bulk_ref){ .offset = offset, .size = size, .cookie = at };
		*bytes_out = shm_up(&s->shm) + offset;
	}
	pthread_mutex_unlock(&s->up_lock);
	*tail_out = tail;
	if (room == UP_ROOM)
		shm_up_touch(&s->shm, ref_out->offset, size, true);
	return room;
}

bool session_up_try(struct session *s, uint32_t size, struct bulk_ref *ref_out, void **bytes_out)
{
	uint64_t tail;

	return up_take(s, size, ref_out, bytes_out, &tail) == UP_ROOM;
}

CUresult session_up_take(struct session *s, uint32_t size, struct bulk_ref *ref_out, void **bytes_out)
{
	enum up_room room;
	uint64_t tail;

	while ((room = up_take(s, size, ref_out, bytes_out, &tail)) != UP_ROOM) {
		/* They are at it: copying a MiB at most. */
		if (room == UP_UNPOSTED)
			nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
		else if (session_up_wait(&s->shm, tail, SESSION_LOOK_NS) == -ETIMEDOUT)
			session_check(s);
		if (session_is_dead(s))
			return session_death(s);
	}
	return CUDA_SUCCESS;
}

CUresult session_cells_take(struct session *s, uint32_t size, struct bulk_ref *ref_out, void **bytes_out)
{
	uint32_t count = (size + SESSION_CELL_SIZE - 1) / SESSION_CELL_SIZE;
	uint64_t run = count >= 64 ? ~0ull : (1ull << count) - 1;
	bool idle = false; /* there is nothing to store */
	/* Streams that wait for another server may hold all that there are: some are kept for what lets them go on. */
	uint32_t cells = session_count() > 1 && !hostfunc_relays() ? SESSION_CELLS - RELAY_CELLS : SESSION_CELLS;
	int err = 0;

	pthread_mutex_lock(&s->cell_lock);
	for (;;) {
		for (uint32_t at = 0; at + count <= cells; at++) {
			if (s->cells_used & run << at)
				continue;
			s->cells_used |= run << at;
			pthread_mutex_unlock(&s->cell_lock);
			*ref_out = (struct bulk_ref){ .offset = at * SESSION_CELL_SIZE, .size = size };
			*bytes_out = shm_down(&s->shm) + ref_out->offset;
			return CUDA_SUCCESS;
		}
		if (session_is_dead(s) || (err == ETIMEDOUT && session_check(s))) {
			pthread_mutex_unlock(&s->cell_lock);
			return session_death(s);
		}

		if (!idle) {
			/* Cells get free by what is stored. Then they are looked at once more, before the sleep. */
			pthread_mutex_unlock(&s->cell_lock);
			idle = !late_help(s);
			pthread_mutex_lock(&s->cell_lock);
			continue;
		}
		idle = false;

		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += 1;
		err = pthread_cond_timedwait(&s->cell_freed, &s->cell_lock, &until);
	}
}

void session_cells_give(struct session *s, const struct bulk_ref *ref)
{
	uint32_t count = (ref->size + SESSION_CELL_SIZE - 1) / SESSION_CELL_SIZE;
	uint64_t run = count >= 64 ? ~0ull : (1ull << count) - 1;

	pthread_mutex_lock(&s->cell_lock);
	s->cells_used &= ~(run << ref->offset / SESSION_CELL_SIZE);
	pthread_cond_broadcast(&s->cell_freed);
	pthread_mutex_unlock(&s->cell_lock);
}

void session_cells_nudge(struct session *s)
{
	/* Without the lock: who misses it sleeps until a cell is given back. */
	pthread_cond_broadcast(&s->cell_freed);
}

/* ---- words ---- */

bool session_reached(const struct session *s, uint32_t word, uint64_t seq)
{
	/* Pairs with the release in session_progress_post(). 32 bits of the sequence: work in flight is far less than 2^31. */
	uint32_t value = __atomic_load_n(shm_progress(&s->shm, word), __ATOMIC_ACQUIRE);

	if ((int32_t)(value - (uint32_t)seq) < 0)
		return false;
	order_take(s);
	return true;
}

CUresult session_error_peek(const struct session *s, uint32_t index)
{
	return (CUresult)__atomic_load_n(&shm_error(&s->shm, index)->code, __ATOMIC_ACQUIRE);
}

CUresult session_error_take(struct session *s, uint32_t index)
{
	struct error_word *word = shm_error(&s->shm, index);
	uint32_t code = __atomic_load_n(&word->code, __ATOMIC_ACQUIRE);

	if (!code)
		return CUDA_SUCCESS;

	uint32_t op = __atomic_load_n(&word->op, __ATOMIC_RELAXED);

	gleam_log("%s (command %llu) failed with %u", op < OP_MAX && op_info[op].name ? op_info[op].name : "a command",
		  (unsigned long long)__atomic_load_n(&word->seq, __ATOMIC_RELAXED), code);
	if (!result_is_sticky((CUresult)code))
		__atomic_store_n(&word->code, 0, __ATOMIC_RELEASE);
	return (CUresult)code;
}
