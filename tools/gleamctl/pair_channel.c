// SPDX-License-Identifier: Apache-2.0
/* The connection of gleamctl pair. One thread; see pair_channel.h. */
#include "tools/gleamctl/pair_channel.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>

#define WAIT_S	     10 /* for the next bytes of a peer that is there */
#define IDENTITY     "gleam-pair-1"
#define CODE_LETTERS 20
#define GROUP	     5
#define PURPOSE	     "gleam pair 1:" /* the key is good for nothing else */

/* Without I, O, 0 and 1, which people mistake for each other. */
static const char alphabet[33] = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789";

struct pair_channel {
	int fd;
	SSL_CTX *ctx;
	SSL *ssl;
	uint8_t secret[SHA256_DIGEST_LENGTH];
};

int pair_code_make(char code_out[PAIR_CODE_SIZE])
{
	uint8_t dice[CODE_LETTERS];
	size_t at = 0;

	if (getrandom(dice, sizeof(dice), 0) != (ssize_t)sizeof(dice))
		return -EIO;
	for (unsigned i = 0; i < CODE_LETTERS; i++) {
		if (i && i % GROUP == 0)
			code_out[at++] = '-';
		code_out[at++] = alphabet[dice[i] % 32]; /* 32 divides 256 */
	}
	code_out[at] = 0;
	explicit_bzero(dice, sizeof(dice));
	return 0;
}

bool pair_code_read(const char *typed, char code_out[PAIR_CODE_SIZE])
{
	unsigned letters = 0;
	size_t at = 0;

	for (; *typed; typed++) {
		char letter = (char)toupper((unsigned char)*typed);

		if (letter == '-' || isspace((unsigned char)letter))
			continue;
		if (!strchr(alphabet, letter) || letters == CODE_LETTERS)
			return false;
		if (letters && letters % GROUP == 0)
			code_out[at++] = '-';
		code_out[at++] = letter;
		letters++;
	}
	code_out[at] = 0;
	return letters == CODE_LETTERS;
}

/* ---- TLS: by OpenSSL alone, since nothing here has to be fast ---- */

static SSL_SESSION *session_make(SSL *ssl)
{
	static const unsigned char aes_128_gcm_sha256[] = { 0x13, 0x01 };
	const struct pair_channel *channel = SSL_get_app_data(ssl);
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
	SSL_SESSION *session = SSL_SESSION_new();

	if (session && cipher && SSL_SESSION_set1_master_key(session, channel->secret, sizeof(channel->secret)) &&
	    SSL_SESSION_set_cipher(session, cipher) && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
		return session;
	SSL_SESSION_free(session);
	return NULL;
}

static int client_key(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_size, SSL_SESSION **session)
{
	*id = (const unsigned char *)IDENTITY;
	*id_size = strlen(IDENTITY);
	*session = session_make(ssl);
	return *session != NULL;
}

static int server_key(SSL *ssl, const unsigned char *id, size_t id_size, SSL_SESSION **session)
{
	*session = NULL;
	if (id_size == strlen(IDENTITY) && memcmp(id, IDENTITY, id_size) == 0)
		*session = session_make(ssl);
	return 1;
}

/* What an operation that did not succeed means. */
static int ssl_err(struct pair_channel *channel, int ret)
{
	int before = errno;
	int error = SSL_get_error(channel->ssl, ret);

	ERR_clear_error();
	if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
		return -ETIMEDOUT; /* the socket's own limit on a wait */
	if (error == SSL_ERROR_ZERO_RETURN)
		return -EPIPE;
	if (error == SSL_ERROR_SYSCALL)
		return before == EAGAIN ? -ETIMEDOUT : before ? -before : -EPIPE;
	return -EACCES;
}

int pair_channel_open(int fd, bool server, const char *code, struct pair_channel **channel_out)
{
	struct pair_channel *channel = calloc(1, sizeof(*channel));
	const struct timeval wait = { .tv_sec = WAIT_S };
	char text[sizeof(PURPOSE) + PAIR_CODE_SIZE];
	int err = -ENOMEM, ret;

	if (!channel) {
		close(fd);
		return err;
	}
	channel->fd = fd;
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	snprintf(text, sizeof(text), "%s%s", PURPOSE, code);
	SHA256((const unsigned char *)text, strlen(text), channel->secret);
	explicit_bzero(text, sizeof(text));
	channel->ctx = SSL_CTX_new(TLS_method());
	if (!channel->ctx || !SSL_CTX_set_min_proto_version(channel->ctx, TLS1_3_VERSION) ||
	    !SSL_CTX_set_ciphersuites(channel->ctx, "TLS_AES_128_GCM_SHA256"))
		goto close_channel;
	SSL_CTX_set_psk_use_session_callback(channel->ctx, client_key);
	SSL_CTX_set_psk_find_session_callback(channel->ctx, server_key);
	SSL_CTX_set_num_tickets(channel->ctx, 0);
	channel->ssl = SSL_new(channel->ctx);
	if (!channel->ssl || !SSL_set_fd(channel->ssl, fd))
		goto close_channel;
	SSL_set_app_data(channel->ssl, channel);
	ret = server ? SSL_accept(channel->ssl) : SSL_connect(channel->ssl);
	if (ret != 1) {
		err = ssl_err(channel, ret);
		/* Who hangs up in the middle of it has another code. */
		if (err == -EPIPE || err == -ECONNRESET)
			err = -EACCES;
		goto close_channel;
	}
	/* There are no certificates, so this can't be without the code; make sure all the same. */
	err = -EACCES;
	if (!SSL_session_reused(channel->ssl))
		goto close_channel;
	*channel_out = channel;
	return 0;

close_channel:
	ERR_clear_error();
	pair_channel_close(channel);
	return err;
}

void pair_channel_close(struct pair_channel *channel)
{
	if (!channel)
		return;
	if (channel->ssl && SSL_is_init_finished(channel->ssl))
		SSL_shutdown(channel->ssl);
	ERR_clear_error();
	SSL_free(channel->ssl);
	SSL_CTX_free(channel->ctx);
	close(channel->fd);
	explicit_bzero(channel, sizeof(*channel));
	free(channel);
}

int pair_channel_put(struct pair_channel *channel, const char *line)
{
	char text[PAIR_LINE_MAX + 1];
	int n = snprintf(text, sizeof(text), "%s\n", line);
	int err = -EMSGSIZE;

	if (n > 0 && n <= PAIR_LINE_MAX) {
		int ret = SSL_write(channel->ssl, text, n);

		err = ret == n ? 0 : ssl_err(channel, ret);
	}
	explicit_bzero(text, sizeof(text));
	return err;
}

int pair_channel_get(struct pair_channel *channel, char line_out[PAIR_LINE_MAX])
{
	size_t at = 0;

	for (;;) {
		char byte;
		int got = SSL_read(channel->ssl, &byte, 1);

		if (got != 1)
			return ssl_err(channel, got);
		if (byte == '\n') {
			line_out[at] = 0;
			return 0;
		}
		if (at + 1 == PAIR_LINE_MAX || (unsigned char)byte < ' ' || (unsigned char)byte >= 0x7f)
			return -EPROTO;
		line_out[at++] = byte;
	}
}
