// SPDX-License-Identifier: Apache-2.0
/*
 * The format of checkpoints: what is written comes back, and whatever else a file may be is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker/lib/ring.h"
#include "broker/local/save.h"
#include "broker/proto/wire.h"
#include "tests/lib/fdcheck.h"

#define FRAME_HEAD sizeof(struct frame_hdr)
#define SUM	   32u

static char why[256];

static int file(void)
{
	int fd = memfd_create("save", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static int file_of(const uint8_t *bytes, size_t size)
{
	int fd = file();

	assert_int_equal(write(fd, bytes, size), size);
	return fd;
}

/* A command with @size bytes of @fill behind its header. */
static uint32_t frame(uint8_t *to, uint32_t size, uint8_t fill)
{
	struct frame_hdr hdr = { .size = (uint32_t)FRAME_HEAD + size, .op = 1, .kind = FRAME_COMMAND };

	memset(to, 0, RING_ALIGN(hdr.size));
	memcpy(to, &hdr, sizeof(hdr));
	memset(to + FRAME_HEAD, fill, size);
	return RING_ALIGN(hdr.size);
}

static const struct save_info written = {
	.identity = "fifteen letters", .pid = 77, .uid = 1000, .made_s = 1234567890, .program = "/usr/bin/program",
	.sequence = 42, .position = 4096, .up = 8192, .landings = 3, .memory = 1 << 20, .bytes = 999,
};

/* A checkpoint of three blocks; its bytes. */
static uint8_t *checkpoint(size_t *size_out)
{
	uint8_t *block = malloc(SAVE_BLOCK_MAX), *bytes;
	int fd = file();
	struct save_writer *w = save_begin(fd, &written);
	uint32_t size;

	assert_non_null(w);
	size = frame(block, 0, 0);
	size += frame(block + size, 13, 1);
	assert_int_equal(save_frames(w, block, size), 0);
	size = frame(block, 300, 2);
	assert_int_equal(save_frames(w, block, size), 0);
	assert_int_equal(save_frames(w, block, 0), 0);
	size = frame(block, 8, 3);
	assert_int_equal(save_frames(w, block, size), 0);
	assert_int_equal(save_finish(w, &written), 0);
	save_writer_free(w);
	*size_out = (size_t)lseek(fd, 0, SEEK_END);
	bytes = malloc(*size_out);
	assert_int_equal(pread(fd, bytes, *size_out, 0), *size_out);
	close(fd);
	free(block);
	return bytes;
}

static struct save_reader *read_it(const uint8_t *bytes, size_t size)
{
	int fd = file_of(bytes, size);
	struct save_reader *r = save_open(fd, why, sizeof(why));

	if (r)
		save_reader_free(r);
	close(fd);
	return r;
}

static void test_round_trip(void **state)
{
	size_t size;
	uint8_t *bytes = checkpoint(&size), expected[512];
	int fd = file_of(bytes, size);
	struct save_reader *r = save_open(fd, why, sizeof(why));
	const uint8_t *frames;
	uint32_t got;

	(void)state;
	assert_non_null(r);
	assert_memory_equal(save_info(r)->identity, written.identity, sizeof(written.identity));
	assert_int_equal(save_info(r)->pid, 77);
	assert_int_equal(save_info(r)->uid, 1000);
	assert_int_equal(save_info(r)->made_s, 1234567890);
	assert_string_equal(save_info(r)->program, "/usr/bin/program");
	assert_int_equal(save_info(r)->sequence, 42);
	assert_int_equal(save_info(r)->position, 4096);
	assert_int_equal(save_info(r)->up, 8192);
	assert_int_equal(save_info(r)->landings, 3);
	assert_int_equal(save_info(r)->memory, 1 << 20);
	assert_int_equal(save_info(r)->bytes, 999);
	assert_int_equal(save_next(r, &frames, &got), 1);
	assert_int_equal(got, frame(expected, 0, 0) + frame(expected + RING_ALIGN(FRAME_HEAD), 13, 1));
	assert_memory_equal(frames, expected, got);
	assert_int_equal(save_next(r, &frames, &got), 1);
	assert_int_equal(got, frame(expected, 300, 2));
	assert_memory_equal(frames, expected, got);
	assert_int_equal(save_next(r, &frames, &got), 1);
	assert_int_equal(got, frame(expected, 8, 3));
	assert_int_equal(save_next(r, &frames, &got), 0);
	assert_int_equal(save_next(r, &frames, &got), 0);
	save_reader_free(r);
	close(fd);
	free(bytes);
}

static void test_cut_off_anywhere(void **state)
{
	size_t size;
	uint8_t *bytes = checkpoint(&size);

	(void)state;
	for (size_t cut = 0; cut < size; cut++) {
		assert_null(read_it(bytes, cut));
		if (strcmp(why, "it is cut off") != 0)
			fail_msg("%zu bytes: %s", cut, why);
	}
	free(bytes);
}

