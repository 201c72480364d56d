/* SPDX-License-Identifier: Apache-2.0 */
/* What a session is made of. Executor thread; see keep.h. */
#include "broker/worker/keep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/worker/graph.h"
#include "broker/worker/green.h"
#include "broker/worker/keep_private.h"
#include "broker/worker/link.h"
#include "broker/worker/move_array.h"
#include "broker/worker/note.h"
#include "broker/worker/touch.h"
#include "gen/worker_bodies.h"

#define KEEP_BYTES_MAX (256ull << 20) /* of frames; images are as large as the program's modules are */
#define KEEP_FRAME_MAX (FRAME_SIZE_MAX - (uint32_t)sizeof(struct frame_hdr)) /* it travels in a frame */
#define KEEP_SWEEP     4096u /* entries between looks for dead ones, and twice as many as lived at the last */

/*
 * What a command means for the record. UNKNOWN: a session that used it doesn't move. NONE: work, questions, deaths, and what is known
 * from other books (memory). BIRTH: of the handle in its first field; the second names what it is of, if that is a handle.
 * LEVEL: a birth of the handle in its third field, of the object in its first. SET: of the object in its first field, or else of its
 * context. PEER: between two contexts. GRAPH: a part of the graph in its first field. CHANGE: of the graph
 * in its second field, by one that was described before. LINK: a step of the link in its first field. RESOURCE: parts of a GPU got numbers,
 * which live for ever.
 */
enum keep_class {
	KEEP_UNKNOWN = 0, KEEP_NONE, KEEP_BIRTH, KEEP_LEVEL, KEEP_SET, KEEP_PEER, KEEP_GRAPH, KEEP_CHANGE, KEEP_SWITCH, KEEP_CONTEXT,
	KEEP_CLOSE, KEEP_LINK, KEEP_RESOURCE,
};

