// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limits: how many sessions a user and a cgroup have, and how many pages these may come to use. An
 * account is there while something is charged to it or a limit was set for it. A session is charged
 * to its user and to its cgroup and all cgroups above that one, as they were when it was opened; so
 * a limit holds for what is below it, and 1, the root cgroup's id, is the whole machine.
 */
#include <linux/cgroup.h>
#include <linux/err.h>
#include <linux/moduleparam.h>
#include <linux/rbtree.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>

#include "gleam.h"

#define LIMITS_SET_MAX 4096	/* accounts that exist for their limits alone; each is 120 bytes */

struct gleam_account {
	struct rb_node node;
	u32 kind;
	u64 id;
	struct gleam_account *parent;	/* counted; of a cgroup, once something was charged */
	u32 refs;			/* charges, children, and one if a limit is set */
	bool set;
	u64 sessions_max, pages_max;
	u64 sessions, pages;
	u64 refused;
};

static DEFINE_SPINLOCK(account_lock);
/* guarded by account_lock */
static struct rb_root accounts = RB_ROOT;	/* by kind, then id */
static unsigned int limits_set;

/* A process needs one, seldom a few; a thousand is a runaway. */
static unsigned int sessions_per_uid = 1024;
module_param(sessions_per_uid, uint, 0644);
MODULE_PARM_DESC(sessions_per_uid, "sessions of a user for whom no limit was set (default 1024)");

/* ---- the tree ---- */

static int account_compare(u32 kind, u64 id, const struct gleam_account *account)
{
	if (kind != account->kind)
		return kind < account->kind ? -1 : 1;
	if (id != account->id)
		return id < account->id ? -1 : 1;
	return 0;
}

static struct gleam_account *account_find(u32 kind, u64 id, bool next)
{
	struct rb_node *node = accounts.rb_node;
	struct gleam_account *behind = NULL;

