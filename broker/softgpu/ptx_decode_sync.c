/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes barriers, fences, and what lanes of a warp do together. */
#include <stdio.h>
#include <string.h>

#include "broker/softgpu/exec_memory.h"
#include "broker/softgpu/exec_sync.h"
#include "broker/softgpu/ptx_decode.h"

/* bar{.warp}.sync, .arrive, .red; barrier{.cta}. the same */
static void decode_bar(struct decoder *d)
{
	struct exec_insn draft = { 0 };
	struct exec_insn *insn;
	uint32_t at = 0;
	enum exec_barrier_op op = BAR_SYNC;
	bool pred = false;

	if (decode_take(d, "warp")) {
		uint32_t members;

		if (!decode_take(d, "sync"))
			decode_fail(d, "unknown instruction");
		decode_done(d);
		decode_count(d, 1, 1);
		members = decode_source(d, decode_operand(d, 0), T_B32);
		insn = decode_emit(d, exec_fence, EXEC_SYNC);
		insn->src[3] = members;
		insn->sub[3] = 1;
		return;
	}
	if (decode_take(d, "cluster")) {
		/* of one block: .arrive and .wait together are a barrier of the block, so the wait is one */
		bool wait = decode_take(d, "wait");

		(void)decode_take(d, "arrive");
		(void)decode_take(d, "release");
		(void)decode_take(d, "relaxed");
		(void)decode_take(d, "acquire");
		(void)decode_take(d, "aligned");
		decode_done(d);
		d->function->clusters = true;
		if (!wait) {
			decode_emit(d, exec_fence, EXEC_ALU);
			return;
		}
		draft.src[0] = decode_const(d, 15, 4);
		insn = decode_emit(d, NULL, EXEC_BARRIER);
		insn->src[0] = draft.src[0];
		return;
	}
	(void)decode_take(d, "cta");
	(void)decode_take(d, "aligned");
	if (decode_take(d, "arrive")) {
		op = BAR_ARRIVE;
	} else if (decode_take(d, "red")) {
		op = decode_take(d, "popc") ? BAR_POPC : decode_take(d, "and") ? BAR_AND : BAR_OR;
		if (op == BAR_OR && !decode_take(d, "or"))
			decode_fail(d, "no reduction");
		pred = op != BAR_POPC;
		(void)decode_take(d, op == BAR_POPC ? "u32" : "pred");
		at = 1;
	} else if (!decode_take(d, "sync")) {
		decode_fail(d, "unknown instruction");
	}
	decode_done(d);
	decode_count(d, at ? 3 : 1, at ? 4 : 2);
	draft.src[0] = decode_source(d, decode_operand(d, at), T_B32);
	if (d->statement->operand_count == at + 2 + (at ? 1 : 0)) {
		draft.src[1] = decode_source(d, decode_operand(d, at + 1), T_B32);
		draft.sub[1] = 1;
	}
	if (op == BAR_ARRIVE && !draft.sub[1])
		decode_fail(d, "an arrival without a number of threads");
	if (at) {
		draft.src[2] = decode_source(d, decode_operand(d, d->statement->operand_count - 1), T_PRED);
		draft.dst = decode_dest(d, decode_operand(d, 0), pred ? T_PRED : T_B32);
	}
	insn = decode_emit(d, NULL, EXEC_BARRIER);
	insn->dst = draft.dst;
	memcpy(insn->src, draft.src, sizeof(draft.src));
	insn->sub[0] = (uint8_t)op;
	insn->sub[1] = draft.sub[1];
}

/* A result register with a predicate beside it. */
static void pair_dest(struct decoder *d, const struct ptx_operand *operand, enum ptx_type type, struct exec_insn *draft,
		      bool *pair_out)
{
	*pair_out = operand->kind == OP_PAIR;
	draft->dst = decode_dest(d, *pair_out ? &operand->sub[0] : operand, type);
	draft->dst2 = *pair_out ? decode_dest(d, &operand->sub[1], T_PRED) : 0;
}

static struct exec_insn *emit_draft(struct decoder *d, exec_fn fn, enum exec_kind kind, const struct exec_insn *draft)
{
	struct exec_insn *insn = decode_emit(d, fn, kind);

