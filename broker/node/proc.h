/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gleam-worker process and the session memory it was born with. Control thread.
 *
 * It is started with as little as it needs: own uid where we are root, no new privileges, its session's descriptors, an
 * environment of our making. It tells by its status pipe that it is ready, or why not; its death is certain by a pidfd.
 */
#ifndef GLEAM_NODE_PROC_H
#define GLEAM_NODE_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/core/loop.h"
#include "broker/lib/shm.h"
#include "broker/proto/wire.h"

#define PROC_WHY_SIZE  256
#define PROC_READY_NS  60000000000ull /* cuInit and a context take 15 s where a busy driver starts several at once */
#define PROC_GRACE_NS  100000000ull   /* between being told and SIGKILL */

/* What all workers of this daemon have in common; made at start. */
struct proc_setting {
	char worker[512]; /* path of gleam-worker */
	char driver[512]; /* path of the driver's library */
	bool drop;	  /* run as: */
	uid_t uid;
	gid_t gid;
	gid_t groups[32];
	int group_count;
};

struct proc;

struct proc_ops {
	void (*ready)(void *owner, struct proc *proc);
	/* It has ended, also if it was never ready. The owner frees it. */
	void (*ended)(void *owner, struct proc *proc, enum session_end end, const char *why);
};

/* @environment: NAME=value strings, NULL at the end, beside what every worker gets. -errno and @why. */
int proc_start(struct loop *loop, const struct proc_setting *setting, const char *const *environment,
	       const struct proc_ops *ops, void *owner, struct proc **proc_out, char *why, size_t why_size);
/* Another owner, as a warm one is given to a session. */
void proc_give(struct proc *proc, const struct proc_ops *ops, void *owner);
bool proc_is_ready(const struct proc *proc);
pid_t proc_pid(const struct proc *proc);
/* Takes its memories and doorbell (-1 and NULL afterwards here). */
void proc_memory_take(struct proc *proc, struct shm *shm_out, int *doorbell_out, int *pages_out);
/* Tells a worker that is ready something that its client can't change; it is read when it is needed. */
void proc_tell(struct proc *proc, const void *bytes, size_t size);
/* SIGKILL, now or after PROC_GRACE_NS. ended() follows. */
void proc_kill(struct proc *proc, bool grace);
/* After ended(). */
void proc_free(struct proc *proc);

/* Finds out whether a process of that setting may run the worker and read the driver. */
int proc_setting_try(const struct proc_setting *setting);

#endif
