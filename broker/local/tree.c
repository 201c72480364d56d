/* SPDX-License-Identifier: Apache-2.0 */
/* The /gleam tree as a FUSE file system on the loop. Control thread; see tree.h. */
#define FUSE_USE_VERSION 314
#include "broker/local/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/log.h"
#include "broker/local/tree_mount.h"
#include "broker/local/tree_node.h"
#include "broker/local/tree_open.h"

#define TREE_BURST     64     /* requests in one turn; then commands have theirs */
#define TREE_WRITE_MAX 4096   /* what one write(2) hands over; a command is a word */
#define TREE_BUF_SIZE  (16u << 10) /* a request; the kernel wants 8 KiB and room for a write */
#define TREE_LISTS_MAX 1024   /* folders that are open */
#define TREE_FIXED_S   60.0   /* the kernel may believe for so long what doesn't change */
#define TREE_DIRENT_MAX 512   /* bytes of one name in a listing, FUSE's header included */
#define SAID_SIZE      256
/* The kernel lets nobody else write to the file until a write is answered: what isn't known by then is told by other files. */
#define TREE_LATE_NS   (2 * NS_PER_S)

/* Somebody has a folder open: what was in it at that moment. */
struct open_list {
	struct open_list *next;
	struct open_list **before;
	struct tree_entry *entries;
	unsigned count;
};

/* A write that is answered when it is known what comes of it. */
struct late_write {
	struct tree_wait wait; /* first */
	struct tree *tree;
	fuse_req_t req;
	size_t size;
	struct loop_timer timer;
	struct late_write *next;
	struct late_write **before;
};

struct tree {
	struct loop *loop;
	struct tree_view view;
	struct tree_place place;
	struct fuse_session *session;
	uint8_t *buf; /* the request that comes next: TREE_BUF_SIZE bytes */
	struct tree_opens opens;
	struct open_list *lists;
	unsigned list_count;
	struct late_write *late;
	uint64_t tag;	     /* of waiting for a request */
	uint64_t answer_tag; /* of what was answered with it */
	bool waiting;
	bool offered; /* what libfuse answers now is the first request, see steady_accept() */
	bool polls; /* a request is waited for, then read */
	bool stopping;
	bool gone; /* unmounted, by us or somebody else */
};

/* libfuse prints where it failed: while mounting it is the reason, later it is noise. One tree a process. */
static char said[SAID_SIZE];

static void said_put(enum fuse_log_level level, const char *format, va_list args)
{
	char *text = said;

	vsnprintf(said, sizeof(said), format, args);
	said[strcspn(said, "\n")] = 0;
	if (strncmp(text, "fuse: ", 6) == 0)
		memmove(said, said + 6, strlen(said) - 5);
	log_debug("fuse: %s", said);
}

static void tree_arm(struct tree *tree);

/* ---- open folders ---- */

static struct open_list *list_new(struct tree *tree)
{
	struct open_list *list = tree->list_count < TREE_LISTS_MAX ? calloc(1, sizeof(*list)) : NULL;

	if (!list)
		return NULL;
	list->next = tree->lists;
	list->before = &tree->lists;
	if (list->next)
		list->next->before = &list->next;
	tree->lists = list;
	tree->list_count++;
	return list;
}

static void list_free(struct tree *tree, struct open_list *list)
{
	*list->before = list->next;
	if (list->next)
		list->next->before = list->before;
	tree->list_count--;
	free(list->entries);
	free(list);
}

/* The kernel gives back what we gave it; no process can make one up. */
static struct open_list *list_of(const struct fuse_file_info *fi)
{
	return (struct open_list *)(uintptr_t)fi->fh;
}

/* ---- requests ---- */

/* A small buffer then takes every request, and it need not be spliced through a pipe. */
static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	conn->max_write = TREE_WRITE_MAX;
	conn->max_background = TREE_BACKGROUND;
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
}

static struct tree *tree_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const struct tree_view *view = &tree_of(req)->view;
	struct fuse_entry_param entry = { 0 };
	struct tree_node folder, node;
	int err = tree_of_id(parent, &folder) ? 0 : -ESTALE;

	if (!err)
		err = tree_find(view, &folder, name, &node);
	if (!err)
		err = tree_attr(view, &node, &entry.attr);
	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	entry.ino = tree_id(&node);
	entry.attr_timeout = entry.entry_timeout = tree_is_fixed(&node) ? TREE_FIXED_S : 0;
	fuse_reply_entry(req, &entry);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct stat *was;
	struct tree_node node;
	struct stat attr;
	int err = tree_of_id(ino, &node) ? tree_attr(&tree_of(req)->view, &node, &attr) : -ESTALE;

	/* What it is about is gone, but somebody has it open and asks for it again after each read. */
	if (err && (was = tree_opens_attr(&tree_of(req)->opens, ino))) {
		attr = *was;
		err = 0;
	}
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_attr(req, &attr, tree_is_fixed(&node) ? TREE_FIXED_S : 0);
}

