/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 */
/*
 * Gleam's kernel interface: /dev/gleam and /dev/gleam<N> for programs that use a remote GPU,
 * /dev/gleam-broker for the daemon that serves them, and the generic netlink family "gleam" for
 * whoever manages them. docs/kernel.md explains it; the layout of session memory is in
 * broker/proto/ring.h.
 *
 * Every structure has a fixed size that is part of its ioctl number; reserved fields and unknown
 * flags must be zero.
 */
#ifndef _UAPI_LINUX_GLEAM_H
#define _UAPI_LINUX_GLEAM_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define GLEAM_ABI_VERSION	1
#define GLEAM_DEVICES_MAX	64	/* of a machine; a session's share is a 64-bit word */
#define GLEAM_DEVICES_ANY	(~0ULL)	/* opened through /dev/gleam: every GPU */
#define GLEAM_COMM_SIZE		16

/*
 * What the kernel writes as session_header.reason when it ends a session itself: END_SHUTDOWN of
 * wire.h.
 */
#define GLEAM_REASON_BROKER_GONE	9

/* ---- /dev/gleam, /dev/gleam<N>: an open file is a session ---- */

/**
 * struct gleam_info - what a session may know of itself
 * @abi: GLEAM_ABI_VERSION of the module
 * @session: number of the session, not used again soon
 * @memory_size: what mmap() takes, at offset 0 and in one piece
 * @devices: bit N: may use /dev/gleam<N>; GLEAM_DEVICES_ANY: all there are and will be
 * @broker: 1 while a broker is attached, 0 while one is waited for
 * @reserved: 0
 */
struct gleam_info {
	__u32 abi;
	__u32 session;
	__u64 memory_size;
	__u64 devices;
	__u32 broker;
	__u32 reserved;
};

/**
 * struct gleam_fd - a descriptor for the session
 * @fd: an eventfd or -1 (GLEAM_IOC_EVENTFD), an open /dev/gleam<N> (GLEAM_IOC_JOIN)
 * @flags: 0
 */
struct gleam_fd {
	__s32 fd;
	__u32 flags;
};

#define GLEAM_IOC_TYPE		0xbc
/* Identity and rights. */
#define GLEAM_IOC_INFO		_IOR(GLEAM_IOC_TYPE, 0x01, struct gleam_info)
/*
 * Wakes the broker. write() of eight bytes does the same, so that the file can stand in for an
 * eventfd.
 */
#define GLEAM_IOC_DOORBELL	_IO(GLEAM_IOC_TYPE, 0x02)
/* Signalled when the broker rings, and when the session ends. Replaces the one before; -1: none. */
#define GLEAM_IOC_EVENTFD	_IOW(GLEAM_IOC_TYPE, 0x03, struct gleam_fd)
/* The devices of another session of this process become this one's, too. */
#define GLEAM_IOC_JOIN		_IOW(GLEAM_IOC_TYPE, 0x04, struct gleam_fd)

/* ---- /dev/gleam-broker: one owner ---- */

enum gleam_event_type {
	GLEAM_EVENT_ATTACH = 1,		/* a session that this broker has not heard of */
	GLEAM_EVENT_DETACH = 2,		/* a session it has heard of is over, its number void */
	GLEAM_EVENT_DOORBELL = 3,	/* rang without an eventfd to tell it by */
};

enum gleam_event_flag {
	GLEAM_EVENT_RESUMED = 1,	/* ATTACH: an earlier broker served it */
};

enum gleam_detach_reason {
	GLEAM_DETACH_NONE = 0,
	GLEAM_DETACH_CLOSED = 1,	/* its file was closed, or its memory unmapped */
	GLEAM_DETACH_DIED = 2,		/* its process is gone */
	GLEAM_DETACH_ENDED = 3,		/* the broker ended it */
	GLEAM_DETACH_DEVICE = 4,	/* the last of its GPUs was removed */
	GLEAM_DETACH_BROKER = 5,	/* no broker came back within the time of grace */
};