static const uint8_t keep_class[OP_MAX] = {
	[OP_gleamAttach] = KEEP_NONE, [OP_gleamFlush] = KEEP_NONE, [OP_gleamStreamSync] = KEEP_NONE,
	[OP_gleamAsk] = KEEP_NONE, [OP_gleamHostDone] = KEEP_NONE, [OP_gleamHostFunc] = KEEP_NONE, [OP_gleamContextSync] = KEEP_NONE,
	[OP_cuCtxSetLimit] = KEEP_SET, [OP_cuCtxGetLimit] = KEEP_NONE, [OP_cuCtxSetCacheConfig] = KEEP_SET,
	[OP_cuCtxResetPersistingL2Cache] = KEEP_NONE, [OP_gleamContextOpen] = KEEP_CONTEXT, [OP_gleamContextClose] = KEEP_CLOSE,
	[OP_cuStreamCreateWithPriority] = KEEP_BIRTH, [OP_cuStreamDestroy_v2] = KEEP_NONE, [OP_cuStreamWaitEvent] = KEEP_NONE,
	[OP_gleamStreamAttribute] = KEEP_SET,
	[OP_cuEventCreate] = KEEP_BIRTH, [OP_cuEventRecord] = KEEP_NONE, [OP_cuEventRecordWithFlags] = KEEP_NONE,
	[OP_cuEventDestroy_v2] = KEEP_NONE, [OP_cuEventElapsedTime_v2] = KEEP_NONE,
	[OP_cuFuncSetAttribute] = KEEP_SET, [OP_cuFuncGetAttribute] = KEEP_NONE, [OP_cuKernelSetAttribute] = KEEP_SET,
	[OP_cuKernelGetAttribute] = KEEP_NONE, [OP_cuModuleGetGlobal_v2] = KEEP_NONE, [OP_cuLibraryGetGlobal] = KEEP_NONE,
	[OP_cuModuleUnload] = KEEP_NONE, [OP_cuLibraryUnload] = KEEP_NONE,
	[OP_cuFuncSetCacheConfig] = KEEP_SET, [OP_cuKernelSetCacheConfig] = KEEP_SET, [OP_cuFuncSetSharedMemConfig] = KEEP_SET,
	[OP_cuModuleGetFunction] = KEEP_BIRTH, [OP_cuLibraryGetKernel] = KEEP_BIRTH, [OP_cuLibraryGetModule] = KEEP_BIRTH,
	[OP_cuKernelGetFunction] = KEEP_BIRTH,
	[OP_gleamLoadBegin] = KEEP_NONE, [OP_gleamLoadPart] = KEEP_NONE, [OP_gleamLoadImage] = KEEP_NONE,
	[OP_gleamVerdict] = KEEP_NONE, [OP_gleamLoadAgain] = KEEP_NONE, [OP_gleamFunctionInfo] = KEEP_NONE,
	[OP_gleamGrant] = KEEP_NONE, [OP_gleamGrantReturn] = KEEP_NONE, [OP_gleamMap] = KEEP_NONE, [OP_gleamFree] = KEEP_NONE,
	[OP_gleamMemInfo] = KEEP_NONE, [OP_gleamHostRange] = KEEP_NONE, [OP_gleamHostWrite] = KEEP_NONE,
	[OP_gleamPages] = KEEP_NONE, [OP_gleamPagesUp] = KEEP_NONE, [OP_gleamPagesDown] = KEEP_NONE,
	[OP_gleamCopyUp] = KEEP_NONE, [OP_gleamCopyUpBulk] = KEEP_NONE, [OP_gleamCopyDown] = KEEP_NONE,
	[OP_gleamCopyDownBulk] = KEEP_NONE, [OP_gleamCopyDownLate] = KEEP_NONE, [OP_gleamCopyDev] = KEEP_NONE,
	[OP_gleamCopyUp2D] = KEEP_NONE, [OP_gleamCopyDown2D] = KEEP_NONE, [OP_gleamCopyDev2D] = KEEP_NONE,
	[OP_cuMemsetD8Async] = KEEP_NONE, [OP_cuMemsetD16Async] = KEEP_NONE, [OP_cuMemsetD32Async] = KEEP_NONE,
	[OP_cuMemsetD2D8Async] = KEEP_NONE, [OP_cuMemsetD2D16Async] = KEEP_NONE, [OP_cuMemsetD2D32Async] = KEEP_NONE,
	[OP_gleamLaunch] = KEEP_NONE,
	[OP_cuOccupancyMaxActiveBlocksPerMultiprocessor] = KEEP_NONE,
	[OP_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags] = KEEP_NONE,
	[OP_cuOccupancyAvailableDynamicSMemPerBlock] = KEEP_NONE, [OP_cuOccupancyMaxPotentialClusterSize] = KEEP_NONE,
	[OP_cuOccupancyMaxActiveClusters] = KEEP_NONE,
	[OP_cuStreamWriteValue32_v2] = KEEP_NONE, [OP_cuStreamWriteValue64_v2] = KEEP_NONE,
	[OP_cuStreamWaitValue32_v2] = KEEP_NONE, [OP_cuStreamWaitValue64_v2] = KEEP_NONE, [OP_cuStreamBatchMemOp_v2] = KEEP_NONE,
	[OP_gleamTensorMap] = KEEP_NONE, [OP_gleamTensorMapMove] = KEEP_NONE,
	[OP_gleamGraphBegin] = KEEP_GRAPH, [OP_gleamGraphKernel] = KEEP_GRAPH, [OP_gleamGraphCopy] = KEEP_GRAPH,
	[OP_gleamGraphFill] = KEEP_GRAPH, [OP_gleamGraphEmpty] = KEEP_GRAPH, [OP_gleamGraphWords] = KEEP_GRAPH,
	[OP_gleamGraphBox] = KEEP_GRAPH, [OP_gleamGraphCondition] = KEEP_GRAPH, [OP_gleamGraphBranch] = KEEP_GRAPH, [OP_gleamGraphEdges] = KEEP_GRAPH, [OP_gleamGraphMake] = KEEP_GRAPH, [OP_gleamGraphUpdate] = KEEP_CHANGE,
	[OP_gleamGraphSet] = KEEP_CHANGE, [OP_gleamGraphSwitch] = KEEP_SWITCH, [OP_gleamGraphEnd] = KEEP_NONE,
	[OP_gleamGraphLaunch] = KEEP_NONE, [OP_gleamGraphUpload] = KEEP_NONE,
	[OP_gleamVmmCreate] = KEEP_NONE, [OP_gleamVmmRelease] = KEEP_NONE, [OP_gleamVmmMap] = KEEP_NONE,
	[OP_gleamVmmUnmap] = KEEP_NONE, [OP_gleamVmmAccess] = KEEP_NONE, [OP_gleamPeer] = KEEP_PEER,
	[OP_gleamArrayCreate] = KEEP_BIRTH, [OP_gleamArrayEnd] = KEEP_NONE,
	[OP_gleamMipmapCreate] = KEEP_BIRTH, [OP_gleamMipmapLevel] = KEEP_LEVEL, [OP_gleamMipmapEnd] = KEEP_NONE,
	[OP_gleamArrayUp] = KEEP_NONE, [OP_gleamArrayDown] = KEEP_NONE, [OP_gleamArrayCopy] = KEEP_NONE,
	[OP_gleamTexCreate] = KEEP_BIRTH, [OP_gleamTexEnd] = KEEP_NONE, [OP_gleamSurfCreate] = KEEP_BIRTH,
	[OP_gleamSurfEnd] = KEEP_NONE,
	[OP_gleamResource] = KEEP_RESOURCE, [OP_gleamResourceSplit] = KEEP_RESOURCE, [OP_gleamGreenOpen] = KEEP_CONTEXT,
	/* Refused while there is such memory: share_trouble(), vmms_trouble(). */
	[OP_gleamShare] = KEEP_NONE, [OP_gleamShareOpen] = KEEP_NONE,
	[OP_gleamLinkCreate] = KEEP_BIRTH, [OP_gleamLinkPart] = KEEP_LINK, [OP_gleamLinkAdd] = KEEP_NONE,
	[OP_gleamLinkComplete] = KEEP_NONE, [OP_gleamLinkRead] = KEEP_NONE, [OP_gleamLinkAgain] = KEEP_LINK,
	[OP_gleamLinkEnd] = KEEP_NONE,
	[OP_gleamMoveOut] = KEEP_NONE, [OP_gleamMoveFill] = KEEP_NONE, [OP_gleamMoveBegin] = KEEP_NONE,
	[OP_gleamMovePieces] = KEEP_NONE, [OP_gleamMoveMap] = KEEP_NONE, [OP_gleamMoveUnmap] = KEEP_NONE,
	[OP_gleamMoveDrop] = KEEP_NONE, [OP_gleamMoveBytes] = KEEP_NONE, [OP_gleamMoveImage] = KEEP_NONE,
	[OP_gleamMoveGlobal] = KEEP_NONE, [OP_gleamMoveEnd] = KEEP_NONE, [OP_gleamMoveNumber] = KEEP_NONE,
	[OP_gleamMoveArray] = KEEP_NONE, [OP_gleamMoveVmm] = KEEP_NONE, [OP_gleamMoveLatch] = KEEP_NONE,
	[OP_gleamMoveBulk] = KEEP_NONE, [OP_gleamMoveLink] = KEEP_NONE, [OP_gleamMoveResource] = KEEP_NONE,
	[OP_gleamMoveArrayBulk] = KEEP_NONE, [OP_gleamMoveImageBulk] = KEEP_NONE, [OP_gleamMoveTouch] = KEEP_NONE,
	[OP_gleamMoveVariable] = KEEP_NONE,
};

