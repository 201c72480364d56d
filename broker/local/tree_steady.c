/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that the kernel reads by itself. Control thread; see tree_steady.h. */
#include "broker/local/tree_steady.h"

#include <assert.h>
#include <errno.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/fd.h"
#include "broker/lib/log.h"

#define POLLED_NS (200 * NS_PER_MS) /* opened again within that and unchanged: worth a file */

/* From the kernel's words of 6.9 on; the headers may be older. */
#define INIT_PASSTHROUGH2 (1u << 5) /* of flags2 */
#define INIT_DEPTH_AT	  36	    /* max_stack_depth in the answer: behind flags2 */
#define INIT_DEPTH	  1	    /* our files lie in no stacked file system */

struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
static_assert(sizeof(struct backing_map) == 16, "of the kernel");
static_assert(sizeof(struct fuse_init_out) == STEADY_INIT_SIZE, "of the kernel");
static_assert(offsetof(struct fuse_init_out, flags2) + 4 == INIT_DEPTH_AT, "of the kernel");
#define BACKING_OPEN  _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

/* ---- the first request ---- */

bool steady_is_offered(const void *request, size_t size)
{
	const struct fuse_in_header *header = request;
	struct fuse_init_in in;

	if (size < sizeof(*header) + sizeof(in) || header->opcode != FUSE_INIT)
		return false;
	memcpy(&in, header + 1, sizeof(in));
	return in.flags & FUSE_INIT_EXT && in.flags2 & INIT_PASSTHROUGH2;
}

bool steady_accept(struct iovec *reply, int count, uint8_t init_out[STEADY_INIT_SIZE])
{
	const struct fuse_out_header *header = reply[0].iov_base;
	struct fuse_init_out out;
	uint32_t depth = INIT_DEPTH;

	if (count != 2 || reply[0].iov_len != sizeof(*header) || header->error || reply[1].iov_len != sizeof(out))
		return false;
	memcpy(&out, reply[1].iov_base, sizeof(out));
	out.flags |= FUSE_INIT_EXT;
	out.flags2 |= INIT_PASSTHROUGH2;
	memcpy(init_out, &out, sizeof(out));
	memcpy(init_out + INIT_DEPTH_AT, &depth, sizeof(depth));
	reply[1].iov_base = init_out;
	return true;
}

/* ---- files ---- */

/* The kernel keeps what is open. */
static void file_close(struct steady *steady, struct steady_text *text)
{
	uint32_t backing = (uint32_t)text->backing;

	if (text->backing && ioctl(steady->fd, BACKING_CLOSE, &backing) < 0 && errno != ENOTCONN)
		log_error("tree: can't take back a file from the kernel: %s", strerror(errno));
	text->backing = 0;
	text->valid = false;
	fd_close(&text->fd);
}

/* The text as it is, into a file that nobody reads. */
static int file_write(struct steady *steady, struct steady_text *text)
{
	struct backing_map map = { 0 };
	int ret;

	if (text->fd < 0) {
		text->fd = memfd_create("gleam-tree", MFD_CLOEXEC);
		if (text->fd < 0)
			return -errno;
	}
	if (pwrite(text->fd, text->text, text->size, 0) != (ssize_t)text->size || ftruncate(text->fd, (off_t)text->size) < 0)
		return -EIO;
	if (!text->backing) {
		map.fd = text->fd;
		ret = ioctl(steady->fd, BACKING_OPEN, &map);
		if (ret <= 0)
			return ret < 0 ? -errno : -EINVAL;
		text->backing = ret;
	}
	text->valid = true;
	return 0;
}

/* ---- texts ---- */

static struct steady_text *text_find(struct steady *steady, uint64_t node)
{
	struct steady_text *oldest = NULL;

	for (unsigned i = 0; i < STEADY_COUNT; i++) {
		struct steady_text *text = &steady->texts[i];

		if (text->node == node)
			return text;
		if (!steady_is_held(text) && (!oldest || text->seen_ns < oldest->seen_ns))
			oldest = text;
	}
	if (!oldest)
		return NULL;
	/* The file is another node's: the kernel would take it for the same one only by its number, which is new then. */
	file_close(steady, oldest);
	oldest->node = node;
	oldest->size = 0;
	oldest->seen_ns = 0;
	return oldest;
}

static void text_keep(struct steady_text *text, const char *bytes, size_t size)
{
	text->valid = false;
	text->size = 0;
	if (size > text->room) {
		char *more = realloc(text->text, size);

		if (!more)
			return;
		text->text = more;
		text->room = size;
	}
	memcpy(text->text, bytes, size);
	text->size = size;
}

enum steady_way steady_look(struct steady *steady, uint64_t node, const char *text, size_t size, uint64_t now_ns, struct steady_text **text_out)
{
	bool may = steady->fd >= 0 && !steady->off;
	struct steady_text *at = may ? text_find(steady, node) : NULL;
	enum steady_way other;
	uint64_t seen_ns;
	int err;

	if (!at)
		return STEADY_NOT;
	*text_out = at;
	other = steady_is_held(at) ? STEADY_BESIDE : STEADY_NOT;
	seen_ns = at->seen_ns;
	at->seen_ns = now_ns;
	if (!size || size > STEADY_SIZE_MAX)
		return other;
	if (at->size != size || memcmp(at->text, text, size) != 0) {
		/* Whoever reads the old one reads on in it. */
		if (!at->users)
			text_keep(at, text, size);
		return other;
	}
	if (!at->valid) {
		if (now_ns - seen_ns > POLLED_NS)
			return other;
		err = file_write(steady, at);
		if (err) {
			if (other == STEADY_NOT)
				file_close(steady, at);
			steady->off = !steady->does;
			if (steady->off) /* EPERM: in a user namespace */
				log_debug("tree: the kernel leaves reading what is polled to us: %s", strerror(-err));
			return other;
		}
		steady->does = true;
	}
	return STEADY_FILE;
}

bool steady_is_held(const struct steady_text *text)
{
	return text->users || text->beside;
}

void steady_hold(struct steady_text *text, enum steady_way way)
{
	assert(way == STEADY_FILE ? text->valid : steady_is_held(text));
	if (way == STEADY_FILE)
		text->users++;
	else
		text->beside++;
}

void steady_give(struct steady_text *text, enum steady_way way)
{
	unsigned *count = way == STEADY_FILE ? &text->users : &text->beside;

	assert(*count);
	--*count;
}

/* ---- life ---- */

void steady_init(struct steady *steady)
{
	*steady = (struct steady){ .fd = -1 };
	for (unsigned i = 0; i < STEADY_COUNT; i++)
		steady->texts[i].fd = -1;
}

void steady_fini(struct steady *steady)
{
	for (unsigned i = 0; i < STEADY_COUNT; i++) {
		file_close(steady, &steady->texts[i]);
		free(steady->texts[i].text);
	}
	steady_init(steady);
}