/**
 * struct gleam_event - read() from /dev/gleam-broker gives a whole number of these
 * @type: enum gleam_event_type
 * @session: number of the session
 * @flags: enum gleam_event_flag
 * @reason: enum gleam_detach_reason
 * @pid: thread that opened it, in the reader's pid namespace; 0 if it can't be seen from there
 * @tgid: process that opened it, likewise
 * @client_pid: process that opened it, in its own pid namespace
 * @uid: effective user of the opener, in the reader's user namespace
 * @gid: effective group likewise
 * @reserved: 0
 * @pidns: inode number of the opener's pid namespace
 * @cgroup: id of the opener's cgroup (v2) when it opened
 * @devices: as in struct gleam_info
 * @opened_ns: CLOCK_BOOTTIME when it was opened
 * @doorbells: rings of its client so far
 * @comm: name of the thread that opened it
 * @reserved2: 0
 */
struct gleam_event {
	__u32 type;
	__u32 session;
	__u32 flags;
	__u32 reason;
	__u32 pid;
	__u32 tgid;
	__u32 client_pid;
	__u32 uid;
	__u32 gid;
	__u32 reserved;
	__u64 pidns;
	__u64 cgroup;
	__u64 devices;
	__u64 opened_ns;
	__u64 doorbells;
	char comm[GLEAM_COMM_SIZE];
	__u64 reserved2[4];
};

/**
 * struct gleam_take - the memory of a session, and how its doorbell is heard
 * @session: number of the session
 * @flags: 0
 * @doorbell: eventfd that the client's doorbell signals; -1: by GLEAM_EVENT_DOORBELL
 * @memory: out: a new descriptor (close-on-exec) to mmap(); sealed, so it never shrinks
 */
struct gleam_take {
	__u32 session;
	__u32 flags;
	__s32 doorbell;
	__s32 memory;
};

/**
 * struct gleam_session_ref - names a session
 * @session: number of the session
 * @flags: 0
 */
struct gleam_session_ref {
	__u32 session;
	__u32 flags;
};

#define GLEAM_IOC_TAKE		_IOWR(GLEAM_IOC_TYPE, 0x20, struct gleam_take)
/* Wakes the client: its eventfd, poll() and read(). */
#define GLEAM_IOC_RING		_IOW(GLEAM_IOC_TYPE, 0x21, struct gleam_session_ref)
/* The session is over: its client sees POLLHUP, no event follows. */
#define GLEAM_IOC_END		_IOW(GLEAM_IOC_TYPE, 0x22, struct gleam_session_ref)

/* ---- generic netlink ---- */

#define GLEAM_GENL_NAME		"gleam"
#define GLEAM_GENL_VERSION	1
#define GLEAM_GENL_EVENTS	"events"	/* multicast group; joining takes CAP_NET_ADMIN */

#define GLEAM_NAME_MAX		63	/* bytes of a name, without its end */
#define GLEAM_NO_LIMIT		(~0ULL)

enum gleam_device_state {
	GLEAM_DEVICE_DOWN = 0,		/* its server can't be reached */
	GLEAM_DEVICE_UP = 1,
	GLEAM_DEVICE_DRAINING = 2,	/* takes no new programs */
};

enum gleam_limit_kind {
	GLEAM_LIMIT_UID = 1,
	GLEAM_LIMIT_CGROUP = 2,
};

enum gleam_cmd {
	GLEAM_CMD_UNSPEC,
	GLEAM_CMD_BROKER_GET,
	GLEAM_CMD_SESSION_GET,		/* also as dump */
	GLEAM_CMD_DEVICE_GET,		/* also as dump */
	GLEAM_CMD_DEVICE_ADD,		/* the attached broker alone */
	GLEAM_CMD_DEVICE_SET,		/* the attached broker alone */
	GLEAM_CMD_DEVICE_DEL,		/* the attached broker alone */
	GLEAM_CMD_LIMIT_GET,		/* also as dump */
	GLEAM_CMD_LIMIT_SET,
	/* events */
	GLEAM_CMD_BROKER_NTF,
	GLEAM_CMD_SESSION_ATTACH_NTF,
	GLEAM_CMD_SESSION_DETACH_NTF,
	GLEAM_CMD_DEVICE_ADD_NTF,
	GLEAM_CMD_DEVICE_CHANGE_NTF,
	GLEAM_CMD_DEVICE_DEL_NTF,
	GLEAM_CMD_LIMIT_HIT_NTF,
	__GLEAM_CMD_MAX,
};

