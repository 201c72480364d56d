/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Managed memory as the API has it: allocations, variables of modules, advice. How it works is in region.h. Any thread.
 */
#ifndef GLEAM_MANAGED_H
#define GLEAM_MANAGED_H

#include <stdint.h>

#include "broker/proto/cuda_abi.h"

struct call;
struct program;
struct range;

/* The memory of an allocation, whose range has been removed, goes back. */
CUresult managed_give(struct call *call, const struct range *range);
/* A managed variable that the driver has placed at @address, in the call's context. NOT_SUPPORTED where this process has
 * something else there. */
CUresult managed_variable(struct call *call, struct program *program, uint64_t address, uint64_t size);
void managed_variable_gone(struct program *program, uint64_t address);

#endif
