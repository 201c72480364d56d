/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The completion thread; see completion.h. It never waits for the executor: the lock is held there for a few
 * instructions, or around one driver call that does not block.
 */
#include "broker/worker/completion.h"

#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "broker/lib/futex.h"
#include "broker/lib/spin.h"
#include "broker/proto/off.h"
#include "broker/worker/ahead.h"
#include "broker/worker/direct.h"
#include "broker/worker/executor.h"
#include "broker/worker/fault.h"
#include "broker/worker/host.h"
#include "broker/worker/note.h"
#include "broker/worker/pinned.h"
#include "broker/worker/post.h"
#include "broker/worker/print.h"
#include "broker/worker/stream.h"
#include "gen/ops.h"
#include "broker/worker/turn.h"

#define SPIN_NS	       30000u  /* after the last event: the next is near while traffic flows */
#define SPIN_REPLY_NS  300000u /* somebody's thread stands still: a wake-up costs up to 50 us */
#define SPIN_REPLY_MANY_NS 1000000u /* the same with cores to spare: natively that thread would look all the time */
#define NAP_FIRST_NS   20000
#define NAP_LONGEST_NS 250000
#define NAP_REPLY_NS   50000 /* also while an event or a flush is outstanding, which somebody may poll */
#define CHECK_NS       1000000u /* contexts are asked after so much silence */
#define LOOK_WORDS     64	/* progress notices that one look sends at most */

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void completion_watch_locked(struct worker *w, struct stream *s)
{
	completion_changed_locked(w);
	if (s->watched)
		return;
	s->watched = true;
	if (!w->watched)
		__atomic_store_n(&w->header->busy, 1, __ATOMIC_RELAXED);
	s->next_watched = w->watched;
	__atomic_store_n(&w->watched, s, __ATOMIC_RELEASE);
}

void completion_wake(struct worker *w)
{
	/* Pairs with the fence in sleep_until_watched(): either it sees the stream, or we see that it sleeps. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&w->watch_sleeps, __ATOMIC_RELAXED) != WATCH_SLEEPS)
		return;
	__atomic_store_n(&w->watch_sleeps, WATCH_LOOKS, __ATOMIC_RELAXED);
	__atomic_fetch_add(&w->watch_bell, 1, __ATOMIC_RELEASE);
	futex_wake(&w->watch_bell, 1);
}

void completion_hurry(struct worker *w)
{
	/* Either the thread finds the bell changed, in nap() as well, or we see that it sleeps or naps. */
	__atomic_fetch_add(&w->watch_bell, 1, __ATOMIC_SEQ_CST);
	if (__atomic_exchange_n(&w->watch_sleeps, WATCH_LOOKS, __ATOMIC_SEQ_CST) != WATCH_LOOKS)
		futex_wake(&w->watch_bell, 1);
}

/* ---- what happens at the end of a wait ---- */

/* Bytes that came through staging go to the client's cells. */
static void cells_fill(struct worker *w, const struct wait *wait)
{
	uint32_t at = 0;

	for (struct staging_block *b = wait->staging; b && at < wait->bulk.size; b = b->next) {
		uint32_t size = wait->bulk.size - at < b->size ? wait->bulk.size - at : b->size;

		memcpy(shm_down(&w->shm) + wait->bulk.offset + at, b->bytes, size);
		at += size;
	}
}

static void staging_give_all(struct worker *w, struct staging_block *block)
{
	while (block) {
		struct staging_block *next = block->next;

		staging_give(w, block);
		block = next;
	}
}

static void reply_end(struct worker *w, struct wait *wait, CUresult result)
{
	uint8_t payload[REPLY_PAYLOAD_MAX] __attribute__((aligned(8)));
	struct writer p = writer_on(payload, sizeof(payload));

	put_u32(&p, 0);
	if (wait->bulk.size) {
		cells_fill(w, wait);
		post_reply(w, &wait->hdr, result, payload, (uint32_t)p.at, &wait->bulk);
	} else {
		if (wait->staging)
			put_bytes(&p, wait->staging->bytes, wait->size);
		post_reply(w, &wait->hdr, result, payload, (uint32_t)p.at, NULL);
	}
	__atomic_fetch_sub(&w->replies_waiting, 1, __ATOMIC_RELAXED);
}

