// SPDX-License-Identifier: Apache-2.0
/* The calls' fake layer and its workers. Test threads. */
#include "tests/unit/fake_call.h"
#include "libgleamcuda/hostfunc.h"

#include <assert.h>
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/fatbin.h"
#include "gen/bodies.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/event.h"
#include "libgleamcuda/exposed.h"
#include "libgleamcuda/graph.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/managed.h"
#include "libgleamcuda/region.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stream.h"
#include "libgleamcuda/verdicts.h"

#define CELLS_SIZE (SESSION_CELLS * SESSION_CELL_SIZE)

__thread struct fake_worker fake_worker;
struct context fake_contexts[2];

static struct session session;
static struct device device;
static struct snapshot_device raw;
static __thread struct thread thread = { .number = 1 };
static __thread uint8_t frame[FRAME_SIZE_MAX] __attribute__((aligned(8)));
static __thread bool frame_open;
static __thread uint8_t *cells;
static __thread uint8_t *blob;
static __thread uint32_t cells_out;
static __thread uint8_t piece[SESSION_CELL_SIZE];
static __thread uint8_t reply[65536] __attribute__((aligned(8)));
static __thread struct writer reply_writer;

static void device_make(void)
{
	int32_t *a = raw.attributes;

	strcpy(raw.name, "NVIDIA H200");
	a[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
	a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X] = a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y] = 1024;
	a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z] = 64;
	a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X] = 0x7fffffff;
	a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y] = a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z] = 65535;
	a[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK] = a[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR] = 65536;
	a[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = 132;
	a[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR] = 2048;
	a[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = 9;
	a[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR] = 0;
	a[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR] = 233472;
	a[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN] = 232448;
	a[CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR] = 32;
	a[CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK] = 1024;
	a[CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH] = 1;
	a[CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT] = 4;
	device.raw = &raw;
	device.session = &session;
	memcpy(device.attributes, raw.attributes, sizeof(raw.attributes));
	for (uint32_t i = 0; i < 2; i++) {
		fake_contexts[i].handle = (CUcontext)(uintptr_t)(0x100 + i);
		fake_contexts[i].index = i;
		fake_contexts[i].session = &session;
		fake_contexts[i].active = 1;
		if (!fake_contexts[i].epoch)
			fake_contexts[i].epoch = 1;
	}
}

void fake_reset(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, device_make);
	free(fake_worker.image);
	free(fake_worker.kept);
	memset(&fake_worker, 0, sizeof(fake_worker));
	if (!cells)
		cells = malloc(CELLS_SIZE);
	memset(cells, 0xa5, SESSION_CELL_SIZE);
}

void fake_release(void)
{
	free(fake_worker.image);
	free(fake_worker.kept);
	free(cells);
	free(blob);
	fake_worker.image = cells = blob = NULL;
}

struct call fake_call(void)
{
	return (struct call){ .thread = &thread, .context = &fake_contexts[0], .session = &session };
}

int device_count(void)
{
	return 1;
}

void call_start(struct call *call, struct session *to, struct context *context)
{
	*call = (struct call){ .session = to, .context = context };
}

/* One server is all there is. */
struct session *session_at(uint32_t index)
{
	return index ? NULL : &session;
}

void call_to(struct call *call, struct session *to)
{
	call->session = to;
}

void fake_check_balance(void)
{
	if (cells_out || frame_open)
		abort();
}

/* ---- images ---- */

