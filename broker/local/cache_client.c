/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces of a client on their way: as bytes, as bytes to be kept, or as references. Control thread, but for jobs; see cache.h.
 *
 * A piece of a file whose chunk has a name that the node holds needs neither its bytes nor a hash. Any other piece is looked at
 * by its fingerprint first, and hashed only if there is something at the node that it could be.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/log.h"
#include "broker/local/cache_private.h"
#include "broker/local/cfile.h"
#include "broker/local/client_private.h"

#define FILE_BITS_MAX (LOCAL_MSG_MAX * 4) /* half a packet of them */
#define FILE_GAP_MAX  (1u << 20)	  /* bytes between two pieces that are sent with them: small tensors, a file's header */

/* What is known of the piece that begins in a granule. */
struct piece_note {
	uint64_t cookie;
	uint64_t offset; /* in the file */
	uint32_t file;	 /* number + 1; 0: none */
	bool absent;	 /* its bytes aren't in the arena */
	bool valid;
};

struct cache_client {
	struct cache_local *cache;
	struct client *client;
	enum conf_cache_use use;
	uid_t uid;
	uint32_t epoch; /* changes when it leaves a link */
	struct cache_counts counts;
	struct cfile *files[CACHE_FILES_MAX];
	bool opening[CACHE_FILES_MAX];
	uint64_t ends[CACHE_FILES_MAX]; /* where the newest piece of the file ended */
	struct piece_note notes[SESSION_GRANULES];
};

/* Something that a thread finds out about a piece. */
struct piece_job {
	struct job job;
	struct loop_post post;
	struct cache_client *cc;
	struct cache_server *server;
	struct mirror *mirror; /* counted; its client outlives it */
	struct bulk_item *item;
	uint32_t epoch;
	uint8_t salt[CACHE_SALT_SIZE];
	struct chunk_name name; /* made; or, for a file, what it has to be */
	struct cfile *file;	/* counted: bytes come from there */
	uint32_t index;
	uint32_t at;
	int err;
};

/* The same pieces are the same samples in each run, however many there are. */
static void sample_take(struct cache_counts *counts, uint32_t print, uint32_t size)
{
	uint32_t at = counts->sample_count;

	for (uint32_t i = 0; i < counts->sample_count; i++)
		if (counts->samples[i].print == print && counts->samples[i].size == size)
			return;
	if (at == SCHED_SAMPLES) {
		at = 0;
		for (uint32_t i = 1; i < SCHED_SAMPLES; i++)
			if (counts->samples[i].print > counts->samples[at].print)
				at = i;
		if (print >= counts->samples[at].print)
			return;
	} else {
		counts->sample_count++;
	}
	counts->samples[at] = (struct sched_sample){ .print = print, .size = size };
}

static void ref_send(struct cache_client *cc, struct link *link, const struct mirror *mirror, const struct bulk_item *item,
		     const struct chunk_name *name, uint32_t at)
{
	uint8_t bytes[32 + CACHE_HASH_SIZE];
	struct writer w = writer_on(bytes, sizeof(bytes));

	put_u64(&w, item->seq);
	put_u64(&w, item->cookie);
	put_u32(&w, item->offset);
	put_u32(&w, item->size);
	put_u32(&w, at);
	put_u32(&w, name->size);
	put_block(&w, name->hash, sizeof(name->hash));
	assert(!w.fault);
	link_send(link, LINK_BULK_REF, mirror->id, bytes, w.at, NULL, 0);
	cc->counts.hits++;
	cc->counts.saved += item->size;
}

/* ---- jobs ---- */

static struct piece_job *job_new(struct cache_client *cc, struct cache_server *server, struct mirror *mirror,
				 struct bulk_item *item, void (*run)(struct job *job), void (*told)(struct loop_post *post))
{
	struct piece_job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	*job = (struct piece_job){ .job.run = run, .post.run = told, .cc = cc, .server = server, .mirror = mirror,
				   .item = item, .epoch = cc->epoch };
	mirror_get(mirror);
	/* It counts as what waits for a lane: a client can't have more than its arena holds. */
	mirror_bulk_begin(mirror);
	cc->cache->running++;
	return job;
}

