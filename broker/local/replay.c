/* SPDX-License-Identifier: Apache-2.0 */
/* A record is done again. See replay.h. */
#include "broker/local/replay.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/clock.h"
#include "broker/lib/codec.h"
#include "broker/lib/ring.h"
#include "broker/proto/progress.h"

/*
 * An answer may wait for a host function that the program has yet to run, and it runs none before it has its session back. So where one is due, only
 * so much silence is waited for: bytes of other streams' work that come later go to the program itself, but for those that a lane has in its hands at the
 * very moment of the change.
 */
#define QUIET_NS (500 * NS_PER_MS)

/* What has come, in its order, until the record comes to it. */
struct arrived {
	struct arrived *next;
	bool early; /* before the record was over */
	struct frame_hdr hdr;
	struct sum128 sum;
	uint32_t cells; /* bytes behind the frame */
	uint8_t frame[] __attribute__((aligned(8)));
};

struct replay {
	const struct record *record;
	struct mirror *mirror;
	/* control thread */
	uint64_t at;
	const struct step *step; /* that is waited for */
	uint64_t asked; /* commands that an answer comes to */

	pthread_mutex_t lock;
	/* guarded by lock */
	struct arrived *first;
	struct arrived **last;
	uint64_t answered;
	uint32_t progress[SESSION_PROGRESS_WORDS];
	uint64_t up_tail;
	uint64_t heard_ns; /* when something came last */
	bool over; /* all of the record has been done */
	bool lost; /* no memory for one */
};

struct replay *replay_new(const struct record *record, struct mirror *mirror)
{
	struct replay *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->record = record;
	p->mirror = mirror;
	p->last = &p->first;
	pthread_mutex_init(&p->lock, NULL);
	return p;
}

void replay_free(struct replay *p)
{
	if (!p)
		return;
	while (p->first) {
		struct arrived *next = p->first->next;

		free(p->first);
		p->first = next;
	}
	pthread_mutex_destroy(&p->lock);
	free(p);
}

bool replay_frame(struct replay *p, const uint8_t *frame, uint32_t size)
{
	struct reader in;
	struct frame_hdr hdr;
	struct arrived *a;
	struct bulk_ref ref = { .size = 0 };
	uint32_t word, value;
	bool right = true, same;

	if (size < sizeof(hdr))
		return false;
	memcpy(&hdr, frame, sizeof(hdr));
	if (hdr.size != size || size > FRAME_SIZE_MAX || (hdr.flags & ~FRAME_FLAGS) || (hdr.flags & (FRAME_BULK_UP | FRAME_BULK_FILE)) ||
	    (hdr.kind != FRAME_REPLY && hdr.kind != FRAME_NOTICE))
		return false;
	in = reader_on(frame + sizeof(hdr), size - sizeof(hdr));
	if (hdr.flags & FRAME_BULK_DOWN) {
		if (size < sizeof(hdr) + sizeof(ref))
			return false;
		ref = ring_bulk_ref(frame);
		if (ref.offset > SESSION_DOWN_SIZE || ref.size > SESSION_DOWN_SIZE - ref.offset)
			return false;
	}
	pthread_mutex_lock(&p->lock);
	p->heard_ns = clock_ns();
	if (hdr.kind == FRAME_NOTICE && hdr.op == NOTICE_PROGRESS) {
		word = get_u32(&in);
		value = get_u32(&in);
		right = !in.fault && word < SESSION_PROGRESS_WORDS;
		if (right && (!p->progress[word] || progress_reached(value, p->progress[word])))
			p->progress[word] = value;
	} else if (hdr.kind == FRAME_NOTICE && hdr.op == NOTICE_CONSUMED) {
		uint64_t tail = get_u64(&in);

		right = !in.fault && tail >= p->up_tail;
		if (right)
			p->up_tail = tail;
	} else if (hdr.kind != FRAME_NOTICE || (hdr.op != NOTICE_TRACE && hdr.op != NOTICE_RECALL)) {
		a = malloc(sizeof(*a) + RING_ALIGN(size) + ref.size);
		p->lost |= !a;
		if (a) {
			*a = (struct arrived){ .hdr = hdr, .cells = ref.size, .early = !p->over };
			memcpy(a->frame, frame, size);
			if (ref.size)
				memcpy(a->frame + RING_ALIGN(size), shm_down(&p->mirror->shm) + ref.offset, ref.size);
			a->sum = record_sum(&hdr, frame, shm_down(&p->mirror->shm), &same);
			*p->last = a;
			p->last = &a->next;
		}
		p->answered += hdr.kind == FRAME_REPLY || hdr.op == NOTICE_LANDED;
	}
	pthread_mutex_unlock(&p->lock);
	return right;
}