void completion_consume(struct worker *w, const struct frame_hdr *hdr, const struct bulk_ref *piece)
{
	uint64_t first = piece->cookie / SESSION_GRANULE;
	uint64_t count = (piece->size + (uint64_t)SESSION_GRANULE - 1) / SESSION_GRANULE;
	uint8_t payload[8];
	uint64_t tail;
	bool moved = false;

	pthread_mutex_lock(&w->lock);
	tail = w->up_tail / SESSION_GRANULE;
	/* What lies behind the tail was taken for the unused end of a lap: it is free already. */
	for (uint64_t g = first < tail ? tail : first; g < first + count; g++)
		w->up_consumed[g % SESSION_GRANULES / 64] |= 1ull << g % 64;
	while (tail < w->up_seen / SESSION_GRANULE) {
		uint64_t *bits = &w->up_consumed[tail % SESSION_GRANULES / 64];

		if (!(*bits & 1ull << tail % 64))
			break;
		*bits &= ~(1ull << tail % 64);
		tail++;
		moved = true;
	}
	w->up_tail = tail * SESSION_GRANULE;
	__atomic_store_n(&w->header->up_tail, w->up_tail, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&w->lock);
	if (!moved)
		return;

	struct writer p = writer_on(payload, sizeof(payload));

	put_u64(&p, tail * SESSION_GRANULE);
	post_notice(w, NOTICE_CONSUMED, hdr->seq, hdr->ctx, payload, sizeof(payload));
}

static void wait_end(struct worker *w, struct wait *wait, CUresult result)
{
	switch (wait->kind) {
	case WAIT_REPLY:
		reply_end(w, wait, result);
		break;
	case WAIT_LANDED:
		if (result == CUDA_SUCCESS)
			cells_fill(w, wait);
		post_landed(w, &wait->hdr, result, &wait->bulk);
		break;
	case WAIT_CONSUMED:
		completion_consume(w, &wait->hdr, &wait->bulk);
		break;
	case WAIT_HOST_CALL:
		turn_reached(w, wait->turn, result);
		break;
	case WAIT_TURN:
		turn_came(w, wait->turn, result);
		break;
	case WAIT_JOIN:
		pthread_mutex_lock(&w->lock);
		if (result && !wait->join->result)
			wait->join->result = result;
		if (--wait->join->left == 0) {
			wait->join->next = w->joined;
			w->joined = wait->join;
			__atomic_fetch_add(&w->joined_count, 1, __ATOMIC_RELEASE);
		}
		pthread_mutex_unlock(&w->lock);
		break;
	case WAIT_STAGING:
		break;
	}
	staging_give_all(w, wait->staging);
}

/* ---- looking ---- */

/* What the last look under the lock has left. */
struct looks {
	uint32_t changes; /* the worker's, then */
	bool again;	  /* there was more than it could do */
	bool asked;	  /* an event or a flush is outstanding */
};

struct told {
	uint32_t word;
	uint32_t value;
	uint16_t ctx;
};

/* Waits of @s that have come to their end move to the list at @tail. Lock held. */
static struct wait **waits_take_locked(struct stream *s, uint32_t value, struct wait **tail)
{
	while (s->waits_head && (s->failed || progress_reached(value, s->waits_head->seq))) {
		struct wait *wait = s->waits_head;

		s->waits_head = wait->next;
		if (s->waits_head)
			s->waits_head->prev = NULL;
		else
			s->waits_tail = NULL;
		/* What the GPU had done before it was lost is done all the same; prev now carries the verdict. */
		wait->of = s->driver;
		wait->of_context = s->context ? s->context->driver : NULL;
		wait->prev = progress_reached(value, wait->seq) ? NULL : (struct wait *)(uintptr_t)s->failed;
		wait->next = NULL;
		*tail = wait;
		tail = &wait->next;
	}
	return tail;
}

/*
 * How far @s has come by its word, @value, and by the waits from @wait on, which have ended: a synchronise may have waited for an older write, and has no
 * other. It is told as if it had: what is done again by a record finds it.
 */
static uint32_t synced_locked(const struct stream *s, uint32_t value, const struct wait *wait)
{
	for (; wait; wait = wait->next)
		if (!s->failed && wait->kind == WAIT_REPLY && wait->hdr.op == OP_gleamStreamSync && !progress_reached(value, wait->hdr.seq))
			value = (uint32_t)wait->hdr.seq;
	return value;
}

