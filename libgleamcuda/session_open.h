/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks gleamd for a session with one server. By cuInit alone, which has a lock.
 */
#ifndef GLEAM_SESSION_OPEN_H
#define GLEAM_SESSION_OPEN_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/lib/shm.h"
#include "broker/proto/cuda_abi.h"
#include "libgleamcuda/session.h"

#define SESSION_NAMES_SIZE 1024 /* of servers, with commas between */

/* What a session is asked for, where that isn't what the environment says. */
struct session_wish {
	const char *server;	      /* GLEAM_SERVER */
	const char *gpus;	      /* GLEAM_GPUS */
	char not[SESSION_NAMES_SIZE]; /* NOT_SERVERS: servers that the process has GPUs of */
	bool chooses;		      /* the server is told nothing of CUDA_VISIBLE_DEVICES */
};

/* What gleamd has answered. */
struct session_opened {
	int link; /* socket, or the kernel's session */
	bool kernel;
	int doorbell;
	int pages; /* -1: none, see pages.h */
	struct shm shm;
	char server[64];
	char path[SESSION_PATH_SIZE];
	uint32_t others; /* servers that could be asked next */
	uint32_t end; /* enum session_end when refused */
};

/*
 * A session whose devices have the units from @first on: nobody else knows it yet. 0, or -errno; @opened_out also tells why there is none
 * (the log has it), @result_out what the program is told then.
 */
int session_open_one(const struct session_wish *wish, uint32_t first, struct session **session_out, struct session_opened *opened_out,
		     CUresult *result_out);
/* One that nobody else has seen. */
void session_close(struct session *s);

#endif
