/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS 1.3 with a pre-shared key, between bytes in memory: no sockets here. struct tls_keys is made once and shared by all
 * threads; a struct tls belongs to the thread that has its connection.
 *
 * OpenSSL does the handshake. What follows is records of our own making (record.h), which go from where bytes lie to where they
 * are wanted: through OpenSSL's buffers each byte would be copied twice more at both ends.
 *
 * The key's id is the PSK identity. Only TLS_AES_128_GCM_SHA256 with an (EC)DHE exchange is offered: a key that leaks later
 * does not open what was recorded. There are no certificates, so a peer without one of our keys can't finish a handshake.
 */
#ifndef GLEAM_CORE_TLS_H
#define GLEAM_CORE_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/lib/key.h"

struct tls_keys;
struct tls;

/* Copies @keys: all of them serve as a node, the first one as a broker. */
int tls_keys_new(const struct key *keys, size_t count, struct tls_keys **keys_out);
void tls_keys_free(struct tls_keys *keys);
/* The keys of one tenant, for a connection that is made in its name; the caller's. -ENOENT: it has none. */
int tls_keys_of(const struct tls_keys *keys, const char *tenant, struct tls_keys **keys_out);
/* The salt of a tenant's chunks (broker/lib/chunk.h), from its first key; @keys NULL: of those who have none. */
int tls_keys_salt(const struct tls_keys *keys, const char *tenant, uint8_t salt_out[32]);

/* Room for @size more bytes of ciphertext, which count as sent; NULL: there is none. */
typedef uint8_t *tls_room(void *arg, size_t size);

/* NULL when out of memory. @server: the side that accepted the connection. */
struct tls *tls_new(struct tls_keys *keys, bool server, tls_room *room, void *arg);
void tls_free(struct tls *tls);

/* Ciphertext from the peer: borrowed until the next call, and eaten by handshake and read until they ask for more. */
void tls_feed(struct tls *tls, const void *bytes, size_t size);
/* 1: secured. 0: needs more bytes. -EACCES and the reason in tls_why(). A client calls it once to begin. */
int tls_handshake(struct tls *tls);
/*
 * Bytes decrypted to @place, 0 when it needs more, -EPIPE after the peer's close, -EPROTO for anything forged. What lies at
 * @place behind the bytes that are told may have been written over.
 */
int64_t tls_read(struct tls *tls, void *place, size_t size);
/* All of it, or -errno. */
int tls_write(struct tls *tls, const void *bytes, size_t size);

const char *tls_why(const struct tls *tls);
/* Whose key it was; "" before the handshake is done. */
const char *tls_tenant(const struct tls *tls);

#endif