static void late_answer(struct late_write *late, int err)
{
	fuse_req_t req = late->req;
	size_t size = late->size;

	loop_timer_clear(late->tree->loop, &late->timer);
	*late->before = late->next;
	if (late->next)
		late->next->before = late->before;
	free(late);
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_write(req, size);
}

static void late_done(struct tree_wait *wait, int err)
{
	late_answer((struct late_write *)wait, err);
}

static void late_timer(void *arg)
{
	struct late_write *late = arg;

	tree_wait_forget(&late->wait);
	late_answer(late, 0);
}

/* Whoever wrote has got a signal, and must not wait for us: what was begun goes on. */
static void late_interrupted(fuse_req_t req, void *arg)
{
	struct late_write *late = arg;

	tree_wait_forget(&late->wait);
	late_answer(late, -EINTR);
}

/* A command is one write; its answer is that write's. */
static void op_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t size, off_t offset, struct fuse_file_info *fi)
{
	struct tree *tree = tree_of(req);
	struct late_write *late = calloc(1, sizeof(*late));
	struct tree_node node;
	int err = !late ? -ENOMEM : tree_of_id(ino, &node) ? 0 : -ESTALE;

	if (!err) {
		*late = (struct late_write){ .wait.done = late_done, .tree = tree, .req = req, .size = size, .next = tree->late, .before = &tree->late };
		err = offset ? -EINVAL : tree_write(&tree->view, &node, bytes, size, &late->wait);
	}
	if (err == -EINPROGRESS) {
		if (late->next)
			late->next->before = &late->next;
		tree->late = late;
		late->timer = (struct loop_timer){ .fire = late_timer, .arg = late };
		loop_timer_set(tree->loop, &late->timer, loop_now_ns(tree->loop) + TREE_LATE_NS);
		/* Last: it may have been interrupted already. */
		fuse_req_interrupt_func(req, late_interrupted, late);
		return;
	}
	free(late);
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_write(req, size);
}

/* Shells cut a file before they write to it. Nothing else can be set. */
static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
	struct tree_node node;
	int err = tree_of_id(ino, &node) ? 0 : -ESTALE;

	if (!err && (!tree_is_writable(&node) || (to_set & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) ||
		     !(to_set & FUSE_SET_ATTR_SIZE) || attr->st_size))
		err = -EPERM;
	if (err)
		fuse_reply_err(req, -err);
	else
		op_getattr(req, ino, fi);
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct tree *tree = tree_of(req);
	struct open_list *list = list_new(tree);
	struct tree_node node;
	int err;

	if (!list) {
		fuse_reply_err(req, ENFILE);
		return;
	}
	err = tree_of_id(ino, &node) ? tree_list(&tree->view, &node, &list->entries, &list->count) : -ESTALE;
	if (err) {
		list_free(tree, list);
		fuse_reply_err(req, -err);
		return;
	}
	fi->fh = (uintptr_t)list;
	if (fuse_reply_open(req, fi))
		list_free(tree, list);
}

/* Offsets count names: 0 and 1 are "." and "..". */
static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	const struct open_list *list = list_of(fi);
	char *bytes = malloc(size);
	size_t at = 0;

	if (!bytes) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	for (uint64_t i = offset < 0 ? 0 : (uint64_t)offset; i < (uint64_t)list->count + 2; i++) {
		const struct tree_entry *entry = i < 2 ? NULL : &list->entries[i - 2];
		struct stat attr = { .st_ino = entry ? entry->id : ino,
				     .st_mode = entry && !entry->folder ? S_IFREG : S_IFDIR };
		const char *name = entry ? entry->name : i == 0 ? "." : "..";
		size_t need = fuse_add_direntry(req, bytes + at, size - at, name, &attr, (off_t)i + 1);

		if (need > size - at)
			break;
		at += need;
	}
	fuse_reply_buf(req, bytes, at);
	free(bytes);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	list_free(tree_of(req), list_of(fi));
	fuse_reply_err(req, 0);
}

/* No blocks: df leaves it out unless it is asked for it, like /proc. */
static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs fs = { .f_bsize = 4096, .f_frsize = 4096, .f_namemax = TREE_NAME_SIZE - 1 };

	fuse_reply_statfs(req, &fs);
}

/* open, read and release of files never come here: tree_opens_take(). */
/* Names are made and taken away by servers and programs that come and go, not by hand: "Operation not permitted". */
static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t device)
{
	fuse_reply_err(req, EPERM);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	fuse_reply_err(req, EPERM);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(req, EPERM);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to, const char *new_name, unsigned flags)
{
	fuse_reply_err(req, EPERM);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(req, EPERM);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(req, EPERM);
}

