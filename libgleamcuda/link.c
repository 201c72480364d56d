// SPDX-License-Identifier: Apache-2.0
/*
 * The linker. The link itself is the node's driver's; every step is answered, since programs look at codes and logs at once.
 * The image that comes out is read whole and belongs to the state, as the manual says. Application threads; a state is used
 * by one thread at a time, as with the driver.
 */
#include "libgleamcuda/link.h"

#include <stdlib.h>
#include <string.h>

#include "broker/lib/fatbin.h"
#include "broker/proto/verdict.h"
#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/file.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/image.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stable.h"

#define PART_SIZE (32u << 10) /* of an input, in one frame */
#define NAME_MAX_SIZE 4095u   /* longer names of inputs are cut: they appear in logs only */
#define CELL_HEAD 8u	      /* of what gleamLinkRead brings: the size of the whole */

struct link {
	uint64_t handle;
	struct context *context;
	/* Options that write back: the program's words, and what they were at first. */
	uint32_t count;
	CUjit_option options[JIT_OPTIONS];
	void *first[JIT_OPTIONS];
	void **values;
	void *image;
};

static struct stable links = STABLE(struct link);

static CUresult link_of(struct call *call, CUlinkState state, struct link **link_out)
{
	struct link *link = handle_data(OBJECT_LINK, (uint64_t)(uintptr_t)state);

	if (!link)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!__atomic_load_n(&link->context->active, __ATOMIC_ACQUIRE))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	call_in(call, link->context);
	*link_out = link;
	return CUDA_SUCCESS;
}

/* ---- answers ---- */

/* Logs, sizes and times go to the words that the program gave, measured by what they were at the beginning. */
static void link_tell(const struct link *link, const void *verdict, size_t size)
{
	void *values[JIT_OPTIONS];
	struct jit jit = { .count = link->count, .options = link->options, .values = values, .tells = true };

	if (!link->count)
		return;
	memcpy(values, link->first, link->count * sizeof(values[0]));
	jit_tell(&jit, verdict, size);
	for (uint32_t i = 0; i < link->count; i++)
		if (values[i] != link->first[i] || jit_is_told(link->options[i]))
			link->values[i] = values[i];
}

/* Wait for the frame that is open and take the verdict in @ref's cells, which are given back. */
static CUresult verdict_take(struct call *call, const struct link *link, const struct bulk_ref *ref, const void *cells)
{
	CUresult result = call_wait(call);
	uint8_t *copy = result ? NULL : malloc(ref->size);
	struct verdict v = { .code = CUDA_ERROR_UNKNOWN };

	if (copy) {
		struct reader r = reader_on(copy, ref->size);

		memcpy(copy, cells, ref->size);
		if (verdict_get(&r, &v) && !(v.flags & VERDICT_LARGER))
			link_tell(link, copy, ref->size);
		else
			v.code = CUDA_ERROR_UNKNOWN;
	} else if (!result) {
		v.code = CUDA_ERROR_OUT_OF_MEMORY;
	}
	free(copy);
	if (!session_is_dead(call->session))
		session_cells_give(call->session, ref);
	return result ? result : (CUresult)v.code;
}

static CUresult cells_take(struct call *call, struct bulk_ref *ref, void **cells_out)
{
	CUresult result = session_cells_take(call->session, SESSION_CELL_SIZE, ref, cells_out);

	/* Old bytes of another answer must not be taken for this one's. */
	if (!result)
		memset(*cells_out, 0, VERDICT_HEADER_SIZE);
	return result;
}

/* ---- birth and death ---- */

