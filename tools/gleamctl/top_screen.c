// SPDX-License-Identifier: Apache-2.0
/*
 * gleamctl top: the terminal. ncurses, one thread. What an action does is what the command of that name does: it is run, and
 * its last line is shown.
 */
#define NCURSES_WIDECHAR 1
#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <ncurses.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/gleamctl/ask.h"
#include "tools/gleamctl/gleamctl.h"
#include "tools/gleamctl/top.h"

#define INTERVAL_DEFAULT 2.0
#define SAID_SIZE	 256
#define LINES_MIN	 8 /* less shows nothing that helps */
#define COLUMNS_MIN	 40

struct screen {
	struct top top;
	const char *socket;
	double interval_s;
	char said[SAID_SIZE]; /* the line at the bottom: what went wrong, or what was done */
	char trouble[SAID_SIZE]; /* why there is no new answer; "" when there is */
	enum top_table table; /* where the cursor is */
	size_t at[TOP_TABLES];
	bool help;
	bool paused;
};

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
	ended = number;
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static bool screen_ask(struct screen *screen)
{
	json_t *answer = ask_quietly(screen->socket, "status", NULL, screen->trouble, sizeof(screen->trouble));

	if (!answer)
		return false;
	screen->trouble[0] = 0;
	top_take(&screen->top, answer, now_s());
	json_decref(answer);
	return true;
}

/* ---- drawing ---- */

static void draw_line(int y, int attributes, const char *text)
{
	attrset(attributes);
	mvaddnstr(y, 0, text, COLS);
	/* To the end of the line, so that a selected row is a bar. */
	for (int x = getcurx(stdscr); x < COLS && getcury(stdscr) == y; x++)
		addch(' ');
	attrset(0);
}

static int draw_table(struct screen *screen, enum top_table table, int y, int rows)
{
	struct top *top = &screen->top;
	size_t first = 0;

	draw_line(y++, A_BOLD | A_UNDERLINE, top->titles[table]);
	if (screen->at[table] >= top->count[table])
		screen->at[table] = top->count[table] ? top->count[table] - 1 : 0;
	if (screen->at[table] >= (size_t)rows)
		first = screen->at[table] - (size_t)rows + 1;
	for (size_t i = first; i < top->count[table] && i < first + (size_t)rows; i++) {
		const struct top_row *row = &top->rows[table][i];
		bool here = table == screen->table && i == screen->at[table];

		draw_line(y++, (here ? A_REVERSE : 0) | (row->marked ? A_BOLD : 0), row->text);
	}
	return y;
}

static void draw_help(void)
{
	static const char *const lines[] = {
		"up, down    choose a line            Tab    other table",
		"s, S        sort by the next column, by the one before",
		"r           the other way round",
		"/           show only what has these letters (pid, user, server, program)",
		"m           migrate the chosen program to another server",
		"d, u        drain the chosen server (its programs move), take it into use again",
		"p           stand still              +, -   slower, faster",
		"q           leave                    any key goes back",
	};

	erase();
	draw_line(0, A_BOLD, "gleamctl top");
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		mvaddnstr((int)i + 2, 1, lines[i], COLS - 1);
	refresh();
}

static void draw(struct screen *screen)
{
	struct top *top = &screen->top;
	int rows = LINES - 7, servers, y;

	if (screen->help) {
		draw_help();
		return;
	}
	erase();
	if (LINES < LINES_MIN || COLS < COLUMNS_MIN) {
		mvaddnstr(0, 0, "top needs 40 columns and 8 lines", COLS);
		refresh();
		return;
	}
	if (!top_make(top))
		snprintf(screen->trouble, sizeof(screen->trouble), "out of memory");
	/* Servers get a third at most, if clients need the rest. */
	servers = (int)top->count[TOP_SERVERS];
	if (servers > rows / 3 && servers > rows - 1 - (int)top->count[TOP_CLIENTS])
		servers = rows / 3 > 1 ? rows / 3 : 1;
	for (y = 0; y < 3; y++)
		draw_line(y, 0, top->head[y]);
	y = draw_table(screen, TOP_SERVERS, y, servers);
	y++;
	draw_table(screen, TOP_CLIENTS, y, LINES - y - 2);
	if (*screen->trouble || *screen->said)
		draw_line(LINES - 1, A_BOLD, *screen->trouble ? screen->trouble : screen->said);
	else
		draw_line(LINES - 1, A_REVERSE, screen->paused ? "stands still: p goes on  ? help  q leave" :
								    "? help  s sort  / filter  m migrate  d drain  q leave");
	refresh();
}

/* ---- asking the user ---- */

