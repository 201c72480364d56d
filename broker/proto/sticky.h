/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which results leave a context unusable, as CUDA documents them: library and worker must agree.
 */
#ifndef GLEAM_PROTO_STICKY_H
#define GLEAM_PROTO_STICKY_H

#include <stdbool.h>

#include "broker/proto/cuda_abi.h"

static inline bool result_is_sticky(CUresult result)
{
	switch ((int)result) {
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_CONTAINED:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
	case CUDA_ERROR_TENSOR_MEMORY_LEAK:
	case CUDA_ERROR_EXTERNAL_DEVICE:
		return true;
	default:
		/* LAUNCH_OUT_OF_RESOURCES and COOPERATIVE_LAUNCH_TOO_LARGE refuse one launch and leave the context as it was. */
		return false;
	}
}

#endif
