// SPDX-License-Identifier: Apache-2.0
/*
 * gleamctl pair: joins two machines. On the one with the GPU it sees to a key and to `[node] listen`, shows a code and waits; on
 * the other one `gleamctl pair ADDRESS` with that code gets the key and writes it and the server into the settings. A machine
 * that has a key already keeps it, and the server takes it as one more tenant.
 *
 * Lines, over pair_channel.h: "gleam-pair 1 HOST", "key LINE" or "key none" (from the machine without); "name NAME",
 * "port PORT", "key LINE" or "key none" (from the server); "done" or "failed WHY". One thread.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "broker/core/address.h"
#include "broker/lib/conf.h"
#include "broker/lib/key.h"
#include "tools/gleamctl/ask.h"
#include "tools/gleamctl/conf_edit.h"
#include "tools/gleamctl/gleamctl.h"
#include "tools/gleamctl/pair_channel.h"
#include "tools/gleamctl/progress.h"
#include "tools/gleamctl/value.h"

#define HELLO	       "gleam-pair 1 "
#define LISTEN_DEFAULT "0.0.0.0:4711"
#define OFFER_MS       (600 * 1000) /* a code that nobody used is worth nothing after ten minutes */
#define WRONG_MAX      5	    /* then somebody is trying codes */
#define CONNECT_MS     5000
#define READY_MS       10000 /* for the server to be used, once the daemons know of each other */
#define WHY_SIZE       1200

extern char **environ;

/* Settings, as a text that is being edited, and the keys. */
struct pairing {
	const struct options *options;
	const char *config;
	char *text;
	bool changed;
	char key_path[PATH_MAX];
	struct key *keys; /* KEYS_MAX of them; the first is this machine's own */
	size_t key_count;
	char host[64]; /* how this machine calls itself */
};

static int pairing_begin(struct pairing *pairing, const struct options *options)
{
	const char *slash;
	char why[WHY_SIZE], *named;
	struct conf conf;
	int err = 0;

	*pairing = (struct pairing){ .options = options, .config = options->config ? options->config : CONF_SYSTEM_PATH };
	pairing->text = conf_text(pairing->config, &err);
	pairing->keys = calloc(KEYS_MAX, sizeof(*pairing->keys));
	if (!pairing->text || !pairing->keys)
		return failed("%s: %s", pairing->config, strerror(err ? -err : ENOMEM));
	conf_init(&conf);
	if (conf_parse(&conf, pairing->config, pairing->text, why, sizeof(why)))
		return failed("%s; correct that first", why);
	named = conf_value(pairing->text, "key", "file");
	slash = strrchr(pairing->config, '/');
	if (named)
		snprintf(pairing->key_path, sizeof(pairing->key_path), "%s", named);
	else
		snprintf(pairing->key_path, sizeof(pairing->key_path), "%.*skey", slash ? (int)(slash - pairing->config) + 1 : 0,
			 pairing->config);
	free(named);
	if (gethostname(pairing->host, sizeof(pairing->host) - 1) < 0 || !*pairing->host)
		strcpy(pairing->host, "server");
	pairing->host[strcspn(pairing->host, ".")] = 0;
	if (access(pairing->key_path, F_OK) < 0 && errno == ENOENT)
		return 0;
	err = key_read(pairing->key_path, pairing->keys, KEYS_MAX, &pairing->key_count, why, sizeof(why));
	return err ? failed("%s", why) : 0;
}

static void pairing_end(struct pairing *pairing)
{
	for (size_t i = 0; pairing->keys && i < KEYS_MAX; i++)
		key_wipe(&pairing->keys[i]);
	free(pairing->keys);
	free(pairing->text);
}

static int setting_put(struct pairing *pairing, const char *section, const char *name, const char *value)
{
	char *text = conf_edit(pairing->text, section, name, value);

	if (!text)
		return failed("out of memory");
	free(pairing->text);
	pairing->text = text;
	pairing->changed = true;
	return 0;
}

/* A setting that people have made stays. */
static int setting_want(struct pairing *pairing, const char *section, const char *name, const char *value)
{
	char *there = conf_value(pairing->text, section, name);
	bool is_there = there != NULL;

	free(there);
	return is_there ? 0 : setting_put(pairing, section, name, value);
}

