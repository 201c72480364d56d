/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MD2 (RFC 1319) and HMAC-MD2 (RFC 2104, blocks of 16 bytes): for the integrity table alone, which asks for it. Any thread.
 */
#ifndef GLEAM_MD2_H
#define GLEAM_MD2_H

#include <stddef.h>
#include <stdint.h>

#define MD2_SIZE 16 /* digest and block */

struct md2 {
	uint8_t state[MD2_SIZE];
	uint8_t checksum[MD2_SIZE];
	uint8_t block[MD2_SIZE]; /* what has not made a whole block yet */
	size_t filled;
};

void md2_start(struct md2 *md2);
void md2_add(struct md2 *md2, const void *bytes, size_t size);
void md2_end(struct md2 *md2, uint8_t digest_out[MD2_SIZE]);

/* @key has MD2_SIZE bytes at most. Begin; add the message with md2_add(); end. */
void hmac_md2_start(struct md2 *md2, const uint8_t *key, size_t key_size);
void hmac_md2_end(struct md2 *md2, const uint8_t *key, size_t key_size, uint8_t digest_out[MD2_SIZE]);

#endif
