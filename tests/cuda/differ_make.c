// SPDX-License-Identifier: Apache-2.0
/*
 * Programs from a seed. Each step has dice of its own (by seed and number), so that a change in one changes little in
 * the others. What would race gets a wait before it, of a kind that the dice choose.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/differ.h"

#define STEPS_LEAST 20
#define STEPS_MOST  150
#define MEND_TRIES  8 /* waits put before one operation; then it is left out */

struct maker {
	struct program *program;
	const struct make_options *options;
	struct model *model;
	uint64_t dice;
	uint32_t dropped;
};

static uint64_t roll(struct maker *k, uint64_t sides)
{
	k->dice = k->dice * 6364136223846793005ull + 1442695040888963407ull;
	return sides ? (k->dice >> 33) % sides : 0;
}

static void append(struct maker *k, const struct op *op)
{
	struct program *p = k->program;

	assert(p->count < DIFFER_OPS);
	p->ops[p->count] = *op;
	model_apply(k->model, &p->ops[p->count++]);
}

/* Some wait after which nothing of @stream, as @namer names it, is outstanding for @op. */
static bool wait_before(struct maker *k, const struct op *op, int stream, int namer)
{
	struct op step = { .thread = op->thread, .kind = OP_SYNC_CONTEXT };
	int stream_at = op_arg((enum kind)op->kind, "stream");
	int event = (int)roll(k, DIFFER_EVENTS), s, t;
	uint64_t way = roll(k, 8);

	if (stream < 0 || way == 0)
		goto last;
	if (stream_at >= 0 && way > 2 && model_event(k->model, event)) {
		step = (struct op){ .thread = (uint8_t)namer, .kind = OP_RECORD, .a = { event, stream, (int64_t)roll(k, 2) } };
		if (model_check(k->model, &step, &s, &t) != MODEL_FINE)
			goto last;
		append(k, &step);
		step = (struct op){ .thread = op->thread, .kind = OP_WAIT, .a = { event, op->a[stream_at], (int64_t)roll(k, 2) } };
	} else if (way == 1 && model_event(k->model, event)) {
		step = (struct op){ .thread = (uint8_t)namer, .kind = OP_RECORD, .a = { event, stream, 0 } };
		if (model_check(k->model, &step, &s, &t) != MODEL_FINE)
			goto last;
		append(k, &step);
		step = (struct op){ .thread = op->thread, .kind = OP_SYNC_EVENT, .a = { event } };
	} else if (namer == op->thread) {
		step = (struct op){ .thread = op->thread, .kind = OP_SYNC_STREAM, .a = { stream, (int64_t)roll(k, 2) } };
	}
	if (model_check(k->model, &step, &s, &t) == MODEL_FINE) {
		append(k, &step);
		return true;
	}
last:
	step = (struct op){ .thread = op->thread, .kind = OP_SYNC_CONTEXT };
	if (model_check(k->model, &step, &s, &t) != MODEL_FINE)
		return false;
	append(k, &step);
	return true;
}

static bool emit(struct maker *k, struct op op)
{
	int stream, namer;

	for (int tries = 0; tries < MEND_TRIES; tries++) {
		if (k->program->count + 8 > DIFFER_OPS)
			break;
		switch (model_check(k->model, &op, &stream, &namer)) {
		case MODEL_FINE:
			append(k, &op);
			return true;
		case MODEL_INVALID:
			goto drop;
		case MODEL_RACES:
			if (!wait_before(k, &op, tries < MEND_TRIES - 2 ? stream : -1, namer))
				goto drop;
		}
	}
drop:
	k->dropped++;
	return false;
}

/* ---- choices ---- */

/* Sizes at which ways of transport change, beside small ones. */
static size_t size_draw(struct maker *k)
{
	static const size_t edges[] = { 4000, 4004, 4096, 32764, 32768, 32772, 65536, 100004 };
	static const size_t large[] = { (1u << 20) - 4, 1u << 20, (1u << 20) + 4, (2u << 20), (3u << 20) + 52 };
	uint64_t way = roll(k, 64);

	if (way == 0)
		return large[roll(k, 5)];
	if (way < 14)
		return edges[roll(k, 8)];
	return 4 + 4 * roll(k, 512);
}