/* Nothing is written that gleamd would not start with. */
static int settings_write(struct pairing *pairing)
{
	struct conf conf;
	char why[WHY_SIZE];
	int err;

	if (!pairing->changed)
		return 0;
	conf_init(&conf);
	if (conf_parse(&conf, pairing->config, pairing->text, why, sizeof(why)))
		return failed("%s; correct that first", why);
	err = conf_replace(pairing->config, pairing->text);
	if (err)
		return failed("can't write %s: %s%s", pairing->config, strerror(-err),
			      err == -EACCES ? "; be root, or name a file of your own with --config" : "");
	printf("%s: written\n", pairing->config);
	return 0;
}

static int key_add(struct pairing *pairing, const struct key *key)
{
	int err;

	if (pairing->key_count == KEYS_MAX)
		return failed("%s holds %d keys already", pairing->key_path, KEYS_MAX);
	err = key_write(pairing->key_path, key);
	if (err)
		return failed("can't write %s: %s%s", pairing->key_path, strerror(-err),
			      err == -EACCES ? "; be root, or name settings of your own with --config" :
			      err == -ENOENT ? "; make its folder first" : "");
	pairing->keys[pairing->key_count++] = *key;
	printf("%s: tenant %s, id %s\n", pairing->key_path, key->tenant, key->id);
	return 0;
}

/* Whether a program ended with 0. */
static bool ran(const char *const argv[])
{
	pid_t pid;
	int status;

	if (posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv, environ))
		return false;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* The daemon reads its settings when it starts. True: it has started with them. */
static bool daemon_restart(const struct pairing *pairing)
{
	if (strcmp(pairing->config, CONF_SYSTEM_PATH) == 0 && access("/run/systemd/system", F_OK) == 0) {
		fflush(stdout);
		if (ran((const char *const[]){ "systemctl", "enable", "-q", "gleamd.service", NULL }) &&
		    ran((const char *const[]){ "systemctl", "restart", "gleamd.service", NULL }))
			return true;
		printf("gleamd did not start: journalctl -u gleamd says why\n");
		return false;
	}
	printf("Start gleamd again: it reads its settings when it starts.\n");
	return false;
}

/* ---- the machine with the GPU ---- */

static int offer_listen(const char *asked, int *fd_out)
{
	struct address addresses[ADDRESSES_MAX];
	char why[WHY_SIZE], text[300];
	const int on = 1, off = 0;
	unsigned count = 0;
	int err, fd;

	snprintf(text, sizeof(text), "%s", asked ? asked : "[::]:" PAIR_PORT);
	err = address_resolve(text, true, true, addresses, &count, why, sizeof(why));
	if (err || !count)
		return misused("pair", "--listen %s: %s", text, err == -EAGAIN ? "an address, not a name" : why);
	fd = socket(addresses[0].at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 && !asked && errno == EAFNOSUPPORT)
		return offer_listen("0.0.0.0:" PAIR_PORT, fd_out);
	if (fd < 0)
		return failed("can't listen on %s: %s", text, strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (addresses[0].at.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, (struct sockaddr *)&addresses[0].at, addresses[0].size) < 0 || listen(fd, 8) < 0) {
		err = errno;
		close(fd);
		return failed("can't listen on %s: %s%s", text, strerror(err),
			      err == EADDRINUSE ? "; another gleamctl pair waits there, or name another port with --listen" : "");
	}
	*fd_out = fd;
	return 0;
}

/* Addresses that others may know this machine by. */
static void addresses_print(const char *code, const char *port)
{
	struct ifaddrs *list = NULL;
	char text[INET6_ADDRSTRLEN];
	unsigned count = 0;

	if (getifaddrs(&list) == 0) {
		for (const struct ifaddrs *at = list; at; at = at->ifa_next) {
			if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || (at->ifa_flags & IFF_LOOPBACK) || !(at->ifa_flags & IFF_UP))
				continue;
			inet_ntop(AF_INET, &((const struct sockaddr_in *)at->ifa_addr)->sin_addr, text, sizeof(text));
			printf("  gleamctl pair %s%s%s --code %s\n", text, *port ? ":" : "", port, code);
			count++;
		}
		freeifaddrs(list);
	}
	if (!count)
		printf("  gleamctl pair ADDRESS%s%s --code %s\n", *port ? ":" : "", port, code);
}

/* What the other side has sent, as words behind @name; NULL: another line. */
static const char *line_of(const char *line, const char *name)
{
	size_t length = strlen(name);

	return strncmp(line, name, length) == 0 && line[length] == ' ' ? line + length + 1 : NULL;
}

