// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/gleam-broker: the one daemon that serves all sessions. It reads what happens to them, takes
 * their memory, and is rung by them. When it goes, sessions stay as they are for a time of grace: a
 * new one that attaches within it hears of all of them again. After it they are dead, and so are
 * the virtual GPUs.
 *
 * What has not been read is a few bits in each session and the session's place in a list, so a
 * broker that does not read costs no memory; and a session counts against its limits until its end
 * has been read.
 */
#include <linux/compat.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/pid_namespace.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "compat.h"
#include "gleam.h"

#define GRACE_MS_MAX 600000

struct gleam_broker gleam_broker = {
	.pending = LIST_HEAD_INIT(gleam_broker.pending),
	.wait = __WAIT_QUEUE_HEAD_INITIALIZER(gleam_broker.wait),
};

/* As long as a session waits for a lost link (docs/kernel.md): a restart takes a second or two. */
unsigned int gleam_grace_ms = 20000;

static int grace_set(const char *text, const struct kernel_param *param)
{
	return param_set_uint_minmax(text, param, 0, GRACE_MS_MAX);
}

static const struct kernel_param_ops grace_ops = {
	.set = grace_set,
	.get = param_get_uint,
};
module_param_cb(grace_ms, &grace_ops, &gleam_grace_ms, 0644);
MODULE_PARM_DESC(grace_ms, "how long sessions wait for a new broker, in ms (default 20000)");

static void grace_over(struct work_struct *work);
static DECLARE_DELAYED_WORK(grace_work, grace_over);
/*
 * Held while a broker attaches, detaches, or the time of grace ends: these don't overlap. Outside
 * of gleam_lock.
 */
static DEFINE_MUTEX(attach_lock);

bool gleam_broker_usable_locked(void)
{
	lockdep_assert_held(&gleam_lock);
	return gleam_broker.file || gleam_broker.awaited;
}

/* ---- what is pending ---- */

void gleam_broker_pend_locked(struct gleam_session *session, unsigned int what)
{
	lockdep_assert_held(&gleam_lock);
	session->pending |= what;
	if (!gleam_broker.file || !list_empty(&session->pending_entry))
		return;
	list_add_tail(&session->pending_entry, &gleam_broker.pending);
	wake_up_interruptible(&gleam_broker.wait);
}

void gleam_broker_unpend_locked(struct gleam_session *session)
{
	lockdep_assert_held(&gleam_lock);
	session->pending = 0;
	list_del_init(&session->pending_entry);
}

/* ---- who it is ---- */

bool gleam_broker_is_current(void)
{
	bool is;

	spin_lock(&gleam_lock);
	is = gleam_broker.file && gleam_broker.tgid == task_tgid(current);
	spin_unlock(&gleam_lock);
	return is;
}

pid_t gleam_broker_pid(struct pid_namespace *ns)
{
	pid_t pid = 0;

	spin_lock(&gleam_lock);
	if (gleam_broker.file)
		pid = pid_nr_ns(gleam_broker.tgid, ns);
	spin_unlock(&gleam_lock);
	return pid;
}

static int broker_open(struct inode *inode, struct file *file)
{
	struct gleam_session *session;
	unsigned long id;

	mutex_lock(&attach_lock);
	spin_lock(&gleam_lock);
	if (gleam_broker.file) {
		spin_unlock(&gleam_lock);
		mutex_unlock(&attach_lock);
		return -EBUSY;
	}
	gleam_broker.file = file;
	gleam_broker.tgid = get_pid(task_tgid(current));
	gleam_broker.awaited = false;
	xa_for_each(&gleam_sessions, id, session)
		if (session->state == GLEAM_OPEN && session->mapped)
			gleam_broker_pend_locked(session, GLEAM_PEND_ATTACH);
	spin_unlock(&gleam_lock);
	mutex_unlock(&attach_lock);

	cancel_delayed_work(&grace_work);	/* one that runs already sees that a broker is there */
	file->private_data = NULL;
	stream_open(inode, file);
	gleam_notify_broker();
	return 0;
}

