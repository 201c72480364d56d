/* SPDX-License-Identifier: Apache-2.0 */
/* A connection until both sides have said hello. Control thread; see hello.h. */
#include "broker/core/hello.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/lib/codec.h"
#include "broker/lib/hash.h"

#define HELLO_SIZE_MAX	512u /* 60 bytes of fields and a host name; refusals have a line of text */
#define HELLO_TEXT_MAX	256u

struct hello {
	struct loop *loop;
	struct conn *conn;
	bool node;
	bool in_body;
	struct hello_info ours;
	const struct hello_ops *ops; /* NULL once abandoned */
	void *owner;
	struct loop_timer timer;
	struct link_hdr hdr;
	uint8_t body[HELLO_SIZE_MAX] __attribute__((aligned(8)));
};

void hello_host(char host_out[HELLO_HOST_SIZE])
{
	char host[HELLO_HOST_SIZE];

	/* A name that is too long may come without its end. */
	if (gethostname(host, sizeof(host) - 1) < 0)
		strcpy(host, "?");
	host[sizeof(host) - 1] = 0;
	snprintf(host_out, HELLO_HOST_SIZE, "%s", host);
}

void address_text(const struct sockaddr *address, char text_out[PEER_TEXT_SIZE])
{
	char host[INET6_ADDRSTRLEN];

	if (address->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)address;

		inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		snprintf(text_out, PEER_TEXT_SIZE, "%s:%u", host, ntohs(in->sin_port));
	} else if (address->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const void *)address;
		char zone[IF_NAMESIZE + 1] = "";

		inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof(host));
		if (in->sin6_scope_id && if_indextoname(in->sin6_scope_id, zone + 1))
			zone[0] = '%';
		snprintf(text_out, PEER_TEXT_SIZE, "[%s%s]:%u", host, zone, ntohs(in->sin6_port));
	} else {
		snprintf(text_out, PEER_TEXT_SIZE, "?");
	}
}

void peer_text(int fd, char text_out[PEER_TEXT_SIZE])
{
	struct sockaddr_storage address = { 0 };
	socklen_t size = sizeof(address);

	if (getpeername(fd, (struct sockaddr *)&address, &size) < 0)
		address.ss_family = AF_UNSPEC;
	address_text((struct sockaddr *)&address, text_out);
}

static void hello_send(struct conn *conn, const struct hello_info *info)
{
	uint8_t bytes[HELLO_SIZE_MAX] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));

	put_u32(&w, LINK_VERSION);
	put_u32(&w, info->lane);
	put_u32(&w, info->lanes);
	put_block(&w, protocol_hash, PROTOCOL_HASH_SIZE);
	put_block(&w, info->id, HELLO_ID_SIZE);
	put_str(&w, info->host);

	struct link_hdr hdr = { .size = (uint32_t)(sizeof(hdr) + w.at), .type = LINK_HELLO, .flags = info->lz4 ? LINK_LZ4 : 0 };

	conn_send(conn, &hdr, sizeof(hdr), bytes, w.at);
}

void hello_answer(struct conn *conn, const struct hello_info *agreed)
{
	struct hello_info info = *agreed;

	hello_host(info.host);
	hello_send(conn, &info);
}

void hello_refuse(struct hello *hello, const char *reason)
{
	uint8_t bytes[HELLO_SIZE_MAX] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));

	put_str(&w, reason);

	struct link_hdr hdr = { .size = (uint32_t)(sizeof(hdr) + w.at), .type = LINK_HELLO_REFUSED };

	conn_send(hello->conn, &hdr, sizeof(hdr), bytes, w.at);
	conn_close_flushed(hello->conn, -ECONNREFUSED, reason);
}

static void hello_refuse_version(struct hello *hello, uint32_t version, const uint8_t *hash)
{
	char ours[HASH_TEXT_SIZE], theirs[HASH_TEXT_SIZE] = "-", reason[HELLO_TEXT_MAX];

	hash_text(protocol_hash, ours);
	if (hash)
		hash_text(hash, theirs);
	snprintf(reason, sizeof(reason),
		 "gleamd versions differ (here " GLEAM_VERSION ", protocol %u.%s; the peer speaks %u.%s): update the older one",
		 LINK_VERSION, ours, version, theirs);
	if (hello->node) {
		hello_refuse(hello, reason);
		conn_blame(hello->conn, -EPROTONOSUPPORT, "%s", reason);
	} else {
		conn_close(hello->conn, -EPROTONOSUPPORT, reason);
	}
}