#define CONTEXT_KEY(index) ((uint64_t)(index) + 1)
#define FOREVER		   UINT64_MAX

struct keep *keeps(struct worker *w)
{
	if (!w->keep) {
		w->keep = calloc(1, sizeof(*w->keep));
		if (w->keep) {
			w->keep->last = &w->keep->first;
			w->keep->sweep_at = KEEP_SWEEP;
		}
	}
	return w->keep;
}

static uint64_t frame_word(const uint8_t *frame, uint32_t size, uint32_t at)
{
	uint64_t value = 0;

	if (size >= sizeof(struct frame_hdr) + at + sizeof(value))
		memcpy(&value, frame + sizeof(struct frame_hdr) + at, sizeof(value));
	return value;
}

static void entry_free(struct entry *e)
{
	variables_free(e);
	move_array_free(e->array);
	free(e->image);
	free(e);
}

void entry_drop(struct keep *k, struct entry **link)
{
	struct entry *e = *link;

	*link = e->next;
	if (!*link)
		k->last = link;
	if (e->variable_count)
		placing_free(k);
	k->count--;
	k->bytes -= e->size;
	entry_free(e);
}

static bool key_lives(const struct worker *w, uint64_t key)
{
	if (key <= SESSION_CONTEXTS)
		return key && w->contexts[key - 1].open;
	if (key == FOREVER)
		return true;
	return object_find(((struct worker *)(uintptr_t)w)->tables, handle_type(key), key) != NULL;
}

