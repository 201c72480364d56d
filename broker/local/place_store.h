/* SPDX-License-Identifier: Apache-2.0 */
/* The file that remembers what programs need, and who a program is. Control thread; writes are small and rare. */
#ifndef GLEAM_LOCAL_PLACE_STORE_H
#define GLEAM_LOCAL_PLACE_STORE_H

#include "broker/lib/conf.h"
#include "broker/local/sched_profile.h"

struct place_store;

/* Reads what is there. NULL: out of memory. A file that can't be read or written is told in the log; programs are learned all the same. */
struct place_store *place_store_open(const struct conf *conf, struct sched_profiles *profiles);
/* Whole or not at all. */
void place_store_save(struct place_store *store, const struct sched_profiles *profiles);
void place_store_close(struct place_store *store);

#endif