/* What the broker was told, taken, and left unread means nothing to the next one. */
static void session_forget_broker(struct gleam_session *session)
{
	struct eventfd_ctx *bell;

	spin_lock(&gleam_lock);
	session->known = false;
	list_del_init(&session->pending_entry);
	/* A doorbell that may not have been heard is heard by the next one. */
	session->pending = session->mapped ? GLEAM_PEND_DOORBELL : 0;
	if (session->state == GLEAM_ENDED)
		gleam_session_erase_locked(session);	/* its end was not read */
	spin_lock(&session->lock);
	bell = session->broker_bell;
	session->broker_bell = NULL;
	spin_unlock(&session->lock);
	spin_unlock(&gleam_lock);
	if (bell)
		eventfd_ctx_put(bell);
}

static void broker_detach(struct file *file)
{
	struct gleam_session *session;
	struct pid *tgid;
	unsigned long id = 0;

	mutex_lock(&attach_lock);
	spin_lock(&gleam_lock);
	if (gleam_broker.file != file) {
		spin_unlock(&gleam_lock);
		mutex_unlock(&attach_lock);
		return;
	}
	tgid = gleam_broker.tgid;
	gleam_broker.file = NULL;
	gleam_broker.tgid = NULL;
	gleam_broker.awaited = true;
	spin_unlock(&gleam_lock);
	put_pid(tgid);

	for (; (session = gleam_session_next(&id)); id++) {
		session_forget_broker(session);
		gleam_session_put(session);
	}
	mod_delayed_work(system_wq, &grace_work, msecs_to_jiffies(READ_ONCE(gleam_grace_ms)));
	mutex_unlock(&attach_lock);
	wake_up_interruptible(&gleam_broker.wait);
	gleam_notify_broker();
}

static void grace_over(struct work_struct *work)
{
	bool over;

	mutex_lock(&attach_lock);
	spin_lock(&gleam_lock);
	over = !gleam_broker.file && gleam_broker.awaited;
	if (over)
		gleam_broker.awaited = false;
	spin_unlock(&gleam_lock);
	if (over) {
		gleam_sessions_end_all(GLEAM_DETACH_BROKER);
		gleam_devices_del_all();
	}
	mutex_unlock(&attach_lock);
}

/* No file is open any more, so nothing starts it again. */
void gleam_broker_exit(void)
{
	cancel_delayed_work_sync(&grace_work);
}

static int broker_flush(struct file *file, fl_owner_t owner)
{
	struct pid *tgid;

	/*
	 * As with sessions: a child that has inherited the file does not keep a dead broker
	 * attached.
	 */
	spin_lock(&gleam_lock);
	tgid = gleam_broker.file == file ? gleam_broker.tgid : NULL;
	spin_unlock(&gleam_lock);
	if (current->flags & PF_EXITING && tgid == task_tgid(current) && !atomic_read(&current->signal->live))
		broker_detach(file);
	return 0;
}

static int broker_release(struct inode *inode, struct file *file)
{
	broker_detach(file);
	return 0;
}

/* ---- reading ---- */

static void event_fill(struct gleam_event *event, struct gleam_session *session, struct pid_namespace *ns)
{
	*event = (struct gleam_event){
		.session = session->id,
		.pid = pid_nr_ns(session->pid, ns),
		.tgid = pid_nr_ns(session->tgid, ns),
		.client_pid = session->client_pid,
		.uid = from_kuid_munged(current_user_ns(), session->uid),
		.gid = from_kgid_munged(current_user_ns(), session->gid),
		.pidns = session->pidns,
		.cgroup = session->cgroup,
		.devices = session->devices,
		.opened_ns = session->opened_ns,
	};
	memcpy(event->comm, session->comm, sizeof(event->comm));
	spin_lock(&session->lock);
	event->doorbells = session->doorbells;
	spin_unlock(&session->lock);
}

/*
 * The next event: its session, counted, or NULL. @bit_out: what to pend again if it can't be handed
 * over.
 */
static struct gleam_session *event_take(struct file *file, struct gleam_event *event, unsigned int *bit_out)
{
	struct pid_namespace *ns = task_active_pid_ns(current);
	struct gleam_session *session = NULL;

