/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of a session's record share: keep.c (its commands), keep_out.c (what is said of them), variable.c and variable_out.c (modules'
 * variables). Executor thread.
 */
#ifndef GLEAM_WORKER_KEEP_PRIVATE_H
#define GLEAM_WORKER_KEEP_PRIVATE_H

#include "broker/lib/codec.h"
#include "broker/worker/keep.h"
#include "broker/worker/move_out.h"

#define VARIABLE_NAME  4096u  /* a name's bytes, with its end; longer ones are no driver's */
#define VARIABLE_PART  49152u /* of contents in a command */
#define VARIABLE_WHERE 96u    /* a place that is told */

/* A variable, as an image names it; of a library there is one in each context that it is used in. */
struct named {
	char *name;
	bool constant;	 /* kernels can't change it */
	bool anywhere;	 /* it isn't known which of its words the driver fills in with addresses: any */
	uint64_t *words; /* offsets of those that it does; upwards */
	uint32_t word_count;
};

/* And as the driver has it. */
struct variable {
	const struct named *named;
	uint16_t ctx; /* CTX_NONE: of no context of its own */
	uint64_t address;
	uint64_t size;
	bool known; /* the program has asked where it lies */
	struct move_hash *hashes; /* of each VARIABLE_PART, as it was said */
	char where[VARIABLE_WHERE]; /* something that moves points to it: what; "": nothing does */
};

struct entry {
	struct entry *next;
	uint64_t key;	 /* handle, or a context's index and one, or FOREVER */
	uint32_t tag;	 /* of changes of a graph: 0 for what it was made of, place + 1, UINT32_MAX for the whole */
	uint64_t part;	 /* of changes: the graph, or the body in it, that the place is in */
	uint32_t first;	 /* of resources: the number of the first, and how many there are */
	uint32_t resources;
	bool said;
	uint8_t *image; /* a load: its bytes; then the frame is gleamLoadAgain */
	uint64_t image_size;
	bool names_known;   /* of its variables */
	struct named *names; /* as long as the entry lives */
	uint32_t name_count;
	uint64_t asked; /* in which contexts the driver has said where they lie, bit per index; where there is none, UINT64_MAX */
	struct variable *variables;
	uint32_t variable_count;
	uint64_t told, told_size; /* of a variable that the program has asked for: where it lies */
	struct move_array *array; /* an array or a mipmapped one: what was said of its contents */
	uint32_t size;
	uint8_t frame[] __attribute__((aligned(8)));
};

struct placing;

struct keep {
	struct entry *first;
	struct entry **last;
	uint32_t count;
	uint32_t sweep_at;
	uint64_t bytes;
	uint64_t closed;   /* contexts that were said and have been closed since, by index */
	uint32_t resources; /* that there were after the last command */
	const char *trouble;
	char used[192]; /* what that may be */
	struct placing *placing; /* where variables lie, for the last turn of a move; NULL: there is none, or it isn't good any more */
};

static inline const struct frame_hdr *entry_hdr(const struct entry *e)
{
	return (const void *)e->frame;
}

static inline struct reader entry_read(const struct entry *e)
{
	return reader_on(e->frame + sizeof(struct frame_hdr), e->size - sizeof(struct frame_hdr));
}

/* keep.c */
/* The record, made at the first use. NULL: out of memory. */
struct keep *keeps(struct worker *w);
/* Are the thing that it is about, and what that is of, still there? */
bool entry_lives(const struct worker *w, const struct entry *e);
/* Takes it out of the list. */
void entry_drop(struct keep *k, struct entry **link);
/* Drops the dead ones that nobody was told of. */
void keep_sweep(struct worker *w);
/* A reason not to move; the first one counts. Its text lives as long as the session. */
void keep_trouble_note(struct worker *w, const char *why);

/* variable.c */
/* The names in the image of @e. False: out of memory. */
bool variable_names(struct worker *w, struct entry *e);
/* Where they lie in context @ctx; those that the driver doesn't know are passed over. False: it can't be entered, or out of memory. */
bool variable_ask(struct worker *w, struct entry *e, uint16_t ctx);
/* One that no image names, of the object that @e is about. False: out of memory. */
bool variable_alone(struct entry *e, const char *name, uint64_t address, uint64_t size);
/* Context @ctx is the current one. */
bool variable_context(struct worker *w, uint16_t ctx);
/* Context @ctx is closed: what was its is gone. */
void variables_closed(struct entry *e, uint16_t ctx);
/* What has been said of their contents, and them. */
void variables_forget(struct entry *e);
void variables_free(struct entry *e);

/* variable_out.c */
void placing_free(struct keep *k);

#endif
