// SPDX-License-Identifier: Apache-2.0
/*
 * Questions to gleamd: LOCAL_GPUS of broker/proto/wire.h. What comes back is checked like any stranger's. Any thread.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "broker/lib/codec.h"
#include "broker/proto/wire.h"
#include "libgleamcuda/nvml/nvml.h"

#define ANSWER_WAIT_MS 3000 /* gleamd answers from what it knows */

static int socket_try(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd, err;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	err = -errno;
	close(fd);
	return err;
}

/* As libcuda.so.1 finds it. */
static int socket_find(void)
{
	const char *asked = secure_getenv("GLEAM_SOCKET");
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	char path[256];
	int fd;

	if (asked && *asked)
		return socket_try(asked);
	if (runtime && *runtime && snprintf(path, sizeof(path), "%s/gleam/gleamd.sock", runtime) < (int)sizeof(path)) {
		fd = socket_try(path);
		if (fd >= 0)
			return fd;
	}
	return socket_try(LOCAL_SOCKET_SYSTEM);
}

static int question_send(int fd)
{
	uint8_t packet[4096] __attribute__((aligned(8)));
	struct writer w = writer_on(packet, sizeof(packet));
	const char *server = secure_getenv("GLEAM_SERVER");

	put_u32(&w, LOCAL_GPUS);
	put_str(&w, server ? server : "");
	if (w.fault)
		return -EINVAL; /* no server has such a name */
	return send(fd, packet, w.at, MSG_NOSIGNAL) == (ssize_t)w.at ? 0 : -errno;
}

static bool processes_get(struct reader *r, struct nvml_gpu *gpu)
{
	uint32_t count = get_u32(r);

	if (r->fault || count > LOCAL_MSG_MAX / 16)
		return false;
	gpu->processes = calloc(count + 1, sizeof(*gpu->processes));
	if (!gpu->processes)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		gpu->processes[i].pid = get_u32(r);
		gpu->processes[i].memory = get_u64(r);
	}
	gpu->process_count = count;
	return !r->fault;
}

static bool gpu_get(struct reader *r, struct nvml_answer *answer)
{
	struct nvml_gpu gpu = { .lost = false };

	snprintf(gpu.server, sizeof(gpu.server), "%s", get_str(r, CONF_NAME_SIZE - 1));
	gpu.index = get_u32(r);
	snprintf(answer->driver_version, sizeof(answer->driver_version), "%s", get_str(r, sizeof(answer->driver_version) - 1));
	snprintf(gpu.gpu.name, sizeof(gpu.gpu.name), "%s", get_str(r, REPORT_NAME_SIZE - 1));
	get_block(r, gpu.gpu.uuid, sizeof(gpu.gpu.uuid));
	gpu.gpu.memory = get_u64(r);
	gpu.gpu.memory_free = get_u64(r);
	gpu.gpu.utilisation = get_u32(r);
	gpu.gpu.pci = get_u64(r);
	report_values_get(r, &gpu.gpu);
	if (r->fault)
		return false;
	/* Of more than that nobody hears. */
	if (answer->count == NVML_GPUS_MAX)
		return true;
	if (!processes_get(r, &gpu)) {
		free(gpu.processes);
		return false;
	}
	answer->gpus[answer->count++] = gpu;
	return true;
}

/* 1: there is more. */
static int packet_take(int fd, uint8_t *packet, struct nvml_answer *answer)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	struct reader r;
	uint32_t type, more, pending;
	ssize_t size;
	int got;

	do
		got = poll(&ready, 1, ANSWER_WAIT_MS);
	while (got < 0 && errno == EINTR);
	if (got <= 0)
		return got ? -errno : -ETIMEDOUT;
	size = recv(fd, packet, LOCAL_MSG_MAX, 0);
	if (size <= 0)
		return size ? -errno : -ECONNRESET;
	r = reader_on(packet, (size_t)size);
	type = get_u32(&r);
	more = get_u32(&r);
	pending = get_u32(&r);
	if (r.fault || type != LOCAL_GPU)
		return -EPROTO;
	if (!more) {
		answer->pending = pending;
		return 0;
	}
	return gpu_get(&r, answer) ? 1 : -EPROTO;
}

int nvml_ask(struct nvml_answer *answer)
{
	uint8_t *packet = malloc(LOCAL_MSG_MAX);
	int fd = packet ? socket_find() : -ENOMEM;
	int err = fd < 0 ? fd : question_send(fd);

	answer->count = answer->pending = 0;
	while (!err) {
		err = packet_take(fd, packet, answer);
		if (err <= 0)
			break;
		err = 0;
	}
	if (fd >= 0)
		close(fd);
	free(packet);
	return err;
}

void nvml_answer_free(struct nvml_answer *answer)
{
	for (uint32_t i = 0; i < answer->count; i++)
		free(answer->gpus[i].processes);
	answer->count = 0;
}
