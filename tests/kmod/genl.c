// SPDX-License-Identifier: Apache-2.0
/*
 * The netlink family, byte by byte; see genl.h.
 */
#include "tests/kmod/genl.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SOL_NETLINK
#define SOL_NETLINK 270
#endif

static void attrs_parse(const void *bytes, size_t size, struct genl_attrs *attrs)
{
	const uint8_t *at = bytes;

	while (size >= NLA_HDRLEN) {
		const struct nlattr *attr = (const void *)at;
		size_t step = NLA_ALIGN(attr->nla_len);
		unsigned type = attr->nla_type & NLA_TYPE_MASK;

		CHECK(attr->nla_len >= NLA_HDRLEN && attr->nla_len <= size);
		if (type < GENL_ATTRS)
			attrs->by[type] = attr;
		if (step >= size)
			break;
		at += step;
		size -= step;
	}
}

static void message_parse(const struct nlmsghdr *hdr, struct genl_attrs *attrs)
{
	const struct genlmsghdr *head = NLMSG_DATA(hdr);

	CHECK(hdr->nlmsg_len >= NLMSG_LENGTH(GENL_HDRLEN));
	memset(attrs, 0, sizeof(*attrs));
	attrs->cmd = head->cmd;
	attrs_parse((const uint8_t *)head + GENL_HDRLEN, hdr->nlmsg_len - NLMSG_LENGTH(GENL_HDRLEN), attrs);
}

uint32_t attr_u32(const struct genl_attrs *attrs, unsigned type)
{
	uint32_t value;

	CHECK(attrs->by[type] && attrs->by[type]->nla_len == NLA_HDRLEN + sizeof(value));
	memcpy(&value, attrs->by[type] + 1, sizeof(value));
	return value;
}

uint64_t attr_u64(const struct genl_attrs *attrs, unsigned type)
{
	uint64_t value;

	CHECK(attrs->by[type] && attrs->by[type]->nla_len == NLA_HDRLEN + sizeof(value));
	memcpy(&value, attrs->by[type] + 1, sizeof(value));
	return value;
}

const char *attr_str(const struct genl_attrs *attrs, unsigned type)
{
	CHECK(attrs->by[type] && attrs->by[type]->nla_len > NLA_HDRLEN);
	return (const char *)(attrs->by[type] + 1);
}

void msg_begin(struct genl *genl, struct genl_msg *msg, uint8_t cmd, uint16_t flags)
{
	struct genlmsghdr head = { .cmd = cmd, .version = GLEAM_GENL_VERSION };

	memset(msg, 0, sizeof(*msg));
	msg->hdr.nlmsg_type = genl->family;
	msg->hdr.nlmsg_flags = NLM_F_REQUEST | flags;
	msg->hdr.nlmsg_seq = ++genl->seq;
	memcpy(msg->bytes + NLMSG_HDRLEN, &head, sizeof(head));
	msg->size = NLMSG_HDRLEN + GENL_HDRLEN;
}

void msg_raw(struct genl_msg *msg, uint16_t type, const void *bytes, size_t size)
{
	struct nlattr attr = { .nla_len = (uint16_t)(NLA_HDRLEN + size), .nla_type = type };

	CHECK(msg->size + NLA_HDRLEN + NLA_ALIGN(size) <= sizeof(msg->bytes));
	memcpy(msg->bytes + msg->size, &attr, sizeof(attr));
	if (size)
		memcpy(msg->bytes + msg->size + NLA_HDRLEN, bytes, size);
	msg->size += NLA_HDRLEN + (uint32_t)NLA_ALIGN(size);
}

void msg_u32(struct genl_msg *msg, uint16_t type, uint32_t value)
{
	msg_raw(msg, type, &value, sizeof(value));
}

void msg_u64(struct genl_msg *msg, uint16_t type, uint64_t value)
{
	msg_raw(msg, type, &value, sizeof(value));
}

void msg_str(struct genl_msg *msg, uint16_t type, const char *text)
{
	msg_raw(msg, type, text, strlen(text) + 1);
}

static int send_msg(struct genl *genl, struct genl_msg *msg)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };

	msg->hdr.nlmsg_len = msg->size;
	return (int)RC(sendto(genl->fd, msg->bytes, msg->size, 0, (struct sockaddr *)&kernel, sizeof(kernel)));
}

int genl_call(struct genl *genl, struct genl_msg *msg, struct genl_msg *reply_out, struct genl_attrs *attrs_out)
{
	struct genl_msg answer;
	int sent;

	msg->hdr.nlmsg_flags |= NLM_F_ACK;
	sent = send_msg(genl, msg);
	if (sent < 0)
		return sent;
	for (;;) {
		ssize_t got = recv(genl->fd, answer.bytes, sizeof(answer.bytes), 0);
		struct nlmsghdr *hdr = &answer.hdr;
		unsigned left = (unsigned)got;

		CHECK(got > 0);
		for (; NLMSG_OK(hdr, left); hdr = NLMSG_NEXT(hdr, left)) {
			if (hdr->nlmsg_seq != msg->hdr.nlmsg_seq)
				continue;
			if (hdr->nlmsg_type == NLMSG_ERROR)
				return ((struct nlmsgerr *)NLMSG_DATA(hdr))->error;
			if (reply_out) {
				reply_out->size = hdr->nlmsg_len;
				memcpy(reply_out->bytes, hdr, hdr->nlmsg_len);
				message_parse(&reply_out->hdr, attrs_out);
			}
		}
	}
}

