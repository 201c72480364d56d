/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random programs of the driver API whose results are determined, so that the same program can be run on two drivers
 * and compared. A program is a list of operations (differ_op.c: as text and back) made from a seed (differ_make.c). The
 * model (differ_model.c) knows what is ordered before what: it finds for each operation which operations of other
 * threads must have returned before it starts, and refuses whatever would race, so that the maker can put a wait before
 * it. differ_play.c runs a program with one thread for each of its threads.
 */
#ifndef TESTS_CUDA_DIFFER_H
#define TESTS_CUDA_DIFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define DIFFER_THREADS	4
#define DIFFER_OPS	2048 /* a program of the most steps is a third of it */
#define DIFFER_ARGS	12
#define DIFFER_BUFS	12
#define DIFFER_HOSTS	6
#define DIFFER_EVENTS	8
#define DIFFER_MODULES	3
#define DIFFER_POOLS	2
#define DIFFER_CELLS	8
#define DIFFER_CREATED	5		     /* streams made by the program */
#define DIFFER_STREAMS	(2 + DIFFER_CREATED) /* as operations name them: 0 legacy, 1 the thread's own, created ones */
#define DIFFER_SIZE_MAX (8u << 20)

/* What the operations are: name, and the names of their arguments. */
#define DIFFER_KINDS(X)                                                                                       \
	X(ALLOC, "alloc", "buf size how")                                                                     \
	X(FREE, "free", "buf")                                                                                \
	X(ALLOC_ASYNC, "alloc-async", "buf size pool stream form")                                            \
	X(FREE_ASYNC, "free-async", "buf stream form")                                                        \
	X(HOST_NEW, "host-new", "host size how")                                                              \
	X(HOST_END, "host-end", "host")                                                                       \
	X(HOST_FILL, "host-fill", "host off size value")                                                      \
	X(HOST_READ, "host-read", "host off size")                                                            \
	X(UP, "up", "buf off size host hoff stream form")                                                     \
	X(DOWN, "down", "buf off size host hoff stream form")                                                 \
	X(DEV, "dev", "buf off size src soff stream form")                                                    \
	X(UP2D, "up2d", "buf off pitch width rows host hoff hpitch stream form")                              \
	X(DOWN2D, "down2d", "buf off pitch width rows host hoff hpitch stream form")                          \
	X(DEV2D, "dev2d", "buf off pitch width rows src soff spitch stream form")                             \
	X(SET, "set", "buf off bits value count stream form")                                                 \
	X(SET2D, "set2d", "buf off pitch bits value count rows stream form")                                  \
	X(LAUNCH, "launch", "module function buf off words value src soff ns stream form")                    \
	X(HOSTFUNC, "hostfunc", "cell value stream form")                                                     \
	X(HOSTLOOK, "hostlook", "cell host off size stream form")                                             \
	X(WRITE_VALUE, "write-value", "buf off value stream form")                                            \
	X(STREAM_NEW, "stream-new", "stream flags priority")                                                  \
	X(STREAM_END, "stream-end", "stream")                                                                 \
	X(EVENT_NEW, "event-new", "event flags")                                                              \
	X(EVENT_END, "event-end", "event")                                                                    \
	X(RECORD, "record", "event stream form")                                                              \
	X(WAIT, "wait", "event stream form")                                                                  \
	X(SYNC_STREAM, "sync-stream", "stream form")                                                          \
	X(SYNC_EVENT, "sync-event", "event")                                                                  \
	X(SYNC_CONTEXT, "sync-context", "form")                                                               \
	X(QUERY_STREAM, "query-stream", "stream form")                                                        \
	X(QUERY_EVENT, "query-event", "event")                                                                \
	X(ELAPSED, "elapsed", "event to")                                                                     \
	X(MODULE_NEW, "module-new", "module how")                                                             \
	X(MODULE_END, "module-end", "module")                                                                 \
	X(GLOBAL_SET, "global-set", "module value stream form")                                               \
	X(POOL_NEW, "pool-new", "pool threshold")                                                             \
	X(POOL_END, "pool-end", "pool")                                                                       \
	X(POOL_TRIM, "pool-trim", "pool keep")                                                                \
	X(ASK, "ask", "what object off")                                                                      \
	X(ILLEGAL, "illegal", "what object stream")                                                           \
	X(GRAPH, "graph", "module buf off words value nodes stream form")                                     \
	X(CAPTURE, "capture", "module buf off words value nodes stream form host hoff")                       \
	X(BUF_FILL, "buf-fill", "buf off size value")                                                         \
	X(BUF_READ, "buf-read", "buf off size")

enum kind {
#define DIFFER_ENUM(id, name, args) OP_##id,
	DIFFER_KINDS(DIFFER_ENUM)
#undef DIFFER_ENUM
	KINDS
};

