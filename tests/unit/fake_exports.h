/* SPDX-License-Identifier: Apache-2.0 */
/* What the fake exports were given, and what they answer. */
#ifndef GLEAM_TESTS_FAKE_EXPORTS_H
#define GLEAM_TESTS_FAKE_EXPORTS_H

extern const void *fake_image; /* of the last cuModuleLoadData */
extern unsigned int fake_function_count; /* of module 0x77 */

#endif
