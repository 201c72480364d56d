/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoded instructions and what executes them.
 *
 * A warp runs 32 lanes together. Registers are arrays of 32 elements of their own size, a predicate is one
 * 32-bit mask. Lanes that have diverged are in different paths; a warp has 32 at most.
 *
 * Divergence: the runnable path that is deepest in calls, then lowest in the text, runs first and stops where
 * another one stands, with which it becomes one again. Compilers lay code out so that what joins two branches
 * stands below both; nothing has to be found out about the flow, and lanes that return from a function reached
 * by pointer join as well. Immediate post-dominators were the alternative: they need a stack that a spin lock
 * within a warp hangs in. Here a path that has used up its slice is put behind the others for a turn, so a lane
 * that holds the lock gets on.
 *
 * One thread runs a block at a time, so that shared memory, barriers and paths need no locks. A block may be put
 * aside between slices and taken up by another thread: the block is handed over under the launch's lock.
 */
#ifndef GLEAM_SOFTGPU_EXEC_H
#define GLEAM_SOFTGPU_EXEC_H

#include <pthread.h>

#include "broker/softgpu/ptx.h"
#include "broker/softgpu/ptx_unit.h"

#define EXEC_LANES 32
#define EXEC_FULL  0xffffffffu

/* At the start of each frame, one array each: where to return to, and the caller's frame and stack. */
#define EXEC_FRAME_HEADER 384
#define EXEC_BARRIERS	  16

enum exec_kind {
	EXEC_ALU, /* fn for the lanes that are on, then the next instruction */
	EXEC_BRANCH,
	EXEC_BRANCH_TABLE,
	EXEC_CALL,
	EXEC_CALL_INDIRECT,
	EXEC_RETURN,
	EXEC_EXIT,
	EXEC_SYNC,    /* waits for the lanes of a mask (src[3]), then fn */
	EXEC_BARRIER, /* fn arrives; the path may have to wait */
	EXEC_YIELD,   /* as ALU, then the slice counts as used up (nanosleep, a failed try_wait) */
	EXEC_COSTLY,  /* as ALU, but uses up much of the slice: what spin loops are made of */
};

/* Modifiers of an instruction that its function looks at. */
enum {
	X_FTZ = 1 << 0,
	X_SAT = 1 << 1,
	X_RZ = 1 << 2,
	X_RM = 1 << 3,
	X_RP = 1 << 4,
	X_ROUND = X_RZ | X_RM | X_RP,
	X_RELU = 1 << 5,
	X_NAN = 1 << 6,
	X_CC = 1 << 7,
	X_XORSIGN = 1 << 8,
	X_ABS = 1 << 9,
	X_INT = 1 << 10, /* .rni and its like */
	X_OOB = 1 << 11,
	X_RN = 1 << 12,	 /* .rn was written: nothing to do, but not everywhere allowed */
	X_APPROX = 1 << 13,
	X_FULL = 1 << 14,
	X_RNA = 1 << 15,
};

struct exec_warp;
struct exec_insn;
typedef void (*exec_fn)(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);

struct exec_insn {
	exec_fn fn;
	uint32_t dst;
	uint32_t dst2;
	uint32_t src[4];
	uint32_t guard; /* slot of a predicate */
	uint32_t target; /* pc, or index of a table or call */
	int64_t imm;
	uint32_t line;
	uint16_t flags;
	uint8_t kind;
	uint8_t guard_mode; /* 0 none, 1 if true, 2 if false */
	uint8_t sub[4];	    /* what the function makes of them */
};

/* A plain instruction: text after its flag modifiers are taken out, operands, function. */
struct exec_form {
	const char *text;
	const char *operands; /* "w=ww": see ptx_decode.c */
	exec_fn fn;
	uint32_t flags; /* that may be given */
};

struct exec_forms {
	const struct exec_form *forms;
	uint32_t count;
};

/* The function whose instructions these are, for this processor. */
const struct exec_form *exec_form_find(const char *text);

