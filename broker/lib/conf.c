/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of gleamd. At start; see conf.h. */
#include "broker/lib/conf.h"

#include <errno.h>
#include <ini.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/lib/fd.h"
#include "broker/proto/wire.h"

#define CONF_CACHE_MAX	   (1ull << 44) /* 16 TiB */
#define CONF_CACHE_MEMORY  (16ull << 30) /* unless told: an eighth of the machine's memory, this at most */
#define CONF_CACHE_DISK	   (32ull << 30) /* unless told */
#define CONF_CACHE_SYSTEM  "/var/cache/gleam"
#define CONF_LINE_MAX 190 /* libinih's own limit is 200, and it cuts what is longer without a word */

/* A lane's thread encrypts 2 GB/s at most: four are less than a large machine's memory gives. */
#define LANES_MANY_CORES 16

void conf_init(struct conf *conf)
{
	*conf = (struct conf){
		.log = LOG_LEVEL_INFO,
		.warm = 1,
		.sessions_max = 256,
		.link_sessions_max = 256,
		.lanes = sysconf(_SC_NPROCESSORS_ONLN) >= LANES_MANY_CORES ? 8 : 4,
		.direct = true,
		.compress = true,
		.keepalive_ms = 15000, /* with a quarter for the tick: a dead peer is noticed in less than 20 s */
		.grace_ms = 20000,
		.hold_ms = 600000,
		.driver = "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
		.cache_memory = CONF_UNSET,
		.cache_disk = CONF_UNSET,
		.cache_verdicts = 64u << 20,
		.mount = "/gleam",
		.policy = "cost",
	};
}

static int text_set(char *place, size_t size, const char *value, char *why, size_t why_size)
{
	if (*value == 0 || strlen(value) >= size) {
		snprintf(why, why_size, "the value is %s", *value ? "too long" : "empty");
		return -EINVAL;
	}
	strcpy(place, value);
	return 0;
}

static int number_parse(const char *value, uint64_t least, uint64_t most, uint64_t *out, char *why, size_t why_size)
{
	char *end;
	unsigned long long number;

	errno = 0;
	number = strtoull(value, &end, 10);
	if (*value < '0' || *value > '9' || *end || errno || number < least || number > most) {
		snprintf(why, why_size, "`%s` is not a number from %llu to %llu", value, (unsigned long long)least,
			 (unsigned long long)most);
		return -EINVAL;
	}
	*out = number;
	return 0;
}

static int count_set(unsigned *place, const char *value, unsigned least, unsigned most, char *why, size_t why_size)
{
	uint64_t number;
	int err = number_parse(value, least, most, &number, why, why_size);

	if (!err)
		*place = (unsigned)number;
	return err;
}

static int switch_set(bool *place, const char *value, char *why, size_t why_size)
{
	if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0) {
		snprintf(why, why_size, "`%s` is not yes or no", value);
		return -EINVAL;
	}
	*place = *value == 'y';
	return 0;
}

/* Seconds, with up to three decimals. */
static int seconds_set(uint64_t *place, const char *value, uint64_t least_ms, uint64_t most_ms, char *why, size_t why_size)
{
	char *end;
	double seconds = strtod(value, &end);

	if (*value < '0' || *value > '9' || *end || !(seconds * 1000 >= (double)least_ms) ||
	    !(seconds * 1000 <= (double)most_ms)) {
		snprintf(why, why_size, "`%s` is not a number of seconds from %g to %g", value, (double)least_ms / 1000,
			 (double)most_ms / 1000);
		return -EINVAL;
	}
	*place = (uint64_t)(seconds * 1000 + 0.5);
	return 0;
}

