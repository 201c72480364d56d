// SPDX-License-Identifier: Apache-2.0
/* gleamctl: asks and commands the gleamd of this machine. Reads the command line. One thread. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gleamctl/gleamctl.h"

#define NAME_MAX_SIZE 32 /* longer than any command's: what is typed beyond is no misspelling */
#define NEAR	      3	 /* letters wrong, more is another word */

#define HELP_COMMON                                                                                            \
	"  --json          print JSON instead of text\n"                                                       \
	"  --socket PATH   where gleamd listens (default: $GLEAM_SOCKET, the user's own daemon, the machine's)\n" \
	"  --help          this text\n"

const struct command commands[] = {
	{ "status", "", "the daemon, its servers and its clients", HELP_COMMON, 0, 0, "js", show_status },
	{ "top", "", "servers, GPUs and programs as they work, again and again; sort, filter, migrate, drain",
	  "In the terminal: ? lists the keys.\n"
	  "\n"
	  "  --interval S    seconds between two looks, 0.1 to 3600 (default: 2)\n"
	  "  --batch N       print N frames instead and end; the first has no rates\n"
	  "  --socket PATH   where gleamd listens (default: $GLEAM_SOCKET, the user's own daemon, the machine's)\n"
	  "  --help          this text\n",
	  0, 0, "sib", top_command },
	{ "servers", "", "servers: state, load, round trip time, GPUs", HELP_COMMON, 0, 0, "js", show_servers },
	{ "clients", "", "programs that use Gleam now: a user's own, root sees all", HELP_COMMON, 0, 0, "js", show_clients },
	{ "stats", "PID", "CUDA functions that a program has called: calls, bytes, round trips, times", HELP_COMMON, 1, 1,
	  "js", show_stats },
	{ "policy", "[cost|least-loaded|round-robin|pinned]", "which server a new program gets: show the rule, or change it", HELP_COMMON, 0,
	  1, "js", policy_command },
	{ "decisions", "", "which servers programs got, what that was thought to cost, and what it cost", HELP_COMMON, 0, 0, "js",
	  decisions_command },
	{ "drain", "[SERVER]", "move all programs away from a server, and send no new ones; without a name: take none on this machine",
	  "Four at a time are moved as by migrate, each to the server that is best for it; the others wait for their turn. Who can't be\n"
	  "moved is named with the reason, and stays; then the status is 1. Without SERVER those that are there stay.\n"
	  "\n"
	  "  --no-move       leave those that are there\n"
	  "  --undo          take it into use again\n" HELP_COMMON,
	  0, 1, "jsum", drain_command },
	{ "trace", "FILE", "calls that a program has recorded with GLEAM_TRACE=FILE: arguments, results, times, round trips",
	  "  --chrome OUT    write a trace for ui.perfetto.dev or chrome://tracing into OUT instead of the list\n"
	  "  --hops          what calls that waited are made of: for each function, the medians of its parts between program, daemon, worker and GPU\n"
	  "  --help          this text\n",
	  1, 1, "Oh", trace_command },
	{ "cache", "[list|pin|unpin|drop|verify|prefetch [SERVER] [HASH|FILE]]", "what servers keep of uploads, so that it needn't be sent again",
	  "  (nothing)       what each server keeps, and what that has saved\n"
	  "  list SERVER     its chunks: 32 digits that name each, and its bytes\n"
	  "  pin SERVER HASH|all      never drop it for room\n"
	  "  unpin SERVER HASH|all    as before\n"
	  "  drop SERVER HASH|all     forget it; all: what isn't pinned\n"
	  "  verify SERVER HASH|all   read it and compare it with its name; what is damaged is dropped, and the status is 1\n"
	  "  prefetch SERVER FILE     send what the server lacks of FILE, so that the first load finds it there\n"
	  "\n" HELP_COMMON,
	  0, 3, "js", cache_command },
	{ "migrate", "PID[:FROM] [SERVER[:GPU]]", "move a running program to another server, or another GPU",
	  "The program goes on meanwhile, and is held for a moment at the end. What can't be moved is refused with its reason, and\n"
	  "the program stays where it is; so it does when anything fails on the way.\n"
	  "\n"
	  "FROM            of a program with GPUs of several servers: the one whose are moved; the others stay\n"
	  "SERVER          where to (default: another one than it is on); its own name: to another worker there\n"
	  "GPU             number of a GPU of that server (default: as the program's settings say)\n"
	  "\n" HELP_COMMON,
	  1, 2, "js", migrate_command },
	{ "checkpoint", "PID DIR", "write the state of a program's GPU into DIR, so that it can go on when its server is lost",
	  "The program goes on meanwhile, and is held for a moment at the end, as by migrate. DIR is made for its owner alone, and\n"
	  "DIR/checkpoint, which nobody else may read, has what lies in GPU memory; a newer one replaces it when it is whole.\n"
	  "Of a program with GPUs of several servers each has a file (checkpoint.2 and so on). One that shares its memory with a\n"
	  "worker of this machine is moved to another one first, whose commands gleamd sees; its memory is on the GPU twice then.\n"
	  "What comes after it is remembered by gleamd, as far as it can be done again: see restore.\n"
	  "\n"
	  "  --every S       again and again, each S seconds (1 to 86400), where the program has done anything since; until it ends\n"
	  HELP_COMMON,
	  2, 2, "jse", checkpoint_command },
	{ "restore", "PID[:FROM] DIR [SERVER[:GPU]]", "let a program whose server is lost go on from the checkpoint in DIR",
	  "PID is the same process, which still runs: when its server is lost it is held for [link] hold (10 minutes). What it has\n"
	  "done since the checkpoint is done again, and must come out as the program has seen it. printf, kernels that write to\n"
	  "page-locked memory and more than 256 MiB can't be: such a program is not held. What is refused leaves it held.\n"
	  "\n"
	  "FROM            of a program with GPUs of several servers: the one that is lost (default: all that are)\n"
	  "SERVER          where to (default: another one than it was on, if one is there)\n"
	  "GPU             number of a GPU of that server (default: as the program's settings say)\n"
	  "\n" HELP_COMMON,
	  2, 3, "js", restore_command },
	{ "key", "new|show [FILE]", "make the key that daemons share, or show whose it is (never the secret)",
	  "  new             make a key in FILE (default: /etc/gleam/key for root, ~/.config/gleam/key otherwise);\n"
	  "                  a file that is there is never overwritten\n"
	  "  show            tell tenant and id of the keys in FILE\n"
	  "\n"
	  "  --tenant NAME   whose key it is (default: default); tenants share nothing on a server\n"
	  "  --json          print JSON instead of text\n"
	  "  --help          this text\n",
	  1, 2, "jt", key_command },
	{ "run", "-- PROGRAM [ARGUMENT...]", "run a program on a remote GPU",
	  "The program gets LD_LIBRARY_PATH with the folder of Gleam's libcuda.so.1 in front, and gleamctl becomes it.\n"
	  "Exit status: the program's; 127 if there is no such program, 126 if it can't be run.\n"
	  "\n"
	  "  --server NAMES  use this server and no other, or these (A,B: one GPU of each; sets GLEAM_SERVER)\n"
	  "  --gpus COUNT    so many GPUs, of one server if one has them, or all there are (default: one; sets GLEAM_GPUS)\n"
	  "  --priority P    latency, normal or batch: whom the scheduler keeps out of whose way (sets GLEAM_PRIORITY)\n"
	  "  --socket PATH   where gleamd listens (sets GLEAM_SOCKET)\n"
	  "  --help          this text\n",
	  1, -1, "sSGp", run_command },
	{ "pair", "[ADDRESS]", "join two machines: alone on the one with the GPU, with its ADDRESS on the other",
	  "Without ADDRESS: sees to a key and to [node] listen, shows a code, and waits ten minutes for the other machine.\n"
	  "With ADDRESS: asks there, writes the key and the server into the settings, and starts gleamd again.\n"
	  "\n"
	  "  --code CODE     what the other side shows (default: asked for, so that no history has it)\n"
	  "  --name NAME     what to call the server (default: as it calls itself)\n"
	  "  --listen ADDR   where to wait, as ADDRESS:PORT (default: everywhere, port 4712)\n"
	  "  --tenant NAME   whose key it is, if one is made (default: default)\n"
	  "  --config FILE   gleamd's settings (default: /etc/gleam/gleam.conf)\n"
	  "  --socket PATH   where gleamd listens, to see whether the server is used\n"
	  "  --help          this text\n",
	  0, 1, "sctlCn", pair_command },
	{ "doctor", "", "look for what is wrong on this machine, and say what to do",
	  "Exit status: 1 if something failed; what is only to be looked at does not count.\n"
	  "\n"
	  "  --config FILE   gleamd's settings (default: /etc/gleam/gleam.conf)\n" HELP_COMMON,
	  0, 0, "jsc", doctor_command },
	{ "kernel", "[limit WHO]", "the kernel module's sessions, virtual GPUs and limits, asked of the module itself",
	  "WHO is uid:USER (a name or number), cgroup:PATH (below /sys/fs/cgroup, or an id), or all. With --sessions or\n"
	  "--memory its limits are set, by root; what is not given stays. A session counts with all the memory it may use.\n"
	  "\n"
	  "  --sessions N    sessions at once, or none: no limit\n"
	  "  --memory MIB    memory of sessions, or none: no limit\n"
	  "  --json          print JSON instead of text\n"
	  "  --help          this text\n",
	  0, 2, "jNM", kernel_command },
	{ "completion", "bash|zsh|fish", "print a script that completes gleamctl's words in that shell",
	  "bash: source <(gleamctl completion bash); fish: gleamctl completion fish | source\n"
	  "zsh:  source <(gleamctl completion zsh), behind compinit\n"
	  "\n"
	  "  --help          this text\n",
	  1, 1, "", completion_command },
	{ "version", "", "version of gleamctl and of the running daemon", HELP_COMMON, 0, 0, "js", show_version },
	{ 0 },
};