static int buf_draw(struct maker *k)
{
	int first = (int)roll(k, DIFFER_BUFS);

	for (int i = 0; i < DIFFER_BUFS; i++)
		if (model_buf_size(k->model, (first + i) % DIFFER_BUFS))
			return (first + i) % DIFFER_BUFS;
	return 0;
}

static int host_draw(struct maker *k)
{
	int first = (int)roll(k, DIFFER_HOSTS);

	for (int i = 0; i < DIFFER_HOSTS; i++)
		if (model_host_size(k->model, (first + i) % DIFFER_HOSTS))
			return (first + i) % DIFFER_HOSTS;
	return 0;
}

static int stream_draw(struct maker *k)
{
	int first = (int)roll(k, DIFFER_STREAMS);

	for (int i = 0; i < DIFFER_STREAMS; i++)
		if (model_stream(k->model, (first + i) % DIFFER_STREAMS))
			return (first + i) % DIFFER_STREAMS;
	return 0;
}

static int event_draw(struct maker *k)
{
	int first = (int)roll(k, DIFFER_EVENTS);

	for (int i = 0; i < DIFFER_EVENTS; i++)
		if (model_event(k->model, (first + i) % DIFFER_EVENTS))
			return (first + i) % DIFFER_EVENTS;
	return 0;
}

static int module_draw(struct maker *k)
{
	int first = (int)roll(k, DIFFER_MODULES);

	for (int i = 0; i < DIFFER_MODULES; i++)
		if (model_module(k->model, (first + i) % DIFFER_MODULES))
			return (first + i) % DIFFER_MODULES;
	return 0;
}

/* A piece of @room, @unit bytes aligned: often all of it, often at the beginning. */
static void piece_draw(struct maker *k, size_t room, size_t unit, int64_t *off_out, int64_t *size_out)
{
	size_t units = room / unit;
	size_t from = roll(k, 3) ? 0 : roll(k, units);
	size_t count = roll(k, 2) ? units - from : 1 + roll(k, units - from);

	*off_out = (int64_t)(from * unit);
	*size_out = (int64_t)(count * unit);
}

static int64_t form_draw(struct maker *k, int stream)
{
	int64_t form = (int64_t)roll(k, 16);

	return stream < 2 ? form : form & ~(int64_t)FORM_SYNC;
}

/* ---- steps ---- */

static void set_all(struct maker *k, int thread, int buf, int stream, int64_t form)
{
	size_t size = model_buf_size(k->model, buf);

	emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_SET,
			     .a = { buf, 0, 8, (int64_t)roll(k, 256), (int64_t)size, stream, form } });
}

/* Memory without contents is never used: a memset comes with it. */
static void step_buf(struct maker *k, int thread)
{
	int buf = (int)roll(k, DIFFER_BUFS), stream = stream_draw(k);
	bool async = roll(k, 2);
	size_t size = size_draw(k);

	if (model_buf_size(k->model, buf)) {
		if (async && model_buf_pooled(k->model, buf))
			emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_FREE_ASYNC,
					     .a = { buf, stream, (int64_t)roll(k, 2) } });
		else
			emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_FREE, .a = { buf } });
		return;
	}
	if (async) {
		int pool = (int)roll(k, DIFFER_POOLS + 1);

		if (pool && !model_pool(k->model, pool - 1))
			pool = 0;
		if (emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_ALLOC_ASYNC,
					 .a = { buf, (int64_t)size, pool, stream, (int64_t)roll(k, 2) } }))
			set_all(k, thread, buf, stream, 0);
	} else if (emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_ALLOC,
					.a = { buf, (int64_t)size, (int64_t)roll(k, k->options->shared ? ALLOC_HOWS : 2) } })) {
		set_all(k, thread, buf, 0, FORM_SYNC);
	}
}

