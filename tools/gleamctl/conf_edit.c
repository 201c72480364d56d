// SPDX-License-Identifier: Apache-2.0
/* Changing one setting of gleam.conf. One thread; see conf_edit.h. */
#include "tools/gleamctl/conf_edit.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/lib/conf.h"
#include "broker/lib/fd.h"

static const char *skip_space(const char *at)
{
	while (*at == ' ' || *at == '\t')
		at++;
	return at;
}

/* Whether the line at @at is [section]. */
static bool is_heading(const char *at, const char *section)
{
	size_t length = strlen(section);

	at = skip_space(at);
	return *at == '[' && strncmp(at + 1, section, length) == 0 && at[1 + length] == ']';
}

/* Whether the line at @at sets @name; then where its value begins. */
static const char *is_setting(const char *at, const char *name)
{
	size_t length = strlen(name);

	at = skip_space(at);
	if (strncmp(at, name, length) != 0)
		return NULL;
	at = skip_space(at + length);
	return *at == '=' || *at == ':' ? skip_space(at + 1) : NULL;
}

static const char *line_next(const char *at)
{
	const char *end = strchr(at, '\n');

	return end ? end + 1 : at + strlen(at);
}

/* Where a line that sets @name is, or NULL; @head_out: behind the section's heading, or NULL. */
static const char *find(const char *text, const char *section, const char *name, const char **head_out)
{
	bool within = false;

	*head_out = NULL;
	for (const char *at = text; *at; at = line_next(at)) {
		if (*skip_space(at) == '[') {
			within = is_heading(at, section);
			if (within && !*head_out)
				*head_out = line_next(at);
		} else if (within && is_setting(at, name)) {
			return at;
		}
	}
	return NULL;
}

char *conf_edit(const char *text, const char *section, const char *name, const char *value)
{
	const char *head, *line = find(text, section, name, &head);
	const char *at = line ? line : head;
	/* A last line without its end gets one. */
	const char *gap = at ? (at > text && at[-1] != '\n' ? "\n" : "") : *text && text[strlen(text) - 1] != '\n' ? "\n" : "";
	char *out;
	int n;

	if (at)
		n = asprintf(&out, "%.*s%s%s = %s\n%s", (int)(at - text), text, gap, name, value, line ? line_next(line) : at);
	else
		n = asprintf(&out, "%s%s%s[%s]\n%s = %s\n", text, gap, *text ? "\n" : "", section, name, value);
	return n < 0 ? NULL : out;
}

char *conf_value(const char *text, const char *section, const char *name)
{
	const char *head, *line = find(text, section, name, &head);
	const char *value = line ? is_setting(line, name) : NULL;
	size_t length = value ? strcspn(value, "\n") : 0;

	while (length && isspace((unsigned char)value[length - 1]))
		length--;
	return value ? strndup(value, length) : NULL;
}

char *conf_text(const char *path, int *err_out)
{
	char *text = NULL;
	size_t size;
	int err = fd_read_file(path, CONF_FILE_MAX, &text, &size);

	if (err == -ENOENT)
		return strdup("");
	if (err)
		*err_out = err;
	return err ? NULL : text;
}

static void folder_make(const char *path)
{
	char folder[PATH_MAX];

	snprintf(folder, sizeof(folder), "%s", path);
	for (char *slash = folder + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		mkdir(folder, 0755);
		*slash = '/';
	}
}

int conf_replace(const char *path, const char *text)
{
	struct stat st = { .st_mode = 0644, .st_uid = geteuid(), .st_gid = getegid() };
	char fresh[PATH_MAX];
	size_t size = strlen(text);
	int fd, err = 0;

	folder_make(path);
	(void)!stat(path, &st);
	if ((size_t)snprintf(fresh, sizeof(fresh), "%s.%d", path, getpid()) >= sizeof(fresh))
		return -ENAMETOOLONG;
	fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, st.st_mode & 0777);
	if (fd < 0)
		return -errno;
	if (fchmod(fd, st.st_mode & 07777) < 0 || (geteuid() == 0 && fchown(fd, st.st_uid, st.st_gid) < 0) ||
	    write(fd, text, size) != (ssize_t)size || fsync(fd) < 0)
		err = errno ? -errno : -EIO;
	if (close(fd) < 0 && !err)
		err = -errno;
	if (!err && rename(fresh, path) < 0)
		err = -errno;
	if (err)
		unlink(fresh);
	return err;
}
