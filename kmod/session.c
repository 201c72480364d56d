// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sessions: an open /dev/gleam or /dev/gleam<N>, from opening to the end. Who opened it is written
 * down by the kernel and can't be changed.
 *
 * A session ends when its process is gone, its file closed, its memory unmapped, its last GPU
 * removed, or when the broker says so. A child that has inherited the file does not keep it alive:
 * the mapping is not inherited, and the last thread of the process takes the session with it when
 * its files are closed.
 *
 * Life: dead first (gleam_session_end: nobody rings it, its client is woken), out of the table once
 * the broker has read that, freed when the last of file, mappings and readers lets go.
 */
#include <linux/file.h>
#include <linux/ns_common.h>
#include <linux/pid_namespace.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "compat.h"
#include "gleam.h"
#include "broker/proto/ring.h"

DEFINE_SPINLOCK(gleam_lock);
DEFINE_XARRAY_ALLOC1(gleam_sessions);
static u32 session_next_id;	/* guarded by the table's own lock */
atomic64_t gleam_opened, gleam_doorbells, gleam_rings;
atomic_t gleam_session_count;	/* open ones */

/* ---- life ---- */

static void session_free(struct kref *kref)
{
	struct gleam_session *session = container_of(kref, struct gleam_session, kref);

	if (session->memory)
		fput(session->memory);
	gleam_uncharge(&session->charge);
	put_pid(session->pid);
	put_pid(session->tgid);
	kfree_rcu(session, rcu);
}

void gleam_session_put(struct gleam_session *session)
{
	kref_put(&session->kref, session_free);
}

struct gleam_session *gleam_session_get(u32 id)
{
	struct gleam_session *session;

	rcu_read_lock();
	session = xa_load(&gleam_sessions, id);
	if (session && !kref_get_unless_zero(&session->kref))
		session = NULL;
	rcu_read_unlock();
	return session;
}

struct gleam_session *gleam_session_next(unsigned long *id)
{
	struct gleam_session *session;

	rcu_read_lock();
	session = xa_find(&gleam_sessions, id, U32_MAX, XA_PRESENT);
	while (session && !kref_get_unless_zero(&session->kref))
		session = xa_find_after(&gleam_sessions, id, U32_MAX, XA_PRESENT);
	rcu_read_unlock();
	return session;
}

void gleam_session_erase_locked(struct gleam_session *session)
{
	lockdep_assert_held(&gleam_lock);
	gleam_broker_unpend_locked(session);
	if (xa_load(&gleam_sessions, session->id) != session)
		return;
	xa_erase(&gleam_sessions, session->id);
	gleam_session_put(session);	/* not the last one */
}

static bool session_end_locked(struct gleam_session *session, enum gleam_detach_reason reason, bool kill)
{
	struct eventfd_ctx *broker_bell, *client_bell;

	lockdep_assert_held(&gleam_lock);
	if (session->state != GLEAM_OPEN)
		return false;
	session->state = GLEAM_ENDED;
	session->reason = reason;
	atomic_dec(&gleam_session_count);

	spin_lock(&session->lock);
	session->ended = true;
	broker_bell = session->broker_bell;
	client_bell = session->client_bell;
	session->broker_bell = NULL;
	session->client_bell = NULL;
	spin_unlock(&session->lock);

	if (kill)
		gleam_memory_kill(session->memory, GLEAM_REASON_BROKER_GONE);
	if (client_bell) {
		gleam_eventfd_signal(client_bell);
		eventfd_ctx_put(client_bell);
	}
	if (broker_bell)
		eventfd_ctx_put(broker_bell);
	wake_up_all(&session->wait);

	/* A broker that knows it reads its end, and the session stays in the table until then. */
	if (session->known && reason != GLEAM_DETACH_ENDED) {
		session->pending = 0;
		gleam_broker_pend_locked(session, GLEAM_PEND_DETACH);
	} else {
		gleam_session_erase_locked(session);
	}
	return true;
}

void gleam_session_end(struct gleam_session *session, enum gleam_detach_reason reason, bool kill)
{
	bool ended;

	spin_lock(&gleam_lock);
	ended = session_end_locked(session, reason, kill);
	spin_unlock(&gleam_lock);
	if (ended)
		gleam_notify_session(GLEAM_CMD_SESSION_DETACH_NTF, session);
}

void gleam_sessions_end_all(enum gleam_detach_reason reason)
{
	struct gleam_session *session;
	unsigned long id = 0;

	for (; (session = gleam_session_next(&id)); id++) {
		gleam_session_end(session, reason, true);
		gleam_session_put(session);
	}
}

