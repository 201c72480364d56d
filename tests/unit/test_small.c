// SPDX-License-Identifier: Apache-2.0
/*
 * Frames with few bytes on the command lane: what a node sends its broker takes apart again, the bytes lie where they belong, and whatever
 * else might come is refused before anything is stored.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "broker/core/small.h"
#include "broker/lib/ring.h"

static struct mirror node, broker;
static uint8_t message[LINK_COMMAND_MAX] __attribute__((aligned(8)));
static size_t message_size;

void link_send(struct link *link, enum link_msg type, uint32_t session, const void *head, size_t head_size, const void *body,
	       size_t body_size)
{
	assert_int_equal(type, LINK_FRAME_BYTES);
	assert_int_equal(session, 7);
	memcpy(message, head, head_size);
	memcpy(message + head_size, body, body_size);
	message_size = head_size + body_size;
}

static int begin(void **state)
{
	static const uint8_t hash[32];

	mirror_init(&node);
	mirror_init(&broker);
	node.id = broker.id = 7;
	broker.live = true;
	return shm_make(&node.shm, hash, 1) || shm_make(&broker.shm, hash, 1);
}

static int end(void **state)
{
	shm_close(&node.shm);
	shm_close(&broker.shm);
	return 0;
}

/* A reply of @size bytes that says of @ref bytes where they lie. */
static void frame_make(uint8_t *frame, uint32_t size, const struct bulk_ref *ref)
{
	struct frame_hdr hdr = { .size = size, .op = 3, .kind = FRAME_REPLY, .flags = FRAME_BULK_DOWN, .slot = 9, .seq = 4711 };

	memset(frame, 0x77, size);
	memcpy(frame, &hdr, sizeof(hdr));
	memcpy(frame + sizeof(hdr), ref, sizeof(*ref));
}

static void node_sends(uint32_t frame_size, struct bulk_ref ref)
{
	uint8_t frame[LINK_SMALL_FRAME];
	struct frame_hdr hdr;

	frame_make(frame, frame_size, &ref);
	memcpy(&hdr, frame, sizeof(hdr));
	for (uint32_t i = 0; i < ref.size; i++)
		shm_down(&node.shm)[ref.offset + i] = (uint8_t)(i * 13 + ref.size);
	small_send(NULL, &node, &hdr, frame, &ref);
}

static const uint8_t *take(uint32_t *size_out)
{
	struct reader r = reader_on(message, message_size);

	return small_take(&r, &broker, size_out);
}

static void test_there_and_back(void **state)
{
	static const uint32_t sizes[] = { 1, 7, 4096, LINK_SMALL_BYTES };
	static const uint32_t offsets[] = { 0, 3 * SESSION_CELL_SIZE };

	for (unsigned s = 0; s < 4; s++) {
		for (unsigned o = 0; o < 2; o++) {
			for (uint32_t frame_size = 40; frame_size <= 52; frame_size += 4) {
				struct bulk_ref ref = { .offset = offsets[o], .size = sizes[s], .cookie = 5 };
				uint8_t want[LINK_SMALL_FRAME];
				const uint8_t *got;
				uint32_t size = 0;

				memset(shm_down(&broker.shm) + ref.offset, 0, ref.size + 1);
				node_sends(frame_size, ref);
				frame_make(want, frame_size, &ref);
				got = take(&size);
				assert_non_null(got);
				assert_int_equal(size, frame_size);
				assert_memory_equal(got, want, frame_size);
				assert_memory_equal(shm_down(&broker.shm) + ref.offset, shm_down(&node.shm) + ref.offset, ref.size);
				assert_int_equal(shm_down(&broker.shm)[ref.offset + ref.size], 0);
			}
		}
	}
}

/* Until the last byte is there it is refused, and one more is too much. */
static void test_lengths(void **state)
{
	struct bulk_ref ref = { .offset = SESSION_CELL_SIZE, .size = 100 };
	uint32_t size;
	size_t whole;

	node_sends(44, ref);
	whole = message_size;
	memset(shm_down(&broker.shm) + ref.offset, 0x55, ref.size);
	for (message_size = 0; message_size < whole + 2; message_size++)
		if (message_size != whole)
			assert_null(take(&size));
	for (uint32_t i = 0; i < ref.size; i++)
		assert_int_equal(shm_down(&broker.shm)[ref.offset + i], 0x55);
	message_size = whole;
	assert_non_null(take(&size));
}

static void forge(size_t at, uint32_t value)
{
	uint32_t size;

	node_sends(44, (struct bulk_ref){ .offset = 0, .size = 64 });
	memcpy(message + at, &value, sizeof(value));
	assert_null(take(&size));
}

static void test_lies(void **state)
{
	const size_t ref = sizeof(struct frame_hdr);

	forge(0, 0);
	forge(0, 39);
	forge(0, LINK_SMALL_FRAME + 1);
	forge(0, UINT32_MAX);
	forge(4, 3 | FRAME_REPLY << 16); /* without FRAME_BULK_DOWN */
	forge(ref, SESSION_DOWN_SIZE);
	forge(ref, SESSION_DOWN_SIZE - 63);
	forge(ref, UINT32_MAX);
	forge(ref + 4, 0);
	forge(ref + 4, 65);
	forge(ref + 4, LINK_SMALL_BYTES + 1);
	forge(ref + 4, UINT32_MAX);
}

/* Of a session without a memory of its own the frame alone counts. */
static void test_no_memory(void **state)
{
	uint32_t size = 0;

	broker.live = false;
	memset(shm_down(&broker.shm), 0, 64);
	node_sends(44, (struct bulk_ref){ .offset = 0, .size = 64 });
	assert_non_null(take(&size));
	assert_int_equal(size, 44);
	assert_int_equal(shm_down(&broker.shm)[1], 0);
	broker.live = true;
}

static void test_fits(void **state)
{
	assert_false(small_fits(44, &(struct bulk_ref){ .size = 0 }));
	assert_true(small_fits(44, &(struct bulk_ref){ .size = 1 }));
	assert_true(small_fits(LINK_SMALL_FRAME, &(struct bulk_ref){ .size = LINK_SMALL_BYTES }));
	assert_false(small_fits(44, &(struct bulk_ref){ .size = LINK_SMALL_BYTES + 1 }));
	assert_false(small_fits(LINK_SMALL_FRAME + 1, &(struct bulk_ref){ .size = 1 }));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_lengths), cmocka_unit_test(test_lies),
		cmocka_unit_test(test_no_memory),      cmocka_unit_test(test_fits),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