/* LINK_HELLO or LINK_HELLO_REFUSED is complete. */
static int hello_read(struct hello *hello)
{
	struct reader r = reader_on(hello->body, hello->hdr.size - sizeof(hello->hdr));
	struct hello_info theirs = { 0 };
	uint8_t hash[PROTOCOL_HASH_SIZE];

	if (hello->hdr.type == LINK_HELLO_REFUSED) {
		const char *reason = get_str(&r, HELLO_TEXT_MAX);

		conn_close(hello->conn, -EPROTONOSUPPORT, *reason ? reason : "refused by the peer");
		return 0;
	}

	uint32_t version = get_u32(&r);

	/* Of another version only this much is known. */
	if (!r.fault && version != LINK_VERSION) {
		hello_refuse_version(hello, version, NULL);
		return 0;
	}
	theirs.lz4 = hello->hdr.flags & LINK_LZ4;
	theirs.lane = get_u32(&r);
	theirs.lanes = get_u32(&r);
	get_block(&r, hash, sizeof(hash));
	get_block(&r, theirs.id, sizeof(theirs.id));

	const char *host = get_str(&r, HELLO_HOST_SIZE - 1);

	if (r.fault || theirs.lanes == 0 || theirs.lanes > LINK_LANES_MAX || theirs.lane > theirs.lanes)
		return conn_blame(hello->conn, -EPROTO, "not a hello of ours");
	if (memcmp(hash, protocol_hash, sizeof(hash)) != 0) {
		hello_refuse_version(hello, version, hash);
		return 0;
	}
	snprintf(theirs.host, sizeof(theirs.host), "%s", host);
	if (!hello->node && (theirs.lane != hello->ours.lane || theirs.lanes != hello->ours.lanes ||
			     memcmp(theirs.id, hello->ours.id, HELLO_ID_SIZE) != 0))
		return conn_blame(hello->conn, -EPROTO, "an answer to another hello");
	if (!hello->ops)
		return -ECANCELED;
	hello->ops->done(hello->owner, hello, &theirs);
	return 0;
}

static int hello_part(void *owner)
{
	struct hello *hello = owner;
	const struct link_hdr *hdr = &hello->hdr;

	if (hello->in_body)
		return hello_read(hello);
	if (hdr->size < sizeof(*hdr) + 4 || hdr->size - sizeof(*hdr) > HELLO_SIZE_MAX || (hdr->flags & ~LINK_LZ4) || hdr->session ||
	    hdr->reserved || (hdr->type != LINK_HELLO && (hello->node || hdr->type != LINK_HELLO_REFUSED)))
		return conn_blame(hello->conn, -EPROTO, "doesn't say hello");
	hello->in_body = true;
	conn_want(hello->conn, hello->body, hdr->size - sizeof(*hdr));
	return 0;
}

static void hello_up(void *owner)
{
	struct hello *hello = owner;

	conn_want(hello->conn, &hello->hdr, sizeof(hello->hdr));
	if (!hello->node)
		hello_send(hello->conn, &hello->ours);
}

static void hello_closed(void *owner, int err, const char *why)
{
	struct hello *hello = owner;

	char text[CONN_WHY_SIZE];

	loop_timer_clear(hello->loop, &hello->timer);
	/* What a broker's user can do about it. */
	if (!hello->node && err == -EACCES)
		snprintf(text, sizeof(text), "the node does not take our key (%.100s): both daemons need the same key file", why);
	else if (!hello->node && err == -EPIPE)
		snprintf(text, sizeof(text), "the node closed without a word: %s",
			 conn_is_tls(hello->conn) ? "has it a key?" : "it expects a key; see --key");
	else
		snprintf(text, sizeof(text), "%s", why);
	if (hello->ops)
		hello->ops->failed(hello->owner, hello, err, text);
	conn_free(hello->conn);
	free(hello);
}

static void hello_late(void *arg)
{
	struct hello *hello = arg;

	conn_close(hello->conn, -ETIMEDOUT, hello->node ? "said no hello in time" : "the other side did not answer our hello in time");
}

struct hello *hello_new(struct loop *loop, int fd, struct tls_keys *keys, const struct hello_info *ours,
			const struct hello_ops *ops, void *owner)
{
	static const struct conn_ops conn_ops = { .up = hello_up, .part = hello_part, .closed = hello_closed };
	struct hello *hello = calloc(1, sizeof(*hello));

	if (!hello) {
		close(fd);
		return NULL;
	}
	hello->loop = loop;
	hello->node = !ours;
	if (ours)
		hello->ours = *ours;
	hello->ops = ops;
	hello->owner = owner;
	hello->timer.fire = hello_late;
	hello->timer.arg = hello;
	hello->conn = conn_new(loop, fd, keys, hello->node, &conn_ops, hello);
	if (!hello->conn) {
		free(hello);
		return NULL;
	}
	loop_timer_set(loop, &hello->timer, loop_now_ns(loop) + HELLO_NS);
	conn_start(hello->conn);
	return hello;
}

struct conn *hello_take(struct hello *hello)
{
	struct conn *conn = hello->conn;

	loop_timer_clear(hello->loop, &hello->timer);
	free(hello);
	return conn;
}

void hello_abandon(struct hello *hello)
{
	hello->ops = NULL;
	conn_close(hello->conn, -ECANCELED, "not wanted any more");
}

void hello_close(struct hello *hello, int err, const char *why)
{
	conn_close(hello->conn, err, why);
}

const char *hello_tenant(const struct hello *hello)
{
	return conn_tenant(hello->conn);
}