int genl_dump(struct genl *genl, uint8_t cmd, void (*each)(const struct genl_attrs *attrs, void *arg), void *arg)
{
	static uint8_t bytes[64 << 10];
	struct genl_msg msg;
	int count = 0;

	msg_begin(genl, &msg, cmd, NLM_F_DUMP);
	if (send_msg(genl, &msg) < 0)
		return -errno;
	for (;;) {
		ssize_t got = recv(genl->fd, bytes, sizeof(bytes), 0);
		struct nlmsghdr *hdr = (void *)bytes;
		unsigned left = (unsigned)got;

		CHECK(got > 0);
		for (; NLMSG_OK(hdr, left); hdr = NLMSG_NEXT(hdr, left)) {
			struct genl_attrs attrs;

			if (hdr->nlmsg_seq != msg.hdr.nlmsg_seq)
				continue;
			if (hdr->nlmsg_type == NLMSG_DONE)
				return count;
			if (hdr->nlmsg_type == NLMSG_ERROR)
				return ((struct nlmsgerr *)NLMSG_DATA(hdr))->error;
			message_parse(hdr, &attrs);
			if (each)
				each(&attrs, arg);
			count++;
		}
	}
}

bool genl_event(struct genl *genl, int ms, struct genl_msg *msg, struct genl_attrs *attrs_out)
{
	struct pollfd poll_fd = { .fd = genl->fd, .events = POLLIN };
	ssize_t got;

	if (poll(&poll_fd, 1, ms) != 1)
		return false;
	got = recv(genl->fd, msg->bytes, sizeof(msg->bytes), 0);
	CHECK(got > 0);
	message_parse(&msg->hdr, attrs_out);
	return true;
}

void genl_open(struct genl *genl)
{
	struct genl_msg msg, reply;
	struct genl_attrs attrs, group = { 0 };
	struct timeval limit = { .tv_sec = 20 };

	memset(genl, 0, sizeof(*genl));
	genl->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
	CHECK(genl->fd >= 0);
	setsockopt(genl->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	genl->family = GENL_ID_CTRL;
	msg_begin(genl, &msg, CTRL_CMD_GETFAMILY, 0);
	msg_str(&msg, CTRL_ATTR_FAMILY_NAME, GLEAM_GENL_NAME);
	SAME(genl_call(genl, &msg, &reply, &attrs), 0);
	CHECK(attrs.by[CTRL_ATTR_FAMILY_ID]);
	memcpy(&genl->family, attrs.by[CTRL_ATTR_FAMILY_ID] + 1, sizeof(genl->family));
	CHECK(attrs.by[CTRL_ATTR_MCAST_GROUPS]);

	/* A list of one: {name, id}. */
	const struct nlattr *first = attrs.by[CTRL_ATTR_MCAST_GROUPS] + 1;

	attrs_parse(first + 1, first->nla_len - NLA_HDRLEN, &group);
	CHECK(!strcmp(attr_str(&group, CTRL_ATTR_MCAST_GRP_NAME), GLEAM_GENL_EVENTS));
	genl->group = attr_u32(&group, CTRL_ATTR_MCAST_GRP_ID);
}

void genl_close(struct genl *genl)
{
	close(genl->fd);
}

int genl_listen(struct genl *genl)
{
	int group = (int)genl->group;

	return (int)RC(setsockopt(genl->fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)));
}

int device_add(struct genl *genl, const char *name, const char *server, uint64_t memory, int index, int mode)
{
	struct genl_msg msg, reply;
	struct genl_attrs attrs;
	int err;

	msg_begin(genl, &msg, GLEAM_CMD_DEVICE_ADD, 0);
	msg_str(&msg, GLEAM_A_DEVICE_NAME, name);
	msg_str(&msg, GLEAM_A_DEVICE_SERVER, server);
	msg_u64(&msg, GLEAM_A_DEVICE_MEMORY, memory);
	if (index >= 0)
		msg_u32(&msg, GLEAM_A_DEVICE_INDEX, (uint32_t)index);
	if (mode >= 0)
		msg_u32(&msg, GLEAM_A_DEVICE_MODE, (uint32_t)mode);
	err = genl_call(genl, &msg, &reply, &attrs);
	return err ? err : (int)attr_u32(&attrs, GLEAM_A_DEVICE_INDEX);
}

int device_del(struct genl *genl, uint32_t index)
{
	struct genl_msg msg;

	msg_begin(genl, &msg, GLEAM_CMD_DEVICE_DEL, 0);
	msg_u32(&msg, GLEAM_A_DEVICE_INDEX, index);
	return genl_call(genl, &msg, NULL, NULL);
}

int limit_set(struct genl *genl, enum gleam_limit_kind kind, uint64_t id, uint64_t sessions, uint64_t pages)
{
	struct genl_msg msg;

	msg_begin(genl, &msg, GLEAM_CMD_LIMIT_SET, 0);
	msg_u32(&msg, GLEAM_A_LIMIT_KIND, kind);
	msg_u64(&msg, GLEAM_A_LIMIT_ID, id);
	msg_u64(&msg, GLEAM_A_LIMIT_SESSIONS_MAX, sessions);
	msg_u64(&msg, GLEAM_A_LIMIT_PAGES_MAX, pages);
	return genl_call(genl, &msg, NULL, NULL);
}

int limit_get(struct genl *genl, enum gleam_limit_kind kind, uint64_t id, struct genl_msg *reply,
	      struct genl_attrs *attrs_out)
{
	struct genl_msg msg;

	msg_begin(genl, &msg, GLEAM_CMD_LIMIT_GET, 0);
	msg_u32(&msg, GLEAM_A_LIMIT_KIND, kind);
	msg_u64(&msg, GLEAM_A_LIMIT_ID, id);
	return genl_call(genl, &msg, reply, attrs_out);
}
