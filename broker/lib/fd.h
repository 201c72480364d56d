/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors: closed is -1. Any thread. */
#ifndef GLEAM_LIB_FD_H
#define GLEAM_LIB_FD_H

#include <stddef.h>

/* Closes *@fd if it is open, and forgets it. */
void fd_close(int *fd);
/* Every byte, or -errno. */
int fd_write_all(int fd, const void *bytes, size_t size);
/* A whole file of at most @size_max bytes, terminated; free() it. -EFBIG when it is longer. */
int fd_read_file(const char *path, size_t size_max, char **text_out, size_t *size_out);

#endif