/* A factor, or `measure`. */
static int speed_set(double *place, const char *value, char *why, size_t why_size)
{
	char *end;
	double speed = strtod(value, &end);

	if (strcmp(value, "measure") == 0) {
		*place = 0;
		return 0;
	}
	if (*value < '0' || *value > '9' || *end || !(speed >= 1e-6) || !(speed <= 1000)) {
		snprintf(why, why_size, "`%s` is neither a number from 0.000001 to 1000 nor `measure`", value);
		return -EINVAL;
	}
	*place = speed;
	return 0;
}

/* Bytes, with K, M, G or T behind the number. */
static int bytes_set(uint64_t *place, const char *value, uint64_t most, char *why, size_t why_size)
{
	static const char units[] = "KMGT";
	char *end;
	unsigned long long number;
	const char *unit;
	unsigned shift = 0;

	errno = 0;
	number = strtoull(value, &end, 10);
	unit = *end ? strchr(units, *end) : NULL;
	if (unit) {
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
	}
	if (*value < '0' || *value > '9' || *end || errno || number > most >> shift) {
		snprintf(why, why_size, "`%s` is not a number of bytes up to %lluG, such as 512M or 20G", value,
			 (unsigned long long)(most >> 30));
		return -EINVAL;
	}
	*place = (uint64_t)number << shift;
	return 0;
}

int conf_cache_use_parse(const char *value, enum conf_cache_use *use_out)
{
	if (strcmp(value, "auto") == 0)
		*use_out = CACHE_AUTO;
	else if (strcmp(value, "on") == 0)
		*use_out = CACHE_ON;
	else if (strcmp(value, "off") == 0)
		*use_out = CACHE_OFF;
	else
		return -EINVAL;
	return 0;
}

/* A name that can be a file's, as in /gleam/servers. */
static int server_set(struct conf *conf, const char *name, const char *value, char *why, size_t why_size)
{
	struct conf_server *server = NULL;

	if (*name == 0 || *name == '.' || strlen(name) >= CONF_NAME_SIZE || strchr(name, '/') || strchr(name, ' ')) {
		snprintf(why, why_size, "`%s` can't be a server's name", name);
		return -EINVAL;
	}
	for (unsigned i = 0; i < conf->server_count; i++)
		if (strcmp(conf->servers[i].name, name) == 0)
			server = &conf->servers[i];
	if (!server && conf->server_count == CONF_SERVERS_MAX) {
		snprintf(why, why_size, "more than %d servers", CONF_SERVERS_MAX);
		return -EINVAL;
	}
	if (!server)
		server = &conf->servers[conf->server_count];

	int err = text_set(server->address, sizeof(server->address), value, why, why_size);

	if (!err && strcmp(server->name, name) != 0) {
		strcpy(server->name, name);
		conf->server_count++;
	}
	return err;
}

/* A name that is looked for, and what it was compared with in vain: that is told to whoever has written something else. */
struct wanted {
	const char *section;
	const char *name;
	char names[256];    /* of its section */
	char sections[128]; /* of all */
};

static void list_add(char *list, size_t size, const char *before, const char *word, const char *after)
{
	char one[80], *at = list;

	snprintf(one, sizeof(one), "%s%s%s", before, word, after);
	while ((at = strstr(at, one))) {
		if ((at == list || at[-1] == ' ') && (at[strlen(one)] == ',' || !at[strlen(one)]))
			return;
		at++;
	}
	snprintf(list + strlen(list), size - strlen(list), "%s%s", *list ? ", " : "", one);
}

static bool is(struct wanted *wanted, const char *section, const char *name)
{
	list_add(wanted->sections, sizeof(wanted->sections), "[", section, "]");
	if (strcmp(wanted->section, section) != 0)
		return false;
	list_add(wanted->names, sizeof(wanted->names), "", name, "");
	return strcmp(wanted->name, name) == 0;
}

