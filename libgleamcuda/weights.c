// SPDX-License-Identifier: Apache-2.0
/*
 * Which bytes of a file a copy's source is. Application threads; see weights.h.
 *
 * A page is still the file's if it is neither private nor swapped (/proc/self/pagemap), and the file is what the daemon has
 * seen if size and both times are the same at the time of the call. Then the bytes are those that the chunk had when the
 * daemon gave it its name, and it doesn't matter what happens to memory and file after the call.
 *
 * Descriptors of files stay open as long as the process lives: closing any descriptor of a file would drop the locks
 * (fcntl) that the program has on it.
 */
#include "libgleamcuda/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "broker/lib/codec.h"
#include "broker/lib/fdpass.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/session.h"

#define ASK_MS	    2000 /* the daemon reads a file of its own at most; afterwards there is no cache for this process */
#define AGAIN_NS    1000000000ull /* what the daemon knows of a file is asked again after so long */
#define PLAIN_NS    20000000ull /* memory is taken for what it was so long ago at most, where that is no file's */
#define SEEN_MAX    256u /* mappings whose file was looked at and is of no use, or is one of those that are */
#define PAGE_SIZE_4 4096u
#define PAGES_TURN  (CACHE_CHUNK_SIZE / PAGE_SIZE_4) /* pages that are looked at in one go: of a chunk */
#define NAME_SIZE   4096

/* As linux/fs.h has it since Linux 6.11. */
struct procmap_query {
	uint64_t size;
	uint64_t query_flags;
	uint64_t query_addr;
	uint64_t vma_start;
	uint64_t vma_end;
	uint64_t vma_flags;
	uint64_t vma_page_size;
	uint64_t vma_offset;
	uint64_t inode;
	uint32_t dev_major;
	uint32_t dev_minor;
	uint32_t vma_name_size;
	uint32_t build_id_size;
	uint64_t vma_name_addr;
	uint64_t build_id_addr;
};
#define PROCMAP_QUERY _IOWR('f', 17, struct procmap_query)

struct mapping {
	struct weights_map map;
	char name[NAME_SIZE];
};

/* A file that was looked at. */
struct seen {
	uint64_t inode;
	uint32_t major, minor;
	int fd;		 /* -1: of no use */
	bool known;	 /* the daemon knows it, under @number */
	uint32_t number;
	uint64_t size;
	int64_t mtime_ns, ctime_ns;
	uint32_t chunks;
	uint8_t *bits; /* chunks that needn't be copied */
	uint64_t asked_ns;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static int cancel_state; /* what who holds it had */
static struct told {
	struct seen seen[SEEN_MAX];
	uint32_t seen_count;
	uint32_t numbers; /* that were given to files */
	bool gone;	  /* there is no gleamd that could be asked */
} told[SESSIONS_MAX]; /* what the daemon was asked, in each session */
/* Memory that was seen to be no file's; what becomes one's meanwhile is copied as any other. */
static struct {
	uint64_t start, end;
	uint64_t until_ns;
} plain;
static int maps_fd = -1, pagemap_fd = -1;
static bool no_query; /* the kernel is older */
static uint32_t off;  /* atomic; 0: not looked, 1: on, 2: off */

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Descriptors 0 to 2 may be closed: they are the program's. */
static int open_high(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC | O_NOCTTY);
	int high;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	close(fd);
	return high;
}

static bool is_off(struct session *s)
{
	uint32_t state = __atomic_load_n(&off, __ATOMIC_RELAXED);

	if (state == 0) {
		const char *use = secure_getenv("GLEAM_CACHE");

		/* Through the kernel module no descriptor can be passed. */
		state = s->kernel || (use && strcmp(use, "off") == 0) ? 2 : 1;
		__atomic_store_n(&off, state, __ATOMIC_RELAXED);
	}
	return state == 2;
}

static void switch_off(const char *why)
{
	gleam_log("weight cache: %s; files are not looked at any more", why);
	__atomic_store_n(&off, 2, __ATOMIC_RELAXED);
}

/* A thread that is cancelled while it waits for gleamd would keep the lock. */
void weights_lock(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_mutex_lock(&lock);
	cancel_state = state;
}

void weights_unlock(void)
{
	int state = cancel_state;

	pthread_mutex_unlock(&lock);
	pthread_setcancelstate(state, NULL);
}

/* ---- mappings and pages ---- */

