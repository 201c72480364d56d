// SPDX-License-Identifier: Apache-2.0
/*
 * Questions about devices, all answered from the snapshot that came at attach. Written once by cuInit before anybody can
 * ask, then only read. Any thread.
 */
#include "libgleamcuda/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/visible.h"
#include "gen/bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/peer.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/version.h"

static struct {
	uint32_t count;
	struct device devices[SNAPSHOT_DEVICES];
} table;

/* ---- bringing up ---- */

static void attributes_state(struct device *device)
{
	for (uint32_t i = 0; i < SNAPSHOT_ATTRIBUTES; i++) {
		const struct attribute_rule *rule = &attribute_rules[i];
		int32_t raw = device->raw->attributes[i];

		switch (rule->kind) {
		case ATTRIBUTE_UNKNOWN:
			break;
		case ATTRIBUTE_PASS:
			device->attributes[i] = raw;
			break;
		case ATTRIBUTE_FIX:
			device->attributes[i] = rule->value;
			break;
		case ATTRIBUTE_MIN:
			device->attributes[i] = raw < rule->value ? raw : rule->value;
			break;
		}
	}
}

static_assert(VISIBLE_MAX == SNAPSHOT_DEVICES, "as many GPUs as a snapshot has");

/* Where the GPUs of a list are. */
struct gpu_place {
	struct session *session;
	uint32_t node_device;
};

static void gpus_of(struct session *const *sessions, uint32_t count, struct visible_gpus *gpus_out,
		    struct gpu_place places_out[VISIBLE_MAX])
{
	gpus_out->count = 0;
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t k = 0; k < sessions[i]->snapshot.device_count && gpus_out->count < VISIBLE_MAX; k++) {
			const struct snapshot_device *d = &sessions[i]->snapshot.devices[k];
			uint32_t at = gpus_out->count++;

			memcpy(gpus_out->gpus[at].uuid, d->uuid, sizeof(d->uuid));
			memcpy(gpus_out->gpus[at].uuid_v1, d->uuid_v1, sizeof(d->uuid_v1));
			gpus_out->gpus[at].pci = visible_pci(d->attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID],
							     d->attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID],
							     d->attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID]);
			places_out[at] = (struct gpu_place){ sessions[i], k };
		}
}

/*
 * A server with several GPUs has chosen among them by our settings already (snapshot.given), and shows those alone. Any
 * other shows what it has: what the settings choose is chosen here, and one GPU where they are silent. Of several servers each
 * shows what it was asked for, and the settings are about all of them.
 */
static CUresult devices_choose(struct session *const *sessions, uint32_t count, const struct visible_gpus *gpus,
			       uint32_t ordinals[VISIBLE_MAX], uint32_t *count_out)
{
	const char *visible = secure_getenv("CUDA_VISIBLE_DEVICES");
	const char *asked = secure_getenv("GLEAM_GPUS");
	bool together = count > 1 || sessions[0]->chooses;
	bool given = !together && sessions[0]->snapshot.given;
	uint32_t most = visible || together ? UINT32_MAX : 1;
	CUresult result;

	if (asked && *asked && !visible_count(asked, &most)) {
		gleam_log("GLEAM_GPUS=%s: neither a number from 1 to %d nor \"all\"", asked, VISIBLE_MAX);
		return CUDA_ERROR_NO_DEVICE;
	}
	result = given ? visible_select(gpus, NULL, NULL, ordinals, count_out) :
			 visible_select(gpus, visible, secure_getenv("CUDA_DEVICE_ORDER"), ordinals, count_out);
	if (result) {
		gleam_log("no device: the server%s %u, CUDA_VISIBLE_DEVICES=%s", count > 1 ? "s have" : " has", gpus->count,
			  visible ? visible : "(not set)");
		return result;
	}
	if (given)
		return CUDA_SUCCESS;
	if (asked && most != UINT32_MAX && most > *count_out) {
		gleam_log("GLEAM_GPUS=%s: the server%s %u for this program", asked, count > 1 ? "s have" : " has", *count_out);
		return CUDA_ERROR_NO_DEVICE;
	}
	if (*count_out > most)
		*count_out = most;
	return CUDA_SUCCESS;
}

