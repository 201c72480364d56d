/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of TLS 1.3: the example of RFC 8448, and a peer whose records are OpenSSL's own, so that what we send stays what the
 * standard says. Then everything that a peer can send wrong.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>

#include <cmocka.h>

#include "broker/core/record.h"
#include "broker/core/tls.h"
#include "tests/lib/fdcheck.h"

/* ---- RFC 8448, section 3: the client's application traffic, its first two records ---- */

static const uint8_t rfc_secret[32] = {
	0x9e, 0x40, 0x64, 0x6c, 0xe7, 0x9a, 0x7f, 0x9d, 0xc0, 0x5a, 0xf8, 0x88, 0x9b, 0xce, 0x65, 0x52,
	0x87, 0x5a, 0xfa, 0x0b, 0x06, 0xdf, 0x00, 0x87, 0xf7, 0x92, 0xeb, 0xb7, 0xc1, 0x75, 0x04, 0xa5,
};
static const uint8_t rfc_iv[12] = { 0x5b, 0x78, 0x92, 0x3d, 0xee, 0x08, 0x57, 0x90, 0x33, 0xe5, 0x23, 0xd9 };
/* The record that carries the bytes 0 to 49. */
static const uint8_t rfc_record[72] = {
	0x17, 0x03, 0x03, 0x00, 0x43, 0xa2, 0x3f, 0x70, 0x54, 0xb6, 0x2c, 0x94, 0xd0, 0xaf, 0xfa, 0xfe, 0x82, 0x28, 0xba, 0x55,
	0xcb, 0xef, 0xac, 0xea, 0x42, 0xf9, 0x14, 0xaa, 0x66, 0xbc, 0xab, 0x3f, 0x2b, 0x98, 0x19, 0xa8, 0xa5, 0xb4, 0x6b, 0x39,
	0x5b, 0xd5, 0x4a, 0x9a, 0x20, 0x44, 0x1e, 0x2b, 0x62, 0x97, 0x4e, 0x1f, 0x5a, 0x62, 0x92, 0xa2, 0x97, 0x70, 0x14, 0xbd,
	0x1e, 0x3d, 0xea, 0xe6, 0x3a, 0xee, 0xbb, 0x21, 0x69, 0x49, 0x15, 0xe4,
};

static void test_the_example_of_the_rfc(void **state)
{
	uint8_t text[50], out[72], back[50];
	struct record seal = { 0 }, open = { 0 };
	size_t size;
	uint8_t type;

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)i;
	assert_int_equal(record_begin(&seal, rfc_secret, true), 0);
	assert_int_equal(record_begin(&open, rfc_secret, false), 0);
	assert_memory_equal(seal.iv, rfc_iv, sizeof(rfc_iv));
	assert_int_equal(record_seal(&seal, RECORD_DATA, text, sizeof(text), out), 0);
	assert_memory_equal(out, rfc_record, sizeof(out));
	assert_int_equal(record_size(out), sizeof(out));
	assert_int_equal(record_open(&open, out, back, &size, &type), 0);
	assert_int_equal(size, sizeof(text));
	assert_int_equal(type, RECORD_DATA);
	assert_memory_equal(back, text, sizeof(text));
	record_end(&seal);
	record_end(&open);
}

static void test_what_is_no_record(void **state)
{
	static const uint8_t heads[][RECORD_HEAD] = {
		{ 22, 3, 3, 0, 40 }, { 23, 3, 1, 0, 40 }, { 20, 3, 3, 0, 1 }, { 23, 3, 3, 0, 16 }, { 23, 3, 3, 0x41, 0x01 },
	};

	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
		assert_int_equal(record_size(heads[i]), -EPROTO);
	assert_int_equal(record_size((const uint8_t[]){ 23, 3, 3, 0x41, 0x00 }), RECORD_SIZE_MAX);
}