static bool query_locked(uint64_t address, struct mapping *mapping_out)
{
	struct procmap_query query = {
		.size = sizeof(query), .query_addr = address, .vma_name_size = sizeof(mapping_out->name),
		.vma_name_addr = (uint64_t)(uintptr_t)mapping_out->name,
	};

	mapping_out->name[0] = 0;
	if (ioctl(maps_fd, PROCMAP_QUERY, &query) < 0) {
		no_query = errno == ENOTTY || errno == EINVAL;
		return false;
	}
	mapping_out->map = (struct weights_map){
		.start = query.vma_start, .end = query.vma_end, .offset = query.vma_offset, .inode = query.inode,
		.major = query.dev_major, .minor = query.dev_minor,
	};
	return true;
}

/* Where a line's mapping ends; 0: that isn't one. There are hundreds of lines, of which one is wanted. */
static uint64_t line_end(const char *line)
{
	uint64_t end = 0;

	while (*line && *line != '-')
		line++;
	for (line += *line == '-'; *line && *line != ' '; line++) {
		unsigned digit = (unsigned char)*line;

		end = end << 4 | (digit <= '9' ? digit - '0' : (digit | 0x20u) - 'a' + 10u);
	}
	return end;
}

/* The same by reading: lines are in the order of addresses. */
static bool read_locked(uint64_t address, struct mapping *mapping_out)
{
	char text[3 * NAME_SIZE];
	size_t have = 0;
	off_t at = 0;

	for (;;) {
		ssize_t n = pread(maps_fd, text + have, sizeof(text) - 1 - have, at);
		char *line = text, *end;

		if (n <= 0)
			return false;
		at += n;
		have += (size_t)n;
		text[have] = 0;
		while ((end = memchr(line, '\n', have - (size_t)(line - text)))) {
			struct weights_map *map = &mapping_out->map;
			int name_at = 0;

			*end = 0;
			if (line_end(line) > address) {
				if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %x:%x %" SCNu64 " %n", &map->start,
					   &map->end, &map->offset, &map->major, &map->minor, &map->inode, &name_at) != 6 ||
				    address < map->start)
					return false;
				snprintf(mapping_out->name, sizeof(mapping_out->name), "%s", name_at ? line + name_at : "");
				return true;
			}
			line = end + 1;
		}
		have -= (size_t)(line - text);
		if (have == sizeof(text) - 1)
			return false;
		memmove(text, line, have);
	}
}

/* The file mapping that @address lies in. */
static bool mapping_find_locked(uint64_t address, struct mapping *mapping_out)
{
	bool found;

	if (maps_fd < 0) {
		maps_fd = open_high("/proc/self/maps", O_RDONLY);
		pagemap_fd = open_high("/proc/self/pagemap", O_RDONLY);
		if (maps_fd < 0 || pagemap_fd < 0) {
			switch_off("/proc/self/maps and pagemap can't be read");
			return false;
		}
	}
	found = !no_query && query_locked(address, mapping_out);
	if (!found && no_query)
		found = read_locked(address, mapping_out);
	return found && mapping_out->map.inode && mapping_out->name[0] == '/' && address >= mapping_out->map.start &&
	       address < mapping_out->map.end;
}

/* Whether all pages of [address, address + size) are the file's: not private, not swapped. At most a chunk and a page. */
static bool pages_are_the_files(uint64_t address, uint64_t size)
{
	uint64_t entries[PAGES_TURN + 2];
	uint64_t first = address / PAGE_SIZE_4, last = (address + size - 1) / PAGE_SIZE_4;
	size_t bytes = (size_t)(last - first + 1) * sizeof(entries[0]);

	if (last - first >= PAGES_TURN + 2 ||
	    pread(pagemap_fd, entries, bytes, (off_t)(first * sizeof(entries[0]))) != (ssize_t)bytes)
		return false;
	for (uint64_t i = 0; i <= last - first; i++) {
		bool present = entries[i] >> 63 & 1, swapped = entries[i] >> 62 & 1, of_file = entries[i] >> 61 & 1;

		/* One that isn't there will come from the file. */
		if (swapped || (present && !of_file))
			return false;
	}
	return true;
}

/* ---- the daemon ---- */

static bool ask_send(struct session *s, uint32_t number, int fd)
{
	uint8_t packet[16] __attribute__((aligned(8)));
	struct writer w = writer_on(packet, sizeof(packet));

	put_u32(&w, LOCAL_FILE);
	put_u32(&w, number);
	return fds_send(s->socket, packet, w.at, &fd, fd >= 0, 0) == 0;
}

