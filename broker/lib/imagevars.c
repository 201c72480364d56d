/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of an image; see imagevars.h. */
#include "broker/lib/imagevars.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define OBJECTS_MAX 1048576u /* of a cubin */

/* ---- a cubin ---- */

struct object {
	uint32_t section;
	uint64_t from;
	uint64_t size;
	const char *name;
	size_t name_size;
};

struct cubin {
	const uint8_t *bytes;
	size_t size;
	Elf64_Ehdr eh;
	struct object *objects; /* by section and place */
	uint32_t count;
	uint32_t room;
	bool full; /* no memory, or too many */
};

static Elf64_Shdr section_at(const struct cubin *c, uint32_t index)
{
	Elf64_Shdr section;

	memcpy(&section, c->bytes + c->eh.e_shoff + index * sizeof(section), sizeof(section));
	return section;
}

/* Its bytes are all there. */
static bool section_is_whole(const struct cubin *c, const Elf64_Shdr *section)
{
	return section->sh_offset <= c->size && section->sh_size <= c->size - section->sh_offset;
}

/* The name of a section begins with @prefix. */
static bool section_is_called(const struct cubin *c, const Elf64_Shdr *section, const char *prefix)
{
	size_t size = strlen(prefix);
	Elf64_Shdr names;

	if (c->eh.e_shstrndx >= c->eh.e_shnum)
		return false;
	names = section_at(c, c->eh.e_shstrndx);
	return section_is_whole(c, &names) && section->sh_name <= names.sh_size && size <= names.sh_size - section->sh_name &&
	       memcmp(c->bytes + names.sh_offset + section->sh_name, prefix, size) == 0;
}

static void object_add(struct cubin *c, const Elf64_Sym *sym, const char *name, size_t name_size)
{
	if (c->count == c->room) {
		uint32_t room = c->room ? 2 * c->room : 64;
		struct object *objects = room <= OBJECTS_MAX ? realloc(c->objects, room * sizeof(*objects)) : NULL;

		if (!objects) {
			c->full = true;
			return;
		}
		c->objects = objects;
		c->room = room;
	}
	c->objects[c->count++] = (struct object){ sym->st_shndx, sym->st_value, sym->st_size, name, name_size };
}

static void symbols_look(struct cubin *c, const Elf64_Shdr *table, const struct imagevars_hear *hear)
{
	Elf64_Shdr strings;

	if (!section_is_whole(c, table) || table->sh_link >= c->eh.e_shnum)
		return;
	strings = section_at(c, table->sh_link);
	if (!section_is_whole(c, &strings))
		return;
	for (uint64_t at = 0; table->sh_size - at >= sizeof(Elf64_Sym); at += sizeof(Elf64_Sym)) {
		const char *name;
		size_t name_size;
		Elf64_Sym sym;
		bool constant = false;

		memcpy(&sym, c->bytes + table->sh_offset + at, sizeof(sym));
		if (ELF64_ST_TYPE(sym.st_info) != STT_OBJECT || sym.st_name >= strings.sh_size)
			continue;
		name = (const char *)c->bytes + strings.sh_offset + sym.st_name;
		name_size = strnlen(name, strings.sh_size - sym.st_name);
		if (!name_size)
			continue;
		if (sym.st_shndx < c->eh.e_shnum) {
			Elf64_Shdr section = section_at(c, sym.st_shndx);

			constant = section_is_called(c, &section, ".nv.constant");
			if (sym.st_shndx != SHN_UNDEF)
				object_add(c, &sym, name, name_size);
		}
		hear->variable(hear->arg, name, name_size, constant);
	}
}

static int object_order(const void *a, const void *b)
{
	const struct object *one = a, *other = b;

	if (one->section != other->section)
		return one->section < other->section ? -1 : 1;
	return one->from < other->from ? -1 : one->from > other->from;
}

/* The first of @section that ends behind @place; those of a section hardly overlap. */
static uint32_t object_behind(const struct cubin *c, uint32_t section, uint64_t place)
{
	uint32_t low = 0, high = c->count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		const struct object *o = &c->objects[mid];

		if (o->section < section || (o->section == section && (o->from + o->size < o->from ? UINT64_MAX : o->from + o->size) <= place))
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static void relocations_look(const struct cubin *c, const Elf64_Shdr *table, const struct imagevars_hear *hear)
{
	size_t step = table->sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);

	uint32_t first = object_behind(c, table->sh_info, 0);

	/* Most are of code: no variable lies there. */
	if (!section_is_whole(c, table) || first == c->count || c->objects[first].section != table->sh_info)
		return;
	for (uint64_t at = 0; table->sh_size - at >= step; at += step) {
		Elf64_Rel relocation; /* the other kind begins like it */
		uint64_t place;

		memcpy(&relocation, c->bytes + table->sh_offset + at, sizeof(relocation));
		/* Sections of variables begin at multiples of 8 and more. */
		place = relocation.r_offset & ~7ull;
		for (uint32_t i = object_behind(c, table->sh_info, place); i < c->count && c->objects[i].section == table->sh_info &&
									 c->objects[i].from < place + 8; i++)
			hear->word(hear->arg, c->objects[i].name, c->objects[i].name_size, place - c->objects[i].from);
	}
}

