/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker may not do. Main thread; the filter holds for all threads of the process.
 */
#include "broker/worker/confine.h"

#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

void confine_early(void)
{
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
}

/*
 * Refused with EPERM rather than killed: a driver that tries one of them in an odd corner goes on with its own plan B.
 * Names that this libseccomp does not know are newer than the system, and passed over.
 */
static const char *const denied[] = {
	"execve", "execveat", "ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd",
	"mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick",
	"mount_setattr", "swapon", "swapoff",
	"setns", "unshare",
	"bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
	"kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot",
	"open_by_handle_at", "name_to_handle_at",
	"add_key", "request_key", "keyctl",
	"acct", "quotactl", "quotactl_fd", "syslog", "sethostname", "setdomainname", "settimeofday", "clock_settime",
	"adjtimex", "clock_adjtime", "iopl", "ioperm", "modify_ldt", "vhangup", "nfsservctl", "lookup_dcookie",
	"setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups", "setfsuid", "setfsgid",
	"mknod", "mknodat", "fanotify_init", "landlock_create_ruleset",
};

int confine_late(char *why, size_t size)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	int err = 0;

	if (!filter) {
		snprintf(why, size, "seccomp: no filter");
		return -ENOMEM;
	}
	/* The driver's threads run already: all of them at once. */
	seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
	for (size_t i = 0; i < sizeof(denied) / sizeof(denied[0]) && !err; i++) {
		int number = seccomp_syscall_resolve_name(denied[i]);

		if (number == __NR_SCMP_ERROR || number < 0)
			continue;
		err = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 0);
		if (err)
			snprintf(why, size, "seccomp rule for %s: %s", denied[i], strerror(-err));
	}
	if (!err) {
		err = seccomp_load(filter);
		if (err)
			snprintf(why, size, "seccomp: %s", strerror(-err));
	}
	seccomp_release(filter);
	return err;
}
