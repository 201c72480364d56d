// SPDX-License-Identifier: Apache-2.0
/* gleamctl key: makes the key that daemons share, and shows which one a file holds. One thread. */
#include "broker/lib/key.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/gleamctl/gleamctl.h"

#define KEY_PATH_SYSTEM "/etc/gleam/key"
#define TENANT_DEFAULT	"default"
#define PATH_SIZE	4096

/* Root's is the machine's; a user's own daemon finds its own. */
static int key_path(const struct options *options, char *out, size_t size)
{
	const char *config = getenv("XDG_CONFIG_HOME");
	const char *home = getenv("HOME");
	int n;

	if (options->count > 1)
		n = snprintf(out, size, "%s", options->words[1]);
	else if (geteuid() == 0)
		n = snprintf(out, size, KEY_PATH_SYSTEM);
	else if (config && *config == '/')
		n = snprintf(out, size, "%s/gleam/key", config);
	else if (home && *home)
		n = snprintf(out, size, "%s/.config/gleam/key", home);
	else
		return failed("HOME is not set: name a file, as in gleamctl key %s FILE", options->words[0]);
	return n < 0 || (size_t)n >= size ? failed("the file's path has more than %zu bytes", size - 1) : 0;
}

/* The folders of a default place; one that somebody names exists, or is a mistake. */
static void folders_make(char *path)
{
	for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		/* Under .config only the user looks; /etc/gleam holds the configuration, too. */
		mkdir(path, geteuid() == 0 ? 0755 : 0700);
		*slash = '/';
	}
}

static int key_new(const struct options *options, char *path)
{
	const char *tenant = options->tenant ? options->tenant : TENANT_DEFAULT;
	struct key key;
	struct stat st;
	int err;

	if (lstat(path, &st) == 0)
		return failed("%s is there already and is not overwritten; look at it with `gleamctl key show %s`, or name "
			      "another file", path, path);
	if (key_make(tenant, &key) == -EINVAL)
		return misused("key", "`%s` can't be a tenant's name: letters, digits, `.`, `_` and `-`, at most %d of them",
			       tenant, KEY_TENANT_SIZE - 1);
	if (options->count < 2)
		folders_make(path);
	err = key_write(path, &key);
	key_wipe(&key);
	if (err)
		return failed("can't write %s: %s%s", path, strerror(-err),
			      err == -ENOENT ? "; make its folder first" : err == -EACCES ? "; be root, or name a file of your own" : "");
	if (options->json)
		return json_show(json_pack("{s:s, s:s, s:s}", "file", path, "tenant", key.tenant, "id", key.id));
	printf("%s: a new key, tenant %s, id %s\n", path, key.tenant, key.id);
	printf("Copy this file to the other machines over a safe way, as in\n"
	       "  scp -p %s root@SERVER:" KEY_PATH_SYSTEM "\n"
	       "and tell each gleamd of it: [key] file = PATH in its configuration, or --key PATH. A server that serves several\n"
	       "tenants has the lines of all of them in its file.\n",
	       path);
	return output_end();
}

static int key_show(const struct options *options, const char *path)
{
	struct key *keys = calloc(KEYS_MAX, sizeof(*keys));
	json_t *list = json_array();
	char why[PATH_SIZE + 200];
	size_t count = 0;
	int err = keys ? key_read(path, keys, KEYS_MAX, &count, why, sizeof(why)) : -ENOMEM;

	if (err) {
		free(keys);
		json_decref(list);
		return failed("%s", err == -ENOMEM ? "out of memory" : why);
	}
	for (size_t i = 0; i < count; i++) {
		json_array_append_new(list, json_pack("{s:s, s:s}", "tenant", keys[i].tenant, "id", keys[i].id));
		if (!options->json)
			printf("tenant %s, id %s%s\n", keys[i].tenant, keys[i].id,
			       count > 1 && i == 0 ? " (the one that this machine's programs use)" : "");
		key_wipe(&keys[i]);
	}
	free(keys);
	if (options->json)
		return json_show(json_pack("{s:s, s:o}", "file", path, "keys", list));
	json_decref(list);
	return output_end();
}

int key_command(const struct options *options)
{
	char path[PATH_SIZE];
	int status;

	if (strcmp(options->words[0], "new") != 0 && strcmp(options->words[0], "show") != 0)
		return misused("key", "`%s` is neither new nor show", options->words[0]);
	if (options->tenant && strcmp(options->words[0], "show") == 0)
		return misused("key", "--tenant is for key new");
	status = key_path(options, path, sizeof(path));
	if (status)
		return status;
	return strcmp(options->words[0], "new") == 0 ? key_new(options, path) : key_show(options, path);
}
