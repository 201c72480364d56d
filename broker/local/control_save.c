/* SPDX-License-Identifier: Apache-2.0 */
/* gleamctl's wishes for checkpoints. Control thread; see control_save.h. */
#include "broker/local/control_save.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "broker/lib/fd.h"
#include "broker/lib/json.h"
#include "broker/lib/ring.h"
#include "broker/local/broker.h"
#include "broker/local/client_private.h"
#include "broker/local/control.h"
#include "broker/local/move_ask.h"

static void heard(void *arg, const struct move_news *news)
{
	struct client *asker = arg, *client, *sessions[MOVE_SESSIONS_MAX];
	struct json json = { 0 };

	if (news->over && !news->done) {
		control_refuse(&json, "%s", news->why);
	} else {
		json_open(&json, NULL, '{');
		move_news_json(&json, news);
		/* As long as nothing is newer than that, another checkpoint would be the same. */
		if (news->over)
			json_u64(&json, "commands", news->commands);
		/* Of a checkpoint, which goes to no server: how many belong to it. */
		client = news->over && !*news->to ? move_ask_client(asker->broker, (uint64_t)news->pid, 0) : NULL;
		if (client)
			json_u64(&json, "sessions", move_ask_sessions(asker->broker, client, sessions));
		json_close(&json, '}');
	}
	if (!news->over) {
		control_news(asker, &json);
		return;
	}
	asker->asks_gone = NULL;
	control_send(asker, &json);
}

static void asker_gone(void *asks)
{
	move_unheard(asks);
}

/* A file of the asker's own: whatever else a descriptor may be could take for ever. */
static bool file_is_fit(int fd, bool to_write)
{
	int flags = fd >= 0 ? fcntl(fd, F_GETFL) : -1;
	struct stat st;

	return flags >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	       ((flags & O_ACCMODE) == O_RDWR || (flags & O_ACCMODE) == (to_write ? O_WRONLY : O_RDONLY));
}

static struct server *server_other(const struct broker *broker, const struct client *client)
{
	for (unsigned i = 0; i < broker_server_count(broker); i++)
		if (broker_server(broker, i) != client->server && server_link(broker_server(broker, i)))
			return broker_server(broker, i);
	return client->server;
}

/* Nothing was sent since, and nothing waits to be: as it was. */
static bool is_unchanged(struct client *client, const struct json_field *since)
{
	struct frame_hdr hdr;
	const uint8_t *frame;

	return since && since->is_number && client->state == CLIENT_LIVE && !client->direct && client->saved.there &&
	       client->saved.sequence == since->number && client->seq == since->number && client->saved.position == client->c2n.at &&
	       ring_look(&client->c2n, &hdr, &frame) == 0;
}

static int begin(struct broker *broker, struct client *client, bool restore, const struct json_field *name, const struct json_field *gpu,
		 struct client *asker, int fd, char *why, size_t why_size)
{
	struct server *to = NULL;

	if (!restore)
		return move_save(broker, client, fd, heard, asker, why, why_size);
	to = name ? move_ask_server(broker, name->text) : client->server ? server_other(broker, client) : NULL;
	if (!to)
		snprintf(why, why_size, "there is no server `%.64s`; gleamctl servers lists those that are known", name ? name->text : "");
	else if (client->kernel && *client->kernel->server && strcmp(server_name(to), client->kernel->server) != 0)
		snprintf(why, why_size, "pid %d has come by a device of server %s, and may use no other", client->pid, client->kernel->server);
	else if (gpu && server_report(to) && gpu->number >= server_report(to)->gpu_count)
		snprintf(why, why_size, "%s has %u GPU%s, numbered from 0", server_name(to), server_report(to)->gpu_count,
			 server_report(to)->gpu_count == 1 ? "" : "s");
	else
		return move_load(broker, client, to, gpu ? (int)gpu->number : -1, fd, heard, asker, why, why_size);
	fd_close(&fd);
	return -ENOENT;
}

/* The one that the checkpoint with this identity is of; the first where there is none: the file itself says why it isn't its. */
static struct client *session_of(struct broker *broker, struct client *client, const struct json_field *identity)
{
	struct client *sessions[MOVE_SESSIONS_MAX];
	unsigned count = move_ask_sessions(broker, client, sessions);

