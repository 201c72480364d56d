// SPDX-License-Identifier: Apache-2.0
/*
 * What a move carries beside plain memory: arrays and mipmapped arrays, textures and surfaces that come and go, managed memory, physical
 * memory of the program's own (mapped, twice, read-only, not at all), graphs with a loop in them, device printf, and failures that are
 * told later; beside a model on the CPU, in an order that the seed gives.
 *
 *	carried [STEPS [SEED [FILE [PAUSE]]]]	FILE: goes on until there is that file. How far it is is told on stderr. PAUSE: in the middle
 *	nothing is done until there is that file. CARRIED_SAFE in the environment: nothing fails;
 *	CARRIED_QUIET: nothing is printed
 *	carried latch FILE		fails without being told so, waits for the file, and is told then
 *	carried peers FILE		two GPUs whose kernels write to each other's memory, until there is that file
 *	carried pools FILE		memory pools and what is allocated from them, until there is that file
 *	carried lost|shared FILE	what can't be moved, until there is that file
 *	carried clock FILE		computes something else each time, until there is that file
 */
#include "tests/cuda/prog.h"

#define MIB    (1ull << 20)
#define POINTS 256u

static CUmodule textures, util;
static uint32_t random_state;
static uint64_t sum = 0xcbf29ce484222325ull;

static uint32_t draw(uint32_t below)
{
	return prog_random(&random_state) % below;
}

static void fold(const void *bytes, size_t size)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < size; i++)
		sum = (sum ^ at[i]) * 0x100000001b3ull;
}

static CUfunction function(CUmodule module, const char *name)
{
	CUfunction f;

	MUST(cuModuleGetFunction(&f, module, name));
	return f;
}

static void launch(CUfunction f, uint32_t threads, void **params)
{
	MUST(cuLaunchKernel(f, (threads + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, params, NULL));
}

/* ---- arrays ---- */

enum { LINE, PLANE, BOX, LAYERS, BOXES };

/* Floats: @model is what must be in it. */
static struct box {
	uint32_t width, height, depth, flags;
	CUarray array;
	CUsurfObject surface;
	float *model;
} boxes[BOXES] = {
	/* A line is longer than a command holds, and a plane than what is looked at together. */
	[LINE] = { .width = 20000, .flags = CUDA_ARRAY3D_SURFACE_LDST },
	[PLANE] = { .width = 300, .height = 350, .flags = 0 },
	[BOX] = { .width = 40, .height = 30, .depth = 20, .flags = CUDA_ARRAY3D_SURFACE_LDST },
	[LAYERS] = { .width = 33, .height = 17, .depth = 6, .flags = CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_LAYERED },
};
static CUtexObject plane_texture;

static uint32_t rows(const struct box *b)
{
	return b->height ? b->height : 1;
}

static uint32_t slices(const struct box *b)
{
	return b->depth ? b->depth : 1;
}

static uint32_t count_of(const struct box *b)
{
	return b->width * rows(b) * slices(b);
}

static void box_copy(struct box *b, float *host, uint32_t y, uint32_t height, uint32_t z, uint32_t depth, bool up)
{
	CUDA_MEMCPY3D copy = { .WidthInBytes = b->width * 4, .Height = height, .Depth = depth };

	if (up) {
		copy.srcMemoryType = CU_MEMORYTYPE_HOST;
		copy.srcHost = host;
		copy.srcPitch = b->width * 4;
		copy.srcHeight = height;
		copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
		copy.dstArray = b->array;
		copy.dstY = y;
		copy.dstZ = z;
	} else {
		copy.dstMemoryType = CU_MEMORYTYPE_HOST;
		copy.dstHost = host;
		copy.dstPitch = b->width * 4;
		copy.dstHeight = height;
		copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
		copy.srcArray = b->array;
		copy.srcY = y;
		copy.srcZ = z;
	}
	MUST(cuMemcpy3D_v2(&copy));
}

static void box_make(struct box *b)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { b->width, b->height, b->depth, CU_AD_FORMAT_FLOAT, 1, b->flags };
	CUDA_RESOURCE_DESC resource = { .resType = CU_RESOURCE_TYPE_ARRAY };

	MUST(cuArray3DCreate_v2(&b->array, &desc));
	if (!b->model)
		b->model = calloc(count_of(b), sizeof(float));
	for (uint32_t i = 0; i < count_of(b); i++)
		b->model[i] = (float)draw(1000);
	box_copy(b, b->model, 0, rows(b), 0, slices(b), true);
	resource.res.array.hArray = b->array;
	if (b->flags & CUDA_ARRAY3D_SURFACE_LDST)
		MUST(cuSurfObjectCreate(&b->surface, &resource));
}

