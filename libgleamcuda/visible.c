// SPDX-License-Identifier: Apache-2.0
/*
 * Which devices the program sees: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, read as the driver reads them (recorded with
 * 580.159 on two GPUs). The list ends at the first entry that names no device; it is an error to name one twice.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "libgleamcuda/device.h"

#define UUID_TEXT 36 /* 8-4-4-4-12 */

static void uuid_text(const uint8_t uuid[16], char text[UUID_TEXT + 1])
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
	char own[UUID_TEXT + 1];

	uuid_text(uuid, own);
	return strncasecmp(own, text, size) == 0;
}

/* The one device whose UUID begins with the @size characters of @text; -1 if there is none, or more than one. The two
 * UUIDs of a device differ for a slice of a GPU. */
static int uuid_find(const struct snapshot *s, const char *text, size_t size)
{
	int found = -1;

	for (uint32_t i = 0; i < s->device_count; i++) {
		if (!uuid_begins(s->devices[i].uuid_v1, text, size) && !uuid_begins(s->devices[i].uuid, text, size))
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
static int uuid_entry(const struct snapshot *s, const char *text, const char **end_out)
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
static CUresult list_read(const struct snapshot *s, const char *text, const uint32_t *by_order,
			  uint32_t ordinals_out[SNAPSHOT_DEVICES], uint32_t *count_out)
{
	bool seen[SNAPSHOT_DEVICES] = { false };
	bool numbers = strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0;

	for (;;) {
		const char *end = text;
		int number = numbers ? number_entry(text, &end) : uuid_entry(s, text, &end);

		if (number < 0 || (uint32_t)number >= s->device_count)
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

/* Of PCI domain, bus and device: what PCI_BUS_ID sorts by. */
static uint64_t pci_place(const struct snapshot_device *d)
{
	return (uint64_t)(uint32_t)d->attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID] << 32 |
	       (uint64_t)(d->attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] & 0xffff) << 16 |
	       (uint64_t)(d->attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID] & 0xffff);
}

static void order_by_pci(const struct snapshot *s, uint32_t *by_order)
{
	for (uint32_t i = 1; i < s->device_count; i++) {
		uint32_t ordinal = by_order[i];
		uint32_t at = i;

		for (; at && pci_place(&s->devices[by_order[at - 1]]) > pci_place(&s->devices[ordinal]); at--)
			by_order[at] = by_order[at - 1];
		by_order[at] = ordinal;
	}
}

CUresult visible_select(const struct snapshot *snapshot, const char *visible, const char *order,
			uint32_t ordinals_out[SNAPSHOT_DEVICES], uint32_t *count_out)
{
	uint32_t by_order[SNAPSHOT_DEVICES];

	*count_out = 0;
	for (uint32_t i = 0; i < snapshot->device_count; i++)
		by_order[i] = i;
	/* The worker's driver lists the fastest first by itself. */
	if (order && strcmp(order, "PCI_BUS_ID") == 0)
		order_by_pci(snapshot, by_order);
	else if (order && strcmp(order, "FASTEST_FIRST") != 0)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!snapshot->device_count)
		return CUDA_ERROR_NO_DEVICE;
	if (visible)
		return list_read(snapshot, visible, by_order, ordinals_out, count_out);
	memcpy(ordinals_out, by_order, sizeof(by_order[0]) * snapshot->device_count);
	*count_out = snapshot->device_count;
	return CUDA_SUCCESS;
}