static void test_changed_anywhere(void **state)
{
	size_t size;
	uint8_t *bytes = checkpoint(&size), *more;

	(void)state;
	for (size_t i = 0; i < size; i++) {
		bytes[i] ^= 0x40;
		assert_null(read_it(bytes, size));
		bytes[i] ^= 0x40;
	}
	assert_non_null(read_it(bytes, size));
	more = calloc(1, size + 1);
	memcpy(more, bytes, size);
	assert_null(read_it(more, size + 1));
	assert_string_equal(why, "it is damaged");
	free(more);
	free(bytes);
}

static void test_reasons(void **state)
{
	size_t size;
	uint8_t *bytes = checkpoint(&size);

	(void)state;
	bytes[0]++;
	assert_null(read_it(bytes, size));
	assert_string_equal(why, "it is no checkpoint of Gleam's");
	bytes[0]--;
	bytes[8] = 2;
	assert_null(read_it(bytes, size));
	assert_string_equal(why, "it is of version 2 of the format, and this gleamd knows version 1");
	bytes[8] = 1;
	bytes[16]++;
	assert_null(read_it(bytes, size));
	assert_non_null(strstr(why, "it was made by another version of Gleam"));
	free(bytes);
}

/* The sum is right, what it is of isn't. */
static void lies(uint8_t *bytes, size_t size)
{
	SHA256(bytes, size - SUM, bytes + size - SUM);
	assert_null(read_it(bytes, size));
	assert_non_null(strstr(why, "it is "));
}

static void test_lies_with_a_right_sum(void **state)
{
	static const uint32_t sizes[] = { 0, 1, 7, 23, 25, 0x7fffffff, 0xfffffff8, 0xffffffff, SAVE_BLOCK_MAX, SAVE_BLOCK_MAX + 8 };
	size_t size;
	uint8_t *bytes = checkpoint(&size), *copy = malloc(size);
	size_t block = SAVE_HEAD_SIZE, at = block + 8;

	(void)state;
	/* Of the block, and of the first frame in it. */
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		memcpy(copy, bytes, size);
		memcpy(copy + block + 4, &sizes[i], 4);
		lies(copy, size);
		memcpy(copy, bytes, size);
		memcpy(copy + at, &sizes[i], 4);
		lies(copy, size);
	}
	/* An unknown kind of block; a reply; a command with bytes elsewhere; a program's name without an end. */
	memcpy(copy, bytes, size);
	copy[block] = 9;
	lies(copy, size);
	memcpy(copy, bytes, size);
	copy[at + offsetof(struct frame_hdr, kind)] = FRAME_REPLY;
	lies(copy, size);
	memcpy(copy, bytes, size);
	copy[at + offsetof(struct frame_hdr, flags)] = FRAME_BULK_UP;
	lies(copy, size);
	memcpy(copy, bytes, size);
	memset(copy + 84, 'x', SAVE_HEAD_SIZE - 84);
	lies(copy, size);
	free(copy);
	free(bytes);
}

/* Between the look at it and its use. */
static void test_changed_meanwhile(void **state)
{
	size_t size;
	uint8_t *bytes = checkpoint(&size), byte = 0x99;
	int fd = file_of(bytes, size);
	struct save_reader *r = save_open(fd, why, sizeof(why));
	const uint8_t *frames;
	uint32_t got;
	int err;

	(void)state;
	assert_non_null(r);
	/* A byte of a frame, with the sum that makes it a checkpoint again. */
	bytes[SAVE_HEAD_SIZE + 8 + 24 + 24] = byte;
	SHA256(bytes, size - SUM, bytes + size - SUM);
	assert_int_equal(pwrite(fd, bytes, size, 0), size);
	while ((err = save_next(r, &frames, &got)) == 1)
		;
	assert_int_equal(err, -EPROTO);
	save_reader_free(r);
	close(fd);
	free(bytes);
}

static void test_a_disk_that_fails(void **state)
{
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
	struct save_writer *w = save_begin(fd, &written);
	uint8_t room[64] __attribute__((aligned(8)));

	(void)state;
	assert_non_null(w);
	assert_int_equal(save_frames(w, room, frame(room, 8, 1)), -ENOSPC);
	assert_int_equal(save_finish(w, &written), -ENOSPC);
	save_writer_free(w);
	close(fd);
	fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_null(save_open(fd, why, sizeof(why)));
	assert_non_null(strstr(why, "it can't be read: "));
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_cut_off_anywhere),
		cmocka_unit_test(test_changed_anywhere),
		cmocka_unit_test(test_reasons),
		cmocka_unit_test(test_lies_with_a_right_sum),
		cmocka_unit_test(test_changed_meanwhile),
		cmocka_unit_test(test_a_disk_that_fails),
	};
	struct fdcheck fds;
	int failed;

	/* The library of the sums opens what it keeps. */
	(void)SHA256((const uint8_t *)"", 0, NULL);
	fdcheck_begin(&fds);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return failed ? failed : fdcheck_end(&fds);
}