bool devices_hidden(void)
{
	const char *visible = secure_getenv("CUDA_VISIBLE_DEVICES");
	/* As many as there can be; their UUIDs are not known, so entries by UUID may name one. */
	static const struct visible_gpus most = { .count = VISIBLE_MAX };
	uint32_t ordinals[VISIBLE_MAX], count;

	return visible && strncmp(visible, "GPU-", 4) != 0 && strncmp(visible, "MIG-", 4) != 0 &&
	       visible_select(&most, visible, NULL, ordinals, &count) == CUDA_ERROR_NO_DEVICE;
}

CUresult devices_init(struct session *const *sessions, uint32_t count)
{
	struct gpu_place places[VISIBLE_MAX];
	uint32_t ordinals[SNAPSHOT_DEVICES];
	struct visible_gpus gpus;
	CUresult result;

	gpus_of(sessions, count, &gpus, places);
	result = devices_choose(sessions, count, &gpus, ordinals, &table.count);
	if (result) {
		table.count = 0;
		return result;
	}
	for (uint32_t i = 0; i < table.count; i++) {
		const struct gpu_place *place = &places[ordinals[i]];

		table.devices[i].session = place->session;
		table.devices[i].node_device = place->node_device;
		table.devices[i].unit = place->session->first + place->node_device;
		table.devices[i].raw = &place->session->snapshot.devices[place->node_device];
		attributes_state(&table.devices[i]);
	}
	return CUDA_SUCCESS;
}

int device_of_unit(uint64_t unit)
{
	for (uint32_t i = 0; i < table.count; i++)
		if (table.devices[i].unit == unit)
			return (int)i;
	return -1;
}

int device_count(void)
{
	return (int)table.count;
}

const struct device *device_at(int ordinal)
{
	return ordinal >= 0 && (uint32_t)ordinal < table.count ? &table.devices[ordinal] : NULL;
}

/* ---- the list ---- */

