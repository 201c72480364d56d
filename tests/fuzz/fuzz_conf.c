/* SPDX-License-Identifier: Apache-2.0 */
// sources: broker/lib/conf.c broker/lib/key.c broker/lib/fd.c broker/lib/log.c broker/core/address.c libs: -linih
/* Configuration and key files of any content. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/core/address.h"
#include "broker/lib/conf.h"
#include "broker/lib/key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct conf conf;
	static struct key keys[4];
	char *text = malloc(size + 1);
	char host[ADDRESS_HOST_SIZE];
	char why[200] = "";
	size_t count = 0;
	uint16_t port;

	memcpy(text, data, size);
	text[size] = 0;
	conf_init(&conf);
	if (conf_parse(&conf, "f", text, why, sizeof(why)))
		assert(*why);
	assert(conf.lanes >= 1 && conf.lanes <= 16 && conf.server_count <= CONF_SERVERS_MAX);
	address_parse(text, host, &port);
	*why = 0;
	if (key_parse("k", text, keys, 4, &count, why, sizeof(why)))
		assert(*why);
	else
		assert(count >= 1 && count <= 4);
	free(text);
	return 0;
}
