/* SPDX-License-Identifier: Apache-2.0 */
/* The format of a checkpoint. Any one thread; see save.h. */
#include "broker/local/save.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/lib/codec.h"
#include "broker/lib/ring.h"
#include "broker/proto/wire.h"

#define SAVE_MAGIC    "GLEAMCKP"
#define SAVE_SUM_SIZE 32u
#define SAVE_END_SIZE 48u
#define BLOCK_HEAD    8u

enum block_kind { SAVE_FRAMES = 1, SAVE_END = 2 };

/* ---- writing ---- */

struct save_writer {
	int fd;
	int err; /* the first */
	EVP_MD_CTX *sum;
};

static void bytes_out(struct save_writer *w, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;

	if (!w->err && !EVP_DigestUpdate(w->sum, bytes, size))
		w->err = -ENOMEM;
	while (!w->err && size) {
		ssize_t got = write(w->fd, at, size);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			w->err = got < 0 ? -errno : -EIO;
			return;
		}
		at += got;
		size -= (size_t)got;
	}
}

static void block_out(struct save_writer *w, uint32_t kind, const void *bytes, uint32_t size)
{
	uint32_t head[2] = { kind, size };

	bytes_out(w, head, sizeof(head));
	bytes_out(w, bytes, size);
}

static_assert(SAVE_IDENTITY_AT == 8 + 2 * sizeof(uint32_t) + PROTOCOL_HASH_SIZE, "who it is of is found there");

struct save_writer *save_begin(int fd, const struct save_info *info)
{
	uint8_t head[SAVE_HEAD_SIZE] __attribute__((aligned(8))) = { 0 };
	struct writer out = writer_on(head, sizeof(head));
	struct save_writer *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->fd = fd;
	w->sum = EVP_MD_CTX_new();
	if (!w->sum || !EVP_DigestInit_ex(w->sum, EVP_sha256(), NULL)) {
		save_writer_free(w);
		return NULL;
	}
	put_block(&out, SAVE_MAGIC, 8);
	put_u32(&out, SAVE_VERSION);
	put_u32(&out, SAVE_HEAD_SIZE);
	put_block(&out, protocol_hash, PROTOCOL_HASH_SIZE);
	put_block(&out, info->identity, sizeof(info->identity));
	put_u32(&out, info->pid);
	put_u32(&out, info->uid);
	put_u64(&out, info->made_s);
	put_str(&out, info->program);
	bytes_out(w, head, sizeof(head));
	return w;
}

int save_frames(struct save_writer *w, const uint8_t *frames, uint32_t size)
{
	if (size)
		block_out(w, SAVE_FRAMES, frames, size);
	return w->err;
}

int save_finish(struct save_writer *w, const struct save_info *info)
{
	uint8_t end[SAVE_END_SIZE] __attribute__((aligned(8))) = { 0 };
	uint8_t sum[SAVE_SUM_SIZE];
	struct writer out = writer_on(end, sizeof(end));

	put_u64(&out, info->sequence);
	put_u64(&out, info->position);
	put_u64(&out, info->up);
	put_u64(&out, info->memory);
	put_u64(&out, info->bytes);
	put_u32(&out, info->landings);
	block_out(w, SAVE_END, end, sizeof(end));
	if (!w->err && !EVP_DigestFinal_ex(w->sum, sum, NULL))
		w->err = -ENOMEM;
	if (!w->err && (!EVP_DigestInit_ex(w->sum, EVP_sha256(), NULL)))
		w->err = -ENOMEM;
	bytes_out(w, sum, sizeof(sum));
	if (!w->err && fsync(w->fd))
		w->err = -errno;
	return w->err;
}

void save_writer_free(struct save_writer *w)
{
	EVP_MD_CTX_free(w->sum);
	free(w);
}

/* ---- reading ---- */

struct save_reader {
	int fd;
	off_t at;
	bool ended; /* all frames have been read */
	bool known; /* it was read whole once: its end must be the same again */
	EVP_MD_CTX *sum;
	uint8_t sum_known[SAVE_SUM_SIZE];
	struct save_info info;
	uint8_t *block; /* SAVE_BLOCK_MAX */
};

