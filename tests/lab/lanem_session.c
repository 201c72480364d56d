/* SPDX-License-Identifier: Apache-2.0 */
/* A lab from its making to its end; see lanem_session.h. */
#include "tests/lab/lanem_session.h"
#include "tests/lab/lanem_conf.h"
#include "tests/lab/lanem_relay.h"
#include "tests/lib/control.h"
#include "tests/lib/value.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define NS_PER_S  1000000000u
#define NS_PER_MS 1000000u
/* At the end: how often we look whether all are gone, when TERM becomes KILL, and when we give up. */
#define END_TICK_NS	  (20 * NS_PER_MS)
#define END_KILL_TICKS	  150
#define END_GIVE_UP_TICKS 250
/* The relay stands for a wire: it goes before what is tested, as far as we may. */
#define RELAY_NICE	 (-10)
#define SLACK_DEFAULT_NS 50000
#define ADDRESS_COUNT	 4

enum child_kind { CHILD_MEASURE, CHILD_A, CHILD_B, CHILD_COUNT };

struct session {
	const struct session_conf *conf;
	struct lab lab;
	struct relay relay;
	struct lane_conf lane[2];
	pid_t child[CHILD_COUNT]; /* 0: none */
	int status;		  /* what session_run() returns */
	bool own_groups;	  /* programs are process groups: not where a terminal is */
	bool ending;
	unsigned int end_ticks;
	sigset_t old_mask;
	int user_fd; /* our user namespace */
	int signal_fd, event_fd, end_fd, control_fd;
	uint64_t begun_ns;
	bool fired[SESSION_EVENT_MAX];
};

static void complain(const char *what, int err)
{
	fprintf(stderr, "lanem: cannot %s: %s\n", what, strerror(-err));
}

/* --- settings and commands ------------------------------------------------------------------------- */

static void apply(struct session *session)
{
	bool offload =
		session->conf->offload < 0 ? !conf_needs_frames(session->lane) : session->conf->offload;
	uint64_t now = relay_now_ns();

	for (int i = 0; i < 2; i++) {
		lane_configure(&session->relay.lane[i], &session->lane[i], now);
		net_end_offload(&session->relay.end[i], offload);
		/* What ethtool tells fits the wire. Where it can't be set nothing else depends on it. */
		if (session->lane[i].rate_bps >= 1000000)
			net_end_speed(&session->relay.end[i], session->lane[i].rate_bps / 1000000);
	}
}

static size_t print_lane(const struct session *session, int lane, char *text, size_t size)
{
	const struct lane_counts *counts = &session->relay.lane[lane].counts;

	return snprintf(
		text, size,
		"\"%s\":{\"packets\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"delivered\":%" PRIu64
		",\"lost\":%" PRIu64 ",\"full\":%" PRIu64 ",\"cut\":%" PRIu64 ",\"reordered\":%" PRIu64
		",\"ignored\":%" PRIu64 ",\"unwritten\":%" PRIu64 ",\"under_way\":%zu}",
		lane == RELAY_AB ? "ab" : "ba", counts->packets, counts->bytes, counts->delivered,
		counts->lost, counts->full, counts->cut, counts->reordered, session->relay.ignored[lane],
		session->relay.unwritten[lane], session->relay.lane[lane].heap_count);
}

static void print_stats(struct session *session, char *text, size_t size)
{
	struct net_counters counters;
	size_t at = snprintf(text, size, "ok {");

	for (int lane = 0; lane < RELAY_LANES; lane++) {
		at += print_lane(session, lane, text + at, size - at);
		at += snprintf(text + at, size - at, ",");
	}
	for (int end = 0; end < 2; end++) {
		memset(&counters, 0, sizeof(counters));
		net_counters_read(session->relay.end[end].netlink_fd, &counters);
		at += snprintf(text + at, size - at,
			       "\"%c\":{\"rx_bytes\":%" PRIu64 ",\"tx_bytes\":%" PRIu64
			       ",\"rx_packets\":%" PRIu64 ",\"tx_packets\":%" PRIu64
			       ",\"rx_dropped\":%" PRIu64 ",\"tx_dropped\":%" PRIu64 "}%s",
			       "ab"[end], counters.rx_bytes, counters.tx_bytes, counters.rx_packets,
			       counters.tx_packets, counters.rx_dropped, counters.tx_dropped,
			       end ? "}" : ",");
	}
}

