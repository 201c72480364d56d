/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's disk tier: a file for each chunk, DIR/store/SHELF/HASH-SIZE, and an index for each shelf. On the disk's own
 * thread, except for what is named _locked.
 *
 * A file is written under another name, synced and renamed, so whatever has a chunk's name is whole or has been changed by
 * somebody; its bytes are hashed before they are used for the first time. The index only saves work: it has what the names don't
 * tell (fingerprints, order of use, pins). Where it is missing, old or damaged, that comes from the files' last bytes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/lib/fd.h"
#include "broker/node/store_private.h"

#define PATH_SIZE  (CONF_PATH_SIZE + 128)
#define NAME_SIZE  (CHUNK_TEXT_SIZE + 16)
#define INDEX_MAX  (256u << 20) /* bytes: three million chunks */
#define INDEX_MAGIC "GLEAMIX1"
#define TAIL_MAGIC  "GLEAMCK1"

/* Behind a chunk's bytes in its file. Of this machine only, so as it lies in memory. */
struct chunk_tail {
	char magic[8];
	uint32_t size;
	uint32_t print;
	uint8_t hash[CACHE_HASH_SIZE];
	uint8_t zero[16];
};
static_assert(sizeof(struct chunk_tail) == 64, "chunk_tail is fixed on disk");

struct index_head {
	char magic[8];
	uint64_t count;
};

/* Oldest first. */
struct index_entry {
	struct chunk_name name;
	uint32_t main;
	uint32_t pinned;
};
static_assert(sizeof(struct index_entry) == 48, "index_entry is fixed on disk");

static void folder_path(const struct shelf *shelf, const char *name, char path_out[PATH_SIZE])
{
	snprintf(path_out, PATH_SIZE, "%s/store/%s%s%s", shelf->store->setting.dir, shelf->tag, *name ? "/" : "", name);
}

static void chunk_path(const struct entry *entry, char path_out[PATH_SIZE])
{
	char name[NAME_SIZE];

	chunk_text(entry->name.hash, CACHE_HASH_SIZE, name);
	snprintf(name + 2 * CACHE_HASH_SIZE, sizeof(name) - 2 * CACHE_HASH_SIZE, "-%" PRIx32, entry->name.size);
	folder_path(entry->shelf, name, path_out);
}

static bool name_parse(const char *text, struct chunk_name *name_out)
{
	char hash[CHUNK_TEXT_SIZE];
	char *end;
	unsigned long size;

	if (strlen(text) <= CHUNK_TEXT_SIZE || text[2 * CACHE_HASH_SIZE] != '-')
		return false;
	memcpy(hash, text, 2 * CACHE_HASH_SIZE);
	hash[2 * CACHE_HASH_SIZE] = 0;
	size = strtoul(text + CHUNK_TEXT_SIZE, &end, 16);
	if (*end || size == 0 || size > CACHE_CHUNK_SIZE || chunk_parse(hash, name_out->hash, CACHE_HASH_SIZE))
		return false;
	name_out->size = (uint32_t)size;
	return true;
}

static int read_all(int fd, void *bytes, size_t size, off_t at)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = pread(fd, (uint8_t *)bytes + done, size - done, at + (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EBADMSG; /* shorter than its name says */
		done += (size_t)n;
	}
	return 0;
}

int disk_read(struct entry *entry, uint8_t *block)
{
	char path[PATH_SIZE];
	int fd, err;

	chunk_path(entry, path);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOMEM || errno == EMFILE || errno == ENFILE ? -ENOMEM : -EIO;
	err = read_all(fd, block, entry->name.size, 0);
	close(fd);
	return err;
}

/* ---- out ---- */

/* Under a name that isn't there yet: whole, or not at all. */
static int file_write(const char *path, const void *head, size_t head_size, const void *tail, size_t tail_size)
{
	char fresh[PATH_SIZE + 8];
	int fd, err;

	snprintf(fresh, sizeof(fresh), "%s.new", path);
	fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	err = fd_write_all(fd, head, head_size);
	if (!err)
		err = fd_write_all(fd, tail, tail_size);
	if (!err && fsync(fd) < 0)
		err = -errno;
	if (close(fd) < 0 && !err)
		err = -errno;
	if (!err && rename(fresh, path) < 0)
		err = -errno;
	if (err)
		unlink(fresh);
	return err;
}

