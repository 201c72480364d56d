/* SPDX-License-Identifier: Apache-2.0 */
/* A gleam-worker process: started, watched, killed. Control thread; see proc.h. */
#include "broker/node/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/fd.h"
#include "broker/lib/hash.h"
#include "broker/lib/log.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

#define PROC_FILES_MAX	65536u /* the driver opens a few dozen a context; sysadmins' soft limit of 1024 is too little */
#define PROC_ENV_MAX	32
#define PROC_FD_SESSION 3
#define PROC_FD_BELL	4
#define PROC_FD_STATUS	5
#define PROC_FD_PAGES	6
#define PROC_FDS	4

struct proc {
	struct loop *loop;
	const struct proc_ops *ops;
	void *owner;
	pid_t pid;
	int pidfd;
	int status;
	struct shm shm;
	int doorbell;
	int pages; /* shm_pages_make() */
	bool ready;
	bool exited;
	bool reading;
	bool told;
	int wait_status;
	size_t said_size;
	char said[PROC_WHY_SIZE]; /* what came over the status pipe */
	const char *late;	  /* why we killed it */
	struct loop_timer timer;
	struct loop_post post;
};

static void status_arm(struct proc *proc);

/* ---- the child, between fork and exec: system calls only ---- */

static void child_fail(int status, const char *what)
{
	char text[PROC_WHY_SIZE];
	int size = snprintf(text, sizeof(text), "Ecan't start the worker: %s: %s", what, strerror(errno));

	if (write(status, text, (size_t)size) < 0)
		_exit(126);
	_exit(127);
}

static void child_drop(const struct proc_setting *setting, int status)
{
	if (!setting->drop)
		return;
	if (setgroups((size_t)setting->group_count, setting->groups) < 0 ||
	    setresgid(setting->gid, setting->gid, setting->gid) < 0 ||
	    setresuid(setting->uid, setting->uid, setting->uid) < 0)
		child_fail(status, "changing to the user for workers");
}

static void child_main(const struct proc_setting *setting, pid_t parent, const int fds[PROC_FDS], char *const *argv,
		       char *const *environment)
{
	struct rlimit core = { 0, 0 };
	struct rlimit files;
	int high[PROC_FDS];
	int null;
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGIO, SIG_DFL);
	/* First out of the way of 3 to 6. */
	for (int i = 0; i < PROC_FDS; i++)
		high[i] = fcntl(fds[i], F_DUPFD, 16);
	for (int i = 0; i < PROC_FDS; i++)
		if (high[i] < 0 || dup2(high[i], PROC_FD_SESSION + i) < 0)
			_exit(126);
	null = open("/dev/null", O_RDWR);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		child_fail(PROC_FD_STATUS, "/dev/null");
	if (syscall(SYS_close_range, PROC_FD_PAGES + 1, ~0u, 0) < 0) {
		for (int fd = PROC_FD_PAGES + 1; fd < (int)PROC_FILES_MAX; fd++)
			close(fd);
	}
	setsid();
	setrlimit(RLIMIT_CORE, &core); /* it holds other people's data */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max < PROC_FILES_MAX ? files.rlim_max : PROC_FILES_MAX;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	/* Addresses that only the driver chooses then repeat in the next worker. Never fatal. */
	if (personality(0xffffffff) >= 0)
		personality((unsigned long)personality(0xffffffff) | ADDR_NO_RANDOMIZE);
	child_drop(setting, PROC_FD_STATUS);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		child_fail(PROC_FD_STATUS, "PR_SET_NO_NEW_PRIVS");
	/* After the change of user, which clears it. */
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != parent)
		_exit(126);
	execve(setting->worker, argv, environment);
	child_fail(PROC_FD_STATUS, setting->worker);
}

int proc_setting_try(const struct proc_setting *setting)
{
	int wait_status = 0;
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		child_drop(setting, STDERR_FILENO);
		if (access(setting->worker, X_OK) < 0)
			_exit(1);
		_exit(access(setting->driver, R_OK) < 0 ? 2 : 0);
	}
	while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(wait_status))
		return -EIO;
	return WEXITSTATUS(wait_status) == 0 ? 0 : -EACCES;
}

/* ---- telling the owner ---- */

static enum session_end end_words(const struct proc *proc, char *why, size_t size)
{
	if (proc->said_size && proc->said[0] == 'E') {
		snprintf(why, size, "%s", proc->said + 1);
		return END_NO_DEVICE;
	}
	if (proc->late) {
		snprintf(why, size, "%s", proc->late);
	} else if (WIFSIGNALED(proc->wait_status)) {
		const char *name = sigabbrev_np(WTERMSIG(proc->wait_status));

		snprintf(why, size, "the worker was killed by signal %d (SIG%s)", WTERMSIG(proc->wait_status),
			 name ? name : "?");
	} else {
		snprintf(why, size, "the worker %s with status %d", proc->ready ? "ended" : "ended before it was ready,",
			 WEXITSTATUS(proc->wait_status));
	}
	return END_WORKER_DIED;
}

