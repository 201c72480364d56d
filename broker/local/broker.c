/* SPDX-License-Identifier: Apache-2.0 */
/* The local role of gleamd. Control thread; see broker.h. */
#include "broker/local/broker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/fd.h"
#include "broker/lib/log.h"
#include "broker/local/cache.h"
#include "broker/local/client.h"
#include "broker/local/control_cache.h"
#include "broker/local/discover.h"
#include "broker/local/move.h"
#include "broker/local/kdev.h"
#include "broker/local/place.h"
#include "broker/local/verdicts.h"
#include "broker/local/prefetch.h"
#include "broker/local/server.h"
#include "broker/node/node.h"

#define BROKER_BACKLOG 128

struct broker {
	struct loop *loop;
	const struct conf *conf;
	struct link_setting link_setting;
	struct node *node;
	uint64_t born_ns;
	bool stopping;

	char path[108];
	bool bound; /* the path is ours */
	dev_t socket_dev;
	ino_t socket_ino;
	int fd;
	uint64_t accept_tag;
	bool accepting;
	bool one_shot;
	struct loop_timer retry;
	struct log_limit limit;

	struct server *servers[CONF_SERVERS_MAX];
	unsigned server_count;
	struct client *clients[BROKER_CLIENTS_MAX];
	unsigned client_count;
	uint32_t session; /* number of the newest client */
	/* of sessions that are gone */
	uint64_t ended;
	struct api_count ended_totals;
	struct cache_local *cache;
	struct verdicts *verdicts;
	struct kdev *kdev; /* the kernel module; NULL without */
	struct place *place;
	struct discover *discover; /* NULL: nobody is looked for */
};

static void broker_accept_arm(struct broker *broker);

/* ---- the socket ---- */

static int socket_path(const struct conf *conf, char *out, size_t size, char *why, size_t why_size)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int n;

	if (*conf->socket)
		n = snprintf(out, size, "%s", conf->socket);
	else if (geteuid() == 0)
		n = snprintf(out, size, "%s", LOCAL_SOCKET_SYSTEM);
	else if (runtime && *runtime)
		n = snprintf(out, size, "%s/gleam/gleamd.sock", runtime);
	else {
		snprintf(why, why_size, "XDG_RUNTIME_DIR is not set; say where the socket should be with --socket PATH");
		return -ENOENT;
	}
	if (n < 0 || (size_t)n >= size) {
		snprintf(why, why_size, "the socket's path has more than %zu bytes", size - 1);
		return -ENAMETOOLONG;
	}
	return 0;
}

/* Only the default places' folders are made: a path that somebody names exists, or is a mistake. */
static void socket_folder(const struct conf *conf, const char *path)
{
	char folder[108];
	char *slash;

	if (*conf->socket)
		return;
	snprintf(folder, sizeof(folder), "%s", path);
	slash = strrchr(folder, '/');
	if (slash) {
		*slash = 0;
		mkdir(folder, geteuid() == 0 ? 0755 : 0700);
	}
}

/*
 * Is somebody listening at what lies there? The kernel keeps a socket for a moment after its process was killed, until the
 * process's io_uring is gone, so whoever made it is looked for, too.
 */
static bool socket_is_live(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct ucred cred = { 0 };
	socklen_t size = sizeof(cred);
	bool live;

	if (fd < 0)
		return false;
	live = connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EAGAIN;
	/* pid 0: of another namespace. */
	if (live && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) == 0 && cred.pid > 0 && kill(cred.pid, 0) < 0 &&
	    errno == ESRCH)
		live = false;
	close(fd);
	return live;
}

