/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that go along with a packet of a unix socket. Any thread; no state. Who sends keeps its descriptors; who receives owns what
 * it took, and what it has no room for is closed here: a peer can't leave descriptors behind by sending more than it was asked for.
 */
#ifndef GLEAM_LIB_FDPASS_H
#define GLEAM_LIB_FDPASS_H

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FDS_MAX 253u /* of a packet: the kernel's SCM_MAX_FD */
#define FDS_SIZE(count) CMSG_SPACE((count) * sizeof(int))

/* Where descriptors lie beside a packet: @most of them at most. The kernel's alignment lets one more come in than it was made for. */
#define FDS_ROOM(most)                                                                       \
	struct {                                                                             \
		char bytes[FDS_SIZE(most)] __attribute__((aligned(__alignof__(struct cmsghdr)))); \
	}

/* Lets @fds go along with @msg. @room, of FDS_SIZE(count) bytes, is borrowed until it is sent. */
static inline void fds_put(struct msghdr *msg, void *room, const int *fds, unsigned int count)
{
	struct cmsghdr *head = room;

	msg->msg_control = count ? room : NULL;
	msg->msg_controllen = count ? FDS_SIZE(count) : 0;
	if (!count)
		return;
	memset(room, 0, FDS_SIZE(count));
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(head), fds, count * sizeof(int));
}

/* What came along with a received @msg: the first @most are the caller's, the rest is closed. How many it has; the others of @fds_out are -1. */
static inline unsigned int fds_take(struct msghdr *msg, int *fds_out, unsigned int most)
{
	unsigned int taken = 0;

	for (struct cmsghdr *head = CMSG_FIRSTHDR(msg); head; head = CMSG_NXTHDR(msg, head)) {
		if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (head->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(fd));
			if (taken < most)
				fds_out[taken++] = fd;
			else
				close(fd);
		}
	}
	for (unsigned int i = taken; i < most; i++)
		fds_out[i] = -1;
	return taken;
}

/* A packet of @size bytes, FDS_MAX descriptors at most. 0 or -errno; @flags beside MSG_NOSIGNAL. */
static inline int fds_send(int to, const void *bytes, size_t size, const int *fds, unsigned int count, int flags)
{
	FDS_ROOM(FDS_MAX) room;
	struct iovec iov = { .iov_base = (void *)bytes, .iov_len = size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t sent;

	if (count > FDS_MAX)
		return -EINVAL;
	fds_put(&msg, &room, fds, count);
	do
		sent = sendmsg(to, &msg, flags | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return -errno;
	return (size_t)sent == size ? 0 : -EMSGSIZE;
}

/*
 * The next packet and its first @most descriptors, the others of @fds_out being -1. Its size, or -errno; 0 when the peer has closed, or
 * has sent a packet of nothing, and then nothing came along.
 */
static inline ssize_t fds_recv(int from, void *bytes, size_t size, int *fds_out, unsigned int most, int flags)
{
	FDS_ROOM(FDS_MAX) room;
	struct iovec iov = { .iov_base = bytes, .iov_len = size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof(room) };
	ssize_t got;

	for (unsigned int i = 0; i < most; i++)
		fds_out[i] = -1;
	do
		got = recvmsg(from, &msg, flags | MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	fds_take(&msg, fds_out, got ? most : 0);
	return got;
}

#endif
