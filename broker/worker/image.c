/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images arriving and being loaded. Executor thread; see image.h.
 *
 * A part is copied out of the arena when it has landed, which may be after its command. A load for which parts are missing
 * is remembered. Its caller waits for the answer, so the executor goes on; only after gleamLoadAgain, which nobody
 * waits for, the next commands may need the object: then the ring is left alone until the bytes are there.
 */
#include "broker/worker/image.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "broker/lib/fatbin.h"
#include "broker/worker/copy.h"
#include "broker/worker/fault.h"
#include "broker/worker/jit.h"
#include "broker/worker/keep.h"
#include "broker/worker/move_in.h"
#include "broker/worker/note.h"
#include "broker/worker/post.h"
#include "broker/worker/print.h"
#include "broker/worker/stream.h"
#include "broker/worker/sync.h"
#include "broker/worker/verdict_make.h"
#include "gen/worker_bodies.h"

#define IMAGES_MAX 64u			/* on their way at a time: one a thread that loads */
#define IMAGES_BYTES_MAX FATBIN_IMAGE_MAX /* of all of them together */

#define IMAGE_LARGE (1u << 20)
#define HUGE_PAGE   (2u << 20)

struct part {
	struct part *next;
	struct frame_hdr hdr;
	struct bulk_ref bulk;
	uint64_t offset;
};

/* An image on its way. */
struct image {
	struct image *next;
	uint64_t object;
	uint64_t size;
	uint64_t arrived; /* bytes */
	uint8_t *bytes;	  /* size and a zero behind it */
	struct part *parts; /* not yet landed */

	/* the load that waits for them */
	bool wanted;
	bool again;
	struct frame_hdr hdr;
	struct bulk_ref answer;
	uint32_t options_size;
	uint8_t options[8192];
};

struct images {
	struct image *first;
	uint32_t count;
	uint64_t bytes;
};

/* Behind a module or library. */
struct loaded {
	size_t size;
	uint8_t verdict[];
};

void image_own_free(void *own)
{
	free(own);
}

static struct image **image_at(struct worker *w, uint64_t object)
{
	struct image **link = &w->images->first;

	while (*link && (*link)->object != object)
		link = &(*link)->next;
	return link;
}

/* Takes it out of the list and frees it. Parts that are still on their way are given back when they come. */
static void image_drop(struct worker *w, struct image **link)
{
	struct image *image = *link;

	*link = image->next;
	w->images->count--;
	w->images->bytes -= image->size;
	while (image->parts) {
		struct part *part = image->parts;
		struct cmd cmd = { .hdr = &part->hdr, .bulk = part->bulk };

		image->parts = part->next;
		copy_consumed(w, &cmd);
		free(part);
	}
	free(image->bytes);
	free(image);
}

/* ---- arriving ---- */

/* For free(). Of a large image every page would be a fault of its own: three quarters of the time in which it is copied. */
static uint8_t *bytes_new(uint64_t size)
{
	void *bytes;

	if (size < IMAGE_LARGE)
		return malloc(size);
	if (posix_memalign(&bytes, HUGE_PAGE, size))
		return NULL;
	madvise(bytes, size, MADV_HUGEPAGE);
	return bytes;
}

CUresult worker_do_gleamLoadBegin(struct worker *w, struct cmd *cmd, const struct msg_gleamLoadBegin *m)
{
	struct image *image;
	enum object_type type = handle_type(m->object);

	if (type != OBJECT_MODULE && type != OBJECT_LIBRARY)
		return CMD_BROKEN;
	if (!w->images)
		w->images = calloc(1, sizeof(*w->images));
	if (!w->images)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (*image_at(w, m->object))
		image_drop(w, image_at(w, m->object));
	if (!m->total_size || w->images->count >= IMAGES_MAX || m->total_size > IMAGES_BYTES_MAX - w->images->bytes) {
		complain("an image of %llu bytes is refused: %u are on their way, with %llu bytes",
			 (unsigned long long)m->total_size, w->images->count, (unsigned long long)w->images->bytes);
		return CUDA_SUCCESS; /* the load itself says OUT_OF_MEMORY */
	}
	image = calloc(1, sizeof(*image));
	if (image)
		image->bytes = bytes_new(m->total_size + 1);
	if (!image || !image->bytes) {
		free(image);
		return CUDA_SUCCESS;
	}
	image->object = m->object;
	image->size = m->total_size;
	image->bytes[m->total_size] = 0; /* text ends somewhere */
	image->next = w->images->first;
	w->images->first = image;
	w->images->count++;
	w->images->bytes += image->size;
	return CUDA_SUCCESS;
}