/* What lanes_setp.h and lanes_cvt.h offer beside forms. */
struct exec_lanes {
	const struct exec_forms *lists;
	uint32_t list_count;
	exec_fn (*setp)(enum ptx_type type);
	exec_fn (*set)(enum ptx_type type);
	exec_fn (*cvt)(const struct exec_insn *insn);
};
extern const struct exec_lanes exec_lanes_base;
extern const struct exec_lanes exec_lanes_avx2;
const struct exec_lanes *exec_lanes(void);

/* One argument or result of a call: bytes between the caller's stack frame and the callee's. */
struct exec_copy {
	uint32_t caller;
	uint32_t callee;
	uint32_t size;
};

struct exec_call {
	struct ptx_function *function; /* NULL: indirect */
	struct exec_copy *args;
	struct exec_copy *results;
	uint32_t arg_count;
	uint32_t result_count;
	const struct ptx_function *caller; /* whose frame and stack sizes are known when all is decoded */
	uint32_t param_bytes;		   /* of an indirect call: what the callee must have room for */
};

enum exec_path_state { PATH_RUN, PATH_BARRIER, PATH_SYNC };

struct exec_path {
	uint32_t mask;
	uint32_t pc;
	uint32_t frame; /* offset of the registers */
	uint32_t stack; /* offset of the function's frame in each lane's stack */
	uint32_t depth;
	uint8_t state;
	uint8_t barrier;
	uint32_t phase; /* of the barrier when it arrived */
	uint64_t turn;	/* when it last ran */
};

struct exec_range {
	uint64_t base;
	uint64_t end;
	bool read_only;
};

#define EXEC_RANGES 4 /* a kernel reads and writes about this many arrays in its loop */

/* What belongs to the thread that runs a block at the moment. */
struct exec_thread {
	struct exec_range ranges[EXEC_RANGES];
	uint32_t next;
	uint64_t generation;
};


struct exec_warp {
	/* hot */
	uint8_t *base[2]; /* registers of the running frame, constants */
	uint32_t stop_pc; /* the running path must be looked at when it gets here */
	uint32_t cc;	  /* carry of each lane */
	struct exec_block *block;
	const struct exec_insn *code;
	struct exec_thread *thread;
	uint32_t mask; /* of the running path */
	uint32_t pc;
	uint32_t stack;
	int64_t budget;

	uint8_t *registers;
	uint32_t registers_size;
	uint32_t id;
	uint32_t lanes;	 /* that exist */
	uint32_t exited;
	uint32_t path_count;
	uint32_t current;
	uint64_t turn;
	bool fair;	 /* the next path to run is the one that has waited longest */
	bool ran;	 /* something, when last it had its turn */
	bool spinning;	 /* the slice went into atomics and volatile loads */
	bool stopped;	 /* a fault, here or elsewhere */
	uint32_t tid[3][EXEC_LANES];
	struct exec_path paths[EXEC_LANES];
};

struct exec_barrier {
	uint32_t arrived;
	uint32_t expected; /* 0: all threads of the block that have not exited */
	uint32_t phase;
	uint32_t count; /* of true predicates of a reduction */
	uint32_t result_count; /* of the phase before */
	uint32_t result_arrived;
};

struct exec_grid;

struct exec_block {
	struct exec_block *next;
	struct exec_grid *grid;
	uint8_t *shared;
	uint32_t shared_size;
	uint8_t *stacks; /* threads x stack_size */
	uint32_t ctaid[3];
	uint64_t index;
	uint32_t threads;
	uint32_t live; /* threads that have not exited */
	uint32_t warp_count;
	struct exec_warp **warps;
	uint8_t *registers;
	size_t registers_size; /* of all warps */
	struct exec_barrier barriers[EXEC_BARRIERS];
	bool failed;
};

struct exec_grid {
	struct exec_job job;
	const struct ptx_launch *launch;
	const struct ptx_module *module;
	const struct ptx_function *function;
	uint32_t threads;
	uint32_t warps;
	uint32_t stack_size;
	uint32_t shared_size;
	uint32_t dynamic_offset;
	uint32_t registers_size; /* of a warp */
	uint64_t block_count;
	uint8_t *params;
	uint64_t *workspace; /* of the grid barrier of cooperative groups */
	struct exec_range internal;

