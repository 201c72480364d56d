// SPDX-License-Identifier: Apache-2.0
/* Images that print are found by the names of their symbols, packed or not; what lies behind the names isn't looked at. */
#include <elf.h>
#include <lz4.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include <cmocka.h>

#include "broker/lib/fatbin.h"
#include "broker/lib/fatbin_print.h"

#define CUBIN_SIZE ((size_t)3 << 20)
#define NAMES_SIZE ((size_t)400 << 10) /* more than is unpacked at first */
#define CODE_AT	   ((size_t)1 << 20)

/* As NVIDIA's linker makes them: names of sections, a gap, names of symbols, symbols, the rest. @at: where a name of vprintf stands; 0: nowhere. */
static uint8_t *cubin_make(size_t at, bool symbols)
{
	uint8_t *bytes = calloc(1, CUBIN_SIZE);
	Elf64_Ehdr header = {
		.e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT, 0x41, 8 },
		.e_machine = 190,
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = 9,
		.e_shoff = CUBIN_SIZE - 9 * sizeof(Elf64_Shdr),
	};
	Elf64_Sym table[4] = {
		{ 0 },
		{ .st_name = 10, .st_info = ELF64_ST_INFO(STB_LOCAL, STT_SECTION), .st_shndx = 7 },
		{ .st_name = 20, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_other = 0x10, .st_shndx = 8 },
		{ .st_name = 30, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = SHN_UNDEF },
	};
	uint32_t random = 1;

	assert_non_null(bytes);
	memcpy(bytes, &header, sizeof(header));
	for (size_t i = sizeof(header) + 1; i < NAMES_SIZE - 8; i++)
		/* Two tables of names, a thousand zeros between them. */
		bytes[i] = i > 100000 && i < 101000 ? 0 : i % 40 ? (uint8_t)('a' + i % 23) : 0;
	if (symbols)
		memcpy(bytes + NAMES_SIZE, table, sizeof(table));
	for (size_t i = CODE_AT; i < CUBIN_SIZE; i++)
		bytes[i] = (uint8_t)((random = random * 1664525 + 1013904223) >> 29);
	if (at)
		memcpy(bytes + at, "\0vprintf", 9);
	return bytes;
}

/* A container of one entry; *@size_out bytes. */
static uint8_t *container_make(const uint8_t *cubin, uint64_t flag, size_t *size_out)
{
	size_t room = CUBIN_SIZE + 65536, size = CUBIN_SIZE;
	uint8_t *bytes = calloc(1, room + 80), *entry = bytes + 16;
	uint64_t value;
	uint32_t word;
	uint16_t half;

	assert_non_null(bytes);
	if (flag & FATBIN_FLAG_LZ4)
		size = (size_t)LZ4_compress_default((const char *)cubin, (char *)entry + 64, (int)CUBIN_SIZE, (int)room);
	else if (flag & FATBIN_FLAG_ZSTD)
		size = ZSTD_compress(entry + 64, room, cubin, CUBIN_SIZE, 1);
	else
		memcpy(entry + 64, cubin, CUBIN_SIZE);
	assert_true(size && size < room);
	memcpy(bytes, &(uint32_t){ FATBIN_MAGIC }, 4);
	memcpy(bytes + 4, &(uint16_t){ 1 }, 2);
	memcpy(bytes + 6, &(uint16_t){ 16 }, 2);
	value = 64 + (size + 7) / 8 * 8;
	memcpy(bytes + 8, &value, 8);
	half = FATBIN_KIND_ELF;
	memcpy(entry, &half, 2);
	memcpy(entry + 2, &(uint16_t){ 0x0101 }, 2);
	memcpy(entry + 4, &(uint32_t){ 64 }, 4);
	value = (size + 7) / 8 * 8;
	memcpy(entry + 8, &value, 8);
	word = flag ? (uint32_t)size : 0;
	memcpy(entry + 16, &word, 4);
	memcpy(entry + 28, &(uint32_t){ 90 }, 4);
	value = flag | FATBIN_FLAG_64BIT;
	memcpy(entry + 40, &value, 8);
	value = flag ? CUBIN_SIZE : 0;
	memcpy(entry + 56, &value, 8);
	*size_out = 16 + 64 + (size + 7) / 8 * 8;
	return bytes;
}

static void check(bool expected, size_t at, bool symbols)
{
	static const uint64_t flags[] = { 0, FATBIN_FLAG_LZ4, FATBIN_FLAG_ZSTD };
	uint8_t *cubin = cubin_make(at, symbols);

	assert_int_equal(fatbin_prints(cubin, CUBIN_SIZE), expected);
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		size_t size;
		uint8_t *container = container_make(cubin, flags[i], &size);

		assert_int_equal(fatbin_prints(container, size), expected);
		/* Cut off and damaged, it only must not be read beyond. */
		for (size_t left = 0; left < size; left += 65521) {
			uint8_t *cut = malloc(left ? left : 1);

			memcpy(cut, container, left);
			fatbin_prints(cut, left);
			free(cut);
		}
		for (size_t k = 16 + 64; flags[i] && k < size; k += size / 5) {
			container[k] ^= 0x55;
			fatbin_prints(container, size);
		}
		free(container);
	}
	free(cubin);
}

static void test_names_are_found(void **state)
{
	check(true, 5000, true);		/* among the first that are unpacked */
	check(true, NAMES_SIZE - 9, true);	/* the last one */
	check(false, 0, true);
}

static void test_what_is_behind_the_names_is_no_name(void **state)
{
	check(false, CODE_AT + 1000000, true);
}

static void test_without_symbols_all_is_searched(void **state)
{
	check(true, CODE_AT + 1000000, false);
	check(false, 0, false);
}

static void test_text(void **state)
{
	static const char prints[] = ".version 8.0\n.extern .func (.param .b32 r) vprintf\n", doesnt[] = ".version 8.0\n.visible .entry k()\n";

	assert_true(fatbin_prints(prints, sizeof(prints)));
	assert_false(fatbin_prints(doesnt, sizeof(doesnt)));
	assert_false(fatbin_prints(prints, 0));
}

/* Where the table begins, in heads of all lengths around it. */
static void test_symbols_are_seen_only_whole(void **state)
{
	uint8_t *cubin = cubin_make(0, true);
	size_t at;

	for (size_t size = NAMES_SIZE - 200; size < NAMES_SIZE + 200; size++) {
		uint8_t *head = malloc(size);

		memcpy(head, cubin, size);
		assert_int_equal(fatbin_elf_symbols(head, size, &at) == 0, size >= NAMES_SIZE + 4 * sizeof(Elf64_Sym));
		if (size >= NAMES_SIZE + 4 * sizeof(Elf64_Sym))
			assert_int_equal(at, NAMES_SIZE);
		free(head);
	}
	assert_int_not_equal(fatbin_elf_symbols(cubin, 0, &at), 0);
	cubin[0] = 0;
	assert_int_not_equal(fatbin_elf_symbols(cubin, CUBIN_SIZE, &at), 0);
	free(cubin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_are_found),
		cmocka_unit_test(test_what_is_behind_the_names_is_no_name),
		cmocka_unit_test(test_without_symbols_all_is_searched),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_symbols_are_seen_only_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
