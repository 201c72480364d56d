/* SPDX-License-Identifier: Apache-2.0 */
// sources: broker/local/save.c broker/lib/hash.c libs: -lcrypto
/* A checkpoint: a file that anybody may have written. As it is, and with this build's protocol and the sum that would make it one. */
#include <assert.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker/lib/ring.h"
#include "broker/local/save.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SUM 32u
#define HASH_AT 16u

static void look(int fd)
{
	char why[128] = "";
	struct save_reader *r = save_open(fd, why, sizeof(why));
	const uint8_t *frames;
	uint32_t count;
	int got;

	if (!r) {
		assert(*why && strlen(why) < sizeof(why));
		return;
	}
	assert(strlen(save_info(r)->program) < SAVE_PROGRAM_SIZE);
	while ((got = save_next(r, &frames, &count)) == 1) {
		assert(count && count <= SAVE_BLOCK_MAX);
		for (uint32_t at = 0; at < count;) {
			uint32_t frame;

			memcpy(&frame, frames + at, sizeof(frame));
			assert(frame && RING_ALIGN(frame) <= count - at);
			at += RING_ALIGN(frame);
		}
	}
	assert(got == 0);
	save_reader_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("save", MFD_CLOEXEC);
	uint8_t *bytes = malloc(size + 1);

	assert(fd >= 0 && bytes);
	assert(write(fd, data, size) == (ssize_t)size);
	look(fd);
	if (size >= SAVE_HEAD_SIZE + SUM) {
		memcpy(bytes, data, size);
		memcpy(bytes + HASH_AT, protocol_hash, PROTOCOL_HASH_SIZE);
		SHA256(bytes, size - SUM, bytes + size - SUM);
		assert(pwrite(fd, bytes, size, 0) == (ssize_t)size);
		look(fd);
	}
	free(bytes);
	close(fd);
	return 0;
}
