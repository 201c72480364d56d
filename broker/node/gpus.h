/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which GPUs of a node a client gets: by its own settings as the driver would read them, else one, and of those the least
 * taken. No state; control thread.
 */
#ifndef GLEAM_NODE_GPUS_H
#define GLEAM_NODE_GPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/proto/stats.h"

#define GPUS_TEXT_SIZE (REPORT_GPUS_MAX * 41 + 1) /* "GPU-" and a UUID each, commas between */

/* What the node has. */
struct gpus_have {
	uint32_t count;
	struct {
		uint8_t uuid[16];
		uint64_t pci; /* visible_pci() */
		uint32_t clients;
		uint64_t memory_free; /* bytes, or REPORT_UNKNOWN */
	} gpus[REPORT_GPUS_MAX];
};

/* What a client asks for; NULL is a setting that it doesn't have. */
struct gpus_wish {
	const char *only;    /* UUIDs that its broker lets it have */
	const char *visible; /* CUDA_VISIBLE_DEVICES */
	const char *order;   /* CUDA_DEVICE_ORDER */
	const char *count;   /* GLEAM_GPUS */
};

struct gpus_choice {
	bool open;		   /* the client's library chooses among these by itself, or finds that there is none */
	uint32_t mask;		   /* bit per GPU of the node; 0: all that it has */
	uint32_t count;
	char text[GPUS_TEXT_SIZE]; /* what CUDA_VISIBLE_DEVICES of its worker is to be; "" for all */
};

/*
 * 0; -ENODEV and @why for a client that can't be given what it asks for. A node with one GPU or none leaves the choice, and
 * the driver's error for settings that name none, to the library.
 */
int gpus_choose(const struct gpus_have *have, const struct gpus_wish *wish, struct gpus_choice *choice_out, char *why,
		size_t why_size);

#endif