static void step_host(struct maker *k, int thread)
{
	int host = (int)roll(k, DIFFER_HOSTS);

	if (model_host_size(k->model, host)) {
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_HOST_END, .a = { host } });
		return;
	}
	size_t size = size_draw(k);

	if (emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_HOST_NEW,
				 .a = { host, (int64_t)size, (int64_t)roll(k, HOST_HOWS) } }))
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_HOST_FILL,
				     .a = { host, 0, (int64_t)size, (int64_t)roll(k, 1000) } });
}

static void step_fill(struct maker *k, int thread)
{
	struct op op = { .thread = (uint8_t)thread, .kind = roll(k, 2) ? OP_HOST_FILL : OP_HOST_READ };
	int host = host_draw(k);

	op.a[0] = host;
	piece_draw(k, model_host_size(k->model, host), 1, &op.a[1], &op.a[2]);
	if (op.kind == OP_HOST_FILL)
		op.a[3] = (int64_t)roll(k, 1000);
	emit(k, op);
}

static void step_copy(struct maker *k, int thread, bool up)
{
	struct op op = { .thread = (uint8_t)thread, .kind = up ? OP_UP : OP_DOWN };
	int buf = buf_draw(k), host = host_draw(k), stream = stream_draw(k);
	size_t a = model_buf_size(k->model, buf), b = model_host_size(k->model, host);

	if (!a || !b)
		return;
	op.a[0] = buf;
	op.a[3] = host;
	piece_draw(k, a < b ? a : b, roll(k, 4) ? 4 : 1, &op.a[1], &op.a[2]);
	op.a[4] = roll(k, 2) ? (int64_t)(b - (size_t)op.a[2]) : 0;
	if (roll(k, 2))
		op.a[1] = (int64_t)(a - (size_t)op.a[2]);
	op.a[5] = stream;
	op.a[6] = form_draw(k, stream);
	emit(k, op);
}

static void step_dev(struct maker *k, int thread)
{
	struct op op = { .thread = (uint8_t)thread, .kind = OP_DEV };
	int to = buf_draw(k), from = buf_draw(k), stream = stream_draw(k);
	size_t a = model_buf_size(k->model, to), b = model_buf_size(k->model, from);

	if (!a || !b)
		return;
	op.a[0] = to;
	op.a[3] = from;
	piece_draw(k, a < b ? a : b, roll(k, 4) ? 4 : 1, &op.a[1], &op.a[2]);
	op.a[4] = (int64_t)(b - (size_t)op.a[2]);
	op.a[5] = stream;
	op.a[6] = form_draw(k, stream);
	emit(k, op);
}

static void step_2d(struct maker *k, int thread)
{
	static const enum kind kinds[] = { OP_UP2D, OP_DOWN2D, OP_DEV2D };
	enum kind kind = kinds[roll(k, 3)];
	int buf = buf_draw(k), other = kind == OP_DEV2D ? buf_draw(k) : host_draw(k), stream = stream_draw(k);
	size_t a = model_buf_size(k->model, buf);
	size_t b = kind == OP_DEV2D ? model_buf_size(k->model, other) : model_host_size(k->model, other);
	size_t room = a < b ? a : b, width, rows, gap, other_gap;

	if (room < 8)
		return;
	width = 1 + roll(k, room / 2 < 300 ? room / 2 : 300);
	gap = roll(k, 3) * roll(k, 40);
	other_gap = roll(k, 3) * roll(k, 40);
	rows = (room - width) / (width + (gap > other_gap ? gap : other_gap)) + 1;
	if (rows > 1)
		rows = 1 + roll(k, rows < 400 ? rows : 400);
	emit(k, (struct op){ .thread = (uint8_t)thread, .kind = (uint8_t)kind,
			     .a = { buf, 0, (int64_t)(width + gap), (int64_t)width, (int64_t)rows, other, 0,
				    (int64_t)(width + other_gap), stream, form_draw(k, stream) } });
}