	while (node) {
		struct gleam_account *account = rb_entry(node, struct gleam_account, node);
		int order = account_compare(kind, id, account);

		if (!order && !next)
			return account;
		if (order < 0) {
			behind = account;
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return next ? behind : NULL;
}

/* Adds @fresh, which is nowhere yet. */
static void account_add(struct gleam_account *fresh, u32 kind, u64 id)
{
	struct rb_node **link = &accounts.rb_node, *parent = NULL;

	fresh->kind = kind;
	fresh->id = id;
	fresh->sessions_max = kind == GLEAM_LIMIT_UID ? READ_ONCE(sessions_per_uid) : GLEAM_NO_LIMIT;
	fresh->pages_max = GLEAM_NO_LIMIT;
	while (*link) {
		parent = *link;
		link = account_compare(kind, id, rb_entry(parent, struct gleam_account, node)) < 0 ?
			&parent->rb_left : &parent->rb_right;
	}
	rb_link_node(&fresh->node, parent, link);
	rb_insert_color(&fresh->node, &accounts);
}

static void account_put(struct gleam_account *account)
{
	while (account && !--account->refs) {
		struct gleam_account *parent = account->parent;

		rb_erase(&account->node, &accounts);
		kfree(account);
		account = parent;
	}
}

static void limit_of(const struct gleam_account *account, struct gleam_limit *limit)
{
	*limit = (struct gleam_limit){
		.kind = account->kind,
		.id = account->id,
		.sessions_max = account->sessions_max,
		.pages_max = account->pages_max,
		.sessions = account->sessions,
		.pages = account->pages,
		.refused = account->refused,
	};
}

/* ---- charging ---- */

int gleam_owner_current(struct gleam_owner *owner)
{
	int err = 0;

	owner->uid = current_euid();
	owner->depth = 0;
#ifdef CONFIG_CGROUPS
	rcu_read_lock();
	for (struct cgroup *cgroup = task_dfl_cgroup(current); cgroup; cgroup = cgroup_parent(cgroup)) {
		if (owner->depth == GLEAM_CGROUP_DEPTH) {
			err = -EDQUOT;
			break;
		}
		owner->cgroups[owner->depth++] = cgroup_id(cgroup);
	}
	rcu_read_unlock();
#endif
	return err;
}

static bool over(u64 used, u64 more, u64 max)
{
	return used > max || more > max - used;
}

/* The account that refuses, or NULL. */
static struct gleam_account *charge_refused(struct gleam_account *account, u64 sessions, u64 pages)
{
	for (; account; account = account->parent)
		if ((sessions && over(account->sessions, sessions, account->sessions_max)) ||
		    (pages && over(account->pages, pages, account->pages_max)))
			return account;
	return NULL;
}

static void charge_add(struct gleam_account *account, u64 sessions, u64 pages)
{
	for (; account; account = account->parent) {
		account->sessions += sessions;
		account->pages += pages;
	}
}

static void charge_sub(struct gleam_account *account, u64 sessions, u64 pages)
{
	for (; account; account = account->parent) {
		account->sessions -= sessions;
		account->pages -= pages;
	}
}

/* The account of (@kind, @id), one of @spare if there was none. A reference more. */
static struct gleam_account *account_get(u32 kind, u64 id, struct gleam_account **spare, unsigned int *spares)
{
	struct gleam_account *account = account_find(kind, id, false);

	if (!account) {
		account = spare[--*spares];
		account_add(account, kind, id);
	}
	account->refs++;
	return account;
}

int gleam_charge(const struct gleam_owner *owner, u64 sessions, u64 pages, struct gleam_charge *charge_out,
		 struct gleam_limit *hit_out)
{
	struct gleam_account **spare, *uid, *cgroup = NULL, *refused;
	unsigned int spares = 0;
	int err = 0;

	/* As many as may be missing, since the lock is a spinlock; mostly all are given back. */
	spare = kmalloc_array(owner->depth + 1, sizeof(*spare), GFP_KERNEL);
	if (!spare)
		return -ENOMEM;
	for (; spares <= owner->depth; spares++) {
		spare[spares] = kzalloc(sizeof(**spare), GFP_KERNEL_ACCOUNT);
		if (!spare[spares]) {
			err = -ENOMEM;
			goto free_spare;
		}
	}

	spin_lock(&account_lock);
	uid = account_get(GLEAM_LIMIT_UID, from_kuid(&init_user_ns, owner->uid), spare, &spares);
	/* From the root inwards: each is held by the one below, the innermost by this charge. */
	for (unsigned int i = owner->depth; i--;) {
		struct gleam_account *outer = cgroup;

		cgroup = account_get(GLEAM_LIMIT_CGROUP, owner->cgroups[i], spare, &spares);
		if (cgroup->parent)
			account_put(outer);	/* it holds it already */
		else
			cgroup->parent = outer;
	}
	refused = charge_refused(uid, sessions, pages);
	if (!refused)
		refused = charge_refused(cgroup, sessions, pages);
	if (refused) {
		refused->refused++;
		limit_of(refused, hit_out);
		account_put(uid);
		account_put(cgroup);
		err = -EDQUOT;
	} else {
		charge_add(uid, sessions, pages);
		charge_add(cgroup, sessions, pages);
		*charge_out = (struct gleam_charge){
			.uid = uid, .cgroup = cgroup, .sessions = sessions, .pages = pages,
		};
	}
	spin_unlock(&account_lock);

free_spare:
	while (spares)
		kfree(spare[--spares]);
	kfree(spare);
	return err;
}

void gleam_uncharge(struct gleam_charge *charge)
{
	if (!charge->uid)
		return;
	spin_lock(&account_lock);
	charge_sub(charge->uid, charge->sessions, charge->pages);
	charge_sub(charge->cgroup, charge->sessions, charge->pages);
	account_put(charge->uid);
	account_put(charge->cgroup);
	spin_unlock(&account_lock);
	*charge = (struct gleam_charge){};
}

/* ---- limits ---- */

int gleam_limit_set(u32 kind, u64 id, u64 sessions_max, u64 pages_max, bool sessions_given, bool pages_given)
{
	struct gleam_account *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL), *account;
	u64 usual = kind == GLEAM_LIMIT_UID ? READ_ONCE(sessions_per_uid) : GLEAM_NO_LIMIT;
	bool wanted;
	int err = 0;

	if (!fresh)
		return -ENOMEM;
	spin_lock(&account_lock);
	account = account_find(kind, id, false);
	if (!account) {
		account = fresh;
		fresh = NULL;
		account_add(account, kind, id);
	}
	account->refs++;
	/* A limit that is what a fresh account has needs no account to remember it. */
	wanted = (sessions_given ? sessions_max : account->sessions_max) != usual ||
		 (pages_given ? pages_max : account->pages_max) != GLEAM_NO_LIMIT;
	if (wanted && !account->set && limits_set == LIMITS_SET_MAX) {
		err = -ENOSPC;
		goto put_account;
	}
	if (sessions_given)
		account->sessions_max = sessions_max;
	if (pages_given)
		account->pages_max = pages_max;
	if (wanted && !account->set) {
		account->refs++;
		limits_set++;
	} else if (!wanted && account->set) {
		account->refs--;
		limits_set--;
	}
	account->set = wanted;
put_account:
	account_put(account);
	spin_unlock(&account_lock);
	kfree(fresh);
	return err;
}

int gleam_limit_find(u32 kind, u64 id, bool next, struct gleam_limit *limit_out)
{
	struct gleam_account *account;

	spin_lock(&account_lock);
	account = account_find(kind, id, next);
	if (account)
		limit_of(account, limit_out);
	spin_unlock(&account_lock);
	return account ? 0 : -ENOENT;
}

/* Everything is uncharged: what is left are limits. */
void gleam_accounts_exit(void)
{
	struct gleam_account *account, *next;

	rbtree_postorder_for_each_entry_safe(account, next, &accounts, node) {
		WARN_ON_ONCE(account->sessions || account->pages);
		kfree(account);
	}
}
