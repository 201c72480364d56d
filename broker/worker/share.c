/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory between the workers of a node; see share.h. A share keeps descriptors of its pieces from the first question on
 * until its memory is freed. The thread copies them under the lock and sends them without it, so the executor waits for nobody.
 */
#include "broker/worker/share.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "broker/lib/fdpass.h"
#include "broker/proto/share.h"
#include "broker/worker/grant.h"
#include "broker/worker/note.h"
#include "gen/worker_bodies.h"

#define SHARE_BACKLOG 64
#define SHARE_NAMED   8u /* programs that a share is known to be opened by, for people to read: the first ones */

struct share {
	struct share *next;
	uint64_t object;
	uint8_t key[SHARE_ID];
	uint8_t uuid[16];
	uint32_t count;
	int *fds;
	uint64_t *sizes;
	uint32_t pids[SHARE_NAMED]; /* guarded by lock: of those that have opened it; 0: nobody */
};

struct shares {
	uint8_t name[SHARE_ID];
	int socket;
	uint64_t tenant;
	pthread_t thread;
	pthread_mutex_t lock;
	struct share *first; /* guarded by lock; changed by the executor alone */
	uint32_t pid;	     /* of the client */
	char why[256];	     /* the executor's: of share_trouble() */
};

static void address_make(const uint8_t name[SHARE_ID], struct sockaddr_un *out, socklen_t *size_out)
{
	size_t at;

	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	at = 1 + (size_t)sprintf(out->sun_path + 1, "%s", SHARE_SOCKET);
	for (int i = 0; i < SHARE_ID; i++)
		at += (size_t)sprintf(out->sun_path + at, "%02x", name[i]);
	*size_out = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + at);
}

