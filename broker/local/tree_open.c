/* SPDX-License-Identifier: Apache-2.0 */
/* Open files of the /gleam tree and the requests that a read of one is made of. Control thread; see tree_open.h. */
#include "broker/local/tree_open.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/log.h"

#define OPEN_TEXT_SIZE	128 /* a value; what is longer has memory of its own */
#define OPEN_SPARE_MAX	64
#define CLOSE_NS	(10 * NS_PER_MS)     /* so long releases are kept */
#define CLOSE_OPEN_MAX	(TREE_OPEN_MAX / 4) /* files that have been closed, but not yet for us, need room, too */

/* Somebody has it open: what was there at that moment. */
struct open_file {
	uint64_t ino;
	struct open_file *next;
	struct open_file **before; /* NULL: a spare one */
	struct stat attr; /* st_ino 0: it can't vanish */
	struct steady_text *steady; /* unless @way is STEADY_NOT */
	enum steady_way way;
	bool known; /* it has been read: the kernel has seen our answer */
	size_t size;
	char *text; /* &small, or its own */
	char small[OPEN_TEXT_SIZE];
};

/* ---- open files ---- */

static struct open_file *open_new(struct tree_opens *opens)
{
	struct open_file *file = opens->spare;

	if (opens->open_count >= TREE_OPEN_MAX)
		return NULL;
	if (file) {
		opens->spare = file->next;
		opens->spare_count--;
	} else {
		file = malloc(sizeof(*file));
		if (!file)
			return NULL;
	}
	file->next = opens->open;
	file->before = &opens->open;
	if (file->next)
		file->next->before = &file->next;
	opens->open = file;
	opens->open_count++;
	file->text = file->small;
	file->attr.st_ino = 0;
	file->way = STEADY_NOT;
	file->known = false;
	return file;
}

static void open_free(struct tree_opens *opens, struct open_file *file)
{
	*file->before = file->next;
	if (file->next)
		file->next->before = file->before;
	file->before = NULL;
	opens->open_count--;
	if (file->way != STEADY_NOT)
		steady_give(file->steady, file->way);
	if (file->text != file->small)
		free(file->text);
	if (opens->spare_count == OPEN_SPARE_MAX) {
		free(file);
		return;
	}
	file->next = opens->spare;
	opens->spare = file;
	opens->spare_count++;
}

/* The kernel gives back what we gave it; no process can make one up. */
static struct open_file *open_of(uint64_t fh)
{
	struct open_file *file = (struct open_file *)(uintptr_t)fh;

	assert(file->before);
	return file;
}

const struct stat *tree_opens_attr(const struct tree_opens *opens, uint64_t id)
{
	for (const struct open_file *file = opens->open; file; file = file->next)
		if (file->ino == id && file->attr.st_ino)
			return &file->attr;
	return NULL;
}

/* ---- answers ---- */

/* ENOENT: who asked is gone; ENODEV: unmounted. */
static void answer_failed(int err)
{
	if (err != -ENOENT && err != -ENODEV)
		log_error("tree: can't answer a request: %s", strerror(-err));
}

static int answer_now(struct tree_opens *opens, uint64_t unique, int error, const void *bytes, size_t size)
{
	struct fuse_out_header header = { .len = (uint32_t)(sizeof(header) + size), .error = error, .unique = unique };
	struct iovec parts[2] = { { &header, sizeof(header) }, { (void *)bytes, size } };
	int err = writev(opens->fd, parts, size ? 2 : 1) < 0 ? -errno : 0;

	if (err)
		answer_failed(err);
	return err;
}

void tree_opens_refused(struct tree_opens *opens, int err)
{
	answer_failed(err);
	/* The opener is gone: no release will come. */
	if (opens->opening)
		open_free(opens, opens->opening);
	opens->opening = NULL;
}

void tree_opens_flush(struct tree_opens *opens)
{
	size_t size = opens->answer_size;

	opens->answer_size = 0;
	if (size && write(opens->fd, opens->answer, size) < 0)
		tree_opens_refused(opens, -errno);
}