static bool key_of_line(const char *line, struct key *key_out)
{
	char text[PAIR_LINE_MAX], why[WHY_SIZE];
	size_t count = 0;
	int err;

	snprintf(text, sizeof(text), "%s", line);
	err = key_parse("the other machine", text, key_out, 1, &count, why, sizeof(why));
	explicit_bzero(text, sizeof(text));
	return !err && count == 1;
}

/* The name of a tenant that is not there yet: the other machine's. */
static void tenant_rename(const struct pairing *pairing, struct key *key, const char *host)
{
	for (size_t i = 0; i < pairing->key_count; i++) {
		if (strcmp(pairing->keys[i].tenant, key->tenant) != 0)
			continue;
		snprintf(key->tenant, sizeof(key->tenant), "%.20s.%.36s", key->id, host);
		for (char *at = key->tenant; *at; at++)
			if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", *at))
				*at = '-';
		return;
	}
}

/* 0: joined. -errno of the connection, or an exit status. */
static int offer_serve(struct pairing *pairing, struct pair_channel *channel)
{
	char line[PAIR_LINE_MAX], host[64], *port, *listen = conf_value(pairing->text, "node", "listen");
	struct key key = { 0 };
	const char *words;
	int err = pair_channel_get(channel, line);

	port = listen ? strrchr(listen, ':') : NULL;
	if (!err && strncmp(line, HELLO, strlen(HELLO)) != 0)
		err = -EPROTO;
	snprintf(host, sizeof(host), "%.60s", err ? "" : line + strlen(HELLO));
	if (!err)
		err = pair_channel_get(channel, line);
	words = err ? NULL : line_of(line, "key");
	if (!err && (!words || (strcmp(words, "none") != 0 && !key_of_line(words, &key))))
		err = -EPROTO;
	if (!err && key.tenant[0]) {
		bool known = false;

		for (size_t i = 0; i < pairing->key_count; i++)
			known |= strcmp(pairing->keys[i].id, key.id) == 0;
		tenant_rename(pairing, &key, host);
		if (!known && key_add(pairing, &key))
			err = pair_channel_put(channel, "failed the server can't write its key file") ? -EPIPE : EXIT_FAILED;
	}
	if (!err) {
		snprintf(line, sizeof(line), "name %s", pairing->host);
		err = pair_channel_put(channel, line);
	}
	if (!err) {
		snprintf(line, sizeof(line), "port %s", port ? port + 1 : "4711");
		err = pair_channel_put(channel, line);
	}
	if (!err) {
		memcpy(line, "key ", 5);
		if (key.tenant[0])
			strcat(line, "none");
		else
			key_line(&pairing->keys[0], line + 4);
		err = pair_channel_put(channel, line);
	}
	/* The other side says how it went, so that both tell the same. */
	if (!err)
		err = pair_channel_get(channel, line);
	if (!err && strcmp(line, "done") != 0)
		err = failed("%s: %s", *host ? host : "the other machine", line_of(line, "failed") ? line_of(line, "failed") : "it failed there");
	if (!err)
		printf("Paired with %s.\n", *host ? host : "the other machine");
	key_wipe(&key);
	explicit_bzero(line, sizeof(line));
	free(listen);
	return err;
}

static double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1000 + (double)ts.tv_nsec / 1e6;
}

static int offer_wait(struct pairing *pairing, int listen_fd, const char *code)
{
	double began = now_ms();
	struct progress progress;
	unsigned wrong = 0;

	progress_begin(&progress, "waiting for the other machine");
	while (now_ms() - began < OFFER_MS) {
		struct pollfd ready = { .fd = listen_fd, .events = POLLIN };
		struct pair_channel *channel;
		int fd, err;

		progress_set(&progress, 0, 0, NULL);
		if (poll(&ready, 1, 200) != 1)
			continue;
		fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		progress_end(&progress);
		err = pair_channel_open(fd, true, code, &channel);
		if (!err) {
			err = offer_serve(pairing, channel);
			pair_channel_close(channel);
			/* The code has been used, however it went. */
			return err < 0 ? failed("the other machine: %s", err == -EPIPE ? "it hung up" : strerror(-err)) : err;
		}
		if (err == -EACCES && ++wrong == WRONG_MAX)
			return failed("somebody has tried %d wrong codes; run gleamctl pair again for a new one", WRONG_MAX);
		fprintf(stderr, "gleamctl: somebody has called %s\n", err == -EACCES ? "with another code" : "and said nothing");
	}
	progress_end(&progress);
	return failed("nobody has called within ten minutes; run gleamctl pair again for a new code");
}

