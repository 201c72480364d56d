// SPDX-License-Identifier: Apache-2.0
/*
 * Results of compilers. The slots are as NVRTC and nvJitLink 13.0 were seen to call them: open, get, put if there was none, close; what get
 * gave is freed by the last slot, which may be after the close.
 */
#include "libgleamcuda/compiled.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/lib/sum128.h"
#include "libgleamcuda/log.h"

#define TEXT_MAX      (1u << 20) /* options, and the compiler's names */
#define PATH_SIZE     1024
#define NAME_SIZE     33 /* of a file: the name's sum in hex */
#define FILES_DEFAULT (1ull << 30)
#define FILES_MAX     (4ull << 30) /* as of the driver's own cache */
#define MAGIC	      0x31636c6d61656c67ull /* "glmalc1" */

struct name {
	struct sum128 sum;    /* of everything: finds it */
	struct sum128 source; /* of the source, from another start: with the text, says that it is the one */
	uint64_t size;
};

struct compiled {
	struct name name;
	uint32_t text_size;
	char text[]; /* all else that it depends on, separated by NUL */
};

/* What a file begins with; behind it the text, then the result. */
struct head {
	uint64_t magic;
	struct name name;
	uint32_t text_size;
	uint32_t size;
	struct sum128 sum; /* of the result */
};

struct kept {
	struct kept *next; /* used less recently */
	struct head head;
	uint8_t bytes[]; /* text, result */
};

/* Only ever tried: whoever finds it taken, as in a child that was forked meanwhile, does without memory. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept *first;	 /* guarded by lock */
static int64_t files_bytes = -1; /* atomic; about, of all processes together. -1: nobody has counted */

static bool disabled(void)
{
	const char *text = secure_getenv("CUDA_CACHE_DISABLE");

	return text && strtol(text, NULL, 10) != 0;
}

static uint64_t files_max(void)
{
	const char *text = secure_getenv("CUDA_CACHE_MAXSIZE");
	char *end;
	unsigned long long value;

	if (!text || *text < '0' || *text > '9')
		return FILES_DEFAULT;
	value = strtoull(text, &end, 10);
	return *end ? FILES_DEFAULT : value < FILES_MAX ? value : FILES_MAX;
}

/* ---- in memory ---- */

static bool is_it(const struct head *head, const void *text, const struct compiled *entry)
{
	return memcmp(&head->name, &entry->name, sizeof(head->name)) == 0 && head->text_size == entry->text_size &&
	       memcmp(text, entry->text, entry->text_size) == 0;
}

static void *copy_of(const void *bytes, size_t size)
{
	void *copy = malloc(size ? size : 1);

	if (copy)
		memcpy(copy, bytes, size);
	return copy;
}

static void *memory_get(const struct compiled *entry, uint32_t *size_out)
{
	void *data = NULL;

	if (pthread_mutex_trylock(&lock))
		return NULL;
	for (struct kept **at = &first; *at; at = &(*at)->next) {
		struct kept *k = *at;

		if (!is_it(&k->head, k->bytes, entry))
			continue;
		*at = k->next;
		k->next = first;
		first = k;
		data = copy_of(k->bytes + k->head.text_size, k->head.size);
		*size_out = k->head.size;
		break;
	}
	pthread_mutex_unlock(&lock);
	return data;
}

static uint64_t kept_size(const struct head *head)
{
	return sizeof(struct kept) + head->text_size + head->size;
}

static void memory_put(const struct compiled *entry, const struct head *head, const void *data)
{
	struct kept *k, *old = NULL;

	if (kept_size(head) > COMPILED_MEMORY_MAX / 2)
		return;
	k = malloc(kept_size(head));
	if (!k)
		return;
	k->head = *head;
	memcpy(k->bytes, entry->text, entry->text_size);
	memcpy(k->bytes + entry->text_size, data, head->size);
	if (pthread_mutex_trylock(&lock)) {
		free(k);
		return;
	}
	k->next = first;
	first = k;

	uint64_t sum = 0;
	struct kept **at = &first;

	while (*at && (sum += kept_size(&(*at)->head)) <= COMPILED_MEMORY_MAX)
		at = &(*at)->next;
	old = *at;
	*at = NULL;
	pthread_mutex_unlock(&lock);
	while (old) {
		struct kept *next = old->next;

		free(old);
		old = next;
	}
}

/* ---- in files ---- */

/* The folder, which is there afterwards. -errno. */
static int folder(char path_out[PATH_SIZE])
{
	static const char *const inside[] = { "CUDA_CACHE_PATH", "XDG_CACHE_HOME", "HOME" };
	static const char *const tails[][3] = { { "/gleam" }, { "/gleam", "/compiled" }, { "/.cache", "/gleam", "/compiled" } };
	struct stat st;

	for (unsigned i = 0; i < 3; i++) {
		const char *base = secure_getenv(inside[i]);
		size_t at;

		if (!base || *base != '/')
			continue;
		at = (size_t)snprintf(path_out, PATH_SIZE, "%s", base);
		/* A program's own choice may not be there yet; a home is. */
		if (at < PATH_SIZE && i < 2)
			mkdir(path_out, 0700);
		for (unsigned part = 0; part < 3 && tails[i][part] && at < PATH_SIZE; part++) {
			at += (size_t)snprintf(path_out + at, PATH_SIZE - at, "%s", tails[i][part]);
			if (at < PATH_SIZE && mkdir(path_out, 0700) && errno != EEXIST)
				return -errno;
		}
		if (at + 2 * NAME_SIZE > PATH_SIZE)
			return -ENAMETOOLONG;
		/* What others can write to is not ours to run. */
		if (stat(path_out, &st))
			return -errno;
		return S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022) ? 0 : -EPERM;
	}
	return -ENOENT;
}

