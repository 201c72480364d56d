/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program for tests of the daemons: fake-client SOCKET COMMAND [ARGUMENT]...
 *
 *	echo COUNT		COUNT calls with a reply, payloads of many sizes, each compared
 *	latency COUNT		median and 99th percentile of COUNT small calls, in microseconds
 *	stream COUNT		COUNT commands without a reply, then one call
 *	up BYTES, down BYTES	bulk bytes, summed at both ends; prints MB/s
 *	flood BYTES		up bytes that nobody makes or looks at; prints MB/s
 *	words			progress, error and printed notices arrive
 *	print COUNT		COUNT notices that are not read until all are there
 *	hold			opens, prints the worker's pid, waits for the end; prints why and how long after a signal
 *	op NUMBER [ARGUMENT]	one command, then waits for the session's end and prints why
 *	try			opens; prints the server, or why not
 *	ask REQUEST		LOCAL_CONTROL; prints the answer
 *	garbage			sends packets that make no sense, with descriptors that nobody asked for; gleamd closes
 *	forge NUMBER [FILE]	says `ready`; when gleamd has gone it forges what that one has left, and prints what the next one says.
 *				4: with the token that FILE has. FILE else: its own token is written there
 *	verdicts NUMBER		leaves what is known of an image, and asks for it; from 1 on in a way that makes no sense, see there
 *	hostile NUMBER		breaks the protocol in the memory; prints why the session ended
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/codec.h"
#include "broker/lib/fdpass.h"
#include "broker/lib/futex.h"
#include "broker/lib/slot.h"
#include "tests/fake/fake_session.h"

static struct fake_session session;