static void box_end(struct box *b)
{
	/* Now and then the array goes first. */
	bool first = draw(2);

	if (first)
		MUST(cuArrayDestroy(b->array));
	if (b->surface)
		MUST(cuSurfObjectDestroy(b->surface));
	if (!first)
		MUST(cuArrayDestroy(b->array));
	b->surface = 0;
}

static void plane_texture_make(void)
{
	CUDA_RESOURCE_DESC resource = { .resType = CU_RESOURCE_TYPE_ARRAY };
	CUDA_TEXTURE_DESC desc = { .addressMode = { CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP } };

	resource.res.array.hArray = boxes[PLANE].array;
	MUST(cuTexObjectCreate(&plane_texture, &resource, &desc, NULL));
}

static void box_up(void)
{
	struct box *b = &boxes[draw(BOXES)];
	uint32_t z = draw(slices(b)), y = draw(rows(b)), height = 1 + draw(rows(b) - y);
	float *at = b->model + ((size_t)z * rows(b) + y) * b->width;

	for (uint32_t i = 0; i < b->width * height; i++)
		at[i] = (float)draw(1000);
	box_copy(b, at, y, height, z, 1, true);
}

static void box_down(struct box *b)
{
	float *got = malloc(count_of(b) * sizeof(float));

	box_copy(b, got, 0, rows(b), 0, slices(b), false);
	CHECK(memcmp(got, b->model, count_of(b) * sizeof(float)) == 0, "array %d", (int)(b - boxes));
	fold(got, count_of(b) * sizeof(float) < 4096 ? count_of(b) * sizeof(float) : 4096);
	free(got);
}

static void box_add(void)
{
	struct box *b = &boxes[(int[]){ LINE, BOX, LAYERS }[draw(3)]];
	uint32_t layer = draw(slices(b)), width = b->width, height = rows(b), depth = slices(b);
	void *line[] = { &b->surface, &width }, *box[] = { &b->surface, &width, &height, &depth };
	void *one_layer[] = { &b->surface, &width, &height, &layer };

	if (b == &boxes[LINE])
		launch(function(textures, "surface_add_1d"), width, line);
	else if (b == &boxes[BOX])
		launch(function(textures, "surface_add_3d"), width * height * depth, box);
	else
		launch(function(textures, "surface_add_layer"), width * height, one_layer);
	for (uint32_t z = 0; z < depth; z++)
		for (uint32_t y = 0; y < height && (b != &boxes[LAYERS] || z == layer); y++)
			for (uint32_t x = 0; x < width; x++)
				b->model[((size_t)z * height + y) * width + x] +=
					b == &boxes[LINE] ? (float)x : (float)(x + 100 * y + 10000 * z);
	/* Numbers stay small enough to be exact. */
	for (uint32_t i = 0; i < count_of(b); i++)
		if (b->model[i] > 8e6f) {
			for (uint32_t k = 0; k < count_of(b); k++)
				b->model[k] = (float)draw(1000);
			box_copy(b, b->model, 0, height, 0, depth, true);
			break;
		}
}

static void plane_sample(void)
{
	static CUdeviceptr at, out;
	struct box *b = &boxes[PLANE];
	float points[POINTS][2], got[POINTS][4];
	uint32_t n = POINTS, wrong = 0;
	void *params[] = { &plane_texture, &at, &out, &n };

	if (!at) {
		MUST(cuMemAlloc(&at, sizeof(points)));
		MUST(cuMemAlloc(&out, sizeof(got)));
	}
	for (uint32_t i = 0; i < POINTS; i++) {
		points[i][0] = (float)draw(b->width) + 0.5f;
		points[i][1] = (float)draw(b->height) + 0.5f;
	}
	MUST(cuMemcpyHtoD(at, points, sizeof(points)));
	launch(function(textures, "sample_2d"), n, params);
	MUST(cuMemcpyDtoH(got, out, sizeof(got)));
	for (uint32_t i = 0; i < POINTS; i++)
		wrong += got[i][0] != b->model[(uint32_t)points[i][1] * b->width + (uint32_t)points[i][0]];
	CHECK(!wrong, "%u of %u texels of the plane", wrong, n);
	fold(got, sizeof(got));
}

