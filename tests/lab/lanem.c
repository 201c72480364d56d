/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lanem: a LAN between two network namespaces, with chosen delay, rate, queue, loss, reordering and cuts.
 * This file has the command line. docs/testing.md shows its use.
 */
#include "tests/lab/lanem_conf.h"
#include "tests/lab/lanem_session.h"
#include "tests/lib/control.h"
#include "tests/lib/value.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXIT_USAGE	  2
#define MTU_DEFAULT	  1500
#define MTU_MIN		  1280 /* IPv6 needs it */
#define MTU_MAX		  65535
#define PINGS_MAX	  10000
#define STREAM_DEFAULT_NS 1000000000u

static const char usage_text[] =
	"usage: lanem [options] -- COMMAND ARGS...             runs it beside the lab, with LANEM_A and "
	"LANEM_B set\n"
	"       lanem [options] -- A-COMMAND... :: B-COMMAND...   runs one at each end, until A's ends\n"
	"       lanem [options] --measure [--json]             prints round trip, rates and byte counters\n"
	"       lanem up [options]                             stands until SIGTERM or `lanem down`\n"
	"       lanem exec A|B [--name NAME] [--sysfs] -- COMMAND...   runs it in one end of a lab\n"
	"       lanem ctl [--name NAME] COMMAND                changes a lab: `rate 100mbit`, `cut 2s`, "
	"`stats`, ...\n"
	"       lanem measure [--name NAME] [--json]           measures a lab\n"
	"       lanem down [--name NAME]\n"
	"settings, also for ctl (behind each -ab or -ba: one direction only, as in --rate-ab):\n" CONF_USAGE
	"options:\n"
	"  --cut AT:FOR      a black hole for a time, at a time after the start (ms, or 2s); also --cut-ab, "
	"--cut-ba\n"
	"  --at AT:COMMAND   any command of ctl at a time\n"
	"  --seed N          of the dice (default 1)\n"
	"  --name NAME       of the lab (default lanem-PID); its ends are NAME-a and NAME-b for `ip netns`\n"
	"  --control SOCKET  instead of the one found by the name\n"
	"  --mtu BYTES       (default 1500)\n"
	"  --offload on|off  packets of up to 64 KiB in one piece (default: on where neither loss nor "
	"reordering)\n"
	"  --congestion C    TCP's congestion control in both namespaces (default: the kernel's)\n"
	"  --measure, --json, --pings N, --seconds S (of each stream, 0: none)\n"
	"ctl also knows: uncut, link a|b up|down, carrier a|b on|off, speed a|b MBIT, stats, quit\n";

static int usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("lanem: ", stderr);
	vfprintf(stderr, format, args);
	fputs("\n(lanem --help shows the usage)\n", stderr);
	va_end(args);
	return EXIT_USAGE;
}

/* --- options --------------------------------------------------------------------------------------- */

/* What the commands have in common; each takes of it what it needs. */
struct options {
	struct session_conf session;
	bool name_given;
	bool sysfs;
	/* commands made out of --cut AT:FOR */
	char text[SESSION_EVENT_MAX][64];
	char name[LAB_NAME_MAX + 1];
};

static int add_event(struct options *options, const char *at, size_t at_length, const char *command)
{
	struct session_conf *conf = &options->session;
	char text[32];
	int err;

	if (conf->event_count == SESSION_EVENT_MAX || at_length >= sizeof(text))
		return -E2BIG;
	memcpy(text, at, at_length);
	text[at_length] = 0;
	err = value_time(text, &conf->event[conf->event_count].at_ns);
	if (!err)
		err = session_command_check(command);
	if (!err)
		conf->event[conf->event_count++].command = command;
	return err;
}

/* --cut 500:2s and --at 500:'rate 1mbit' */
static int parse_event(struct options *options, const char *name, const char *value)
{
	const char *colon = strchr(value, ':');
	char *text = options->text[options->session.event_count % SESSION_EVENT_MAX];

	if (!colon)
		return -EINVAL;
	if (strcmp(name, "at") == 0)
		return add_event(options, value, colon - value, colon + 1);
	if (snprintf(text, sizeof(options->text[0]), "%s %s", name, colon + 1) >=
	    (int)sizeof(options->text[0]))
		return -EINVAL;
	return add_event(options, value, colon - value, text);
}

static int parse_number(const char *value, uint64_t min, uint64_t max, uint64_t *number_out)
{
	uint64_t number;
	int err = value_count(value, max, &number);

	if (!err && number < min)
		err = -ERANGE;
	if (!err)
		*number_out = number;
	return err;
}

