/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions in which lanes of a warp see each other, and mbarriers. */
#ifndef GLEAM_SOFTGPU_EXEC_SYNC_H
#define GLEAM_SOFTGPU_EXEC_SYNC_H

#include "broker/softgpu/exec.h"

enum { SHFL_UP, SHFL_DOWN, SHFL_BFLY, SHFL_IDX };
/* src[0] value, src[1] lane operand, src[2] clamp and segment, src[3] members; dst2 the predicate if sub[1] */
void exec_shfl(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
enum { VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT };
void exec_vote(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
/* sub[0]: 1 all, sub[1] bytes of the value, sub[2]: dst2 is wanted */
void exec_match(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
enum { REDUX_ADD, REDUX_MIN, REDUX_MAX, REDUX_AND, REDUX_OR, REDUX_XOR, REDUX_FMIN, REDUX_FMAX };
/* sub[0] operation, sub[1] signed, sub[2] bits: 1 abs, 2 NaN */
void exec_redux(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_elect(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_activemask(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_nanosleep(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);

enum { MB_INIT, MB_INVAL, MB_ARRIVE, MB_ARRIVE_DROP, MB_EXPECT_TX, MB_COMPLETE_TX, MB_ARRIVE_EXPECT_TX, MB_TEST, MB_TEST_PARITY };
/* sub[0] operation, src[1] its operand; sub[1]: dst is wanted */
/* Bytes have arrived at the mbarrier at @address. False: a fault was raised. */
bool exec_mbarrier_complete(struct exec_warp *warp, uint32_t lane, uint64_t address, uint32_t bytes);
/* cp.async.bulk: src[0] to src[1], addresses in their spaces (sub[0], sub[1]); src[2] bytes, src[3] the mbarrier if sub[2] */
void exec_copy_bulk(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_mbarrier_pending(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);
void exec_mbarrier(struct exec_warp *warp, const struct exec_insn *insn, uint32_t mask);

#endif