static int pair_offer(struct pairing *pairing)
{
	const char *asked = pairing->options->listen, *port = asked ? strrchr(asked, ':') : NULL;
	char code[PAIR_CODE_SIZE];
	struct key key;
	int fd = -1, status;

	status = offer_listen(asked, &fd);
	if (!status && pairing->key_count == 0) {
		const char *tenant = pairing->options->tenant ? pairing->options->tenant : "default";

		if (key_make(tenant, &key))
			status = misused("pair", "`%s` can't be a tenant's name: letters, digits, `.`, `_` and `-`", tenant);
		else
			status = key_add(pairing, &key);
		key_wipe(&key);
	}
	if (!status)
		status = setting_want(pairing, "key", "file", pairing->key_path);
	if (!status)
		status = setting_want(pairing, "node", "listen", LISTEN_DEFAULT);
	if (!status)
		status = settings_write(pairing);
	if (!status && pair_code_make(code))
		status = failed("the kernel gives no random numbers");
	if (status)
		goto close_fd;
	printf("On the other machine, as root:\n");
	addresses_print(code, port && strcmp(port + 1, PAIR_PORT) != 0 ? port + 1 : "");
	fflush(stdout);
	status = offer_wait(pairing, fd, code);
	if (!status)
		daemon_restart(pairing);
	explicit_bzero(code, sizeof(code));
close_fd:
	if (fd >= 0)
		close(fd);
	return status ? status : output_end();
}

/* ---- the machine without ---- */

static int join_connect(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG }, *list = NULL;
	int err = getaddrinfo(host, port, &hints, &list), fd = -1;

	if (err) {
		failed("%s: %s", host, gai_strerror(err));
		return -1;
	}
	for (const struct addrinfo *at = list; at && fd < 0; at = at->ai_next) {
		struct pollfd ready = { .events = POLLOUT };
		socklen_t size = sizeof(err);

		fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		ready.fd = fd;
		err = fd < 0 || (connect(fd, at->ai_addr, at->ai_addrlen) < 0 && errno != EINPROGRESS) ? errno : 0;
		if (!err && poll(&ready, 1, CONNECT_MS) != 1)
			err = ETIMEDOUT;
		if (!err)
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &size);
		if (err && fd >= 0) {
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(list);
	if (fd < 0)
		failed("%s port %s: %s; does `gleamctl pair` wait there, and does no firewall stand between?", host, port, strerror(err));
	return fd;
}

static int code_ask(const char *given, char code_out[PAIR_CODE_SIZE])
{
	char typed[128];

	if (!given) {
		if (isatty(0))
			fprintf(stderr, "The code that gleamctl pair shows there: ");
		if (!fgets(typed, sizeof(typed), stdin))
			return failed("no code: gleamctl pair on the other machine shows it");
		given = typed;
	}
	if (!pair_code_read(given, code_out))
		return misused("pair", "that is no code: four groups of five letters, as gleamctl pair shows them there");
	return 0;
}

/* What the server has told. */
struct told {
	char name[CONF_NAME_SIZE];
	char port[8];
	struct key key; /* tenant "": ours is taken */
};

static int join_ask(struct pairing *pairing, struct pair_channel *channel, struct told *told)
{
	char line[PAIR_LINE_MAX];
	const char *words;
	int err;

	snprintf(line, sizeof(line), HELLO "%s", pairing->host);
	err = pair_channel_put(channel, line);
	memcpy(line, "key ", 5);
	if (pairing->key_count)
		key_line(&pairing->keys[0], line + 4);
	else
		strcat(line, "none");
	if (!err)
		err = pair_channel_put(channel, line);
	for (unsigned i = 0; i < 3 && !err; i++) {
		err = pair_channel_get(channel, line);
		if (err)
			break;
		if ((words = line_of(line, "failed")))
			err = failed("the other machine: %s", words);
		else if ((words = line_of(line, "name")) && strlen(words) < sizeof(told->name))
			strcpy(told->name, words);
		else if ((words = line_of(line, "port")) && strlen(words) < sizeof(told->port) && words[strspn(words, "0123456789")] == 0)
			strcpy(told->port, words);
		else if (!(words = line_of(line, "key")) || (strcmp(words, "none") != 0 && !key_of_line(words, &told->key)))
			err = -EPROTO;
	}
	explicit_bzero(line, sizeof(line));
	if (!err && (!*told->name || !*told->port || (!told->key.tenant[0] && !pairing->key_count)))
		err = -EPROTO;
	return err;
}

