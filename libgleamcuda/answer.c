// SPDX-License-Identifier: Apache-2.0
/*
 * Answers to loads: parsing, the table of names, and the store. Look-ups in an answer take no lock, unless functions are
 * learnt one by one. Any thread.
 */
#include "libgleamcuda/answer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "libgleamcuda/log.h"

/* Answers that the process remembers beyond their modules: PyTorch's libraries are some hundred images, JIT users
 * load thousands of small ones. Beyond it the oldest is forgotten, and costs a trip when it is loaded again. */
#define STORE_ENTRIES 4096u
#define STORE_BUCKETS 4096u /* a power of two */

struct learnt {
	struct learnt *next;
	struct answer_function function;
	struct verdict_param *params;
	char name[];
};

struct answer {
	uint32_t refs; /* atomic */
	bool has_key;
	struct verdict_key key;
	uint8_t *bytes;
	bool unlisted;
	uint32_t count;
	struct answer_function *functions;
	struct verdict_param *params; /* of all functions, one after the other */
	uint32_t mask;
	uint32_t *buckets; /* index + 1, open addressing */

	pthread_mutex_t lock;
	/* guarded by lock */
	struct learnt *learnt;
};

/* ---- hashing ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t read64(const uint8_t *bytes)
{
	uint64_t value;

	memcpy(&value, bytes, sizeof(value));
	return value;
}

#define MIX_A 0x9e3779b97f4a7c15ull
#define MIX_B 0xc2b2ae3d27d4eb4full
#define MIX_C 0x165667b19e3779f9ull
#define MIX_D 0xd6e8feb86659fd93ull

void answer_key_add(struct verdict_key *key, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;
	uint64_t a = key->hash[0] ^ MIX_A, b = key->hash[1] ^ MIX_B;
	size_t left = size;
	uint8_t tail[16] = { 0 };

	/* Two chains that never share a product: about 10 GB/s, where SHA-256 makes 1.4. */
	for (; left >= 16; left -= 16, at += 16) {
		uint64_t x = read64(at), y = read64(at + 8);

		a = mix(a ^ x, y ^ MIX_C) + x;
		b = mix(b ^ y, (x ^ MIX_D) | 1) + (y << 32 | y >> 32);
	}
	if (left)
		memcpy(tail, at, left);
	a = mix(a ^ read64(tail), read64(tail + 8) ^ MIX_C ^ size);
	b = mix(b ^ read64(tail + 8), (read64(tail) ^ MIX_D ^ size << 8) | 1);
	key->hash[0] = mix(a ^ b, MIX_D) + a;
	key->hash[1] = mix(b ^ (a << 17 | a >> 47), MIX_B) + b;
	key->size += size;
}

static uint32_t name_hash(const char *name, size_t size)
{
	struct verdict_key key = { 0 };

	answer_key_add(&key, name, size);
	return (uint32_t)(key.hash[0] ^ key.hash[0] >> 32);
}

/* ---- parsing ---- */

/* Layouts come from another process: a launch must not be led outside the block. */
static bool layout_read(const struct verdict_function *from, struct verdict_param *params, struct answer_function *f)
{
	uint32_t end = 0, sum = 0;

	for (uint32_t i = 0; i < from->param_count; i++) {
		params[i] = verdict_param_at(from, i);
		if (params[i].offset > ANSWER_PARAMS_SIZE || params[i].size > ANSWER_PARAMS_SIZE - params[i].offset)
			return false;
		if (params[i].offset + params[i].size > end)
			end = params[i].offset + params[i].size;
		sum += params[i].size; /* VERDICT_PARAMS times ANSWER_PARAMS_SIZE fits */
	}
	f->params = params;
	f->param_count = from->param_count;
	f->params_size = end;
	f->has_gaps = sum != end;
	f->has_params = from->flags & VERDICT_HAS_PARAMS;
	return true;
}

static void function_name(struct answer_function *f, const char *name)
{
	f->name = name;
	f->name_size = (uint32_t)strlen(name);
	f->name_hash = name_hash(name, f->name_size);
}

static bool function_read(const struct verdict_function *from, struct verdict_param *params, struct answer_function *f)
{
	function_name(f, from->name);
	f->has_attributes = from->flags & VERDICT_HAS_ATTRIBUTES;
	memcpy(f->attributes, from->attributes, sizeof(f->attributes));
	return layout_read(from, params, f);
}