static void step_set(struct maker *k, int thread)
{
	struct op op = { .thread = (uint8_t)thread, .kind = OP_SET };
	int buf = buf_draw(k), stream = stream_draw(k);
	int64_t bits = 8 << roll(k, 3), unit = bits / 8;
	size_t size = model_buf_size(k->model, buf);

	if (size < 4)
		return;
	if (roll(k, 4) == 0) {
		int64_t count = 1 + (int64_t)roll(k, size / 4 < 64 ? size / 4 : 64);
		int64_t pitch = (count + (int64_t)roll(k, 8)) * unit;
		int64_t rows = ((int64_t)size - count * unit) / pitch + 1;

		if (rows < 1)
			return;
		if (rows > 100)
			rows = 100;
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_SET2D,
				     .a = { buf, 0, pitch, bits, (int64_t)roll(k, 1u << 31), count, rows, stream,
					    form_draw(k, stream) } });
		return;
	}
	op.a[0] = buf;
	piece_draw(k, size, (size_t)unit, &op.a[1], &op.a[4]);
	op.a[4] /= unit;
	op.a[2] = bits;
	op.a[3] = (int64_t)roll(k, 1u << 31);
	op.a[5] = stream;
	op.a[6] = form_draw(k, stream);
	emit(k, op);
}

static void step_launch(struct maker *k, int thread)
{
	struct op op = { .thread = (uint8_t)thread, .kind = OP_LAUNCH };
	int buf = buf_draw(k), from = buf_draw(k), stream = stream_draw(k);
	size_t a = model_buf_size(k->model, buf), b = model_buf_size(k->model, from);

	if (a < 4 || b < 4)
		return;
	op.a[0] = module_draw(k);
	op.a[1] = (int64_t)roll(k, FUNCTIONS);
	op.a[2] = buf;
	if (op.a[1] == FN_MIX) {
		piece_draw(k, a < b ? a : b, 4, &op.a[3], &op.a[4]);
		op.a[6] = from;
		op.a[7] = (int64_t)(b / 4 * 4 - (size_t)op.a[4]);
	} else {
		piece_draw(k, a, 4, &op.a[3], &op.a[4]);
	}
	op.a[4] /= 4;
	op.a[5] = (int64_t)roll(k, 1u << 31);
	if (op.a[1] == FN_LATE)
		op.a[8] = (int64_t)roll(k, 300000);
	op.a[9] = stream;
	op.a[10] = form_draw(k, stream) & ~(int64_t)FORM_SYNC;
	emit(k, op);
}

static void step_stream(struct maker *k, int thread)
{
	int stream = 2 + (int)roll(k, DIFFER_CREATED);

	if (model_stream(k->model, stream))
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_STREAM_END, .a = { stream } });
	else if (model_stream_room(k->model))
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_STREAM_NEW,
				     .a = { stream, (int64_t)roll(k, 2), (int64_t)roll(k, 8) - 6 } });
}

static void step_event(struct maker *k, int thread)
{
	int event = (int)roll(k, DIFFER_EVENTS);

	if (model_event(k->model, event))
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_EVENT_END, .a = { event } });
	else
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_EVENT_NEW, .a = { event, (int64_t)roll(k, 4) } });
}

static void step_order(struct maker *k, int thread)
{
	int stream = stream_draw(k), event = event_draw(k);
	int64_t form = (int64_t)roll(k, 2);

	switch (roll(k, 9)) {
	case 0:
	case 1:
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_RECORD, .a = { event, stream, form } });
		break;
	case 2:
	case 3:
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_WAIT, .a = { event, stream, form } });
		break;
	case 4:
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_SYNC_STREAM, .a = { stream, form } });
		break;
	case 5:
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_SYNC_EVENT, .a = { event } });
		break;
	case 6:
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_QUERY_STREAM, .a = { stream, form } });
		break;
	case 7:
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_QUERY_EVENT, .a = { event } });
		break;
	default:
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_ELAPSED, .a = { event, event_draw(k) } });
		break;
	}
}