/* An option that has a value; -ENOENT: no such. */
static int parse_valued(struct options *options, const char *name, const char *value)
{
	struct session_conf *conf = &options->session;
	uint64_t number;
	int err;

	if (strcmp(name, "at") == 0 || conf_directions(name, "cut"))
		return parse_event(options, name, value);
	if (strcmp(name, "name") == 0) {
		conf->name = value;
		options->name_given = true;
		return 0;
	}
	if (strcmp(name, "control") == 0) {
		conf->control_path = value;
		return 0;
	}
	if (strcmp(name, "congestion") == 0) {
		conf->congestion = value;
		return 0;
	}
	if (strcmp(name, "offload") == 0) {
		conf->offload = strcmp(value, "on") == 0;
		return conf->offload || strcmp(value, "off") == 0 ? 0 : -EINVAL;
	}
	if (strcmp(name, "seed") == 0)
		return value_count(value, UINT64_MAX / 4, &conf->seed);
	if (strcmp(name, "pings") == 0)
		return parse_number(value, 1, PINGS_MAX, &conf->measure_conf.pings);
	if (strcmp(name, "seconds") == 0) {
		char text[32];

		if (snprintf(text, sizeof(text), "%ss", value) >= (int)sizeof(text))
			return -EINVAL;
		return value_time(text, &conf->measure_conf.stream_ns);
	}
	if (strcmp(name, "mtu") == 0) {
		err = parse_number(value, MTU_MIN, MTU_MAX, &number);
		if (!err)
			conf->mtu = number;
		return err;
	}
	return conf_set(conf->lane, name, value);
}

/* Reads options up to "--" or the first word that is none; its index, or -1 after a complaint. */
static int parse_options(struct options *options, int argc, char **argv, int at)
{
	for (; at < argc; at++) {
		const char *name = argv[at] + 2;
		int err;

		if (strcmp(argv[at], "--") == 0)
			return at + 1;
		if (strncmp(argv[at], "--", 2) != 0)
			return at;
		if (strcmp(name, "measure") == 0) {
			options->session.measure = true;
			continue;
		}
		if (strcmp(name, "json") == 0) {
			options->session.measure_conf.json = true;
			continue;
		}
		if (strcmp(name, "sysfs") == 0) {
			options->sysfs = true;
			continue;
		}
		if (at + 1 == argc) {
			usage("%s is no option, or lacks its value", argv[at]);
			return -1;
		}
		err = parse_valued(options, name, argv[at + 1]);
		if (err == -ENOENT)
			usage("%s is no option", argv[at]);
		else if (err)
			usage("'%s' is no value for %s", argv[at + 1], argv[at]);
		if (err)
			return -1;
		at++;
	}
	return at;
}

static void options_init(struct options *options)
{
	memset(options, 0, sizeof(*options));
	options->session.seed = 1;
	options->session.mtu = MTU_DEFAULT;
	options->session.offload = -1;
	options->session.measure_conf.stream_ns = STREAM_DEFAULT_NS;
	for (int i = 0; i < 2; i++)
		lane_conf_default(&options->session.lane[i]);
	snprintf(options->name, sizeof(options->name), "lanem-%d", getpid());
	options->session.name = options->name;
}

/* --- commands that talk to a lab ------------------------------------------------------------------- */

/* Where its control socket is: --control, --name, or the lab that this process was started in. */
static int find_lab(const struct options *options, struct lab *lab)
{
	const char *name = options->session.name, *control_path = options->session.control_path;

	if (!control_path && !options->name_given) {
		control_path = getenv("LANEM_CONTROL");
		if (!control_path)
			return usage("which lab? --name NAME says it");
	}
	if (lab_name(lab, name, control_path))
		return usage("'%s' is no name of a lab", name);
	return 0;
}

static int ask(const struct lab *lab, const char *request, char *reply, int *fds, int *fd_count)
{
	int err = control_ask(lab->control_path, request, reply, CONTROL_REPLY_MAX, fds, fd_count);

	if (err == -ENOENT || err == -ECONNREFUSED)
		fprintf(stderr, "lanem: no lab listens at %s\n", lab->control_path);
	else if (err)
		fprintf(stderr, "lanem: %s: %s\n", lab->control_path, strerror(-err));
	if (err)
		return 1;
	if (strncmp(reply, "ok", 2) != 0) {
		fprintf(stderr, "lanem: %s\n", reply);
		return 1;
	}
	return 0;
}

static int ctl_main(int argc, char **argv)
{
	char request[CONTROL_REQUEST_MAX] = "", reply[CONTROL_REPLY_MAX];
	struct options options;
	struct lab lab;
	size_t length = 0;
	int at, status;

	options_init(&options);
	at = parse_options(&options, argc, argv, 2);
	if (at < 0)
		return EXIT_USAGE;
	if (at == argc)
		return usage("ctl needs a command");
	for (; at < argc; at++) {
		length += snprintf(request + length, sizeof(request) - length, "%s%s", length ? " " : "",
				   argv[at]);
		if (length >= sizeof(request))
			return usage("a command this long is none");
	}
	status = find_lab(&options, &lab);
	if (!status)
		status = ask(&lab, request, reply, NULL, NULL);
	if (!status && strlen(reply) > 3)
		puts(reply + 3);
	return status;
}