static void file_path(char path[PATH_SIZE], const struct compiled *entry)
{
	size_t at = strlen(path);

	snprintf(path + at, PATH_SIZE - at, "/%016llx%016llx", (unsigned long long)entry->name.sum.a,
		 (unsigned long long)entry->name.sum.b);
}

static bool read_all(int fd, void *bytes, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t got = read(fd, (char *)bytes + at, size - at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		at += (size_t)got;
	}
	return true;
}

static bool write_all(int fd, const void *bytes, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t put = write(fd, (const char *)bytes + at, size - at);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return false;
		at += (size_t)put;
	}
	return true;
}

static bool sums_equal(struct sum128 x, struct sum128 y)
{
	return x.a == y.a && x.b == y.b;
}

static void *file_read(int fd, const struct compiled *entry, uint32_t *size_out)
{
	char *text = NULL;
	struct head head;
	struct stat st;
	void *data;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || !read_all(fd, &head, sizeof(head)) ||
	    head.magic != MAGIC || head.text_size > TEXT_MAX || head.size > COMPILED_SIZE_MAX ||
	    (uint64_t)st.st_size != sizeof(head) + head.text_size + (uint64_t)head.size)
		return NULL;
	text = malloc(head.text_size + 1);
	if (!text || !read_all(fd, text, head.text_size) || !is_it(&head, text, entry)) {
		free(text);
		return NULL;
	}
	free(text);
	data = malloc(head.size ? head.size : 1);
	if (data && (!read_all(fd, data, head.size) || !sums_equal(sum128_add(SUM128_SEED, data, head.size), head.sum))) {
		free(data);
		return NULL;
	}
	*size_out = head.size;
	return data;
}

static void *file_get(const struct compiled *entry, uint32_t *size_out)
{
	char path[PATH_SIZE];
	void *data;
	int fd;

	if (folder(path))
		return NULL;
	file_path(path, entry);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return NULL;
	data = file_read(fd, entry, size_out);
	if (data)
		futimens(fd, NULL); /* used now */
	close(fd);
	if (!data)
		unlink(path); /* torn, or of another version: it is written again */
	return data;
}

struct file {
	char name[NAME_SIZE];
	int64_t used; /* ns */
	int64_t size;
};

static int by_use(const void *x, const void *y)
{
	const struct file *a = x, *b = y;

	return a->used < b->used ? -1 : a->used > b->used;
}

