/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual GPUs by netlink; see knl.h. Control thread.
 *
 * Every KNL_LOOK_NS the servers' reports are compared with what the kernel has: what is new is added, what has changed is
 * set, what belongs to no server of the configuration is removed. A server that can't be reached keeps its devices, down.
 */
#include "broker/local/knl.h"

#include <ctype.h>
#include <errno.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/clock.h"
#include "broker/lib/log.h"
#include "broker/local/broker.h"
#include "broker/local/server.h"
#include "broker/proto/stats.h"
#include "kmod/include/uapi/linux/gleam.h"

#define KNL_LOOK_NS (2 * NS_PER_S)
#define KNL_WAKE    15 /* looks between two tries to reach servers that nobody uses, so that their GPUs can be seen */

struct vgpu {
	bool there;
	char name[GLEAM_NAME_MAX + 1];
	char server[GLEAM_NAME_MAX + 1];
	uint32_t gpu;
	uint64_t memory;
	uint32_t state;
	uint8_t uuid[16]; /* zero: not known yet */
};

struct knl {
	struct broker *broker;
	struct loop *loop;
	struct nl_sock *sock;
	int family;
	struct loop_timer timer;
	unsigned looks;
	bool full; /* said that there are too many */
	struct vgpu vgpus[GLEAM_DEVICES_MAX];
	int32_t added; /* by the answer to DEVICE_ADD */
};

/* ---- messages ---- */

static int nl_errno(int err)
{
	switch (-err) {
	case NLE_EXIST:
		return -EEXIST;
	case NLE_PERM:
	case NLE_NOACCESS:
		return -EPERM;
	case NLE_OBJ_NOTFOUND:
		return -ENOENT;
	case NLE_NODEV:
		return -ENODEV;
	default:
		return -EIO;
	}
}

/* An answer to DEVICE_ADD or DEVICE_GET. Foreign bytes, though the kernel's. */
static int device_valid(struct nl_msg *msg, void *arg)
{
	static struct nla_policy policy[GLEAM_A_DEVICE_MAX + 1] = {
		[GLEAM_A_DEVICE_INDEX] = { .type = NLA_U32 },  [GLEAM_A_DEVICE_NAME] = { .type = NLA_STRING },
		[GLEAM_A_DEVICE_SERVER] = { .type = NLA_STRING }, [GLEAM_A_DEVICE_GPU] = { .type = NLA_U32 },
		[GLEAM_A_DEVICE_MEMORY] = { .type = NLA_U64 }, [GLEAM_A_DEVICE_STATE] = { .type = NLA_U32 },
	};
	struct nlattr *attrs[GLEAM_A_DEVICE_MAX + 1];
	struct knl *knl = arg;
	struct vgpu *vgpu;
	uint32_t index;

	if (genlmsg_parse(nlmsg_hdr(msg), 0, attrs, GLEAM_A_DEVICE_MAX, policy) < 0)
		return NL_SKIP;
	for (int i = GLEAM_A_DEVICE_INDEX; i <= GLEAM_A_DEVICE_STATE; i++)
		if (!attrs[i])
			return NL_SKIP;
	index = nla_get_u32(attrs[GLEAM_A_DEVICE_INDEX]);
	if (index >= GLEAM_DEVICES_MAX)
		return NL_SKIP;
	knl->added = (int32_t)index;
	vgpu = &knl->vgpus[index];
	*vgpu = (struct vgpu){
		.there = true,
		.gpu = nla_get_u32(attrs[GLEAM_A_DEVICE_GPU]),
		.memory = nla_get_u64(attrs[GLEAM_A_DEVICE_MEMORY]),
		.state = nla_get_u32(attrs[GLEAM_A_DEVICE_STATE]),
	};
	nla_strlcpy(vgpu->name, attrs[GLEAM_A_DEVICE_NAME], sizeof(vgpu->name));
	nla_strlcpy(vgpu->server, attrs[GLEAM_A_DEVICE_SERVER], sizeof(vgpu->server));
	return NL_OK;
}

static struct nl_msg *message_new(struct knl *knl, uint8_t cmd, int flags)
{
	struct nl_msg *msg = nlmsg_alloc();

	if (msg && !genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, knl->family, 0, flags, cmd, GLEAM_GENL_VERSION)) {
		nlmsg_free(msg);
		msg = NULL;
	}
	return msg;
}

/* Takes @msg. Answers come to device_valid() before the acknowledgement. */
static int message_call(struct knl *knl, struct nl_msg *msg)
{
	int err = nl_send_sync(knl->sock, msg);

	return err < 0 ? nl_errno(err) : 0;
}

