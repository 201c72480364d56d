/* SPDX-License-Identifier: Apache-2.0 */
/* Calls, recursion, function pointers; printf, assert, trap and the heap. */
#include "tests/unit/test_ptx.h"

#define N 100

static int op_add(int a, int b)
{
	return (int)((uint32_t)a + (uint32_t)b);
}
static int op_sub(int a, int b)
{
	return (int)((uint32_t)a - (uint32_t)b);
}
static int op_mul(int a, int b)
{
	return (int)((uint32_t)a * (uint32_t)b);
}
static int op_mix(int a, int b)
{
	return op_add(op_mul(a, 3), op_sub(b, 7));
}
static int (*const operations[4])(int, int) = { op_add, op_sub, op_mul, op_mix };

static void structures(void **state)
{
	struct ptx_module *module = kit_load("call");
	int n = N;
	int *in = kit_alloc(N * sizeof(*in));
	double *out = kit_alloc(N * sizeof(*out));

	(void)state;
	for (int i = 0; i < N; i++)
		in[i] = (int)kit_random() >> 12;
	kit_run_ok(module, "structures", 4, 32, 0, PARAMS(&in, &out, &n));
	for (int i = 0; i < N; i++) {
		int a = in[i];
		double b = in[i] * 1.5;
		uint8_t c[5] = { 1, 2, 3, 4, 5 };
		double want;

		for (int round = 0; round < 1 + (in[i] & 1); round++) {
			int x = round ? 3 : in[i] & 7;

			a += x;
			b *= 0.5;
			for (int j = 0; j < 5; j++)
				c[j] = (uint8_t)(c[j] + j * x);
		}
		want = a + b + c[0] + 2 * c[1] + 3 * c[2] + 4 * c[3] + 5 * c[4];
		assert_true(out[i] == want);
	}
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void recursion(void **state)
{
	static const uint32_t fibonacci[] = { 0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89 };
	struct ptx_module *module = kit_load("call");
	uint32_t *in = kit_alloc(64 * sizeof(*in));
	uint32_t *out = kit_alloc(64 * sizeof(*out));

	(void)state;
	for (int i = 0; i < 64; i++)
		in[i] = kit_random();
	kit_run_ok(module, "recursion", 1, 64, 0, PARAMS(&in, &out));
	for (int i = 0; i < 64; i++)
		assert_int_equal(out[i], fibonacci[in[i] % 12]);
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void by_table(void **state)
{
	struct ptx_module *module = kit_load("call");
	int n = N;
	int *a = kit_alloc(N * sizeof(*a));
	int *b = kit_alloc(N * sizeof(*b));
	int *out = kit_alloc(N * sizeof(*out));

	(void)state;
	for (int i = 0; i < N; i++) {
		a[i] = (int)kit_random();
		b[i] = (int)kit_random();
	}
	kit_run_ok(module, "by_table", 4, 32, 0, PARAMS(&a, &b, &out, &n));
	for (int i = 0; i < N; i++)
		assert_int_equal(out[i], op_add(operations[a[i] & 3](a[i], b[i]),
						(b[i] & 1 ? op_sub : op_mix)(b[i], a[i])));
	kit_free(a);
	kit_free(b);
	kit_free(out);
	kit_unload(module);
}

static void virtuals(void **state)
{
	struct ptx_module *module = kit_load("call");
	int n = N;
	float *in = kit_alloc(N * sizeof(*in));
	float *out = kit_alloc(N * sizeof(*out));

	(void)state;
	for (int i = 0; i < N; i++)
		in[i] = (float)(kit_random() % 100);
	kit_run_ok(module, "virtuals", 4, 32, 0, PARAMS(&in, &out, &n));
	for (int i = 0; i < N; i++) {
		float area = in[i] * in[i] * (i % 3 ? 1.0f : 3.0f);

		assert_true(out[i] == (i % 3 ? area * 2 : area + 2) + area);
	}
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static int walk_even(int n);
static int walk_odd(int n)
{
	return n == 0 ? 0 : operations[n & 3](n, walk_even(n - 1));
}
static int walk_even(int n)
{
	return n == 0 ? 1 : operations[(n + 1) & 3](walk_odd(n - 1), n);
}

static void mutual(void **state)
{
	struct ptx_module *module = kit_load("call");
	int n = N;
	int *in = kit_alloc(N * sizeof(*in));
	int *out = kit_alloc(N * sizeof(*out));

	(void)state;
	for (int i = 0; i < N; i++)
		in[i] = (int)kit_random();
	kit_run_ok(module, "mutual", 4, 32, 0, PARAMS(&in, &out, &n));
	for (int i = 0; i < N; i++)
		assert_int_equal(out[i], walk_odd(in[i] & 7));
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void pointer_as_parameter(void **state)
{
	struct ptx_module *module = kit_load("call");
	int n = N;
	uint64_t *pointer = kit_alloc(sizeof(*pointer));
	int *in = kit_alloc(N * sizeof(*in));
	int *out = kit_alloc(N * sizeof(*out));
	struct kit_launch launch = { .block = { N } };
	struct ptx_fault fault;
	uint64_t nonsense[] = { 0, 1, PTX_WINDOW_FUNCTION, PTX_WINDOW_FUNCTION + 8, PTX_WINDOW_FUNCTION + 16 * 1000 };

	(void)state;
	for (int i = 0; i < N; i++)
		in[i] = (int)kit_random();
	for (int which = 0; which < 4; which++) {
		kit_run_ok(module, "give_pointer", 1, 1, 0, PARAMS(&pointer, &which));
		kit_run_ok(module, "take_pointer", 1, N, 0, PARAMS(pointer, &in, &out, &n));
		for (int i = 0; i < N; i++)
			assert_int_equal(out[i], operations[which](in[i], i));
	}
	for (size_t i = 0; i < sizeof(nonsense) / sizeof(*nonsense); i++) {
		assert_int_equal(kit_run(module, "take_pointer", &launch, PARAMS(&nonsense[i], &in, &out, &n), &fault),
				 PTX_FAULT_PC);
		assert_true(fault.address == nonsense[i]);
	}
	kit_free(pointer);
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void printing(void **state)
{
	struct ptx_module *module = kit_load("print");
	char *name = kit_alloc(16);
	double real = 3.14159;
	char want[512];

	(void)state;
	strcpy(name, "a name");
	kit_printed();
	kit_run_ok(module, "print_all", 1, 4, 0, PARAMS(&name, &real));
	snprintf(want, sizeof(want),
		 "%s: %d %5u|%-6x|%08.3f %c %lld %p %% %g\nno arguments\n%*d|%-*d|%.*f|%s\n", "text", -5, 7u, 255, real, 'z',
		 -1234567890123ll, (void *)16, (double)((float)real * 2), 6, 42, 6, 42, 2, real, name);
	assert_string_equal(kit_printed(), want);
	kit_free(name);
	kit_unload(module);
}

static void assertion(void **state)
{
	struct ptx_module *module = kit_load("print");
	int *in = kit_alloc(64 * sizeof(*in));
	struct kit_launch launch = { .block = { 64 } };
	struct ptx_fault fault;

	(void)state;
	kit_run_ok(module, "check", 1, 64, 0, PARAMS(&in));
	in[37] = -1;
	kit_printed();
	assert_int_equal(kit_run(module, "check", &launch, PARAMS(&in), &fault), PTX_FAULT_ASSERT);
	assert_int_equal(fault.tid[0], 37);
	assert_non_null(strstr(kit_printed(), "block: [0,0,0], thread: [37,0,0] Assertion `in[threadIdx.x] >= 0` failed."));
	kit_free(in);
	kit_unload(module);
}

static void trap(void **state)
{
	struct ptx_module *module = kit_load("print");
	struct kit_launch launch = { .block = { 64 } };
	struct ptx_fault fault;
	int which = 33;

	(void)state;
	assert_int_equal(kit_run(module, "stop", &launch, PARAMS(&which), &fault), PTX_FAULT_TRAP);
	assert_int_equal(fault.tid[0], 33);
	assert_string_equal(fault.kernel, "stop");
	assert_non_null(strstr(fault.instruction, "trap"));
	which = 64;
	kit_run_ok(module, "stop", 1, 64, 0, PARAMS(&which));
	kit_unload(module);
}

static void heap(void **state)
{
	struct ptx_module *module = kit_load("print");
	int *out = kit_alloc(64 * sizeof(*out));

	(void)state;
	kit_run_ok(module, "from_heap", 1, 64, 0, PARAMS(&out));
	for (int i = 0; i < 64; i++)
		assert_int_equal(out[i], i * (i % 16));
	kit_free(out);
	kit_unload(module);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(structures), cmocka_unit_test(recursion), cmocka_unit_test(by_table),
		cmocka_unit_test(virtuals),   cmocka_unit_test(mutual),	   cmocka_unit_test(pointer_as_parameter),
		cmocka_unit_test(printing),   cmocka_unit_test(assertion), cmocka_unit_test(trap),
		cmocka_unit_test(heap),
	};

	return cmocka_run_group_tests(tests, kit_setup, kit_teardown);
}
