// SPDX-License-Identifier: Apache-2.0
/*
 * gleamctl kernel: what gleam.ko has (broker, sessions, virtual GPUs, limits), and limits set. It asks the module itself, by
 * generic netlink (docs/netlink/gleam.yaml), so it works without a gleamd. One thread.
 */
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>
#include <pwd.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/lib/fd.h"
#include "kmod/include/uapi/linux/gleam.h"
#include "tools/gleamctl/gleamctl.h"
#include "tools/gleamctl/table.h"
#include "tools/gleamctl/value.h"

#define CGROUP_ROOT    "/sys/fs/cgroup"
#define CGROUP_MACHINE 1 /* the root's id: everybody is below it */
#define PATH_SIZE      4096
#define MIB	       (1024.0 * 1024.0)

struct kernel {
	struct nl_sock *sock;
	int family;
	/* of the answer that is being read */
	json_t *list;
	bool done;
};

/* ---- asking ---- */

static const struct nla_policy broker_policy[GLEAM_A_BROKER_MAX + 1] = {
	[GLEAM_A_BROKER_ATTACHED] = { .type = NLA_U32 }, [GLEAM_A_BROKER_PID] = { .type = NLA_U32 },
	[GLEAM_A_BROKER_SESSIONS] = { .type = NLA_U32 }, [GLEAM_A_BROKER_DOORBELLS] = { .type = NLA_U64 },
	[GLEAM_A_BROKER_GRACE_MS] = { .type = NLA_U32 },
};
static const struct nla_policy session_policy[GLEAM_A_SESSION_MAX + 1] = {
	[GLEAM_A_SESSION_ID] = { .type = NLA_U32 },	    [GLEAM_A_SESSION_TGID] = { .type = NLA_U32 },
	[GLEAM_A_SESSION_UID] = { .type = NLA_U32 },	    [GLEAM_A_SESSION_CGROUP] = { .type = NLA_U64 },
	[GLEAM_A_SESSION_DEVICES] = { .type = NLA_U64 },   [GLEAM_A_SESSION_DOORBELLS] = { .type = NLA_U64 },
	[GLEAM_A_SESSION_COMM] = { .type = NLA_STRING },
};
static const struct nla_policy device_policy[GLEAM_A_DEVICE_MAX + 1] = {
	[GLEAM_A_DEVICE_INDEX] = { .type = NLA_U32 },	[GLEAM_A_DEVICE_NAME] = { .type = NLA_STRING },
	[GLEAM_A_DEVICE_SERVER] = { .type = NLA_STRING }, [GLEAM_A_DEVICE_GPU] = { .type = NLA_U32 },
	[GLEAM_A_DEVICE_MEMORY] = { .type = NLA_U64 },	[GLEAM_A_DEVICE_STATE] = { .type = NLA_U32 },
	[GLEAM_A_DEVICE_SESSIONS] = { .type = NLA_U32 },
};
static const struct nla_policy limit_policy[GLEAM_A_LIMIT_MAX + 1] = {
	[GLEAM_A_LIMIT_KIND] = { .type = NLA_U32 },	   [GLEAM_A_LIMIT_ID] = { .type = NLA_U64 },
	[GLEAM_A_LIMIT_SESSIONS_MAX] = { .type = NLA_U64 }, [GLEAM_A_LIMIT_PAGES_MAX] = { .type = NLA_U64 },
	[GLEAM_A_LIMIT_SESSIONS] = { .type = NLA_U64 },	   [GLEAM_A_LIMIT_PAGES] = { .type = NLA_U64 },
	[GLEAM_A_LIMIT_REFUSED] = { .type = NLA_U64 },
};

static json_t *number_or_null(uint64_t value)
{
	return value == GLEAM_NO_LIMIT ? json_null() : json_integer((json_int_t)value);
}

static uint32_t u32_of(struct nlattr *attr)
{
	return attr ? nla_get_u32(attr) : 0;
}

