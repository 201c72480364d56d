/* SPDX-License-Identifier: Apache-2.0 */
/* What a session is made of, said to whoever moves it. Executor thread; see keep.h. */
#include <stdlib.h>
#include <string.h>

#include "broker/worker/aside.h"
#include "broker/worker/grant.h"
#include "broker/worker/green.h"
#include "broker/worker/keep_private.h"
#include "broker/worker/link.h"
#include "broker/worker/move_array.h"
#include "broker/worker/move_out.h"
#include "broker/worker/note.h"
#include "broker/worker/share.h"
#include "broker/worker/vmm.h"
#include "gen/worker_bodies.h"

#define TROUBLES 4u /* kinds of reasons not to move */

static void image_say(struct worker *w, const struct entry *e)
{
	uint8_t payload[MOVE_DATA + 64] __attribute__((aligned(8)));
	struct msg_gleamLoadBegin begin = { .object = e->key, .total_size = e->image_size };
	struct writer out = writer_on(payload, sizeof(payload));

	msg_gleamLoadBegin_put(&out, &begin);
	move_say(w, OP_gleamLoadBegin, entry_hdr(e)->ctx, false, payload, (uint32_t)out.at);
	if (aside_is_open(w)) {
		aside_say_image(w, entry_hdr(e)->ctx, e->key, e->image, e->image_size);
		return;
	}
	for (uint64_t at = 0; at < e->image_size; at += MOVE_DATA) {
		uint64_t size = e->image_size - at < MOVE_DATA ? e->image_size - at : MOVE_DATA;
		struct msg_gleamMoveImage part = { .object = e->key, .offset = at, .data = e->image + at, .data_size = (uint32_t)size };

		out = writer_on(payload, sizeof(payload));
		msg_gleamMoveImage_put(&out, &part);
		move_say(w, OP_gleamMoveImage, entry_hdr(e)->ctx, false, payload, (uint32_t)out.at);
	}
}

static void death_say(struct worker *w, const struct entry *e)
{
	uint16_t op;

	/* A death is said once, for the birth. */
	switch (entry_hdr(e)->op) {
	case OP_cuStreamCreateWithPriority:
		op = OP_cuStreamDestroy_v2;
		break;
	case OP_cuEventCreate:
		op = OP_cuEventDestroy_v2;
		break;
	case OP_gleamLoadAgain:
		op = handle_type(e->key) == OBJECT_LIBRARY ? OP_cuLibraryUnload : OP_cuModuleUnload;
		break;
	case OP_gleamGraphBegin:
		if (e->tag)
			return;
		op = OP_gleamGraphEnd;
		break;
	case OP_gleamLinkCreate:
		op = OP_gleamLinkEnd;
		break;
	case OP_gleamArrayCreate:
		op = OP_gleamArrayEnd;
		break;
	case OP_gleamMipmapCreate:
		op = OP_gleamMipmapEnd;
		break;
	case OP_gleamTexCreate:
		op = OP_gleamTexEnd;
		break;
	case OP_gleamSurfCreate:
		op = OP_gleamSurfEnd;
		break;
	default:
		return; /* functions, levels and settings go with what they are of */
	}
	move_say(w, op, entry_hdr(e)->ctx, false, &e->key, sizeof(e->key));
}

/* All of [@address, @bytes) is mapped, so that a texture can be made over it. */
static bool memory_is_there(const struct worker *w, uint64_t address, uint64_t bytes)
{
	for (uint64_t at = address; at - address < bytes;) {
		uint64_t end = grants_end_of(w, at);

		if (!end)
			end = vmms_end_of(w, at);
		if (!end)
			return false;
		at = end;
	}
	return true;
}

/* Programs may free memory before a texture over it: that one can't be made again, and isn't missed until it could. */
static bool can_be_made(const struct worker *w, const struct entry *e)
{
	struct reader r = entry_read(e);
	struct msg_gleamTexCreate m;

	if (entry_hdr(e)->op != OP_gleamTexCreate || !msg_gleamTexCreate_get(&r, &m))
		return true;
	if (m.type == CU_RESOURCE_TYPE_LINEAR)
		return memory_is_there(w, m.resource, m.width);
	if (m.type == CU_RESOURCE_TYPE_PITCH2D)
		return memory_is_there(w, m.resource, m.pitch * (m.height ? m.height - 1 : 0) + 1);
	return true;
}

/* Kernels know it by the driver's number. */
static void number_say(struct worker *w, const struct entry *e)
{
	struct object *o = object_find(w->tables, handle_type(e->key), e->key);
	uint64_t payload[2] = { e->key, (uint64_t)(uintptr_t)o->driver };

	move_say(w, OP_gleamMoveNumber, entry_hdr(e)->ctx, false, payload, sizeof(payload));
}

static bool has_number(const struct entry *e)
{
	return entry_hdr(e)->op == OP_gleamTexCreate || entry_hdr(e)->op == OP_gleamSurfCreate;
}

struct numbered {
	uint64_t number;
	struct entry *entry;
};

static int numbered_order(const void *a, const void *b)
{
	const struct numbered *one = a, *other = b;

	return one->number < other->number ? -1 : one->number > other->number;
}

/*
 * Textures and surfaces come last, by their numbers: a driver that has a number of both kinds gives them out upwards, and those that it gets
 * back not at once. What the other worker has to make on the way to a number is then of nobody's that is still to come.
 */
