// SPDX-License-Identifier: Apache-2.0
/*
 * Finding entry points by name and version, and refusing those that are not there. Any thread.
 */
#include <stdatomic.h>
#include <string.h>

#include "broker/softgpu/soft_symbols.h"

#define GET_LEGACY 1u
#define GET_PER_THREAD 2u
#define NAME_MAX_SIZE 128u

CUresult soft_refuse(const char *name, _Atomic int *told)
{
	if (!atomic_exchange(told, 1))
		soft_log("%s: a software GPU does not have it", name);
	return soft_ready() == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : soft_ready();
}

SOFT_API(cuGetProcAddress_v2, const char *name, void **function, int version, uint64_t flags, int *status)
{
	const struct soft_symbol *best = NULL;
	bool known = false;

	if (status)
		*status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	if (!name || !function || flags & ~(uint64_t)(GET_LEGACY | GET_PER_THREAD) ||
	    flags == (GET_LEGACY | GET_PER_THREAD))
		return CUDA_ERROR_INVALID_VALUE;
	*function = NULL;
	for (unsigned int i = 0; i < soft_symbol_count; i++) {
		const struct soft_symbol *symbol = &soft_symbols[i];

		if (strcmp(symbol->base, name) != 0)
			continue;
		known = true;
		if (symbol->version > version || (symbol->kind == SOFT_SYMBOL_PER_THREAD && flags != GET_PER_THREAD))
			continue;
		/* Newest first; of one age the per-thread one, which is only looked at where it is asked for. */
		if (!best || symbol->version > best->version ||
		    (symbol->version == best->version && symbol->kind == SOFT_SYMBOL_PER_THREAD))
			best = symbol;
	}
	if (!best) {
		if (status && known)
			*status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
		return CUDA_ERROR_NOT_FOUND;
	}
	memcpy(function, &best->function, sizeof(*function));
	if (status)
		*status = CU_GET_PROC_ADDRESS_SUCCESS;
	return CUDA_SUCCESS;
}

SOFT_API(cuGetProcAddress, const char *name, void **function, int version, uint64_t flags)
{
	return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

SOFT_API(cuGetExportTable, const void **table, const CUuuid *id)
{
	/* Private tables belong to the client's library; a worker asks for none but the one a real Hopper has. */
	if (!table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*table = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}