CUresult do_cuDeviceGetCount(struct call *call, int *count)
{
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = (int)table.count;
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGet(struct call *call, CUdevice *device, int ordinal)
{
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_at(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

/*
 * "domain:bus:device.function", "domain:bus:device" or "bus:device.function", in hexadecimal, with nothing around it.
 * Only function 0 is a device.
 */
static bool pci_read(const char *text, unsigned int place_out[3], unsigned int *function_out)
{
	unsigned int n[4] = { 0 };
	int end = 0;

	if (*text == ' ')
		return false;
	if ((sscanf(text, "%8x:%2x:%2x.%1x%n", &n[0], &n[1], &n[2], &n[3], &end) == 4 && end && !text[end]) ||
	    (n[3] = 0, end = 0, sscanf(text, "%8x:%2x:%2x%n", &n[0], &n[1], &n[2], &end) == 3 && end && !text[end])) {
		memcpy(place_out, n, 3 * sizeof(n[0]));
		*function_out = n[3];
		return true;
	}
	end = 0;
	if (sscanf(text, "%2x:%2x.%1x%n", &n[1], &n[2], &n[3], &end) == 3 && end && !text[end]) {
		n[0] = 0;
		memcpy(place_out, n, 3 * sizeof(n[0]));
		*function_out = n[3];
		return true;
	}
	return false;
}

CUresult do_cuDeviceGetByPCIBusId(struct call *call, CUdevice *dev, const char *pciBusId)
{
	unsigned int place[3], function;

	if (!dev || !pciBusId || !pci_read(pciBusId, place, &function))
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < table.count && !function; i++) {
		const int32_t *a = table.devices[i].attributes;

		if ((unsigned int)a[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID] == place[0] &&
		    (unsigned int)a[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] == place[1] &&
		    (unsigned int)a[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID] == place[2]) {
			*dev = (int)i;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_DEVICE;
}

/* ---- one device ---- */

CUresult do_cuDeviceGetAttribute(struct call *call, int *pi, CUdevice_attribute attrib, CUdevice dev)
{
	const struct device *device = device_at(dev);

	if (!pi)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	if ((uint32_t)attrib >= SNAPSHOT_ATTRIBUTES || attribute_rules[attrib].kind == ATTRIBUTE_UNKNOWN)
		return CUDA_ERROR_INVALID_VALUE;
	*pi = device->attributes[attrib];
	return CUDA_SUCCESS;
}

/* At most @size bytes with the terminator, cut where it is too short. */
static void text_give(char *out, size_t size, const char *text)
{
	size_t length = strlen(text);

	if (length > size - 1)
		length = size - 1;
	memcpy(out, text, length);
	out[length] = '\0';
}

CUresult do_cuDeviceGetName(struct call *call, char *name, int len, CUdevice dev)
{
	const struct device *device = device_at(dev);

	if (!name || len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	text_give(name, (size_t)len, device->raw->name);
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetPCIBusId(struct call *call, char *pciBusId, int len, CUdevice dev)
{
	const struct device *device = device_at(dev);

	if (!pciBusId || len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	text_give(pciBusId, (size_t)len, device->raw->pci);
	return strlen(device->raw->pci) < (size_t)len ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuDeviceGetUuid(struct call *call, CUuuid *uuid, CUdevice dev)
{
	const struct device *device = device_at(dev);

	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	memcpy(uuid->bytes, device->raw->uuid_v1, sizeof(uuid->bytes));
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetUuid_v2(struct call *call, CUuuid *uuid, CUdevice dev)
{
	const struct device *device = device_at(dev);

	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	memcpy(uuid->bytes, device->raw->uuid, sizeof(uuid->bytes));
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetLuid(struct call *call, char *luid, unsigned int *deviceNodeMask, CUdevice dev)
{
	const struct device *device = device_at(dev);

	if (!luid || !deviceNodeMask)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	/* A thing of Windows: the driver for Linux refuses it. */
	if (!device->raw->luid_known)
		return CUDA_ERROR_NOT_SUPPORTED;
	memcpy(luid, device->raw->luid, sizeof(device->raw->luid));
	*deviceNodeMask = device->raw->luid_mask;
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceTotalMem_v2(struct call *call, size_t *bytes, CUdevice dev)
{
	const struct device *device = device_at(dev);

	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = device->raw->memory;
	return CUDA_SUCCESS;
}

/* The first version has 32 bits: what doesn't fit is cut off, as the driver does. */
CUresult do_cuDeviceTotalMem(struct call *call, unsigned int *bytes, CUdevice dev)
{
	size_t size;
	CUresult result = do_cuDeviceTotalMem_v2(call, bytes ? &size : NULL, dev);

	if (!result)
		*bytes = (unsigned int)size;
	return result;
}

CUresult do_cuDeviceComputeCapability(struct call *call, int *major, int *minor, CUdevice dev)
{
	const struct device *device = device_at(dev);

	if (!major || !minor)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	*major = device->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR];
	*minor = device->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetProperties(struct call *call, CUdevprop *prop, CUdevice dev)
{
	const struct device *device = device_at(dev);

	if (!prop)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;

	const int32_t *a = device->attributes;

	prop->maxThreadsPerBlock = a[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
	for (int i = 0; i < 3; i++) {
		prop->maxThreadsDim[i] = a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i];
		prop->maxGridSize[i] = a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i];
	}
	prop->sharedMemPerBlock = a[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK];
	prop->totalConstantMemory = a[CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY];
	prop->SIMDWidth = a[CU_DEVICE_ATTRIBUTE_WARP_SIZE];
	prop->memPitch = a[CU_DEVICE_ATTRIBUTE_MAX_PITCH];
	prop->regsPerBlock = a[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK];
	prop->clockRate = a[CU_DEVICE_ATTRIBUTE_CLOCK_RATE];
	prop->textureAlign = a[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT];
	return CUDA_SUCCESS;
}

/* Any type is answered, also one that doesn't exist: with no. */
CUresult do_cuDeviceGetExecAffinitySupport(struct call *call, int *pi, CUexecAffinityType type, CUdevice dev)
{
	const struct device *device = device_at(dev);

	if (!pi)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	*pi = 0;
	return CUDA_SUCCESS;
}

/* ---- textures ---- */

/* Bytes of one texel; 0 for a combination that no one-dimensional linear texture has. */
static uint32_t texel_size(CUarray_format format, unsigned int channels)
{
	uint32_t size = 0;

	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		size = 1;
		break;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		size = 2;
		break;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		size = 4;
		break;
	default:
		return 0;
	}
	return channels == 1 || channels == 2 || channels == 4 ? size * channels : 0;
}

/* 1 Gi texels at most, and 4 GiB in all (on a card whose attribute says 1/16 of that, which is texels of 16 bytes). */
CUresult do_cuDeviceGetTexture1DLinearMaxWidth(struct call *call, size_t *maxWidthInElements, CUarray_format format,
					       unsigned int numChannels, CUdevice dev)
{
	const struct device *device = device_at(dev);
	uint32_t size = texel_size(format, numChannels);
	uint64_t width;

	if (!maxWidthInElements || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	width = 16ull * (uint32_t)device->attributes[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH] / size;
	*maxWidthInElements = width < (1u << 30) ? width : 1u << 30;
	return CUDA_SUCCESS;
}

/* ---- between devices ---- */

CUresult do_cuDeviceGetP2PAttribute(struct call *call, int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
				    CUdevice dstDevice)
{
	const struct device *src = device_at(srcDevice), *dst = device_at(dstDevice);

	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (!src || !dst || src == dst)
		return CUDA_ERROR_INVALID_DEVICE;
	if ((uint32_t)attrib == 0 || (uint32_t)attrib >= SNAPSHOT_P2P)
		return CUDA_ERROR_INVALID_VALUE;
	/* GPUs of two servers reach each other by copies alone. */
	*value = src->session == dst->session ? src->session->snapshot.p2p[src->node_device][dst->node_device][attrib] : 0;
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceCanAccessPeer(struct call *call, int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
	if (!canAccessPeer)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_at(dev) || !device_at(peerDev))
		return CUDA_ERROR_INVALID_DEVICE;
	*canAccessPeer = peer_possible(call, dev, peerDev);
	return CUDA_SUCCESS;
}

/* No atomic operation crosses the network. */
static CUresult atomics_none(unsigned int *capabilities, const CUatomicOperation *operations, unsigned int count)
{
	if (!capabilities || !operations || !count)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++)
		if ((uint32_t)operations[i] >= CU_ATOMIC_OPERATION_MAX)
			return CUDA_ERROR_INVALID_VALUE;
	memset(capabilities, 0, count * sizeof(capabilities[0]));
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetHostAtomicCapabilities(struct call *call, unsigned int *capabilities,
					      const CUatomicOperation *operations, unsigned int count, CUdevice dev)
{
	return device_at(dev) ? atomics_none(capabilities, operations, count) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult do_cuDeviceGetP2PAtomicCapabilities(struct call *call, unsigned int *capabilities,
					     const CUatomicOperation *operations, unsigned int count, CUdevice srcDevice,
					     CUdevice dstDevice)
{
	if (!device_at(srcDevice) || !device_at(dstDevice) || srcDevice == dstDevice)
		return CUDA_ERROR_INVALID_DEVICE;
	return atomics_none(capabilities, operations, count);
}

/* ---- for NVML ---- */

GLEAM_EXPORT int gleam_devices(unsigned char (*uuids)[16], int max, char *server, unsigned long server_size)
{
	int count = session_current() ? device_count() : 0;

	if (count > max)
		count = max;
	for (int i = 0; i < count; i++)
		memcpy(uuids[i], device_at(i)->raw->uuid, sizeof(uuids[i]));
	/* "": of several, whom the UUIDs tell apart. */
	if (count)
		snprintf(server, server_size, "%s", session_count() > 1 ? "" : session_current()->server);
	return count;
}