/* A line of text at the bottom; false: Escape. */
static bool prompt(const char *question, char *out, size_t size)
{
	size_t length = strlen(out);

	timeout(-1);
	for (;;) {
		char line[TOP_LINE_SIZE];
		int key;

		snprintf(line, sizeof(line), "%s%s", question, out);
		draw_line(LINES - 1, A_REVERSE, line);
		move(LINES - 1, (int)strlen(line) < COLS ? (int)strlen(line) : COLS - 1);
		curs_set(1);
		refresh();
		key = getch();
		curs_set(0);
		if (key == 27 || (key == ERR && ended))
			return false;
		if (key == '\n' || key == '\r' || key == KEY_ENTER)
			return true;
		if ((key == KEY_BACKSPACE || key == 127 || key == 8) && length)
			out[--length] = 0;
		else if (key >= ' ' && key < 127 && length + 1 < size) {
			out[length++] = (char)key;
			out[length] = 0;
		}
	}
}

/* ---- actions ---- */

/* gleamctl with these words; its last line is said. */
static void act(struct screen *screen, const char *const words[])
{
	const char *argv[10] = { "gleamctl" };
	char line[SAID_SIZE] = "";
	int pipe_fds[2], status = 0;
	size_t count = 1;
	pid_t pid;
	FILE *in;

	for (size_t i = 0; words[i]; i++)
		argv[count++] = words[i];
	argv[count++] = "--socket";
	argv[count++] = screen->socket;
	argv[count] = NULL;
	if (pipe(pipe_fds) < 0 || (pid = fork()) < 0) {
		snprintf(screen->said, sizeof(screen->said), "can't start gleamctl %s: %s", words[0], strerror(errno));
		return;
	}
	if (pid == 0) {
		dup2(pipe_fds[1], 1);
		dup2(pipe_fds[1], 2);
		close(pipe_fds[0]);
		close(pipe_fds[1]);
		execv("/proc/self/exe", (char *const *)argv);
		_exit(127);
	}
	close(pipe_fds[1]);
	snprintf(screen->said, sizeof(screen->said), "gleamctl %s %s ...", words[0], words[1]);
	draw(screen);
	in = fdopen(pipe_fds[0], "r");
	while (in && fgets(line, sizeof(line), in))
		line[strcspn(line, "\n")] = 0;
	if (in)
		fclose(in);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	for (char *at = line; *at; at++)
		if (iscntrl((unsigned char)*at))
			*at = '?';
	snprintf(screen->said, sizeof(screen->said), "%s",
		 *line ? line : WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "done" : "it failed");
}

static const struct top_row *chosen(struct screen *screen, enum top_table table, const char *what)
{
	if (screen->table == table && screen->at[table] < screen->top.count[table])
		return &screen->top.rows[table][screen->at[table]];
	snprintf(screen->said, sizeof(screen->said), "choose a %s first: Tab and the arrow keys", what);
	return NULL;
}

static void act_migrate(struct screen *screen)
{
	const struct top_row *row = chosen(screen, TOP_CLIENTS, "program");
	char question[64], pid[24], server[64] = "";

	if (!row)
		return;
	snprintf(pid, sizeof(pid), "%lld", row->pid);
	snprintf(question, sizeof(question), "migrate %s to server: ", pid);
	if (prompt(question, server, sizeof(server)) && *server)
		act(screen, (const char *const[]){ "migrate", pid, server, NULL });
}

static void act_drain(struct screen *screen, bool undo)
{
	const struct top_row *row = chosen(screen, TOP_SERVERS, "server");
	char question[128], answer[4] = "", server[64];

	if (!row)
		return;
	snprintf(server, sizeof(server), "%s", row->server);
	snprintf(question, sizeof(question), "%s %s (y/n)? ", undo ? "take into use again:" : "drain", server);
	if (!prompt(question, answer, sizeof(answer)) || (*answer != 'y' && *answer != 'Y'))
		return;
	act(screen, undo ? (const char *const[]){ "drain", "--undo", server, NULL } : (const char *const[]){ "drain", server, NULL });
}

/* ---- keys ---- */

static void move_to(struct screen *screen, long by)
{
	size_t count = screen->top.count[screen->table];
	long at = (long)screen->at[screen->table] + by;

	screen->at[screen->table] = at < 0 ? 0 : (size_t)at >= count ? (count ? count - 1 : 0) : (size_t)at;
}

