/* SPDX-License-Identifier: Apache-2.0 */
/* What is in the /gleam tree. Control thread; see tree_node.h. */
#include "broker/local/tree_node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/local/broker.h"
#include "broker/local/metrics.h"
#include "broker/local/move_ask.h"
#include "broker/local/state.h"
#include "broker/local/tree_file.h"

/*
 * A node's number: kind in bits 56 to 63, file 48 to 55, GPU 32 to 47, object below. FUSE has 1 for the root, which is
 * therefore object 1 of kind 0; nothing else of kind 0 exists.
 */
uint64_t tree_id(const struct tree_node *node)
{
	if (node->kind == TREE_ROOT)
		return 1;
	return (uint64_t)node->kind << 56 | (uint64_t)node->file << 48 | (uint64_t)node->gpu << 32 | node->object;
}

bool tree_of_id(uint64_t id, struct tree_node *node_out)
{
	struct tree_node node = { .kind = (enum tree_kind)(id >> 56), .file = (uint8_t)(id >> 48), .gpu = (uint16_t)(id >> 32),
				  .object = (uint32_t)id };

	if (id == 1) {
		*node_out = (struct tree_node){ .kind = TREE_ROOT };
		return true;
	}
	if (node.kind == TREE_ROOT || node.kind >= TREE_KINDS ||
	    (node.kind == TREE_SERVER_FILE && node.file >= TREE_SERVER_FILES) ||
	    ((node.kind == TREE_CACHE_FILE || node.kind == TREE_SERVER_CACHE_FILE) && node.file >= TREE_CACHE_FILES) ||
	    (node.kind == TREE_GPU_FILE && node.file >= TREE_GPU_FILES) ||
	    (node.kind == TREE_VERDICTS_FILE && node.file >= TREE_VERDICTS_FILES) ||
	    (node.kind == TREE_CLIENT_FILE && node.file >= TREE_CLIENT_FILES))
		return false;
	*node_out = node;
	return true;
}

static bool kind_is_folder(enum tree_kind kind)
{
	switch (kind) {
	case TREE_VERSION:
	case TREE_POLICY:
	case TREE_DECISIONS:
	case TREE_METRICS:
	case TREE_SERVER_FILE:
	case TREE_GPU_FILE:
	case TREE_CLIENT_FILE:
	case TREE_CACHE_FILE:
	case TREE_SERVER_CACHE_FILE:
	case TREE_VERDICTS_FILE:
		return false;
	default:
		return true;
	}
}

bool tree_is_fixed(const struct tree_node *node)
{
	/* Files of a client and of a GPU are reached only through their folder, which is looked up each time. */
	return node->kind != TREE_CLIENT && node->kind != TREE_GPU;
}

bool tree_vanishes(const struct tree_node *node)
{
	return node->kind == TREE_CLIENT || node->kind == TREE_CLIENT_FILE || node->kind == TREE_GPU || node->kind == TREE_GPU_FILE;
}

/* ---- who is there ---- */

static bool who_of(const struct tree_view *view, uint32_t session, struct state_who *out)
{
	struct state_who all[BROKER_CLIENTS_MAX];
	unsigned count = state_who(view->broker, all, BROKER_CLIENTS_MAX);

	for (unsigned i = 0; i < count; i++) {
		if (all[i].session == session) {
			*out = all[i];
			return true;
		}
	}
	return false;
}

/* Not numbers of sessions, which wrap: the youngest is the one that was born last. */
static bool is_newest(const struct state_who *all, unsigned count, unsigned at)
{
	for (unsigned i = 0; i < count; i++)
		if (i != at && all[i].pid == all[at].pid && all[i].pid &&
		    (all[i].age_s < all[at].age_s || (!(all[at].age_s < all[i].age_s) && i < at)))
			return false;
	return true;
}

static void who_name(const struct state_who *who, char *name, size_t size)
{
	if (who->pid)
		snprintf(name, size, "%d", (int)who->pid);
	else
		snprintf(name, size, "session-%u", who->session);
}

