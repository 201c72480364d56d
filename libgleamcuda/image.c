// SPDX-License-Identifier: Apache-2.0
/*
 * What is sent of an image, and the load. Of a container only the entries that a GPU of the session can use go out, in a
 * container of their own, packed and with their options as they were. Application threads.
 */
#include "libgleamcuda/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/fatbin.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/hostfunc.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/off.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/verdicts.h"

/* More cells than this are not asked for: others need some too. The answer is then kept as one without functions, and
 * each is asked for by name. */
#define VERDICT_CELLS_MAX 24u
/* PTX has its .version near the start, behind comments. */
#define PTX_HEAD (1u << 20)

/* Whether a node's devices run cubins: a software GPU compiles PTX and has no use for machine code. Learnt from the first
 * container that has both. Atomic. */
static enum { CUBINS_UNKNOWN, CUBINS_RUN, CUBINS_REFUSED } cubins[SESSIONS_MAX];

/* The program's, which its worker's driver gets: loads fail by them that succeed without. */
static const char *const jit_settings[] = { "CUDA_FORCE_PTX_JIT", "CUDA_DISABLE_PTX_JIT", "CUDA_FORCE_JIT", "CUDA_DISABLE_JIT" };

/* ---- choosing ---- */

static CUresult result_of(int err)
{
	return err == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE;
}

static void piece_add(struct image *image, const void *bytes, size_t size)
{
	image->pieces[image->piece_count++] = (struct image_piece){ bytes, size };
	image->size += size;
}

/* Where the entry's header begins, and how long header and payload are: the next one's offset tells. */
static bool entry_span(const uint8_t *data, uint64_t size, const struct fatbin_entry *entry, struct image_piece *piece)
{
	uint32_t header_size;
	uint64_t stored_size;

	/* The reader has checked both against the container. */
	if (entry->offset > size || size - entry->offset < 16)
		return false;
	memcpy(&header_size, data + entry->offset + 4, 4);
	memcpy(&stored_size, data + entry->offset + 8, 8);
	if (header_size > size - entry->offset || stored_size > size - entry->offset - header_size)
		return false;
	*piece = (struct image_piece){ data + entry->offset, header_size + (size_t)stored_size };
	return true;
}

static bool piece_has(const struct image *image, const void *bytes)
{
	for (uint32_t i = 1; i < image->piece_count; i++)
		if (image->pieces[i].bytes == bytes)
			return true;
	return false;
}

static int entry_add(struct image *image, const struct fatbin_image *from, const struct fatbin_entry *entry)
{
	struct image_piece piece;

	if (!entry_span(from->data, from->size, entry, &piece))
		return -EBADMSG;
	if (entry->kind == FATBIN_KIND_ELF)
		image->has_cubin = true;
	if (!piece_has(image, piece.bytes))
		piece_add(image, piece.bytes, piece.size);
	return 0;
}

/* The best PTX for a target. */
static int ptx_choose(const struct fatbin_image *from, const struct image_target *target, struct fatbin_entry *entry)
{
	return fatbin_choose(from->data, from->size, target->major, target->minor, false, entry);
}

static int target_choose(struct image *image, const struct fatbin_image *from, const struct image_target *target,
			 bool prefer_ptx)
{
	struct fatbin_entry best, ptx;
	int found = fatbin_choose(from->data, from->size, target->major, target->minor, true, &best);

	if (found <= 0)
		return found;
	if (best.kind == FATBIN_KIND_ELF && ptx_choose(from, target, &ptx) > 0) {
		if (prefer_ptx)
			best = ptx;
		else
			image->has_both = true;
	}
	found = entry_add(image, from, &best);
	return found ? found : 1;
}