static void step_module(struct maker *k, int thread)
{
	/* The first one stays: illegal calls use its functions. */
	int module = 1 + (int)roll(k, DIFFER_MODULES - 1);

	if (model_module(k->model, module))
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_MODULE_END, .a = { module } });
	else
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_MODULE_NEW, .a = { module, (int64_t)roll(k, 2) } });
}

static void step_pool(struct maker *k, int thread)
{
	int pool = (int)roll(k, DIFFER_POOLS);

	if (!model_pool(k->model, pool))
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_POOL_NEW, .a = { pool, (int64_t)roll(k, 2) } });
	else
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = roll(k, 3) || real_driver ? OP_POOL_TRIM : OP_POOL_END,
				     .a = { pool, (int64_t)(roll(k, 2) << 20) } });
}

static void step_other(struct maker *k, int thread)
{
	int stream = stream_draw(k), buf = buf_draw(k);
	struct op op = { .thread = (uint8_t)thread };
	size_t size = model_buf_size(k->model, buf);

	switch (roll(k, k->options->words ? 4 : 3)) {
	case 0:
		op.kind = OP_GLOBAL_SET;
		op.a[0] = module_draw(k);
		op.a[1] = (int64_t)roll(k, 1u << 31);
		op.a[2] = stream;
		op.a[3] = (int64_t)roll(k, 2);
		break;
	case 3:
		if (size < 4)
			return;
		op.kind = OP_WRITE_VALUE;
		op.a[0] = buf;
		op.a[1] = (int64_t)roll(k, size / 4) * 4;
		op.a[2] = (int64_t)roll(k, 1u << 31);
		op.a[3] = stream;
		op.a[4] = (int64_t)roll(k, 2);
		break;
	default:
		op.kind = OP_HOSTFUNC;
		op.a[0] = (int64_t)roll(k, DIFFER_CELLS);
		op.a[1] = (int64_t)roll(k, 1000);
		op.a[2] = stream;
		op.a[3] = form_draw(k, stream) & ~(int64_t)FORM_SYNC;
		break;
	}
	emit(k, op);
}

static void step_ask(struct maker *k, int thread)
{
	struct op op = { .thread = (uint8_t)thread, .kind = OP_ASK, .a = { (int64_t)roll(k, ASKS) } };

	if (op.a[0] < 3)
		op.a[1] = stream_draw(k);
	else if (op.a[0] < 6)
		op.a[1] = buf_draw(k);
	else
		op.a[1] = op.a[0] == 6 ? host_draw(k) : module_draw(k);
	if (op.a[0] >= 3 && op.a[0] < 6)
		op.a[2] = (int64_t)roll(k, model_buf_size(k->model, (int)op.a[1]));
	emit(k, op);
}

static void step_illegal(struct maker *k, int thread)
{
	emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_ILLEGAL,
			     .a = { (int64_t)roll(k, k->options->real ? illegal_real_count : illegal_count), buf_draw(k),
				    stream_draw(k) } });
}

static void step_graph(struct maker *k, int thread)
{
	int buf = buf_draw(k), stream = stream_draw(k);
	struct op op = { .thread = (uint8_t)thread, .kind = OP_GRAPH };

	if (model_buf_size(k->model, buf) < 4)
		return;
	op.a[0] = module_draw(k);
	op.a[1] = buf;
	piece_draw(k, model_buf_size(k->model, buf), 4, &op.a[2], &op.a[3]);
	op.a[3] /= 4;
	op.a[4] = (int64_t)roll(k, 1u << 31);
	op.a[5] = 1 + (int64_t)roll(k, 6);
	op.a[6] = stream;
	op.a[7] = (int64_t)roll(k, 2);
	emit(k, op);
}