uint8_t *fake_container(const struct fake_entry *entries, uint32_t count, size_t *size_out)
{
	const uint32_t magic = FATBIN_MAGIC;
	const uint16_t one = 1, header_size = 16, entry_version = 0x101;
	uint64_t body = 0;
	size_t at = 16;

	for (uint32_t i = 0; i < count; i++)
		body += 64 + ((entries[i].size + 7u) & ~7u);

	uint8_t *bytes = calloc(1, 16 + body);

	memcpy(bytes, &magic, 4);
	memcpy(bytes + 4, &one, 2);
	memcpy(bytes + 6, &header_size, 2);
	memcpy(bytes + 8, &body, 8);
	for (uint32_t i = 0; i < count; i++) {
		const struct fake_entry *e = &entries[i];
		uint64_t stored = (e->size + 7u) & ~7u;
		uint64_t flags = FATBIN_FLAG_64BIT | e->flags;
		uint32_t entry_header = 64;

		memcpy(bytes + at, &e->kind, 2);
		memcpy(bytes + at + 2, &entry_version, 2);
		memcpy(bytes + at + 4, &entry_header, 4);
		memcpy(bytes + at + 8, &stored, 8);
		memcpy(bytes + at + 28, &e->arch, 4);
		memcpy(bytes + at + 40, &flags, 8);
		memcpy(bytes + at + 64, e->payload, e->size);
		at += 64 + stored;
	}
	*size_out = at;
	return bytes;
}

uint8_t *fake_cubin(uint32_t arch, size_t *size_out)
{
	Elf64_Ehdr header = { .e_type = ET_EXEC, .e_machine = 190, .e_version = 1, .e_ehsize = sizeof(header),
			      .e_flags = arch | arch << 16, .e_phoff = sizeof(header), .e_phentsize = sizeof(Elf64_Phdr),
			      .e_phnum = 1, .e_shentsize = sizeof(Elf64_Shdr) };
	uint8_t *bytes = calloc(1, sizeof(header) + sizeof(Elf64_Phdr));

	memcpy(header.e_ident, ELFMAG, SELFMAG);
	header.e_ident[EI_CLASS] = ELFCLASS64;
	header.e_ident[EI_DATA] = ELFDATA2LSB;
	header.e_ident[EI_VERSION] = EV_CURRENT;
	memcpy(bytes, &header, sizeof(header));
	*size_out = sizeof(header) + sizeof(Elf64_Phdr);
	return bytes;
}

/* ---- the worker ---- */

static const struct fake_function *function_named(const char *name)
{
	for (uint32_t i = 0; i < fake_worker.function_count; i++)
		if (!strcmp(fake_worker.functions[i].name, name))
			return &fake_worker.functions[i];
	return NULL;
}

static size_t verdict_write(uint8_t *to, size_t size, CUresult code)
{
	struct fake_worker *f = &fake_worker;
	struct verdict v = { .code = (uint32_t)code, .flags = f->unlisted ? VERDICT_UNLISTED : 0, .option_count = 1,
			     .function_count = code || f->unlisted ? 0 : f->function_count };
	struct writer w = writer_on(to, size);
	char *pad = calloc(1, f->pad + 1);

	memset(pad, 'x', f->pad);
	verdict_put(&w, &v);
	verdict_option_put(&w, CU_JIT_WALL_TIME, f->wall_time);
	verdict_logs_put(&w, f->pad ? pad : f->info ? f->info : "", f->error ? f->error : "");
	free(pad);
	for (uint32_t i = 0; i < v.function_count; i++)
		verdict_function_put(&w, f->functions[i].name, f->functions[i].params, f->functions[i].param_count,
				     VERDICT_HAS_PARAMS | (f->without_attributes ? 0 : VERDICT_HAS_ATTRIBUTES),
				     f->functions[i].attributes);
	if (w.fault)
		return 0;
	v.size = w.at;

	struct writer head = writer_on(to, VERDICT_HEADER_SIZE);

	verdict_put(&head, &v);
	return w.at;
}

/* Long answers have functions with long names, not long logs: the test asks for a little room instead. */
#define FIRST_CELLS (64u << 10)
#define BLOB_SIZE   (8u << 20)

static CUresult verdict_answer(const struct bulk_ref *ref, CUresult code, bool again)
{
	uint8_t *to = cells + ref->offset;
	size_t size;

	if (!blob)
		blob = malloc(BLOB_SIZE);
	if (fake_worker.raw) {
		memcpy(to, fake_worker.raw, fake_worker.raw_size < ref->size ? fake_worker.raw_size : ref->size);
		return CUDA_SUCCESS;
	}
	size = verdict_write(blob, BLOB_SIZE, code);
	if (!size)
		abort();
	if (size > ref->size || (!again && size > FIRST_CELLS)) {
		struct reader r = reader_on(blob, size);
		struct writer w = writer_on(to, VERDICT_HEADER_SIZE);
		struct verdict v;

		verdict_get(&r, &v);
		v.flags |= VERDICT_LARGER;
		verdict_put(&w, &v);
		return CUDA_SUCCESS;
	}
	memcpy(to, blob, size);
	return CUDA_SUCCESS;
}