static int down_main(int argc, char **argv)
{
	char reply[CONTROL_REPLY_MAX];
	struct options options;
	struct lab lab;
	int status;

	options_init(&options);
	if (parse_options(&options, argc, argv, 2) != argc)
		return usage("down needs nothing but --name");
	status = find_lab(&options, &lab);
	if (!status)
		status = ask(&lab, "quit", reply, NULL, NULL);
	/* It is down when its socket is gone: the programs in it have a few seconds for their end. */
	for (int i = 0; !status && access(lab.control_path, F_OK) == 0 && i < 700; i++)
		usleep(10000);
	return status;
}

static bool same_namespace(int fd, const char *path)
{
	struct stat one, other;

	return fstat(fd, &one) == 0 && stat(path, &other) == 0 && one.st_ino == other.st_ino &&
	       one.st_dev == other.st_dev;
}

/* Gets the namespaces of a running lab into @fds, and enters the user namespace that they belong to. */
static int enter_lab(const struct options *options, int fds[2])
{
	char reply[CONTROL_REPLY_MAX];
	int got[3], count = 3, status;
	struct lab lab;

	status = find_lab(options, &lab);
	if (!status)
		status = ask(&lab, "namespaces", reply, got, &count);
	if (status)
		return status;
	if (count != 3) {
		fprintf(stderr, "lanem: the lab sent %d namespaces instead of 3\n", count);
		return 1;
	}
	if (!same_namespace(got[2], "/proc/self/ns/user") && setns(got[2], CLONE_NEWUSER) < 0) {
		fprintf(stderr, "lanem: cannot enter the lab's user namespace: %s\n", strerror(errno));
		return 1;
	}
	fds[0] = got[0];
	fds[1] = got[1];
	return 0;
}

/* /sys/class/net shows the namespace it was mounted in. */
static int mount_own_sysfs(void)
{
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
	    mount("sysfs", "/sys", "sysfs", 0, NULL) < 0) {
		fprintf(stderr, "lanem: cannot mount a sysfs: %s\n", strerror(errno));
		return 1;
	}
	return 0;
}

static int exec_main(int argc, char **argv)
{
	struct options options;
	int fds[2], at, end, status;

	if (argc < 3 || strlen(argv[2]) != 1 || !strchr("AaBb", argv[2][0]))
		return usage("exec needs A or B");
	end = strchr("Bb", argv[2][0]) != NULL;
	options_init(&options);
	at = parse_options(&options, argc, argv, 3);
	if (at < 0)
		return EXIT_USAGE;
	if (at == argc)
		return usage("exec needs a command");
	status = enter_lab(&options, fds);
	if (status)
		return status;
	if (setns(fds[end], CLONE_NEWNET) < 0) {
		fprintf(stderr, "lanem: cannot enter the namespace: %s\n", strerror(errno));
		return 1;
	}
	if (options.sysfs && mount_own_sysfs())
		return 1;
	execvp(argv[at], argv + at);
	fprintf(stderr, "lanem: cannot run %s: %s\n", argv[at], strerror(errno));
	return 127;
}

static int measure_lab_main(int argc, char **argv)
{
	struct options options;
	int fds[2], status;

	options_init(&options);
	if (parse_options(&options, argc, argv, 2) != argc)
		return usage("measure takes options alone");
	status = enter_lab(&options, fds);
	return status ? status : measure_main(fds, &options.session.measure_conf);
}

/* --- commands that make a lab ---------------------------------------------------------------------- */

static int up_main(int argc, char **argv)
{
	struct options options;

	options_init(&options);
	if (parse_options(&options, argc, argv, 2) != argc)
		return usage("up takes options alone");
	options.session.measure = false;
	return session_run(&options.session);
}

static int run_main(int argc, char **argv)
{
	struct options options;
	int at;

	options_init(&options);
	at = parse_options(&options, argc, argv, 1);
	if (at < 0)
		return EXIT_USAGE;
	if (at < argc && strcmp(argv[at - 1], "--") != 0)
		return usage("'%s' is no option; commands come behind --", argv[at]);
	if (at == argc && !options.session.measure)
		return usage("nothing to do: give a command behind --, or --measure");
	if (at < argc)
		options.session.command[0] = argv + at;
	for (int i = at; i < argc; i++) {
		if (strcmp(argv[i], "::") != 0)
			continue;
		if (i == at || i + 1 == argc)
			return usage("'::' stands between two commands");
		argv[i] = NULL;
		options.session.command[1] = argv + i + 1;
		break;
	}
	return session_run(&options.session);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*main)(int argc, char **argv);
	} commands[] = {
		{ "up", up_main },     { "exec", exec_main },		{ "ctl", ctl_main },
		{ "down", down_main }, { "measure", measure_lab_main },
	};

	if (argc < 2) {
		fputs(usage_text, stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		fputs(usage_text, stdout);
		return 0;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].main(argc, argv);
	return run_main(argc, argv);
}