/*
 * Of the request that was read last. Mostly another one is looked for next, and that takes the answer along; not while releases are gathered, which are
 * read one after the other. @opening: whom nobody has open if nobody takes the answer.
 */
static void answer(struct tree_opens *opens, uint64_t unique, int error, const void *bytes, size_t size, struct open_file *opening)
{
	struct fuse_out_header header = { .len = (uint32_t)(sizeof(header) + size), .error = error, .unique = unique };

	tree_opens_flush(opens);
	opens->opening = opening;
	if (size > sizeof(opens->answer) - sizeof(header)) {
		int err = answer_now(opens, unique, error, bytes, size);

		if (err && opening)
			tree_opens_refused(opens, err);
		return;
	}
	memcpy(opens->answer, &header, sizeof(header));
	if (size)
		memcpy(opens->answer + sizeof(header), bytes, size);
	opens->answer_size = sizeof(header) + size;
	if (opens->gathering)
		tree_opens_flush(opens);
}

/*
 * A release is a request that nobody waits for, but it would wake us a third time for each file that is read. Of that kind the
 * kernel sends only as many as TREE_BACKGROUND before they are answered, and keeps the others without waking anybody. So where they
 * follow each other one is left without its answer for a while, and those behind it are taken together.
 * (What else is of that kind waits meanwhile: folders' releases, and asynchronous reads with O_DIRECT.)
 */
static bool close_hold(struct tree_opens *opens, uint64_t unique)
{
	uint64_t now = loop_now_ns(opens->loop);
	bool hold = !opens->held && !opens->gathering && !opens->ending && now - opens->closed_ns < CLOSE_NS &&
		    opens->open_count < CLOSE_OPEN_MAX;

	opens->closed_ns = now;
	if (hold) {
		opens->held = unique;
		opens->held_ns = now;
		/* If no request comes before that, which does it in passing. */
		loop_timer_set(opens->loop, &opens->held_timer, now + 2 * CLOSE_NS);
	}
	return hold;
}

/* The kernel then sends the next one at once, and so on. */
static void close_gather(struct tree_opens *opens)
{
	uint64_t held = opens->held;

	if (!held)
		return;
	opens->held = 0;
	opens->gathering = true;
	loop_timer_clear(opens->loop, &opens->held_timer);
	answer_now(opens, held, 0, NULL, 0);
}

/* Nobody has asked for anything since. The poll tells what the kernel sends now. */
static void held_late(void *arg)
{
	close_gather(arg);
}

void tree_opens_look(struct tree_opens *opens)
{
	if (opens->held && loop_now_ns(opens->loop) - opens->held_ns >= CLOSE_NS)
		close_gather(opens);
}

bool tree_opens_more(const struct tree_opens *opens)
{
	return opens->gathering;
}

void tree_opens_dry(struct tree_opens *opens)
{
	opens->gathering = false;
}

/* ---- requests ---- */

static int text_keep(struct open_file *file, const char *text, size_t size)
{
	if (size > sizeof(file->small)) {
		file->text = malloc(size);
		if (!file->text) {
			file->text = file->small;
			return -ENOMEM;
		}
	}
	if (size)
		memcpy(file->text, text, size);
	file->size = size;
	return 0;
}

/* struct fuse_open_out as of Linux 6.9, and what it may say */
#define OPEN_PASSTHROUGH (1u << 7)
struct open_answer {
	uint64_t fh;
	uint32_t flags;
	int32_t backing; /* the file that reads go to */
};
static_assert(sizeof(struct open_answer) == sizeof(struct fuse_open_out), "of the kernel");

/* Whether the kernel may still be about to look at our answer to an open of this node that said nothing of a file. */
static bool open_is_pending(const struct tree_opens *opens, const struct open_file *but)
{
	for (const struct open_file *file = opens->open; file; file = file->next)
		if (file->ino == but->ino && file != but && file->way == STEADY_NOT && !file->known)
			return true;
	return false;
}

