/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Module images: how long one is, what a fat binary holds, and what a cubin says about its kernels.
 *
 * Everything here reads bytes that a stranger wrote. Nothing is allocated by a count from the image, every
 * offset is checked by subtraction, and a view never reaches outside the bytes it was given. No state and no
 * threads: a view borrows the image, which must outlive it.
 *
 * Callers that only have a bare pointer (the driver API passes no length) first ask fatbin_extent(); the image
 * must then really be readable for the length its own headers claim, as it must for any driver.
 */
#ifndef GLEAM_LIB_FATBIN_H
#define GLEAM_LIB_FATBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FATBIN_WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC 0xba55ed50u
#define FATBIN_ELF_MAGIC 0x464c457fu

/* A container, cubin or text beyond this is refused: the largest image seen in the wild is below 1 GiB. */
#define FATBIN_IMAGE_MAX ((uint64_t)4 << 30)
/* Text is measured by strlen; PTX beyond this is refused rather than walked. */
#define FATBIN_TEXT_MAX ((uint64_t)1 << 30)
/* Relocatable fat binaries behind a version 2 wrapper: the list ends in NULL, this bounds the walk. */
#define FATBIN_LINKED_MAX 4096
/* Containers that follow one another in one piece of memory. */
#define FATBIN_CHAIN_MAX 4096
/* An entry may not claim to unpack to more than this. */
#define FATBIN_ENTRY_UNPACKED_MAX ((uint64_t)2 << 30)
/* cuLaunchKernel's parameter block: 32,764 bytes since CUDA 12.1. */
#define FATBIN_PARAMS_SIZE_MAX 32764
/* Parameters a kernel can have: one byte each at the least. */
#define FATBIN_PARAMS_MAX FATBIN_PARAMS_SIZE_MAX

enum fatbin_form {
	FATBIN_FORM_WRAPPER = 1, /* struct behind __cudaRegisterFatBinary; points to the container */
	FATBIN_FORM_CONTAINER,	 /* a fat binary */
	FATBIN_FORM_ELF,	 /* a bare cubin */
	FATBIN_FORM_TEXT,	 /* PTX source */
};

enum fatbin_kind {
	FATBIN_KIND_PTX = 1,
	FATBIN_KIND_ELF = 2,
	FATBIN_KIND_LTO = 8,
};

#define FATBIN_FLAG_64BIT 0x1u
#define FATBIN_FLAG_DEBUG 0x2u
#define FATBIN_FLAG_LINUX 0x10u
#define FATBIN_FLAG_LZ4 0x2000u
#define FATBIN_FLAG_ZSTD 0x8000u
#define FATBIN_FLAG_ARCH_SPECIFIC 0x100000u   /* sm_90a: this architecture and no other */
#define FATBIN_FLAG_FAMILY_SPECIFIC 0x200000u /* sm_100f: same major, at least this minor */

/* What a bare pointer turned out to be. @data and @size are the bytes themselves, behind a wrapper if there was one. */
struct fatbin_image {
	enum fatbin_form form;	     /* of what the pointer named */
	enum fatbin_form data_form;  /* of @data: never FATBIN_FORM_WRAPPER */
	const uint8_t *data;
	uint64_t size;		     /* of a text: with its NUL */
	/* A version 2 wrapper's relocatable images; NULL and 0 otherwise. */
	const void *const *linked;
	uint32_t linked_count;
};

struct fatbin_entry {
	enum fatbin_kind kind;	/* or a number this list does not know */
	uint32_t arch;		/* 90 for sm_90 */
	uint32_t flags;		/* low 32 bits of the flag word; FATBIN_FLAG_* */
	uint16_t version_major, version_minor;
	const uint8_t *payload; /* as stored */
	uint64_t payload_size;	/* exact size where the entry is packed, as stored otherwise */
	uint64_t unpacked_size; /* equals payload_size where it is not packed */
	bool packed;
	const char *name;	/* not terminated; NULL where there is none */
	uint32_t name_size;
	uint64_t offset;	/* of the entry's header from the start of the image, its number in a log line */
};

