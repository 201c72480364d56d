/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses as people write them. Any thread; see address.h. */
#include "broker/core/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/proto/wire.h"

static int port_parse(const char *text, uint16_t *port_out)
{
	unsigned long port = 0;

	if (*text == 0 || strlen(text) > 5)
		return -EINVAL;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return -EINVAL;
		port = 10 * port + (unsigned long)(*text - '0');
	}
	if (port == 0 || port > 65535)
		return -EINVAL;
	*port_out = (uint16_t)port;
	return 0;
}

int address_parse(const char *text, char host_out[ADDRESS_HOST_SIZE], uint16_t *port_out)
{
	const char *colon = strrchr(text, ':');
	const char *host = text;
	size_t size;

	*port_out = LINK_PORT;
	if (*text == '[') {
		const char *end = strchr(text, ']');

		if (!end || (end[1] && end[1] != ':'))
			return -EINVAL;
		host = text + 1;
		size = (size_t)(end - host);
		if (end[1] && port_parse(end + 2, port_out))
			return -EINVAL;
	} else if (colon && strchr(text, ':') == colon) {
		size = (size_t)(colon - text);
		if (port_parse(colon + 1, port_out))
			return -EINVAL;
	} else {
		/* No colon: a name or IPv4. Several: IPv6 without a port. */
		size = strlen(text);
	}
	if (size == 0 || size >= ADDRESS_HOST_SIZE)
		return -EINVAL;
	for (size_t i = 0; i < size; i++)
		if ((unsigned char)host[i] <= ' ' || host[i] == '/')
			return -EINVAL;
	memcpy(host_out, host, size);
	host_out[size] = 0;
	return 0;
}

int address_resolve(const char *text, bool literal, bool listen, struct address *out, unsigned *count_out, char *why,
		    size_t why_size)
{
	char host[ADDRESS_HOST_SIZE], port_text[8];
	struct addrinfo hints = {
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV | (literal ? AI_NUMERICHOST : 0) | (listen ? AI_PASSIVE : 0),
	};
	struct addrinfo *all = NULL;
	unsigned count = 0;
	uint16_t port;

	if (address_parse(text, host, &port)) {
		snprintf(why, why_size, "`%s` is not an address; write host:port, or [IPv6 address]:port", text);
		return -EINVAL;
	}
	snprintf(port_text, sizeof(port_text), "%u", port);

	int ret = getaddrinfo(host, port_text, &hints, &all);

	if (ret == EAI_NONAME && literal)
		return -EAGAIN;
	if (ret) {
		snprintf(why, why_size, "the name %s can't be looked up: %s", host,
			 ret == EAI_SYSTEM ? strerror(errno) : gai_strerror(ret));
		return -EHOSTUNREACH;
	}
	for (struct addrinfo *at = all; at && count < ADDRESSES_MAX; at = at->ai_next) {
		memcpy(&out[count].at, at->ai_addr, at->ai_addrlen);
		out[count++].size = at->ai_addrlen;
	}
	freeaddrinfo(all);
	*count_out = count;
	return 0;
}

bool address_is_loopback(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)address;

		return ntohl(in->sin_addr.s_addr) >> 24 == 127;
	}
	if (address->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const void *)address;

		if (IN6_IS_ADDR_V4MAPPED(&in->sin6_addr))
			return in->sin6_addr.s6_addr[12] == 127;
		return IN6_IS_ADDR_LOOPBACK(&in->sin6_addr);
	}
	return false;
}