/* Every bit of a record counts, and a record fits at its place in the row alone. */
static void test_forged_records(void **state)
{
	uint8_t out[RECORD_HEAD + 4 + RECORD_TAIL], place[8];
	struct record seal = { 0 }, open = { 0 };
	size_t size;
	uint8_t type;

	assert_int_equal(record_begin(&seal, rfc_secret, true), 0);
	assert_int_equal(record_seal(&seal, RECORD_DATA, "abcd", 4, out), 0);
	for (size_t bit = 5 * 8; bit < sizeof(out) * 8; bit++) {
		assert_int_equal(record_begin(&open, rfc_secret, false), 0);
		out[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(record_open(&open, out, place, &size, &type), -EBADMSG);
		out[bit / 8] ^= (uint8_t)(1 << bit % 8);
		record_end(&open);
	}
	assert_int_equal(record_begin(&open, rfc_secret, false), 0);
	assert_int_equal(record_open(&open, out, place, &size, &type), 0);
	assert_int_equal(record_open(&open, out, place, &size, &type), -EBADMSG); /* once more */
	record_end(&open);
	/* No content type at all: only padding. */
	assert_int_equal(record_begin(&open, rfc_secret, false), 0);
	record_end(&seal);
	assert_int_equal(record_begin(&seal, rfc_secret, true), 0);
	assert_int_equal(record_seal(&seal, 0, "\0\0\0", 3, out), 0);
	assert_int_equal(record_open(&open, out, place, &size, &type), -EPROTO);
	record_end(&seal);
	record_end(&open);
}

/* ---- against OpenSSL ---- */

struct pipe {
	uint8_t *bytes;
	size_t size;
};

/* What ours sends. */
static uint8_t *pipe_room(void *arg, size_t size)
{
	struct pipe *pipe = arg;

	pipe->bytes = realloc(pipe->bytes, pipe->size + size);
	pipe->size += size;
	return pipe->bytes + pipe->size - size;
}

static struct key key = { .tenant = "lab", .id = "0123456789abcdef", .secret = { 1, 2, 3 } };

static SSL_SESSION *session_of_key(SSL *ssl)
{
	static const unsigned char cipher_id[] = { 0x13, 0x01 };
	SSL_SESSION *session = SSL_SESSION_new();

	SSL_SESSION_set1_master_key(session, key.secret, sizeof(key.secret));
	SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, cipher_id));
	SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
	return session;
}

static int server_finds(SSL *ssl, const unsigned char *id, size_t size, SSL_SESSION **session_out)
{
	*session_out = session_of_key(ssl);
	return 1;
}

static int client_uses(SSL *ssl, const EVP_MD *md, const unsigned char **id_out, size_t *size_out, SSL_SESSION **session_out)
{
	*id_out = (const unsigned char *)key.id;
	*size_out = strlen(key.id);
	*session_out = session_of_key(ssl);
	return 1;
}

struct pair {
	struct tls_keys *keys;
	struct tls *ours;
	struct pipe sent; /* by ours */
	SSL_CTX *ctx;
	SSL *theirs;
	BIO *in; /* of theirs */
	BIO *out;
};

/* What ours has sent reaches theirs. */
static void to_theirs(struct pair *p)
{
	if (p->sent.size)
		assert_int_equal(BIO_write(p->in, p->sent.bytes, (int)p->sent.size), p->sent.size);
	p->sent.size = 0;
}

/* And what theirs has sent: to be freed by the caller. */
static uint8_t *of_theirs(struct pair *p, size_t *size_out)
{
	size_t size = BIO_ctrl_pending(p->out);
	uint8_t *bytes = malloc(size + 1);

	*size_out = size;
	if (size)
		assert_int_equal(BIO_read(p->out, bytes, (int)size), size);
	return bytes;
}

static void pair_up(struct pair *p, bool ours_is_server)
{
	*p = (struct pair){ 0 };
	assert_int_equal(tls_keys_new(&key, 1, &p->keys), 0);
	p->ours = tls_new(p->keys, ours_is_server, pipe_room, &p->sent);
	p->ctx = SSL_CTX_new(TLS_method());
	SSL_CTX_set_psk_find_session_callback(p->ctx, server_finds);
	SSL_CTX_set_psk_use_session_callback(p->ctx, client_uses);
	SSL_CTX_set_options(p->ctx, SSL_OP_NO_TICKET);
	SSL_CTX_set_num_tickets(p->ctx, 0);
	SSL_CTX_set_ciphersuites(p->ctx, "TLS_AES_128_GCM_SHA256");
	p->theirs = SSL_new(p->ctx);
	p->in = BIO_new(BIO_s_mem());
	p->out = BIO_new(BIO_s_mem());
	SSL_set_bio(p->theirs, p->in, p->out);
	if (ours_is_server)
		SSL_set_connect_state(p->theirs);
	else
		SSL_set_accept_state(p->theirs);
	for (int i = 0, ours = 0; i < 6 && (ours != 1 || !SSL_is_init_finished(p->theirs)); i++) {
		uint8_t *bytes;
		size_t size;

		ERR_clear_error();
		SSL_do_handshake(p->theirs);
		bytes = of_theirs(p, &size);
		tls_feed(p->ours, bytes, size);
		if (ours != 1)
			ours = tls_handshake(p->ours);
		assert_true(ours >= 0);
		free(bytes);
		to_theirs(p);
	}
	assert_true(SSL_is_init_finished(p->theirs));
	assert_string_equal(tls_tenant(p->ours), "lab");
}

static void pair_down(struct pair *p)
{
	tls_free(p->ours);
	tls_keys_free(p->keys);
	SSL_free(p->theirs);
	SSL_CTX_free(p->ctx);
	free(p->sent.bytes);
}

static void fill(uint8_t *bytes, size_t size, unsigned seed)
{
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(seed + i + (i >> 8) * 7);
}

/* @size bytes from ours to theirs. */
static void ours_to_theirs(struct pair *p, size_t size)
{
	uint8_t *bytes = calloc(1, size), *back = calloc(1, size);
	size_t at = 0;

	fill(bytes, size, (unsigned)size);
	assert_int_equal(tls_write(p->ours, bytes, size), 0);
	to_theirs(p);
	while (at < size) {
		size_t n = 0;

		assert_int_equal(SSL_read_ex(p->theirs, back + at, size - at, &n), 1);
		at += n;
	}
	assert_memory_equal(bytes, back, size);
	free(bytes);
	free(back);
}

