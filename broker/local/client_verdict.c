/* SPDX-License-Identifier: Apache-2.0 */
/* A client's packets about verdicts: what is known of a load, and what is to be kept of one. Control thread; see verdicts.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/local/broker.h"
#include "broker/local/client_private.h"
#include "broker/local/verdicts.h"

#define DRIVER_SIZE (REPORT_NAME_SIZE + 64)

/* False: its node hasn't told yet with what driver it judges. */
static bool scope_of(const struct client *client, char driver[DRIVER_SIZE], struct verdict_scope *scope_out)
{
	const struct report *report = client->server ? server_report(client->server) : NULL;

	if (!report)
		return false;
	snprintf(driver, DRIVER_SIZE, "%s %s", report->driver, report->driver_version);
	*scope_out = (struct verdict_scope){ .uid = client->uid, .server = server_name(client->server), .driver = driver };
	return true;
}

static int part_send(struct client *client, const struct verdict_key *key, size_t total, size_t at, const uint8_t *bytes, size_t size)
{
	uint8_t packet[LOCAL_MSG_MAX] __attribute__((aligned(8)));
	struct writer w = writer_on(packet, sizeof(packet));

	put_u32(&w, LOCAL_VERDICT_PART);
	verdict_key_put(&w, key);
	put_u32(&w, (uint32_t)total);
	put_u32(&w, (uint32_t)at);
	put_bytes(&w, bytes, (uint32_t)size);
	return client_packet(client, packet, w.at, NULL, 0);
}

static int verdict_tell(struct client *client, struct reader *r)
{
	struct verdict_key key = verdict_key_get(r);
	struct verdict_scope scope;
	char driver[DRIVER_SIZE];
	const uint8_t *bytes = NULL;
	size_t size = 0;

	if (r->fault)
		return -EPROTO;
	/* Whoever asks without reading answers gets no more of our memory. One packet may be there that was read before we have heard so. */
	if (client->out_first && client->out_first->next)
		return 0;
	if (scope_of(client, driver, &scope))
		bytes = verdicts_find(broker_verdicts(client->broker), &scope, &key, &size);
	/* An answer that stays away, or ends in the middle, makes it ask no more: it is a load that waits, not its session's end. */
	if (!bytes)
		(void)part_send(client, &key, 0, 0, NULL, 0);
	for (size_t at = 0; bytes && at < size; at += VERDICT_PART_SIZE)
		if (part_send(client, &key, size, at, bytes + at, size - at < VERDICT_PART_SIZE ? size - at : VERDICT_PART_SIZE))
			break;
	return 0;
}

static int verdict_keep(struct client *client, struct reader *r)
{
	struct verdict_key key = verdict_key_get(r);
	uint32_t total = get_u32(r), at = get_u32(r), size;
	const void *part = get_bytes(r, LOCAL_MSG_MAX, &size);
	struct verdict_scope scope;
	char driver[DRIVER_SIZE];
	uint8_t *bytes;
	int got;

	if (r->fault)
		return -EPROTO;
	got = verdict_part(&client->verdict, &key, total, at, part, size, &bytes);
	if (got <= 0)
		return got;
	if (bytes && scope_of(client, driver, &scope))
		verdicts_keep(broker_verdicts(client->broker), &scope, &key, bytes, total);
	else
		free(bytes);
	return 0;
}

static int verdict_more(struct client *client, struct reader *r)
{
	struct verdict_key key = verdict_key_get(r);
	uint32_t size;
	const void *record = get_bytes(r, LOCAL_MSG_MAX, &size);
	struct verdict_scope scope;
	char driver[DRIVER_SIZE];

	if (r->fault || size == 0)
		return -EPROTO;
	if (scope_of(client, driver, &scope))
		verdicts_more(broker_verdicts(client->broker), &scope, &key, record, size);
	return 0;
}

int client_verdict(struct client *client, uint32_t type, struct reader *r)
{
	switch (type) {
	case LOCAL_VERDICT:
		return verdict_tell(client, r);
	case LOCAL_VERDICT_KEEP:
		return verdict_keep(client, r);
	default:
		return verdict_more(client, r);
	}
}