static void job_free(struct piece_job *job)
{
	struct mirror *mirror = job->mirror;

	job->cc->cache->running--;
	if (job->file)
		cfile_put(job->file);
	free(job->item);
	free(job);
	mirror_bulk_end(mirror);
	/* Last: the client may end with it. */
	mirror_put(mirror);
}

static bool job_is_late(const struct piece_job *job)
{
	return job->epoch != job->cc->epoch || __atomic_load_n(&job->mirror->dead, __ATOMIC_ACQUIRE) || !job->cc->client->on_link;
}

static void item_go(struct piece_job *job)
{
	link_bulk(job->cc->client->link, job->mirror, job->item);
	job->item = NULL;
}

static void name_told(struct loop_post *post)
{
	struct piece_job *job = (struct piece_job *)((char *)post - offsetof(struct piece_job, post));
	struct cache_client *cc = job->cc;

	if (!job_is_late(job)) {
		if (!job->err && job->server->open && held_has(&job->server->held, &job->name)) {
			ref_send(cc, cc->client->link, job->mirror, job->item, &job->name, 0);
		} else {
			job->item->keep = (struct bulk_keep){ .total = job->item->size };
			cc->counts.misses++;
			item_go(job);
		}
	}
	job_free(job);
}

static void name_run(struct job *base)
{
	struct piece_job *job = (struct piece_job *)base;

	job->err = chunk_name(job->salt, shm_up(&job->mirror->shm) + job->item->offset, job->item->size, &job->name);
	loop_post(job->cc->cache->loop, &job->post);
}

static void fill_told(struct loop_post *post)
{
	struct piece_job *job = (struct piece_job *)((char *)post - offsetof(struct piece_job, post));
	struct cache_client *cc = job->cc;

	if (job_is_late(job)) {
		job_free(job);
		return;
	}
	if (job->err) {
		log_warn("pid %d: bytes of a file are not what they were when it was loaded from (%s), and %s lost its copy",
			 cc->client->pid, strerror(-job->err), server_name(cc->client->server));
		client_end(cc->client, END_PROTOCOL, "a file has changed while it was being loaded from it");
	} else {
		job->item->keep = (struct bulk_keep){ .tag = cfile_tag(job->file, job->index), .at = job->at,
						      .total = job->name.size };
		cc->counts.misses++;
		item_go(job);
	}
	job_free(job);
}

/* Bytes that the client left out, from the file, if they are still what they were. */
static void fill_run(struct job *base)
{
	struct piece_job *job = (struct piece_job *)base;
	uint8_t *bytes = malloc(CACHE_CHUNK_SIZE);
	struct chunk_name name;
	uint32_t size;

	job->err = bytes ? 0 : -ENOMEM;
	if (!job->err)
		job->err = cfile_chunk_read(cfile_fd(job->file), cfile_identity(job->file)->size, job->index, bytes, &size);
	if (!job->err)
		job->err = chunk_name(job->salt, bytes, size, &name);
	if (!job->err && memcmp(&name, &job->name, sizeof(name)) != 0)
		job->err = -ESTALE;
	if (!job->err)
		memcpy(shm_up(&job->mirror->shm) + job->item->offset, bytes + job->at, job->item->size);
	free(bytes);
	loop_post(job->cc->cache->loop, &job->post);
}

/* ---- pieces ---- */

static struct piece_note *note_of(struct cache_client *cc, uint32_t offset, uint64_t cookie)
{
	struct piece_note *note = &cc->notes[offset / SESSION_GRANULE];

	return note->valid && note->cookie == cookie ? note : NULL;
}

int cache_client_piece(struct cache_client *cc, const struct bulk_ref *ref, const struct bulk_file *file)
{
	struct piece_note note = { .cookie = ref->cookie, .valid = true };
	const struct cfile *known;
	uint32_t at;

	if (file) {
		if (file->file >= CACHE_FILES_MAX || file->absent > 1)
			return -EPROTO;
		known = cc->files[file->file];
		/* One that is still being looked at is no file yet; but then the bytes are there. */
		if (!known && file->absent)
			return -EPROTO;
		if (known) {
			uint64_t size = cfile_identity(known)->size;

			at = (uint32_t)(file->offset % CACHE_CHUNK_SIZE);
			if (file->offset >= size || ref->size > size - file->offset || ref->size > CACHE_CHUNK_SIZE - at)
				return -EPROTO;
			if (file->absent && !cfile_name(known, (uint32_t)(file->offset / CACHE_CHUNK_SIZE)))
				return -EPROTO;
			note.file = file->file + 1;
			note.offset = file->offset;
			note.absent = file->absent;
		}
	}
	cc->notes[ref->offset / SESSION_GRANULE] = note;
	return 0;
}