static int vgpu_put(struct nl_msg *msg, const struct vgpu *vgpu)
{
	return nla_put_string(msg, GLEAM_A_DEVICE_NAME, vgpu->name) || nla_put_string(msg, GLEAM_A_DEVICE_SERVER, vgpu->server) ||
	       nla_put_u32(msg, GLEAM_A_DEVICE_GPU, vgpu->gpu) || nla_put_u64(msg, GLEAM_A_DEVICE_MEMORY, vgpu->memory) ||
	       nla_put_u32(msg, GLEAM_A_DEVICE_STATE, vgpu->state);
}

/* 0 and its index in knl->added, or -errno. */
static int vgpu_add(struct knl *knl, const struct vgpu *vgpu)
{
	struct nl_msg *msg = message_new(knl, GLEAM_CMD_DEVICE_ADD, 0);
	int err;

	if (!msg)
		return -ENOMEM;
	if (vgpu_put(msg, vgpu)) {
		nlmsg_free(msg);
		return -EMSGSIZE;
	}
	knl->added = -1;
	err = message_call(knl, msg);
	if (!err && knl->added < 0)
		err = -EPROTO;
	if (!err)
		memcpy(knl->vgpus[knl->added].uuid, vgpu->uuid, sizeof(vgpu->uuid));
	return err;
}

static int vgpu_set(struct knl *knl, uint32_t index, const struct vgpu *vgpu)
{
	struct nl_msg *msg = message_new(knl, GLEAM_CMD_DEVICE_SET, 0);
	int err;

	if (!msg)
		return -ENOMEM;
	if (nla_put_u32(msg, GLEAM_A_DEVICE_INDEX, index) || vgpu_put(msg, vgpu)) {
		nlmsg_free(msg);
		return -EMSGSIZE;
	}
	err = message_call(knl, msg);
	if (!err)
		knl->vgpus[index] = *vgpu;
	return err;
}

static int vgpu_del(struct knl *knl, uint32_t index)
{
	struct nl_msg *msg = message_new(knl, GLEAM_CMD_DEVICE_DEL, 0);

	if (!msg)
		return -ENOMEM;
	if (nla_put_u32(msg, GLEAM_A_DEVICE_INDEX, index)) {
		nlmsg_free(msg);
		return -EMSGSIZE;
	}
	knl->vgpus[index].there = false;
	return message_call(knl, msg);
}

/* ---- comparing ---- */

/* As the kernel takes names: printable ASCII, not empty, short. */
static void name_copy(char out[GLEAM_NAME_MAX + 1], const char *name)
{
	size_t i;

	for (i = 0; name[i] && i < GLEAM_NAME_MAX; i++)
		out[i] = isascii((unsigned char)name[i]) && isprint((unsigned char)name[i]) ? name[i] : '?';
	out[i] = '\0';
	if (!i)
		strcpy(out, "?");
}

static struct vgpu *vgpu_find(struct knl *knl, const char *server, uint32_t gpu)
{
	for (unsigned i = 0; i < GLEAM_DEVICES_MAX; i++) {
		struct vgpu *vgpu = &knl->vgpus[i];

		if (vgpu->there && vgpu->gpu == gpu && strcmp(vgpu->server, server) == 0)
			return vgpu;
	}
	return NULL;
}

static void gpu_look(struct knl *knl, const char *server, uint32_t index, const struct report_gpu *gpu)
{
	struct vgpu wanted = { .there = true, .gpu = index, .memory = gpu->memory, .state = GLEAM_DEVICE_UP };
	struct vgpu *vgpu;
	int err = 0;

	name_copy(wanted.name, gpu->name);
	name_copy(wanted.server, server);
	memcpy(wanted.uuid, gpu->uuid, sizeof(wanted.uuid));
	vgpu = vgpu_find(knl, wanted.server, index);
	if (!vgpu)
		err = vgpu_add(knl, &wanted);
	else if (strcmp(vgpu->name, wanted.name) != 0 || vgpu->memory != wanted.memory || vgpu->state != wanted.state)
		err = vgpu_set(knl, (uint32_t)(vgpu - knl->vgpus), &wanted);
	else
		memcpy(vgpu->uuid, wanted.uuid, sizeof(wanted.uuid));
	if (err && !knl->full)
		log_warn("GPU %u of %s is no device of this machine: %s", index, server, strerror(-err));
	knl->full = err != 0;
	if (!err && !vgpu)
		log_info("GPU %u of %s is /dev/gleam%d", index, server, knl->added);
}

