/* SPDX-License-Identifier: Apache-2.0 */
/* Records of TLS 1.3; see record.h for threads. The cipher and the hash are OpenSSL's. */
#include "broker/core/record.h"

#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#define TAG_SIZE 16
#define KEY_SIZE 16

/* HKDF-Expand-Label (RFC 8446, 7.1) without a context, of one hash at most. */
static int expand_label(const uint8_t secret[RECORD_SECRET_SIZE], const char *label, uint8_t *out, size_t size)
{
	uint8_t info[64], full[EVP_MAX_MD_SIZE];
	unsigned full_size = 0;
	size_t label_size = strlen(label);
	size_t at = 0;

	assert(size <= RECORD_SECRET_SIZE && label_size <= 32);
	info[at++] = 0;
	info[at++] = (uint8_t)size;
	info[at++] = (uint8_t)(6 + label_size);
	memcpy(info + at, "tls13 ", 6);
	at += 6;
	memcpy(info + at, label, label_size);
	at += label_size;
	info[at++] = 0;
	info[at++] = 1; /* of HKDF-Expand: its only block */
	if (!HMAC(EVP_sha256(), secret, RECORD_SECRET_SIZE, info, at, full, &full_size) || full_size < size)
		return -EIO;
	memcpy(out, full, size);
	explicit_bzero(full, sizeof(full));
	return 0;
}

static int key_set(struct record *record, bool seal)
{
	uint8_t key[KEY_SIZE];
	int err = expand_label(record->secret, "key", key, sizeof(key));

	if (!err)
		err = expand_label(record->secret, "iv", record->iv, sizeof(record->iv));
	if (!err && EVP_CipherInit_ex(record->ctx, EVP_aes_128_gcm(), NULL, key, record->iv, seal) != 1)
		err = -EIO;
	explicit_bzero(key, sizeof(key));
	record->seq = 0;
	return err;
}

int record_begin(struct record *record, const uint8_t secret[RECORD_SECRET_SIZE], bool seal)
{
	record->ctx = EVP_CIPHER_CTX_new();
	if (!record->ctx)
		return -EIO;
	memcpy(record->secret, secret, RECORD_SECRET_SIZE);
	return key_set(record, seal);
}

int record_next_key(struct record *record, bool seal)
{
	uint8_t next[RECORD_SECRET_SIZE];
	int err = expand_label(record->secret, "traffic upd", next, sizeof(next));

	if (err)
		return err;
	memcpy(record->secret, next, sizeof(next));
	explicit_bzero(next, sizeof(next));
	return key_set(record, seal);
}

void record_end(struct record *record)
{
	EVP_CIPHER_CTX_free(record->ctx);
	explicit_bzero(record, sizeof(*record));
}

/* The nonce of the next record, and its header as what is authenticated beside the content. */
static bool record_nonce(struct record *record, const uint8_t *head)
{
	uint8_t nonce[sizeof(record->iv)];
	int size;

	memcpy(nonce, record->iv, sizeof(nonce));
	for (int i = 0; i < 8; i++)
		nonce[sizeof(nonce) - 1 - i] ^= (uint8_t)(record->seq >> 8 * i);
	record->seq++;
	return EVP_CipherInit_ex(record->ctx, NULL, NULL, NULL, nonce, -1) == 1 &&
	       EVP_CipherUpdate(record->ctx, NULL, &size, head, RECORD_HEAD) == 1;
}

int record_seal(struct record *record, enum record_type type, const void *text, size_t size, uint8_t *out)
{
	size_t length = size + RECORD_TAIL;
	uint8_t inner = (uint8_t)type;
	int n = 0, last = 0;

	assert(size <= RECORD_TEXT_MAX);
	out[0] = RECORD_DATA;
	out[1] = 3;
	out[2] = 3;
	out[3] = (uint8_t)(length >> 8);
	out[4] = (uint8_t)length;
	if (!record_nonce(record, out) ||
	    (size && EVP_CipherUpdate(record->ctx, out + RECORD_HEAD, &n, text, (int)size) != 1) ||
	    EVP_CipherUpdate(record->ctx, out + RECORD_HEAD + size, &last, &inner, 1) != 1 ||
	    EVP_CipherFinal_ex(record->ctx, out + RECORD_HEAD + size + 1, &n) != 1 ||
	    EVP_CIPHER_CTX_ctrl(record->ctx, EVP_CTRL_AEAD_GET_TAG, TAG_SIZE, out + RECORD_HEAD + size + 1) != 1)
		return -EIO;
	return 0;
}

int record_size(const uint8_t head[RECORD_HEAD])
{
	size_t length = (size_t)head[3] << 8 | head[4];

	if (head[0] != RECORD_DATA || head[1] != 3 || head[2] != 3 || length > RECORD_LENGTH_MAX || length < RECORD_TAIL)
		return -EPROTO;
	return (int)(RECORD_HEAD + length);
}

int record_open(struct record *record, const uint8_t *bytes, void *place, size_t *size_out, uint8_t *type_out)
{
	size_t length = (size_t)bytes[3] << 8 | bytes[4];
	const uint8_t *sealed = bytes + RECORD_HEAD;
	size_t size = length - RECORD_TAIL;
	uint8_t *text = place;
	uint8_t inner = 0;
	uint8_t tag[TAG_SIZE];
	int n;

	memcpy(tag, sealed + length - TAG_SIZE, TAG_SIZE);
	if (!record_nonce(record, bytes) ||
	    (size && EVP_CipherUpdate(record->ctx, text, &n, sealed, (int)size) != 1) ||
	    EVP_CipherUpdate(record->ctx, &inner, &n, sealed + size, 1) != 1 ||
	    EVP_CIPHER_CTX_ctrl(record->ctx, EVP_CTRL_AEAD_SET_TAG, TAG_SIZE, tag) != 1 ||
	    EVP_CipherFinal_ex(record->ctx, tag, &n) != 1)
		return -EBADMSG;
	/* Padding: zeros behind the type. */
	while (inner == 0 && size)
		inner = text[--size];
	if (inner == 0)
		return -EPROTO;
	if (size > RECORD_TEXT_MAX)
		return -EPROTO;
	*size_out = size;
	*type_out = inner;
	return 0;
}
