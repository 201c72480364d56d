/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the parts of gleam.ko share.
 *
 * Locks, outer first:
 *
 *	gleam_devices_lock (mutex)	device.c: adding, changing, removing virtual GPUs
 *	gleam_lock (spinlock)		who the broker is, what it has not read yet, the states and
 *					rights of sessions
 *	session->lock (spinlock)	eventfds and counters of one session: the doorbell takes no
 *					other lock
 *
 * account_lock (account.c) is taken inside of none of them. mmap_lock may be held around gleam_lock
 * and session->lock, so nothing touches user memory under those.
 */
#ifndef _GLEAM_H
#define _GLEAM_H

#include <linux/atomic.h>
#include <linux/eventfd.h>
#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/wait.h>
#include <linux/xarray.h>

#include <uapi/linux/gleam.h>

/* Deeper nesting than any container has; beyond it opens are refused, not uncounted. */
#define GLEAM_CGROUP_DEPTH 64

struct gleam_account;
struct net;
struct seq_file;
struct sk_buff;

/* ---- account.c: who uses how much ---- */

struct gleam_charge {
	struct gleam_account *uid;
	struct gleam_account *cgroup;	/* the innermost; NULL without cgroups */
	u64 sessions;
	u64 pages;
};

struct gleam_owner {
	kuid_t uid;
	unsigned int depth;
	u64 cgroups[GLEAM_CGROUP_DEPTH];	/* innermost first */
};

struct gleam_limit {
	u32 kind;	/* enum gleam_limit_kind */
	u64 id;
	u64 sessions_max;
	u64 pages_max;
	u64 sessions;
	u64 pages;
	u64 refused;
};

int gleam_owner_current(struct gleam_owner *owner_out);
/* -EDQUOT: @hit_out is the limit. */
int gleam_charge(const struct gleam_owner *owner, u64 sessions, u64 pages, struct gleam_charge *charge_out,
		 struct gleam_limit *hit_out);
void gleam_uncharge(struct gleam_charge *charge);
int gleam_limit_set(u32 kind, u64 id, u64 sessions_max, u64 pages_max, bool sessions_given, bool pages_given);
/* The one of (@kind, @id), or with @next the first behind it: -ENOENT if there is none. */
int gleam_limit_find(u32 kind, u64 id, bool next, struct gleam_limit *limit_out);
void gleam_accounts_exit(void);

/* ---- memory.c: session memory ---- */

struct gleam_memory;

/* A file of SESSION_SIZE bytes with its header filled in. Takes @charge's pages on success. */
struct file *gleam_memory_new(struct gleam_charge *charge, u32 client_pid);
/* The one mapping of the client, as that of @file: the vma has a reference to @file in the end. */
int gleam_memory_map(struct file *file, struct vm_area_struct *vma, void (*open)(struct vm_area_struct *vma),
		     void (*close)(struct vm_area_struct *vma));
/* Writes state and reason of the header. Any context. */
void gleam_memory_kill(struct file *file, u32 reason);

/* ---- session.c: from opening to the end; client.c: file operations ---- */

enum gleam_session_state {
	GLEAM_OPENING,	/* found by nobody */
	GLEAM_OPEN,
	GLEAM_ENDED,	/* in the table only until the broker has read its end */
};

enum gleam_pending {
	GLEAM_PEND_ATTACH = BIT(0),
	GLEAM_PEND_DOORBELL = BIT(1),
	GLEAM_PEND_DETACH = BIT(2),
};

struct gleam_session {
	struct kref kref;	/* file, table, each mapping, the event being read */
	struct rcu_head rcu;
	u32 id;

	/* set when it is opened, then only read */
	struct pid *pid;
	struct pid *tgid;
	u32 client_pid;
	kuid_t uid;
	kgid_t gid;
	u64 cgroup;
	u64 pidns;
	u64 opened_ns;
	u64 pages;
	char comm[GLEAM_COMM_SIZE];
	struct file *memory;
	struct gleam_charge charge;

	/* guarded by gleam_lock */
	enum gleam_session_state state;
	enum gleam_detach_reason reason;
	u64 devices;
	unsigned int pending;
	struct list_head pending_entry;	/* in the broker's list while something is pending */
	bool known;			/* the attached broker has read its ATTACH */
	bool served;			/* some broker has */
	unsigned int mappings;
	bool mapped;			/* has been, once */