static void part_store(struct worker *w, struct image *image, const struct frame_hdr *hdr, const struct bulk_ref *bulk,
		       uint64_t offset)
{
	struct cmd cmd = { .hdr = hdr, .bulk = *bulk };

	memcpy(image->bytes + offset, shm_up(&w->shm) + bulk->offset, bulk->size);
	image->arrived += bulk->size;
	copy_consumed(w, &cmd);
}

CUresult worker_do_gleamLoadPart(struct worker *w, struct cmd *cmd, const struct msg_gleamLoadPart *m)
{
	struct image *image = w->images ? *image_at(w, m->object) : NULL;
	struct part *part;

	if (!image) {
		/* Refused at its beginning. */
		copy_consumed(w, cmd);
		return CUDA_SUCCESS;
	}
	if (m->offset > image->size || m->part.size > image->size - m->offset)
		return CMD_BROKEN;
	cmd->bulk_taken = true;
	if (copy_piece_landed(w, &m->part)) {
		part_store(w, image, cmd->hdr, &m->part, m->offset);
		return CUDA_SUCCESS;
	}
	part = malloc(sizeof(*part));
	if (!part) {
		image_drop(w, image_at(w, m->object));
		copy_consumed(w, cmd);
		return CUDA_SUCCESS;
	}
	*part = (struct part){ .next = image->parts, .hdr = *cmd->hdr, .bulk = m->part, .offset = m->offset };
	image->parts = part;
	return CUDA_SUCCESS;
}

CUresult worker_do_gleamMoveImage(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveImage *m)
{
	struct image *image = w->images ? *image_at(w, m->object) : NULL;

	if (!w->moving)
		return CMD_BROKEN;
	/* It had no room when it was begun. */
	if (!image) {
		move_in_failed(w, cmd->hdr->op, CUDA_ERROR_OUT_OF_MEMORY, "its machine has too little memory for the images of the program's modules");
		return CUDA_SUCCESS;
	}
	if (m->offset > image->size || m->data_size > image->size - m->offset)
		return CMD_BROKEN;
	memcpy(image->bytes + m->offset, m->data, m->data_size);
	image->arrived += m->data_size;
	return CUDA_SUCCESS;
}

bool images_busy(const struct worker *w)
{
	return w->images && w->images->first;
}

/* ---- loading ---- */

/* The driver is given a bare pointer: what it will walk must lie in the bytes that came. */
CUresult image_check(const uint8_t *bytes, uint64_t size)
{
	struct fatbin_image found;
	struct fatbin_iter iter;
	struct fatbin_entry entry;
	int got;

	if (fatbin_parse(bytes, size, &found)) {
		/* Text without its end: it has ours. */
		if (memchr(bytes, 0, size))
			return CUDA_ERROR_INVALID_IMAGE;
		return fatbin_parse(bytes, size + 1, &found) ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
	}
	if (found.data_form != FATBIN_FORM_CONTAINER)
		return CUDA_SUCCESS;
	fatbin_iter_init(&iter, found.data, found.size);
	do
		got = fatbin_iter_next(&iter, &entry);
	while (got == 1);
	return got ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}

