// SPDX-License-Identifier: Apache-2.0
/*
 * The image reader: containers made here byte by byte, so that every field can be wrong, and cubins likewise.
 */
#include <elf.h>
#include <errno.h>
#include <lz4.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include <cmocka.h>

#include "broker/lib/fatbin.h"

#define ROOM 65536

struct builder {
	uint8_t bytes[ROOM];
	size_t size;
	size_t container; /* where the open one begins */
};

static void put16(uint8_t *at, uint16_t value)
{
	memcpy(at, &value, 2);
}

static void put32(uint8_t *at, uint32_t value)
{
	memcpy(at, &value, 4);
}

static void put64(uint8_t *at, uint64_t value)
{
	memcpy(at, &value, 8);
}

static void container_open(struct builder *builder)
{
	uint8_t *at = builder->bytes + builder->size;

	builder->container = builder->size;
	memset(at, 0, 16);
	put32(at, FATBIN_MAGIC);
	put16(at + 4, 1);
	put16(at + 6, 16);
	builder->size += 16;
}

static void container_close(struct builder *builder)
{
	put64(builder->bytes + builder->container + 8, builder->size - builder->container - 16);
}

/* Returns where the entry's header is. */
static uint8_t *entry_add(struct builder *builder, uint16_t kind, uint32_t arch, uint64_t flags, const void *payload,
			  size_t size, size_t unpacked)
{
	uint8_t *at = builder->bytes + builder->size;
	size_t stored = (size + 7) & ~(size_t)7;

	memset(at, 0, 64 + stored);
	put16(at, kind);
	put16(at + 2, 0x0101);
	put32(at + 4, 64);
	put64(at + 8, stored);
	put32(at + 16, flags & (FATBIN_FLAG_LZ4 | FATBIN_FLAG_ZSTD) ? (uint32_t)size : 0);
	put16(at + 24, 0);
	put16(at + 26, 9);
	put32(at + 28, arch);
	put64(at + 40, flags | FATBIN_FLAG_64BIT);
	put64(at + 56, unpacked);
	memcpy(at + 64, payload, size);
	builder->size += 64 + stored;
	return at;
}

static struct builder *builder_new(void)
{
	struct builder *builder = calloc(1, sizeof(*builder));

	assert_non_null(builder);
	return builder;
}

/* A copy of exactly @size bytes on the heap, so that a sanitizer sees a read beyond them. */
static uint8_t *exact(const void *bytes, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	assert_non_null(copy);
	memcpy(copy, bytes, size);
	return copy;
}

static void test_extent_follows_each_form(void **state)
{
	struct builder *builder = builder_new();
	struct {
		uint32_t magic, version;
		const void *data;
		const void *extra;
	} wrapper = { FATBIN_WRAPPER_MAGIC, 1, builder->bytes, NULL };
	const void *linked[] = { builder->bytes, builder->bytes, NULL };
	struct fatbin_image image;

	container_open(builder);
	entry_add(builder, FATBIN_KIND_PTX, 75, 0, ".version 9.0", 13, 0);
	container_close(builder);

	assert_int_equal(fatbin_extent(builder->bytes, &image), 0);
	assert_int_equal(image.form, FATBIN_FORM_CONTAINER);
	assert_int_equal(image.size, builder->size);

	assert_int_equal(fatbin_extent(&wrapper, &image), 0);
	assert_int_equal(image.form, FATBIN_FORM_WRAPPER);
	assert_int_equal(image.data_form, FATBIN_FORM_CONTAINER);
	assert_ptr_equal(image.data, builder->bytes);
	assert_int_equal(image.linked_count, 0);

	wrapper.version = 2;
	wrapper.extra = linked;
	assert_int_equal(fatbin_extent(&wrapper, &image), 0);
	assert_int_equal(image.linked_count, 2);

	wrapper.version = 3;
	assert_int_equal(fatbin_extent(&wrapper, &image), -EBADMSG);
	wrapper.version = 1;
	wrapper.data = NULL;
	assert_int_equal(fatbin_extent(&wrapper, &image), -EBADMSG);

	assert_int_equal(fatbin_extent("\n  .version 7.0", &image), 0);
	assert_int_equal(image.data_form, FATBIN_FORM_TEXT);
	assert_int_equal(image.size, 16);
	assert_int_equal(fatbin_extent("ab", &image), 0);
	assert_int_equal(image.size, 3);
	assert_int_equal(fatbin_extent("", &image), -EINVAL);
	assert_int_equal(fatbin_extent(NULL, &image), -EINVAL);

	/* A container that says it fills the address space. */
	put64(builder->bytes + 8, UINT64_MAX - 4);
	assert_int_equal(fatbin_extent(builder->bytes, &image), -EMSGSIZE);
	free(builder);
}

