// SPDX-License-Identifier: Apache-2.0
/*
 * Completion of gleamctl's command line: `gleamctl completion SHELL` prints a script that asks `gleamctl __complete WORD...`
 * for each word, so what it offers is the table of commands, and servers and programs as they are now. One thread.
 *
 * An answer is a line a word, with what it means behind a tab; `:files` and `:programs` leave it to the shell.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gleamctl/ask.h"
#include "tools/gleamctl/gleamctl.h"
#include "tools/gleamctl/value.h"

static void offer(const char *begun, const char *word, const char *meaning)
{
	if (strncmp(word, begun, strlen(begun)) == 0 && !strpbrk(word, "\t\n"))
		printf("%s%s%s\n", word, *meaning ? "\t" : "", meaning);
}

static void offer_servers(const char *begun, const char *socket)
{
	char why[1024];
	json_t *answer = ask_quietly(socket, "servers", NULL, why, sizeof(why));
	const json_t *server;
	size_t i;

	json_array_foreach(json_object_get(answer, "servers"), i, server)
		offer(begun, text_of(server, "name"), text_of(server, "state"));
	json_decref(answer);
}

/* @from: one with GPUs of several servers with the name of each. */
static void offer_pids(const char *begun, const char *socket, bool from)
{
	char why[1024], pid[128];
	json_t *answer = ask_quietly(socket, "clients", NULL, why, sizeof(why));
	const json_t *clients = json_object_get(answer, "clients"), *client, *other;
	size_t i, k;

	json_array_foreach(clients, i, client) {
		unsigned sessions = 0;

		json_array_foreach(clients, k, other)
			sessions += whole_of(other, "pid") == whole_of(client, "pid");
		snprintf(pid, sizeof(pid), "%lld%s%s", whole_of(client, "pid"), from && sessions > 1 ? ":" : "",
			 from && sessions > 1 ? text_of(client, "server") : "");
		offer(begun, pid, text_of(client, "program"));
	}
	json_decref(answer);
}

/* A word of a command's arguments: new|show, PID, SERVER, FILE, PROGRAM, with brackets around it. */
static void offer_argument(const char *begun, const char *socket, const char *word, size_t length)
{
	char name[128], *rest = name;

	snprintf(name, sizeof(name), "%.*s", (int)length, word);
	name[strcspn(name, "]")] = 0;
	if (*rest == '[')
		rest++;
	if (strncmp(rest, "SERVER", 6) == 0)
		offer_servers(begun, socket);
	else if (strncmp(rest, "PID", 3) == 0)
		offer_pids(begun, socket, strncmp(rest, "PID[:FROM", 9) == 0);
	else if (strstr(rest, "FILE") || strncmp(rest, "PATH", 4) == 0 || strncmp(rest, "DIR", 3) == 0)
		puts(":files");
	else if (strncmp(rest, "PROGRAM", 7) == 0)
		puts(":programs");
	else if (islower((unsigned char)*rest))
		for (char *choice; (choice = strsep(&rest, "|"));)
			offer(begun, choice, "");
}

static void offer_arguments(const struct command *command, const char *begun, const char *socket, unsigned place)
{
	const char *at = command->arguments;

	while (*at) {
		size_t length = strcspn(at, " ");

		if (strncmp(at, "-- ", 3) != 0) {
			if (place == 0 || strstr(at, "...") == at + length - 3) {
				offer_argument(begun, socket, at, length);
				return;
			}
			place--;
		}
		at += length + (at[length] == ' ');
	}
}

/* What may stand behind an option, by its name in the table of options. */
static void offer_value(const char *begun, const char *socket, const char *option)
{
	if (strcmp(option, "server") == 0)
		offer_servers(begun, socket);
	else if (strcmp(option, "socket") == 0 || strcmp(option, "config") == 0 || strcmp(option, "key") == 0 ||
		 strcmp(option, "output") == 0)
		puts(":files");
	else if (strcmp(option, "priority") == 0)
		for (unsigned i = 0; i < 3; i++)
			offer(begun, (const char *const[]){ "latency", "normal", "batch" }[i], "");
}

