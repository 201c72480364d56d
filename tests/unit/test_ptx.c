/* SPDX-License-Identifier: Apache-2.0 */
/* See test_ptx.h. Linked into each test of the PTX processor. */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/test_ptx.h"

#define ALLOCATIONS_MAX 256

struct allocation {
	uint8_t *memory;
	uint8_t *mapping;
	size_t size;
	size_t mapped;
};

static struct allocation allocations[ALLOCATIONS_MAX];
static unsigned int allocation_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t generation = 1;
static struct exec_pool *pool;
static char printed[1 << 16];
static size_t printed_size;
static uint64_t random_state = 1;

int kit_setup(void **state)
{
	(void)state;
	return exec_pool_new(2, &pool);
}

int kit_teardown(void **state)
{
	(void)state;
	exec_pool_free(pool);
	while (allocation_count)
		kit_free(allocations[0].memory);
	return 0;
}

/* The end of the memory is the end of a page, so that a stray access of ours would be a crash. */
void *kit_alloc(size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t inside = (size + page - 1) / page * page;
	struct allocation *one;

	pthread_mutex_lock(&lock);
	assert_true(allocation_count < ALLOCATIONS_MAX);
	one = &allocations[allocation_count++];
	one->mapped = inside + page;
	one->mapping = mmap(NULL, one->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(one->mapping != MAP_FAILED);
	assert_return_code(mprotect(one->mapping + inside, page, PROT_NONE), errno);
	one->size = size;
	one->memory = one->mapping + (inside - size) / 256 * 256;
	pthread_mutex_unlock(&lock);
	return one->memory;
}

void kit_free(void *memory)
{
	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < allocation_count; i++)
		if (allocations[i].memory == memory) {
			munmap(allocations[i].mapping, allocations[i].mapped);
			allocations[i] = allocations[--allocation_count];
			break;
		}
	atomic_fetch_add(&generation, 1);
	pthread_mutex_unlock(&lock);
}

static int lookup(void *user, uint64_t addr, struct ptx_range *range_out)
{
	int result = -EFAULT;

	(void)user;
	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < allocation_count; i++) {
		uint64_t base = (uintptr_t)allocations[i].memory;

		if (addr >= base && addr - base < allocations[i].size) {
			range_out->base = base;
			range_out->size = allocations[i].size;
			range_out->read_only = false;
			result = 0;
		}
	}
	pthread_mutex_unlock(&lock);
	return result;
}

static void print(void *user, const char *text, size_t size)
{
	(void)user;
	pthread_mutex_lock(&lock);
	if (size < sizeof(printed) - printed_size) {
		memcpy(printed + printed_size, text, size);
		printed_size += size;
	}
	pthread_mutex_unlock(&lock);
}

static uint64_t heap_alloc(void *user, uint64_t size)
{
	(void)user;
	return (uintptr_t)kit_alloc(size);
}

static void heap_free(void *user, uint64_t addr)
{
	(void)user;
	kit_free((void *)(uintptr_t)addr);
}

static struct ptx_host host = {
	.lookup = lookup,
	.generation = &generation,
	.print = print,
	.heap_alloc = heap_alloc,
	.heap_free = heap_free,
};

void kit_texel(int (*texel)(void *user, struct ptx_texel *texel))
{
	host.texel = texel;
}

static uint64_t addresses[64];

void kit_bind(struct ptx_module *module)
{
	uint32_t count = ptx_module_global_count(module);

	assert_true(count <= 64);
	for (uint32_t i = 0; i < count; i++)
		addresses[i] = (uintptr_t)kit_alloc(ptx_module_global(module, i)->size + 1);
	assert_int_equal(ptx_module_bind(module, addresses, NULL, count), 0);
}

void *kit_global(const struct ptx_module *module, const char *name)
{
	const struct ptx_global *global = ptx_module_global_find(module, name);

	assert_non_null(global);
	return (void *)(uintptr_t)addresses[global->index];
}

static const struct ptx_target target = { .sm = 90, .version_max = 90 };

struct ptx_module *kit_load_text(const char *text)
{
	struct ptx_module *module = NULL;
	struct ptx_error error;

	if (ptx_module_parse(text, strlen(text), &target, &module, &error) < 0)
		fail_msg("line %u, column %u: %s", error.line, error.column, error.message);
	kit_bind(module);
	return module;
}

struct ptx_error kit_refused(const char *text)
{
	struct ptx_module *module = NULL;
	struct ptx_error error;

	assert_true(ptx_module_parse(text, strlen(text), &target, &module, &error) < 0);
	return error;
}

struct ptx_module *kit_load(const char *name)
{
	char path[512];
	struct ptx_module *module;
	FILE *file;
	char *text;
	long size;

	snprintf(path, sizeof(path), "%s/%s.ptx", TEST_KERNELS, name);
	file = fopen(path, "re");
	if (!file)
		fail_msg("%s: %s", path, strerror(errno));
	fseek(file, 0, SEEK_END);
	size = ftell(file);
	rewind(file);
	text = calloc(1, (size_t)size + 1);
	assert_non_null(text);
	assert_int_equal(fread(text, 1, (size_t)size, file), size);
	fclose(file);
	module = kit_load_text(text);
	free(text);
	return module;
}

void kit_unload(struct ptx_module *module)
{
	for (uint32_t i = 0; i < ptx_module_global_count(module); i++)
		kit_free((void *)(uintptr_t)addresses[i]);
	ptx_module_free(module);
}

enum ptx_status kit_run(struct ptx_module *module, const char *name, const struct kit_launch *launch,
			 const void *const *params, struct ptx_fault *fault)
{
	const struct ptx_entry *entry = ptx_module_entry_find(module, name);
	uint8_t block[4096] = { 0 };
	struct ptx_launch real = {
		.module = module,
		.entry = entry,
		.shared_dynamic = launch->shared,
		.cooperative = launch->cooperative,
		.params = block,
		.pool = pool,
		.host = &host,
		.abort = launch->abort,
	};

	if (!entry)
		fail_msg("no entry %s", name);
	for (int i = 0; i < 3; i++) {
		real.grid[i] = launch->grid[i] ? launch->grid[i] : 1;
		real.block[i] = launch->block[i] ? launch->block[i] : 1;
		real.cluster[i] = launch->cluster[i];
	}
	for (uint32_t i = 0; i < entry->param_count; i++)
		memcpy(block + entry->params[i].offset, params[i], entry->params[i].size);
	real.params_size = entry->param_size;
	return ptx_launch(&real, fault);
}

void kit_run_ok(struct ptx_module *module, const char *name, uint32_t blocks, uint32_t threads, uint32_t shared,
		 const void *const *params)
{
	struct kit_launch launch = { .grid = { blocks }, .block = { threads }, .shared = shared };
	struct ptx_fault fault;

	if (kit_run(module, name, &launch, params, &fault) != PTX_DONE)
		fail_msg("%s: %s: %s, line %u: %s", name, ptx_status_name(fault.status), fault.message, fault.line,
			 fault.instruction);
}

const char *kit_printed(void)
{
	static char copy[sizeof(printed)];

	pthread_mutex_lock(&lock);
	memcpy(copy, printed, printed_size);
	copy[printed_size] = 0;
	printed_size = 0;
	pthread_mutex_unlock(&lock);
	return copy;
}

void kit_seed(uint64_t seed)
{
	random_state = seed * 2 + 1;
}

uint32_t kit_random(void)
{
	random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(random_state >> 33) ^ (uint32_t)(random_state >> 17 & 0x80000000u);
}