struct fatbin_iter {
	const uint8_t *data;
	uint64_t size;
	uint64_t next;		/* offset of the next entry or container */
	uint64_t end;		/* of the container that @next lies in */
	uint32_t chained;	/* containers seen */
};

/*
 * Finds out what @pointer names and how long it is. Follows a wrapper. 0, or -EINVAL (NULL or not an image),
 * -EMSGSIZE (a length beyond the limits above), -EBADMSG (headers that contradict themselves).
 */
int fatbin_extent(const void *pointer, struct fatbin_image *image_out);

/* As fatbin_extent() for bytes whose length is known: the image must lie in them whole, and a wrapper is refused. */
int fatbin_parse(const void *data, size_t size, struct fatbin_image *image_out);

/* Walks the entries of a container, and of the containers that follow it directly where @size covers them. */
void fatbin_iter_init(struct fatbin_iter *iter, const void *data, size_t size);

/* 1 and an entry, 0 at the end, -EBADMSG where the bytes are not what they should be (the walk ends there). */
int fatbin_iter_next(struct fatbin_iter *iter, struct fatbin_entry *entry_out);

/*
 * Unpacks @entry into @buffer (or copies it, where it is not packed) and tells how many bytes it had. Trailing
 * NULs that pad a stored PTX stay. -ENOSPC where @size is too small for unpacked_size, -EBADMSG for a damaged
 * stream or one that does not unpack to the size it claims.
 */
int fatbin_entry_unpack(const struct fatbin_entry *entry, void *buffer, size_t size, size_t *size_out);

/* The same of the first @size bytes only, or of all if there are fewer: *@size_out of them. -EBADMSG, -ENOMEM. */
int fatbin_entry_unpack_head(const struct fatbin_entry *entry, void *buffer, size_t size, size_t *size_out);

/* Whether a device of compute capability @major.@minor can run this entry: cubin, or PTX through its compiler. */
bool fatbin_entry_fits(const struct fatbin_entry *entry, int major, int minor);

/*
 * The entry a driver takes for a device: a cubin of the same major number with the highest minor that is not
 * beyond the device's, architecture-specific ones only for their own; else the PTX with the highest
 * architecture not beyond it. @want_elf false leaves cubins out (a device that only runs PTX).
 * 1 and the entry, 0 where none fits, -EBADMSG as fatbin_iter_next() where nothing fit before the damage.
 */
int fatbin_choose(const void *data, size_t size, int major, int minor, bool want_elf, struct fatbin_entry *entry_out);

/* One kernel parameter, in a cubin's words. */
struct fatbin_param {
	uint16_t ordinal;
	uint16_t offset;
	uint32_t size;
};

struct fatbin_kernel {
	uint32_t param_count;	/* parameters the kernel has, also where fewer were stored */
	uint32_t params_size;	/* CBANK_PARAM_SIZE; 0 where the cubin does not say */
};

/*
 * Reads the parameter layout of @kernel out of a cubin's .nv.info.<kernel> section: KPARAM_INFO (0x17) and, above
 * about 4 KiB of parameters, KPARAM_INFO_V2 (0x45). @params gets up to @param_max of them in ordinal order.
 * -ENOENT where the cubin has no such kernel, -EBADMSG where the section is damaged or leaves ordinals out.
 */
int fatbin_kernel_params(const void *elf, size_t size, const char *kernel, struct fatbin_param *params,
			 uint32_t param_max, struct fatbin_kernel *kernel_out);

/* Calls @each for the name of every kernel (.nv.info.<name>) of a cubin until it returns nonzero, which is returned. */
int fatbin_kernels(const void *elf, size_t size, int (*each)(void *user, const char *name), void *user);

/*
 * Where the symbol table of a cubin begins, from its first @size bytes: NVIDIA's linker has it behind the names of sections and symbols, before
 * everything else, so that all names are in front of it. -ENODATA: it isn't to be seen in them.
 */
int fatbin_elf_symbols(const void *head, size_t size, size_t *offset_out);

/* sm number of a cubin, 90 for sm_90; -EBADMSG where it is no CUDA ELF. */
int fatbin_elf_arch(const void *elf, size_t size);

#endif
