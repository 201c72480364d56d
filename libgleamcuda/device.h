/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices as the program sees them: chosen and ordered by CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, attributes as
 * attributes.toml states them. Written once by cuInit, then only read. Any thread.
 */
#ifndef GLEAM_DEVICE_H
#define GLEAM_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"
#include "broker/proto/snapshot.h"

struct session;

struct device {
	struct session *session; /* whose worker has it */
	uint32_t node_device; /* ordinal there */
	uint32_t unit;	      /* its range of addresses (memory.h) */
	const struct snapshot_device *raw;
	int32_t attributes[SNAPSHOT_ATTRIBUTES];
};

/* Of these sessions, in their order. CUDA_SUCCESS with one device at least; NO_DEVICE, or INVALID_DEVICE for settings that the
 * driver refuses. */
CUresult devices_init(struct session *const *sessions, uint32_t count);
/* The device of a unit, as the program counts; -1 where it sees none. */
int device_of_unit(uint64_t unit);
/* CUDA_VISIBLE_DEVICES hides whatever a server has, so that none need be asked: programs that are to use no GPU are told so. */
bool devices_hidden(void);
/* NULL for a bad ordinal. */
const struct device *device_at(int ordinal);

/* ---- attributes.toml, by tools/apigen/attributes.py ---- */

enum attribute_rule_kind {
	ATTRIBUTE_UNKNOWN, /* no such attribute in CUDA 13.0: INVALID_VALUE */
	ATTRIBUTE_PASS,	   /* the node's value; 0 where its driver knows none */
	ATTRIBUTE_FIX,	   /* value */
	ATTRIBUTE_MIN,	   /* the lesser of the two */
};

struct attribute_rule {
	enum attribute_rule_kind kind;
	int32_t value;
};

extern const struct attribute_rule attribute_rules[SNAPSHOT_ATTRIBUTES];

#endif
