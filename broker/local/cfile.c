/* SPDX-License-Identifier: Apache-2.0 */
/* Files and the names of their chunks. Control thread, and jobs on threads of their own; see cfile.h. */
#include "broker/local/cfile.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/fd.h"
#include "broker/lib/log.h"

#define FS_EXT4	 0xef53u
#define FS_XFS	 0x58465342u
#define FS_BTRFS 0x9123683eu

#define CFILE_CALM_NS	   (2 * (int64_t)NS_PER_S) /* the grain of file times, and of clocks that are set */
#define CFILE_SIZE_MAX	   (16ull << 40)
#define CFILE_CHUNKS_MAX   (uint32_t)(CFILE_SIZE_MAX / CACHE_CHUNK_SIZE)
#define CFILE_MEMORY_MAX   (CFILE_SIZE_MAX / CACHE_CHUNK_SIZE * sizeof(struct chunk_name) + 4096)
#define CFILE_KEPT_MAX	   64u			  /* files whose names stay in memory when nobody loads from them */
#define CFILE_SAVE_NS	   (2 * NS_PER_S) /* names wait so long for more of them before they are written */
#define CFILE_PATH_SIZE	   (CONF_PATH_SIZE + 128)
#define CFILE_MAGIC	   "GLEAMFN1"

struct memory_head {
	char magic[8];
	struct cfile_identity identity;
	uint8_t salt_hash[CACHE_HASH_SIZE];
	uint64_t count;
};

struct cfile {
	struct cfile *next;
	struct cfiles *cfiles;
	uint32_t refs;
	uid_t uid;
	uint8_t salt[CACHE_SALT_SIZE];
	struct cfile_identity identity;
	int fd;
	uint32_t chunks;
	struct chunk_name *names; /* size 0: not known */
	uint8_t *wanted;	  /* bit a chunk: a job is under way, or it is known that it can't be had now */
	uint64_t tag;
	bool dirty;
	uint64_t refused_ns; /* when a chunk could not be named last: not tried again at once */

	pthread_mutex_t lease_lock;
	/* guarded by lease_lock */
	uint32_t leases; /* jobs that hold the descriptor's one lease */
};

struct cfiles {
	struct loop *loop;
	char dir[CONF_PATH_SIZE];
	struct jobs *quick; /* somebody waits */
	struct jobs *slow;  /* hashing ahead, when the machine is idle */
	struct cfile *files;
	uint32_t running; /* jobs that will be posted here */
	uint32_t kept; /* files that nobody uses: without a descriptor */
	struct loop_timer save;
	bool stopping; /* atomic */
};

/* ---- what a file is ---- */