static void waits_limit(int fd)
{
	struct timeval limit = { .tv_sec = SHARE_WAIT_MS / 1000, .tv_usec = SHARE_WAIT_MS % 1000 * 1000 };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

/* Another worker of this node runs as we do. */
static bool is_ours(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* How long it takes tells nothing of the key. */
static bool key_equal(const uint8_t a[SHARE_ID], const uint8_t b[SHARE_ID])
{
	uint8_t differs = 0;

	for (int i = 0; i < SHARE_ID; i++)
		differs |= a[i] ^ b[i];
	return differs == 0;
}

/* ---- the thread: somebody asks ---- */

/* Each once. */
static void pid_add(uint32_t pids[SHARE_NAMED], uint32_t pid)
{
	for (uint32_t i = 0; pid && i < SHARE_NAMED; i++) {
		if (pids[i] == pid)
			return;
		if (!pids[i]) {
			pids[i] = pid;
			return;
		}
	}
}

/* Copies of a share's descriptors, so that its end needn't wait for a slow asker. NULL: there is no such share. */
static int *fds_copy(struct shares *s, const struct share_ask *ask, struct share_answer *answer, uint64_t **sizes_out)
{
	int *fds = NULL;

	pthread_mutex_lock(&s->lock);
	for (struct share *share = s->first; share; share = share->next) {
		if (!key_equal(share->key, ask->key) || ask->tenant != s->tenant)
			continue;
		fds = malloc(share->count * sizeof(*fds));
		*sizes_out = malloc(share->count * sizeof(**sizes_out));
		if (!fds || !*sizes_out)
			break;
		memcpy(*sizes_out, share->sizes, share->count * sizeof(**sizes_out));
		memcpy(answer->uuid, share->uuid, sizeof(answer->uuid));
		answer->pid = s->pid;
		pid_add(share->pids, ask->pid);
		answer->total = share->count;
		for (uint32_t i = 0; i < share->count; i++)
			fds[i] = fcntl(share->fds[i], F_DUPFD_CLOEXEC, 3);
		break;
	}
	pthread_mutex_unlock(&s->lock);
	return fds;
}

static void ask_serve(struct shares *s, int from)
{
	struct share_answer answer = { 0 };
	struct share_ask ask;
	uint64_t *sizes = NULL;
	uint32_t at = 0;
	int *fds;

	waits_limit(from);
	if (!is_ours(from) || recv(from, &ask, sizeof(ask), 0) != (ssize_t)sizeof(ask))
		return;
	fds = fds_copy(s, &ask, &answer, &sizes);
	do {
		answer.count = answer.total - at < SHARE_FDS_MAX ? answer.total - at : SHARE_FDS_MAX;
		if (answer.count)
			memcpy(answer.sizes, sizes + at, answer.count * sizeof(*sizes));
		if (fds_send(from, &answer, sizeof(answer), fds ? fds + at : NULL, answer.count, 0))
			break;
		at += answer.count;
	} while (at < answer.total);
	for (uint32_t i = 0; fds && i < answer.total; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	free(fds);
	free(sizes);
}

static void *shares_run(void *arg)
{
	struct shares *s = arg;

	for (;;) {
		int fd = accept4(s->socket, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0) {
			if (errno == EINTR || errno == ECONNABORTED)
				continue;
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
				poll(NULL, 0, 20);
				continue;
			}
			return NULL; /* shut down */
		}
		ask_serve(s, fd);
		close(fd);
	}
}

/* Whose client this is, as the node says. Without a word of it nothing is shared. */
static int tenant_read(struct worker *w, uint64_t *tenant_out)
{
	if (!w->tenant_known && w->node > 0) {
		if (recv(w->node, &w->tenant, sizeof(w->tenant), MSG_DONTWAIT) != (ssize_t)sizeof(w->tenant))
			return -EPERM;
		w->tenant_known = true;
	}
	*tenant_out = w->tenant;
	return 0;
}

static struct shares *shares_of(struct worker *w)
{
	struct shares *s = w->shares;
	struct sockaddr_un address;
	socklen_t size;
	sigset_t all, before;
	int err;

	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->socket = -1;
	s->pid = w->header->client_pid;
	err = tenant_read(w, &s->tenant);
	if (err) {
		errno = -err;
		goto failed;
	}
	s->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (s->socket < 0 || getrandom(s->name, sizeof(s->name), 0) != (ssize_t)sizeof(s->name))
		goto failed;
	address_make(s->name, &address, &size);
	if (bind(s->socket, (struct sockaddr *)&address, size) < 0 || listen(s->socket, SHARE_BACKLOG) < 0)
		goto failed;
	pthread_mutex_init(&s->lock, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&s->thread, NULL, shares_run, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err)
		goto failed;
	w->shares = s;
	return s;

failed:
	complain("nothing can be shared with other workers: %s", strerror(errno));
	if (s->socket >= 0)
		close(s->socket);
	free(s);
	return NULL;
}

/* ---- the executor: what its client shares ---- */

static void share_free(struct share *share)
{
	for (uint32_t i = 0; i < share->count; i++)
		close(share->fds[i]);
	free(share->fds);
	free(share->sizes);
	free(share);
}

void share_end(struct worker *w, uint64_t object)
{
	struct shares *s = w->shares;
	struct share *ended = NULL;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	for (struct share **link = &s->first; *link; link = &(*link)->next)
		if ((*link)->object == object) {
			ended = *link;
			*link = ended->next;
			break;
		}
	pthread_mutex_unlock(&s->lock);
	if (ended)
		share_free(ended);
}

const char *share_trouble(struct worker *w)
{
	struct shares *s = w->shares;
	uint32_t pids[SHARE_NAMED] = { 0 };
	size_t at;

	if (!s || !s->first)
		return NULL;
	pthread_mutex_lock(&s->lock);
	for (const struct share *share = s->first; share; share = share->next)
		for (uint32_t i = 0; i < SHARE_NAMED; i++)
			pid_add(pids, share->pids[i]);
	pthread_mutex_unlock(&s->lock);
	at = (size_t)snprintf(s->why, sizeof(s->why), "it has shared memory (cuIpcGetMemHandle, cuMemExportToShareableHandle)");
	for (uint32_t i = 0; i < SHARE_NAMED && pids[i]; i++)
		at += (size_t)snprintf(s->why + at, sizeof(s->why) - at, "%s%u", i ? ", " : " with pid ", pids[i]);
	snprintf(s->why + at, sizeof(s->why) - at, "%s, and they have to stay on one server; it can move when it has freed that memory",
		 pids[0] ? "" : ", which nobody has opened yet");
	return s->why;
}

/* Of the @count pieces a descriptor each; 0, or the driver's code and nothing kept. */
static CUresult pieces_export(struct worker *w, struct share *share, const CUmemGenericAllocationHandle *handles,
			      const uint64_t *sizes, uint32_t count)
{
	share->fds = malloc(count * sizeof(*share->fds));
	share->sizes = malloc(count * sizeof(*share->sizes));
	if (!share->fds || !share->sizes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < count; i++) {
		CUresult r = w->drv.cuMemExportToShareableHandle(&share->fds[i], handles[i],
								 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);

		if (r != CUDA_SUCCESS)
			return r;
		share->sizes[i] = sizes[i];
		share->count++;
	}
	return CUDA_SUCCESS;
}

/* The pieces of a mapping or of physical memory; their number, 0 for what isn't there. The caller frees both. */
static uint32_t pieces_of(struct worker *w, uint32_t kind, uint64_t object, CUmemGenericAllocationHandle **handles_out,
			  uint64_t **sizes_out, uint32_t *device_out)
{
	struct object *o;

	if (kind == SHARE_MEMORY)
		return grants_pieces(w, object, handles_out, sizes_out, device_out);
	o = object_find(w->tables, OBJECT_VMM, object);
	/* What came from another worker is its own to share. */
	if (!o || o->own)
		return 0;
	*handles_out = malloc(sizeof(**handles_out));
	*sizes_out = malloc(sizeof(**sizes_out));
	if (!*handles_out || !*sizes_out)
		return 0;
	**handles_out = (CUmemGenericAllocationHandle)(uintptr_t)o->driver;
	**sizes_out = 0; /* whoever maps it knows, or finds out */
	*device_out = 0;
	return 1;
}

CUresult worker_do_gleamShare(struct worker *w, struct cmd *cmd, const struct msg_gleamShare *m, struct ans_gleamShare *a)
{
	struct shares *s = shares_of(w);
	CUmemGenericAllocationHandle *handles = NULL;
	uint64_t *sizes = NULL;
	uint32_t device = 0, count;
	struct share *share;
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (!s)
		return CUDA_ERROR_OPERATING_SYSTEM;
	memcpy(a->name, s->name, sizeof(a->name));
	for (share = s->first; share; share = share->next)
		if (share->object == m->object) {
			memcpy(a->key, share->key, sizeof(a->key));
			return CUDA_SUCCESS;
		}
	count = pieces_of(w, m->kind, m->object, &handles, &sizes, &device);
	share = count ? calloc(1, sizeof(*share)) : NULL;
	if (!count)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!share)
		goto free_lists;
	share->object = m->object;
	if (m->kind == SHARE_HANDLE) {
		sizes[0] = m->size;
		device = m->device < w->device_count ? m->device : 0;
	}
	memcpy(share->uuid, w->snapshot->devices[device].uuid, sizeof(share->uuid));
	r = getrandom(share->key, sizeof(share->key), 0) == (ssize_t)sizeof(share->key) ? CUDA_SUCCESS :
											   CUDA_ERROR_OPERATING_SYSTEM;
	if (r == CUDA_SUCCESS)
		r = pieces_export(w, share, handles, sizes, count);
	if (r != CUDA_SUCCESS) {
		share_free(share);
		goto free_lists;
	}
	memcpy(a->key, share->key, sizeof(a->key));
	pthread_mutex_lock(&s->lock);
	share->next = s->first;
	s->first = share;
	pthread_mutex_unlock(&s->lock);

free_lists:
	free(handles);
	free(sizes);
	return r;
}

/* ---- the executor: what others share with its client ---- */

void share_pieces_free(struct worker *w, struct share_pieces *pieces)
{
	for (uint32_t i = 0; i < pieces->count; i++)
		w->drv.cuMemRelease(pieces->pieces[i].driver);
	free(pieces);
}

static int worker_ask(struct worker *w, const uint8_t name[SHARE_ID], const uint8_t key[SHARE_ID])
{
	struct share_ask ask = { .pid = w->header->client_pid };
	struct sockaddr_un address;
	socklen_t size;
	int err = tenant_read(w, &ask.tenant);
	int fd;

	if (err)
		return err;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	waits_limit(fd);
	address_make(name, &address, &size);
	memcpy(ask.key, key, sizeof(ask.key));
	if (connect(fd, (struct sockaddr *)&address, size) == 0 && is_ours(fd) &&
	    send(fd, &ask, sizeof(ask), MSG_NOSIGNAL) == (ssize_t)sizeof(ask))
		return fd;
	err = errno ? -errno : -EPERM;
	close(fd);
	return err;
}

/* One packet; the descriptors that came with it, @answer->count of them, are the caller's. 0 or -errno. */
static int answer_take(int from, struct share_answer *answer, int fds_out[SHARE_FDS_MAX])
{
	ssize_t got = fds_recv(from, answer, sizeof(*answer), fds_out, SHARE_FDS_MAX, 0);
	uint32_t count = 0;

	while (got >= 0 && count < SHARE_FDS_MAX && fds_out[count] >= 0)
		count++;
	/* Fewer than it says are also what comes when we have no room for another descriptor. */
	if (got == (ssize_t)sizeof(*answer) && answer->count == count)
		return 0;
	for (uint32_t i = 0; i < count; i++)
		close(fds_out[i]);
	return got < 0 ? (int)got : -EPROTO;
}

/* Takes the descriptors. */
static CUresult pieces_import(struct worker *w, struct share_pieces *pieces, const struct share_answer *answer, const int *fds)
{
	CUresult r = CUDA_SUCCESS;

	for (uint32_t i = 0; i < answer->count; i++) {
		if (r == CUDA_SUCCESS) {
			r = w->drv.cuMemImportFromShareableHandle(&pieces->pieces[pieces->count].driver,
								  (void *)(uintptr_t)(unsigned int)fds[i],
								  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
			if (r == CUDA_SUCCESS)
				pieces->pieces[pieces->count++].size = answer->sizes[i];
		}
		close(fds[i]);
	}
	return r;
}

static CUresult share_fetch(struct worker *w, const struct msg_gleamShareOpen *m, struct share_pieces **pieces_out,
			    uint8_t uuid_out[16])
{
	int from = worker_ask(w, m->name, m->key);
	struct share_pieces *pieces = NULL;
	struct share_answer answer;
	int fds[SHARE_FDS_MAX];
	uint32_t total = 0;
	CUresult r = CUDA_SUCCESS;
	int err = from < 0 ? from : 0;

	while (!err && r == CUDA_SUCCESS && (!pieces || pieces->count < total)) {
		err = answer_take(from, &answer, fds);
		if (err)
			break;
		if (!pieces) {
			total = answer.total;
			pieces = total && total <= SHARE_PIECES_MAX ?
					 calloc(1, sizeof(*pieces) + total * sizeof(pieces->pieces[0])) :
					 NULL;
			if (pieces)
				pieces->pid = answer.pid;
		}
		if (!pieces || answer.total != total || !answer.count || answer.count > total - pieces->count) {
			for (uint32_t i = 0; i < answer.count; i++)
				close(fds[i]);
			err = pieces ? -EPROTO : -ENOENT;
			break;
		}
		r = pieces_import(w, pieces, &answer, fds);
	}
	if (from >= 0)
		close(from);
	if (!err && r == CUDA_SUCCESS) {
		memcpy(uuid_out, answer.uuid, sizeof(answer.uuid));
		*pieces_out = pieces;
		return CUDA_SUCCESS;
	}
	if (pieces)
		share_pieces_free(w, pieces);
	if (err)
		note(w, "shared memory of another worker: %s", strerror(-err));
	return err ? CUDA_ERROR_INVALID_HANDLE : r;
}

CUresult worker_do_gleamShareOpen(struct worker *w, struct cmd *cmd, const struct msg_gleamShareOpen *m,
				  struct ans_gleamShareOpen *a)
{
	struct share_pieces *pieces;
	struct object *o;
	CUresult r = share_fetch(w, m, &pieces, a->uuid);

	if (r != CUDA_SUCCESS)
		return r;
	a->device = UINT32_MAX;
	for (uint32_t d = 0; d < w->device_count; d++)
		if (w->ordinals >> d & 1 && memcmp(w->snapshot->devices[d].uuid, a->uuid, sizeof(a->uuid)) == 0)
			a->device = d;
	for (uint32_t i = 0; i < pieces->count; i++)
		a->size += pieces->pieces[i].size;
	if (!object_add(w, OBJECT_VMM, m->handle, (void *)(uintptr_t)pieces->pieces[0].driver)) {
		share_pieces_free(w, pieces);
		return CMD_BROKEN;
	}
	o = object_find(w->tables, OBJECT_VMM, m->handle);
	o->own = pieces;
	return CUDA_SUCCESS;
}

void shares_stop(struct worker *w)
{
	struct shares *s = w->shares;

	if (!s)
		return;
	shutdown(s->socket, SHUT_RDWR);
	pthread_join(s->thread, NULL);
	close(s->socket);
	while (s->first) {
		struct share *next = s->first->next;

		share_free(s->first);
		s->first = next;
	}
	pthread_mutex_destroy(&s->lock);
	free(s);
	w->shares = NULL;
}
