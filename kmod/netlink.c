// SPDX-License-Identifier: GPL-2.0-only
/*
 * Generic netlink family "gleam" (docs/netlink/gleam.yaml): what there is, limits, virtual GPUs,
 * events. Requests are checked by strict policies: unknown attributes, wrong sizes and values out
 * of range never come here. Only in the initial network namespace.
 *
 * Anybody may ask; without CAP_NET_ADMIN one sees one's own sessions and limits. Virtual GPUs are
 * the attached broker's to make and change, even for root: the module could not tell whether there
 * is a GPU behind one.
 */
#include <linux/capability.h>
#include <linux/ctype.h>
#include <linux/module.h>
#include <linux/pid_namespace.h>
#include <linux/ratelimit.h>
#include <net/genetlink.h>

#include "gleam.h"

/* A second: a user who runs into a limit in a loop must not drown the listeners. */
#define LIMIT_EVENTS_BURST 10

static struct genl_family family;

/* ---- attributes ---- */

/* Names go into sysfs files, uevents and terminals. */
static int name_check(const struct nlattr *attr, struct netlink_ext_ack *extack)
{
	const char *name = nla_data(attr);

	if (!*name)
		goto refuse;
	for (; *name; name++)
		if (!isascii(*name) || !isprint(*name))
			goto refuse;
	return 0;
refuse:
	NL_SET_ERR_MSG_ATTR(extack, attr, "names are printable ASCII and not empty");
	return -EINVAL;
}

#define NAME_POLICY NLA_POLICY_VALIDATE_FN(NLA_NUL_STRING, name_check, GLEAM_NAME_MAX)

static const struct nla_policy session_policy[] = {
	[GLEAM_A_SESSION_ID] = NLA_POLICY_MIN(NLA_U32, 1),
};

static const struct nla_policy gpu_index_policy[] = {
	[GLEAM_A_DEVICE_INDEX] = NLA_POLICY_MAX(NLA_U32, GLEAM_DEVICES_MAX - 1),
};

static const struct nla_policy gpu_policy[] = {
	[GLEAM_A_DEVICE_INDEX] = NLA_POLICY_MAX(NLA_U32, GLEAM_DEVICES_MAX - 1),
	[GLEAM_A_DEVICE_NAME] = NAME_POLICY,
	[GLEAM_A_DEVICE_SERVER] = NAME_POLICY,
	[GLEAM_A_DEVICE_GPU] = { .type = NLA_U32 },
	[GLEAM_A_DEVICE_MEMORY] = { .type = NLA_U64 },
	[GLEAM_A_DEVICE_STATE] = NLA_POLICY_MAX(NLA_U32, GLEAM_DEVICE_DRAINING),
	[GLEAM_A_DEVICE_MODE] = NLA_POLICY_MAX(NLA_U32, 0777),
};

static const struct nla_policy limit_policy[] = {
	[GLEAM_A_LIMIT_KIND] = NLA_POLICY_RANGE(NLA_U32, GLEAM_LIMIT_UID, GLEAM_LIMIT_CGROUP),
	[GLEAM_A_LIMIT_ID] = { .type = NLA_U64 },
	[GLEAM_A_LIMIT_SESSIONS_MAX] = { .type = NLA_U64 },
	[GLEAM_A_LIMIT_PAGES_MAX] = { .type = NLA_U64 },
};

static bool skb_is_admin(struct sk_buff *skb)
{
	return netlink_capable(skb, CAP_NET_ADMIN);
}

/* ---- what messages say ---- */

static int broker_fill(struct sk_buff *skb, struct pid_namespace *ns)
{
	pid_t pid = gleam_broker_pid(ns);
	bool attached;

	spin_lock(&gleam_lock);
	attached = gleam_broker.file;
	spin_unlock(&gleam_lock);
	if (nla_put_u32(skb, GLEAM_A_BROKER_ABI, GLEAM_ABI_VERSION) ||
	    nla_put_u32(skb, GLEAM_A_BROKER_ATTACHED, attached) ||
	    nla_put_u32(skb, GLEAM_A_BROKER_PID, pid) ||
	    nla_put_u32(skb, GLEAM_A_BROKER_SESSIONS, atomic_read(&gleam_session_count)) ||
	    nla_put_u64_64bit(skb, GLEAM_A_BROKER_DEVICES, gleam_devices_present(), GLEAM_A_BROKER_PAD) ||
	    nla_put_u64_64bit(skb, GLEAM_A_BROKER_DOORBELLS, atomic64_read(&gleam_doorbells),
			      GLEAM_A_BROKER_PAD) ||
	    nla_put_u32(skb, GLEAM_A_BROKER_GRACE_MS, READ_ONCE(gleam_grace_ms)))
		return -EMSGSIZE;
	return 0;
}