static void test_entries_come_in_order_over_chained_containers(void **state)
{
	struct builder *builder = builder_new();
	struct fatbin_entry entry;
	struct fatbin_iter iter;

	container_open(builder);
	entry_add(builder, FATBIN_KIND_ELF, 80, 0, "elf80", 5, 0);
	entry_add(builder, FATBIN_KIND_PTX, 80, 0, "ptx80", 5, 0);
	container_close(builder);
	container_open(builder);
	container_close(builder); /* an empty one between */
	container_open(builder);
	entry_add(builder, FATBIN_KIND_ELF, 90, FATBIN_FLAG_ARCH_SPECIFIC, "elf90a", 6, 0);
	container_close(builder);

	fatbin_iter_init(&iter, builder->bytes, builder->size);
	assert_int_equal(fatbin_iter_next(&iter, &entry), 1);
	assert_int_equal(entry.kind, FATBIN_KIND_ELF);
	assert_int_equal(entry.arch, 80);
	assert_int_equal(entry.payload_size, 8);
	assert_memory_equal(entry.payload, "elf80", 5);
	assert_int_equal(fatbin_iter_next(&iter, &entry), 1);
	assert_int_equal(entry.kind, FATBIN_KIND_PTX);
	assert_int_equal(entry.version_major, 9);
	assert_int_equal(fatbin_iter_next(&iter, &entry), 1);
	assert_int_equal(entry.arch, 90);
	assert_int_equal(entry.flags & FATBIN_FLAG_ARCH_SPECIFIC, FATBIN_FLAG_ARCH_SPECIFIC);
	assert_int_equal(fatbin_iter_next(&iter, &entry), 0);
	assert_int_equal(fatbin_iter_next(&iter, &entry), 0);
	free(builder);
}

static void check_unpack(uint64_t flag)
{
	struct builder *builder = builder_new();
	char text[5000], packed[8000], back[5000];
	struct fatbin_entry entry;
	struct fatbin_iter iter;
	size_t size, got;
	uint8_t *header;

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (char)('a' + i * i % 7);
	size = flag == FATBIN_FLAG_LZ4 ? (size_t)LZ4_compress_default(text, packed, sizeof(text), sizeof(packed))
				       : ZSTD_compress(packed, sizeof(packed), text, sizeof(text), 3);
	container_open(builder);
	header = entry_add(builder, FATBIN_KIND_PTX, 75, flag, packed, size, sizeof(text));
	container_close(builder);

	fatbin_iter_init(&iter, builder->bytes, builder->size);
	assert_int_equal(fatbin_iter_next(&iter, &entry), 1);
	assert_true(entry.packed);
	assert_int_equal(entry.payload_size, size);
	assert_int_equal(entry.unpacked_size, sizeof(text));
	assert_int_equal(fatbin_entry_unpack(&entry, back, sizeof(back) - 1, &got), -ENOSPC);
	assert_int_equal(fatbin_entry_unpack(&entry, back, sizeof(back), &got), 0);
	assert_int_equal(got, sizeof(text));
	assert_memory_equal(back, text, sizeof(text));

	/* Its beginning alone, in memory that is no larger. */
	for (size_t head = 0; head <= sizeof(text); head += 1000) {
		uint8_t *room = exact(back, head);

		memset(room, 0, head);
		assert_int_equal(fatbin_entry_unpack_head(&entry, room, head, &got), 0);
		assert_int_equal(got, head);
		assert_memory_equal(room, text, head);
		free(room);
	}
	assert_int_equal(fatbin_entry_unpack_head(&entry, back, sizeof(back), &got), 0);
	assert_int_equal(got, sizeof(text));

	/* A claim that the stream does not keep, and a damaged stream. */
	entry.unpacked_size = sizeof(text) - 1;
	assert_int_equal(fatbin_entry_unpack(&entry, back, sizeof(back), &got), -EBADMSG);
	entry.unpacked_size = sizeof(text);
	entry.payload_size = size / 2;
	assert_int_equal(fatbin_entry_unpack(&entry, back, sizeof(back), &got), -EBADMSG);
	assert_int_equal(fatbin_entry_unpack_head(&entry, back, sizeof(back) - 1, &got), -EBADMSG);

	/* A claim beyond any sense is refused by the walk. */
	put64(header + 56, (uint64_t)1 << 40);
	fatbin_iter_init(&iter, builder->bytes, builder->size);
	assert_int_equal(fatbin_iter_next(&iter, &entry), -EBADMSG);
	assert_int_equal(fatbin_iter_next(&iter, &entry), 0);
	free(builder);
}