/* An array of a texture; memory is another question. */
static bool texture_lives(const struct worker *w, const struct entry *e)
{
	struct reader r = entry_read(e);
	struct msg_gleamTexCreate m;

	if (!msg_gleamTexCreate_get(&r, &m))
		return false;
	return (m.type != CU_RESOURCE_TYPE_ARRAY && m.type != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) || key_lives(w, m.resource);
}

static bool peers_live(const struct worker *w, const struct entry *e)
{
	struct reader r = entry_read(e);
	struct msg_gleamPeer m;

	return msg_gleamPeer_get(&r, &m) && m.owner_index < SESSION_CONTEXTS && w->contexts[m.owner_index].open;
}

/* What a birth is of, by its second field: a module, a library, a kernel, an array. */
static bool parent_lives(const struct worker *w, const struct entry *e)
{
	uint64_t parent;

	switch (entry_hdr(e)->op) {
	case OP_cuModuleGetFunction:
	case OP_cuLibraryGetKernel:
	case OP_cuLibraryGetModule:
	case OP_cuKernelGetFunction:
	case OP_gleamSurfCreate:
		parent = frame_word(e->frame, e->size, 8);
		return key_lives(w, parent);
	case OP_gleamMipmapLevel:
		return key_lives(w, frame_word(e->frame, e->size, 0));
	case OP_gleamTexCreate:
		return texture_lives(w, e);
	case OP_gleamPeer:
		return peers_live(w, e);
	default:
		return true;
	}
}

bool entry_lives(const struct worker *w, const struct entry *e)
{
	return key_lives(w, e->key) && parent_lives(w, e);
}

void keep_sweep(struct worker *w)
{
	struct keep *k = w->keep;

	/* What was said is kept until its death has been said, too. */
	for (struct entry **link = &k->first; *link;) {
		if (!(*link)->said && !entry_lives(w, *link))
			entry_drop(k, link);
		else
			link = &(*link)->next;
	}
	k->sweep_at = 2 * k->count + KEEP_SWEEP;
}

void keep_trouble_note(struct worker *w, const char *why)
{
	if (!w->keep->trouble)
		w->keep->trouble = why;
}

/* What links may take of it: they are over soon, and what comes after them shall have room. */
static bool links_have_room(const struct keep *k, uint32_t size)
{
	return size <= KEEP_FRAME_MAX && k->bytes + size <= KEEP_BYTES_MAX / 2;
}

static struct entry *entry_add(struct worker *w, uint64_t key, const void *frame, uint32_t size)
{
	struct keep *k = w->keep;
	struct entry *e;

	if (k->count >= k->sweep_at)
		keep_sweep(w);
	if (size > KEEP_FRAME_MAX || k->bytes + size > KEEP_BYTES_MAX) {
		keep_trouble_note(w, size > KEEP_FRAME_MAX ? "one of its commands is too long to be played again; it stays until it is started again" :
						   "it has made and changed more objects than can be remembered; it stays until it is started again");
		return NULL;
	}
	e = calloc(1, sizeof(*e) + size);
	if (!e) {
		keep_trouble_note(w, "its server had too little memory to remember what would have to be moved; it stays until it is started again");
		return NULL;
	}
	e->key = key;
	e->size = size;
	memcpy(e->frame, frame, size);
	*k->last = e;
	k->last = &e->next;
	k->count++;
	k->bytes += size;
	return e;
}