int conf_set(struct conf *conf, const char *section, const char *name, const char *value, char *why, size_t why_size)
{
	struct wanted wanted = { .section = section, .name = name, .sections = "[servers]" };
#define IS(s, n) is(&wanted, s, n)
	if (strcmp(section, "servers") == 0)
		return server_set(conf, name, value, why, why_size);
	if (IS("daemon", "socket"))
		return text_set(conf->socket, sizeof(conf->socket), value, why, why_size);
	if (IS("daemon", "log")) {
		if (log_level_parse(value, &conf->log) == 0)
			return 0;
		snprintf(why, why_size, "`%s` is not error, warn, info or debug", value);
		return -EINVAL;
	}
	if (IS("node", "listen"))
		return text_set(conf->listen, sizeof(conf->listen), value, why, why_size);
	if (IS("node", "driver"))
		return text_set(conf->driver, sizeof(conf->driver), value, why, why_size);
	if (IS("node", "worker"))
		return text_set(conf->worker, sizeof(conf->worker), value, why, why_size);
	if (IS("node", "user"))
		return text_set(conf->user, sizeof(conf->user), value, why, why_size);
	if (IS("node", "warm"))
		return count_set(&conf->warm, value, 0, 64, why, why_size);
	if (IS("node", "speed"))
		return speed_set(&conf->speed, value, why, why_size);
	if (IS("scheduler", "policy"))
		return text_set(conf->policy, sizeof(conf->policy), value, why, why_size);
	if (IS("scheduler", "migrate")) {
		if (strcmp(value, "auto") != 0 && strcmp(value, "off") != 0) {
			snprintf(why, why_size, "`%s` is not auto or off", value);
			return -EINVAL;
		}
		conf->migrate = strcmp(value, "auto") == 0;
		return 0;
	}
	if (IS("scheduler", "discover"))
		return switch_set(&conf->discover, value, why, why_size);
	if (IS("scheduler", "profiles"))
		return text_set(conf->profiles, sizeof(conf->profiles), value, why, why_size);
	if (IS("node", "sessions"))
		return count_set(&conf->sessions_max, value, 1, 4096, why, why_size);
	if (IS("node", "sessions_per_link"))
		return count_set(&conf->link_sessions_max, value, 1, 4096, why, why_size);
	if (IS("link", "lanes"))
		return count_set(&conf->lanes, value, 1, LINK_LANES_MAX, why, why_size);
	if (IS("link", "keepalive"))
		return seconds_set(&conf->keepalive_ms, value, 1000, 3600000, why, why_size);
	if (IS("link", "grace"))
		return seconds_set(&conf->grace_ms, value, 0, 3600000, why, why_size);
	if (IS("link", "hold"))
		return seconds_set(&conf->hold_ms, value, 0, 86400000, why, why_size);
	if (IS("link", "compress")) {
		if (strcmp(value, "auto") != 0 && strcmp(value, "off") != 0) {
			snprintf(why, why_size, "`%s` is not auto or off", value);
			return -EINVAL;
		}
		conf->compress = *value == 'a';
		return 0;
	}
	if (IS("link", "direct"))
		return switch_set(&conf->direct, value, why, why_size);
	if (IS("cache", "use")) {
		if (conf_cache_use_parse(value, &conf->cache_use) == 0)
			return 0;
		snprintf(why, why_size, "`%s` is not auto, on or off", value);
		return -EINVAL;
	}
	if (IS("cache", "memory"))
		return bytes_set(&conf->cache_memory, value, CONF_CACHE_MAX, why, why_size);
	if (IS("cache", "disk"))
		return bytes_set(&conf->cache_disk, value, CONF_CACHE_MAX, why, why_size);
	if (IS("cache", "verdicts"))
		return bytes_set(&conf->cache_verdicts, value, CONF_CACHE_MAX, why, why_size);
	if (IS("cache", "dir"))
		return text_set(conf->cache_dir, sizeof(conf->cache_dir), value, why, why_size);
	if (IS("key", "file"))
		return text_set(conf->key_file, sizeof(conf->key_file), value, why, why_size);
	if (IS("tree", "mount")) {
		if (strcmp(value, "no") == 0) {
			conf->mount[0] = 0;
			return 0;
		}
		return text_set(conf->mount, sizeof(conf->mount), value, why, why_size);
	}
#undef IS
	if (*wanted.names)
		snprintf(why, why_size, "there is no setting `%s` in [%s]; it has %s", name, section, wanted.names);
	else
		snprintf(why, why_size, "there is no section [%s]; there are %s", section, wanted.sections);
	return -EINVAL;
}

