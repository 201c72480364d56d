/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layer of calls without a session: a command is decoded by a small worker in the test as soon as it is posted, and
 * answered before call_wait() returns. In place of libgleamcuda/call.c, session.c, stream.c, device.c, thread.c and verdicts.c. Each
 * thread has a worker of its own; what they share is what is tested.
 */
#ifndef GLEAM_TESTS_FAKE_CALL_H
#define GLEAM_TESTS_FAKE_CALL_H

#include "broker/proto/verdict.h"
#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/answer.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"

/* A function of the image that the worker loads. */
struct fake_function {
	const char *name;
	uint32_t param_count;
	struct verdict_param params[8];
	int32_t attributes[VERDICT_ATTRIBUTES];
};

extern __thread struct fake_worker {
	/* what it answers */
	const struct fake_function *functions;
	uint32_t function_count;
	bool refuses_cubins;	  /* a container without PTX, or a cubin: NO_BINARY_FOR_GPU */
	bool unlisted;
	bool host_function;	  /* one is outstanding */
	bool without_attributes;  /* in the answer to a load */
	uint32_t pad;		  /* bytes of logs that make an answer long */
	CUresult load_result;
	CUresult info_result;	  /* of questions about one function */
	const char *info;
	const char *error;
	uint64_t wall_time;
	const uint8_t *raw;	  /* an answer of the test's own, instead of all this */
	size_t raw_size;
	int cluster_answer;

	/* what it has seen */
	unsigned int counts[OP_MAX];
	unsigned int trips;
	uint8_t *image; /* the newest that was loaded */
	size_t image_size;
	size_t image_arrived;
	uint32_t image_kind;
	uint8_t options[8192];
	uint32_t options_size;
	uint64_t last_seq;
	uint64_t noted_stream, noted_seq;
	struct msg_gleamLaunch launch;
	uint8_t launch_params[32768];
	uint8_t launch_attrs[4096];
	struct frame_hdr launch_hdr;

	/* gleamd: what it knows of the next load, from malloc, and what was left there */
	uint8_t *kept;
	size_t kept_size;
	struct verdict_key kept_key, more_key;
	bool kept_fits; /* whatever is asked for, as for another process that loads the same */
	unsigned int kept_count, more_count, asked_count;
	char more_name[64];
} fake_worker;

extern struct context fake_contexts[2];

/* This thread's worker as at the start; the first call makes the device, with an H200's limits. Objects of the library stay. */
void fake_reset(void);
/* Before a thread ends. */
void fake_release(void);
/* A call in context 0. */
struct call fake_call(void);
/* Cells and frames that are out must be back. */
void fake_check_balance(void);

/* An image: a cubin of its own for @arch, PTX text, or a container with entries. From malloc. */
struct fake_entry {
	uint16_t kind; /* 1 PTX, 2 ELF */
	uint32_t arch;
	uint32_t flags;
	const void *payload;
	uint32_t size;
};
uint8_t *fake_container(const struct fake_entry *entries, uint32_t count, size_t *size_out);
uint8_t *fake_cubin(uint32_t arch, size_t *size_out);
#define FAKE_PTX "\n\t.version 8.0\n.target sm_80\n.address_size 64\n"

#endif
