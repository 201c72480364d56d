// SPDX-License-Identifier: Apache-2.0
/*
 * What a session is: identity, memory, doorbells, rings; and what is refused.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/lib/slot.h"
#include "tests/kmod/dev.h"

/* ---- identity ---- */

static void client_as_user(void *arg)
{
	session_child_run(NULL);
}

static void identity_is_the_openers(void)
{
	int broker = broker_attach();
	pid_t child = kt_child(client_as_user, NULL, 1234);
	struct gleam_event event = broker_expect(broker, GLEAM_EVENT_ATTACH);
	struct stat ns;

	SAME(event.tgid, child);
	SAME(event.pid, child);
	SAME(event.client_pid, child);
	SAME(event.uid, 1234);
	SAME(event.gid, 1234);
	SAME(event.flags, 0);
	CHECK(event.session != 0);
	CHECK(event.devices == GLEAM_DEVICES_ANY);
	CHECK(!strcmp(event.comm, "kmod-test"));
	SAME(stat("/proc/self/ns/pid", &ns), 0);
	CHECK(event.pidns == ns.st_ino);
	CHECK(event.cgroup != 0);
	SAME(kt_read_number(SYS_GLEAM "broker"), getpid());
	kt_kill(child);
	SAME(broker_expect(broker, GLEAM_EVENT_DETACH).session, event.session);
}

static void passed_files_give_nothing(void *arg)
{
	int fd = *(int *)arg;
	struct gleam_info info;
	uint64_t one = 1;

	/* The child of a fork has the file, and is another process. */
	CHECK(mmap(NULL, SESSION_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EPERM);
	SAME(RC(ioctl(fd, GLEAM_IOC_INFO, &info)), -EPERM);
	SAME(RC(ioctl(fd, GLEAM_IOC_DOORBELL)), -EPERM);
	SAME(RC(write(fd, &one, 8)), -EPERM);
	SAME(RC(read(fd, &one, 8)), -EPERM);
}

static void others_cannot_use_it(void)
{
	int broker = broker_attach();
	int fd = session_open();

	kt_join(kt_child(passed_files_give_nothing, &fd, 0));
	SAME(sessions_now(), 1);
	close(fd);
	SAME(sessions_now(), 0);
	close(broker);
}

/* ---- memory ---- */

static void memory_has_a_header(void)
{
	int broker = broker_attach();
	int fd = session_open();
	struct session_header *header = session_map(fd);
	struct shm shm;

	SAME(header->magic == SESSION_MAGIC, 1);
	SAME(header->version, SESSION_VERSION);
	SAME(header->size, SESSION_SIZE);
	SAME(header->client_pid, getpid());
	SAME(header->state, SESSION_NEW);
	broker_accept(broker, -1, &shm);
	/* The same pages, to the last. */
	((volatile uint8_t *)header)[SESSION_SIZE - 1] = 0x5a;
	SAME(shm.base[SESSION_SIZE - 1], 0x5a);
	shm_down(&shm)[0] = 0xa5;
	SAME(((uint8_t *)header)[SESSION_AT_DOWN], 0xa5);
	shm_close(&shm);
}

static long map_rc(int fd, size_t size, int prot, int flags, off_t offset)
{
	void *base = mmap(NULL, size, prot, flags, fd, offset);

	if (base == MAP_FAILED)
		return -errno;
	munmap(base, size);
	return 0;
}

static void mappings_are_checked(void)
{
	int broker = broker_attach();
	int fd = session_open();
	int rw = PROT_READ | PROT_WRITE;
	int read_only;

	SAME(map_rc(fd, SESSION_SIZE - 4096, rw, MAP_SHARED, 0), -EINVAL);
	SAME(map_rc(fd, SESSION_SIZE + 4096, rw, MAP_SHARED, 0), -EINVAL);
	SAME(map_rc(fd, 4096, rw, MAP_SHARED, 0), -EINVAL);
	SAME(map_rc(fd, SESSION_SIZE, rw, MAP_SHARED, 4096), -EINVAL);
	SAME(map_rc(fd, SESSION_SIZE, rw, MAP_PRIVATE, 0), -EINVAL);
	SAME(map_rc(fd, SESSION_SIZE, rw | PROT_EXEC, MAP_SHARED, 0), -EINVAL);
	read_only = (int)RC(open("/dev/gleam", O_RDONLY | O_CLOEXEC));
	CHECK(read_only >= 0);
	SAME(map_rc(read_only, SESSION_SIZE, PROT_READ, MAP_SHARED, 0), -EINVAL);

	void *base = session_map(fd);

	SAME(map_rc(fd, SESSION_SIZE, rw, MAP_SHARED, 0), -EBUSY);
	SAME(RC(mprotect(base, 4096, rw | PROT_EXEC)), -EACCES);
	CHECK(mremap(base, SESSION_SIZE, SESSION_SIZE + 4096, MREMAP_MAYMOVE) == MAP_FAILED);
	close(broker);
}

static void memory_cannot_be_taken_away(void)
{
	int broker = broker_attach();
	void *base = session_map(session_open());
	struct gleam_event event = broker_expect(broker, GLEAM_EVENT_ATTACH);
	int memory;
	char byte = 1;

	SAME(broker_take(broker, event.session, -1, &memory), 0);
	SAME(RC(ftruncate(memory, 0)), -EPERM);
	SAME(RC(ftruncate(memory, SESSION_SIZE * 2)), -EPERM);
	SAME(RC(fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096)), -EOPNOTSUPP);
	SAME(RC(write(memory, &byte, 1)), -EINVAL);
	SAME(RC(read(memory, &byte, 1)), -EINVAL);
	SAME(fcntl(memory, F_GET_SEALS), F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW);
	SAME(RC(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE)), -EPERM);
	/* The client has no file of it, but its mapping. */
	SAME(RC(madvise(base, 4096, MADV_REMOVE)), -EOPNOTSUPP);
	SAME(*(uint64_t *)base == SESSION_MAGIC, 1);
	CHECK(fcntl(memory, F_GETFD) & FD_CLOEXEC);
}

