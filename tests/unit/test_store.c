/* SPDX-License-Identifier: Apache-2.0 */
/* The node's store: what comes in comes out, bounds are kept, leases hold, and a disk's lies are found out. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "broker/lib/clock.h"
#include "broker/node/store.h"
#include "broker/core/held.h"
#include "broker/lib/pressure.h"
#include "broker/local/seen.h"
#include "tests/lib/fdcheck.h"

#define MIB (1u << 20)

static const uint8_t salt[CACHE_SALT_SIZE] = "the tenant's", other_salt[CACHE_SALT_SIZE] = "another's";
static char dir[64];

static void news(void *owner)
{
}

static struct store *store_open(uint64_t memory, uint64_t disk)
{
	struct store_setting setting = { .memory = memory, .disk = disk };
	struct store *store;

	if (disk)
		snprintf(setting.dir, sizeof(setting.dir), "%s", dir);
	store = store_new(&setting, news, NULL);
	assert_non_null(store);
	return store;
}

/* Bytes by number, of any size. */
static uint8_t *bytes_make(uint32_t number, uint32_t size)
{
	uint8_t *bytes = malloc(size);
	uint64_t state = number * 2654435761u + 1;

	for (uint32_t i = 0; i < size; i++) {
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		bytes[i] = (uint8_t)(state >> 56);
	}
	return bytes;
}

static void put(struct shelf *shelf, uint32_t number, uint32_t size, bool file)
{
	uint8_t *bytes = bytes_make(number, size);
	struct bulk_keep keep = { .tag = file ? number + 1 : 0, .total = size };

	shelf_keep(shelf, &keep, bytes, size);
	free(bytes);
}

static struct chunk_name name_make(uint32_t number, uint32_t size)
{
	uint8_t *bytes = bytes_make(number, size);
	struct chunk_name name;

	assert_int_equal(chunk_name(salt, bytes, size, &name), 0);
	free(bytes);
	return name;
}

static bool until(bool (*is_so)(void *arg), void *arg)
{
	for (int i = 0; i < 1500; i++) {
		if (is_so(arg))
			return true;
		usleep(10000);
	}
	return false;
}

struct want {
	struct shelf *shelf;
	uint64_t entries;
	uint64_t disk;
};

static bool has_entries(void *arg)
{
	struct want *want = arg;
	struct cache_stats stats;

	shelf_stats(want->shelf, &stats);
	return stats.entries == want->entries;
}

static bool has_disk(void *arg)
{
	struct want *want = arg;
	struct cache_stats stats;

	shelf_stats(want->shelf, &stats);
	return stats.disk == want->disk;
}

struct got {
	struct fetch fetch; /* first */
	int err;
	uint32_t done; /* atomic */
};

static void got_done(struct fetch *fetch, int err)
{
	struct got *got = (struct got *)fetch;

	got->err = err;
	__atomic_store_n(&got->done, 1, __ATOMIC_RELEASE);
}

static bool is_done(void *arg)
{
	return __atomic_load_n(&((struct got *)arg)->done, __ATOMIC_ACQUIRE);
}

/* What a fetch gives; 0 only if the bytes are right. */
static int take(struct shelf *shelf, uint32_t number, uint32_t size, uint32_t at, uint32_t length)
{
	struct chunk_name name = name_make(number, size);
	uint8_t *right = bytes_make(number, size), *place = malloc(length);
	struct got got = { .fetch = { .at = at, .size = length, .place = place, .done = got_done } };
	int err = shelf_fetch(shelf, name.hash, size, &got.fetch);

	if (!err) {
		assert_true(until(is_done, &got));
		err = got.err;
	}
	if (!err)
		assert_memory_equal(place, right + at, length);
	free(right);
	free(place);
	return err;
}