static bool answer_take(const uint8_t *packet, size_t size, uint32_t number, struct seen *file)
{
	struct reader r = reader_on(packet, size);
	uint32_t bits_size = 0;
	const void *bits;
	uint8_t *copy;

	if (get_u32(&r) != LOCAL_FILE_KNOWN || get_u32(&r) != number)
		return false;
	file->known = get_u32(&r) == 0;
	file->size = get_u64(&r);
	file->mtime_ns = (int64_t)get_u64(&r);
	file->ctime_ns = (int64_t)get_u64(&r);
	file->chunks = get_u32(&r);
	bits = get_bytes(&r, LOCAL_MSG_MAX, &bits_size);
	if (r.fault || file->chunks > 8 * (uint64_t)bits_size)
		file->chunks = 0;
	copy = file->chunks ? realloc(file->bits, bits_size) : file->bits;
	if (!copy)
		file->chunks = 0;
	else
		file->bits = copy;
	if (file->chunks)
		memcpy(file->bits, bits, bits_size);
	return true;
}

/* @fd of a file that is new to it, or -1. */
static void ask_locked(struct session *s, struct seen *file, int fd)
{
	uint8_t *packet;
	uint64_t until = now_ns() + ASK_MS * 1000000ull;

	file->asked_ns = now_ns();
	if (!ask_send(s, file->number, fd))
		return;
	packet = malloc(LOCAL_MSG_MAX);
	while (packet && now_ns() < until) {
		struct pollfd p = { .fd = s->socket, .events = POLLIN };
		ssize_t n;

		if (poll(&p, 1, (int)((until - now_ns()) / 1000000) + 1) < 0 && errno != EINTR)
			break;
		if (!p.revents)
			continue;
		n = recv(s->socket, packet, LOCAL_MSG_MAX, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
			/* It has gone; another one may come. */
			free(packet);
			file->known = false;
			return;
		}
		if (n > 0 && answer_take(packet, (size_t)n, file->number, file)) {
			free(packet);
			return;
		}
	}
	free(packet);
	file->known = false;
	/* A late answer would be taken for one to a later question. */
	switch_off("gleamd does not answer about a file");
}

/* ---- files ---- */

static bool is_what_was_told(const struct seen *file)
{
	struct stat st;

	return fstat(file->fd, &st) == 0 && (uint64_t)st.st_size == file->size &&
	       st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec == file->mtime_ns &&
	       st.st_ctim.tv_sec * 1000000000ll + st.st_ctim.tv_nsec == file->ctime_ns;
}

/* A descriptor of the file that is mapped there, or -1. */
static int file_open(const struct mapping *mapping)
{
	const struct weights_map *map = &mapping->map;
	char path[64];
	struct stat st;
	int fd;

	/* Where we may, by the mapping itself: that can't be another file. */
	snprintf(path, sizeof(path), "/proc/self/map_files/%" PRIx64 "-%" PRIx64, map->start, map->end);
	fd = open_high(path, O_RDONLY | O_NONBLOCK);
	if (fd < 0) {
		fd = open_high(mapping->name, O_RDONLY | O_NONBLOCK);
		if (fd >= 0 && (fstat(fd, &st) < 0 || st.st_ino != map->inode || major(st.st_dev) != map->major ||
				minor(st.st_dev) != map->minor || !S_ISREG(st.st_mode))) {
			close(fd);
			fd = -1;
		}
	}
	return fd;
}

/* NULL: nothing is known of it, and nothing can be. @mapping has its name, or is NULL: the file has been looked at before. */
static struct seen *file_find_locked(struct session *s, const struct weights_map *map, const struct mapping *mapping)
{
	struct told *t = &told[s->index];
	struct seen *file = NULL;

