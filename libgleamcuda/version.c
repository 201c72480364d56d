// SPDX-License-Identifier: Apache-2.0
/*
 * Who this library is. A worker looks for the name before it takes a library for a driver. Any thread, any time.
 */
#include "libgleamcuda/version.h"

#include "libgleamcuda/call.h"

GLEAM_EXPORT const char *gleam_version(void)
{
	return GLEAM_VERSION;
}