static bool table_make(struct answer *answer)
{
	uint32_t size = 8;

	while (size < answer->count * 2)
		size *= 2;
	answer->buckets = calloc(size, sizeof(*answer->buckets));
	if (!answer->buckets)
		return false;
	answer->mask = size - 1;
	for (uint32_t i = 0; i < answer->count; i++) {
		uint32_t at = answer->functions[i].name_hash & answer->mask;

		while (answer->buckets[at])
			at = (at + 1) & answer->mask;
		answer->buckets[at] = i + 1;
	}
	return true;
}

/* How many functions and parameters really are there; false unless the bytes are what the header says. */
static bool functions_count(struct reader r, uint32_t count, size_t *params_out)
{
	struct verdict_function f;

	*params_out = 0;
	for (uint32_t i = 0; i < count; i++) {
		if (!verdict_function_get(&r, &f))
			return false;
		*params_out += f.param_count;
	}
	return true;
}

static bool functions_read(struct answer *answer, struct reader *r)
{
	struct verdict_param *params = answer->params;
	struct verdict_function f;

	for (uint32_t i = 0; i < answer->count; i++) {
		if (!verdict_function_get(r, &f) || !function_read(&f, params, &answer->functions[i]))
			return false;
		params += f.param_count;
	}
	return true;
}

struct answer *answer_new(uint8_t *bytes, size_t size, CUresult *result_out)
{
	struct answer *answer = calloc(1, sizeof(*answer));
	struct reader r = reader_on(bytes, size);
	struct verdict v;
	const char *info, *error;
	size_t params;

	*result_out = CUDA_ERROR_OUT_OF_MEMORY;
	if (!answer) {
		free(bytes);
		return NULL;
	}
	answer->refs = 1;
	answer->bytes = bytes;
	pthread_mutex_init(&answer->lock, NULL);
	if (!verdict_get(&r, &v) || (v.flags & VERDICT_LARGER))
		goto malformed;
	for (uint32_t i = 0; i < v.option_count; i++) {
		uint32_t option;
		uint64_t value;

		if (!verdict_option_get(&r, &option, &value))
			goto malformed;
	}
	if (!verdict_logs_get(&r, &info, &error) || !functions_count(r, v.function_count, &params))
		goto malformed;
	answer->unlisted = v.flags & VERDICT_UNLISTED;
	answer->count = v.function_count;
	answer->functions = calloc(v.function_count ? v.function_count : 1, sizeof(*answer->functions));
	answer->params = calloc(params ? params : 1, sizeof(*answer->params));
	if (!answer->functions || !answer->params)
		goto fail;
	if (!functions_read(answer, &r))
		goto malformed;
	if (!table_make(answer))
		goto fail;
	*result_out = CUDA_SUCCESS;
	return answer;

malformed:
	gleam_log("the server's answer to a load is malformed");
	*result_out = CUDA_ERROR_UNKNOWN;
fail:
	answer_put(answer);
	return NULL;
}

struct answer *answer_get(struct answer *answer)
{
	__atomic_fetch_add(&answer->refs, 1, __ATOMIC_RELAXED);
	return answer;
}

void answer_put(struct answer *answer)
{
	if (__atomic_sub_fetch(&answer->refs, 1, __ATOMIC_ACQ_REL))
		return;
	while (answer->learnt) {
		struct learnt *next = answer->learnt->next;

		free(answer->learnt->params);
		free(answer->learnt);
		answer->learnt = next;
	}
	pthread_mutex_destroy(&answer->lock);
	free(answer->buckets);
	free(answer->params);
	free(answer->functions);
	free(answer->bytes);
	free(answer);
}

/* ---- look-up ---- */

static struct answer_function *learnt_find_locked(const struct answer *answer, const char *name, size_t size)
{
	for (struct learnt *l = answer->learnt; l; l = l->next)
		if (l->function.name_size == size && !memcmp(l->function.name, name, size))
			return &l->function;
	return NULL;
}

struct answer_function *answer_find(const struct answer *answer, const char *name)
{
	size_t size = strlen(name);
	uint32_t hash = name_hash(name, size);

	for (uint32_t at = hash & answer->mask; answer->buckets[at]; at = (at + 1) & answer->mask) {
		struct answer_function *f = &answer->functions[answer->buckets[at] - 1];

		if (f->name_hash == hash && f->name_size == size && !memcmp(f->name, name, size))
			return f;
	}
	if (!answer->unlisted)
		return NULL;

	struct answer *a = (struct answer *)(uintptr_t)answer; /* the lock alone is written */

	pthread_mutex_lock(&a->lock);

	struct answer_function *f = learnt_find_locked(answer, name, size);

