/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address ranges that programs, workers and the software GPU keep for Gleam, the same in all of them: an address means the same
 * everywhere. Bytes. Chosen where neither a kernel nor a loader puts anything, nor AddressSanitizer its shadow.
 *
 * ThreadSanitizer takes everything below 0x7e8000000000 but the lowest 512 GiB and where programs are loaded. Builds for it have
 * narrow ranges in those 512 GiB, and work with each other only: daemons don't look at addresses and may be of any build.
 */
#ifndef GLEAM_PROTO_SPACE_H
#define GLEAM_PROTO_SPACE_H

#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define SPACE_IS_TSAN
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define SPACE_IS_TSAN
#endif

#ifdef SPACE_IS_TSAN
#define SPACE_DEVICE	  0x001000000000ull
#define SPACE_HOST	  0x005000000000ull
#define SPACE_MANAGED	  0x006000000000ull
#define SPACE_MANAGED_END 0x007000000000ull
#define SPACE_SYMBOLS	  0x007000000000ull
#define SPACE_SYMBOLS_END 0x007800000000ull
#define SPACE_SPAN_BITS	  34
#else
#define SPACE_DEVICE	  0x200000000000ull /* unit u, a device of some server: SPACE_SPAN bytes from u * SPACE_SPAN behind this on */
#define SPACE_HOST	  0x300000000000ull /* page-locked memory that Gleam makes: SPACE_SPAN bytes */
#define SPACE_MANAGED	  0x380000000000ull /* managed memory of the software GPU: up to SPACE_MANAGED_END */
#define SPACE_MANAGED_END 0x390000000000ull
#define SPACE_SYMBOLS	  0x390000000000ull /* and its variables of modules */
#define SPACE_SYMBOLS_END 0x3a0000000000ull
#define SPACE_SPAN_BITS	  40
#endif
#define SPACE_SPAN (1ull << SPACE_SPAN_BITS)

#endif