CUresult do_cuLinkCreate_v2(struct call *call, unsigned int numOptions, CUjit_option *options, void **optionValues,
			    CUlinkState *stateOut)
{
	struct msg_gleamLinkCreate m;
	struct link *link;
	struct jit jit;
	CUresult result;

	if (!stateOut)
		return CUDA_ERROR_INVALID_VALUE;
	result = jit_read(call, numOptions, options, optionValues, &jit);
	if (result)
		return result;
	link = stable_take(&links);
	if (!link)
		return CUDA_ERROR_OUT_OF_MEMORY;
	link->context = call->context;
	link->count = numOptions;
	link->values = optionValues;
	if (numOptions) {
		memcpy(link->options, options, numOptions * sizeof(options[0]));
		memcpy(link->first, optionValues, numOptions * sizeof(optionValues[0]));
	}
	link->handle = handle_new(OBJECT_LINK, call->context, link);
	result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!link->handle)
		goto give_link;
	m = (struct msg_gleamLinkCreate){ .link = link->handle, .options = jit.wire, .options_size = jit.wire_size };
	result = CALL_ASK(call, gleamLinkCreate, &m);
	if (result)
		goto end_handle;
	*stateOut = (CUlinkState)(uintptr_t)link->handle;
	return CUDA_SUCCESS;

end_handle:
	handle_end(link->handle);
give_link:
	stable_give(&links, link);
	return result;
}

static void link_end(uint64_t handle, void *data)
{
	struct link *link = data;

	if (!handle_end(handle))
		return;
	free(link->image);
	link->image = NULL;
	stable_give(&links, link);
}

CUresult do_cuLinkDestroy(struct call *call, CUlinkState state)
{
	struct msg_gleamLinkEnd m;
	struct link *link;
	CUresult result = link_of(call, state, &link);

	if (result)
		return result;
	m.link = link->handle;
	result = CALL_SEND(call, gleamLinkEnd, &m);
	if (result)
		return result;
	link_end(link->handle, link);
	return CUDA_SUCCESS;
}

void link_context_closed(struct context *context)
{
	handle_each(OBJECT_LINK, context, link_end);
}

/* ---- inputs ---- */

static CUresult input_send(struct call *call, const struct link *link, const uint8_t *bytes, size_t size)
{
	for (size_t at = 0; at < size; at += PART_SIZE) {
		struct msg_gleamLinkPart m = { .link = link->handle, .data = bytes + at,
					       .data_size = size - at < PART_SIZE ? (uint32_t)(size - at) : PART_SIZE };
		CUresult result = CALL_SEND(call, gleamLinkPart, &m);

		if (result)
			return result;
	}
	return CUDA_SUCCESS;
}

static CUresult input_add(struct call *call, struct link *link, CUjitInputType type, const void *data, size_t size,
			  const char *name, unsigned int count, CUjit_option *options, void **values)
{
	struct msg_gleamLinkAdd m = { .link = link->handle, .type = (uint32_t)type, .total_size = size };
	char short_name[NAME_MAX_SIZE + 1] = "";
	struct jit jit;
	void *cells;
	CUresult result;

	if (!data || !size || (int)type < 0 || (int)type >= CU_JIT_NUM_INPUT_TYPES)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > FATBIN_IMAGE_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = jit_read(call, count, options, values, &jit);
	if (result)
		return result;
	if (name)
		strncpy(short_name, name, NAME_MAX_SIZE);
	m.name = short_name;
	m.options = jit.wire;
	m.options_size = jit.wire_size;
	result = input_send(call, link, data, size);
	if (result)
		return result;
	result = cells_take(call, &m.answer, &cells);
	if (result)
		return result;
	result = call_open_bulk(call, OP_gleamLinkAdd, msg_gleamLinkAdd_size(&m), FRAME_BULK_DOWN, &m.answer);
	if (result) {
		session_cells_give(call->session, &m.answer);
		return result;
	}
	msg_gleamLinkAdd_put(&call->w, &m);
	return verdict_take(call, link, &m.answer, cells);
}

