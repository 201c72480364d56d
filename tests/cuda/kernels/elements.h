/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of two numbers, compiled twice: by nvcc into kernels (elements.cu), by the C compiler into what the
 * kernels' results are compared with. ELEMENT(name, type, body): the body computes from a and b what it returns.
 */

ELEMENT(int_mix, int32_t, {
	int32_t r = (int32_t)((uint32_t)a * 31u + (uint32_t)b);

	r ^= b ? a / (b | 1) : 7;
	r = (int32_t)((uint32_t)r - (uint32_t)(b ? a % (b | 1) : 3));
	r = (int32_t)((uint32_t)r + (uint32_t)((a < b) ? (a >> 3) : (b >> (a & 31))));
	return (a > 0 && b < 0) || (a & 4) ? r : ~r;
})

ELEMENT(uint_mix, uint32_t, {
	uint32_t r = a * b + (a / (b | 1u)) - (b % (a | 1u));

	r ^= (a << (b & 31)) | (a >> (32 - (b & 31) - 1));
	return r > a ? r - a : a - r;
})

ELEMENT(long_mix, int64_t, {
	int64_t r = (int64_t)((uint64_t)a * (uint64_t)b + 12345u);

	r ^= a / (b | 1);
	r = (int64_t)((uint64_t)r + ((uint64_t)(a % (b | 1)) << 7));
	return r < 0 ? r >> 5 : (int64_t)((uint64_t)r >> 9);
})

ELEMENT(ulong_mix, uint64_t, {
	uint64_t high = (uint64_t)(((unsigned __int128)a * b) >> 64);

	return high + a / (b | 1) + (b % (a | 1)) * 3;
})

ELEMENT(short_mix, int16_t, {
	int16_t r = (int16_t)(a * b);

	r = (int16_t)(r ^ (a >> (b & 15)));
	r = (int16_t)(r + (b ? a / (b | 1) : 1));
	return (int16_t)(a < b ? r : -r);
})

ELEMENT(byte_mix, uint8_t, {
	uint8_t r = (uint8_t)(a * 3 + b);

	return (uint8_t)(r > 200 ? r >> 1 : (r << 2 | r >> 6));
})

ELEMENT(wide_product, uint64_t, {
	unsigned __int128 p = (unsigned __int128)a * a + (unsigned __int128)b * b;

	p = p * 3 - b;
	return (uint64_t)p ^ (uint64_t)(p >> 64);
})

ELEMENT(greatest_divisor, uint32_t, {
	while (b) {
		uint32_t t = a % b;

		a = b;
		b = t;
	}
	return a;
})

ELEMENT(collatz, uint32_t, {
	uint32_t steps = 0;
	uint64_t x = (a & 0xffff) + 1;

	while (x != 1 && steps < 1000) {
		x = x & 1 ? 3 * x + 1 : x / 2;
		steps++;
		if (x == b)
			break;
	}
	return steps;
})

ELEMENT(checksum, uint32_t, {
	uint32_t crc = ~a;

	for (int i = 0; i < 32; i++) {
		uint32_t bit = (crc ^ (b >> i)) & 1;

		crc = (crc >> 1) ^ (bit ? 0xedb88320u : 0);
	}
	return ~crc;
})

ELEMENT(nested_branches, int32_t, {
	int32_t r = 0;

	for (int i = 0; i < (a & 15); i++) {
		if ((b >> i) & 1) {
			for (int j = 0; j < (b & 7); j++) {
				if (((a >> j) & 3) == 2)
					continue;
				r += i * j;
				if (r > 1000)
					break;
			}
		} else if (i > 8) {
			r -= i;
			if (r < -50)
				return r;
		}
	}
	return r;
})

ELEMENT(many_cases, uint32_t, {
	switch (a % 13) {
	case 0:
		return b;
	case 1:
		return b + 1;
	case 2:
		return b * 7;
	case 3:
		return b ^ 0x55;
	case 4:
		return b >> 3;
	case 5:
		return ~b;
	case 6:
		return b * b;
	case 7:
		return b | 0xff00;
	case 9:
		return b % 10;
	case 10:
		return b - a;
	case 11:
		return a;
	}
	return 99;
})

ELEMENT(local_array, uint32_t, {
	uint32_t heap[16];

	for (int i = 0; i < 16; i++)
		heap[i] = (a >> i) ^ (b * (uint32_t)(i + 1));
	for (int i = 1; i < 16; i++) {
		uint32_t x = heap[i];
		int j = i;

		for (; j > 0 && heap[j - 1] > x; j--)
			heap[j] = heap[j - 1];
		heap[j] = x;
	}
	return heap[b & 15] ^ heap[a & 7];
})

ELEMENT(float_mix, float, {
	float r = a * b + 1.5f;

	r = r - a / (b + 0.25f);
	r = r > 10.0f ? r * 0.5f : -r;
	return r < b ? r : b;
})

ELEMENT(double_mix, double, {
	double r = a * b + 1.5;

	r = r - a / (b + 0.25);
	r = r > 10.0 ? r * 0.5 : -r;
	return r < b ? r : b;
})

ELEMENT(float_roots, float, {
	return sqrtf(fabsf(a)) + fmaf(a, b, -b) - floorf(a) * 0.25f + ceilf(b) - truncf(a * b) + rintf(b);
})

ELEMENT(double_roots, double, {
	return sqrt(fabs(a)) + fma(a, b, -b) - floor(a) * 0.25 + ceil(b) - trunc(a * b) + rint(b);
})

ELEMENT(escape_time, float, {
	float x = 0;
	float y = 0;
	int i = 0;

	a = a / 16.0f;
	b = b / 16.0f;
	while (i < 200 && x * x + y * y < 4.0f) {
		float t = x * x - y * y + a;

		y = 2.0f * x * y + b;
		x = t;
		i++;
	}
	return (float)i;
})

ELEMENT(float_to_integers, float, {
	return (float)(int32_t)a + (float)(int16_t)(int32_t)b + (float)(uint8_t)(int32_t)fabsf(a) +
	       (float)(int64_t)(b * 1000.0f) + (float)(uint32_t)fabsf(a * 77.0f);
})

ELEMENT(integers_to_double, int64_t, {
	double r = (double)a * 0.5 + (double)(int32_t)b + (double)(uint64_t)b + (double)(uint8_t)a;

	return (int64_t)(r / 1024.0) + (int64_t)(float)a / 3 + (int64_t)(float)(uint32_t)b;
})

ELEMENT(integer_root, uint32_t, {
	uint32_t r = 0;

	for (uint32_t bit = 1u << 30; bit; bit >>= 2) {
		if (a >= r + bit) {
			a -= r + bit;
			r = (r >> 1) + bit;
		} else {
			r >>= 1;
		}
	}
	return r + (b & 1);
})