/* Those of @server from number @from on. */
static void vgpus_down(struct knl *knl, const char *server, uint32_t from)
{
	for (uint32_t i = 0; i < GLEAM_DEVICES_MAX; i++) {
		struct vgpu down = knl->vgpus[i];

		if (!down.there || strcmp(down.server, server) != 0 || down.gpu < from || down.state == GLEAM_DEVICE_DOWN)
			continue;
		down.state = GLEAM_DEVICE_DOWN;
		vgpu_set(knl, i, &down);
	}
}

static void strangers_remove(struct knl *knl)
{
	for (uint32_t i = 0; i < GLEAM_DEVICES_MAX; i++) {
		bool known = !knl->vgpus[i].there;

		for (unsigned s = 0; !known && s < broker_server_count(knl->broker); s++) {
			char name[GLEAM_NAME_MAX + 1];

			name_copy(name, server_name(broker_server(knl->broker, s)));
			known = strcmp(name, knl->vgpus[i].server) == 0;
		}
		if (!known)
			vgpu_del(knl, i);
	}
}

static void knl_look(void *arg)
{
	struct knl *knl = arg;

	for (unsigned s = 0; s < broker_server_count(knl->broker); s++) {
		struct server *server = broker_server(knl->broker, s);
		const struct report *report = server_report(server);
		char name[GLEAM_NAME_MAX + 1];

		name_copy(name, server_name(server));
		for (uint32_t i = 0; report && i < report->gpu_count; i++)
			gpu_look(knl, server_name(server), i, &report->gpus[i]);
		vgpus_down(knl, name, report ? report->gpu_count : 0);
		if (!report && knl->looks % KNL_WAKE == 0)
			server_wake(server);
	}
	knl->looks++;
	loop_timer_set(knl->loop, &knl->timer, loop_now_ns(knl->loop) + KNL_LOOK_NS);
}

/* ---- for sessions ---- */

int knl_devices(const struct knl *knl, uint64_t devices, char *server, size_t server_size, char *visible, size_t visible_size)
{
	const struct vgpu *first = NULL;
	size_t at = 0;

	visible[0] = '\0';
	for (unsigned i = 0; i < GLEAM_DEVICES_MAX; i++) {
		const struct vgpu *vgpu = &knl->vgpus[i];
		const uint8_t *u = vgpu->uuid;
		int more;

		if (!(devices & 1ull << i) || !vgpu->there)
			continue;
		if (first && strcmp(first->server, vgpu->server) != 0)
			return -EXDEV;
		if (!first)
			first = vgpu;
		more = snprintf(visible + at, visible_size - at,
				"%sGPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", at ? "," : "", u[0], u[1],
				u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
		if (more < 0 || (size_t)more >= visible_size - at)
			return -ENODEV;
		at += (size_t)more;
	}
	if (!first)
		return -ENODEV;
	snprintf(server, server_size, "%s", first->server);
	return 0;
}

/* ---- life ---- */

/* What an earlier daemon has left. */
static int vgpus_dump(struct knl *knl)
{
	struct nl_msg *msg = message_new(knl, GLEAM_CMD_DEVICE_GET, NLM_F_DUMP);
	int err;

	if (!msg)
		return -ENOMEM;
	err = nl_send_auto(knl->sock, msg);
	nlmsg_free(msg);
	if (err >= 0)
		err = nl_recvmsgs_default(knl->sock);
	return err < 0 ? nl_errno(err) : 0;
}

struct knl *knl_start(struct broker *broker, struct loop *loop)
{
	struct knl *knl = calloc(1, sizeof(*knl));
	int err = -ENOMEM;

	if (!knl)
		return NULL;
	knl->broker = broker;
	knl->loop = loop;
	knl->timer.fire = knl_look;
	knl->timer.arg = knl;
	knl->sock = nl_socket_alloc();
	if (!knl->sock)
		goto free_knl;
	err = genl_connect(knl->sock);
	if (!err)
		err = knl->family = genl_ctrl_resolve(knl->sock, GLEAM_GENL_NAME);
	if (err < 0) {
		err = nl_errno(err);
		goto free_knl;
	}
	nl_socket_modify_cb(knl->sock, NL_CB_VALID, NL_CB_CUSTOM, device_valid, knl);
	err = vgpus_dump(knl);
	if (err)
		goto free_knl;
	strangers_remove(knl);
	loop_timer_set(loop, &knl->timer, loop_now_ns(loop));
	return knl;

free_knl:
	log_info("netlink family %s: %s; remote GPUs are no devices of this machine", GLEAM_GENL_NAME, strerror(-err));
	if (knl->sock)
		nl_socket_free(knl->sock);
	free(knl);
	return NULL;
}

void knl_free(struct knl *knl)
{
	if (!knl)
		return;
	loop_timer_clear(knl->loop, &knl->timer);
	nl_socket_free(knl->sock);
	free(knl);
}