/* 1: it has come again; 0: not yet; -1: as another one. */
static int answer_look_locked(struct replay *p, const struct step *step)
{
	for (struct arrived **link = &p->first; *link; link = &(*link)->next) {
		struct arrived *a = *link;
		bool same = !step->same || (a->sum.a == step->sum.a && a->sum.b == step->sum.b);

		if (a->hdr.kind != step->name.kind || a->hdr.op != step->name.op || a->hdr.seq != step->name.seq)
			continue;
		*link = a->next;
		if (!*link)
			p->last = link;
		free(a);
		return same ? 1 : -1;
	}
	return 0;
}

/* The piece goes to its place in the arena, which what was consumed before has left. */
static bool command_send(struct replay *p, const struct step *step, struct wire *wire)
{
	struct frame_hdr hdr;
	struct bulk_item *item;
	struct bulk_ref ref;

	memcpy(&hdr, step->frame, sizeof(hdr));
	if (!step->bulk)
		return wire_put(wire, step->frame, hdr.size);
	if (mirror_is_full(p->mirror))
		return false;
	item = malloc(sizeof(*item));
	if (!item || !wire_put(wire, step->frame, hdr.size)) {
		free(item);
		return false;
	}
	ref = ring_bulk_ref(step->frame);
	memcpy(shm_up(&p->mirror->shm) + ref.offset, step->frame + RING_ALIGN(hdr.size), step->bulk);
	*item = (struct bulk_item){ .seq = hdr.seq, .cookie = ref.cookie, .offset = ref.offset, .size = ref.size };
	link_bulk(wire->link, p->mirror, item);
	return true;
}

/* 1, 0, -1 as above. */
static int step_done(struct replay *p, const struct step *step, struct wire *wire)
{
	int got = 0;

	if (step->kind == STEP_COMMAND) {
		if (!command_send(p, step, wire))
			return 0;
		p->asked += step->answered;
		return 1;
	}
	pthread_mutex_lock(&p->lock);
	if (step->kind == STEP_ANSWER)
		got = answer_look_locked(p, step);
	else if (step->kind == STEP_PROGRESS)
		got = p->progress[step->word] && progress_reached(p->progress[step->word], step->value);
	else
		got = p->up_tail >= step->tail;
	pthread_mutex_unlock(&p->lock);
	return got;
}

/* All answers that can come have come. */
static bool answers_are_here_locked(const struct replay *p)
{
	if (p->answered >= p->asked)
		return true;
	for (const struct arrived *a = p->first; a; a = a->next)
		if (a->hdr.kind == FRAME_NOTICE && a->hdr.op == NOTICE_HOST_CALL)
			return clock_ns() - p->heard_ns >= QUIET_NS;
	return false;
}

enum replay_result replay_step(struct replay *p, struct wire *wire, const char **why_out)
{
	bool any = false, done;
	int got;

	for (;;) {
		if (!p->step)
			p->step = record_next(p->record, &p->at);
		if (!p->step)
			break;
		got = step_done(p, p->step, wire);
		if (got < 0) {
			*why_out = "it computes something else than the program has seen already";
			return REPLAY_FAILED;
		}
		if (!got)
			break;
		p->step = NULL;
		any = true;
	}
	pthread_mutex_lock(&p->lock);
	p->over = !p->step;
	done = p->over && answers_are_here_locked(p);
	*why_out = p->lost ? "gleamd has no memory for it" : NULL;
	/* A record has none of others. */
	for (const struct arrived *a = p->first; a && !*why_out; a = a->next)
		if (a->early && a->hdr.kind == FRAME_NOTICE && a->hdr.op != NOTICE_LANDED && a->hdr.op != NOTICE_FREED &&
		    a->hdr.op != NOTICE_HOST_CALL)
			*why_out = a->hdr.op == NOTICE_ERROR ? "a command fails that had not failed" :
							       "it says something that the program has not heard";
	pthread_mutex_unlock(&p->lock);
	if (*why_out)
		return REPLAY_FAILED;
	return done ? REPLAY_DONE : any ? REPLAY_GOES : REPLAY_WAITS;
}

void replay_rest(struct replay *p, void (*give)(void *arg, const uint8_t *frame, uint32_t size, const uint8_t *cells), void *arg)
{
	struct {
		struct frame_hdr hdr;
		uint32_t word, value;
	} progress = { .hdr = { .size = sizeof(progress), .op = NOTICE_PROGRESS, .kind = FRAME_NOTICE } };
	struct {
		struct frame_hdr hdr;
		uint64_t tail;
	} consumed = { .hdr = { .size = sizeof(consumed), .op = NOTICE_CONSUMED, .kind = FRAME_NOTICE }, .tail = p->up_tail };

	for (struct arrived *a = p->first; a; a = a->next)
		give(arg, a->frame, a->hdr.size, a->cells ? a->frame + RING_ALIGN(a->hdr.size) : NULL);
	/* Behind what they speak of. */
	for (uint32_t word = 0; word < SESSION_PROGRESS_WORDS; word++)
		if (p->progress[word]) {
			progress.word = word;
			progress.value = p->progress[word];
			give(arg, (const uint8_t *)&progress, sizeof(progress), NULL);
		}
	if (p->up_tail)
		give(arg, (const uint8_t *)&consumed, sizeof(consumed), NULL);
}
