// SPDX-License-Identifier: Apache-2.0
/*
 * Names and texts of all results: also before cuInit and after a fork.
 */
#include <stddef.h>

#include "broker/lib/error_text.h"
#include "gen/bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/session.h"

/* An unknown number gives INVALID_VALUE and no text. */
CUresult do_cuGetErrorName(struct call *call, CUresult error, const char **pStr)
{
	const struct error_text *found = error_text_find((unsigned int)error);

	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = found ? found->name : NULL;
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuGetErrorString(struct call *call, CUresult error, const char **pStr)
{
	const struct error_text *found = error_text_find((unsigned int)error);

	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = found ? found->text : NULL;
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