static void comes_back(void **state)
{
	struct store *store = store_open(256 * MIB, 0);
	struct shelf *shelf = store_shelf(store, "t", salt), *other = store_shelf(store, "u", other_salt);
	struct cache_stats stats;

	assert_ptr_equal(shelf, store_shelf(store, "t", salt));
	for (uint32_t i = 0; i < 20; i++)
		put(shelf, i, 100000 + i * 50000, false);
	assert_true(until(has_entries, &(struct want){ shelf, 20, 0 }));
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(take(shelf, i, 100000 + i * 50000, i * 100, 90000), 0);
	/* Nobody has these, or not so long ones, or is another tenant. */
	assert_int_equal(take(shelf, 99, 100000, 0, 1), -ENOENT);
	assert_int_equal(take(other, 1, 150000, 0, 1), -ENOENT);
	assert_int_equal(take(shelf, 1, 150000, 149999, 2), -ERANGE);
	shelf_stats(shelf, &stats);
	assert_int_equal(stats.hits, 20);
	assert_int_equal(stats.saved, 20 * 90000);
	assert_int_equal(stats.misses, 20);
	store_free(store);
}

static void parts_become_whole(void **state)
{
	struct store *store = store_open(64 * MIB, 0);
	struct shelf *shelf = store_shelf(store, "t", salt);
	uint8_t *bytes = bytes_make(7, CACHE_CHUNK_SIZE);
	static const uint32_t borders[] = { 0, 64, 100000, 100001, MIB, 2 * MIB + 3, CACHE_CHUNK_SIZE };
	static const unsigned order[] = { 4, 0, 2, 5, 1, 4, 3 };

	for (unsigned i = 0; i < 7; i++) {
		uint32_t at = borders[order[i]], end = borders[order[i] + 1];
		struct bulk_keep keep = { .tag = 5, .at = at, .total = CACHE_CHUNK_SIZE };

		shelf_keep(shelf, &keep, bytes + at, end - at);
	}
	assert_true(until(has_entries, &(struct want){ shelf, 1, 0 }));
	assert_int_equal(take(shelf, 7, CACHE_CHUNK_SIZE, 3 * MIB - 5, MIB), 0);
	/* What never becomes whole makes room, and is nobody's. */
	for (uint32_t i = 0; i < 300; i++) {
		struct bulk_keep keep = { .tag = 100 + i, .at = i, .total = CACHE_CHUNK_SIZE };

		shelf_keep(shelf, &keep, bytes, 70000);
	}
	assert_true(has_entries(&(struct want){ shelf, 1, 0 }));
	free(bytes);
	store_free(store);
}

static void bounded_and_second_sight_stays(void **state)
{
	struct store *store = store_open(16 * MIB, 0);
	struct shelf *shelf = store_shelf(store, "t", salt);
	struct cache_stats stats;
	unsigned hot = 0;

	/* Six that are used, then a flood of what is seen once. */
	for (uint32_t i = 0; i < 6; i++) {
		put(shelf, i, MIB, false);
		assert_true(until(has_entries, &(struct want){ shelf, i + 1, 0 }));
	}
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(take(shelf, i, MIB, 0, MIB), 0);
	for (uint32_t i = 100; i < 200; i++) {
		put(shelf, i, MIB, false);
		usleep(4000);
		store_tidy(store);
		shelf_stats(shelf, &stats);
		assert_true(stats.memory <= 16 * MIB && stats.bytes <= 16 * MIB);
	}
	for (uint32_t i = 0; i < 6; i++)
		hot += take(shelf, i, MIB, 0, MIB) == 0;
	assert_int_equal(hot, 6);
	shelf_stats(shelf, &stats);
	assert_true(stats.evictions > 10);
	store_free(store);
}