static int socket_open(struct broker *broker, char *why, size_t why_size)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct sockaddr_un fresh = { .sun_family = AF_UNIX };
	struct stat st;
	int err = socket_path(broker->conf, broker->path, sizeof(broker->path), why, why_size);

	if (err)
		return err;
	strcpy(address.sun_path, broker->path);
	socket_folder(broker->conf, broker->path);
	/* Made under another name, so that nobody finds it before it listens. */
	if ((size_t)snprintf(fresh.sun_path, sizeof(fresh.sun_path), "%s.%d", broker->path, getpid()) >= sizeof(fresh.sun_path)) {
		snprintf(why, why_size, "the socket's path has more than %zu bytes", sizeof(fresh.sun_path) - 12);
		return -ENAMETOOLONG;
	}
	if (lstat(broker->path, &st) == 0) {
		if (!S_ISSOCK(st.st_mode)) {
			snprintf(why, why_size, "%s is there and is not a socket; move it away, or say --socket PATH", broker->path);
			return -EEXIST;
		}
		if (socket_is_live(&address)) {
			snprintf(why, why_size, "another gleamd serves %s; stop it, or say --socket PATH", broker->path);
			return -EADDRINUSE;
		}
		log_info("%s was left behind by a daemon that is gone: replaced", broker->path);
	}
	broker->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (broker->fd < 0) {
		err = -errno;
		snprintf(why, why_size, "no socket: %s", strerror(-err));
		return err;
	}
	if (bind(broker->fd, (struct sockaddr *)&fresh, sizeof(fresh)) < 0) {
		err = -errno;
		snprintf(why, why_size, "can't make the socket %s: %s; check that its folder exists and may be written to",
			 broker->path, strerror(-err));
		goto close_fd;
	}
	/* A system's daemon serves everybody on the machine; a user's own serves that user. */
	if (chmod(fresh.sun_path, geteuid() == 0 ? 0666 : 0600) < 0 || listen(broker->fd, BROKER_BACKLOG) < 0 ||
	    rename(fresh.sun_path, broker->path) < 0) {
		err = -errno;
		snprintf(why, why_size, "can't listen on %s: %s", broker->path, strerror(-err));
		unlink(fresh.sun_path);
		goto close_fd;
	}
	broker->bound = true;
	if (stat(broker->path, &st) == 0) {
		broker->socket_dev = st.st_dev;
		broker->socket_ino = st.st_ino;
	}
	return 0;

close_fd:
	fd_close(&broker->fd);
	return err;
}

/* Unless another daemon has put its own there. */
static void socket_unlink(struct broker *broker)
{
	struct stat st;

	if (broker->bound && stat(broker->path, &st) == 0 && st.st_dev == broker->socket_dev &&
	    st.st_ino == broker->socket_ino)
		unlink(broker->path);
	broker->bound = false;
}

uint32_t broker_session_take(struct broker *broker)
{
	if (++broker->session == 0)
		broker->session = 1; /* 0 is the link itself */
	return broker->session;
}

struct loop *broker_loop(const struct broker *broker)
{
	return broker->loop;
}

static struct client *broker_client_new(struct broker *broker, int fd)
{
	struct client *client;
	uint32_t dropped;

	if (broker->client_count == BROKER_CLIENTS_MAX) {
		close(fd);
		if (log_limit_take(&broker->limit, &dropped))
			log_warn("%d processes are connected, the most there may be: another one is turned away",
				 BROKER_CLIENTS_MAX);
		return NULL;
	}
	client = client_new(broker, broker->loop, fd, broker_session_take(broker));
	if (client)
		broker->clients[broker->client_count++] = client;
	return client;
}

int broker_client_kernel(struct broker *broker, int fd, const struct client_kernel *kernel)
{
	struct client *client = broker_client_new(broker, fd);

	if (!client) {
		close(kernel->memory);
		close(kernel->doorbell);
		return -ENOMEM;
	}
	return client_kernel_set(client, kernel);
}

static void broker_retry(void *arg)
{
	struct broker *broker = arg;

	if (!broker->accepting && !broker->stopping)
		broker_accept_arm(broker);
}