static void proc_told(struct loop_post *post)
{
	struct proc *proc = (struct proc *)((char *)post - offsetof(struct proc, post));
	char why[PROC_WHY_SIZE];
	enum session_end end = end_words(proc, why, sizeof(why));

	proc->ops->ended(proc->owner, proc, end, why);
}

static void proc_settle(struct proc *proc)
{
	if (!proc->exited || proc->reading || proc->told)
		return;
	proc->told = true;
	loop_timer_clear(proc->loop, &proc->timer);
	proc->post.run = proc_told;
	loop_post(proc->loop, &proc->post);
}

/* ---- what it says ---- */

static void status_done(void *arg, int res, uint32_t flags)
{
	struct proc *proc = arg;

	proc->reading = false;
	if (res == -EINTR || res == -EAGAIN) {
		status_arm(proc);
		return;
	}
	if (res <= 0) {
		/* End of what it says; if it isn't ready, it is about to end. */
		proc_settle(proc);
		return;
	}
	proc->said_size += (size_t)res;
	proc->said[proc->said_size] = 0;
	if (!proc->ready && proc->said[0] == 'R') {
		proc->ready = true;
		loop_timer_clear(proc->loop, &proc->timer);
		if (!proc->exited)
			proc->ops->ready(proc->owner, proc);
		return;
	}
	if (proc->said_size + 1 < sizeof(proc->said))
		status_arm(proc);
	else
		proc_settle(proc);
}

static void status_arm(struct proc *proc)
{
	struct io_uring_sqe *sqe = loop_sqe(proc->loop);

	io_uring_prep_read(sqe, proc->status, proc->said + proc->said_size,
			   (unsigned)(sizeof(proc->said) - 1 - proc->said_size), (uint64_t)-1);
	loop_tag(proc->loop, sqe, status_done, proc);
	proc->reading = true;
}