static void test_packed_entries_unpack(void **state)
{
	check_unpack(FATBIN_FLAG_LZ4);
	check_unpack(FATBIN_FLAG_ZSTD);
}

static void test_no_truncation_is_read_beyond(void **state)
{
	struct builder *builder = builder_new();
	struct fatbin_image image;
	struct fatbin_entry entry;
	struct fatbin_iter iter;

	container_open(builder);
	entry_add(builder, FATBIN_KIND_ELF, 90, 0, "0123456789", 10, 0);
	entry_add(builder, FATBIN_KIND_PTX, 90, 0, "0123456789", 10, 0);
	container_close(builder);
	for (size_t size = 1; size < builder->size; size++) {
		uint8_t *copy = exact(builder->bytes, size);

		assert_int_not_equal(fatbin_parse(copy, size, &image), 0);
		fatbin_iter_init(&iter, copy, size);
		while (fatbin_iter_next(&iter, &entry) > 0)
			;
		free(copy);
	}
	assert_int_equal(fatbin_parse(builder->bytes, builder->size, &image), 0);
	assert_int_equal(image.size, builder->size);

	/* Each length field at its worst. */
	for (unsigned int field = 0; field < 2; field++) {
		uint8_t *copy = exact(builder->bytes, builder->size);

		if (field == 0)
			put32(copy + 16 + 4, UINT32_MAX);
		else
			put64(copy + 16 + 8, UINT64_MAX - 63);
		fatbin_iter_init(&iter, copy, builder->size);
		assert_int_equal(fatbin_iter_next(&iter, &entry), -EBADMSG);
		free(copy);
	}
	free(builder);
}

static void test_choice_is_the_drivers(void **state)
{
	struct builder *builder = builder_new();
	struct fatbin_entry entry;

	container_open(builder);
	entry_add(builder, FATBIN_KIND_PTX, 75, 0, "ptx75", 6, 0);
	entry_add(builder, FATBIN_KIND_ELF, 80, 0, "elf80", 6, 0);
	entry_add(builder, FATBIN_KIND_ELF, 86, 0, "elf86", 6, 0);
	entry_add(builder, FATBIN_KIND_PTX, 90, 0, "ptx90", 6, 0);
	entry_add(builder, FATBIN_KIND_ELF, 90, FATBIN_FLAG_ARCH_SPECIFIC, "elf90a", 7, 0);
	entry_add(builder, FATBIN_KIND_ELF, 100, FATBIN_FLAG_FAMILY_SPECIFIC, "elf100f", 8, 0);
	entry_add(builder, FATBIN_KIND_PTX, 120, 0, "ptx120", 7, 0);
	container_close(builder);

	static const struct {
		int major, minor;
		bool want_elf;
		const char *payload; /* NULL: none */
	} choices[] = {
		{ 7, 0, true, NULL },	  { 7, 5, true, "ptx75" },   { 8, 0, true, "elf80" },
		{ 8, 6, true, "elf86" },  { 8, 9, true, "elf86" },   { 9, 0, true, "elf90a" },
		{ 9, 0, false, "ptx90" }, { 8, 6, false, "ptx75" },  { 10, 0, true, "elf100f" },
		{ 10, 3, true, "elf100f" }, { 11, 0, true, "ptx90" }, { 12, 0, true, "ptx120" },
	};

	for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
		int ret = fatbin_choose(builder->bytes, builder->size, choices[i].major, choices[i].minor,
					choices[i].want_elf, &entry);

		assert_int_equal(ret, choices[i].payload ? 1 : 0);
		if (choices[i].payload)
			assert_string_equal((const char *)entry.payload, choices[i].payload);
	}
	free(builder);
}

