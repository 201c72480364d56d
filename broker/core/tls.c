/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenSSL over a BIO of our own, which reads from the chunk that was fed and writes to the connection's buffer, so that
 * ciphertext is not copied once more. See tls.h for threads.
 */
#include "broker/core/tls.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TLS_WHY_SIZE 160

static const unsigned char tls_cipher_id[] = { 0x13, 0x01 }; /* TLS_AES_128_GCM_SHA256 */

struct tls_keys {
	SSL_CTX *ctx;
	BIO_METHOD *method;
	size_t count;
	struct key keys[];
};

struct tls {
	SSL *ssl;
	struct tls_keys *keys;
	const struct key *key; /* agreed on */
	const uint8_t *in;
	size_t in_size;
	tls_emit *emit;
	void *arg;
	bool client;
	bool secured;
	char why[TLS_WHY_SIZE];
};

/* ---- the BIO ---- */

static int bio_read(BIO *bio, char *bytes, int size)
{
	struct tls *tls = BIO_get_data(bio);
	size_t n = tls->in_size < (size_t)size ? tls->in_size : (size_t)size;

	BIO_clear_retry_flags(bio);
	if (n == 0) {
		BIO_set_retry_read(bio);
		return -1;
	}
	memcpy(bytes, tls->in, n);
	tls->in += n;
	tls->in_size -= n;
	return (int)n;
}

static int bio_write(BIO *bio, const char *bytes, int size)
{
	struct tls *tls = BIO_get_data(bio);

	BIO_clear_retry_flags(bio);
	return tls->emit(tls->arg, bytes, (size_t)size) ? -1 : size;
}

static long bio_ctrl(BIO *bio, int cmd, long num, void *ptr)
{
	return cmd == BIO_CTRL_FLUSH ? 1 : 0;
}

/* ---- keys ---- */

static SSL_SESSION *key_session(SSL *ssl, const struct key *key)
{
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, tls_cipher_id);
	SSL_SESSION *session = SSL_SESSION_new();

	if (session && cipher && SSL_SESSION_set1_master_key(session, key->secret, sizeof(key->secret)) &&
	    SSL_SESSION_set_cipher(session, cipher) && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
		return session;
	SSL_SESSION_free(session);
	return NULL;
}

static int client_key(SSL *ssl, const EVP_MD *md, const unsigned char **id_out, size_t *size_out, SSL_SESSION **session_out)
{
	struct tls *tls = SSL_get_app_data(ssl);
	const struct key *key = &tls->keys->keys[0];
	SSL_SESSION *session = key_session(ssl, key);

	if (!session)
		return 0;
	tls->key = key;
	*id_out = (const unsigned char *)key->id;
	*size_out = strlen(key->id);
	*session_out = session;
	return 1;
}

static int server_key(SSL *ssl, const unsigned char *id, size_t size, SSL_SESSION **session_out)
{
	struct tls *tls = SSL_get_app_data(ssl);

	*session_out = NULL;
	for (size_t i = 0; i < tls->keys->count; i++) {
		const struct key *key = &tls->keys->keys[i];

		/* Ids aren't secret: an ordinary comparison. */
		if (size != strlen(key->id) || memcmp(id, key->id, size) != 0)
			continue;
		*session_out = key_session(ssl, key);
		if (!*session_out)
			return 0;
		tls->key = key;
	}
	/* Without a session the handshake goes on, and ends for want of a certificate. */
	return 1;
}