	insn->dst = draft->dst;
	insn->dst2 = draft->dst2;
	memcpy(insn->src, draft->src, sizeof(insn->src));
	memcpy(insn->sub, draft->sub, sizeof(insn->sub));
	insn->imm = draft->imm;
	insn->flags = draft->flags;
	return insn;
}

static void decode_shfl(struct decoder *d)
{
	bool sync = decode_take(d, "sync");
	struct exec_insn draft = { 0 };
	bool pair;

	draft.sub[0] = decode_take(d, "up") ? SHFL_UP : decode_take(d, "down") ? SHFL_DOWN
						    : decode_take(d, "bfly")	 ? SHFL_BFLY
										 : SHFL_IDX;
	if (draft.sub[0] == SHFL_IDX && !decode_take(d, "idx"))
		decode_fail(d, "no mode");
	if (!decode_take(d, "b32"))
		decode_fail(d, "only .b32");
	decode_done(d);
	decode_count(d, sync ? 5 : 4, sync ? 5 : 4);
	draft.src[0] = decode_source(d, decode_operand(d, 1), T_B32);
	draft.src[1] = decode_source(d, decode_operand(d, 2), T_B32);
	draft.src[2] = decode_source(d, decode_operand(d, 3), T_B32);
	draft.src[3] = sync ? decode_source(d, decode_operand(d, 4), T_B32) : 0;
	pair_dest(d, decode_operand(d, 0), T_B32, &draft, &pair);
	draft.sub[1] = pair;
	emit_draft(d, exec_shfl, sync ? EXEC_SYNC : EXEC_ALU, &draft);
}

static void decode_vote(struct decoder *d)
{
	bool sync = decode_take(d, "sync");
	struct exec_insn draft = { 0 };

	draft.sub[0] = decode_take(d, "all") ? VOTE_ALL : decode_take(d, "any") ? VOTE_ANY
						     : decode_take(d, "uni")	 ? VOTE_UNI
										 : VOTE_BALLOT;
	if (draft.sub[0] == VOTE_BALLOT && !decode_take(d, "ballot"))
		decode_fail(d, "no mode");
	if (!decode_take(d, draft.sub[0] == VOTE_BALLOT ? "b32" : "pred"))
		decode_fail(d, "another type");
	decode_done(d);
	decode_count(d, sync ? 3 : 2, sync ? 3 : 2);
	draft.src[0] = decode_source(d, decode_operand(d, 1), T_PRED);
	draft.src[3] = sync ? decode_source(d, decode_operand(d, 2), T_B32) : 0;
	draft.dst = decode_dest(d, decode_operand(d, 0), draft.sub[0] == VOTE_BALLOT ? T_B32 : T_PRED);
	emit_draft(d, exec_vote, sync ? EXEC_SYNC : EXEC_ALU, &draft);
}

static void decode_match(struct decoder *d)
{
	struct exec_insn draft = { 0 };
	enum ptx_type type;
	bool pair;

	draft.sub[0] = decode_take(d, "all");
	if (!draft.sub[0] && !decode_take(d, "any"))
		decode_fail(d, "no mode");
	if (!decode_take(d, "sync"))
		decode_fail(d, "without .sync");
	type = decode_type(d);
	decode_done(d);
	decode_count(d, 3, 3);
	if (type != T_B32 && type != T_B64)
		decode_fail(d, "another type");
	draft.src[0] = decode_source(d, decode_operand(d, 1), type);
	draft.src[3] = decode_source(d, decode_operand(d, 2), T_B32);
	pair_dest(d, decode_operand(d, 0), T_B32, &draft, &pair);
	draft.sub[1] = (uint8_t)ptx_type_size(type);
	draft.sub[2] = pair;
	emit_draft(d, exec_match, EXEC_SYNC, &draft);
}

