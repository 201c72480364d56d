/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The netlink family, byte by byte: tests must also be able to say what a library would not.
 */
#ifndef TESTS_KMOD_GENL_H
#define TESTS_KMOD_GENL_H

#include <linux/genetlink.h>
#include <linux/netlink.h>

#include "kmod/include/uapi/linux/gleam.h"
#include "tests/kmod/kt.h"

#define GENL_ATTRS 16 /* more than any of our sets has */

struct genl {
	int fd;
	uint16_t family;
	uint32_t group;
	uint32_t seq;
};

struct genl_msg {
	uint32_t size;
	union {
		struct nlmsghdr hdr;
		uint8_t bytes[4096];
	};
};

/* Attributes of a message, by number; they point into it. */
struct genl_attrs {
	uint8_t cmd;
	const struct nlattr *by[GENL_ATTRS];
};

void genl_open(struct genl *genl);
void genl_close(struct genl *genl);
/* 0 or -errno. */
int genl_listen(struct genl *genl);

void msg_begin(struct genl *genl, struct genl_msg *msg, uint8_t cmd, uint16_t flags);
void msg_raw(struct genl_msg *msg, uint16_t type, const void *bytes, size_t size);
void msg_u32(struct genl_msg *msg, uint16_t type, uint32_t value);
void msg_u64(struct genl_msg *msg, uint16_t type, uint64_t value);
void msg_str(struct genl_msg *msg, uint16_t type, const char *text);

/* 0 or -errno; @reply_out (may be NULL) is the answer beside the acknowledgement. */
int genl_call(struct genl *genl, struct genl_msg *msg, struct genl_msg *reply_out, struct genl_attrs *attrs_out);
/* Entries of a dump, or -errno. */
int genl_dump(struct genl *genl, uint8_t cmd, void (*each)(const struct genl_attrs *attrs, void *arg), void *arg);
/* The next event of the group within @ms; false: none. */
bool genl_event(struct genl *genl, int ms, struct genl_msg *msg, struct genl_attrs *attrs_out);

uint32_t attr_u32(const struct genl_attrs *attrs, unsigned type);
uint64_t attr_u64(const struct genl_attrs *attrs, unsigned type);
const char *attr_str(const struct genl_attrs *attrs, unsigned type);

/* ---- common requests ---- */

int device_add(struct genl *genl, const char *name, const char *server, uint64_t memory, int index, int mode);
int device_del(struct genl *genl, uint32_t index);
int limit_set(struct genl *genl, enum gleam_limit_kind kind, uint64_t id, uint64_t sessions, uint64_t pages);
/* 0 or -errno. */
int limit_get(struct genl *genl, enum gleam_limit_kind kind, uint64_t id, struct genl_msg *msg,
	      struct genl_attrs *attrs_out);

#endif
