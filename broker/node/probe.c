/* SPDX-License-Identifier: Apache-2.0 */
/* The side of the daemon: starts the process that asks the driver, and reads its lines. Control thread; see probe.h. */
#include "broker/node/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/lib/fd.h"
#include "broker/lib/log.h"

#define PROBE_LINE_MAX 512
#define PROBE_ENV_MAX  16

struct probe {
	struct loop *loop;
	pid_t pid;
	int fd;
	uint64_t tag;
	bool reading;
	bool stopped;
	bool refused; /* it has said why there is no GPU */
	char line[PROBE_LINE_MAX];
	size_t size;
	uint32_t gpu_count;
	struct report_gpu gpus[REPORT_GPUS_MAX];
	char version[32];
	void (*known)(void *owner);
	void *owner;
	uint64_t speed; /* as the configuration says; 0: as measured */
};

static void probe_arm(struct probe *probe);

static int uuid_parse(const char *text, uint8_t out[16])
{
	for (int i = 0; i < 16; i++) {
		unsigned byte;

		if (sscanf(text + 2 * i, "%2x", &byte) != 1)
			return -EINVAL;
		out[i] = (uint8_t)byte;
	}
	return 0;
}

/* gpu INDEX MEMORY UUID PCI NAME | all | speed INDEX FACTOR | version TEXT | free INDEX BYTES PERCENT | value INDEX NAME NUMBER | why TEXT */
static void probe_line(struct probe *probe, const char *line)
{
	unsigned index, percent, value, number;
	unsigned long long bytes, pci;
	char uuid[33];
	double speed;
	int at = 0;

	if (sscanf(line, "gpu %u %llu %32[0-9a-f] %llx %n", &index, &bytes, uuid, &pci, &at) == 4 && at && index < REPORT_GPUS_MAX &&
	    index == probe->gpu_count && strlen(uuid) == 32) {
		struct report_gpu *gpu = &probe->gpus[probe->gpu_count++];

		gpu->memory = bytes;
		gpu->memory_free = REPORT_UNKNOWN;
		gpu->utilisation = REPORT_UNKNOWN32;
		gpu->speed = probe->speed;
		gpu->pci = pci;
		for (uint32_t v = 0; v < REPORT_VALUES; v++)
			gpu->values[v] = REPORT_UNKNOWN32;
		uuid_parse(uuid, gpu->uuid);
		snprintf(gpu->name, sizeof(gpu->name), "%s", line + at);
		log_info("GPU %u: %s, %llu MiB", index, gpu->name, bytes >> 20);
	} else if (strcmp(line, "all") == 0) {
		if (!probe->stopped)
			probe->known(probe->owner);
	} else if (sscanf(line, "speed %u %lf", &index, &speed) == 2 && index < probe->gpu_count && speed > 0 && speed < 1e6) {
		probe->gpus[index].speed = (uint64_t)(speed * (double)REPORT_SPEED_ONE) + 1;
		log_info("GPU %u: speed %.4g of the reference", index, speed);
	} else if (sscanf(line, "free %u %llu %u", &index, &bytes, &percent) == 3 && index < probe->gpu_count) {
		probe->gpus[index].memory_free = bytes;
		probe->gpus[index].utilisation = percent;
	} else if (sscanf(line, "value %u %u %u", &index, &value, &number) == 3 && index < probe->gpu_count && value < REPORT_VALUES) {
		probe->gpus[index].values[value] = number;
	} else if (sscanf(line, "version %31[0-9A-Za-z.-]", probe->version) == 1) {
		log_info("driver version %s", probe->version);
	} else if (strncmp(line, "why ", 4) == 0) {
		log_error("no GPU to offer: %s", line + 4);
		probe->refused = true;
	}
}

static void probe_done(void *arg, int res, uint32_t flags)
{
	struct probe *probe = arg;

	probe->reading = false;
	if (res == -EINTR || res == -EAGAIN) {
		probe_arm(probe);
		return;
	}
	if (res <= 0 || probe->stopped) {
		if (!probe->stopped && !probe->gpu_count && !probe->refused)
			log_error("no GPU is known: the process that asks the driver ended without a word; run gleamd "
				  "--probe-driver with the driver's path to see why");
		/* What it measured is not true for long. */
		for (uint32_t i = 0; i < probe->gpu_count; i++) {
			probe->gpus[i].memory_free = REPORT_UNKNOWN;
			probe->gpus[i].utilisation = REPORT_UNKNOWN32;
			for (uint32_t v = 0; v < REPORT_VALUES; v++)
				probe->gpus[i].values[v] = REPORT_UNKNOWN32;
		}
		if (probe->pid > 0) {
			kill(probe->pid, SIGKILL);
			waitpid(probe->pid, NULL, 0);
			probe->pid = 0;
		}
		return;
	}
	probe->size += (size_t)res;
	for (char *end; (end = memchr(probe->line, '\n', probe->size));) {
		size_t used = (size_t)(end - probe->line) + 1;

		*end = 0;
		probe_line(probe, probe->line);
		probe->size -= used;
		memmove(probe->line, probe->line + used, probe->size);
	}
	if (probe->size == sizeof(probe->line))
		probe->size = 0; /* not a line of ours */
	probe_arm(probe);
}