static void broker_accept_done(void *arg, int res, uint32_t flags)
{
	struct broker *broker = arg;
	uint32_t dropped;

	if (!(flags & IORING_CQE_F_MORE))
		broker->accepting = false;
	if (broker->stopping) {
		if (res >= 0)
			close(res);
		return;
	}
	if (res >= 0) {
		broker_client_new(broker, res);
	} else if (res == -EINVAL && !broker->one_shot) {
		broker->one_shot = true;
	} else if (res == -EMFILE || res == -ENFILE || res == -ENOMEM || res == -ENOBUFS) {
		if (log_limit_take(&broker->limit, &dropped))
			log_error("can't take a client: %s; raise the limit on open files (LimitNOFILE=)", strerror(-res));
		loop_timer_set(broker->loop, &broker->retry, loop_now_ns(broker->loop) + NS_PER_S / 10);
		return;
	}
	if (!broker->accepting)
		broker_accept_arm(broker);
}

static void broker_accept_arm(struct broker *broker)
{
	struct io_uring_sqe *sqe = loop_sqe(broker->loop);

	if (broker->one_shot)
		io_uring_prep_accept(sqe, broker->fd, NULL, NULL, SOCK_CLOEXEC);
	else
		io_uring_prep_multishot_accept(sqe, broker->fd, NULL, NULL, SOCK_CLOEXEC);
	broker->accept_tag = loop_tag(broker->loop, sqe, broker_accept_done, broker);
	broker->accepting = true;
}

static uint64_t totals_add(const struct client *client, struct api_count *totals)
{
	struct api_count sums;

	if (!client_sums(client, &sums))
		return 0;
	totals->calls += sums.calls;
	totals->bytes += sums.bytes;
	totals->trips += sums.trips;
	totals->waited_ns += sums.waited_ns;
	return 1;
}

uint64_t broker_totals(const struct broker *broker, struct api_count *totals_out)
{
	struct api_count totals = broker->ended_totals;
	uint64_t sessions = broker->ended;

	for (unsigned i = 0; i < broker->client_count; i++)
		sessions += totals_add(broker->clients[i], &totals);
	*totals_out = totals;
	return sessions;
}

void broker_client_freed(struct broker *broker, struct client *client)
{
	broker->ended += totals_add(client, &broker->ended_totals);
	for (unsigned i = 0; i < broker->client_count; i++) {
		if (broker->clients[i] == client) {
			broker->clients[i] = broker->clients[--broker->client_count];
			return;
		}
	}
}

/* ---- servers ---- */

static int broker_message(void *owner, struct server *server, const struct link_hdr *hdr, struct reader *body)
{
	struct mirror *mirror = link_mirror_get(server_link(server), hdr->session);
	int err = 0;

	/*
	 * Without one the message crossed our detach; or the client is gone that came back with a token of which we didn't know yet
	 * that it was its own. Now the node has said so.
	 */
	if (!mirror && hdr->type == LINK_RESUMED && get_u32(body) == END_NONE)
		link_send(server_link(server), LINK_DETACH, hdr->session, NULL, 0, NULL, 0);
	if (mirror) {
		/* Nobody has anything to say to a depot. */
		err = mirror->depot   ? -EPROTO :
		      mirror->is_move ? move_message(mirror, hdr, body) :
					client_message((struct client *)mirror, hdr, body);
		mirror_put(mirror);
	}
	return err;
}

static struct server *broker_server_add(struct broker *broker, const struct conf_server *conf);