static CUresult load_code(void)
{
	struct fake_worker *f = &fake_worker;
	struct fatbin_entry entry;

	if (f->image_arrived != f->image_size)
		abort();
	if (f->load_result)
		return f->load_result;
	if (!f->refuses_cubins || f->image_kind == 2)
		return CUDA_SUCCESS;
	if (f->image_kind == 0 && fatbin_choose(f->image, f->image_size, 9, 0, false, &entry) > 0)
		return CUDA_SUCCESS;
	return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

#define READ(type, m)                                                                                          \
	struct msg_##type m;                                                                                   \
	if (!msg_##type##_get(&r, &m))                                                                         \
	abort()

static CUresult worker_run(uint16_t op, struct reader r, const struct bulk_ref *ref, const struct frame_hdr *hdr)
{
	struct fake_worker *f = &fake_worker;

	f->counts[op]++;
	switch (op) {
	case OP_gleamLoadBegin: {
		READ(gleamLoadBegin, m);
		free(f->image);
		f->image = malloc(m.total_size ? m.total_size : 1);
		f->image_size = m.total_size;
		f->image_arrived = 0;
		return CUDA_SUCCESS;
	}
	case OP_gleamLoadPart: {
		READ(gleamLoadPart, m);
		if (m.offset != f->image_arrived || ref->size > f->image_size - m.offset)
			abort();
		memcpy(f->image + m.offset, piece, ref->size);
		f->image_arrived += ref->size;
		return CUDA_SUCCESS;
	}
	case OP_gleamLoadImage: {
		READ(gleamLoadImage, m);
		f->image_kind = m.kind;
		f->options_size = m.options_size;
		memcpy(f->options, m.options, m.options_size);
		return verdict_answer(ref, load_code(), false);
	}
	case OP_gleamLoadAgain: {
		READ(gleamLoadAgain, m);
		f->image_kind = m.kind;
		if (load_code())
			abort();
		return CUDA_SUCCESS;
	}
	case OP_gleamVerdict:
		return verdict_answer(ref, CUDA_SUCCESS, true);
	case OP_gleamFunctionInfo: {
		READ(gleamFunctionInfo, m);
		const struct fake_function *function = function_named(m.name);
		struct writer w = writer_on(cells + ref->offset, ref->size);

		if (f->info_result)
			return f->info_result;
		if (!function)
			return CUDA_ERROR_NOT_FOUND;
		verdict_function_put(&w, m.name, function->params, function->param_count,
				     VERDICT_HAS_PARAMS | VERDICT_HAS_ATTRIBUTES, function->attributes);
		return CUDA_SUCCESS;
	}
	case OP_cuModuleGetGlobal_v2: {
		READ(cuModuleGetGlobal_v2, m);
		if (strcmp(m.name, "counter"))
			return CUDA_ERROR_NOT_FOUND;
		ans_cuModuleGetGlobal_v2_put(&reply_writer,
					     &(struct ans_cuModuleGetGlobal_v2){ .dptr = 0x7000000, .bytes = 4 });
		return CUDA_SUCCESS;
	}
	case OP_cuOccupancyMaxActiveClusters:
		ans_cuOccupancyMaxActiveClusters_put(
			&reply_writer, &(struct ans_cuOccupancyMaxActiveClusters){ .numClusters = f->cluster_answer });
		return CUDA_SUCCESS;
	case OP_gleamLaunch: {
		READ(gleamLaunch, m);
		f->launch = m;
		f->launch_hdr = *hdr;
		if (m.params_size)
			memcpy(f->launch_params, m.params, m.params_size);
		if (m.attrs_size)
			memcpy(f->launch_attrs, m.attrs, m.attrs_size);
		return CUDA_SUCCESS;
	}
	default:
		return CUDA_SUCCESS;
	}
}

/* ---- in place of call.c ---- */

CUresult call_enter(struct call *call, enum api api, enum needs needs, bool ptds)
{
	*call = fake_call();
	call->api = (uint16_t)api;
	call->ptds = ptds;
	return CUDA_SUCCESS;
}

CUresult call_leave(struct call *call, CUresult result)
{
	return result;
}

CUresult call_open_bulk(struct call *call, enum op op, size_t payload_max, enum frame_flag flag,
			const struct bulk_ref *ref)
{
	struct frame_hdr hdr = { .op = (uint16_t)op, .kind = FRAME_COMMAND, .flags = ref ? (uint8_t)flag : 0,
				 .ctx = call->context ? (uint16_t)call->context->index : CTX_NONE };
	size_t head = sizeof(hdr) + (ref ? sizeof(*ref) : 0);

	if (frame_open || payload_max > sizeof(frame) - head)
		abort();
	frame_open = true;
	memcpy(frame, &hdr, sizeof(hdr));
	if (ref)
		memcpy(frame + sizeof(hdr), ref, sizeof(*ref));
	call->op = (uint16_t)op;
	call->w = writer_on(frame + head, payload_max);
	return CUDA_SUCCESS;
}

CUresult call_open(struct call *call, enum op op, size_t payload_max)
{
	return call_open_bulk(call, op, payload_max, 0, NULL);
}

static CUresult run(struct call *call)
{
	struct frame_hdr hdr;
	struct bulk_ref ref = { 0 };

	if (call->w.fault || !frame_open)
		abort();
	frame_open = false;
	memcpy(&hdr, frame, sizeof(hdr));
	if (hdr.flags)
		memcpy(&ref, frame + sizeof(hdr), sizeof(ref));
	fake_worker.last_seq++;
	return worker_run(hdr.op, reader_on(call->w.start, call->w.at), &ref, &hdr);
}

void call_cancel(struct call *call)
{
	frame_open = false;
}

bool hostfunc_outstanding(void)
{
	return fake_worker.host_function;
}

uint64_t call_post(struct call *call)
{
	if (op_info[call->op].flags & OP_HAS_REPLY)
		abort();
	run(call);
	return fake_worker.last_seq;
}

CUresult call_wait(struct call *call)
{
	CUresult result;

	if (!(op_info[call->op].flags & OP_HAS_REPLY))
		abort();
	fake_worker.trips++;
	reply_writer = writer_on(reply, sizeof(reply));
	result = run(call);
	call->r = reader_on(reply, reply_writer.at);
	return result;
}

void call_count_bytes(struct call *call, uint64_t bytes)
{
}

CUresult call_refuse(struct call *call, const char *why)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* Streams 0 and 0x1000 are of context 0, 0x2000 is of context 1. */
CUresult call_stream_named(struct call *call, CUstream stream, uint64_t *handle_out)
{
	uint64_t value = (uint64_t)(uintptr_t)stream;

	if (value && value != 0x1000 && value != 0x2000)
		return CUDA_ERROR_INVALID_HANDLE;
	if (value)
		call->context = &fake_contexts[value == 0x2000];
	*handle_out = value ? value : WIRE_STREAM_LEGACY;
	return CUDA_SUCCESS;
}

/* ---- in place of session.c, stream.c, event.c, device.c, log.c ---- */

bool session_is_dead(struct session *s)
{
	return false;
}

CUresult session_up_take(struct session *s, uint32_t size, struct bulk_ref *ref_out, void **bytes_out)
{
	if (size > sizeof(piece))
		abort();
	*ref_out = (struct bulk_ref){ .size = size };
	*bytes_out = piece;
	return CUDA_SUCCESS;
}

CUresult session_cells_take(struct session *s, uint32_t size, struct bulk_ref *ref_out, void **bytes_out)
{
	if (cells_out++ || size > CELLS_SIZE)
		abort();
	*ref_out = (struct bulk_ref){ .offset = 0, .size = size };
	*bytes_out = cells;
	return CUDA_SUCCESS;
}

void session_cells_give(struct session *s, const struct bulk_ref *ref)
{
	cells_out--;
}

struct answer *verdicts_find(struct session *s, const struct verdict_key *key)
{
	struct answer *answer;
	CUresult result;
	uint8_t *bytes;

	fake_worker.asked_count++;
	if (!fake_worker.kept || (!fake_worker.kept_fits && memcmp(key, &fake_worker.kept_key, sizeof(*key))))
		return NULL;
	bytes = malloc(fake_worker.kept_size);
	memcpy(bytes, fake_worker.kept, fake_worker.kept_size);
	answer = answer_new(bytes, fake_worker.kept_size, &result);
	assert(answer);
	return answer;
}

void verdicts_keep(struct session *s, const struct verdict_key *key, const uint8_t *bytes, size_t size)
{
	fake_worker.kept_count++;
	free(fake_worker.kept);
	fake_worker.kept = malloc(size);
	memcpy(fake_worker.kept, bytes, size);
	fake_worker.kept_size = size;
	fake_worker.kept_key = *key;
}

void verdicts_more(struct session *s, const struct verdict_key *key, const void *record, size_t size)
{
	struct reader r = reader_on(record, size);
	struct verdict_function told;

	fake_worker.more_key = *key;
	assert(verdict_function_get(&r, &told) && r.at == size);
	snprintf(fake_worker.more_name, sizeof(fake_worker.more_name), "%s", told.name);
	fake_worker.more_count++;
}

void stream_note(struct call *call, uint64_t handle, uint64_t seq)
{
	fake_worker.noted_stream = handle;
	fake_worker.noted_seq = seq;
}

struct stream *stream_find(struct call *call, uint64_t handle)
{
	return NULL;
}

CUresult stream_wait(struct call *call, struct stream *stream)
{
	return CUDA_SUCCESS;
}

/* 0x500 is an event without timing, 0x600 one with it. */
CUresult event_for_launch(struct call *call, CUevent event, uint64_t *handle_out)
{
	*handle_out = (uint64_t)(uintptr_t)event;
	if (*handle_out != 0x500 && *handle_out != 0x600)
		return CUDA_ERROR_INVALID_HANDLE;
	return *handle_out == 0x500 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

void event_launched(struct call *call, uint64_t event, uint64_t stream, uint64_t seq)
{
}

const struct device *device_at(int ordinal)
{
	return ordinal == 0 ? &device : NULL;
}

void gleam_log(const char *format, ...)
{
}

bool gleam_log_wanted(void)
{
	return false;
}

/* ---- in place of capture.c, graph_work.c: no stream is ever capturing here ---- */

CUresult call_stream_captured(struct call *call, CUstream stream, uint64_t *handle_out, bool *captured_out)
{
	*captured_out = false;
	return call_stream_named(call, stream, handle_out);
}

CUresult graph_work_launch(const struct function *function, CUfunction given, const struct launch *launch,
			   const struct launch_params *params, struct graph_work *work_out)
{
	abort();
}

CUresult capture_add(struct call *call, uint64_t stream, struct graph_work *work)
{
	abort();
}

CUresult event_capture_record(struct call *call, uint64_t event, uint64_t stream)
{
	abort();
}

/* ---- in place of exposed.c: kernels reach no host memory here ---- */

uint32_t exposed_count;
uint32_t exposed_everywhere;
uint32_t techniques_off;

void exposed_push(struct call *call)
{
	abort();
}

CUresult exposed_params_slow(struct call *call, const void *params, uint32_t size)
{
	abort();
}

/* ---- managed memory: none ---- */

uint32_t region_count;
uint32_t region_wishes;

CUresult region_give(struct call *call, uint64_t stream)
{
	abort();
}

CUresult managed_variable(struct call *call, struct program *program, uint64_t address, uint64_t size)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

void managed_variable_gone(struct program *program, uint64_t address)
{
}

struct context *context_primary(int ordinal)
{
	return NULL;
}

CUresult do_cuDevicePrimaryCtxRetain(struct call *call, CUcontext *pctx, CUdevice dev)
{
	return CUDA_ERROR_INVALID_DEVICE;
}

void primary_let_go(struct context *context)
{
}
