/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What differs between Linux 6.1 and 6.12. In a kernel tree only the newer branch of each stays.
 */
#ifndef _GLEAM_COMPAT_H
#define _GLEAM_COMPAT_H

#include <linux/eventfd.h>
#include <linux/mm.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
static inline void gleam_vm_flags_mod(struct vm_area_struct *vma, vm_flags_t set, vm_flags_t clear)
{
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
}
#else
static inline void gleam_vm_flags_mod(struct vm_area_struct *vma, vm_flags_t set, vm_flags_t clear)
{
	vm_flags_mod(vma, set, clear);
}
#endif

static inline void gleam_eventfd_signal(struct eventfd_ctx *ctx)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
	eventfd_signal(ctx, 1);
#else
	eventfd_signal(ctx);
#endif
}

/* The class callbacks' device. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define GLEAM_CLASS_CONST
#else
#define GLEAM_CLASS_CONST const
#endif

#endif /* _GLEAM_COMPAT_H */
