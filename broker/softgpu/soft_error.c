// SPDX-License-Identifier: Apache-2.0
/*
 * Names of the driver's error codes. Any thread, also before cuInit.
 */
#include "broker/lib/error_text.h"
#include "broker/softgpu/soft.h"

SOFT_API(cuGetErrorString, CUresult error, const char **text)
{
	const struct error_text *found = error_text_find((unsigned int)error);

	if (!text)
		return CUDA_ERROR_INVALID_VALUE;
	*text = found ? found->text : NULL;
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFT_API(cuGetErrorName, CUresult error, const char **name)
{
	const struct error_text *found = error_text_find((unsigned int)error);

	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	*name = found ? found->name : NULL;
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
