/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of modules leave: who knows where they lie, and what is in them. Executor thread; see variable.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/pointers.h"
#include "broker/worker/keep_private.h"
#include "broker/worker/note.h"
#include "broker/worker/variable.h"
#include "gen/worker_bodies.h"

#define ADDRESS_MIN   65536u	  /* nothing lies below */
#define ANYWHERE_MAX  (1u << 20) /* bytes of a variable that are looked at because any word may be an address */
#define PREPARE_BYTES (4u << 20) /* what an image counts for while the program runs: some of it is packed */

struct placed {
	struct entry *entry;
	struct variable *variable;
};

/* An address that a driver has filled in, of something that isn't a variable: a function. */
struct filled {
	uint32_t variable; /* in all[] */
	uint64_t offset;
	uint64_t value;
	bool held;
};

struct placing {
	struct placed *all; /* by address */
	uint32_t count;
	struct filled *filled; /* by variable and offset */
	uint32_t filled_count, filled_room;
	struct pointers pointers; /* ids: variables, and behind them what is filled in */
	bool said;		  /* all variables, before the contents */
	uint32_t next;		  /* whose contents are said next, */
	uint64_t at;		  /* and from where on */
};

void placing_free(struct keep *k)
{
	struct placing *p = k->placing;

	if (!p)
		return;
	free(p->all);
	free(p->filled);
	pointers_free(&p->pointers);
	free(p);
	k->placing = NULL;
}

bool variables_are_known(const struct worker *w)
{
	return !w->keep || w->keep->placing;
}

/* ---- which there are ---- */

/* A module or library is used in a context, or a function or kernel is of something. */
struct use {
	uint64_t key;
	uint64_t of;
	uint16_t ctx;
};

struct uses {
	struct use *at;
	uint32_t count;
};

static int use_order(const void *a, const void *b)
{
	const struct use *one = a, *other = b;

	if (one->key != other->key)
		return one->key < other->key ? -1 : 1;
	return one->ctx < other->ctx ? -1 : one->ctx > other->ctx;
}

/* The first of @key; NULL: none is. */
static const struct use *use_find(const struct uses *uses, uint64_t key)
{
	uint32_t low = 0, high = uses->count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (uses->at[mid].key < key)
			low = mid + 1;
		else
			high = mid;
	}
	return low < uses->count && uses->at[low].key == key ? &uses->at[low] : NULL;
}

/* What the birth of a function, a kernel or a library's module is of; 0: it is no such birth. */
static uint64_t birth_of(const struct entry *e)
{
	uint64_t of = 0;

	switch (entry_hdr(e)->op) {
	case OP_cuModuleGetFunction:
	case OP_cuLibraryGetKernel:
	case OP_cuLibraryGetModule:
	case OP_cuKernelGetFunction:
		memcpy(&of, e->frame + sizeof(struct frame_hdr) + sizeof(of), sizeof(of));
		break;
	default:
		break;
	}
	return of;
}

/*
 * Modules and libraries of which something has been used, and in which contexts. What nobody has used is as it is in the image, and asking a
 * lazy driver would only make it load that. False: out of memory.
 */
static bool uses_list(const struct keep *k, struct uses *uses)
{
	struct uses births = { .at = malloc((k->count + 1) * sizeof(*births.at)) };

	uses->count = 0;
	/* A function may be of a kernel, that of a library; and a module of a library. */
	uses->at = malloc((4 * (uint64_t)k->count + 1) * sizeof(*uses->at));
	if (!births.at || !uses->at) {
		free(births.at);
		free(uses->at);
		return false;
	}
	for (const struct entry *e = k->first; e; e = e->next)
		if (birth_of(e))
			births.at[births.count++] = (struct use){ .key = e->key, .of = birth_of(e) };
	qsort(births.at, births.count, sizeof(*births.at), use_order);
	for (const struct entry *e = k->first; e; e = e->next) {
		uint64_t key = entry_hdr(e)->op == OP_gleamMoveTouch ? e->key : birth_of(e);
		const struct use *birth;

		for (unsigned i = 0; key && i < 4; i++) {
			uses->at[uses->count++] = (struct use){ .key = key, .ctx = entry_hdr(e)->ctx };
			birth = use_find(&births, key);
			key = birth ? birth->of : 0;
		}
	}
	free(births.at);
	qsort(uses->at, uses->count, sizeof(*uses->at), use_order);
	return true;
}

static bool is_used(const struct entry *e, const struct uses *uses)
{
	return e->image && e->said && use_find(uses, e->key);
}