static const struct fuse_lowlevel_ops tree_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.getattr = op_getattr,
	.write = op_write,
	.setattr = op_setattr,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.releasedir = op_releasedir,
	.statfs = op_statfs,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_unlink,
	.rename = op_rename,
	.symlink = op_symlink,
	.link = op_link,
};

/* ---- the loop ---- */

static void tree_end(struct tree *tree)
{
	if (tree->gone)
		return;
	tree->gone = true;
	tree_opens_fini(&tree->opens);
	while (tree->late) {
		tree_wait_forget(&tree->late->wait);
		late_answer(tree->late, -EIO);
	}
	/* Closes the descriptor first, so whoever still asks gets an error and unmounting can't wait for us. */
	fuse_session_unmount(tree->session);
	fuse_session_destroy(tree->session);
	tree->session = NULL;
	while (tree->lists)
		list_free(tree, tree->lists);
	free(tree->buf);
	tree->buf = NULL;
	tree_place_give(&tree->place);
}

static void tree_request(struct tree *tree, size_t size)
{
	struct fuse_buf request = { .mem = tree->buf, .size = size };

	if (tree_opens_take(&tree->opens, tree->buf, size))
		return;
	tree->offered = steady_is_offered(tree->buf, size);
	fuse_session_process_buf(tree->session, &request);
	tree->offered = false;
}

/* What libfuse answers. It doesn't know of all that the kernel offers. */
static ssize_t tree_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct tree *tree = userdata;
	uint8_t init[STEADY_INIT_SIZE];
	struct iovec reply[2];
	ssize_t ret;

	if (!tree->offered || count != 2)
		return writev(fd, iov, count);
	memcpy(reply, iov, sizeof(reply));
	if (!steady_accept(reply, count, init))
		return writev(fd, iov, count);
	ret = writev(fd, reply, count);
	if (ret >= 0)
		tree->opens.steady.fd = fd;
	return ret;
}

static ssize_t tree_read(int fd, void *bytes, size_t size, void *userdata)
{
	return read(fd, bytes, size);
}

/* What came instead of a request: -errno. False: there is none, or won't be any more. */
static bool tree_no_request(struct tree *tree, int err)
{
	if (err == -EINTR || err == -ENOENT) /* ENOENT: a request that was withdrawn before we read it. */
		return true;
	if (err && err != -EAGAIN) {
		if (err != -ENODEV) /* unmounted */
			log_error("tree: can't read requests: %s", strerror(-err));
		fuse_session_exit(tree->session);
	}
	tree_opens_dry(&tree->opens);
	return false;
}

/* Only those that we have asked for ourselves are there for certain: to look for others costs a system call each time. */
static void tree_requests(struct tree *tree)
{
	for (int i = 0; i < TREE_BURST && !tree->stopping && !fuse_session_exited(tree->session); i++) {
		ssize_t got = read(fuse_session_fd(tree->session), tree->buf, TREE_BUF_SIZE);

		if (got > 0)
			tree_request(tree, (size_t)got);
		else if (!tree_no_request(tree, got ? -errno : 0))
			return;
		if (!tree_opens_more(&tree->opens))
			return;
	}
}

static void tree_ready(void *arg, int res, uint32_t flags)
{
	struct tree *tree = arg;

	tree->waiting = false;
	loop_tag_over(tree->loop, tree->answer_tag);
	tree_opens_look(&tree->opens);
	if (tree->polls) {
		tree_requests(tree);
	} else if (!tree->stopping) {
		if (res > 0)
			tree_request(tree, (size_t)res);
		else
			tree_no_request(tree, res);
		/* A kernel that doesn't wait where the descriptor says so. */
		tree->polls = res == -EAGAIN;
		if (tree_opens_more(&tree->opens))
			tree_requests(tree);
	}
	if (tree->stopping) {
		tree_end(tree);
	} else if (fuse_session_exited(tree->session)) {
		log_warn("%s has been unmounted: the tree comes back when gleamd is started again", tree->place.path);
		tree_end(tree);
	} else {
		tree_arm(tree);
	}
}

static void tree_answered(void *arg, int res, uint32_t flags)
{
	struct tree *tree = arg;

	if (res < 0 && !tree->gone)
		tree_opens_refused(&tree->opens, res);
}

/*
 * The next request is read as soon as it comes, into our buffer: with the loop's wait, and what is answered to the last one, a single system
 * call a request. (Waiting by poll, read and write are three, and the reader, woken by the write, takes the core before we sleep.) The answer
 * is taken when it is handed over, before the read that stands behind it: its buffer is free when that has ended.
 */
