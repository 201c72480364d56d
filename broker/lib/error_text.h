/* SPDX-License-Identifier: Apache-2.0 */
/* Names and texts of the driver's results: what library and software GPU answer. Static; any thread. */
#ifndef GLEAM_LIB_ERROR_TEXT_H
#define GLEAM_LIB_ERROR_TEXT_H

#include <stdint.h>

struct error_text {
	uint16_t code;
	const char *name;
	const char *text;
};

/* NULL for a number that is no CUresult. */
const struct error_text *error_text_find(unsigned int error);

#endif