void variables_prepare(struct worker *w, uint64_t *limit)
{
	struct uses uses;

	if (!w->keep || !uses_list(w->keep, &uses))
		return;
	for (struct entry *e = w->keep->first; e && *limit; e = e->next)
		if (is_used(e, &uses) && !e->names_known) {
			variable_names(w, e);
			move_count(limit, e->image_size < PREPARE_BYTES ? e->image_size : PREPARE_BYTES, true);
		}
	free(uses.at);
}

/* The variables of @e: a module's in its context, a library's in each that it is used in. */
static bool entry_ask(struct worker *w, struct entry *e, const struct uses *uses)
{
	const struct use *use = use_find(uses, e->key), *end = uses->at + uses->count;

	if (!variable_names(w, e))
		return false;
	if (handle_type(e->key) == OBJECT_MODULE)
		return variable_ask(w, e, entry_hdr(e)->ctx);
	for (uint16_t before = CTX_NONE; use < end && use->key == e->key; use++) {
		if (use->ctx == before || use->ctx >= SESSION_CONTEXTS || !w->contexts[use->ctx].open)
			continue;
		before = use->ctx;
		if (!variable_ask(w, e, use->ctx))
			return false;
	}
	return true;
}

static int placed_order(const void *a, const void *b)
{
	const struct placed *one = a, *other = b;

	return one->variable->address < other->variable->address ? -1 : one->variable->address > other->variable->address;
}

static bool all_list(struct keep *k, struct placing *p)
{
	uint32_t count = 0;

	for (struct entry *e = k->first; e; e = e->next)
		count += e->variable_count;
	free(p->all);
	p->all = malloc((count + 1) * sizeof(*p->all));
	p->count = 0;
	if (!p->all)
		return false;
	for (struct entry *e = k->first; e; e = e->next)
		for (uint32_t i = 0; e->said && i < e->variable_count; i++)
			p->all[p->count++] = (struct placed){ e, &e->variables[i] };
	qsort(p->all, p->count, sizeof(*p->all), placed_order);
	return true;
}

/* Those that lie at @address are known; false: none does. */
static bool all_know(struct placing *p, uint64_t address)
{
	uint32_t low = 0, high = p->count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (p->all[mid].variable->address < address)
			low = mid + 1;
		else
			high = mid;
	}
	for (high = low; high < p->count && p->all[high].variable->address == address; high++)
		p->all[high].variable->known = true;
	return high > low;
}

/* What the program has asked for; of an image that can't be read, or by a name that is not in it, too. */
static bool known_mark(struct keep *k, struct placing *p)
{
	bool more = false;

	for (struct entry *e = k->first; e; e = e->next) {
		struct reader r = entry_read(e);
		struct msg_gleamMoveTouch m;

		if (!e->told || !e->said || all_know(p, e->told) || e->variable_count || !msg_gleamMoveTouch_get(&r, &m))
			continue;
		if (!variable_alone(e, m.name, e->told, e->told_size))
			return false;
		more = true;
	}
	return !more || all_list(k, p);
}

/* ---- what a driver fills in ---- */

static bool filled_add(struct placing *p, uint32_t variable, uint64_t offset, uint64_t value)
{
	/* A variable's address is looked for anyway. */
	if (value < ADDRESS_MIN || pointers_find(&p->pointers, value))
		return true;
	if (p->filled_count == p->filled_room) {
		uint32_t room = p->filled_room ? 2 * p->filled_room : 64;
		struct filled *filled = realloc(p->filled, room * sizeof(*filled));

		if (!filled)
			return false;
		p->filled = filled;
		p->filled_room = room;
	}
	p->filled[p->filled_count++] = (struct filled){ variable, offset, value, false };
	return true;
}

static bool filled_read(struct worker *w, struct placing *p, uint32_t index)
{
	const struct variable *v = p->all[index].variable;
	const struct named *named = v->named;
	uint64_t skip = -v->address & 7, value;
	bool sound = true;

	for (uint32_t i = 0; sound && !named->anywhere && i < named->word_count; i++)
		if (named->words[i] < v->size && v->size - named->words[i] >= sizeof(value))
			sound = w->drv.cuMemcpyDtoH_v2(&value, v->address + named->words[i], sizeof(value)) == CUDA_SUCCESS &&
				filled_add(p, index, named->words[i], value);
	if (!named->anywhere || v->size > ANYWHERE_MAX)
		return sound;

	uint8_t *bytes = malloc(v->size);

	sound = bytes && w->drv.cuMemcpyDtoH_v2(bytes, v->address, v->size) == CUDA_SUCCESS;
	for (uint64_t at = skip; sound && at + sizeof(value) <= v->size; at += sizeof(value)) {
		memcpy(&value, bytes + at, sizeof(value));
		sound = filled_add(p, index, at, value);
	}
	free(bytes);
	return sound;
}

