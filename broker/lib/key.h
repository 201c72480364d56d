/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys: what a broker and a node share. A text file of mode 0600, one tenant a line:
 *
 *	gleam-key-1 <tenant name> <id: 16 hex digits> <secret: 64 hex digits>
 *
 * A broker uses the first line; a node takes every tenant of its file. Empty lines and lines that begin with # are skipped.
 */
#ifndef GLEAM_LIB_KEY_H
#define GLEAM_LIB_KEY_H

#include <stddef.h>
#include <stdint.h>

#define KEY_TENANT_SIZE 64  /* terminator included */
#define KEY_ID_SIZE	17
#define KEY_SECRET_SIZE 32
#define KEYS_MAX	256 /* tenants of one node */

struct key {
	char tenant[KEY_TENANT_SIZE]; /* letters, digits, '.', '_', '-' */
	char id[KEY_ID_SIZE];	      /* what TLS names the key by; not secret */
	uint8_t secret[KEY_SECRET_SIZE];
};

/* A new key from the kernel's random numbers. -EINVAL: bad tenant name. */
int key_make(const char *tenant, struct key *key_out);
/* The line of @key, without a newline. */
#define KEY_LINE_SIZE (sizeof("gleam-key-1") + KEY_TENANT_SIZE + KEY_ID_SIZE + 2 * KEY_SECRET_SIZE + 1)
void key_line(const struct key *key, char line_out[KEY_LINE_SIZE]);
/* Appends @key to @path, which is made with mode 0600 if it isn't there. */
int key_write(const char *path, const struct key *key);
/* Up to KEYS_MAX keys. On failure -errno and one line in @why: what is wrong, where, what to do. */
int key_read(const char *path, struct key *keys, size_t count_max, size_t *count_out, char *why, size_t why_size);
/* The text of a key file; @path is for messages. */
int key_parse(const char *path, char *text, struct key *keys, size_t count_max, size_t *count_out, char *why,
	      size_t why_size);
/* Overwrites the secret, in a way that the compiler keeps. */
void key_wipe(struct key *key);

#endif