/* Splits @text at spaces; the number of words, or -E2BIG. */
static int split(char *text, char *words[], int room)
{
	int count = 0;

	for (char *save, *word = strtok_r(text, " \t", &save); word; word = strtok_r(NULL, " \t", &save)) {
		if (count == room)
			return -E2BIG;
		words[count++] = word;
	}
	return count;
}

static int parse_until(const char *text, uint64_t now_ns, uint64_t *until_out)
{
	uint64_t ns;
	int err;

	if (strcmp(text, "forever") == 0) {
		*until_out = LANE_NEVER;
		return 0;
	}
	err = value_time(text, &ns);
	if (!err)
		*until_out = now_ns + ns;
	return err;
}

static int do_cut(struct session *session, const char *verb, const char *value)
{
	unsigned int directions = conf_directions(verb, "cut");
	uint64_t until;
	int err = parse_until(value, relay_now_ns(), &until);

	for (int lane = 0; lane < 2 && !err && session; lane++)
		if (directions & 1u << lane)
			lane_cut(&session->relay.lane[lane], until);
	return err;
}

/* link a up, carrier b off, speed a 1000 */
static int do_end(struct session *session, const char *verb, const char *which, const char *value)
{
	bool yes = strcmp(value, "up") == 0 || strcmp(value, "on") == 0;
	bool no = strcmp(value, "down") == 0 || strcmp(value, "off") == 0;
	int index = strcmp(which, "b") == 0;
	uint64_t mbit;

	if (!index && strcmp(which, "a") != 0)
		return -EINVAL;
	if (strcmp(verb, "speed") == 0) {
		int err = value_count(value, 1000000, &mbit);

		return err || !session ? err : net_end_speed(&session->relay.end[index], mbit);
	}
	if (!yes && !no)
		return -EINVAL;
	if (!session)
		return 0;
	return strcmp(verb, "link") == 0 ? net_end_link(&session->relay.end[index], yes)
					 : net_end_carrier(&session->relay.end[index], yes);
}

/* Executes a command that changes something; with @session NULL it only says whether it is one. */
static int do_command(struct session *session, const char *command)
{
	struct lane_conf scratch[2] = { 0 };
	char text[CONTROL_REQUEST_MAX];
	char *words[4];
	int count, err;

	if (strlen(command) >= sizeof(text))
		return -EMSGSIZE;
	strcpy(text, command);
	count = split(text, words, 4);
	if (count == 1 && conf_directions(words[0], "uncut")) {
		for (int lane = 0; lane < 2 && session; lane++)
			if (conf_directions(words[0], "uncut") & 1u << lane)
				lane_cut(&session->relay.lane[lane], 0);
		return 0;
	}
	if (count == 2 && conf_directions(words[0], "cut"))
		return do_cut(session, words[0], words[1]);
	if (count == 3 && (strcmp(words[0], "link") == 0 || strcmp(words[0], "carrier") == 0 ||
			   strcmp(words[0], "speed") == 0))
		return do_end(session, words[0], words[1], words[2]);
	if (count != 2)
		return -ENOENT;
	err = conf_set(session ? session->lane : scratch, words[0], words[1]);
	if (!err && session)
		apply(session);
	return err;
}

int session_command_check(const char *command)
{
	return do_command(NULL, command);
}

static void begin_end(struct session *session);

static void control_ready(void *context, int conn_fd)
{
	struct session *session = context;
	char request[CONTROL_REQUEST_MAX], reply[CONTROL_REPLY_MAX];
	int fds[3] = { session->relay.end[0].namespace_fd, session->relay.end[1].namespace_fd,
		       session->user_fd };
	int length = control_receive(conn_fd, request, sizeof(request)), fd_count = 0, err;

	if (length == -EAGAIN)
		return;
	relay_unwatch(&session->relay, conn_fd);
	if (length <= 0) {
		close(conn_fd);
		return;
	}
	if (strcmp(request, "stats") == 0) {
		print_stats(session, reply, sizeof(reply));
	} else if (strcmp(request, "namespaces") == 0) {
		snprintf(reply, sizeof(reply), "ok %s", session->lab.name);
		fd_count = 3;
	} else if (strcmp(request, "quit") == 0) {
		snprintf(reply, sizeof(reply), "ok");
		begin_end(session);
	} else {
		err = do_command(session, request);
		if (err == -ENOENT)
			snprintf(reply, sizeof(reply), "error: no such command: %s", request);
		else if (err)
			snprintf(reply, sizeof(reply), "error: %s: %s", request, strerror(-err));
		else
			snprintf(reply, sizeof(reply), "ok");
	}
	control_reply(conn_fd, reply, fds, fd_count);
}