/* A setting that was made before, of the same thing: the values are its last bytes. */
static void setting_add(struct worker *w, uint64_t key, const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct keep *k = w->keep;

	for (struct entry **link = &k->first; *link; link = &(*link)->next) {
		struct entry *e = *link;

		/* The same setting twice, as programs do that set one before each launch. */
		if (e->key == key && e->size == hdr->size && entry_hdr(e)->op == hdr->op && entry_hdr(e)->ctx == hdr->ctx &&
		    memcmp(e->frame + sizeof(*hdr), frame + sizeof(*hdr), hdr->size - sizeof(*hdr)) == 0) {
			if (!e->next)
				return;
			/* Its last time counts. */
			entry_drop(k, link);
			break;
		}
	}
	entry_add(w, key, frame, hdr->size);
}

static void graph_change(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct keep *k = w->keep;
	uint64_t part = frame_word(frame, hdr->size, 8), graph = graph_root(w, part);
	uint64_t from = hdr->op == OP_gleamGraphUpdate ? frame_word(frame, hdr->size, 16) : 0;
	uint32_t tag = UINT32_MAX;
	struct entry *e;

	if (hdr->op != OP_gleamGraphUpdate) {
		memcpy(&tag, frame + sizeof(*hdr) + 16, sizeof(tag));
		tag = (tag + 1) * 2 + (hdr->op == OP_gleamGraphSwitch);
	}
	/* graph u64 at 8, place u32 at 16, from u64 at 24. */
	if (hdr->op == OP_gleamGraphSet)
		from = frame_word(frame, hdr->size, 24);
	/* The whole, or the same part, was changed before: that counts no more. */
	for (struct entry **link = &k->first; *link;) {
		e = *link;
		if (e->key == graph && e->tag &&
		    ((e->tag == tag && e->part == part) || (tag == UINT32_MAX && e->tag % 2 == 0))) {
			entry_drop(k, link);
			continue;
		}
		if (from && e->key == from) {
			e->key = graph;
			e->tag = tag;
			e->part = part;
		}
		link = &e->next;
	}
	e = entry_add(w, graph, frame, hdr->size);
	if (e) {
		e->tag = tag;
		e->part = part;
	}
}

/* That between the same two contexts before counts no more; but that it has ended is said where it was said that it has begun. */
static void peer_change(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct keep *k = w->keep;
	struct msg_gleamPeer m, before;
	struct reader r = reader_on(frame + sizeof(*hdr), hdr->size - sizeof(*hdr));
	bool said = false;

	/* Memory that is opened without a context is in other books (grant.c). */
	if (!msg_gleamPeer_get(&r, &m) || m.index >= SESSION_CONTEXTS)
		return;
	for (struct entry **link = &k->first; *link;) {
		r = entry_read(*link);
		if (entry_hdr(*link)->op == OP_gleamPeer && msg_gleamPeer_get(&r, &before) && before.index == m.index &&
		    before.owner_index == m.owner_index) {
			said |= (*link)->said;
			entry_drop(k, link);
		} else {
			link = &(*link)->next;
		}
	}
	if (m.on || said)
		entry_add(w, CONTEXT_KEY(m.index), frame, hdr->size);
}

/* Numbers for the resources that the command has made. */
static void resources_add(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame)
{
	uint8_t of_device[sizeof(*hdr) + 64] __attribute__((aligned(8)));
	uint32_t first = w->keep->resources, count = resources_count(w) - first;
	struct reader r = reader_on(frame + sizeof(*hdr), hdr->size - sizeof(*hdr));
	struct frame_hdr h = *hdr;
	struct msg_gleamResource m;
	struct entry *e;

	w->keep->resources += count;
	if (!count)
		return;
	/* Of commands before that there was no memory to keep. */
	if (count > RESOURCE_GROUPS + 1) {
		keep_trouble_note(w, "its server had too little memory to remember what would have to be moved; it stays until it is started again");
		return;
	}
	/* What a context has that isn't green is its device's, whatever becomes of it. */
	if (hdr->op == OP_gleamResource && msg_gleamResource_get(&r, &m) && m.index < SESSION_CONTEXTS && !w->contexts[m.index].green) {
		struct writer out = writer_on(of_device + sizeof(h), sizeof(of_device) - sizeof(h));

		m.device = w->contexts[m.index].device;
		m.index = CTX_NONE;
		msg_gleamResource_put(&out, &m);
		h.size = (uint32_t)(sizeof(h) + out.at);
		memcpy(of_device, &h, sizeof(h));
		frame = of_device;
	}
	e = entry_add(w, FOREVER, frame, h.size);
	if (e) {
		e->first = first;
		e->resources = count;
	}
}