/* The same kind of memory, given to streams that capture; now and then it goes down to the host as the last thing. */
static void step_capture(struct maker *k, int thread)
{
	int buf = buf_draw(k), host = host_draw(k), stream = stream_draw(k);
	struct op op = { .thread = (uint8_t)thread, .kind = OP_CAPTURE };
	size_t room = model_buf_size(k->model, buf), most = model_host_size(k->model, host);
	bool down = most >= 4 && model_host_pinned(k->model, host) && model_buf_how(k->model, buf) < ALLOC_MANAGED && roll(k, 2);

	if (room < 8)
		return;
	op.a[0] = module_draw(k);
	op.a[1] = buf;
	piece_draw(k, room, 8, &op.a[2], &op.a[3]);
	op.a[3] /= 4;
	op.a[4] = (int64_t)roll(k, 1u << 31);
	op.a[5] = 1 + (int64_t)roll(k, 8);
	op.a[6] = stream;
	op.a[7] = (int64_t)roll(k, 2);
	op.a[8] = -1;
	if (down) {
		op.a[8] = host;
		if ((size_t)op.a[3] > most / 4)
			op.a[3] = (int64_t)(most / 8 * 2);
		op.a[9] = roll(k, 2) ? (int64_t)(most - (size_t)op.a[3] * 4) : 0;
	}
	if (op.a[3] >= 2)
		emit(k, op);
}

/* The host looks at memory of the device, or writes there, without a copy. */
static void step_touch(struct maker *k, int thread)
{
	struct op op = { .thread = (uint8_t)thread, .kind = roll(k, 2) ? OP_BUF_FILL : OP_BUF_READ };
	int first = (int)roll(k, DIFFER_BUFS);

	for (int i = 0; i < DIFFER_BUFS; i++) {
		int buf = (first + i) % DIFFER_BUFS;

		if (!model_buf_size(k->model, buf) || model_buf_how(k->model, buf) < ALLOC_MANAGED)
			continue;
		op.a[0] = buf;
		piece_draw(k, model_buf_size(k->model, buf), 1, &op.a[1], &op.a[2]);
		if (op.kind == OP_BUF_FILL)
			op.a[3] = (int64_t)roll(k, 1000);
		emit(k, op);
		return;
	}
}

/*
 * What some frameworks do with each computation: a stream computes, and another has a function behind each event of it. Each looks at other
 * bytes, and all change one cell, so that their order shows; now and then something else comes between.
 */
static void step_callbacks(struct maker *k, int thread)
{
	int compute = stream_draw(k), calls = stream_draw(k), event = event_draw(k), buf = buf_draw(k), host = host_draw(k);
	size_t a = model_buf_size(k->model, buf), b = model_host_size(k->model, host);
	int64_t count = 2 + (int64_t)roll(k, 8), size = (int64_t)((a < b ? a : b) / (size_t)count) & ~3ll, cell = (int64_t)roll(k, DIFFER_CELLS);
	bool looks = size && model_host_pinned(k->model, host);

	for (int64_t i = 0; i < count; i++) {
		int64_t form = form_draw(k, compute) & ~(int64_t)FORM_SYNC;

		if (looks)
			emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_DOWN, .a = { buf, i * size, size, host, i * size, compute, form } });
		if (roll(k, 8) == 0)
			compute = stream_draw(k);
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_RECORD, .a = { event, compute, 0 } });
		if (roll(k, 12) == 0)
			event = event_draw(k);
		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_WAIT, .a = { event, calls, 0 } });
		form = form_draw(k, calls) & ~(int64_t)FORM_SYNC;
		if (looks)
			emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_HOSTLOOK, .a = { cell, host, i * size, size, calls, form } });
		else
			emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_HOSTFUNC, .a = { cell, i, calls, form } });
		switch (roll(k, 24)) {
		case 0:
			step_launch(k, thread);
			break;
		case 1:
			step_order(k, thread);
			break;
		case 2:
			calls = stream_draw(k);
			break;
		default:
			break;
		}
	}
}

