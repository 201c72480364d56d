// SPDX-License-Identifier: Apache-2.0
/*
 * Reads CUDA ELF files: their length, their architecture, and the parameter layout of their kernels from
 * .nv.info.<kernel>. Runs on whatever thread calls it; keeps nothing.
 */
#include "broker/lib/fatbin_elf.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "broker/lib/fatbin.h"

#define ELF_MACHINE_CUDA 190u
#define NV_INFO_PREFIX ".nv.info."

/* .nv.info items; see cuda's own tools for the full list. */
#define ITEM_FORMAT_BYTE 2u  /* value in the low byte of the size field */
#define ITEM_FORMAT_NONE 1u
#define ITEM_FORMAT_HALF 3u  /* value is the size field itself */
#define ITEM_FORMAT_SIZED 4u /* that many bytes follow */
#define ITEM_KPARAM_INFO 0x17u
#define ITEM_CBANK_PARAM_SIZE 0x19u
#define ITEM_KPARAM_INFO_V2 0x45u

/* A cubin as bytes: fields are copied out of it, since nothing says that it is aligned. */
struct elf_view {
	const uint8_t *data;
	uint64_t size;
	Elf64_Ehdr header;
};

static int elf_open(const uint8_t *data, uint64_t limit, struct elf_view *view_out)
{
	struct elf_view view = { .data = data, .size = limit };

	if (limit < sizeof(view.header))
		return -EBADMSG;
	memcpy(&view.header, data, sizeof(view.header));
	if (memcmp(view.header.e_ident, ELFMAG, SELFMAG) != 0 || view.header.e_ident[EI_CLASS] != ELFCLASS64 ||
	    view.header.e_ident[EI_DATA] != ELFDATA2LSB || view.header.e_machine != ELF_MACHINE_CUDA)
		return -EBADMSG;
	if (view.header.e_shnum && view.header.e_shentsize != sizeof(Elf64_Shdr))
		return -EBADMSG;
	if (view.header.e_phnum && view.header.e_phentsize != sizeof(Elf64_Phdr))
		return -EBADMSG;
	*view_out = view;
	return 0;
}

/* Raises @end to cover @count items of @size at @offset. */
static int extent_add(uint64_t offset, uint64_t count, uint64_t size, uint64_t limit, uint64_t *end)
{
	uint64_t bytes = count * size; /* a 16-bit count of a 16-bit size, or one 64-bit size */

	if (offset > FATBIN_IMAGE_MAX || bytes > FATBIN_IMAGE_MAX - offset)
		return -EMSGSIZE;
	if (offset + bytes > limit)
		return -EBADMSG;
	if (offset + bytes > *end)
		*end = offset + bytes;
	return 0;
}

int fatbin_elf_extent(const uint8_t *data, uint64_t limit, uint64_t *size_out)
{
	struct elf_view view;
	uint64_t end = sizeof(Elf64_Ehdr);
	int ret = elf_open(data, limit, &view);

	if (ret < 0)
		return ret;
	if (view.header.e_shnum) {
		ret = extent_add(view.header.e_shoff, view.header.e_shnum, sizeof(Elf64_Shdr), limit, &end);
		if (ret < 0)
			return ret;
	}
	if (view.header.e_phnum) {
		ret = extent_add(view.header.e_phoff, view.header.e_phnum, sizeof(Elf64_Phdr), limit, &end);
		if (ret < 0)
			return ret;
	}
	for (unsigned int i = 0; i < view.header.e_shnum; i++) {
		Elf64_Shdr section;

		memcpy(&section, data + view.header.e_shoff + i * sizeof(section), sizeof(section));
		if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL)
			continue;
		ret = extent_add(section.sh_offset, 1, section.sh_size, limit, &end);
		if (ret < 0)
			return ret;
	}
	*size_out = end;
	return 0;
}

#define SYMBOLS_SURE 3 /* behind the first, empty one: so many that are symbols are no text by chance */