struct conf_reading {
	struct conf *conf;
	char *why;
	size_t why_size;
	bool failed;
};

static int conf_handle(void *user, const char *section, const char *name, const char *value)
{
	struct conf_reading *reading = user;

	/* The first mistake is the one that is told; its line number is what ini_parse_string() returns. */
	if (reading->failed)
		return 1;
	if (conf_set(reading->conf, section, name, value ? value : "", reading->why, reading->why_size) == 0)
		return 1;
	reading->failed = true;
	return 0;
}

int conf_parse(struct conf *conf, const char *path, const char *text, char *why, size_t why_size)
{
	char what[256] = "";
	struct conf_reading reading = { .conf = conf, .why = what, .why_size = sizeof(what) };
	int number = 1;

	for (const char *line = text; *line; number++) {
		size_t size = strcspn(line, "\n");

		if (size > CONF_LINE_MAX) {
			snprintf(why, why_size, "%s:%d: the line has more than %d bytes", path, number, CONF_LINE_MAX);
			return -EINVAL;
		}
		line += size + (line[size] != 0);
	}

	int line = ini_parse_string(text, conf_handle, &reading);

	if (line == 0)
		return 0;
	if (line < 0) {
		snprintf(why, why_size, "%s: out of memory", path);
		return -ENOMEM;
	}
	snprintf(why, why_size, "%s:%d: %s", path, line,
		 reading.failed ? what : "not a setting; a line is `name = value`, or `[section]`");
	return -EINVAL;
}

int conf_read(struct conf *conf, const char *path, char *why, size_t why_size)
{
	char *text;
	size_t size;
	int err = fd_read_file(path, CONF_FILE_MAX, &text, &size);

	if (err) {
		snprintf(why, why_size, "can't read the configuration %s: %s", path, strerror(-err));
		return err;
	}
	if (strlen(text) != size) {
		snprintf(why, why_size, "%s: not a text file", path);
		err = -EINVAL;
	} else {
		err = conf_parse(conf, path, text, why, why_size);
	}
	free(text);
	return err;
}

uint64_t conf_cache_memory(const struct conf *conf)
{
	uint64_t have = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 8;

	if (conf->cache_use == CACHE_OFF)
		return 0;
	if (conf->cache_memory != CONF_UNSET)
		return conf->cache_memory;
	return have < CONF_CACHE_MEMORY ? have : CONF_CACHE_MEMORY;
}

uint64_t conf_cache_disk(const struct conf *conf)
{
	return conf->cache_disk != CONF_UNSET ? conf->cache_disk : CONF_CACHE_DISK;
}

void conf_cache_dir(const struct conf *conf, char dir_out[CONF_PATH_SIZE])
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int size = 0;

	dir_out[0] = 0;
	if (*conf->cache_dir)
		size = snprintf(dir_out, CONF_PATH_SIZE, "%s", strcmp(conf->cache_dir, "no") == 0 ? "" : conf->cache_dir);
	else if (*conf->socket)
		return; /* one among several, who would share it */
	else if (geteuid() == 0)
		size = snprintf(dir_out, CONF_PATH_SIZE, "%s", CONF_CACHE_SYSTEM);
	else if (cache && *cache == '/')
		size = snprintf(dir_out, CONF_PATH_SIZE, "%s/gleam", cache);
	else if (home && *home == '/')
		size = snprintf(dir_out, CONF_PATH_SIZE, "%s/.cache/gleam", home);
	if (size < 0 || size >= CONF_PATH_SIZE)
		dir_out[0] = 0;
}
