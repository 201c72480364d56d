// SPDX-License-Identifier: Apache-2.0
/* Variables that images declare: of PTX as nvcc writes it and as it could be written, of a cubin that is made here, and of damaged ones. */
#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/lib/imagevars.h"

static char told[8192];

static void variable(void *arg, const char *name, size_t name_size, bool constant)
{
	size_t at = strlen(told);

	(void)arg;
	snprintf(told + at, sizeof(told) - at, "%.*s%s ", (int)name_size, name, constant ? "*" : "");
}

static void word(void *arg, const char *name, size_t name_size, uint64_t offset)
{
	size_t at = strlen(told);

	(void)arg;
	if (offset == IMAGEVARS_ANYWHERE)
		snprintf(told + at, sizeof(told) - at, "%.*s@? ", (int)name_size, name);
	else
		snprintf(told + at, sizeof(told) - at, "%.*s@%lld ", (int)name_size, name, (long long)offset);
}

static const struct imagevars_hear hear = { .variable = variable, .word = word };

/* What is told of a text, with nothing behind it that may be read. */
static const char *of_text(const char *text)
{
	size_t size = strlen(text);
	char *copy = malloc(size ? size : 1);

	told[0] = '\0';
	memcpy(copy, text, size);
	assert_true(imagevars_look(copy, size, &hear));
	free(copy);
	return told;
}

static void test_ptx(void **state)
{
	(void)state;
	assert_string_equal(of_text(""), "");
	assert_string_equal(of_text(".visible .global .align 4 .u32 counter = 20;\n.visible .const .align 4 .u32 table[3] = {1, 2, 3};"),
			    "counter table* ");
	assert_string_equal(of_text(".global .align 8 .u64 p = generic(v);\n.const .align 8 .u64 c = v;"), "p p@0 c* c@0 ");
	assert_string_equal(of_text(".global .align 8 .u64 t[4] = {0, generic(v)+40, 0x10, f};"), "t t@8 t@24 ");
	/* Bytes of an address, one by one, and halves of it. */
	assert_string_equal(of_text(".global .align 8 .b8 b[24] = {1, 2, 3, 4, 5, 6, 7, 8, 0xFF(v), 0xFF00(v)};"), "b b@8 b@8 ");
	assert_string_equal(of_text(".global .u32 h[4] = {0, 0, 0, v};"), "h h@8 ");
	/* Numbers of all kinds are none. */
	assert_string_equal(of_text(".global .f32 n[5] = {0f3F800000, 1.5, -2, 0x1F, 7U};"), "n ");
	assert_string_equal(of_text(".global .f64 d = 0d3FF0000000000000;"), "d ");
	/* Where it can't be counted: any word. */
	assert_string_equal(of_text(".global .u64 m[2][2] = {{0, v}, {0, 0}};"), "m m@? ");
	assert_string_equal(of_text(".global .v2 .u64 w[2] = {{0, v}};"), "w w@? ");
	/* Several of one line; attributes; what has no type of bytes. */
	assert_string_equal(of_text(".global .u32 a, b[4], c = 5;"), "a b c ");
	assert_string_equal(of_text(".visible .global .attribute(.managed) .align 4 .u32 m;"), "m ");
	assert_string_equal(of_text(".global .attribute(.unified(19,95)) .f32 u;"), "u ");
	assert_string_equal(of_text(".global .texref t;"), "t ");
	/* Instructions are no declarations. */
	assert_string_equal(of_text("ld.global.u32 %r1, [x]; cvta.to.global.u64 %rd1, %rd2; st.const.u32 [y], %r1;"), "");
	/* Texts that end anywhere. */
	assert_string_equal(of_text(".global .u64 t[2] = {0, v"), "t t@8 ");
	assert_string_equal(of_text(".global .u64 t["), "");
	assert_string_equal(of_text(".global .u64 t ="), "t ");
	assert_string_equal(of_text(".global "), "");
	assert_string_equal(of_text(".const"), "");
	assert_string_equal(of_text(".global .u64 t = }}))]];"), "t ");
}

/* ---- a cubin ---- */

#define SECTIONS 8
#define DATA	 256u

struct cubin {
	Elf64_Ehdr eh;
	char names[128];
	char strings[64];
	Elf64_Sym symbols[6];
	Elf64_Rela relocations[5];
	Elf64_Rel short_relocations[1];
	uint8_t data[DATA];
	Elf64_Shdr sections[SECTIONS];
};

