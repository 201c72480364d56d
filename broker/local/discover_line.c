/* SPDX-License-Identifier: Apache-2.0 */
/* A line of avahi-browse --parsable; see discover_line.h. */
#include "broker/local/discover_line.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS_MAX 9
#define FIELD_SIZE 256

/* Avahi writes \ before . and \, and others as three decimal digits. False: too long, or not so. */
static bool field_undo(const char *from, size_t size, char *out, size_t out_size)
{
	size_t at = 0;

	for (size_t i = 0; i < size; i++) {
		unsigned byte = (unsigned char)from[i];

		if (byte == '\\') {
			if (size - i > 1 && from[i + 1] >= '0' && from[i + 1] <= '9') {
				if (size - i < 4)
					return false;
				byte = 0;
				for (unsigned k = 1; k <= 3; k++) {
					if (from[i + k] < '0' || from[i + k] > '9')
						return false;
					byte = 10 * byte + (unsigned)(from[i + k] - '0');
				}
				i += 3;
			} else if (size - i > 1) {
				byte = (unsigned char)from[++i];
			} else {
				return false;
			}
		}
		if (byte == 0 || byte > 255 || at + 1 >= out_size)
			return false;
		out[at++] = (char)byte;
	}
	out[at] = 0;
	return true;
}

/* A name as servers have: what can't be in one becomes `-`. False: nothing is left. */
static bool name_make(const char *from, char *out, size_t out_size)
{
	size_t at = 0;

	for (; *from; from++) {
		bool plain = (*from >= 'a' && *from <= 'z') || (*from >= 'A' && *from <= 'Z') || (*from >= '0' && *from <= '9') ||
			     *from == '-' || *from == '_' || (*from == '.' && at);

		if (at + 1 >= out_size)
			return false;
		out[at++] = plain ? *from : '-';
	}
	out[at] = 0;
	return at != 0;
}

static bool address_make(const char *address, const char *port, char *out, size_t out_size)
{
	struct in6_addr six;
	struct in_addr four;
	char *end;
	long number = strtol(port, &end, 10);
	int n;

	if (*port < '0' || *port > '9' || *end || number < 1 || number > 65535)
		return false;
	if (inet_pton(AF_INET, address, &four) == 1) {
		n = snprintf(out, out_size, "%s:%ld", address, number);
	} else if (inet_pton(AF_INET6, address, &six) == 1 && !IN6_IS_ADDR_LINKLOCAL(&six)) {
		/* A link-local one would need its interface. */
		n = snprintf(out, out_size, "[%s]:%ld", address, number);
	} else {
		return false;
	}
	return n > 0 && (size_t)n < out_size;
}

struct discover_event discover_line(const char *line)
{
	/* kind interface protocol name type domain [host address port text] */
	char fields[FIELDS_MAX][FIELD_SIZE] = { { 0 } };
	struct discover_event event = { .kind = DISCOVER_NONE };
	unsigned count = 0;

	while (count < FIELDS_MAX) {
		size_t size = strcspn(line, ";");

		if (!field_undo(line, size, fields[count], FIELD_SIZE))
			return event;
		count++;
		if (!line[size])
			break;
		line += size + 1;
	}
	if (count < 6 || strcmp(fields[4], "_gleam._tcp") != 0 || !name_make(fields[3], event.name, sizeof(event.name)))
		return event;
	if (strcmp(fields[0], "-") == 0)
		event.kind = DISCOVER_LEFT;
	else if (strcmp(fields[0], "=") == 0 && count == FIELDS_MAX &&
		 address_make(fields[7], fields[8], event.address, sizeof(event.address)))
		event.kind = DISCOVER_FOUND;
	return event;
}
