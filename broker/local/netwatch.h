/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network interfaces of this machine: state and counters by rtnetlink, speed by ethtool. Changes of state are told at once,
 * of speed within a second. Control thread.
 */
#ifndef GLEAM_LOCAL_NETWATCH_H
#define GLEAM_LOCAL_NETWATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/core/loop.h"

struct netwatch;

struct netwatch_link {
	char name[16];
	int index;
	bool running;	 /* it has a carrier and is up */
	bool loopback;
	double rate;	 /* bytes a second by its speed; 0: it has none that it tells */
	double tx_rate;	 /* bytes a second sent lately */
	double rx_rate;
};

/* Never fails: without netlink nothing is known, and the log says why. @changed is called from the loop. */
struct netwatch *netwatch_new(struct loop *loop, void (*changed)(void *owner), void *owner);
/* netwatch_is_stopped() tells when nothing is in flight, then netwatch_free(). */
void netwatch_stop(struct netwatch *watch);
bool netwatch_is_stopped(const struct netwatch *watch);
void netwatch_free(struct netwatch *watch);

/* Speeds and counters are looked at again; call it about once a second. */
void netwatch_look(struct netwatch *watch);
/* The interface that has the local address of a connected socket. False: none that is known. */
bool netwatch_of_socket(const struct netwatch *watch, int fd, struct netwatch_link *link_out);

#endif
