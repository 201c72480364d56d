/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a test steers libfakecuda.so: found by dlsym, not linked.
 */
#ifndef TESTS_FAKE_DRIVER_H
#define TESTS_FAKE_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

enum fake_question {
	FAKE_PENDING_MOST, /* the most commands that any stream had at a time */
	FAKE_PENDING,	   /* commands now, over all streams */
	FAKE_PIECES,	   /* cuMemCreate without cuMemRelease */
	FAKE_PAGEABLE,	   /* asynchronous copies with host memory that nobody had registered */
};

void fake_release(unsigned int count);			      /* that many hold() kernels end */
void fake_fail(const char *name, int code, int after);	      /* the call after @after more ones fails, once */
void fake_refuse_register(bool refuse);			      /* of ranges over 1 MiB */
void fake_wait_in(const char *name);			      /* calls of it return when all queues are empty; NULL: as others */
void fake_memory(uint64_t bytes);			      /* left for cuMemCreate */
unsigned int fake_ask(enum fake_question question);
unsigned int fake_calls(const char *name);

#endif
