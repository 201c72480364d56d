/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables of modules arrive: they are compared with what this worker's driver has made of the same modules, and get the contents that they had. Executor
 * thread; see variable.h.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/pointers.h"
#include "broker/worker/keep_private.h"
#include "broker/worker/move_in.h"
#include "broker/worker/note.h"
#include "broker/worker/variable.h"
#include "gen/worker_bodies.h"

#define VARIABLES_MAX  1000000u
#define COMPLAINTS_MAX 64u /* of a move, in the log: reasons, */
#define SHOWN_MAX      8u  /* and variables that lie elsewhere */
#define NAME_SHOWN     96  /* bytes of a name in a message */

/* Where it was, and is. */
struct arrival {
	char *name;
	uint64_t from, to;
	uint64_t size;
	uint32_t flags;
};

struct arrivals {
	struct arrival *all;
	uint32_t count, room;
	bool whole;		  /* no more come; then pointers is good, too */
	struct pointers pointers; /* by where they were; ids are places in all[] */
	uint32_t moved;		  /* that lie elsewhere */
	uint32_t wrong;		  /* reasons why that can't be, */
	uint32_t known_wrong;	  /* and those that were known before variables came */
	char first[200];
};

static struct arrivals *arrivals(struct worker *w)
{
	if (!w->arrivals)
		w->arrivals = calloc(1, sizeof(*w->arrivals));
	return w->arrivals;
}

/* All but what has nothing to do with who points where. */
static void arrivals_clear(struct arrivals *a)
{
	struct arrivals empty = { .wrong = a->known_wrong, .known_wrong = a->known_wrong };

	for (uint32_t i = 0; i < a->count; i++)
		free(a->all[i].name);
	free(a->all);
	pointers_free(&a->pointers);
	if (a->known_wrong)
		memcpy(empty.first, a->first, sizeof(empty.first));
	*a = empty;
}

void variables_in_stop(struct worker *w)
{
	if (w->arrivals)
		arrivals_clear(w->arrivals);
	free(w->arrivals);
	w->arrivals = NULL;
}

/* All reasons are told, so that whoever reads them knows at once what is to be done. */
__attribute__((format(printf, 2, 3))) static void is_wrong(struct worker *w, const char *format, ...)
{
	struct arrivals *a = w->arrivals;
	char why[sizeof(a->first)];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	if (!a->wrong++)
		memcpy(a->first, why, sizeof(why));
	if (a->wrong <= COMPLAINTS_MAX)
		complain("move: %s", why);
}

static void known_is_wrong(struct worker *w, const char *name, uint64_t there, uint64_t here)
{
	is_wrong(w, "a module's variable (%.*s) would lie at 0x%llx instead of 0x%llx, which the program knows", NAME_SHOWN, name,
		 (unsigned long long)here, (unsigned long long)there);
}

static void wrong_ends(struct worker *w, uint16_t op)
{
	const struct arrivals *a = w->arrivals;
	char why[256];

	snprintf(why, sizeof(why), a->wrong > 1 ? "%s, and %u more like that, see its log" : "%s", a->first, a->wrong - 1);
	move_in_failed(w, op, CUDA_ERROR_INVALID_ADDRESS_SPACE, why);
}

void variables_in_known(struct worker *w, const char *name, uint64_t there, uint64_t here)
{
	/* It is found at the end, too. */
	if (!arrivals(w))
		return;
	known_is_wrong(w, name, there, here);
	w->arrivals->known_wrong++;
}

void variables_in_doubt(struct worker *w, uint16_t op)
{
	if (w->moving && w->arrivals && w->arrivals->known_wrong)
		wrong_ends(w, op);
}

/* ---- where they are ---- */

static bool arrivals_seal(struct arrivals *a)
{
	for (uint32_t i = 0; i < a->count; i++)
		if (!pointers_add(&a->pointers, a->all[i].from, a->all[i].from + a->all[i].size, i))
			return false;
	pointers_seal(&a->pointers);
	a->whole = true;
	return true;
}

static struct arrival *arrival_add(struct arrivals *a)
{
	if (a->count == VARIABLES_MAX)
		return NULL;
	if (a->count == a->room) {
		uint32_t room = a->room ? 2 * a->room : 64;
		struct arrival *all = realloc(a->all, room * sizeof(*all));

		if (!all)
			return NULL;
		a->all = all;
		a->room = room;
	}
	a->all[a->count] = (struct arrival){ .name = NULL };
	return &a->all[a->count++];
}

CUresult worker_do_gleamMoveVariable(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveVariable *m)
{
	uint64_t address, size;
	struct arrival *one;
	CUresult r;

	if (!w->moving || m->address + m->size < m->address)
		return CMD_BROKEN;
	if (!arrivals(w))
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* Once more, from the beginning: the program has gone on since. */
	if (w->arrivals->whole)
		arrivals_clear(w->arrivals);
	if (!m->size)
		return arrivals_seal(w->arrivals) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	r = variable_find(w, m->object, m->name, &address, &size);
	if (r != CUDA_SUCCESS || size != m->size) {
		char why[256];

		snprintf(why, sizeof(why), "a module's variable (%.*s) of %llu bytes isn't there (%d, %llu bytes)", NAME_SHOWN, m->name,
			 (unsigned long long)m->size, (int)r, (unsigned long long)size);
		move_in_failed(w, cmd->hdr->op, CUDA_ERROR_NOT_FOUND, why);
		return CUDA_SUCCESS;
	}
	one = arrival_add(w->arrivals);
	if (!one)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*one = (struct arrival){ .name = strdup(m->name), .from = m->address, .to = address, .size = size, .flags = m->flags };
	if (!one->name)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (address == m->address)
		return CUDA_SUCCESS;
	if (++w->arrivals->moved <= SHOWN_MAX)
		complain("move: variable %.*s of %llu bytes lies at 0x%llx instead of 0x%llx%s", NAME_SHOWN, m->name, (unsigned long long)size,
	     (unsigned long long)address, (unsigned long long)m->address,
	     m->flags & VARIABLE_KNOWN ? ", which the program knows" : m->flags & VARIABLE_HELD ? ", which is pointed to" : "");
	if (m->flags & VARIABLE_KNOWN)
		known_is_wrong(w, m->name, m->address, address);
	else if (m->flags & VARIABLE_HELD)
		is_wrong(w, "a module's variable (%.*s) would lie at 0x%llx instead of 0x%llx, where %.60s points to", NAME_SHOWN, m->name,
			 (unsigned long long)address, (unsigned long long)m->address, m->where);
	return CUDA_SUCCESS;
}

