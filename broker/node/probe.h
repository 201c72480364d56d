/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What GPUs a node has, asked of the driver by a process of its own: the daemon itself never loads a driver. Where NVML is
 * there the process stays and tells free memory and utilisation once a second. Control thread.
 */
#ifndef GLEAM_NODE_PROBE_H
#define GLEAM_NODE_PROBE_H

#include <stdbool.h>

#include "broker/core/loop.h"
#include "broker/node/proc.h"
#include "broker/proto/stats.h"

struct probe;

/*
 * Never fails: without an answer no GPUs are known, and the log says why. @known is called when all have been told. @speed of
 * the GPUs, 1 as the reference; 0: to be measured.
 */
void probe_start(struct loop *loop, const struct proc_setting *setting, double speed, void (*known)(void *owner), void *owner,
		 struct probe **probe_out);
void probe_stop(struct probe *probe);
bool probe_is_stopped(const struct probe *probe);
void probe_free(struct probe *probe);
uint64_t probe_gpu_pci(const struct probe *probe, uint32_t index); /* visible_pci() */
uint32_t probe_gpu_count(const struct probe *probe); /* 0: not known (yet) */
void probe_gpus(const struct probe *probe, struct report *report);

/* The process: gleamd --probe-driver PATH [no-speed]. Returns its exit status. */
int probe_main(const char *driver, bool measure);
/* In it: how fast the GPU is, 1 as the reference; 0: that can't be measured. @driver: of dlopen(). */
double probe_speed(void *driver, int device);

/* In it: the NVML of @driver (path, and of dlopen()); a GPU's by its UUID; what it says now, as lines. */
bool probe_nvml_open(const char *path, void *driver);
bool probe_nvml_device(int index, const char *uuid);
void probe_nvml_tell(int index);

#endif
