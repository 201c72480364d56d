/* SPDX-License-Identifier: Apache-2.0 */
/* What gleamctl asks and commands about the weight cache. Control thread. */
#ifndef GLEAM_LOCAL_CONTROL_CACHE_H
#define GLEAM_LOCAL_CONTROL_CACHE_H

#include <stdbool.h>
#include <sys/types.h>

#include "broker/lib/json.h"

struct broker;
struct server;

/*
 *	{"cmd":"cache"}  {"cmd":"cache","server":NAME} (its chunks, too)
 *	{"cmd":"cache-do","what":pin|unpin|drop|verify,"server":NAME,"hash":32 hex digits, or all}
 *	{"cmd":"cache-prefetch","server":NAME}, with a descriptor of the file
 *	{"cmd":"cache-wait","id":N}
 *
 * False: not one of these. Commands take long: they are answered by {"id":N}, and cache-wait tells what came of it, to whoever
 * gave the command. To pin, drop and verify is for root and the daemon's own user. Takes *@fd if it sets it to -1.
 */
bool control_cache(struct broker *broker, uid_t uid, const struct json_field *fields, unsigned count, int *fd, struct json *json);
/* The daemon stops. */
void control_cache_stop(void);

#endif
