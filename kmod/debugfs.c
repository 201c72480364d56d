// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/debug/gleam/sessions: sessions as the module sees them, for those who work on it.
 * CONFIG_GLEAM_DEBUG.
 */
#include <linux/debugfs.h>
#include <linux/pid_namespace.h>
#include <linux/seq_file.h>

#include "gleam.h"

static struct dentry *folder;

static int sessions_show(struct seq_file *seq, void *unused)
{
	static const char * const states[] = {
		[GLEAM_OPENING] = "opening", [GLEAM_OPEN] = "open", [GLEAM_ENDED] = "ended",
	};
	struct gleam_session *session;
	unsigned long id = 0;

	seq_puts(seq, "id tgid state reason pending known mappings doorbells rings devices refs comm\n");
	for (; (session = gleam_session_next(&id)); id++) {
		spin_lock(&gleam_lock);
		spin_lock(&session->lock);
		/* Our own reference is not counted. */
		seq_printf(seq, "%u %d %s %u %#x %d %u %llu %llu %#llx %u %s\n", session->id,
			   pid_nr_ns(session->tgid, &init_pid_ns), states[session->state], session->reason,
			   session->pending, session->known, session->mappings, session->doorbells,
			   session->rings, session->devices, kref_read(&session->kref) - 1, session->comm);
		spin_unlock(&session->lock);
		spin_unlock(&gleam_lock);
		gleam_session_put(session);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(sessions);

void gleam_debugfs_init(void)
{
	folder = debugfs_create_dir("gleam", NULL);
	debugfs_create_file("sessions", 0400, folder, NULL, &sessions_fops);
}

void gleam_debugfs_exit(void)
{
	debugfs_remove(folder);
}
