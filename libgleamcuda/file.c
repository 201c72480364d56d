// SPDX-License-Identifier: Apache-2.0
/* Reading of image files. Any thread. */
#include "libgleamcuda/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/lib/fatbin.h"

CUresult file_read(const char *path, void **bytes_out, uint64_t *size_out)
{
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	char *bytes = NULL;
	uint64_t at = 0;
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		return errno == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_FILE_NOT_FOUND;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		goto close_fd;
	if ((uint64_t)st.st_size > FATBIN_IMAGE_MAX) {
		result = CUDA_ERROR_INVALID_IMAGE;
		goto close_fd;
	}
	bytes = malloc((size_t)st.st_size + 1);
	if (!bytes)
		goto close_fd;
	while (at < (uint64_t)st.st_size) {
		ssize_t got = read(fd, bytes + at, (size_t)st.st_size - at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			goto close_fd;
		if (got == 0)
			break; /* it has become shorter */
		at += (uint64_t)got;
	}
	bytes[at] = '\0';
	*bytes_out = bytes;
	*size_out = at + 1;
	close(fd);
	return CUDA_SUCCESS;

close_fd:
	free(bytes);
	close(fd);
	return result;
}