/* ---- cubins ---- */

#define INFO_ROOM 4096

struct cubin {
	uint8_t bytes[16384];
	size_t size;
};

/* A cubin with one .nv.info section of @info for kernel "kern"; program headers last, as nvcc writes them. */
static void cubin_make(struct cubin *cubin, const uint8_t *info, size_t info_size)
{
	static const char names[] = "\0.shstrtab\0.nv.info.kern\0.text.kern";
	Elf64_Ehdr header = {
		.e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT, 0x41, 8 },
		.e_machine = 190,
		.e_flags = 90 << 8,
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = 4,
		.e_shstrndx = 1,
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = 1,
	};
	Elf64_Shdr sections[4] = {
		{ .sh_type = SHT_NULL },
		{ .sh_type = SHT_STRTAB, .sh_name = 1, .sh_offset = sizeof(header), .sh_size = sizeof(names) },
		{ .sh_type = 0x70000000, .sh_name = 11, .sh_offset = sizeof(header) + sizeof(names), .sh_size = info_size },
		{ .sh_type = SHT_NOBITS, .sh_name = 25, .sh_offset = UINT64_MAX, .sh_size = UINT64_MAX },
	};

	header.e_shoff = sizeof(header) + sizeof(names) + info_size;
	header.e_phoff = header.e_shoff + sizeof(sections);
	cubin->size = header.e_phoff + sizeof(Elf64_Phdr);
	assert_true(cubin->size <= sizeof(cubin->bytes));
	memset(cubin->bytes, 0, sizeof(cubin->bytes));
	memcpy(cubin->bytes, &header, sizeof(header));
	memcpy(cubin->bytes + sizeof(header), names, sizeof(names));
	memcpy(cubin->bytes + sizeof(header) + sizeof(names), info, info_size);
	memcpy(cubin->bytes + header.e_shoff, sections, sizeof(sections));
}

/* One KPARAM_INFO item of either version. */
static size_t info_param(uint8_t *at, bool second, uint16_t ordinal, uint16_t offset, uint32_t size)
{
	at[0] = 4;
	at[1] = second ? 0x45 : 0x17;
	put16(at + 2, 12);
	put32(at + 4, 0);
	put16(at + 8, ordinal);
	put16(at + 10, offset);
	put32(at + 12, second ? size : size << 18 | 0x1f000);
	return 16;
}

static void test_cubin_extent_reaches_the_program_headers(void **state)
{
	struct cubin cubin;
	struct fatbin_image image;
	uint8_t info[4] = { 3, 0x19, 8, 0 };

	cubin_make(&cubin, info, sizeof(info));
	assert_int_equal(fatbin_extent(cubin.bytes, &image), 0);
	assert_int_equal(image.data_form, FATBIN_FORM_ELF);
	assert_int_equal(image.size, cubin.size);
	assert_int_equal(fatbin_elf_arch(cubin.bytes, cubin.size), 90);
	for (size_t size = 4; size < cubin.size; size++) {
		uint8_t *copy = exact(cubin.bytes, size);

		assert_int_not_equal(fatbin_parse(copy, size, &image), 0);
		free(copy);
	}
	/* A section that would wrap around. */
	((Elf64_Shdr *)(void *)(cubin.bytes + ((Elf64_Ehdr *)(void *)cubin.bytes)->e_shoff))[2].sh_offset = UINT64_MAX - 2;
	assert_int_equal(fatbin_extent(cubin.bytes, &image), -EMSGSIZE);
}

