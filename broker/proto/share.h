/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that a program shares with another one: what the other one holds in its hands (a CUipcMemHandle, a
 * CUmemPoolPtrExportData, the contents of the file behind a shareable handle), and what two workers of a node say to each other
 * about it. The key is secret: whoever has it may map the memory, if his tenant is the maker's.
 */
#ifndef GLEAM_PROTO_SHARE_H
#define GLEAM_PROTO_SHARE_H

#include <assert.h>
#include <stdint.h>

#define SHARE_MAGIC 0x53474c4du /* "MLGS" */
#define SHARE_ID    16		/* bytes of a name, of a key */

enum share_kind {
	SHARE_MEMORY = 1,  /* an allocation: cuIpcGetMemHandle */
	SHARE_HANDLE = 2,  /* physical memory: cuMemExportToShareableHandle */
	SHARE_POOL = 3,	   /* a pool: no memory by itself */
	SHARE_POINTER = 4, /* an allocation of a pool: cuMemPoolExportPointer */
};

struct share_token {
	uint32_t magic;
	uint32_t kind;		/* enum share_kind */
	uint8_t name[SHARE_ID]; /* of the worker that has it */
	uint8_t key[SHARE_ID];
	uint64_t offset; /* of the allocation in what is mapped; SHARE_POOL: which pool of its program */
	uint64_t size;	 /* of the allocation */
	uint64_t reserved;
};
static_assert(sizeof(struct share_token) == 64, "it is what a CUipcMemHandle holds");

/* ---- between workers: SOCK_SEQPACKET, abstract name SHARE_SOCKET and the worker's name in hexadecimal ---- */

#define SHARE_SOCKET	"gleam-share-"
#define SHARE_FDS_MAX	200u	  /* of a packet; the kernel takes 253 */
#define SHARE_PIECES_MAX 65536u	  /* of a share: 128 GiB of the smallest */
#define SHARE_WAIT_MS	3000	  /* a worker answers from a thread that does nothing else */

struct share_ask {
	uint8_t key[SHARE_ID];
	uint64_t tenant;
	uint32_t pid; /* of the program that asks, on its machine: for people to read */
	uint32_t reserved;
};

/* As many packets as it takes to send a descriptor of each piece; @total 0: there is no such share, or not for you. */
struct share_answer {
	uint32_t total;
	uint32_t count; /* descriptors with this packet */
	uint8_t uuid[16]; /* of the GPU */
	uint32_t pid;	  /* of the program that has it */
	uint32_t reserved;
	uint64_t sizes[SHARE_FDS_MAX];
};

#endif
