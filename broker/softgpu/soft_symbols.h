/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of exported names that soft_symbols.py makes from soft_symbols.txt.
 */
#ifndef SOFT_SYMBOLS_H
#define SOFT_SYMBOLS_H

#include "broker/softgpu/soft.h"

enum soft_symbol_kind { SOFT_SYMBOL_LEGACY, SOFT_SYMBOL_PER_THREAD };

struct soft_symbol {
	const char *base;
	const char *name;
	int version; /* lowest that selects it */
	enum soft_symbol_kind kind;
	void (*function)(void);
};

/* Sorted by base name. */
extern const struct soft_symbol soft_symbols[];
extern const unsigned int soft_symbol_count;

/* What every entry point answers that this library does not have: one log line a name, the first time. */
CUresult soft_refuse(const char *name, _Atomic int *told);

#endif