/* 0 if there is nobody of this name. */
static uint32_t session_find(const struct tree_view *view, const char *name)
{
	struct state_who all[BROKER_CLIENTS_MAX];
	unsigned count = state_who(view->broker, all, BROKER_CLIENTS_MAX);
	char one[TREE_NAME_SIZE];

	for (unsigned i = 0; i < count; i++) {
		who_name(&all[i], one, sizeof(one));
		if (strcmp(one, name) == 0 && is_newest(all, count, i))
			return all[i].session;
	}
	return 0;
}

/* Whether what the node is about is there. */
static int node_check(const struct tree_view *view, const struct tree_node *node)
{
	struct state_who who;

	switch (node->kind) {
	case TREE_SERVER:
	case TREE_SERVER_FILE:
	case TREE_GPUS:
	case TREE_SERVER_CACHE:
	case TREE_SERVER_CACHE_FILE:
		return state_server_gpus(view->broker, node->object) < 0 ? -ESTALE : 0;
	case TREE_GPU:
	case TREE_GPU_FILE:
		return node->gpu < state_server_gpus(view->broker, node->object) ? 0 : -ESTALE;
	case TREE_CLIENT:
	case TREE_CLIENT_FILE:
		return who_of(view, node->object, &who) ? 0 : -ESTALE;
	default:
		return 0;
	}
}

/* ---- listing: what finding looks through, too ---- */

struct list {
	struct tree_entry *entries;
	unsigned count;
	unsigned max;
	bool fault;
};

static void list_add(struct list *list, const char *name, const struct tree_node *node)
{
	if (list->fault)
		return;
	if (list->count == list->max) {
		unsigned max = list->max ? 2 * list->max : 16;
		struct tree_entry *entries = realloc(list->entries, max * sizeof(*entries));

		if (!entries) {
			list->fault = true;
			return;
		}
		list->entries = entries;
		list->max = max;
	}

	struct tree_entry *entry = &list->entries[list->count++];

	snprintf(entry->name, sizeof(entry->name), "%s", name);
	entry->id = tree_id(node);
	entry->folder = kind_is_folder(node->kind);
}

static void list_root(struct list *list)
{
	list_add(list, "cache", &(struct tree_node){ .kind = TREE_CACHE });
	list_add(list, "clients", &(struct tree_node){ .kind = TREE_CLIENTS });
	list_add(list, "metrics", &(struct tree_node){ .kind = TREE_METRICS });
	list_add(list, "scheduler", &(struct tree_node){ .kind = TREE_SCHEDULER });
	list_add(list, "servers", &(struct tree_node){ .kind = TREE_SERVERS });
	list_add(list, "verdicts", &(struct tree_node){ .kind = TREE_VERDICTS });
	list_add(list, "version", &(struct tree_node){ .kind = TREE_VERSION });
}

static void list_verdicts(struct list *list)
{
	for (uint8_t i = 0; i < TREE_VERDICTS_FILES; i++)
		list_add(list, tree_verdicts_files[i].name, &(struct tree_node){ .kind = TREE_VERDICTS_FILE, .file = i });
}

static void list_scheduler(struct list *list)
{
	list_add(list, "decisions", &(struct tree_node){ .kind = TREE_DECISIONS });
	list_add(list, "policy", &(struct tree_node){ .kind = TREE_POLICY });
}

static void list_servers(struct list *list, const struct tree_view *view)
{
	struct state_server server;

	for (uint32_t i = 0; state_server(view->broker, i, STATE_NAMES, &server); i++)
		list_add(list, server.name, &(struct tree_node){ .kind = TREE_SERVER, .object = i });
}

static void list_server(struct list *list, uint32_t object)
{
	for (uint8_t i = 0; i < TREE_SERVER_FILES; i++)
		list_add(list, tree_server_files[i].name,
			 &(struct tree_node){ .kind = TREE_SERVER_FILE, .file = i, .object = object });
	list_add(list, "cache", &(struct tree_node){ .kind = TREE_SERVER_CACHE, .object = object });
	list_add(list, "gpus", &(struct tree_node){ .kind = TREE_GPUS, .object = object });
}