static uint64_t u64_of(struct nlattr *attr)
{
	return attr ? nla_get_u64(attr) : 0;
}

/* Names are printable ASCII: the module takes no others. */
static const char *string_of(struct nlattr *attr)
{
	return attr ? nla_get_string(attr) : "";
}

static int answer_valid(struct nl_msg *msg, void *arg)
{
	static const char *const states[] = { "down", "up", "draining" };
	struct nlattr *a[GLEAM_A_SESSION_MAX + 1] = { 0 }; /* the largest of them */
	static_assert(GLEAM_A_SESSION_MAX >= GLEAM_A_BROKER_MAX && GLEAM_A_SESSION_MAX >= GLEAM_A_DEVICE_MAX &&
			      GLEAM_A_SESSION_MAX >= GLEAM_A_LIMIT_MAX,
		      "room for the attributes of each");
	struct nlmsghdr *hdr = nlmsg_hdr(msg);
	struct kernel *kernel = arg;
	json_t *one = NULL;
	double page = (double)sysconf(_SC_PAGESIZE);

	switch (genlmsg_hdr(hdr)->cmd) {
	case GLEAM_CMD_BROKER_GET:
		if (genlmsg_parse(hdr, 0, a, GLEAM_A_BROKER_MAX, (struct nla_policy *)broker_policy) == 0)
			one = json_pack("{s:b, s:I, s:I, s:I, s:I}", "attached", u32_of(a[GLEAM_A_BROKER_ATTACHED]) != 0, "pid",
					(json_int_t)u32_of(a[GLEAM_A_BROKER_PID]), "sessions",
					(json_int_t)u32_of(a[GLEAM_A_BROKER_SESSIONS]), "doorbells",
					(json_int_t)u64_of(a[GLEAM_A_BROKER_DOORBELLS]), "grace_ms",
					(json_int_t)u32_of(a[GLEAM_A_BROKER_GRACE_MS]));
		break;
	case GLEAM_CMD_SESSION_GET:
		if (genlmsg_parse(hdr, 0, a, GLEAM_A_SESSION_MAX, (struct nla_policy *)session_policy) == 0)
			one = json_pack("{s:I, s:I, s:I, s:I, s:I, s:s}", "session", (json_int_t)u32_of(a[GLEAM_A_SESSION_ID]), "pid",
					(json_int_t)u32_of(a[GLEAM_A_SESSION_TGID]), "uid", (json_int_t)u32_of(a[GLEAM_A_SESSION_UID]),
					"cgroup", (json_int_t)u64_of(a[GLEAM_A_SESSION_CGROUP]), "doorbells",
					(json_int_t)u64_of(a[GLEAM_A_SESSION_DOORBELLS]), "comm", string_of(a[GLEAM_A_SESSION_COMM]));
		break;
	case GLEAM_CMD_DEVICE_GET:
		if (genlmsg_parse(hdr, 0, a, GLEAM_A_DEVICE_MAX, (struct nla_policy *)device_policy) == 0) {
			uint32_t state = u32_of(a[GLEAM_A_DEVICE_STATE]);

			one = json_pack("{s:I, s:s, s:s, s:I, s:I, s:s, s:I}", "device", (json_int_t)u32_of(a[GLEAM_A_DEVICE_INDEX]),
					"name", string_of(a[GLEAM_A_DEVICE_NAME]), "server", string_of(a[GLEAM_A_DEVICE_SERVER]), "gpu",
					(json_int_t)u32_of(a[GLEAM_A_DEVICE_GPU]), "memory",
					(json_int_t)u64_of(a[GLEAM_A_DEVICE_MEMORY]), "state", state < 3 ? states[state] : "?",
					"sessions", (json_int_t)u32_of(a[GLEAM_A_DEVICE_SESSIONS]));
		}
		break;
	case GLEAM_CMD_LIMIT_GET:
		if (genlmsg_parse(hdr, 0, a, GLEAM_A_LIMIT_MAX, (struct nla_policy *)limit_policy) == 0) {
			uint64_t most = a[GLEAM_A_LIMIT_PAGES_MAX] ? u64_of(a[GLEAM_A_LIMIT_PAGES_MAX]) : GLEAM_NO_LIMIT;

			one = json_pack("{s:s, s:I, s:I, s:o, s:I, s:o, s:I}", "kind",
					u32_of(a[GLEAM_A_LIMIT_KIND]) == GLEAM_LIMIT_UID ? "uid" : "cgroup", "id",
					(json_int_t)u64_of(a[GLEAM_A_LIMIT_ID]), "sessions",
					(json_int_t)u64_of(a[GLEAM_A_LIMIT_SESSIONS]), "sessions_max",
					number_or_null(a[GLEAM_A_LIMIT_SESSIONS_MAX] ? u64_of(a[GLEAM_A_LIMIT_SESSIONS_MAX]) : GLEAM_NO_LIMIT),
					"memory", (json_int_t)((double)u64_of(a[GLEAM_A_LIMIT_PAGES]) * page), "memory_max",
					most == GLEAM_NO_LIMIT ? json_null() : json_integer((json_int_t)((double)most * page)), "refused",
					(json_int_t)u64_of(a[GLEAM_A_LIMIT_REFUSED]));
		}
		break;
	default:
		break;
	}
	if (one)
		json_array_append_new(kernel->list, one);
	return NL_OK;
}

