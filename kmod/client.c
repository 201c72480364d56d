// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a program does with its session: maps the memory, rings, waits, joins GPUs. Only the process
 * that opened it may, whoever else holds the file. Called by that process; mapping_close() also
 * while it dies.
 */
#include <linux/compat.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "gleam.h"
#include "broker/proto/ring.h"

/* ---- the file ---- */

static int session_open(struct inode *inode, struct file *file)
{
	return gleam_session_open(file, GLEAM_DEVICES_ANY, NULL);
}

static int session_flush(struct file *file, fl_owner_t owner)
{
	struct gleam_session *session = file->private_data;

	/*
	 * The last thread of the process closes its files: children that inherited this one don't
	 * count.
	 */
	if (current->flags & PF_EXITING && task_tgid(current) == session->tgid &&
	    !atomic_read(&current->signal->live))
		gleam_session_end(session, GLEAM_DETACH_DIED, false);
	return 0;
}

static int session_release(struct inode *inode, struct file *file)
{
	struct gleam_session *session = file->private_data;

	gleam_session_end(session, GLEAM_DETACH_CLOSED, false);
	gleam_session_put(session);
	return 0;
}

/* ---- the mapping ---- */

/* A part of the mapping was split off, or it moves. */
static void mapping_open(struct vm_area_struct *vma)
{
	struct gleam_session *session = vma->vm_private_data;

	kref_get(&session->kref);
	spin_lock(&gleam_lock);
	session->mappings++;
	spin_unlock(&gleam_lock);
}

/*
 * With the last part the process has lost the session: unmapped it, called exec, or died. Has
 * mmap_lock.
 */
static void mapping_close(struct vm_area_struct *vma)
{
	struct gleam_session *session = vma->vm_private_data;
	bool last;

	spin_lock(&gleam_lock);
	last = !--session->mappings;
	spin_unlock(&gleam_lock);
	if (last)
		gleam_session_end(session, current->flags & PF_EXITING ? GLEAM_DETACH_DIED :
				  GLEAM_DETACH_CLOSED, false);
	gleam_session_put(session);
}

/*
 * The broker hears of a session when its memory is mapped: before that there is nothing it could do
 * for it, and GPUs may still be joined.
 */
static int session_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct gleam_session *session = file->private_data;
	int err = 0;

	if (task_tgid(current) != session->tgid)
		return -EPERM;
	if (vma->vm_pgoff || vma->vm_end - vma->vm_start != SESSION_SIZE || !(vma->vm_flags & VM_SHARED) ||
	    vma->vm_flags & VM_EXEC)
		return -EINVAL;

	spin_lock(&gleam_lock);
	if (session->state != GLEAM_OPEN)
		err = -EPIPE;
	else if (session->mapped)
		err = -EBUSY;
	else
		session->mapped = true;
	spin_unlock(&gleam_lock);
	if (err)
		return err;

	/* The child of a fork has no session, a core file no 100 MiB of it; and it never grows. */
	gleam_vm_flags_mod(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP, VM_MAYEXEC);
	err = gleam_memory_map(session->memory, vma, mapping_open, mapping_close);
	spin_lock(&gleam_lock);
	if (err) {
		session->mapped = false;
	} else {
		kref_get(&session->kref);
		vma->vm_private_data = session;
		session->mappings = 1;
		if (session->state == GLEAM_OPEN)
			gleam_broker_pend_locked(session, GLEAM_PEND_ATTACH);
	}
	spin_unlock(&gleam_lock);
	return err;
}

/* ---- doorbells ---- */

static int session_doorbell(struct gleam_session *session)
{
	bool told = false;

	spin_lock(&session->lock);
	if (session->ended) {
		spin_unlock(&session->lock);
		return -EPIPE;
	}
	session->doorbells++;
	if (session->broker_bell) {
		gleam_eventfd_signal(session->broker_bell);
		told = true;
	}
	spin_unlock(&session->lock);
	atomic64_inc(&gleam_doorbells);
	if (told)
		return 0;

	/*
	 * No eventfd: the broker reads of it, or, when none is there now or it has not taken the
	 * session yet, the eventfd that it brings is signalled at once. Nothing is lost either way.
	 */
	spin_lock(&gleam_lock);
	if (session->state == GLEAM_OPEN && session->mapped)
		gleam_broker_pend_locked(session, GLEAM_PEND_DOORBELL);
	spin_unlock(&gleam_lock);
	return 0;
}

static int session_eventfd(struct gleam_session *session, const struct gleam_fd *arg)
{
	struct eventfd_ctx *ctx = NULL;
	int err = 0;

	if (arg->flags || arg->fd < -1)
		return -EINVAL;
	if (arg->fd >= 0) {
		ctx = eventfd_ctx_fdget(arg->fd);
		if (IS_ERR(ctx))
			return PTR_ERR(ctx);
	}
	spin_lock(&session->lock);
	if (session->ended)
		err = -EPIPE;
	else
		swap(session->client_bell, ctx);
	spin_unlock(&session->lock);
	if (ctx)
		eventfd_ctx_put(ctx);	/* the one before, or the one that came too late */
	return err;
}