static int chunk_write(const struct entry *entry, const uint8_t *mem)
{
	struct chunk_tail tail = { .magic = TAIL_MAGIC, .size = entry->name.size, .print = entry->name.print };
	char path[PATH_SIZE];

	memcpy(tail.hash, entry->name.hash, sizeof(tail.hash));
	chunk_path(entry, path);
	return file_write(path, mem, entry->name.size, &tail, sizeof(tail));
}

static void write_list_remove(struct entry *entry)
{
	struct store *store = entry->shelf->store;

	if (!entry->write_wanted)
		return;
	entry->write_wanted = false;
	if (entry->write_prev)
		entry->write_prev->write_next = entry->write_next;
	else
		store->write_first = entry->write_next;
	if (entry->write_next)
		entry->write_next->write_prev = entry->write_prev;
	else
		store->write_last = entry->write_prev;
	entry->write_next = entry->write_prev = NULL;
}

static bool disk_may_go(const struct entry *entry)
{
	return entry->on_disk && !entry->pinned;
}

static bool room_make_locked(struct store *store, uint32_t size)
{
	for (unsigned i = 0; store_disk_used_locked(store) + size > store->setting.disk && i < STORE_LOOK_MAX; i++) {
		bool main_full = store->disk_of[LIST_MAIN] > store->setting.disk - store->setting.disk / 4;
		struct entry *entry = store_victim_locked(store, main_full, disk_may_go);

		if (!entry)
			return false;
		entry->shelf->stats.evictions++;
		if (entry->mem)
			disk_forget_locked(entry); /* it stays in memory */
		else
			entry_drop_locked(entry); /* its file goes when everybody agrees */
	}
	return store_disk_used_locked(store) + size <= store->setting.disk;
}

static void index_write(struct shelf *shelf);

static void write_run(struct job *job)
{
	struct store *store = (struct store *)((char *)job - offsetof(struct store, write_job));
	struct shelf *shelf;
	bool index;

	pthread_mutex_lock(&store->lock);
	while (store->write_first && !store->stopping) {
		struct entry *entry = store->write_first;
		const uint8_t *mem = entry->mem;
		bool resting = clock_ns() < store->disk_rest_until;
		int err;

		write_list_remove(entry);
		if (resting || !mem || !entry->shelf->disk || entry->drop || !room_make_locked(store, entry->name.size))
			continue;
		entry->writing = true;
		pthread_mutex_unlock(&store->lock);
		err = chunk_write(entry, mem);
		pthread_mutex_lock(&store->lock);
		entry->writing = false;
		if (err) {
			log_warn("weight cache: can't write to %s: %s; chunks stay in memory only for the next %u s",
				 store->setting.dir, strerror(-err), (unsigned)(STORE_DISK_REST_NS / NS_PER_S));
			store->disk_rest_until = clock_ns() + STORE_DISK_REST_NS;
		} else {
			entry_disk_locked(entry, true);
		}
		/* It may have been dropped meanwhile: whoever lets go of it last frees it. */
		entry->refs++;
		entry_put_locked(entry);
	}
	store->write_posted = false;
	index = clock_ns() - store->indexed_ns > STORE_INDEX_NS;
	if (index)
		store->indexed_ns = clock_ns();
	shelf = index ? store->shelves : NULL;
	pthread_mutex_unlock(&store->lock);
	/* Shelves are added in front, and stay. */
	for (; shelf; shelf = shelf->next)
		index_write(shelf);
	store->news(store->owner);
}

void disk_write_later_locked(struct entry *entry)
{
	struct store *store = entry->shelf->store;

	if (!store->setting.disk || !entry->durable || entry->on_disk || entry->write_wanted || entry->writing || !entry->mem ||
	    entry->drop || store->stopping || !entry->shelf->disk)
		return;
	entry->write_wanted = true;
	entry->write_prev = store->write_last;
	entry->write_next = NULL;
	if (store->write_last)
		store->write_last->write_next = entry;
	else
		store->write_first = entry;
	store->write_last = entry;
	if (store->write_posted)
		return;
	store->write_posted = true;
	store->write_job.run = write_run;
	jobs_post(store->disk, &store->write_job);
}

void disk_forget_locked(struct entry *entry)
{
	char path[PATH_SIZE];

	write_list_remove(entry);
	if (!entry->on_disk)
		return;
	entry_disk_locked(entry, false);
	chunk_path(entry, path);
	unlink(path);
}

/* ---- the index ---- */