static void told_post(struct worker *w, const struct told *told)
{
	uint8_t payload[8];
	struct writer p = writer_on(payload, sizeof(payload));

	put_u32(&p, told->word);
	put_u32(&p, told->value);
	post_notice(w, NOTICE_PROGRESS, 0, told->ctx, payload, sizeof(payload));
}

/* Landings of @s that have come to their end since the words were read move to the list at @tail. Lock held. */
static struct wait **landings_take_locked(struct stream *s, struct wait **tail)
{
	/* Pairs with nothing of ours, as above. */
	uint32_t value = s->waits_head ? __atomic_load_n(s->done, __ATOMIC_ACQUIRE) : 0;
	struct wait *next;

	for (struct wait *wait = s->waits_head; wait && progress_reached(value, wait->seq); wait = next) {
		next = wait->next;
		if (wait->kind != WAIT_LANDED)
			continue;
		if (wait->prev)
			wait->prev->next = next;
		else
			s->waits_head = next;
		if (next)
			next->prev = wait->prev;
		else
			s->waits_tail = wait->prev;
		wait->of = s->driver;
		wait->of_context = s->context ? s->context->driver : NULL;
		wait->prev = NULL;
		wait->next = NULL;
		*tail = wait;
		tail = &wait->next;
	}
	return tail;
}

/*
 * Is there anything to do for a look under the lock? The thread looks all the time while somebody waits: it must not take the lock, nor
 * any line that the executor writes, from that each time.
 */
static bool look_pays(const struct worker *w, const struct looks *looks)
{
	/* Pairs with the release in completion_changed_locked(). */
	if (looks->again || __atomic_load_n(&w->watch_changes, __ATOMIC_ACQUIRE) != looks->changes)
		return true;
	for (const struct stream *s = __atomic_load_n(&w->watched, __ATOMIC_ACQUIRE); s; s = s->next_watched)
		if (__atomic_load_n(s->done, __ATOMIC_RELAXED) != s->looked)
			return true;
	return false;
}

/* As completion_look(); what it leaves to be known for the next in @looks. */
static bool look(struct worker *w, struct looks *looks)
{
	struct told told[LOOK_WORDS];
	uint32_t told_count = 0;
	struct wait *ended = NULL;
	struct wait **tail = &ended;

	pthread_mutex_lock(&w->lock);
	*looks = (struct looks){ .changes = w->watch_changes };
	for (struct stream **link = &w->watched; *link;) {
		struct stream *s = *link;
		/* Pairs with nothing of ours: the GPU writes it after the work; acquire keeps our reads behind. */
		uint32_t value = __atomic_load_n(s->done, __ATOMIC_ACQUIRE);
		bool gated = s->before && !stream_is_over_locked(s->before);

		if (told_count == LOOK_WORDS) {
			looks->again = true;
			break;
		}
		struct wait **from = tail;
		uint32_t reached;

		s->looked = value;
		/* What it waits for may have come about in this very look. */
		looks->again |= gated;
		tail = waits_take_locked(s, value, tail);
		reached = synced_locked(s, value, *from);
		/* Of a destroyed one too: its events are read from the word. */
		if (!progress_reached(s->told, reached) && !gated) {
			s->told = reached;
			if (!s->own && s->context)
				told[told_count++] = (struct told){
					.word = s->word, .value = reached, .ctx = (uint16_t)s->context->index,
				};
		}
		if (!s->waits_head && !gated && (s->failed || progress_reached(value, s->written))) {
			s->watched = false;
			*link = s->next_watched;
			s->next_watched = NULL;
			continue;
		}
		looks->asked |= !progress_reached(value, s->asked);
		link = &s->next_watched;
	}
	/*
	 * A word read above may stand for a copy of another stream that was looked at before: the GPU had done it by then.
	 * Its bytes go out before that word does.
	 */
	for (struct stream *s = told_count || ended ? w->watched : NULL; s; s = s->next_watched)
		tail = landings_take_locked(s, tail);
	if (!w->watched && __atomic_load_n(&w->header->busy, __ATOMIC_RELAXED))
		__atomic_store_n(&w->header->busy, 0, __ATOMIC_RELAXED);
	if (told_count || ended)
		w->telling++;
	pthread_mutex_unlock(&w->lock);
	if (!told_count && !ended)
		return false;

	/* Bytes first: who sees the progress word may look at them. Then the words, then who waited for them; few bytes travel with both. */
	post_hold();
	for (struct wait *wait = ended; wait; wait = wait->next) {
		if (wait->kind != WAIT_LANDED)
			continue;
		wait_end(w, wait, (CUresult)(uintptr_t)wait->prev);
		if (wait->bulk.size <= LINK_SMALL_BYTES)
			continue;
		post_show(w);
		post_hold();
	}
	host_ranges_tell(w);
	for (uint32_t i = 0; print_wanted() && i < told_count; i++)
		if (i == 0 || told[i].ctx != told[i - 1].ctx)
			print_soon(w, told[i].ctx);
	if (print_wanted())
		for (struct wait *wait = ended; wait; wait = wait->next)
			if (wait->kind == WAIT_REPLY && !wait->prev && wait->of_context)
				print_stream(w, wait->of_context, wait->of);
	for (uint32_t i = 0; i < told_count; i++)
		told_post(w, &told[i]);
	if (__builtin_expect(w->header->off & OFF_TRACED, 0)) {
		uint64_t now = now_ns();

		for (uint32_t i = 0; i < told_count; i++)
			span_add(&w->spans_gpu, &(struct span){ .who = SPAN_GPU, .seq = told[i].value, .word = told[i].word,
								.start_ns = now, .end_ns = now });
		/* With an answer, before it: the program may end behind it. */
		bool answers = false;

		for (struct wait *wait = ended; wait; wait = wait->next)
			answers |= wait->kind == WAIT_REPLY || wait->kind == WAIT_JOIN;
		if (spans_due(&w->spans_gpu, now) || (answers && w->spans_gpu.count))
			post_spans(w, &w->spans_gpu);
	}
	for (struct wait *wait = ended; wait; wait = wait->next)
		if (wait->kind != WAIT_LANDED)
			wait_end(w, wait, (CUresult)(uintptr_t)wait->prev);
	post_show(w);

	pthread_mutex_lock(&w->lock);
	while (ended) {
		struct wait *next = ended->next;

		wait_give_locked(w, ended);
		ended = next;
	}
	w->telling--;
	pthread_mutex_unlock(&w->lock);
	if (__atomic_load_n(&w->parked_count, __ATOMIC_RELAXED) || __atomic_load_n(&w->joined_count, __ATOMIC_RELAXED))
		executor_wake(w);
	return true;
}