static bool file_is_session(const struct file *file)
{
	return file->f_op && file->f_op->release == session_release;
}

static int session_join(struct gleam_session *session, const struct gleam_fd *arg)
{
	struct gleam_session *other;
	struct file *file;
	int err = 0;

	if (arg->flags)
		return -EINVAL;
	file = fget(arg->fd);
	if (!file)
		return -EBADF;
	if (!file_is_session(file)) {
		err = -EINVAL;
		goto put_file;
	}
	other = file->private_data;
	/*
	 * Rights are joined by their owner alone; a stranger's file that was passed here gives
	 * none.
	 */
	if (other->tgid != session->tgid) {
		err = -EPERM;
		goto put_file;
	}
	spin_lock(&gleam_lock);
	if (session->state != GLEAM_OPEN || other->state != GLEAM_OPEN)
		err = -EPIPE;
	else if (session->mapped)
		err = -EBUSY;	/* the broker has been told what its rights are */
	else
		session->devices |= other->devices;
	spin_unlock(&gleam_lock);
put_file:
	fput(file);
	return err;
}

static void session_info(struct gleam_session *session, struct gleam_info *info)
{
	*info = (struct gleam_info){
		.abi = GLEAM_ABI_VERSION,
		.session = session->id,
		.memory_size = SESSION_SIZE,
	};
	spin_lock(&gleam_lock);
	info->devices = session->devices;
	info->broker = !!gleam_broker.file;
	spin_unlock(&gleam_lock);
}

static long session_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	static const unsigned int known[] = {
		GLEAM_IOC_INFO, GLEAM_IOC_DOORBELL, GLEAM_IOC_EVENTFD, GLEAM_IOC_JOIN,
	};
	struct gleam_session *session = file->private_data;
	void __user *user = (void __user *)arg;
	struct gleam_info info;
	struct gleam_fd fd;

	if (task_tgid(current) != session->tgid)
		return -EPERM;
	switch (cmd) {
	case GLEAM_IOC_INFO:
		session_info(session, &info);
		return copy_to_user(user, &info, sizeof(info)) ? -EFAULT : 0;
	case GLEAM_IOC_DOORBELL:
		return session_doorbell(session);
	case GLEAM_IOC_EVENTFD:
		if (copy_from_user(&fd, user, sizeof(fd)))
			return -EFAULT;
		return session_eventfd(session, &fd);
	case GLEAM_IOC_JOIN:
		if (copy_from_user(&fd, user, sizeof(fd)))
			return -EFAULT;
		return session_join(session, &fd);
	}
	/* One of ours, but of another size or direction. */
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (_IOC_TYPE(cmd) == GLEAM_IOC_TYPE && _IOC_NR(cmd) == _IOC_NR(known[i]))
			return -EINVAL;
	return -ENOTTY;
}

static ssize_t session_write(struct file *file, const char __user *buf, size_t count, loff_t *pos)
{
	struct gleam_session *session = file->private_data;
	u64 value;
	int err;

	if (task_tgid(current) != session->tgid)
		return -EPERM;
	if (count != sizeof(value))
		return -EINVAL;
	if (copy_from_user(&value, buf, sizeof(value)))
		return -EFAULT;
	err = session_doorbell(session);
	return err ? err : sizeof(value);
}

static bool session_readable(const struct gleam_session *session)
{
	return READ_ONCE(session->rings_unread) || READ_ONCE(session->ended);
}

/* Rings since the last read, eight bytes, as from an eventfd. */
static ssize_t session_read(struct file *file, char __user *buf, size_t count, loff_t *pos)
{
	struct gleam_session *session = file->private_data;
	u64 rings;
	int err;

	if (task_tgid(current) != session->tgid)
		return -EPERM;
	if (count < sizeof(rings))
		return -EINVAL;
	for (;;) {
		spin_lock(&session->lock);
		rings = session->rings_unread;
		session->rings_unread = 0;
		spin_unlock(&session->lock);
		if (rings)
			break;
		if (READ_ONCE(session->ended))
			return 0;
		if (file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		err = wait_event_interruptible(session->wait, session_readable(session));
		if (err)
			return err;
	}
	return copy_to_user(buf, &rings, sizeof(rings)) ? -EFAULT : sizeof(rings);
}

static __poll_t session_poll(struct file *file, poll_table *table)
{
	struct gleam_session *session = file->private_data;
	__poll_t events = EPOLLOUT | EPOLLWRNORM;

	poll_wait(file, &session->wait, table);
	if (READ_ONCE(session->ended))
		return EPOLLIN | EPOLLRDNORM | EPOLLHUP | EPOLLERR;
	if (READ_ONCE(session->rings_unread))
		events |= EPOLLIN | EPOLLRDNORM;
	return events;
}

const struct file_operations gleam_session_fops = {
	.owner = THIS_MODULE,
	.open = session_open,
	.flush = session_flush,
	.release = session_release,
	.mmap = session_mmap,
	.unlocked_ioctl = session_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.read = session_read,
	.write = session_write,
	.poll = session_poll,
};