static CUresult container_choose(struct image *image, const struct fatbin_image *from,
				 const struct image_target *targets, uint32_t target_count, enum image_want want)
{
	const uint16_t version = 1, header_size = sizeof(image->header);
	const uint32_t magic = FATBIN_MAGIC;
	uint32_t fitting = 0;
	uint64_t body;

	image->kind = IMAGE_CONTAINER;
	image->pieces[0] = (struct image_piece){ image->header, sizeof(image->header) };
	image->piece_count = 1;
	image->size = sizeof(image->header);
	for (uint32_t i = 0; i < target_count; i++) {
		int found = target_choose(image, from, &targets[i], want == IMAGE_WANT_PTX);

		if (found < 0)
			return result_of(found);
		fitting += (uint32_t)found;
	}
	if (want == IMAGE_WANT_ALL) {
		image->piece_count = 0;
		image->size = 0;
		image->has_both = false;
		piece_add(image, from->data, from->size);
		return CUDA_SUCCESS;
	}
	if (!fitting)
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	body = image->size - sizeof(image->header);
	memcpy(image->header, &magic, 4);
	memcpy(image->header + 4, &version, 2);
	memcpy(image->header + 6, &header_size, 2);
	memcpy(image->header + 8, &body, 8);
	return CUDA_SUCCESS;
}

static CUresult cubin_check(const struct fatbin_image *from, const struct image_target *targets, uint32_t target_count)
{
	int arch = fatbin_elf_arch(from->data, from->size);

	if (arch < 0)
		return CUDA_ERROR_INVALID_IMAGE;
	for (uint32_t i = 0; i < target_count; i++)
		if (arch / 10 == targets[i].major && arch % 10 <= targets[i].minor)
			return CUDA_SUCCESS;
	return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult image_choose(const void *bytes, uint64_t size, const struct image_target *targets, uint32_t target_count,
		      enum image_want want, struct image *image_out)
{
	struct image *image = image_out;
	struct fatbin_image from;
	int err = size ? fatbin_parse(bytes, size, &from) : fatbin_extent(bytes, &from);

	*image = (struct image){ 0 };
	if (err)
		return result_of(err);
	if (target_count > (IMAGE_PIECES - 1) / 2)
		target_count = (IMAGE_PIECES - 1) / 2;
	switch (from.data_form) {
	case FATBIN_FORM_CONTAINER:
		return container_choose(image, &from, targets, target_count, want);
	case FATBIN_FORM_ELF:
		image->kind = IMAGE_CUBIN;
		image->has_cubin = true;
		piece_add(image, from.data, from.size);
		return want == IMAGE_WANT_ALL ? CUDA_SUCCESS : cubin_check(&from, targets, target_count);
	default:
		image->kind = IMAGE_PTX;
		piece_add(image, from.data, from.size);
		/* The driver calls a text an invalid image as well, unless it looks like PTX. */
		if (!memmem(from.data, from.size < PTX_HEAD ? from.size : PTX_HEAD, ".version", 8))
			return CUDA_ERROR_INVALID_IMAGE;
		return CUDA_SUCCESS;
	}
}

/* ---- targets of a call ---- */

/* The context's device, whose attributes the answer tells. Without a context: the first of the server that it is for. */
static int device_of(const struct call *call)
{
	int first = call->context ? call->context->device : 0;

	while (!call->context && first < device_count() - 1 && device_at(first)->session != call->session)
		first++;
	return first;
}

/* That one first; a library is for the others too. */
static uint32_t targets_of(struct call *call, uint64_t object, struct image_target *targets)
{
	int first = device_of(call);
	uint32_t count = 0;

	for (int i = 0; i < SNAPSHOT_DEVICES && count < SNAPSHOT_DEVICES; i++) {
		const struct device *device = device_at(i ? (i <= first ? i - 1 : i) : first);
		struct image_target target;
		bool known = false;

		if (!device)
			break;
		target.major = device->raw->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR];
		target.minor = device->raw->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
		for (uint32_t k = 0; k < count; k++)
			known |= targets[k].major == target.major && targets[k].minor == target.minor;
		if (!known)
			targets[count++] = target;
		if (handle_type(object) == OBJECT_MODULE)
			break;
	}
	return count;
}