static void probe_arm(struct probe *probe)
{
	struct io_uring_sqe *sqe = loop_sqe(probe->loop);

	io_uring_prep_read(sqe, probe->fd, probe->line + probe->size, (unsigned)(sizeof(probe->line) - probe->size),
			   (uint64_t)-1);
	probe->tag = loop_tag(probe->loop, sqe, probe_done, probe);
	probe->reading = true;
}

/* As workers have it, so that both see the same GPUs; and where this program's own libraries are, since it is this program. */
static void environment_make(char **out)
{
	static const char *const kept[] = { "LD_LIBRARY_PATH=", "GLEAM_SOFTGPU_", "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "TSAN_OPTIONS=" };
	int count = 0;

	out[count++] = "PATH=/usr/bin:/bin";
	out[count++] = "LC_ALL=C";
	for (char **at = environ; *at && count < PROBE_ENV_MAX; at++)
		for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
			if (strncmp(*at, kept[i], strlen(kept[i])) == 0) {
				out[count++] = *at;
				break;
			}
	out[count] = NULL;
}

static void child_main(const struct proc_setting *setting, bool measure, int out)
{
	char *argv[] = { "gleamd", "--probe-driver", (char *)setting->driver, measure ? NULL : "no-speed", NULL };
	char *environment[PROBE_ENV_MAX + 1];
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	sigset_t none;

	environment_make(environment);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	if (null < 0 || self < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0)
		_exit(126);
	if (setting->drop && (setgroups((size_t)setting->group_count, setting->groups) < 0 ||
			      setresgid(setting->gid, setting->gid, setting->gid) < 0 ||
			      setresuid(setting->uid, setting->uid, setting->uid) < 0))
		_exit(126);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	fexecve(self, argv, environment);
	_exit(127);
}

void probe_start(struct loop *loop, const struct proc_setting *setting, double speed, void (*known)(void *owner), void *owner,
		 struct probe **probe_out)
{
	struct probe *probe = calloc(1, sizeof(*probe));
	int fds[2] = { -1, -1 };

	*probe_out = probe;
	if (!probe)
		return;
	probe->loop = loop;
	probe->known = known;
	probe->owner = owner;
	probe->fd = -1;
	probe->speed = (uint64_t)(speed * (double)REPORT_SPEED_ONE);
	if (pipe2(fds, O_CLOEXEC) < 0)
		goto failed;
	probe->pid = fork();
	if (probe->pid == 0)
		child_main(setting, !(speed > 0), fds[1]);
	if (probe->pid < 0)
		goto failed;
	close(fds[1]);
	probe->fd = fds[0];
	probe_arm(probe);
	return;

failed:
	log_error("can't ask the driver for its GPUs: %s", strerror(errno));
	fd_close(&fds[0]);
	fd_close(&fds[1]);
}

void probe_stop(struct probe *probe)
{
	if (!probe)
		return;
	probe->stopped = true;
	if (probe->pid > 0)
		kill(probe->pid, SIGKILL);
	if (probe->reading)
		loop_cancel(probe->loop, probe->tag);
}

bool probe_is_stopped(const struct probe *probe)
{
	return !probe || (probe->stopped && !probe->reading);
}

void probe_free(struct probe *probe)
{
	if (!probe)
		return;
	fd_close(&probe->fd);
	free(probe);
}

uint64_t probe_gpu_pci(const struct probe *probe, uint32_t index)
{
	return probe ? probe->gpus[index].pci : 0;
}

uint32_t probe_gpu_count(const struct probe *probe)
{
	return probe ? probe->gpu_count : 0;
}

void probe_gpus(const struct probe *probe, struct report *report)
{
	if (!probe)
		return;
	report->gpu_count = probe->gpu_count;
	memcpy(report->gpus, probe->gpus, sizeof(probe->gpus));
	memcpy(report->driver_version, probe->version, sizeof(report->driver_version));
}