/* Somebody on the LAN says that there is a server, or no more. What is configured is not changed by that. */
static void broker_discovered(void *owner, const struct discover_event *event)
{
	struct broker *broker = owner;
	struct conf_server conf = { 0 };
	struct server *server = NULL;
	uint32_t dropped;

	for (unsigned i = 0; i < broker->server_count; i++) {
		bool same = strcmp(server_name(broker->servers[i]), event->name) == 0;

		if (i < broker->conf->server_count && (same || strcmp(server_address(broker->servers[i]), event->address) == 0))
			return;
		if (same)
			server = broker->servers[i];
	}
	/* Its link, if it has one, tells when it is really gone. */
	if (event->kind == DISCOVER_LEFT) {
		if (server)
			log_info("server %s is not announced any more", event->name);
		return;
	}
	if (server) {
		server_moved(server, event->address);
		return;
	}
	memcpy(conf.name, event->name, sizeof(conf.name));
	memcpy(conf.address, event->address, sizeof(conf.address));
	server = broker->server_count < CONF_SERVERS_MAX ? broker_server_add(broker, &conf) : NULL;
	if (server) {
		log_info("server %s is announced at %s", conf.name, conf.address);
		server_wake(server);
	} else if (log_limit_take(&broker->limit, &dropped)) {
		log_warn("server %s is announced, one more than the %d that there may be", conf.name, CONF_SERVERS_MAX);
	}
}

static void broker_reported(void *owner, struct server *server)
{
	struct broker *broker = owner;

	for (unsigned i = 0; i < broker->server_count; i++)
		if (broker->servers[i] == server)
			place_report(broker->place, i, server_report(server));
}

static void broker_lost(void *owner, struct server *server, const char *why)
{
	struct broker *broker = owner;

	for (unsigned i = 0; i < broker->client_count; i++) {
		client_move_lost(broker->clients[i], server, why);
		client_link_lost(broker->clients[i], server, why);
	}
	prefetch_link_lost(server);
}

/* ---- the hook ---- */

bool broker_poll(struct broker *broker)
{
	bool moved = false;

	for (unsigned i = 0; i < broker->client_count; i++)
		moved |= client_poll(broker->clients[i]);
	return moved;
}

bool broker_sleep(struct broker *broker)
{
	for (unsigned i = 0; i < broker->client_count; i++) {
		if (!client_sleep(broker->clients[i])) {
			while (i--)
				client_wake(broker->clients[i]);
			return false;
		}
	}
	return true;
}

void broker_wake(struct broker *broker)
{
	for (unsigned i = 0; i < broker->client_count; i++)
		client_wake(broker->clients[i]);
}

/* ---- life ---- */

static const struct server_ops broker_server_ops = { .message = broker_message, .reported = broker_reported, .lost = broker_lost };

/* NULL: out of memory. */
static struct server *broker_server_add(struct broker *broker, const struct conf_server *conf)
{
	struct server *server =
		server_new(broker->loop, conf, &broker->link_setting, broker->cache, &broker_server_ops, broker);

	if (!server)
		return NULL;
	if (place_server_add(broker->place, conf->name)) {
		server_free(server);
		return NULL;
	}
	broker->servers[broker->server_count++] = server;
	return server;
}

/* What others can reach of this machine's node, "" for nothing. */
static const char *broker_announced(const struct broker *broker)
{
	const char *listen = broker->node ? node_address(broker->node) : "";

	return strncmp(listen, "127.", 4) == 0 || strncmp(listen, "[::1]", 5) == 0 ? "" : listen;
}

int broker_start(struct loop *loop, const struct conf *conf, struct tls_keys *keys, struct node *node,
		 struct broker **broker_out, char *why, size_t why_size)
{
	struct broker *broker = calloc(1, sizeof(*broker));
	int err = -ENOMEM;

