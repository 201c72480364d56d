/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of modules: which there are, and where. Executor thread; see keep_private.h. */
#include <stdlib.h>
#include <string.h>

#include "broker/lib/fatbin.h"
#include "broker/lib/imagevars.h"
#include "broker/worker/keep_private.h"
#include "broker/worker/variable.h"

#define VARIABLES_MAX 65536u	   /* of an image */
#define WORDS_MAX     (1u << 20)   /* of an image that a driver fills in */
#define UNPACKED_MAX  (1ull << 30)

/* ---- names ---- */

/* A variable, or a word of one; the name lies in the image. */
struct found {
	const char *name;
	size_t name_size;
	uint64_t offset;
	bool constant;
};

struct finds {
	struct found *at;
	uint32_t count, room, most;
};

struct look {
	struct finds variables, words;
	bool failed; /* out of memory */
};

static void find_add(struct look *look, struct finds *finds, const struct found *found)
{
	if (finds->count == finds->most || !found->name_size || found->name_size >= VARIABLE_NAME)
		return;
	if (finds->count == finds->room) {
		uint32_t room = finds->room ? 2 * finds->room : 64;
		struct found *at = realloc(finds->at, room * sizeof(*at));

		if (!at) {
			look->failed = true;
			return;
		}
		finds->at = at;
		finds->room = room;
	}
	finds->at[finds->count++] = *found;
}

static void variable_hear(void *arg, const char *name, size_t name_size, bool constant)
{
	struct look *look = arg;

	find_add(look, &look->variables, &(struct found){ .name = name, .name_size = name_size, .constant = constant });
}

static void word_hear(void *arg, const char *name, size_t name_size, uint64_t offset)
{
	struct look *look = arg;

	find_add(look, &look->words, &(struct found){ .name = name, .name_size = name_size, .offset = offset });
}

static int name_order(const struct found *one, const struct found *other)
{
	size_t size = one->name_size < other->name_size ? one->name_size : other->name_size;
	int order = memcmp(one->name, other->name, size);

	return order ? order : one->name_size < other->name_size ? -1 : one->name_size > other->name_size;
}

static int found_order(const void *a, const void *b)
{
	const struct found *one = a, *other = b;
	int order = name_order(one, other);

	return order ? order : one->offset < other->offset ? -1 : one->offset > other->offset;
}

static void named_free(struct named *v)
{
	free(v->name);
	free(v->words);
}

/* The words of @v are those at @words. False: out of memory. */
static bool words_take(struct named *v, const struct found *words, uint32_t count)
{
	uint64_t *all = realloc(v->words, (v->word_count + (uint64_t)count + 1) * sizeof(*all));

	if (!all)
		return false;
	v->words = all;
	for (uint32_t i = 0; i < count; i++)
		if (words[i].offset == IMAGEVARS_ANYWHERE)
			v->anywhere = true;
		else if (!v->word_count || v->words[v->word_count - 1] != words[i].offset)
			v->words[v->word_count++] = words[i].offset;
	return true;
}

/* What was found in one piece of an image becomes names of @e: each once. */
static bool finds_take(struct entry *e, struct look *look)
{
	struct finds *names = &look->variables, *words = &look->words;
	struct named *all = realloc(e->names, (e->name_count + (uint64_t)names->count + 1) * sizeof(*all));
	uint32_t word = 0;

	if (look->failed || !all) {
		e->names = all ? all : e->names;
		return false;
	}
	e->names = all;
	if (names->count)
		qsort(names->at, names->count, sizeof(*names->at), found_order);
	if (words->count)
		qsort(words->at, words->count, sizeof(*words->at), found_order);
	for (uint32_t i = 0, next; i < names->count; i = next) {
		struct named v = { .name = strndup(names->at[i].name, names->at[i].name_size), .constant = true };
		uint32_t from;

		for (next = i; next < names->count && name_order(&names->at[i], &names->at[next]) == 0; next++)
			v.constant &= names->at[next].constant;
		while (word < words->count && name_order(&words->at[word], &names->at[i]) < 0)
			word++;
		for (from = word; word < words->count && name_order(&words->at[word], &names->at[i]) == 0; word++)
			;
		if (!v.name || !words_take(&v, &words->at[from], word - from)) {
			named_free(&v);
			return false;
		}
		e->names[e->name_count++] = v;
	}
	return true;
}

static bool bytes_look(struct entry *e, const uint8_t *bytes, size_t size)
{
	struct look look = { .variables.most = VARIABLES_MAX, .words.most = WORDS_MAX };
	const struct imagevars_hear hear = { .variable = variable_hear, .word = word_hear, .arg = &look };
	bool sound = imagevars_look(bytes, size, &hear) && finds_take(e, &look);

	free(look.variables.at);
	free(look.words.at);
	return sound;
}