static bool piece_fill(struct cache_client *cc, struct cache_server *server, struct mirror *mirror, struct bulk_item *item,
		       struct cfile *file, uint32_t index, uint32_t at)
{
	struct piece_job *job = job_new(cc, server, mirror, item, fill_run, fill_told);

	if (!job) {
		free(item);
		/* We may be in the middle of its ring. */
		__atomic_store_n(&cc->client->broken, "out of memory for its file's bytes", __ATOMIC_RELEASE);
		loop_nudge(cc->client->loop);
		return true;
	}
	job->file = file;
	cfile_get(file);
	job->index = index;
	job->at = at;
	job->name = *cfile_name(file, index);
	memcpy(job->salt, cfile_salt(file), sizeof(job->salt));
	jobs_post(cc->cache->names, &job->job);
	return true;
}

struct gap_job {
	struct job job;
	struct loop_post post;
	struct cache_client *cc;
	struct cache_server *server;
	struct mirror *mirror; /* counted, so that its client stays */
	struct cfile *file;    /* counted */
	uint32_t epoch;
	uint64_t offset;
	uint32_t size;
	int err;
	uint8_t bytes[];
};

static void gap_told(struct loop_post *post)
{
	struct gap_job *gap = (struct gap_job *)((char *)post - offsetof(struct gap_job, post));
	struct cache_client *cc = gap->cc;
	struct mirror *mirror = gap->mirror;

	for (uint32_t done = 0; !gap->err && done < gap->size && gap->epoch == cc->epoch && gap->server->open;) {
		uint64_t offset = gap->offset + done;
		uint32_t index = (uint32_t)(offset / CACHE_CHUNK_SIZE), at = (uint32_t)(offset % CACHE_CHUNK_SIZE);
		uint32_t size = gap->size - done;
		uint8_t head[16];
		struct writer w = writer_on(head, sizeof(head));

		if (size > CACHE_FILL_MAX)
			size = CACHE_FILL_MAX;
		if (size > CACHE_CHUNK_SIZE - at)
			size = CACHE_CHUNK_SIZE - at;
		put_u64(&w, cfile_tag(gap->file, index));
		put_u32(&w, at);
		put_u32(&w, cfile_chunk_size(gap->file, index));
		link_send(gap->server->link, LINK_CACHE_FILL, 0, head, w.at, gap->bytes + done, size);
		done += size;
	}
	cc->cache->running--;
	cfile_put(gap->file);
	free(gap);
	mirror_put(mirror);
}

static void gap_run(struct job *job)
{
	struct gap_job *gap = (struct gap_job *)job;

	if (pread(cfile_fd(gap->file), gap->bytes, gap->size, (off_t)gap->offset) != (ssize_t)gap->size)
		gap->err = -EIO;
	loop_post(gap->cc->cache->loop, &gap->post);
}

/*
 * What lies between the last piece of the file and this one was too small to be looked at. Its chunk would never be whole
 * without it. These bytes needn't be proven: wrong ones make a chunk that nobody asks for.
 */
static void file_gap(struct cache_client *cc, struct cache_server *server, struct mirror *mirror, struct cfile *file,
		     uint32_t number, uint64_t offset, uint32_t size)
{
	uint64_t end = cc->ends[number];
	struct gap_job *gap;

	cc->ends[number] = offset + size;
	if (offset <= end || offset - end > FILE_GAP_MAX)
		return;
	gap = malloc(sizeof(*gap) + (offset - end));
	if (!gap)
		return;
	*gap = (struct gap_job){ .job.run = gap_run, .post.run = gap_told, .cc = cc, .server = server, .mirror = mirror,
				 .file = file, .epoch = cc->epoch, .offset = end, .size = (uint32_t)(offset - end) };
	mirror_get(mirror);
	cfile_get(file);
	cc->cache->running++;
	jobs_post(cc->cache->names, &gap->job);
}