static bool targets_add(struct worker *w, struct placing *p)
{
	for (uint32_t i = 0; i < p->count; i++)
		if (!pointers_add(&p->pointers, p->all[i].variable->address, p->all[i].variable->address + p->all[i].variable->size, i))
			return false;
	pointers_seal(&p->pointers);
	for (uint32_t i = 0; i < p->count; i++)
		if ((p->all[i].variable->named->word_count || p->all[i].variable->named->anywhere) &&
		    (!variable_context(w, p->all[i].variable->ctx) || !filled_read(w, p, i)))
			return false;
	for (uint32_t i = 0; i < p->filled_count; i++)
		if (!pointers_add(&p->pointers, p->filled[i].value, p->filled[i].value, p->count + i))
			return false;
	pointers_seal(&p->pointers);
	return true;
}

bool variables_look(struct worker *w)
{
	struct keep *k = w->keep;
	struct placing *p;
	struct uses uses;
	bool listed, sound;

	if (!k)
		return true;
	placing_free(k);
	p = calloc(1, sizeof(*p));
	listed = uses_list(k, &uses);
	sound = p && listed;
	for (struct entry *e = k->first; e && sound; e = e->next)
		if (is_used(e, &uses))
			sound = entry_ask(w, e, &uses);
	if (listed)
		free(uses.at);
	sound = sound && all_list(k, p) && known_mark(k, p);
	for (uint32_t i = 0; sound && i < p->count; i++)
		p->all[i].variable->where[0] = '\0';
	k->placing = p;
	if (!sound || !targets_add(w, p)) {
		placing_free(k);
		return false;
	}
	note(w, "move: %u variables of modules, and %u addresses of functions in them", p->count, p->filled_count);
	return true;
}

/* ---- who points to them ---- */

struct holder {
	struct placing *placing;
	const char *what;
	uint64_t offset; /* added to where a word was found */
};

static void held(void *arg, uint64_t at, uint64_t value)
{
	const struct holder *holder = arg;
	struct placing *p = holder->placing;
	const struct pointer_range *range = pointers_find(&p->pointers, value);
	const struct pointer_range *end = p->pointers.ranges + p->pointers.count;

	for (uint64_t from = range->from; range < end && range->from == from; range++) {
		if (value > range->end)
			continue;
		if (range->id >= p->count) {
			p->filled[range->id - p->count].held = true;
			continue;
		}

		struct variable *v = p->all[range->id].variable;

		if (!v->where[0])
			snprintf(v->where, sizeof(v->where), "%s at 0x%llx", holder->what, (unsigned long long)(at + holder->offset));
	}
}

void variables_held_by(struct worker *w, const struct move_place *place, uint64_t offset, const void *bytes, uint64_t size)
{
	struct placing *p = w->keep ? w->keep->placing : NULL;
	struct holder holder = {
		.placing = p, .what = place->handle ? "physical memory of the program's own" :
				      place->device < DEVICES_MAX ? "GPU memory" : "page-locked memory",
	};
	uint64_t address = place->address + offset;

	if (!p)
		return;
	/* Where physical memory can be read is nobody's address. */
	if (place->handle)
		holder.offset = -place->address;
	pointers_look(&p->pointers, bytes, size, address, held, &holder);
}

/* Parameters of kernels, and addresses of copies, in the order that the frame gives them. */
static void graphs_look(struct worker *w)
{
	struct placing *p = w->keep->placing;
	struct holder holder = { .placing = p, .what = "a captured or built graph, command" };

	for (const struct entry *e = w->keep->first; e; e = e->next)
		if (handle_type(e->key) == OBJECT_GRAPH || handle_type(e->key) == OBJECT_GRAPHEXEC)
			pointers_look_anywhere(&p->pointers, e->frame + sizeof(struct frame_hdr), e->size - sizeof(struct frame_hdr), 4,
					       held, &holder);
}

/* ---- saying ---- */

static void variable_say(struct worker *w, const struct placed *placed)
{
	uint8_t payload[VARIABLE_NAME + VARIABLE_WHERE + 128] __attribute__((aligned(8)));
	struct writer out = writer_on(payload, sizeof(payload));
	const struct variable *v = placed->variable;
	struct msg_gleamMoveVariable m = {
		.object = placed->entry->key, .address = v->address, .size = v->size, .name = v->named->name, .where = v->where,
		.flags = (v->known ? VARIABLE_KNOWN : 0) | (v->where[0] ? VARIABLE_HELD : 0) | (v->named->constant ? VARIABLE_CONSTANT : 0),
	};

	msg_gleamMoveVariable_put(&out, &m);
	move_say(w, OP_gleamMoveVariable, v->ctx, false, payload, (uint32_t)out.at);
}