static uint32_t text_add(char *texts, size_t room, const char *text)
{
	size_t at = 1;

	while (texts[at])
		at += strlen(texts + at) + 1;
	assert_true(at + strlen(text) + 2 < room);
	strcpy(texts + at, text);
	return (uint32_t)at;
}

static void section_set(struct cubin *c, unsigned index, const char *name, uint32_t type, const void *from, size_t size, uint32_t link,
			uint32_t info)
{
	c->sections[index] = (Elf64_Shdr){
		.sh_name = text_add(c->names, sizeof(c->names), name), .sh_type = type,
		.sh_offset = (size_t)((const uint8_t *)from - (const uint8_t *)c), .sh_size = size, .sh_link = link, .sh_info = info,
	};
}

static Elf64_Sym symbol(struct cubin *c, const char *name, unsigned char type, uint16_t section, uint64_t from, uint64_t size)
{
	return (Elf64_Sym){ .st_name = text_add(c->strings, sizeof(c->strings), name), .st_info = ELF64_ST_INFO(STB_LOCAL, type),
			    .st_shndx = section, .st_value = from, .st_size = size };
}

static void cubin_make(struct cubin *c)
{
	*c = (struct cubin){
		.eh = { .e_ident = ELFMAG, .e_shentsize = sizeof(Elf64_Shdr), .e_shoff = offsetof(struct cubin, sections),
			.e_shnum = SECTIONS, .e_shstrndx = 1 },
	};
	section_set(c, 1, ".shstrtab", SHT_STRTAB, c->names, sizeof(c->names), 0, 0);
	section_set(c, 2, ".strtab", SHT_STRTAB, c->strings, sizeof(c->strings), 0, 0);
	section_set(c, 3, ".symtab", SHT_SYMTAB, c->symbols, sizeof(c->symbols), 2, 0);
	section_set(c, 4, ".nv.global.init", SHT_PROGBITS, c->data, DATA, 0, 0);
	section_set(c, 5, ".nv.constant3", SHT_PROGBITS, c->data, DATA, 0, 0);
	section_set(c, 6, ".rela.nv.global.init", SHT_RELA, c->relocations, sizeof(c->relocations), 3, 4);
	section_set(c, 7, ".rel.nv.constant3", SHT_REL, c->short_relocations, sizeof(c->short_relocations), 3, 5);
	c->symbols[1] = symbol(c, "plain", STT_OBJECT, 4, 0, 16);
	c->symbols[2] = symbol(c, "table", STT_OBJECT, 4, 16, 24);
	c->symbols[3] = symbol(c, "odd", STT_OBJECT, 4, 42, 6);
	c->symbols[4] = symbol(c, "fixed", STT_OBJECT, 5, 8, 16);
	c->symbols[5] = symbol(c, "kernel", STT_FUNC, 4, 0, 64);
	c->relocations[0].r_offset = 32;
	c->relocations[1].r_offset = 16;
	c->relocations[2].r_offset = 20; /* the other half */
	c->relocations[3].r_offset = 44;
	c->relocations[4].r_offset = 4096; /* of nothing */
	c->short_relocations[0].r_offset = 16;
}

static void test_cubin(void **state)
{
	struct cubin *c = malloc(sizeof(*c));

	(void)state;
	cubin_make(c);
	told[0] = '\0';
	assert_true(imagevars_look(c, sizeof(*c), &hear));
	assert_string_equal(told, "plain table odd fixed* table@16 table@0 table@0 odd@-2 fixed@8 ");
	free(c);
}

/* Each byte of its tables wrong in several ways, and each length: nothing is read that isn't there. */
static void test_damaged_cubins(void **state)
{
	static const uint8_t bits[] = { 0x01, 0x80, 0xff };
	struct cubin whole;

	(void)state;
	cubin_make(&whole);
	for (size_t at = 4; at < sizeof(whole); at++)
		for (size_t i = 0; i < sizeof(bits); i++) {
			uint8_t *copy = malloc(sizeof(whole));

			memcpy(copy, &whole, sizeof(whole));
			copy[at] ^= bits[i];
			told[0] = '\0';
			imagevars_look(copy, sizeof(whole), &hear);
			free(copy);
		}
	for (size_t size = 0; size < sizeof(whole); size++) {
		uint8_t *copy = malloc(size ? size : 1);

		memcpy(copy, &whole, size);
		told[0] = '\0';
		imagevars_look(copy, size, &hear);
		free(copy);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ptx),
		cmocka_unit_test(test_cubin),
		cmocka_unit_test(test_damaged_cubins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
