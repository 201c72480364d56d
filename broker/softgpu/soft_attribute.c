// SPDX-License-Identifier: Apache-2.0
/*
 * Questions about devices that need no context: count, names, attributes, peers. Any thread.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "broker/softgpu/soft_device.h"

/* Each device sits on a bus of its own, as on a real board. */
#define PCI_BUS_FIRST 0x40
#define ATTRIBUTES_MAX 150 /* numbers up to here are answered, reserved ones with 0 */

/* By attribute number; what the table leaves out is 0. Capability, identity and memory are answered in code. */
static const int attribute_values[ATTRIBUTES_MAX + 1] = {
	[1] = SOFT_THREADS_PER_BLOCK,
	[2] = 1024, [3] = 1024, [4] = 64,	      /* block */
	[5] = 2147483647, [6] = 65535, [7] = 65535,    /* grid */
	[8] = SOFT_SHARED_PER_BLOCK,
	[9] = 65536,				       /* constant memory */
	[10] = SOFT_WARP_SIZE,
	[11] = 2147483647,			       /* pitch */
	[12] = SOFT_REGS_PER_SM,
	[13] = 1980000,				       /* kHz */
	[14] = 512,
	[15] = 1,				       /* copies overlap kernels */
	[16] = SOFT_SM_COUNT,
	[19] = 1,				       /* host memory can be mapped */
	[21] = 131072, [22] = 131072, [23] = 65536, [24] = 16384, [25] = 16384, [26] = 16384,
	[27] = 32768, [28] = 32768, [29] = 2048,
	[30] = 512,
	[31] = 1,				       /* concurrent kernels */
	[36] = 3201000,				       /* memory clock, kHz */
	[37] = 6144,				       /* bus width */
	[38] = 62914560,			       /* L2 */
	[39] = SOFT_THREADS_PER_SM,
	[40] = 3,				       /* copy engines */
	[41] = 1,				       /* unified addresses */
	[42] = 32768, [43] = 2048,
	[45] = 32768, [46] = 32768,
	[51] = 32,
	[52] = 32768, [53] = 32768, [54] = 2046,
	[55] = 32768, [56] = 131072, [57] = 65536, [58] = 16384, [59] = 16384, [60] = 16384,
	[61] = 32768, [62] = 2048, [63] = 32768, [64] = 32768, [65] = 2048, [66] = 32768, [67] = 32768, [68] = 2046,
	[69] = 268435456, [70] = 131072, [71] = 65000, [72] = 2097120, [73] = 32768, [74] = 32768, [77] = 32768,
	[78] = 1, [79] = 1, [80] = 1,
	[81] = SOFT_SHARED_PER_SM,
	[82] = SOFT_REGS_PER_SM,
	[83] = 1,				       /* managed memory */
	[87] = 2,				       /* single to double precision */
	[90] = 1,				       /* preemption */
	[91] = 1,				       /* the host pointer serves for registered memory */
	[95] = 1,				       /* cooperative launch */
	[97] = SOFT_SHARED_OPTIN,
	[98] = 1,				       /* flush of remote writes */
	[99] = 1,				       /* host register */
	[102] = 1, [103] = 1,			       /* virtual memory management, by descriptor */
	[106] = SOFT_BLOCKS_PER_SM,
	[111] = SOFT_SHARED_RESERVED,
	[113] = 1,				       /* read-only host registration */
	[115] = 1,				       /* memory pools */
	[122] = 1, [123] = 1,			       /* 64-bit stream operations, NOR */
	[126] = 4,				       /* memory synchronisation domains */
	[129] = 1,				       /* function pointers are the same everywhere */
	[131] = -1,				       /* no NUMA node of its own */
	[134] = -1,
	[139] = 0x233510de, [140] = 0x18be10de,
};

static int pci_bus(const struct soft_device *device)
{
	return PCI_BUS_FIRST + device->ordinal;
}

