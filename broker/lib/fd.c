/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors and whole files. Any thread. */
#include "broker/lib/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

void fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

int fd_write_all(int fd, const void *bytes, size_t size)
{
	const char *at = bytes;

	while (size) {
		ssize_t n = write(fd, at, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		at += n;
		size -= (size_t)n;
	}
	return 0;
}

int fd_read_file(const char *path, size_t size_max, char **text_out, size_t *size_out)
{
	/* O_NONBLOCK: a named pipe in its place must not hold a daemon's start up. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	int err = 0;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
		close(fd);
		return -EISDIR;
	}

	char *text = malloc(size_max + 2);
	size_t size = 0;

	if (!text) {
		close(fd);
		return -ENOMEM;
	}
	while (size <= size_max) {
		ssize_t n = read(fd, text + size, size_max + 1 - size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			err = -errno;
		if (n <= 0)
			break;
		size += (size_t)n;
	}
	close(fd);
	if (!err && size > size_max)
		err = -EFBIG;
	if (err) {
		free(text);
		return err;
	}
	text[size] = 0;
	*text_out = text;
	*size_out = size;
	return 0;
}
