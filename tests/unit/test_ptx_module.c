/* SPDX-License-Identifier: Apache-2.0 */
/* What a module tells, how several are linked, and texts that must be refused, each with its place. */
#include "tests/unit/test_ptx.h"

#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"
#define BODY(text) HEAD ".visible .entry k(.param .u64 p)\n{\n.reg .pred %p<4>;\n.reg .b16 %h<4>;\n.reg .b32 %r<8>;\n.reg .b64 %d<8>;\n.reg .f32 %f<4>;\n" text "\nret;\n}\n"
#define BODY_LINE 11

static const struct ptx_target target = { .sm = 90, .version_max = 90 };

static void attributes(void **state)
{
	struct ptx_module *module = kit_load_text(
		".version 7.8\n.target sm_86\n.address_size 64\n.visible .global .align 8 .u64 g;\n.global .b8 hidden[3];\n"
		".visible .entry one(.param .u8 a, .param .align 16 .b8 b[24], .param .u64 .ptr .global .align 4 c)\n"
		".reqntid 32, 2\n.maxnreg 40\n{ .shared .align 8 .b8 s[100]; .local .b8 l[20]; ret; }\n"
		".entry two() .maxntid 128 .minnctapersm 3 { ret; }");
	const struct ptx_entry *one = ptx_module_entry_find(module, "one");
	const struct ptx_entry *two = ptx_module_entry_find(module, "two");

	(void)state;
	assert_int_equal(ptx_module_version(module), 78);
	assert_int_equal(ptx_module_sm(module), 86);
	assert_int_equal(ptx_module_entry_count(module), 2);
	assert_ptr_equal(ptx_module_entry(module, 1), two);
	assert_int_equal(one->param_count, 3);
	assert_int_equal(one->params[1].offset, 16);
	assert_int_equal(one->params[1].size, 24);
	assert_int_equal(one->params[2].offset, 40);
	assert_true(one->params[2].pointer);
	assert_int_equal(one->param_size, 48);
	assert_int_equal(one->reqntid[0], 32);
	assert_int_equal(one->reqntid[1], 2);
	assert_int_equal(one->reqntid[2], 1);
	assert_int_equal(one->maxnreg, 40);
	assert_int_equal(one->shared_static, 100);
	assert_in_range(one->local_size, 20, 64);
	assert_int_equal(two->maxntid[0], 128);
	assert_int_equal(two->reqntid[0], 0);
	assert_int_equal(two->minnctapersm, 3);
	assert_int_equal(two->param_count, 0);
	assert_non_null(ptx_module_global_find(module, "g"));
	assert_non_null(ptx_module_global_find(module, "hidden")); /* as the driver finds static variables */
	assert_false(ptx_module_global_find(module, "hidden")->visible);
	assert_int_equal(ptx_module_global_count(module), 2);
	assert_null(ptx_module_entry_find(module, "three"));
	kit_unload(module);
}