static int session_fill(struct sk_buff *skb, struct gleam_session *session, struct pid_namespace *ns)
{
	u64 devices, doorbells, rings;
	u32 reason;

	spin_lock(&gleam_lock);
	devices = session->devices;
	reason = session->reason;
	spin_lock(&session->lock);
	doorbells = session->doorbells;
	rings = session->rings;
	spin_unlock(&session->lock);
	spin_unlock(&gleam_lock);

	if (nla_put_u32(skb, GLEAM_A_SESSION_ID, session->id) ||
	    nla_put_u32(skb, GLEAM_A_SESSION_PID, pid_nr_ns(session->pid, ns)) ||
	    nla_put_u32(skb, GLEAM_A_SESSION_TGID, pid_nr_ns(session->tgid, ns)) ||
	    nla_put_u32(skb, GLEAM_A_SESSION_UID, from_kuid_munged(&init_user_ns, session->uid)) ||
	    nla_put_u64_64bit(skb, GLEAM_A_SESSION_CGROUP, session->cgroup, GLEAM_A_SESSION_PAD) ||
	    nla_put_u64_64bit(skb, GLEAM_A_SESSION_PIDNS, session->pidns, GLEAM_A_SESSION_PAD) ||
	    nla_put_u64_64bit(skb, GLEAM_A_SESSION_DEVICES, devices, GLEAM_A_SESSION_PAD) ||
	    nla_put_u64_64bit(skb, GLEAM_A_SESSION_DOORBELLS, doorbells, GLEAM_A_SESSION_PAD) ||
	    nla_put_u64_64bit(skb, GLEAM_A_SESSION_RINGS, rings, GLEAM_A_SESSION_PAD) ||
	    nla_put_u64_64bit(skb, GLEAM_A_SESSION_OPENED_NS, session->opened_ns, GLEAM_A_SESSION_PAD) ||
	    nla_put_u64_64bit(skb, GLEAM_A_SESSION_PAGES, session->pages, GLEAM_A_SESSION_PAD) ||
	    nla_put_string(skb, GLEAM_A_SESSION_COMM, session->comm) ||
	    nla_put_u32(skb, GLEAM_A_SESSION_REASON, reason))
		return -EMSGSIZE;
	return 0;
}

static int gpu_fill(struct sk_buff *skb, const struct gleam_gpu_setting *setting)
{
	if (nla_put_u32(skb, GLEAM_A_DEVICE_INDEX, setting->index) ||
	    nla_put_string(skb, GLEAM_A_DEVICE_NAME, setting->name) ||
	    nla_put_string(skb, GLEAM_A_DEVICE_SERVER, setting->server) ||
	    nla_put_u32(skb, GLEAM_A_DEVICE_GPU, setting->gpu) ||
	    nla_put_u64_64bit(skb, GLEAM_A_DEVICE_MEMORY, setting->memory, GLEAM_A_DEVICE_PAD) ||
	    nla_put_u32(skb, GLEAM_A_DEVICE_STATE, setting->state) ||
	    nla_put_u32(skb, GLEAM_A_DEVICE_MODE, setting->mode) ||
	    nla_put_u32(skb, GLEAM_A_DEVICE_SESSIONS, gleam_sessions_of_device(setting->index)))
		return -EMSGSIZE;
	return 0;
}

