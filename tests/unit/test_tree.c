// SPDX-License-Identifier: Apache-2.0
/* What is in the /gleam tree, from a state that this test makes up: names, owners, contents, and what vanishes between. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/local/state.h"
#include "broker/local/tree_node.h"
#include "gen/api.h"

/* ---- the state ---- */

static struct state_server servers[3];
static unsigned server_count;
static struct state_client clients[4];
static unsigned client_count;
static struct api_count counts[SESSION_API_MAX];
static unsigned refreshes;

/* No more than is asked for. */
bool state_server(const struct broker *broker, unsigned index, unsigned parts, struct state_server *server_out)
{
	const struct state_server *server = &servers[index];
	struct state_server out = { 0 };

	if (index >= server_count)
		return false;
	if (parts & STATE_NAMES) {
		memcpy(out.name, server->name, sizeof(out.name));
		memcpy(out.address, server->address, sizeof(out.address));
		memcpy(out.state, server->state, sizeof(out.state));
		memcpy(out.why, server->why, sizeof(out.why));
	}
	if (parts & STATE_LINK) {
		out.linked = server->linked;
		out.link = server->link;
	}
	if (parts & STATE_REPORT) {
		out.reported = server->reported;
		out.report_age_s = server->report_age_s;
		out.load = server->load;
		out.report = server->report;
	}
	if (parts & STATE_CACHE) {
		out.cached = server->cached;
		out.cache = server->cache;
	}
	*server_out = out;
	return true;
}

void state_verdicts(const struct broker *broker, struct verdicts_stats *stats_out)
{
	*stats_out = (struct verdicts_stats){ .bytes = 4711, .entries = 3, .hits = 50, .misses = 4, .evictions = 1 };
}

int state_server_gpus(const struct broker *broker, unsigned index)
{
	if (index >= server_count)
		return -ESTALE;
	return servers[index].reported ? (int)servers[index].report.gpu_count : 0;
}

bool state_client(const struct broker *broker, uint32_t session, struct state_client *client_out)
{
	for (unsigned i = 0; i < client_count; i++) {
		if (clients[i].session == session) {
			*client_out = clients[i];
			return true;
		}
	}
	return false;
}

unsigned state_who(const struct broker *broker, struct state_who *who_out, unsigned max)
{
	for (unsigned i = 0; i < client_count; i++)
		who_out[i] = (struct state_who){ clients[i].pid, clients[i].uid, clients[i].session, clients[i].age_s };
	return client_count;
}

int state_counts(const struct broker *broker, uint32_t session, struct api_count *counts_out)
{
	struct state_client client;

	if (!state_client(broker, session, &client))
		return -ESRCH;
	memcpy(counts_out, counts, sizeof(counts));
	return 0;
}

struct state *state_take(const struct broker *broker)
{
	struct state *state = calloc(1, sizeof(*state));

	state->servers = servers;
	state->server_count = server_count;
	state->clients = clients;
	state->client_count = client_count;
	return state;
}

void state_free(struct state *state)
{
	free(state);
}

static char policy[32] = "cost";

const char *state_policy(const struct broker *broker)
{
	return policy;
}

int state_policy_set(struct broker *broker, const char *name)
{
	if (strcmp(name, "cost") != 0 && strcmp(name, "pinned") != 0)
		return -EINVAL;
	strcpy(policy, name);
	return 0;
}

static int heard_err;
/* A wish that a client moves, until it is told how that went. */
static char wished[80];
static uint32_t wished_session;
static state_heard *wish_heard_by;
static void *wish_arg;

int state_move(struct broker *broker, uint32_t session, const char *where, state_heard *heard, void *arg, struct state_wish **wish_out)
{
	if (strcmp(where, "lab") != 0 && strcmp(where, "lab:1") != 0)
		return -ENOENT;
	strcpy(wished, where);
	wished_session = session;
	wish_heard_by = heard;
	wish_arg = arg;
	*wish_out = (struct state_wish *)wished;
	return 0;
}

