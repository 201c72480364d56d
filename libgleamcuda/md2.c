// SPDX-License-Identifier: Apache-2.0
/*
 * MD2 and HMAC-MD2, from the RFCs' descriptions. The permutation of 256 bytes is made of the digits of pi, as the RFC says;
 * making it takes a few microseconds, once. Any thread.
 */
#include "libgleamcuda/md2.h"

#include <pthread.h>
#include <string.h>

#define ROUNDS 18

/*
 * Digits of pi after "3", more than the shuffle below takes. (Fisher and Yates over 0 .. 255, each draw from as
 * many digits as the bound needs, thrown away when it would be biased.)
 */
static const char pi_digits[] =
	"14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214"
	"80865132823066470938446095505822317253594081284811174502841027019385211055596446229489549303819644288109"
	"75665933446128475648233786783165271201909145648566923460348610454326648213393607260249141273724587006606"
	"31558817488152092096282925409171536436789259036001133053054882046652138414695194151160943305727036575959"
	"19530921861173819326117931051185480744623799627495673518857527248912279381830119491298336733624406566430"
	"86021394946395224737190702179860943702770539217176293176752384674818467669405132000568127145263560827785"
	"77134275778960917363717872146844090122495343014654958537105079227968925892354201995611212902196086403441"
	"81598136297747713099605187072113499999983729780499510597317328160963185950244594553469083026425223082533";

static uint8_t permutation[256];
static pthread_once_t permutation_once = PTHREAD_ONCE_INIT;

/* The next number below @bound. */
static unsigned int draw(const char **digits, unsigned int bound)
{
	for (;;) {
		unsigned int number = (unsigned int)(*(*digits)++ - '0');
		unsigned int range = 10;

		if (bound > 10) {
			number = number * 10 + (unsigned int)(*(*digits)++ - '0');
			range = 100;
		}
		if (bound > 100) {
			number = number * 10 + (unsigned int)(*(*digits)++ - '0');
			range = 1000;
		}
		if (number < bound * (range / bound))
			return number % bound;
	}
}

static void permutation_make(void)
{
	/* The shuffle starts with the 3. */
	static char digits[sizeof(pi_digits) + 1] = "3";
	const char *at = digits;

	memcpy(digits + 1, pi_digits, sizeof(pi_digits));
	for (unsigned int i = 0; i < 256; i++)
		permutation[i] = (uint8_t)i;
	for (unsigned int i = 2; i <= 256; i++) {
		unsigned int other = draw(&at, i);
		uint8_t swap = permutation[other];

		permutation[other] = permutation[i - 1];
		permutation[i - 1] = swap;
	}
}

static void block_take(struct md2 *md2, const uint8_t block[MD2_SIZE])
{
	uint8_t x[3 * MD2_SIZE];
	uint8_t t = 0;

	memcpy(x, md2->state, MD2_SIZE);
	for (int i = 0; i < MD2_SIZE; i++) {
		x[MD2_SIZE + i] = block[i];
		x[2 * MD2_SIZE + i] = (uint8_t)(block[i] ^ md2->state[i]);
	}
	for (unsigned int round = 0; round < ROUNDS; round++) {
		for (size_t i = 0; i < sizeof(x); i++)
			t = x[i] ^= permutation[t];
		t = (uint8_t)(t + round);
	}
	memcpy(md2->state, x, MD2_SIZE);

	t = md2->checksum[MD2_SIZE - 1];
	for (int i = 0; i < MD2_SIZE; i++)
		t = md2->checksum[i] ^= permutation[block[i] ^ t];
}

void md2_start(struct md2 *md2)
{
	pthread_once(&permutation_once, permutation_make);
	memset(md2, 0, sizeof(*md2));
}

void md2_add(struct md2 *md2, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;

	for (; size; size--) {
		md2->block[md2->filled++] = *at++;
		if (md2->filled == MD2_SIZE) {
			block_take(md2, md2->block);
			md2->filled = 0;
		}
	}
}

void md2_end(struct md2 *md2, uint8_t digest_out[MD2_SIZE])
{
	uint8_t pad = (uint8_t)(MD2_SIZE - md2->filled);
	uint8_t checksum[MD2_SIZE];

	memset(md2->block + md2->filled, pad, pad);
	block_take(md2, md2->block);
	memcpy(checksum, md2->checksum, MD2_SIZE);
	block_take(md2, checksum);
	memcpy(digest_out, md2->state, MD2_SIZE);
}

static void key_add(struct md2 *md2, const uint8_t *key, size_t key_size, uint8_t mask)
{
	uint8_t padded[MD2_SIZE] = { 0 };

	memcpy(padded, key, key_size < MD2_SIZE ? key_size : MD2_SIZE);
	for (int i = 0; i < MD2_SIZE; i++)
		padded[i] ^= mask;
	md2_add(md2, padded, sizeof(padded));
}

void hmac_md2_start(struct md2 *md2, const uint8_t *key, size_t key_size)
{
	md2_start(md2);
	key_add(md2, key, key_size, 0x36);
}

void hmac_md2_end(struct md2 *md2, const uint8_t *key, size_t key_size, uint8_t digest_out[MD2_SIZE])
{
	uint8_t inner[MD2_SIZE];

	md2_end(md2, inner);
	md2_start(md2);
	key_add(md2, key, key_size, 0x5c);
	md2_add(md2, inner, sizeof(inner));
	md2_end(md2, digest_out);
}
