/* SPDX-License-Identifier: Apache-2.0 */
/* A seat whose link is lost: worker and memory wait for its broker, and go on with it. Control thread; see seat_private.h. */
#include "broker/node/seat_private.h"

#include <assert.h>
#include <string.h>

#include "broker/lib/clock.h"
#include "broker/lib/log.h"

void seat_away_over(void *arg)
{
	struct seat *seat = arg;

	if (seat->state == SEAT_AWAY)
		seat_end(seat, END_LINK_LOST, "its broker did not come back after the link was lost", false);
}

bool seat_away(struct seat *seat, uint64_t limit_ns)
{
	/* A client that has the worker's memory ends with the link to ourselves, that is with this daemon. */
	if (seat->state != SEAT_LIVE || limit_ns == 0 || seat->direct)
		return false;
	loop_timer_clear(seat->loop, &seat->consumed);
	loop_timer_clear(seat->loop, &seat->ask);
	seat_unlink(seat);
	seat->state = SEAT_AWAY;
	loop_timer_set(seat->loop, &seat->away, loop_now_ns(seat->loop) + limit_ns);
	log_info("session %u of %s (%s, pid %u): waits up to %.1f s for its broker", seat->mirror.id, seat->host,
		 seat->client.program, seat->client.pid, (double)limit_ns / (double)NS_PER_S);
	return true;
}

bool seat_is_away(const struct seat *seat)
{
	return seat->state == SEAT_AWAY;
}

bool seat_is(const struct seat *seat, const uint8_t token[RESUME_TOKEN_SIZE], const char *tenant)
{
	return seat->state < SEAT_LEFT && memcmp(seat->client.token, token, RESUME_TOKEN_SIZE) == 0 &&
	       strcmp(seat->tenant, tenant) == 0;
}

bool seat_is_of(const struct seat *seat, uint32_t pid, uint32_t uid)
{
	return seat->client.pid == pid && seat->client.uid == uid;
}

void seat_resume_later(struct seat *seat, struct link *link, uint32_t session, const struct seat_resume *resume)
{
	seat->later_link = link;
	seat->later_session = session;
	seat->later = *resume;
}

struct link *seat_resume_link(const struct seat *seat)
{
	return seat->later_link;
}

void seat_resume_forget(struct seat *seat)
{
	seat->later_link = NULL;
}

/* The answer to RESUME. */
static void seat_resumed_send(struct link *link, uint32_t session, enum session_end end, const char *why, uint64_t position,
		       uint64_t tail, const uint32_t *landed)
{
	uint8_t bytes[LINK_TEXT_MAX + 64 + SESSION_GRANULES * 4] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));

	put_u32(&w, end);
	put_str(&w, why);
	put_u64(&w, position);
	put_u64(&w, tail);
	put_block(&w, landed, SESSION_GRANULES * 4);
	assert(!w.fault);
	link_send(link, LINK_RESUMED, session, NULL, 0, bytes, w.at);
}

void seat_resume_refuse(struct link *link, uint32_t session, enum session_end end, const char *why)
{
	static const uint32_t none[SESSION_GRANULES];

	seat_resumed_send(link, session, end, why, 0, 0, none);
}

bool seat_resume_due(struct seat *seat)
{
	const struct seat_resume *resume = &seat->later;
	struct link *link = seat->later_link;
	uint32_t session = seat->later_session;
	uint32_t landed[SESSION_GRANULES];

	assert(seat->state == SEAT_AWAY && link);
	seat->later_link = NULL;
	if (seat->over != END_NONE) {
		seat_resume_refuse(link, session, seat->over, seat->over_why);
		seat_end(seat, seat->over, seat->over_why, false);
		return false;
	}
	if (resume->frames > seat->frames_sent || resume->frames < seat->frames_seen || resume->bulk > seat->bulk_sent ||
	    resume->bulk < seat->bulk_seen) {
		seat_resume_refuse(link, session, END_PROTOCOL, "the broker has frames that were never sent");
		seat_end(seat, END_PROTOCOL, "its broker came back with frames that were never sent", false);
		return false;
	}
	if (!seat_tail_look(seat)) {
		seat_resume_refuse(link, session, END_PROTOCOL, "the worker broke the protocol: tail of its command ring");
		seat_end(seat, END_PROTOCOL, "the worker broke the protocol: tail of its command ring", false);
		return false;
	}
	loop_timer_clear(seat->loop, &seat->away);
	/* What hasn't come is read from the ring once more; frames get the same numbers again, as they have one order. */
	seat_drop_seen(seat, resume->frames, resume->bulk);
	seat->had = *resume;
	seat->n2c.at = seat->n2c_kept;
	seat->unseen_head = seat->unseen_tail;
	seat->frames_sent = seat->frames_seen;
	seat->bulk_sent = seat->bulk_seen;

	seat->mirror.id = session;
	seat->link = link;
	seat->state = SEAT_LIVE;
	link_mirror_add(link, &seat->mirror);
	seat->told = seat->seen;
	for (uint32_t i = 0; i < SESSION_GRANULES; i++)
		landed[i] = __atomic_load_n(shm_landed(&seat->mirror.shm, i), __ATOMIC_ACQUIRE);
	seat_resumed_send(link, session, END_NONE, "", seat->c2n.at, seat->seen, landed);
	seat->look_ns = SEAT_CONSUMED_NS;
	loop_timer_set(seat->loop, &seat->consumed, loop_now_ns(seat->loop) + SEAT_CONSUMED_NS);
	log_info("session %u of %s (%s, pid %u): goes on", seat->mirror.id, seat->host, seat->client.program, seat->client.pid);
	return true;
}