void state_wish_forget(struct state_wish *wish)
{
	assert_ptr_equal(wish, wished);
	wish_heard_by = NULL;
}

void state_decisions(const struct broker *broker, FILE *out)
{
	fputs("# number\n", out);
}

void state_refresh(struct broker *broker)
{
	refreshes++;
}

static int setup(void **state)
{
	memset(servers, 0, sizeof(servers));
	memset(clients, 0, sizeof(clients));
	memset(counts, 0, sizeof(counts));
	strcpy(servers[0].name, "lab");
	strcpy(servers[0].address, "10.0.0.7:4711");
	strcpy(servers[0].state, "ready");
	servers[0].linked = servers[0].reported = true;
	servers[0].link = (struct link_stats){ .rtt_ns = 123456, .lanes = 2, .bandwidth = 117500000 };
	servers[0].load = 1.4951;
	servers[0].report.gpu_count = 2;
	strcpy(servers[0].report.gpus[0].name, "First GPU");
	servers[0].report.gpus[0].memory = 4ull << 30;
	servers[0].report.gpus[0].memory_free = 3ull << 30;
	servers[0].report.gpus[0].utilisation = 97;
	servers[0].report.gpus[0].clients = 2;
	for (unsigned i = 0; i < 16; i++)
		servers[0].report.gpus[0].uuid[i] = (uint8_t)(0xf0 + i);
	servers[0].report.gpus[1].memory_free = REPORT_UNKNOWN;
	servers[0].report.gpus[1].utilisation = REPORT_UNKNOWN32;
	strcpy(servers[1].name, "attic");
	strcpy(servers[1].address, "attic:4711");
	strcpy(servers[1].state, "unreachable");
	server_count = 2;
	clients[0] = (struct state_client){ .pid = 500, .uid = 1000, .session = 7, .age_s = 90, .calls = 41, .bytes = 1 << 20,
					    .round_trips = 3, .waited_s = 0.0123456, .inflight = 24, .memory = 1 << 21 };
	strcpy(clients[0].program, "/opt/train\n\033[2J");
	strcpy(clients[0].server, "lab");
	strcpy(clients[0].state, "live");
	clients[1] = (struct state_client){ .pid = 0, .uid = 1001, .session = 9 };
	client_count = 2;
	refreshes = 0;
	return 0;
}

/* ---- walking ---- */

static const struct tree_view view = { .born = { .tv_sec = 1000 } };

/* As the kernel does it: component by component, from the root. */
static int walk(const char *path, struct tree_node *node_out)
{
	char copy[256];
	char *rest = copy;
	int err = 0;

	snprintf(copy, sizeof(copy), "%s", path);
	assert_true(tree_of_id(1, node_out));
	for (char *part; !err && (part = strsep(&rest, "/"));)
		if (*part) {
			struct tree_node parent = *node_out;

			err = tree_find(&view, &parent, part, node_out);
		}
	return err;
}

static void reads(const char *path, const char *expected)
{
	struct tree_node node;
	const char *text = NULL;
	size_t size = 0;

	assert_int_equal(walk(path, &node), 0);
	assert_int_equal(tree_text(&view, &node, &text, &size), 0);
	assert_int_equal(size, strlen(expected));
	assert_memory_equal(text, expected, size);
}

static void lists(const char *path, const char *expected)
{
	struct tree_entry *entries = NULL;
	struct tree_node node, child;
	char all[1024] = "";
	unsigned count = 0;

	assert_int_equal(walk(path, &node), 0);
	assert_int_equal(tree_list(&view, &node, &entries, &count), 0);
	for (unsigned i = 0; i < count; i++) {
		struct stat attr;

		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s%s", i ? " " : "", entries[i].name,
			 entries[i].folder ? "/" : "");
		/* What is listed is found, has the listed number and says itself what it is. */
		assert_int_equal(tree_find(&view, &node, entries[i].name, &child), 0);
		assert_int_equal(tree_id(&child), entries[i].id);
		assert_int_equal(tree_attr(&view, &child, &attr), 0);
		assert_int_equal(attr.st_ino, entries[i].id);
		assert_int_equal(S_ISDIR(attr.st_mode), entries[i].folder);
	}
	free(entries);
	assert_string_equal(all, expected);
}