bool completion_look(struct worker *w)
{
	struct looks looks;

	return look(w, &looks);
}

void completion_check_contexts(struct worker *w)
{
	bool asked[SESSION_CONTEXTS + DEVICES_MAX] = { false }; /* the worker's own contexts come behind the client's */
	struct {
		uint32_t index;
		CUresult code;
		uint64_t seq;
	} lost[SESSION_CONTEXTS + DEVICES_MAX];
	uint32_t lost_count = 0;

	pthread_mutex_lock(&w->lock);
	for (struct stream *s = w->watched; s; s = s->next_watched) {
		struct context *c = s->context;

		if (!c || s->dead || s->failed || asked[c->index])
			continue;
		asked[c->index] = true;

		CUresult r = w->drv.cuCtxSetCurrent(c->driver);

		if (r == CUDA_SUCCESS)
			r = w->drv.cuStreamQuery(s->driver);
		if (r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_READY)
			continue;
		c->faulted = true;
		lost[lost_count].index = c->index;
		lost[lost_count].code = r;
		lost[lost_count++].seq = s->written;
		for (struct stream *other = w->watched; other; other = other->next_watched)
			if (other->context == c && !other->failed)
				other->failed = r;
		completion_changed_locked(w);
	}
	pthread_mutex_unlock(&w->lock);
	for (uint32_t i = 0; i < lost_count; i++) {
		complain("context %u is lost: the driver says %d", lost[i].index, (int)lost[i].code);
		fault_latch(w, lost[i].index, lost[i].code, 0, lost[i].seq);
	}
	if (lost_count)
		executor_wake(w);
}

/* ---- the thread ---- */

static void sleep_until_watched(struct worker *w)
{
	uint32_t bell = __atomic_load_n(&w->watch_bell, __ATOMIC_ACQUIRE);

	__atomic_store_n(&w->watch_sleeps, WATCH_SLEEPS, __ATOMIC_RELAXED);
	/* Pairs with the fence in completion_wake(). */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&w->watched, __ATOMIC_RELAXED) && !__atomic_load_n(&w->stop, __ATOMIC_RELAXED))
		futex_wait(&w->watch_bell, bell, direct_waits(w) ? (int64_t)DIRECT_FLUSH_NS : -1);
	__atomic_store_n(&w->watch_sleeps, WATCH_LOOKS, __ATOMIC_RELAXED);
}

