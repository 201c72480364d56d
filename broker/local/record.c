/* SPDX-License-Identifier: Apache-2.0 */
/* What a session has done since its checkpoint. See record.h. */
#include "broker/local/record.h"

#include <stdlib.h>
#include <string.h>

#include "broker/lib/codec.h"
#include "broker/lib/ring.h"
#include "gen/ops.h"

#define STEP_ALIGN(size) (((size) + 7) & ~7u)

struct record {
	uint8_t *bytes;
	uint64_t size;
	uint64_t room;
	uint64_t sequence; /* of the newest command */
	uint64_t position;
	const char *trouble;
	uint64_t last; /* where the newest step is; UINT64_MAX: there is none */
};

struct record *record_new(uint64_t sequence, uint64_t position)
{
	struct record *r = calloc(1, sizeof(*r));

	if (r) {
		r->sequence = sequence;
		r->position = position;
		r->last = UINT64_MAX;
	}
	return r;
}

void record_free(struct record *r)
{
	if (r)
		free(r->bytes);
	free(r);
}

static void trouble(struct record *r, const char *why)
{
	if (r->trouble)
		return;
	r->trouble = why;
	free(r->bytes);
	r->bytes = NULL;
	r->size = r->room = 0;
	r->last = UINT64_MAX;
}

/* Zeroed, with @more bytes behind it; NULL: too much. */
static struct step *step_add(struct record *r, enum step_kind kind, uint64_t more)
{
	uint64_t size = STEP_ALIGN(sizeof(struct step) + more);
	struct step *step;

	if (r->trouble)
		return NULL;
	if (size > RECORD_MAX - r->size) {
		trouble(r, "it has done more than is remembered (256 MiB of commands and the bytes that they sent)");
		return NULL;
	}
	if (r->size + size > r->room) {
		uint64_t room = r->room ? r->room : 64u << 10;
		uint8_t *bytes;

		while (room < r->size + size)
			room *= 2;
		bytes = realloc(r->bytes, room);
		if (!bytes) {
			trouble(r, "gleamd had no memory for what it has done");
			return NULL;
		}
		r->bytes = bytes;
		r->room = room;
	}
	r->last = r->size;
	step = (struct step *)(void *)(r->bytes + r->size);
	memset(step, 0, size);
	step->size = (uint32_t)size;
	step->kind = (uint8_t)kind;
	r->size += size;
	return step;
}

/* What depends on the program itself, or on others, while it is done. */
static const char *unplayable(const struct frame_hdr *hdr)
{
	if (hdr->flags & FRAME_BULK_FILE)
		return "it has loaded from a file (mapped weights) since";
	switch (hdr->op) {
	case OP_gleamShare:
	case OP_gleamShareOpen:
		return "it has shared memory with other programs since";
	default:
		return NULL;
	}
}

void record_command(struct record *r, const struct frame_hdr *hdr, const uint8_t *frame, const struct shm *shm)
{
	const char *why = unplayable(hdr);
	struct bulk_ref ref = { .size = 0 };
	struct step *step;
	uint32_t room = RING_ALIGN(hdr->size);

	/* Behind a lost link it may be sent again. */
	if (hdr->seq <= r->sequence)
		return;
	r->sequence = hdr->seq;
	if (why)
		trouble(r, why);
	if (hdr->flags & FRAME_BULK_UP)
		ref = ring_bulk_ref(frame);
	if (ref.size > SESSION_CELL_SIZE || ref.offset > SESSION_UP_SIZE || ref.size > SESSION_UP_SIZE - ref.offset)
		return; /* not sent, either */
	step = step_add(r, STEP_COMMAND, room + (uint64_t)ref.size);
	if (!step)
		return;
	step->bulk = ref.size;
	step->answered = (hdr->flags & FRAME_WANTS_REPLY) || (hdr->flags & FRAME_BULK_DOWN);
	memcpy(step->frame, frame, hdr->size);
	memcpy(step->frame, hdr, sizeof(*hdr));
	if (ref.size) {
		memcpy(step->frame + sizeof(*hdr), &ref, sizeof(ref));
		memcpy(step->frame + room, shm_up(shm) + ref.offset, ref.size);
	}
}

struct sum128 record_sum(const struct frame_hdr *hdr, const uint8_t *frame, const uint8_t *cells, bool *same_out)
{
	struct sum128 h = SUM128_SEED;
	size_t head = sizeof(*hdr);
	uint32_t size = hdr->size;

