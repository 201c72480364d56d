/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the /gleam tree by where they are, and what stands in them. Any thread: they know only what they are given. */
#ifndef GLEAM_LOCAL_TREE_FILE_H
#define GLEAM_LOCAL_TREE_FILE_H

#include <stdint.h>
#include <stdio.h>

#include "broker/local/state.h"

struct server_file {
	const char *name;
	unsigned parts; /* what put() looks at: of enum state_part */
	void (*put)(FILE *out, const struct state_server *server);
};

struct gpu_file {
	const char *name;
	void (*put)(FILE *out, const struct report_gpu *gpu);
};

struct cache_file {
	const char *name;
	void (*put)(FILE *out, const struct cache_stats *cache);
};

struct verdicts_file {
	const char *name;
	void (*put)(FILE *out, const struct verdicts_stats *verdicts);
};

/* @counts: SESSION_API_MAX of them; only `stats` looks there. */
struct client_file {
	const char *name;
	void (*put)(FILE *out, const struct state_client *client, const struct api_count *counts);
};

#define TREE_SERVER_FILES 9u
#define TREE_CACHE_FILES  6u
#define TREE_GPU_FILES	  7u
#define TREE_CLIENT_FILES 11u
#define TREE_VERDICTS_FILES 5u

extern const struct server_file tree_server_files[TREE_SERVER_FILES];
extern const struct cache_file tree_cache_files[TREE_CACHE_FILES];
extern const struct gpu_file tree_gpu_files[TREE_GPU_FILES];
extern const struct client_file tree_client_files[TREE_CLIENT_FILES];
extern const struct verdicts_file tree_verdicts_files[TREE_VERDICTS_FILES];

#endif