/* Between looks, while there is something to look at; not when somebody has hurried since @bell was read. */
static void nap(struct worker *w, uint32_t bell, int64_t ns)
{
	/* Pairs with the two steps of completion_hurry(). */
	__atomic_store_n(&w->watch_sleeps, WATCH_NAPS, __ATOMIC_SEQ_CST);
	futex_wait(&w->watch_bell, bell, ns);
	__atomic_store_n(&w->watch_sleeps, WATCH_LOOKS, __ATOMIC_RELAXED);
}

static void *completion_run(void *arg)
{
	struct worker *w = arg;
	uint64_t last = now_ns();
	uint64_t checked = last;
	int64_t nap_ns = NAP_FIRST_NS;
	uint32_t heard = 0;
	struct looks looks = { .again = true };
	uint64_t spin_max = spin_max_ns();
	uint64_t reply_ns = spin_max >= SPIN_MAX_MANY_NS ? SPIN_REPLY_MANY_NS : SPIN_REPLY_NS;
	struct spin spin = { 0 };
	unsigned turns = 0;
	bool idle = false; /* nothing has been watched since @last */

	prctl(PR_SET_NAME, "completion");
	prctl(PR_SET_TIMERSLACK, 1000);
	while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		uint32_t bell = __atomic_load_n(&w->watch_bell, __ATOMIC_ACQUIRE);
		bool happened = look_pays(w, &looks) && look(w, &looks);

		if (direct_waits(w)) {
			pthread_mutex_lock(&w->post_lock);
			direct_flush_locked(w);
			direct_ring_locked(w);
			pthread_mutex_unlock(&w->post_lock);
		}

		uint64_t now = now_ns();

		bool watched = __atomic_load_n(&w->watched, __ATOMIC_ACQUIRE);

		if (idle && (happened || watched)) {
			spin_learn(&spin, now - last, spin_max);
			idle = false;
			last = checked = now;
			nap_ns = NAP_FIRST_NS;
		}
		if (happened) {
			last = checked = now;
			nap_ns = NAP_FIRST_NS;
			heard = bell;
			continue;
		}
		if (!watched) {
			idle = true;
			if (w->spans_gpu.count)
				post_spans(w, &w->spans_gpu);
			/* The next launch is near if they have been: the executor would have to wake us, and we to come. */
			if (now - last < spin_ns(&spin))
				spin_rest(now - last, spin_max, &turns);
			else
				sleep_until_watched(w);
			continue;
		}
		if (bell != heard) {
			/* Somebody has begun to wait: what he waits for is near, as a rule. */
			heard = bell;
			last = now;
			nap_ns = NAP_FIRST_NS;
		}
		if (ahead_look(w, now))
			continue;
		if (now - checked >= CHECK_NS) {
			completion_check_contexts(w);
			/* A host that polls a word without a CUDA call sees it change. */
			host_ranges_tell(w);
			checked = now;
		}

		bool reply = __atomic_load_n(&w->replies_waiting, __ATOMIC_RELAXED) != 0;

		if (now - last < (reply ? reply_ns : SPIN_NS)) {
			/* The software GPU, or the node, may need this core. */
			spin_rest(now - last, spin_max, &turns);
			continue;
		}
		nap(w, bell, nap_ns);
		nap_ns *= 2;
		if (nap_ns > (reply || looks.asked ? NAP_REPLY_NS : NAP_LONGEST_NS))
			nap_ns = reply || looks.asked ? NAP_REPLY_NS : NAP_LONGEST_NS;
	}
	return NULL;
}

int completion_start(struct worker *w)
{
	int err = pthread_create(&w->completion, NULL, completion_run, w);

	w->completion_runs = err == 0;
	return -err;
}

void completion_stop(struct worker *w)
{
	__atomic_store_n(&w->stop, 1, __ATOMIC_RELEASE);
	__atomic_fetch_add(&w->watch_bell, 1, __ATOMIC_RELEASE);
	futex_wake(&w->watch_bell, 1);
	if (w->completion_runs)
		pthread_join(w->completion, NULL);
	w->completion_runs = false;
}
