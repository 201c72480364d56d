/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gleamd: the one daemon. Serves this machine's processes and, if told to, offers this machine's GPUs. The control thread.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "broker/core/loop.h"
#include "broker/core/tls.h"
#include "broker/lib/clock.h"
#include "broker/lib/conf.h"
#include "broker/lib/fd.h"
#include "broker/lib/hash.h"
#include "broker/lib/key.h"
#include "broker/lib/log.h"
#include "broker/local/broker.h"
#include "broker/local/tree.h"
#include "broker/node/node.h"
#include "broker/node/probe.h"

#define WHY_SIZE       1200
#define RING_ENTRIES   1024u	      /* operations handed over in one round: a send and a receive for hundreds of clients */
#define STOP_NS	       (3 * NS_PER_S) /* workers get 100 ms, last words a second */
#define STOP_LOOK_NS   (20 * NS_PER_MS)
#define EXIT_USAGE     2

struct daemon {
	struct conf conf;
	struct loop *loop;
	struct tls_keys *keys;
	struct node *node;     /* NULL without the role */
	struct broker *broker;
	struct tree *tree; /* NULL without */
	int signal_fd;
	struct signalfd_siginfo signal;
	bool stopping;
	uint64_t stop_ns;
	struct loop_timer stop_timer;
};

static void signal_arm(struct daemon *daemon);

/* ---- settings ---- */

static void usage(FILE *out)
{
	fputs("usage: gleamd [options]\n"
	      "Serves the CUDA programs of this machine with GPUs of others, and offers this machine's GPUs if told to.\n"
	      "\n"
	      "  --config FILE           settings (default: /etc/gleam/gleam.conf where it exists)\n"
	      "  --socket PATH           where this machine's programs find the daemon\n"
	      "  --server NAME=ADDR:PORT a server to use; may be repeated\n"
	      "  --listen ADDR:PORT      offer this machine's GPUs there\n"
	      "  --driver PATH|softgpu   the driver to offer: a libcuda.so.1, or the software GPU\n"
	      "  --worker PATH           gleam-worker (default: beside gleamd, or ../libexec/gleam)\n"
	      "  --user NAME             workers run as this user (as root; default: gleam-worker or nobody)\n"
	      "  --key FILE              the key that daemons share, made by `gleamctl key new`\n"
	      "  --lanes N               bulk connections of a link, 1 to 16 (default: 4; 8 with 16 cores or more)\n"
	      "  --keepalive SECONDS     silence after which a peer is given up (default: 15)\n"
	      "  --compress auto|off     LZ4 for bulk where the link is slow and bytes shrink (default: auto)\n"
	      "  --no-direct             programs on this machine's own GPUs go through gleamd, too\n"
	      "  --warm N                workers started ahead (default: 1)\n"
	      "  --mount DIR             where the /gleam tree is; --no-fuse: nowhere\n"
	      "  --log LEVEL             error, warn, info or debug (default: info)\n"
	      "  --foreground            accepted for scripts; gleamd never goes to the background\n"
	      "  --help, --version\n",
	      out);
}

enum option_id {
	OPT_CONFIG = 256,
	OPT_SOCKET,
	OPT_SERVER,
	OPT_LISTEN,
	OPT_DRIVER,
	OPT_WORKER,
	OPT_USER,
	OPT_KEY,
	OPT_LANES,
	OPT_KEEPALIVE,
	OPT_GRACE,
	OPT_NO_DIRECT,
	OPT_COMPRESS,
	OPT_WARM,
	OPT_MOUNT,
	OPT_NO_FUSE,
	OPT_LOG,
	OPT_FOREGROUND,
	OPT_HELP,
	OPT_VERSION,
};