static void list_cache(struct list *list, const struct tree_node *node)
{
	enum tree_kind kind = node->kind == TREE_CACHE ? TREE_CACHE_FILE : TREE_SERVER_CACHE_FILE;

	for (uint8_t i = 0; i < TREE_CACHE_FILES; i++)
		list_add(list, tree_cache_files[i].name, &(struct tree_node){ .kind = kind, .file = i, .object = node->object });
}

static void list_gpus(struct list *list, const struct tree_view *view, uint32_t object)
{
	int count = state_server_gpus(view->broker, object);
	char name[16];

	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "%d", i);
		list_add(list, name, &(struct tree_node){ .kind = TREE_GPU, .gpu = (uint16_t)i, .object = object });
	}
}

static void list_gpu(struct list *list, const struct tree_node *node)
{
	for (uint8_t i = 0; i < TREE_GPU_FILES; i++)
		list_add(list, tree_gpu_files[i].name,
			 &(struct tree_node){ .kind = TREE_GPU_FILE, .file = i, .gpu = node->gpu, .object = node->object });
}

static void list_clients(struct list *list, const struct tree_view *view)
{
	struct state_who all[BROKER_CLIENTS_MAX];
	unsigned count = state_who(view->broker, all, BROKER_CLIENTS_MAX);
	char name[TREE_NAME_SIZE];

	for (unsigned i = 0; i < count; i++) {
		if (!is_newest(all, count, i))
			continue;
		who_name(&all[i], name, sizeof(name));
		list_add(list, name, &(struct tree_node){ .kind = TREE_CLIENT, .object = all[i].session });
	}
}

static void list_client(struct list *list, uint32_t object)
{
	for (uint8_t i = 0; i < TREE_CLIENT_FILES; i++)
		list_add(list, tree_client_files[i].name,
			 &(struct tree_node){ .kind = TREE_CLIENT_FILE, .file = i, .object = object });
}

int tree_list(const struct tree_view *view, const struct tree_node *node, struct tree_entry **entries_out,
	      unsigned *count_out)
{
	struct list list = { 0 };
	int err = node_check(view, node);

	if (!err && !kind_is_folder(node->kind))
		err = -ENOTDIR;
	if (err)
		return err;
	switch (node->kind) {
	case TREE_SCHEDULER:
		list_scheduler(&list);
		break;
	case TREE_SERVERS:
		list_servers(&list, view);
		break;
	case TREE_SERVER:
		list_server(&list, node->object);
		break;
	case TREE_CACHE:
	case TREE_SERVER_CACHE:
		list_cache(&list, node);
		break;
	case TREE_VERDICTS:
		list_verdicts(&list);
		break;
	case TREE_GPUS:
		list_gpus(&list, view, node->object);
		break;
	case TREE_GPU:
		list_gpu(&list, node);
		break;
	case TREE_CLIENTS:
		list_clients(&list, view);
		break;
	case TREE_CLIENT:
		list_client(&list, node->object);
		break;
	default:
		list_root(&list);
		break;
	}
	if (list.fault) {
		free(list.entries);
		return -ENOMEM;
	}
	*entries_out = list.entries;
	*count_out = list.count;
	return 0;
}

int tree_find(const struct tree_view *view, const struct tree_node *parent, const char *name, struct tree_node *node_out)
{
	struct tree_entry *entries = NULL;
	unsigned count = 0;
	int err;

	/* Without listing everybody. */
	if (parent->kind == TREE_CLIENTS) {
		uint32_t session = session_find(view, name);

		*node_out = (struct tree_node){ .kind = TREE_CLIENT, .object = session };
		return session ? 0 : -ENOENT;
	}
	err = tree_list(view, parent, &entries, &count);
	if (err)
		return err;
	err = -ENOENT;
	for (unsigned i = 0; i < count && err; i++)
		if (strcmp(entries[i].name, name) == 0 && tree_of_id(entries[i].id, node_out))
			err = 0;
	free(entries);
	return err;
}

/* ---- owners and times ---- */

/* Times don't follow the contents, which are made when a file is opened: they tell when the client came. */
static struct timespec client_born(double age_s)
{
	struct timespec now;
	double born;

