/* SPDX-License-Identifier: Apache-2.0 */
/* What avahi-browse --parsable prints: a line an event. Names come from strangers on the LAN. Any thread. */
#ifndef GLEAM_LOCAL_DISCOVER_LINE_H
#define GLEAM_LOCAL_DISCOVER_LINE_H

#include "broker/lib/conf.h"

enum discover_kind { DISCOVER_NONE, DISCOVER_FOUND, DISCOVER_LEFT };

struct discover_event {
	enum discover_kind kind;
	char name[CONF_NAME_SIZE];	 /* one that a server may have, see conf.h */
	char address[CONF_ADDRESS_SIZE]; /* ADDRESS:PORT; of DISCOVER_FOUND */
};

/* NONE for lines that tell nothing, and for what no server can be called. */
struct discover_event discover_line(const char *line);

#endif
