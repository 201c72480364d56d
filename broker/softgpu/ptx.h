/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PTX, read and executed: the border between the software GPU's driver API (soft_*.c) and its processor
 * (ptx_*.c reads, exec_*.c runs).
 *
 * Addresses. Device memory is mapped in this process at its device address, so a global address is a host
 * address; every access is checked against the ranges that the caller's lookup names. Shared, local and
 * kernel-parameter memory are offsets from 0 in their own space and have the generic windows below, which no
 * mapping of ours ever uses. Constants are device memory of the module: a .const address is a global address.
 *
 * A module is bound to one set of addresses: load the text twice for two contexts. Everything that is read of a
 * module after ptx_module_bind() may be read by any thread at once.
 */
#ifndef GLEAM_SOFTGPU_PTX_H
#define GLEAM_SOFTGPU_PTX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/softgpu/exec_pool.h"

/* Generic windows; 1 GiB each holds any shared size (per cluster rank: 16 MiB), stack or parameter block. */
#define PTX_WINDOW_SHARED   0x010000000000ull
#define PTX_WINDOW_LOCAL    0x010040000000ull
#define PTX_WINDOW_PARAM    0x010080000000ull
#define PTX_WINDOW_FUNCTION 0x0100c0000000ull /* function pointers: not readable, only callable */
#define PTX_WINDOW_SIZE	    0x40000000ull

#define PTX_NAME_SHOWN 256 /* what an error keeps of a name or an instruction */

/* The text's own limits: a bound on what a hostile image can make us allocate. */
#define PTX_TEXT_SIZE_MAX    (512u << 20)
#define PTX_INSN_COUNT_MAX   (16u << 20)
#define PTX_GLOBAL_SIZE_MAX  (16ull << 30)
#define PTX_PARAM_SIZE_MAX   32764u /* what CUDA 12.1 and later accept */
#define PTX_SHARED_SIZE_MAX  (16u << 20)
#define PTX_LOCAL_SIZE_MAX   (512u << 10) /* per thread, as on real devices */

struct ptx_module;

/* Where functions' addresses begin. They can be moved by a multiple of 16 before the first module is read, as another driver's may be. */
uint64_t ptx_functions_at(void);
void ptx_functions_move(uint64_t bytes);

struct ptx_target {
	uint32_t sm;	      /* 75, 90, 120: major * 10 + minor of the device */
	uint32_t version_max; /* newest .version accepted, 90 for 9.0 */
	uint32_t shared_max;  /* static shared bytes a block may have; 0: 48 KiB */
};

enum ptx_error_kind {
	PTX_OK = 0,
	PTX_SYNTAX,	 /* CUDA_ERROR_INVALID_PTX */
	PTX_UNSUPPORTED, /* we can't run it: INVALID_PTX too, with the reason in the log */
	PTX_VERSION,	 /* .version too new: UNSUPPORTED_PTX_VERSION */
	PTX_TARGET,	 /* .target above the device: NO_BINARY_FOR_GPU */
	PTX_UNRESOLVED,	 /* an extern nobody defines: INVALID_PTX at load, as the driver's JIT linker */
	PTX_DUPLICATE,	 /* defined twice over the linked sources */
	PTX_MEMORY,
};

struct ptx_error {
	enum ptx_error_kind kind;
	uint32_t source; /* index of the source given, for a link of several */
	uint32_t line;	 /* from 1; 0: no place */
	uint32_t column;
	char message[PTX_NAME_SHOWN];
};

/* Text need not end in a NUL; a NUL ends it. */
struct ptx_source {
	const char *text;
	size_t size;
	const char *name; /* for messages; may be NULL */
};

/* All return 0 or -EINVAL, -ENOMEM with @error filled in. */
int ptx_module_parse(const char *text, size_t size, const struct ptx_target *target,
		     struct ptx_module **module_out, struct ptx_error *error);

/* Several texts become one module: .extern finds .visible and .weak of the others (cuLink*). */
int ptx_module_link(const struct ptx_source *sources, size_t count, const struct ptx_target *target,
		    struct ptx_module **module_out, struct ptx_error *error);

void ptx_module_free(struct ptx_module *module);