/* @size bytes from theirs to ours, in chunks of @chunk, read into places of @place bytes. */
static void theirs_to_ours(struct pair *p, size_t size, size_t chunk, size_t place)
{
	uint8_t *bytes = calloc(1, size), *back = calloc(1, size), *wire;
	size_t written = 0, at = 0, fed = 0, wire_size;

	fill(bytes, size, (unsigned)size + 1);
	assert_int_equal(SSL_write_ex(p->theirs, bytes, size, &written), 1);
	wire = of_theirs(p, &wire_size);
	while (fed < wire_size) {
		size_t part = wire_size - fed < chunk ? wire_size - fed : chunk;
		int64_t n;

		tls_feed(p->ours, wire + fed, part);
		fed += part;
		while (at < size && (n = tls_read(p->ours, back + at, size - at < place ? size - at : place)) != 0) {
			assert_true(n > 0);
			at += (size_t)n;
		}
	}
	assert_int_equal(at, size);
	assert_memory_equal(bytes, back, size);
	free(wire);
	free(bytes);
	free(back);
}

static void test_both_ways(void **state)
{
	static const size_t sizes[] = { 1, 16, 1000, 16383, 16384, 16385, 300000 };
	struct pair p;

	for (int server = 0; server < 2; server++) {
		pair_up(&p, server);
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			ours_to_theirs(&p, sizes[i]);
			theirs_to_ours(&p, sizes[i], SIZE_MAX, SIZE_MAX);
			theirs_to_ours(&p, sizes[i], 65536, 16);
			theirs_to_ours(&p, sizes[i], 4099, 20000);
		}
		theirs_to_ours(&p, 3000, 1, 7);
		pair_down(&p);
	}
}

/* Theirs asks for new keys, of both directions; ours gives one before its next data. */
static void test_new_keys(void **state)
{
	struct pair p;

	pair_up(&p, true);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(SSL_key_update(p.theirs, i == 1 ? SSL_KEY_UPDATE_NOT_REQUESTED : SSL_KEY_UPDATE_REQUESTED), 1);
		theirs_to_ours(&p, 40000, 10000, 999);
		ours_to_theirs(&p, 40000);
		ours_to_theirs(&p, 10);
	}
	pair_down(&p);
}

/* What comes behind a forged record is not looked at; the peer is told, in a record that it can read. */
static void test_a_forged_stream(void **state)
{
	struct pair p;
	uint8_t back[100], *wire;
	size_t size, n;

	pair_up(&p, false);
	SSL_write_ex(p.theirs, "hello", 5, &n);
	wire = of_theirs(&p, &size);
	wire[size - 1] ^= 1;
	tls_feed(p.ours, wire, size);
	assert_int_equal(tls_read(p.ours, back, sizeof(back)), -EPROTO);
	assert_string_equal(tls_why(p.ours), "a forged record");
	to_theirs(&p);
	assert_int_equal(SSL_read_ex(p.theirs, back, sizeof(back), &n), 0);
	assert_int_equal(ERR_GET_REASON(ERR_get_error()), SSL_R_SSLV3_ALERT_BAD_RECORD_MAC);
	free(wire);
	pair_down(&p);
}

static void test_the_peers_close(void **state)
{
	struct pair p;
	uint8_t back[100], *wire;
	size_t size;

	pair_up(&p, false);
	SSL_shutdown(p.theirs);
	wire = of_theirs(&p, &size);
	tls_feed(p.ours, wire, size);
	assert_int_equal(tls_read(p.ours, back, sizeof(back)), -EPIPE);
	free(wire);
	pair_down(&p);
}

/* Records in the clear, and of other kinds, have no place after the handshake. */
static void test_records_out_of_place(void **state)
{
	static const uint8_t records[][8] = { { 20, 3, 3, 0, 1, 1 }, { 21, 3, 3, 0, 2, 1, 0 }, { 0x47, 0x45, 0x54, 0x20, 0x2f } };

	for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
		struct pair p;
		uint8_t back[100];

		pair_up(&p, true);
		tls_feed(p.ours, records[i], sizeof(records[i]));
		assert_int_equal(tls_read(p.ours, back, sizeof(back)), -EPROTO);
		pair_down(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_example_of_the_rfc), cmocka_unit_test(test_what_is_no_record),
		cmocka_unit_test(test_forged_records),	       cmocka_unit_test(test_both_ways),
		cmocka_unit_test(test_new_keys),	       cmocka_unit_test(test_a_forged_stream),
		cmocka_unit_test(test_the_peers_close),	       cmocka_unit_test(test_records_out_of_place),
	};
	struct fdcheck fds;
	int failed;

	fdcheck_begin(&fds);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return fdcheck_end(&fds) ? 1 : failed;
}