static void untouched_memory_costs_nothing(void)
{
	int broker = broker_attach();
	char *base = session_map(session_open());
	struct gleam_event event = broker_expect(broker, GLEAM_EVENT_ATTACH);
	struct stat st;
	int memory;

	SAME(broker_take(broker, event.session, -1, &memory), 0);
	base[SESSION_AT_UP] = 1;
	SAME(fstat(memory, &st), 0);
	SAME(st.st_size, SESSION_SIZE);
	CHECK(st.st_blocks * 512 <= 64 * 4096);
}

/* ---- ioctls ---- */

static void ioctls_are_checked(void)
{
	int broker = broker_attach();
	int fd = session_open();
	struct gleam_fd arg = { .fd = -1 };
	struct gleam_take take = { .session = 1, .doorbell = -1 };
	struct gleam_session_ref ref = { .session = 4711 };
	int pipes[2];

	SAME(pipe(pipes), 0);
	SAME(RC(ioctl(fd, _IO('x', 1))), -ENOTTY);
	SAME(RC(ioctl(fd, _IO(GLEAM_IOC_TYPE, 0x7f))), -ENOTTY);
	SAME(RC(ioctl(fd, 0)), -ENOTTY);
	SAME(RC(ioctl(fd, GLEAM_IOC_TAKE, &take)), -ENOTTY);
	SAME(RC(ioctl(fd, _IOR(GLEAM_IOC_TYPE, 0x01, uint32_t), &arg)), -EINVAL);
	SAME(RC(ioctl(fd, _IOW(GLEAM_IOC_TYPE, 0x03, uint64_t[4]), &arg)), -EINVAL);
	SAME(RC(ioctl(fd, GLEAM_IOC_INFO, NULL)), -EFAULT);
	SAME(RC(ioctl(fd, GLEAM_IOC_INFO, 1ul << 63)), -EFAULT);
	SAME(RC(ioctl(fd, GLEAM_IOC_EVENTFD, &arg)), 0);
	arg.flags = 1;
	SAME(RC(ioctl(fd, GLEAM_IOC_EVENTFD, &arg)), -EINVAL);
	SAME(RC(ioctl(fd, GLEAM_IOC_JOIN, &arg)), -EINVAL);
	arg = (struct gleam_fd){ .fd = -2 };
	SAME(RC(ioctl(fd, GLEAM_IOC_EVENTFD, &arg)), -EINVAL);
	arg.fd = 999;
	SAME(RC(ioctl(fd, GLEAM_IOC_EVENTFD, &arg)), -EBADF);
	SAME(RC(ioctl(fd, GLEAM_IOC_JOIN, &arg)), -EBADF);
	arg.fd = pipes[0];
	SAME(RC(ioctl(fd, GLEAM_IOC_EVENTFD, &arg)), -EINVAL);
	SAME(RC(ioctl(fd, GLEAM_IOC_JOIN, &arg)), -EINVAL);

	SAME(RC(ioctl(broker, GLEAM_IOC_INFO, &arg)), -ENOTTY);
	SAME(RC(ioctl(broker, _IO(GLEAM_IOC_TYPE, 0x7f))), -ENOTTY);
	SAME(RC(ioctl(broker, _IOWR(GLEAM_IOC_TYPE, 0x20, uint32_t), &take)), -EINVAL);
	SAME(RC(ioctl(broker, GLEAM_IOC_TAKE, NULL)), -EFAULT);
	take.session = 4711;
	SAME(RC(ioctl(broker, GLEAM_IOC_TAKE, &take)), -ENOENT);
	take.flags = 1;
	SAME(RC(ioctl(broker, GLEAM_IOC_TAKE, &take)), -EINVAL);
	SAME(RC(ioctl(broker, GLEAM_IOC_RING, &ref)), -ENOENT);
	SAME(RC(ioctl(broker, GLEAM_IOC_END, &ref)), -ENOENT);
	ref.flags = 1;
	SAME(RC(ioctl(broker, GLEAM_IOC_END, &ref)), -EINVAL);
	/* A session that the broker has not read of is not there for it. */
	ref = (struct gleam_session_ref){ .session = session_info(fd).session };
	SAME(RC(ioctl(broker, GLEAM_IOC_RING, &ref)), -ENOENT);

	session_map(fd);
	ref.session = broker_expect(broker, GLEAM_EVENT_ATTACH).session;
	take = (struct gleam_take){ .session = ref.session, .doorbell = pipes[0] };
	SAME(RC(ioctl(broker, GLEAM_IOC_TAKE, &take)), -EINVAL);
	take.doorbell = 999;
	SAME(RC(ioctl(broker, GLEAM_IOC_TAKE, &take)), -EBADF);
	SAME(RC(ioctl(broker, GLEAM_IOC_RING, &ref)), 0);
}