/* ---- what is in them ---- */

/* The one that begins at @from, or else NULL. */
static const struct arrival *arrival_at(const struct arrivals *a, uint64_t from)
{
	const struct pointer_range *range = pointers_find(&a->pointers, from);

	return range && range->from == from ? &a->all[range->id] : NULL;
}

/* Is @here what the driver has made of a pointer that was @there? The variable that it points to; NULL: it is no such pointer. */
static const struct arrival *pointed_to(const struct arrivals *a, uint64_t there, uint64_t here, bool *same_out)
{
	const struct pointer_range *range = pointers_find(&a->pointers, there);
	const struct arrival *first = range ? &a->all[range->id] : NULL;

	*same_out = false;
	if (!range)
		return NULL;
	*same_out = here - first->to == there - first->from;
	/* Behind the end of one another may begin: either may be meant. */
	for (; !*same_out && range-- > a->pointers.ranges && range->end == there;)
		*same_out = here - a->all[range->id].to == there - range->from;
	return first;
}

/* Tables of virtual functions, which no program writes to. */
static bool is_vtable(const struct arrival *v)
{
	return strncmp(v->name, "_ZTV", 4) == 0;
}

/*
 * One word of @v that was @there with the other worker, and is @here as this one's driver has loaded it. What it must be; docs/migration.md has the
 * rule.
 */
static uint64_t word_resolve(struct worker *w, const struct arrival *v, uint64_t offset, uint64_t there, uint64_t here, uint8_t flags)
{
	const struct arrival *target;
	bool same;

	if (there == here)
		return there;
	target = pointed_to(w->arrivals, there, here, &same);
	if (target && same)
		return here;
	if (target && target->from == target->to)
		return there;
	if (target) {
		is_wrong(w, "a module's variable (%.*s) would lie at 0x%llx instead of 0x%llx, where another one (%.*s) points to", NAME_SHOWN / 2,
			 target->name, (unsigned long long)target->to, (unsigned long long)target->from, NAME_SHOWN / 2, v->name);
		return here;
	}
	if (!(flags & WORD_FILLED))
		return there;
	if (flags & WORD_HELD)
		is_wrong(w, "a module's variable (%.*s) has a function's address at byte %llu, 0x%llx, which memory holds and which would be 0x%llx",
			 NAME_SHOWN, v->name, (unsigned long long)offset, (unsigned long long)there, (unsigned long long)here);
	else if (!is_vtable(v) && !((v->flags & VARIABLE_CONSTANT) && !(v->flags & VARIABLE_KNOWN)))
		is_wrong(w, "a module's variable (%.*s) has a function's address at byte %llu, 0x%llx, which would be 0x%llx, or another one's",
			 NAME_SHOWN, v->name, (unsigned long long)offset, (unsigned long long)there, (unsigned long long)here);
	return here;
}

CUresult worker_do_gleamMoveGlobal(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveGlobal *m)
{
	const struct arrival *v;
	const uint8_t *flags = m->words;
	uint8_t *there, *here;
	uint64_t skip;
	CUresult r;

	if (!w->moving || !w->arrivals || !w->arrivals->whole || !m->data_size)
		return CMD_BROKEN;
	v = arrival_at(w->arrivals, m->address);
	if (!v || m->offset > v->size || m->data_size > v->size - m->offset)
		return CUDA_ERROR_INVALID_VALUE;
	there = malloc(2 * (size_t)m->data_size);
	if (!there)
		return CUDA_ERROR_OUT_OF_MEMORY;
	here = there + m->data_size;
	memcpy(there, m->data, m->data_size);
	r = w->drv.cuMemcpyDtoH_v2(here, v->to + m->offset, m->data_size);
	skip = -(m->address + m->offset) & 7;
	for (uint64_t at = skip; r == CUDA_SUCCESS && at + 8 <= m->data_size; at += 8) {
		uint64_t index = (at - skip) / 8, was, is;

		memcpy(&was, there + at, sizeof(was));
		memcpy(&is, here + at, sizeof(is));
		was = word_resolve(w, v, m->offset + at, was, is, index < m->words_size ? flags[index] : 0);
		memcpy(there + at, &was, sizeof(was));
	}
	/* A constant that the program can't have changed is as it was loaded: looking was enough. */
	if (r == CUDA_SUCCESS && (!(v->flags & VARIABLE_CONSTANT) || (v->flags & VARIABLE_KNOWN)) && memcmp(there, here, m->data_size) != 0)
		r = w->drv.cuMemcpyHtoD_v2(v->to + m->offset, there, m->data_size);
	free(there);
	return r;
}

void variables_in_end(struct worker *w, uint16_t op)
{
	struct arrivals *a = w->arrivals;

	if (!a)
		return;
	if (a->moved)
		complain("move: %u of %u variables of modules lie elsewhere than before", a->moved, a->count);
	if (a->wrong)
		wrong_ends(w, op);
	variables_in_stop(w);
}