static void decode_redux(struct decoder *d)
{
	static const char *const names[] = { "add", "min", "max", "and", "or", "xor" };
	struct exec_insn draft = { 0 };
	enum ptx_type type;
	unsigned int op;

	if (!decode_take(d, "sync"))
		decode_fail(d, "without .sync");
	for (op = 0; op < 6 && !decode_take(d, names[op]); op++)
		;
	if (op == 6)
		decode_fail(d, "no operation");
	draft.sub[2] = (uint8_t)(decode_take(d, "abs") | decode_take(d, "NaN") << 1);
	type = decode_type(d);
	decode_done(d);
	decode_count(d, 3, 3);
	if (type == T_F32 && (op == REDUX_MIN || op == REDUX_MAX))
		op = op == REDUX_MIN ? REDUX_FMIN : REDUX_FMAX;
	else if (type != T_U32 && type != T_S32 && type != T_B32)
		decode_fail(d, "another type");
	draft.sub[0] = (uint8_t)op;
	draft.sub[1] = type == T_S32;
	draft.src[0] = decode_source(d, decode_operand(d, 1), T_B32);
	draft.src[3] = decode_source(d, decode_operand(d, 2), T_B32);
	draft.dst = decode_dest(d, decode_operand(d, 0), T_B32);
	emit_draft(d, exec_redux, EXEC_SYNC, &draft);
}

static void decode_elect(struct decoder *d)
{
	struct exec_insn draft = { 0 };
	const struct ptx_operand *result = decode_operand(d, 0);

	if (!decode_take(d, "sync") || result->kind != OP_PAIR)
		decode_fail(d, "unknown instruction");
	decode_done(d);
	decode_count(d, 2, 2);
	draft.src[3] = decode_source(d, decode_operand(d, 1), T_B32);
	draft.sub[1] = result->sub[0].kind == OP_REG;
	draft.dst = draft.sub[1] ? decode_dest(d, &result->sub[0], T_B32) : 0;
	draft.dst2 = decode_dest(d, &result->sub[1], T_PRED);
	emit_draft(d, exec_elect, EXEC_SYNC, &draft);
}

/* ---- mbarrier ---- */

static void take_scopes(struct decoder *d)
{
	static const char *const names[] = { "release", "acquire", "relaxed", "cta", "cluster" };

	for (unsigned int i = 0; i < sizeof(names) / sizeof(*names); i++)
		(void)decode_take(d, names[i]);
}

static void decode_mbarrier(struct decoder *d)
{
	struct exec_insn draft = { 0 };
	const char *first = d->statement->modifier_count ? d->statement->modifiers[0] : "";
	bool result = false;
	uint32_t at;
	enum exec_space space;
	uint32_t operand = 0;
	bool parity;

	d->taken |= 1;
	take_scopes(d);
	if (!strcmp(first, "pending_count")) {
		(void)decode_take(d, "b64");
		decode_done(d);
		decode_count(d, 2, 2);
		draft.src[1] = decode_source(d, decode_operand(d, 1), T_B64);
		draft.dst = decode_dest(d, decode_operand(d, 0), T_B32);
		emit_draft(d, exec_mbarrier_pending, EXEC_ALU, &draft);
		return;
	}
	if (!strcmp(first, "init")) {
		draft.sub[0] = MB_INIT;
	} else if (!strcmp(first, "inval")) {
		draft.sub[0] = MB_INVAL;
	} else if (!strcmp(first, "arrive") || !strcmp(first, "arrive_drop")) {
		draft.sub[0] = first[6] ? MB_ARRIVE_DROP : MB_ARRIVE;
		result = true;
		(void)decode_take(d, "noComplete");
		if (decode_take(d, "expect_tx")) {
			if (draft.sub[0] == MB_ARRIVE_DROP)
				decode_fail(d, "arrive_drop.expect_tx");
			draft.sub[0] = MB_ARRIVE_EXPECT_TX;
		}
	} else if (!strcmp(first, "expect_tx")) {
		draft.sub[0] = MB_EXPECT_TX;
	} else if (!strcmp(first, "complete_tx")) {
		draft.sub[0] = MB_COMPLETE_TX;
	} else if (!strcmp(first, "test_wait") || !strcmp(first, "try_wait")) {
		draft.sub[0] = MB_TEST;
		result = true;
	} else {
		decode_fail(d, "unknown instruction");
	}
	parity = decode_take(d, "parity");
	if (parity)
		draft.sub[0] = MB_TEST_PARITY;
	space = decode_space(d);
	(void)decode_take(d, "b64");
	decode_done(d);
	at = result && decode_operand(d, 0)->kind != OP_MEM;
	space = decode_address(d, decode_operand(d, at), space, &draft);
	if (space != X_SHARED && space != X_GENERIC)
		decode_fail(d, "not in shared memory");
	draft.flags = (uint16_t)space;
	if (draft.sub[0] == MB_TEST || draft.sub[0] == MB_TEST_PARITY) {
		decode_count(d, 3, 4); /* a time limit is a hint */
		draft.src[1] = decode_source(d, decode_operand(d, 2), parity ? T_B32 : T_B64);
		draft.dst = decode_dest(d, decode_operand(d, 0), T_PRED);
		emit_draft(d, exec_mbarrier, EXEC_COSTLY, &draft);
		return;
	}
	decode_count(d, at + 1, at + 2);
	if (d->statement->operand_count > at + 1)
		operand = decode_source(d, decode_operand(d, at + 1), T_B32);
	else
		operand = decode_const(d, 1, 4);
	draft.src[1] = operand;
	draft.sub[1] = at && decode_operand(d, 0)->kind == OP_REG;
	draft.dst = draft.sub[1] ? decode_dest(d, decode_operand(d, 0), T_B64) : 0;
	emit_draft(d, exec_mbarrier, EXEC_ALU, &draft);
}

