/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verdict of a load: what the node's driver said about an image, and everything about its functions that the
 * client answers from then on. The worker writes it into cells of the client; the client reads it as long as the
 * module or library lives, and a broker may keep it as it stands.
 *
 *	header
 *	VERDICT_LARGER: nothing more; ask again with cells for header.size bytes
 *	options[option_count]	u32 CUjit_option, u64 value		those that the driver gives back, logs excepted
 *	info log, error log	strings
 *	functions[function_count]
 *		str name, u32 param_count, u32 flags, {u32 offset, u32 size}[param_count], i32 attributes[16] if flags say so
 */
#ifndef GLEAM_PROTO_VERDICT_H
#define GLEAM_PROTO_VERDICT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "broker/lib/codec.h"

#define VERDICT_MAGIC	    0x52455647u /* "GVER" */
#define VERDICT_VERSION	    1
#define VERDICT_HEADER_SIZE 40u
#define VERDICT_OPTIONS	    40		 /* CUDA 13.0 knows 35 JIT options */
#define VERDICT_LOG	    (64u << 10)	 /* characters of a log that are kept */
#define VERDICT_FUNCTIONS   (1u << 20)	 /* the largest libraries have some ten thousand */
#define VERDICT_NAME	    (32u << 10)	 /* mangled template names run to several KiB */
#define VERDICT_PARAMS	    4096	 /* 32,764 bytes of parameters, 8 bytes or more each in practice; 1 at least */
#define VERDICT_ATTRIBUTES  16		 /* CUfunction_attribute 0 .. 15 */
/*
 * Functions of an image up to which parameters and attributes are read with the load: the program's own, of which it uses most. Asked about one, a lazy
 * driver loads it, and says for all of a library of sixty in 20 ms what is used of two.
 */
#define VERDICT_EAGER 16

/*
 * What a load is known by: the bytes that are sent, the options, the GPU's model and driver. 128 bits of a hash that need not withstand an enemy: whoever
 * forges it deceives himself alone.
 */
struct verdict_key {
	uint64_t hash[2];
	uint64_t size;
};

enum verdict_flag {
	VERDICT_LARGER = 1, /* the cells were too small; the object is there, the rest comes with gleamVerdict */
	VERDICT_UNLISTED = 2, /* the driver can't enumerate: names have to be asked for one by one */
};

enum verdict_function_flag {
	VERDICT_HAS_PARAMS = 1,
	VERDICT_HAS_ATTRIBUTES = 2,
};

struct verdict {
	uint32_t code;	/* CUresult of the load */
	uint32_t flags; /* enum verdict_flag */
	uint64_t size;	/* of the whole verdict */
	uint32_t option_count;
	uint32_t function_count;
};

struct verdict_param {
	uint32_t offset;
	uint32_t size;
};

struct verdict_function {
	const char *name; /* borrowed from the reader's bytes */
	uint32_t flags;	  /* enum verdict_function_flag */
	uint32_t param_count;
	const uint8_t *params; /* verdict_param_at() */
	int32_t attributes[VERDICT_ATTRIBUTES];
};

static inline void verdict_key_put(struct writer *w, const struct verdict_key *key)
{
	put_u64(w, key->hash[0]);
	put_u64(w, key->hash[1]);
	put_u64(w, key->size);
}

static inline struct verdict_key verdict_key_get(struct reader *r)
{
	struct verdict_key key;

	key.hash[0] = get_u64(r);
	key.hash[1] = get_u64(r);
	key.size = get_u64(r);
	return key;
}

static inline void verdict_put(struct writer *w, const struct verdict *v)
{
	put_u32(w, VERDICT_MAGIC);
	put_u32(w, VERDICT_VERSION);
	put_u32(w, v->code);
	put_u32(w, v->flags);
	put_u64(w, v->size);
	put_u32(w, v->option_count);
	put_u32(w, v->function_count);
	put_u64(w, 0); /* reserved */
}

/* False for anything that is no verdict. @v->size may be more than the reader has only with VERDICT_LARGER. */
static inline bool verdict_get(struct reader *r, struct verdict *v)
{
	size_t size = r->size - r->at;
	uint32_t magic = get_u32(r);
	uint32_t version = get_u32(r);

	v->code = get_u32(r);
	v->flags = get_u32(r);
	v->size = get_u64(r);
	v->option_count = get_u32(r);
	v->function_count = get_u32(r);
	get_u64(r);
	return !r->fault && magic == VERDICT_MAGIC && version == VERDICT_VERSION && v->option_count <= VERDICT_OPTIONS &&
	       v->function_count <= VERDICT_FUNCTIONS && (v->size <= size || (v->flags & VERDICT_LARGER));
}

static inline void verdict_option_put(struct writer *w, uint32_t option, uint64_t value)
{
	put_u32(w, option);
	put_u64(w, value);
}

static inline bool verdict_option_get(struct reader *r, uint32_t *option_out, uint64_t *value_out)
{
	*option_out = get_u32(r);
	*value_out = get_u64(r);
	return !r->fault;
}

/* The logs stand between options and functions. */
static inline void verdict_logs_put(struct writer *w, const char *info, const char *error)
{
	put_str(w, info);
	put_str(w, error);
}

static inline bool verdict_logs_get(struct reader *r, const char **info_out, const char **error_out)
{
	*info_out = get_str(r, VERDICT_LOG);
	*error_out = get_str(r, VERDICT_LOG);
	return !r->fault;
}

/* @attributes is NULL where they were not read. */
static inline void verdict_function_put(struct writer *w, const char *name, const struct verdict_param *params,
					uint32_t param_count, uint32_t flags, const int32_t *attributes)
{
	put_str(w, name);
	put_u32(w, param_count);
	put_u32(w, flags);
	for (uint32_t i = 0; i < param_count; i++) {
		put_u32(w, params[i].offset);
		put_u32(w, params[i].size);
	}
	if (flags & VERDICT_HAS_ATTRIBUTES)
		for (uint32_t i = 0; i < VERDICT_ATTRIBUTES; i++)
			put_i32(w, attributes[i]);
}

static inline bool verdict_function_get(struct reader *r, struct verdict_function *f)
{
	memset(f, 0, sizeof(*f));
	f->name = get_str(r, VERDICT_NAME);
	f->param_count = get_u32(r);
	f->flags = get_u32(r);
	if (f->param_count > VERDICT_PARAMS)
		r->fault = true;
	f->params = reader_take(r, 4, r->fault ? 0 : (size_t)f->param_count * 8);
	if (f->flags & VERDICT_HAS_ATTRIBUTES)
		for (uint32_t i = 0; i < VERDICT_ATTRIBUTES; i++)
			f->attributes[i] = get_i32(r);
	return !r->fault;
}

static inline struct verdict_param verdict_param_at(const struct verdict_function *f, uint32_t index)
{
	struct verdict_param param;

	memcpy(&param, f->params + (size_t)index * 8, sizeof(param));
	return param;
}

#endif
