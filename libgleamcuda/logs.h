/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's log as programs read it. Any thread. */
#ifndef GLEAM_LOGS_H
#define GLEAM_LOGS_H

/* From now on failed calls are logged; called once by cuInit. */
void logs_start(void);

#endif