static const struct refusal {
	const char *text;
	enum ptx_error_kind kind;
	uint32_t line;
} refusals[] = {
	{ "", PTX_SYNTAX, 1 },
	{ "hello", PTX_SYNTAX, 1 },
	{ ".version 8.0\n", PTX_SYNTAX, 2 },
	{ ".version 9.1\n.target sm_80\n", PTX_VERSION, 1 },
	{ ".version 8.0\n.target sm_100\n", PTX_TARGET, 2 },
	{ ".version 8.0\n.target sm_80a\n", PTX_TARGET, 2 },
	{ HEAD ".address_size 32\n", PTX_UNSUPPORTED, 5 },
	{ HEAD "\n.global .u32 x = \"\n", PTX_SYNTAX, 5 },
	{ HEAD ".global .u32 x;\n.global .u32 x;\n", PTX_SYNTAX, 5 },
	{ HEAD ".global .u32 x[2] = {1, 2, 3};\n", PTX_SYNTAX, 4 },
	{ HEAD ".global .align 3 .u32 x;\n", PTX_SYNTAX, 4 },
	{ HEAD ".global .b8 x[99999999999999];\n", PTX_SYNTAX, 4 },
	{ HEAD ".global .b8 x[65536][65536][65536][65536];\n", PTX_SYNTAX, 4 },
	{ HEAD ".extern .global .u32 x;\n", PTX_UNRESOLVED, 4 },
	{ HEAD ".entry k() { ret; ", PTX_SYNTAX, 4 },
	{ HEAD ".entry k() { ret; }\n.entry k() { ret; }\n", PTX_SYNTAX, 5 },
	{ BODY("add.u32 %r1, %r2;"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY("add.u32 %r1, %r2, %r99;"), PTX_SYNTAX, BODY_LINE },
	{ BODY("add.u32 %r1, %r2, %d3;"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY("add.u32 %r1, %r2, %p1;"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY("add.u32 5, %r2, %r1;"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY("frobnicate.u32 %r1, %r2;"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY("add.rn.u32 %r1, %r2, %r3;"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY("add.u32 %r1, %r2, %r3"), PTX_SYNTAX, BODY_LINE + 1 },
	{ BODY("\n\n bra nowhere;"), PTX_SYNTAX, BODY_LINE + 2 },
	{ BODY("@%r1 ret;"), PTX_SYNTAX, BODY_LINE },
	{ BODY("L: L: ret;"), PTX_SYNTAX, BODY_LINE },
	{ BODY("bra p;"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY("ld.param.u64 %d1, [p+8];"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY("ld.param.u64 %d1, [p-8];"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY("ld.global.v4.u64 {%d1, %d2, %d3}, [%d4];"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY("st.const.u32 [%d1], %r1;"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY("call nobody, (%r1);"), PTX_SYNTAX, BODY_LINE },
	{ BODY("mov.u32 %r1, %nothing;"), PTX_SYNTAX, BODY_LINE },
	{ BODY("wgmma.fence.sync.aligned;"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%d1, {%r1}], [%r2];"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY("setp.lt.u32 %r1, %r2, %r3;"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY("setp.num.u32 %p1, %r2, %r3;"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY("cvt.f32.pred %f1, %p1;"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY("shfl.sync.down.b32 %r1, %r2, 1;"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY("atom.global.cas.f32 %f1, [%d1], %f2, %f3;"), PTX_UNSUPPORTED, BODY_LINE },
	{ BODY(".shared .b8 big[50000];"), PTX_UNSUPPORTED, 0 },
	{ BODY(".local .b8 big[600000];"), PTX_SYNTAX, BODY_LINE },
	{ BODY("bar.arrive 1;"), PTX_UNSUPPORTED, BODY_LINE },
	{ HEAD ".extern .func f();\n.entry k()\n{\ncall f;\nret;\n}\n", PTX_UNRESOLVED, 7 },
	{ HEAD ".func (.param .b32 r) f(.param .b32 a) { ret; }\n.entry k()\n{\ncall f;\nret;\n}\n", PTX_UNSUPPORTED, 7 },
};

static void refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
		const struct refusal *one = &refusals[i];
		struct ptx_error error;
		struct ptx_module *module;

		if (ptx_module_parse(one->text, strlen(one->text), &target, &module, &error) == 0)
			fail_msg("accepted: %s", one->text);
		if (error.kind != one->kind || (one->line && error.line != one->line) || !error.message[0])
			fail_msg("kind %d, line %u: %s\n%s", error.kind, error.line, error.message, one->text);
	}
}

static void deep_nesting(void **state)
{
	static const char *const pieces[] = { "{", "[", "(", "!", "-", "{ .reg .u32 a;", "~", "@!" };
	size_t size = 200000;
	char *text = malloc(size + 1);

	(void)state;
	for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++)
		for (int where = 0; where < 3; where++) {
			const char *start = where == 0 ? HEAD ".global .u32 x[9] = " : where == 1 ? HEAD ".entry k() { add.u32 "
											    : HEAD ".entry k() { ";
			size_t used = (size_t)sprintf(text, "%s", start);
			struct ptx_error error;
			struct ptx_module *module;

			while (used + strlen(pieces[i]) < size)
				used += (size_t)sprintf(text + used, "%s", pieces[i]);
			assert_true(ptx_module_parse(text, used, &target, &module, &error) < 0);
		}
	free(text);
}

/* Every beginning of a real text is refused or read, and nothing worse. */
static void truncated(void **state)
{
	static const char *const names[] = { "reduce", "print", "vecadd" };

	(void)state;
	for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++) {
		char path[512];
		FILE *file;
		char text[16384];
		size_t size;

		snprintf(path, sizeof(path), "%s/%s.ptx", TEST_KERNELS, names[n]);
		file = fopen(path, "re");
		assert_non_null(file);
		size = fread(text, 1, sizeof(text), file);
		fclose(file);
		for (size_t length = 0; length < size; length++) {
			char *copy = malloc(length + 1); /* so that a sanitizer sees its end */
			struct ptx_module *module;
			struct ptx_error error;

			memcpy(copy, text, length);
			if (ptx_module_parse(copy, length, &target, &module, &error) == 0)
				ptx_module_free(module);
			else
				assert_true(error.kind != PTX_OK && error.message[0]);
			free(copy);
		}
	}
}

/* ---- linking ---- */

static int link_texts(const char *first, const char *second, struct ptx_module **module_out, struct ptx_error *error)
{
	const struct ptx_source sources[] = { { first, strlen(first), "first" }, { second, strlen(second), "second" } };

	return ptx_module_link(sources, 2, &target, module_out, error);
}

#define CALLER \
	HEAD ".extern .global .u32 base;\n.extern .func (.param .b32 r) twice(.param .b32 a);\n" \
	     ".global .u32 own = 1000;\n" \
	     ".visible .entry k(.param .u64 out)\n{\n.reg .b32 %r<5>;\n.reg .b64 %d<2>;\n.param .b32 a;\n.param .b32 r;\n" \
	     "ld.param.u64 %d1, [out];\nld.global.u32 %r1, [base];\nst.param.b32 [a], %r1;\ncall (r), twice, (a);\n" \
	     "ld.param.b32 %r2, [r];\nld.global.u32 %r3, [own];\nadd.u32 %r2, %r2, %r3;\nst.global.u32 [%d1], %r2;\nret;\n}\n"
#define CALLEE(linkage, shift) \
	HEAD ".visible .global .u32 base = 21;\n.global .u32 own = 5;\n" linkage " .func (.param .b32 r) twice(.param .b32 a)\n" \
	     "{\n.reg .b32 %r<3>;\nld.param.b32 %r1, [a];\nshl.b32 %r1, %r1, " shift ";\nst.param.b32 [r], %r1;\nret;\n}\n"

static void linked(void **state)
{
	struct ptx_module *module;
	struct ptx_error error;
	uint32_t *out = kit_alloc(sizeof(*out));

	(void)state;
	assert_int_equal(link_texts(CALLER, CALLEE(".visible", "1"), &module, &error), 0);
	kit_bind(module);
	kit_run_ok(module, "k", 1, 1, 0, PARAMS(&out));
	assert_int_equal(*out, 1042);
	kit_unload(module);
	assert_true(link_texts(CALLER, HEAD, &module, &error) < 0);
	assert_int_equal(error.kind, PTX_UNRESOLVED);
	assert_true(link_texts(CALLEE(".visible", "1"), CALLEE(".visible", "1"), &module, &error) < 0);
	assert_int_equal(error.kind, PTX_DUPLICATE);
	kit_free(out);
}

static void weak_and_alias(void **state)
{
	static const char weak[] = HEAD ".weak .func (.param .b32 r) f()\n{ st.param.b32 [r], 1; ret; }\n"
					".visible .func (.param .b32 r) g();\n.alias g, f;\n"
					".visible .entry k(.param .u64 out)\n{\n.reg .b32 %r<5>;\n.reg .b64 %d<2>;\n.param .b32 r;\n"
					"ld.param.u64 %d1, [out];\ncall (r), f;\nld.param.b32 %r1, [r];\nst.global.u32 [%d1], %r1;\n"
					"call (r), g;\nld.param.b32 %r1, [r];\nst.global.u32 [%d1+4], %r1;\nret;\n}\n";
	static const char strong[] = HEAD ".visible .func (.param .b32 r) f()\n{ st.param.b32 [r], 2; ret; }\n";
	struct ptx_module *module = kit_load_text(weak);
	struct ptx_error error;
	uint32_t *out = kit_alloc(2 * sizeof(*out));

	(void)state;
	kit_run_ok(module, "k", 1, 1, 0, PARAMS(&out));
	assert_int_equal(out[0], 1);
	assert_int_equal(out[1], 1);
	kit_unload(module);
	assert_int_equal(link_texts(weak, strong, &module, &error), 0);
	kit_bind(module);
	kit_run_ok(module, "k", 1, 1, 0, PARAMS(&out));
	assert_int_equal(out[0], 2);
	kit_unload(module);
	kit_free(out);
}

static void initialisers(void **state)
{
	struct ptx_module *module = kit_load_text(
		HEAD ".visible .const .align 4 .f32 reals[2][3] = {{1.5, 0f40000000, -3}, {4}};\n"
		     ".visible .global .u64 where = reals+4;\n.visible .global .b8 bytes[4] = {0xFF(where), 0xFF00(where), 7, -1};\n"
		     ".visible .global .v2 .u16 pair = {1, 2};\n.visible .global .s64 sum = (3 + 4) * -2;\n.visible .global .f64 real = 2;\n"
		     ".visible .global .b8 open[] = {1, 2, 3, 4, 5};\n");
	const float *reals = kit_global(module, "reals");
	const uint8_t *bytes = kit_global(module, "bytes");
	uint64_t where = (uintptr_t)kit_global(module, "where");

	(void)state;
	assert_true(reals[0] == 1.5f && reals[1] == 2 && reals[2] == -3 && reals[3] == 4 && reals[4] == 0 && reals[5] == 0);
	assert_true(*(uint64_t *)(uintptr_t)where == (uintptr_t)&reals[1]);
	assert_int_equal(bytes[0], where & 255);
	assert_int_equal(bytes[1], where >> 8 & 255);
	assert_int_equal(bytes[2], 7);
	assert_int_equal(bytes[3], 255);
	assert_int_equal(((uint16_t *)kit_global(module, "pair"))[1], 2);
	assert_int_equal(*(int64_t *)kit_global(module, "sum"), -14);
	assert_true(*(double *)kit_global(module, "real") == 2);
	assert_int_equal(ptx_module_global_find(module, "open")->size, 5);
	kit_unload(module);
}

static void deadlock(void **state)
{
	struct ptx_module *module = kit_load_text(BODY("mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 32;\n@%p1 bar.sync 1, 64;"));
	struct kit_launch launch = { .block = { 64 } };
	struct ptx_fault fault;
	uint64_t zero = 0;

	(void)state;
	assert_int_equal(kit_run(module, "k", &launch, PARAMS(&zero), &fault), PTX_FAULT_DEADLOCK);
	assert_non_null(strstr(fault.instruction, "bar.sync"));
	kit_unload(module);
}

static void odd_barriers(void **state)
{
	struct ptx_module *module = kit_load_text(BODY("mov.u32 %r1, 16;\nbar.sync %r1;"));
	struct kit_launch launch = { .block = { 64 } };
	struct ptx_fault fault;
	uint64_t zero = 0;

	(void)state;
	assert_int_equal(kit_run(module, "k", &launch, PARAMS(&zero), &fault), PTX_FAULT_INSTRUCTION);
	kit_unload(module);
}

static void endless_recursion(void **state)
{
	struct ptx_module *module = kit_load_text(HEAD ".func f() { call f; ret; }\n.entry k(.param .u64 p) { call f; ret; }\n");
	struct kit_launch launch = { .block = { 64 } };
	struct ptx_fault fault;
	uint64_t zero = 0;

	(void)state;
	assert_int_equal(kit_run(module, "k", &launch, PARAMS(&zero), &fault), PTX_FAULT_STACK);
	kit_unload(module);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attributes),	   cmocka_unit_test(refused),	   cmocka_unit_test(deep_nesting),
		cmocka_unit_test(truncated),	   cmocka_unit_test(linked),	   cmocka_unit_test(weak_and_alias),
		cmocka_unit_test(initialisers),	   cmocka_unit_test(deadlock),	   cmocka_unit_test(odd_barriers),
		cmocka_unit_test(endless_recursion),
	};

	return cmocka_run_group_tests(tests, kit_setup, kit_teardown);
}
