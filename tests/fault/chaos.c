/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gleam-chaos: a TCP proxy that makes trouble, the same trouble for the same seed. This file has the
 * command line. docs/testing.md shows its use.
 */
#include "tests/fault/chaos_proxy.h"
#include "tests/lib/control.h"
#include "tests/lib/value.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_USAGE 2

static const char usage_text[] =
	"usage: gleam-chaos --listen [ADDRESS:]PORT --target ADDRESS:PORT [options]\n"
	"       gleam-chaos ctl SOCKET COMMAND\n"
	"Prints `listening PORT` when it does (port 0: any), and works until SIGTERM.\n"
	"settings, also for ctl (behind each -up or -down: one direction only, as in "
	"--delay-up):\n" CHAOS_CONF_USAGE "options:\n"
	"  --times N         flip-at, cut-at, stall-at are for the first N connections alone\n"
	"  --at MS:COMMAND   a command at a time after the start; `--at 0:refuse` from the start\n"
	"  --control SOCKET  takes commands\n"
	"  --seed N          (default 1)\n"
	"commands beside the settings:\n"
	"  cut               resets every connection         close    ends every connection orderly\n"
	"  stall[-up|-down]  reads no more: half-open        swallow[-up|-down]   reads and drops\n"
	"  silent            stalls all; new connections are accepted and lead nowhere\n"
	"  flow              all of this and the positions are forgotten\n"
	"  refuse, accept    nobody listens; listens again   stats, quit\n";

static int usage(const char *what, const char *value)
{
	fprintf(stderr, "gleam-chaos: %s%s\n(gleam-chaos --help shows the usage)\n", what, value);
	return EXIT_USAGE;
}

/* "127.0.0.1:80", "[::1]:80", "localhost:80"; without an address loopback. */
static int parse_address(const char *text, struct sockaddr_storage *address_out, socklen_t *size_out)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV }, *found;
	const char *colon = strrchr(text, ':'), *port = colon ? colon + 1 : text;
	char host[256] = "127.0.0.1";
	uint64_t number;

	if (value_count(port, 65535, &number))
		return -EINVAL;
	if (colon) {
		size_t length = colon - text;

		if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
			text++;
			length -= 2;
		}
		if (length == 0 || length >= sizeof(host))
			return -EINVAL;
		memcpy(host, text, length);
		host[length] = 0;
	}
	if (getaddrinfo(host, port, &hints, &found) != 0)
		return -EINVAL;
	memcpy(address_out, found->ai_addr, found->ai_addrlen);
	*size_out = found->ai_addrlen;
	freeaddrinfo(found);
	return 0;
}

static int parse_event(struct proxy_conf *conf, const char *value)
{
	const char *colon = strchr(value, ':');
	struct proxy_event *event = &conf->event[conf->event_count];
	char at[32];
	int err;

	if (!colon || (size_t)(colon - value) >= sizeof(at) || conf->event_count == PROXY_EVENT_MAX)
		return -EINVAL;
	memcpy(at, value, colon - value);
	at[colon - value] = 0;
	err = value_time(at, &event->at_ns);
	if (!err)
		err = proxy_command_check(colon + 1);
	if (err)
		return -EINVAL;
	event->command = colon + 1;
	conf->event_count++;
	return 0;
}

static int parse_option(struct proxy_conf *conf, const char *name, const char *value)
{
	if (strcmp(name, "listen") == 0)
		return parse_address(value, &conf->listen, &conf->listen_size);
	if (strcmp(name, "target") == 0)
		return parse_address(value, &conf->target, &conf->target_size);
	if (strcmp(name, "at") == 0)
		return parse_event(conf, value);
	if (strcmp(name, "seed") == 0)
		return value_count(value, UINT64_MAX, &conf->seed);
	if (strcmp(name, "times") == 0)
		return value_count(value, UINT64_MAX, &conf->times);
	if (strcmp(name, "control") == 0) {
		conf->control_path = value;
		return 0;
	}
	return chaos_conf_set(conf->lane, name, value);
}

static int ctl_main(int argc, char **argv)
{
	char request[CONTROL_REQUEST_MAX], reply[CONTROL_REPLY_MAX];
	size_t length = 0;
	int err;

	if (argc < 4)
		return usage("ctl needs a socket and a command", "");
	for (int i = 3; i < argc; i++) {
		length += snprintf(request + length, sizeof(request) - length, "%s%s", length ? " " : "",
				   argv[i]);
		if (length >= sizeof(request))
			return usage("a command this long is none", "");
	}
	err = control_ask(argv[2], request, reply, sizeof(reply), NULL, NULL);
	if (err) {
		fprintf(stderr, "gleam-chaos: %s: %s\n", argv[2], strerror(-err));
		return 1;
	}
	if (strncmp(reply, "ok", 2) != 0) {
		fprintf(stderr, "gleam-chaos: %s\n", reply);
		return 1;
	}
	if (strlen(reply) > 3)
		puts(reply + 3);
	return 0;
}

int main(int argc, char **argv)
{
	static struct proxy_conf conf = { .seed = 1, .times = UINT64_MAX };
	struct proxy *proxy;
	const char *what;
	int err;

	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		fputs(usage_text, stdout);
		return 0;
	}
	if (argc > 1 && strcmp(argv[1], "ctl") == 0)
		return ctl_main(argc, argv);
	for (int lane = 0; lane < CHAOS_LANES; lane++)
		pipe_conf_default(&conf.lane[lane]);
	for (int i = 1; i < argc; i += 2) {
		if (strncmp(argv[i], "--", 2) != 0 || i + 1 == argc)
			return usage("no option, or one that lacks its value: ", argv[i]);
		err = parse_option(&conf, argv[i] + 2, argv[i + 1]);
		if (err == -ENOENT)
			return usage("no such option: ", argv[i]);
		if (err) {
			fprintf(stderr, "gleam-chaos: '%s' is no value for %s\n", argv[i + 1], argv[i]);
			return EXIT_USAGE;
		}
	}
	if (!conf.listen_size || !conf.target_size)
		return usage("--listen and --target are needed", "");
	err = proxy_open(&proxy, &conf, &what);
	if (err) {
		fprintf(stderr, "gleam-chaos: %s: %s\n", what, strerror(-err));
		return 1;
	}
	printf("listening %u\n", proxy_port(proxy));
	fflush(stdout);
	err = proxy_run(proxy);
	proxy_close(proxy);
	if (err)
		fprintf(stderr, "gleam-chaos: %s\n", strerror(-err));
	return err ? 1 : 0;
}