static void reads_and_writes_are_checked(void)
{
	int broker = broker_attach();
	int fd = session_open();
	void *volatile nowhere = NULL;
	struct gleam_event event;
	uint64_t bytes[2] = { 1 };

	fcntl(fd, F_SETFL, O_NONBLOCK);
	fcntl(broker, F_SETFL, O_NONBLOCK);
	SAME(RC(write(fd, bytes, 4)), -EINVAL);
	SAME(RC(write(fd, bytes, 16)), -EINVAL);
	SAME(RC(write(fd, nowhere, 8)), -EFAULT);
	SAME(RC(read(fd, bytes, 4)), -EINVAL);
	SAME(RC(read(fd, bytes, 8)), -EAGAIN);
	SAME(RC(pread(fd, bytes, 8, 0)), -ESPIPE);
	SAME(RC(read(broker, &event, sizeof(event) - 1)), -EINVAL);
	SAME(RC(read(broker, &event, sizeof(event))), -EAGAIN);
	SAME(RC(write(broker, bytes, 8)), -EINVAL);
	SAME(map_rc(broker, 4096, PROT_READ, MAP_SHARED, 0), -ENODEV);
	/* An event that can't be copied out is not lost. */
	session_map(fd);
	SAME(RC(read(broker, nowhere, sizeof(event))), -EFAULT);
	SAME(broker_expect(broker, GLEAM_EVENT_ATTACH).session, session_info(fd).session);
}

/* ---- doorbells ---- */

static void client_rings(void)
{
	int broker = broker_attach();
	int fd = session_open();
	int bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	uint64_t count = 1;
	int memory;

	session_map(fd);
	SAME(RC(ioctl(fd, GLEAM_IOC_DOORBELL)), 0);

	struct gleam_event event = broker_expect(broker, GLEAM_EVENT_ATTACH);

	/* Rung before the broker had an eventfd: it is told either way. */
	SAME(event.doorbells, 1);
	SAME(broker_take(broker, event.session, bell, &memory), 0);
	SAME(RC(read(bell, &count, 8)), 8);
	broker_quiet(broker);
	SAME(RC(ioctl(fd, GLEAM_IOC_DOORBELL)), 0);
	SAME(RC(write(fd, &count, 8)), 8);
	SAME(RC(read(bell, &count, 8)), 8);
	SAME(count, 2);
	/* Without an eventfd by an event, one for any number of rings. */
	SAME(broker_take(broker, event.session, -1, &memory), 0);
	SAME(RC(ioctl(fd, GLEAM_IOC_DOORBELL)), 0);
	SAME(RC(ioctl(fd, GLEAM_IOC_DOORBELL)), 0);
	event = broker_expect(broker, GLEAM_EVENT_DOORBELL);
	SAME(event.doorbells, 5);
	broker_quiet(broker);
	SAME(RC(read(bell, &count, 8)), -EAGAIN);
	CHECK(kt_read_number(SYS_GLEAM "doorbells") >= 5);
}