uint32_t ptx_module_version(const struct ptx_module *module); /* 83 for 8.3; highest of the sources */
uint32_t ptx_module_sm(const struct ptx_module *module);      /* 75 for sm_75; highest of the sources */

struct ptx_param {
	const char *name;
	uint32_t offset;
	uint32_t size;
	uint32_t align;
	bool pointer; /* declared .ptr */
};

struct ptx_entry {
	const char *name;
	uint32_t index; /* among the module's entries, in textual order */
	const struct ptx_param *params;
	uint32_t param_count;
	uint32_t param_size; /* of the packed block */
	uint32_t reqntid[3]; /* 0: not given */
	uint32_t maxntid[3]; /* 0: not given */
	uint32_t reqnctapercluster[3];
	uint32_t minnctapersm;
	uint32_t maxnreg;
	uint32_t shared_static;
	uint32_t local_size; /* per thread, with what its callees need (recursion: one level) */
	uint32_t regs;	     /* an estimate: 16 to 255 */
	uint32_t const_size;
	bool uses_grid_sync; /* reads the grid barrier's registers: only a cooperative launch can succeed */
};

uint32_t ptx_module_entry_count(const struct ptx_module *module);
const struct ptx_entry *ptx_module_entry(const struct ptx_module *module, uint32_t index);
const struct ptx_entry *ptx_module_entry_find(const struct ptx_module *module, const char *name);

enum ptx_space {
	PTX_SPACE_GLOBAL,
	PTX_SPACE_CONST,
};

struct ptx_global {
	const char *name;
	uint32_t index;
	enum ptx_space space;
	uint64_t size;
	uint32_t align;
	bool visible; /* found by name through the API (.visible, .weak, .common); others need memory all the same */
	bool managed; /* .attribute(.managed) */
	bool texref;  /* .texref, .samplerref, .surfref: 8 bytes that the front fills with a handle */
};

uint32_t ptx_module_global_count(const struct ptx_module *module);
const struct ptx_global *ptx_module_global(const struct ptx_module *module, uint32_t index);
const struct ptx_global *ptx_module_global_find(const struct ptx_module *module, const char *name);

/*
 * Gives each global its device address (aligned as asked, memory there writable by us now), writes the initial
 * contents, other globals' addresses included, and makes the module ready to launch. Once. @filled may be NULL, or says of
 * each whether it has contents already, which stay.
 */
int ptx_module_bind(struct ptx_module *module, const uint64_t *addresses, const bool *filled, uint32_t count);

/* ---- Launch ---- */

enum ptx_status {
	PTX_DONE = 0,
	PTX_FAULT_ADDRESS,     /* CUDA_ERROR_ILLEGAL_ADDRESS */
	PTX_FAULT_MISALIGNED,  /* CUDA_ERROR_MISALIGNED_ADDRESS */
	PTX_FAULT_SPACE,       /* CUDA_ERROR_INVALID_ADDRESS_SPACE */
	PTX_FAULT_PC,	       /* CUDA_ERROR_INVALID_PC: a call to what is no function */
	PTX_FAULT_INSTRUCTION, /* CUDA_ERROR_ILLEGAL_INSTRUCTION: undefined use, found when executed */
	PTX_FAULT_TRAP,	       /* CUDA_ERROR_LAUNCH_FAILED (trap), brkpt as well */
	PTX_FAULT_ASSERT,      /* CUDA_ERROR_ASSERT */
	PTX_FAULT_STACK,       /* CUDA_ERROR_HARDWARE_STACK_ERROR */
	PTX_FAULT_DEADLOCK,    /* every thread of a block waits for one that has ended or never comes */
	PTX_ABORTED,	       /* the abort flag was set */
	PTX_NO_MEMORY,	       /* for the blocks' own state: nothing ran if it happens at start */
};

struct ptx_fault {
	enum ptx_status status;
	const char *kernel; /* the entry's name, lives as long as the module */
	uint32_t line;	    /* of the PTX text */
	uint32_t ctaid[3];
	uint32_t tid[3];
	uint64_t address; /* for address faults */
	uint32_t size;
	bool write;
	char instruction[PTX_NAME_SHOWN];
	char message[PTX_NAME_SHOWN]; /* the assertion that failed, or what was wrong */
};

