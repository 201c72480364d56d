/* SPDX-License-Identifier: Apache-2.0 */
// sources: broker/local/baton.c broker/local/journal.c broker/lib/shm.c broker/lib/ring.c broker/lib/slot.c
/*
 * What a client may have written where a daemon looks for what the one before it has left. The input is a row of {u16 offset / 4,
 * u8 count, u8 which, words}: 32-bit words that are put into the record (which 0), the header (1), the slots (2) or the error words (3)
 * of a memory with an honest record. Whatever it is, what is read is consistent.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/local/baton.h"
#include "broker/proto/progress.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct shm shm;

/* A session in the middle of its life: pieces on their way, commands in the ring. */
static void honest(void)
{
	static const uint8_t token[RESUME_TOKEN_SIZE] = { 1 };
	const struct baton_name name = { .server = "gpu", .program = "program", .settings = "A=1\n", .token = token };
	struct session_header *hdr = shm_header(&shm);

	memset(shm.base + SESSION_AT_BATON, 0, sizeof(struct session_baton));
	memset(shm.base + SESSION_AT_SLOTS, 0, 2 * SESSION_SLOT_SIZE);
	memset(shm.base + SESSION_AT_ERRORS, 0, 4096);
	hdr->c2n.tail = 4096;
	hdr->c2n.head = 65536;
	hdr->n2c.tail = hdr->n2c.head = 8;
	hdr->up_tail = 3 * SESSION_GRANULE;
	hdr->state = SESSION_LIVE;
	baton_open(&shm, BATON_LIVE, &name);
	for (uint64_t i = 0; i < 8; i++)
		baton_piece_put(&shm, 1020 + i, &(struct journal_piece){ .position = 4096 + 64 * i, .seq = i, .cookie = i * SESSION_GRANULE,
									 .offset = (uint32_t)i * SESSION_GRANULE, .size = 100 }, 0, 0);
}

static void put(const uint8_t *words, uint32_t offset, uint32_t count, uint32_t which)
{
	static const uint32_t places[] = { SESSION_AT_BATON, 0, SESSION_AT_SLOTS, SESSION_AT_ERRORS };
	static const uint32_t sizes[] = { sizeof(struct session_baton), sizeof(struct session_header), SESSION_SLOT_SIZE, 1024 };
	uint32_t at = offset * 4 % sizes[which % 4];
	uint32_t room = (sizes[which % 4] - at) & ~3u;

	memcpy(shm.base + places[which % 4] + at, words, count * 4 < room ? count * 4 : room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t hash[32];
	static struct journal_pieces pieces;
	static struct baton baton;
	const char *why = NULL;
	enum session_end end;

	if (!shm.base)
		assert(shm_make(&shm, hash, 1) == 0);
	honest();
	while (size >= 4) {
		uint32_t count = data[2] * 4u < size - 4 ? data[2] : (uint32_t)(size - 4) / 4;

		put(data + 4, (uint32_t)(data[0] | data[1] << 8), count, data[3]);
		data += 4 + count * 4;
		size -= 4 + count * 4;
	}
	end = baton_read(&shm, &baton, &pieces, &why);
	assert(why);
	if (end)
		return 0;
	assert(baton.c2n_tail <= baton.c2n_head && baton.c2n_head - baton.c2n_tail <= SESSION_C2N_SIZE);
	assert(baton.n2c_tail <= baton.n2c_head && baton.n2c_head - baton.n2c_tail <= SESSION_N2C_SIZE);
	assert(baton.overflow_tail <= baton.overflow_head && baton.overflow_head - baton.overflow_tail <= SESSION_OVERFLOW_SIZE);
	assert(strlen(baton.server) < sizeof(baton.server) && strlen(baton.program) < sizeof(baton.program) &&
	       strlen(baton.settings) < sizeof(baton.settings));
	assert(pieces.head - pieces.tail <= JOURNAL_PIECES);
	for (uint64_t i = pieces.tail; i < pieces.head; i++) {
		const struct journal_piece *piece = &pieces.pieces[i % JOURNAL_PIECES];

		assert(piece->size && piece->size <= SESSION_CELL_SIZE && piece->offset % SESSION_GRANULE == 0 &&
		       piece->offset < SESSION_UP_SIZE && piece->size <= SESSION_UP_SIZE - piece->offset);
		assert(landed_word(piece->offset) < SESSION_GRANULES && piece->position < baton.c2n_head);
		assert(i == pieces.tail || piece->position > pieces.pieces[(i - 1) % JOURNAL_PIECES].position);
	}
	/* It is left as another daemon would find it. */
	baton_adopted(&shm, &baton);
	return 0;
}
