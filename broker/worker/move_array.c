/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contents of arrays. Executor thread; see move_array.h.
 *
 * An array is looked at in boxes: as many whole rows of a slice as MOVE_CHUNK holds, or a part of a row where rows are longer than a
 * command. Each has a hash of what was said last.
 */
#include "broker/worker/move_array.h"

#include <stdlib.h>

#include "broker/worker/aside.h"
#include "broker/worker/move_out.h"
#include "broker/worker/stream.h"
#include "gen/worker_bodies.h"

#define LEVELS_MAX 32u	      /* more than any size of a dimension has bits that a device can hold */
#define SIDE_MAX   (1u << 22) /* of an array, in elements or rows; devices have less */
#define BYTES_MAX  (1ull << 40)

struct level {
	uint64_t width; /* bytes */
	uint64_t rows;
	uint64_t slices;
	uint64_t box_width; /* bytes; all of a row, or what a command holds */
	uint64_t box_rows;
	uint64_t boxes;
};

struct move_array {
	bool levelled;
	uint32_t level_count;
	struct level levels[LEVELS_MAX];
	uint64_t bytes;
	uint64_t boxes;
	uint64_t looked; /* boxes, in this turn */
	uint64_t looked_bytes;
	struct move_hash hashes[];
};

/* Bytes of one channel; 0: of a format that the library doesn't make. */
static uint32_t channel_size(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
	case CU_AD_FORMAT_UNORM_INT8X1:
	case CU_AD_FORMAT_SNORM_INT8X1:
	case CU_AD_FORMAT_UNORM_INT8X2:
	case CU_AD_FORMAT_SNORM_INT8X2:
	case CU_AD_FORMAT_UNORM_INT8X4:
	case CU_AD_FORMAT_SNORM_INT8X4:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
	case CU_AD_FORMAT_UNORM_INT16X1:
	case CU_AD_FORMAT_SNORM_INT16X1:
	case CU_AD_FORMAT_UNORM_INT16X2:
	case CU_AD_FORMAT_SNORM_INT16X2:
	case CU_AD_FORMAT_UNORM_INT16X4:
	case CU_AD_FORMAT_SNORM_INT16X4:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 0;
	}
}

static uint64_t halved(uint64_t size, uint32_t level)
{
	return size >> level ? size >> level : 1;
}

static void level_set(struct level *l, const CUDA_ARRAY3D_DESCRIPTOR *desc, uint32_t level, uint32_t element)
{
	/* Layers and faces are no depth: each has levels of its own. */
	bool layered = desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
	uint64_t depth = desc->Depth ? desc->Depth : 1, row_boxes;

	l->width = halved(desc->Width, level) * element;
	l->rows = halved(desc->Height ? desc->Height : 1, level);
	l->slices = layered ? depth : halved(depth, level);
	/* MOVE_DATA is a multiple of every element's size. */
	l->box_width = l->width < MOVE_DATA ? l->width : MOVE_DATA;
	l->box_rows = l->width > MOVE_DATA ? 1 : MOVE_CHUNK / l->width;
	if (l->box_rows > l->rows)
		l->box_rows = l->rows;
	row_boxes = (l->width + l->box_width - 1) / l->box_width;
	l->boxes = row_boxes * ((l->rows + l->box_rows - 1) / l->box_rows) * l->slices;
}

struct move_array *move_array_new(const CUDA_ARRAY3D_DESCRIPTOR *desc, uint32_t levels, const char **why)
{
	uint32_t element = channel_size(desc->Format) * desc->NumChannels;
	struct move_array *a;
	uint64_t boxes = 0, bytes = 0;

	*why = "it has an array of a kind whose contents can't be moved";
	/* The device has made it, so it is not larger than that; what is said here is the client's word all the same. */
	if (!element || element > 16 || (element & (element - 1)) || levels > LEVELS_MAX || !desc->Width || desc->Width > SIDE_MAX ||
	    desc->Height > SIDE_MAX || desc->Depth > SIDE_MAX)
		return NULL;
	for (uint32_t i = 0; i < (levels ? levels : 1); i++) {
		struct level l;

		level_set(&l, desc, i, element);
		if (l.slices > BYTES_MAX / (l.width * l.rows))
			return NULL;
		boxes += l.boxes;
		bytes += l.width * l.rows * l.slices;
	}
	if (bytes > BYTES_MAX)
		return NULL;
	*why = "its server has too little memory for the move (of the machine, not of the GPU)";
	a = calloc(1, sizeof(*a) + boxes * sizeof(a->hashes[0]));
	if (!a)
		return NULL;
	a->levelled = levels;
	a->level_count = levels ? levels : 1;
	a->boxes = boxes;
	a->bytes = bytes;
	for (uint32_t i = 0; i < a->level_count; i++)
		level_set(&a->levels[i], desc, i, element);
	return a;
}

void move_array_free(struct move_array *a)
{
	free(a);
}

uint64_t move_array_bytes(const struct move_array *a)
{
	return a->bytes;
}

void move_array_turn(struct move_array *a)
{
	a->looked = a->looked_bytes = 0;
}

struct box {
	uint32_t level;
	uint64_t x, y, z;
	uint64_t width, rows;
};

static struct box box_at(const struct move_array *a, uint64_t number)
{
	const struct level *l = a->levels;
	uint64_t row_boxes, of_slice;
	struct box b;