/* Names are text: what is looked at there gives a section's number, a binding or a place for the name that can't be. */
static bool is_symbol(const Elf64_Sym *symbol, size_t names_end, uint16_t sections)
{
	return (symbol->st_info || symbol->st_name) && ELF64_ST_BIND(symbol->st_info) <= STB_WEAK && symbol->st_name < names_end &&
	       (symbol->st_shndx < sections || symbol->st_shndx >= SHN_LORESERVE);
}

static bool symbols_begin(const uint8_t *at, size_t offset, uint16_t sections)
{
	Elf64_Sym symbols[1 + SYMBOLS_SURE];
	static const Elf64_Sym empty;

	memcpy(symbols, at, sizeof(symbols));
	if (memcmp(&symbols[0], &empty, sizeof(empty)) != 0)
		return false;
	for (int i = 1; i <= SYMBOLS_SURE; i++)
		if (!is_symbol(&symbols[i], offset, sections))
			return false;
	return true;
}

int fatbin_elf_symbols(const void *head, size_t size, size_t *offset_out)
{
	const uint8_t *data = head;
	struct elf_view view;

	if (elf_open(data, size, &view) < 0)
		return -ENODATA;
	for (size_t at = sizeof(Elf64_Ehdr); at <= size && size - at >= (1 + SYMBOLS_SURE) * sizeof(Elf64_Sym); at += sizeof(uint64_t))
		/* Most places aren't empty. */
		if (!data[at] && symbols_begin(data + at, at, view.header.e_shnum)) {
			*offset_out = at;
			return 0;
		}
	return -ENODATA;
}

int fatbin_elf_arch(const void *elf, size_t size)
{
	struct elf_view view;
	int ret = elf_open(elf, size, &view);

	if (ret < 0)
		return ret;
	/* CUDA 13 writes ELF ABI 8 and keeps the number in the second byte; before that it was in the first. */
	if (view.header.e_ident[EI_ABIVERSION] >= 8)
		return (int)(view.header.e_flags >> 8 & 0xff);
	return (int)(view.header.e_flags & 0xff);
}

static int elf_section(const struct elf_view *view, unsigned int index, Elf64_Shdr *section_out)
{
	uint64_t table = view->header.e_shoff;
	uint64_t at = (uint64_t)index * sizeof(*section_out);

	if (index >= view->header.e_shnum || table > view->size || at > view->size - table ||
	    sizeof(*section_out) > view->size - table - at)
		return -EBADMSG;
	memcpy(section_out, view->data + table + at, sizeof(*section_out));
	if (section_out->sh_type != SHT_NOBITS && section_out->sh_type != SHT_NULL &&
	    (section_out->sh_offset > view->size || section_out->sh_size > view->size - section_out->sh_offset))
		return -EBADMSG;
	return 0;
}

/* A section's name, terminated inside the string table; NULL where it is not. */
static const char *elf_section_name(const struct elf_view *view, const Elf64_Shdr *names, const Elf64_Shdr *section)
{
	const char *name;

	if (names->sh_type != SHT_STRTAB || section->sh_name >= names->sh_size)
		return NULL;
	name = (const char *)view->data + names->sh_offset + section->sh_name;
	return memchr(name, 0, names->sh_size - section->sh_name) ? name : NULL;
}

int fatbin_kernels(const void *elf, size_t size, int (*each)(void *user, const char *name), void *user)
{
	struct elf_view view;
	Elf64_Shdr names, section;
	int ret = elf_open(elf, size, &view);

	if (ret < 0)
		return ret;
	ret = elf_section(&view, view.header.e_shstrndx, &names);
	if (ret < 0)
		return ret;
	for (unsigned int i = 0; i < view.header.e_shnum; i++) {
		const char *name;

		ret = elf_section(&view, i, &section);
		if (ret < 0)
			return ret;
		name = elf_section_name(&view, &names, &section);
		if (!name || strncmp(name, NV_INFO_PREFIX, strlen(NV_INFO_PREFIX)) != 0)
			continue;
		ret = each(user, name + strlen(NV_INFO_PREFIX));
		if (ret)
			return ret;
	}
	return 0;
}


