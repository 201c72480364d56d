// SPDX-License-Identifier: Apache-2.0
/*
 * Module images. Any thread.
 */
#include "broker/softgpu/soft_image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/lib/fatbin.h"

/* The PTX version that CUDA 13.0 came with. */
#define PTX_VERSION_MAX 90u

static CUresult text_copy(const void *bytes, size_t size, struct soft_text *text_out)
{
	char *text = malloc(size + 1);

	if (!text)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(text, bytes, size);
	text[size] = 0;
	*text_out = (struct soft_text){ .text = text, .size = strlen(text) };
	return CUDA_SUCCESS;
}

static CUresult text_from_container(const struct fatbin_image *image, const struct soft_device *device,
				    struct soft_text *text_out)
{
	struct fatbin_entry entry;
	size_t size;
	char *text;
	int ret = fatbin_choose(image->data, image->size, device->major, device->minor, false, &entry);

	if (ret < 0)
		return CUDA_ERROR_INVALID_IMAGE;
	if (ret == 0) {
		soft_log("fat binary: no PTX for sm_%d%d or below; a software GPU runs nothing else", device->major,
			 device->minor);
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	text = malloc(entry.unpacked_size + 1);
	if (!text)
		return CUDA_ERROR_OUT_OF_MEMORY;
	ret = fatbin_entry_unpack(&entry, text, entry.unpacked_size, &size);
	if (ret < 0) {
		free(text);
		return CUDA_ERROR_INVALID_IMAGE;
	}
	text[size] = 0;
	*text_out = (struct soft_text){ .text = text, .size = strlen(text) };
	return CUDA_SUCCESS;
}

static CUresult text_from(const struct fatbin_image *image, const struct soft_device *device,
			  struct soft_text *text_out)
{
	switch (image->data_form) {
	case FATBIN_FORM_CONTAINER:
		return text_from_container(image, device, text_out);
	case FATBIN_FORM_ELF:
		soft_log("cubin: a software GPU runs PTX only");
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	case FATBIN_FORM_TEXT:
		/* Text without the one thing that every PTX must have is no image at all. */
		if (!memmem(image->data, image->size, ".version", strlen(".version")))
			return CUDA_ERROR_INVALID_IMAGE;
		return text_copy(image->data, image->size, text_out);
	default:
		return CUDA_ERROR_INVALID_IMAGE;
	}
}

CUresult soft_image_text(const void *image, const struct soft_device *device, struct soft_text *text_out)
{
	struct fatbin_image found;

	if (!image)
		return CUDA_ERROR_INVALID_VALUE;
	if (fatbin_extent(image, &found) < 0)
		return CUDA_ERROR_INVALID_IMAGE;
	return text_from(&found, device, text_out);
}

CUresult soft_image_bytes(const void *bytes, size_t size, const struct soft_device *device, struct soft_text *text_out)
{
	struct fatbin_image found;

	if (fatbin_parse(bytes, size, &found) < 0)
		return CUDA_ERROR_INVALID_IMAGE;
	return text_from(&found, device, text_out);
}

CUresult soft_image_file(const char *path, const struct soft_device *device, struct soft_text *text_out)
{
	CUresult result = CUDA_ERROR_INVALID_IMAGE;
	struct stat info;
	uint8_t *bytes;
	size_t done = 0;
	int fd;

	if (!path)
		return CUDA_ERROR_INVALID_VALUE;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_FILE_NOT_FOUND;
	if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode) || info.st_size <= 0 ||
	    (uint64_t)info.st_size > FATBIN_IMAGE_MAX)
		goto close_fd;
	bytes = malloc((size_t)info.st_size + 1);
	if (!bytes) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
		goto close_fd;
	}
	while (done < (size_t)info.st_size) {
		ssize_t got = read(fd, bytes + done, (size_t)info.st_size - done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			goto free_bytes;
		done += (size_t)got;
	}
	bytes[done] = 0; /* a text's end */
	result = soft_image_bytes(bytes, done + 1, device, text_out);
free_bytes:
	free(bytes);
close_fd:
	close(fd);
	return result;
}

void soft_text_free(struct soft_text *text)
{
	free(text->text);
	*text = (struct soft_text){ 0 };
}

