/* SPDX-License-Identifier: Apache-2.0 */
// sources: broker/local/client.c broker/local/client_open.c broker/local/client_packet.c broker/local/client_verdict.c broker/local/verdicts.c broker/local/flow.c broker/local/client_direct.c
// sources: broker/local/journal.c broker/local/baton.c broker/local/adopt.c broker/local/wire.c broker/local/move.c
// sources: broker/local/move_old.c broker/local/move_new.c broker/local/move_way.c broker/local/move_save.c
// sources: broker/local/control_move.c broker/local/control_save.c broker/local/save.c broker/local/saver.c
// sources: broker/local/aside.c broker/local/record.c broker/local/replay.c broker/local/move_ask.c
// sources: broker/local/drain.c broker/local/place_move.c broker/local/route.c broker/local/server.c
// sources: broker/core/dial.c broker/local/broker.c broker/local/state.c broker/local/control.c broker/local/kdev.c
// sources: broker/local/knl.c broker/local/cache.c broker/local/cache_client.c broker/local/cfile.c
// sources: broker/core/held.c broker/local/seen.c broker/local/control_cache.c broker/local/prefetch.c broker/local/place.c
// sources: broker/local/place_store.c broker/local/place_show.c broker/local/control_sched.c broker/local/netwatch.c
// sources: broker/local/discover.c broker/local/discover_line.c broker/local/sched.c broker/local/sched_cost.c
// sources: broker/local/sched_move.c broker/local/sched_profile.c broker/local/sched_policy_cost.c
// sources: broker/local/sched_policy_load.c broker/local/sched_policy_turn.c broker/local/sched_policy_pinned.c
// sources: broker/local/sched_share.c
// sources: broker/core/loop.c broker/core/record.c broker/core/pack.c broker/core/tls.c broker/core/conn.c
// sources: broker/core/hello.c broker/core/lane.c broker/core/link.c broker/core/link_lane.c broker/core/small.c broker/core/pings.c broker/core/address.c broker/core/jobs.c
// sources: broker/node/node.c broker/node/node_seat.c broker/node/node_report.c broker/node/cache.c broker/node/store.c broker/node/store_books.c
// sources: broker/node/store_bytes.c broker/node/store_reader.c broker/node/store_command.c broker/node/store_disk.c
// sources: broker/node/store_memory.c broker/node/store_part.c broker/node/store_mark.c broker/node/origin.c broker/node/gpus.c
// sources: broker/node/fill.c broker/node/pour.c broker/node/ways.c
// sources: broker/lib/visible.c
// sources: broker/node/seat.c broker/node/seat_up.c broker/node/seat_away.c broker/node/work.c broker/node/pool.c broker/node/proc.c broker/node/gate.c broker/node/setting.c
// sources: broker/node/probe.c
// sources: broker/lib/ring.c broker/lib/shm.c broker/lib/slot.c broker/lib/fd.c broker/lib/log.c broker/lib/hash.c
// sources: broker/lib/key.c broker/lib/conf.c broker/lib/json.c broker/lib/chunk.c
// sources: gen/api.c gen/ops.c libs: -luring -llz4 -lssl -lcrypto -linih -lnl-genl-3 -lnl-route-3 -lnl-3 -lm
/*
 * What a node may send for a live session: messages of the command lane and frames behind bulk bytes, with any content. The
 * input is a row of {u8 kind, u8 size / 8, bytes}. Also load reports.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/log.h"
#include "broker/lib/slot.h"
#include "broker/local/client_private.h"
#include "broker/proto/stats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct client client;
static struct loop *loop;

static void begin(void)
{
	static const uint8_t hash[32];
	char why[200];

	log_open("fuzz", LOG_LEVEL_ERROR);
	assert(loop_open(&loop, 8, why, sizeof(why)) == 0);
	assert(shm_make(&client.mirror.shm, hash, 1) == 0);
	mirror_init(&client.mirror);
	pthread_mutex_init(&client.deliver_lock, NULL);
	client.loop = loop;
	client.retry.fire = client_overflow_retry;
	client.retry.arg = &client;
}

/* As a client is when its session has just begun, with a call that waits in slot 1. */
static void again(void)
{
	struct session_header *hdr = shm_header(&client.mirror.shm);

	memset(&hdr->c2n, 0, sizeof(hdr->c2n));
	memset(&hdr->n2c, 0, sizeof(hdr->n2c));
	shm_ring_c2n(&client.mirror.shm, &client.c2n);
	shm_ring_n2c(&client.mirror.shm, &client.n2c);
	client.c2n.at = 65536;
	client.acknowledged = 0;
	client.up_tail = 0;
	memset(&client.pieces, 0, sizeof(client.pieces));
	memset(&client.seen, 0, sizeof(client.seen));
	client.resuming = true;
	memset(client.mirror.shm.base + SESSION_AT_BATON, 0, sizeof(struct session_baton));
	shm_ring_overflow(&client.mirror.shm, &client.overflow_in);
	client.overflow_out = client.overflow_in;
	client.overflowing = false;
	client.broken = NULL;
	client.state = CLIENT_LIVE;
	shm_slot(&client.mirror.shm, 1)->state = SLOT_SENT;
	shm_slot(&client.mirror.shm, 1)->seq = 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint16_t kinds[] = { LINK_FRAME, LINK_CONSUMED, LINK_ENDED, LINK_ATTACHED, LINK_RESUMED, LINK_FRAME_BYTES };

	if (!loop)
		begin();
	again();
	while (size >= 2) {
		uint32_t bytes = data[1] * 8u < size - 2 ? data[1] * 8u : (uint32_t)size - 2;
		uint8_t *body = malloc(bytes + 8);
		unsigned kind = data[0] % 8;

		memcpy(body, data + 2, bytes);
		if (kind < 6) {
			struct link_hdr hdr = { .size = 16 + bytes, .type = kinds[kind], .session = 1 };
			struct reader r = reader_on(body, bytes);

			/* Most frames have a right size, so that what is behind it is reached. */
			if (kind == 0 && bytes >= 24)
				memcpy(body, &bytes, 4);
			client_message(&client, &hdr, &r);
		} else if (kind == 6) {
			/* Behind the bytes of the next bulk frame, or of any. */
			client_deliver(&client.mirror, bytes > 8 ? client.seen.bulk + 1 : data[1], body, bytes);
		} else {
			struct reader r = reader_on(body, bytes);
			struct report report;

			if (report_get(&r, &report))
				assert(report.gpu_count <= REPORT_GPUS_MAX && strlen(report.driver) < REPORT_NAME_SIZE);
		}
		assert(client.acknowledged <= client.c2n.at && client.overflow_in.at - client.overflow_out.at <= SESSION_OVERFLOW_SIZE);
		free(body);
		data += 2 + bytes;
		size -= 2 + bytes;
	}
	client_overflow_retry(&client);
	loop_timer_clear(loop, &client.retry);
	return 0;
}