	pthread_mutex_t *lock;
	/* guarded by lock */
	uint64_t next_block;
	bool cut; /* a block was left unfinished */
	struct exec_block *parked;
	struct exec_block **parked_tail;
	struct exec_block *free;
	uint32_t resident;
	/* the first fault wins, under the lock; stop is read without */
	struct ptx_fault *fault;
	_Atomic bool stop;
};

/* ---- what functions of instructions use ---- */

#define exec_slot(warp, slot) ((warp)->base[(slot) >> 31] + ((slot) & 0x7fffffffu))
#define SRC(n, type)	      ((const type *)exec_slot(warp, insn->src[n]))
#define DST(type)	      ((type *)exec_slot(warp, insn->dst))
#define DST2(type)	      ((type *)exec_slot(warp, insn->dst2))

/* Goes over the lanes of a mask. */
#define FOR_LANES(lane, mask) \
	for (uint32_t left_##lane = (mask), lane; left_##lane && (lane = (uint32_t)__builtin_ctz(left_##lane), true); \
	     left_##lane &= left_##lane - 1)

void exec_fault(struct exec_warp *warp, enum ptx_status status, uint32_t lane, uint64_t address, uint32_t size,
		bool write, const char *format, ...) __attribute__((format(printf, 7, 8)));

enum exec_space { X_GENERIC, X_GLOBAL, X_SHARED, X_LOCAL, X_PARAM, X_CONST };

/* The addresses (src[0] and imm, as sub[3] says) of the active lanes as pointers. False: a fault was raised. */
bool exec_pointers(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask, uint32_t size, bool write,
		   void **pointers_out);
/* The same for an address in hand. */
void *exec_pointer(struct exec_warp *warp, enum exec_space space, uint32_t lane, uint64_t address, uint32_t size,
		   uint32_t align, bool write);
enum { X_BASE_NONE, X_BASE_32, X_BASE_64, X_BASE_STACK };

/* exec_sreg.c: sub[0] is the register, sub[1] the size of its destination */
void exec_sreg(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
uint32_t ptx_sreg_size(int sreg);
bool ptx_sreg_pred(int sreg);
bool ptx_sreg_grid(int sreg);
/* The address of the block's dynamic shared memory, or of a place in the thread's stack frame; plus imm. */
void exec_dynamic_address(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_stack_address(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_vprintf(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);

/* exec_memory.c */
void exec_isspacep(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_pack_128(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_unpack_128(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);

/* exec_warp.c */
enum exec_outcome { WARP_DONE, WARP_WAITS, WARP_SLICE };
enum exec_outcome exec_warp_run(struct exec_warp *warp);
void exec_warp_start(struct exec_warp *warp);
/* exec_barrier.c */
/* Threads have exited: barriers that wait for all may be complete. */
void exec_barrier_settle(struct exec_block *block);
/* Arrives with the lanes of @mask; the path waits if sub[0] says so. Result registers are written by _wake(). */
enum exec_barrier_op { BAR_SYNC, BAR_ARRIVE, BAR_POPC, BAR_AND, BAR_OR };
bool exec_barrier_arrive(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask, uint8_t *id_out,
			 uint32_t *phase_out);
void exec_barrier_wake(struct exec_warp *warp, const struct exec_insn *insn, const struct exec_path *path);

/* exec_call.c */
void exec_call_results(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_trap(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
enum exec_builtin { BUILTIN_NONE, BUILTIN_VPRINTF, BUILTIN_ASSERT, BUILTIN_MALLOC, BUILTIN_FREE, BUILTIN_CONDITION };
int exec_builtin_find(const char *name);
exec_fn exec_builtin_fn(int builtin);
void exec_nop(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);

/* sub[0] bytes at imm in the stack frame, to or from the register dst of sub[1] bytes */
void exec_stack_load(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_stack_store(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);

/* A value of a thread's stack frame. */
uint8_t *exec_stack(struct exec_warp *warp, uint32_t lane, uint32_t offset);

/* exec_launch.c */
/* One slice. */
enum exec_block_outcome { BLOCK_ENDED, BLOCK_ASIDE, BLOCK_CUT };
enum exec_block_outcome exec_block_run(struct exec_block *block, struct exec_thread *thread);

#endif