	for (uint32_t i = 0; i < t->seen_count && !file; i++)
		if (t->seen[i].inode == map->inode && t->seen[i].major == map->major && t->seen[i].minor == map->minor)
			file = &t->seen[i];
	if (!file) {
		if (t->seen_count == SEEN_MAX || !mapping)
			return NULL;
		file = &t->seen[t->seen_count++];
		*file = (struct seen){ .inode = map->inode, .major = map->major, .minor = map->minor, .fd = -1 };
		if (t->numbers < CACHE_FILES_MAX)
			file->fd = file_open(mapping);
		if (file->fd >= 0) {
			file->number = t->numbers++;
			ask_locked(s, file, file->fd);
		}
	}
	if (file->fd < 0)
		return NULL;
	if (file->known && is_what_was_told(file))
		return file;
	/* It has changed, or was too young: as another file, but not each time. */
	if (now_ns() - file->asked_ns < AGAIN_NS || t->numbers == CACHE_FILES_MAX)
		return NULL;
	file->number = t->numbers++;
	ask_locked(s, file, file->fd);
	return file->known && is_what_was_told(file) ? file : NULL;
}

/* Which file's mapping @address lies in: as the copy's part before was told, or asked anew. NULL: none that is of use. */
static struct seen *file_at_locked(struct session *s, uint64_t address, struct weights_map *map)
{
	struct mapping mapping;

	if (address >= map->start && address < map->end)
		return file_find_locked(s, map, NULL);
	if (address >= plain.start && address < plain.end && now_ns() < plain.until_ns)
		return NULL;
	mapping.map = (struct weights_map){ 0 };
	if (!mapping_find_locked(address, &mapping)) {
		if (address >= mapping.map.start && address < mapping.map.end) {
			plain.start = mapping.map.start;
			plain.end = mapping.map.end;
			plain.until_ns = now_ns() + PLAIN_NS;
		}
		return NULL;
	}
	*map = mapping.map;
	return file_find_locked(s, map, &mapping);
}

void weights_look(struct session *s, uint64_t address, uint64_t size, struct weights_map *map, struct weights_part *part_out)
{
	struct seen *file;
	uint64_t offset, left;
	uint32_t chunk;

	*part_out = (struct weights_part){ .size = size };
	if (session_is_direct(s) || is_off(s))
		return;
	weights_lock();
	part_out->returns = __atomic_load_n(&s->returns, __ATOMIC_ACQUIRE);
	if (told[s->index].gone)
		goto unlock;
	file = file_at_locked(s, address, map);
	if (!file)
		goto unlock;
	offset = map->offset + (address - map->start);
	if (offset >= file->size)
		goto unlock;
	/* Up to the end of the chunk, of the mapping, and of the file: the rest of its last page is nobody's. */
	left = CACHE_CHUNK_SIZE - offset % CACHE_CHUNK_SIZE;
	if (left > map->end - address)
		left = map->end - address;
	if (left > file->size - offset)
		left = file->size - offset;
	if (left < size)
		part_out->size = left;
	if (!pages_are_the_files(address, part_out->size))
		goto unlock;
	chunk = (uint32_t)(offset / CACHE_CHUNK_SIZE);
	if (!(chunk < file->chunks && file->bits[chunk / 8] & 1u << chunk % 8) && now_ns() - file->asked_ns > AGAIN_NS)
		ask_locked(s, file, -1);
	/* Its times are looked at last: pages that were the file's before were so with what it had then. */
	if (!file->known || !is_what_was_told(file))
		goto unlock;
	part_out->is_file = true;
	part_out->file = (struct bulk_file){
		.file = file->number, .offset = offset,
		.absent = chunk < file->chunks && file->bits[chunk / 8] & 1u << chunk % 8,
	};
unlock:
	weights_unlock();
}

/* ---- gleamd goes and comes ---- */

bool weights_daemon_is_there_locked(const struct session *s)
{
	return !told[s->index].gone;
}

bool weights_fill_locked(const struct session *s, uint32_t number, uint64_t offset, void *bytes, uint32_t size)
{
	const struct told *t = &told[s->index];

	for (uint32_t i = 0; i < t->seen_count; i++) {
		const struct seen *file = &t->seen[i];

		if (file->fd < 0 || !file->known || file->number != number)
			continue;
		return is_what_was_told(file) && pread(file->fd, bytes, size, (off_t)offset) == (ssize_t)size && is_what_was_told(file);
	}
	return false;
}

void weights_forget_locked(const struct session *s)
{
	struct told *t = &told[s->index];

	for (uint32_t i = 0; i < t->seen_count; i++) {
		t->seen[i].known = false;
		t->seen[i].chunks = 0;
	}
	t->gone = true;
}

void weights_back(const struct session *s)
{
	pthread_mutex_lock(&lock);
	told[s->index].gone = false;
	/* The new one knows no numbers yet. */
	told[s->index].numbers = 0;
	pthread_mutex_unlock(&lock);
}