/* They are destroyed and made again in another order, so that numbers have gaps. */
static void again(void)
{
	struct box *b = &boxes[draw(BOXES)];

	/* Nothing waits for the kernels that use them. */
	MUST(cuCtxSynchronize());
	if (b == &boxes[PLANE]) {
		if (draw(2)) {
			MUST(cuTexObjectDestroy(plane_texture));
			box_end(b);
			box_make(b);
		} else {
			MUST(cuTexObjectDestroy(plane_texture));
		}
		plane_texture_make();
		return;
	}
	box_end(b);
	box_make(b);
}

/* ---- levels ---- */

#define SIDE	64u
#define LEVELS	4u
static CUmipmappedArray mipmap;
static CUtexObject mipmap_texture;
static float level_model[LEVELS][SIDE * SIDE];

static void level_copy(uint32_t level, float *host, bool up)
{
	struct box b = { .width = SIDE >> level };

	MUST(cuMipmappedArrayGetLevel(&b.array, mipmap, level));
	box_copy(&b, host, 0, SIDE >> level, 0, 1, up);
}

static void level_up(uint32_t level)
{
	for (uint32_t i = 0; i < (SIDE >> level) * (SIDE >> level); i++)
		level_model[level][i] = (float)draw(1000);
	level_copy(level, level_model[level], true);
}

static void mipmap_make(void)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { SIDE, SIDE, 0, CU_AD_FORMAT_FLOAT, 1, 0 };
	CUDA_RESOURCE_DESC resource = { .resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY };
	CUDA_TEXTURE_DESC how = { .flags = 2 /* normalized */, .maxMipmapLevelClamp = LEVELS - 1 };

	MUST(cuMipmappedArrayCreate(&mipmap, &desc, LEVELS));
	for (uint32_t level = 0; level < LEVELS; level++)
		level_up(level);
	resource.res.mipmap.hMipmappedArray = mipmap;
	MUST(cuTexObjectCreate(&mipmap_texture, &resource, &how, NULL));
}

static void level_look(void)
{
	static CUdeviceptr at, out;
	float got[SIDE * SIDE], points[POINTS][2], texels[POINTS][4];
	uint32_t level = draw(LEVELS), side = SIDE >> level, n = POINTS, wrong = 0;
	float as_float = (float)level, scale = (float)side;
	void *params[] = { &mipmap_texture, &at, &as_float, &out, &n };

	level_copy(level, got, false);
	CHECK(memcmp(got, level_model[level], side * side * 4) == 0, "level %u", level);
	if (!at) {
		MUST(cuMemAlloc(&at, sizeof(points)));
		MUST(cuMemAlloc(&out, sizeof(texels)));
	}
	for (uint32_t i = 0; i < POINTS; i++) {
		points[i][0] = ((float)draw(side) + 0.5f) / scale;
		points[i][1] = ((float)draw(side) + 0.5f) / scale;
	}
	MUST(cuMemcpyHtoD(at, points, sizeof(points)));
	launch(function(textures, "sample_2d_level"), n, params);
	MUST(cuMemcpyDtoH(texels, out, sizeof(texels)));
	for (uint32_t i = 0; i < POINTS; i++)
		wrong += texels[i][0] !=
			 level_model[level][(uint32_t)(points[i][1] * scale) * side + (uint32_t)(points[i][0] * scale)];
	CHECK(!wrong, "%u texels of level %u", wrong, level);
	fold(texels, sizeof(texels));
}

/* ---- textures over memory ---- */

#define LINEAR 5000u
static CUdeviceptr linear, linear_out;
static CUtexObject linear_texture, dangling;
static float linear_model[LINEAR];

static CUtexObject linear_texture_make(CUdeviceptr at, uint32_t count)
{
	CUDA_RESOURCE_DESC resource = { .resType = CU_RESOURCE_TYPE_LINEAR };
	CUDA_TEXTURE_DESC how = { 0 };
	CUtexObject texture;

	resource.res.linear.devPtr = at;
	resource.res.linear.format = CU_AD_FORMAT_FLOAT;
	resource.res.linear.numChannels = 1;
	resource.res.linear.sizeInBytes = count * 4;
	MUST(cuTexObjectCreate(&texture, &resource, &how, NULL));
	return texture;
}