static CUresult image_load(struct worker *w, struct image *image, struct jit *jit)
{
	enum object_type type = handle_type(image->object);
	void *driver = NULL;
	CUresult r;

	if (image->parts || image->arrived != image->size)
		return CUDA_ERROR_INVALID_IMAGE; /* a client that left bytes out */
	r = image_check(image->bytes, image->size);
	if (r != CUDA_SUCCESS)
		return r;
	if (!jit_read(jit, image->options, image->options_size))
		return CUDA_ERROR_INVALID_VALUE;
	print_look(image->bytes, image->size);
	if (type == OBJECT_MODULE) {
		CUmodule module;

		r = w->drv.cuModuleLoadDataEx(&module, image->bytes, jit->count, jit->options, jit->values);
		driver = module;
	} else {
		CUlibrary library;

		r = w->drv.cuLibraryLoadData(&library, image->bytes, jit->options, jit->values, jit->count, NULL, NULL, 0);
		driver = library;
	}
	jit->info[VERDICT_LOG - 1] = jit->error[VERDICT_LOG - 1] = '\0';
	if (r != CUDA_SUCCESS)
		return r;
	if (object_add(w, type, image->object, driver))
		return CUDA_SUCCESS;
	if (type == OBJECT_MODULE)
		w->drv.cuModuleUnload(driver);
	else
		w->drv.cuLibraryUnload(driver);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* What fits of a verdict into the cells: all, or its header with VERDICT_LARGER. */
void verdict_answer(struct worker *w, const struct frame_hdr *hdr, const struct bulk_ref *cells, const uint8_t *blob,
		    size_t size)
{
	struct bulk_ref filled = { .offset = cells->offset, .cookie = cells->cookie };
	uint8_t payload[4];
	uint8_t *to = shm_down(&w->shm) + cells->offset;

	if (size <= cells->size) {
		memcpy(to, blob, size);
		filled.size = (uint32_t)size;
	} else if (cells->size >= VERDICT_HEADER_SIZE) {
		struct reader r = reader_on(blob, size);
		struct writer out = writer_on(to, VERDICT_HEADER_SIZE);
		struct verdict v;

		verdict_get(&r, &v);
		v.flags |= VERDICT_LARGER;
		verdict_put(&out, &v);
		filled.size = VERDICT_HEADER_SIZE;
	}
	post_reply(w, hdr, filled.size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, payload, sizeof(payload), &filled);
}

/* The end of a load that has its verdict already: an answer only where somebody waits all the same (GLEAM_OFF). */
static void again_tell(struct worker *w, const struct image *image, CUresult r)
{
	if (image->hdr.flags & FRAME_WANTS_REPLY)
		post_reply(w, &image->hdr, r, NULL, 0, NULL);
	else if (r != CUDA_SUCCESS && w->moving)
		move_in_failed(w, image->hdr.op, r, NULL);
	else if (r != CUDA_SUCCESS)
		fault_latch(w, image->hdr.ctx, r, image->hdr.op, image->hdr.seq);
}

/* Loads and answers. Takes the image out of the list. */
static void image_finish(struct worker *w, struct image **link)
{
	struct image *image = *link;
	enum object_type type = handle_type(image->object);
	struct jit *jit = calloc(1, sizeof(*jit));
	struct context *c = image->hdr.ctx < SESSION_CONTEXTS ? &w->contexts[image->hdr.ctx] : NULL;
	struct verdict_jit told = { .count = 0 };
	uint8_t *blob = NULL;
	size_t size = 0;
	CUresult r;

	/* A failure from before comes first, and then this load has not happened. */
	r = image->again ? CUDA_SUCCESS : fault_take(w, image->hdr.ctx);
	if (r == CUDA_SUCCESS && c)
		r = context_use(w, c);
	else if (r == CUDA_SUCCESS && type == OBJECT_MODULE)
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (r == CUDA_SUCCESS && !jit)
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS) {
		if (image->again)
			again_tell(w, image, r);
		else
			post_reply(w, &image->hdr, r, NULL, 0, NULL);
		goto drop;
	}

	/* object_add() asks whose command this is. */
	struct cmd cmd = { .hdr = &image->hdr };
	struct cmd *before = w->cmd;

	w->cmd = &cmd;
	r = image_load(w, image, jit);
	w->cmd = before;
	if (r == CUDA_SUCCESS) {
		keep_image(w, image->object, &image->hdr, image->bytes, image->size, image->options, image->options_size);
		image->bytes = NULL;
	}
	if (image->again) {
		again_tell(w, image, r);
		goto drop;
	}
	jit_told(jit, &told);
	blob = verdict_make(w, r, r == CUDA_SUCCESS ? image->object : 0, c ? c->device : 0, &told, &size);
	if (!blob) {
		post_reply(w, &image->hdr, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, NULL);
		goto drop;
	}
	if (r == CUDA_SUCCESS && size > image->answer.size) {
		/* It will be asked for again. */
		struct object *o = object_find(w->tables, type, image->object);
		struct loaded *kept = malloc(sizeof(*kept) + size);

		if (kept) {
			kept->size = size;
			memcpy(kept->verdict, blob, size);
			o->own = kept;
		}
	}
	verdict_answer(w, &image->hdr, &image->answer, blob, size);
drop:
	free(blob);
	free(jit);
	if (image->again)
		w->stalled = false;
	image_drop(w, link);
}

/*
 * A driver may wait for the context's work before it loads ("may require context synchronization", says NVIDIA of lazy
 * loading, and an H200 does), and that work may stand still for a host function whose end only this thread can hear of. Its
 * caller waits anyway. gleamLoadAgain is not sent while one is outstanding.
 */