static int answer_end(struct nl_msg *msg, void *arg)
{
	((struct kernel *)arg)->done = true;
	return NL_STOP;
}

/* 0 or an exit status; a line has been said. */
static int kernel_open(struct kernel *kernel)
{
	int err;

	*kernel = (struct kernel){ .sock = nl_socket_alloc() };
	if (!kernel->sock)
		return failed("out of memory");
	err = genl_connect(kernel->sock);
	if (!err) {
		kernel->family = genl_ctrl_resolve(kernel->sock, GLEAM_GENL_NAME);
		err = kernel->family < 0 ? kernel->family : 0;
	}
	if (!err)
		err = nl_socket_modify_cb(kernel->sock, NL_CB_VALID, NL_CB_CUSTOM, answer_valid, kernel);
	if (!err)
		err = nl_socket_modify_cb(kernel->sock, NL_CB_ACK, NL_CB_CUSTOM, answer_end, kernel);
	if (!err)
		err = nl_socket_modify_cb(kernel->sock, NL_CB_FINISH, NL_CB_CUSTOM, answer_end, kernel);
	if (!err)
		return 0;
	nl_socket_free(kernel->sock);
	return err == -NLE_OBJ_NOTFOUND ?
		       failed("the kernel module is not loaded (it is optional): modprobe gleam, from the package gleam-dkms or make kmod") :
		       failed("can't ask the kernel: %s", nl_geterror(err));
}

static struct nl_msg *message_new(const struct kernel *kernel, uint8_t cmd, int flags)
{
	struct nl_msg *msg = nlmsg_alloc();

	if (msg && !genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, kernel->family, 0, flags, cmd, GLEAM_GENL_VERSION)) {
		nlmsg_free(msg);
		msg = NULL;
	}
	return msg;
}

/* Takes @msg (NULL: no memory). What it brings; NULL and a line. @absent: what stands for one that isn't there, or NULL; taken. */
static json_t *kernel_ask(struct kernel *kernel, struct nl_msg *msg, const char *what, json_t *absent)
{
	int err = -NLE_NOMEM;

	kernel->list = json_array();
	if (msg && kernel->list) {
		bool dump = nlmsg_hdr(msg)->nlmsg_flags & NLM_F_DUMP;

		/* A dump ends with its own message; an acknowledgement beside that would be left for the next question. */
		if (dump)
			nl_socket_disable_auto_ack(kernel->sock);
		kernel->done = false;
		err = nl_send_auto(kernel->sock, msg);
		while (err >= 0 && !kernel->done)
			err = nl_recvmsgs_default(kernel->sock);
		if (dump)
			nl_socket_enable_auto_ack(kernel->sock);
	}
	nlmsg_free(msg);
	if (err == -NLE_OBJ_NOTFOUND && absent) {
		json_array_append_new(kernel->list, absent);
		return kernel->list;
	}
	json_decref(absent);
	if (err >= 0)
		return kernel->list;
	json_decref(kernel->list);
	failed("%s: %s", what,
	       err == -NLE_PERM ? "only root may do that (CAP_NET_ADMIN)" :
	       err == -NLE_OBJ_NOTFOUND ? "there is no such one" : nl_geterror(err));
	return NULL;
}