static void linear_look(void)
{
	int first = (int)draw(LINEAR - POINTS), n = POINTS;
	void *params[] = { &linear_texture, &first, &linear_out, &n };
	float got[POINTS];

	for (uint32_t i = 0; i < POINTS; i++)
		linear_model[i] = (float)draw(1000);
	MUST(cuMemcpyHtoD(linear, linear_model, sizeof(got)));
	launch(function(textures, "fetch_linear"), POINTS, params);
	MUST(cuMemcpyDtoH(got, linear_out, sizeof(got)));
	CHECK(memcmp(got, linear_model + first, sizeof(got)) == 0, "texels of memory");
	fold(got, sizeof(got));
}

/* Memory that goes before its texture does. */
static void dangle(void)
{
	CUdeviceptr at;

	if (dangling) {
		MUST(cuTexObjectDestroy(dangling));
		dangling = 0;
		return;
	}
	MUST(cuMemAlloc(&at, 3 * MIB));
	dangling = linear_texture_make(at, 3 * MIB / 4);
	MUST(cuMemFree(at));
}

/* ---- managed memory ---- */

#define MANAGED 50000u
static uint32_t *managed, managed_model[MANAGED];

static void managed_turn(void)
{
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)managed;
	uint32_t value = draw(1000);
	unsigned long long n = MANAGED;
	void *params[] = { &at, &value, &n };

	for (uint32_t i = 0; i < 300; i++) {
		uint32_t place = draw(MANAGED);

		managed[place] = managed_model[place] = draw(1 << 20);
	}
	launch(function(util, "add"), 1024, params);
	for (uint32_t i = 0; i < MANAGED; i++)
		managed_model[i] += value;
	if (draw(3)) {
		MUST(cuCtxSynchronize());
		CHECK(memcmp(managed, managed_model, sizeof(managed_model)) == 0, "managed memory");
		fold(managed, 4096);
	}
	MUST(cuCtxSynchronize());
}

/* ---- physical memory ---- */

#define SLOTS  6u
#define PLACES (2 * SLOTS)
#define PIECE  (2 * MIB)
#define SEEN   1024u /* words at the beginning of each that are counted with */

static struct slot {
	CUmemGenericAllocationHandle handle;
	int place[2]; /* -1: it isn't mapped there */
	bool read_only;
	uint32_t model[SEEN];
} slots[SLOTS];
static CUdeviceptr places;
static bool place_used[PLACES];