/* ---- tests ---- */

static void test_lists(void **state)
{
	lists("", "cache/ clients/ metrics scheduler/ servers/ verdicts/ version");
	lists("scheduler", "decisions policy");
	lists("servers", "lab/ attic/");
	lists("servers/lab", "address load age jitter rtt bandwidth state lanes clients cache/ gpus/");
	lists("servers/lab/cache", "bytes entries hits misses saved evictions");
	lists("cache", "bytes entries hits misses saved evictions");
	lists("verdicts", "bytes entries hits misses evictions");
	lists("servers/lab/gpus", "0/ 1/");
	lists("servers/attic/gpus", "");
	lists("servers/lab/gpus/1", "name memory memory_free uuid utilisation speed clients");
	lists("clients", "500/ session-9/");
	lists("clients/500", "server state program uid calls bytes round_trips waited inflight memory stats");
}

static void test_server_files(void **state)
{
	reads("version", GLEAM_VERSION "\n");
	reads("verdicts/bytes", "4711\n");
	reads("verdicts/entries", "3\n");
	reads("verdicts/hits", "50\n");
	reads("verdicts/misses", "4\n");
	reads("verdicts/evictions", "1\n");
	reads("servers/lab/address", "10.0.0.7:4711\n");
	reads("servers/lab/load", "1.50\n");
	reads("servers/lab/rtt", "0.123\n");
	reads("servers/lab/bandwidth", "940\n");
	reads("servers/lab/state", "ready\n");
	reads("servers/lab/lanes", "2\n");
	reads("servers/lab/clients", "0\n");
	reads("servers/lab/gpus/0/name", "First GPU\n");
	reads("servers/lab/gpus/0/memory", "4294967296\n");
	reads("servers/lab/gpus/0/memory_free", "3221225472\n");
	reads("servers/lab/gpus/0/utilisation", "97\n");
	reads("servers/lab/gpus/0/clients", "2\n");
	reads("servers/lab/gpus/0/uuid", "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff\n");
	assert_true(refreshes > 0);
}

static void wait_done(struct tree_wait *wait, int err)
{
	heard_err = err;
}

static void test_moves(void **state)
{
	struct tree_wait wait = { .done = wait_done };
	struct tree_node node;
	struct stat attr;

	assert_int_equal(walk("clients/500/server", &node), 0);
	assert_true(tree_is_writable(&node));
	assert_int_equal(tree_attr(&view, &node, &attr), 0);
	assert_int_equal(attr.st_mode, S_IFREG | 0600);
	assert_int_equal(tree_write(&view, &node, "nowhere\n", 8, &wait), -ENOENT);
	assert_int_equal(tree_write(&view, &node, "lab:1\n", 6, &wait), -EINPROGRESS);
	assert_string_equal(wished, "lab:1");
	assert_int_equal(wished_session, clients[0].session);
	heard_err = 1;
	wish_heard_by(wish_arg, -EOPNOTSUPP);
	assert_int_equal(heard_err, -EOPNOTSUPP);
	assert_int_equal(tree_write(&view, &node, "lab", 3, &wait), -EINPROGRESS);
	tree_wait_forget(&wait);
	assert_null(wish_heard_by);
	assert_int_equal(walk("clients/500/state", &node), 0);
	assert_false(tree_is_writable(&node));
}

