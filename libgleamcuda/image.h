/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images on their way to the node: what a pointer holds, which of it the GPUs can use, and the load itself. Nothing here
 * outlives a call. Application threads.
 */
#ifndef GLEAM_IMAGE_H
#define GLEAM_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"
#include "broker/proto/verdict.h"
#include "libgleamcuda/answer.h"

struct call;

/* Compute capability of a device that the image is wanted for. */
struct image_target {
	int major;
	int minor;
};

/* As gleamLoadImage names them. */
enum image_kind {
	IMAGE_CONTAINER = 0,
	IMAGE_CUBIN = 1,
	IMAGE_PTX = 2, /* its NUL included */
};

/* Up to 16 devices, a cubin and a PTX each, behind one header. */
#define IMAGE_PIECES 33

struct image_piece {
	const void *bytes;
	size_t size;
};

/* What is sent: pieces of the caller's memory, which must stay. */
struct image {
	enum image_kind kind;
	uint64_t size;
	uint32_t piece_count;
	struct image_piece pieces[IMAGE_PIECES];
	uint8_t header[16]; /* of a rebuilt container; pieces[0] points to it, so an image is not copied */
	bool has_cubin;
	bool has_both; /* a PTX was left out because a cubin fits */
};

enum image_want {
	IMAGE_WANT_BEST,     /* a cubin where one fits, PTX otherwise: the driver's choice */
	IMAGE_WANT_PTX,	     /* PTX where there is one */
	IMAGE_WANT_ALL,	     /* the container as it is: an option of the call changes the choice */
};

/*
 * What @bytes hold (@size, or 0 for a pointer that came without a length) and which of it @targets can use. INVALID_IMAGE,
 * NO_BINARY_FOR_GPU.
 */
CUresult image_choose(const void *bytes, uint64_t size, const struct image_target *targets, uint32_t target_count,
		      enum image_want want, struct image *image_out);

/* ---- JIT options ---- */

#define JIT_OPTIONS 64 /* CUDA 13.0 knows 35; more entries than this are repetitions */

struct jit {
	uint32_t count;
	const CUjit_option *options;
	void **values;
	bool tells;    /* something is written back: such a load always asks */
	bool chooses;  /* the choice among the container's entries is changed */
	uint32_t wire_size;
	uint8_t wire[JIT_OPTIONS * 16]; /* {u32 option, u32 0, u64 value} each */
};

/* INVALID_VALUE for what the driver refuses at once. */
CUresult jit_read(struct call *call, uint32_t count, const CUjit_option *options, void **values, struct jit *jit_out);
/* Is the word of the option written back? */
bool jit_is_told(CUjit_option option);
/* Write logs, sizes and values of a verdict (possibly of a failed load) back to the caller's memory. */
void jit_tell(const struct jit *jit, const void *verdict, size_t size);

/* ---- the load ---- */

/*
 * Load what @bytes hold as @object, a new handle of a module or library: at most one trip, or two the first time that
 * a device turns out to run PTX only. A failure says that the worker has no such object. One reference to the answer
 * belongs to the caller.
 */
CUresult image_load(struct call *call, uint64_t object, const void *bytes, uint64_t size, const struct jit *jit,
		    struct answer **answer_out);

/* Ask for one function's record and complete the answer; its attributes on the call's device. @own: as in answer_learn(). NOT_FOUND. */
CUresult image_ask(struct call *call, uint64_t object, struct answer *answer, const char *name, bool own,
		   struct answer_function **function_out, int32_t attributes_out[VERDICT_ATTRIBUTES]);

#endif
