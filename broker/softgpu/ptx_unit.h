/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the reader knows of a module between its text and its decoded instructions: names, symbols, statements.
 *
 * Everything lives in the module's arena and is freed with it at once. The reader and the decoder leave by
 * ptx_fail(), a longjmp to the one place that frees the arena: there is nothing else to undo on the way.
 */
#ifndef GLEAM_SOFTGPU_PTX_UNIT_H
#define GLEAM_SOFTGPU_PTX_UNIT_H

#include <setjmp.h>

#include "broker/softgpu/ptx.h"

struct exec_insn;

enum ptx_type {
	T_NONE,
	T_PRED,
	T_B8, T_B16, T_B32, T_B64, T_B128,
	T_U8, T_U16, T_U32, T_U64,
	T_S8, T_S16, T_S32, T_S64,
	T_F16, T_F16X2, T_BF16, T_BF16X2, T_TF32, T_F32, T_F32X2, T_F64,
	T_U16X2, T_S16X2, T_U8X4, T_S8X4, T_E4M3X2, T_E5M2X2, T_E4M3, T_E5M2,
	T_TEXREF, T_SAMPLERREF, T_SURFREF,
	T_COUNT,
};

/* Size in bytes; 0 for a predicate. */
uint32_t ptx_type_size(enum ptx_type type);
bool ptx_type_signed(enum ptx_type type);
bool ptx_type_float(enum ptx_type type);
/* @name without the dot. T_NONE: no type has this name. */
enum ptx_type ptx_type_find(const char *name);

enum ptx_where { IN_REG, IN_GLOBAL, IN_CONST, IN_SHARED, IN_LOCAL, IN_PARAM };

enum ptx_linkage { LINK_STATIC, LINK_VISIBLE, LINK_WEAK, LINK_COMMON, LINK_EXTERN };

enum ptx_symbol_kind { SYM_REG, SYM_RANGE, SYM_VAR, SYM_LABEL, SYM_FUNCTION, SYM_PROTOTYPE, SYM_TARGETS, SYM_ALIAS };

/* One element of an initialiser: size bytes at offset of value, or of a symbol's address shifted and masked. */
struct ptx_init {
	struct ptx_init *next;
	uint64_t offset;
	uint64_t value;
	const char *name; /* a symbol's address plus value, or NULL */
	uint32_t line;
	uint8_t size;
	uint8_t shift; /* bits the address is shifted right by before it is cut to size */
	bool generic;
};

struct ptx_symbol {
	const char *name;
	const void *scope;
	struct ptx_symbol *chain; /* of its hash bucket */
	enum ptx_symbol_kind kind;
	enum ptx_linkage linkage;
	uint32_t source;
	uint32_t line;

	/* SYM_REG, SYM_RANGE, SYM_VAR */
	enum ptx_type type;
	enum ptx_where where;
	uint8_t vector; /* elements of a .v2 or .v4 register or variable; 1 otherwise */
	uint32_t slot;	/* of a register: offset in the frame, given when first used; PTX_NO_SLOT before */
	uint32_t parts[4]; /* slots of a vector register's elements */
	uint64_t count; /* SYM_RANGE: registers; variables: elements, 0 for an array without size */
	uint64_t size;	/* of a variable in bytes */
	uint32_t align;
	uint64_t offset;  /* in its space, once laid out; for a global: its index */
	bool array;
	bool pointer;
	bool managed;
	bool defined;
	struct ptx_init *init;
	struct ptx_symbol *next_param;

	/* SYM_FUNCTION, SYM_PROTOTYPE */
	struct ptx_function *function;
	/* SYM_TARGETS: names of labels or functions; SYM_ALIAS: one name */
	const char **names;
	uint32_t name_count;
	/* SYM_LABEL: index of the instruction it stands before */
	uint32_t pc;
	/* an extern's definition in another source, or an alias' target */
	struct ptx_symbol *link;
};

#define PTX_NO_SLOT UINT32_MAX

enum ptx_operand_kind {
	OP_SINK,   /* _ */
	OP_REG,	   /* slot */
	OP_INT,
	OP_F32,
	OP_F64,
	OP_SREG,   /* special register: value is its number */
	OP_NAME,   /* variable, function or label, plus value */
	OP_MEM,	   /* [base + value]; sub[0] is the base, then coordinates */
	OP_VECTOR, /* {a, b, ...} */
	OP_LIST,   /* (a, b, ...) of a call */
	OP_PAIR,   /* p|q */
};

struct ptx_operand {
	enum ptx_operand_kind kind;
	bool negated; /* !p, or -r */
	enum ptx_type type;
	uint32_t slot;
	uint32_t count;
	int64_t value;
	const char *name;
	struct ptx_symbol *symbol;
	struct ptx_operand *sub;
};

#define PTX_MODIFIERS_MAX 20 /* the longest form (cp.async.bulk.tensor, wgmma) has fewer */

struct ptx_statement {
	struct ptx_statement *next;
	const void *scope;
	const char *opcode;
	const char *modifiers[PTX_MODIFIERS_MAX];
	struct ptx_operand *operands;
	const char *text; /* where it stands in the source, text_size bytes */
	uint32_t text_size;
	uint32_t line;
	uint32_t column;
	uint8_t modifier_count;
	uint8_t operand_count;
	bool guarded;
	bool guard_negated;
	uint32_t guard_slot;
	struct ptx_symbol *label; /* a label instead of an instruction */
};

struct ptx_scope {
	struct ptx_scope *parent;
};