static bool load_must_wait(struct worker *w, const struct image *image)
{
	const struct context *c = image->hdr.ctx < SESSION_CONTEXTS ? &w->contexts[image->hdr.ctx] : NULL;

	return !image->again && host_calls_pending(w, handle_type(image->object) == OBJECT_MODULE ? c : NULL);
}

/* The load of @object is wanted: now, or when its parts are here. */
static CUresult load_want(struct worker *w, struct cmd *cmd, uint64_t object, const void *options, uint32_t options_size,
			  const struct bulk_ref *answer)
{
	struct image *image = w->images ? *image_at(w, object) : NULL;

	if (!image)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (image->wanted || options_size > sizeof(image->options))
		return CMD_BROKEN;
	image->wanted = true;
	image->again = !answer;
	image->hdr = *cmd->hdr;
	if (answer)
		image->answer = *answer;
	image->options_size = options_size;
	if (options_size)
		memcpy(image->options, options, options_size);
	if (!image->parts && !load_must_wait(w, image))
		image_finish(w, image_at(w, object));
	else if (image->again)
		w->stalled = true; /* for the parts */
	return CMD_LATER;
}

CUresult worker_do_gleamLoadImage(struct worker *w, struct cmd *cmd, const struct msg_gleamLoadImage *m)
{
	return load_want(w, cmd, m->object, m->options, m->options_size, &m->answer);
}

CUresult worker_do_gleamLoadAgain(struct worker *w, struct cmd *cmd, const struct msg_gleamLoadAgain *m)
{
	return load_want(w, cmd, m->object, m->options, m->options_size, NULL);
}