static json_t *kernel_dump(struct kernel *kernel, uint8_t cmd, const char *what)
{
	return kernel_ask(kernel, message_new(kernel, cmd, NLM_F_DUMP), what, NULL);
}

/* ---- showing ---- */

static void put_limits(const json_t *limits)
{
	static const char *const titles[] = { "WHO", ">SESSIONS", ">OF", ">MEMORY MiB", ">OF", ">REFUSED", NULL };
	const json_t *limit;
	struct table table;
	size_t i;

	table_begin(&table, titles);
	json_array_foreach(limits, i, limit) {
		long long id = whole_of(limit, "id");
		bool is_uid = strcmp(text_of(limit, "kind"), "uid") == 0;
		const struct passwd *user = is_uid ? getpwuid((uid_t)id) : NULL;

		if (!is_uid && id == CGROUP_MACHINE)
			table_add(&table, "all");
		else if (user)
			table_add(&table, "uid:%s", user->pw_name);
		else
			table_add(&table, "%s:%lld", text_of(limit, "kind"), id);
		table_add(&table, "%lld", whole_of(limit, "sessions"));
		if (has(limit, "sessions_max"))
			table_add(&table, "%lld", whole_of(limit, "sessions_max"));
		else
			table_add(&table, "-");
		table_add(&table, "%.0f", number_of(limit, "memory") / MIB);
		if (has(limit, "memory_max"))
			table_add(&table, "%.0f", number_of(limit, "memory_max") / MIB);
		else
			table_add(&table, "-");
		table_add(&table, "%lld", whole_of(limit, "refused"));
	}
	table_end(&table);
}

static void put_devices(const json_t *devices)
{
	static const char *const titles[] = { "DEVICE", "STATE", "SERVER", ">GPU", ">MEMORY MiB", ">SESSIONS", "NAME", NULL };
	const json_t *device;
	struct table table;
	size_t i;

	table_begin(&table, titles);
	json_array_foreach(devices, i, device) {
		table_add(&table, "/dev/gleam%lld", whole_of(device, "device"));
		table_add(&table, "%s", text_of(device, "state"));
		table_add(&table, "%s", text_of(device, "server"));
		table_add(&table, "%lld", whole_of(device, "gpu"));
		table_add(&table, "%.0f", number_of(device, "memory") / MIB);
		table_add(&table, "%lld", whole_of(device, "sessions"));
		table_add(&table, "%s", text_of(device, "name"));
	}
	table_end(&table);
}

static void put_sessions(const json_t *sessions)
{
	static const char *const titles[] = { ">SESSION", ">PID", ">UID", ">CGROUP", ">DOORBELLS", "PROGRAM", NULL };
	const json_t *session;
	struct table table;
	size_t i;

	table_begin(&table, titles);
	json_array_foreach(sessions, i, session) {
		table_add(&table, "%lld", whole_of(session, "session"));
		table_add(&table, "%lld", whole_of(session, "pid"));
		table_add(&table, "%lld", whole_of(session, "uid"));
		table_add(&table, "%lld", whole_of(session, "cgroup"));
		table_add(&table, "%lld", whole_of(session, "doorbells"));
		table_add(&table, "%s", text_of(session, "comm"));
	}
	table_end(&table);
}

