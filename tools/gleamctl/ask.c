// SPDX-License-Identifier: Apache-2.0
/*
 * Asking the local gleamd over its SOCK_SEQPACKET socket (broker/proto/wire.h, LOCAL_CONTROL). One thread.
 */
#include "tools/gleamctl/ask.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "broker/lib/codec.h"
#include "broker/lib/fdpass.h"
#include "broker/proto/wire.h"

#define WHY_SIZE       1024 /* a reason of the daemon's fits */
#define ANSWER_WAIT_MS 5000	    /* the daemon answers from what it knows, without asking a node */
#define ANSWER_SIZE_MAX (64u << 20) /* thousands of clients with their call tables */

const char *ask_socket(const char *asked)
{
	static char path[256];
	const char *set = asked ? asked : getenv("GLEAM_SOCKET");
	const char *runtime = getenv("XDG_RUNTIME_DIR");

	if (set && *set)
		return set;
	if (runtime && *runtime) {
		snprintf(path, sizeof(path), "%s/gleam/gleamd.sock", runtime);
		if (access(path, F_OK) == 0)
			return path;
	}
	return LOCAL_SOCKET_SYSTEM;
}

bool ask_is_there(const char *socket_path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = -1;
	bool there = false;

	if (strlen(socket_path) < sizeof(address.sun_path))
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	strcpy(address.sun_path, socket_path);
	there = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
	close(fd);
	return there;
}

static int open_socket(const char *path, char *why, size_t why_size)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd;

	if (strlen(path) >= sizeof(address.sun_path)) {
		snprintf(why, why_size, "%s: a socket's path has at most %zu characters", path, sizeof(address.sun_path) - 1);
		return -1;
	}
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	snprintf(why, why_size, "%s: %s; %s", path, strerror(errno),
		 errno == EACCES ? "you may not talk to this daemon" :
				   "no gleamd is running there: start it (systemctl start gleamd), or name its socket "
				   "with --socket");
	if (fd >= 0)
		close(fd);
	return -1;
}

/* @passed: a descriptor that goes with it, or -1. */
static int request_send(int fd, const char *text, int passed, char *why, size_t why_size)
{
	uint8_t packet[LOCAL_MSG_MAX] __attribute__((aligned(8)));
	struct writer w = writer_on(packet, sizeof(packet));
	int err;

	put_u32(&w, LOCAL_CONTROL);
	put_str(&w, text);
	if (w.fault) {
		snprintf(why, why_size, "the request is too long");
		return -1;
	}
	err = fds_send(fd, packet, w.at, &passed, passed >= 0, 0);
	if (err)
		snprintf(why, why_size, "the daemon closed the connection: %s", strerror(-err));
	return err ? -1 : 0;
}

/* Who hears what is told before an answer; NULL: nobody. */
struct hearer {
	ask_news *news;
	void *arg;
};

static void news_take(const struct hearer *hearer, struct reader *r)
{
	const char *text = get_str(r, LOCAL_MSG_MAX);
	json_t *news = r->fault || !hearer ? NULL : json_loads(text, 0, NULL);

	if (news)
		hearer->news(hearer->arg, news);
	json_decref(news);
}

/* Packets until one says that there are no more; their text together, terminated. */
static char *answer_read(int fd, const struct hearer *hearer, char *why, size_t why_size)
{
	uint8_t packet[LOCAL_MSG_MAX] __attribute__((aligned(8)));
	char *text = calloc(1, 1);
	size_t size = 0;

	for (;;) {
		struct pollfd ready = { .fd = fd, .events = POLLIN };
		int count = poll(&ready, 1, ANSWER_WAIT_MS);

		if (count < 0 && errno == EINTR)
			continue;
		if (count == 0) {
			snprintf(why, why_size, "the daemon does not answer");
			goto free_text;
		}

		ssize_t got = recv(fd, packet, sizeof(packet), 0);

		if (got <= 0) {
			snprintf(why, why_size, "the daemon closed the connection");
			goto free_text;
		}

		struct reader r = reader_on(packet, (size_t)got);
		uint32_t type = get_u32(&r);
		uint32_t more = type == LOCAL_JSON ? get_u32(&r) : 0;
		const char *part;
		size_t length;
		char *longer;

		if (type == LOCAL_NEWS) {
			news_take(hearer, &r);
			continue;
		}
		if (type == LOCAL_REFUSED)
			get_u32(&r);
		part = get_str(&r, LOCAL_MSG_MAX);
		if (r.fault || type != LOCAL_JSON) {
			snprintf(why, why_size, "%s",
				 type == LOCAL_REFUSED && !r.fault ? part : "the daemon's answer can't be read");
			goto free_text;
		}
		length = strlen(part);
		if (length > ANSWER_SIZE_MAX - size || !(longer = realloc(text, size + length + 1))) {
			snprintf(why, why_size, "the answer is too long");
			goto free_text;
		}
		text = longer;
		memcpy(text + size, part, length + 1);
		size += length;
		if (!more)
			return text;
	}

free_text:
	free(text);
	return NULL;
}