static void leases_hold(void **state)
{
	struct store *store = store_open(32 * MIB, 0);
	struct shelf *shelf = store_shelf(store, "t", salt);
	struct reader_of_shelf *a = shelf_read(shelf), *b;
	struct cache_id ids[16], one;
	struct chunk_name name = name_make(1, MIB);
	uint64_t count;

	put(shelf, 1, MIB, false);
	put(shelf, 2, MIB, false);
	assert_true(until(has_entries, &(struct want){ shelf, 2, 0 }));
	assert_int_equal(reader_news(a, ids, 16), 2);
	assert_int_equal(reader_news(a, ids, 16), 0);
	one = chunk_id(&name);
	assert_int_equal(reader_dropped(a, &one), -EPROTO); /* it wasn't asked to */
	assert_int_equal(shelf_drop(shelf, one.head, &count), 0);
	assert_int_equal(count, 1);
	/* Its reader hasn't agreed: it serves what is under way. */
	assert_int_equal(take(shelf, 1, MIB, 0, MIB), 0);
	b = shelf_read(shelf);
	assert_int_equal(reader_news(b, ids, 16), 1); /* what is on its way out isn't told any more */
	assert_int_equal(reader_drops(a, ids, 16), 1);
	assert_int_equal(reader_drops(a, ids, 16), 0);
	assert_int_equal(reader_drops(b, ids, 16), 0);
	assert_memory_equal(&ids[0], &one, sizeof(one));
	assert_int_equal(reader_dropped(b, &one), -EPROTO); /* it has no say */
	assert_int_equal(reader_dropped(a, &one), 0);
	assert_int_equal(take(shelf, 1, MIB, 0, MIB), -ENOENT);
	assert_int_equal(reader_dropped(a, &one), -EPROTO);
	/* A reader that goes away agrees. */
	name = name_make(2, MIB);
	one = chunk_id(&name);
	assert_int_equal(shelf_drop(shelf, one.head, &count), 0);
	shelf_read_end(a);
	assert_int_equal(take(shelf, 2, MIB, 0, MIB), 0);
	shelf_read_end(b);
	assert_int_equal(take(shelf, 2, MIB, 0, MIB), -ENOENT);
	memset(&one, 0, sizeof(one));
	assert_int_equal(shelf_pin(shelf, one.head, true), 0);
	one.head[0] = 1;
	assert_int_equal(shelf_pin(shelf, one.head, true), -ENOENT);
	assert_int_equal(shelf_drop(shelf, one.head, &count), -ENOENT);
	store_free(store);
}

/* The path of the one folder of chunks. */
static void shelf_path(char *path_out, size_t size)
{
	char path[128];
	struct dirent *dirent;
	DIR *open_dir;

	snprintf(path, sizeof(path), "%s/store", dir);
	open_dir = opendir(path);
	assert_non_null(open_dir);
	path_out[0] = 0;
	while ((dirent = readdir(open_dir)))
		if (dirent->d_name[0] != '.' && strcmp(dirent->d_name, "lock") != 0)
			snprintf(path_out, size, "%s/%.20s", path, dirent->d_name);
	closedir(open_dir);
	assert_true(path_out[0]);
}

static void chunk_file(uint32_t number, uint32_t size, char *path_out, size_t path_size)
{
	struct chunk_name name = name_make(number, size);
	char hash[CHUNK_TEXT_SIZE], folder[200];

	shelf_path(folder, sizeof(folder));
	chunk_text(name.hash, sizeof(name.hash), hash);
	snprintf(path_out, path_size, "%s/%s-%x", folder, hash, size);
}

static void fill_disk(uint32_t count)
{
	struct store *store = store_open(32 * MIB, 64 * MIB);
	struct shelf *shelf = store_shelf(store, "t", salt);

	for (uint32_t i = 0; i < count; i++) {
		put(shelf, i, MIB, true);
		assert_true(until(has_entries, &(struct want){ shelf, i + 1, 0 }));
	}
	assert_true(until(has_disk, &(struct want){ shelf, 0, (uint64_t)count * MIB }));
	store_free(store);
}

static void disk_is_read_again(void **state)
{
	struct store *store;
	struct shelf *shelf;
	char path[300];
	int fd;

	fill_disk(10);
	/* An index that says anything, a write that ended early, a chunk cut short behind, and one that isn't one. */
	for (int damage = 0; damage < 3; damage++) {
		shelf_path(path, sizeof(path) - 10);
		strcat(path, "/index");
		if (damage == 1)
			assert_int_equal(truncate(path, 100), 0);
		else if (damage == 2)
			unlink(path);
		strcat(path, ".new");
		fd = open(path, O_CREAT | O_WRONLY, 0600);
		assert_true(fd >= 0);
		close(fd);
		store = store_open(32 * MIB, 64 * MIB);
		shelf = store_shelf(store, "t", salt);
		assert_true(until(has_disk, &(struct want){ shelf, 0, 10 * MIB }));
		for (uint32_t i = 0; i < 10; i++)
			assert_int_equal(take(shelf, i, MIB, 5000, 100000), 0);
		store_free(store);
		assert_int_equal(access(path, F_OK), -1);
	}
}