static bool env_is_set(const char *name)
{
	const char *value = secure_getenv(name);

	return value && strcmp(value, "0") && *value;
}

static enum image_want want_of(const struct call *call, const struct jit *jit)
{
	if (jit->chooses)
		return IMAGE_WANT_ALL;
	if (__atomic_load_n(&cubins[call->session->index], __ATOMIC_RELAXED) == CUBINS_REFUSED || env_is_set("CUDA_FORCE_PTX_JIT") ||
	    env_is_set("CUDA_FORCE_JIT"))
		return IMAGE_WANT_PTX;
	return IMAGE_WANT_BEST;
}

static void key_make(struct verdict_key *key, const struct call *call, const struct image *image, const struct jit *jit,
		     const struct image_target *targets)
{
	const struct device *device = device_at(device_of(call));

	*key = (struct verdict_key){ 0 };
	for (uint32_t i = 0; i < image->piece_count; i++)
		answer_key_add(key, image->pieces[i].bytes, image->pieces[i].size);
	answer_key_add(key, jit->wire, jit->wire_size);
	answer_key_add(key, &targets[0], sizeof(targets[0]));
	answer_key_add(key, &image->kind, sizeof(image->kind));
	/* What another process was told of it must be of the same GPU and driver, and of one whose driver was told the same about compiling. */
	if (device)
		answer_key_add(key, device->raw->name, strlen(device->raw->name));
	answer_key_add(key, &call->session->snapshot.driver_version, sizeof(call->session->snapshot.driver_version));
	for (size_t i = 0; i < sizeof(jit_settings) / sizeof(jit_settings[0]); i++) {
		const char *value = secure_getenv(jit_settings[i]);

		if (value) {
			answer_key_add(key, jit_settings[i], strlen(jit_settings[i]));
			answer_key_add(key, value, strlen(value));
		}
	}
}

/* ---- sending ---- */

/* Copy @size bytes of the image from where the last copy ended. */
struct image_cursor {
	const struct image *image;
	uint32_t piece;
	size_t at;
};

static void cursor_copy(struct image_cursor *cursor, uint8_t *to, size_t size)
{
	while (size) {
		const struct image_piece *piece = &cursor->image->pieces[cursor->piece];
		size_t part = piece->size - cursor->at;

		if (part > size)
			part = size;
		memcpy(to, (const uint8_t *)piece->bytes + cursor->at, part);
		to += part;
		size -= part;
		cursor->at += part;
		if (cursor->at == piece->size) {
			cursor->piece++;
			cursor->at = 0;
		}
	}
}

static CUresult image_send(struct call *call, uint64_t object, const struct image *image)
{
	struct msg_gleamLoadBegin begin = { .object = object, .total_size = image->size };
	struct image_cursor cursor = { .image = image };
	CUresult result;

	call->unawaited = true; /* what asks for the verdict comes behind it */
	result = CALL_SEND(call, gleamLoadBegin, &begin);
	if (result)
		return result;
	for (uint64_t at = 0; at < image->size;) {
		uint64_t left = image->size - at;
		uint32_t part = left < SESSION_CELL_SIZE ? (uint32_t)left : SESSION_CELL_SIZE;
		struct msg_gleamLoadPart m = { .object = object, .offset = at };
		void *room;

		result = session_up_take(call->session, part, &m.part, &room);
		if (result)
			return result;
		cursor_copy(&cursor, room, part);
		result = call_open_bulk(call, OP_gleamLoadPart, msg_gleamLoadPart_size(&m), FRAME_BULK_UP, &m.part);
		if (result)
			return result;
		msg_gleamLoadPart_put(&call->w, &m);
		call_post(call);
		call_count_bytes(call, part);
		at += part;
	}
	call->unawaited = false;
	return CUDA_SUCCESS;
}

/* ---- what comes back ---- */