static int limit_fill(struct sk_buff *skb, const struct gleam_limit *limit)
{
	if (nla_put_u32(skb, GLEAM_A_LIMIT_KIND, limit->kind) ||
	    nla_put_u64_64bit(skb, GLEAM_A_LIMIT_ID, limit->id, GLEAM_A_LIMIT_PAD) ||
	    nla_put_u64_64bit(skb, GLEAM_A_LIMIT_SESSIONS_MAX, limit->sessions_max, GLEAM_A_LIMIT_PAD) ||
	    nla_put_u64_64bit(skb, GLEAM_A_LIMIT_PAGES_MAX, limit->pages_max, GLEAM_A_LIMIT_PAD) ||
	    nla_put_u64_64bit(skb, GLEAM_A_LIMIT_SESSIONS, limit->sessions, GLEAM_A_LIMIT_PAD) ||
	    nla_put_u64_64bit(skb, GLEAM_A_LIMIT_PAGES, limit->pages, GLEAM_A_LIMIT_PAD) ||
	    nla_put_u64_64bit(skb, GLEAM_A_LIMIT_REFUSED, limit->refused, GLEAM_A_LIMIT_PAD))
		return -EMSGSIZE;
	return 0;
}

/* ---- replies ---- */

struct message {
	struct sk_buff *skb;
	void *head;
};

static int reply_begin(struct genl_info *info, struct message *reply)
{
	reply->skb = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	if (!reply->skb)
		return -ENOMEM;
	reply->head = genlmsg_put_reply(reply->skb, info, &family, 0, info->genlhdr->cmd);
	if (reply->head)
		return 0;
	nlmsg_free(reply->skb);
	return -EMSGSIZE;
}

/* @err: of the filling. */
static int reply_end(struct genl_info *info, struct message *reply, int err)
{
	if (err) {
		nlmsg_free(reply->skb);
		return err;
	}
	genlmsg_end(reply->skb, reply->head);
	return genlmsg_reply(reply->skb, info);
}

static int broker_get(struct sk_buff *skb, struct genl_info *info)
{
	struct message reply;
	int err = reply_begin(info, &reply);

	return err ? err : reply_end(info, &reply, broker_fill(reply.skb, task_active_pid_ns(current)));
}

/* ---- sessions ---- */

static bool session_visible(struct gleam_session *session, bool admin)
{
	return READ_ONCE(session->state) == GLEAM_OPEN && (admin || uid_eq(session->uid, current_euid()));
}

static int session_get(struct sk_buff *skb, struct genl_info *info)
{
	struct gleam_session *session;
	struct message reply;
	int err;

	if (GENL_REQ_ATTR_CHECK(info, GLEAM_A_SESSION_ID))
		return -EINVAL;
	session = gleam_session_get(nla_get_u32(info->attrs[GLEAM_A_SESSION_ID]));
	if (session && !session_visible(session, skb_is_admin(skb))) {
		gleam_session_put(session);
		session = NULL;
	}
	if (!session)
		return -ENOENT;
	err = reply_begin(info, &reply);
	if (!err)
		err = reply_end(info, &reply, session_fill(reply.skb, session, task_active_pid_ns(current)));
	gleam_session_put(session);
	return err;
}

/* Dumps take no attributes: what would be ignored is refused. */
static int dump_start(struct netlink_callback *cb)
{
	return nlmsg_attrlen(cb->nlh, GENL_HDRLEN) ? -EINVAL : 0;
}

static void *dump_head(struct sk_buff *skb, struct netlink_callback *cb, u8 cmd)
{
	return genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &family, NLM_F_MULTI, cmd);
}

/*
 * By number, from where the last message ended: sessions that come and go meanwhile are told or
 * not, none is told twice, none that stays is left out.
 */
static int session_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	bool admin = skb_is_admin(cb->skb);
	struct gleam_session *session;
	unsigned long id = cb->args[0];

	for (; (session = gleam_session_next(&id)); id++) {
		void *head = NULL;
		int err = 0;

		if (session_visible(session, admin)) {
			head = dump_head(skb, cb, GLEAM_CMD_SESSION_GET);
			err = head ? session_fill(skb, session, task_active_pid_ns(current)) : -EMSGSIZE;
		}
		gleam_session_put(session);
		if (err) {
			if (head)
				genlmsg_cancel(skb, head);
			break;
		}
		if (head)
			genlmsg_end(skb, head);
	}
	cb->args[0] = id;
	return skb->len;
}

/* ---- devices ---- */

