/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verdicts that gleamd keeps: what earlier programs of this user were told about an image that they loaded, so that a load of this one needs no answer.
 * Any thread; gleamd is asked under the lock of its socket (weights_lock()). After a question that isn't answered in time, or not as it should be, this
 * gleamd is asked none any more: a late answer would be in the way of the next. One that comes after it is.
 */
#ifndef GLEAM_VERDICTS_H
#define GLEAM_VERDICTS_H

#include <stddef.h>
#include <stdint.h>

#include "libgleamcuda/answer.h"

struct session;

/* The caller's reference; NULL: nothing is known, or nobody can be asked. */
struct answer *verdicts_find(struct session *s, const struct verdict_key *key);
/* @bytes of a verdict whose load succeeded; borrowed. Nothing happens where it can't be kept. */
void verdicts_keep(struct session *s, const struct verdict_key *key, const uint8_t *bytes, size_t size);
/* A record that answer_learn() has taken, of the load with this key. */
void verdicts_more(struct session *s, const struct verdict_key *key, const void *record, size_t size);

#endif
