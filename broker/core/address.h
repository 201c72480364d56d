/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses as people write them: host, host:port, 10.0.0.5:4711, [::1]:4711, [fe80::1%eth0]:4711, ::1. Any thread. */
#ifndef GLEAM_CORE_ADDRESS_H
#define GLEAM_CORE_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define ADDRESS_HOST_SIZE 256
#define ADDRESSES_MAX	  8 /* of one name: more are not tried */

struct address {
	struct sockaddr_storage at;
	socklen_t size;
};

/* @port_out is LINK_PORT when there is none. -EINVAL: not an address; nothing is looked up. */
int address_parse(const char *text, char host_out[ADDRESS_HOST_SIZE], uint16_t *port_out);
/*
 * What @text stands for, in the order to try. @literal: names are not looked up (-EAGAIN for a name); otherwise this blocks.
 * -errno and why.
 */
int address_resolve(const char *text, bool literal, bool listen, struct address *out, unsigned *count_out, char *why,
		    size_t why_size);
bool address_is_loopback(const struct sockaddr *address);

#endif