	for (unsigned i = 0; i < count && identity && !identity->is_number; i++) {
		char text[2 * SAVE_IDENTITY_SIZE + 1];

		for (unsigned at = 0; at < SAVE_IDENTITY_SIZE; at++)
			snprintf(text + 2 * at, 3, "%02x", sessions[i]->identity[at]);
		if (strcmp(text, identity->text) == 0)
			return sessions[i];
	}
	return sessions[0];
}

/* An answer that is a word: nothing was done, and that is no failure. */
static void say(struct json *json, const char *word, unsigned sessions)
{
	json_open(json, NULL, '{');
	json_bool(json, word, true);
	if (sessions)
		json_u64(json, "sessions", sessions);
	json_close(json, '}');
}

bool control_save(struct broker *broker, struct client *asker, uid_t uid, const char *request, int *fd, struct json *json)
{
	struct json_field fields[JSON_FIELDS_MAX];
	const struct json_field *cmd, *pid, *name, *gpu, *since, *session, *identity, *from;
	struct client *client;
	unsigned count = 0, sessions = 0;
	bool restore;
	char why[MOVE_WHY_SIZE + 128];
	int file = *fd;

	if (json_read(request, fields, &count))
		return false;
	cmd = json_field(fields, count, "cmd");
	if (!cmd || cmd->is_number || (strcmp(cmd->text, "checkpoint") != 0 && strcmp(cmd->text, "restore") != 0))
		return false;
	restore = *cmd->text == 'r';
	pid = json_field(fields, count, "pid");
	name = json_field(fields, count, "server");
	gpu = json_field(fields, count, "gpu");
	since = json_field(fields, count, "since");
	session = json_field(fields, count, "session");
	identity = json_field(fields, count, "identity");
	from = json_field(fields, count, "from");
	if (!pid || !pid->is_number || (name && name->is_number) || (from && from->is_number) || (session && !session->is_number) || (gpu && (!gpu->is_number || gpu->number > 63))) {
		control_refuse(json, "%s wants a \"pid\" and a file; restore may have a \"server\" and the number of a \"gpu\" of it", cmd->text);
		return false;
	}
	client = move_ask_client(broker, pid->number, uid);
	if (!client) {
		control_refuse(json, "no program of yours with pid %llu uses Gleam on this machine; gleamctl clients lists those that do",
		       (unsigned long long)pid->number);
		return false;
	}
	client = restore ? session_of(broker, client, identity) : move_ask_session_at(broker, client, session ? session->number : 0, &sessions);
	if (!client) {
		control_refuse(json, "pid %llu has %u sessions, numbered from 0", (unsigned long long)pid->number, sessions);
		return false;
	}
	if (!restore && is_unchanged(client, since)) {
		say(json, "unchanged", sessions);
		return false;
	}
	/* Of several, some are as they were, or on other servers than the one that is asked about. */
	if (restore && from && (!client->server || (*from->text && strcmp(server_name(client->server), from->text) != 0) || !client->lost_ns)) {
		say(json, "unneeded", 0);
		return false;
	}
	if (!restore && client->direct && client->state == CLIENT_LIVE) {
		json_open(json, NULL, '{');
		json_bool(json, "short_cut", true);
		json_str(json, "server", server_name(client->server));
		json_close(json, '}');
		return false;
	}
	if (!file_is_fit(file, !restore)) {
		control_refuse(json, "%s wants an ordinary file, opened for %s", cmd->text, restore ? "reading" : "writing");
		return false;
	}
	if (asker->asks_gone) {
		control_refuse(json, "this connection waits for the end of another wish");
		return false;
	}
	if (!client->move && !move_ask_has_room(broker)) {
		control_refuse(json, "%u programs are being moved, the most at a time; wait until one of them has come", MOVES_MAX);
		return false;
	}
	*fd = -1;
	if (begin(broker, client, restore, name, gpu, asker, file, why, sizeof(why))) {
		control_refuse(json, "%s", why);
		return false;
	}
	asker->asks = client->move;
	asker->asks_gone = asker_gone;
	return true;
}
