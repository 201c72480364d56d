/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all processes of this node together use of the software devices' memory, so that several workers tell one
 * story. A file named by GLEAM_SOFTGPU_LEDGER with a slot a process; slots of processes that have died, in whatever
 * way, are found by pid and start time and reused. Without the setting each process has the devices to itself.
 */
#ifndef SOFT_LEDGER_H
#define SOFT_LEDGER_H

#include "broker/softgpu/soft.h"

/* Opens the ledger if one is set. A file that can't be used is logged and done without. */
void soft_ledger_setup(void);

/* Adds @size to this process's use of @ordinal unless all together would exceed @total. */
CUresult soft_ledger_charge(CUdevice ordinal, uint64_t size, uint64_t total);
void soft_ledger_uncharge(CUdevice ordinal, uint64_t size);

/* Bytes that other processes use. */
uint64_t soft_ledger_others(CUdevice ordinal);

/* Until when a device has modelled work of any process, by soft_now_ns() (soft_time.h); NULL: there is no ledger. */
_Atomic uint64_t *soft_ledger_until(int place);

#endif