void gleam_sessions_drop_device(unsigned int index)
{
	struct gleam_session *session;
	unsigned long id = 0;

	for (; (session = gleam_session_next(&id)); id++) {
		bool ended = false;

		spin_lock(&gleam_lock);
		if (session->devices != GLEAM_DEVICES_ANY && session->devices & BIT_ULL(index)) {
			session->devices &= ~BIT_ULL(index);
			if (!session->devices)
				ended = session_end_locked(session, GLEAM_DETACH_DEVICE, true);
		}
		spin_unlock(&gleam_lock);
		if (ended)
			gleam_notify_session(GLEAM_CMD_SESSION_DETACH_NTF, session);
		gleam_session_put(session);
	}
}

unsigned int gleam_sessions_of_device(unsigned int index)
{
	struct gleam_session *session;
	unsigned int count = 0;
	unsigned long id;

	spin_lock(&gleam_lock);
	xa_for_each(&gleam_sessions, id, session)
		count += session->state == GLEAM_OPEN && session->devices != GLEAM_DEVICES_ANY &&
			 session->devices & BIT_ULL(index);
	spin_unlock(&gleam_lock);
	return count;
}

/* ---- opening ---- */

static struct gleam_session *session_new(u64 devices)
{
	struct gleam_session *session;
	struct pid_namespace *pidns = task_active_pid_ns(current);

	session = kzalloc(sizeof(*session), GFP_KERNEL_ACCOUNT);
	if (!session)
		return NULL;
	kref_init(&session->kref);
	spin_lock_init(&session->lock);
	init_waitqueue_head(&session->wait);
	INIT_LIST_HEAD(&session->pending_entry);
	session->pid = get_pid(task_pid(current));
	session->tgid = get_pid(task_tgid(current));
	session->client_pid = task_tgid_vnr(current);
	current_euid_egid(&session->uid, &session->gid);
	session->pidns = pidns ? pidns->ns.inum : 0;
	session->opened_ns = ktime_get_boottime_ns();
	session->pages = SESSION_SIZE >> PAGE_SHIFT;
	session->devices = devices;
	session->state = GLEAM_OPENING;
	get_task_comm(session->comm, current);
	return session;
}

/*
 * Sessions and pages in two charges: pages are given back when the memory goes, which may be later.
 */
static int session_charge(struct gleam_session *session)
{
	struct gleam_owner *owner;
	struct gleam_charge pages;
	struct gleam_limit hit;
	struct file *memory;
	int err;

	owner = kmalloc(sizeof(*owner), GFP_KERNEL);
	if (!owner)
		return -ENOMEM;
	err = gleam_owner_current(owner);
	if (err)
		goto free_owner;
	session->cgroup = owner->depth ? owner->cgroups[0] : 0;
	err = gleam_charge(owner, 1, 0, &session->charge, &hit);
	if (!err)
		err = gleam_charge(owner, 0, session->pages, &pages, &hit);
	if (err) {
		if (err == -EDQUOT)
			gleam_notify_limit(&hit);
		goto free_owner;	/* session_free() gives the first charge back */
	}
	memory = gleam_memory_new(&pages, session->client_pid);
	if (IS_ERR(memory)) {
		err = PTR_ERR(memory);
		gleam_uncharge(&pages);
		goto free_owner;
	}
	session->memory = memory;

free_owner:
	kfree(owner);
	return err;
}

int gleam_session_open(struct file *file, u64 devices, const bool *gone)
{
	struct gleam_session *session;
	bool usable;
	int err;

	spin_lock(&gleam_lock);
	usable = gleam_broker_usable_locked();
	spin_unlock(&gleam_lock);
	if (!usable)
		return -ENXIO;

	session = session_new(devices);
	if (!session)
		return -ENOMEM;
	err = session_charge(session);
	if (err)
		goto put_session;
	err = xa_alloc_cyclic(&gleam_sessions, &session->id, session, XA_LIMIT(1, INT_MAX), &session_next_id,
			      GFP_KERNEL);
	if (err < 0)
		goto put_session;
	kref_get(&session->kref);	/* the table's */

	/* From here on it is seen: by the broker's list, by dumps, by the end of devices. */
	spin_lock(&gleam_lock);
	if (!gleam_broker_usable_locked() || (gone && *gone)) {
		gleam_session_erase_locked(session);
		spin_unlock(&gleam_lock);
		err = -ENXIO;
		goto put_session;
	}
	session->state = GLEAM_OPEN;
	atomic_inc(&gleam_session_count);
	spin_unlock(&gleam_lock);

	atomic64_inc(&gleam_opened);
	file->private_data = session;
	stream_open(file_inode(file), file);
	gleam_notify_session(GLEAM_CMD_SESSION_ATTACH_NTF, session);
	return 0;

put_session:
	gleam_session_put(session);
	return err;
}