	clock_gettime(CLOCK_REALTIME, &now);
	born = (double)now.tv_sec + (double)now.tv_nsec / 1e9 - age_s;
	now.tv_sec = born < 0 ? 0 : (time_t)born;
	now.tv_nsec = 0;
	return now;
}

int tree_attr(const struct tree_view *view, const struct tree_node *node, struct stat *attr_out)
{
	bool folder = kind_is_folder(node->kind);
	struct stat attr = {
		.st_ino = tree_id(node),
		.st_mode = folder ? S_IFDIR | 0555 : S_IFREG | 0444,
		.st_nlink = 1, /* for a folder: not counted */
		.st_uid = view->uid,
		.st_gid = view->gid,
		.st_blksize = 4096,
		.st_atim = view->born,
		.st_mtim = view->born,
		.st_ctim = view->born,
	};
	struct state_who who;
	int err;

	if (node->kind == TREE_CLIENT || node->kind == TREE_CLIENT_FILE) {
		if (!who_of(view, node->object, &who))
			return -ESTALE;
		/* A user sees its own programs' doings, root everybody's: as gleamctl does. */
		attr.st_mode = folder ? S_IFDIR | 0500 : S_IFREG | (tree_is_writable(node) ? 0600 : 0400);
		attr.st_uid = who.uid;
		attr.st_atim = attr.st_mtim = attr.st_ctim = client_born(who.age_s);
	} else if (node->kind == TREE_POLICY) {
		attr.st_mode = S_IFREG | 0644;
	} else if (node->kind == TREE_DECISIONS) {
		/* It tells of everybody's programs. */
		attr.st_mode = S_IFREG | 0400;
	} else {
		err = node_check(view, node);
		if (err)
			return err;
	}
	*attr_out = attr;
	return 0;
}

/* ---- contents ---- */

static int put_server(const struct tree_view *view, const struct tree_node *node, FILE *out)
{
	struct state_server server;
	unsigned parts;

	/* Whoever looks wants to know: the next look sees more. */
	state_refresh(view->broker);
	parts = node->kind == TREE_SERVER_FILE ? tree_server_files[node->file].parts : STATE_REPORT;
	if (!state_server(view->broker, node->object, parts, &server))
		return -ESTALE;
	if (node->kind == TREE_SERVER_FILE)
		tree_server_files[node->file].put(out, &server);
	else if (node->gpu < server.report.gpu_count)
		tree_gpu_files[node->file].put(out, &server.report.gpus[node->gpu]);
	else
		return -ESTALE;
	return 0;
}

/* Of one server, or of all of them that tell. */
static int put_cache(const struct tree_view *view, const struct tree_node *node, FILE *out)
{
	struct cache_stats sum = { 0 };
	struct state_server server;
	bool known = false;

	state_refresh(view->broker);
	if (node->kind == TREE_SERVER_CACHE_FILE) {
		if (!state_server(view->broker, node->object, STATE_CACHE, &server))
			return -ESTALE;
		tree_cache_files[node->file].put(out, server.cached ? &server.cache : NULL);
		return 0;
	}
	for (uint32_t i = 0; state_server(view->broker, i, STATE_CACHE, &server); i++) {
		if (!server.cached)
			continue;
		known = true;
		sum.bytes += server.cache.bytes;
		sum.entries += server.cache.entries;
		sum.hits += server.cache.hits;
		sum.misses += server.cache.misses;
		sum.saved += server.cache.saved;
		sum.evictions += server.cache.evictions;
	}
	tree_cache_files[node->file].put(out, known ? &sum : NULL);
	return 0;
}

static void put_verdicts(const struct tree_view *view, const struct tree_node *node, FILE *out)
{
	struct verdicts_stats stats;

	state_verdicts(view->broker, &stats);
	tree_verdicts_files[node->file].put(out, &stats);
}

static int put_client(const struct tree_view *view, const struct tree_node *node, FILE *out)
{
	struct api_count *counts = NULL;
	struct state_client client;

	if (!state_client(view->broker, node->object, &client))
		return -ESTALE;
	if (strcmp(tree_client_files[node->file].name, "stats") == 0) {
		counts = calloc(SESSION_API_MAX, sizeof(*counts));
		if (!counts)
			return -ENOMEM;
		if (state_counts(view->broker, node->object, counts)) {
			free(counts);
			return -ESTALE;
		}
	}
	tree_client_files[node->file].put(out, &client, counts);
	free(counts);
	return 0;
}