/* -ENODATA: it ends before. */
static int bytes_in(struct save_reader *r, void *bytes, size_t size)
{
	uint8_t *to = bytes;
	size_t left = size;

	while (left) {
		ssize_t got = pread(r->fd, to, left, r->at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return -ENODATA;
		to += got;
		left -= (size_t)got;
		r->at += got;
	}
	return 0;
}

static int bytes_summed(struct save_reader *r, void *bytes, size_t size)
{
	int err = bytes_in(r, bytes, size);

	return err ? err : EVP_DigestUpdate(r->sum, bytes, size) ? 0 : -ENOMEM;
}

static int head_read(struct save_reader *r, char *why, size_t why_size)
{
	uint8_t head[SAVE_HEAD_SIZE] __attribute__((aligned(8)));
	struct reader in = reader_on(head, sizeof(head));
	uint8_t magic[8], hash[PROTOCOL_HASH_SIZE];
	uint32_t version, size;
	int err;

	r->at = 0;
	r->ended = false;
	if (!EVP_DigestInit_ex(r->sum, EVP_sha256(), NULL))
		return -ENOMEM;
	err = bytes_summed(r, head, sizeof(head));
	if (err)
		return err;
	get_block(&in, magic, sizeof(magic));
	version = get_u32(&in);
	size = get_u32(&in);
	get_block(&in, hash, sizeof(hash));
	if (memcmp(magic, SAVE_MAGIC, sizeof(magic)) != 0) {
		snprintf(why, why_size, "it is no checkpoint of Gleam's");
		return -EPROTO;
	}
	if (version != SAVE_VERSION || size != SAVE_HEAD_SIZE) {
		snprintf(why, why_size, "it is of version %u of the format, and this gleamd knows version %u", version, SAVE_VERSION);
		return -EPROTO;
	}
	if (memcmp(hash, protocol_hash, sizeof(hash)) != 0) {
		char theirs[HASH_TEXT_SIZE], ours[HASH_TEXT_SIZE];

		hash_text(hash, theirs);
		hash_text(protocol_hash, ours);
		snprintf(why, why_size, "it was made by another version of Gleam (protocol %s, and this gleamd has %s)", theirs, ours);
		return -EPROTO;
	}
	get_block(&in, r->info.identity, sizeof(r->info.identity));
	r->info.pid = get_u32(&in);
	r->info.uid = get_u32(&in);
	r->info.made_s = get_u64(&in);
	snprintf(r->info.program, sizeof(r->info.program), "%.255s", get_str(&in, SAVE_PROGRAM_SIZE - 1));
	return in.fault ? -EPROTO : 0;
}

/* Whole commands that stand by themselves, one behind the other. */
static bool frames_are_sound(const uint8_t *block, uint32_t size)
{
	for (uint32_t at = 0; at < size;) {
		struct frame_hdr hdr;

		if (size - at < sizeof(hdr))
			return false;
		memcpy(&hdr, block + at, sizeof(hdr));
		if (hdr.size < sizeof(hdr) || hdr.size > FRAME_SIZE_MAX || RING_ALIGN(hdr.size) > size - at || hdr.kind != FRAME_COMMAND ||
		    (hdr.flags & (FRAME_BULK_UP | FRAME_BULK_DOWN | FRAME_BULK_FILE)))
			return false;
		at += RING_ALIGN(hdr.size);
	}
	return true;
}

static int end_read(struct save_reader *r, uint32_t size)
{
	uint8_t end[SAVE_END_SIZE] __attribute__((aligned(8)));
	struct reader in = reader_on(end, sizeof(end));
	uint8_t sum[SAVE_SUM_SIZE], told[SAVE_SUM_SIZE], more;
	int err;

	if (size != sizeof(end))
		return -EPROTO;
	err = bytes_summed(r, end, sizeof(end));
	if (!err && !EVP_DigestFinal_ex(r->sum, sum, NULL))
		err = -ENOMEM;
	if (!err)
		err = bytes_in(r, told, sizeof(told));
	if (err)
		return err;
	/* Nothing behind it. */
	if (memcmp(sum, told, sizeof(sum)) != 0 || bytes_in(r, &more, 1) != -ENODATA)
		return -EPROTO;
	if (r->known && memcmp(sum, r->sum_known, sizeof(sum)) != 0)
		return -EPROTO;
	memcpy(r->sum_known, sum, sizeof(sum));
	r->info.sequence = get_u64(&in);
	r->info.position = get_u64(&in);
	r->info.up = get_u64(&in);
	r->info.memory = get_u64(&in);
	r->info.bytes = get_u64(&in);
	r->info.landings = get_u32(&in);
	r->ended = true;
	return 0;
}

int save_next(struct save_reader *r, const uint8_t **frames_out, uint32_t *size_out)
{
	uint32_t head[2];
	int err;

	if (r->ended)
		return 0;
	err = bytes_summed(r, head, sizeof(head));
	if (err)
		return err;
	if (head[0] == SAVE_END)
		return end_read(r, head[1]);
	if (head[0] != SAVE_FRAMES || !head[1] || head[1] > SAVE_BLOCK_MAX)
		return -EPROTO;
	err = bytes_summed(r, r->block, head[1]);
	if (err)
		return err;
	if (!frames_are_sound(r->block, head[1]))
		return -EPROTO;
	*frames_out = r->block;
	*size_out = head[1];
	return 1;
}

struct save_reader *save_open(int fd, char *why, size_t why_size)
{
	struct save_reader *r = calloc(1, sizeof(*r));
	const uint8_t *frames;
	uint32_t size;
	int err = -ENOMEM;

	snprintf(why, why_size, "out of memory");
	if (!r)
		return NULL;
	r->fd = fd;
	r->block = malloc(SAVE_BLOCK_MAX);
	r->sum = EVP_MD_CTX_new();
	if (!r->block || !r->sum)
		goto free_reader;
	snprintf(why, why_size, "it is damaged");
	err = head_read(r, why, why_size);
	if (err)
		goto free_reader;
	while ((err = save_next(r, &frames, &size)) > 0)
		;
	if (err)
		goto free_reader;
	r->known = true;
	err = head_read(r, why, why_size);
	if (!err)
		return r;

free_reader:
	if (err == -ENODATA)
		snprintf(why, why_size, "it is cut off");
	else if (err != -EPROTO)
		snprintf(why, why_size, "it can't be read: %s", strerror(-err));
	save_reader_free(r);
	return NULL;
}

const struct save_info *save_info(const struct save_reader *r)
{
	return &r->info;
}

void save_reader_free(struct save_reader *r)
{
	EVP_MD_CTX_free(r->sum);
	free(r->block);
	free(r);
}