CUresult do_cuLinkAddData_v2(struct call *call, CUlinkState state, CUjitInputType type, void *data, size_t size,
			     const char *name, unsigned int numOptions, CUjit_option *options, void **optionValues)
{
	struct link *link;
	CUresult result = link_of(call, state, &link);

	return result ? result : input_add(call, link, type, data, size, name, numOptions, options, optionValues);
}

CUresult do_cuLinkAddFile_v2(struct call *call, CUlinkState state, CUjitInputType type, const char *path,
			     unsigned int numOptions, CUjit_option *options, void **optionValues)
{
	struct link *link;
	uint64_t size;
	void *bytes;
	CUresult result = link_of(call, state, &link);

	if (result)
		return result;
	if (!path)
		return CUDA_ERROR_INVALID_VALUE;
	result = file_read(path, &bytes, &size);
	if (result)
		return result;
	/* A zero is behind the file, which is part of a text only. */
	if (type != CU_JIT_INPUT_PTX)
		size--;
	result = input_add(call, link, type, bytes, size, path, numOptions, options, optionValues);
	free(bytes);
	return result;
}

/* ---- the image ---- */

static CUresult image_part(struct call *call, struct link *link, uint64_t offset, uint8_t **bytes_io, uint64_t *size_io)
{
	struct msg_gleamLinkRead m = { .link = link->handle, .offset = offset };
	uint64_t whole, part;
	void *cells;
	CUresult result = cells_take(call, &m.answer, &cells);

	if (result)
		return result;
	result = call_open_bulk(call, OP_gleamLinkRead, msg_gleamLinkRead_size(&m), FRAME_BULK_DOWN, &m.answer);
	if (!result) {
		msg_gleamLinkRead_put(&call->w, &m);
		result = call_wait(call);
	}
	if (result)
		goto give_cells;
	memcpy(&whole, cells, CELL_HEAD);
	result = CUDA_ERROR_UNKNOWN;
	if (!whole || whole > FATBIN_IMAGE_MAX || (offset && whole != *size_io))
		goto give_cells;
	result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!offset)
		*bytes_io = malloc(whole + 1); /* text ends somewhere */
	if (!*bytes_io)
		goto give_cells;
	*size_io = whole;
	part = whole - offset < SESSION_CELL_SIZE - CELL_HEAD ? whole - offset : SESSION_CELL_SIZE - CELL_HEAD;
	memcpy(*bytes_io + offset, (const uint8_t *)cells + CELL_HEAD, part);
	(*bytes_io)[whole] = '\0';
	call_count_bytes(call, part);
	result = CUDA_SUCCESS;
give_cells:
	if (!session_is_dead(call->session))
		session_cells_give(call->session, &m.answer);
	return result;
}

CUresult do_cuLinkComplete(struct call *call, CUlinkState state, void **cubinOut, size_t *sizeOut)
{
	struct msg_gleamLinkComplete m;
	uint8_t *bytes = NULL;
	uint64_t size = 0;
	struct link *link;
	void *cells;
	CUresult result = link_of(call, state, &link);

	if (result)
		return result;
	if (!cubinOut)
		return CUDA_ERROR_INVALID_VALUE;
	m.link = link->handle;
	result = cells_take(call, &m.answer, &cells);
	if (result)
		return result;
	result = call_open_bulk(call, OP_gleamLinkComplete, msg_gleamLinkComplete_size(&m), FRAME_BULK_DOWN, &m.answer);
	if (result) {
		session_cells_give(call->session, &m.answer);
		return result;
	}
	msg_gleamLinkComplete_put(&call->w, &m);
	result = verdict_take(call, link, &m.answer, cells);
	for (uint64_t at = 0; !result && (!at || at < size); at += SESSION_CELL_SIZE - CELL_HEAD)
		result = image_part(call, link, at, &bytes, &size);
	if (result) {
		free(bytes);
		return result;
	}
	free(link->image);
	link->image = bytes;
	*cubinOut = bytes;
	if (sizeOut)
		*sizeOut = size;
	return CUDA_SUCCESS;
}
