/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in the /gleam tree: names, owners, contents; no word of FUSE. Everything is made at the moment it is asked for from
 * what state.h tells, so nothing here has to be kept in step with clients and servers that come and go. Control thread.
 *
 *	version
 *	metrics         OpenMetrics 1.0, see metrics.h
 *	scheduler/      policy decisions; a policy is changed by writing its name to `policy`
 *	servers/NAME/   address load age rtt jitter bandwidth state lanes clients
 *	cache/          of all servers together, and
 *	servers/NAME/cache/    bytes entries hits misses saved evictions: this tenant's part of the weight cache, docs/cache.md
 *	servers/NAME/gpus/N/   name memory memory_free uuid utilisation speed clients
 *	verdicts/       bytes entries hits misses evictions: what is known of images that programs load, docs/cache.md
 *	clients/PID/    server state program uid calls bytes round_trips waited inflight memory stats; its program is moved by writing
 *	                a server's name to `server`
 *
 * A value that nobody has measured is "-". Units: bytes; rtt and waited in milliseconds; bandwidth in Mbit/s; utilisation in
 * percent; load is clients with unfinished work per GPU, mean over 5 s. A client whose pid is of a pid namespace that isn't
 * seen from here is session-N. Of several sessions of one process the newest is shown.
 */
#ifndef GLEAM_LOCAL_TREE_NODE_H
#define GLEAM_LOCAL_TREE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "broker/lib/conf.h"

struct broker;
struct state_wish;

enum tree_kind {
	TREE_ROOT,
	TREE_VERSION,
	TREE_METRICS,
	TREE_SERVERS,
	TREE_CLIENTS,
	TREE_SERVER,
	TREE_SERVER_FILE,
	TREE_GPUS,
	TREE_GPU,
	TREE_GPU_FILE,
	TREE_CLIENT,
	TREE_CLIENT_FILE,
	TREE_SCHEDULER,
	TREE_POLICY,
	TREE_DECISIONS,
	TREE_CACHE,
	TREE_CACHE_FILE,
	TREE_SERVER_CACHE,
	TREE_SERVER_CACHE_FILE,
	TREE_VERDICTS,
	TREE_VERDICTS_FILE,
	TREE_KINDS,
};

struct tree_node {
	enum tree_kind kind;
	uint8_t file;	 /* in the table of its kind */
	uint16_t gpu;
	uint32_t object; /* a server's place in the configuration, or a session */
};

/* The whole node is in its number, so there is no table of them, and one that has vanished is known by asking for it. */
uint64_t tree_id(const struct tree_node *node);
bool tree_of_id(uint64_t id, struct tree_node *node_out);

struct tree_view {
	struct broker *broker;
	struct timespec born;
	/* whose files are that aren't a client's */
	uid_t uid;
	gid_t gid;
};

/* All: -ESTALE when @node's client, server or GPU is gone. */
int tree_find(const struct tree_view *view, const struct tree_node *parent, const char *name, struct tree_node *node_out);
int tree_attr(const struct tree_view *view, const struct tree_node *node, struct stat *attr_out);
/* The content, at this moment; it stays until the next one is asked for. -EISDIR. */
int tree_text(const struct tree_view *view, const struct tree_node *node, const char **text_out, size_t *size_out);

/* Somebody whose write is answered later: done() is called with 0 or -errno, unless it is forgotten before. */
struct tree_wait {
	void (*done)(struct tree_wait *wait, int err);
	struct state_wish *wish; /* tree_write() */
};

/*
 * What is written to a file that takes commands: a word, with or without an end of line. -EACCES: it takes none. -EINPROGRESS: @wait hears what
 * comes of it; it is the caller's until then.
 */
int tree_write(const struct tree_view *view, const struct tree_node *node, const char *text, size_t size, struct tree_wait *wait);
void tree_wait_forget(struct tree_wait *wait);
bool tree_is_writable(const struct tree_node *node);

#define TREE_NAME_SIZE CONF_NAME_SIZE /* servers' names are the longest */

struct tree_entry {
	char name[TREE_NAME_SIZE];
	uint64_t id;
	bool folder;
};
/* What is in a folder; free() it. -ENOTDIR. */
int tree_list(const struct tree_view *view, const struct tree_node *node, struct tree_entry **entries_out,
	      unsigned *count_out);

/* Whether the name leads to the same node for as long as the daemon runs. */
bool tree_is_fixed(const struct tree_node *node);
/* Whether what it is about may go away while the daemon runs. */
bool tree_vanishes(const struct tree_node *node);

#endif