/* Bits of `form`: other ways to say the same. */
enum form {
	FORM_OTHER = 1,	  /* legacy by its handle, own by _ptsz or _ptds, context by its _v2 */
	FORM_SYNC = 2,	  /* the call that waits; on legacy and own streams alone */
	FORM_UNIFIED = 4, /* copies that find out by themselves; launches by cuLaunchKernelEx; callbacks, not functions */
	FORM_PACKED = 8,  /* launch: parameters by `extra` */
};

enum function { FN_STEP, FN_MIX, FN_LATE, FN_GLOBAL, FUNCTIONS };

/* How memory of the device was come by; the host touches the last two without a copy. */
enum alloc_how { ALLOC_PLAIN, ALLOC_PITCH, ALLOC_MANAGED, ALLOC_MAPPED, ALLOC_HOWS };

/* How host memory was come by. */
enum host_how { HOST_PAGEABLE, HOST_ALLOC, HOST_ALLOC_OLD, HOST_REGISTERED, HOST_PORTABLE, HOST_HOWS };

/* Illegal calls and questions have tables of their own, in differ_illegal.c and differ_play.c. */
#define ASKS 9

struct op {
	uint8_t thread;
	uint8_t kind;
	bool known; /* set by the model: queries of it must find it done */
	int64_t a[DIFFER_ARGS];
	/* set by the model: how many operations of each thread have to have returned before this one starts */
	uint32_t after[DIFFER_THREADS];
};

struct program {
	uint64_t seed;
	bool reset; /* ends with a reset of the context, and what is left is not freed */
	uint32_t count;
	struct op ops[DIFFER_OPS];
};

/* ---- differ_op.c ---- */

extern const char *const kind_names[KINDS];
extern const char *const kind_args[KINDS];

/* The index of the argument called @name, -1 without one; the value of it. */
int op_arg(enum kind kind, const char *name);
void op_print(FILE *file, const struct op *op);
/* One line of text: 1 an operation, 0 an empty line or a comment, -1 neither. */
int op_parse(const char *line, struct op *op_out);

static inline uint64_t differ_mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}
uint64_t differ_hash(const void *bytes, size_t size);

/*
 * --real: for a real driver. 580 on an H200 crashes now and then in cuMemPoolDestroy (with several processes at work), so pools stay; and reads
 * the page-locked source of a small copy at the call, also where a copy before it in order is yet to write there.
 */
extern bool real_driver;

/* ---- differ_model.c ---- */

struct model;
struct model *model_new(void);
void model_free(struct model *model);

enum verdict {
	MODEL_FINE,
	MODEL_INVALID, /* names what isn't there, or is out of bounds */
	MODEL_RACES,   /* with something in @stream_out, which the thread @thread_out can name; -1: only a context wait helps */
};
enum verdict model_check(struct model *model, const struct op *op, int *stream_out, int *thread_out);
/* After MODEL_FINE: it has happened. Fills in after and known. */
void model_apply(struct model *model, struct op *op);

/* What the maker asks. Sizes are 0 for what isn't there. */
size_t model_buf_size(const struct model *model, int buf);
bool model_buf_pooled(const struct model *model, int buf);
enum alloc_how model_buf_how(const struct model *model, int buf);
size_t model_host_size(const struct model *model, int host);
bool model_host_pinned(const struct model *model, int host);
bool model_stream(const struct model *model, int stream);
bool model_event(const struct model *model, int event);
bool model_module(const struct model *model, int module);
bool model_pool(const struct model *model, int pool);
/* Streams that may still be made. */
bool model_stream_room(const struct model *model);

/* ---- differ_make.c ---- */

struct make_options {
	uint32_t steps; /* 0: drawn from the seed */
	bool graphs; /* by node calls, and captures */
	bool words;  /* stream words */
	bool shared;	    /* managed and mapped memory, which both sides touch */
	bool callbacks;	    /* runs of host functions behind events of a stream that computes */
	bool real; /* leaves out what may crash a real driver */
};

void program_make(struct program *program, uint64_t seed, const struct make_options *options);
/*
 * Makes a program of @program's operations again: drops what is invalid, and puts waits before what races. The number of
 * operations that were dropped.
 */
uint32_t program_mend(struct program *program);

/* ---- differ_play.c and differ_illegal.c ---- */

struct outcome {
	uint64_t results;
	uint64_t memory;
	uint32_t parts[DIFFER_OPS]; /* of each operation: what results is made of */
	uint64_t end;		    /* of what is freed behind them */
};

/* A program takes milliseconds; after so long it says where it hangs, and the process ends. */
extern unsigned play_seconds;

void play_begin(void);
/* @trace: where to print each operation with what came of it, or NULL. */
void play(const struct program *program, struct outcome *outcome_out, FILE *trace);
void play_end(void);

struct illegal_at {
	uint64_t device, device_size; /* a buffer, 0 without one */
	void *stream, *function;
	int32_t context_device;
};
extern const unsigned illegal_count, illegal_real_count; /* those below illegal_real_count a real driver survives */
const char *illegal_name(unsigned what);
int illegal_call(unsigned what, const struct illegal_at *at);

#endif
