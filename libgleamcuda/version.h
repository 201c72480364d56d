/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exports of the library that are not the driver's.
 */
#ifndef GLEAM_VERSION_H
#define GLEAM_VERSION_H

/* "0.1.0": static text. */
const char *gleam_version(void);
/* Sums over all functions that the process has called: calls, round trips, bytes, ns waited. For programs that measure. */
void gleam_counters(unsigned long long counters_out[4]);

/*
 * For libnvidia-ml.so.1 in the same process: the GPUs that CUDA has here, in its order, and the name of their server. Their
 * number, @max at most; 0 before cuInit.
 */
int gleam_devices(unsigned char (*uuids)[16], int max, char *server, unsigned long server_size);

#endif