static void control_connected(void *context, int listen_fd)
{
	struct session *session = context;
	int conn_fd = control_accept(listen_fd);

	if (conn_fd < 0)
		return;
	/* More at once than there is room for: they see a closed connection and may come again. */
	if (relay_watch(&session->relay, conn_fd, control_ready, session) < 0)
		close(conn_fd);
}

/* --- programs -------------------------------------------------------------------------------------- */

static void export_environment(const struct session *session)
{
	static const char *const address[ADDRESS_COUNT][2] = {
		{ "LANEM_A_ADDR", NET_ADDR_A },
		{ "LANEM_B_ADDR", NET_ADDR_B },
		{ "LANEM_A_ADDR6", NET_ADDR6_A },
		{ "LANEM_B_ADDR6", NET_ADDR6_B },
	};
	char self[4096];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	setenv("LANEM_NAME", session->lab.name, 1);
	setenv("LANEM_CONTROL", session->lab.control_path, 1);
	setenv("LANEM_A", session->lab.netns_name[0], 1);
	setenv("LANEM_B", session->lab.netns_name[1], 1);
	for (int i = 0; i < ADDRESS_COUNT; i++)
		setenv(address[i][0], address[i][1], 1);
	if (length > 0) {
		self[length] = 0;
		setenv("LANEM", self, 1);
	}
}

/* In a fresh child: undoes what is only the relay's. */
static void become_program(const struct session *session, int namespace_fd)
{
	if (session->own_groups)
		setpgid(0, 0);
	/* Should we be killed without a chance to clean up, what runs in the lab goes too. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	prctl(PR_SET_TIMERSLACK, SLACK_DEFAULT_NS);
	setpriority(PRIO_PROCESS, 0, 0);
	sigprocmask(SIG_SETMASK, &session->old_mask, NULL);
	if (namespace_fd >= 0 && setns(namespace_fd, CLONE_NEWNET) < 0) {
		complain("enter the namespace", -errno);
		_exit(1);
	}
}

static int start(struct session *session, enum child_kind kind, char **command, int namespace_fd)
{
	int fds[2] = { session->relay.end[0].namespace_fd, session->relay.end[1].namespace_fd };
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		become_program(session, namespace_fd);
		if (kind == CHILD_MEASURE)
			_exit(measure_main(fds, &session->conf->measure_conf));
		execvp(command[0], command);
		fprintf(stderr, "lanem: cannot run %s: %s\n", command[0], strerror(errno));
		_exit(127);
	}
	session->child[kind] = pid;
	return 0;
}

static void print_ready(const struct session *session)
{
	printf("LANEM_NAME=%s\nLANEM_CONTROL=%s\nLANEM_A=%s\nLANEM_B=%s\nLANEM_A_ADDR=%s\nLANEM_B_ADDR=%s\n"
	       "LANEM_A_ADDR6=%s\nLANEM_B_ADDR6=%s\nready\n",
	       session->lab.name, session->lab.control_path, session->lab.netns_name[0],
	       session->lab.netns_name[1], NET_ADDR_A, NET_ADDR_B, NET_ADDR6_A, NET_ADDR6_B);
	fflush(stdout);
}

static void arm_events(struct session *session)
{
	struct itimerspec when = { 0 };
	uint64_t next = LANE_NEVER;

	for (unsigned int i = 0; i < session->conf->event_count; i++)
		if (!session->fired[i] && session->begun_ns + session->conf->event[i].at_ns < next)
			next = session->begun_ns + session->conf->event[i].at_ns;
	if (next != LANE_NEVER) {
		when.it_value.tv_sec = next / NS_PER_S;
		when.it_value.tv_nsec = next % NS_PER_S;
	}
	timerfd_settime(session->event_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static void event_ready(void *context, int fd)
{
	struct session *session = context;
	uint64_t expirations, now = relay_now_ns();

	(void)!read(fd, &expirations, sizeof(expirations));
	for (unsigned int i = 0; i < session->conf->event_count; i++) {
		if (session->fired[i] || session->begun_ns + session->conf->event[i].at_ns > now)
			continue;
		session->fired[i] = true;
		do_command(session, session->conf->event[i].command);
	}
	arm_events(session);
}

/* The lab stands (and has been measured, if that was asked for): what it was made for begins. */
static int start_programs(struct session *session)
{
	char **a = session->conf->command[0], **b = session->conf->command[1];
	int err = 0;

	session->begun_ns = relay_now_ns();
	arm_events(session);
	if (b)
		err = start(session, CHILD_B, b, session->relay.end[1].namespace_fd);
	if (!err && a)
		err = start(session, CHILD_A, a, b ? session->relay.end[0].namespace_fd : -1);
	if (err)
		complain("start a program", err);
	else if (!a && session->conf->measure)
		begin_end(session);
	else if (!a)
		print_ready(session);
	return err;
}

/* --- the end --------------------------------------------------------------------------------------- */

static bool signal_all(struct session *session, int signal)
{
	int fds[2] = { session->relay.end[0].namespace_fd, session->relay.end[1].namespace_fd };
	bool any = lab_signal_inhabitants(fds, signal) > 0;

	for (int i = 0; i < CHILD_COUNT; i++) {
		if (!session->child[i])
			continue;
		any = true;
		if (signal)
			kill(session->own_groups ? -session->child[i] : session->child[i], signal);
	}
	return any;
}

static void begin_end(struct session *session)
{
	struct itimerspec tick = { .it_value.tv_nsec = 1, .it_interval.tv_nsec = END_TICK_NS };

	if (session->ending)
		return;
	session->ending = true;
	signal_all(session, SIGTERM);
	/* The relay goes on meanwhile: who says goodbye to the other end can do so. */
	timerfd_settime(session->end_fd, 0, &tick, NULL);
}

static void end_ready(void *context, int fd)
{
	struct session *session = context;
	uint64_t expirations;

	(void)!read(fd, &expirations, sizeof(expirations));
	session->end_ticks++;
	if (!signal_all(session, session->end_ticks == END_KILL_TICKS ? SIGKILL : 0))
		session->relay.stop = true;
	if (session->end_ticks == END_GIVE_UP_TICKS) {
		fprintf(stderr, "lanem: a process in the lab can't be ended\n");
		session->relay.stop = true;
	}
}

static void child_ended(struct session *session, enum child_kind kind, int status)
{
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);

	session->child[kind] = 0;
	if (session->ending)
		return;
	switch (kind) {
	case CHILD_MEASURE:
		session->status = code;
		if (code == 0 && start_programs(session) == 0)
			return;
		session->status = 1;
		break;
	case CHILD_A:
		session->status = code;
		break;
	default:
		/* B serves A: that it ended early, A will notice. */
		return;
	}
	begin_end(session);
}