struct ptx_range {
	uint64_t base;
	uint64_t size;
	bool read_only;
};

enum ptx_tex_op {
	PTX_TEX,      /* filtered or point fetch */
	PTX_TLD4,     /* gather; component in @component */
	PTX_SULD,     /* surface load: coordinates x in bytes */
	PTX_SUST,     /* surface store: texel[] is written */
	PTX_TXQ,      /* query; what in @query */
};

enum ptx_geometry { PTX_1D, PTX_2D, PTX_3D, PTX_1D_ARRAY, PTX_2D_ARRAY, PTX_CUBE, PTX_CUBE_ARRAY };

enum ptx_query { PTX_QUERY_WIDTH, PTX_QUERY_HEIGHT, PTX_QUERY_DEPTH, PTX_QUERY_CHANNEL_TYPE, PTX_QUERY_CHANNEL_ORDER };

struct ptx_texel {
	enum ptx_tex_op op;
	enum ptx_geometry geometry;
	enum ptx_query query;
	uint64_t handle;      /* texture or surface object, or the 8 bytes of a .texref */
	bool coord_float;     /* else s32 in coord_int */
	bool has_lod;
	bool result_float;    /* .f32 results, else raw 32-bit integers */
	bool clamp_trap;      /* sust/suld .trap: outside is a fault; otherwise .clamp or .zero */
	bool clamp_zero;
	uint8_t component;    /* tld4: 0 r 1 g 2 b 3 a */
	uint8_t element_size; /* suld/sust: bytes of one element, 1 2 4 8 */
	uint8_t element_count; /* 1 2 4 */
	float coord[4];       /* x y z, or x [y] with the layer in coord_int[3] */
	int32_t coord_int[4];
	float lod;
	uint64_t value[4]; /* in for sust, out otherwise: f32 bits or integers */
};

/*
 * What the kernel asks of the driver while it runs; called from pool threads, several at once. user is passed
 * through. Only lookup is required.
 */
struct ptx_host {
	void *user;
	/* Finds the live range that holds @addr: 0, or -EFAULT. */
	int (*lookup)(void *user, uint64_t addr, struct ptx_range *range_out);
	/* Increased by the front after each unmap or change of access; cached ranges of older counts are dropped. */
	const _Atomic uint64_t *generation;
	/* Formatted text of one printf call. */
	void (*print)(void *user, const char *text, size_t size);
	/* Device malloc and free: an address, 0 if there is none. */
	uint64_t (*heap_alloc)(void *user, uint64_t size);
	void (*heap_free)(void *user, uint64_t addr);
	/* cudaGraphSetConditional: 0, or -EINVAL for a handle that is none. */
	int (*condition)(void *user, uint64_t handle, uint32_t value);
	/* 0, -EFAULT for an access outside that traps, -EINVAL for a handle that is none. */
	int (*texel)(void *user, struct ptx_texel *texel);
};

struct ptx_launch {
	const struct ptx_module *module;
	const struct ptx_entry *entry;
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t cluster[3]; /* 0: no cluster; otherwise divides grid */
	uint32_t shared_dynamic;
	uint32_t stack_size; /* bytes of local memory a thread may use; 0: what the entry needs + 1 KiB */
	const void *params;  /* packed as the entry says; param_size bytes */
	uint32_t params_size;
	bool cooperative;    /* all blocks are resident at once; grid barrier allowed */
	uint64_t grid_id;    /* %gridid */
	uint32_t sm_count;   /* %nsmid; 0: threads of the pool */
	struct exec_pool *pool;
	const struct ptx_host *host;
	const _Atomic uint32_t *abort; /* looked at often; may be NULL */
};

/*
 * Runs the whole grid and returns when it has ended; call it from the stream's thread. Dimensions must have been
 * checked by the caller (1024 threads a block, 2^31-1 blocks). @fault_out is always written.
 */
enum ptx_status ptx_launch(const struct ptx_launch *launch, struct ptx_fault *fault_out);

/* Blocks that fit at once, for the cooperative limit: as many as memory bounds allow. */
uint32_t ptx_cooperative_blocks_max(const struct ptx_entry *entry, uint32_t threads, uint32_t shared_dynamic);

const char *ptx_status_name(enum ptx_status status);

#endif