static void disk_that_lies_is_found_out(void **state)
{
	struct store *store;
	struct shelf *shelf;
	struct cache_stats stats;
	char path[300];
	uint8_t byte = 0;
	int fd;

	fill_disk(6);
	chunk_file(1, MIB, path, sizeof(path));
	fd = open(path, O_RDWR);
	assert_true(fd >= 0 && pread(fd, &byte, 1, 777777) == 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, 777777), 1);
	close(fd);
	chunk_file(2, MIB, path, sizeof(path));
	assert_int_equal(truncate(path, MIB / 2), 0);
	chunk_file(3, MIB, path, sizeof(path));
	unlink(path);
	store = store_open(32 * MIB, 64 * MIB);
	shelf = store_shelf(store, "t", salt);
	/* By the index the short one is there; by its size it isn't what it says. */
	assert_true(until(has_disk, &(struct want){ shelf, 0, 5 * MIB }));
	assert_int_equal(take(shelf, 0, MIB, 0, MIB), 0);
	assert_int_equal(take(shelf, 1, MIB, 0, 64), -EBADMSG);
	assert_int_equal(take(shelf, 2, MIB, 0, 64), -EBADMSG);
	assert_int_equal(take(shelf, 3, MIB, 0, 64), -ENOENT);
	assert_int_equal(take(shelf, 1, MIB, 0, 64), -ENOENT); /* gone, nobody held it */
	shelf_stats(shelf, &stats);
	assert_int_equal(stats.damaged, 2);
	/* It comes again, and is right again. */
	put(shelf, 1, MIB, true);
	assert_true(until(has_disk, &(struct want){ shelf, 0, 4 * MIB }));
	assert_int_equal(take(shelf, 1, MIB, 0, MIB), 0);
	store_free(store);
}

static void disk_is_bounded(void **state)
{
	struct store *store = store_open(8 * MIB, 12 * MIB);
	struct shelf *shelf = store_shelf(store, "t", salt);
	struct cache_stats stats;

	for (uint32_t i = 0; i < 40; i++) {
		put(shelf, i, MIB, true);
		usleep(20000);
		store_tidy(store);
		shelf_stats(shelf, &stats);
		assert_true(stats.disk <= 12 * MIB && stats.memory <= 8 * MIB);
	}
	assert_true(stats.evictions > 2);
	store_free(store);
	store = store_open(8 * MIB, 4 * MIB);
	shelf = store_shelf(store, "t", salt);
	usleep(300000);
	shelf_stats(shelf, &stats);
	assert_true(stats.disk <= 4 * MIB);
	store_free(store);
}

static void disk_that_fails_is_done_without(void **state)
{
	struct store *store;
	struct shelf *shelf;
	char path[200];

	fill_disk(1);
	shelf_path(path, sizeof(path));
	store = store_open(32 * MIB, 64 * MIB);
	shelf = store_shelf(store, "t", salt);
	assert_true(until(has_disk, &(struct want){ shelf, 0, MIB }));
	/* The folder goes: nothing can be written, as on a full disk. */
	char away[220];

	snprintf(away, sizeof(away), "%s.away", path);
	assert_int_equal(rename(path, away), 0);
	put(shelf, 5, MIB, true);
	assert_true(until(has_entries, &(struct want){ shelf, 2, 0 }));
	usleep(100000);
	assert_int_equal(take(shelf, 5, MIB, 0, MIB), 0);
	assert_int_equal(take(shelf, 0, MIB, 0, MIB), -EIO);
	assert_int_equal(rename(away, path), 0);
	store_free(store);
}

struct verified {
	struct verify verify; /* first */
	int err;
	uint64_t damaged;
	uint32_t done;
};

static void verified_done(struct verify *verify, int err, uint64_t damaged)
{
	struct verified *v = (struct verified *)verify;

	v->err = err;
	v->damaged = damaged;
	__atomic_store_n(&v->done, 1, __ATOMIC_RELEASE);
}

static bool is_verified(void *arg)
{
	return __atomic_load_n(&((struct verified *)arg)->done, __ATOMIC_ACQUIRE);
}