#define GLEAM_CMD_MAX (__GLEAM_CMD_MAX - 1)

enum gleam_attr_broker {
	GLEAM_A_BROKER_UNSPEC,
	GLEAM_A_BROKER_ABI,		/* u32 */
	GLEAM_A_BROKER_ATTACHED,	/* u32: 0 or 1 */
	GLEAM_A_BROKER_PID,		/* u32 */
	GLEAM_A_BROKER_SESSIONS,	/* u32 */
	GLEAM_A_BROKER_DEVICES,		/* u64: bit N: /dev/gleam<N> is there */
	GLEAM_A_BROKER_DOORBELLS,	/* u64 */
	GLEAM_A_BROKER_GRACE_MS,	/* u32 */
	GLEAM_A_BROKER_PAD,
	__GLEAM_A_BROKER_MAX,
};

#define GLEAM_A_BROKER_MAX (__GLEAM_A_BROKER_MAX - 1)

enum gleam_attr_session {
	GLEAM_A_SESSION_UNSPEC,
	GLEAM_A_SESSION_ID,		/* u32 */
	GLEAM_A_SESSION_PID,		/* u32 */
	GLEAM_A_SESSION_TGID,		/* u32 */
	GLEAM_A_SESSION_UID,		/* u32 */
	GLEAM_A_SESSION_CGROUP,		/* u64 */
	GLEAM_A_SESSION_PIDNS,		/* u64 */
	GLEAM_A_SESSION_DEVICES,	/* u64 */
	GLEAM_A_SESSION_DOORBELLS,	/* u64 */
	GLEAM_A_SESSION_RINGS,		/* u64 */
	GLEAM_A_SESSION_OPENED_NS,	/* u64 */
	GLEAM_A_SESSION_PAGES,		/* u64 */
	GLEAM_A_SESSION_COMM,		/* string */
	GLEAM_A_SESSION_REASON,		/* u32: enum gleam_detach_reason */
	GLEAM_A_SESSION_PAD,
	__GLEAM_A_SESSION_MAX,
};

#define GLEAM_A_SESSION_MAX (__GLEAM_A_SESSION_MAX - 1)

enum gleam_attr_device {
	GLEAM_A_DEVICE_UNSPEC,
	GLEAM_A_DEVICE_INDEX,		/* u32: N of /dev/gleam<N>; ADD without it: the lowest that is free */
	GLEAM_A_DEVICE_NAME,		/* string: the GPU's */
	GLEAM_A_DEVICE_SERVER,		/* string */
	GLEAM_A_DEVICE_GPU,		/* u32: which of its server's */
	GLEAM_A_DEVICE_MEMORY,		/* u64: bytes */
	GLEAM_A_DEVICE_STATE,		/* u32: enum gleam_device_state */
	GLEAM_A_DEVICE_MODE,		/* u32: permission bits of the node, 0666 if not given; ADD alone */
	GLEAM_A_DEVICE_SESSIONS,	/* u32: opened through it */
	GLEAM_A_DEVICE_PAD,
	__GLEAM_A_DEVICE_MAX,
};

#define GLEAM_A_DEVICE_MAX (__GLEAM_A_DEVICE_MAX - 1)

enum gleam_attr_limit {
	GLEAM_A_LIMIT_UNSPEC,
	GLEAM_A_LIMIT_KIND,		/* u32: enum gleam_limit_kind */
	GLEAM_A_LIMIT_ID,		/* u64: uid, or id of a cgroup (v2) */
	GLEAM_A_LIMIT_SESSIONS_MAX,	/* u64: GLEAM_NO_LIMIT without */
	GLEAM_A_LIMIT_PAGES_MAX,	/* u64: GLEAM_NO_LIMIT without */
	GLEAM_A_LIMIT_SESSIONS,		/* u64: in use */
	GLEAM_A_LIMIT_PAGES,		/* u64: in use */
	GLEAM_A_LIMIT_REFUSED,		/* u64: opens that it refused */
	GLEAM_A_LIMIT_PAD,
	__GLEAM_A_LIMIT_MAX,
};

#define GLEAM_A_LIMIT_MAX (__GLEAM_A_LIMIT_MAX - 1)

#endif /* _UAPI_LINUX_GLEAM_H */