static int named_order(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

/* Pieces of one image may name the same one: then any of its words may be filled in. */
static void names_merge(struct entry *e)
{
	uint32_t kept = 0;

	if (e->name_count)
		qsort(e->names, e->name_count, sizeof(*e->names), named_order);
	for (uint32_t i = 0; i < e->name_count; i++) {
		if (kept && strcmp(e->names[kept - 1].name, e->names[i].name) == 0) {
			e->names[kept - 1].anywhere |= e->names[i].anywhere || e->names[i].word_count;
			e->names[kept - 1].constant &= e->names[i].constant;
			named_free(&e->names[i]);
		} else {
			e->names[kept++] = e->names[i];
		}
	}
	e->name_count = kept;
}

/* The pieces of a container that a driver takes for the device: as much as all of them is too much to unpack while a program is held. */
static bool container_look(struct worker *w, struct entry *e, const struct fatbin_image *image)
{
	uint16_t ctx = entry_hdr(e)->ctx;
	uint32_t device = ctx < SESSION_CONTEXTS && w->contexts[ctx].open ? w->contexts[ctx].device : 0;
	const int32_t *attributes = w->snapshot->devices[device].attributes;
	struct fatbin_entry taken, piece;
	bool chosen = fatbin_choose(image->data, image->size, attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR],
				    attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR], true, &taken) == 1;
	struct fatbin_iter iter;
	bool sound = true;

	fatbin_iter_init(&iter, image->data, image->size);
	while (sound && fatbin_iter_next(&iter, &piece) == 1) {
		uint8_t *bytes;
		size_t size;

		if (piece.unpacked_size > UNPACKED_MAX || (chosen && (piece.kind != taken.kind || piece.arch != taken.arch)))
			continue;
		bytes = malloc(piece.unpacked_size + 1);
		if (!bytes)
			return false;
		if (fatbin_entry_unpack(&piece, bytes, piece.unpacked_size, &size) == 0) {
			bytes[size] = '\0';
			sound = bytes_look(e, bytes, size);
		}
		free(bytes);
	}
	return sound;
}

bool variable_names(struct worker *w, struct entry *e)
{
	struct fatbin_image image;
	bool sound;

	if (e->names_known || !e->image)
		return true;
	/* The zero behind a text belongs to it. */
	if (fatbin_parse(e->image, e->image_size + 1, &image))
		return true;
	sound = image.data_form == FATBIN_FORM_CONTAINER ? container_look(w, e, &image) : bytes_look(e, image.data, image.size);
	names_merge(e);
	e->names_known = sound;
	return sound;
}

/* ---- places ---- */

bool variable_context(struct worker *w, uint16_t ctx)
{
	if (ctx >= SESSION_CONTEXTS || !w->contexts[ctx].open)
		return true;
	w->current_known = false;
	return w->drv.cuCtxSetCurrent(w->contexts[ctx].driver) == CUDA_SUCCESS;
}

CUresult variable_find(struct worker *w, uint64_t object, const char *name, uint64_t *address_out, uint64_t *size_out)
{
	enum object_type type = handle_type(object);
	struct object *o = object_find(w->tables, type, object);
	CUdeviceptr address = 0;
	size_t size = 0;
	CUresult r;

	if (!o || (type != OBJECT_MODULE && type != OBJECT_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	r = type == OBJECT_LIBRARY ? w->drv.cuLibraryGetGlobal(&address, &size, o->driver, name) :
				     w->drv.cuModuleGetGlobal_v2(&address, &size, o->driver, name);
	/* A driver may keep the two kinds apart. */
	if (type == OBJECT_LIBRARY && r == CUDA_ERROR_NOT_FOUND)
		r = w->drv.cuLibraryGetManaged(&address, &size, o->driver, name);
	*address_out = address;
	*size_out = size;
	return r;
}

static struct move_hash *hashes_new(uint64_t size)
{
	return calloc((size + VARIABLE_PART - 1) / VARIABLE_PART, sizeof(struct move_hash));
}

bool variable_ask(struct worker *w, struct entry *e, uint16_t ctx)
{
	uint64_t bit = ctx < SESSION_CONTEXTS ? 1ull << ctx : UINT64_MAX;
	struct variable *all;

	if ((e->asked & bit) == bit)
		return true;
	all = realloc(e->variables, (e->variable_count + (uint64_t)e->name_count + 1) * sizeof(*all));
	if (!all)
		return false;
	e->variables = all;
	if (!variable_context(w, ctx))
		return false;
	for (uint32_t i = 0; i < e->name_count; i++) {
		struct variable v = { .named = &e->names[i], .ctx = ctx };

		if (variable_find(w, e->key, e->names[i].name, &v.address, &v.size) != CUDA_SUCCESS || !v.size)
			continue;
		v.hashes = hashes_new(v.size);
		if (!v.hashes)
			return false;
		e->variables[e->variable_count++] = v;
	}
	e->asked |= bit;
	return true;
}

bool variable_alone(struct entry *e, const char *name, uint64_t address, uint64_t size)
{
	e->names = calloc(1, sizeof(*e->names));
	e->variables = calloc(1, sizeof(*e->variables));
	if (!e->names || !e->variables)
		return false;
	e->names_known = true;
	e->names[0].name = strdup(name);
	e->name_count = 1;
	e->variables[0] = (struct variable){ .named = e->names, .ctx = entry_hdr(e)->ctx, .address = address, .size = size, .known = true,
					     .hashes = hashes_new(size) };
	e->variable_count = 1;
	return e->names[0].name && e->variables[0].hashes;
}

/* ---- the end ---- */

void variables_closed(struct entry *e, uint16_t ctx)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < e->variable_count; i++)
		if (e->variables[i].ctx == ctx)
			free(e->variables[i].hashes);
		else
			e->variables[kept++] = e->variables[i];
	e->variable_count = kept;
	if (ctx < SESSION_CONTEXTS)
		e->asked &= ~(1ull << ctx);
}

void variables_forget(struct entry *e)
{
	for (uint32_t i = 0; i < e->variable_count; i++)
		memset(e->variables[i].hashes, 0, (e->variables[i].size + VARIABLE_PART - 1) / VARIABLE_PART * sizeof(struct move_hash));
}

void variables_free(struct entry *e)
{
	for (uint32_t i = 0; i < e->variable_count; i++)
		free(e->variables[i].hashes);
	for (uint32_t i = 0; i < e->name_count; i++)
		named_free(&e->names[i]);
	free(e->variables);
	free(e->names);
}
