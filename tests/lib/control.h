/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A control socket for test tools: a unix SOCK_SEQPACKET socket, one request line and one reply per
 * connection. A reply begins with "ok" or "error". It can carry descriptors. Belongs to the thread of its
 * owner's loop; nothing here blocks, except control_ask().
 */
#ifndef TESTS_LIB_CONTROL_H
#define TESTS_LIB_CONTROL_H

#include <stddef.h>

#define CONTROL_REQUEST_MAX 512
#define CONTROL_REPLY_MAX   4096
#define CONTROL_FD_MAX	    4

/* A listening descriptor (for its owner alone, mode 0600), or -errno. Removes what was at @path before. */
int control_listen(const char *path);

/* The next connection, or -errno (-EAGAIN: none). */
int control_accept(int listen_fd);

/* Fills @request with the line of @conn_fd, without its newline; its length or -errno (-EAGAIN: not yet). */
int control_receive(int conn_fd, char *request, size_t size);

/* Sends @text, with copies of @fds, and closes @conn_fd. */
void control_reply(int conn_fd, const char *text, const int *fds, int fd_count);

/*
 * The client: asks and waits, 5 s at most. 0 or -errno; -EBADMSG if there was no proper answer. The caller
 * owns the descriptors it gets, at most *@fd_count of them; their number is left there.
 */
int control_ask(const char *path, const char *request, char *reply, size_t reply_size, int *fds,
		int *fd_count);

#endif
