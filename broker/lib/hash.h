/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes: which protocol this binary speaks. Any thread. */
#ifndef GLEAM_LIB_HASH_H
#define GLEAM_LIB_HASH_H

#include <stddef.h>
#include <stdint.h>

#define PROTOCOL_HASH_SIZE 32

/* Of the API description (gen/ops.h): both ends of a session must have the same. */
extern const uint8_t protocol_hash[PROTOCOL_HASH_SIZE];

/* The first eight bytes in hex, for log lines and answers. */
#define HASH_TEXT_SIZE 17
void hash_text(const uint8_t *hash, char text_out[HASH_TEXT_SIZE]);

#endif