SOFT_API(cuDeviceGet, CUdevice *device, int ordinal)
{
	TRY(soft_ready());
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!soft_device_find(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

SOFT_API(cuDeviceGetCount, int *count)
{
	TRY(soft_ready());
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = soft_device_count();
	return CUDA_SUCCESS;
}

/* Every question about one device begins so. */
#define DEVICE_ASK(device, ordinal, output)                 \
	struct soft_device *device;                         \
	TRY(soft_ready());                                  \
	if (!(output))                                      \
		return CUDA_ERROR_INVALID_VALUE;            \
	device = soft_device_find(ordinal);                 \
	if (!device)                                        \
		return CUDA_ERROR_INVALID_DEVICE

SOFT_API(cuDeviceGetName, char *name, int len, CUdevice dev)
{
	DEVICE_ASK(device, dev, name);
	if (len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(name, (size_t)len, "%s", device->name);
	return CUDA_SUCCESS;
}

SOFT_API(cuDeviceGetUuid_v2, CUuuid *uuid, CUdevice dev)
{
	DEVICE_ASK(device, dev, uuid);
	*uuid = device->uuid;
	return CUDA_SUCCESS;
}

SOFT_ALIAS(cuDeviceGetUuid, cuDeviceGetUuid_v2);

SOFT_API(cuDeviceGetLuid, char *luid, unsigned int *mask, CUdevice dev)
{
	/* A Windows notion; the real driver has none here either. */
	TRY(soft_ready());
	return CUDA_ERROR_NOT_SUPPORTED;
}

SOFT_API(cuDeviceTotalMem_v2, size_t *bytes, CUdevice dev)
{
	DEVICE_ASK(device, dev, bytes);
	*bytes = device->memory_size;
	return CUDA_SUCCESS;
}

SOFT_API(cuDeviceGetAttribute, int *value, CUdevice_attribute attribute, CUdevice dev)
{
	DEVICE_ASK(device, dev, value);
	if (attribute <= 0 || attribute > ATTRIBUTES_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case 33:
		*value = pci_bus(device);
		break;
	case 75:
		*value = device->major;
		break;
	case 76:
		*value = device->minor;
		break;
	case 85: /* a board's group: each device is a board */
		*value = device->ordinal;
		break;
	default:
		*value = attribute_values[attribute];
		break;
	}
	return CUDA_SUCCESS;
}

SOFT_API(cuDeviceComputeCapability, int *major, int *minor, CUdevice dev)
{
	DEVICE_ASK(device, dev, major && minor);
	*major = device->major;
	*minor = device->minor;
	return CUDA_SUCCESS;
}

SOFT_API(cuDeviceGetProperties, CUdevprop *prop, CUdevice dev)
{
	DEVICE_ASK(device, dev, prop);
	*prop = (CUdevprop){
		.maxThreadsPerBlock = attribute_values[1],
		.maxThreadsDim = { attribute_values[2], attribute_values[3], attribute_values[4] },
		.maxGridSize = { attribute_values[5], attribute_values[6], attribute_values[7] },
		.sharedMemPerBlock = attribute_values[8],
		.totalConstantMemory = attribute_values[9],
		.SIMDWidth = attribute_values[10],
		.memPitch = attribute_values[11],
		.regsPerBlock = attribute_values[12],
		.clockRate = attribute_values[13],
		.textureAlign = attribute_values[14],
	};
	return CUDA_SUCCESS;
}

SOFT_API(cuDeviceGetPCIBusId, char *text, int len, CUdevice dev)
{
	DEVICE_ASK(device, dev, text);
	/* The real driver cuts where the buffer ends, and refuses one that holds nothing. */
	if (len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(text, (size_t)len, "%04X:%02X:%02X.0", 0, pci_bus(device), 0);
	return CUDA_SUCCESS;
}

SOFT_API(cuDeviceGetByPCIBusId, CUdevice *dev, const char *text)
{
	unsigned int domain = 0, bus, slot, function = 0;
	int used = 0;

	TRY(soft_ready());
	if (!dev || !text)
		return CUDA_ERROR_INVALID_VALUE;
	if (sscanf(text, "%x:%x:%x%n", &domain, &bus, &slot, &used) != 3) {
		domain = 0;
		if (sscanf(text, "%x:%x%n", &bus, &slot, &used) != 2)
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (text[used] && (sscanf(text + used, ".%x", &function) != 1 || function != 0))
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < soft_device_count(); i++) {
		if (domain == 0 && slot == 0 && bus == (unsigned int)pci_bus(soft_device_find(i))) {
			*dev = i;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_DEVICE;
}

SOFT_API(cuDeviceCanAccessPeer, int *can, CUdevice dev, CUdevice peer)
{
	DEVICE_ASK(device, dev, can);
	if (!soft_device_find(peer))
		return CUDA_ERROR_INVALID_DEVICE;
	*can = device->ordinal != peer;
	return CUDA_SUCCESS;
}

SOFT_API(cuDeviceGetP2PAttribute, int *value, int attribute, CUdevice source, CUdevice destination)
{
	DEVICE_ASK(device, source, value);
	if (!soft_device_find(destination))
		return CUDA_ERROR_INVALID_DEVICE;
	if (device->ordinal == destination)
		return CUDA_ERROR_INVALID_DEVICE;
	switch (attribute) {
	case 1: /* rank: all peers are alike */
	case 5: /* partial atomics */
		*value = 0;
		return CUDA_SUCCESS;
	case 2: /* access */
	case 3: /* native atomics */
	case 4: /* arrays */
		*value = attribute != 4;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

SOFT_API(cuDeviceGetExecAffinitySupport, int *supported, int type, CUdevice dev)
{
	DEVICE_ASK(device, dev, supported);
	if (type != 0)
		return CUDA_ERROR_INVALID_VALUE;
	*supported = 0;
	return CUDA_SUCCESS;
}

SOFT_API(cuDeviceGetTexture1DLinearMaxWidth, size_t *width, int format, unsigned int channels, CUdevice dev)
{
	DEVICE_ASK(device, dev, width);
	if (channels != 1 && channels != 2 && channels != 4)
		return CUDA_ERROR_INVALID_VALUE;
	*width = (size_t)attribute_values[69];
	return CUDA_SUCCESS;
}
