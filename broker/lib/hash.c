/* SPDX-License-Identifier: Apache-2.0 */
/* Which protocol this binary speaks. Any thread. */
#include "broker/lib/hash.h"

#include <stdio.h>

#include "gen/ops.h"

const uint8_t protocol_hash[PROTOCOL_HASH_SIZE] = PROTOCOL_HASH;

void hash_text(const uint8_t *hash, char text_out[HASH_TEXT_SIZE])
{
	for (int i = 0; i < 8; i++)
		snprintf(text_out + 2 * i, 3, "%02x", hash[i]);
}