static void broker_rings(void)
{
	int broker = broker_attach();
	int fd = session_open();
	struct gleam_fd bell = { .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) };
	uint64_t count;

	session_map(fd);
	SAME(RC(ioctl(fd, GLEAM_IOC_EVENTFD, &bell)), 0);

	uint32_t session = broker_expect(broker, GLEAM_EVENT_ATTACH).session;

	SAME(events_now(fd), POLLOUT);
	SAME(broker_ring(broker, session), 0);
	SAME(broker_ring(broker, session), 0);
	SAME(events_now(fd), POLLOUT | POLLIN);
	SAME(RC(read(fd, &count, 8)), 8);
	SAME(count, 2);
	SAME(events_now(fd), POLLOUT);
	SAME(RC(read(bell.fd, &count, 8)), 8);
	SAME(count, 2);
}

static void end_is_seen_by_the_client(void)
{
	int broker = broker_attach();
	int fd = session_open();
	struct gleam_fd bell = { .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) };
	struct gleam_info info;
	uint64_t count;

	session_map(fd);
	SAME(RC(ioctl(fd, GLEAM_IOC_EVENTFD, &bell)), 0);

	uint32_t session = broker_expect(broker, GLEAM_EVENT_ATTACH).session;

	SAME(broker_end(broker, session), 0);
	CHECK(events_now(fd) & POLLHUP);
	SAME(RC(read(bell.fd, &count, 8)), 8);
	SAME(RC(ioctl(fd, GLEAM_IOC_DOORBELL)), -EPIPE);
	SAME(RC(ioctl(fd, GLEAM_IOC_EVENTFD, &bell)), -EPIPE);
	SAME(RC(read(fd, &count, 8)), 0);
	SAME(RC(ioctl(fd, GLEAM_IOC_INFO, &info)), 0);
	/* It is over for the broker: no event, no number. */
	SAME(broker_ring(broker, session), -ENOENT);
	SAME(broker_end(broker, session), -ENOENT);
	close(fd);
	broker_quiet(broker);
	SAME(sessions_now(), 0);
}

/* ---- rings ---- */

#define FRAMES 20000

static uint32_t frame_size(uint32_t number)
{
	return sizeof(struct frame_hdr) + number * 37 % 900;
}

/* Commands through c2n, as the library sends them; each 64th waits for its reply in a slot. */
static void ring_client(void *arg)
{
	int fd = session_open();
	struct shm shm = { .base = session_map(fd), .fd = -1 };
	struct session_header *header = shm_header(&shm);
	struct ring ring;

	WAIT_FOR(__atomic_load_n(&header->state, __ATOMIC_ACQUIRE) == SESSION_LIVE);
	shm_ring_c2n(&shm, &ring);
	for (uint32_t i = 1; i <= FRAMES; i++) {
		struct reply_slot *slot = shm_slot(&shm, i % SESSION_SLOTS);
		bool waits = i % 64 == 0;
		struct frame_hdr hdr = {
			.size = frame_size(i),
			.kind = FRAME_COMMAND,
			.op = 1,
			.flags = waits ? FRAME_WANTS_REPLY : 0,
			.slot = waits ? i % SESSION_SLOTS : 0,
			.ctx = CTX_NONE,
			.seq = i,
		};
		uint8_t *room;
		uint64_t tail;
		int err;

		while (tail = ring_tail(&ring), (err = ring_reserve(&ring, hdr.size, &room)) == -EAGAIN)
			ring_room_wait(ring.ctl, tail, 100000000);
		SAME(err, 0);
		memcpy(room, &hdr, sizeof(hdr));
		memset(room + sizeof(hdr), (int)(i & 0xff), hdr.size - sizeof(hdr));
		ring_commit(&ring, hdr.size);
		if (waits) {
			slot->seq = i;
			__atomic_store_n(&slot->state, SLOT_SENT, __ATOMIC_RELEASE);
		}
		if (ring_publish(&ring))
			ring_wake_fd(fd); /* write() to the session is its doorbell */
		if (waits) {
			WAIT_FOR(__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == SLOT_DONE);
			SAME(slot->seq, i);
			__atomic_store_n(&slot->state, SLOT_FREE, __ATOMIC_RELAXED);
		}
	}
}