	pthread_mutex_unlock(&a->lock);
	return f;
}

uint32_t answer_count(const struct answer *answer)
{
	return answer->count;
}

struct answer_function *answer_at(const struct answer *answer, uint32_t index)
{
	return index < answer->count ? &answer->functions[index] : NULL;
}

uint32_t answer_index(const struct answer *answer, const struct answer_function *function)
{
	return (uint32_t)(function - answer->functions);
}

bool answer_is_unlisted(const struct answer *answer)
{
	return answer->unlisted;
}

struct answer_function *answer_learn(struct answer *answer, const char *name, const void *record, size_t size, bool own)
{
	struct reader r = reader_on(record, size);
	struct answer_function *f = answer_find(answer, name);
	struct answer_function told = { 0 };
	struct verdict_function from;
	struct learnt *l;
	size_t name_size = strlen(name);

	if (!verdict_function_get(&r, &from) || strcmp(from.name, name))
		return NULL;
	if (f && __atomic_load_n(&f->has_params, __ATOMIC_ACQUIRE))
		return f;
	if (!f && !answer->unlisted)
		return NULL;
	l = calloc(1, sizeof(*l) + name_size + 1);
	if (!l)
		return NULL;
	l->params = calloc(from.param_count ? from.param_count : 1, sizeof(*l->params));
	memcpy(l->name, name, name_size + 1);
	if (!l->params || !function_read(&from, l->params, &told)) {
		free(l->params);
		free(l);
		return NULL;
	}
	told.name = l->name;
	told.has_attributes &= own;
	l->function = told;

	pthread_mutex_lock(&answer->lock);
	if (f && !f->has_params) {
		/* In place: others may hold it. The layout is complete before has_params shows. */
		f->params = told.params;
		f->param_count = told.param_count;
		f->params_size = told.params_size;
		f->has_gaps = told.has_gaps;
		memcpy(f->attributes, told.attributes, sizeof(f->attributes));
		__atomic_store_n(&f->has_attributes, told.has_attributes, __ATOMIC_RELEASE);
		__atomic_store_n(&f->has_params, told.has_params, __ATOMIC_RELEASE);
	} else if (!f) {
		f = learnt_find_locked(answer, name, name_size);
		if (!f)
			f = &l->function;
	}
	/* Kept for its memory, whoever was first. */
	l->next = answer->learnt;
	answer->learnt = l;
	pthread_mutex_unlock(&answer->lock);
	return f;
}

/* ---- the store ---- */

const struct verdict_key *answer_key_of(const struct answer *answer)
{
	return answer->has_key ? &answer->key : NULL;
}

struct kept {
	struct verdict_key key;
	struct kept *next;
	struct answer *answer;
};

static struct {
	pthread_mutex_t lock;
	/* guarded by lock */
	struct kept *buckets[STORE_BUCKETS];
	struct kept *ring[STORE_ENTRIES]; /* in the order of their coming */
	uint32_t at;
} store = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct kept **kept_find_locked(const struct verdict_key *key)
{
	struct kept **at = &store.buckets[key->hash[0] & (STORE_BUCKETS - 1)];

	while (*at && memcmp(&(*at)->key, key, sizeof(*key)))
		at = &(*at)->next;
	return at;
}

struct answer *answer_store_find(const struct verdict_key *key)
{
	struct answer *answer = NULL;

	pthread_mutex_lock(&store.lock);

	struct kept *kept = *kept_find_locked(key);

	if (kept)
		answer = answer_get(kept->answer);
	pthread_mutex_unlock(&store.lock);
	return answer;
}

void answer_store_keep(const struct verdict_key *key, struct answer *answer)
{
	struct kept *kept = malloc(sizeof(*kept));
	struct kept *old = NULL;

	if (!kept)
		return;
	answer->key = *key;
	answer->has_key = true;
	*kept = (struct kept){ .key = *key, .answer = answer_get(answer) };
	pthread_mutex_lock(&store.lock);

	struct kept **at = kept_find_locked(key);

	if (*at) {
		old = kept;
	} else {
		old = store.ring[store.at];
		if (old) {
			struct kept **place = kept_find_locked(&old->key);

			*place = old->next;
			at = kept_find_locked(key); /* old may have been the end of this bucket */
		}
		*at = kept;
		store.ring[store.at] = kept;
		store.at = (store.at + 1) % STORE_ENTRIES;
	}
	pthread_mutex_unlock(&store.lock);
	if (old) {
		answer_put(old->answer);
		free(old);
	}
}
