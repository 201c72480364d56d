/* SPDX-License-Identifier: Apache-2.0 */
/* Names and fingerprints of chunks. Any thread; see chunk.h. */
#include "broker/lib/chunk.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PRINT_SAMPLES	  32u
#define PRINT_SAMPLE_SIZE 32u /* a quarter of what memory brings at once: two words of each sample decide enough */

static int hash_two(const void *a, size_t a_size, const void *b, size_t b_size, uint8_t *hash_out)
{
	/* Fetched once: looking an algorithm up takes OpenSSL longer than hashing a small chunk. */
	static EVP_MD *md; /* atomic; kept for good */
	EVP_MD *known = __atomic_load_n(&md, __ATOMIC_ACQUIRE);
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	unsigned size = 0;
	int ok;

	if (!known) {
		EVP_MD *none = NULL;

		known = EVP_MD_fetch(NULL, "SHA256", NULL);
		if (known && !__atomic_compare_exchange_n(&md, &none, known, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			EVP_MD_free(known);
			known = none;
		}
	}
	ok = ctx && known && EVP_DigestInit_ex2(ctx, known, NULL) && EVP_DigestUpdate(ctx, a, a_size) &&
	     EVP_DigestUpdate(ctx, b, b_size) && EVP_DigestFinal_ex(ctx, hash_out, &size);
	EVP_MD_CTX_free(ctx);
	return ok ? 0 : -ENOMEM;
}

int chunk_salt(const void *secret, size_t size, uint8_t salt_out[CACHE_SALT_SIZE])
{
	static const char purpose[] = "gleam weight cache 1";

	return hash_two(purpose, sizeof(purpose), secret ? secret : "", secret ? size : 0, salt_out);
}

static uint64_t mix(uint64_t state, uint64_t value)
{
	state ^= value;
	state *= 0x9e3779b97f4a7c15ull;
	return state ^ state >> 29;
}

uint32_t chunk_print(const uint8_t salt[CACHE_SALT_SIZE], const void *bytes, uint32_t size)
{
	const uint8_t *at = bytes;
	uint64_t state, word;

	memcpy(&state, salt, sizeof(state));
	state = mix(state, size);
	if (size <= PRINT_SAMPLES * PRINT_SAMPLE_SIZE) {
		for (uint32_t i = 0; i + sizeof(word) <= size; i += (uint32_t)sizeof(word)) {
			memcpy(&word, at + i, sizeof(word));
			state = mix(state, word);
		}
	} else {
		uint32_t step = (size - PRINT_SAMPLE_SIZE) / (PRINT_SAMPLES - 1);

		for (uint32_t i = 0; i < PRINT_SAMPLES; i++) {
			for (uint32_t j = 0; j < PRINT_SAMPLE_SIZE; j += (uint32_t)sizeof(word)) {
				memcpy(&word, at + (size_t)i * step + j, sizeof(word));
				state = mix(state, word);
			}
		}
	}
	state = mix(state, 0);
	return (uint32_t)(state >> 32);
}

int chunk_name(const uint8_t salt[CACHE_SALT_SIZE], const void *bytes, uint32_t size, struct chunk_name *name_out)
{
	struct chunk_name name = { .size = size, .print = chunk_print(salt, bytes, size) };
	int err = hash_two(salt, CACHE_SALT_SIZE, bytes, size, name.hash);

	if (!err)
		*name_out = name;
	return err;
}

void chunk_text(const uint8_t *hash, size_t size, char *text_out)
{
	for (size_t i = 0; i < size; i++)
		snprintf(text_out + 2 * i, 3, "%02x", hash[i]);
}

int chunk_parse(const char *text, uint8_t *hash_out, size_t size)
{
	if (strlen(text) != 2 * size || strspn(text, "0123456789abcdef") != 2 * size)
		return -EINVAL;
	for (size_t i = 0; i < size; i++) {
		unsigned byte;

		if (sscanf(text + 2 * i, "%2x", &byte) != 1)
			return -EINVAL;
		hash_out[i] = (uint8_t)byte;
	}
	return 0;
}