static void signal_ready(void *context, int fd)
{
	struct session *session = context;
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	while (read(fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD || session->ending)
			continue;
		if (session->conf->command[0] || session->conf->measure)
			session->status = 128 + info.ssi_signo;
		begin_end(session);
	}
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (int i = 0; i < CHILD_COUNT; i++)
			if (session->child[i] == pid)
				child_ended(session, i, status);
}

/* --- making it ------------------------------------------------------------------------------------- */

static const char *hint(int err, const char *step)
{
	if (strstr(step, "/dev/net/tun") && (err == -EACCES || err == -EPERM))
		return " (only root may use the device here; run as root, or let users open /dev/net/tun)";
	if (strstr(step, "/dev/net/tun") && (err == -ENOENT || err == -ENODEV))
		return " (this kernel has no TUN driver, or it is not loaded: modprobe tun)";
	if (strstr(step, "namespace") && err == -EPERM)
		return " (needs root, or a system that lets users make user namespaces)";
	if (strstr(step, "congestion control"))
		return " (see /proc/sys/net/ipv4/tcp_available_congestion_control)";
	return "";
}

static int open_end(struct session *session, int end)
{
	const struct session_conf *conf = session->conf;
	struct net_conf net = {
		.addr = end ? NET_ADDR_B : NET_ADDR_A,
		.addr6 = end ? NET_ADDR6_B : NET_ADDR6_A,
		.mtu = conf->mtu,
		.congestion = conf->congestion,
		.offload = conf->offload < 0 ? !conf_needs_frames(conf->lane) : conf->offload,
	};
	const char *step;
	int err = net_end_open(&session->relay.end[end], &net, &step);

	if (err)
		fprintf(stderr, "lanem: cannot %s: %s%s\n", step, strerror(-err), hint(err, step));
	return err;
}