static void test_commands(void **state)
{
	struct tree_wait wait = { 0 };
	struct tree_node node;

	reads("scheduler/policy", "cost\n");
	reads("scheduler/decisions", "# number\n");
	assert_int_equal(walk("scheduler/policy", &node), 0);
	assert_true(tree_is_writable(&node));
	assert_int_equal(tree_write(&view, &node, "pinned\n", 7, &wait), 0);
	reads("scheduler/policy", "pinned\n");
	assert_int_equal(tree_write(&view, &node, "cost", 4, &wait), 0);
	assert_int_equal(tree_write(&view, &node, "fastest\n", 8, &wait), -EINVAL);
	assert_int_equal(tree_write(&view, &node, "", 0, &wait), -EINVAL);
	assert_int_equal(tree_write(&view, &node, "\n", 1, &wait), -EINVAL);
	assert_int_equal(tree_write(&view, &node, "co\0st", 5, &wait), -EINVAL);
	assert_int_equal(tree_write(&view, &node, "costcostcostcostcostcostcostcostcost", 36, &wait), -EINVAL);
	reads("scheduler/policy", "cost\n");
	assert_int_equal(walk("scheduler/decisions", &node), 0);
	assert_false(tree_is_writable(&node));
	assert_int_equal(tree_write(&view, &node, "cost", 4, &wait), -EACCES);
}

static void test_unknown_values(void **state)
{
	reads("servers/lab/gpus/1/name", "-\n");
	reads("servers/lab/gpus/1/memory_free", "-\n");
	reads("servers/lab/gpus/1/utilisation", "-\n");
	reads("servers/attic/load", "-\n");
	reads("servers/attic/rtt", "-\n");
	reads("servers/attic/bandwidth", "-\n");
	reads("servers/attic/lanes", "0\n");
	reads("servers/attic/clients", "-\n");
	reads("servers/attic/state", "unreachable\n");
	reads("clients/session-9/server", "-\n");
	servers[0].load = 0;
	servers[0].link.rtt_ns = 0;
	servers[0].link.tcp_rtt_us = 250;
	reads("servers/lab/load", "0.00\n");
	reads("servers/lab/rtt", "0.250\n");
}

static void test_client_files(void **state)
{
	char expected[256];

	reads("clients/500/server", "lab\n");
	reads("clients/500/state", "live\n");
	/* One value a file: a name with a newline in it is one line all the same. */
	reads("clients/500/program", "/opt/train??[2J\n");
	reads("clients/500/uid", "1000\n");
	reads("clients/500/calls", "41\n");
	reads("clients/500/bytes", "1048576\n");
	reads("clients/500/round_trips", "3\n");
	reads("clients/500/waited", "12.346\n");
	reads("clients/500/inflight", "24\n");
	reads("clients/500/memory", "2097152\n");
	reads("clients/500/stats", "# name calls bytes trips waited_us\n");
	counts[3] = (struct api_count){ .calls = 40, .bytes = 4000, .trips = 2, .waited_ns = 1500999 };
	counts[API_COUNT - 1] = (struct api_count){ .calls = 1 };
	/* There is no function of this number: a client that counts there is not believed. */
	counts[SESSION_API_MAX - 1].calls = 99;
	snprintf(expected, sizeof(expected), "# name calls bytes trips waited_us\n%s 40 4000 2 1500\n%s 1 0 0 0\n", api_names[3],
		 api_names[API_COUNT - 1]);
	reads("clients/500/stats", expected);
}

static void test_owners(void **state)
{
	struct tree_node node;
	struct stat attr;

	assert_int_equal(walk("clients/500", &node), 0);
	assert_int_equal(tree_attr(&view, &node, &attr), 0);
	assert_int_equal(attr.st_mode, S_IFDIR | 0500);
	assert_int_equal(attr.st_uid, 1000);
	assert_int_equal(walk("clients/500/stats", &node), 0);
	assert_int_equal(tree_attr(&view, &node, &attr), 0);
	assert_int_equal(attr.st_mode, S_IFREG | 0400);
	assert_int_equal(attr.st_uid, 1000);
	assert_int_equal(walk("servers/lab/load", &node), 0);
	assert_int_equal(tree_attr(&view, &node, &attr), 0);
	assert_int_equal(attr.st_mode, S_IFREG | 0444);
	assert_int_equal(attr.st_mtim.tv_sec, 1000);
}