	spin_lock(&gleam_lock);
	if (gleam_broker.file != file || list_empty(&gleam_broker.pending))
		goto unlock;
	session = list_first_entry(&gleam_broker.pending, struct gleam_session, pending_entry);
	kref_get(&session->kref);
	event_fill(event, session, ns);
	if (session->pending & GLEAM_PEND_ATTACH) {
		*bit_out = GLEAM_PEND_ATTACH;
		event->type = GLEAM_EVENT_ATTACH;
		event->flags = session->served ? GLEAM_EVENT_RESUMED : 0;
		session->known = true;
		session->served = true;
	} else if (session->pending & GLEAM_PEND_DOORBELL) {
		*bit_out = GLEAM_PEND_DOORBELL;
		event->type = GLEAM_EVENT_DOORBELL;
	} else {
		*bit_out = GLEAM_PEND_DETACH;
		event->type = GLEAM_EVENT_DETACH;
		event->reason = session->reason;
	}
	session->pending &= ~*bit_out;
	/*
	 * To the end of the list with what is left, so that one session that rings all the time
	 * hides no other.
	 */
	list_del_init(&session->pending_entry);
	if (session->pending)
		list_add_tail(&session->pending_entry, &gleam_broker.pending);
unlock:
	spin_unlock(&gleam_lock);
	return session;
}

/* It could not be copied to the reader: as if it had not been read. */
static void event_untake(struct file *file, struct gleam_session *session, unsigned int bit, bool served)
{
	spin_lock(&gleam_lock);
	if (gleam_broker.file != file)
		goto unlock;
	if (bit == GLEAM_PEND_ATTACH) {
		session->known = false;
		session->served = served;
	}
	if (session->state == GLEAM_OPEN || bit == GLEAM_PEND_DETACH) {
		session->pending |= bit;
		list_del_init(&session->pending_entry);
		list_add(&session->pending_entry, &gleam_broker.pending);
	} else if (bit == GLEAM_PEND_ATTACH) {
		gleam_session_erase_locked(session);	/* ended meanwhile, and nobody has heard of it */
	}
unlock:
	spin_unlock(&gleam_lock);
}

/* The end has been read: out of the table. */
static void event_detached(struct gleam_session *session)
{
	spin_lock(&gleam_lock);
	gleam_session_erase_locked(session);
	spin_unlock(&gleam_lock);
}

static bool broker_readable(struct file *file)
{
	return gleam_broker.file != file || !list_empty(&gleam_broker.pending);
}

static ssize_t broker_read(struct file *file, char __user *buf, size_t count, loff_t *pos)
{
	struct gleam_session *session;
	struct gleam_event event;
	unsigned int bit;
	size_t done = 0;
	int err;

	if (!gleam_broker_is_current())
		return -EPERM;
	if (count < sizeof(event))
		return -EINVAL;
	while (count - done >= sizeof(event)) {
		session = event_take(file, &event, &bit);
		if (!session) {
			if (done)
				break;
			if (file->f_flags & O_NONBLOCK)
				return -EAGAIN;
			err = wait_event_interruptible(gleam_broker.wait, broker_readable(file));
			if (err)
				return err;
			if (!gleam_broker_is_current())
				return -EPERM;
			continue;
		}
		if (copy_to_user(buf + done, &event, sizeof(event))) {
			event_untake(file, session, bit, event.flags & GLEAM_EVENT_RESUMED);
			gleam_session_put(session);
			return done ? done : -EFAULT;
		}
		if (bit == GLEAM_PEND_DETACH)
			event_detached(session);
		gleam_session_put(session);
		done += sizeof(event);
	}
	return done;
}

static __poll_t broker_poll(struct file *file, poll_table *table)
{
	poll_wait(file, &gleam_broker.wait, table);
	return broker_readable(file) ? EPOLLIN | EPOLLRDNORM : 0;
}

/* ---- what it does with a session ---- */

/* Counted, and known to the broker; else NULL. */
static struct gleam_session *session_known(u32 id)
{
	struct gleam_session *session = gleam_session_get(id);
	bool known;

	if (!session)
		return NULL;
	spin_lock(&gleam_lock);
	known = session->known;
	spin_unlock(&gleam_lock);
	if (known)
		return session;
	gleam_session_put(session);
	return NULL;
}