static void pidfd_done(void *arg, int res, uint32_t flags)
{
	struct proc *proc = arg;
	siginfo_t info = { 0 };

	if (waitid((idtype_t)P_PIDFD, (id_t)proc->pidfd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0) {
		if (res < 0)
			log_error("worker %d: can't wait for its end: %s", proc->pid, strerror(errno));
	}
	if (info.si_code == CLD_EXITED)
		proc->wait_status = (info.si_status & 0xff) << 8;
	else
		proc->wait_status = info.si_status & 0x7f;
	proc->exited = true;
	proc_settle(proc);
}

static void proc_late(void *arg)
{
	struct proc *proc = arg;

	if (!proc->ready && !proc->late)
		proc->late = "the worker did not get ready in time";
	syscall(SYS_pidfd_send_signal, proc->pidfd, SIGKILL, NULL, 0);
}

/* ---- life ---- */

static void environment_make(const char *const *more, char **out)
{
	/*
	 * What a driver reads of its surroundings, and nothing of ours. Hardware queues stay as many as natively (8): with 32 a context takes
	 * an H200 1.2 s instead of 0.45, and of sixteen that are made at once most fail after half a minute, for lack of memory as it says.
	 */
	static char fixed[][48] = { "PATH=/usr/bin:/bin", "HOME=/nonexistent", "LC_ALL=C" };
	static const char *const kept[] = { "GLEAM_LOG", "GLEAM_SOFTGPU_", "GLEAM_WORKER_COSTS", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS" };
	int count = 0;

	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		out[count++] = fixed[i];
	/* The daemon's own environment is its administrator's. */
	for (char **at = environ; *at && count < PROC_ENV_MAX / 2; at++)
		for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
			if (strncmp(*at, kept[i], strlen(kept[i])) == 0) {
				out[count++] = *at;
				break;
			}
	for (; more && *more && count < PROC_ENV_MAX; more++)
		out[count++] = (char *)*more;
	out[count] = NULL;
}

int proc_start(struct loop *loop, const struct proc_setting *setting, const char *const *environment,
	       const struct proc_ops *ops, void *owner, struct proc **proc_out, char *why, size_t why_size)
{
	struct proc *proc = calloc(1, sizeof(*proc));
	char *envp[PROC_ENV_MAX + 1];
	char session_fd[12], bell_fd[12], status_fd[12], pages_fd[12];
	char *argv[] = { (char *)setting->worker, "--session-fd", session_fd, "--doorbell-fd", bell_fd, "--status-fd",
			 status_fd, "--pages-fd", pages_fd, "--driver", (char *)setting->driver, NULL };
	int status[2] = { -1, -1 };
	int err;

	if (!proc) {
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	proc->loop = loop;
	proc->ops = ops;
	proc->owner = owner;
	proc->pidfd = -1;
	proc->shm.fd = -1;
	proc->pages = -1;
	proc->timer.fire = proc_late;
	proc->timer.arg = proc;
	err = shm_make(&proc->shm, protocol_hash, 0);
	if (err) {
		snprintf(why, why_size, "no memory for a session: %s", strerror(-err));
		goto free_proc;
	}
	proc->pages = shm_pages_make();
	if (proc->pages < 0) {
		err = proc->pages;
		snprintf(why, why_size, "no memory for page-locked pages: %s", strerror(-err));
		goto close_fds;
	}
	proc->doorbell = eventfd(0, EFD_CLOEXEC);
	if (proc->doorbell < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, status) < 0) {
		err = -errno;
		snprintf(why, why_size, "no descriptors for a worker: %s", strerror(-err));
		goto close_fds;
	}
	snprintf(session_fd, sizeof(session_fd), "%d", PROC_FD_SESSION);
	snprintf(bell_fd, sizeof(bell_fd), "%d", PROC_FD_BELL);
	snprintf(status_fd, sizeof(status_fd), "%d", PROC_FD_STATUS);
	snprintf(pages_fd, sizeof(pages_fd), "%d", PROC_FD_PAGES);
	environment_make(environment, envp);

	const int fds[PROC_FDS] = { proc->shm.fd, proc->doorbell, status[1], proc->pages };
	pid_t parent = getpid();
	pid_t pid = fork();

	if (pid == 0)
		child_main(setting, parent, fds, argv, envp);
	if (pid < 0) {
		err = -errno;
		snprintf(why, why_size, "can't start a worker: %s", strerror(-err));
		goto close_fds;
	}
	proc->pid = pid;
	proc->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (proc->pidfd < 0) {
		err = -errno;
		snprintf(why, why_size, "pidfd_open: %s", strerror(-err));
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		goto close_fds;
	}
	fcntl(proc->pidfd, F_SETFD, FD_CLOEXEC);
	fd_close(&status[1]);
	proc->status = status[0];
	status_arm(proc);

	struct io_uring_sqe *sqe = loop_sqe(loop);

	io_uring_prep_poll_add(sqe, proc->pidfd, POLLIN);
	loop_tag(loop, sqe, pidfd_done, proc);
	loop_timer_set(loop, &proc->timer, loop_now_ns(loop) + PROC_READY_NS);
	*proc_out = proc;
	return 0;

close_fds:
	fd_close(&proc->pages);
	fd_close(&proc->doorbell);
	fd_close(&status[0]);
	fd_close(&status[1]);
	shm_close(&proc->shm);
free_proc:
	free(proc);
	return err;
}

void proc_give(struct proc *proc, const struct proc_ops *ops, void *owner)
{
	proc->ops = ops;
	proc->owner = owner;
}

bool proc_is_ready(const struct proc *proc)
{
	return proc->ready && !proc->exited;
}

pid_t proc_pid(const struct proc *proc)
{
	return proc->pid;
}

void proc_memory_take(struct proc *proc, struct shm *shm_out, int *doorbell_out, int *pages_out)
{
	*shm_out = proc->shm;
	*doorbell_out = proc->doorbell;
	*pages_out = proc->pages;
	proc->shm = (struct shm){ .fd = -1 };
	proc->doorbell = -1;
	proc->pages = -1;
}

void proc_tell(struct proc *proc, const void *bytes, size_t size)
{
	/* One that has closed its end, or died, need not know. */
	if (send(proc->status, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != ECONNRESET)
		log_warn("worker %d: can't be told anything: %s", proc->pid, strerror(errno));
}

void proc_kill(struct proc *proc, bool grace)
{
	if (proc->exited)
		return;
	if (grace)
		loop_timer_set(proc->loop, &proc->timer, loop_now_ns(proc->loop) + PROC_GRACE_NS);
	else
		syscall(SYS_pidfd_send_signal, proc->pidfd, SIGKILL, NULL, 0);
}

void proc_free(struct proc *proc)
{
	loop_timer_clear(proc->loop, &proc->timer);
	shm_close(&proc->shm);
	fd_close(&proc->doorbell);
	fd_close(&proc->pages);
	fd_close(&proc->status);
	fd_close(&proc->pidfd);
	free(proc);
}