static void verify_finds_damage(void **state)
{
	struct store *store;
	struct shelf *shelf;
	struct verified v = { .verify.done = verified_done };
	char path[300];
	int fd;

	fill_disk(5);
	chunk_file(4, MIB, path, sizeof(path));
	fd = open(path, O_WRONLY);
	assert_true(fd >= 0 && pwrite(fd, "xxxx", 4, 12345) == 4);
	close(fd);
	store = store_open(32 * MIB, 64 * MIB);
	shelf = store_shelf(store, "t", salt);
	assert_true(until(has_disk, &(struct want){ shelf, 0, 5 * MIB }));
	shelf_verify(shelf, &v.verify);
	assert_true(until(is_verified, &v));
	assert_int_equal(v.err, 0);
	assert_int_equal(v.damaged, 1);
	assert_true(until(has_entries, &(struct want){ shelf, 4, 0 }));
	v = (struct verified){ .verify.done = verified_done };
	v.verify.head[3] = 1;
	shelf_verify(shelf, &v.verify);
	assert_true(until(is_verified, &v));
	assert_int_equal(v.err, -ENOENT);
	store_free(store);
}

static void one_daemon_a_folder(void **state)
{
	struct store *first = store_open(8 * MIB, 8 * MIB), *second;
	struct shelf *shelf = store_shelf(first, "t", salt), *late;

	put(shelf, 1, MIB, true);
	assert_true(until(has_disk, &(struct want){ shelf, 0, MIB }));
	second = store_open(8 * MIB, 8 * MIB);
	late = store_shelf(second, "t", salt);
	put(late, 2, MIB, true);
	assert_true(until(has_entries, &(struct want){ late, 1, 0 }));
	usleep(50000);
	assert_true(has_disk(&(struct want){ late, 0, 0 }));
	store_free(second);
	store_free(first);
}

static void mirror_of_many(void **state)
{
	struct held held = { 0 };
	struct cache_id id = { 0 };
	struct chunk_name name = { 0 };
	uint32_t at = 0, seen = 0;

	for (uint32_t i = 1; i <= 100000; i++) {
		memcpy(id.head, &i, 4);
		id.size = 1 + i % 1000;
		id.print = i / 3; /* some have the same */
		assert_int_equal(held_add(&held, &id), 0);
		assert_int_equal(held_add(&held, &id), 0);
	}
	assert_int_equal(held.count, 100000);
	for (uint32_t i = 2; i <= 100000; i += 2) {
		memcpy(id.head, &i, 4);
		id.size = 1 + i % 1000;
		id.print = i / 3;
		held_remove(&held, &id);
		held_remove(&held, &id);
	}
	assert_int_equal(held.count, 50000);
	for (uint32_t i = 1; i <= 100000; i++) {
		memcpy(name.hash, &i, 4);
		name.size = 1 + i % 1000;
		name.print = i / 3;
		assert_int_equal(held_has(&held, &name), i % 2);
		name.hash[20] = 1; /* behind what a mirror has */
		assert_int_equal(held_has(&held, &name), i % 2);
		name.hash[20] = 0;
		name.hash[10] = 1;
		assert_false(held_has(&held, &name));
		name.hash[10] = 0;
	}
	assert_true(held_may(&held, 1, 1 + 3));
	assert_false(held_may(&held, 77777777, 5));
	while (held_next(&held, &at))
		seen++;
	assert_int_equal(seen, 50000);
	id.size = 0;
	assert_int_equal(held_add(&held, &id), -EPROTO);
	id.size = CACHE_CHUNK_SIZE + 1;
	assert_int_equal(held_add(&held, &id), -EPROTO);
	held_clear(&held);
}

static int dir_make(void **state)
{
	const char *temp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%.40s/storeXXXXXX", temp ? temp : "/tmp");
	return mkdtemp(dir) ? 0 : -1;
}

static int dir_drop(void **state)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	return system(command);
}

static void test_second_sights_are_known(void **state)
{
	struct seen seen = { 0 };

	for (uint32_t i = 1; i <= 1000; i++)
		assert_false(seen_before(&seen, i * 2654435761u, MIB));
	/* Some have lost their places to others. */
	uint32_t known = 0;

	for (uint32_t i = 1000; i; i--)
		known += seen_before(&seen, i * 2654435761u, MIB);
	assert_true(known > 900);
	assert_false(seen_before(&seen, 2654435761u, MIB - 1));
	assert_true(seen_before(&seen, 2654435761u, MIB - 1));
	seen_clear(&seen);
	assert_false(seen_before(&seen, 2654435761u, MIB - 1));
	seen_clear(&seen);
}