CUresult soft_jit_begin(struct soft_jit *jit, unsigned int count, const CUjit_option *options, void **values)
{
	if (count && (!options || !values))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++)
		if (options[i] < 0 || options[i] >= CU_JIT_NUM_OPTIONS)
			return CUDA_ERROR_INVALID_VALUE;
	*jit = (struct soft_jit){
		.count = count,
		.options = options,
		.values = values,
		.started_ns = soft_now_ns(),
	};
	return CUDA_SUCCESS;
}

/* Writes @text into the buffer that @buffer_option names, and its length over the size that came in. */
static void jit_log(const struct soft_jit *jit, CUjit_option buffer_option, CUjit_option size_option, const char *text)
{
	char *buffer = NULL;
	void **size = NULL;
	size_t room, used = 0;

	for (unsigned int i = 0; i < jit->count; i++) {
		if (jit->options[i] == buffer_option)
			buffer = jit->values[i];
		else if (jit->options[i] == size_option)
			size = &jit->values[i];
	}
	if (!size)
		return;
	room = (unsigned int)(uintptr_t)*size;
	if (buffer && room) {
		used = MIN(strlen(text), room - 1);
		memcpy(buffer, text, used);
		buffer[used] = 0;
	}
	*size = (void *)(uintptr_t)used;
}

void soft_jit_end(const struct soft_jit *jit, const struct ptx_error *error)
{
	float milliseconds = (float)((double)(soft_now_ns() - jit->started_ns) / 1e6);
	char text[PTX_NAME_SHOWN + 256] = "";

	if (error && error->line)
		snprintf(text, sizeof(text),
			 "ptxas application ptx input, line %u; error   : %s\n"
			 "ptxas fatal   : Ptx assembly aborted due to errors\n",
			 error->line, error->message);
	else if (error)
		snprintf(text, sizeof(text), "ptxas fatal   : %s\n", error->message);
	jit_log(jit, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, "");
	jit_log(jit, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, text);
	for (unsigned int i = 0; i < jit->count; i++)
		if (jit->options[i] == CU_JIT_WALL_TIME)
			memcpy(&jit->values[i], &milliseconds, sizeof(milliseconds));
}

/* One text, or the several that the linker put together. */
static int text_read(const struct soft_text *text, const struct ptx_target *target, struct ptx_module **module_out,
		     struct ptx_error *error_out)
{
	struct ptx_source *sources;
	const char *at = text->text;
	size_t count = 1;
	int ret;

	while ((at = strstr(at, SOFT_LINK_MARK)) != NULL && count < SOFT_LINK_SOURCES_MAX) {
		at += strlen(SOFT_LINK_MARK);
		count++;
	}
	if (count == 1)
		return ptx_module_parse(text->text, text->size, target, module_out, error_out);
	sources = calloc(count, sizeof(*sources));
	if (!sources) {
		*error_out = (struct ptx_error){ .kind = PTX_MEMORY, .message = "out of memory" };
		return -ENOMEM;
	}
	at = text->text;
	for (size_t i = 0; i < count; i++) {
		const char *end = i + 1 < count ? strstr(at, SOFT_LINK_MARK) : text->text + text->size;

		sources[i] = (struct ptx_source){ .text = at, .size = (size_t)(end - at) };
		at = end + strlen(SOFT_LINK_MARK);
	}
	ret = ptx_module_link(sources, count, target, module_out, error_out);
	free(sources);
	return ret;
}

CUresult soft_text_parse(const struct soft_text *text, const struct soft_device *device,
			 struct ptx_module **module_out, struct ptx_error *error_out)
{
	const struct ptx_target target = {
		.sm = (uint32_t)(device->major * 10 + device->minor),
		.version_max = PTX_VERSION_MAX,
		.shared_max = SOFT_SHARED_PER_BLOCK,
	};

	if (text_read(text, &target, module_out, error_out) == 0)
		return CUDA_SUCCESS;
	soft_log("PTX, source %u line %u column %u: %s", error_out->source, error_out->line, error_out->column,
		 error_out->message);
	switch (error_out->kind) {
	case PTX_VERSION:
		return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
	case PTX_TARGET:
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	case PTX_MEMORY:
		return CUDA_ERROR_OUT_OF_MEMORY;
	default:
		return CUDA_ERROR_INVALID_PTX;
	}
}