/* Of a file: its chunk's name says all. */
static bool file_send(struct cache_client *cc, struct cache_server *server, struct link *link, struct mirror *mirror,
		      struct bulk_item *item, const struct piece_note *note)
{
	struct cfile *file = cc->files[note->file - 1];
	uint32_t index = (uint32_t)(note->offset / CACHE_CHUNK_SIZE);
	uint32_t at = (uint32_t)(note->offset % CACHE_CHUNK_SIZE);
	const struct chunk_name *name = cfile_name(file, index);

	cc->counts.bytes += item->size;
	if (name)
		sample_take(&cc->counts, name->print, name->size);
	if (name && server->open && cc->use != CACHE_OFF && memcmp(cfile_salt(file), server->salt, CACHE_SALT_SIZE) == 0 &&
	    held_has(&server->held, name)) {
		ref_send(cc, link, mirror, item, name, at);
		cc->ends[note->file - 1] = note->offset + item->size;
		free(item);
		return true;
	}
	if (note->absent)
		return piece_fill(cc, server, mirror, item, file, index, at);
	if (!cache_pays(server, cc->use))
		return false;
	item->keep = (struct bulk_keep){ .tag = cfile_tag(file, index), .at = at, .total = cfile_chunk_size(file, index) };
	cc->counts.misses++;
	file_gap(cc, server, mirror, file, note->file - 1, note->offset, item->size);
	if (!name)
		cfile_want(file, index);
	return false;
}

bool cache_client_send(struct cache_client *cc, struct cache_server *server, struct link *link, struct mirror *mirror,
		       struct bulk_item *item)
{
	const struct piece_note *note = note_of(cc, item->offset, item->cookie);
	struct piece_job *job;
	uint32_t print;

	if (note && note->file)
		return file_send(cc, server, link, mirror, item, note);
	if (!cache_pays(server, cc->use))
		return false;
	print = chunk_print(server->salt, shm_up(&mirror->shm) + item->offset, item->size);
	cc->counts.bytes += item->size;
	sample_take(&cc->counts, print, item->size);
	job = held_may(&server->held, print, item->size) ? job_new(cc, server, mirror, item, name_run, name_told) : NULL;
	if (!job) {
		if (!cache_keeps(server, cc->use, print, item->size))
			return false;
		item->keep = (struct bulk_keep){ .total = item->size };
		cc->counts.misses++;
		return false;
	}
	memcpy(job->salt, server->salt, sizeof(job->salt));
	jobs_post(cc->cache->names, &job->job);
	return true;
}

int cache_client_bad(struct cache_client *cc, struct cache_server *server, struct link *link, struct mirror *mirror,
		     struct reader *body)
{
	uint64_t cookie = get_u64(body);
	uint32_t offset = get_u32(body);
	uint32_t size = get_u32(body);
	const struct piece_note *note;
	struct bulk_item *item;

	if (body->fault || offset >= SESSION_UP_SIZE || size == 0 || size > SESSION_CELL_SIZE || size > SESSION_UP_SIZE - offset ||
	    offset % SESSION_GRANULE)
		return -EPROTO;
	note = note_of(cc, offset, cookie);
	if (!note)
		return -EPROTO;
	item = calloc(1, sizeof(*item));
	if (!item) {
		client_end(cc->client, END_PROTOCOL, "out of memory for its bytes");
		return 0;
	}
	item->cookie = cookie;
	item->offset = offset;
	item->size = size;
	/* Its node has counted it as a hit; here it is none after all. */
	cc->counts.hits -= cc->counts.hits != 0;
	cc->counts.saved -= cc->counts.saved < size ? cc->counts.saved : size;
	if (note->file && note->absent) {
		piece_fill(cc, server, mirror, item, cc->files[note->file - 1], (uint32_t)(note->offset / CACHE_CHUNK_SIZE),
			   (uint32_t)(note->offset % CACHE_CHUNK_SIZE));
		return 0;
	}
	item->keep = (struct bulk_keep){ .total = size };
	link_bulk(link, mirror, item);
	return 0;
}

/* ---- files ---- */

struct client_wish {
	struct cfile_wish wish; /* first */
	struct cache_client *cc;
	struct mirror *mirror; /* counted */
	uint32_t number;
};

