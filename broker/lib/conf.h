/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings of gleamd: an ini file, then the command line, which overrides it. Read at start, then only read.
 *
 *	[daemon]  socket, log
 *	[servers] NAME = ADDRESS:PORT ...
 *	[node]    listen, driver, worker, user, warm, speed, sessions, sessions_per_link
 *	[scheduler] policy, migrate, profiles, discover
 *	[link]    lanes, keepalive, grace, hold, direct, compress
 *	[cache]   use (auto, on, off), memory, disk, dir (a directory, or no), verdicts
 *	[key]     file
 *	[tree]    mount (a directory, or no)
 */
#ifndef GLEAM_LIB_CONF_H
#define GLEAM_LIB_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/lib/log.h"

#define CONF_SERVERS_MAX  64
#define CONF_NAME_SIZE	  64
#define CONF_ADDRESS_SIZE 256
#define CONF_PATH_SIZE	  512
#define CONF_FILE_MAX	  (64u << 10)
#define CONF_SYSTEM_PATH  "/etc/gleam/gleam.conf"

enum conf_cache_use {
	CACHE_AUTO, /* where the link is slower than hashing */
	CACHE_ON,
	CACHE_OFF,
};

#define CONF_UNSET UINT64_MAX

struct conf_server {
	char name[CONF_NAME_SIZE];
	char address[CONF_ADDRESS_SIZE];
};

struct conf {
	char socket[108]; /* "": the default place */
	enum log_level log;
	struct conf_server servers[CONF_SERVERS_MAX];
	unsigned server_count;
	char listen[CONF_ADDRESS_SIZE]; /* "": no node role */
	char driver[CONF_PATH_SIZE];	/* path, or softgpu */
	char worker[CONF_PATH_SIZE];	/* "": looked for */
	char user[CONF_NAME_SIZE];	/* "": gleam-worker or nobody, where we are root */
	unsigned warm;
	double speed; /* of the GPUs, 1 as the reference; 0: measured at the start */
	unsigned sessions_max;
	unsigned link_sessions_max;
	unsigned lanes;
	uint64_t keepalive_ms;
	uint64_t grace_ms;
	uint64_t hold_ms; /* programs whose worker is gone wait so long for a checkpoint to be restored */
	bool compress; /* LZ4 for bulk, where it pays */
	bool direct; /* programs on this machine's own GPUs share memory with their workers */
	char key_file[CONF_PATH_SIZE];
	enum conf_cache_use cache_use;
	uint64_t cache_memory; /* bytes; CONF_UNSET */
	uint64_t cache_disk;   /* bytes; CONF_UNSET */
	char cache_dir[CONF_PATH_SIZE]; /* "": the default place; "no": none */
	uint64_t cache_verdicts; /* bytes of what servers have said about images */
	char mount[CONF_PATH_SIZE]; /* where /gleam is; "": nowhere */
	char policy[CONF_NAME_SIZE];
	bool migrate;		       /* programs are moved where they run better, without being asked */
	bool discover;		       /* servers of the LAN are looked for, and this one is announced, by DNS-SD */
	char profiles[CONF_PATH_SIZE]; /* file that remembers programs; "": the default place; "no": none */
};

void conf_init(struct conf *conf);
/* One setting. -EINVAL and why: no such section or name, or a value that can't be. */
int conf_set(struct conf *conf, const char *section, const char *name, const char *value, char *why, size_t why_size);
/* The text of a file; @path is for messages, which have it and the line. */
int conf_parse(struct conf *conf, const char *path, const char *text, char *why, size_t why_size);
int conf_read(struct conf *conf, const char *path, char *why, size_t why_size);

/* What the cache may use. Only the machine's or the user's own daemon has a folder without being told so. */
uint64_t conf_cache_memory(const struct conf *conf);
uint64_t conf_cache_disk(const struct conf *conf);
/* "": no folder. */
void conf_cache_dir(const struct conf *conf, char dir_out[CONF_PATH_SIZE]);
/* "auto", "on", "off"; -EINVAL. */
int conf_cache_use_parse(const char *value, enum conf_cache_use *use_out);

#endif
