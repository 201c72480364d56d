// SPDX-License-Identifier: Apache-2.0
/*
 * A worker in the test's own process, and its client; see worker_session.h.
 */
#include "tests/unit/worker_session.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "broker/lib/slot.h"

#define WAIT_S 20 /* a sanitizer on a busy machine */

uint8_t send_room[FRAME_SIZE_MAX] __attribute__((aligned(64)));

static const uint8_t protocol_hash[32] = PROTOCOL_HASH;

/* Beside the test's folder: .../tests/unit/NAME -> .../lib/libfakecuda.so */
static void fake_path(char *path, size_t size)
{
	ssize_t got = readlink("/proc/self/exe", path, size - 1);

	CHECK(got > 0);
	path[got] = '\0';
	for (int i = 0; i < 3; i++) {
		char *slash = strrchr(path, '/');

		CHECK(slash);
		*slash = '\0';
	}
	strncat(path, "/lib/libfakecuda.so", size - strlen(path) - 1);
}

static void *executor_thread(void *arg)
{
	struct client *c = arg;
	int code = executor_run(&c->worker);

	__atomic_store_n(&c->exit_code, code, __ATOMIC_RELEASE);
	return NULL;
}

static void fake_find(struct fake *fake, const char *path)
{
	void *dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!dl)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(dl);
	*(void **)&fake->release = dlsym(dl, "fake_release");
	*(void **)&fake->plan = dlsym(dl, "fake_fail");
	*(void **)&fake->refuse_register = dlsym(dl, "fake_refuse_register");
	*(void **)&fake->wait_in = dlsym(dl, "fake_wait_in");
	*(void **)&fake->memory = dlsym(dl, "fake_memory");
	*(void **)&fake->ask = dlsym(dl, "fake_ask");
	*(void **)&fake->calls = dlsym(dl, "fake_calls");
	CHECK(fake->release && fake->plan && fake->refuse_register && fake->wait_in && fake->memory && fake->ask && fake->calls);
}

static void child(void (*test)(struct client *c), void (*prepare)(struct client *c))
{
	struct client *c = calloc(1, sizeof(*c));
	char path[4096];
	char why[512] = "";
	int err;

	alarm(6 * WAIT_S);
	CHECK(c);
	fake_path(path, sizeof(path));
	fake_find(&c->fake, path);
	c->exit_code = -1;
	c->worker.settings = (struct worker_settings){ .wipe = true, .staging_small = 64, .staging_large = 16 };
#ifdef __SANITIZE_THREAD__
	/* It has its own memory where ours should be. */
	c->worker.settings.range_device = 0x7e8000000000;
	c->worker.settings.range_host = 0x7e9000000000;
	c->worker.settings.range_size = 1ull << 36;
#endif
	if (prepare)
		prepare(c);
	CHECK(shm_make(&c->shm, protocol_hash, (uint32_t)getpid()) == 0);
	shm_ring_c2n(&c->shm, &c->c2n);
	shm_ring_n2c(&c->shm, &c->n2c);
	c->worker.doorbell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	err = worker_start(&c->worker, dup(c->shm.fd), protocol_hash, path, why, sizeof(why));
	if (err)
		fprintf(stderr, "worker_start: %d, %s\n", err, why);
	CHECK(!err);
#ifdef __SANITIZE_THREAD__
	/* One mapping for both ends: it knows words by their addresses. */
	munmap(c->shm.base, SESSION_SIZE);
	c->shm.base = c->worker.shm.base;
	shm_ring_c2n(&c->shm, &c->c2n);
	shm_ring_n2c(&c->shm, &c->n2c);
#endif
	CHECK(pthread_create(&c->executor, NULL, executor_thread, c) == 0);

	test(c);

	c->fake.release(1000000);
	__atomic_store_n(&shm_header(&c->shm)->state, SESSION_DEAD, __ATOMIC_RELEASE);
	executor_wake(&c->worker);
	pthread_join(c->executor, NULL);
#ifdef __SANITIZE_THREAD__
	c->shm.base = NULL;
#endif
	worker_stop(&c->worker);
	close(c->worker.doorbell);
	shm_close(&c->shm);
	while (c->seen) {
		struct seen *next = c->seen->next;

		free(c->seen);
		c->seen = next;
	}
	free(c);
}

