// SPDX-License-Identifier: Apache-2.0
/* What gleamd keeps of loads; see verdicts.h. What comes from it is checked as what comes from a server. */
#include "libgleamcuda/verdicts.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "broker/lib/clock.h"
#include "broker/lib/codec.h"
#include "broker/proto/wire.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/weights.h"

#define ANSWER_NS     2000000000ull /* as long as for a file's; a load that asks the server takes some 10 ms */
#define ROOM_NS	      20000000ull   /* for the socket to take what is left there, which nobody needs; or a question */
#define PACKET_HEAD   64u
#define RECORD_HEAD   8u

/* guarded by weights_lock(); of each session: 1 + its returns when its gleamd didn't answer */
static uint32_t silent[SESSIONS_MAX];

static bool is_there_locked(const struct session *s)
{
	/* Through the kernel module there is room for one answer, which is the session. */
	return !s->kernel && weights_daemon_is_there_locked(s) &&
	       silent[s->index] != 1 + __atomic_load_n(&s->returns, __ATOMIC_ACQUIRE);
}

static struct writer packet_on(uint8_t *packet, size_t size, enum local_msg type, const struct verdict_key *key)
{
	struct writer w = writer_on(packet, size);

	put_u32(&w, type);
	verdict_key_put(&w, key);
	return w;
}

static bool packet_send(struct session *s, const struct writer *w, uint64_t until_ns)
{
	while (!w->fault) {
		struct pollfd p = { .fd = s->socket, .events = POLLOUT };
		uint64_t now;

		if (send(s->socket, w->start, w->at, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)w->at)
			return true;
		now = clock_ns();
		if ((errno != EAGAIN && errno != EINTR) || now >= until_ns)
			return false;
		poll(&p, 1, 1 + (int)((until_ns - now) / 1000000));
	}
	return false;
}

/* ---- asking ---- */

struct asked {
	const struct verdict_key *key;
	uint8_t *bytes;
	uint32_t total, at;
	bool done;
};

/* A packet that came. Others are late answers to other questions. False: it makes no sense, or there is no memory. */
static bool part_take(struct asked *asked, const uint8_t *packet, size_t size)
{
	struct reader r = reader_on(packet, size);
	struct verdict_key key;
	uint32_t total, at, part_size;
	const void *part;

	if (get_u32(&r) != LOCAL_VERDICT_PART)
		return true;
	key = verdict_key_get(&r);
	total = get_u32(&r);
	at = get_u32(&r);
	part = get_bytes(&r, LOCAL_MSG_MAX, &part_size);
	if (r.fault || total > VERDICT_KEPT_MAX || memcmp(&key, asked->key, sizeof(key)))
		return false;
	if (total == 0) {
		asked->done = asked->at == 0;
		return asked->done;
	}
	if (at == 0 && !asked->bytes) {
		asked->bytes = malloc(total);
		asked->total = total;
	}
	if (!asked->bytes || total != asked->total || at != asked->at || part_size == 0 || part_size > total - at)
		return false;
	memcpy(asked->bytes + at, part, part_size);
	asked->at += part_size;
	asked->done = asked->at == total;
	return true;
}

/* False: no answer, or none that can be understood. */
static bool ask_locked(struct session *s, struct asked *asked)
{
	uint8_t question[PACKET_HEAD] __attribute__((aligned(8)));
	struct writer w = packet_on(question, sizeof(question), LOCAL_VERDICT, asked->key);
	uint64_t until = clock_ns() + ANSWER_NS;
	uint8_t *packet;

	if (!packet_send(s, &w, clock_ns() + ROOM_NS))
		return false;
	packet = malloc(LOCAL_MSG_MAX);
	while (packet && !asked->done) {
		struct pollfd p = { .fd = s->socket, .events = POLLIN };
		uint64_t now = clock_ns();
		ssize_t n;

		if (now >= until || (poll(&p, 1, 1 + (int)((until - now) / 1000000)) < 0 && errno != EINTR))
			break;
		n = recv(s->socket, packet, LOCAL_MSG_MAX, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || (n > 0 && !part_take(asked, packet, (size_t)n)))
			break;
	}
	free(packet);
	return asked->done;
}

/* The verdict, then what was learnt of single functions. Takes @bytes. */
static struct answer *answer_of(uint8_t *bytes, size_t size)
{
	struct reader r = reader_on(bytes, size);
	struct verdict v = { 0 };
	struct answer *answer;
	CUresult result;
	uint8_t *copy;
	size_t at;

	if (!verdict_get(&r, &v) || v.code || v.size > size || (v.flags & VERDICT_LARGER) || !(copy = malloc(v.size))) {
		free(bytes);
		return NULL;
	}
	memcpy(copy, bytes, v.size);
	answer = answer_new(copy, v.size, &result);
	at = (v.size + 7) & ~(size_t)7;
	while (answer && at < size && size - at > RECORD_HEAD) {
		struct verdict_function told;
		uint32_t record_size;

		memcpy(&record_size, bytes + at, sizeof(record_size));
		at += RECORD_HEAD;
		if (record_size > size - at)
			break;
		r = reader_on(bytes + at, record_size);
		if (verdict_function_get(&r, &told))
			answer_learn(answer, told.name, bytes + at, record_size, true);
		at = (at + record_size + 7) & ~(size_t)7;
	}
	free(bytes);
	return answer;
}

struct answer *verdicts_find(struct session *s, const struct verdict_key *key)
{
	struct asked asked = { .key = key };
	bool told = false;

	weights_lock();
	if (is_there_locked(s)) {
		told = ask_locked(s, &asked);
		if (!told && !session_has_ended(s)) {
			silent[s->index] = 1 + __atomic_load_n(&s->returns, __ATOMIC_ACQUIRE);
			gleam_log("gleamd doesn't say what it knows of loads: each waits for the server from now on");
		}
	}
	weights_unlock();
	if (!told || !asked.bytes) {
		free(asked.bytes);
		return NULL;
	}
	return answer_of(asked.bytes, asked.total);
}

/* ---- leaving ---- */

void verdicts_keep(struct session *s, const struct verdict_key *key, const uint8_t *bytes, size_t size)
{
	uint8_t *packet = size && size <= VERDICT_KEPT_MAX ? malloc(LOCAL_MSG_MAX) : NULL;
	uint64_t until = clock_ns() + ROOM_NS;

	if (!packet)
		return;
	weights_lock();
	for (size_t at = 0; at < size && is_there_locked(s);) {
		size_t part = size - at < VERDICT_PART_SIZE ? size - at : VERDICT_PART_SIZE;
		struct writer w = packet_on(packet, LOCAL_MSG_MAX, LOCAL_VERDICT_KEEP, key);

		put_u32(&w, (uint32_t)size);
		put_u32(&w, (uint32_t)at);
		put_bytes(&w, bytes + at, (uint32_t)part);
		if (!packet_send(s, &w, until))
			break;
		at += part;
	}
	weights_unlock();
	free(packet);
}

void verdicts_more(struct session *s, const struct verdict_key *key, const void *record, size_t size)
{
	uint8_t *packet = size && size <= VERDICT_PART_SIZE ? malloc(LOCAL_MSG_MAX) : NULL;
	struct writer w;

	if (!packet)
		return;
	w = packet_on(packet, LOCAL_MSG_MAX, LOCAL_VERDICT_MORE, key);
	put_bytes(&w, record, (uint32_t)size);
	weights_lock();
	if (is_there_locked(s))
		packet_send(s, &w, clock_ns() + ROOM_NS);
	weights_unlock();
	free(packet);
}