/* A copy of what the worker wrote into the cells; NULL if it isn't a verdict. The cells are shared memory: the header is
 * read from the copy. */
static uint8_t *verdict_copy(const uint8_t *cells, uint32_t room, struct verdict *v)
{
	uint8_t head[VERDICT_HEADER_SIZE] __attribute__((aligned(8)));
	struct reader r = reader_on(head, sizeof(head));
	uint64_t size;
	uint8_t *bytes;

	memcpy(head, cells, sizeof(head));
	/* verdict_get() compares the size with what the reader has: here that is the header alone. */
	(void)verdict_get(&r, v);
	size = v->flags & VERDICT_LARGER ? VERDICT_HEADER_SIZE : v->size;
	if (r.fault || size < VERDICT_HEADER_SIZE || size > room)
		return NULL;
	bytes = malloc(size);
	if (!bytes)
		return NULL;
	memcpy(bytes, cells, size);
	memcpy(bytes, head, sizeof(head));
	r = reader_on(bytes, size);
	if (!verdict_get(&r, v)) {
		free(bytes);
		return NULL;
	}
	return bytes;
}

/* Wait for the frame that is open, then take the verdict out of @cells. Gives the cells back. */
static CUresult verdict_wait(struct call *call, const struct bulk_ref *ref, uint8_t *cells, uint8_t **bytes_out,
			     struct verdict *v)
{
	CUresult result = call_wait(call);

	*bytes_out = verdict_copy(cells, ref->size, v);
	if (!session_is_dead(call->session))
		session_cells_give(call->session, ref);
	return result;
}

static CUresult cells_take(struct call *call, uint32_t size, struct bulk_ref *ref, uint8_t **cells_out)
{
	void *cells;
	CUresult result = session_cells_take(call->session, size, ref, &cells);

	if (result)
		return result;
	/* Old bytes of another answer must not be taken for this one's. */
	memset(cells, 0, VERDICT_HEADER_SIZE);
	*cells_out = cells;
	return CUDA_SUCCESS;
}

/* The answer is longer than the cells: ask for it again with enough. */
static CUresult verdict_again(struct call *call, uint64_t object, uint64_t size, uint8_t **bytes_out, struct verdict *v)
{
	struct msg_gleamVerdict m = { .object = object };
	uint8_t *cells;
	CUresult result;

	if (size > VERDICT_CELLS_MAX * SESSION_CELL_SIZE)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = cells_take(call, (uint32_t)size, &m.answer, &cells);
	if (result)
		return result;
	result = call_open_bulk(call, OP_gleamVerdict, msg_gleamVerdict_size(&m), FRAME_BULK_DOWN, &m.answer);
	if (result) {
		session_cells_give(call->session, &m.answer);
		return result;
	}
	msg_gleamVerdict_put(&call->w, &m);
	return verdict_wait(call, &m.answer, cells, bytes_out, v);
}

/* An answer without functions for an image whose list is too long to bring. */
static uint8_t *verdict_unlisted(size_t *size_out)
{
	struct verdict v = { .flags = VERDICT_UNLISTED, .size = VERDICT_HEADER_SIZE + 16 };
	uint8_t *bytes = calloc(1, VERDICT_HEADER_SIZE + 16);
	struct writer w = writer_on(bytes, VERDICT_HEADER_SIZE + 16);

	if (!bytes)
		return NULL;
	verdict_put(&w, &v);
	verdict_logs_put(&w, "", "");
	*size_out = VERDICT_HEADER_SIZE + 16;
	return bytes;
}