static int claim(struct session *session)
{
	int err = lab_become_root();

	if (err) {
		fprintf(stderr, "lanem: cannot make a user namespace: %s%s\n", strerror(-err),
			hint(err, "namespace"));
		return err;
	}
	session->user_fd = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
	if (session->user_fd < 0) {
		complain("open /proc/self/ns/user", -errno);
		return -1;
	}
	err = lab_claim(&session->lab);
	if (err == -EBUSY)
		fprintf(stderr, "lanem: a lab called %s runs already (see %s)\n", session->lab.name,
			session->lab.lock_path);
	else if (err)
		fprintf(stderr, "lanem: cannot use the folder %s: %s\n", session->lab.dir, strerror(-err));
	return err;
}

/* Descriptors of the loop; whatever is open is closed by session_run(). */
static int open_loop(struct session *session)
{
	sigset_t mask;
	int err;

	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGHUP);
	sigprocmask(SIG_BLOCK, &mask, &session->old_mask);
	session->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	session->event_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	session->end_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (session->signal_fd < 0 || session->event_fd < 0 || session->end_fd < 0)
		return -errno;
	session->control_fd = control_listen(session->lab.control_path);
	if (session->control_fd < 0) {
		fprintf(stderr, "lanem: control socket %s:\n", session->lab.control_path);
		return session->control_fd;
	}
	err = relay_watch(&session->relay, session->signal_fd, signal_ready, session);
	if (!err)
		err = relay_watch(&session->relay, session->event_fd, event_ready, session);
	if (!err)
		err = relay_watch(&session->relay, session->end_fd, end_ready, session);
	if (!err)
		err = relay_watch(&session->relay, session->control_fd, control_connected, session);
	return err;
}

static int run_loop(struct session *session)
{
	int fds[2] = { session->relay.end[0].namespace_fd, session->relay.end[1].namespace_fd };
	int err = open_loop(session);

	if (err) {
		complain("set up the event loop", err);
		return err;
	}
	/* An ordinary user has names only where it can make mounts; `lanem exec` needs none. */
	err = lab_publish(&session->lab, fds);
	if (err && err != -EPERM && err != -EACCES)
		complain("name the namespaces in " LAB_NETNS_DIR ", so `ip netns` won't know them", err);
	apply(session);
	export_environment(session);
	prctl(PR_SET_TIMERSLACK, 1);
	setpriority(PRIO_PROCESS, 0, RELAY_NICE);
	if (session->conf->measure)
		err = start(session, CHILD_MEASURE, NULL, -1);
	else
		err = start_programs(session);
	if (!err)
		err = relay_run(&session->relay);
	if (err)
		complain("carry packets", err);
	if (err)
		signal_all(session, SIGKILL);
	return err;
}

static void close_if_open(int fd)
{
	if (fd >= 0)
		close(fd);
}

int session_run(const struct session_conf *conf)
{
	struct session session = {
		.conf = conf,
		.lane = { conf->lane[0], conf->lane[1] },
		.own_groups = !isatty(0),
		.user_fd = -1,
		.signal_fd = -1,
		.event_fd = -1,
		.end_fd = -1,
		.control_fd = -1,
		.relay.end = { { -1, -1, -1, -1 }, { -1, -1, -1, -1 } },
	};
	int err = lab_name(&session.lab, conf->name, conf->control_path);

	if (err) {
		fprintf(stderr, "lanem: '%s' can't be the name of a lab, or its paths get too long\n",
			conf->name);
		return 2;
	}
	err = claim(&session);
	if (err)
		goto close_user;
	for (int i = 0; i < 2; i++)
		lane_init(&session.relay.lane[i], &conf->lane[i], conf->seed * 2 + i);
	for (int i = 0; i < 2 && !err; i++)
		err = open_end(&session, i);
	if (err)
		goto close_ends;
	err = relay_init(&session.relay);
	if (err) {
		complain("set up the relay", err);
		goto close_ends;
	}
	err = run_loop(&session);
	close_if_open(session.control_fd);
	close_if_open(session.signal_fd);
	close_if_open(session.event_fd);
	close_if_open(session.end_fd);
	relay_fini(&session.relay);
close_ends:
	for (int i = 0; i < 2; i++) {
		lane_fini(&session.relay.lane[i]);
		net_end_close(&session.relay.end[i]);
	}
	lab_release(&session.lab);
close_user:
	close_if_open(session.user_fd);
	return err ? 1 : session.status;
}