	spinlock_t lock;	/* of what follows */
	/* guarded by lock; ended also by gleam_lock, so either is enough to read it */
	bool ended;
	struct eventfd_ctx *broker_bell;
	struct eventfd_ctx *client_bell;
	u64 doorbells;
	u64 rings;
	u64 rings_unread;

	wait_queue_head_t wait;	/* client: rung, or ended */
};

extern spinlock_t gleam_lock;
extern struct xarray gleam_sessions;
extern const struct file_operations gleam_session_fops;
extern atomic64_t gleam_opened, gleam_doorbells, gleam_rings;
extern atomic_t gleam_session_count;

/* @gone, guarded by gleam_lock: the device that @file is of has been removed. NULL: /dev/gleam. */
int gleam_session_open(struct file *file, u64 devices, const bool *gone);
/* Counted; NULL: not there. */
struct gleam_session *gleam_session_get(u32 id);
/* The first with a number of at least *@id, which is set to its own. Counted. */
struct gleam_session *gleam_session_next(unsigned long *id);
void gleam_session_put(struct gleam_session *session);
/* Dead from now on; harmless on a dead one. @kill: the header says so, too. */
void gleam_session_end(struct gleam_session *session, enum gleam_detach_reason reason, bool kill);
/* Out of the table. With gleam_lock; the caller has a reference. */
void gleam_session_erase_locked(struct gleam_session *session);
void gleam_sessions_end_all(enum gleam_detach_reason reason);
/* Device @index is gone: no session keeps a right to its number. */
void gleam_sessions_drop_device(unsigned int index);
unsigned int gleam_sessions_of_device(unsigned int index);

/* ---- broker.c ---- */

struct gleam_broker {
	/* guarded by gleam_lock */
	struct file *file;	/* NULL: none is attached */
	struct pid *tgid;
	bool awaited;		/* none is attached, but one was a short time ago */
	struct list_head pending;	/* sessions with something to tell */

	wait_queue_head_t wait;
};

extern struct gleam_broker gleam_broker;
extern const struct file_operations gleam_broker_fops;
extern unsigned int gleam_grace_ms;

/* With gleam_lock. */
bool gleam_broker_usable_locked(void);
void gleam_broker_pend_locked(struct gleam_session *session, unsigned int what);
void gleam_broker_unpend_locked(struct gleam_session *session);

bool gleam_broker_is_current(void);
/* 0: none. As seen from @ns. */
pid_t gleam_broker_pid(struct pid_namespace *ns);
void gleam_broker_exit(void);

/* ---- device.c: virtual GPUs ---- */

struct gleam_gpu_setting {
	u32 index;
	bool index_given;
	u32 gpu;
	u32 state;
	u64 memory;
	u32 mode;
	char name[GLEAM_NAME_MAX + 1];
	char server[GLEAM_NAME_MAX + 1];
};

enum gleam_gpu_change {
	GLEAM_CHANGE_NAME = BIT(0),
	GLEAM_CHANGE_SERVER = BIT(1),
	GLEAM_CHANGE_GPU = BIT(2),
	GLEAM_CHANGE_MEMORY = BIT(3),
	GLEAM_CHANGE_STATE = BIT(4),
};

int gleam_devices_init(void);
void gleam_devices_exit(void);
/* setting->index is set to the one that was taken. */
int gleam_device_add(struct gleam_gpu_setting *setting);
int gleam_device_set(u32 index, const struct gleam_gpu_setting *setting, unsigned int changes);
int gleam_device_del(u32 index);
void gleam_devices_del_all(void);
/* The first with an index of at least @index: -ENOENT if there is none. */
int gleam_device_find(u32 index, struct gleam_gpu_setting *setting_out);
u64 gleam_devices_present(void);	/* bit N: /dev/gleam<N> is there */

/* ---- netlink.c ---- */

int gleam_netlink_init(void);
void gleam_netlink_exit(void);
void gleam_notify_session(u8 cmd, struct gleam_session *session);
void gleam_notify_device(u8 cmd, const struct gleam_gpu_setting *setting);
void gleam_notify_limit(const struct gleam_limit *limit);
void gleam_notify_broker(void);

/* ---- debugfs.c ---- */

#ifdef CONFIG_GLEAM_DEBUG
void gleam_debugfs_init(void);
void gleam_debugfs_exit(void);
#else
static inline void gleam_debugfs_init(void) {}
static inline void gleam_debugfs_exit(void) {}
#endif

#endif /* _GLEAM_H */
