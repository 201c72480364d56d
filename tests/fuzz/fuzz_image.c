// SPDX-License-Identifier: Apache-2.0
// sources: libgleamcuda/answer.c libgleamcuda/handle.c libgleamcuda/image.c libgleamcuda/jit.c broker/lib/fatbin.c broker/lib/fatbin_elf.c tests/unit/fake_call.c gen/ops.c libs: -lzstd -llz4
/*
 * What the library reads of strangers when it loads: the first byte says as what the rest is taken. An even one: the bytes
 * of an image; an odd one: a verdict from the node, then the record of one function.
 */
#include <stdlib.h>
#include <string.h>

#include "libgleamcuda/answer.h"
#include "libgleamcuda/image.h"
#include "tests/lib/fuzz.h"

static void image_try(const uint8_t *data, size_t size)
{
	const struct image_target targets[] = { { 9, 0 }, { 8, 6 }, { 12, 0 } };

	for (int want = IMAGE_WANT_BEST; want <= IMAGE_WANT_ALL; want++) {
		struct image image;
		uint64_t sum = 0;

		if (!size || image_choose(data, size, targets, 3, (enum image_want)want, &image))
			continue;
		/* What would be sent lies in the input, or is the header. */
		for (uint32_t i = 0; i < image.piece_count; i++) {
			const uint8_t *bytes = image.pieces[i].bytes;

			if (bytes != image.header && (bytes < data || image.pieces[i].size > size - (size_t)(bytes - data)))
				abort();
			sum += image.pieces[i].size;
		}
		if (sum != image.size)
			abort();
	}
}

static void verdict_try(const uint8_t *data, size_t size)
{
	uint8_t *bytes = malloc(size ? size : 1);
	CUresult result;

	if (!bytes)
		return;
	memcpy(bytes, data, size);

	struct answer *answer = answer_new(bytes, size, &result);

	if (!answer)
		return;
	for (uint32_t i = 0; i < answer_count(answer) && i < 64; i++) {
		struct answer_function *f = answer_at(answer, i);

		for (uint32_t k = 0; k < f->param_count; k++)
			if (f->params[k].offset > ANSWER_PARAMS_SIZE ||
			    f->params[k].size > ANSWER_PARAMS_SIZE - f->params[k].offset || f->params_size > ANSWER_PARAMS_SIZE)
				abort();
		/* Of functions of one name the first is found. */
		if (!answer_find(answer, f->name) || answer_index(answer, f) != i)
			abort();
		answer_learn(answer, f->name, data, size, size & 1);
	}
	answer_learn(answer, "f", data, size, true);
	answer_learn(answer, "f", data + size / 2, size - size / 2, false);
	answer_put(answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Readers expect the alignment that malloc and session memory have. */
	uint8_t *copy;

	if (size < 2)
		return 0;
	copy = malloc(size - 1);
	if (!copy)
		return 0;
	memcpy(copy, data + 1, size - 1);
	if (data[0] & 1)
		verdict_try(copy, size - 1);
	else
		image_try(copy, size - 1);
	free(copy);
	return 0;
}