/* cp.async.mbarrier.arrive{.noinc}.shared.b64 [addr]: the copies are done, so it is an arrival; without .noinc the
 * pending count goes up first, which together is nothing. */
static void decode_cp_arrive(struct decoder *d)
{
	struct exec_insn draft = { 0 };
	bool noinc;
	enum exec_space space;

	(void)decode_take(d, "async");
	(void)decode_take(d, "mbarrier");
	(void)decode_take(d, "arrive");
	noinc = decode_take(d, "noinc");
	space = decode_space(d);
	(void)decode_take(d, "b64");
	decode_done(d);
	decode_count(d, 1, 1);
	draft.flags = (uint16_t)decode_address(d, decode_operand(d, 0), space, &draft);
	draft.sub[0] = MB_ARRIVE;
	draft.src[1] = decode_const(d, noinc, 4);
	emit_draft(d, exec_mbarrier, EXEC_ALU, &draft);
}

/* ---- fences ---- */

static bool decode_fence(struct decoder *d)
{
	const char *opcode = d->statement->opcode;

	if (strcmp(opcode, "membar") && strcmp(opcode, "fence"))
		return false;
	/* every kind orders everything here; modifiers name weaker ones */
	decode_emit(d, exec_fence, EXEC_ALU);
	return true;
}

bool decode_sync(struct decoder *d)
{
	const char *opcode = d->statement->opcode;
	struct exec_insn draft = { 0 };

	if (!strcmp(opcode, "bar") || !strcmp(opcode, "barrier")) {
		decode_bar(d);
	} else if (!strcmp(opcode, "shfl")) {
		decode_shfl(d);
	} else if (!strcmp(opcode, "vote")) {
		decode_vote(d);
	} else if (!strcmp(opcode, "match")) {
		decode_match(d);
	} else if (!strcmp(opcode, "redux")) {
		decode_redux(d);
	} else if (!strcmp(opcode, "elect")) {
		decode_elect(d);
	} else if (!strcmp(opcode, "activemask")) {
		(void)decode_take(d, "b32");
		decode_done(d);
		decode_count(d, 1, 1);
		draft.dst = decode_dest(d, decode_operand(d, 0), T_B32);
		emit_draft(d, exec_activemask, EXEC_ALU, &draft);
	} else if (!strcmp(opcode, "nanosleep")) {
		(void)decode_take(d, "u32");
		decode_done(d);
		decode_count(d, 1, 1);
		decode_emit(d, exec_nanosleep, EXEC_YIELD);
	} else if (!strcmp(opcode, "mbarrier")) {
		decode_mbarrier(d);
	} else if (!strcmp(opcode, "cp")) {
		decode_cp_arrive(d);
	} else if (!strcmp(opcode, "griddepcontrol")) {
		/* programmatic launch: the launch before has ended when this one begins */
		decode_emit(d, exec_fence, EXEC_ALU);
	} else {
		return decode_fence(d);
	}
	return true;
}