static void test_parameters_of_both_versions(void **state)
{
	struct fatbin_param params[8];
	struct fatbin_kernel kernel;
	struct cubin cubin;
	uint8_t info[INFO_ROOM];
	size_t size;

	for (int second = 0; second < 2; second++) {
		size = 0;
		/* Descending, with items between that the reader must step over. */
		size += info_param(info + size, second, 2, 16, second ? 8000 : 4);
		memcpy(info + size, (uint8_t[]){ 1, 0x1b, 0, 0, 2, 0x4a, 1, 0 }, 8);
		size += 8;
		size += info_param(info + size, second, 1, 8, 8);
		size += info_param(info + size, second, 0, 0, 8);
		memcpy(info + size, (uint8_t[]){ 3, 0x19, 20, 0 }, 4);
		size += 4;
		cubin_make(&cubin, info, size);
		assert_int_equal(fatbin_kernel_params(cubin.bytes, cubin.size, "kern", params, 8, &kernel), 0);
		assert_int_equal(kernel.param_count, 3);
		assert_int_equal(kernel.params_size, 20);
		for (unsigned int i = 0; i < 3; i++) {
			assert_int_equal(params[i].ordinal, i);
			assert_int_equal(params[i].offset, i * 8);
		}
		assert_int_equal(params[2].size, second ? 8000 : 4);
		/* Fewer places than parameters: still counted. */
		assert_int_equal(fatbin_kernel_params(cubin.bytes, cubin.size, "kern", params, 1, &kernel), 0);
		assert_int_equal(kernel.param_count, 3);
	}
	assert_int_equal(fatbin_kernel_params(cubin.bytes, cubin.size, "other", params, 8, &kernel), -ENOENT);

	/* Twice the same ordinal; a hole; an item that reaches out of the section. */
	size = info_param(info, false, 0, 0, 8);
	info_param(info + size, false, 0, 8, 8);
	cubin_make(&cubin, info, 2 * size);
	assert_int_equal(fatbin_kernel_params(cubin.bytes, cubin.size, "kern", params, 8, &kernel), -EBADMSG);
	info_param(info + size, false, 2, 8, 8);
	cubin_make(&cubin, info, 2 * size);
	assert_int_equal(fatbin_kernel_params(cubin.bytes, cubin.size, "kern", params, 8, &kernel), -EBADMSG);
	cubin_make(&cubin, info, size - 4);
	assert_int_equal(fatbin_kernel_params(cubin.bytes, cubin.size, "kern", params, 8, &kernel), -EBADMSG);
	/* Its section has no bytes, and an offset that nobody vouches for. */
	cubin_make(&cubin, info, size);
	{
		uint64_t table;
		Elf64_Shdr section;

		memcpy(&table, cubin.bytes + offsetof(Elf64_Ehdr, e_shoff), sizeof(table));
		memcpy(&section, cubin.bytes + table + 2 * sizeof(section), sizeof(section));
		section.sh_type = SHT_NULL;
		section.sh_offset = UINT64_MAX - 8;
		memcpy(cubin.bytes + table + 2 * sizeof(section), &section, sizeof(section));
	}
	assert_int_equal(fatbin_kernel_params(cubin.bytes, cubin.size, "kern", params, 8, &kernel), -EBADMSG);
	/* A parameter beyond any block. */
	size = info_param(info, true, 0, 8, FATBIN_PARAMS_SIZE_MAX);
	cubin_make(&cubin, info, size);
	assert_int_equal(fatbin_kernel_params(cubin.bytes, cubin.size, "kern", params, 8, &kernel), -EBADMSG);
}

static int count_name(void *user, const char *name)
{
	assert_string_equal(name, "kern");
	++*(int *)user;
	return 0;
}

static void test_kernels_are_listed(void **state)
{
	struct cubin cubin;
	uint8_t info[4] = { 3, 0x19, 8, 0 };
	int count = 0;

	cubin_make(&cubin, info, sizeof(info));
	assert_int_equal(fatbin_kernels(cubin.bytes, cubin.size, count_name, &count), 0);
	assert_int_equal(count, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_extent_follows_each_form),
		cmocka_unit_test(test_entries_come_in_order_over_chained_containers),
		cmocka_unit_test(test_packed_entries_unpack),
		cmocka_unit_test(test_no_truncation_is_read_beyond),
		cmocka_unit_test(test_choice_is_the_drivers),
		cmocka_unit_test(test_cubin_extent_reaches_the_program_headers),
		cmocka_unit_test(test_parameters_of_both_versions),
		cmocka_unit_test(test_kernels_are_listed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