enum { OPT_HELP = 256, OPT_VERSION };

/* A letter for each, which commands name in `takes`; a line for each, too. */
const struct option long_options[] = {
	{ "json", no_argument, NULL, 'j' },
	{ "socket", required_argument, NULL, 's' },
	{ "server", required_argument, NULL, 'S' },
	{ "gpus", required_argument, NULL, 'G' },
	{ "tenant", required_argument, NULL, 't' },
	{ "config", required_argument, NULL, 'c' },
	{ "interval", required_argument, NULL, 'i' },
	{ "batch", required_argument, NULL, 'b' },
	{ "listen", required_argument, NULL, 'l' },
	{ "code", required_argument, NULL, 'C' },
	{ "name", required_argument, NULL, 'n' },
	{ "sessions", required_argument, NULL, 'N' },
	{ "chrome", required_argument, NULL, 'O' },
	{ "hops", no_argument, NULL, 'h' },
	{ "memory", required_argument, NULL, 'M' },
	{ "priority", required_argument, NULL, 'p' },
	{ "every", required_argument, NULL, 'e' },
	{ "undo", no_argument, NULL, 'u' },
	{ "no-move", no_argument, NULL, 'm' },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

/* Where the value of an option goes; `json`, `undo`, `no-move` and `hops` have none. */
static const struct {
	int id;
	size_t place;
} values[] = {
	{ 's', offsetof(struct options, socket) },
	{ 'S', offsetof(struct options, server) },
	{ 'G', offsetof(struct options, gpus) },
	{ 't', offsetof(struct options, tenant) },
	{ 'p', offsetof(struct options, priority) },
	{ 'c', offsetof(struct options, config) },
	{ 'i', offsetof(struct options, interval) },
	{ 'b', offsetof(struct options, batch) },
	{ 'l', offsetof(struct options, listen) },
	{ 'N', offsetof(struct options, sessions) },
	{ 'O', offsetof(struct options, chrome) },
	{ 'M', offsetof(struct options, memory) },
	{ 'C', offsetof(struct options, code) },
	{ 'e', offsetof(struct options, every) },
	{ 'n', offsetof(struct options, name) },
};

static void option_take(struct options *options, int id, const char *value)
{
	if (id == 'j')
		options->json = true;
	if (id == 'u')
		options->undo = true;
	if (id == 'm')
		options->no_move = true;
	if (id == 'h')
		options->hops = true;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		if (values[i].id == id)
			*(const char **)((char *)options + values[i].place) = value;
}

int failed(const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fputs("gleamctl: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return EXIT_FAILED;
}

int misused(const char *command, const char *format, ...)
{
	va_list args;

	fputs("gleamctl: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	if (command)
		fprintf(stderr, "; see gleamctl %s --help\n", command);
	else
		fputs("; see gleamctl --help\n", stderr);
	return EXIT_USAGE;
}

int output_end(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	/* Whoever reads has seen enough, as head does. */
	if (errno == EPIPE)
		return 0;
	fprintf(stderr, "gleamctl: can't write the output: %s\n", strerror(errno));
	return EXIT_FAILED;
}

int json_show(json_t *value)
{
	if (!value)
		return failed("out of memory");
	json_dumpf(value, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(12));
	putchar('\n');
	json_decref(value);
	return output_end();
}

static void usage(FILE *out)
{
	fputs("usage: gleamctl COMMAND [options]\n"
	      "Asks the gleamd of this machine, makes its keys, runs programs on remote GPUs.\n"
	      "\n",
	      out);
	for (const struct command *command = commands; command->name; command++)
		fprintf(out, "  %-10s  %s\n", command->name, command->summary);
	fputs("\n"
	      "gleamctl COMMAND --help tells the options of a command.\n"
	      "Exit status: 0; 1 if it failed, with a line on stderr; 2 for wrong usage.\n",
	      out);
}

static void command_usage(const struct command *command)
{
	printf("usage: gleamctl %s [options]%s%s\n%s\n\n%s", command->name, *command->arguments ? " " : "", command->arguments,
	       command->summary, command->help);
}

/* ---- the nearest command to what was typed ---- */

unsigned word_distance(const char *a, const char *b)
{
	unsigned rows[3][NAME_MAX_SIZE + 1];
	size_t n = strlen(a), m = strlen(b);

	if (n > NAME_MAX_SIZE || m > NAME_MAX_SIZE)
		return UINT8_MAX;
	for (size_t j = 0; j <= m; j++)
		rows[0][j] = (unsigned)j;
	for (size_t i = 1; i <= n; i++) {
		unsigned *row = rows[i % 3];
		const unsigned *above = rows[(i - 1) % 3];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= m; j++) {
			unsigned best = above[j - 1] + (a[i - 1] != b[j - 1]);

			if (above[j] + 1 < best)
				best = above[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && rows[(i - 2) % 3][j - 2] + 1 < best)
				best = rows[(i - 2) % 3][j - 2] + 1;
			row[j] = best;
		}
	}
	return rows[n % 3][m];
}

static const char *nearest(const char *typed)
{
	const char *best = NULL;
	unsigned best_distance = NEAR;

	for (const struct command *command = commands; command->name; command++) {
		/* The beginning of a name is that name: cl, stat. */
		unsigned d = *typed && strncmp(command->name, typed, strlen(typed)) == 0 ? 0 : word_distance(typed, command->name);

		if (d < best_distance) {
			best = command->name;
			best_distance = d;
		}
	}
	return best;
}

static const struct command *command_find(const char *name)
{
	for (const struct command *command = commands; command->name; command++)
		if (strcmp(command->name, name) == 0)
			return command;
	return NULL;
}

/* ---- options ---- */

/* Exit status, or -1: go on. */
static int options_read(const struct command *command, int argc, char **argv, struct options *options)
{
	int id, index = 0;

	opterr = 0;
	/* run: the first word that is no option begins the program's own command line. */
	while ((id = getopt_long(argc, argv, command->words_max < 0 ? "+:" : ":", long_options, &index)) != -1) {
		if (id == OPT_HELP) {
			command_usage(command);
			return output_end();
		}
		if (id == ':')
			return misused(command->name, "%s needs a value", argv[optind - 1]);
		if (id == '?' || id == OPT_VERSION || !strchr(command->takes, id))
			return misused(command->name, "`%s` is not an option of %s",
				       id == '?' ? argv[optind - 1] : argv[optind - (long_options[index].has_arg && !strchr(argv[optind - 1], '=') ? 2 : 1)],
				       command->name);
		option_take(options, id, optarg);
	}
	options->words = argv + optind;
	options->count = argc - optind;
	if (options->count < command->words_min)
		return misused(command->name, "%s needs %s", command->name,
			       strcmp(command->name, "key") ? command->arguments : "new or show");
	if (command->words_max >= 0 && options->count > command->words_max)
		return misused(command->name, "`%s` is one word too many", options->words[command->words_max]);
	return -1;
}

int main(int argc, char **argv)
{
	struct options options = { 0 };
	const struct command *command;
	const char *near;
	int status;

	/* A closed pipe is an error of writing, not a death. A program that run starts gets the default back. */
	signal(SIGPIPE, SIG_IGN);
	if (argc < 2) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
		usage(stdout);
		return output_end();
	}
	/* For the scripts of `completion`; no command for people. */
	if (strcmp(argv[1], "__complete") == 0)
		return complete(argc - 2, argv + 2);
	command = command_find(strcmp(argv[1], "--version") ? argv[1] : "version");
	if (!command) {
		if (argv[1][0] == '-')
			return misused(NULL, "`%s` is not an option here: the command comes first", argv[1]);
		near = nearest(argv[1]);
		return near ? misused(NULL, "`%s` is not a command; did you mean `%s`?", argv[1], near) :
			      misused(NULL, "`%s` is not a command", argv[1]);
	}
	status = options_read(command, argc - 1, argv + 1, &options);
	if (status >= 0)
		return status;
	if (command->run == run_command)
		signal(SIGPIPE, SIG_DFL);
	return command->run(&options);
}