int complete(int count, char **words)
{
	const struct command *command = NULL;
	const struct option *waiting = NULL; /* an option that wants the next word */
	const char *socket = NULL, *begun = count ? words[count - 1] : "";
	unsigned place = 0;
	bool plain = false; /* behind -- */

	if (count <= 1) {
		for (command = commands; command->name; command++)
			offer(begun, command->name, command->summary);
		if (*begun == '-') {
			offer(begun, "--help", "");
			offer(begun, "--version", "");
		}
		return output_end();
	}
	for (command = commands; command->name && strcmp(command->name, words[0]) != 0; command++)
		;
	if (!command->name)
		return 0;
	for (int i = 1; i < count - 1; i++) {
		if (waiting) {
			if (strcmp(waiting->name, "socket") == 0)
				socket = words[i];
			waiting = NULL;
		} else if (!plain && strcmp(words[i], "--") == 0) {
			plain = true;
		} else if (!plain && strncmp(words[i], "--", 2) == 0) {
			for (const struct option *o = long_options; o->name; o++)
				if (o->has_arg && strcmp(o->name, words[i] + 2) == 0)
					waiting = o;
		} else {
			place++;
			plain |= command->words_max < 0;
		}
	}
	socket = ask_socket(socket);
	if (waiting)
		offer_value(begun, socket, waiting->name);
	else if (*begun == '-' && !plain) {
		for (const struct option *o = long_options; o->name; o++) {
			char word[40];

			snprintf(word, sizeof(word), "--%s", o->name);
			if (strcmp(o->name, "help") == 0 || (o->val < 256 && strchr(command->takes, o->val)))
				offer(begun, word, "");
		}
	} else if (command->words_max < 0 && place > 0) {
		puts(":files");
	} else {
		offer_arguments(command, begun, socket, place);
	}
	return output_end();
}

/* ---- the scripts ---- */

static const char bash_script[] =
	"# bash completion for gleamctl; made by `gleamctl completion bash`\n"
	"_gleamctl()\n"
	"{\n"
	"\tlocal line cur=${COMP_WORDS[COMP_CWORD]}\n"
	"\tCOMPREPLY=()\n"
	"\twhile IFS= read -r line; do\n"
	"\t\tcase $line in\n"
	"\t\t:files) compopt -o filenames 2>/dev/null; mapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
	"\t\t:programs) mapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < <(compgen -c -- \"$cur\"; compgen -f -- \"$cur\") ;;\n"
	"\t\t*) COMPREPLY+=(\"${line%%$'\\t'*}\") ;;\n"
	"\t\tesac\n"
	"\tdone < <(\"${COMP_WORDS[0]}\" __complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\n"
	"}\n"
	"complete -F _gleamctl gleamctl\n";

static const char zsh_script[] =
	"#compdef gleamctl\n"
	"# zsh completion for gleamctl; made by `gleamctl completion zsh`\n"
	"_gleamctl()\n"
	"{\n"
	"\tlocal line\n"
	"\tlocal -a found\n"
	"\tfor line in ${(f)\"$(${words[1]} __complete \"${(@)words[2,CURRENT]}\" 2>/dev/null)\"}; do\n"
	"\t\tcase $line in\n"
	"\t\t:files) _files ;;\n"
	"\t\t:programs) _command_names -e; _files ;;\n"
	"\t\t*) found+=(\"${${line%%$'\\t'*}//:/\\\\:}${${(M)line%%$'\\t'*}:+:${line#*$'\\t'}}\") ;;\n"
	"\t\tesac\n"
	"\tdone\n"
	"\t(( $#found )) && _describe -t words gleamctl found\n"
	"\treturn 0\n"
	"}\n"
	"if [ \"$funcstack[1]\" = _gleamctl ]; then _gleamctl \"$@\"; else compdef _gleamctl gleamctl; fi\n";

static const char fish_script[] =
	"# fish completion for gleamctl; made by `gleamctl completion fish`\n"
	"function __gleamctl_complete\n"
	"\tset -l words (commandline -opc)\n"
	"\tset -l cur (commandline -ct)\n"
	"\tfor line in ($words[1] __complete $words[2..] \"$cur\" 2>/dev/null)\n"
	"\t\tswitch $line\n"
	"\t\t\tcase ':files'\n"
	"\t\t\t\t__fish_complete_path \"$cur\"\n"
	"\t\t\tcase ':programs'\n"
	"\t\t\t\t__fish_complete_command\n"
	"\t\t\tcase '*'\n"
	"\t\t\t\techo $line\n"
	"\t\tend\n"
	"\tend\n"
	"end\n"
	"complete -c gleamctl -f -a '(__gleamctl_complete)'\n";

int completion_command(const struct options *options)
{
	static const struct {
		const char *shell;
		const char *script;
	} scripts[] = { { "bash", bash_script }, { "zsh", zsh_script }, { "fish", fish_script } };

	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		if (strcmp(options->words[0], scripts[i].shell) == 0) {
			fputs(scripts[i].script, stdout);
			return output_end();
		}
	}
	return misused("completion", "`%s` is none of bash, zsh, fish", options->words[0]);
}