static void test_busy_cores_are_felt(void **state)
{
	const uint64_t ms = 1000000, s = 1000 * ms;
	struct pressure p = { 0 };
	uint64_t now = s;

	assert_false(pressure_is(&p, now));
	/* A core to itself. */
	for (int i = 0; i < 100; i++)
		pressure_add(&p, ms + ms / 10, ms, now);
	assert_false(pressure_is(&p, now));
	/* Less than two thirds of one: not by a single piece. */
	pressure_add(&p, 9 * ms, ms, now);
	assert_false(pressure_is(&p, now));
	for (int i = 0; i < 30; i++)
		pressure_add(&p, 3 * ms, ms, now);
	assert_true(pressure_is(&p, now));
	assert_true(pressure_is(&p, now + 19 * s));
	assert_false(pressure_is(&p, now + 21 * s));
	/* One that hardly comes to its turn, and then does. */
	pressure_add(&p, 100 * ms, ms, now + 21 * s);
	assert_true(pressure_is(&p, now + 22 * s));
	for (int i = 0; i < 30; i++)
		pressure_add(&p, ms, ms, now + 22 * s);
	assert_false(pressure_is(&p, now + 22 * s));
}

/* A chunk is found by what its pieces were known by, once it has a name; by its hash at any time. */
static void marks_become_names(void **state)
{
	struct store *store = store_open(64 * MIB, 0);
	struct shelf *shelf = store_shelf(store, "tenant", salt);
	struct want want = { .shelf = shelf, .entries = 2 };
	struct bulk_keep alone = { .total = 300000, .mark = 1ull << 63 | 5 }, part = { .tag = 77, .total = 2 * MIB };
	struct chunk_name name, right;
	uint8_t *bytes = bytes_make(1, 300000), *whole = bytes_make(2, 2 * MIB);

	assert_false(shelf_name_of(shelf, alone.mark, NULL, 300000, &name));
	shelf_keep(shelf, &alone, bytes, 300000);
	shelf_keep(shelf, &part, whole, MIB);
	part.at = MIB;
	shelf_keep(shelf, &part, whole + MIB, MIB);
	assert_true(until(has_entries, &want));
	right = name_make(1, 300000);
	assert_true(shelf_name_of(shelf, alone.mark, NULL, 300000, &name));
	assert_memory_equal(&name, &right, sizeof(name));
	assert_true(shelf_name_of(shelf, 0, right.hash, 300000, &name));
	assert_memory_equal(&name, &right, sizeof(name));
	right = name_make(2, 2 * MIB);
	assert_true(shelf_name_of(shelf, 77, NULL, 2 * MIB, &name));
	assert_memory_equal(&name, &right, sizeof(name));
	/* Of another size, of nobody, and one that isn't here any more. */
	assert_false(shelf_name_of(shelf, 77, NULL, MIB, &name));
	assert_false(shelf_name_of(shelf, 78, NULL, 2 * MIB, &name));
	assert_false(shelf_name_of(shelf, 0, salt, 300000, &name));
	uint64_t count;

	assert_int_equal(shelf_drop(shelf, right.hash, &count), 0);
	want.entries = 1;
	store_tidy(store);
	assert_true(until(has_entries, &want));
	assert_false(shelf_name_of(shelf, 77, NULL, 2 * MIB, &name));
	free(bytes);
	free(whole);
	store_free(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(comes_back),
		cmocka_unit_test(parts_become_whole),
		cmocka_unit_test(marks_become_names),
		cmocka_unit_test(bounded_and_second_sight_stays),
		cmocka_unit_test(leases_hold),
		cmocka_unit_test_setup_teardown(disk_is_read_again, dir_make, dir_drop),
		cmocka_unit_test_setup_teardown(disk_that_lies_is_found_out, dir_make, dir_drop),
		cmocka_unit_test_setup_teardown(disk_is_bounded, dir_make, dir_drop),
		cmocka_unit_test_setup_teardown(disk_that_fails_is_done_without, dir_make, dir_drop),
		cmocka_unit_test_setup_teardown(verify_finds_damage, dir_make, dir_drop),
		cmocka_unit_test_setup_teardown(one_daemon_a_folder, dir_make, dir_drop),
		cmocka_unit_test(mirror_of_many),
		cmocka_unit_test(test_second_sights_are_known),
		cmocka_unit_test(test_busy_cores_are_felt),
	};
	struct fdcheck fds;
	int failed;

	fdcheck_begin(&fds);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return fdcheck_end(&fds) ? 1 : failed;
}
