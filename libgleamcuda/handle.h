/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handle table: what the library knows of every stream, event, module ... that the program holds. Look-ups take no
 * lock; births and deaths take one. Any thread.
 */
#ifndef GLEAM_HANDLE_H
#define GLEAM_HANDLE_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/handle.h"

struct context;

/* A new handle of @type for @context (may be NULL for types that belong to none); @data is the owner's struct. 0 when
 * the table is full or memory is short. */
uint64_t handle_new(enum object_type type, struct context *context, void *data);
/* The data of a live handle (NULL data is possible: use handle_live). NULL for anything else. */
void *handle_data(enum object_type type, uint64_t handle);
bool handle_live(enum object_type type, uint64_t handle);
/* The context a live handle belongs to, NULL if none or dead. */
struct context *handle_context(uint64_t handle);
/* Ends it and returns its data (the caller frees that). */
void *handle_end(uint64_t handle);
/* Every live handle of @context and @type, once each, while the caller makes no new ones: for context destroy and reset. */
void handle_each(enum object_type type, struct context *context, void (*each)(uint64_t handle, void *data));

#endif