static void test_not_there(void **state)
{
	static const char *const wrong[] = {
		"nothing", "servers/nothing", "servers/lab/nothing", "servers/lab/gpus/2", "servers/lab/gpus/00",
		"servers/lab/gpus/-1", "clients/501", "clients/0", "clients/0500", "clients/500x", "clients/session-7",
		"clients/500/nothing",
	};
	struct tree_node node;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(walk(wrong[i], &node), -ENOENT);
	assert_int_equal(walk("version/x", &node), -ENOTDIR);
	assert_int_equal(walk("clients/500/calls/x", &node), -ENOTDIR);
}

static void test_vanishes(void **state)
{
	struct tree_entry *entries = NULL;
	struct tree_node folder, file, gpu, gpu_file;
	struct stat attr;
	unsigned count;
	const char *text;
	size_t size;

	assert_int_equal(walk("clients/500", &folder), 0);
	assert_int_equal(walk("clients/500/stats", &file), 0);
	assert_int_equal(walk("servers/lab/gpus/1", &gpu), 0);
	assert_int_equal(walk("servers/lab/gpus/1/memory", &gpu_file), 0);
	client_count = 0;
	servers[0].report.gpu_count = 1;
	assert_int_equal(tree_attr(&view, &folder, &attr), -ESTALE);
	assert_int_equal(tree_list(&view, &folder, &entries, &count), -ESTALE);
	assert_int_equal(tree_find(&view, &folder, "calls", &file), -ESTALE);
	assert_int_equal(tree_attr(&view, &file, &attr), -ESTALE);
	assert_int_equal(tree_text(&view, &file, &text, &size), -ESTALE);
	assert_int_equal(tree_attr(&view, &gpu, &attr), -ESTALE);
	assert_int_equal(tree_text(&view, &gpu_file, &text, &size), -ESTALE);
	/* A pid that comes again is another folder. */
	client_count = 1;
	clients[0].session = 8;
	assert_int_equal(tree_attr(&view, &folder, &attr), -ESTALE);
	assert_int_equal(walk("clients/500", &file), 0);
	assert_int_not_equal(tree_id(&file), tree_id(&folder));
}

static void test_newest_session(void **state)
{
	struct tree_node node;

	clients[2] = clients[0];
	clients[2].session = 3; /* numbers wrap: this one is younger */
	clients[2].age_s = 1;
	client_count = 3;
	lists("clients", "session-9/ 500/");
	assert_int_equal(walk("clients/500", &node), 0);
	assert_int_equal(node.object, 3);
}

/* The kernel says only what it was told, but a number is checked all the same. */
static void test_ids(void **state)
{
	static const uint64_t wrong[] = { 0, 2, 1ull << 32, 21ull << 56, 20ull << 56 | 5ull << 48, 16ull << 56 | 6ull << 48, 18ull << 56 | 6ull << 48, 255ull << 56, 6ull << 56 | 9ull << 48, 9ull << 56 | 7ull << 48,
					  11ull << 56 | 11ull << 48, UINT64_MAX };
	struct tree_node node;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_false(tree_of_id(wrong[i], &node));
	for (int kind = TREE_ROOT; kind < TREE_KINDS; kind++) {
		struct tree_node made = { .kind = (enum tree_kind)kind, .file = 1, .gpu = 3, .object = UINT32_MAX };

		assert_true(tree_of_id(tree_id(&made), &node));
		assert_int_equal(tree_id(&node), tree_id(&made));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_lists, setup),	   cmocka_unit_test_setup(test_server_files, setup),
		cmocka_unit_test_setup(test_commands, setup),	   cmocka_unit_test_setup(test_moves, setup),
		cmocka_unit_test_setup(test_unknown_values, setup), cmocka_unit_test_setup(test_client_files, setup),
		cmocka_unit_test_setup(test_owners, setup),	   cmocka_unit_test_setup(test_not_there, setup),
		cmocka_unit_test_setup(test_vanishes, setup),	   cmocka_unit_test_setup(test_newest_session, setup),
		cmocka_unit_test_setup(test_ids, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
