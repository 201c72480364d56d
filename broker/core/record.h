/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of TLS 1.3 (RFC 8446, section 5) under TLS_AES_128_GCM_SHA256, once the handshake has agreed on secrets: from where
 * bytes lie to where they are wanted, without a copy in between. One struct record is one direction of one connection and
 * belongs to the thread that has it.
 */
#ifndef GLEAM_CORE_RECORD_H
#define GLEAM_CORE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORD_HEAD	   5u		   /* type, version, length */
#define RECORD_TEXT_MAX	   (16u << 10)	   /* of content in one record */
#define RECORD_TAIL	   17u		   /* the content's type, and the tag */
#define RECORD_LENGTH_MAX  (RECORD_TEXT_MAX + 256u) /* what a header may say */
#define RECORD_SIZE_MAX	   (RECORD_HEAD + RECORD_LENGTH_MAX)
#define RECORD_SECRET_SIZE 32u
/* A key seals 2^24.5 full records at most (RFC 8446, 5.5): a new one comes well before. */
#define RECORD_KEY_USES (1u << 23)

enum record_type { RECORD_ALERT = 21, RECORD_HANDSHAKE = 22, RECORD_DATA = 23 };

struct record {
	void *ctx; /* of OpenSSL; NULL: no key yet */
	uint8_t secret[RECORD_SECRET_SIZE];
	uint8_t iv[12];
	uint64_t seq; /* of the next record under this key */
};

/* @seal: the sending direction. 0 or -EIO: OpenSSL refuses. record_end() also after a failure. */
int record_begin(struct record *record, const uint8_t secret[RECORD_SECRET_SIZE], bool seal);
/* Goes on with the next key, as both ends do after a KeyUpdate. */
int record_next_key(struct record *record, bool seal);
/* Forgets the key. Harmless on one that has none. */
void record_end(struct record *record);

/* @size bytes of @text (RECORD_TEXT_MAX at most) become RECORD_HEAD + @size + RECORD_TAIL bytes at @out. */
int record_seal(struct record *record, enum record_type type, const void *text, size_t size, uint8_t *out);

/* The size of the whole record that @head begins, or -EPROTO: nothing that may come here. */
int record_size(const uint8_t head[RECORD_HEAD]);
/*
 * Opens the whole record at @bytes, whose size record_size() told. Its content goes to @place, which has room for
 * size - RECORD_HEAD - RECORD_TAIL bytes. -EBADMSG: forged, and what lies at @place is worth nothing. -EPROTO: no content type.
 */
int record_open(struct record *record, const uint8_t *bytes, void *place, size_t *size_out, uint8_t *type_out);

#endif