static void open_steady(struct tree_opens *opens, struct open_file *file, const char *text, size_t size)
{
	enum steady_way way = steady_look(&opens->steady, file->ino, text, size, loop_now_ns(opens->loop), &file->steady);

	if (way == STEADY_NOT || (way == STEADY_FILE && !steady_is_held(file->steady) && open_is_pending(opens, file)))
		return;
	steady_hold(file->steady, way);
	file->way = way;
}

static void do_open(struct tree_opens *opens, const struct fuse_in_header *header, const struct fuse_open_in *in)
{
	/* Past the page cache: sizes are not known before, and another open is to see another moment. */
	struct open_answer out = { .flags = FOPEN_DIRECT_IO };
	struct open_file *file;
	struct tree_node node;
	bool known = tree_of_id(header->nodeid, &node);
	const char *text;
	size_t size;
	int err;

	if ((in->flags & O_ACCMODE) != O_RDONLY && !(known && tree_is_writable(&node))) {
		answer(opens, header->unique, -EACCES, NULL, 0, NULL);
		return;
	}
	file = open_new(opens);
	if (!file) {
		answer(opens, header->unique, -ENFILE, NULL, 0, NULL);
		return;
	}
	file->ino = header->nodeid;
	err = known ? tree_text(opens->view, &node, &text, &size) : -ESTALE;
	if (!err && !tree_is_writable(&node))
		open_steady(opens, file, text, size);
	if (!err && file->way != STEADY_FILE)
		err = text_keep(file, text, size);
	if (!err && tree_vanishes(&node))
		err = tree_attr(opens->view, &node, &file->attr);
	if (err) {
		open_free(opens, file);
		answer(opens, header->unique, err, NULL, 0, NULL);
		return;
	}
	out.fh = (uintptr_t)file;
	if (file->way != STEADY_NOT) {
		out.backing = file->steady->backing;
		out.flags = OPEN_PASSTHROUGH | (file->way == STEADY_BESIDE ? FOPEN_DIRECT_IO : 0);
	}
	answer(opens, header->unique, 0, &out, sizeof(out), file);
}

static void do_read(struct tree_opens *opens, const struct fuse_in_header *header, const struct fuse_read_in *in)
{
	struct open_file *file = open_of(in->fh);
	size_t at = in->offset > file->size ? file->size : (size_t)in->offset;
	size_t left = file->size - at;

	file->known = true;
	answer(opens, header->unique, 0, file->text + at, in->size < left ? in->size : left, NULL);
}

static void do_release(struct tree_opens *opens, const struct fuse_in_header *header, const struct fuse_release_in *in)
{
	open_free(opens, open_of(in->fh));
	if (!close_hold(opens, header->unique))
		answer(opens, header->unique, 0, NULL, 0, NULL);
}

bool tree_opens_take(struct tree_opens *opens, const void *request, size_t size)
{
	const struct fuse_in_header *header = request;
	const void *in = header + 1;

	if (size < sizeof(*header))
		return false;
	size -= sizeof(*header);
	if (header->opcode == FUSE_OPEN && size >= sizeof(struct fuse_open_in))
		do_open(opens, header, in);
	else if (header->opcode == FUSE_READ && size >= sizeof(struct fuse_read_in))
		do_read(opens, header, in);
	else if (header->opcode == FUSE_RELEASE && size >= sizeof(struct fuse_release_in))
		do_release(opens, header, in);
	else
		return false;
	return true;
}

/* ---- life ---- */

void tree_opens_init(struct tree_opens *opens, struct loop *loop, const struct tree_view *view)
{
	*opens = (struct tree_opens){ .loop = loop, .view = view, .fd = -1, .held_timer = { .fire = held_late, .arg = opens } };
	steady_init(&opens->steady);
}

void tree_opens_fini(struct tree_opens *opens)
{
	opens->ending = true;
	tree_opens_flush(opens);
	close_gather(opens);
	while (opens->open)
		open_free(opens, opens->open);
	while (opens->spare) {
		struct open_file *file = opens->spare;

		opens->spare = file->next;
		free(file);
	}
	steady_fini(&opens->steady);
}