static void ring_carries_commands(void)
{
	int broker = broker_attach();
	int bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	pid_t child = kt_child(ring_client, NULL, 1000);
	struct pollfd poll_fd = { .fd = bell, .events = POLLIN };
	struct shm shm;
	struct gleam_event event = broker_accept(broker, bell, &shm);
	uint64_t count;
	struct ring ring;
	uint32_t seen = 0, slept = 0;

	shm_ring_c2n(&shm, &ring);
	session_live_post(&shm);
	while (seen < FRAMES) {
		struct frame_hdr hdr;
		const uint8_t *frame;
		int got = ring_peek(&ring, &hdr, &frame);

		CHECK(got >= 0);
		if (!got) {
			if (ring_sleep_begin(&ring)) {
				slept++;
				SAME(poll(&poll_fd, 1, 10000), 1);
			}
			ring_sleep_end(&ring);
			(void)!read(bell, &count, 8);
			continue;
		}
		seen++;
		SAME(hdr.seq, seen);
		SAME(hdr.size, frame_size(seen));
		for (uint32_t i = sizeof(hdr); i < hdr.size; i++)
			if (frame[i] != (seen & 0xff))
				SAME(frame[i], seen & 0xff);
		if (hdr.flags & FRAME_WANTS_REPLY) {
			struct {
				struct frame_hdr hdr;
				uint32_t result;
			} reply = { .hdr = { .size = sizeof(reply), .kind = FRAME_REPLY, .op = 1, .slot = hdr.slot,
					     .seq = hdr.seq } };

			SAME(session_reply_post(&shm, &reply), 0);
		}
		ring_next(&ring, &hdr);
		ring_release(&ring);
	}
	kt_join(child);
	CHECK(slept > 0);
	SAME(broker_expect(broker, GLEAM_EVENT_DETACH).session, event.session);
}

/* Nonsense in the memory is the broker's to find, and nobody's to crash by. */
static void hostile_client(void *arg)
{
	int fd = session_open();
	uint32_t *words = session_map(fd);

	SAME(RC(ioctl(fd, GLEAM_IOC_DOORBELL)), 0);
	for (size_t i = 0; i < SESSION_AT_SLOTS / 4; i++)
		words[i] = 0xffffffff - (uint32_t)i;
	memset((uint8_t *)words + SESSION_AT_C2N, 0xfe, SESSION_C2N_SIZE);
	SAME(RC(ioctl(fd, GLEAM_IOC_DOORBELL)), 0);
	pause();
}

static void hostile_memory_harms_nobody(void)
{
	int broker = broker_attach();
	pid_t child = kt_child(hostile_client, NULL, 1000);
	uint32_t session = broker_expect(broker, GLEAM_EVENT_ATTACH).session;
	struct ring ring;
	struct frame_hdr hdr;
	const uint8_t *frame;
	struct shm shm;
	int memory;

	SAME(broker_take(broker, session, -1, &memory), 0);
	shm = (struct shm){ .fd = -1 };
	shm.base = mmap(NULL, SESSION_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	CHECK(shm.base != MAP_FAILED);
	WAIT_FOR(*(volatile uint8_t *)(shm.base + SESSION_AT_N2C - 1) == 0xfe);
	shm_ring_c2n(&shm, &ring);
	SAME(ring_peek(&ring, &hdr, &frame), -EPROTO);
	/* A memory whose header is a lie is not taken for one. */
	SAME(shm_map(&(struct shm){ .fd = -1 }, dup(memory), NULL), -EPROTO);
	SAME(broker_end(broker, session), 0);
	kt_kill(child);
	SAME(sessions_now(), 0);
}

static const struct kt_test tests[] = {
	{ "identity is the opener's", identity_is_the_openers },
	{ "a process that inherits the file can't use it", others_cannot_use_it },
	{ "memory has a header and is shared", memory_has_a_header },
	{ "mappings are checked", mappings_are_checked },
	{ "memory can't be shrunk, punched or sealed", memory_cannot_be_taken_away },
	{ "untouched memory costs nothing", untouched_memory_costs_nothing },
	{ "ioctls are checked", ioctls_are_checked },
	{ "reads and writes are checked", reads_and_writes_are_checked },
	{ "the client rings", client_rings },
	{ "the broker rings", broker_rings },
	{ "an end is seen by the client", end_is_seen_by_the_client },
	{ "rings carry commands and replies", ring_carries_commands },
	{ "hostile memory harms nobody", hostile_memory_harms_nobody },
	{ NULL, NULL },
};

const struct kt_group group_session = { "session", tests };