static void variables_end_say(struct worker *w)
{
	uint8_t payload[128] __attribute__((aligned(8)));
	struct writer out = writer_on(payload, sizeof(payload));
	struct msg_gleamMoveVariable m = { .name = "", .where = "" };

	msg_gleamMoveVariable_put(&out, &m);
	move_say(w, OP_gleamMoveVariable, CTX_NONE, false, payload, (uint32_t)out.at);
}

/* What is known of the words of [@at, @at + @size) of variable @index; their number, or 0 if nothing is. */
static uint32_t words_flag(const struct placing *p, uint32_t index, uint64_t at, uint64_t size, uint8_t *flags)
{
	const struct variable *v = p->all[index].variable;
	const struct named *named = v->named;
	uint64_t skip = -v->address & 7;
	uint32_t count = size > skip ? (uint32_t)((size - skip) / 8) : 0;
	bool any = named->anywhere && count;

	memset(flags, !named->anywhere ? 0 : v->size > ANYWHERE_MAX ? WORD_FILLED | WORD_HELD : WORD_FILLED, count);
	for (uint32_t i = 0; i < named->word_count; i++)
		if (named->words[i] >= at + skip && named->words[i] - at - skip < count * 8ull) {
			flags[(named->words[i] - at - skip) / 8] |= WORD_FILLED;
			any = true;
		}
	for (uint32_t i = 0; any && i < p->filled_count; i++)
		if (p->filled[i].variable == index && p->filled[i].held && p->filled[i].offset >= at + skip &&
		    p->filled[i].offset - at - skip < count * 8ull)
			flags[(p->filled[i].offset - at - skip) / 8] |= WORD_HELD;
	return any ? count : 0;
}

/* Of the next variable, as far as @limit goes; p->at is its end when all of it is said. */
static bool contents_say(struct worker *w, struct placing *p, uint8_t *bytes, uint64_t *limit)
{
	uint8_t payload[VARIABLE_PART + VARIABLE_PART / 8 + 128] __attribute__((aligned(8)));
	uint8_t flags[VARIABLE_PART / 8];
	struct variable *v = p->all[p->next].variable;

	for (; p->at < v->size && *limit; p->at += VARIABLE_PART) {
		uint64_t at = p->at;
		uint64_t size = v->size - at < VARIABLE_PART ? v->size - at : VARIABLE_PART;
		struct writer out = writer_on(payload, sizeof(payload));
		struct msg_gleamMoveGlobal m = {
			.address = v->address, .offset = at, .data = bytes, .data_size = (uint32_t)size, .words = flags,
		};
		struct move_hash hash;

		if (w->drv.cuMemcpyDtoH_v2(bytes, v->address + at, size) != CUDA_SUCCESS)
			return false;
		m.words_size = words_flag(p, p->next, at, size, flags);
		hash = move_hash_of(bytes, size);
		/* What points elsewhere may have come since. */
		if (move_hash_same(hash, v->hashes[at / VARIABLE_PART]) && !m.words_size)
			continue;
		v->hashes[at / VARIABLE_PART] = hash;
		msg_gleamMoveGlobal_put(&out, &m);
		move_say(w, OP_gleamMoveGlobal, v->ctx, false, payload, (uint32_t)out.at);
		*limit -= size < *limit ? size : *limit;
	}
	return true;
}

/* Nobody can have changed it, and nothing in it depends on where the driver has put what. */
static bool is_as_loaded(const struct variable *v)
{
	return v->named->constant && !v->known && !v->named->word_count && !v->named->anywhere;
}

bool variables_say(struct worker *w, uint64_t *limit, uint64_t *left)
{
	struct placing *p = w->keep ? w->keep->placing : NULL;
	uint8_t *bytes;
	bool sound;

	if (!p)
		return !w->keep;
	if (!p->said) {
		graphs_look(w);
		/*
		 * By their addresses: a driver that loads lazily places the variables of a module when it is first used or asked for one, and the other
		 * worker's is asked in the order in which they lie here.
		 */
		for (uint32_t i = 0; i < p->count; i++)
			variable_say(w, &p->all[i]);
		variables_end_say(w);
		p->said = true;
	}
	bytes = malloc(VARIABLE_PART);
	sound = bytes != NULL;
	while (sound && p->next < p->count && *limit) {
		const struct placed *placed = &p->all[p->next];

		if (!is_as_loaded(placed->variable))
			sound = variable_context(w, placed->variable->ctx) && contents_say(w, p, bytes, limit);
		else
			p->at = placed->variable->size;
		if (p->at >= placed->variable->size) {
			p->next++;
			p->at = 0;
		}
	}
	free(bytes);
	*left += p->count - p->next;
	return sound;
}