CUresult worker_do_gleamVerdict(struct worker *w, struct cmd *cmd, const struct msg_gleamVerdict *m)
{
	struct object *o = object_find(w->tables, handle_type(m->object), m->object);
	struct loaded *kept;

	if (!o || (handle_type(m->object) != OBJECT_MODULE && handle_type(m->object) != OBJECT_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	kept = o->own;
	if (!kept)
		return CUDA_ERROR_OUT_OF_MEMORY; /* it could not be kept, or was told whole */
	verdict_answer(w, cmd->hdr, &m->answer, kept->verdict, kept->size);
	if (kept->size <= m->answer.size) {
		o->own = NULL;
		free(kept);
	}
	return CMD_LATER;
}

CUresult worker_do_gleamFunctionInfo(struct worker *w, struct cmd *cmd, const struct msg_gleamFunctionInfo *m)
{
	struct object *o = object_find(w->tables, handle_type(m->object), m->object);
	uint32_t device = cmd->hdr->ctx < SESSION_CONTEXTS && w->contexts[cmd->hdr->ctx].open ?
				  w->contexts[cmd->hdr->ctx].device : 0;
	struct writer out = writer_on(shm_down(&w->shm) + m->answer.offset, m->answer.size);
	struct bulk_ref filled = m->answer;
	uint8_t payload[4];
	CUresult r;

	if (!o || (handle_type(m->object) != OBJECT_MODULE && handle_type(m->object) != OBJECT_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	r = verdict_function_make(w, m->object, o->driver, m->name, device, &out);
	if (r != CUDA_SUCCESS)
		return r;
	if (out.fault)
		return CUDA_ERROR_INVALID_VALUE;
	filled.size = (uint32_t)out.at;
	post_reply(w, cmd->hdr, CUDA_SUCCESS, payload, sizeof(payload), &filled);
	return CMD_LATER;
}

/* ---- variables ---- */

/* Host and client have it at the same address, so the client has to know. Drivers too old to tell have none. */
static uint32_t is_managed(struct worker *w, CUdeviceptr address)
{
	unsigned int managed = 0;

	return w->drv.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) == CUDA_SUCCESS && managed;
}

CUresult worker_do_cuModuleGetGlobal_v2(struct worker *w, struct cmd *cmd, const struct msg_cuModuleGetGlobal_v2 *m,
					struct ans_cuModuleGetGlobal_v2 *a)
{
	struct object *o = object_find(w->tables, OBJECT_MODULE, m->hmod);
	CUdeviceptr address = 0;
	size_t size = 0;
	CUresult r = o ? w->drv.cuModuleGetGlobal_v2(&address, &size, o->driver, m->name) : CUDA_ERROR_INVALID_HANDLE;

	if (r == CUDA_SUCCESS)
		keep_told(w, cmd->hdr->ctx, m->hmod, m->name, address, size);
	if (r == CUDA_SUCCESS)
		*a = (struct ans_cuModuleGetGlobal_v2){ .dptr = address, .bytes = size, .managed = is_managed(w, address) };
	return r;
}

CUresult worker_do_cuLibraryGetGlobal(struct worker *w, struct cmd *cmd, const struct msg_cuLibraryGetGlobal *m,
				      struct ans_cuLibraryGetGlobal *a)
{
	struct object *o = object_find(w->tables, OBJECT_LIBRARY, m->library);
	CUdeviceptr address = 0;
	size_t size = 0;
	CUresult r = o ? w->drv.cuLibraryGetGlobal(&address, &size, o->driver, m->name) : CUDA_ERROR_INVALID_HANDLE;
	uint32_t managed = r == CUDA_SUCCESS ? is_managed(w, address) : 0;

	/* A driver may keep the two kinds apart. */
	if (o && r == CUDA_ERROR_NOT_FOUND) {
		r = w->drv.cuLibraryGetManaged(&address, &size, o->driver, m->name);
		managed = 1;
	}
	if (r == CUDA_SUCCESS)
		keep_told(w, cmd->hdr->ctx, m->library, m->name, address, size);
	if (r == CUDA_SUCCESS)
		*a = (struct ans_cuLibraryGetGlobal){ .dptr = address, .bytes = size, .managed = managed };
	return r;
}

bool images_look(struct worker *w)
{
	bool any = false;

	if (!w->images)
		return false;
	for (struct image **link = &w->images->first; *link;) {
		struct image *image = *link;

		for (struct part **at = &image->parts; *at;) {
			struct part *part = *at;

			if (!copy_piece_landed(w, &part->bulk)) {
				at = &part->next;
				continue;
			}
			part_store(w, image, &part->hdr, &part->bulk, part->offset);
			*at = part->next;
			free(part);
			any = true;
		}
		if (image->wanted && !image->parts && !load_must_wait(w, image)) {
			image_finish(w, link);
			any = true;
			continue;
		}
		link = &image->next;
	}
	return any;
}

void images_stop(struct worker *w)
{
	while (w->images && w->images->first)
		image_drop(w, &w->images->first);
	free(w->images);
	w->images = NULL;
}

/* ---- unloading ---- */

/*
 * The driver waits for the context's work before it unloads, and that work may wait for a host function whose end only
 * this thread can hear of. So the work is waited for here first; the object stays in its table until then, where the
 * end of its context finds it.
 */
static void unload_now(struct worker *w, struct join *join)
{
	uint64_t handle = join->a;
	enum object_type type = handle_type(handle);
	struct object *o = object_find(w->tables, type, handle);
	struct context *c = o && type == OBJECT_MODULE && o->ctx < SESSION_CONTEXTS ? &w->contexts[o->ctx] : NULL;

	/* The driver would wait for what was sent since, too. */
	if (o && host_calls_wait(w, c, join))
		return;
	if (o) {
		CUresult r = CUDA_SUCCESS;

		if (type == OBJECT_LIBRARY)
			r = w->drv.cuLibraryUnload(o->driver);
		else
			r = context_use(w, o->ctx < SESSION_CONTEXTS ? &w->contexts[o->ctx] : NULL);
		if (type == OBJECT_MODULE && r == CUDA_SUCCESS)
			r = w->drv.cuModuleUnload(o->driver);
		object_remove(w, handle);
		if (r != CUDA_SUCCESS)
			fault_latch(w, join->hdr.ctx, r, join->hdr.op, join->hdr.seq);
	}
	free(join);
}

static CUresult unload(struct worker *w, struct cmd *cmd, enum object_type type, uint64_t handle)
{
	struct object *o = object_find(w->tables, type, handle);
	struct join *join;

	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	join = calloc(1, sizeof(*join));
	if (!join)
		return CUDA_ERROR_OUT_OF_MEMORY;
	join->done = unload_now;
	join->hdr = *cmd->hdr;
	join->a = handle;
	/* A library belongs to all contexts. */
	streams_join(w, type == OBJECT_MODULE && o->ctx < SESSION_CONTEXTS ? &w->contexts[o->ctx] : NULL, join);
	return CUDA_SUCCESS;
}

CUresult worker_do_cuModuleUnload(struct worker *w, struct cmd *cmd, const struct msg_cuModuleUnload *m)
{
	return unload(w, cmd, OBJECT_MODULE, m->hmod);
}

CUresult worker_do_cuLibraryUnload(struct worker *w, struct cmd *cmd, const struct msg_cuLibraryUnload *m)
{
	return unload(w, cmd, OBJECT_LIBRARY, m->library);
}
