/* SPDX-License-Identifier: Apache-2.0 */
/* Key files: made, written, read. Any thread. */
#include "broker/lib/key.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/lib/fd.h"

#define KEY_MARK      "gleam-key-1"
#define KEY_FILE_MAX  (KEYS_MAX * 256u)

static int tenant_check(const char *tenant)
{
	size_t size = strlen(tenant);

	if (size == 0 || size >= KEY_TENANT_SIZE)
		return -EINVAL;
	for (size_t i = 0; i < size; i++) {
		if (!isalnum((unsigned char)tenant[i]) && !strchr("._-", tenant[i]))
			return -EINVAL;
	}
	return 0;
}

static int hex_value(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'a' && digit <= 'f')
		return digit - 'a' + 10;
	return -1;
}

static int hex_parse(const char *text, uint8_t *bytes_out, size_t size)
{
	if (strlen(text) != 2 * size)
		return -EINVAL;
	for (size_t i = 0; i < size; i++) {
		int high = hex_value(text[2 * i]);
		int low = hex_value(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -EINVAL;
		bytes_out[i] = (uint8_t)(high << 4 | low);
	}
	return 0;
}

static void hex_print(const uint8_t *bytes, size_t size, char *text)
{
	for (size_t i = 0; i < size; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

int key_make(const char *tenant, struct key *key_out)
{
	struct key key = { 0 };
	uint8_t id[(KEY_ID_SIZE - 1) / 2];

	if (tenant_check(tenant))
		return -EINVAL;
	if (getrandom(key.secret, sizeof(key.secret), 0) != (ssize_t)sizeof(key.secret) ||
	    getrandom(id, sizeof(id), 0) != (ssize_t)sizeof(id))
		return -EIO;
	snprintf(key.tenant, sizeof(key.tenant), "%s", tenant);
	hex_print(id, sizeof(id), key.id);
	*key_out = key;
	key_wipe(&key);
	return 0;
}

void key_line(const struct key *key, char line_out[KEY_LINE_SIZE])
{
	char secret[2 * KEY_SECRET_SIZE + 1];

	hex_print(key->secret, sizeof(key->secret), secret);
	snprintf(line_out, KEY_LINE_SIZE, KEY_MARK " %s %s %s", key->tenant, key->id, secret);
	explicit_bzero(secret, sizeof(secret));
}

int key_write(const char *path, const struct key *key)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	char line[KEY_LINE_SIZE + 1];
	struct stat st;
	int err;

	if (fd < 0)
		return -errno;
	/* A secret isn't put where others may read it already. */
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (st.st_mode & 077)) {
		close(fd);
		return -EPERM;
	}
	key_line(key, line);
	strcat(line, "\n");
	err = fd_write_all(fd, line, strlen(line));
	if (!err && fsync(fd) < 0)
		err = -errno;
	close(fd);
	explicit_bzero(line, sizeof(line));
	return err;
}

int key_parse(const char *path, char *text, struct key *keys, size_t count_max, size_t *count_out, char *why,
	      size_t why_size)
{
	size_t count = 0;
	int number = 0;
	char *rest = text;

	for (char *line; (line = strsep(&rest, "\n"));) {
		struct key key = { 0 };
		char *words[4] = { 0 };
		int n = 0;

		number++;
		for (char *word; (word = strsep(&line, " \t\r"));) {
			if (*word == 0)
				continue;
			if (n == 4) {
				n = 5;
				break;
			}
			words[n++] = word;
		}
		if (n == 0 || words[0][0] == '#')
			continue;
		if (n != 4 || strcmp(words[0], KEY_MARK) != 0 || tenant_check(words[1]) ||
		    strlen(words[2]) != KEY_ID_SIZE - 1 || strspn(words[2], "0123456789abcdef") != KEY_ID_SIZE - 1 ||
		    hex_parse(words[3], key.secret, sizeof(key.secret))) {
			snprintf(why, why_size,
				 "%s:%d: not a key; a line is `" KEY_MARK " TENANT ID SECRET`, as `gleamctl key new` makes it",
				 path, number);
			return -EINVAL;
		}
		snprintf(key.tenant, sizeof(key.tenant), "%s", words[1]);
		snprintf(key.id, sizeof(key.id), "%s", words[2]);
		for (size_t i = 0; i < count; i++) {
			if (strcmp(keys[i].id, key.id) == 0) {
				snprintf(why, why_size, "%s:%d: the key id %s is there twice", path, number, key.id);
				return -EEXIST;
			}
		}
		if (count == count_max) {
			snprintf(why, why_size, "%s:%d: more than %zu keys", path, number, count_max);
			return -E2BIG;
		}
		keys[count++] = key;
		key_wipe(&key);
	}
	if (count == 0) {
		snprintf(why, why_size, "%s: holds no key; make one with `gleamctl key new`", path);
		return -ENOENT;
	}
	*count_out = count;
	return 0;
}

int key_read(const char *path, struct key *keys, size_t count_max, size_t *count_out, char *why, size_t why_size)
{
	struct stat st;
	char *text;
	size_t size;

	if (stat(path, &st) == 0 && (st.st_mode & 077)) {
		snprintf(why, why_size, "%s: others may read this key (mode %03o); chmod 600 %s", path,
			 (unsigned)st.st_mode & 0777u, path);
		return -EPERM;
	}

	int err = fd_read_file(path, KEY_FILE_MAX, &text, &size);

	if (err) {
		snprintf(why, why_size, "%s: can't read the key: %s", path, strerror(-err));
		return err;
	}
	if (strlen(text) != size) {
		snprintf(why, why_size, "%s: not a text file", path);
		err = -EINVAL;
	} else {
		err = key_parse(path, text, keys, count_max, count_out, why, why_size);
	}
	explicit_bzero(text, size);
	free(text);
	return err;
}

void key_wipe(struct key *key)
{
	explicit_bzero(key->secret, sizeof(key->secret));
}
