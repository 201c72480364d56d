/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From what a program hands to a module load to PTX text, and the JIT options that come along.
 */
#ifndef SOFT_IMAGE_H
#define SOFT_IMAGE_H

#include "broker/softgpu/ptx.h"
#include "broker/softgpu/soft_device.h"

/* Between the texts of an image that the linker made of several: a comment, as far as anyone else reads it. */
#define SOFT_LINK_MARK "\n//softgpu: next linked source\n"
/* Texts in one image. */
#define SOFT_LINK_SOURCES_MAX 4096

struct soft_text {
	char *text; /* ours, with a NUL behind it */
	size_t size;
};

/*
 * The PTX that @device takes from @image. INVALID_IMAGE for what is no image, NO_BINARY_FOR_GPU where it holds
 * nothing for a device that runs PTX only.
 */
CUresult soft_image_text(const void *image, const struct soft_device *device, struct soft_text *text_out);

/* As above for an image of known length, which must lie in @bytes whole; a text ends with a NUL there. */
CUresult soft_image_bytes(const void *bytes, size_t size, const struct soft_device *device, struct soft_text *text_out);

/* As above from a file. */
CUresult soft_image_file(const char *path, const struct soft_device *device, struct soft_text *text_out);

void soft_text_free(struct soft_text *text);

/* Where a program wants to read how its load went. */
struct soft_jit {
	unsigned int count;
	const CUjit_option *options;
	void **values;
	uint64_t started_ns;
};

/* INVALID_VALUE for an option that does not exist. */
CUresult soft_jit_begin(struct soft_jit *jit, unsigned int count, const CUjit_option *options, void **values);

/* Fills the logs, their sizes and the time. @error is NULL after a success. */
void soft_jit_end(const struct soft_jit *jit, const struct ptx_error *error);

/* Reads the text for @device; what is wrong goes to the log and into @error_out. */
CUresult soft_text_parse(const struct soft_text *text, const struct soft_device *device,
			 struct ptx_module **module_out, struct ptx_error *error_out);

#endif
