/* SPDX-License-Identifier: Apache-2.0 */
/* What people ask of the store: pin, drop, verify. Any thread; see store.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/node/store_private.h"

static bool head_is_all(const uint8_t head[CACHE_HEAD_SIZE])
{
	static const uint8_t zeros[CACHE_HEAD_SIZE];

	return memcmp(head, zeros, sizeof(zeros)) == 0;
}

int shelf_pin(struct shelf *shelf, const uint8_t head[CACHE_HEAD_SIZE], bool pin)
{
	struct entry *entry = NULL;

	pthread_mutex_lock(&shelf->store->lock);
	if (head_is_all(head)) {
		for (entry = shelf->told_first; entry; entry = entry->told_after)
			entry->pinned = pin;
	} else {
		entry = shelf_find_head_locked(shelf, head);
		if (entry)
			entry->pinned = pin;
	}
	shelf->dirty = true;
	if (entry && pin) {
		entry->durable = true;
		disk_write_later_locked(entry);
	}
	pthread_mutex_unlock(&shelf->store->lock);
	return entry || head_is_all(head) ? 0 : -ENOENT;
}

int shelf_drop(struct shelf *shelf, const uint8_t head[CACHE_HEAD_SIZE], uint64_t *count_out)
{
	struct entry *entry;
	uint64_t count = 0;
	bool all = head_is_all(head);

	pthread_mutex_lock(&shelf->store->lock);
	entry = all ? shelf->told_first : shelf_find_head_locked(shelf, head);
	while (entry) {
		struct entry *next = all ? entry->told_after : NULL;

		if (!entry->drop && !(all && entry->pinned)) {
			entry_drop_locked(entry);
			count++;
		}
		entry = next;
	}
	pthread_mutex_unlock(&shelf->store->lock);
	shelf->store->news(shelf->store->owner);
	*count_out = count;
	return all || count ? 0 : -ENOENT;
}

/* 0: sound. The entry is counted, and stays so. */
static int verify_one(struct shelf *shelf, struct entry *entry)
{
	struct store *store = shelf->store;
	uint32_t size = entry->name.size;
	uint8_t *bytes = malloc(size);
	struct chunk_name name;
	bool on_disk;
	int err = bytes ? 0 : -ENOMEM;

	pthread_mutex_lock(&store->lock);
	on_disk = entry->on_disk;
	if (!err && !on_disk && entry->mem)
		memcpy(bytes, entry->mem, size);
	pthread_mutex_unlock(&store->lock);
	if (!err && on_disk)
		err = disk_read(entry, bytes);
	if (!err)
		err = chunk_name(shelf->salt, bytes, size, &name);
	if (!err && memcmp(&name, &entry->name, sizeof(name)) != 0)
		err = -EBADMSG;
	free(bytes);
	pthread_mutex_lock(&store->lock);
	if (!err) {
		entry->verified = true;
	} else if (err != -ENOMEM) {
		shelf->stats.damaged++;
		/* The copy in memory was right when it came; another one is written from there. */
		if (entry->mem && on_disk) {
			disk_forget_locked(entry);
			disk_write_later_locked(entry);
		} else {
			entry->bad = true;
			entry_drop_locked(entry);
		}
	}
	pthread_mutex_unlock(&store->lock);
	return err;
}

/* The chunk behind @before (NULL: the first), counted; @before no more. What goes meanwhile is no loss. */
static struct entry *verify_next(struct shelf *shelf, struct entry *before)
{
	struct entry *entry;

	pthread_mutex_lock(&shelf->store->lock);
	entry = before ? before->told_after : shelf->told_first;
	while (entry && entry->drop)
		entry = entry->told_after;
	if (entry)
		entry->refs++;
	if (before)
		entry_put_locked(before);
	pthread_mutex_unlock(&shelf->store->lock);
	return entry;
}

/* -ENOENT: there is none. */
static int verify_head(struct shelf *shelf, const uint8_t head[CACHE_HEAD_SIZE])
{
	struct entry *entry;
	int err;

	pthread_mutex_lock(&shelf->store->lock);
	entry = shelf_find_head_locked(shelf, head);
	if (entry && entry->drop)
		entry = NULL;
	if (entry)
		entry->refs++;
	pthread_mutex_unlock(&shelf->store->lock);
	if (!entry)
		return -ENOENT;
	err = verify_one(shelf, entry);
	entry_put(entry);
	return err;
}

static bool is_damage(int err)
{
	return err == -EBADMSG || err == -EIO;
}

static void verify_run(struct job *job)
{
	struct verify *verify = (struct verify *)job;
	struct shelf *shelf = verify->shelf;
	struct entry *entry = NULL;
	uint64_t damaged = 0;
	int err = 0;

	if (head_is_all(verify->head)) {
		while ((entry = verify_next(shelf, entry))) {
			damaged += is_damage(verify_one(shelf, entry));
			if (!jobs_are_ending(shelf->store->work))
				continue;
			entry_put(entry);
			break;
		}
	} else {
		err = verify_head(shelf, verify->head);
		damaged = is_damage(err);
	}
	if (damaged)
		shelf->store->news(shelf->store->owner);
	verify->done(verify, err, damaged);
}

void shelf_verify(struct shelf *shelf, struct verify *verify)
{
	verify->shelf = shelf;
	verify->job.run = verify_run;
	jobs_post(shelf->store->work, &verify->job);
}
