/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker that a session leaves says with its bytes aside (NOTICE_MOVE_ASIDE in wire.h). */
#ifndef GLEAM_PROTO_ASIDE_H
#define GLEAM_PROTO_ASIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/ops.h"

/* Whether a command has bytes that may come from another node: no other one is let through with them. */
static inline bool aside_carries(uint16_t op)
{
	return op == OP_gleamMoveBulk || op == OP_gleamMoveArrayBulk || op == OP_gleamMoveImageBulk;
}

#endif