/* Where the server's gleamd is, as a line of [servers] has it. */
static void server_address(const char *host, const char *port, char *out, size_t size)
{
	snprintf(out, size, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

static int join_write(struct pairing *pairing, const struct told *told, const char *host)
{
	const char *name = pairing->options->name ? pairing->options->name : told->name;
	char address[CONF_ADDRESS_SIZE], why[WHY_SIZE];
	struct conf conf;
	int status = 0;

	server_address(host, told->port, address, sizeof(address));
	conf_init(&conf);
	if (conf_set(&conf, "servers", name, address, why, sizeof(why)))
		return failed("%s; choose a name with --name", why);
	if (told->key.tenant[0])
		status = key_add(pairing, &told->key);
	if (!status)
		status = setting_want(pairing, "key", "file", pairing->key_path);
	if (!status)
		status = setting_put(pairing, "servers", name, address);
	return status ? status : settings_write(pairing);
}

/* Looks until the server can be used. */
static void join_look(const struct pairing *pairing, const char *name)
{
	const char *socket = ask_socket(pairing->options->socket);
	struct progress progress;
	double began = now_ms();
	bool ready = false;

	progress_begin(&progress, "waiting for the server");
	while (!ready && now_ms() - began < READY_MS) {
		struct timespec pause = { .tv_nsec = 100 * 1000000L };
		char why[WHY_SIZE];
		json_t *answer = ask_quietly(socket, "servers", NULL, why, sizeof(why));
		const json_t *server;
		size_t i;

		json_array_foreach(json_object_get(answer, "servers"), i, server) {
			const json_t *gpus = json_object_get(server, "gpus");

			if (strcmp(text_of(server, "name"), name) != 0 || !json_array_size(gpus))
				continue;
			progress_end(&progress);
			printf("%s is ready: %zu x %s\n", name, json_array_size(gpus), text_of(json_array_get(gpus, 0), "name"));
			ready = true;
			break;
		}
		json_decref(answer);
		progress_set(&progress, now_ms() - began, READY_MS, NULL);
		nanosleep(&pause, NULL);
	}
	progress_end(&progress);
	if (!ready)
		printf("%s is not ready yet; gleamctl doctor says why\n", name);
}

static int pair_join(struct pairing *pairing)
{
	char host[ADDRESS_HOST_SIZE], code[PAIR_CODE_SIZE], *where = pairing->options->words[0];
	struct told told = { 0 };
	struct pair_channel *channel;
	uint16_t number = (uint16_t)atoi(PAIR_PORT);
	char port[8];
	int fd, err, status;

	if (pairing->options->listen || pairing->options->tenant)
		return misused("pair", "--listen and --tenant are for the machine that is called");
	if (address_parse(where, host, &number))
		return misused("pair", "`%s` is not an address", where);
	/* Without a port it is ours, not gleamd's. */
	snprintf(port, sizeof(port), "%u", number == 4711 && !strstr(where, ":4711") ? (unsigned)atoi(PAIR_PORT) : number);
	status = code_ask(pairing->options->code, code);
	if (status)
		return status;
	fd = join_connect(host, port);
	if (fd < 0)
		return EXIT_FAILED;
	err = pair_channel_open(fd, false, code, &channel);
	explicit_bzero(code, sizeof(code));
	if (err)
		return failed("%s", err == -EACCES    ? "the other machine does not take this code: gleamctl pair shows it there" :
				    err == -ETIMEDOUT ? "the other machine does not answer" :
							strerror(-err));
	err = join_ask(pairing, channel, &told);
	if (!err)
		err = join_write(pairing, &told, host);
	pair_channel_put(channel, err ? "failed it could not write its settings" : "done");
	pair_channel_close(channel);
	key_wipe(&told.key);
	if (err)
		return err < 0 ? failed("the other machine: %s", err == -EPIPE ? "it hung up" : strerror(-err)) : err;
	printf("Paired with %s.\n", told.name);
	if (daemon_restart(pairing))
		join_look(pairing, pairing->options->name ? pairing->options->name : told.name);
	return output_end();
}

int pair_command(const struct options *options)
{
	struct pairing pairing;
	int status;

	if (options->count == 0 && (options->code || options->name))
		return misused("pair", "--code and --name go with the ADDRESS of the machine that waits");
	status = pairing_begin(&pairing, options);
	if (!status)
		status = options->count ? pair_join(&pairing) : pair_offer(&pairing);
	pairing_end(&pairing);
	return status;
}