static int index_hash(const void *bytes, size_t size, uint8_t hash_out[CACHE_HASH_SIZE])
{
	return EVP_Digest(bytes, size, hash_out, NULL, EVP_sha256(), NULL) ? 0 : -ENOMEM;
}

static void index_write(struct shelf *shelf)
{
	struct store *store = shelf->store;
	struct index_head *head = NULL;
	struct index_entry *entries;
	uint8_t hash[CACHE_HASH_SIZE];
	char path[PATH_SIZE];
	uint64_t room, count = 0;
	size_t size;
	int err;

	pthread_mutex_lock(&store->lock);
	room = shelf->stats.entries;
	if (shelf->dirty && shelf->disk && room < INDEX_MAX / sizeof(*entries))
		head = calloc(1, sizeof(*head) + room * sizeof(*entries));
	if (!head) {
		pthread_mutex_unlock(&store->lock);
		return;
	}
	entries = (struct index_entry *)(head + 1);
	for (unsigned list = 0; list < LISTS; list++)
		for (struct entry *entry = store->oldest[list]; entry; entry = entry->newer)
			if (entry->shelf == shelf && entry->on_disk && !entry->bad)
				entries[count++] = (struct index_entry){ .name = entry->name, .main = list == LIST_MAIN,
									 .pinned = entry->pinned };
	shelf->dirty = false;
	pthread_mutex_unlock(&store->lock);
	memcpy(head->magic, INDEX_MAGIC, sizeof(head->magic));
	head->count = count;
	size = sizeof(*head) + count * sizeof(*entries);
	folder_path(shelf, "index", path);
	err = index_hash(head, size, hash);
	if (!err)
		err = file_write(path, head, size, hash, sizeof(hash));
	if (err)
		log_debug("weight cache: %s: %s", path, strerror(-err));
	free(head);
}

/* Sound ones only; free() them. NULL: there is none, or it isn't sound. */
static struct index_head *index_read(const struct shelf *shelf, size_t *count_out)
{
	struct index_head *head = NULL;
	char path[PATH_SIZE];
	uint8_t hash[CACHE_HASH_SIZE];
	char *text;
	size_t size;

	*count_out = 0;
	folder_path(shelf, "index", path);
	if (fd_read_file(path, INDEX_MAX, &text, &size))
		return NULL;
	if (size >= sizeof(*head) + sizeof(hash)) {
		head = (struct index_head *)(void *)text;
		size -= sizeof(hash);
	}
	if (head && memcmp(head->magic, INDEX_MAGIC, sizeof(head->magic)) == 0 &&
	    head->count == (size - sizeof(*head)) / sizeof(struct index_entry) && index_hash(text, size, hash) == 0 &&
	    memcmp(hash, text + size, sizeof(hash)) == 0) {
		*count_out = head->count;
		return head;
	}
	log_warn("weight cache: the index %s is damaged: it is made anew from the chunks", path);
	free(text);
	return NULL;
}

/* ---- in ---- */

struct found {
	struct chunk_name name;
	bool taken;
};

static int found_order(const void *a, const void *b)
{
	return memcmp(a, b, CACHE_HASH_SIZE);
}

static void found_add(struct shelf *shelf, struct found *found, const struct index_entry *known)
{
	struct store *store = shelf->store;
	struct entry *entry;

	found->taken = true;
	pthread_mutex_lock(&store->lock);
	/* Something may have come over the net before us. */
	entry = store->stopping || shelf_find_locked(shelf, found->name.hash) ? NULL : entry_add_locked(shelf, &found->name);
	if (entry) {
		entry_disk_locked(entry, true);
		entry->durable = true;
		entry->pinned = known && known->pinned;
		if (known && known->main)
			entry_promote_locked(entry);
	}
	pthread_mutex_unlock(&store->lock);
}

/* What its last bytes say. False: not a chunk of ours. */
static bool tail_read(struct shelf *shelf, struct found *found)
{
	struct entry probe = { .shelf = shelf, .name = found->name };
	struct chunk_tail tail;
	char path[PATH_SIZE];
	int fd, err;

	chunk_path(&probe, path);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	err = read_all(fd, &tail, sizeof(tail), found->name.size);
	close(fd);
	if (err || memcmp(tail.magic, TAIL_MAGIC, sizeof(tail.magic)) != 0 || tail.size != found->name.size ||
	    memcmp(tail.hash, found->name.hash, CACHE_HASH_SIZE) != 0) {
		unlink(path);
		return false;
	}
	found->name.print = tail.print;
	return true;
}