static int kernel_show(const struct options *options, struct kernel *kernel)
{
	json_t *all = json_object();
	const json_t *broker;
	static const struct {
		uint8_t cmd;
		const char *name;
	} parts[] = { { GLEAM_CMD_DEVICE_GET, "devices" }, { GLEAM_CMD_SESSION_GET, "sessions" }, { GLEAM_CMD_LIMIT_GET, "limits" } };
	json_t *list = kernel_ask(kernel, message_new(kernel, GLEAM_CMD_BROKER_GET, 0), "the broker", NULL);

	for (size_t i = 0; list && i < sizeof(parts) / sizeof(parts[0]); i++) {
		json_t *part = kernel_dump(kernel, parts[i].cmd, parts[i].name);

		if (!part) {
			json_decref(list);
			list = NULL;
		} else {
			json_object_set_new(all, parts[i].name, part);
		}
	}
	if (!list) {
		json_decref(all);
		return EXIT_FAILED;
	}
	json_object_set(all, "broker", json_array_get(list, 0));
	json_decref(list);
	if (options->json)
		return json_show(all);
	broker = json_object_get(all, "broker");
	if (json_is_true(json_object_get(broker, "attached")))
		printf("gleam.ko: used by gleamd, pid %lld; %lld sessions, %lld doorbells\n", whole_of(broker, "pid"),
		       whole_of(broker, "sessions"), whole_of(broker, "doorbells"));
	else
		printf("gleam.ko: no gleamd has attached; %lld sessions wait %lld s for one\n", whole_of(broker, "sessions"),
		       whole_of(broker, "grace_ms") / 1000);
	if (json_array_size(json_object_get(all, "devices"))) {
		puts("");
		put_devices(json_object_get(all, "devices"));
	}
	if (json_array_size(json_object_get(all, "sessions"))) {
		puts("");
		put_sessions(json_object_get(all, "sessions"));
	}
	if (json_array_size(json_object_get(all, "limits"))) {
		puts("");
		put_limits(json_object_get(all, "limits"));
	}
	json_decref(all);
	return output_end();
}

/* ---- limits ---- */

static bool number_read(const char *text, uint64_t most, uint64_t *out)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || errno || value > most)
		return false;
	*out = value;
	return true;
}

/* uid:NAME, uid:NUMBER, cgroup:PATH, cgroup:NUMBER, all. 0 or an exit status. */
static int who_read(const char *who, uint32_t *kind_out, uint64_t *id_out)
{
	const struct passwd *user;
	char path[PATH_SIZE];
	struct stat st;

	if (strcmp(who, "all") == 0) {
		*kind_out = GLEAM_LIMIT_CGROUP;
		*id_out = CGROUP_MACHINE;
		return 0;
	}
	if (strncmp(who, "uid:", 4) == 0) {
		*kind_out = GLEAM_LIMIT_UID;
		if (number_read(who + 4, UINT32_MAX - 1, id_out))
			return 0;
		user = getpwnam(who + 4);
		if (!user)
			return failed("there is no user %s", who + 4);
		*id_out = user->pw_uid;
		return 0;
	}
	if (strncmp(who, "cgroup:", 7) == 0) {
		*kind_out = GLEAM_LIMIT_CGROUP;
		if (number_read(who + 7, UINT64_MAX, id_out))
			return 0;
		/* A cgroup's id is the number of its folder. */
		snprintf(path, sizeof(path), "%s%s", strncmp(who + 7, CGROUP_ROOT "/", sizeof(CGROUP_ROOT)) ? CGROUP_ROOT "/" : "",
			 who + 7);
		if (stat(path, &st) < 0)
			return failed("%s: %s", path, strerror(errno));
		*id_out = st.st_ino;
		return 0;
	}
	return misused("kernel", "`%s` is none of uid:USER, cgroup:PATH, all", who);
}