	while (number >= l->boxes)
		number -= l++->boxes;
	row_boxes = (l->width + l->box_width - 1) / l->box_width;
	of_slice = l->boxes / l->slices;
	b = (struct box){
		.level = (uint32_t)(l - a->levels), .z = number / of_slice, .y = number % of_slice / row_boxes * l->box_rows,
		.x = number % row_boxes * l->box_width,
	};
	b.width = l->width - b.x < l->box_width ? l->width - b.x : l->box_width;
	b.rows = l->rows - b.y < l->box_rows ? l->rows - b.y : l->box_rows;
	return b;
}

static void box_say(struct worker *w, const struct move_array *a, uint64_t handle, uint16_t ctx, const struct box *b, const uint8_t *bytes)
{
	uint8_t payload[MOVE_DATA + 128] __attribute__((aligned(8)));
	bool zero = move_all_zero(bytes, b->width * b->rows);
	bool aside = !zero && aside_is_open(w);
	uint64_t rows = zero || aside ? b->rows : MOVE_DATA / b->width;

	for (uint64_t y = 0; y < b->rows; y += rows) {
		uint64_t count = b->rows - y < rows ? b->rows - y : rows;
		struct msg_gleamMoveArray m = {
			.array = handle, .level = a->levelled ? b->level : UINT32_MAX, .x = b->x, .y = b->y + y, .z = b->z, .width = b->width,
			.rows = count, .data = bytes + y * b->width, .data_size = zero ? 0 : (uint32_t)(count * b->width),
		};
		struct writer out = writer_on(payload, sizeof(payload));

		/* A session that is over says nothing that anybody would miss. */
		if (aside) {
			aside_say_box(w, ctx, &m, m.data);
			continue;
		}
		msg_gleamMoveArray_put(&out, &m);
		move_say(w, OP_gleamMoveArray, ctx, false, payload, (uint32_t)out.at);
	}
}

static bool box_read(struct worker *w, void *object, const struct move_array *a, const struct box *b, CUstream stream, uint8_t *room)
{
	CUDA_MEMCPY3D copy = {
		.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcXInBytes = b->x, .srcY = b->y, .srcZ = b->z,
		.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = room, .dstPitch = b->width, .dstHeight = b->rows,
		.WidthInBytes = b->width, .Height = b->rows, .Depth = 1,
	};

	copy.srcArray = object;
	if (a->levelled && w->drv.cuMipmappedArrayGetLevel(&copy.srcArray, object, b->level) != CUDA_SUCCESS)
		return false;
	return w->drv.cuMemcpy3DAsync_v2(&copy, stream) == CUDA_SUCCESS && w->drv.cuStreamSynchronize(stream) == CUDA_SUCCESS;
}

bool move_array_say(struct worker *w, struct move_array *a, uint64_t handle, void *object, uint16_t ctx, uint64_t *limit, uint64_t *left)
{
	uint8_t *room = move_room(w);
	bool sound = room != NULL;
	CUstream stream = NULL;

	if (sound && *limit && a->looked < a->boxes) {
		/* One that waits for nobody, for the moment: it would end with its context. */
		sound = ctx < SESSION_CONTEXTS && context_use(w, &w->contexts[ctx]) == CUDA_SUCCESS &&
			w->drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
		for (; sound && *limit && a->looked < a->boxes; a->looked++) {
			struct box b = box_at(a, a->looked);
			uint64_t size = b.width * b.rows;
			struct move_hash hash;
			bool changed;

			sound = box_read(w, object, a, &b, stream, room);
			if (!sound)
				break;
			hash = move_hash_of(room, size);
			changed = !move_hash_same(hash, a->hashes[a->looked]);
			move_count(limit, size, changed);
			a->looked_bytes += size;
			a->hashes[a->looked] = hash;
			if (changed)
				box_say(w, a, handle, ctx, &b, room);
		}
		if (stream)
			w->drv.cuStreamDestroy_v2(stream);
	}
	*left += a->bytes - a->looked_bytes;
	return sound;
}

CUresult worker_do_gleamMoveArray(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveArray *m)
{
	bool levelled = m->level != UINT32_MAX;
	struct object *o = object_find(w->tables, levelled ? OBJECT_MIPMAP : OBJECT_ARRAY, m->array);
	CUDA_MEMCPY3D copy = {
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = m->data, .srcPitch = m->width, .srcHeight = m->rows,
		.dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstXInBytes = m->x, .dstY = m->y, .dstZ = m->z,
		.WidthInBytes = m->width, .Height = m->rows, .Depth = 1,
	};
	uint8_t *zeros = NULL;
	CUresult r = CUDA_SUCCESS;

	if (!w->moving || !m->width || !m->rows || m->rows > MOVE_CHUNK / m->width || (m->data_size && m->data_size != m->width * m->rows))
		return CMD_BROKEN;
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!m->data_size) {
		copy.srcHost = zeros = calloc(m->rows, m->width);
		if (!zeros)
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	copy.dstArray = o->driver;
	if (levelled)
		r = w->drv.cuMipmappedArrayGetLevel(&copy.dstArray, o->driver, m->level);
	if (r == CUDA_SUCCESS)
		r = w->drv.cuMemcpy3D_v2(&copy);
	free(zeros);
	return r;
}
