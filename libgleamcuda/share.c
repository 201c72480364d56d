// SPDX-License-Identifier: Apache-2.0
/*
 * Memory between programs. The bytes stay where they are: a token names the worker that has them and a key, and the worker of
 * whoever opens it fetches descriptors of the pieces there (broker/worker/share.c). That works between programs of one tenant on
 * one server; for anything else the key is as good as wrong. Any thread; see share.h.
 */
#include "libgleamcuda/share.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/memory.h"
#include "libgleamcuda/range.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stream.h"

#define SHARE_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* Memory of another program that is mapped here: one for each device that opened it. */
struct opened {
	struct opened *next;
	uint8_t key[SHARE_ID];
	int device;
	uint64_t handle; /* OBJECT_VMM */
	uint64_t address;
	uint64_t size;
	uint32_t pointers;
};

/* One allocation in it, as often as it was opened. */
struct pointer {
	struct pointer *next;
	struct opened *in;
	uint64_t address;
	uint32_t count;
	struct context *context;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held over the trip of an opening: the second waits for the first */
/* guarded by lock */
static struct opened *opened_first;
static struct pointer *pointers;
static struct {
	uint8_t name[SHARE_ID];
	bool known;
} own[SESSIONS_MAX]; /* this program's workers */

/* ---- what this program shares ---- */

static CUresult share_ask(struct call *call, const struct msg_gleamShare *m, struct share_token *token)
{
	struct ans_gleamShare a;
	CUresult result = CALL_ASK(call, gleamShare, m);

	if (result)
		return result;
	if (!ans_gleamShare_get(&call->r, &a))
		return CUDA_ERROR_UNKNOWN;
	memcpy(token->name, a.name, sizeof(token->name));
	memcpy(token->key, a.key, sizeof(token->key));
	pthread_mutex_lock(&lock);
	memcpy(own[call->session->index].name, a.name, sizeof(own[0].name));
	own[call->session->index].known = true;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult share_handle(struct call *call, uint64_t object, uint64_t size, uint32_t device, struct share_token *token_out)
{
	struct msg_gleamShare m = { .kind = SHARE_HANDLE, .object = object, .size = size, .device = device };

	*token_out = (struct share_token){ .magic = SHARE_MAGIC, .kind = SHARE_HANDLE, .size = size };
	return share_ask(call, &m, token_out);
}

CUresult share_range(struct call *call, const struct range *range, enum share_kind kind, struct share_token *token_out)
{
	struct msg_gleamShare m = { .kind = SHARE_MEMORY, .object = memory_block(range->start) };

	if (!m.object)
		return CUDA_ERROR_INVALID_VALUE;
	*token_out = (struct share_token){ .magic = SHARE_MAGIC, .kind = kind, .offset = range->start - m.object,
					   .size = range->size };
	return share_ask(call, &m, token_out);
}

/* ---- descriptors ---- */

CUresult share_fd_make(const struct share_token *token, int *fd_out)
{
	int fd = memfd_create("gleam-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int above;

	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	/* Never one of the first three, whatever the program has closed. */
	above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	close(fd);
	if (above < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (pwrite(above, token, sizeof(*token), 0) != (ssize_t)sizeof(*token) || fcntl(above, F_ADD_SEALS, SHARE_SEALS) < 0) {
		close(above);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	*fd_out = above;
	return CUDA_SUCCESS;
}

bool share_fd_read(int fd, struct share_token *token_out)
{
	struct share_token token;

	/* Only what nobody can change any more; that it is ours its worker will find out. */
	if ((fcntl(fd, F_GET_SEALS) & SHARE_SEALS) != SHARE_SEALS || pread(fd, &token, sizeof(token), 0) != (ssize_t)sizeof(token) ||
	    token.magic != SHARE_MAGIC)
		return false;
	*token_out = token;
	return true;
}

/* ---- what it has of others ---- */

/* As the program counts; -1 for one that it doesn't see. */
static int device_of_worker(const struct session *s, uint32_t node_device)
{
	for (int i = 0; i < device_count(); i++)
		if (device_at(i)->session == s && device_at(i)->node_device == node_device)
			return i;
	return -1;
}

CUresult share_fetch(struct call *call, const struct share_token *token, uint64_t handle, uint64_t *size_out, int *device_out)
{
	struct msg_gleamShareOpen m = { .handle = handle };
	struct ans_gleamShareOpen a;
	CUresult result;

	memcpy(m.name, token->name, sizeof(m.name));
	memcpy(m.key, token->key, sizeof(m.key));
	result = call_open(call, OP_gleamShareOpen, msg_gleamShareOpen_size(&m));
	if (result)
		return result;
	msg_gleamShareOpen_put(&call->w, &m);
	result = call_wait(call);
	if (result == CUDA_ERROR_INVALID_HANDLE)
		gleam_log("shared memory is not there: its program has ended or freed it, or is of another server or tenant");
	if (result)
		return result;
	if (!ans_gleamShareOpen_get(&call->r, &a))
		return CUDA_ERROR_UNKNOWN;
	*size_out = a.size;
	*device_out = device_of_worker(call->session, a.device);
	return CUDA_SUCCESS;
}

/* Map and open to the context's device; failures of these are the context's, told later. */
static CUresult opened_map(struct call *call, const struct opened *opened)
{
	struct msg_gleamVmmMap map = { .address = opened->address, .size = opened->size, .handle = opened->handle };
	struct msg_gleamVmmAccess access = { .address = opened->address, .size = opened->size,
					     .device = call->context->node_device,
					     .access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUresult result = CALL_SEND(call, gleamVmmMap, &map);

	if (result)
		return result;
	return CALL_SEND(call, gleamVmmAccess, &access);
}

static void opened_release(struct call *call, struct opened *opened)
{
	struct msg_gleamVmmUnmap unmap = { .address = opened->address, .size = opened->size };
	struct msg_gleamVmmRelease release = { .handle = opened->handle };

	if (opened->address)
		CALL_SEND(call, gleamVmmUnmap, &unmap);
	CALL_SEND(call, gleamVmmRelease, &release);
	if (opened->address)
		memory_space_give(opened->address, opened->size);
	handle_end(opened->handle);
	free(opened);
}

static struct opened *opened_find_locked(const uint8_t key[SHARE_ID], int device)
{
	for (struct opened *at = opened_first; at; at = at->next)
		if (at->device == device && memcmp(at->key, key, SHARE_ID) == 0)
			return at;
	return NULL;
}

static CUresult opened_new_locked(struct call *call, const struct share_token *token, struct opened **opened_out)
{
	struct opened *opened = calloc(1, sizeof(*opened));
	int device;
	CUresult result;

	if (!opened)
		return CUDA_ERROR_OUT_OF_MEMORY;
	opened->device = call->context->device;
	memcpy(opened->key, token->key, sizeof(opened->key));
	opened->handle = handle_new(OBJECT_VMM, NULL, NULL);
	if (!opened->handle) {
		free(opened);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	result = share_fetch(call, token, opened->handle, &opened->size, &device);
	if (result) {
		handle_end(opened->handle);
		free(opened);
		return result;
	}
	opened->address = memory_space_take(call->context->unit, opened->size, PIECE_SMALL, 0);
	result = opened->address ? opened_map(call, opened) : CUDA_ERROR_OUT_OF_MEMORY;
	if (result) {
		opened_release(call, opened);
		return result;
	}
	opened->next = opened_first;
	opened_first = opened;
	*opened_out = opened;
	return CUDA_SUCCESS;
}

/* One pointer less in it; released with the last. */
static void opened_put_locked(struct call *call, struct opened *opened)
{
	if (--opened->pointers)
		return;
	for (struct opened **link = &opened_first; *link; link = &(*link)->next)
		if (*link == opened) {
			*link = opened->next;
			break;
		}
	opened_release(call, opened);
}

static CUresult pointer_open_locked(struct call *call, struct opened *opened, const struct share_token *token,
				    uint64_t *address_out)
{
	struct range range = { .start = opened->address + token->offset, .size = token->size, .kind = RANGE_DEVICE,
			       .device = opened->device, .context = call->context, .flags = RANGE_SHARED };
	struct pointer *pointer;

	range.dev = range.start;
	if (!token->size || token->offset > opened->size || token->size > opened->size - token->offset)
		return CUDA_ERROR_INVALID_VALUE;
	for (pointer = pointers; pointer; pointer = pointer->next)
		if (pointer->address == range.start) {
			pointer->count++;
			*address_out = range.start;
			return CUDA_SUCCESS;
		}
	pointer = calloc(1, sizeof(*pointer));
	if (!pointer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (range_add(&range)) {
		free(pointer);
		return CUDA_ERROR_INVALID_VALUE; /* a token that was made up: it overlaps another */
	}
	*pointer = (struct pointer){ .next = pointers, .in = opened, .address = range.start, .count = 1,
				     .context = call->context };
	pointers = pointer;
	opened->pointers++;
	*address_out = range.start;
	return CUDA_SUCCESS;
}

CUresult share_open(struct call *call, const struct share_token *token, uint64_t *address_out)
{
	struct opened *opened;
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	/* As natively: what a program shares it has already. */
	for (uint32_t i = 0; i < SESSIONS_MAX; i++)
		if (own[i].known && memcmp(own[i].name, token->name, sizeof(own[i].name)) == 0) {
			pthread_mutex_unlock(&lock);
			return CUDA_ERROR_INVALID_CONTEXT;
		}
	opened = opened_find_locked(token->key, call->context->device);
	if (!opened)
		result = opened_new_locked(call, token, &opened);
	if (!result) {
		result = pointer_open_locked(call, opened, token, address_out);
		if (result && !opened->pointers) {
			opened->pointers = 1;
			opened_put_locked(call, opened);
		}
	}
	pthread_mutex_unlock(&lock);
	return result;
}

static struct pointer **pointer_find_locked(uint64_t address)
{
	struct pointer **link = &pointers;

	while (*link && (*link)->address != address)
		link = &(*link)->next;
	return link;
}

bool share_has(uint64_t address)
{
	bool has;

	pthread_mutex_lock(&lock);
	has = *pointer_find_locked(address) != NULL;
	pthread_mutex_unlock(&lock);
	return has;
}

static void pointer_end_locked(struct call *call, struct pointer **link)
{
	struct pointer *pointer = *link;

	*link = pointer->next;
	range_remove(pointer->address, false, NULL);
	opened_put_locked(call, pointer->in);
	free(pointer);
}

CUresult share_close(struct call *call, uint64_t address)
{
	struct pointer **link;
	CUresult result = CUDA_SUCCESS;

	if (!share_has(address))
		return CUDA_ERROR_INVALID_VALUE;
	/* Where it was opened. */
	pthread_mutex_lock(&lock);
	link = pointer_find_locked(address);
	if (*link && (*link)->context->session != call->session)
		call_in(call, (*link)->context);
	pthread_mutex_unlock(&lock);
	/* Work that uses it comes first, as natively. */
	if (call->context)
		result = context_wait(call);
	if (result)
		return result;
	pthread_mutex_lock(&lock);
	link = pointer_find_locked(address);
	if (!*link)
		result = CUDA_ERROR_INVALID_VALUE;
	else if (--(*link)->count == 0)
		pointer_end_locked(call, link);
	pthread_mutex_unlock(&lock);
	return result;
}

void share_context_closed(struct context *context)
{
	struct call call;

	call_start(&call, context->session, context);
	pthread_mutex_lock(&lock);
	for (struct pointer **link = &pointers; *link;) {
		if ((*link)->context == context)
			pointer_end_locked(&call, link);
		else
			link = &(*link)->next;
	}
	pthread_mutex_unlock(&lock);
	call_leave(&call, CUDA_SUCCESS);
}

/* ---- the API ---- */

CUresult do_cuIpcGetMemHandle(struct call *call, CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct share_token token;
	struct range range;
	CUresult result;

	if (!pHandle || !range_find(dptr, &range) || range.kind != RANGE_DEVICE || !(range.flags & RANGE_IPC) || range.pool)
		return CUDA_ERROR_INVALID_VALUE;
	call_in(call, range.context);
	result = share_range(call, &range, SHARE_MEMORY, &token);
	if (!result)
		memcpy(pHandle, &token, sizeof(*pHandle));
	return result;
}

static CUresult ipc_open(struct call *call, CUdeviceptr *pdptr, const CUipcMemHandle *handle, unsigned int flags)
{
	struct share_token token;
	uint64_t address;
	CUresult result;

	memcpy(&token, handle, sizeof(token));
	if (!pdptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || token.magic != SHARE_MAGIC || token.kind != SHARE_MEMORY)
		return CUDA_ERROR_INVALID_VALUE;
	result = share_open(call, &token, &address);
	if (!result)
		*pdptr = address;
	return result;
}

CUresult do_cuIpcOpenMemHandle_v2(struct call *call, CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	return ipc_open(call, pdptr, &handle, Flags);
}

CUresult do_cuIpcOpenMemHandle(struct call *call, CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	return ipc_open(call, pdptr, &handle, Flags);
}

CUresult do_cuIpcCloseMemHandle(struct call *call, CUdeviceptr dptr)
{
	return share_close(call, dptr);
}