/* False: leave. */
static bool key_take(struct screen *screen, int key)
{
	struct top *top = &screen->top;
	char filter[TOP_FILTER_SIZE];

	if (key == ERR)
		return true;
	if (screen->help) {
		screen->help = false;
		return key != 'q';
	}
	screen->said[0] = 0;
	switch (key) {
	case 'q':
	case 27:
		return false;
	case '?':
	case 'h':
		screen->help = true;
		break;
	case KEY_UP:
	case 'k':
		move_to(screen, -1);
		break;
	case KEY_DOWN:
	case 'j':
		move_to(screen, 1);
		break;
	case KEY_PPAGE:
		move_to(screen, -10);
		break;
	case KEY_NPAGE:
		move_to(screen, 10);
		break;
	case '\t':
		screen->table = screen->table == TOP_SERVERS ? TOP_CLIENTS : TOP_SERVERS;
		break;
	case 's':
		top->sort = (top->sort + 1) % top_sort_count();
		break;
	case 'S':
		top->sort = (top->sort + top_sort_count() - 1) % top_sort_count();
		break;
	case 'r':
		top->reverse = !top->reverse;
		break;
	case '/':
		snprintf(filter, sizeof(filter), "%s", top->filter);
		if (prompt("show only: ", filter, sizeof(filter)))
			snprintf(top->filter, sizeof(top->filter), "%s", filter);
		break;
	case 'm':
		act_migrate(screen);
		break;
	case 'd':
		act_drain(screen, false);
		break;
	case 'u':
		act_drain(screen, true);
		break;
	case 'p':
		screen->paused = !screen->paused;
		break;
	case '+':
		screen->interval_s = screen->interval_s < 60 ? screen->interval_s * 2 : 60;
		break;
	case '-':
		screen->interval_s = screen->interval_s > 0.2 ? screen->interval_s / 2 : 0.1;
		break;
	default:
		break;
	}
	return true;
}

static void screen_loop(struct screen *screen)
{
	double due = now_s() + screen->interval_s;

	while (!ended) {
		double wait;
		int key;

		draw(screen);
		wait = due - now_s();
		timeout(wait > 0 ? (int)(wait * 1000) + 1 : 0);
		key = getch();
		if (!key_take(screen, key))
			return;
		if (now_s() >= due) {
			if (!screen->paused)
				screen_ask(screen);
			due = now_s() + screen->interval_s;
		}
	}
}

/* ---- without a terminal ---- */

static int batch(struct screen *screen, long frames)
{
	struct top *top = &screen->top;

	for (long i = 0; (frames < 0 || i < frames) && !ended; i++) {
		/* The first has no rates: nobody has looked before. */
		if (i)
			usleep((useconds_t)(screen->interval_s * 1e6));
		if (ended || (i && !screen_ask(screen)))
			break;
		if (!top_make(top))
			return failed("out of memory");
		for (int y = 0; y < 3; y++)
			puts(top->head[y]);
		for (int t = 0; t < TOP_TABLES; t++) {
			printf("%s\n", top->titles[t]);
			for (size_t r = 0; r < top->count[t]; r++)
				puts(top->rows[t][r].text);
			putchar('\n');
		}
		if (fflush(stdout))
			return output_end();
	}
	return *screen->trouble ? failed("%s", screen->trouble) : output_end();
}

int top_command(const struct options *options)
{
	struct screen screen = { .socket = ask_socket(options->socket), .interval_s = INTERVAL_DEFAULT, .table = TOP_CLIENTS };
	struct sigaction action = { .sa_handler = on_signal };
	int status = 0;
	char *end;
	SCREEN *terminal;

	if (options->interval) {
		screen.interval_s = strtod(options->interval, &end);
		if (*end || end == options->interval || !(screen.interval_s >= 0.1 && screen.interval_s <= 3600))
			return misused("top", "`%s` is not a number of seconds from 0.1 to 3600", options->interval);
	}
	long frames = options->batch ? strtol(options->batch, &end, 10) : 0;

	if (options->batch && (*end || end == options->batch || frames < 1))
		return misused("top", "`%s` is not a number of frames", options->batch);
	top_init(&screen.top);
	/* Whoever can't be asked at all is told before the terminal changes. */
	if (!screen_ask(&screen)) {
		failed("%s", screen.trouble);
		status = EXIT_FAILED;
		goto fini;
	}
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	if (frames) {
		status = batch(&screen, frames);
		goto fini;
	}
	if (!isatty(0) || !isatty(1)) {
		status = failed("top needs a terminal; gleamctl top --batch N prints N frames, gleamctl status --json is for programs");
		goto fini;
	}
	setlocale(LC_CTYPE, "");
	terminal = newterm(NULL, stdout, stdin);
	if (!terminal) {
		status = failed("this terminal (TERM=%s) is not known here; set TERM, or use --batch N",
				getenv("TERM") ? getenv("TERM") : "");
		goto fini;
	}
	set_escdelay(50);
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	screen_loop(&screen);
	endwin();
	delscreen(terminal);
fini:
	top_fini(&screen.top);
	return status;
}