static json_t *ask_passing(const char *socket_path, const char *cmd, json_t *args, int passed, const struct hearer *hearer, char *why,
			   size_t why_size)
{
	json_t *request = args ? args : json_object();
	json_t *answer = NULL;
	json_error_t error;
	char *text, *got = NULL;
	int fd;

	json_object_set_new(request, "cmd", json_string(cmd));
	text = json_dumps(request, JSON_COMPACT);
	json_decref(request);
	if (!text) {
		snprintf(why, why_size, "out of memory");
		return NULL;
	}
	fd = open_socket(socket_path, why, why_size);
	if (fd < 0)
		goto free_text;
	if (!request_send(fd, text, passed, why, why_size))
		got = answer_read(fd, hearer, why, why_size);
	close(fd);
	if (!got)
		goto free_text;
	answer = json_loads(got, 0, &error);
	if (!answer)
		snprintf(why, why_size, "the daemon's answer is not JSON: %s", error.text);
	free(got);
	/* {"error": "..."}: it understood, and refuses. */
	if (answer && json_is_string(json_object_get(answer, "error"))) {
		snprintf(why, why_size, "%s", json_string_value(json_object_get(answer, "error")));
		json_decref(answer);
		answer = NULL;
	}
free_text:
	free(text);
	return answer;
}

int ask_watch(const char *socket_path)
{
	char why[WHY_SIZE];
	int fd = open_socket(socket_path, why, sizeof(why));
	char *got = NULL;

	/* Whoever says nothing is not kept for long. */
	if (fd >= 0 && !request_send(fd, "{\"cmd\":\"version\"}", -1, why, sizeof(why)))
		got = answer_read(fd, NULL, why, sizeof(why));
	if (fd >= 0 && !got) {
		close(fd);
		fd = -1;
	}
	free(got);
	return fd;
}

json_t *ask_quietly(const char *socket_path, const char *cmd, json_t *args, char *why, size_t why_size)
{
	return ask_passing(socket_path, cmd, args, -1, NULL, why, why_size);
}

json_t *ask_with(const char *socket_path, const char *cmd, json_t *args, int passed)
{
	char why[WHY_SIZE];
	json_t *answer = ask_passing(socket_path, cmd, args, passed, NULL, why, sizeof(why));

	if (!answer)
		fprintf(stderr, "gleamctl: %s\n", why);
	return answer;
}

json_t *ask_hearing_with(const char *socket_path, const char *cmd, json_t *args, int passed, ask_news *news, void *arg)
{
	struct hearer hearer = { news, arg };
	char why[WHY_SIZE];
	json_t *answer = ask_passing(socket_path, cmd, args, passed, &hearer, why, sizeof(why));

	if (!answer)
		fprintf(stderr, "gleamctl: %s\n", why);
	return answer;
}

json_t *ask_hearing(const char *socket_path, const char *cmd, json_t *args, ask_news *news, void *arg)
{
	return ask_hearing_with(socket_path, cmd, args, -1, news, arg);
}

json_t *ask(const char *socket_path, const char *cmd, json_t *args)
{
	char why[WHY_SIZE];
	json_t *answer = ask_quietly(socket_path, cmd, args, why, sizeof(why));

	if (!answer)
		fprintf(stderr, "gleamctl: %s\n", why);
	return answer;
}