/*
 * A green context that was asked for what it has keeps its place among the rest: another worker makes it, asks it, and ends it again, so that what
 * was made of the answer can be made there.
 */
static void green_stays(struct worker *w, uint32_t index, const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct entry *open = NULL;
	bool asked = false;

	for (struct entry *e = w->keep->first; e; e = e->next) {
		struct reader r = entry_read(e);
		struct msg_gleamResource m;

		if (entry_hdr(e)->op == OP_gleamGreenOpen && e->key == CONTEXT_KEY(index))
			open = e;
		/* Before it another one may have had the index. */
		else if (open && entry_hdr(e)->op == OP_gleamResource && msg_gleamResource_get(&r, &m))
			asked |= m.index == index;
	}
	if (!asked)
		return;
	open->key = FOREVER;
	entry_add(w, FOREVER, frame, hdr->size);
}

static void context_closed(struct worker *w, uint32_t index, const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct keep *k = w->keep;

	green_stays(w, index, hdr, frame);
	placing_free(k);
	touch_closed(w, (uint16_t)index);
	for (struct entry **link = &k->first; *link;) {
		struct entry *e = *link;

		if (e->key == CONTEXT_KEY(index) && e->said &&
		    (entry_hdr(e)->op == OP_gleamContextOpen || entry_hdr(e)->op == OP_gleamGreenOpen))
			k->closed |= 1ull << index;
		variables_closed(e, (uint16_t)index);
		/* Its objects are gone with it, and the other worker's will be. */
		if (e->key == CONTEXT_KEY(index) ||
		    (entry_hdr(e)->ctx == index && (!key_lives(w, e->key) || entry_hdr(e)->op == OP_gleamMoveTouch)))
			entry_drop(k, link);
		else
			link = &e->next;
	}
}

/* @what of @key, in a frame that another worker plays as it stands. */
static struct entry *touch_add(struct worker *w, uint16_t ctx, uint64_t key, uint32_t what, uint64_t address, const char *name)
{
	uint8_t frame[sizeof(struct frame_hdr) + VARIABLE_NAME + 64] __attribute__((aligned(8)));
	struct frame_hdr hdr = { .op = OP_gleamMoveTouch, .kind = FRAME_COMMAND, .ctx = ctx };
	struct writer out = writer_on(frame + sizeof(hdr), sizeof(frame) - sizeof(hdr));
	struct msg_gleamMoveTouch m = { .object = key, .what = what, .address = address, .name = name };

	if (!keeps(w) || strlen(name) >= VARIABLE_NAME)
		return NULL;
	msg_gleamMoveTouch_put(&out, &m);
	hdr.size = (uint32_t)(sizeof(hdr) + out.at);
	memcpy(frame, &hdr, sizeof(hdr));
	return out.fault ? NULL : entry_add(w, key, frame, hdr.size);
}

void keep_touch(struct worker *w, uint16_t ctx, uint64_t key, uint32_t what, const char *name)
{
	touch_add(w, ctx, key, what, 0, name);
}

void keep_told(struct worker *w, uint16_t ctx, uint64_t object, const char *name, uint64_t address, uint64_t size)
{
	struct entry *e;

	if (!address || !size || !keeps(w))
		return;
	/* Programs ask again and again. */
	for (e = w->keep->first; e; e = e->next)
		if (e->told == address && e->key == object)
			return;
	e = touch_add(w, ctx, object, TOUCH_VARIABLE, address, name);
	if (e) {
		e->told = address;
		e->told_size = size;
	}
}

