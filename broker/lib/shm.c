/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a session: made, mapped, closed. Any thread; see shm.h.
 */
#include "broker/lib/shm.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "broker/lib/futex.h"

static_assert(SESSION_CONTEXTS * sizeof(struct error_word) <= 4096, "error words have one page");
static_assert(SESSION_API_MAX * sizeof(struct api_count) <= SESSION_AT_C2N - SESSION_AT_COUNTS, "counters fit");

#define POPULATE_READ  22 /* MADV_POPULATE_READ and _WRITE, which older headers lack */
#define POPULATE_WRITE 23

/* F_SEAL_SEAL is set too: what we have sealed nobody seals further (a write seal would break the mappings to come). */
#define SHM_SEALS (F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)

int shm_make(struct shm *shm, const uint8_t protocol_hash[32], uint32_t client_pid)
{
	int fd = memfd_create("gleam-session", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int err;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, SESSION_SIZE) < 0 || fcntl(fd, F_ADD_SEALS, SHM_SEALS) < 0) {
		err = -errno;
		goto close_fd;
	}

	uint8_t *base = mmap(NULL, SESSION_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (base == MAP_FAILED) {
		err = -errno;
		goto close_fd;
	}
	/* A fork of the client or the worker must not go on with a session that isn't its own. */
	madvise(base, SESSION_SIZE, MADV_DONTFORK);
	shm->base = base;
	memset(shm->touched, 0, sizeof(shm->touched));
	shm->fd = fd;

	struct session_header *hdr = shm_header(shm);

	hdr->version = SESSION_VERSION;
	hdr->size = SESSION_SIZE;
	memcpy(hdr->protocol_hash, protocol_hash, sizeof(hdr->protocol_hash));
	hdr->client_pid = client_pid;
	hdr->state = SESSION_NEW;
	hdr->magic = SESSION_MAGIC;
	return 0;

close_fd:
	close(fd);
	return err;
}

int shm_map(struct shm *shm, int fd, const uint8_t protocol_hash[32])
{
	struct stat st;
	struct statfs fs;
	int seals = fcntl(fd, F_GET_SEALS);
	int err;

	/* Without the seal the other side could shrink it under us, and of large pages there may be none when we touch it: SIGBUS. */
	err = fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0 ? -errno : 0;
	if (!err && (seals < 0 || !(seals & F_SEAL_SHRINK) || st.st_size != SESSION_SIZE || fs.f_type != TMPFS_MAGIC))
		err = -EPROTO;
	if (err)
		goto close_fd;

	uint8_t *base = mmap(NULL, SESSION_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (base == MAP_FAILED) {
		err = -errno;
		goto close_fd;
	}
	madvise(base, SESSION_SIZE, MADV_DONTFORK);

	const struct session_header *hdr = (const void *)base;

	if (hdr->magic != SESSION_MAGIC || hdr->size != SESSION_SIZE)
		err = -EPROTO;
	else if (hdr->version != SESSION_VERSION ||
		 (protocol_hash && memcmp(hdr->protocol_hash, protocol_hash, sizeof(hdr->protocol_hash)) != 0))
		err = -EPROTONOSUPPORT;
	if (err)
		goto unmap;
	shm->base = base;
	memset(shm->touched, 0, sizeof(shm->touched));
	shm->fd = fd;
	return 0;

unmap:
	munmap(base, SESSION_SIZE);
close_fd:
	close(fd);
	return err;
}

int shm_pages_make(void)
{
	int fd = memfd_create("gleam-pages", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int err;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)SESSION_PAGES_SIZE) == 0 && fcntl(fd, F_ADD_SEALS, SHM_SEALS) == 0)
		return fd;
	err = -errno;
	close(fd);
	return err;
}

void shm_arena_touch(struct shm *shm, uint32_t at, uint32_t size, bool write)
{
	for (uint32_t unit = at / SHM_UNIT; size && unit <= (at + size - 1) / SHM_UNIT; unit++) {
		uint64_t bit = 1ull << unit % 64;

		if (__builtin_expect(__atomic_load_n(&shm->touched[unit / 64], __ATOMIC_RELAXED) & bit, 1))
			continue;
		__atomic_fetch_or(&shm->touched[unit / 64], bit, __ATOMIC_RELAXED);
		/* A kernel that can't (before 5.14) takes the faults. */
		madvise(shm->base + SESSION_AT_UP + (size_t)unit * SHM_UNIT, SHM_UNIT, write ? POPULATE_WRITE : POPULATE_READ);
	}
}

void shm_close(struct shm *shm)
{
	if (shm->base)
		munmap(shm->base, SESSION_SIZE);
	if (shm->fd >= 0)
		close(shm->fd);
	shm->base = NULL;
	shm->fd = -1;
}

void shm_ring_c2n(const struct shm *shm, struct ring *ring_out)
{
	ring_init(ring_out, &shm_header(shm)->c2n, shm->base + SESSION_AT_C2N, SESSION_C2N_SIZE, 0);
}

void shm_ring_n2c(const struct shm *shm, struct ring *ring_out)
{
	ring_init(ring_out, &shm_header(shm)->n2c, shm->base + SESSION_AT_N2C, SESSION_N2C_SIZE, 0);
}

void shm_ring_overflow(const struct shm *shm, struct ring *ring_out)
{
	struct session_baton *baton = (struct session_baton *)(void *)(shm->base + SESSION_AT_BATON);

	ring_init(ring_out, &baton->overflow, shm->base + SESSION_AT_OVERFLOW, SESSION_OVERFLOW_SIZE, 0);
}

void shm_ring_side_c2n(const struct shm *shm, struct ring *ring_out)
{
	ring_init(ring_out, &shm_header(shm)->side_c2n, shm->base + SESSION_AT_SIDE_C2N, SESSION_C2N_SIZE, 0);
}

void shm_ring_side_n2c(const struct shm *shm, struct ring *ring_out)
{
	ring_init(ring_out, &shm_header(shm)->side_n2c, shm->base + SESSION_AT_SIDE_N2C, SESSION_N2C_SIZE, 0);
}

static void word_ring(uint32_t *word)
{
	__atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
	futex_wake(word, INT_MAX);
}

void shm_wake_all(const struct shm *shm)
{
	struct session_header *hdr = shm_header(shm);

	futex_wake(&hdr->state, INT_MAX);
	word_ring(&hdr->c2n.room);
	word_ring(&hdr->c2n.bell);
	word_ring(&hdr->n2c.room);
	word_ring(&hdr->n2c.bell);
	word_ring(&hdr->up_room);
	word_ring(&hdr->progress_bell);
	word_ring(&hdr->side_n2c.room);
}