int tls_keys_new(const struct key *keys, size_t count, struct tls_keys **keys_out)
{
	struct tls_keys *all = calloc(1, sizeof(*all) + count * sizeof(*keys));

	if (!all)
		return -ENOMEM;
	all->count = count;
	memcpy(all->keys, keys, count * sizeof(*keys));
	all->ctx = SSL_CTX_new(TLS_method());
	all->method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "gleam");
	if (!all->ctx || !all->method || !SSL_CTX_set_min_proto_version(all->ctx, TLS1_3_VERSION) ||
	    !SSL_CTX_set_ciphersuites(all->ctx, "TLS_AES_128_GCM_SHA256") ||
	    !BIO_meth_set_read(all->method, bio_read) || !BIO_meth_set_write(all->method, bio_write) ||
	    !BIO_meth_set_ctrl(all->method, bio_ctrl)) {
		tls_keys_free(all);
		ERR_clear_error();
		return -ENOMEM;
	}
	SSL_CTX_set_psk_use_session_callback(all->ctx, client_key);
	SSL_CTX_set_psk_find_session_callback(all->ctx, server_key);
	/* No tickets: nothing but our messages follows the handshake, and a resumption would outlive a key's removal. */
	SSL_CTX_set_options(all->ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_num_tickets(all->ctx, 0);
	SSL_CTX_set_session_cache_mode(all->ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_mode(all->ctx, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	*keys_out = all;
	return 0;
}

void tls_keys_free(struct tls_keys *keys)
{
	if (!keys)
		return;
	SSL_CTX_free(keys->ctx);
	BIO_meth_free(keys->method);
	explicit_bzero(keys->keys, keys->count * sizeof(keys->keys[0]));
	free(keys);
}

/* ---- a connection ---- */

struct tls *tls_new(struct tls_keys *keys, bool server, tls_emit *emit, void *arg)
{
	struct tls *tls = calloc(1, sizeof(*tls));
	BIO *bio;

	if (!tls)
		return NULL;
	tls->keys = keys;
	tls->emit = emit;
	tls->arg = arg;
	tls->client = !server;
	tls->ssl = SSL_new(keys->ctx);
	bio = BIO_new(keys->method);
	if (!tls->ssl || !bio) {
		BIO_free(bio);
		SSL_free(tls->ssl);
		free(tls);
		return NULL;
	}
	BIO_set_data(bio, tls);
	BIO_set_init(bio, 1);
	SSL_set_bio(tls->ssl, bio, bio);
	SSL_set_app_data(tls->ssl, tls);
	if (server)
		SSL_set_accept_state(tls->ssl);
	else
		SSL_set_connect_state(tls->ssl);
	return tls;
}

void tls_free(struct tls *tls)
{
	if (!tls)
		return;
	SSL_free(tls->ssl);
	free(tls);
}

void tls_feed(struct tls *tls, const void *bytes, size_t size)
{
	tls->in = bytes;
	tls->in_size = size;
}

static void why_take(struct tls *tls)
{
	unsigned long code = ERR_get_error();
	const char *reason = code ? ERR_reason_error_string(code) : NULL;

	if (tls->why[0] == 0)
		snprintf(tls->why, sizeof(tls->why), "%s", reason ? reason : "TLS failed");
	ERR_clear_error();
}

int tls_handshake(struct tls *tls)
{
	ERR_clear_error();

	int ret = SSL_do_handshake(tls->ssl);

	if (ret == 1) {
		/* A handshake that got here without our key can't be, as there are no certificates; make sure all the same. */
		if (!tls->key || !SSL_session_reused(tls->ssl)) {
			snprintf(tls->why, sizeof(tls->why), "handshake without a key of ours");
			return -EACCES;
		}
		tls->secured = true;
		return 1;
	}

	int err = SSL_get_error(tls->ssl, ret);

	if (err == SSL_ERROR_WANT_READ || err == SSL_ERROR_WANT_WRITE)
		return 0;
	why_take(tls);
	return -EACCES;
}

int64_t tls_read(struct tls *tls, void *place, size_t size)
{
	size_t n = 0;

	ERR_clear_error();
	if (SSL_read_ex(tls->ssl, place, size, &n) == 1)
		return (int64_t)n;

	int err = SSL_get_error(tls->ssl, 0);

	if (err == SSL_ERROR_WANT_READ)
		return 0;
	if (err == SSL_ERROR_ZERO_RETURN) {
		snprintf(tls->why, sizeof(tls->why), "closed by the peer");
		return -EPIPE;
	}
	why_take(tls);
	return -EPROTO;
}

int tls_write(struct tls *tls, const void *bytes, size_t size)
{
	size_t n = 0;

	if (size == 0)
		return 0;
	ERR_clear_error();
	/* Our BIO takes everything, so nothing is ever written in part. */
	if (SSL_write_ex(tls->ssl, bytes, size, &n) == 1 && n == size)
		return 0;
	why_take(tls);
	return -EIO;
}

void tls_shutdown(struct tls *tls)
{
	if (tls->secured)
		SSL_shutdown(tls->ssl);
	ERR_clear_error();
}

const char *tls_why(const struct tls *tls)
{
	return tls->why;
}

const char *tls_tenant(const struct tls *tls)
{
	return tls->secured ? tls->key->tenant : "";
}