static CUmemAllocationProp prop(void)
{
	return (CUmemAllocationProp){ .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
}

static void slot_map(struct slot *s, int which, bool read_only)
{
	CUmemAccessDesc access = { .location = prop().location,
				   .flags = read_only ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	uint32_t place = draw(PLACES);

	while (place_used[place])
		place = (place + 1) % PLACES;
	MUST(cuMemMap(places + place * PIECE, PIECE, 0, s->handle, 0));
	MUST(cuMemSetAccess(places + place * PIECE, PIECE, &access, 1));
	place_used[place] = true;
	s->place[which] = (int)place;
	if (!which)
		s->read_only = read_only;
}

static void slot_unmap(struct slot *s, int which)
{
	if (s->place[which] < 0)
		return;
	MUST(cuCtxSynchronize());
	MUST(cuMemUnmap(places + (uint64_t)s->place[which] * PIECE, PIECE));
	place_used[s->place[which]] = false;
	s->place[which] = -1;
}

static CUdeviceptr slot_at(const struct slot *s)
{
	int place = s->place[1] >= 0 && (s->place[0] < 0 || draw(2)) ? s->place[1] : s->place[0];

	return place < 0 ? 0 : places + (uint64_t)place * PIECE;
}

static void slot_turn(void)
{
	struct slot *s = &slots[draw(SLOTS)];
	CUmemAllocationProp how = prop();
	uint32_t value = draw(1000), got[SEEN];
	unsigned long long n = SEEN;
	CUdeviceptr at;
	void *params[] = { &at, &value, &n };

	if (!s->handle) {
		MUST(cuMemCreate(&s->handle, PIECE, &how, 0));
		s->place[0] = s->place[1] = -1;
		slot_map(s, 0, false);
		MUST(cuMemsetD8(slot_at(s), 0, PIECE));
		memset(s->model, 0, sizeof(s->model));
		return;
	}
	switch (draw(6)) {
	case 0: /* its bytes stay, wherever it is mapped, and where it isn't */
		slot_unmap(s, 0);
		break;
	case 1:
		if (s->place[0] < 0)
			slot_map(s, 0, draw(2));
		break;
	case 2:
		if (s->place[1] < 0)
			slot_map(s, 1, false);
		else
			slot_unmap(s, 1);
		break;
	case 3:
		if (draw(3))
			break;
		slot_unmap(s, 0);
		slot_unmap(s, 1);
		MUST(cuMemRelease(s->handle));
		s->handle = 0;
		break;
	default:
		at = slot_at(s);
		if (!at)
			break;
		if (s->place[1] >= 0 || !s->read_only) {
			if (s->place[1] >= 0)
				at = places + (uint64_t)s->place[1] * PIECE;
			launch(function(util, "add"), 256, params);
			for (uint32_t i = 0; i < SEEN; i++)
				s->model[i] += value;
		}
		MUST(cuMemcpyDtoH(got, slot_at(s), sizeof(got)));
		CHECK(memcmp(got, s->model, sizeof(got)) == 0, "physical memory %d", (int)(s - slots));
		fold(got, sizeof(got));
	}
}

/* ---- what is told later ---- */

/* ---- graphs with conditional nodes ---- */

/* As often as the word says: value = value * 3 + add. The handle is among the parameters of a kernel in the body. */
static struct loop {
	CUgraph graph;
	CUgraphNode step;
	CUgraphExec exec;
	CUdeviceptr words; /* value, turns left */
	uint32_t value, add;
} loop;

static CUfunction loop_step, loop_down;

static CUgraph loop_graph(uint32_t add, CUgraphNode *step_out)
{
	CUdeviceptr left = loop.words + 4;
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUDA_KERNEL_NODE_PARAMS k = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1 };
	void *step_params[] = { &loop.words, &add }, *down_params[] = { &p.conditional.handle, &left };
	CUcontext context;
	CUgraph graph, body;
	CUgraphNode node;

	MUST(cuCtxGetCurrent(&context));
	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphConditionalHandleCreate(&p.conditional.handle, graph, context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
	p.conditional.type = CU_GRAPH_COND_TYPE_WHILE;
	p.conditional.size = 1;
	p.conditional.ctx = context;
	MUST(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &p));
	body = p.conditional.phGraph_out[0];
	k.func = loop_step;
	k.kernelParams = step_params;
	MUST(cuGraphAddKernelNode_v2(step_out, body, NULL, 0, &k));
	k.func = loop_down;
	k.kernelParams = down_params;
	MUST(cuGraphAddKernelNode_v2(&node, body, step_out, 1, &k));
	return graph;
}

static void loop_make(void)
{
	CUmodule module = prog_module("condition");

	loop_step = function(module, "step");
	loop_down = function(module, "count_down");
	MUST(cuMemAlloc(&loop.words, 64));
	loop.value = 1;
	loop.add = 2;
	MUST(cuMemsetD32(loop.words, loop.value, 1));
	loop.graph = loop_graph(loop.add, &loop.step);
	MUST(cuGraphInstantiateWithFlags(&loop.exec, loop.graph, 0));
}

static void loop_turn(void)
{
	uint32_t turns = 1 + draw(6), got;
	CUgraphExecUpdateResultInfo info;
	CUgraphNode step;
	CUgraph graph;

	switch (draw(6)) {
	case 0: /* the whole, by a graph with conditions of its own */
		loop.add = draw(1000);
		graph = loop_graph(loop.add, &step);
		MUST(cuGraphExecUpdate_v2(loop.exec, graph, &info));
		MUST(cuGraphDestroy(graph));
		break;
	case 1: /* made again */
		MUST(cuGraphExecDestroy(loop.exec));
		MUST(cuGraphDestroy(loop.graph));
		loop.add = draw(1000);
		loop.graph = loop_graph(loop.add, &loop.step);
		MUST(cuGraphInstantiateWithFlags(&loop.exec, loop.graph, 0));
		break;
	default:
		break;
	}
	MUST(cuMemsetD32(loop.words + 4, turns, 1));
	MUST(cuGraphLaunch(loop.exec, NULL));
	for (uint32_t i = 0; i < turns; i++)
		loop.value = loop.value * 3 + loop.add;
	if (draw(3))
		return;
	MUST(cuMemcpyDtoH(&got, loop.words, 4));
	CHECK(got == loop.value, "a loop of a graph: %u, not %u", got, loop.value);
	fold(&got, sizeof(got));
}

static CUdeviceptr read_only_memory(void)
{
	CUmemAllocationProp how = prop();
	CUmemAccessDesc access = { .location = how.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READ };
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;

	MUST(cuMemAddressReserve(&at, PIECE, 0, 0, 0));
	MUST(cuMemCreate(&handle, PIECE, &how, 0));
	MUST(cuMemMap(at, PIECE, 0, handle, 0));
	MUST(cuMemSetAccess(at, PIECE, &access, 1));
	return at;
}

/* A fill that the device refuses is told once: at once natively, and through Gleam by the next call that waits. */
static void failure_told(CUresult told)
{
	if (!told)
		told = cuCtxSynchronize();
	CHECK(told == CUDA_ERROR_INVALID_VALUE, "a fill of memory that may only be read gave %d", (int)told);
	EXPECT(cuCtxSynchronize(), CUDA_SUCCESS);
}

static void failure(CUdeviceptr read_only)
{
	failure_told(cuMemsetD8Async(read_only, 1, 100, NULL));
}

static void say(void)
{
	static CUmodule module;
	uint32_t number = draw(1000000);
	void *params[] = { &number };

	if (getenv("CARRIED_QUIET"))
		return;
	if (!module)
		module = prog_module("say");
	MUST(cuLaunchKernel(function(module, "say"), 1, 1, 1, 4, 1, 1, 0, NULL, params, NULL));
	if (draw(2))
		MUST(cuCtxSynchronize());
}

/* ---- */

static void wait_for_file(const char *path)
{
	while (access(path, F_OK) != 0)
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
}

static int latch(const char *file)
{
	CUdeviceptr at = read_only_memory();
	uint32_t value = 7, got = 0;
	unsigned long long n = 1;
	CUdeviceptr word;
	CUresult told;
	void *params[] = { &word, &value, &n };

	MUST(cuMemAlloc(&word, 4));
	MUST(cuMemsetD32(word, 1, 1));
	launch(function(util, "add"), 1, params);
	MUST(cuCtxSynchronize());
	told = cuMemsetD8Async(at, 1, 100, NULL);
	fprintf(stderr, "step: it has failed\n");
	wait_for_file(file);
	failure_told(told);
	launch(function(util, "add"), 1, params);
	MUST(cuMemcpyDtoH(&got, word, 4));
	CHECK(got == 15, "the word is %u", got);
	return prog_end();
}

static int peers(const char *file)
{
	CUcontext contexts[2];
	CUdeviceptr words[2];
	CUfunction add[2];
	uint32_t turns = 0, got;
	unsigned long long n = 1000;

	for (int i = 0; i < 2; i++) {
		MUST(cuDevicePrimaryCtxRetain(&contexts[i], i));
		MUST(cuCtxSetCurrent(contexts[i]));
		MUST(cuMemAlloc(&words[i], 4000));
		MUST(cuMemsetD32(words[i], 0, 1000));
		add[i] = prog_function("util", "add");
	}
	for (int i = 0; i < 2; i++) {
		MUST(cuCtxSetCurrent(contexts[i]));
		MUST(cuCtxEnablePeerAccess(contexts[1 - i], 0));
	}
	do {
		for (int i = 0; i < 2; i++) {
			uint32_t value = (uint32_t)i + 1;
			CUdeviceptr later;
			void *params[] = { &words[1 - i], &value, &n }, *of_later[] = { &later, &value, &n };

			/* Also memory that came after access was given. */
			MUST(cuCtxSetCurrent(contexts[1 - i]));
			MUST(cuMemAlloc(&later, 4 * MIB));
			MUST(cuMemsetD32(later, 5, 1000));
			MUST(cuCtxSynchronize());
			MUST(cuCtxSetCurrent(contexts[i]));
			launch(add[i], 256, params);
			launch(add[i], 256, of_later);
			MUST(cuCtxSynchronize());
			MUST(cuMemcpyDtoH(&got, later + 3996, 4));
			CHECK(got == 5 + value, "turn %u: the other's later memory has %u", turns, got);
			MUST(cuMemFree(later));
		}
		turns++;
		for (int i = 0; i < 2; i++) {
			MUST(cuMemcpyDtoH(&got, words[i] + 3996, 4));
			CHECK(got == turns * (2 - (uint32_t)i), "turn %u: memory of GPU %d has %u", turns, i, got);
		}
		if (turns % 5 == 1)
			fprintf(stderr, "step %u\n", turns);
	} while (access(file, F_OK) != 0);
	MUST(cuCtxSetCurrent(contexts[0]));
	MUST(cuCtxDisablePeerAccess(contexts[1]));
	EXPECT(cuCtxDisablePeerAccess(contexts[1]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	return prog_end();
}

static const char *const clock_ptx =
	".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry now(.param .u64 to)\n{\n\t.reg .b64 %d<4>;\n"
	"\tld.param.u64 %d1, [to];\n\tcvta.to.global.u64 %d2, %d1;\n\tmov.u64 %d3, %globaltimer;\n\tst.global.u64 [%d2], %d3;\n\tret;\n}\n";

static int clock_reader(const char *file)
{
	uint64_t before = 0, now;
	CUdeviceptr word;
	CUmodule module;
	CUfunction f;
	unsigned turns = 0;
	void *params[] = { &word };

	MUST(cuMemAlloc(&word, 8));
	MUST(cuModuleLoadData(&module, clock_ptx));
	f = function(module, "now");
	do {
		MUST(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
		MUST(cuMemcpyDtoH(&now, word, 8));
		CHECK(now > before, "time goes back");
		before = now;
		if (turns++ % 100 == 0)
			fprintf(stderr, "step %u\n", turns);
	} while (access(file, F_OK) != 0);
	return prog_end();
}

/* Pools' settings, blocks that live, blocks that lie free in them; and blocks that come and go. */
static int pools(const char *file)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = prop().location };
	uint64_t threshold = 64 * MIB, of_default = 7 * MIB, value, high;
	CUdeviceptr kept, plain, passing;
	CUmemoryPool pool, standard, current;
	uint32_t turns = 0, got;
	int reuse = 0;
	CUstream stream;

	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuMemPoolCreate(&pool, &props));
	MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse));
	MUST(cuDeviceGetDefaultMemPool(&standard, 0));
	MUST(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &of_default));
	MUST(cuMemAllocFromPoolAsync(&kept, 5 * MIB, pool, stream));
	MUST(cuMemAllocAsync(&plain, 3 * MIB, stream));
	MUST(cuMemsetD32Async(kept, 0, 5 * MIB / 4, stream));
	MUST(cuMemsetD32Async(plain, 11, 3 * MIB / 4, stream));
	MUST(cuDeviceSetMemPool(0, pool));
	MUST(cuMemAllocAsync(&passing, 9 * MIB, stream));
	MUST(cuMemFreeAsync(passing, stream));
	MUST(cuStreamSynchronize(stream));
	MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
	do {
		uint64_t before, after;

		MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
		CHECK(value == threshold, "turn %u: the threshold is %llu", turns, (unsigned long long)value);
		MUST(cuMemPoolGetAttribute(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
		CHECK(value == of_default, "turn %u: that of the default pool is %llu", turns, (unsigned long long)value);
		reuse = 1;
		MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse));
		CHECK(reuse == 0, "turn %u: it reuses", turns);
		MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &before));
		MUST(cuDeviceGetMemPool(&current, 0));
		CHECK(current == pool, "turn %u: another pool is current", turns);
		/* The free block lies in the pool, and serves again. */
		MUST(cuMemAllocAsync(&passing, 9 * MIB, stream));
		MUST(cuMemsetD32Async(passing, turns, 9 * MIB / 4, stream));
		MUST(cuMemsetD32Async(kept + 4 * (turns % 1000), turns + 1, 1, stream));
		MUST(cuMemcpyDtoHAsync(&got, passing + 9 * MIB - 4, 4, stream));
		MUST(cuStreamSynchronize(stream));
		CHECK(got == turns, "turn %u: memory of the pool has %u", turns, got);
		MUST(cuMemFreeAsync(passing, stream));
		MUST(cuStreamSynchronize(stream));
		MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &after));
		CHECK(after == before, "turn %u: %llu bytes are used, not %llu", turns, (unsigned long long)after, (unsigned long long)before);
		MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
		CHECK(value == high, "turn %u: at most %llu were, not %llu", turns, (unsigned long long)value, (unsigned long long)high);
		MUST(cuMemcpyDtoH(&got, plain + 3 * MIB - 4, 4));
		CHECK(got == 11, "turn %u: memory of the default pool has %u", turns, got);
		if (turns++ % 50 == 0)
			fprintf(stderr, "step %u\n", turns);
	} while (access(file, F_OK) != 0);
	for (uint32_t i = 0; i < 1000 && i < turns; i++) {
		MUST(cuMemcpyDtoH(&got, kept + 4 * i, 4));
		CHECK(got % 1000 == (i + 1) % 1000 && got <= turns, "word %u of the pool's memory is %u after %u turns", i, got, turns);
	}
	MUST(cuMemFreeAsync(kept, stream));
	MUST(cuMemFreeAsync(plain, stream));
	MUST(cuStreamSynchronize(stream));
	MUST(cuMemPoolDestroy(pool));
	return prog_end();
}