static int fail(const char *what, long got)
{
	fprintf(stderr, "fake-client: %s: %ld (dead: %d, end %u)\n", what, got, session.shm.base && fake_is_dead(&session),
		session.end);
	return 1;
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int echo(long count)
{
	static uint8_t bytes[INLINE_MAX], back[INLINE_MAX + 8];

	for (long i = 0; i < count; i++) {
		/* Replies fit a slot. */
		size_t size = (size_t)(i * 37 % 3900);
		int got;

		fake_fill(bytes, size, (uint64_t)i);
		got = fake_call(&session, FAKE_ECHO, (uint64_t)i, bytes, size, back, sizeof(back));
		if (got != (int)(size + 8) || memcmp(back + 8, bytes, size) != 0)
			return fail("echo", got);
	}
	return 0;
}

static int latency(long count)
{
	uint64_t *times = calloc((size_t)count, sizeof(*times));
	uint64_t back;

	for (long i = 0; i < count; i++) {
		uint64_t before = clock_ns();
		int got = fake_call(&session, FAKE_ECHO, 1, NULL, 0, &back, sizeof(back));

		if (got != 8)
			return fail("latency", got);
		times[i] = clock_ns() - before;
	}
	qsort(times, (size_t)count, sizeof(*times), compare_numbers);
	printf("median %.1f us, p99 %.1f us\n", (double)times[count / 2] / 1000, (double)times[count * 99 / 100] / 1000);
	free(times);
	return 0;
}

static int stream(long count)
{
	static uint8_t bytes[INLINE_MAX];
	uint64_t before = clock_ns();
	uint64_t back;
	int got;

	for (long i = 0; i < count; i++)
		if (!fake_post(&session, FAKE_ECHO, 0, 0, NULL, (uint64_t)i, bytes, i % 64 ? 40 : sizeof(bytes)))
			return fail("stream", i);
	got = fake_call(&session, FAKE_ECHO, 7, NULL, 0, &back, sizeof(back));
	if (got != 8 || back != 7)
		return fail("stream's end", got);
	printf("%.0f commands/s\n", (double)count * 1e9 / (double)(clock_ns() - before));
	return 0;
}

static int up(long bytes)
{
	uint64_t before = clock_ns();
	uint64_t expected[8], seq = 0;
	long left = bytes;

	/* Eight pieces at a time, each in a slot of its own. */
	while (left) {
		unsigned count = 0;

		for (; count < 8 && left; count++) {
			uint32_t size = left > SESSION_CELL_SIZE ? SESSION_CELL_SIZE : (uint32_t)left;
			struct bulk_ref ref;

			if (!fake_up_take(&session, size, &ref))
				return fail("up arena", left);
			fake_fill(shm_up(&session.shm) + ref.offset, size, ++seq);
			expected[count] = fake_sum(shm_up(&session.shm) + ref.offset, size, 0);
			if (!fake_post(&session, FAKE_SUM, FRAME_WANTS_REPLY | FRAME_BULK_UP, (uint16_t)count, &ref, 0, NULL, 0))
				return fail("up", left);
			left -= size;
		}
		for (unsigned i = 0; i < count; i++) {
			uint64_t sum = 0;
			int got = fake_wait(&session, (uint16_t)i, &sum, sizeof(sum), 20000);

			if (got != 8 || sum != expected[i])
				return fail("sum of up bytes", got);
		}
	}
	printf("%.0f MB/s\n", (double)bytes * 1e3 / (double)(clock_ns() - before));
	return 0;
}

static int flood(long bytes)
{
	uint64_t before = clock_ns();
	uint64_t back;
	int got;

	for (long left = bytes; left > 0; left -= SESSION_CELL_SIZE) {
		struct bulk_ref ref;

		if (!fake_up_take(&session, SESSION_CELL_SIZE, &ref) ||
		    !fake_post(&session, FAKE_SINK, FRAME_BULK_UP, 0, &ref, 0, NULL, 0))
			return fail("flood", left);
	}
	got = fake_call(&session, FAKE_ECHO, 1, NULL, 0, &back, sizeof(back));
	if (got != 8)
		return fail("flood's end", got);
	printf("%.0f MB/s\n", (double)bytes * 1e3 / (double)(clock_ns() - before));
	return 0;
}

static int down(long bytes)
{
	uint64_t before = clock_ns();
	uint64_t seed = 0;

	for (long left = bytes; left;) {
		/* Runs of several cells, too. */
		uint32_t most = seed % 3 == 0 ? 4 * SESSION_CELL_SIZE : SESSION_CELL_SIZE / 2 + 13;
		uint32_t size = left > (long)most ? most : (uint32_t)left;
		struct bulk_ref ref = { .offset = (uint32_t)(seed % 7) * 4 * SESSION_CELL_SIZE, .size = size, .cookie = seed };
		uint64_t sum = 0;
		int got;

		memset(shm_down(&session.shm) + ref.offset, 0, size);
		if (!fake_post(&session, FAKE_FILL, FRAME_WANTS_REPLY | FRAME_BULK_DOWN, 0, &ref, ++seed, NULL, 0))
			return fail("down", left);
		got = fake_wait(&session, 0, &sum, sizeof(sum), 20000);
		if (got != 8 || sum != fake_sum(shm_down(&session.shm) + ref.offset, size, 0))
			return fail("sum of down bytes", got);
		left -= size;
	}
	printf("%.0f MB/s\n", (double)bytes * 1e3 / (double)(clock_ns() - before));
	return 0;
}

static int notices_read(long count)
{
	struct frame_hdr hdr;
	const uint8_t *frame;
	uint64_t until = clock_ns() + 10 * NS_PER_S; /* none in all that time */

	for (long i = 0; i < count;) {
		int got = ring_peek(&session.n2c, &hdr, &frame);

		if (got == 1) {
			if (hdr.kind != FRAME_NOTICE || hdr.op != NOTICE_PRINT || hdr.seq != (uint64_t)i)
				return fail("order of notices", (long)hdr.seq);
			ring_next(&session.n2c, &hdr);
			ring_release(&session.n2c);
			i++;
			if (i % 64 == 0)
				until = clock_ns() + 10 * NS_PER_S;
			continue;
		}
		if (got < 0 || clock_ns() > until || fake_is_dead(&session))
			return fail("notices", i);
		if (ring_sleep_begin(&session.n2c)) {
			ring_sleep_futex(&session.n2c, 10000000);
			ring_sleep_end(&session.n2c);
		}
	}
	return 0;
}

static int words(void)
{
	uint64_t back;
	int got;

	fake_post(&session, FAKE_PROGRESS, 0, 0, NULL, 5ull << 32 | 1234, NULL, 0);
	fake_post(&session, FAKE_ERROR, 0, 0, NULL, 700, NULL, 0);
	fake_post(&session, FAKE_ERROR, 0, 0, NULL, 701, NULL, 0); /* the first one stays */
	fake_post(&session, FAKE_PRINT, 0, 0, NULL, 3, "text", 4);
	got = fake_call(&session, FAKE_ECHO, 9, NULL, 0, &back, sizeof(back));
	if (got != 8)
		return fail("words", got);
	if (*shm_progress(&session.shm, 5) != 1234)
		return fail("progress word", *shm_progress(&session.shm, 5));
	if (shm_error(&session.shm, 0)->code != 700 || shm_error(&session.shm, 0)->seq != 2)
		return fail("error word", shm_error(&session.shm, 0)->code);
	return notices_read(3);
}

static int print(long count)
{
	static uint8_t bytes[1000];
	uint64_t back;
	int got;

	if (!fake_post(&session, FAKE_PRINT, 0, 0, NULL, (uint64_t)count, bytes, sizeof(bytes)))
		return fail("print", count);
	/* Its answer may speak of what the notices bring: it must not overtake them. Nobody reads them for a while. */
	if (!fake_post(&session, FAKE_ECHO, FRAME_WANTS_REPLY, 0, NULL, 9, NULL, 0))
		return fail("a call behind notices", count);
	got = fake_wait(&session, 0, &back, sizeof(back), 500);
	if (count > 2000 && got == 8)
		return fail("an answer that overtook notices", got);
	if (fake_is_dead(&session))
		return fail("the session ended", count);
	if (notices_read(count))
		return 1;
	if (got != 8)
		got = fake_wait(&session, 0, &back, sizeof(back), 20000);
	return got == 8 ? 0 : fail("a call behind notices", got);
}

static int end_wait(void)
{
	while (!fake_is_dead(&session))
		futex_wait(&shm_header(&session.shm)->state, SESSION_LIVE, 100000000);
	printf("ended: %u\n", session.end);
	return 0;
}

static int hold(void)
{
	uint64_t pid = 0;
	int got = fake_call(&session, FAKE_PID, 0, NULL, 0, &pid, sizeof(pid));

	if (got != 8)
		return fail("pid of the worker", got);
	printf("%llu\n", (unsigned long long)pid);
	fflush(stdout);
	return end_wait();
}

static int op(long number, long argument)
{
	struct bulk_ref ref = { 0 };
	uint64_t back;

	fake_post(&session, (enum fake_op)number, 0, 0, number == FAKE_SUM ? &ref : NULL, (uint64_t)argument, NULL, 0);
	fake_call(&session, FAKE_ECHO, 1, NULL, 0, &back, sizeof(back));
	return end_wait();
}

static int hostile(long number)
{
	struct session_header *hdr = shm_header(&session.shm);
	struct bulk_ref ref = { 0 };
	uint8_t *room;

	switch (number) {
	case 0: /* head far ahead */
		hdr->c2n.head = 1ull << 40;
		break;
	case 1: /* head not aligned */
		hdr->c2n.head = 12;
		break;
	case 2: /* a frame of no size */
		ring_reserve(&session.c2n, 64, &room);
		memset(room, 0xff, 64);
		hdr->c2n.head = 64;
		break;
	case 3: /* up bytes out of the arena */
		ref.offset = SESSION_UP_SIZE - SESSION_GRANULE;
		ref.cookie = ref.offset;
		ref.size = SESSION_CELL_SIZE;
		fake_post(&session, FAKE_SUM, FRAME_BULK_UP, 0, &ref, 0, NULL, 0);
		break;
	case 4: /* a reply from a client */
		ring_reserve(&session.c2n, 24, &room);
		*(struct frame_hdr *)(void *)room = (struct frame_hdr){ .size = 24, .kind = FRAME_REPLY };
		hdr->c2n.head = 24;
		break;
	case 5: /* an eventfd that doesn't block */
		fcntl(session.doorbell, F_SETFL, O_NONBLOCK);
		ring_wake_fd(session.doorbell);
		usleep(200000);
		printf("%s\n", echo(3) ? "ended" : "works");
		return end_wait();
	case 6: /* everything scribbled over */
		for (uint32_t i = 0; i < 4096; i += 4)
			*(volatile uint32_t *)(void *)(session.shm.base + i) = 0xa5a5a5a5;
		break;
	default:
		break;
	}
	ring_wake_fd(session.doorbell);
	return end_wait();
}

static int memory_other(const char *what)
{
	int fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (ftruncate(fd, strcmp(what, "small") ? SESSION_SIZE : 4096) < 0)
		return -1;
	if (strcmp(what, "unsealed"))
		fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
	return fd;
}

/* Its own session is all that it can lose. */
static int forge(long number, const char *file)
{
	struct session_header *hdr = shm_header(&session.shm);
	struct session_baton *baton = (struct session_baton *)(void *)(session.shm.base + SESSION_AT_BATON);
	uint32_t version = LINK_VERSION;
	int memory = session.shm.fd, err;
	FILE *tokens;

	if (echo(20))
		return 1;
	if (file && number != 4) {
		tokens = fopen(file, "w");
		if (!tokens || fwrite(baton->token, sizeof(baton->token), 1, tokens) != 1 || fclose(tokens))
			return fail("token", errno);
	}
	puts("ready");
	while (!fake_is_alone(&session))
		usleep(5000);
	switch (number) {
	case 0: /* honest */
		break;
	case 1: /* nobody's token */
		fake_fill(baton->token, sizeof(baton->token), 1);
		break;
	case 2: /* more commands than fit */
		hdr->c2n.head += SESSION_C2N_SIZE + 8;
		break;
	case 3: /* frames that were never sent */
		baton->frames += 1000;
		break;
	case 4: /* somebody else's token */
		tokens = fopen(file, "r");
		if (!tokens || fread(baton->token, sizeof(baton->token), 1, tokens) != 1)
			return fail("token", errno);
		fclose(tokens);
		break;
	case 5:
		memory = memory_other("small");
		break;
	case 6:
		memory = memory_other("unsealed");
		break;
	case 7:
		memory = memory_other("empty");
		break;
	case 8:
		memory = open("/dev/zero", O_RDWR | O_CLOEXEC);
		break;
	case 9: /* of another library */
		version++;
		break;
	case 10:
		memory = -1;
		break;
	case 11:
		memset(baton->pieces, 0x55, sizeof(baton->pieces));
		break;
	case 12:
		memset(baton, 0xff, sizeof(*baton));
		break;
	case 13:
		strcpy(baton->server, "nowhere");
		break;
	case 14: /* commands that were never written */
		hdr->c2n.head += 4096;
		break;
	case 15: /* bulk frames that were never sent */
		baton->bulk[baton->which & 1].number = 1ull << 50;
		break;
	case 16: /* what is being done isn't */
		baton->doing = BATON_NOTICE;
		baton->at = hdr->n2c.head;
		baton->counted = baton->frames + 7;
		break;
	case 17: /* commands that were taken come again */
		baton->delta = SESSION_C2N_SIZE;
		break;
	case 18: /* another turn of everything */
		fake_fill(session.shm.base + SESSION_AT_BATON + sizeof(baton->state), sizeof(*baton) - sizeof(baton->state), 18);
		break;
	default:
		break;
	}
	do {
		usleep(5000);
		err = fake_return(&session, memory, version);
	} while (err == -ENOENT || (err == -ECONNREFUSED && session.end == 0)); /* nobody listens */
	if (err == -ECONNREFUSED) {
		printf("refused %u: %s\n", session.end, session.why);
		return 0;
	}
	if (err) {
		printf("closed\n");
		return 0;
	}
	if (number == 19) { /* the same session twice */
		struct fake_session second = session;

		second.fd = dup(session.fd);
		second.doorbell = dup(session.doorbell);
		err = fake_return(&second, memory, version);
		printf("second: %s %u\n", err ? "refused" : "goes on", second.end);
	}
	err = echo(20);
	if (err)
		return end_wait();
	puts("goes on");
	return 0;
}

/* ---- what is known of images ---- */

static void verdict_send(uint32_t type, uint64_t name, int64_t total, uint32_t at, const void *bytes, uint32_t size, size_t cut)
{
	static uint8_t packet[LOCAL_MSG_MAX] __attribute__((aligned(8)));
	struct writer w = writer_on(packet, sizeof(packet));

	put_u32(&w, type);
	put_u64(&w, name);
	put_u64(&w, ~name);
	put_u64(&w, 4711);
	if (total >= 0) {
		put_u32(&w, (uint32_t)total);
		put_u32(&w, at);
	}
	if (bytes)
		put_bytes(&w, bytes, size);
	send(session.fd, packet, w.at - cut, MSG_NOSIGNAL);
}

static void verdict_keep(uint64_t name, const uint8_t *bytes, uint32_t total)
{
	for (uint32_t at = 0; at < total; at += VERDICT_PART_SIZE)
		verdict_send(LOCAL_VERDICT_KEEP, name, total, at, bytes + at, total - at < VERDICT_PART_SIZE ? total - at : VERDICT_PART_SIZE, 0);
}

/* A packet of an answer: how many bytes it has, 0 that nothing is known; -1: none has come within @ms. */
static int verdict_part(uint64_t name, uint8_t *to, uint32_t room, uint32_t *total_out, int ms)
{
	static uint8_t packet[LOCAL_MSG_MAX] __attribute__((aligned(8)));
	struct pollfd p = { .fd = session.fd, .events = POLLIN };
	ssize_t size = poll(&p, 1, ms) > 0 ? recv(session.fd, packet, sizeof(packet), 0) : -1;
	struct reader r = reader_on(packet, size > 0 ? (size_t)size : 0);
	uint32_t type = get_u32(&r), at, part_size;
	uint64_t told = get_u64(&r), other = get_u64(&r), third = get_u64(&r);
	const void *part;

	if (size <= 0)
		return -1;
	*total_out = get_u32(&r);
	at = get_u32(&r);
	part = get_bytes(&r, LOCAL_MSG_MAX, &part_size);
	if (r.fault || type != LOCAL_VERDICT_PART || told != name || other != ~name || third != 4711 || at > room || part_size > room - at) {
		fprintf(stderr, "not an answer: packet of kind %u\n", type);
		exit(1);
	}
	if (to && part_size)
		memcpy(to + at, part, part_size);
	return (int)part_size;
}

/* -1: no answer; else how long it is. */
static int64_t verdict_ask(uint64_t name, uint8_t *to, uint32_t room)
{
	uint32_t total = 0, got = 0;
	int part;

	verdict_send(LOCAL_VERDICT, name, -1, 0, NULL, 0, 0);
	do {
		part = verdict_part(name, to, room, &total, 20000);
		if (part < 0)
			return -1;
		got += (uint32_t)part;
	} while (got < total);
	return total;
}

static int verdicts(long number)
{
	static uint8_t bytes[VERDICT_KEPT_MAX], back[VERDICT_KEPT_MAX];
	const uint32_t size = 2 * VERDICT_PART_SIZE + 5;
	uint32_t total, answers = 0;
	int64_t got;

	fake_fill(bytes, sizeof(bytes), 7);
	switch (number) {
	case 0: /* right */
		if (verdict_ask(1, back, sizeof(back)) != 0)
			return fail("something was known before", 0);
		verdict_keep(1, bytes, size);
		verdict_send(LOCAL_VERDICT_MORE, 1, -1, 0, "a record", 8, 0);
		got = verdict_ask(1, back, sizeof(back));
		if (got != (size + 7) / 8 * 8 + 16 || memcmp(back, bytes, size) || memcmp(back + got - 8, "a record", 8))
			return fail("not what was left", (int)got);
		return echo(3);
	case 1: /* begins in the middle */
		verdict_send(LOCAL_VERDICT_KEEP, 1, 100, 50, bytes, 50, 0);
		break;
	case 2: /* larger than any */
		verdict_send(LOCAL_VERDICT_KEEP, 1, VERDICT_KEPT_MAX + 1, 0, bytes, 50, 0);
		break;
	case 3: /* more than it says */
		verdict_send(LOCAL_VERDICT_KEEP, 1, 40, 0, bytes, 50, 0);
		break;
	case 4: /* the second part is another's */
		verdict_send(LOCAL_VERDICT_KEEP, 1, 100, 0, bytes, 50, 0);
		verdict_send(LOCAL_VERDICT_KEEP, 2, 100, 50, bytes, 50, 0);
		break;
	case 5: /* cut off */
		verdict_send(LOCAL_VERDICT_KEEP, 1, 100, 0, bytes, 50, 8);
		break;
	case 6: /* a record of nothing */
		verdict_send(LOCAL_VERDICT_MORE, 1, -1, 0, bytes, 0, 0);
		break;
	case 7: /* a question that is none */
		verdict_send(LOCAL_VERDICT, 1, -1, 0, NULL, 0, 8);
		break;
	case 8: /* what gleamd says itself */
		verdict_send(LOCAL_VERDICT_PART, 1, 8, 0, bytes, 8, 0);
		break;
	case 9: /* ends in the middle */
		verdict_send(LOCAL_VERDICT_KEEP, 1, VERDICT_KEPT_MAX, 0, bytes, VERDICT_PART_SIZE, 0);
		return 0;
	default: /* asks and asks, without reading: there are few answers */
		verdict_keep(3, bytes, VERDICT_KEPT_MAX);
		for (long i = 0; i < number; i++)
			verdict_send(LOCAL_VERDICT, 3, -1, 0, NULL, 0, 0);
		/* All were heard once this is. */
		if (echo(3))
			return 1;
		while (verdict_part(3, back, sizeof(back), &total, 500) > 0)
			answers++;
		printf("%u answers\n", (answers + VERDICT_KEPT_MAX / VERDICT_PART_SIZE) / (VERDICT_KEPT_MAX / VERDICT_PART_SIZE + 1));
		return echo(3);
	}
	return end_wait();
}

static int garbage(const char *path)
{
	static uint8_t bytes[LOCAL_MSG_MAX + 1000];
	static const size_t sizes[] = { 0, 1, 3, 4, 12, 64, 4096, LOCAL_MSG_MAX, LOCAL_MSG_MAX + 1 };
	int given[3] = { STDOUT_FILENO, STDOUT_FILENO, STDOUT_FILENO };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (uint32_t type = 0; type < 18; type++) {
			int fd = fake_connect(path);
			uint8_t answer[4096];
			ssize_t got;
			int err;

			if (fd < 0)
				return fail("connect", fd);
			fake_fill(bytes, sizes[i], type + 100 * i);
			if (sizes[i] >= 4)
				memcpy(bytes, &type, 4);
			err = fds_send(fd, bytes, sizes[i], given, (type + i) % 4, 0);
			if (err && err != -EMSGSIZE)
				return fail("send", err);
			/* Closed, perhaps with a last word. */
			do
				got = recv(fd, answer, sizeof(answer), 0);
			while (got > 0 && type != LOCAL_CONTROL);
			if (got > 0 && type != LOCAL_CONTROL)
				return fail("it answered garbage", got);
			close(fd);
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *command = argc > 2 ? argv[2] : "";
	long number = argc > 3 ? atol(argv[3]) : 0;
	int err;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3) {
		fprintf(stderr, "usage: fake-client SOCKET COMMAND [ARGUMENT]\n");
		return 2;
	}
	if (strcmp(command, "ask") == 0) {
		char *answer = fake_ask(argv[1], argc > 3 ? argv[3] : "");

		if (!answer)
			return fail("no answer", 0);
		puts(answer);
		free(answer);
		return 0;
	}
	if (strcmp(command, "garbage") == 0)
		return garbage(argv[1]);
	err = fake_open(&session, argv[1], getenv("FAKE_SETTINGS"));
	session.returns = getenv("FAKE_RETURNS");
	if (strcmp(command, "try") == 0 || err) {
		if (err == -ECONNREFUSED)
			printf("refused %u: %s\n", session.end, session.why);
		else
			printf("%s\n", err ? strerror(-err) : session.server);
		return err != 0;
	}
	if (strcmp(command, "echo") == 0)
		err = echo(number);
	else if (strcmp(command, "latency") == 0)
		err = latency(number);
	else if (strcmp(command, "stream") == 0)
		err = stream(number);
	else if (strcmp(command, "up") == 0)
		err = up(number);
	else if (strcmp(command, "flood") == 0)
		err = flood(number);
	else if (strcmp(command, "down") == 0)
		err = down(number);
	else if (strcmp(command, "words") == 0)
		err = words();
	else if (strcmp(command, "print") == 0)
		err = print(number);
	else if (strcmp(command, "hold") == 0)
		err = hold();
	else if (strcmp(command, "op") == 0)
		err = op(number, argc > 4 ? atol(argv[4]) : 0);
	else if (strcmp(command, "forge") == 0)
		err = forge(number, argc > 4 ? argv[4] : NULL);
	else if (strcmp(command, "verdicts") == 0)
		err = verdicts(number);
	else if (strcmp(command, "hostile") == 0)
		err = hostile(number);
	else
		err = 2;
	fake_close(&session);
	return err;
}