/* A load that asks. On success the answer's bytes are the caller's. */
static CUresult load_ask(struct call *call, uint64_t object, const struct image *image, const struct jit *jit,
			 uint8_t **bytes_out, size_t *size_out)
{
	struct msg_gleamLoadImage m = { .object = object, .kind = image->kind, .total_size = image->size,
					.options = jit->wire, .options_size = jit->wire_size };
	struct verdict v = { 0 };
	uint8_t *bytes, *cells;
	CUresult result = cells_take(call, SESSION_CELL_SIZE, &m.answer, &cells);

	if (result)
		return result;
	result = call_open_bulk(call, OP_gleamLoadImage, msg_gleamLoadImage_size(&m), FRAME_BULK_DOWN, &m.answer);
	if (result) {
		session_cells_give(call->session, &m.answer);
		return result;
	}
	msg_gleamLoadImage_put(&call->w, &m);
	result = verdict_wait(call, &m.answer, cells, &bytes, &v);
	if (!result && bytes)
		result = (CUresult)v.code;
	if (!result && !bytes) {
		gleam_log("the server's answer to a load has no verdict");
		return CUDA_ERROR_UNKNOWN;
	}
	if (!result && (v.flags & VERDICT_LARGER)) {
		free(bytes);
		bytes = NULL;
		result = verdict_again(call, object, v.size, &bytes, &v);
		if (result == CUDA_ERROR_OUT_OF_MEMORY || (!result && (!bytes || (v.flags & VERDICT_LARGER)))) {
			free(bytes);
			bytes = verdict_unlisted(size_out);
			*bytes_out = bytes;
			return bytes ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	if (bytes && !(v.flags & VERDICT_LARGER))
		jit_tell(jit, bytes, v.size);
	if (result) {
		free(bytes);
		return result;
	}
	*bytes_out = bytes;
	*size_out = v.size;
	return CUDA_SUCCESS;
}

/*
 * *sent_out is false where a host function is outstanding: the node's driver may wait for it before it loads, while the next
 * commands, which nobody holds back, need the module. Then the load waits for its answer instead. Asked under the append lock, since
 * a host function counts as outstanding before its command is there.
 */
static CUresult load_again(struct call *call, uint64_t object, const struct image *image, const struct jit *jit, bool *sent_out)
{
	struct msg_gleamLoadAgain m = { .object = object, .kind = image->kind, .total_size = image->size,
					.options = jit->wire, .options_size = jit->wire_size };
	CUresult result = call_open(call, OP_gleamLoadAgain, msg_gleamLoadAgain_size(&m));

	*sent_out = false;
	if (result)
		return result;
	if (hostfunc_outstanding()) {
		call_cancel(call);
		return CUDA_SUCCESS;
	}
	msg_gleamLoadAgain_put(&call->w, &m);
	call_post(call);
	*sent_out = true;
	return CUDA_SUCCESS;
}

/* The worker has the object, and we can't use it. */
static void object_drop(struct call *call, uint64_t object)
{
	struct msg_cuModuleUnload module = { .hmod = object };
	struct msg_cuLibraryUnload library = { .library = object };

	if (handle_type(object) == OBJECT_MODULE)
		CALL_SEND(call, cuModuleUnload, &module);
	else
		CALL_SEND(call, cuLibraryUnload, &library);
}

static CUresult load_chosen(struct call *call, uint64_t object, const struct image *image, const struct jit *jit,
			    const struct image_target *targets, struct answer **answer_out)
{
	struct answer *answer = NULL;
	struct verdict_key key;
	bool sent = false;
	uint8_t *bytes;
	size_t size;
	CUresult result;

	if (!jit->tells && !is_off(OFF_VERDICTS)) {
		key_make(&key, call, image, jit, targets);
		answer = answer_store_find(&key);
		if (!answer) {
			answer = verdicts_find(call->session, &key);
			if (answer)
				answer_store_keep(&key, answer);
		}
	}
	result = image_send(call, object, image);
	if (!result && answer)
		result = load_again(call, object, image, jit, &sent);
	if (!result && answer && !sent) {
		answer_put(answer);
		answer = NULL;
	}
	if (result || answer) {
		if (result && answer)
			answer_put(answer);
		*answer_out = result ? NULL : answer;
		return result;
	}
	result = load_ask(call, object, image, jit, &bytes, &size);
	if (result)
		return result;
	answer = answer_new(bytes, size, &result);
	if (!answer) {
		object_drop(call, object);
		return result;
	}
	if (!jit->tells && !is_off(OFF_VERDICTS)) {
		answer_store_keep(&key, answer);
		/* The answer has them. */
		verdicts_keep(call->session, &key, bytes, size);
	}
	*answer_out = answer;
	return CUDA_SUCCESS;
}

CUresult image_load(struct call *call, uint64_t object, const void *bytes, uint64_t size, const struct jit *jit,
		    struct answer **answer_out)
{
	struct image_target targets[SNAPSHOT_DEVICES];
	uint32_t target_count = targets_of(call, object, targets);
	enum image_want want = want_of(call, jit);
	struct image image;
	CUresult result = image_choose(bytes, size, targets, target_count, want, &image);

	if (result)
		return result;
	result = load_chosen(call, object, &image, jit, targets, answer_out);
	if (!result && image.has_cubin)
		__atomic_store_n(&cubins[call->session->index], CUBINS_RUN, __ATOMIC_RELAXED);
	if (result != CUDA_ERROR_NO_BINARY_FOR_GPU || !image.has_both || want != IMAGE_WANT_BEST ||
	    __atomic_load_n(&cubins[call->session->index], __ATOMIC_RELAXED) == CUBINS_RUN)
		return result;
	/* It fits by its number, and yet the node can't run it: a device for PTX alone. */
	result = image_choose(bytes, size, targets, target_count, IMAGE_WANT_PTX, &image);
	if (!result)
		result = load_chosen(call, object, &image, jit, targets, answer_out);
	if (!result) {
		gleam_log("the server's device runs no cubins: PTX is sent from now on");
		__atomic_store_n(&cubins[call->session->index], CUBINS_REFUSED, __ATOMIC_RELAXED);
	}
	return result;
}

/* ---- one function ---- */

CUresult image_ask(struct call *call, uint64_t object, struct answer *answer, const char *name, bool own,
		   struct answer_function **function_out, int32_t attributes_out[VERDICT_ATTRIBUTES])
{
	struct answer_function *function = NULL;
	struct verdict_function told;
	struct msg_gleamFunctionInfo m = { .object = object, .name = name };
	uint8_t *cells, *record;
	void *room;
	CUresult result = session_cells_take(call->session, SESSION_CELL_SIZE, &m.answer, &room);

	if (result)
		return result;
	cells = room;
	memset(cells, 0, 16);
	result = call_open_bulk(call, OP_gleamFunctionInfo, msg_gleamFunctionInfo_size(&m), FRAME_BULK_DOWN, &m.answer);
	if (result) {
		session_cells_give(call->session, &m.answer);
		return result;
	}
	msg_gleamFunctionInfo_put(&call->w, &m);
	result = call_wait(call);
	/* Name, parameters at 8 bytes each, attributes: bounded far below a cell. Copied whole, for it is shared memory. */
	record = result ? NULL : malloc(SESSION_CELL_SIZE);
	if (record)
		memcpy(record, cells, SESSION_CELL_SIZE);
	if (!session_is_dead(call->session))
		session_cells_give(call->session, &m.answer);
	if (result)
		return result;
	if (record) {
		struct reader r = reader_on(record, SESSION_CELL_SIZE);

		if (verdict_function_get(&r, &told) && (told.flags & VERDICT_HAS_ATTRIBUTES) &&
		    (told.flags & VERDICT_HAS_PARAMS)) {
			memcpy(attributes_out, told.attributes, sizeof(told.attributes));
			function = answer_learn(answer, name, record, SESSION_CELL_SIZE, own);
			if (function && own && answer_key_of(answer))
				verdicts_more(call->session, answer_key_of(answer), record, r.at);
		}
		free(record);
	}
	if (!function)
		return CUDA_ERROR_UNKNOWN;
	*function_out = function;
	return CUDA_SUCCESS;
}