static int limit_value(const char *option, const char *text, uint64_t factor, uint64_t *out)
{
	if (strcmp(text, "none") == 0) {
		*out = GLEAM_NO_LIMIT;
		return 0;
	}
	if (!number_read(text, (GLEAM_NO_LIMIT - 1) / factor, out))
		return misused("kernel", "%s `%s` is neither a number nor none", option, text);
	*out *= factor;
	return 0;
}

/* Who has no session and no limit of its own isn't known to the module: nothing is in use, and the usual limit holds. */
static json_t *limit_absent(uint32_t kind, uint64_t id)
{
	char *text = NULL;
	json_t *most = json_null();
	size_t size;

	if (kind == GLEAM_LIMIT_UID && fd_read_file("/sys/module/gleam/parameters/sessions_per_uid", 64, &text, &size) == 0)
		most = json_integer(atoll(text));
	free(text);
	return json_pack("{s:s, s:I, s:i, s:o, s:i, s:n, s:i}", "kind", kind == GLEAM_LIMIT_UID ? "uid" : "cgroup", "id",
			 (json_int_t)id, "sessions", 0, "sessions_max", most, "memory", 0, "memory_max", "refused", 0);
}

static int kernel_limit(const struct options *options, struct kernel *kernel, uint32_t kind, uint64_t id, uint64_t sessions,
			uint64_t pages)
{
	bool set = options->sessions || options->memory;
	struct nl_msg *msg;
	json_t *answer;

	if (set) {
		msg = message_new(kernel, GLEAM_CMD_LIMIT_SET, 0);
		if (!msg || nla_put_u32(msg, GLEAM_A_LIMIT_KIND, kind) || nla_put_u64(msg, GLEAM_A_LIMIT_ID, id) ||
		    (options->sessions && nla_put_u64(msg, GLEAM_A_LIMIT_SESSIONS_MAX, sessions)) ||
		    (options->memory && nla_put_u64(msg, GLEAM_A_LIMIT_PAGES_MAX, pages))) {
			nlmsg_free(msg);
			return failed("out of memory");
		}
		answer = kernel_ask(kernel, msg, options->words[1], NULL);
		if (!answer)
			return EXIT_FAILED;
		json_decref(answer);
	}
	msg = message_new(kernel, GLEAM_CMD_LIMIT_GET, 0);
	if (!msg || nla_put_u32(msg, GLEAM_A_LIMIT_KIND, kind) || nla_put_u64(msg, GLEAM_A_LIMIT_ID, id)) {
		nlmsg_free(msg);
		return failed("out of memory");
	}
	answer = kernel_ask(kernel, msg, options->words[1], limit_absent(kind, id));
	if (!answer)
		return EXIT_FAILED;
	if (options->json)
		return json_show(json_pack("{s:o}", "limits", answer));
	put_limits(answer);
	json_decref(answer);
	return output_end();
}

int kernel_command(const struct options *options)
{
	uint64_t id = 0, sessions = 0, bytes = 0;
	struct kernel kernel;
	uint32_t kind = 0;
	int status = 0;

	if (options->count == 0 && (options->sessions || options->memory))
		return misused("kernel", "--sessions and --memory go with limit WHO");
	if (options->count && strcmp(options->words[0], "limit") != 0)
		return misused("kernel", "`%s` is not limit", options->words[0]);
	if (options->count == 1)
		return misused("kernel", "limit needs WHO: uid:USER, cgroup:PATH or all");
	if (options->count)
		status = who_read(options->words[1], &kind, &id);
	if (!status && options->sessions)
		status = limit_value("--sessions", options->sessions, 1, &sessions);
	if (!status && options->memory)
		status = limit_value("--memory", options->memory, 1 << 20, &bytes);
	if (status)
		return status;
	status = kernel_open(&kernel);
	if (status)
		return status;
	status = options->count ? kernel_limit(options, &kernel, kind, id, sessions,
					       bytes == GLEAM_NO_LIMIT ? bytes : bytes / (uint64_t)sysconf(_SC_PAGESIZE)) :
				  kernel_show(options, &kernel);
	nl_socket_free(kernel.sock);
	return status;
}