static int gpu_get(struct sk_buff *skb, struct genl_info *info)
{
	struct gleam_gpu_setting setting;
	struct message reply;
	u32 index;
	int err;

	if (GENL_REQ_ATTR_CHECK(info, GLEAM_A_DEVICE_INDEX))
		return -EINVAL;
	index = nla_get_u32(info->attrs[GLEAM_A_DEVICE_INDEX]);
	err = gleam_device_find(index, &setting);
	if (err || setting.index != index)
		return -ENODEV;
	err = reply_begin(info, &reply);
	return err ? err : reply_end(info, &reply, gpu_fill(reply.skb, &setting));
}

static int gpu_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct gleam_gpu_setting setting;
	u32 index = cb->args[0];

	for (; !gleam_device_find(index, &setting); index++) {
		void *head = dump_head(skb, cb, GLEAM_CMD_DEVICE_GET);

		if (!head)
			break;
		if (gpu_fill(skb, &setting)) {
			genlmsg_cancel(skb, head);
			break;
		}
		genlmsg_end(skb, head);
		index = setting.index;
	}
	cb->args[0] = index;
	return skb->len;
}

static int broker_check(struct genl_info *info)
{
	if (gleam_broker_is_current())
		return 0;
	NL_SET_ERR_MSG(info->extack, "virtual GPUs are the attached broker's");
	return -EPERM;
}

/* What @info says of a device; the bits of enum gleam_gpu_change that it says it of. */
static unsigned int setting_read(struct genl_info *info, struct gleam_gpu_setting *setting)
{
	struct nlattr **attrs = info->attrs;
	unsigned int changes = 0;

	if (attrs[GLEAM_A_DEVICE_NAME]) {
		nla_strscpy(setting->name, attrs[GLEAM_A_DEVICE_NAME], sizeof(setting->name));
		changes |= GLEAM_CHANGE_NAME;
	}
	if (attrs[GLEAM_A_DEVICE_SERVER]) {
		nla_strscpy(setting->server, attrs[GLEAM_A_DEVICE_SERVER], sizeof(setting->server));
		changes |= GLEAM_CHANGE_SERVER;
	}
	if (attrs[GLEAM_A_DEVICE_GPU]) {
		setting->gpu = nla_get_u32(attrs[GLEAM_A_DEVICE_GPU]);
		changes |= GLEAM_CHANGE_GPU;
	}
	if (attrs[GLEAM_A_DEVICE_MEMORY]) {
		setting->memory = nla_get_u64(attrs[GLEAM_A_DEVICE_MEMORY]);
		changes |= GLEAM_CHANGE_MEMORY;
	}
	if (attrs[GLEAM_A_DEVICE_STATE]) {
		setting->state = nla_get_u32(attrs[GLEAM_A_DEVICE_STATE]);
		changes |= GLEAM_CHANGE_STATE;
	}
	return changes;
}

static int gpu_add(struct sk_buff *skb, struct genl_info *info)
{
	struct gleam_gpu_setting setting = { .mode = 0666, .state = GLEAM_DEVICE_UP };
	struct message reply;
	int err = broker_check(info);

	if (err)
		return err;
	if (GENL_REQ_ATTR_CHECK(info, GLEAM_A_DEVICE_NAME) ||
	    GENL_REQ_ATTR_CHECK(info, GLEAM_A_DEVICE_SERVER) ||
	    GENL_REQ_ATTR_CHECK(info, GLEAM_A_DEVICE_MEMORY))
		return -EINVAL;
	setting_read(info, &setting);
	if (info->attrs[GLEAM_A_DEVICE_INDEX]) {
		setting.index = nla_get_u32(info->attrs[GLEAM_A_DEVICE_INDEX]);
		setting.index_given = true;
	}
	if (info->attrs[GLEAM_A_DEVICE_MODE])
		setting.mode = nla_get_u32(info->attrs[GLEAM_A_DEVICE_MODE]);
	/*
	 * The reply first: a device that its maker can't be told the number of would be nobody's.
	 */
	err = reply_begin(info, &reply);
	if (err)
		return err;
	err = gleam_device_add(&setting);
	if (err) {
		nlmsg_free(reply.skb);
		return err;
	}
	return reply_end(info, &reply, gpu_fill(reply.skb, &setting));
}