struct ptx_function {
	struct ptx_function *next;
	struct ptx_module *module;
	struct ptx_symbol *symbol;
	const char *name;
	uint32_t source;
	bool is_entry;
	bool has_body;
	bool noreturn;
	struct ptx_symbol *params; /* in order, by next_param */
	struct ptx_symbol *returns;
	uint32_t param_count;
	struct ptx_scope scope;
	struct ptx_statement *statements;
	struct ptx_statement **statements_tail;
	struct ptx_symbol **vars; /* shared and local variables and call parameters declared inside */
	uint32_t var_count;
	uint32_t var_room;

	/* layout, decoded code */
	uint32_t frame_size; /* bytes of registers for a warp */
	uint32_t local_size; /* bytes of stack for a thread */
	uint32_t shared_own; /* end of its static shared variables */
	uint32_t shared_align;
	uint32_t dynamic_align;
	uint32_t pc;
	uint32_t pc_end;
	uint32_t index; /* among all functions: its address is ptx_functions_at() + 16 * (index + 1) */
	/* call graph */
	struct ptx_function **callees;
	uint32_t callee_count;
	uint32_t callee_room;
	uint8_t mark;
	bool calls_indirect;
	bool grid_sync;
	bool clusters; /* waits for its cluster: fine for clusters of one block */
	uint32_t stack_deep; /* local_size with its callees' */
	uint32_t frame_deep;
	uint32_t param_bytes; /* of the stack frame: results and parameters */
	uint32_t shared_used; /* end of the module's shared variables that it touches */
	int builtin; /* enum exec_builtin for what the driver provides: vprintf, malloc, ... */

	struct ptx_entry entry;
};

struct ptx_chunk;

/* A place in the constants that takes a global's address when the module is bound. */
struct ptx_fixup {
	struct ptx_fixup *next;
	struct ptx_symbol *symbol;
	int64_t addend;
	uint32_t offset; /* in consts */
	uint8_t size;
};

struct ptx_module {
	struct ptx_chunk *chunks;
	size_t arena_size;
	struct ptx_error *error;
	jmp_buf failed;
	struct ptx_target target;
	uint32_t version;
	uint32_t sm;
	uint32_t source; /* being read */
	bool bound;

	const char **names; /* interned, open addressing */
	uint32_t name_count;
	uint32_t name_room;
	struct ptx_symbol **symbols; /* buckets */
	uint32_t symbol_count;
	uint32_t symbol_room;

	struct ptx_scope *files; /* one scope a source */
	uint32_t file_count;
	struct ptx_function *functions;
	struct ptx_function **functions_tail;
	uint32_t function_count;
	struct ptx_function **function_table;
	struct ptx_symbol **vars; /* of module scope */
	uint32_t var_count;
	uint32_t var_room;

	struct ptx_global *globals;
	struct ptx_symbol **global_symbols;
	uint64_t *addresses;
	uint32_t global_count;
	struct ptx_function **entries;
	uint32_t entry_count;
	uint32_t shared_size; /* of module scope and device functions */
	uint64_t local_offset;

	struct exec_insn *code;
	const char **code_text; /* statement of each instruction */
	uint32_t *code_text_size;
	uint32_t code_count;
	uint32_t code_room;
	uint8_t *consts;
	uint32_t const_size;
	uint32_t const_room;
	struct ptx_const *const_table; /* hash */
	uint32_t const_count;
	uint32_t const_table_room;
	struct ptx_fixup *fixups;
	uint32_t **tables; /* brx targets; the first element is their number */
	uint32_t table_count;
	uint32_t table_room;
	struct exec_call **calls;
	uint32_t call_count;
	uint32_t call_room;
};

/* Zeroed memory of the module; leaves by ptx_fail() if there is none. */
void *ptx_alloc(struct ptx_module *module, size_t size);
/* Doubles an array in the arena (the old one stays there). */
void *ptx_grow(struct ptx_module *module, void *array, uint32_t count, uint32_t *room, size_t size);
const char *ptx_intern(struct ptx_module *module, const char *text, size_t size);
struct ptx_symbol *ptx_symbol_find(struct ptx_module *module, const void *scope, const char *name);
struct ptx_symbol *ptx_symbol_add(struct ptx_module *module, const void *scope, const char *name,
				  enum ptx_symbol_kind kind);
/* Looks outward from @scope; registers of a range come to life here. */
struct ptx_symbol *ptx_symbol_lookup(struct ptx_module *module, const struct ptx_scope *scope, const char *name);
/* What a symbol stands for after linking. */
struct ptx_symbol *ptx_symbol_real(struct ptx_symbol *symbol);

_Noreturn void ptx_fail(struct ptx_module *module, enum ptx_error_kind kind, uint32_t line, uint32_t column,
			const char *format, ...) __attribute__((format(printf, 5, 6)));

/* A register's place in its function's frame; made when first asked for. */
uint32_t ptx_slot_new(struct ptx_module *module, struct ptx_function *function, enum ptx_type type);

/* ptx_parse.c: reads one source into the module. */
void ptx_parse_source(struct ptx_module *module, const char *text, size_t size);
/* ptx_link.c: resolves externs, lays out memory, orders functions. */
void ptx_link(struct ptx_module *module);
/* ... and, after decoding, what each entry needs with its callees. */
void ptx_measure(struct ptx_module *module);
/* ptx_decode.c: statements to instructions. */
void ptx_decode(struct ptx_module *module);

/* Special registers by name ("%tid.x"); -1: none. */
int ptx_sreg_find(const char *name);

#endif
