/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The digest that cudart demands of its driver: proof that both were told the same about versions, process and devices.
 * Any thread.
 */
#ifndef GLEAM_INTEGRITY_H
#define GLEAM_INTEGRITY_H

#include <stdint.h>

#define INTEGRITY_SIZE 16

/* What the digest is made of, beside the list of devices. */
struct integrity {
	uint32_t driver_version; /* as cuDriverGetVersion answered */
	uint32_t version;	 /* the caller's; its last digit chooses the kind of digest */
	uint32_t process;
	uint32_t thread; /* low half of pthread_self() */
	uint64_t runtime_table;
	uint64_t integrity_table;
	uint64_t integrity_slot; /* of slot 1 */
	uint64_t time;		 /* the caller's, in seconds */
};

/* One device, in the program's order. */
struct integrity_device {
	uint8_t uuid[16]; /* of cuDeviceGetUuid */
	int32_t domain, bus, device;
};

void integrity_digest(const struct integrity *what, const struct integrity_device *devices, uint32_t count,
		      uint8_t digest_out[INTEGRITY_SIZE]);

#endif