/* How much there is; what was unused longest goes until there is three quarters of @most. Every process may do that, at any time. */
static int64_t files_tidy(const char *path, uint64_t most)
{
	struct file *files = NULL;
	size_t count = 0, room = 0;
	int64_t sum = 0;
	DIR *dir = opendir(path);
	struct dirent *d;

	if (!dir)
		return 0;
	while ((d = readdir(dir))) {
		struct stat st;

		if (strlen(d->d_name) != NAME_SIZE - 1 || fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
			continue;
		sum += st.st_size;
		if (count == room) {
			size_t more = room ? 2 * room : 256;
			struct file *larger = realloc(files, more * sizeof(*files));

			if (!larger)
				continue;
			files = larger;
			room = more;
		}
		memcpy(files[count].name, d->d_name, NAME_SIZE);
		files[count].used = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
		files[count++].size = st.st_size;
	}
	if (count && (uint64_t)sum > most) {
		qsort(files, count, sizeof(*files), by_use);
		for (size_t i = 0; i < count && (uint64_t)sum > most / 4 * 3; i++)
			if (unlinkat(dirfd(dir), files[i].name, 0) == 0)
				sum -= files[i].size;
	}
	closedir(dir);
	free(files);
	return sum;
}

static void file_put(const struct compiled *entry, const struct head *head, const void *data)
{
	int64_t size = (int64_t)(sizeof(*head) + head->text_size + head->size);
	int64_t sum = __atomic_load_n(&files_bytes, __ATOMIC_RELAXED);
	char path[PATH_SIZE], fresh[PATH_SIZE];
	uint64_t most = files_max();
	bool whole;
	int fd, err = folder(path);

	if (err || (uint64_t)size > most / 2) {
		if (err)
			gleam_log("what NVRTC compiles is kept for this process alone: no folder for it of this user's own (%s); set CUDA_CACHE_PATH",
				  strerror(-err));
		return;
	}
	if (sum < 0 || (uint64_t)(sum + size) > most)
		sum = files_tidy(path, most - (uint64_t)size);
	__atomic_store_n(&files_bytes, sum + size, __ATOMIC_RELAXED);
	if ((size_t)snprintf(fresh, sizeof(fresh), "%s/.XXXXXX", path) >= sizeof(fresh))
		return;
	fd = mkostemp(fresh, O_CLOEXEC);
	if (fd < 0)
		return;
	whole = write_all(fd, head, sizeof(*head)) && write_all(fd, entry->text, entry->text_size) && write_all(fd, data, head->size);
	close(fd);
	file_path(path, entry);
	if (!whole || rename(fresh, path))
		unlink(fresh);
}

/* ---- entries ---- */

CUresult compiled_open(struct compiled **entry_out, int kind, const void *source, size_t size, const char *options, const char *host,
		       const char *built, int arch)
{
	const char *words[] = { options ? options : "", host ? host : "", built ? built : "" };
	size_t lengths[3], text_size = 0;
	struct compiled *entry;
	char first_word[32];
	size_t at;

	if (!entry_out || !source)
		return CUDA_ERROR_INVALID_VALUE;
	*entry_out = NULL;
	if (disabled())
		return CUDA_ERROR_NOT_SUPPORTED;
	at = (size_t)snprintf(first_word, sizeof(first_word), "%d %d", kind, arch) + 1;
	for (unsigned i = 0; i < 3; i++)
		text_size += lengths[i] = strnlen(words[i], TEXT_MAX) + 1;
	text_size += at;
	if (size > COMPILED_SIZE_MAX || text_size > TEXT_MAX) {
		gleam_log("what is compiled from %zu bytes with %zu of options is not kept: too large", size, text_size);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	entry = malloc(sizeof(*entry) + text_size);
	if (!entry)
		return CUDA_ERROR_OUT_OF_MEMORY;
	entry->text_size = (uint32_t)text_size;
	memcpy(entry->text, first_word, at);
	for (unsigned i = 0; i < 3; at += lengths[i++])
		memcpy(entry->text + at, words[i], lengths[i]);
	memset(&entry->name, 0, sizeof(entry->name));
	entry->name.size = size;
	entry->name.sum = sum128_add(sum128_add(SUM128_SEED, entry->text, text_size), source, size);
	entry->name.source = sum128_add((struct sum128){ 0x2545f4914f6cdd1dull, 0x9e6c63d0876a9a35ull }, source, size);
	*entry_out = entry;
	return CUDA_SUCCESS;
}

void compiled_close(struct compiled *entry)
{
	free(entry);
}

static struct head head_of(const struct compiled *entry, const void *data, uint32_t size)
{
	struct head head;

	memset(&head, 0, sizeof(head)); /* it goes into a file */
	head.magic = MAGIC;
	head.name = entry->name;
	head.text_size = entry->text_size;
	head.size = size;
	head.sum = sum128_add(SUM128_SEED, data, size);
	return head;
}

CUresult compiled_get(struct compiled *entry, void **data_out, uint32_t *size_out)
{
	void *data;
	uint32_t size = 0;

	if (!entry || !data_out || !size_out)
		return CUDA_ERROR_INVALID_VALUE;
	data = memory_get(entry, &size);
	if (gleam_log_wanted())
		gleam_log("kept compilation %016llx of %llu bytes: %s", (unsigned long long)entry->name.sum.a,
			  (unsigned long long)entry->name.size, data ? "in memory" : "not in memory");
	if (!data) {
		data = file_get(entry, &size);
		if (data) {
			struct head head = head_of(entry, data, size);

			memory_put(entry, &head, data);
		}
	}
	if (!data)
		return CUDA_ERROR_NOT_FOUND;
	*data_out = data;
	*size_out = size;
	return CUDA_SUCCESS;
}

void compiled_put(struct compiled *entry, const void *data, uint32_t size)
{
	struct head head;

	if (!entry || !data || size > COMPILED_SIZE_MAX)
		return;
	head = head_of(entry, data, size);
	memory_put(entry, &head, data);
	file_put(entry, &head, data);
}

/* ---- the table ---- */

static CUresult slot_close(struct compiled *entry)
{
	compiled_close(entry);
	return CUDA_SUCCESS;
}

/* The second argument was always 0. */
static CUresult slot_get(struct compiled *entry, uint64_t zero, void **data, uint32_t *size)
{
	return zero ? CUDA_ERROR_NOT_SUPPORTED : compiled_get(entry, data, size);
}

static CUresult slot_put(struct compiled *entry, uint64_t zero, const void *data, uint32_t size)
{
	if (zero)
		return CUDA_ERROR_NOT_SUPPORTED;
	compiled_put(entry, data, size);
	return CUDA_SUCCESS;
}

static CUresult slot_unused(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult slot_free(void *data)
{
	free(data);
	return CUDA_SUCCESS;
}

#define SLOT(function) ((const void *)(uintptr_t)(function))

const void *const compiled_table[] = {
	(const void *)(uintptr_t)(7 * sizeof(void *)),
	SLOT(compiled_open),
	SLOT(slot_close),
	SLOT(slot_get),
	SLOT(slot_put),
	SLOT(slot_unused),
	SLOT(slot_free),
};