static void tree_arm(struct tree *tree)
{
	int fd = fuse_session_fd(tree->session);
	struct io_uring_sqe *sqe;

	if (tree->polls)
		tree_opens_flush(&tree->opens);
	if (tree->opens.answer_size) {
		sqe = loop_sqe(tree->loop);
		io_uring_prep_write(sqe, fd, tree->opens.answer, (unsigned)tree->opens.answer_size, 0);
		tree->answer_tag = loop_tag_silent(tree->loop, sqe, tree_answered, tree);
		loop_tag_quiet(tree->loop, tree->answer_tag);
		tree->opens.answer_size = 0;
	}
	sqe = loop_sqe(tree->loop);
	if (tree->polls)
		io_uring_prep_poll_add(sqe, fd, POLLIN);
	else
		io_uring_prep_read(sqe, fd, tree->buf, TREE_BUF_SIZE, 0);
	tree->tag = loop_tag(tree->loop, sqe, tree_ready, tree);
	/* Whoever polls the tree is in no hurry: nobody spins for the next request. */
	loop_tag_quiet(tree->loop, tree->tag);
	tree->waiting = true;
}

/* ---- life ---- */

/* What to change, by what libfuse or the kernel has said. */
static const char *mount_advice(void)
{
	if (access("/dev/fuse", F_OK) < 0)
		return "there is no /dev/fuse: modprobe fuse, or give the container that device";
	if (geteuid() != 0 && access("/dev/fuse", R_OK | W_OK) < 0)
		return "/dev/fuse is not for ordinary users here: the package fuse3 changes that, or chmod 666 /dev/fuse as root";
	if (geteuid() != 0)
		return "an ordinary user needs fusermount3 (package fuse3) and a folder of its own";
	return "mounting needs CAP_SYS_ADMIN, or fusermount3 (package fuse3)";
}

static int session_mount(struct tree *tree, char *why, size_t why_size)
{
	static const struct fuse_custom_io io = { .writev = tree_writev, .read = tree_read };
	char options[] = "fsname=gleam,subtype=gleam,default_permissions,nosuid,nodev,noexec,allow_other";
	char *argv[] = { "gleamd", "-o", options, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	int fd;

	/* Other users may look where root has mounted; for a user's own tree the system would have to allow it. */
	if (geteuid() != 0)
		*strrchr(options, ',') = 0;
	said[0] = 0;
	fuse_set_log_func(said_put);
	tree->session = fuse_session_new(&args, &tree_ops, sizeof(tree_ops), tree);
	fuse_opt_free_args(&args);
	if (!tree->session) {
		snprintf(why, why_size, "libfuse refuses: %s", *said ? said : "no memory");
		return -EINVAL;
	}
	if (fuse_session_mount(tree->session, tree->place.path)) {
		snprintf(why, why_size, "%s%s%s", said, *said ? "; " : "", mount_advice());
		fuse_session_destroy(tree->session);
		return -EPERM;
	}
	fd = fuse_session_fd(tree->session);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	/* Only root may, and where it fails nothing is lost. */
	fuse_session_custom_io(tree->session, &io, fd);
	return 0;
}

void tree_start(struct loop *loop, struct broker *broker, const char *path, struct tree **tree_out)
{
	struct tree *tree;
	char why[700];

	*tree_out = NULL;
	if (!*path)
		return;
	if (geteuid() != 0 && strcmp(path, TREE_PATH_DEFAULT) == 0) {
		log_info("no tree: only root can mount %s; --mount DIR shows it in a folder of your own", path);
		return;
	}
	tree = calloc(1, sizeof(*tree));
	if (!tree)
		return;
	tree->loop = loop;
	tree_opens_init(&tree->opens, loop, &tree->view);
	tree->view.broker = broker;
	tree->view.uid = geteuid();
	tree->view.gid = getegid();
	tree->buf = malloc(TREE_BUF_SIZE);
	if (!tree->buf)
		goto free_tree_quietly;
	clock_gettime(CLOCK_REALTIME, &tree->view.born);
	if (tree_place_take(&tree->place, path, why, sizeof(why)))
		goto free_tree;
	if (session_mount(tree, why, sizeof(why)))
		goto give_place;
	tree->opens.fd = fuse_session_fd(tree->session);
	log_info("the tree is mounted on %s", tree->place.path);
	tree_arm(tree);
	*tree_out = tree;
	return;

give_place:
	tree_place_give(&tree->place);
free_tree:
	log_warn("the tree is not mounted on %s: %s", path, why);
free_tree_quietly:
	free(tree->buf);
	free(tree);
}

void tree_stop(struct tree *tree)
{
	if (!tree || tree->stopping)
		return;
	tree->stopping = true;
	if (tree->waiting)
		loop_cancel(tree->loop, tree->tag);
	else
		tree_end(tree);
}

bool tree_is_stopped(const struct tree *tree)
{
	return !tree || (tree->stopping && tree->gone && !tree->waiting);
}

void tree_free(struct tree *tree)
{
	free(tree);
}