static int gpu_set(struct sk_buff *skb, struct genl_info *info)
{
	struct gleam_gpu_setting setting = {};
	unsigned int changes;
	int err = broker_check(info);

	if (err)
		return err;
	if (GENL_REQ_ATTR_CHECK(info, GLEAM_A_DEVICE_INDEX))
		return -EINVAL;
	if (info->attrs[GLEAM_A_DEVICE_MODE]) {
		NL_SET_ERR_MSG_ATTR(info->extack, info->attrs[GLEAM_A_DEVICE_MODE],
				    "the mode is given when a device is added; chmod changes it");
		return -EINVAL;
	}
	changes = setting_read(info, &setting);
	return gleam_device_set(nla_get_u32(info->attrs[GLEAM_A_DEVICE_INDEX]), &setting, changes);
}

static int gpu_del(struct sk_buff *skb, struct genl_info *info)
{
	int err = broker_check(info);

	if (err)
		return err;
	if (GENL_REQ_ATTR_CHECK(info, GLEAM_A_DEVICE_INDEX))
		return -EINVAL;
	return gleam_device_del(nla_get_u32(info->attrs[GLEAM_A_DEVICE_INDEX]));
}

/* ---- limits ---- */

static bool limit_visible(const struct gleam_limit *limit, bool admin)
{
	if (admin)
		return true;
	return limit->kind == GLEAM_LIMIT_UID && limit->id == from_kuid(&init_user_ns, current_euid());
}

static int limit_get(struct sk_buff *skb, struct genl_info *info)
{
	struct gleam_limit limit;
	struct message reply;
	int err;

	if (GENL_REQ_ATTR_CHECK(info, GLEAM_A_LIMIT_KIND) || GENL_REQ_ATTR_CHECK(info, GLEAM_A_LIMIT_ID))
		return -EINVAL;
	err = gleam_limit_find(nla_get_u32(info->attrs[GLEAM_A_LIMIT_KIND]),
			       nla_get_u64(info->attrs[GLEAM_A_LIMIT_ID]), false, &limit);
	if (!err && !limit_visible(&limit, skb_is_admin(skb)))
		err = -ENOENT;
	if (!err)
		err = reply_begin(info, &reply);
	return err ? err : reply_end(info, &reply, limit_fill(reply.skb, &limit));
}

/*
 * By kind and id; args: those of the last one that was told. Ids begin at 0, so there may be none
 * "before" the first.
 */
static int limit_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	bool admin = skb_is_admin(cb->skb);
	u64 id = cb->args[1] | (u64)cb->args[2] << 32;
	u32 kind = cb->args[0];
	struct gleam_limit limit;

	while (!gleam_limit_find(kind, kind ? id : U64_MAX, true, &limit)) {
		void *head;

		if (limit_visible(&limit, admin)) {
			head = dump_head(skb, cb, GLEAM_CMD_LIMIT_GET);
			if (!head)
				break;
			if (limit_fill(skb, &limit)) {
				genlmsg_cancel(skb, head);
				break;
			}
			genlmsg_end(skb, head);
		}
		kind = limit.kind;
		id = limit.id;
	}
	cb->args[0] = kind;
	cb->args[1] = (u32)id;
	cb->args[2] = id >> 32;
	return skb->len;
}

static int limit_set(struct sk_buff *skb, struct genl_info *info)
{
	struct nlattr *sessions = info->attrs[GLEAM_A_LIMIT_SESSIONS_MAX];
	struct nlattr *pages = info->attrs[GLEAM_A_LIMIT_PAGES_MAX];
	u32 kind;
	u64 id;

	if (GENL_REQ_ATTR_CHECK(info, GLEAM_A_LIMIT_KIND) || GENL_REQ_ATTR_CHECK(info, GLEAM_A_LIMIT_ID))
		return -EINVAL;
	if (!sessions && !pages) {
		NL_SET_ERR_MSG(info->extack, "no limit is given");
		return -EINVAL;
	}
	kind = nla_get_u32(info->attrs[GLEAM_A_LIMIT_KIND]);
	id = nla_get_u64(info->attrs[GLEAM_A_LIMIT_ID]);
	if (kind == GLEAM_LIMIT_UID && id >= U32_MAX)
		return -EINVAL;
	return gleam_limit_set(kind, id, sessions ? nla_get_u64(sessions) : 0, pages ? nla_get_u64(pages) : 0,
			       sessions, pages);
}

