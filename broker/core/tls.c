/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake: OpenSSL over a BIO of our own, which reads from the chunk that was fed and writes to the connection's buffer.
 * Its secrets come by the hook that is made for logging them, as OpenSSL offers no other; then it is freed. See tls.h for threads.
 */
#include "broker/core/tls.h"

#include "broker/lib/chunk.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/core/record.h"

#define TLS_WHY_SIZE 160

static const unsigned char tls_cipher_id[] = { 0x13, 0x01 }; /* TLS_AES_128_GCM_SHA256 */

struct tls_keys {
	SSL_CTX *ctx;
	BIO_METHOD *method;
	size_t count;
	struct key keys[];
};

/* Alerts that we send (RFC 8446, 6). */
enum { ALERT_CLOSE_NOTIFY = 0, ALERT_UNEXPECTED_MESSAGE = 10, ALERT_BAD_RECORD_MAC = 20, ALERT_FATAL = 2 };
enum { HANDSHAKE_KEY_UPDATE = 24, KEY_UPDATE_SIZE = 5 };
enum { SECRET_CLIENT, SECRET_SERVER, SECRETS };

struct tls {
	SSL *ssl; /* NULL once secured */
	struct tls_keys *keys;
	const struct key *key; /* agreed on */
	const uint8_t *in;
	size_t in_size;
	tls_room *room;
	void *arg;
	bool server;
	bool secured;
	uint8_t secrets[SECRETS][RECORD_SECRET_SIZE];
	unsigned secrets_known; /* bits */

	struct record tx;
	struct record rx;
	bool update_wanted; /* the peer asked for another key of ours */
	uint32_t part_size; /* of a record that has come in part */
	uint32_t text_at;   /* content that the owner had no room for */
	uint32_t text_size;
	char why[TLS_WHY_SIZE];
	uint8_t part[RECORD_SIZE_MAX];
	uint8_t text[RECORD_LENGTH_MAX];
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

	uint8_t *room = tls->room(tls->arg, (size_t)size);

