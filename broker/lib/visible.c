// SPDX-License-Identifier: Apache-2.0
/*
 * Which devices the program sees: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, read as the driver reads them (recorded with
 * 580.159 on two GPUs). The list ends at the first entry that names no device; it is an error to name one twice.
 */
#include "broker/lib/visible.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define UUID_TEXT (VISIBLE_UUID_SIZE - 1)

void visible_uuid_text(const uint8_t uuid[16], char text[VISIBLE_UUID_SIZE])
{
	static const char digits[] = "0123456789abcdef";
	int at = 0;

	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			text[at++] = '-';
		text[at++] = digits[uuid[i] >> 4];
		text[at++] = digits[uuid[i] & 15];
	}
	text[at] = '\0';
}

static bool uuid_begins(const uint8_t uuid[16], const char *text, size_t size)
{
	char own[VISIBLE_UUID_SIZE];

	visible_uuid_text(uuid, own);
	return strncasecmp(own, text, size) == 0;
}

/* The one device whose UUID begins with the @size characters of @text; -1 if there is none, or more than one. The two
 * UUIDs of a device differ for a slice of a GPU. */
static int uuid_find(const struct visible_gpus *s, const char *text, size_t size)
{
	int found = -1;

	for (uint32_t i = 0; i < s->count; i++) {
		if (!uuid_begins(s->gpus[i].uuid_v1, text, size) && !uuid_begins(s->gpus[i].uuid, text, size))
			continue;
		if (found >= 0)
			return -1;
		found = (int)i;
	}
	return found;
}

/*
 * "GPU-" or "MIG-" and the beginning of a UUID; *end_out is where the entry ends. What follows a whole UUID up to the
 * comma is not looked at.
 */
static int uuid_entry(const struct visible_gpus *s, const char *text, const char **end_out)
{
	size_t size = 0;

	if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0)
		return -1;
	text += 4;
	while (size < UUID_TEXT && (isxdigit((unsigned char)text[size]) || text[size] == '-'))
		size++;
	*end_out = text + size;
	if (size < UUID_TEXT && **end_out && **end_out != ',' && !isspace((unsigned char)**end_out))
		return -1;
	if (size == UUID_TEXT)
		while (**end_out && **end_out != ',')
			(*end_out)++;
	return size ? uuid_find(s, text, size) : -1;
}

/* A number as strtol() reads it, white space before it included; what is wider than 32 bits loses its upper ones. */
static int number_entry(const char *text, const char **end_out)
{
	char *end;
	int32_t number = (int32_t)strtoll(text, &end, 10);

	*end_out = end;
	return end == text ? -1 : number;
}

/* Entries of one list are all numbers or all UUIDs, as the first one is. */
static CUresult list_read(const struct visible_gpus *s, const char *text, const uint32_t *by_order,
			  uint32_t ordinals_out[VISIBLE_MAX], uint32_t *count_out)
{
	bool seen[VISIBLE_MAX] = { false };
	bool numbers = strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0;

	for (;;) {
		const char *end = text;
		int number = numbers ? number_entry(text, &end) : uuid_entry(s, text, &end);

		if (number < 0 || (uint32_t)number >= s->count)
			break;

		uint32_t ordinal = numbers ? by_order[number] : (uint32_t)number;

		if (seen[ordinal])
			return CUDA_ERROR_INVALID_DEVICE;
		seen[ordinal] = true;
		ordinals_out[(*count_out)++] = ordinal;
		while (isspace((unsigned char)*end))
			end++;
		if (*end != ',')
			break;
		text = end + 1;
	}
	return *count_out ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

static void order_by_pci(const struct visible_gpus *s, uint32_t *by_order)
{
	for (uint32_t i = 1; i < s->count; i++) {
		uint32_t ordinal = by_order[i];
		uint32_t at = i;

		for (; at && s->gpus[by_order[at - 1]].pci > s->gpus[ordinal].pci; at--)
			by_order[at] = by_order[at - 1];
		by_order[at] = ordinal;
	}
}

CUresult visible_select(const struct visible_gpus *s, const char *visible, const char *order,
			uint32_t ordinals_out[VISIBLE_MAX], uint32_t *count_out)
{
	uint32_t by_order[VISIBLE_MAX];

	*count_out = 0;
	for (uint32_t i = 0; i < s->count; i++)
		by_order[i] = i;
	/* The driver lists the fastest first by itself. */
	if (order && strcmp(order, "PCI_BUS_ID") == 0)
		order_by_pci(s, by_order);
	else if (order && strcmp(order, "FASTEST_FIRST") != 0)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!s->count)
		return CUDA_ERROR_NO_DEVICE;
	if (visible)
		return list_read(s, visible, by_order, ordinals_out, count_out);
	memcpy(ordinals_out, by_order, sizeof(by_order[0]) * s->count);
	*count_out = s->count;
	return CUDA_SUCCESS;
}

bool visible_count(const char *text, uint32_t *count_out)
{
	char *end;
	unsigned long count;

	if (strcmp(text, "all") == 0) {
		*count_out = UINT32_MAX;
		return true;
	}
	count = strtoul(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || !count || count > VISIBLE_MAX)
		return false;
	*count_out = (uint32_t)count;
	return true;
}