bool child_run(void (*test)(struct client *c), void (*prepare)(struct client *c))
{
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		child(test, prepare);
		exit(0); /* where leaks are looked for */
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return false;
	if (WIFSIGNALED(status))
		fprintf(stderr, "the child died of signal %d\n", WTERMSIG(status));
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- a process ---- */

static void sibling_path(const char *name, char *path, size_t size)
{
	ssize_t got = readlink("/proc/self/exe", path, size - 1);

	CHECK(got > 0);
	path[got] = '\0';
	for (int i = 0; i < 3; i++)
		*strrchr(path, '/') = '\0';
	snprintf(path + strlen(path), size - strlen(path), "/%s", name);
}

pid_t process_start(struct client *c, const char *driver, const char *argument, char *status_out, size_t size)
{
	char program[4096], path[4096], text[3][16];
	char *argv[] = { program, "--session-fd", text[0], "--doorbell-fd", text[1], "--status-fd", text[2], "--driver", path,
			 (char *)argument, NULL };
	int status[2];
	ssize_t got;
	size_t at = 0;
	pid_t pid;

	memset(c, 0, sizeof(*c));
	c->worker.settings.range_device = SPACE_DEVICE;
	sibling_path("bin/gleam-worker", program, sizeof(program));
	if (strchr(driver, '/')) {
		snprintf(path, sizeof(path), "%s", driver);
	} else {
		char name[256];

		snprintf(name, sizeof(name), "lib/%s", driver);
		sibling_path(name, path, sizeof(path));
	}
	CHECK(shm_make(&c->shm, protocol_hash, (uint32_t)getpid()) == 0);
	shm_ring_c2n(&c->shm, &c->c2n);
	shm_ring_n2c(&c->shm, &c->n2c);
	c->worker.doorbell = eventfd(0, 0);
	CHECK(pipe(status) == 0);
	pid = fork();
	if (pid == 0) {
		int fd = dup(c->shm.fd); /* without close-on-exec */

		close(status[0]);
		snprintf(text[0], sizeof(text[0]), "%d", fd);
		snprintf(text[1], sizeof(text[1]), "%d", c->worker.doorbell);
		snprintf(text[2], sizeof(text[2]), "%d", status[1]);
		execv(program, argv);
		_exit(99);
	}
	close(status[1]);
	while (at < size - 1 && (got = read(status[0], status_out + at, size - 1 - at)) > 0)
		at += (size_t)got;
	status_out[at] = '\0';
	close(status[0]);
	return pid;
}

int process_end(struct client *c, pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	close(c->worker.doorbell);
	shm_close(&c->shm);
	while (c->seen) {
		struct seen *next = c->seen->next;

		free(c->seen);
		c->seen = next;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- sending ---- */

uint64_t send_frame(struct client *c, uint16_t op, uint8_t flags, const struct bulk_ref *bulk, const void *payload,
		    uint32_t size)
{
	struct frame_hdr hdr = {
		.op = op, .kind = FRAME_COMMAND, .flags = flags, .slot = (uint16_t)(c->seq % SESSION_SLOTS), .ctx = c->ctx,
		.thread = 1, .seq = c->seq + 1,
	};
	uint8_t *room;
	int err;

	hdr.size = (uint32_t)sizeof(hdr) + (bulk ? (uint32_t)sizeof(*bulk) : 0) + size;
	while ((err = ring_reserve(&c->c2n, hdr.size, &room)) == -EAGAIN) {
		settle(c);
		pause_ms(1);
	}
	CHECK(!err);
	memcpy(room, &hdr, sizeof(hdr));
	room += sizeof(hdr);
	if (bulk) {
		memcpy(room, bulk, sizeof(*bulk));
		room += sizeof(*bulk);
	}
	if (size)
		memcpy(room, payload, size);
	ring_commit(&c->c2n, hdr.size);
	if (ring_publish(&c->c2n))
		ring_wake_futex(c->c2n.ctl);
	return ++c->seq;
}

/* ---- what comes back ---- */

void pause_ms(unsigned int ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 }, NULL);
}

static void seen_add(struct client *c, const struct frame_hdr *hdr, const uint8_t *frame)
{
	bool bulk = hdr->flags & FRAME_BULK_DOWN;
	uint32_t head = (uint32_t)sizeof(*hdr) + (bulk ? (uint32_t)sizeof(struct bulk_ref) : 0);
	struct seen *s = malloc(sizeof(*s) + hdr->size);
	struct seen **link = &c->seen;

	CHECK(s);
	s->next = NULL;
	s->hdr = *hdr;
	s->size = hdr->size - head;
	if (bulk)
		s->bulk = ring_bulk_ref(frame);
	memcpy(s->payload, frame + head, s->size);
	while (*link)
		link = &(*link)->next;
	*link = s;
}

/* Landings are counted, and the count is told before anything that they may belong to. */
static void landings_check(struct client *c, const struct frame_hdr *hdr, const uint8_t *frame)
{
	uint32_t word = 1;

	if (hdr->kind == FRAME_NOTICE && hdr->op == NOTICE_LANDED) {
		uint32_t which = 0;

		if (hdr->size >= sizeof(*hdr) + sizeof(struct bulk_ref) + 2 * sizeof(which))
			memcpy(&which, frame + sizeof(*hdr) + sizeof(struct bulk_ref) + sizeof(which), sizeof(which));
		CHECK(which == ++c->landed);
		return;
	}
	if (hdr->kind == FRAME_NOTICE && hdr->op == NOTICE_PROGRESS)
		memcpy(&word, frame + sizeof(*hdr), sizeof(word));
	if (word != PROGRESS_LANDINGS)
		CHECK(c->progress[PROGRESS_LANDINGS] == c->landed);
}

void settle(struct client *c)
{
	struct frame_hdr hdr;
	const uint8_t *frame;
	int got;

	while ((got = ring_peek(&c->n2c, &hdr, &frame)) == 1) {
		struct reader r = reader_on(frame + sizeof(hdr), hdr.size - sizeof(hdr));

		landings_check(c, &hdr, frame);
		if (hdr.kind == FRAME_NOTICE && hdr.op == NOTICE_PROGRESS) {
			uint32_t word = get_u32(&r);

			CHECK(word < SESSION_PROGRESS_WORDS);
			uint32_t value = get_u32(&r);

			/* A word never goes back. */
			CHECK(!c->progress[word] || progress_reached(value, c->progress[word]));
			c->progress[word] = value;
		} else if (hdr.kind == FRAME_NOTICE && hdr.op == NOTICE_CONSUMED) {
			uint64_t tail = get_u64(&r);

			CHECK(tail > c->consumed && tail <= c->up_head);
			c->consumed = tail;
		} else {
			seen_add(c, &hdr, frame);
		}
		ring_next(&c->n2c, &hdr);
		ring_release(&c->n2c);
	}
	CHECK(got == 0);
}

#define WAIT_FOR(c, condition)                                                                                         \
	do {                                                                                                           \
		time_t until_ = time(NULL) + WAIT_S;                                                                   \
                                                                                                                       \
		for (;;) {                                                                                             \
			settle(c);                                                                                     \
			if (condition)                                                                                 \
				break;                                                                                 \
			if (time(NULL) > until_) {                                                                     \
				fprintf(stderr, "%s: waited in vain for %s\n", __func__, #condition);                  \
				_exit(1);                                                                              \
			}                                                                                              \
			pause_ms(1);                                                                                   \
		}                                                                                                      \
	} while (0)

static struct seen *reply_find(struct client *c, uint64_t seq)
{
	for (struct seen *s = c->seen; s; s = s->next)
		if (s->hdr.kind == FRAME_REPLY && s->hdr.seq == seq)
			return s;
	return NULL;
}

bool have_reply(struct client *c, uint64_t seq)
{
	settle(c);
	return reply_find(c, seq) != NULL;
}

CUresult wait_reply(struct client *c, uint64_t seq, struct seen **seen_out)
{
	struct seen *s;
	uint32_t code;

	WAIT_FOR(c, reply_find(c, seq));
	s = reply_find(c, seq);
	CHECK(s->size >= 4);
	memcpy(&code, s->payload, 4);
	if (seen_out)
		*seen_out = s;
	return (CUresult)code;
}

static struct seen *notice_find(struct client *c, enum notice notice)
{
	for (struct seen *s = c->seen; s; s = s->next)
		if (s->hdr.kind == FRAME_NOTICE && s->hdr.op == notice)
			return s;
	return NULL;
}

bool have_notice(struct client *c, enum notice notice)
{
	settle(c);
	return notice_find(c, notice) != NULL;
}

struct seen *wait_notice(struct client *c, enum notice notice)
{
	struct seen *s;

	WAIT_FOR(c, notice_find(c, notice));
	s = notice_find(c, notice);
	s->hdr.kind = FRAME_PAD; /* taken; freed at the end */
	return s;
}

bool reached(struct client *c, uint32_t word, uint64_t seq)
{
	settle(c);
	return c->progress[word] && progress_reached(c->progress[word], seq);
}

void wait_progress(struct client *c, uint32_t word, uint64_t seq)
{
	WAIT_FOR(c, reached(c, word, seq));
}

void wait_consumed(struct client *c, uint64_t position)
{
	WAIT_FOR(c, c->consumed >= position);
}

int wait_exit(struct client *c)
{
	WAIT_FOR(c, __atomic_load_n(&c->exit_code, __ATOMIC_ACQUIRE) >= 0);
	return c->exit_code;
}

/* ---- beginnings ---- */

void open_context(struct client *c)
{
	struct bulk_ref cells = { .offset = 0, .size = SESSION_CELL_SIZE, .cookie = 77 };
	struct seen *s;
	struct snapshot *snapshot = malloc(sizeof(*snapshot));

	CHECK_EQUAL(wait_reply(c, SEND_FLAGS(c, gleamAttach, FRAME_WANTS_REPLY | FRAME_BULK_DOWN, &cells, .ordinals = 0), &s), 0);
	CHECK_EQUAL(s->bulk.cookie, 77);

	struct reader r = reader_on(shm_down(&c->shm) + s->bulk.offset, s->bulk.size);

	CHECK(snapshot && snapshot_get(&r, snapshot));
	CHECK_EQUAL(snapshot->device_count, 1);
	CHECK(strcmp(snapshot->devices[0].name, "Fake 0") == 0);
	CHECK_EQUAL(snapshot->devices[0].attributes[3], 30);
	CHECK_EQUAL(snapshot->devices[0].limits[1], 2048);
	CHECK_EQUAL((uint32_t)snapshot->devices[0].priority_greatest, (uint32_t)-5);
	CHECK_EQUAL(snapshot->worker_pid, getpid());
	free(snapshot);
	SEND(c, gleamContextOpen, .index = CTX, .device = 0, .primary = 1);
}

uint64_t map_memory(struct client *c, uint64_t bytes)
{
	static uint64_t mapped;
	struct ans_gleamGrant a;
	struct seen *s;
	struct reader r;
	uint64_t address = DEVICE_AT(c) + mapped;

	CHECK_EQUAL(CALL(c, gleamGrant, &s, .device = 0, .bytes = bytes), 0);
	r = reader_on(s->payload, s->size);
	get_u32(&r);
	CHECK(ans_gleamGrant_get(&r, &a));
	CHECK(a.pieces_count);
	SEND(c, gleamMap, .address = address, .device = 0, .pieces = a.pieces, .pieces_count = a.pieces_count);
	mapped += (bytes + (2u << 20) - 1) & ~(uint64_t)((2u << 20) - 1);
	return address;
}

uint64_t function(int which)
{
	return handle_make(OBJECT_FUNCTION, 1, (uint32_t)which);
}

uint64_t load_functions(struct client *c)
{
	static const char text[] = "// fake hold fill add crash";
	static const char *const names[] = { "hold", "fill", "add", "crash" };
	uint64_t module = handle_make(OBJECT_MODULE, 1, 1);
	struct bulk_ref piece = up_take(c, sizeof(text));
	struct bulk_ref cells = { .offset = SESSION_CELL_SIZE, .size = SESSION_CELL_SIZE };

	SEND(c, gleamLoadBegin, .object = module, .total_size = sizeof(text));
	up_land(c, &piece, text);
	SEND_FLAGS(c, gleamLoadPart, FRAME_BULK_UP, &piece, .object = module, .offset = 0);
	CHECK_EQUAL(wait_reply(c,
			       SEND_FLAGS(c, gleamLoadImage, FRAME_WANTS_REPLY | FRAME_BULK_DOWN, &cells, .object = module,
					  .kind = 2, .total_size = sizeof(text)),
			       NULL),
		    0);
	for (int i = 0; i < 4; i++)
		SEND(c, cuModuleGetFunction, .hfunc = function(FUNCTION_HOLD + i), .hmod = module, .name = names[i]);
	return module;
}

uint64_t stream(struct client *c, uint32_t index, uint32_t flags)
{
	uint64_t handle = handle_make(OBJECT_STREAM, 1, index);

	SEND(c, cuStreamCreateWithPriority, .phStream = handle, .flags = flags, .priority = 0);
	return handle;
}

static uint64_t launch(struct client *c, uint64_t on, int which, const void *params, uint32_t size)
{
	return SEND(c, gleamLaunch, .stream = on, .function = function(which), .grid_x = 1, .grid_y = 1, .grid_z = 1,
		    .block_x = 32, .block_y = 1, .block_z = 1, .params = params, .params_size = size);
}

uint64_t launch_hold(struct client *c, uint64_t on)
{
	return launch(c, on, FUNCTION_HOLD, NULL, 0);
}

uint64_t launch_crash(struct client *c, uint64_t on)
{
	return launch(c, on, FUNCTION_CRASH, NULL, 0);
}

uint64_t launch_add(struct client *c, uint64_t on, uint64_t at, uint32_t value)
{
	uint8_t params[12];

	memcpy(params, &at, 8);
	memcpy(params + 8, &value, 4);
	return launch(c, on, FUNCTION_ADD, params, sizeof(params));
}

uint64_t launch_fill(struct client *c, uint64_t on, uint64_t at, uint8_t value, uint32_t count)
{
	uint8_t params[16];
	uint32_t word = value;

	memcpy(params, &at, 8);
	memcpy(params + 8, &word, 4);
	memcpy(params + 12, &count, 4);
	return launch(c, on, FUNCTION_FILL, params, sizeof(params));
}

uint32_t read_u32(struct client *c, uint64_t on, uint64_t at)
{
	struct ans_gleamCopyDown a;
	struct seen *s;
	struct reader r;
	uint32_t value;

	CHECK_EQUAL(CALL(c, gleamCopyDown, &s, .stream = on, .src = at, .size = 4), 0);
	r = reader_on(s->payload, s->size);
	get_u32(&r);
	CHECK(ans_gleamCopyDown_get(&r, &a));
	CHECK_EQUAL(a.data_size, 4);
	memcpy(&value, a.data, 4);
	return value;
}

struct resource_entry resource(struct client *c, uint32_t index)
{
	struct resource_entry entry;
	struct ans_gleamResource a;
	struct seen *seen;
	struct reader r;

	CHECK_EQUAL(CALL(c, gleamResource, &seen, .index = index, .device = 0), 0);
	r = reader_on(seen->payload, seen->size);
	get_u32(&r);
	CHECK(ans_gleamResource_get(&r, &a));
	memcpy(&entry, a.entry, sizeof(entry));
	return entry;
}

struct bulk_ref up_take(struct client *c, uint32_t size)
{
	uint64_t need = (size + (uint64_t)SESSION_GRANULE - 1) & ~(uint64_t)(SESSION_GRANULE - 1);
	struct bulk_ref ref = { .size = size };

	if (need > SESSION_UP_SIZE - c->up_head % SESSION_UP_SIZE)
		c->up_head += SESSION_UP_SIZE - c->up_head % SESSION_UP_SIZE;
	while (c->up_head + need - c->consumed > SESSION_UP_SIZE) {
		settle(c);
		pause_ms(1);
	}
	ref.cookie = c->up_head;
	ref.offset = (uint32_t)(c->up_head % SESSION_UP_SIZE);
	c->up_head += need;
	return ref;
}

void up_land(struct client *c, const struct bulk_ref *ref, const void *bytes)
{
	memcpy(shm_up(&c->shm) + ref->offset, bytes, ref->size);
	session_landed_post(&c->shm, ref->offset, ref->cookie);
}

#if defined(__SANITIZE_ADDRESS__)
const char *__lsan_default_suppressions(void);

/* What the fake driver keeps for a module that is still loaded dies with the process, as a real driver's memory does. */
const char *__lsan_default_suppressions(void)
{
	return "leak:module_read\nleak:cuLibraryLoadData\n";
}
#endif

static void soft_attach(struct client *c)
{
	struct bulk_ref cells = { .offset = 0, .size = SESSION_CELL_SIZE, .cookie = 77 };

	CHECK_EQUAL(wait_reply(c, SEND_FLAGS(c, gleamAttach, FRAME_WANTS_REPLY | FRAME_BULK_DOWN, &cells, .ordinals = 0), NULL), 0);
	SEND(c, gleamContextOpen, .index = CTX, .device = 0, .flags = 0, .primary = 1);
}

bool soft_run(void (*run)(struct client *c), int status)
{
	pid_t child = fork();
	int got = -1;

	if (child == 0) {
		struct client c;
		char word[256];
		pid_t worker = process_start(&c, "libsoftcuda.so", NULL, word, sizeof(word));

		alarm(60);
		CHECK(word[0] == 'R');
		soft_attach(&c);
		run(&c);
		if (!status) {
			__atomic_store_n(&shm_header(&c.shm)->state, SESSION_DEAD, __ATOMIC_RELEASE);
			shm_wake_all(&c.shm);
		}
		CHECK_EQUAL(process_end(&c, worker), status);
		_exit(0);
	}
	waitpid(child, &got, 0);
	return got == 0;
}