static void step(struct maker *k)
{
	int thread = (int)roll(k, DIFFER_THREADS);
	uint64_t way = roll(k, 100);

	if (k->options->graphs && roll(k, 12) == 0)
		(roll(k, 2) ? step_graph : step_capture)(k, thread);
	else if (k->options->shared && roll(k, 8) == 0)
		step_touch(k, thread);
	else if (k->options->callbacks && roll(k, 5) == 0)
		step_callbacks(k, thread);
	else if (way < 9)
		step_buf(k, thread);
	else if (way < 14)
		step_host(k, thread);
	else if (way < 20)
		step_fill(k, thread);
	else if (way < 30)
		step_copy(k, thread, true);
	else if (way < 38)
		step_copy(k, thread, false);
	else if (way < 43)
		step_dev(k, thread);
	else if (way < 48)
		step_2d(k, thread);
	else if (way < 53)
		step_set(k, thread);
	else if (way < 69)
		step_launch(k, thread);
	else if (way < 72)
		step_stream(k, thread);
	else if (way < 75)
		step_event(k, thread);
	else if (way < 83)
		step_order(k, thread);
	else if (way < 85)
		step_module(k, thread);
	else if (way < 87)
		step_pool(k, thread);
	else if (way < 93)
		step_other(k, thread);
	else if (way < 96)
		step_ask(k, thread);
	else
		step_illegal(k, thread);
}

/* Something of each kind to begin with. */
static void prologue(struct maker *k)
{
	emit(k, (struct op){ .kind = OP_MODULE_NEW });
	for (int i = 0; i < 3; i++)
		emit(k, (struct op){ .thread = (uint8_t)roll(k, DIFFER_THREADS), .kind = OP_STREAM_NEW,
				     .a = { 2 + i, i == 1, (int64_t)roll(k, 8) - 6 } });
	for (int i = 0; i < 3; i++)
		emit(k, (struct op){ .thread = (uint8_t)roll(k, DIFFER_THREADS), .kind = OP_EVENT_NEW,
				     .a = { i, (int64_t)roll(k, 2) * 2 } });
	for (int i = 0; i < 3; i++) {
		int thread = (int)roll(k, DIFFER_THREADS);

		emit(k, (struct op){ .thread = (uint8_t)thread, .kind = OP_ALLOC, .a = { i, (int64_t)size_draw(k) } });
		set_all(k, thread, i, 0, FORM_SYNC);
	}
	for (int i = 0; i < 2; i++) {
		size_t size = size_draw(k);

		emit(k, (struct op){ .kind = OP_HOST_NEW, .a = { i, (int64_t)size, i } });
		emit(k, (struct op){ .kind = OP_HOST_FILL, .a = { i, 0, (int64_t)size, i } });
	}
}

void program_make(struct program *program, uint64_t seed, const struct make_options *options)
{
	struct maker k = { .program = program, .options = options, .model = model_new() };
	uint32_t steps;

	program->seed = seed;
	program->count = 0;
	k.dice = differ_mix(seed, 1);
	steps = options->steps ? options->steps : STEPS_LEAST + (uint32_t)roll(&k, STEPS_MOST - STEPS_LEAST);
	program->reset = roll(&k, 16) == 0;
	prologue(&k);
	for (uint32_t i = 0; i < steps; i++) {
		k.dice = differ_mix(seed * 1000003 + i, 2);
		step(&k);
	}
	model_free(k.model);
}

uint32_t program_mend(struct program *program)
{
	static const struct make_options none;
	struct program *from = malloc(sizeof(*from));
	struct maker k = { .program = program, .options = &none, .model = model_new(), .dice = 5 };

	assert(from);
	*from = *program;
	program->count = 0;
	for (uint32_t i = 0; i < from->count; i++)
		emit(&k, from->ops[i]);
	model_free(k.model);
	free(from);
	return k.dropped;
}