/* Every chunk's name in the folder; what isn't one was left by a write that ended early. */
static struct found *folder_list(struct shelf *shelf, size_t *count_out)
{
	char path[PATH_SIZE];
	struct found *found = NULL;
	size_t count = 0, room = 0;
	struct dirent *dirent;
	DIR *dir;

	*count_out = 0;
	folder_path(shelf, "", path);
	dir = opendir(path);
	while (dir && (dirent = readdir(dir))) {
		struct chunk_name name = { 0 };

		if (dirent->d_name[0] == '.' || strcmp(dirent->d_name, "index") == 0)
			continue;
		if (!name_parse(dirent->d_name, &name)) {
			unlinkat(dirfd(dir), dirent->d_name, 0);
			continue;
		}
		if (count == room) {
			struct found *grown = realloc(found, (room ? 2 * room : 1024) * sizeof(*found));

			if (!grown)
				break;
			found = grown;
			room = room ? 2 * room : 1024;
		}
		found[count++] = (struct found){ .name = name };
	}
	if (dir)
		closedir(dir);
	if (count)
		qsort(found, count, sizeof(*found), found_order);
	*count_out = count;
	return found;
}

/* One daemon a folder: two would drop each other's chunks. */
static int folder_take(struct shelf *shelf)
{
	struct store *store = shelf->store;
	char path[PATH_SIZE];

	if (mkdir(store->setting.dir, 0700) < 0 && errno != EEXIST)
		return -errno;
	snprintf(path, sizeof(path), "%s/store", store->setting.dir);
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return -errno;
	snprintf(path, sizeof(path), "%s/store/lock", store->setting.dir);
	if (store->folder_lock < 0)
		store->folder_lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (store->folder_lock < 0)
		return -errno;
	if (flock(store->folder_lock, LOCK_EX | LOCK_NB) < 0)
		return -errno;
	folder_path(shelf, "", path);
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return -errno;
	return 0;
}

static void scan_run(struct job *job)
{
	struct shelf *shelf = (struct shelf *)((char *)job - offsetof(struct shelf, scan));
	struct store *store = shelf->store;
	struct index_head *head;
	struct found *found;
	size_t count, known;
	int err = folder_take(shelf);

	if (err) {
		log_warn("weight cache: %s can't be used: %s; chunks are kept in memory only", store->setting.dir,
			 err == -EWOULDBLOCK ? "another gleamd has it; name another folder in [cache] dir" : strerror(-err));
		return;
	}
	head = index_read(shelf, &known);
	found = folder_list(shelf, &count);
	for (size_t i = 0; i < known && count; i++) {
		const struct index_entry *entry = (const struct index_entry *)(head + 1) + i;
		struct found *at = bsearch(entry->name.hash, found, count, sizeof(*found), found_order);

		if (at && !at->taken && at->name.size == entry->name.size) {
			at->name.print = entry->name.print;
			found_add(shelf, at, entry);
		}
	}
	for (size_t i = 0; i < count; i++)
		if (!found[i].taken && tail_read(shelf, &found[i]))
			found_add(shelf, &found[i], NULL);
	free(head);
	free(found);
	pthread_mutex_lock(&store->lock);
	shelf->disk = true;
	/* Less may be allowed than there was. */
	room_make_locked(store, 0);
	/* What came over the net meanwhile. */
	for (struct entry *entry = shelf->told_first; entry; entry = entry->told_after)
		disk_write_later_locked(entry);
	pthread_mutex_unlock(&store->lock);
	log_info("weight cache: %zu chunks of tenant %s on disk", count, *shelf->tenant ? shelf->tenant : "-");
	store->news(store->owner);
}

void disk_start(struct shelf *shelf)
{
	uint8_t hash[CACHE_HASH_SIZE];

	/* The salt is not shown: who knows it can name chunks. */
	if (!shelf->store->setting.disk || index_hash(shelf->salt, sizeof(shelf->salt), hash))
		return;
	chunk_text(hash, 8, shelf->tag);
	shelf->scan.run = scan_run;
	jobs_post(shelf->store->disk, &shelf->scan);
}

void disk_stop(struct store *store)
{
	for (struct shelf *shelf = store->shelves; shelf; shelf = shelf->next)
		index_write(shelf);
	fd_close(&store->folder_lock);
}
