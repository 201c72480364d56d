/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one export of the library that is not the driver's.
 */
#ifndef GLEAM_VERSION_H
#define GLEAM_VERSION_H

/* "0.1.0": static text. */
const char *gleam_version(void);

#endif