static bool cubin_look(const uint8_t *bytes, size_t size, const struct imagevars_hear *hear)
{
	struct cubin c = { .bytes = bytes, .size = size };

	if (size < sizeof(c.eh))
		return true;
	memcpy(&c.eh, bytes, sizeof(c.eh));
	if (c.eh.e_shentsize != sizeof(Elf64_Shdr) || c.eh.e_shoff > size || c.eh.e_shnum > (size - c.eh.e_shoff) / sizeof(Elf64_Shdr))
		return true;
	for (uint32_t s = 0; s < c.eh.e_shnum; s++) {
		Elf64_Shdr section = section_at(&c, s);

		if (section.sh_type == SHT_SYMTAB)
			symbols_look(&c, &section, hear);
	}
	if (c.count)
		qsort(c.objects, c.count, sizeof(*c.objects), object_order);
	for (uint32_t s = 0; s < c.eh.e_shnum && c.count; s++) {
		Elf64_Shdr section = section_at(&c, s);

		if (section.sh_type == SHT_RELA || section.sh_type == SHT_REL)
			relocations_look(&c, &section, hear);
	}
	free(c.objects);
	return !c.full;
}

/* ---- PTX ---- */

struct text {
	const char *at;
	const char *end;
};

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool text_ends(const struct text *t)
{
	return t->at == t->end || !*t->at;
}

/* A name, a number, or a word behind a dot; behind it. */
static size_t word_skip(struct text *t)
{
	const char *from = t->at;

	while (!text_ends(t) && (is_letter(*t->at) || is_digit(*t->at)))
		t->at++;
	return (size_t)(t->at - from);
}

/* Of "u64", "b8", "f32": 8, 1, 4; 0: no type. */
static uint32_t type_bytes(const char *word, size_t size)
{
	static const struct {
		const char *bits;
		uint32_t bytes;
	} sizes[] = { { "64", 8 }, { "32", 4 }, { "16", 2 }, { "8", 1 } };

	for (size_t i = 0; size > 1 && memchr("busf", *word, 4) && i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (strlen(sizes[i].bits) == size - 1 && memcmp(word + 1, sizes[i].bits, size - 1) == 0)
			return sizes[i].bytes;
	return 0;
}

struct declared {
	const char *name;
	size_t name_size;
	uint32_t bytes; /* of an element */
	bool vector;
};

static void word_hear(const struct declared *d, uint64_t element, bool nested, const struct imagevars_hear *hear)
{
	/* Of lists in lists that are not full, and of vectors, places can't be told by counting. */
	bool known = d->bytes && !d->vector && !nested;

	hear->word(hear->arg, d->name, d->name_size, known ? element * d->bytes & ~7ull : IMAGEVARS_ANYWHERE);
}

/* Behind the '=': to the comma or semicolon that ends it. */
static void initialiser_look(struct text *t, const struct declared *d, const struct imagevars_hear *hear)
{
	uint32_t braces = 0, brackets = 0;
	uint64_t element = 0;
	bool nested = false;

	for (; !text_ends(t); t->at++) {
		char c = *t->at;

		if (c == ';' || (c == ',' && !braces && !brackets))
			return;
		if (c == '{')
			nested |= ++braces > 1;
		else if (c == '}')
			braces -= braces != 0;
		else if (c == '(')
			brackets++;
		else if (c == ')')
			brackets -= brackets != 0;
		else if (c == ',' && !brackets)
			element++;
		if (!is_letter(c) && !is_digit(c))
			continue;

		struct text name = *t;
		bool address = is_letter(c);
		size_t size = word_skip(t);

		/* generic(NAME), 0xff(NAME): the name itself comes. */
		if (address && !(size == 7 && memcmp(name.at, "generic", 7) == 0))
			word_hear(d, element, nested, hear);
		t->at--;
	}
}

/* Behind ".global" or ".const". */
static void declaration_look(struct text *t, bool constant, const struct imagevars_hear *hear)
{
	struct declared d = { .bytes = 0 };
	uint32_t brackets = 0;

	for (; !text_ends(t); t->at++) {
		char c = *t->at;

		if (c == '(') {
			brackets++;
		} else if (c == ')') {
			brackets -= brackets != 0;
		} else if (brackets) {
			continue; /* .attribute(.managed) */
		} else if (c == '.') {
			const char *word = ++t->at;
			size_t size = word_skip(t);

			d.vector |= size == 2 && word[0] == 'v';
			if (type_bytes(word, size))
				d.bytes = type_bytes(word, size);
			t->at--;
		} else if (is_letter(c)) {
			d.name = t->at;
			d.name_size = word_skip(t);
			t->at--;
		} else if (is_digit(c)) {
			word_skip(t); /* of .align, of an array */
			t->at--;
		} else if (c == '=' || c == ',' || c == ';' || c == '{') {
			if (d.name)
				hear->variable(hear->arg, d.name, d.name_size, constant);
			if (c == '=' && d.name) {
				t->at++;
				initialiser_look(t, &d, hear);
				if (text_ends(t))
					return;
				c = *t->at;
			}
			d.name = NULL;
			if (c != ',')
				return;
		}
	}
}

static void text_look(const char *text, size_t size, const struct imagevars_hear *hear)
{
	struct text t = { text, text + size };

	while (!text_ends(&t)) {
		size_t left = (size_t)(t.end - t.at);
		size_t skip = left > 8 && memcmp(t.at, ".global", 7) == 0 ? 7 : left > 7 && memcmp(t.at, ".const", 6) == 0 ? 6 : 0;
		bool constant = skip == 6;

		/* Also in instructions (ld.global.u32), where no space follows. */
		if (!skip || (t.at[skip] != ' ' && t.at[skip] != '\t')) {
			t.at++;
			continue;
		}
		t.at += skip;
		declaration_look(&t, constant, hear);
	}
}

bool imagevars_look(const void *bytes, size_t size, const struct imagevars_hear *hear)
{
	if (size >= SELFMAG && memcmp(bytes, ELFMAG, SELFMAG) == 0)
		return cubin_look(bytes, size, hear);
	text_look(bytes, size, hear);
	return true;
}