/* ---- events ---- */

static const struct genl_multicast_group groups[] = {
	{ .name = GLEAM_GENL_EVENTS, .flags = GENL_MCAST_CAP_NET_ADMIN },
};

static bool event_begin(u8 cmd, struct message *event)
{
	if (!genl_has_listeners(&family, &init_net, 0))
		return false;
	event->skb = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	if (!event->skb)
		return false;
	event->head = genlmsg_put(event->skb, 0, 0, &family, 0, cmd);
	if (event->head)
		return true;
	nlmsg_free(event->skb);
	return false;
}

static void event_end(struct message *event, int err)
{
	if (err) {
		nlmsg_free(event->skb);
		return;
	}
	genlmsg_end(event->skb, event->head);
	/* A listener that is too slow is told so by its own socket (ENOBUFS), and dumps. */
	genlmsg_multicast(&family, event->skb, 0, 0, GFP_KERNEL);
}

void gleam_notify_session(u8 cmd, struct gleam_session *session)
{
	struct message event;

	if (event_begin(cmd, &event))
		event_end(&event, session_fill(event.skb, session, &init_pid_ns));
}

void gleam_notify_device(u8 cmd, const struct gleam_gpu_setting *setting)
{
	struct message event;

	if (event_begin(cmd, &event))
		event_end(&event, gpu_fill(event.skb, setting));
}

void gleam_notify_limit(const struct gleam_limit *limit)
{
	static DEFINE_RATELIMIT_STATE(rate, HZ, LIMIT_EVENTS_BURST);
	struct message event;

	ratelimit_set_flags(&rate, RATELIMIT_MSG_ON_RELEASE);
	if (__ratelimit(&rate) && event_begin(GLEAM_CMD_LIMIT_HIT_NTF, &event))
		event_end(&event, limit_fill(event.skb, limit));
}

void gleam_notify_broker(void)
{
	struct message event;

	if (event_begin(GLEAM_CMD_BROKER_NTF, &event))
		event_end(&event, broker_fill(event.skb, &init_pid_ns));
}

/* ---- the family ---- */

/* Policy and number of attributes of an operation. */
#define POLICY(policies) .policy = policies, .maxattr = ARRAY_SIZE(policies) - 1

static const struct genl_ops ops[] = {
	{ .cmd = GLEAM_CMD_BROKER_GET, .doit = broker_get },	/* no policy: no attribute at all */
	{ .cmd = GLEAM_CMD_SESSION_GET, POLICY(session_policy), .doit = session_get, .start = dump_start,
	  .dumpit = session_dump },
	{ .cmd = GLEAM_CMD_DEVICE_GET, POLICY(gpu_index_policy), .doit = gpu_get, .start = dump_start,
	  .dumpit = gpu_dump },
	{ .cmd = GLEAM_CMD_DEVICE_ADD, POLICY(gpu_policy), .doit = gpu_add, .flags = GENL_ADMIN_PERM },
	{ .cmd = GLEAM_CMD_DEVICE_SET, POLICY(gpu_policy), .doit = gpu_set, .flags = GENL_ADMIN_PERM },
	{ .cmd = GLEAM_CMD_DEVICE_DEL, POLICY(gpu_index_policy), .doit = gpu_del, .flags = GENL_ADMIN_PERM },
	{ .cmd = GLEAM_CMD_LIMIT_GET, POLICY(limit_policy), .doit = limit_get, .start = dump_start,
	  .dumpit = limit_dump },
	{ .cmd = GLEAM_CMD_LIMIT_SET, POLICY(limit_policy), .doit = limit_set, .flags = GENL_ADMIN_PERM },
};

static struct genl_family family __ro_after_init = {
	.name = GLEAM_GENL_NAME,
	.version = GLEAM_GENL_VERSION,
	.module = THIS_MODULE,
	.ops = ops,
	.n_ops = ARRAY_SIZE(ops),
	.resv_start_op = GLEAM_CMD_BROKER_GET,	/* reserved header fields are checked for all of them */
	.mcgrps = groups,
	.n_mcgrps = ARRAY_SIZE(groups),
};

int __init gleam_netlink_init(void)
{
	return genl_register_family(&family);
}

void gleam_netlink_exit(void)
{
	genl_unregister_family(&family);
}