static int info_find(const struct elf_view *view, const char *kernel, Elf64_Shdr *section_out)
{
	Elf64_Shdr names;
	int ret = elf_section(view, view->header.e_shstrndx, &names);

	if (ret < 0)
		return ret;
	for (unsigned int i = 0; i < view->header.e_shnum; i++) {
		const char *name;

		ret = elf_section(view, i, section_out);
		if (ret < 0)
			return ret;
		name = elf_section_name(view, &names, section_out);
		if (name && strncmp(name, NV_INFO_PREFIX, strlen(NV_INFO_PREFIX)) == 0 &&
		    strcmp(name + strlen(NV_INFO_PREFIX), kernel) == 0)
			/* Sections without bytes in the file have no offset that was checked. */
			return section_out->sh_type == SHT_NOBITS || section_out->sh_type == SHT_NULL ? -EBADMSG : 0;
	}
	return -ENOENT;
}

/* The bits of ordinals seen, so that a damaged table can't name one twice or leave one out unnoticed. */
struct param_marks {
	uint8_t seen[(FATBIN_PARAMS_MAX + 7) / 8];
	uint32_t count;
	uint32_t ordinal_max;
};

static int param_take(struct param_marks *marks, const struct fatbin_param *param, struct fatbin_param *params,
		      uint32_t param_max)
{
	if (param->ordinal >= FATBIN_PARAMS_MAX || param->size > FATBIN_PARAMS_SIZE_MAX ||
	    param->offset > FATBIN_PARAMS_SIZE_MAX - param->size)
		return -EBADMSG;
	if (marks->seen[param->ordinal / 8] & 1u << param->ordinal % 8)
		return -EBADMSG;
	marks->seen[param->ordinal / 8] |= (uint8_t)(1u << param->ordinal % 8);
	marks->count++;
	if (param->ordinal > marks->ordinal_max)
		marks->ordinal_max = param->ordinal;
	if (param->ordinal < param_max)
		params[param->ordinal] = *param;
	return 0;
}

int fatbin_kernel_params(const void *elf, size_t size, const char *kernel, struct fatbin_param *params,
			 uint32_t param_max, struct fatbin_kernel *kernel_out)
{
	struct elf_view view;
	Elf64_Shdr section;
	struct fatbin_kernel found = { 0 };
	struct param_marks marks = { 0 };
	int ret = elf_open(elf, size, &view);

	if (ret < 0)
		return ret;
	ret = info_find(&view, kernel, &section);
	if (ret < 0)
		return ret;

	const uint8_t *at = view.data + section.sh_offset;
	uint64_t left = section.sh_size;

	while (left >= 4) {
		unsigned int format = at[0], attribute = at[1];
		uint16_t value;
		uint32_t words[3];
		struct fatbin_param param;

		memcpy(&value, at + 2, 2);
		at += 4;
		left -= 4;
		if (format == ITEM_FORMAT_HALF && attribute == ITEM_CBANK_PARAM_SIZE)
			found.params_size = value;
		if (format != ITEM_FORMAT_SIZED) {
			if (format != ITEM_FORMAT_NONE && format != ITEM_FORMAT_BYTE && format != ITEM_FORMAT_HALF)
				return -EBADMSG;
			continue;
		}
		if (value > left)
			return -EBADMSG;
		if (attribute == ITEM_KPARAM_INFO || attribute == ITEM_KPARAM_INFO_V2) {
			if (value < sizeof(words))
				return -EBADMSG;
			memcpy(words, at, sizeof(words));
			param.ordinal = (uint16_t)(words[1] & 0xffff);
			param.offset = (uint16_t)(words[1] >> 16);
			param.size = attribute == ITEM_KPARAM_INFO ? words[2] >> 18 : words[2];
			ret = param_take(&marks, &param, params, param_max);
			if (ret < 0)
				return ret;
		}
		at += value;
		left -= value;
	}
	if (left || (marks.count && marks.count != marks.ordinal_max + 1))
		return -EBADMSG;
	found.param_count = marks.count;
	*kernel_out = found;
	return 0;
}