/* What stays where it is. */
static int immovable(const char *what, const char *file)
{
	CUdeviceptr at;

	MUST(cuMemAlloc(&at, 4 * MIB));
	if (strcmp(what, "shared") == 0) {
		CUipcMemHandle handle;

		MUST(cuIpcGetMemHandle(&handle, at));
	} else {
		MUST(cuLaunchKernel(function(util, "trap"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
		CHECK(cuCtxSynchronize() != CUDA_SUCCESS, "a trap was not told");
	}
	fprintf(stderr, "step: it is %s\n", what);
	wait_for_file(file);
	if (strcmp(what, "lost") != 0) {
		uint32_t got = 0;

		MUST(cuMemsetD32(at, 9, 100));
		MUST(cuMemcpyDtoH(&got, at + 396, 4));
		CHECK(got == 9, "its memory has %u", got);
	}
	return prog_end();
}

static void one(CUdeviceptr read_only)
{
	switch (draw(15)) {
	case 0:
		box_up();
		break;
	case 1:
	case 2:
		box_add();
		break;
	case 3:
		box_down(&boxes[draw(BOXES)]);
		break;
	case 4:
		plane_sample();
		break;
	case 5:
		again();
		break;
	case 6:
		level_up(draw(LEVELS));
		break;
	case 7:
		level_look();
		break;
	case 8:
		linear_look();
		break;
	case 9:
		if (draw(2))
			dangle();
		else if (read_only)
			failure(read_only);
		break;
	case 10:
		managed_turn();
		break;
	case 11:
		say();
		break;
	case 12:
		loop_turn();
		break;
	default:
		slot_turn();
	}
}

int main(int argc, char **argv)
{
	unsigned steps = argc > 1 ? (unsigned)atoi(argv[1]) : 300;
	CUdeviceptr at, read_only;

	random_state = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
	prog_context(NULL);
	if (argc > 2 && strcmp(argv[1], "peers") == 0)
		return peers(argv[2]);
	util = prog_module("util");
	if (argc > 2 && strcmp(argv[1], "latch") == 0)
		return latch(argv[2]);
	if (argc > 2 && strcmp(argv[1], "clock") == 0)
		return clock_reader(argv[2]);
	if (argc > 2 && strcmp(argv[1], "pools") == 0)
		return pools(argv[2]);
	if (argc > 2 && !steps)
		return immovable(argv[1], argv[2]);
	textures = prog_module("texture");
	for (int i = 0; i < BOXES; i++)
		box_make(&boxes[i]);
	plane_texture_make();
	mipmap_make();
	loop_make();
	MUST(cuMemAlloc(&linear, sizeof(linear_model)));
	MUST(cuMemAlloc(&linear_out, POINTS * 4));
	MUST(cuMemsetD8(linear, 0, sizeof(linear_model)));
	linear_texture = linear_texture_make(linear, LINEAR);
	MUST(cuMemAllocManaged(&at, sizeof(managed_model), CU_MEM_ATTACH_GLOBAL));
	managed = (uint32_t *)(uintptr_t)at;
	MUST(cuMemAddressReserve(&places, PLACES * PIECE, 0, 0, 0));
	/* A real driver may take such a fill for a fault of a kernel. */
	read_only = getenv("CARRIED_SAFE") ? 0 : read_only_memory();
	for (unsigned i = 0; i < steps || (argc > 3 && access(argv[3], F_OK) != 0); i++) {
		if (argc > 4 && i == steps / 2) {
			fprintf(stderr, "step: it pauses\n");
			wait_for_file(argv[4]);
		}
		one(read_only);
		if (argc > 3 && i % 10 == 0)
			fprintf(stderr, "step %u\n", i);
	}
	for (int i = 0; i < BOXES; i++)
		box_down(&boxes[i]);
	plane_sample();
	level_look();
	linear_look();
	loop_turn();
	MUST(cuCtxSynchronize());
	CHECK(memcmp(managed, managed_model, sizeof(managed_model)) == 0, "managed memory at the end");
	printf("checksum %016llx\n", (unsigned long long)sum);
	return prog_end();
}