	*same_out = true;
	/* Times, and what others leave free, are of their moment; of a load counts that it was good: the rest is text for people. */
	if (hdr->kind == FRAME_REPLY)
		switch (hdr->op) {
		case OP_gleamMemInfo:
		case OP_cuEventElapsedTime_v2:
		case OP_gleamAsk:
			*same_out = false;
			return h;
		case OP_gleamLoadImage:
		case OP_gleamVerdict:
		case OP_gleamFunctionInfo:
			if (hdr->flags & FRAME_BULK_DOWN)
				head += sizeof(struct bulk_ref);
			return sum128_add(h, frame + head, size >= head + 4 ? 4 : 0);
		default:
			break;
		}
	/* Of a landing, not which one it is: copies of two streams may come in another order. */
	if (hdr->kind == FRAME_NOTICE && hdr->op == NOTICE_LANDED && size - head >= sizeof(struct bulk_ref) + 2 * sizeof(uint32_t))
		size -= (uint32_t)sizeof(uint32_t);
	h = sum128_add(h, frame + head, size - head);
	if (hdr->flags & FRAME_BULK_DOWN) {
		struct bulk_ref ref = ring_bulk_ref(frame);

		h = sum128_add(h, cells + ref.offset, ref.size);
	}
	return h;
}

/* The same word again before anything else: its last value counts. */
static struct step *step_again(struct record *r, enum step_kind kind, uint32_t word)
{
	struct step *step = r->last == UINT64_MAX ? NULL : (struct step *)(void *)(r->bytes + r->last);

	return step && step->kind == kind && step->word == word ? step : step_add(r, kind, 0);
}

void record_answer(struct record *r, const struct frame_hdr *hdr, const uint8_t *frame, const struct shm *shm)
{
	struct reader in = reader_on(frame + sizeof(*hdr), hdr->size - sizeof(*hdr));
	struct step *step;
	uint32_t word, value;

	if (r->trouble)
		return;
	if (hdr->flags & FRAME_BULK_DOWN) {
		struct bulk_ref ref = ring_bulk_ref(frame);

		if (ref.offset > SESSION_DOWN_SIZE || ref.size > SESSION_DOWN_SIZE - ref.offset)
			return;
	}
	if (hdr->kind == FRAME_NOTICE)
		switch (hdr->op) {
		case NOTICE_PROGRESS:
			word = get_u32(&in);
			value = get_u32(&in);
			if (in.fault || word >= SESSION_PROGRESS_WORDS)
				return;
			step = step_again(r, STEP_PROGRESS, word);
			if (step) {
				step->word = word;
				step->value = value;
			}
			return;
		case NOTICE_CONSUMED:
			step = step_again(r, STEP_CONSUMED, 0);
			if (step)
				step->tail = get_u64(&in);
			return;
		case NOTICE_RECALL:
		case NOTICE_TRACE:
			return; /* asks nothing that must be asked again */
		case NOTICE_LANDED:
		case NOTICE_FREED:
			break;
		case NOTICE_HOST_CALL:
			/* The function has run, and isn't run again: its stream goes on by the command that said so. */
			break;
		case NOTICE_HOST_BYTES:
			trouble(r, "kernels have written to page-locked memory of the program since");
			return;
		case NOTICE_PRINT:
			trouble(r, "kernels have printed since");
			return;
		case NOTICE_ERROR:
			trouble(r, "a command of it has failed since");
			return;
		default:
			trouble(r, "it has heard something since that can't be said again");
			return;
		}
	step = step_add(r, STEP_ANSWER, 0);
	if (!step)
		return;
	step->name = (struct answer_name){ .kind = hdr->kind, .op = hdr->op, .seq = hdr->seq };
	step->sum = record_sum(hdr, frame, shm_down(shm), &step->same);
}

const char *record_trouble(const struct record *r)
{
	return r->trouble;
}

void record_position(struct record *r, uint64_t position)
{
	if (position > r->position)
		r->position = position;
}

bool record_ends_at(const struct record *r, uint64_t sequence, uint64_t position)
{
	return r->sequence == sequence && r->position == position;
}

uint64_t record_bytes(const struct record *r)
{
	return r->size;
}

const struct step *record_next(const struct record *r, uint64_t *at)
{
	const struct step *step;

	if (*at >= r->size)
		return NULL;
	step = (const struct step *)(const void *)(r->bytes + *at);
	*at += step->size;
	return step;
}