	BIO_clear_retry_flags(bio);
	if (!room)
		return -1;
	memcpy(room, bytes, (size_t)size);
	return size;
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

int tls_keys_salt(const struct tls_keys *keys, const char *tenant, uint8_t salt_out[32])
{
	static_assert(CACHE_SALT_SIZE == 32, "as tls.h says");
	if (!keys)
		return chunk_salt(NULL, 0, salt_out);
	for (size_t i = 0; i < keys->count; i++)
		if (strcmp(keys->keys[i].tenant, tenant) == 0)
			return chunk_salt(keys->keys[i].secret, sizeof(keys->keys[i].secret), salt_out);
	return -ENOENT;
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "CLIENT_TRAFFIC_SECRET_0 RANDOM SECRET", both in hexadecimal digits. */
static void secret_take(const SSL *ssl, const char *line)
{
	static const char *const names[SECRETS] = { "CLIENT_TRAFFIC_SECRET_0 ", "SERVER_TRAFFIC_SECRET_0 " };
	struct tls *tls = SSL_get_app_data(ssl);
	const char *hex = strrchr(line, ' ');

	for (int i = 0; hex && i < SECRETS; i++) {
		size_t at = 0;

		if (strncmp(line, names[i], strlen(names[i])) != 0)
			continue;
		for (hex++; at < RECORD_SECRET_SIZE && hex_digit(hex[0]) >= 0 && hex_digit(hex[1]) >= 0; at++, hex += 2)
			tls->secrets[i][at] = (uint8_t)(hex_digit(hex[0]) << 4 | hex_digit(hex[1]));
		if (at == RECORD_SECRET_SIZE && !*hex)
			tls->secrets_known |= 1u << i;
		return;
	}
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
	SSL_CTX_set_keylog_callback(all->ctx, secret_take);
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

int tls_keys_of(const struct tls_keys *keys, const char *tenant, struct tls_keys **keys_out)
{
	for (size_t i = 0; i < keys->count; i++)
		if (strcmp(keys->keys[i].tenant, tenant) == 0)
			return tls_keys_new(&keys->keys[i], 1, keys_out);
	return -ENOENT;
}

/* ---- a connection ---- */

struct tls *tls_new(struct tls_keys *keys, bool server, tls_room *room, void *arg)
{
	struct tls *tls = calloc(1, sizeof(*tls));
	BIO *bio;

	if (!tls)
		return NULL;
	tls->keys = keys;
	tls->room = room;
	tls->arg = arg;
	tls->server = server;
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
	record_end(&tls->tx);
	record_end(&tls->rx);
	explicit_bzero(tls, sizeof(*tls));
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

/* The handshake is done: from here on records are ours. */
static int secrets_use(struct tls *tls)
{
	const uint8_t *ours = tls->secrets[tls->server ? SECRET_SERVER : SECRET_CLIENT];
	const uint8_t *theirs = tls->secrets[tls->server ? SECRET_CLIENT : SECRET_SERVER];
	int err = -EIO;

	/* Nothing may be left in OpenSSL's buffers: it reads record by record. */
	if (tls->secrets_known == (1u << SECRETS) - 1 && !SSL_has_pending(tls->ssl))
		err = record_begin(&tls->tx, ours, true);
	if (!err)
		err = record_begin(&tls->rx, theirs, false);
	explicit_bzero(tls->secrets, sizeof(tls->secrets));
	SSL_free(tls->ssl);
	tls->ssl = NULL;
	return err;
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
		if (secrets_use(tls)) {
			snprintf(tls->why, sizeof(tls->why), "OpenSSL does not give the secrets of its handshake");
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

/* ---- records ---- */

static int record_put(struct tls *tls, enum record_type type, const void *text, size_t size)
{
	uint8_t *room = tls->room(tls->arg, RECORD_HEAD + size + RECORD_TAIL);

	return room ? record_seal(&tls->tx, type, text, size, room) : -ENOMEM;
}

static int key_update_put(struct tls *tls)
{
	static const uint8_t message[KEY_UPDATE_SIZE] = { HANDSHAKE_KEY_UPDATE, 0, 0, 1, 0 /* we ask for none */ };
	int err = record_put(tls, RECORD_HANDSHAKE, message, sizeof(message));

	tls->update_wanted = false;
	return err ? err : record_next_key(&tls->tx, true);
}

int tls_write(struct tls *tls, const void *bytes, size_t size)
{
	int err = 0;

	for (size_t at = 0; at < size && !err;) {
		size_t part = size - at < RECORD_TEXT_MAX ? size - at : RECORD_TEXT_MAX;

		if (tls->update_wanted || tls->tx.seq >= RECORD_KEY_USES)
			err = key_update_put(tls);
		if (!err)
			err = record_put(tls, RECORD_DATA, (const uint8_t *)bytes + at, part);
		at += part;
	}
	return err;
}

/* Tells the peer what was wrong; the connection ends. */
static int read_failed(struct tls *tls, int err)
{
	uint8_t alert[2] = { ALERT_FATAL, err == -EBADMSG ? ALERT_BAD_RECORD_MAC : ALERT_UNEXPECTED_MESSAGE };

	if (tls->why[0] == 0)
		snprintf(tls->why, sizeof(tls->why), "%s", err == -EBADMSG ? "a forged record" : "not a record that may come here");
	record_put(tls, RECORD_ALERT, alert, sizeof(alert));
	return -EPROTO;
}

/* A record that is not data. */
static int control_read(struct tls *tls, uint8_t type, const uint8_t *text, size_t size)
{
	if (type == RECORD_ALERT && size == 2) {
		if (text[1] == ALERT_CLOSE_NOTIFY) {
			snprintf(tls->why, sizeof(tls->why), "closed by the peer");
			return -EPIPE;
		}
		snprintf(tls->why, sizeof(tls->why), "the peer's alert: %s", SSL_alert_desc_string_long(text[1]));
		return -EPROTO;
	}
	if (type == RECORD_HANDSHAKE && size == KEY_UPDATE_SIZE && text[0] == HANDSHAKE_KEY_UPDATE && text[1] == 0 && text[2] == 0 &&
	    text[3] == 1 && text[4] <= 1) {
		tls->update_wanted |= text[4];
		return record_next_key(&tls->rx, false) ? -EPROTO : 0;
	}
	return read_failed(tls, -EPROTO);
}

/* Bytes of a record that is not whole yet, up to @size of it. False: more are needed. */
static bool part_fill(struct tls *tls, size_t size)
{
	size_t n = tls->part_size < size ? size - tls->part_size : 0;

	if (n > tls->in_size)
		n = tls->in_size;
	memcpy(tls->part + tls->part_size, tls->in, n);
	tls->part_size += (uint32_t)n;
	tls->in += n;
	tls->in_size -= n;
	return tls->part_size >= size;
}

/* The next whole record: its size, 0 when it has not come yet, -EPROTO. In the chunk where that has all of it. */
static int record_find(struct tls *tls, const uint8_t **record_out)
{
	int size;

	if (tls->part_size == 0 && tls->in_size >= RECORD_HEAD) {
		size = record_size(tls->in);
		if (size < 0 || (size_t)size <= tls->in_size) {
			*record_out = tls->in;
			tls->in += size < 0 ? 0 : size;
			tls->in_size -= size < 0 ? 0 : (size_t)size;
			return size;
		}
	}
	if (!part_fill(tls, RECORD_HEAD))
		return 0;
	size = record_size(tls->part);
	if (size < 0)
		return size;
	if (!part_fill(tls, (size_t)size))
		return 0;
	tls->part_size = 0;
	*record_out = tls->part;
	return size;
}

int64_t tls_read(struct tls *tls, void *place, size_t size)
{
	while (tls->text_size == 0) {
		const uint8_t *record;
		int record_all = record_find(tls, &record);
		bool straight = record_all > 0 && (size_t)record_all - RECORD_HEAD - RECORD_TAIL <= size;
		uint8_t *text = straight ? place : tls->text;
		size_t got = 0;
		uint8_t type;
		int err;

		if (record_all == 0)
			return 0;
		err = record_all < 0 ? record_all : record_open(&tls->rx, record, text, &got, &type);
		if (err)
			return read_failed(tls, err);
		if (type != RECORD_DATA) {
			err = control_read(tls, type, text, got);
			if (err)
				return err;
		} else if (straight && got) {
			return (int64_t)got;
		} else {
			tls->text_at = 0;
			tls->text_size = (uint32_t)got;
		}
	}

	size_t n = tls->text_size < size ? tls->text_size : size;

	memcpy(place, tls->text + tls->text_at, n);
	tls->text_at += (uint32_t)n;
	tls->text_size -= (uint32_t)n;
	return (int64_t)n;
}

const char *tls_why(const struct tls *tls)
{
	return tls->why;
}

const char *tls_tenant(const struct tls *tls)
{
	return tls->secured ? tls->key->tenant : "";
}
