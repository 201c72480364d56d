/* SPDX-License-Identifier: Apache-2.0 */
/* A control socket for test tools; see control.h. */
#include "tests/lib/control.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "broker/lib/fdpass.h"

#define ASK_TIMEOUT_MS 5000
#define BACKLOG	       8

static int fill_address(const char *path, struct sockaddr_un *address)
{
	size_t length = strlen(path);

	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	if (length == 0 || length >= sizeof(address->sun_path))
		return -ENAMETOOLONG;
	memcpy(address->sun_path, path, length);
	return 0;
}

int control_listen(const char *path)
{
	struct sockaddr_un address;
	struct stat st;
	int fd, err = fill_address(path, &address);
	mode_t mask;

	if (err)
		return err;
	/* Never removes anything but a socket, whatever path was given. */
	if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
		unlink(path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	mask = umask(0177);
	err = bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
	umask(mask);
	if (!err && listen(fd, BACKLOG) < 0)
		err = -errno;
	if (err) {
		close(fd);
		return err;
	}
	return fd;
}

int control_accept(int listen_fd)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

int control_receive(int conn_fd, char *request, size_t size)
{
	ssize_t length = recv(conn_fd, request, size - 1, MSG_TRUNC);

	if (length < 0)
		return -errno;
	if ((size_t)length > size - 1)
		return -EMSGSIZE;
	while (length > 0 && (request[length - 1] == '\n' || request[length - 1] == 0))
		length--;
	request[length] = 0;
	return length;
}

void control_reply(int conn_fd, const char *text, const int *fds, int fd_count)
{
	/* Who doesn't wait for its answer gets none. */
	(void)fds_send(conn_fd, text, strlen(text), fds, (unsigned int)MIN(fd_count, CONTROL_FD_MAX), MSG_DONTWAIT);
	close(conn_fd);
}

static int receive_reply(int fd, char *reply, size_t reply_size, int *fds, int *fd_count)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
	int room = fd_count ? *fd_count : 0;
	ssize_t length;
	int ready = poll(&poll_fd, 1, ASK_TIMEOUT_MS);

	if (ready < 0)
		return -errno;
	if (ready == 0)
		return -ETIMEDOUT;
	length = fds_recv(fd, reply, reply_size - 1, fds, (unsigned int)room, 0);
	if (length < 0)
		return (int)length;
	if (length == 0)
		return -EBADMSG;
	reply[length] = 0;
	if (fd_count)
		for (*fd_count = 0; *fd_count < room && fds[*fd_count] >= 0;)
			++*fd_count;
	return 0;
}

int control_ask(const char *path, const char *request, char *reply, size_t reply_size, int *fds,
		int *fd_count)
{
	struct sockaddr_un address;
	int fd, err = fill_address(path, &address);

	if (err)
		return err;
	if (strlen(request) >= CONTROL_REQUEST_MAX)
		return -EMSGSIZE;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    send(fd, request, strlen(request), MSG_NOSIGNAL) < 0)
		err = -errno;
	else
		err = receive_reply(fd, reply, reply_size, fds, fd_count);
	close(fd);
	return err;
}