static int put_metrics(const struct tree_view *view, FILE *out)
{
	struct state *state;

	state_refresh(view->broker);
	state = state_take(view->broker);
	if (!state)
		return -ENOMEM;
	metrics_put(out, state);
	state_free(state);
	return 0;
}

/*
 * One stream for all contents: opening one for each costs more than the words that are written to it. What it has been given
 * lies in sink.text; control thread.
 */
static struct {
	FILE *out;
	char *text;
	size_t size;
	size_t max;
	bool fault;
} sink;

static ssize_t sink_write(void *cookie, const char *bytes, size_t size)
{
	if (size > sink.max - sink.size) {
		size_t max = 2 * (sink.size + size) + 4096;
		char *text = realloc(sink.text, max);

		if (!text) {
			sink.fault = true;
			return (ssize_t)size;
		}
		sink.text = text;
		sink.max = max;
	}
	memcpy(sink.text + sink.size, bytes, size);
	sink.size += size;
	return (ssize_t)size;
}

static int sink_begin(void)
{
	if (!sink.out)
		sink.out = fopencookie(NULL, "w", (cookie_io_functions_t){ .write = sink_write });
	if (!sink.out)
		return -ENOMEM;
	sink.size = 0;
	sink.fault = false;
	return 0;
}

int tree_text(const struct tree_view *view, const struct tree_node *node, const char **text_out, size_t *size_out)
{
	int err;

	if (kind_is_folder(node->kind))
		return -EISDIR;
	err = sink_begin();
	if (err)
		return err;
	if (node->kind == TREE_VERSION)
		fputs(GLEAM_VERSION "\n", sink.out);
	else if (node->kind == TREE_POLICY)
		fprintf(sink.out, "%s\n", state_policy(view->broker));
	else if (node->kind == TREE_DECISIONS)
		state_decisions(view->broker, sink.out);
	else if (node->kind == TREE_METRICS)
		err = put_metrics(view, sink.out);
	else if (node->kind == TREE_CLIENT_FILE)
		err = put_client(view, node, sink.out);
	else if (node->kind == TREE_VERDICTS_FILE)
		put_verdicts(view, node, sink.out);
	else if (node->kind == TREE_CACHE_FILE || node->kind == TREE_SERVER_CACHE_FILE)
		err = put_cache(view, node, sink.out);
	else
		err = put_server(view, node, sink.out);
	fflush(sink.out);
	if (err)
		return err;
	if (sink.fault)
		return -ENOMEM;
	*text_out = sink.text;
	*size_out = sink.size;
	return 0;
}

/* ---- commands ---- */

bool tree_is_writable(const struct tree_node *node)
{
	return node->kind == TREE_POLICY ||
	       (node->kind == TREE_CLIENT_FILE && strcmp(tree_client_files[node->file].name, "server") == 0);
}

static void wish_heard(void *arg, int err)
{
	struct tree_wait *wait = arg;

	wait->done(wait, err);
}

int tree_write(const struct tree_view *view, const struct tree_node *node, const char *text, size_t size, struct tree_wait *wait)
{
	char word[MOVE_SESSIONS_MAX * (CONF_NAME_SIZE + 8)]; /* NAME:GPU, with commas between */
	int err;

	if (!tree_is_writable(node))
		return -EACCES;
	while (size && (text[size - 1] == '\n' || text[size - 1] == ' '))
		size--;
	if (size == 0 || size >= sizeof(word) || memchr(text, 0, size))
		return -EINVAL;
	memcpy(word, text, size);
	word[size] = 0;
	if (node->kind == TREE_POLICY)
		return state_policy_set(view->broker, word);
	err = state_move(view->broker, node->object, word, wish_heard, wait, &wait->wish);
	return err ? err : -EINPROGRESS;
}

void tree_wait_forget(struct tree_wait *wait)
{
	state_wish_forget(wait->wish);
}