/* Puts @bell in place of the one that is there, which is given back in it. */
static int session_bell_swap(struct file *file, struct gleam_session *session, struct eventfd_ctx **bell)
{
	int err = 0;

	spin_lock(&gleam_lock);
	if (session->state != GLEAM_OPEN || gleam_broker.file != file) {
		err = -EPIPE;
		goto unlock;
	}
	spin_lock(&session->lock);
	swap(session->broker_bell, *bell);
	/* It rang before there was an eventfd. */
	if (session->broker_bell && session->pending & GLEAM_PEND_DOORBELL) {
		session->pending &= ~GLEAM_PEND_DOORBELL;
		if (!session->pending)
			list_del_init(&session->pending_entry);
		gleam_eventfd_signal(session->broker_bell);
	}
	spin_unlock(&session->lock);
unlock:
	spin_unlock(&gleam_lock);
	return err;
}

static int broker_take(struct file *file, struct gleam_take __user *user)
{
	struct gleam_session *session;
	struct eventfd_ctx *bell = NULL;
	struct gleam_take take;
	int fd, err;

	if (copy_from_user(&take, user, sizeof(take)))
		return -EFAULT;
	if (take.flags || take.doorbell < -1)
		return -EINVAL;
	session = session_known(take.session);
	if (!session)
		return -ENOENT;
	if (take.doorbell >= 0) {
		bell = eventfd_ctx_fdget(take.doorbell);
		if (IS_ERR(bell)) {
			err = PTR_ERR(bell);
			bell = NULL;
			goto put_session;
		}
	}
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		err = fd;
		goto put_bell;
	}
	take.memory = fd;
	if (copy_to_user(user, &take, sizeof(take))) {
		err = -EFAULT;
		goto put_fd;
	}
	err = session_bell_swap(file, session, &bell);
	if (err)
		goto put_fd;
	fd_install(fd, get_file(session->memory));
	goto put_bell;	/* the one before */

put_fd:
	put_unused_fd(fd);
put_bell:
	if (bell)
		eventfd_ctx_put(bell);
put_session:
	gleam_session_put(session);
	return err;
}

static int session_ring(struct gleam_session *session)
{
	int err = 0;

	spin_lock(&session->lock);
	if (session->ended) {
		err = -EPIPE;
	} else {
		session->rings++;
		session->rings_unread++;
		if (session->client_bell)
			gleam_eventfd_signal(session->client_bell);
	}
	spin_unlock(&session->lock);
	if (!err) {
		atomic64_inc(&gleam_rings);
		wake_up_interruptible(&session->wait);
	}
	return err;
}

static int broker_on_session(unsigned int cmd, const struct gleam_session_ref __user *user)
{
	struct gleam_session *session;
	struct gleam_session_ref ref;
	int err = 0;

	if (copy_from_user(&ref, user, sizeof(ref)))
		return -EFAULT;
	if (ref.flags)
		return -EINVAL;
	session = session_known(ref.session);
	if (!session)
		return -ENOENT;
	if (cmd == GLEAM_IOC_RING)
		err = session_ring(session);
	else
		gleam_session_end(session, GLEAM_DETACH_ENDED, false);
	gleam_session_put(session);
	return err;
}

static long broker_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	static const unsigned int known[] = { GLEAM_IOC_TAKE, GLEAM_IOC_RING, GLEAM_IOC_END };
	void __user *user = (void __user *)arg;

	if (!gleam_broker_is_current())
		return -EPERM;
	switch (cmd) {
	case GLEAM_IOC_TAKE:
		return broker_take(file, user);
	case GLEAM_IOC_RING:
	case GLEAM_IOC_END:
		return broker_on_session(cmd, user);
	}
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (_IOC_TYPE(cmd) == GLEAM_IOC_TYPE && _IOC_NR(cmd) == _IOC_NR(known[i]))
			return -EINVAL;
	return -ENOTTY;
}

const struct file_operations gleam_broker_fops = {
	.owner = THIS_MODULE,
	.open = broker_open,
	.flush = broker_flush,
	.release = broker_release,
	.unlocked_ioctl = broker_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.read = broker_read,
	.poll = broker_poll,
};