	if (!broker)
		goto no_memory;
	broker->loop = loop;
	broker->conf = conf;
	broker->node = node;
	broker->fd = -1;
	broker->born_ns = clock_ns();
	broker->link_setting = (struct link_setting){
		.keys = keys, .lanes = conf->lanes, .compress = conf->compress, .keepalive_ns = conf->keepalive_ms * NS_PER_MS,
	};
	broker->retry.fire = broker_retry;
	broker->retry.arg = broker;
	broker->place = place_new(broker, loop, conf, why, why_size);
	if (!broker->place) {
		err = -EINVAL;
		goto free_broker;
	}
	broker->cache = cache_local_new(loop, conf);
	broker->verdicts = verdicts_new(conf->cache_verdicts);
	if (!broker->cache || !broker->verdicts)
		goto no_memory;
	for (unsigned i = 0; i < conf->server_count; i++)
		if (!broker_server_add(broker, &conf->servers[i]))
			goto no_memory;
	err = socket_open(broker, why, why_size);
	if (err)
		goto free_broker;
	broker_accept_arm(broker);
	/* The kernel's sessions are the machine's daemon's, not those of one that was given a place of its own. */
	if (!*conf->socket)
		broker->kdev = kdev_start(broker, loop);
	log_info("serving this machine's processes on %s, %u servers known", broker->path, broker->server_count);
	/* Without a key there is no server that isn't of this machine. */
	if (conf->discover && keys)
		broker->discover = discover_new(loop, broker_announced(broker), broker_discovered, broker);
	else if (conf->discover)
		log_warn("servers of the LAN are not looked for: links to them need a key, see [key] file");
	*broker_out = broker;
	return 0;

no_memory:
	snprintf(why, why_size, "out of memory");
free_broker:
	if (broker)
		broker_free(broker);
	return err;
}

void broker_stop(struct broker *broker, bool next)
{
	if (broker->stopping)
		return;
	broker->stopping = true;
	socket_unlink(broker);
	loop_timer_clear(broker->loop, &broker->retry);
	if (broker->accepting)
		loop_cancel(broker->loop, broker->accept_tag);
	for (unsigned i = 0; i < broker->client_count; i++)
		client_stop(broker->clients[i], next);
	discover_stop(broker->discover);
	place_stop(broker->place);
	kdev_stop(broker->kdev);
	control_cache_stop();
	cache_local_stop(broker->cache);
	for (unsigned i = 0; i < broker->server_count; i++)
		server_stop(broker->servers[i]);
}

bool broker_is_stopped(const struct broker *broker)
{
	for (unsigned i = 0; i < broker->server_count; i++)
		if (!server_is_stopped(broker->servers[i]))
			return false;
	return broker->stopping && broker->client_count == 0 && !broker->accepting && kdev_is_stopped(broker->kdev) &&
	       cache_local_is_idle(broker->cache) && prefetch_is_idle() && place_is_stopped(broker->place) &&
	       discover_is_stopped(broker->discover);
}

void broker_free(struct broker *broker)
{
	for (unsigned i = 0; i < broker->server_count; i++)
		server_free(broker->servers[i]);
	cache_local_free(broker->cache);
	verdicts_free(broker->verdicts);
	kdev_free(broker->kdev);
	discover_free(broker->discover);
	place_free(broker->place);
	fd_close(&broker->fd);
	free(broker);
}

const struct conf *broker_conf(const struct broker *broker)
{
	return broker->conf;
}

unsigned broker_server_count(const struct broker *broker)
{
	return broker->server_count;
}

struct server *broker_server(const struct broker *broker, unsigned index)
{
	return broker->servers[index];
}

unsigned broker_client_count(const struct broker *broker)
{
	return broker->client_count;
}

struct client *broker_client(const struct broker *broker, unsigned index)
{
	return broker->clients[index];
}

struct place *broker_place(const struct broker *broker)
{
	return broker->place;
}

struct cache_local *broker_cache(const struct broker *broker)
{
	return broker->cache;
}

struct verdicts *broker_verdicts(const struct broker *broker)
{
	return broker->verdicts;
}

struct node *broker_node(const struct broker *broker)
{
	return broker->node;
}

const char *broker_socket(const struct broker *broker)
{
	return broker->path;
}

uint64_t broker_age_ns(const struct broker *broker)
{
	return clock_ns() - broker->born_ns;
}