static void file_answer(struct cache_client *cc, struct cache_server *server, uint32_t number, int err)
{
	const struct cfile *file = cc->files[number];
	uint32_t count = file && !err ? cfile_chunks(file) : 0;
	size_t size = 128 + count / 8 + 1;
	uint8_t *packet = NULL, *bits = NULL;
	struct writer w;

	/* Of a file of more than a TiB the first chunks are told; of the others bytes go to the broker. */
	if (count > FILE_BITS_MAX) {
		count = FILE_BITS_MAX;
		size = 128 + count / 8 + 1;
	}
	packet = malloc(size);
	bits = calloc(count / 8 + 1, 1);
	if (packet && bits) {
		const struct cfile_identity none = { 0 }, *identity = file && !err ? cfile_identity(file) : &none;
		bool ready = server && server->open && file && !err && memcmp(cfile_salt(file), server->salt, CACHE_SALT_SIZE) == 0;

		for (uint32_t i = 0; i < count && ready; i++) {
			const struct chunk_name *name = cfile_name(file, i);

			if (name && held_has(&server->held, name))
				bits[i / 8] |= (uint8_t)(1u << i % 8);
		}
		w = writer_on(packet, size);
		put_u32(&w, LOCAL_FILE_KNOWN);
		put_u32(&w, number);
		put_u32(&w, (uint32_t)-err);
		put_u64(&w, identity->size);
		put_u64(&w, (uint64_t)identity->mtime_ns);
		put_u64(&w, (uint64_t)identity->ctime_ns);
		put_u32(&w, count);
		put_bytes(&w, bits, (count + 7) / 8);
		if (!w.fault)
			client_packet(cc->client, packet, w.at, NULL, 0);
	}
	free(packet);
	free(bits);
}

static void file_opened(struct cfile_wish *base, struct cfile *file, int err)
{
	struct client_wish *wish = (struct client_wish *)base;
	struct cache_client *cc = wish->cc;

	cc->opening[wish->number] = false;
	if (!err)
		cc->files[wish->number] = file;
	if (err)
		log_debug("pid %d: a file of its uploads is not for the cache: %s", cc->client->pid,
			  err == -EMEDIUMTYPE ? "not on ext4, xfs or btrfs" : strerror(-err));
	if (cc->client->state == CLIENT_LIVE)
		file_answer(cc, server_cache(cc->client->server), wish->number, err);
	cc->cache->running--;
	mirror_put(wish->mirror);
	free(wish);
}

int cache_client_file(struct cache_client *cc, struct cache_server *server, uint32_t number, int fd)
{
	struct client_wish *wish;

	if (number >= CACHE_FILES_MAX || cc->opening[number] || (fd >= 0) == (cc->files[number] != NULL)) {
		if (fd >= 0)
			close(fd);
		return -EPROTO;
	}
	if (fd < 0) {
		file_answer(cc, server, number, 0);
		return 0;
	}
	wish = server->open && cc->use != CACHE_OFF ? calloc(1, sizeof(*wish)) : NULL;
	if (!wish) {
		close(fd);
		file_answer(cc, server, number, -EOPNOTSUPP);
		return 0;
	}
	wish->cc = cc;
	wish->number = number;
	wish->mirror = &cc->client->mirror;
	mirror_get(wish->mirror);
	wish->wish.fd = fd;
	wish->wish.uid = cc->uid;
	wish->wish.done = file_opened;
	memcpy(wish->wish.salt, server->salt, sizeof(wish->wish.salt));
	cc->opening[number] = true;
	cc->cache->running++;
	cfile_open(cc->cache->files, &wish->wish);
	return 0;
}

/* ---- life ---- */

struct cache_client *cache_client_new(struct cache_local *cache, struct client *client, enum conf_cache_use use, uid_t uid)
{
	struct cache_client *cc = cache && cache->use != CACHE_OFF ? calloc(1, sizeof(*cc)) : NULL;

	if (!cc)
		return NULL;
	cc->cache = cache;
	cc->client = client;
	cc->use = use;
	cc->uid = uid;
	return cc;
}

void cache_client_free(struct cache_client *cc)
{
	if (!cc)
		return;
	for (unsigned i = 0; i < CACHE_FILES_MAX; i++)
		if (cc->files[i])
			cfile_put(cc->files[i]);
	free(cc);
}

void cache_client_left(struct cache_client *cc)
{
	if (cc)
		cc->epoch++;
}

const struct cache_counts *cache_client_counts(const struct cache_client *cc)
{
	static const struct cache_counts none;

	return cc ? &cc->counts : &none;
}