void keep_frame(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame)
{
	enum keep_class class = keep_class[hdr->op];
	uint64_t key;
	uint32_t index;

	touch_frame(w, hdr, frame);
	if (class == KEEP_NONE || !keeps(w))
		return;
	key = frame_word(frame, hdr->size, 0);
	switch (class) {
	case KEEP_BIRTH:
		entry_add(w, key, frame, hdr->size);
		break;
	case KEEP_GRAPH:
		/* Bodies live and end with the graph that they are in. */
		entry_add(w, graph_root(w, key), frame, hdr->size);
		break;
	case KEEP_LEVEL:
		entry_add(w, frame_word(frame, hdr->size, 16), frame, hdr->size);
		break;
	case KEEP_LINK:
		if (!key_lives(w, key))
			break; /* a part for a link that has ended */
		if (links_have_room(w->keep, hdr->size))
			entry_add(w, key, frame, hdr->size);
		else
			link_unkept(w, key);
		break;
	case KEEP_PEER:
		peer_change(w, hdr, frame);
		break;
	case KEEP_CONTEXT:
		memcpy(&index, frame + sizeof(*hdr), sizeof(index));
		entry_add(w, CONTEXT_KEY(index), frame, hdr->size);
		break;
	case KEEP_CLOSE:
		memcpy(&index, frame + sizeof(*hdr), sizeof(index));
		context_closed(w, index, hdr, frame);
		break;
	case KEEP_RESOURCE:
		resources_add(w, hdr, frame);
		break;
	case KEEP_SET:
		if (handle_type(key) == OBJECT_NONE)
			key = hdr->ctx < SESSION_CONTEXTS ? CONTEXT_KEY(hdr->ctx) : 0;
		setting_add(w, key, hdr, frame);
		break;
	case KEEP_CHANGE:
	case KEEP_SWITCH:
		graph_change(w, hdr, frame);
		break;
	default:
		note(w, "%s: a session that used it doesn't move", op_info[hdr->op].name);
		snprintf(w->keep->used, sizeof(w->keep->used), "it has used what can't be moved yet (%s); it stays until it is started again",
			 op_info[hdr->op].name);
		keep_trouble_note(w, w->keep->used);
		break;
	}
}

void keep_link_gone(struct worker *w, uint64_t link)
{
	if (!w->keep)
		return;
	/* Its inputs may be large. That it was begun is forgotten when its end has been said. */
	for (struct entry **at = &w->keep->first; *at;) {
		if ((*at)->key == link && !((*at)->said && entry_hdr(*at)->op == OP_gleamLinkCreate))
			entry_drop(w->keep, at);
		else
			at = &(*at)->next;
	}
}

void keep_image(struct worker *w, uint64_t object, const struct frame_hdr *hdr, uint8_t *bytes, uint64_t size,
		const uint8_t *options, uint32_t options_size)
{
	uint8_t frame[sizeof(*hdr) + 8192 + 64] __attribute__((aligned(8)));
	struct msg_gleamLoadAgain m = { .object = object, .total_size = size, .options = options, .options_size = options_size };
	struct writer out = writer_on(frame + sizeof(*hdr), sizeof(frame) - sizeof(*hdr));
	struct frame_hdr h = { .op = OP_gleamLoadAgain, .kind = FRAME_COMMAND, .ctx = hdr->ctx, .thread = hdr->thread };
	struct entry *e = NULL;

	msg_gleamLoadAgain_put(&out, &m);
	h.size = (uint32_t)(sizeof(h) + out.at);
	memcpy(frame, &h, sizeof(h));
	if (!out.fault && keeps(w))
		e = entry_add(w, object, frame, h.size);
	if (!e) {
		free(bytes);
		return;
	}
	e->image = bytes;
	e->image_size = size;
}

void keep_image_gone(struct worker *w, uint64_t object)
{
	if (!w->keep)
		return;
	for (struct entry *e = w->keep->first; e; e = e->next)
		if (e->key == object && e->image) {
			free(e->image);
			e->image = NULL;
		}
}

void keep_stop(struct worker *w)
{
	if (!w->keep)
		return;
	while (w->keep->first)
		entry_drop(w->keep, &w->keep->first);
	placing_free(w->keep);
	free(w->keep);
	w->keep = NULL;
}