static const struct option options[] = {
	{ "config", required_argument, NULL, OPT_CONFIG },	 { "socket", required_argument, NULL, OPT_SOCKET },
	{ "server", required_argument, NULL, OPT_SERVER },	 { "listen", required_argument, NULL, OPT_LISTEN },
	{ "driver", required_argument, NULL, OPT_DRIVER },	 { "worker", required_argument, NULL, OPT_WORKER },
	{ "user", required_argument, NULL, OPT_USER },		 { "key", required_argument, NULL, OPT_KEY },
	{ "lanes", required_argument, NULL, OPT_LANES },	 { "keepalive", required_argument, NULL, OPT_KEEPALIVE },
	{ "grace", required_argument, NULL, OPT_GRACE },	 { "warm", required_argument, NULL, OPT_WARM },
	{ "no-direct", no_argument, NULL, OPT_NO_DIRECT },	 { "compress", required_argument, NULL, OPT_COMPRESS },
	{ "mount", required_argument, NULL, OPT_MOUNT },	 { "no-fuse", no_argument, NULL, OPT_NO_FUSE },
	{ "log", required_argument, NULL, OPT_LOG },		 { "foreground", no_argument, NULL, OPT_FOREGROUND },
	{ "help", no_argument, NULL, OPT_HELP },		 { "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

/* An option as the setting that it overrides. 0, or the exit status in negative. */
static int option_set(struct conf *conf, int id, char *value, char *why, size_t why_size)
{
	static const struct {
		int id;
		const char *section, *name;
	} settings[] = {
		{ OPT_SOCKET, "daemon", "socket" },   { OPT_LISTEN, "node", "listen" }, { OPT_DRIVER, "node", "driver" },
		{ OPT_WORKER, "node", "worker" },     { OPT_USER, "node", "user" },	{ OPT_KEY, "key", "file" },
		{ OPT_COMPRESS, "link", "compress" },
		{ OPT_LANES, "link", "lanes" },	      { OPT_GRACE, "link", "grace" },	{ OPT_WARM, "node", "warm" },
		{ OPT_KEEPALIVE, "link", "keepalive" }, { OPT_MOUNT, "tree", "mount" }, { OPT_LOG, "daemon", "log" },
	};
	char *equals;

	if (id == OPT_SERVER) {
		equals = strchr(value, '=');
		if (!equals) {
			snprintf(why, why_size, "write NAME=ADDRESS:PORT");
			return -EINVAL;
		}
		*equals = 0;
		return conf_set(conf, "servers", value, equals + 1, why, why_size);
	}
	if (id == OPT_NO_DIRECT)
		return conf_set(conf, "link", "direct", "no", why, why_size);
	if (id == OPT_NO_FUSE)
		return conf_set(conf, "tree", "mount", "no", why, why_size);
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		if (settings[i].id == id)
			return conf_set(conf, settings[i].section, settings[i].name, value, why, why_size);
	return 0;
}

/* Exit status, or -1: go on. */
static int settings_read(struct conf *conf, int argc, char **argv)
{
	const char *config = NULL;
	char why[WHY_SIZE];
	int id, index = 0;

	/* The file first, whatever the order: the command line overrides it. */
	while ((id = getopt_long(argc, argv, "", options, &index)) != -1) {
		if (id == OPT_CONFIG) {
			config = optarg;
		} else if (id == OPT_HELP) {
			usage(stdout);
			return 0;
		} else if (id == OPT_VERSION) {
			char hash[HASH_TEXT_SIZE];

			hash_text(protocol_hash, hash);
			printf("gleamd " GLEAM_VERSION " (protocol %u.%s)\n", LINK_VERSION, hash);
			return 0;
		} else if (id == '?') {
			return EXIT_USAGE;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "gleamd: `%s` is not an option\n", argv[optind]);
		return EXIT_USAGE;
	}
	conf_init(conf);
	if (!config && access(CONF_SYSTEM_PATH, F_OK) == 0)
		config = CONF_SYSTEM_PATH;
	if (config && conf_read(conf, config, why, sizeof(why))) {
		fprintf(stderr, "gleamd: %s\n", why);
		return 1;
	}
	optind = 1;
	while ((id = getopt_long(argc, argv, "", options, &index)) != -1) {
		if (option_set(conf, id, optarg, why, sizeof(why))) {
			fprintf(stderr, "gleamd: --%s: %s\n", options[index].name, why);
			return EXIT_USAGE;
		}
	}
	return -1;
}

/* ---- stopping ---- */

static void daemon_stop_look(void *arg)
{
	struct daemon *daemon = arg;
	uint64_t now = loop_now_ns(daemon->loop);
	bool done = broker_is_stopped(daemon->broker) && (!daemon->node || node_is_stopped(daemon->node)) &&
		    tree_is_stopped(daemon->tree);

	if (done || now > daemon->stop_ns) {
		if (!done)
			log_warn("not everything ended in time: leaving all the same");
		loop_stop(daemon->loop);
		return;
	}
	loop_timer_set(daemon->loop, &daemon->stop_timer, now + STOP_LOOK_NS);
}

/* @next: another gleamd is expected, and sessions wait for it. */
static void daemon_stop(struct daemon *daemon, bool next)
{
	if (daemon->stopping) {
		loop_stop(daemon->loop);
		return;
	}
	daemon->stopping = true;
	daemon->stop_ns = loop_now_ns(daemon->loop) + STOP_NS;
	if (daemon->node)
		node_stop(daemon->node);
	tree_stop(daemon->tree);
	broker_stop(daemon->broker, next);
	loop_timer_set(daemon->loop, &daemon->stop_timer, loop_now_ns(daemon->loop));
}

static void signal_done(void *arg, int res, uint32_t flags)
{
	struct daemon *daemon = arg;

	if (res == (int)sizeof(daemon->signal)) {
		log_info("SIG%s: stopping", sigabbrev_np((int)daemon->signal.ssi_signo));
		daemon_stop(daemon, daemon->signal.ssi_signo == SIGTERM);
	}
	signal_arm(daemon);
}

static void signal_arm(struct daemon *daemon)
{
	struct io_uring_sqe *sqe = loop_sqe(daemon->loop);

	io_uring_prep_read(sqe, daemon->signal_fd, &daemon->signal, sizeof(daemon->signal), 0);
	loop_tag(daemon->loop, sqe, signal_done, daemon);
}

/* ---- both roles on one loop ---- */

static bool daemon_poll(void *arg)
{
	struct daemon *daemon = arg;
	bool moved = broker_poll(daemon->broker);

	return (daemon->node && node_poll(daemon->node)) || moved;
}

static bool daemon_sleep(void *arg)
{
	struct daemon *daemon = arg;

	if (!broker_sleep(daemon->broker))
		return false;
	if (daemon->node && !node_sleep(daemon->node)) {
		broker_wake(daemon->broker);
		return false;
	}
	return true;
}

static void daemon_wake(void *arg)
{
	struct daemon *daemon = arg;

	broker_wake(daemon->broker);
	if (daemon->node)
		node_wake(daemon->node);
}

static int keys_read(struct daemon *daemon, char *why, size_t why_size)
{
	struct key *keys;
	size_t count = 0;
	int err;

	if (!*daemon->conf.key_file)
		return 0;
	keys = calloc(KEYS_MAX, sizeof(*keys));
	err = keys ? key_read(daemon->conf.key_file, keys, KEYS_MAX, &count, why, why_size) : -ENOMEM;
	if (!err) {
		err = tls_keys_new(keys, count, &daemon->keys);
		if (err)
			snprintf(why, why_size, "TLS can't be set up: %s", strerror(-err));
	}
	for (size_t i = 0; i < count; i++)
		key_wipe(&keys[i]);
	free(keys);
	return err;
}

static int daemon_run(struct daemon *daemon, char *why, size_t why_size)
{
	struct loop_hook hook = { .poll = daemon_poll, .sleep = daemon_sleep, .wake = daemon_wake, .arg = daemon };
	int err = keys_read(daemon, why, why_size);

	if (!err)
		err = loop_open(&daemon->loop, RING_ENTRIES, why, why_size);
	if (err)
		return err;
	if (*daemon->conf.listen)
		err = node_start(daemon->loop, &daemon->conf, daemon->keys, &daemon->node, why, why_size);
	if (!err)
		err = broker_start(daemon->loop, &daemon->conf, daemon->keys, daemon->node, &daemon->broker, why, why_size);
	/* What was started ends with this process: workers have its death as a signal. */
	if (err)
		return err;
	daemon->stop_timer.fire = daemon_stop_look;
	daemon->stop_timer.arg = daemon;
	signal_arm(daemon);
	loop_hook_set(daemon->loop, &hook);
	tree_start(daemon->loop, daemon->broker, daemon->conf.mount, &daemon->tree);
	log_info("gleamd " GLEAM_VERSION " is ready");
	loop_run(daemon->loop);
	if (broker_is_stopped(daemon->broker) && (!daemon->node || node_is_stopped(daemon->node)) &&
	    tree_is_stopped(daemon->tree)) {
		tree_free(daemon->tree);
		broker_free(daemon->broker);
		if (daemon->node)
			node_free(daemon->node);
		loop_close(daemon->loop);
		fd_close(&daemon->signal_fd);
		tls_keys_free(daemon->keys);
	}
	return 0;
}

int main(int argc, char **argv)
{
	static struct daemon daemon;
	char why[WHY_SIZE];
	struct rlimit files;
	sigset_t signals;
	int status;

	/* Not for people: the node role starts it. */
	if ((argc == 3 || argc == 4) && strcmp(argv[1], "--probe-driver") == 0)
		return probe_main(argv[2], argc == 3);
	status = settings_read(&daemon.conf, argc, argv);
	if (status >= 0)
		return status;
	log_open("gleamd", daemon.conf.log);
	/* Three descriptors a client; the soft limit of 1024 is for programs that use select(). */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	/* A lease that is broken (broker/local/cfile.c) tells so by a signal. */
	signal(SIGIO, SIG_IGN);
	daemon.signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
	if (daemon.signal_fd < 0) {
		fprintf(stderr, "gleamd: signalfd: %s\n", strerror(errno));
		return 1;
	}
	if (daemon_run(&daemon, why, sizeof(why))) {
		fprintf(stderr, "gleamd: %s\n", why);
		return 1;
	}
	log_info("stopped");
	return 0;
}
