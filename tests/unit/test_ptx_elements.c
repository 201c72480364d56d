/* SPDX-License-Identifier: Apache-2.0 */
/* Each function of tests/cuda/kernels/elements.h, run as a kernel and compared with the C compiler's own. */
#include <math.h>

#include "tests/unit/test_ptx.h"

#define COUNT 3001

#define ELEMENT(name, type, ...) \
	static type name##_of(type a, type b) __VA_ARGS__ \
	static void name##_reference(const void *x, const void *y, void *out) \
	{ \
		for (int i = 0; i < COUNT; i++) \
			((type *)out)[i] = name##_of(((const type *)x)[i], ((const type *)y)[i]); \
	}
#include "tests/cuda/kernels/elements.h"
#undef ELEMENT

static const struct element {
	const char *name;
	size_t size;
	bool real;
	void (*reference)(const void *x, const void *y, void *out);
} elements[] = {
#define ELEMENT(name, type, ...) { #name, sizeof(type), (type)0.5 != 0, name##_reference },
#include "tests/cuda/kernels/elements.h"
#undef ELEMENT
};

static void fill(const struct element *element, uint8_t *at)
{
	for (int i = 0; i < COUNT; i++) {
		uint64_t bits = (uint64_t)kit_random() << 32 | kit_random();

		if (element->real) { /* moderate numbers with fractions */
			double real = ((int32_t)bits >> 12) / 4096.0 * (i % 5);
			float single = (float)real;

			memcpy(at + i * element->size, element->size == 4 ? (void *)&single : (void *)&real, element->size);
			continue;
		}
		if (i % 7 == 0) /* small ones, zero among them */
			bits = (uint64_t)((int64_t)bits >> 60);
		if (i % 11 == 0)
			bits &= 0xff;
		memcpy(at + i * element->size, &bits, element->size);
	}
}

static void each_element(void **state)
{
	struct ptx_module *module = kit_load("elements");

	(void)state;
	for (size_t e = 0; e < sizeof(elements) / sizeof(*elements); e++) {
		const struct element *element = &elements[e];
		uint8_t *x = kit_alloc(COUNT * element->size);
		uint8_t *y = kit_alloc(COUNT * element->size);
		uint8_t *out = kit_alloc(COUNT * element->size);
		uint8_t *expected = malloc(COUNT * element->size);
		int count = COUNT;

		kit_seed(e);
		fill(element, x);
		fill(element, y);
		element->reference(x, y, expected);
		/* fewer threads than elements, and more than a warp that is whole */
		kit_run_ok(module, element->name, 9, 200, 0, PARAMS(&x, &y, &out, &count));
		for (int i = 0; i < COUNT; i++) {
			uint64_t a = 0;
			uint64_t b = 0;
			uint64_t got = 0;
			uint64_t want = 0;

			memcpy(&a, x + i * element->size, element->size);
			memcpy(&b, y + i * element->size, element->size);
			memcpy(&got, out + i * element->size, element->size);
			memcpy(&want, expected + i * element->size, element->size);
			if (got != want)
				fail_msg("%s(0x%llx, 0x%llx) is 0x%llx, not 0x%llx", element->name, (unsigned long long)a,
					 (unsigned long long)b, (unsigned long long)want, (unsigned long long)got);
		}
		free(expected);
		kit_free(x);
		kit_free(y);
		kit_free(out);
	}
	kit_unload(module);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_element),
	};

	return cmocka_run_group_tests(tests, kit_setup, kit_teardown);
}