static bool numbered_say(struct worker *w, struct keep *k)
{
	struct numbered *all = malloc((k->count + 1) * sizeof(*all));
	uint32_t count = 0;

	if (!all)
		return false;
	for (struct entry *e = k->first; e; e = e->next)
		if (!e->said && has_number(e) && can_be_made(w, e))
			all[count++] = (struct numbered){ (uintptr_t)object_find(w->tables, handle_type(e->key), e->key)->driver, e };
	qsort(all, count, sizeof(*all), numbered_order);
	for (uint32_t i = 0; i < count; i++) {
		struct entry *e = all[i].entry;

		e->said = true;
		number_say(w, e);
		move_say_frame(w, e->frame, e->size);
	}
	free(all);
	return true;
}

bool keep_say(struct worker *w)
{
	struct keep *k = keeps(w);

	if (!k || k->trouble)
		return false;
	for (uint32_t i = 0; i < SESSION_CONTEXTS; i++)
		if (k->closed & 1ull << i)
			move_say(w, OP_gleamContextClose, CTX_NONE, false, &i, sizeof(i));
	k->closed = 0;
	/* Deaths first: another object may have the place since. */
	for (struct entry **link = &k->first; *link;) {
		struct entry *e = *link;

		if (entry_lives(w, e)) {
			link = &e->next;
			continue;
		}
		if (e->said)
			death_say(w, e);
		entry_drop(k, link);
	}
	for (struct entry *e = k->first; e; e = e->next) {
		if (e->said || has_number(e))
			continue;
		e->said = true;
		if (entry_hdr(e)->op == OP_gleamLoadAgain) {
			if (!e->image) {
				keep_trouble_note(w, "an image of its modules is not there any more; it stays until it is started again");
				return false;
			}
			image_say(w, e);
		}
		move_say_frame(w, e->frame, e->size);
		if (e->resources)
			resources_say(w, e->first, e->resources);
	}
	return numbered_say(w, k);
}

/* The shape of what an entry makes; false: no array. */
static bool array_shape(const struct entry *e, CUDA_ARRAY3D_DESCRIPTOR *desc_out, uint32_t *levels_out)
{
	struct reader r = entry_read(e);
	struct msg_gleamMipmapCreate m;
	struct msg_gleamArrayCreate a;

	if (entry_hdr(e)->op == OP_gleamArrayCreate && msg_gleamArrayCreate_get(&r, &a)) {
		m = (struct msg_gleamMipmapCreate){ .levels = 0, .width = a.width, .height = a.height, .depth = a.depth, .format = a.format,
						    .channels = a.channels, .flags = a.flags };
	} else if (entry_hdr(e)->op != OP_gleamMipmapCreate || !msg_gleamMipmapCreate_get(&r, &m) || !m.levels) {
		return false;
	}
	*desc_out = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = m.width, .Height = m.height, .Depth = m.depth,
					       .Format = (CUarray_format)m.format, .NumChannels = m.channels, .Flags = m.flags };
	*levels_out = m.levels;
	return true;
}

bool keep_arrays_say(struct worker *w, uint64_t *limit, uint64_t *left, uint64_t *total)
{
	for (struct entry *e = w->keep ? w->keep->first : NULL; e; e = e->next) {
		CUDA_ARRAY3D_DESCRIPTOR desc;
		const char *why;
		struct object *o;
		uint32_t levels;

		if (!e->said || !array_shape(e, &desc, &levels))
			continue;
		o = object_find(w->tables, handle_type(e->key), e->key);
		if (!o)
			continue;
		if (!e->array)
			e->array = move_array_new(&desc, levels, &why);
		if (!e->array) {
			keep_trouble_note(w, why);
			return false;
		}
		*total += move_array_bytes(e->array);
		if (!move_array_say(w, e->array, e->key, o->driver, entry_hdr(e)->ctx, limit, left))
			return false;
	}
	return true;
}

void keep_arrays_turn(struct worker *w)
{
	for (struct entry *e = w->keep ? w->keep->first : NULL; e; e = e->next)
		if (e->array)
			move_array_turn(e->array);
}

void keep_forget(struct worker *w)
{
	struct keep *k = w->keep;

	if (!k)
		return;
	k->closed = 0;
	placing_free(k);
	for (struct entry *e = k->first; e; e = e->next) {
		e->said = false;
		move_array_free(e->array);
		e->array = NULL;
		variables_forget(e);
	}
	keep_sweep(w);
}

/* The @number-th of the reasons that there may be; NULL: that one isn't there. */
static const char *trouble_at(struct worker *w, unsigned number)
{
	switch (number) {
	case 0:
		return w->keep ? w->keep->trouble : NULL;
	case 1:
		return links_trouble(w);
	case 2:
		return share_trouble(w);
	default:
		return vmms_trouble(w);
	}
}

const char *keep_trouble(struct worker *w)
{
	const char *why = NULL;

	for (unsigned i = 0; i < TROUBLES && !why; i++)
		why = trouble_at(w, i);
	return why;
}

void keep_troubles_tell(struct worker *w)
{
	unsigned count = 0;

	for (unsigned i = 0; i < TROUBLES; i++)
		count += trouble_at(w, i) != NULL;
	for (unsigned i = 0; i < TROUBLES && count > 1; i++)
		if (trouble_at(w, i))
			complain("move: %s", trouble_at(w, i));
}