int cfile_identify(int fd, bool strict, struct cfile_identity *identity_out)
{
	struct cfile_identity identity = { 0 };
	struct statfs fs;
	struct stat st;
	int flags = fcntl(fd, F_GETFL);
	unsigned generation = 0;

	if (flags < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	if ((flags & O_ACCMODE) == O_WRONLY || (flags & O_PATH))
		return -EACCES;
	if (fstatfs(fd, &fs) < 0)
		return -errno;
	memcpy(&identity.fs, &fs.f_fsid, sizeof(identity.fs));
	identity.fs_type = (uint64_t)(uint32_t)fs.f_type;
	identity.inode = st.st_ino;
	identity.size = (uint64_t)st.st_size;
	identity.mtime_ns = st.st_mtim.tv_sec * (int64_t)NS_PER_S + st.st_mtim.tv_nsec;
	identity.ctime_ns = st.st_ctim.tv_sec * (int64_t)NS_PER_S + st.st_ctim.tv_nsec;
	if (strict) {
		if (identity.fs_type != FS_EXT4 && identity.fs_type != FS_XFS && identity.fs_type != FS_BTRFS)
			return -EMEDIUMTYPE;
		if (identity.size > CFILE_SIZE_MAX)
			return -EFBIG;
		/* Inode numbers are used again, with another generation. btrfs never does that, and has no such call. */
		if (ioctl(fd, FS_IOC_GETVERSION, &generation) < 0 && identity.fs_type != FS_BTRFS)
			return -errno;
		identity.generation = generation;
	}
	*identity_out = identity;
	return 0;
}

int cfile_chunk_read(int fd, uint64_t file_size, uint32_t index, uint8_t *bytes, uint32_t *size_out)
{
	uint64_t at = (uint64_t)index * CACHE_CHUNK_SIZE;
	uint32_t size = file_size - at < CACHE_CHUNK_SIZE ? (uint32_t)(file_size - at) : CACHE_CHUNK_SIZE;
	uint32_t done = 0;

	while (done < size) {
		ssize_t n = pread(fd, bytes + done, size - done, (off_t)(at + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ESTALE;
		done += (uint32_t)n;
	}
	*size_out = size;
	return 0;
}

static bool identity_is(int fd, const struct cfile_identity *known)
{
	struct cfile_identity now;

	return cfile_identify(fd, true, &now) == 0 && memcmp(&now, known, sizeof(now)) == 0;
}

static bool times_are_calm(const struct cfile_identity *identity)
{
	struct timespec ts;
	int64_t now;

	clock_gettime(CLOCK_REALTIME, &ts);
	now = ts.tv_sec * (int64_t)NS_PER_S + ts.tv_nsec;
	return now - identity->mtime_ns > CFILE_CALM_NS && now - identity->ctime_ns > CFILE_CALM_NS;
}

/* One for all jobs of the file. While somebody waits for its end no job joins, so that it does end. */
static int lease_take(struct cfile *file)
{
	int err = 0;

	pthread_mutex_lock(&file->lease_lock);
	if (file->leases == 0 && fcntl(file->fd, F_SETLEASE, F_RDLCK) < 0)
		err = -errno;
	else if (file->leases && fcntl(file->fd, F_GETLEASE) != F_RDLCK)
		err = -EBUSY;
	if (!err)
		file->leases++;
	pthread_mutex_unlock(&file->lease_lock);
	return err;
}

/* -EBUSY: it was broken meanwhile. */
static int lease_give(struct cfile *file)
{
	int err;

	pthread_mutex_lock(&file->lease_lock);
	err = fcntl(file->fd, F_GETLEASE) == F_RDLCK ? 0 : -EBUSY;
	if (--file->leases == 0)
		fcntl(file->fd, F_SETLEASE, F_UNLCK);
	pthread_mutex_unlock(&file->lease_lock);
	return err;
}

/*
 * The name of a chunk that nobody is writing to. The lease can be had only while no descriptor and no mapping is open for
 * writing anywhere, and is broken by who opens one; a writer that comes later changes a time.
 */
static int chunk_prove(struct cfile *file, uint32_t index, struct chunk_name *name_out)
{
	uint8_t *bytes = malloc(CACHE_CHUNK_SIZE);
	uint32_t size;
	int err = bytes ? 0 : -ENOMEM;

	if (!err && (!times_are_calm(&file->identity) || !identity_is(file->fd, &file->identity)))
		err = -ESTALE;
	if (!err)
		err = lease_take(file);
	if (err)
		goto free_bytes;
	err = cfile_chunk_read(file->fd, file->identity.size, index, bytes, &size);
	if (!err)
		err = chunk_name(file->salt, bytes, size, name_out);
	if (lease_give(file) && !err)
		err = -EBUSY;
	if (!err && !identity_is(file->fd, &file->identity))
		err = -ESTALE;
free_bytes:
	free(bytes);
	return err;
}

/* ---- memory on disk ---- */

static int hash_of(const void *bytes, size_t size, uint8_t hash_out[CACHE_HASH_SIZE])
{
	return EVP_Digest(bytes, size, hash_out, NULL, EVP_sha256(), NULL) ? 0 : -ENOMEM;
}

/* One file for an inode and a salt: a new version of it replaces the old one's. */
static int memory_path(const char *dir, uid_t uid, const struct cfile_identity *identity, const uint8_t *salt_hash,
		       char path_out[CFILE_PATH_SIZE])
{
	uint64_t key[3] = { identity->fs, identity->fs_type, identity->inode };
	uint8_t mixed[sizeof(key) + CACHE_HASH_SIZE], hash[CACHE_HASH_SIZE];
	char text[CHUNK_TEXT_SIZE];

	memcpy(mixed, key, sizeof(key));
	memcpy(mixed + sizeof(key), salt_hash, CACHE_HASH_SIZE);
	if (hash_of(mixed, sizeof(mixed), hash))
		return -ENOMEM;
	chunk_text(hash, 16, text);
	snprintf(path_out, CFILE_PATH_SIZE, "%s/files/%u/%s", dir, (unsigned)uid, text);
	return 0;
}

/* Names that are known from before; NULL: none. */
static struct chunk_name *memory_read(const char *dir, uid_t uid, const struct cfile_identity *identity,
				      const uint8_t salt[CACHE_SALT_SIZE])
{
	char path[CFILE_PATH_SIZE];
	uint8_t salt_hash[CACHE_HASH_SIZE], hash[CACHE_HASH_SIZE];
	struct chunk_name *names = NULL;
	struct memory_head head;
	uint64_t count = (identity->size + CACHE_CHUNK_SIZE - 1) / CACHE_CHUNK_SIZE;
	char *text;
	size_t size;

	if (!*dir || hash_of(salt, CACHE_SALT_SIZE, salt_hash) || memory_path(dir, uid, identity, salt_hash, path) ||
	    fd_read_file(path, CFILE_MEMORY_MAX, &text, &size))
		return NULL;
	if (size == sizeof(head) + count * sizeof(*names) + sizeof(hash)) {
		memcpy(&head, text, sizeof(head));
		if (memcmp(head.magic, CFILE_MAGIC, sizeof(head.magic)) == 0 && head.count == count &&
		    memcmp(&head.identity, identity, sizeof(*identity)) == 0 &&
		    memcmp(head.salt_hash, salt_hash, sizeof(salt_hash)) == 0 &&
		    hash_of(text, size - sizeof(hash), hash) == 0 && memcmp(hash, text + size - sizeof(hash), sizeof(hash)) == 0)
			names = calloc(count ? count : 1, sizeof(*names));
		if (names)
			memcpy(names, text + sizeof(head), count * sizeof(*names));
	}
	free(text);
	return names;
}

struct save {
	struct job job;
	struct loop_post post;
	struct cfiles *cfiles;
	char dir[CONF_PATH_SIZE];
	uid_t uid;
	struct cfile_identity identity;
	uint8_t salt[CACHE_SALT_SIZE];
	uint64_t count;
	struct chunk_name *names;
};

static int memory_write(const struct save *save)
{
	struct memory_head head = { .magic = CFILE_MAGIC, .identity = save->identity, .count = save->count };
	size_t size = sizeof(head) + save->count * sizeof(*save->names);
	char path[CFILE_PATH_SIZE], fresh[CFILE_PATH_SIZE + 8];
	uint8_t *bytes = malloc(size + CACHE_HASH_SIZE);
	int fd = -1;
	int err = bytes ? hash_of(save->salt, sizeof(save->salt), head.salt_hash) : -ENOMEM;

	if (!err)
		err = memory_path(save->dir, save->uid, &save->identity, head.salt_hash, path);
	if (err)
		goto free_bytes;
	memcpy(bytes, &head, sizeof(head));
	memcpy(bytes + sizeof(head), save->names, save->count * sizeof(*save->names));
	err = hash_of(bytes, size, bytes + size);
	if (err)
		goto free_bytes;
	/* For nobody else: who could write here could say what others' files hold. */
	mkdir(save->dir, 0700);
	snprintf(fresh, sizeof(fresh), "%s/files", save->dir);
	mkdir(fresh, 0700);
	snprintf(fresh, sizeof(fresh), "%s/files/%u", save->dir, (unsigned)save->uid);
	mkdir(fresh, 0700);
	snprintf(fresh, sizeof(fresh), "%s.new", path);
	fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		err = -errno;
		goto free_bytes;
	}
	err = fd_write_all(fd, bytes, size + CACHE_HASH_SIZE);
	/* Not synced: a damaged one is not believed, and its chunks are hashed again. */
	if (close(fd) < 0 && !err)
		err = -errno;
	if (!err && rename(fresh, path) < 0)
		err = -errno;
	if (err)
		unlink(fresh);
free_bytes:
	free(bytes);
	return err;
}

static void save_told(struct loop_post *post)
{
	struct save *save = (struct save *)((char *)post - offsetof(struct save, post));

	save->cfiles->running--;
	free(save->names);
	free(save);
}

static void save_run(struct job *job)
{
	struct save *save = (struct save *)job;
	int err = memory_write(save);

	if (err)
		log_debug("weight cache: names of a file can't be kept in %s: %s", save->dir, strerror(-err));
	save->post.run = save_told;
	loop_post(save->cfiles->loop, &save->post);
}

static void file_save(struct cfile *file)
{
	struct cfiles *cfiles = file->cfiles;
	struct save *save;

	file->dirty = false;
	if (!*cfiles->dir)
		return;
	save = calloc(1, sizeof(*save));
	if (!save)
		return;
	*save = (struct save){ .job.run = save_run, .cfiles = cfiles, .uid = file->uid, .identity = file->identity,
			       .count = file->chunks };
	save->names = malloc((file->chunks ? file->chunks : 1) * sizeof(*save->names));
	if (!save->names) {
		free(save);
		return;
	}
	memcpy(save->names, file->names, file->chunks * sizeof(*save->names));
	memcpy(save->salt, file->salt, sizeof(save->salt));
	memcpy(save->dir, cfiles->dir, sizeof(save->dir));
	cfiles->running++;
	jobs_post(cfiles->quick, &save->job);
}

static void files_save(void *arg)
{
	struct cfiles *cfiles = arg;

	for (struct cfile *file = cfiles->files; file; file = file->next)
		if (file->dirty)
			file_save(file);
}

/* ---- names ---- */

struct proof {
	struct job job;
	struct loop_post post;
	struct cfile *file; /* counted */
	uint32_t index;
	struct chunk_name name;
	int err;
};

static void proof_told(struct loop_post *post)
{
	struct proof *proof = (struct proof *)((char *)post - offsetof(struct proof, post));
	struct cfile *file = proof->file;
	struct cfiles *cfiles = file->cfiles;

	cfiles->running--;
	if (!proof->err) {
		file->names[proof->index] = proof->name;
		file->dirty = true;
		if (!cfiles->save.place && !cfiles->stopping)
			loop_timer_set(cfiles->loop, &cfiles->save, loop_now_ns(cfiles->loop) + CFILE_SAVE_NS);
	} else {
		/* Another time: it may become calm, or its writer may close it. */
		file->wanted[proof->index / 8] &= (uint8_t) ~(1u << proof->index % 8);
		file->refused_ns = loop_now_ns(cfiles->loop);
		if (proof->err != -ECANCELED)
			log_debug("weight cache: chunk %u of inode %" PRIu64 " gets no name: %s", proof->index,
				  file->identity.inode, strerror(-proof->err));
	}
	cfile_put(file);
	free(proof);
}

static void proof_run(struct job *job)
{
	struct proof *proof = (struct proof *)job;
	struct cfiles *cfiles = proof->file->cfiles;

	proof->err = __atomic_load_n(&cfiles->stopping, __ATOMIC_RELAXED) ? -ECANCELED :
									     chunk_prove(proof->file, proof->index, &proof->name);
	proof->post.run = proof_told;
	loop_post(cfiles->loop, &proof->post);
}

void cfile_want(struct cfile *file, uint32_t index)
{
	struct cfiles *cfiles = file->cfiles;
	uint8_t bit = (uint8_t)(1u << index % 8);
	struct proof *proof;

	if (file->names[index].size || file->wanted[index / 8] & bit || cfiles->stopping ||
	    (file->refused_ns && loop_now_ns(cfiles->loop) - file->refused_ns < NS_PER_S))
		return;
	proof = calloc(1, sizeof(*proof));
	if (!proof)
		return;
	*proof = (struct proof){ .job.run = proof_run, .file = file, .index = index };
	file->wanted[index / 8] |= bit;
	cfile_get(file);
	cfiles->running++;
	jobs_post(cfiles->slow, &proof->job);
}

const struct chunk_name *cfile_name(const struct cfile *file, uint32_t index)
{
	return file->names[index].size ? &file->names[index] : NULL;
}

/* ---- files ---- */

static void wish_told(struct loop_post *post)
{
	struct cfile_wish *wish = (struct cfile_wish *)((char *)post - offsetof(struct cfile_wish, post));
	struct cfiles *cfiles = wish->cfiles;
	struct cfile *file = NULL;
	int err = wish->err;

	cfiles->running--;
	if (!err)
		for (file = cfiles->files; file; file = file->next)
			if (file->uid == wish->uid && memcmp(file->salt, wish->salt, sizeof(file->salt)) == 0 &&
			    memcmp(&file->identity, &wish->identity, sizeof(file->identity)) == 0)
				break;
	if (file) {
		/* Known from before: by this descriptor from now on. */
		if (file->refs++ == 0) {
			cfiles->kept--;
			file->fd = wish->fd;
			wish->fd = -1;
		}
		goto tell;
	}
	if (!err)
		file = calloc(1, sizeof(*file));
	if (!file) {
		err = err ? err : -ENOMEM;
		goto tell;
	}
	file->cfiles = cfiles;
	file->refs = 1;
	file->uid = wish->uid;
	memcpy(file->salt, wish->salt, sizeof(file->salt));
	file->identity = wish->identity;
	file->chunks = (uint32_t)((wish->identity.size + CACHE_CHUNK_SIZE - 1) / CACHE_CHUNK_SIZE);
	file->names = wish->names ? wish->names : calloc(file->chunks ? file->chunks : 1, sizeof(*file->names));
	wish->names = NULL;
	file->wanted = calloc(file->chunks / 8 + 1, 1);
	if (!file->names || !file->wanted || getrandom(&file->tag, sizeof(file->tag), 0) != (ssize_t)sizeof(file->tag)) {
		free(file->names);
		free(file->wanted);
		free(file);
		file = NULL;
		err = -ENOMEM;
		goto tell;
	}
	pthread_mutex_init(&file->lease_lock, NULL);
	file->fd = wish->fd;
	wish->fd = -1;
	file->next = cfiles->files;
	cfiles->files = file;
tell:
	free(wish->names);
	fd_close(&wish->fd);
	wish->done(wish, file, err);
}

static void wish_run(struct job *job)
{
	struct cfile_wish *wish = (struct cfile_wish *)job;

	wish->err = cfile_identify(wish->fd, true, &wish->identity);
	if (!wish->err)
		wish->names = memory_read(wish->cfiles->dir, wish->uid, &wish->identity, wish->salt);
	/* Names that come from elsewhere must be of the chunks' sizes. */
	for (uint64_t i = 0; wish->names && i < (wish->identity.size + CACHE_CHUNK_SIZE - 1) / CACHE_CHUNK_SIZE; i++) {
		uint64_t left = wish->identity.size - i * CACHE_CHUNK_SIZE;

		if (wish->names[i].size && wish->names[i].size != (left < CACHE_CHUNK_SIZE ? left : CACHE_CHUNK_SIZE))
			wish->names[i].size = 0;
	}
	wish->post.run = wish_told;
	loop_post(wish->cfiles->loop, &wish->post);
}

void cfile_open(struct cfiles *cfiles, struct cfile_wish *wish)
{
	wish->cfiles = cfiles;
	wish->names = NULL;
	wish->job.run = wish_run;
	cfiles->running++;
	jobs_post(cfiles->quick, &wish->job);
}

void cfile_get(struct cfile *file)
{
	file->refs++;
}

/* Nobody uses it. */
static void file_free(struct cfile *file)
{
	for (struct cfile **at = &file->cfiles->files; *at; at = &(*at)->next) {
		if (*at == file) {
			*at = file->next;
			break;
		}
	}
	fd_close(&file->fd);
	pthread_mutex_destroy(&file->lease_lock);
	free(file->names);
	free(file->wanted);
	free(file);
}

void cfile_put(struct cfile *file)
{
	struct cfiles *cfiles = file->cfiles;
	struct cfile *last = NULL;

	assert(file->refs);
	if (--file->refs)
		return;
	if (file->dirty)
		file_save(file);
	fd_close(&file->fd);
	cfiles->kept++;
	if (cfiles->kept <= CFILE_KEPT_MAX)
		return;
	/* New ones are added in front. */
	for (struct cfile *at = cfiles->files; at; at = at->next)
		if (!at->refs)
			last = at;
	cfiles->kept--;
	file_free(last);
}

const struct cfile_identity *cfile_identity(const struct cfile *file)
{
	return &file->identity;
}

const uint8_t *cfile_salt(const struct cfile *file)
{
	return file->salt;
}

int cfile_fd(const struct cfile *file)
{
	return file->fd;
}

uint32_t cfile_chunks(const struct cfile *file)
{
	return file->chunks;
}

uint32_t cfile_chunk_size(const struct cfile *file, uint32_t index)
{
	uint64_t left = file->identity.size - (uint64_t)index * CACHE_CHUNK_SIZE;

	return left < CACHE_CHUNK_SIZE ? (uint32_t)left : CACHE_CHUNK_SIZE;
}

uint64_t cfile_tag(const struct cfile *file, uint32_t index)
{
	uint64_t tag = (file->tag ^ index) * 0x9e3779b97f4a7c15ull;

	return tag ? tag : 1;
}

/* ---- life ---- */

struct cfiles *cfiles_new(struct loop *loop, const char *dir)
{
	struct cfiles *cfiles = calloc(1, sizeof(*cfiles));

	if (!cfiles)
		return NULL;
	cfiles->loop = loop;
	snprintf(cfiles->dir, sizeof(cfiles->dir), "%s", dir);
	cfiles->save.fire = files_save;
	cfiles->save.arg = cfiles;
	cfiles->quick = jobs_new(jobs_threads(), "gleam-file", false);
	cfiles->slow = jobs_new(jobs_threads(), "gleam-hash", true);
	if (cfiles->quick && cfiles->slow)
		return cfiles;
	jobs_free(cfiles->quick);
	jobs_free(cfiles->slow);
	free(cfiles);
	return NULL;
}

void cfiles_stop(struct cfiles *cfiles)
{
	if (!cfiles)
		return;
	__atomic_store_n(&cfiles->stopping, true, __ATOMIC_RELAXED);
	loop_timer_clear(cfiles->loop, &cfiles->save);
	files_save(cfiles);
}

bool cfiles_are_idle(const struct cfiles *cfiles)
{
	return !cfiles || cfiles->running == 0;
}

void cfiles_free(struct cfiles *cfiles)
{
	if (!cfiles)
		return;
	jobs_free(cfiles->quick);
	jobs_free(cfiles->slow);
	while (cfiles->files)
		file_free(cfiles->files);
	free(cfiles);
}
